/* plan/verify.c -- verifies a plan and reports the first error. Checks each row separately, then the commands' arguments against their
 * kernel or call. Then checks memory and order (verify_memory.c), which relies on both. */
#include "codegen/codegen.h"
#include "plan/rows.h"
#include "plan/verify.h"

static nnc_status bad_at(const check *v, const char *what, int i, const char *why)
{
    return nnc_fail0(v->sink, v->code, "plan: %s %d: %s", what, i, why);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static const char *tensor_fault(const nnc_plan *p, int i)
{
    const nnc_ptensor *t = &p->tensor[i];
    if (!plan_type_ok(&t->type))
        return "its type is malformed";
    if (t->device >= p->n_device)
        return "no such device";
    const nnc_plan_device *d = &p->device[t->device];
    int64_t size = t->space == SP_arena  ? d->arena_bytes
                   : t->space == SP_init ? d->init_bytes
                                         : d->persist_bytes;
    if (t->bytes != nnc_type_span_bytes(&t->type))
        return "its bytes are not those of its type";
    int64_t align = t->alias_of < 0 ? nnc_plan_align(d) : nnc_dtype_size(t->type.dtype);
    if (t->offset % align || t->offset > size || t->bytes > size - t->offset)
        return align > 64    ? "it does not lie inside its space, 256-byte aligned"
               : align == 64 ? "it does not lie inside its space, 64-byte aligned"
                             : "it does not lie inside its space at a whole element";
    if (t->alias_of >= i)
        return "it shares the memory of no earlier tensor";
    if (t->first >= p->n_cmd || t->last >= p->n_cmd)
        return "its live range is outside the commands";
    if (t->is_input && (t->alias_of >= 0 || t->space != SP_arena))
        return "an input has memory of its own in main's arena";
    if (t->alias_of < 0)
        return NULL;
    const nnc_ptensor *a = &p->tensor[t->alias_of];
    if (a->device != t->device || a->space != t->space || t->offset < a->offset ||
        t->offset + t->bytes > a->offset + a->bytes)
        return "it is not inside the tensor whose memory it shares";
    return NULL;
}

static const char *code_fault(const nnc_pkernel *k)
{
    char bytes[NNC_CUDA_ARGUMENT];
    const char *at;
    int n = 0;
    size_t name = nnc_pkernel_function(k, &at);
    if (!k->code)
        return NULL;
    if (!name || name >= NNC_CODE_NAME)
        return "its function has no name, or one that is too long";
    for (at += name; *at; n++)
        if (n == NNC_CUDA_SIZES || !nnc_cuda_argument(&at, bytes))
            return "its function's sizes are not read";
    return NULL;
}

static const char *kernel_fault(const nnc_plan *p, int i)
{
    const nnc_pkernel *k = &p->kernel[i];
    if (!*k->symbol || !k->ir)
        return "no symbol or text";
    if (k->n_out > k->n_args)
        return "it writes more than its arguments";
    if (k->object >= p->n_object)
        return "no such object";
    return code_fault(k);
}

static const char *weight_fault(const nnc_plan *p, int i)
{
    const nnc_weight *w = &p->weight[i];
    if (w->kind == NNC_W_inline)
        return w->data ? NULL : "it has no data";
    if (w->kind == NNC_W_file)
        return w->file && w->offset <= INT64_MAX - w->size ? NULL
                                                           : "it has no file or no place in it";
    return w->name ? NULL : "it has no name to be generated from";
}

static nnc_status check_rows(const check *v)
{
    const nnc_plan *p = v->p;
    const char *why;
    NNC_TRY(plan_check_ranges(p, v->sink));
    if (p->n_device < 1 || p->n_device > INT16_MAX || p->n_event > p->n_cmd)
        return nnc_fail0(v->sink, v->code, "plan: devices or events are out of range");
    if (!nnc_plan_sections_ok(p))
        return nnc_fail0(v->sink, v->code,
            "plan: the sections are not the %d commands one after the other", p->n_cmd);
    for (int i = 0; i < p->n_tensor; i++)
        if ((why = tensor_fault(p, i)))
            return bad_at(v, "tensor", i, why);
    for (int i = 0; i < p->n_kernel; i++)
        if ((why = kernel_fault(p, i)))
            return bad_at(v, "kernel", i, why);
    for (int i = 0; i < p->n_weight; i++)
        if ((why = weight_fault(p, i)))
            return bad_at(v, "weight", i, why);
    for (int i = 0; i < p->n_call; i++)
        if (!plan_call_ok(&p->call[i], &why))
            return bad_at(v, "call", i, why);
    return NNC_OK;
}

/* ---- commands ------------------------------------------------------------------------------ */

static int64_t bytes_of(const check *v, const nnc_cmd *c, int k)
{
    return v->p->tensor[c->arg[k]].bytes;
}

static const char *weight_cmd_fault(const check *v, const nnc_cmd *c, int i)
{
    const nnc_plan *p = v->p;
    if (c->item < 0 || c->item >= p->n_weight)
        return "no such weight";
    if (i >= nnc_plan_first(p, SEC_main))
        return "weights are loaded in init";
    if (c->n_arg != 1)
        return "a weight fills one tensor";
    const nnc_weight *w = &p->weight[c->item];
    const nnc_ptensor *t = &p->tensor[c->arg[0]];
    if (!nnc_type_is_row_major(&t->type))
        return "a weight is stored row-major";
    if (!w->n_part && w->kind != NNC_W_gen && w->size != t->bytes)
        return "the weight's size is not its tensor's";
    return w->n_part ? nnc_weight_fault(w, &t->type) : NULL;
}

static const char *kernel_cmd_fault(const check *v, const nnc_cmd *c)
{
    const nnc_plan *p = v->p;
    if (c->item < 0 || c->item >= p->n_kernel)
        return "no such kernel";
    const nnc_pkernel *k = &p->kernel[c->item];
    if (c->n_arg != k->n_args)
        return "its number of arguments differs from its kernel's";
    for (int a = 0; a < c->n_arg; a++)
        if (v->arg_bytes && bytes_of(v, c, a) != v->arg_bytes[v->first_arg[c->item] + a])
            return "an argument's bytes are not those of the kernel's buffer";
    int64_t need = k->scratch_bytes ? nnc_align_up(k->scratch_bytes, 64) * k->threads : 0;
    if (need && (c->work < 0 || p->tensor[c->work].bytes < need))
        return "its workspace is too small";
    return NULL;
}

/* Bytes of the a-th argument of a call, except the last (dst), or -1. */
static int64_t call_arg_bytes(const nnc_call *k, int a)
{
    if (a == 0)
        return nnc_type_bytes(&k->src);
    if (a == 1)
        return nnc_type_bytes(&k->wei);
    if (a == 2 && k->has_bias)
        return nnc_type_bytes(&k->bias);
    return nnc_type_bytes(&k->dst); /* sum operands */
}

static const char *call_cmd_fault(const check *v, const nnc_cmd *c)
{
    const nnc_plan *p = v->p;
    if (c->item < 0 || c->item >= p->n_call)
        return "no such call";
    const nnc_call *k = &p->call[c->item];
    if (c->n_arg != nnc_call_args(k))
        return "its number of arguments differs from its call's";
    int last = c->n_arg - 1;
    for (int a = 0; a < last; a++)
        if (bytes_of(v, c, a) != call_arg_bytes(k, a))
            return "an argument's bytes are not those of the call's type";
    if (bytes_of(v, c, last) != nnc_type_bytes(&k->dst))
        return "the result's bytes are not those of the call's type";
    if (k->work_bytes && (c->work < 0 || p->tensor[c->work].bytes < k->work_bytes))
        return "its workspace is too small";
    bool in_place = false;
    for (int i = 0; i < k->n_post; i++)
        in_place |= k->post[i].in_place;
    if (in_place && p->tensor[c->arg[last]].alias_of < 0)
        return "the result of a sum in place must share its operand's memory";
    return NULL;
}

/* Checks devices and spaces of arguments: init must not access main's arena, and main must not write persistent memory. */
static const char *arg_fault(const check *v, const nnc_cmd *c, int i)
{
    const nnc_plan *p = v->p;
    bool init = i < nnc_plan_first(p, SEC_main);
    if (c->n_arg < 0 || (c->n_arg && !c->arg))
        return "its arguments are missing";
    for (int a = 0; a < c->n_arg; a++)
        if (c->arg[a] < 0 || c->arg[a] >= p->n_tensor)
            return "no such tensor";
    if (c->work >= p->n_tensor)
        return "no such workspace";
    for (int a = -1; a < c->n_arg; a++) {
        int32_t t = a < 0 ? c->work : c->arg[a];
        if (t < 0)
            continue;
        const nnc_ptensor *x = &p->tensor[t];
        if (x->space == (init ? SP_arena : SP_init))
            return "an argument is in the memory of another section";
        if (x->device != c->device && !(c->kind == CMD_copy && a == 1))
            return "an argument is on another device";
    }
    if (c->work >= 0 && p->tensor[c->work].space == SP_persist)
        return "its workspace is in persistent memory";
    return NULL;
}

static const char *cmd_fault(const check *v, const nnc_cmd *c, int i)
{
    const nnc_plan *p = v->p;
    if (c->device >= p->n_device || c->stream >= p->device[c->device].streams)
        return "no such device or stream";
    const char *why = arg_fault(v, c, i);
    if (why)
        return why;
    bool engine = c->kind == CMD_kernel || c->kind == CMD_call;
    const bool works = engine || c->kind == CMD_collective;
    if (engine ? c->engine < 0 || c->engine >= p->n_engine || !p->engine[c->engine]
               : c->work >= 0 && !works)
        return "no such engine, or a workspace without one";
    switch ((nnc_cmd_kind)c->kind) {
    case CMD_weight: return weight_cmd_fault(v, c, i);
    case CMD_kernel: return kernel_cmd_fault(v, c);
    case CMD_call: return call_cmd_fault(v, c);
    case CMD_copy:
        if (c->n_arg != 2 || bytes_of(v, c, 0) != bytes_of(v, c, 1))
            return "a copy takes two tensors of equal size";
        if (!nnc_type_is_dense(&p->tensor[c->arg[0]].type) ||
            !nnc_type_is_dense(&p->tensor[c->arg[1]].type))
            return "a copy takes contiguous tensors";
        return NULL;
    case CMD_collective:
        return c->item < 0 || c->item >= p->n_collective ? "no such collective"
               : c->n_arg != 2                   ? "a participant has an operand and a result"
               : i < nnc_plan_first(p, SEC_main) ? "init has no collectives"
                                                 : NULL;
    default:
        return c->n_arg                               ? "it takes no arguments"
               : c->item < 0 || c->item >= p->n_event ? "no such event"
                                                      : NULL;
    }
}

/* Checks that each event is recorded once, and waited for later in the list, in the same section. */
static nnc_status check_events(const check *v, nnc_arena *a)
{
    const nnc_plan *p = v->p;
    int32_t *at = ARENA_NEW(a, int32_t, p->n_event + 1); /* recording command + 1 */
    NNC_NEED(at, v->sink);
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_record) {
            if (at[c->item])
                return bad_at(v, "command", i, "its event is recorded twice");
            at[c->item] = i + 1;
        } else if (c->kind == CMD_wait) {
            int r = at[c->item] - 1;
            if (r < 0 || (r < nnc_plan_first(p, SEC_main)) != (i < nnc_plan_first(p, SEC_main)))
                return bad_at(
                    v, "command", i, "it waits for an event that was not recorded before");
        }
    }
    return NNC_OK;
}

