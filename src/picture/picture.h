/* picture/picture.h -- timelines of runs, predicted or measured, and what is drawn of them: Gantt charts, memory over time and strategies
 * as SVG, and Chrome's trace format. Nothing here knows plans, models or machines: api/ fills timelines. Equal input gives equal bytes.
 * SVG files stand alone: no scripts, no fonts or styles of others. */
#ifndef NNC_PICTURE_H
#define NNC_PICTURE_H

#include "base/base.h"

/* ---- timelines (timeline.c) --------------------------------------------------------------------------------------------- */

/* Kinds of work in a span of time. Rows: name, colour (light enough for dark text; told apart with colour-blind eyes), and a darker
 * one. That is for every other chunk of a device that has several. */
#define NNC_WORKS(X) \
    X(forward, "forward", "#9ecae9", "#6fa8d0") \
    X(backward, "backward", "#ee9d4c", "#cf7c28") \
    X(weight, "weight gradient", "#66b391", "#4a9473") \
    X(update, "update", "#f7ec9a", "#f7ec9a") \
    X(communication, "communication", "#b58ac6", "#b58ac6") \
    X(other, "other", "#cccccc", "#cccccc")
typedef enum nnc_work_kind {
#define X(id, name, colour, darker) WORK_##id,
    NNC_WORKS(X)
#undef X
    WORK__COUNT
} nnc_work_kind;
extern const char *const nnc_work_names[WORK__COUNT];

/* Kinds of memory, from the bottom of a stack. */
#define NNC_HOLDS(X) \
    X(weights, "weights", "#9ecae9") \
    X(optimizer, "optimizer", "#f7ec9a") \
    X(gradients, "gradients", "#66b391") \
    X(kept, "kept for backward", "#ee9d4c") \
    X(activations, "activations", "#f6cbd0") \
    X(inputs, "inputs", "#7d7d7d") \
    X(workspace, "workspace", "#b58ac6")
typedef enum nnc_hold_kind {
#define X(id, name, colour) HOLD_##id,
    NNC_HOLDS(X)
#undef X
    HOLD__COUNT
} nnc_hold_kind;

typedef struct nnc_lane { int32_t device; bool thin; const char *name; } nnc_lane;
typedef struct nnc_slice {
    int64_t start_ps, end_ps;
    int32_t lane, micro; /* micro-batch, -1: none */
    uint8_t kind;        /* nnc_work_kind */
    uint8_t chunk;       /* of its device, from 0 */
    int64_t bytes;       /* of communication; 0: not known */
    const char *name;
    const char *op;      /* kind of op, by which an inference run is coloured; NULL: none */
} nnc_slice;
typedef struct nnc_arrow { int32_t from, to; } nnc_arrow; /* spans: data goes from the end of one to the start of the other */
/* Memory of a device from this time on; `name`: what begins then, or NULL. */
typedef struct nnc_level { int64_t ps; int32_t device; int64_t bytes[HOLD__COUNT]; const char *name; } nnc_level;

/* A run of several devices. All strings are copied into the arena. */
typedef struct nnc_timeline {
    nnc_arena arena;
    const char *name;    /* "predicted", "measured"; of processes in a trace */
    int group;           /* in a trace, devices of one group are adjacent */
    int n_device;
    const char **device; /* names */
    int64_t *capacity;   /* bytes of each device, 0: not known */
    int64_t *requested;  /* bytes that the plan requests from each device, of which levels are what is live; 0: not known */
    int64_t *run_ps;     /* by device: end of its run, of which its idle share is; 0: total_ps */
    int n_lane, n_span, n_arrow, n_level;
    nnc_lane *lane;
    nnc_slice *span;
    nnc_arrow *arrow;
    nnc_level *level;    /* of each device in the order of time */
    size_t cap_lane, cap_span, cap_arrow, cap_level;
    int64_t total_ps;    /* end of the last span, or later */
    int64_t known_ps;    /* > 0: spans that start later were left out, as there are too many */
    bool oom;            /* something is missing: checked by what draws it */
} nnc_timeline;

