/* plan/parse.c -- parses the plan's text form by the tables of rows.c. Checks the syntax and the ranges of numbers; nnc_plan_verify
 * decides whether the plan may be executed. */
#include "plan/internal.h"
#include "plan/rows.h"
#include <math.h>
#include <string.h>

typedef struct parser {
    nnc_scan *s;
    nnc_sink *sink;
    nnc_plan *p;
} parser;

static nnc_status parse_fields(parser *r, const plan_field *of, char *row);

static nnc_status want(parser *r, const char *word)
{
    return nnc_scan_eat(r->s, word) ? NNC_OK : nnc_scan_fail(r->s, r->sink, word);
}

/* An integer between lo and hi. */
static nnc_status parse_int(parser *r, int64_t lo, int64_t hi, int64_t *out)
{
    nnc_scan before = *r->s;
    if (!nnc_scan_int(r->s, out))
        return nnc_scan_fail(r->s, r->sink, "an integer");
    if (*out >= lo && *out <= hi)
        return NNC_OK;
    return nnc_fail(r->sink, NNC_E_MODEL, nnc_scan_loc(&before),
        "%lld is out of range: %lld to %lld", (long long)*out, (long long)lo, (long long)hi);
}

static nnc_status parse_float(parser *r, float *out)
{
    double v;
    if (!nnc_scan_double(r->s, &v))
        return nnc_scan_fail(r->s, r->sink, "a number");
    *out = fabs(v) > 3.4e38 && !isinf(v) ? copysignf(INFINITY, (float)(v > 0 ? 1 : -1)) : (float)v;
    return NNC_OK;
}

static nnc_status string(parser *r, const char **out)
{
    char none[1] = "", *s = none;
    if (!nnc_scan_is(r->s, "\""))
        return nnc_scan_fail(r->s, r->sink, "a string");
    if (!nnc_scan_string(r->s, &r->p->arena, &s))
        return s ? nnc_scan_fail(r->s, r->sink, "a well-formed string") : nnc_nomem(r->sink);
    *out = s;
    return NNC_OK;
}

static nnc_status word(parser *r, const plan_field *f, int64_t *out)
{
    for (int i = 0; i <= f->hi; i++)
        if (nnc_scan_eat(r->s, f->words[i])) {
            *out = i;
            return NNC_OK;
        }
    return nnc_scan_fail(r->s, r->sink, f->key);
}

/* A flag, as opposed to a following row with the same name ("input 3"). */
static bool flag(parser *r, const char *key)
{
    nnc_scan before = *r->s;
    int64_t v;
    if (!nnc_scan_eat(r->s, key))
        return false;
    if (nnc_scan_int(r->s, &v)) {
        *r->s = before;
        return false;
    }
    return true;
}

/* Checks a weight's size against the text's length before it allocates memory. */
static nnc_status parse_bytes(parser *r, int64_t n, const void **data)
{
    bool fits = nnc_scan_is(r->s, "\"") && r->s->end - r->s->p >= 2 * n + 2;
    uint8_t *out = fits ? nnc_arena_alloc(&r->p->arena, (size_t)n + 1, 1) : NULL;
    if (fits && !out)
        return nnc_nomem(r->sink);
    *data = out;
    return fits && nnc_scan_hex(r->s, out, n)
               ? NNC_OK
               : nnc_scan_fail(r->s, r->sink, "two hex digits a byte in quotes");
}

/* Parses lines of text; the scanner is at the end of the row. */
static nnc_status parse_lines(parser *r, const char **out)
{
    NNC_LOCAL(nnc_text) t = {0};
    bool last = false;
    while (!last && nnc_scan_is(r->s, "|")) {
        const char *line = r->s->p + 2, *end = memchr(r->s->p, '\n', (size_t)(r->s->end - r->s->p));
        end = end ? end : r->s->end;
        if (line > end || (line[-1] != ' ' && line[-1] != '-') ||
            memchr(line, 0, (size_t)(end - line)))
            return nnc_scan_fail(r->s, r->sink, "kernel text after `| `");
        last = line[-1] == '-';
        nnc_putn(&t, line, (size_t)(end - line));
        if (!last)
            nnc_putc(&t, '\n');
        r->s->p = end;
    }
    *out = t.oom ? NULL : nnc_arena_strndup(&r->p->arena, nnc_text_str(&t), t.n);
    return *out ? NNC_OK : nnc_nomem(r->sink);
}

static nnc_status parse_args(parser *r, int32_t **arg, int *n)
{
    size_t cap = 0;
    int64_t v;
    NNC_TRY(want(r, "("));
    while (!nnc_scan_eat(r->s, ")")) {
        NNC_TRY(parse_int(r, 0, INT32_MAX, &v));
        NNC_NEED(ARENA_ROOM(&r->p->arena, *arg, cap, (size_t)*n + 1), r->sink);
        (*arg)[(*n)++] = (int32_t)v;
    }
    return NNC_OK;
}

static nnc_status parse_each(parser *r, const plan_field *f, char *at, int *n)
{
    while (nnc_scan_eat(r->s, f->key)) {
        if (*n == f->hi)
            return nnc_scan_fail(r->s, r->sink, "no more of them");
        NNC_TRY(parse_fields(r, f->each, at + (*n)++ * f->size));
    }
    return NNC_OK;
}

