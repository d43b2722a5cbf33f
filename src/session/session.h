/* session/session.h -- opens, compiles, loads and runs models. Options and types of nnc.h, and functions for the folders above. */
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
#include <signal.h>

struct nnc_kernel;
NNC_OWNER(nnc_artifact, nnc_artifact_destroy)
NNC_OWNER(nnc_session, nnc_session_destroy)
NNC_OWNER(nnc_env, nnc_env_destroy)

/* ---- options: nnc.h lists their names ------------------------------------------------------------------------------- */

struct nnc_env_options {
    int threads;             /* intra-op threads; 0 = all CPUs of this process, or the machine file's number */
    const char *target;      /* "cpu" (NULL), "cuda" (this machine's GPU), "cuda:sm_90" (a GPU to compile for), or a machine file (.json). A
                              * list names those of device 0, device 1, ...; further devices are like the last */
    const char *hardware;    /* hardware file (docs/hardware.md) whose first device is the target instead; NULL = none */
    const char *cache_dir;   /* NULL = the user's cache folder */
    bool no_cache;           /* compile everything and prepare weights again */
    const char *tuning;      /* GPUs: file of the libraries' measured algorithms, replayed when a model is loaded; NULL = none */
    bool tune;               /* measure algorithms missing from the file and add them */
    bool no_llvm;            /* behave as if the plug-in were absent */
    bool ranked;             /* execute plans together with the other processes that the launcher started */
    int rank, world;         /* rank (0 as -1) and number of ranks; 0: as the launcher's variables say */
    const char *memory_limit; /* of each device: bytes, or a share in percent; NULL: none */
    int comm;                /* collectives between GPUs (nnc_comm_by). 0: NCCL if possible; 1: staged through host memory; 2: NCCL */
    double comm_timeout;     /* seconds without an answer after which another rank counts as lost; 0 = 600 */
};

struct nnc_open_options {
    const nnc_arg *arg;  /* --set name=value: an integer or a word */
    int n_arg;
    uint64_t seed; /* of generated weights and inputs */
    bool has_seed; /* seed was given, and overrides a model file's "train" */
    int classes;   /* outputs of a new head with generated weights (--replace-head); 0: keep the model's head */
    const char *place; /* layers on devices, "0-9=0,10-=1" (docs/partition.md); NULL: as the model says */
    bool trains;   /* opened for training: the file's "train" sets the arg `batch` and the seed unless they are given */
    const char *weights; /* file of tensors; NULL = generated */
    const nnc_weight **own; /* tensors in the caller's memory instead of the file (nnc_open_options_tensor), and their types */
    const nnc_type **own_type;
    int n_own;
    size_t room_own, room_type; /* of these arrays */
    const nnc_arg *rename; /* tensor name = weight name; "*" matches any characters, "-" leaves a tensor out */
    int n_rename;
    const char *const *shape; /* shapes of ONNX inputs, "x:1x3x224x224" */
    int n_shape;
    const char *const *input; /* ONNX inputs with a default that will get values */
    int n_input;
    const nnc_shape *value; /* ONNX inputs that will get values of these shapes (nnc_given_inputs) */
    int n_value;
    nnc_text *coverage; /* ONNX: gets the list of operators that the model uses; NULL: no list */
};

/* Words of options that are also flags. */
#define NNC_MATH_WORDS "exact|ulp2|fast"
#define NNC_PRECISION_WORDS "f32|tf32|f16|bf16"
#define NNC_SCHEDULE_WORDS "list|ios"
/* list: any command that is ready, longest path first. ios: stages by the dynamic program of IOS (inference of one device). */
typedef enum nnc_schedule_by { NNC_SCHEDULE_list, NNC_SCHEDULE_ios } nnc_schedule_by;

