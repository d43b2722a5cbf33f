/* bench/machine.h -- the ceilings of this machine, measured in the same process as what is held against them. */
#ifndef NNC_BENCH_MACHINE_H
#define NNC_BENCH_MACHINE_H

typedef struct machine {
    double flops;      /* fused multiply-adds, FLOP/s, all threads, registers only; over 100 ms, past the first burst of the clock */
    double copy;       /* copying 256 MiB, bytes/s read + written, the better of memcpy and streaming stores */
    double read;       /* summing 512 MiB, bytes/s */
    double cache_copy; /* copying 256 KiB per thread */
} machine;

/* Takes about a second. Best of several tries: a ceiling. */
machine measure_machine(int threads);

#endif
