/* bench/nests.c -- generated kernels of one op against a copy of the same number of bytes, on one
 * thread in turns, by the thread's own clock. So the share of the copy's bandwidth holds on a busy
 * machine as well. Cases: the table below. usage: bench_nests [part of a case's name] */
#include "codegen/codegen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 12 };

typedef struct program {
    nnc_arena arena;
    nnc_graph *g;
    nnc_kernel *k;
    nnc_object *o;
    nnc_kernel_fn fn;
    void *args[16], *scratch;
    int n_arg;
    int64_t bytes;
    double lower_ms, emit_ms;
} program;

/* Four nested sines from %from to %to; a kernel of such. */
#define SIN4(t, from, to) \
    "%" t "1 = sin %" from "\n%" t "2 = sin %" t "1\n%" t "3 = sin %" t "2\n%" to " = sin %" t "3" \
    "\n"
#define NESTED(body, last) \
    "%x = input : f32[67108864]\n%y = fused %x {\n%i = input : f32[67108864]\n" body \
    "return %" last " }"

static const char *const cases[][2] = {
    {"nchw_to_nhwc", "%x = input : f32[8,64,112,112]\n%y = relayout %x {order=[0,2,3,1]} : "
                     "f32[8,64,112,112]{0,2,3,1}"},
    {"nhwc_to_nchw", "%x = input : f32[8,64,112,112]{0,2,3,1}\n%y = relayout %x "
                     "{order=[0,1,2,3]} : f32[8,64,112,112]"},
    {"nchw_to_nhwc_3", "%x = input : f32[64,3,224,224]\n%y = relayout %x {order=[0,2,3,1]} : "
                       "f32[64,3,224,224]{0,2,3,1}"},
    {"transpose", "%x = input : f32[4096,4096]\n%y = transpose %x {perm=[1,0]}"},
    {"transpose_odd", "%x = input : f32[3001,4099]\n%y = transpose %x {perm=[1,0]}"},
    {"transpose_f16", "%x = input : f16[4096,4096]\n%y = transpose %x {perm=[1,0]}"},
    {"transpose_heads", "%x = input : f32[8,512,16,64]\n%y = transpose %x {perm=[0,2,3,1]}"},
    {"maxpool_nchw", "%x = input : f32[64,3,224,224]\n%y = maxpool %x {kernel=[2,2], "
                     "strides=[2,2]}"},
    {"maxpool_nchw_3", "%x = input : f32[16,64,112,112]\n%y = maxpool %x {kernel=[3,3], "
                       "strides=[2,2], pads=[1,1,1,1]}"},
    {"avgpool_nchw_1", "%x = input : f32[16,64,56,56]\n%y = avgpool %x {kernel=[3,3], "
                       "strides=[1,1], pads=[1,1,1,1]}"},
    {"maxpool_nhwc", "%x = input : f32[8,64,224,224]{0,2,3,1}\n%y = maxpool %x {kernel=[2,2], "
                     "strides=[2,2]}"},
    {"maxpool_nhwc_512", "%x = input : f32[8,512,28,28]{0,2,3,1}\n%y = maxpool %x {kernel=[2,2], "
                         "strides=[2,2]}"},
    {"avgpool_global", "%x = input : f32[64,512,7,7]\n%y = reduce_mean %x {axes=[2,3]}"},
    {"softmax", "%x = input : f32[4096,1000]\n%y = softmax %x {axis=1}"},
    {"layernorm", "%x = input : f32[4096,1024]\n%g = input : f32[1024]\n%b = input : f32[1024]\n"
                  "%y = layernorm %x, %g, %b"},
    {"softmax_columns", "%x = input : f32[16,1000,256]\n%y = softmax %x {axis=1}"},
    {"reduce_rows", "%x = input : f32[4096,4096]\n%y = reduce_sum %x {axes=[1]}"},
    {"reduce_columns", "%x = input : f32[4096,4096]\n%y = reduce_sum %x {axes=[0]}"},
    {"deinterleave", "%x = input : f32[64,65536]\n%y = slice %x {axes=[1], starts=[0], "
                     "ends=[65536], steps=[2]}"},
    {"gelu", "%x = input : f32[16777216]\n%y = gelu %x"},
    {"sigmoid", "%x = input : f32[16777216]\n%y = sigmoid %x"},
    {"sin_1", "%x = input : f32[67108864]\n%y = sin %x"},
    {"sin_4", NESTED(SIN4("a", "i", "d"), "d")},
    {"sin_16",
        NESTED(
            SIN4("a", "i", "d") SIN4("e", "d", "h") SIN4("j", "h", "m") SIN4("n", "m", "q"), "q")},
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static const nnc_node *op_of(const nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) != CL_leaf)
            return &g->node[i];
    return NULL;
}

