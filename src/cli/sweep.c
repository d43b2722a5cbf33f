/* cli/sweep.c -- nnc sweep: the sizes and the series that its flags make. */
#include "cli/cli.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Flags whose values between commas make series, and how their values are named in a series. */
static const struct {
    const char *flag, *name;
} axis_flags[] = {{"--target", ""}, {"--hardware", ""}, {"--threads", "threads "},
    {"--precision", ""}, {"--math", ""}, {"-O", "-O"}, {"--fusion", "fusion "}, {"--io", "io "},
    {"--streams", "streams "}, {"--devices", "devices "}};

/* How values of the flag are named; NULL: they make no series. */
static const char *name_of(const char *flag)
{
    for (size_t i = 0; i < NNC_COUNT(axis_flags); i++)
        if (!strcmp(axis_flags[i].flag, flag))
            return axis_flags[i].name;
    return NULL;
}

/* Flags that decide nothing about the rows. */
static bool only_prints(const char *flag)
{
    static const char *const names[] = {"-o", "--html", "--svg", "--chart", "--format", "--quiet",
        "--help", "--jobs", "--cache-dir", "--no-cache"};
    for (size_t i = 0; i < NNC_COUNT(names); i++)
        if (!strcmp(names[i], flag))
            return true;
    return false;
}

nnc_status keep_series(const nnc_flag *f, char **value, options *o, nnc_sink *sink)
{
    const char *flag = f->value.name, *text = *value ? *value : "";
    if (only_prints(flag))
        return NNC_OK;
    if (o->sweep.n_typed == MOST_TYPED || o->sweep.n_axis == MOST_AXES)
        return nnc_fail0(sink, NNC_E_USAGE, "nnc sweep takes at most %d flags", MOST_TYPED);
    const bool space = f->value.kind == NNC_SET_PAIRS;
    const char *typed =
        nnc_arena_printf(&o->strings, "%s%s%s", flag, *value ? space ? " " : "=" : "", text);
    NNC_NEED(typed, sink);
    o->sweep.typed[o->sweep.n_typed++] = typed;
    const bool lists_devices = !strcmp(flag, "--devices") && strchr(text, ':');
    if (!name_of(flag) || lists_devices)
        return NNC_OK;
    int n = 0;
    while (n < o->sweep.n_axis && o->sweep.axis[n].flag != f)
        n++;
    if (n < o->sweep.n_axis) /* the same values once more */
        o->sweep.n_typed--;
    else
        o->sweep.n_axis++;
    o->sweep.axis[n].flag = f;
    o->sweep.axis[n].values = nnc_arena_strdup(&o->strings, text);
    *value = nnc_arena_strndup(&o->strings, text, strcspn(text, ","));
    NNC_NEED(o->sweep.axis[n].values && *value, sink);
    return NNC_OK;
}

/* ---- series ---------------------------------------------------------------------------------------------- */

/* A value of a flag or, without one, of an arg of the model. */
typedef struct choice {
    const nnc_flag *flag;
    const char *arg, *value;
    const char *name; /* in a series' name */
} choice;

typedef struct axis {
    int n;
    choice *at;
    size_t cap;
} axis;

typedef struct sweep {
    const options *o;
    nnc_arena *a;
    nnc_sizes sizes;
    axis axis[MOST_AXES + MOST_TYPED];
    int n_axis, n_series;
    options *with; /* by series */
    nnc_sweep_series *series;
    nnc_sink *sink;
} sweep;

static nnc_status add_choice(sweep *p, axis *x, choice c)
{
    NNC_NEED(c.value && c.name && ARENA_ROOM(p->a, x->at, x->cap, x->n + 1), p->sink);
    x->at[x->n++] = c;
    return NNC_OK;
}

/* "models/hardware/a100x8.json" is called a100x8. */
static const char *short_name(const char *prefix, const char *value, size_t n, nnc_arena *a)
{
    const char *from = value;
    for (size_t i = 0; i < n; i++)
        from = value[i] == '/' ? value + i + 1 : from;
    n -= (size_t)(from - value);
    const bool file = n > 5 && !strncmp(from + n - 5, ".json", 5);
    return nnc_arena_printf(a, "%s%.*s", prefix, (int)(file ? n - 5 : n), from);
}

static nnc_status add_list(
    sweep *p, axis *x, const nnc_flag *flag, const char *arg, const char *prefix, const char *list)
{
    for (const char *s = list;; s++) {
        const size_t n = strcspn(s, ",");
        NNC_TRY(add_choice(p, x,
            (choice){flag, arg, nnc_arena_strndup(p->a, s, n), short_name(prefix, s, n, p->a)}));
        s += n;
        if (!*s)
            return NNC_OK;
    }
}

static bool is_range(const char *value)
{
    return strstr(value, "..") || strchr(value, '^');
}

/* The first range of an arg or, without one, the first list gives the sizes. */
static const nnc_arg *find_sizes(const options *o)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < o->model.n_arg; i++)
            if (k ? strchr(o->model.arg[i].value, ',') != NULL : is_range(o->model.arg[i].value))
                return &o->model.arg[i];
    return NULL;
}

