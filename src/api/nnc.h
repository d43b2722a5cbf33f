/* api/nnc.h -- nnc's C API: describe a machine, compile a model, load it, run it; and the questions that nnc answers about
 * models (compare, explain, memory, show).
 *
 *     nnc_env *env;  nnc_artifact *a;  nnc_session *s;
 *     nnc_env_create(&(nnc_env_options){0}, &env, sink);
 *     nnc_model *m = nnc_model_open("vgg16.json", &(nnc_open_options){0}, sink);
 *     nnc_compile(env, m, &nnc_compile_defaults, &a, sink);
 *     nnc_session_create(env, a, &s, sink);
 *     nnc_session_input(s, 0, pixels, sink);  nnc_session_run(s, sink);  nnc_session_output(s, 0, logits, sink);
 *
 * Every function that can fail returns a status and puts located messages into the caller's sink (base/status.h). Objects have one
 * owner: what a create, open, compile or load gives is yours to destroy, in the reverse order. An env may be used by one thread at a
 * time; sessions of it run concurrently, each from one thread. */
#ifndef NNC_H
#define NNC_H

#include "base/status.h"
#include "base/tensor.h"

typedef struct nnc_env nnc_env;           /* a machine: target, engines, kernel cache */
typedef struct nnc_graph nnc_model;       /* a model as the user wrote it (the graph IR) */
struct nnc_kernel;
typedef struct nnc_artifact nnc_artifact; /* a compiled model: graph, plan, kernels, weight references, remarks */
typedef struct nnc_session nnc_session;   /* an artifact loaded on devices, ready to run */

typedef enum nnc_format { NNC_TEXT, NNC_JSON, NNC_CSV } nnc_format; /* of reports */

/* ---- the machine --------------------------------------------------------------------------------------------------- */

typedef struct nnc_env_options {
    int threads;             /* intra-op threads; 0 = all CPUs of this process, or what the machine file says */
    const char *target;      /* "cpu" (NULL), this machine's GPU ("cuda"), a GPU to compile for ("cuda:sm_90"), or a machine file (.json) */
    const char *cache_dir;   /* NULL = the user's cache folder */
    bool no_cache;           /* compile everything anew */
    const char *tuning;      /* of a GPU: file of its libraries' measured algorithms, replayed when a model is loaded; NULL = none */
    bool tune;               /* measure what the file has not, and add it */
    bool no_llvm, no_onednn; /* behave as if the plug-in were absent */
} nnc_env_options;

nnc_status nnc_env_create(const nnc_env_options *o, nnc_env **out, nnc_sink *sink) NNC_MUST;
void nnc_env_destroy(nnc_env *e);
int nnc_env_threads(const nnc_env *e);
const char *nnc_env_target(const nnc_env *e);

/* ---- models -------------------------------------------------------------------------------------------------------- */

typedef struct nnc_arg { const char *name, *value; } nnc_arg; /* --set name=value: an integer or a word */
typedef struct nnc_open_options {
    const nnc_arg *arg;
    int n_arg;
    uint64_t seed;       /* of generated weights and inputs */
    const char *weights; /* safetensors file; NULL = generated */
} nnc_open_options;

/* Reads a model (.json), a text graph, or "-" for stdin. NULL: rejected, why in the sink. */
nnc_model *nnc_model_open(const char *file, const nnc_open_options *o, nnc_sink *sink);
void nnc_model_close(nnc_model *m);

/* ---- compiling ----------------------------------------------------------------------------------------------------- */

typedef struct nnc_compile_options {
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
} nnc_compile_options;

extern const nnc_compile_options nnc_compile_defaults;

/* Where the time of a compile went, nanoseconds. */
typedef struct nnc_compile_stats {
    int64_t passes_ns, codegen_ns, plan_ns, total_ns; /* plan: all of planning, engine choice included, without codegen */
    int cache_hits, cache_misses;                     /* kernels */
} nnc_compile_stats;

