/* check/ties.c -- finds near ties.
 *
 * Choices are ops that jump (OF_jump). Their operands are outputs of a copy of the graph that is evaluated once in float64 and DRAWS times
 * with simulated rounding. The differences are the rounding error of each choice's gap, the distance of its operand from the tie. A tie is
 * near where the gap is below MARGIN errors. Where no draw changes the gap at all, both sides are equal by construction (zeros after a
 * relu), in every program. A relu's gradient asks its result, 0 on one side: the operand is asked instead. */
#include "check/ties.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 2, MOST_TIES = 1 << 20 };
static const double margin = 8;

/* A choice: node n compares the elements of `x` with those of `y`, or with each other. */
typedef struct site {
    const nnc_node *n;
    nnc_ref x, y; /* y NNC_NONE: none */
    int at_x, at_y; /* outputs of the watching graph */
    double c; /* instead of y */
} site;

typedef struct finder {
    const nnc_graph *g;
    nnc_arena a;
    site *site;
    int n_site;
    nnc_graph *watch; /* operands of choices are its outputs */
    nnc_rval *value[1 + DRAWS]; /* of watch: float64, then with simulated rounding */
    nnc_ties *to;
    size_t cap;
    nnc_sink *sink;
} finder;

/* ---- sites ----------------------------------------------------------------------------------- */

/* The operand of the clamps that compute r: whether max(x, 0) > 0 is whether x > 0. */
static nnc_ref before_clamps(const nnc_graph *g, nnc_ref r)
{
    for (;;) {
        const nnc_node *n = nnc_def(g, r);
        double v;
        switch ((nnc_op)n->op) {
        case OP_relu:
        case OP_relu6:
        case OP_clip:
        case OP_identity:
        case OP_reshape: break;
        case OP_max:
        case OP_min:
            if (!nnc_const_scalar(g, n->in[1], &v) ||
                !nnc_type_same_shape(nnc_typeof(g, n->in[0]), nnc_typeof(g, r)))
                return r;
            break;
        default: return r;
        }
        r = n->in[0];
    }
}

static bool is_leaf(const nnc_graph *g, nnc_ref r)
{
    return nnc_op_class((nnc_op)nnc_def(g, r)->op) == CL_leaf;
}

static bool is_comparison(nnc_op op)
{
    return op == OP_eq || op == OP_ne || op == OP_lt || op == OP_le || op == OP_gt || op == OP_ge;
}

static bool jumps(const nnc_graph *g, const nnc_node *n)
{
    if (!n->n_in || !nnc_is_float((nnc_dtype)nnc_typeof(g, n->in[0])->dtype))
        return false;
    return nnc_ops[n->op].flags & OF_jump ||
           (n->op == OP_cast && !nnc_is_float((nnc_dtype)nnc_typeof(g, n->out)->dtype));
}

/* Chooses the operand x of a comparison that is computed and has an element for each result. */
static bool sides(const nnc_graph *g, const nnc_node *n, site *s)
{
    for (int k = 0; k < 2; k++) {
        s->x = n->in[k];
        s->y = n->in[1 - k];
        if (!is_leaf(g, s->x) &&
            nnc_type_numel(nnc_typeof(g, s->x)) == nnc_type_numel(nnc_typeof(g, n->out)))
            return true;
    }
    return false;
}

/* Makes r an output of the watching graph, once. */
static int watch(finder *f, nnc_ref r)
{
    char name[32];
    for (uint32_t i = 0; i < f->watch->n_output; i++)
        if (f->watch->output[i] == r)
            return (int)i;
    snprintf(name, sizeof name, "watched %u", f->watch->n_output);
    nnc_output(f->watch, r, name);
    return (int)f->watch->n_output - 1;
}

static void add_site(finder *f, const nnc_node *n)
{
    site s = {.n = n, .x = n->in[0], .y = NNC_NONE, .at_y = -1};
    if (is_comparison((nnc_op)n->op) && !sides(f->g, n, &s))
        return;
    if (s.y != NNC_NONE && nnc_const_scalar(f->g, s.y, &s.c)) {
        s.y = NNC_NONE;
        s.x = before_clamps(f->g, s.x);
    }
    if (is_leaf(f->g, s.x))
        return; /* exact in every program */
    s.at_x = watch(f, s.x);
    s.at_y = s.y == NNC_NONE ? -1 : watch(f, s.y);
    f->site[f->n_site++] = s;
}

