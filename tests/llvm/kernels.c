/* tests/llvm/kernels.c -- emitted kernels against the point-by-point oracle: tails, broadcasts,
 * strides, reductions, guards, indirect loads, every type, for the host and for narrower
 * targets. */
#include "kb.h"
#include "schedule/schedule.h"

#include <math.h>
#include <sys/mman.h>

static kb b;

#define AT(...) ((nnc_affine){__VA_ARGS__})

/* The host as it is; without FMA, F16C and with 256-bit vectors; a plain x86-64. */
static nnc_target target(int which)
{
    nnc_target t = which == 2 ? kb_plain() : *kb_host();
    if (which == 1) {
        t.fma = t.f16c = false;
        t.vector_bits = nnc_min64(t.vector_bits, 256);
    }
    return t;
}

static void chain(int64_t n, nnc_dtype in, nnc_dtype out, int width, int64_t chunk)
{
    kb_init(&b, "k_chain");
    int a = kb_axis(&b, KA_outer, n);
    int x = kb_buf(&b, KB_in, in, n), y = kb_buf(&b, KB_in, DT_f32, 1),
        z = kb_buf(&b, KB_out, out, n);
    kb_stage(&b, 0);
    int v = kb_load(&b, x, AT(.k = {1})), s = kb_load(&b, y, AT(.c = 0));
    int m = kb_op(&b, SC_mul, DT_f32, v, s, -1), zero = kb_fconst(&b, DT_f32, 0);
    kb_store(&b, z, AT(.k = {1}), kb_op(&b, SC_max, DT_f32, m, zero, -1));
    kb_done(&b, a, width, chunk);
}

TEST(tails_of_every_length)
{
    for (int which = 0; kb_emitter() && which < 3; which++) {
        nnc_target t = target(which);
        for (int64_t n = 1; n <= 130; n += which ? 7 : 1) {
            chain(n, DT_f32, DT_f32, 32, 0);
            if (!kb_check(&b, &t, 0, 0, 1))
                return;
        }
        static const int64_t at[][2] = {
            {1000, 64}, {1024, 64}, {1001, 24}, {70, 64}, {64, 64}, {65, 64}};
        for (size_t i = 0; i < NNC_COUNT(at); i++) {
            chain(at[i][0], DT_f32, DT_f32, 64, at[i][1]);
            CHECK(kb_check(&b, &t, 0, 0, 2));
        }
    }
}

TEST(half_formats)
{
    for (int which = 0; kb_emitter() && which < 3; which++) {
        nnc_target t = target(which);
        for (int64_t n = 5; n < 80; n += 31) {
            chain(n, DT_f16, DT_bf16, 16, 0);
            CHECK(kb_check(&b, &t, 0, 0, 1));
            chain(n, DT_bf16, DT_f16, 32, 0);
            CHECK(kb_check(&b, &t, 0, 0, 1));
        }
    }
}

/* All 2^16 patterns of the 16-bit formats up to f32, and f32 values around every rounding
 * boundary down again. */
static void sixteen(const nnc_target *t, nnc_dtype d)
{
    enum { N = 65536 };
    static uint16_t h[N], g[4 * N];
    static float f[N], v[4 * N];
    for (int up = 0; up < 2; up++) {
        int64_t n = up ? N : 4 * N;
        kb_code c;
        kb_init(&b, "k_16");
        int a = kb_axis(&b, KA_outer, n);
        int x = kb_buf(&b, KB_in, up ? d : DT_f32, n), y = kb_buf(&b, KB_out, up ? DT_f32 : d, n);
        kb_stage(&b, 0);
        kb_store(&b, y, AT(.k = {1}), kb_load(&b, x, AT(.k = {1})));
        kb_done(&b, a, 32, 0);
        if (!kb_compile(&b, t, &c))
            return;
        for (int i = 0; i < N; i++)
            h[i] = (uint16_t)i;
        for (int i = 0; i < 4 * N; i++) { /* at and beside each number, and half way to the next */
            uint32_t u;
            float w = d == DT_f16 ? nnc_f16_to_f32((uint16_t)(i / 4))
                                  : nnc_bf16_to_f32((uint16_t)(i / 4));
            memcpy(&u, &w, 4);
            u += (uint32_t[]){
                0, d == DT_f16 ? 0xfff : 0x7fff, d == DT_f16 ? 0x1000 : 0x8000, 0x1001}[i % 4];
            memcpy(&v[i], &u, 4);
        }
        void *args[2] = {up ? (void *)h : v, up ? (void *)f : g};
        c.fn(args, 0, 1, NULL);
        for (int i = 0; i < n; i++) {
            float w = d == DT_f16 ? nnc_f16_to_f32(h[i % N]) : nnc_bf16_to_f32(h[i % N]);
            uint16_t r = d == DT_f16 ? nnc_f32_to_f16(v[i]) : nnc_f32_to_bf16(v[i]);
            bool nan = isnan(up ? w : v[i]);
            float back = d == DT_f16 ? nnc_f16_to_f32(g[i]) : nnc_bf16_to_f32(g[i]);
            if (up ? !(f[i] == w || (nan && isnan(f[i]))) : !(g[i] == r || (nan && isnan(back)))) {
                test_fail(__FILE__, __LINE__, "%s %s: wrong at %d", nnc_dtype_name(d),
                    up ? "up" : "down", i);
                break;
            }
        }
        kb_free(&c);
    }
}

TEST(sixteen_bit_rounding)
{
    for (int which = 0; kb_emitter() && which < 2; which++) {
        nnc_target t = target(which);
        sixteen(&t, DT_f16);
        sixteen(&t, DT_bf16);
    }
}

