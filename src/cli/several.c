/* cli/several.c -- several models in one run: the flags of each, and one model of all. */
#include "cli/cli.h"
#include <string.h>

/* What follows "NAME." in text, where NAME is the model's; NULL: it is not of this model. */
static const char *own_part(const char *text, const char *model)
{
    const size_t n = strlen(model);
    return !strncmp(text, model, n) && text[n] == '.' ? text + n + 1 : NULL;
}

static nnc_status unknown_model(
    const several *s, const char *flag, const char *text, int n, nnc_sink *sink)
{
    char word[128];
    NNC_LOCAL(nnc_text) list = {0};
    for (int i = 0; i < s->n; i++)
        nnc_printf(&list, "%s%s", i ? ", " : "", s->name[i]);
    snprintf(word, sizeof word, "%.*s", n, text);
    const char *near = nnc_nearest(word, s->name, (size_t)s->n);
    return nnc_fail0(sink, NNC_E_USAGE, "%s %s: no model is called `%s`%s%s%s; the models are %s",
        flag, text, word, near ? "; did you mean `" : "", near ? near : "", near ? "`" : "",
        nnc_text_str(&list));
}

/* "NAME.arg" names one of the models. */
static nnc_status check_prefix(const several *s, const char *flag, const char *text, nnc_sink *sink)
{
    const int n = (int)strcspn(text, ".:");
    bool known = text[n] != '.';
    for (int i = 0; i < s->n; i++)
        known = known || own_part(text, s->name[i]);
    return known ? NNC_OK : unknown_model(s, flag, text, n, sink);
}

/* The args of model k: its own, "NAME.arg", else those without a name, which are for all. */
static nnc_status own_args(const several *s, int k, const options *o, options *with, nnc_sink *sink)
{
    nnc_arg *arg = ARENA_NEW((nnc_arena *)&s->a, nnc_arg, o->model.n_arg + 1);
    NNC_NEED(arg, sink);
    with->model.arg = arg;
    with->model.n_arg = 0;
    for (int own = 1; own >= 0; own--)
        for (int i = 0; i < o->model.n_arg; i++) {
            const nnc_arg *a = &o->model.arg[i];
            const char *name = own ? own_part(a->name, s->name[k]) : a->name;
            NNC_TRY(check_prefix(s, "--set", a->name, sink));
            bool take = name && (own || !strchr(name, '.'));
            for (int j = 0; take && j < with->model.n_arg; j++)
                take = strcmp(arg[j].name, name) != 0;
            if (take)
                arg[with->model.n_arg++] = (nnc_arg){name, a->value};
        }
    return NNC_OK;
}

/* --shapes=NAME.x:1x3x224x224: of one model; without a name, of all. */
static nnc_status own_shapes(
    const several *s, int k, const options *o, options *with, nnc_sink *sink)
{
    const char **shape = ARENA_NEW((nnc_arena *)&s->a, const char *, o->model.n_shape + 1);
    NNC_NEED(shape, sink);
    with->model.shape = shape;
    with->model.n_shape = 0;
    for (int i = 0; i < o->model.n_shape; i++) {
        const char *text = o->model.shape[i], *own = own_part(text, s->name[k]);
        bool other = false;
        for (int j = 0; j < s->n; j++)
            other = other || (j != k && own_part(text, s->name[j]));
        if (!other)
            shape[with->model.n_shape++] = own ? own : text;
    }
    return NNC_OK;
}

/* Inputs of model k that values are given for, NAME.x. */
static nnc_status own_inputs(
    const several *s, int k, const options *o, options *with, nnc_sink *sink)
{
    nnc_arena *a = (nnc_arena *)&s->a;
    const nnc_shape *all;
    int n;
    NNC_TRY(nnc_given_inputs(&o->compare, a, &all, &n, sink));
    nnc_shape *own = ARENA_NEW(a, nnc_shape, n + 1);
    NNC_NEED(own, sink);
    with->model.value = own;
    with->model.n_value = 0;
    for (int i = 0; i < n; i++) {
        nnc_shape v = all[i];
        v.name = own_part(all[i].name, s->name[k]);
        if (v.name)
            own[with->model.n_value++] = v;
    }
    return NNC_OK;
}

/* --weights=NAME=FILE,NAME=FILE */
static nnc_status own_weights(
    const several *s, int k, const options *o, options *with, nnc_sink *sink)
{
    with->model.weights = NULL;
    for (const char *p = o->model.weights ? o->model.weights : ""; *p;) {
        const int n = (int)strcspn(p, ","), equal = (int)strcspn(p, "=");
        bool known = false;
        if (equal >= n)
            return nnc_fail0(sink, NNC_E_USAGE,
                "--weights of several models: expected NAME=FILE,NAME=FILE, as in "
                "--weights=%s=weights.safetensors, found `%.*s`",
                s->name[0], n, p);
        for (int i = 0; i < s->n; i++)
            if ((int)strlen(s->name[i]) == equal && !strncmp(p, s->name[i], (size_t)equal)) {
                known = true;
                if (i == k)
                    NNC_NEED(with->model.weights = nnc_arena_printf(
                                 (nnc_arena *)&s->a, "%.*s", n - equal - 1, p + equal + 1),
                        sink);
            }
        if (!known)
            return unknown_model(s, "--weights", p, equal, sink);
        p += n + (p[n] == ',');
    }
    return NNC_OK;
}

