/* api/compare.h -- the programs of a comparison and what was measured of them: made by compare.c, timed by measure.c, printed by
 * compare_print.c. */
#ifndef NNC_API_COMPARE_H
#define NNC_API_COMPARE_H

#include "api/internal.h"

enum { MAX_PROGRAMS = 40, MAX_KEPT = 256 };

/* The model compiled with some of the passes. */
typedef struct program {
    const char *pass;     /* the passes that this one has and the one before has not ("fuse", "expand + fuse"); NULL for the first */
    const char *name;     /* "as written", "unfused", "fused", or NULL: only a step */
    int level;
    const char **skip;    /* names of the passes left out */
    int n_skip;
    nnc_artifact *a;
    nnc_session *s;       /* while it is being measured */
    int64_t *ns;          /* sorted times of its runs */
    int n_ns, cap_ns;
    int64_t spent_ns;
    nnc_error truth, unfused; /* against float64; against the unfused program */
} program;

/* Pieces of the unfused program's outputs, kept to compare the others with. */
typedef struct kept {
    int output;
    int64_t offset, bytes; /* bytes: a whole number of elements */
    char *data;
} kept;

typedef struct comparison {
    nnc_env *env;
    const nnc_model *model;
    const nnc_compare_options *o;
    program p[MAX_PROGRAMS]; /* from as written to fused, one pass more each */
    int n, unfused, fused;   /* indices */
    void **input;            /* row-major, by input number */
    int n_input;
    nnc_truth truth;
    kept kept[MAX_KEPT];
    int n_kept;
    bool kept_all;
    double tolerance;
    bool agrees;
    nnc_sink *sink;
    nnc_arena arena;
} comparison;

/* Loads, times and checks programs first..first+n: together (bursts in turn, so that drift hits all alike) when they fit in memory
 * at once, otherwise one after the other. */
nnc_status nnc_measure(comparison *c) NNC_MUST;

typedef struct summary { /* of a program's plan and times */
    double median_ms, mean_ms, p10_ms, p90_ms;
    int64_t launches, kernels, bytes, flops, arena;
} summary;
summary nnc_summarize(const program *p);

nnc_status nnc_compare_print(const comparison *c, nnc_format f, nnc_text *out) NNC_MUST;

#endif
