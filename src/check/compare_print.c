/* check/compare_print.c -- a comparison as text, JSON (docs/formats.md) and CSV. */
#include "check/check.h"
#include "check/compare.h"
#include "report/report.h"
#include "session/session.h"
#include <math.h>
#include <string.h>

static summary summarize(const program *p, bool io)
{
    const timed *t = &p->t[io];
    const nnc_plan *plan = p->a->plan;
    summary s = {
        .median_ms = nnc_times_at(&t->run, 0.5),
        .mean_ms = nnc_times_mean(&t->run),
        .p10_ms = nnc_times_at(&t->run, 0.1),
        .p90_ms = nnc_times_at(&t->run, 0.9),
        .kernels = plan->n_kernel,
    };
    nnc_run_work(p->a, p->last, &s.flops, &s.bytes, &s.launches);
    for (int d = 0; d < plan->n_device; d++) {
        s.arena += plan->device[d].arena_bytes;
        s.memory += plan->device[d].arena_bytes + plan->device[d].persist_bytes;
    }
    return s;
}

/* The share of that time in the median; NaN where the target has no numbers. */
static double roofline_share(const comparison *c, const program *p)
{
    double least = p->roofline.ms;
    return least > 0 ? least / summarize(p, c->main).median_ms : NAN;
}

/* The pass that a step is named after: of "expand + fuse" the last. */
static const char *main_pass(const program *p)
{
    const char *plus = strrchr(p->pass, '+');
    return plus ? plus + 2 : p->pass;
}

/* Applied remarks of a step's pass grouped by rule: "relu into conv (13 times); ...". */
static void put_why(nnc_text *t, const program *p)
{
    const nnc_remarks *r = &p->a->remarks;
    const char *pass = main_pass(p);
    int groups = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (!r->at[i].applied || strcmp(r->at[i].pass, pass))
            continue;
        int count = 0;
        bool first = true;
        for (size_t k = 0; k < r->n; k++) {
            bool same = r->at[k].applied && !strcmp(r->at[k].pass, pass) &&
                        !strcmp(r->at[k].rule, r->at[i].rule);
            first &= !(same && k < i);
            count += same;
        }
        if (!first || ++groups > 3)
            continue;
        nnc_printf(t, "%s%s", groups > 1 ? "; " : "", r->at[i].rule);
        if (count > 1)
            nnc_printf(t, " (%d times)", count);
    }
    if (groups > 3)
        nnc_printf(t, "; %d more rule%s", groups - 3, nnc_plural(groups - 3, "s"));
}

/* The nmse of the worst output; NaN without a reference or an output. */
static double worst_nmse(const comparison *c, const program *p)
{
    int o = nnc_worst_output(c, p);
    return o >= 0 && c->reference.ran ? nnc_error_nmse(&p->output[o].reference) : NAN;
}

static double worst_max_rel(const comparison *c, const program *p)
{
    int o = nnc_worst_output(c, p);
    return o >= 0 && c->reference.ran ? nnc_error_max_rel(&p->output[o].reference) : NAN;
}

static void text_row(nnc_text *t, const comparison *c, const program *p)
{
    summary s = summarize(p, c->main);
    nnc_printf(t, "  %-16s", p->name);
    nnc_put_ms(t, s.median_ms, 9);
    nnc_put_ms(t, s.p10_ms, 9);
    nnc_put_ms(t, s.p90_ms, 9);
    nnc_printf(t, " %5d%10lld", p->t[c->main].run.n, (long long)s.launches);
    nnc_put_bytes_column(t, s.bytes, 12, false);
    nnc_put_bytes_column(t, s.arena, 12, false);
    if (c->reference.ran)
        nnc_printf(t, "%11.1e%11.1e", worst_nmse(c, p), worst_max_rel(c, p));
    nnc_putc(t, '\n');
}

