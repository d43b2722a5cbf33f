/* tests/ir/eval_sample.c -- rows of a batch computed alone equal the rows of the whole, and
 * graphs whose rows mix are declined. */
#include "eval_util.h"
#include "gen/gen.h"

enum { MOST = 8 };

/* Evaluates g whole and its sample of `rows`, compares row for row. Returns 1 when sampled, 0
 * when declined. */
static int check(nnc_graph *g, int64_t rows, const bool *want_in)
{
    bool in[MOST] = {0}, out[MOST] = {0};
    void *data[MOST] = {0};
    nnc_rval whole[MOST] = {0}, part[MOST] = {0};
    nnc_graph *s = NULL;
    int n = 0;
    CHECK(g->status == NNC_OK);
    if (g->status != NNC_OK || g->n_output > MOST)
        return 0;
    for (uint32_t i = 0; i < g->n_node && n < MOST; i++)
        if (g->node[i].op == OP_input) {
            const nnc_type *t = nnc_typeof(g, g->node[i].out);
            data[n] = nnc_malloc((size_t)nnc_type_bytes(t));
            gen_fill_input(t, 5, n, data[n]);
            n++;
        }
    CHECK_OK(nnc_graph_sample(g, rows, &s, in, out, test_sink));
    if (s) {
        CHECK_OK(nnc_verify(s, test_sink));
        CHECK_OK(nnc_eval(g, (const void *const *)data, 2, whole, test_sink));
        CHECK_OK(nnc_eval(s, (const void *const *)data, 2, part, test_sink));
        for (int i = 0; want_in && i < n; i++)
            CHECK_INT(in[i], want_in[i]);
        for (uint32_t o = 0; o < g->n_output; o++) {
            int64_t k = nnc_type_numel(&part[o].type);
            CHECK(out[o] ? part[o].type.dim[0] < whole[o].type.dim[0]
                         : k == nnc_type_numel(&whole[o].type));
            for (int64_t i = 0; i < k; i++)
                if (whole[o].f ? fabs(whole[o].f[i] - part[o].f[i]) > 1e-12
                               : whole[o].i[i] != part[o].i[i]) {
                    test_fail(
                        __FILE__, __LINE__, "output %u differs at %lld", (unsigned)o, (long long)i);
                    break;
                }
        }
    }
    for (int i = 0; i < MOST; i++) {
        nnc_rval_free(&whole[i]);
        nnc_rval_free(&part[i]);
        nnc_free(data[i]);
    }
    int sampled = s != NULL;
    nnc_graph_destroy(s);
    return sampled;
}

static nnc_graph *g;
static nnc_ref in32(int rank, const int64_t *dim)
{
    nnc_type t = nnc_type_make(DT_f32, rank, dim);
    return nnc_input(g, NULL, &t);
}
static nnc_ref par(const char *name, int rank, const int64_t *dim)
{
    nnc_type t = nnc_type_make(DT_f32, rank, dim);
    nnc_weight w = {.kind = NNC_W_gen, .name = name, .scale = 1};
    return nnc_param(g, &t, &w);
}

static void finish(nnc_ref y, int64_t rows, int want, const bool *want_in)
{
    nnc_output(g, y, "y");
    CHECK_INT(check(g, rows, want_in), want);
    nnc_graph_destroy(g);
}

TEST(sample_models)
{
    g = new_graph(); /* nested sin: rows are elements */
    nnc_ref x = in32(DIMS(1000));
    finish(nnc_build1(g, OP_sin, nnc_build1(g, OP_sin, x)), 10, 1, (const bool[]){true});

    g = new_graph(); /* matmul of two inputs of equal extents: rows of a alone */
    x = in32(DIMS(12, 12));
    finish(nnc_build2(g, OP_matmul, x, in32(DIMS(12, 12))), 3, 1, (const bool[]){true, false});

    g = new_graph(); /* conv, relu, pool, flatten, linear, softmax */
    x = in32(DIMS(6, 3, 8, 8));
    nnc_ref in[3] = {x, par("w", DIMS(4, 3, 3, 3)), par("b", DIMS(4))};
    nnc_attr pads = nnc_av(AT_pads, 4, INTS(1, 1, 1, 1));
    nnc_ref y = nnc_build1(g, OP_relu, nnc_build(g, OP_conv, 3, in, 1, &pads));
    nnc_attr pool[2] = {nnc_av(AT_kernel, 2, INTS(2, 2)), nnc_av(AT_strides, 2, INTS(2, 2))};
    y = nnc_reshape(g, nnc_build(g, OP_maxpool, 1, &y, 2, pool), DIMS(6, 64));
    nnc_ref fc[3] = {y, par("w2", DIMS(10, 64)), par("b2", DIMS(10))};
    y = nnc_build(g, OP_linear, 3, fc, 0, NULL);
    nnc_attr ax = nnc_ai(AT_axis, 1);
    finish(nnc_build(g, OP_softmax, 1, &y, 1, &ax), 2, 1, (const bool[]){true});
}

