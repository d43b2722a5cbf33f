/* onnx/fold.c -- computes values that depend only on constants by the IR's reference evaluator, node by node, as they are read. So
 * shapes, axes and indices are constants where the next node needs them. */
#include "onnx/internal.h"
#include <string.h>

enum { MAX_FOLDED = 1 << 16 }; /* elements of a value */

const void *ox_known(ox *x, nnc_ref r)
{
    const nnc_node *n = nnc_def(x->g, r);
    const nnc_weight *w = n->weight;
    int64_t bytes = nnc_type_bytes(nnc_typeof(x->g, r));
    if (n->op == OP_constant)
        return w->data;
    if (n->op != OP_param || bytes > OX_MAX_KNOWN)
        return NULL;
    if (w->kind == NNC_W_inline)
        return w->data;
    if (w->kind != NNC_W_file || !x->mapped || strcmp(w->file, x->file) != 0)
        return NULL;
    return nnc_arena_memdup(&x->a, x->data.p + w->offset, (size_t)bytes); /* aligned */
}

/* Do the nodes from `first` on depend only on constants, and are their values small? */
static bool foldable(const nnc_graph *g, uint32_t first)
{
    for (uint32_t i = first; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (n->op == OP_param || n->op == OP_input)
            return false;
        for (int k = 0; k < n->n_out; k++)
            if (nnc_type_numel(nnc_typeof(g, n->out + (nnc_ref)k)) > MAX_FOLDED)
                return false;
        for (int k = 0; k < n->n_in; k++) {
            const nnc_node *d = nnc_def(g, n->in[k]);
            if (d < &g->node[first] && d->op != OP_constant)
                return false;
        }
    }
    return true;
}

/* Copies the nodes from `first` on to t, and before each the constants that it reads. map: their values, from base on, in t. */
static bool copy(
    nnc_graph *t, const nnc_graph *g, uint32_t first, nnc_ref base, nnc_ref *map, nnc_arena *a)
{
    for (uint32_t i = first; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        nnc_ref *in = ARENA_NEW(a, nnc_ref, n->n_in + 1);
        for (int k = 0; in && k < n->n_in; k++)
            in[k] = n->in[k] >= base ? map[n->in[k] - base]
                                     : nnc_copy_node(t, g, nnc_def(g, n->in[k]), NULL);
        nnc_ref r = in ? nnc_copy_node(t, g, n, in) : NNC_NONE;
        for (int k = 0; k < n->n_out; k++)
            map[n->out - base + (nnc_ref)k] = r + (nnc_ref)k;
        if (r == NNC_NONE)
            return false;
    }
    return true;
}

static bool evaluate(ox *x, nnc_graph *t, uint32_t first, ox_value *out, int n_out, nnc_arena *a)
{
    const nnc_graph *g = x->g;
    nnc_ref base = g->node[first].out;
    nnc_ref *map = ARENA_NEW(a, nnc_ref, g->n_value - base);
    nnc_rval *v = ARENA_NEW(a, nnc_rval, n_out + 1);
    int *index = ARENA_NEW(a, int, n_out + 1), n = 0;
    if (!map || !v || !index || !copy(t, g, first, base, map, a))
        return ox_nomem(x);
    for (int i = 0; i < n_out; i++)
        if (out[i].state == OX_here && out[i].ref >= base) {
            nnc_output(t, map[out[i].ref - base], NULL);
            index[n++] = i;
        }
    nnc_status st = t->status;
    if (!st && n)
        st = nnc_eval(t, NULL, 1, v, x->sink);
    for (int i = 0; i < n; i++) {
        if (!st)
            out[index[i]].ref = nnc_constant_of(x->g, &v[i]);
        nnc_rval_free(&v[i]);
    }
    st = st ? st : g->status;
    return st ? ox_stop(x, st) : true;
}

bool ox_fold(ox *x, uint32_t first, ox_value *out, int n_out)
{
    const nnc_graph *g = x->g;
    bool constants = true;
    for (uint32_t i = first; i < g->n_node; i++)
        constants = constants && g->node[i].op == OP_constant;
    if (constants || !foldable(g, first))
        return true;
    nnc_arena a = {0};
    nnc_graph *t = nnc_graph_create("fold", x->sink);
    bool ok = t ? evaluate(x, t, first, out, n_out, &a) : ox_nomem(x);
    nnc_graph_destroy(t);
    nnc_arena_deinit(&a);
    return ok;
}
