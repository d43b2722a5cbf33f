/* session/session.h -- opens and compiles models, loads and runs what they became: what nnc.h declares, its options, and the types behind
 * it. */
#ifndef NNC_SESSION_H
#define NNC_SESSION_H

#include "api/nnc.h"
#include "base/json_writer.h"
#include "base/setting.h"
#include "base/status.h"
#include "base/tensor.h"
#include "cluster/cluster.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "plan/make.h"
#include "runtime/runtime.h"
#include <pthread.h>

struct nnc_kernel;

/* ---- options: nnc.h lists their names ------------------------------------------------------------------------------- */

struct nnc_env_options {
    int threads;             /* intra-op threads; 0 = all CPUs of this process, or the machine file's number */
    const char *target;      /* "cpu" (NULL), this machine's GPU ("cuda"), a GPU to compile for ("cuda:sm_90"), or a machine file (.json);
                              * several between commas: of device 0, device 1, ...; further devices are as the last */
    const char *hardware;    /* hardware file (docs/hardware.md) whose first device is the target instead; NULL = none */
    const char *cache_dir;   /* NULL = the user's cache folder */
    bool no_cache;           /* compile everything again */
    const char *tuning;      /* GPUs: file of the libraries' measured algorithms, replayed when a model is loaded; NULL = none */
    bool tune;               /* measure algorithms missing from the file and add them */
    bool no_llvm, no_onednn; /* behave as if the plug-in were absent */
    bool ranked;             /* the process executes plans together with the others that its launcher started */
    int rank, world;         /* rank (0 as -1) and number of ranks; 0: as the launcher's variables say */
    const char *memory_limit; /* of each device: bytes, or a share in percent; NULL: all that it has */
    int comm;                /* collectives between GPUs: 0 NCCL where it can, 1 staged through host memory, 2 NCCL (nnc_comm_by) */
    double comm_timeout;     /* seconds without an answer after which another rank is taken for lost; 0 = 600 */
};

struct nnc_open_options {
    const nnc_arg *arg;  /* --set name=value: an integer or a word */
    int n_arg;
    uint64_t seed; /* of generated weights and inputs */
    bool has_seed; /* it was given: a model file's "train" does not set another */
    int classes;   /* of a new head with generated weights (--replace-head); 0: the head is the model's */
    const char *place; /* layers on devices, "0-9=0,10-=1" (docs/partition.md); NULL: as the model says */
    bool trains;   /* opened for training: its file's "train" sets the arg `batch` and the seed where they are not given */
    const char *weights; /* file of tensors; NULL = generated */
    const nnc_arg *rename; /* names of its tensors = names of weights; "*" for any characters, "-" leaves a tensor out */
    int n_rename;
    const char *const *shape; /* of inputs of ONNX models, "x:1x3x224x224" */
    int n_shape;
    const char *const *input; /* inputs of ONNX models that values will be given for: of those with a default, an initializer */
    int n_input;
    nnc_text *coverage; /* ONNX: the operators that the model uses are appended; NULL: not */
};

/* list: whatever is ready, longest path first; ios: stages by the dynamic program of IOS (inference of one device). */
/* Words of options that are flags, too. */
#define NNC_MATH_WORDS "exact|ulp2|fast"
#define NNC_PRECISION_WORDS "f32|tf32|f16|bf16"
#define NNC_SCHEDULE_WORDS "list|ios"
typedef enum nnc_schedule_by { NNC_SCHEDULE_list, NNC_SCHEDULE_ios } nnc_schedule_by;

