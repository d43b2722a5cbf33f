/* math/collapse.h -- what ranges make cheaper: chains of functions as polynomials, powers as products. */
#ifndef NNC_COLLAPSE_H
#define NNC_COLLAPSE_H

#include "math/math.h"

/* --math: docs/math.md. */
typedef enum nnc_math { MATH_ulp2, MATH_exact, MATH_fast } nnc_math;
nnc_math nnc_math_of(const nnc_target *t); /* NULL: ulp2 */
bool nnc_has_fma(const nnc_target *t);

/* Replaces chains of functions of one bounded value by polynomials where that takes fewer instructions. Needs
 * nnc_kernel_ranges; later calls of it would widen what is known of the results. Instructions come from `a`; `note` gets
 * a line for each. False: out of memory. */
bool nnc_kernel_collapse(nnc_kernel *k, const nnc_target *t, nnc_arena *a, nnc_text *note);
/* Powers with a constant exponent as products and roots, quotients as products, by ranges. MATH_exact: only where each result
 * stays the correctly rounded one. *changed: nnc_kernel_ranges has to run again. */
bool nnc_kernel_simplify(nnc_kernel *k, nnc_math math, nnc_arena *a, nnc_text *note, bool *changed);
/* policy.c: a product that one sum alone uses becomes one operation with it (MATH_fast). */
bool nnc_kernel_contract(nnc_kernel *k, nnc_arena *a, nnc_text *note);
/* 1 + erf x as one function, under --math=fast and where only 16 bits of it are asked: the sum cancels for negative x, and the
 * erf, whose error stays, could not be short. false: out of memory. */
bool nnc_kernel_join_erf(nnc_kernel *k, nnc_math math, nnc_arena *a, nnc_text *note);
/* Marks functions that have an exact or a fast form: before ranges, which are wider for fast ones, and as the last step. note: or NULL.
 * False: out of memory. */
bool nnc_kernel_mark(nnc_kernel *k, nnc_math math, nnc_text *note);
/* Which values only reach memory as f16 or bf16, by steps that keep a relative error what it is: loose[n_ins], zeros at first. */
void nnc_kernel_loose(const nnc_kernel *k, bool *loose);

/* A kernel's instructions written anew, section by section. */
typedef struct nnc_kedit {
    nnc_kernel *k;
    nnc_kins *ins;
    int n;
    int32_t *map; /* old instruction to new */
} nnc_kedit;

/* Room for `extra` more instructions. False: out of memory. */
bool nnc_kedit_begin(nnc_kedit *e, nnc_kernel *k, int extra, nnc_arena *a);
int32_t nnc_kedit_sop(nnc_kedit *e, nnc_sop op, nnc_dtype d, int32_t x, int32_t y, int32_t z);
int32_t nnc_kedit_const(nnc_kedit *e, nnc_dtype d, double v);
/* Copies instruction i, its operands mapped. */
void nnc_kedit_copy(nnc_kedit *e, int i);
/* Walks all sections; put(ctx, e, i) writes what stands for instruction i and sets e->map[i]. Drops what is unused. */
void nnc_kedit_run(nnc_kedit *e, void (*put)(void *ctx, nnc_kedit *e, int i), void *ctx);

/* ranges.c: [lo, hi] bounds what is not NaN; nan: NaN is possible. Of a KO_sop by its operands' ranges. */
typedef struct nnc_range {
    double lo, hi;
    bool nan;
} nnc_range;
nnc_range nnc_range_of_sop(const nnc_kins *in, nnc_range a, nnc_range b, nnc_range c);

/* ranges.c: drops what no store needs. map: n_ins + 1 zeros; comes back as old instruction to new. */
void nnc_kernel_compact(nnc_kernel *k, int32_t *map);

#endif
