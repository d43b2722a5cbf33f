/* tests/codegen/bodies.c -- random bodies over extreme values. Every value lies in the range that is found for it, and a body means the
 * same before and after what ranges decide. Ranges also choose among the formulas of a function (sin below 0.842 is another polynomial).
 * Their results both lie within the function's bound but may differ in their last bits; so may what is computed from them. */
#include "help.h"

#include "../gen/body.h"
#include "math/formula.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 512, MOST_BUFS = 1200 };

typedef struct data {
    void *arg[MOST_BUFS];
    int n;
} data;

static void make(data *d, const nnc_kernel *k, uint64_t seed)
{
    d->n = k->n_buf;
    for (int b = 0; b < k->n_buf; b++) {
        d->arg[b] = nnc_aligned_alloc(64, (size_t)POINTS * 8);
        if (k->buf[b].role == KB_in)
            gen_body_fill(&k->buf[b], seed + (uint64_t)b, d->arg[b]);
    }
}

static void unmake(data *d)
{
    for (int b = 0; b < d->n; b++)
        nnc_free(d->arg[b]);
}

static nnc_kernel *copy(const nnc_kernel *k, nnc_arena *a)
{
    nnc_kernel *c = nnc_arena_memdup(a, k, sizeof *k);
    c->ins = nnc_arena_memdup(a, k->ins, sizeof *k->ins * (size_t)k->n_ins);
    c->stage = nnc_arena_memdup(a, k->stage, sizeof *k->stage);
    return c;
}

static void interpret(nnc_kernel *k, data *d)
{
    CHECK(nnc_kernel_schedule(k, &ck_target));
    CHECK_OK(nnc_schedule_verify(k, test_sink));
    nnc_interp *s = nnc_interp_create(k);
    nnc_interp_run(s, d->arg, 0, k->sched.domain, NULL);
    nnc_interp_destroy(s);
}

static void show(const nnc_kernel *k)
{
    nnc_text t = {0};
    nnc_kernel_print(&t, k);
    const char *stage = strstr(nnc_text_str(&t), "  stage");
    fprintf(stderr, "%s\n", stage ? stage : "");
    nnc_text_deinit(&t);
}

/* The store into buffer b. */
static const nnc_kins *store_of(const nnc_kernel *k, int b)
{
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_store && k->ins[i].buf == b)
            return &k->ins[i];
    return NULL;
}

/* v of type d, [lo, hi] in doubles: compared as exactly as 64-bit integers need. */
static bool in_range(nnc_dtype d, const void *p, int64_t i, const nnc_kins *in)
{
    if (nnc_is_float(d)) {
        double v = nnc_get_f64(d, p, i);
        return v != v ? in->maybe_nan : v >= in->lo && v <= in->hi;
    }
    long double v = d == DT_u64 ? (long double)(uint64_t)nnc_get_i64(d, p, i)
                                : (long double)nnc_get_i64(d, p, i);
    return v >= (long double)in->lo && v <= (long double)in->hi;
}

/* A value whose bits the ranges may change: EXACT none, FORMULA the last ones, DERIVED any. */
typedef enum freedom { EXACT, FORMULA, DERIVED } freedom;

/* By instruction of r, which has ranges; NULL: out of memory. */
static freedom *freedoms(const nnc_kernel *r, nnc_arena *a)
{
    freedom *f = ARENA_NEW(a, freedom, r->n_ins + 1);
    for (int id = 0; f && id < r->n_ins; id++) {
        const nnc_kins *in = &r->ins[id];
        for (int j = 0; j < 3; j++)
            if (in->arg[j] >= 0 && f[in->arg[j]] != EXACT)
                f[id] = DERIVED;
        if (f[id] == EXACT && in->op == KO_sop &&
            nnc_has_formula((nnc_sop)in->sop, (nnc_dtype)r->ins[in->arg[0]].dtype) &&
            nnc_formula_key(r, in).reach != 0) /* without ranges: 0 */
            f[id] = FORMULA;
    }
    return f;
}

/* Are both within 2.5 ulp of one number, or not to be compared? */
static bool alike(freedom f, nnc_dtype d, const data *want, const data *got, int b, int64_t i)
{
    double x = nnc_get_f64(d, want->arg[b], i), y = nnc_get_f64(d, got->arg[b], i);
    double eps = d == DT_f64 ? 0x1p-52 : d == DT_f32 ? 0x1p-23 : d == DT_f16 ? 0x1p-10 : 0x1p-7;
    return f == DERIVED || (f == FORMULA && fabs(x - y) <= 5 * eps * fabs(x));
}

static bool holds(const nnc_kernel *k, const nnc_kernel *r, const data *want, const data *got,
    const freedom *free)
{
    bool zeros[POINTS] = {false};
    for (int b = 0; b < k->n_buf; b++) {
        nnc_dtype d = k->buf[b].dtype;
        const nnc_kins *in = store_of(r, b);
        freedom f = in ? free[in->arg[0]] : EXACT;
        for (int64_t i = 0; in && i < POINTS; i++) {
            bool ranged = in_range(d, want->arg[b], i, in);
            if (ranged && (gen_same_element(d, want->arg[b], got->arg[b], i, &zeros[i]) ||
                              zeros[i] || alike(f, d, want, got, b, i)))
                continue;
            test_fail(__FILE__, __LINE__, "%s: %s (%s) [%lld] is %.17g, %s (%.17g), [%.9g, %.9g]%s",
                k->name, k->buf[b].name, nnc_dtype_name(d), (long long)i,
                nnc_get_f64(d, want->arg[b], i),
                ranged ? "after the ranges another" : "out of its range",
                nnc_get_f64(d, got->arg[b], i), in->lo, in->hi, in->maybe_nan ? " nan" : "");
            show(k);
            show(r);
            return false;
        }
    }
    return true;
}

static bool body(uint64_t seed, bool functions)
{
    nnc_arena a;
    data want = {0}, got = {0};
    nnc_arena_init(&a, 0);
    gen_body_options o = {.seed = seed, .ops = 24, .points = POINTS, .functions = functions};
    nnc_kernel *k = gen_body(&o, &a), *r = k ? copy(k, &a) : NULL;
    bool ok = r != NULL;
    CHECK(ok && k->n_buf < MOST_BUFS);
    if (ok) {
        CHECK(nnc_kernel_ranges(r));
        make(&want, k, seed);
        make(&got, k, seed);
        interpret(k, &want);
        interpret(r, &got);
        const freedom *f = freedoms(r, &a);
        ok = f && holds(k, r, &want, &got, f);
    }
    unmake(&want);
    unmake(&got);
    nnc_arena_deinit(&a);
    return ok;
}

TEST(bodies_keep_their_ranges)
{
    const int n = test_draws(600);
    int bad = 0;
    for (int i = 0; i < n && bad < 1; i++)
        bad += !body(test_seed * 1000 + (uint64_t)i, i % 2);
}
