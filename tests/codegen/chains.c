/* tests/codegen/chains.c -- chains of functions of one value as polynomials: 200 random ones against
 * the float64 reference, what must be declined, and that measuring would find a wrong coefficient. */
#include "math/collapse.h"
#include "math/poly.h"
#include "help.h"

#include <math.h>

enum { DENSE = 20000, SPECIAL = 64, N = DENSE + SPECIAL, CHAINS = 200 };

/* ---- one chain ---- */

typedef struct chain {
    nnc_text text; /* the graph */
    double lo, hi; /* x is clipped to this, or any number when lo > hi */
    int n; /* values so far: %v0 is the input */
} chain;

static uint32_t draw(uint64_t *at, uint32_t below)
{
    return nnc_rng_u32(nnc_rng_key("chains", test_seed), (*at)++) % below;
}

static void unary(chain *c, const char *op)
{
    nnc_printf(&c->text, "%%v%d = %s %%v%d\n", c->n + 1, op, c->n);
    c->n++;
}

static void with_number(chain *c, const char *op, double v)
{
    nnc_printf(&c->text, "%%k%d = constant : f32[] = [%g]\n%%v%d = %s %%v%d, %%k%d\n", c->n, v,
        c->n + 1, op, c->n, c->n);
    c->n++;
}

static void random_link(chain *c, uint64_t *at)
{
    static const char *const f[] = {"sin", "tanh", "sigmoid", "erf", "cos", "exp", "sin", "tanh",
        "neg", "atan", "silu", "square"};
    static const double k[] = {0.5, 0.25, -0.75, 0.875, 1.5, 2};
    uint32_t i = draw(at, NNC_COUNT(f) + 4);
    if (i < NNC_COUNT(f))
        unary(c, f[i]);
    else if (i < NNC_COUNT(f) + 2)
        with_number(c, "mul", k[draw(at, NNC_COUNT(k))]);
    else
        with_number(c, "add", k[draw(at, NNC_COUNT(k))]);
}

static void begin(chain *c, double lo, double hi)
{
    *c = (chain){.lo = lo, .hi = hi};
    nnc_printf(&c->text, "graph @t {\n%%v0 = input : f32[%d]\n", N);
    if (lo <= hi) {
        nnc_printf(&c->text, "%%v1 = clip %%v0 {lo=%g, hi=%g}\n", lo, hi);
        c->n = 1;
    }
}

static const char *finish(chain *c)
{
    nnc_printf(&c->text, "return %%v%d }", c->n);
    return nnc_text_str(&c->text);
}

static void random_chain(chain *c, uint64_t *at)
{
    static const double ends[][2] = {{-1, 1}, {-0.5, 0.5}, {0, 1}, {-2, 2}, {0.25, 0.75}, {1, 0}};
    static const char *const bounded[] = {"sin", "cos", "tanh", "sigmoid", "erf"};
    uint32_t e = draw(at, NNC_COUNT(ends));
    begin(c, ends[e][0], ends[e][1]);
    if (c->lo > c->hi)
        unary(c, bounded[draw(at, NNC_COUNT(bounded))]);
    for (int n = 2 + (int)draw(at, 6); n > 0; n--)
        random_link(c, at);
    (void)finish(c);
}

/* ---- both sides ---- */

static void fill(const chain *c, float *x)
{
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-149f,
        0x1.8p-140f, 0x1p-126f, -0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f, 1, -1, 0.5f, -0.5f,
        1e-20f, -1e-10f, 1e10f, 3.1415927f, -1.5707964f, 105615, -105616, 0x1p-12f};
    bool open = c->lo > c->hi;
    double lo = open ? -8 : c->lo, hi = open ? 8 : c->hi;
    for (int i = 0; i < DENSE; i++)
        x[i] = (float)(lo + (hi - lo) * i / (DENSE - 1));
    for (int i = 0; i < SPECIAL; i++)
        x[DENSE + i] = odd[(size_t)i % NNC_COUNT(odd)];
}

