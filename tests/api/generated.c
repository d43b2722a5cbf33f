/* tests/api/generated.c -- generated graphs end to end. Each case is compiled at -O0 for the interpreter, at -O2 for everything there
 * is, and by one more configuration in turn. Those differ in levels, engines, streams, devices, threads, skipped passes, order of nodes
 * and joined siblings. All must give the float64 reference's numbers within the bounds below, keep their accounts, and request the
 * memory that was planned. Wild graphs have no such bound: there, what -O1 promises (not one rounding changes) is checked bit by bit.
 *
 * NNC_CASE=N runs one case and prints it; NNC_CASES=N sets how many. The first that fails is made small. */
#include "cases.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- configurations ---- */

enum { E_full, E_threads, E_interp, E_least, E__COUNT }; /* environments */
static const nnc_env_options env_options[E__COUNT] = {
    [E_full] = {.threads = 1},
    [E_threads] = {.threads = 2},
    [E_interp] = {.threads = 1, .no_llvm = true},
    [E_least] = {.threads = 2, .no_llvm = true},
};
static char
    cache[256]; /* of kernels, for all environments: the machine code of a kernel is made once */

typedef struct config {
    const char *name;
    int env, level, streams, devices;
    bool fast, permute, skip;
    nnc_precision precision;
} config;

static const config plain = {"-O0, interpreter", E_least, 0, 1, 1, false, false, false};
static const config full = {"-O2", E_full, 2, 1, 1, false, false, false};
static const config others[] = {
    {"-O0, LLVM", E_full, 0, 1, 1, false, false, false},
    {"-O1", E_full, 1, 1, 1, false, false, false},
    {"-O3", E_full, 3, 1, 1, false, false, false},
    {"-O2, interpreter", E_interp, 2, 1, 1, false, false, false},
    {"-O2, 2 streams", E_threads, 2, 2, 1, false, false, false},
    {"-O2, 3 streams", E_full, 2, 3, 1, false, false, false},
    {"-O0, 3 streams, interpreter", E_least, 0, 3, 1, false, false, false},
    {"-O2, 2 devices", E_full, 2, 1, 2, false, false, false},
    {"-O1, 2 devices, 2 streams", E_least, 1, 2, 2, false, false, false},
    {"-O2, 2 threads", E_threads, 2, 1, 1, false, false, false},
    {"-O2, nodes permuted, siblings joined", E_full, 2, 1, 1, false, true, false},
    {"-O2, passes skipped", E_full, 2, 1, 1, false, false, true},
    {"-O3, fast math", E_full, 3, 1, 1, true, false, false},
    {"-O2, interpreter", E_least, 2, 1, 1, false, false, false},
    {"-O2, passes skipped, interpreter", E_least, 2, 1, 1, false, false, true},
    {"-O1, interpreter", E_interp, 1, 1, 1, false, false, false},
    {"-O2, f16", E_full, 2, 1, 1, false, false, false, NNC_PRECISION_f16},
    {"-O2, bf16", E_full, 2, 1, 1, false, false, false, NNC_PRECISION_bf16},
    {"-O2, f16, interpreter", E_least, 2, 1, 1, false, false, false, NNC_PRECISION_f16},
    {"-O3, bf16, 2 streams, nodes permuted, siblings joined", E_threads, 3, 2, 1, false, true,
        false, NNC_PRECISION_bf16},
};

typedef struct worker {
    pthread_t thread;
    uint64_t first, step, end;
    nnc_env *env[E__COUNT];
    nnc_sink *sink;
    int64_t runs;
    bool failed;
    double worst[4]; /* nmse by coarsest float: none, f16 or bf16, f32, f64 */
    uint64_t worst_at[4];
} worker;

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;
static bool any_failed;
static __thread char doing[160]; /* for the handler of crashes */

static void crashed(int sig)
{
    static const char head[] = "\ncrashed in ";
    if (write(2, head, sizeof head - 1) > 0 && write(2, doing, strlen(doing)) > 0)
        (void)!write(2, "\n", 1);
    signal(sig, SIG_DFL);
    raise(sig);
}

static nnc_env *env_of(worker *w, int i)
{
    nnc_env_options o = env_options[i];
    o.cache_dir = cache;
    if (!w->env[i] && nnc_env_create(&o, &w->env[i], w->sink) != NNC_OK)
        w->env[i] = NULL;
    return w->env[i];
}

