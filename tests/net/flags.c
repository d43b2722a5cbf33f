/* tests/net/flags.c -- the flags that are combined, and a covering array of them. */
#include "net.h"
#include "passes/passes.h"

#include <stdlib.h>

static const char *const choice[NF__COUNT][32] = {
    [NF_level] = {"", "-O0", "-O1", "-O3"},
    [NF_math] = {"", "--math=exact", "--math=fast"},
    [NF_precision] = {"", "--precision=tf32", "--precision=f16", "--precision=bf16"},
    [NF_streams] = {"", "--streams=2", "--streams=3"},
    [NF_devices] = {"", "--devices=2"},
    [NF_threads] = {"--threads=1", "--threads=2", "--threads=5"},
    [NF_llvm] = {"", "--no-llvm"},
    /* small.json: generated kernels of short vectors alone */
    [NF_target] = {"", "--target=cuda:sm_75", "--target=cuda:sm_90", "--target=cuda:sm_120",
        "--target=cpu,tests/net/small.json", "--target=tests/net/small.json,cpu",
        "--target=cpu,cuda:sm_90", "--target=cuda:sm_75,cpu"},
    [NF_format] = {"", "--format=json", "--format=csv"},
    [NF_mode] = {"", "--mode=step"},
    [NF_training] = {"", "--loss=mse", "--loss=bce", "--optimizer=adam", "--optimizer=adamw",
        "--momentum=0.9", "--weight-decay=0.1", "--clip-norm=0.5", "--label-smoothing=0.1",
        "--bn=eval", "--accumulate=3", "--grad-inputs"},
    [NF_other] = {"", "--print-after=all", "--time-passes", "--jobs=3", "--no-cache", "--quiet",
        "--verbose", "--embed-weights", "--duration=1", "--warmup=0", "--io=include", "--io=both",
        "--percentile=50", "--no-steps", "--no-reference", "--tolerance=0.5"},
    /* actions: a command, or a stage of compile; "numbers" is the library alone */
    [NF_action] = {"numbers", "run", "compare", "explain", "memory", "show", "check", "opt",
        "artifact", "dump", "graph", "kernels", "plan", "dot", "onnx", "verify", "remarks", "llvm",
        "asm", "cuda", "ptx", "cubin", "profile", "partition"},
};

/* The groups (check.c) that the choices of NF_other belong to. */
char net_other_group(int i)
{
    return "hppsehvattttqxxn"[i];
}

int net_choices(int factor)
{
    int n = 0;
    if (factor == NF_skip)
        return 1 + nnc_pass_count;
    while (choice[factor][n])
        n++;
    return n;
}

const char *net_choice(int factor, int i)
{
    static char skip[64];
    if (factor != NF_skip)
        return choice[factor][i];
    if (i == 0)
        return "";
    snprintf(skip, sizeof skip, "--skip=%s", nnc_pass_table[i - 1].name);
    return skip;
}

bool net_gpu(const net_flags *f)
{
    return strstr(net_choice(NF_target, f->at[NF_target]), "cuda") != NULL;
}

bool net_cpu(const net_flags *f)
{
    return !f->at[NF_target] || strstr(net_choice(NF_target, f->at[NF_target]), "cpu");
}

void net_options(const net_flags *f, nnc_env_options *e, nnc_compile_options *c, const char **skip)
{
    static const int level[] = {2, 0, 1, 3}, threads[] = {1, 2, 5};
    static const nnc_precision precision[] = {
        NNC_PRECISION_default, NNC_PRECISION_tf32, NNC_PRECISION_f16, NNC_PRECISION_bf16};
    *e = (nnc_env_options){.threads = threads[f->at[NF_threads]],
        .no_llvm = f->at[NF_llvm],
        .target = f->at[NF_target] ? net_choice(NF_target, f->at[NF_target]) + strlen("--target=")
                                   : NULL};
    *c = nnc_compile_defaults;
    c->level = level[f->at[NF_level]];
    static const nnc_math math[] = {MATH_ulp2, MATH_exact, MATH_fast};
    c->math = math[f->at[NF_math]];
    c->precision = precision[f->at[NF_precision]];
    c->streams = f->at[NF_streams] + 1;
    c->devices = f->at[NF_devices] + 1;
    c->jobs = 1;
    if (f->at[NF_skip] > 0) {
        *skip = nnc_pass_table[f->at[NF_skip] - 1].name;
        c->skip = skip;
        c->n_skip = 1;
    }
}

