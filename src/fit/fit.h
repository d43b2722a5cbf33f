/* fit/fit.h -- what fits into memory: nnc memory, the largest model that fits, and advice where one does not. */
#ifndef NNC_FIT_H
#define NNC_FIT_H

#include "report/report.h"

/* Another way to open the model: with other args, another number of batches per training step, another placement. */
typedef struct nnc_reopening {
    const nnc_arg *arg;
    int n_arg;
    int accumulate;    /* batches of a step; 0: unchanged */
    const char *place; /* NULL: unchanged */
    bool forward;      /* the model itself, not its training step */
} nnc_reopening;
typedef struct nnc_reopen {
    nnc_status (*open)(void *ctx, const nnc_reopening *how, nnc_model **out, nnc_sink *sink);
    void *ctx;
    int accumulate; /* current number of batches of a step */
    const struct nnc_training *training; /* NULL: the model is no training step */
} nnc_reopen;
/* For a model that does not fit o->memory_budget or, without one, the devices. Appends flags with which it would fit, with the memory
 * that each needs by its plan; nothing if none was found. other NULL: do not try other batches. refused: what
 * does not fit, of which m may be one replica; or NULL. Fails with NNC_E_NOMEM only. */
nnc_status nnc_advise_memory(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, const nnc_reopen *other,
    const nnc_artifact *refused, nnc_text *t) NNC_MUST;

/* ---- the largest model that fits (docs/partition.md) -------------------------------------------------------------------- */

typedef struct nnc_fit_arg {
    const char *name;
    int64_t lo, hi;
} nnc_fit_arg;
typedef struct nnc_fit_options {
    nnc_compile_options compile;
    const nnc_fit_arg *arg; /* the first is maximised, for each of some values of the second */
    int n_arg; /* 1, 2 */
    const nnc_reopen *model;
    const char *place; /* --place text; NULL: on several devices layers are cut for the least memory of the fullest one */
    bool placed;       /* the model places its layers itself */
    bool torch;        /* count memory as PyTorch's allocator would request it; needs a hardware file */
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *progress_ctx;
} nnc_fit_options;
/* Searches, and appends the report. *fits: some value fits. *largest: the largest value of the first arg that does; otherwise 0. */
nnc_status nnc_fit_report(nnc_env *e, const nnc_fit_options *o, nnc_format f, nnc_text *out, bool *fits, int64_t *largest,
    nnc_sink *sink) NNC_MUST;
/* Parses --fit=NAME=LO..HI. NNC_E_USAGE: malformed. */
nnc_status nnc_fit_parse(const nnc_arg *a, nnc_fit_arg *out, nnc_sink *sink) NNC_MUST;
/* Appends what PyTorch's allocator would request for the plan's tensors on e's described hardware, beside the plan's own bytes. */
nnc_status nnc_report_torch(nnc_env *e, const nnc_artifact *a, nnc_format f, nnc_text *out, nnc_sink *sink) NNC_MUST;

#endif