struct nnc_compile_options {
    int level;               /* 0..3, default 2 */
    nnc_math math;           /* fast: contractions of f32 may round to tf32, unless precision is f32; exact: functions as written, in f64,
                              * and NaN survives every relu: relu is not fused into engines that drop NaN (docs/math.md) */
    nnc_precision precision; /* of contractions; default: f32, with fast math tf32. f16, bf16 need level >= 2 */
    const char *const *skip; /* passes to leave out, by name */
    int n_skip;
    const char *memory_budget; /* training steps: bytes, or a share in percent, of the memory of a device; NULL: any */
    bool join_siblings;      /* join independent contractions also where that is expected to take longer */
    int streams;             /* per device, default 1 */
    nnc_schedule_by schedule; /* what several streams of a device are given */
    int lanes;               /* streams on CPUs that share the machine's threads; 0: those of the plan */
    int devices;             /* that layers may name, at least as many as there are targets; default 1 */
    const char *strategy;    /* tensor, channel or spatial: how ops are split over the devices (docs/partition.md); NULL: they are not */
    const char *split;       /* "fc*=columns,conv1=height": the same by layer, before what the strategy says; NULL */
    int jobs;                /* compile threads; 0 = all; does not affect the result */
    void (*after_pass)(void *ctx, const char *pass, const nnc_model *g, int changed, int64_t ns);
    void (*on_kernel)(void *ctx, const struct nnc_kernel *k, const char *layers);
    void *ctx;
};

/* Defaults for options that are NULL; those of compile and compare are also starting points. */
extern const nnc_env_options nnc_env_defaults;
extern const nnc_open_options nnc_open_defaults;
extern const nnc_compile_options nnc_compile_defaults;
extern const nnc_compare_options nnc_compare_defaults;

/* Training steps made by nnc_train_graph are split over devices as o->strategy and o->split say; o is borrowed. */
struct nnc_training;
void nnc_split_training(struct nnc_training *t, const nnc_compile_options *o);

/* Duration of a compile's phases in nanoseconds. */
typedef struct nnc_compile_stats {
    int64_t passes_ns, codegen_ns, plan_ns, total_ns; /* plan: planning and engine choice, without codegen */
    int cache_hits, cache_misses;                     /* kernels */
} nnc_compile_stats;
const nnc_compile_stats *nnc_artifact_stats(const nnc_artifact *a);

typedef enum nnc_io { NNC_IO_EXCLUDE, NNC_IO_INCLUDE, NNC_IO_BOTH } nnc_io; /* whether copies to and from the device are timed */

struct nnc_compare_options {
    nnc_compile_options compile;
    uint64_t seed;
    int warmup;                 /* untimed runs before the first timed one; 0 = about 50 ms of them, negative = none */
    int iterations;             /* timed runs of each program; 0 = as many as fit duration_ms */
    nnc_io io;
    int duration_ms;            /* 0 = 1000, or up to 7000 for a slow model until it has nine bursts */
    bool steps;                 /* also time the programs between as written and fused, one pass more at a time */
    bool no_reference;          /* compare the programs only with each other */
    double tolerance;           /* largest nmse that counts as equal; 0 = by dtype and conditioning (docs/formats.md), negative =
                                 * require equal numbers */
    const nnc_arg *input; /* name = file, for inputs that are not generated from the seed */
    int n_input;
    const char *inputs; /* file with all other inputs by name; NULL: they are generated */
    const nnc_arg *arg; /* the model's --set arguments, for the report */
    int n_arg;
    /* The model is the graph of a training step (nnc_train_graph) with these options: runs are whole steps, updates included. Generated
     * inputs are those of its first step, with a learning rate of 0. NULL: runs compute the outputs only. */
    const struct nnc_training *training;
    /* Reports the phase ("timing") and its object ("fused, run 3 of 10", or NULL; valid during the call). Called on the caller's
     * thread. */
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *progress_ctx;
};

/* ---- several ranks (docs/distributed.md) ------------------------------------------------------------------------------ */

int nnc_env_rank(const nnc_env *e);
int nnc_env_world(const nnc_env *e);
/* nnc_compile without machine code, for a plan that is only looked at. */
nnc_status nnc_compile_plan(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, nnc_artifact **out, nnc_sink *sink) NNC_MUST;
/* The number of ranks that nnc_env_create(o) would join, before it does: by o, or the launcher's variables. */
nnc_status nnc_env_options_world(const nnc_env_options *o, int *world, nnc_sink *sink) NNC_MUST;
/* Ranks other than 0, which have created the same sessions as rank 0: does what its program does, until that destroys its environment. */
nnc_status nnc_env_follow(nnc_env *e, nnc_sink *sink) NNC_MUST;
/* After a failure: reports the loss of another rank where that was the cause and no function has reported it yet (those without a sink). */
void nnc_env_tell(nnc_env *e, nnc_sink *sink);
/* After a failure: ends all ranks' processes, this one with the exit code of `why`. Returns where there is one rank. */
void nnc_env_abort(nnc_env *e, nnc_status why);

