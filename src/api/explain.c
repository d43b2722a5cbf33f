/* api/explain.c -- what the passes decided and why: a table of passes, then each pass's decisions. Decisions that differ only in their
 * layers are grouped; --verbose lists all of them. */
#include "api/internal.h"
#include "api/report_text.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_APPLIED = 24, LIST_DECLINED = 1, LAYERS = 76 };

static void print_rows(nnc_json_writer *w, const nnc_remarks *r)
{
    static const nnc_remark none = {.pass = "", .rule = ""};
    w->empty = w->csv && r->n == 0;
    nnc_json_open(w, NULL, '[');
    for (size_t i = 0; i < r->n + w->empty; i++) {
        const nnc_remark *x = w->empty ? &none : &r->at[i];
        NNC_JSON_ROW(w, 1, J_STRING("pass", x->pass),
            J_STRING("verdict", x->applied ? "applied" : "declined"), J_STRING("rule", x->rule),
            J_WORDS("layers", x->layer, x->n_layers),
            J_STRING("reason", x->reason ? x->reason : ""), J_INT("bytes_saved", x->bytes_saved),
            J_INT("launches_saved", x->launches_saved));
    }
    nnc_json_end(w, ']');
}

/* ---- groups ------------------------------------------------------------------------------------------ */

typedef struct entry {
    const nnc_remark *r;
    const char *key; /* rule, and reason with its numbers masked */
    const char *first; /* first layer */
} entry;

typedef struct group {
    size_t first, n; /* in the sorted entries */
    bool applied;
    const char *layer;
} group;

/* Masks numbers, so that "moves 6.12 MiB" and "moves 784.0 KiB" are the same reason. */
static void mask(nnc_text *t, const char *s)
{
    while (*s) {
        if (!isdigit((unsigned char)*s)) {
            nnc_putc(t, *s++);
            continue;
        }
        nnc_putc(t, '#');
        while (isdigit((unsigned char)*s) || (*s == '.' && isdigit((unsigned char)s[1])))
            s++;
        if (*s == ' ' && s[1] && strchr("KMGTP", s[1]) && s[2] == 'i' && s[3] == 'B')
            s += 4;
        else if (*s == ' ' && s[1] == 'B' && !isalnum((unsigned char)s[2]))
            s += 2;
    }
}

static int by_key(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->r->applied != y->r->applied)
        return x->r->applied ? -1 : 1;
    int c = strcmp(x->key, y->key);
    if (!c)
        c = nnc_compare_paths(x->first, y->first);
    return c ? c : (x->r > y->r) - (x->r < y->r);
}

static int by_layer(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->applied != y->applied)
        return x->applied ? -1 : 1;
    int c = nnc_compare_paths(x->layer, y->layer);
    return c ? c : (x->first > y->first) - (x->first < y->first);
}

static bool enter(entry *e, const nnc_remark *r, nnc_arena *a)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t, "%s\n", r->rule);
    mask(&t, r->reason ? r->reason : "");
    *e = (entry){r, nnc_arena_strdup(a, nnc_text_str(&t)), r->n_layers ? r->layer[0] : ""};
    return !t.oom && e->key;
}

static size_t make_groups(const entry *e, size_t n, group *g)
{
    size_t n_group = 0;
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && e[j].r->applied == e[i].r->applied; j++)
            if (strcmp(e[j].key, e[i].key))
                break;
        g[n_group++] = (group){i, j - i, e[i].r->applied, e[i].first};
    }
    qsort(g, n_group, sizeof *g, by_layer);
    return n_group;
}

/* ---- text -------------------------------------------------------------------------------------------- */

static void put_where(nnc_text *t, const nnc_remark *r, int width)
{
    NNC_LOCAL(nnc_text) all = {0};
    for (int i = 0; i < r->n_layers; i++)
        nnc_printf(&all, "%s%s", i ? "+" : "", r->layer[i]);
    nnc_put_layers_column(t, nnc_text_str(&all), width);
    t->oom |= all.oom;
}

static void put_member(nnc_text *t, const nnc_remark *r)
{
    bool saves = r->applied && (r->bytes_saved || r->launches_saved);
    nnc_puts(t, "         ");
    put_where(t, r, LAYERS);
    if (saves && r->launches_saved)
        nnc_printf(t, "  %+3lld launch%-2s", (long long)-r->launches_saved,
            nnc_plural(r->launches_saved, "es"));
    else if (saves)
        nnc_printf(t, "%14s", "");
    if (saves && r->bytes_saved)
        nnc_put_bytes_column(t, -r->bytes_saved, 12, true);
    nnc_trim(t);
    nnc_putc(t, '\n');
}

/* Equal lines, as of an optimizer's many weights, once with their number. */
static void put_members(nnc_text *t, const entry *e, size_t n)
{
    for (size_t i = 0, times; i < n; i += times) {
        NNC_LOCAL(nnc_text) line = {0};
        put_member(&line, e[i].r);
        bool same = true;
        for (times = 1; same && i + times < n; times += same) {
            NNC_LOCAL(nnc_text) next = {0};
            put_member(&next, e[i + times].r);
            t->oom |= next.oom;
            same = !strcmp(nnc_text_str(&line), nnc_text_str(&next));
        }
        t->oom |= line.oom;
        nnc_puts(t, nnc_text_str(&line));
        if (times == 1 || !t->n)
            continue;
        t->n--; /* the line's end */
        nnc_printf(t, "  (%zu times)\n", times);
    }
}

