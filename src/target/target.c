/* target/target.c -- questions about a target: engine selection, time estimates, the cache key. */
#include "target/internal.h"
#include <math.h>
#include <string.h>

void nnc_target_deinit(nnc_target *t)
{
    nnc_arena_deinit(&t->arena);
    *t = (nnc_target){0};
}

const nnc_target_engine *nnc_target_engine_named(const nnc_target *t, const char *name)
{
    for (int i = 0; i < t->n_engines; i++)
        if (strcmp(t->engine[i].name, name) == 0)
            return &t->engine[i];
    return NULL;
}

static const nnc_target_engine *first_for(const nnc_target *t, nnc_ask_kind kind)
{
    const nnc_ask a = {.kind = kind, .dtype = DT_f32};
    for (int i = 0; i < t->n_engines; i++)
        if (nnc_target_offer(t, &t->engine[i], &a).ok)
            return &t->engine[i];
    return NULL;
}

const nnc_target_engine *nnc_target_for_convs(const nnc_target *t)
{
    return first_for(t, ASK_conv);
}

const nnc_target_engine *nnc_target_for_matmuls(const nnc_target *t)
{
    return first_for(t, ASK_matmul);
}

/* Instructions of a depthwise kernel per weight and per result, counted in machine code of 3x3 and 5x5 windows, strides 1 and 2
 * (16-bit elements are converted one by one). */
enum { PER_TAP_F32 = 5, PER_TAP_16 = 8, QUARTERS = 4, BESIDE = 7 };

/* A kernel bound by memory, or at most this many times slower than memory, reads and writes once, and its epilogue is free; a
 * library's general engine is faster only for windows beyond that. */
enum { SLOWER = 4 };

bool nnc_target_depthwise(const nnc_target *t, nnc_dtype d, int64_t taps, const char **why)
{
    static _Thread_local char text[160];
    if (t->kind != NNC_T_cuda || !nnc_target_for_kernels(t) || !nnc_is_float(d) || taps < 1 ||
        taps > 1 << 20)
        return false;
    int size = nnc_dtype_size(d);
    double each = BESIDE + (double)taps * (size == 2 ? PER_TAP_16 : PER_TAP_F32) / QUARTERS;
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

/* Estimates of products of few rows. A kernel's instructions for one element of the weights, in quarters: those of each row (a
 * multiply-add, and its part of the loads and conversions of the source, which several results share, and of adding up a group's sums)
 * and those of the weights' own load and conversion. From the machine code of sm_90 (bench_gpu --models: 4096x4096, f16 and f32, 1 to 4
 * rows). A library has a kernel of its own for one row (PyTorch's linear layer of 25088 to 4096 on an H200, in a CUDA graph: f16 58.1 us,
 * tf32 97.9; the generated kernel 56.9 and 97.6) and tiles of at least 16 rows for more, whose sums it splits over blocks and adds up
 * again: 0.75 of the bandwidth is assumed there; no card has measured it yet. */
enum {
    PER_ROW_16 = 10,
    PER_ROW_F32 = 10,
    PER_WEIGHT_16 = 10,
    PER_WEIGHT_F32 = 8,
    TILES_PERCENT = 75
};

/* Seconds that the kernel, its instructions alone, and the library take beside the launch, as text; static. */
static const char *row_times(
    const nnc_target *t, const nnc_row_product *r, double kernel, double issue, double library)
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
    nnc_printf(&s, own == other ? "; %s the same" : "; %s ", r->library->name);
    if (own != other)
        nnc_put_us(&s, other, more);
    snprintf(text, sizeof text, "%s", nnc_text_str(&s));
    return text;
}

