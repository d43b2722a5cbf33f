/* base/seats.c -- see seats.h. */
#include "base/seats.h"
#include <unistd.h>

nnc_seats nnc_seats_new(void)
{
    static _Thread_local pid_t self;
    self = self ? self : gettid();
    return (nnc_seats){.caller = self};
}

static void move_away(const nnc_seats *s, int threads)
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

void nnc_sit(nnc_seats *s, int threads, bool may_move)
{
    int c = sched_getcpu();
    if (c < 0 || c >= CPU_SETSIZE)
        return;
    uint64_t bit = UINT64_C(1) << c % 64;
    bool met = atomic_fetch_or_explicit(&s->taken[c / 64], bit, memory_order_relaxed) & bit;
    if (met && may_move)
        move_away(s, threads);
}
