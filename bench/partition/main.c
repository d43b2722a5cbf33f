/* bench/partition/main.c -- predicted iteration times of GPT models beside published ones.
 *
 * Hardware files, the simulator's classes of ops and gpt.c's kernels are all that predictions are made of; no published iteration time
 * was fitted to. Degrees are the published ones; micro-batches and chunks where they were not published are those that the search finds
 * best. Baselines: a fixed share of the GPU's peak; the products at the simulator's efficiency with the pipeline's bubble; the same
 * prediction without communication.
 * usage: bench_partition [--vtrain FILE]...   ground_truth_single.csv and ground_truth_multi.csv of github.com/VIA-Research/vTrain */
#include "gpt.h"
#include "strategy/strategy.h"
#include "tables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 2000,
    LARGE_MS = 4
}; /* below that, the host's launches of a framework without graphs bound the time */

typedef struct set {
    const char *title, *hardware;
    const char *edit
        [3]; /* of the file's text: anchor, from, to: the first `from` after the anchor; NULL: none */
    gpt model; /* but for the sizes */
    bool recompute, serial, interleaved;
    unsigned zeros;
    double mfu; /* of the first baseline */
} set;

typedef struct result {
    double published, estimated, simulated, fixed, bubble, silent;
    double layer_ms; /* of the GPU, a layer's passes of a micro-batch */
} result;

/* ---- machines --------------------------------------------------------------------------------------------- */

/* The hardware file with as many nodes as the devices need, and its edit. */
static nnc_cluster *load(const set *s, int devices, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) text = {0};
    nnc_map map;
    if (nnc_map_open(&map, s->hardware, sink))
        return NULL;
    const char *at = (const char *)map.data, *end = at + map.n;
    static const char nodes[] = "\"nodes\": ";
    const char *here = memmem(at, map.n, nodes, sizeof nodes - 1);
    const char *number = here ? here + sizeof nodes - 1 : end;
    nnc_printf(&text, "%.*s%d", (int)(number - at), at, (devices + 7) / 8);
    at = number + strspn(number, "0123456789");
    if (s->edit[0]) {
        const char *there = memmem(at, (size_t)(end - at), s->edit[0], strlen(s->edit[0]));
        const char *from =
            there ? memmem(there, (size_t)(end - there), s->edit[1], strlen(s->edit[1])) : NULL;
        if (!from) {
            fprintf(stderr, "%s: no %s after %s\n", s->hardware, s->edit[1], s->edit[0]);
            exit(1);
        }
        nnc_printf(&text, "%.*s%s", (int)(from - at), at, s->edit[2]);
        at = from + strlen(s->edit[1]);
    }
    nnc_printf(&text, "%.*s", (int)(end - at), at);
    nnc_map_close(&map);
    return nnc_cluster_parse(s->hardware, nnc_text_str(&text), strlen(nnc_text_str(&text)), sink);
}

/* ---- one row ---------------------------------------------------------------------------------------------- */

static int64_t no_send(const void *ctx, int src, int dst, int beside, int64_t bytes)
{
    (void)ctx, (void)src, (void)dst, (void)beside, (void)bytes;
    return 0;
}

static int64_t no_collective(const void *ctx, nnc_search_collective kind, int first, int stride,
    int n, int beside, int64_t bytes)
{
    (void)ctx, (void)kind, (void)first, (void)stride, (void)n, (void)beside, (void)bytes;
    return 0;
}

static nnc_status make_costs(
    rows *r, const gpt *g, const published *row, const auto_links *l, nnc_search_problem *p)
{
    static const int sizes[] = {1, 2, 4, 8, 16, 32};
    const int n = row->micro ? 1 : (int)NNC_COUNT(sizes);
    nnc_search_costs *costs = ARENA_NEW(r->a, nnc_search_costs, n);
    NNC_NEED(costs, r->sink);
    for (int i = 0; i < n; i++)
        NNC_TRY(gpt_costs(g, nnc_cluster_kind_of(r->t->cluster, 0), l, row->tensor,
            row->micro ? row->micro : sizes[i], r->a, &costs[i], r->sink));
    p->costs = costs;
    p->n_costs = n;
    return NNC_OK;
}

static double seconds(const set *s, const gpt *g, const published *row)
{
    return row->seconds > 0
               ? row->seconds
               : gpt_flops(g, row->batch, s->recompute) / (row->tflops * 1e12 * row->gpus);
}

