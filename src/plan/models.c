/* plan/models.c -- several models in one graph (ir/join.c): unconnected components, whose paths begin with different parts. Where devices
 * have several streams, each model stays on one, in an order that needs little memory (sequence.c). The longest is placed first, on the
 * stream with the least work. */
#include "plan/maker.h"
#include <assert.h>
#include <string.h>

typedef struct model {
    const char *path; /* "/resnet101/..." */
    size_t n; /* of "/resnet101" */
    int64_t ns;
    int device, stream;
    bool placed;
} model;

typedef struct models {
    maker *m;
    int32_t *model_of; /* by node: its model; -1: it does not run in main */
    model *at;
    int n;
    size_t cap;
} models;

/* The first part of a path, with its slash; 0: it has no second part. */
static size_t first_part(const char *path, size_t n)
{
    const char *next = n > 1 && *path == '/' ? memchr(path + 1, '/', n - 1) : NULL;
    return next ? (size_t)(next - path) : *path == '/' ? n : 0;
}

/* The length of the first part common to all paths of "a+b"; 0: none. */
static size_t common_part(const char *origin)
{
    const size_t first = origin ? first_part(origin, strcspn(origin, "+")) : 0;
    for (const char *p = origin; first && *p;) {
        const size_t n = strcspn(p, "+");
        if (first_part(p, n) != first || memcmp(p, origin, first) != 0)
            return 0;
        p += n + (p[n] == '+');
    }
    return first;
}

/* The node's model, added if it is new; -1: it belongs to none, or out of memory. */
static int find_model(models *s, const nnc_node *node, int device)
{
    const size_t n = common_part(node->origin);
    int k = 0;
    while (k < s->n && (s->at[k].n != n || s->at[k].device != device ||
                           memcmp(s->at[k].path, node->origin, n) != 0))
        k++;
    if (!n || k < s->n)
        return n ? k : -1;
    if (!ARENA_ROOM(&s->m->scratch, s->at, s->cap, s->n + 1))
        return -1;
    s->at[s->n++] = (model){.path = node->origin, .n = n, .device = device};
    return k;
}

/* Are entries a and b one model, possibly with layers on several devices? */
static bool is_one_model(const models *s, int32_t a, int32_t b)
{
    return a == b || (a >= 0 && s->at[a].n == s->at[b].n &&
                         !memcmp(s->at[a].path, s->at[b].path, s->at[a].n));
}

/* False: a node belongs to no model, or reads another model's value. */
static bool find_models(models *s)
{
    maker *m = s->m;
    for (uint32_t i = 0; i < m->g->n_node; i++) {
        const nnc_node *n = &m->g->node[i];
        const int device = device_of_node(n);
        s->model_of[i] = -1;
        if (!runs_in_main(m, n))
            continue;
        s->model_of[i] = is_collective(n) ? -1 : find_model(s, n, device);
        if (s->model_of[i] < 0)
            return false;
        model *to = &s->at[s->model_of[i]];
        to->ns = nnc_add_sat(to->ns, nnc_node_ns(target_of(m, device), m->g, n));
        for (uint32_t e = m->from.first[i]; e < m->from.first[i + 1]; e++)
            if (!is_one_model(s, s->model_of[m->from.at[e]], s->model_of[i]))
                return false;
    }
    return s->n > 1 && !is_one_model(s, 0, s->n - 1);
}

/* Puts the longest model first, on its device's stream with the least load (ties: the first stream). */
static void choose_streams(models *s, int64_t *load)
{
    const int streams = s->m->o->streams;
    for (int done = 0; done < s->n; done++) {
        model *next = NULL;
        for (int k = 0; k < s->n; k++)
            if (!s->at[k].placed && (!next || s->at[k].ns > next->ns))
                next = &s->at[k];
        assert(next); /* `done` of n are placed */
        int64_t *busy = load + (size_t)next->device * (size_t)streams;
        for (int i = 1; i < streams; i++)
            next->stream = busy[i] < busy[next->stream] ? i : next->stream;
        busy[next->stream] = nnc_add_sat(busy[next->stream], nnc_max64(next->ns, 1));
        next->placed = true;
    }
}

nnc_status make_models(maker *m, int16_t *stream, bool *several)
{
    models s = {.m = m, .model_of = ARENA_NEW(&m->scratch, int32_t, m->g->n_node + 1)};
    int64_t *load = ARENA_NEW(&m->scratch, int64_t, m->n_dev * m->o->streams);
    NNC_NEED(s.model_of && load, m->sink);
    *several = find_models(&s);
    if (!*several)
        return NNC_OK;
    choose_streams(&s, load);
    for (uint32_t i = 0; i < m->g->n_node; i++)
        stream[i] = s.model_of[i] < 0 ? 0 : (int16_t)s.at[s.model_of[i]].stream;
    return NNC_OK;
}
