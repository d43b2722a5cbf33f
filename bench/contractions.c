/* bench/contractions.c -- the speed of generated kernels of matrix products and convolutions, with weights packed once, bias and activation
 * after convolutions. Layers are those of VGG-16, ResNet-50 and EfficientNet-B0 (b0), and transposed ones (back) of DCGAN, U-Net and FCN.
 * The least time counts. Not a test.
 *
 *   bench_contractions [threads (1)] [part of a case's name [show | avx2 | winograd]]
 *
 * avx2: kernels for a CPU without AVX-512. winograd: microseconds of convolutions with 3x3 windows by direct sums and by Winograd's
 * algorithm. Blocks have several sizes; its parts are timed on one thread. */
#include "codegen/codegen.h"
#include "passes/passes.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEAST_RUNS = 6, MOST_RUNS = 400, THREADS = 16 };
static int64_t for_ns = 600000000;
static bool show; /* the generated kernels' text */

/* A convolution: image channels, its side, outputs, window's side, stride, pad. A product (side 0): rows, columns, terms. */
typedef struct shape {
    const char *name;
    int64_t c, side, k, window, stride, pad;
    bool depthwise, silu; /* silu after it, not relu */
    bool back; /* a transposed convolution */
    int64_t groups; /* of several channels each; 0: one */
    bool line; /* a convolution along one axis, of `side` places */
    int64_t images; /* 0: one */
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
    void *args[4], *scratch[THREADS];
    int threads;
} side;

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

typedef struct bench {
    const nnc_emitter *e;
    nnc_target t;
    nnc_sink *sink;
    int threads;
} bench;

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

static int64_t images(const shape *s)
{
    return nnc_max64(s->images, 1);
}

static double flops(const shape *s)
{
    int64_t places = !s->side ? s->c : s->back ? s->side : results(s), terms = s->window;
    if (s->side && !s->line) {
        places *= places;
        terms *= s->window;
    }
    return 2 * (double)images(s) * (double)places * (double)s->k *
           (double)(s->side ? s->c / groups(s) * terms : terms);
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
        "graph @g {\n%%x = input : f32[%lld,%lld,%lld,%lld]{0,2,3,1}\n%%w = param : "
        "f32[%lld,%lld,%lld,%lld] = gen(\"w\", seed=0, scale=1, shift=0)\n",
        (long long)images(s), c, h, n, s->back ? c : k, s->back ? k / groups(s) : c / groups(s), v,
        w);
    nnc_printf(t,
        "%%b = param : f32[%lld] = gen(\"b\", seed=0, scale=1, shift=0)\n%%z = %s %%x, %%w, %%b "
        "{groups=%lld, pads=[%lld,%lld,%lld,%lld], strides=[%lld,%lld]} : "
        "f32[%lld,%lld,%lld,%lld]{0,2,3,1}\n%%y = %s %%z\nreturn %%y }",
        k, s->back ? "conv_transpose" : "conv", (long long)groups(s), q, p, q, p, d, d,
        (long long)images(s), k, s->line ? 1 : r, r, s->silu ? "silu" : "relu");
}

/* The node of the contraction, after the passes; `why`: Winograd's algorithm is allowed, and its remark goes there. */
static nnc_graph *passed(const shape *s, const bench *b, uint32_t *node, nnc_text *why)
{
    static const char *const skip[] = {"winograd"};
    nnc_text text = {0};
    nnc_scan scan;
    nnc_remarks r;
    graph_of(&text, s);
    nnc_scan_init(&scan, s->name, nnc_text_str(&text), text.n);
    nnc_graph *g = nnc_graph_parse(&scan, b->sink);
    const nnc_pass_options o = {.level = 2, .target = &b->t, .skip = skip, .n_skip = why ? 0 : 1};
    nnc_remarks_init(&r);
    bool ok = g && nnc_passes_run(&g, &o, &r, b->sink) == NNC_OK;
    for (size_t i = 0; why && i < r.n; i++)
        if (!strcmp(r.at[i].pass, "winograd"))
            nnc_printf(why, "%s", r.at[i].reason);
    nnc_remarks_deinit(&r);
    for (uint32_t i = 0; ok && i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) == CL_contract || g->node[i].op == OP_fused)
            *node = i;
    nnc_text_deinit(&text);
    return g;
}

