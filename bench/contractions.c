/* bench/contractions.c -- generated kernels of matrix products and convolutions beside oneDNN's calls, with weights packed once, bias and
 * relu behind convolutions; VGG-16's and ResNet-50's layers. The two run in turns within one process, and the least time of each counts,
 * so the ratio holds on a busy machine as well. Not a test.
 *
 *   bench_contractions [threads (1)] [part of a case's name] */
#include "codegen/codegen.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL_BYTES = 128, LEAST_RUNS = 6, MOST_RUNS = 400 }; /* a panel: two vectors of 512 bits */
static const int64_t FOR_NS = 600000000;

/* A convolution: image channels, its side, outputs, window's side, stride, pad. A product (side 0): rows, columns, terms. */
typedef struct shape {
    const char *name;
    int64_t c, side, k, window, stride, pad;
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
    {"product 2048", 2048, 0, 2048, 2048, 0, 0}};

typedef struct side {
    nnc_kernel_fn fn; /* generated; else a call */
    const nnc_kernel *k;
    const nnc_engine *engine;
    void *handle, *work;
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
    return (s->side + 2 * s->pad - s->window) / s->stride + 1;
}

static double flops(const shape *s)
{
    double n = s->side ? (double)(results(s) * results(s)) : (double)s->c;
    return 2 * n * (double)s->k * (double)(s->side ? s->c * s->window * s->window : s->window);
}

/* The graph of a fused node that reads panels, as pass pack_weights makes it. */
static void graph_of(nnc_text *t, const shape *s)
{
    const long long n = PANEL_BYTES / 4, c = s->c, k = s->k, w = s->window, h = s->side;
    nnc_text x = {0}, p = {0};
    if (h) {
        nnc_printf(&x, "f32[1,%lld,%lld,%lld]{0,2,3,1}", c, h, h);
        nnc_printf(&p, "f32[%lld,%lld,%lld,%lld,%lld]", k / n, w, w, c, n);
    } else {
        nnc_printf(&x, "f32[%lld,%lld]", c, w);
        nnc_printf(&p, "f32[%lld,%lld,%lld]", k / n, w, n);
    }
    const char *xs = nnc_text_str(&x), *ps = nnc_text_str(&p);
    nnc_printf(
        t, "graph @g {\n%%x = input : %s\n%%p = input : %s\n%%b = input : f32[%lld]\n", xs, ps, k);
    nnc_printf(t, "%%y = fused %%x, %%p%s {\n%%i = input : %s\n%%q = input : %s\n", h ? ", %b" : "",
        xs, ps);
    if (h)
        nnc_printf(t,
            "%%c = input : f32[%lld]\n%%t = transpose %%q {perm=[0,4,3,1,2]}\n%%w = reshape %%t "
            "{shape=[%lld,%lld,%lld,%lld]}\n%%z = conv %%i, %%w, %%c {pads=[%lld,%lld,%lld,%lld], "
            "strides=[%lld,%lld]}\n%%r = relu %%z\nreturn %%r }\nreturn %%y }",
            k, k, c, w, w, (long long)s->pad, (long long)s->pad, (long long)s->pad,
            (long long)s->pad, (long long)s->stride, (long long)s->stride);
    else
        nnc_printf(t,
            "%%t = transpose %%q {perm=[1,0,2]}\n%%w = reshape %%t {shape=[%lld,%lld]}\n"
            "%%z = matmul %%i, %%w\nreturn %%z }\nreturn %%y }",
            w, k);
    nnc_text_deinit(&x);
    nnc_text_deinit(&p);
}

static bool generate(side *g, const shape *s, const nnc_emitter *e, const nnc_target *t,
    nnc_arena *a, nnc_sink *sink)
{
    nnc_text text = {0};
    nnc_scan scan;
    char *bytes = NULL;
    size_t n = 0;
    const char *why = "";
    graph_of(&text, s);
    nnc_scan_init(&scan, s->name, nnc_text_str(&text), text.n);
    nnc_graph *graph = nnc_graph_parse(&scan, sink);
    for (uint32_t i = 0; graph && i < graph->n_node; i++)
        if (graph->node[i].op == OP_fused)
            g->k = nnc_lower(graph, &graph->node[i], t, a, sink);
    nnc_object *o = g->k && e->emit(&g->k, 1, t, EMIT_object, &bytes, &n, sink) == NNC_OK
                        ? nnc_object_load(bytes, n, &why)
                        : NULL;
    void *fn = o ? nnc_object_symbol(o, g->k->name) : NULL;
    memcpy(&g->fn, &fn, sizeof fn);
    for (int b = 0, at = 0; g->fn && b < g->k->n_buf; b++)
        g->args[at++] = memory(g->k->buf[b].numel * 4);
    nnc_text_deinit(&text);
    nnc_graph_destroy(graph);
    nnc_free(bytes);
    nnc_sink_print(sink, stderr);
    return g->fn != NULL;
}