/* ---- parts of artifacts, passes by name ------------------------------------------------------------------------------ */

/* Parts of the artifact, borrowed. */
const struct nnc_plan *nnc_artifact_plan(const nnc_artifact *a);
const struct nnc_remarks *nnc_artifact_remarks(const nnc_artifact *a);
const nnc_model *nnc_artifact_source(const nnc_artifact *a); /* the graph before the passes */
const nnc_model *nnc_artifact_graph(const nnc_artifact *a);  /* and after */
int nnc_artifact_threads(const nnc_artifact *a); /* of the CPU that it was compiled for; 0: it has none */
const nnc_compile_options *nnc_artifact_options(const nnc_artifact *a); /* that it was compiled with */
/* True when the file is the one the artifact was loaded from, or holds its weights: writing it would destroy them. */
bool nnc_artifact_reads(const nnc_artifact *a, const char *file);
/* Reports, before a run, that an output, or all of them, cannot be written to the file: its name's extension is no format's or is one
 * of a single tensor, the weights are in it, or the system refuses it. */
nnc_status nnc_artifact_check_output(const nnc_artifact *a, const char *file, bool all, nnc_sink *sink) NNC_MUST;

/* Names of the inputs that o gives values for, in `a`: those of its files of single inputs, and of the tensors in its file of all. A
 * file that cannot be read is reported when it is used. */
nnc_status nnc_given_inputs(
    const nnc_compare_options *o, nnc_arena *a, const char *const **name, int *n, nnc_sink *sink) NNC_MUST;
/* Row-major data of all inputs, which the caller frees with nnc_free: from the files that o names, or generated from the seed. What is
 * missing in the files, superfluous or of another type is one error. */
nnc_status nnc_artifact_make_inputs(const nnc_artifact *a, const nnc_compare_options *o,
    uint64_t seed, void **data, nnc_sink *sink) NNC_MUST;
/* Sets all inputs of the session so, one after the other, where they are if the host can access that. */
nnc_status nnc_session_make_inputs(nnc_session *s, const nnc_compare_options *o, uint64_t seed, nnc_sink *sink) NNC_MUST;
/* An output of the last run, row-major; NULL: the host cannot access it, and nnc_session_output copies it. Valid until the next run. */
int nnc_session_results(const nnc_session *s); /* outputs that have elements; others come after them */
const void *nnc_session_output_memory(nnc_session *s, int i);
/* NNC_E_USAGE when a name is no input (or no output) of the model. */
nnc_status nnc_artifact_check_names(const nnc_artifact *a, bool outputs, const nnc_arg *arg, int n, nnc_sink *sink) NNC_MUST;

/* Number of chunks in a run: 1, or more where the model is larger than the device. Such runs include their copies. */
int64_t nnc_artifact_chunks(const nnc_artifact *a);

/* What nnc_session_step, or nnc_session_accumulate, does after nnc_session_run, which was called last: a step in two parts, between which
 * outputs can be looked at. Not of a model in chunks. */
nnc_status nnc_session_update(nnc_session *s, bool step, nnc_sink *sink) NNC_MUST;
/* Writes all weights of m by their names: of those that are states of s, a session of a training graph of m, the current values. */
nnc_status nnc_session_write_weights(nnc_session *s, const nnc_model *m, const char *file, nnc_sink *sink) NNC_MUST;

/* nnc_artifact_work of a step. */
void nnc_artifact_step_work(const nnc_artifact *a, int64_t *flops, int64_t *bytes, int64_t *launches);

/* ---- several models in one run (docs/partition.md) ------------------------------------------------------------------------ */

