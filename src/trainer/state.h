/* trainer/state.h -- a training in progress: between train.c (the loop) and the files that report, store, resume and explain it. */
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
    float *loss_of, *correct_of, *counted_of; /* of the last run, by micro-batch; NaN: it has no such output */
    double loss, correct, counted; /* sums over the batches of an epoch; loss of a validation: over its targets */
    int64_t batches;
} program;

/* Times of an epoch's steps. Whole steps are measured; their parts are divided as those of some steps whose commands are measured. */
typedef struct step_times {
    int64_t forward, update, copy, checkpoint; /* ns: main; accumulate and step; inputs and outputs; checkpoints within the epoch */
    int64_t in_main[2], in_update[3];          /* of measured steps: main, its communication; backward, optimizer, communication */
    int64_t backward_in_main;                  /* the part of in_main[0] that backward passes take, where micro-batches alternate */
    int measured;
} step_times;

/* What a skipped step must put back: states that move between its batches. */
typedef struct skip_copy {
    int *state; /* n of them */
    int n;
    char *data; /* their numbers from before the step, one after the other; NULL: not copied yet */
} skip_copy;

typedef struct trainer {
    nnc_env *e;
    const nnc_train_options *o;
    const nnc_model *model;
    nnc_model *placed; /* the model with the stages of a pipeline; NULL: as it is */
    nnc_sharing sharing;
    program train, eval; /* eval has the states of train */
    nnc_data *data;
    nnc_data_input in[16]; /* that data are read for */
    int n_in;
    int64_t batch;   /* samples of a run: of all its micro-batches and replicas */
    int64_t targets; /* numbers in the targets of a batch: segmentation has several a sample */
    int accumulate;  /* runs of a step */
    int micro;       /* micro-batches of a run */
    int64_t step, steps, per_epoch; /* so far, of all epochs, of one */
    int64_t epoch, at;              /* position: the epoch, from 1, and how many of its steps are done */
    int64_t told;                   /* the step after which an epoch was reported last */
    bool dirty;                     /* something was done since the last checkpoint */
    int64_t skipped; /* steps of the epoch whose loss was not finite (--on-nan=skip) */
    int64_t updates; /* steps of all epochs that were not skipped: what the optimizer counts */
    skip_copy before;
    int64_t began_step, began_ns;   /* of this process, for rates */
    int64_t epoch_step;             /* the step with which this process began the epoch */
    bool stopped;                   /* by o->stop, before the end */
    int64_t best_epoch;             /* --keep=best: the best one so far; 0: none */
    double best_accuracy, best_loss;
    program *fed;                   /* takes the batches */
    bool staged;                    /* its next one is on the way, unless `ahead` says otherwise */
    nnc_status ahead;
    int64_t staged_at, next_ns;     /* when, and how long it took to have the data */
    int64_t hidden_ns;              /* of the epoch's waits for data: while a device computed */
    step_times times;               /* of the epoch */
    uint64_t checkpoint;            /* its version that this run has read or written (nnc_file_version); 0: none */
    nnc_text options;               /* what defines the training, for checkpoints */
    int room;                       /* a descriptor that reserves disk space for the weights, + 1; 0: none */
    uint64_t saved;                 /* version of the file of weights: this run's, or of before it */
    nnc_text save_as;               /* the file of weights, where another program has written the one of --save */
    struct nnc_tracing *trace;      /* of the step that --trace asks for, while it runs */
    bool traced;                    /* its file is written */
    FILE *log;
    int64_t log_bytes; /* of the lines in it */
    nnc_text *out;
    nnc_format format;
    nnc_json_writer json;
    nnc_sink *sink;
} trainer;

/* ---- open.c ---- */

/* Completes the options *own, which t->o then names: what devices and micro-batches share. */
nnc_status trainer_set(trainer *t, nnc_train_options *own) NNC_MUST;
/* Makes the graph of the step and finds its inputs (t->in). */
nnc_status trainer_open(trainer *t) NNC_MUST;
/* Compiles it, and makes its session. */
nnc_status trainer_compile(trainer *t) NNC_MUST;
/* Then: the same of the graph for evaluation, with the states of the step. */
nnc_status trainer_open_evaluation(trainer *t) NNC_MUST;
void trainer_close(program *p);
void trainer_deinit(trainer *t); /* all but the data and the log */

/* ---- save.c ---- */

const char *save_name(const trainer *t); /* where the weights are written */
/* Reserves disk space for the weights. NNC_E_IO: there is too little. */
nnc_status save_begin(trainer *t) NNC_MUST;
nnc_status save_epoch(trainer *t) NNC_MUST; /* what --keep asks for after an epoch's validation */
nnc_status save_weights(trainer *t) NNC_MUST;
void save_release(trainer *t); /* gives the disk space back */

