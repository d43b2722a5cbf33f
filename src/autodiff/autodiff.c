/* autodiff/autodiff.c -- the two sweeps: forward, which values depend on an x; backward, each node's rule, last node first. Values that
 * several nodes read sum what each gives them. (Griewank, Walther: Evaluating Derivatives, 2008, chapter 3.) */
#include "autodiff/internal.h"

#include <assert.h>
#include <string.h>

/* ---- what rules call ------------------------------------------------------------------------------------------------ */

bool wanted(const visit *a, int k)
{
    return k < a->n.n_in && a->d->needs[a->n.in[k]];
}

nnc_ref with_number(visit *a, nnc_op op, nnc_ref r, double v)
{
    return r == NNC_NONE ? NNC_NONE : nnc_build2(a->g, op, r, nnc_scalar(a->g, dtype_of(a, r), v));
}

nnc_ref full_like(visit *a, const nnc_type *t, double v)
{
    return nnc_broadcast(a->g, nnc_scalar(a->g, t->dtype, v), t->rank, t->dim);
}

/* The sum of r over the dimensions along which a value of type `to` was broadcast to it. */
static nnc_ref unbroadcast(nnc_graph *g, nnc_ref r, const nnc_type *to)
{
    int64_t axes[NNC_MAX_RANK];
    int n = 0;
    if (r == NNC_NONE || nnc_type_same_shape(nnc_typeof(g, r), to))
        return r;
    const nnc_type *from = nnc_typeof(g, r);
    int lead = from->rank - to->rank;
    for (int d = 0; d < from->rank; d++)
        if (d < lead || (to->dim[d - lead] == 1 && from->dim[d] != 1))
            axes[n++] = d;
    if (n)
        r = nnc_reduce(g, OP_reduce_sum, r, n, axes, true);
    return lead ? nnc_reshape(g, r, to->rank, to->dim) : r;
}

static void accumulate(diff *d, nnc_ref v, nnc_ref grad)
{
    if (grad == NNC_NONE)
        return;
    const nnc_type t = *nnc_typeof(d->g, v);
    grad = unbroadcast(d->g, grad, &t);
    d->adjoint[v] =
        d->adjoint[v] == NNC_NONE ? grad : nnc_build2(d->g, OP_add, d->adjoint[v], grad);
}

void give(visit *a, int k, nnc_ref grad)
{
    if (wanted(a, k))
        accumulate(a->d, a->n.in[k], grad);
}

nnc_ref result_grad(visit *a, int i)
{
    if (a->dy[i] != NNC_NONE)
        return a->dy[i];
    const nnc_type t = *nnc_typeof(a->g, a->n.out + (nnc_ref)i);
    return full_like(a, &t, 0);
}

void refuse(visit *a, const char *why)
{
    nnc_loc loc = a->n.loc;
    loc.path = a->layer;
    nnc_fail(a->d->sink, NNC_E_MODEL, loc,
        "%s%s has no derivative yet: freeze it and what comes before it", nnc_ops[a->n.op].name,
        why);
    a->d->missing = true;
}

/* ---- rules ---------------------------------------------------------------------------------------------------------- */

/* Integers, and what only compares or counts: nothing flows through. */
static bool is_discrete(nnc_op op)
{
    nnc_class c = nnc_op_class(op);
    return op == OP_sign || op == OP_floor || op == OP_ceil || op == OP_round || op == OP_trunc ||
           op == OP_argmax || op == OP_argmin || op == OP_argmaxpool || c == CL_leaf ||
           nnc_ops[op].flags & (OF_bool | OF_int);
}

static void lowered(visit *a);

static rule *rule_of(nnc_op op)
{
    static rule *const rules[OP__COUNT] = {
#define RULE(op, f) [OP_##op] = f,
#include "autodiff/rules.def"
    };
    nnc_class c = nnc_op_class(op);
    if (rules[op])
        return rules[op];
    return has_derivative(op) ? ewise_rule : c == CL_ecomp || c == CL_comp ? lowered : NULL;
}

bool nnc_has_gradient(nnc_op op, bool *missing)
{
    *missing = !is_discrete(op) && !rule_of(op);
    return !is_discrete(op) && !*missing;
}

/* ---- sweeps --------------------------------------------------------------------------------------------------------- */

void no_memory(nnc_graph *g)
{
    if (g->status == NNC_OK)
        g->status = nnc_nomem(g->sink);
}

