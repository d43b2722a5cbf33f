/* report/rooms.c -- what devices have for tensors, and whether a plan fits. A device of described hardware has its memory without context
 * and libraries, another GPU its target's. Virtual CPU devices share the machine's, less what the process itself takes. */
#include "report/report.h"
#include "session/session.h"
#include "data/data.h"
#include <string.h>

int64_t nnc_device_room(const nnc_env *e, int d)
{
    const int64_t have = e->cluster && d < e->cluster->n_device
                             ? nnc_cluster_usable_bytes(e->cluster, d)
                             : nnc_target_on(e->target, e->n_target, d)->memory_bytes;
    return e->memory_limit > 0 ? nnc_min64(have, e->memory_limit) : have;
}

int64_t nnc_batches_bytes(const nnc_plan *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_input; i++)
        n = nnc_add_sat(n, p->tensor[p->input[i]].bytes);
    return NNC_DATA_BATCHES * n;
}

/* Memory that a large plan takes beside what every process does: for the graphs, the plan, its remarks and code. */
static int64_t large_plan(const nnc_plan *p)
{
    return nnc_min64(nnc_max64(p->n_cmd - 512, 0) * (112 << 10), 256 << 20);
}

int nnc_find_rooms(const nnc_env *e, const nnc_artifact *a, nnc_room *to)
{
    int n = 0;
    for (int d = 0; d < a->plan->n_device; d++) {
        const nnc_plan_device *v = &a->plan->device[d];
        const nnc_target *t = nnc_target_on(e->target, e->n_target, d);
        const bool own = e->cluster || (a->plan->n_device > 1 && nnc_plan_on_gpu(v));
        int i = own ? n : 0;
        while (i < n && strcmp(to[i].name, t->name) != 0)
            i++;
        if (i == n)
            to[n++] = (nnc_room){.name = own ? v->name : t->name,
                .need = nnc_chunks_bytes(a),
                .have = nnc_device_room(e, d),
                .host = t->host && !e->cluster};
        if (to[i].host) {
            const int64_t all = nnc_max64(t->memory_bytes - large_plan(a->plan), 0);
            to[i].have = nnc_min64(to[i].have, all);
            to[i].context = NNC_T_PROCESS_BYTES + large_plan(a->plan);
        }
        if (e->cluster && d < e->cluster->n_device) {
            const nnc_cluster_kind *k = nnc_cluster_kind_of(e->cluster, d);
            to[i].context = k->context_bytes + k->library_bytes;
            to[i].described = true;
        }
        to[i].need =
            nnc_add_sat(to[i].need, nnc_device_needs(a->plan, d) + nnc_nccl_bytes(e, a->plan, d));
    }
    return n;
}

bool nnc_rooms_suffice(const nnc_room *r, int n)
{
    bool fits = true;
    for (int i = 0; i < n; i++)
        fits = fits && r[i].need <= r[i].have;
    return fits;
}

bool nnc_fits_devices(const nnc_env *e, const nnc_artifact *a)
{
    nnc_room at[NNC_MAX_DEVICES];
    return nnc_rooms_suffice(at, nnc_find_rooms(e, a, at));
}

void nnc_put_room(nnc_text *t, const nnc_env *e, const nnc_room *r, bool named)
{
    const bool fits = r->need <= r->have;
    nnc_puts(t, fits ? "Fits: " : "Does not fit: ");
    nnc_puts(t, named || r->described ? r->name : "it");
    nnc_puts(t, " needs ");
    nnc_put_bytes(t, r->need);
    nnc_printf(t, " at most; %s has ", named || r->described ? "it" : "this machine");
    nnc_put_bytes(t, r->have);
    const bool limited = e->memory_limit > 0 && r->have == e->memory_limit;
    const char *by = limited ? "--memory-limit" : r->host ? nnc_memory_limit().by : NULL;
    if (by)
        nnc_printf(t, " by %s", by);
    if (r->context && !(limited && r->host)) {
        nnc_puts(t, " beside ");
        nnc_put_bytes(t, r->context);
        nnc_printf(t, " of %s and libraries", r->host ? "program" : "context");
    }
    if (r->described || e->memory_limit > 0) {
        nnc_puts(t, fits ? ": " : ": lacks ");
        nnc_put_bytes(t, fits ? r->have - r->need : r->need - r->have);
        nnc_puts(t, fits ? " are left" : "");
    }
    nnc_puts(t, ".\n");
    const int64_t now = r->host && fits ? nnc_memory_free().bytes : INT64_MAX;
    if (r->need <= now)
        return;
    nnc_puts(t, "At the moment ");
    nnc_put_bytes(t, now);
    nnc_puts(t, " of it are free.\n");
}

/* `now`: of this machine's memory others have some. */
static nnc_status refuse(
    const nnc_env *e, const nnc_room *r, int64_t need, const nnc_memory *now, nnc_sink *sink)
{
    const int64_t have = now ? now->bytes : r->have;
    const char *by = now                                              ? now->by
                     : e->memory_limit > 0 && have == e->memory_limit ? "--memory-limit"
                                                                      : NULL;
    NNC_LOCAL(nnc_text) needs = {0}, has = {0}, lacks = {0};
    nnc_put_bytes(&needs, need);
    nnc_put_bytes(&has, have);
    nnc_put_bytes(&lacks, need - have);
    return nnc_fail0(sink, NNC_E_FIT,
        "does not fit: %s needs %s (%lld bytes), and has %s%s%s%s: %s (%lld bytes) are lacking; "
        "nnc memory says what fills it",
        r->name, nnc_text_str(&needs), (long long)need, nnc_text_str(&has),
        now ? " free at the moment" : "", by ? " by " : "", by ? by : "", nnc_text_str(&lacks),
        (long long)(need - have));
}

nnc_status nnc_check_room(const nnc_env *e, const nnc_artifact *a, int64_t beside, nnc_sink *sink)
{
    nnc_room at[NNC_MAX_DEVICES];
    const int n = nnc_find_rooms(e, a, at);
    for (int i = 0; i < n; i++) {
        const bool host = at[i].host && e->ranks.world < 2; /* ranks may be on several machines */
        const int64_t need = host ? nnc_add_sat(at[i].need, beside) : at[i].need;
        /* what this process has taken so far is known below */
        at[i].have = host ? e->memory_limit : at[i].have;
        if (e->memory_limit > 0 && need > at[i].have)
            return refuse(e, &at[i], need, NULL, sink);
        const nnc_memory now = host ? nnc_memory_free() : (nnc_memory){INT64_MAX, NULL};
        if (need > now.bytes)
            return refuse(e, &at[i], need, &now, sink);
    }
    return NNC_OK;
}
