/* math/formula.h -- the method of each math function as a short program of arithmetic, selects and bit operations.
 *
 * formula.c defines each method once. The LLVM emitter, the CUDA emitter and the interpreter execute the same steps, so their results are
 * bit-identical where the machine computes each step identically. That is always so, except for the steps quick, ex2, rcp, rcp_any, rsqrt
 * and call, and machines without fused multiply-add (docs/math.md). Kernels contain the function's name (`sin`); it is expanded at
 * emission. */
#ifndef NNC_FORMULA_H
#define NNC_FORMULA_H

#include "kernel/kernel.h"

typedef enum nnc_ftype { FT_bool, FT_f32, FT_f64, FT_i32, FT_i64 } nnc_ftype;
typedef enum nnc_fop {
#define FO(name, arity, f32, f64) FO_##name,
#include "math/formula.def"
    FO__COUNT
} nnc_fop;
typedef struct nnc_fop_info {
    const char *name;
    int arity;
    const char *cuda[2]; /* template for f32 and i32; for f64 and i64 */
} nnc_fop_info;
extern const nnc_fop_info nnc_fops[FO__COUNT];

#define NNC_FSTEPS 128
#define NNC_FAR 105615.0 /* beyond it, sin, cos and tan need more digits of pi than three f32 numbers hold */

typedef struct nnc_fstep {
    uint8_t op, type;   /* nnc_fop; nnc_ftype of the result */
    int16_t arg[3];     /* earlier steps, or -1 */
    int16_t n;          /* arg: operand number; poly: number of coefficients; far and call: nnc_sop */
    double f;           /* num */
    int64_t i;
    const double *c;    /* poly */
} nnc_fstep;

typedef struct nnc_formula {
    int n;              /* number of steps; the last is the result */
    nnc_fstep step[NNC_FSTEPS];
} nnc_formula;

/* Facts about the first operand that methods distinguish. */
enum nnc_freach {
    FR_low = 1,     /* exp: >= -87; log: a normal number; sigmoid: >= -87 */
    FR_top = 2,     /* exp: <= 88; log: finite, no NaN; sigmoid: <= 87 */
    FR_short = 4,   /* near 0: sin, tanh */
    FR_half = 8,    /* |x| <= pi/2 */
    FR_near = 16,   /* |x| <= NNC_FAR */
    FR_sure = 32,   /* log: positive, no NaN */
    FR_middle = 64, /* recip: 1/x is a normal number */
    FR__ALL = 127
};

/* Key of a formula: function, type of operands and result, --math, facts about the operand. */
typedef struct nnc_fkey {
    uint8_t sop;    /* nnc_sop */
    uint8_t type;   /* FT_f32, FT_f64 */
    uint8_t policy; /* 0 (ulp2), KH_exact, KH_fast */
    uint8_t reach;  /* enum nnc_freach */
    bool far;       /* the argument reduction beyond NNC_FAR instead of the function, from f32 to `type` */
} nnc_fkey;

/* Differences between machines. */
typedef struct nnc_machine {
    bool fma;   /* without it, f32 is computed in f64 with products and sums */
    bool scale; /* AVX-512's scalef is available for these operands */
    bool gpu;   /* has ex2, rcp, rcp_any and rsqrt */
} nnc_machine;

/* True when the scalar op has a formula for operands of type d. */
bool nnc_has_formula(nnc_sop op, nnc_dtype d);
/* True when the f32 function f has another formula under that policy than under ulp2, at least on a GPU. */
bool nnc_formula_differs(nnc_sop f, uint8_t policy);
/* Key of the formula for an instruction that has one. */
nnc_fkey nnc_formula_key(const nnc_kernel *k, const nnc_kins *in);
void nnc_formula_make(nnc_formula *f, nnc_fkey key, nnc_machine m);
/* "nnc_sin_near", "nnc_fast_exp", "nnc_log_f64". */
void nnc_formula_name(char *out, size_t n, nnc_fkey key);
/* y[i] = formula(a[i], b[i]), all of the key's type; b may be NULL. Each step is rounded to its type; products with sums are fused. */
void nnc_formula_run(const nnc_formula *f, int n, const void *a, const void *b, void *y);

/* 2/pi in overlapping 32-bit words, each shifted by eight bits: for FO_word. */
#define NNC_TWO_OVER_PI 24
extern const uint32_t nnc_two_over_pi[NNC_TWO_OVER_PI];

#endif