bool nnc_target_row_product(const nnc_target *t, const nnc_row_product *r, const char **why)
{
    const nnc_target_engine *e = r->library;
    const int size = nnc_dtype_size(r->dtype);
    const double weights = (double)r->matrices * (double)r->outputs * (double)r->terms,
                 rows = (double)r->rows,
                 ends = (double)r->matrices * rows * (double)(r->outputs + r->terms),
                 bytes = size * (weights + ends), rate = (double)t->copy_bytes_s,
                 each = size == 2 ? PER_WEIGHT_16 + PER_ROW_16 * rows
                                  : PER_WEIGHT_F32 + PER_ROW_F32 * rows,
                 peak = (double)nnc_target_peak_flops(t, r->dtype, r->tf32) *
                        (e && e->efficiency > 0 ? e->efficiency : 1);
    if (t->kind != NNC_T_cuda || !nnc_target_for_kernels(t) || r->rows < 1 || r->rows > NNC_ROWS ||
        (r->dtype != DT_f32 && size != 2) || !e)
        return false;
    const double issue = weights * each / QUARTERS / ((double)t->flops_f32 / 2),
                 kernel = fmax(bytes / rate, issue),
                 library = fmax(bytes / rate * (r->rows > 1 ? 100.0 / TILES_PERCENT : 1),
                     2 * weights * rows / peak);
    if (why)
        *why = row_times(t, r, kernel, issue, library);
    return kernel <= library;
}

bool nnc_target_interprets(const nnc_target *t)
{
    bool any = false, code = false;
    for (int i = 0; i < t->n_engines; i++) {
        any = any || nnc_target_engine_interprets(&t->engine[i]);
        code = code || (nnc_target_runs_kernels(&t->engine[i]) &&
                           !nnc_target_engine_interprets(&t->engine[i]));
    }
    return any && !code;
}

bool nnc_target_contracts(const nnc_target *t, nnc_dtype d)
{
    return d != DT_bf16 || t->kind != NNC_T_cuda || t->sm >= 80;
}

/* From cuDNN 9.19's workspaces (tests/cudnn/support.txt): bf16 is padded to 8 channels, or uses slow engines; f16 has engines for any
 * number of channels in windows up to 5x5, and is padded to 4 in larger ones. */
int64_t nnc_target_channel_step(const nnc_target *t, nnc_dtype d, int64_t window)
{
    if (t->kind != NNC_T_cuda || (d != DT_f16 && d != DT_bf16))
        return 1;
    return d == DT_bf16 ? 8 : window > 25 ? 4 : 1;
}

int64_t nnc_target_peak_flops(const nnc_target *t, nnc_dtype d, bool tf32)
{
    if ((d == DT_f16 || d == DT_bf16) && t->flops_f16 > 0)
        return t->flops_f16;
    return d == DT_f32 && tf32 && t->flops_tf32 > 0 ? t->flops_tf32 : t->flops_f32;
}

/* Time in ns of `amount` at `rate` per second, rounded up, at most 2^53 (104 days: sums of many do not overflow); 0 when the rate is
 * unknown. */
static int64_t ns_of(int64_t amount, int64_t rate)
{
    if (rate <= 0 || amount <= 0)
        return 0;
    double ns = (double)amount * 1e9 / (double)rate;
    return ns < 0x1p53 ? (int64_t)(ns + 0.999) : (int64_t)1 << 53;
}

/* What `threads` reach of a rate that takes so many cores; 0 threads: all of it. */
static int64_t reached(const nnc_target *t, int64_t rate, int64_t threads, int cores)
{
    bool part = rate > 0 && t->kind == NNC_T_cpu && threads > 0 && threads < cores;
    return part ? nnc_max64(rate / cores * threads, 1) : rate;
}

int64_t nnc_target_move_ns(const nnc_target *t, int64_t bytes, int64_t threads)
{
    int64_t caches = t->l2_bytes * (t->cores > 0 ? t->cores : 1) + t->l3_bytes;
    if (bytes <= caches && t->cache_bytes_s > 0)
        return ns_of(bytes, reached(t, t->cache_bytes_s, threads, t->cores));
    int busy = t->cores < NNC_T_MEMORY_CORES ? t->cores : NNC_T_MEMORY_CORES;
    return ns_of(bytes, reached(t, t->copy_bytes_s, threads, busy));
}

/* Roofline model: the maximum of computing and moving. */
int64_t nnc_target_least_ns(
    const nnc_target *t, nnc_dtype d, bool tf32, int64_t flops, int64_t bytes)
{
    int64_t rate = nnc_target_peak_flops(t, d, tf32);
    return nnc_max64(ns_of(flops, reached(t, rate, t->threads, t->cores)),
        nnc_target_move_ns(t, bytes, t->threads));
}

