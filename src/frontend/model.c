/* frontend/model.c -- loads a model: detects the kind of file, binds its args to their defaults or --set, and runs the stages of the
 * load in order. */
#include "frontend/internal.h"
#include <assert.h>
#include <ctype.h>
#include <string.h>

/* ---- args ------------------------------------------------------------------------------------ */

/* Reads the default of `a`: 1, "word", or {"default": ...}. Strings are words here, not expressions. */
bool fe_arg_default(fe *f, const nnc_item *a, const char *path, fe_val *out)
{
    assert(a);
    const nnc_item *v = nnc_is_object(a) ? nnc_json_get(a, "default") : a;
    if (!v)
        return FE_FALSE_AT(
            f, a, path, "arg `%.60s` has no default and must be given", a->key ? a->key : "?");
    if (nnc_is_string(v)) {
        *out = (fe_val){.is_word = true, .word = v->text, .n = (int)strlen(v->text)};
        return true;
    }
    if (!nnc_is_number(v))
        return FE_FALSE_AT(f, v, path,
            "arg `%.60s`: expected a number or a word in quotes as its default", a->key);
    return fe_eval_arg(f, v, path, NULL, a->key, out);
}

static bool same(const fe_val *v, const nnc_item *c)
{
    if (nnc_is_string(c))
        return v->is_word && (size_t)v->n == strlen(c->text) &&
               !memcmp(v->word, c->text, (size_t)v->n);
    return nnc_is_number(c) && !v->is_word && c->number == (double)v->i;
}

/* Appends what is expected when choices, min or max exclude v; nothing when v is allowed. */
static void arg_wants(const nnc_item *a, const fe_val *v, nnc_text *t)
{
    const nnc_item *choices = nnc_json_get(a, "choices");
    const nnc_item *lo = nnc_json_get(a, "min"), *hi = nnc_json_get(a, "max");
    if (nnc_is_list(choices)) {
        for (const nnc_item *c = choices->child; c; c = c->next)
            if (same(v, c))
                return;
        nnc_puts(t, "one of");
        for (const nnc_item *c = choices->child; c; c = c->next) {
            nnc_puts(t, c == choices->child ? " " : ", ");
            if (nnc_is_string(c))
                nnc_puts(t, c->text);
            else
                nnc_printf(t, "%lld", (long long)c->number);
        }
    } else if (v->is_word && (nnc_is_number(lo) || nnc_is_number(hi))) {
        nnc_puts(t, "an integer");
    } else if (nnc_is_number(lo) && (double)v->i < lo->number) {
        nnc_printf(t, "at least %lld", (long long)lo->number);
    } else if (nnc_is_number(hi) && (double)v->i > hi->number) {
        nnc_printf(t, "at most %lld", (long long)hi->number);
    }
}

static void put_val(nnc_text *t, const fe_val *v)
{
    if (v->is_word)
        nnc_putn(t, v->word, (size_t)v->n);
    else
        nnc_printf(t, "%lld", (long long)v->i);
}

/* Checks v against the choices, min and max of arg `a`. `given`: the value's location in the file, NULL for a default. */
bool fe_arg_allowed(fe *f, const nnc_item *a, const char *name, const fe_val *v,
    const nnc_item *given, const char *path)
{
    NNC_LOCAL(nnc_text) want = {0}, is = {0};
    if (!nnc_is_object(a))
        return true;
    arg_wants(a, v, &want);
    put_val(&is, v);
    if (want.n == 0 && !want.oom)
        return true;
    fe_fail_at(f, given ? given : a, false, path, "arg `%s`: expected %s, found %.100s", name,
        nnc_text_str(&want), nnc_text_str(&is));
    return false;
}

