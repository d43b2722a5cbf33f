/* check/compare.c -- compares fused, unfused and float64. "Unfused" is the same optimisation level without the fusion passes (a flag of
 * their rows), so that layout and libraries are the same in both. Between "as written" and "fused", each pass that changes the model is a
 * step. */
#include "check/compare.h"
#include "check/layers.h"
#include "session/session.h"
#include <math.h>
#include <string.h>

static const nnc_ratio NO_PAIRS = {0, NAN, NAN, NAN};

void nnc_compare_say(const comparison *c, const char *phase, const char *detail)
{
    if (c->o->progress)
        c->o->progress(c->o->progress_ctx, phase, detail);
}

static nnc_section last_section(const comparison *c)
{
    return c->o->training ? SEC_step : SEC_main;
}

static bool user_skips(const comparison *c, const char *pass)
{
    for (int i = 0; i < c->o->compile.n_skip; i++)
        if (!strcmp(c->o->compile.skip[i], pass))
            return true;
    return false;
}

/* Packed weights come first, since kernels that read unpacked ones are slower with channels last; fusion passes come last. */
static int order_of(const char *pass, bool fusion)
{
    return fusion ? 2 : strcmp(pass, "pack_weights") != 0;
}

/* Lists all passes of the level once; passes of level 0 are part of every program. n passes are n + 1 programs, and two variants may
 * follow. */
static int list_passes(const comparison *c, int *pass)
{
    int n = 0;
    for (int order = 0; order < 3; order++)
        for (int i = 0; i < nnc_pass_count && n < MAX_PROGRAMS - 3; i++)
            if (order_of(nnc_pass_table[i].name, nnc_pass_table[i].fusion) == order &&
                nnc_pass_table[i].level > 0 && nnc_pass_table[i].level <= c->o->compile.level &&
                !user_skips(c, nnc_pass_table[i].name))
                pass[n++] = i;
    return n;
}

/* Compiles a program with passes pass[0..k) enabled. */
static nnc_status compile_with(
    comparison *c, program *p, const int *pass, int n, int k, bool join_siblings)
{
    nnc_compile_options o = c->o->compile;
    o.join_siblings = o.join_siblings || join_siblings;
    p->level = o.level;
    p->skip = ARENA_NEW(&c->arena, const char *, n - k + o.n_skip + 1);
    NNC_NEED(p->skip, c->sink);
    for (int i = k; i < n; i++)
        p->skip[p->n_skip++] = nnc_pass_table[pass[i]].name;
    for (int i = 0; i < o.n_skip; i++)
        p->skip[p->n_skip++] = o.skip[i];
    o.skip = p->skip;
    o.n_skip = p->n_skip;
    o.after_pass = NULL;
    o.on_kernel = NULL;
    return nnc_compile(c->env, c->model, &o, &p->a, c->sink);
}

static bool same_program(const program *a, const program *b)
{
    nnc_hash128 x = nnc_plan_hash(a->a->plan), y = nnc_plan_hash(b->a->plan);
    return x.lo == y.lo && x.hi == y.hi;
}

static int64_t launches(const program *p)
{
    int64_t n;
    nnc_run_work(p->a, p->last, NULL, NULL, &n);
    return n;
}

/* True for a fusion pass that increases the number of launches (expand): it prepares the next pass, and the two form one step. */
static bool prepares(const comparison *c, const program *p, int pass)
{
    return nnc_pass_table[pass].fusion && c->n > 0 && launches(p) > launches(p - 1);
}

/* Has the pass joined siblings, or declined to? */
static bool has_siblings(const program *p)
{
    const nnc_remarks *r = &p->a->remarks;
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->at[i].pass, "siblings"))
            return true;
    return false;
}

static bool has_applied(const program *p, const char *pass)
{
    const nnc_remarks *r = &p->a->remarks;
    for (size_t i = 0; i < r->n; i++)
        if (r->at[i].applied && !strcmp(r->at[i].pass, pass))
            return true;
    return false;
}

