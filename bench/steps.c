/* bench/steps.c -- training steps of a model for programs that compare engines: train_steps.py, multi_train.py.
 *
 *     bench_steps MODEL [--set=NAME=VALUE]... [--form=FORM] [--streams=N] [--threads=N]
 *                 [--loss=L] [--optimizer=O] [--momentum=M]
 *
 * FORM: fused (the default), unfused, joined (all siblings), apart (no siblings), turns. For turns the argument `models` is the number of
 * sessions of the model with models=1, whose steps follow each other. It answers lines of standard input with a line of JSON each:
 *
 *     burst MS     makes steps for at least MS milliseconds: {"ms": [each step's]}
 *     parts N      {"data_ms", "forward_ms", "loss_ms", "backward_ms", "optimizer_ms"}: medians over N steps
 *     commands N   {"commands": [{"what", "times", "least_us", "median_us", "flops", "bytes"}]}: over N steps, commands that do the same
 *                  together. least_us: the sum of each command's least time, on which other programs tell least
 *     about        {"loss", "memory_bytes", "launches", "rss_bytes"}: of the first step; as planned; peak of the process beyond its start
 *     graph        {"graph", "outputs", "training"}: the model, for PyTorch (device/graph.c)
 *
 * Steps have a learning rate of 0. Inputs and weights are generated, as nnc compare does. */
#include "report/report.h"
#include "session/session.h"
#include "device/device.h"
#include "train/train.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, MOST_STEPS = 1 << 16 };

typedef struct worker {
    nnc_open_options open;
    nnc_compile_options compile;
    nnc_env_options env_options;
    nnc_training training;
    const char *model, *form, *loss_word, *optimizer;
    nnc_arg set[16];
    nnc_env *env;
    nnc_model *forward, *step;
    nnc_artifact *a;
    nnc_session *s[MOST];
    void *in[32]; /* by input */
    int n; /* sessions */
    int64_t base_rss;
    double loss;
    nnc_sink *sink;
} worker;

/* "VmRSS", "VmHWM": bytes. */
static int64_t resident(const char *which)
{
    char line[256];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, which, strlen(which)))
            kib = atoll(line + strlen(which) + 1);
    if (f)
        fclose(f);
    return kib * 1024;
}

static void reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
}

/* ---- preparing ------------------------------------------------------------------------------------------------------- */

static bool is_form(const worker *w, const char *form)
{
    return !strcmp(w->form, form);
}

/* "turns": models=N becomes N sessions of models=1. */
static void take_turns(worker *w)
{
    for (int i = 0; i < w->open.n_arg; i++)
        if (is_form(w, "turns") && !strcmp(w->set[i].name, "models")) {
            w->n = (int)nnc_min64(MOST, atoi(w->set[i].value));
            w->set[i].value = "1";
        }
}

static nnc_status set_inputs(worker *w, nnc_session *s)
{
    for (int i = 0; i < nnc_session_inputs(s); i++)
        NNC_TRY(nnc_session_input(s, i, w->in[i], w->sink));
    return NNC_OK;
}

static nnc_status make_inputs(worker *w)
{
    const nnc_compare_options o = {.training = &w->training};
    if (w->a->plan->n_input > (int)NNC_COUNT(w->in))
        return nnc_fail0(w->sink, NNC_E_USAGE, "more than %zu inputs", NNC_COUNT(w->in));
    return nnc_artifact_make_inputs(w->a, &o, 0, w->in, w->sink);
}

static nnc_status prepare(worker *w)
{
    const char *skip[64];
    take_turns(w);
    if (is_form(w, "joined"))
        w->compile.join_siblings = true;
    if (is_form(w, "apart"))
        skip[w->compile.n_skip++] = "siblings";
    for (int i = 0; is_form(w, "unfused") && i < nnc_pass_count; i++)
        if (nnc_pass_table[i].fusion)
            skip[w->compile.n_skip++] = nnc_pass_table[i].name;
    w->compile.skip = skip;
    NNC_TRY(nnc_env_create(&w->env_options, &w->env, w->sink));
    w->forward = nnc_model_open(w->model, &w->open, w->sink);
    if (!w->forward)
        return nnc_sink_cause(w->sink, NNC_E_MODEL);
    NNC_TRY(nnc_train_graph(w->forward, &w->training, &w->step, w->sink));
    NNC_TRY(nnc_compile(w->env, w->step, &w->compile, &w->a, w->sink));
    NNC_TRY(make_inputs(w));
    w->base_rss = resident("VmRSS");
    reset_peak();
    for (int i = 0; i < w->n; i++) {
        NNC_TRY(nnc_session_create(w->env, w->a, &w->s[i], w->sink));
        NNC_TRY(set_inputs(w, w->s[i]));
        NNC_TRY(nnc_session_step(w->s[i], w->sink));
    }
    float loss = 0;
    NNC_TRY(nnc_session_output(w->s[0], 0, &loss, w->sink));
    w->loss = (double)loss;
    return NNC_OK;
}

