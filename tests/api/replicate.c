/* tests/api/replicate.c -- a training step of several devices is that of one device with all their samples. This is tested by the float64
 * reference, over some steps, for the optimizers and what changes gradients on the way. */
#include "test.h"
#include "train/train.h"
#include <math.h>

enum { EACH = 4, STEPS = 3, MOST = 8, CLASSES = 5 };

/* Weights of several sizes: bundled, and by themselves. */
static const char model[] = "graph @net {\n"
                            "%%x = input : f32[%d,3,6,6]\n"
                            "%%w = param : f32[8,3,3,3] = gen(\"w\", seed=1, scale=0.3)\n"
                            "%%b = param : f32[8] = gen(\"b\", seed=1, scale=0.3)\n"
                            "%%v = param : f32[5,288] = gen(\"v\", seed=1, scale=0.1)\n"
                            "%%c = param : f32[5] = gen(\"c\", seed=1, scale=0.1)\n"
                            "%%y = conv %%x, %%w, %%b {pads=[1,1,1,1]} loc \"/conv\"\n"
                            "%%r = tanh %%y loc \"/tanh\"\n"
                            "%%f = reshape %%r {shape=[%d,288]} loc \"/flatten\"\n"
                            "%%z = linear %%f, %%v, %%c loc \"/linear\"\n"
                            "return %%z }\n";

/* text: with two places for the batch. */
static nnc_graph *graph_of(const char *text, int batch)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_scan s;
    nnc_printf(&t, text, batch, batch);
    nnc_scan_init(&s, "net", nnc_text_str(&t), t.n);
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    return g;
}

static nnc_graph *model_of(int batch)
{
    return graph_of(model, batch);
}

/* Steps of a graph: `out` are the outputs and new states of each. */
static void steps(const nnc_graph *g, int batch, nnc_rval *out)
{
    static float x[STEPS][MOST * EACH * 3 * 6 * 6];
    static int64_t target[STEPS][MOST * EACH];
    static const float number[] = {0.1f, 10, 31.6f};
    for (int s = 0; s < STEPS; s++) {
        const void *in[16];
        const bool first = s % 2 == 0;
        int n = 0;
        nnc_rng_fill(nnc_rng_key("x", (uint64_t)s), 0, (size_t)batch * 108, 1, x[s]);
        for (int i = 0; i < batch; i++)
            target[s][i] = nnc_rng_u32(nnc_rng_key("t", (uint64_t)s), (uint64_t)i) % CLASSES;
        for (uint32_t i = 0; i < g->n_node && n < 16; i++) {
            const char *name = g->value[g->node[i].out].name;
            if (g->node[i].op != OP_input)
                continue;
            in[n++] = !strcmp(name, "x")                ? (const void *)x[s]
                      : !strcmp(name, NNC_TRAIN_TARGET) ? (const void *)target[s]
                      : !strcmp(name, NNC_TRAIN_LR)     ? &number[0]
                      : !strcmp(name, NNC_TRAIN_SCALE1) ? &number[1]
                      : !strcmp(name, NNC_TRAIN_SCALE2) ? (const void *)&number[2]
                                                        : (const void *)&first;
        }
        CHECK_OK(nnc_eval_step(g, in, 1, s ? out + (s - 1) * (int)g->n_output : NULL,
            out + s * (int)g->n_output, test_sink));
    }
}

static double distance(const nnc_rval *a, const nnc_rval *b)
{
    double most = 0;
    for (int64_t i = 0; i < nnc_type_numel(&a->type); i++) {
        const double p = a->f ? a->f[i] : (double)a->i[i], q = b->f ? b->f[i] : (double)b->i[i];
        const double d = fabs(p - q) / fmax(fabs(p), 1e-3);
        most = d <= most ? most : isnan(d) ? INFINITY : d;
    }
    return most;
}

/* Sums of gradients are each device's own; the optimizer takes their mean. */
static bool is_sum(const nnc_graph *g, uint32_t output)
{
    const nnc_node *n = nnc_def(g, g->output_state[output]);
    return n->accumulates && n->origin && !strcmp(n->origin, NNC_TRAIN_OPTIMIZER);
}