/* Names of models by their files: "resnet101" of "models/resnet101.json", "resnet101_2" of the second one called so; in `a`. */
nnc_status nnc_models_name(const char *const *file, int n, const char **name, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* A device for each: model i on device i, or where there are more models than devices the longest by estimate first, on the device with
 * the least to do (LPT). One device, or a model that names devices itself: -1, as it is. */
nnc_status nnc_models_place(
    nnc_env *e, nnc_model *const *m, int n, int devices, int *device, nnc_sink *sink) NNC_MUST;
/* One model of all (nnc_graph_join); place: layers on devices, as --place says; NULL: as device[] says. */
nnc_status nnc_models_join(nnc_model *const *m, const char *const *name, const int *device, int n, const char *place,
    nnc_model **out, nnc_sink *sink) NNC_MUST;

/* ---- overlapped copies --------------------------------------------------------------------------------------------- */

/* Overlap of the copies of one direction with computing, over all measured runs. */
typedef struct nnc_overlap {
    bool overlaps;     /* at least half of the copy time overlapped with other runs' computing */
    double share;      /* that share, 0..1; NaN: no copies to judge */
    const char *cause; /* reason why not, static; NULL when they overlap */
    double ms;         /* of copies, per run */
    int64_t bytes;     /* per run */
} nnc_overlap;

typedef struct nnc_io_report {
    nnc_overlap up, down;
    double run_ms, latency_ms; /* means: of computing; from the start of a run's upload to the end of its download */
    int64_t device_bytes;      /* of the second set of inputs and outputs */
} nnc_io_report;

/* Prepares the session for nnc_session_stream: allocates a second set of inputs and outputs on the device, and host memory (pinned
 * where possible) for both. NNC_E_FIT when that does not fit. From then on a CPU's runs are executed by a thread of their own, which costs
 * each some microseconds. */
nnc_status nnc_session_stream_open(nnc_session *s, nnc_sink *sink) NNC_MUST;
/* The next run's inputs, uploaded while the current one computes: `stage` begins, data stays as it is until `take`, which makes them the
 * inputs of the runs that follow. */
nnc_status nnc_session_stage(nnc_session *s, int i, const void *data, nnc_sink *sink) NNC_MUST;
nnc_status nnc_session_take(nnc_session *s, nnc_sink *sink) NNC_MUST;
/* Calls call(ctx) once, while a device computes the next run or step. False: devices are the host's own CPUs, and it is not called. */
bool nnc_session_beside(nnc_session *s, void (*call)(void *ctx), void *ctx);
enum { NNC_STREAM_RUNS = 63 };
/* Runs n times (1..NNC_STREAM_RUNS), uploading inputs before and downloading outputs after each run, overlapped with the computing of
 * other runs. ns[i]: the mean time from the end of one run to that of the next, over n + 1 runs; for n = 1
 * a single run from start to end. */
nnc_status nnc_session_stream(nnc_session *s, int n, int64_t *ns, nnc_sink *sink) NNC_MUST;

/* Statistics of nnc_session_stream since the last nnc_session_stream_reset, which is called after the warm-up. */
nnc_io_report nnc_session_stream_report(const nnc_session *s);
void nnc_session_stream_reset(nnc_session *s);
/* Lines of text, each after `indent`; members of a JSON object. */
void nnc_report_io(const nnc_io_report *r, const char *indent, nnc_text *out);
void nnc_report_io_json(const nnc_io_report *r, nnc_json_writer *out);

enum { MAX_ENGINES = 8, NNC_RECENT = 8 };

struct nnc_env {
    nnc_target *target;        /* of each device (nnc_target_on) */
    int n_target;
    nnc_cluster *cluster;      /* of the hardware file, which owns the target's strings; NULL: none */
    nnc_text name;             /* of the targets, between commas */
    nnc_cache *cache;
    struct nnc_tuning *tuning; /* NULL: none */
    const nnc_engine *engine[MAX_ENGINES]; /* of all targets, in order of preference */
    int n_engine;
    bool has_emitter, has_onednn;
    bool own_threads;        /* each device has the target's threads for itself: devices are described one by one */
    bool no_llvm, no_onednn; /* disabled by the caller, as opposed to absent */
    pthread_mutex_t lock;    /* of nnc_env_settle */
    bool settled;            /* it was called */
    bool said_slow, said_onednn; /* that kernels are interpreted; that generated kernels replace oneDNN */
    int64_t memory_limit;    /* bytes of a device that may be used at most; 0: all */
    nnc_ranks ranks;
    nnc_comm *comm;          /* with other ranks; NULL: there is one */
    nnc_job *job;
    nnc_comm_by comm_by;
};

/* ranks.c: finds this process among the ranks; threads of a target, given those that were asked for (0: by default); connects them. */
nnc_status nnc_env_find_ranks(nnc_env *e, const nnc_env_options *o, nnc_sink *sink) NNC_MUST;
int nnc_env_rank_threads(const nnc_env *e, int asked);
/* Cores of this host that its ranks share; where the launcher bound them to cores, all of theirs. */
int nnc_env_cores(const nnc_env *e);
int nnc_env_machine_cores(const nnc_env *e); /* that the target describes; 0: those of this process */
nnc_status nnc_env_join(nnc_env *e, const nnc_env_options *o, nnc_sink *sink) NNC_MUST;
void nnc_env_leave(nnc_env *e);

/* env.c: leaves the plug-ins that do not load out of this machine's target: plans for it depend on them. Called before anything is
 * planned, and not before that, since it may load them. Described targets depend on no plug-in. */
void nnc_env_settle(nnc_env *e);
/* Do plans for the CPUs of e use this engine? */
bool nnc_env_plans_with(const nnc_env *e, const char *engine);
static inline bool nnc_env_has_host(const nnc_env *e)
{
    bool has = false;
    for (int i = 0; i < e->n_target; i++)
        has = has || e->target[i].host;
    return has;
}

/* Has the environment a target of this kind? */
static inline bool nnc_env_has(const nnc_env *e, nnc_tkind kind)
{
    bool has = false;
    for (int i = 0; i < e->n_target; i++)
        has = has || e->target[i].kind == kind;
    return has;
}

struct nnc_artifact {
    nnc_graph *source;    /* as the user wrote it */
    nnc_graph *graph;     /* after the passes: of one chunk */
    int64_t chunks;       /* runs of the plan that make a run of the model */
    nnc_plan *plan;
    nnc_remarks remarks;
    int memory_price, segments;   /* of the pass recompute, as --memory-budget chose them */
    nnc_compile_stats stats;
    nnc_compile_options *options; /* that it was compiled with; jobs and functions are the defaults */
    bool with_onednn, with_llvm;  /* the plug-ins that the CPU's plan could use */
    nnc_map map;          /* of one read from a file: that file, which blobs point into */
    const char *file;     /* path of that file, where embedded weights are read from; owned by `arena` */
    const char *named;    /* the same as the user spelled it */
    bool unchecked;       /* loaded only to be inspected: its machine was not compared with this one */
    const char *machine;  /* the CPU that it was compiled for; "": described ones */
    const char *libraries; /* libraries that its plan was made for, in the form of nnc_put_libraries; NULL: compiled in this process */
    nnc_weight *listed;   /* of one read from a file: the plan's weights as they were when it was compiled */
    nnc_arena arena;
    /* shapes.c: one that was compiled for other args or shapes has a root, which keeps recent ones; the lock guards handles and recent */
    pthread_mutex_t lock;
    nnc_artifact *root;               /* NULL: itself */
    nnc_artifact *recent[NNC_RECENT]; /* latest first */
    nnc_shared *shared;               /* of a root: static values of all their sessions */
    const char *key;                  /* args and shapes, among the root's */
    int handles;                      /* of a root: also those of all that have it as root */
    bool kept;                        /* among the root's recent ones */
};

typedef struct nnc_streaming nnc_streaming; /* stream.c */

struct nnc_session {
    const nnc_artifact *a;
    const nnc_plan *plan;
    nnc_exec *exec;
    int ranks;             /* that execute it */
    nnc_streaming *stream; /* NULL: copies are not streamed */
    bool given;            /* an input was set */
    nnc_stage *stage;      /* of nnc_session_stage; NULL: not used so far */
    void (*beside)(void *ctx); /* once, while the device computes the next run */
    void *beside_ctx;
    nnc_index_use *index;  /* by input */
    const char **state;    /* names of the states */
    const char **state_of; /* the same without the device: copies on several devices have one */
    nnc_arena names;
};

/* session.c. A session of this process alone, also where there are several ranks; no_replay: its runs are never captured. */
nnc_status nnc_session_create_alone(
    nnc_env *e, const nnc_artifact *a, bool no_replay, nnc_session **out, nnc_sink *sink) NNC_MUST;
/* session.c. The weight that state i is a part of; NULL: it is none. */
const nnc_weight *nnc_session_state_part_of(const nnc_session *s, int i);
/* session.c. Where the host can access an input, an output of the last run, a state; NULL: it cannot, and they are copied. What is
 * written to an input's memory is set by nnc_session_input. */
void *nnc_session_input_memory(nnc_session *s, int i);
const void *nnc_session_state_memory(nnc_session *s, int i);
/* tensors.c. States of the session are parts of this weight, and their numbers in the whole one's memory. */
bool nnc_session_has_parts(const nnc_session *s, const char *name);
nnc_status nnc_session_put_parts(nnc_session *s, const char *name, void *whole, nnc_sink *sink) NNC_MUST;
/* The name of state i without its device, by index. */
const char *nnc_session_state_of(const nnc_session *s, int i);

/* The name of input i in its own model: "x" of "resnet101.x", where several models are joined (nnc_graph_join). */
const char *nnc_artifact_own_input(const nnc_artifact *a, int i);
/* Finds the tables that the elements of input i index in the model as written. */
nnc_status nnc_input_index(const nnc_artifact *a, int i, nnc_index_use *out) NNC_MUST;

/* compile.c. An empty artifact with one handle, compiled with a copy of o; NULL: out of memory. */
nnc_artifact *nnc_artifact_create(const nnc_compile_options *o);
/* Divides --set values into integers and words, and reads --shapes. */
nnc_status nnc_read_open_options(
    const nnc_open_options *o, nnc_model_options *f, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* options.c. NULL: out of memory. Members of an object: those that are not the defaults. */
nnc_compile_options *nnc_compile_options_copy(const nnc_compile_options *o);
void nnc_compile_options_put(const nnc_compile_options *o, nnc_json_writer *w);
/* given.c: what a model was read from, as a member "given" of the manifest and as bytes; and back: NNC_E_MODEL: it is
 * damaged, NNC_E_NOMEM; neither is reported. */
void nnc_given_put(const nnc_given *v, nnc_json_writer *w);
void nnc_given_bytes(const nnc_given *v, nnc_text *out);
nnc_status nnc_given_read(const nnc_item *o, nnc_blob bytes, nnc_given **out) NNC_MUST;

/* ---- chunks.c: models larger than the device, in chunks of rows ---- */

/* Replaces a plan that does not fit e's GPU by a plan for as many rows (dimension 0) as fit, when rows are independent of each other; a run
 * then executes it chunk by chunk. A remark says so, or why not. */
nnc_status nnc_chunks_make(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, nnc_sink *sink) NNC_MUST;
/* Sets a->chunks from the types of the model and the plan. NNC_E_MODEL when the plan is not for a part of the model. */
nnc_status nnc_chunks_count(nnc_artifact *a, nnc_sink *sink) NNC_MUST;
extern const nnc_pass_info nnc_chunk_notes; /* pass name of its remarks */
/* Bytes that a run needs on its fullest device, with `copies` including the second set of inputs and outputs; usable bytes of the
 * GPU's memory, INT64_MAX where models are not divided: on CPUs and on several targets. */
int64_t nnc_chunks_need(const nnc_artifact *a, bool copies);
int64_t nnc_chunks_room(const nnc_env *e);
/* The model as written for the rows of one chunk; the caller destroys it. NULL: one chunk, or out of memory. */
nnc_graph *nnc_chunks_source(const nnc_artifact *a);
/* Bytes on the device beyond the plan's: the second set of inputs and outputs that lets chunks overlap; 0 for one chunk. */
int64_t nnc_chunks_bytes(const nnc_artifact *a);
/* Types for all rows of the model; with one chunk those of the plan. */
const nnc_type *nnc_whole_input(const nnc_artifact *a, int i);
const nnc_type *nnc_whole_output(const nnc_artifact *a, int i);
/* session.c: warns, once for each, when the plan's kernels will be interpreted, or compute what oneDNN would compute faster. */
void nnc_say_missing(nnc_env *e, const nnc_plan *p, nnc_sink *sink);
/* compile.c: runs the passes on a->graph, or those from `from` and before `until` (NULL: the first, the end), plans it, or both. Without
 * `code` kernels get no machine code, for plans that are only inspected. */
nnc_status nnc_compile_passes(nnc_env *e, const nnc_compile_options *o, const char *from, const char *until, nnc_artifact *a,
    nnc_sink *sink) NNC_MUST;
nnc_status nnc_plan_graph(nnc_env *e, const nnc_compile_options *o, bool code, nnc_artifact *a, nnc_sink *sink) NNC_MUST;
nnc_status nnc_compile_graph(
    nnc_env *e, const nnc_compile_options *o, bool code, nnc_artifact *a, nnc_sink *sink) NNC_MUST;
/* What the plan of a graph whose ops are not fused is expected to need for its arena, and to take. */
nnc_status nnc_estimate_graph(nnc_env *e, const nnc_compile_options *o, const nnc_graph *g, nnc_work_memo *memo,
    int64_t *bytes, int64_t *ns, nnc_sink *sink) NNC_MUST;
/* nnc_compile with a change to the graph between the passes and the plan. */
typedef nnc_status (*nnc_edit)(void *ctx, nnc_graph *g, nnc_sink *sink);
/* budget.c: "300MiB", "1.5 GiB", "2000000000", "60%": a share of `usual`. -1: none of these. */
int64_t nnc_parse_budget(const char *s, int64_t usual);
/* What a plan needs on the device that needs most, and the time of its commands by estimate. */
void nnc_plan_needs(const nnc_env *e, const nnc_plan *p, int64_t *bytes, int64_t *ns);
/* ", 1.26 times the usual time by estimate"; nothing where it is the usual time, to three digits. */
void nnc_put_slowdown(nnc_text *t, int64_t ns, int64_t usual_ns);

/* budget.c: runs the passes on a->graph with the memory_price and segments for --memory-budget. NNC_E_FIT: nothing fits. */
nnc_status nnc_fit_budget(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, nnc_sink *sink) NNC_MUST;
nnc_status nnc_compile_edited(nnc_env *e, const nnc_model *m, const nnc_compile_options *o,
    nnc_edit edit, void *ctx, nnc_artifact **out, nnc_sink *sink) NNC_MUST;

/* split.c: splits the ops of *g over the devices as o->strategy and o->split say; without them it stays. */
nnc_status nnc_split_graph(const nnc_compile_options *o, bool trains, nnc_graph **g, nnc_split_cost *cost, nnc_remarks *remarks,
    nnc_sink *sink) NNC_MUST;

/* nnc_artifact_work for runs that end with the section `last`. */
void nnc_run_work(const nnc_artifact *a, nnc_section last, int64_t *flops, int64_t *bytes, int64_t *launches);

/* Bytes offset.. of a state. */
nnc_status nnc_session_state_part(
    nnc_session *s, int i, int64_t offset, int64_t bytes, void *data, nnc_sink *sink) NNC_MUST;

/* Runs of main before a profile (nnc_exec_profile_behind): 0 of CPUs. */
int nnc_env_profile_after(const nnc_env *e);
/* Pass options that follow from `o` and the machine of `e`. Borrows from both. */
nnc_pass_options nnc_env_passes(const nnc_env *e, const nnc_compile_options *o);
/* NNC_E_USAGE for a precision that o's level excludes. */
nnc_status nnc_check_precision(const nnc_compile_options *o, nnc_sink *sink) NNC_MUST;
/* The emitter of machine code, loaded on first use; NULL when the plug-in is absent. */
const nnc_emitter *nnc_env_emitter(void);

/* ---- compatible.c: plans and machine code of another machine ---- */

/* Appends name, version and instruction set of the libraries that determined sizes in the plan; nothing when there are none. */
void nnc_put_libraries(nnc_text *t, const nnc_plan *p);
/* artifact.c: a decision, as artifacts and explain's JSON have it. */
void nnc_put_remark_json(nnc_json_writer *w, const nnc_remark *x);
/* Appends the targets of the plan's devices as --target lists them: devices after the last one have its target. */
void nnc_put_targets(nnc_text *t, const nnc_plan *p, bool names);
/* NNC_E_DEVICE when a was compiled for another machine than e. */
nnc_status nnc_check_machine(const nnc_env *e, const nnc_artifact *a, nnc_sink *sink) NNC_MUST;
/* NNC_E_DEVICE when a's machine code uses instructions that this CPU lacks, or its sizes come from another library version. */
nnc_status nnc_check_compatible(const nnc_env *e, const nnc_artifact *a, nnc_sink *sink) NNC_MUST;

/* ---- kernel_remarks.c: remarks of what lowering did inside kernels ---- */

extern const nnc_pass_info nnc_kernel_remarks; /* their pass name */
typedef struct nnc_kernel_remarker {
    nnc_artifact *a;
    const nnc_compile_options *o;
    bool oom;
} nnc_kernel_remarker;
/* nnc_plan_options.on_kernel with an nnc_kernel_remarker: records the kernel's notes, then calls the user's function. */
void nnc_note_kernel(void *noter, const nnc_kernel *k, const char *layers);

/* Describes the GPU that --target names `name`. */
nnc_status nnc_env_cuda(nnc_target *t, const char *name, nnc_sink *sink) NNC_MUST;
void nnc_env_cuda_engines(nnc_env *e);
enum {
    NNC_UNIT_FUNCTIONS = 24, /* of a GPU: an empty unit takes NVRTC 18 ms, a function of a training step some 50 */
    NNC_VERSION_BYTES = 96
};
/* The compiler for GPU t, its version in `version`. `said` gets a note about a fallback architecture, or the reason for missing machine
 * code. */
nnc_compiler nnc_env_cuda_compiler(nnc_env *e, const nnc_target *t, char version[NNC_VERSION_BYTES], nnc_sink *said);
/* Passes the messages of `said` on for a plan with kernels: as notes or, without machine code, as warnings. */
void nnc_env_cuda_tell(const nnc_env *e, const nnc_compiler *of_target, const nnc_sink *said, nnc_sink *sink);
/* *out, size bytes that the caller frees: EMIT_cuda: source; EMIT_ptx: PTX; otherwise machine code (PTX for a GPU newer than NVRTC). cache:
 * keeps NVRTC's results; may be NULL. */
nnc_status nnc_cuda_make(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what, nnc_cache *cache, char **out, size_t *size,
    nnc_sink *sink) NNC_MUST;

/* ---- stream.c ---- */

void nnc_session_stream_close(nnc_session *s);
/* Sets an input for future runs; gets an output of the last run. False where the last run was not streamed. */
void nnc_stream_keep_input(nnc_session *s, int i, const void *data);
const char *nnc_stream_output(const nnc_session *s, int i); /* NULL: it was not streamed */
bool nnc_stream_take_output(const nnc_session *s, int i, int64_t offset, int64_t bytes, void *data);
/* One run of a model in chunks. */
nnc_status nnc_stream_chunks(nnc_session *s, nnc_sink *sink) NNC_MUST;
void nnc_stream_forget(nnc_session *s); /* discards streamed outputs before a run without copies */

#endif
