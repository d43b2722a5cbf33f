/* tests/api/help.c -- see help.h. */
#include "help.h"
#include "gen/gen.h"

#include <dirent.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- data ---- */

static void spoil(const nnc_type *t, uint64_t key, void *p)
{
    nnc_dtype d = (nnc_dtype)t->dtype;
    static const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e-40};
    for (int64_t i = 0; nnc_is_float(d) && i < nnc_type_numel(t); i++) {
        uint32_t u = nnc_rng_u32(key, (uint64_t)i);
        if (u % 50 == 0)
            nnc_set_f64(d, p, i, odd[u / 50 % NNC_COUNT(odd)]);
    }
}

bool api_inputs(api_data *d, const nnc_graph *g, uint64_t seed, bool odd)
{
    *d = (api_data){.in = nnc_calloc(g->n_node + 1, sizeof *d->in), .n_out = g->n_output};
    for (uint32_t i = 0; d->in && i < g->n_node; i++) {
        if (g->node[i].op != OP_input)
            continue;
        const nnc_value *v = &g->value[g->node[i].out];
        const char *name = v->name ? v->name : "";
        uint64_t h = nnc_hash64(name, strlen(name), v->name ? 0 : (uint64_t)d->n_in);
        void *p = nnc_malloc((size_t)nnc_type_bytes(&v->type));
        if (!p)
            return false;
        gen_fill_input(&v->type, seed, (int)(h & 0x7fffffff), p);
        if (odd)
            spoil(&v->type, h ^ seed, p);
        d->in[d->n_in++] = p;
    }
    return d->in != NULL;
}

nnc_status api_truth(api_data *d, const nnc_graph *g, nnc_sink *sink)
{
    d->want = nnc_calloc(g->n_output + 1, sizeof *d->want);
    return d->want ? nnc_eval(g, (const void *const *)d->in, 1, d->want, sink) : nnc_nomem(sink);
}

void api_data_free(api_data *d)
{
    for (int i = 0; i < d->n_in; i++)
        nnc_free(d->in[i]);
    for (uint32_t i = 0; d->want && i < d->n_out; i++)
        nnc_rval_free(&d->want[i]);
    nnc_free(d->in);
    nnc_free(d->want);
    *d = (api_data){0};
}

void api_put_sink(nnc_text *t, const nnc_sink *s)
{
    for (size_t i = 0; i < nnc_sink_count(s); i++) {
        const nnc_diag *d = nnc_sink_at(s, i);
        nnc_printf(t, "\n  %s:%d: %s: %s", d->loc.file ? d->loc.file : "", d->loc.line,
            d->loc.path ? d->loc.path : "", d->message);
    }
}

static bool bad(nnc_text *why, const nnc_sink *sink, const char *what, nnc_status st)
{
    nnc_printf(why, "%s: %s", what, nnc_status_name(st));
    if (sink)
        api_put_sink(why, sink);
    return false;
}

/* ---- texts ---- */

static bool graph_round_trip(const nnc_graph *g, const char *what, nnc_text *why, nnc_sink *sink)
{
    nnc_text a = {0}, b = {0};
    nnc_scan s;
    nnc_graph_print(&a, g);
    nnc_scan_init(&s, what, nnc_text_str(&a), a.n);
    nnc_graph *h = nnc_graph_parse(&s, sink);
    if (h)
        nnc_graph_print(&b, h);
    bool ok = h && !strcmp(nnc_text_str(&a), nnc_text_str(&b));
    if (!ok) {
        nnc_printf(why, "%s: the text does not parse back to itself", what);
        api_put_sink(why, sink);
    }
    nnc_graph_destroy(h);
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
    return ok;
}

static bool plan_round_trip(const nnc_plan *p, nnc_text *why, nnc_sink *sink)
{
    nnc_text a = {0}, b = {0};
    nnc_scan s;
    nnc_plan_print(&a, p);
    nnc_scan_init(&s, "plan", nnc_text_str(&a), a.n);
    nnc_plan *q = nnc_plan_parse(&s, sink);
    if (q)
        nnc_plan_print(&b, q);
    bool ok = q && !strcmp(nnc_text_str(&a), nnc_text_str(&b));
    if (!ok) {
        nnc_puts(why, "the plan's text does not parse back to itself");
        api_put_sink(why, sink);
    }
    nnc_plan_destroy(q);
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
    return ok;
}