/* From paired bursts; in brackets where the difference is not statistically significant. */
static void put_change(nnc_text *t, summary before, summary now, const nnc_ratio *p)
{
    double ratio = p->n ? p->ratio : now.median_ms / before.median_ms;
    char change[32];
    snprintf(
        change, sizeof change, nnc_significant(p) ? "%+.1f%%" : "(%+.1f%%)", (ratio - 1) * 100);
    nnc_printf(t, "%9s", change);
}

static void text_steps(nnc_text *t, const comparison *c)
{
    nnc_puts(t,
        "\nWhat each pass gave, from as written to fused (change: median of paired bursts; in "
        "brackets: not significant)\n");
    nnc_puts(t, "  step              median ms   change  launches       moved  what it did\n");
    summary before = {0};
    for (int i = 0; i <= c->fused; i++) {
        const program *p = &c->p[i];
        summary s = summarize(p, c->main);
        NNC_LOCAL(nnc_text) why = {.into = t};
        nnc_printf(t, "  %c %-16s", p->pass ? '+' : ' ', p->pass ? p->pass : "as written");
        nnc_put_ms(t, s.median_ms, 9);
        if (i)
            put_change(t, before, s, &p->paired[c->main]);
        else
            nnc_puts(t, "         ");
        nnc_printf(t, "%10lld", (long long)s.launches);
        nnc_put_bytes_column(t, s.bytes, 12, false);
        nnc_puts(t, "  ");
        if (p->pass)
            put_why(&why, p);
        if (i == c->unfused && i != c->fused)
            nnc_puts(&why, i ? " [= unfused]" : "[= unfused]");
        nnc_put_wrapped(t, nnc_text_str(&why), 60, 60, REPORT_WIDTH);
        nnc_trim(t);
        nnc_putc(t, '\n');
        before = s;
    }
}

/* The rule's choice for siblings beside both alternatives. The third is one of these two, or joins some of them. */
enum { SIBLINGS = 3 };
static const char *const sibling_rows[SIBLINGS] = {"apart", "joined", "some joined"};

/* The program of row i; NULL: it has none. */
static const program *sibling_program(const comparison *c, int i)
{
    if (c->apart == c->joined || (i == 2 && (c->apart == c->fused || c->joined == c->fused)))
        return NULL;
    return &c->p[i == 0 ? c->apart : i == 1 ? c->joined : c->fused];
}

static void text_siblings(nnc_text *t, const comparison *c)
{
    nnc_puts(t, "\nSiblings (independent contractions) apart and joined; ratio: to the chosen "
                "program, median of paired bursts\n");
    nnc_puts(t, "                         least ms    ratio  launches");
    nnc_puts(t, c->reference.ran ? "       nmse\n" : "\n");
    for (int i = 0; i < SIBLINGS; i++) {
        const program *p = sibling_program(c, i), *f = &c->p[c->fused];
        if (!p)
            continue;
        const nnc_ratio *q = &p->paired[c->main];
        char name[64];
        snprintf(name, sizeof name, "%s%s", sibling_rows[i], p == f ? " (chosen)" : "");
        nnc_printf(t, "  %-22s", name);
        nnc_put_ms(t, nnc_times_at(&p->t[c->main].run, 0), 9);
        if (p == f || !q->n)
            nnc_puts(t, "         ");
        else
            nnc_printf(t, nnc_significant(q) ? "%9.3f" : "  (%5.3f)", q->ratio);
        nnc_printf(t, "%10lld", (long long)summarize(p, c->main).launches);
        if (c->reference.ran)
            nnc_printf(t, "%11.1e", worst_nmse(c, p));
        nnc_trim(t);
        nnc_putc(t, '\n');
    }
}

static void json_siblings(nnc_json_writer *w, const comparison *c)
{
    nnc_json_open_at(w, 1, "siblings", '[');
    for (int i = 0; i < SIBLINGS; i++) {
        const program *p = sibling_program(c, i), *f = &c->p[c->fused];
        if (!p)
            continue;
        const nnc_ratio q = p == f ? (nnc_ratio){0, NAN, NAN, NAN} : p->paired[c->main];
        NNC_JSON_ROW(w, 2, J_STRING("variant", sibling_rows[i]), J_BOOL("chosen", p == f),
            J_MS("least_ms", nnc_times_at(&p->t[c->main].run, 0)), J_INT("pairs", q.n),
            J_REAL("ratio", q.ratio), J_REAL("low", q.low), J_REAL("high", q.high),
            J_INT("launches", summarize(p, c->main).launches), J_REAL("nmse", worst_nmse(c, p)));
    }
    nnc_json_close(w, ']');
}

