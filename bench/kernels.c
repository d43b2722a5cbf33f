/* bench/kernels.c -- generated kernels against the machine's copy bandwidth: nested sines, row
 * softmax. Prints GB/s (bytes read and written) and the share of a copy of the same bytes by a
 * kernel that only copies. usage: bench_kernels [threads] [log2 n] */
#include "codegen/codegen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INS = 64 };

typedef struct bench {
    nnc_kernel k;
    nnc_kbuf buf[3];
    nnc_kstage stage[3];
    nnc_kins ins[MAX_INS];
    nnc_kernel_fn fn;
    nnc_object *o;
    void *args[2];
} bench;

static int add(bench *b, nnc_kins ins)
{
    ins.maybe_nan = true;
    if (ins.op != KO_sop || ins.sop != SC_sin) {
        ins.lo = 1;
        ins.hi = 0;
    }
    b->ins[b->k.n_ins] = ins;
    return b->k.n_ins++;
}

/* Vectors of `width` elements along the axis, `units` of them in parallel. */
static nnc_kschedule schedule(int axis, int width, int64_t units)
{
    nnc_kschedule s = {.domain = units, .grain = 1};
    (void)nnc_sched_put(&s, KD_vector, axis, width);
    return s;
}

/* What nnc_kernel_ranges finds for sin: results in [-1, 1], the third and later in [-0.8415,
 * 0.8415] and below. */
static void sines(bench *b, int64_t n, int depth, bool stream)
{
    int64_t chunk = 16384;
    memset(b, 0, sizeof *b);
    b->k = (nnc_kernel){.name = "k_sines",
        .n_axis = 1,
        .n_outer = 1,
        .n_buf = 2,
        .buf = b->buf,
        .n_stage = 1,
        .stage = b->stage,
        .ins = b->ins};
    b->k.axis[0] = (nnc_kaxis){KA_outer, n, "i"};
    b->buf[0] = (nnc_kbuf){KB_in, DT_f32, n, "x"};
    b->buf[1] = (nnc_kbuf){KB_out, DT_f32, n, "y"};
    int v = add(b, (nnc_kins){.op = KO_load, .dtype = DT_f32, .at.k = {1}, .arg = {-1, -1, -1}});
    double most = 1;
    for (int d = 0; d < depth; d++) {
        v = add(b, (nnc_kins){.op = KO_sop,
                       .dtype = DT_f32,
                       .sop = SC_sin,
                       .arg = {v, -1, -1},
                       .lo = -most,
                       .hi = most,
                       .hint = d ? KH_bounded | KH_halfpi : 0});
        most = d ? most * 0.8415 < 0.5 ? 0.5 : 0.8415 : 0.8415;
        b->ins[v].lo = d ? -most : -1;
        b->ins[v].hi = d ? most : 1;
    }
    add(b, (nnc_kins){.op = KO_store, .dtype = DT_f32, .buf = 1, .at.k = {1}, .arg = {v, -1, -1}});
    b->stage[0] = (nnc_kstage){0, 0, b->k.n_ins, b->k.n_ins, b->k.n_ins};
    b->k.sched = schedule(0, 64, (n + chunk - 1) / chunk);
    (void)nnc_sched_put(&b->k.sched, KD_tile, 0, chunk);
    if (stream)
        (void)nnc_sched_put(&b->k.sched, KD_nontemporal, -1, 0);
}

static void softmax(bench *b, int64_t rows, int64_t cols, int width)
{
    memset(b, 0, sizeof *b);
    b->k = (nnc_kernel){.name = "k_softmax",
        .n_axis = 4,
        .n_outer = 1,
        .n_buf = 2,
        .buf = b->buf,
        .n_stage = 3,
        .stage = b->stage,
        .ins = b->ins};
    b->k.axis[0] = (nnc_kaxis){KA_outer, rows, "r"};
    b->k.axis[1] = b->k.axis[2] = (nnc_kaxis){KA_reduce, cols, "c"};
    b->k.axis[3] = (nnc_kaxis){KA_map, cols, "c"};
    b->buf[0] = (nnc_kbuf){KB_in, DT_f32, rows * cols, "x"};
    b->buf[1] = (nnc_kbuf){KB_out, DT_f32, rows * cols, "y"};
    nnc_affine at[3] = {{.k = {cols, 1}}, {.k = {cols, 0, 1}}, {.k = {cols, 0, 0, 1}}};
    int v = add(b, (nnc_kins){.op = KO_load, .dtype = DT_f32, .at = at[0], .arg = {-1, -1, -1}});
    int m = add(b, (nnc_kins){.op = KO_reduce, .dtype = DT_f32, .sop = KR_max, .arg = {v, -1, -1}});
    b->stage[0] = (nnc_kstage){2, 0, b->k.n_ins, b->k.n_ins, b->k.n_ins};
    int first = b->k.n_ins;
    v = add(b, (nnc_kins){.op = KO_load, .dtype = DT_f32, .at = at[1], .arg = {-1, -1, -1}});
    v = add(b, (nnc_kins){.op = KO_sop, .dtype = DT_f32, .sop = SC_sub, .arg = {v, m, -1}});
    v = add(b, (nnc_kins){.op = KO_sop, .dtype = DT_f32, .sop = SC_exp, .arg = {v, -1, -1}});
    add(b, (nnc_kins){.op = KO_store, .dtype = DT_f32, .buf = 1, .at = at[1], .arg = {v, -1, -1}});
    int s = add(b, (nnc_kins){.op = KO_reduce, .dtype = DT_f32, .arg = {v, -1, -1}});
    int post = b->k.n_ins;
    s = add(b, (nnc_kins){.op = KO_sop, .dtype = DT_f32, .sop = SC_recip, .arg = {s, -1, -1}});
    b->stage[1] = (nnc_kstage){4, first, post, post, b->k.n_ins};
    first = b->k.n_ins;
    v = add(
        b, (nnc_kins){.op = KO_load, .dtype = DT_f32, .buf = 1, .at = at[2], .arg = {-1, -1, -1}});
    v = add(b, (nnc_kins){.op = KO_sop, .dtype = DT_f32, .sop = SC_mul, .arg = {v, s, -1}});
    add(b, (nnc_kins){.op = KO_store, .dtype = DT_f32, .buf = 1, .at = at[2], .arg = {v, -1, -1}});
    b->stage[2] = (nnc_kstage){8, first, b->k.n_ins, b->k.n_ins, b->k.n_ins};
    b->k.sched = schedule(3, width, rows);
}

