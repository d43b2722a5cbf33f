/* bench/contractions.c -- the speed of generated kernels of matrix products and convolutions, with weights packed once, bias and activation
 * after convolutions; VGG-16's, ResNet-50's and EfficientNet-B0's (b0) layers, and transposed ones (back) of DCGAN, U-Net and FCN. The
 * least time counts. Not a test.
 *
 *   bench_contractions [threads (1)] [part of a case's name [show | avx2]]
 *
 * avx2: kernels for a CPU without AVX-512. */
#include "codegen/codegen.h"
#include "passes/passes.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_RUNS = 6, MOST_RUNS = 400 };
static const int64_t FOR_NS = 600000000;
static bool show; /* the generated kernels' text */

/* A convolution: image channels, its side, outputs, window's side, stride, pad. A product (side 0): rows, columns, terms. */
typedef struct shape {
    const char *name;
    int64_t c, side, k, window, stride, pad;
    bool depthwise, silu; /* silu after it, not relu */
    bool back; /* a transposed convolution */
    int64_t groups; /* of several channels each; 0: one */
    bool line; /* a convolution along one axis, of `side` places */
} shape;

static const shape shapes[] = {{"vgg 3-224-64", 3, 224, 64, 3, 1, 1},
    {"vgg 64-224-64", 64, 224, 64, 3, 1, 1}, {"vgg 64-112-128", 64, 112, 128, 3, 1, 1},
    {"vgg 128-112-128", 128, 112, 128, 3, 1, 1}, {"vgg 128-56-256", 128, 56, 256, 3, 1, 1},
    {"vgg 256-56-256", 256, 56, 256, 3, 1, 1}, {"vgg 256-28-512", 256, 28, 512, 3, 1, 1},
    {"vgg 512-28-512", 512, 28, 512, 3, 1, 1}, {"vgg 512-14-512", 512, 14, 512, 3, 1, 1},
    {"resnet 7x7 3-224-64", 3, 224, 64, 7, 2, 3}, {"resnet 3x3 64-56-64", 64, 56, 64, 3, 1, 1},
    {"resnet 1x1 64-56-64", 64, 56, 64, 1, 1, 0}, {"resnet 1x1 64-56-256", 64, 56, 256, 1, 1, 0},
    {"resnet 1x1 256-56-64", 256, 56, 64, 1, 1, 0},
    {"resnet 3x3 128-56-128 s2", 128, 56, 128, 3, 2, 1},
    {"resnet 3x3 128-28-128", 128, 28, 128, 3, 1, 1},
    {"resnet 1x1 512-28-128", 512, 28, 128, 1, 1, 0},
    {"resnet 1x1 128-28-512", 128, 28, 512, 1, 1, 0},
    {"resnet 3x3 256-14-256", 256, 14, 256, 3, 1, 1},
    {"resnet 1x1 1024-14-256", 1024, 14, 256, 1, 1, 0},
    {"resnet 1x1 1024-14-2048 s2", 1024, 14, 2048, 1, 2, 0},
    {"resnet 3x3 512-7-512", 512, 7, 512, 3, 1, 1},
    {"resnet 1x1 2048-7-512", 2048, 7, 512, 1, 1, 0},
    {"resnet 1x1 512-7-2048", 512, 7, 2048, 1, 1, 0}, {"product 256", 256, 0, 256, 256, 0, 0},
    {"product 512", 512, 0, 512, 512, 0, 0}, {"product 1024", 1024, 0, 1024, 1024, 0, 0},
    {"product 2048", 2048, 0, 2048, 2048, 0, 0}, {"product 768-3072", 1024, 0, 3072, 768, 0, 0},
    {"product 3072-768", 1024, 0, 768, 3072, 0, 0}, {"bert 768-768", 128, 0, 768, 768, 0, 0},
    {"bert 768-3072", 128, 0, 3072, 768, 0, 0}, {"bert 3072-768", 128, 0, 768, 3072, 0, 0},
    {"vit 768-768", 197, 0, 768, 768, 0, 0}, {"vit 768-3072", 197, 0, 3072, 768, 0, 0},
    {"vit 3072-768", 197, 0, 768, 3072, 0, 0}, {"mlp 784-512", 256, 0, 512, 784, 0, 0},
    {"mlp 512-512", 256, 0, 512, 512, 0, 0},
    {"b0 3x3 3-224-32 s2", 3, 224, 32, 3, 2, 1, false, true},
    {"b0 dw3 32-112", 32, 112, 32, 3, 1, 1, true}, {"b0 1x1 32-112-16", 32, 112, 16, 1, 1, 0},
    {"b0 1x1 16-112-96", 16, 112, 96, 1, 1, 0, false, true},
    {"b0 dw3 96-112 s2", 96, 112, 96, 3, 2, 1, true}, {"b0 1x1 96-56-24", 96, 56, 24, 1, 1, 0},
    {"b0 1x1 24-56-144", 24, 56, 144, 1, 1, 0, false, true},
    {"b0 dw3 144-56", 144, 56, 144, 3, 1, 1, true},
    {"b0 dw5 144-56 s2", 144, 56, 144, 5, 2, 2, true}, {"b0 1x1 144-28-40", 144, 28, 40, 1, 1, 0},
    {"b0 1x1 40-28-240", 40, 28, 240, 1, 1, 0, false, true},
    {"b0 dw5 240-28", 240, 28, 240, 5, 1, 2, true}, {"b0 1x1 240-14-80", 240, 14, 80, 1, 1, 0},
    {"b0 1x1 80-14-480", 80, 14, 480, 1, 1, 0, false, true},
    {"b0 dw3 480-14", 480, 14, 480, 3, 1, 1, true}, {"b0 dw5 480-14", 480, 14, 480, 5, 1, 2, true},
    {"b0 1x1 480-14-112", 480, 14, 112, 1, 1, 0},
    {"b0 1x1 112-14-672", 112, 14, 672, 1, 1, 0, false, true},
    {"b0 dw5 672-14 s2", 672, 14, 672, 5, 2, 2, true}, {"b0 1x1 672-7-192", 672, 7, 192, 1, 1, 0},
    {"b0 1x1 192-7-1152", 192, 7, 1152, 1, 1, 0, false, true},
    {"b0 dw5 1152-7", 1152, 7, 1152, 5, 1, 2, true},
    {"b0 1x1 320-7-1280", 320, 7, 1280, 1, 1, 0, false, true},
    {"b0 se 1152-1-48", 1152, 1, 48, 1, 1, 0, false, true},
    {"b0 se 48-1-1152", 48, 1, 1152, 1, 1, 0}, {"b0 se 240-1-10", 240, 1, 10, 1, 1, 0, false, true},
    {"back dcgan 100-1-512", 100, 1, 512, 4, 1, 0, .back = true},
    {"back dcgan 512-4-256", 512, 4, 256, 4, 2, 1, .back = true},
    {"back dcgan 256-8-128", 256, 8, 128, 4, 2, 1, .back = true},
    {"back dcgan 128-16-64", 128, 16, 64, 4, 2, 1, .back = true},
    {"back dcgan 64-32-3", 64, 32, 3, 4, 2, 1, .back = true},
    {"back unet 1024-16-512", 1024, 16, 512, 2, 2, 0, .back = true},
    {"back unet 128-64-64", 128, 64, 64, 2, 2, 0, .back = true},
    {"back 3x3 64-32-32 s2", 64, 32, 32, 3, 2, 0, .back = true},
    {"back 3x3 64-56-64 s1", 64, 56, 64, 3, 1, 1, .back = true},
    {"back fcn 21-34-21 s8", 21, 34, 21, 16, 8, 4, .back = true},
    {"back dw4 96-28 s2", 96, 28, 96, 4, 2, 1, .depthwise = true, .back = true},
    {"resnext 128-56-128 g32", 128, 56, 128, 3, 1, 1, .groups = 32},
    {"resnext 256-56-256 g32 s2", 256, 56, 256, 3, 2, 1, .groups = 32},
    {"resnext 256-28-256 g32", 256, 28, 256, 3, 1, 1, .groups = 32},
    {"resnext 512-14-512 g32", 512, 14, 512, 3, 1, 1, .groups = 32},
    {"resnext 1024-7-1024 g32", 1024, 7, 1024, 3, 1, 1, .groups = 32},
    {"line 8 x 2-1024-2", 16, 1024, 16, 5, 1, 2, .groups = 8, .line = true},
    {"line 8 x 8-1024-8", 64, 1024, 64, 5, 1, 2, .groups = 8, .line = true},
    {"line 32 x 1-1024-4", 32, 1024, 128, 5, 1, 2, .groups = 32, .line = true},
    {"line 32 x 4-1024-1", 128, 1024, 32, 5, 1, 2, .groups = 32, .line = true},
    {"line 32 x 3-1024-3", 96, 1024, 96, 5, 1, 2, .groups = 32, .line = true},
    {"line 32 x 4-1024-4", 128, 1024, 128, 5, 1, 2, .groups = 32, .line = true},
    {"line 64 x 4-256-4", 256, 256, 256, 3, 1, 1, .groups = 64, .line = true},
    {"line 64 x 16-256-16", 1024, 256, 1024, 3, 1, 1, .groups = 64, .line = true}};

