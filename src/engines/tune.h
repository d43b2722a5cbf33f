/* engines/tune.h -- selecting algorithms in GPU engines: the key of a call, measuring, the file of results. Internal to engines/;
 * nnc_tuning in engines.h holds the results. */
#ifndef NNC_ENGINES_TUNE_H
#define NNC_ENGINES_TUNE_H

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

/* Zeroed buffers on the current GPU for the call's arguments, and a workspace of `work` bytes. */
enum { NNC_TRIAL_ARGS = 16 };
typedef struct nnc_trial {
    char *memory;
    int n;
    void *arg[NNC_TRIAL_ARGS];
    void *work;
} nnc_trial;
nnc_status nnc_trial_open(nnc_trial *t, const int64_t *bytes, int n, int64_t work, nnc_sink *sink) NNC_MUST;
void nnc_trial_close(nnc_trial *t);
/* Time of one run in nanoseconds: the least of a run and three series of five, after a warm-up run. Only one run if it takes
 * milliseconds, or twice as long as `least` (the fastest so far; 0: none). -1: failure. */
int64_t nnc_trial_ns(nnc_status (*run)(void *ctx), void *ctx, int64_t least);

#endif
