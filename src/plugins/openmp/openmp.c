/* plugins/openmp/openmp.c -- nnc_par_run on OpenMP. One thread pool in the process then serves oneDNN and nnc's own
 * loops: two spinning pools on the same cores slow each other down tenfold. libgomp keeps one team per calling thread,
 * so every stream's worker has its own.
 *
 * A team is not bound to cores: other streams and other programs want them, too. But schedulers like to wake a thread
 * on the core of the one that wakes it, and two threads of a team on one core are worse than one thread: who is done
 * first spins for the other and keeps it from running. So each thread of a region looks where it is, and one that
 * finds another of its team there stays off the cores that its team has, until it finds one on its own again. */
#include "base/par.h"
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

enum { WORDS = CPU_SETSIZE / 64 };

/* The cores on which threads of a region run, as they came. */
typedef struct seats {
    pid_t caller; /* whose mask is the user's: nobody here changes it */
    _Atomic uint64_t taken[WORDS];
} seats;

static void move_away(const seats *s, int threads)
{
    cpu_set_t mask;
    if (sched_getaffinity(s->caller, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) < threads)
        return;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (atomic_load_explicit(&s->taken[c / 64], memory_order_relaxed) >> c % 64 & 1)
            CPU_CLR(c, &mask);
    if (CPU_COUNT(&mask) > 0)
        (void)sched_setaffinity(0, sizeof mask, &mask); /* refused: slower, not wrong */
}

static void sit(seats *s, int threads, bool may_move)
{
    int c = sched_getcpu();
    if (c < 0 || c >= CPU_SETSIZE)
        return;
    uint64_t bit = UINT64_C(1) << c % 64;
    bool met = atomic_fetch_or_explicit(&s->taken[c / 64], bit, memory_order_relaxed) & bit;
    if (met && may_move)
        move_away(s, threads);
}

__attribute__((visibility("default"))) void nnc_par_openmp(
    int threads, nnc_par_body body, void *ctx);

void nnc_par_openmp(int threads, nnc_par_body body, void *ctx)
{
    if (threads <= 1) {
        body(ctx, 0, 1);
        return;
    }
    static __thread pid_t self;
    self = self ? self : gettid();
    seats s = {.caller = self};
#pragma omp parallel num_threads(threads)
    {
        /* a smaller team than asked for (nested, limits): its threads take the parts in turn */
        int team = omp_get_num_threads(), me = omp_get_thread_num();
        sit(&s, team, me > 0);
        for (int p = me; p < threads; p += team)
            body(ctx, p, threads);
    }
}
