/* tests/runtime/plans.c -- see plans.h. */
#include "plans.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

_Atomic int toy_loaded;

typedef struct toy {
    const char *symbol;
} toy;

static nnc_status toy_load(const nnc_load *l, void **handle, nnc_sink *sink)
{
    toy *t = nnc_malloc(sizeof *t);
    if (!t)
        return nnc_nomem(sink);
    t->symbol = l->plan->kernel[l->item].symbol;
    *handle = t;
    toy_loaded++;
    return NNC_OK;
}

static nnc_status toy_run(void *handle, void *const *args, void *work)
{
    const toy *t = handle;
    const float *a = args[0], *b = args[1];
    float *y = args[2];
    (void)work;
    static atomic_bool failed; /* "fail_once" */
    if (!strcmp(t->symbol, "fail") ||
        (!strcmp(t->symbol, "fail_once") && !atomic_exchange(&failed, true)))
        return NNC_E_DEVICE;
    if (!strcmp(t->symbol, "slow_add"))
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    for (int i = 0; i < VALUES; i++)
        y[i] = a[i] + b[i];
    return NNC_OK;
}

static void toy_unload(void *handle)
{
    toy_loaded--;
    nnc_free(handle);
}

const nnc_engine toy_engine = {
    .name = "toy", .version = "1", .load_kernel = toy_load, .run = toy_run, .unload = toy_unload};

nnc_exec_options exec_options(const nnc_device_api *api)
{
    static const nnc_engine *const engines[] = {&toy_engine};
    static const nnc_device_api *device[1];
    device[0] = api;
    return (nnc_exec_options){.device = device, .n_device = 1, .engine = engines, .n_engine = 1};
}

/* ---- plans ----------------------------------------------------------------------------------- */

typedef struct making {
    nnc_plan p;
    int32_t arg[64];
    int n_arg;
    float v[VALUES];
} making;

static int tensor(nnc_plan *p, int device, nnc_space space)
{
    int64_t n = VALUES, *used;
    nnc_plan_device *d = &p->device[device];
    used = space == SP_arena     ? &d->arena_bytes
           : space == SP_persist ? &d->persist_bytes
                                 : &d->init_bytes;
    p->tensor[p->n_tensor] = (nnc_ptensor){.name = "t",
        .type = nnc_type_make(DT_f32, 1, &n),
        .device = (int16_t)device,
        .space = (uint8_t)space,
        .offset = *used,
        .bytes = 4 * n,
        .alias_of = -1};
    *used += 4 * n;
    return p->n_tensor++;
}

static void command(
    making *m, nnc_cmd_kind kind, int device, int stream, int item, int n, const int *args)
{
    nnc_plan *p = &m->p;
    nnc_cmd *c = &p->cmd[p->n_cmd++];
    *c = (nnc_cmd){.kind = (uint8_t)kind,
        .device = (int16_t)device,
        .stream = (int16_t)stream,
        .item = item,
        .n_arg = n,
        .arg = m->arg + m->n_arg,
        .work = -1,
        .layers = "/toy",
        .op_class = "ewise"};
    for (int i = 0; i < n; i++)
        m->arg[m->n_arg++] = args[i];
    p->end[SEC_main] = p->end[SEC_accumulate] = p->end[SEC_step] = p->n_cmd;
}

