/* tests/gen/shrink.c -- see gen.h. */
#include "gen/gen.h"
#include "test.h"

enum { OUTPUTS = 4096, SECONDS = 30 };

/* Which values do the outputs in keep[] need, if node `cut` needs none? */
static bool *needed(const nnc_graph *g, uint32_t cut, const bool *keep)
{
    bool *need = nnc_calloc(g->n_value + 1, sizeof *need);
    for (uint32_t i = 0; need && i < g->n_output; i++)
        need[g->output[i]] |= keep[i];
    for (uint32_t i = g->n_node; need && i-- > 0;) {
        const nnc_node *n = &g->node[i];
        bool any = false;
        for (int k = 0; k < n->n_out; k++)
            any |= need[n->out + (nnc_ref)k];
        for (int k = 0; any && k < n->n_in && i != cut; k++)
            need[n->in[k]] = true;
        for (int k = 0; k < n->n_out; k++)
            need[n->out + (nnc_ref)k] = any;
    }
    return need;
}

/* Inputs in place of what node n computes. */
static void cut_off(nnc_graph *h, const nnc_graph *g, const nnc_node *n, nnc_ref *map)
{
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++) {
        char name[32];
        snprintf(name, sizeof name, "c%u", (unsigned)v);
        map[v] = nnc_input(h, NULL, nnc_typeof(g, v));
        nnc_set_name(h, map[v], name);
    }
}

void gen_copy(nnc_graph *h, const nnc_graph *g, const nnc_node *n, nnc_ref *map)
{
    nnc_ref in[64];
    for (int k = 0; k < n->n_in; k++)
        in[k] = map[n->in[k]];
    nnc_ref r = nnc_copy_node(h, g, n, in);
    for (int k = 0; k < n->n_out && r != NNC_NONE; k++)
        map[n->out + (nnc_ref)k] = r + (nnc_ref)k;
}

/* g with inputs in place of node `cut`'s results (UINT32_MAX: of none), with the outputs in keep[], and without what those do not need. */
static nnc_graph *part(const nnc_graph *g, uint32_t cut, const bool *keep, nnc_sink *sink)
{
    nnc_graph *h = nnc_graph_create(g->name, sink);
    nnc_ref *map = nnc_malloc((g->n_value + 1) * sizeof *map);
    bool *need = needed(g, cut, keep);
    for (uint32_t i = 0; h && map && need && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (need[n->out] && i == cut)
            cut_off(h, g, n, map);
        else if (need[n->out])
            gen_copy(h, g, n, map);
    }
    for (uint32_t i = 0; map && h && i < g->n_output; i++)
        if (keep[i])
            nnc_output(h, map[g->output[i]], g->output_name[i]);
    bool ok = h && map && need && h->status == NNC_OK && nnc_verify(h, sink) == NNC_OK;
    nnc_free(need);
    nnc_free(map);
    if (ok)
        return h;
    nnc_graph_destroy(h);
    return NULL;
}

typedef struct gen_case {
    const nnc_graph *g;
    void (*check)(const nnc_graph *g, const void *ctx);
    const void *ctx;
} gen_case;

static bool replace(nnc_graph **g, nnc_graph *h, gen_fails *fails, void *ctx, int64_t end)
{
    bool yes = h && nnc_now_ns() < end && fails(h, ctx);
    nnc_graph_destroy(yes ? *g : h);
    *g = yes ? h : *g;
    return yes;
}

/* Each step leaves fewer outputs or fewer nodes that are no inputs, so that this ends. */
nnc_graph *gen_shrink(nnc_graph *g, gen_fails *fails, void *ctx, nnc_sink *sink)
{
    const int64_t end = nnc_now_ns() + SECONDS * INT64_C(1000000000);
    bool keep[OUTPUTS];
    memset(keep, 1, sizeof keep);
    for (uint32_t i = 0; i < OUTPUTS && i < g->n_output && g->n_output > 1;) {
        keep[i] = false;
        i += !replace(&g, part(g, UINT32_MAX, keep, sink), fails, ctx, end);
        memset(keep, 1, sizeof keep);
    }
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = g->n_node; i-- > 0 && !more;)
            more =
                g->node[i].op != OP_input && replace(&g, part(g, i, keep, sink), fails, ctx, end);
    }
    return g;
}

static void run(const void *p)
{
    const gen_case *c = p;
    c->check(c->g, c->ctx);
}

static bool check_fails(const nnc_graph *g, void *p)
{
    gen_case c = *(const gen_case *)p;
    c.g = g;
    return test_fails(run, &c);
}

void gen_check(nnc_graph *g, void (*check)(const nnc_graph *g, const void *ctx), const void *ctx)
{
    static bool reduced;
    gen_case c = {g, check, ctx};
    nnc_text t = {0};
    int before = test_failures;
    CHECK(g != NULL);
    if (g)
        check(g, ctx);
    if (g && test_failures > before && !reduced) {
        reduced = true;
        g = gen_shrink(g, check_fails, &c, test_sink);
        nnc_graph_print(&t, g);
        fputs(nnc_text_str(&t), stderr);
    }
    nnc_text_deinit(&t);
    nnc_graph_destroy(g);
}