/* Sets one arg by --set: same kind as its default, within its choices and bounds. */
static nnc_status set_arg(fe *f, const nnc_item *args, fe_env *env, const char *name, fe_val v)
{
    const char *names[FE_MAX_ARGS];
    size_t n = 0;
    fe_env *e = env;
    nnc_loc loc = {.file = f->file};
    for (; e && strcmp(e->name, name) != 0; e = (fe_env *)e->up)
        names[n++] = e->name;
    NNC_LOCAL(nnc_text) t = {0}, text = {0};
    if (e && e->v.is_word && !v.is_word &&
        !isalpha((unsigned char)*e->v.word)) { /* a float without a decimal point */
        const char *word = nnc_arena_printf(&f->a, "%lld", (long long)v.i);
        NNC_NEED(word, f->sink);
        v = (fe_val){.is_word = true, .word = word, .n = (int)strlen(word)};
    }
    nnc_printf(&t, "--set %.60s=", name);
    put_val(&t, &v);
    if (!e) {
        const char *near = nnc_nearest(name, names, n);
        if (near)
            return nnc_fail(f->sink, NNC_E_USAGE, loc,
                "%s: the model has no arg `%.60s`; did you mean `%s`?", nnc_text_str(&t), name,
                near);
        for (size_t i = n; i-- > 0;)
            nnc_printf(&text, "%s%s%s", text.n ? ", " : " (it has: ", names[i], i ? "" : ")");
        if (!n)
            return nnc_fail(
                f->sink, NNC_E_USAGE, loc, "%s: the model has no args", nnc_text_str(&t));
        return nnc_fail(f->sink, NNC_E_USAGE, loc, "%s: the model has no arg `%.60s`%s",
            nnc_text_str(&t), name, nnc_text_str(&text));
    }
    if (e->v.is_word != v.is_word)
        return nnc_fail(f->sink, NNC_E_USAGE, loc, "%s: expected %s", nnc_text_str(&t),
            v.is_word ? "an integer" : "a word");
    const nnc_item *a = nnc_json_get(args, name);
    if (nnc_is_object(a))
        arg_wants(a, &v, &text);
    e->v = v;
    return text.n ? nnc_fail(f->sink, NNC_E_USAGE, loc, "%s: expected %s", nnc_text_str(&t),
                        nnc_text_str(&text))
                  : NNC_OK;
}

static nnc_status read_args(fe *f)
{
    const nnc_item *args = nnc_json_get(f->j.root, "args");
    fe_env *env = NULL;
    for (const nnc_item *a = args ? args->child : NULL; a; a = a->next) {
        fe_env *e = ARENA_NEW(&f->a, fe_env, 1);
        const char *path = nnc_arena_printf(&f->a, "/args/%s", a->key);
        NNC_NEED(e && path, f->sink);
        *e = (fe_env){.name = a->key, .up = env};
        if (!fe_arg_default(f, a, path, &e->v) || !fe_arg_allowed(f, a, a->key, &e->v, NULL, path))
            return f->status;
        env = e;
    }
    f->globals = env;
    for (int i = 0; i < f->o->n_set; i++)
        NNC_TRY(set_arg(f, args, env, f->o->set[i].name, (fe_val){.i = f->o->set[i].value}));
    for (int i = 0; i < f->o->n_word; i++) {
        const char *w = f->o->word[i].value;
        NNC_TRY(set_arg(f, args, env, f->o->word[i].name,
            (fe_val){.is_word = true, .word = w, .n = (int)strlen(w)}));
    }
    return NNC_OK;
}

/* Reads the section "train" as far as it concerns the model: the arg `batch`, and the seed. (Its other keys are no concern of this
 * folder.) */