/* The function and the arguments of kernel g->k, which it emits. */
static bool emit(side *g, const bench *b)
{
    char *bytes = NULL;
    size_t n = 0;
    const char *why = "";
    nnc_object *o = g->k && b->e->emit(&g->k, 1, &b->t, EMIT_object, &bytes, &n, b->sink) == NNC_OK
                        ? nnc_object_load(bytes, n, &why)
                        : NULL;
    void *fn = o ? nnc_object_symbol(o, g->k->name) : NULL;
    memcpy(&g->fn, &fn, sizeof fn);
    for (int i = 0, at = 0; g->fn && i < g->k->n_buf; i++)
        if (g->k->buf[i].role != KB_tmp)
            g->args[at++] = memory(g->k->buf[i].numel * 4);
    for (int i = 0; g->fn && i < g->threads; i++)
        g->scratch[i] = memory(g->k->scratch_bytes);
    if (g->fn && show) {
        nnc_text x = {0};
        nnc_kernel_print(&x, g->k);
        fputs(nnc_text_str(&x), stdout);
        nnc_text_deinit(&x);
    }
    nnc_free(bytes);
    nnc_sink_print(b->sink, stderr);
    return g->fn != NULL;
}

static bool generate(side *g, const shape *s, const bench *b, nnc_arena *a)
{
    uint32_t node = 0;
    nnc_graph *graph = passed(s, b, &node, NULL);
    if (graph)
        g->k = nnc_lower(graph, &graph->node[node], &b->t, MATH_ulp2, a, b->sink);
    nnc_graph_destroy(graph);
    return emit(g, b);
}

static void run_part(void *ctx, int part, int parts)
{
    const side *g = ctx;
    int64_t begin, end;
    nnc_par_range(g->k->sched.domain, 1, part, parts, &begin, &end);
    if (begin < end)
        g->fn(g->args, begin, end, g->scratch[part]);
}

/* One run; of one thread in its CPU time, which others on the machine do not lengthen. */
static int64_t once(side *s, int times)
{
    const int64_t t = s->threads > 1 ? nnc_now_ns() : cpu_ns();
    for (int i = 0; i < times; i++)
        nnc_par_run(s->threads, run_part, s);
    return ((s->threads > 1 ? nnc_now_ns() : cpu_ns()) - t) / times;
}

/* The least time of many runs, in ns. */
static int64_t least(side *g, const shape *s)
{
    const int times = flops(s) < 1e8 ? 5 : 1;
    int64_t best = INT64_MAX, begin = nnc_now_ns();
    for (int r = 0; r < LEAST_RUNS || (r < MOST_RUNS && nnc_now_ns() - begin < for_ns); r++)
        best = nnc_min64(best, once(g, times));
    return best;
}

static void drop(side *g)
{
    for (int i = 0; i < THREADS; i++)
        nnc_free(g->scratch[i]);
    for (size_t i = 0; i < NNC_COUNT(g->args); i++)
        nnc_free(g->args[i]);
}

/* ---- Winograd's algorithm -------------------------------------------------------------------------------------------- */

static const shape tiled[] = {{"64-224-64", 64, 224, 64}, {"128-112-128", 128, 112, 128},
    {"64-112-128", 64, 112, 128}, {"256-56-256", 256, 56, 256}, {"128-56-256", 128, 56, 256},
    {"64-56-64", 64, 56, 64}, {"128-56-32", 128, 56, 32}, {"32-56-128", 32, 56, 128},
    {"16-56-16", 16, 56, 16}, {"512-28-512", 512, 28, 512}, {"256-28-256", 256, 28, 256},
    {"128-28-128", 128, 28, 128}, {"128-28-32", 128, 28, 32}, {"64-28-64", 64, 28, 64},
    {"512-14-512", 512, 14, 512}, {"256-14-256", 256, 14, 256}, {"128-14-128", 128, 14, 128},
    {"128-14-32", 128, 14, 32}, {"512-7-512", 512, 7, 512}, {"160-7-320", 160, 7, 320},
    {"128-7-32", 128, 7, 32}, {"8x 64-56-64", 64, 56, 64, .images = 8},
    {"8x 128-28-128", 128, 28, 128, .images = 8}, {"8x 256-14-256", 256, 14, 256, .images = 8},
    {"8x 128-14-32", 128, 14, 32, .images = 8}, {"8x 512-7-512", 512, 7, 512, .images = 8}};

