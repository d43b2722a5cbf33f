/* kernel/product.c -- finds stages that are sums of products of two loads, which the interpreter runs in a special loop. Also finds
 * operands that a kernel updates. */
#include "kernel/kernel.h"

bool nnc_kernel_updates(const nnc_kernel *k, const nnc_kins *load)
{
    if (load->op != KO_load || load->arg[0] >= 0)
        return false;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_store && k->buf[k->ins[i].buf].numel == k->buf[load->buf].numel &&
            nnc_affine_equal(&k->ins[i].at, &load->at))
            return true;
    return false;
}

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
    for (int g = 0; g < x->n_guard; g++) /* the same for all lanes */
        same = same && (vec < 0 || x->guard[g].e.k[vec] == 0);
    return r->sop == KR_sum && r->arg[1] < 0 && !r->running &&
           (r->dtype == DT_f32 || r->dtype == DT_f64) &&
           (zero || (f->op == KO_sop && f->sop == SC_mul)) && f->arg[0] == p->x &&
           f->arg[1] == p->w && same && x->arg[0] < 0 && w->arg[0] < 0 && w->n_guard == 0 &&
           (x->n_guard == 0 || k->ins[x->arg[1]].op == KO_const);
}
