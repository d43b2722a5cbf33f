/* api/api.h -- the part of api/ that nnc's own program, tests and benchmarks use beyond nnc.h: fields of options, parts of artifacts,
 * passes by name, overlapped copies. Not installed: may change with every version. */
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
const void *nnc_session_output_memory(nnc_session *s, int i);
/* NNC_E_USAGE when a name is no input (or no output) of the model. */
nnc_status nnc_artifact_check_names(const nnc_artifact *a, bool outputs, const nnc_arg *arg, int n, nnc_sink *sink) NNC_MUST;

/* Runs exactly these passes, in this order (nnc opt), or the level's when n_pass is 0. Replaces *m. */
nnc_status nnc_optimize(nnc_env *e, nnc_model **m, const char *const *pass, int n_pass, const nnc_compile_options *o,
    nnc_sink *sink) NNC_MUST;
/* True when a pass has this name; otherwise *near is the most similar name, or NULL. */
bool nnc_is_pass(const char *name, const char **near);
bool nnc_is_stage(const char *name, const char **near); /* the same for stages of nnc_emit_text */
/* Number of chunks in a run: 1, or more where the model is larger than the device. Such runs include their copies. */
int64_t nnc_artifact_chunks(const nnc_artifact *a);
/* Phases before the second run, "first run" in docs/formats.md: as a line of text; as members of an object. */
void nnc_report_first_run(const nnc_session *s, nnc_text *out);
void nnc_report_first_run_json(const nnc_session *s, nnc_json_writer *out);

/* What nnc_session_step, or nnc_session_accumulate, does after nnc_session_run, which was called last: a step in two parts, between which
 * outputs can be looked at. Not of a model in chunks. */
nnc_status nnc_session_update(nnc_session *s, bool step, nnc_sink *sink) NNC_MUST;
/* Writes all weights of m by their names: of those that are states of s, a session of a training graph of m, the current values. */
nnc_status nnc_session_write_weights(nnc_session *s, const nnc_model *m, const char *file, nnc_sink *sink) NNC_MUST;

/* ---- training steps -------------------------------------------------------------------------------------------------- */

/* Parts of a training step (step_parts.c). */
typedef enum nnc_part { PART_forward, PART_loss, PART_backward, PART_optimizer, PART__COUNT } nnc_part;
extern const char *const nnc_part_names[PART__COUNT];
/* nnc_artifact_work of a step. */
void nnc_artifact_step_work(const nnc_artifact *a, int64_t *flops, int64_t *bytes, int64_t *launches);
/* Times of the parts, the sums of their commands' times: medians over some steps that are measured command by command. */
nnc_status nnc_session_part_times(nnc_session *s, double ms[PART__COUNT], nnc_sink *sink) NNC_MUST;
/* A member "parts" of an object. */
/* A line of them; a part whose ops are all in kernels of other parts has no commands. */
void nnc_report_parts(const nnc_session *s, const double ms[PART__COUNT], nnc_text *out);
void nnc_report_parts_json(const double ms[PART__COUNT], nnc_json_writer *out);

/* ---- inference over several devices (strategy.c) -------------------------------------------------------------------------- */

/* The model m over o's devices, by a strategy of nnc run. `pipeline`: `micro` parts of the batch follow each other through the stages,
 * which are where m's layers are placed, or otherwise as nnc_partition_model_report cuts them; `data`: a replica on each device;
 * `tensor`, `channel`, `spatial`: ops are split. Each of `replicas` has an equal part of the devices and of the batch. Inputs and outputs
 * are m's. NNC_E_USAGE: the batch does not have so many equal parts, or the placement is no pipeline; NNC_E_MODEL: its rows depend on each
 * other. */
nnc_status nnc_shared_model(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, const char *strategy, int replicas, int micro,
    nnc_model **out, nnc_sink *sink) NNC_MUST;

/* ---- partitions (docs/partition.md) -------------------------------------------------------------------------------------- */

