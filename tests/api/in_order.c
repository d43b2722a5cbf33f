/* tests/api/in_order.c -- ops that run in order along an axis, interpreted and as machine code. Their numbers are ones that draws do
 * not meet: sums whose terms f32 would lose, and NaN among the best. */
#include "session/session.h"
#include "ir/ir.h"
#include "test.h"
#include <math.h>

enum { N = 8 };

/* Runs a graph of one input of f32 and gives its first output, of `n` numbers. */
static void run(const char *text, bool no_llvm, const float *x, float *y, int n)
{
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    nnc_scan scan;
    nnc_scan_init(&scan, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){TEST_CACHED, .threads = 1, .no_llvm = no_llvm}, &e, test_sink));
    CHECK_OK(g && e ? nnc_compile(e, g, &nnc_compile_defaults, &a, test_sink) : NNC_E_MODEL);
    CHECK_OK(a ? nnc_session_create(e, a, &s, test_sink) : NNC_E_MODEL);
    if (s) {
        CHECK_INT(nnc_type_numel(nnc_session_output_type(s, 0)), n);
        CHECK_OK(nnc_session_input(s, 0, x, test_sink));
        CHECK_OK(nnc_session_run(s, test_sink));
        CHECK_OK(nnc_session_output(s, 0, y, test_sink));
    }
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
}

/* 2^24 + 1 is no f32: the sum of f32 would stay. */
TEST(running_sums_keep_small_terms)
{
    static const float x[N] = {0x1p24f, 1, 1, 1, 1, -0x1p24f, 1, 1},
                       want[N] = {0x1p24f, 0x1p24f, 16777218, 16777220, 16777220, 4, 5, 6};
    for (int k = 0; k < 2; k++) {
        float y[N] = {0};
        run("graph @t {\n%x = input : f32[8]\n%y = cumsum %x {axis=0}\nreturn %y }", k, x, y, N);
        for (int i = 0; i < N; i++)
            CHECK_NEAR(y[i], want[i], 0);
    }
}

/* A NaN is the largest and the smallest, as in PyTorch; of several the first comes first. */
TEST(nan_is_the_largest)
{
    static const float x[N] = {1, NAN, 3, -2, NAN, 3, 0, -2};
    static const struct {
        const char *text;
        float want[5];
    } at[] = {
        {"graph @t {\n%x = input : f32[8]\n%v, %i = topk %x {axis=0, k=5}\n"
         "%y = cast %i {to=f32}\nreturn %y }",
            {1, 4, 2, 5, 0}},
        {"graph @t {\n%x = input : f32[8]\n%v, %i = topk %x {axis=0, k=5, largest=0}\n"
         "%y = cast %i {to=f32}\nreturn %y }",
            {3, 7, 6, 0, 2}},
    };
    for (int k = 0; k < 4; k++) {
        float y[5] = {0};
        run(at[k / 2].text, k % 2, x, y, 5);
        for (int i = 0; i < 5; i++)
            CHECK_NEAR(y[i], at[k / 2].want[i], 0);
    }
}

/* The indices of x in order, best first: a NaN is the largest, the lower index first among equals. */
static void sort_slowly(const float *x, int n, bool largest, float *index)
{
    for (int i = 0; i < n; i++) {
        int place = 0;
        for (int j = 0; j < n; j++) {
            bool tie = x[j] == x[i] || (isnan(x[j]) && isnan(x[i]));
            bool more = isnan(x[j]) ? !isnan(x[i]) : x[j] > x[i];
            bool less = isnan(x[i]) ? !isnan(x[j]) : x[j] < x[i];
            bool before = largest ? more : less;
            place += before || (tie && j < i);
        }
        index[place] = (float)i;
    }
}

/* Rows of several blocks and of several sorted runs, the last not full; many equal elements, NaN, and infinities. */
TEST(long_rows_are_sorted)
{
    enum { MOST = 300 };
    static const int at[][2] = {{64, 64}, {65, 65}, {129, 129}, {300, 300}, {300, 80}, {64, 3},
        {65, 9}, {100, 25}, {300, 75}, {300, 2}, {9, 9}};
    static float x[MOST], y[MOST], want[MOST];
    for (int i = 0; i < 4 * (int)NNC_COUNT(at); i++) {
        const int n = at[i / 4][0], k = at[i / 4][1];
        char text[256];
        for (int j = 0; j < n; j++) /* worse than 0, which a place after the row might have */
            x[j] = (float)(j * 7919 % 13 + 1) * (i / 2 % 2 ? -1 : 1);
        x[n / 3] = x[n / 2] = x[n - 3] = NAN;
        x[n / 4] = x[n - 2] = INFINITY;
        x[n - 1] = i / 2 % 2 ? -0.5F : 0.5F;
        x[1] = x[n / 3 + 1] = -INFINITY;
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[%d]\n%%v, %%i = topk %%x {axis=0, k=%d, largest=%d}\n"
            "%%y = cast %%i {to=f32}\nreturn %%y }",
            n, k, i / 2 % 2);
        sort_slowly(x, n, i / 2 % 2, want);
        run(text, i % 2, x, y, k);
        for (int j = 0; j < k; j++)
            CHECK_NEAR(y[j], want[j], 0);
    }
}

/* Indices of 8 bits into more elements than they count. */
TEST(narrow_indices_into_many)
{
    static const float x[N] = {50, 100, 150, 200, 250, 1, 2, 3};
    for (int k = 0; k < 2; k++) {
        float y[300] = {0};
        run("graph @t {\n%x = input : f32[8]\n%i = cast %x {to=u8}\n%j = reshape %i {shape=[8,1]}\n"
            "%o = constant : f32[] = [9]\n%b = broadcast %o {shape=[300]}\n"
            "%z = scatter_nd %b, %j, %x\nreturn %z }",
            k, x, y, 300);
        for (int i = 0; i < N; i++)
            CHECK_NEAR(y[(int)x[i]], x[i], 0);
    }
}
