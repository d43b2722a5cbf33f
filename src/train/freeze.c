/* train/freeze.c -- which weights are trained: those that the model does not freeze, nor a pattern. */
#include "train/internal.h"

#include <fnmatch.h>
#include <string.h>

/* Does the pattern match a name, or what it begins with before one of the separators: "layer1" and "layer1.0" of "layer1.0.weight"? */
static bool matches_part(const char *pattern, const char *name, char separator)
{
    char part[4096]; /* longer than the names and paths of model files */
    if (!fnmatch(pattern, name, 0))
        return true;
    snprintf(part, sizeof part, "%s", name);
    for (char *end = strrchr(part, separator); end && end > part; end = strrchr(part, separator)) {
        *end = 0;
        if (!fnmatch(pattern, part, 0))
            return true;
    }
    return false;
}

/* Does the pattern match the weight's name ("features.0.weight"), or its layer or a group around it? It is the beginning of the name, or
 * of the path, with or without "/layers/". */
static bool matches(const char *pattern, const nnc_node *n)
{
    const char *name = n->weight && n->weight->name ? n->weight->name : "",
               *path = n->origin ? n->origin : "";
    if (matches_part(pattern, name, '.') || matches_part(pattern, path, '/'))
        return true;
    return !strncmp(path, "/layers/", 8) && matches_part(pattern, path + 8, '/');
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
                "%s=%s matches no weight; patterns are of weights' names (%s), layers' names and "
                "paths",
                flag, pattern[i], like ? like : "the model has no weights");
    }
    return NNC_OK;
}

nnc_status check_patterns(const nnc_graph *m, const nnc_training *t, nnc_sink *sink)
{
    NNC_TRY(check(m, "--freeze", t->freeze, t->n_freeze, sink));
    return check(m, "--train-only", t->only, t->n_only, sink);
}

bool nnc_train_freezes(const nnc_training *t, const nnc_node *n)
{
    return n->frozen || any(t->freeze, t->n_freeze, n) ||
           (t->n_only && !any(t->only, t->n_only, n));
}