/* The convolution of s by p points, in blocks of n images and r rows of tiles. */
static void tiled_graph(nnc_text *t, const shape *s, const nnc_target *target, int p, int n, int r)
{
    const long long c = s->c, k = s->k, h = s->side, i = images(s),
                    lanes = target->vector_bits / 32,
                    panel = k % (2 * lanes) == 0                           ? 2 * lanes
                            : target->vector_bits >= 512 && k % lanes == 0 ? lanes
                                                                           : k;
    nnc_puts(t, "graph @g {\n");
    for (int body = 0; body < 2; body++)
        nnc_printf(t,
            "%%x = input : f32[%lld,%lld,%lld,%lld]{0,2,3,1}\n%%u = input : "
            "f32[%d,%lld,%lld,%lld]\n"
            "%%b = input : f32[%lld]\n%s",
            i, c, h, h, p, k / panel, c, panel, k, body ? "" : "%y = fused %x, %u, %b {\n");
    nnc_printf(t,
        "%%v = winograd %%x, %%u {pads=[1,1,1,1], block=[%d,%d]} : f32[%lld,%lld,%lld,%lld]"
        "{0,2,3,1}\n%%c = reshape %%b {shape=[%lld,1,1]}\n%%s = add %%v, %%c : "
        "f32[%lld,%lld,%lld,%lld]{0,2,3,1}\n%%y = relu %%s\nreturn %%y\n}\nreturn %%y }",
        n, r, i, k, h, h, k, i, k, h, h);
}

static bool generate_tiled(
    side *g, const shape *s, const bench *b, int p, int n, int r, nnc_arena *a)
{
    nnc_text text = {0};
    nnc_scan scan;
    tiled_graph(&text, s, &b->t, p, n, r);
    nnc_scan_init(&scan, s->name, nnc_text_str(&text), text.n);
    nnc_graph *graph = nnc_graph_parse(&scan, b->sink);
    for (uint32_t i = 0; graph && i < graph->n_node; i++)
        if (graph->node[i].op == OP_fused)
            g->k = nnc_lower(graph, &graph->node[i], &b->t, MATH_ulp2, a, b->sink);
    nnc_graph_destroy(graph);
    nnc_text_deinit(&text);
    return emit(g, b);
}

/* The least CPU time of each part of kernel `all` in a run of the whole: ns[i]. They are called block by block, as in it. */
static void part_times(side *all, const bench *b, nnc_arena *a, double *ns)
{
    nnc_kpart part[NNC_KPARTS];
    side of[NNC_KPARTS] = {0};
    const nnc_kernel *k = all->k;
    const int n = nnc_kernel_parts(k, part);
    const int64_t *row = nnc_parts_rows(k, part, n, a);
    char *shared[NNC_KPARTS] = {0};
    for (int i = 0; i < n && row; i++) {
        if (nnc_kernel_part(k, nnc_parts_tiled(k), row, &part[i], a))
            return;
        part[i].k.name = nnc_arena_printf(a, "%s_%d", k->name, i);
        of[i] = (side){.k = &part[i].k, .threads = 1};
        if (!emit(&of[i], b))
            return;
        for (int j = 0, at = 0; j < part[i].k.n_buf; j++) {
            if (part[i].k.buf[j].role == KB_tmp)
                continue;
            const int of_all = part[i].buf[j];
            int which = 0;
            for (int x = 0; x < of_all; x++)
                which += row[x] != 0;
            if (row[of_all]) {
                shared[which] = shared[which] ? shared[which] : memory(nnc_parts_bytes(k, of_all));
                of[i].args[at] = shared[which];
            }
            at++;
        }
    }
    for (int r = 0; r < LEAST_RUNS; r++) {
        double sum[NNC_KPARTS] = {0};
        for (int64_t u = 0; u < k->sched.domain; u++)
            for (int i = 0; i < n; i++) {
                const int64_t each = part[i].k.sched.domain / k->sched.domain, t = cpu_ns();
                of[i].fn(of[i].args, u * each, (u + 1) * each, of[i].scratch[0]);
                sum[i] += (double)(cpu_ns() - t);
            }
        for (int i = 0; i < n; i++)
            ns[i] = r ? fmin(ns[i], sum[i]) : sum[i];
    }
}