typedef struct nnc_partition_options {
    nnc_compile_options compile; /* compile.devices: how many; 0: as many as --place names, at least 2 */
    const char *const *strategy; /* names; none or "all": all */
    int n_strategy;
    int micro;                   /* micro-batches of an iteration, each the model as it is; 0: 4 for each device */
    int chunks;                  /* of a device, interleaved; 0: 2 */
    double link_gbs, link_us;    /* each link: 10^9 bytes a second in each direction, latency; 0: 10 and 5, or those of e's hardware file;
                                  * negative: no latency */
    double bucket_mb;            /* of gradients, 10^6 bytes; 0: as the plan without them, in the search 25; negative: one a block */
    double slowdown;             /* of computing while a collective runs; 0: 1, or as e's hardware file says */
    bool measure;                /* times of the plan's commands on this machine instead of its target's cost rules, or a hardware file's */
    bool simulate;               /* e has a hardware file: what nnc executes is also simulated, from its own plans */
    bool run;                    /* what nnc executes is run on this machine, on this process's virtual devices or over the ranks */
    int run_ms;                  /* run: for each strategy, at least; 0: 2000 */
    int run_iterations;          /* run: of each strategy instead; 0: as many as fit run_ms */
    bool layers;                 /* text: list the blocks of layers with their costs first */
    int columns;                 /* of the terminal that shows the text; 0: any */
    bool sensitivity;            /* also times with links of other bandwidths */
    const char *svg;             /* pictures are written to this file (.svg) or folder; NULL: none */
    const char *trace, *dot;     /* file of a Chrome trace; of the graph, coloured by device (.dot, or .svg by Graphviz); NULL: none */
} nnc_partition_options;
/* Predicts what strategies make of m (of its training step, where `training` is not NULL) on equal devices of e's target, connected as
 * its hardware file says, if it has one, and appends the table. *fits: one of them fits the devices' memory. */
nnc_status nnc_partition_model_report(nnc_env *e, const nnc_model *m, const struct nnc_training *training,
    const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink) NNC_MUST;

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

/* One of several models that run together, and alone with as many threads as its stream then has. */
typedef struct nnc_together_model {
    const char *name;
    int device, stream; /* of the joined plan; -1: it computes nothing */
    double alone_ms, all_ms; /* medians: alone; alone with all threads. NaN: not measured */
    int64_t predicted_ns; /* alone, by the cost rules */
    bool same; /* both computed the same bits */
} nnc_together_model;
typedef struct nnc_together {
    int n, devices, lanes; /* models, devices and streams that they use */
    int threads, all; /* CPUs: of a stream; of the machine */
    bool measured, shares; /* shares: models are on streams of one GPU, whose times predictions do not know */
    double ms; /* together, the median */
    int64_t predicted_ns;
    nnc_together_model *model; /* in `a` */
    nnc_arena a;
} nnc_together;
/* Compares s, a fresh session of `joined`, with each model alone: results of a first run; times, in bursts in turn. eo: what e was created
 * with. Over several ranks nothing is measured. */
nnc_status nnc_measure_together(nnc_env *e, const nnc_env_options *eo, const nnc_artifact *joined, nnc_session *s,
    nnc_model *const *m, const char *const *name, int n, const nnc_compare_options *o, nnc_together *out, nnc_sink *sink) NNC_MUST;
void nnc_report_together(const nnc_together *t, nnc_text *out);
void nnc_report_together_json(const nnc_together *t, nnc_json_writer *out); /* a member "together" */
void nnc_together_free(nnc_together *t);

/* Predicts what several models (or their steps) take: each alone, one after the other on a device, on streams of one device, and on
 * devices, the longest first (LPT). *fits: the latter fit the memory. */
nnc_status nnc_partition_several_report(nnc_env *e, nnc_model *const *m, const char *const *name, int n, bool step,
    const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink) NNC_MUST;
/* ---- nnc calibrate (docs/hardware.md) ------------------------------------------------------------------------------------ */

typedef struct nnc_calibrate_options {
    int devices;     /* that share the threads; 0: as many as ranks, in one process as threads, at least 2 */
    double budget_s; /* seconds that it may take, about; 0: 25 */
} nnc_calibrate_options;
/* Measures ops, copies and collectives of CPU devices of this process, or of the ranks of e, all of which call it, and appends a hardware
 * file on rank 0. e describes one device afterwards: nothing else can be done with it. */
nnc_status nnc_calibrate(nnc_env *e, const nnc_calibrate_options *o, nnc_text *out, nnc_sink *sink) NNC_MUST;

/* ---- ONNX's test folders --------------------------------------------------------------------------------------------- */

typedef enum nnc_verifier {
    NNC_BY_PLAN,
    NNC_BY_REFERENCE
} nnc_verifier; /* compiled and run, or evaluated in float64 */
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

/* Compares fused, unfused and float64 at every layer and appends the report; `against` (or NULL): and the outputs with those in this
 * file. Of o: compile, seed, input, inputs, tolerance. */
nnc_status nnc_verify_model(nnc_env *e, const nnc_model *m, const nnc_compare_options *o,
    const char *against, nnc_format f, nnc_text *out, bool *agrees, nnc_sink *sink) NNC_MUST;
/* The smallest model found in which a layer differs as one of m does; NULL: all agree. */
nnc_status nnc_smallest_failing(nnc_env *e, const nnc_model *m, const nnc_compare_options *o,
    nnc_model **small, nnc_sink *sink) NNC_MUST;

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
/* NNC_E_FIT where a needs more memory than e's memory_limit, or, with `beside` bytes more, than this machine has free at the
 * moment. GPUs without a limit refuse when they allocate. */
