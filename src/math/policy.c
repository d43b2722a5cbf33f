/* math/policy.c -- the effect of --math on kernels: which form of each function they use (docs/math.md).
 *
 * Instructions carry the policy as a mark (KH_exact, KH_fast), which is part of the kernel's text and name. Emitters use the form
 * that the mark names. */
#include "math/collapse.h"
#include "math/formula.h"

bool nnc_has_fma(const nnc_target *t)
{
    return !t || t->kind == NNC_T_cuda || t->fma;
}

/* ---- fusing a b + c ---- */

typedef struct contractor {
    const nnc_kernel *k;
    int *uses;
    int n;
} contractor;

/* The operand of a sum that is a product with no other user, in the same section; -1: none. */
static int product_in(const contractor *c, const nnc_kins *in, int i)
{
    if (in->op != KO_sop || in->dtype != DT_f32 || (in->sop != SC_add && in->sop != SC_sub))
        return -1;
    int first = 0, last = c->k->n_ins;
    for (int g = 0; g < c->k->n_stage; g++) {
        const nnc_kstage *s = &c->k->stage[g];
        if (i >= s->body0 && i < s->body1)
            first = s->body0, last = s->body1;
        else if (i >= s->post0 && i < s->post1)
            first = s->post0, last = s->post1;
    }
    for (int j = 0; j < 2; j++) {
        const nnc_kins *p = &c->k->ins[in->arg[j]];
        if (in->arg[j] >= first && in->arg[j] < last && p->op == KO_sop && p->sop == SC_mul &&
            c->uses[in->arg[j]] == 1)
            return j;
    }
    return -1;
}

static void rewrite(void *ctx, nnc_kedit *e, int i)
{
    contractor *c = ctx;
    const nnc_kins *in = &c->k->ins[i];
    int j = product_in(c, in, i);
    if (j < 0) {
        nnc_kedit_copy(e, i);
        return;
    }
    const nnc_kins *p = &c->k->ins[in->arg[j]];
    int32_t x = e->map[p->arg[0]], y = e->map[p->arg[1]], z = e->map[in->arg[1 - j]];
    if (in->sop == SC_sub && j == 0) /* a b - c */
        z = nnc_kedit_sop(e, SC_neg, DT_f32, z, -1, -1);
    else if (in->sop == SC_sub) /* c - a b */
        x = nnc_kedit_sop(e, SC_neg, DT_f32, x, -1, -1);
    int32_t r = nnc_kedit_sop(e, SC_fma, DT_f32, x, y, z);
    e->ins[r].lo = in->lo;
    e->ins[r].hi = in->hi;
    e->ins[r].maybe_nan = in->maybe_nan;
    e->map[i] = r;
    c->n++;
}

bool nnc_kernel_contract(nnc_kernel *k, nnc_arena *a, nnc_text *note)
{
    contractor c = {.k = k};
    nnc_kedit e;
    c.uses = nnc_calloc((size_t)k->n_ins + 1, sizeof *c.uses);
    if (!c.uses)
        return false;
    for (int i = 0; i < k->n_ins; i++)
        for (int j = 0; j < 3; j++)
            if (k->ins[i].arg[j] >= 0)
                c.uses[k->ins[i].arg[j]]++;
    bool ok = nnc_kedit_begin(&e, k, 2 * k->n_ins, a);
    if (ok) {
        nnc_kedit_run(&e, rewrite, &c);
        if (c.n)
            nnc_printf(note,
                "%d product%s followed by a sum: fused into one operation (--math=fast)\n", c.n,
                c.n > 1 ? "s" : "");
    }
    nnc_free(c.uses);
    return ok;
}

/* ---- marks ---- */

static bool has_form(const nnc_kins *in, nnc_math math)
{
    if (in->sop == SC_fma) /* of a convolution: even where a factor is 0 */
        return math == MATH_exact;
    return nnc_formula_differs((nnc_sop)in->sop, math == MATH_exact ? KH_exact : KH_fast);
}

/* ---- values of which 16 bits suffice ---- */

static bool is_positive(const nnc_kernel *k, int32_t id)
{
    return k->ins[id].lo >= 0 && k->ins[id].lo <= k->ins[id].hi;
}

/* True when the relative error of operand j increases the result's by no more than itself. */
static bool passes_on(const nnc_kernel *k, const nnc_kins *in, int j)
{
    if (in->op == KO_reduce)
        return in->sop == KR_sum && j == 0 && is_positive(k, in->arg[0]);
    if (in->op != KO_sop || in->dtype != DT_f32)
        return false;
    switch ((nnc_sop)in->sop) {
    case SC_neg:
    case SC_abs:
    case SC_mul:
    case SC_div:
    case SC_recip:
    case SC_sqrt: return true;
    case SC_select: return j > 0;
    case SC_add: return is_positive(k, in->arg[0]) && is_positive(k, in->arg[1]);
    default: return false;
    }
}

