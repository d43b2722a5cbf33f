/* tests/codegen/estimate.c -- expected times of kernels: what must cost more than what, and that sums stay in range. */
#include "help.h"

static const nnc_target *on = &ck_target;

/* Expected ns of the kernel in this text. */
static int64_t ns_of(const char *text, bool compiled)
{
    nnc_arena a;
    nnc_scan s;
    nnc_arena_init(&a, 0);
    nnc_sink_clear(test_sink);
    nnc_scan_init(&s, "k", text, strlen(text));
    nnc_kernel *k = nnc_schedule_parse(&s, &a, test_sink);
    nnc_target t = *on;
    t.n_engines = 1;
    t.engine[0] = (nnc_target_engine){.name = compiled ? "llvm" : "interp"};
    int64_t ns = k ? nnc_kernel_ns(k, &t, NULL, &a) : -1;
    CHECK(k != NULL);
    if (!k)
        nnc_sink_print(test_sink, stderr);
    nnc_arena_deinit(&a);
    return ns;
}

/* `rows` rows of `n` results: f(x) at strides, with these directives. */
static int64_t any_map_ns(
    int rows, int n, int stride, const char *op, const char *directives, bool compiled)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "kernel k {\n  axis i0 outer %d\n  axis m0 map %d\n  buf x0 in f32 %d\n"
        "  buf y0 out f32 %d\n  schedule %s parallel %d grain %d\n  stage m0 {\n"
        "    %%0 = load f32 x0[i0*%d + m0*%d]\n    %%1 = %s f32 %%0\n"
        "    %%2 = store f32 y0[i0*%d + m0] %%1\n  }\n}\n",
        rows, n, rows * n * stride, rows * n, directives, rows, rows, n * stride, stride, op, n);
    int64_t ns = ns_of(nnc_text_str(&t), compiled);
    nnc_text_deinit(&t);
    return ns;
}

static int64_t map_ns(int rows, int n, int stride, const char *op, const char *directives)
{
    return any_map_ns(rows, n, stride, op, directives, true);
}

static int64_t interpreted_ns(int rows, int n, int stride, const char *op)
{
    return any_map_ns(rows, n, stride, op, "vector m0 32", false);
}

TEST(expected_times_grow_with_work)
{
    int64_t one = map_ns(16, 1024, 1, "neg", "vector m0 32"), launch = nnc_target_start_ns(on, 1);
    CHECK(one > launch);
    int64_t two = map_ns(32, 1024, 1, "neg", "vector m0 32");
    CHECK(two - launch >= 2 * (one - launch) - 2 && two - launch <= 2 * (one - launch) + 2);
    CHECK(map_ns(16, 1024, 1, "exp", "vector m0 32") > one);
    CHECK(map_ns(16, 1024, 1, "neg", "vector m0 16") > one); /* more iterations */
    /* beyond the caches memory is what takes time */
    nnc_target slow = ck_target;
    slow.copy_bytes_s = 100000000;
    slow.l2_bytes = 1 << 20;
    on = &slow;
    CHECK(map_ns(16, 1024, 1, "neg", "vector m0 32") == one);
    CHECK(map_ns(16, 1 << 20, 1, "neg", "vector m0 32") >= 1000000000);
    on = &ck_target;
    CHECK(
        map_ns(16, 1024, 1, "log1p", "vector m0 32") > map_ns(16, 1024, 1, "exp", "vector m0 32"));
    CHECK(map_ns(16, 1024, 1, "sqrt", "vector m0 32") > one);
}

