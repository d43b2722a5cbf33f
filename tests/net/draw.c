/* tests/net/draw.c -- random model files. Layers are drawn from the frontend's own table, so that a new row of layers.def or ops.def is
 * drawn as soon as it is there. Their keys are filled by kind, with what is known of the value they work on. After each layer the whole
 * file is parsed: a layer that the frontend refuses is taken back, and its message must name file and line. */
#include "frontend/frontend.h"
#include "frontend/internal.h"
#include "net.h"

#include <stdlib.h>

enum { MOST_LAYERS = 14, MOST_NAMES = 64, MOST_DEPTH = 2 };

typedef struct draw {
    uint64_t key, count;
    cJSON *root, *layers, *blocks;
    char name[MOST_NAMES][16]; /* of values at the top, which later layers may name */
    nnc_type typeof_name[MOST_NAMES]; /* theirs */
    int n_name, n_layer, n_block, n_inner, rejected;
    bool block_args, block_inputs; /* has the block around args n and act, and inputs a and b? */
    bool spread; /* are many layers on the other device? */
    bool prologues; /* are there products after elementwise layers, as fuse_prologue takes them? */
    int ahead; /* layers until such a product, which counts, too */
    nnc_type type; /* of the value that the next layer works on */
    nnc_text *why;
    bool wrong;
} draw;

static uint32_t roll(draw *d, uint32_t n)
{
    return (uint32_t)((uint64_t)nnc_rng_u32(d->key, d->count++) * n >> 32);
}

static bool chance(draw *d, uint32_t percent)
{
    return roll(d, 100) < percent;
}

static int between(draw *d, int lo, int hi)
{
    return lo + (int)roll(d, (uint32_t)(hi - lo + 1));
}

/* ---- asking the frontend -------------------------------------------------------------------------------------------------- */

/* A refusal is an error with a place in the file. */
static void judge_refusal(draw *d, const nnc_sink *sink, const char *text)
{
    for (size_t i = 0; i < nnc_sink_count(sink); i++) {
        const nnc_diag *x = nnc_sink_at(sink, i);
        if (x->severity == NNC_ERROR && x->code == NNC_E_MODEL && x->loc.line > 0 && x->message &&
            *x->message)
            return;
    }
    d->wrong = true;
    nnc_printf(d->why, "refused without a located message:\n%s", text);
    api_put_sink(d->why, sink);
}

static nnc_graph *parse(draw *d, const nnc_set *set)
{
    char *text = cJSON_PrintUnformatted(d->root);
    nnc_sink *sink = nnc_sink_create();
    nnc_model_options o = {.set = set, .n_set = set ? 1 : 0};
    nnc_graph *g = nnc_model_parse("drawn.json", text, strlen(text), &o, sink);
    if (!g)
        judge_refusal(d, sink, text);
    nnc_sink_destroy(sink);
    free(text);
    if (g)
        g->sink = NULL;
    return g;
}

/* Is the file a sound model now? Then the type of its result is what the next layer works on. */
static bool accepted_with(draw *d, const nnc_set *set)
{
    const char *why;
    nnc_graph *g = parse(d, set);
    bool ok = g && net_sound(g, &why);
    if (ok && g->n_output) {
        d->type = *nnc_typeof(g, g->output[0]);
        d->typeof_name[d->n_name - 1] = d->type;
    }
    d->rejected += !g;
    nnc_graph_destroy(g);
    return ok;
}

static bool accepted(draw *d)
{
    return accepted_with(d, NULL);
}

/* ---- values of keys --------------------------------------------------------------------------------------------------------- */

static cJSON *ints(draw *d, int n, int lo, int hi)
{
    cJSON *a = cJSON_CreateArray();
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(a, cJSON_CreateNumber(between(d, lo, hi)));
    return a;
}

static int64_t extent(const draw *d, int i)
{
    return i < d->type.rank ? d->type.dim[i] : 1;
}

/* The result's shape for reshape and broadcast: the same elements merged or cut; or extents of 1 made longer. */
static cJSON *shape(draw *d, const char *layer)
{
    cJSON *a = cJSON_CreateArray();
    bool same = !strcmp(layer, "reshape"), wider = !strcmp(layer, "broadcast");
    if (!same && !wider)
        return cJSON_Delete(a), ints(d, between(d, 0, 3), 1, 5);
    if (wider && chance(d, 50))
        cJSON_AddItemToArray(a, cJSON_CreateNumber(between(d, 1, 3)));
    for (int i = 0; i < d->type.rank; i++) {
        int64_t e = extent(d, i);
        if (same && i + 1 < d->type.rank && chance(d, 40))
            e *= extent(d, ++i);
        if (wider && e == 1)
            e = between(d, 1, 4);
        cJSON_AddItemToArray(a, cJSON_CreateNumber(same && chance(d, 10) ? -1 : (double)e));
    }
    return a;
}

