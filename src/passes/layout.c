/* passes/layout.c -- selects channels-last order where engines are faster with it, at the least total cost. Each node has one of two memory
 * orders. A convolution or pooling in row-major order loses time, and a value that crosses between orders is copied. The optimum is a
 * minimum cut, so no heuristic places the boundaries. Weights keep their order, since the plan packs them.
 *
 * Elementwise ops, movement and reductions that keep the rank, batchnorm, global pooling and allreduces work in the order of their
 * operands.
 * Reductions to less than three dimensions read any order.
 * Inputs, outputs, reshapes, contractions other than convolutions, named ops over given axes and values of rank below 3 do not change
 * order. */
#include "passes/internal.h"

typedef struct lay {
    pass *p;
    bool *last; /* per node: channels last */
    nnc_ref *other; /* per value: its relayout, or NNC_NONE */
    uint32_t n_node; /* of the graph before relayouts */
} lay;

typedef enum stand { ROW_MAJOR, FOLLOWS } stand;

static stand stand_of(const nnc_graph *g, const nnc_node *n)
{
    const nnc_type *y = nnc_typeof(g, n->out);
    if (y->rank < 3 || n->n_in == 0)
        return ROW_MAJOR;
    switch (nnc_op_class(n->op)) {
    case CL_ewise:
    case CL_ecomp:
    case CL_window: return FOLLOWS;
    case CL_contract: return nnc_op_is_conv(n->op) ? FOLLOWS : ROW_MAJOR;
    case CL_collective: return n->op == OP_allreduce ? FOLLOWS : ROW_MAJOR;
    case CL_move:
        return n->op == OP_pad || n->op == OP_slice || n->op == OP_concat || n->op == OP_split ||
                       n->op == OP_flip
                   ? FOLLOWS
                   : ROW_MAJOR;
    case CL_reduce: return nnc_typeof(g, n->in[0])->rank == y->rank ? FOLLOWS : ROW_MAJOR;
    case CL_comp:
        return n->op == OP_batchnorm || n->op == OP_global_avgpool || n->op == OP_global_maxpool
                   ? FOLLOWS
                   : ROW_MAJOR;
    default: return ROW_MAJOR;
    }
}

/* True when operand k must have the node's order. Broadcast operands, weights and vectors may have any. */
static bool sensitive(const pass *p, const nnc_node *n, int k)
{
    const nnc_type *t = type_of(p, n->in[k]), *y = type_of(p, n->out);
    if (t->rank < 3 || edit_static(p, n->in[k]) || n->op == OP_transpose || n->op == OP_relayout)
        return false;
    switch (nnc_op_class(n->op)) {
    case CL_ewise:
    case CL_ecomp: return nnc_type_same_shape(t, y);
    case CL_contract: return k == 0 || (n->op != OP_conv && n->op != OP_conv_transpose);
    case CL_comp: return k == 0;
    case CL_reduce: return y->rank >= 3; /* lower ranks have only one order */
    default: return true;
    }
}

/* Does convolution n with a channels-last result read operand k, of few channels, in its own order? Its kernel broadcasts single elements
 * of the source, in any order: a relayout of an image takes longer than it saves. */
static bool reads_as_is(const pass *p, const nnc_node *n, int k)
{
    enum { FEW = 4 };
    const nnc_target *t = target_of(p, n);
    const nnc_target_engine *e = nnc_target_engine_for(t, ASK_conv);
    return k == 0 && n->op == OP_conv && type_of(p, n->in[0])->dim[1] <= FEW &&
           nnc_attr_int(n, AT_groups, 1) == 1 && e && nnc_target_runs_kernels(e) &&
           !nnc_target_engine_interprets(e);
}

