/* tests/llvm/hostile.c -- changed texts that the verifier lets pass become machine code that runs inside its memory, and says
 * what the interpreter says. */
#include "kb.h"

#include "gen/body.h"
#include "gen/hostile.h"

#include <stdlib.h>

/* Sums of floats depend on their order, functions on who computes them. */
static bool exact(const nnc_kernel *k)
{
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        bool sums = in->op == KO_reduce && in->sop < KR_max && nnc_is_float((nnc_dtype)in->dtype);
        if (sums || in->hint ||
            (in->op == KO_sop && (in->sop == SC_fma || in->sop == SC_pow ||
                                     (in->sop >= SC_exp && in->sop <= SC_erf))))
            return false;
    }
    return true;
}

/* Does it read what it writes, or write a place twice? Then points depend on their order. */
static bool ordered(const nnc_kernel *k)
{
    int stores[64] = {0};
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_load && k->buf[in->buf].role != KB_in)
            return true;
        if (in->op != KO_store)
            continue;
        if (in->n_guard || stores[in->buf]++)
            return true;
        for (int a = 0; a < k->n_axis; a++) /* of digits that do not overlap: enough here */
            if (k->axis[a].extent > 1 && (a < k->n_outer || in->at.k[a]) && in->at.k[a] < 1)
                return true;
        if (nnc_dtype_size(k->buf[in->buf].dtype) && k->n_outer > 1)
            return true;
    }
    return false;
}

static bool agree(const nnc_kernel *k, const gen_guarded *x, const gen_guarded *y)
{
    for (int b = 0, n = 0; b < k->n_buf; b++) {
        bool zeros = false;
        if (k->buf[b].role == KB_tmp)
            continue;
        for (int64_t i = 0; k->buf[b].role == KB_out && i < k->buf[b].numel; i++)
            if (!gen_same_element(k->buf[b].dtype, x->arg[n], y->arg[n], i, &zeros))
                return false;
        n++;
    }
    return true;
}

static bool run(const nnc_kernel *k, nnc_kernel_fn fn)
{
    gen_guarded got, want;
    bool ok = gen_guard(&got, k), same = true;
    ok = gen_guard(&want, k) && ok;
    nnc_interp *s = nnc_interp_create(k);
    if (ok && s) {
        fn(got.arg, 0, k->sched.domain, got.scratch);
        nnc_interp_run(s, want.arg, 0, k->sched.domain, want.scratch);
        same = !exact(k) || ordered(k) || agree(k, &got, &want);
    }
    nnc_interp_destroy(s);
    gen_unguard(&got);
    gen_unguard(&want);
    return same;
}

static bool try_one(uint64_t seed, nnc_text *text, int *ran)
{
    nnc_arena a;
    char *bytes = NULL;
    size_t n = 0;
    const char *why = "";
    bool ok = true;
    nnc_arena_init(&a, 64 << 20);
    nnc_sink_clear(test_sink);
    const nnc_kernel *k = gen_hostile(seed, kb_host(), text, &a, test_sink);
    if (k && getenv("NNC_VERBOSE"))
        fprintf(stderr, "seed %llu\n%s\n", (unsigned long long)seed, nnc_text_str(text));
    if (k &&
        (ok = kb_emitter()->emit(&k, 1, kb_host(), EMIT_object, &bytes, &n, test_sink) == NNC_OK)) {
        nnc_object *o = nnc_object_load(bytes, n, &why);
        void *p = o ? nnc_object_symbol(o, k->name) : NULL;
        nnc_kernel_fn fn;
        memcpy(&fn, &p, sizeof p);
        ok = p && run(k, fn);
        nnc_object_unload(o);
        nnc_free(bytes);
    }
    if (!ok)
        test_fail(__FILE__, __LINE__, "seed %llu: %s\n%s", (unsigned long long)seed, why,
            nnc_text_str(text));
    *ran += k != NULL;
    nnc_arena_deinit(&a);
    return ok;
}

TEST(changed_kernels_stay_inside)
{
    nnc_text text = {0};
    const int n = test_draws(1600);
    int ran = 0;
    bool ok = kb_emitter() != NULL;
    for (int i = 0; i < n && ok; i++)
        ok = try_one(test_seed * 10000 + (uint64_t)i, &text, &ran);
    CHECK_USUAL(!ok || ran > n / 50);
    nnc_text_deinit(&text);
}

/* A value that is loaded from what its own stage stores is loaded in the innermost loop, and so is what is made of it. */
TEST(loads_of_what_the_stage_stores)
{
    static const char text[] =
        "kernel k_test {\n axis i0 outer 2\n axis m0 map 9\n axis m1 map 3\n buf x0 in f32 9\n"
        " buf y0 out f32 27\n schedule vector m1 4 parallel 2 grain 1\n stage m0 m1 {\n"
        " %0 = load f32 y0[0]\n %1 = neg f32 %0\n %2 = load f32 x0[m0]\n %3 = mul f32 %1 %2\n"
        " %4 = store f32 y0[m0*3 + m1] %3\n }\n}\n";
    nnc_arena a;
    nnc_scan s;
    kb_code c = {0};
    nnc_arena_init(&a, 0);
    nnc_scan_init(&s, "k", text, sizeof text - 1);
    const nnc_kernel *k = nnc_schedule_parse(&s, &a, test_sink);
    const nnc_emitter *e = kb_emitter();
    CHECK(k != NULL);
    if (k && e) {
        CHECK_OK(e->emit(&k, 1, kb_host(), EMIT_object, &c.bytes, &c.n, test_sink));
        kb_free(&c);
    }
    nnc_arena_deinit(&a);
}
