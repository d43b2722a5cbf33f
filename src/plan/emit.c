/* plan/emit.c -- turns jobs into commands and values into tensors. */
#include "plan/maker.h"
#include <string.h>

typedef struct emitter {
    maker *m;
    int32_t
        *moved; /* by root of states: the tensor with its copied new value; -1: not copied yet */
    int phase; /* 0 init, 1 main */
} emitter;

static nnc_status add_tensor(maker *m, const nnc_ptensor *t, int32_t *out)
{
    nnc_plan *p = m->p;
    NNC_NEED(ARENA_ROOM(&p->arena, p->tensor, m->cap_tensor, p->n_tensor + 1), m->sink);
    *out = p->n_tensor;
    p->tensor[p->n_tensor++] = *t;
    return NNC_OK;
}

static const char *value_name(const maker *m, nnc_ref v)
{
    const nnc_node *n = nnc_def(m->g, v);
    const char *name = m->g->value[v].name;
    return name ? name : n->origin ? n->origin : nnc_ops[n->op].name;
}

/* The tensor of value v on a device; creates the tensors of its operand or root first. `over`: the value whose memory it overwrites. */
static nnc_status tensor_of(maker *m, nnc_ref v, int dev, nnc_ref over, int32_t *out)
{
    size_t at = slot(m, v, dev);
    if (m->tensor[at] >= 0) {
        *out = m->tensor[at];
        return NNC_OK;
    }
    nnc_ref r = m->root[v];
    int32_t alias = -1;
    if (r != v)
        NNC_TRY(tensor_of(m, r, dev, NNC_NONE, &alias));
    else if (over != NNC_NONE)
        NNC_TRY(tensor_of(m, over, dev, NNC_NONE, &alias));
    nnc_ptensor t = {.type = *nnc_typeof(m->g, v), .device = (int16_t)dev, .alias_of = alias};
    t.name = nnc_arena_strdup(&m->p->arena, value_name(m, v));
    NNC_NEED(t.name, m->sink);
    t.bytes = nnc_type_span_bytes(&t.type);
    if (r != v) /* offset from its root's first byte, which memory.c places */
        t.offset = m->at[v] * nnc_dtype_size(t.type.dtype);
    bool kept = m->is_static[r] || (m->updated[r] && dev == m->home[r]);
    t.space = !kept ? SP_arena : m->want[slot(m, r, dev)] ? SP_persist : SP_init;
    if (alias >= 0)
        t.space = m->p->tensor[alias].space; /* in place, possibly in a state's memory */
    t.is_input = nnc_def(m->g, v)->op == OP_input && dev == m->home[v];
    NNC_TRY(add_tensor(m, &t, out));
    m->tensor[at] = *out;
    return NNC_OK;
}

/* `name` must outlive the plan; NULL: out of memory. */
static nnc_status add_bytes(
    maker *m, const char *name, int dev, nnc_space space, int64_t n, int32_t *out)
{
    nnc_ptensor t = {.name = name,
        .type = nnc_type_make(DT_u8, 1, &n),
        .device = (int16_t)dev,
        .space = space,
        .bytes = n,
        .alias_of = -1};
    return name ? add_tensor(m, &t, out) : nnc_nomem(m->sink);
}

/* ---- commands ------------------------------------------------------------------------------ */

