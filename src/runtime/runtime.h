/* runtime/runtime.h -- runs a plan. The executor executes commands; it makes no decisions, allocates nothing while running and does
 * not use the graph. */
#ifndef NNC_RUNTIME_H
#define NNC_RUNTIME_H

#include "base/base.h"
#include "comm/comm.h"
#include "plan/plan.h"

/* ---- devices: one table of functions per kind ---------------------------------------------------------------------- */

typedef struct nnc_device nnc_device;   /* one device, e.g. cpu:1; used by one executor at a time */
typedef struct nnc_stream nnc_stream;   /* an in-order queue of a device, asynchronous to the host */
typedef struct nnc_event nnc_event;
typedef struct nnc_capture nnc_capture; /* captured work of one run */

/* Work submitted to a stream: a prepared engine handle and its arguments, which must not change until the work is done. */
typedef struct nnc_work {
    nnc_status (*run)(void *handle, void *const *args, void *work);
    void *handle;
    void *const *args;
    int n_arg;
    void *work;
    const char *name; /* the user's layers, for messages; outlives the work; may be NULL */
    int64_t flops, bytes; /* of the command, and its class ("conv", ...; may be NULL): for simulated devices */
    const char *op_class;
    bool always; /* runs after a failure of the stream, too */
} nnc_work;

/* All functions return a status; asynchronous failures are sticky in the stream and returned by sync. Streams of a device are used
 * from one host thread. Memory is 64-byte aligned and belongs to its device until freed. */
typedef struct nnc_device_api {
    const char *kind; /* "cpu", "cuda", "sim" */
    bool host_memory; /* the host can access what alloc returns */
    nnc_status (*open)(int ordinal, nnc_device **out, nnc_sink *sink);
    void (*close)(nnc_device *d);
    int (*count)(void); /* devices of the kind on this host; 0: unknown; NULL: as many as are opened */
    /* Makes d the calling thread's device, for engines that load and unload code there; NULL: not needed. */
    nnc_status (*use)(nnc_device *d);
    nnc_status (*alloc)(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink); /* 0 bytes: NULL, fine; NNC_E_FIT when full */
    void (*free)(nnc_device *d, void *p);
    /* Host memory that is copied to and from d without staging, asynchronously to host and device; NNC_E_FIT: not available. Other
     * host memory may be copied, too. */
    nnc_status (*host_alloc)(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink);
    void (*host_free)(nnc_device *d, void *p);
    /* threads: of the parallel loops of its work, where the device has them (1: none). alone: the host gives work to this stream only, as
     * long as it creates no other on d, and waits for it by sync; its work may be done no earlier than that. */
    nnc_status (*stream_create)(nnc_device *d, int threads, bool alone, nnc_stream **out, nnc_sink *sink);
    void (*stream_destroy)(nnc_stream *s); /* waits */
    nnc_status (*event_create)(nnc_device *d, nnc_event **out, nnc_sink *sink);
    void (*event_destroy)(nnc_event *e); /* after sync or destruction of the streams that recorded it or wait for it */
    nnc_status (*upload)(nnc_stream *s, void *dst, const void *src, int64_t bytes);   /* src must stay valid until sync */
    nnc_status (*download)(nnc_stream *s, void *dst, const void *src, int64_t bytes); /* in s's order: events after it fire when dst is
                                                                                       * filled */
    nnc_status (*copy)(nnc_stream *s, nnc_device *dst_dev, void *dst, const void *src, int64_t bytes); /* between or within devices of
                                                                                                        * the kind; executors copy
                                                                                                        * between kinds through host
                                                                                                        * memory, which waits */
    nnc_status (*launch)(nnc_stream *s, const nnc_work *w);
    nnc_status (*record)(nnc_stream *s, nnc_event *e); /* resets e; it fires when everything before it is done */
    nnc_status (*wait)(nnc_stream *s, nnc_event *e);   /* later work of s waits for the latest record of e */
    nnc_status (*sync)(nnc_stream *s, nnc_sink *sink); /* the host waits for s; returns the first failure and clears it */
    /* Has the record of e by s fired? Also true where s has failed, which sync reports. NULL: event_ns says so */
    bool (*fired)(nnc_stream *s, const nnc_event *e);
    /* time at which each recorded event fired, in ns of the device's clock; -1 = not yet */
    int64_t (*event_ns)(const nnc_event *e);
    /* Capture of work that the device can repeat at lower cost than command by command; all NULL where unsupported. Between begin and
     * end, work submitted to s is recorded instead of run; other streams join the capture when they wait on an event recorded in it. s
     * must wait for them all before the end. No sync, upload, download or alloc in between. begin or end returns a failure; then
     * nothing was captured, all streams are as before, and no later call sees the failure. */
    nnc_status (*capture_begin)(nnc_stream *s, nnc_sink *sink);
    nnc_status (*capture_end)(nnc_stream *s, nnc_capture **out, nnc_sink *sink);
    nnc_status (*replay)(nnc_stream *s, nnc_capture *c); /* runs all of it, in s's order */
    void (*capture_destroy)(nnc_capture *c);             /* after sync of the streams that replay it */
} nnc_device_api;