static nnc_status find_sites(finder *f)
{
    const nnc_graph *g = f->g;
    f->site = ARENA_NEW(&f->a, site, g->n_node + 1);
    f->watch = nnc_graph_clone(g, f->sink);
    const uint32_t *uses = nnc_use_counts(g, &f->a);
    NNC_NEED(f->site && f->watch && uses, f->sink);
    f->watch->n_output = 0;
    for (uint32_t i = 0; i < f->watch->n_node; i++)
        f->watch->node[i].state = f->watch->node[i].accumulates = false;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (jumps(g, &g->node[i]) && uses[g->node[i].out])
            add_site(f, &g->node[i]);
    return f->watch->status;
}

/* ---- gaps ------------------------------------------------------------------------------------ */

static nnc_status evaluate(finder *f, void *const *inputs, int threads, nnc_rounding r)
{
    for (int k = 0; k <= DRAWS; k++) {
        nnc_rval *v = ARENA_NEW(&f->a, nnc_rval, f->watch->n_output + 1);
        NNC_NEED(v, f->sink);
        r.seed = 1000 + (uint64_t)k;
        const void *const *in = (const void *const *)inputs;
        NNC_TRY(k ? nnc_eval_rounded(f->watch, in, threads, &r, v, f->sink)
                  : nnc_eval(f->watch, in, threads, v, f->sink));
        f->value[k] = v;
    }
    return NNC_OK;
}

/* Distance from the tie in evaluation k: of x = a from b. */
typedef struct pair {
    double gap[1 + DRAWS];
} pair;

/* Mean square of what the draws change; *any: is it more than 0? */
static double change(const pair *p, bool *any)
{
    double sum = 0;
    *any = false;
    for (int k = 1; k <= DRAWS; k++) {
        const double d = p->gap[k] - p->gap[0];
        *any |= d != 0;
        sum += d * d;
    }
    return sum / DRAWS;
}

/* Element of operand t, which is broadcast to `all`, for its element i. */
static int64_t operand_element(const nnc_type *t, const nnc_type *all, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = all->rank - 1, e = t->rank - 1; d >= 0; d--, e--) {
        const int64_t k = i % all->dim[d];
        i /= all->dim[d];
        if (e < 0)
            break;
        at += t->dim[e] == 1 ? 0 : k * step;
        step *= t->dim[e];
    }
    return at;
}

/* The number at which x's choice jumps that is nearest to v. */
static double nearest_jump(const site *s, double v)
{
    switch ((nnc_op)s->n->op) {
    case OP_sign: return 0;
    case OP_round: return floor(v) + 0.5;
    default: return rint(v);
    }
}

static pair pair_of(const finder *f, const site *s, int64_t i)
{
    pair p;
    double jump = s->c;
    const nnc_type *all = nnc_typeof(f->g, s->n->out);
    const int64_t j = s->at_y < 0 ? 0 : operand_element(nnc_typeof(f->g, s->y), all, i);
    if (!is_comparison((nnc_op)s->n->op))
        jump = nearest_jump(s, f->value[0][s->at_x].f[i]);
    for (int k = 0; k <= DRAWS; k++)
        p.gap[k] = f->value[k][s->at_x].f[i] - (s->at_y < 0 ? jump : f->value[k][s->at_y].f[j]);
    return p;
}

static nnc_status add_tie(
    finder *f, const site *s, int64_t element, double number, double gap, double error)
{
    nnc_ties *t = f->to;
    if (t->n == f->cap) {
        const size_t cap = f->cap ? 2 * f->cap : 64;
        nnc_tie *more = nnc_realloc(t->at, cap * sizeof *more);
        NNC_NEED(more, f->sink);
        t->at = more;
        f->cap = cap;
    }
    if (t->n < MOST_TIES)
        t->at[t->n++] = (nnc_tie){{s->x, element, number}, s->n->out, fabs(gap), error};
    return NNC_OK;
}

/* Is the tie near? rms: of the changes of all gaps of the site. */
static bool near_tie(const pair *p, double rms, double *error)
{
    bool any;
    *error = fmax(sqrt(change(p, &any)), rms);
    return any && fabs(p->gap[0]) <= margin * *error;
}