static nnc_status baselines(const set *s, const gpt *g, const published *row,
    const nnc_search_problem *p, const nnc_combination *c, rows *r, result *out)
{
    const double peak = (double)nnc_cluster_kind_of(r->t->cluster, 0)->flops[g->dtype] * row->gpus;
    out->fixed = gpt_flops(g, row->batch, s->recompute) / (peak * s->mfu);
    out->bubble = gpt_flops(g, row->batch, s->recompute) / (peak * 0.75) *
                  (c->micro + (c->pipeline - 1.0) / c->chunks) / c->micro;
    nnc_search_problem silent = *p;
    nnc_search_costs *costs = ARENA_NEW(r->a, nnc_search_costs, p->n_costs);
    nnc_search_result x;
    NNC_NEED(costs, r->sink);
    for (int i = 0; i < p->n_costs; i++) {
        costs[i] = p->costs[i];
        costs[i].forward_comm = costs[i].backward_comm = NULL;
    }
    silent.costs = costs;
    silent.links = (nnc_search_links){no_send, no_collective, NULL};
    NNC_TRY(nnc_search_evaluate(&silent, c, r->a, &x, r->sink));
    out->silent = (double)x.ns * 1e-9;
    return NNC_OK;
}

static nnc_search_problem make_problem(
    const set *s, const published *row, const nnc_cluster *c, const auto_links *l)
{
    return (nnc_search_problem){.n_layer = row->layers,
        .devices = row->gpus,
        .samples = row->batch,
        .links = auto_search_links(l),
        .capacity = nnc_cluster_usable_bytes(c, 0),
        .bucket_bytes = 100 << 20,
        .slowdown = (int)lround(1000 * nnc_cluster_kind_of(c, 0)->overlap),
        .serial = s->serial,
        .max_chunks = s->interleaved ? 16 : 1,
        .even = true};
}

/* As the run was published. */
typedef struct wanted {
    const set *s;
    const published *row;
} wanted;

static bool takes(const void *ctx, const nnc_combination *c)
{
    const wanted *w = ctx;
    return c->tensor == w->row->tensor && c->pipeline == w->row->pipeline &&
           c->data == w->row->gpus / w->row->tensor / w->row->pipeline &&
           (c->schedule == PIPE_1f1b || c->schedule == PIPE_interleaved) &&
           w->s->zeros >> c->zero & 1 && c->recompute == w->s->recompute &&
           (c->data_first || c->data == 1 || c->pipeline == 1);
}

static void print_row(
    const published *row, const nnc_search_result *x, const result *out, bool fits)
{
    const int64_t part[] = {x->compute, x->tensor, x->bubble, x->send, x->data, x->optimizer};
    static const char *const name[] = {"compute", "tensor", "bubble", "sends", "data", "update"};
    printf("  %-6s t %2d p %2d d %2d  m %3d of %2d, %d chunk%s %9.3f s  %9.3f %+6.1f %%  %9.3f "
           "%+6.1f %%  ",
        row->name, row->tensor, row->pipeline, x->c.data, x->c.micro, x->c.size, x->c.chunks,
        x->c.chunks > 1 ? "s" : " ", out->published, out->estimated,
        100 * (out->estimated / out->published - 1), out->simulated,
        100 * (out->simulated / out->published - 1));
    for (size_t k = 0; k < NNC_COUNT(part); k++)
        printf(" %s %4.1f%s", name[k], 100.0 * (double)part[k] / (double)x->ns, k ? "" : " %");
    printf("%s\n", fits ? "" : "  (ledger exceeds the memory)");
}

static nnc_status predict_on(const set *s, const published *row, const nnc_cluster *c, int sequence,
    bool detailed, result *out, bool *fits, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    gpt g = s->model;
    nnc_partition_table t = {
        .cluster = c, .target = nnc_cluster_target(c, 0), .devices = row->gpus};
    const nnc_flat_links flat = {1, 1};
    rows r = {.t = &t, .n = row->gpus, .a = &a, .sink = sink, .flat = &flat};
    g.hidden = row->hidden;
    g.layers = row->layers;
    g.heads = row->heads;
    g.sequence = sequence;
    auto_links *l = auto_links_make(&r, 1);
    bool *segment = ARENA_NEW(&a, bool, row->layers);
    NNC_NEED(l && segment, sink);
    memset(segment, 1, (size_t)row->layers * sizeof *segment);
    nnc_search_problem p = make_problem(s, row, c, l);
    const wanted w = {s, row};
    p.segment = segment;
    p.takes = takes;
    p.takes_ctx = &w;
    nnc_search_found found;
    int64_t ns = 0;
    NNC_TRY(make_costs(&r, &g, row, l, &p));
    NNC_TRY(nnc_search(&p, 1, &a, &found, sink));
    if (!found.n) { /* the ledger is larger than the published run's memory was */
        *fits = false;
        p.capacity = INT64_C(1) << 50;
        NNC_TRY(nnc_search(&p, 1, &a, &found, sink));
    }
    if (!found.n)
        return nnc_fail0(sink, NNC_E_MODEL, "%s: nothing to evaluate", row->name);
    const nnc_search_result *x = &found.best[0];
    NNC_TRY(auto_clock(&r, &p, x, false, &ns));
    out->published = seconds(s, &g, row);
    out->estimated = (double)x->ns * 1e-9;
    out->layer_ms = (double)x->compute * 1e-6 / x->c.micro / row->layers * row->pipeline;
    out->simulated = ns ? (double)ns * 1e-9 : out->estimated;
    NNC_TRY(baselines(s, &g, row, &p, &x->c, &r, out));
    if (detailed)
        print_row(row, x, out, *fits);
    return NNC_OK;
}