struct nnc_compile_options {
    int level;               /* 0..3, default 2 */
    nnc_math math;           /* fast: f32 contractions may round to tf32, unless precision is f32. exact: functions as written, in f64, and
                              * relu is not fused into engines that drop NaN (docs/math.md) */
    nnc_precision precision; /* of contractions; default: f32, with fast math tf32. f16, bf16 need level >= 2 */
    const char *const *skip; /* passes to leave out, by name */
    int n_skip;
    const char *memory_budget; /* training steps: bytes, or a share in percent, of the memory of a device; NULL: any */
    bool join_siblings;      /* join independent contractions even if that is expected to take longer */
    int streams;             /* per device, default 1 */
    nnc_schedule_by schedule; /* how work is assigned to several streams of a device */
    int lanes;               /* CPU streams that share the machine's threads; 0: those of the plan */
    int devices;             /* number of devices that layers may name, at least the number of targets; default 1 */
    const char *strategy;    /* tensor, channel or spatial: how ops are split over the devices (docs/partition.md); NULL: not at all */
    const char *split;       /* splits by layer, "fc*=columns,conv1=height", which override the strategy; NULL: none */
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

struct nnc_training;
/* Makes nnc_train_graph split the steps of t over devices as o->strategy and o->split say. Borrows o. */
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
    int iterations;             /* number of timed runs of each program; 0 = as many as fit duration_ms */
    nnc_io io;
    int duration_ms;            /* 0 = 1000, or up to 7000 for a slow model until it has nine bursts */
    bool steps;                 /* also time the intermediate programs, adding one pass at a time */
    bool no_reference;          /* compare the programs only with each other */
    double tolerance;           /* largest nmse that counts as equal; 0 = by dtype and conditioning (docs/formats.md), negative =
                                 * require equal numbers */
    const nnc_arg *input; /* name = file, for inputs to read from a file of their own */
    int n_input;
    const char *inputs; /* file with all other inputs by name; NULL: they are generated */
    const nnc_arg *arg; /* the model's --set arguments, for the report */
    int n_arg;
    nnc_text *json;     /* the report is also appended to it, as JSON; NULL: no */
    /* The model is the graph of a training step (nnc_train_graph) with these options. Runs are whole steps with updates. Generated inputs
     * are those of the first step, with a learning rate of 0. NULL: the model is no step, and runs compute its outputs. */
    const struct nnc_training *training;
    /* Reports the phase ("timing") and its object ("fused, run 3 of 10", or NULL; valid during the call). Called on the caller's
     * thread. */
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *progress_ctx;
    const volatile sig_atomic_t *stop; /* not 0: nnc_session_time ends after a run, with the times so far; NULL: never */
};

/* ---- several ranks (docs/distributed.md) ------------------------------------------------------------------------------ */

int nnc_env_rank(const nnc_env *e);
int nnc_env_world(const nnc_env *e);
/* nnc_compile without machine code, for a plan that is only examined. */
nnc_status nnc_compile_plan(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, nnc_artifact **out, nnc_sink *sink) NNC_MUST;
/* Number of ranks that nnc_env_create(o) would join, from o or the launcher's variables. */
nnc_status nnc_env_options_world(const nnc_env_options *o, int *world, nnc_sink *sink) NNC_MUST;
/* For ranks other than 0, after creating the same sessions as rank 0: executes what rank 0 runs, until it destroys its environment. */
nnc_status nnc_env_follow(nnc_env *e, nnc_sink *sink) NNC_MUST;
/* After a failure: reports the loss of another rank if that was the cause and it is unreported, as by functions without a sink. */
void nnc_env_tell(nnc_env *e, nnc_sink *sink);
/* After a failure: ends the processes of all ranks, this one with the exit code of `why`. Returns if there is only one rank. */
void nnc_env_abort(nnc_env *e, nnc_status why);

/* ---- parts of artifacts, passes by name ------------------------------------------------------------------------------ */