/* For a temporary buffer: true when everything loaded from it is loose. Loads come after the stores, unless points run in order. */
static bool loads_are_loose(const nnc_kernel *k, const bool *loose, int buf)
{
    if (nnc_kernel_in_order(k))
        return false;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_load && k->ins[i].buf == buf && !loose[i])
            return false;
    return true;
}

void nnc_kernel_loose(const nnc_kernel *k, bool *loose)
{
    for (int i = 0; i < k->n_ins; i++)
        loose[i] = k->ins[i].op != KO_store && k->ins[i].dtype == DT_f32;
    for (int i = k->n_ins - 1; i >= 0; i--) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_store) {
            const nnc_kbuf *b = &k->buf[in->buf];
            bool narrow = b->dtype == DT_f16 || b->dtype == DT_bf16;
            loose[in->arg[0]] &= narrow || (b->role == KB_tmp && b->dtype == DT_f32 &&
                                               loads_are_loose(k, loose, in->buf));
            continue;
        }
        bool rounds = in->op == KO_sop && in->sop == SC_cast &&
                      (in->cast_to == DT_f16 || in->cast_to == DT_bf16);
        for (int j = 0; j < 3; j++)
            if (in->arg[j] >= 0)
                loose[in->arg[j]] &= rounds ? loose[i] : loose[i] && passes_on(k, in, j);
    }
}

/* ---- 1 + erf ---- */

typedef struct joiner {
    const nnc_kernel *k;
    const bool *loose; /* NULL: all values are */
    int n;
} joiner;

/* The operand of 1 + erf x that is the erf; -1: not such a sum. */
static int erf_in(const joiner *c, const nnc_kins *in)
{
    if (in->op != KO_sop || in->sop != SC_add || in->dtype != DT_f32)
        return -1;
    for (int j = 0; j < 2; j++) {
        const nnc_kins *f = &c->k->ins[in->arg[j]], *one = &c->k->ins[in->arg[1 - j]];
        if (f->op == KO_sop && f->sop == SC_erf && one->op == KO_const && one->f == 1)
            return j;
    }
    return -1;
}

static void put_erf1(void *ctx, nnc_kedit *e, int i)
{
    joiner *c = ctx;
    const nnc_kins *in = &c->k->ins[i];
    const int j = c->loose && !c->loose[i] ? -1 : erf_in(c, in);
    if (j < 0) {
        nnc_kedit_copy(e, i);
        return;
    }
    const int32_t r =
        nnc_kedit_sop(e, SC_erf1, DT_f32, e->map[c->k->ins[in->arg[j]].arg[0]], -1, -1);
    e->ins[r].lo = nnc_sops[SC_erf1].lo;
    e->ins[r].hi = nnc_sops[SC_erf1].hi;
    e->map[i] = r;
    c->n++;
}

bool nnc_kernel_join_erf(nnc_kernel *k, nnc_math math, nnc_arena *a, nnc_text *note)
{
    joiner c = {.k = k};
    nnc_kedit e;
    NNC_FREED bool *loose = nnc_calloc((size_t)k->n_ins + 1, sizeof *loose);
    bool any = false;
    if (!loose)
        return false;
    for (int i = 0; i < k->n_ins; i++)
        any |= math != MATH_exact && erf_in(&c, &k->ins[i]) >= 0;
    if (math == MATH_ulp2) {
        nnc_kernel_loose(k, loose);
        c.loose = loose;
    }
    bool ok = !any || nnc_kedit_begin(&e, k, k->n_ins, a);
    if (ok && any)
        nnc_kedit_run(&e, put_erf1, &c);
    if (ok && c.n)
        nnc_printf(note, "1 + erf: one function without cancellation\n");
    return ok;
}

/* ---- marks ---- */

bool nnc_kernel_mark(nnc_kernel *k, nnc_math math, nnc_text *note)
{
    int n = 0;
    NNC_FREED bool *loose = nnc_calloc((size_t)k->n_ins + 1, sizeof *loose);
    if (!loose)
        return false;
    if (math == MATH_ulp2)
        nnc_kernel_loose(k, loose);
    for (int i = 0; i < k->n_ins; i++) {
        nnc_kins *in = &k->ins[i];
        bool term = in->op == KO_sop && in->sop == SC_fma && in->dtype == DT_f64;
        if (in->op != KO_sop || (in->dtype != DT_f32 && !term) ||
            (math == MATH_ulp2 && !loose[i]) || !has_form(in, math))
            continue;
        in->hint |= math == MATH_exact ? KH_exact : KH_fast;
        n += in->sop != SC_fma;
    }
    if (n && note)
        nnc_printf(note, "%d function%s: %s\n", n, n > 1 ? "s" : "",
            math == MATH_exact  ? "the most accurate form, within 0.8 ulp (--math=exact)"
            : math == MATH_fast ? "the fast form, within 2^-15 (--math=fast)"
                                : "the fast form, within 2^-15: results are stored in 16 bits");
    return true;
}
