/* sweep/sweep.h -- nnc sweep: time and memory of a model over sizes, for several series (precisions, threads, machines, ...). It tells
 * which is faster from which size on, and what does not fit. */
#ifndef NNC_SWEEP_H
#define NNC_SWEEP_H

#include "fit/fit.h"
#include "sweep/point.h"
#include <signal.h>

/* Values of an arg of the model, ascending. */
typedef struct nnc_sizes {
    const char *name;
    int n;
    int64_t *at;
} nnc_sizes;
/* Parses --set NAME=SIZES: integers and ranges between commas, 1,2,4 or 1..32768x2 (each twice the last) or 64..1024+64; an integer may
 * be a power, 2^15. NNC_E_USAGE: malformed, beyond 9e15, or more than 4096. */
nnc_status nnc_sizes_parse(const nnc_arg *a, nnc_sizes *out, nnc_arena *arena, nnc_sink *sink) NNC_MUST;

/* A curve: the model with some options on a machine. */
typedef struct nnc_sweep_series {
    const char *name; /* what tells it from the others */
    nnc_env_options env;
    nnc_compare_options time; /* as in nnc_sweep_point_options */
    nnc_reopen model;
    const nnc_arg *arg; /* of the model, beside the size */
    int n_arg;
    bool predict;
} nnc_sweep_series;

typedef struct nnc_sweep_options {
    nnc_sizes sizes;
    const nnc_sweep_series *series;
    int n_series;
    const char *flags; /* all others that decide the rows: those of a file that is continued are equal */
    double budget_ms;  /* as in nnc_sweep_point_options */
    const char *file;  /* keeps the rows, written after each and read first; NULL: none */
    const volatile sig_atomic_t *stop; /* not 0: no further rows; NULL: never */
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *progress_ctx;
} nnc_sweep_options;

typedef struct nnc_sweep_row {
    int64_t size;
    int series;
    char model[33]; /* hash of the model at this size; "": it could not be opened */
    nnc_sweep_point p;
} nnc_sweep_row;

typedef struct nnc_sweep {
    const nnc_sweep_options *o;
    const char *model;    /* its name */
    const char **machine; /* by series: what the rows are measured on */
    int n;
    nnc_sweep_row *row; /* by size, then by series */
    size_t cap;
    bool complete; /* all rows of its sizes are there */
    nnc_arena arena;
} nnc_sweep;

/* Makes the rows, the smallest sizes first. A first row whose model cannot be opened is an error, later ones are rows. The caller frees
 * out->arena, also after a failure. */
nnc_status nnc_sweep_run(const nnc_sweep_options *o, nnc_sweep *out, nnc_sink *sink) NNC_MUST;
nnc_status nnc_sweep_add(nnc_sweep *s, const nnc_sweep_row *row, nnc_sink *sink) NNC_MUST;
int nnc_sweep_made(const nnc_sweep *s); /* number of rows of its sizes; a file may have others */
/* The row, or NULL. */
const nnc_sweep_row *nnc_sweep_find(const nnc_sweep *s, int64_t size, int series);

/* ---- cross.c --------------------------------------------------------------------------------------------- */

/* Series `faster` is faster than `slower` from size `from` on, until the next crossing. */
typedef struct nnc_crossing {
    int faster, slower;
    int64_t from;
    int64_t to;   /* the last size at which they differ before the next crossing */
    double times; /* how much faster it is there */
    double at;    /* where the curves of medians cross, interpolated in logarithms; NaN: it was faster from the first on */
    double at_ms; /* the medians there */
} nnc_crossing;
/* Finds the sizes from which one of a and b is faster: with 3 runs or more, quartiles must not overlap and medians differ by over 1 %.
 * Returns the number of crossings, the first at the first size that both have and where they differ; they are in `arena`. -1: out of
 * memory. */
int nnc_sweep_cross(const nnc_sweep *s, int a, int b, nnc_crossing **out, nnc_arena *arena);
/* Appends a sentence for each pair of series; of more than four series, for the first with each other. */
void nnc_sweep_say(const nnc_sweep *s, nnc_text *out);

/* ---- file.c, print.c, chart.c ------------------------------------------------------------------------------ */

/* Appends everything as JSON or, if w->csv, the rows. */
void nnc_sweep_json(const nnc_sweep *s, nnc_json_writer *w);
/* Reads the rows of the file into s. Errors: another model, other flags, another machine or version, a damaged file. */
nnc_status nnc_sweep_read(nnc_sweep *s, const char *file, nnc_sink *sink) NNC_MUST;
void nnc_sweep_print(const nnc_sweep *s, nnc_format f, nnc_text *out);
/* Curves over the sizes, with logarithmic axes: time, a rate, memory. */
typedef enum nnc_sweep_chart { CHART_time, CHART_rate, CHART_memory, CHART__COUNT } nnc_sweep_chart;
void nnc_sweep_svg(const nnc_sweep *s, nnc_sweep_chart what, double width, nnc_text *out);
/* A self-contained page: the charts, what the curves say, and a table. */
void nnc_sweep_html(const nnc_sweep *s, nnc_text *out);

#endif
