/* onnx/order.c -- brings nodes into an order in which each comes after those whose results it reads. The specification asks files for such
 * an order, and some writers do not keep it; nodes of files that do stay where they are. */
#include "onnx/internal.h"

#include <string.h>

typedef struct uses { /* the nodes whose results a node reads */
    int32_t *producer;
    int n, cap, next;
    enum { NEW, OPEN, PLACED } state;
} uses;

typedef struct order {
    ox *x;
    ox_scope made; /* what the nodes compute; a value's rank is its node's number */
    uses *node;
} order;

static bool add_use(order *o, uses *u, const char *name)
{
    const ox_value *v = *name ? ox_lookup(&o->made, name) : NULL;
    if (v && u->n == u->cap) {
        int32_t *more = ARENA_NEW(&o->x->a, int32_t, 2 * u->cap + 4);
        if (!more)
            return ox_nomem(o->x);
        if (u->n)
            memcpy(more, u->producer, sizeof *more * (size_t)u->n);
        u->producer = more;
        u->cap = 2 * u->cap + 4;
    }
    if (v)
        u->producer[u->n++] = v->rank;
    return true;
}

static bool add_uses(order *o, uses *u, const ox_node *n, ox_scope *hidden, int depth);

/* Names that a node reads. Names that its graph reads count, except those that the graph defines. */
static bool add_graph_uses(order *o, uses *u, const ox_graph *g, ox_scope *hidden, int depth)
{
    bool ok = true;
    for (size_t i = 0; ok && i < g->n_in; i++)
        ok = ox_mark(o->x, hidden, g->in[i].name);
    for (size_t i = 0; ok && i < g->n_init; i++)
        ok = ox_mark(o->x, hidden, g->init[i].name);
    for (size_t i = 0; ok && i < g->n_node; i++)
        for (size_t k = 0; ok && k < g->node[i].n_out; k++)
            ok = ox_mark(o->x, hidden, g->node[i].out[k]);
    for (size_t i = 0; ok && i < g->n_node; i++)
        ok = add_uses(o, u, &g->node[i], hidden, depth);
    for (size_t i = 0; ok && i < g->n_out; i++)
        ok = ox_lookup(hidden, g->out[i].name) || add_use(o, u, g->out[i].name);
    return ok;
}

static bool add_uses(order *o, uses *u, const ox_node *n, ox_scope *hidden, int depth)
{
    ox *x = o->x;
    bool ok = true;
    for (size_t k = 0; ok && k < n->n_in; k++)
        ok = ox_lookup(hidden, n->in[k]) || add_use(o, u, n->in[k]);
    for (size_t k = 0; ok && k < n->n_attr && depth < OX_MAX_DEPTH; k++) {
        ox_graph g;
        ox_scope inner = {.up = hidden};
        const size_t nodes = x->r.n_node;
        if (n->attr[k].type != OXA_graph)
            continue;
        if (!ox_read_graph(&x->r, n->attr[k].bytes, &g))
            return ox_stop(x, x->r.status);
        x->r.n_node = nodes; /* they are counted when they are imported */
        ok = add_graph_uses(o, u, &g, &inner, depth + 1);
    }
    return ok;
}

/* Places node i, after those that it needs: depth first, `open` holds those that wait. false: a cycle. */
static bool place_node(const order *o, int32_t i, int32_t *open, int32_t *placed, size_t *n_placed)
{
    int n = 0;
    open[n++] = i;
    o->node[i].state = OPEN;
    while (n > 0) {
        uses *u = &o->node[open[n - 1]];
        if (u->next == u->n) {
            u->state = PLACED;
            placed[(*n_placed)++] = open[--n];
            continue;
        }
        const int32_t next = u->producer[u->next++];
        if (o->node[next].state == OPEN)
            return false;
        if (o->node[next].state == NEW) {
            o->node[next].state = OPEN;
            open[n++] = next;
        }
    }
    return true;
}

static bool sort(const order *o, ox_node *node, size_t n)
{
    ox *x = o->x;
    int32_t *open = ARENA_NEW(&x->a, int32_t, n), *placed = ARENA_NEW(&x->a, int32_t, n);
    ox_node *was = ARENA_NEW(&x->a, ox_node, n);
    size_t k = 0;
    if (!open || !placed || !was)
        return ox_nomem(x);
    for (size_t i = 0; i < n; i++)
        if (o->node[i].state == NEW && !place_node(o, (int32_t)i, open, placed, &k))
            return ox_stop(
                x, nnc_fail(x->sink, NNC_E_MODEL, (nnc_loc){.file = x->file},
                       "the node that computes `%.100s` needs its own result", node[i].out[0]));
    memcpy(was, node, sizeof *node * n);
    for (size_t i = 0; i < n; i++)
        node[i] = was[placed[i]];
    return true;
}

bool ox_order(ox *x, ox_node *node, size_t n)
{
    order o = {.x = x, .node = ARENA_NEW(&x->a, uses, n + 1)};
    ox_scope none = {0};
    bool ordered = true;
    if (!o.node)
        return ox_nomem(x);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < node[i].n_out; k++)
            if (*node[i].out[k] && !ox_lookup(&o.made, node[i].out[k]) &&
                !ox_define(x, &o.made, node[i].out[k], (ox_value){.rank = (int)i}))
                return false;
    for (size_t i = 0; i < n; i++) {
        if (!add_uses(&o, &o.node[i], &node[i], &none, 0))
            return false;
        for (int k = 0; k < o.node[i].n; k++)
            ordered = ordered && o.node[i].producer[k] < (int32_t)i;
    }
    return ordered || sort(&o, node, n);
}

bool ox_open_graph(ox *x, ox_span s, ox_graph *out)
{
    return ox_read_graph(&x->r, s, out) ? ox_order(x, out->node, out->n_node) && ox_masks(x, out)
                                        : ox_stop(x, x->r.status);
}
