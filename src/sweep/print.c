/* sweep/print.c -- a sweep as text, with JSON and CSV by file.c. */
#include "sweep/sweep.h"
#include <math.h>

/* Facts about the columns of one row, and which are worth a column in this sweep. */
typedef struct columns {
    int series, chunks;
    bool spread, limit;
} columns;

static columns columns_of(const nnc_sweep *s)
{
    columns c = {0};
    for (int i = 0; i < s->o->n_series && s->o->n_series > 1; i++)
        c.series = (int)nnc_max64(c.series, (int64_t)strlen(s->o->series[i].name) + 2);
    for (int i = 0; i < s->n; i++) {
        c.spread = c.spread || s->row[i].p.kind == SWEEP_measured;
        c.limit = c.limit || s->row[i].p.limit_ms > 0;
        c.chunks = s->row[i].p.chunks > 1 ? 8 : c.chunks;
    }
    return c;
}

static void put_head(const nnc_sweep *s, columns c, nnc_text *t)
{
    nnc_printf(t, "%10s", s->o->sizes.name);
    if (c.series)
        nnc_printf(t, "  %-*s", c.series, "series");
    nnc_printf(t, "%10s", "ms");
    if (c.spread)
        nnc_puts(t, "  quartiles");
    nnc_printf(t, "%10s%9s", "GFLOP/s", "GB/s");
    if (c.limit)
        nnc_printf(t, "%8s %-10s", "limit", "of");
    nnc_printf(t, "%9s", "launches");
    if (c.chunks)
        nnc_printf(t, "%*s", c.chunks, "chunks");
    nnc_printf(t, "%13s\n", "memory");
}

static void put_rate(nnc_text *t, double v, int width)
{
    if (!(v > 0))
        nnc_printf(t, "%*s", width, "-");
    else
        nnc_printf(t, "%*.*f", width, v < 10 ? 3 : 1, v);
}

static void put_times(const nnc_sweep_point *p, columns c, nnc_text *t)
{
    nnc_put_ms(t, p->median_ms, 10);
    if (c.spread && p->kind == SWEEP_measured)
        nnc_printf(t, " %+4.0f %+3.0f %%", 100 * (p->low_ms / p->median_ms - 1),
            100 * (p->high_ms / p->median_ms - 1));
    else if (c.spread)
        nnc_puts(t, "           ");
    put_rate(t, nnc_sweep_gflops(p), 10);
    put_rate(t, nnc_sweep_gbs(p), 9);
    if (c.limit && p->limit_ms > 0)
        nnc_printf(
            t, "%6.0f %% %-10s", 100 * p->limit_ms / p->median_ms, nnc_level_names[p->bound]);
    else if (c.limit)
        nnc_printf(t, "%8s %-10s", "-", "");
    nnc_printf(t, "%9lld", (long long)p->launches);
    if (c.chunks)
        nnc_printf(t, "%*lld", c.chunks, (long long)p->chunks);
    nnc_put_bytes_column(t, p->need, 13, false);
    if (p->cpu_share < NNC_BUSY)
        nnc_printf(t, "  other programs had the CPU for %.0f %%", 100 * (1 - p->cpu_share));
    if (p->kind == SWEEP_measured && p->limit_ms > NNC_TOO_FAST * p->median_ms)
        nnc_puts(t, "  faster than the limit: its rates were measured while the machine was busy");
    if (p->kind == SWEEP_predicted)
        nnc_printf(t, "  predicted%s%s", p->message ? ": " : "", p->message ? p->message : "");
}

static void put_row(const nnc_sweep *s, const nnc_sweep_row *r, columns c, bool again, nnc_text *t)
{
    NNC_LOCAL(nnc_text) line = {.into = t};
    const nnc_sweep_point *p = &r->p;
    if (again)
        nnc_printf(&line, "%10s", "");
    else
        nnc_printf(&line, "%10lld", (long long)r->size);
    if (c.series)
        nnc_printf(&line, "  %-*s", c.series, s->o->series[r->series].name);
    if (p->median_ms > 0)
        put_times(p, c, &line);
    else if (p->kind == SWEEP_no_fit && p->need > p->room && p->message)
        nnc_printf(&line, "  does not fit: it %s: %lld bytes are lacking", p->message,
            (long long)(p->need - p->room));
    else
        nnc_printf(&line, "  %s: %s", nnc_sweep_kind_names[p->kind], p->message ? p->message : "");
    nnc_trim(&line);
    nnc_puts(t, nnc_text_str(&line));
    nnc_putc(t, '\n');
}

static void put_machines(const nnc_sweep *s, nnc_text *t)
{
    bool equal = true;
    for (int i = 1; i < s->o->n_series; i++)
        equal = equal && !strcmp(s->machine[i], s->machine[0]);
    for (int i = 0; i < (equal ? 1 : s->o->n_series); i++) {
        nnc_puts(t, equal ? " on " : i ? "; " : ", ");
        if (!equal)
            nnc_printf(t, "%s on ", s->o->series[i].name);
        nnc_puts(t, s->machine[i]);
    }
    nnc_puts(t, "\n\n");
}

static void print_text(const nnc_sweep *s, nnc_text *t)
{
    NNC_LOCAL(nnc_text) said = {.into = t};
    const columns c = columns_of(s);
    nnc_printf(t, "%s over %s", s->model ? s->model : "", s->o->sizes.name);
    put_machines(s, t);
    put_head(s, c, t);
    for (int i = 0; i < s->n; i++)
        put_row(s, &s->row[i], c, i && s->row[i].size == s->row[i - 1].size, t);
    nnc_sweep_say(s, &said);
    if (said.n)
        nnc_printf(t, "\n%s", nnc_text_str(&said));
    if (!s->complete)
        nnc_printf(t, "\nInterrupted: %d of %d rows%s.\n", nnc_sweep_made(s),
            s->o->sizes.n * s->o->n_series,
            s->o->file ? "; the same command makes the others" : "");
}

void nnc_sweep_print(const nnc_sweep *s, nnc_format f, nnc_text *out)
{
    nnc_json_writer w = {.out = out, .csv = f == NNC_CSV};
    if (f == NNC_TEXT)
        print_text(s, out);
    else
        nnc_sweep_json(s, &w);
}
