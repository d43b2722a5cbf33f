/* check/reduce.c -- makes a failing model small. Keeps the value that differs as the only output, or one that it is computed from. Then
 * removes nodes from the last to the first, as long as some layer still differs. Each is replaced by an operand of its type or by an
 * input. */
#include "check/check.h"
#include "check/layers.h"
#include "session/session.h"

enum { MOST_TRIES = 1000 };

typedef struct reduction {
    nnc_env *e;
    nnc_compare_options o;
    nnc_sink *sink;
    nnc_graph *g; /* fails */
    int tries;
} reduction;

/* Number of nodes that compute. */
static int size_of(const nnc_graph *g)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        n += !nnc_is_leaf(&g->node[i]);
    return n;
}

/* The same graph without inputs that nobody reads. */
static nnc_graph *without_unused(const nnc_graph *g, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const uint32_t *uses = nnc_use_counts(g, &a);
    nnc_ref *map = ARENA_NEW(&a, nnc_ref, g->n_value + 1), in[1024];
    nnc_graph *to = uses && map ? nnc_graph_create(g->name, sink) : NULL;
    for (uint32_t i = 0; to && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (n->op == OP_input && !uses[n->out])
            continue;
        if (n->n_in > NNC_COUNT(in)) {
            nnc_graph_destroy(to);
            return nnc_graph_clone(g, sink);
        }
        for (int k = 0; k < n->n_in; k++)
            in[k] = map[n->in[k]];
        const nnc_ref out = nnc_copy_node(to, g, n, in);
        for (uint16_t k = 0; k < n->n_out; k++)
            map[n->out + k] = out == NNC_NONE ? NNC_NONE : out + k;
    }
    for (uint32_t i = 0; to && i < g->n_output; i++)
        nnc_output(to, map[g->output[i]], g->output_name[i]);
    if (to && !to->status)
        return to;
    nnc_graph_destroy(to);
    return NULL;
}

/* Takes ownership of g: it becomes the model if it is smaller and fails. */
static bool accept(reduction *r, nnc_graph *g, nnc_status *st)
{
    nnc_graph *lean =
        g && !g->status && nnc_graph_tidy(g) == NNC_OK ? without_unused(g, r->sink) : NULL;
    nnc_graph_destroy(g);
    bool fails = false;
    if (lean && size_of(lean) > 0 && r->tries < MOST_TRIES) {
        NNC_LOCAL(layers) l = {.n = 0};
        r->tries++;
        /* A smaller model that cannot be judged is no failing one. */
        NNC_OWNED(nnc_sink) *own = nnc_sink_create();
        *st = own ? nnc_layers_verify(&l, r->e, lean, &r->o, own) : nnc_nomem(r->sink);
        fails = !*st && !l.agrees;
        if (*st != NNC_E_NOMEM)
            *st = NNC_OK;
    }
    if (fails) {
        nnc_graph_destroy(r->g);
        r->g = lean;
    } else {
        nnc_graph_destroy(lean);
    }
    return fails;
}

/* A copy whose only output is value v. */
static nnc_graph *ending_in(const nnc_graph *g, nnc_ref v, const char *name, nnc_sink *sink)
{
    nnc_graph *to = nnc_graph_clone(g, sink);
    if (to) {
        nnc_drop_updates(to);
        to->n_output = 0;
        nnc_output(to, v, name);
    }
    return to;
}

/* A copy in which node i's results are `by`, or inputs (NNC_NONE). */
static nnc_graph *replacing(const nnc_graph *g, uint32_t i, nnc_ref by, nnc_sink *sink)
{
    nnc_graph *to = nnc_graph_clone(g, sink);
    const uint16_t n_out = g->node[i].n_out;
    for (uint16_t k = 0; to && !to->status && k < n_out; k++) {
        const nnc_ref old = g->node[i].out + k;
        const nnc_type t = nnc_type_dense(nnc_typeof(g, old));
        char name[32];
        snprintf(name, sizeof name, "cut%u", (unsigned)old);
        const nnc_ref now = by != NNC_NONE ? by : nnc_input(to, name, &t);
        if (now != NNC_NONE)
            nnc_replace_uses(to, old, now);
    }
    return to;
}

/* Tries to take one node away; true: the graph has changed. */
static bool take_away(reduction *r, uint32_t i, nnc_status *st)
{
    const nnc_graph *g = r->g;
    const nnc_node *n = &g->node[i];
    if (nnc_is_leaf(n))
        return false;
    if (nnc_type_is_row_major(nnc_typeof(g, n->out)) &&
        accept(r, replacing(g, i, NNC_NONE, r->sink), st))
        return true;
    for (int k = 0; !*st && n->n_out == 1 && k < n->n_in; k++)
        if (nnc_type_equal(nnc_typeof(g, n->in[k]), nnc_typeof(g, n->out)) &&
            accept(r, replacing(g, i, n->in[k], r->sink), st))
            return true;
    return false;
}

static nnc_status one_row(reduction *r)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_graph *small = NULL;
    bool *in = ARENA_NEW(&a, bool, r->g->n_node + 1),
         *out = ARENA_NEW(&a, bool, r->g->n_output + 1);
    NNC_NEED(in && out, r->sink);
    nnc_status st = nnc_graph_sample(r->g, 1, &small, in, out, r->sink);
    if (!st && small)
        (void)accept(r, small, &st);
    return st;
}

/* Tries to end the model earlier: at an operand of the node that computes its only output. */
static bool shorten(reduction *r, nnc_status *st)
{
    const nnc_graph *g = r->g;
    const nnc_node *n = nnc_def(g, g->output[0]);
    for (int k = 0; g->n_output == 1 && !*st && k < n->n_in; k++)
        if (!nnc_is_leaf(nnc_def(g, n->in[k])) &&
            accept(r, ending_in(g, n->in[k], "differs", r->sink), st))
            return true;
    return false;
}

static nnc_status shrink(reduction *r)
{
    nnc_status st = NNC_OK;
    for (bool any = true; any && !st;) {
        any = false;
        while (!st && shorten(r, &st))
            any = true;
        for (uint32_t i = r->g->n_node; i-- > 0 && !st;)
            if (i < r->g->n_node && take_away(r, i, &st))
                any = true;
    }
    return st ? st : one_row(r);
}

nnc_status nnc_smallest_failing(
    nnc_env *e, const nnc_model *m, const nnc_compare_options *o, nnc_model **small, nnc_sink *sink)
{
    reduction r = {.e = e, .o = *o, .sink = sink};
    layers l = {.n = 0};
    *small = NULL;
    nnc_status st = nnc_layers_verify(&l, e, m, o, sink);
    const bool fails = !st && !l.agrees;
    const nnc_ref v = fails ? l.source->output[l.first] : NNC_NONE;
    nnc_graph *end = fails && v < l.model->n_value ? ending_in(l.model, v, "differs", sink) : NULL;
    if (fails) {
        r.g = l.model;
        l.model = NULL;
        nnc_expose_updates(r.g);
    }
    layers_deinit(&l);
    if (!fails)
        return st;
    r.o.input = NULL; /* cuts are inputs too, generated like the others */
    r.o.n_input = 0;
    r.o.inputs = NULL;
    (void)accept(&r, end, &st);
    if (!st)
        st = shrink(&r);
    if (st)
        nnc_graph_destroy(r.g);
    else
        *small = r.g;
    return st;
}