static bool kernels_round_trip(const nnc_plan *p, nnc_text *why, nnc_sink *sink)
{
    bool ok = true;
    for (int i = 0; ok && i < p->n_kernel; i++) {
        const char *ir = p->kernel[i].ir;
        nnc_arena a;
        nnc_scan s;
        nnc_text t = {0};
        nnc_arena_init(&a, 0);
        nnc_scan_init(&s, p->kernel[i].symbol, ir, strlen(ir));
        nnc_kernel *k = nnc_schedule_parse(&s, &a, sink);
        if (k)
            nnc_kernel_print(&t, k);
        ok = k && nnc_schedule_verify(k, sink) == NNC_OK && !strcmp(ir, nnc_text_str(&t));
        if (!ok) {
            nnc_printf(
                why, "kernel %d does not parse back to itself\n%s\n%s", i, ir, nnc_text_str(&t));
            api_put_sink(why, sink);
        }
        nnc_text_deinit(&t);
        nnc_arena_deinit(&a);
    }
    return ok;
}

/* ---- accounts ---- */

nnc_cost api_plan_cost(const nnc_plan *p)
{
    nnc_cost s = {0};
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        s.launches += c->kind == CMD_kernel || c->kind == CMD_call || c->kind == CMD_copy;
        s.bytes += c->bytes;
        s.flops += c->flops;
    }
    return s;
}

nnc_cost api_saved(const nnc_remarks *r)
{
    nnc_cost s = {0};
    for (size_t i = 0; i < r->n; i++)
        if (r->at[i].applied) {
            s.bytes += r->at[i].bytes_saved;
            s.launches += (int32_t)r->at[i].launches_saved;
        }
    return s;
}

bool api_accounts(
    const nnc_remarks *r, nnc_cost before, nnc_cost after, const char *what, nnc_text *why)
{
    nnc_cost saved = api_saved(r);
    if (saved.bytes == before.bytes - after.bytes &&
        saved.launches == before.launches - after.launches)
        return true;
    nnc_printf(why, "remarks save %lld bytes and %d launches, the %s %lld and %d",
        (long long)saved.bytes, saved.launches, what, (long long)(before.bytes - after.bytes),
        before.launches - after.launches);
    return false;
}

static bool check_remarks(const nnc_artifact *a, nnc_text *why)
{
    const nnc_remarks *r = &a->remarks;
    for (size_t i = 0; i < r->n; i++) {
        const nnc_remark *m = &r->at[i];
        if (!m->pass || !m->rule || !*m->rule || !m->reason || !*m->reason ||
            (nnc_pass_find(m->pass) < 0 && strcmp(m->pass, nnc_kernel_remarks.name) != 0 &&
                strcmp(m->pass, nnc_split_notes.name) != 0)) {
            nnc_printf(why, "remark %zu lacks a pass, a rule or a reason", i);
            return false;
        }
    }
    return api_accounts(r, nnc_graph_cost(a->source), nnc_graph_cost(a->graph), "graph", why);
}

bool api_check_artifact(const nnc_artifact *a, nnc_text *why, nnc_sink *sink)
{
    nnc_status st = nnc_verify(a->graph, sink);
    if (st)
        return bad(why, sink, "the optimised graph is not valid", st);
    st = nnc_plan_verify(a->plan, sink);
    if (st)
        return bad(why, sink, "the plan is not valid", st);
    return check_remarks(a, why) && graph_round_trip(a->graph, "optimised graph", why, sink) &&
           graph_round_trip(a->source, "source graph", why, sink) &&
           plan_round_trip(a->plan, why, sink) && kernels_round_trip(a->plan, why, sink);
}

/* ---- run ---- */

static bool check_memory(const nnc_session *s, nnc_text *why)
{
    for (int d = 0; d < s->plan->n_device; d++) {
        const nnc_plan_device *p = &s->plan->device[d];
        nnc_exec_memory m = nnc_exec_requested(s->exec, d);
        if (m.arena == p->arena_bytes && m.persist == p->persist_bytes && m.init == p->init_bytes &&
            p->lower_bound <= p->arena_bytes && p->workspace_bytes <= p->arena_bytes)
            continue;
        nnc_printf(why, "%s: requested %lld + %lld + %lld bytes, planned %lld + %lld + %lld",
            p->name, (long long)m.arena, (long long)m.persist, (long long)m.init,
            (long long)p->arena_bytes, (long long)p->persist_bytes, (long long)p->init_bytes);
        return false;
    }
    return true;
}

