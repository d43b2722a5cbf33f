/* experiments/read.c -- reads files of models/experiments (docs/schema/experiment.schema.json describes the same format for editors). */
#include "base/fields.h"
#include "experiments/experiments.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *const nnc_quantity_names[QUANTITY__COUNT] = {
    "time", "ratio", "forward", "loss", "backward", "optimizer", "allreduces", "largest"};

enum { MOST_RUNS = 256, MOST_NUMBERS = 16, MOST_WORDS = 64, MOST_SIZES = 32 };

typedef struct reader {
    nnc_field_reader f;
    nnc_arena *a;
} reader;

/* Keys that an experiment and its runs may both have. */
typedef struct common {
    const char *hardware;
    const nnc_item *models, *flags, *set, *reduced;
} common;

/* An arg of --set, with the position that it stands at. */
typedef struct size {
    const char *name, *value;
} size;

#define E(x) offsetof(nnc_experiment, x)
static const nnc_field experiment_fields[] = {
    {"title", NNC_F_string, E(title), true, 0, 0},
    {"about", NNC_F_string, E(about), false, 0, 0},
    {"source", NNC_F_string, E(source), true, 0, 0},
    {"doubts", NNC_F_string, E(doubts), false, 0, 0},
    {"machine", NNC_F_string, E(machine), true, 0, 0},
};
#undef E
#define R(x) offsetof(nnc_experiment_run, x)
static const nnc_field run_fields[] = {
    {"name", NNC_F_string, R(name), true, 0, 0},
    {"note", NNC_F_string, R(note), false, 0, 0},
    {"hardware", NNC_F_string, R(hardware), false, 0, 0},
};
#undef R
static const nnc_field number_fields[] = {
    {"unit", NNC_F_string, offsetof(nnc_number, unit), false, 0, 0},
    {"passes", NNC_F_int64, offsetof(nnc_number, passes), false, 1, 1e12},
};

static nnc_status bad(reader *r, const nnc_item *at, const char *name, const char *expected)
{
    return nnc_fields_bad(&r->f, at, name, expected);
}

/* The path as it stands in the file, from the working folder: "../vgg16.json" of models/experiments/x.json is models/vgg16.json. */
static const char *beside(reader *r, const char *path)
{
    const char *file = r->f.json->file, *slash = strrchr(file, '/');
    size_t n = slash && *path != '/' ? (size_t)(slash - file) + 1 : 0;
    while (n > 1 && !strncmp(path, "../", 3)) {
        size_t up = n - 1;
        while (up && file[up - 1] != '/')
            up--;
        if (file[up] == '.')
            break;
        n = up;
        path += 3;
    }
    return nnc_arena_printf(r->a, "%.*s%s", (int)n, file, path);
}

/* Adds a string, or those of a list, to the words. */
static nnc_status add_words(reader *r, const nnc_item *v, const char *name, bool paths,
    const char **word, int *n, const char *expected)
{
    const bool list = nnc_is_list(v);
    for (const nnc_item *at = list ? v->child : v; at; at = list ? at->next : NULL) {
        if (!nnc_is_string(at) || !*at->text || *n == MOST_WORDS)
            return bad(r, at, name, expected);
        word[*n] = paths ? beside(r, at->text) : nnc_arena_strdup(r->a, at->text);
        NNC_NEED(word[*n], r->f.sink);
        ++*n;
    }
    return NNC_OK;
}

/* Adds the args of an object; those that are there get the new value. */
static nnc_status add_sizes(reader *r, const nnc_item *v, const char *name, size *s, int *n)
{
    if (v && !nnc_is_object(v))
        return bad(r, v, name, "an object of the model's args, as in {\"batch\": 64}");
    for (const nnc_item *at = nnc_json_first(v); at; at = at->next) {
        int k = 0;
        while (k < *n && strcmp(s[k].name, at->key) != 0)
            k++;
        const bool number = nnc_is_number(at) && at->number == floor(at->number);
        if ((!number && !nnc_is_string(at)) || k == MOST_SIZES)
            return bad(r, at, at->key, "an integer or a word");
        s[k].name = nnc_arena_strdup(r->a, at->key);
        s[k].value =
            number ? nnc_arena_printf(r->a, "%.0f", at->number) : nnc_arena_strdup(r->a, at->text);
        NNC_NEED(s[k].name && s[k].value, r->f.sink);
        *n += k == *n;
    }
    return NNC_OK;
}