/* Evaluates x on the other side of the tie; equality is a side of its own. */
static nnc_status cross(finder *f, const site *s, int64_t i, const pair *p, double error)
{
    const double x = f->value[0][s->at_x].f[i], gap = p->gap[0];
    const nnc_op op = (nnc_op)s->n->op;
    const double far = gap != 0 ? gap : op == OP_gt || op == OP_lt ? -error : error;
    if ((op == OP_eq || op == OP_ne) && gap != 0)
        NNC_TRY(add_tie(f, s, i, x - gap, gap, error));
    if (s->n->in[0] != s->x && s->at_y >= 0 && gap == 0) /* y < x: the other direction, too */
        NNC_TRY(add_tie(f, s, i, x + error, gap, error));
    return add_tie(f, s, i, x - 2 * far, gap, error);
}

static nnc_status compare_site(finder *f, const site *s)
{
    const int64_t n = nnc_type_numel(nnc_typeof(f->g, s->x));
    double sum = 0, error;
    int64_t finite = 0;
    bool any;
    for (int64_t i = 0; i < n; i++) {
        const pair p = pair_of(f, s, i);
        const double c = change(&p, &any);
        sum += isfinite(c) ? c : 0;
        finite += isfinite(c);
    }
    const double rms = finite ? sqrt(sum / (double)finite) : 0;
    for (int64_t i = 0; i < n; i++) {
        const pair p = pair_of(f, s, i);
        if (near_tie(&p, rms, &error))
            NNC_TRY(cross(f, s, i, &p, error));
    }
    return NNC_OK;
}

/* ---- the largest of several -------------------------------------------------------------------- */

/* Elements of x among which result i of a choice of the largest chooses; returns how many. */
static int64_t members(const finder *f, const site *s, int64_t i, int64_t *at)
{
    const nnc_type *x = nnc_typeof(f->g, s->x);
    if (s->n->op == OP_argmaxpool)
        return nnc_window_elements(s->n, x, nnc_typeof(f->g, s->n->out), i, at);
    const int axis = (int)nnc_attr_int(s->n, AT_axis, 0);
    int64_t inner = 1;
    for (int d = axis + 1; d < x->rank; d++)
        inner *= x->dim[d];
    for (int64_t k = 0; k < x->dim[axis]; k++)
        at[k] = i / inner * x->dim[axis] * inner + k * inner + i % inner;
    return x->dim[axis];
}

static int64_t most_members(const finder *f, const site *s)
{
    const int64_t *kernel;
    int64_t n = 1;
    if (s->n->op != OP_argmaxpool)
        return nnc_typeof(f->g, s->x)->dim[nnc_attr_int(s->n, AT_axis, 0)];
    for (int k = nnc_attr_ints(s->n, AT_kernel, &kernel); k-- > 0;)
        n *= kernel[k];
    return n;
}

/* Root mean square of what draws change in x. */
static double rms_of(const finder *f, const site *s)
{
    const int64_t n = nnc_type_numel(nnc_typeof(f->g, s->x));
    double sum = 0;
    int64_t finite = 0;
    for (int k = 1; k <= DRAWS; k++)
        for (int64_t i = 0; i < n; i++) {
            const double d = f->value[k][s->at_x].f[i] - f->value[0][s->at_x].f[i];
            sum += isfinite(d) ? d * d : 0;
            finite += isfinite(d);
        }
    return finite ? sqrt(sum / (double)finite) : 0;
}