typedef struct result {
    float *y;
    int functions; /* left in the kernel */
    bool noted;
    double worst; /* ulp */
} result;

static bool run(const char *text, const nnc_target *t, nnc_math math, const float *x, result *r)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_graph *g = ck_parse(text), *f = g ? ck_fuse(g) : NULL;
    nnc_kernel *k = NULL;
    for (uint32_t i = 0; f && i < f->n_node; i++)
        if (f->node[i].op == OP_fused)
            k = nnc_lower(f, &f->node[i], t, math, &a, test_sink);
    bool ok = k && nnc_schedule_verify(k, test_sink) == NNC_OK;
    r->y = nnc_calloc(N, sizeof *r->y);
    nnc_interp *s = ok ? nnc_interp_create(k) : NULL;
    ok = ok && s && r->y;
    if (ok) {
        void *args[2] = {(void *)(uintptr_t)x, r->y};
        nnc_interp_run(s, args, 0, k->sched.domain, NULL);
        r->functions = 0;
        for (int i = 0; i < k->n_ins; i++)
            r->functions +=
                k->ins[i].op == KO_sop && k->ins[i].sop >= SC_sqrt && k->ins[i].sop <= SC_erf;
        r->noted = k->note && strstr(k->note, "polynomial");
    }
    nnc_interp_destroy(s);
    nnc_graph_destroy(f);
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
    if (!ok) {
        test_fail(__FILE__, __LINE__, "no kernel:\n%s", text);
        nnc_sink_print(test_sink, stderr);
    }
    return ok;
}

static nnc_rval reference(const char *text, const float *x)
{
    nnc_rval want = {0};
    nnc_graph *g = ck_parse(text);
    const void *in[1] = {x};
    if (g)
        CHECK_OK(nnc_eval(g, in, 1, &want, test_sink));
    nnc_graph_destroy(g);
    return want;
}

/* By element, the mean square by which simulated rounding changes the chain's value. */
static double *rounding_of(const char *text, const float *x, const nnc_rval *want)
{
    enum { ROUNDINGS = 16 };
    nnc_graph *g = ck_parse(text);
    const void *in[1] = {x};
    double *square = nnc_calloc(N, sizeof *square);
    for (uint64_t seed = 1; g && square && seed <= ROUNDINGS; seed++) {
        const nnc_rounding r = {.seed = seed};
        nnc_rval v = {0};
        CHECK_OK(nnc_eval_rounded(g, in, 1, &r, &v, test_sink));
        for (int i = 0; v.f && i < N; i++)
            square[i] += (v.f[i] - want->f[i]) * (v.f[i] - want->f[i]) / ROUNDINGS;
        nnc_rval_free(&v);
    }
    nnc_graph_destroy(g);
    return square;
}

/* Largest error in ulp; infinity where one is NaN and the other is not. `square` (may be NULL): rounding_of; elements that it changes by
 * many ulps, as near a zero, may be off by as much. */
static double worst(const float *y, const nnc_rval *want, const double *square)
{
    enum { FACTOR = 16, MANY = 16 };
    double most = 0;
    for (int i = 0; i < N; i++) {
        double w = want->f[i], e;
        if (square && nnc_ulp_error((float)(w + sqrt(square[i])), w) > MANY &&
            (y[i] - w) * (y[i] - w) <= FACTOR * square[i])
            continue;
        if (y[i] != y[i] && w != w)
            continue;
        if (fabs(w) > 3.4e38 && isinf(y[i]))
            continue;
        e = nnc_ulp_error(y[i], w);
        most = e <= most ? most : e == e ? e : INFINITY;
    }
    return most;
}

typedef struct pair {
    result plain, made;
} pair;

