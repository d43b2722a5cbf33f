/* session/session.c -- a loaded artifact: inputs in, run, outputs out, all in the user's row-major order. */
#include "session/session.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static int interpreted(const nnc_plan *p)
{
    int n = 0;
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
        n += p->cmd[i].kind == CMD_kernel && !nnc_pkernel_code(p, &p->kernel[p->cmd[i].item]) &&
             !nnc_plan_on_gpu(&p->device[p->cmd[i].device]);
    return n;
}

void nnc_say_missing(nnc_env *e, const nnc_plan *p, nnc_sink *sink)
{
    const int n = e->said_slow ? 0 : interpreted(p);
    const char *why = "LLVM is switched off";
    if (n && !nnc_env_emits(e, &why))
        nnc_warn(sink, (nnc_loc){0},
            "%d kernel launch%s interpreted, 10 to 100 times slower than machine code: %s", n,
            n == 1 ? " is" : "es are", why);
    e->said_slow |= n > 0;
}

typedef struct state_key {
    const char *name; /* of its weight */
    int device, i;
} state_key;

NNC_ORDER(by_name, state_key, strcmp(a->name, b->name))

NNC_ORDER(by_name_and_device, state_key, by_name(a, b), a->device - b->device, a->i - b->i)

/* The name of copy number `copy`, whichever device other than the first it is on. So a checkpoint of two replicas may go on with more
 * devices for each. A weight may be called so already. NULL: out of memory. */
static const char *copy_name(nnc_session *s, const state_key *key, int n, int k, int copy)
{
    const char *name = nnc_arena_printf(&s->names, "%s.device%d", key[k].name, copy);
    while (name && bsearch(&(state_key){.name = name}, key, (size_t)n, sizeof *key, by_name))
        name = nnc_arena_printf(&s->names, "%s_", name);
    return name;
}

/* A state is called as its weight is: names of values in graphs have letters, digits, `_` and `.` only. A part of a weight is called as the
 * value is. Where several devices have a copy of it (train/distribute.c), the first of them keeps the name. */
static nnc_status name_states(nnc_session *s, nnc_sink *sink)
{
    const nnc_plan *p = s->plan;
    NNC_FREED const char **weight = nnc_calloc((size_t)p->n_tensor + 1, sizeof *weight);
    NNC_FREED state_key *key = nnc_calloc((size_t)p->n_update + 1, sizeof *key);
    NNC_NEED(
        weight && key && ARENA_ARRAYS(&s->names, p->n_update + 1, s->state, s->state_of), sink);
    for (int c = 0; c < p->n_cmd; c++)
        if (p->cmd[c].kind == CMD_weight && !p->weight[p->cmd[c].item].n_part)
            weight[p->cmd[c].arg[0]] = p->weight[p->cmd[c].item].name;
    for (int i = 0; i < p->n_update; i++) {
        const int32_t t = p->update[i].state;
        s->state[i] = s->state_of[i] = weight[t] ? weight[t] : p->tensor[t].name;
        key[i] = (state_key){s->state[i], p->tensor[t].device, i};
    }
    qsort(key, (size_t)p->n_update, sizeof *key, by_name_and_device);
    for (int k = 1, first = 0; k < p->n_update; k++) {
        first = by_name(&key[first], &key[k]) ? k : first;
        if (key[k].device != key[first].device)
            s->state[key[k].i] = copy_name(s, key, p->n_update, k, k - first);
        else if (k != first) /* of another one of several models */
            s->state[key[k].i] = p->tensor[p->update[key[k].i].state].name;
        NNC_NEED(s->state[key[k].i], sink);
    }
    return NNC_OK;
}

const nnc_weight *nnc_session_state_part_of(const nnc_session *s, int i)
{
    const nnc_plan *p = s->plan;
    for (int c = 0; c < p->end[SEC_init]; c++)
        if (p->cmd[c].kind == CMD_weight && p->cmd[c].arg[0] == p->update[i].state)
            return p->weight[p->cmd[c].item].n_part ? &p->weight[p->cmd[c].item] : NULL;
    return NULL;
}

/* Gives back what compiling took: without it, up to 100 MiB of free blocks stayed resident beside the plan's memory. */
static void trim_heap(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    if (mallinfo2().fordblks > (size_t)16 << 20)
        (void)malloc_trim(0);
#endif
}

