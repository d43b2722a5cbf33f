/* target/offer.c -- engines' offers, made before there is a plan: the contractions and epilogues that they support, and their time
 * estimates.
 *
 * cudnn: what cuDNN 9.19 answers (bias, a sum and relu, in the order sum, bias, relu, keep its precompiled engines; strict
 * f32 wants row-major tensors, all else channels last; tests/cudnn).
 * Its relu, and cuBLASLt's, is max(0, x), which drops NaN.
 * llvm, interp: generated kernels, with any epilogue and any type. */
#include "target/internal.h"
#include <math.h>
#include <string.h>

/* Times of contractions on a CPU are those of so many more FLOPs for each result, at a share of the engine's speed: what begins and ends
 * a block of results counts where sums are short. Fitted to the layers of VGG-16, ResNet-50 and EfficientNet-B0 on AVX-512 (Sapphire
 * Rapids, bench_contractions). */
enum {
    GROUP_FLOPS = 5, /* of relu and its like after a grouped convolution */
    BLOCK_KERNEL = 16,
    BLOCK_DEPTHWISE = 45,
    STREAMED = 1 << 20, /* elements of a matrix */
    LONG_ROW = 256, /* terms of a product of few rows, which kernels sum in lanes of vectors */
    /* With fewer terms, such rows are pieces of memory that end before they are prefetched: 25 to 88 % of the rate of panels. */
    SHORT_ROW = 1024,
    SHORT_ROW_SHARE = 85, /* percent */
    PANEL_FLOPS = 14, /* of an element of a generated kernel's panel, beside its prologue's */
};

/* FLOPs of functions after a sum in generated kernels, where 28 vectors of sums wait in registers (measured for 9216 to 50176 results in
 * the caches; 0: hidden). */
static const int function[PO__COUNT] = {[PO_gelu_erf] = 90,
    [PO_gelu_tanh] = 80,
    [PO_sigmoid] = 40,
    [PO_silu] = 46,
    [PO_tanh] = 58,
    [PO_hardswish] = 9};

static _Thread_local char text[200];

static bool is_half(const nnc_ask *a)
{
    return a->dtype == DT_f16 || a->dtype == DT_bf16;
}

static void refuse(nnc_offer *o, const char *name, const char *why)
{
    snprintf(text, sizeof text, "%s %s", name, why);
    *o = (nnc_offer){.why = text};
}

/* Declines when the engine has no epilogues for this type. */
static bool bare_type(nnc_offer *o, const nnc_ask *a, const char *name)
{
    if ((!a->n_post && !a->bias) || a->dtype == DT_f32 || is_half(a))
        return false;
    refuse(o, name, "fuses epilogues of f32, f16, bf16 only");
    return true;
}

/* Declines when post-operation i is a second sum. */
static bool second_sum(nnc_offer *o, const nnc_ask *a, int i)
{
    for (int k = 0; k < i; k++)
        if (a->post[i].kind == PO_sum && a->post[k].kind == PO_sum) {
            *o = (nnc_offer){.why = "the epilogue has a sum already"};
            return true;
        }
    return false;
}

static bool bounds(const nnc_post *p)
{
    return p->kind == PO_relu || p->kind == PO_clip;
}