static cJSON *permutation(draw *d)
{
    cJSON *a = cJSON_CreateArray();
    int p[NNC_MAX_RANK], n = d->type.rank;
    for (int i = 0; i < n; i++)
        p[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)roll(d, (uint32_t)i + 1), t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(a, cJSON_CreateNumber(p[i]));
    return a;
}

static cJSON *some_axes(draw *d)
{
    cJSON *a = cJSON_CreateArray();
    for (int i = 0; i < d->type.rank; i++)
        if (chance(d, 50))
            cJSON_AddItemToArray(a, cJSON_CreateNumber(chance(d, 30) ? i - d->type.rank : i));
    return a;
}

static cJSON *value_ints(draw *d, const char *key, const char *layer)
{
    int rank = d->type.rank;
    if (!strcmp(layer, "slice") && chance(d, 80))
        return *key == 'a' ? ints(d, 1, -rank, rank - 1)
                           : ints(d, 1,
                                 *key == 'e'            ? 2
                                 : strcmp(key, "steps") ? 0
                                                        : 1,
                                 *key == 'e' ? 5 : 2);
    if (!strcmp(key, "shape"))
        return shape(d, layer);
    if (!strcmp(key, "perm"))
        return permutation(d);
    if (!strcmp(key, "axes"))
        return chance(d, 30) ? cJSON_CreateNumber(between(d, -rank, rank)) : some_axes(d);
    if (!strcmp(key, "pads"))
        return ints(d, 2 * rank, 0, 2);
    if (!strcmp(key, "sizes")) {
        cJSON *a = ints(d, 1, 1, 2);
        cJSON_AddItemToArray(
            a, cJSON_CreateNumber((double)extent(d, 1) - cJSON_GetArrayItem(a, 0)->valuedouble));
        return a;
    }
    return chance(d, 50) ? ints(d, 1, 0, 2)
                         : ints(d, between(d, 1, rank + 1), strcmp(key, "steps") ? 0 : 1, 3);
}

static double count(draw *d, const char *key)
{
    static const int list[] = {1, 2, 3, 4, 5, 7, 8, 16};
    if (!strcmp(key, "groups") && chance(d, 70))
        return chance(d, 50) ? (double)extent(d, 1) : extent(d, 1) % 2 ? 1 : 2;
    if (!strcmp(key, "num_layers"))
        return between(d, 1, 2);
    if (!strcmp(key, "parts"))
        return between(d, 1, 3);
    if (!strcmp(key, "slopes"))
        return chance(d, 50) ? (double)extent(d, 1) : 1;
    return list[roll(d, NNC_COUNT(list))];
}

static cJSON *spatial(draw *d, const char *key)
{
    const bool extents = !strcmp(key, "size") || !strcmp(key, "output_size");
    int hi = extents                          ? 9
             : !strcmp(key, "kernel")         ? 3
             : !strcmp(key, "output_padding") ? 1
                                              : 2,
        lo = !strcmp(key, "output_padding") ? 0 : 1;
    return chance(d, 75) ? cJSON_CreateNumber(between(d, lo, hi))
                         : ints(d, d->type.rank > 2 ? d->type.rank - 2 : 1, lo, hi);
}

static double small_float(draw *d, const char *key)
{
    static const double list[] = {0, 1, -1, 0.5, 2, 0.25, -0.75, 3, 6};
    return !strcmp(key, "eps")  ? 0.01 * between(d, 1, 10)
           : !strcmp(key, "lo") ? -between(d, 0, 2)
           : !strcmp(key, "hi") ? between(d, 1, 6)
                                : list[roll(d, NNC_COUNT(list))];
}

/* One of the words that the layer's row lists. */
static cJSON *word_of(draw *d, const char *key, const char *layer)
{
    char word[32] = "";
    fe_row r;
    fe_use u;
    bool found = false;
    if (fe_layer_find(layer, &r))
        for (const char *p = r.keys; !found && fe_use_next(&p, &u);)
            found = !strcmp(fe_keys[u.key].name, key);
    if (!found)
        return cJSON_CreateString(word);
    int n = 1;
    for (const char *p = u.choices; *p; p++)
        n += *p == ',';
    const char *p = u.choices;
    for (n = (int)roll(d, (uint32_t)n); n > 0; n--)
        p = strchr(p, ',') + 1;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
    return cJSON_CreateString(word);
}