/* job: the ranks that execute it; NULL: this process alone does. */
static nnc_status create_session(nnc_env *e, const nnc_artifact *a, nnc_session *with, nnc_job *job,
    bool no_replay, nnc_session **out, nnc_sink *sink)
{
    *out = NULL;
    if (a->unchecked)
        return nnc_fail0(sink, NNC_E_USAGE, "the artifact was loaded without a machine to run on");
    trim_heap();
    NNC_TRY(nnc_check_compatible(e, a, sink));
    NNC_TRY(nnc_artifact_check_weights(a, sink));
    if (job && a->chunks > 1)
        return nnc_fail0(sink, NNC_E_FIT,
            "the model runs in chunks of its batch, which several ranks cannot do");
    NNC_OWNED(nnc_session) *s = nnc_calloc(1, sizeof *s);
    NNC_NEED(s, sink);
    static const nnc_device_api *const devices[] = {&nnc_device_cpu, &nnc_device_cuda};
    nnc_engine_env env[NNC_MAX_DEVICES];
    const bool alone =
        !job && e->ranks.world > 1; /* its devices may be one GPU, where a rank has one */
    for (int i = 0; i < e->n_target; i++)
        env[i] = (nnc_engine_env){&e->target[i], e->cache, e->tuning};
    nnc_exec_options o = {.device = devices,
        .n_device = NNC_COUNT(devices),
        .engine = e->engine,
        .n_engine = e->n_engine,
        .env = env,
        .n_env = e->n_target,
        .shared = a->root ? a->root->shared : a->shared,
        .states = with ? with->exec : NULL,
        .job = job,
        .comm_by = alone && e->comm_by == NNC_COMM_nccl ? NNC_COMM_auto : e->comm_by,
        .no_replay = no_replay};
    s->a = a;
    s->plan = a->plan;
    s->ranks = job ? e->ranks.world : 1;
    s->index = nnc_calloc((size_t)a->plan->n_input + 1, sizeof *s->index);
    NNC_NEED(s->index, sink);
    for (int i = 0; i < a->plan->n_input; i++)
        NNC_TRY(nnc_input_index(a, i, &s->index[i]));
    NNC_TRY(name_states(s, sink));
    NNC_TRY(nnc_exec_create(a->plan, &o, &s->exec, sink));
    if (a->chunks > 1)
        NNC_TRY(nnc_session_stream_open(s, sink));
    nnc_say_missing(e, a->plan, sink);
    *out = s;
    s = NULL;
    return NNC_OK;
}

nnc_status nnc_session_create_with(
    nnc_env *e, const nnc_artifact *a, nnc_session *with, nnc_session **out, nnc_sink *sink)
{
    return create_session(e, a, with, e->job, false, out, sink);
}

nnc_status nnc_session_create_alone(
    nnc_env *e, const nnc_artifact *a, bool no_replay, nnc_session **out, nnc_sink *sink)
{
    return create_session(e, a, NULL, NULL, no_replay, out, sink);
}

nnc_status nnc_session_create(nnc_env *e, const nnc_artifact *a, nnc_session **out, nnc_sink *sink)
{
    return nnc_session_create_with(e, a, NULL, out, sink);
}

void nnc_session_destroy(nnc_session *s)
{
    if (!s)
        return;
    nnc_session_stream_close(s);
    nnc_stage_destroy(s->stage);
    nnc_exec_destroy(s->exec);
    nnc_free(s->index);
    nnc_arena_deinit(&s->names);
    nnc_free(s);
}

int nnc_session_inputs(const nnc_session *s)
{
    return s->plan->n_input;
}

int nnc_session_results(const nnc_session *s)
{
    return s->plan->n_output;
}

int nnc_session_outputs(const nnc_session *s)
{
    return s->plan->n_output + (int)s->a->graph->n_empty;
}

/* Output i if it has no elements; NULL. */
static const nnc_empty *empty_output(const nnc_artifact *a, int i)
{
    const int k = i - a->plan->n_output;
    return k >= 0 && k < (int)a->graph->n_empty ? &a->graph->empty[k] : NULL;
}