/* The class of a convolution, which depends only on its kind, window, stride, groups and channels. */
static const char *conv_class(const nnc_graph *g, const nnc_node *n)
{
    enum { FORWARD, BACK, WGRAD, KINDS };
    static const char *const name[][KINDS] = {{"conv", "conv_back", "conv_wgrad"},
        {"conv3x3", "conv3x3_back", "conv3x3_wgrad"}, {"conv1x1", "conv1x1_back", "conv1x1_wgrad"},
        {"conv_first", "conv_first_back", "conv_first_wgrad"},
        {"depthwise", "depthwise_back", "depthwise_wgrad"},
        {"conv_grouped", "conv_grouped_back", "conv_grouped_wgrad"}};
    const int kind = n->op == OP_conv_wgrad ? WGRAD : n->op == OP_conv_transpose ? BACK : FORWARD;
    const nnc_type *x = nnc_typeof(g, n->in[0]),
                   *w = nnc_typeof(g, kind == WGRAD ? n->out : n->in[1]);
    const int64_t *stride, *dilation, groups = nnc_attr_int(n, AT_groups, 1);
    const int strides = nnc_attr_ints(n, AT_strides, &stride),
              dilations = nnc_attr_ints(n, AT_dilations, &dilation);
    bool ones = true, threes = w->rank == 4, unit = true;
    for (int i = 0; i < w->rank - 2; i++) {
        ones = ones && w->dim[2 + i] == 1;
        threes = threes && w->dim[2 + i] == 3 && (i >= dilations || dilation[i] == 1);
        unit = unit && (i >= strides || stride[i] == 1);
    }
    if (groups > 1)
        return name[groups == x->dim[1] ? 4 : 5][kind];
    if (x->dim[1] <= 4)
        return name[3][kind];
    return name[ones ? 2 : threes && unit ? 1 : 0][kind];
}

const char *nnc_plan_class(const nnc_graph *g, const nnc_node *n)
{
    static const char *const of_class[] = {[CL_leaf] = "move",
        [CL_ewise] = "ewise",
        [CL_ecomp] = "ewise",
        [CL_reduce] = "reduce",
        [CL_move] = "move",
        [CL_window] = "pool",
        [CL_comp] = "reduce",
        [CL_loop] = "reduce",
        [CL_collective] = "collective",
        [CL_fused] = "move"};
    if (n->op == OP_matmul || n->op == OP_linear)
        return "matmul";
    if (nnc_op_is_winograd(n->op))
        return n->op == OP_winograd ? "winograd" : "winograd_wgrad";
    if (nnc_op_is_recurrent(n->op))
        return "recurrent";
    if (!n->body)
        return nnc_op_class(n->op) == CL_contract ? conv_class(g, n)
                                                  : of_class[nnc_op_class(n->op)];
    /* a region has the class of its most expensive op; elementwise ops at computed indices, such as interpolation, have their own */
    static const nnc_class rank[] = {
        CL_contract, CL_comp, CL_reduce, CL_window, CL_ewise, CL_ecomp};
    bool gathers = false;
    for (uint32_t i = 0; i < n->body->n_node; i++)
        gathers = gathers || n->body->node[i].op == OP_gather;
    for (size_t k = 0; k < NNC_COUNT(rank); k++)
        for (uint32_t i = 0; i < n->body->n_node; i++)
            if (nnc_op_class(n->body->node[i].op) == rank[k])
                return (rank[k] == CL_ewise || rank[k] == CL_ecomp) && gathers
                           ? "ewise_gather"
                           : nnc_plan_class(n->body, &n->body->node[i]);
    return "move";
}

static nnc_status add_cmd(emitter *e, const job *j, nnc_cmd_kind kind, int n_arg, nnc_cmd **out)
{
    nnc_plan *p = e->m->p;
    int32_t *arg = ARENA_NEW(&p->arena, int32_t, n_arg > 0 ? n_arg : 1);
    NNC_NEED(arg && ARENA_ROOM(&p->arena, p->cmd, e->m->cap_cmd, p->n_cmd + 1), e->m->sink);
    *out = &p->cmd[p->n_cmd++];
    **out = (nnc_cmd){.kind = kind,
        .device = j->device,
        .stream = j->stream,
        .engine = -1,
        .item = j->item,
        .n_arg = n_arg,
        .arg = arg,
        .work = -1,
        .layers = "",
        .op_class = "sync",
        .reason = "",
        .flops = j->cost.flops,
        .bytes = j->cost.bytes};
    return NNC_OK;
}

