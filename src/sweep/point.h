/* sweep/point.h -- one measurement: a model, compiled with some options, on a machine. It is measured here, or predicted for a described
 * machine. A model that does not fit or fails gives a point, too. */
#ifndef NNC_SWEEP_POINT_H
#define NNC_SWEEP_POINT_H

#include "check/check.h"

typedef enum nnc_sweep_kind {
    SWEEP_measured,
    SWEEP_predicted, /* by the simulator on the hardware file's devices; for other described targets by their cost rules */
    SWEEP_no_fit,    /* known before it runs */
    SWEEP_failed,
    SWEEP__COUNT
} nnc_sweep_kind;
extern const char *const nnc_sweep_kind_names[SWEEP__COUNT]; /* "measured", "predicted", "does not fit", "failed" */

typedef struct nnc_sweep_point {
    nnc_sweep_kind kind;
    nnc_status status;   /* of no_fit and failed: why; the message is its first error */
    const char *message;
    int runs;            /* timed ones; 0: predicted */
    double best_ms, median_ms, low_ms, high_ms; /* low, high: quartiles; all NaN where nothing was timed, and equal if predicted */
    double cpu_share;    /* as in nnc_times, of the turn where it is least; NaN: unknown */
    double limit_ms;     /* least time of the commands (roofline.c), without copies; 0: unknown */
    roof_level bound;    /* what limit_ms is bound by */
    double compile_ms;   /* NaN: not compiled, or only planned */
    int64_t launches, flops, bytes; /* of a run */
    int64_t chunks;      /* a run is so many; 1: the model fits at once. On a CPU each has inputs of its own, made untimed before it */
    int64_t need, room;  /* bytes, of the device that has least left: planned, and usable. 0: not planned */
    const char *room_by; /* what limits it: "ulimit -v", "its control group", "--memory-limit", "free at the moment"; NULL: the machine */
} nnc_sweep_point;

typedef struct nnc_sweep_point_options {
    const nnc_compare_options *time; /* compile, warmup, iterations, duration_ms, seed, inputs, io (exclude or include), training, which is
                                      * set if the model is the graph of a step */
    bool predict;     /* a described machine: nothing runs */
    double budget_ms; /* a run that takes longer by the cost rules is predicted instead; 0: none is */
    nnc_times *times; /* sorted runs of the same point before, to which these are added; the caller frees them. NULL: none */
    nnc_rates *rates; /* of the env's machine, zero before its first point; NULL: no limits */
} nnc_sweep_point_options;

/* Compiles m (one model, or several joined by nnc_models_join) for e and measures or predicts its runs. Strings are in `a`. The point has
 * the reason why the model cannot run. NNC_E_NOMEM: there was no memory for that. */
nnc_status nnc_sweep_take(nnc_env *e, const nnc_model *m, const nnc_sweep_point_options *o,
    nnc_sweep_point *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* The point of a failure, with the first error of `said`. */
nnc_status nnc_sweep_fail(
    nnc_sweep_point *out, nnc_status why, const nnc_sink *said, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* 10^9 operations or bytes of the point's run per second, at the median; NaN: no time. */
double nnc_sweep_gflops(const nnc_sweep_point *p);
double nnc_sweep_gbs(const nnc_sweep_point *p);

#endif
