/* passes/one_pass.c -- on GPUs: the mean and the variance of large rows or columns in one pass over memory.
 *
 *   m = mean(x);  v = mean((x - m)^2)    ->    d = x - s;  q = mean(d);  m = s + q;  v = max(mean(d^2) - q^2, 0).
 *
 * As written, the second sum waits for the first, and two kernels read x. The shift s is the first element of each row. With any element of
 * the row the difference cancels few digits (Chan, Golub, LeVeque: "Algorithms for Computing the Sample Variance", 1983). mean(x^2) - m^2
 * loses all digits where the mean is large beside the deviation. Rounding may leave a difference below 0.
 *
 * A kernel that keeps rows in registers reads them once as written. Both forms are therefore built, and the one with the lower estimate
 * stays. Terminates: the new variance is no mean of a square of x - mean(x). */
#include "passes/internal.h"

enum { MOST = 16 }; /* most nodes of an estimated kernel */

/* x with its mean and variance, which are nodes, and the nodes between them. */
typedef struct variance {
    nnc_ref x;
    uint32_t mean, centred, square, var;
} variance;

/* Is node i the variance of a tensor over the axes that it reduces? */
static bool find_variance(const pass *p, uint32_t i, variance *f)
{
    const nnc_graph *g = p->g;
    const nnc_node *v = &g->node[i];
    if (v->op != OP_reduce_mean || !nnc_attr_int(v, AT_keepdims, 1) || p->e.dead[i] ||
        p->e.is_static[i])
        return false;
    const nnc_node *s = def_of(p, v->in[0]);
    if (s->op != OP_square && (s->op != OP_mul || s->in[0] != s->in[1]))
        return false;
    const nnc_node *c = def_of(p, s->in[0]);
    const nnc_node *m = c->op == OP_sub ? def_of(p, c->in[1]) : NULL;
    if (!m || m->op != OP_reduce_mean || m->in[0] != c->in[0] || !attrs_equal(m, v))
        return false;
    *f = (variance){c->in[0], node_index(p, m), node_index(p, c), node_index(p, s), i};
    return !placed_apart(m, v);
}

/* Expected time of one kernel of these nodes and of the cast that computes x, which each kernel repeats. 0: no kernel can compute them. */
static int64_t kernel_ns(
    pass *p, nnc_ref x, const uint32_t *node, int n, const nnc_ref *out, int n_out)
{
    uint32_t all[MOST + 1] = {p->g->value[x].node};
    const int cast = p->g->node[all[0]].op == OP_cast;
    for (int k = 0; k < n && k < MOST; k++)
        all[cast + k] = node[k];
    return expected_ns(p, all, n + cast, out, n_out, NULL);
}

/* Time as written: of one kernel, or of one for each sum. */
static int64_t written_ns(pass *p, const variance *f)
{
    const uint32_t node[] = {f->mean, f->centred, f->square, f->var};
    const nnc_ref out[] = {p->g->node[f->mean].out, p->g->node[f->var].out};
    const int64_t one = kernel_ns(p, f->x, node, 4, out, 2);
    const int64_t mean = kernel_ns(p, f->x, node, 1, out, 1),
                  var = kernel_ns(p, f->x, node + 1, 3, out + 1, 1);
    const int64_t two = mean && var ? mean + var : 0;
    return one && two ? nnc_min64(one, two) : nnc_max64(one, two);
}

/* The first element of each row that node v reduces. */
static nnc_ref first_elements(pass *p, const nnc_node *v, nnc_ref x)
{
    static const int64_t zero[NNC_MAX_RANK];
    int64_t one[NNC_MAX_RANK];
    const int64_t *axes;
    const int n = nnc_attr_ints(v, AT_axes, &axes);
    for (int k = 0; k < n; k++)
        one[k] = 1;
    const nnc_attr cut[] = {
        nnc_av(AT_starts, n, zero), nnc_av(AT_ends, n, one), nnc_av(AT_axes, n, axes)};
    return nnc_build(p->g, OP_slice, 1, &x, 3, cut);
}

/* out[0]: the mean, out[1]: the variance. */
static void build(pass *p, const variance *f, nnc_ref out[2])
{
    nnc_graph *g = p->g;
    const nnc_node v = g->node[f->var];
    const nnc_dtype d = type_of(p, f->x)->dtype;
    const nnc_ref zero = nnc_scalar(g, d, 0), shift = first_elements(p, &v, f->x);
    const nnc_ref c = nnc_build2(g, OP_sub, f->x, shift), square = nnc_build2(g, OP_mul, c, c);
    const nnc_ref q = nnc_build(g, OP_reduce_mean, 1, &c, v.n_attr, v.attr),
                  w = nnc_build(g, OP_reduce_mean, 1, &square, v.n_attr, v.attr);
    const nnc_ref less = nnc_build2(g, OP_sub, w, nnc_build2(g, OP_mul, q, q));
    out[0] = nnc_build2(g, OP_add, shift, q);
    out[1] = nnc_build2(g, OP_max, less, zero);
}

static void compute_once(pass *p, const variance *f)
{
    const uint32_t first = p->g->n_node;
    const nnc_ref x = f->x, mean = p->g->node[f->mean].out, var = p->g->node[f->var].out;
    const int64_t written = written_ns(p, f);
    uint32_t node[MOST];
    nnc_ref out[2] = {NNC_NONE, NNC_NONE};
    layers l = layers_of(p, f->var, NNC_NONE);
    int n = 0;
    edit_at(p, f->var);
    build(p, f, out);
    if (!edit_sync(p))
        return;
    for (uint32_t i = first; i < p->g->n_node && n < MOST; i++)
        if (p->g->node[i].n_in)
            node[n++] = i;
    const int64_t once = kernel_ns(p, x, node, n, out, 2);
    const char *rule = "mean and variance in one pass", *size = text_bytes(p, bytes_of(p, x));
    if (!once || !written || once >= written) {
        if (!once || !written)
            remark_declined(
                p, &l, rule, "there is no kernel for %s", once ? "what is written" : "it");
        else if (once == written)
            remark_declined(
                p, &l, rule, "%s are expected to take %s in either form", size, text_us(p, once));
        else
            remark_declined(p, &l, rule, "%s are expected to take %s in one pass, as written %s",
                size, text_us_beside(p, once, written), text_us_beside(p, written, once));
        for (uint32_t i = p->g->n_node; i-- > first;)
            if (edit_unused(p, i))
                edit_sweep(p, i);
        return;
    }
    edit_replace(p, var, edit_like(p, out[1], var));
    edit_replace(p, mean, edit_like(p, out[0], mean));
    remark_applied(p, &l, rule,
        "sums of x - x[0] and of its square, which do not wait for each other: %s are read once; "
        "expected to take %s, as written %s (fuse regains the cost)",
        size, text_us_beside(p, once, written), text_us_beside(p, written, once));
}

nnc_status pass_one_pass(pass *p)
{
    const uint32_t n_node = p->g->n_node;
    for (uint32_t i = 0; i < n_node && p->status == NNC_OK; i++) {
        variance f;
        if (target_of(p, &p->g->node[i])->kind == NNC_T_cuda && p->o->policy.math != MATH_exact &&
            find_variance(p, i, &f) && type_of(p, f.x)->dtype == DT_f32)
            compute_once(p, &f);
    }
    return p->status;
}