static nnc_status put_sizes(
    reader *r, const size *s, int n, const char **word, int n_word, const char ***out, int *n_out)
{
    *out = ARENA_NEW(r->a, const char *, n_word + 2 * n + 1);
    NNC_NEED(*out, r->f.sink);
    for (*n_out = 0; *n_out < n_word; ++*n_out)
        (*out)[*n_out] = word[*n_out];
    for (int i = 0; i < n; i++) {
        (*out)[(*n_out)++] = "--set";
        (*out)[*n_out] = nnc_arena_printf(r->a, "%s=%s", s[i].name, s[i].value);
        NNC_NEED((*out)[(*n_out)++], r->f.sink);
    }
    return NNC_OK;
}

/* The smaller sizes as they are printed. */
static const char *name_sizes(reader *r, const size *s, int n, const common *c)
{
    NNC_LOCAL(nnc_text) t = {0};
    for (int i = 0; i < n; i++) {
        bool given = false;
        for (int k = 0; k < 2 && !given; k++)
            given = nnc_json_get(c[k].reduced, s[i].name) != NULL;
        if (given)
            nnc_printf(&t, "%s%s=%s", t.n ? " " : "", s[i].name, s[i].value);
    }
    return t.oom ? NULL : nnc_arena_strdup(r->a, nnc_text_str(&t));
}

/* Makes the words of a run from those of the experiment, c[0], and its own, c[1]. */
static nnc_status make_words(
    reader *r, const nnc_item *of, const common c[2], nnc_experiment_run *run)
{
    const char *word[MOST_WORDS];
    size s[MOST_SIZES];
    int n = 0, n_size = 0;
    const nnc_item *models = c[1].models ? c[1].models : c[0].models;
    if (!models)
        return nnc_fields_missing(&r->f, of, "models");
    NNC_TRY(add_words(r, models, "models", true, word, &n,
        "a model file or a list of them, relative to this file"));
    if (!n)
        return bad(r, models, "models", "one or more model files");
    for (int k = 0; k < 2; k++)
        NNC_TRY(add_words(r, c[k].flags, "flags", false, word, &n,
            "a flag of nnc run or a list of them, as in [\"--mode=step\"]"));
    for (int i = 0; i < n; i++)
        run->fits = run->fits || !strncmp(word[i], "--fit", 5);
    for (int k = 0; k < 2; k++)
        NNC_TRY(add_sizes(r, c[k].set, "set", s, &n_size));
    NNC_TRY(put_sizes(r, s, n_size, word, n, &run->word, &run->n_word));
    for (int k = 0; k < 2; k++)
        NNC_TRY(add_sizes(r, c[k].reduced, "reduced", s, &n_size));
    if (!c[0].reduced && !c[1].reduced)
        return NNC_OK;
    NNC_TRY(put_sizes(r, s, n_size, word, n, &run->small, &run->n_small));
    NNC_NEED(run->sizes = name_sizes(r, s, n_size, c), r->f.sink);
    return NNC_OK;
}

/* ---- numbers --------------------------------------------------------------------------------------------- */

static nnc_status read_published(reader *r, const nnc_item *v, nnc_number *out)
{
    static const char expected[] = "a number above 0, or a list of a lower and an upper one";
    const nnc_item *low = nnc_is_list(v) ? v->child : v,
                   *high = nnc_is_list(v) && low ? low->next : v;
    out->low = out->high = NAN;
    if (!v)
        return NNC_OK;
    if ((nnc_is_list(v) && v->n != 2) || !nnc_is_number(low) || !nnc_is_number(high) ||
        !(low->number > 0) || !(high->number >= low->number))
        return bad(r, v, "published", expected);
    out->low = low->number;
    out->high = high->number;
    return NNC_OK;
}

static bool is_time(nnc_quantity q)
{
    return q != QUANTITY_ratio && q != QUANTITY_allreduces && q != QUANTITY_largest;
}

static nnc_status read_what(
    reader *r, const nnc_item *v, const nnc_experiment_run *run, nnc_number *out)
{
    const nnc_item *what = nnc_json_get(v, "what");
    if (what && !nnc_is_string(what))
        return bad(r, what, "what", "a string");
    const char *name = what ? what->text : "time";
    out->what = 0;
    while (out->what < QUANTITY__COUNT && strcmp(nnc_quantity_names[out->what], name) != 0)
        out->what++;
    if (out->what == QUANTITY__COUNT)
        return bad(r, what, "what",
            "time, ratio, forward, loss, backward, optimizer, allreduces or largest");
    if ((out->what == QUANTITY_largest) != run->fits)
        return bad(r, what ? what : v, "what",
            run->fits ? "largest, since the run's flags have --fit"
                      : "another quantity: largest is of runs whose flags have --fit");
    return NNC_OK;
}