static nnc_status use_engine(maker *m, const char *name, int16_t *out)
{
    nnc_plan *p = m->p;
    for (int i = 0; i < p->n_engine; i++)
        if (strcmp(p->engine[i], name) == 0) {
            *out = (int16_t)i;
            return NNC_OK;
        }
    NNC_NEED(ARENA_ROOM(&p->arena, p->engine, m->cap_engine, p->n_engine + 1), m->sink);
    p->engine[p->n_engine] = nnc_arena_strdup(&p->arena, name);
    NNC_NEED(p->engine[p->n_engine], m->sink);
    *out = (int16_t)p->n_engine++;
    return NNC_OK;
}

static nnc_status add_work(emitter *e, nnc_cmd *c, int64_t bytes)
{
    if (bytes <= 0)
        return NNC_OK;
    return add_bytes(e->m, "workspace", c->device, e->phase ? SP_arena : SP_init, bytes, &c->work);
}

static nnc_status set_layers(maker *m, nnc_cmd *c, const nnc_node *n)
{
    c->layers = nnc_arena_strdup(&m->p->arena, n->origin ? n->origin : nnc_ops[n->op].name);
    c->micro = n->micro;
    return c->layers ? NNC_OK : nnc_nomem(m->sink);
}

static nnc_status emit_weight(emitter *e, const job *j)
{
    maker *m = e->m;
    nnc_plan *p = m->p;
    const nnc_node *n = nnc_def(m->g, j->value);
    NNC_NEED(ARENA_ROOM(&p->arena, p->weight, m->cap_weight, p->n_weight + 1), m->sink);
    nnc_weight *w = &p->weight[p->n_weight];
    *w = *n->weight;
    w->name = nnc_arena_strdup(&p->arena, w->name);
    w->file = nnc_arena_strdup(&p->arena, w->file);
    if (w->kind == NNC_W_inline &&
        !(w->data = nnc_arena_memdup(&p->arena, w->data, (size_t)w->size)))
        return nnc_nomem(m->sink);
    if ((n->weight->name && !w->name) || (n->weight->file && !w->file))
        return nnc_nomem(m->sink);
    nnc_cmd *c;
    NNC_TRY(add_cmd(e, j, CMD_weight, 1, &c));
    c->item = p->n_weight++;
    c->op_class = "weight";
    NNC_TRY(set_layers(m, c, n));
    return tensor_of(m, j->value, j->device, NNC_NONE, &c->arg[0]);
}

static nnc_status emit_copy(emitter *e, const job *j)
{
    nnc_cmd *c;
    NNC_TRY(add_cmd(e, j, CMD_copy, 2, &c));
    c->op_class = "copy";
    c->item = -1;
    NNC_TRY(set_layers(e->m, c, nnc_def(e->m->g, j->value)));
    NNC_TRY(tensor_of(e->m, j->value, j->device, NNC_NONE, &c->arg[0]));
    return tensor_of(e->m, j->value, j->to, NNC_NONE, &c->arg[1]);
}

/* Offset of tensor t in its owner's memory, before memory.c adds up the offsets of aliases; *whose: the owner. */
static int64_t offset_in(const nnc_plan *p, int32_t t, int32_t *whose)
{
    int64_t at = 0;
    for (; p->tensor[t].alias_of >= 0; t = p->tensor[t].alias_of)
        at += p->tensor[t].offset;
    *whose = t;
    return at;
}

/* Copies the new value over state `to`, or over the larger state that it is part of; *out: the result, once for all parts. */
static nnc_status move_state(emitter *e, const job *j, nnc_ref to, nnc_ref from, int32_t *out)
{
    maker *m = e->m;
    nnc_cmd *c;
    if (e->moved[to] >= 0) {
        *out = e->moved[to];
        return NNC_OK;
    }
    int32_t old;
    NNC_TRY(tensor_of(m, to, j->to, NNC_NONE, &old));
    nnc_ptensor t = m->p->tensor[old];
    t.alias_of = old;
    t.offset = 0;
    NNC_TRY(add_tensor(m, &t, out));
    e->moved[to] = *out;
    if (from == to) /* keeps its value */
        return NNC_OK;
    NNC_TRY(add_cmd(e, j, CMD_copy, 2, &c));
    c->op_class = "copy";
    c->item = -1;
    c->arg[1] = *out;
    NNC_TRY(tensor_of(m, from, j->device, NNC_NONE, &c->arg[0]));
    return set_layers(m, c, &m->g->node[j->node]);
}

