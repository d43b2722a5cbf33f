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
    int64_t flops, bytes; /* of the command; these and its class ("conv", ...; may be NULL) are for simulated devices */
    const char *op_class;
    bool always; /* also runs after a failure of the stream */
} nnc_work;

/* Times of commands as the device's driver records them: cuda/cuda.h, nnc_cupti_open and so on. */
typedef struct nnc_activity_api {
    nnc_status (*open)(bool calls, nnc_sink *sink);
    void (*close)(void);
    void (*mark)(int32_t cmd);
    void (*begin)(void);
    void (*read)(bool all, int64_t *start_ns, int64_t *end_ns, int32_t first, int n);
} nnc_activity_api;

/* All functions return a status; asynchronous failures are sticky in the stream and returned by sync. Streams of a device are used
 * from one host thread. Memory is 64-byte aligned and belongs to its device until freed. */
typedef struct nnc_device_api {
    const char *kind; /* "cpu", "cuda", "sim" */
    bool host_memory; /* the host can access what alloc returns */
    nnc_status (*open)(int ordinal, nnc_device **out, nnc_sink *sink);
    void (*close)(nnc_device *d);
    int (*count)(void); /* number of devices of the kind on this host; 0: unknown; NULL: unlimited */
    /* Makes d the calling thread's device, for engines that load and unload code there; NULL: not needed. */
    nnc_status (*use)(nnc_device *d);
    nnc_status (*alloc)(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink); /* 0 bytes: NULL; NNC_E_FIT: the device is full */
    void (*free)(nnc_device *d, void *p);
    /* Pinned host memory: copies to and from d are asynchronous and need no staging. NNC_E_FIT: not available. Other host memory can also
     * be copied. */
    nnc_status (*host_alloc)(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink);
    void (*host_free)(nnc_device *d, void *p);
    /* threads: for parallel loops of its work, on devices that have them (1: none). alone: the host submits work only to this stream
     * while d has no other, and waits for it by sync. The work may be deferred until then. */
    nnc_status (*stream_create)(nnc_device *d, int threads, bool alone, nnc_stream **out, nnc_sink *sink);
    void (*stream_destroy)(nnc_stream *s); /* waits */
    nnc_status (*event_create)(nnc_device *d, nnc_event **out, nnc_sink *sink);
    void (*event_destroy)(nnc_event *e); /* after sync or destruction of the streams that recorded it or wait for it */
    nnc_status (*upload)(nnc_stream *s, void *dst, const void *src, int64_t bytes);   /* src must stay valid until sync */
    nnc_status (*download)(nnc_stream *s, void *dst, const void *src, int64_t bytes); /* events recorded after it fire when dst is filled */
    nnc_status (*copy)(nnc_stream *s, nnc_device *dst_dev, void *dst, const void *src, int64_t bytes); /* between or within devices of
                                                                                                        * the kind; executors copy
                                                                                                        * between kinds through host
                                                                                                        * memory, which waits */
    nnc_status (*launch)(nnc_stream *s, const nnc_work *w);
    nnc_status (*record)(nnc_stream *s, nnc_event *e); /* resets e; it fires when everything before it is done */
    nnc_status (*wait)(nnc_stream *s, nnc_event *e);   /* later work of s waits for the latest record of e */
    nnc_status (*sync)(nnc_stream *s, nnc_sink *sink); /* the host waits for s; returns the first failure and clears it */
    /* Whether the record of e by s has fired. Also true if s has failed, which sync reports. NULL: use event_ns */
    bool (*fired)(nnc_stream *s, const nnc_event *e);
    /* Time at which a recorded event fired, in ns of the device's clock; -1 = not yet */
    int64_t (*event_ns)(const nnc_event *e);
    /* Capture of work that the device can repeat at lower cost than command by command; all NULL where unsupported. Between begin and end,
     * work submitted to s is recorded instead of run. Other streams join the capture when they wait on an event recorded in it. Stream s
     * must wait for them all before the end. No sync, upload, download or alloc in between. begin or end returns a failure; then nothing
     * was captured, all streams are as before, and no later call sees the failure. */
    nnc_status (*capture_begin)(nnc_stream *s, nnc_sink *sink);
    nnc_status (*capture_end)(nnc_stream *s, nnc_capture **out, nnc_sink *sink);
    nnc_status (*replay)(nnc_stream *s, nnc_capture *c); /* runs all of it, in s's order */
    void (*capture_destroy)(nnc_capture *c);             /* after sync of the streams that replay it */
    const nnc_activity_api *activity; /* NULL: unsupported */
} nnc_device_api;

extern const nnc_device_api nnc_device_cpu, nnc_device_cuda;

/* ---- executor --------------------------------------------------------------------------------------------------- */

typedef struct nnc_exec nnc_exec; /* a loaded plan */

/* Memory of static values (weights, packed and folded weights) that executors share, so that each is computed once. An executor keeps the
 * values that it uses, even after the creator has dropped this. Thread-safe. */
typedef struct nnc_shared nnc_shared;
nnc_shared *nnc_shared_create(void); /* NULL: out of memory */
nnc_shared *nnc_shared_join(nnc_shared *s); /* s, which needs one drop more */
void nnc_shared_drop(nnc_shared *s);