/* ---- train.c ---- */

int trainer_input_of(const program *p, const char *name); /* -1: it has no such input */
/* NNC_E_USAGE, NNC_E_IO: no file of tensors by name, or it cannot be written. what: "weights are saved". */
nnc_status trainer_check_file(const char *file, const char *what, nnc_sink *sink) NNC_MUST;
double trainer_rate(const trainer *t); /* the learning rate of step t->step + 1 */
void trainer_begin(trainer *t, nnc_data_part part, int64_t epoch, int64_t first); /* nnc_data_begin */
/* Gives p the next batch of the data; the numbers of batch k of step t->step + 1. */
nnc_status trainer_next(trainer *t, program *p) NNC_MUST;
nnc_status trainer_set_step(trainer *t, program *p, int k) NNC_MUST;
/* Sets these and runs p on its inputs; the loss is the mean of the micro-batches' (p->loss_of). States stay until trainer_update. */
nnc_status trainer_forward(trainer *t, program *p, int k, double *loss) NNC_MUST;
/* trainer_next, and that. */
nnc_status trainer_run(trainer *t, program *p, int k, double *loss) NNC_MUST;
/* The updates after batch k of the step, whose loss is finite. */
nnc_status trainer_update(trainer *t, int k) NNC_MUST;
/* After a step: counts it. */
void trainer_count(trainer *t, bool skipped);

/* ---- skip.c ---- */

/* Before a step, which may be skipped. */
nnc_status skip_begin(trainer *t) NNC_MUST;
/* Leaves out what remains of the step after its batch k, whose loss is not finite. All states are as before the step. */
nnc_status skip_step(trainer *t, int k) NNC_MUST;
void skip_end(trainer *t);

/* ---- report.c ---- */

/* Opens the log; `keep` bytes of the one that is there stay, -1: none. NNC_E_IO: it does not have them. */
nnc_status report_open(trainer *t, int64_t keep) NNC_MUST;
/* What is trained on. */
void report_begin(trainer *t);
/* Of step t->step + 1. */
nnc_status report_step(trainer *t, double loss, double rate, int64_t ns) NNC_MUST;
/* ns: of its steps in this process, from step `first` of it on. */
nnc_status report_epoch(trainer *t, int64_t first, int64_t ns, nnc_data_times load) NNC_MUST;
void report_end(trainer *t); /* how it ended */

/* ---- checkpoint.c ---- */

/* Before the first step. NNC_E_MODEL: two states have one name, so that no checkpoint can be read. */
nnc_status checkpoint_check(const trainer *t) NNC_MUST;
/* Sets t->options. */
nnc_status checkpoint_options(trainer *t) NNC_MUST;
/* Writes everything that the next step depends on to o->checkpoint. */
nnc_status checkpoint_write(trainer *t) NNC_MUST;
/* Continues from o->checkpoint: states, position, sums. *log: bytes of the log at that time. NNC_E_MODEL: it is damaged, or of another
 * training; the message lists what differs. */
nnc_status checkpoint_read(trainer *t, int64_t *log) NNC_MUST;

/* ---- trace.c ---- */

/* Is step t->step + 1 the one that --trace is of? The second one of this process, since the first one may load libraries; a later one
 * where that is skipped. */
bool trace_wanted(const trainer *t);
/* Runs these sections of batch k and times their commands; after the step's last one writes the file. */
nnc_status trace_run(trainer *t, nnc_section first, nnc_section last, int k) NNC_MUST;
void trace_end(trainer *t); /* says when there was no step to trace */

/* checkpoint.c. The number of the state of this name; -1: there is none. */
int trainer_state_named(const nnc_session *s, const char *name);

/* ---- nan.c ---- */

/* Is the state a sum of gradients, which the next step replaces? With a loss scale it may be infinite: that step was skipped. */
bool nan_is_sum(const trainer *t, const char *state);

/* The loss of batch k of step t->step + 1 is not finite: reports where that arose. Never NNC_OK. */
nnc_status nan_report(trainer *t, double loss, int k) NNC_MUST;
/* The same where a state is not finite after step t->step; otherwise NNC_OK. */
nnc_status nan_check(trainer *t) NNC_MUST;

/* split.c. With --strategy=tensor, channel or spatial, *of divides its graphs by *with, which must last as long. */
void nnc_train_split(const nnc_train_options *o, nnc_compile_options *with, nnc_training *of);
/* NNC_E_USAGE: a weight of `eval` is divided otherwise than in `train`, so that they share no state. */
nnc_status nnc_split_check(const nnc_session *train, const nnc_session *eval, nnc_sink *sink) NNC_MUST;

#endif
