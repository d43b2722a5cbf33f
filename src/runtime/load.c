/* runtime/load.c -- loading a plan: checks, engines and their prepared handles, and reading weights. */
#include "runtime/exec.h"
#include <string.h>

/* ---- checks ---------------------------------------------------------------------------------- */

/* Number of arguments; -2: the command names something that the plan does not have. */
static int expected_args(const nnc_plan *p, const nnc_cmd *c)
{
    switch ((nnc_cmd_kind)c->kind) {
    case CMD_kernel: return c->item >= 0 && c->item < p->n_kernel ? p->kernel[c->item].n_args : -2;
    case CMD_call:
        return c->item >= 0 && c->item < p->n_call ? nnc_call_args(&p->call[c->item]) : -2;
    case CMD_weight: return c->item >= 0 && c->item < p->n_weight ? 1 : -2;
    case CMD_collective: return c->item >= 0 && c->item < p->n_collective ? 2 : -2;
    case CMD_copy: return 2;
    case CMD_record:
    case CMD_wait: return c->item >= 0 && c->item < p->n_event ? 0 : -2;
    case CMD__COUNT: break;
    }
    return -2;
}

static const char *check_command(const nnc_plan *p, int i)
{
    const nnc_cmd *c = &p->cmd[i];
    if (c->device < 0 || c->device >= p->n_device || c->stream < 0 ||
        c->stream >= p->device[c->device].streams)
        return "its device or stream does not exist";
    int want = expected_args(p, c);
    if (want == -2)
        return "it names something that does not exist";
    if (c->n_arg != want)
        return "it has the wrong number of arguments";
    for (int a = 0; a < c->n_arg; a++)
        if (c->arg[a] < 0 || c->arg[a] >= p->n_tensor)
            return "an argument does not exist";
    if (c->work >= p->n_tensor)
        return "its workspace does not exist";
    if ((c->kind == CMD_kernel || c->kind == CMD_call) &&
        (c->engine < 0 || c->engine >= p->n_engine))
        return "its engine does not exist";
    if (c->kind == CMD_weight && i >= p->end[SEC_init])
        return "weights are read in init only";
    if (c->kind == CMD_weight && !nnc_type_is_row_major(&p->tensor[c->arg[0]].type))
        return "a weight is stored row-major";
    return NULL;
}

nnc_status nnc_exec_check(const nnc_plan *p, nnc_sink *sink)
{
    if (p->n_device < 1 || !nnc_plan_sections_ok(p))
        return nnc_fail0(sink, NNC_E_BUG, "plan: no device, or its sections are not its commands");
    for (int d = 0; d < p->n_device; d++)
        if (p->device[d].streams < 1)
            return nnc_fail0(sink, NNC_E_BUG, "plan: device %d has no stream", d);
    for (int i = 0; i < p->n_tensor; i++)
        if (p->tensor[i].device < 0 || p->tensor[i].device >= p->n_device ||
            p->tensor[i].space > SP_init)
            return nnc_fail0(sink, NNC_E_BUG, "plan: tensor %d lies nowhere", i);
    for (int i = 0; i < p->n_cmd; i++) {
        const char *wrong = check_command(p, i);
        if (wrong)
            return nnc_fail0(sink, NNC_E_BUG, "plan: command %d: %s", i, wrong);
    }
    for (int i = 0; i < p->n_input; i++)
        if (p->input[i] < 0 || p->input[i] >= p->n_tensor)
            return nnc_fail0(sink, NNC_E_BUG, "plan: input %d does not exist", i);
    for (int i = 0; i < p->n_output; i++)
        if (p->output[i] < 0 || p->output[i] >= p->n_tensor)
            return nnc_fail0(sink, NNC_E_BUG, "plan: output %d does not exist", i);
    return NNC_OK;
}

/* ---- engines and handles --------------------------------------------------------------------- */

/* Does a command of this rank's devices need engine i? */
static bool used_here(const nnc_exec *e, int i)
{
    bool used = !e->ranks;
    for (int k = 0; k < e->p->n_cmd && !used; k++) {
        const nnc_cmd *c = &e->p->cmd[k];
        used = (c->kind == CMD_kernel || c->kind == CMD_call) && c->engine == i &&
               nnc_exec_owns(e, c->device);
    }
    return used;
}

nnc_status nnc_exec_find_engines(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink)
{
    for (int i = 0; i < e->p->n_engine; i++) {
        if (!used_here(e, i))
            continue;
        for (int k = 0; k < o->n_engine; k++)
            if (!strcmp(o->engine[k]->name, e->p->engine[i]))
                e->engine[i] = o->engine[k];
        if (!e->engine[i])
            return nnc_fail0(sink, NNC_E_DEVICE,
                "the plan needs the engine '%s', which is not there (`nnc doctor` says why)",
                e->p->engine[i]);
    }
    return NNC_OK;
}

static bool same_work(const nnc_cmd *a, const nnc_cmd *b)
{
    return a->kind == b->kind && a->item == b->item && a->engine == b->engine &&
           a->device == b->device && a->stream == b->stream;
}