static making *start(int devices, int streams)
{
    making *m = nnc_calloc(1, sizeof *m);
    nnc_plan *p = &m->p;
    static const char *names[] = {"cpu:0", "cpu:1"};
    p->engine = nnc_calloc(1, sizeof *p->engine);
    p->engine[p->n_engine++] = "toy";
    p->device = nnc_calloc(2, sizeof *p->device);
    p->n_device = devices;
    for (int d = 0; d < devices; d++)
        p->device[d] = (nnc_plan_device){
            .name = names[d], .target = "cpu#test", .threads = 2, .streams = streams};
    p->tensor = nnc_calloc(32, sizeof *p->tensor);
    p->cmd = nnc_calloc(32, sizeof *p->cmd);
    p->kernel = nnc_calloc(2, sizeof *p->kernel);
    p->kernel[p->n_kernel++] =
        (nnc_pkernel){.symbol = "add", .n_args = 3, .n_out = 1, .object = -1};
    p->kernel[p->n_kernel++] =
        (nnc_pkernel){.symbol = "slow_add", .n_args = 3, .n_out = 1, .object = -1};
    p->weight = nnc_calloc(2, sizeof *p->weight);
    for (int i = 0; i < VALUES; i++)
        m->v[i] = (float)(i % 7);
    p->weight[p->n_weight++] =
        (nnc_weight){.kind = NNC_W_inline, .name = "w", .data = m->v, .size = sizeof m->v};
    p->weight[p->n_weight++] =
        (nnc_weight){.kind = NNC_W_gen, .name = "v", .seed = 1, .scale = 0, .shift = 2};
    p->input = nnc_calloc(1, sizeof *p->input);
    p->output = nnc_calloc(1, sizeof *p->output);
    p->n_input = p->n_output = 1;
    p->input_name = nnc_calloc(1, sizeof *p->input_name);
    p->output_name = nnc_calloc(1, sizeof *p->output_name);
    p->input_name[0] = "x";
    p->output_name[0] = "y";
    return m;
}

/* p = w + v in init. */
static int weights(making *m)
{
    int w = tensor(&m->p, 0, SP_init), v = tensor(&m->p, 0, SP_init),
        p = tensor(&m->p, 0, SP_persist);
    command(m, CMD_weight, 0, 0, 0, 1, (int[]){w});
    command(m, CMD_weight, 0, 0, 1, 1, (int[]){v});
    command(m, CMD_kernel, 0, 0, 0, 3, (int[]){w, v, p});
    m->p.end[SEC_init] = m->p.n_cmd;
    return p;
}

nnc_plan *plan_line(void)
{
    making *m = start(1, 1);
    int p = weights(m);
    int x = tensor(&m->p, 0, SP_arena), y = tensor(&m->p, 0, SP_arena),
        z = tensor(&m->p, 0, SP_arena);
    command(m, CMD_kernel, 0, 0, 0, 3, (int[]){x, p, y});
    command(m, CMD_kernel, 0, 0, 1, 3, (int[]){y, p, z});
    m->p.input[0] = x;
    m->p.output[0] = z;
    return &m->p;
}

float line_result(int i, float x)
{
    return x + 2 * ((float)(i % 7) + 2);
}

nnc_plan *plan_diamond(void)
{
    making *m = start(2, 2);
    nnc_plan *p = &m->p;
    int w = weights(m);
    int x = tensor(p, 0, SP_arena), y = tensor(p, 0, SP_arena), z = tensor(p, 0, SP_arena);
    int y1 = tensor(p, 1, SP_arena), z1 = tensor(p, 1, SP_arena);
    p->n_event = 3;
    command(m, CMD_kernel, 0, 1, 1, 3, (int[]){x, w, y}); /* slow, so that a missing wait shows */
    command(m, CMD_record, 0, 1, 0, 0, NULL);
    command(m, CMD_wait, 0, 0, 0, 0, NULL);
    command(m, CMD_copy, 0, 0, 0, 2, (int[]){y, y1});
    command(m, CMD_record, 0, 0, 1, 0, NULL);
    command(m, CMD_wait, 1, 1, 1, 0, NULL);
    command(m, CMD_kernel, 1, 1, 1, 3, (int[]){y1, y1, z1});
    command(m, CMD_record, 1, 1, 2, 0, NULL);
    command(m, CMD_wait, 1, 0, 2, 0, NULL);
    command(m, CMD_copy, 1, 0, 0, 2, (int[]){z1, z});
    p->input[0] = x;
    p->output[0] = z;
    return p;
}

float diamond_result(int i, float x)
{
    return 2 * (x + (float)(i % 7) + 2);
}