/* The time of the fused program over the unfused one's, and whether that is more than noise. */
static double fused_ratio(const comparison *c)
{
    if (c->fused == c->unfused)
        return 1;
    if (c->paired[c->main].n)
        return c->paired[c->main].ratio;
    return summarize(&c->p[c->fused], c->main).median_ms /
           summarize(&c->p[c->unfused], c->main).median_ms;
}

static void text_headline(nnc_text *t, const comparison *c)
{
    const nnc_ratio *p = &c->paired[c->main];
    double ratio = fused_ratio(c), times = ratio < 1 ? 1 / ratio : ratio;
    if (c->fused == c->unfused) {
        nnc_puts(t, "fused = unfused: this model has nothing to fuse\n");
        return;
    }
    nnc_printf(t, "fused / unfused = %.3f ", ratio);
    if (!p->n)
        nnc_puts(t, "(ratio of medians: the two do not fit into memory together and ran one after "
                    "the other, so drift is included)");
    else if (!isfinite(p->low))
        nnc_printf(t, "(median of %d paired burst%s): too few for a confidence interval", p->n,
            nnc_plural(p->n, "s"));
    else
        nnc_printf(t, "(median of %d paired bursts, 95 %% CI %.3f-%.3f): ", p->n, p->low, p->high);
    if (isfinite(p->low) && !nnc_significant(p))
        nnc_puts(t, "no significant difference");
    else if (isfinite(p->low) && times < 1.005)
        nnc_printf(t, "fused is %.1f %% %s", (times - 1) * 100, ratio < 1 ? "faster" : "slower");
    else if (isfinite(p->low))
        nnc_printf(t, "fused is %.2f times as %s", times, ratio < 1 ? "fast" : "slow");
    nnc_putc(t, '\n');
}

static void text_rates(nnc_text *t, const comparison *c)
{
    summary f = summarize(&c->p[c->fused], c->main);
    const nnc_roofline *r = &c->p[c->fused].roofline;
    const double share = roofline_share(c, &c->p[c->fused]),
                 before = roofline_share(c, &c->p[c->unfused]);
    nnc_printf(t, "%s: %.4g GFLOP/s, %.4g GB/s",
        c->fused == c->unfused ? "Throughput" : "Fused: throughput",
        (double)f.flops / f.median_ms * 1e-6, (double)f.bytes / f.median_ms * 1e-6);
    if (isfinite(share))
        nnc_printf(t, ", %.3g %% of the roofline", share * 100);
    if (isfinite(share) && c->fused != c->unfused)
        nnc_printf(t, " (unfused: %.3g %%)", before * 100);
    if (isfinite(share))
        nnc_printf(t, ", bound by %s", r->bound);
    if (isfinite(share) && r->rate > 0)
        nnc_printf(t, " (%.3g %s, measured)", r->rate * 1e-9,
            strcmp(r->bound, "arithmetic") ? "GB/s" : "GFLOP/s");
    nnc_putc(t, '\n');
}

