/* tests/cudac/bodies.c -- random bodies over extreme values as CUDA C on the CPU: to the bit what the interpreter says. */
#include "ct.h"

#include "gen/body.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 203, MOST_ARGS = 64 };

static bool holds(const nnc_kernel *k, void *const *want, void *const *got)
{
    bool zeros[1000] = {false};
    for (int b = 0; b < k->n_buf; b++)
        for (int64_t i = 0; i < k->buf[b].numel && k->buf[b].role == KB_out; i++) {
            nnc_dtype d = k->buf[b].dtype;
            if (gen_same_element(d, want[b], got[b], i, &zeros[i]) || zeros[i])
                continue;
            test_fail(__FILE__, __LINE__, "%s: %s (%s) [%lld] is %.17g, interpreted %.17g", k->name,
                k->buf[b].name, nnc_dtype_name(d), (long long)i, nnc_get_f64(d, got[b], i),
                nnc_get_f64(d, want[b], i));
            nnc_text t = {0};
            nnc_kernel_print(&t, k);
            fprintf(stderr, "%s\n", nnc_text_str(&t));
            nnc_text_deinit(&t);
            return false;
        }
    return true;
}

static bool run(ct_set *s, int i, uint64_t seed)
{
    const nnc_kernel *k = s->k[i];
    void *want[MOST_ARGS], *got[MOST_ARGS + 1];
    for (int b = 0; b < k->n_buf; b++) {
        size_t bytes = (size_t)(k->buf[b].numel * nnc_dtype_size(k->buf[b].dtype));
        want[b] = nnc_aligned_alloc(64, bytes + 64);
        got[b] = nnc_aligned_alloc(64, bytes + 64);
        gen_body_fill(&k->buf[b], seed + (uint64_t)b, want[b]);
        memcpy(got[b], want[b], bytes);
    }
    nnc_interp *p = nnc_interp_create(k);
    nnc_interp_run(p, want, 0, k->sched.domain, NULL);
    nnc_interp_destroy(p);
    got[k->n_buf] = nnc_aligned_alloc(64, (size_t)k->grid.work + 64);
    const char *why = ct_call(s, i, got);
    nnc_free(got[k->n_buf]);
    if (why)
        test_fail(__FILE__, __LINE__, "%s: %s", k->name, why);
    bool ok = !why && holds(k, want, got);
    for (int b = 0; b < k->n_buf; b++) {
        nnc_free(want[b]);
        nnc_free(got[b]);
    }
    return ok;
}

static void run_all(bool rows, int n)
{
    ct_set s = {0};
    nnc_arena_init(&s.arena, 0);
    s.open = true;
    for (int i = 0; i < n && s.n < CT_KERNELS; i++) {
        gen_body_options o = {
            .seed = test_seed * 1000 + (uint64_t)i, .ops = 20, .points = POINTS, .lines = 40};
        nnc_kernel *k = rows ? gen_rows(o.seed, &s.arena) : gen_body(&o, &s.arena);
        CHECK(k != NULL);
        if (!k)
            break;
        CHECK(nnc_kernel_ranges(k));
        CHECK(nnc_kernel_schedule(k, i % 2 ? ct_tiny() : ct_h200()));
        ct_add(&s, k);
    }
    bool ok = ct_build(&s, NULL);
    for (int i = 0; i < s.n && ok; i++)
        ok = run(&s, i, test_seed + (uint64_t)i);
    ct_set_deinit(&s);
}

TEST(bodies_over_extreme_values)
{
    run_all(false, test_draws(48));
}

TEST(rows_over_extreme_values)
{
    run_all(true, test_draws(48));
}

/* Numbers whose text begins with a sign, after a sign. */
TEST(signs_of_constants)
{
    ct_set s = {0};
    static const char *const type[] = {"f32", "f64"}, *const v[] = {"-0", "-1", "-inf", "nan"};
    for (int i = 0; i < 8; i++) {
        char text[300];
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : %s[16]\n%%c = constant : %s[] = [%s]\n%%n = neg %%c\n%%a = "
            "sub %%x, %%c\n"
            "%%m = mul %%n, %%a\n%%b = sub %%c, %%m\nreturn %%b }",
            type[i % 2], type[i % 2], v[i / 2]);
        ct_add_fused(&s, text);
    }
    int n = s.n;
    if (ct_build(&s, NULL))
        CHECK_INT(ct_run_all(&s, test_seed), n);
    ct_set_deinit(&s);
}