nnc_plan *plan_meeting(void)
{
    making *m = start(2, 2);
    nnc_plan *p = &m->p;
    int w = weights(m);
    int x = tensor(p, 0, SP_arena), y = tensor(p, 0, SP_arena), s = tensor(p, 0, SP_arena),
        z = tensor(p, 0, SP_arena), k = tensor(p, 0, SP_arena);
    int y1 = tensor(p, 1, SP_arena), s1 = tensor(p, 1, SP_arena), k1 = tensor(p, 1, SP_arena);
    p->collective = nnc_calloc(1, sizeof *p->collective);
    p->collective[p->n_collective++] = (nnc_collective){COLL_allreduce, RED_add, 2, 1};
    p->n_event = 2;
    command(m, CMD_kernel, 0, 1, 1, 3, (int[]){x, w, y});
    command(m, CMD_copy, 0, 1, 0, 2, (int[]){y, y1});
    command(m, CMD_record, 0, 1, 0, 0, NULL);
    command(m, CMD_wait, 0, 0, 0, 0, NULL);
    command(m, CMD_collective, 0, 0, 0, 2, (int[]){y, s});
    p->cmd[p->n_cmd - 1].work = k;
    command(m, CMD_wait, 1, 1, 0, 0, NULL);
    command(m, CMD_collective, 1, 1, 0, 2, (int[]){y1, s1});
    p->cmd[p->n_cmd - 1].work = k1;
    command(m, CMD_kernel, 0, 0, 0, 3, (int[]){s, s, z});
    p->input[0] = x;
    p->output[0] = z;
    return p;
}

float meeting_result(int i, float x)
{
    return 4 * (x + (float)(i % 7) + 2);
}

nnc_plan *plan_reuse(void)
{
    making *m = start(2, 1);
    nnc_plan *p = &m->p;
    int w = weights(m);
    int x = tensor(p, 0, SP_arena), y = tensor(p, 0, SP_arena), y2 = tensor(p, 0, SP_arena);
    int a = tensor(p, 1, SP_arena), s = tensor(p, 1, SP_arena), z = tensor(p, 1, SP_arena),
        b = tensor(p, 1, SP_arena);
    p->tensor[b].offset = p->tensor[a].offset;
    p->n_event = 3;
    command(m, CMD_kernel, 0, 0, 0, 3, (int[]){x, w, y});
    command(m, CMD_copy, 0, 0, 0, 2, (int[]){y, a});
    command(m, CMD_record, 0, 0, 0, 0, NULL);
    command(m, CMD_wait, 1, 0, 0, 0, NULL);
    command(m, CMD_kernel, 1, 0, 1, 3, (int[]){a, a, s});
    command(m, CMD_record, 1, 0, 1, 0, NULL);
    command(m, CMD_kernel, 0, 0, 0, 3, (int[]){y, w, y2});
    command(m, CMD_wait, 0, 0, 1, 0, NULL);
    command(m, CMD_copy, 0, 0, 0, 2, (int[]){y2, b});
    command(m, CMD_record, 0, 0, 2, 0, NULL);
    command(m, CMD_wait, 1, 0, 2, 0, NULL);
    command(m, CMD_kernel, 1, 0, 0, 3, (int[]){s, b, z});
    p->input[0] = x;
    p->output[0] = z;
    return p;
}

float reuse_result(int i, float x)
{
    const float w = (float)(i % 7) + 2;
    return 2 * (x + w) + (x + w + w);
}

void plan_free(nnc_plan *p)
{
    nnc_free(p->collective);
    nnc_free(p->input_name);
    nnc_free(p->output_name);
    nnc_free(p->engine);
    nnc_free(p->device);
    nnc_free(p->tensor);
    nnc_free(p->cmd);
    nnc_free(p->kernel);
    nnc_free(p->weight);
    nnc_free(p->input);
    nnc_free(p->output);
    nnc_free(p); /* the first member of what start made */
}
