/* report/report.h -- reports on compiled models and machines (explain, emit, dump, doctor, devices), timelines and traces, and the
 * formatting that all reports share. */
#ifndef NNC_REPORT_H
#define NNC_REPORT_H

#include "picture/picture.h"
#include "session/session.h"
#include "sim/sim.h"

/* Replaces *m by the result of these passes, in this order (nnc opt). n_pass 0: those of the level. */
nnc_status nnc_optimize(nnc_env *e, nnc_model **m, const char *const *pass, int n_pass, const nnc_compile_options *o,
    nnc_sink *sink) NNC_MUST;
/* Names of the passes, and of the stages of nnc_emit_text; NULL: beyond the last. */
const char *nnc_pass_name(int i);
const char *nnc_stage_name(int i);

/* Append the phases before the second run ("first run" in docs/formats.md), as a line of text or as members of an object. */
void nnc_report_first_run(const nnc_session *s, nnc_text *out);
void nnc_report_first_run_json(const nnc_session *s, nnc_json_writer *out);

/* ---- training steps -------------------------------------------------------------------------------------------------- */

/* Parts of a training step (step_parts.c). Communication: copies between devices and collectives of any of the others. */
typedef enum nnc_part { PART_forward, PART_loss, PART_backward, PART_optimizer, PART_communication, PART__COUNT } nnc_part;
extern const char *const nnc_part_names[PART__COUNT];

/* Measures the parts' times as shares of the step (nnc_shares), summed over devices. Each is a median over some steps, measured command by
 * command. */
nnc_status nnc_session_part_times(nnc_session *s, double ms[PART__COUNT], nnc_sink *sink) NNC_MUST;
/* Append the parts' times, as a line of text or as a member "parts" of an object. A part whose ops are all in kernels of other parts has no
 * commands. */
void nnc_report_parts(const nnc_session *s, const double ms[PART__COUNT], nnc_text *out);
void nnc_report_parts_json(const double ms[PART__COUNT], nnc_json_writer *out);

/* NNC_E_FIT: a needs more memory than e's memory_limit, or together with `beside` bytes more than this machine has free at the moment. GPUs
 * without a limit fail when they allocate. */
nnc_status nnc_check_room(const nnc_env *e, const nnc_artifact *a, int64_t beside, nnc_sink *sink) NNC_MUST;

/* Measures one run of s (with `step`, a training step) command by command on all ranks' devices. Writes it to `file` in Chrome's trace
 * format. `hardware`, a hardware file or NULL, adds the simulator's prediction of the plan on its devices. */
nnc_status nnc_session_trace(nnc_env *e, nnc_session *s, bool step, const char *file, const char *hardware,
    nnc_sink *sink) NNC_MUST;
/* Draws the planned memory of each device over time, as SVG. */
nnc_status nnc_draw_memory(nnc_env *e, const nnc_artifact *a, const char *file, nnc_sink *sink) NNC_MUST;

/* rooms.c: whether the plan fits the memory of the devices. */
bool nnc_fits_devices(const nnc_env *e, const nnc_artifact *a);
/* Bytes that tensors may take on device d. */
int64_t nnc_device_room(const nnc_env *e, int d);
/* Bytes that NCCL's buffers take on device d beside the plan's own, by estimate; 0 with --comm=staged. */
int64_t nnc_nccl_bytes(const nnc_env *e, const nnc_plan *p, int d);
/* Memory of one device, or of those that share it. */
typedef struct nnc_room {
    const char *name;
    int64_t need, have, context; /* context: bytes beside `have`, of a GPU's context and libraries or of this program */
    bool described; /* it is from a hardware file */
    bool host;      /* this machine's CPU */
} nnc_room;
int64_t nnc_batches_bytes(const nnc_plan *p); /* bytes of samples that nnc train holds beside the inputs of a step */
int nnc_find_rooms(const nnc_env *e, const nnc_artifact *a, nnc_room *to); /* fills to[NNC_MAX_DEVICES], returns their number */
bool nnc_rooms_suffice(const nnc_room *r, int n);
void nnc_put_room(nnc_text *t, const nnc_env *e, const nnc_room *r, bool named); /* "Fits: it needs ..." */

