/* base/fields.c -- reads and writes members of JSON objects by a table of fields. */
#include "base/fields.h"
#include "base/base.h"
#include <math.h>
#include <string.h>

enum { NAMES = 40 };

void nnc_fields_put(nnc_text *out, const nnc_field *f, const void *base)
{
    const void *p = (const char *)base + f->at;
    nnc_put_json_string(out, f->name);
    nnc_puts(out, ": ");
    switch (f->kind) {
    case NNC_F_string: {
        const char *s = *(const char *const *)p;
        nnc_put_json_string(out, s ? s : "");
        break;
    }
    case NNC_F_int: nnc_printf(out, "%d", *(const int *)p); break;
    case NNC_F_int64: nnc_printf(out, "%lld", (long long)*(const int64_t *)p); break;
    case NNC_F_bool: nnc_puts(out, *(const bool *)p ? "true" : "false"); break;
    case NNC_F_double: nnc_put_double(out, *(const double *)p); break;
    case NNC_F_word: nnc_put_json_string(out, f->words[*(const int *)p]); break;
    }
}

nnc_status nnc_fields_bad(
    const nnc_field_reader *r, const nnc_item *at, const char *name, const char *expected)
{
    return nnc_fail(r->sink, NNC_E_USAGE, nnc_json_loc(r->json, at, false), "%s: %s: expected %s",
        r->what, name, expected);
}

nnc_status nnc_fields_missing(const nnc_field_reader *r, const nnc_item *obj, const char *name)
{
    return nnc_fail(r->sink, NNC_E_USAGE, nnc_json_loc(r->json, obj, false),
        "%s: \"%s\" is missing", r->what, name);
}

static nnc_status read_number(
    const nnc_field_reader *r, const nnc_field *f, const nnc_item *v, void *p)
{
    double x = v->number;
    char range[96];
    nnc_snprintf(range, sizeof range, "%s from %.16g to %.16g",
        f->kind == NNC_F_double ? "a number" : "an integer", f->lo, f->hi);
    if (!nnc_is_number(v) || !(x >= f->lo && x <= f->hi) ||
        (f->kind != NNC_F_double && x != floor(x)))
        return nnc_fields_bad(r, v, f->name, range);
    if (f->kind == NNC_F_double)
        *(double *)p = x;
    else if (f->kind == NNC_F_int)
        *(int *)p = (int)x;
    else
        *(int64_t *)p = (int64_t)x;
    return NNC_OK;
}

static nnc_status read_word(
    const nnc_field_reader *r, const nnc_field *f, const nnc_item *v, int *to)
{
    NNC_LOCAL(nnc_text) all = {0};
    for (*to = 0; *to < (int)f->hi; ++*to) {
        if (nnc_is_string(v) && !strcmp(f->words[*to], v->text))
            return NNC_OK;
        nnc_printf(&all, "%s\"%s\"",
            !*to                   ? ""
            : *to + 1 < (int)f->hi ? ", "
                                   : " or ",
            f->words[*to]);
    }
    return nnc_fields_bad(r, v, f->name, nnc_text_str(&all));
}

static nnc_status read_field(
    const nnc_field_reader *r, const nnc_field *f, const nnc_item *v, void *base)
{
    void *p = (char *)base + f->at;
    if (f->kind == NNC_F_bool) {
        if (!nnc_is_bool(v))
            return nnc_fields_bad(r, v, f->name, "true or false");
        *(bool *)p = v->number != 0;
        return NNC_OK;
    }
    if (f->kind == NNC_F_word)
        return read_word(r, f, v, p);
    if (f->kind != NNC_F_string)
        return read_number(r, f, v, p);
    if (!nnc_is_string(v))
        return nnc_fields_bad(r, v, f->name, "a string");
    char *s = nnc_arena_strdup(r->arena, v->text);
    NNC_NEED(s, r->sink);
    *(char **)p = s;
    return NNC_OK;
}

nnc_status nnc_fields_read(const nnc_field_reader *r, const nnc_item *obj, const nnc_field *fields,
    size_t n, const char *also, void *base)
{
    char words[160];
    const char *names[NAMES];
    size_t n_names = 0;
    nnc_snprintf(words, sizeof words, "%s", also);
    for (size_t i = 0; i < n && n_names < NAMES; i++)
        names[n_names++] = fields[i].name;
    for (char *rest, *w = strtok_r(words, " ", &rest); w && n_names < NAMES;
         w = strtok_r(NULL, " ", &rest))
        names[n_names++] = w;
    for (const nnc_item *v = obj->child; v; v = v->next) {
        size_t k = 0;
        while (k < n_names && strcmp(v->key, names[k]) != 0)
            k++;
        if (k < n) {
            NNC_TRY(read_field(r, &fields[k], v, base));
        } else if (!strcmp(v->key, "$schema") && k < n_names && !nnc_is_string(v)) {
            return nnc_fields_bad(r, v, "$schema", "a string");
        } else if (k == n_names) {
            const char *near = nnc_nearest(v->key, names, n_names);
            return nnc_fail(r->sink, NNC_E_USAGE, nnc_json_loc(r->json, v, true),
                "%s: unknown key \"%s\"%s%s%s", r->what, v->key, near ? "; did you mean \"" : "",
                near ? near : "", near ? "\"?" : "");
        }
    }
    for (size_t i = 0; i < n; i++)
        if (fields[i].required && !nnc_json_get(obj, fields[i].name))
            return nnc_fields_missing(r, obj, fields[i].name);
    return NNC_OK;
}
