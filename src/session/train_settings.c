/* session/train_settings.c -- the settings of training: flags of the program and keys of a model file's section "train", in one table.
 *
 * A row makes both: "--weight-decay" is the key "weight_decay"; a switch "--no-shuffle" the key "shuffle", true or false. To add a
 * setting: a field of nnc_train_options (or of nnc_training, where the graph of a step depends on it: then --mode=step has it too) and a
 * row. Groups: k, the graph of a step; l, the loop; u, files and threads of the loop, which are flags only; F, keys only. Settings of k and
 * l are stored in checkpoints, and must be equal when training is resumed. */
#include "session/train.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

#define AT(f) offsetof(nnc_train_options, f)
const nnc_flag nnc_train_settings[] = {
#include "session/train_settings.def"
};
const size_t nnc_n_train_settings = NNC_COUNT(nnc_train_settings);
_Static_assert(NNC_COUNT(nnc_train_settings) <= NNC_TRAIN_SETTINGS, "nnc_train_options.given");

/* ---- the section of a model file ----------------------------------------------------------------------------------------- */

bool nnc_train_key(const nnc_flag *f, char key[NNC_TRAIN_KEY_SIZE])
{
    const char *name = f->value.name + 2;
    const bool inverted = !strncmp(name, "no-", 3);
    snprintf(key, NNC_TRAIN_KEY_SIZE, "%s", name + (inverted ? 3 : 0));
    for (char *p = key; *p; p++)
        *p = *p == '-' ? '_' : *p;
    return inverted;
}

/* Names of other frameworks. */
static const char *const elsewhere[][2] = {{"learning_rate", "lr"}, {"batch_size", "batch"},
    {"num_epochs", "epochs"}, {"max_epochs", "epochs"}, {"max_steps", "steps"},
    {"criterion", "loss"}, {"lr_scheduler", "schedule"}, {"scheduler", "schedule"},
    {"warmup", "warmup_steps"}, {"clip_grad_norm", "clip_norm"}, {"gradient_clip_val", "clip_norm"},
    {"betas", "beta1"}, {"random_seed", "seed"}, {"dataset", "data"},
    {"validation_split", "validation"}};

const char *nnc_train_calls(const char *name)
{
    char key[NNC_TRAIN_KEY_SIZE];
    const size_t n = strcspn(name, "="), skip = strspn(name, "-");
    snprintf(key, sizeof key, "%.*s", (int)(n - (skip < n ? skip : n)), name + skip);
    for (char *p = key; *p; p++)
        *p = *p == '-' ? '_' : *p;
    for (size_t i = 0; i < NNC_COUNT(elsewhere); i++)
        if (!strcmp(key, elsewhere[i][0]))
            return elsewhere[i][1];
    return NULL;
}

static nnc_status unknown_key(const char *key, nnc_loc loc, nnc_sink *sink)
{
    char name[NNC_TRAIN_SETTINGS][NNC_TRAIN_KEY_SIZE];
    const char *names[NNC_TRAIN_SETTINGS], *near = NULL;
    size_t n = 0;
    for (size_t i = 0; i < nnc_n_train_settings; i++) {
        (void)nnc_train_key(&nnc_train_settings[i], name[n]);
        if (nnc_train_settings[i].group == FLAGS_job && !strcmp(name[n], key))
            return nnc_fail(sink, NNC_E_MODEL, loc,
                "`%s` is not a key of \"train\": files and how devices share the work are of a "
                "run, with %s",
                key, nnc_train_settings[i].value.name);
        names[n] = name[n];
        n += nnc_train_settings[i].group != FLAGS_job;
    }
    if (nnc_train_calls(key))
        return nnc_fail(sink, NNC_E_MODEL, loc, "unknown key \"%s\"; nnc calls it `%s`", key,
            nnc_train_calls(key));
    near = nnc_nearest(key, names, n);
    return nnc_fail(sink, NNC_E_MODEL, loc, "unknown key \"%s\"%s%s%s", key,
        near ? "; did you mean `" : " (`nnc train --help` lists the settings)", near ? near : "",
        near ? "`?" : "");
}