/* y[c, r] = x[r, c] + row[c] - col[r] */
TEST(broadcast_and_transpose)
{
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (int vec = -1; vec < 2; vec++) {
            nnc_target t = target(which);
            int64_t R = 13, C = 37;
            kb_init(&b, "k_transpose");
            int r = kb_axis(&b, KA_outer, R);
            kb_axis(&b, KA_outer, C);
            int x = kb_buf(&b, KB_in, DT_f32, R * C), row = kb_buf(&b, KB_in, DT_f32, C);
            int col = kb_buf(&b, KB_in, DT_f32, R), y = kb_buf(&b, KB_out, DT_f32, R * C);
            kb_stage(&b, 0);
            int v = kb_load(&b, x, AT(.k = {C, 1}));
            v = kb_op(&b, SC_add, DT_f32, v, kb_load(&b, row, AT(.k = {0, 1})), -1);
            v = kb_op(&b, SC_sub, DT_f32, v, kb_load(&b, col, AT(.k = {1, 0})), -1);
            kb_store(&b, y, AT(.k = {1, R}), v);
            kb_done(&b, vec, 16, vec == r ? 0 : 16);
            CHECK(kb_check(&b, &t, 0, 0, 1));
        }
}

/* y[i] = x[n-1-i]; z[i] = x[3 i] */
TEST(flip_and_stride)
{
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (int64_t n = 1; n < 70; n += 11) {
            nnc_target t = target(which);
            kb_init(&b, "k_flip");
            int a = kb_axis(&b, KA_outer, n);
            int x = kb_buf(&b, KB_in, DT_f32, 3 * n), y = kb_buf(&b, KB_out, DT_f32, n);
            int z = kb_buf(&b, KB_out, DT_f32, n);
            kb_stage(&b, 0);
            kb_store(&b, y, AT(.c = n - 1, .k = {-1}), kb_load(&b, x, AT(.k = {1})));
            kb_store(&b, z, AT(.k = {1}), kb_load(&b, x, AT(.c = n - 1, .k = {-1})));
            kb_store(&b, z, AT(.k = {1}), kb_load(&b, x, AT(.k = {3})));
            kb_done(&b, a, 16, 0);
            CHECK(kb_check(&b, &t, 0, 0, 1));
        }
}

static void softmax(int64_t rows, int64_t cols, int width)
{
    kb_init(&b, "k_softmax");
    kb_axis(&b, KA_outer, rows);
    int c0 = kb_axis(&b, KA_reduce, cols), c1 = kb_axis(&b, KA_reduce, cols);
    int c2 = kb_axis(&b, KA_map, cols);
    int x = kb_buf(&b, KB_in, DT_f32, rows * cols), y = kb_buf(&b, KB_out, DT_f32, rows * cols);
    int tmp = kb_buf(&b, KB_tmp, DT_f32, cols);
    kb_stage(&b, 1u << c0);
    int m = kb_reduce(&b, KR_max, DT_f32, kb_load(&b, x, AT(.k = {cols, 1})), -1);
    kb_stage(&b, 1u << c1);
    int d = kb_op(&b, SC_sub, DT_f32, kb_load(&b, x, AT(.k = {cols, 0, 1})), m, -1);
    int e = kb_op(&b, SC_exp, DT_f32, d, -1, -1);
    kb_store(&b, tmp, AT(.k = {0, 0, 1}), e);
    int s = kb_reduce(&b, KR_sum, DT_f32, e, -1);
    kb_post(&b);
    int r = kb_op(&b, SC_recip, DT_f32, s, -1, -1);
    kb_stage(&b, 1u << c2);
    int q = kb_op(&b, SC_mul, DT_f32, kb_load(&b, tmp, AT(.k = {0, 0, 0, 1})), r, -1);
    kb_store(&b, y, AT(.k = {cols, 0, 0, 1}), q);
    kb_done(&b, width ? c2 : -1, width, 0);
}

TEST(softmax_in_three_stages)
{
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (int64_t n = 1; n < 140; n += 9) {
            nnc_target t = target(which);
            softmax(5, n, n % 2 ? 32 : 16);
            if (!kb_check(&b, &t, 3e-7 * 8, 1e-12, 2))
                return;
        }
    nnc_target t = target(0);
    softmax(3, 1000, 0);
    CHECK(kb_emitter() == NULL || kb_check(&b, &t, 1e-5, 1e-12, 2));
}

/* The same softmax, n rows at once in blocks of `tile`; the same bits as row by row. */
static bool same_at_once(int64_t rows, int64_t cols, int n, int64_t tile, const nnc_target *t)
{
    static float x[11 * 140], y[2][11 * 140];
    static _Alignas(64) char scratch[4 << 10];
    bool done = true;
    for (size_t i = 0; i < NNC_COUNT(x); i++)
        x[i] = (float)((int64_t)(i * 7919 % 1009) - 500) / 128;
    memset(y, 0, sizeof y);
    for (int at_once = 0; done && at_once < 2; at_once++) {
        kb_code c;
        void *args[2] = {x, y[at_once]};
        softmax(rows, cols, 32);
        if (at_once) {
            nnc_sched_put(&b.k.sched, KD_tile, 0, tile);
            nnc_sched_put(&b.k.sched, KD_unroll, 0, n);
            b.k.sched.domain = nnc_kernel_domain(&b.k);
            b.k.scratch_bytes = nnc_kernel_scratch(&b.k);
        }
        CHECK_INT(nnc_kernel_scratch(&b.k), (at_once ? n : 1) * nnc_align_up(4 * cols, 64));
        CHECK_OK(nnc_schedule_verify(&b.k, test_sink));
        done = nnc_kernel_scratch(&b.k) <= (int64_t)sizeof scratch && kb_compile(&b, t, &c);
        if (!done)
            break;
        c.fn(args, 0, b.k.sched.domain, scratch);
        kb_free(&c);
        done = kb_check(&b, t, 3e-7 * 8, 1e-12, 2);
    }
    return done && memcmp(y[0], y[1], sizeof y[0]) == 0 && y[0][0] != 0;
}

