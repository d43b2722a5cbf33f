/* kernel/axes.c -- orders a kernel's loops and merges neighbours.
 *
 * Outer and map axes follow the memory order of the largest result, reduce axes that of the largest operand. Two neighbours in
 * the loops of the same stages are merged when they are contiguous in every access: k[a] = k[b] * extent[b] in all forms. */
#include "kernel/kernel.h"

#include <string.h>

static int64_t magnitude(int64_t k)
{
    return k < 0 ? -k : k;
}

/* The largest extent of the axes in set. */
static int64_t longest(const nnc_kernel *k, uint32_t set)
{
    int64_t most = 0;
    for (int a = 0; a < k->n_axis; a++)
        most = set >> a & 1 ? nnc_max64(most, k->axis[a].extent) : most;
    return most;
}

/* Moves few channels of a row-major image inside the window's loops, so that border conditions, which do not depend on channels, are
 * outside of them. Channels are a convolution's first reduce axis, whichever borders its part of an image has: all parts sum in the same
 * order. In the gradient of weights that axis is the batch, which stays. */
static void few_last(const nnc_kernel *k, int64_t key[NNC_KAXES])
{
    enum { FEW = 4, CONV = 3 };
    const uint32_t reduce = nnc_kernel_axes(k, KA_reduce), first = reduce & -reduce;
    uint32_t seen = 0;
    for (int i = 0; i < k->n_ins; i++)
        for (int g = 0; g < k->ins[i].n_guard && k->ins[i].op == KO_load; g++)
            seen |= nnc_affine_axes(&k->ins[i].guard[g].e);
    if (seen & reduce && !(seen & first) && __builtin_popcount(reduce) >= CONV &&
        longest(k, first) <= FEW && longest(k, seen & reduce) <= longest(k, seen & ~reduce))
        key[__builtin_ctz(first)] = 0;
}

/* Stride of each axis in the access that determines its position; 0 = none. */
static void find_keys(const nnc_kernel *k, bool gpu, int64_t key[NNC_KAXES])
{
    int64_t weight[NNC_KAXES] = {0};
    memset(key, 0, sizeof *key * NNC_KAXES);
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op != KO_load && in->op != KO_store)
            continue;
        const nnc_kbuf *b = &k->buf[in->buf];
        for (int a = 0; a < k->n_axis; a++) {
            bool wanted = k->axis[a].kind == KA_reduce ? in->op == KO_load : b->role == KB_out;
            if (wanted && in->at.k[a] != 0 && b->numel > weight[a]) {
                weight[a] = b->numel;
                key[a] = magnitude(in->at.k[a]);
            }
        }
    }
    if (!gpu)
        few_last(k, key);
    for (int s = 0; s < k->n_stage;
         s++) /* argmax numbers elements row-major, so the order of its axes must stay */
        for (int i = k->stage[s].body0; i < k->stage[s].body1; i++)
            if (k->ins[i].op == KO_reduce && k->ins[i].sop >= KR_argmax)
                for (int a = 0; a < k->n_axis; a++)
                    if (k->axis[a].kind == KA_reduce && (k->stage[s].axes >> a & 1))
                        key[a] = INT64_MAX - a;
}

static void permute_form(nnc_affine *e, const int *to)
{
    nnc_affine f = {.c = e->c};
    for (int a = 0; a < NNC_KAXES; a++)
        if (e->k[a] != 0 && to[a] >= 0)
            f.k[to[a]] += e->k[a];
    *e = f;
}

/* Renames axis a to to[a]; -1: the axis is removed. */
static void permute(nnc_kernel *k, const int *to)
{
    for (int i = 0; i < k->n_ins; i++) {
        nnc_kins *in = &k->ins[i];
        permute_form(&in->at, to);
        for (int g = 0; g < in->n_guard; g++)
            permute_form(&in->guard[g].e, to);
        if (in->op == KO_index)
            in->i = to[in->i];
    }
    for (int s = 0; s < k->n_stage; s++) {
        uint32_t m = 0;
        for (int a = 0; a < k->n_axis; a++)
            if (k->stage[s].axes >> a & 1 && to[a] >= 0)
                m |= 1u << to[a];
        k->stage[s].axes = m;
    }
}

