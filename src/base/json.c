/* base/json.c -- cJSON, preceded by a strict scan of the text that rejects what cJSON accepts (duplicate keys, integers from 2^53 on,
 * trailing text, deep nesting, invalid UTF-8) and finds positions. */
#include "base/base.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_JSON = 64 << 20 };

/* A cursor over the text. When `want` is set, the walk searches for that item: `item` is the cJSON value at the cursor (NULL during
 * the check, before cJSON has parsed). */
typedef struct walk {
    const nnc_json *j;
    const char *p, *end, *line_start;
    int line, depth;
    nnc_sink *sink; /* for errors during the check */
    const cJSON *want;
    bool want_key, found;
    nnc_loc at;
} walk;

static nnc_loc here(const walk *w, const char *p)
{
    return (nnc_loc){.file = w->j->file, .line = w->line, .col = (int)(p - w->line_start) + 1};
}

static nnc_status bad(walk *w, const char *what)
{
    if (w->p >= w->end)
        return nnc_fail(w->sink, NNC_E_MODEL, here(w, w->p), "%s, found the end of the file", what);
    int n = 0; /* excerpt of the line */
    while (n < 12 && w->p + n < w->end && isprint((unsigned char)w->p[n]))
        n++;
    bool comment = n > 0 && (*w->p == '#' || !strncmp(w->p, "//", 2) || !strncmp(w->p, "/*", 2));
    const char *before = w->p;
    while (before > w->j->text && strchr(" \t\r\n", before[-1]))
        before--;
    bool after_comma = n > 0 && strchr("]}", *w->p) && before > w->j->text && before[-1] == ',';
    return nnc_fail(w->sink, NNC_E_MODEL, here(w, w->p), "%s%s, found `%.*s`%s", what,
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

static nnc_status string(walk *w, const char **text, size_t *n)
{
    const char *p = w->p + 1;
    while (p < w->end && *p != '"' && (unsigned char)*p >= 0x20) {
        char out[4];
        size_t got = 0;
        int used = *p == '\\' ? nnc_unescape(p + 1, w->end, out, &got) : nnc_utf8_length(p, w->end);
        if (!used) { /* cJSON checks neither UTF-8 nor all escapes */
            bool escape = *p == '\\';
            w->p = p;
            return escape ? bad(w, "expected a valid escape (\\uD800 to \\uDFFF in "
                                   "pairs, not \\u0000)")
                          : nnc_fail(w->sink, NNC_E_MODEL, here(w, p),
                                "expected UTF-8, found the byte 0x%02x", (unsigned char)*p);
        }
        p += used + (*p == '\\');
    }
    if (p >= w->end || *p != '"')
        return bad(w, "expected a string closed by \" on the same line");
    *text = w->p + 1;
    *n = (size_t)(p - *text);
    w->p = p + 1;
    return NNC_OK;
}

static nnc_status number(walk *w)
{
    char buf[64], *end;
    size_t n = 0;
    while (w->p + n < w->end && n + 1 < sizeof buf &&
           (isdigit((unsigned char)w->p[n]) || (w->p[n] && strchr("+-.eE", w->p[n])))) {
        buf[n] = w->p[n];
        n++;
    }
    buf[n] = 0;
    double v = strtod(buf, &end);
    const char *digits = buf + (buf[0] == '-');
    if (end == buf || *end || !isdigit((unsigned char)*digits) ||
        (digits[0] == '0' && isdigit((unsigned char)digits[1])))
        return bad(w, "expected a JSON value");
    if (!isfinite(v))
        return bad(w, "expected a number below 1.8e308 (where a float is expected, \"inf\" stands "
                      "for infinity)");
    if (!strpbrk(buf, ".eE") && fabs(v) >= 0x1p53)
        return bad(w, "expected an integer below 2^53 (1e16 is a float, which may be larger)");
    w->p += n;
    return NNC_OK;
}

static nnc_status value(walk *w, const cJSON *item);

typedef struct key_text {
    const char *at; /* raw text between the quotes */
    size_t n;
} key_text;

/* Decodes a key byte by byte, resolving escapes; -1 at the end. `left` holds the remaining UTF-8 bytes of an escape. */
typedef struct key_bytes {
    const char *p, *end;
    char left[4];
    int n_left;
} key_bytes;

static int next_byte(key_bytes *k)
{
    if (k->n_left > 0)
        return (unsigned char)k->left[--k->n_left];
    if (k->p >= k->end)
        return -1;
    if (*k->p != '\\')
        return (unsigned char)*k->p++;
    char out[4];
    size_t n = 0;
    int used = nnc_unescape(k->p + 1, k->end, out, &n);
    if (!used) /* invalid JSON: cJSON reports it later */
        return (unsigned char)*k->p++;
    k->p += 1 + used;
    while (n > 0)
        k->left[k->n_left++] = out[--n];
    return (unsigned char)k->left[--k->n_left];
}

typedef struct key_list {
    key_text *key;
    size_t n, cap;
} key_list;

static nnc_status add_key(walk *w, key_list *k, key_text key)
{
    if (w->want)
        return NNC_OK;
    if (k->n == k->cap) {
        size_t cap = k->cap ? k->cap * 2 : 16;
        key_text *more = nnc_realloc(k->key, cap * sizeof *more);
        if (!more)
            return nnc_nomem(w->sink);
        k->key = more;
        k->cap = cap;
    }
    k->key[k->n++] = key;
    return NNC_OK;
}

/* By decoded text; then by position. */
static int compare_keys(const key_text *a, const key_text *b)
{
    key_bytes x = {.p = a->at, .end = a->at + a->n}, y = {.p = b->at, .end = b->at + b->n};
    int u, v;
    do {
        u = next_byte(&x);
        v = next_byte(&y);
    } while (u == v && u >= 0);
    return u - v;
}

static int by_text(const void *x, const void *y)
{
    const key_text *a = x, *b = y;
    int c = compare_keys(a, b);
    return c ? c : (a->at > b->at) - (a->at < b->at);
}

/* Sorts the keys of one object, so that millions of keys cost n log n. */
static nnc_status check_keys(walk *w, key_list *k)
{
    if (k->n)
        qsort(k->key, k->n, sizeof *k->key, by_text);
    for (size_t i = 1; i < k->n; i++) {
        key_text a = k->key[i - 1], b = k->key[i];
        if (compare_keys(&a, &b) != 0)
            continue;
        walk at = {.j = w->j, .line_start = w->j->text, .line = 1};
        for (const char *p = w->j->text; p < b.at; p++)
            if (*p == '\n') {
                at.line++;
                at.line_start = p + 1;
            }
        return nnc_fail(w->sink, NNC_E_MODEL, here(&at, b.at - 1),
            "duplicate key \"%.*s\" in one object", (int)b.n, b.at);
    }
    return NNC_OK;
}

static nnc_status member(walk *w, key_list *keys, const cJSON *child)
{
    key_text key = {NULL, 0};
    blanks(w);
    if (w->p >= w->end || *w->p != '"')
        return bad(w, "expected a key in quotes");
    const char *key_at = w->p;
    nnc_loc loc = here(w, key_at);
    NNC_TRY(string(w, &key.at, &key.n));
    NNC_TRY(add_key(w, keys, key));
    if (w->want && child == w->want && w->want_key) {
        w->at = loc;
        w->found = true;
    }
    blanks(w);
    if (w->p >= w->end || *w->p != ':')
        return bad(w, "expected `:` after the key");
    w->p++;
    return value(w, child);
}

static nnc_status members(walk *w, const cJSON *item, char close)
{
    key_list keys = {0};
    const cJSON *child = item ? item->child : NULL;
    nnc_status st = NNC_OK;
    w->p++;
    blanks(w);
    if (w->p < w->end && *w->p == close) {
        w->p++;
        return NNC_OK;
    }
    while (!w->found) {
        st = close == '}' ? member(w, &keys, child) : value(w, child);
        if (st || w->found)
            break;
        child = child ? child->next : NULL;
        blanks(w);
        if (w->p < w->end && *w->p == ',') {
            w->p++;
            continue;
        }
        if (w->p < w->end && *w->p == close)
            w->p++;
        else
            st = bad(w, close == '}' ? "expected `,` or `}`" : "expected `,` or `]`");
        break;
    }
    if (!st && !w->found)
        st = check_keys(w, &keys);
    nnc_free(keys.key);
    return st;
}

static nnc_status literal(walk *w)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(w->end - w->p) >= n && !memcmp(w->p, words[i], n)) {
            w->p += n;
            return NNC_OK;
        }
    }
    return bad(w, "expected a JSON value");
}