static void check(const nnc_training *t, int n, const char *what)
{
    nnc_graph *m[2] = {model_of(EACH), model_of(EACH * n)}, *step = NULL, *all = NULL,
              *whole = NULL;
    CHECK_OK(nnc_train_graph(m[0], t, &step, test_sink));
    CHECK_OK(nnc_replicate(step, n, 1, &all, test_sink));
    CHECK_OK(nnc_train_graph(m[1], t, &whole, test_sink));
    const uint32_t results = nnc_result_outputs(whole);
    const int states = (int)(whole->n_output - results);
    CHECK_INT(nnc_result_outputs(all), results);
    CHECK_INT(all->n_output - results, states * n);
    nnc_rval *a = nnc_calloc(STEPS * all->n_output, sizeof *a);
    nnc_rval *b = nnc_calloc(STEPS * whole->n_output, sizeof *b);
    steps(all, EACH * n, a);
    steps(whole, EACH * n, b);
    double most = 0;
    for (int s = 0; s < STEPS; s++) {
        nnc_rval *x = a + s * (int)all->n_output, *y = b + s * (int)whole->n_output;
        for (uint32_t i = 0; i < results;
             i++) { /* inputs' gradients are of the replica's own mean */
            for (int64_t k = 0; nnc_output_is_gradient(all, i) && k < nnc_type_numel(&x[i].type);
                 k++)
                x[i].f[k] /= n;
            most = fmax(most, distance(&x[i], &y[i]));
        }
        for (int i = 0; i < states * n; i++)
            if (!is_sum(all, results + (uint32_t)i))
                most = fmax(
                    most, distance(&x[results + (uint32_t)i], &y[results + (uint32_t)(i / n)]));
    }
    if (!(most <
            (n == 3 ? 1e-4 : 1e-9))) /* factors 1/N are numbers of f32, exact for powers of two */
        test_fail(__FILE__, __LINE__, "%s, %d devices: off by %g", what, n, most);
    for (uint32_t i = 0; i < STEPS * all->n_output; i++)
        nnc_rval_free(&a[i]);
    for (uint32_t i = 0; i < STEPS * whole->n_output; i++)
        nnc_rval_free(&b[i]);
    nnc_free(a);
    nnc_free(b);
    nnc_graph *const own[] = {m[0], m[1], step, all, whole};
    for (size_t i = 0; i < NNC_COUNT(own); i++)
        nnc_graph_destroy(own[i]);
}

TEST(replicated_steps)
{
    static const struct {
        const char *what;
        nnc_training t;
    } cases[] = {{"sgd", {NNC_TRAINING_DEFAULTS}},
        {"momentum",
            {NNC_TRAINING_DEFAULTS, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}},
        {"adam", {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adam, .label_smoothing = 0.1}},
        {"adamw, clipped", {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adamw, .clip_norm = 0.1,
                               .weight_decay = 0.1}},
        {"accumulated", {NNC_TRAINING_DEFAULTS, .momentum = 0.9, .accumulate = 2}},
        {"scaled", {NNC_TRAINING_DEFAULTS, .loss_scale = 1024, .grad_inputs = true}}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++)
        for (int n = 1; n <= 4; n++)
            check(&cases[i].t, n, cases[i].what);
}

/* The value of an output, or the new one of a state, by name. */
static const nnc_rval *named(const nnc_graph *g, const nnc_rval *out, const char *name)
{
    for (uint32_t i = 0; i < g->n_output; i++) {
        const nnc_ref state = i < nnc_result_outputs(g) ? NNC_NONE : g->output_state[i];
        const char *is = state == NNC_NONE ? g->output_name[i] : g->value[state].name;
        if (is && !strcmp(is, name))
            return &out[i];
    }
    return NULL;
}