const char *nnc_artifact_input_name(const nnc_artifact *a, int i)
{
    return i >= 0 && i < a->plan->n_input ? a->plan->input_name[i] : NULL;
}

const char *nnc_artifact_output_name(const nnc_artifact *a, int i)
{
    const nnc_empty *empty = empty_output(a, i);
    return empty ? empty->name : i >= 0 && i < a->plan->n_output ? a->plan->output_name[i] : NULL;
}

const nnc_type *nnc_artifact_input_type(const nnc_artifact *a, int i)
{
    return i >= 0 && i < a->plan->n_input ? nnc_whole_input(a, i) : NULL;
}

const nnc_type *nnc_artifact_output_type(const nnc_artifact *a, int i)
{
    const nnc_empty *empty = empty_output(a, i);
    return empty ? &empty->type : i >= 0 && i < a->plan->n_output ? nnc_whole_output(a, i) : NULL;
}

const char *nnc_session_input_name(const nnc_session *s, int i)
{
    return nnc_artifact_input_name(s->a, i);
}

const char *nnc_session_output_name(const nnc_session *s, int i)
{
    return nnc_artifact_output_name(s->a, i);
}

const nnc_type *nnc_session_input_type(const nnc_session *s, int i)
{
    return nnc_artifact_input_type(s->a, i);
}

const nnc_type *nnc_session_output_type(const nnc_session *s, int i)
{
    return nnc_artifact_output_type(s->a, i);
}

nnc_status nnc_input_index(const nnc_artifact *a, int i, nnc_index_use *out)
{
    const nnc_graph *g = a->source;
    *out = (nnc_index_use){0};
    for (uint32_t n = 0; n < g->n_node;
         n++) { /* a plan's inputs are the graph's, in order; they may have no names */
        nnc_ref r = g->node[n].out;
        if (g->node[n].op == OP_input && i-- == 0)
            return nnc_is_float((nnc_dtype)nnc_typeof(g, r)->dtype) ? NNC_OK
                                                                    : nnc_indexes(g, r, out);
    }
    return NNC_OK;
}

/* Kernels clamp indices, so that no run reads outside a table; here the user gets an error instead. */
static nnc_status check_indices(const nnc_session *s, int i, const void *data, nnc_sink *sink)
{
    const nnc_type *t = nnc_session_input_type(s, i);
    int64_t n = nnc_type_numel(t), end = s->index[i].all;
    for (int64_t k = 0; end && k < n; k++) {
        int64_t v = nnc_get_i64((nnc_dtype)t->dtype, data, k);
        if (v < -end || v >= end)
            return nnc_fail0(sink, NNC_E_MODEL,
                "input %s: element %lld is %lld, an index into the %lld entries of %s; expected "
                "%lld to %lld",
                nnc_session_input_name(s, i), (long long)k, (long long)v, (long long)end,
                s->index[i].gather->origin ? s->index[i].gather->origin : "a table",
                (long long)-end, (long long)(end - 1));
    }
    return NNC_OK;
}

void *nnc_session_input_memory(nnc_session *s, int i)
{
    return s->a->chunks > 1 || i < 0 || i >= s->plan->n_input
               ? NULL
               : nnc_exec_tensor(s->exec, s->plan->input[i]);
}

const void *nnc_session_output_memory(nnc_session *s, int i)
{
    if (i < 0 || i >= s->plan->n_output)
        return empty_output(s->a, i) ? "" : NULL;
    const void *streamed = nnc_stream_output(s, i);
    return streamed || s->a->chunks > 1 ? streamed : nnc_exec_tensor(s->exec, s->plan->output[i]);
}

const void *nnc_session_state_memory(nnc_session *s, int i)
{
    return nnc_exec_tensor(s->exec, s->plan->update[i].state);
}

nnc_status nnc_session_input(nnc_session *s, int i, const void *data, nnc_sink *sink)
{
    if (i < 0 || i >= s->plan->n_input)
        return nnc_fail0(
            sink, NNC_E_USAGE, "input %d does not exist; the model has %d", i, s->plan->n_input);
    if (!nnc_type_is_row_major(nnc_session_input_type(s, i)))
        return nnc_fail0(
            sink, NNC_E_BUG, "input %s is not row-major", nnc_session_input_name(s, i));
    NNC_TRY(check_indices(s, i, data, sink));
    nnc_stream_keep_input(s, i, data);
    s->given = true;
    if (s->a->chunks > 1)
        return NNC_OK; /* uploaded with each run */
    NNC_TRY(nnc_exec_upload(s->exec, i, data));
    return nnc_exec_sync(s->exec, sink);
}

