/* tests/gen/gen.h -- random graphs for tests: DAGs over all ops, with emphasis on what fuses
 * (nests of reductions and elementwise ops, broadcasts, movement, pooling, contractions with
 * epilogues). Everything follows from the seed. */
#ifndef NNC_TESTS_GEN_H
#define NNC_TESTS_GEN_H

#include "ir/ir.h"

typedef struct gen_options {
    uint64_t seed;
    int nodes; /* about so many ops besides leaves; 0 = 12 */
    uint32_t dtypes; /* 1 << DT_x, of inputs and casts; 0 = f32 alone */
    uint32_t classes; /* 1 << CL_x; 0 = all but CL_loop (leaves and fused are never drawn) */
    int64_t max_elements; /* of a value; 0 = 4096 */
    /* Off (the default) every float value stays within +-16, and is a continuous function of the inputs wherever
     * rounding can reach. There is no log of negatives, no division near zero, no floor or comparison of computed
     * floats; eps of the norms is 0.1. So |got - reference| <= c * 16 * epsilon(dtype) holds with a moderate c
     * (about 10 per node). On: any op on anything; only runs with the same arithmetic agree (and NaNs abound). */
    bool wild;
    /* A third of the steps is what models hold that nobody writes by intent (gen_quirk). Operands change nothing, ops undo each other, the
     * same thing comes twice. Residuals surround contractions of one row, outputs are in the middle, layers are unused. */
    bool quirks;
    bool no_gradients; /* without the ops that only gradients consist of, which ONNX lacks */
} gen_options;

/* A graph that passes nnc_verify; its outputs are the values nobody uses. NULL: out of memory,
 * or a bug, which is reported to the sink. */
nnc_graph *gen_graph(const gen_options *o, nnc_sink *sink);

/* Data for input number `index`: floats uniform in [-2, 2), bools, and integers that often wrap
 * when multiplied (indices of gather are made inside the graph). Row-major, nnc_type_bytes of
 * them. */
void gen_fill_input(const nnc_type *t, uint64_t seed, int index, void *dst);

/* The text of a graph with one window: a depthwise convolution or a pooling, and ops that may follow it. */
void gen_window(nnc_text *t, uint64_t seed, bool pool);
/* The same for a window whose operand elementwise ops compute. */
void gen_fed_window(nnc_text *t, uint64_t seed, bool pool);
/* The same for a window whose operand is moved (pad, slice, concat, transpose, reshape, broadcast, flip), and its result, too. */
void gen_moved_window(nnc_text *t, uint64_t seed, bool pool);

/* A product, ops on its rows (most often softmax, under masks), and a product that sums these rows. They are of any sizes, f32 or
 * f64, with transposes around. Not `turned`: all second operands are contiguous. */
void gen_products(nnc_text *t, uint64_t seed, bool turned);
/* Winograd's convolution with a bias, and an activation or a residual. Extents are odd, borders on some sides, channels fill no vector,
 * and blocks are of several images or of rows, the last in part. turned: row-major. */
void gen_winograd(nnc_text *t, uint64_t seed, bool turned);

/* Convolutions channels last, the second of them depthwise, with ops after each, and often a sum at the end: of any windows, f32 or f64.
 * False: a window does not fit, or the result has one row. */
bool gen_strips(nnc_text *t, uint64_t seed);

/* A graph of one op that runs in order along an axis; its inputs are the op's operands. NULL: out of memory, or a bug, which is
 * reported. */
nnc_graph *gen_loop(uint64_t seed, nnc_sink *sink);
/* The same of lstm, gru and rnn, for which a rounding error grows from step to step. */
nnc_graph *gen_recurrent(uint64_t seed, nnc_sink *sink);
/* The same of linear_scan and recurrent_grad. */
nnc_graph *gen_backward(uint64_t seed, nnc_sink *sink);
/* The same of argmaxpool, and of maxpool_grad on its indices. */
nnc_graph *gen_largest(uint64_t seed, nnc_sink *sink);

/* A graph of one fused node that does what g does; its inputs are g's, in order. NULL: out of memory. */
nnc_graph *gen_fused(const nnc_graph *g, nnc_sink *sink);

/* Copies node n of g to h. map: the values of h that those of g became, the operands' known, the results' set. */
void gen_copy(nnc_graph *h, const nnc_graph *g, const nnc_node *n, nnc_ref *map);

typedef bool gen_fails(const nnc_graph *g, void *ctx);
/* Makes g small: an output less at a time, then inputs instead of nodes, as long as `fails` holds. Takes half a minute at most. Takes
 * g, returns what is left. */
nnc_graph *gen_shrink(nnc_graph *g, gen_fails *fails, void *ctx, nnc_sink *sink);
/* Runs a test's check on g. Where a CHECK in it fails, prints the smallest graph for which one does; of each program the first time. Takes
 * g. */
void gen_check(nnc_graph *g, void (*check)(const nnc_graph *g, const void *ctx), const void *ctx);

#endif