/* Weights and the loss after some steps, distributed in two ways of which `other` changes no number. */
static void check_same(
    const nnc_training *t, int n, const nnc_distribution *other, const char *what)
{
    static const char *const names[] = {"loss", "w", "b", "v", "c", "w.device1", "v.device1"};
    nnc_distribution o = {.replicas = n, .micro = 1, .batches = 1, .devices = 1, .stages = 1};
    nnc_training shards = *t;
    shards.shards = other->zero ? n : 0;
    o.batches = t->accumulate > 1 ? t->accumulate : 1;
    nnc_graph *m = model_of(EACH), *step[2] = {NULL, NULL}, *all[2] = {NULL, NULL};
    CHECK_OK(nnc_train_graph(m, t, &step[0], test_sink));
    CHECK_OK(nnc_train_graph(m, &shards, &step[1], test_sink));
    CHECK_OK(nnc_distribute(step[0], &o, &all[0], test_sink));
    o.zero = other->zero;
    o.bucket_bytes = other->bucket_bytes;
    CHECK_OK(nnc_distribute(step[1], &o, &all[1], test_sink));
    nnc_rval *out[2];
    for (int k = 0; k < 2; k++) {
        out[k] = nnc_calloc(STEPS * all[k]->n_output, sizeof *out[k]);
        steps(all[k], EACH * n, out[k]);
    }
    for (int s = 0; s < STEPS; s++)
        for (size_t i = 0; i < NNC_COUNT(names) - (n > 1 ? 0 : 2); i++) {
            const nnc_rval *a = named(all[0], out[0] + s * (int)all[0]->n_output, names[i]),
                           *b = named(all[1], out[1] + s * (int)all[1]->n_output, names[i]);
            CHECK(a && b);
            if (a && b && !(distance(a, b) < 1e-12))
                test_fail(__FILE__, __LINE__, "%s, %d devices, step %d, %s: off by %g", what, n, s,
                    names[i], distance(a, b));
        }
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < STEPS * all[k]->n_output; i++)
            nnc_rval_free(&out[k][i]);
        nnc_free(out[k]);
        nnc_graph_destroy(step[k]);
        nnc_graph_destroy(all[k]);
    }
    nnc_graph_destroy(m);
}

/* Bytes of the optimizer's states on replica r. */
static int64_t moments_of(const nnc_graph *g, int r)
{
    int64_t bytes = 0;
    for (uint32_t i = nnc_result_outputs(g); i < g->n_output; i++) {
        const nnc_node *n = nnc_def(g, g->output_state[i]);
        if (n->origin && !strcmp(n->origin, NNC_TRAIN_OPTIMIZER) && n->device == r)
            bytes += nnc_type_bytes(nnc_typeof(g, n->out));
    }
    return bytes;
}

/* ZeRO's stages 1 and 2, and buckets: the numbers of plain data parallelism. Vectors of some sizes are padded. */
TEST(shards_and_buckets_change_no_number)
{
    static const nnc_training of[] = {{NNC_TRAINING_DEFAULTS},
        {NNC_TRAINING_DEFAULTS, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
        {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adam, .accumulate = 2},
        {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adamw, .clip_norm = 0.1, .weight_decay = 0.1},
        {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adam, .loss_scale = 1024}};
    for (size_t i = 0; i < NNC_COUNT(of); i++)
        for (int n = 2; n <= 4; n++) {
            if (!test_takes(i + (uint64_t)n, 3))
                continue;
            check_same(&of[i], n, &(const nnc_distribution){.zero = 1}, "shards");
            check_same(&of[i], n, &(const nnc_distribution){.zero = 2}, "stage 2");
            check_same(&of[i], n, &(const nnc_distribution){.bucket_bytes = 1 << 20}, "a bucket");
            check_same(&of[i], n, &(const nnc_distribution){.bucket_bytes = 1}, "small buckets");
            for (int zero = 1; zero <= 2; zero++)
                for (int64_t bytes = 1; bytes <= 1 << 20; bytes <<= 10)
                    check_same(&of[i], n,
                        &(const nnc_distribution){.zero = zero, .bucket_bytes = bytes},
                        "shards in buckets");
        }
}

/* Bytes of the sums of gradients on replica r. */
static int64_t sums_of(const nnc_graph *g, int r)
{
    int64_t bytes = 0;
    for (uint32_t i = nnc_result_outputs(g); i < g->n_output; i++)
        if (is_sum(g, i) && nnc_def(g, g->output_state[i])->device == r)
            bytes += nnc_type_bytes(nnc_typeof(g, g->output_state[i]));
    return bytes;
}

static int count_op(const nnc_graph *g, nnc_op op)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        n += g->node[i].op == op;
    return n;
}

/* At stage 2 each replica keeps its part of the sums of gradients, and those of each micro-batch are reduce-scattered. At stage 1 it keeps
 * all, and the sums are. Of one batch a step both are the same graph. */
