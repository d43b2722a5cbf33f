/* cli/flags.c -- the flags of all commands in one table: parsing and --help read the same rows. */
#include "cli/cli.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind {
    F_int,
    F_float,
    F_bool,
    F_word,
    F_list,
    F_pairs,
    F_level,
    F_format,
    F_io,
    F_math,
    F_precision
} kind;

/* Groups of flags: a command names those that it takes. In the order in which --help prints them. */
static const struct {
    char group;
    const char *heading;
} groups[] = {
    {'m', "model"},
    {'o', "passes"},
    {'c', "compiling"},
    {'s', "compiling"}, /* what concerns the plan, not the passes */
    {'p', "compiling, for those who work on nnc"},
    {'a', "result"},
    {'r', "inputs and outputs"},
    {'t', "timing"},
    {'q', "timing"},
    {'x', "comparing"},
    {'e', "machine"},
    {'f', "printing"}, /* with csv */
    {'j', "printing"}, /* text or JSON */
    {'v', "printing"}, /* what --verbose says more of */
    {'h', "all commands"},
};

typedef struct flag {
    const char *name;
    char group;
    kind kind;
    size_t at, count; /* offsets into options; count: of lists and pairs */
    int64_t lo,
        hi; /* of numbers; hi: also how many formats there are, and how many values a name of F_pairs may have (0: any) */
    const char *arg, *doc;
} flag;

