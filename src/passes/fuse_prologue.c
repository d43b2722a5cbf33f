/* passes/fuse_prologue.c -- fuses elementwise ops into the contraction that alone reads their result, as its prologue. A generated kernel
 * computes them once for each block of the source (kernel/panel.c), and their result is neither stored nor loaded.
 *
 *     y = relu(x s + b),  z = conv(y, w)   ->   z = fused(x, s, b, w) { y = relu(x s + b), conv(y, w) }.
 *
 * Libraries have no prologue. The contraction plus a kernel for the ops competes with a contraction that has both. Terminates: a
 * contraction that has a prologue no longer reads the result of an elementwise kernel. */
#include "passes/internal.h"

/* Why op n is not elementwise, in the memory order of v, its result. */
static const char *not_elementwise(
    pass *p, const nnc_graph *g, const nnc_node *n, const nnc_type *type)
{
    nnc_class c = nnc_op_class(n->op);
    if (n->op == OP_constant || n->op == OP_input)
        return NULL;
    if ((c != CL_ewise && c != CL_ecomp) || n->n_out != 1)
        return remark_text(p, "a prologue is elementwise, and %s is not", nnc_ops[n->op].name);
    for (int k = 0; k < n->n_in; k++)
        if (nnc_type_same_shape(nnc_typeof(g, n->in[k]), type) &&
            memcmp(nnc_typeof(g, n->in[k])->order, type->order, sizeof *type->order * type->rank) !=
                0)
            return "an operand has another memory order";
    return NULL;
}

/* Why no engine can have node d, whose result contraction c of node i reads first, as a prologue; NULL: ask the engines. */
static const char *blocker(pass *p, uint32_t d, uint32_t i, const nnc_node *c, nnc_ref v)
{
    const nnc_node *a = &p->g->node[d];
    const nnc_type *x = type_of(p, v);
    const nnc_graph *g = a->op == OP_fused ? a->body : p->g;
    const char *why = NULL;
    if (p->g->value[v].node != d)
        return "a view lies between them";
    if (edit_is_output(p, v) || a->n_out > 1 || edit_only_user(p, v) != &p->g->node[i])
        return "other ops read the result, too";
    if (placed_apart(a, &p->g->node[i]))
        return placed_apart(a, &p->g->node[i]);
    for (uint32_t k = 0; a->op == OP_fused && k < g->n_node && !why; k++)
        why = not_elementwise(p, g, &g->node[k], x);
    why = why || a->op == OP_fused ? why : not_elementwise(p, g, a, x);
    const nnc_type *w =
        nnc_typeof(p->g->node[i].op == OP_fused ? p->g->node[i].body : p->g, c->in[1]);
    const int64_t *pads;
    for (int k = nnc_attr_ints(c, AT_pads, &pads); k-- > 0 && !why;)
        why = pads[k] ? "the source is padded, which a prologue is not" : NULL;
    for (int k = 2; (c->op == OP_conv || c->op == OP_conv_transpose) && k < w->rank && !why; k++)
        why = w->dim[k] > 1 ? "windows overlap, and each would compute its elements again" : NULL;
    if (!why && (nnc_attr_int(c, AT_transpose_a, 0) ||
                    x->order[x->rank - 1] != (c->op == OP_conv ? 1 : x->rank - 1)))
        why = "the source is not contiguous along the sum";
    if (!why && (why = panels_blocked(p, i)))
        why = remark_text(p, "weights are not packed: %s", why);
    return why;
}

/* Fuses nodes d and i; *how: the reason. */
static void fuse(pass *p, uint32_t d, uint32_t i, const char *rule, const char *how)
{
    layers l = layers_of(p, d, i);
    nnc_ref out = p->g->node[i].out, r = region_build(p, (uint32_t[]){d, i}, 2, &out, 1);
    if (r == NNC_NONE)
        return;
    edit_replace(p, out, r);
    remark_applied(p, &l, rule, "%s", how);
}

/* Do operands of node i depend on every other reader of `v`? These then run before it in any order of the plan. A residual block reads its
 * input first in its branch, last in its sum. Searches breadth first, over the ops of one branch. */
static bool read_before(pass *p, nnc_ref v, uint32_t i)
{
    enum { MOST_READERS = 8, MOST_NODES = 64 };
    uint32_t reader[MOST_READERS], seen[MOST_NODES] = {i};
    int n = users_through_views(p, v, reader, MOST_READERS), found = 0, n_seen = 1;
    if (n > MOST_READERS || edit_is_output(p, v))
        return false;
    for (int at = 0; at < n_seen; at++) {
        const nnc_node *c = &p->g->node[seen[at]];
        for (int r = 0; r < n; r++)
            found += reader[r] == seen[at];
        for (int k = 0; k < c->n_in; k++) {
            uint32_t d = p->g->value[c->in[k]].node;
            bool known = d == p->g->value[v].node || edit_static(p, c->in[k]);
            for (int j = 0; j < n_seen && !known; j++)
                known = seen[j] == d;
            if (!known && n_seen < MOST_NODES)
                seen[n_seen++] = d;
        }
    }
    return found == n;
}

/* May node i overwrite the memory of its operand v? */
static bool may_overwrite(pass *p, nnc_ref v, uint32_t i)
{
    const nnc_node *d = def_of(p, v);
    return nnc_op_class(d->op) != CL_leaf && !edit_static(p, v) && !nnc_is_view(p->g, d) &&
           read_before(p, v, i);
}

