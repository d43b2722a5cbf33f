/* math/improve.c -- computes value ranges of a kernel and runs the simplifications that use them, in order. */
#include "math/collapse.h"
#include "math/math.h"

static const nnc_sop decidable[] = {SC_max, SC_min, SC_abs, SC_select, SC_isnan, SC_isinf, SC_eq,
    SC_ne, SC_lt, SC_le, SC_gt, SC_ge, SC_and, SC_or, SC_not};

static void count_decidable(const nnc_kernel *k, int *count)
{
    for (size_t j = 0; j < NNC_COUNT(decidable); j++) {
        count[j] = 0;
        for (int i = 0; i < k->n_ins; i++)
            count[j] += k->ins[i].op == KO_sop && k->ins[i].sop == decidable[j];
    }
}

/* Computes ranges and notes the instructions that they removed. False: out of memory. */
static bool find_ranges(nnc_kernel *k, nnc_text *note)
{
    int before[NNC_COUNT(decidable)], after[NNC_COUNT(decidable)], n = 0;
    count_decidable(k, before);
    if (!nnc_kernel_ranges(k))
        return false;
    count_decidable(k, after);
    for (size_t j = 0; j < NNC_COUNT(decidable); j++) {
        if (after[j] >= before[j])
            continue;
        nnc_printf(note, "%s%s", n++ ? ", " : "", nnc_sops[decidable[j]].name);
        if (before[j] - after[j] > 1)
            nnc_printf(note, " x%d", before[j] - after[j]);
    }
    if (n)
        nnc_puts(note, ": removed, decided by the range of its argument\n");
    return true;
}

bool nnc_kernel_improve(nnc_kernel *k, const nnc_target *t, nnc_math math, nnc_arena *a)
{
    /* Without fma, all policies use the f64 forms; exact still computes each term of a sum. */
    const bool marks = nnc_has_fma(t) || math == MATH_exact;
    bool changed = false;
    NNC_LOCAL(nnc_text) note = {0};
    /* fast forms have larger errors, so their ranges are wider */
    bool ok = !marks || nnc_kernel_mark(k, math, NULL);
    ok = ok && find_ranges(k, &note);
    ok = ok && nnc_kernel_simplify(k, math, a, &note, &changed);
    /* values of which 16 bits suffice are found by ranges, too */
    if (ok && marks)
        ok = nnc_kernel_mark(k, math, NULL);
    if (ok && (changed || (marks && math != MATH_exact)))
        ok = nnc_kernel_ranges(k);
    if (ok && math != MATH_exact)
        ok = nnc_kernel_collapse(k, t, math, a, &note);
    ok = ok && nnc_kernel_join_erf(k, math, a, &note);
    if (ok && math == MATH_fast && nnc_has_fma(t))
        ok = nnc_kernel_contract(k, a, &note);
    if (ok && marks)
        ok = nnc_kernel_mark(k, math, &note);
    if (ok && note.n > 0)
        k->note = nnc_arena_strdup(a, nnc_text_str(&note));
    return ok && !note.oom && (note.n == 0 || k->note);
}