static void drop(program *p)
{
    nnc_artifact_destroy(p->a);
    *p = (program){0};
}

/* Compiles as written, then with one more pass at a time; drops programs that equal the one before. */
static nnc_status compile_all(comparison *c)
{
    int pass[MAX_PROGRAMS], n = list_passes(c, pass), n_plain = 0;
    const char *prepared = NULL;
    while (n_plain < n && !nnc_pass_table[pass[n_plain]].fusion)
        n_plain++;
    for (int k = 0; k <= n; k++) {
        bool keep = k == 0 || k == n || k == n_plain || c->o->steps;
        if (!keep || (k == 0 && !c->o->steps && n_plain > 0))
            continue;
        const char *name = k ? nnc_pass_table[pass[k - 1]].name : NULL;
        program *p = &c->p[c->n];
        *p = (program){.pass = name, .paired = {NO_PAIRS, NO_PAIRS}, .last = last_section(c)};
        nnc_compare_say(c, "compiling", k == n ? "fused" : k == n_plain ? "unfused" : name);
        NNC_TRY(compile_with(c, p, pass, n, k, false));
        c->siblings = has_siblings(p);
        if (c->n > 0 && same_program(p, p - 1)) {
            drop(p);
        } else if (k > n_plain && k < n && prepares(c, p, pass[k - 1])) {
            const bool changed =
                has_applied(p, name); /* or it is the program that was dropped before */
            drop(p);
            if (changed)
                prepared = prepared ? nnc_arena_printf(&c->arena, "%s + %s", prepared, name) : name;
        } else {
            if (prepared)
                p->pass = nnc_arena_printf(&c->arena, "%s + %s", prepared, name);
            if (name && !p->pass)
                return nnc_nomem(c->sink);
            prepared = NULL;
            c->n++;
        }
        if (k == n_plain)
            c->unfused = c->n - 1;
    }
    c->fused = c->n - 1;
    c->p[0].name = "as written";
    c->p[c->unfused].name = "unfused";
    c->p[c->fused].name = c->fused == c->unfused ? "fused = unfused" : "fused";
    return NNC_OK;
}

/* ---- variants ---------------------------------------------------------------------------------- */

/* Compiles the fused program with all siblings apart, or all joined; *at: its index, that of an equal one where there is one. */
static nnc_status compile_variant(comparison *c, bool join, int *at)
{
    program *p = &c->p[c->n];
    const int siblings = nnc_pass_find("siblings");
    *p = (program){.name = join ? "siblings joined" : "siblings apart",
        .variant = true,
        .paired = {NO_PAIRS, NO_PAIRS},
        .last = last_section(c)};
    nnc_compare_say(c, "compiling", p->name);
    NNC_TRY(compile_with(c, p, &siblings, 1, join, join));
    for (*at = c->fused; *at < c->n; ++*at)
        if (same_program(p, &c->p[*at])) {
            drop(p);
            return NNC_OK;
        }
    c->n++;
    return NNC_OK;
}

/* Where the model has siblings: both ways of computing them, beside what the pass chose. */
static nnc_status compile_variants(comparison *c)
{
    c->apart = c->joined = -1;
    if (!c->o->steps || !c->siblings)
        return NNC_OK;
    NNC_TRY(compile_variant(c, false, &c->apart));
    return compile_variant(c, true, &c->joined);
}

static nnc_status make_inputs(comparison *c)
{
    const nnc_plan *p = c->p[c->fused].a->plan;
    c->input = nnc_calloc((size_t)p->n_input, sizeof *c->input);
    NNC_NEED(c->input, c->sink);
    c->n_input = p->n_input;
    NNC_TRY(nnc_artifact_make_inputs(c->p[c->fused].a, c->o, c->o->seed, c->input, c->sink));
    if (c->o->training)
        nnc_judged_lr(c->p[c->fused].a, c->input);
    return NNC_OK;
}

