/* cost/offer.c -- what contractions take, asked before there is a plan, and which epilogues and prologues their engines support.
 *
 * cudnn: what cuDNN 9.19 supports (tests/cudnn). Bias, a sum and relu, in the order sum, bias, relu, keep its precompiled
 * engines. Strict f32 wants row-major tensors, all else channels last. Its relu, and cuBLASLt's, is max(0, x), which drops NaN.
 * llvm, interp: generated kernels, with any epilogue and any type. */
#include "cost/cost.h"
#include <string.h>

/* Times of contractions on a CPU include extra FLOPs for each result (FLOPS of prices.def), at a share of the engine's speed. They
 * stand for the begin and the end of a block of results, which count where sums are short. */
enum {
    STREAMED = 1 << 20, /* elements of a matrix */
    LONG_ROW = 256, /* terms of a product of few rows, which kernels sum in lanes of vectors */
    SHORT_ROW = 1024, /* with fewer terms, such rows end before they are prefetched */
#define SHARE(name, percent, what) SHARE_##name = percent,
#include "cost/prices.def"
};

static const int function[PO__COUNT] = {
#define EPILOGUE(name, flops) [PO_##name] = flops,
#include "cost/prices.def"
};

static _Thread_local char text[200];

static bool is_half(const nnc_ask *a)
{
    return a->dtype == DT_f16 || a->dtype == DT_bf16;
}

static bool refuse(nnc_offer *o, const char *why)
{
    snprintf(text, sizeof text, "%s%s%s", o->engine->name, *why == '\'' ? "" : " ", why);
    *o = (nnc_offer){.engine = o->engine, .why = text};
    return false;
}

static bool is_depthwise(const nnc_ask *a)
{
    return a->outputs == 1 && a->channels == 1 && a->grouped;
}

static int64_t busy_threads(const nnc_target *t)
{
    return nnc_max64(t->threads < t->cores ? t->threads : t->cores, 1);
}

/* FLOPs of the prologue, for each element that is summed; threads that share a strip of the source compute it each. A panel is computed in
 * vectors of the terms of a sum: with few terms there are few vectors, which wait for each other. */
static int64_t prologue_flops(const nnc_target *t, const nnc_ask *a)
{
    enum { STRIP = 14 };
    if (!a->prologue || !a->outputs)
        return 0;
    int64_t strips = nnc_max64(a->results / a->outputs / STRIP, 1);
    const int64_t terms = a->results ? a->flops / 2 / a->results : 0,
                  lanes = nnc_max64(t->vector_bits / 32, 1);
    int64_t all = nnc_mul_sat(a->flops / 2 / a->outputs, a->prologue + NNC_F_panel);
    if (terms > 0 && terms < lanes)
        all = nnc_mul_sat(all, 2 * lanes) / terms;
    return nnc_mul_sat(all, nnc_ceildiv(busy_threads(t), strips));
}

/* Results of the rows that one matrix is for. */
static int64_t results_of_matrix(const nnc_ask *a)
{
    return a->results / nnc_max64(a->matrices, 1);
}

/* Does a generated kernel read the matrix unpacked, along the sums (pack_weights makes no panels of it), in strips of few rows? */
static bool in_strips(const nnc_ask *a)
{
    enum { FEW = 8, MANY = 32, SHORT = 64, LONG = 256 };
    const int64_t rows = a->outputs ? results_of_matrix(a) / a->outputs : 0,
                  terms = a->results ? a->flops / 2 / a->results : 0;
    return a->weights && a->static_k_major && !a->packable &&
           (a->dynamic ? rows < MANY && terms >= SHORT : rows <= FEW && terms >= LONG);
}

/* Estimated nanoseconds of the contraction with `flops` operations. */
static int64_t contraction_ns(
    const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, int64_t flops)
{
    const double share = e->efficiency > 0 ? e->efficiency : 1,
                 rate = (double)nnc_target_peak_flops(t, (nnc_dtype)a->dtype, a->tf32) * share;
    return nnc_target_rate_ns(t, flops, (int64_t)rate, a->bytes) + t->launch_ns;
}

/* `block` FLOPs for each result at `share` percent of the engine's speed, and `post` for each that do not depend on how it sums. In strips
 * of few rows these are not hidden behind the matrix' bytes: loads wait while a strip ends. */
