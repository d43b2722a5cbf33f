/* math/collapse.h -- simplifications that use value ranges: chains of functions as polynomials, powers as products. */
#ifndef NNC_COLLAPSE_H
#define NNC_COLLAPSE_H

#include "math/math.h"

bool nnc_has_fma(const nnc_target *t);

/* Replaces chains of functions of one bounded value by polynomials where that takes fewer instructions. Needs nnc_kernel_ranges before
 * it; running that later would widen the results' ranges. Instructions come from `a`; `note` gets a line per polynomial. False: out of
 * memory. */
bool nnc_kernel_collapse(nnc_kernel *k, const nnc_target *t, nnc_math math, nnc_arena *a, nnc_text *note);
/* Rewrites powers with a constant exponent as products and roots, and quotients as products, where ranges allow it. MATH_exact: only
 * where every result stays correctly rounded. *changed: nnc_kernel_ranges must run again. */
bool nnc_kernel_simplify(nnc_kernel *k, nnc_math math, nnc_arena *a, nnc_text *note, bool *changed);
/* policy.c: fuses a product into the sum that is its only user (MATH_fast). */
bool nnc_kernel_contract(nnc_kernel *k, nnc_arena *a, nnc_text *note);
/* Rewrites 1 + erf x as one function, under --math=fast and where 16 bits of it suffice. The sum cancels for negative x, where a
 * fast erf would be too inaccurate. False: out of memory. */
bool nnc_kernel_join_erf(nnc_kernel *k, nnc_math math, nnc_arena *a, nnc_text *note);
/* Marks functions that have an exact or a fast form; run before ranges, which are wider for fast forms, and again as the last step.
 * note: or NULL. False: out of memory. */
bool nnc_kernel_mark(nnc_kernel *k, nnc_math math, nnc_text *note);
/* Finds values that reach memory only as f16 or bf16, through ops that do not increase a relative error: loose[n_ins], initially
 * false. */
void nnc_kernel_loose(const nnc_kernel *k, bool *loose);

/* Rewrites a kernel's instructions, section by section. */
typedef struct nnc_kedit {
    nnc_kernel *k;
    nnc_kins *ins;
    int n;
    int32_t *map; /* old instruction to new */
} nnc_kedit;

/* Reserves space for `extra` more instructions. False: out of memory. */
bool nnc_kedit_begin(nnc_kedit *e, nnc_kernel *k, int extra, nnc_arena *a);
int32_t nnc_kedit_sop(nnc_kedit *e, nnc_sop op, nnc_dtype d, int32_t x, int32_t y, int32_t z);
int32_t nnc_kedit_const(nnc_kedit *e, nnc_dtype d, double v);
/* Copies instruction i with its operands mapped. */
void nnc_kedit_copy(nnc_kedit *e, int i);
/* Visits all sections; rewrite(ctx, e, i) writes the replacement of instruction i and sets e->map[i]. Removes unused instructions. */
void nnc_kedit_run(nnc_kedit *e, void (*rewrite)(void *ctx, nnc_kedit *e, int i), void *ctx);

/* ranges.c: [lo, hi] bounds the value unless it is NaN; nan: NaN is possible. The range of a KO_sop follows from its operands' ranges. */
typedef struct nnc_range {
    double lo, hi;
    bool nan;
} nnc_range;
nnc_range nnc_range_of_sop(const nnc_kins *in, nnc_range a, nnc_range b, nnc_range c);

/* ranges.c: removes instructions that no store needs. map: n_ins + 1 zeros; out: old instruction to new. */
void nnc_kernel_compact(nnc_kernel *k, int32_t *map);

#endif