static nnc_call call_of(const shape *s, int threads)
{
    nnc_call c = {.groups = 1, .threads = threads};
    if (!s->side) {
        c.kind = CALL_matmul;
        c.src = nnc_type_make(DT_f32, 2, (int64_t[]){s->c, s->window});
        c.wei = nnc_type_make(DT_f32, 2, (int64_t[]){s->window, s->k});
        c.dst = nnc_type_make(DT_f32, 2, (int64_t[]){s->c, s->k});
        return c;
    }
    c.kind = CALL_conv;
    c.spatial = 2;
    c.has_bias = true;
    c.src = nnc_type_make(DT_f32, 4, (int64_t[]){1, s->c, s->side, s->side});
    c.dst = nnc_type_make(DT_f32, 4, (int64_t[]){1, s->k, results(s), results(s)});
    c.wei = nnc_type_make(DT_f32, 4, (int64_t[]){s->k, s->c, s->window, s->window});
    c.bias = nnc_type_make(DT_f32, 1, &s->k);
    nnc_type_channels_last(&c.src);
    nnc_type_channels_last(&c.dst);
    for (int d = 0; d < 2; d++) {
        c.kernel[d] = s->window;
        c.stride[d] = s->stride;
        c.dilation[d] = 1;
        c.pad_lo[d] = c.pad_hi[d] = s->pad;
    }
    c.post[c.n_post++] = (nnc_post){.kind = PO_relu};
    return c;
}

static bool call(side *l, const shape *s, const nnc_engine *e)
{
    nnc_call c[2] = {call_of(s, l->threads), {.kind = CALL_pack, .threads = l->threads}};
    nnc_plan p = {.call = c, .n_call = 2, .threads = l->threads};
    nnc_choice choice;
    void *h, *wei = memory(nnc_type_bytes(&c[0].wei));
    c[0].packed = true;
    if (e->choose(&c[0], &choice, NULL) != NNC_OK || !choice.ok)
        return false;
    c[0].packed = choice.packed_bytes > 0;
    c[0].packed_bytes = choice.packed_bytes;
    c[0].work_bytes = choice.workspace_bytes;
    if (c[0].packed) {
        void *packed = memory(choice.packed_bytes);
        if (e->load_call(&p, 1, &h, NULL) != NNC_OK ||
            e->run(h, (void *const[]){wei, packed}, NULL) != NNC_OK)
            return false;
        wei = packed;
    }
    l->engine = e;
    l->work = memory(choice.workspace_bytes);
    void **arg = l->args;
    *arg++ = memory(nnc_type_bytes(&c[0].src));
    *arg++ = wei;
    if (c[0].has_bias)
        *arg++ = memory(nnc_type_bytes(&c[0].bias));
    *arg = memory(nnc_type_bytes(&c[0].dst));
    return e->load_call(&p, 0, &l->handle, NULL) == NNC_OK;
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
        if (s->fn)
            nnc_par_run(s->threads, run_part, s);
        else if (s->engine->run(s->handle, s->args, s->work) != NNC_OK)
            exit(5);
    return (nnc_now_ns() - t) / times;
}

int main(int argc, char **argv)
{
    const char *why = "", *which = argc > 2 ? argv[2] : "";
    int threads = argc > 1 ? atoi(argv[1]) : 1, n = 0;
    const nnc_emitter *e = nnc_plugin("llvm", "nnc_emitter_llvm", &why);
    const nnc_engine *engine = nnc_plugin("onednn", "nnc_engine_onednn", &why);
    nnc_sink *sink = nnc_sink_create();
    nnc_target t;
    double sum = 0;
    if (!e || !engine || !sink || nnc_target_host(&t, threads, true, true, sink) != NNC_OK) {
        fprintf(stderr, "needs LLVM and oneDNN: %s\n", why);
        return 5;
    }
    printf("%d threads: GFLOP/s generated, oneDNN, ratio\n", threads);
    for (size_t i = 0; i < NNC_COUNT(shapes); i++) {
        nnc_arena a;
        const shape *s = &shapes[i];
        side own = {.threads = threads}, other = {.threads = threads};
        int64_t best[2] = {INT64_MAX, INT64_MAX}, begin = nnc_now_ns();
        if (!strstr(s->name, which))
            continue;
        nnc_arena_init(&a, 0);
        if (!generate(&own, s, e, &t, &a, sink) || !call(&other, s, engine)) {
            printf("%-28s failed\n", s->name);
            continue;
        }
        int times = flops(s) < 1e8 ? 5 : 1;
        for (int r = 0; r < LEAST_RUNS || (r < MOST_RUNS && nnc_now_ns() - begin < FOR_NS); r++) {
            best[0] = nnc_min64(best[0], once(&own, times));
            best[1] = nnc_min64(best[1], once(&other, times));
        }
        double ratio = (double)best[1] / (double)best[0];
        printf("%-28s %7.1f %7.1f  %5.1f %%\n", s->name, flops(s) / (double)best[0],
            flops(s) / (double)best[1], 100 * ratio);
        sum += ratio;
        n++;
        nnc_arena_deinit(&a);
    }
    printf("mean %.1f %% of %d\n", n ? 100 * sum / n : 0.0, n);
    nnc_target_deinit(&t);
    nnc_sink_destroy(sink);
    return 0;
}
