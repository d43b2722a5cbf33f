/* profile/profile.h -- nnc profile: where a run's time goes, by command, op, kernel, layer or device. Each has its least time and what
 * bounds it. Times are measured, or predicted for described hardware. */
#ifndef NNC_PROFILE_H
#define NNC_PROFILE_H

#include "check/check.h"

/* Kinds of rows of the table. */
typedef enum nnc_profile_by {
    BY_command, /* a command, with the layers that it computes */
    BY_layer, /* a layer; the time of a fused kernel is divided among its layers by their least times as written */
    BY_module, /* a prefix of layers' paths, with the time of all that is in it, divided as by layer */
    BY_op, /* a class of ops: conv3x3, matmul, ewise, ... (docs/hardware.md) */
    BY_kernel, /* a generated function, or a kind of library call */
    BY_part, /* of a training step: forward, loss, backward, optimizer, communication */
    BY_device, /* a stream of a device */
    BY_model, /* of several models in one run */
    BY__COUNT
} nnc_profile_by;
#define NNC_PROFILE_BY_WORDS "command|layer|module|op|kernel|part|device|model"
extern const char *const nnc_profile_by_names[BY__COUNT];

typedef enum nnc_profile_sort {
    SORT_time,
    SORT_order,
    SORT_gap, /* time above the least */
    SORT_change /* difference from --against, of either sign */
} nnc_profile_sort;

/* Clock of a GPU's commands. */
typedef enum nnc_gpu_times {
    GPU_TIMES_auto, /* CUPTI if it is available, otherwise events */
    GPU_TIMES_events
} nnc_gpu_times;

typedef struct nnc_profile_options {
    nnc_profile_by by;
    nnc_profile_sort sort;
    int top; /* rows that are printed; 0: all */
    /* A cycle is `wait` runs without profiling, those of nnc_compare_options.warmup (0: 2), whose profile is dropped, and `active` ones (0:
     * about 200 ms of them, 5 to 50). There are `repeat` cycles (0: 1). */
    int wait, active, repeat;
    const char *const *
        model; /* names of n_model models that run together, which outlive the profile; 0: there is one */
    int n_model;
    nnc_gpu_times gpu_times;
} nnc_profile_options;

/* A command that computes, copies or communicates. */
typedef struct nnc_profile_cmd {
    int32_t cmd;
    double ms, least_ms;
    roof_level bound;
    int64_t alive,
        allocated; /* bytes of its device's arena: in use while it runs, and in use from it on */
} nnc_profile_cmd;

/* ---- power.c ---- */

enum { NNC_METER_COUNTERS = 64 };
/* A counter of energy: of a GPU, or of a folder of powercap, after range_uj from 0 again. */
typedef struct nnc_meter_counter {
    char folder[256];
    struct nvml_device_of *gpu; /* NULL: it is RAPL's */
    int64_t range_uj, begun_uj;
} nnc_meter_counter;
typedef struct nnc_meter {
    int n, packages, gpus; /* n 0: power cannot be measured */
    bool dram;
    int64_t begun_ns;
    char why[384]; /* n 0: why */
    nnc_meter_counter counter[NNC_METER_COUNTERS];
} nnc_meter;
/* Power of the devices of a plan while something runs. */
typedef struct nnc_power {
    double watts, idle_watts; /* mean, and before; NaN: not measured */
    char of[64]; /* "1 CPU package and DRAM by RAPL" */
    char why[384]; /* why it was not measured; "": it was */
    nnc_meter meter;
} nnc_power;
/* Finds the counters of the plan's devices on this host; p NULL: they are on several. powercap: the folder that stands for
 * /sys/class/powercap; NULL: that, or what NNC_POWERCAP names. */
void nnc_meter_open(nnc_meter *m, const nnc_plan *p, const char *powercap);
void nnc_meter_close(nnc_meter *m);
void nnc_meter_begin(nnc_meter *m);
double nnc_meter_joules(const nnc_meter *m); /* since nnc_meter_begin; NaN: it cannot be measured */
/* Begins to measure, after the power without runs with `idle` (0.2 s where there are counters); nnc_power_end ends. */
void nnc_power_begin(nnc_power *w, const nnc_plan *p, const char *powercap, bool idle);
void nnc_power_end(nnc_power *w);
/* Words: watts, and joules of a run that takes run_ms; or why there are none. And a member "power". */
void nnc_power_put(const nnc_power *w, double run_ms, nnc_text *out);
void nnc_power_json(const nnc_power *w, double run_ms, nnc_json_writer *out);

