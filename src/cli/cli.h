/* cli/cli.h -- the command line: one table of flags, one function per command. Commands parse, call api/ and print; data goes to
 * stdout, diagnostics and progress to stderr. */
#ifndef NNC_CLI_H
#define NNC_CLI_H

#include "calibrate/calibrate.h"
#include "experiments/experiments.h"
#include "fit/fit.h"
#include "profile/profile.h"
#include "session/session.h"
#include "session/train.h"
#include "strategy/strategy.h"
#include "sweep/sweep.h"
#include "base/base.h"

typedef enum mode { MODE_forward, MODE_step } mode;

enum { MOST_FILES = 16, MOST_AXES = 16, MOST_TYPED = 64 };

/* What the flags set. */
typedef struct options {
    const char *file[MOST_FILES]; /* positional arguments */
    int n_file;
    nnc_env_options env;
    nnc_open_options model;
    nnc_compare_options compare; /* also of nnc run: times, io and inputs */
    nnc_train_options train;
    nnc_partition_options partition;
    nnc_strategy sharing; /* --strategy */
    int replicas; /* --replicas; 0: 1 */
    int zero; /* --zero of a step: ZeRO's stage */
    int parts; /* batches that a pipeline divides a run's into; 0: 2 for each device */
    nnc_calibrate_options calibrate;
    nnc_profile_options profile;
    struct {
        const char *file;
        int unfused; /* --fusion=off */
        double budget_s; /* 0: none */
        nnc_sweep_chart chart;
        struct {
            const nnc_flag *flag;
            const char *values; /* between commas */
        } axis[MOST_AXES]; /* flags that make series */
        const char *typed[MOST_TYPED]; /* flags that decide the rows */
        int n_axis, n_typed;
    } sweep;
    nnc_experiments_options report;
    mode mode; /* the model itself, or its training graph */
    const nnc_arg *output;
    const nnc_arg *head; /* --replace-head: "classes" */
    const char *const *pass, *const *print_after;
    int n_output, n_head, n_pass, n_print_after;
    const char *svg, *trace, *predict, *html; /* of nnc memory; of nnc run; of nnc profile */
    const char *emit, *dump_dir, *out, *outputs, *save_weights, *against, *reduce, *hardware, *json;
    bool has_devices; /* --devices was given */
    const char *device_kinds; /* that it lists, "cpu,cuda"; NULL: it is a number */
    const char *compile_flag; /* a flag that was given and changes how a model is compiled, or NULL */
    const char *typed; /* flags of the model, its training and compiling, as the shell reads them; NULL: none */
    const char *training_flag; /* a flag of the training step that was given to a command with --mode, or NULL */
    const nnc_arg *fit; /* --fit: ranges of args */
    int n_fit;
    enum { ALLOCATOR_nnc, ALLOCATOR_torch } allocator;
    double percentile, rtol, atol;
    nnc_format format;
    bool looks; /* the command prints the plan or remarks: kernels need no machine code */
    bool no_machine; /* the command has no flags of the machine: artifacts are only looked at */
    bool embed, time_passes, verbose, help, quiet, reference;
    nnc_sink *sink; /* the command's messages; progress prints the warnings so far */
    nnc_arena strings; /* of all of them but `file` */
} options;

/* Several models in one run: each by itself. */
typedef struct several {
    int n; /* 0: there is one */
    const char *name[MOST_FILES];
    nnc_model *model[MOST_FILES];
    int device[MOST_FILES];
    nnc_arena a;
} several;

/* Objects that a command has opened; NULL: not opened. */
typedef struct work {
    nnc_env *env;
    nnc_model *model;
    nnc_artifact *artifact;
    nnc_session *session;
    several several;
    nnc_text text;   /* the command's result: for -o FILE when given, else stdout */
    nnc_text json;   /* the same for --json */
    bool no_text;    /* the command has stored or printed its result itself */
} work;

typedef struct command {
    const char *name;
    const char *args;   /* "MODEL" */
    const char *doc;    /* one line */
    uint64_t groups;    /* NNC_FLAGS of the groups that it takes */
    int min_files, max_files;
    nnc_status (*run)(const options *o, work *w, nnc_sink *sink); /* its text is printed and w closed afterwards */
    const char *more;   /* help text below the flags, or NULL */
    void (*list)(nnc_format f, nnc_text *out); /* instead of run: a report on nnc itself */
} command;

extern const command commands[];
extern const int n_commands;

options default_options(void); /* without flags */
/* Parses argv[first..]; NNC_E_USAGE with a message on anything unknown. */
nnc_status parse_flags(const command *c, int argc, char **argv, int first, options *o, nnc_sink *sink);
const command *find_command(const char *name); /* NULL: none */
/* Flags that c takes, in the table's order: the first one from *i on, which is moved past it; NULL: no more. */
const nnc_flag *next_flag(const command *c, size_t *i);
bool is_switch(const nnc_flag *f); /* has no value */
bool names_file(const char *expected); /* whether a value that is printed so is a path */
/* help.c */
void print_usage(FILE *out);
void print_help(const command *c);
/* Writes manual pages of this date, nnc.1 and one for each command, to the folder. False: a file could not be written. */
bool write_manual(const char *folder, const char *date);
/* complete.c: prints what the last word may become, for the words of a command line after `nnc`. */
void complete(int n, char *const *word);
/* paths.c: NNC_E_USAGE where a file that the command writes is one that it reads, or writes twice. */
nnc_status check_paths(options *o, nnc_sink *sink);

