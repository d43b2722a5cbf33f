/* experiments/experiments.h -- nnc report: published experiments as data (models/experiments). Compares each published number with its
 * prediction for described hardware and, where memory and time suffice, with a measurement on this machine. */
#ifndef NNC_EXPERIMENTS_H
#define NNC_EXPERIMENTS_H

#include "profile/profile.h"
#include "sweep/point.h"

typedef enum nnc_quantity {
    QUANTITY_time,       /* milliseconds of a run, or of a training step */
    QUANTITY_ratio,      /* that time over the time of another run of the experiment */
    QUANTITY_forward,    /* milliseconds of a part of a training step: the sum of its commands */
    QUANTITY_loss,
    QUANTITY_backward,
    QUANTITY_optimizer,
    QUANTITY_allreduces, /* percent of all commands' time that collectives take */
    QUANTITY_largest,    /* the largest value of the arg of --fit whose plan fits */
    QUANTITY__COUNT
} nnc_quantity;
extern const char *const nnc_quantity_names[QUANTITY__COUNT];

typedef struct nnc_number {
    nnc_quantity what;
    int to;           /* ratio: index of the other run; otherwise -1 */
    double low, high; /* published, as the source has it: a range, or equal. NaN: no published number */
    const char *unit; /* of published times: "ms", "s" or "samples/s" */
    int64_t passes;   /* a published time is of so many runs, samples/s of so many samples a run; 0: the source does not say */
} nnc_number;

/* A run that was predicted or measured. */
typedef struct nnc_taken {
    bool taken;         /* point is set */
    const char *why;    /* not taken, does not fit, or failed: the reason. Otherwise NULL */
    nnc_sweep_point point;
    double value[QUANTITY__COUNT]; /* NaN: not known */
} nnc_taken;

typedef struct nnc_experiment_run {
    const char *name, *note; /* note: or NULL */
    const char *hardware;      /* file that it is predicted for */
    nnc_loc loc;
    int n_word;
    const char **word; /* arguments of nnc run (with --fit: of nnc memory): model files and flags */
    int n_small;
    const char **small; /* the same with smaller sizes, which any machine measures; NULL: none */
    const char *sizes;  /* those sizes, "batch=2 image=64" */
    bool fits;          /* the words have --fit: a search, which is only planned */
    int n_number;
    nnc_number *number;
    nnc_taken predicted, here, reduced; /* reduced: measured here with the smaller sizes */
    const char *predicted_on; /* name of the hardware; NULL: not predicted yet */
} nnc_experiment_run;

typedef struct nnc_experiment {
    const char *file, *title, *about, *source, *doubts, *machine; /* machine: what was published ran on. about, doubts: or NULL */
    int n_run;
    nnc_experiment_run *run;
} nnc_experiment;

typedef struct nnc_experiments {
    int n;
    size_t cap;
    nnc_experiment *at;
    const char *here; /* this machine: "cpu, 2 threads"; NULL: nothing is measured */
    nnc_arena arena;
} nnc_experiments;

/* Reads a file, or all .json files of a folder in the order of their names, and appends the experiments. Mistakes are reported at their
 * line: NNC_E_MODEL or NNC_E_USAGE; NNC_E_IO: unreadable. Set x to zeros before; the caller frees x->arena, also after a failure. */
nnc_status nnc_experiments_read(nnc_experiments *x, const char *path, nnc_sink *sink) NNC_MUST;

/* ---- take.c ---------------------------------------------------------------------------------------------- */

/* A run's model on a machine. */
typedef struct nnc_opened {
    nnc_env *env;
    const nnc_model *model; /* of all devices; with `step` the graph of a training step */
    nnc_compare_options time; /* with the compile's options */
    void *own;              /* the opener's */
} nnc_opened;

/* The program's way to read words as it reads its command line. */
typedef struct nnc_opener {
    /* hardware: predicts for this file; NULL: for this machine. Failures are reported without the run's location. `close` follows each
     * successful `open`. */
    nnc_status (*open)(
        void *ctx, const char *const *word, int n, const char *hardware, nnc_opened *out, nnc_sink *sink);
    void (*close)(void *ctx, nnc_opened *o);
    /* The largest value that fits; 0: none does. */
    nnc_status (*largest)(
        void *ctx, const char *const *word, int n, const char *hardware, int64_t *out, nnc_sink *sink);
    void (*progress)(void *ctx, const char *phase, const char *detail);
    void *ctx;
} nnc_opener;

typedef struct nnc_experiments_options {
    double budget_s; /* approximate time for measurements; 0: measure nothing */
    bool quick;      /* measure only the smaller sizes, as few runs as give a number */
} nnc_experiments_options;

/* Predicts all runs, and measures those that fit the memory and the budget. A run that does not fit or fails is a result; a run whose words
 * are wrong is an error at its location. */
nnc_status nnc_experiments_take(
    nnc_experiments *x, const nnc_opener *by, const nnc_experiments_options *o, nnc_sink *sink) NNC_MUST;

/* ---- numbers of a report: milliseconds, ratios, percent, counts; NaN: not known ---------------------------- */

/* The published number, made comparable: times are milliseconds of one run. False: there is no number, or it cannot be compared since
 * the source does not say how many runs it is of. */
bool nnc_number_published(const nnc_experiment *e, int run, const nnc_number *n, double *low, double *high);
/* The same number predicted, or measured here; *reduced (or NULL): with the smaller sizes. Both runs of a ratio have the same kind of
 * sizes. */
double nnc_number_taken(const nnc_experiment *e, int run, const nnc_number *n, bool here, bool *reduced);
/* Value over what was published: 1 within the published range, otherwise over its nearer end. NaN: nothing to compare, or reduced sizes. */
double nnc_number_over(const nnc_experiment *e, int run, const nnc_number *n, bool here);

/* ---- printing -------------------------------------------------------------------------------------------- */

/* columns: of the terminal; 0: the usual width. */
nnc_status nnc_experiments_print(
    const nnc_experiments *x, nnc_format f, int columns, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Appends a self-contained HTML page. */
nnc_status nnc_experiments_html(const nnc_experiments *x, nnc_text *out, nnc_sink *sink) NNC_MUST;

#endif