/* Parts of the artifact, borrowed. */
const struct nnc_plan *nnc_artifact_plan(const nnc_artifact *a);
const struct nnc_remarks *nnc_artifact_remarks(const nnc_artifact *a);
const nnc_model *nnc_artifact_source(const nnc_artifact *a); /* the graph before the passes */
int nnc_artifact_threads(const nnc_artifact *a); /* threads of the CPU that it was compiled for; 0: no CPU */
const nnc_compile_options *nnc_artifact_options(const nnc_artifact *a); /* the options of its compile */
/* True when the file is the one the artifact was loaded from, or holds its weights: writing it would destroy them. */
bool nnc_artifact_reads(const nnc_artifact *a, const char *file);
/* Checks, before a run, that an output (`all`: all outputs) can be written to the file. Errors: unknown extension, a format of a single
 * tensor for all, a file that holds the weights, or a refusal of the system. */
nnc_status nnc_artifact_check_output(const nnc_artifact *a, const char *file, bool all, nnc_sink *sink) NNC_MUST;

/* Lists, in `a`, the inputs that o gives values for, with their shapes where the file says them. They are those of its files of single
 * inputs, and the tensors of its file of all inputs. Files that can be read only once (pipes) are not opened. */
nnc_status nnc_given_inputs(
    const nnc_compare_options *o, nnc_arena *a, const nnc_shape **out, int *n, nnc_sink *sink) NNC_MUST;
/* The same for a file of samples, whose first dimension is not the inputs'. A file of a format without names gives nothing. */
nnc_status nnc_given_rows(
    const char *file, nnc_arena *a, const nnc_shape **out, int *n, nnc_sink *sink) NNC_MUST;
/* Makes row-major data of all inputs, from the files that o names or generated from the seed. The caller frees each with nnc_free.
 * Missing or superfluous tensors, and those of another type, are one error. */
nnc_status nnc_artifact_make_inputs(const nnc_artifact *a, const nnc_compare_options *o,
    uint64_t seed, void **data, nnc_sink *sink) NNC_MUST;
/* Sets all inputs of the session in the same way, in place if the host can access their memory. */
nnc_status nnc_session_make_inputs(nnc_session *s, const nnc_compare_options *o, uint64_t seed, nnc_sink *sink) NNC_MUST;
int nnc_session_results(const nnc_session *s); /* number of outputs that have elements; others come after them */
/* NNC_E_USAGE when a name is no input (or no output) of the model. */
nnc_status nnc_artifact_check_names(const nnc_artifact *a, bool outputs, const nnc_arg *arg, int n, nnc_sink *sink) NNC_MUST;

/* Number of chunks in a run. It exceeds 1 if the model is larger than the device; such runs include their copies. */
int64_t nnc_artifact_chunks(const nnc_artifact *a);

/* Second half of nnc_session_step (`step`) or nnc_session_accumulate, after a call of nnc_session_run. Between the halves the caller can
 * read outputs. Not for models in chunks. */
nnc_status nnc_session_update(nnc_session *s, bool step, nnc_sink *sink) NNC_MUST;
/* Writes all weights of m by name. Weights that are states of s, a session of m's training graph, have their current values. */
nnc_status nnc_session_write_weights(nnc_session *s, const nnc_model *m, const char *file, nnc_sink *sink) NNC_MUST;

/* nnc_artifact_work for a whole step. */
void nnc_artifact_step_work(const nnc_artifact *a, int64_t *flops, int64_t *bytes, int64_t *launches);

/* ---- several models in one run (docs/partition.md) ------------------------------------------------------------------------ */

/* Makes the names of models from their files, in `a`: "resnet101" for "models/resnet101.json", "resnet101_2" for the second of that name.
 * */