nnc_status nnc_compile(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, nnc_artifact **out, nnc_sink *sink) NNC_MUST;
void nnc_artifact_destroy(nnc_artifact *a);
const nnc_compile_stats *nnc_artifact_stats(const nnc_artifact *a);
/* One file: readable manifest, graph, plan, kernels, remarks; weights too when `embed` (else references). Atomic. */
nnc_status nnc_artifact_save(const nnc_artifact *a, const char *file, bool embed, nnc_sink *sink) NNC_MUST;
/* Refuses damaged, truncated and foreign files (NNC_E_MODEL) and those made for another machine (NNC_E_DEVICE). */
nnc_status nnc_artifact_load(nnc_env *e, const char *file, nnc_artifact **out, nnc_sink *sink) NNC_MUST;
/* Is this file the one that the artifact was loaded from, or one with its weights? To write it would destroy them. */
bool nnc_artifact_reads(const nnc_artifact *a, const char *file);
/* Does the file start like an artifact? */
bool nnc_is_artifact(const char *file);

/* The parts, for tools; borrowed. */
const struct nnc_plan *nnc_artifact_plan(const nnc_artifact *a);
const struct nnc_remarks *nnc_artifact_remarks(const nnc_artifact *a);
const nnc_model *nnc_artifact_source(const nnc_artifact *a); /* the graph before the passes */
const nnc_model *nnc_artifact_graph(const nnc_artifact *a);  /* and after */

/* Runs exactly these passes, in this order (nnc opt), or the level's when n_pass is 0. The model is replaced. */
nnc_status nnc_optimize(nnc_env *e, nnc_model **m, const char *const *pass, int n_pass, const nnc_compile_options *o,
    nnc_sink *sink) NNC_MUST;
/* A stage of a compiled model as text: "graph", "plan", "kernels", "dot", "remarks"; of a CPU's: "llvm", "asm"; of a GPU's: "cuda", "ptx",
 * "cubin" (bytes). Unknown stages are NNC_E_USAGE. */