/* Other args with several values. */
static nnc_status read_arg(sweep *p, const nnc_arg *arg)
{
    axis *x = &p->axis[p->n_axis];
    const char *prefix = nnc_arena_printf(p->a, "%s=", arg->name);
    nnc_sizes s;
    NNC_NEED(prefix, p->sink);
    if (!is_range(arg->value) && !strchr(arg->value, ','))
        return NNC_OK;
    p->n_axis++;
    if (!is_range(arg->value))
        return add_list(p, x, NULL, arg->name, prefix, arg->value);
    NNC_TRY(nnc_sizes_parse(arg, &s, p->a, p->sink));
    for (int i = 0; i < s.n; i++) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)s.at[i]);
        NNC_TRY(add_list(p, x, NULL, arg->name, prefix, text));
    }
    return NNC_OK;
}

/* --target and --hardware list machines, which are one axis. */
static nnc_status read_axes(sweep *p)
{
    const options *o = p->o;
    const nnc_arg *of = find_sizes(o);
    axis *machines = NULL;
    if (!of)
        return nnc_fail0(p->sink, NNC_E_USAGE,
            "nnc sweep needs sizes, --set NAME=SIZES, as in --set dim=1..4096x2 or --set "
            "batch=1,2,4");
    NNC_TRY(nnc_sizes_parse(of, &p->sizes, p->a, p->sink));
    for (int i = 0; i < o->model.n_arg; i++)
        if (&o->model.arg[i] != of)
            NNC_TRY(read_arg(p, &o->model.arg[i]));
    for (int i = 0; i < o->sweep.n_axis; i++) {
        const nnc_flag *f = o->sweep.axis[i].flag;
        const bool machine = !*name_of(f->value.name) && f->value.kind == NNC_SET_TEXT;
        axis *x = machine && machines ? machines : &p->axis[p->n_axis++];
        machines = machine ? x : machines;
        NNC_TRY(add_list(p, x, f, NULL, name_of(f->value.name), o->sweep.axis[i].values));
    }
    return NNC_OK;
}

/* Targets other than this machine's are predicted. */
static bool is_described(const nnc_env_options *e)
{
    const char *t = e->target ? e->target : "cpu";
    return e->hardware ||
           (strcmp(t, "cpu") != 0 && strcmp(t, "cuda") != 0 && strncmp(t, "cpu:x86-64-v", 12) != 0);
}

static nnc_status leave_fusion_out(nnc_compile_options *c, nnc_arena *a, nnc_sink *sink)
{
    const char **skip = ARENA_NEW(a, const char *, c->n_skip + nnc_pass_count);
    NNC_NEED(skip, sink);
    for (int i = 0; i < c->n_skip; i++)
        skip[i] = c->skip[i];
    for (int i = 0; i < nnc_pass_count; i++)
        if (nnc_pass_table[i].fusion)
            skip[c->n_skip++] = nnc_pass_table[i].name;
    c->skip = skip;
    return NNC_OK;
}

static nnc_status apply(sweep *p, options *with, const choice *c, nnc_arg *arg, int *n_arg)
{
    if (!c->flag) {
        arg[(*n_arg)++] = (nnc_arg){c->arg, c->value};
        return NNC_OK;
    }
    if (!strcmp(c->flag->value.name, "--target"))
        with->env.hardware = NULL;
    if (!strcmp(c->flag->value.name, "--hardware"))
        with->env.target = NULL;
    return nnc_setting_set(&c->flag->value, "", with, c->value, p->a, p->sink);
}

static nnc_status make_series(sweep *p, int number, const work *w)
{
    options *with = &p->with[number];
    NNC_LOCAL(nnc_text) name = {0};
    nnc_arg *arg = ARENA_NEW(p->a, nnc_arg, p->n_axis + 1);
    NNC_NEED(arg, p->sink);
    int n_arg = 0, rest = number;
    *with = *p->o;
    for (int i = p->n_axis; i-- > 0;) { /* the last axis changes fastest */
        const choice *c = &p->axis[i].at[rest % p->axis[i].n];
        rest /= p->axis[i].n;
        NNC_TRY(apply(p, with, c, arg, &n_arg));
    }
    rest = number;
    for (int i = 0, each = p->n_series; i < p->n_axis; i++) {
        each /= p->axis[i].n;
        if (p->axis[i].n > 1)
            nnc_printf(&name, "%s%s", name.n ? ", " : "", p->axis[i].at[rest / each].name);
        rest %= each;
    }
    if (!name.n)
        nnc_puts(&name, with->env.hardware
                            ? short_name("", with->env.hardware, strlen(with->env.hardware), p->a)
                        : with->env.target ? with->env.target
                                           : "cpu");
    if (with->compare.io == NNC_IO_BOTH)
        return nnc_fail0(p->sink, NNC_E_USAGE, "--io=both: two series are --io=exclude,include");
    if (with->mode == MODE_step && with->compare.io != NNC_IO_EXCLUDE)
        return nnc_fail0(p->sink, NNC_E_USAGE,
            "steps of a training are timed without copies to and from the device: leave --io out");
    with->compare.compile = compile_options(with, w);
    if (with->sweep.unfused)
        NNC_TRY(leave_fusion_out(&with->compare.compile, p->a, p->sink));
    with->compare.training = with->mode == MODE_step ? &with->train.training : NULL;
    with->compare.seed = with->model.seed;
    with->compare.stop = &stopped;
    p->series[number] = (nnc_sweep_series){.name = nnc_arena_strdup(p->a, nnc_text_str(&name)),
        .env = with->env,
        .time = with->compare,
        .model = {reopen, with, 1, with->compare.training},
        .arg = arg,
        .n_arg = n_arg,
        .predict = is_described(&with->env)};
    NNC_NEED(p->series[number].name && !name.oom, p->sink);
    return NNC_OK;
}