/* Machine code for CPUs and GPUs is an ELF file; anything else is PTX. */
static nnc_phase phase_of(const nnc_plan *p, const nnc_cmd *c)
{
    if (c->kind == CMD_call)
        return NNC_PH_libraries;
    const nnc_blob *object = nnc_pkernel_code(p, &p->kernel[c->item]);
    return object && object->n >= 4 && memcmp(object->data, "\177ELF", 4) ? NNC_PH_jit
                                                                          : NNC_PH_code;
}

/* Loads the machine code of kernel k for the engine of command c, unless it is loaded; *out NULL: it has none. */
static nnc_status load_object(nnc_exec *e, const nnc_cmd *c, loaded_object **out, nnc_sink *sink)
{
    const nnc_engine *g = e->engine[c->engine];
    const nnc_blob *code =
        c->kind == CMD_kernel ? nnc_pkernel_code(e->p, &e->p->kernel[c->item]) : NULL;
    *out = NULL;
    if (!code || !g->load_object)
        return NNC_OK;
    loaded_object *o =
        &e->object[(size_t)c->engine * (size_t)e->p->n_object + (size_t)(code - e->p->object)];
    if (!o->object)
        NNC_TRY(g->load_object(e->p, code, &o->object, sink));
    *out = o;
    return NNC_OK;
}

static void release_object(const nnc_engine *g, loaded_object *o)
{
    if (!o || --o->users > 0)
        return;
    g->unload_object(o->object);
    o->object = NULL;
}

/* Loads what command i runs into p, which may be loaded already. */
static nnc_status load(nnc_exec *e, prepared *p, int i, nnc_sink *sink)
{
    const nnc_cmd *c = &e->p->cmd[i];
    const nnc_engine *g = e->engine[c->engine];
    nnc_status (*make)(const nnc_load *, void **, nnc_sink *) =
        c->kind == CMD_call ? g->load_call : g->load_kernel;
    if (!make)
        return nnc_fail0(sink, NNC_E_BUG, "plan: engine %s does not run %s", g->name,
            c->kind == CMD_call ? "calls" : "kernels");
    if (p->engine)
        return NNC_OK;
    if (p->on->api->use)
        NNC_TRY(p->on->api->use(p->on->device));
    NNC_TRY(load_object(e, c, &p->object, sink));
    if (p->object)
        p->object->users++;
    const nnc_load l = {e->p, c->item, p->object ? p->object->object : NULL, &p->on->env};
    nnc_status status = make(&l, &p->handle, sink);
    if (status)
        release_object(g, p->object);
    else
        p->engine = g;
    return status;
}

/* Loads handles of main, or those that only init uses. */
nnc_status nnc_exec_load(nnc_exec *e, bool main, nnc_sink *sink)
{
    for (int k = 0; k < e->n_owned; k++) {
        if (main ? !e->owned[k].main : e->owned[k].main || !e->owned[k].init)
            continue;
        const int64_t from = nnc_now_ns();
        const bool calls = !e->owned[k].engine && e->p->cmd[e->owner[k]].kind == CMD_call;
        if (calls)
            NNC_TRY(nnc_need_library_room(sink));
        NNC_TRY(load(e, &e->owned[k], e->owner[k], sink));
        nnc_exec_spent(e, phase_of(e->p, &e->p->cmd[e->owner[k]]), from);
    }
    return NNC_OK;
}

nnc_status nnc_exec_find_handles(nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    /* last: by item and kind, the last command with it; before: by command, the previous one with its item. Another stream needs a
     * handle of its own. */
    size_t items = (size_t)(p->n_call > p->n_kernel ? p->n_call : p->n_kernel) + 1;
    NNC_FREED int32_t *last = nnc_malloc(sizeof *last * (2 * items + (size_t)p->n_cmd));
    NNC_NEED(last, sink);
    int32_t *before = last + 2 * items;
    for (size_t i = 0; i < 2 * items; i++)
        last[i] = -1;
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if ((c->kind != CMD_kernel && c->kind != CMD_call) || !nnc_exec_owns(e, c->device))
            continue;
        int32_t *l = &last[2 * c->item + (c->kind == CMD_call)];
        int32_t same = *l;
        while (same >= 0 && !same_work(c, &p->cmd[same]))
            same = before[same];
        if (same < 0) {
            e->owner[e->n_owned] = i;
            e->owned[e->n_owned].on = &e->dev[c->device];
        }
        e->handle[i] = same >= 0 ? e->handle[same] : &e->owned[e->n_owned++];
        before[i] = *l;
        *l = i;
        e->handle[i]->main |= i >= p->end[SEC_init];
    }
    return NNC_OK;
}

