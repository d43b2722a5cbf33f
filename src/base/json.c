/* base/json.c -- a strict JSON parser. */
#include "base/base.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_JSON = 64 << 20 };

typedef struct walk {
    nnc_json *j;
    const char *begin, *p, *end, *line_start;
    int line, depth;
    nnc_sink *sink;
} walk;

static nnc_loc here(const walk *w)
{
    return (nnc_loc){.file = w->j->file, .line = w->line, .col = (int)(w->p - w->line_start) + 1};
}

static bool at(const walk *w, char c)
{
    return w->p < w->end && *w->p == c;
}

static nnc_status bad(walk *w, const char *what)
{
    if (w->p >= w->end)
        return nnc_fail(w->sink, NNC_E_MODEL, here(w), "%s, found the end of the file", what);
    int n = 0; /* excerpt of the line */
    while (n < 12 && w->p + n < w->end && isprint((unsigned char)w->p[n]))
        n++;
    bool comment =
        n > 0 && (*w->p == '#' || (n > 1 && (!memcmp(w->p, "//", 2) || !memcmp(w->p, "/*", 2))));
    const char *before = w->p;
    while (before > w->begin && strchr(" \t\r\n", before[-1]))
        before--;
    bool after_comma = n > 0 && strchr("]}", *w->p) && before > w->begin && before[-1] == ',';
    return nnc_fail(w->sink, NNC_E_MODEL, here(w), "%s%s, found `%.*s`%s", what,
        after_comma ? " after the comma" : "", n ? n : (int)strlen("a control character"),
        n ? w->p : "a control character", comment ? "; JSON has no comments" : "");
}

static void blanks(walk *w)
{
    for (; w->p < w->end && strchr(" \t\r\n", *w->p) && *w->p; w->p++)
        if (*w->p == '\n') {
            w->line++;
            w->line_start = w->p + 1;
        }
}

static nnc_status string(walk *w, const char **out)
{
    const char *close = ++w->p;
    while (close < w->end && *close != '"' && (unsigned char)*close >= 0x20)
        close += *close == '\\' && close + 1 < w->end ? 2 : 1;
    char *s = nnc_arena_alloc(&w->j->arena, (size_t)(close - w->p) + 1, 1);
    NNC_NEED(s, w->sink);
    *out = s;
    const char *begin = w->p - 1;
    w->p = nnc_decode(w->p, close, s);
    if (w->p < close && *w->p == '\\')
        return bad(w,
            "expected an escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t, or \\u and four hexadecimal "
            "digits (\\uD800 to \\uDFFF in pairs, not \\u0000)");
    if (w->p < close)
        return nnc_fail(w->sink, NNC_E_MODEL, here(w), "expected UTF-8, found the byte 0x%02x",
            (unsigned char)*w->p);
    if (!at(w, '"')) {
        w->p = begin;
        return bad(w, "expected a string closed by \" on the same line");
    }
    w->p++;
    return NNC_OK;
}

static nnc_status parse_number(walk *w, nnc_item *v)
{
    char buf[64], *end;
    size_t n = 0;
    while (w->p + n < w->end && n + 1 < sizeof buf &&
           (isdigit((unsigned char)w->p[n]) || (w->p[n] && strchr("+-.eE", w->p[n])))) {
        buf[n] = w->p[n];
        n++;
    }
    buf[n] = 0;
    v->kind = NNC_JSON_number;
    v->number = nnc_strtod(buf, &end);
    const char *digits = buf + (buf[0] == '-');
    if (end == buf || *end || !isdigit((unsigned char)*digits) ||
        (digits[0] == '0' && isdigit((unsigned char)digits[1])))
        return bad(w, "expected a JSON value");
    if (!isfinite(v->number))
        return bad(w, "expected a number below 1.8e308 (where a float is expected, \"inf\" stands "
                      "for infinity)");
    if (!strpbrk(buf, ".eE") && fabs(v->number) >= 0x1p53)
        return nnc_fail(w->sink, NNC_E_MODEL, here(w),
            "expected an integer below 2^53 (1e16 is a float, which may be larger), found `%s`",
            buf);
    w->p += n;
    return NNC_OK;
}

static nnc_status literal(walk *w, nnc_item *v)
{
    static const struct {
        const char *word;
        nnc_json_kind kind;
        double number;
    } words[] = {
        {"true", NNC_JSON_bool, 1}, {"false", NNC_JSON_bool, 0}, {"null", NNC_JSON_null, 0}};
    for (size_t i = 0; i < NNC_COUNT(words); i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(w->end - w->p) >= n && !memcmp(w->p, words[i].word, n)) {
            v->kind = words[i].kind;
            v->number = words[i].number;
            w->p += n;
            return NNC_OK;
        }
    }
    return bad(w, "expected a JSON value");
}

/* By key; then by position. */
static int by_key(const void *x, const void *y)
{
    const nnc_item *a = *(const nnc_item *const *)x, *b = *(const nnc_item *const *)y;
    return nnc_then(
        strcmp(a->key, b->key), nnc_then(a->key_line - b->key_line, a->key_col - b->key_col));
}

