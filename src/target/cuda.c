/* target/cuda.c -- described NVIDIA GPUs: one card per architecture that kernels are compiled for. No driver is asked, so any machine
 * can compile for any of them.
 *
 * Sources of the numbers:
 *   - SMs, clocks (boost), memory, its bandwidth, FLOP/s: NVIDIA's data sheets of the cards; FLOP/s of tensor cores are those without
 *     sparsity and with f32 sums.
 *   - maximum shared memory of a block and threads of an SM: CUDA C++ Programming Guide, "Technical Specifications per Compute
 *     Capability".
 *   - L1: the same guide, L1 and shared memory together, per SM. L2: the architectures' white papers; H200 and B200:
 *     cudaDevAttrL2CacheSize.
 * Derived: a copy reaches 0.9 of the data sheet's bandwidth, as measured on an H200. L2 delivers 32 bytes per clock to each SM (half of an
 * A100's 64). A launch within a CUDA graph costs about 2 us. */
#include "target/internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct card {
    int sm;
    const char *name;
    int sms, sm_threads;
    int shared_kib; /* maximum per block */
    int l1_kib; /* per SM */
    int l2_mib;
    int clock_mhz;
    int memory_gb;
    int gb_s;
    double tf_f32, tf_tf32, tf_f16;
} card;

static const card cards[] = {
    {61, "Tesla P40", 30, 2048, 48, 48, 3, 1531, 24, 346, 11.76, 0, 0},
    {70, "Tesla V100 SXM2", 80, 2048, 96, 128, 6, 1530, 32, 900, 15.7, 0, 125},
    {75, "Tesla T4", 40, 1024, 64, 96, 4, 1590, 16, 320, 8.1, 0, 65},
    {80, "A100 SXM4 80GB", 108, 2048, 163, 192, 40, 1410, 80, 2039, 19.5, 156, 312},
    {86, "A10", 72, 1536, 99, 128, 6, 1695, 24, 600, 31.2, 62.5, 125},
    {89, "L4", 58, 1536, 99, 128, 48, 2040, 24, 300, 30.3, 60, 121},
    {90, "H200 SXM", 132, 2048, 227, 256, 60, 1980, 141, 4800, 67, 494, 989},
    {100, "B200", 148, 2048, 227, 256, 126, 1965, 180, 8000, 75, 1125, 2250},
    {120, "GeForce RTX 5090", 170, 1536, 99, 128, 96, 2407, 32, 1792, 104.8, 104.8, 209.5},
};

int nnc_target_cuda_sm(int i)
{
    return i < (int)NNC_COUNT(cards) ? cards[i].sm : 0;
}

/* The newest card that is not newer than sm; NULL: none. */
static const card *card_for(int sm)
{
    const card *best = NULL;
    for (size_t i = 0; i < NNC_COUNT(cards); i++)
        if (cards[i].sm <= sm)
            best = &cards[i];
    return best;
}

static void describe(nnc_target *t, const card *c, int sm)
{
    int64_t clock_hz = (int64_t)c->clock_mhz * 1000000;
    t->sm = sm;
    t->sms = c->sms;
    t->sm_threads = c->sm_threads;
    t->shared_bytes = (int64_t)c->shared_kib << 10;
    t->clock_hz = clock_hz;
    t->cores = c->sms;
    t->threads = 1; /* one host thread submits a device's work */
    t->vector_bits = 128;
    t->fma = true;
    t->f16c = true;
    t->memory_bytes = (int64_t)c->memory_gb * 1000000000;
    t->l1_bytes = (int64_t)c->l1_kib << 10;
    t->l3_bytes = (int64_t)c->l2_mib << 20;
    t->flops_f32 = (int64_t)(c->tf_f32 * 1e12);
    t->flops_tf32 = (int64_t)(c->tf_tf32 * 1e12);
    t->flops_f16 = (int64_t)(c->tf_f16 * 1e12);
    t->copy_bytes_s = (int64_t)c->gb_s * 900000000;
    t->cache_bytes_s = clock_hz * c->sms * 32;
    t->launch_ns = 2000;
    target_engines(t);
    target_default_libraries(t);
}

/* The number in "cuda:sm_90"; 0: not of this form. */
static int sm_of(const char *name)
{
    if (strncmp(name, "cuda:sm_", 8) != 0 || name[8] < '1' || name[8] > '9')
        return 0;
    char *end;
    long sm = strtol(name + 8, &end, 10);
    return *end || sm > 999 ? 0 : (int)sm;
}

nnc_status nnc_target_cuda(nnc_target *t, const char *name, nnc_sink *sink)
{
    *t = (nnc_target){.kind = NNC_T_cuda, .cpu = "", .features = "", .core = "", .card = ""};
    int sm = sm_of(name);
    const card *c = card_for(sm);
    if (!c) {
        NNC_LOCAL(nnc_text) known = {0};
        for (size_t i = 0; i < NNC_COUNT(cards); i++)
            nnc_printf(&known, "%scuda:sm_%d", i ? ", " : "", cards[i].sm);
        return nnc_fail0(sink, NNC_E_USAGE,
            sm ? "target %s: GPUs before sm_%d are not supported; supported are %s"
               : "target %s: expected cuda:sm_ and a number (not below %d); supported are %s",
            name, cards[0].sm, nnc_text_str(&known));
    }
    if (c->sm != sm)
        nnc_note(sink, (nnc_loc){0}, "target %s has no description; using that of sm_%d (%s)", name,
            c->sm, c->name);
    t->name = nnc_arena_strdup(&t->arena, name);
    t->card = c->name;
    describe(t, c, sm);
    return t->name ? NNC_OK : nnc_nomem(sink);
}

/* A copy reaches 0.9 of the bus bandwidth, and L2 32 bytes per clock and SM, as for described cards. */
nnc_status nnc_target_cuda_ask(nnc_target *t, const nnc_target_gpu *g, nnc_sink *sink)
{
    double before = (double)t->sms * (double)t->clock_hz;
    t->asked = true;
    t->sms = t->cores = g->sms ? g->sms : t->sms;
    t->sm_threads = g->sm_threads ? g->sm_threads : t->sm_threads;
    t->shared_bytes = g->shared_bytes ? g->shared_bytes : t->shared_bytes;
    t->clock_hz = g->clock_hz ? g->clock_hz : t->clock_hz;
    t->memory_bytes = g->memory_bytes ? g->memory_bytes : t->memory_bytes;
    t->l3_bytes = g->l2_bytes ? g->l2_bytes : t->l3_bytes;
    t->copy_bytes_s = g->bytes_s ? g->bytes_s / 10 * 9 : t->copy_bytes_s;
    double grown = (double)t->sms * (double)t->clock_hz / before;
    t->flops_f32 = (int64_t)((double)t->flops_f32 * grown);
    t->flops_tf32 = (int64_t)((double)t->flops_tf32 * grown);
    t->flops_f16 = (int64_t)((double)t->flops_f16 * grown);
    t->cache_bytes_s = t->clock_hz * t->sms * 32;
    t->card = g->card && *g->card ? nnc_arena_strdup(&t->arena, g->card) : t->card;
    return t->card ? NNC_OK : nnc_nomem(sink);
}