/* Elements that may win instead of the winner get a number beyond it. */
static nnc_status largest_site(finder *f, const site *s)
{
    const int64_t n = nnc_type_numel(nnc_typeof(f->g, s->n->out));
    const double rms = M_SQRT2 * rms_of(f, s), sign = s->n->op == OP_argmin ? -1 : 1;
    NNC_FREED int64_t *at = nnc_malloc((size_t)(most_members(f, s) + 1) * sizeof *at);
    NNC_NEED(at, f->sink);
    const double *x = f->value[0][s->at_x].f;
    for (int64_t i = 0; i < n; i++) {
        const int64_t m = members(f, s, i, at);
        int64_t best = 0;
        for (int64_t k = 1; k < m; k++)
            if (sign * x[at[k]] > sign * x[at[best]])
                best = k;
        for (int64_t k = 0; k < m; k++) {
            pair p;
            double error;
            for (int d = 0; d <= DRAWS; d++)
                p.gap[d] = f->value[d][s->at_x].f[at[best]] - f->value[d][s->at_x].f[at[k]];
            if (k == best || !near_tie(&p, rms, &error))
                continue;
            const double beyond = p.gap[0] != 0 ? p.gap[0] : sign * error / 2;
            NNC_TRY(add_tie(f, s, at[k], x[at[best]] + beyond, p.gap[0], error));
        }
    }
    return NNC_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int nearest_first(const void *a, const void *b)
{
    const nnc_tie *x = a, *y = b;
    const double p = x->gap * y->error, q = y->gap * x->error;
    if (p != q)
        return p < q ? -1 : 1;
    return x->edit.value != y->edit.value ? (x->edit.value < y->edit.value ? -1 : 1)
           : x->edit.element != y->edit.element
               ? (x->edit.element < y->edit.element ? -1 : 1)
               : (x->edit.number > y->edit.number) - (x->edit.number < y->edit.number);
}

/* Several choices ask the same operand: leaves one tie of each. */
static void drop_equal(nnc_ties *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const nnc_replaced *e = &t->at[i].edit, *last = n ? &t->at[n - 1].edit : NULL;
        if (!last || last->value != e->value || last->element != e->element ||
            last->number != e->number)
            t->at[n++] = t->at[i];
    }
    t->n = n;
}

nnc_status nnc_ties_find(const nnc_graph *g, void *const *inputs, int threads, nnc_rounding r,
    nnc_ties *ties, nnc_sink *sink)
{
    finder f = {.g = g, .to = ties, .sink = sink};
    *ties = (nnc_ties){0};
    nnc_status st = find_sites(&f);
    if (!st && f.n_site)
        st = evaluate(&f, inputs, threads, r);
    for (int i = 0; !st && i < f.n_site; i++) {
        const nnc_op op = (nnc_op)f.site[i].n->op;
        const bool largest = op == OP_argmax || op == OP_argmin || op == OP_argmaxpool;
        st = (largest ? largest_site : compare_site)(&f, &f.site[i]);
    }
    for (int k = 0; k <= DRAWS; k++)
        for (uint32_t i = 0; f.value[k] && i < f.watch->n_output; i++)
            nnc_rval_free(&f.value[k][i]);
    nnc_graph_destroy(f.watch);
    nnc_arena_deinit(&f.a);
    if (ties->n)
        qsort(ties->at, ties->n, sizeof *ties->at, nearest_first);
    drop_equal(ties);
    return st;
}

void nnc_ties_deinit(nnc_ties *t)
{
    nnc_free(t->at);
    *t = (nnc_ties){0};
}

nnc_status nnc_ties_eval(const nnc_graph *g, void *const *inputs, int threads, const nnc_ties *t,
    const size_t *which, size_t n, nnc_rval *value, nnc_sink *sink)
{
    NNC_FREED nnc_replaced *edit = nnc_calloc(n + 1, sizeof *edit);
    NNC_NEED(edit, sink);
    for (size_t i = 0; i < n; i++)
        edit[i] = t->at[which[i]].edit;
    return nnc_eval_replaced(g, (const void *const *)inputs, threads, edit, n, value, sink);
}

nnc_status nnc_ties_spread(const nnc_graph *g, void *const *inputs, int threads, const nnc_ties *t,
    const nnc_reference *r, double *sum, nnc_sink *sink)
{
    enum { PARTS = 4 };
    memset(sum, 0, g->n_output * sizeof *sum);
    NNC_FREED size_t *which = nnc_calloc(t->n + 1, sizeof *which);
    NNC_FREED nnc_rval *v = nnc_calloc(g->n_output + 1, sizeof *v);
    NNC_NEED(which && v, sink);
    for (size_t part = 0; part < PARTS && part < t->n; part++) {
        size_t n = 0;
        for (size_t i = part; i < t->n; i += PARTS)
            which[n++] = i;
        NNC_TRY(nnc_ties_eval(g, inputs, threads, t, which, n, v, sink));
        for (uint32_t o = 0; o < g->n_output; o++) {
            for (int64_t i = 0; i < nnc_type_numel(&v[o].type); i++) {
                const double d = nnc_rval_number(&v[o], i) - nnc_rval_number(&r->value[o], i);
                sum[o] += isfinite(d) && !nnc_is_open(r, (int)o, i) ? d * d : 0;
            }
            nnc_rval_free(&v[o]);
        }
    }
    return NNC_OK;
}