static const char *dtype_word(draw *d)
{
    static const char *const common[] = {"f32", "f16", "bf16", "f64", "i32"};
    return chance(d, 60) ? common[roll(d, NNC_COUNT(common))]
                         : nnc_dtype_name((nnc_dtype)roll(d, DT__COUNT));
}

/* The table of keys, whatever columns it has. */
static const struct key {
    const char *name;
    fe_kind kind;
} keys[] = {
#define KEY(name, kind, ...) {#name, LK_##kind},
#include "frontend/keys.def"
};

static const struct key *find_key(const char *name)
{
    for (size_t i = 0; i < NNC_COUNT(keys); i++)
        if (!strcmp(keys[i].name, name))
            return &keys[i];
    return NULL;
}

/* The next key of a row: "kernel", "stride?" or "stride=1"; must: the row states no default. */
static bool next_key(const char **p, char buf[32], bool *must)
{
    *p += strspn(*p, " ");
    size_t n = strcspn(*p, " "), name = strcspn(*p, " ?=");
    snprintf(buf, 32, "%.*s", (int)name, *p);
    *must = name == n;
    *p += n;
    return n > 0;
}

static bool has_value_key(const fe_row *r)
{
    char key[32];
    bool must, has = false;
    for (const char *p = r->keys; next_key(&p, key, &must);)
        has = has || !strcmp(key, "value");
    return has;
}

static cJSON *value_of(draw *d, const char *key, const char *layer)
{
    const struct key *k = find_key(key);
    switch (k ? k->kind : LK_int) {
    case LK_count: return cJSON_CreateNumber(count(d, key));
    case LK_spatial: return spatial(d, key);
    case LK_pad:
        return chance(d, 15)   ? cJSON_CreateString("same")
               : chance(d, 80) ? cJSON_CreateNumber(between(d, 0, 2))
                               : ints(d, 2 * (d->type.rank > 2 ? d->type.rank - 2 : 1), 0, 2);
    case LK_ints: return value_ints(d, key, layer);
    case LK_bool:
        return chance(d, 80) ? cJSON_CreateBool(chance(d, 50)) : cJSON_CreateNumber(chance(d, 50));
    case LK_float: return cJSON_CreateNumber(small_float(d, key));
    case LK_dtype: return cJSON_CreateString(dtype_word(d));
    case LK_word: return word_of(d, key, layer);
    default: return cJSON_CreateNumber(between(d, -d->type.rank, d->type.rank));
    }
}

/* ---- layers ------------------------------------------------------------------------------------------------------------------ */

/* Rows of the table, those with windows, weights and sums more often than elementwise ones. */
static fe_row draw_row(draw *d)
{
    static const char *const often[] = {"conv", "conv", "linear", "linear", "depthwise", "maxpool",
        "avgpool", "add", "add", "mul", "relu", "batchnorm", "softmax", "layernorm", "concat",
        "matmul", "split", "attention", "multihead_attention", "embedding", "global_avgpool",
        "relu6", "gelu", "silu"};
    static const char *const images[] = {"conv", "conv", "conv", "depthwise", "conv_transpose",
        "maxpool", "maxpool", "avgpool", "groupnorm", "relu", "relu6", "hardswish", "add", "concat",
        "concat", "interpolate", "adaptive_avgpool"};
    /* those that only take what few layers make */
    static const char *const seldom[] = {"gt", "le", "ne", "not", "and", "or", "xor", "select",
        "gather", "argmax", "topk", "topk", "iota", "slice", "prelu", "mod"};
    fe_row r;
    if (chance(d, 12) && fe_layer_find(seldom[roll(d, NNC_COUNT(seldom))], &r))
        return r;
    if (d->type.rank >= 3 && chance(d, 40) && fe_layer_find(images[roll(d, NNC_COUNT(images))], &r))
        return r;
    if (chance(d, 45) && fe_layer_find(often[roll(d, NNC_COUNT(often))], &r))
        return r;
    return fe_layer_at((int)roll(d, (uint32_t)fe_layer_count()));
}

static const char *earlier(draw *d)
{
    return d->name[chance(d, 60) && d->n_name > 3 ? d->n_name - 1 - (int)roll(d, 3)
                                                  : (int)roll(d, (uint32_t)d->n_name)];
}

/* A value that fits the one that the next layer works on, as concats and sums of branches need it. It is equal but for its
 * number of channels. NULL: none was met. */
