/* tests/nvrtc/share.c -- what bandwidth a kernel can reach by its machine code: registers and blocks of an SM, bytes in flight, and the
 * share that follows (bench/gpu_share.h). */
#include "share.h"
#include "gpu_share.h"
#include "plan/plan.h"
#include "test.h"
#include <pthread.h>

/* Budgets. Threads of an SM: how many its registers and shared memory have room for. Fewer where a thread loads a row of a window while it
 * sums the one before. Launches that move as much as these many bytes take longer than their start; shares of smaller ones are mostly
 * latency. */
enum { LEAST_THREADS = 512, LEAST_WALKS = 384, LARGE = 64 << 20 };
/* least_share: averages over 196 floats, of which a warp has one vector a thread in flight. least_seen: NVRTC loads once what stages of a
 * short row load again, and what neighbouring windows share. A loop that the reader missed would have a small part of its loads. */
static const double least_share = 0.4, least_seen = 0.45;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int launches, large;
    double least, seen;
    char name[80], what[96];
} all;

void share_reset(void)
{
    memset(&all, 0, sizeof all);
    all.least = all.seen = 1;
}

void share_print(void)
{
    if (all.launches)
        printf("     shares %5d launches, %d large, least share %.2f (%s of %s); of their loads "
               "the full "
               "paths have at least %.2f\n",
            all.launches, all.large, all.least, all.name, all.what, all.seen);
}

/* Loops that run in order wait for each of their steps. */
static bool in_order(const nnc_plan *p, const char *symbol)
{
    for (int i = 0; i < p->n_kernel; i++)
        if (!strcmp(p->kernel[i].symbol, symbol))
            return strstr(p->kernel[i].ir, " seq") != NULL;
    return false;
}

static void check(const char *what, const nnc_plan *p, const nnc_gpu_launch *l)
{
    const nnc_gpu_share *s = &l->share;
    const bool order = in_order(p, l->symbol), large = l->bytes >= LARGE && !order;
    nnc_cubin_path path;
    CHECK(nnc_cubin_path_of(l->code, &path));
    const int least = path.loop.ahead > 0 ? LEAST_WALKS : LEAST_THREADS;
    char why[256] = "";
    if (s->resident * l->threads < least && l->blocks * l->threads >= LEAST_THREADS * 132)
        snprintf(why, sizeof why, "%d blocks of %d threads an SM: %d registers", s->resident,
            l->threads, l->code->registers);
    else if (s->seen < least_seen && !order)
        snprintf(why, sizeof why, "its path loads %.2f of what the kernel IR loads", s->seen);
    else if (large && s->share < least_share)
        snprintf(why, sizeof why, "predicted share %.2f, by %s; %.0f bytes in flight an SM",
            s->share, nnc_gpu_limit_names[s->bound], s->flight);
    pthread_mutex_lock(&lock);
    all.launches++;
    all.large += large;
    all.seen = s->seen < all.seen && !order ? s->seen : all.seen;
    if (large && s->share < all.least) {
        all.least = s->share;
        snprintf(all.name, sizeof all.name, "%.79s", l->symbol);
        snprintf(all.what, sizeof all.what, "%.95s", what);
    }
    if (why[0])
        test_fail(__FILE__, __LINE__, "%s: %s: %s", what, l->symbol, why);
    pthread_mutex_unlock(&lock);
}

void share_plan(const char *what, const nnc_plan *p, const char *target)
{
    nnc_arena a;
    nnc_target t;
    nnc_gpu_launches l;
    nnc_arena_init(&a, 0);
    if (nnc_target_cuda(&t, target, NULL) || nnc_gpu_launches_of(p, &t, &a, &l, NULL))
        test_fail(__FILE__, __LINE__, "%s: no shares", what);
    else
        for (int i = 0; i < l.n; i++)
            check(what, p, &l.launch[i]);
    nnc_target_deinit(&t);
    nnc_arena_deinit(&a);
}

/* The CUDA occupancy calculator's answers. */
TEST(nvrtc_resident_blocks)
{
    static const struct {
        const char *target;
        int threads, registers, shared, blocks;
    } of[] = {
        {"cuda:sm_90", 256, 32, 0, 8},
        {"cuda:sm_90", 256, 33, 0, 6}, /* 40 registers are allocated */
        {"cuda:sm_90", 256, 64, 0, 4},
        {"cuda:sm_90", 256, 80, 0, 3},
        {"cuda:sm_90", 256, 128, 0, 2},
        {"cuda:sm_90", 256, 255, 0, 1},
        {"cuda:sm_90", 32, 16, 0, 32},
        {"cuda:sm_90", 1024, 32, 0, 2},
        {"cuda:sm_90", 1024, 64, 0, 1},
        {"cuda:sm_90", 512, 64, 80 << 10, 2}, /* 228 KiB, 1 KiB of them each block's */
        {"cuda:sm_90", 512, 64, 113 << 10, 2},
        {"cuda:sm_90", 512, 64, 114 << 10, 1},
        {"cuda:sm_80", 512, 64, 81 << 10, 2},
        {"cuda:sm_80", 512, 64, 82 << 10, 1},
        {"cuda:sm_75", 256, 32, 0, 4},
        {"cuda:sm_75", 64, 16, 0, 16},
        {"cuda:sm_86", 64, 16, 0, 16},
        {"cuda:sm_89", 64, 16, 0, 24},
    };
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        nnc_target t;
        CHECK_OK(nnc_target_cuda(&t, of[i].target, test_sink));
        int n = nnc_gpu_resident(&t, of[i].threads, of[i].registers, of[i].shared);
        if (n != of[i].blocks)
            test_fail(__FILE__, __LINE__, "%s: %d threads, %d registers, %d bytes: %d, not %d",
                of[i].target, of[i].threads, of[i].registers, of[i].shared, n, of[i].blocks);
        nnc_target_deinit(&t);
    }
}