/* Blocks of one and of several strips, whole ones and with rows that are left, and fewer rows than a strip has. */
TEST(rows_at_once)
{
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (int64_t cols = 3; cols < 140; cols += 67) {
            if (!test_takes((uint64_t)(which + cols / 67), 3))
                continue;
            nnc_target t = target(which);
            CHECK(same_at_once(11, cols, 2, 2, &t));
            CHECK(same_at_once(5, cols, 3, 6, &t));
            CHECK(same_at_once(11, cols, 4, 12, &t));
            CHECK(same_at_once(3, cols, 4, 4, &t));
        }
}

static const nnc_kred reds[] = {KR_sum, KR_prod, KR_max, KR_min, KR_argmax, KR_argmin};

/* Reduction of R x C over rows (columns stay) or over columns, of every kind; `vec`: 0 outer, 1
 * the reduce axis. */
static void reduction(nnc_dtype d, nnc_kred k, int64_t R, int64_t C, bool columns, bool vec)
{
    bool arg = k == KR_argmax || k == KR_argmin;
    nnc_dtype od = arg ? DT_i64 : d;
    kb_init(&b, "k_reduce");
    int o = kb_axis(&b, KA_outer, columns ? C : R), r = kb_axis(&b, KA_reduce, columns ? R : C);
    int x = kb_buf(&b, KB_in, d, R * C), y = kb_buf(&b, KB_out, od, columns ? C : R);
    kb_stage(&b, 1u << r);
    int v = kb_load(&b, x, columns ? AT(.k = {1, C}) : AT(.k = {C, 1}));
    v = kb_reduce(&b, k, arg ? DT_i64 : b.ins[v].dtype, v, -1);
    kb_post(&b);
    kb_store(&b, y, AT(.k = {1}), v);
    kb_done(&b, vec ? r : o, 16, 0);
}

TEST(reductions_of_every_type)
{
    static const nnc_dtype types[] = {DT_f32, DT_f64, DT_i8, DT_i16, DT_i32, DT_i64, DT_u8, DT_u16,
        DT_u32, DT_u64, DT_bool, DT_bf16};
    for (size_t d = 0; kb_emitter() && d < NNC_COUNT(types); d++)
        for (size_t k = 0; k < NNC_COUNT(reds); k++)
            for (int way = 0; way < 4; way++) {
                if (!test_takes(d + k + (uint64_t)way, 3))
                    continue;
                nnc_target t = target(way == 3 && d % 3 == 0 ? 2 : 0);
                int64_t C = way < 2 ? 45 : 67;
                reduction(types[d], reds[k], way == 1 ? 3 : 9, C, way & 1, way & 2);
                if (!kb_check(&b, &t, 1e-5, 1e-6, 3))
                    test_fail(__FILE__, __LINE__, "%s kind %d way %d", nnc_dtype_name(types[d]),
                        (int)reds[k], way);
            }
}

/* Two outer axes and columns, two sums of one body: of squares from a column's centre where x is
 * above it, and the largest x. */
static void spread(int64_t N, int64_t R, int64_t C, int width, int64_t chunk, int block)
{
    kb_init(&b, "k_spread");
    int o = kb_axis(&b, KA_outer, N), c = kb_axis(&b, KA_outer, C), r = kb_axis(&b, KA_reduce, R);
    int x = kb_buf(&b, KB_in, DT_f32, N * R * C), m = kb_buf(&b, KB_in, DT_f32, C);
    int y = kb_buf(&b, KB_out, DT_f32, N * C);
    kb_stage(&b, 1u << r);
    int v = kb_load(&b, x, AT(.k = {R * C, 1, C})), centre = kb_load(&b, m, AT(.k = {0, 1}));
    int d = kb_op(&b, SC_sub, DT_f32, v, centre, -1);
    int above = kb_op(&b, SC_gt, DT_bool, v, centre, -1);
    int s = kb_reduce(&b, KR_sum, DT_f32, kb_op(&b, SC_mul, DT_f32, d, d, -1), above);
    int most = kb_reduce(&b, KR_max, DT_f32, v, -1);
    kb_post(&b);
    kb_store(&b, y, AT(.k = {C, 1}), kb_op(&b, SC_add, DT_f32, s, most, -1));
    kb_done(&b, c, width, chunk);
    if (block)
        nnc_sched_put(&b.k.sched, KD_tile, r, block);
    CHECK(o == 0 && (!block || nnc_kernel_blocked_ok(&b.k)));
}

/* y[n, c, p] = sum over r of x[n, c + r] w[r, p], with a border of which half counts as 0. */
static void product(int64_t N, int64_t C, int64_t P, int64_t R)
{
    kb_init(&b, "k_product");
    int n = kb_axis(&b, KA_outer, N), c = kb_axis(&b, KA_outer, C), p = kb_axis(&b, KA_outer, P);
    int r = kb_axis(&b, KA_reduce, R);
    int x = kb_buf(&b, KB_in, DT_f32, N * C), w = kb_buf(&b, KB_in, DT_f32, R * P);
    int y = kb_buf(&b, KB_out, DT_f32, N * C * P);
    kb_stage(&b, 1u << r);
    int zero = kb_fconst(&b, DT_f32, 0);
    const nnc_kguard inside = {.e = {.c = -1, .k = {0, 1, 0, 1}}, .lo = 0, .hi = C};
    int at = kb_load_if(&b, x, AT(.c = -1, .k = {C, 1, 0, 1}), zero, &inside, 1);
    int by = kb_load(&b, w, AT(.k = {0, 0, 1, P}));
    int s = kb_reduce(&b, KR_sum, DT_f32, kb_op(&b, SC_fma, DT_f32, at, by, zero), -1);
    kb_post(&b);
    kb_store(
        &b, y, AT(.k = {C * P, P, 1}), kb_op(&b, SC_max, DT_f32, s, kb_fconst(&b, DT_f32, 0), -1));
    CHECK(n == 0 && c == 1 && p == 2);
}

