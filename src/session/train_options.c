/* session/train_options.c -- options of trainers by name, for nnc.h. They are those of nnc train that define the training and its rates,
 * not files and data, and those of a compile. */
#include "session/session.h"
#include "session/train.h"

#include <string.h>

const nnc_train_options nnc_train_defaults = {.compile = {.level = 2, .streams = 1, .devices = 1},
    .training = {NNC_TRAINING_DEFAULTS},
    .rate = {NNC_RATE_DEFAULTS},
    .epochs = 1};

/* The options are the first member, so that both have the same address. */
typedef struct holder {
    nnc_train_options o;
    nnc_compile_options *compile; /* owns the strings of o.compile */
    nnc_arena strings;
} holder;

/* Settings of the loop that trainers have, too. */
static const char *const of_loop[] = {"--lr", "--schedule", "--decay-every", "--decay-at",
    "--gamma", "--min-lr", "--warmup-steps", "--steps", "--on-nan", "--strategy", "--micro-batches",
    "--replicas", "--chunks", "--zero", "--bucket-mb", "--seed"};

bool nnc_train_is_offered(const nnc_flag *f)
{
    bool yes = f->group == FLAGS_training;
    for (size_t i = 0; i < NNC_COUNT(of_loop) && !yes; i++)
        yes = !strcmp(f->value.name, of_loop[i]);
    return yes;
}

static const nnc_setting per_epoch = {.name = "steps-per-epoch",
    .kind = NNC_SET_INT,
    .at = offsetof(struct nnc_train_options, per_epoch),
    .lo = 1,
    .hi = 1000000000};

nnc_train_options *nnc_train_options_create(void)
{
    holder *h = nnc_calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->o = nnc_train_defaults;
    h->compile = nnc_compile_options_create();
    if (h->compile)
        return &h->o;
    nnc_train_options_destroy(&h->o);
    return NULL;
}

void nnc_train_options_destroy(nnc_train_options *o)
{
    holder *h = (holder *)(void *)o;
    if (!h)
        return;
    nnc_compile_options_destroy(h->compile);
    nnc_arena_deinit(&h->strings);
    nnc_free(h);
}

nnc_status nnc_train_options_set(
    nnc_train_options *o, const char *name, const char *value, nnc_sink *sink)
{
    holder *h = (holder *)(void *)o;
    const char *names[NNC_TRAIN_SETTINGS + 1], *near;
    size_t n = 0;
    if (!strcmp(name, per_epoch.name))
        return nnc_setting_set(&per_epoch, "option ", o, value, &h->strings, sink);
    for (size_t i = 0; i < nnc_n_train_settings; i++) {
        nnc_setting row = nnc_train_settings[i].value;
        if (!nnc_train_is_offered(&nnc_train_settings[i]))
            continue;
        row.name += 2;
        names[n++] = row.name;
        if (strcmp(row.name, name) != 0)
            continue;
        NNC_TRY(nnc_setting_set(&row, "option ", o, value, &h->strings, sink));
        o->given[i] = true;
        return NNC_OK;
    }
    names[n++] = per_epoch.name;
    near = nnc_train_calls(name) ? nnc_train_calls(name) : nnc_nearest(name, names, n);
    if (near)
        return nnc_fail0(sink, NNC_E_USAGE, "no option is named %s; did you mean %s", name, near);
    NNC_TRY(nnc_compile_options_set(h->compile, name, value, sink));
    o->compile = *h->compile;
    return NNC_OK;
}

/* Copies each setting that differs from its default, through its text. */
static bool copy_settings(const nnc_train_options *from, holder *to)
{
    NNC_LOCAL(nnc_text) value = {0}, usual = {0};
    for (size_t i = 0; i < nnc_n_train_settings; i++) {
        const nnc_setting *row = &nnc_train_settings[i].value;
        nnc_text_clear(&value);
        nnc_text_clear(&usual);
        nnc_setting_put(row, from, &value);
        nnc_setting_put(row, &nnc_train_defaults, &usual);
        if (value.oom || usual.oom)
            return false;
        if (strcmp(nnc_text_str(&value), nnc_text_str(&usual)) != 0 &&
            nnc_setting_set(
                row, "", &to->o, value.n ? nnc_text_str(&value) : "0", &to->strings, NULL))
            return false;
    }
    return true;
}

nnc_train_options *nnc_train_options_copy(const nnc_train_options *o)
{
    holder *h = (holder *)(void *)nnc_train_options_create();
    if (!h || !o)
        return h ? &h->o : NULL;
    nnc_compile_options_destroy(h->compile);
    h->compile = nnc_compile_options_copy(&o->compile);
    if (h->compile && copy_settings(o, h)) {
        h->o.compile = *h->compile;
        h->o.per_epoch = o->per_epoch;
        memcpy(h->o.given, o->given, sizeof o->given);
        return &h->o;
    }
    nnc_train_options_destroy(&h->o);
    return NULL;
}

nnc_status nnc_train_options_read(const nnc_model *m, nnc_train_options *o, nnc_sink *sink)
{
    holder *h = (holder *)(void *)o;
    return nnc_train_read(m, o, &h->strings, sink);
}