typedef struct side {
    nnc_kernel_fn fn;
    const nnc_kernel *k;
    void *args[4];
    int threads;
} side;

static void *memory(int64_t bytes)
{
    float *p = nnc_aligned_alloc(64, (size_t)nnc_align_up(bytes + 64, 64));
    if (!p)
        exit(4);
    nnc_rng_fill(1, 0, (size_t)(bytes / 4), 1.0f, p);
    return p;
}

static int64_t results(const shape *s)
{
    return !s->side  ? 0
           : s->back ? (s->side - 1) * s->stride - 2 * s->pad + s->window
                     : (s->side + 2 * s->pad - s->window) / s->stride + 1;
}

static int64_t groups(const shape *s)
{
    return s->depthwise ? s->c : s->groups ? s->groups : 1;
}

static double flops(const shape *s)
{
    int64_t places = !s->side ? s->c : s->back ? s->side : results(s), terms = s->window;
    if (s->side && !s->line) {
        places *= places;
        terms *= s->window;
    }
    return 2 * (double)places * (double)s->k * (double)(s->side ? s->c / groups(s) * terms : terms);
}

/* The contraction with what follows it; passes make the kernel's node of it. */
static void graph_of(nnc_text *t, const shape *s)
{
    const long long c = s->c, k = s->k, w = s->window, n = s->side, p = s->pad, r = results(s);
    const long long h = s->line ? 1 : n, v = s->line ? 1 : w, q = s->line ? 0 : p, d = s->stride;
    if (!n) {
        nnc_printf(t,
            "graph @g {\n%%x = input : f32[%lld,%lld]\n%%w = param : f32[%lld,%lld] = gen(\"w\", "
            "seed=0, scale=1, shift=0)\n%%y = matmul %%x, %%w\nreturn %%y }",
            c, w, w, k);
        return;
    }
    nnc_printf(t,
        "graph @g {\n%%x = input : f32[1,%lld,%lld,%lld]{0,2,3,1}\n%%w = param : "
        "f32[%lld,%lld,%lld,%lld] = gen(\"w\", seed=0, scale=1, shift=0)\n",
        c, h, n, s->back ? c : k, s->back ? k / groups(s) : c / groups(s), v, w);
    nnc_printf(t,
        "%%b = param : f32[%lld] = gen(\"b\", seed=0, scale=1, shift=0)\n%%z = %s %%x, %%w, %%b "
        "{groups=%lld, pads=[%lld,%lld,%lld,%lld], strides=[%lld,%lld]} : "
        "f32[1,%lld,%lld,%lld]{0,2,3,1}\n%%y = %s %%z\nreturn %%y }",
        k, s->back ? "conv_transpose" : "conv", (long long)groups(s), q, p, q, p, d, d, k,
        s->line ? 1 : r, r, s->silu ? "silu" : "relu");
}

