/* base/setting.c -- options set by name from text. */
#include "base/setting.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct setting {
    const nnc_setting *row;
    const char *kind, *value;
    void *at, *more;
    nnc_arena *strings;
    nnc_sink *sink;
    const nnc_loc *loc; /* in a file; NULL: on the command line */
} setting;

static nnc_status wrong(const setting *s, const char *expected)
{
    return nnc_fail(s->sink, s->loc ? NNC_E_MODEL : NNC_E_USAGE, s->loc ? *s->loc : (nnc_loc){0},
        "%s%s: expected %s, found `%s`", s->kind, s->row->name, expected, s->value);
}

static nnc_status wrong_number(const setting *s, const char *what)
{
    char range[64];
    const nnc_setting *r = s->row;
    if (r->hi)
        snprintf(
            range, sizeof range, "%s from %lld to %lld", what, (long long)r->lo, (long long)r->hi);
    else
        snprintf(range, sizeof range, "%s >= %lld", what, (long long)r->lo);
    return wrong(s, range);
}

static nnc_status set_int(const setting *s)
{
    char *end;
    errno = 0;
    const long long v = strtoll(s->value, &end, 10);
    if (!*s->value || *end || errno || v < s->row->lo || v > s->row->hi)
        return wrong_number(s, "an integer");
    *(int *)s->at = v == 0 && s->row->none ? -1 : (int)v;
    return NNC_OK;
}

static nnc_status set_seed(const setting *s)
{
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(s->value, &end, 10);
    if (!*s->value || *end || errno || *s->value == '-')
        return wrong(s, "an integer from 0 to 2^64 - 1");
    *(uint64_t *)s->at = v;
    return NNC_OK;
}

static nnc_status set_real(const setting *s)
{
    char *end;
    const double v = nnc_strtod(s->value, &end);
    const bool inside = v >= (double)s->row->lo && (!s->row->hi || v <= (double)s->row->hi);
    if (*s->value && !*end && isinf(v))
        return wrong_number(s, "a finite number");
    if (!*s->value || *end || !inside)
        return wrong_number(s, "a number");
    *(double *)s->at = v == 0 && s->row->none ? -1 : v;
    return NNC_OK;
}

static nnc_status set_bool(const setting *s, bool inverted)
{
    const bool on = !strcmp(s->value, "1");
    if (!on && strcmp(s->value, "0") != 0)
        return wrong(s, "1 or 0");
    *(bool *)s->at = on != inverted;
    return NNC_OK;
}

/* Which of the words "a|b|c" is the value? -1: none. */
static int choice(const setting *s)
{
    const size_t n = strlen(s->value);
    const char *p = s->row->expected;
    for (int i = 0;; i++) {
        const size_t word = strcspn(p, "|");
        if (word == n && !strncmp(p, s->value, n))
            return i;
        if (!p[word])
            return -1;
        p += word + 1;
    }
}

static nnc_status set_choice(const setting *s)
{
    const char *const *name = s->row->names;
    int i = choice(s);
    if (i < 0)
        return wrong(s, s->row->expected);
    if (name)
        for (i = 0; strcmp(name[i], s->value) != 0;)
            i++;
    *(int *)s->at = (int)s->row->lo + i;
    return NNC_OK;
}

static nnc_status set_text(const setting *s)
{
    const char *copy = nnc_arena_strdup(s->strings, s->value);
    NNC_NEED(copy, s->sink);
    *(const char **)s->at = copy;
    return NNC_OK;
}

/* A copy of the array with one zeroed element more, which it returns; NULL: out of memory. */
static void *append(const setting *s, size_t size)
{
    int *n = s->more;
    const void **old = s->at;
    char *grown = nnc_arena_alloc(s->strings, (size_t)*n + 1, size);
    if (!grown)
        return NULL;
    if (*n)
        memcpy(grown, *old, (size_t)*n * size);
    *old = grown;
    return grown + (size_t)(*n)++ * size;
}

static nnc_status set_list(const setting *s)
{
    const char *p = s->value + strspn(s->value, ",");
    if (!*p)
        return wrong(s, s->row->expected);
    for (; *p; p += strspn(p, ",")) {
        const size_t n = strcspn(p, ",");
        const char *word = nnc_arena_strndup(s->strings, p, n);
        const char **slot = word ? append(s, sizeof *slot) : NULL;
        NNC_NEED(slot, s->sink);
        *slot = word;
        p += n;
    }
    return NNC_OK;
}

