/* frontend/place.c -- rules that name layers by index or by pattern: --place puts them on devices, which otherwise a layer's "device" says;
 * --split divides them. */
#include "frontend/internal.h"
#include <ctype.h>
#include <string.h>

int nnc_model_layers(const nnc_graph *g, const char **path, int32_t *layer_of)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        layer_of[i] = -1;
        if (nnc_op_class(x->op) == CL_leaf || !x->origin || !*x->origin)
            continue;
        int at = n - 1; /* nodes of a layer are near each other */
        while (at >= 0 && strcmp(path[at], x->origin) != 0)
            at--;
        if (at < 0)
            path[at = n++] = x->origin;
        layer_of[i] = at;
    }
    return n;
}

typedef struct placer {
    const char **path;
    int n;
    int *value; /* by layer: a device, or the index of a word; -1: none */
    const char **rule; /* by layer: that placed it, of rule_n characters; NULL: none */
    int *rule_n;
    const char *flag; /* "--place" */
    const char *const *word; /* values; NULL: devices */
    int n_word;
    nnc_sink *sink;
} placer;

/* Does pattern p[0..n) match text[0..m)? `*` stands for any characters; the last one takes as many as the rest needs. */
static bool matches(const char *p, size_t n, const char *text, size_t m)
{
    size_t i = 0, k = 0, star = n, from = 0;
    while (k < m) {
        if (i < n && p[i] == '*') {
            star = i++;
            from = k;
        } else if (i < n && p[i] == text[k]) {
            i++;
            k++;
        } else if (star < n) {
            i = star + 1;
            k = ++from;
        } else {
            return false;
        }
    }
    while (i < n && p[i] == '*')
        i++;
    return i == n;
}

/* A pattern from / on is of the whole path; another one is of any part of it between two /. */
static bool names(const char *p, size_t n, const char *path)
{
    if (*p == '/')
        return matches(p, n, path, strlen(path));
    for (const char *from = path; (from = strchr(from, '/')) != NULL; from++)
        for (size_t to = strcspn(from + 1, "/");; to += 1 + strcspn(from + to + 2, "/")) {
            if (matches(p, n, from + 1, to))
                return true;
            if (!from[to + 1])
                break;
        }
    return false;
}

static nnc_status put_layer(placer *s, int layer, int value, const char *rule, int n)
{
    if (s->rule[layer])
        return nnc_fail0(s->sink, NNC_E_USAGE,
            "%s: layer %d, %s, is %s twice: by `%.*s` and by `%.*s`", s->flag, layer,
            s->path[layer], s->word ? "split" : "placed", s->rule_n[layer], s->rule[layer], n,
            rule);
    s->rule[layer] = rule;
    s->rule_n[layer] = n;
    s->value[layer] = value;
    return NNC_OK;
}

/* A number at *p, or `otherwise`. */
static int64_t scan_number(const char **p, int64_t otherwise)
{
    int64_t v = 0;
    if (!isdigit((unsigned char)**p))
        return otherwise;
    for (; isdigit((unsigned char)**p); (*p)++)
        v = nnc_min64(10 * v + (**p - '0'), INT32_MAX);
    return v;
}

/* FIRST-LAST, FIRST-, -LAST or INDEX. False: it is no range. */
static bool read_range(const placer *s, const char *p, size_t n, int64_t *first, int64_t *last)
{
    const char *end = p + n;
    if (strspn(p, "0123456789-") < n)
        return false;
    *first = scan_number(&p, 0);
    *last = *first;
    if (p < end && *p == '-') {
        p++;
        *last = p < end ? scan_number(&p, 0) : s->n - 1;
    }
    return p == end;
}

static nnc_status place_range(
    placer *s, int64_t first, int64_t last, int value, const char *rule, int n)
{
    if (first > last || last >= s->n)
        return nnc_fail0(s->sink, NNC_E_USAGE,
            "%s: `%.*s`: the model's layers are 0 to %d; nnc partition --layers lists them",
            s->flag, n, rule, s->n - 1);
    for (int64_t l = first; l <= last; l++)
        NNC_TRY(put_layer(s, (int)l, value, rule, n));
    return NNC_OK;
}

static nnc_status unknown(const placer *s, const char *p, int n)
{
    char word[256];
    const char *near = NULL;
    NNC_FREED const char **last = nnc_calloc((size_t)s->n + 1, sizeof *last);
    NNC_NEED(last, s->sink);
    for (int l = 0; l < s->n; l++)
        last[l] = *p == '/'                  ? s->path[l]
                  : strrchr(s->path[l], '/') ? strrchr(s->path[l], '/') + 1
                                             : s->path[l];
    snprintf(word, sizeof word, "%.*s", n, p);
    near = nnc_nearest(word, last, (size_t)s->n);
    return nnc_fail0(s->sink, NNC_E_USAGE,
        "%s: no layer is named `%s`%s%s; nnc partition --layers lists the %d layers, and * "
        "stands for any "
        "characters",
        s->flag, word, near ? "; did you mean " : "", near ? near : "", s->n);
}

/* The n characters at p as a value; -1: they are none. */
static int value_of(const placer *s, const char *p, size_t n)
{
    const char *at = p;
    for (int i = 0; i < s->n_word; i++)
        if (strlen(s->word[i]) == n && !memcmp(s->word[i], p, n))
            return i;
    const int64_t device = s->word ? -1 : scan_number(&at, -1);
    return at == p + n && device <= INT16_MAX ? (int)device : -1;
}