/* A number, a word, or several between commas, as the flag takes them. False: it is of another kind. */
static bool put_value(const nnc_item *v, nnc_setting_kind kind, nnc_text *t)
{
    const bool number = kind == NNC_SET_INT || kind == NNC_SET_SEED || kind == NNC_SET_REAL,
               text = kind == NNC_SET_TEXT || kind == NNC_SET_LIST;
    if (nnc_is_number(v) && (number || text)) {
        if (v->number == rint(v->number) && fabs(v->number) < 1e15)
            nnc_printf(t, "%.0f", v->number); /* 50 is no integer as 5e+01 */
        else
            nnc_put_double(t, v->number);
        return true;
    }
    if (nnc_is_string(v) && !number) {
        nnc_puts(t, v->text);
        return true;
    }
    for (const nnc_item *e = nnc_is_list(v) && text ? v->child : NULL; e; e = e->next) {
        nnc_puts(t, e == v->child ? "" : ",");
        if (nnc_is_list(e) || !put_value(e, kind, t))
            return false;
    }
    return nnc_is_list(v) && text && v->child;
}

static nnc_status wrong_kind(
    const char *key, const nnc_item *v, const nnc_setting *s, nnc_loc loc, nnc_sink *sink)
{
    static const char *const name[] = {
        "null", "true or false", "a number", "a string", "a list", "an object"};
    static const char *const want[] = {[NNC_SET_INT] = "an integer",
        [NNC_SET_SEED] = "an integer",
        [NNC_SET_REAL] = "a number",
        [NNC_SET_BOOL] = "true or false",
        [NNC_SET_UNSET] = "true or false",
        [NNC_SET_TEXT] = "a string",
        [NNC_SET_FILE] = "a path in quotes",
        [NNC_SET_LIST] = "a list of strings",
        [NNC_SET_PAIRS] = "a list of strings"};
    return nnc_fail(sink, NNC_E_MODEL, loc, "%s: expected %s, found %s", key,
        s->kind == NNC_SET_CHOICE ? s->expected : want[s->kind], name[v->kind]);
}

/* Paths are relative to the model file's folder. */
static void put_path(const char *model, const char *path, nnc_text *t)
{
    const char *slash = *path == '/' || !strcmp(path, "-") ? NULL : strrchr(model, '/');
    nnc_printf(t, "%.*s%s", slash ? (int)(slash - model) + 1 : 0, model, path);
}

static nnc_status read_setting(const nnc_flag *f, const char *key, bool inverted, const nnc_json *j,
    const nnc_item *v, nnc_train_options *o, nnc_arena *strings, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_setting row = f->value;
    nnc_loc loc = nnc_json_loc(j, v, false);
    loc.path = "/train";
    row.name = key;
    const bool is_switch = row.kind == NNC_SET_BOOL || row.kind == NNC_SET_UNSET;
    if (is_switch && nnc_is_bool(v))
        nnc_puts(&t, (v->number != 0) != inverted ? "1" : "0");
    else if (row.kind == NNC_SET_FILE && nnc_is_string(v))
        put_path(j->file, v->text, &t);
    else if (is_switch || row.kind == NNC_SET_FILE || !put_value(v, row.kind, &t))
        return wrong_kind(key, v, &row, loc, sink);
    NNC_NEED(!t.oom, sink);
    return nnc_setting_read(&row, loc, o, nnc_text_str(&t), strings, sink);
}

static nnc_status read_key(
    const nnc_json *j, const nnc_item *v, nnc_train_options *o, nnc_arena *strings, nnc_sink *sink)
{
    char key[NNC_TRAIN_KEY_SIZE];
    for (size_t i = 0; i < nnc_n_train_settings; i++) {
        const nnc_flag *f = &nnc_train_settings[i];
        const bool inverted = nnc_train_key(f, key);
        if (f->group == FLAGS_job || strcmp(key, v->key) != 0)
            continue;
        nnc_train_options checked = *o; /* also what a flag overrides is checked */
        return read_setting(f, key, inverted, j, v, o->given[i] ? &checked : o, strings, sink);
    }
    nnc_loc loc = nnc_json_loc(j, v, true);
    loc.path = "/train";
    return unknown_key(v->key, loc, sink);
}

nnc_status nnc_train_read(
    const nnc_model *m, nnc_train_options *o, nnc_arena *strings, nnc_sink *sink)
{
    const nnc_given *given = m->given;
    NNC_LOCAL(nnc_json) j = {0};
    nnc_status st = NNC_OK;
    if (!given || !given->trains)
        return NNC_OK;
    NNC_TRY(nnc_json_parse(
        &j, given->file[0].name, given->piece[0].data, (size_t)given->piece[0].size, sink));
    const nnc_item *section = nnc_json_get(j.root, "train");
    for (const nnc_item *v = nnc_json_first(section); v; v = v->next) {
        nnc_status s = read_key(&j, v, o, strings, sink);
        st = st ? st : s;
    }
    return st;
}
