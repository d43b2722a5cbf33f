/* passes/contract.c -- 1x1 convolutions and linear layers of 16 bits as kernels on a GPU's tensor cores, with the elementwise ops before
 * and after them (schedule/cuda_contract.c):
 *
 *     u = x s,  y = conv(u, w),  v = silu(y + b)   ->   v = fused(x, s, w, b) { u = x s, y = conv(u, w) as_kernel, v = silu(y + b) }
 *
 * A library reads u from memory and writes what is before its last supported op, each of which takes a pass over memory. Two totals
 * compete: this kernel's estimate, and the library's call with kernels for the other ops. Only layers are asked about where there are
 * such kernels. From the first contraction to the last, so that the ops between two of them are the first one's. Terminates: each node
 * is visited once. */
#include "passes/internal.h"
#include "passes/products.h"
#include "schedule/schedule.h"

enum {
    MOST_BEFORE = 4,
    MARGIN = 8 /* the kernel must take an eighth less, since its estimate was never measured */
};

typedef struct run {
    uint32_t node[MOST_BEFORE + 1 + MAX_CHAIN]; /* operands before users */
    int n, core; /* the contraction is node[core] */
    epilogue after; /* the ops after it */
} run;

/* Does convolution n read and write each pixel's channels once, side by side? */
static bool is_1x1(const pass *p, const nnc_node *n)
{
    const nnc_type *x = type_of(p, n->in[0]), *w = type_of(p, n->in[1]), *y = type_of(p, n->out);
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

/* May a kernel on tensor cores compute node n? */
static bool is_candidate(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    const nnc_target *t = target_of(p, n);
    if ((n->op != OP_conv && n->op != OP_linear) || p->e.dead[i] || p->e.is_static[i] || !t ||
        t->kind != NNC_T_cuda || !nnc_target_for_kernels(t) || p->o->policy.math == MATH_exact)
        return false;
    const nnc_type *x = type_of(p, n->in[0]), *w = type_of(p, n->in[1]), *y = type_of(p, n->out);
    return (x->dtype == DT_f16 || x->dtype == DT_bf16) && w->dtype == x->dtype &&
           y->dtype == x->dtype && w->dim[1] % CU_CONTRACT_VEC == 0 && nnc_type_is_dense(x) &&
           nnc_type_is_dense(y) && nnc_type_is_row_major(w) &&
           (n->op == OP_conv ? is_1x1(p, n) : nnc_type_is_row_major(x) && nnc_type_is_row_major(y));
}

/* Is node d an elementwise op of contraction c's device and type t, whose operands have t's elements in t's order, or fewer? *full: how
 * many have all, *first: the first of them. */
static bool is_elementwise(const pass *p, const nnc_node *d, const nnc_node *c, const nnc_type *t,
    int *full, nnc_ref *first)
{
    *full = 0;
    if (!nnc_op_is_ewise(d->op) || d->n_out != 1 || placed_apart(d, c) ||
        !nnc_type_same_memory(type_of(p, d->out), t) || type_of(p, d->out)->dtype != t->dtype)
        return false;
    for (int k = 0; k < d->n_in; k++) {
        const nnc_type *x = type_of(p, d->in[k]);
        if (x->dtype != t->dtype || !nnc_type_is_dense(x) ||
            (!nnc_type_same_memory(x, t) && nnc_type_numel(x) >= nnc_type_numel(t)))
            return false;
        if (nnc_type_same_memory(x, t) && (*full)++ == 0)
            *first = d->in[k];
    }
    return true;
}

/* Collects the ops before contraction i that are passes over memory of their own; returns the bytes that these move. */
static int64_t take_before(pass *p, uint32_t i, run *r)
{
    const nnc_node *c = &p->g->node[i];
    const nnc_type *t = type_of(p, c->in[0]);
    nnc_ref v = c->in[0], first = v;
    uint32_t reader = i, list[MOST_BEFORE];
    int n = 0, full = 1;
    int64_t bytes = bytes_of(p, v);
    while (n < MOST_BEFORE && full == 1) {
        const nnc_node *d = def_of(p, v);
        if (edit_only_user(p, v) != &p->g->node[reader] || edit_static(p, v) ||
            !is_elementwise(p, d, c, t, &full, &first) || full == 0)
            break;
        list[n++] = reader = node_index(p, d);
        for (int k = 0; k < d->n_in; k++)
            bytes = nnc_add_sat(bytes, d->in[k] == first ? 0 : bytes_of(p, d->in[k]));
        v = first;
    }
    /* what another kernel or a library's call computes beside its own */
    const nnc_node *d = def_of(p, v);
    const bool alone = full > 1 || edit_only_user(p, v) == NULL || nnc_op_class(d->op) == CL_leaf ||
                       d->op == OP_fused;
    if (n == 0 || !alone || epilogue_of(p, c->in[0]))
        return 0;
    while (n > 0)
        r->node[r->n++] = list[--n];
    return nnc_add_sat(bytes, bytes_of(p, v));
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
        memcpy(a, n->attr, sizeof *a * (size_t)at);
        memcpy(a + at + 1, n->attr + at, sizeof *a * (size_t)(n->n_attr - at));
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
        nnc_printf(&words, "%s%s", k ? "+" : "", nnc_ops[p->g->node[r->node[k]].op].name);
    return text_of(p, &words);
}

/* Decides about the run, whose ops before the contraction move so many bytes in a kernel of their own. */
static void compete(pass *p, const run *r, int64_t before)
{
    const uint32_t i = r->node[r->core];
    const nnc_target *t = target_of(p, &p->g->node[i]);
    bool passes = before > 0;
    const int64_t calls = epilogue_ns(p, i, &r->after, &passes),
                  apart = nnc_add_sat(calls, before ? nnc_target_time_ns(t, 0, before) : 0);
    if (!passes)
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
        if (!is_candidate(p, i))
            continue;
        run r = {.after = {.stop = NNC_NONE}};
        const int64_t before = take_before(p, i, &r);
        r.core = r.n;
        r.node[r.n++] = i;
        take_after(p, i, &r);
        compete(p, &r, before);
    }
    return p->status;
}