/* The node of the contraction, after the passes. */
static nnc_graph *passed(const shape *s, const nnc_target *t, uint32_t *node, nnc_sink *sink)
{
    nnc_text text = {0};
    nnc_scan scan;
    nnc_remarks r;
    graph_of(&text, s);
    nnc_scan_init(&scan, s->name, nnc_text_str(&text), text.n);
    nnc_graph *g = nnc_graph_parse(&scan, sink);
    const nnc_pass_options o = {.level = 2, .target = t};
    nnc_remarks_init(&r);
    bool ok = g && nnc_passes_run(&g, &o, &r, sink) == NNC_OK;
    nnc_remarks_deinit(&r);
    for (uint32_t i = 0; ok && i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) == CL_contract || g->node[i].op == OP_fused)
            *node = i;
    nnc_text_deinit(&text);
    return g;
}

static bool generate(side *g, const shape *s, const nnc_emitter *e, const nnc_target *t,
    nnc_arena *a, nnc_sink *sink)
{
    char *bytes = NULL;
    size_t n = 0;
    const char *why = "";
    uint32_t node = 0;
    nnc_graph *graph = passed(s, t, &node, sink);
    if (graph)
        g->k = nnc_lower(graph, &graph->node[node], t, MATH_ulp2, a, sink);
    nnc_object *o = g->k && e->emit(&g->k, 1, t, EMIT_object, &bytes, &n, sink) == NNC_OK
                        ? nnc_object_load(bytes, n, &why)
                        : NULL;
    void *fn = o ? nnc_object_symbol(o, g->k->name) : NULL;
    memcpy(&g->fn, &fn, sizeof fn);
    for (int b = 0, at = 0; g->fn && b < g->k->n_buf; b++)
        if (g->k->buf[b].role != KB_tmp)
            g->args[at++] = memory(g->k->buf[b].numel * 4);
    if (g->fn && show) {
        nnc_text x = {0};
        nnc_kernel_print(&x, g->k);
        fputs(nnc_text_str(&x), stdout);
        nnc_text_deinit(&x);
    }
    nnc_graph_destroy(graph);
    nnc_free(bytes);
    nnc_sink_print(sink, stderr);
    return g->fn != NULL;
}

