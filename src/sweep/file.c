/* sweep/file.c -- a sweep as JSON: the report, and the file that a sweep is continued from. */
#include "base/fields.h"
#include "sweep/sweep.h"
#include <math.h>
#include <string.h>

#define P(field) offsetof(nnc_sweep_row, p.field)
/* Numbers of a row, in the order in which they are written. */
static const struct {
    const char *name;
    bool real; /* a double, NaN as null; otherwise int64_t */
    size_t at;
} numbers[] = {
    {"median_ms", true, P(median_ms)},
    {"best_ms", true, P(best_ms)},
    {"p25_ms", true, P(low_ms)},
    {"p75_ms", true, P(high_ms)},
    {"roofline_ms", true, P(limit_ms)},
    {"compile_ms", true, P(compile_ms)},
    {"cpu_share", true, P(cpu_share)},
    {"launches", false, P(launches)},
    {"flops", false, P(flops)},
    {"bytes_moved", false, P(bytes)},
    {"chunks", false, P(chunks)},
    {"memory_bytes", false, P(need)},
    {"room_bytes", false, P(room)},
};
enum { NUMBERS = NNC_COUNT(numbers), OTHERS = 10 };

static const char *text_or(const char *text, const char *otherwise)
{
    return text ? text : otherwise;
}

/* An integer beyond 2^53 is written as a real number: JSON's integers end there. */
static nnc_json_member number_member(const nnc_sweep_row *r, int i)
{
    const void *at = (const char *)r + numbers[i].at;
    if (numbers[i].real)
        return (nnc_json_member)J_REAL(
            numbers[i].name, nnc_decimals(*(const double *)at, 9)); /* ps */
    const int64_t v = *(const int64_t *)at;
    return v < INT64_C(1) << 53 ? (nnc_json_member)J_INT(numbers[i].name, v)
                                : (nnc_json_member)J_REAL(numbers[i].name, (double)v);
}

static void put_row(const nnc_sweep *s, const nnc_sweep_row *r, nnc_json_writer *w)
{
    const nnc_sweep_point *p = &r->p;
    nnc_json_member m[NUMBERS + OTHERS] = {J_INT("size", r->size),
        J_STRING("series", s->o->series[r->series].name),
        J_STRING("kind", nnc_sweep_kind_names[p->kind]), J_INT("runs", p->runs)};
    const nnc_json_member last[] = {J_REAL("gflop_s", nnc_decimals(nnc_sweep_gflops(p), 6)),
        J_REAL("gb_s", nnc_decimals(nnc_sweep_gbs(p), 6)),
        J_STRING("limit", p->limit_ms > 0 ? nnc_level_names[p->bound] : ""),
        J_STRING("room_by", text_or(p->room_by, "")), J_STRING("message", text_or(p->message, "")),
        J_STRING("model", r->model)};
    for (int i = 0; i < NUMBERS; i++)
        m[OTHERS - (int)NNC_COUNT(last) + i] = number_member(r, i);
    memcpy(&m[NUMBERS + OTHERS - NNC_COUNT(last)], last, sizeof last);
    nnc_json_row(w, 2, m, NNC_COUNT(m));
}

static void put_crossings(const nnc_sweep *s, nnc_json_writer *w)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_sweep_series *of = s->o->series;
    nnc_json_open(w, "crossovers", '[');
    for (int i = 0; i < s->o->n_series && !w->csv; i++)
        for (int k = i + 1; k < s->o->n_series; k++) {
            nnc_crossing *x;
            const int n = nnc_sweep_cross(s, i, k, &x, &a);
            w->out->oom |= n < 0;
            for (int j = 0; j < n; j++)
                NNC_JSON_ROW(w, 2, J_STRING("faster", of[x[j].faster].name),
                    J_STRING("slower", of[x[j].slower].name), J_INT("from", x[j].from),
                    J_INT("to", x[j].to), J_REAL("times", nnc_decimals(x[j].times, 4)),
                    J_REAL("crossing", nnc_decimals(x[j].at, 3)));
        }
    nnc_json_close(w, ']');
}

