/* frontend/check.c -- checks of a model file that need no args: its structure, unknown keys, unknown layer types, missing keys; unused
 * blocks included. Reports all errors, up to MAX_ERRORS. */
#include "frontend/internal.h"
#include <math.h>
#include <string.h>

enum { MAX_ERRORS = 20 };

static const char *const root_keys[] = {
    "$schema", "name", "doc", "args", "blocks", "inputs", "layers", "outputs", "train"};
static const char *const block_keys[] = {"doc", "args", "inputs", "layers", "output"};
static const char *const arg_keys[] = {"default", "min", "max", "choices", "doc"};

static bool among(const char *s, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s, names[i]))
            return true;
    return false;
}

static void check_doc(fe *f, const nnc_item *o, const char *path)
{
    const nnc_item *doc = nnc_json_get(o, "doc");
    if (doc && !nnc_is_string(doc))
        fe_fail_at(f, doc, false, path, "doc: expected a string, found %s", fe_kind_name(doc));
}

/* Checks that the keys of o are among the names, and that "doc" is text. */
static void only_keys(fe *f, const nnc_item *o, const char *path, const char *what,
    const char *const *names, size_t n)
{
    check_doc(f, o, path);
    for (const nnc_item *c = o->child; c && nnc_sink_errors(f->sink) < MAX_ERRORS; c = c->next)
        if (!among(c->key, names, n))
            fe_fail_at(f, c, true, path, "unknown key \"%.60s\" of %s%s", c->key, what,
                fe_hint(f, c->key, names, n));
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void unknown_op(fe *f, const nnc_item *where, const char *op, const char *path)
{
    const char **names = NULL;
    int n = fe_layer_count(), k = 0;
    for (const nnc_item *b = f->blocks ? f->blocks->child : NULL; b; b = b->next)
        n++;
    names = ARENA_NEW(&f->a, const char *, n);
    if (!names) {
        fe_nomem(f);
        return;
    }
    for (int i = 0; i < fe_layer_count(); i++)
        names[k++] = fe_layer_at(i).name;
    for (const nnc_item *b = f->blocks ? f->blocks->child : NULL; b; b = b->next)
        names[k++] = b->key;
    fe_fail_at(f, where, false, path, "unknown layer type `%.60s`%s", op,
        fe_type_hint(f, op, names, (size_t)n));
}

/* Checks the keys of one layer whose type is known; item is an object. op NULL: a group. */
static void check_keys(fe *f, const nnc_item *item, const char *op, const fe_row *row,
    const nnc_item *block, const char *path)
{
    const char *names[64 + FE_MAX_ARGS];
    fe_use u;
    size_t n = 0, common;
    check_doc(f, item, path);
    for (int i = 0; i < fe_n_common; i++)
        if (!op || (strcmp(fe_common[i], "layers") != 0 && strcmp(fe_common[i], "output") != 0))
            names[n++] = fe_common[i];
    common = n;
    for (const char *p = row ? row->keys : ""; fe_use_next(&p, &u);)
        names[n++] = fe_keys[u.key].name;
    const nnc_item *args = block ? nnc_json_get(block, "args") : NULL;
    for (const nnc_item *a = args ? args->child : NULL; a && n < NNC_COUNT(names); a = a->next)
        names[n++] = nnc_is_list(args) ? (a->text ? a->text : "") : a->key;
    for (const nnc_item *c = item->child; c && nnc_sink_errors(f->sink) < MAX_ERRORS; c = c->next)
        if (!among(c->key, names, n)) {
            NNC_LOCAL(nnc_text) t = {0};
            for (size_t i = common; i < n; i++)
                nnc_printf(&t, "%s%s", t.n ? ", " : "", names[i]);
            const char *hint = fe_key_hint(f, c->key, names, n);
            fe_fail_at(f, c, true, path, "unknown key \"%.60s\" of %s%s%s%s%s", c->key,
                op ? op : "a group", hint,
                *hint ? ""
                : t.n ? " (it takes: "
                      : " (it takes no keys of its own",
                *hint ? "" : nnc_text_str(&t), *hint ? "" : ")");
        }
    for (const char *p = row ? row->keys : ""; fe_use_next(&p, &u);)
        if (u.must && !nnc_json_get(item, fe_keys[u.key].name))
            fe_fail_at(f, item, false, path, "%s needs \"%s\": %s", op, fe_keys[u.key].name,
                fe_keys[u.key].doc);
    for (const nnc_item *a = args && nnc_is_list(args) ? args->child : NULL; a; a = a->next)
        if (a->text && !nnc_json_get(item, a->text))
            fe_fail_at(f, item, false, path, "block %s needs its arg \"%s\"", op, a->text);
}

bool fe_check_op(fe *f, const nnc_item *item, const char *op, const char *path)
{
    fe_row row;
    static const nnc_item none = {0};
    size_t before = nnc_sink_errors(f->sink);
    const nnc_item *where = nnc_is_object(item) ? nnc_json_get(item, "op") : item;
    const nnc_item *block = f->blocks ? nnc_json_get(f->blocks, op) : NULL;
    if (!block && !fe_layer_find(op, &row))
        unknown_op(f, where, op, path);
    else if (nnc_is_object(item))
        check_keys(f, item, op, block ? NULL : &row, block, path);
    else {
        fe_use u;
        const nnc_item *args = block ? nnc_json_get(block, "args") : &none;
        for (const char *p = block ? "" : row.keys; fe_use_next(&p, &u);)
            if (u.must)
                fe_fail_at(f, item, false, path,
                    "%s needs \"%s\": write {\"op\": \"%s\", \"%s\": ...}", op, fe_keys[u.key].name,
                    op, fe_keys[u.key].name);
        if (args && nnc_is_list(args) && args->child)
            fe_fail_at(f, item, false, path, "block %s needs its args: write {\"op\": \"%s\", ...}",
                op, op);
    }
    return !f->status && nnc_sink_errors(f->sink) == before;
}

static void check_layers(fe *f, const nnc_item *layers, const char *path, int depth);

/* Reports a layer without "op"; for {"conv": {...}}, the form of other formats, the message shows nnc's form. */
static void no_op(fe *f, const nnc_item *item, const char *path)
{
    fe_row row;
    for (const nnc_item *k = item->child; k; k = k->next)
        if (fe_layer_find(k->key, &row)) {
            fe_fail_at(f, k, true, path,
                "a layer needs \"op\" (its type): write {\"op\": \"%s\", ...} with its keys beside "
                "it",
                k->key);
            return;
        }
    fe_fail_at(f, item, false, path, "a layer needs \"op\" (its type), or \"layers\" (a group)");
}

static void check_layer(fe *f, const nnc_item *item, const char *path, int depth)
{
    if (nnc_is_string(item)) {
        if (!strstr(item->text, "${"))
            fe_check_op(f, item, item->text, path);
        return;
    }
    if (!nnc_is_object(item)) {
        fe_fail_at(f, item, false, path,
            "a layer is an object such as {\"op\": \"conv\", ...} or a type in quotes such as "
            "\"relu\"");
        return;
    }
    const nnc_item *op = nnc_json_get(item, "op"), *group = nnc_json_get(item, "layers");
    if (!op && !group)
        no_op(f, item, path);
    else if (op && group)
        fe_fail_at(f, item, false, path, "a layer has either \"op\" or \"layers\", not both");
    else if (op && !nnc_is_string(op))
        fe_fail_at(f, op, false, path, "op: expected a layer type in quotes");
    else if (op && !strstr(op->text, "${"))
        fe_check_op(f, item, op->text, path);
    else if (group) {
        check_keys(f, item, NULL, NULL, NULL, path);
        check_layers(f, group, path, depth + 1);
    }
}

static void check_layers(fe *f, const nnc_item *layers, const char *path, int depth)
{
    int i = 0;
    if (!nnc_is_list(layers) || !layers->child) {
        fe_fail_at(f, layers, false, path, "layers: expected a list of at least one layer");
        return;
    }
    if (depth > NNC_MAX_NESTING) {
        fe_fail_at(f, layers, false, path, "groups are nested deeper than %d", NNC_MAX_NESTING);
        return;
    }
    for (const nnc_item *l = layers->child; l && nnc_sink_errors(f->sink) < MAX_ERRORS;
         l = l->next, i++) {
        const nnc_item *name = nnc_json_get(l, "name");
        const nnc_item *op = nnc_is_string(l) ? l : nnc_json_get(l, "op");
        const char *s = name && nnc_is_string(name) ? name->text
                        : op && nnc_is_string(op)   ? op->text
                                                    : "group";
        char buf[FE_MAX_PATH + 200];
        snprintf(buf, sizeof buf, "%s/%d/%.*s", path, i, FE_MAX_NAME, s);
        check_layer(f, l, buf, depth);
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

static bool is_value(const nnc_item *v)
{
    return nnc_is_string(v) || (nnc_is_number(v) && v->number == floor(v->number));
}

/* Checks an arg with bounds or choices: model.c compares integers and words only. */
static void check_arg(fe *f, const nnc_item *a, const char *path)
{
    static const char *const bounds[] = {"min", "max"};
    const nnc_item *choices = nnc_json_get(a, "choices");
    only_keys(f, a, path, "an arg", arg_keys, NNC_COUNT(arg_keys));
    for (int i = 0; i < 2; i++) {
        const nnc_item *b = nnc_json_get(a, bounds[i]);
        if (b && (!is_value(b) || nnc_is_string(b)))
            fe_fail_at(
                f, b, false, path, "arg `%.60s`: %s: expected a whole number", a->key, bounds[i]);
        if (b && choices)
            fe_fail_at(f, b, true, path, "arg `%.60s`: it has choices, so leave %s out", a->key,
                bounds[i]);
    }
    if (choices && (!nnc_is_list(choices) || !choices->child))
        fe_fail_at(f, choices, false, path,
            "arg `%.60s`: choices: expected a list of whole numbers or words", a->key);
    for (const nnc_item *c = nnc_is_list(choices) ? choices->child : NULL; c; c = c->next)
        if (!is_value(c))
            fe_fail_at(
                f, c, false, path, "arg `%.60s`: choices: expected whole numbers or words", a->key);
}

static void check_args(fe *f, const nnc_item *args, const char *path, bool list_ok)
{
    int n = 0;
    if (!args)
        return;
    if (!nnc_is_object(args) && !(list_ok && nnc_is_list(args))) {
        fe_fail_at(f, args, false, path, "args: expected an object such as {\"batch\": 1}%s",
            list_ok ? ", or a list of names" : "");
        return;
    }
    for (const nnc_item *a = args->child; a && nnc_sink_errors(f->sink) < MAX_ERRORS; a = a->next) {
        bool list = nnc_is_list(args);
        const char *name = list ? a->text : a->key;
        static const char *const taken[] = {"min", "max", "inf", "nan"};
        if (!name || (list && !nnc_is_string(a)) || !fe_is_name(name) || among(name, taken, 4))
            fe_fail_at(f, a, !list, path,
                "an arg's name is a letter, then letters, digits and _, and not min, max, inf or "
                "nan");
        else if (strlen(name) > FE_MAX_NAME)
            fe_fail_at(f, a, !list, path, "an arg's name has at most %d characters", FE_MAX_NAME);
        else if (list_ok && fe_is_common(name))
            fe_fail_at(f, a, !list, path,
                "`%s` is a key of every layer, so it cannot be a block's arg", name);
        if (!list && nnc_is_object(a))
            check_arg(f, a, path);
        if (++n > FE_MAX_ARGS) {
            fe_fail_at(f, a, !list, path, "more than %d args", FE_MAX_ARGS);
            return;
        }
    }
}

static void check_block(fe *f, const nnc_item *b)
{
    fe_row row;
    char path[FE_MAX_NAME + 32];
    snprintf(path, sizeof path, "/blocks/%.*s", FE_MAX_NAME, b->key);
    if (!fe_name_ok(f, b, path, b->key))
        return;
    if (fe_layer_find(b->key, &row)) {
        fe_fail_at(f, b, true, path, "`%s` is a layer type; a block needs another name", b->key);
        return;
    }
    if (!nnc_is_object(b)) {
        fe_fail_at(f, b, false, path, "a block is an object with \"layers\"");
        return;
    }
    only_keys(f, b, path, "a block", block_keys, NNC_COUNT(block_keys));
    check_args(f, nnc_json_get(b, "args"), path, true);
    const nnc_item *layers = nnc_json_get(b, "layers"), *inputs = nnc_json_get(b, "inputs");
    if (inputs && (!nnc_is_list(inputs) || !inputs->child))
        fe_fail_at(f, inputs, false, path, "inputs: expected a list of names");
    for (const nnc_item *i = inputs && nnc_is_list(inputs) ? inputs->child : NULL; i; i = i->next)
        if (!nnc_is_string(i))
            fe_fail_at(f, i, false, path, "inputs: expected names in quotes");
        else
            fe_name_ok(f, i, path, i->text);
    if (!layers)
        fe_fail_at(f, b, false, path, "a block needs \"layers\"");
    else
        check_layers(f, layers, path, 1);
}

static bool is_kind(
    fe *f, const nnc_item *root, const char *key, bool (*is)(const nnc_item *), const char *what)
{
    const nnc_item *v = nnc_json_get(root, key);
    if (v && !is(v))
        fe_fail_at(f, v, false, NULL, "%s: expected %s", key, what);
    return v && is(v);
}

nnc_status fe_check(fe *f)
{
    const nnc_item *root = f->j.root;
    if (!nnc_is_object(root))
        return fe_fail_at(
            f, root, false, NULL, "a model is an object: {\"inputs\": {...}, \"layers\": [...]}");
    only_keys(f, root, NULL, "a model", root_keys, NNC_COUNT(root_keys));
    is_kind(f, root, "name", nnc_is_string, "a string");
    is_kind(f, root, "$schema", nnc_is_string, "a string");
    is_kind(f, root, "train", nnc_is_object, "an object of settings, as in {\"lr\": 0.1}");
    if (is_kind(f, root, "blocks", nnc_is_object, "an object of blocks by name"))
        f->blocks = nnc_json_get(root, "blocks");
    if (f->blocks && f->blocks->n > FE_MAX_BLOCKS)
        return fe_fail_at(f, f->blocks, false, NULL, "more than %d blocks", FE_MAX_BLOCKS);
    check_args(f, nnc_json_get(root, "args"), "/args", false);
    for (const nnc_item *b = f->blocks ? f->blocks->child : NULL;
         b && nnc_sink_errors(f->sink) < MAX_ERRORS; b = b->next)
        check_block(f, b);
    const nnc_item *inputs = nnc_json_get(root, "inputs"), *layers = nnc_json_get(root, "layers");
    if (!inputs)
        fe_fail_at(f, root, false, NULL,
            "a model needs \"inputs\", as in {\"x\": [\"batch\", 3, 224, 224]}");
    else if (is_kind(f, root, "inputs", nnc_is_object, "an object of shapes by name") &&
             !inputs->child)
        fe_fail_at(f, inputs, false, NULL, "inputs: expected at least one");
    if (inputs && inputs->n > FE_MAX_ARGS)
        fe_fail_at(f, inputs, false, NULL, "more than %d inputs", FE_MAX_ARGS);
    if (!layers)
        fe_fail_at(f, root, false, NULL, "a model needs \"layers\"");
    else
        check_layers(f, layers, "/layers", 1);
    return f->status;
}