static bool read_train(fe *f, nnc_model_options *with)
{
    const nnc_item *train = nnc_json_get(f->j.root, "train"), *batch = nnc_json_get(train, "batch"),
                   *seed = nnc_json_get(train, "seed"),
                   *arg = nnc_json_get(nnc_json_get(f->j.root, "args"), "batch");
    if (with->trains && !with->has_seed && nnc_is_number(seed) && seed->number >= 0)
        with->seed = (uint64_t)seed->number;
    if (!nnc_is_number(batch) || batch->number < 1)
        return true;
    if (!arg)
        return fe_fail_at(f, batch, true, "/train",
                   "batch: the model has no arg `batch` that this could set; give it one, as in "
                   "\"args\": {\"batch\": 1}, for the first dimension of its inputs"),
               false;
    const fe_val v = {.i = (int64_t)batch->number};
    if (!fe_arg_allowed(f, arg, "batch", &v, batch, "/train"))
        return false;
    bool given = !with->trains;
    for (int i = 0; i < with->n_set; i++)
        given = given || !strcmp(with->set[i].name, "batch");
    nnc_set *set = given ? NULL : ARENA_NEW(&f->a, nnc_set, with->n_set + 1);
    if (given || !set)
        return given || fe_oom(f);
    memcpy(set, with->n_set ? with->set : set, (size_t)with->n_set * sizeof *set);
    set[with->n_set++] = (nnc_set){"batch", v.i};
    with->set = set;
    return true;
}

/* ---- the load -------------------------------------------------------------------------------- */

/* Marks the layers, each the consecutive nodes of one origin, that another layer or an output uses; owner: the first node of a node's
 * layer. */
static void mark_used(const nnc_graph *g, uint32_t *owner, bool *used)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        owner[i] = i > 0 && !strcmp(n->origin, g->node[i - 1].origin) ? owner[i - 1] : i;
        for (int k = 0; k < n->n_in; k++) {
            const uint32_t layer = owner[nnc_def(g, n->in[k]) - g->node];
            used[layer] |= layer != owner[i];
        }
    }
    for (uint32_t i = 0; i < g->n_output; i++)
        used[owner[nnc_def(g, g->output[i]) - g->node]] = true;
}

/* Warns about parts of a split that nothing uses. */
static void warn_unused_parts(fe *f, const nnc_node *n, const uint32_t *uses)
{
    NNC_LOCAL(nnc_text) t = {0};
    int unused = 0;
    for (int i = 0; i < n->n_out; i++)
        if (!uses[n->out + (nnc_ref)i])
            nnc_printf(&t, "%s%d", unused++ ? ", " : "", i);
    if (unused)
        fe_warn_once(f, n->loc,
            "nothing uses result%s %s of this layer; without \"in\", the next layer takes result 0 "
            "(the others are NAME:1, ...)",
            unused > 1 ? "s" : "", nnc_text_str(&t));
}

/* Warns about layers without a used result, unused parts and unused inputs, which are likely mistakes. */
static nnc_status warn_unused(fe *f)
{
    const nnc_graph *g = f->g;
    uint32_t *uses = nnc_use_counts(g, &f->a), *owner = ARENA_NEW(&f->a, uint32_t, g->n_node);
    bool *used = ARENA_NEW(&f->a, bool, g->n_node);
    size_t most = nnc_sink_count(f->sink) + 10;
    NNC_NEED(uses && owner && used, f->sink);
    mark_used(g, owner, used);
    for (uint32_t i = 0; i < g->n_node && nnc_sink_count(f->sink) < most; i++) {
        const nnc_node *n = &g->node[i];
        if (used[owner[i]] && n->op == OP_split)
            warn_unused_parts(f, n, uses);
        else if (used[owner[i]] || owner[i] != i)
            ;
        else if (n->op == OP_input)
            fe_warn_once(f, n->loc, "no layer uses this input");
        else
            fe_warn_once(f, n->loc,
                "nothing uses the result of this layer; name it in \"outputs\" or in a layer's "
                "\"in\"");
    }
    return NNC_OK;
}

