/* report/explain.c -- what the passes decided and why: a table of passes, then each pass's decisions. Decisions for the same reason are one
 * group. Those of layers that differ in numbers, as repeated layers do, are one row with ranges, a count and a sum. --verbose lists
 * each. */
#include "report/report.h"
#include "session/session.h"
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"
enum { ROWS_APPLIED = 6, ROWS_DECLINED = 1, ROWS_KEPT = 16, LAYERS = 76 };

/* The length of a target's name, without its number. */
static size_t name_length(const char *target)
{
    return strcspn(target, "#");
}

/* Is device d the first of its kind, with libraries that the plan was made for? */
static bool has_libraries(const nnc_plan *p, int d)
{
    const nnc_plan_device *x = &p->device[d], *last = d ? x - 1 : NULL;
    return x->libraries && !(last && last->libraries && !strcmp(last->libraries, x->libraries) &&
                               name_length(last->target) == name_length(x->target) &&
                               !strncmp(last->target, x->target, name_length(x->target)));
}

static void put_libraries(nnc_text *t, const nnc_plan_device *d)
{
    nnc_printf(t, "planned for %.*s with %s", (int)name_length(d->target), d->target, d->libraries);
}

/* The plan's libraries have a row each, before the decisions that follow from them. */
static void print_rows(nnc_json_writer *w, const nnc_remarks *r, const nnc_plan *p)
{
    static const nnc_remark none = {.pass = "", .rule = ""};
    size_t rows = r->n;
    nnc_json_open(w, NULL, '[');
    for (int d = 0; d < p->n_device; d++) {
        NNC_LOCAL(nnc_text) why = {.into = w->out};
        if (!has_libraries(p, d))
            continue;
        put_libraries(&why, &p->device[d]);
        nnc_put_remark_json(w, &(nnc_remark){.pass = "target",
                                   .applied = true,
                                   .rule = "libraries",
                                   .reason = nnc_text_str(&why)});
        rows++;
    }
    w->empty = w->csv && rows == 0;
    if (w->empty)
        nnc_put_remark_json(w, &none);
    for (size_t i = 0; i < r->n; i++)
        nnc_put_remark_json(w, &r->at[i]);
    nnc_json_end(w, ']');
}

/* ---- groups ------------------------------------------------------------------------------------------ */

typedef struct entry {
    const nnc_remark *r;
    const char *
        key; /* reason with its numbers masked; rule, or, unless verbose, their layers and ops masked, too */
    const char *row; /* rule, and layers with their runs of digits masked */
    const char *layers; /* joined by '+' */
    const char *first; /* first layer */
} entry;

typedef struct group {
    size_t first, n; /* in the sorted entries */
    bool applied;
    const char *layer;
} group;

/* Masks a number, so that "moves 6.12 MiB" and "moves 784.0 KiB" are the same reason; returns what comes after it. */
static const char *mask_number(nnc_text *t, const char *s)
{
    nnc_putc(t, '#');
    while (isdigit((unsigned char)*s) || (*s == '.' && isdigit((unsigned char)s[1])))
        s++;
    if (*s == ' ' && s[1] && strchr("KMGTP", s[1]) && s[2] == 'i' && s[3] == 'B')
        return s + 4;
    return *s == ' ' && s[1] == 'B' && !isalnum((unsigned char)s[2]) ? s + 2 : s;
}

/* Length of the ops "conv+relu+..." that s begins with; 0: it begins with another word. */
static size_t ops_at(const char *s)
{
    size_t n = 0;
    for (;;) {
        const size_t word = strspn(s + n, "abcdefghijklmnopqrstuvwxyz_0123456789");
        nnc_op op;
        if (!word || (!nnc_op_parse(s + n, word, &op)))
            return n && !strncmp(s + n, "...", 3) ? n + 3 : n ? n - 1 : 0;
        n += word;
        if (s[n] != '+')
            return n;
        n++;
    }
}

static void mask(nnc_text *t, const char *s, bool names)
{
    for (const char *begin = s; *s;) {
        const bool word = s == begin || !isalnum((unsigned char)s[-1]);
        const size_t ops = names && word ? ops_at(s) : 0;
        if (ops) {
            nnc_putc(t, '*');
            s += ops;
        } else if (names && word && *s == '/' && isalpha((unsigned char)s[1])) {
            nnc_putc(t, '/');
            s += strcspn(s, " ,;");
        } else if (isdigit((unsigned char)*s)) {
            s = mask_number(t, s);
        } else {
            nnc_putc(t, *s++);
        }
    }
}