/* Where the time of a training step goes, and what it takes to run. */
static void text_parts(nnc_text *t, const comparison *c)
{
    nnc_puts(t, "\nParts of a step (ms: sum over devices, median of some steps; a kernel "
                "of two parts counts where its result\nis first read; -: no commands of its own), "
                "and memory with weights and states\n                  ");
    int parts = PART_communication; /* of one device */
    for (int i = 0; i < c->n; i++)
        parts = c->p[i].part_ms[PART_communication] > 0 ? PART__COUNT : parts;
    for (int part = 0; part < parts; part++)
        nnc_printf(t, "%*s", part < PART_communication ? 11 : 15, nnc_part_names[part]);
    nnc_puts(t, "      memory\n");
    for (int i = 0; i < c->n; i++) { /* and variants of what is fused */
        const program *p = &c->p[i];
        if (!p->name)
            continue;
        nnc_printf(t, "  %-16s", p->name);
        for (int part = 0; part < parts; part++) {
            const int width = part < PART_communication ? 11 : 15;
            if (p->part_ms[part] > 0)
                nnc_put_ms(t, p->part_ms[part], width);
            else
                nnc_printf(t, "%*s", width, "-");
        }
        nnc_put_bytes_column(t, summarize(p, false).memory, 12, false);
        nnc_putc(t, '\n');
        NNC_LOCAL(nnc_text) updates = {.into = t};
        nnc_put_gradient_updates(p->a->plan, &updates);
        if (updates.n)
            nnc_printf(t, "    optimizer%s\n", nnc_text_str(&updates));
    }
}

static const char *precision_words(const program *p)
{
    static const char *const words[NNC_PRECISION__COUNT] = {
        "", "", ", contractions in tf32", ", contractions in f16", ", contractions in bf16"};
    return words[p->a->plan->precision];
}

/* Prints the cost of copies, and the share that overlapped with computing. */
static void text_copies(nnc_text *t, const comparison *c)
{
    for (int i = 0; i < c->n; i++) {
        const program *p = &c->p[i];
        if (!p->name || !p->t[1].run.n)
            continue;
        summary s = summarize(p, true);
        nnc_printf(t, "\n  %s with copies:", p->name);
        nnc_put_ms(t, s.median_ms, 9);
        nnc_printf(t, " ms (p10 %.3f, p90 %.3f, %d runs)\n", s.p10_ms, s.p90_ms, p->t[1].run.n);
        nnc_report_io(&p->io, "    ", t);
    }
}

static double largest_limit(const comparison *c)
{
    double limit = 0;
    for (int o = 0; o < c->n_result; o++)
        limit = fmax(limit, c->p[c->fused].output[o].limit);
    return limit;
}

static const char *program_name(const program *p)
{
    return p->name ? p->name : p->pass;
}

/* The program whose output o is worst: one that disagrees, or the one with the largest error. */
static const program *worst_program(const comparison *c, int o)
{
    const program *worst = &c->p[c->fused];
    for (int i = 0; i < c->n; i++) {
        const judged *j = &c->p[i].output[o], *w = &worst->output[o];
        double a = nnc_error_nmse(&j->reference), b = nnc_error_nmse(&w->reference);
        if (j->agrees != w->agrees ? !j->agrees : a > b)
            worst = &c->p[i];
    }
    return worst;
}

/* "12 of 100 elements are NaN or infinite". */
static void text_not_finite(nnc_text *t, const nnc_error *e, const char *other)
{
    long long all = e->n + e->not_finite + e->mismatched + e->open;
    if (e->mismatched)
        nnc_printf(t, "; %lld of %lld elements are NaN or infinite here or in %s, not in both",
            (long long)e->mismatched, all, other);
    if (e->not_finite)
        nnc_printf(t, "; %lld of %lld elements are NaN or infinite in both",
            (long long)e->not_finite, all);
    if (e->open)
        nnc_printf(
            t, "; %lld of %lld elements are not compared: " NNC_OPEN, (long long)e->open, all);
}

/* Prints notes about output o beyond its error: disagreement, conditioning, NaN. */
static void text_output(nnc_text *t, const comparison *c, int o)
{
    const program *p = worst_program(c, o);
    const judged *j = &p->output[o];
    const nnc_error *e = c->reference.ran ? &j->reference : &j->unfused;
    const char *other = c->reference.ran ? "float64" : "unfused";
    double own = nnc_error_nmse(e), pair = nnc_error_nmse(&j->unfused);
    const bool explained =
        j->conditioning > 0 && !c->initial[o]; /* of states, which are many, not */
    if (j->agrees && !explained && !e->not_finite && !e->open)
        return;
    nnc_printf(t, "  %s: %s%s, nmse %.1e (limit %.1e)", nnc_result_name(p, o),
        j->agrees ? "" : "DIFFERS, ", program_name(p), own, j->limit);
    if (!j->agrees && c->reference.ran && pair > j->limit)
        nnc_printf(t, ", against unfused %.1e", pair);
    if (j->conditioning > 0)
        nnc_printf(t, "; rounding values on the way to their dtypes alone changes it by nmse %.1e",
            j->conditioning);
    text_not_finite(t, e, other);
    nnc_putc(t, '\n');
}