static nnc_status build_model(fe *f, nnc_model_options *with)
{
    const nnc_item *root = f->j.root, *name = nnc_json_get(root, "name");
    NNC_TRY(fe_check(f));
    if (!read_train(f, with))
        return f->status;
    f->g = nnc_graph_create(name ? name->text : "model", f->sink);
    NNC_NEED(f->g, f->sink);
    f->g->device = -1;
    NNC_TRY(read_args(f));
    NNC_TRY(fe_weights_open(f));
    nnc_status st = fe_expand_model(f, nnc_json_get(root, "inputs"), nnc_json_get(root, "layers"),
        nnc_json_get(root, "outputs"));
    nnc_status ws = fe_weights_close(f, st == NNC_OK);
    NNC_TRY(st ? st : ws);
    f->g->origin = NULL;
    f->g->loc = (nnc_loc){0};
    f->g->device = -1;
    return warn_unused(f);
}

/* Distinguishes options that have no meaning for this kind of model. */
static nnc_status check_options(const char *file, const nnc_model_options *o, const char *args,
    const char *shapes, nnc_sink *sink)
{
    nnc_loc loc = {.file = file};
    if (args && (o->n_set || o->n_word))
        return nnc_fail(sink, NNC_E_USAGE, loc, "--set %s: %s",
            o->n_set ? o->set[0].name : o->word[0].name, args);
    if (shapes && o->onnx.n_shape)
        return nnc_fail(sink, NNC_E_USAGE, loc, "--shapes: %s", shapes);
    return NNC_OK;
}

static nnc_status bind_weights(nnc_graph *g, const nnc_model_options *o, nnc_sink *sink)
{
    return o->weights ? fe_weights_bind_graph(g, o, sink) : NNC_OK;
}

/* ---- what is needed to read it again --------------------------------------------------------- */

static bool keep_arg(nnc_given *v, int i, const char *name, const char *value)
{
    v->arg[i] = (nnc_arg){nnc_arena_strdup(&v->arena, name), value};
    return v->arg[i].name && value;
}

/* The file of weights, and what was set. */
static bool keep_options(nnc_given *v, const nnc_model_options *o)
{
    nnc_arena *a = &v->arena;
    bool ok = !o->weights || (v->weights = nnc_arena_strdup(a, o->weights));
    ok = ok && (!o->place || (v->place = nnc_arena_strdup(a, o->place)));
    int n = 0;
    v->seed = o->seed;
    v->classes = o->classes;
    for (int i = 0; ok && n < v->n_arg && i < o->n_set; i++)
        ok = keep_arg(
            v, n++, o->set[i].name, nnc_arena_printf(a, "%lld", (long long)o->set[i].value));
    for (int i = 0; ok && n < v->n_arg && i < o->n_word; i++)
        ok = keep_arg(v, n++, o->word[i].name, nnc_arena_strdup(a, o->word[i].value));
    return ok;
}

static nnc_status keep_text(fe *f, const char *text, size_t n, const nnc_model_options *o)
{
    nnc_given *v = f->g->given = nnc_given_create(1, 1, o->n_set + o->n_word);
    bool ok = v && keep_options(v, o) && nnc_given_keep(v, 0, 0, 0, text, (int64_t)n) &&
              (v->file[0].name = nnc_arena_strdup(&v->arena, f->file));
    NNC_NEED(ok, f->sink);
    v->file[0].size = (int64_t)n;
    v->trains = nnc_json_get(f->j.root, "train") != NULL;
    return NNC_OK;
}

/* The graph; NULL, and it is destroyed, where something failed. */
static nnc_graph *unless(nnc_status failed, nnc_graph *g)
{
    if (!failed)
        return g;
    nnc_graph_destroy(g);
    return NULL;
}

/* text NULL: the file is mapped, and weights refer to it. */
static nnc_graph *load_onnx(
    const char *file, const char *text, size_t n, const nnc_model_options *o, nnc_sink *sink)
{
    if (check_options(file, o,
            "an ONNX model has no args; --shapes=NAME:1x3x224x224 gives an "
            "input's shape",
            NULL, sink))
        return NULL;
    nnc_graph *g = o->onnx.given ? nnc_onnx_again(&o->onnx, sink)
                   : text        ? nnc_onnx_parse(file, text, n, &o->onnx, sink)
                                 : nnc_onnx_load(file, &o->onnx, sink);
    nnc_status st = g ? bind_weights(g, o, sink) : NNC_OK;
    if (g && !st && !o->again && !keep_options(g->given, o))
        st = nnc_nomem(sink);
    return unless(st, g);
}

