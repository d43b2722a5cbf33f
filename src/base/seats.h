/* base/seats.h -- the cores that the threads of a parallel region run on.
 *
 * A team of threads is not bound to cores: other streams and other programs want them, too. But schedulers like to wake a thread on
 * the core of the one that wakes it, and two threads of a team on one core are worse than one thread: who is done first spins for the
 * other and keeps it from running. So each thread of a region takes a seat, and one that finds another of its team on its core stays
 * off the cores that its team has, until it finds one on its own again. */
#ifndef NNC_SEATS_H
#define NNC_SEATS_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { NNC_SEAT_WORDS = CPU_SETSIZE / 64 };

/* The cores on which threads of one region run, as they came. */
typedef struct nnc_seats {
    pid_t caller; /* whose mask is the user's: nobody here changes it */
    _Atomic uint64_t taken[NNC_SEAT_WORDS];
} nnc_seats;

/* Of a region that the calling thread is about to open. */
nnc_seats nnc_seats_new(void);
/* Once by every thread of the region; `threads`: how many they are. may_move: not the caller. Costs some 50 ns. */
void nnc_sit(nnc_seats *s, int threads, bool may_move);

#endif