static bool run_once(nnc_session *s, void **out, nnc_text *why, nnc_sink *sink)
{
    nnc_status st = nnc_session_run(s, sink);
    for (int i = 0; !st && i < nnc_session_outputs(s); i++) {
        memset(out[i], 0x5a, (size_t)nnc_type_bytes(nnc_session_output_type(s, i)));
        st = nnc_session_output(s, i, out[i], sink);
    }
    return st ? bad(why, sink, "run", st) : true;
}

static bool run_twice(nnc_session *s, const api_data *d, api_run *r, nnc_text *why, nnc_sink *sink)
{
    nnc_status st = NNC_OK;
    if (nnc_session_inputs(s) != d->n_in)
        return bad(why, NULL, "the plan has another number of inputs", NNC_E_BUG);
    for (int i = 0; !st && i < d->n_in; i++)
        st = nnc_session_input(s, i, d->in[i], sink);
    if (st)
        return bad(why, sink, "input", st);
    if (!run_once(s, r->out, why, sink))
        return false;
    void **again = nnc_calloc((size_t)r->n_out + 1, sizeof *again);
    bool ok = again != NULL;
    for (int i = 0; ok && i < r->n_out; i++)
        ok = (again[i] = nnc_malloc((size_t)nnc_type_bytes(nnc_session_output_type(s, i)))) != NULL;
    ok = ok && run_once(s, again, why, sink);
    for (int i = 0; ok && i < r->n_out; i++)
        if (memcmp(again[i], r->out[i], (size_t)nnc_type_bytes(nnc_session_output_type(s, i)))) {
            nnc_printf(why, "a second run gives other bytes in output %d", i);
            ok = false;
        }
    for (int i = 0; again && i < r->n_out; i++)
        nnc_free(again[i]);
    nnc_free(again);
    return ok;
}

bool api_run_artifact(
    nnc_env *e, const nnc_artifact *a, const api_data *d, api_run *r, nnc_text *why, nnc_sink *sink)
{
    nnc_session *s;
    nnc_status st = nnc_session_create(e, a, &s, sink);
    if (st)
        return bad(why, sink, "load", st);
    r->out = nnc_calloc((size_t)nnc_session_outputs(s) + 1, sizeof *r->out);
    bool ok = r->out && check_memory(s, why);
    for (int i = 0; ok && i < nnc_session_outputs(s); i++) {
        r->out[i] = nnc_malloc((size_t)nnc_type_bytes(nnc_session_output_type(s, i)));
        ok = r->out[i] != NULL;
        r->n_out++;
    }
    ok = ok && run_twice(s, d, r, why, sink);
    nnc_session_destroy(s);
    return ok;
}

bool api_compile_and_run(nnc_env *e, const nnc_graph *g, const nnc_compile_options *o,
    const api_data *d, api_run *r, nnc_text *why, nnc_sink *sink)
{
    *r = (api_run){0};
    nnc_status st = nnc_compile(e, g, o, &r->a, sink);
    if (st)
        return bad(why, sink, "compile", st);
    return api_check_artifact(r->a, why, sink) && api_run_artifact(e, r->a, d, r, why, sink);
}

void api_run_free(api_run *r)
{
    for (int i = 0; i < r->n_out; i++)
        nnc_free(r->out[i]);
    nnc_free(r->out);
    nnc_artifact_destroy(r->a);
    *r = (api_run){0};
}

/* ---- compare ---- */

static void note(api_diff *x, int64_t i, double got, double want)
{
    x->first = i;
    x->got = got;
    x->want = want;
}

