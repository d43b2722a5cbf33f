/* cli/flags.c -- the flags of all commands in one table, used for parsing and --help. */
#include "cli/cli.h"
#include "report/report.h"
#include "session/train.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(f) offsetof(options, f)
static const nnc_flag own[] = {
#include "cli/flags.def"
};

/* Flags of this file, then those of training, which model files share: their values stand in options.train. */
enum { OWN = NNC_COUNT(own), FLAGS = OWN + NNC_TRAIN_SETTINGS };

static size_t n_flags(void)
{
    return OWN + nnc_n_train_settings;
}

static const nnc_flag *flag_at(size_t i)
{
    return i < OWN ? &own[i] : &nnc_train_settings[i - OWN];
}

static bool takes(const command *c, nnc_flag_group group)
{
    return group == FLAGS_help || c->groups >> group & 1;
}

static bool applies(const command *c, const nnc_flag *f)
{
    return takes(c, f->group);
}

const nnc_flag *next_flag(const command *c, size_t *i)
{
    while (*i < n_flags())
        if (applies(c, flag_at((*i)++)))
            return flag_at(*i - 1);
    return NULL;
}

bool is_switch(const nnc_flag *f)
{
    return f->value.kind == NNC_SET_BOOL || f->value.kind == NNC_SET_UNSET;
}

/* Accepts a flag of one value twice when both values are equal (scripts append flags); two different values are an error. */
static nnc_status check_twice(
    const nnc_flag *f, const char **before, const char *value, nnc_sink *sink)
{
    bool one_value =
        !is_switch(f) && f->value.kind != NNC_SET_LIST && f->value.kind != NNC_SET_PAIRS;
    const char *first = *before;
    if (!one_value)
        return NNC_OK;
    *before = value;
    if (!first || !strcmp(first, value))
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_USAGE, "%s is given twice, as %s and as %s: leave one out",
        f->value.name, first, value);
}

/* Refuses pairs of flags that contradict each other. */
static nnc_status check_exclusive(const options *o, nnc_sink *sink)
{
    if (o->compare.iterations && o->compare.duration_ms)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--iterations and --duration both say how long to measure: leave one out");
    if (o->env.no_cache && o->env.cache_dir)
        return nnc_fail0(
            sink, NNC_E_USAGE, "--no-cache uses no cache, --cache-dir names one: leave one out");
    if (o->model.n_rename && !o->model.weights)
        return nnc_fail0(sink, NNC_E_USAGE, "--rename is of the tensors in --weights=FILE");
    const nnc_compile_options *c = &o->compare.compile;
    if (c->schedule == NNC_SCHEDULE_ios &&
        (c->streams < 2 || c->devices > 1 || o->mode == MODE_step || o->n_file > 1))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--streams-by=ios are stages of inference of one model on one device: it needs "
            "--streams=N of 2 or more, without --mode=step, several --devices and other models");
    if (o->predict && !o->trace)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--predict is for a measured run: it needs the file of both, --trace=FILE");
    if (o->env.tune && !o->env.tuning)
        return nnc_fail0(sink, NNC_E_USAGE, "--tune needs the file to add to: --tuning=FILE");
    if (o->mode == MODE_step && o->compare.io != NNC_IO_EXCLUDE)
        return nnc_fail0(sink, NNC_E_USAGE,
            "steps of a training are timed without copies to and from the device: leave --io out");
    if (o->parts && !nnc_is_pipeline(o->sharing))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--batch-parts=%d divides the batch for a pipeline: it needs --strategy=pipeline",
            o->parts);
    NNC_LOCAL(nnc_text) splits = {0};
    nnc_put_strategies(&splits, nnc_is_split, " or ");
    if (o->replicas > 1 && !nnc_is_pipeline(o->sharing) && !nnc_is_split(o->sharing))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--replicas=%d are of --strategy=pipeline, %s (data has one on each device)",
            o->replicas, nnc_text_str(&splits));
    if (o->zero && o->mode != MODE_step)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--zero=%d divides states of a training step among replicas: it needs --mode=step",
            o->zero);
    if (o->zero && o->sharing != NNC_STRATEGY_data && o->replicas < 2)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--zero=%d divides states among replicas: it needs --strategy=data, or --replicas=R",
            o->zero);
    if (o->training_flag && o->mode != MODE_step)
        return nnc_fail0(
            sink, NNC_E_USAGE, "%s is of a training step: it needs --mode=step", o->training_flag);
    return NNC_OK;
}