static nnc_status read_number(
    reader *r, const nnc_item *v, const nnc_experiment_run *run, nnc_number *out)
{
    if (!nnc_is_object(v))
        return bad(r, v, "numbers", "objects, as in {\"what\": \"time\", \"published\": 12.5}");
    *out = (nnc_number){.to = -1, .unit = "ms"};
    NNC_TRY(NNC_FIELDS(&r->f, v, number_fields, "what to published", out));
    NNC_TRY(read_what(r, v, run, out));
    NNC_TRY(read_published(r, nnc_json_get(v, "published"), out));
    const nnc_item *unit = nnc_json_get(v, "unit"), *passes = nnc_json_get(v, "passes");
    const bool rate = !strcmp(out->unit, "samples/s");
    if (unit &&
        (!is_time(out->what) || (strcmp(out->unit, "ms") && strcmp(out->unit, "s") && !rate)))
        return bad(r, unit, "unit",
            is_time(out->what) ? "ms, s or samples/s" : "none: only times have one");
    if (rate && !passes)
        return nnc_fields_missing(&r->f, v, "passes");
    if (passes && !is_time(out->what))
        return bad(r, passes, "passes", "none: only times are of several runs");
    if (!is_time(out->what))
        out->unit = "";
    if (!passes && !strcmp(out->unit, "ms"))
        out->passes = 1;
    return NNC_OK;
}