#define AT(f) offsetof(options, f)
static const flag flags[] = {
    {"--set", 'm', F_pairs, AT(set), AT(n_set), 0, 1, "NAME=VALUE",
        "Set an argument of the model file, as in --set batch=8 (repeatable, once a name)"},
    {"--seed", 'm', F_int, AT(seed), 0, 0, INT64_MAX, "N",
        "Seed of generated weights and inputs (default: 0)"},
    {"--weights", 'm', F_word, AT(weights), 0, 0, 0, "FILE",
        "Read the weights from this safetensors file (default: generated from the seed); of an "
        "artifact: its file of weights now"},
    {"--passes", 'o', F_list, AT(pass), AT(n_pass), 0, 0, "PASS,...",
        "Run exactly these passes, in this order (default: those of the -O level)"},
    {"-O", 'c', F_level, AT(level), 0, 0, 3, "0..3",
        "Optimisation level. 0: each layer as written; 1: only what keeps every bit of the result; "
        "2 (default): fuse and choose layouts; 3: with --math=fast also reorder sums; on GPUs "
        "cuDNN compiles kernels for epilogues, about a second each at first load"},
    {"--math", 'c', F_math, AT(math_fast), 0, 0, 0, "exact|ulp2|fast",
        "Accuracy of math functions in generated kernels (docs/math.md). exact: <= 0.8 ulp, "
        "evaluated as written, NaN survives every relu; ulp2 (default): <= 2.5 ulp; fast: relative "
        "error <= 2^-15, -O3 may reorder sums, GPUs may round f32 operands of contractions to tf32 "
        "(--precision)"},
    {"--precision", 'c', F_precision, AT(precision), 0, 0, 0, "f32|tf32|f16|bf16",
        "Precision of convolutions and matrix products. f32 (default); tf32 (default with "
        "--math=fast): GPUs round f32 operands to 10 bits; f16, bf16: 16-bit operands, and 16-bit "
        "tensors between them where that is safe (nnc explain lists them). Sums stay f32, inputs "
        "and outputs keep their types"},
    {"--skip", 'c', F_list, AT(skip), AT(n_skip), 0, 0, "PASS,...",
        "Leave these passes out (nnc passes lists them)"},
    {"--streams", 's', F_int, AT(streams), 0, 1, 64, "N",
        "Command streams per device (default: 1)"},
    {"--devices", 's', F_int, AT(devices), 0, 1, 64, "N",
        "Virtual CPU devices that layers may name (default: 1)"},
    {"--print-after", 'p', F_list, AT(print_after), AT(n_print_after), 0, 0, "PASS,...|all",
        "Print the graph after these passes to standard error"},
    {"--time-passes", 'p', F_bool, AT(time_passes), 0, 0, 0, NULL,
        "Print the time of every pass to standard error"},
    {"--jobs", 's', F_int, AT(jobs), 0, 1, 1024, "N",
        "Number of threads that compile (default: all); never changes the result"},
    {"-o", 'a', F_word, AT(out), 0, 0, 0, "FILE",
        "Write the artifact, or the text of --emit, to this file (default for --emit: standard "
        "output)"},
    {"--emit", 'a', F_word, AT(emit), 0, 0, 0, "STAGE",
        "Print a stage instead of writing an artifact: graph (after the passes), kernels, plan, "
        "dot (for Graphviz), remarks (JSON); for a CPU llvm, asm; for a GPU cuda, ptx, cubin"},
    {"--dump-dir", 'a', F_word, AT(dump_dir), 0, 0, 0, "FOLDER",
        "Also write every stage to files in this folder, a GPU's sources and machine code "
        "included"},
    {"--embed-weights", 'a', F_bool, AT(embed), 0, 0, 0, NULL,
        "Store the weights in the artifact instead of references to them"},
    {"--input", 'r', F_pairs, AT(input), AT(n_input), 0, 1, "NAME=FILE.npy",
        "Read an input from a file (default: generated from the seed; repeatable, once a name)"},
    {"--output", 'r', F_pairs, AT(output), AT(n_output), 0, 0, "NAME=FILE.npy",
        "Write an output to a file (repeatable; one output may go to several files)"},
    {"--iterations", 't', F_int, AT(iterations), 0, 1, 1000000000, "N",
        "Number of timed runs of each program (default: as many as fit --duration)"},
    {"--warmup", 't', F_int, AT(warmup), 0, 0, 1000000, "N",
        "Number of untimed runs before the first timed one (default: about 50 ms of them)"},
    {"--duration", 't', F_int, AT(duration), 0, 1, 86400000, "MS",
        "Time to measure each program for, in milliseconds (default: 1000; compare: a quarter of "
        "it for steps, up to 4000 for slow models)"},
    {"--io", 't', F_io, AT(io), 0, 0, 0, "include|exclude|both",
        "Time copies to and from the device? exclude (default): inputs are on the device, outputs "
        "stay there; include: each run uploads its inputs and downloads its outputs while the next "
        "one computes, and the overlap is printed; both: one after the other"},
    {"--percentile", 'q', F_float, AT(percentile), 0, 0, 100, "P",
        "Also print this percentile of the times (default: 99)"},
    {"--input", 'x', F_pairs, AT(input), AT(n_input), 0, 1, "NAME=FILE.npy",
        "Read an input from a file (default: generated from the seed; repeatable, once a name)"},
    {"--no-steps", 'x', F_bool, AT(no_steps), 0, 0, 0, NULL,
        "Compare only unfused and fused, not pass by pass"},
    {"--no-reference", 'x', F_bool, AT(no_reference), 0, 0, 0, NULL,
        "Compare the programs only with each other, not with float64"},
    {"--tolerance", 'x', F_float, AT(tolerance), 0, 0, 1, "NMSE",
        "Largest sum of squared errors over sum of squares at which an output counts as equal "
        "(default by type: 1e-24 f64, 1e-11 f32, 1e-6 f16, 1e-4 bf16, with --precision=tf32 or "
        "f16 1e-5, bf16 1e-3; beyond it, 16 times what rounding on the way explains)"},
    {"--threads", 'e', F_int, AT(threads), 0, 1, 1024, "N",
        "Number of threads that compute (default: all)"},
    {"--target", 'e', F_word, AT(target), 0, 0, 0, "cpu|cuda|cuda:sm_NN|FILE",
        "Machine to compile for: this CPU (default), this machine's GPU, a GPU (sm_61, 70, 75, 80, "
        "86, 89, 90, 100, 120), or a machine file as nnc devices --format=json prints it"},
    {"--cache-dir", 'e', F_word, AT(cache_dir), 0, 0, 0, "DIR",
        "Folder of compiled kernels (default: $XDG_CACHE_HOME/nnc or ~/.cache/nnc)"},
    {"--tuning", 'e', F_word, AT(tuning), 0, 0, 0, "FILE",
        "Read the measured algorithms of a GPU's libraries from this file; they are replayed when "
        "a model is loaded"},
    {"--tune", 'e', F_bool, AT(tune), 0, 0, 0, NULL,
        "Measure algorithms missing from the --tuning file and add them"},
    {"--no-cache", 'e', F_bool, AT(no_cache), 0, 0, 0, NULL, "Compile every kernel anew"},
    {"--no-llvm", 'e', F_bool, AT(no_llvm), 0, 0, 0, NULL,
        "Interpret kernels instead of compiling them (slow)"},
    {"--no-onednn", 'e', F_bool, AT(no_onednn), 0, 0, 0, NULL,
        "Compute convolutions and matrix products in generated kernels instead of oneDNN"},
    {"--format", 'f', F_format, AT(format), 0, 0, 3, "text|json|csv",
        "Format of the report (default: text)"},
    {"--format", 'j', F_format, AT(format), 0, 0, 2, "text|json",
        "Format of the report (default: text)"},
    {"--verbose", 'v', F_bool, AT(verbose), 0, 0, 0, NULL,
        "List every decision, including those that differ only in their layers"},
    {"--quiet", 'h', F_bool, AT(quiet), 0, 0, 0, NULL, "Do not show progress on the terminal"},
    {"--help", 'h', F_bool, AT(help), 0, 0, 0, NULL, "Print this text"},
};