/* ---- helpers of commands (common.c) ---- */

void close_work(work *w);
/* w->model; of an artifact, that it keeps, and w->artifact. */
nnc_status open_model(const options *o, work *w, nnc_sink *sink);
nnc_status open_one(const options *o, work *w, nnc_sink *sink); /* of the first file alone */
/* Whether the files that a command ends with can be written, before anything is measured. Of several ranks 0 writes them. */
nnc_status check_reports(const options *o, nnc_sink *sink);
nnc_status open_env(const options *o, work *w, nnc_sink *sink); /* the machine, where it is not open */
/* several.c: opens each model, named and with its own flags; and w->model, all of them in one. */
nnc_status open_each(const options *o, work *w, nnc_sink *sink);
nnc_status open_several(const options *o, work *w, nnc_sink *sink);
void close_several(several *s);
/* --devices=cpu:0,cpu:1: their number; what --target would list, once all flags are read. */
nnc_status read_devices(options *o, const char *value, char count[16], nnc_sink *sink);
nnc_status use_devices(options *o, nnc_sink *sink);
/* Where the work is divided and --devices does not say among how many: among as many as there are ranks. *devices: the number so far. */
nnc_status share_among_ranks(const options *o, bool divided, int *devices, nnc_sink *sink);
/* As the flags say, or as the artifact was compiled. */
nnc_compile_options compile_options(const options *o, const work *w);
/* Opens the model of a file, or the artifact when the file is one; compile flags, which would have no effect on it, are NNC_E_USAGE
 * then. */
nnc_status open_either(const options *o, work *w, nnc_sink *sink);
/* Opens the machine and the model of all its devices, ready to be compiled with *c; or opens the artifact, and *c is not set. */
nnc_status open_whole(const options *o, work *w, nnc_compile_options *c, nnc_sink *sink);
/* The same, and compiles the model. */
nnc_status open_and_compile(const options *o, work *w, nnc_sink *sink);
/* Refuses --strategy=pipeline and data in the command `name`, which looks at splits, and layers on devices, only. */
nnc_status check_split_only(const options *o, const char *name, nnc_sink *sink);
/* nnc_reopen of options. */
nnc_status reopen(void *ctx, const nnc_reopening *how, nnc_model **out, nnc_sink *sink);
/* memory.c: searches by --fit, and appends the report to w->text; *largest: the value found for the first arg, where one fits. */
nnc_status fit_memory(const options *o, work *w, bool *fits, int64_t *largest, nnc_sink *sink);
/* Settings of the training, with those of the model's file; texts in `a`. */
nnc_status read_training(const options *o, nnc_train_options *t, nnc_arena *a, nnc_sink *sink);
/* Whether the model can be read again: a file, not standard input, and not an artifact. */
bool can_advise(const options *o);
/* Appends flags with which a model that does not fit would fit; nothing if it cannot be read again. As a note to the error, where st is
 * NNC_E_FIT, which is returned. */
nnc_status advise(const options *o, const work *w, mode as, nnc_text *t, nnc_sink *sink);
nnc_status note_advice(const options *o, const work *w, mode as, nnc_status st, nnc_sink *sink);
bool other_shapes(
    const options *o); /* of an artifact: does the command ask for other args or shapes? */
void put_word(nnc_text *t, const char *word); /* as the shell reads it */
nnc_status deliver(const options *o, const nnc_text *t, nnc_sink *sink); /* prints the text */
/* Prints warnings now, before the work that they concern. */
void print_warnings(nnc_sink *sink);
/* progress.c: "compiling: fused... 2 s" on a terminal, for what takes longer than a second; the seconds are those of the phase. Both
 * strings are copied, detail may be NULL. ctx: the options. */
void progress(void *ctx, const char *phase, const char *detail);
void progress_end(void);
void catch_aborts(void); /* aborts.c */
/* stop.c: from now on Ctrl-C and SIGTERM set `stopped` to their number, and print `what`, as in "finishing the step". */
extern volatile sig_atomic_t stopped;
void catch_stop(const char *what);
/* sweep.c: keeps what the flag says for nnc sweep. *value becomes the first of several that make series. */
nnc_status keep_series(const nnc_flag *f, char **value, options *o, nnc_sink *sink);

/* Columns of the terminal that standard output is, or as COLUMNS says; 0: it is none. */
int terminal_columns(void);

nnc_status cmd_compile(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_run(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_compare(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_profile(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_sweep(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_explain(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_memory(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_partition(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_calibrate(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_show(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_check(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_verify(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_report(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_train(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_opt(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_devices(const options *o, work *w, nnc_sink *sink);
nnc_status cmd_doctor(const options *o, work *w, nnc_sink *sink);

#endif