/* The flags that decide the rows in one order, without the sizes: a file may be continued with others. */
static const char *put_flags(const sweep *p, nnc_text *t)
{
    const char *typed[MOST_TYPED];
    NNC_LOCAL(nnc_text) sizes = {.into = t};
    int n = p->o->sweep.n_typed;
    memcpy(typed, p->o->sweep.typed, sizeof typed);
    qsort(typed, (size_t)n, sizeof *typed, nnc_by_text);
    nnc_printf(&sizes, "--set %s=", p->sizes.name);
    for (int i = 0; i < n; i++)
        if (strncmp(typed[i], nnc_text_str(&sizes), sizes.n) != 0)
            nnc_printf(t, "%s%s", t->n ? " " : "", typed[i]);
    return nnc_text_str(t);
}

static nnc_status write_charts(const options *o, const nnc_sweep *s, nnc_sink *sink)
{
    enum { WIDTH = 640 };
    NNC_LOCAL(nnc_text) svg = {0}, page = {0};
    if (o->svg) {
        nnc_sweep_svg(s, o->sweep.chart, WIDTH, &svg);
        NNC_TRY(nnc_write_picture(&svg, o->svg, sink));
    }
    if (o->html) {
        nnc_sweep_html(s, &page);
        NNC_TRY(nnc_write_picture(&page, o->html, sink));
    }
    return NNC_OK;
}

/* 4 where no row has a time, and what keeps one from running is memory. */
static nnc_status judge(const nnc_sweep *s, nnc_sink *sink)
{
    const nnc_sweep_point *failed = NULL;
    for (int i = 0; i < s->n; i++) {
        const nnc_sweep_point *p = &s->row[i].p;
        if (p->median_ms > 0)
            return NNC_OK;
        failed = p->kind == SWEEP_failed && !failed ? p : failed;
    }
    if (failed)
        return nnc_fail0(sink, failed->status, "no size ran: %s", failed->message);
    if (s->n)
        nnc_note(sink, (nnc_loc){0}, "no size fits");
    return s->n ? NNC_E_FIT : NNC_OK;
}

nnc_status cmd_sweep(const options *o, work *w, nnc_sink *sink)
{
    enum { MOST_SERIES = 256 };
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(nnc_text) flags = {0};
    NNC_FREED sweep *p = nnc_calloc(1, sizeof *p);
    nnc_sweep s = {0};
    NNC_NEED(p, sink);
    *p = (sweep){.o = o, .a = &a, .n_series = 1, .sink = sink};
    for (int i = 0; i < o->n_file; i++) {
        if (nnc_is_artifact(o->file[i]))
            return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[i]},
                "is compiled already: nnc sweep takes the model, which it opens at each size");
        if (!strcmp(o->file[i], "-"))
            return nnc_fail0(sink, NNC_E_USAGE,
                "nnc sweep opens the model at each size: name a file, not standard input");
    }
    NNC_TRY(check_reports(o, sink));
    NNC_TRY(read_axes(p));
    for (int i = 0; i < p->n_axis; i++) {
        if (p->axis[i].n > MOST_SERIES / p->n_series)
            return nnc_fail0(sink, NNC_E_USAGE, "nnc sweep takes at most %d series", MOST_SERIES);
        p->n_series *= p->axis[i].n;
    }
    NNC_NEED(ARENA_ARRAYS(&a, p->n_series, p->with, p->series), sink);
    for (int i = 0; i < p->n_series; i++)
        NNC_TRY(make_series(p, i, w));
    const nnc_sweep_options so = {.sizes = p->sizes,
        .series = p->series,
        .n_series = p->n_series,
        .flags = put_flags(p, &flags),
        .budget_ms = o->sweep.budget_s * 1e3,
        .file = o->sweep.file,
        .stop = &stopped,
        .progress = progress,
        .progress_ctx = (void *)o};
    NNC_NEED(!flags.oom, sink);
    catch_stop("stopping");
    nnc_status st = nnc_sweep_run(&so, &s, sink);
    if (!st) {
        nnc_sweep_print(&s, o->format, &w->text);
        st = write_charts(o, &s, sink);
    }
    if (!st)
        st = judge(&s, sink);
    nnc_arena_deinit(&s.arena);
    if (stopped && !st) { /* what there is, and then the end that the signal asked for */
        w->no_text = true;
        st = deliver(o, &w->text, sink);
        signal(stopped, SIG_DFL);
        raise(stopped);
    }
    return st;
}