static nnc_graph *load_json(
    const char *file, const char *text, size_t n, const nnc_model_options *o, nnc_sink *sink)
{
    if (check_options(file, o, NULL, "the model's args set its shapes, as in --set batch=8", sink))
        return NULL;
    nnc_model_options with = *o;
    fe f = {.o = &with, .sink = sink, .file = file};
    nnc_status st = nnc_json_parse(&f.j, file, text, n, sink);
    if (!st) {
        st = build_model(&f, &with);
        if (!st)
            st = keep_text(&f, text, n, &with);
        nnc_json_deinit(&f.j);
    }
    nnc_tensors_close(f.st);
    nnc_mismatch_deinit(&f.mismatch);
    nnc_arena_deinit(&f.a);
    if (st) {
        nnc_graph_destroy(f.g);
        return NULL;
    }
    return f.g;
}

static bool output_named(const nnc_graph *g, const char *name, uint32_t but)
{
    for (uint32_t i = 0; i < g->n_output; i++)
        if (i != but && g->output_name[i] && !strcmp(g->output_name[i], name))
            return true;
    return false;
}

/* Names outputs without `as` after their values in the text, so that names do not depend on passes. */
static nnc_status name_outputs(nnc_graph *g, const char *file, nnc_sink *sink)
{
    for (uint32_t i = 0; i < g->n_output; i++) {
        const char *name = g->output_name[i], *of = g->value[g->output[i]].name;
        if (name && output_named(g, name, i))
            return nnc_fail(
                sink, NNC_E_MODEL, (nnc_loc){.file = file}, "two outputs are called \"%s\"", name);
        for (int k = 1; !name || output_named(g, name, i); k++)
            if (!(name =
                        nnc_arena_printf(&g->arena, k > 1 ? "%s_%d" : "%s", of ? of : "output", k)))
                return nnc_nomem(sink);
        g->output_name[i] = name;
    }
    return NNC_OK;
}

static nnc_graph *load_text(
    const char *file, const char *text, size_t n, const nnc_model_options *o, nnc_sink *sink)
{
    nnc_scan s;
    if (check_options(file, o, "a graph in text form has no args",
            "a graph in text form has fixed shapes", sink))
        return NULL;
    nnc_scan_init(&s, file, text, n);
    nnc_graph *g = nnc_graph_parse(&s, sink);
    nnc_status st = g ? NNC_OK : NNC_E_MODEL;
    if (g && !nnc_scan_end(&s))
        st = nnc_scan_fail(&s, sink, "the end of the file (one graph)");
    if (!st)
        st = name_outputs(g, file, sink);
    if (!st)
        st = bind_weights(g, o, sink);
    return unless(st, g);
}

/* Distinguishes the kinds by the first characters after blanks and comments. `{` starts a model, `graph` a graph, the number of a
 * message's first field an ONNX model. */