/* ---- answers --------------------------------------------------------------------------------------------------------- */

static nnc_status one_step(worker *w)
{
    for (int i = 0; i < w->n; i++)
        NNC_TRY(nnc_session_step(w->s[i], w->sink));
    return NNC_OK;
}

static nnc_status burst(worker *w, double ms, nnc_text *out)
{
    const int64_t end = nnc_now_ns() + (int64_t)(ms * 1e6);
    nnc_puts(out, "{\"ms\": [");
    for (int k = 0; k < MOST_STEPS && (!k || nnc_now_ns() < end); k++) {
        const int64_t from = nnc_now_ns();
        NNC_TRY(one_step(w));
        nnc_printf(out, "%s%.6f", k ? ", " : "", (double)(nnc_now_ns() - from) * 1e-6);
    }
    nnc_puts(out, "]}");
    return NNC_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static nnc_status parts(worker *w, int n, nnc_text *out)
{
    enum { MOST_TIMES = 101, DATA = PART__COUNT };
    static double ms[PART__COUNT + 1][MOST_TIMES];
    n = n < 1 ? 1 : n > MOST_TIMES ? MOST_TIMES : n;
    for (int k = 0; k < n; k++) {
        const int64_t from = nnc_now_ns();
        for (int i = 0; i < w->n; i++)
            NNC_TRY(set_inputs(w, w->s[i]));
        ms[DATA][k] = (double)(nnc_now_ns() - from) * 1e-6;
        for (int part = 0; part < PART__COUNT; part++)
            ms[part][k] = 0;
        for (int i = 0; i < w->n; i++) {
            nnc_shares x = {0};
            NNC_TRY(nnc_session_shares(w->s[i], SEC_main, SEC_step, &x, w->sink));
            for (int part = 0; part < PART__COUNT; part++)
                ms[part][k] += (double)x.part[part] * 1e-9;
        }
    }
    for (int part = 0; part <= PART__COUNT; part++) {
        qsort(ms[part], (size_t)n, sizeof ms[part][0], by_value);
        nnc_printf(out, "%s\"%s_ms\": %.6f", part ? ", " : "{",
            part == DATA ? "data" : nnc_part_names[part], ms[part][n / 2]);
    }
    nnc_puts(out, "}");
    return NNC_OK;
}

/* The kernel that command c runs, or the class of its call. */
static const char *name_of(const nnc_plan *p, const nnc_cmd *c)
{
    return c->kind == CMD_kernel ? p->kernel[c->item].symbol : c->op_class;
}

static bool do_the_same(const nnc_plan *p, const nnc_cmd *a, const nnc_cmd *b)
{
    return a->kind == b->kind && a->engine == b->engine && a->flops == b->flops &&
           a->bytes == b->bytes && !strcmp(name_of(p, a), name_of(p, b));
}

/* One line of `commands`: command number `first` and those after it that do the same. us[i * n]..: the sorted times of command i. */
static void put_alike(const worker *w, const nnc_cmd *cmd, int n_cmd, int first, const double *us,
    int n, nnc_text *out)
{
    const nnc_plan *p = w->a->plan;
    const nnc_cmd *c = &cmd[first];
    double least = 0, middle = 0;
    int times = 0;
    for (int i = first; i < n_cmd; i++)
        if (do_the_same(p, c, &cmd[i])) {
            least += us[i * n];
            middle += us[i * n + n / 2];
            times++;
        }
    nnc_printf(out,
        "%s{\"what\": \"%s\", \"engine\": \"%s\", \"times\": %d, \"least_us\": %.3f, "
        "\"median_us\": %.3f, \"flops\": %lld, \"bytes\": %lld}",
        first ? ", " : "", name_of(p, c), c->engine < 0 ? "" : p->engine[c->engine], times, least,
        middle, (long long)c->flops * times, (long long)c->bytes * times);
}

static nnc_status commands(worker *w, int n, nnc_text *out)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_plan *p = w->a->plan;
    const int from = nnc_plan_first(p, SEC_main), n_cmd = p->end[SEC_step] - from;
    n = n < 1 ? 1 : n;
    double *us = ARENA_NEW(&a, double, (int64_t)n_cmd *n + 1);
    int64_t *start = ARENA_NEW(&a, int64_t, n_cmd + 1), *end = ARENA_NEW(&a, int64_t, n_cmd + 1);
    NNC_NEED(us && start && end, w->sink);
    for (int k = 0; k < n; k++) {
        NNC_TRY(nnc_exec_profile_behind(w->s[0]->exec, 0, SEC_main, SEC_step, start, end, w->sink));
        for (int i = 0; i < n_cmd; i++)
            us[i * n + k] = (double)(end[i] - start[i]) * 1e-3;
    }
    for (int i = 0; i < n_cmd; i++)
        qsort(us + i * n, (size_t)n, sizeof *us, by_value);
    nnc_puts(out, "{\"commands\": [");
    for (int i = 0; i < n_cmd; i++) {
        int first = 0;
        while (!do_the_same(p, &p->cmd[from + first], &p->cmd[from + i]))
            first++;
        if (first == i)
            put_alike(w, p->cmd + from, n_cmd, i, us, n, out);
    }
    nnc_puts(out, "]}");
    return NNC_OK;
}