static bool both(const chain *c, const nnc_target *t, bool conditioned, pair *p)
{
    static float x[N];
    const char *text = nnc_text_str(&c->text);
    *p = (pair){0};
    fill(c, x);
    bool ok = run(text, t, MATH_exact, x, &p->plain) && run(text, t, MATH_ulp2, x, &p->made);
    if (ok) {
        nnc_rval want = reference(text, x);
        NNC_FREED double *square = conditioned && want.f ? rounding_of(text, x, &want) : NULL;
        p->plain.worst = want.f ? worst(p->plain.y, &want, square) : INFINITY;
        p->made.worst = want.f ? worst(p->made.y, &want, square) : INFINITY;
        nnc_rval_free(&want);
        CHECK(!p->plain.noted);
    }
    nnc_free(p->plain.y);
    nnc_free(p->made.y);
    return ok;
}

/* One polynomial for all of a chain is tested below; here chains are cut anywhere, with plain functions
 * between. Each piece adds at most four times what correctly rounded functions add in its place. */
static bool is_near(const pair *p)
{
    return p->made.worst <= 2 + (p->plain.worst > 32 ? 16 : 4) * p->plain.worst;
}

/* Where the chain is ill-conditioned (near a zero that is not at 0), simulated rounding decides. */
static void check_chain(const chain *c, const nnc_target *t, int i, int *collapsed, int *whole)
{
    pair p;
    if (!both(c, t, false, &p))
        return;
    *collapsed += p.made.noted;
    bool one = p.made.noted && p.made.functions == 0 && c->lo <= c->hi;
    *whole += one;
    if (!is_near(&p) && both(c, t, true, &p) && !is_near(&p))
        test_fail(__FILE__, __LINE__,
            "chain %d (seed %llu): %.3g ulp, the plain functions %.3g:\n%s", i,
            (unsigned long long)test_seed, p.made.worst, p.plain.worst, nnc_text_str(&c->text));
}

TEST(random_chains)
{
    uint64_t at = 0;
    int collapsed = 0, whole = 0;
    nnc_target no_fma = ck_target;
    no_fma.fma = false;
    for (int i = 0; i < CHAINS; i++) {
        chain c;
        random_chain(&c, &at);
        check_chain(&c, i % 4 == 3 ? &no_fma : &ck_target, i, &collapsed, &whole);
        nnc_text_deinit(&c.text);
    }
    CHECK_USUAL(collapsed >= CHAINS / 2);
    CHECK_USUAL(whole >= CHAINS / 10);
}

/* What stands in docs/math.md: one polynomial, at most 2 ulp. */
TEST(whole_chains_within_two_ulp)
{
    static const struct {
        const char *ops[8];
        double lo, hi;
    } cases[] = {{{"sin", "sin", "sin"}, -1, 1}, {{"tanh"}, -1, 1}, {{"sigmoid"}, -1, 1},
        {{"silu"}, -1, 1}, {{"erf"}, -1, 1}, {{"sin", "tanh"}, -1, 1}, {{"cos", "sigmoid"}, -1, 1},
        {{"sigmoid", "tanh"}, -1, 1}, {{"tanh", "erf"}, -0.5, 0.5},
        {{"sin", "sin", "sin", "sin", "sin", "sin", "sin", "sin"}, -0.6276, 0.6276},
        {{"tanh"}, 0, 1}, {{"log1p"}, 1e-13, 1}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        chain c;
        pair p;
        begin(&c, cases[i].lo, cases[i].hi);
        for (int j = 0; j < 8 && cases[i].ops[j]; j++)
            unary(&c, cases[i].ops[j]);
        (void)finish(&c);
        if (both(&c, &ck_target, false, &p)) {
            CHECK(p.made.noted);
            if (!(p.made.worst <= 2) || p.made.functions > 0)
                test_fail(__FILE__, __LINE__, "%s: %.3f ulp, %d functions left", cases[i].ops[0],
                    p.made.worst, p.made.functions);
        }
        nnc_text_deinit(&c.text);
    }
}

