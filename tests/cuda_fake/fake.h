/* tests/cuda_fake/fake.h -- CUDA without a GPU, behind nnc's tables. The runtime's streams are queues, NVRTC keeps the source, and the C++
 * compiler builds kernels for this machine. cuBLASLt and cuDNN compute in plain loops (tests/cudnn), NCCL among streams.
 *
 * Nothing runs when it is given to a stream. Commands run when the host waits for something, in any order that streams and events allow:
 * which one, the seed decides. So a missing event shows in the result with some seed. Whatever the seed, a checker holds a vector clock
 * against every access to device memory. Two accesses of the same bytes, one a write, must be ordered by stream or event, or are an
 * error. */
#ifndef TEST_CUDA_FAKE_H
#define TEST_CUDA_FAKE_H

#include "cuda/cuda.h"

enum { FAKE_DEVICES = 8, FAKE_USUAL_DEVICES = 4, FAKE_STREAMS = 128 };

/* Puts the fake in place of NVIDIA's libraries but NVML. Seeds 0 and 1 let one stream run as far as it can before
 * another one, the first and the last created; others choose at random. */
void fake_begin(uint64_t seed);
/* Takes it away. The number of things wrong: races, accesses outside device memory, calls that the real runtime would refuse, blocks,
 * streams, events and libraries not given back. `why` gets the first. */
int fake_end(char why[512]);
extern int fake_left; /* of them, what was not given back */
/* The first of them so far; NULL: none. */
const char *fake_said(void);

/* The card, since fake_begin an H200 with 1 GiB; a test may change it after. All of its devices are alike. */
typedef struct fake_card {
    int sms, clock_khz, memory_khz, bus_bits, l2_bytes;
    size_t memory_bytes;
} fake_card;
extern fake_card fake_gpu;

/* Time as the fake has it, from this call to fake_end. The host's clock (nnc_now_ns) moves on with each call and jumps where the host
 * waits. Each stream has one of its own, and work takes as long as its bytes need. Nothing depends on the machine that runs it. */
typedef struct fake_speeds {
    double up, down, compute; /* bytes a nanosecond */
    bool blocking; /* the host waits for each kernel, as with CUDA_LAUNCH_BLOCKING=1 */
} fake_speeds;
void fake_clock(const fake_speeds *s);
/* Makes further allocations of pinned memory fail. */
extern bool fake_no_pinned;
extern int fake_devices; /* that there are: FAKE_USUAL_DEVICES, at most FAKE_DEVICES */
extern size_t fake_taken; /* bytes of each device that other processes have */
/* With a driver: cuDNN compiles kernels (-O3). How many it has compiled since fake_begin. */
void fake_compiles(void);
void fake_plans_nothing(bool on); /* cuDNN lists runtime-compiled engines, and finalizes no plan of theirs */

/* CUPTI: the next so many times that records are delivered, one is dropped. */
extern int fake_cupti_drops;

/* Counts since fake_begin. */
typedef struct fake_counts {
    int launches, copies, library_calls, kernels_built, peer_copies, replays;
    int collectives; /* a rank's */
    int64_t bytes_up;
    int blocks, streams, events, libraries, communicators; /* now alive */
} fake_counts;
extern fake_counts fake_count;

/* CUDA's last error: kept until somebody takes it (cudaGetLastError). What launches kernels and asks for the last error then, as cuBLASLt
 * and cuDNN do, takes that of an earlier call for its own. */
int fake_last_error(void);
/* The n-th call (1-based) of cudart that gives a status fails with this error; 0: none. */
extern int fake_fail_at, fake_fail_with;
extern int fake_calls;
/* The next call of this kind fails with fake_fail_with, and the number is 0 again. */
enum { FAKE_CAPTURE_BEGIN = 1, FAKE_CAPTURE_END, FAKE_GRAPH_INSTANTIATE, FAKE_GRAPH_UPLOAD };
extern int fake_graph_fail;
/* The n-th launch does not run but leaves the error of an illegal address, which every later call returns; 0: none. */
extern int fake_break_launch;

/* ---- between the files of the fake ---- */

/* An access to memory by a command: bytes at p. */
typedef struct fake_access {
    const void *p;
    size_t n;
    bool write;
} fake_access;

cuda_stream fake_stream_of(cuda_stream s); /* NULL: the current device's default stream */
/* Gives work to a stream: run(ctx) when its turn comes, then free(ctx). `access`: what it touches on the stream's device (copied). */
int fake_enqueue(cuda_stream s, void (*run)(void *ctx), void *ctx, const fake_access *access,
    int n_access, const char *what);
void fake_wrong(const char *fmt, ...) NNC_PRINTF(1, 2);

/* check.c: who wrote and read each 64 bytes of device memory, and whether that is ordered before `clock`. This is the vector
 * clock of an access by `stream` (clock[stream] is its own time). */
typedef struct fake_shadow fake_shadow;
fake_shadow *fake_shadow_create(size_t bytes);
void fake_shadow_destroy(fake_shadow *s);
/* NULL, or what is wrong with the access to bytes begin..end. */
const char *fake_shadow_access(fake_shadow *s, size_t begin, size_t end, bool write, int stream,
    const uint32_t clock[FAKE_STREAMS]);

/* kernels.c: NVRTC and the loading of what it made. */
extern const nnc_cuda_nvrtc fake_nvrtc;
enum { FAKE_ARGS = 512, /* CUDA's 4 KiB of pointers: nnc_kernel_most_buffers, and a workspace */
    FAKE_SIZES = 32 };
/* A kernel of the plan: its blocks (0: not known) and bytes of each argument. Also the first word of each size by which it calls a
 * function that kernels share. */
typedef struct fake_shape {
    long long blocks;
    size_t bytes[FAKE_ARGS];
    uint32_t size[FAKE_SIZES];
} fake_shape;
typedef struct fake_kernel {
    char name[160];
    int n_in, n_out;
    bool work;
    fake_shape *shape;
    int n_shape;
    int n_size, size_bytes[FAKE_SIZES];
    bool is_float[FAKE_SIZES];
    int max_threads;
    void (*thunk)(void *const *);
    /* shim.h: grid's blocks, first and number of those to run, threads, shared bytes, reversed */
    const char *(*launch)(void (*)(void *const *), void *const *, long long, long long, long long,
        int, long long, int);
    int shared_limit; /* dynamic, where it was asked for */
    size_t static_bytes; /* of shared memory */
} fake_kernel;
typedef struct fake_library {
    fake_kernel *k;
    int n;
} fake_library;
int fake_library_load(const char *code, fake_library **out); /* a cudaError */
void fake_library_unload(fake_library *l);

/* libraries.c */
void fake_libraries_begin(void);
void fake_libraries_end(void);

/* nccl.c. The n-th call for a collective (1-based; 0: none) of this process: from it on asynchronous errors are told; it never joins. */
extern int fake_nccl_error, fake_nccl_hang;
void fake_nccl_begin(void);
void fake_nccl_end(void);

#endif
