/* session/train.h -- settings of a training: nnc train's options, a model file's section "train", nnc_train_options. */
#ifndef NNC_SESSION_TRAIN_H
#define NNC_SESSION_TRAIN_H

#include "data/data.h"
#include "partition/partition.h"
#include "session/session.h"
#include "train/train.h"
#include <signal.h>

/* Epochs whose weights --save writes: the last one, the best one by validation, or each one to a file of its own. */
typedef enum nnc_keep { NNC_KEEP_last, NNC_KEEP_best, NNC_KEEP_all } nnc_keep;

/* Treatment of a step whose loss is NaN or infinite. stop: training ends with a report of its origin. skip: the step is skipped. */
typedef enum nnc_on_nan { NNC_NAN_stop, NNC_NAN_skip } nnc_on_nan;

enum { NNC_TRAIN_SETTINGS = 64 }; /* largest number of settings */

struct nnc_train_options {
    bool given[NNC_TRAIN_SETTINGS]; /* by row of nnc_train_settings: a flag set it and overrides the model file */
    nnc_compile_options compile;
    nnc_training training;
    nnc_rate rate;
    int epochs;
    int steps;               /* limit of steps over all epochs; 0: none */
    nnc_data_options data;   /* its seed is the one below */
    int batch;               /* sets the model's arg `batch` when it is opened for training; 0: not given */
    uint64_t seed;           /* of the order of samples, and of dropout */
    const char *save;        /* file for the weights (.safetensors, .npz); NULL: none */
    nnc_strategy strategy;   /* how the devices share the work: one that nnc train executes (partition/strategies.def) */
    int micro;               /* micro-batches of the plan, each of the model's batch; 0: 1, in a pipeline `accumulate` */
    int replicas;            /* of a pipeline, each on an equal part of the devices; 0: 1 */
    int chunks;              /* stages of a device in an interleaved pipeline; 0: 2 */
    double bucket_mb;        /* bucket of gradients that replicas reduce together, 10^6 bytes; 0: those of each optimizer kernel */
    int zero;                /* ZeRO stage. 1: replicas shard the updates and optimizer states; 2: also accumulated gradients */
    nnc_keep keep;
    const char *trace, *predict; /* file and hardware for nnc_session_trace of one step; NULL: none */
    const char *log;         /* file that gets a line of JSON for each step and epoch; NULL: none */
    const char *checkpoint;  /* file with all that the next step depends on, replaced after each epoch */
    int checkpoint_every;    /* steps between checkpoints, instead of epochs */
    bool resume;             /* resume from the checkpoint if it exists */
    nnc_on_nan on_nan;
    const volatile sig_atomic_t *stop; /* if not 0 on any rank, training ends after the step, with a checkpoint; may be NULL */
    /* Called before the first step, after all checks, so that warnings in the sink can be printed; may be NULL. */
    void (*ready)(void *ctx, nnc_sink *sink);
    /* `report` is called after each epoch with a line of text, `progress` with phase and detail, valid during the call. May be NULL. */
    void (*report)(void *ctx, const char *line);
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *ctx;
    int per_epoch;           /* trainers of nnc.h: steps of an epoch, for schedules that count epochs; 0: not given */
};

/* train_options.c. Whether trainers of nnc.h have this setting. */
bool nnc_train_is_offered(const nnc_flag *f);
/* Copies options made by nnc_train_options_create, or the defaults for NULL. The caller destroys the copy. NULL: out of memory. */
nnc_train_options *nnc_train_options_copy(const nnc_train_options *o);
/* nnc_train_read for such options, which keep the strings. */
nnc_status nnc_train_options_read(const nnc_model *m, nnc_train_options *o, nnc_sink *sink) NNC_MUST;

extern const nnc_train_options nnc_train_defaults;
/* Table of settings; offsets are into nnc_train_options. */
extern const nnc_flag nnc_train_settings[];
extern const size_t nnc_n_train_settings;
/* Key of a setting in the section "train"; settings of FLAGS_job have none. Returns true if it is inverted ("shuffle" for --no-shuffle). */
enum { NNC_TRAIN_KEY_SIZE = 32 };
bool nnc_train_key(const nnc_flag *f, char key[NNC_TRAIN_KEY_SIZE]);
/* nnc's name for a flag or key of another framework ("lr" for "--learning-rate"); NULL: none. */
const char *nnc_train_calls(const char *name);
/* Applies the section "train" of m's file, except settings given by flags (o->given). Strings are copied to `strings`. NNC_E_MODEL: unknown
 * keys and wrong values, reported with their positions in the file. */
nnc_status nnc_train_read(const nnc_model *m, nnc_train_options *o, nnc_arena *strings, nnc_sink *sink) NNC_MUST;

/* Called on all ranks before the first run. If *stop is not 0 on any rank, nnc_env_stops is true on rank 0 after the run. */
void nnc_env_watch(nnc_env *e, const volatile sig_atomic_t *stop);
bool nnc_env_stops(const nnc_env *e);

#endif