/* --replace-head=classes=100 */
static nnc_status read_head(options *o, nnc_sink *sink)
{
    char *end = NULL;
    if (!o->n_head)
        return NNC_OK;
    const long n = strtol(o->head->value, &end, 10);
    if (o->n_head > 1 || strcmp(o->head->name, "classes") != 0 || *end || n < 1 || n > 1000000000)
        return nnc_fail0(sink, NNC_E_USAGE, "--replace-head: expected classes=N, found `%s=%s`",
            o->head->name, o->head->value);
    o->model.classes = (int)n;
    return NNC_OK;
}

/* Finds the flag that `arg` names, and its attached value ("--set=a=1", "-O2"). */
static const nnc_flag *find_flag(const command *c, char *arg, char **value, size_t *at)
{
    size_t n = strcspn(arg, "=");
    *value = NULL;
    for (size_t i = 0; i < n_flags(); i++) {
        const nnc_flag *f = flag_at(*at = i);
        if (!applies(c, f))
            continue;
        bool one_letter = f->value.name[1] != '-';
        if (one_letter && !strncmp(f->value.name, arg, 2) && arg[2] && arg[2] != '=') {
            *value = arg + 2;
            return f;
        }
        if (strlen(f->value.name) == n && !strncmp(f->value.name, arg, n)) {
            if (arg[n] == '=')
                *value = arg + n + 1;
            return f;
        }
    }
    return NULL;
}

static nnc_status unknown(const command *c, const char *arg, nnc_sink *sink)
{
    const char *names[FLAGS];
    char word[64];
    size_t n = 0;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(arg, "="), arg);
    for (size_t i = 0; i < n_flags(); i++)
        if (applies(c, flag_at(i)))
            names[n++] = flag_at(i)->value.name;
    const char *near = nnc_nearest(word, names, n), *value = arg[strlen(word)] ? arg + 2 : NULL;
    if (!strcmp(word, "--micro-batches") && takes(c, FLAGS_partition))
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc %s: unknown flag %s; did you mean --batches?", c->name, word);
    if (!strcmp(word, "--micro-batches") && takes(c, FLAGS_sharing))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unknown flag %s, which are whole batches of nnc train; --batch-parts=M "
            "divides the batch into M parts",
            c->name, word);
    for (size_t i = 0; i < n_flags(); i++)
        if (flag_at(i)->group != FLAGS_file && !strcmp(flag_at(i)->value.name, word))
            return nnc_fail0(sink, NNC_E_USAGE,
                "nnc %s: unknown flag %s (other commands have it); nnc %s --help lists the flags",
                c->name, word, c->name);
    const char *ours = takes(c, FLAGS_training) ? nnc_train_calls(word) : NULL;
    if (ours && !strcmp(ours, "batch"))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unknown flag %s; did you mean the model's argument, --set batch=%s?", c->name,
            word, arg[strlen(word)] ? arg + strlen(word) + 1 : "N");
    if (ours)
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc %s: unknown flag %s; did you mean --%s?", c->name, word, ours);
    if (value && !strncmp(arg, "--", 2) && takes(c, FLAGS_model))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unknown flag %s; did you mean %s%sthe model's argument, --set %s?", c->name,
            word, near ? near : "", near ? ", or " : "", value);
    if (near)
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc %s: unknown flag %s; did you mean %s?", c->name, word, near);
    return nnc_fail0(sink, NNC_E_USAGE, "nnc %s: unknown flag %s; nnc %s --help lists the flags",
        c->name, word, c->name);
}