/* What a sample of the interval does not show: a bump narrower than the gaps between places, a place without a value. */
TEST(what_hides_between_places_is_found)
{
    pair p;
    chain c;
    for (int i = 0; i < 12; i++) { /* 1 + e^-(w (x - at))^2 */
        double wide = i % 3 == 0 ? 1e4 : i % 3 == 1 ? 3e4 : 1e6;
        begin(&c, -1, 1);
        with_number(&c, "sub", (double)(float)(0.0123 + 0.077 * i));
        with_number(&c, "mul", wide);
        unary(&c, "square");
        unary(&c, "neg");
        unary(&c, "exp");
        with_number(&c, "add", 1);
        (void)finish(&c);
        if (both(&c, &ck_target, false, &p) && !(p.made.worst <= 2 + 4 * p.plain.worst))
            test_fail(__FILE__, __LINE__, "%.3g ulp:\n%s", p.made.worst, nnc_text_str(&c.text));
        nnc_text_deinit(&c.text);
    }
    begin(&c, -1, 1); /* sin(x)/x is NaN at 0 */
    nnc_printf(&c.text, "%%s = sin %%v1\n%%v2 = div %%s, %%v1\n");
    c.n = 2;
    (void)finish(&c);
    if (both(&c, &ck_target, false, &p))
        CHECK(p.made.worst <= 2 + 4 * p.plain.worst);
    nnc_text_deinit(&c.text);
}

/* ---- fit and measure ---- */

static double sines(int depth, double x)
{
    for (int i = 0; i < depth; i++)
        x = nnc_steady_f64(SC_sin, x, 0, 0);
    return x;
}

static float sample_x[4000];
static double sample_want[4000];

static bool fit_sines(nnc_poly *p, int depth, double r, int loose)
{
    nnc_poly_nodes at;
    double y[3 * NNC_POLY_NODES];
    nnc_poly_place(&at, -r, r);
    for (size_t i = 0; i < NNC_COUNT(y); i++)
        y[i] = sines(depth, at.x[i]);
    int n = nnc_poly_sample(-r, r, 3000, sample_x);
    for (int i = 0; i < n; i++)
        sample_want[i] = sines(depth, (double)sample_x[i]);
    return nnc_poly_fit(p, &at, y, 0, false, loose) &&
           nnc_poly_check(p, sample_x, sample_want, n) < 2;
}

TEST(a_wrong_coefficient_is_found)
{
    nnc_poly p;
    CHECK(fit_sines(&p, 3, 1, 1));
    int n = nnc_poly_sample(-1, 1, 3000, sample_x);
    for (int i = 0; i < p.n; i++) {
        nnc_poly q = p;
        q.c[i] += 1e-6;
        nnc_poly_steps(&q);
        CHECK(nnc_poly_check(&q, sample_x, sample_want, n) > 2);
    }
}

TEST(ill_conditioned_chains_are_declined)
{
    nnc_poly p;
    bool any = false;
    for (int loose = 0; loose < 6; loose++)
        any |= fit_sines(&p, 8, 1, loose);
    CHECK(!any);
    CHECK(fit_sines(&p, 8, 0.6276, 1));
    CHECK(p.condition < 5);
}

/* The same coefficients on every machine, to the bit: they enter kernels' names. */
TEST(coefficients_are_the_same_everywhere)
{
    static const double want[] = {0x1p+0, -0x1.fffffap-2, 0x1.19978p-2, -0x1.28c4bcp-3,
        0x1.20674p-4, -0x1.ef4fbcp-6, 0x1.439d5p-7, -0x1.c06fdp-10};
    nnc_poly p;
    CHECK(fit_sines(&p, 3, 1, 0));
    CHECK_INT(p.n, NNC_COUNT(want));
    for (int i = 0; i < p.n && i < (int)NNC_COUNT(want); i++)
        CHECK_NEAR(p.c[i], want[i], 0);
}

