/* api/api.h -- what nnc's own program, tests and benchmarks use of api/ beyond nnc.h: the fields of options, parts of artifacts, passes by
 * name, copies beside computing. Not installed: it may change with every version. */
#ifndef NNC_API_H
#define NNC_API_H

#include "api/nnc.h"
#include "base/json_writer.h"
#include "base/setting.h"
#include "base/status.h"
#include "base/tensor.h"

struct nnc_kernel;

/* ---- options: nnc.h lists their names ------------------------------------------------------------------------------- */

struct nnc_env_options {
    int threads;             /* intra-op threads; 0 = all CPUs of this process, or what the machine file says */
    const char *target;      /* "cpu" (NULL), this machine's GPU ("cuda"), a GPU to compile for ("cuda:sm_90"), or a machine file (.json) */
    const char *cache_dir;   /* NULL = the user's cache folder */
    bool no_cache;           /* compile everything anew */
    const char *tuning;      /* of a GPU: file of its libraries' measured algorithms, replayed when a model is loaded; NULL = none */
    bool tune;               /* measure algorithms missing from the file and add them */
    bool no_llvm, no_onednn; /* behave as if the plug-in were absent */
};

struct nnc_open_options {
    const nnc_arg *arg;  /* --set name=value: an integer or a word */
    int n_arg;
    uint64_t seed;       /* of generated weights and inputs */
    const char *weights; /* safetensors file; NULL = generated */
};

struct nnc_compile_options {
    int level;               /* 0..3, default 2 */
    bool math_fast;          /* short forms of functions (docs/math.md); -O3 may reorder sums; contractions of f32 may round to tf32,
                              * unless precision is f32 */
    bool math_exact;         /* functions as written, in f64; NaN survives every relu: none inside an engine's call that drops it */
    nnc_precision precision; /* that contractions may round f32 to; default: f32, with math_fast tf32. f16, bf16 want level >= 2 */
    const char *const *skip; /* passes to leave out, by name */
    int n_skip;
    int streams;             /* per device, default 1 */
    int devices;             /* virtual CPU devices, default 1 */
    int jobs;                /* threads that compile; 0 = all; never changes a byte */
    void (*after_pass)(void *ctx, const char *pass, const nnc_model *g, int changed, int64_t ns);
    void (*on_kernel)(void *ctx, const struct nnc_kernel *k, const char *layers);
    void *ctx;
};

/* What options that are NULL stand for; those of compile and compare also to begin from. */
extern const nnc_env_options nnc_env_defaults;
extern const nnc_open_options nnc_open_defaults;
extern const nnc_compile_options nnc_compile_defaults;
extern const nnc_compare_options nnc_compare_defaults;

/* Where the time of a compile went, nanoseconds. */
typedef struct nnc_compile_stats {
    int64_t passes_ns, codegen_ns, plan_ns, total_ns; /* plan: all of planning, engine choice included, without codegen */
    int cache_hits, cache_misses;                     /* kernels */
} nnc_compile_stats;
const nnc_compile_stats *nnc_artifact_stats(const nnc_artifact *a);

typedef enum nnc_io { NNC_IO_EXCLUDE, NNC_IO_INCLUDE, NNC_IO_BOTH } nnc_io; /* are copies to and from the device timed? */

struct nnc_compare_options {
    nnc_compile_options compile;
    uint64_t seed;
    int warmup;                 /* untimed runs before the first timed one; 0 = about 50 ms of them, negative = none */
    int iterations;             /* timed runs of each program, exactly; 0 = as many as fit duration_ms */
    nnc_io io;
    int duration_ms;            /* 0 = 1000, and up to 4000 for a slow model, until it had nine bursts */
    bool steps;                 /* also time what lies between as written and fused, one pass more at a time */
    bool no_reference;          /* only against each other */
    double tolerance;           /* largest nmse that agrees; 0 = by dtype and conditioning (docs/formats.md), negative = equal numbers */
    const nnc_arg *input;       /* name = .npy file, for inputs that are not generated from the seed */
    int n_input;
    const nnc_arg *arg;          /* the model's --set arguments, for the report */
    int n_arg;
    /* What is being done ("timing"), and to what ("fused, run 3 of 10", or NULL; gone after the call). On the caller's thread. */
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *progress_ctx;
};