int64_t nnc_target_time_ns(const nnc_target *t, int64_t flops, int64_t bytes)
{
    return nnc_target_least_ns(t, DT_f32, false, flops, bytes) + t->launch_ns;
}

int64_t nnc_target_link_ns(int64_t bytes)
{
    return ns_of(
        bytes, INT64_C(25000000000)); /* PCIe 4.0 x16: 31.5 GB/s, of which copies reach 25 */
}

int64_t nnc_target_contraction_ns(
    const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, int64_t flops)
{
    double share = e->efficiency;
    double rate =
        (double)nnc_target_peak_flops(t, (nnc_dtype)a->dtype, a->tf32) * (share > 0 ? share : 1);
    return nnc_max64(ns_of(flops, reached(t, (int64_t)rate, t->threads, t->cores)),
               nnc_target_move_ns(t, a->bytes, t->threads)) +
           t->launch_ns;
}

/* The rate of convolutions of few channels, whose sums are short: tensor cores take 32 terms of a place at a time; strict f32 engines
 * reach 0.44 of what they do otherwise (H200, 3 channels to 128 at 224x224, 256 images: tf32 24 TFLOP/s, strict f32 17.7). */
static double few_channels(const nnc_ask *a, bool cores)
{
    enum { FEW = 16, TERMS = 32 };
    return a->channels < 1 || a->channels >= FEW ? 1 : cores ? (double)a->channels / TERMS : 0.44;
}

int64_t nnc_target_tf32_conv_ns(
    const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, bool planes, bool *strict)
{
    nnc_ask plain = *a;
    plain.tf32 = false;
    const int64_t slowed = (int64_t)((double)a->flops / few_channels(a, false)),
                  cored = (int64_t)((double)a->flops / few_channels(a, true)),
                  f32 = nnc_target_contraction_ns(t, e, &plain, slowed),
                  last = nnc_target_contraction_ns(t, e, a, cored),
                  copied = nnc_add_sat(
                      last, nnc_target_move_ns(t, 2 * a->bytes, t->threads) + 2 * t->launch_ns);
    if (strict)
        *strict = planes && f32 <= copied;
    return !planes ? last : nnc_min64(f32, copied);
}

/* A sigmoid takes some 30 instructions on a CPU; fewer on a GPU, but two at an eighth of the rate or less. Kernels do not reach the
 * peak. */
int64_t nnc_target_spare_ops(const nnc_target *t)
{
    enum { OP_FLOPS = 100 };
    return (int64_t)((double)t->flops_f32 / OP_FLOPS * (double)t->launch_ns * 1e-9);
}

int64_t nnc_target_local_bytes(const nnc_target *t)
{
    return (t && t->l2_bytes > 0 ? t->l2_bytes : (int64_t)1 << 20) / 2;
}

/* Engine rows and speeds affect the choice of kernels but not their code; they are left out, so that a calibrated machine file keeps
 * its cache. Of this machine without a limit (NNC_CPU), its signature is hashed, too, since caches may be shared between machines. */
nnc_hash128 nnc_target_hash(const nnc_target *t)
{
    NNC_LOCAL(nnc_text) x = {0};
    nnc_printf(&x, "kind=%d cpu=%s features=%s bits=%d fma=%d f16c=%d bf16=%d", t->kind,
        t->cpu ? t->cpu : "", t->features ? t->features : "", t->vector_bits, t->fma, t->f16c,
        t->avx512_bf16);
    nnc_printf(&x, " threads=%d l1=%lld l2=%lld l3=%lld", t->threads, (long long)t->l1_bytes,
        (long long)t->l2_bytes, (long long)t->l3_bytes);
    if (t->kind == NNC_T_cuda)
        nnc_printf(&x, " sm=%d sms=%d sm_threads=%d shared=%lld", t->sm, t->sms, t->sm_threads,
            (long long)t->shared_bytes);
    if (t->host && !(t->cpu && *t->cpu))
        target_host_signature(&x);
    nnc_hash128 h = nnc_hash(nnc_text_str(&x), x.n);
    if (x.oom) /* out of memory: a key that matches nothing */
        h = (nnc_hash128){(uint64_t)nnc_now_ns(), ~(uint64_t)0};
    return h;
}