static void part(void *ctx, int p, int parts)
{
    bench *b = ctx;
    int64_t begin, end;
    nnc_par_range(b->k.sched.domain, 1, p, parts, &begin, &end);
    b->fn(b->args, begin, end, NULL);
}

/* Best of some runs, seconds; 0 when it could not be compiled. */
static double seconds(bench *b, const nnc_emitter *e, const nnc_target *t, void *x, void *y)
{
    const nnc_kernel *k = &b->k;
    nnc_sink *sink = nnc_sink_create();
    const char *why = "";
    char *bytes = NULL;
    size_t n = 0;
    if (getenv("BENCH_ASM") && e->emit(&k, 1, t, EMIT_asm, &bytes, &n, sink) == NNC_OK)
        puts(bytes);
    nnc_free(bytes);
    int64_t t0 = nnc_now_ns();
    nnc_status s = e->emit(&k, 1, t, EMIT_object, &bytes, &n, sink);
    int64_t t1 = nnc_now_ns();
    b->o = s == NNC_OK ? nnc_object_load(bytes, n, &why) : NULL;
    void *fn = b->o ? nnc_object_symbol(b->o, k->name) : NULL;
    memcpy(&b->fn, &fn, sizeof fn);
    nnc_sink_print(sink, stderr);
    nnc_sink_destroy(sink);
    nnc_free(bytes);
    if (!fn) {
        fprintf(stderr, "%s: %s\n", k->name, why);
        return 0;
    }
    b->args[0] = x;
    b->args[1] = y;
    double best = 1e30;
    for (int i = 0; i < 15; i++) {
        int64_t a = nnc_now_ns();
        nnc_par_run(t->threads, part, b);
        double d = (double)(nnc_now_ns() - a) * 1e-9;
        best = d < best ? d : best;
    }
    printf("  compile %.1f ms;", (double)(t1 - t0) * 1e-6);
    nnc_object_unload(b->o);
    return best;
}

int main(int argc, char **argv)
{
    static bench b;
    nnc_target t;
    const char *why = "";
    const nnc_emitter *e = nnc_plugin("llvm", "nnc_emitter_llvm", &why);
    nnc_sink *sink = nnc_sink_create();
    int threads = argc > 1 ? atoi(argv[1]) : 0, lg = argc > 2 ? atoi(argv[2]) : 26;
    if (!e || !sink || nnc_target_host(&t, 0, threads, true, sink) != NNC_OK) {
        fprintf(stderr, "no emitter or target: %s\n", why);
        return 5;
    }
    nnc_team *team;
    if (nnc_team_create(t.threads, &team, sink) != NNC_OK)
        return 5;
    nnc_team_enter(team); /* as a stream of the executor does */
    int64_t n = INT64_C(1) << lg;
    float *x = nnc_aligned_alloc(64, (size_t)n * 4), *y = nnc_aligned_alloc(64, (size_t)n * 4);
    if (!x || !y)
        return 4;
    nnc_rng_fill(1, 0, (size_t)n, 10, x);
    memset(y, 0, (size_t)n * 4);
    static const int depth[] = {0, 1, 4, 16};
    bool stream = n * 8 > t.l3_bytes && n * 8 > (int64_t)1 << 25;
    double copy = 0;
    for (size_t i = 0; i < NNC_COUNT(depth); i++) {
        sines(&b, n, depth[i], stream);
        double s = seconds(&b, e, &t, x, y);
        if (!depth[i])
            copy = s;
        printf(" sin depth %2d, 2^%d, %d threads: %.3f ms, %.1f GB/s, %.0f %% of copy\n", depth[i],
            lg, t.threads, s * 1e3, (double)n * 8 / s * 1e-9, copy / s * 100);
    }
    for (int w = 16; w <= 64 && n >= 4096 * 1000; w *= 2) {
        softmax(&b, 4096, 1000, w);
        double s = seconds(&b, e, &t, x, y);
        printf(" softmax 4096x1000, vectors of %d: %.3f ms, %.1f GB/s\n", w, s * 1e3,
            4096e3 * 8 / s * 1e-9);
    }
    nnc_team_leave(team);
    nnc_team_destroy(team);
    nnc_free(x);
    nnc_free(y);
    nnc_target_deinit(&t);
    nnc_sink_destroy(sink);
    return 0;
}
