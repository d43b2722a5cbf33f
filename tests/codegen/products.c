/* tests/codegen/products.c -- kernels of two products with ops on rows between them, and of convolutions. Drawn ones are
 * compared with the reference and taken apart into their parts; text with what no such kernel may have is refused. */
#include "gen/gen.h"
#include "help.h"

#include <string.h>

/* Units of blocks, with a part of another thread's. */
enum { PARTS = 3 };

static bool check(const char *text, nnc_arena *a, nnc_kernel **k)
{
    nnc_graph *g = ck_parse(text);
    bool ok = g && ck_check(g, (ck_bound){2e-4, 2e-4}, PARTS, text, a, k);
    if (!ok)
        nnc_sink_print(test_sink, stderr);
    nnc_graph_destroy(g);
    return ok;
}

TEST(products_of_rows)
{
    int in_parts = 0, none = 0;
    for (int i = 0; i < test_draws(150); i++) {
        NNC_LOCAL(nnc_arena) a = {0};
        NNC_LOCAL(nnc_text) t = {0};
        nnc_kernel *k = NULL;
        const char *why = NULL;
        gen_products(&t, test_seed + (uint64_t)i, i % 2);
        nnc_graph *g = ck_parse(nnc_text_str(&t));
        const bool one = g && ck_one_kernel(g, &a, &why);
        nnc_graph_destroy(g);
        if (!one && why && (strstr(why, "one term") || strstr(why, "share no rows"))) {
            none++;
            continue;
        }
        if (!check(nnc_text_str(&t), &a, &k))
            test_fail(__FILE__, __LINE__, "case %d:\n%s", i, nnc_text_str(&t));
        in_parts += k && nnc_kernel_in_parts(k);
    }
    /* about 70 % and 6 % of the drawn graphs; few draws differ by a few */
    CHECK_USUAL(in_parts > test_draws(60) && none < test_draws(15) + 4);
    printf("  %d in parts, %d are no kernel\n", in_parts, none);
}

static bool is_kernel(const char *text)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_graph *g = ck_parse(text), *f = g ? ck_fuse(g) : NULL;
    const bool is = f && nnc_kernel_build(f, nnc_def(f, f->output[0]), &a, test_sink);
    nnc_sink_clear(test_sink);
    nnc_graph_destroy(f);
    nnc_graph_destroy(g);
    return is;
}

TEST(convolutions_of_rows)
{
    int in_parts = 0, drawn = 0, none = 0;
    for (int i = 0; i < test_draws(120); i++) {
        NNC_LOCAL(nnc_arena) a = {0};
        NNC_LOCAL(nnc_text) t = {0};
        nnc_kernel *k = NULL;
        if (!gen_strips(&t, test_seed + (uint64_t)i))
            continue;
        drawn++;
        if (!is_kernel(nnc_text_str(&t))) {
            none++;
            continue;
        }
        if (!check(nnc_text_str(&t), &a, &k))
            test_fail(__FILE__, __LINE__, "case %d:\n%s", i, nnc_text_str(&t));
        in_parts += k && nnc_kernel_in_parts(k);
    }
    CHECK_USUAL(5 * in_parts > drawn && 3 * none < drawn + 6);
    printf("  %d of %d in parts, %d are no kernel\n", in_parts, drawn, none);
}

#define ATTENTION \
    "graph @t {\n%q = input : f32[3,40,24]\n%k = input : f32[3,24,64]\n%v = input : " \
    "f32[3,64,32]\n" \
    "%s = matmul %q, %k\n%m = reduce_max %s {axes=[2], keepdims=1}\n%u = sub %s, %m\n%e = exp " \
    "%u\n" \
    "%z = reduce_sum %e {axes=[2], keepdims=1}\n%p = div %e, %z\n"

