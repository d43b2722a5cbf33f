/* bench/device/device.h -- what the parts of bench_device share: cells (what is measured), results, and the clock of a cell. Results
 * are one file each, so that a run that ends early goes on where it ended. */
#ifndef NNC_BENCH_DEVICE_H
#define NNC_BENCH_DEVICE_H

#include "session/session.h"
#include "train/train.h"
#include "base/base.h"

/* ---- cells.c ------------------------------------------------------------------------------------------------------- */

enum { MAX_SETTINGS = 8 };

/* One model with its arguments, and how it is compiled. Strings live in the list's arena. */
typedef struct cell {
    const char *id;        /* "nested_sin,depth=4,dtype=f32,n=1024": the name of its results */
    const char *group;     /* the line of the table that it is from */
    const char *model;     /* file */
    nnc_arg set[MAX_SETTINGS];
    int n_set;
    const char *math;      /* "exact", "ulp2", "fast"; NULL: ulp2 */
    const char *precision; /* of contractions: "f32", "tf32", "f16", "bf16"; NULL: f32 */
    const char *level;     /* of optimisation: "0" to "3"; NULL: 2 */
    int streams;           /* 0: one */
    bool no_clusters;      /* generated kernels do not use clusters of blocks */
    const char *training;  /* "sgd", "adam", "adamw": a step of a training instead of a run; NULL: a run */
    const char *loss;      /* of the training: "cross_entropy" (NULL), "mse", "bce" */
    const char *flags;     /* " cpu io energy ": words between blanks */
} cell;

typedef struct cells {
    cell *cell;
    int n;
    nnc_arena arena;
} cells;

/* Reads a table (cells.txt says how it is written) and multiplies out its lists. NNC_E_USAGE with file and line. */
nnc_status cells_read(const char *file, cells *out, nnc_sink *sink) NNC_MUST;
void cells_deinit(cells *c);
/* How it is compiled. NNC_E_USAGE: words that nnc does not know. */
nnc_status cell_options(const cell *c, nnc_compile_options *o, nnc_sink *sink) NNC_MUST;
bool cell_has(const cell *c, const char *flag);
bool cell_has_all(const cell *c, const char *flags); /* separated by commas; NULL: none */
/* All of them as a JSON array, for the programs that measure something else on the same. */
void cells_json(const cells *c, nnc_text *out);

/* ---- results.c ----------------------------------------------------------------------------------------------------- */

typedef struct results {
    const char *folder;
    int limit_s;         /* of one result: the process ends by SIGALRM */
    int64_t deadline_ns; /* nothing is begun after it; 0: none */
    int left;            /* results not begun because of it */
    int made, failed, kept;
    bool lost; /* nothing more can be measured by this process */
} results;

/* False: it is there already, or time is up. True: FOLDER/ID.running marks it until results_end, so that who started this process
 * knows what it died of. */
bool results_begin(results *r, const char *id);
/* `text`: members of a JSON object, without its braces. Written as a whole or not at all. */
nnc_status results_end(results *r, const char *id, const nnc_text *text, nnc_sink *sink) NNC_MUST;
/* After an illegal address every call of a CUDA context fails, for as long as the process lives. */
bool device_lost(void);
/* The result is why there is none. */
void results_fail(results *r, const char *id, nnc_status st, const nnc_sink *why);
/* 0 done, 75 (EX_TEMPFAIL) time is up and a further run goes on, 1 some results are failures. 76: so does a further process (the
 * device's context died with the last result). */
int results_exit(const results *r);

/* ---- turn.c -------------------------------------------------------------------------------------------------------- */

typedef int turn; /* the lock's file; -1: nobody else uses the GPU */
bool turn_open(turn *t, const char *path); /* NULL: none; false: errno says why */
void turn_take(const turn *t, bool alone); /* alone: something is timed */
void turn_give(const turn *t);

/* ---- graph.c ------------------------------------------------------------------------------------------------------- */

enum { INPUT_PERIOD = 1 << 24 }; /* elements after which an input's numbers repeat */
/* Members "graph" and "outputs" of an object: nodes in order, with generators of weights and inputs. */
void graph_json(const nnc_model *g, nnc_text *t);
/* The cell's model, and of a training the graph of its step (otherwise NULL), which the caller destroys after an error, too. */
nnc_status cell_graphs(const cell *c, nnc_model **model, nnc_training *t, nnc_model **step, nnc_sink *sink) NNC_MUST;
/* Member "training" of an object: how `step`, a training graph, was made of its model, and the generator of its target. */
struct nnc_training;
void training_json(const struct nnc_training *of, const nnc_model *step, nnc_text *t);
/* Words for loss and optimizer; false: unknown. NULL: the default. */
bool training_of(const char *loss, const char *optimizer, struct nnc_training *out);
void type_json(const nnc_type *y, nnc_text *t); /* "dtype" and "shape" */

/* ---- power.c: what NVML reads, where it is there -------------------------------------------------------------------- */

typedef struct power {
    const struct nnc_cuda_nvml *nvml; /* NULL: nothing is read */
    struct nvml_device_of *device;
} power;
power power_open(void);
void power_close(power *p);
double power_joules(const power *p); /* since some time in the past; NaN: the GPU does not count */
double power_watts(const power *p);
double power_mhz(const power *p, int clock); /* 1 the SMs', 2 the memory's; now */

/* ---- the parts ------------------------------------------------------------------------------------------------------ */

typedef struct job {
    const char *target, *cache_dir;
    results results;
    const char *cells, *only; /* table; flags that cells must have, separated by commas, or NULL */
    const char *tuning;       /* file of algorithms, measured where it lacks them; NULL: the libraries' own choice */
    int warm_ms;              /* of runs before a cell is timed, so that a GPU's clocks are up */
    int duration_ms;          /* of each kind of time of a cell */
    int graphs;               /* of check */
    const char *traces;       /* of run: folder for the commands' times of cells marked profile, or NULL */
    turn turn;
    int64_t most_bytes;       /* tensors larger than that are left out; 0: no limit */
    nnc_sink *sink;
} job;

int part_list(job *j);     /* the cells as JSON */
int part_machine(job *j);  /* versions, names and clocks as JSON */
int part_check(job *j);    /* small models and generated graphs against float64 */
int part_ceilings(job *j); /* bandwidths and FLOP/s that this GPU reaches */
int part_run(job *j);      /* time, memory and power of cells */
int part_engines(job *j);  /* times of cuDNN's configurations for strict f32 convolutions and gradients */
int part_graphs(job *j);   /* the cells' graphs as JSON, of which part_run's results have them too */
int part_compile(job *j);  /* the cache filled with their code, predicted times to read; needs no GPU */

#endif
