/* profile/against.c -- another profile, of a file, beside this one: its rows matched by name, and the differences in words. */
#include "base/json.h"
#include "profile/profile.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------------------- */

static double number_of(const nnc_item *o, const char *key)
{
    const nnc_item *v = nnc_json_get(o, key);
    return nnc_is_number(v) ? v->number : NAN;
}

static const char *copy_of(nnc_profile_old *p, const nnc_item *o, const char *key)
{
    const char *s = nnc_json_text(o, key);
    return nnc_arena_strdup(&p->arena, s ? s : "");
}

static nnc_status read_rows(nnc_profile_old *p, const nnc_item *rows, nnc_sink *sink)
{
    p->row = ARENA_NEW(&p->arena, nnc_profile_old_row, (size_t)rows->n + 1);
    NNC_NEED(p->row, sink);
    for (const nnc_item *v = nnc_json_first(rows); v; v = v->next) {
        nnc_profile_old_row r = {copy_of(p, v, "name"), number_of(v, "ms")};
        NNC_NEED(r.name, sink);
        if (!isfinite(r.ms))
            continue;
        if (number_of(v, "calls") != 0)
            p->row[p->n++] = r;
        else if (!strcmp(
                     r.name, "idle")) /* others without calls were gone when the file was written */
            p->idle_ms = r.ms;
    }
    return NNC_OK;
}

static nnc_status read_old(const nnc_json *j, nnc_profile_by by, nnc_profile_old *p, nnc_sink *sink)
{
    const nnc_item *rows = nnc_json_get(j->root, "rows"),
                   *predicted = nnc_json_get(j->root, "predicted");
    const char *was_by = nnc_json_text(j->root, "by");
    const double threads = number_of(j->root, "threads");
    p->wall_ms = number_of(j->root, "wall_ms");
    p->lanes = number_of(j->root, "streams");
    p->threads = threads >= 1 && threads < 1e6 ? (int)threads : 1;
    p->predicted = nnc_is_bool(predicted) && predicted->number != 0;
    p->model = copy_of(p, j->root, "model");
    p->target = copy_of(p, j->root, "target");
    NNC_NEED(p->model && p->target, sink);
    if (!nnc_is_list(rows) || !was_by || !(p->wall_ms > 0) || !(p->lanes >= 1))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--against: %s is not a profile: expected what nnc profile --format=json prints",
            p->file);
    if (strcmp(was_by, nnc_profile_by_names[by]) != 0)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--against: the rows of %s are by %s and these by %s: add --by=%s", p->file, was_by,
            nnc_profile_by_names[by], was_by);
    return read_rows(p, rows, sink);
}

nnc_status nnc_profile_read(
    const char *file, nnc_profile_by by, nnc_profile_old *out, nnc_sink *sink)
{
    nnc_json j = {0};
    *out = (nnc_profile_old){.file = file, .by = by};
    nnc_status st = nnc_json_load(&j, file, sink);
    if (!st)
        st = read_old(&j, by, out, sink);
    nnc_json_deinit(&j);
    return st;
}

/* ---- matching ---------------------------------------------------------------------------------------------- */

/* Rows of one name match in their order. Files are mostly in one order, so the search begins after the last match. */
bool nnc_profile_match(const nnc_profile_old *old, nnc_profile_rows *rows, size_t *cap)
{
    const int n = rows->n;
    int next = 0;
    for (int i = 0; i < n; i++)
        rows->row[i].was_ms = NAN;
    for (int k = 0; k < old->n; k++) {
        const nnc_profile_old_row *was = &old->row[k];
        int at = -1;
        for (int i = 0; i < n && at < 0; i++) {
            const int j = (next + i) % n;
            if (isnan(rows->row[j].was_ms) && !strcmp(rows->row[j].name, was->name))
                at = j;
        }
        if (at >= 0) {
            rows->row[at].was_ms = was->ms;
            next = at + 1;
            continue;
        }
        if (!ARENA_ROOM(&rows->arena, rows->row, *cap, (size_t)rows->n + 1))
            return false;
        rows->row[rows->n++] = (nnc_profile_row){.name = was->name,
            .shape = "",
            .engine = "",
            .op = "",
            .was_ms = was->ms,
            .first = INT32_MAX};
    }
    return true;
}