/* ---- several ranks --------------------------------------------------------------------------------------------------
 * Each rank creates the same executors of the same plans, in the same order. It executes the commands of its own devices (nnc_rank_of) and
 * has only their memory and weights. Rank 0 leads: its program calls the functions below. The other ranks follow and execute its orders.
 * Outputs, inputs and states of other ranks' devices are sent to and from rank 0. */
typedef struct nnc_job nnc_job;
nnc_status nnc_job_create(nnc_comm *c, nnc_job **out, nnc_sink *sink) NNC_MUST; /* on all ranks; c outlives it */
/* Rank 0: ends the others' nnc_job_follow. After a failure call nnc_comm_abort instead. */
void nnc_job_destroy(nnc_job *j);
/* Other ranks: execute the orders of rank 0 with the job's executors, until it ends the job. */
nnc_status nnc_job_follow(nnc_job *j, nnc_sink *sink) NNC_MUST;
/* Reports the failure of a command that first occurred in an upload or download, which have no sink. False: there is none. */
bool nnc_job_failure(nnc_job *j, nnc_sink *sink);
/* Rank 0: makes the others' nnc_job_follow return; they call it again for more. */
nnc_status nnc_job_pause(nnc_job *j) NNC_MUST;
/* Called on all ranks before the first run. At the end of a run each rank tells rank 0 whether it is asked to stop; nnc_job_stops is true
 * on rank 0 if one was. */
void nnc_job_watch(nnc_job *j, bool (*is_asked)(const volatile void *ctx), const volatile void *ctx);
bool nnc_job_stops(const nnc_job *j);
int nnc_job_rank(const nnc_job *j);
int nnc_job_world(const nnc_job *j);

/* Transport of collectives between GPUs. auto: NCCL if possible, otherwise staged, that is through host memory. */
typedef enum nnc_comm_by { NNC_COMM_auto, NNC_COMM_staged, NNC_COMM_nccl } nnc_comm_by;

typedef struct nnc_exec_options {
    const nnc_device_api *const *device; /* by kind: "cpu:1" is device 1 of the kind "cpu" */
    int n_device;
    const nnc_engine *const *engine; /* must include those that the plan names */
    int n_engine;
    const nnc_engine_env *env; /* of each device; further devices use the last one. Copied; what it points to outlives the executor */
    int n_env;
    /* fills weights of CMD_weight; NULL: inline, generated and file sources are read here */
    nnc_shared *shared;     /* NULL: nothing is shared, except with `states` */
    nnc_exec *states;       /* executor to share states with: those of the same name, type and device name. Init does not fill them. The
                             * two must not run at the same time. NULL: none */
    nnc_job *job;           /* NULL: all devices are this process's */
    nnc_comm_by comm_by;
    bool no_stage;          /* CPUs send to other ranks directly from the tensor, without a staging copy (sends.c) */
    bool no_replay;         /* submit every run command by command, even if the device could replay it */
} nnc_exec_options;

/* Memory allocated on the devices: the plan's sizes (checked by a test) without static values that other executors had already. */
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
/* Times of the complete phases. `first` lasts from submitting main to the end of the following nnc_exec_sync; 0 if only a pipe has run. */
nnc_exec_phases nnc_exec_first_run(const nnc_exec *e);

/* Opens devices, allocates the arenas, prepares engines, runs init. The plan must outlive it. */
nnc_status nnc_exec_create(const nnc_plan *p, const nnc_exec_options *o, nnc_exec **out, nnc_sink *sink) NNC_MUST;
void nnc_exec_destroy(nnc_exec *e);
nnc_exec_memory nnc_exec_requested(const nnc_exec *e, int device);
/* Memory of tensor t if this process's host can access it between runs; otherwise NULL. The host can use it in place; uploads from it do
 * nothing. */