/* `rows` rows: erf(erf(x sum x)), whose instructions wait for each other; `apart`: a function of x, erf(x) erf(x + 1), which do not. */
static int64_t chain_ns(bool apart)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "kernel k {\n  axis i0 outer 64\n  axis m0 map 16\n  axis r0 reduce 16\n  buf x0 in f32 "
        "1024\n"
        "  buf y0 out f32 1024\n  schedule vector m0 16 parallel 64 grain 64\n  stage r0 {\n"
        "    %%0 = load f32 x0[i0*16 + r0]\n    %%1 = reduce sum f32 %%0\n  }\n  stage m0 {\n"
        "    %%2 = load f32 x0[i0*16 + m0]\n    %%3 = mul f32 %%2 %%1\n    %%4 = erf f32 %%%d\n"
        "    %%5 = erf f32 %%%d\n    %%6 = mul f32 %%4 %%5\n    %%7 = mul f32 %%6 %%3\n"
        "    %%8 = store f32 y0[i0*16 + m0] %%7\n  }\n}\n",
        apart ? 2 : 3, apart ? 2 : 4);
    int64_t ns = ns_of(nnc_text_str(&t), true);
    nnc_text_deinit(&t);
    return ns;
}

/* A row's instructions that wait for each other fill the schedulers of AMD's cores before the next row's begin. */
TEST(expected_times_see_chains)
{
    nnc_target amd = ck_target;
    amd.core = "amd";
    on = &amd;
    const int64_t chain = chain_ns(false), apart = chain_ns(true);
    on = &ck_target;
    CHECK(chain > apart + apart / 4);
}

/* The same number of elements: rows of 21 fill two of 16 lanes' vectors, and store one of them in part. */
TEST(expected_times_see_lanes_and_strides)
{
    int64_t full = map_ns(63, 32, 1, "exp", "vector m0 32");
    CHECK(map_ns(96, 21, 1, "exp", "vector m0 32") > full + full / 4);
    CHECK(map_ns(63, 31, 1, "exp", "vector m0 32") > full); /* as many vectors */
    CHECK(map_ns(63, 32, 2, "exp", "vector m0 32") > full);
    /* two elements are computed one by one */
    CHECK(map_ns(63, 2, 1, "exp", "vector m0 2") > map_ns(63, 4, 1, "exp", "vector m0 4"));
    CHECK(map_ns(63, 32, 7, "exp", "vector m0 32") > map_ns(63, 32, 2, "exp", "vector m0 32"));
    CHECK(ns_of("kernel k {\n  axis i0 outer 64\n  buf x0 in f32 64\n  buf y0 out f32 64\n"
                "  schedule vector i0 16 parallel 1 grain 1\n  stage {\n    %0 = load f32 x0[i0]\n"
                "    %1 = exp f32 %0\n    %2 = store f32 y0[i0] %1\n  }\n}\n",
              false) > 2 * ns_of("kernel k {\n  axis i0 outer 64\n  buf x0 in f32 64\n"
                                 "  buf y0 out f32 64\n  schedule vector i0 16 parallel 1 grain 1\n"
                                 "  stage {\n    %0 = load f32 x0[i0]\n    %1 = exp f32 %0\n"
                                 "    %2 = store f32 y0[i0] %1\n  }\n}\n",
                               true));
}

/* The interpreter starts each instruction once for a block of a row. */
TEST(expected_times_of_the_interpreter)
{
    int64_t row = interpreted_ns(1, 512, 1, "neg");
    CHECK(interpreted_ns(32, 16, 1, "neg") > 8 * row);
    CHECK(interpreted_ns(2, 512, 1, "neg") > row + row / 2 &&
          interpreted_ns(2, 512, 1, "neg") < 2 * row);
    CHECK(interpreted_ns(1, 512, 3, "neg") > row + row / 2);
    CHECK(interpreted_ns(1, 512, 1, "exp") > 4 * row);
    CHECK(interpreted_ns(1, 1024, 1, "exp") > interpreted_ns(1, 512, 1, "exp") + 3 * row);
    CHECK(row > map_ns(1, 512, 1, "neg", "vector m0 32"));
}

