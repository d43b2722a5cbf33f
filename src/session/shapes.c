/* session/shapes.c -- an artifact's model for other args and shapes. An artifact that was compiled from a model is a root. Artifacts made
 * from it read the model from the root's copy (base/given.h), and their weights from where the root has them. So they keep the root
 * alive. The root keeps recent ones, each until it is asked for no more and has no handle. */
#include "session/session.h"
#include "base/lock.h"
#include <string.h>

static nnc_artifact *root_of(nnc_artifact *a)
{
    return a->root ? a->root : a;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Do they have the same numbers? The file may have been moved since. */
static bool same_source(const nnc_weight *a, const nnc_weight *b)
{
    if (a->kind != b->kind || !a->name || !b->name || strcmp(a->name, b->name) != 0)
        return false;
    if (a->n_part || b->n_part) /* a part does not hold the rest */
        return false;
    if (a->kind == NNC_W_gen)
        return a->seed == b->seed && a->scale == b->scale && a->shift == b->shift;
    return a->kind == NNC_W_file && a->offset == b->offset && a->size == b->size &&
           a->header_hash == b->header_hash;
}

/* Lets the weights of g be read from where the artifact has them: embedded, in the caller's memory, or from another file. Both are mostly
 * in the same order. */
static void use_weights(const nnc_artifact *a, nnc_graph *g)
{
    const nnc_plan *p = a->plan;
    const nnc_weight *listed = a->listed ? a->listed : p->weight;
    int at = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_weight *w = g->node[i].op == OP_param ? g->node[i].weight : NULL;
        for (int k = 0; w && k < p->n_weight; k++, at++) {
            at = at < p->n_weight ? at : 0;
            if (!same_source(&listed[at], w))
                continue;
            const char *name = w->name;
            *w = p->weight[at++];
            w->name = name;
            break;
        }
    }
}

/* Merges what was set when the model was read first with what o sets now. */
static nnc_status merge(const nnc_given *v, const nnc_open_options *o, nnc_open_options *out,
    nnc_arena *a, nnc_sink *sink)
{
    nnc_arg *arg = ARENA_NEW(a, nnc_arg, v->n_arg + o->n_arg + 1);
    NNC_NEED(arg, sink);
    *out = (nnc_open_options){.arg = arg, .shape = o->shape, .n_shape = o->n_shape};
    for (int i = 0; i < v->n_arg; i++) {
        bool again = false;
        for (int k = 0; k < o->n_arg; k++)
            again = again || !strcmp(v->arg[i].name, o->arg[k].name);
        if (!again)
            arg[out->n_arg++] = v->arg[i];
    }
    for (int k = 0; k < o->n_arg; k++)
        arg[out->n_arg++] = o->arg[k];
    return NNC_OK;
}

static nnc_status check_options(const nnc_artifact *a, const nnc_open_options *o, nnc_sink *sink)
{
    if (!a->source->given && (o->n_arg || o->n_shape))
        return nnc_fail0(sink, NNC_E_USAGE,
            "%s was compiled from a graph in text form, from several models, or for a --strategy: "
            "its shapes are fixed. Compile the model with other ones",
            a->source->name);
    if (o->weights || o->n_own || o->n_rename || o->seed)
        return nnc_fail0(sink, NNC_E_USAGE,
            "a model that is compiled has its weights: of the options for opening, only set and "
            "shapes apply");
    return NNC_OK;
}

nnc_model *nnc_artifact_model(const nnc_artifact *a, const nnc_open_options *o, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) arena = {0};
    nnc_open_options all;
    nnc_model_options f;
    a = a->root ? a->root : a;
    o = o ? o : &nnc_open_defaults;
    const nnc_given *v = a->source->given;
    nnc_graph *g = NULL;
    if (check_options(a, o, sink))
        return NULL;
    if (!v) {
        g = nnc_graph_clone(a->source, sink);
    } else if (!merge(v, o, &all, &arena, sink) && !nnc_read_open_options(&all, &f, &arena, sink)) {
        f.onnx.coverage = o->coverage;
        g = nnc_model_again(a->source, &f, sink);
    }
    if (g)
        use_weights(a, g);
    return g;
}

/* ---- artifacts ------------------------------------------------------------------------------- */

static nnc_status check_env(nnc_env *e, const nnc_artifact *a, nnc_sink *sink)
{
    nnc_env_settle(e);
    NNC_TRY(nnc_check_machine(e, a, sink));
    if (!nnc_env_has(e, NNC_T_cpu) || a->with_llvm == nnc_env_compiles(e))
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_DEVICE,
        "the artifact was compiled %s LLVM, and its other shapes need %s",
        a->with_llvm ? "with" : "without", a->with_llvm ? "it, too (nnc doctor)" : "--no-llvm");
}

