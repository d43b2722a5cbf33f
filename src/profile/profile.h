/* profile/profile.h -- nnc profile: where the time of a run goes, by command, op, kernel, layer or device, beside the least time of each
 * and what bounds it; measured, or predicted for described hardware. */
#ifndef NNC_PROFILE_H
#define NNC_PROFILE_H

#include "check/check.h"

/* What a row of the table is. */
typedef enum nnc_profile_by {
    BY_command, /* a command, with the layers that it computes */
    BY_layer,   /* a layer; the time of a fused kernel is divided among its layers by their least times as written */
    BY_module,  /* a prefix of layers' paths, with the time of all that is in it, divided as by layer */
    BY_op,      /* a class of ops: conv3x3, matmul, ewise, ... (docs/hardware.md) */
    BY_kernel,  /* a generated function, or a kind of library call */
    BY_part,    /* of a training step: forward, loss, backward, optimizer, communication */
    BY_device,  /* a stream of a device */
    BY_model,   /* of several models in one run */
    BY__COUNT
} nnc_profile_by;
#define NNC_PROFILE_BY_WORDS "command|layer|module|op|kernel|part|device|model"
extern const char *const nnc_profile_by_names[BY__COUNT];

typedef enum nnc_profile_sort { SORT_time, SORT_order, SORT_gap } nnc_profile_sort; /* gap: time above the least */

typedef struct nnc_profile_options {
    nnc_profile_by by;
    nnc_profile_sort sort;
    int top;    /* rows that are printed; 0: all */
    int active; /* profiled runs; 0: about 200 ms of them, 5 to 50 */
    const char *const *model; /* names of n_model models that run together, which outlive the profile; 0: there is one */
    int n_model;
} nnc_profile_options;

/* A command that computes, copies or communicates. */
typedef struct nnc_profile_cmd {
    int32_t cmd;
    double ms, least_ms;
    roof_level bound;
} nnc_profile_cmd;

/* Commands of a run with their times. The times of a lane (a device's stream) and its idle time add up to wall_ms. */
typedef struct nnc_profile {
    const nnc_artifact *artifact;
    const nnc_target *target; /* of device 0; owned by the env */
    bool predicted;
    int active; /* runs that were profiled; times are means over the half of them whose wall times are in the middle */
    int lanes;  /* streams that have commands */
    double wall_ms, median_ms; /* of a profiled run; of a run without profiling, NaN where predicted */
    double idle_ms;            /* of all lanes */
    nnc_shares *device;        /* by device: ps of the mean run */
    int world;                 /* ranks that the devices belong to */
    const char *const *model;  /* of the options */
    int n_model;
    double together_ms;        /* while commands of at least two models run */
    const nnc_together *together; /* several models, beside each alone; NULL: not compared. Set by the caller */
    nnc_rates rates;
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
    const char *name, *shape, *engine, *op; /* shape: of the first command's result; engine, op: of all, or "" */
    int calls;
    bool divided; /* it has a share of commands of several layers */
    double ms, least_ms, bound_ms[LEVEL__COUNT]; /* bound_ms: least time by what bounds it */
    double flops, bytes;
    int32_t first; /* its first command */
    double *on;    /* ms by device; NULL: the plan has one */
} nnc_profile_row;
typedef struct nnc_profile_rows {
    int n;
    nnc_profile_row *row;
    nnc_arena arena;
} nnc_profile_rows;
/* Groups the commands, sorted. The caller frees out->arena, also after a failure. */
nnc_status nnc_profile_group(
    const nnc_profile *p, const nnc_profile_options *o, nnc_profile_rows *out, nnc_sink *sink) NNC_MUST;
/* What bounds most of the row's least time. */
roof_level nnc_profile_bound(const nnc_profile_row *r);

/* Appends the report. s: its phases before the steady state, or NULL. */
nnc_status nnc_profile_print(nnc_env *e, const nnc_profile *p, const nnc_profile_options *o, const nnc_session *s,
    nnc_format f, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Appends a self-contained HTML page: the verdict, commands as bars in their order, and tables of all kinds of rows. */
nnc_status nnc_profile_html(nnc_env *e, const nnc_profile *p, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* devices.c: how each device and the models of the run spend it. Nothing is appended as text where there is one of each. */
void nnc_profile_devices_text(nnc_text *t, const nnc_profile *p);
void nnc_profile_devices_json(nnc_json_writer *w, const nnc_profile *p);
/* Devices that the row has time on, their mean, and the slowest one. */
typedef struct nnc_profile_spread { int devices, slowest; double mean_ms, slowest_ms; } nnc_profile_spread;
nnc_profile_spread nnc_profile_spread_of(const nnc_profile *p, const nnc_profile_row *r);
/* Appends "cpu:1" or, over several ranks, "cpu:1, rank 1". */
void nnc_profile_put_device(nnc_text *t, const nnc_profile *p, int d);
/* Picoseconds of a run in which commands of at least two of its models run; 0 where there is one. */
nnc_status nnc_profile_overlap(const nnc_plan_times *t, const nnc_profile_options *o, int64_t *ps, nnc_sink *sink) NNC_MUST;
/* print.c: members about the whole profile. */
void nnc_profile_head_json(nnc_json_writer *w, nnc_env *e, const nnc_profile *p);
/* The rows as elements of a list, or of CSV; the last one is the idle time. */
void nnc_profile_rows_json(nnc_json_writer *w, const nnc_profile *p, const nnc_profile_rows *rows);
/* A sentence or two: what the time is bound by, by how much, and the commands whose time is furthest above the least. */
void nnc_profile_verdict(const nnc_profile *p, nnc_text *out);

#endif