/* Blocks of several axes, units in any order, neighbours unrolled: the same numbers, whole blocks and broken ones. */
TEST(directives)
{
    static const struct {
        int64_t N, C, P, R;
        int width;
        int64_t tile[3];
        int unroll, order[3];
    } at[] = {{3, 17, 40, 5, 16, {2, 4, 16}, 0, {2, 0, 1}},
        {2, 30, 64, 3, 32, {0, 10, 32}, 5, {1, 2, 0}},
        {1, 29, 48, 3, 32, {0, 28, 0}, 14, {0, 1, 2}}, {4, 7, 33, 6, 16, {3, 14, 16}, 7, {2, 1, 0}},
        {2, 13, 20, 4, 16, {1, 6, 0}, 6, {0, 1, 2}}, {3, 2, 16, 3, 16, {0, 4, 0}, 4, {0, 2, 1}}};
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (size_t i = 0; i < NNC_COUNT(at); i++) {
            if (!test_takes((uint64_t)which + i, 3))
                continue;
            nnc_target t = target(which);
            product(at[i].N, at[i].C, at[i].P, at[i].R);
            kb_done(&b, 2, at[i].width, 0);
            nnc_kschedule *s = &b.k.sched;
            s->domain = 1;
            for (int a = 0; a < 3; a++) {
                int64_t tile = at[i].tile[a], n = b.k.axis[a].extent;
                if (tile)
                    CHECK(nnc_sched_put(s, KD_tile, a, tile));
                s->domain *= tile ? (n + tile - 1) / tile : a == 2 ? 1 : n;
                CHECK(nnc_sched_put(s, KD_order, at[i].order[a], 0));
            }
            if (at[i].unroll)
                CHECK(nnc_sched_put(s, KD_unroll, 1, at[i].unroll));
            CHECK_OK(nnc_kernel_verify(&b.k, test_sink));
            if (!kb_check(&b, &t, 1e-5, 1e-5, 2))
                test_fail(__FILE__, __LINE__, "case %d", (int)i);
        }
}

/* The same bits by blocks as column by column? Of numbers whose sums are exact: blocks are partial sums. */
static bool same_by_blocks(int64_t R, int64_t C, const nnc_target *t)
{
    static float x[3 * 23 * 130], centre[130], y[2][3 * 130];
    bool done = true;
    for (size_t i = 0; i < NNC_COUNT(x); i++)
        x[i] = (float)((int64_t)(i * 7919 % 1009) - 500) / 128;
    memset(y, 0, sizeof y);
    for (int block = 0; done && block < 2; block++) {
        kb_code c;
        void *args[3] = {x, centre, y[block]};
        spread(3, R, C, 32, 64, 8 * block);
        done = kb_compile(&b, t, &c);
        if (!done)
            break;
        c.fn(args, 0, b.k.sched.domain, NULL);
        kb_free(&c);
    }
    return done && memcmp(y[0], y[1], sizeof y[0]) == 0 && y[0][0] != 0;
}

/* Sums over columns by blocks of rows: every kind and type, whole and broken blocks, vectors and
 * chunks. */
TEST(columns_by_blocks)
{
    static const nnc_dtype types[] = {DT_f32, DT_f64, DT_i8, DT_i64, DT_u16, DT_f16, DT_bool};
    nnc_target t = target(0);
    for (size_t d = 0; kb_emitter() && d < NNC_COUNT(types); d++)
        for (size_t k = 0; k < NNC_COUNT(reds); k++) {
            reduction(types[d], reds[k], 13 + 4 * (int64_t)(d % 3), 45, true, false);
            nnc_sched_put(&b.k.sched, KD_tile, __builtin_ctz(b.k.stage[0].axes), 8);
            bool places = reds[k] == KR_argmax || reds[k] == KR_argmin;
            CHECK_INT(nnc_kernel_blocked_ok(&b.k), !places && types[d] != DT_bool);
            if (nnc_kernel_blocked_ok(&b.k) && !kb_check(&b, &t, 1e-5, 1e-6, 3))
                test_fail(__FILE__, __LINE__, "%s kind %d", nnc_dtype_name(types[d]), (int)reds[k]);
        }
    static const int64_t at[][5] = {{100, 16, 0, 8, 5}, {100, 16, 48, 1, 23}, {96, 32, 64, 8, 16},
        {33, 32, 32, 6, 23}, {130, 64, 64, 16, 23}, {31, 16, 16, 3, 21}};
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (size_t i = 0; i < NNC_COUNT(at); i++) {
            t = target(which);
            spread(3, at[i][4], at[i][0], (int)at[i][1], at[i][2], (int)at[i][3]);
            CHECK(kb_check(&b, &t, 1e-5, 1e-6, 2));
        }
    t = target(0);
    CHECK(kb_emitter() == NULL || same_by_blocks(23, 130, &t));
    CHECK(kb_emitter() == NULL || same_by_blocks(16, 96, &t));
}

