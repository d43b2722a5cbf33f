/* check/compare_parts.c -- explains the difference in time between a fused and an unfused training step. For forward pass, loss, backward
 * pass and optimizer it tells what fusion did to their commands. */
#include "check/compare.h"
#include "report/report.h"
#include <math.h>
#include <string.h>

/* Work of the commands of one part of a step. */
typedef struct part_work {
    int64_t launches, bytes;
    double least_ns, calls_ns; /* at the target's peak rates: all commands; calls of libraries */
    unsigned elsewhere; /* set of parts that kernels with ops of this part count for */
} part_work;

static const char *const titles[PART__COUNT] = {
    "forward pass", "loss", "backward pass", "optimizer", "communication"};

/* Notes for the parts that the command's layers name which part it counts for. */
static void note_elsewhere(part_work work[PART__COUNT], const char *layers, unsigned counts_for)
{
    for (const char *p = layers ? layers : ""; *p;) {
        const size_t n = strcspn(p, "+");
        const nnc_part one = nnc_layer_part_n(p, n);
        work[one].elsewhere |= one != counts_for ? 1u << counts_for : 0;
        p += n + (p[n] == '+');
    }
}

static nnc_status add_up(
    const comparison *c, const program *p, part_work work[PART__COUNT], nnc_arena *a)
{
    const nnc_plan *plan = p->a->plan;
    uint8_t *part = ARENA_NEW(a, uint8_t, plan->n_cmd + 1);
    NNC_NEED(part, c->sink);
    memset(work, 0, PART__COUNT * sizeof *work);
    NNC_TRY(nnc_step_parts(plan, part, c->sink));
    for (int i = nnc_plan_first(plan, SEC_main); i < plan->end[p->last]; i++) {
        const nnc_cmd *k = &plan->cmd[i];
        const nnc_call *call = k->kind == CMD_call ? &plan->call[k->item] : NULL;
        part_work *w = &work[part[i]];
        if (k->kind == CMD_record || k->kind == CMD_wait)
            continue;
        const nnc_target *t = nnc_target_on(c->env->target, c->env->n_target, k->device);
        const double ns = (double)nnc_target_least_ns(
            t, call ? (nnc_dtype)call->src.dtype : DT_f32, call && call->tf32, k->flops, k->bytes);
        w->launches++;
        w->bytes = nnc_add_sat(w->bytes, k->bytes);
        w->least_ns += ns;
        w->calls_ns += call ? ns : 0;
        if (part[i] != PART_communication)
            note_elsewhere(work, k->layers, part[i]);
    }
    return NNC_OK;
}

/* Passes that fuse, and what their fusions save; count: "%lld" and a plural. `expand` prepares those of fuse and counts with them. */
static const struct {
    const char *pass, *one, *many;
} kinds[] = {
    {"siblings", "group of independent contractions is computed by one command",
        "groups of independent contractions are computed by one command each"},
    {"fuse_epilogue",
        "op is computed by the contraction before it (its epilogue), on numbers still in "
        "registers: the contraction's result is not stored and read again",
        "ops are computed by the contraction before them (its epilogue), on numbers still in "
        "registers: the contraction's result is not stored and read again"},
    {"fuse",
        "chain of ops runs as one kernel: what one op passes to the next stays in registers and "
        "caches",
        "chains of ops run as one kernel each: what one op passes to the next stays in registers "
        "and caches"},
    {"fuse_products",
        "chain of products and row ops runs as one kernel, whose block of rows stays in the cache",
        "chains of products and row ops run as one kernel each, whose block of rows stays in the "
        "cache"},
    {"fuse_prologue",
        "op is computed by the contraction after it, as that reads its operand: the operand is not "
        "stored",
        "ops are computed by the contraction after them, as that reads its operand: the operand is "
        "not stored"},
};
enum { KINDS = NNC_COUNT(kinds), NAMED = 2 /* rules of a kind that are named */ };

/* The kind of a remark; -1: it is no fusion. */
static int kind_of(const nnc_remark *r)
{
    for (int k = 0; k < KINDS; k++)
        if (!strcmp(r->pass, kinds[k].pass) ||
            (!strcmp(r->pass, "expand") && !strcmp(kinds[k].pass, "fuse")))
            return r->applied ? k : -1;
    return -1;
}

/* The part that a fusion counts for: the last of its layers'. */
static nnc_part part_of(const nnc_remark *r)
{
    int part = 0;
    for (int i = 0; i < r->n_layers; i++) {
        const int one = (int)nnc_layer_part(r->layer[i]);
        part = one > part ? one : part;
    }
    return (nnc_part)part;
}

/* Is one of its layers in an earlier part? Then so is some of what it saves. */
static bool crosses(const nnc_remark *r)
{
    const nnc_part last = part_of(r);
    for (int i = 0; i < r->n_layers; i++)
        if (nnc_layer_part(r->layer[i]) != last)
            return true;
    return false;
}

typedef struct saved {
    int64_t n, launches, bytes;
} saved;

