/* bench/estimates.c -- what generated kernels take on one thread, in cache, beside what schedule/estimate.c expects of them before they
 * are built: the passes decide by the latter. Reads graphs as `nnc compile --emit=graph` prints them, with or without --skip=fuse.
 * Those of contractions are offers' (cost/offer.c): 0 here. All take turns, and of each the least time counts.
 * usage: bench_estimates [--interp] FILE... */
#include "codegen/codegen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, ARGS = 128, MOST = 1024, BURST_NS = 300000 };

typedef struct subject {
    const char *name;
    nnc_kernel *k;
    nnc_object *object;
    nnc_interp *interp;
    nnc_kernel_fn fn;
    void *args[ARGS], *scratch;
    int n_arg;
    int64_t expected;
    double ns;
} subject;

typedef struct bench {
    nnc_target t;
    const nnc_emitter *e; /* NULL: interpreted */
    nnc_arena mem;
    nnc_sink *sink;
    subject s[MOST];
    int n;
} bench;

static bool fill(subject *s)
{
    for (int b = 0; b < s->k->n_buf; b++) {
        const nnc_kbuf *u = &s->k->buf[b];
        if (u->role == KB_tmp)
            continue;
        size_t bytes = (size_t)(u->numel * nnc_dtype_size(u->dtype));
        char *m = s->n_arg < ARGS ? nnc_aligned_alloc(64, bytes + 64) : NULL;
        if (!m)
            return false;
        memset(m, 0, bytes + 64);
        for (size_t i = 0; u->dtype == DT_f32 && i < bytes / 4; i++)
            ((float *)(void *)m)[i] = (float)((double)(i * 2654435761u >> 8 & 0xffff) / 32768 - 1);
        s->args[s->n_arg++] = m;
    }
    s->scratch = nnc_aligned_alloc(64, (size_t)nnc_kernel_scratch(s->k) + 64);
    return s->scratch != NULL;
}

/* As passes/expect.c does, before math/ makes functions cheaper. */
static int64_t expected_ns(bench *b, const nnc_node *n, const nnc_graph *g)
{
    nnc_kernel *k = nnc_kernel_build(g, n, &b->mem, b->sink);
    return k && nnc_kernel_arrange(k, &b->t, &b->mem) ? nnc_kernel_ns(k, &b->t, NULL, &b->mem) : 0;
}

static bool prepare(bench *b, subject *s)
{
    const nnc_kernel *k = s->k;
    char *bytes = NULL;
    size_t size = 0;
    const char *why = "";
    if (!b->e) {
        s->interp = nnc_interp_create(k);
        return s->interp && fill(s);
    }
    if (b->e->emit(&k, 1, &b->t, EMIT_object, &bytes, &size, b->sink) == NNC_OK)
        s->object = nnc_object_load(bytes, size, &why);
    void *fn = s->object ? nnc_object_symbol(s->object, k->name) : NULL;
    memcpy(&s->fn, &fn, sizeof fn);
    nnc_free(bytes);
    return s->fn && fill(s);
}

static void add_graph(bench *b, const nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node && b->n < MOST; i++) {
        const nnc_node *n = &g->node[i];
        if (nnc_op_class((nnc_op)n->op) == CL_leaf || nnc_is_view(g, n))
            continue;
        nnc_kernel *k = nnc_lower(g, n, &b->t, MATH_ulp2, &b->mem, b->sink);
        bool known = !k;
        for (int j = 0; j < b->n && k; j++)
            known = known || !strcmp(b->s[j].k->name, k->name);
        subject *s = &b->s[b->n];
        *s = (subject){
            .name = nnc_arena_strdup(&b->mem, n->origin ? n->origin : ""), .k = k, .ns = INFINITY};
        if (!known && prepare(b, s)) {
            s->expected = nnc_has_call(&b->t, g, n) || nnc_is_kernel_conv(&b->t, g, n, NULL)
                              ? 0
                              : expected_ns(b, n, g);
            b->n++;
        }
    }
}

/* Nanoseconds of a run in a burst of them. */
static double burst(const subject *s)
{
    int64_t t0 = 0, t = 0;
    int n = -1;
    for (; n < 1 || t - t0 < BURST_NS; n++) {
        if (s->fn)
            s->fn(s->args, 0, s->k->sched.domain, s->scratch);
        else
            nnc_interp_run(s->interp, s->args, 0, s->k->sched.domain, s->scratch);
        t = nnc_now_ns();
        t0 = n < 0 ? t : t0;
    }
    return (double)(t - t0) / n;
}

static void report(bench *b)
{
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < b->n; i++)
            b->s[i].ns = fmin(b->s[i].ns, burst(&b->s[i]));
    int near = 0;
    for (int i = 0; i < b->n; i++) {
        const subject *s = &b->s[i];
        double ratio = (double)s->expected / s->ns;
        near += ratio > 1 / 1.25 && ratio < 1.25;
        printf("%10.0f ns %10lld expected %6.2f  %-40s %s\n", s->ns, (long long)s->expected, ratio,
            s->k->name, s->name);
    }
    printf("%d kernels, %d expected within 25 %%\n", b->n, near);
}

int main(int argc, char **argv)
{
    static bench b;
    const char *why = "";
    bool interp = argc > 1 && !strcmp(argv[1], "--interp");
    b.sink = nnc_sink_create();
    b.e = interp ? NULL : nnc_plugin("llvm", "nnc_emitter_llvm", &why);
    nnc_arena_init(&b.mem, 0);
    if (!b.sink || (!b.e && !interp) || nnc_target_host(&b.t, 0, 1, !interp, b.sink) != NNC_OK) {
        fprintf(stderr, "no emitter or target: %s\n", why);
        return 5;
    }
    for (int i = 1 + interp; i < argc; i++) {
        char *text = NULL;
        size_t n;
        nnc_scan s;
        if (nnc_file_read(argv[i], INT32_MAX, &text, &n, b.sink) != NNC_OK)
            continue;
        nnc_scan_init(&s, argv[i], text, n);
        nnc_graph *g = nnc_graph_parse(&s, b.sink);
        if (g)
            add_graph(&b, g);
        nnc_graph_destroy(g);
        nnc_free(text);
    }
    nnc_sink_print(b.sink, stderr);
    report(&b);
    return 0;
}