static int64_t cpu_ns(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a,
    int64_t block, int share, int64_t post)
{
    int64_t flops = nnc_add_sat(a->flops, nnc_mul_sat(block, a->results));
    flops = nnc_add_sat(flops, prologue_flops(t, a));
    flops = flops < INT64_MAX / 100 ? flops * 100 / share : flops;
    const int64_t ends = nnc_mul_sat(post, a->results);
    const bool strips = in_strips(a);
    flops = strips ? flops : nnc_add_sat(flops, ends);
    int64_t ns = contraction_ns(t, e, a, flops) - t->launch_ns;
    ns += strips ? nnc_target_least_ns(t, DT_f32, false, ends, 0) : 0;
    int64_t busy = busy_threads(t);
    if (nnc_target_engine_interprets(e)) /* enters a parallel region */
        return nnc_add_sat(ns, busy > 1 ? t->launch_ns : t->launch_ns * 2 / 5);
    const int64_t one = nnc_mul_sat(ns, busy), parts = nnc_min64(one / NNC_T_grain_ns, busy);
    return nnc_add_sat(parts < 2 ? one : one / parts, nnc_target_start_ns(t, parts));
}

/* FLOPs of a post-operation for each result, where they are computed for vectors of outputs, of which the last is not full. */
static int64_t of_lanes(const nnc_target *t, const nnc_ask *a, int64_t flops)
{
    int64_t lanes = nnc_max64(t->vector_bits / 32, 1), n = is_depthwise(a) ? a->groups : a->outputs;
    if (n == 0 || (a->nchw && (is_depthwise(a) || !a->grouped)))
        return flops;
    return nnc_mul_sat(flops, nnc_align_up(n, lanes)) / n;
}

/* FLOPs of a cheap post-operation: hidden behind the sums, but for the short sums of groups. */
static int64_t cheap_flops(const nnc_target *t, const nnc_ask *a)
{
    return a->grouped && !is_depthwise(a) ? of_lanes(t, a, NNC_F_group) : 0;
}

void nnc_ask_product(nnc_ask *a, const nnc_type *x, const nnc_type *w)
{
    const bool product = a->kind == ASK_matmul;
    int64_t n = 1;
    bool same = product ? w->rank == 2 || w->rank == x->rank
                        : a->kind == ASK_conv && a->places == 1 && !a->grouped &&
                              nnc_type_numel(w) == w->dim[0] * w->dim[1];
    for (int d = 0; product && d < w->rank - 2 && same; d++) {
        same = w->dim[d] == x->dim[d];
        n *= w->dim[d];
    }
    if (!same || !nnc_type_is_row_major(w) || !nnc_type_is_row_major(x))
        return;
    a->matrices = n;
    a->weights = nnc_type_numel(w) / n;
}

/* Products of a few rows are bound by reading the weights. */
static bool few_rows(const nnc_ask *a)
{
    return a->outputs > 1 && results_of_matrix(a) <= 8 * a->outputs;
}

/* Channels last, a group of few outputs fills a part of a vector; row-major, libraries multiply group by group. */
static bool is_small_group(const nnc_ask *a)
{
    return a->grouped && !is_depthwise(a) && a->outputs > 0 && a->outputs < 16;
}

/* Terms of each f32 sum; 0: other types. */
static int64_t terms_of(const nnc_ask *a)
{
    return a->dtype == DT_f32 && a->results ? a->flops / 2 / a->results : 0;
}

/* A product of a few rows and a large matrix is bound by memory: a generated kernel reads the matrix once, unpacked. For one or two rows
 * with long sums it is also faster on smaller matrices, and more accurate than panels. */
static bool streams(const nnc_target *t, const nnc_ask *a)
{
    const bool long_rows = a->weights &&
                           (a->dynamic_k_major || results_of_matrix(a) <= 2 * a->outputs) &&
                           terms_of(a) >= LONG_ROW;
    return a->dtype == DT_f32 && few_rows(a) && (a->weights >= STREAMED || long_rows) &&
           !nnc_target_interprets(t);
}

/* FLOPs of a function after such sums. Functions are evaluated for all results of a strip at once, 4 of each row (nnc_product_strips). A
 * part of a vector takes as long as a whole one. More results in a strip would be more streams of memory than the CPU prefetches. */