static const char *fitting_value(draw *d)
{
    for (int tries = 0; tries < 8; tries++) {
        int k = (int)roll(d, (uint32_t)d->n_name);
        const nnc_type *t = &d->typeof_name[k];
        bool fits = t->dtype == d->type.dtype && t->rank == d->type.rank && t->rank >= 2;
        for (int i = 0; fits && i < t->rank; i++)
            fits = i == 1 || t->dim[i] == d->type.dim[i];
        if (fits)
            return d->name[k];
    }
    return NULL;
}

/* An operand of layer `op` at the top: of the type that it takes, where there is one. */
static const char *operand(draw *d, const char *op, int i)
{
    const bool logic = !strcmp(op, "and") || !strcmp(op, "or") || !strcmp(op, "xor") ||
                       !strcmp(op, "not") || (!strcmp(op, "select") && i == 0),
               index = ((!strncmp(op, "gather", 6) || !strncmp(op, "scatter", 7)) && i == 1) ||
                       !strcmp(op, "embedding") || !strncmp(op, "bit_", 4) || !strncmp(op, "sh", 2);
    for (int tries = 0; (logic || index) && tries < 30; tries++) {
        int k = (int)roll(d, (uint32_t)d->n_name);
        nnc_dtype t = (nnc_dtype)d->typeof_name[k].dtype;
        if (logic ? t == DT_bool : t != DT_bool && !nnc_is_float(t))
            return d->name[k];
    }
    if (i == 0 && chance(d, 50))
        return "prev";
    const char *fitting = chance(d, 60) ? fitting_value(d) : NULL;
    return fitting ? fitting : earlier(d);
}

/* What a layer inside a group or block may name. */
static const char *inner(draw *d)
{
    if (d->block_inputs)
        return chance(d, 40) ? "a" : chance(d, 70) ? "b" : "prev";
    return chance(d, 50) ? "prev" : "input";
}

static void draw_inputs(draw *d, const fe_row *r, cJSON *layer, bool inside)
{
    int n = r->n_min;
    if (r->n_max < 0)
        n = between(d, 1, 3);
    else if (r->n_max > r->n_min)
        n = between(d, r->n_min, r->n_max);
    if (n == 1 && r->n_max != 1 && has_value_key(r)) {
        if (!cJSON_HasObjectItem(layer, "value"))
            cJSON_AddItemToObject(layer, "value", value_of(d, "value", r->name));
    } else if (n > 1) {
        cJSON_DeleteItemFromObject(layer, "value");
    }
    const bool index = !strcmp(r->name, "embedding") && !inside;
    if (r->n_max == 0 || (n == 1 && (inside || chance(d, index ? 10 : 70))))
        return;
    cJSON *in = cJSON_AddArrayToObject(layer, "in");
    const bool alike = strstr(r->name, "attention") != NULL && chance(d, 70);
    for (int i = 0; i < n; i++) {
        const char *first = i > 0 && alike ? cJSON_GetArrayItem(in, 0)->valuestring : NULL;
        cJSON_AddItemToArray(in, cJSON_CreateString(first    ? first
                                                    : inside ? inner(d)
                                                             : operand(d, r->name, i)));
    }
}

/* Of keys that exclude each other, one stays. */
static void settle_keys(draw *d, const fe_row *r, cJSON *layer)
{
    if (strcmp(r->name, "interpolate") != 0)
        return;
    cJSON_DeleteItemFromObject(layer, chance(d, 50) ? "size" : "scale_factor");
    if (!cJSON_HasObjectItem(layer, "size") && !cJSON_HasObjectItem(layer, "scale_factor"))
        cJSON_AddItemToObject(layer, "size", spatial(d, "size"));
    cJSON_DeleteItemFromObject(layer, "mode");
    if (cJSON_HasObjectItem(layer, "align_corners") || chance(d, 50))
        cJSON_AddStringToObject(layer, "mode", "linear");
}

/* Some of its numbers as expressions, and a block's or the model's args instead of some. */
static void respell(draw *d, cJSON *layer)
{
    static const char *const spelling[] = {
        "%d + 0 * width", "width > 0 ? %d : 1 / 0", "(%d)", "max(%d, %d)"};
    cJSON *next;
    for (cJSON *c = layer->child; c; c = next) {
        next = c->next;
        char text[64];
        const struct key *k = find_key(c->string);
        int n = (int)c->valuedouble;
        if (!cJSON_IsNumber(c) || !k || c->valuedouble != n || !chance(d, 8))
            continue;
        snprintf(text, sizeof text, spelling[roll(d, NNC_COUNT(spelling))], n, n);
        const char *s = k->kind == LK_float && chance(d, 50) ? "slope"
                        : d->block_args && chance(d, 50)     ? "n"
                                                             : text;
        cJSON_ReplaceItemInObject(layer, k->name, cJSON_CreateString(s));
    }
}