/* Whether name_of lists the name; otherwise *near is the most similar one, or NULL. */
static bool is_named(const char *name, const char *(*name_of)(int), const char **near)
{
    const char *names[64];
    size_t n = 0;
    bool found = false;
    while (n < NNC_COUNT(names) && (names[n] = name_of((int)n)))
        found = !strcmp(names[n++], name) || found;
    *near = nnc_nearest(name, names, n);
    return found;
}

/* Rejects unknown passes of --print-after and unknown stages before compiling. */
static nnc_status check_names(const options *o, nnc_sink *sink)
{
    const char *stage;
    if (o->emit && !is_named(o->emit, nnc_stage_name, &stage))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--emit: unknown stage `%s`%s%s; expected graph, kernels, plan, llvm, asm, cuda, ptx, "
            "cubin, dot, svg, onnx, remarks",
            o->emit, stage ? "; did you mean " : "", stage ? stage : "");
    for (int i = 0; i < o->n_print_after; i++) {
        const char *near, *name = o->print_after[i];
        if (strcmp(name, "all") && !is_named(name, nnc_pass_name, &near))
            return nnc_fail0(sink, NNC_E_USAGE,
                near ? "--print-after: unknown pass `%s`; did you mean `%s`?"
                     : "--print-after: unknown pass `%s`; nnc passes lists them%s",
                name, near ? near : "");
    }
    return NNC_OK;
}

/* Short forms. */
static char *alias(char *arg)
{
    static char help[] = "--help", verbose[] = "--verbose";
    return !strcmp(arg, "-h") ? help : !strcmp(arg, "-v") ? verbose : arg;
}

/* Keeps flags for the commands that nnc partition prints. (nnc train does not take --grad-inputs.) */
static nnc_status keep_typed(const nnc_flag *f, const char *value, options *o, nnc_sink *sink)
{
    const uint64_t printed = NNC_FLAGS(model) | NNC_FLAGS(training) | NNC_FLAGS(compiling);
    const char *name = f->value.name, **to = &o->typed;
    NNC_LOCAL(nnc_text) t = {0};
    if (!strcmp(name, "--set") && !strncmp(value, "batch=", 6)) { /* those of a strategy differ */
        to = &o->partition.typed_batch;
    } else if (!strcmp(name, "--place")) {
        to = &o->partition.typed_place;
    } else if (printed >> f->group & 1 && strcmp(name, "--grad-inputs") != 0) {
        nnc_printf(&t, "%s %s", o->typed ? o->typed : "", name);
        if (value && strcmp(name, "-O") != 0)
            nnc_putc(&t, f->value.kind == NNC_SET_PAIRS ? ' ' : '=');
    } else {
        return NNC_OK;
    }
    if (value)
        put_word(&t, value);
    *to = nnc_arena_strdup(&o->strings, nnc_text_str(&t));
    NNC_NEED(*to && !t.oom, sink);
    return NNC_OK;
}

bool names_file(const char *expected)
{
    static const char *const name[] = {"FILE", "DIR", "PATH", "FOLDER"};
    for (size_t i = 0; expected && i < NNC_COUNT(name); i++)
        if (!strncmp(expected, name[i], strlen(name[i])))
            return true;
    return false;
}

