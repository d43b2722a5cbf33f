/* bench/machine.h -- the ceilings of this machine, measured in the same process as what is held against them. */
#ifndef NNC_BENCH_MACHINE_H
#define NNC_BENCH_MACHINE_H

typedef struct machine {
    double flops; /* fused multiply-adds, FLOP/s, all threads, registers only */
    double
        copy; /* copying 256 MiB, bytes/s read + written, the better of memcpy and streaming stores */
    double read; /* summing 256 MiB, bytes/s */
    double cache_copy; /* copying 256 KiB per thread */
} machine;

/* Memory and results of the measuring loops. One thread at a time. */
typedef struct meter meter;

/* NULL: out of memory, or more than 64 threads. 512 MiB. */
meter *meter_create(int threads);
void meter_destroy(meter *);

/* Best of several tries, each over 100 ms of multiply-adds, past the first burst of the clock: a ceiling. Takes some seconds. */
machine meter_ceiling(meter *);

/* One try of each, a tenth of a second together: what the machine gives at this moment (its clock, its neighbours). It is compared
 * with what ran just before and after. cache_copy is not measured: 0. */
machine meter_now(meter *);

#endif
