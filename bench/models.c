/* bench/models.c -- how far models are from what the machine allows. For each: the median of whole runs, the roofline,
 * and a table of where the rest goes. The roofline is the sum over commands of the larger of FLOPs over measured peak and bytes
 * over measured bandwidth.
 *
 *     bench_models [--threads N] [--layers] MODEL [name=value ...] [-- MODEL ...]
 *
 * Bytes of weights move from memory in every run and are held against the read bandwidth. A tensor that the previous command wrote
 * and that fits the caches is held against memory's copy bandwidth: a roofline, not a cache model.
 *
 * Two shares of the roofline are printed. "of best": median run against the best ceilings ever seen. "in turn": runs take turns with short
 * measurements of the same ceilings. Each burst of runs is held against the mean of the measurements before and after it. The
 * median of these shares has its 95 % interval. On a machine whose clock and neighbours change, only the second says something
 * about the program. */
#include "check/compare.h"
#include "session/session.h"
#include "machine.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_SET = 16, MAX_RUNS = 2000, MAX_BURSTS = 41 };

typedef struct options {
    int threads, layers;
} options;

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t weight_bytes(const nnc_plan *p, const nnc_cmd *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_arg; i++)
        if (p->tensor[c->arg[i]].space == SP_persist)
            n += p->tensor[c->arg[i]].bytes;
    return n;
}

/* Seconds that command c needs at the machine's ceilings. */
static double limit(const nnc_plan *p, const nnc_cmd *c, const machine *m)
{
    int64_t w = nnc_min64(weight_bytes(p, c), c->bytes);
    double mem = (double)w / m->read + (double)(c->bytes - w) / m->copy,
           fma = (double)c->flops / m->flops;
    return mem > fma ? mem : fma;
}

static double roofline(const nnc_plan *p, const machine *m)
{
    double s = 0;
    for (int i = nnc_plan_first(p, SEC_main); i < p->end[SEC_main]; i++)
        s += limit(p, &p->cmd[i], m);
    return s;
}

static void print_layers(const nnc_plan *p, const machine *m, const int64_t *ns)
{
    printf("    %9s %9s %7s %9s %8s  %-10s %s\n", "us", "limit us", "share", "GFLOP/s", "GB/s",
        "class", "layers");
    for (int i = nnc_plan_first(p, SEC_main); i < p->end[SEC_main]; i++) {
        const nnc_cmd *c = &p->cmd[i];
        double t = (double)ns[i - nnc_plan_first(p, SEC_main)] * 1e-9, l = limit(p, c, m);
        if (c->kind == CMD_kernel || c->kind == CMD_call || c->kind == CMD_copy)
            printf("    %9.1f %9.1f %6.0f%% %9.1f %8.1f  %-10s %s\n", t * 1e6, l * 1e6, 100 * l / t,
                (double)c->flops / t * 1e-9, (double)c->bytes / t * 1e-9,
                c->op_class ? c->op_class : "", c->layers ? c->layers : "");
    }
}

static nnc_status fill(nnc_session *s, nnc_sink *sink)
{
    for (int i = 0; i < nnc_session_inputs(s); i++) {
        const nnc_type *t = nnc_session_input_type(s, i);
        void *x = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
        if (!x)
            return nnc_nomem(sink);
        nnc_fill_input(nnc_session_input_name(s, i), t, 0, x);
        nnc_status st = nnc_session_input(s, i, x, sink);
        nnc_free(x);
        NNC_TRY(st);
    }
    return NNC_OK;
}

/* Least time of every command over some profiled runs: where time goes without the noise. */
static nnc_status profile(nnc_session *s, int64_t *least, nnc_sink *sink)
{
    int n = s->plan->end[SEC_main] - nnc_plan_first(s->plan, SEC_main);
    int64_t *a = nnc_calloc((size_t)n, 8), *b = nnc_calloc((size_t)n, 8);
    nnc_status st = a && b ? NNC_OK : nnc_nomem(sink);
    for (int r = 0; !st && r < 10; r++) {
        st = nnc_exec_profile_behind(s->exec, 0, SEC_main, SEC_main, a, b, sink);
        for (int i = 0; !st && i < n; i++)
            least[i] = r == 0 || b[i] - a[i] < least[i] ? b[i] - a[i] : least[i];
    }
    nnc_free(a);
    nnc_free(b);
    return st;
}

