/* tests/cudnn/support.c -- what the real cuDNN answers for GPUs that are not there. It says which graphs its precompiled engines
 * compute, how many configurations pass nnc's filter, the first plan and its workspace. The golden table is of one version of cuDNN
 * (of others: what is computed at all). Skipped where there is no cuDNN. NNC_BLESS=1 writes the table. */
#include "cuda/cudnn.h"
#include "golden.h"
#include "target/target.h"
#include "test.h"

static const int gpus[] = {90, 80, 75};

typedef struct form {
    const char *name;
    nnc_dtype dtype;
    bool last; /* channels last */
    uint32_t without; /* notes */
} form;
static const form forms[] = {
    {"f32", DT_f32, false, CUDNN_TENSOR_CORE},
    {"tf32", DT_f32, true, 0},
    {"f16", DT_f16, true, 0},
    {"bf16", DT_bf16, true, 0},
};

/* ops: c convolution, d its data gradient, w its filter gradient, z sum, b bias, r relu. */
typedef struct shape {
    const char *name;
    int64_t n, c, k, size, kernel, stride, groups;
    const char *ops;
} shape;
static const shape shapes[] = {
    {"conv", 32, 64, 64, 56, 3, 1, 1, "c"},
    {"conv bias", 32, 64, 64, 56, 3, 1, 1, "cb"},
    {"conv bias relu", 32, 64, 64, 56, 3, 1, 1, "cbr"},
    {"conv sum bias", 32, 64, 64, 56, 3, 1, 1, "czb"},
    {"conv sum bias relu", 32, 64, 64, 56, 3, 1, 1, "czbr"},
    {"conv bias sum relu", 32, 64, 64, 56, 3, 1, 1, "cbzr"},
    {"conv relu", 32, 64, 64, 56, 3, 1, 1, "cr"},
    {"conv sum", 32, 64, 64, 56, 3, 1, 1, "cz"},
    {"dgrad", 32, 64, 64, 56, 3, 1, 1, "d"},
    {"wgrad", 32, 64, 64, 56, 3, 1, 1, "w"},
    {"dgrad 3x3 stride 2", 32, 64, 128, 56, 3, 2, 1, "d"},
    {"wgrad 3x3 stride 2", 32, 64, 128, 56, 3, 2, 1, "w"},
    {"dgrad 1x1", 32, 256, 64, 56, 1, 1, 1, "d"},
    {"wgrad 1x1", 32, 256, 64, 56, 1, 1, 1, "w"},
    {"wgrad stem 3x3", 32, 3, 64, 224, 3, 1, 1, "w"},
    {"wgrad stem 7x7", 32, 3, 64, 224, 7, 2, 1, "w"},
    {"dgrad depthwise", 32, 96, 96, 112, 3, 2, 96, "d"},
    {"wgrad depthwise", 32, 96, 96, 112, 3, 2, 96, "w"},
    {"3x3 stride 2", 32, 64, 128, 56, 3, 2, 1, "cbr"},
    {"1x1", 32, 256, 64, 56, 1, 1, 1, "cbr"},
    {"1x1 stride 2", 32, 256, 512, 56, 1, 2, 1, "cb"},
    {"stem 7x7 stride 2", 32, 3, 64, 224, 7, 2, 1, "cbr"},
    {"stem 3x3", 1, 3, 64, 224, 3, 1, 1, "cbr"},
    {"stem 7x7 of 4", 32, 4, 64, 224, 7, 2, 1, "cbr"},
    {"stem 7x7 of 8", 32, 8, 64, 224, 7, 2, 1, "cbr"},
    {"stem 3x3 of 8", 1, 8, 64, 224, 3, 1, 1, "cbr"},
    {"stem 3x3 stride 2", 32, 3, 32, 224, 3, 2, 1, "cbr"},
    {"stem 3x3 s2 of 8", 32, 8, 32, 224, 3, 2, 1, "cbr"},
    {"stem 11x11 stride 4", 32, 3, 96, 224, 11, 4, 1, "cbr"},
    {"stem 5x5", 32, 3, 64, 224, 5, 1, 1, "cbr"},
    {"stem 5x5 of 1", 32, 1, 64, 224, 5, 1, 1, "cbr"},
    {"12 channels", 32, 12, 64, 56, 3, 1, 1, "cbr"},
    {"16 channels", 32, 16, 64, 56, 3, 1, 1, "cbr"},
    {"1x1 of 36", 32, 36, 64, 56, 1, 1, 1, "cbr"},
    {"one image", 1, 512, 512, 14, 3, 1, 1, "cbr"},
    {"channels 30", 32, 30, 30, 56, 3, 1, 1, "cb"},
    {"grouped 32", 32, 128, 128, 56, 3, 1, 32, "cbr"},
    {"depthwise", 32, 96, 96, 112, 3, 2, 96, "c"},
    {"depthwise bias relu", 32, 96, 96, 112, 3, 2, 96, "cbr"},
};

static int tensor(nnc_cudnn *g, const form *f, const int64_t dim[4], bool is_virtual)
{
    const int64_t c = dim[1], h = dim[2], w = dim[3];
    nnc_cudnn_tensor t = {
        .dtype = is_virtual ? DT_f32 : f->dtype, .rank = 4, .is_virtual = is_virtual};
    const int64_t plain[4] = {c * h * w, h * w, w, 1}, last[4] = {c * h * w, 1, c * w, c};
    memcpy(t.dim, dim, 4 * sizeof *dim);
    memcpy(t.stride, f->last ? last : plain, sizeof plain);
    return nnc_cudnn_add_tensor(g, &t);
}