static int64_t rows_ns(const char *schedule)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "kernel k {\n  axis i0 outer 8\n  axis m0 map 3\n  axis m1 map 64\n  axis r0 reduce 3\n"
        "  axis m2 map 64\n  buf x0 in f32 640\n  buf y0 out f32 512\n  buf t0 tmp f32 192\n"
        "  schedule %s\n  stage m0 m1 {\n    %%0 = load f32 x0[i0*64 + m0*64 + m1]\n"
        "    %%1 = exp f32 %%0\n    %%2 = store f32 t0[m0*64 + m1] %%1\n  }\n"
        "  stage r0 m2 {\n    %%3 = load f32 t0[r0*64 + m2]\n    %%4 = reduce max f32 %%3\n"
        "  post\n    %%5 = store f32 y0[i0*64 + m2] %%4\n  }\n}\n",
        schedule);
    int64_t ns = ns_of(nnc_text_str(&t), true);
    nnc_text_deinit(&t);
    return ns;
}

TEST(expected_times_see_rings)
{
    int64_t ring = rows_ns("tile i0 8 vector m1 32 ring t0 i0 3 parallel 1 grain 1");
    CHECK(rows_ns("vector m1 32 parallel 8 grain 8") > ring + ring / 4);
}

/* Half the time on two threads, and what waking one takes. */
TEST(expected_times_see_threads)
{
    int64_t one = map_ns(64, 65536, 1, "exp", "vector m0 32");
    nnc_target single = ck_target;
    single.threads = 1;
    on = &single;
    int64_t alone = map_ns(64, 65536, 1, "exp", "vector m0 32");
    on = &ck_target;
    CHECK(one == alone); /* one grain: one thread */
    nnc_text t = {0};
    nnc_printf(&t, "%s",
        "kernel k {\n  axis i0 outer 64\n  axis m0 map 65536\n  buf x0 in f32 4194304\n"
        "  buf y0 out f32 4194304\n  schedule vector m0 32 parallel 64 grain 1\n  stage m0 {\n"
        "    %0 = load f32 x0[i0*65536 + m0]\n    %1 = log1p f32 %0\n"
        "    %2 = store f32 y0[i0*65536 + m0] %1\n  }\n}\n");
    int64_t both = ns_of(nnc_text_str(&t), true);
    on = &single;
    alone = ns_of(nnc_text_str(&t), true);
    on = &ck_target;
    nnc_text_deinit(&t);
    CHECK(both < alone && both >= alone / 2);
}

/* Loads along the other axis, one by one and in square tiles. */
TEST(expected_times_see_square_tiles)
{
#define SWAPPED(transpose) \
    "kernel k { axis i0 outer 32 axis i1 outer 64 buf x0 in f32 2048 buf y0 out f32 2048\n" \
    "schedule tile i0 16 tile i1 16 vector i1 16" transpose " parallel 8 grain 8\n" \
    "stage { %0 = load f32 x0[i1*32 + i0] %1 = store f32 y0[i0*64 + i1] %0 } }"
    CHECK(ns_of(SWAPPED(" transpose i0"), true) < ns_of(SWAPPED(""), true));
#undef SWAPPED
}

/* 4096 rows of n numbers, of which a vector's lanes are combined at the end. */
static int64_t combined_ns(const char *how, int n, int width)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "kernel k {\n  axis i0 outer 4096\n  axis r0 reduce %d\n  buf x0 in f32 %d\n"
        "  buf y0 out f32 4096\n  schedule vector r0 %d parallel 4096 grain 4096\n  stage r0 {\n"
        "    %%0 = load f32 x0[i0*%d + r0]\n    %%1 = reduce %s f32 %%0\n  post\n"
        "    %%2 = store f32 y0[i0] %%1\n  }\n}\n",
        n, 4096 * n, width, n, how);
    int64_t ns = ns_of(nnc_text_str(&t), true);
    nnc_text_deinit(&t);
    return ns;
}

TEST(expected_times_see_lanes_that_are_combined)
{
    CHECK(combined_ns("max", 32, 16) > combined_ns("sum", 32, 16) + 5000);
    CHECK(combined_ns("sum", 5, 32) == combined_ns("sum", 5, 8)); /* a vector fits the row */
}

