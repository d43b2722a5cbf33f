/* session/ranks.c -- an environment as one of several ranks: threads, connection, leading and following. */
#include "session/session.h"
#include "session/train.h"
#include <sched.h>

enum { TIMEOUT_S = 600 };

/* Cores of the launcher, which may have bound this process to some of them: then they are this rank's own. 0: it did not. */
static int launcher_cores(void)
{
    cpu_set_t own, parent;
    const bool known = sched_getaffinity(0, sizeof own, &own) == 0 &&
                       sched_getaffinity(getppid(), sizeof parent, &parent) == 0;
    return known && CPU_COUNT(&own) < CPU_COUNT(&parent) ? CPU_COUNT(&parent) : 0;
}

static bool is_bound(void)
{
    return launcher_cores() > 0;
}

nnc_status nnc_env_find_ranks(nnc_env *e, const nnc_env_options *o, nnc_sink *sink)
{
    e->ranks = (nnc_ranks){.world = 1, .local_size = 1};
    if (!o->ranked)
        return NNC_OK;
    const int rank = !o->rank ? -1 : o->rank < 0 ? 0 : o->rank;
    return nnc_ranks_find(rank, o->world ? o->world : -1, &e->ranks, sink);
}

nnc_status nnc_env_options_world(const nnc_env_options *o, int *world, nnc_sink *sink)
{
    nnc_env e = {0};
    *world = 1;
    NNC_TRY(nnc_env_find_ranks(&e, o, sink));
    *world = e.ranks.world;
    return NNC_OK;
}

int nnc_env_rank_threads(const nnc_env *e, int asked)
{
    if (e->ranks.world <= 1)
        return asked;
    const int share = is_bound() ? 1 : e->ranks.local_size > 0 ? e->ranks.local_size : 1;
    /* A plan's devices, of all ranks, divide a target's threads. By default these are all cores of the hosts: on one host as many as in one
     * process, whose plan it then is. */
    const int64_t all = asked > 0 ? (int64_t)asked * e->ranks.world
                                  : (int64_t)nnc_cpu_count() * e->ranks.world / share;
    return (int)nnc_min64(nnc_max64(all, 1), 1024);
}

int nnc_env_cores(const nnc_env *e)
{
    const bool apart = e->ranks.world > 1 && is_bound() && e->ranks.local_size > 1;
    return nnc_cpu_count() * (apart ? e->ranks.local_size : 1);
}

int nnc_env_machine_cores(const nnc_env *e)
{
    return e->ranks.world > 1 ? launcher_cores() : 0;
}

nnc_status nnc_env_join(nnc_env *e, const nnc_env_options *o, nnc_sink *sink)
{
    if (e->ranks.world <= 1)
        return NNC_OK;
    NNC_TRY(nnc_comm_open(
        &e->ranks, o->comm_timeout > 0 ? o->comm_timeout : TIMEOUT_S, &e->comm, sink));
    return nnc_job_create(e->comm, &e->job, sink);
}

void nnc_env_leave(nnc_env *e)
{
    nnc_job_destroy(e->job);
    nnc_comm_close(e->comm);
}

int nnc_env_rank(const nnc_env *e)
{
    return e->ranks.rank;
}

int nnc_env_world(const nnc_env *e)
{
    return e->ranks.world;
}

static bool is_set(const volatile void *stop)
{
    return *(const volatile sig_atomic_t *)stop != 0;
}

void nnc_env_watch(nnc_env *e, const volatile sig_atomic_t *stop)
{
    if (e->job && stop)
        nnc_job_watch(e->job, is_set, stop);
}

bool nnc_env_stops(const nnc_env *e)
{
    return e->job && nnc_job_stops(e->job);
}

nnc_status nnc_env_follow(nnc_env *e, nnc_sink *sink)
{
    return nnc_job_follow(e->job, sink);
}

void nnc_env_tell(nnc_env *e, nnc_sink *sink)
{
    if (e->comm)
        (void)nnc_comm_failure(e->comm, sink);
    if (e->job)
        (void)nnc_job_failure(e->job, sink);
}

void nnc_env_abort(nnc_env *e, nnc_status why)
{
    if (e->comm)
        nnc_comm_abort(e->comm, nnc_exit_code(why));
}
