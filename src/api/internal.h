/* api/internal.h -- shared by the files of api/. */
#ifndef NNC_API_INTERNAL_H
#define NNC_API_INTERNAL_H

#include "api/api.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "plan/make.h"
#include "cluster/cluster.h"
#include "runtime/runtime.h"
#include <pthread.h>

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
/* rooms.c: does the plan fit the memory of the devices? */
bool nnc_fits_devices(const nnc_env *e, const nnc_artifact *a);
/* Bytes that tensors of device d may take. */
int64_t nnc_device_room(const nnc_env *e, int d);
/* Memory of one device, or of those that share it. */
typedef struct nnc_room {
    const char *name;
    int64_t need, have, context; /* context: and libraries, beside what it has; of this machine: the program's */
    bool described; /* by a hardware file */
    bool host;      /* this machine's CPU */
} nnc_room;
int64_t nnc_batches_bytes(const nnc_plan *p); /* samples that nnc train holds beside the inputs of a step */
int nnc_find_rooms(const nnc_env *e, const nnc_artifact *a, nnc_room *to); /* to[NNC_MAX_DEVICES]; returns how many */
bool nnc_rooms_suffice(const nnc_room *r, int n);
void nnc_put_room(nnc_text *t, const nnc_env *e, const nnc_room *r, bool named); /* "Fits: it needs ..." */
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

/* ---- step_parts.c: parts of a training step ---- */

/* part[i]: of command i of the plan, by its layers: X/backward, /loss, /optimizer, all others forward. A kernel of several parts counts
 * where its result is first read; where no command reads it, as the last of its parts. */
/* " (8 of 9 commands also compute gradients of weights)", of those that count as optimizer; nothing where none does. */
void nnc_put_gradient_updates(const nnc_plan *p, nnc_text *out);
nnc_status nnc_step_parts(const nnc_plan *p, uint8_t *part, nnc_sink *sink) NNC_MUST;
nnc_part nnc_layer_part(const char *path); /* of one layer */
nnc_part nnc_layer_part_n(const char *path, size_t n); /* of n characters */
/* Runs these sections, from main on, which have run up to them; ns: of each part, the sum of its commands' times; *communication: copies
 * between devices (NULL: they belong to their parts). */
nnc_status nnc_session_profile(nnc_session *s, nnc_section first, nnc_section last, int64_t ns[PART__COUNT],
    int64_t *communication, nnc_sink *sink) NNC_MUST;
/* Runs one step; ns: of each part, the sum of its commands' times. */
nnc_status nnc_session_time_parts(nnc_session *s, int64_t ns[PART__COUNT], nnc_sink *sink) NNC_MUST;

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

/* ---- emit.c, emit_cuda.c, dump.c: stages of a compiled model ---- */

/* A translation unit: kernels for one target. */
typedef struct nnc_unit {
    int device; /* the first with the target */
    int n;
    const int *kernel;
} nnc_unit;
/* Divides the plan's kernels for GPUs, or those for CPUs, into units of at most `size` functions, as the planner does: *out, which the
 * caller frees. Returns how many; -1: out of memory. */
int nnc_plan_units(const nnc_plan *p, bool gpu, int size, nnc_unit **out);
/* Appends the name of device d, and its target's where the plan is for several: "cuda:0 (cuda:sm_90)". */
void nnc_put_device(nnc_text *t, const nnc_plan *p, int d);
bool nnc_several_targets(const nnc_plan *p);
/* The unit's kernels, parsed back from their text into k[], in `a`. */
nnc_status nnc_plan_kernels(const nnc_plan *p, const nnc_unit *u, nnc_kernel **k, nnc_arena *a, nnc_sink *sink) NNC_MUST;
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
/* Stage "cuda", "ptx" or "cubin" of all units. */
nnc_status nnc_cuda_emit(nnc_env *e, const nnc_artifact *a, const char *stage, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* One translation unit of a plan for a GPU: EMIT_cuda (annotated) or EMIT_ptx. */
nnc_status nnc_cuda_emit_unit(
    nnc_env *e, const nnc_artifact *a, const nnc_unit *u, nnc_emit what, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Appends the CUDA C of the unit's kernels, size bytes and NUL-terminated, with their layers, tensors and remarks in the
 * comment above each. */
void nnc_cuda_annotate(nnc_text *out, const nnc_artifact *a, const nnc_unit *u, const char *source, size_t size);
/* Describes the kernels of unit u, the plan's `number`-th: each one's launches with their layers and, where there is readable machine
 * code, registers, stack, instructions and access widths. sm: the architecture of the code. */
nnc_status nnc_cuda_describe(const nnc_plan *p, const nnc_unit *u, int number, int sm, nnc_text *out, nnc_sink *sink) NNC_MUST;

/* ---- report_cuda.c: parts of doctor and devices ---- */

void nnc_doctor_cuda_text(nnc_text *t);
void nnc_doctor_cuda_json(nnc_json_writer *w); /* a member "cuda" */
void nnc_devices_cuda_text(const nnc_target *g, nnc_text *t);
void nnc_devices_gpus_text(nnc_text *t); /* this machine's GPUs, if any */

/* ---- first_run.c ---- */

void nnc_put_first_run(nnc_text *t, const char *before, const nnc_exec_phases *p); /* a line, after `before` */
void nnc_put_first_run_json(nnc_json_writer *w, const nnc_exec_phases *p);

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