void nnc_sweep_json(const nnc_sweep *s, nnc_json_writer *w)
{
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("model", text_or(s->model, "")), J_STRING("arg", s->o->sizes.name),
        J_STRING("version", nnc_version()), J_STRING("flags", s->o->flags),
        J_BOOL("complete", s->complete));
    nnc_json_open_at(w, 1, "series", '[');
    for (int i = 0; i < s->o->n_series && !w->csv; i++)
        NNC_JSON_ROW(w, 2, J_STRING("name", s->o->series[i].name),
            J_STRING("machine", s->machine[i]), J_BOOL("predicted", s->o->series[i].predict));
    nnc_json_close(w, ']');
    nnc_json_line(w, 1);
    put_crossings(s, w);
    nnc_json_open_at(w, 1, "rows", '[');
    if (w->csv && !s->n) { /* the names of the columns */
        w->empty = true;
        put_row(s, &(nnc_sweep_row){0}, w);
    }
    for (int i = 0; i < s->n; i++)
        put_row(s, &s->row[i], w);
    nnc_json_close(w, ']');
    nnc_json_end(w, '}');
}

/* ---- reading --------------------------------------------------------------------------------------------- */

typedef struct reading {
    nnc_sweep *s;
    nnc_json json;
    nnc_field_reader r;
} reading;

static nnc_status differs(
    const reading *f, const nnc_item *at, const char *what, const char *was, const char *is)
{
    return nnc_fail(f->r.sink, NNC_E_USAGE, nnc_json_loc(&f->json, at, false),
        "its rows have %s `%s`, and this sweep has `%s`: give -o another file, or remove this one",
        what, was, is);
}

static nnc_status same_text(const reading *f, const nnc_item *of, const char *key, const char *is)
{
    const nnc_item *v = nnc_json_get(of, key);
    if (!nnc_is_string(v))
        return v ? nnc_fields_bad(&f->r, v, key, "a string") : nnc_fields_missing(&f->r, of, key);
    return !strcmp(v->text, is) ? NNC_OK : differs(f, v, key, v->text, is);
}

static nnc_status check_series(const reading *f, const nnc_item *list)
{
    const nnc_sweep_options *o = f->s->o;
    if (!nnc_is_list(list))
        return nnc_fields_missing(&f->r, f->json.root, "series");
    const nnc_item *at = list->child;
    for (int i = 0; i < o->n_series; i++, at = at->next) {
        if (!at)
            return differs(f, list, "series up to", i ? o->series[i - 1].name : "none",
                o->series[o->n_series - 1].name);
        NNC_TRY(same_text(f, at, "name", o->series[i].name));
        NNC_TRY(same_text(f, at, "machine", f->s->machine[i]));
    }
    return at ? differs(f, at, "further series", text_or(nnc_json_text(at, "name"), ""), "none")
              : NNC_OK;
}

static nnc_status read_text(
    const reading *f, const nnc_item *row, const char *key, const char **out)
{
    const char *text = nnc_json_text(row, key);
    if (!text)
        return nnc_fields_missing(&f->r, row, key);
    *out = *text ? nnc_arena_strdup(&f->s->arena, text) : NULL;
    NNC_NEED(*out || !*text, f->r.sink);
    return NNC_OK;
}

/* The place of a text among n names, of which each is so many bytes after the last; an error where no name is equal. */
static nnc_status read_choice(const reading *f, const nnc_item *row, const char *key,
    const void *names, size_t bytes, int n, int *out)
{
    const char *text = nnc_json_text(row, key), *at = names;
    for (*out = 0; text && *out < n; ++*out, at += bytes)
        if (!strcmp(text, *(const char *const *)(const void *)at))
            return NNC_OK;
    return text ? nnc_fields_bad(&f->r, nnc_json_get(row, key), key, "one that the sweep has")
                : nnc_fields_missing(&f->r, row, key);
}