/* Time that contraction n loses in row-major order, by the engines' offers for both orders. */
static int64_t contraction_loss_ns(const pass *p, const nnc_node *n)
{
    nnc_ask a;
    contraction_ask(p, n, &a);
    a.nchw = true;
    const int64_t row = nnc_target_offer(target_of(p, n), &a).time_ns;
    a.nchw = false;
    return nnc_max64(row - nnc_target_offer(target_of(p, n), &a).time_ns, 0);
}

/* Time that an f32 convolution n, of one group on a GPU with tf32 allowed, loses in row-major order. */
static int64_t tf32_loss_ns(const pass *p, const nnc_node *n)
{
    nnc_ask a;
    const nnc_target *t = target_of(p, n);
    contraction_ask(p, n, &a);
    return nnc_max64(
        nnc_target_tf32_conv_ns(t, &a, true, NULL) - nnc_target_tf32_conv_ns(t, &a, false, NULL),
        0);
}

/* Time that node i loses in row-major order, in ns. In 16 bits a GPU's library converts in launches of its own. */
static int64_t loss_ns(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    nnc_cost c = nnc_node_cost(p->g, n);
    nnc_dtype d = type_of(p, n->out)->dtype;
    if (n->n_in == 0 || edit_static(p, n->out) || type_of(p, n->out)->rank < 3 ||
        !nnc_is_float(d) || d == DT_f64 ||
        (!nnc_type_orders_differ(type_of(p, n->in[0])) &&
            !nnc_type_orders_differ(type_of(p, n->out))))
        return 0;
    const nnc_target *t = target_of(p, n);
    const int64_t ns = nnc_target_time_ns(t, c.flops, c.bytes);
    if (!nnc_op_is_conv(n->op) || !nnc_target_engine_for(t, ASK_conv) ||
        !nnc_target_channels_last(t, d, uses_tf32(p, t)))
        return 0;
    if (t->kind == NNC_T_cpu)
        return contraction_loss_ns(p, n);
    const nnc_type *w = type_of(p, n->op == OP_conv_wgrad ? n->out : n->in[1]);
    const int64_t window = nnc_type_extents(w, 2, w->rank);
    const bool grouped = nnc_attr_int(n, AT_groups, 1) > 1;
    const bool depthwise = grouped && w->dim[1] == 1;
    if (d == DT_f32 && !grouped)
        return tf32_loss_ns(p, n);
    const double share = nnc_gpu_price[depthwise        ? NNC_G_planes_depthwise
                                       : window == 1    ? NNC_G_planes_1x1
                                       : w->dim[1] < 16 ? NNC_G_planes_few
                                                        : NNC_G_planes];
    return (int64_t)((double)ns * share);
}

/* Arcs of one value: its producer, and the users that depend on its order. */
static uint32_t add_value(lay *l, mincut *m, uint32_t from, nnc_ref v, uint32_t next)
{
    pass *p = l->p;
    const nnc_type *t = type_of(p, v);
    if (!nnc_type_orders_differ(t))
        return next;
    const nnc_target *on = target_of(p, def_of(p, v));
    int64_t ns = nnc_target_time_ns(on, 0, 2 * nnc_type_bytes(t));
    if (!nnc_target_interprets(on))
        ns += nnc_target_start_ns(on, 1) - on->launch_ns;
    uint32_t after = next,
             before =
                 next + 1; /* vertices after `from`: v relayouted to channels-last / to row-major */
    mincut_arc(m, after, from, ns);
    mincut_arc(m, from, before, ns);
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);) {
        const nnc_node *n = &p->g->node[i];
        bool cares = false, last = false;
        for (int k = 0; k < n->n_in; k++) {
            const bool operand = n->in[k] == v && sensitive(p, n, k);
            cares = cares || operand;
            last = last || (operand && !reads_as_is(p, n, k));
        }
        if (last)
            mincut_arc(m, i + 2, after, MINCUT_INF);
        if (cares)
            mincut_arc(m, before, i + 2, MINCUT_INF);
    }
    if (edit_is_output(p, v))
        mincut_arc(m, before, 1, MINCUT_INF);
    return next + 2;
}