/* ---- profiles ---- */

/* A profile of a file (--against). */
typedef struct nnc_profile_old_row {
    const char *name;
    double ms;
} nnc_profile_old_row;
typedef struct nnc_profile_old {
    const char *file, *model, *target; /* file: borrowed */
    int threads;
    bool predicted;
    nnc_profile_by by;
    double wall_ms, idle_ms, lanes;
    int n;
    nnc_profile_old_row *row; /* but for that of the idle time */
    nnc_arena arena;
} nnc_profile_old;

/* Commands of a run with their times. The times of a lane (a device's stream) and its idle time add up to wall_ms. */
typedef struct nnc_profile {
    const nnc_artifact *artifact;
    const nnc_target *target; /* of device 0; owned by the env */
    bool predicted;
    int active; /* runs that were profiled; times are means over the half of them whose wall times are in the middle */
    int lanes; /* streams that have commands */
    double wall_ms,
        median_ms; /* of a profiled run; of a run without profiling, NaN where predicted */
    double idle_ms; /* of all lanes */
    nnc_ratio overhead; /* time of a profiled run to that of another; NaN: not measured */
    double
        cpu_share; /* of the time that threads were ready in runs without profiling, the share that they ran; NaN: unknown */
    double
        outside_ms; /* of a profiled run before its first and after its last command: submitting and waiting; 0 with events of GPUs */
    nnc_tracing_clock clock; /* measured: what the times are by */
    nnc_power power; /* of runs without profiling */
    nnc_exec_phases first_run; /* of the session, before its second run */
    int cycles;
    double *cycle_ms; /* mean wall time of each cycle */
    nnc_shares *device; /* by device: ps of the mean run */
    int world; /* ranks that the devices belong to */
    const char *const *model; /* of the options */
    int n_model;
    double together_ms; /* while commands of at least two models run */
    const nnc_together
        *together; /* several models, beside each alone; NULL: not compared. Set by the caller */
    nnc_rates rates;
    const nnc_profile_old
        *old; /* borrowed: what rows of its kind are compared with; NULL: nothing */
    int n;
    nnc_profile_cmd *cmd;
    nnc_arena arena;
} nnc_profile;

/* Profiles runs of s, a training step with `step`, in its steady state. t: how runs without profiling are timed. The caller frees
 * out->arena, also after a failure. */
nnc_status nnc_profile_measure(nnc_env *e, nnc_session *s, bool step, const nnc_compare_options *t,
    const nnc_profile_options *o, nnc_profile *out, nnc_sink *sink) NNC_MUST;
/* The same by the simulator on the hardware file that e was opened with. */
nnc_status nnc_profile_predict(nnc_env *e, const nnc_artifact *a, bool step,
    const nnc_profile_options *o, nnc_profile *out, nnc_sink *sink) NNC_MUST;

/* A row: what its commands, or a share of each, have in common. */
typedef struct nnc_profile_row {
    const char *name, *shape, *engine,
        *op; /* shape: of the first command's result; engine, op: of all, or "" */
    int calls;
    bool divided; /* it has a share of commands of several layers */
    double ms, self_ms; /* self_ms: without the modules in it */
    double least_ms, bound_ms[LEVEL__COUNT]; /* bound_ms: least time by what bounds it */
    double flops, bytes, allocated; /* allocated: bytes of arenas */
    int64_t alive; /* most bytes in use in an arena while one of its commands runs */
    double
        was_ms; /* with --against: time of the row of that name; NaN: there is none. A row that only the file has is without calls */
    int32_t first; /* its first command */
    double *on; /* ms by device; NULL: the plan has one */
} nnc_profile_row;
typedef struct nnc_profile_rows {
    int n;
    nnc_profile_row *row;
    nnc_arena arena;
} nnc_profile_rows;
/* Groups the commands, sorted. The caller frees out->arena, also after a failure. */
nnc_status nnc_profile_group(const nnc_profile *p, const nnc_profile_options *o,
    nnc_profile_rows *out, nnc_sink *sink) NNC_MUST;
