/* tests/llvm/bodies.c -- random bodies over extreme values as machine code. They give the interpreter's bits where no function
 * rounds, and lie inside their ranges where one does. Tested with and without fused multiply-add, as wide vectors and scalars. */
#include "kb.h"

#include "gen/body.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 331, MOST_BUFS = 1200 };

typedef struct data {
    void *arg[MOST_BUFS];
    int n;
} data;

static void make(data *d, const nnc_kernel *k, uint64_t seed)
{
    d->n = k->n_buf;
    for (int b = 0; b < k->n_buf; b++) {
        d->arg[b] = nnc_aligned_alloc(64, (size_t)k->buf[b].numel * 8 + 64);
        if (k->buf[b].role == KB_in)
            gen_body_fill(&k->buf[b], seed + (uint64_t)b, d->arg[b]);
    }
}

static void unmake(data *d)
{
    for (int b = 0; b < d->n; b++)
        nnc_free(d->arg[b]);
}

static bool run_code(const nnc_kernel *k, const nnc_target *t, data *d)
{
    char *bytes = NULL;
    size_t n = 0;
    const char *why = "";
    CHECK_OK(kb_emitter()->emit(&k, 1, t, EMIT_object, &bytes, &n, test_sink));
    nnc_object *o = bytes ? nnc_object_load(bytes, n, &why) : NULL;
    void *p = o ? nnc_object_symbol(o, k->name) : NULL;
    nnc_kernel_fn fn;
    memcpy(&fn, &p, sizeof p);
    if (p)
        fn(d->arg, 0, k->sched.domain, NULL);
    else
        test_fail(__FILE__, __LINE__, "%s: %s", k->name, why ? why : "no memory");
    nnc_object_unload(o);
    nnc_free(bytes);
    return p != NULL;
}

static void interpret(const nnc_kernel *k, data *d)
{
    nnc_interp *s = nnc_interp_create(k);
    nnc_interp_run(s, d->arg, 0, k->sched.domain, NULL);
    nnc_interp_destroy(s);
}

static bool in_range(nnc_dtype d, const void *p, int64_t i, const nnc_kins *in)
{
    double v = nnc_get_f64(d, p, i);
    return !nnc_is_float(d) || (v != v ? in->maybe_nan : v >= in->lo && v <= in->hi);
}

/* exact: the same as `want`. */
static bool holds(const nnc_kernel *k, const data *want, const data *got, bool exact)
{
    bool zeros[1000] = {false};
    for (int id = 0; id < k->n_ins; id++) {
        const nnc_kins *in = &k->ins[id];
        if (in->op != KO_store)
            continue;
        nnc_dtype d = k->buf[in->buf].dtype;
        for (int64_t i = 0; i < k->buf[in->buf].numel; i++) {
            const void *w = want->arg[in->buf], *g = got->arg[in->buf];
            bool same = gen_same_element(d, w, g, i, &zeros[i]) || zeros[i] || !exact;
            if (same && in_range(d, g, i, in))
                continue;
            test_fail(__FILE__, __LINE__,
                "%s: instruction %d (%s) at %lld is %.17g, interpreted %.17g, in [%g, %g]", k->name,
                in->arg[0], nnc_dtype_name(d), (long long)i, nnc_get_f64(d, g, i),
                nnc_get_f64(d, w, i), in->lo, in->hi);
            nnc_text t = {0};
            nnc_kernel_print(&t, k);
            fprintf(stderr, "%s\n", nnc_text_str(&t));
            nnc_text_deinit(&t);
            return false;
        }
    }
    return true;
}

static bool body(uint64_t seed, const nnc_target *t, bool functions, bool rows)
{
    nnc_arena a;
    data want = {0}, got = {0};
    nnc_arena_init(&a, 0);
    gen_body_options o = {.seed = seed, .ops = 20, .points = POINTS, .functions = functions};
    nnc_kernel *k = rows ? gen_rows(seed, &a) : gen_body(&o, &a);
    bool ok = k != NULL && k->n_buf < MOST_BUFS;
    CHECK(ok);
    if (ok) {
        CHECK(nnc_kernel_ranges(k));
        ok = nnc_kernel_schedule(k, t);
        make(&want, k, seed);
        make(&got, k, seed);
        interpret(k, &want);
        ok = ok && run_code(k, t, &got) && holds(k, &want, &got, !functions);
    }
    unmake(&want);
    unmake(&got);
    nnc_arena_deinit(&a);
    return ok;
}

/* The n-th CPU: this one, without fused multiply-add, of the first generation. */
static const nnc_target *cpu(int n)
{
    static nnc_target t[3];
    t[0] = t[1] = *kb_host();
    t[1].fma = false;
    t[2] = kb_plain();
    return &t[n % 3];
}

TEST(bodies_over_extreme_values)
{
    bool ok = kb_emitter() != NULL;
    for (int i = 0; i < test_draws(48) && ok; i++)
        ok = body(test_seed * 1000 + (uint64_t)i, cpu(i), i % 4 == 3, false);
}

TEST(rows_over_extreme_values)
{
    bool ok = kb_emitter() != NULL;
    for (int i = 0; i < test_draws(48) && ok; i++)
        ok = body(test_seed * 1000 + (uint64_t)i, cpu(i), false, true);
}
