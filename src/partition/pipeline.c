/* partition/pipeline.c -- the orders of pipeline schedules, in closed form.
 *
 * 1F1B on device d of p: min(m, p-d-1) forward passes to warm up, then one forward and one backward pass in turn. The backward passes that
 * are left come last. Interleaved 1F1B is the same over v chunks a device, in groups of p micro-batches: 2(p-d-1) + (v-1)p forward passes
 * first. ZB-H1 on device d:
 *
 *     F x min(m, p-d),  then for each micro-batch i:  B i,  W i-d (from i = d on),  F next;  then the d weight gradients that are left
 *
 * so that each device waits p-1 units of B at most and holds p micro-batches at most (p-d by B, d by W). ZB-H2 does the same with
 * 2(p-d)-1 forward passes first and weight gradients 2d behind. */
#include "partition/partition.h"

bool nnc_pipeline_possible(
    nnc_pipeline_kind k, int devices, int micro, int chunks, const char **why)
{
    *why = devices < 1 || micro < 1 || chunks < 1
               ? "needs at least one device, micro-batch and chunk"
           : k != PIPE_interleaved && chunks > 1 ? "has one chunk on each device"
           : k == PIPE_interleaved && chunks < 2 ? "needs two or more chunks on each device"
           : k == PIPE_interleaved && micro % devices
               ? "needs a number of micro-batches that is a multiple of the devices"
               : NULL;
    return !*why;
}

static void add_task(nnc_pipeline *p, int d, int *n, nnc_task_kind kind, int stage, int micro)
{
    p->task[d][(*n)++] = (nnc_task){(uint8_t)kind, stage, micro};
}

static void make_gpipe(nnc_pipeline *p, int d)
{
    int n = 0;
    for (int i = 0; i < p->micro; i++)
        add_task(p, d, &n, TASK_forward, d, i);
    for (int i = 0; i < p->micro && p->kind == PIPE_gpipe;
         i++) /* in the order of the sums of gradients */
        add_task(p, d, &n, TASK_backward, d, i);
}

/* Adds task i of device d's forward passes over its chunks, or of its backward passes, which begin with the last chunk. */
static void add_chunk(nnc_pipeline *p, int d, int *n, nnc_task_kind kind, int i)
{
    const int group = p->devices * p->chunks;
    const int chunk = i % group / p->devices;
    const int of = kind == TASK_forward ? chunk : p->chunks - 1 - chunk;
    add_task(p, d, n, kind, of * p->devices + d, i / group * p->devices + i % p->devices);
}

static void make_1f1b(nnc_pipeline *p, int d)
{
    const int all = p->micro * p->chunks, after = p->devices - d - 1;
    const int first = p->chunks == 1 ? after : 2 * after + (p->chunks - 1) * p->devices;
    int n = 0, f = 0, b = 0;
    while (f < all && f < first)
        add_chunk(p, d, &n, TASK_forward, f++);
    while (b < all) {
        if (f < all)
            add_chunk(p, d, &n, TASK_forward, f++);
        add_chunk(p, d, &n, TASK_backward, b++);
    }
}

/* first: forward passes before the first backward pass; behind: weight gradients that wait. */
static void make_split(nnc_pipeline *p, int d, int first, int behind)
{
    int n = 0, f = 0, w = 0;
    while (f < p->micro && f < first)
        add_task(p, d, &n, TASK_forward, d, f++);
    for (int b = 0; b < p->micro; b++) {
        add_task(p, d, &n, TASK_backward, d, b);
        if (b >= behind)
            add_task(p, d, &n, TASK_weight, d, w++);
        if (f < p->micro)
            add_task(p, d, &n, TASK_forward, d, f++);
    }
    while (w < p->micro)
        add_task(p, d, &n, TASK_weight, d, w++);
}

nnc_status nnc_pipeline_make(nnc_pipeline_kind k, int devices, int micro, int chunks, nnc_arena *a,
    nnc_pipeline *out, nnc_sink *sink)
{
    const char *why;
    if (!nnc_pipeline_possible(k, devices, micro, chunks, &why))
        return nnc_fail0(sink, NNC_E_USAGE, "%s %s: %d device%s, %d micro-batch%s, %d chunk%s",
            nnc_schedule_name(k), why, devices, devices == 1 ? "" : "s", micro,
            micro == 1 ? "" : "es", chunks, chunks == 1 ? "" : "s");
    const bool split = k == PIPE_zb_h1 || k == PIPE_zb_h2;
    *out = (nnc_pipeline){.kind = k,
        .devices = devices,
        .micro = micro,
        .chunks = chunks,
        .split = split,
        .n_task = micro * chunks *
                  (k == PIPE_forward ? 1
                      : split        ? 3
                                     : 2),
        .task = ARENA_NEW(a, nnc_task *, devices)};
    NNC_NEED(out->task, sink);
    for (int d = 0; d < devices; d++) {
        out->task[d] = ARENA_NEW(a, nnc_task, out->n_task);
        NNC_NEED(out->task[d], sink);
        switch (k) {
        case PIPE_forward:
        case PIPE_gpipe: make_gpipe(out, d); break;
        case PIPE_1f1b:
        case PIPE_interleaved: make_1f1b(out, d); break;
        case PIPE_zb_h1: make_split(out, d, devices - d, d); break;
        case PIPE_zb_h2: make_split(out, d, 2 * (devices - d) - 1, 2 * d); break;
        case PIPE__COUNT: break;
        }
    }
    return NNC_OK;
}

int nnc_pipeline_in_flight(const nnc_pipeline *p, int d)
{
    const nnc_task_kind frees = p->split ? TASK_weight : TASK_backward;
    int now = 0, most = 0;
    for (int i = 0; i < p->n_task; i++) {
        const nnc_task_kind k = p->task[d][i].kind;
        now += (k == TASK_forward) - (k == frees);
        most = now > most ? now : most;
    }
    return p->kind == PIPE_forward ? 1 : most;
}