static bool applies(const command *c, const flag *f)
{
    return f->group == 'h' || strchr(c->groups, f->group);
}

static void print_flag(const flag *f, FILE *out)
{
    enum { INDENT = 32, WIDTH = 110 };
    char left[64];
    const char *between = f->kind == F_level ? "" : strncmp(f->name, "--", 2) ? " " : "=";
    snprintf(left, sizeof left, "%s%s%s", f->name, f->arg ? between : "", f->arg ? f->arg : "");
    int at = fprintf(out, "  %-*s", INDENT - 2, left);
    if (at > INDENT)
        at = fprintf(out, "\n%*s", INDENT, "") - 1;
    for (const char *p = f->doc; *p;) {
        int n = (int)strcspn(p, " ");
        if (at > INDENT && at + 1 + n > WIDTH)
            at = fprintf(out, "\n%*s", INDENT, "") - 1;
        at += fprintf(out, "%s%.*s", at > INDENT ? " " : "", n, p);
        p += n;
        p += *p == ' ';
    }
    fputc('\n', out);
}

void print_flags(const command *c, FILE *out)
{
    const char *heading = "";
    for (size_t g = 0; g < NNC_COUNT(groups); g++) {
        if (groups[g].group != 'h' && !strchr(c->groups, groups[g].group))
            continue;
        if (strcmp(heading, groups[g].heading))
            fprintf(out, "\n%s:\n", groups[g].heading);
        heading = groups[g].heading;
        for (size_t i = 0; i < NNC_COUNT(flags); i++)
            if (flags[i].group == groups[g].group)
                print_flag(&flags[i], out);
    }
}

static nnc_status bad_value(const flag *f, const char *value, nnc_sink *sink)
{
    if (f->kind == F_int)
        return nnc_fail0(sink, NNC_E_USAGE, "%s: expected an integer from %lld to %lld, found `%s`",
            f->name, (long long)f->lo, (long long)f->hi, value);
    if (f->kind == F_float)
        return nnc_fail0(sink, NNC_E_USAGE, "%s: expected a number from %lld to %lld, found `%s`",
            f->name, (long long)f->lo, (long long)f->hi, value);
    return nnc_fail0(sink, NNC_E_USAGE, "%s: expected %s, found `%s`", f->name, f->arg, value);
}

static nnc_status add_list(options *o, const flag *f, char *value, nnc_sink *sink)
{
    const char **list = (const char **)((char *)o + f->at);
    int *n = (int *)((char *)o + f->count);
    if (!value[strspn(value, ",")])
        return bad_value(f, value, sink);
    for (char *p = strtok(value, ","); p; p = strtok(NULL, ",")) {
        if (*n == MAX_LIST)
            return nnc_fail0(sink, NNC_E_USAGE, "%s has more than %d entries", f->name, MAX_LIST);
        list[(*n)++] = p;
    }
    return NNC_OK;
}

static nnc_status add_pair(options *o, const flag *f, char *value, nnc_sink *sink)
{
    nnc_arg *list = (nnc_arg *)((char *)o + f->at);
    int *n = (int *)((char *)o + f->count);
    char *eq = strchr(value, '=');
    if (!eq || eq == value || !eq[1])
        return bad_value(f, value, sink);
    if (*n == MAX_LIST)
        return nnc_fail0(sink, NNC_E_USAGE, "%s is given more than %d times", f->name, MAX_LIST);
    *eq = 0;
    for (int i = 0; f->hi == 1 && i < *n; i++)
        if (!strcmp(list[i].name, value))
            return strcmp(list[i].value, eq + 1)
                       ? nnc_fail0(sink, NNC_E_USAGE,
                             "%s %s is given twice, as %s and as %s: leave one out", f->name, value,
                             list[i].value, eq + 1)
                       : NNC_OK;
    list[(*n)++] = (nnc_arg){value, eq + 1};
    return NNC_OK;
}