static nnc_status parse_dims(parser *r, const plan_field *f, int64_t *at, int n)
{
    for (int i = 0; i < n; i++) {
        NNC_TRY(want(r, i ? "," : f->key));
        NNC_TRY(i ? NNC_OK : want(r, "="));
        NNC_TRY(parse_int(r, f->lo, f->hi, &at[i]));
    }
    return NNC_OK;
}

static nnc_status parse_field(parser *r, const plan_field *f, char *row)
{
    void *at = row + f->at, *count = row + f->count;
    int64_t v = f->lo;
    if (f->kind == FK_int || f->kind == FK_float) {
        NNC_TRY(want(r, f->key));
        NNC_TRY(want(r, "="));
    }
    switch (f->kind) {
    case FK_int:
        NNC_TRY(parse_int(r, f->lo, f->hi, &v));
        plan_field_set(f, at, v);
        return NNC_OK;
    case FK_some:
        if (!nnc_scan_eat(r->s, f->key))
            return NNC_OK;
        NNC_TRY(want(r, "="));
        NNC_TRY(parse_int(r, 1, f->hi, &v));
        plan_field_set(f, at, v);
        return NNC_OK;
    case FK_float: return parse_float(r, at);
    case FK_string:
        if (f->key && !nnc_scan_eat(r->s, f->key))
            return NNC_OK;
        NNC_TRY(f->key ? want(r, "=") : NNC_OK);
        return string(r, at);
    case FK_word:
        NNC_TRY(word(r, f, &v));
        plan_field_set(f, at, v);
        return NNC_OK;
    case FK_flag: *(bool *)at = flag(r, f->key); return NNC_OK;
    case FK_type:
        NNC_TRY(f->key ? want(r, f->key) : NNC_OK);
        return nnc_scan_type(r->s, r->sink, at);
    case FK_dims: return parse_dims(r, f, at, *(uint8_t *)count);
    case FK_args: return parse_args(r, at, count);
    case FK_each: return parse_each(r, f, at, count);
    case FK_bytes: return parse_bytes(r, *(int64_t *)count, at);
    case FK_lines: return parse_lines(r, at);
    }
    return NNC_E_BUG;
}

static nnc_status parse_fields(parser *r, const plan_field *fields, char *row)
{
    for (const plan_field *f = fields; f->size; f++)
        if (plan_field_stands(fields, f, row))
            NNC_TRY(parse_field(r, f, row));
    return NNC_OK;
}

/* Adds a zeroed element to an array in the plan's arena. */
static nnc_status more(parser *r, void *array, size_t *cap, int n, size_t size, char **out)
{
    char *p;
    NNC_NEED(nnc_arena_room(&r->p->arena, array, cap, (size_t)n + 1, size), r->sink);
    memcpy(&p, array, sizeof p);
    *out = memset(p + (size_t)n * size, 0, size);
    return NNC_OK;
}

/* Rows of one kind, numbered from 0. */
static nnc_status parse_rows(parser *r, const plan_row *kind)
{
    int *n = (int *)(void *)((char *)r->p + kind->n_at);
    size_t cap = 0;
    int64_t v;
    char *row;
    for (; nnc_scan_eat(r->s, kind->word); ++*n) {
        NNC_TRY(parse_int(r, *n, *n, &v));
        NNC_TRY(more(r, (char *)r->p + kind->at, &cap, *n, kind->size, &row));
        NNC_TRY(parse_fields(r, kind->field, row));
    }
    return NNC_OK;
}

/* `input 3 "x"`: a tensor and its external name. */
static nnc_status parse_ports(
    parser *r, const char *key, int *n, int32_t **tensor, const char ***name)
{
    size_t cap[2] = {0};
    int64_t v;
    char *at;
    for (; nnc_scan_eat(r->s, key); ++*n) {
        NNC_TRY(more(r, tensor, &cap[0], *n, sizeof **tensor, &at));
        NNC_TRY(more(r, name, &cap[1], *n, sizeof **name, &at));
        NNC_TRY(parse_int(r, 0, INT32_MAX, &v));
        (*tensor)[*n] = (int32_t)v;
        NNC_TRY(string(r, &(*name)[*n]));
    }
    return NNC_OK;
}

static nnc_status parse_all(parser *r)
{
    nnc_plan *p = r->p;
    NNC_TRY(want(r, "plan"));
    NNC_TRY(parse_fields(r, plan_head, (char *)p));
    p->object = ARENA_NEW(&p->arena, nnc_blob, p->n_object + 1);
    NNC_NEED(p->object, r->sink);
    for (const plan_row *k = plan_rows; k->size; k++)
        NNC_TRY(parse_rows(r, k));
    NNC_TRY(parse_ports(r, "input", &p->n_input, &p->input, &p->input_name));
    NNC_TRY(parse_ports(r, "output", &p->n_output, &p->output, &p->output_name));
    return want(r, "end");
}

nnc_plan *nnc_plan_parse(nnc_scan *s, nnc_sink *sink)
{
    parser r = {s, sink, nnc_plan_create()};
    if (!r.p) {
        (void)nnc_nomem(sink);
        return NULL;
    }
    if (parse_all(&r) == NNC_OK)
        return r.p;
    nnc_plan_destroy(r.p);
    return NULL;
}
