/* kernel/build.c -- builds kernels, without schedules. Before fusion, tells passes whether several nodes can be one (nnc_kernel_possible);
 * later builds the kernel of a graph node (nnc_kernel_build). 16-bit floats are f32 in kernels: only loads, stores and casts handle 16-bit
 * types. */
#include "kernel/loop.h"
#include "kernel/trace.h"

/* A gradient of a depthwise convolution: of its source (a transposed one) or its weights. These are kernels of their own. Fused greedily
 * with ops around them, they would break the groups of batch norms apart, and a step would move more bytes. */
static bool is_depthwise_gradient(const nnc_graph *g, const nnc_node *n)
{
    const bool weights = n->op == OP_conv_wgrad;
    return (weights || n->op == OP_conv_transpose) &&
           nnc_typeof(g, weights ? n->out : n->in[1])->dim[1] == 1 &&
           nnc_attr_int(n, AT_groups, 1) == nnc_typeof(g, n->in[0])->dim[1];
}

int64_t nnc_node_ns(const nnc_target *t, const nnc_graph *g, const nnc_node *n)
{
    const nnc_cost c = nnc_node_cost(g, n);
    return nnc_target_time_ns(t, c.flops, c.bytes);
}

bool nnc_is_kernel_conv(
    const nnc_target *t, const nnc_graph *g, const nnc_node *n, const char **why)
{
    if (nnc_attr_int(n, AT_as_kernel, 0) || nnc_op_is_winograd((nnc_op)n->op)) {
        if (why)
            *why = nnc_attr_int(n, AT_as_kernel, 0) ? "the ops that read it are in its kernel"
                                                    : "no library takes transformed weights";
        return true;
    }
    if (!(nnc_is_depthwise(g, n) || is_depthwise_gradient(g, n)) ||
        nnc_attr_int(n, AT_groups, 1) < 2)
        return false;
    const nnc_type *w = nnc_typeof(g, n->op == OP_conv_wgrad ? n->out : n->in[1]);
    return nnc_target_depthwise(t, (nnc_dtype)w->dtype, nnc_type_numel(w) / w->dim[0], why);
}

bool nnc_has_call(const nnc_target *t, const nnc_graph *g, const nnc_node *n)
{
    if (n->op != OP_fused)
        return nnc_op_class(n->op) == CL_contract && !nnc_attr_int(n, AT_as_kernel, 0) &&
               !nnc_op_is_winograd((nnc_op)n->op) && !(t && nnc_is_kernel_conv(t, g, n, NULL));
    int calls = 0;
    for (uint32_t i = 0; i < n->body->n_node; i++)
        calls += nnc_has_call(t, n->body, &n->body->node[i]);
    return calls == 1; /* several calls: a kernel (chain.c) */
}

int nnc_kernel_most_buffers(const nnc_target *t)
{
    enum { GPU = 448 }; /* 8 bytes each; the rest is for sizes and the workspace */
    return t->kind == NNC_T_cuda ? GPU : NNC_KMAX_BUF - NX_REUSED;
}

/* Least length of a stored row. Vectors along shorter rows are slower than a separate kernel for the values, which runs along all rows. The
 * loss grows with the number of values that wait for a function. */
static int64_t least_row(const nx *t)
{
    int functions = 0;
    for (int i = 0; i < t->n_ins; i++)
        functions += t->ins[i].expensive && t->ctx[t->ins[i].at.ctx].window;
    return functions > 1 ? 48 : 12;
}

nnc_kernel *nx_kernel(nx *t, const nnc_graph *g, const nnc_ref *out, nnc_arena *scratch,
    nnc_arena *a, const char **why)
{
    const int n = t->n_buf_value;
    t->k->n_buf = n + t->set->n_out;
    t->k->buf = ARENA_NEW(a, nnc_kbuf, t->k->n_buf + NX_REUSED);
    *why = NULL;
    for (int i = 0; t->k->buf && i < t->k->n_buf; i++) {
        const nnc_ref v = i < n ? t->buf_value[i] : out[i - n];
        const nnc_type *type = nnc_typeof(v & NX_INNER ? t->g : g, v & ~NX_INNER);
        t->k->buf[i] = (nnc_kbuf){.role = i < n ? KB_in : KB_out,
            .dtype = (nnc_dtype)type->dtype,
            .numel = nnc_type_span(type)};
    }
    return t->k->buf ? nx_link(t, scratch, a, why) : NULL;
}