/* Bytes that elementwise kernel d moves. Where it overwrites an operand, its stores find the lines that it has loaded. */
static int64_t moved_bytes(pass *p, uint32_t d)
{
    const nnc_node *n = &p->g->node[d];
    int64_t bytes = nnc_node_cost(p->g, n).bytes;
    const nnc_type *y = type_of(p, n->out);
    for (int k = 0; k < n->n_in; k++)
        if (nnc_type_same_memory(type_of(p, n->in[k]), y) && may_overwrite(p, n->in[k], d))
            return bytes - nnc_type_bytes(y);
    return bytes;
}

/* Time of elementwise kernel d; *flops: FLOPs of all its elements. Small kernels on a CPU get fuse's estimate for both: they use one
 * thread, and math functions do not reach the peak of contractions. */
static int64_t kernel_ns(pass *p, uint32_t d, const nnc_target *t, int64_t *flops)
{
    const nnc_ref out = p->g->node[d].out;
    const int64_t bytes = moved_bytes(p, d);
    int64_t work = 0, ns = 0;
    if (t->kind == NNC_T_cpu && bytes <= 4 * t->l1_bytes)
        ns = expected_ns(p, &d, 1, &out, 1, &work);
    if (ns) {
        const int64_t vectors =
                          bytes / nnc_max64(t->vector_bits / 8, 16), /* a prologue stores none */
            computes = work - nnc_target_start_ns(t, 1) -
                       vectors * nnc_target_prices(t).ps[NNC_P_load] / 1000;
        const double peak = (double)t->flops_f32 / (double)nnc_max64(t->cores, 1) * 1e-9;
        *flops = nnc_max64(*flops, (int64_t)((double)computes * peak));
        /* with several threads, reading from another core's cache takes as long as a launch */
        return work > ns ? ns + t->launch_ns : ns;
    }
    ns = nnc_target_time_ns(t, t->kind == NNC_T_cpu ? *flops : 0, bytes);
    return t->threads == 1 ? ns + nnc_target_start_ns(t, 1) - t->launch_ns : ns;
}

/* Decides whether elementwise kernel d becomes the prologue of contraction i. */
static void compete(pass *p, uint32_t d, uint32_t i, const layers *l, const char *rule)
{
    const nnc_node *a = &p->g->node[d];
    const nnc_target *t = target_of(p, &p->g->node[i]);
    nnc_ask ask;
    contraction_ask(p, &p->g->node[i], &ask);
    const nnc_offer apart = nnc_target_offer(t, &ask);
    int64_t flops = a->op == OP_fused ? elementwise_flops(a->body, a->body->node + a->body->n_node)
                                      : numel_of(p, a->out) * op_flops(a->op);
    const int64_t rest = kernel_ns(p, d, t, &flops);
    ask.prologue = nnc_max64(nnc_ceildiv(flops, nnc_max64(numel_of(p, a->out), 1)), 1);
    const nnc_offer both = nnc_target_offer(t, &ask);
    if (!apart.ok || !both.ok) {
        remark_declined(p, l, rule, "%s", both.why ? both.why : "no engine has a prologue");
        return;
    }
    const int64_t in_turn = nnc_add_sat(apart.time_ns, rest);
    const char *times = remark_text(p, "%s takes %s by estimate, %s and a kernel before it %s",
        both.engine->name, text_us_beside(p, both.time_ns, in_turn), apart.engine->name,
        text_us_beside(p, in_turn, both.time_ns));
    if (both.time_ns >= in_turn)
        remark_declined(p, l, rule, "%s", times);
    else
        fuse(p, d, i, rule,
            remark_text(p,
                "computed once for each block of the source, neither stored nor loaded: %s",
                times));
}

/* The generated kernel that computes v, through views, or NNC_NONE. */
static uint32_t kernel_of(const pass *p, nnc_ref v)
{
    const nnc_node *n = def_of(p, v);
    while (n->n_in && nnc_is_view(p->g, n))
        n = def_of(p, n->in[0]);
    bool none =
        nnc_op_class(n->op) == CL_leaf || is_contraction(p, n) || p->e.is_static[node_index(p, n)];
    return none ? NNC_NONE : node_index(p, n);
}

nnc_status pass_fuse_prologue(pass *p)
{
    uint32_t n = p->g->n_node;
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        if (p->e.dead[i] || p->e.is_static[i] || !is_contraction(p, &p->g->node[i]))
            continue;
        int source = -1;
        const nnc_node *core = contraction_in(&p->g->node[i], 0, &source);
        for (int k = 0; k < p->g->node[i].n_in && core && !p->e.dead[i]; k++) {
            const nnc_node *c = &p->g->node[i];
            uint32_t d = kernel_of(p, c->in[k]);
            if (d == NNC_NONE || nnc_operand_repeats(c, k))
                continue;
            layers l = layers_of(p, d, i);
            const char *rule =
                remark_text(p, "%s into %s", node_word(p, &p->g->node[d]), node_word(p, c));
            const char *why = k == source ? blocker(p, d, i, core, c->in[k])
                                          : remark_text(p, "%s reads this operand from memory",
                                                engine_name(p, c));
            if (why)
                remark_declined(p, &l, rule, "%s", why);
            else
                compete(p, d, i, &l, rule);
        }
    }
    return p->status;
}
