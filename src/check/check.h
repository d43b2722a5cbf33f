/* check/check.h -- compare and verify: programs timed against each other, and judged by the float64 reference. */
#ifndef NNC_CHECK_H
#define NNC_CHECK_H

#include "report/report.h"

/* Measurements of one of several models that run together. Alone it has the threads of its stream. */
typedef struct nnc_together_model {
    const char *name;
    int device, stream; /* in the joined plan; -1: the model computes nothing */
    double alone_ms, all_ms; /* medians alone, and alone with all threads; NaN: not measured */
    int64_t predicted_ns; /* alone, by the cost rules or the simulator */
    bool same; /* alone and together it computed the same bits */
} nnc_together_model;
typedef struct nnc_together {
    int n, devices, lanes; /* models, devices and streams that they use */
    int threads, all; /* threads of a stream, and of the machine */
    bool measured, shares; /* shares: models share a GPU by streams, which cost rules do not model */
    bool simulated; /* predictions are the simulator's */
    const char *why_not; /* not measured: why, a sentence; NULL: it is, or nothing runs */
    double ms; /* together, the median */
    int64_t predicted_ns;
    nnc_together_model *model; /* in `a` */
    nnc_arena a;
} nnc_together;
/* Compares s, a fresh session of `joined`, with each model alone: results of a first run, and times in alternating bursts. eo: the options
 * of e. Over several ranks, or without memory
 * for the models beside the joined one, nothing is measured. s NULL: e is described hardware, on which both are simulated. */
nnc_status nnc_measure_together(nnc_env *e, const nnc_env_options *eo, const nnc_artifact *joined, nnc_session *s,
    nnc_model *const *m, const char *const *name, int n, const nnc_compare_options *o, nnc_together *out, nnc_sink *sink) NNC_MUST;
/* Whether one of the layers, joined by +, is of the model of this name, of several in one graph. */
bool nnc_layers_of_model(const char *layers, const char *name);
void nnc_report_together(const nnc_together *t, nnc_text *out);
void nnc_report_together_json(const nnc_together *t, nnc_json_writer *out); /* a member "together" */
void nnc_together_free(nnc_together *t);

/* ---- ONNX's test folders --------------------------------------------------------------------------------------------- */

typedef enum nnc_verifier {
    NNC_BY_PLAN,
    NNC_BY_REFERENCE
} nnc_verifier; /* compile and run, or evaluate in float64 */
typedef struct nnc_verify_options {
    nnc_compile_options compile;
    nnc_verifier by;
    double rtol, atol; /* |got - want| <= atol + rtol |want| */
} nnc_verify_options;
/* Runs folder/model.onnx on the inputs of each test_data_set_N and compares its outputs with those stored there. Inputs that decide
 * shapes become constants. e NULL with NNC_BY_REFERENCE. */
nnc_status nnc_verify_folder(nnc_env *e, const char *folder, const nnc_verify_options *o,
    nnc_text *out, bool *agrees, nnc_sink *sink) NNC_MUST;

/* ---- layer by layer ---------------------------------------------------------------------------------------------- */

/* Compares fused, unfused and float64 at every layer and appends the report. `against` (or NULL) is a file of outputs to compare with.
 * Reads these members of o: compile, seed, input, inputs, tolerance. */
nnc_status nnc_verify_model(nnc_env *e, const nnc_model *m, const nnc_compare_options *o,
    const char *against, nnc_format f, nnc_text *out, bool *agrees, nnc_sink *sink) NNC_MUST;
/* Finds a small model in which a layer differs as in m. *small is NULL if all layers agree. */
nnc_status nnc_smallest_failing(nnc_env *e, const nnc_model *m, const nnc_compare_options *o,
    nnc_model **small, nnc_sink *sink) NNC_MUST;

/* ---- roofline.c: least times of commands --------------------------------------------------------------------------------- */