/* Is the kernel composed of parts that are traced separately? */
static bool is_composed(const nx_set *s)
{
    return nx_winograd_of(s) || nx_is_chain(s);
}

static nnc_kernel *composed(const nx_set *s, nnc_arena *scratch, nnc_arena *a, const char **why)
{
    return nx_winograd_of(s) ? nx_winograd(s, scratch, a, why) : nx_chain(s, scratch, a, why);
}

/* Can the values that windows read be stored in a tmp buffer? Builds the kernel to find out. *why: as in nnc_kernel_possible. */
static bool stores_windowed(nx *t, const nx_set *set, nnc_arena *scratch, const char **why)
{
    bool done = false;
    nnc_kernel *k = nx_kernel(t, set->g, set->out, scratch, scratch, why);
    if (!k)
        return false;
    nnc_kernel_order_axes(k, false);
    nnc_kernel_merge_axes(k, true);
    if (!nnc_kernel_local(k, set->local, scratch, &done))
        return false;
    const int64_t row = k->axis[k->n_axis - 1].extent, least = least_row(t);
    if (done && row >= least)
        return true;
    const char *reason =
        done ? nnc_arena_printf(scratch,
                   "would be computed for each window that reads it: rows of %lld are too short "
                   "for a local buffer (least: %lld)",
                   (long long)row, (long long)least)
             : "would be computed for each window that reads it: no local buffer serves these "
               "windows";
    if (reason)
        (void)nx_fail(t, t->windowed, reason);
    return false;
}

/* For a remark: "silu at /layers/3 is computed once ...". */
static const char *stored_note(const nnc_graph *g, nnc_ref v, nnc_arena *a)
{
    const nnc_node *n = nnc_def(g, v);
    return nnc_arena_printf(a,
        "%s%s%s is computed once into a local buffer, from which its overlapping windows read",
        nnc_ops[n->op].name, n->origin && *n->origin ? " at " : "", n->origin ? n->origin : "");
}

/* Does the set have several convolutions, which pass rows of images on? Only fuse_products makes such kernels. */
static bool has_convs(const nx_set *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->g->node[s->node[i]].op == OP_conv)
            return nx_is_chain(s);
    return false;
}

bool nnc_kernel_possible(const nnc_graph *g, const uint32_t *nodes, int n, const nnc_ref *outs,
    int n_out, int64_t spare, int64_t local, nnc_arena *a, const char **why)
{
    const char *reason = NULL;
    nx_set set = {
        .g = g, .node = nodes, .n = n, .out = outs, .n_out = n_out, .spare = spare, .local = local};
    NNC_LOCAL(nnc_arena) scratch = {0};
    nx t = {.windowed = NNC_NONE};
    bool ok = has_convs(&set) ? (reason = "each convolution is a kernel", false)
              : is_composed(&set)
                  ? composed(&set, &scratch, &scratch, &reason) != NULL
                  : nx_trace(&t, &set, &scratch, &reason) &&
                        (t.windowed == NNC_NONE || stores_windowed(&t, &set, &scratch, &reason));
    nnc_free(t.ins);
    if (ok && t.windowed != NNC_NONE)
        ok = (*why = stored_note(g, t.windowed, a)) != NULL;
    else
        *why = ok || !reason ? NULL : nnc_arena_strdup(a, reason);
    return ok;
}

/* ---- the kernel of a node ---------------------------------------------------------------------------------------- */

static bool named_reduction(const nnc_node *n)
{
    return nnc_op_class((nnc_op)n->op) == CL_comp;
}

/* Expands a named reduction, in f32 for 16-bit operands, so that its constants are not rounded to 16 bits. */
static nnc_graph *expansion(const nnc_graph *g, const nnc_node *n, nnc_ref *in, nnc_sink *sink)
{
    nnc_graph *b = nnc_graph_create("kernel", sink);
    for (int i = 0; b && i < n->n_in; i++) {
        nnc_type t = nnc_type_dense(nnc_typeof(g, n->in[i]));
        t.dtype = (uint8_t)nnc_kdtype((nnc_dtype)t.dtype);
        in[i] = nnc_input(b, NULL, &t);
    }
    if (b)
        nnc_output(b, nnc_expand(b, n, in), NULL);
    return b;
}