static const char *verdict_of(const comparison *c)
{
    bool open = false;
    for (int i = 0; i < c->n; i++)
        for (int o = 0; o < c->n_result; o++)
            open |= c->p[i].output[o].reference.open > 0;
    return !c->agrees ? "NO" : open ? "yes, where compared" : "yes";
}

static void text_verdict(nnc_text *t, const comparison *c)
{
    const program *f = &c->p[c->fused];
    const char *verdict = verdict_of(c);
    int o = nnc_worst_output(c, f);
    if (c->reference.ran)
        nnc_printf(t, "Same numbers as float64 (%s): %s", c->reference.scope, verdict);
    else
        nnc_printf(t, "Same numbers fused and unfused: %s (no float64 reference: %s)", verdict,
            c->reference.scope);
    if (o >= 0) {
        const judged *j = &f->output[o];
        double nmse = nnc_error_nmse(c->reference.ran ? &j->reference : &j->unfused);
        bool several = c->n_result > 1;
        nnc_printf(t, ", %s%s%s%snmse %.1e (limit %.0e)", several ? "worst " : "",
            !several        ? ""
            : c->initial[o] ? "change of "
                            : "output ",
            several ? nnc_result_name(f, o) : "", several ? ": " : "", nmse, j->limit);
    }
    nnc_putc(t, '\n');
    if (c->ties && c->n_tie)
        nnc_printf(t,
            "  limits allow for %zu near tie%s, choices (the sign of a relu's operand, which of "
            "two numbers is larger) that rounding may\n  decide either way\n",
            c->n_tie, nnc_plural((int64_t)c->n_tie, "s"));
    for (o = 0; o < c->n_result; o++)
        text_output(t, c, o);
}

static nnc_status print_text(const comparison *c, nnc_text *t)
{
    const program *u = &c->p[c->unfused], *f = &c->p[c->fused];
    nnc_printf(t, "%s on %s, %d thread%s, -O%d%s; copies to and from the device %stimed\n",
        c->model->name, nnc_env_target(c->env), nnc_env_threads(c->env),
        nnc_plural(nnc_env_threads(c->env), "s"), c->o->compile.level, precision_words(f),
        c->main ? "" : "not ");
    text_headline(t, c);
    nnc_putc(t, '\n');
    nnc_puts(t, "                   median      p10      p90  runs  launches       moved       "
                "arena");
    nnc_puts(t, c->reference.ran ? "       nmse    max rel\n" : "\n");
    nnc_puts(t, "                       ms       ms       ms           per run     per run\n");
    if (c->unfused != 0)
        text_row(t, c, &c->p[0]);
    text_row(t, c, u);
    if (c->fused != c->unfused)
        text_row(t, c, f);
    if (c->n > 1)
        nnc_puts(t,
            "  Timed in alternating bursts; the first run of each burst is a warm-up and not "
            "counted\n");
    if (c->o->training)
        text_parts(t, c);
    if (c->o->training && c->fused != c->unfused)
        NNC_TRY(nnc_compare_why(c, t));
    if (c->fused > 0 && c->o->steps)
        text_steps(t, c);
    if (c->apart != c->joined)
        text_siblings(t, c);
    if (c->io != NNC_IO_EXCLUDE)
        text_copies(t, c);
    nnc_putc(t, '\n');
    text_rates(t, c);
    nnc_put_first_run(t, c->fused == c->unfused ? "" : "Fused: ", &f->first_run);
    text_verdict(t, c);
    if (!c->kept_all)
        nnc_puts(t, "The outputs are large: fused and unfused were compared on evenly spread "
                    "pieces of them.\n");
    return NNC_OK;
}