bool net_training(const net_flags *f, nnc_training *t)
{
    const int k = f->at[NF_training];
    *t = nnc_training_defaults;
    t->loss = k == 1 ? NNC_LOSS_mse : k == 2 ? NNC_LOSS_bce : NNC_LOSS_cross_entropy;
    t->optimizer = k == 3 ? NNC_OPT_adam : k == 4 ? NNC_OPT_adamw : NNC_OPT_sgd;
    t->momentum = k == 5 ? 0.9 : 0;
    t->weight_decay = k == 6 ? 0.1 : 0;
    t->clip_norm = k == 7 ? 0.5 : 0;
    t->label_smoothing = k == 8 ? 0.1 : 0;
    t->bn = k == 9 ? NNC_BN_eval : NNC_BN_auto;
    t->accumulate = k == 10 ? 3 : 0;
    t->grad_inputs = k == 11;
    return f->at[NF_mode];
}

void net_print_flags(const net_flags *f, nnc_text *t)
{
    nnc_puts(t, choice[NF_action][f->at[NF_action]]);
    for (int i = 0; i < NF_action; i++)
        if (*net_choice(i, f->at[i]))
            nnc_printf(t, " %s", net_choice(i, f->at[i]));
}

/* ---- the covering array ------------------------------------------------------------------------------------------------ */

typedef struct pairs {
    const int *count;
    int n, most;
    bool *seen; /* [factor a][choice of a][factor b][choice of b], a < b */
    int64_t left;
} pairs;

static bool *pair_at(pairs *p, int a, int x, int b, int y)
{
    return a < b ? &p->seen[((a * p->most + x) * p->n + b) * p->most + y] : pair_at(p, b, y, a, x);
}

/* Pairs not yet seen that choice x of factor f makes with the choices already in row (-1: open). */
static int gain(pairs *p, const int *row, int f, int x)
{
    int n = 0;
    for (int g = 0; g < p->n; g++)
        n += g != f && row[g] >= 0 && !*pair_at(p, f, x, g, row[g]);
    return n;
}

/* The first pair not yet seen opens the row; each other factor, in an order that turns, takes the choice that covers most. */
static void fill_row(pairs *p, int *row, int turn)
{
    bool open = true;
    for (int i = 0; i < p->n; i++)
        row[i] = -1;
    for (int a = 0; open && a < p->n; a++)
        for (int b = a + 1; open && b < p->n; b++)
            for (int k = 0; open && k < p->count[a] * p->count[b]; k++)
                if (!*pair_at(p, a, k / p->count[b], b, k % p->count[b])) {
                    row[a] = k / p->count[b];
                    row[b] = k % p->count[b];
                    open = false;
                }
    for (int k = 0; k < p->n; k++) {
        int f = (k + turn) % p->n, best = -1;
        for (int i = 0, most = -1; row[f] < 0 && i < p->count[f]; i++) {
            int x = (i + turn) % p->count[f], n = gain(p, row, f, x);
            if (n > most) {
                most = n;
                best = x;
            }
        }
        if (best >= 0)
            row[f] = best;
    }
}

int net_pairs(const int *count, int n, int **rows)
{
    pairs p = {.count = count, .n = n};
    int made = 0, cap = 0;
    *rows = NULL;
    for (int i = 0; i < n; i++) {
        p.most = count[i] > p.most ? count[i] : p.most;
        for (int k = 0; k < i; k++)
            p.left += (int64_t)count[i] * count[k];
    }
    p.seen = calloc((size_t)(n * p.most) * (size_t)(n * p.most), sizeof *p.seen);
    while (p.seen && p.left > 0) {
        if (made == cap) {
            cap = cap ? 2 * cap : 64;
            *rows = realloc(*rows, (size_t)cap * (size_t)n * sizeof **rows);
        }
        int *row = *rows + (size_t)made * (size_t)n;
        fill_row(&p, row, made++);
        for (int a = 0; a < n; a++)
            for (int b = a + 1; b < n; b++) {
                bool *s = pair_at(&p, a, row[a], b, row[b]);
                p.left -= !*s;
                *s = true;
            }
    }
    free(p.seen);
    return made;
}