/* ---- step_parts.c: parts of a training step ---- */

/* Appends " (8 of 9 commands also compute gradients of weights)", about the commands of the optimizer, or nothing if none does. */
void nnc_put_gradient_updates(const nnc_plan *p, nnc_text *out);
/* Finds the part of each command, part[i]: communication, or by its layers X/backward, /loss, /optimizer, all others forward. A kernel of
 * several parts belongs to the part that first reads its result or, if no command does, to the last of them. */
nnc_status nnc_step_parts(const nnc_plan *p, uint8_t *part, nnc_sink *sink) NNC_MUST;
nnc_part nnc_layer_part(const char *path); /* of one layer */
nnc_part nnc_layer_part_n(const char *path, size_t n); /* of n characters */

/* ---- emit.c, emit_cuda.c, dump.c: stages of a compiled model ---- */

/* A translation unit: kernels that are compiled together, for one target. */
typedef struct nnc_unit {
    int device; /* first device with the target */
    int n;
    const int *kernel;
} nnc_unit;
/* Divides the plan's kernels for GPUs, or those for CPUs, into units of at most `size` functions, as the planner does. Returns their
 * number; -1: out of memory. The caller frees *out. */
int nnc_plan_units(const nnc_plan *p, bool gpu, int size, nnc_unit **out);
/* Appends the name of device d, with its target if the plan has several: "cuda:0 (cuda:sm_90)". */
void nnc_put_device(nnc_text *t, const nnc_plan *p, int d);
bool nnc_several_targets(const nnc_plan *p);
/* Parses the unit's kernels from their text into k[], in `a`. */
nnc_status nnc_plan_kernels(const nnc_plan *p, const nnc_unit *u, nnc_kernel **k, nnc_arena *a, nnc_sink *sink) NNC_MUST;