TEST(stage_2_divides_the_sums)
{
    enum { N = 4, MICRO = 3 };
    int32_t rank[2 * MICRO] = {0, 2, 4, 1, 3, 5}; /* each forth and back before the next */
    for (int way = 0; way < 3;
         way++) { /* one batch; several runs; several micro-batches of each of two runs */
        int64_t sums[3] = {0};
        int scattered[3] = {0}, bundles = 0;
        NNC_LOCAL(nnc_text) one = {0};
        NNC_LOCAL(nnc_text) two = {0};
        for (int zero = 1; zero <= 2; zero++) {
            const int micro = way == 2 ? MICRO : 1, runs = way ? 2 : 1;
            const nnc_training t = {
                NNC_TRAINING_DEFAULTS, .momentum = 0.9, .accumulate = micro * runs, .shards = N};
            const nnc_distribution o = {.replicas = N,
                .micro = micro,
                .batches = runs,
                .devices = 1,
                .stages = 1,
                .rank = micro > 1 ? rank : NULL,
                .zero = zero};
            nnc_graph *m = model_of(EACH), *step = NULL, *all = NULL;
            CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
            CHECK_OK(nnc_distribute(step, &o, &all, test_sink));
            sums[zero] = sums_of(all, 0);
            scattered[zero] = count_op(all, OP_reduce_scatter);
            bundles = zero == 1 ? scattered[1] : bundles;
            for (int r = 1; r < N; r++)
                CHECK_INT(sums_of(all, r), sums[zero]);
            nnc_graph_print(zero == 1 ? &one : &two, all);
            nnc_graph_destroy(m);
            nnc_graph_destroy(step);
            nnc_graph_destroy(all);
        }
        CHECK(bundles > 0 && (sums[1] > 0) == (way > 0));
        CHECK_INT(sums[1], N * sums[2]);
        CHECK_INT(scattered[2], bundles * (way == 2 ? MICRO : 1));
        CHECK((strcmp(nnc_text_str(&one), nnc_text_str(&two)) == 0) == (way == 0));
    }
}

static const char norms[] = "graph @net {\n"
                            "%%x = input : f32[%d,3,6,6]\n"
                            "%%w = param : f32[8,3,3,3] = gen(\"w\", seed=1, scale=0.3)\n"
                            "%%v = param : f32[5,24] = gen(\"v\", seed=1, scale=0.1)\n"
                            "%%u = param : f32[24,288] = gen(\"u\", seed=1, scale=0.1)\n"
                            "%%a = param : f32[8] = gen(\"a\", seed=1, scale=0.1, shift=1)\n"
                            "%%m = param : f32[8] = gen(\"m\", seed=1, scale=0.1, shift=1)\n"
                            "%%s = param : f32[8] = gen(\"s\", seed=1, scale=0.1, shift=1)\n"
                            "%%b = param : f32[24] = gen(\"b\", seed=1, scale=0.1, shift=1)\n"
                            "%%n = param : f32[24] = gen(\"n\", seed=1, scale=0.1, shift=1)\n"
                            "%%t = param : f32[24] = gen(\"t\", seed=1, scale=0.1, shift=1)\n"
                            "%%y = conv %%x, %%w {pads=[1,1,1,1]} loc \"/conv\"\n"
                            "%%1 = batchnorm %%y, %%a, %%a, %%m, %%s loc \"/norm\"\n"
                            "%%2 = reshape %%1 {shape=[%d,288]} loc \"/flatten\"\n"
                            "%%3 = linear %%2, %%u loc \"/wide\"\n"
                            "%%4 = batchnorm %%3, %%b, %%b, %%n, %%t loc \"/norms\"\n"
                            "%%z = linear %%4, %%v loc \"/linear\"\n"
                            "return %%z }\n";