static nnc_status predict(const set *s, const published *row, int sequence, bool detailed,
    result *out, bool *fits, nnc_sink *sink)
{
    nnc_cluster *c = load(s, row->gpus, sink);
    if (!c)
        return nnc_sink_cause(sink, NNC_E_MODEL);
    const nnc_status st = predict_on(s, row, c, sequence, detailed, out, fits, sink);
    nnc_cluster_destroy(c);
    return st;
}

/* ---- errors ----------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rank of v[i], ties in the middle. */
static double rank_of(const double *v, int n, int i)
{
    double less = 0, same = 0;
    for (int k = 0; k < n; k++) {
        less += v[k] < v[i];
        same += v[k] == v[i];
    }
    return less + (same + 1) / 2;
}

static double spearman(const double *a, const double *b, int n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        const double x = rank_of(a, n, i) - (n + 1) / 2.0, y = rank_of(b, n, i) - (n + 1) / 2.0;
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void errors(const char *what, const double *got, const double *want, int n)
{
    static double e[MOST];
    double mean = 0, bias = 0;
    for (int i = 0; i < n; i++) {
        e[i] = fabs(got[i] / want[i] - 1) * 100;
        mean += e[i] / n;
        bias += (got[i] / want[i] - 1) * 100 / n;
    }
    qsort(e, (size_t)n, sizeof *e, ascending);
    printf(
        "  %-42s mean %6.1f %%  median %6.1f  p90 %6.1f  worst %6.1f  bias %+6.1f  Spearman %.3f\n",
        what, mean, e[n / 2], e[(int)(0.9 * (n - 1))], e[n - 1], bias, spearman(got, want, n));
}

static bool same_task(const published *a, const published *b)
{
    return a->hidden == b->hidden && a->layers == b->layers && a->gpus == b->gpus &&
           a->batch == b->batch;
}

/* Rows of the same model, GPUs and batch are alternatives of a search. How much longer does the one that is predicted to be best take
 * than the best one? Of pairs that differ by more than a tenth, how many are predicted in their order? */
static void choices(
    const char *what, const published *row, const double *got, const double *want, int n)
{
    int tasks = 0, pairs = 0, right = 0;
    double regret = 0, worst = 0;
    for (int i = 0; i < n; i++) {
        bool first = true;
        int best = i, chosen = i, others = 0;
        for (int k = 0; k < n; k++) {
            if (k == i || !same_task(&row[i], &row[k]))
                continue;
            first = first && k > i;
            others++;
            best = want[k] < want[best] ? k : best;
            chosen = got[k] < got[chosen] ? k : chosen;
            if (want[i] * 1.1 < want[k]) {
                pairs++;
                right += got[i] < got[k];
            }
        }
        if (!first || !others)
            continue;
        tasks++;
        regret += want[chosen] / want[best] - 1;
        worst = fmax(worst, want[chosen] / want[best] - 1);
    }
    if (tasks)
        printf("  %-42s %d tasks: its choice takes %.1f %% longer than the best, at worst %.1f %%; "
               "%.1f %% of %d pairs in order\n",
            what, tasks, 100 * regret / tasks, 100 * worst, 100.0 * right / (pairs ? pairs : 1),
            pairs);
}

static void compare(
    const set *s, const published *row, int n, int sequence, bool detailed, nnc_sink *sink)
{
    static double v[6][MOST], large[2][MOST];
    int over = 0, n_large = 0;
    printf("%s (%s), %d rows\n", s->title, s->hardware, n);
    if (detailed)
        printf("%59s%20s%20s   shares of the estimate\n", "published", "estimated", "simulated");
    for (int i = 0; i < n; i++) {
        result x = {0};
        bool fits = true;
        if (predict(s, &row[i], sequence, detailed, &x, &fits, sink)) {
            nnc_sink_print(sink, stderr);
            exit(1);
        }
        const double all[] = {x.published, x.estimated, x.simulated, x.fixed, x.bubble, x.silent};
        for (int k = 0; k < 6; k++)
            v[k][i] = all[k];
        over += !fits;
        if (x.layer_ms >= LARGE_MS) {
            large[0][n_large] = x.estimated;
            large[1][n_large++] = x.published;
        }
    }
    printf("  the memory ledger exceeds the GPU's memory in %d of these published runs\n", over);
    char fixed[64];
    snprintf(fixed, sizeof fixed, "baseline: %.0f %% of the peak", 100 * s->mfu);
    errors("estimated by the search", v[1], v[0], n);
    errors("simulated", v[2], v[0], n);
    errors(fixed, v[3], v[0], n);
    errors("baseline: products at 75 % and the bubble", v[4], v[0], n);
    errors("baseline: no communication", v[5], v[0], n);
    choices("estimated by the search", row, v[1], v[0], n);
    choices("simulated", row, v[2], v[0], n);
    choices("baseline: products at 75 % and the bubble", row, v[4], v[0], n);
    choices("baseline: no communication", row, v[5], v[0], n);
    if (n_large > 1 && n_large < n) {
        printf("  %d rows whose layers take %d ms or more of the GPU for a micro-batch:\n", n_large,
            LARGE_MS);
        errors("  estimated by the search", large[0], large[1], n_large);
    }
    putchar('\n');
}

/* ---- vTrain's tables --------------------------------------------------------------------------------------- */

/* The columns of both files; the one of several nodes begins with the parameters. */
static int read_csv(const char *file, published *row, int *sequence)
{
    char line[512];
    FILE *f = fopen(file, "r");
    int n = 0;
    if (!f || !fgets(line, sizeof line, f)) {
        fprintf(stderr, "%s: cannot be read\n", file);
        exit(1);
    }
    const bool multi = strstr(line, "Parameters"); /* after a byte order mark */
    while (n < MOST && fgets(line, sizeof line, f)) {
        int data;
        double ms;
        const char *at = multi ? strchr(line, ',') + 1 : line;
        published *x = &row[n];
        *x = (published){.name = "-"};
        if (sscanf(at, "%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%lf", &x->gpus, &x->batch, &x->micro,
                &x->hidden, &x->heads, &x->layers, sequence, &x->tensor, &data, &x->pipeline,
                &ms) != 11)
            continue;
        x->seconds = ms * 1e-3;
        n++;
    }
    fclose(f);
    return n;
}

static const set vtrain = {.title = "vTrain: Megatron-LM on A100",
    .hardware = "models/hardware/a100x3072.json",
    .edit = {"\"nics\"", "\"count\": 8", "\"count\": 4"},
    .model = {.vocabulary = 51200, .dtype = DT_f16, .gradient_bytes = 2},
    .recompute = true,
    .serial = true,
    .zeros = 1,
    .mfu = 0.45};

int main(int argc, char **argv)
{
    static const set a100 = {.title = "Megatron-LM on A100, 2021",
        .hardware = "models/hardware/a100x3072.json",
        .model = {.vocabulary = 51200, .dtype = DT_f16, .gradient_bytes = 2},
        .recompute = true,
        .serial = true,
        .interleaved = true,
        .zeros = 1,
        .mfu = 0.45};
    static const set h100 = {.title = "Megatron-LM on H100, 2024",
        .hardware = "models/hardware/h100x1024.json",
        .model = {.vocabulary = 131072,
            .dtype = DT_bf16,
            .flash = true,
            .sequence_parallel = true,
            .gradient_bytes = 4},
        .interleaved = true,
        .zeros = 2,
        .mfu = 0.45};
    static published row[MOST];
    nnc_sink *sink = nnc_sink_create();
    compare(&a100, megatron_a100, NNC_COUNT(megatron_a100), 2048, true, sink);
    compare(&h100, megatron_h100, NNC_COUNT(megatron_h100), 4096, true, sink);
    compare(&vtrain, vtrain_multi, NNC_COUNT(vtrain_multi), 2048, true, sink);
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--vtrain")) {
            int sequence = 2048;
            const int n = read_csv(argv[++i], row, &sequence);
            printf("%s\n", argv[i]);
            compare(&vtrain, row, n, sequence, false, sink);
        }
    nnc_sink_destroy(sink);
    return 0;
}