/* Each function waits for the one before it: a row of four vectors hides that, a row of one does not. */
TEST(expected_times_see_functions_that_wait)
{
    enum { CHAIN = 32 };
    int64_t ns[2];
    for (int k = 0; k < 2; k++) {
        int n = k ? 64 : 16;
        nnc_text t = {0};
        nnc_printf(&t,
            "kernel k {\n  axis i0 outer 64\n  axis m0 map %d\n  buf x0 in f32 %d\n"
            "  buf y0 out f32 %d\n  schedule vector m0 16 parallel 64 grain 64\n  stage m0 {\n"
            "    %%0 = load f32 x0[i0*%d + m0]\n",
            n, 64 * n, 64 * n, n);
        for (int i = 0; i < CHAIN; i++)
            nnc_printf(&t, "    %%%d = log1p f32 %%%d\n", i + 1, i);
        nnc_printf(&t, "    %%%d = store f32 y0[i0*%d + m0] %%%d\n  }\n}\n", CHAIN + 1, n, CHAIN);
        ns[k] = ns_of(nnc_text_str(&t), true);
        nnc_text_deinit(&t);
    }
    CHECK(ns[1] > ns[0] && ns[1] < 3 * ns[0]);
}

/* AMD's gathers take longer than Intel's, its loads no longer; beyond the nearest cache a byte has its price. */
TEST(expected_times_are_those_of_the_core)
{
    int64_t near = map_ns(16, 64, 1, "neg", "vector m0 32"), apart, large;
    nnc_target amd = ck_target;
    amd.core = "amd";
    amd.l1_bytes = 32 << 10;
    apart = map_ns(16, 64, 7, "neg", "vector m0 32");
    large = map_ns(16, 4096, 1, "neg", "vector m0 32");
    on = &amd;
    CHECK(map_ns(16, 64, 1, "neg", "vector m0 32") <= near);
    CHECK(map_ns(16, 64, 7, "neg", "vector m0 32") > apart + apart / 2);
    CHECK(map_ns(16, 4096, 1, "neg", "vector m0 32") > large + large / 4);
    amd.l1_bytes = 1 << 20;
    CHECK(map_ns(16, 4096, 1, "neg", "vector m0 32") < large);
    on = &ck_target;
}

/* Rows that an index chooses are contiguous; elements that it chooses are not. */
TEST(expected_times_see_what_an_index_chooses)
{
#define CHOSEN(index, at) \
    "kernel k { axis i0 outer 64 axis m0 map 64 buf x0 in f32 4096 buf x1 in i32 64\n" \
    "buf y0 out f32 4096 schedule vector m0 32 parallel 64 grain 64\n" \
    "stage m0 { %0 = load i32 x1[" index "] %1 = load f32 x0[" at " : %0*64 below 64]\n" \
    "%2 = store f32 y0[i0*64 + m0] %1 } }"
    CHECK(2 * ns_of(CHOSEN("i0", "m0"), true) < ns_of(CHOSEN("m0", "0"), true));
#undef CHOSEN
}

TEST(expected_times_saturate)
{
    int64_t ns = ns_of("kernel k {\n  axis i0 outer 1048576\n  axis m0 map 1048576\n"
                       "  buf x0 in f32 1\n  buf y0 out f32 1099511627776\n"
                       "  schedule vector m0 16 parallel 1048576 grain 1\n  stage m0 {\n"
                       "    %0 = load f32 x0[0]\n    %1 = pow f32 %0 %0\n"
                       "    %2 = store f32 y0[i0*1048576 + m0] %1\n  }\n}\n",
        true);
    CHECK(ns > INT64_C(1000000000));
}

/* 64 rows of one vector each, `pitch` elements apart, copied in turn. */
static int64_t columns_ns(int pitch)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "kernel k {\n  axis i0 outer 32\n  axis m0 map 64\n  buf x0 in f32 %d\n  buf y0 out f32 "
        "%d\n"
        "  schedule vector i0 32 parallel 1 grain 1\n  stage m0 {\n    %%0 = load f32 x0[i0 + "
        "m0*%d]\n"
        "    %%1 = store f32 y0[i0 + m0*%d] %%0\n  }\n}\n",
        64 * pitch, 64 * pitch, pitch, pitch);
    int64_t ns = ns_of(nnc_text_str(&t), true);
    nnc_text_deinit(&t);
    return ns;
}

