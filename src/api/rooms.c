/* api/rooms.c -- what devices have for tensors, and whether a plan fits: each device of described hardware its memory without context and
 * libraries; otherwise devices of one target share its memory, as virtual CPU devices share the machine's. */
#include "api/internal.h"
#include "api/memory.h"
#include <string.h>

int64_t nnc_device_room(const nnc_env *e, int d)
{
    const int64_t have = e->cluster && d < e->cluster->n_device
                             ? nnc_cluster_usable_bytes(e->cluster, d)
                             : nnc_target_on(e->target, e->n_target, d)->memory_bytes;
    return e->memory_limit > 0 ? nnc_min64(have, e->memory_limit) : have;
}

int nnc_find_rooms(const nnc_env *e, const nnc_artifact *a, nnc_room *to)
{
    int n = 0;
    for (int d = 0; d < a->plan->n_device; d++) {
        const nnc_plan_device *v = &a->plan->device[d];
        const nnc_target *t = nnc_target_on(e->target, e->n_target, d);
        int i = e->cluster ? n : 0;
        while (i < n && strcmp(to[i].name, t->name) != 0)
            i++;
        if (i == n)
            to[n++] = (nnc_room){e->cluster ? v->name : t->name, nnc_chunks_bytes(a),
                nnc_device_room(e, d), 0, false};
        if (e->cluster && d < e->cluster->n_device) {
            const nnc_cluster_kind *k = nnc_cluster_kind_of(e->cluster, d);
            to[i].context = k->context_bytes + k->library_bytes;
            to[i].described = true;
        }
        to[i].need = nnc_add_sat(to[i].need, nnc_device_needs(a->plan, d));
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
    if (e->memory_limit > 0 && r->have == e->memory_limit)
        nnc_puts(t, " by --memory-limit");
    if (r->context) {
        nnc_puts(t, " beside ");
        nnc_put_bytes(t, r->context);
        nnc_puts(t, " of context and libraries");
    }
    if (r->described || e->memory_limit > 0) {
        nnc_puts(t, fits ? ": " : ": lacks ");
        nnc_put_bytes(t, fits ? r->have - r->need : r->need - r->have);
        nnc_puts(t, fits ? " are left" : "");
    }
    nnc_puts(t, ".\n");
}

nnc_status nnc_check_room(const nnc_env *e, const nnc_artifact *a, nnc_sink *sink)
{
    nnc_room at[NNC_MAX_DEVICES];
    const int n = nnc_find_rooms(e, a, at);
    for (int i = 0; i < n; i++) {
        NNC_LOCAL(nnc_text) need = {0}, have = {0}, lacks = {0};
        if (at[i].need <= at[i].have)
            continue;
        nnc_put_bytes(&need, at[i].need);
        nnc_put_bytes(&have, at[i].have);
        nnc_put_bytes(&lacks, at[i].need - at[i].have);
        return nnc_fail0(sink, NNC_E_FIT,
            "does not fit: %s needs %s (%lld bytes), and has %s%s: %s (%lld bytes) are lacking; "
            "nnc memory says what fills it",
            at[i].name, nnc_text_str(&need), (long long)at[i].need, nnc_text_str(&have),
            e->memory_limit > 0 && at[i].have == e->memory_limit ? " by --memory-limit" : "",
            nnc_text_str(&lacks), (long long)(at[i].need - at[i].have));
    }
    return NNC_OK;
}