/* Multiples of columns, stored in the body that sums them; the factors too, before it. block: steps of the sums, or 0. */
static void stored_columns(
    int64_t N, int64_t R, int64_t C, int width, int64_t chunk, bool rows, int block)
{
    kb_init(&b, "k_stored");
    int o = kb_axis(&b, KA_outer, N), c = kb_axis(&b, KA_outer, C), r = kb_axis(&b, KA_reduce, R);
    int x = kb_buf(&b, KB_in, DT_f32, N * R * C);
    int y = kb_buf(&b, KB_out, DT_f32, N * R * C), s = kb_buf(&b, KB_out, DT_f32, N * C);
    int m = kb_buf(&b, KB_in, DT_f32, C), f = kb_buf(&b, KB_out, DT_f32, N * C);
    const nnc_affine at = rows ? AT(.k = {R * C, R, 1}) : AT(.k = {R * C, 1, C});
    kb_stage(&b, 0);
    kb_post(&b);
    int factor = kb_load(&b, m, AT(.k = {0, 1}));
    factor = kb_op(&b, SC_mul, DT_f32, factor, factor, -1);
    kb_store(&b, f, AT(.k = {C, 1}), factor);
    kb_stage(&b, 1u << r);
    int v = kb_load(&b, x, at);
    v = kb_op(&b, SC_mul, DT_f32, v, factor, -1);
    kb_store(&b, y, at, v);
    v = kb_op(&b, SC_mul, DT_f32, v, v, -1);
    int sum = kb_reduce(&b, KR_sum, DT_f32, v, -1);
    int most = kb_reduce(&b, KR_max, DT_f32, v, -1);
    kb_post(&b);
    kb_store(&b, s, AT(.k = {C, 1}), kb_op(&b, SC_fma, DT_f32, most, factor, sum));
    kb_done(&b, rows ? r : c, width, chunk);
    if (block)
        nnc_sched_put(&b.k.sched, KD_tile, r, block);
    CHECK(o == 0 && (!block || nnc_kernel_blocked_ok(&b.k)));
}

TEST(columns_are_stored_where_they_are_summed)
{
    static const int64_t at[][5] = {{3, 5, 100, 16, 0}, {3, 7, 100, 16, 48}, {2, 23, 96, 32, 64},
        {1, 16, 33, 32, 32}, {4, 9, 130, 64, 64}, {2, 1, 31, 16, 16}, {2, 8, 7, 16, 0}};
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (size_t i = 0; i < NNC_COUNT(at); i++)
            for (int way = 0; way < 4; way++) {
                if (!test_takes((uint64_t)which + i + (uint64_t)way, 3))
                    continue;
                const bool rows = way == 1;
                const int block = way < 2 || at[i][2] < at[i][3] ? 0 : way == 2 ? 8 : 3;
                nnc_target t = target(which);
                stored_columns(
                    at[i][0], at[i][1], at[i][2], (int)at[i][3], rows ? 0 : at[i][4], rows, block);
                CHECK(kb_check(&b, &t, 1e-5, 1e-6, 2));
            }
}

/* NaN wins max, min and the arg reductions; the first one's place counts; ties go to the first. */
TEST(nan_and_ties)
{
    nnc_target t = target(0);
    for (size_t k = 2; kb_emitter() && k < NNC_COUNT(reds); k++)
        for (int where = -1; where < 100; where += 33) {
            static float x[100];
            union {
                float f;
                int64_t i;
            } out = {0};
            kb_code c;
            for (int i = 0; i < 100; i++)
                x[i] = (float)(i % 7);
            if (where >= 0)
                x[where] = x[99] = NAN;
            reduction(DT_f32, reds[k], 1, 100, false, true);
            if (!kb_compile(&b, &t, &c))
                return;
            void *args[2] = {x, &out};
            c.fn(args, 0, 1, NULL);
            if (reds[k] == KR_max || reds[k] == KR_min)
                CHECK(where >= 0 ? isnan(out.f) : out.f == (reds[k] == KR_max ? 6 : 0));
            else
                CHECK_INT(out.i, where >= 0 ? where : reds[k] == KR_argmax ? 6 : 0);
            kb_free(&c);
        }
}

/* 3x3 max pool, stride 2, padding 1, over H x W; avg with a mask counts what is inside. */
static void pool(int64_t H, int64_t W, int stride, bool masked)
{
    int64_t h = (H + 2 - 3) / stride + 1, w = (W + 2 - 3) / stride + 1;
    kb_init(&b, "k_pool");
    kb_axis(&b, KA_outer, 2);
    kb_axis(&b, KA_outer, h);
    int ow = kb_axis(&b, KA_outer, w);
    int kh = kb_axis(&b, KA_reduce, 3), kw = kb_axis(&b, KA_reduce, 3);
    int x = kb_buf(&b, KB_in, DT_f32, 2 * H * W), y = kb_buf(&b, KB_out, DT_f32, 2 * h * w);
    nnc_kguard g[2] = {{AT(.c = -1, .k = {0, stride, 0, 1, 0}), 0, H},
        {AT(.c = -1, .k = {0, 0, stride, 0, 1}), 0, W}};
    kb_stage(&b, 1u << kh | 1u << kw);
    int low = kb_fconst(&b, DT_f32, masked ? 0 : -INFINITY);
    nnc_affine at = AT(.c = -W - 1, .k = {H * W, stride * W, stride, W, 1});
    int v = kb_load_if(&b, x, at, low, g, 2);
    v = kb_reduce(&b, masked ? KR_sum : KR_max, DT_f32, v, -1);
    kb_post(&b);
    kb_store(&b, y, AT(.k = {h * w, w, 1}), v);
    kb_done(&b, ow, 16, 0);
}

TEST(pooling_with_guards)
{
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (int64_t W = 3; W < 60; W += which ? 25 : 8)
            for (int stride = 1; stride < 4; stride++) {
                if (!test_takes((uint64_t)(which + stride), 3))
                    continue;
                nnc_target t = target(which);
                pool(5, W, stride, stride == 2 && W % 16 == 3);
                if (!kb_check(&b, &t, 1e-5, 1e-6, 3))
                    return;
            }
}