/* Emits an update: the new value already has the state's memory, or is copied there. */
static nnc_status emit_update(emitter *e, const job *j)
{
    maker *m = e->m;
    nnc_plan *p = m->p;
    const nnc_ref state = m->g->node[j->node].out, to = m->root[state];
    nnc_plan_update *u = &p->update[j->item];
    int32_t a, b;
    p->n_update++;
    NNC_TRY(tensor_of(m, state, j->to, NNC_NONE, &u->state));
    NNC_TRY(tensor_of(m, j->value, j->device, NNC_NONE, &u->value));
    if (u->value != u->state && offset_in(p, u->state, &a) == offset_in(p, u->value, &b) && a == b)
        return NNC_OK;
    NNC_TRY(move_state(e, j, to, to == state ? j->value : m->root[j->value], &u->value));
    if (to == state)
        return NNC_OK;
    nnc_ptensor t = p->tensor[u->state];
    t.alias_of = u->value;
    return add_tensor(m, &t, &u->value);
}

static nnc_status emit_call(emitter *e, const job *j, const nnc_node *n)
{
    maker *m = e->m;
    const nnc_call *call = &m->p->call[j->item];
    nnc_cmd *c;
    NNC_TRY(add_cmd(e, j, CMD_call, nnc_call_args(call), &c));
    NNC_TRY(use_engine(m, m->o->engine[j->engine]->name, &c->engine));
    c->reason = j->reason;
    int k = 0;
    NNC_TRY(tensor_of(m, j->args.src, j->device, NNC_NONE, &c->arg[k++]));
    NNC_TRY(tensor_of(m, j->args.wei, j->device, NNC_NONE, &c->arg[k++]));
    if (call->has_bias)
        NNC_TRY(tensor_of(m, j->args.bias, j->device, NNC_NONE, &c->arg[k++]));
    for (int s = 0; s < j->args.n_sum; s++)
        NNC_TRY(tensor_of(m, j->args.sum[s], j->device, NNC_NONE, &c->arg[k++]));
    NNC_TRY(tensor_of(m, n->out, j->device, j->over ? j->over[0] : NNC_NONE, &c->arg[k++]));
    return add_work(e, c, j->work_bytes);
}

/* The library that computes kernel `item` where it is available; NULL: none does. */
static const char *kernel_library(const maker *m, const nnc_target *t, int item)
{
    const nnc_kgrid *g = &m->kernel[item].k->grid;
    const nnc_target_engine *e = nnc_target_engine_for(t, ASK_conv);
    for (int i = 0; e && g->cls == KC_attend && g->spill && i < m->o->n_engine; i++)
        if (!strcmp(m->o->engine[i]->name, e->name))
            return e->name;
    return NULL;
}

static const char *library_reason(maker *m, const nnc_target *t)
{
    return nnc_arena_printf(&m->p->arena,
        "cudnn %s by rule: attention as one graph, compiled when loaded; else the generated kernel",
        t->cudnn);
}