static const char *const io_names[] = {"exclude", "include", "both"}; /* by nnc_io */

enum { TIMES = 5, MEASURED = 16 };

/* The times of a program: TIMES members. */
static void times_members(const program *p, bool io, nnc_json_member *m)
{
    const summary s = summarize(p, io);
    const nnc_json_member times[TIMES] = {J_MS("median_ms", s.median_ms),
        J_MS("mean_ms", s.mean_ms), J_MS("p10_ms", s.p10_ms), J_MS("p90_ms", s.p90_ms),
        J_INT("iterations", p->t[io].run.n)};
    memcpy(m, times, sizeof times);
}

/* All numbers of a program as JSON and CSV have them: MEASURED members. */
static void measured_members(const comparison *c, const program *p, nnc_json_member *m)
{
    const summary s = summarize(p, c->main);
    const nnc_json_member more[MEASURED - TIMES] = {J_INT("launches", s.launches),
        J_INT("kernels", s.kernels), J_INT("bytes_moved", s.bytes), J_INT("flops", s.flops),
        J_INT("arena_bytes", s.arena), J_REAL("nmse", worst_nmse(c, p)),
        J_REAL("max_rel_err", worst_max_rel(c, p)), J_INT("bursts", p->t[c->main].n_burst),
        J_INT("untimed_runs", p->t[c->main].n_untimed), J_MS("roofline_ms", p->roofline.ms),
        J_REAL("roofline", roofline_share(c, p))};
    times_members(p, c->main, m);
    memcpy(m + TIMES, more, sizeof more);
}

static void json_with_copies(nnc_json_writer *w, const program *p)
{
    nnc_json_member m[TIMES];
    times_members(p, true, m);
    nnc_json_open(w, "with_copies", '{');
    nnc_json_members(w, m, TIMES);
    nnc_json_close(w, '}');
}

static void json_outputs(nnc_json_writer *w, const comparison *c, const program *p)
{
    nnc_json_open(w, "outputs", '[');
    for (int o = 0; o < c->n_result; o++) {
        const judged *j = &p->output[o];
        bool ran = c->reference.ran;
        const nnc_error *e = ran ? &j->reference : &j->unfused;
        NNC_JSON_OBJECT(w, NULL, J_STRING("name", nnc_result_name(p, o)),
            J_BOOL("state", c->initial[o] != NULL), J_REAL("nmse", ran ? nnc_error_nmse(e) : NAN),
            J_REAL("max_rel_err", ran ? nnc_error_max_rel(e) : NAN), J_REAL("limit", j->limit),
            J_REAL("conditioning", j->conditioning > 0 ? j->conditioning : NAN),
            J_INT("not_finite", e->not_finite), J_INT("mismatched", e->mismatched),
            J_INT("not_compared", e->open), J_BOOL("agree", j->agrees));
    }
    nnc_json_close(w, ']');
}

static void json_parts(nnc_json_writer *w, const program *p)
{
    nnc_report_parts_json(p->part_ms, w);
    NNC_JSON(w, J_INT("memory_bytes", summarize(p, false).memory));
}

static void json_run(nnc_json_writer *w, const comparison *c, const program *p, const char *name)
{
    nnc_json_member m[MEASURED];
    measured_members(c, p, m);
    nnc_json_open(w, NULL, '{');
    NNC_JSON(
        w, J_STRING("name", name), J_INT("level", p == &c->p[0] && c->unfused != 0 ? 0 : p->level));
    nnc_json_members(w, m, MEASURED);
    json_outputs(w, c, p);
    if (c->o->training)
        json_parts(w, p);
    if (c->io == NNC_IO_BOTH)
        json_with_copies(w, p);
    if (c->io != NNC_IO_EXCLUDE)
        nnc_report_io_json(&p->io, w);
    nnc_put_first_run_json(w, &p->first_run);
    nnc_json_close(w, '}');
}

