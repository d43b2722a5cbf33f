/* bench/calls.c -- how fast oneDNN's calls run: VGG-16's layers at batch 1 and 8 in GFLOP/s, and the linear layers in GB/s of weights
 * beside the machine's read bandwidth measured in the same run; what a choice, a load and the handover to a stream cost. Not a test.
 *
 *   bench_calls [threads] [batch]... (default: all CPUs, batches 1 and 8) */
#include "runtime/runtime.h"
#include <stdlib.h>
#include <string.h>

typedef struct layer {
    const char *name;
    int64_t c, size, k;
} layer;

static const layer convs[] = {{"conv1_1 3-224-64", 3, 224, 64}, {"conv1_2 64-224-64", 64, 224, 64},
    {"conv2_1 64-112-128", 64, 112, 128}, {"conv2_2 128-112-128", 128, 112, 128},
    {"conv3_1 128-56-256", 128, 56, 256}, {"conv3_2 256-56-256", 256, 56, 256},
    {"conv4_1 256-28-512", 256, 28, 512}, {"conv4_2 512-28-512", 512, 28, 512},
    {"conv5 512-14-512", 512, 14, 512}};
static const layer linears[] = {{"fc6 25088-4096", 25088, 0, 4096},
    {"fc7 4096-4096", 4096, 0, 4096}, {"fc8 4096-1000", 4096, 0, 1000}};

static void *fill(const nnc_type *t)
{
    int64_t n = nnc_type_numel(t);
    float *p = nnc_aligned_alloc(64, (size_t)nnc_align_up(nnc_type_bytes(t), 64));
    if (!p)
        exit(4);
    nnc_rng_fill(1, 0, (size_t)n, 1.0f, p);
    return p;
}

/* Best of some runs, ns; -1 when the engine declines. */
static int64_t time_call(
    const nnc_engine *e, nnc_call c, nnc_choice *choice, int64_t *choose_ns, int64_t *load_ns)
{
    nnc_call calls[2] = {c, {.kind = CALL_pack, .pack_for = 0, .threads = c.threads}};
    nnc_plan p = {.call = calls, .n_call = 2};
    calls[0].packed = true;
    int64_t t0 = nnc_now_ns(), best = INT64_MAX;
    if (e->choose(&calls[0], choice, NULL) != NNC_OK || !choice->ok)
        return -1;
    *choose_ns = nnc_now_ns() - t0;
    calls[0].packed = choice->packed_bytes > 0;
    calls[0].packed_bytes = choice->packed_bytes;
    calls[0].work_bytes = choice->workspace_bytes;
    void *src = fill(&c.src), *wei = fill(&c.wei), *bias = fill(&c.bias), *dst = fill(&c.dst), *h;
    void *work = nnc_aligned_alloc(64, (size_t)nnc_align_up(choice->workspace_bytes + 64, 64));
    if (calls[0].packed) {
        void *packed = nnc_aligned_alloc(64, (size_t)nnc_align_up(choice->packed_bytes, 64));
        if (e->load_call(&(nnc_load){.plan = &p, .item = 1}, &h, NULL) != NNC_OK ||
            e->run(h, (void *const[]){wei, packed}, NULL) != NNC_OK)
            return -1;
        e->unload(h);
        nnc_free(wei);
        wei = packed;
    }
    t0 = nnc_now_ns();
    if (e->load_call(&(nnc_load){.plan = &p, .item = 0}, &h, NULL) != NNC_OK)
        return -1;
    *load_ns = nnc_now_ns() - t0;
    int64_t begin = nnc_now_ns();
    for (int i = 0; i < 3 || (i < 50 && nnc_now_ns() - begin < 300000000); i++) {
        t0 = nnc_now_ns();
        if (e->run(h, (void *const[]){src, wei, bias, dst}, work) != NNC_OK)
            return -1;
        int64_t t = nnc_now_ns() - t0;
        best = t < best ? t : best;
    }
    e->unload(h);
    nnc_free(src);
    nnc_free(wei);
    nnc_free(bias);
    nnc_free(dst);
    nnc_free(work);
    return best;
}

static nnc_call conv(const layer *l, int64_t batch, int threads)
{
    nnc_call c = {
        .kind = CALL_conv, .spatial = 2, .has_bias = true, .groups = 1, .threads = threads};
    c.src = nnc_type_make(DT_f32, 4, (int64_t[]){batch, l->c, l->size, l->size});
    c.dst = nnc_type_make(DT_f32, 4, (int64_t[]){batch, l->k, l->size, l->size});
    c.wei = nnc_type_make(DT_f32, 4, (int64_t[]){l->k, l->c, 3, 3});
    c.bias = nnc_type_make(DT_f32, 1, &l->k);
    nnc_type_channels_last(&c.src);
    nnc_type_channels_last(&c.dst);
    for (int d = 0; d < 2; d++) {
        c.kernel[d] = 3;
        c.stride[d] = c.dilation[d] = c.pad_lo[d] = c.pad_hi[d] = 1;
    }
    c.post[c.n_post++] = (nnc_post){.kind = PO_relu};
    return c;
}