/* Parses the flag at argv[*i] and its value, which may be the next argument. */
static nnc_status parse_flag(const command *c, int argc, char **argv, int *i, options *o,
    const char **before, nnc_sink *sink)
{
    char *value, *arg = argv[*i];
    size_t at;
    const nnc_flag *f = find_flag(c, alias(arg), &value, &at);
    if (!f)
        return unknown(c, arg, sink);
    if (is_switch(f) && value &&
        at < OWN) /* those of training switch off what the model file says */
        return nnc_fail0(sink, NNC_E_USAGE, "%s takes no value", f->value.name);
    const bool more =
        *i + 1 < argc && !(names_file(f->value.expected) && !strncmp(argv[*i + 1], "--", 2));
    if (!is_switch(f) && !value && more)
        value = argv[++*i];
    if (!is_switch(f) && (!value || (!*value && names_file(f->value.expected))))
        return nnc_fail0(
            sink, NNC_E_USAGE, "%s needs a value: %s", f->value.name, f->value.expected);
    NNC_TRY(check_twice(f, &before[at], value, sink));
    const uint64_t of_compile = NNC_FLAGS(model) | NNC_FLAGS(place) | NNC_FLAGS(sharing) |
                                NNC_FLAGS(compiling) | NNC_FLAGS(planning) | NNC_FLAGS(debugging);
    static const char *const of_artifacts[] = {"--seed", "--weights", "--set", "--shapes"};
    bool any = false;
    for (size_t k = 0; k < NNC_COUNT(of_artifacts); k++)
        any = any || !strcmp(f->value.name, of_artifacts[k]);
    if (of_compile >> f->group & 1 && !any)
        o->compile_flag = f->value.name;
    if (f->group == FLAGS_training && takes(c, FLAGS_mode))
        o->training_flag = f->value.name;
    if (!strcmp(f->value.name, "--seed"))
        o->model.has_seed = true;
    NNC_TRY(keep_typed(f, value, o, sink));
    if (takes(c, FLAGS_sweep))
        NNC_TRY(keep_series(f, &value, o, sink));
    char count[16];
    if (!strcmp(f->value.name, "--devices")) {
        o->has_devices = true;
        if (strchr(value, ':')) {
            NNC_TRY(read_devices(o, value, count, sink));
            value = count;
        }
    }
    if (at >= OWN)
        o->train.given[at - OWN] = true;
    return nnc_setting_set(
        &f->value, "", at < OWN ? (void *)o : &o->train, value ? value : "1", &o->strings, sink);
}

static nnc_status too_many(const command *c, const char *arg, nnc_sink *sink)
{
    if (takes(c, FLAGS_model) && strchr(arg, '='))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unexpected argument `%s` (it takes %s); did you mean --set %s?", c->name, arg,
            c->args, arg);
    return nnc_fail0(sink, NNC_E_USAGE, "nnc %s: unexpected argument `%s` (it takes %s)", c->name,
        arg, *c->args ? c->args : "none");
}

nnc_status parse_flags(
    const command *c, int argc, char **argv, int first, options *o, nnc_sink *sink)
{
    const char *before[FLAGS] = {NULL}; /* previous value of each flag */
    bool only_files = false;
    o->no_machine = !takes(c, FLAGS_machine);
    for (int i = first; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_files && arg[0] == '-' && arg[1]) {
            if (!strcmp(arg, "--"))
                only_files = true;
            else
                NNC_TRY(parse_flag(c, argc, argv, &i, o, before, sink));
            continue;
        }
        const bool setting = o->n_file && strchr(arg, '=') && access(arg, F_OK) != 0;
        if (o->n_file == c->max_files || setting)
            return too_many(c, arg, sink);
        o->file[o->n_file++] = arg;
    }
    if (o->help)
        return NNC_OK;
    if (o->n_file < c->min_files)
        return nnc_fail0(sink, NNC_E_USAGE, "nnc %s needs %s; nnc %s --help explains", c->name,
            c->args, c->name);
    NNC_TRY(use_devices(o, sink));
    if (nnc_is_split(o->sharing))
        o->compare.compile.strategy = nnc_strategy_names[o->sharing];
    NNC_TRY(check_exclusive(o, sink));
    NNC_TRY(read_head(o, sink));
    return check_names(o, sink);
}