void *nnc_exec_tensor(nnc_exec *e, int32_t t);
/* Copy to and from host buffers in the tensors' own memory order. Asynchronous; nnc_exec_sync waits. */
nnc_status nnc_exec_upload(nnc_exec *e, int input, const void *data);
nnc_status nnc_exec_get_input(nnc_exec *e, int input, void *data);
nnc_status nnc_exec_download(nnc_exec *e, int output, void *data);
/* Downloads `bytes` bytes of an output from `offset` on, for reading large results in pieces. */
nnc_status nnc_exec_download_part(nnc_exec *e, int output, int64_t offset, int64_t bytes, void *data);
/* Enqueues main and returns before it is done. After a failure call nnc_exec_sync first, since earlier commands may still run. */
nnc_status nnc_exec_run(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* Enqueues main, accumulate and then step. Outputs are computed from the old state, which is then updated. After a failure the state may be
 * partly updated. */
nnc_status nnc_exec_step(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* The same without step. Only accumulating states get new values. */
nnc_status nnc_exec_accumulate(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* Enqueues what nnc_exec_step (`step`) or nnc_exec_accumulate enqueues after main. nnc_exec_run must have been the last call. */
nnc_status nnc_exec_update(nnc_exec *e, bool step, nnc_sink *sink) NNC_MUST;
/* Copy the current value of the state of plan->update[i], like download and upload. */
nnc_status nnc_exec_get_state(nnc_exec *e, int i, int64_t offset, int64_t bytes, void *data);
nnc_status nnc_exec_set_state(nnc_exec *e, int i, const void *data);
nnc_status nnc_exec_sync(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* Allocates host memory for an input or output, 64-byte aligned: pinned if possible (*direct). Free it before e. */
nnc_status nnc_exec_host_alloc(nnc_exec *e, int64_t bytes, void **out, bool *direct, nnc_sink *sink) NNC_MUST;
void nnc_exec_host_free(nnc_exec *e, void *p, bool direct);
/* Runs sections first..last, from main on, once, with time stamps around every command: start_ns[] and end_ns[] by command of these
 * sections. `before` runs of main are submitted first. While the device computes them, the host submits the timed commands, which then
 * follow each other as in a replayed run. Devices of this process only, where before > 0. */
nnc_status nnc_exec_profile_behind(nnc_exec *e, int before, nnc_section first, nnc_section last, int64_t *start_ns,
    int64_t *end_ns, nnc_sink *sink) NNC_MUST;

/* Times by the driver's records of activity, which leave runs as they are: captured ones are replayed. From begin on, captures are made
 * again. NNC_E_DEVICE: there are no such records; nothing has changed, and `why` tells the reason. */
nnc_status nnc_exec_activity_begin(nnc_exec *e, nnc_section last, nnc_sink *why) NNC_MUST;
void nnc_exec_activity_end(nnc_exec *e);
/* Runs main..last once, as nnc_exec_profile_behind does. *host_ns: from submitting to the end; *whole: every command has a time. */
nnc_status nnc_exec_activity_run(nnc_exec *e, nnc_section last, int64_t *start_ns, int64_t *end_ns, int64_t *host_ns, bool *whole,
    nnc_sink *sink) NNC_MUST;

/* Whether submitted work runs asynchronously to the host, which can do other things until nnc_exec_sync. */
bool nnc_exec_returns_early(const nnc_exec *e);

/* ---- the next run's inputs ------------------------------------------------------------------------------------------ */

/* Uploads inputs of the next run while the current one computes (stage.c). On a device with its own memory it allocates a second buffer
 * for each input that is put. */
typedef struct nnc_stage nnc_stage;
nnc_status nnc_stage_create(nnc_exec *e, nnc_stage **out, nnc_sink *sink) NNC_MUST;
void nnc_stage_destroy(nnc_stage *q); /* before e; or NULL */
/* Begins to upload an input. `host` must not change until nnc_stage_take. */
nnc_status nnc_stage_put(nnc_stage *q, int input, const void *host, nnc_sink *sink) NNC_MUST;
/* Makes what was put the inputs of the following runs. The previous run may still compute. */
nnc_status nnc_stage_take(nnc_stage *q, nnc_sink *sink) NNC_MUST;

/* ---- overlapped copies --------------------------------------------------------------------------------------------- */

/* Runs of a plan with uploads before and downloads after each, on three streams of each device. One run's inputs are uploaded and
 * another's outputs downloaded while a third computes. Runs alternate between two slots of inputs and outputs on the device, ordered
 * by events only. The plan's own inputs and outputs (nnc_exec_upload, _download) are not used by a pipe. */
typedef struct nnc_pipe nnc_pipe;

enum { NNC_PIPE_SPANS = 64 };

/* Times of one run's parts by the device's clock: [0] begin, [1] end; -1: none. given_up and given_down are when its copies were
 * submitted, by the host's clock, which matches the device's within some microseconds. */
typedef struct nnc_pipe_span {
    int64_t up[2], run[2], down[2];
    int64_t given_up, given_down;
} nnc_pipe_span;

/* Host memory of the runs' inputs or outputs. Tensor k of run i is at at[k] + i * step[k], but at most at at[k] + last[k], so an
 * incomplete last part overlaps the one before. Outputs are written in the order of the runs. step NULL: the same memory for all runs;
 * last NULL: unlimited. Memory is not accessed after nnc_pipe_run has returned. */
typedef struct nnc_pipe_side {
    char *const *at;
    const int64_t *step, *last;
} nnc_pipe_side;
enum { NNC_UP, NNC_DOWN, NNC_WAYS }; /* inputs, outputs */

/* The executor must outlive it. NNC_E_FIT: its slots do not fit on a device beside the plan. */
nnc_status nnc_pipe_create(nnc_exec *e, nnc_pipe **out, nnc_sink *sink) NNC_MUST;
void nnc_pipe_destroy(nnc_pipe *p);
int64_t nnc_pipe_bytes(const nnc_pipe *p, int device); /* size of its slots on the device */
/* Executes n runs and waits. `span` is NULL, or gets the times of the first NNC_PIPE_SPANS runs. */
nnc_status nnc_pipe_run(nnc_pipe *p, const nnc_pipe_side io[NNC_WAYS], int64_t n, nnc_pipe_span *span, nnc_sink *sink) NNC_MUST;

#endif