static void about(const worker *w, nnc_text *out)
{
    const nnc_plan *p = w->a->plan;
    int64_t bytes = 0, launches;
    for (int d = 0; d < p->n_device; d++)
        bytes += p->device[d].arena_bytes + p->device[d].persist_bytes;
    nnc_run_work(w->a, SEC_step, NULL, NULL, &launches);
    nnc_printf(out,
        "{\"loss\": %.9g, \"memory_bytes\": %lld, \"launches\": %lld, \"rss_bytes\": %lld, "
        "\"version\": \"%s\", \"threads\": %d}",
        w->loss, (long long)(bytes * w->n), (long long)(launches * w->n),
        (long long)(resident("VmHWM") - w->base_rss), nnc_version(), nnc_env_threads(w->env));
}

static void graph(const worker *w, nnc_text *out)
{
    nnc_puts(out, "{\"model\": ");
    nnc_put_json_string(out, w->model);
    graph_json(w->forward, out);
    training_json(&w->training, w->step, out);
    nnc_puts(out, "}");
    for (size_t i = 0; i < out->n; i++)
        out->s[i] = out->s[i] == '\n' ? ' ' : out->s[i];
}

static nnc_status answer(worker *w, const char *line, nnc_text *out)
{
    double number = 0;
    if (sscanf(line, "burst %lf", &number) == 1)
        return burst(w, number, out);
    if (sscanf(line, "parts %lf", &number) == 1)
        return parts(w, (int)number, out);
    if (sscanf(line, "commands %lf", &number) == 1)
        return commands(w, (int)number, out);
    if (!strncmp(line, "about", 5))
        about(w, out);
    else if (!strncmp(line, "graph", 5))
        graph(w, out);
    else
        return nnc_fail0(w->sink, NNC_E_USAGE, "what is `%s`?", line);
    return NNC_OK;
}

static nnc_status serve(worker *w)
{
    char line[256];
    NNC_TRY(prepare(w));
    puts("{\"ready\": true}");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        NNC_LOCAL(nnc_text) out = {0};
        NNC_TRY(answer(w, line, &out));
        puts(nnc_text_str(&out));
        fflush(stdout);
    }
    return NNC_OK;
}

/* ---- flags ----------------------------------------------------------------------------------------------------------- */

static bool read_flag(worker *w, char *arg)
{
    char *v = strchr(arg, '='), *second = v ? strchr(v + 1, '=') : NULL;
    if (strncmp(arg, "--", 2) != 0) {
        w->model = arg;
        return true;
    }
    if (!v++)
        return false;
    if (!strncmp(arg, "--set=", 6) && second && w->open.n_arg < (int)NNC_COUNT(w->set)) {
        *second = 0;
        w->set[w->open.n_arg++] = (nnc_arg){v, second + 1};
    } else if (!strncmp(arg, "--form=", 7)) {
        w->form = v;
    } else if (!strncmp(arg, "--streams=", 10)) {
        w->compile.streams = atoi(v);
    } else if (!strncmp(arg, "--threads=", 10)) {
        w->env_options.threads = atoi(v);
    } else if (!strncmp(arg, "--loss=", 7)) {
        w->loss_word = v;
    } else if (!strncmp(arg, "--optimizer=", 12)) {
        w->optimizer = v;
    } else if (!strncmp(arg, "--momentum=", 11)) {
        w->training.momentum = atof(v);
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static worker w = {.form = "fused", .n = 1};
    w.compile = nnc_compile_defaults;
    w.training = nnc_training_defaults;
    w.open.arg = w.set;
    w.sink = nnc_sink_create();
    bool ok = w.sink != NULL;
    for (int i = 1; ok && i < argc; i++)
        ok = read_flag(&w, argv[i]);
    ok = ok && w.model && training_of(w.loss_word, w.optimizer, &w.training);
    if (!ok) {
        fputs("usage: bench_steps MODEL [--set=NAME=VALUE]... "
              "[--form=fused|unfused|joined|apart|turns] [--streams=N] [--threads=N]\n"
              "  [--loss=cross_entropy|mse|bce] [--optimizer=sgd|adam|adamw] [--momentum=M]\n",
            stderr);
        return nnc_exit_code(NNC_E_USAGE);
    }
    const nnc_status st = serve(&w);
    if (st)
        nnc_sink_print(w.sink, stderr);
    for (int i = 0; i < w.n; i++)
        nnc_session_destroy(w.s[i]);
    for (size_t i = 0; i < NNC_COUNT(w.in); i++)
        nnc_free(w.in[i]);
    nnc_artifact_destroy(w.a);
    nnc_graph_destroy(w.step);
    nnc_model_close(w.forward);
    nnc_env_destroy(w.env);
    nnc_sink_destroy(w.sink);
    return nnc_exit_code(st);
}