/* Sorts the keys of one object, so that millions of keys cost n log n. */
static nnc_status check_keys(walk *w, const nnc_item *object)
{
    const nnc_item **sorted = ARENA_NEW(&w->j->arena, const nnc_item *, object->n);
    int n = 0;
    NNC_NEED(sorted, w->sink);
    for (const nnc_item *m = object->child; m; m = m->next)
        sorted[n++] = m;
    qsort(sorted, (size_t)n, sizeof *sorted, by_key);
    for (int i = 1; i < n; i++)
        if (!strcmp(sorted[i - 1]->key, sorted[i]->key))
            return nnc_fail(w->sink, NNC_E_MODEL, nnc_json_loc(w->j, sorted[i], true),
                "duplicate key \"%s\" in one object", sorted[i]->key);
    return NNC_OK;
}

static nnc_status value(walk *w, nnc_item *v);

static nnc_status member(walk *w, nnc_item *v)
{
    blanks(w);
    v->key_line = w->line;
    v->key_col = here(w).col;
    if (!at(w, '"'))
        return bad(w, "expected a key in quotes");
    NNC_TRY(string(w, &v->key));
    blanks(w);
    if (!at(w, ':'))
        return bad(w, "expected `:` after the key");
    w->p++;
    return value(w, v);
}

/* The elements of a list, the members of an object. */
static nnc_status items(walk *w, nnc_item *v)
{
    const bool object = *w->p++ == '{';
    const char close = object ? '}' : ']';
    v->kind = object ? NNC_JSON_object : NNC_JSON_list;
    blanks(w);
    for (nnc_item **next = &v->child; v->n || !at(w, close); next = &(*next)->next) {
        *next = ARENA_NEW(&w->j->arena, nnc_item, 1);
        NNC_NEED(*next, w->sink);
        v->n++;
        NNC_TRY(object ? member(w, *next) : value(w, *next));
        blanks(w);
        if (!at(w, ','))
            break;
        w->p++;
    }
    if (!at(w, close))
        return bad(w, object ? "expected `,` or `}`" : "expected `,` or `]`");
    w->p++;
    return object ? check_keys(w, v) : NNC_OK;
}

static nnc_status value(walk *w, nnc_item *v)
{
    blanks(w);
    v->line = w->line;
    v->col = here(w).col;
    if (w->p >= w->end)
        return bad(w, "expected a JSON value");
    if (*w->p == '"') {
        v->kind = NNC_JSON_string;
        return string(w, &v->text);
    }
    if (*w->p == '{' || *w->p == '[') {
        if (++w->depth > MAX_DEPTH)
            return nnc_fail(
                w->sink, NNC_E_MODEL, here(w), "nested deeper than %d levels", MAX_DEPTH);
        NNC_TRY(items(w, v));
        w->depth--;
        return NNC_OK;
    }
    return isalpha((unsigned char)*w->p) ? literal(w, v) : parse_number(w, v);
}

static nnc_status parse(walk *w)
{
    if (memchr(w->begin, 0, (size_t)(w->end - w->begin)))
        return nnc_fail(w->sink, NNC_E_MODEL, (nnc_loc){.file = w->j->file},
            "not a text file: it contains NUL bytes");
    w->j->root = ARENA_NEW(&w->j->arena, nnc_item, 1);
    NNC_NEED(w->j->root, w->sink);
    NNC_TRY(value(w, w->j->root));
    blanks(w);
    return w->p < w->end ? bad(w, "expected nothing after the JSON value") : NNC_OK;
}

nnc_status nnc_json_parse(nnc_json *j, const char *file, const char *text, size_t n, nnc_sink *sink)
{
    walk w = {j, text, text, text + n, text, 1, 0, sink};
    *j = (nnc_json){.file = file};
    nnc_status st = parse(&w);
    if (st)
        nnc_json_deinit(j);
    return st;
}

nnc_status nnc_json_load(nnc_json *j, const char *file, nnc_sink *sink)
{
    char *text;
    size_t n;
    *j = (nnc_json){0};
    NNC_TRY(nnc_file_read(file, MAX_JSON, &text, &n, sink));
    nnc_status st = nnc_json_parse(j, file, text, n, sink);
    nnc_free(text);
    return st;
}

void nnc_json_deinit(nnc_json *j)
{
    nnc_arena_deinit(&j->arena);
    *j = (nnc_json){0};
}

nnc_loc nnc_json_loc(const nnc_json *j, const nnc_item *v, bool key)
{
    nnc_loc none = {.file = j->file};
    return !v ? none
              : (nnc_loc){j->file, key ? v->key_line : v->line, key ? v->key_col : v->col, NULL};
}

const nnc_item *nnc_json_get(const nnc_item *o, const char *key)
{
    const nnc_item *m = nnc_is_object(o) ? o->child : NULL;
    while (m && strcmp(m->key, key) != 0)
        m = m->next;
    return m;
}

const char *nnc_json_text(const nnc_item *o, const char *key)
{
    const nnc_item *v = nnc_json_get(o, key);
    return v ? v->text : NULL;
}