static void put_group(nnc_text *t, const entry *e, const group *g, bool verbose)
{
    const nnc_remark *r = e[g->first].r;
    size_t shown = verbose ? g->n : g->applied ? LIST_APPLIED : LIST_DECLINED;
    bool alike = true;
    NNC_LOCAL(nnc_text) line = {0};
    for (size_t i = 0; i < g->n; i++)
        alike &= !strcmp(e[g->first + i].r->reason, r->reason);
    nnc_printf(&line, "%s", r->rule);
    if (g->n > 1)
        nnc_printf(&line, " (%zu times%s)", g->n, alike ? "" : "; numbers of the first");
    nnc_printf(&line, ": %s", r->reason);
    nnc_printf(t, "  %s  ", g->applied ? "yes" : "no ");
    nnc_put_wrapped(t, nnc_text_str(&line), 7, 7, REPORT_WIDTH);
    nnc_putc(t, '\n');
    t->oom |= line.oom;
    if (g->n <= shown + 1) /* "1 more" would take the same line */
        shown = g->n;
    put_members(t, e + g->first, shown);
    if (g->n > shown) {
        nnc_printf(t, "         and %zu more, the last: ", g->n - shown);
        put_where(t, e[g->first + g->n - 1].r, 1);
        nnc_putc(t, '\n');
    }
}

static nnc_status put_pass(nnc_text *t, const nnc_remarks *r, const char *pass, bool verbose)
{
    NNC_LOCAL(nnc_arena) a = {0};
    entry *e = ARENA_NEW(&a, entry, r->n);
    group *g = ARENA_NEW(&a, group, r->n);
    size_t n = 0;
    if (!e || !g)
        return NNC_E_NOMEM;
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->at[i].pass, pass) && !enter(&e[n++], &r->at[i], &a))
            return NNC_E_NOMEM;
    qsort(e, n, sizeof *e, by_key);
    size_t n_group = make_groups(e, n, g);
    for (size_t i = 0; i < n_group; i++)
        put_group(t, e, &g[i], verbose);
    return NNC_OK;
}

typedef struct totals {
    int applied, declined;
    int64_t bytes, launches;
} totals;

static totals sum(const nnc_remarks *r, const char *pass)
{
    totals s = {0};
    for (size_t i = 0; i < r->n; i++) {
        if (pass && strcmp(r->at[i].pass, pass))
            continue;
        r->at[i].applied ? s.applied++ : s.declined++;
        if (!r->at[i].applied)
            continue;
        s.bytes = nnc_add_sat(s.bytes, r->at[i].bytes_saved); /* an artifact may hold any numbers */
        s.launches = nnc_add_sat(s.launches, r->at[i].launches_saved);
    }
    s.bytes = nnc_max64(s.bytes, -INT64_MAX); /* both numbers are negated later */
    s.launches = nnc_max64(s.launches, -INT64_MAX);
    return s;
}

static void put_totals(nnc_text *t, const char *name, totals s)
{
    nnc_printf(t, "  %-16s%8d%10d", name, s.applied, s.declined);
    if (s.launches)
        nnc_printf(t, "%+11lld", (long long)-s.launches);
    else
        nnc_printf(t, "%11s", s.bytes ? "0" : "");
    if (s.bytes || s.launches)
        nnc_put_bytes_column(t, -s.bytes, 14, true);
    nnc_trim(t);
    nnc_putc(t, '\n');
}

/* The passes in order, then the decisions of lowering. */
static const nnc_pass_info *stage(int i)
{
    return i < nnc_pass_count    ? &nnc_pass_table[i]
           : i == nnc_pass_count ? &nnc_kernel_remarks
                                 : &nnc_chunk_notes;
}

static nnc_status print_text(nnc_text *t, const nnc_artifact *a, bool verbose)
{
    const nnc_remarks *r = &a->remarks;
    nnc_graph *part = nnc_chunks_source(a);
    nnc_cost before = nnc_graph_cost(part ? part : a->source), after = nnc_graph_cost(a->graph);
    nnc_graph_destroy(part);
    nnc_printf(t, "%s at -O%d: %d -> %d launches, ", a->source->name, a->options->level,
        before.launches, after.launches);
    nnc_put_bytes(t, before.bytes);
    nnc_puts(t, " -> ");
    nnc_put_bytes(t, after.bytes);
    nnc_puts(t, a->chunks > 1 ? " moved per chunk\n" : " moved per run\n");
    for (int d = 0; nnc_several_targets(a->plan) && d < a->plan->n_device; d++) {
        nnc_puts(t, d ? ", " : "on ");
        nnc_put_device(t, a->plan, d);
        nnc_puts(t, d == a->plan->n_device - 1 ? "\n" : "");
    }
    if (!r->n) {
        nnc_puts(t,
            a->options->level ? "\nNo pass had anything to decide.\n" : "\nAt -O0 no pass runs.\n");
        return NNC_OK;
    }
    nnc_puts(t, "\n  pass             applied  declined   launches         moved\n");
    for (int p = 0; p < nnc_pass_count + 2; p++) {
        totals s = sum(r, stage(p)->name);
        if (s.applied || s.declined)
            put_totals(t, stage(p)->name, s);
    }
    put_totals(t, "all", sum(r, NULL));
    for (int p = 0; p < nnc_pass_count + 2; p++) {
        totals s = sum(r, stage(p)->name);
        if (!s.applied && !s.declined)
            continue;
        nnc_printf(t, "\n%s -- %s\n", stage(p)->name, stage(p)->doc);
        NNC_TRY(put_pass(t, r, stage(p)->name, verbose));
    }
    return NNC_OK;
}

nnc_status nnc_report_explain(const nnc_artifact *a, nnc_format f, bool verbose, nnc_text *t)
{
    nnc_json_writer w = {.out = t, .csv = f == NNC_CSV};
    if (f != NNC_TEXT)
        print_rows(&w, &a->remarks);
    else
        NNC_TRY(print_text(t, a, verbose));
    return t->oom ? NNC_E_NOMEM : NNC_OK;
}