/* Fusions of one kind in one part: within it, or with ops of earlier parts. */
typedef struct fusions {
    saved within, across;
    int rules;
    struct {
        const char *rule;
        int64_t n;
    } most[NAMED]; /* the most frequent rules */
} fusions;

static bool belongs(const nnc_remark *r, int kind, nnc_part part)
{
    return kind_of(r) == kind && part_of(r) == part;
}

/* How many remarks of r like number i there are; 0: an earlier one is like it. */
static int64_t count_alike(const nnc_remarks *r, size_t i, int kind, nnc_part part)
{
    int64_t n = 0;
    for (size_t k = 0; k < r->n; k++) {
        if (strcmp(r->at[k].rule, r->at[i].rule) != 0 ||
            strcmp(r->at[k].pass, r->at[i].pass) != 0 || !belongs(&r->at[k], kind, part))
            continue;
        if (k < i)
            return 0;
        n++;
    }
    return n;
}

static fusions find_fusions(const nnc_remarks *r, int kind, nnc_part part)
{
    fusions f = {0};
    for (size_t i = 0; i < r->n; i++) {
        if (!belongs(&r->at[i], kind, part))
            continue;
        saved *of = crosses(&r->at[i]) ? &f.across : &f.within;
        of->launches += r->at[i].launches_saved;
        of->bytes += r->at[i].bytes_saved;
        if (!strcmp(r->at[i].pass, "expand"))
            continue;
        of->n++;
        const int64_t alike = count_alike(r, i, kind, part);
        f.rules += alike > 0;
        for (int m = 0; m < NAMED; m++)
            if (alike > f.most[m].n) {
                memmove(&f.most[m + 1], &f.most[m], (size_t)(NAMED - 1 - m) * sizeof f.most[0]);
                f.most[m].rule = r->at[i].rule;
                f.most[m].n = alike;
                break;
            }
    }
    return f;
}

static void put_rules(nnc_text *t, const fusions *f)
{
    for (int m = 0; m < NAMED && f->most[m].n; m++) {
        nnc_printf(t, "%s%s", m ? "; " : "", f->most[m].rule);
        if (f->most[m].n > 1)
            nnc_printf(t, ", %lld times", (long long)f->most[m].n);
    }
    if (f->rules > NAMED)
        nnc_printf(t, "; %d more rule%s", f->rules - NAMED, nnc_plural(f->rules - NAMED, "s"));
}

/* "3 launches and 3.00 MiB less" */
static void put_saved(nnc_text *t, const saved *s)
{
    if (s->launches > 0)
        nnc_printf(t, "%lld launch%s", (long long)s->launches, nnc_plural(s->launches, "es"));
    if (s->launches > 0 && s->bytes > 0)
        nnc_puts(t, " and ");
    if (s->bytes > 0) {
        nnc_put_bytes(t, s->bytes);
        nnc_puts(t, " of memory traffic");
    }
    nnc_puts(t, s->launches > 0 || s->bytes > 0
                    ? " less"
                    : "by itself this saves neither launches nor memory traffic");
}

static void put_sentence(nnc_text *t, const char *words)
{
    enum { INDENT = 13 };
    nnc_printf(t, "%*s", INDENT, "");
    nnc_put_wrapped(t, words, INDENT, INDENT, REPORT_WIDTH);
    nnc_putc(t, '\n');
}

static void put_fusions(nnc_text *t, const nnc_remarks *r, nnc_part part)
{
    for (int k = 0; k < KINDS; k++) {
        const fusions f = find_fusions(r, k, part);
        NNC_LOCAL(nnc_text) line = {.into = t};
        const int64_t n = f.within.n + f.across.n;
        if (!n)
            continue;
        nnc_printf(&line, "%lld %s (", (long long)n, n == 1 ? kinds[k].one : kinds[k].many);
        put_rules(&line, &f);
        nnc_puts(&line, "): ");
        if (f.within.n)
            put_saved(&line, &f.within);
        if (f.across.n && f.within.n)
            nnc_printf(&line,
                "; %lld more with ops of earlier parts, of which the savings are included: ",
                (long long)f.across.n);
        else if (f.across.n)
            nnc_puts(&line, "with ops of earlier parts, ");
        if (f.across.n)
            put_saved(&line, &f.across);
        put_sentence(t, nnc_text_str(&line));
    }
}

/* Says that other parts' kernels compute `some` of the part's ops, or all. */
static void put_elsewhere(nnc_text *t, bool some, unsigned parts)
{
    bool any = false;
    nnc_printf(t, "%s computed in kernels that count for another part: ",
        some ? "some of its ops are" : "it is");
    for (int i = 0; i < PART__COUNT; i++)
        if (parts >> i & 1) {
            nnc_printf(t, "%s%s", any ? ", " : "", titles[i]);
            any = true;
        }
}

