/* session/train.h -- settings of a training: nnc train's options, a model file's section "train", nnc_train_options. */
#ifndef NNC_SESSION_TRAIN_H
#define NNC_SESSION_TRAIN_H

#include "data/data.h"
#include "partition/partition.h"
#include "session/session.h"
#include "train/train.h"
#include <signal.h>

/* Epochs whose weights --save writes: the last one, the best one for the validation, or each one to a file of its own. */
typedef enum nnc_keep { NNC_KEEP_last, NNC_KEEP_best, NNC_KEEP_all } nnc_keep;

/* What a step whose loss is NaN or infinite does: ends the training, with a report where that arose, or is skipped. */
typedef enum nnc_on_nan { NNC_NAN_stop, NNC_NAN_skip } nnc_on_nan;

enum { NNC_TRAIN_SETTINGS = 64 }; /* at most */

struct nnc_train_options {
    bool given[NNC_TRAIN_SETTINGS]; /* by row of nnc_train_settings: set by a flag, which overrides the model file */
    nnc_compile_options compile;
    nnc_training training;
    nnc_rate rate;
    int epochs;
    int steps;               /* of all epochs together, at most; 0: no limit */
    nnc_data_options data;   /* its seed is the one below */
    int batch;               /* of the model file: sets its arg `batch` where it is opened for training; 0: not given */
    uint64_t seed;           /* of the data, and of dropouts */
    const char *save;        /* the weights (.safetensors, .npz); NULL: nowhere */
    nnc_strategy strategy;   /* how the devices share the work: one that nnc train executes (partition/strategies.def) */
    int micro;               /* micro-batches of the plan, each the model's batch; 0: 1, or in a pipeline those of `accumulate` */
    int replicas;            /* of a pipeline, each on an equal part of the devices; 0: 1 */
    int chunks;              /* interleaved: stages of a device; 0: 2 */
    double bucket_mb;        /* gradients that replicas sum together, in 10^6 bytes; 0: those of each kernel of the optimizer */
    int zero;                /* ZeRO's stage. 1: replicas share the updates and the optimizer's states; 2: sums of gradients, too */
    nnc_keep keep;
    const char *trace, *predict; /* of one step: nnc_session_trace's file and hardware; NULL: none */
    const char *log;         /* a line of JSON for each step and epoch; NULL: none */
    const char *checkpoint;  /* everything that the next step depends on, replaced after each epoch, or after each so many steps */
    int checkpoint_every;
    bool resume;             /* from the checkpoint, where there is one */
    nnc_on_nan on_nan;
    const volatile sig_atomic_t *stop; /* not 0 on any rank: training ends after the step, with a checkpoint; may be NULL */
    /* Called before the first step, when all that could be checked is: warnings in the sink can be printed; NULL: not. */
    void (*ready)(void *ctx, nnc_sink *sink);
    /* Called after each epoch with a line of text; with phase and detail of the progress, which ends with the call; NULL: not. */
    void (*report)(void *ctx, const char *line);
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *ctx;
    int per_epoch;           /* trainers of nnc.h: steps of an epoch, for schedules that count epochs; 0: not given */
};

/* train_options.c. Is it a setting of trainers, too? */
bool nnc_train_is_offered(const nnc_flag *f);
/* Of options that nnc_train_options_create made, or NULL for the defaults; the caller destroys the copy. NULL: out of
 * memory. */
nnc_train_options *nnc_train_options_copy(const nnc_train_options *o);
/* nnc_train_read, whose strings such options keep. */
nnc_status nnc_train_options_read(const nnc_model *m, nnc_train_options *o, nnc_sink *sink) NNC_MUST;

extern const nnc_train_options nnc_train_defaults;
/* Offsets are those of nnc_train_options. */
extern const nnc_flag nnc_train_settings[];
extern const size_t nnc_n_train_settings;
/* The key of a setting in the section "train" (settings of FLAGS_job have none). True: it is inverted, as "shuffle" of "--no-shuffle". */
enum { NNC_TRAIN_KEY_SIZE = 32 };
bool nnc_train_key(const nnc_flag *f, char key[NNC_TRAIN_KEY_SIZE]);
/* The setting that `name`, a flag or key of another framework, is called here ("--learning-rate": "lr"); NULL: none. */
const char *nnc_train_calls(const char *name);
/* Sets what the section "train" of m's file says and no flag has set (o->given). Strings are copied to `strings`. NNC_E_MODEL: unknown keys
 * and wrong values, at their places in the file. */
nnc_status nnc_train_read(const nnc_model *m, nnc_train_options *o, nnc_arena *strings, nnc_sink *sink) NNC_MUST;

/* On all ranks, before the first run: where *stop is not 0 on another rank, nnc_env_stops tells rank 0 after the run. */
void nnc_env_watch(nnc_env *e, const volatile sig_atomic_t *stop);
bool nnc_env_stops(const nnc_env *e);

#endif