const nnc_type *nnc_result_type(const program *p, int i)
{
    const nnc_plan *plan = p->a->plan;
    return i < plan->n_output ? nnc_whole_output(p->a, i)
                              : &plan->tensor[plan->update[i - plan->n_output].state].type;
}

const char *nnc_result_name(const program *p, int i)
{
    const nnc_plan *plan = p->a->plan;
    return i < plan->n_output ? plan->output_name[i]
                              : plan->tensor[plan->update[i - plan->n_output].state].name;
}

static nnc_status compare(comparison *c)
{
    NNC_TRY(compile_all(c));
    NNC_TRY(compile_variants(c));
    c->io = c->o->io;
    for (int i = 0; i < c->n; i++)
        c->io = c->p[i].a->chunks > 1 ? NNC_IO_INCLUDE : c->io;
    c->main = c->io == NNC_IO_INCLUDE;
    const nnc_plan *plan = c->p[0].a->plan;
    c->n_result = plan->n_output + (c->o->training ? plan->n_update : 0);
    c->initial = ARENA_NEW(&c->arena, void *, c->n_result + 1);
    NNC_NEED(c->initial, c->sink);
    for (int i = 0; i < c->n; i++) {
        c->p[i].output = ARENA_NEW(&c->arena, judged, c->n_result + 1);
        NNC_NEED(c->p[i].output, c->sink);
    }
    NNC_TRY(make_inputs(c));
    if (c->o->no_reference) {
        snprintf(c->reference.scope, sizeof c->reference.scope, "not asked for");
    } else {
        nnc_compare_say(c, "computing the float64 reference", NULL);
        NNC_TRY(nnc_reference_make(
            c->model, c->input, nnc_env_threads(c->env), &c->reference, c->sink));
    }
    nnc_compare_say(c, "loading weights", NULL);
    NNC_TRY(nnc_measure(c));
    return nnc_judge(c);
}

static void release(comparison *c)
{
    for (int i = 0; i < c->n; i++) {
        nnc_artifact_destroy(c->p[i].a);
        for (int io = 0; io < 2; io++) {
            nnc_free(c->p[i].t[io].run.ns);
            nnc_free(c->p[i].t[io].burst_ms);
        }
    }
    for (int i = 0; i < c->n_input; i++)
        nnc_free(c->input[i]);
    for (int i = 0; i < c->n_kept; i++)
        nnc_free(c->kept[i].data);
    for (int i = 0; c->initial && i < c->n_result; i++)
        nnc_free(c->initial[i]);
    nnc_free(c->input);
    nnc_reference_deinit(&c->reference);
    nnc_arena_deinit(&c->arena);
}

nnc_status nnc_compare(nnc_env *e, const nnc_model *m, const nnc_compare_options *o, nnc_format f,
    nnc_text *out, bool *agrees, nnc_sink *sink)
{
    NNC_FREED comparison *c = nnc_calloc(1, sizeof *c);
    NNC_NEED(c, sink);
    c->env = e;
    c->model = m;
    c->o = o ? o : &nnc_compare_defaults;
    c->sink = sink;
    c->paired[0] = c->paired[1] = NO_PAIRS;
    NNC_OWNED(nnc_graph) *step = NULL;
    if (m->n_output == 0)
        return nnc_fail0(sink, NNC_E_MODEL,
            "%s: no output has elements, so there is nothing to compare", m->name);
    if (c->o->training) {
        NNC_NEED(step = nnc_graph_clone(m, sink), sink);
        nnc_judged_moments(step);
        c->model = step;
    }
    nnc_status st = compare(c);
    if (!st)
        nnc_rooflines(c);
    if (!st)
        st = nnc_compare_print(c, f, out);
    if (!st && c->o->json)
        st = nnc_compare_print(c, NNC_JSON, c->o->json);
    *agrees = c->agrees;
    release(c);
    return st;
}
