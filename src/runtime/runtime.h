/* runtime/runtime.h -- runs a plan. The executor walks commands; it decides nothing, allocates nothing while running
 * and touches no graph. */
#ifndef NNC_RUNTIME_H
#define NNC_RUNTIME_H

#include "base/base.h"
#include "plan/plan.h"

/* ---- device.h: one table of functions per kind of device -------------------------------------------------------- */

typedef struct nnc_device nnc_device;   /* one device, e.g. cpu:1; used by one executor at a time */
typedef struct nnc_stream nnc_stream;   /* an in-order queue of a device, asynchronous to the host */
typedef struct nnc_event nnc_event;
typedef struct nnc_capture nnc_capture; /* work of one run, written down */

/* Work given to a stream: a prepared engine handle and its arguments, which stay where they are until the work is done. */
typedef struct nnc_work {
    nnc_status (*run)(void *handle, void *const *args, void *work);
    void *handle;
    void *const *args;
    int n_arg;
    void *work;
    const char *name; /* the user's layers, for messages; outlives the work; may be NULL */
    int64_t flops, bytes; /* of the command, and its class ("conv", ...; may be NULL): what a device that only simulates prices it by */
    const char *op_class;
} nnc_work;

/* All calls return a status; asynchronous failures are sticky in the stream and come out of sync. Streams of a device may be used from
 * one host thread. Memory is 64-byte aligned and belongs to its device until freed. */
typedef struct nnc_device_api {
    const char *kind; /* "cpu", "cuda", "sim" */
    bool host_memory; /* the host may read and write what alloc returns */
    nnc_status (*open)(int ordinal, nnc_device **out, nnc_sink *sink);
    void (*close)(nnc_device *d);
    /* Makes d the calling thread's device, for engines that load and unload what they run there; NULL: engines do not ask. */
    nnc_status (*use)(nnc_device *d);
    nnc_status (*alloc)(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink); /* 0 bytes: NULL, fine; NNC_E_FIT when full */
    void (*free)(nnc_device *d, void *p);
    /* Host memory that copies to and from d need not pass through other memory for, so that they run beside the host and the device;
     * NNC_E_FIT: there is none to be had. Other memory may be copied, too. */
    nnc_status (*host_alloc)(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink);
    void (*host_free)(nnc_device *d, void *p);
    /* threads: of the parallel loops of its work, where the device has them (1: none). alone: the host gives work to this stream only, as
     * long as it creates no other on d, and waits for it by sync; its work may be done no earlier than that. */
    nnc_status (*stream_create)(nnc_device *d, int threads, bool alone, nnc_stream **out, nnc_sink *sink);
    void (*stream_destroy)(nnc_stream *s); /* waits */
    nnc_status (*event_create)(nnc_device *d, nnc_event **out, nnc_sink *sink);
    void (*event_destroy)(nnc_event *e); /* after sync or destroy of the streams that recorded it or wait for it */
    nnc_status (*upload)(nnc_stream *s, void *dst, const void *src, int64_t bytes);   /* src must stay valid until sync */
    nnc_status (*download)(nnc_stream *s, void *dst, const void *src, int64_t bytes);
    nnc_status (*copy)(nnc_stream *s, nnc_device *dst_dev, void *dst, const void *src, int64_t bytes); /* between or within devices of the
        kind; executors copy between kinds through the host's memory, which waits */
    nnc_status (*launch)(nnc_stream *s, const nnc_work *w);
    nnc_status (*record)(nnc_stream *s, nnc_event *e); /* resets e; it fires when all before it is done */
    nnc_status (*wait)(nnc_stream *s, nnc_event *e);   /* later work of s waits for the latest record of e */
    nnc_status (*sync)(nnc_stream *s, nnc_sink *sink); /* host waits for s; returns the first failure and clears it */
    /* nanoseconds at which each recorded event fired, device clock; -1 = not yet */
    int64_t (*event_ns)(const nnc_event *e);
    /* What a device can be given once and told to do again, cheaper than command by command; all NULL where it is none. Between begin
     * and end nothing runs: what s is given is written down, and what other streams are given from where they wait for an event of
     * those that are written down. s must wait for them all before the end. No sync, upload, download or alloc in between. A failure
     * comes out of begin or end; then nothing was written down, all streams are as before and no later call sees it. */
    nnc_status (*capture_begin)(nnc_stream *s, nnc_sink *sink);
    nnc_status (*capture_end)(nnc_stream *s, nnc_capture **out, nnc_sink *sink);
    nnc_status (*replay)(nnc_stream *s, nnc_capture *c); /* all of it, in s's turn */
    void (*capture_destroy)(nnc_capture *c);             /* after sync of the streams that replay it */
} nnc_device_api;

extern const nnc_device_api nnc_device_cpu, nnc_device_cuda;

/* ---- executor --------------------------------------------------------------------------------------------------- */

typedef struct nnc_exec nnc_exec; /* a loaded plan */