/* Sorts outer axes first, then by key, larger ones first (stable). */
static void sort_axes(nnc_kernel *k, const int64_t key[NNC_KAXES])
{
    int order[NNC_KAXES], to[NNC_KAXES];
    nnc_kaxis old[NNC_KAXES];
    for (int i = 0; i < k->n_axis; i++) {
        int j = i;
        bool outer = k->axis[i].kind == KA_outer;
        for (; j > 0; j--) {
            bool before = k->axis[order[j - 1]].kind == KA_outer;
            if (before > outer || (before == outer && key[order[j - 1]] >= key[i]))
                break;
            order[j] = order[j - 1];
        }
        order[j] = i;
    }
    for (int i = 0; i < NNC_KAXES; i++)
        to[i] = i;
    memcpy(old, k->axis, sizeof old);
    for (int i = 0; i < k->n_axis; i++) {
        to[order[i]] = i;
        k->axis[i] = old[order[i]];
    }
    permute(k, to);
}

/* Removes axis a, which no form contains any more. */
static void remove_axis(nnc_kernel *k, int a)
{
    int to[NNC_KAXES];
    for (int i = 0; i < NNC_KAXES; i++)
        to[i] = i > a ? i - 1 : i < a ? i : -1;
    permute(k, to);
    k->n_outer -= k->axis[a].kind == KA_outer;
    memmove(&k->axis[a], &k->axis[a + 1], sizeof k->axis[0] * (size_t)(k->n_axis - a - 1));
    k->n_axis--;
}

void nnc_kernel_outer_first(nnc_kernel *k)
{
    uint32_t used = 0;
    for (int s = 0; s < k->n_stage; s++)
        used |= k->stage[s].axes;
    for (int a = k->n_axis - 1; a >= 0; a--)
        if (k->axis[a].kind != KA_outer && !(used >> a & 1))
            remove_axis(k, a);
    sort_axes(k, (int64_t[NNC_KAXES]){0});
}

void nnc_kernel_order_axes(nnc_kernel *k, bool gpu)
{
    int64_t key[NNC_KAXES];
    find_keys(k, gpu, key);
    sort_axes(k, key);
}

static bool form_merges(const nnc_affine *e, int a, int b, int64_t extent)
{
    int64_t k;
    return nnc_mul_ok(e->k[b], extent, &k) && e->k[a] == k;
}

/* The axis that follows a in the loops of all stages with a, if no other stage has it; -1: none. */
static int next_axis(const nnc_kernel *k, int a)
{
    uint32_t later = 0;
    if (a < k->n_outer)
        return a + 1 < k->n_outer ? a + 1 : -1;
    for (int s = 0; s < k->n_stage; s++)
        later |= k->stage[s].axes >> a & 1 ? k->stage[s].axes >> a >> 1 : 0;
    int b = later ? a + 1 + __builtin_ctz(later) : -1;
    for (int s = 0; b >= 0 && s < k->n_stage; s++)
        if ((k->stage[s].axes >> a & 1) != (k->stage[s].axes >> b & 1))
            return -1;
    return b;
}

/* True when axis a can be merged into axis b, the next. */
static bool can_merge(const nnc_kernel *k, int a, int b)
{
    int64_t n = k->axis[b].extent, all;
    if (k->axis[a].kind != k->axis[b].kind || k->axis[a].seq || k->axis[b].seq ||
        !nnc_mul_ok(n, k->axis[a].extent, &all))
        return false;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_index && (in->i == a || in->i == b))
            return false;
        if (!form_merges(&in->at, a, b, n))
            return false;
        for (int g = 0; g < in->n_guard; g++)
            if (!form_merges(&in->guard[g].e, a, b, n))
                return false;
    }
    return true;
}

static void merge(nnc_kernel *k, int a, int b)
{
    k->axis[b].extent *= k->axis[a].extent;
    remove_axis(k, a);
}

void nnc_kernel_merge_axes(nnc_kernel *k, bool apart)
{
    for (int a = k->n_axis - 2; a >= 0; a--) {
        int b = next_axis(k, a);
        if (b >= 0 && (apart || b == a + 1) && can_merge(k, a, b))
            merge(k, a, b);
    }
}
