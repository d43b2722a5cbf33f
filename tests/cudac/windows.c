/* tests/cudac/windows.c -- windows by the hundred: depthwise convolutions and pooling of every stride, dilation, border, memory order and
 * element type, in strips where the schedule makes them. */
#include "ct.h"
#include "gen/gen.h"

/* Does the kernel compute strips: several results by one thread along an axis? */
static bool in_strips(const nnc_kernel *k)
{
    int stores = 0;
    for (int i = 0; i < k->n_ins; i++)
        stores += k->ins[i].op == KO_store;
    return stores > 1;
}

static void random_windows(int from, int n, bool tiny, bool pool, int least)
{
    ct_set s = {.tiny = tiny, .few = true};
    int strips = 0;
    for (int i = from; i < from + n; i++) {
        nnc_text t = {0};
        gen_window(&t, test_seed + (uint64_t)i, pool);
        ct_add_fused(&s, nnc_text_str(&t));
        nnc_text_deinit(&t);
    }
    CHECK_INT(s.n, n);
    for (int i = 0; i < s.n; i++) {
        strips += in_strips(s.k[i]);
    }
    CHECK(strips >= least);
    if (ct_build(&s, NULL))
        CHECK_INT(ct_run_all(&s, test_seed), n);
    ct_set_deinit(&s);
}

TEST(depthwise_windows)
{
    random_windows(0, 80, true, false, 30);
    random_windows(80, 30, false, false, 0);
}

TEST(pooling_windows)
{
    random_windows(0, 60, true, true, 12);
}

/* Moved about in front and behind; those that are no single loop nest are left out. */
static void moved_windows(int n, bool pool)
{
    ct_set s = {.open = true};
    nnc_arena_init(&s.arena, 0);
    for (int i = 0; i < n; i++) {
        nnc_text t = {0};
        gen_moved_window(&t, test_seed + (uint64_t)i, pool);
        nnc_graph *g = ct_parse(nnc_text_str(&t)), *f = g ? ct_fuse(g) : NULL;
        const nnc_kernel *k =
            f ? nnc_lower(f, &f->node[f->n_node - 1], ct_tiny(), &s.arena, test_sink) : NULL;
        if (k)
            ct_add(&s, k);
        nnc_graph_destroy(f);
        nnc_graph_destroy(g);
        nnc_text_deinit(&t);
    }
    nnc_sink_clear(test_sink);
    CHECK(s.n > n / 2);
    if (ct_build(&s, NULL))
        CHECK_INT(ct_run_all(&s, test_seed), s.n);
    ct_set_deinit(&s);
}

TEST(moved_windows)
{
    moved_windows(50, false);
    moved_windows(40, true);
}