/* Emits stage "cuda", "ptx" or "cubin" of all units. */
nnc_status nnc_cuda_emit(nnc_env *e, const nnc_artifact *a, const char *stage, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Emits one translation unit of a plan for a GPU: EMIT_cuda (annotated) or EMIT_ptx. */
nnc_status nnc_cuda_emit_unit(
    nnc_env *e, const nnc_artifact *a, const nnc_unit *u, nnc_emit what, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Appends the CUDA C of the unit's kernels, size bytes and NUL-terminated, with their layers, tensors and remarks in the
 * comment above each. */
void nnc_cuda_annotate(nnc_text *out, const nnc_artifact *a, const nnc_unit *u, const char *source, size_t size);
/* Describes the kernels of unit u, number `number` of the plan: launches with their layers. If machine code is readable, also
 * registers, stack, instructions and access widths. sm: the code's architecture. */
nnc_status nnc_cuda_describe(const nnc_plan *p, const nnc_unit *u, int number, int sm, nnc_text *out, nnc_sink *sink) NNC_MUST;

/* ---- cuda.c: parts of doctor and devices ---- */

void nnc_doctor_cuda_text(nnc_text *t);
void nnc_doctor_cuda_json(nnc_json_writer *w); /* a member "cuda" */
void nnc_devices_cuda_text(const nnc_target *g, nnc_text *t);
void nnc_devices_gpus_text(nnc_text *t); /* this machine's GPUs, if any */

/* ---- first_run.c ---- */

void nnc_put_first_run(nnc_text *t, const char *before, const nnc_exec_phases *p); /* a line, after `before` */
/* The parts of loading: ": open device 1.2, allocate 0.3". */
void nnc_put_loading(nnc_text *t, const nnc_exec_phases *p);
void nnc_put_first_run_json(nnc_json_writer *w, const nnc_exec_phases *p);

enum { REPORT_WIDTH = 118 }; /* columns of text reports */

/* Appends a union of layer paths joined by '+', abbreviated: layers with the same parent share it, repeats become a range:
 * "/layers/0/conv1[0..1]/{0/conv,3/relu} + /layers/1/flatten". Longer than `width` (0: unlimited): first ones + ... N more ... + last. */
void nnc_put_layers(nnc_text *t, const char *joined, int width);
/* The same, padded with blanks to at least `width`. */
void nnc_put_layers_column(nnc_text *t, const char *joined, int width);
/* Appends bytes right-aligned in `width` columns, with_sign with + or -. */
void nnc_put_bytes_column(nnc_text *t, int64_t bytes, int width, bool with_sign);
/* Removes trailing blanks. */
void nnc_trim(nnc_text *t);
/* Appends the words of `s`, wrapped at `width` columns; the first line starts at column `at`, the others at `indent`. No final
 * newline. */
void nnc_put_wrapped(nnc_text *t, const char *s, int at, int indent, int width);
/* The plural ending: "1 launch", "2 launches". */
static inline const char *nnc_plural(int64_t n, const char *ending)
{
    return n == 1 || n == -1 ? "" : ending;
}
/* Compares layer paths in the order of the file, with digits as numbers. */
int nnc_compare_paths(const char *a, const char *b);

/* ---- timeline.c ---- */

/* Makes an empty timeline with a lane for each stream of the plan's devices. */
nnc_status nnc_timeline_of_plan(const char *name, const nnc_plan *p, nnc_timeline **out, nnc_sink *sink) NNC_MUST;

/* Start and end times of the plan's commands first .. first + n - 1. start < 0: the command did not run here. */
typedef struct nnc_plan_times {
    const nnc_plan *plan;
    int32_t first;
    int n;
    const int64_t *start_ps, *end_ps;
    int64_t offset_ps; /* added to all times */
    int32_t micro;     /* number of this run in an iteration */
} nnc_plan_times;
/* Adds spans for the commands, arrows for copies between devices, and the memory in use on each device. */
nnc_status nnc_timeline_add_run(nnc_timeline *t, const nnc_plan_times *r, nnc_sink *sink) NNC_MUST;

/* ---- shares.c ---- */

/* Shares of a device's time in a run, ps. Parts, waits and idle add up to the run, from its first start to its last end. */
typedef struct nnc_shares {
    int64_t part[PART__COUNT]; /* PART_communication: exposed, while the device computes nothing */
    int64_t waits;             /* in collectives, for the last participant, while it does nothing else */
    int64_t idle;
    int64_t hidden;            /* communication while the device computes */
} nnc_shares;
/* Adds those of a run, n times, to device[n_device]. */
nnc_status nnc_add_shares(const nnc_plan_times *t, int64_t n, nnc_shares *device, nnc_sink *sink) NNC_MUST;
void nnc_sum_shares(nnc_shares *sum, const nnc_shares *of, int n); /* adds of[n] */
int64_t nnc_shares_computing(const nnc_shares *s);
int64_t nnc_shares_total(const nnc_shares *s);
/* Runs and times sections first .. last command by command, and adds the shares of each device; the sections before them must have run.
 * behind: NULL, or the session's env for nnc_tracing_behind. */
nnc_status nnc_session_device_shares(nnc_session *s, const nnc_env *behind, nnc_section first, nnc_section last, int times,
    nnc_shares *device, nnc_sink *sink) NNC_MUST;
/* The same, summed over devices. */
nnc_status nnc_session_shares(nnc_session *s, nnc_section first, nnc_section last, nnc_shares *sum, nnc_sink *sink) NNC_MUST;

/* Sets met[] by collective: when its last participant starts, ps; INT64_MIN: it did not run. Until then the others wait. */
void nnc_find_meetings(const nnc_plan_times *t, int64_t *met);
/* Predicts start and end times of all commands by the targets' cost rules. Streams run in order, with waits for events and collectives. */
void nnc_plan_clock(const nnc_env *e, const nnc_plan *p, nnc_section first, nnc_section last, int64_t *start_ps, int64_t *end_ps);

/* ---- trace.c ---- */

/* A measurement of consecutive runs of a session, command by command, on one time axis. */
typedef struct nnc_tracing nnc_tracing;
nnc_status nnc_tracing_create(nnc_session *s, nnc_tracing **out, nnc_sink *sink) NNC_MUST;
void nnc_tracing_destroy(nnc_tracing *x);
NNC_OWNER(nnc_tracing, nnc_tracing_destroy)
/* GPUs: takes the times of sections main..last from CUPTI. Else, or with `events`, submits the commands behind other runs, so that they
 * need not wait for the host. */
void nnc_tracing_behind(nnc_tracing *x, const nnc_env *e, nnc_section last, bool events);
/* What times are by. Runs fall back to events where CUPTI keeps losing records. */
typedef struct nnc_tracing_clock {
    bool activity; /* CUPTI's records of activity */
    int64_t host_ns; /* activity: time of the latest run for the host */
    char why[200]; /* GPUs: why not; "" where nnc_tracing_behind was not called */
} nnc_tracing_clock;
const nnc_tracing_clock *nnc_tracing_clock_of(const nnc_tracing *x);
/* Runs and measures these sections as nnc_exec_profile_behind does. micro: micro-batch in the iteration; -1: none. */
nnc_status nnc_tracing_run(nnc_tracing *x, nnc_section first, nnc_section last, int micro, nnc_sink *sink) NNC_MUST;
/* Measures these sections without adding them: by command, ps after the first command of the tracing; -1: it did not run here. */
nnc_status nnc_tracing_times(nnc_tracing *x, nnc_section first, nnc_section last, int64_t *start_ps, int64_t *end_ps,
    nnc_sink *sink) NNC_MUST;
/* Writes the measured runs. hardware: adds as many predicted runs on these devices, all but the last one up to accumulate; NULL: none. */
nnc_status nnc_tracing_write(const nnc_tracing *x, const nnc_env *e, const char *file, const char *hardware, nnc_section last, int runs,
    nnc_sink *sink) NNC_MUST;
nnc_status nnc_timeline_add_simulated(nnc_timeline *t, const nnc_plan *p, const nnc_sim_plan *s, int first, int end,
    nnc_sink *sink) NNC_MUST;

bool nnc_is_svg(const char *file); /* whether its name ends in .svg */
/* Writes timelines into one Chrome trace or, if the file's name ends in .svg, one Gantt chart. */
nnc_status nnc_write_trace(const nnc_timeline *const *t, int n, const char *title, const char *file, nnc_sink *sink) NNC_MUST;
/* Writes text to `file`. Its folder must exist. */
nnc_status nnc_write_picture(const nnc_text *t, const char *file, nnc_sink *sink) NNC_MUST;

/* page.c: begins an HTML page without references to other files; own: style beside that of all pages. */
void nnc_page_begin(nnc_text *out, const char *title, const char *own);
/* Ends it: buttons, a field to search and a table, `after` them, and the page's own script, which finds the data as the object P. */
void nnc_page_end(nnc_text *out, const char *after, const char *json, const char *own);

/* Draws the text with dot and appends the SVG. NNC_E_DEVICE: dot is not installed, or failed. */
nnc_status nnc_dot_to_svg(const nnc_text *dot, nnc_text *svg, nnc_sink *sink) NNC_MUST;
/* Writes the text to `file` or, if its name ends in .svg, dot's drawing of it. */
nnc_status nnc_write_dot(const nnc_text *dot, const char *file, nnc_sink *sink) NNC_MUST;

typedef enum nnc_fill {
#define FILL(name, doc) FILL_##name,
#include "report/memory.def"
    FILL__COUNT
} nnc_fill;
extern const char *const nnc_fill_names[FILL__COUNT], *const nnc_fill_docs[FILL__COUNT];

bool nnc_is_step(const nnc_plan *p); /* whether it has a section step, or gradients of inputs */
int32_t nnc_backward_begin(const nnc_plan *p); /* the first command of the step's backward pass */
/* Bytes of persistent memory that the optimizer's states take. */
int64_t nnc_optimizer_bytes(const nnc_plan *p, int device);
/* Finds the bytes of each kind on a device. The first two kinds are its persistent memory; the others add up to the arena's lower bound.
 * False: out of memory. */
bool nnc_find_fill(const nnc_plan *p, int device, int64_t fill[FILL__COUNT]);

/* Finds, by tensor, the kind (nnc_fill) of each root that is live at the peak of this device's arena. Other tensors have FILL__COUNT.
 * NULL: out of memory. */
uint8_t *nnc_find_kinds(const nnc_plan *p, int device);

/* Whether only the optimizer reads the arena's tensor t (a root), apart from the command that computes it. */
bool nnc_is_gradient(const nnc_plan *p, int32_t t);

#endif