static bool choose_orders(lay *l)
{
    pass *p = l->p;
    mincut m;
    uint32_t n = p->g->n_node, max = 2 + n + 2 * p->g->n_value, next = n + 2;
    mincut_init(&m, p->a, max);
    bool *side = ARENA_NEW(p->a, bool, max);
    if (!side)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const nnc_node *node = &p->g->node[i];
        if (p->e.is_static[i])
            continue;
        if (stand_of(p->g, node) == ROW_MAJOR)
            mincut_arc(&m, i + 2, 1, MINCUT_INF);
        mincut_arc(&m, 0, i + 2, loss_ns(p, i));
        const bool weight = node->op == OP_conv_wgrad; /* as a weight, which stays row-major */
        for (uint32_t o = 0; o < node->n_out; o++)
            next = add_value(l, &m, weight ? 1 : i + 2, node->out + o, next);
    }
    if (!mincut_run(&m, side))
        return false;
    for (uint32_t i = 0; i < n; i++)
        l->last[i] = side[i + 2];
    return true;
}

/* v in the wanted order: itself, or a shared relayout. */
static nnc_ref in_order(lay *l, nnc_ref v, bool last, uint32_t reader)
{
    pass *p = l->p;
    nnc_type t = *type_of(p, v), want = nnc_type_make(t.dtype, t.rank, t.dim);
    if (last)
        nnc_type_channels_last(&want);
    if (nnc_type_equal(&t, &want))
        return v;
    if (!edit_may_read(p, reader, v, l->other[v])) {
        edit_at_operand(p, reader, v);
        l->other[v] = edit_in_order(p, v, &want);
    }
    return l->other[v];
}

static void remark_copy(lay *l, nnc_ref v, uint32_t reader, bool last)
{
    pass *p = l->p;
    layers ls = layers_of(p, p->g->value[v].node, reader);
    const nnc_type *t = type_of(p, v);
    if (!nnc_type_same_memory(t, type_of(p, l->other[v])))
        remark_applied(p, &ls, last ? "relayout to channels last" : "relayout to row-major",
            "%s of %s cross from the %s to the %s order here, copied once for all consumers",
            text_bytes(p, nnc_type_bytes(t)), nnc_ops[def_of(p, v)->op].name,
            last ? "row-major" : "channels-last", last ? "channels-last" : "row-major");
}

/* Sets the order of weights with innermost outputs, then inputs. */
static void outputs_last(nnc_type *t)
{
    for (int d = 0; d < t->rank && d < NNC_MAX_RANK; d++)
        t->order[d] = (uint8_t)(d + 2 < t->rank ? d + 2 : t->rank - 1 - d);
}

/* Makes channels innermost in weights of a kernel that computes neighbouring channels together. */
static void turn_depthwise(pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    nnc_ref w = n->in[1];
    nnc_type t = *type_of(p, w), want = t;
    outputs_last(&want);
    if (!edit_static(p, w) || nnc_type_same_memory(&t, &want))
        return;
    edit_at(p, i);
    nnc_ref r = edit_in_order(p, w, &want);
    if (edit_sync(p))
        edit_set_operand(p, i, 1, r);
}

/* Does a library compute convolution i in channels-last order, and would it otherwise copy its weights to that order in each call? */
static bool weights_follow(const lay *l, uint32_t i)
{
    const nnc_node *n = &l->p->g->node[i];
    const nnc_target *t = target_of(l->p, n);
    return nnc_op_is_conv(n->op) && l->last[i] && t->kind == NNC_T_cuda &&
           nnc_target_engine_for(t, ASK_conv) && !is_kernel_conv(l->p, n, NULL);
}

/* Puts weights into the activations' order if the engine needs that. Init relayouts static ones once. A kernel that computes them (the cast
 * of a state in a 16-bit training step) writes them in that order. States themselves stay as they are: a copy would live from the forward
 * to the backward pass. */