/* Sets the nodes to trace for s->owner: in its own graph, in its body, or in *made, the expansion of a named reduction. `room`: for its
 * operands and results there. */
static nnc_status open_node(
    nx_set *s, nnc_graph **made, nnc_ref *room, nnc_arena *a, nnc_sink *sink)
{
    const nnc_node *n = s->owner;
    const nnc_graph *b = n->body;
    bool expand = named_reduction(n);
    for (uint32_t i = 0; b && i < b->n_node; i++)
        expand |= named_reduction(&b->node[i]);
    if (expand) {
        *made = b ? nnc_graph_flatten(b, true, sink) : expansion(s->outer, n, room, sink);
        if (!*made || (*made)->status != NNC_OK)
            return *made ? (*made)->status : nnc_nomem(sink);
        b = *made;
    }
    s->g = b ? b : s->outer;
    uint32_t *list = ARENA_NEW(a, uint32_t, b ? b->n_node : 1);
    NNC_NEED(list, sink);
    for (int i = 0; i < n->n_out; i++)
        room[n->n_in + i] = b ? b->output[i] : n->out + (nnc_ref)i;
    s->input = b ? room : n->in;
    s->out = room + n->n_in;
    s->node = list;
    if (!b)
        list[s->n++] = (uint32_t)(n - s->g->node);
    for (uint32_t i = 0, k = 0; b && i < b->n_node; i++) {
        const nnc_op op = (nnc_op)b->node[i].op;
        if (op == OP_input && k < n->n_in)
            room[k++] = b->node[i].out;
        else if (nnc_op_class(op) != CL_leaf || op == OP_iota)
            list[s->n++] = i;
    }
    return NNC_OK;
}

static nnc_status build(nnc_kernel **k, nx *t, nx_set *s, nnc_graph **made, nnc_arena *scratch,
    nnc_arena *a, nnc_sink *sink)
{
    const nnc_node *n = s->owner;
    nnc_ref *room = ARENA_NEW(scratch, nnc_ref, 2 * (n->n_in + n->n_out) + 1), *out;
    const char *why = NULL;
    if (!room || n->n_in + n->n_out + NX_REUSED > NNC_KMAX_BUF)
        return nnc_nomem(sink);
    NNC_TRY(open_node(s, made, room, scratch, sink));
    out = room + n->n_in + n->n_out;
    s->operand = out + n->n_out;
    for (int i = 0; i < n->n_in; i++)
        if (!nnc_operand_repeats(n, i))
            s->operand[s->n_operand++] = n->in[i];
    for (int i = 0; i < n->n_out; i++)
        out[i] = n->out + (nnc_ref)i;
    if (is_composed(s))
        *k = composed(s, scratch, a, &why);
    else if (nx_trace(t, s, scratch, &why))
        *k = nx_kernel(t, s->outer, out, scratch, a, &why);
    return *k    ? NNC_OK
           : why ? nnc_fail0(sink, NNC_E_BUG, "%s (%s): no kernel: %s", nnc_ops[n->op].name,
                       n->origin ? n->origin : "", why)
                 : nnc_nomem(sink);
}

nnc_kernel *nnc_kernel_build(const nnc_graph *g, const nnc_node *n, nnc_arena *a, nnc_sink *sink)
{
    nx_set set = {.outer = g, .owner = n, .n_out = n->n_out, .spare = -1};
    nnc_graph *made = NULL;
    nnc_kernel *k = NULL;
    if (nnc_op_class((nnc_op)n->op) == CL_loop)
        return nnc_loop_kernel(g, n, a, sink);
    NNC_LOCAL(nnc_arena) scratch = {0};
    nx t = {0};
    (void)build(&k, &t, &set, &made, &scratch, a, sink);
    nnc_free(t.ins);
    nnc_graph_destroy(made);
    return k;
}

nnc_kernel *nnc_kernel_of(const nnc_graph *g, const uint32_t *nodes, int n, const nnc_ref *outs,
    int n_out, nnc_arena *a, const char **why)
{
    nx_set set = {.g = g, .node = nodes, .n = n, .out = outs, .n_out = n_out, .spare = -1};
    nx t = {0};
    *why = NULL;
    nnc_kernel *k = is_composed(&set)            ? composed(&set, a, a, why)
                    : nx_trace(&t, &set, a, why) ? nx_kernel(&t, g, outs, a, a, why)
                                                 : NULL;
    nnc_free(t.ins);
    return k;
}