TEST(steady_functions_are_right)
{
    for (int op = SC_exp; op <= SC_erf; op++)
        for (double x = -0.995; x < 6; x += 0.00371) {
            bool arc = op == SC_asin || op == SC_acos;
            if ((arc && x > 1) || ((op == SC_log || op == SC_log2) && x <= 0.01))
                continue;
            double got = nnc_steady_f64((nnc_sop)op, x, 0, 0);
            double want = nnc_sop_eval_f64((nnc_sop)op, x, 0, 0);
            if (!(fabs(got - want) <= 0x1p-47 * fmax(fabs(want), 0x1p-4)))
                test_fail(__FILE__, __LINE__, "%s(%g) is %.17g, not %.17g", nnc_sops[op].name, x,
                    got, want);
        }
    static const double ends[] = {INFINITY, -INFINITY, NAN, 0, 800, -800};
    for (int op = SC_exp; op <= SC_erf; op++)
        for (size_t i = 0; i < NNC_COUNT(ends); i++) {
            double got = nnc_steady_f64((nnc_sop)op, ends[i], 0, 0);
            double want = nnc_sop_eval_f64((nnc_sop)op, ends[i], 0, 0);
            if (!(got == want || (got != got && want != want) ||
                    fabs(got - want) < 1e-12 * fabs(want)))
                test_fail(__FILE__, __LINE__, "%s(%g) is %g, not %g", nnc_sops[op].name, ends[i],
                    got, want);
        }
}

/* ---- powers and quotients ---- */

static void one_power(const char *op, double e, double ulp)
{
    static float x[N];
    chain c;
    result r;
    begin(&c, 1, 0);
    with_number(&c, op, e);
    const char *text = finish(&c);
    fill(&c, x);
    if (run(text, &ck_target, MATH_ulp2, x, &r)) {
        nnc_rval want = reference(text, x);
        r.worst = worst(r.y, &want, NULL);
        if (!(r.worst <= ulp))
            test_fail(__FILE__, __LINE__, "%s %g: %.3g ulp", op, e, r.worst);
        nnc_rval_free(&want);
    }
    nnc_free(r.y);
    nnc_text_deinit(&c.text);
}

/* C's special cases, signs of zeros included. */
TEST(square_roots_as_powers)
{
    static float x[N], want[] = {0, 0, INFINITY, INFINITY};
    chain c;
    result r;
    begin(&c, 1, 0);
    with_number(&c, "pow", 0.5);
    fill(&c, x);
    if (run(finish(&c), &ck_target, MATH_ulp2, x, &r))
        for (int i = 0; i < 4; i++)
            CHECK(r.y[DENSE + i] == want[i] && !signbit(r.y[DENSE + i]));
    nnc_free(r.y);
    nnc_text_deinit(&c.text);
}

/* Every allocation in turn fails: an error or the same kernel, never a crash. */
TEST(out_of_memory_in_chains)
{
    nnc_graph *g =
        ck_parse("graph @t {\n%x = input : f32[100]\n%k = constant : f32[] = [3]\n%a = sin "
                 "%x\n%b = tanh %a\n%c = pow %b, %k\nreturn %c }");
    nnc_graph *f = g ? ck_fuse(g) : NULL;
    const char *note = NULL;
    for (int n = 1; f && n < 400 && !note; n++) {
        nnc_arena a;
        nnc_arena_init(&a, 0);
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        nnc_kernel *k = NULL;
        for (uint32_t i = 0; i < f->n_node; i++)
            if (f->node[i].op == OP_fused)
                k = nnc_lower(f, &f->node[i], &ck_target, MATH_ulp2, &a, test_sink);
        nnc_fail_alloc_after(0);
        if (k)
            CHECK_OK(nnc_schedule_verify(k, test_sink));
        else
            CHECK_INT(nnc_sink_cause(test_sink, NNC_E_BUG), NNC_E_NOMEM);
        note = k && k->note && strstr(k->note, "polynomial") ? "noted" : NULL;
        nnc_arena_deinit(&a);
    }
    CHECK(note != NULL);
    nnc_graph_destroy(f);
    nnc_graph_destroy(g);
}

TEST(powers_and_quotients)
{
    static const double e[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 33, -1, -2, -3, -8, 0.5};
    for (size_t i = 0; i < NNC_COUNT(e); i++)
        one_power("pow", e[i], 2);
    static const double d[] = {2, 4, -8, 0.5, 0x1p100, 0x1p-120};
    for (size_t i = 0; i < NNC_COUNT(d); i++)
        one_power("div", d[i], 0.5);
}