/* Each run of digits as 0: equal for layers that put_ranges walks side by side. "1.2" is two runs. */
static void mask_digits(nnc_text *t, const char *s)
{
    while (*s) {
        const size_t run = strspn(s, DIGITS);
        nnc_putc(t, run ? '0' : *s);
        s += run ? run : 1;
    }
}

NNC_ORDER(by_key, entry, b->r->applied - a->r->applied, strcmp(a->key, b->key),
    nnc_compare_paths(a->first, b->first), (a->r > b->r) - (a->r < b->r))

NNC_ORDER(by_row, entry, strcmp(a->row, b->row), nnc_compare_paths(a->first, b->first))

NNC_ORDER(by_layer, group, b->applied - a->applied, nnc_compare_paths(a->layer, b->layer),
    (a->first > b->first) - (a->first < b->first))

static bool enter(entry *e, const nnc_remark *r, bool verbose, nnc_arena *a)
{
    NNC_LOCAL(nnc_text) key = {0}, row = {0}, layers = {0};
    verbose ? nnc_puts(&key, r->rule) : mask(&key, r->rule, true);
    nnc_putc(&key, '\n');
    mask(&key, r->reason ? r->reason : "", !verbose);
    for (int i = 0; i < r->n_layers; i++)
        nnc_printf(&layers, "%s%s", i ? "+" : "", r->layer[i]);
    nnc_printf(&row, "%s\n", r->rule);
    mask_digits(&row, nnc_text_str(&layers));
    *e =
        (entry){r, nnc_arena_strdup(a, nnc_text_str(&key)), nnc_arena_strdup(a, nnc_text_str(&row)),
            nnc_arena_strdup(a, nnc_text_str(&layers)), r->n_layers ? r->layer[0] : ""};
    return !key.oom && !row.oom && !layers.oom && e->key && e->row && e->layers;
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

/* Decisions of one row: of a rule, about layers that differ in numbers only. */
typedef struct row {
    const entry *e;
    size_t n;
    int64_t bytes, launches, kept;
} row;

static row row_of(const entry *e, size_t n)
{
    row r = {.e = e, .n = n};
    for (size_t i = 0; i < n; i++) {
        r.bytes = nnc_add_sat(r.bytes, e[i].r->bytes_saved);
        r.launches = nnc_add_sat(r.launches, e[i].r->launches_saved);
        r.kept = nnc_add_sat(r.kept, e[i].r->bytes_kept);
    }
    r.bytes = nnc_max64(
        r.bytes, -INT64_MAX); /* both numbers are negated later; an artifact may hold any */
    r.launches = nnc_max64(r.launches, -INT64_MAX);
    return r;
}

/* The layers of all decisions, equal but for runs of digits, with ranges where these differ: "/layers/0..4/conv1..5[0..2]/0/conv". */
static void put_ranges(nnc_text *t, const row *r)
{
    const char **at = nnc_calloc(r->n, sizeof *at);
    for (size_t i = 0; at && i < r->n; i++)
        at[i] = r->e[i].layers;
    while (at && *at[0]) {
        if (!isdigit((unsigned char)*at[0])) {
            nnc_putc(t, *at[0]);
            for (size_t i = 0; i < r->n; i++)
                at[i]++;
            continue;
        }
        const char *first = at[0];
        long long least = LLONG_MAX, most = 0;
        for (size_t i = 0; i < r->n; i++) {
            char *end;
            const long long v = strtoll(at[i], &end, 10);
            least = v < least ? v : least;
            most = v > most ? v : most;
            at[i] = end;
        }
        if (least < most)
            nnc_printf(t, "%lld..%lld", least, most);
        else
            nnc_putn(t, first, (size_t)(at[0] - first)); /* with its zeros in front */
    }
    t->oom |= !at;
    nnc_free(at);
}

static void put_saved(nnc_text *t, const row *r)
{
    if (r->launches)
        nnc_printf(
            t, "  %+3lld launch%-2s", (long long)-r->launches, nnc_plural(r->launches, "es"));
    else if (r->bytes)
        nnc_printf(t, "%14s", "");
    if (r->bytes)
        nnc_put_bytes_column(t, -r->bytes, 12, true);
    nnc_trim(t);
    nnc_putc(t, '\n');
}

/* Prints the text before the layers: "27x relu computed again (8.5 MiB): ". */
static void put_label(nnc_text *t, const row *r, bool rules)
{
    if (r->n > 1)
        nnc_printf(t, "%zux", r->n);
    if (rules)
        nnc_printf(t, "%s%s", r->n > 1 ? " " : "", r->e->r->rule);
    if (r->kept) {
        nnc_puts(t, r->n > 1 || rules ? " (" : "(");
        nnc_put_bytes(t, r->kept);
        nnc_putc(t, ')');
    }
    if (rules)
        nnc_putc(t, ':');
}

static void put_blanks(nnc_text *t, size_t from, int width)
{
    while (!t->oom && t->n < from + (size_t)width)
        nnc_putc(t, ' ');
}

/* Appends a row; layers that are too long for the line get their own. rules: those of the group differ. more: decisions of the group that
 * are not listed. */
static void put_row(nnc_text *t, const row *r, bool rules, size_t more)
{
    NNC_LOCAL(nnc_text) ranges = {.into = t}, layers = {.into = t}, label = {.into = t};
    put_label(&label, r, rules);
    put_ranges(&ranges, r);
    nnc_put_layers(&layers, nnc_text_str(&ranges), LAYERS);
    if (more)
        nnc_printf(&layers, ", and %zu more", more);
    nnc_puts(t, "         ");
    const size_t from = t->n;
    nnc_putn(t, nnc_text_str(&label), label.n);
    const size_t width = r->bytes || r->launches ? LAYERS : REPORT_WIDTH - 9;
    const bool apart = label.n && label.n + 1 + layers.n > width;
    if (!apart)
        nnc_printf(t, "%s%s", label.n ? " " : "", nnc_text_str(&layers));
    put_blanks(t, from, LAYERS);
    put_saved(t, r);
    if (apart)
        nnc_printf(t, "             %s\n", nnc_text_str(&layers));
}

static void put_title(nnc_text *t, const entry *e, const group *g, bool rules)
{
    const nnc_remark *r = e[g->first].r;
    bool alike = true;
    NNC_LOCAL(nnc_text) line = {.into = t};
    for (size_t i = 0; i < g->n; i++)
        alike &= !strcmp(e[g->first + i].r->reason, r->reason);
    if (rules)
        nnc_printf(&line, "%zu decisions%s", g->n, alike ? "" : ", ops and numbers of the first");
    else if (g->n > 1)
        nnc_printf(&line, "%s (%zu times%s)", r->rule, g->n, alike ? "" : "; numbers of the first");
    else
        nnc_puts(&line, r->rule);
    nnc_printf(&line, ": %s", r->reason);
    nnc_printf(t, "  %s  ", g->applied ? "yes" : "no ");
    nnc_put_wrapped(t, nnc_text_str(&line), 7, 7, REPORT_WIDTH);
    nnc_putc(t, '\n');
}

/* Largest first: in bytes moved, bytes kept, then count. */
NNC_ORDER(by_size, row, nnc_cmp(llabs(b->bytes), llabs(a->bytes)), nnc_cmp(b->kept, a->kept),
    (b->n > a->n) - (b->n < a->n), nnc_compare_paths(a->e->first, b->e->first),
    strcmp(a->e->row, b->e->row))

/* Divides a group into rows, largest first; verbose: each decision is one, in the order of layers. */
static size_t make_rows(entry *e, size_t n, bool verbose, row *r)
{
    size_t rows = 0;
    if (!verbose)
        qsort(e, n, sizeof *e, by_row);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && !verbose && !strcmp(e[j].row, e[i].row);)
            j++;
        r[rows++] = row_of(e + i, j - i);
    }
    if (!verbose)
        qsort(r, rows, sizeof *r, by_size);
    return rows;
}