static nnc_status set_format(options *o, const flag *f, const char *v, nnc_sink *sink)
{
    static const char *const names[] = {"text", "json", "csv"};
    assert(f->hi <= (int64_t)NNC_COUNT(names));
    for (size_t i = 0; i < NNC_COUNT(names) && (int64_t)i < f->hi; i++)
        if (!strcmp(v, names[i])) {
            o->format = (nnc_format)i;
            return NNC_OK;
        }
    return bad_value(f, v, sink);
}

static nnc_status set_io(options *o, const flag *f, const char *v, nnc_sink *sink)
{
    static const char *const names[] = {"exclude", "include", "both"}; /* as nnc_io */
    for (size_t i = 0; i < NNC_COUNT(names); i++)
        if (!strcmp(v, names[i])) {
            o->io = (nnc_io)i;
            return NNC_OK;
        }
    return bad_value(f, v, sink);
}

static nnc_status set_number(options *o, const flag *f, const char *v, nnc_sink *sink)
{
    char *end;
    errno = 0;
    if (f->kind == F_float) {
        double d = strtod(v, &end);
        if (!*v || *end || !(d >= (double)f->lo && d <= (double)f->hi))
            return bad_value(f, v, sink);
        *(double *)((char *)o + f->at) = d;
        return NNC_OK;
    }
    long long i = strtoll(v, &end, 10);
    if (!*v || *end || errno || i < f->lo || i > f->hi)
        return bad_value(f, v, sink);
    *(int64_t *)((char *)o + f->at) = i;
    return NNC_OK;
}

static nnc_status set_value(options *o, const flag *f, char *v, nnc_sink *sink)
{
    switch (f->kind) {
    case F_bool:
        *((bool *)o + f->at) = true;
        return NNC_OK;
    case F_word:
        *(const char **)((char *)o + f->at) = v;
        return NNC_OK;
    case F_list:
        return add_list(o, f, v, sink);
    case F_pairs:
        return add_pair(o, f, v, sink);
    case F_format:
        return set_format(o, f, v, sink);
    case F_io:
        return set_io(o, f, v, sink);
    case F_math:
        o->math_fast = !strcmp(v, "fast");
        o->math_exact = !strcmp(v, "exact");
        if (!o->math_fast && !o->math_exact && strcmp(v, "ulp2") != 0)
            return bad_value(f, v, sink);
        return NNC_OK;
    case F_precision:
        return nnc_precision_parse(v, (nnc_precision *)((char *)o + f->at)) ? NNC_OK
                                                                            : bad_value(f, v, sink);
    default:
        return set_number(o, f, v, sink);
    }
}

/* Accepts a flag of one value twice when both values are equal (scripts append flags); two different values are an error. */
static nnc_status check_twice(const flag *f, const char **before, const char *value, nnc_sink *sink)
{
    bool one_value = f->kind != F_bool && f->kind != F_list && f->kind != F_pairs;
    const char *first = *before;
    if (!one_value)
        return NNC_OK;
    *before = value;
    if (!first || !strcmp(first, value))
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_USAGE, "%s is given twice, as %s and as %s: leave one out",
        f->name, first, value);
}

/* Refuses pairs of flags that contradict each other. */
static nnc_status check_exclusive(const options *o, nnc_sink *sink)
{
    if (o->iterations && o->duration)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--iterations and --duration both say how long to measure: leave one out");
    if (o->no_cache && o->cache_dir)
        return nnc_fail0(
            sink, NNC_E_USAGE, "--no-cache uses no cache, --cache-dir names one: leave one out");
    if (o->tune && !o->tuning)
        return nnc_fail0(sink, NNC_E_USAGE, "--tune adds to a file: say which with --tuning=FILE");
    return NNC_OK;
}

/* The flag that `arg` names, and its glued value ("--set=a=1", "-O2"). */
static const flag *find(const command *c, char *arg, char **value)
{
    size_t n = strcspn(arg, "=");
    *value = NULL;
    for (size_t i = 0; i < NNC_COUNT(flags); i++) {
        const flag *f = &flags[i];
        if (!applies(c, f))
            continue;
        bool one_letter = f->name[1] != '-';
        if (one_letter && !strncmp(f->name, arg, 2) && arg[2] && arg[2] != '=') {
            *value = arg + 2;
            return f;
        }
        if (strlen(f->name) == n && !strncmp(f->name, arg, n)) {
            if (arg[n] == '=')
                *value = arg + n + 1;
            return f;
        }
    }
    return NULL;
}