nnc_status nnc_session_stage(nnc_session *s, int i, const void *data, nnc_sink *sink)
{
    if (s->a->chunks > 1 || s->ranks > 1 || !nnc_type_is_row_major(nnc_session_input_type(s, i)))
        return nnc_session_input(s, i, data, sink);
    NNC_TRY(check_indices(s, i, data, sink));
    if (!s->stage)
        NNC_TRY(nnc_stage_create(s->exec, &s->stage, sink));
    nnc_stream_keep_input(s, i, data);
    return nnc_stage_put(s->stage, i, data, sink);
}

nnc_status nnc_session_take(nnc_session *s, nnc_sink *sink)
{
    return s->stage ? nnc_stage_take(s->stage, sink) : NNC_OK;
}

bool nnc_session_beside(nnc_session *s, void (*call)(void *ctx), void *ctx)
{
    const bool works = nnc_exec_returns_early(s->exec) && s->a->chunks <= 1;
    s->beside = works ? call : NULL;
    s->beside_ctx = ctx;
    return works;
}

/* Waits for what has been submitted. */
static nnc_status wait_for(nnc_session *s, nnc_sink *sink)
{
    void (*const call)(void *ctx) = s->beside;
    s->beside = NULL;
    if (call)
        call(s->beside_ctx);
    return nnc_exec_sync(s->exec, sink);
}

nnc_status nnc_session_run(nnc_session *s, nnc_sink *sink)
{
    if (s->a->chunks > 1)
        return nnc_stream_chunks(s, sink);
    nnc_stream_forget(s);
    NNC_TRY(nnc_exec_run(s->exec, sink));
    return wait_for(s, sink);
}

static nnc_status step_with(
    nnc_session *s, nnc_status (*submit)(nnc_exec *e, nnc_sink *sink), nnc_sink *sink)
{
    if (s->plan->n_update == 0)
        return nnc_session_run(s, sink);
    nnc_stream_forget(s);
    NNC_TRY(submit(s->exec, sink));
    return wait_for(s, sink);
}

nnc_status nnc_session_step(nnc_session *s, nnc_sink *sink)
{
    return step_with(s, nnc_exec_step, sink);
}

nnc_status nnc_session_accumulate(nnc_session *s, nnc_sink *sink)
{
    return step_with(s, nnc_exec_accumulate, sink);
}

nnc_status nnc_session_update(nnc_session *s, bool step, nnc_sink *sink)
{
    NNC_TRY(nnc_exec_update(s->exec, step, sink));
    return wait_for(s, sink);
}

int nnc_session_states(const nnc_session *s)
{
    return s->plan->n_update;
}

static const nnc_ptensor *state_at(const nnc_session *s, int i)
{
    return i >= 0 && i < s->plan->n_update ? &s->plan->tensor[s->plan->update[i].state] : NULL;
}

const char *nnc_session_state_name(const nnc_session *s, int i)
{
    return state_at(s, i) ? s->state[i] : NULL;
}

const nnc_type *nnc_session_state_type(const nnc_session *s, int i)
{
    const nnc_ptensor *t = state_at(s, i);
    return t ? &t->type : NULL;
}

const char *nnc_session_state_of(const nnc_session *s, int i)
{
    return state_at(s, i) ? s->state_of[i] : NULL;
}

static nnc_status check_state(const nnc_session *s, int i, nnc_sink *sink)
{
    const nnc_ptensor *t = state_at(s, i);
    if (!t)
        return nnc_fail0(
            sink, NNC_E_USAGE, "state %d does not exist; the model has %d", i, s->plan->n_update);
    return nnc_type_is_row_major(&t->type)
               ? NNC_OK
               : nnc_fail0(sink, NNC_E_BUG, "state %s is not row-major", t->name);
}