static void turn_weights(lay *l, uint32_t i)
{
    pass *p = l->p;
    const nnc_node *n = &p->g->node[i];
    if (l->last[i] && is_kernel_conv(p, n, NULL)) {
        turn_depthwise(p, i);
        return;
    }
    if (n->op == OP_conv_wgrad || !weights_follow(l, i) ||
        !nnc_type_orders_differ(type_of(p, n->in[1])) ||
        (!edit_static(p, n->in[1]) && def_of(p, n->in[1])->op != OP_cast))
        return;
    nnc_ref w = n->in[1], r = in_order(l, w, true, i);
    if (r != w && p->status == NNC_OK)
        edit_set_operand(p, i, 1, r);
}

/* Should the gradient of weights use vectors of outputs, since inputs do not fill vectors? */
static bool outputs_fill(const nnc_target *t, const nnc_type *w, int64_t groups)
{
    const int64_t lanes = nnc_max64(t->vector_bits / 32, 1), in = w->dim[1],
                  out = w->dim[0] / groups;
    return nnc_align_up(in, lanes) * out * 4 > nnc_align_up(out, lanes) * in * 5;
}

/* Puts the gradient of weights into the order that the engine writes: the kernel that reads it (an update, a sum) reads in that order. A
 * generated kernel writes vectors of input channels, or of output channels. */
static void turn_gradient(lay *l, uint32_t i)
{
    pass *p = l->p;
    const nnc_node *n = &p->g->node[i];
    nnc_type *t = &p->g->value[n->out].type;
    const nnc_target *target = target_of(p, n);
    if (n->op != OP_conv_wgrad || !l->last[i] || !nnc_target_engine_for(target, ASK_conv) ||
        is_kernel_conv(p, n, NULL))
        return;
    if (target->kind == NNC_T_cpu && outputs_fill(target, t, nnc_attr_int(n, AT_groups, 1)))
        outputs_last(t);
    else if (nnc_type_orders_differ(t))
        nnc_type_channels_last(t);
}

static void apply_node(lay *l, uint32_t i)
{
    pass *p = l->p;
    turn_weights(l, i);
    for (int k = 0; k < p->g->node[i].n_in && p->status == NNC_OK; k++) {
        nnc_ref v = p->g->node[i].in[k];
        if (!sensitive(p, &p->g->node[i], k) || (l->last[i] && reads_as_is(p, &p->g->node[i], k)))
            continue;
        bool fresh = l->other[v] == NNC_NONE;
        nnc_ref r = in_order(l, v, l->last[i], i);
        if (r == v)
            continue;
        for (int j = k; j < p->g->node[i].n_in && p->status == NNC_OK; j++) /* it may come twice */
            if (p->g->node[i].in[j] == v && sensitive(p, &p->g->node[i], j))
                edit_set_operand(p, i, j, r);
        if (fresh && p->status == NNC_OK)
            remark_copy(l, v, i, l->last[i]);
    }
    const nnc_node *n = &p->g->node[i];
    for (uint32_t o = 0; o < n->n_out && l->last[i] && n->op != OP_conv_wgrad; o++)
        if (p->g->value[n->out + o].type.rank >= 3)
            nnc_type_channels_last(&p->g->value[n->out + o].type);
    turn_gradient(l, i);
    edit_refresh(p, i);
}

static void apply_outputs(lay *l)
{
    pass *p = l->p;
    for (uint32_t o = 0; o < p->g->n_output && p->status == NNC_OK; o++) {
        nnc_ref v = p->g->output[o];
        bool fresh = l->other[v] == NNC_NONE;
        nnc_ref r = in_order(l, v, false, p->g->value[v].node);
        if (r == v)
            continue;
        edit_set_output(p, o, r);
        if (fresh && p->status == NNC_OK)
            remark_copy(l, v, p->g->value[v].node, false);
    }
}

