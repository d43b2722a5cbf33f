/* tests/autodiff/random.c -- gradients of drawn graphs against central differences, all in f64. v is a random direction of all
 * inputs and weights: (L(x + h v) - L(x - h v)) / 2h is the sum of dL/dx v. */
#include "gen/gen.h"
#include "help.h"

#include <math.h>
#include <stdlib.h>

/* A copy in which weights are inputs; data[i] is what input i had. */
static nnc_graph *weights_as_inputs(const nnc_graph *g, uint64_t seed, void **data)
{
    nnc_graph *h = nnc_graph_create("h", test_sink);
    nnc_ref *map = calloc(g->n_value, sizeof *map);
    int inputs = 0, n = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *d = &g->node[i];
        const nnc_type *t = nnc_typeof(g, d->out);
        bool param = d->op == OP_param, input = d->op == OP_input;
        if (!param && !input) {
            gen_copy(h, g, d, map);
            continue;
        }
        map[d->out] = nnc_input(h, NULL, t);
        data[n] = calloc(1, (size_t)nnc_type_bytes(t));
        if (input)
            gen_fill_input(t, seed, inputs++, data[n]);
        else
            CHECK_OK(nnc_weight_read(d->weight, t, 0, nnc_type_numel(t), data[n], NULL, test_sink));
        n++;
    }
    for (uint32_t i = 0; i < g->n_output; i++)
        nnc_output(h, map[g->output[i]], NULL);
    free(map);
    return h;
}

static int64_t drawn[OP__COUNT];

static void check_drawn(const nnc_graph *g, const void *ctx)
{
    const uint64_t seed = *(const uint64_t *)ctx;
    void *data[64] = {0};
    nnc_graph *h = weights_as_inputs(g, seed, data);
    help_check_gradients(h, data, seed);
    for (int i = 0; i < 64; i++)
        free(data[i]);
    nnc_graph_destroy(h);
}

static void check_seed(uint64_t seed, uint32_t classes)
{
    gen_options o = {
        .seed = seed, .nodes = 10, .dtypes = 1u << DT_f64, .classes = classes, .max_elements = 512};
    nnc_graph *g = gen_graph(&o, test_sink);
    bool missing = false;
    for (uint32_t i = 0; g && i < g->n_node && !missing; i++)
        nnc_has_gradient((nnc_op)g->node[i].op, &missing);
    for (uint32_t i = 0; g && i < g->n_node && !missing; i++)
        drawn[g->node[i].op]++;
    if (missing)
        nnc_graph_destroy(g);
    else
        gen_check(g, check_drawn, &seed);
}

/* Does gradients.c check it? */
static bool typed(nnc_op op)
{
    static const nnc_op ops[] = {OP_mod, OP_topk, OP_scatter, OP_scatter_nd, OP_gather_elements,
        OP_gather_nd, OP_linear_scan, OP_lstm, OP_gru, OP_rnn};
    for (size_t i = 0; i < NNC_COUNT(ops); i++)
        if (ops[i] == op)
            return true;
    return false;
}

TEST(drawn_graphs)
{
    memset(drawn, 0, sizeof drawn);
    for (uint64_t k = 0; k < 400; k++)
        check_seed(
            test_seed + 1000 + k, k % 4 ? 0 : 1u << CL_move | 1u << CL_window | 1u << CL_loop);
    for (int op = 0; op < OP__COUNT && test_seed_is_usual(); op++) {
        bool missing;
        if (nnc_has_gradient((nnc_op)op, &missing) && !drawn[op] && !typed((nnc_op)op) &&
            nnc_op_class((nnc_op)op) != CL_collective) /* gradients.c */
            test_fail(__FILE__, __LINE__, "%s was never drawn", nnc_ops[op].name);
    }
}

/* Every allocation on the way fails once: out of memory is reported, and nothing else happens. */
TEST(gradients_out_of_memory)
{
    int64_t failed = 0;
    for (uint64_t k = 0; k < (uint64_t)test_draws(60); k++) {
        gen_options o = {.seed = test_seed + 7000 + k, .nodes = 60, .max_elements = 256};
        nnc_graph *g = gen_graph(&o, test_sink);
        nnc_status s = NNC_E_NOMEM;
        CHECK(g != NULL);
        for (int64_t n = 1; g && s == NNC_E_NOMEM && n < 2000; n++) {
            nnc_graph *c = nnc_graph_clone(g, test_sink);
            nnc_ref x = c->node[0].out, dx;
            nnc_sink_clear(test_sink);
            nnc_fail_alloc_after(n);
            s = nnc_gradients(c, (int)c->n_output, c->output, NULL, 1, &x, &dx, test_sink);
            nnc_fail_alloc_after(0);
            failed += s == NNC_E_NOMEM;
            CHECK(s == NNC_OK || s == NNC_E_NOMEM || s == NNC_E_MODEL);
            CHECK(s != NNC_E_NOMEM || nnc_sink_cause(test_sink, NNC_OK) == NNC_E_NOMEM);
            nnc_graph_destroy(c);
        }
        nnc_sink_clear(test_sink);
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(failed > test_draws(100));
}