static nnc_status emit_kernel(emitter *e, const job *j, const nnc_node *n)
{
    maker *m = e->m;
    const nnc_target *t = target_of(m, j->device);
    const nnc_pkernel *k = &m->p->kernel[j->item];
    const char *engine = kernel_engine(m, j->device);
    if (!engine)
        return nnc_fail(m->sink, NNC_E_DEVICE, n->loc, "no engine runs generated kernels");
    nnc_cmd *c;
    NNC_TRY(add_cmd(e, j, CMD_kernel, k->n_args, &c));
    const char *library = kernel_library(m, t, j->item);
    NNC_TRY(use_engine(m, library ? library : engine, &c->engine));
    c->reason = library         ? library_reason(m, t)
                : k->object < 0 ? m->kernel[j->item].interpreted
                                      ? "interpreted, which takes less time than compiling it"
                                      : "interpreted: the target has no engine for machine code"
                : j->reason     ? j->reason
                                : "generated machine code";
    NNC_NEED(!library || c->reason, m->sink);
    int a = 0;
    for (int i = 0; i < n->n_in; i++) {
        if (nnc_operand_repeats(n, i))
            continue;
        if (a >= k->n_args - k->n_out)
            return nnc_fail(m->sink, NNC_E_BUG, n->loc,
                "kernel %s has fewer operands than its node", k->symbol);
        NNC_TRY(tensor_of(m, n->in[i], j->device, NNC_NONE, &c->arg[a++]));
    }
    if (a + n->n_out != k->n_args)
        return nnc_fail(m->sink, NNC_E_BUG, n->loc, "kernel %s has %d arguments, not %d", k->symbol,
            k->n_args, a + n->n_out);
    for (int r = 0; r < n->n_out; r++) {
        nnc_ref v = n->out + (nnc_ref)r;
        NNC_TRY(tensor_of(m, v, j->device, j->over ? j->over[r] : NNC_NONE, &c->arg[a++]));
    }
    return add_work(e, c, j->work_bytes);
}

static nnc_status emit_node(emitter *e, const job *j)
{
    const nnc_node *n = &e->m->g->node[j->node];
    NNC_TRY(j->is_call ? emit_call(e, j, n) : emit_kernel(e, j, n));
    nnc_cmd *c = &e->m->p->cmd[e->m->p->n_cmd - 1];
    c->op_class = nnc_plan_class(e->m->g, n);
    /* CUDA passes at most 4 KiB of parameters: the pointers and the scratch pointer */
    if (target_of(e->m, j->device)->kind == NNC_T_cuda && c->n_arg >= 512)
        return nnc_fail(e->m->sink, NNC_E_MODEL, n->loc,
            "%d operands and results in one kernel: a GPU takes at most 511; the pass split_wide "
            "divides wide concats and splits",
            c->n_arg);
    return set_layers(e->m, c, n);
}

/* The first participant makes the row. */
static nnc_status emit_collective(emitter *e, const job *j)
{
    maker *m = e->m;
    nnc_plan *p = m->p;
    const nnc_node *n = &m->g->node[j->node];
    nnc_cmd *c;
    if (j->item == 0) {
        NNC_NEED(
            ARENA_ROOM(&p->arena, p->collective, m->cap_collective, p->n_collective + 1), m->sink);
        NNC_TRY(make_collective(m, n, &p->collective[p->n_collective++]));
    }
    const int row = p->n_collective - 1;
    const nnc_type *x = nnc_typeof(m->g, n->in[j->item]);
    const int64_t to = nnc_type_bytes(nnc_typeof(m->g, n->out + (nnc_ref)j->item));
    NNC_TRY(add_cmd(e, j, CMD_collective, 2, &c));
    c->item = row;
    c->op_class = "collective";
    NNC_TRY(set_layers(m, c, n));
    NNC_TRY(tensor_of(m, n->in[j->item], j->device, NNC_NONE, &c->arg[0]));
    NNC_TRY(tensor_of(m, n->out + (nnc_ref)j->item, j->device, NNC_NONE, &c->arg[1]));
    if (target_of(m, j->device)->kind == NNC_T_cuda)
        return NNC_OK;
    return add_work(e, c,
        nnc_collective_work(&p->collective[row], nnc_type_bytes(x), to, nnc_dtype_size(x->dtype)));
}

static nnc_status emit_list(emitter *e, const job_list *l)
{
    for (int32_t i = 0; i < l->n; i++) {
        const job *j = &l->at[i];
        nnc_cmd *c;
        for (int before = i ? l->at[i - 1].section : SEC_main; before < j->section; before++)
            e->m->p->end[before] = e->m->p->n_cmd;
        switch ((job_kind)j->kind) {
        case J_weight: NNC_TRY(emit_weight(e, j)); break;
        case J_node: NNC_TRY(emit_node(e, j)); break;
        case J_copy: NNC_TRY(emit_copy(e, j)); break;
        case J_update: NNC_TRY(emit_update(e, j)); break;
        case J_collective: NNC_TRY(emit_collective(e, j)); break;
        case J_record:
        case J_wait:
            NNC_TRY(add_cmd(e, j, j->kind == J_record ? CMD_record : CMD_wait, 0, &c));
            break;
        }
    }
    return NNC_OK;
}