/* Finds the runs that ratios name, when all are read. */
static nnc_status find_others(reader *r, const nnc_item *runs, nnc_experiment *e)
{
    const int n_run = e->n_run;
    const char *names[MOST_RUNS] = {0};
    const nnc_item *v = runs->child;
    for (int i = 0; i < n_run; i++)
        names[i] = e->run[i].name;
    for (int i = 0; v && i < n_run; i++, v = v->next) {
        for (int k = 0; k < i; k++)
            if (!strcmp(names[i], names[k]))
                return bad(
                    r, nnc_json_get(v, "name"), "name", "another name than an earlier run's");
        const nnc_item *of = nnc_json_first(nnc_json_get(v, "numbers"));
        for (int k = 0; of; k++, of = of->next) {
            nnc_number *n = &e->run[i].number[k];
            const nnc_item *to = nnc_json_get(of, "to");
            if (!to != (n->what != QUANTITY_ratio))
                return to ? bad(r, to, "to", "none: only a ratio names another run")
                          : nnc_fields_missing(&r->f, of, "to");
            if (!to)
                continue;
            for (n->to = 0; n->to < n_run; n->to++)
                if (nnc_is_string(to) && n->to != i && !strcmp(names[n->to], to->text))
                    break;
            if (n->to < n_run)
                continue;
            const char *near =
                nnc_is_string(to) ? nnc_nearest(to->text, names, (size_t)n_run) : NULL;
            NNC_LOCAL(nnc_text) t = {0};
            nnc_printf(&t, "the name of another run of this file%s%s%s",
                near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
            return bad(r, to, "to", nnc_text_str(&t));
        }
    }
    return NNC_OK;
}

/* ---- runs ------------------------------------------------------------------------------------------------ */

static void read_common(const nnc_item *v, common *c)
{
    c->models = nnc_json_get(v, "models");
    c->flags = nnc_json_get(v, "flags");
    c->set = nnc_json_get(v, "set");
    c->reduced = nnc_json_get(v, "reduced");
}

static void take_nothing(nnc_experiment_run *run)
{
    for (int i = 0; i < QUANTITY__COUNT; i++)
        run->predicted.value[i] = run->here.value[i] = run->reduced.value[i] = NAN;
}

static nnc_status read_run(reader *r, const nnc_item *v, common c[2], nnc_experiment_run *run)
{
    if (!nnc_is_object(v))
        return bad(r, v, "runs", "objects with a name");
    NNC_TRY(NNC_FIELDS(&r->f, v, run_fields, "models flags set reduced numbers", run));
    if (!*run->name)
        return bad(r, nnc_json_get(v, "name"), "name", "a name that is not empty");
    take_nothing(run);
    run->loc = nnc_json_loc(r->f.json, v, false);
    NNC_NEED(run->loc.file = nnc_arena_strdup(r->a, r->f.json->file), r->f.sink);
    read_common(v, &c[1]);
    if (!run->hardware && !c[0].hardware)
        return nnc_fields_missing(&r->f, v, "hardware");
    NNC_NEED(run->hardware = beside(r, run->hardware ? run->hardware : c[0].hardware), r->f.sink);
    NNC_TRY(make_words(r, v, c, run));
    const nnc_item *numbers = nnc_json_get(v, "numbers");
    if (numbers && (!nnc_is_list(numbers) || !numbers->n || numbers->n > MOST_NUMBERS))
        return bad(r, numbers, "numbers", "a list of 1 to 16 objects");
    run->n_number = numbers ? numbers->n : 1;
    NNC_NEED(run->number = ARENA_NEW(r->a, nnc_number, run->n_number), r->f.sink);
    run->number[0] = (nnc_number){run->fits ? QUANTITY_largest : QUANTITY_time, -1, NAN, NAN,
        run->fits ? "" : "ms", !run->fits};
    const nnc_item *at = nnc_json_first(numbers);
    for (int i = 0; at; at = at->next)
        NNC_TRY(read_number(r, at, run, &run->number[i++]));
    return NNC_OK;
}

static nnc_status read_experiment(reader *r, nnc_experiment *e)
{
    static const char also[] = "$schema hardware models flags set reduced runs";
    const nnc_item *root = r->f.json->root;
    common c[2] = {{0}};
    if (!nnc_is_object(root))
        return bad(r, root, "the file", "an object");
    NNC_TRY(NNC_FIELDS(&r->f, root, experiment_fields, also, e));
    NNC_NEED(e->file = nnc_arena_strdup(r->a, r->f.json->file), r->f.sink);
    const nnc_item *runs = nnc_json_get(root, "runs"), *hardware = nnc_json_get(root, "hardware");
    if (hardware && !nnc_is_string(hardware))
        return bad(r, hardware, "hardware", "the path of a hardware file, relative to this file");
    c[0].hardware = hardware ? hardware->text : NULL;
    read_common(root, &c[0]);
    if (!runs)
        return nnc_fields_missing(&r->f, root, "runs");
    if (!nnc_is_list(runs) || !runs->n || runs->n > MOST_RUNS)
        return bad(r, runs, "runs", "a list of 1 to 256 objects");
    NNC_NEED(e->run = ARENA_NEW(r->a, nnc_experiment_run, runs->n), r->f.sink);
    for (const nnc_item *v = runs->child; v; v = v->next)
        NNC_TRY(read_run(r, v, c, &e->run[e->n_run++]));
    return find_others(r, runs, e);
}

static nnc_status read_file(nnc_experiments *x, const char *file, nnc_sink *sink)
{
    nnc_json j = {0};
    reader r = {{&j, "experiment", &x->arena, sink}, &x->arena};
    NNC_NEED(ARENA_ROOM(&x->arena, x->at, x->cap, x->n + 1), sink);
    nnc_experiment *e = &x->at[x->n];
    *e = (nnc_experiment){0};
    nnc_status st = nnc_json_load(&j, file, sink);
    if (!st)
        st = read_experiment(&r, e);
    nnc_json_deinit(&j);
    x->n += !st;
    return st;
}

/* ---- folders --------------------------------------------------------------------------------------------- */

static int is_experiment(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return *e->d_name != '.' && dot && !strcmp(dot, ".json");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

nnc_status nnc_experiments_read(nnc_experiments *x, const char *path, nnc_sink *sink)
{
    struct stat there;
    struct dirent **entry;
    if (stat(path, &there) || !S_ISDIR(there.st_mode))
        return read_file(x, path, sink);
    const int n = scandir(path, &entry, is_experiment, by_name);
    const char *slash = path[strlen(path) - 1] == '/' ? "" : "/";
    if (n < 0)
        return nnc_fail(
            sink, NNC_E_IO, (nnc_loc){.file = path}, "cannot be read: %s", strerror(errno));
    nnc_status st =
        n ? NNC_OK
          : nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = path},
                "is a folder without experiments: expected files whose names end in .json");
    for (int i = 0; i < n; i++) {
        const char *file =
            st ? NULL : nnc_arena_printf(&x->arena, "%s%s%s", path, slash, entry[i]->d_name);
        if (!st)
            st = file ? read_file(x, file, sink) : nnc_nomem(sink);
        free(entry[i]);
    }
    free(entry);
    return st;
}
