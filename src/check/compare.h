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

/* Ratio of two programs' times over pairs of bursts of the same round: the median, and its distribution-free 95 % confidence interval (the
 * ratios are taken as independent). With fewer than 6 pairs low and high are NaN; without pairs the ratio is, too. */
typedef struct pairs {
    int n;
    double ratio, low, high;
} pairs;

/* Of n ratios, which it sorts. */
pairs nnc_pairs(double *ratio, int n);
/* Does the interval exclude 1? */
static inline bool nnc_significant(const pairs *p)
{
    return p->low > 1 || p->high < 1;
}

/* One output of one program: its errors and the verdict. */
typedef struct judged {
    nnc_error reference, unfused; /* against float64; against the unfused program */
    double limit;                 /* largest nmse against float64 that agrees */
    double conditioning;          /* nmse that rounding alone explains, where the limit comes from it; else 0 */
    bool agrees;
} judged;

/* What bounds a command: a level of the memory hierarchy, or the peak rate of computing. */
typedef enum roof_level { LEVEL_l1, LEVEL_l2, LEVEL_l3, LEVEL_memory, LEVEL_arithmetic, LEVEL__COUNT } roof_level;

/* The least time of a program's run: of the busiest device, what each command moves or computes at its peak rate, one after the other. */
typedef struct nnc_roofline {
    double ms;         /* 0: the target has no numbers */
    const char *bound; /* what most of that time is of: "memory", "L3", ..., "arithmetic"; NULL: ms is 0 */
    double rate;       /* of that, measured: bytes/s of copies, or FLOP/s in f32; 0: not measured */
} nnc_roofline;

/* The model compiled with some of the passes. */
typedef struct program {
    const char *pass;     /* passes added to those of the program before ("fuse", "expand + fuse"); NULL for the first */
    const char *name;     /* "as written", "unfused", "fused", or NULL: only a step */
    bool variant;         /* of the fused program, in what is done with siblings */
    int level;
    const char **skip;    /* names of the passes left out */
    int n_skip;
    nnc_artifact *a;
    nnc_session *s;       /* while it is being measured */
    timed t[2];           /* [1]: with its copies, where that was asked for */
    pairs paired[2];      /* against the program before; a variant: against fused */
    nnc_io_report io;     /* of [1] */
    nnc_section last;     /* that a run ends with: main, or step in training */
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
    program p[MAX_PROGRAMS]; /* from as written to fused, one pass more each; then variants of fused */
    int n, unfused, fused;   /* indices */
    bool siblings;           /* the model has some, joined or not */
    int apart, joined;       /* the programs with all of them apart, and all joined; -1: none */
    void **input;            /* row-major, by input number */
    int n_input;
    int n_result;            /* what is compared: the outputs, in training then the states after a step */
    void **initial;          /* by result: a state before it; NULL: an output */
    nnc_reference reference;
    kept kept[MAX_KEPT];
    int n_kept;
    bool kept_all;
    pairs paired[2];         /* fused against unfused; as program.t */
    nnc_io io;               /* what is timed: as asked, except that models in chunks are always timed with their copies */
    bool main;               /* index of the times that are reported: 0 without copies, 1 with copies */
    double *conditioning[2]; /* mean square by output, with contractions as typed and with rounded ones; NULL: not needed */
    double *ties;            /* by output: sum of the squares by which near ties change it; NULL: not needed */
    size_t n_tie;
    double bytes_s[LEVEL_arithmetic], flops_s; /* of a CPU's threads, by level; 0: not measured */
    bool agrees;
    nnc_sink *sink;
    nnc_arena arena;
} comparison;

/* Result i of the programs: type, name, and a part of its numbers after a run. */
const nnc_type *nnc_result_type(const program *p, int i);
const char *nnc_result_name(const program *p, int i);
/* Loads, times and checks all programs: together when they fit into memory at once, otherwise one after the other. */
nnc_status nnc_measure(comparison *c) NNC_MUST;
/* Times the n loaded programs, without or with their copies, in alternating bursts, and pairs the bursts when these are all
 * programs. */
nnc_status nnc_time(comparison *c, program **p, int n, bool io) NNC_MUST;
/* The same in training: times of the parts of a step, one step after the other. */
nnc_status nnc_time_parts(comparison *c, program **p, int n) NNC_MUST;
/* Calls the caller's progress function; `detail` may be NULL and is copied. */
void nnc_compare_say(const comparison *c, const char *phase, const char *detail);

typedef struct summary { /* of a program's plan and times */
    double median_ms, mean_ms, p10_ms, p90_ms;
    int64_t launches, kernels, bytes, flops, arena, memory; /* memory: with weights and states */
} summary;
summary nnc_summarize(const program *p, bool io);

/* roofline.c: sets the programs' rooflines. */
void nnc_rooflines(comparison *c);

/* judge.c: sets limits and verdicts of all programs' outputs, and c->agrees. */
nnc_status nnc_judge(comparison *c) NNC_MUST;
/* The output that is furthest beyond its limit, or nearest to it. -1: the model has none. */
int nnc_worst_output(const comparison *c, const program *p);

/* compare_parts.c. Training: what fusion did to the commands of each part of the step. */
nnc_status nnc_compare_why(const comparison *c, nnc_text *t) NNC_MUST;
nnc_status nnc_compare_why_json(const comparison *c, nnc_json_writer *w) NNC_MUST;

nnc_status nnc_compare_print(const comparison *c, nnc_format f, nnc_text *out) NNC_MUST;

#endif
