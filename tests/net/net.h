/* tests/net/net.h -- what users type: model files and flags drawn at random or paired by a covering array. Each is checked through
 * the library and through the commands themselves, which run inside this process. A case that crashes or hangs ends its worker
 * process only; a failing case is made smaller and printed as a model file for tests/net/found. */
#ifndef NNC_TESTS_NET_H
#define NNC_TESTS_NET_H

#include "api/help.h"
#include "train/train.h"

/* ---- flags ---------------------------------------------------------------------------------------------------------- */

enum {
    NF_level,
    NF_math,
    NF_precision,
    NF_streams,
    NF_devices,
    NF_threads,
    NF_llvm,
    NF_target,
    NF_skip,
    NF_format,
    NF_mode,
    NF_training, /* of a training step only */
    NF_other,
    NF_action,
    NF__COUNT
};

/* The last actions, profile and partition, are of small random files: with them models of 10^8 weights would meet the interpreter. */
enum { NET_SMALL_ACTIONS = 2 };

/* A choice for each factor; 0 is the default. */
typedef struct net_flags {
    int at[NF__COUNT];
} net_flags;

/* Number of choices of a factor, and the words of one ("" is none). */
int net_choices(int factor);
const char *net_choice(int factor, int i);
/* Letter of the group of flags that choice i of NF_other belongs to: which commands take it. */
char net_other_group(int i);
/* The same choices for the library. */
void net_options(const net_flags *f, nnc_env_options *e, nnc_compile_options *c, const char **skip);
/* Is it a training step that they ask for, and which? */
bool net_training(const net_flags *f, nnc_training *t);
/* Is there a GPU, is there a CPU among the targets? */
bool net_gpu(const net_flags *f);
bool net_cpu(const net_flags *f);
void net_print_flags(const net_flags *f, nnc_text *t);

/* Rows that cover every pair of choices of any two of `n` factors with count[i] choices; returns how many, row-major in *rows (free). */
int net_pairs(const int *count, int n, int **rows);

/* ---- checking --------------------------------------------------------------------------------------------------------- */

typedef struct net_case {
    const char *file;   /* the model, in `dir` unless it is one of models/ */
    const nnc_arg *arg; /* --set */
    int n_arg;
    net_flags flags;
    const char *dir;    /* of this worker's files */
    bool no_step;       /* the model has no training step */
} net_case;

/* Is the model fit for a comparison of numbers: small, finite, well-conditioned, without decisions that rounding may turn? *why not is a
 * word. */
bool net_sound(const nnc_graph *g, const char **why);
/* Is a training step so, whose masks may change by rounding? */
bool net_fits_training(const nnc_graph *step, const char **why);
/* Do the library and the commands do what they promise? False: `why` says what failed. */
bool net_check(const net_case *c, nnc_text *why);
/* Is a file of any sizes refused with a message, or reported on, by the commands that run nothing? */
bool net_check_reports(const net_case *c, nnc_text *why);
/* Runs `nnc argv...` inside this process; what it prints goes to the texts. Returns the exit code. */
int net_command(const char *dir, const char *const *argv, nnc_text *out, nnc_text *err);

/* ---- random model files ------------------------------------------------------------------------------------------------- */

/* A model file as JSON text (free), sound and accepted by the frontend. `rejected` counts drawn layers that the frontend refused, each of
 * which must have a located message. Otherwise *why says what was wrong and the result is NULL. */
char *net_draw(uint64_t seed, int *rejected, nnc_text *why);
/* The "doc" of a model file that is sound with --set=width=3 too, and is checked so. */
#define NET_SET "to be run with --set=width=3"

/* The same file with one or two of its numbers zero, negative, huge or broken (free). */
char *net_damage(const char *text, uint64_t seed);

/* ---- what was drawn ------------------------------------------------------------------------------------------------------------ */

/* Counts of layer types, keys, dtypes and flags, shared by this process and its workers. */
bool net_cover_begin(void);
void net_cover(const char *text, const net_flags *f);
/* Prints the counts; `all`: a layer type, key, dtype or flag that was never drawn is a failure. */
void net_cover_end(bool all);

/* ---- worker processes ---------------------------------------------------------------------------------------------------- */

typedef bool net_job(uint64_t index, const char *dir, void *ctx, nnc_text *why);
/* Runs job(from..to-1), each within `seconds` of CPU time, in worker processes. Calls `failed` in this process for each that fails,
 * crashes or hangs. Returns how many failed. */
int net_run(uint64_t from, uint64_t to, int workers, int seconds, net_job *job, void *ctx,
    void (*failed)(uint64_t index, const char *why, void *ctx));

/* Sets what a worker's commands find. GPUs are compiled for without their libraries, so that a case takes milliseconds and says the same
 * everywhere. The cache of machine code is the one that all tests share, or one in its folder. */
void net_surroundings(const char *dir);

/* The smallest text found for which fails(text) still holds; the result is the caller's (free). */
char *net_shrink(const char *text, bool (*fails)(const char *text, void *ctx), void *ctx, int tries);

#endif
