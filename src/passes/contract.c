/* passes/contract.c -- 16-bit 1x1 convolutions and linear layers as kernels on a GPU's tensor cores (schedule/cuda_contract.c). The
 * elementwise ops before and after them join the kernel.
 *
 *     u = x s,  y = conv(u, w),  v = silu(y + b)   ->   v = fused(x, s, w, b) { u = x s, y = conv(u, w) as_kernel, v = silu(y + b) }.
 *
 * A library reads u from memory, and stores its result before the first op that it does not support: two passes over memory. The kernel's
 * estimate competes with the library's call plus kernels for the other ops. Layers without such a kernel are skipped. Contractions are
 * visited from first to last, so that ops between two of them join the first. Terminates: each node is visited once. */
#include "passes/internal.h"
#include "passes/products.h"
#include "schedule/schedule.h"

enum {
    MOST_BEFORE = 8,
    MARGIN = 8 /* the kernel must take an eighth less, since its estimate was never measured */
};

typedef struct run {
    uint32_t node[MOST_BEFORE + 1 + MAX_CHAIN]; /* operands before users */
    int n, core; /* the contraction is node[core] */
    epilogue after; /* the ops after it */
} run;

/* Is convolution n a 1x1 one that reads and writes each pixel's channels once, contiguously? */
static bool is_1x1(const nnc_graph *g, const nnc_node *n)
{
    const nnc_type *x = nnc_typeof(g, n->in[0]), *w = nnc_typeof(g, n->in[1]),
                   *y = nnc_typeof(g, n->out);
    const int64_t *v;
    for (int k = nnc_attr_ints(n, AT_strides, &v); k-- > 0;)
        if (v[k] != 1)
            return false;
    for (int k = nnc_attr_ints(n, AT_pads, &v); k-- > 0;)
        if (v[k])
            return false;
    return nnc_attr_int(n, AT_groups, 1) == 1 && nnc_type_numel(w) == w->dim[0] * w->dim[1] &&
           x->order[x->rank - 1] == 1 && y->order[y->rank - 1] == 1;
}

/* May a kernel on tensor cores compute node i, a contraction with or without epilogue? *source: the operand that it multiplies by the
 * weights. */
static bool is_candidate(const pass *p, uint32_t i, int *source)
{
    const nnc_node *n = &p->g->node[i];
    const nnc_target *t = target_of(p, n);
    if (p->e.dead[i] || p->e.is_static[i] || !t || t->kind != NNC_T_cuda ||
        !nnc_target_for_kernels(t) || p->o->policy.math == MATH_exact || !is_contraction(p, n))
        return false;
    const nnc_node *c = contraction_in(n, 0, source);
    const nnc_graph *g = n->op == OP_fused ? n->body : p->g;
    if (!c || (c->op != OP_conv && c->op != OP_linear) || *source < 0)
        return false;
    const nnc_type *x = nnc_typeof(g, c->in[0]), *w = nnc_typeof(g, c->in[1]),
                   *y = nnc_typeof(g, c->out);
    return (x->dtype == DT_f16 || x->dtype == DT_bf16) && w->dtype == x->dtype &&
           y->dtype == x->dtype && w->dim[1] % CU_CONTRACT_VEC == 0 &&
           nnc_type_is_dense(type_of(p, n->in[*source])) && nnc_type_is_dense(type_of(p, n->out)) &&
           nnc_type_is_row_major(w) &&
           (c->op == OP_conv ? is_1x1(g, c) : nnc_type_is_row_major(x) && nnc_type_is_row_major(y));
}

/* Do tensors of these types have the same elements in the same order? */
static bool is_alike(const nnc_type *a, const nnc_type *b)
{
    return nnc_type_same_shape(a, b) && memcmp(a->order, b->order, sizeof *a->order * a->rank) == 0;
}

/* Is node d elementwise on floats, on contraction c's device, with a result like t (same elements, same order)? Its operands must be like t
 * or smaller. *full: number of operands like t, *first: the first of them. */
static bool is_elementwise(const pass *p, const nnc_node *d, const nnc_node *c, const nnc_type *t,
    int *full, nnc_ref *first)
{
    *full = 0;
    if (!nnc_op_is_ewise(d->op) || d->n_out != 1 || placed_apart(d, c) ||
        !is_alike(type_of(p, d->out), t) ||
        nnc_kdtype((nnc_dtype)type_of(p, d->out)->dtype) != DT_f32)
        return false;
    for (int k = 0; k < d->n_in; k++) {
        const nnc_type *x = type_of(p, d->in[k]);
        if (nnc_kdtype((nnc_dtype)x->dtype) != DT_f32 ||
            (!is_alike(x, t) && nnc_type_numel(x) >= nnc_type_numel(t)))
            return false;
        if (is_alike(x, t) && (*full)++ == 0)
            *first = d->in[k];
    }
    return true;
}

/* Collects the ops before contraction i. Returns the nanoseconds that they take outside of its kernel; 0: none worth fusing. Outside they
 * are a kernel of their own, or another result of the kernel before them, where all their operands are known then. */