/* Loads of rows and of every second element read nothing before the first or after the last one that they may. The operand lies
 * between two pages that nobody may touch, at the one and then at the other. */
TEST(windows_stay_in_their_operand)
{
    enum { PAGE = 4096, PAGES = 4, ROWS = 5, LONGEST = 140 };
    nnc_target t = target(0);
    char *m =
        mmap(NULL, (PAGES + 2) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED);
    if (m == MAP_FAILED || !kb_emitter())
        return;
    CHECK(mprotect(m, PAGE, PROT_NONE) == 0);
    CHECK(mprotect(m + (PAGES + 1) * PAGE, PAGE, PROT_NONE) == 0);
    for (int64_t twice = 6; twice < 2 * LONGEST; twice += twice < 140 ? 3 : 29) {
        static float y[2 * ROWS * LONGEST], want[2 * ROWS * LONGEST];
        int64_t W = twice / 2, stride = twice % 2 + 1;
        size_t n = 2 * ROWS * (size_t)W, bytes = n * sizeof(float);
        kb_code c;
        pool(ROWS, W, (int)stride, false);
        if (!kb_compile(&b, &t, &c))
            break;
        for (int end = 0; end < 2; end++) {
            char *at = m + PAGE + (end ? PAGES * PAGE - bytes : 0);
            void *args[2] = {at, y};
            for (size_t i = 0; i < n; i++) {
                float v = (float)(int64_t)(i * 7919 % 1009);
                memcpy(at + i * sizeof v, &v, sizeof v);
            }
            args[1] = want;
            kb_reference(&b.k, args, NULL);
            args[1] = y;
            c.fn(args, 0, b.k.sched.domain, NULL);
            CHECK(memcmp(y, want, sizeof(float) * (size_t)b.k.buf[1].numel) == 0);
        }
        kb_free(&c);
    }
    munmap(m, (PAGES + 2) * PAGE);
}

/* y[i, j] = x[index[i], j] and z[j, i] = x2[index[i] + j]: uniform and per-lane indices, out of
 * range ones clamped. */
TEST(indirect_loads)
{
    for (int which = 0; kb_emitter() && which < 3; which++)
        for (int vec = 0; vec < 2; vec++) {
            nnc_target t = target(which);
            kb_init(&b, "k_gather");
            kb_axis(&b, KA_outer, 9);
            kb_axis(&b, KA_outer, 21);
            int ix = kb_buf(&b, KB_in, DT_i32, 9), x = kb_buf(&b, KB_in, DT_f32, 6 * 21);
            int y = kb_buf(&b, KB_out, DT_f32, 9 * 21);
            kb_stage(&b, 0);
            int i = kb_load(&b, ix, AT(.k = {1}));
            kb_store(&b, y, AT(.k = {21, 1}), kb_load_at(&b, x, AT(.k = {0, 1}), i, 21, 6));
            kb_done(&b, vec, 16, 0);
            CHECK(kb_check(&b, &t, 0, 0, 1));
        }
}

/* Every scalar op on every type it takes. */
static void one_op(nnc_sop op, nnc_dtype d, nnc_dtype to, int64_t n)
{
    int arity = nnc_sops[op].arity;
    bool cmp = nnc_sops[op].res == SR_bool;
    kb_init(&b, "k_op");
    int a = kb_axis(&b, KA_outer, n), in[3], v[3] = {-1, -1, -1};
    for (int i = 0; i < arity; i++)
        in[i] = kb_buf(&b, KB_in, op == SC_select && i == 0 ? DT_bool : d, n);
    int y = kb_buf(&b, KB_out, cmp ? DT_bool : to, n);
    kb_stage(&b, 0);
    for (int i = 0; i < arity; i++)
        v[i] = kb_load(&b, in[i], AT(.k = {1}));
    kb_store(&b, y, AT(.k = {1}), kb_op(&b, op, cmp ? DT_bool : to, v[0], v[1], v[2]));
    kb_done(&b, a, 16, 0);
}

TEST(scalar_ops_of_every_type)
{
    static const nnc_dtype types[] = {
        DT_f32, DT_f64, DT_i8, DT_i16, DT_i32, DT_i64, DT_u8, DT_u16, DT_u32, DT_u64, DT_bool};
    for (int op = 0; kb_emitter() && op < SC__COUNT; op++)
        for (size_t d = 0; d < NNC_COUNT(types); d++) {
            bool fl = nnc_is_float(types[d]);
            bool logic = op == SC_and || op == SC_or || op == SC_xor || op == SC_not;
            if (nnc_sops[op].flags & (fl ? OF_int : OF_float) ||
                (types[d] == DT_bool ? nnc_sops[op].flags & OF_int : logic))
                continue;
            if (!test_takes((uint64_t)op + d, 3))
                continue;
            nnc_target t = target((op + (int)d) % 5 == 0 ? 2 : 0);
            one_op((nnc_sop)op, types[d], types[d], 27);
            double rel = types[d] == DT_f64 ? 4e-16 : 4e-7;
            if (!kb_check(&b, &t, rel, fl ? 1e-40 : 0, 1))
                test_fail(
                    __FILE__, __LINE__, "%s on %s", nnc_sops[op].name, nnc_dtype_name(types[d]));
        }
}

TEST(casts_between_all_types)
{
    static const nnc_dtype types[] = {
        DT_f32, DT_f64, DT_i8, DT_i16, DT_i32, DT_i64, DT_u8, DT_u16, DT_u32, DT_u64, DT_bool};
    for (size_t i = 0; kb_emitter() && i < NNC_COUNT(types); i++)
        for (size_t j = 0; j < NNC_COUNT(types); j++) {
            nnc_target t = target((i + j) % 7 == 0 ? 2 : 0);
            one_op(SC_cast, types[i], types[j], 37);
            if (!kb_check(&b, &t, 0, 0, 1))
                test_fail(__FILE__, __LINE__, "%s to %s", nnc_dtype_name(types[i]),
                    nnc_dtype_name(types[j]));
        }
}