typedef struct nnc_exec_options {
    const nnc_device_api *const *device; /* by kind: "cpu:1" is device 1 of the kind "cpu" */
    int n_device;
    const nnc_engine *const *engine; /* those whose names the plan holds must be here */
    int n_engine;
    /* fills weights of CMD_weight; NULL: inline, generated and file sources are read here */
    const char *weight_dir; /* folder that relative weight files are under, NULL = as written */
    bool no_replay;         /* give every run command by command, even where the device could replay it */
} nnc_exec_options;

/* What was asked of the devices; equals the plan to the byte (a test checks it). */
typedef struct nnc_exec_memory { int64_t arena, persist, init; } nnc_exec_memory;

/* Where the time goes before the second run, ns by the host's clock. Rows: how it is printed, its key in JSON. */
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
/* Of the run's phases, those that are over; first: from giving main to the end of the nnc_exec_sync after it;
 * 0 where a pipe alone has run it. */
nnc_exec_phases nnc_exec_first_run(const nnc_exec *e);

/* Opens devices, allocates the arenas, prepares engines, runs init. The plan must outlive it. */
nnc_status nnc_exec_create(const nnc_plan *p, const nnc_exec_options *o, nnc_exec **out, nnc_sink *sink) NNC_MUST;
void nnc_exec_destroy(nnc_exec *e);
nnc_exec_memory nnc_exec_requested(const nnc_exec *e, int device);
/* Host buffers in the tensors' own memory order. Asynchronous unless followed by nnc_exec_sync. */
nnc_status nnc_exec_upload(nnc_exec *e, int input, const void *data);
nnc_status nnc_exec_download(nnc_exec *e, int output, void *data);
/* Bytes offset.. of an output: large results are looked at in pieces. */
nnc_status nnc_exec_download_part(nnc_exec *e, int output, int64_t offset, int64_t bytes, void *data);
/* Enqueues main; returns before it is done. After a failure sync before anything else: earlier commands may still run. */
nnc_status nnc_exec_run(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* Enqueues main and then step: the outputs are those of the old state, and the state is the new one afterwards. After a failure the state
 * may be part old and part new. */
nnc_status nnc_exec_step(nnc_exec *e, nnc_sink *sink) NNC_MUST;
nnc_status nnc_exec_sync(nnc_exec *e, nnc_sink *sink) NNC_MUST;
/* Host memory for an input or output: such as copies run fastest with (*direct), or else any. 64-byte aligned; free it before e. */
nnc_status nnc_exec_host_alloc(nnc_exec *e, int64_t bytes, void **out, bool *direct, nnc_sink *sink) NNC_MUST;
void nnc_exec_host_free(nnc_exec *e, void *p, bool direct);
/* Runs main once with a clock around every command: ns[commands of main]. */
nnc_status nnc_exec_profile(nnc_exec *e, int64_t *start_ns, int64_t *end_ns, nnc_sink *sink) NNC_MUST;

/* ---- copies beside computing --------------------------------------------------------------------------------------- */

/* Runs of a plan with copies up before and down after each, on three streams of each device: what one run needs goes up, and what
 * another has made comes down, while a third computes. Runs take turns with two slots of inputs and outputs on the device; order is
 * held by events alone. The plan's own inputs and outputs (nnc_exec_upload, _download) are not meant while a pipe is in use. */
typedef struct nnc_pipe nnc_pipe;

enum { NNC_PIPE_SPANS = 64 };

/* When the parts of one run happened, by the device's clock; and when the host gave its copies, by the host's, which the device's
 * follows to some microseconds. [0] begin, [1] end; -1: there was none. */
typedef struct nnc_pipe_span {
    int64_t up[2], run[2], down[2];
    int64_t given_up, given_down;
} nnc_pipe_span;

/* Host memory of run i: in[k] + i * in_step[k] for input k, but no later than in[k] + in_last[k], so that a last run whose part is not
 * whole shares some with the one before; out likewise, written in the order of the runs. Steps NULL: the same for all runs. A memory is
 * left alone until nnc_pipe_run has returned. */
typedef struct nnc_pipe_io {
    char *const *in, *const *out;
    const int64_t *in_step, *out_step;
    const int64_t *in_last, *out_last; /* NULL: as far as the steps go */
} nnc_pipe_io;

/* The executor must outlive it. NNC_E_FIT: its slots do not fit on a device beside the plan. */
nnc_status nnc_pipe_create(nnc_exec *e, nnc_pipe **out, nnc_sink *sink) NNC_MUST;
void nnc_pipe_destroy(nnc_pipe *p);
int64_t nnc_pipe_bytes(const nnc_pipe *p, int device); /* what its slots take on the device */
/* Does n runs one after the other, and waits. `span`: NULL, or of the first NNC_PIPE_SPANS of them. */
nnc_status nnc_pipe_run(nnc_pipe *p, const nnc_pipe_io *io, int64_t n, nnc_pipe_span *span, nnc_sink *sink) NNC_MUST;

#endif