static int64_t take_before(pass *p, uint32_t i, int source, run *r)
{
    const nnc_node *c = &p->g->node[i];
    const nnc_target *t = target_of(p, c);
    const nnc_type *type = type_of(p, c->in[source]);
    nnc_ref v = c->in[source], first = v;
    uint32_t reader = i, list[MOST_BEFORE];
    int n = 0, full = 1;
    bool known = true;
    int64_t bytes = bytes_of(p, v);
    while (n < MOST_BEFORE && full == 1) {
        const nnc_node *d = def_of(p, v);
        if (edit_only_user(p, v) != &p->g->node[reader] || edit_static(p, v) ||
            !is_elementwise(p, d, c, type, &full, &first))
            break;
        list[n++] = reader = node_index(p, d);
        for (int k = 0; k < d->n_in; k++) {
            bytes = nnc_add_sat(bytes, d->in[k] == first ? 0 : bytes_of(p, d->in[k]));
            known = known && (d->in[k] == first || edit_static(p, d->in[k]));
        }
        v = first;
    }
    const nnc_node *d = def_of(p, v);
    const bool kernel = nnc_op_class(d->op) != CL_leaf && d->op != OP_fused &&
                        !nnc_is_in_place(d) && !is_contraction(p, d);
    if (n == 0 || (kernel && full < 2 && edit_only_user(p, v)))
        return 0;
    while (n > 0)
        r->node[r->n++] = list[--n];
    return kernel && known ? nnc_target_time_ns(t, 0, bytes) - t->launch_ns
                           : nnc_target_time_ns(t, 0, nnc_add_sat(bytes, bytes_of(p, v)));
}

/* Collects the ops after contraction i. */
static void take_after(pass *p, uint32_t i, run *r)
{
    const nnc_node *c = &p->g->node[i];
    const nnc_type *t = type_of(p, c->out);
    nnc_ref v = c->out, first;
    int full;
    while (r->after.n < MAX_CHAIN) {
        const nnc_node *u = edit_only_user(p, v);
        if (!u || !is_elementwise(p, u, c, t, &full, &first))
            return;
        r->node[r->n++] = r->after.node[r->after.n++] = node_index(p, u);
        v = u->out;
    }
}

/* Sets as_kernel of the contraction in a region's body. */
static bool set_as_kernel(pass *p, nnc_graph *body)
{
    for (uint32_t i = 0; i < body->n_node; i++) {
        nnc_node *n = &body->node[i];
        if (n->op != OP_conv && n->op != OP_linear)
            continue;
        nnc_attr *a = ARENA_NEW(&body->arena, nnc_attr, n->n_attr + 1);
        int at = 0;
        if (!pass_made(p, a != NULL))
            return false;
        while (at < n->n_attr && n->attr[at].key < AT_as_kernel)
            at++;
        for (int k = 0; k < n->n_attr; k++)
            a[k + (k >= at)] = n->attr[k];
        a[at] = nnc_ai(AT_as_kernel, 1);
        n->attr = a;
        n->n_attr++;
    }
    return true;
}

/* "mul+conv+add+silu" */
static const char *run_word(pass *p, const run *r)
{
    NNC_LOCAL(nnc_text) words = {0};
    for (int k = 0; k < r->n; k++)
        nnc_printf(&words, "%s%s", k ? "+" : "", node_word(p, &p->g->node[r->node[k]]));
    return text_of(p, &words);
}

/* Fuses the run if its kernel is expected to be faster. `before`: nanoseconds of the ops before the contraction if they are not fused. */
static void compete(pass *p, const run *r, int64_t before)
{
    const uint32_t i = r->node[r->core];
    const nnc_target *t = target_of(p, &p->g->node[i]);
    nnc_ask ask;
    contraction_ask(p, &p->g->node[i], &ask);
    const nnc_offer call = nnc_target_offer(t, &ask);
    const int64_t passes = nnc_add_sat(epilogue_rest_ns(p, i, &r->after), before),
                  apart = nnc_add_sat(call.time_ns, passes);
    if (!passes || !call.ok)
        return;
    NNC_LOCAL(nnc_arena) mem = {0};
    const char *why = NULL, *rule = remark_text(p, "%s on tensor cores", run_word(p, r));
    layers l = {0};
    for (int k = 0; k < r->n; k++)
        layers_add(p, &l, r->node[k]);
    const nnc_ref out = p->g->node[r->node[r->n - 1]].out,
                  v = region_build(p, r->node, r->n, &out, 1);
    if (v == NNC_NONE || !set_as_kernel(p, def_of(p, v)->body))
        return;
    const nnc_kernel *k = products_kernel(p, def_of(p, v), &mem, &why);
    const int64_t own = k ? cu_contract_ns(k, t) : -1;
    if (p->status != NNC_OK)
        return;
    if (own >= 0)
        why =
            remark_text(p, "one kernel takes %s by estimate, %s with kernels for the other ops %s",
                text_us_beside(p, own, apart), engine_name(p, &p->g->node[i]),
                text_us_beside(p, apart, own));
    if (own < 0 || nnc_add_sat(own, own / MARGIN) > apart) {
        edit_sweep(p, p->g->value[v].node);
        if (own >= 0)
            remark_declined(
                p, &l, rule, "%s%s", why, own < apart ? ": too little less for an estimate" : "");
        return;
    }
    edit_replace(p, out, v);
    remark_applied(
        p, &l, rule, "tiles of %d rows by %d columns: %s", k->grid.group, k->grid.vec, why);
}

nnc_status pass_contract(pass *p)
{
    const uint32_t n = p->g->n_node;
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        int source;
        if (!is_candidate(p, i, &source))
            continue;
        run r = {.after = {.stop = NNC_NONE}};
        const int64_t before = take_before(p, i, source, &r);
        r.core = r.n;
        r.node[r.n++] = i;
        take_after(p, i, &r);
        compete(p, &r, before);
    }
    return p->status;
}
