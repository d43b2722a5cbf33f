/* tests/codegen/windows.c -- windows as kernels: depthwise convolutions and pooling of every stride, dilation, border and memory order,
 * interpreted and compared with the reference. */
#include "help.h"

#include "../gen/gen.h"

static const ck_bound sums = {1e-5, 3e-5};

static void random_windows(int n, bool pool)
{
    for (int i = 0; i < n; i++) {
        nnc_text t = {0};
        gen_window(&t, test_seed + (uint64_t)i, pool);
        nnc_sink_clear(test_sink);
        if (!ck_text(nnc_text_str(&t), sums)) {
            nnc_sink_print(test_sink, stderr);
            test_fail(__FILE__, __LINE__, "case %d:\n%s", i, nnc_text_str(&t));
        }
        nnc_text_deinit(&t);
    }
}

TEST(depthwise_convolutions)
{
    random_windows(400, false);
}

TEST(poolings)
{
    random_windows(200, true);
}
