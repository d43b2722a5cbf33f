/* tests/ir/eval_util.h -- short ways to build a graph of f64 or i64 inputs, run it and compare
 * with known numbers. */
#ifndef EVAL_UTIL_H
#define EVAL_UTIL_H

#include "ir/ir.h"
#include "test.h"
#include <math.h>

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__}
#define INTS(...) (const int64_t[]){__VA_ARGS__}
#define NUMS(...) (const double[]){__VA_ARGS__}
#define LONGS(...) (const int64_t[]){__VA_ARGS__}

static inline nnc_ref arg_of(nnc_graph *g, nnc_dtype d, int rank, const int64_t *dim)
{
    nnc_type t = nnc_type_make(d, rank, dim);
    return nnc_input(g, NULL, &t);
}

/* Makes r the output, evaluates, compares with `want` (doubles, or int64_t for integer results),
 * destroys g. */
static inline void expect_(const char *file, int line, nnc_graph *g, nnc_ref r, const void *const *in,
    int64_t n, const void *want, double tol)
{
    nnc_rval y = {0};
    if (r != NNC_NONE)
        nnc_output(g, r, "y");
    if (!g || g->status != NNC_OK || nnc_verify(g, test_sink) != NNC_OK ||
        nnc_eval(g, in, 2, &y, test_sink) != NNC_OK) {
        test_fail(file, line, "the graph fails");
        nnc_sink_print(test_sink, stderr);
        nnc_graph_destroy(g);
        return;
    }
    if (nnc_type_numel(&y.type) != n)
        test_fail(file, line, "%lld elements, not %lld", (long long)nnc_type_numel(&y.type), (long long)n);
    for (int64_t i = 0; i < n && i < nnc_type_numel(&y.type); i++) {
        if (y.f) {
            double a = y.f[i], b = ((const double *)want)[i];
            if (!(fabs(a - b) <= tol || (a != a && b != b) || a == b))
                test_fail(file, line, "element %lld is %.17g, not %.17g", (long long)i, a, b);
        } else if (y.i[i] != ((const int64_t *)want)[i]) {
            test_fail(file, line, "element %lld is %lld, not %lld", (long long)i, (long long)y.i[i],
                (long long)((const int64_t *)want)[i]);
        }
    }
    nnc_rval_free(&y);
    nnc_graph_destroy(g);
}
#define EXPECT(g, r, in, n, want, tol) expect_(__FILE__, __LINE__, g, r, (const void *const[])in, n, want, tol)
#define IN(...) {__VA_ARGS__}

static inline nnc_graph *new_graph(void) { return nnc_graph_create("t", test_sink); }

/* Uniform numbers in [-1, 1). */
static inline void fill(double *x, int64_t n, uint64_t stream)
{
    uint64_t key = nnc_rng_key("test", test_seed + stream);
    for (int64_t i = 0; i < n; i++)
        x[i] = 2.0 * nnc_rng_uniform(key, (uint64_t)i) - 1;
}

#endif