/* The options of model k by itself. */
static nnc_status own_options(
    const several *s, int k, const options *o, options *with, nnc_sink *sink)
{
    *with = *o;
    with->n_file = 1;
    with->file[0] = o->file[k];
    with->model.place = NULL; /* of all of them together */
    if (nnc_is_artifact(o->file[k]))
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[k]},
            "is compiled already: several models in one run are compiled together; name its model "
            "file");
    if (o->model.classes)
        return nnc_fail0(
            sink, NNC_E_USAGE, "--replace-head is of one model, and several are given");
    NNC_TRY(own_args(s, k, o, with, sink));
    NNC_TRY(own_shapes(s, k, o, with, sink));
    NNC_TRY(own_inputs(s, k, o, with, sink));
    return own_weights(s, k, o, with, sink);
}

/* As many devices as --devices says, or --target lists. */
static int count_devices(const options *o)
{
    int n = 1;
    for (const char *p = o->env.target ? o->env.target : ""; *p; p++)
        n += *p == ',';
    return n > o->compare.compile.devices ? n : o->compare.compile.devices;
}

nnc_status open_each(const options *o, work *w, nnc_sink *sink)
{
    several *s = &w->several;
    NNC_TRY(nnc_models_name(o->file, o->n_file, s->name, &s->a, sink));
    s->n = o->n_file;
    for (int k = 0; k < s->n; k++) {
        options with;
        work one = {0};
        NNC_TRY(own_options(s, k, o, &with, sink));
        const nnc_status st = open_one(&with, &one, sink);
        s->model[k] = st ? NULL : one.model;
        if (st)
            nnc_model_close(one.model);
        NNC_TRY(st);
    }
    return NNC_OK;
}

nnc_status open_several(const options *o, work *w, nnc_sink *sink)
{
    several *s = &w->several;
    const int devices = count_devices(o);
    const bool divides = nnc_is_pipeline(o->sharing) || nnc_is_split(o->sharing);
    if (divides || o->compare.compile.split) /* of `data` share_model says it */
        return nnc_fail0(sink, NNC_E_USAGE,
            "%s divides one model among the devices. Each of several models is on one device, but "
            "for layers that --place puts elsewhere: leave it out",
            divides ? "--strategy" : "--split");
    NNC_TRY(open_each(o, w, sink));
    if (devices > 1 && devices < s->n)
        NNC_TRY(open_env(o, w, sink));
    NNC_TRY(nnc_models_place(w->env, s->model, s->n, devices, s->device, sink));
    return nnc_models_join(s->model, s->name, s->device, s->n, o->model.place, &w->model, sink);
}

void close_several(several *s)
{
    for (int k = 0; k < s->n; k++)
        nnc_model_close(s->model[k]);
    nnc_arena_deinit(&s->a);
}

/* ---- --devices=cpu:0,cpu:1 ----------------------------------------------------------------------------------------- */

/* "cpu:0" or "cuda:1": the length of its kind; 0: it is neither, or numbered otherwise. */
static size_t device_kind(const char *p, size_t n, int next[2], char kind[8])
{
    static const char *const kinds[] = {"cpu", "cuda"};
    for (int i = 0; i < 2; i++) {
        char want[32];
        snprintf(want, sizeof want, "%s:%d", kinds[i], next[i]);
        if (strlen(want) == n && !strncmp(p, want, n)) {
            next[i]++;
            strcpy(kind, kinds[i]);
            return strlen(kind);
        }
    }
    return 0;
}

nnc_status read_devices(options *o, const char *value, char count[16], nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) list = {0};
    int n = 0, next[2] = {0, 0};
    for (const char *p = value; *p; n++) {
        const size_t len = strcspn(p, ",");
        char kind[8];
        if (!device_kind(p, len, next, kind))
            return nnc_fail0(sink, NNC_E_USAGE,
                "--devices: expected a number, or devices numbered from 0 for each kind, as in "
                "cpu:0,cpu:1 or cpu:0,cuda:0, found `%s`",
                value);
        nnc_printf(&list, "%s%s", n ? "," : "", kind);
        p += len + (p[len] == ',');
    }
    snprintf(count, 16, "%d", n);
    o->device_kinds = nnc_arena_strdup(&o->strings, nnc_text_str(&list));
    NNC_NEED(!list.oom && o->device_kinds, sink);
    return NNC_OK;
}

nnc_status use_devices(options *o, nnc_sink *sink)
{
    if (!o->device_kinds || !strstr(o->device_kinds, "cuda")) /* CPUs are the default */
        return NNC_OK;
    if (o->env.target)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--devices with GPUs and --target=%s both name the devices: give a number to --devices",
            o->env.target);
    o->env.target = o->device_kinds;
    return NNC_OK;
}