extern const nnc_device_api nnc_device_cpu, nnc_device_cuda;

/* ---- executor --------------------------------------------------------------------------------------------------- */

typedef struct nnc_exec nnc_exec; /* a loaded plan */

/* Memory of static values (weights, packed and folded weights) that executors share, so that it is filled once. Each executor that was
 * created with it keeps what it uses, also when its creator has dropped it. May be used by several threads. */
typedef struct nnc_shared nnc_shared;
nnc_shared *nnc_shared_create(void); /* NULL: out of memory */
void nnc_shared_drop(nnc_shared *s);

/* ---- several ranks --------------------------------------------------------------------------------------------------
 * Each rank creates the same executors of the same plans, in the same order, and executes the commands of its own devices (nnc_rank_of);
 * it has the memory and weights of these alone. Rank 0 leads: its program calls the functions below; the others follow, that is, do what
 * it tells them to. Outputs, inputs and states of other ranks' devices are sent to and from rank 0. */
typedef struct nnc_job nnc_job;
nnc_status nnc_job_create(nnc_comm *c, nnc_job **out, nnc_sink *sink) NNC_MUST; /* on all ranks; c outlives it */
/* Rank 0: ends the others' nnc_job_follow. After a failure: nnc_comm_abort instead. */
void nnc_job_destroy(nnc_job *j);
/* Other ranks: executes what rank 0 tells, with the job's executors, until it ends the job. */
nnc_status nnc_job_follow(nnc_job *j, nnc_sink *sink) NNC_MUST;
/* Reports the failure of a command that an upload or download, which have no sink, met first; false: there is none. */
bool nnc_job_failure(nnc_job *j, nnc_sink *sink);
/* Rank 0: ends the others' nnc_job_follow, which they call again for more. */
nnc_status nnc_job_pause(nnc_job *j) NNC_MUST;
/* Before the first run, on all ranks: each tells rank 0, with the end of a run, whether it is asked to stop. Rank 0: was one of them? */
void nnc_job_watch(nnc_job *j, bool (*is_asked)(const volatile void *ctx), const volatile void *ctx);
bool nnc_job_stops(const nnc_job *j);
int nnc_job_rank(const nnc_job *j);
int nnc_job_world(const nnc_job *j);

/* How collectives of GPUs go: through NCCL where it can, else through host memory (auto); one of them. */
typedef enum nnc_comm_by { NNC_COMM_auto, NNC_COMM_staged, NNC_COMM_nccl } nnc_comm_by;

typedef struct nnc_exec_options {
    const nnc_device_api *const *device; /* by kind: "cpu:1" is device 1 of the kind "cpu" */
    int n_device;
    const nnc_engine *const *engine; /* those whose names the plan holds must be here */
    int n_engine;
    const nnc_engine_env *env; /* of each device, the last one of further devices; copied, what it points to outlives the executor */
    int n_env;
    /* fills weights of CMD_weight; NULL: inline, generated and file sources are read here */
    nnc_shared *shared;     /* NULL: nothing is shared, except with `states` */
    nnc_exec *states;       /* states of the same name and type, on a device of the same name, are those of this executor, and init
                             * does not fill them; NULL: of none. The two do not run at the same time */
    nnc_job *job;           /* NULL: all devices are this process's */
    nnc_comm_by comm_by;
    bool no_stage;          /* CPUs send to other ranks from where the data is, without a copy of it (sends.c) */
    bool no_replay;         /* submit every run command by command, even where the device could replay it */
} nnc_exec_options;

