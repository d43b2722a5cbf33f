/* runtime/kept.c -- static values on disk. Values that init computes from weights (generated, packed, folded, transformed) depend only on
 * the plan, its machine code and the weights. So a process keeps them in the cache when its last run is over, and the next one reads
 * them. Damaged and missing entries are computed again. */
#include "runtime/exec.h"

static const char kind[] = "weights";
enum { LEAST = 4 << 20 }; /* bytes: computing fewer takes no time */
#define MOST ((uint64_t)4 << 30) /* bytes of all entries */

nnc_status nnc_exec_find_kept(nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    const int64_t from = nnc_now_ns();
    nnc_hash128 *key = ARENA_NEW(&e->arena, nnc_hash128, p->n_device);
    bool all = true;
    NNC_NEED(key, sink);
    for (int d = 0; d < p->n_device; d++) {
        int64_t bytes;
        (void)nnc_exec_statics(e, d, &bytes);
        if ((bytes > 0 || p->device[d].persist_bytes > 0) &&
            (bytes < LEAST || !e->dev[d].env.cache || !nnc_exec_static_key(e, d, &key[d])))
            return NNC_OK;
    }
    for (int d = 0; d < p->n_device && all; d++) {
        int64_t bytes;
        void *at = nnc_exec_statics(e, d, &bytes);
        all = bytes == 0 || nnc_cache_read(e->dev[d].env.cache, kind, key[d], at, (size_t)bytes,
                                p->device[d].threads);
    }
    e->keep = all ? NULL : key;
    for (int i = 0; all && i < p->end[SEC_init]; i++)
        e->idle[i] = e->idle[i] || p->cmd[i].n_arg > 0; /* others keep the order of streams */
    for (int k = 0; all && k < e->n_owned; k++)
        e->owned[k].init = false;
    nnc_exec_spent(e, NNC_PH_weights, from);
    return NNC_OK;
}

void nnc_exec_keep(const nnc_exec *e)
{
    for (int d = 0; d < e->p->n_device && e->keep; d++) {
        int64_t bytes;
        const void *at = nnc_exec_statics(e, d, &bytes);
        if (at)
            nnc_cache_put_large(e->dev[d].env.cache, kind, e->keep[d], at, (size_t)bytes, MOST);
    }
}