static void run_part(void *ctx, int part, int parts)
{
    const side *g = ctx;
    int64_t begin, end;
    nnc_par_range(g->k->sched.domain, 1, part, parts, &begin, &end);
    if (begin < end)
        g->fn(g->args, begin, end, NULL);
}

static int64_t once(side *s, int times)
{
    int64_t t = nnc_now_ns();
    for (int i = 0; i < times; i++)
        nnc_par_run(s->threads, run_part, s);
    return (nnc_now_ns() - t) / times;
}

int main(int argc, char **argv)
{
    const char *why = "", *which = argc > 2 ? argv[2] : "";
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    const nnc_emitter *e = nnc_plugin("llvm", "nnc_emitter_llvm", &why);
    nnc_sink *sink = nnc_sink_create();
    nnc_target t;
    show = argc > 3 && strstr(argv[3], "show");
    if (!e || !sink || nnc_target_host(&t, 0, threads, true, sink) != NNC_OK) {
        fprintf(stderr, "needs LLVM: %s\n", why);
        return 5;
    }
    if (argc > 3 && strstr(argv[3], "avx2")) {
        t.cpu = "haswell";
        t.features = "";
        t.vector_bits = 256;
        t.avx512_bf16 = false;
    }
    nnc_team *team;
    if (nnc_team_create(threads, &team, sink) != NNC_OK)
        return 5;
    nnc_team_enter(team); /* as a stream of the executor does */
    printf("%d threads: GFLOP/s\n", threads);
    for (size_t i = 0; i < NNC_COUNT(shapes); i++) {
        nnc_arena a;
        const shape *s = &shapes[i];
        side own = {.threads = threads};
        int64_t best = INT64_MAX, begin = nnc_now_ns();
        if (!strstr(s->name, which))
            continue;
        nnc_arena_init(&a, 0);
        if (!generate(&own, s, e, &t, &a, sink)) {
            printf("%-28s failed\n", s->name);
            continue;
        }
        int times = flops(s) < 1e8 ? 5 : 1;
        for (int r = 0; r < LEAST_RUNS || (r < MOST_RUNS && nnc_now_ns() - begin < FOR_NS); r++)
            best = nnc_min64(best, once(&own, times));
        printf("%-28s %7.1f\n", s->name, flops(s) / (double)best);
        nnc_arena_deinit(&a);
    }
    nnc_team_leave(team);
    nnc_team_destroy(team);
    nnc_target_deinit(&t);
    nnc_sink_destroy(sink);
    return 0;
}