static void describe(nnc_cudnn *g, const form *f, const shape *s)
{
    int64_t pad = s->kernel / 2, out = (s->size + 2 * pad - s->kernel) / s->stride + 1;
    const int64_t src[4] = {s->n, s->c, s->size, s->size}, dst[4] = {s->n, s->k, out, out},
                  wei[4] = {s->k, s->c / s->groups, s->kernel, s->kernel},
                  bias[4] = {1, s->k, 1, 1};
    const nnc_cudnn_window w = {.spatial = 2,
        .stride = {s->stride, s->stride},
        .dilation = {1, 1},
        .pad_lo = {pad, pad},
        .pad_hi = {pad, pad}};
    int x = tensor(g, f, src, false), k = tensor(g, f, wei, false), y = tensor(g, f, dst, false);
    int z = tensor(g, f, dst, false), b = tensor(g, f, bias, false), at = x;
    for (const char *o = s->ops; *o; o++) {
        int to = o[1] ? tensor(g, f, dst, true) : y;
        if (*o == 'c')
            nnc_cudnn_conv(g, CUDNN_FORWARD, &w, x, k, to);
        else if (*o == 'd')
            nnc_cudnn_conv(g, CUDNN_BACKWARD_DATA, &w, x, k, y);
        else if (*o == 'w')
            nnc_cudnn_conv(g, CUDNN_BACKWARD_FILTER, &w, x, k, y);
        else if (*o == 'z' || *o == 'b')
            nnc_cudnn_pointwise(g, CUDNN_ADD, at, *o == 'z' ? z : b, to);
        else
            nnc_cudnn_pointwise(g, CUDNN_RELU, at, -1, to);
        at = to;
    }
}

static nnc_cudnn *graph_for(int sm)
{
    char name[16];
    nnc_target t;
    snprintf(name, sizeof name, "cuda:sm_%d", sm);
    if (nnc_target_cuda(&t, name, test_sink))
        return NULL;
    nnc_cudnn *g = NULL;
    CHECK_OK(nnc_cudnn_create(&(nnc_cudnn_device){.name = t.card,
                                  .sm = t.sm,
                                  .sms = t.sms,
                                  .sm_threads = t.sm_threads,
                                  .memory_bytes = t.memory_bytes,
                                  .shared_bytes = t.shared_bytes,
                                  .l2_bytes = t.l3_bytes,
                                  .clock_hz = t.clock_hz},
        &g, test_sink));
    nnc_target_deinit(&t);
    return g;
}

/* The plan's text is read again, into an empty graph. */
static void check_text(nnc_cudnn *g, int sm)
{
    nnc_text t = {0};
    nnc_cudnn *again = graph_for(sm);
    nnc_cudnn_plan_text(g, &t);
    CHECK(t.n > 100 && !t.oom);
    if (again) {
        CHECK_OK(nnc_cudnn_plan_read(again, nnc_text_str(&t), t.n));
        CHECK_INT(nnc_cudnn_workspace(again), nnc_cudnn_workspace(g));
        CHECK_INT(nnc_cudnn_plan_read(again, "{}", 2), NNC_E_DEVICE);
    }
    nnc_cudnn_destroy(again);
    nnc_text_deinit(&t);
}

static void put_line(nnc_text *out, int sm, const form *f, const shape *s)
{
    const nnc_cudnn_filter filter = {
        .without = CUDNN_DOWN_CONVERT | CUDNN_NONDETERMINISTIC | f->without,
        .precompiled = true,
        .workspace_limit = INT64_MAX};
    nnc_cudnn *g = graph_for(sm);
    nnc_printf(out, "sm_%d %-4s %-20s ", sm, f->name, s->name);
    if (!g)
        return;
    describe(g, f, s);
    int n = nnc_cudnn_finish(g) ? 0 : nnc_cudnn_query(g, &filter);
    int i = n > 0 ? nnc_cudnn_plan_first(g, 0, INT64_MAX) : -1;
    if (i >= 0) {
        const nnc_cudnn_config *c = nnc_cudnn_config_at(g, i);
        nnc_printf(out, "%3d  engine %lld%s, workspace %lld\n", n, (long long)c->engine,
            c->fallback ? " (fallback)" : "", (long long)nnc_cudnn_workspace(g));
        CHECK(c->workspace < 0 || c->workspace == nnc_cudnn_workspace(g));
        check_text(g, sm);
    } else {
        nnc_puts(out, "none\n");
        CHECK(nnc_cudnn_why(g)[0]);
    }
    nnc_cudnn_destroy(g);
}

TEST(support_table)
{
    if (golden_absent())
        return;
    nnc_text t = {0};
    golden_head(&t);
    for (size_t g = 0; g < NNC_COUNT(gpus); g++)
        for (size_t f = 0; f < NNC_COUNT(forms); f++)
            for (size_t s = 0; s < NNC_COUNT(shapes); s++)
                put_line(&t, gpus[g], &forms[f], &shapes[s]);
    golden_check(&t, "tests/cudnn/support.txt");
}
