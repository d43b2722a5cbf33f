/* session/several.c -- several models in one run: their names, their devices, and one graph of all. */
#include "session/session.h"
#include "partition/partition.h"
#include <ctype.h>
#include <string.h>

/* The file's name without folder and ending, as a name of values in graphs may be. NULL: out of memory. */
static char *stem(const char *file, nnc_arena *a)
{
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file,
               *dot = strrchr(base, '.');
    const int n = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    char *s = nnc_arena_printf(
        a, "%s%.*s", isalpha((unsigned char)*base) || *base == '_' ? "" : "model", n, base);
    for (char *p = s; p && *p; p++)
        if (!isalnum((unsigned char)*p))
            *p = '_';
    return s;
}

static bool taken(const char *const *name, int n, const char *s)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(name[i], s))
            return true;
    return false;
}

nnc_status nnc_models_name(
    const char *const *file, int n, const char **name, nnc_arena *a, nnc_sink *sink)
{
    for (int i = 0; i < n; i++) {
        const char *own = stem(file[i], a), *s = own;
        for (int k = 2; s && taken(name, i, s); k++)
            s = nnc_arena_printf(a, "%s_%d", own, k);
        NNC_NEED(s, sink);
        name[i] = s;
    }
    return NNC_OK;
}

bool nnc_names_devices(const nnc_graph *g)
{
    bool any = false;
    for (uint32_t i = 0; i < g->n_node; i++)
        any = any || g->node[i].device >= 0;
    return any;
}

/* Time of the model as written, by the roofline. */
static int64_t rough_ns(const nnc_env *e, const nnc_graph *g)
{
    int64_t ns = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_cost c = nnc_node_cost(g, &g->node[i]);
        if (c.launches)
            ns = nnc_add_sat(ns, nnc_target_time_ns(&e->target[0], c.flops, c.bytes));
    }
    return ns;
}

nnc_status nnc_models_place(
    nnc_env *e, nnc_model *const *m, int n, int devices, int *device, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    int64_t *ns = ARENA_NEW(&a, int64_t, n + 1), total;
    NNC_NEED(ns, sink);
    for (int i = 0; i < n; i++) {
        ns[i] = devices < n && devices > 1 ? rough_ns(e, m[i]) : 0;
        device[i] = devices > 1 ? i : -1;
    }
    if (devices > 1 && devices < n)
        NNC_TRY(nnc_models_lpt(ns, NULL, n, devices, NULL, device, &total, sink));
    for (int i = 0; i < n; i++)
        device[i] = nnc_names_devices(m[i]) ? -1 : device[i];
    return NNC_OK;
}

nnc_status nnc_models_join(nnc_model *const *m, const char *const *name, const int *device, int n,
    const char *place, nnc_model **out, nnc_sink *sink)
{
    NNC_TRY(nnc_graph_join((const nnc_graph *const *)m, name, device, n, out, sink));
    const nnc_status st = place ? nnc_model_place(*out, place, sink) : NNC_OK;
    if (st) {
        nnc_graph_destroy(*out);
        *out = NULL;
    }
    return st;
}