double nnc_profile_change(const nnc_profile_row *r)
{
    return r->ms - (isnan(r->was_ms) ? 0 : r->was_ms);
}

/* ---- in words ---------------------------------------------------------------------------------------------- */

static void put_change(nnc_text *out, double ms, double was, const char *name)
{
    nnc_putc(out, ms < was ? '-' : '+');
    nnc_put_ms(out, fabs(ms - was), 0);
    nnc_puts(out, " ms ");
    nnc_put_layers(out, name, 70);
    nnc_puts(out, " (");
    nnc_put_ms(out, was, 0);
    nnc_puts(out, " -> ");
    nnc_put_ms(out, ms, 0);
    nnc_puts(out, ")");
}

/* The rows whose time changed most, and the idle time if it did. */
static void put_largest(const nnc_profile *p, const nnc_profile_rows *rows, nnc_text *out)
{
    enum { LARGEST = 3 };
    const nnc_profile_row idle = {.name = "idle", .ms = p->idle_ms, .was_ms = p->old->idle_ms};
    const nnc_profile_row *most[LARGEST] = {0};
    for (int i = 0; i <= rows->n; i++) {
        const nnc_profile_row *r = i < rows->n ? &rows->row[i] : &idle;
        for (int k = 0; k < LARGEST && r; k++)
            if (!most[k] || fabs(nnc_profile_change(r)) > fabs(nnc_profile_change(most[k]))) {
                const nnc_profile_row *was = most[k];
                most[k] = r;
                r = was;
            }
    }
    nnc_puts(out, " Largest differences:");
    for (int k = 0; k < LARGEST && most[k]; k++) {
        nnc_puts(out, k ? "; " : " ");
        put_change(out, most[k]->ms, isnan(most[k]->was_ms) ? 0 : most[k]->was_ms, most[k]->name);
    }
    nnc_puts(out, ".");
}

static void put_unmatched(const nnc_profile_rows *rows, nnc_text *out)
{
    int fresh = 0, gone = 0;
    double fresh_ms = 0, gone_ms = 0;
    for (int i = 0; i < rows->n; i++) {
        const nnc_profile_row *r = &rows->row[i];
        fresh += isnan(r->was_ms);
        fresh_ms += isnan(r->was_ms) ? r->ms : 0;
        gone += !r->calls;
        gone_ms += !r->calls ? r->was_ms : 0;
    }
    if (!fresh && !gone)
        return;
    nnc_printf(out, " %d row%s new (", fresh, fresh == 1 ? " is" : "s are");
    nnc_put_ms(out, fresh_ms, 0);
    nnc_printf(out, " ms), %d %s gone (", gone, gone == 1 ? "is" : "are");
    nnc_put_ms(out, gone_ms, 0);
    nnc_puts(out, " ms).");
}

void nnc_profile_put_against(const nnc_profile *p, const nnc_profile_rows *rows, nnc_text *out)
{
    const nnc_profile_old *old = p->old;
    nnc_printf(out, "Against %s (%s on %s, %d thread%s, %s): ", old->file, old->model, old->target,
        old->threads, nnc_plural(old->threads, "s"), old->predicted ? "predicted" : "measured");
    nnc_put_ms(out, old->wall_ms, 0);
    nnc_puts(out, " ms there, ");
    nnc_put_ms(out, p->wall_ms, 0);
    nnc_puts(out, " ms here: ");
    nnc_printf(out, "%.3g times as long.", p->wall_ms / old->wall_ms);
    put_largest(p, rows, out);
    put_unmatched(rows, out);
}