/* What any layer may carry. */
static void draw_common(draw *d, cJSON *layer)
{
    if (chance(d, 6))
        cJSON_AddStringToObject(layer, "dtype", dtype_word(d));
    if (chance(d, 6))
        cJSON_AddStringToObject(layer, "weights", chance(d, 50) ? "shared" : "shared2");
    if (chance(d, 3))
        cJSON_AddBoolToObject(layer, "frozen", true);
    if (chance(d, d->spread ? 40 : 3))
        cJSON_AddNumberToObject(layer, "device", between(d, 0, 1));
    if (chance(d, 5))
        cJSON_AddStringToObject(layer, "when", chance(d, 80) ? "width > 2" : "width < 2 || 1 > 2");
    if (chance(d, 5)) {
        cJSON_AddNumberToObject(layer, "repeat", between(d, 0, 3));
        if (chance(d, 40)) {
            cJSON_AddStringToObject(layer, "index", "k");
            cJSON_DeleteItemFromObject(layer, "weights");
            cJSON_AddStringToObject(layer, "weights", "shared${k % 2}");
        }
    }
}

/* The next of some elementwise layers and norms, or the product that reads them: a linear layer or a convolution without a window. */
static cJSON *draw_prologue(draw *d)
{
    static const char *const ops[] = {"relu", "silu", "gelu", "hardswish", "tanh", "mul", "add",
        "batchnorm", "layernorm", "groupnorm"};
    static const int out[] = {1, 5, 16, 17, 32};
    cJSON *layer = cJSON_CreateObject();
    const char *op = --d->ahead         ? ops[roll(d, NNC_COUNT(ops))]
                     : d->type.rank > 2 ? "conv"
                                        : "linear";
    cJSON_AddStringToObject(layer, "op", op);
    if (!strcmp(op, "mul") || !strcmp(op, "add"))
        cJSON_AddNumberToObject(layer, "value", small_float(d, "value"));
    if (!strcmp(op, "groupnorm"))
        cJSON_AddNumberToObject(layer, "groups", count(d, "groups"));
    if (d->ahead == 0)
        cJSON_AddNumberToObject(layer, "out", out[roll(d, NNC_COUNT(out))]);
    if (d->ahead == 0 && d->type.rank > 2)
        cJSON_AddNumberToObject(layer, "kernel", 1);
    if (d->ahead == 0 && d->type.rank > 2 && chance(d, 30))
        cJSON_AddNumberToObject(layer, "stride", 2);
    if (chance(d, 5))
        cJSON_AddNumberToObject(layer, "device", between(d, 0, 1));
    return layer;
}

static cJSON *draw_layer(draw *d, bool inside)
{
    if (d->prologues && d->ahead == 0 && chance(d, 30))
        d->ahead = between(d, 2, 4);
    if (d->ahead > 0)
        return draw_prologue(d);
    fe_row r = draw_row(d);
    cJSON *layer = cJSON_CreateObject();
    char key[32];
    bool must;
    if (chance(d, 4)) {
        cJSON_AddStringToObject(layer, "op", d->block_args ? "${act}" : "${kind}");
        return layer;
    }
    cJSON_AddStringToObject(layer, "op", r.name);
    for (const char *p = r.keys; next_key(&p, key, &must);)
        if (must || chance(d, 35))
            cJSON_AddItemToObject(layer, key, value_of(d, key, r.name));
    draw_inputs(d, &r, layer, inside);
    settle_keys(d, &r, layer);
    respell(d, layer);
    draw_common(d, layer);
    if (inside && chance(d, 40)) {
        snprintf(key, sizeof key, "i%d", d->n_inner++);
        cJSON_AddStringToObject(layer, "name", key);
    }
    return layer;
}

static void remember(draw *d, cJSON *layer)
{
    char name[16];
    snprintf(name, sizeof name, "l%d", d->n_layer++);
    cJSON_AddStringToObject(layer, "name", name);
    const cJSON *op = cJSON_GetObjectItem(layer, "op");
    if (d->n_name < MOST_NAMES)
        snprintf(d->name[d->n_name++], sizeof d->name[0], "%.12s%s", name,
            cJSON_IsString(op) && !strcmp(op->valuestring, "split") && chance(d, 50) ? ":1" : "");
}

