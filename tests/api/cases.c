/* tests/api/cases.c -- see cases.h. */
#include "cases.h"

static bool named_inputs(nnc_graph *g)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        char name[16];
        if (g->node[i].op != OP_input)
            continue;
        snprintf(name, sizeof name, "x%d", n++);
        nnc_set_name(g, g->node[i].out, name);
    }
    return g->status == NNC_OK;
}

/* Products of many numbers vanish in f32 and not in f64, and what is 0 makes NaN of a NaN where 1e-60 does not. */
static bool vanishes(const nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_reduce_prod)
            return true;
    return false;
}

test_graph case_make(uint64_t index, nnc_sink *sink)
{
    /* of 32 cases, how many of each kind */
    static const uint8_t share[CK__COUNT] = {7, 6, 3, 5, 4, 1, 3, 2, 1};
    enum { B = 1 << CL_ewise | 1 << CL_ecomp };
    static const uint32_t classes[CK__COUNT] = {
        [CK_nest] = B | 1 << CL_reduce | 1 << CL_move | 1 << CL_comp,
        [CK_window] = B | 1 << CL_window | 1 << CL_move,
        [CK_conv] = B | 1 << CL_contract | 1 << CL_window,
    };
    static const uint32_t dtypes[CK__COUNT] = {
        [CK_half] = 1 << DT_f32 | 1 << DT_f16 | 1 << DT_bf16,
        [CK_double] = 1 << DT_f64 | 1 << DT_f32,
        [CK_mixed] = (1 << DT__COUNT) - 1,
        [CK_ints] =
            ((1 << DT__COUNT) - 1) & ~(1 << DT_f64 | 1 << DT_f32 | 1 << DT_f16 | 1 << DT_bf16),
    };
    test_graph c = {.seed = test_seed * 1000003 + index};
    uint32_t at = (uint32_t)(index % 32);
    while (at >= share[c.kind])
        at -= share[c.kind++];
    uint32_t u = nnc_rng_u32(nnc_rng_key("case", c.seed), 0);
    c.nodes = u % 8 == 0 ? 40 : 2 + (int)(u >> 8) % 20;
    c.odd = c.kind <= CK_conv && u % 5 == 1;
    gen_options o = {
        .seed = c.seed,
        .nodes = c.nodes,
        .classes = classes[c.kind] | (u % 16 == 6 ? 1u << CL_loop : 0),
        .dtypes = dtypes[c.kind],
        .wild = c.kind >= CK_ints,
        .quirks = !c.odd && u % 3 == 1,
    };
    c.g = gen_graph(&o, sink);
    c.odd = c.odd && c.g && !vanishes(c.g);
    if (c.g && !named_inputs(c.g)) {
        nnc_graph_destroy(c.g);
        c.g = NULL;
    }
    return c;
}

void case_place(nnc_graph *g, uint64_t seed, int devices)
{
    uint64_t key = nnc_rng_key("place", seed);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) != CL_leaf || g->node[i].op == OP_input)
            g->node[i].device = (int16_t)(nnc_rng_u32(key, i) % (uint32_t)devices);
}

static bool ready(const nnc_node *n, const nnc_ref *map)
{
    for (int k = 0; k < n->n_in; k++)
        if (map[n->in[k]] == NNC_NONE)
            return false;
    return true;
}

static nnc_graph *finished(
    nnc_graph *h, const nnc_graph *g, nnc_ref *map, const bool *keep, nnc_sink *sink)
{
    for (uint32_t i = 0; map && h && i < g->n_output; i++)
        if (!keep || keep[i])
            nnc_output(h, map[g->output[i]], g->output_name[i]);
    nnc_free(map);
    if (h && map && h->status == NNC_OK && nnc_verify(h, sink) == NNC_OK)
        return h;
    nnc_graph_destroy(h);
    return NULL;
}

nnc_graph *case_permuted(const nnc_graph *g, uint64_t seed, nnc_sink *sink)
{
    uint64_t key = nnc_rng_key("permute", seed), count = 0;
    nnc_graph *h = nnc_graph_create(g->name, sink);
    nnc_ref *map = nnc_malloc((g->n_value + 1) * sizeof *map);
    if (h && map) {
        memset(map, 0xff, g->n_value * sizeof *map);
        for (uint32_t i = 0; i < g->n_node; i++)
            if (g->node[i].op == OP_input)
                gen_copy(h, g, &g->node[i], map);
        for (uint32_t left = g->n_node, pass = 0; left && pass < 64 * g->n_node; pass++) {
            left = 0;
            for (uint32_t k = g->n_node; k-- > 0;) {
                const nnc_node *n = &g->node[k];
                if (map[n->out] != NNC_NONE)
                    continue;
                left++;
                if (ready(n, map) && nnc_rng_u32(key, count++) % 2)
                    gen_copy(h, g, n, map);
            }
        }
    }
    return finished(h, g, map, NULL, sink);
}
