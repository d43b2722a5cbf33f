/* bench/machine.c -- multiply-add peak and bandwidths. */
#include "machine.h"
#include "base/base.h"
#include <string.h>

typedef float v16 __attribute__((vector_size(64), aligned(4)));

enum { FMA_LOOPS = 8000000, BIG = 256 << 20, SMALL = 256 << 10 };

struct meter {
    int threads;
    float out[64 * 16];
    double sums[64 * 8];
    char *a, *b; /* BIG each */
};

/* 12 independent chains of vectors of so many bytes hide the latency of two multiply-add units. */
#define FMA_LOOP(name, bytes) \
    NNC_BODY name(int n, float a, float b, float *sum) \
    { \
        typedef float vec __attribute__((vector_size(bytes))); \
        vec x[12]; \
        for (int i = 0; i < 12; i++) \
            x[i] = (vec){0} + (float)i; \
        for (int k = 0; k < n * (64 / (bytes)); k++) { \
            STEP(0) \
            STEP(1) \
            STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11) \
        } \
        float s = 0; \
        for (int i = 0; i < 12; i++) \
            s += x[i][0] + x[i][(bytes) / 4 - 1]; \
        *sum = s; \
    }
#define STEP(i) x[i] = x[i] * a + b;
FMA_LOOP(fma_zmm, 64)
FMA_LOOP(fma_ymm, 32)
FMA_LOOP(fma_xmm, 16)
NNC_DISPATCH_OF(
    fma_loop, (int n, float a, float b, float *sum), (n, a, b, sum), fma_zmm, fma_ymm, fma_xmm)

static void fma_part(void *ctx, int part, int parts)
{
    meter *m = ctx;
    (void)parts;
    fma_loop(FMA_LOOPS, 0.999f, 0.001f, &m->out[part * 16]);
}

typedef struct buffers {
    char *a, *b;
    size_t n;
    int times;
    double *sum;
} buffers;

static void copy_part(void *ctx, int part, int parts)
{
    const buffers *p = ctx;
    size_t from = p->n * (size_t)part / (size_t)parts,
           to = p->n * (size_t)(part + 1) / (size_t)parts;
    for (int i = 0; i < p->times; i++) {
        memcpy(p->b + from, p->a + from, to - from);
        __asm__ volatile("" ::: "memory");
    }
}

NNC_BODY stream_copy_body(char *dst, const char *src, size_t n)
{
    for (size_t i = 0; i + 64 <= n; i += 64)
        for (int k = 0; k < 64; k += 8) {
            long long v;
            memcpy(&v, src + i + k, 8);
            __builtin_ia32_movnti64((long long *)(dst + i + k), v);
        }
}
NNC_DISPATCH(stream_copy, (char *dst, const char *src, size_t n), (dst, src, n))

static void stream_part(void *ctx, int part, int parts)
{
    const buffers *p = ctx;
    size_t from = p->n / 64 * (size_t)part / (size_t)parts * 64,
           to = p->n / 64 * (size_t)(part + 1) / (size_t)parts * 64;
    stream_copy(p->b + from, p->a + from, to - from);
    __builtin_ia32_sfence();
}

NNC_BODY sum_loop_body(const float *p, size_t n, double *sum)
{
    v16 s[8] = {{0}};
    for (size_t i = 0; i + 128 <= n; i += 128)
        for (int k = 0; k < 8; k++)
            s[k] += *(const v16 *)(p + i + 16 * k);
    v16 t = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
    *sum += (double)(t[0] + t[7]);
}
NNC_DISPATCH(sum_loop, (const float *p, size_t n, double *sum), (p, n, sum))

static void sum_part(void *ctx, int part, int parts)
{
    const buffers *p = ctx;
    size_t n = p->n / 4, from = n * (size_t)part / (size_t)parts,
           to = n * (size_t)(part + 1) / (size_t)parts;
    sum_loop((const float *)p->a + from, to - from, &p->sum[part * 8]);
}

static double best(int tries, int threads, nnc_par_body body, void *ctx)
{
    double s = 1e30;
    nnc_team *team = NULL;
    if (nnc_team_create(threads, &team, NULL) != NNC_OK)
        return s;
    nnc_team_enter(team);
    for (int i = 0; i < tries; i++) {
        int64_t t0 = nnc_now_ns();
        nnc_par_run(threads, body, ctx);
        double t = (double)(nnc_now_ns() - t0) * 1e-9;
        s = t < s ? t : s;
    }
    nnc_team_leave(team);
    nnc_team_destroy(team);
    return s;
}

meter *meter_create(int threads)
{
    meter *m = threads > 64 ? NULL : nnc_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    *m = (meter){
        .threads = threads, .a = nnc_aligned_alloc(64, BIG), .b = nnc_aligned_alloc(64, BIG)};
    if (!m->a || !m->b) {
        meter_destroy(m);
        return NULL;
    }
    memset(m->a, 0, BIG);
    memset(m->b, 0, BIG);
    return m;
}

void meter_destroy(meter *m)
{
    if (!m)
        return;
    nnc_free(m->a);
    nnc_free(m->b);
    nnc_free(m);
}

static machine measure(meter *m, int fma_tries, int tries)
{
    int threads = m->threads;
    buffers big = {m->a, m->b, BIG, 1, m->sums};
    machine r = {
        .flops = 2.0 * 16 * 12 * FMA_LOOPS * threads / best(fma_tries, threads, fma_part, m)};
    double streamed = 2.0 * BIG / best(tries, threads, stream_part, &big);
    double copied = 2.0 * BIG / best(tries, threads, copy_part, &big);
    r.copy = streamed > copied ? streamed : copied;
    r.read = 1.0 * BIG / best(tries, threads, sum_part, &big);
    return r;
}

machine meter_ceiling(meter *m)
{
    machine r = measure(m, 10, 8);
    buffers small = {m->a, m->b, (size_t)SMALL * (size_t)m->threads, 1000, m->sums};
    r.cache_copy = 2.0 * SMALL * m->threads * 1000 / best(5, m->threads, copy_part, &small);
    return r;
}

machine meter_now(meter *m)
{
    return measure(m, 1, 1);
}
