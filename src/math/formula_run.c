/* math/formula_run.c -- executes a formula on arrays, a block of lanes per step, as loops that the compiler vectorises. Results are
 * bit-identical on all machines: fused multiply-add is the instruction or, where missing, the C library's function. */
#include "math/formula.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 64 };

typedef union lanes {
    float f[BLOCK];
    double d[BLOCK];
    uint32_t u[BLOCK]; /* bool: 0 or 1 */
    uint64_t w[BLOCK];
} lanes;

#define EACH(expr) \
    for (int i = 0; i < m; i++) \
    expr
/* One operation for both types of floats or of integers. */
#define FLOATS(expr32, expr64) \
    do { \
        if (s->type == FT_f32) \
            EACH(y->f[i] = (expr32)); \
        else \
            EACH(y->d[i] = (expr64)); \
        return; \
    } while (0)
#define INTS(expr32, expr64) \
    do { \
        if (s->type != FT_i64) \
            EACH(y->u[i] = (uint32_t)(expr32)); \
        else \
            EACH(y->w[i] = (uint64_t)(expr64)); \
        return; \
    } while (0)
#define TEST(op) \
    do { \
        if (of == FT_f32) \
            EACH(y->u[i] = a->f[i] op b->f[i]); \
        else if (of == FT_f64) \
            EACH(y->u[i] = a->d[i] op b->d[i]); \
        else if (of == FT_i64) \
            EACH(y->u[i] = a->w[i] op b->w[i]); \
        else \
            EACH(y->u[i] = a->u[i] op b->u[i]); \
        return; \
    } while (0)

/* Horner's rule, eight lanes at a time in registers. */
#define POLY(T, of, fma) \
    for (int i = 0; i < m; i += 8) { \
        T r[8]; \
        for (int l = 0; l < 8; l++) \
            r[l] = (T)s->c[s->n - 1]; \
        for (int j = s->n - 2; j >= 0; j--) \
            for (int l = 0; l < 8; l++) \
                r[l] = fma(r[l], a->of[i + l], (T)s->c[j]); \
        memcpy(&y->of[i], r, sizeof r); \
    }

NNC_BODY poly(const nnc_fstep *s, int m, const lanes *a, lanes *y)
{
    if (s->type == FT_f32)
        POLY(float, f, fmaf)
    else
        POLY(double, d, fma)
}

NNC_BODY of_bits(const nnc_fstep *s, int m, int of, const lanes *a, const lanes *b, lanes *y)
{
    switch (s->op) {
    case FO_and: INTS(a->u[i] & b->u[i], a->w[i] & b->w[i]);
    case FO_or: INTS(a->u[i] | b->u[i], a->w[i] | b->w[i]);
    case FO_not: INTS(!a->u[i], !a->w[i]);
    case FO_xor: INTS(a->u[i] ^ b->u[i], a->w[i] ^ b->w[i]);
    case FO_iadd: INTS(a->u[i] + b->u[i], a->w[i] + b->w[i]);
    case FO_isub: INTS(a->u[i] - b->u[i], a->w[i] - b->w[i]);
    case FO_imul: INTS(a->u[i] * b->u[i], a->w[i] * b->w[i]);
    case FO_shl: INTS(a->u[i] << b->u[i], a->w[i] << b->w[i]);
    case FO_lshr: INTS(a->u[i] >> b->u[i], a->w[i] >> b->w[i]);
    case FO_ashr: INTS((int32_t)a->u[i] >> b->u[i], (int64_t)a->w[i] >> b->w[i]);
    case FO_odd:
        if (of == FT_i64)
            EACH(y->u[i] = (uint32_t)(a->w[i] & 1));
        else
            EACH(y->u[i] = a->u[i] & 1);
        return;
    case FO_itof: FLOATS((float)(int32_t)a->u[i], (double)(int64_t)a->w[i]);
    case FO_word: EACH(y->u[i] = nnc_two_over_pi[a->u[i] % NNC_TWO_OVER_PI]); return;
    default:
        assert((s->op == FO_bits || s->op == FO_float) && "a step of a GPU or of AVX-512");
        memcpy(y, a, 8 * (size_t)m);
    }
}

/* Calls the formula for far arguments where any lane needs it. */
static void far(const nnc_fstep *s, int m, const lanes *a, const lanes *near, lanes *y)
{
    int n = 0;
    *y = *near;
    EACH(n += !(fabsf(a->f[i]) <= (float)NNC_FAR));
    if (n == 0)
        return;
    lanes r;
    nnc_formula f;
    nnc_formula_make(&f, (nnc_fkey){.sop = (uint8_t)s->n, .type = s->type, .far = true},
        (nnc_machine){.fma = true});
    nnc_formula_run(&f, m, a, NULL, &r);
    for (int i = 0; i < m; i++)
        if (fabsf(a->f[i]) <= (float)NNC_FAR)
            continue;
        else if (s->type == FT_f32)
            y->f[i] = r.f[i];
        else
            y->d[i] = r.d[i];
}