static nnc_status make(nnc_env *e, nnc_artifact *root, const nnc_open_options *o, const char *key,
    nnc_artifact **out, nnc_sink *sink)
{
    NNC_OWNED(nnc_graph) *m = nnc_artifact_model(root, o, sink);
    if (!m)
        return nnc_sink_cause(sink, NNC_E_MODEL);
    NNC_TRY(nnc_compile(e, m, root->options, out, sink));
    nnc_artifact *b = *out;
    b->handles = 0;
    b->key = nnc_arena_strdup(&b->arena, key);
    if (b->key)
        return NNC_OK;
    nnc_artifact_destroy(b);
    return nnc_nomem(sink);
}

static void destroy(nnc_artifact *a)
{
    nnc_plan_destroy(a->plan);
    nnc_graph_destroy(a->graph);
    nnc_graph_destroy(a->source);
    nnc_remarks_deinit(&a->remarks);
    nnc_compile_options_destroy(a->options);
    nnc_shared_drop(a->shared);
    nnc_map_close(&a->map);
    nnc_arena_deinit(&a->arena);
    pthread_mutex_destroy(&a->lock);
    nnc_free(a);
}

void nnc_artifact_destroy(nnc_artifact *a)
{
    if (!a)
        return;
    nnc_artifact *root = root_of(a);
    nnc_lock(&root->lock);
    bool last = --root->handles <= 0;
    bool alone = a != root && --a->handles <= 0 && !a->kept;
    nnc_unlock(&root->lock);
    if (alone)
        destroy(a);
    for (int i = 0; last && i < NNC_RECENT; i++)
        if (root->recent[i])
            destroy(root->recent[i]);
    if (last)
        destroy(root);
}

/* The artifact of this key as the first of the recent ones, with one handle more; NULL: it is not among them. */
static nnc_artifact *take_recent(nnc_artifact *root, const char *key)
{
    nnc_artifact *b = NULL;
    int i = 0;
    while (i < NNC_RECENT && root->recent[i] && strcmp(root->recent[i]->key, key) != 0)
        i++;
    if (i < NNC_RECENT && (b = root->recent[i])) {
        memmove(root->recent + 1, root->recent, (size_t)i * sizeof *root->recent);
        root->recent[0] = b;
        b->handles++;
        root->handles++;
    }
    return b;
}

/* Makes b the first of the recent ones. Returns the one that has no place any more, for the caller to destroy; NULL: none, or it is
 * in use. */
static nnc_artifact *keep(nnc_artifact *root, nnc_artifact *b)
{
    nnc_artifact *out = root->recent[NNC_RECENT - 1];
    memmove(root->recent + 1, root->recent, (NNC_RECENT - 1) * sizeof *root->recent);
    root->recent[0] = b;
    b->root = root;
    b->kept = true;
    b->handles = 1;
    root->handles++;
    if (out)
        out->kept = false;
    return out && out->handles == 0 ? out : NULL;
}

static void put_key(nnc_text *key, const nnc_open_options *o)
{
    for (int i = 0; i < o->n_arg; i++)
        nnc_printf(key, "%s=%s\n", o->arg[i].name, o->arg[i].value);
    for (int i = 0; i < o->n_shape; i++)
        nnc_printf(key, ":%s\n", o->shape[i]);
}

nnc_status nnc_artifact_for(
    nnc_env *e, nnc_artifact *a, const nnc_open_options *o, nnc_artifact **out, nnc_sink *sink)
{
    *out = NULL;
    nnc_artifact *root = root_of(a), *old;
    NNC_LOCAL(nnc_text) key = {0};
    o = o ? o : &nnc_open_defaults;
    put_key(&key, o);
    NNC_NEED(!key.oom, sink);
    NNC_TRY(check_env(e, root, sink));
    nnc_lock(&root->lock);
    *out = take_recent(root, nnc_text_str(&key));
    nnc_unlock(&root->lock);
    if (*out)
        return NNC_OK;
    nnc_status st = make(e, root, o, nnc_text_str(&key), out, sink);
    if (st || !*out)
        return st;
    nnc_lock(&root->lock);
    old = keep(root, *out);
    nnc_unlock(&root->lock);
    if (old)
        destroy(old);
    return NNC_OK;
}

void nnc_artifact_share(nnc_artifact *a, nnc_artifact *with)
{
    nnc_shared *s = nnc_shared_join(root_of(with)->shared);
    nnc_shared_drop(root_of(a)->shared);
    root_of(a)->shared = s;
}