/* Running statistics of all batch norms become the means over the replicas by one allreduce. */
TEST(statistics_are_summed_together)
{
    enum { N = 2 };
    static const char *const names[] = {"m", "s", "n", "t"};
    const nnc_training t = {NNC_TRAINING_DEFAULTS, .accumulate = 2};
    const nnc_distribution o = {.replicas = N,
        .micro = 1,
        .batches = 2,
        .devices = 1,
        .stages = 1,
        .bucket_bytes = 1 << 30};
    static float x[N * EACH * 108], number = 0.1f;
    static const bool first = true;
    static int64_t target[N * EACH];
    nnc_graph *m = graph_of(norms, EACH), *step = NULL, *all = NULL;
    nnc_rval out[N + 1][64];
    CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
    CHECK_OK(nnc_distribute(step, &o, &all, test_sink));
    CHECK_INT(count_op(all, OP_allreduce), 2); /* of gradients, of statistics */
    CHECK(all->n_output <= 64 && step->n_output <= 64);
    nnc_rng_fill(nnc_rng_key("x", 1), 0, NNC_COUNT(x), 1, x);
    for (int k = 0; k <= N; k++) { /* each half, then both */
        const int at = k < N ? k * EACH : 0;
        const nnc_graph *g = k < N ? step : all;
        const void *in[8];
        int n = 0;
        for (uint32_t i = 0; i < g->n_node && n < 8; i++) {
            const char *name = g->value[g->node[i].out].name;
            if (g->node[i].op == OP_input)
                in[n++] = !strcmp(name, "x")                ? (const void *)(x + at * 108)
                          : !strcmp(name, NNC_TRAIN_TARGET) ? (const void *)(target + at)
                          : !strcmp(name, NNC_TRAIN_LR)     ? (const void *)&number
                                                            : (const void *)&first;
        }
        CHECK_OK(nnc_eval_step(g, in, 1, NULL, out[k], test_sink));
    }
    for (size_t i = 0; i < NNC_COUNT(names); i++) {
        const nnc_rval *a = named(step, out[0], names[i]), *b = named(step, out[1], names[i]),
                       *c = named(all, out[N], names[i]);
        CHECK(a && b && c);
        for (int64_t j = 0; a && b && c && j < nnc_type_numel(&c->type); j++)
            CHECK(fabs((a->f[j] + b->f[j]) / 2 - c->f[j]) < 1e-12 && a->f[j] != b->f[j]);
    }
    for (int k = 0; k <= N; k++)
        for (uint32_t i = 0; i < (k < N ? step : all)->n_output; i++)
            nnc_rval_free(&out[k][i]);
    nnc_graph_destroy(m);
    nnc_graph_destroy(step);
    nnc_graph_destroy(all);
}

/* Statistics of which each replica takes all, beside padded gradients of which it takes a part: buckets of their own. */
TEST(shards_and_statistics_in_buckets)
{
    for (int zero = 1; zero <= 2; zero++)
        for (int n = 1; n <= 2; n++) {
            const nnc_training t = {NNC_TRAINING_DEFAULTS, .accumulate = n, .shards = 3};
            const nnc_distribution o = {.replicas = 3,
                .micro = 1,
                .batches = n,
                .devices = 1,
                .stages = 1,
                .zero = zero,
                .bucket_bytes = 1 << 30};
            nnc_graph *m = graph_of(norms, EACH), *step = NULL, *all = NULL;
            CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
            CHECK_OK(nnc_distribute(step, &o, &all, test_sink));
            CHECK(count_op(all, OP_reduce_scatter) >= 1 &&
                  count_op(all, OP_reduce_scatter) <= (n > 1 ? 3 : 1));
            nnc_graph_destroy(m);
            nnc_graph_destroy(step);
            nnc_graph_destroy(all);
        }
}

/* Each replica has its part of the moments. */
TEST(shards_divide_the_moments)
{
    nnc_training t = {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adam};
    nnc_distribution o = {.replicas = 4, .micro = 1, .batches = 1, .devices = 1, .stages = 1};
    int64_t bytes[2][4];
    for (int k = 0; k < 2; k++) {
        nnc_graph *m = model_of(EACH), *step = NULL, *all = NULL;
        t.shards = k ? 4 : 0;
        o.zero = k;
        CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
        CHECK_OK(nnc_distribute(step, &o, &all, test_sink));
        for (int r = 0; r < 4; r++)
            bytes[k][r] = moments_of(all, r);
        nnc_graph_destroy(m);
        nnc_graph_destroy(step);
        nnc_graph_destroy(all);
    }
    for (int r = 0; r < 4; r++) {
        CHECK_INT(bytes[0][r], bytes[0][0]);
        CHECK_INT(bytes[1][r], bytes[1][0]);
    }
    CHECK(bytes[1][0] >= bytes[0][0] / 4 && bytes[1][0] < bytes[0][0] / 4 + 64);
}