static void grow(draw *d, cJSON *list, int n, int depth);

static cJSON *dims_of(int n, const int64_t *dim)
{
    cJSON *a = cJSON_CreateArray();
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(a, cJSON_CreateNumber((double)dim[i]));
    return a;
}

/* A leaf of a group. */
static void add_leaf(
    cJSON *list, const char *op, const char *name, const char *dtype, int n, const int64_t *dim)
{
    cJSON *leaf = cJSON_CreateObject();
    cJSON_AddStringToObject(leaf, "op", op);
    cJSON_AddStringToObject(leaf, "name", name);
    cJSON_AddStringToObject(leaf, "dtype", dtype);
    cJSON_AddItemToObject(leaf, "shape", dims_of(n, dim));
    if (*op == 'c')
        cJSON_AddNumberToObject(leaf, "value", 1);
    cJSON_AddItemToArray(list, leaf);
}

/* A group around a layer whose operands must fit each other: indices and updates, or a sequence. */
static cJSON *draw_fitting(draw *d)
{
    static const char *const ops[] = {
        "scatter", "scatter_nd", "gather_elements", "gather_nd", "lstm", "gru", "rnn"};
    const char *op = ops[roll(d, NNC_COUNT(ops))];
    cJSON *group = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(group, "layers");
    cJSON *layer = cJSON_CreateObject(), *in = cJSON_CreateArray();
    const nnc_type t = d->type;
    const bool tuples = strstr(op, "_nd") != NULL, updates = *op == 's';
    int64_t index[2] = {t.rank ? t.dim[0] : 1, 1}, part[NNC_MAX_RANK] = {index[0]};
    char key[32];
    bool must;
    fe_row r;
    for (int i = 1; i < t.rank; i++)
        part[i] = t.dim[i];
    cJSON_AddItemToArray(in, cJSON_CreateString("input"));
    if (*op == 's' || op[1] == 'a') {
        if (tuples)
            add_leaf(list, "iota", "at", "i64", 2, index);
        else
            add_leaf(list, "iota", "at", chance(d, 50) ? "i64" : "i32", t.rank, part);
        cJSON_AddItemToArray(in, cJSON_CreateString("at"));
        if (updates) {
            add_leaf(list, "constant", "new", nnc_dtype_name((nnc_dtype)t.dtype), t.rank, part);
            cJSON_AddItemToArray(in, cJSON_CreateString("new"));
        }
    } else {
        int64_t dim[3] = {index[0], -1, t.rank ? t.dim[t.rank - 1] : 1};
        cJSON *flat = cJSON_CreateObject();
        cJSON_AddStringToObject(flat, "op", "reshape");
        cJSON_AddStringToObject(flat, "name", "flat");
        cJSON_AddItemToObject(flat, "shape", dims_of(3, dim));
        cJSON_AddItemToArray(list, flat);
        cJSON_ReplaceItemInArray(in, 0, cJSON_CreateString("flat"));
    }
    cJSON_AddStringToObject(layer, "op", op);
    if (fe_layer_find(op, &r))
        for (const char *p = r.keys; next_key(&p, key, &must);)
            if (must || chance(d, 35))
                cJSON_AddItemToObject(layer, key, value_of(d, key, op));
    cJSON_AddItemToObject(layer, "in", in);
    cJSON_AddItemToArray(list, layer);
    return group;
}

/* A block with args and named inputs, and what uses it. */
static void draw_block(draw *d, cJSON *block, cJSON *use)
{
    if ((d->block_args = chance(d, 50))) {
        cJSON *args = cJSON_AddObjectToObject(block, "args");
        cJSON_AddNumberToObject(args, "n", between(d, 1, 3));
        cJSON_AddStringToObject(args, "act", "relu");
        if (chance(d, 50))
            cJSON_AddItemToObject(use, "n",
                chance(d, 50) ? cJSON_CreateNumber(between(d, 1, 3))
                              : cJSON_CreateString("min(width, 3)"));
        if (chance(d, 50))
            cJSON_AddStringToObject(use, "act", "'tanh'");
    }
    if ((d->block_inputs = chance(d, 30))) {
        cJSON *names = cJSON_AddArrayToObject(block, "inputs"),
              *in = cJSON_AddArrayToObject(use, "in");
        cJSON_AddItemToArray(names, cJSON_CreateString("a"));
        cJSON_AddItemToArray(names, cJSON_CreateString("b"));
        cJSON_AddItemToArray(in, cJSON_CreateString("prev"));
        cJSON_AddItemToArray(in, cJSON_CreateString(chance(d, 50) ? "prev" : earlier(d)));
    }
}