/* Makes room for the values that were added; their gradients are unknown. */
static bool grow(diff *d)
{
    size_t want = d->g->n_value, cap = d->cap;
    if (d->g->status != NNC_OK)
        return false;
    if (want <= cap && d->adjoint && d->needs)
        return true;
    want += want / 2;
    nnc_ref *adjoint = nnc_realloc(d->adjoint, want * sizeof *adjoint);
    d->adjoint = adjoint ? adjoint : d->adjoint;
    bool *needs = adjoint ? nnc_realloc(d->needs, want * sizeof *needs) : NULL;
    d->needs = needs ? needs : d->needs;
    if (!needs) {
        no_memory(d->g);
        return false;
    }
    memset(&needs[cap], 0, want - cap);
    memset(&adjoint[cap], 0xff, (want - cap) * sizeof *adjoint);
    d->cap = want;
    return true;
}

/* Marks the results of nodes first..end-1 that depend on an x. */
static void mark(diff *d, uint32_t first, uint32_t end)
{
    assert(d->needs);
    for (uint32_t i = first; i < end; i++) {
        const nnc_node *n = &d->g->node[i];
        bool any = false;
        for (int k = 0; k < n->n_in && !is_discrete(n->op); k++)
            any = any || d->needs[n->in[k]];
        for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
            d->needs[v] = d->needs[v] || (any && nnc_is_float(nnc_typeof(d->g, v)->dtype));
    }
}

/* The path of the node's layer with "/backward", once. */
static const char *backward_origin(nnc_graph *g, const char *origin)
{
    static const char suffix[] = "/backward";
    size_t n = origin ? strlen(origin) : 0, m = sizeof suffix - 1;
    if (n >= m && !strcmp(origin + n - m, suffix))
        return origin;
    return nnc_arena_printf(&g->arena, "%s%s", n ? origin : "", suffix);
}

static void node_backward(diff *d, uint32_t i)
{
    assert(d->needs && d->adjoint);
    const nnc_node *n = &d->g->node[i];
    nnc_ref dy[1] = {NNC_NONE};
    NNC_FREED nnc_ref *many = NULL;
    bool any = false, reached = false;
    visit a = {.d = d, .g = d->g, .n = *n, .dy = dy, .layer = n->origin};
    if (n->n_out > 1) {
        a.dy = many = nnc_malloc(n->n_out * sizeof *many);
        if (!many)
            no_memory(d->g);
    }
    if (d->g->status != NNC_OK)
        return;
    for (int r = 0; r < n->n_out; r++) {
        (many ? many : dy)[r] = d->adjoint[n->out + (nnc_ref)r];
        reached = reached || a.dy[r] != NNC_NONE;
    }
    for (int k = 0; k < n->n_in; k++)
        any = any || d->needs[n->in[k]];
    if (!any || !reached || is_discrete(n->op))
        return;
    rule *f = rule_of(n->op);
    if (!f) {
        refuse(&a, "");
        return;
    }
    a.n.origin = d->g->origin = backward_origin(d->g, n->origin);
    d->g->loc = n->loc;
    d->g->device = n->device;
    f(&a);
}

static void backward(diff *d, uint32_t first, uint32_t end)
{
    for (uint32_t i = end; i > first && grow(d); i--)
        node_backward(d, i - 1);
}

/* Through the op's lowering, built once more: its elementwise ops are computed again. */
static void lowered(visit *a)
{
    diff *d = a->d;
    uint32_t first = a->g->n_node;
    nnc_ref r = nnc_expand(a->g, &a->n, a->n.in);
    uint32_t end = a->g->n_node;
    if (r == NNC_NONE || !grow(d))
        return;
    mark(d, first, end);
    accumulate(d, r, a->dy[0]);
    backward(d, first, end);
}

nnc_status nnc_gradients(nnc_graph *g, int n_y, const nnc_ref *y, const nnc_ref *dy, int n_x,
    const nnc_ref *x, nnc_ref *dx, nnc_sink *sink)
{
    const char *origin = g->origin;
    const nnc_loc loc = g->loc;
    const int16_t device = g->device;
    const uint32_t end = g->n_node;
    diff d = {.g = g, .sink = sink};
    if (grow(&d)) {
        for (int i = 0; i < n_x; i++)
            d.needs[x[i]] = nnc_is_float(nnc_typeof(g, x[i])->dtype);
        mark(&d, 0, end);
    }
    for (int i = 0; i < n_y && grow(&d); i++) {
        visit a = {.d = &d, .g = g};
        const nnc_type t = *nnc_typeof(g, y[i]);
        if (d.needs[y[i]])
            accumulate(&d, y[i], dy && dy[i] != NNC_NONE ? dy[i] : full_like(&a, &t, 1));
    }
    backward(&d, 0, end);
    for (int i = 0; i < n_x; i++)
        dx[i] = g->status == NNC_OK ? d.adjoint[x[i]] : NNC_NONE;
    g->origin = origin;
    g->loc = loc;
    g->device = device;
    nnc_free(d.adjoint);
    nnc_free(d.needs);
    return g->status != NNC_OK ? g->status : d.missing ? NNC_E_MODEL : NNC_OK;
}