/* The rows between the products are not stored, overwrite what they are computed from, and are a block for each worker. */
TEST(rows_stay_with_the_worker)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_kernel *k = NULL;
    nnc_kpart part[NNC_KPARTS];
    if (!check(ATTENTION "%y = matmul %p, %v\nreturn %y }", &a, &k) || !k)
        return;
    CHECK(nnc_kernel_in_parts(k));
    CHECK_INT(nnc_kernel_parts(k, part), 3);
    CHECK(part[0].product && !part[1].product && part[2].product);
    int tmp = 0, out = 0;
    for (int b = 0; b < k->n_buf; b++) {
        tmp += k->buf[b].role == KB_tmp;
        out += k->buf[b].role == KB_out;
        CHECK(k->buf[b].role != KB_tmp || k->buf[b].numel == 64);
    }
    CHECK_INT(tmp, 2); /* scores, which become their shares; their exponentials */
    CHECK_INT(out, 1);
    const int tiled = nnc_parts_tiled(k);
    CHECK(tiled >= 0);
    CHECK(k->scratch_bytes >= tmp * nnc_sched_n(&k->sched, KD_tile, tiled) * 64 * 4);
    const int64_t *row = nnc_parts_rows(k, part, 3, &a);
    for (int i = 0; row && i < 3; i++) {
        CHECK(!nnc_kernel_part(k, tiled, row, &part[i], &a));
        CHECK(part[i].k.sched.domain % k->sched.domain == 0);
        CHECK_INT(part[i].k.n_outer, part[i].product ? 3 : 2);
    }
}

/* A value between the products that is needed elsewhere, rows that are not the first product's, a sum over columns. */
TEST(what_is_no_kernel_of_products)
{
    static const struct {
        const char *text, *why;
    } at[] = {{ATTENTION "%y = matmul %p, %v\nreturn %y, %s }", "result"},
        {ATTENTION "%t = transpose %p {perm=[0,2,1]}\n%w = matmul %t, %q\nreturn %w }", "row"},
        {"graph @t {\n%q = input : f32[40,24]\n%k = input : f32[24,64]\n%v = input : f32[64,32]\n"
         "%s = matmul %q, %k\n%m = reduce_max %s {axes=[0], keepdims=1}\n%p = sub %s, %m\n"
         "%y = matmul %p, %v\nreturn %y }",
            ""}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        NNC_LOCAL(nnc_arena) a = {0};
        const char *why = NULL;
        nnc_graph *g = ck_parse(at[i].text);
        if (!g)
            nnc_sink_print(test_sink, stderr), nnc_sink_clear(test_sink);
        bool one = g && ck_one_kernel(g, &a, &why);
        if (!g || one || !why || !strstr(why, at[i].why))
            test_fail(__FILE__, __LINE__, "case %d: %s", (int)i,
                one   ? "is one kernel"
                : why ? why
                      : "no reason");
        nnc_graph_destroy(g);
    }
}

/* Schedules of the kernel of ATTENTION that contradict its parts. */
TEST(schedules_of_parts)
{
    static const struct {
        const char *from, *to;
    } at[] = {{"vector m0 32 ", ""}, {"tile i1 14 ", "tile i1 14 tile i0 2 "},
        {"unroll i1 14", "unroll i1 4"}, {"unroll i1 14", "unroll i0 1"},
        {"parallel 9", "parallel 8"}, {"tile i1 14 ", ""}, {"vector m0 32", "vector i0 32"},
        {"unroll i1 14 ", "unroll i1 14 nontemporal "}};
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(nnc_text) t = {0};
    nnc_kernel *k = NULL;
    if (!check(ATTENTION "%y = matmul %p, %v\nreturn %y }", &a, &k) || !k)
        return;
    nnc_kernel_print(&t, k);
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        NNC_LOCAL(nnc_text) s = {0};
        const char *all = nnc_text_str(&t), *found = strstr(all, at[i].from);
        if (!found) {
            test_fail(__FILE__, __LINE__, "no %s in\n%s", at[i].from, all);
            return;
        }
        nnc_printf(&s, "%.*s%s%s", (int)(found - all), all, at[i].to, found + strlen(at[i].from));
        nnc_scan scan;
        nnc_scan_init(&scan, "k", nnc_text_str(&s), s.n);
        nnc_kernel *bad = nnc_schedule_parse(&scan, &a, test_sink);
        if (bad)
            test_fail(__FILE__, __LINE__, "accepted: %s instead of %s", at[i].to, at[i].from);
        nnc_sink_clear(test_sink);
    }
}