/* Which of its layers is the result of a group or block: one, or two of them. */
static void draw_output(draw *d, cJSON *around, const cJSON *inner_layers)
{
    const char *name[8];
    int n = 0;
    for (const cJSON *l = inner_layers->child; l && n < 8; l = l->next)
        if (cJSON_HasObjectItem(l, "name"))
            name[n++] = cJSON_GetObjectItem(l, "name")->valuestring;
    if (n == 0 || chance(d, 40))
        return;
    cJSON_AddItemToObject(around, "output",
        n > 1 && chance(d, 50) ? cJSON_CreateStringArray(name, 2) : cJSON_CreateString(name[0]));
    if (!accepted(d))
        cJSON_DeleteItemFromObject(around, "output");
}

/* A group of layers, or a block that is used here and perhaps once more; what is inside grows layer by layer. */
static void grow_nested(draw *d, cJSON *list, int depth)
{
    cJSON *layer = cJSON_CreateObject(), *inner_layers = cJSON_CreateArray(), *around = layer;
    char name[16];
    const bool outer_args = d->block_args, outer_inputs = d->block_inputs, block = chance(d, 40);
    snprintf(name, sizeof name, "b%d", d->n_block);
    if (block) {
        around = cJSON_AddObjectToObject(d->blocks, name);
        d->n_block++;
        if (depth == 0)
            draw_block(d, around, layer);
        else
            d->block_args = d->block_inputs = false;
        cJSON_AddStringToObject(layer, "op", name);
    }
    cJSON_AddItemToObject(around, "layers", inner_layers);
    cJSON_AddItemToArray(list, layer);
    grow(d, inner_layers, between(d, 1, 3), depth + 1);
    d->block_args = outer_args;
    d->block_inputs = outer_inputs;
    if (cJSON_GetArraySize(inner_layers) == 0) {
        cJSON_DeleteItemFromArray(list, cJSON_GetArraySize(list) - 1);
        if (block)
            cJSON_DeleteItemFromObject(d->blocks, name);
        return;
    }
    const int n_name = d->n_name;
    if (depth == 0)
        remember(d, layer);
    if (depth == 0 && !accepted(d)) { /* weights are generated from names */
        cJSON_DeleteItemFromObject(layer, "name");
        d->n_name = n_name;
    }
    draw_output(d, around, inner_layers);
    cJSON *second = block && chance(d, 50) ? cJSON_Duplicate(layer, true) : NULL;
    if (second) {
        cJSON_DeleteItemFromObject(second, "name");
        cJSON_AddItemToArray(list, second);
        if (!accepted(d))
            cJSON_DeleteItemFromArray(list, cJSON_GetArraySize(list) - 1);
    }
}

/* Adds n layers to a list, each of which leaves the file a sound model. */
static void grow(draw *d, cJSON *list, int n, int depth)
{
    for (int tries = 0; n > 0 && tries < 12 && !d->wrong; tries++) {
        if (depth < MOST_DEPTH && chance(d, 10)) {
            grow_nested(d, list, depth);
            n--;
            continue;
        }
        bool group = depth == 0 && d->ahead == 0 && chance(d, 4);
        cJSON *layer = group ? draw_fitting(d) : draw_layer(d, depth > 0);
        if (depth == 0)
            remember(d, layer);
        cJSON_AddItemToArray(list, layer);
        if (accepted(d)) {
            n--;
            tries = 0;
            continue;
        }
        cJSON_DeleteItemFromArray(list, cJSON_GetArraySize(list) - 1);
        if (depth == 0)
            d->n_name -= d->n_name > 0 && d->n_layer > 0 && d->n_layer <= MOST_NAMES;
    }
}