TEST(sample_rows_of_rows)
{
    g = new_graph(); /* [N,S,D] -> [N S, D] -> linear -> [N,S,E]; attention-like product per row; a [N,..] weight is cut */
    nnc_ref x = in32(DIMS(4, 5, 6));
    nnc_ref fc[2] = {nnc_reshape(g, x, DIMS(20, 6)), par("w", DIMS(6, 6))};
    nnc_ref q = nnc_reshape(g, nnc_build(g, OP_linear, 2, fc, 0, NULL), DIMS(4, 5, 6));
    nnc_ref two[2] = {q, x};
    nnc_attr tb = nnc_ai(AT_transpose_b, 1);
    nnc_ref s = nnc_build(g, OP_matmul, 2, two, 1, &tb);
    finish(nnc_build2(g, OP_add, s, par("bias", DIMS(4, 1, 5))), 2, 1, (const bool[]){true});

    g = new_graph(); /* a table looked up with a batch of indices */
    nnc_type ti = nnc_type_make(DT_bool, DIMS(7, 3));
    nnc_ref at[2] = {par("table", DIMS(2, 4)), nnc_cast(g, nnc_input(g, NULL, &ti), DT_i32)};
    finish(nnc_build(g, OP_gather, 2, at, 0, NULL), 3, 1, (const bool[]){true});
}

TEST(sample_declines)
{
    nnc_attr ax = nnc_ai(AT_axis, 0), ax1 = nnc_ai(AT_axis, 1);
    g = new_graph(); /* every row taken at the indices of all rows */
    nnc_type ti = nnc_type_make(DT_bool, DIMS(8));
    nnc_ref at[2] = {in32(DIMS(8, 4)), nnc_cast(g, nnc_input(g, NULL, &ti), DT_i32)};
    finish(nnc_build(g, OP_gather, 2, at, 1, &ax1), 2, 0, NULL);
    g = new_graph();
    nnc_ref x = in32(DIMS(8, 3));
    finish(nnc_build(g, OP_softmax, 1, &x, 1, &ax), 2, 0, NULL);
    g = new_graph();
    x = in32(DIMS(8, 3));
    finish(nnc_reduce(g, OP_reduce_sum, x, 1, INTS(0), false), 2, 0, NULL);
    g = new_graph();
    x = in32(DIMS(8, 3));
    finish(nnc_transpose(g, x, INTS(1, 0)), 2, 0, NULL);
    g = new_graph();
    x = in32(DIMS(6, 4));
    finish(nnc_reshape(g, x, DIMS(4, 6)), 2, 0, NULL);
    g = new_graph(); /* x + mean over the batch of x */
    x = in32(DIMS(8, 3));
    finish(
        nnc_build2(g, OP_sub, x, nnc_reduce(g, OP_reduce_mean, x, 1, INTS(0), true)), 2, 0, NULL);
}

TEST(sample_generated)
{
    int sampled = 0;
    for (uint64_t s = 0; s < (uint64_t)test_draws(300); s++) {
        gen_options o = {.seed = test_seed + 9000 + s, .nodes = 5, .max_elements = 2000};
        nnc_graph *h = gen_graph(&o, test_sink);
        CHECK(h != NULL);
        if (h)
            sampled += check(h, 1, NULL);
        nnc_graph_destroy(h);
    }
    CHECK_USUAL(sampled > test_draws(60));
}

TEST(sample_out_of_memory)
{
    gen_options o = {.seed = 4, .nodes = 8};
    nnc_graph *h = gen_graph(&o, test_sink), *s = NULL;
    bool in[MOST], out[64];
    nnc_status status = NNC_E_NOMEM;
    CHECK(h && h->n_output <= 64);
    for (int64_t n = 1; h && n < 5000 && status != NNC_OK; n++) {
        nnc_fail_alloc_after(n);
        status = nnc_graph_sample(h, 1, &s, in, out, NULL);
        nnc_fail_alloc_after(0);
        CHECK(status == NNC_OK || (status == NNC_E_NOMEM && !s));
    }
    CHECK_INT(status, NNC_OK);
    nnc_graph_destroy(s);
    nnc_graph_destroy(h);
}
