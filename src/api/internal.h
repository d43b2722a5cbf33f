/* api/internal.h -- what the files of api/ share. */
#ifndef NNC_API_INTERNAL_H
#define NNC_API_INTERNAL_H

#include "api/nnc.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "plan/make.h"
#include "runtime/runtime.h"

enum { MAX_ENGINES = 8 };

struct nnc_env {
    nnc_target target;
    nnc_cache *cache;
    const nnc_engine *engine[MAX_ENGINES]; /* in order of preference */
    int n_engine;
    bool has_emitter, has_onednn;
    bool no_llvm, no_onednn; /* as the caller wished, not absent */
};

struct nnc_artifact {
    nnc_graph *source;    /* as the user wrote it */
    nnc_graph *graph;     /* after the passes */
    nnc_plan *plan;
    nnc_remarks remarks;
    nnc_compile_stats stats;
    int level;
    void *backing;        /* of an artifact read from a file: the bytes that blobs point into */
    nnc_map map;
    const char *file;     /* that file; embedded weights are read from it. Owned by `arena`. */
    nnc_arena arena;
};

struct nnc_session {
    const nnc_plan *plan;
    nnc_exec *exec;
};

/* What `o` says of the passes, on the machine of `e`. Borrows from both. */
nnc_pass_options nnc_env_passes(const nnc_env *e, const nnc_compile_options *o);
/* The emitter of machine code, loaded on first use; NULL when the plug-in is absent. */
const nnc_emitter *nnc_env_emitter(void);

/* What of a run was compared with the reference. */
typedef struct nnc_truth {
    bool ran;
    char scope[160];      /* "all outputs", "rows 0, 127, 255 of 256", or why it did not run */
    int64_t rows;         /* 0 = all rows */
    int64_t *row;         /* their indices */
    bool *carried_out;    /* per output: dimension 0 is sampled */
    nnc_rval *value;      /* per output */
    int n_out;
} nnc_truth;

/* Evaluates the float64 reference of `g` for `inputs`, whole when it is affordable, else on sampled rows. */
nnc_status nnc_truth_make(const nnc_graph *g, void *const *inputs, int threads, nnc_truth *t, nnc_sink *sink) NNC_MUST;
void nnc_truth_free(nnc_truth *t);

/* Difference of two sets of numbers, accumulated. nmse = sum (a-b)^2 / sum b^2; max_rel = max |a-b| over the largest |b|. A NaN or an
 * infinity that only one side has makes both infinite. */
typedef struct nnc_error {
    double diff2, ref2, max_abs, ref_max;
    int64_t n;
    bool broken;
} nnc_error;
void nnc_error_add(nnc_error *e, double got, double want);
double nnc_error_nmse(const nnc_error *e);
double nnc_error_max_rel(const nnc_error *e);
/* Largest nmse that counts as the same numbers for results of this dtype. */
double nnc_default_tolerance(nnc_dtype d);

#endif