static void draw_model_inputs(draw *d)
{
    static const int odd[] = {1, 2, 3, 5, 7, 8, 13, 16, 17};
    cJSON *in = cJSON_AddObjectToObject(d->root, "inputs");
    int n = between(d, 1, 3);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        int rank = chance(d, 60) ? 4 : chance(d, 60) ? 2 : between(d, 0, 5);
        cJSON *dims = cJSON_CreateArray();
        for (int k = 0; k < rank; k++)
            cJSON_AddItemToArray(
                dims, k == 1 && chance(d, 20)
                          ? cJSON_CreateString("width")
                          : cJSON_CreateNumber(k == 0 ? between(d, 1, 3)
                                                      : odd[roll(d, rank > 4   ? 5
                                                                    : rank > 3 ? 7
                                                                               : 9)]));
        cJSON *x = dims;
        d->typeof_name[d->n_name] = (nnc_type){.dtype = DT_f32, .rank = 0};
        if (chance(d, 25)) {
            const char *dtype = dtype_word(d);
            x = cJSON_CreateObject();
            cJSON_AddItemToObject(x, "shape", dims);
            cJSON_AddStringToObject(x, "dtype", dtype);
            nnc_dtype t = DT_f32;
            nnc_dtype_parse(dtype, strlen(dtype), &t);
            d->typeof_name[d->n_name].dtype = (uint8_t)t;
        }
        cJSON_AddItemToObject(in, name, x);
        snprintf(d->name[d->n_name++], sizeof d->name[0], "%s", name);
    }
}

/* Several outputs, the rest of the layers unused. */
static void draw_outputs(draw *d)
{
    cJSON *out = cJSON_AddArrayToObject(d->root, "outputs");
    int n = between(d, 1, 3);
    for (int i = 0; i < n; i++) {
        const char *name = earlier(d);
        bool twice = false;
        for (cJSON *o = out->child; o; o = o->next)
            twice = twice || !strcmp(o->valuestring, name);
        if (!twice)
            cJSON_AddItemToArray(out, cJSON_CreateString(name));
    }
    if (!accepted(d))
        cJSON_DeleteItemFromObject(d->root, "outputs");
}

char *net_draw(uint64_t seed, int *rejected, nnc_text *why)
{
    draw d = {.key = nnc_rng_key("net_draw", seed), .root = cJSON_CreateObject(), .why = why};
    char *text = NULL;
    cJSON *args = cJSON_AddObjectToObject(d.root, "args"), *kind;
    cJSON_AddNumberToObject(args, "width", between(&d, 1, 6));
    cJSON_AddNumberToObject(args, "slope", 0.25);
    kind = cJSON_AddObjectToObject(args, "kind");
    cJSON_AddStringToObject(kind, "default", "sigmoid");
    cJSON_AddItemToObject(
        kind, "choices", cJSON_CreateStringArray((const char *const[]){"relu", "sigmoid"}, 2));
    draw_model_inputs(&d);
    d.spread = chance(&d, 15);
    d.prologues = nnc_rng_u32(nnc_rng_key("net_draw_prologues", seed), 0) % 5 == 0;
    d.blocks = cJSON_AddObjectToObject(d.root, "blocks");
    d.layers = cJSON_AddArrayToObject(d.root, "layers");
    cJSON_AddItemToArray(d.layers, cJSON_CreateString("identity")); /* a model has a layer */
    if (!accepted(&d) && !d.wrong) {
        nnc_puts(why, "the identity of an input is refused");
        d.wrong = true;
    }
    grow(&d, d.layers, between(&d, 1, MOST_LAYERS), 0);
    if (!d.wrong && chance(&d, 50))
        draw_outputs(&d);
    if (!d.wrong && chance(&d, 20) && accepted_with(&d, &(nnc_set){"width", 3}))
        cJSON_AddStringToObject(d.root, "doc", NET_SET);
    if (!d.wrong)
        text = cJSON_Print(d.root);
    *rejected = d.rejected;
    cJSON_Delete(d.root);
    return text;
}

/* ---- damage ------------------------------------------------------------------------------------------------------------------ */

static int numbers(const cJSON *item, cJSON **at, int n, int cap)
{
    for (cJSON *c = item->child; c; c = c->next) {
        if (cJSON_IsNumber(c) && n < cap)
            at[n++] = c;
        n = numbers(c, at, n, cap);
    }
    return n;
}

char *net_damage(const char *text, uint64_t seed)
{
    static const double odd[] = {
        0, -1, 65537, 2147483647, 4294967296, 17179869184, 1e15, -1e300, 0.5};
    draw d = {.key = nnc_rng_key("net_damage", seed), .root = cJSON_Parse(text)};
    cJSON *at[512];
    int n = numbers(d.root, at, 0, NNC_COUNT(at));
    for (int times = between(&d, 1, 2); n && times > 0; times--) {
        cJSON *which = at[roll(&d, (uint32_t)n)];
        const double to = odd[roll(&d, NNC_COUNT(odd))];
        const bool layers = which->string && !strcmp(which->string, "repeat");
        cJSON_SetNumberValue(which, layers && to == 65537 ? 513 : to); /* a layer takes ms */
    }
    char *damaged = cJSON_Print(d.root);
    cJSON_Delete(d.root);
    return damaged;
}