static void call(const nnc_fstep *s, int m, const lanes *a, const lanes *b, lanes *y)
{
    for (int i = 0; i < m; i++) /* erf1(x) is erfc(-x) */
        y->d[i] = nnc_sop_eval_f64(
            (nnc_sop)s->n, s->n == SC_erf1 ? -a->d[i] : a->d[i], b ? b->d[i] : 0, 0);
}

NNC_BODY step(
    const nnc_fstep *s, int m, int of, const lanes *a, const lanes *b, const lanes *c, lanes *y)
{
    switch (s->op) {
    case FO_add: FLOATS(a->f[i] + b->f[i], a->d[i] + b->d[i]);
    case FO_sub: FLOATS(a->f[i] - b->f[i], a->d[i] - b->d[i]);
    case FO_mul: FLOATS(a->f[i] * b->f[i], a->d[i] * b->d[i]);
    case FO_div:
    case FO_quick: FLOATS(a->f[i] / b->f[i], a->d[i] / b->d[i]);
    case FO_fma: FLOATS(fmaf(a->f[i], b->f[i], c->f[i]), fma(a->d[i], b->d[i], c->d[i]));
    case FO_poly: poly(s, m, a, y); return;
    case FO_neg: FLOATS(-a->f[i], -a->d[i]);
    case FO_abs: FLOATS(fabsf(a->f[i]), fabs(a->d[i]));
    case FO_copysign: FLOATS(copysignf(a->f[i], b->f[i]), copysign(a->d[i], b->d[i]));
    case FO_sqrt: FLOATS(sqrtf(a->f[i]), sqrt(a->d[i]));
    case FO_floor: FLOATS(floorf(a->f[i]), floor(a->d[i]));
    case FO_lt: TEST(<);
    case FO_gt: TEST(>);
    case FO_eq: TEST(==);
    case FO_select:
    case FO_branch: FLOATS(a->u[i] ? b->f[i] : c->f[i], a->u[i] ? b->d[i] : c->d[i]);
    case FO_wide:
        if (s->type == FT_f64)
            EACH(y->d[i] = (double)a->f[i]);
        else
            EACH(y->w[i] = a->u[i]);
        return;
    case FO_narrow: EACH(y->f[i] = (float)a->d[i]); return;
    case FO_far: far(s, m, a, b, y); return;
    case FO_call: call(s, m, a, b, y); return;
    default: of_bits(s, m, of, a, b, y);
    }
}

NNC_BODY run_body(const nnc_formula *f, int m, lanes *v)
{
    for (int i = 0; i < f->n; i++) {
        const nnc_fstep *s = &f->step[i];
        const lanes *arg[3];
        if (s->op == FO_arg || s->op == FO_num)
            continue;
        for (int j = 0; j < 3; j++)
            arg[j] = s->arg[j] < 0 ? NULL : &v[s->arg[j]];
        step(s, m, f->step[s->arg[0]].type, arg[0], arg[1], arg[2], &v[i]);
    }
}

NNC_DISPATCH(run, (const nnc_formula *f, int m, lanes *v), (f, m, v))

static void constant(const nnc_fstep *s, int m, lanes *y)
{
    if (s->type == FT_f32)
        EACH(y->f[i] = (float)s->f);
    else if (s->type == FT_f64)
        EACH(y->d[i] = s->f);
    else if (s->type == FT_i64)
        EACH(y->w[i] = (uint64_t)s->i);
    else
        EACH(y->u[i] = (uint32_t)s->i);
}

void nnc_formula_run(const nnc_formula *f, int n, const void *a, const void *b, void *y)
{
    _Alignas(64) lanes v[NNC_FSTEPS];
    const size_t to = f->step[f->n - 1].type == FT_f64 ? 8 : 4;
    const int width =
        n < BLOCK ? (int)nnc_align_up(n, 8) : BLOCK; /* whole vectors: lanes beyond n are zeros */
    for (int i = 0; i < f->n; i++)
        if (f->step[i].op == FO_num)
            constant(&f->step[i], width, &v[i]);
        else if (f->step[i].op == FO_arg)
            memset(&v[i], 0, 8 * (size_t)width);
    for (int at = 0; at < n; at += BLOCK) {
        const size_t m = (size_t)(n - at < BLOCK ? n - at : BLOCK);
        for (int i = 0; i < f->n; i++) {
            const nnc_fstep *s = &f->step[i];
            const size_t size = s->type == FT_f64 ? 8 : 4;
            const char *from = s->n ? b : a; /* b is not NULL where a step uses it */
            if (s->op == FO_arg && from)
                memcpy(&v[i], from + size * (size_t)at, size * m);
        }
        run(f, width, v);
        memcpy((char *)y + to * (size_t)at, &v[f->n - 1], to * m);
    }
}