nnc_status nnc_emit_text(nnc_env *e, const nnc_artifact *a, const char *stage, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Writes every stage into the folder `dir`, which is made when it is not there: graph.txt, plan.txt, kernels.txt, remarks.json, and
 * kernels.ll and kernels.s or, for a GPU, unit<N>.cu, .ptx, .cubin and code.txt (registers, instructions, widths of accesses). */
nnc_status nnc_dump(nnc_env *e, const nnc_artifact *a, const char *dir, nnc_sink *sink) NNC_MUST;
void nnc_print_model(const nnc_model *m, nnc_text *out);
/* Is there a pass of this name? If not, *near is the nearest name, or NULL. */
bool nnc_is_pass(const char *name, const char **near);
/* Names of what goes in and comes out, in order; NULL past the last. */
const char *nnc_artifact_input_name(const nnc_artifact *a, int i);
const char *nnc_artifact_output_name(const nnc_artifact *a, int i);
/* What one run of the artifact does: floating point operations, bytes moved, launches. */
void nnc_artifact_work(const nnc_artifact *a, int64_t *flops, int64_t *bytes, int64_t *launches);
/* Tables of ops and passes, with their documentation. */
void nnc_report_ops(nnc_format f, nnc_text *out);
void nnc_report_passes(nnc_format f, nnc_text *out);

/* ---- running ------------------------------------------------------------------------------------------------------- */

/* Allocates what nnc_report_memory says, to the byte; reads or generates the weights; runs `init`. NNC_E_FIT when it does not fit. */
nnc_status nnc_session_create(nnc_env *e, const nnc_artifact *a, nnc_session **out, nnc_sink *sink) NNC_MUST;
void nnc_session_destroy(nnc_session *s);
int nnc_session_inputs(const nnc_session *s);
int nnc_session_outputs(const nnc_session *s);
const char *nnc_session_input_name(const nnc_session *s, int i);
const char *nnc_session_output_name(const nnc_session *s, int i);
const nnc_type *nnc_session_input_type(const nnc_session *s, int i);
const nnc_type *nnc_session_output_type(const nnc_session *s, int i);
/* Copies row-major data to the device; it stays there for all later runs. NNC_E_MODEL: an index is outside the table of the gather
 * or embedding that reads it (-n to n - 1 for n rows). The check reads an integer input that is all indices once, on the host. */
nnc_status nnc_session_input(nnc_session *s, int i, const void *data, nnc_sink *sink) NNC_MUST;
nnc_status nnc_session_run(nnc_session *s, nnc_sink *sink) NNC_MUST; /* and waits */
/* Copies an output, or bytes offset.. of it, to row-major host memory. */
nnc_status nnc_session_output(nnc_session *s, int i, void *data, nnc_sink *sink) NNC_MUST;
nnc_status nnc_session_output_part(nnc_session *s, int i, int64_t offset, int64_t bytes, void *data, nnc_sink *sink) NNC_MUST;
/* How many chunks a run is done in: 1, or more where the model is larger than the device. Such runs have their copies with them. */
int64_t nnc_artifact_chunks(const nnc_artifact *a);
/* A tensor file (.npy) as row-major data of type `want` for input `name`; *data is the caller's (nnc_free). */
nnc_status nnc_read_input(const char *file, const char *name, const nnc_type *want, void **data, nnc_sink *sink) NNC_MUST;
nnc_status nnc_write_output(const char *file, const nnc_type *t, const void *data, nnc_sink *sink) NNC_MUST;
/* Fills an input with numbers that depend on its name, type and seed alone: uniform in [-1, 1); integers 0..9; bool. */
void nnc_fill_input(const char *name, const nnc_type *t, uint64_t seed, void *data);
/* The same for input i, row-major and of its whole type; indices are valid for the tables that they index. */
nnc_status nnc_artifact_fill_input(const nnc_artifact *a, int i, uint64_t seed, void *data, nnc_sink *sink) NNC_MUST;

/* Where the time went before the second run, as "first run" of docs/formats.md: a line of text; members of an object, behind a comma. */
void nnc_report_first_run(const nnc_session *s, nnc_text *out);
void nnc_report_first_run_json(const nnc_session *s, nnc_text *out);

/* ---- copies beside running ------------------------------------------------------------------------------------------ */

typedef enum nnc_io { NNC_IO_EXCLUDE, NNC_IO_INCLUDE, NNC_IO_BOTH } nnc_io; /* are copies to and from the device timed? */

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
/* Lines of text, each behind `indent`; members of an object of JSON, each behind a comma. */
void nnc_report_io(const nnc_io_report *r, const char *indent, nnc_text *out);
void nnc_report_io_json(const nnc_io_report *r, nnc_text *out);

/* ---- questions ------------------------------------------------------------------------------------------------------ */

typedef struct nnc_compare_options {
    nnc_compile_options compile;
    uint64_t seed;
    int warmup, iterations;     /* 0 = chosen by time: about `duration_ms` for each side. iterations: of timed runs, exactly */
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
} nnc_compare_options;

/* Fused against unfused against float64. *agrees: all within tolerance. The report is printed into `out`. */
nnc_status nnc_compare(nnc_env *e, const nnc_model *m, const nnc_compare_options *o, nnc_format f, nnc_text *out,
    bool *agrees, nnc_sink *sink) NNC_MUST;

nnc_status nnc_report_explain(const nnc_artifact *a, nnc_format f, bool verbose, nnc_text *out) NNC_MUST;
nnc_status nnc_report_memory(nnc_env *e, const nnc_artifact *a, nnc_format f, nnc_text *out, bool *fits) NNC_MUST;
nnc_status nnc_report_show(const nnc_model *m, nnc_format f, nnc_text *out) NNC_MUST;
nnc_status nnc_report_doctor(nnc_env *e, nnc_format f, nnc_text *out) NNC_MUST;
nnc_status nnc_report_devices(nnc_env *e, nnc_format f, nnc_text *out) NNC_MUST;

#endif