void nnc_exec_unload(nnc_exec *e, bool all)
{
    for (int i = 0; i < e->n_owned; i++) {
        prepared *p = &e->owned[i];
        if (p->engine && (all || !p->main)) {
            if (p->on->api->use)
                (void)p->on->api->use(p->on->device);
            p->engine->unload(p->handle);
            release_object(p->engine, p->object);
            p->engine = NULL;
        }
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 20 }; /* bytes per piece that one thread reads or generates */

typedef struct read_job {
    const weight_work *w;
    char *dst;
    int64_t n, chunk; /* elements */
    nnc_status *status; /* of each range */
} read_job;

static nnc_status read_piece(
    const weight_work *w, int64_t first, int64_t n, void *dst, nnc_sink *sink)
{
    const nnc_plan *p = w->e->p;
    return nnc_weight_read(&p->weight[w->cmd->item], &p->tensor[w->cmd->arg[0]].type, first, n, dst,
        &w->e->files, sink);
}

static void read_part(void *ctx, int part, int parts)
{
    const read_job *j = ctx;
    int size = nnc_dtype_size(j->w->e->p->tensor[j->w->cmd->arg[0]].type.dtype);
    int64_t i, end;
    nnc_status status = NNC_OK;
    nnc_par_range(j->n, j->chunk, part, parts, &i, &end);
    for (; i < end && status == NNC_OK; i += j->chunk)
        status =
            read_piece(j->w, i, end - i < j->chunk ? end - i : j->chunk, j->dst + i * size, NULL);
    j->status[part] = status;
}

enum { MOST_PARTS = 256 };

/* Reads all of a weight into dst, row-major. */
static nnc_status read_all(const weight_work *w, void *dst)
{
    const nnc_type *t = &w->e->p->tensor[w->cmd->arg[0]].type;
    nnc_status status[MOST_PARTS] = {NNC_OK};
    /* a plan for a GPU has one thread; the host has more */
    const bool own = w->e->dev[w->cmd->device].api->host_memory;
    int threads = own ? w->e->p->device[w->cmd->device].threads : nnc_cpu_count();
    threads = (int)nnc_max64(1, nnc_min64(threads, MOST_PARTS));
    read_job j = {w, dst, nnc_type_numel(t), CHUNK / nnc_dtype_size(t->dtype), status};
    nnc_par_run(threads, read_part, &j);
    for (int i = 0; i < threads; i++)
        if (status[i] != NNC_OK)
            return status[i];
    return NNC_OK;
}

/* On the stream's thread (devices with host-visible memory). */
static nnc_status run_weight(void *handle, void *const *args, void *work)
{
    (void)work;
    weight_work *w = handle;
    int64_t from = nnc_now_ns();
    w->status = read_all(w, args[0]);
    w->ns = nnc_now_ns() - from;
    return w->status;
}

/* Other devices: through host memory, waiting for the upload. */
static nnc_status stage_weight(nnc_exec *e, int i)
{
    const nnc_cmd *c = &e->p->cmd[i];
    const nnc_ptensor *t = &e->p->tensor[c->arg[0]];
    const nnc_device_api *api = e->dev[c->device].api;
    nnc_stream *s = e->dev[c->device].stream[c->stream];
    NNC_FREED void *host = nnc_malloc((size_t)t->bytes);
    if (!host)
        return NNC_E_NOMEM;
    nnc_status status = run_weight(&e->weight[i], &host, NULL);
    int64_t from = nnc_now_ns();
    if (status == NNC_OK)
        status = api->upload(s, nnc_exec_address(e, c->arg[0]), host, nnc_type_bytes(&t->type));
    nnc_status synced = api->sync(s, NULL);
    nnc_exec_spent(e, NNC_PH_upload, from);
    return status != NNC_OK ? status : synced;
}

nnc_status nnc_exec_weight(nnc_exec *e, int i)
{
    const nnc_cmd *c = &e->p->cmd[i];
    e->weight[i] = (weight_work){e, c, NNC_OK, 0};
    if (!e->dev[c->device].api->host_memory)
        return stage_weight(e, i);
    return e->dev[c->device].api->launch(
        e->dev[c->device].stream[c->stream], &(nnc_work){.run = run_weight,
                                                 .handle = &e->weight[i],
                                                 .args = e->use->arg + e->first_arg[i],
                                                 .n_arg = 1,
                                                 .name = c->layers});
}

bool nnc_exec_weight_failure(nnc_exec *e, nnc_sink *sink)
{
    for (int i = 0; i < e->p->end[SEC_init]; i++) {
        const weight_work *w = &e->weight[i];
        if (!w->e || w->status == NNC_OK)
            continue;
        /* repeated with a sink, piece by piece, for the message with the file's name */
        const nnc_type *t = &e->p->tensor[w->cmd->arg[0]].type;
        int64_t n = nnc_type_numel(t), chunk = CHUNK / nnc_dtype_size(t->dtype);
        NNC_FREED void *tmp = nnc_malloc(CHUNK);
        nnc_status status = tmp ? NNC_OK : nnc_nomem(sink);
        for (int64_t k = 0; k < n && status == NNC_OK; k += chunk)
            status = read_piece(w, k, n - k < chunk ? n - k : chunk, tmp, sink);
        return status != NNC_OK;
    }
    return false;
}