/* Linear layers on device 1. */
static void place(nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        const char *at = g->node[i].origin, *name = g->value[g->node[i].out].name;
        g->node[i].device =
            (at && !strcmp(at, "/linear")) || (name && (*name == 'v' || *name == 'c'));
    }
}

/* The weight of a state: copies of it on several replicas have one. */
static const char *name_of(const nnc_graph *g, uint32_t output)
{
    const nnc_weight *w = nnc_def(g, g->output_state[output])->weight;
    return w && w->name ? w->name : "";
}

/* The largest difference of a step's loss and states. */
static double difference(
    const nnc_graph *all, const nnc_rval *x, const nnc_graph *whole, const nnc_rval *y)
{
    const uint32_t results = nnc_result_outputs(whole);
    const int64_t m = nnc_type_numel(&x[0].type);
    double loss = 0, most = 0;
    for (int64_t k = 0; k < m; k++)
        loss += x[0].f[k] / (double)m;
    most = fabs(loss - y[0].f[0]);
    for (uint32_t i = results; i < all->n_output; i++)
        for (uint32_t k = results; k < whole->n_output; k++)
            if (!strcmp(name_of(all, i), name_of(whole, k)))
                most = fmax(most, distance(&x[i], &y[k]));
    return most;
}

/* What r replicas make of m micro-batches, on p devices each, is the step of the whole batch. zero: the stage of ZeRO. */
static void check_shared(const nnc_training *t, int r, int m, int p, int zero, const char *what)
{
    const int n = r * m;
    nnc_graph *g = model_of(EACH), *large = model_of(EACH * n), *step = NULL, *all = NULL,
              *whole = NULL;
    nnc_training of = *t;
    int32_t rank[2 * 2 * MOST];
    for (int k = 0; k < m; k++) /* each micro-batch forth and back before the next */
        for (int s = 0; s < p; s++) {
            rank[s * m + k] = 2 * p * k + s;
            rank[(p + s) * m + k] = 2 * p * k + 2 * p - 1 - s;
        }
    if (p > 1)
        place(g);
    of.accumulate = m;
    of.shards = zero ? r : 0;
    const nnc_distribution o = {.replicas = r,
        .micro = m,
        .devices = p,
        .batches = 1,
        .stages = p,
        .rank = rank,
        .zero = zero};
    CHECK_OK(nnc_train_graph(g, &of, &step, test_sink));
    CHECK_OK(nnc_distribute(step, &o, &all, test_sink));
    CHECK_OK(nnc_train_graph(large, t, &whole, test_sink));
    const uint32_t results = nnc_result_outputs(whole);
    CHECK_INT(nnc_result_outputs(all), results);
    CHECK(zero || all->n_output - results == (whole->n_output - results) * (uint32_t)r);
    nnc_rval *a = nnc_calloc(STEPS * all->n_output, sizeof *a);
    nnc_rval *b = nnc_calloc(STEPS * whole->n_output, sizeof *b);
    steps(all, EACH * n, a);
    steps(whole, EACH * n, b);
    double most = 0;
    for (uint32_t s = 0; s < STEPS; s++)
        most = fmax(most, difference(all, a + s * all->n_output, whole, b + s * whole->n_output));
    CHECK_INT(nnc_type_numel(&a[0].type), m);
    if (!(most < (n & (n - 1) ? 1e-4 : 1e-9)))
        test_fail(__FILE__, __LINE__,
            "%s, %d replicas, %d micro-batches, %d devices, stage %d: off by %g", what, r, m, p,
            zero, most);
    for (uint32_t i = 0; i < STEPS * all->n_output; i++)
        nnc_rval_free(&a[i]);
    for (uint32_t i = 0; i < STEPS * whole->n_output; i++)
        nnc_rval_free(&b[i]);
    nnc_free(a);
    nnc_free(b);
    nnc_graph *const own[] = {g, large, step, all, whole};
    for (size_t i = 0; i < NNC_COUNT(own); i++)
        nnc_graph_destroy(own[i]);
}

