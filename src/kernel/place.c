/* kernel/place.c -- whether a kernel may write a result over one of its operands. Every element must be read before it is written, in the
 * same iteration. The rule is conservative. There is one stage, or several whose own axes are only reduced. The result has one store,
 * without guards, that visits every element exactly once: after the reductions, or on CPUs within its stage's. All loads of the operand
 * precede it, at the stored index. Several results may each be over an operand of their own. A kernel that adds blocks of terms to its
 * results is excluded: it stores these before it reads all of its operands. */
#include "kernel/kernel.h"
#include <stdlib.h>

static bool same_at(const nnc_kernel *k, const nnc_affine *a, const nnc_affine *b)
{
    if (a->c != b->c)
        return false;
    for (int i = 0; i < k->n_axis; i++)
        if (k->axis[i].extent != 1 && a->k[i] != b->k[i])
            return false;
    return true;
}

/* Do all points of these axes have distinct places? Each axis' step must exceed the common reach of axes with smaller steps. */
static bool distinct_places(const nnc_kernel *k, uint32_t axes, const nnc_affine *at)
{
    int64_t reach = 0, way;
    uint32_t left = 0;
    for (int a = 0; a < k->n_axis && a < NNC_KAXES; a++)
        left |= (uint32_t)((axes >> a & 1) && k->axis[a].extent > 1) << a;
    for (;;) {
        int least = -1;
        for (int a = 0; a < k->n_axis && a < NNC_KAXES; a++)
            if ((left >> a & 1) && (least < 0 || llabs(at->k[a]) < llabs(at->k[least])))
                least = a;
        if (least < 0)
            return true;
        if (llabs(at->k[least]) <= reach ||
            !nnc_mul_ok(llabs(at->k[least]), k->axis[least].extent - 1, &way) ||
            !nnc_add_ok(reach, way, &reach))
            return false;
        left &= ~(1u << least);
    }
}

/* Does each iteration of the outer axes run all stages before the next iteration begins? */
static bool runs_by_point(const nnc_kernel *k)
{
    bool tmp = false;
    for (int b = 0; b < k->n_buf; b++)
        tmp = tmp || k->buf[b].role == KB_tmp;
    return k->n_stage == 1 || (!tmp && !nnc_kernel_axes(k, KA_map));
}

bool nnc_kernel_may_overlay(const nnc_kernel *k, int bi, int bo)
{
    if (!runs_by_point(k) || nnc_kernel_in_order(k) || nnc_kernel_added_axis(k) >= 0 ||
        k->buf[bi].role != KB_in || k->buf[bo].role != KB_out)
        return false;
    const nnc_kbuf *x = &k->buf[bi], *y = &k->buf[bo];
    if (x->numel != y->numel || nnc_dtype_size(x->dtype) != nnc_dtype_size(y->dtype))
        return false;
    const nnc_kins *store = NULL;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *s = &k->ins[i];
        if (s->op != KO_store || s->buf != bo)
            continue;
        const uint32_t summed = nnc_reduce_axes(k, i),
                       axes = summed | ~nnc_kernel_axes(k, KA_reduce);
        if (store || s->n_guard || s->arg[1] >= 0 || (summed && k->grid.cls != KC_none) ||
            nnc_kernel_points(k, axes) != y->numel || !distinct_places(k, axes, &s->at))
            return false;
        store = s;
    }
    for (int i = 0; store && i < k->n_ins; i++) {
        const nnc_kins *l = &k->ins[i];
        if (l->op == KO_load && l->buf == bi &&
            (l->arg[0] >= 0 || l > store || !same_at(k, &l->at, &store->at)))
            return false;
    }
    return store != NULL;
}

/* Buffer index of the kernel's a-th argument. */
static int arg_buffer(const nnc_kernel *k, int a)
{
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role != KB_tmp && a-- == 0)
            return b;
    return -1;
}

bool nnc_kernel_in_place(const nnc_kernel *k, int in, int out)
{
    int bi = arg_buffer(k, in), bo = arg_buffer(k, out);
    return bi >= 0 && bo >= 0 && nnc_kernel_may_overlay(k, bi, bo);
}
