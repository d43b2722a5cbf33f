/* train/freeze.c -- which weights are trained: those that the model does not freeze, nor a pattern. */
#include "train/internal.h"

#include <fnmatch.h>
#include <string.h>

/* Does the pattern match the weight's name ("features.0.weight"), or its layer: the path, with or without "/layers/", or the part of the
 * name before the last dot? */
static bool matches(const char *pattern, const nnc_node *n)
{
    const char *name = n->weight && n->weight->name ? n->weight->name : "", *path = n->origin;
    const char *dot = strrchr(name, '.');
    char layer[256];
    snprintf(layer, sizeof layer, "%.*s", dot ? (int)(dot - name) : 0, name);
    if (!fnmatch(pattern, name, 0) || (*layer && !fnmatch(pattern, layer, 0)))
        return true;
    if (path && !fnmatch(pattern, path, 0))
        return true;
    return path && !strncmp(path, "/layers/", 8) && !fnmatch(pattern, path + 8, 0);
}

static bool any(const char *const *pattern, int n, const nnc_node *param)
{
    for (int i = 0; i < n; i++)
        if (matches(pattern[i], param))
            return true;
    return false;
}

static nnc_status check(
    const nnc_graph *g, const char *flag, const char *const *pattern, int n, nnc_sink *sink)
{
    for (int i = 0; i < n; i++) {
        bool found = false;
        const char *like = NULL;
        for (uint32_t k = 0; k < g->n_node; k++)
            if (g->node[k].op == OP_param) {
                found = found || matches(pattern[i], &g->node[k]);
                like = like || !g->node[k].weight ? like : g->node[k].weight->name;
            }
        if (!found)
            return nnc_fail0(sink, NNC_E_USAGE,
                "%s=%s matches no weight; patterns are of weights' names (%s) and of layers' paths",
                flag, pattern[i], like ? like : "the model has no weights");
    }
    return NNC_OK;
}

nnc_status check_patterns(const nnc_graph *m, const nnc_training *t, nnc_sink *sink)
{
    NNC_TRY(check(m, "--freeze", t->freeze, t->n_freeze, sink));
    return check(m, "--train-only", t->only, t->n_only, sink);
}

bool is_frozen(const nnc_node *n, const nnc_training *t)
{
    return n->frozen || any(t->freeze, t->n_freeze, n) ||
           (t->n_only && !any(t->only, t->n_only, n));
}
