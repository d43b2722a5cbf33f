/* tests/ir/eval_collective.c -- the reference of collectives, and their shape rules. */
#include "eval_util.h"

static const double a6[6] = {1, 2, 3, 4, 5, 6}, b6[6] = {10, 20, 30, 40, 50, 60};

static void result_is(
    nnc_op op, int result, int axis, const char *how, int64_t n, const double *want)
{
    nnc_graph *g = new_graph();
    nnc_ref in[2] = {arg_of(g, DT_f64, DIMS(2, 3)), arg_of(g, DT_f64, DIMS(2, 3))};
    nnc_attr at[2] = {nnc_ai(AT_axis, axis), nnc_aw(AT_reduction, how)};
    const nnc_attr *first = op == OP_allreduce ? at + 1 : at;
    EXPECT(g, nnc_build(g, op, 2, in, op == OP_reduce_scatter ? 2 : 1, first) + (nnc_ref)result,
        IN(a6, b6), n, want, 0);
}

TEST(eval_collectives)
{
    for (int r = 0; r < 2; r++) {
        result_is(OP_allreduce, r, 0, "add", 6, NUMS(11, 22, 33, 44, 55, 66));
        result_is(OP_allreduce, r, 0, "min", 6, a6);
        result_is(OP_allreduce, r, 0, "max", 6, b6);
        result_is(OP_allgather, r, 0, "add", 12, NUMS(1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60));
        result_is(OP_allgather, r, 1, "add", 12, NUMS(1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60));
    }
    result_is(OP_reduce_scatter, 0, 0, "add", 3, NUMS(11, 22, 33));
    result_is(OP_reduce_scatter, 1, 0, "add", 3, NUMS(44, 55, 66));
    result_is(OP_reduce_scatter, 1, 0, "max", 3, NUMS(40, 50, 60));
    nnc_graph *g = new_graph(); /* integers wrap */
    nnc_ref in[2] = {arg_of(g, DT_u8, DIMS(2)), arg_of(g, DT_u8, DIMS(2))};
    EXPECT(g, nnc_build(g, OP_allreduce, 2, in, 0, NULL),
        IN(((const uint8_t[]){200, 1}), ((const uint8_t[]){100, 2})), 2, LONGS(44, 3), 0);
}

static void refused(const char *text, const char *why)
{
    nnc_scan s;
    nnc_scan_init(&s, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g == NULL);
    CHECK_DIAG(why);
    nnc_graph_destroy(g);
    nnc_sink_clear(test_sink);
}

TEST(collectives_refuse)
{
#define TWO(a, b, op) \
    "graph @t {\n%x = input : " a "\n%y = input : " b "\n%p, %q = " op "\nreturn %p\n}"
    refused(
        TWO("f32[2]", "f32[3]", "allreduce %x, %y"), "operand 1 is f32[2] but operand 2 is f32[3]");
    refused(TWO("f32[2]", "f16[2]", "allreduce %x, %y"), "cast operand");
    refused(TWO("bool[2]", "bool[2]", "allreduce %x, %y"), "bool, which has no arithmetic");
    refused(
        TWO("f32[2]", "f32[2]", "allreduce %x, %y {reduction=mul}"), "expected add, min or max");
    refused(TWO("f32[2,2]", "f32[3,1]", "allgather %x, %y {axis=0}"), "except along the axis");
    refused(TWO("f32[3]", "f32[3]", "reduce_scatter %x, %y {axis=0}"),
        "extent 3, which 2 participants cannot share evenly");
    refused(TWO("f32[3]", "f32[3]", "reduce_scatter %x, %y {axis=1}"), "axis is 1");
}