/* ---- bounds ----
 * The generator keeps values within +-16 and graphs well-conditioned (gen.h): each node may add its rounding, 16 units
 * of the coarsest float, amplified by at most 10. And over a whole output, nmse stays within nmse_bound. An
 * output beyond is judged by its own conditioning. */

static int class_of(double eps)
{
    return eps == 0 ? 0 : eps > 1e-4 ? 1 : eps > 1e-10 ? 2 : 3;
}
static const double nmse_bound[4] = {0, 1e-2, 1e-9, 1e-24};

/* ---- one configuration ---- */

static int skip_some(uint64_t seed, const char **skip)
{
    uint64_t key = nnc_rng_key("skip", seed);
    int n = 0;
    for (int i = 0; i < nnc_pass_count; i++)
        if (nnc_rng_u32(key, (uint64_t)i) % 4 == 0)
            skip[n++] = nnc_pass_table[i].name;
    return n;
}

static nnc_graph *graph_for(const test_graph *c, const config *f, nnc_sink *sink)
{
    nnc_graph *g = f->permute ? case_permuted(c->g, c->seed, sink) : nnc_graph_clone(c->g, sink);
    if (g && f->devices > 1)
        case_place(g, c->seed, f->devices);
    return g;
}

static bool execute(
    worker *w, const test_graph *c, const config *f, const api_data *d, api_run *r, nnc_text *why)
{
    const char *skip[32];
    nnc_compile_options o = nnc_compile_defaults;
    o.level = f->level;
    o.streams = f->streams;
    o.devices = f->devices;
    o.precision = c->odd ? NNC_PRECISION_default : f->precision; /* infinity begins earlier */
    o.math = c->odd    ? MATH_exact
             : f->fast ? MATH_fast
                       : MATH_ulp2; /* exact: NaN survives every relu */
    o.jobs = 1;
    o.join_siblings = f->permute;
    o.skip = skip;
    o.n_skip = f->skip ? skip_some(c->seed, skip) : 0;
    *r = (api_run){0};
    nnc_env *e = env_of(w, f->env);
    nnc_graph *g = graph_for(c, f, w->sink);
    bool ok = e && g;
    if (!ok)
        nnc_puts(why, "no environment or graph");
    w->runs++;
    nnc_sink_clear(w->sink);
    ok = ok && api_compile_and_run(e, g, &o, d, r, why, w->sink);
    nnc_graph_destroy(g);
    return ok;
}

static bool near(worker *w, const test_graph *c, const config *f, const api_data *d,
    const api_run *r, nnc_text *why)
{
    nnc_dtype rounded = nnc_precision_dtype(f->precision);
    double eps = fmax(api_coarsest(c->g), rounded == DT_f16    ? 0x1p-10
                                          : rounded == DT_bf16 ? 0x1p-7
                                                               : 0);
    int k = class_of(eps);
    nnc_rounding rounding = api_rounding(f->precision);
    rounding.function_error = f->fast ? 0x1p-15 : 0;
    for (uint32_t i = 0; i < d->n_out; i++) {
        const nnc_type *t = &r->a->plan->tensor[r->a->plan->output[i]].type;
        api_diff x = api_compare(t, r->out[i], &d->want[i]);
        double bound = nnc_is_float((nnc_dtype)t->dtype) ? 16 * eps * 10 * c->g->n_node : 0;
        if (!c->odd && nnc_is_float((nnc_dtype)t->dtype) && x.nmse > w->worst[k]) {
            w->worst[k] = x.nmse;
            w->worst_at[k] = c->seed;
        }
        if (!x.wrong && x.max_abs <= bound && x.nmse <= nmse_bound[k] * (f->fast ? 10 : 1))
            continue;
        if (!x.wrong && api_is_conditioned(c->g, d, rounding, i, r->out[i]))
            continue;
        nnc_printf(why,
            "output %u (%s): element %lld is %.9g, not %.9g; %lld NaN, infinite or integer ones "
            "differ, "
            "others by up to %g (bound %g), nmse %.2e",
            (unsigned)i, d->n_out > i ? c->g->output_name[i] : "", (long long)x.first, x.got,
            x.want, (long long)x.wrong, x.max_abs, bound, x.nmse);
        return false;
    }
    return true;
}