/* The sum of what is not listed. */
static void put_rest(nnc_text *t, const row *r, size_t n)
{
    row rest = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        rest.n += r[i].n;
        rest.bytes = nnc_max64(nnc_add_sat(rest.bytes, r[i].bytes), -INT64_MAX);
        rest.launches = nnc_max64(nnc_add_sat(rest.launches, r[i].launches), -INT64_MAX);
        rest.kept = nnc_add_sat(rest.kept, r[i].kept);
    }
    nnc_puts(t, "         ");
    const size_t from = t->n;
    nnc_printf(t, "and %zu more", rest.n);
    if (rest.kept) {
        nnc_puts(t, " (");
        nnc_put_bytes(t, rest.kept);
        nnc_putc(t, ')');
    }
    nnc_puts(t, " with --verbose");
    put_blanks(t, from, LAYERS);
    put_saved(t, &rest);
}

static nnc_status put_group(nnc_text *t, entry *e, const group *g, bool verbose)
{
    NNC_FREED row *r = nnc_calloc(g->n, sizeof *r);
    bool rules = false;
    if (!r)
        return NNC_E_NOMEM;
    for (size_t i = 1; i < g->n; i++)
        rules |= strcmp(e[g->first + i].r->rule, e[g->first].r->rule) != 0;
    put_title(t, e, g, rules);
    const size_t n = make_rows(e + g->first, g->n, verbose, r);
    const size_t most = e[g->first].r->bytes_kept ? ROWS_KEPT
                        : g->applied              ? ROWS_APPLIED
                                                  : ROWS_DECLINED;
    const size_t shown =
        verbose || n <= most + 1 ? n : most; /* "1 more" would take the same line */
    const bool rest = n > shown && (g->applied || r[0].kept);
    size_t more = g->n;
    for (size_t i = 0; i < shown; i++) {
        more -= r[i].n;
        put_row(t, &r[i], rules, rest || i + 1 < shown ? 0 : more);
    }
    if (rest)
        put_rest(t, r + shown, n - shown);
    return NNC_OK;
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
        if (!strcmp(r->at[i].pass, pass) && !enter(&e[n++], &r->at[i], verbose, &a))
            return NNC_E_NOMEM;
    qsort(e, n, sizeof *e, by_key);
    size_t n_group = make_groups(e, n, g);
    for (size_t i = 0; i < n_group; i++)
        NNC_TRY(put_group(t, e, &g[i], verbose));
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

/* Sums of a training step: bytes of the forward pass that stay for the backward pass, and bytes that are computed again. */
static void put_kept(nnc_text *t, const nnc_remarks *r)
{
    int64_t bytes[2] = {0, 0};
    for (size_t i = 0; i < r->n; i++)
        bytes[r->at[i].applied] = nnc_add_sat(bytes[r->at[i].applied], r->at[i].bytes_kept);
    if (!bytes[0] && !bytes[1])
        return;
    nnc_puts(t, "\nKept for the backward pass: ");
    nnc_put_bytes(t, bytes[0]);
    nnc_puts(t, "; computed again instead: ");
    nnc_put_bytes(t, bytes[1]);
    nnc_puts(t, " (which results: under recompute)\n");
}

/* Splits over devices, the passes in order, then the decisions of lowering. */
static const nnc_pass_info *stage(int i)
{
    return i == 0                    ? &nnc_split_notes
           : i <= nnc_pass_count     ? &nnc_pass_table[i - 1]
           : i == nnc_pass_count + 1 ? &nnc_kernel_remarks
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
    for (int d = 0; d < a->plan->n_device; d++)
        if (has_libraries(a->plan, d)) {
            put_libraries(t, &a->plan->device[d]);
            nnc_putc(t, '\n');
        }
    if (!r->n) {
        nnc_puts(t,
            a->options->level ? "\nNo pass had anything to decide.\n" : "\nAt -O0 no pass runs.\n");
        return NNC_OK;
    }
    nnc_puts(t, "\n  pass             applied  declined   launches         moved\n");
    for (int p = 0; p < nnc_pass_count + 3; p++) {
        totals s = sum(r, stage(p)->name);
        if (s.applied || s.declined)
            put_totals(t, stage(p)->name, s);
    }
    put_totals(t, "all", sum(r, NULL));
    put_kept(t, r);
    for (int p = 0; p < nnc_pass_count + 3; p++) {
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
        print_rows(&w, &a->remarks, a->plan);
    else
        NNC_TRY(print_text(t, a, verbose));
    return t->oom ? NNC_E_NOMEM : NNC_OK;
}