/* What the timed runs gave: n run times in ns, sorted, and the shares of the roofline burst by burst. */
typedef struct runs {
    int n, bursts;
    int64_t ns[MAX_RUNS];
    double share[MAX_BURSTS];
} runs;

/* Runs for about 0.2 s, one at least; the first, which meets what the measurement left in the caches, is not timed.
 * *median: of this burst, in seconds. */
static nnc_status burst(nnc_session *s, runs *t, double *median, nnc_sink *sink)
{
    int first = t->n;
    int64_t spent = 0;
    NNC_TRY(nnc_session_run(s, sink));
    while (t->n < MAX_RUNS && (t->n == first || spent < 200000000)) {
        int64_t t0 = nnc_now_ns();
        NNC_TRY(nnc_session_run(s, sink));
        t->ns[t->n] = nnc_now_ns() - t0;
        spent += t->ns[t->n++];
    }
    qsort(t->ns + first, (size_t)(t->n - first), 8, by_value);
    *median = (double)t->ns[first + (t->n - first) / 2] * 1e-9;
    return NNC_OK;
}

/* Bursts in turn with the ceilings for about four seconds, at least six of them, which is what an interval needs. */
static nnc_status time_in_turn(nnc_session *s, meter *now, runs *t, nnc_sink *sink)
{
    int64_t t0 = nnc_now_ns();
    double median = 0;
    machine m = meter_now(now);
    double before = roofline(s->plan, &m);
    while (t->bursts < MAX_BURSTS && t->n < MAX_RUNS &&
           (t->bursts < 6 || nnc_now_ns() - t0 < 4000000000)) {
        NNC_TRY(burst(s, t, &median, sink));
        m = meter_now(now);
        double after = roofline(s->plan, &m);
        t->share[t->bursts++] = 0.5 * (before + after) / median;
        before = after;
    }
    qsort(t->ns, (size_t)t->n, 8, by_value);
    return NNC_OK;
}

static nnc_status time_session(const char *title, nnc_session *s, const machine *m, meter *now,
    const options *o, nnc_sink *sink)
{
    const nnc_plan *p = s->plan;
    runs t = {0};
    int64_t flops = 0, bytes = 0;
    NNC_TRY(fill(s, sink));
    for (int i = 0; i < 2; i++)
        NNC_TRY(nnc_session_run(s, sink));
    NNC_TRY(time_in_turn(s, now, &t, sink));
    for (int i = nnc_plan_first(p, SEC_main); i < p->end[SEC_main]; i++) {
        flops += p->cmd[i].flops;
        bytes += p->cmd[i].bytes;
    }
    double median = (double)t.ns[t.n / 2] * 1e-9, roof = roofline(p, m);
    nnc_ratio in_turn = nnc_pairs(t.share, t.bursts);
    printf("%-44s %9.3f %9.3f %9.3f %6.0f%% %6.0f%% [%3.0f,%4.0f] %8.1f %7.1f\n", title,
        median * 1e3, (double)t.ns[0] * 1e-6, roof * 1e3, 100 * roof / median, 100 * in_turn.ratio,
        100 * in_turn.low, 100 * in_turn.high, (double)flops / median * 1e-9,
        (double)bytes / median * 1e-9);
    if (!o->layers)
        return NNC_OK;
    int64_t *least = nnc_calloc((size_t)(p->end[SEC_main] - nnc_plan_first(p, SEC_main)) + 1, 8);
    nnc_status st = least ? profile(s, least, sink) : nnc_nomem(sink);
    if (!st)
        print_layers(p, m, least);
    nnc_free(least);
    return st;
}