nnc_status nnc_models_name(const char *const *file, int n, const char **name, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* Chooses a device for each model: device i for model i or, with more models than devices, longest first on the least loaded device (LPT).
 * -1: unchanged, for a single device or a model that names devices itself. */
nnc_status nnc_models_place(
    nnc_env *e, nnc_model *const *m, int n, int devices, int *device, nnc_sink *sink) NNC_MUST;
/* Joins the models into one (nnc_graph_join). place: --place text; NULL: devices are those of device[]. */
nnc_status nnc_models_join(nnc_model *const *m, const char *const *name, const int *device, int n, const char *place,
    nnc_model **out, nnc_sink *sink) NNC_MUST;

/* ---- overlapped copies --------------------------------------------------------------------------------------------- */

/* Overlap of the copies of one direction with computing, over all measured runs. */
typedef struct nnc_overlap {
    bool overlaps;     /* share >= 0.5 */
    double share;      /* share of the copy time that overlapped with other runs' computing, 0..1; NaN: no copies to judge */
    const char *cause; /* why copies do not overlap (static); NULL if they do */
    double ms;         /* time of copies, per run */
    int64_t bytes;     /* copied per run */
} nnc_overlap;

typedef struct nnc_io_report {
    nnc_overlap up, down;
    double run_ms, latency_ms; /* means of computing, and from the start of a run's upload to the end of its download */
    int64_t device_bytes;      /* size of the second set of inputs and outputs */
} nnc_io_report;

/* Prepares the session for nnc_session_stream: allocates a second set of inputs and outputs on the device, and host memory (pinned
 * where possible) for both. NNC_E_FIT when that does not fit. From then on a thread executes a CPU's runs, which costs each some
 * microseconds. */
nnc_status nnc_session_stream_open(nnc_session *s, nnc_sink *sink) NNC_MUST;
/* Upload the next run's inputs while the current run computes. `stage` begins the upload; the caller keeps data unchanged until `take`,
 * which makes them the inputs of the following runs. */
nnc_status nnc_session_stage(nnc_session *s, int i, const void *data, nnc_sink *sink) NNC_MUST;
nnc_status nnc_session_take(nnc_session *s, nnc_sink *sink) NNC_MUST;
/* Calls call(ctx) once, while a device computes the next run or step. Returns false, without a call, if all devices are host CPUs. */
bool nnc_session_beside(nnc_session *s, void (*call)(void *ctx), void *ctx);
enum { NNC_STREAM_RUNS = 63 };
/* Runs n times (1..NNC_STREAM_RUNS). Uploads of inputs before and downloads of outputs after each run overlap with the computing of other
 * runs. ns[i] is the mean time between the ends of consecutive runs, over n + 1 runs; for n = 1 that of a single run. */
nnc_status nnc_session_stream(nnc_session *s, int n, int64_t *ns, nnc_sink *sink) NNC_MUST;

/* Statistics of nnc_session_stream since the last nnc_session_stream_reset, which is called after the warm-up. */
nnc_io_report nnc_session_stream_report(const nnc_session *s);
void nnc_session_stream_reset(nnc_session *s);
/* Appends the report as lines of text, each after `indent`, or as members of a JSON object. */
void nnc_report_io(const nnc_io_report *r, const char *indent, nnc_text *out);
void nnc_report_io_json(const nnc_io_report *r, nnc_json_writer *out);

enum { MAX_ENGINES = 8, NNC_RECENT = 8 };

struct nnc_env {
    nnc_target *target;        /* of each device (nnc_target_on) */
    int n_target;
    nnc_cluster *cluster;      /* of the hardware file, which owns the target's strings; NULL: none */
    nnc_text name;             /* names of the targets, joined by commas */
    nnc_cache *cache;
    struct nnc_tuning *tuning; /* NULL: none */
    const nnc_engine *engine[MAX_ENGINES]; /* for all targets, in order of preference */
    int n_engine;
    bool has_emitter;
    bool own_threads;        /* each described device has the target's threads for itself */
    bool no_llvm;            /* disabled by the caller, as opposed to absent */
    pthread_mutex_t lock;    /* guards nnc_env_settle */
    bool settled;            /* nnc_env_settle was called */
    bool said_slow;          /* the warning that kernels are interpreted was given */
    int64_t memory_limit;    /* largest number of bytes to use on a device; 0: no limit */
    nnc_ranks ranks;
    nnc_comm *comm;          /* connection to other ranks; NULL: there are none */
    nnc_job *job;
    nnc_comm_by comm_by;
};

/* ranks.c: finds this process among the ranks. */
nnc_status nnc_env_find_ranks(nnc_env *e, const nnc_env_options *o, nnc_sink *sink) NNC_MUST;
int nnc_env_rank_threads(const nnc_env *e, int asked); /* threads of a target if `asked` were requested; 0: the default */
/* Cores of this host that its ranks share. If the launcher bound ranks to cores, the sum of theirs. */
int nnc_env_cores(const nnc_env *e);
int nnc_env_machine_cores(const nnc_env *e); /* cores that the target describes; 0: those of this process */
/* Connects the ranks; nnc_env_leave disconnects. */
nnc_status nnc_env_join(nnc_env *e, const nnc_env_options *o, nnc_sink *sink) NNC_MUST;
void nnc_env_leave(nnc_env *e);

/* env.c: removes plug-ins that do not load from this machine's target, since plans for it depend on them. Called as late as possible before
 * planning, because it may load them. Described targets depend on no plug-in. */
void nnc_env_settle(nnc_env *e);
/* Whether plans for the CPUs of e have machine code. */
bool nnc_env_compiles(const nnc_env *e);
static inline bool nnc_env_has_host(const nnc_env *e)
{
    bool has = false;
    for (int i = 0; i < e->n_target; i++)
        has = has || e->target[i].host;
    return has;
}

/* Whether the environment has a target of this kind. */
static inline bool nnc_env_has(const nnc_env *e, nnc_tkind kind)
{
    bool has = false;
    for (int i = 0; i < e->n_target; i++)
        has = has || e->target[i].kind == kind;
    return has;
}

struct nnc_artifact {
    nnc_graph *source;    /* as the user wrote it */
    nnc_graph *graph;     /* after the passes, for one chunk */
    int64_t chunks;       /* runs of the plan in a run of the model */
    nnc_plan *plan;
    nnc_remarks remarks;
    int memory_price, segments;   /* parameters of the pass recompute that --memory-budget chose */
    nnc_compile_stats stats;
    nnc_compile_options *options; /* of its compile; jobs and functions are the defaults */
    bool with_llvm;       /* whether the CPU's plan could use the plug-in */
    nnc_map map;          /* the file that it was read from, which blobs point into */
    const char *file;     /* path of that file, where embedded weights are read from; owned by `arena` */
    const char *named;    /* the same as the user spelled it */
    bool unchecked;       /* loaded only for inspection: not checked against this machine */
    const char *machine;  /* the CPU that it was compiled for; "": described ones */
    nnc_weight *listed;   /* if read from a file: the plan's weights at the time of its compile */
    nnc_arena arena;
    /* shapes.c: an artifact planned for other args or shapes has a root, which keeps recent ones. The lock guards handles and recent */
    pthread_mutex_t lock;
    nnc_artifact *root;               /* NULL: itself */
    nnc_artifact *recent[NNC_RECENT]; /* latest first */
    nnc_shared *shared;               /* in a root: static values that all sessions share */
    const char *key;                  /* args and shapes, which identify it in root->recent */
    int handles;                      /* a root also counts the handles of the artifacts that it is root of */
    bool kept;                        /* it is in root->recent */
};

typedef struct nnc_streaming nnc_streaming; /* stream.c */

struct nnc_session {
    const nnc_artifact *a;
    const nnc_plan *plan;
    nnc_exec *exec;
    int ranks;             /* number of ranks that execute it */
    nnc_streaming *stream; /* NULL: copies are not streamed */
    bool given;            /* an input was set */
    nnc_stage *stage;      /* of nnc_session_stage; NULL: not used yet */
    void (*beside)(void *ctx); /* called once, while the device computes the next run */
    void *beside_ctx;
    nnc_index_use *index;  /* by input */
    const char **state;    /* names of the states */
    const char **state_of; /* names without the device, which copies on several devices share */
    nnc_arena names;
};

/* session.c. Creates a session of this process only, even if there are several ranks. no_replay: its runs are never captured. */
nnc_status nnc_session_create_alone(
    nnc_env *e, const nnc_artifact *a, bool no_replay, nnc_session **out, nnc_sink *sink) NNC_MUST;
/* session.c. The weight that state i is a part of; NULL: not a part. */
const nnc_weight *nnc_session_state_part_of(const nnc_session *s, int i);
/* session.c. Memory of a state if the host can access it; NULL: it must be copied. */
const void *nnc_session_state_memory(nnc_session *s, int i);
/* tensors.c. Whether states of the session are parts of this weight. */
bool nnc_session_has_parts(const nnc_session *s, const char *name);
/* Copies those states into the memory of the whole weight. */
nnc_status nnc_session_put_parts(nnc_session *s, const char *name, void *whole, nnc_sink *sink) NNC_MUST;
/* Name of state i without its device. */
const char *nnc_session_state_of(const nnc_session *s, int i);

/* Name of input i in its own model: "x" for "resnet101.x" if several models are joined (nnc_graph_join). */
const char *nnc_artifact_own_input(const nnc_artifact *a, int i);
/* Finds the tables that the elements of input i index in the model as written. */
nnc_status nnc_input_index(const nnc_artifact *a, int i, nnc_index_use *out) NNC_MUST;

/* compile.c. Creates an empty artifact with one handle and a copy of o; NULL: out of memory. */
nnc_artifact *nnc_artifact_create(const nnc_compile_options *o);
/* Divides --set values into integers and words, and reads --shapes. */
nnc_status nnc_read_open_options(
    const nnc_open_options *o, nnc_model_options *f, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* options.c. NULL: out of memory. */
nnc_compile_options *nnc_compile_options_copy(const nnc_compile_options *o);
/* Writes the options that differ from the defaults, as members of an object. */
void nnc_compile_options_put(const nnc_compile_options *o, nnc_json_writer *w);
/* given.c: writes what a model was read from, as the manifest's member "given" and as bytes. nnc_given_read reads both; it returns
 * NNC_E_MODEL for damaged data or NNC_E_NOMEM, without a report. */
void nnc_given_put(const nnc_given *v, nnc_json_writer *w);
void nnc_given_bytes(const nnc_given *v, nnc_text *out);
nnc_status nnc_given_read(const nnc_item *o, nnc_blob bytes, nnc_given **out) NNC_MUST;

/* ---- chunks.c: models larger than the device, in chunks of rows ---- */

/* Replaces a plan that does not fit e's GPU by a plan for as many rows (dimension 0) as fit. Rows must be independent of each other. A
 * run then executes it chunk by chunk. A remark says so, or why not. */
nnc_status nnc_chunks_make(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, nnc_sink *sink) NNC_MUST;
/* Replaces a, which does not fit, by an artifact of the model's first rows, as many as `have` bytes hold. *chunks: so many such parts
 * are the model; 1: a stays as it is, since rows are not independent or one needs more. Each part is a model of its own to sessions. */
nnc_status nnc_chunks_part(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, int64_t have, int64_t *chunks,
    nnc_sink *sink) NNC_MUST;
/* Sets a->chunks from the types of the model and the plan. NNC_E_MODEL: the plan is not for a part of the model. */
int64_t nnc_rows_of(const nnc_graph *g); /* of its first output; 1: it is a number, or there is none */
bool nnc_names_devices(const nnc_graph *g); /* several.c */
nnc_status nnc_chunks_count(nnc_artifact *a, nnc_sink *sink) NNC_MUST;
extern const nnc_pass_info nnc_chunk_notes; /* pass name of its remarks */
/* Bytes that a run needs on its fullest device. `copies`: with the second set of inputs and outputs. */
int64_t nnc_chunks_need(const nnc_artifact *a, bool copies);
/* Usable bytes of the GPU's memory. INT64_MAX on CPUs and several targets, where models are not divided. */
int64_t nnc_chunks_room(const nnc_env *e);
/* Makes the model as written for the rows of one chunk; the caller destroys it. NULL: one chunk, or out of memory. */
nnc_graph *nnc_chunks_source(const nnc_artifact *a);
/* Bytes on the device beyond the plan's: the second set of inputs and outputs that lets chunks overlap; 0 for one chunk. */
int64_t nnc_chunks_bytes(const nnc_artifact *a);
/* Types of inputs and outputs for all rows of the model. With one chunk they are those of the plan. */
const nnc_type *nnc_whole_input(const nnc_artifact *a, int i);
const nnc_type *nnc_whole_output(const nnc_artifact *a, int i);
/* session.c: warns once if the plan's kernels will be interpreted. */
void nnc_say_missing(nnc_env *e, const nnc_plan *p, nnc_sink *sink);
/* compile.c: runs the passes on a->graph, or those from `from` and before `until` (NULL: the first, the end), plans it, or both. Without
 * `code` kernels get no machine code, for plans that are only inspected. */
nnc_status nnc_compile_passes(nnc_env *e, const nnc_compile_options *o, const char *from, const char *until, nnc_artifact *a,
    nnc_sink *sink) NNC_MUST;
nnc_status nnc_plan_graph(nnc_env *e, const nnc_compile_options *o, bool code, nnc_artifact *a, nnc_sink *sink) NNC_MUST;
nnc_status nnc_compile_graph(
    nnc_env *e, const nnc_compile_options *o, bool code, nnc_artifact *a, nnc_sink *sink) NNC_MUST;
/* The passes and the plan of m, without machine code; `split`: options that split the model are followed. *out is set also after a
 * failure. */
nnc_status nnc_plan_model(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, bool split, nnc_artifact **out,
    nnc_sink *sink) NNC_MUST;
/* Estimates the arena and the time of a plan, from a graph whose ops are not fused. */
nnc_status nnc_estimate_graph(nnc_env *e, const nnc_compile_options *o, const nnc_graph *g, nnc_work_memo *memo,
    int64_t *bytes, int64_t *ns, nnc_sink *sink) NNC_MUST;
/* A change to the graph between the passes and the plan (nnc_compile_edited). */
typedef nnc_status (*nnc_edit)(void *ctx, nnc_graph *g, nnc_sink *sink);
/* budget.c: "300MiB", "1.5 GiB", "2000000000", "60%": a share of `usual`. -1: none of these. */
int64_t nnc_parse_budget(const char *s, int64_t usual);
/* Bytes that a plan needs on its fullest device, and the estimated time of its commands. */
void nnc_plan_needs(const nnc_env *e, const nnc_plan *p, int64_t *bytes, int64_t *ns);
/* Appends ", 1.26 times the usual time by estimate", or nothing if both times are equal to three digits. */
void nnc_put_slowdown(nnc_text *t, int64_t ns, int64_t usual_ns);

/* budget.c: runs the passes on a->graph with the memory_price and segments for --memory-budget. NNC_E_FIT: nothing fits. */
nnc_status nnc_fit_budget(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, nnc_sink *sink) NNC_MUST;
/* nnc_compile, with `edit` between the passes and the plan. */
nnc_status nnc_compile_edited(nnc_env *e, const nnc_model *m, const nnc_compile_options *o,
    nnc_edit edit, void *ctx, nnc_artifact **out, nnc_sink *sink) NNC_MUST;

/* split.c: splits the ops of *g over the devices as o->strategy and o->split say. Without them *g stays as it is. */
nnc_status nnc_split_graph(const nnc_compile_options *o, bool trains, nnc_graph **g, nnc_split_cost *cost, nnc_remarks *remarks,
    nnc_sink *sink) NNC_MUST;

/* nnc_artifact_work for runs that end with the section `last`. */
void nnc_run_work(const nnc_artifact *a, nnc_section last, int64_t *flops, int64_t *bytes, int64_t *launches);

/* Copies `bytes` bytes of a state, from `offset` on. */
nnc_status nnc_session_state_part(
    nnc_session *s, int i, int64_t offset, int64_t bytes, void *data, nnc_sink *sink) NNC_MUST;

/* Number of runs of main before a profile (nnc_exec_profile_behind); 0 on CPUs. */
int nnc_env_profile_after(const nnc_env *e);
/* Pass options that follow from `o` and the machine of `e`. Borrows from both. */
nnc_pass_options nnc_env_passes(const nnc_env *e, const nnc_compile_options *o);
/* NNC_E_USAGE: o's level excludes its precision. */
nnc_status nnc_check_precision(const nnc_compile_options *o, nnc_sink *sink) NNC_MUST;
/* The emitter of machine code, loaded on first use; NULL when the plug-in is absent. */
const nnc_emitter *nnc_env_emitter(void);
/* The same where it is not switched off in e. NULL: *why (may be NULL) is the reason, unchanged where it is switched off. */
const nnc_emitter *nnc_env_emits(const nnc_env *e, const char **why);

/* ---- compatible.c: plans and machine code of another machine ---- */

/* artifact.c: writes a decision in the form of artifacts and of explain's JSON. */
void nnc_put_remark_json(nnc_json_writer *w, const nnc_remark *x);
/* Appends the targets of the plan's devices in the form of --target. Trailing devices with the last target are left out. */
void nnc_put_targets(nnc_text *t, const nnc_plan *p, bool names);
/* NNC_E_DEVICE: a was compiled for another machine than e. */
nnc_status nnc_check_machine(const nnc_env *e, const nnc_artifact *a, nnc_sink *sink) NNC_MUST;
/* NNC_E_DEVICE: a's machine code uses instructions that this CPU lacks, or its sizes come from another library version. */
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
    NNC_UNIT_FUNCTIONS = 24, /* functions of a translation unit for a GPU */
    NNC_VERSION_BYTES = 96
};
/* Returns the compiler for GPU t and sets `version`. `said` gets a note about a fallback architecture, or the reason for missing machine
 * code. */
nnc_compiler nnc_env_cuda_compiler(nnc_env *e, const nnc_target *t, char version[NNC_VERSION_BYTES], nnc_sink *said);
/* Forwards the messages of `said` for a plan with kernels: as notes or, without machine code, as warnings. */
void nnc_env_cuda_tell(const nnc_env *e, const nnc_compiler *of_target, const nnc_sink *said, nnc_sink *sink);
/* Makes source (EMIT_cuda), PTX (EMIT_ptx), or machine code; a GPU newer than NVRTC gets PTX instead. The caller frees *out. `cache` keeps
 * NVRTC's results and may be NULL. */
nnc_status nnc_cuda_make(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what, nnc_cache *cache, char **out, size_t *size,
    nnc_sink *sink) NNC_MUST;

/* ---- stream.c ---- */

void nnc_session_stream_close(nnc_session *s);
/* Keeps an input for future runs. */
void nnc_stream_keep_input(nnc_session *s, int i, const void *data);
const char *nnc_stream_output(const nnc_session *s, int i); /* NULL: it was not streamed */
/* Copies a part of an output of the last run. False: the last run was not streamed. */
bool nnc_stream_take_output(const nnc_session *s, int i, int64_t offset, int64_t bytes, void *data);
/* Executes one run of a model in chunks. */
nnc_status nnc_stream_chunks(nnc_session *s, nnc_sink *sink) NNC_MUST;
void nnc_stream_forget(nnc_session *s); /* discards streamed outputs before a run without copies */

#endif
