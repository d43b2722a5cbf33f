/* cost/gpu.c -- what generated kernels of GPUs take beside a library: depthwise convolutions, products of few rows. */
#include "cost/cost.h"
#include <math.h>

/* A kernel that takes at most this many times as long as its memory accesses reads and writes once, and its epilogue is free.
 * A library's general engine is faster only for windows beyond that. */
enum { SLOWER = 4 };

bool nnc_target_depthwise(const nnc_target *t, nnc_dtype d, int64_t taps, const char **why)
{
    static _Thread_local char text[160];
    if (t->kind != NNC_T_cuda || !nnc_target_for_kernels(t) || !nnc_is_float(d) || taps < 1 ||
        taps > 1 << 20)
        return false;
    int size = nnc_dtype_size(d);
    double each = nnc_gpu_price[NNC_G_tap_result] +
                  (double)taps * nnc_gpu_price[size == 2 ? NNC_G_tap_16 : NNC_G_tap_f32];
    double issue = each / ((double)t->flops_f32 / 2) * 1e12; /* a multiply-add is two FLOPs */
    double memory = 2.0 * size / (double)t->copy_bytes_s * 1e12;
    if (why)
        snprintf(text, sizeof text,
            "a result takes %.2f ps of memory, and about %.2f ps of %.0f instructions", memory,
            issue, each);
    if (why)
        *why = text;
    return issue <= SLOWER * memory;
}

/* Estimates of products of few rows. A library has a special kernel for one row. For more it has tiles of at least 16 rows, whose sums it
 * splits over blocks and adds up again. */

/* Seconds that the kernel, its instructions alone, and the library take beside the launch, as text; static. */
static const char *row_times(
    const nnc_target *t, const char *name, double kernel, double issue, double library)
{
    static _Thread_local char text[200];
    const int64_t own = (int64_t)(kernel * 1e9) + t->launch_ns,
                  other = (int64_t)(library * 1e9) + t->launch_ns;
    const int more = nnc_us_digits(own, other);
    NNC_LOCAL(nnc_text) s = {0};
    nnc_puts(&s, "about ");
    nnc_put_us(&s, own, more);
    nnc_puts(&s, ", of which instructions ");
    nnc_put_us(&s, (int64_t)(issue * 1e9), 0);
    nnc_printf(&s, own == other ? "; %s the same" : "; %s ", name);
    if (own != other)
        nnc_put_us(&s, other, more);
    snprintf(text, sizeof text, "%s", nnc_text_str(&s));
    return text;
}

bool nnc_target_row_product(const nnc_target *t, const nnc_row_product *r, const char **why)
{
    const nnc_target_engine *e = nnc_target_engine_for(t, r->kind);
    const int size = nnc_dtype_size(r->dtype);
    const double weights = (double)r->matrices * (double)r->outputs * (double)r->terms,
                 rows = (double)r->rows,
                 ends = (double)r->matrices * rows * (double)(r->outputs + r->terms),
                 bytes = size * (weights + ends), rate = (double)t->copy_bytes_s,
                 each = nnc_gpu_price[size == 2 ? NNC_G_row_weight_16 : NNC_G_row_weight_f32] +
                        nnc_gpu_price[NNC_G_row] * rows,
                 peak = (double)nnc_target_peak_flops(t, r->dtype, r->tf32) *
                        (e && e->efficiency > 0 ? e->efficiency : 1);
    if (t->kind != NNC_T_cuda || !nnc_target_for_kernels(t) || r->rows < 1 || r->rows > NNC_ROWS ||
        (r->dtype != DT_f32 && size != 2) || !e)
        return false;
    const double issue = weights * each / ((double)t->flops_f32 / 2),
                 kernel = fmax(bytes / rate, issue),
                 library = fmax(bytes / rate / (r->rows > 1 ? nnc_gpu_price[NNC_G_row_tiles] : 1),
                     2 * weights * rows / peak);
    if (why)
        *why = row_times(t, e->name, kernel, issue, library);
    return kernel <= library;
}
