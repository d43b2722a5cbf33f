/* tests/cudac/share.c -- kernels that differ only in extents and constants are one function, which computes what each of them does. */
#include "ct.h"

/* Adds a fused kernel for each of three shapes. */
static void add_shapes(ct_set *s, const char *fmt, const int shape[3][2])
{
    for (int i = 0; i < 3; i++) {
        char text[512];
        const int r = shape[i][0], c = shape[i][1];
        snprintf(text, sizeof text, fmt, r, c, c, 0.5 / r);
        ct_add_fused(s, text);
    }
}

/* Scaled and cast rows with a number for each column: a point's column is a remainder. */
#define POINTS \
    "graph @t {\n%%x = input : f32[%d,%d]\n%%b = input : f32[%d]\n" \
    "%%s = constant : f32[] = [%.9g]\n%%a = add %%x, %%b\n%%m = mul %%a, %%s\n" \
    "%%y = cast %%m {to=bf16}\nreturn %%y }"
/* Means of columns, split over blocks, and what two of them give. */
#define COLUMNS \
    "graph @t {\n%%x = input : f32[%d,%d]\n%%b = input : f32[%d]\n" \
    "%%s = constant : f32[] = [%.9g]\n%%q = mul %%x, %%x\n" \
    "%%t = reduce_sum %%x {axes=[0], keepdims=0}\n%%u = reduce_sum %%q {axes=[0], keepdims=0}\n" \
    "%%m = mul %%t, %%s\n%%n = mul %%u, %%s\n%%v = add %%m, %%n\n%%y = add %%v, %%b\n" \
    "return %%y }"

static bool has(const char *code, char letter)
{
    const char mark[3] = {' ', letter, 0};
    return code && strstr(code, mark);
}

static bool same_function(const char *a, const char *b)
{
    const size_t n = a ? strcspn(a, " ") : 0;
    return b && n && strcspn(b, " ") == n && !strncmp(a, b, n);
}

/* Do the three kernels from `first` on share a function whose sizes are of these kinds? */
static void check_shared(const ct_set *s, const char *const *code, int first, const char *kinds)
{
    CHECK(same_function(code[first], code[first + 1]));
    CHECK(same_function(code[first], code[first + 2]));
    for (const char *p = "idpf"; *p; p++)
        if (has(code[first], *p) != !!strchr(kinds, *p))
            test_fail(__FILE__, __LINE__, "%s: %c, not %s: %s", s->k[first]->name, *p, kinds,
                code[first] ? code[first] : "(own)");
}

TEST(kernels_share_functions)
{
    static const int powers[3][2] = {{96, 64}, {40, 128}, {8, 256}},
                     others[3][2] = {{96, 48}, {40, 96}, {8, 224}};
    ct_set s = {.tiny = true};
    const char *code[6] = {0};
    nnc_arena a = {0};
    add_shapes(&s, POINTS, powers);
    add_shapes(&s, POINTS, others);
    CHECK_INT(s.n, 6);
    CHECK_OK(nnc_cuda_share(s.k, s.n, &a, code, test_sink));
    if (s.n == 6) {
        check_shared(&s, code, 0, "ipf"); /* shifts and masks: shorter than dividing */
        check_shared(&s, code, 3, "idf");
    }
    nnc_arena_deinit(&a);
    ct_all_agree(&s);
}

/* The second launch's sizes are those of the first. */
TEST(split_columns_share_functions)
{
    static const int shape[3][2] = {{900, 256}, {700, 512}, {1000, 640}};
    ct_set s = {.sms = 4};
    const char *code[3] = {0};
    nnc_arena a = {0};
    add_shapes(&s, COLUMNS, shape);
    CHECK_INT(s.n, 3);
    CHECK_OK(nnc_cuda_share(s.k, s.n, &a, code, test_sink));
    for (int i = 0; i < s.n; i++)
        CHECK(s.k[i]->grid.cls == KC_column && s.k[i]->grid.split > 1 && s.k[i]->grid.finish > 0);
    if (s.n == 3)
        check_shared(&s, code, 0, "ipf"); /* splits of 4 and 2 */
    nnc_arena_deinit(&a);
    ct_all_agree(&s);
}

/* Dividing by a size is what C's division is, for all numbers below 2^31. */
TEST(sizes_divide)
{
    for (int64_t d = 1; d <= INT32_MAX; d += d < 3000 ? 1 : d / 3) {
        char text[24];
        uint32_t arg[3] = {0};
        const bool power = !(d & (d - 1));
        snprintf(text, sizeof text, " %c%lld", power ? 'p' : 'd', (long long)d);
        const char *at = text;
        CHECK_INT(nnc_cuda_argument(&at, arg), power ? 8 : 12);
        CHECK(*at == 0 && arg[0] == d);
        for (int64_t q = 0; q <= INT32_MAX / d; q += 1 + q / 2)
            for (int64_t x = q * d - 1; x <= q * d + 1; x++) {
                if (x < 0 || x > INT32_MAX)
                    continue;
                const int64_t got =
                    power ? x >> arg[1] : (int64_t)((uint64_t)x * arg[1] >> 32 >> arg[2]);
                if (got != x / d) {
                    CHECK_INT(got, x / d);
                    return;
                }
            }
        const int64_t most = INT32_MAX;
        CHECK_INT(
            power ? most >> arg[1] : (int64_t)((uint64_t)most * arg[1] >> 32 >> arg[2]), most / d);
    }
}

TEST(sizes_that_are_none)
{
    static const char *const bad[] = {" i", " x3", "i3", " i-1", " i2147483648", " d4", " d1",
        " p3", " p0", " f100000000", " i3x", "  i3", " ", " d0"};
    char out[NNC_CUDA_ARGUMENT];
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        const char *at = bad[i];
        if (nnc_cuda_argument(&at, out))
            test_fail(__FILE__, __LINE__, "\"%s\" is read", bad[i]);
    }
    const char *two = " i3 f3f800000";
    float one;
    CHECK_INT(nnc_cuda_argument(&two, out), 4);
    CHECK_INT(nnc_cuda_argument(&two, out), 4);
    memcpy(&one, out, sizeof one);
    CHECK(one == 1 && !*two && !nnc_cuda_argument(&two, out));
}
