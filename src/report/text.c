/* report/text.c -- formatting of reports: abbreviated layer lists, columns. */
#include "report/report.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- layers ------------------------------------------------------------------------------------------ */

typedef struct word {
    const char *s;
    size_t n;
} word;

typedef struct words {
    word *at;
    size_t n, cap;
    nnc_arena arena;
    bool oom;
} words;

static void add_word(words *w, const char *s, size_t n)
{
    w->oom |= !ARENA_ROOM(&w->arena, w->at, w->cap, w->n + 1);
    if (!w->oom)
        w->at[w->n++] = (word){s, n};
}

static bool same(word a, word b)
{
    return a.n == b.n && !memcmp(a.s, b.s, a.n);
}

static void split(words *out, const char *joined)
{
    for (const char *p = joined; *p;) {
        size_t n = strcspn(p, "+");
        word w = {p, n};
        if (n && !(out->n && same(out->at[out->n - 1], w)))
            add_word(out, p, n);
        p += n + (p[n] == '+');
    }
}

/* Length of the parent path of a layer: everything before "<index>/<name>". */
static size_t way(word w)
{
    size_t slashes = 0, n = w.n;
    while (n > 0 && (w.s[n - 1] != '/' || ++slashes < 2))
        n--;
    return n;
}

/* Merges neighbours with the same parent: "/layers/0/unit/{0/conv,1/relu}". */
static void gather(words *out, const words *in)
{
    for (size_t i = 0, j; i < in->n; i = j) {
        word a = in->at[i];
        size_t d = way(a);
        for (j = i + 1; j < in->n; j++)
            if (d < 2 || way(in->at[j]) != d || memcmp(in->at[j].s, a.s, d) != 0)
                break;
        if (j == i + 1) {
            add_word(out, a.s, a.n);
            continue;
        }
        NNC_LOCAL(nnc_text) t = {0};
        nnc_putn(&t, a.s, d);
        for (size_t k = i; k < j; k++) {
            nnc_putc(&t, k > i ? ',' : '{');
            nnc_putn(&t, in->at[k].s + d, in->at[k].n - d);
        }
        nnc_putc(&t, '}');
        char *copy = nnc_arena_strdup(&out->arena, nnc_text_str(&t));
        out->oom |= t.oom || !copy;
        if (copy)
            add_word(out, copy, t.n);
    }
}

/* True when b is a with the number in one pair of brackets increased by one. *at: position of the number. */
static bool next_repeat(word a, word b, size_t *at)
{
    size_t i = 0;
    while (i < a.n && i < b.n && a.s[i] == b.s[i])
        i++;
    while (i > 0 && isdigit((unsigned char)a.s[i - 1]))
        i--;
    if (i == 0 || a.s[i - 1] != '[' || i >= a.n || i >= b.n)
        return false;
    char *end_a, *end_b;
    long x = strtol(a.s + i, &end_a, 10), y = strtol(b.s + i, &end_b, 10);
    size_t rest = (size_t)(a.s + a.n - end_a);
    *at = i;
    return y == x + 1 && *end_a == ']' && *end_b == ']' && end_b + rest == b.s + b.n &&
           !memcmp(end_a, end_b, rest);
}

/* Merges consecutive repeats: "/layers/0/sin[0..3]". */
static void ranges(words *out, const words *in)
{
    for (size_t i = 0, j; i < in->n; i = j) {
        size_t at = 0, other;
        for (j = i + 1; j < in->n; j++) {
            bool next = next_repeat(in->at[j - 1], in->at[j], &other);
            if (!next || (j > i + 1 && other != at))
                break;
            at = other;
        }
        word a = in->at[i], z = in->at[j - 1];
        if (j == i + 1) {
            add_word(out, a.s, a.n);
            continue;
        }
        size_t close = at + strcspn(a.s + at, "]");
        char *s = nnc_arena_printf(&out->arena, "%.*s..%ld%.*s", (int)close, a.s,
            strtol(z.s + at, NULL, 10), (int)(a.n - close), a.s + close);
        out->oom |= !s;
        if (s)
            add_word(out, s, strlen(s));
    }
}

static void put_words(nnc_text *t, const words *w, size_t first, size_t last)
{
    for (size_t i = 0; i < w->n; i++) {
        if (i == first && i < w->n - last) {
            nnc_printf(t, " + ... %zu more ...", w->n - first - last);
            i = w->n - last - 1;
            continue;
        }
        nnc_puts(t, i ? " + " : "");
        nnc_putn(t, w->at[i].s, w->at[i].n);
    }
}

void nnc_put_layers(nnc_text *t, const char *joined, int width)
{
    words all = {0}, once = {0}, near = {0}, few = {0};
    words *list[] = {&all, &once, &near, &few};
    for (size_t i = 0; i < NNC_COUNT(list); i++)
        nnc_arena_init(&list[i]->arena, 0);
    split(&all, joined);
    ranges(&once, &all);
    gather(&near, &once);
    ranges(&few, &near);
    size_t total = 0;
    for (size_t i = 0; i < few.n; i++)
        total += few.at[i].n + (i ? 3 : 0);
    bool cut = width > 0 && total > (size_t)width && few.n > 2;
    put_words(t, &few, cut ? 1 : few.n, cut ? 1 : 0);
    for (size_t i = 0; i < NNC_COUNT(list); i++) {
        t->oom |= list[i]->oom;
        nnc_arena_deinit(&list[i]->arena);
    }
}

void nnc_put_layers_column(nnc_text *t, const char *joined, int width)
{
    size_t from = t->n;
    nnc_put_layers(t, joined, width);
    while (!t->oom && t->n < from + (size_t)width)
        nnc_putc(t, ' ');
}

int nnc_compare_paths(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            char *x, *y;
            long long m = strtoll(a, &x, 10), n = strtoll(b, &y, 10);
            if (m != n)
                return m < n ? -1 : 1;
            a = x;
            b = y;
        } else if (*a != *b) {
            break;
        } else {
            a++;
            b++;
        }
    }
    return (unsigned char)*a - (unsigned char)*b;
}

/* ---- columns ----------------------------------------------------------------------------------------- */

void nnc_put_bytes_column(nnc_text *t, int64_t bytes, int width, bool with_sign)
{
    NNC_LOCAL(nnc_text) b = {.into = t};
    if (with_sign && bytes)
        nnc_putc(&b, bytes < 0 ? '-' : '+');
    nnc_put_bytes(&b, with_sign && bytes < 0 ? -bytes : bytes);
    nnc_printf(t, "%*s", width, nnc_text_str(&b));
}

void nnc_trim(nnc_text *t)
{
    while (t->n && t->s[t->n - 1] == ' ')
        t->s[--t->n] = 0;
}

void nnc_put_wrapped(nnc_text *t, const char *s, int at, int indent, int width)
{
    for (bool first = true; *s; first = false) {
        int n = (int)strcspn(s, " ");
        if (!first && at + 1 + n > width) {
            nnc_printf(t, "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            nnc_putc(t, ' ');
            at++;
        }
        nnc_putn(t, s, (size_t)n);
        at += n;
        s += n;
        s += *s == ' ';
    }
}