nnc_status nnc_check_room(const nnc_env *e, const nnc_artifact *a, int64_t beside, nnc_sink *sink) NNC_MUST;
/* Opens a model again, in another way: args in place of those that were given; of a training step so many batches a step; layers placed. */
typedef struct nnc_reopening {
    const nnc_arg *arg;
    int n_arg;
    int accumulate;    /* 0: as now */
    const char *place; /* NULL: as now */
    bool forward;      /* the model itself, not its step */
} nnc_reopening;
typedef struct nnc_reopen {
    nnc_status (*open)(void *ctx, const nnc_reopening *how, nnc_model **out, nnc_sink *sink);
    void *ctx;
    int accumulate; /* batches of a step now */
    const struct nnc_training *training; /* of the step; NULL: it is none */
} nnc_reopen;
/* For a model that does not fit o->memory_budget, or where there is none the devices: appends flags with which it would, with the memory
 * that each needs; each was planned. Nothing: none was found. other: NULL: no other batches. NNC_E_NOMEM. */
nnc_status nnc_advise_memory(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, const nnc_reopen *other,
    nnc_text *t) NNC_MUST;

/* ---- the largest model that fits (docs/partition.md) -------------------------------------------------------------------- */

typedef struct nnc_fit_arg {
    const char *name;
    int64_t lo, hi;
} nnc_fit_arg;
typedef struct nnc_fit_options {
    nnc_compile_options compile;
    const nnc_fit_arg *arg; /* the first is made as large as fits, for each of some values of the second */
    int n_arg; /* 1, 2 */
    const nnc_reopen *model;
    const char *place; /* of layers; NULL: on several devices they are cut for the least memory of the fullest one */
    bool placed;       /* the model says itself where its layers are */
    bool torch;        /* as PyTorch's allocator would request memory; e has a hardware file */
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *progress_ctx;
} nnc_fit_options;
/* Searches, and appends the report. *fits: something does. */
nnc_status nnc_fit_report(nnc_env *e, const nnc_fit_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink) NNC_MUST;
/* --fit=NAME=LO..HI; NNC_E_USAGE. */
nnc_status nnc_fit_parse(const nnc_arg *a, nnc_fit_arg *out, nnc_sink *sink) NNC_MUST;
/* What PyTorch's allocator would request for the plan's tensors, on e's described hardware, beside the plan's own bytes. */
nnc_status nnc_report_torch(nnc_env *e, const nnc_artifact *a, nnc_format f, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Layers on devices, cut for the least memory of the fullest one, as --place takes it. NNC_E_FIT: fewer blocks than devices. */
nnc_status nnc_sequential_place(nnc_env *e, const nnc_model *forward, const struct nnc_training *training,
    const nnc_compile_options *o, int devices, nnc_text *place, nnc_sink *sink) NNC_MUST;
/* Writes one run of s (a training step where `step`), command by command, to `file` in Chrome's trace format, on all ranks' devices; with
 * `hardware` (a hardware file, or NULL) beside what the simulator predicts of the plan on its devices. */
nnc_status nnc_session_trace(nnc_env *e, nnc_session *s, bool step, const char *file, const char *hardware,
    nnc_sink *sink) NNC_MUST;
/* Draws the planned memory of each device over time, as SVG. */
nnc_status nnc_draw_memory(nnc_env *e, const nnc_artifact *a, const char *file, nnc_sink *sink) NNC_MUST;

/* Times of runs. */
typedef struct nnc_times {
    int64_t *ns;
    int n, cap;
    int64_t spent_ns; /* their sum */
} nnc_times;
/* Times runs of s in its steady state as o says (warmup, iterations, duration_ms), with their copies or without; sorted. The caller frees
 * t->ns, also after a failure. */
nnc_status nnc_session_time(nnc_session *s, const nnc_compare_options *o, bool io, nnc_times *t, nnc_sink *sink) NNC_MUST;
/* Quantile `share` (0..1) of sorted times in ms, interpolated linearly, and their mean; NaN when there are none. */
double nnc_times_at(const nnc_times *t, double share);
double nnc_times_mean(const nnc_times *t);
/* Statistics of nnc_session_stream since the last nnc_session_stream_reset, which is called after the warm-up. */
nnc_io_report nnc_session_stream_report(const nnc_session *s);
void nnc_session_stream_reset(nnc_session *s);
/* Lines of text, each after `indent`; members of a JSON object. */
void nnc_report_io(const nnc_io_report *r, const char *indent, nnc_text *out);
void nnc_report_io_json(const nnc_io_report *r, nnc_json_writer *out);

#endif