/* ---- parts of artifacts, passes by name ------------------------------------------------------------------------------ */

/* The parts, for tools; borrowed. */
const struct nnc_plan *nnc_artifact_plan(const nnc_artifact *a);
const struct nnc_remarks *nnc_artifact_remarks(const nnc_artifact *a);
const nnc_model *nnc_artifact_source(const nnc_artifact *a); /* the graph before the passes */
const nnc_model *nnc_artifact_graph(const nnc_artifact *a);  /* and after */
/* Is this file the one that the artifact was loaded from, or one with its weights? To write it would destroy them. */
bool nnc_artifact_reads(const nnc_artifact *a, const char *file);

/* Runs exactly these passes, in this order (nnc opt), or the level's when n_pass is 0. The model is replaced. */
nnc_status nnc_optimize(nnc_env *e, nnc_model **m, const char *const *pass, int n_pass, const nnc_compile_options *o,
    nnc_sink *sink) NNC_MUST;
/* Is there a pass of this name? If not, *near is the nearest name, or NULL. */
bool nnc_is_pass(const char *name, const char **near);
bool nnc_is_stage(const char *name, const char **near); /* the same of stages for nnc_emit_text */
/* How many chunks a run is done in: 1, or more where the model is larger than the device. Such runs have their copies with them. */
int64_t nnc_artifact_chunks(const nnc_artifact *a);
/* Where the time went before the second run, as "first run" of docs/formats.md: a line of text; members of an object. */
void nnc_report_first_run(const nnc_session *s, nnc_text *out);
void nnc_report_first_run_json(const nnc_session *s, nnc_json_writer *out);

/* ---- copies beside running ------------------------------------------------------------------------------------------ */

/* Copies of one direction beside computing, over all runs measured. */
typedef struct nnc_overlap {
    bool overlaps;     /* at least half of the copies' time passed while other runs computed */
    double share;      /* of it, 0..1; NaN: there was nothing to see */
    const char *cause; /* why not, static; NULL when they do */
    double ms;         /* of copies, a run */
    int64_t bytes;     /* a run */
} nnc_overlap;

typedef struct nnc_io_report {
    nnc_overlap up, down;
    double run_ms, latency_ms; /* of computing; from the begin of a run's upload to the end of its download. Means */
    int64_t device_bytes;      /* of the second set of inputs and outputs */
} nnc_io_report;

/* Makes the session ready for nnc_session_stream: memory for a second set of inputs and outputs on the device, and (pinned, where it can
 * be had) host memory for both. NNC_E_FIT when that does not fit. Before nnc_session_input; sessions that were not asked take none. */
nnc_status nnc_session_stream_open(nnc_session *s, nnc_sink *sink) NNC_MUST;
enum { NNC_STREAM_RUNS = 63 };
/* Runs n times (1..NNC_STREAM_RUNS), inputs going up before and outputs coming down after each, copies beside the computing of other
 * runs. ns[i]: from the end of one run to that of the next, of n + 1 runs; for n = 1 there is one run, from begin to end. */
nnc_status nnc_session_stream(nnc_session *s, int n, int64_t *ns, nnc_sink *sink) NNC_MUST;
/* Of all runs of nnc_session_stream so far, from the last nnc_session_stream_reset on (which warming up wants behind it). */
nnc_io_report nnc_session_stream_report(const nnc_session *s);
void nnc_session_stream_reset(nnc_session *s);
/* Lines of text, each behind `indent`; members of an object of JSON. */
void nnc_report_io(const nnc_io_report *r, const char *indent, nnc_text *out);
void nnc_report_io_json(const nnc_io_report *r, nnc_json_writer *out);

#endif