static void json_steps(nnc_json_writer *w, const comparison *c)
{
    nnc_json_open_at(w, 1, "steps", '[');
    for (int i = 0; i <= c->fused && c->o->steps; i++) {
        summary s = summarize(&c->p[i], c->main);
        NNC_JSON_ROW(w, 2, J_STRING("pass", c->p[i].pass ? c->p[i].pass : "as written"),
            J_MS("median_ms", s.median_ms), J_REAL("ratio", c->p[i].paired[c->main].ratio),
            J_INT("launches", s.launches), J_INT("bytes_moved", s.bytes));
    }
    nnc_json_close(w, ']');
}

static void json_runs(nnc_json_writer *w, const comparison *c)
{
    nnc_json_open_at(w, 1, "runs", '[');
    if (c->unfused != 0) {
        json_run(w, c, &c->p[0], "as written");
        nnc_json_line(w, 2);
    }
    json_run(w, c, &c->p[c->unfused], "unfused"); /* both sides, even when they are one program */
    nnc_json_line(w, 2);
    json_run(w, c, &c->p[c->fused], "fused");
    nnc_json_close(w, ']');
}

static nnc_status print_json(const comparison *c, nnc_text *t)
{
    nnc_json_writer writer = {.out = t}, *w = &writer;
    const nnc_ratio *p = &c->paired[c->main];
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("model", c->model->name), J_STRING("target", nnc_env_target(c->env)),
        J_INT("threads", nnc_env_threads(c->env)));
    nnc_json_open(w, "args", '{');
    for (int i = 0; i < c->o->n_arg; i++)
        NNC_JSON(w, J_STRING(c->o->arg[i].name, c->o->arg[i].value));
    nnc_json_close(w, '}');
    NNC_JSON(w, J_STRING("io", io_names[c->io]));
    nnc_json_line(w, 1);
    NNC_JSON_OBJECT(
        w, "reference", J_BOOL("ran", c->reference.ran), J_STRING("scope", c->reference.scope));
    json_runs(w, c);
    nnc_json_line(w, 1);
    NNC_JSON(w, J_REAL("speedup", 1 / fused_ratio(c)), J_BOOL("agree", c->agrees),
        J_REAL("tolerance", largest_limit(c)), J_INT("near_ties", c->ties ? c->n_tie : 0),
        J_STRING("precision", nnc_precision_name(c->p[c->fused].a->plan->precision)));
    nnc_json_line(w, 1);
    NNC_JSON_OBJECT(w, "paired", J_INT("pairs", p->n), J_REAL("ratio", p->ratio),
        J_REAL("low", p->low), J_REAL("high", p->high));
    json_steps(w, c);
    json_siblings(w, c);
    if (c->o->training)
        NNC_TRY(nnc_compare_why_json(c, w));
    nnc_json_end(w, '}');
    return NNC_OK;
}

static void print_csv(const comparison *c, nnc_text *t)
{
    nnc_json_writer w = {.out = t, .csv = true};
    for (int i = 0; i < c->n; i++) {
        const program *p = &c->p[i];
        char name[256];
        snprintf(name, sizeof name, "%s%s", p->name ? "" : "+ ", program_name(p));
        const bool both = c->io == NNC_IO_BOTH;
        nnc_json_member m[2 + MEASURED] = {J_STRING("program", name)};
        measured_members(c, p, m + 1);
        m[1 + MEASURED] =
            (nnc_json_member)J_MS("with_copies_median_ms", nnc_times_at(&p->t[1].run, 0.5));
        nnc_json_row(&w, 0, m, 1 + MEASURED + both);
    }
}

nnc_status nnc_compare_print(const comparison *c, nnc_format f, nnc_text *out)
{
    nnc_status s = NNC_OK;
    if (f == NNC_JSON)
        s = print_json(c, out);
    else if (f == NNC_CSV)
        print_csv(c, out);
    else
        s = print_text(c, out);
    return s ? s : out->oom ? nnc_nomem(c->sink) : NNC_OK;
}
