/* ir/join.c -- several models as one graph: disjoint components, whose paths and names begin with the models' names. */
#include "ir/ir.h"
#include <string.h>

/* A path after its first part: "/layers/0" of "/resnet101/layers/0"; NULL: nothing follows. */
static const char *second_part(const char *path, size_t n)
{
    return n > 1 && *path == '/' ? memchr(path + 1, '/', n - 1) : NULL;
}

/* Is path[0..n) equal to `of`, or below it? */
static bool is_below(const char *path, size_t n, const char *of)
{
    const size_t k = strlen(of);
    return n >= k && !memcmp(path, of, k) && (n == k || path[k] == '/');
}

bool nnc_path_is(const char *path, size_t n, const char *of)
{
    if (is_below(path, n, of))
        return true;
    const char *own = second_part(path, n);
    return own && is_below(own, n - (size_t)(own - path), of);
}

const char *nnc_own_name(const nnc_graph *g, const nnc_node *input)
{
    static const char between[] = "/inputs/";
    const char *name = g->value[input->out].name, *path = input->origin,
               *own = path ? second_part(path, strlen(path)) : NULL;
    return own && !strncmp(own, between, sizeof between - 1) ? own + sizeof between - 1 : name;
}

/* A union of paths, "a+b", with each of them prefixed. NULL: out of memory. */
static const char *prefixed(nnc_arena *a, const char *model, const char *origin)
{
    NNC_LOCAL(nnc_text) t = {0};
    if (!origin || !*origin)
        return nnc_arena_printf(a, "/%s", model);
    for (const char *p = origin; *p;) {
        const size_t n = strcspn(p, "+");
        nnc_printf(
            &t, "%s/%s%s%.*s", p > origin ? "+" : "", model, *p == '/' ? "" : "/", (int)n, p);
        p += n + (p[n] == '+');
    }
    return t.oom ? NULL : nnc_arena_strdup(a, nnc_text_str(&t));
}

typedef struct joiner {
    nnc_graph *g;
    nnc_arena *a;
    const nnc_graph *from;
    const char *name; /* of the model */
    int device; /* device of its nodes; -1: unchanged */
    nnc_ref *map;
} joiner;

static void stop(joiner *j)
{
    if (j->g->status == NNC_OK)
        j->g->status = nnc_nomem(j->g->sink);
}

static const char *named(joiner *j, const char *name)
{
    return name ? nnc_arena_printf(j->a, "%s.%s", j->name, name) : NULL;
}

static void prefix_body(joiner *j, nnc_graph *body)
{
    for (uint32_t i = 0; body && i < body->n_node; i++) {
        nnc_node *n = &body->node[i];
        if (n->origin && !(n->origin = prefixed(&body->arena, j->name, n->origin)))
            stop(j);
        prefix_body(j, n->body);
    }
}

static void join_node(joiner *j, const nnc_node *n)
{
    nnc_graph *g = j->g;
    nnc_node with = *n;
    nnc_ref *in = ARENA_NEW(j->a, nnc_ref, n->n_in + 1);
    const char *own = j->from->value[n->out].name;
    with.origin = n->op != OP_input
                      ? prefixed(j->a, j->name, n->origin)
                      : nnc_arena_printf(j->a, "/%s/inputs/%s", j->name, own ? own : "");
    if (!in || !with.origin) {
        stop(j);
        return;
    }
    for (int k = 0; k < n->n_in; k++)
        in[k] = j->map[n->in[k]];
    const nnc_ref r = nnc_copy_node(g, j->from, &with, in);
    if (r == NNC_NONE)
        return;
    nnc_node *to = nnc_def(g, r);
    to->frozen = n->frozen;
    to->device = (int16_t)(j->device < 0 ? n->device : j->device);
    prefix_body(j, to->body);
    for (uint32_t k = 0; k < n->n_out; k++) {
        const char *name = j->from->value[n->out + k].name, *full = named(j, name);
        j->map[n->out + k] = r + k;
        if (name && !full)
            stop(j);
        nnc_set_name(g, r + k, full);
    }
}

static void join_outputs(joiner *j, bool updates)
{
    const nnc_graph *s = j->from;
    const uint32_t results = nnc_result_outputs(s);
    for (uint32_t i = updates ? results : 0; i < (updates ? s->n_output : results); i++) {
        const nnc_ref v = j->map[s->output[i]];
        if (updates) {
            const nnc_ref state = s->output_state[i];
            (nnc_def(s, state)->accumulates ? nnc_accumulate : nnc_update)(j->g, j->map[state], v);
            continue;
        }
        const char *own = s->output_name[i] ? s->output_name[i] : s->value[s->output[i]].name,
                   *name = named(j, own ? own : "output");
        if (!name)
            stop(j);
        nnc_output(j->g, v, name);
    }
}

nnc_status nnc_graph_join(const nnc_graph *const *m, const char *const *name, const int *device,
    int n, nnc_graph **out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(nnc_text) all = {0};
    joiner *j = ARENA_NEW(&a, joiner, n + 1);
    for (int i = 0; i < n; i++)
        nnc_printf(&all, "%s%s", i ? "_and_" : "", name[i]);
    nnc_graph *g = all.oom || !j ? NULL : nnc_graph_create(nnc_text_str(&all), sink);
    *out = NULL;
    NNC_NEED(g, sink);
    for (int i = 0; i < n && g->status == NNC_OK; i++) {
        j[i] = (joiner){g, &a, m[i], name[i], device ? device[i] : -1,
            ARENA_NEW(&a, nnc_ref, m[i]->n_value + 1)};
        if (!j[i].map)
            stop(&j[i]);
        for (uint32_t k = 0; k < m[i]->n_node && g->status == NNC_OK; k++)
            join_node(&j[i], &m[i]->node[k]);
    }
    for (int updates = 0; updates < 2; updates++) /* of all models: outputs come first */
        for (int i = 0; i < n && g->status == NNC_OK; i++)
            join_outputs(&j[i], updates);
    g->origin = NULL;
    g->device = -1;
    const nnc_status st = g->status ? g->status : nnc_verify(g, sink);
    if (st)
        nnc_graph_destroy(g);
    else
        *out = g;
    return st;
}
