/* kernel/ahead.c -- prefetched weights: the directive `prefetch` of a register block. While a work item computes with its weights, it
 * prefetches those of the next one into the core's own cache, evenly over its steps. So no work item begins with weights from memory. */
#include "kernel/kernel.h"

/* The load of the weights: along the vector axis, the same for all points of a register block. -1: none. */
static int32_t weights_of(const nnc_kernel *k, const nnc_kstage *stage)
{
    const int v = nnc_sched_vec(&k->sched);
    for (int32_t i = stage->body0; i < stage->body1; i++) {
        const nnc_kins *in = &k->ins[i];
        bool ok = in->op == KO_load && in->n_guard == 0 && in->arg[0] < 0 && in->at.k[v] == 1 &&
                  k->buf[in->buf].role == KB_in && nnc_affine_axes(&in->at) & stage->axes;
        for (int a = 0; a < k->n_outer && ok; a++)
            ok = in->at.k[a] == 0 || a == v || nnc_sched_n(&k->sched, KD_tile, a) <= 1;
        if (ok)
            return i;
    }
    return -1;
}

/* The axis along which consecutive work items advance; -1: there is only one work item. */
static int fastest(const nnc_kernel *k)
{
    int digit[NNC_KAXES], n = nnc_kernel_digits(k, digit);
    while (n-- > 0)
        if (nnc_kernel_blocks(k, digit[n]) > 1)
            return digit[n];
    return -1;
}

const char *nnc_kernel_ahead(const nnc_kernel *k, nnc_kahead *p)
{
    const int v = nnc_sched_vec(&k->sched), next = fastest(k);
    const nnc_kstage *s = &k->stage[0];
    *p = (nnc_kahead){.steps = 1, .strips = 1};
    if (k->n_stage != 1 || v < 0 || v >= k->n_outer || !nnc_sched_has(&k->sched, KD_unroll) ||
        nnc_kernel_added_axis(k) >= 0)
        return "only a register block prefetches weights";
    p->load = weights_of(k, s);
    if (p->load < 0 || next < 0 || next == v || k->ins[p->load].at.k[next] == 0)
        return "the next work item has the same weights";
    const nnc_kins *w = &k->ins[p->load];
    int64_t last = 0, n = 1; /* offset of the last element, number of elements */
    for (int a = 0; a < k->n_axis; a++) {
        const int64_t extent = k->axis[a].extent, tile = nnc_sched_n(&k->sched, KD_tile, a),
                      each = nnc_max64(nnc_sched_n(&k->sched, KD_unroll, a), 1);
        if (a == v || (a >= k->n_outer && w->at.k[a])) {
            last += w->at.k[a] * (extent - 1);
            n = nnc_mul_sat(n, extent);
        }
        if (a >= k->n_outer)
            p->steps = nnc_mul_sat(p->steps, extent);
        else if (a != v && tile > 1)
            p->strips = nnc_mul_sat(p->strips, nnc_ceildiv(nnc_min64(tile, extent), each));
    }
    p->steps = nnc_mul_sat(p->steps, p->strips);
    p->next = w->at.k[next];
    p->bytes = nnc_mul_sat(n, nnc_dtype_size(k->buf[w->buf].dtype));
    return last + 1 == n && nnc_kernel_blocks(k, v) == 1
               ? NULL
               : "a work item's weights are not contiguous";
}