static nnc_status read_numbers(const reading *f, const nnc_item *item, nnc_sweep_row *row)
{
    for (int i = 0; i < NUMBERS; i++) {
        const nnc_item *v = nnc_json_get(item, numbers[i].name);
        char *at = (char *)row + numbers[i].at;
        const bool null = numbers[i].real && nnc_is_kind(v, NNC_JSON_null);
        if (!v)
            return nnc_fields_missing(&f->r, item, numbers[i].name);
        if (!null && (!nnc_is_number(v) || v->number < 0 || v->number > 9.3e18))
            return nnc_fields_bad(&f->r, v, numbers[i].name, "a number");
        if (numbers[i].real)
            *(double *)(void *)at = null ? NAN : v->number;
        else
            *(int64_t *)(void *)at = v->number < 9.2e18 ? (int64_t)v->number : INT64_MAX;
    }
    return NNC_OK;
}

static nnc_status read_row(const reading *f, const nnc_item *item)
{
    nnc_sweep *s = f->s;
    nnc_sweep_row row = {0};
    const char *hash = NULL, *limit = nnc_json_text(item, "limit");
    int kind, level = 0;
    const nnc_item *size = nnc_json_get(item, "size"), *runs = nnc_json_get(item, "runs");
    if (!nnc_is_number(size) || fabs(size->number) > 9e15)
        return nnc_fields_bad(&f->r, size ? size : item, "size", "a number");
    if (!nnc_is_number(runs) || runs->number < 0 || runs->number > 1e9)
        return nnc_fields_bad(&f->r, runs ? runs : item, "runs", "a number");
    row.size = (int64_t)size->number;
    row.p.runs = (int)runs->number;
    NNC_TRY(read_choice(
        f, item, "series", &s->o->series->name, sizeof *s->o->series, s->o->n_series, &row.series));
    NNC_TRY(read_choice(
        f, item, "kind", nnc_sweep_kind_names, sizeof *nnc_sweep_kind_names, SWEEP__COUNT, &kind));
    if (!limit || *limit) /* "": its least time is not known */
        NNC_TRY(read_choice(
            f, item, "limit", nnc_level_names, sizeof *nnc_level_names, LEVEL__COUNT, &level));
    NNC_TRY(read_numbers(f, item, &row));
    NNC_TRY(read_text(f, item, "room_by", &row.p.room_by));
    NNC_TRY(read_text(f, item, "message", &row.p.message));
    NNC_TRY(read_text(f, item, "model", &hash));
    row.p.kind = (nnc_sweep_kind)kind;
    row.p.bound = (roof_level)level;
    nnc_snprintf(row.model, sizeof row.model, "%s", text_or(hash, ""));
    if (row.p.kind == SWEEP_failed) /* it is tried again */
        return NNC_OK;
    if (nnc_sweep_find(s, row.size, row.series))
        return nnc_fields_bad(&f->r, size, "size", "each row once");
    return nnc_sweep_add(s, &row, f->r.sink);
}

static nnc_status read_all(reading *f)
{
    const nnc_item *root = f->json.root;
    if (!nnc_is_object(root))
        return nnc_fields_bad(&f->r, root, "sweep", "an object");
    NNC_TRY(same_text(f, root, "arg", f->s->o->sizes.name));
    NNC_TRY(same_text(f, root, "version", nnc_version()));
    NNC_TRY(same_text(f, root, "flags", f->s->o->flags));
    NNC_TRY(check_series(f, nnc_json_get(root, "series")));
    const nnc_item *rows = nnc_json_get(root, "rows");
    if (!nnc_is_list(rows))
        return nnc_fields_missing(&f->r, root, "rows");
    for (const nnc_item *at = rows->child; at; at = at->next)
        NNC_TRY(read_row(f, at));
    return NNC_OK;
}

nnc_status nnc_sweep_read(nnc_sweep *s, const char *file, nnc_sink *sink)
{
    reading f = {.s = s};
    f.r = (nnc_field_reader){&f.json, "sweep", &s->arena, sink};
    nnc_status st = nnc_json_load(&f.json, file, sink);
    if (!st)
        st = read_all(&f);
    nnc_json_deinit(&f.json);
    return st;
}