static bool same(const nnc_graph *g, const api_run *a, const api_run *b, nnc_text *why)
{
    for (int i = 0; i < a->n_out; i++)
        if (!api_same(nnc_typeof(g, g->output[i]), a->out[i], b->out[i])) {
            nnc_printf(why, "output %d (%s): other bits than at -O0", i, g->output_name[i]);
            return false;
        }
    return true;
}

/* Does configuration f agree with the reference, or in a wild graph with `base`? */
static bool agrees(worker *w, const test_graph *c, const config *f, const api_data *d,
    const api_run *base, nnc_text *why)
{
    api_run r;
    snprintf(doing, sizeof doing, "case of seed %llu, %s", (unsigned long long)c->seed, f->name);
    bool ok = execute(w, c, f, d, &r, why);
    if (ok && c->kind != CK_wild)
        ok = near(w, c, f, d, &r, why);
    else if (ok && f->level <= 1 && f->env == plain.env)
        ok = same(c->g, base, &r, why);
    if (ok && f->streams == 1 && f->devices == 1 && base) {
        nnc_cost written = api_plan_cost(base->a->plan), saved = api_saved(&base->a->remarks);
        written.bytes += saved.bytes; /* by passes of level 0, which are in both plans */
        written.launches += saved.launches;
        ok = api_accounts(&r.a->remarks, written, api_plan_cost(r.a->plan), "plans", why);
    }
    api_run_free(&r);
    return ok;
}

/* ---- one case ---- */

static const config wild_same = {"-O1, interpreter", E_least, 1, 1, 1, false, false, false};

/* All configurations of a case; *which is the one that fails. */
static bool check(worker *w, const test_graph *c, uint64_t index, nnc_text *why, config *which)
{
    api_data d;
    api_run base = {0};
    nnc_sink_clear(w->sink);
    *which = plain;
    bool ok = api_inputs(&d, c->g, c->seed, c->odd) && api_truth(&d, c->g, w->sink) == NNC_OK;
    if (!ok) {
        nnc_puts(why, "the reference fails");
        api_put_sink(why, w->sink);
    }
    snprintf(doing, sizeof doing, "case %llu, %s", (unsigned long long)index, plain.name);
    ok = ok && execute(w, c, &plain, &d, &base, why);
    if (ok && c->kind != CK_wild)
        ok = near(w, c, &plain, &d, &base, why);
    config list[3] = {
        full, others[(index + index / NNC_COUNT(others)) % NNC_COUNT(others)], wild_same};
    for (int i = 0; ok && i < (c->kind == CK_wild ? 3 : 2); i++) {
        *which = list[i];
        ok = agrees(w, c, &list[i], &d, &base, why);
    }
    api_run_free(&base);
    api_data_free(&d);
    return ok;
}

/* What is reduced: a case, and the configuration that fails on it. */
typedef struct reduced {
    worker *w;
    const test_graph *c;
    const config *f;
} reduced;

/* Does the configuration alone fail on g? */
static bool fails(const nnc_graph *g, void *ctx)
{
    const reduced *x = ctx;
    worker *w = x->w;
    test_graph t = *x->c;
    api_data d;
    api_run base = {0};
    nnc_text why = {0};
    t.g = (nnc_graph *)g;
    nnc_sink_clear(w->sink);
    bool ok = api_inputs(&d, g, t.seed, t.odd) && api_truth(&d, g, w->sink) == NNC_OK;
    bool bad =
        ok && (!execute(w, &t, &plain, &d, &base, &why) || !agrees(w, &t, x->f, &d, &base, &why));
    if (ok && !bad && x->f->level == 0 && t.kind != CK_wild)
        bad = !near(w, &t, x->f, &d, &base, &why);
    api_run_free(&base);
    api_data_free(&d);
    nnc_text_deinit(&why);
    return bad;
}

static void print_graph(const nnc_graph *g)
{
    nnc_text t = {0};
    nnc_graph_print(&t, g);
    fputs(nnc_text_str(&t), stderr);
    nnc_text_deinit(&t);
}

static void report(worker *w, test_graph *c, uint64_t index, const config *f, const nnc_text *why)
{
    pthread_mutex_lock(&printing);
    w->failed = true;
    test_fail(__FILE__, __LINE__, "NNC_CASE=%llu --seed %llu (%s%s): %s", (unsigned long long)index,
        (unsigned long long)test_seed, f->name, c->odd ? ", odd inputs" : "",
        nnc_text_str((nnc_text *)why));
    const bool first = !any_failed;
    any_failed = true;
    if (first)
        c->g = gen_shrink(c->g, fails, &(reduced){w, c, f}, w->sink);
    if (getenv("NNC_CASE") || first || c->nodes <= 12)
        print_graph(c->g);
    pthread_mutex_unlock(&printing);
}