/* Checks that each state has one new value, with the state's memory and type. */
static nnc_status check_updates(const check *v, nnc_arena *a)
{
    const nnc_plan *p = v->p;
    bool *seen = ARENA_NEW(a, bool, p->n_tensor + 1);
    NNC_NEED(seen, v->sink);
    for (int i = 0; i < p->n_update; i++) {
        const nnc_plan_update *u = &p->update[i];
        if (u->state >= p->n_tensor || u->value >= p->n_tensor)
            return bad_at(v, "update", i, "no such tensor");
        const nnc_ptensor *s = &p->tensor[u->state], *x = &p->tensor[u->value];
        if (s->space != SP_persist || nnc_plan_root(p, u->value) != nnc_plan_root(p, u->state) ||
            x->offset != s->offset || seen[u->state] || u->value == u->state ||
            !nnc_type_equal(&s->type, &x->type))
            return bad_at(v, "update", i,
                "a state lasts and has memory of its own, which its one new value takes over");
        seen[u->state] = true;
    }
    return NNC_OK;
}

/* Checks inputs and outputs. The memory check ensures separate tensors for inputs, since inputs are written. */
static nnc_status check_ends(const check *v)
{
    const nnc_plan *p = v->p;
    int inputs = 0;
    for (int t = 0; t < p->n_tensor; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        inputs += x->is_input;
        if ((x->is_input || x->is_output) && !nnc_type_is_dense(&x->type))
            return bad_at(v, "tensor", t, "inputs and outputs are contiguous");
    }
    if (inputs != p->n_input)
        return nnc_fail0(v->sink, v->code, "plan: %d inputs are named, %d tensors are inputs",
            p->n_input, inputs);
    for (int i = 0; i < p->n_input; i++)
        if (p->input[i] < 0 || p->input[i] >= p->n_tensor || !p->tensor[p->input[i]].is_input ||
            !p->input_name[i])
            return bad_at(v, "input", i, "its tensor is not an input");
    for (int i = 0; i < p->n_output; i++)
        if (p->output[i] < 0 || p->output[i] >= p->n_tensor || !p->tensor[p->output[i]].is_output ||
            p->tensor[p->output[i]].space == SP_init || !p->output_name[i])
            return bad_at(
                v, "output", i, "its tensor is not an output, or exists during init only");
    return NNC_OK;
}

static nnc_status check_all(check *v, nnc_arena *a)
{
    const nnc_plan *p = v->p;
    const char *why;
    NNC_TRY(check_rows(v));
    NNC_TRY(plan_check_kernels(v, a));
    for (int i = 0; i < p->n_cmd; i++)
        if ((why = cmd_fault(v, &p->cmd[i], i)))
            return bad_at(v, "command", i, why);
    NNC_TRY(plan_check_devices(v, a));
    NNC_TRY(check_events(v, a));
    NNC_TRY(plan_check_collectives(v, a));
    NNC_TRY(check_ends(v));
    NNC_TRY(check_updates(v, a));
    return plan_check_memory(v, a);
}

nnc_status plan_check_rows(const nnc_plan *p, nnc_sink *sink)
{
    return check_rows(&(check){.p = p, .sink = sink, .code = NNC_E_MODEL});
}

nnc_status nnc_plan_verify(const nnc_plan *p, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    check v = {.p = p, .sink = sink, .code = NNC_E_MODEL};
    return check_all(&v, &a);
}