static nnc_call linear(const layer *l, int64_t batch, int threads)
{
    nnc_call c = {.kind = CALL_matmul, .has_bias = true, .trans_b = true, .threads = threads};
    c.src = nnc_type_make(DT_f32, 2, (int64_t[]){batch, l->c});
    c.wei = nnc_type_make(DT_f32, 2, (int64_t[]){l->k, l->c});
    c.dst = nnc_type_make(DT_f32, 2, (int64_t[]){batch, l->k});
    c.bias = nnc_type_make(DT_f32, 1, &l->k);
    c.post[c.n_post++] = (nnc_post){.kind = PO_relu};
    return c;
}

static void row(const nnc_engine *e, const layer *l, nnc_call c, int64_t batch)
{
    nnc_choice choice;
    int64_t choose_ns = 0, load_ns = 0, ns = time_call(e, c, &choice, &choose_ns, &load_ns);
    double flops = 2.0 * (double)nnc_type_numel(&c.wei) * (double)batch *
                   (double)(l->size ? l->size * l->size : 1);
    if (ns < 0)
        printf(
            "%5lld  %-20s %-8s declines: %s\n", (long long)batch, l->name, e->name, choice.reason);
    else
        printf("%5lld  %-20s %-8s %9.3f ms %8.1f GFLOP/s %7.1f GB/s weights  choose %4lld us load "
               "%5lld us  %s\n",
            (long long)batch, l->name, e->name, (double)ns / 1e6, flops / (double)ns,
            (double)nnc_type_bytes(&c.wei) / (double)ns, (long long)choose_ns / 1000,
            (long long)load_ns / 1000, choice.reason);
    fflush(stdout);
}

/* ---- the machine ----------------------------------------------------------------------------- */

typedef struct reading {
    const uint64_t *p;
    int64_t n;
    _Atomic uint64_t sum;
} reading;

static void read_part(void *ctx, int part, int parts)
{
    reading *r = ctx;
    int64_t i, end;
    uint64_t s[8] = {0};
    nnc_par_range(r->n, 512, part, parts, &i, &end);
    for (; i + 8 <= end; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += r->p[i + k];
    r->sum += s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static void read_bandwidth(int threads)
{
    nnc_type t = nnc_type_make(DT_f32, 1, (int64_t[]){(int64_t)25088 * 4096});
    reading r = {.p = fill(&t), .n = nnc_type_bytes(&t) / 8};
    int64_t best = INT64_MAX;
    for (int i = 0; i < 8; i++) {
        int64_t t0 = nnc_now_ns();
        nnc_par_run(threads, read_part, &r);
        best = nnc_now_ns() - t0 < best ? nnc_now_ns() - t0 : best;
    }
    printf("reading 411 MB with %d threads: %.1f GB/s\n", threads,
        (double)nnc_type_bytes(&t) / (double)best);
    nnc_free((void *)r.p);
}

static nnc_status nothing(void *h, void *const *args, void *work)
{
    (void)h;
    (void)args;
    (void)work;
    return NNC_OK;
}

static void spin_part(void *ctx, int part, int parts)
{
    (void)ctx;
    (void)part;
    (void)parts;
}

static nnc_status region(void *h, void *const *args, void *work)
{
    (void)args;
    (void)work;
    nnc_par_run(*(int *)h, spin_part, NULL);
    return NNC_OK;
}

/* Per work: many in a row, and one at a time with a sync each. */
static void handover(int threads)
{
    nnc_device *d;
    nnc_stream *s;
    if (nnc_device_cpu.open(0, &d, NULL) != NNC_OK ||
        nnc_device_cpu.stream_create(d, threads, true, &s, NULL) != NNC_OK)
        return;
    for (int kind = 0; kind < 2; kind++)
        for (int each = 0; each < 2; each++) {
            const int n = 20000;
            int64_t t0 = nnc_now_ns();
            for (int i = 0; i < n; i++) {
                (void)nnc_device_cpu.launch(
                    s, &(nnc_work){.run = kind ? region : nothing, .handle = &threads});
                if (each)
                    (void)nnc_device_cpu.sync(s, NULL);
            }
            (void)nnc_device_cpu.sync(s, NULL);
            printf("stream, %s work, %s: %.2f us\n", kind ? "parallel" : "empty",
                each ? "launch + sync" : "launches in a row",
                (double)(nnc_now_ns() - t0) / n / 1e3);
        }
    nnc_device_cpu.stream_destroy(s);
    nnc_device_cpu.close(d);
}

int main(int argc, char **argv)
{
    const char *why;
    int threads = argc > 1 ? atoi(argv[1]) : nnc_cpu_count();
    nnc_team *team;
    handover(threads);
    if (nnc_team_create(threads, &team, NULL) != NNC_OK)
        return 5;
    nnc_team_enter(team); /* as a stream of the executor does */
    printf("%d threads\n", threads);
    read_bandwidth(threads);
    const nnc_engine *library = nnc_plugin("onednn", "nnc_engine_onednn", &why);
    const int64_t batches[] = {1, 8};
    int n = argc > 2 ? argc - 2 : 2;
    for (int b = 0; library && b < n; b++) {
        int64_t batch = argc > 2 ? atoll(argv[2 + b]) : batches[b];
        for (size_t i = 0; i < NNC_COUNT(convs); i++)
            row(library, &convs[i], conv(&convs[i], batch, threads), batch);
        for (size_t i = 0; i < NNC_COUNT(linears); i++)
            row(library, &linears[i], linear(&linears[i], batch, threads), batch);
    }
    nnc_team_leave(team);
    nnc_team_destroy(team);
    return 0;
}
