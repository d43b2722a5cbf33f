/* tests/api/help.h -- models through the whole of nnc. Inputs and the float64 truth of a graph, a compile whose every
 * by-product is checked, a run, and a comparison that knows NaN. All failures are sentences in a text, so that
 * several threads may work on cases at once. */
#ifndef NNC_TESTS_API_HELP_H
#define NNC_TESTS_API_HELP_H

#include "session/session.h"
#include "test.h"
#include <cjson/cJSON.h>

#if defined(__SANITIZE_ADDRESS__)
enum { api_sanitized = 1 };
#else
enum { api_sanitized = 0 };
#endif

/* ---- data of a case ---- */

typedef struct api_data {
    void **in;       /* row-major, by input node */
    int n_in;
    nnc_rval *want;  /* by output; NULL when not evaluated */
    uint32_t n_out;
} api_data;

/* Inputs follow from the seed and the inputs' names. `odd`: one float in 50 is NaN, an infinity, a zero or a
 * subnormal. */
bool api_inputs(api_data *d, const nnc_graph *g, uint64_t seed, bool odd);
nnc_status api_truth(api_data *d, const nnc_graph *g, nnc_sink *sink);
void api_data_free(api_data *d);

/* ---- compile and run ---- */

typedef struct api_run {
    nnc_artifact *a;
    void **out; /* row-major, by output */
    int n_out;
} api_run;

/* Compiles, checks plan, texts, remarks and memory, runs twice (equal bytes). False: `why` says what failed. */
bool api_compile_and_run(nnc_env *e, const nnc_graph *g, const nnc_compile_options *o, const api_data *d, api_run *r,
    nnc_text *why, nnc_sink *sink);
/* Runs an artifact: requested memory, outputs, a second run with the same bytes. */
bool api_run_artifact(nnc_env *e, const nnc_artifact *a, const api_data *d, api_run *r, nnc_text *why, nnc_sink *sink);
void api_run_free(api_run *r);

/* What main moves and launches, by the plan's own numbers. */
nnc_cost api_plan_cost(const nnc_plan *p);
/* The applied remarks, added up. */
nnc_cost api_saved(const nnc_remarks *r);
/* Is what the remarks save the difference between `before` and `after`? False: `why` says so, of `what`. */
bool api_accounts(const nnc_remarks *r, nnc_cost before, nnc_cost after, const char *what, nnc_text *why);
/* Plan verified; plan, graph and kernel texts parse back to themselves; remarks account for the graph's change. */
bool api_check_artifact(const nnc_artifact *a, nnc_text *why, nnc_sink *sink);

/* ---- compare ---- */

typedef struct api_diff {
    double max_abs;  /* over pairs of finite numbers */
    double nmse;     /* sum (got-want)^2 / max(sum want^2, 0.01 n): values near zero are not measured by themselves */
    int64_t wrong;   /* elements where only one is NaN, infinities differ, or integers differ */
    int64_t first;   /* the first of those, or the worst element */
    double got, want; /* there */
} api_diff;
api_diff api_compare(const nnc_type *t, const void *got, const nnc_rval *want);
/* What a device that computes with precision p rounds. */
nnc_rounding api_rounding(nnc_precision p);
/* Is output i of g, where it exceeds a fixed limit, within FACTOR times the mean square of simulated rounding, as `nnc verify` allows? */
bool api_is_conditioned(
    const nnc_graph *g, const api_data *d, nnc_rounding r, uint32_t i, const void *got);
/* The same bits, any NaN equal to any other. */
bool api_same(const nnc_type *t, const void *a, const void *b);
/* Coarsest float of a graph's values: its rounding unit, 0 when there is none. */
double api_coarsest(const nnc_graph *g);

/* A sink's messages. */
void api_put_sink(nnc_text *t, const nnc_sink *s);
/* An environment of two threads with the tests' cache. It has no cache where o plants faults in kernels, whose keys are those of the
 * right ones. */
nnc_env *api_env_for(const nnc_compile_options *o);
/* A fresh folder for files of this process; the path ends in no slash. Its files go with api_rmdir. */
bool api_tmpdir(char *path, size_t n);
void api_rmdir(const char *path);
/* dir/name. Valid until the fourth call after it. */
const char *api_in(const char *dir, const char *name);

#endif