static int64_t of_strip(const nnc_target *t, const nnc_ask *a, int64_t flops)
{
    enum { MOST_ROWS = 8, FEW = 4 };
    const int64_t lanes = nnc_max64(t->vector_bits / 32, 1), sums = nnc_target_registers(t) * 3 / 4,
                  all = a->outputs ? results_of_matrix(a) / a->outputs : 1,
                  rows = nnc_max64(nnc_min64(all, MOST_ROWS), 1);
    int64_t n = nnc_max64(nnc_min64(nnc_min64(sums / rows, FEW), a->outputs), 1);
    while (n > 1 && a->outputs % n)
        n--;
    return nnc_mul_sat(flops + NNC_F_strip, lanes) / nnc_min64(n * rows, lanes);
}

/* A product of some rows with a matrix that training changes and that lies in rows of terms, y = x w^T. The kernel transposes it in each
 * run, prefetches it, and leaves its panels in a core's cache. */
static bool transposes(const nnc_target *t, const nnc_ask *a)
{
    enum { LEAST = 1 << 15, LEAST_ROWS = 16, MOST_ROWS = 256 };
    const int64_t rows = a->outputs ? results_of_matrix(a) / a->outputs : 0;
    return a->dtype == DT_f32 && a->dynamic && a->dynamic_k_major && a->matrices == 1 &&
           a->weights >= LEAST && a->weights * 4 <= nnc_target_local_bytes(t) &&
           rows >= LEAST_ROWS && rows <= MOST_ROWS && a->outputs % 16 == 0 &&
           t->vector_bits >= 512 && !nnc_target_interprets(t);
}

/* True for a convolution that sums few channels for each result. */
static bool few_terms(const nnc_ask *a)
{
    return a->kind == ASK_conv && a->channels > 0 && a->channels < 16;
}

/* Epilogues of a library's precompiled kernels: a sum, then one activation of `functions` (bits of PO_*). */
static bool plain_end(const nnc_ask *a, uint32_t functions, nnc_offer *o)
{
    bool active = false, sums = false;
    if ((a->n_post || a->bias) && a->dtype != DT_f32 && !is_half(a))
        return refuse(o, "fuses epilogues of f32, f16, bf16 only");
    for (const nnc_post *p = a->post; p < a->post + a->n_post; p++) {
        if (active)
            return refuse(o, "supports nothing after an activation");
        if (p->kind == PO_sum && sums)
            return refuse(o, "has a sum in its epilogue already");
        sums = sums || p->kind == PO_sum;
        active = p->kind != PO_sum;
        if (active && a->exact && (p->kind == PO_relu || p->kind == PO_clip))
            return refuse(o, p->kind == PO_relu
                                 ? "'s relu turns NaN into a number, which --math=exact forbids"
                                 : "'s clip turns NaN into a number, which --math=exact forbids");
        if (active && !(functions >> p->kind & 1)) {
            *o = (nnc_offer){.engine = o->engine}; /* not supported */
            return false;
        }
    }
    return true;
}

/* Does a GPU's library compute it with its epilogue? */
static bool library(const nnc_ask *a, nnc_offer *o)
{
    static const uint32_t functions[] = {
        [ASK_conv] = 1u << PO_relu, [ASK_matmul] = 1u << PO_relu | 1u << PO_gelu_tanh};
    if (a->strided)
        return refuse(o, "does not address parts of larger tensors");
    if (a->prologue)
        return refuse(o, "reads its operands from memory and has no prologue");
    if ((a->kind == ASK_conv_transpose || a->kind == ASK_conv_wgrad) && (a->bias || a->n_post))
        return refuse(o, a->kind == ASK_conv_wgrad
                             ? "computes the gradient of a weight without an epilogue"
                             : "supports no epilogue of a transposed convolution");
    return plain_end(a, functions[a->kind], o);
}

static int wgrad_share(const nnc_ask *a)
{
    return a->nchw                               ? SHARE_wgrad_rows
           : is_depthwise(a)                     ? SHARE_wgrad_depthwise
           : a->channels > 0 && a->channels < 16 ? SHARE_wgrad_few
                                                 : SHARE_wgrad;
}