/* ---- inputs and outputs -------------------------------------------------------------------- */

static nnc_status emit_inputs(maker *m)
{
    nnc_plan *p = m->p;
    for (uint32_t i = 0; i < m->g->n_node; i++)
        p->n_input += m->g->node[i].op == OP_input;
    NNC_NEED(ARENA_ARRAYS(&p->arena, p->n_input + 1, p->input, p->input_name), m->sink);
    int k = 0;
    for (uint32_t i = 0; i < m->g->n_node; i++) {
        const nnc_node *n = &m->g->node[i];
        if (n->op != OP_input)
            continue;
        NNC_TRY(tensor_of(m, n->out, m->home[n->out], NNC_NONE, &p->input[k]));
        p->input_name[k] = p->tensor[p->input[k]].name;
        k++;
    }
    return NNC_OK;
}

static nnc_status emit_outputs(maker *m)
{
    nnc_plan *p = m->p;
    NNC_NEED(ARENA_ARRAYS(&p->arena, m->g->n_output + 1, p->output, p->output_name), m->sink);
    for (uint32_t i = 0; i < nnc_result_outputs(m->g); i++) {
        nnc_ref v = m->g->output[i];
        NNC_TRY(tensor_of(m, v, m->home[m->root[v]], NNC_NONE, &p->output[i]));
        p->tensor[p->output[i]].is_output = true;
        const char *name = m->g->output_name ? m->g->output_name[i] : NULL;
        p->output_name[i] = nnc_arena_strdup(&p->arena, name ? name : value_name(m, v));
        NNC_NEED(p->output_name[i], m->sink);
        p->n_output++;
    }
    return NNC_OK;
}

static nnc_status emit_devices(maker *m)
{
    nnc_plan *p = m->p;
    p->device = ARENA_NEW(&p->arena, nnc_plan_device, m->n_dev);
    NNC_NEED(p->device, m->sink);
    p->n_device = m->n_dev;
    for (int d = 0, n[2] = {0}; d < m->n_dev; d++) {
        const nnc_target *t = target_of(m, d);
        p->device[d] = (nnc_plan_device){.target = m->on[d].text,
            .threads = t->threads,
            .streams = 1,
            .libraries = m->on[d].libraries};
        p->device[d].name = nnc_arena_printf(
            &p->arena, "%s:%d", t->kind == NNC_T_cuda ? "cuda" : "cpu", n[t->kind]++);
        NNC_NEED(p->device[d].name, m->sink);
    }
    for (int i = 0; i < p->n_cmd; i++) {
        nnc_plan_device *d = &p->device[p->cmd[i].device];
        d->streams = p->cmd[i].stream >= d->streams ? p->cmd[i].stream + 1 : d->streams;
    }
    return NNC_OK;
}

nnc_status make_commands(maker *m)
{
    emitter e = {.m = m};
    e.moved = ARENA_NEW(&m->scratch, int32_t, m->g->n_value + 1);
    NNC_NEED(e.moved, m->sink);
    memset(e.moved, 0xff, m->g->n_value * sizeof *e.moved);
    NNC_TRY(emit_inputs(m));
    NNC_TRY(emit_list(&e, &m->init));
    m->p->end[SEC_init] = m->p->n_cmd;
    e.phase = 1;
    m->p->update = ARENA_NEW(&m->p->arena, nnc_plan_update, m->g->n_output + (size_t)1);
    NNC_NEED(m->p->update, m->sink);
    NNC_TRY(emit_list(&e, &m->main));
    for (int last = m->main.n ? m->main.at[m->main.n - 1].section : SEC_main; last < SEC__COUNT;
         last++)
        m->p->end[last] = m->p->n_cmd;
    NNC_TRY(emit_outputs(m));
    m->p->n_event = m->n_event;
    return emit_devices(m);
}