/* "MODEL name=value ..." as options and as a title. */
static nnc_status read_words(
    char **arg, int n_arg, nnc_arg *set, int *n_set, nnc_text *title, nnc_sink *sink)
{
    nnc_puts(title, arg[0]);
    for (int i = 1; i < n_arg; i++) {
        nnc_printf(title, " %s", arg[i]);
        char *eq = strchr(arg[i], '=');
        if (!eq || *n_set == MAX_SET)
            return nnc_fail0(sink, NNC_E_USAGE, "expected name=value (at most %d), found %s",
                (int)MAX_SET, arg[i]);
        *eq = 0;
        set[(*n_set)++] = (nnc_arg){arg[i], eq + 1};
    }
    return NNC_OK;
}

static nnc_status bench(nnc_env *e, const machine *m, meter *now, const options *o, char **arg,
    int n_arg, nnc_sink *sink)
{
    nnc_arg set[MAX_SET];
    nnc_open_options mo = {.arg = set};
    nnc_text title = {0};
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    nnc_status st = read_words(arg, n_arg, set, &mo.n_arg, &title, sink);
    nnc_model *model = st ? NULL : nnc_model_open(arg[0], &mo, sink);
    if (!st)
        st = model ? nnc_compile(e, model, &nnc_compile_defaults, &a, sink) : NNC_E_MODEL;
    if (!st)
        st = nnc_session_create(e, a, &s, sink);
    if (!st)
        st = time_session(nnc_text_str(&title), s, m, now, o, sink);
    nnc_text_deinit(&title);
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_model_close(model);
    return st;
}

/* The ceilings, then a line (and a table with --layers) for each model of the arguments, which "--" separates. */
static nnc_status bench_all(nnc_env *e, const options *o, char **arg, int n_arg, nnc_sink *sink)
{
    int threads = nnc_env_threads(e);
    meter *now = meter_create(threads);
    if (!now)
        return nnc_fail0(
            sink, NNC_E_NOMEM, "no memory for the measuring loops (or over 64 threads)");
    machine m = meter_ceiling(now);
    nnc_status st = NNC_OK;
    printf("%d threads, best of several tries: multiply-add peak %.0f GFLOP/s, copy %.1f GB/s, "
           "read %.1f "
           "GB/s, copy in cache %.0f GB/s\n",
        threads, m.flops * 1e-9, m.copy * 1e-9, m.read * 1e-9, m.cache_copy * 1e-9);
    printf("%-44s %9s %9s %9s %7s %7s %10s %8s %7s\n", "model", "median ms", "least ms", "limit ms",
        "of best", "in turn", "95 %", "GFLOP/s", "GB/s");
    for (int i = 0; !st && i < n_arg;) {
        int n = 1;
        while (i + n < n_arg && strcmp(arg[i + n], "--") != 0)
            n++;
        st = bench(e, &m, now, o, arg + i, n, sink);
        i += n + 1;
    }
    meter_destroy(now);
    return st;
}

int main(int argc, char **argv)
{
    options o = {0};
    int i = 1;
    for (; i < argc && !strncmp(argv[i], "--", 2) && argv[i][2]; i++) {
        if (!strcmp(argv[i], "--layers"))
            o.layers = 1;
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            o.threads = atoi(argv[++i]);
        else
            break;
    }
    if (i == argc || argv[i][0] == '-') {
        fputs(
            "usage: bench_models [--threads N] [--layers] MODEL [name=value ...] [-- MODEL ...]\n",
            stderr);
        return nnc_exit_code(NNC_E_USAGE);
    }
    nnc_sink *sink = nnc_sink_create();
    nnc_env *e = NULL;
    nnc_status st = nnc_env_create(&(nnc_env_options){.threads = o.threads}, &e, sink);
    if (!st)
        st = bench_all(e, &o, argv + i, argc - i, sink);
    nnc_sink_print(sink, stderr);
    nnc_env_destroy(e);
    nnc_sink_destroy(sink);
    return nnc_exit_code(st);
}