static nnc_status unknown(const command *c, const char *arg, nnc_sink *sink)
{
    const char *names[NNC_COUNT(flags)];
    char word[64];
    size_t n = 0;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(arg, "="), arg);
    for (size_t i = 0; i < NNC_COUNT(flags); i++)
        if (applies(c, &flags[i]))
            names[n++] = flags[i].name;
    const char *near = nnc_nearest(word, names, n), *value = arg[strlen(word)] ? arg + 2 : NULL;
    for (size_t i = 0; i < NNC_COUNT(flags); i++)
        if (!strcmp(flags[i].name, word))
            return nnc_fail0(sink, NNC_E_USAGE,
                "nnc %s: unknown flag %s (other commands have it); nnc %s --help lists the flags",
                c->name, word, c->name);
    if (value && !strncmp(arg, "--", 2) && strchr(c->groups, 'm'))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unknown flag %s; did you mean %s%sthe model's argument, --set %s?", c->name,
            word, near ? near : "", near ? ", or " : "", value);
    if (near)
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc %s: unknown flag %s; did you mean %s?", c->name, word, near);
    return nnc_fail0(sink, NNC_E_USAGE, "nnc %s: unknown flag %s; nnc %s --help lists the flags",
        c->name, word, c->name);
}

/* Refuses unknown passes of --print-after, which would print nothing, and unknown stages before anything is compiled for them. */
static nnc_status check_names(const options *o, nnc_sink *sink)
{
    const char *stage;
    if (o->emit && !nnc_is_stage(o->emit, &stage))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--emit: unknown stage `%s`%s%s; there are graph, kernels, plan, llvm, asm, cuda, ptx, "
            "cubin, dot, remarks",
            o->emit, stage ? "; did you mean " : "", stage ? stage : "");
    for (int i = 0; i < o->n_print_after; i++) {
        const char *near, *name = o->print_after[i];
        if (strcmp(name, "all") && !nnc_is_pass(name, &near))
            return nnc_fail0(sink, NNC_E_USAGE,
                near ? "--print-after: unknown pass `%s`; did you mean `%s`?"
                     : "--print-after: unknown pass `%s`; nnc passes lists them%s",
                name, near ? near : "");
    }
    return NNC_OK;
}

/* The flag at argv[*i], and its value, which may be the next argument. */
static nnc_status parse_flag(const command *c, int argc, char **argv, int *i, options *o,
    const char **before, nnc_sink *sink)
{
    char *value, *arg = argv[*i];
    const flag *f = find(c, !strcmp(arg, "-h") ? (char[]){"--help"} : arg, &value);
    if (!f)
        return unknown(c, arg, sink);
    if (f->kind == F_bool && value)
        return nnc_fail0(sink, NNC_E_USAGE, "%s takes no value", f->name);
    if (f->kind != F_bool && !value) {
        if (*i + 1 == argc)
            return nnc_fail0(sink, NNC_E_USAGE, "%s needs a value: %s", f->name, f->arg);
        value = argv[++*i];
    }
    NNC_TRY(check_twice(f, &before[f - flags], value, sink));
    if (strchr("mcsp", f->group) && strcmp(f->name, "--seed") && strcmp(f->name, "--weights"))
        o->compile_flag = f->name;
    return set_value(o, f, value, sink);
}

static nnc_status too_many(const command *c, const char *arg, nnc_sink *sink)
{
    if (strchr(c->groups, 'm') && strchr(arg, '='))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unexpected argument `%s` (it takes %s); did you mean --set %s?", c->name, arg,
            c->args, arg);
    return nnc_fail0(sink, NNC_E_USAGE, "nnc %s: unexpected argument `%s` (it takes %s)", c->name,
        arg, *c->args ? c->args : "none");
}

nnc_status parse_flags(
    const command *c, int argc, char **argv, int first, options *o, nnc_sink *sink)
{
    const char *before[NNC_COUNT(flags)] = {NULL}; /* the value that each flag had already */
    bool only_files = false;
    o->no_machine = !strchr(c->groups, 'e');
    for (int i = first; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_files && arg[0] == '-' && arg[1]) {
            if (!strcmp(arg, "--"))
                only_files = true;
            else
                NNC_TRY(parse_flag(c, argc, argv, &i, o, before, sink));
            continue;
        }
        if (o->n_file == c->max_files)
            return too_many(c, arg, sink);
        o->file[o->n_file++] = arg;
    }
    if (o->help)
        return NNC_OK;
    if (o->n_file < c->min_files)
        return nnc_fail0(sink, NNC_E_USAGE, "nnc %s needs %s; nnc %s --help explains", c->name,
            c->args, c->name);
    NNC_TRY(check_exclusive(o, sink));
    return check_names(o, sink);
}