/* Streaming stores: aligned and unaligned outputs, with and without a tail. */
TEST(streaming_stores)
{
    nnc_target t = target(0);
    for (int64_t n = 1024; kb_emitter() && n < 1080; n += 17) {
        kb_code c;
        static float x[2048], y[2048] __attribute__((aligned(64)));
        chain(n, DT_f32, DT_f32, 32, 512);
        nnc_sched_put(&b.k.sched, KD_nontemporal, -1, 0);
        if (!kb_compile(&b, &t, &c))
            return;
        float s = 2;
        for (int i = 0; i < 2048; i++)
            x[i] = (float)i;
        for (int off = 0; off < 3; off++) {
            void *args[3] = {x, &s, y + off};
            memset(y, 0, sizeof y);
            c.fn(args, 0, b.k.sched.domain, NULL);
            for (int i = 0; i < n; i++)
                if (y[off + i] != 2 * x[i]) {
                    test_fail(__FILE__, __LINE__, "n %lld off %d i %d", (long long)n, off, i);
                    break;
                }
            CHECK(y[off + n] == 0);
        }
        kb_free(&c);
    }
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static char *emitted(const nnc_target *t)
{
    const nnc_kernel *k = &b.k;
    char *text = NULL;
    size_t n;
    CHECK_OK(kb_emitter()->emit(&k, 1, t, EMIT_llvm, &text, &n, test_sink));
    return text;
}

/* y[i, j] = 2 x[i + first, j] where there is such a row; else 0. */
static void shifted_rows(int64_t rows, int64_t n, int64_t first)
{
    kb_init(&b, "k_rows");
    kb_axis(&b, KA_outer, rows);
    int j = kb_axis(&b, KA_map, n), x = kb_buf(&b, KB_in, DT_f32, rows * n),
        y = kb_buf(&b, KB_out, DT_f32, rows * n);
    nnc_kguard g = {AT(.c = first, .k = {1}), 0, rows};
    kb_stage(&b, 1u << j);
    int zero = kb_fconst(&b, DT_f32, 0);
    int v = kb_load_if(&b, x, AT(.c = first * n, .k = {n, 1}), zero, &g, first != 0);
    v = kb_op(&b, SC_add, DT_f32, v, v, -1);
    kb_store(&b, y, AT(.k = {n, 1}), v);
    kb_done(&b, j, 32, 0);
}

/* A row that is not there is read as zeros, without a mask. A masked load of a page that is not there takes hundreds of nanoseconds. */
TEST(absent_rows_are_zeros)
{
    nnc_target t = target(0);
    for (int first = -3; kb_emitter() && first < 4; first += 6) {
        shifted_rows(9, 64, first);
        char *text = emitted(&t);
        CHECK(text && !strstr(text, "masked.load"));
        nnc_free(text);
        CHECK(kb_check(&b, &t, 0, 0, 4));
        shifted_rows(9, 45, first); /* a mask for the end of the row */
        CHECK(kb_check(&b, &t, 0, 0, 4));
    }
}

/* Ends of rows are stored without a mask where the next row is loaded from the same memory; nothing after them changes. */
TEST(ends_of_rows_in_place)
{
    static float x[7 * 70 + 1], y[7 * 70 + 1];
    for (int n = 1; kb_emitter() && n <= 70; n++)
        for (int which = 0; which < 3; which++) {
            if (!test_takes((uint64_t)(n + which), 3))
                continue;
            nnc_target t = target(which);
            void *args[2] = {x, y};
            kb_code c;
            shifted_rows(7, n, 0);
            char *text = emitted(&t);
            CHECK(text && !strstr(text, "masked.store"));
            nnc_free(text);
            for (int i = 0; i <= 7 * n; i++)
                x[i] = (float)(i * 7919 % 1009);
            kb_reference(&b.k, args, NULL);
            y[7 * n] = x[7 * n];
            args[1] = x;
            if (!kb_compile(&b, &t, &c))
                return;
            c.fn(args, 0, b.k.sched.domain, NULL);
            kb_free(&c);
            CHECK(memcmp(x, y, sizeof(float) * (size_t)(7 * n + 1)) == 0);
        }
}

/* Rows with non-temporal stores and prefetching. Only the result goes past the caches, not what the last stage
 * reads again. The next row is prefetched where the exponentials are computed, in both copies of the code. */
TEST(rows_from_memory)
{
    nnc_target t = target(0);
    for (int64_t cols = 96; kb_emitter() && cols <= 160; cols += 32) {
        softmax(7, cols, 32);
        nnc_sched_put(&b.k.sched, KD_nontemporal, -1, 0);
        nnc_sched_put(&b.k.sched, KD_prefetch, -1, 1);
        CHECK(kb_check(&b, &t, 3e-7 * 8, 1e-12, 2));
        char *text = emitted(&t);
        CHECK(text && occurrences(text, ", !nontemporal !") == 1);
        CHECK(text && occurrences(text, "call void @llvm.prefetch") == 2 * 32 * 4 / 64);
        nnc_free(text);
    }
    softmax(7, 100, 32); /* rows that begin anywhere: the result's lines are asked for as well */
    nnc_sched_put(&b.k.sched, KD_nontemporal, -1, 0);
    nnc_sched_put(&b.k.sched, KD_prefetch, -1, 1);
    char *text = kb_emitter() ? emitted(&t) : NULL;
    const int lines =
        2 * (32 * 4 / 64 + 1); /* of a vector, and of the four elements that are left */
    CHECK(!text || occurrences(text, ", i32 1, i32 3, i32 1)") == lines);
    CHECK(!text || occurrences(text, ", i32 0, i32 2, i32 1)") == lines);
    CHECK(!text || kb_check(&b, &t, 3e-7 * 8, 1e-12, 2));
    nnc_free(text);
}

/* AVX-512's instruction for p 2^n gives what the two factors give, subnormal results and infinity
 * among them. A CPU described by its name alone is not taken to have it. */
TEST(exponentials_are_the_same_with_avx512)
{
    enum { N = 65536 };
    static float x[N], y[2][N];
    nnc_target t = target(0), described = t;
    described.cpu = "skylake-avx512";
    if (!kb_emitter() || t.vector_bits < 512)
        return;
    for (int i = 0; i < N; i++)
        x[i] = -120 + 220.0f * (float)i / N;
    static const float special[] = {NAN, INFINITY, -INFINITY, 0, 1e30f, -1e30f, -103.9f, 88.8f};
    memcpy(x, special, sizeof special);
    static const nnc_sop ops[] = {SC_exp, SC_exp2, SC_sigmoid, SC_tanh};
    for (size_t o = 0; o < NNC_COUNT(ops); o++) {
        one_op(ops[o], DT_f32, DT_f32, N);
        for (int d = 0; d < 2; d++) {
            kb_code c;
            void *args[2] = {x, y[d]};
            char *text = emitted(d ? &described : &t);
            const bool has = ops[o] == SC_exp || ops[o] == SC_exp2; /* others have normal powers */
            CHECK(text && (strstr(text, "scalef") != NULL) == (has && !d));
            nnc_free(text);
            CHECK_INT(b.k.n_buf, 2);
            if (!kb_compile(&b, d ? &described : &t, &c))
                return;
            c.fn(args, 0, b.k.sched.domain, NULL);
            kb_free(&c);
        }
        CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
    }
}

/* Other code of the same kernel, with the same bits. */
TEST(quick_code_computes_the_same)
{
    enum { ROWS = 5, COLS = 77 };
    static float x[ROWS * COLS], y[2][ROWS * COLS], tmp[COLS + 64];
    size_t size[2] = {0};
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)(i * 37 % 101) / 16 - 3;
    for (int quick = 0; kb_emitter() && quick < 2; quick++) {
        kb_code c;
        void *args[] = {x, y[quick]};
        softmax(ROWS, COLS, 32);
        if (quick)
            nnc_sched_put(&b.k.sched, KD_quick, -1, 0);
        if (!kb_compile(&b, kb_host(), &c))
            return;
        size[quick] = c.n;
        c.fn(args, 0, b.k.sched.domain, tmp);
        kb_free(&c);
    }
    CHECK(!kb_emitter() || size[0] != size[1]);
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
}