static bool buffers(program *p)
{
    for (int b = 0; b < p->k->n_buf && p->n_arg < 16; b++) {
        const nnc_kbuf *u = &p->k->buf[b];
        size_t bytes = (size_t)(u->numel * nnc_dtype_size(u->dtype));
        if (u->role == KB_tmp)
            continue;
        p->bytes += (int64_t)bytes;
        void *m = nnc_aligned_alloc(64, bytes + 64);
        if (!m)
            return false;
        memset(m, 0x3c, bytes);
        p->args[p->n_arg++] = m;
    }
    p->scratch = nnc_aligned_alloc(64, (size_t)p->k->scratch_bytes + 64);
    return p->scratch != NULL;
}

static bool make(program *p, const char *text, const nnc_emitter *e, const nnc_target *t)
{
    nnc_sink *sink = nnc_sink_create();
    nnc_scan s;
    const char *why = "";
    char *bytes = NULL;
    size_t n = 0;
    memset(p, 0, sizeof *p);
    nnc_arena_init(&p->arena, 0);
    nnc_scan_init(&s, "graph", text, strlen(text));
    p->g = nnc_graph_parse(&s, sink);
    double t0 = now_ms();
    p->k = p->g && op_of(p->g)
               ? nnc_lower(p->g, op_of(p->g), t, getenv("BENCH_EXACT") ? MATH_exact : MATH_ulp2,
                     &p->arena, sink)
               : NULL;
    double t1 = now_ms();
    const nnc_kernel *k = p->k;
    if (k && getenv("BENCH_KERNEL")) {
        nnc_text u = {0};
        nnc_kernel_print(&u, k);
        puts(nnc_text_str(&u));
        nnc_text_deinit(&u);
    }
    if (k && getenv("BENCH_ASM") && e->emit(&k, 1, t, EMIT_asm, &bytes, &n, sink) == NNC_OK)
        puts(bytes);
    nnc_free(bytes);
    bytes = NULL;
    double t2 = now_ms();
    if (k && e->emit(&k, 1, t, EMIT_object, &bytes, &n, sink) == NNC_OK)
        p->o = nnc_object_load(bytes, n, &why);
    p->lower_ms = t1 - t0;
    p->emit_ms = now_ms() - t2;
    void *fn = p->o ? nnc_object_symbol(p->o, k->name) : NULL;
    memcpy(&p->fn, &fn, sizeof fn);
    nnc_free(bytes);
    nnc_sink_print(sink, stderr);
    nnc_sink_destroy(sink);
    return p->fn && buffers(p);
}

static void drop(program *p)
{
    for (int i = 0; i < p->n_arg; i++)
        nnc_free(p->args[i]);
    nnc_free(p->scratch);
    nnc_object_unload(p->o);
    nnc_graph_destroy(p->g);
    nnc_arena_deinit(&p->arena);
}

static double once(const program *p)
{
    double t = now_ms();
    p->fn(p->args, 0, p->k->sched.domain, p->scratch);
    return now_ms() - t;
}

static void run(const char *name, const char *text, const nnc_emitter *e, const nnc_target *t)
{
    program p, c;
    char copy[200];
    nnc_text u = {0};
    nnc_printf(&u, "graph @g {\n%s\nreturn %%y }", text);
    if (!make(&p, nnc_text_str(&u), e, t)) {
        printf("%-18s failed\n", name);
    } else {
        snprintf(copy, sizeof copy,
            "graph @c {\n%%x = input : f32[%lld]\n%%y = relu %%x\nreturn %%y }",
            (long long)(p.bytes / 8));
        double a = 1e30, b = 1e30;
        if (make(&c, copy, e, t))
            for (int i = 0; i < ROUNDS; i++) {
                a = fmin(a, once(&p));
                b = fmin(b, once(&c));
            }
        printf("%-18s %8.3f ms  %6.1f GB/s  %4.0f %% of copy   lower %.2f ms, emit %.1f ms, %d "
               "units\n",
            name, a, (double)p.bytes / a * 1e-6, b / a * 100, p.lower_ms, p.emit_ms,
            (int)p.k->sched.domain);
        drop(&c);
    }
    drop(&p);
    nnc_text_deinit(&u);
}

int main(int argc, char **argv)
{
    nnc_target t;
    const char *why = "", *which = argc > 1 ? argv[1] : "";
    const nnc_emitter *e = nnc_plugin("llvm", "nnc_emitter_llvm", &why);
    nnc_sink *sink = nnc_sink_create();
    if (!e || !sink || nnc_target_host(&t, 0, 1, true, sink) != NNC_OK) {
        fprintf(stderr, "no emitter or target: %s\n", why);
        return 5;
    }
    if (getenv("BENCH_L3")) /* MiB: a smaller one makes kernels stream */
        t.l3_bytes = (int64_t)atoi(getenv("BENCH_L3")) << 20;
    for (size_t i = 0; i < NNC_COUNT(cases); i++)
        if (strstr(cases[i][0], which))
            run(cases[i][0], cases[i][1], e, &t);
    nnc_target_deinit(&t);
    nnc_sink_destroy(sink);
    return 0;
}