/* Memory allocated on the devices: the plan's sizes (checked by a test), less what other executors had already. */
typedef struct nnc_exec_memory { int64_t arena, persist, init; } nnc_exec_memory;

/* Phases before the second run, in ns of the host's clock. Rows: printed name, JSON key. */
#define NNC_PHASES(X) \
    X(context, "open device", "context_ns") \
    X(memory, "allocate", "memory_ns") \
    X(libraries, "load libraries", "libraries_ns") /* plug-ins and engines' own set-up of each call */ \
    X(code, "load kernels", "code_ns") \
    X(jit, "compile kernels (driver)", "jit_ns") /* those that are PTX */ \
    X(weights, "read or generate weights", "weights_ns") \
    X(upload, "upload weights", "upload_ns") /* where the host does not see the device's memory */ \
    X(prepare, "pack and fold weights", "prepare_ns") \
    X(first, "first run", "first_run_ns") \
    X(capture, "capture the run", "capture_ns")
typedef enum nnc_phase {
#define X(id, name, key) NNC_PH_##id,
    NNC_PHASES(X)
#undef X
    NNC_PH__COUNT
} nnc_phase;
typedef struct nnc_exec_phases { int64_t ns[NNC_PH__COUNT]; } nnc_exec_phases;
/* Phases that are complete; first: from submitting main to the end of the following nnc_exec_sync; 0 where only a pipe has run it. */
nnc_exec_phases nnc_exec_first_run(const nnc_exec *e);

/* Opens devices, allocates the arenas, prepares engines, runs init. The plan must outlive it. */
nnc_status nnc_exec_create(const nnc_plan *p, const nnc_exec_options *o, nnc_exec **out, nnc_sink *sink) NNC_MUST;
void nnc_exec_destroy(nnc_exec *e);
nnc_exec_memory nnc_exec_requested(const nnc_exec *e, int device);
/* Where tensor t is, if this process's host can access it between runs; NULL otherwise. Data need not be copied there and back; uploads
 * from there do nothing. */