nnc_status nnc_session_state_part(
    nnc_session *s, int i, int64_t offset, int64_t bytes, void *data, nnc_sink *sink)
{
    NNC_TRY(check_state(s, i, sink));
    NNC_TRY(nnc_exec_get_state(s->exec, i, offset, bytes, data));
    return nnc_exec_sync(s->exec, sink);
}

nnc_status nnc_session_state(nnc_session *s, int i, void *data, nnc_sink *sink)
{
    const nnc_ptensor *t = state_at(s, i);
    return nnc_session_state_part(s, i, 0, t ? nnc_type_bytes(&t->type) : 0, data, sink);
}

nnc_status nnc_session_set_state(nnc_session *s, int i, const void *data, nnc_sink *sink)
{
    NNC_TRY(check_state(s, i, sink));
    NNC_TRY(nnc_exec_set_state(s->exec, i, data));
    return nnc_exec_sync(s->exec, sink);
}

/* Passes leave outputs row-major (a relayout is a command of the plan), so this is a single copy. */
nnc_status nnc_session_output_part(
    nnc_session *s, int i, int64_t offset, int64_t bytes, void *data, nnc_sink *sink)
{
    if (i < 0 || i >= nnc_session_outputs(s))
        return nnc_fail0(sink, NNC_E_USAGE, "output %d does not exist; the model has %d", i,
            nnc_session_outputs(s));
    int64_t size = nnc_type_bytes(nnc_session_output_type(s, i));
    if (!nnc_type_is_row_major(nnc_session_output_type(s, i)) || offset < 0 || bytes < 0 ||
        offset > size || bytes > size - offset)
        return nnc_fail0(sink, NNC_E_BUG, "output %s is not row-major, or smaller",
            nnc_session_output_name(s, i));
    if (empty_output(s->a, i))
        return NNC_OK;
    if (nnc_stream_take_output(s, i, offset, bytes, data))
        return NNC_OK;
    NNC_TRY(nnc_exec_download_part(s->exec, i, offset, bytes, data));
    return nnc_exec_sync(s->exec, sink);
}

nnc_status nnc_session_output(nnc_session *s, int i, void *data, nnc_sink *sink)
{
    bool there = i >= 0 && i < nnc_session_outputs(s);
    int64_t bytes = there ? nnc_type_bytes(nnc_session_output_type(s, i)) : 0;
    return nnc_session_output_part(s, i, 0, bytes, data, sink);
}

void nnc_fill_input(const char *name, const nnc_type *t, uint64_t seed, void *data)
{
    int64_t n = nnc_type_numel(t);
    uint64_t key = nnc_rng_key(
        name, seed ^ 0x696e707574u); /* so that it differs from a weight of the same name */
    nnc_dtype d = (nnc_dtype)t->dtype;
    if (d == DT_f32) {
        nnc_rng_fill(key, 0, (size_t)n, 1.0f, data);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float u = nnc_rng_uniform(key, (uint64_t)i);
        if (nnc_is_float(d))
            nnc_set_f64(d, data, i, (double)u * 2 - 1);
        else
            nnc_set_i64(d, data, i, (int64_t)(u * (d == DT_bool ? 2 : 10)));
    }
}

const char *nnc_artifact_own_input(const nnc_artifact *a, int i)
{
    const nnc_graph *g = a->source;
    for (uint32_t n = 0, k = 0; n < g->n_node; n++)
        if (g->node[n].op == OP_input && k++ == (uint32_t)i && nnc_own_name(g, &g->node[n]))
            return nnc_own_name(g, &g->node[n]);
    return a->plan->input_name[i];
}

nnc_status nnc_artifact_fill_input(
    const nnc_artifact *a, int i, uint64_t seed, void *data, nnc_sink *sink)
{
    const nnc_type *t = nnc_whole_input(a, i);
    nnc_dtype d = (nnc_dtype)t->dtype;
    nnc_index_use use;
    int64_t n = nnc_type_numel(t);
    nnc_fill_input(nnc_artifact_own_input(a, i), t, seed, data);
    nnc_status st = nnc_input_index(a, i, &use);
    for (int64_t k = 0; !st && use.any && k < n; k++)
        nnc_set_i64(d, data, k, nnc_get_i64(d, data, k) % use.any);
    return st ? nnc_nomem(sink) : NNC_OK;
}