static void run_case(worker *w, uint64_t index)
{
    nnc_text why = {0};
    config which;
    nnc_sink_clear(w->sink);
    test_graph c = case_make(index, w->sink);
    if (!c.g) {
        pthread_mutex_lock(&printing);
        test_fail(__FILE__, __LINE__, "NNC_CASE=%llu: no graph", (unsigned long long)index);
        pthread_mutex_unlock(&printing);
        return;
    }
    if (!check(w, &c, index, &why, &which))
        report(w, &c, index, &which, &why);
    nnc_graph_destroy(c.g);
    nnc_text_deinit(&why);
}

static void *work(void *p)
{
    worker *w = p;
    w->sink = nnc_sink_create();
    for (uint64_t i = w->first; w->sink && i < w->end; i += w->step)
        run_case(w, i);
    for (int i = 0; i < E__COUNT; i++)
        nnc_env_destroy(w->env[i]);
    nnc_sink_destroy(w->sink);
    return NULL;
}

TEST(generated)
{
    const char *one = getenv("NNC_CASE"), *count = getenv("NNC_CASES");
    uint64_t n =
        count ? strtoull(count, NULL, 0) : (uint64_t)test_draws(api_sanitized ? 400 : 2000);
    uint64_t first = one ? strtoull(one, NULL, 0) : 0, end = one ? first + 1 : n;
    int n_worker = one ? 1 : (int)nnc_min64(nnc_cpu_count(), 4);
    worker w[4];
    CHECK(api_tmpdir(cache, sizeof cache));
    void (*old[3])(int) = {
        signal(SIGSEGV, crashed), signal(SIGILL, crashed), signal(SIGFPE, crashed)};
    for (int i = 0; i < n_worker; i++) {
        w[i] = (worker){.first = first + (uint64_t)i, .step = (uint64_t)n_worker, .end = end};
        CHECK_INT(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    worker all = {0};
    for (int i = 0; i < n_worker; i++) {
        pthread_join(w[i].thread, NULL);
        all.runs += w[i].runs;
        for (int k = 0; k < 4; k++)
            if (w[i].worst[k] > all.worst[k]) {
                all.worst[k] = w[i].worst[k];
                all.worst_at[k] = w[i].worst_at[k];
            }
    }
    signal(SIGSEGV, old[0]);
    signal(SIGILL, old[1]);
    signal(SIGFPE, old[2]);
    api_rmdir(cache);
    printf(
        "  %llu graphs, %lld programs, seed %llu; largest nmse: f64 %.1e, f32 %.1e, 16 bits %.1e\n",
        (unsigned long long)(end - first), (long long)all.runs, (unsigned long long)test_seed,
        all.worst[3], all.worst[2], all.worst[1]);
    for (int k = 1; k < 4; k++)
        if (getenv("NNC_CASES"))
            printf("  worst %d at case %llu\n", k,
                (unsigned long long)(all.worst_at[k] - test_seed * 1000003));
}

/* A product whose operand is transposed by an op of its own. Read from memory as it is, its terms would be added in another order. */
TEST(transposed_products_keep_their_bits)
{
    static const char text[] =
        "graph @t {\n%a = input : f32[5,4]\n%b = input : f32[2,4,5,4,5]\n"
        "%t = transpose %a {perm=[1,0]}\n%y = matmul %b, %t {transpose_b=1}\nreturn %y }";
    worker w = {.sink = nnc_sink_create()};
    NNC_LOCAL(nnc_text) why = {0};
    nnc_scan scan;
    config which;
    CHECK(w.sink && api_tmpdir(cache, sizeof cache));
    nnc_scan_init(&scan, "t", text, strlen(text));
    test_graph c = {.kind = CK_wild, .g = nnc_graph_parse(&scan, test_sink)};
    CHECK(c.g != NULL);
    if (c.g && !check(&w, &c, 0, &why, &which))
        test_fail(__FILE__, __LINE__, "%s: %s", which.name, nnc_text_str(&why));
    for (int i = 0; i < E__COUNT; i++)
        nnc_env_destroy(w.env[i]);
    nnc_sink_destroy(w.sink);
    nnc_graph_destroy(c.g);
    api_rmdir(cache);
}
