/* tests/llvm/math2.c -- pow and mod of f32: all pairs of special values and random pairs of
 * several kinds, against libm. */
#include "kb.h"

#include <math.h>

enum { N = 65536 };

static float x[N], y[N], z[N];
static kb b;

static bool compile(nnc_sop op, const nnc_target *t, kb_code *c)
{
    kb_init(&b, "k_pair");
    int a = kb_axis(&b, KA_outer, N), u = kb_buf(&b, KB_in, DT_f32, N);
    int v = kb_buf(&b, KB_in, DT_f32, N), w = kb_buf(&b, KB_out, DT_f32, N);
    nnc_affine at = {.k = {1}};
    kb_stage(&b, 0);
    int p = kb_load(&b, u, at), q = kb_load(&b, v, at);
    kb_store(&b, w, at, kb_op(&b, op, DT_f32, p, q, -1));
    kb_done(&b, a, 16, 0);
    return kb_compile(&b, t, c);
}

/* Special values against each other first, then random bits, then ordinary numbers. */
static void fill(uint64_t key)
{
    static const float s[] = {0, 0x1p-149f, 0x1p-126f, 0x1p-30f, 0.5f, 0.99999994f, 1, 1.0000001f,
        1.5f, 2, 3, 4, 7, 10.5f, 127, 128, 149, 0x1p22f, 8388607, 8388608, 16777215, 16777216,
        16777218, 0x1p31f, 0x1p63f, 1e30f, 3.4028235e38f, INFINITY, NAN};
    enum { S = 2 * (int)NNC_COUNT(s) };
    for (int i = 0; i < N; i++) {
        uint32_t p = nnc_rng_u32(key, 2 * (uint64_t)i), q = nnc_rng_u32(key, 2 * (uint64_t)i + 1);
        if (i < S * S) {
            x[i] = i / S % 2 ? -s[i / S / 2] : s[i / S / 2];
            y[i] = i % 2 ? -s[i % S / 2] : s[i % S / 2];
        } else if (i % 3 == 0) {
            memcpy(&x[i], &p, 4);
            memcpy(&y[i], &q, 4);
        } else {
            x[i] = (float)(p >> 8) * 0x1p-20f * (i % 3 == 1 ? 1 : -1);
            y[i] = i % 2 ? (float)(int)(q >> 27) - 16 : (float)(q >> 8) * 0x1p-20f - 8;
        }
    }
}

static bool wrong_pow(int i)
{
    double r = pow(x[i], y[i]);
    float near = (float)r;
    if (isnan(r) || isnan(z[i]))
        return !(isnan(r) && isnan(z[i]));
    if (isinf(near) || near == 0)
        return z[i] != near || (near == 0 && signbit(near) != signbit(z[i]));
    int e;
    frexp(r, &e);
    double ulp = ldexp(1, e - 24 < -149 ? -149 : e - 24);
    return !(fabs(z[i] - r) <= 0.6 * ulp);
}

static bool wrong_mod(int i)
{
    float r = fmodf(x[i], y[i]);
    return isnan(r) ? !isnan(z[i]) : z[i] != r || signbit(z[i]) != signbit(r);
}

static void check(nnc_sop op, bool (*wrong)(int i))
{
    for (int fma = 1; fma >= 0; fma--) {
        nnc_target t = *kb_host();
        kb_code c;
        t.fma = t.fma && fma;
        if (!kb_emitter() || !compile(op, &t, &c))
            return;
        for (uint64_t round = 0; round < 3; round++) {
            void *args[3] = {x, y, z};
            int bad = -1;
            fill(test_seed + round);
            c.fn(args, 0, 1, NULL);
            for (int i = 0; i < N && bad < 0; i++)
                if (wrong(i))
                    bad = i;
            if (bad >= 0)
                test_fail(__FILE__, __LINE__, "%s(%a, %a) is %a", nnc_sops[op].name, (double)x[bad],
                    (double)y[bad], (double)z[bad]);
        }
        kb_free(&c);
    }
}

TEST(pow_f32)
{
    check(SC_pow, wrong_pow);
}

TEST(mod_f32)
{
    check(SC_mod, wrong_mod);
}