TEST(expected_times_see_rows_in_pages_of_their_own)
{
    int64_t near = columns_ns(32), far = columns_ns(1024);
    CHECK(far > near + near / 4);
}

/* Rows of `n` numbers of which windows of 3 read a local copy, at strides of `step`. */
static int64_t windows_ns(int step)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "kernel k {\n  axis i0 outer 500\n  axis m0 map 9\n  axis r0 reduce 3\n  axis m1 map 4\n"
        "  buf x0 in f32 4500\n  buf y0 out f32 2000\n  buf t0 tmp f32 9\n"
        "  schedule vector m0 32 parallel 500 grain 500\n  stage m0 {\n"
        "    %%0 = load f32 x0[i0*9 + m0]\n    %%1 = neg f32 %%0\n"
        "    %%2 = store f32 t0[m0] %%1\n  }\n  stage r0 m1 {\n"
        "    %%3 = load f32 t0[r0*%d + m1]\n    %%4 = reduce max f32 %%3\n  post\n"
        "    %%5 = store f32 y0[i0*4 + m1] %%4\n  }\n}\n",
        step);
    int64_t ns = ns_of(nnc_text_str(&t), true);
    nnc_text_deinit(&t);
    return ns;
}

/* A load at another offset than the store before it waits until that has reached the cache. */
TEST(expected_times_see_windows_of_what_was_just_stored)
{
    CHECK(windows_ns(1) > windows_ns(0) + 500);
}

/* ln(1 + e^x) becomes a polynomial; ln(1 + x) of any x does not. */
TEST(expected_times_see_that_softplus_is_a_polynomial)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "kernel k {\n  axis i0 outer 1\n  axis m0 map 8192\n  buf x0 in f32 8192\n"
        "  buf y0 out f32 8192\n  schedule vector m0 64 parallel 1 grain 1\n  stage m0 {\n"
        "    %%0 = load f32 x0[m0]\n    %%1 = exp f32 %%0\n    %%2 = log1p f32 %%1\n"
        "    %%3 = store f32 y0[m0] %%2\n  }\n}\n");
    const int64_t softplus = ns_of(nnc_text_str(&t), true);
    nnc_text_deinit(&t);
    CHECK(softplus < map_ns(1, 8192, 1, "log1p", "vector m0 64"));
}

/* Rows of 24: the sum of their magnitudes, by whose root they are divided. */
static int64_t at_once_ns(const char *schedule, const nnc_target *t)
{
    nnc_text x = {0};
    const nnc_target *was = on;
    nnc_printf(&x,
        "kernel k {\n  axis i0 outer 256\n  axis m0 map 24\n  axis r0 reduce 24\n"
        "  buf x0 in f32 6144\n  buf y0 out f32 6144\n  schedule %s grain 256\n  stage r0 {\n"
        "    %%0 = load f32 x0[i0*24 + r0]\n    %%1 = abs f32 %%0\n    %%2 = reduce sum f32 %%1\n"
        "  post\n    %%3 = sqrt f32 %%2\n  }\n  stage m0 {\n    %%4 = load f32 x0[i0*24 + m0]\n"
        "    %%5 = div f32 %%4 %%3\n    %%6 = store f32 y0[i0*24 + m0] %%5\n  }\n}\n",
        schedule);
    on = t;
    const int64_t ns = ns_of(nnc_text_str(&x), true);
    on = was;
    nnc_text_deinit(&x);
    return ns;
}

/* The chains of rows at once run beside each other, on Intel's and on AMD's cores. */
TEST(expected_times_see_rows_at_once)
{
    nnc_target amd = ck_target;
    amd.core = "amd";
    const nnc_target *const at[] = {&ck_target, &amd};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        const int64_t one = at_once_ns("vector m0 16 parallel 256", at[i]),
                      two = at_once_ns("tile i0 256 vector m0 16 unroll i0 2 parallel 1", at[i]),
                      four = at_once_ns("tile i0 256 vector m0 16 unroll i0 4 parallel 1", at[i]);
        CHECK(four <= two && two < one);
    }
}