static nnc_status no_value(const placer *s, const char *rule, int n)
{
    NNC_LOCAL(nnc_text) list = {0};
    if (!s->word)
        return nnc_fail0(s->sink, NNC_E_USAGE,
            "%s: `%.*s`: expected LAYERS=DEVICE, as in 0-9=0, 10-=1 or conv1*=0", s->flag, n, rule);
    for (int i = 0; i < s->n_word; i++)
        nnc_printf(&list, "%s%s", i ? ", " : "", s->word[i]);
    return nnc_fail0(s->sink, NNC_E_USAGE,
        "%s: `%.*s`: expected LAYERS=HOW, as in 0-9=%s or conv1*=%s; HOW is one of %s", s->flag, n,
        rule, s->word[0], s->word[0], nnc_text_str(&list));
}

/* One rule of n characters. */
static nnc_status place_one(placer *s, const char *rule, int n)
{
    const char *equal = memrchr(rule, '=', (size_t)n);
    int64_t first, last;
    const int value =
        equal && equal > rule ? value_of(s, equal + 1, (size_t)(rule + n - equal - 1)) : -1;
    if (value < 0)
        return no_value(s, rule, n);
    const size_t left = (size_t)(equal - rule);
    if (read_range(s, rule, left, &first, &last))
        return place_range(s, first, last, value, rule, n);
    bool any = false;
    for (int l = 0; l < s->n; l++)
        if (names(rule, left, s->path[l])) {
            any = true;
            NNC_TRY(put_layer(s, l, value, rule, n));
        }
    return any ? NNC_OK : unknown(s, rule, (int)left);
}

static nnc_status read_rules(placer *s, const char *rules)
{
    for (const char *p = rules; *p;) {
        const int n = (int)strcspn(p, ",");
        NNC_TRY(place_one(s, p, n));
        p += n + (p[n] == ',');
    }
    return NNC_OK;
}

/* Lists the layers of g; layer_of[]: by node. */
static nnc_status open_placer(placer *s, const nnc_graph *g, int32_t *layer_of, nnc_arena *a)
{
    NNC_NEED(
        layer_of && ARENA_ARRAYS(a, g->n_node + 1, s->path, s->value, s->rule, s->rule_n), s->sink);
    s->n = nnc_model_layers(g, s->path, layer_of);
    for (int l = 0; l < s->n; l++)
        s->value[l] = -1;
    if (!s->n)
        return nnc_fail0(
            s->sink, NNC_E_USAGE, "%s: the nodes of %s carry no layers", s->flag, g->name);
    return NNC_OK;
}

/* Layers that neither a rule nor the model file places. */
static nnc_status check_gaps(const placer *s)
{
    int gaps = 0, first = -1;
    for (int l = 0; l < s->n; l++)
        if (s->value[l] < 0) {
            first = gaps++ ? first : l;
        }
    if (!gaps)
        return NNC_OK;
    return nnc_fail0(s->sink, NNC_E_USAGE,
        "--place: %d of %d layers are on no device, the first of them layer %d, %s: add rules for "
        "them, as in %d=0",
        gaps, s->n, first, s->path[first], first);
}

/* Layers that no output needs are left out of plans: they need no rule. */
static nnc_status place_unused(placer *s, const nnc_graph *g, const int32_t *layer_of, nnc_arena *a)
{
    bool *needed = ARENA_NEW(a, bool, g->n_node + 1), *used = ARENA_NEW(a, bool, s->n + 1);
    NNC_NEED(needed && used, s->sink);
    for (uint32_t o = 0; o < g->n_output; o++)
        needed[g->value[g->output[o]].node] = true;
    for (uint32_t i = g->n_node; i-- > 0;)
        for (int k = 0; k < g->node[i].n_in && needed[i]; k++)
            needed[g->value[g->node[i].in[k]].node] = true;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (layer_of[i] >= 0 && needed[i])
            used[layer_of[i]] = true;
    for (int l = 0; l < s->n; l++)
        if (!used[l] && s->value[l] < 0)
            s->value[l] = 0;
    return NNC_OK;
}

nnc_status nnc_model_place(nnc_graph *g, const char *place, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    int32_t *layer_of = ARENA_NEW(&a, int32_t, g->n_node + 1);
    placer s = {.flag = "--place", .sink = sink};
    NNC_TRY(open_placer(&s, g, layer_of, &a));
    for (uint32_t i = 0; i < g->n_node; i++)
        if (layer_of[i] >= 0)
            s.value[layer_of[i]] = g->node[i].device;
    NNC_TRY(read_rules(&s, place));
    NNC_TRY(place_unused(&s, g, layer_of, &a));
    NNC_TRY(check_gaps(&s));
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_node *x = &g->node[i];
        for (int l = 0; layer_of[i] < 0 && l < s.n && x->origin && x->op != OP_input; l++)
            if (!strcmp(s.path[l], x->origin)) /* weights and constants of a layer */
                layer_of[i] = l;
        if (layer_of[i] >= 0)
            x->device = (int16_t)s.value[layer_of[i]];
    }
    return NNC_OK;
}

nnc_status nnc_model_words(const nnc_graph *g, const char *flag, const char *rules,
    const char *const *word, int n_word, int *of, const char **rule, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    int32_t *layer_of = ARENA_NEW(&a, int32_t, g->n_node + 1);
    placer s = {.flag = flag, .word = word, .n_word = n_word, .sink = sink};
    NNC_TRY(open_placer(&s, g, layer_of, &a));
    NNC_TRY(read_rules(&s, rules));
    for (uint32_t i = 0; i < g->n_node; i++) {
        of[i] = layer_of[i] < 0 ? -1 : s.value[layer_of[i]];
        rule[i] = layer_of[i] < 0 ? NULL : s.rule[layer_of[i]];
    }
    return NNC_OK;
}