void *nnc_exec_tensor(nnc_exec *e, int32_t t);
/* Host buffers in the tensors' own memory order. Asynchronous unless followed by nnc_exec_sync. */
nnc_status nnc_exec_upload(nnc_exec *e, int input, const void *data);
nnc_status nnc_exec_get_input(nnc_exec *e, int input, void *data);
nnc_status nnc_exec_download(nnc_exec *e, int output, void *data);
/* Bytes offset.. of an output, for reading large results in pieces. */
nnc_status nnc_exec_download_part(nnc_exec *e, int output, int64_t offset, int64_t bytes, void *data);
/* Enqueues main; returns before it is done. After a failure sync before anything else: earlier commands may still run. */
nnc_status nnc_exec_run(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* Enqueues main, accumulate and then step: the outputs are computed from the old state; afterwards the state is the new one. After a
 * failure the state may be partly updated. */
nnc_status nnc_exec_step(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* The same without step: only the states that accumulate have new values. */
nnc_status nnc_exec_accumulate(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* What one of these enqueues after main, where nnc_exec_run was called last. */
nnc_status nnc_exec_update(nnc_exec *e, bool step, nnc_sink *sink) NNC_MUST;
/* The current value of the state of plan->update[i], as upload and download copy: bytes offset.. of it. */
nnc_status nnc_exec_get_state(nnc_exec *e, int i, int64_t offset, int64_t bytes, void *data);
nnc_status nnc_exec_set_state(nnc_exec *e, int i, const void *data);
nnc_status nnc_exec_sync(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* Host memory for an input or output: with the fastest copies (*direct), or any. 64-byte aligned; free it before e. */
nnc_status nnc_exec_host_alloc(nnc_exec *e, int64_t bytes, void **out, bool *direct, nnc_sink *sink) NNC_MUST;
void nnc_exec_host_free(nnc_exec *e, void *p, bool direct);
/* Runs sections first..last once, from main on, with a time stamp around every command: ns[commands of these sections]. */
nnc_status nnc_exec_profile(
    nnc_exec *e, nnc_section first, nnc_section last, int64_t *start_ns, int64_t *end_ns, nnc_sink *sink) NNC_MUST;
/* The same behind `before` runs of main, which are submitted first: while the device computes them, the host submits the timed commands, so
 * that these follow each other as in a replayed run instead of waiting for the host. Of devices of this process. */
nnc_status nnc_exec_profile_behind(nnc_exec *e, int before, nnc_section first, nnc_section last, int64_t *start_ns,
    int64_t *end_ns, nnc_sink *sink) NNC_MUST;

/* True where submitted work runs on a device beside the host: between submitting and nnc_exec_sync the host can do other things. */
bool nnc_exec_returns_early(const nnc_exec *e);

/* ---- the next run's inputs ------------------------------------------------------------------------------------------ */

/* Uploads inputs of the next run while the current one computes (stage.c). Where the device has memory of its own it takes as much again
 * as the inputs that are put. */
typedef struct nnc_stage nnc_stage;
nnc_status nnc_stage_create(nnc_exec *e, nnc_stage **out, nnc_sink *sink) NNC_MUST;
void nnc_stage_destroy(nnc_stage *q); /* before e; or NULL */
/* Begins to upload an input; host must stay as it is until take. */
nnc_status nnc_stage_put(nnc_stage *q, int input, const void *host, nnc_sink *sink) NNC_MUST;
/* What was put becomes the inputs of the runs that follow. The run before may still compute. */
nnc_status nnc_stage_take(nnc_stage *q, nnc_sink *sink) NNC_MUST;

/* ---- overlapped copies --------------------------------------------------------------------------------------------- */

/* Runs of a plan with uploads before and downloads after each, on three streams of each device: one run's inputs are uploaded and
 * another's outputs downloaded while a third computes. Runs alternate between two slots of inputs and outputs on the device, ordered
 * by events only. The plan's own inputs and outputs (nnc_exec_upload, _download) are not used by a pipe. */
typedef struct nnc_pipe nnc_pipe;

enum { NNC_PIPE_SPANS = 64 };

/* Times of one run's parts by the device's clock; and of the submission of its copies by the host's clock, which matches the device's
 * within some microseconds. [0] begin, [1] end; -1: none. */
typedef struct nnc_pipe_span {
    int64_t up[2], run[2], down[2];
    int64_t given_up, given_down;
} nnc_pipe_span;

/* Host memory of a run's inputs or outputs. Run i: at[k] + i * step[k] for tensor k, but at most at[k] + last[k], so that an incomplete
 * last part overlaps the one before; outputs are written in the order of the runs. step NULL: the same for all runs; last NULL:
 * unlimited. Memory is not accessed after nnc_pipe_run has returned. */
typedef struct nnc_pipe_side {
    char *const *at;
    const int64_t *step, *last;
} nnc_pipe_side;
enum { NNC_UP, NNC_DOWN, NNC_WAYS }; /* inputs, outputs */

/* The executor must outlive it. NNC_E_FIT: its slots do not fit on a device beside the plan. */
nnc_status nnc_pipe_create(nnc_exec *e, nnc_pipe **out, nnc_sink *sink) NNC_MUST;
void nnc_pipe_destroy(nnc_pipe *p);
int64_t nnc_pipe_bytes(const nnc_pipe *p, int device); /* size of its slots on the device */
/* Executes n runs and waits. `span`: NULL, or for the first NNC_PIPE_SPANS of them. */
nnc_status nnc_pipe_run(nnc_pipe *p, const nnc_pipe_side io[NNC_WAYS], int64_t n, nnc_pipe_span *span, nnc_sink *sink) NNC_MUST;

#endif
