/* runtime/activity.c -- times of commands by the driver's records of what its devices execute (CUPTI). A run is as it always is, captured
 * and replayed in one call, where time stamps between commands would submit them one by one. */
#include "runtime/exec.h"
#include <time.h>

void nnc_exec_activity_end(nnc_exec *e)
{
    if (e->activity)
        e->activity->close();
    e->activity = NULL;
}

static nnc_status run(nnc_exec *e, nnc_section last, nnc_sink *sink)
{
    nnc_status st = last == SEC_main         ? nnc_exec_run(e, sink)
                    : last == SEC_accumulate ? nnc_exec_accumulate(e, sink)
                                             : nnc_exec_step(e, sink);
    const nnc_status synced = nnc_exec_sync(e, st ? NULL : sink);
    return st ? st : synced;
}

/* Does each command that does something have a time? */
static bool is_whole(const nnc_plan *p, int32_t first, int n, const int64_t *start_ns)
{
    for (int i = 0; i < n; i++) {
        const int kind = p->cmd[first + i].kind;
        if (start_ns[i] < 0 && kind != CMD_record && kind != CMD_wait)
            return false;
    }
    return true;
}

nnc_status nnc_exec_activity_run(nnc_exec *e, nnc_section last, int64_t *start_ns, int64_t *end_ns,
    int64_t *host_ns, bool *whole, nnc_sink *sink)
{
    enum { READS = 8, PAUSE_NS = 20000 }; /* records come within microseconds of the work's end */
    const nnc_plan *p = e->p;
    const int32_t first = nnc_plan_first(p, SEC_main), n = p->end[last] - first;
    e->activity->begin();
    const int64_t from = nnc_now_ns();
    const nnc_status st = run(e, last, sink);
    *host_ns = nnc_now_ns() - from;
    *whole = false;
    for (int i = 0; !st && !*whole && i < READS; i++) {
        if (i)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS << i}, NULL);
        e->activity->read(false, start_ns, end_ns, first, n);
        *whole = is_whole(p, first, n, start_ns);
    }
    e->activity->read(true, start_ns, end_ns, first, n);
    *whole = is_whole(p, first, n, start_ns);
    return st;
}

/* Why not, by the devices and the way in which commands are submitted; NULL: they can be recorded. */
static const char *refusal(const nnc_exec *e)
{
    if (e->ranks)
        return "the devices belong to several ranks";
    if (e->progress)
        return "kernels of NCCL belong to commands of several GPUs at once";
    for (int d = 0; d < e->p->n_device; d++)
        if (!e->dev[d].api->activity)
            return "CUPTI does not see the other devices";
    return NULL;
}

/* Is the part replayed, or captured in its next run? Not where its capture failed. */
static bool is_replayed(const nnc_exec *e, int section)
{
    const part_of_run *part = &e->own.part[section];
    return part->capture || !part->no_replay;
}

nnc_status nnc_exec_activity_begin(nnc_exec *e, nnc_section last, nnc_sink *why)
{
    const char *no = refusal(e);
    if (no)
        return nnc_fail0(why, NNC_E_DEVICE, "%s", no);
    NNC_TRY(run(e, last, why)); /* parts are captured in the run after their first */
    const bool all = is_replayed(e, SEC_main) && is_replayed(e, last);
    NNC_TRY(e->dev[0].api->activity->open(!all, why));
    e->activity = e->dev[0].api->activity;
    for (int s = SEC_main; s < SEC__COUNT; s++)
        e->own.part[s].no_replay = !is_replayed(e, s);
    nnc_exec_drop_captures(e, &e->own);
    return NNC_OK;
}