/* Devices are called "device 0", ... until they are named. NULL: out of memory. */
nnc_timeline *nnc_timeline_create(const char *name, int n_device);
void nnc_timeline_destroy(nnc_timeline *t);
NNC_OWNER(nnc_timeline, nnc_timeline_destroy)
void nnc_timeline_name(nnc_timeline *t, int device, const char *name);
int nnc_timeline_lane(nnc_timeline *t, int device, const char *name, bool thin);
int nnc_timeline_add(nnc_timeline *t, nnc_slice s); /* the span's number; -1: out of memory, which is noted */
void nnc_timeline_arrow(nnc_timeline *t, int from, int to);
void nnc_timeline_level(nnc_timeline *t, nnc_level l);
/* Gives spans that overlap others of their lane a lane of the same device beside it: afterwards no two of a lane overlap. */
void nnc_timeline_pack(nnc_timeline *t);
/* A timeline of the devices of all, equal ones beside each other, as "cpu:0, measured"; without arrows and memory. NULL: out of memory. */
nnc_timeline *nnc_timeline_beside(const nnc_timeline *const *t, int n);
/* A stretch of time of a kind. */
typedef struct nnc_stretch { int64_t start, end; int kind; } nnc_stretch;
/* Sorts them by their start, for nnc_covered. */
void nnc_sort_stretches(nnc_stretch *s, int n);
/* Time that at least one stretch of the kinds first .. last covers. */
int64_t nnc_covered(const nnc_stretch *sorted, int n, int first, int last);
/* Picoseconds in which at least one span of the device runs that is no communication; -1: out of memory. */
int64_t nnc_timeline_busy(const nnc_timeline *t, int device);
/* 1 - busy of all devices / (devices x total); negative: out of memory. */
double nnc_timeline_idle(const nnc_timeline *t);
enum { NNC_MOST_SPANS = 1 << 17 }; /* after which who fills a timeline may stop (known_ps) */

/* ---- pictures ------------------------------------------------------------------------------------------------------------- */

/* Chrome trace format (Perfetto, chrome://tracing) of timelines side by side. Each device of each is a process, equal devices next to
 * each other. A lane is a thread; there are arrows, and a counter for memory. */
void nnc_trace_put(const nnc_timeline *const *t, int n, nnc_text *out);

/* A row per device, a box per span (spans of one kind and micro-batch that touch share one). A run that only computes forward has a box per
 * command, in the colour of its op. `note`: lines below the title, between \n. */
void nnc_gantt_put(const nnc_timeline *t, const char *title, const char *note, nnc_text *out);

/* Memory of each device, stacked by kind. axis: of time. */
void nnc_holds_put(const nnc_timeline *t, const char *title, const char *note, const char *axis, nnc_text *out);

typedef struct nnc_scatter_point {
    const char *name;
    double x;             /* > 0 */
    int64_t y;            /* bytes */
    bool fits, runs;
} nnc_scatter_point;
typedef struct nnc_scatter {
    const char *title, *note, *x_axis, *y_axis;
    int64_t capacity;     /* 0: no line */
    int n;
    const nnc_scatter_point *point;
} nnc_scatter;
/* Points on the Pareto front of those that fit (no other is lower in x and y) are joined. Labels do not overlap. */
void nnc_scatter_put(const nnc_scatter *s, nnc_text *out);

/* A curve through points of ascending x; y NaN: none. */
typedef struct nnc_curve {
    const char *name;
    int n;
    const double *x, *y;
    const char *const *tip; /* by point */
    bool limit;             /* dashed, without dots, in the colour of the curve before; `name` is not listed */
} nnc_curve;
typedef struct nnc_curves {
    const char *title, *note, *x_axis, *y_axis;
    double width, height;   /* of the plot, in pixels */
    bool bytes;             /* y are bytes */
    double room;            /* a line at this y; 0: none */
    const char *room_name;
    int n, n_mark;
    const nnc_curve *curve;
    const double (*mark)[2]; /* x, y of rings, where curves cross */
} nnc_curves;
/* Curves over common axes, logarithmic where values differ more than eight times. */
void nnc_curves_put(const nnc_curves *c, nnc_text *out);

#endif
