/* trainer/state.h -- state of a training in progress, shared by train.c (the loop) and the files that report, store, resume and explain. */
#ifndef NNC_TRAINER_STATE_H
#define NNC_TRAINER_STATE_H

#include "report/report.h"
#include "session/session.h"
#include "session/train.h"
#include "strategy/strategy.h"
#include "data/data.h"

#include <stdio.h>

/* A compiled graph and its session. */
typedef struct program {
    nnc_model *graph;
    nnc_artifact *artifact;
    nnc_session *session;
    float *loss_of, *correct_of, *counted_of; /* results of the last run, by micro-batch; NaN: no such output */
    double loss, correct, counted; /* sums over the batches of an epoch; in validation the loss is summed over targets */
    int64_t batches;
} program;

/* Times of an epoch's steps. Whole steps are timed. Their division into parts is that of some steps that were timed command by command. */
typedef struct step_times {
    int64_t forward, update, copy, checkpoint; /* ns: main; accumulate and step; inputs and outputs; checkpoints within the epoch */
    nnc_shares in_main, in_update;             /* of measured steps, over all devices */
} step_times;

/* Use of the steps' time, ns. forward .. idle are that of their commands; all but hidden, load, compute and total add up to total. */
typedef struct step_spent {
    int64_t forward, backward, optimizer, communication, idle; /* communication: exposed; idle: a device waits for others or the host */
    int64_t wait, copy, checkpoint, other; /* wait: for data; copy: inputs and outputs; other: the loop */
    int64_t hidden;                        /* communication beside computing */
    int64_t load;                          /* of data, in all threads */
    int64_t compute, total;                /* compute: without waits for data and checkpoints */
} step_spent;

/* Copy of the states that change between a step's batches, which skipping the step restores. */
typedef struct skip_copy {
    int *state; /* indices of n states */
    int n;
    char *data; /* their values before the step, consecutive; NULL: not copied yet */
} skip_copy;

typedef struct trainer {
    nnc_env *e;
    const nnc_train_options *o;
    const nnc_model *model;
    nnc_model *placed; /* the model placed in the stages of a pipeline; NULL: not placed */
    nnc_sharing sharing;
    program train, eval; /* eval has the states of train */
    nnc_data *data;
    nnc_data_input in[16]; /* inputs that get data */
    int n_in;
    int64_t batch;   /* samples of a run, over all its micro-batches and replicas */
    int64_t targets; /* numbers in the targets of a batch; segmentation has several per sample */
    int accumulate;  /* runs of a step */
    int micro;       /* micro-batches of a run */
    int64_t step, steps, per_epoch; /* steps done, of all epochs, of one epoch */
    int64_t epoch, at;              /* position: the epoch, from 1, and the number of its steps that are done */
    int64_t told;                   /* step of the latest report of an epoch */
    bool dirty;                     /* there was a step since the last checkpoint */
    int64_t skipped; /* steps of the epoch whose loss was not finite (--on-nan=skip) */
    int64_t updates; /* steps of all epochs that were not skipped, which the optimizer counts */
    skip_copy before;
    int64_t began_step, began_ns;   /* step and time at which this process began, for rates */
    int64_t epoch_step;             /* step at which this process began the epoch */
    bool stopped;                   /* o->stop ended the training early */
    int64_t best_epoch;             /* --keep=best: best epoch so far; 0: none */
    double best_accuracy, best_loss;
    program *fed;                   /* the program that gets the batches */
    bool staged;                    /* its next batch is prefetched, unless `ahead` is a failure */
    nnc_status ahead;
    int64_t staged_at, next_ns;     /* time of the prefetch, and how long the data took */
    int64_t hidden_ns;              /* part of the epoch's waits for data during which a device computed */
    step_times times;               /* of the epoch */
    step_spent spent;               /* by this process so far */
    uint64_t checkpoint;            /* version of the checkpoint that this run has read or written (nnc_file_version); 0: none */
    nnc_text options;               /* options that define the training, for checkpoints */
    int room;                       /* 1 + descriptor of a file that reserves disk space for the weights; 0: none */
    uint64_t saved;                 /* version of the file of weights, by this run or from before it */
    nnc_text save_as;               /* file of weights if another program has written that of --save */
    struct nnc_tracing *trace;      /* tracing of the step that --trace requests, while it runs */
    bool traced;                    /* the trace is written */
    FILE *log;
    int64_t log_bytes; /* size of its lines */
    nnc_text *out;
    nnc_format format;
    nnc_json_writer json;
    nnc_sink *sink;
} trainer;

/* ---- open.c ---- */

/* Completes the options *own by how devices and micro-batches share the work. t->o points to them from then on. */
nnc_status trainer_set(trainer *t, nnc_train_options *own) NNC_MUST;
/* Makes the graph of the step and finds its inputs (t->in). */
nnc_status trainer_open(trainer *t) NNC_MUST;
/* Compiles the step, and makes its session. */
nnc_status trainer_compile(trainer *t) NNC_MUST;
/* Called after that: the same for the evaluation graph, with the states of the step. */
nnc_status trainer_open_evaluation(trainer *t) NNC_MUST;
void trainer_close(program *p);
void trainer_deinit(trainer *t); /* frees all but the data and the log */

/* ---- save.c ---- */