TEST(shared_steps)
{
    static const struct {
        const char *what;
        nnc_training t;
    } cases[] = {{"momentum", {NNC_TRAINING_DEFAULTS, .momentum = 0.9, .nesterov = true,
                                  .weight_decay = 0.01}},
        {"adamw, clipped, scaled", {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adamw,
                                       .clip_norm = 0.1, .weight_decay = 0.1, .loss_scale = 1024}}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++)
        for (int r = 1; r <= 2; r++)
            for (int m = 2; m <= 4; m++)
                for (int p = 1; p <= 2; p++)
                    for (int zero = 0; zero <= (r > 1 ? 2 : 0); zero++)
                        check_shared(&cases[i].t, r, m, p, zero, cases[i].what);
}

/* Nothing but scalars and collectives is between devices in the step: each computes with its own copies. */
TEST(replicated_places)
{
    const nnc_training t = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    nnc_graph *m = model_of(EACH), *step = NULL, *all = NULL;
    int collectives = 0;
    CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
    CHECK_OK(nnc_replicate(step, 2, 1, &all, test_sink));
    for (uint32_t i = 0; all && i < all->n_node; i++) {
        const nnc_node *n = &all->node[i];
        collectives += nnc_op_class((nnc_op)n->op) == CL_collective;
        for (int k = 0; k < n->n_in && n->device == 1; k++) {
            const nnc_node *d = nnc_def(all, n->in[k]);
            const nnc_type *x = nnc_typeof(all, n->in[k]);
            const bool given = d->op == OP_slice || d->op == OP_input;
            CHECK(d->device == 1 || x->rank == 0 || given || d->op == OP_allreduce);
        }
    }
    CHECK_INT(collectives,
        1); /* the optimizer has kernels of v and w; of b; of c: at no multiple of 16 */
    nnc_graph_destroy(m);
    nnc_graph_destroy(step);
    nnc_graph_destroy(all);
}

/* The loss is computed where the prediction is, whatever layers come after it in the file. */
TEST(the_loss_is_where_the_prediction_is)
{
    static const char text[] = "graph @net {\n"
                               "%x = input : f32[4,8]\n"
                               "%w = param : f32[8,8] = gen(\"w\", seed=1, scale=0.3)\n"
                               "%v = param : f32[5,8] = gen(\"v\", seed=1, scale=0.3) device 1\n"
                               "%h = linear %x, %w device 0 loc \"/a\"\n"
                               "%y = linear %h, %v device 1 loc \"/b\"\n"
                               "%z = linear %x, %w device 0 loc \"/unused\"\n"
                               "return %y }\n";
    nnc_scan s;
    nnc_graph *step = NULL;
    nnc_scan_init(&s, "net", text, sizeof text - 1);
    nnc_graph *m = nnc_graph_parse(&s, test_sink);
    CHECK(m != NULL);
    CHECK_OK(m ? nnc_train_graph(m, &nnc_training_defaults, &step, test_sink) : NNC_E_MODEL);
    for (uint32_t i = 0; step && i < step->n_node; i++) {
        const nnc_node *n = &step->node[i];
        const bool loss = n->origin && !strncmp(n->origin, "/loss", 5);
        CHECK(!loss || nnc_op_class((nnc_op)n->op) == CL_leaf || n->device == 1);
    }
    nnc_graph_destroy(m);
    nnc_graph_destroy(step);
}

TEST(replicated_refuses)
{
    nnc_training t = nnc_training_defaults;
    t.ignore_index = -100;
    nnc_graph *m = model_of(EACH), *step = NULL, *all = NULL;
    CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
    CHECK_INT(nnc_replicate(step, 2, 1, &all, test_sink), NNC_E_USAGE);
    CHECK_DIAG("--strategy=data with --ignore-index");
    CHECK_INT(nnc_sink_errors(test_sink), 1); /* not once a weight */
    nnc_graph_destroy(step);
    CHECK_OK(nnc_evaluation_graph(m, &t, &step, test_sink)); /* has no gradients */
    CHECK_OK(nnc_replicate(step, 2, 1, &all, test_sink));
    nnc_graph_destroy(m);
    nnc_graph_destroy(step);
    nnc_graph_destroy(all);
}
