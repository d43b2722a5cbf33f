/* onnx/mask.c -- x[mask] = v as PyTorch writes it: ScatterND at the places of the mask's true elements, whose number depends on data:
 *
 *     ScatterND(x, Transpose(NonZero(mask)), Expand(v, number of places))
 *     ScatterND(x, Transpose(NonZero(mask)), Slice(v, 0, number of places))
 *
 * The places become the mask itself, and what is written there v: the builder of ScatterND selects by a mask (build_index.c). */
#include "onnx/internal.h"
#include <string.h>

/* Values of the nodes: a value's rank is its node's number, n_item its uses by other ops than Shape. */
typedef struct masks {
    ox_graph *g;
    ox_scope made;
} masks;

/* The node that computes a value, if it has this op. */
static ox_node *maker(masks *m, const char *name, const char *op)
{
    const ox_value *v = ox_lookup(&m->made, name);
    ox_node *n = v ? &m->g->node[v->rank] : NULL;
    return n && !strcmp(n->op, op) && !*n->domain && n->n_in > 0 ? n : NULL;
}

static bool used_once(masks *m, const ox_node *n)
{
    return ox_lookup(&m->made, n->out[0])->n_item == 1;
}

static void become_identity(ox_node *n)
{
    n->op = "Identity";
    n->n_in = 1;
    n->n_attr = 0;
}

static void rewrite(masks *m, ox_node *scatter)
{
    ox_node *turn = maker(m, scatter->in[1], "Transpose"), *n;
    ox_node *places = turn ? maker(m, turn->in[0], "NonZero") : NULL;
    const char *from = scatter->in[2];
    if (!places || !used_once(m, turn) || !used_once(m, places))
        return;
    while ((n = maker(m, from, "Reshape")))
        from = n->in[0];
    ox_node *fill = maker(m, from, "Expand"), *part = maker(m, from, "Slice");
    if (fill && used_once(m, fill))
        become_identity(fill);
    else if (!part || !maker(m, part->in[0], "Reshape"))
        return;
    scatter->in[2] = fill ? fill->in[0] : part->in[0];
    become_identity(turn);
    become_identity(places);
}

static bool replaces(const ox_node *n)
{
    const ox_attr *a = n->attr;
    return !strcmp(n->op, "ScatterND") && !*n->domain && n->n_in == 3 &&
           (n->n_attr == 0 || (n->n_attr == 1 && a->s && !strcmp(a->s, "none")));
}

bool ox_masks(ox *x, ox_graph *g)
{
    masks m = {.g = g};
    bool any = false;
    for (size_t i = 0; i < g->n_node; i++) {
        any = any || !strcmp(g->node[i].op, "NonZero");
        for (size_t k = 0; k < g->node[i].n_attr; k++)
            if (g->node[i].attr[k].type == OXA_graph) /* it may read any of these values */
                return true;
    }
    for (size_t i = 0; any && i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i].n_out; k++)
            if (*g->node[i].out[k] && !ox_lookup(&m.made, g->node[i].out[k]) &&
                !ox_define(x, &m.made, g->node[i].out[k], (ox_value){.rank = (int)i}))
                return false;
    for (size_t i = 0; any && i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i].n_in; k++) {
            ox_value *v = ox_lookup(&m.made, g->node[i].in[k]);
            if (v)
                v->n_item += strcmp(g->node[i].op, "Shape") != 0;
        }
    for (size_t i = 0; any && i < g->n_out; i++) {
        ox_value *v = ox_lookup(&m.made, g->out[i].name);
        if (v)
            v->n_item++;
    }
    for (size_t i = 0; any && i < g->n_node; i++)
        if (replaces(&g->node[i]))
            rewrite(&m, &g->node[i]);
    return true;
}