static nnc_status value(walk *w, const cJSON *item)
{
    const char *s;
    size_t n;
    blanks(w);
    if (w->want && item == w->want && !w->want_key) {
        w->at = here(w, w->p);
        w->found = true;
        return NNC_OK;
    }
    if (w->p >= w->end)
        return bad(w, "expected a JSON value");
    if (*w->p == '"')
        return string(w, &s, &n);
    if (*w->p == '{' || *w->p == '[') {
        if (++w->depth > MAX_DEPTH)
            return nnc_fail(
                w->sink, NNC_E_MODEL, here(w, w->p), "nested deeper than %d levels", MAX_DEPTH);
        nnc_status st = members(w, item, *w->p == '{' ? '}' : ']');
        w->depth--;
        return st;
    }
    return isalpha((unsigned char)*w->p) ? literal(w) : number(w);
}

static nnc_status check(nnc_json *j, nnc_sink *sink)
{
    walk w = {.j = j,
        .p = j->text,
        .end = j->text + j->n,
        .line_start = j->text,
        .line = 1,
        .sink = sink};
    if (memchr(j->text, 0, j->n))
        return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = j->file},
            "not a text file: it contains NUL bytes");
    NNC_TRY(value(&w, NULL));
    blanks(&w);
    return w.p < w.end ? bad(&w, "expected nothing after the JSON value") : NNC_OK;
}

nnc_status nnc_json_parse(nnc_json *j, const char *file, const char *text, size_t n, nnc_sink *sink)
{
    *j = (nnc_json){.file = file, .n = n};
    j->text = nnc_malloc(n + 1);
    if (!j->text)
        return nnc_nomem(sink);
    memcpy(j->text, text, n);
    j->text[n] = 0;
    nnc_status st = check(j, sink);
    if (st == NNC_OK) {
        cJSON_Hooks hooks = {nnc_malloc, nnc_free};
        cJSON_InitHooks(&hooks);
        j->root = cJSON_ParseWithLength(j->text, n);
        if (!j->root) /* the text was checked, so only memory can be missing */
            st = nnc_nomem(sink);
    }
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
    cJSON_Delete(j->root);
    nnc_free(j->text);
    *j = (nnc_json){0};
}

nnc_loc nnc_json_loc(const nnc_json *j, const cJSON *item, bool key)
{
    walk w = {.j = j,
        .p = j->text,
        .end = j->text + j->n,
        .line_start = j->text,
        .line = 1,
        .want = item,
        .want_key = key};
    if (!item || !j->root || value(&w, j->root) != NNC_OK || !w.found)
        return (nnc_loc){.file = j->file};
    return w.at;
}