api_diff api_compare(const nnc_type *t, const void *got, const nnc_rval *want)
{
    api_diff x = {0};
    nnc_dtype d = (nnc_dtype)t->dtype;
    int64_t n = nnc_type_numel(t);
    double d2 = 0, w2 = 0;
    if (!nnc_type_same_shape(t, &want->type) || t->dtype != want->type.dtype)
        return (api_diff){.wrong = n};
    for (int64_t i = 0; i < n; i++) {
        double a = nnc_get_f64(d, got, i), b = want->f ? want->f[i] : (double)want->i[i];
        bool same =
            want->f ? a == b || (isnan(a) && isnan(b)) : nnc_get_i64(d, got, i) == want->i[i];
        if (!same && (!want->f || !isfinite(a) || !isfinite(b))) {
            if (!x.wrong++)
                note(&x, i, a, b);
        } else if (want->f && isfinite(b)) {
            double e = fabs(a - b);
            if (e > x.max_abs && !x.wrong)
                note(&x, i, a, b);
            x.max_abs = fmax(x.max_abs, e);
            d2 += e * e;
            w2 += b * b;
        }
    }
    x.nmse = d2 == 0 ? 0 : d2 / fmax(w2, 1e-2 * (double)n);
    return x;
}

nnc_rounding api_rounding(nnc_precision p)
{
    const double unit = p == NNC_PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    const bool narrow = p >= NNC_PRECISION_f16;
    return (nnc_rounding){.operand_unit = narrow || p == NNC_PRECISION_tf32 ? unit : 0,
        .result_unit = narrow ? unit : 0};
}

bool api_is_conditioned(
    const nnc_graph *g, const api_data *d, nnc_rounding r, uint32_t i, const void *got)
{
    enum { DRAWS = 16, FACTOR = 16 };
    const nnc_rval *want = &d->want[i];
    const nnc_type *t = nnc_typeof(g, g->output[i]);
    NNC_FREED nnc_rval *v = nnc_calloc(g->n_output + (size_t)1, sizeof *v);
    double error = 0, rounding = 0;
    bool ok = v && want->f;
    for (r.seed = 1; ok && r.seed <= DRAWS; r.seed++) {
        ok = !nnc_eval_rounded(g, (const void *const *)d->in, 1, &r, v, test_sink);
        for (int64_t k = 0; ok && k < nnc_type_numel(t); k++) {
            const double moved = v[i].f[k] - want->f[k],
                         off = nnc_get_f64((nnc_dtype)t->dtype, got, k) - want->f[k];
            rounding += isfinite(moved) ? moved * moved / DRAWS : 0;
            error += isfinite(off) ? off * off / DRAWS : 0;
        }
        for (uint32_t o = 0; ok && o < g->n_output; o++)
            nnc_rval_free(&v[o]);
    }
    return ok && error <= FACTOR * rounding;
}

bool api_same(const nnc_type *t, const void *a, const void *b)
{
    nnc_dtype d = (nnc_dtype)t->dtype;
    int64_t n = nnc_type_numel(t), size = nnc_dtype_size(d);
    if (!memcmp(a, b, (size_t)(n * size)))
        return true;
    for (int64_t i = 0; i < n; i++)
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, (size_t)size) &&
            !(nnc_is_float(d) && isnan(nnc_get_f64(d, a, i)) && isnan(nnc_get_f64(d, b, i))))
            return false;
    return true;
}

double api_coarsest(const nnc_graph *g)
{
    double eps = 0;
    for (uint32_t i = 0; i < g->n_value; i++)
        switch (g->value[i].type.dtype) {
        case DT_f64: eps = fmax(eps, DBL_EPSILON); break;
        case DT_f32: eps = fmax(eps, FLT_EPSILON); break;
        case DT_f16: eps = fmax(eps, 0x1p-10); break;
        case DT_bf16: eps = fmax(eps, 0x1p-7); break;
        }
    return eps;
}

/* ---- files ---- */

nnc_env *api_env_for(const nnc_compile_options *o)
{
    const bool cached = test_cache() && !o->on_kernel;
    const nnc_env_options options = {
        .cache_dir = cached ? test_cache() : NULL, .no_cache = !cached, .threads = 2};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&options, &e, test_sink));
    return e;
}

bool api_tmpdir(char *path, size_t n)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, n, "%s/nnc-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(path) != NULL;
}

const char *api_in(const char *dir, const char *name)
{
    static char path[4][512];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

void api_rmdir(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char file[4096];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        if (unlink(file) != 0)
            api_rmdir(file);
    }
    if (d)
        closedir(d);
    rmdir(path);
}