static bool is_cheap(const nnc_post *p)
{
    return function[p->kind] == 0;
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
 * vectors of the terms of a sum, so that of few terms a vector has few, and they wait for each other (Zen 4, silu(x) + x of 6 rows of 2
 * before a linear to 48 with gelu: 0.48 us, apart 0.27; of 192 rows of 10 to 2: 0.69 and 0.48). */
static int64_t prologue_flops(const nnc_target *t, const nnc_ask *a)
{
    enum { STRIP = 14 };
    if (!a->prologue || !a->outputs)
        return 0;
    int64_t strips = nnc_max64(a->results / a->outputs / STRIP, 1);
    const int64_t terms = a->results ? a->flops / 2 / a->results : 0,
                  lanes = nnc_max64(t->vector_bits / 32, 1);
    int64_t all = nnc_mul_sat(a->flops / 2 / a->outputs, a->prologue + PANEL_FLOPS);
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

/* `block` FLOPs for each result at `share` percent of the engine's speed, and `post` for each that do not depend on how it sums. In
 * strips of few rows these are not hidden behind the matrix' bytes: loads wait while a strip ends (Zen 4, one row of 256 and a matrix of
 * 256x256 in L2: 2.3 us, with gelu 2.8). */
static int64_t cpu_ns(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a,
    int64_t block, int share, int64_t post)
{
    int64_t flops = nnc_add_sat(a->flops, nnc_mul_sat(block, a->results));
    flops = nnc_add_sat(flops, prologue_flops(t, a));
    flops = flops < INT64_MAX / 100 ? flops * 100 / share : flops;
    const int64_t ends = nnc_mul_sat(post, a->results);
    const bool strips = in_strips(a);
    flops = strips ? flops : nnc_add_sat(flops, ends);
    int64_t ns = nnc_target_contraction_ns(t, e, a, flops) - t->launch_ns;
    ns += strips ? nnc_target_least_ns(t, DT_f32, false, ends, 0) : 0;
    int64_t busy = busy_threads(t);
    if (nnc_target_engine_interprets(e)) /* enters a parallel region */
        return nnc_add_sat(ns, busy > 1 ? t->launch_ns : t->launch_ns * 2 / 5);
    const int64_t one = nnc_mul_sat(ns, busy), parts = nnc_min64(one / NNC_T_GRAIN_NS, busy);
    return NNC_T_KERNEL_NS + (parts < 2 ? one : nnc_add_sat(one / parts, NNC_T_WAKE_NS));
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
    return a->grouped && !is_depthwise(a) ? of_lanes(t, a, GROUP_FLOPS) : 0;
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

/* A product of a few rows and a large matrix is bound by memory: a generated kernel reads the matrix once, unpacked; of one or two rows
 * with long sums it is 7 to 15 % faster on smaller matrices as well, and more accurate than panels. */
static bool streams(const nnc_target *t, const nnc_ask *a)
{
    const bool long_rows = a->weights &&
                           (a->dynamic_k_major || results_of_matrix(a) <= 2 * a->outputs) &&
                           terms_of(a) >= LONG_ROW;
    return a->dtype == DT_f32 && few_rows(a) && (a->weights >= STREAMED || long_rows) &&
           nnc_target_engine_named(t, "llvm");
}

/* Functions after such sums are evaluated for the results of a strip at once, of each row 4 (nnc_product_strips), which is a part of a
 * vector, but takes as long as a whole one. More results in a strip would be more streams of memory than the CPU prefetches (Zen 4, one
 * row of 1024 and a matrix in L2: 16 at once take twice as long). A function of 4 takes 7.3 ns there. FLOPs of one. */
static int64_t of_strip(const nnc_target *t, const nnc_ask *a, int64_t flops)
{
    enum {
        MOST_ROWS = 8,
        FEW = 4,
        WAIT = 20
    }; /* FLOPs that a strip's end takes beside a function's */
    const int64_t lanes = nnc_max64(t->vector_bits / 32, 1), sums = t->vector_bits >= 512 ? 24 : 12,
                  all = a->outputs ? results_of_matrix(a) / a->outputs : 1,
                  rows = nnc_max64(nnc_min64(all, MOST_ROWS), 1);
    int64_t n = nnc_max64(nnc_min64(nnc_min64(sums / rows, FEW), a->outputs), 1);
    while (n > 1 && a->outputs % n)
        n--;
    return nnc_mul_sat(flops + WAIT, lanes) / nnc_min64(n * rows, lanes);
}

/* A product of some rows with a matrix that training changes and that lies in rows of terms, y = x w^T: the kernel transposes it in
 * each run, prefetches it, and leaves its panels in a core's cache (AMD, Zen 4, one thread, 64 layers of 512x256 and their operands: 16
 * rows 4.4 ms, 32 7.7, 64 12.5, 128 21.7, 256 41; in the caches 0.57). */
static bool transposes(const nnc_target *t, const nnc_ask *a)
{
    enum { LEAST = 1 << 15, LEAST_ROWS = 16, MOST_ROWS = 256 };
    const int64_t rows = a->outputs ? results_of_matrix(a) / a->outputs : 0;
    return a->dtype == DT_f32 && a->dynamic && a->dynamic_k_major && a->matrices == 1 &&
           a->weights >= LEAST && a->weights * 4 <= nnc_target_local_bytes(t) &&
           rows >= LEAST_ROWS && rows <= MOST_ROWS && a->outputs % 16 == 0 &&
           t->vector_bits >= 512 && nnc_target_engine_named(t, "llvm");
}

/* True for a convolution that sums few channels for each result. */
static bool few_terms(const nnc_ask *a)
{
    return a->kind == ASK_conv && a->channels > 0 && a->channels < 16;
}

/* Percent of the speed of large groups: so many for each output. */
static int small_group_share(const nnc_ask *a, int64_t each)
{
    return (int)nnc_min64(each * a->outputs, 100);
}

/* Declines a prologue, which libraries do not have. */
static bool has_prologue(nnc_offer *o, const nnc_ask *a, const char *name)
{
    if (a->prologue)
        refuse(o, name, "reads its operands from memory and has no prologue");
    return a->prologue != 0;
}

/* Epilogues of a library's precompiled kernels: a sum, then one activation of `functions` (bits of PO_*). */
static bool plain_end(
    const nnc_target_engine *e, const nnc_ask *a, uint32_t functions, nnc_offer *o)
{
    bool active = false;
    if (bare_type(o, a, e->name))
        return false;
    for (int i = 0; i < a->n_post; i++) {
        const nnc_post *p = &a->post[i];
        if (active) {
            refuse(o, e->name, "supports nothing after an activation");
            return false;
        }
        if (second_sum(o, a, i))
            return false;
        if (p->kind == PO_sum)
            continue;
        active = true;
        if (bounds(p) && a->exact) {
            snprintf(text, sizeof text,
                "%s's %s turns NaN into a number, which --math=exact forbids", e->name,
                p->kind == PO_relu ? "relu" : "clip");
            *o = (nnc_offer){.why = text};
            return false;
        }
        if (!(functions >> p->kind & 1)) {
            *o = (nnc_offer){0}; /* not supported */
            return false;
        }
    }
    return true;
}

static void cudnn(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, nnc_offer *o)
{
    if (a->kind == ASK_matmul) {
        refuse(o, e->name, "is used for convolutions only");
        return;
    }
    if (a->kind != ASK_conv && (a->bias || a->n_post)) {
        refuse(o, e->name,
            a->kind == ASK_conv_wgrad ? "computes the gradient of a weight without an epilogue"
                                      : "supports no epilogue of a transposed convolution");
        return;
    }
    if (has_prologue(o, a, e->name))
        return;
    if (plain_end(e, a, 1u << PO_relu, o))
        o->time_ns = nnc_target_contraction_ns(t, e, a, a->flops);
}

static void cublaslt(
    const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, nnc_offer *o)
{
    if (a->kind != ASK_matmul)
        refuse(o, e->name, "multiplies matrices");
    else if (!has_prologue(o, a, e->name) && plain_end(e, a, 1u << PO_relu | 1u << PO_gelu_tanh, o))
        o->time_ns = nnc_target_contraction_ns(t, e, a, a->flops);
}

/* Generated code of GPUs: contractions that no library takes are kernels without an offer. */
static void cuda(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, nnc_offer *o)
{
    (void)t, (void)a;
    refuse(o, e->name, "runs generated kernels");
}

/* Percent of its speed that generated code reaches. Row-major, vectors are of neighbours in a row, and each reads the source itself: 18 to
 * 60 GFLOP/s of 160, also where there is one channel. */
static int kernel_share(const nnc_target *t, const nnc_ask *a)
{
    int64_t pair = t->vector_bits / 16, lanes = nnc_max64(t->vector_bits / 32, 1);
    bool odd = a->outputs > pair && a->outputs % pair != 0;
    int filled = a->width ? (int)(100 * a->width / nnc_align_up(a->width, lanes)) : 100;
    int share = a->kind == ASK_conv_wgrad        ? a->nchw           ? 5
                                                   : is_depthwise(a) ? 40
                                                                     : 60
                : transposes(t, a)               ? 87
                : a->nchw && is_depthwise(a)     ? 30 * filled / 100 + 1
                : a->nchw                        ? few_terms(a) ? 33 : 25
                : a->dynamic                     ? 75
                : is_depthwise(a) || few_rows(a) ? 105
                : is_small_group(a)              ? small_group_share(a, 9)
                : odd                            ? 88
                                                 : 100;
    return is_half(a) ? (share + 1) / 2 : share;
}

/* Generated code of CPUs contracts, too, with any epilogue. Vectors of outputs come in pairs; operands that are computed at run time are
 * put into panels in each run, and 16-bit ones become f32 one by one. */
static void kernels(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, nnc_offer *o)
{
    if (a->prologue && (nnc_target_engine_interprets(e) || is_depthwise(a))) {
        refuse(o, e->name, "would compute a prologue for each result");
        return;
    }
    nnc_ask each = *a;
    if (streams(t, a) && terms_of(a) < SHORT_ROW && !a->packable)
        each.bytes = nnc_mul_sat(a->bytes, 100) / SHORT_ROW_SHARE;
    int64_t block = a->outputs == 0    ? 0
                    : !is_depthwise(a) ? BLOCK_KERNEL
                    : a->nchw          ? 0
                                       : BLOCK_DEPTHWISE;
    int64_t post = 0;
    for (int i = 0; i < a->n_post; i++)
        post += is_cheap(&a->post[i]) ? cheap_flops(t, a)
                : in_strips(a)        ? of_strip(t, a, function[a->post[i].kind])
                                      : of_lanes(t, a, function[a->post[i].kind]);
    o->time_ns = cpu_ns(t, e, &each, block, kernel_share(t, a), post);
}

static void unknown(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, nnc_offer *o)
{
    if (a->n_post || a->prologue)
        *o = (nnc_offer){0};
    else
        o->time_ns = nnc_target_contraction_ns(t, e, a, a->flops);
}

/* ---- engines ------------------------------------------------------------------------------------------------------- */

typedef struct known {
    const char *name;
    void (*offer)(const nnc_target *, const nnc_target_engine *, const nnc_ask *, nnc_offer *);
    nnc_tkind kind;
    bool runs_kernels, interprets, channels_last, weights_follow, attends;
} known;

static const known engines[] = {
    {"cudnn", cudnn, NNC_T_cuda, .channels_last = true, .weights_follow = true, .attends = true},
    {"cublaslt", cublaslt, NNC_T_cuda}, {"llvm", kernels, NNC_T_cpu, true, .channels_last = true},
    {"interp", kernels, NNC_T_cpu, true, .interprets = true, .channels_last = true},
    {"cuda", cuda, NNC_T_cuda, true}};

static const known *find_engine(const char *name)
{
    for (size_t i = 0; i < NNC_COUNT(engines); i++)
        if (!strcmp(engines[i].name, name))
            return &engines[i];
    return NULL;
}

static const known *named(const nnc_target_engine *e)
{
    static const known other = {"", unknown, NNC_T_cpu};
    const known *k = find_engine(e->name);
    return k ? k : &other;
}

bool nnc_target_engine_kind(const char *name, nnc_tkind *kind)
{
    const known *k = find_engine(name);
    *kind = k ? k->kind : NNC_T_cpu;
    return k != NULL;
}

nnc_offer nnc_target_offer(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a)
{
    nnc_offer o = {.ok = true};
    if (a->strided && !nnc_target_runs_kernels(e))
        refuse(&o, e->name, "does not address parts of larger tensors");
    else
        named(e)->offer(t, e, a, &o);
    return o;
}

const nnc_target_engine *nnc_target_fastest(const nnc_target *t, const nnc_ask *a, nnc_offer *best)
{
    const nnc_target_engine *e = NULL;
    nnc_offer least = {0};
    for (int i = 0; i < t->n_engines; i++) {
        nnc_offer o = nnc_target_offer(t, &t->engine[i], a);
        if (!o.ok || (e && o.time_ns >= least.time_ns))
            continue;
        e = &t->engine[i];
        least = o;
    }
    if (best)
        *best = least;
    return e;
}

bool nnc_target_channels_last(
    const nnc_target *t, const nnc_target_engine *e, nnc_dtype d, bool tf32)
{
    return named(e)->channels_last && (t->kind != NNC_T_cuda || d != DT_f32 || tf32);
}

bool nnc_target_weights_follow(const nnc_target_engine *e)
{
    return named(e)->weights_follow;
}

bool nnc_target_runs_kernels(const nnc_target_engine *e)
{
    return named(e)->runs_kernels;
}

bool nnc_target_engine_interprets(const nnc_target_engine *e)
{
    return named(e)->interprets;
}

const nnc_target_engine *nnc_target_for_kernels(const nnc_target *t)
{
    for (int i = 0; i < t->n_engines; i++)
        if (nnc_target_runs_kernels(&t->engine[i]))
            return &t->engine[i];
    return NULL;
}

const nnc_target_engine *nnc_target_for_attention(const nnc_target *t)
{
    for (int i = 0; i < t->n_engines; i++)
        if (named(&t->engine[i])->attends)
            return &t->engine[i];
    return NULL;
}
