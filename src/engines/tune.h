/* engines/tune.h -- selecting algorithms in GPU engines: the key of a call, measuring, the file of results. Internal to engines/;
 * nnc_tuning in engines.h holds the results. */
#ifndef NNC_ENGINES_TUNE_H
#define NNC_ENGINES_TUNE_H

#include "cuda/cuda.h"
#include "engines/engines.h"

/* Key of a call for an engine's library (name and version) on the current GPU. It contains all that the choice depends on. When out of
 * memory, it matches nothing. */
nnc_hash128 nnc_tune_key(const char *library, const nnc_call *c, int64_t workspace);

void nnc_tune_gpu(nnc_text *t); /* appends the current GPU's name and size */

/* Fails if this version of a library ("cudnn", "cublaslt") does not support the current GPU. `number` is the version as the library
 * returns it: 91900, 130100. The message says which version supports it. */
nnc_status nnc_library_supports(const char *library, int64_t number, nnc_sink *sink) NNC_MUST;

typedef struct nnc_tuned {
    int choice;       /* index in the library's list */
    int64_t number;   /* the library's own number, compared when replayed; 0: none */
    int64_t ns;
} nnc_tuned;

/* Finds the recorded choice for a key. False, also for t NULL: none. */
bool nnc_tune_find(nnc_tuning *t, nnc_hash128 key, nnc_tuned *out);
/* Whether missing choices are measured. */
bool nnc_tune_measures(const nnc_tuning *t);
nnc_status nnc_tune_record(nnc_tuning *t, nnc_hash128 key, const char *library, const nnc_tuned *result, nnc_sink *sink) NNC_MUST;

/* Buffers of random numbers on the current GPU for a call's arguments of one type, and a workspace of `work` bytes. NNC_E_DEVICE: they
 * cannot be allocated. */
enum { NNC_TRIAL_ARGS = 16 };
typedef struct nnc_trial {
    const nnc_cuda_cudart *rt;
    cuda_stream stream;
    cuda_event event[2];
    char *memory, *flush;
    size_t flush_bytes; /* more than the L2 cache has */
    int64_t flush_ns; /* of a graph that writes them as often as one that is measured */
    void *arg[NNC_TRIAL_ARGS], *work;
} nnc_trial;
nnc_status nnc_trial_open(nnc_trial *t, nnc_dtype d, const int64_t *bytes, int n, int64_t work) NNC_MUST;
void nnc_trial_close(nnc_trial *t);
/* Average time in nanoseconds of runs with the L2 cache flushed and of runs right after these. They are in a captured graph, since the host
 * takes longer to submit a short call than the GPU to run it. A run that takes milliseconds, or twice as long as `least` (the fastest so
 * far; -1: none), is timed once. -1: failure, as of what cannot be captured. `run` submits to nnc_cuda_current(). */
int64_t nnc_trial_ns(nnc_trial *t, nnc_status (*run)(void *ctx), void *ctx, int64_t least);
/* The fastest of n candidates: take(i) makes candidate i the one that `run` runs (false: it cannot). choice -1: none could be measured. */
nnc_tuned nnc_trial_fastest(nnc_trial *t, int n, bool (*take)(void *ctx, int i), nnc_status (*run)(void *ctx), void *ctx);

#endif
