/* base/num.c -- 16-bit floats, hashes, counter-based random numbers, time. */
#include "base/base.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

static uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

float nnc_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31)
        return bits_f32(sign | 0x7f800000u | m << 13 | (m ? 0x400000u : 0));
    if (e)
        return bits_f32(sign | (e + 112) << 23 | m << 13);
    float v = (float)m * 0x1p-24f;
    return sign ? -v : v;
}

float nnc_bf16_to_f32(uint16_t h)
{
    return bits_f32((uint32_t)h << 16);
}

/* Rounds d to a float format with `mant` explicit mantissa bits and normal exponents emin..emax, to nearest even. */
static double round_to(double d, int mant, int emin, double max, bool *overflow)
{
    int e;
    *overflow = false;
    if (d == 0 || !isfinite(d))
        return d;
    frexp(d, &e);
    int lsb = (e - 1 < emin ? emin : e - 1) - mant; /* exponent of the last digit */
    double r = ldexp(rint(ldexp(d, -lsb)), lsb);
    *overflow = fabs(r) > max;
    return r;
}

uint16_t nnc_f64_to_f16(double d)
{
    uint16_t sign = signbit(d) ? 0x8000 : 0;
    bool over;
    if (isnan(d))
        return sign | 0x7e00;
    double r = fabs(round_to(d, 10, -14, 65504, &over));
    if (over || isinf(d))
        return sign | 0x7c00;
    if (r < 0x1p-14)
        return sign | (uint16_t)(r * 0x1p24);
    int e;
    double m = frexp(r, &e); /* r = m 2^e, m in [1/2, 1) */
    return sign | (uint16_t)((e + 14) << 10) | (uint16_t)((m * 2 - 1) * 1024);
}

uint16_t nnc_f64_to_bf16(double d)
{
    bool over;
    if (isnan(d))
        return (uint16_t)((signbit(d) ? 0x8000 : 0) | 0x7fc0);
    double r = round_to(d, 7, -126, 0x1.fep127, &over);
    if (over)
        return (uint16_t)((signbit(d) ? 0x8000 : 0) | 0x7f80);
    return (uint16_t)(f32_bits((float)r) >> 16);
}

uint16_t nnc_f32_to_bf16(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

uint64_t nnc_hash64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

nnc_hash128 nnc_hash(const void *p, size_t n)
{
    XXH128_hash_t h = XXH3_128bits(p, n);
    return (nnc_hash128){h.low64, h.high64};
}

void nnc_hash_hex(nnc_hash128 h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

/* Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC'11). */
static void philox(uint64_t key, uint64_t counter, uint32_t out[4])
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        c[0] = n0;
        c[2] = n2;
    }
    memcpy(out, c, sizeof c);
}

int nnc_by_index(const void *x, const void *y)
{
    return nnc_cmp(*(const uint32_t *)x, *(const uint32_t *)y);
}

int nnc_by_number(const void *x, const void *y)
{
    return nnc_cmp(*(const int64_t *)x, *(const int64_t *)y);
}

int nnc_by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

void nnc_sort64(int64_t *v, size_t n)
{
    if (n)
        qsort(v, n, sizeof *v, nnc_by_number);
}

uint64_t nnc_rng_key(const char *name, uint64_t seed)
{
    return XXH3_64bits_withSeed(name, strlen(name), seed ^ 0x6e6e63u);
}

uint32_t nnc_rng_u32(uint64_t key, uint64_t i)
{
    uint32_t r[4];
    philox(key, i / 4, r);
    return r[i % 4];
}

static float scaled(uint32_t r, float scale)
{
    return ((float)(r >> 8) * 0x1p-23f - 1.0f) * scale;
}

/* Groups of 16 counters, so that the compiler vectorises the rounds: 10^8 elements of weights are generated at memory bandwidth on a few
 * cores. The versions for AVX compute the same integers and the same float roundings. The product in scaled() is exact, so fusing it
 * with the sum changes nothing. */
NNC_BODY fill_groups_body(uint64_t key, uint64_t group, size_t n_groups, float scale, float *dst)
{
    enum { W = 16 };
    for (size_t g = 0; g + W <= n_groups; g += W) {
        uint32_t c0[W], c1[W], c2[W], c3[W];
        for (int l = 0; l < W; l++) {
            c0[l] = (uint32_t)(group + g + (uint64_t)l);
            c1[l] = (uint32_t)((group + g + (uint64_t)l) >> 32);
            c2[l] = c3[l] = 0;
        }
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int i = 0; i < 10; i++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u)
            for (int l = 0; l < W; l++) {
                uint64_t a = (uint64_t)0xd2511f53u * c0[l], b = (uint64_t)0xcd9e8d57u * c2[l];
                uint32_t n0 = (uint32_t)(b >> 32) ^ c1[l] ^ k0,
                         n2 = (uint32_t)(a >> 32) ^ c3[l] ^ k1;
                c1[l] = (uint32_t)b;
                c3[l] = (uint32_t)a;
                c0[l] = n0;
                c2[l] = n2;
            }
        for (int l = 0; l < W; l++) {
            float *d = dst + (g + (size_t)l) * 4;
            d[0] = scaled(c0[l], scale);
            d[1] = scaled(c1[l], scale);
            d[2] = scaled(c2[l], scale);
            d[3] = scaled(c3[l], scale);
        }
    }
}
NNC_DISPATCH(fill_groups, (uint64_t key, uint64_t group, size_t n_groups, float scale, float *dst),
    (key, group, n_groups, scale, dst))

void nnc_rng_fill(uint64_t key, uint64_t first, size_t n, float scale, float *dst)
{
    size_t i = 0;
    for (; i < n && (first + i) % 4; i++)
        dst[i] = scaled(nnc_rng_u32(key, first + i), scale);
    size_t groups = (n - i) / 4 / 16 * 16;
    fill_groups(key, (first + i) / 4, groups, scale, dst + i);
    i += groups * 4;
    for (uint32_t r[4]; i < n; i++) {
        if ((first + i) % 4 == 0 || i == 0)
            philox(key, (first + i) / 4, r);
        dst[i] = scaled(r[(first + i) % 4], scale);
    }
}

static int64_t (*other_clock)(void);

void nnc_set_clock(int64_t (*now_ns)(void))
{
    other_clock = now_ns;
}

int64_t nnc_now_ns(void)
{
    if (other_clock)
        return other_clock();
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
