/* check/compare.h -- the programs of a comparison and their measurements: made by compare.c, timed by timing.c, checked by
 * measure.c, judged by judge.c, printed by compare_print.c. */
#ifndef NNC_CHECK_COMPARE_H
#define NNC_CHECK_COMPARE_H

#include "check/check.h"
#include "check/reference.h"
#include "report/report.h"
#include "session/session.h"

enum { MAX_PROGRAMS = 40, MAX_KEPT = 256 };

/* Times of one program. */
typedef struct timed {
    nnc_times run;        /* its timed runs; sorted at the end */
    int64_t n_untimed;    /* warm-up, and the first run of each burst */
    double *burst_ms;     /* the median of each burst */
    int n_burst, cap_burst;
} timed;

/* One output of one program: its errors and the verdict. */
typedef struct judged {
    nnc_error reference, unfused; /* errors against float64 and against the unfused program */
    double limit;                 /* largest nmse against float64 that agrees */
    double conditioning;          /* nmse that rounding alone explains, if the limit comes from it; otherwise 0 */
    bool agrees;
} judged;

/* The model compiled with some of the passes. */
typedef struct program {
    const char *pass;     /* passes that it adds to the previous program ("fuse", "expand + fuse"); NULL for the first */
    const char *name;     /* "as written", "unfused", "fused", or NULL: only a step */
    bool variant;         /* a variant of the fused program that treats siblings differently */
    int level;
    const char **skip;    /* names of the passes left out */
    int n_skip;
    nnc_artifact *a;
    nnc_session *s;       /* while it is being measured */
    timed t[2];           /* without copies; with copies, if requested */
    nnc_ratio paired[2];  /* against the previous program; a variant against fused */
    nnc_io_report io;     /* of t[1] */
    nnc_section last;     /* last section of a run: main, or step in training */
    double part_ms[PART__COUNT]; /* training: median over steps; 0: not measured */
    nnc_exec_phases first_run;
    nnc_roofline roofline;
    judged *output;       /* by result */
} program;

/* A piece of the unfused program's results, kept for comparison with the other programs. */
typedef struct kept {
    int output;
    int64_t offset, bytes; /* bytes: a whole number of elements */
    char *data;
} kept;

typedef struct comparison {
    nnc_env *env;
    const nnc_model *model;
    const nnc_compare_options *o;
    program p[MAX_PROGRAMS]; /* from as written to fused, each with one pass more; then variants of fused */
    int n, unfused, fused;   /* indices */
    bool siblings;           /* the model has some, joined or not */
    int apart, joined;       /* the programs with all of them apart, and all joined; -1: none */
    void **input;            /* row-major, by input number */
    int n_input;
    int n_result;            /* compared results: outputs, then in training the states after a step */
    void **initial;          /* by result: state before the step; NULL: an output */
    nnc_reference reference;
    kept kept[MAX_KEPT];
    int n_kept;
    bool kept_all;
    nnc_ratio paired[2];     /* fused against unfused, indexed like program.t */
    nnc_io io;               /* what is timed, as requested; models in chunks are always timed with copies */
    bool main;               /* index of the reported times: 0 without copies, 1 with copies */
    double *conditioning[2]; /* by output: mean square, with contractions as typed and with rounded ones; NULL: not needed */
    double *ties;            /* by output: sum of the squares by which near ties change it; NULL: not needed */
    size_t n_tie;
    nnc_rates rates;
    bool agrees;
    nnc_sink *sink;
    nnc_arena arena;
} comparison;

/* Type and name of result i of the programs. */
const nnc_type *nnc_result_type(const program *p, int i);
const char *nnc_result_name(const program *p, int i);
/* Loads, times and checks all programs, together if they fit into memory at once, otherwise one after the other. */
nnc_status nnc_measure(comparison *c) NNC_MUST;
/* Times the n loaded programs in alternating bursts. `io`: with copies. Pairs the bursts if these are all programs. */
nnc_status nnc_time(comparison *c, program **p, int n, bool io) NNC_MUST;
/* Times the parts of training steps, for one program after the other. */
nnc_status nnc_time_parts(comparison *c, program **p, int n) NNC_MUST;
/* Calls the caller's progress function; `detail` may be NULL and is copied. */
void nnc_compare_say(const comparison *c, const char *phase, const char *detail);

typedef struct summary { /* of a program's plan and times */
    double median_ms, mean_ms, p10_ms, p90_ms;
    int64_t launches, kernels, bytes, flops, arena, memory; /* memory: with weights and states */
} summary;

/* roofline.c: sets the programs' rooflines. */
void nnc_rooflines(comparison *c);

/* judge.c: is output o of p within the limit that holds without conditioning? */
bool nnc_within_plain_limit(comparison *c, const program *p, int o);
/* judge.c: mean square by which rounding changes output o of p, and the open elements of the reference; evaluated on first use. */
nnc_status nnc_conditioning(comparison *c, const program *p, int o, double *mean_square) NNC_MUST;
/* judge.c: sets limits and verdicts of all programs' outputs, and c->agrees. */
nnc_status nnc_judge(comparison *c) NNC_MUST;
/* Index of the output that is furthest beyond its limit, or nearest to it. -1: the model has no outputs. */
int nnc_worst_output(const comparison *c, const program *p);

/* compare_parts.c. In training, print what fusion did to the commands of each part of the step. */
nnc_status nnc_compare_why(const comparison *c, nnc_text *t) NNC_MUST;
nnc_status nnc_compare_why_json(const comparison *c, nnc_json_writer *w) NNC_MUST;

nnc_status nnc_compare_print(const comparison *c, nnc_format f, nnc_text *out) NNC_MUST;

#endif
