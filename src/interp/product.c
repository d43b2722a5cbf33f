/* interp/product.c -- sums of products (nnc_product_find) without interpretation: steps along the last reduce axis run in one loop, with
 * one rounding for each. */
#include "interp/internal.h"

#include <math.h>

/* Lanes at once, in registers: as many as schedules for AVX-512, for AVX2 and for SSE use. */
#define LANES(L, T, fma) \
    for (; n >= (L) && x.lane == 0 && w.lane == 1; n -= (L), acc += (L), b += (L)) { \
        T sum[L]; \
        for (int i = 0; i < (L); i++) \
            sum[i] = acc[i]; \
        for (int64_t s = 0; s < steps; s++) \
            for (int i = 0; i < (L); i++) \
                sum[i] = fma(a[s * x.step], b[s * w.step + i], sum[i]); \
        for (int i = 0; i < (L); i++) \
            acc[i] = sum[i]; \
    }
#define STEPS(name, T, fma) \
    NNC_BODY name##_body(int n, nnc_factor x, nnc_factor w, int64_t steps, T *restrict acc) \
    { \
        const T *a = x.at, *b = w.at; \
        LANES(32, T, fma) \
        LANES(16, T, fma) \
        LANES(8, T, fma) \
        for (int64_t s = 0; s < steps; s++, a += x.step, b += w.step) \
            for (int i = 0; i < n; i++) \
                acc[i] = fma(a[i * x.lane], b[i * w.lane], acc[i]); \
    } \
    NNC_DISPATCH(name, (int n, nnc_factor x, nnc_factor w, int64_t steps, T *restrict acc), \
        (n, x, w, steps, acc))
STEPS(steps_f32, float, fmaf)
STEPS(steps_f64, double, fma)

void nnc_product_steps(nnc_dtype d, int n, nnc_factor x, nnc_factor w, int64_t steps, void *acc)
{
    if (d == DT_f32)
        steps_f32(n, x, w, steps, acc);
    else
        steps_f64(n, x, w, steps, acc);
}