static bool is_seed(const lay *l, uint32_t i)
{
    const nnc_node *n = &l->p->g->node[i];
    return !l->p->e.is_static[i] && (nnc_op_is_conv(n->op) || nnc_op_class(n->op) == CL_window);
}

static const char *text_ns(pass *p, int64_t ns)
{
    if (ns < 10000000)
        return remark_text(p, "%lld us", (long long)(ns / 1000));
    return remark_text(p, "%lld ms", (long long)(ns / 1000000));
}

/* "1 pooling", "2 poolings"; "" for none. */
static const char *count_of(pass *p, int n, const char *what)
{
    return n ? remark_text(p, "%d %s%s", n, what, n == 1 ? "" : "s") : "";
}

/* One remark per connected region of channels-last nodes; declined ones for convolutions and poolings that stay row-major. */
static void remark_regions(lay *l, const int64_t *loss)
{
    pass *p = l->p;
    const uint32_t *root = find_regions(p, l->last, l->n_node);
    struct region {
        layers l;
        int64_t ns;
        int n_conv, n_pool;
        const nnc_target_engine *conv; /* of its first node's device */
    } *at = PASS_NEW(p, struct region, l->n_node + 1);
    for (uint32_t i = 0; at && root && i < l->n_node; i++) {
        uint32_t a = root[i];
        if (!is_seed(l, i) || loss[i] == 0)
            continue;
        if (l->last[i]) {
            layers_add(p, &at[a].l, i);
            at[a].ns += loss[i];
            at[a].conv = at[a].conv ? at[a].conv
                                    : nnc_target_engine_for(target_of(p, &p->g->node[i]), ASK_conv);
            *(nnc_op_class(p->g->node[i].op) == CL_window ? &at[a].n_pool : &at[a].n_conv) += 1;
            continue;
        }
        decline_node(p, i, "channels last",
            "the relayouts at its boundaries would take longer than the order saves (%s)",
            text_ns(p, loss[i]));
    }
    for (uint32_t i = 0; at && i < l->n_node && p->status == NNC_OK; i++)
        if (at[i].n_conv + at[i].n_pool)
            remark_applied(p, &at[i].l, "channels last",
                "%s%s%s in one region run%s in the order that %s prefers: estimated to save %s, "
                "without the relayouts at the region's boundaries",
                count_of(p, at[i].n_conv, "convolution"),
                at[i].n_conv && at[i].n_pool ? " and " : "", count_of(p, at[i].n_pool, "pooling"),
                at[i].n_conv + at[i].n_pool == 1 ? "s" : "",
                at[i].conv ? at[i].conv->name : "the target", text_ns(p, at[i].ns));
}

nnc_status pass_layout(pass *p)
{
    lay l = {.p = p, .n_node = p->g->n_node};
    uint32_t n_value = p->g->n_value;
    l.last = ARENA_NEW(p->a, bool, l.n_node + 1);
    l.other = ARENA_NEW(p->a, nnc_ref, 4 * (size_t)n_value + 2);
    int64_t *loss = ARENA_NEW(p->a, int64_t, l.n_node + 1);
    NNC_NEED(l.last && l.other && loss, p->sink);
    memset(l.other, 0xff, (4 * (size_t)n_value + 2) * sizeof *l.other);
    bool any = false;
    for (uint32_t i = 0; i < l.n_node; i++) {
        loss[i] = is_seed(&l, i) ? loss_ns(p, i) : 0;
        any = any || loss[i] > 0;
    }
    if (!any)
        return NNC_OK;
    NNC_NEED(choose_orders(&l), p->sink);
    for (uint32_t i = 0; i < l.n_node && p->status == NNC_OK; i++)
        if (!p->e.is_static[i])
            apply_node(&l, i);
    apply_outputs(&l);
    if (edit_sync(p))
        remark_regions(&l, loss);
    return p->status ? p->status : merge_of_tasks(p);
}