static nnc_graph *parse(
    const char *file, const char *text, size_t n, const nnc_model_options *o, nnc_sink *sink)
{
    static const nnc_model_options none = {0};
    const char *p = text, *end = text + n;
    o = o ? o : &none;
    if (n > NNC_MAX_MODEL_BYTES && !(o->onnx.held && nnc_onnx_looks(file, text, n))) {
        nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
            "the model file has %zu bytes; at most %d are read", n, NNC_MAX_MODEL_BYTES);
        return NULL;
    }
    if (n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) { /* a byte order mark */
        p += 3;
        text = p;
        n -= 3;
    }
    while (p < end && (isspace((unsigned char)*p) || *p == '#')) {
        const char *eol = *p == '#' ? memchr(p, '\n', (size_t)(end - p)) : NULL;
        p = *p != '#' ? p + 1 : eol ? eol + 1 : end;
    }
    if (p == end) {
        nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file}, "the model file is empty");
        return NULL;
    }
    if (end - p > 5 && !memcmp(p, "graph", 5))
        return load_text(file, text, n, o, sink);
    if (nnc_onnx_looks(file, text, n))
        return load_onnx(file, text, n, o, sink);
    if (*p != '{' && !isprint((unsigned char)*p)) {
        nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
            "is neither a JSON model ({...}), nor a graph in text form (graph @...), nor ONNX");
        return NULL;
    }
    return load_json(file, text, n, o, sink);
}

/* With another head, and on other devices, where o asks for it. */
static nnc_graph *with_head(nnc_graph *g, const nnc_model_options *o, nnc_sink *sink)
{
    if (!g || !o)
        return g;
    nnc_status st = o->classes ? fe_replace_head(g, o, sink) : NNC_OK;
    if (!st && o->place)
        st = nnc_model_place(g, o->place, sink);
    return unless(st, g);
}

nnc_graph *nnc_model_parse(
    const char *file, const char *text, size_t n, const nnc_model_options *o, nnc_sink *sink)
{
    return with_head(parse(file, text, n, o, sink), o, sink);
}

/* The shapes of g's inputs. */
static nnc_shape *input_shapes(const nnc_graph *g, int *n, nnc_arena *a)
{
    nnc_shape *s = ARENA_NEW(a, nnc_shape, g->n_node + 1);
    for (uint32_t i = 0; s && i < g->n_node; i++) {
        const nnc_type *t = nnc_typeof(g, g->node[i].out);
        if (g->node[i].op != OP_input)
            continue;
        s[*n] = (nnc_shape){.name = g->value[g->node[i].out].name, .rank = t->rank};
        memcpy(s[*n].dim, t->dim, (size_t)t->rank * sizeof *t->dim);
        *n += s[*n].name != NULL;
    }
    return s;
}

nnc_graph *nnc_model_again(const nnc_graph *g, const nnc_model_options *o, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_given *v = g->given;
    nnc_model_options with = *o;
    with.again = g;
    with.seed = v->seed;
    with.weights = v->weights;
    with.onnx.given = g->given;
    with.onnx.was = input_shapes(g, &with.onnx.n_was, &a);
    if (!with.onnx.was)
        return (void)nnc_nomem(sink), NULL;
    const char *text = v->n_piece ? v->piece[0].data : "", *file = v->file[0].name;
    const size_t n = v->n_piece ? (size_t)v->piece[0].size : 0;
    with.classes = v->classes;
    with.place = v->place;
    nnc_graph *again = nnc_onnx_looks(file, text, n) ? load_onnx(file, text, n, &with, sink)
                                                     : load_json(file, text, n, &with, sink);
    return with_head(again, &with, sink);
}

nnc_graph *nnc_model_load(const char *file, const nnc_model_options *o, nnc_sink *sink)
{
    static const nnc_model_options none = {0};
    char *text, start[16];
    size_t n;
    if (nnc_onnx_looks(file, start, nnc_file_start(file, start, sizeof start)))
        return with_head(load_onnx(file, NULL, 0, o ? o : &none, sink), o, sink);
    if (nnc_file_read(file, NNC_MAX_MODEL_BYTES, &text, &n, sink) != NNC_OK)
        return NULL;
    static const char artifact[] = "nnc-artifact ";
    nnc_graph *g = NULL;
    if (n > sizeof artifact && !memcmp(text, artifact, sizeof artifact - 1))
        (void)nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = file},
            "is an artifact of nnc compile, which is mapped into memory: name its file; it cannot "
            "come through a pipe");
    else
        g = nnc_model_parse(file, text, n, o, sink);
    nnc_free(text);
    return g;
}
