/* interp/product.c -- sums of products without interpretation: a stage whose body is one product of two loads and its sum, as in a
 * matrix product or a convolution. Steps along its last reduce axis run in one loop, with one rounding for each. */
#include "interp/internal.h"

#include <math.h>

bool nnc_product_find(const nnc_kernel *k, const nnc_kstage *s, int vec, nnc_product *p)
{
    int load[2], n_load = 0, sums = 0;
    *p = (nnc_product){.sum = -1, .axis = -1};
    for (int a = k->n_outer; a < k->n_axis; a++)
        if ((s->axes >> a & 1) && k->axis[a].kind == KA_reduce)
            p->axis = a;
    if (p->axis < 0 || p->axis == vec)
        return false;
    for (int i = s->body0; i < s->body1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_load && n_load < 2)
            load[n_load++] = i;
        else if (in->op == KO_reduce && sums++ == 0)
            p->sum = i;
        else if (in->op != KO_const && in->op != KO_sop)
            return false;
    }
    if (n_load != 2 || sums != 1)
        return false;
    const nnc_kins *r = &k->ins[p->sum], *f = &k->ins[r->arg[0]];
    p->x = load[f->arg[0] == load[1]];
    p->w = load[f->arg[0] != load[1]];
    const nnc_kins *x = &k->ins[p->x], *w = &k->ins[p->w];
    bool zero = f->op == KO_sop && f->sop == SC_fma && k->ins[f->arg[2]].op == KO_const &&
                k->ins[f->arg[2]].f == 0;
    bool same = k->buf[x->buf].dtype == r->dtype && k->buf[w->buf].dtype == r->dtype;
    for (int g = 0; g < x->n_guard; g++) /* of all lanes at once, or none */
        same = same && (vec < 0 || x->guard[g].e.k[vec] == 0);
    return r->sop == KR_sum && r->arg[1] < 0 && (r->dtype == DT_f32 || r->dtype == DT_f64) &&
           (zero || (f->op == KO_sop && f->sop == SC_mul)) && f->arg[0] == p->x &&
           f->arg[1] == p->w && same && x->arg[0] < 0 && w->arg[0] < 0 && w->n_guard == 0 &&
           (x->n_guard == 0 || k->ins[x->arg[1]].op == KO_const);
}

/* Lanes that a loop takes at once, in registers. */
enum { LANES = 32 };

#define STEPS(name, T, fma) \
    NNC_CLONES static void name(int n, nnc_factor x, nnc_factor w, int64_t steps, T *restrict acc) \
    { \
        const T *a = x.at, *b = w.at; \
        for (; n >= LANES && x.lane == 0 && w.lane == 1; n -= LANES, acc += LANES, b += LANES) { \
            T sum[LANES]; \
            for (int i = 0; i < LANES; i++) \
                sum[i] = acc[i]; \
            for (int64_t s = 0; s < steps; s++) \
                for (int i = 0; i < LANES; i++) \
                    sum[i] = fma(a[s * x.step], b[s * w.step + i], sum[i]); \
            for (int i = 0; i < LANES; i++) \
                acc[i] = sum[i]; \
        } \
        for (int64_t s = 0; s < steps; s++, a += x.step, b += w.step) \
            for (int i = 0; i < n; i++) \
                acc[i] = fma(a[i * x.lane], b[i * w.lane], acc[i]); \
    }
STEPS(steps_f32, float, fmaf)
STEPS(steps_f64, double, fma)

void nnc_product_steps(nnc_dtype d, int n, nnc_factor x, nnc_factor w, int64_t steps, void *acc)
{
    if (d == DT_f32)
        steps_f32(n, x, w, steps, acc);
    else
        steps_f64(n, x, w, steps, acc);
}
