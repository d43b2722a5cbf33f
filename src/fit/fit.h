/* fit/fit.h -- what fits into memory: nnc memory, the largest model that fits, and advice where one does not. */
#ifndef NNC_FIT_H
#define NNC_FIT_H

#include "report/report.h"

/* Opens a model again, in another way: args in place of those that were given; of a training step so many batches a step; layers placed. */
typedef struct nnc_reopening {
    const nnc_arg *arg;
    int n_arg;
    int accumulate;    /* 0: as now */
    const char *place; /* NULL: as now */
    bool forward;      /* the model itself, not its step */
} nnc_reopening;
typedef struct nnc_reopen {
    nnc_status (*open)(void *ctx, const nnc_reopening *how, nnc_model **out, nnc_sink *sink);
    void *ctx;
    int accumulate; /* batches of a step now */
    const struct nnc_training *training; /* of the step; NULL: it is none */
} nnc_reopen;
/* For a model that does not fit o->memory_budget, or where there is none the devices: appends flags with which it would, with the memory
 * that each needs; each was planned. Nothing: none was found. other: NULL: no other batches. NNC_E_NOMEM. */
nnc_status nnc_advise_memory(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, const nnc_reopen *other,
    nnc_text *t) NNC_MUST;

/* ---- the largest model that fits (docs/partition.md) -------------------------------------------------------------------- */

typedef struct nnc_fit_arg {
    const char *name;
    int64_t lo, hi;
} nnc_fit_arg;
typedef struct nnc_fit_options {
    nnc_compile_options compile;
    const nnc_fit_arg *arg; /* the first is made as large as fits, for each of some values of the second */
    int n_arg; /* 1, 2 */
    const nnc_reopen *model;
    const char *place; /* of layers; NULL: on several devices they are cut for the least memory of the fullest one */
    bool placed;       /* the model says itself where its layers are */
    bool torch;        /* as PyTorch's allocator would request memory; e has a hardware file */
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *progress_ctx;
} nnc_fit_options;
/* Searches, and appends the report. *fits: something does. */
nnc_status nnc_fit_report(nnc_env *e, const nnc_fit_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink) NNC_MUST;
/* --fit=NAME=LO..HI; NNC_E_USAGE. */
nnc_status nnc_fit_parse(const nnc_arg *a, nnc_fit_arg *out, nnc_sink *sink) NNC_MUST;
/* What PyTorch's allocator would request for the plan's tensors, on e's described hardware, beside the plan's own bytes. */
nnc_status nnc_report_torch(nnc_env *e, const nnc_artifact *a, nnc_format f, nnc_text *out, nnc_sink *sink) NNC_MUST;

#endif