static nnc_status set_pair(const setting *s)
{
    const char *eq = strchr(s->value, '=');
    if (!eq || eq == s->value || !eq[1])
        return wrong(s, s->row->expected);
    const char *name = nnc_arena_strndup(s->strings, s->value, (size_t)(eq - s->value));
    const char *value = nnc_arena_strdup(s->strings, eq + 1);
    const nnc_arg *old = *(const nnc_arg **)s->at;
    for (int i = 0; name && s->row->lo == 0 && i < *(int *)s->more; i++)
        if (!strcmp(old[i].name, name))
            return strcmp(old[i].value, eq + 1)
                       ? nnc_fail0(s->sink, NNC_E_USAGE,
                             "%s%s %s is given twice, as %s and as %s: leave one out", s->kind,
                             s->row->name, name, old[i].value, eq + 1)
                       : NNC_OK;
    nnc_arg *slot = name && value ? append(s, sizeof *slot) : NULL;
    NNC_NEED(slot, s->sink);
    *slot = (nnc_arg){name, value};
    return NNC_OK;
}

static nnc_status set(const setting s)
{
    switch (s.row->kind) {
    case NNC_SET_INT: return set_int(&s);
    case NNC_SET_SEED: return set_seed(&s);
    case NNC_SET_REAL: return set_real(&s);
    case NNC_SET_BOOL:
    case NNC_SET_UNSET: return set_bool(&s, s.row->kind == NNC_SET_UNSET);
    case NNC_SET_TEXT:
    case NNC_SET_FILE: return set_text(&s);
    case NNC_SET_CHOICE: return set_choice(&s);
    case NNC_SET_LIST: return set_list(&s);
    case NNC_SET_PAIRS: return set_pair(&s);
    }
    return NNC_E_BUG;
}

nnc_status nnc_setting_set(const nnc_setting *row, const char *kind, void *o, const char *value,
    nnc_arena *strings, nnc_sink *sink)
{
    return set((setting){
        row, kind, value, (char *)o + row->at, (char *)o + row->more, strings, sink, NULL});
}

nnc_status nnc_setting_read(const nnc_setting *row, nnc_loc loc, void *o, const char *value,
    nnc_arena *strings, nnc_sink *sink)
{
    return set(
        (setting){row, "", value, (char *)o + row->at, (char *)o + row->more, strings, sink, &loc});
}

static void put_choice(const nnc_setting *row, int i, nnc_text *out)
{
    const char *words = row->expected;
    if (row->names) {
        nnc_puts(out, row->names[i]);
        return;
    }
    for (; i > 0 && *words; i--)
        words += strcspn(words, "|") + 1;
    if (i == 0)
        nnc_putn(out, words, strcspn(words, "|"));
}

static void put_list(const char *const *word, int n, nnc_text *out)
{
    for (int i = 0; i < n; i++)
        nnc_printf(out, "%s%s", i ? "," : "", word[i]);
}

void nnc_setting_put(const nnc_setting *row, const void *o, nnc_text *out)
{
    const void *at = (const char *)o + row->at;
    switch (row->kind) {
    case NNC_SET_INT: nnc_printf(out, "%d", *(const int *)at); break;
    case NNC_SET_SEED: nnc_printf(out, "%llu", (unsigned long long)*(const uint64_t *)at); break;
    case NNC_SET_REAL: nnc_put_double(out, *(const double *)at); break;
    case NNC_SET_BOOL:
    case NNC_SET_UNSET:
        nnc_puts(out, *(const bool *)at == (row->kind == NNC_SET_BOOL) ? "1" : "");
        break;
    case NNC_SET_TEXT:
    case NNC_SET_FILE:
        nnc_puts(out, *(const char *const *)at ? *(const char *const *)at : "");
        break;
    case NNC_SET_CHOICE: put_choice(row, *(const int *)at - (int)row->lo, out); break;
    case NNC_SET_LIST:
        put_list(*(const char *const *const *)at, *(const int *)((const char *)o + row->more), out);
        break;
    case NNC_SET_PAIRS: break;
    }
}