/* Times by p points, in blocks of one row, of few and of all, and of several images. */
static void tiled_times(const shape *s, const bench *b, int p)
{
    const int rows = (int)nnc_ceildiv(s->side, p == 36 ? 4 : 2);
    const int block[][2] = {{1, 1}, {1, 2}, {1, 4}, {1, 8}, {1, rows}, {4, rows}, {8, rows}};
    for (size_t i = 0; i < NNC_COUNT(block); i++) {
        const int n = block[i][0], r = block[i][1];
        side g = {.threads = b->threads};
        double ns[NNC_KPARTS] = {0};
        nnc_arena a;
        if (n > images(s) || (r >= rows && r < 16 && i < 4) || (r == rows && rows > 16))
            continue;
        nnc_arena_init(&a, 0);
        if (generate_tiled(&g, s, b, p, n, r, &a)) {
            const int64_t t = least(&g, s);
            if (b->threads == 1)
                part_times(&g, b, &a, ns);
            printf("    %d points, blocks of %d x %d: %9.1f us; parts %9.1f %9.1f %9.1f\n", p, n, r,
                (double)t / 1e3, ns[0] / 1e3, ns[1] / 1e3, ns[2] / 1e3);
            fflush(stdout);
        }
        drop(&g);
        nnc_arena_deinit(&a);
    }
}

static void run_tiled(const bench *b, const char *which)
{
    for (size_t i = 0; i < NNC_COUNT(tiled); i++) {
        shape s = tiled[i];
        nnc_arena a;
        uint32_t node = 0;
        NNC_LOCAL(nnc_text) why = {0};
        side direct = {.threads = b->threads};
        s.window = 3;
        s.stride = s.pad = 1;
        if (!strstr(s.name, which))
            continue;
        nnc_arena_init(&a, 0);
        nnc_graph *g = passed(&s, b, &node, &why);
        int64_t points = 0;
        const int64_t *block = NULL;
        const nnc_graph *body = g && g->node[node].body ? g->node[node].body : g;
        for (uint32_t j = 0; body && j < body->n_node; j++)
            if (body->node[j].op == OP_winograd) {
                points = nnc_typeof(body, body->node[j].in[1])->dim[0];
                (void)nnc_attr_ints(&body->node[j], AT_block, &block);
            }
        printf("%-16s", s.name);
        if (generate(&direct, &s, b, &a))
            printf(" direct %9.1f us;", (double)least(&direct, &s) / 1e3);
        printf(" chosen: %lld points, blocks of %lld x %lld; %s\n", (long long)points,
            (long long)(block ? block[0] : 0), (long long)(block ? block[1] : 0),
            nnc_text_str(&why));
        nnc_graph_destroy(g);
        drop(&direct);
        tiled_times(&s, b, 36);
        tiled_times(&s, b, 16);
        nnc_arena_deinit(&a);
    }
}

static void run_all(const bench *b, const char *which)
{
    printf("%d threads: GFLOP/s\n", b->threads);
    for (size_t i = 0; i < NNC_COUNT(shapes); i++) {
        nnc_arena a;
        const shape *s = &shapes[i];
        side own = {.threads = b->threads};
        if (!strstr(s->name, which))
            continue;
        nnc_arena_init(&a, 0);
        if (generate(&own, s, b, &a))
            printf("%-28s %7.1f\n", s->name, flops(s) / (double)least(&own, s));
        else
            printf("%-28s failed\n", s->name);
        drop(&own);
        nnc_arena_deinit(&a);
    }
}

int main(int argc, char **argv)
{
    const char *why = "", *which = argc > 2 ? argv[2] : "", *mode = argc > 3 ? argv[3] : "";
    bench b = {.threads = argc > 1 ? (int)nnc_min64(atoi(argv[1]), THREADS) : 1,
        .e = nnc_plugin("llvm", "nnc_emitter_llvm", &why),
        .sink = nnc_sink_create()};
    show = strstr(mode, "show");
    if (!b.e || !b.sink || nnc_target_host(&b.t, 0, b.threads, true, b.sink) != NNC_OK) {
        fprintf(stderr, "needs LLVM: %s\n", why);
        return 5;
    }
    if (strstr(mode, "avx2")) {
        b.t.cpu = "haswell";
        b.t.features = "";
        b.t.vector_bits = 256;
        b.t.avx512_bf16 = false;
    }
    nnc_team *team;
    if (nnc_team_create(b.threads, &team, b.sink) != NNC_OK)
        return 5;
    nnc_team_enter(team); /* as a stream of the executor does */
    if (strstr(mode, "winograd"))
        for_ns /= 4;
    (strstr(mode, "winograd") ? run_tiled : run_all)(&b, which);
    nnc_team_leave(team);
    nnc_team_destroy(team);
    nnc_target_deinit(&b.t);
    nnc_sink_destroy(b.sink);
    return 0;
}