/* The bound of most of the row's least time. */
roof_level nnc_profile_bound(const nnc_profile_row *r);

/* against.c: reads a profile that nnc profile --format=json has printed, with rows of the kind `by`. The caller frees out->arena, also
 * after a failure. */
nnc_status nnc_profile_read(
    const char *file, nnc_profile_by by, nnc_profile_old *out, nnc_sink *sink) NNC_MUST;
/* Sets was_ms of all rows and appends those that only `old` has; *cap: capacity of rows->row. False: out of memory. */
bool nnc_profile_match(const nnc_profile_old *old, nnc_profile_rows *rows, size_t *cap);
/* Whether rows of this kind have was_ms. */
static inline bool nnc_profile_compared(const nnc_profile *p, nnc_profile_by by)
{
    return p->old && p->old->by == by;
}
/* By how much a row takes longer than before; all of it where it is new. */
double nnc_profile_change(const nnc_profile_row *r);
/* Appends both times of the run, the largest differences, and how many rows only one of them has. */
void nnc_profile_put_against(const nnc_profile *p, const nnc_profile_rows *rows, nnc_text *out);

/* Phases of a program, from the model to its steady state: the time of each. */
typedef enum nnc_profile_phase {
    PHASE_compile, /* 0: an artifact */
    PHASE_load, /* devices, memory, libraries, machine code, weights */
    PHASE_pack, /* weights that are packed or folded */
    PHASE_first,
    PHASE_capture,
    PHASE_steady, /* the median of later runs */
    PHASE__COUNT
} nnc_profile_phase;
extern const char *const nnc_profile_phases[PHASE__COUNT];
double nnc_profile_phase_ms(const nnc_profile *p, nnc_profile_phase phase);

/* Appends the report. */
nnc_status nnc_profile_print(nnc_env *e, const nnc_profile *p, const nnc_profile_options *o,
    nnc_format f, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Appends a self-contained HTML page: the verdict, commands as bars in their order, and tables of all kinds of rows. */
nnc_status nnc_profile_html(
    nnc_env *e, const nnc_profile *p, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* devices.c: how each device and the models of the run spend it. Nothing is appended as text where there is one of each. */
void nnc_profile_devices_text(nnc_text *t, const nnc_profile *p);
void nnc_profile_devices_json(nnc_json_writer *w, const nnc_profile *p);
/* Devices that the row has time on, their mean, and the slowest one. */
typedef struct nnc_profile_spread {
    int devices, slowest;
    double mean_ms, slowest_ms;
} nnc_profile_spread;
nnc_profile_spread nnc_profile_spread_of(const nnc_profile *p, const nnc_profile_row *r);
/* Appends "cpu:1" or, over several ranks, "cpu:1, rank 1". */
void nnc_profile_put_device(nnc_text *t, const nnc_profile *p, int d);
/* Picoseconds of a run in which commands of at least two of its models run; 0 where there is one. */
nnc_status nnc_profile_overlap(
    const nnc_plan_times *t, const nnc_profile_options *o, int64_t *ps, nnc_sink *sink) NNC_MUST;
/* print.c: members about the whole profile. */
void nnc_profile_head_json(nnc_json_writer *w, nnc_env *e, const nnc_profile *p);
/* The rows as elements of a list, or of CSV; the last one is the idle time. */
void nnc_profile_rows_json(
    nnc_json_writer *w, const nnc_profile *p, nnc_profile_by by, const nnc_profile_rows *rows);
/* A member "against" about the file that rows of its kind are compared with. */
void nnc_profile_against_json(
    nnc_json_writer *w, const nnc_profile *p, const nnc_profile_rows *rows);
/* A sentence or two: what the time is bound by, by how much, and the commands whose time is furthest above the least. */
void nnc_profile_verdict(const nnc_profile *p, nnc_text *out);

#endif