/* What fusion leaves as it is. */
static void put_rest(nnc_text *t, const part_work *u, const part_work *f)
{
    NNC_LOCAL(nnc_text) line = {.into = t};
    const double share = u->least_ns > 0 ? u->calls_ns / u->least_ns : 0;
    if (f->launches < u->launches && f->elsewhere)
        put_elsewhere(&line, f->launches > 0, f->elsewhere);
    if (line.n)
        put_sentence(t, nnc_text_str(&line));
    nnc_text_clear(&line);
    if (!f->launches)
        return;
    if (u->launches == f->launches && u->bytes == f->bytes)
        nnc_puts(&line, "the same commands in both programs: differences of time are noise, or "
                        "come from what the caches hold");
    else if (share >= 0.3)
        nnc_printf(&line,
            "calls of libraries (contractions) are %.0f %% of the least time that the target's "
            "peak "
            "rates allow the unfused part: fusion shortens the rest only",
            share * 100);
    if (line.n)
        put_sentence(t, nnc_text_str(&line));
}

static void put_part(
    nnc_text *t, const comparison *c, nnc_part part, const part_work *u, const part_work *f)
{
    const double before = c->p[c->unfused].part_ms[part], now = c->p[c->fused].part_ms[part];
    nnc_printf(t, "  %-14s", titles[part]);
    if (before > 0 || now > 0) {
        NNC_LOCAL(nnc_text) ms = {.into = t};
        nnc_put_ms(&ms, before, 0);
        nnc_puts(&ms, " -> ");
        nnc_put_ms(&ms, now, 0);
        nnc_printf(t, "time %s ms, ", nnc_text_str(&ms));
    }
    nnc_printf(t, "launches %lld -> %lld, moved ", (long long)u->launches, (long long)f->launches);
    nnc_put_bytes(t, u->bytes);
    nnc_puts(t, " -> ");
    nnc_put_bytes(t, f->bytes);
    nnc_putc(t, '\n');
}

nnc_status nnc_compare_why(const comparison *c, nnc_text *t)
{
    NNC_LOCAL(nnc_arena) a = {0};
    part_work u[PART__COUNT], f[PART__COUNT];
    NNC_TRY(add_up(c, &c->p[c->unfused], u, &a));
    NNC_TRY(add_up(c, &c->p[c->fused], f, &a));
    nnc_puts(t, "\nWhat fusion did to each part of the step, unfused -> fused (a kernel with ops "
                "of two parts "
                "counts for\nthe part that reads its result first)\n");
    for (int part = 0; part < PART__COUNT; part++) {
        if (!u[part].launches && !f[part].launches)
            continue;
        put_part(t, c, (nnc_part)part, &u[part], &f[part]);
        put_fusions(t, &c->p[c->fused].a->remarks, (nnc_part)part);
        put_rest(t, &u[part], &f[part]);
    }
    return NNC_OK;
}

static nnc_status json_part(
    nnc_json_writer *w, const comparison *c, nnc_part part, const part_work *u, const part_work *f)
{
    const nnc_remarks *r = &c->p[c->fused].a->remarks;
    nnc_json_open_at(w, 2, NULL, '{');
    NNC_JSON(w, J_STRING("part", nnc_part_names[part]), J_INT("launches_unfused", u->launches),
        J_INT("launches_fused", f->launches), J_INT("bytes_moved_unfused", u->bytes),
        J_INT("bytes_moved_fused", f->bytes),
        J_REAL("calls", u->least_ns > 0 ? u->calls_ns / u->least_ns : NAN));
    nnc_json_open(w, "fusions", '[');
    for (int k = 0; k < KINDS; k++) {
        const fusions one = find_fusions(r, k, part);
        NNC_LOCAL(nnc_text) rules = {0};
        if (!one.within.n && !one.across.n)
            continue;
        put_rules(&rules, &one);
        NNC_NEED(!rules.oom, c->sink);
        NNC_JSON_OBJECT(w, NULL, J_STRING("pass", kinds[k].pass),
            J_INT("fusions", one.within.n + one.across.n), J_STRING("rules", nnc_text_str(&rules)),
            J_INT("launches_saved", one.within.launches), J_INT("bytes_saved", one.within.bytes),
            J_INT("across", one.across.n), J_INT("across_launches_saved", one.across.launches),
            J_INT("across_bytes_saved", one.across.bytes));
    }
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
    return NNC_OK;
}

nnc_status nnc_compare_why_json(const comparison *c, nnc_json_writer *w)
{
    NNC_LOCAL(nnc_arena) a = {0};
    part_work u[PART__COUNT], f[PART__COUNT];
    NNC_TRY(add_up(c, &c->p[c->unfused], u, &a));
    NNC_TRY(add_up(c, &c->p[c->fused], f, &a));
    nnc_json_open_at(w, 1, "step_parts", '[');
    for (int part = 0; part < PART__COUNT; part++)
        if (part < PART_communication || u[part].launches || f[part].launches)
            NNC_TRY(json_part(w, c, (nnc_part)part, &u[part], &f[part]));
    nnc_json_close(w, ']');
    return NNC_OK;
}
