/* schedule/schedule_pixels.c -- GPU kernels that write images of few channels channels-last. One thread computes all channels of several
 * pixels, so that it loads vectors of each channel's plane and stores consecutive elements.
 *
 *     y[3 i + c] = f(x[i + plane c])      8 pixels a thread: 3 loads of 8 elements, a store of 24 */
#include "schedule/schedule.h"

enum { FEW = 8 /* channels */ };

int32_t cu_store_run(const nnc_kernel *k, int32_t id, int a, int vec, int *n)
{
    const nnc_kins *in = &k->ins[id];
    const int64_t apart = a >= 0 ? in->at.k[a] : 0;
    if (in->op != KO_store || apart < 2 || apart > FEW || in->n_guard > 0 ||
        nnc_kins_index(in) >= 0)
        return -1;
    const int64_t size = nnc_dtype_size(k->buf[in->buf].dtype), bytes = apart * vec * size;
    uint32_t seen = 0;
    int32_t first = -1;
    if (bytes % 16)
        return -1;
    for (int32_t i = 0; i < k->n_ins; i++) {
        const nnc_kins *s = &k->ins[i];
        if (s->op != KO_store || s->buf != in->buf)
            continue;
        bool same = s->n_guard == 0 && nnc_kins_index(s) < 0 &&
                    k->ins[s->arg[0]].dtype == k->ins[in->arg[0]].dtype;
        for (int b = 0; b < k->n_axis; b++)
            same &= s->at.k[b] == in->at.k[b];
        if (!same || s->at.c < 0 || s->at.c >= apart || (seen >> s->at.c & 1))
            return -1;
        seen |= 1u << s->at.c;
        first = s->at.c == 0 ? i : first;
    }
    for (int b = 0; b < k->n_outer; b++) /* 16-byte aligned wherever a is a multiple of vec */
        if (b != a && k->axis[b].extent > 1 && in->at.k[b] * size % 16)
            return -1;
    *n = (int)apart;
    return seen == (1u << apart) - 1 ? first : -1;
}

/* Pixels of a thread: 16 bytes of the narrowest type. */
static int pixels(const nnc_kernel *k)
{
    int size = 4;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_load || k->ins[i].op == KO_store)
            size = (int)nnc_min64(size, nnc_dtype_size(k->buf[k->ins[i].buf].dtype));
    return size < 4 ? 8 : 4;
}

/* The axis along which loads are contiguous where the stores along v are n elements apart; -1: none. */
static int pixel_axis(const nnc_kernel *k, int v, int64_t n)
{
    for (int w = 0; w < k->n_outer; w++) {
        bool all = w != v && k->axis[w].extent >= 64 && k->axis[w].extent % pixels(k) == 0,
             any = false;
        for (int i = 0; i < k->n_ins; i++) {
            const nnc_kins *in = &k->ins[i];
            all &= in->op != KO_store || (in->at.k[w] == n && in->n_guard == 0);
            any |= in->op == KO_load && in->at.k[w] == 1 && in->at.k[v] > 1;
        }
        if (all && any)
            return w;
    }
    return -1;
}

bool nnc_pixel_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem)
{
    const int v = t && t->kind == NNC_T_cuda ? nnc_store_axis(k) : -1;
    const int64_t n = v >= 0 ? k->axis[v].extent : 0;
    if (n < 2 || n > FEW || nnc_kernel_scratch(k) > 0)
        return true;
    const int w = pixel_axis(k, v, n);
    /* with threads for less than a quarter of the machine, one element each is faster */
    if (w < 0 ||
        nnc_kernel_points(k, (1u << k->n_outer) - 1) / (n * pixels(k)) < nnc_cuda_resident(t) / 4)
        return true;
    return nnc_kernel_strip(k, v, (int)n, mem);
}