/* Percent of its speed that generated code reaches. */
static int kernel_share(const nnc_target *t, const nnc_ask *a)
{
    int64_t pair = t->vector_bits / 16, lanes = nnc_max64(t->vector_bits / 32, 1);
    bool odd = a->outputs > pair && a->outputs % pair != 0;
    int filled = a->width ? (int)(100 * a->width / nnc_align_up(a->width, lanes)) : 100;
    int share = a->kind == ASK_conv_wgrad    ? wgrad_share(a)
                : transposes(t, a)           ? SHARE_transposed
                : a->nchw && is_depthwise(a) ? SHARE_rows_depthwise * filled / 100 + 1
                : a->nchw                    ? few_terms(a) ? SHARE_rows_few : SHARE_rows
                : a->dynamic                 ? SHARE_dynamic
                : is_depthwise(a)            ? (int)(SHARE_streamed * 100 / of_lanes(t, a, 100))
                : few_rows(a)                ? SHARE_streamed
                : is_small_group(a)          ? (int)nnc_min64(SHARE_output * a->outputs, 100)
                : odd                        ? SHARE_odd
                                             : 100;
    return is_half(a) ? (share + 1) / 2 : share;
}

/* Generated code of CPUs contracts, too, with any epilogue. Vectors of outputs come in pairs. Operands computed at run time are packed
 * into panels in each run, 16-bit ones converted to f32 one by one. */
static void kernels(const nnc_target *t, const nnc_ask *a, nnc_offer *o)
{
    if (a->prologue && (nnc_target_engine_interprets(o->engine) || is_depthwise(a))) {
        refuse(o, "would compute a prologue for each result");
        return;
    }
    nnc_ask each = *a;
    if (streams(t, a) && terms_of(a) < SHORT_ROW && !a->packable)
        each.bytes = nnc_mul_sat(a->bytes, 100) / SHARE_short_row;
    int64_t block = a->outputs == 0    ? 0
                    : !is_depthwise(a) ? NNC_F_block
                    : a->nchw          ? 0
                                       : NNC_F_depthwise;
    int64_t post = 0;
    for (int i = 0; i < a->n_post; i++)
        post += function[a->post[i].kind] == 0 ? cheap_flops(t, a)
                : in_strips(a)                 ? of_strip(t, a, function[a->post[i].kind])
                                               : of_lanes(t, a, function[a->post[i].kind]);
    o->time_ns = cpu_ns(t, o->engine, &each, block, kernel_share(t, a), post);
}

nnc_offer nnc_target_offer(const nnc_target *t, const nnc_ask *a)
{
    nnc_offer o = {.ok = true, .engine = nnc_target_engine_for(t, (nnc_ask_kind)a->kind)};
    if (!o.engine)
        o = (nnc_offer){.why = "the target has no engine for it"};
    else if (nnc_target_runs_kernels(o.engine))
        kernels(t, a, &o);
    else if (library(a, &o))
        o.time_ns = contraction_ns(t, o.engine, a, a->flops);
    return o;
}

/* Rate of convolutions of few channels, whose sums are short. Tensor cores take 32 terms of a place at a time; strict f32 engines are
 * slower, too. */
static double few_channels(const nnc_ask *a, bool cores)
{
    enum { FEW = 16, TERMS = 32 };
    return a->channels < 1 || a->channels >= FEW ? 1
           : cores                               ? (double)a->channels / TERMS
                                                 : nnc_gpu_price[NNC_G_strict_few];
}

int64_t nnc_target_tf32_conv_ns(const nnc_target *t, const nnc_ask *a, bool planes, bool *strict)
{
    const nnc_target_engine *e = nnc_target_engine_for(t, ASK_conv);
    nnc_ask plain = *a;
    plain.tf32 = false;
    const int64_t slowed = (int64_t)((double)a->flops / few_channels(a, false)),
                  cored = (int64_t)((double)a->flops / few_channels(a, true)),
                  f32 = contraction_ns(t, e, &plain, slowed), last = contraction_ns(t, e, a, cored),
                  copied = nnc_add_sat(
                      last, nnc_target_move_ns(t, 2 * a->bytes, t->threads) + 2 * t->launch_ns);
    if (strict)
        *strict = planes && f32 <= copied;
    return !planes ? last : nnc_min64(f32, copied);
}