const char *save_name(const trainer *t); /* file that gets the weights */
/* Reserves disk space for the weights. NNC_E_IO: there is too little. */
nnc_status save_begin(trainer *t) NNC_MUST;
nnc_status save_epoch(trainer *t) NNC_MUST; /* after an epoch's validation: saves what --keep requests */
nnc_status save_weights(trainer *t) NNC_MUST;
void save_release(trainer *t); /* gives the disk space back */

/* ---- train.c ---- */

int trainer_input_of(const program *p, const char *name); /* -1: no such input */
/* NNC_E_USAGE: the format has no named tensors; NNC_E_IO: the file cannot be written. what: "weights are saved". */
nnc_status trainer_check_file(const char *file, const char *what, nnc_sink *sink) NNC_MUST;
/* The learning rate of step t->step + 1. */
static inline double trainer_rate(const trainer *t) { return nnc_rate_at(&t->o->rate, t->step, t->steps, t->per_epoch); }
void trainer_begin(trainer *t, nnc_data_part part, int64_t epoch, int64_t first); /* nnc_data_begin */
/* Sets the inputs that depend on the step, then runs p. The loss is the mean of p->loss_of. States do not change until trainer_update. */
nnc_status trainer_forward(trainer *t, program *p, int k, double *loss) NNC_MUST;
/* Sets the next batch of the data as p's inputs, then trainer_forward. */
nnc_status trainer_run(trainer *t, program *p, int k, double *loss) NNC_MUST;
/* Executes the updates after batch k of the step, whose loss is finite. */
nnc_status trainer_update(trainer *t, int k) NNC_MUST;
/* After a step: counts it. */
void trainer_count(trainer *t, bool skipped);

/* ---- skip.c ---- */

/* Called before a step that may be skipped. */
nnc_status skip_begin(trainer *t) NNC_MUST;
/* Skips the rest of the step after its batch k, whose loss is not finite. Restores all states to those before the step. */
nnc_status skip_step(trainer *t, int k) NNC_MUST;
void skip_end(trainer *t);
/* Copies these states (NULL: the first n) to `data`, consecutive, or back. */
nnc_status trainer_copy(trainer *t, const int *state, int n, char *data, bool back) NNC_MUST;

/* ---- report.c ---- */

/* Opens the log and keeps the first `keep` bytes of an existing one; -1: none. NNC_E_IO: it is shorter. */
nnc_status report_open(trainer *t, int64_t keep) NNC_MUST;
/* Reports what is trained on. */
void report_begin(trainer *t);
/* Reports step t->step + 1. */
nnc_status report_step(trainer *t, double loss, double rate, int64_t ns) NNC_MUST;
/* Reports an epoch. ns: time of its steps in this process, from its step `first` on. */
nnc_status report_epoch(trainer *t, int64_t first, int64_t ns, nnc_data_times load) NNC_MUST;
void report_end(trainer *t); /* reports how the training ended */

/* ---- checkpoint.c ---- */

/* Called before the first step. NNC_E_MODEL: two states have the same name, so a checkpoint could not be read. NNC_E_IO: the disk has
 * too little room for one. */
nnc_status checkpoint_check(const trainer *t) NNC_MUST;
/* Sets t->options. */
nnc_status checkpoint_options(trainer *t) NNC_MUST;
/* Writes everything that the next step depends on to o->checkpoint. */
nnc_status checkpoint_write(trainer *t) NNC_MUST;
/* Restores states, position and sums from o->checkpoint. *log: size of the log at that time. NNC_E_MODEL: it is damaged, or of another
 * training; the message lists the differences. */
nnc_status checkpoint_read(trainer *t, int64_t *log) NNC_MUST;

/* ---- trace.c ---- */

/* Whether --trace records step t->step + 1. It records the second step of this process, since the first one may load libraries, or a
 * later one if that is skipped. */
bool trace_wanted(const trainer *t);
/* Runs these sections of batch k and times their commands. After the step's last section it writes the file. */
nnc_status trace_run(trainer *t, nnc_section first, nnc_section last, int k) NNC_MUST;
void trace_end(trainer *t); /* warns if there was no step to trace */

/* checkpoint.c. Index of the state with this name; -1: none. */
int trainer_state_named(const nnc_session *s, const char *name);

/* ---- nan.c ---- */

/* Whether the state is a sum of gradients, which the next step replaces. With a loss scale it may be infinite after a skipped step. */
bool nan_is_sum(const trainer *t, const char *state);

/* Reports why the loss of batch k of step t->step + 1 is not finite. Never returns NNC_OK. */
nnc_status nan_report(trainer *t, double loss, int k) NNC_MUST;
/* The same for a state that is not finite after step t->step. NNC_OK: all states are finite. */
nnc_status nan_check(trainer *t) NNC_MUST;

/* split.c. With --strategy=tensor, channel or spatial: makes *of split its graphs by *with, which must outlive it. */
void nnc_train_split(const nnc_train_options *o, nnc_compile_options *with, nnc_training *of);
/* NNC_E_USAGE: a weight of `eval` is split otherwise than in `train`, so they cannot share its state. */
nnc_status nnc_split_check(const nnc_session *train, const nnc_session *eval, nnc_sink *sink) NNC_MUST;

#endif