TEST(emission_is_deterministic)
{
    kb_code one, two;
    nnc_target t = target(0);
    if (!kb_emitter())
        return;
    softmax(5, 77, 32);
    CHECK(kb_compile(&b, &t, &one) && kb_compile(&b, &t, &two));
    CHECK(one.n == two.n && one.bytes && !memcmp(one.bytes, two.bytes, one.n));
    kb_free(&one);
    kb_free(&two);
}

/* y[i] = sum_j sin(x[i, j] / w[j]) of rows that end within a vector. */
static void far_in_rows(int64_t rows, int64_t n)
{
    kb_init(&b, "k_far");
    kb_axis(&b, KA_outer, rows);
    int j = kb_axis(&b, KA_reduce, n), x = kb_buf(&b, KB_in, DT_f32, rows * n),
        w = kb_buf(&b, KB_in, DT_f32, n), y = kb_buf(&b, KB_out, DT_f32, rows);
    kb_stage(&b, 1u << j);
    int u = kb_load(&b, x, AT(.k = {n, 1})), d = kb_load(&b, w, AT(.k = {0, 1}));
    int v = kb_op(&b, SC_sin, DT_f32, kb_op(&b, SC_div, DT_f32, u, d, -1), -1, -1);
    v = kb_reduce(&b, KR_sum, DT_f32, v, -1);
    kb_post(&b);
    kb_store(&b, y, AT(.k = {1}), v);
    kb_done(&b, j, 32, 0);
}

/* Lanes beyond a row's end are 0/0, of which sin would call its function for large arguments, each time. */
TEST(absent_lanes_are_not_far)
{
    nnc_target t = target(0);
    if (!kb_emitter())
        return;
    far_in_rows(7, 32);
    char *whole = emitted(&t);
    far_in_rows(7, 25);
    char *part = emitted(&t);
    CHECK(whole && part && occurrences(part, "or <32 x i1>") > occurrences(whole, "or <32 x i1>"));
    nnc_free(whole);
    nnc_free(part);
    CHECK(kb_check(&b, &t, 1e-5, 1e-5, 16));
}

TEST(text_and_assembly)
{
    const nnc_emitter *e = kb_emitter();
    const nnc_kernel *k = &b.k;
    char *text;
    size_t n;
    if (!e)
        return;
    softmax(5, 77, 32);
    CHECK_OK(e->emit(&k, 1, kb_host(), EMIT_llvm, &text, &n, test_sink));
    CHECK(text && strstr(text, "define void @k_softmax"));
    nnc_free(text);
    CHECK_OK(e->emit(&k, 1, kb_host(), EMIT_asm, &text, &n, test_sink));
    CHECK(text && strstr(text, "k_softmax:"));
    nnc_free(text);
    CHECK(e->emit(&k, 1, kb_host(), EMIT_cuda, &text, &n, test_sink) == NNC_E_USAGE);
}