/* The bound of a command: a level of the memory hierarchy, or the peak rate of computing. */
typedef enum roof_level { LEVEL_l1, LEVEL_l2, LEVEL_l3, LEVEL_memory, LEVEL_arithmetic, LEVEL__COUNT } roof_level;
extern const char *const nnc_level_names[LEVEL__COUNT];
/* Rates of a CPU's threads: bytes/s of copies by level, and FLOP/s in f32. 0: not measured yet. */
typedef struct nnc_rates {
    double bytes_s[LEVEL_arithmetic], flops_s;
    int64_t since_s; /* when the first of them was measured, in seconds since 1970 */
    int64_t measured_ns, again; /* when the last one was measured; and the number of times that nnc_rates_again made it so since */
    bool changed;    /* since nnc_rates_open */
    bool uncached;   /* the simulator's: whatever is moved comes from memory */
} nnc_rates;
#define NNC_TOO_FAST 1.1 /* least time over time from which on the rates must be wrong */
/* Reads rates of this machine's CPU that an earlier command put into the cache, and adds those measured since. The key is the CPU's name
 * and instructions, caches, threads, and nnc's version. If a rate was measured twice the higher value is kept, as other programs' load
 * explains the lower. Without a cache, or on other targets, both do nothing. */
void nnc_rates_open(nnc_rates *r, const nnc_env *e);
void nnc_rates_close(const nnc_rates *r, const nnc_env *e);
/* Whether a time is so much below its least time that the rates must have been measured on a busy machine. Forgets them then, twice at
 * most within some seconds, as the machine may stay busy; false: the least time stands. */
bool nnc_rates_again(nnc_rates *r, double least_ms, double ms);
/* Least time of command c of the plan on target t, in ns, and what bounds it. A CPU that is the plan's only device has its rates
 * measured at their first use; others have the target's. */
double nnc_command_least_ns(nnc_rates *r, const nnc_plan *p, const nnc_target *t, const nnc_cmd *c, roof_level *bound);

/* Least time of a run: the sum over the busiest device's commands of the time to move or compute at the peak rate. */
typedef struct nnc_roofline {
    double ms;         /* 0: the target has no numbers */
    roof_level level;  /* resource with the largest share of that time */
    const char *bound; /* its name: "memory", "L3", ..., "arithmetic"; NULL: ms is 0 */
    double rate;       /* measured rate of that resource: bytes/s of copies, or FLOP/s in f32; 0: not measured */
} nnc_roofline;
nnc_roofline nnc_artifact_roofline(nnc_env *e, nnc_rates *r, const nnc_artifact *a, nnc_section last);
/* The rates that target t describes, so that none is measured on this machine. simulated: by the simulator, without caches. */
void nnc_rates_described(nnc_rates *r, const nnc_target *t, bool simulated);

/* Bytes of the host that streamed runs take beside the plan's: a second set of inputs and outputs, and the host's. */
int64_t nnc_copies_bytes(const nnc_artifact *a);

/* A list of run times. */
typedef struct nnc_times {
    int64_t *ns;
    int n, cap;
    int64_t spent_ns; /* their sum */
    double cpu_share; /* of nnc_session_time: of the time that threads were ready, the share that they ran; NaN: unknown */
} nnc_times;
nnc_status nnc_times_add(nnc_times *t, const int64_t *ns, int n, nnc_sink *sink) NNC_MUST; /* the caller frees t->ns */
/* Share of the CPU below which other programs ran: one more busy thread leaves n threads on n cores n / (n + 1), 0.8 on four. */
#define NNC_BUSY 0.8
/* Times runs of s in its steady state as o says (warmup, iterations, duration_ms). `io`: with copies. The times are sorted. The caller
 * frees t->ns, also after a failure. */
nnc_status nnc_session_time(nnc_session *s, const nnc_compare_options *o, bool io, nnc_times *t, nnc_sink *sink) NNC_MUST;
/* Quantile `share` (0..1) of sorted times in ms, interpolated linearly, and their mean; NaN when there are none. */
double nnc_times_at(const nnc_times *t, double share);
double nnc_times_mean(const nnc_times *t);
/* Ratio of two times over pairs that were measured one after the other: the median with its distribution-free 95 % confidence interval,
 * which assumes independent ratios. low and high are NaN with fewer than 6 pairs; ratio is NaN without pairs. */
typedef struct nnc_ratio {
    int n;
    double ratio, low, high;
} nnc_ratio;

/* Computes this from n ratios, which it sorts. */
nnc_ratio nnc_pairs(double *ratio, int n);
/* Whether the interval excludes 1. */
static inline bool nnc_significant(const nnc_ratio *p)
{
    return p->low > 1 || p->high < 1;
}

#endif
