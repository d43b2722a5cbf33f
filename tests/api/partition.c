/* tests/api/partition.c -- nnc partition on models. The numbers of each strategy fit together, the memory ledger covers the plan, and
 * faster links never cost time. What is called executable runs with the results of one device. */
#include "api/help.h"
#include "frontend/frontend.h"
#include "report/report.h"
#include "session/session.h"
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "picture/picture.h"
#include "sim/sim.h"
#include "train/train.h"
#include <math.h>

typedef struct made {
    nnc_env *env;
    nnc_model *model;
    nnc_arena a;
    nnc_partition_model m;
    nnc_partition_options o;
    nnc_partition_table t;
} made;

static const char *const zoo[] = {"mlp", "vgg16", "resnet50", "googlenet", "unet", "mobilenet_v2",
    "lstm_classifier", "multi_linear", "transformer_mlp"};

static nnc_model *open(const char *name, const char *place)
{
    char file[64];
    nnc_arg image = {"image", "32"};
    nnc_open_options o = nnc_open_defaults;
    snprintf(file, sizeof file, "models/%s.json", name);
    o.place = place;
    if (!strcmp(name, "vgg16") || !strcmp(name, "unet")) {
        o.arg = &image;
        o.n_arg = 1;
    }
    nnc_model *m = nnc_model_open(file, &o, test_sink);
    CHECK(m != NULL);
    return m;
}

/* Measures a model, which x owns, for a described machine, or for the devices of a hardware file. */
static bool make_of(
    made *x, nnc_model *m, const nnc_training *training, int devices, const char *hardware)
{
    const nnc_env_options env = {
        TEST_CACHED, .target = hardware ? NULL : "tests/cli/machine.json", .hardware = hardware};
    memset(x, 0, sizeof *x);
    CHECK_OK(nnc_env_create(&env, &x->env, test_sink));
    x->model = m;
    nnc_arena_init(&x->a, 0);
    x->o.compile = nnc_compile_defaults;
    const nnc_status st =
        nnc_partition_measure(x->env, x->model, training, &x->o, &x->m, &x->a, test_sink);
    CHECK_OK(st);
    x->t = (nnc_partition_table){.m = &x->m,
        .graph = x->model,
        .o = &x->o,
        .target = &x->env->target[0],
        .cluster = x->env->cluster,
        .devices = devices,
        .micro = 8};
    return !st;
}

static bool make_with(made *x, const char *name, const nnc_training *training, int devices,
    const char *place, const char *hardware)
{
    return make_of(x, open(name, place), training, devices, hardware);
}

static bool make_on(
    made *x, const char *name, bool step, int devices, const char *place, const char *hardware)
{
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    return make_with(x, name, step ? &training : NULL, devices, place, hardware);
}

static bool make(made *x, const char *name, bool step, int devices, const char *place)
{
    return make_on(x, name, step, devices, place, NULL);
}

static void end(made *x)
{
    nnc_arena_deinit(&x->a);
    nnc_model_close(x->model);
    nnc_env_destroy(x->env);
}

static const nnc_partition_row *row(const made *x, const char *strategy)
{
    for (int i = 0; i < x->t.n_row; i++)
        if (!strcmp(x->t.row[i].strategy, strategy))
            return &x->t.row[i];
    return NULL;
}

/* Sums of all layers, to compare with the commands'. */
static void check_costs(const made *x, const char *name)
{
    const nnc_layer_costs *of = &x->m.cost;
    int64_t saved = 0, states = 0, trained = 0;
    CHECK(x->m.n_block >= 1 && x->m.first[0] == 0 && x->m.first[x->m.n_block] == x->m.n_layer);
    for (int b = 0; b < x->m.n_block; b++) {
        CHECK(x->m.first[b] < x->m.first[b + 1]);
        CHECK(of->forward[b] >= 0 && of->working[b] >= 0);
        CHECK(x->m.step ||
              (!of->backward[b] && !of->weight[b] && !of->saved[b] && !of->gradients[b]));
        saved += of->saved[b];
        states += of->states[b];
        trained += of->gradients[b];
    }
    if (x->m.step) {
        CHECK(saved > 0);
        CHECK_INT(states, trained); /* momentum: a state as large as the weight */
    }
    (void)name;
}

static void check_row(const made *x, const nnc_partition_row *r, const char *name)
{
    int64_t busy = 0;
    bool fits = true;
    for (int d = 0; d < x->t.devices; d++) {
        const nnc_device_use *u = &r->use[d];
        int64_t sum = 0;
        for (int k = 0; k < NNC_FILL_KINDS; k++)
            sum += u->fill[k];
        CHECK_INT(u->bytes, sum);
        CHECK(u->busy_ns >= 0 && u->busy_ns <= r->iteration_ns);
        CHECK(*u->layers || (!u->busy_ns && !u->bytes));
        fits = fits && u->bytes <= nnc_partition_capacity(&x->t);
        busy += u->busy_ns;
    }
    CHECK_INT(r->fits, fits);
    CHECK_NEAR(
        r->bubble, 1 - (double)busy / ((double)x->t.devices * (double)r->iteration_ns), 1e-9);
    CHECK(r->exposed_ns >= 0 && r->hidden_ns >= 0 && r->exposed_ns <= r->iteration_ns);
    if (test_failures)
        test_fail(__FILE__, __LINE__, "strategy %s of %s", r->strategy, name);
}

/* The ledger of one device covers its plan, and is not far from it. A step's persistent gradients are those of several micro-batches. */
static void check_ledger(const made *x, const char *name)
{
    const nnc_device_use *u = &row(x, "single")->use[0];
    const double all = (double)u->bytes / (double)x->m.plan_bytes,
                 bare = (double)(u->bytes - u->fill[FILLED_gradients]) / (double)x->m.plan_bytes;
    if (all < 0.95 || bare > 1.4)
        test_fail(__FILE__, __LINE__, "%s: the ledger is %.2f of the plan, %.2f without gradients",
            name, all, bare);
}

/* Work is not lost: the busy times of a pipeline are those of one device. */
static void check_work(const made *x, const char *strategy)
{
    const nnc_partition_row *one = row(x, "single"), *r = row(x, strategy);
    int64_t busy = 0;
    for (int d = 0; d < x->t.devices && r && !r->why_not; d++)
        busy += r->use[d].busy_ns;
    if (r && !r->why_not)
        CHECK_INT(busy, one->use[0].busy_ns);
}

TEST(strategies_fit_together)
{
    for (size_t i = 0; i < NNC_COUNT(zoo); i++)
        for (int step = 0; step < 2; step++) {
            made x = {0};
            if (test_takes(i + (uint64_t)step, 2) && make(&x, zoo[i], step, 2 + (int)i % 3, NULL)) {
                check_costs(&x, zoo[i]);
                CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
                for (int k = 0; k < x.t.n_row && !test_failures; k++)
                    if (!x.t.row[k].why_not)
                        check_row(&x, &x.t.row[k], zoo[i]);
                check_ledger(&x, zoo[i]);
                static const char *const all[] = {"sequential", "pipeline", "gpipe", "1f1b",
                    "interleaved", "zb-h1", "zb-h2", "cut-count", "cut-deepspeed"};
                for (size_t k = 0; k < NNC_COUNT(all); k++)
                    check_work(&x, all[k]);
            }
            end(&x);
        }
}

/* The cut for time is as good as any other; what it costs falls with the bandwidth. */
TEST(faster_links_never_cost_time)
{
    for (int step = 0; step < 2; step++) {
        made x = {0};
        if (test_takes((uint64_t)step, 2) && make(&x, "googlenet", step, 4, NULL)) {
            int64_t before[32] = {0};
            for (double gbs = 0.1; gbs < 1000; gbs *= 10) {
                x.o.link_gbs = gbs;
                x.t.n_row = 0;
                CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
                for (int k = 0; k < x.t.n_row; k++) {
                    const nnc_partition_row *r = &x.t.row[k];
                    /* pipelines are cut again for each bandwidth by a bound of their time; list schedules are heuristics */
                    const bool exact =
                        !strncmp(r->strategy, "cut-", 4) || !strcmp(r->strategy, "single") ||
                        !strcmp(r->strategy, "sequential") || !strcmp(r->strategy, "data") ||
                        !strncmp(r->strategy, "zero", 4);
                    if (!r->why_not && exact && before[k] && r->iteration_ns > before[k])
                        test_fail(
                            __FILE__, __LINE__, "%s takes longer with %g GB/s", r->strategy, gbs);
                    before[k] = r->iteration_ns;
                }
            }
        }
        end(&x);
    }
}

/* A placement that the table prints gives the numbers of one device. */
static void check_placed(const char *name, const char *place, int devices)
{
    nnc_env_options env = nnc_env_defaults;
    nnc_env *e;
    nnc_compile_options o = nnc_compile_defaults;
    api_data d;
    api_run one, placed;
    NNC_LOCAL(nnc_text) why = {0};
    CHECK_OK(nnc_env_create(&env, &e, test_sink));
    nnc_model *m = open(name, NULL), *p = open(name, place);
    bool ok = m && p && api_inputs(&d, m, 1, false) &&
              api_compile_and_run(e, m, &o, &d, &one, &why, test_sink);
    if (ok) {
        o.devices = devices;
        if (api_compile_and_run(e, p, &o, &d, &placed, &why, test_sink)) {
            int used = 0;
            for (int i = 0; i < placed.a->plan->n_device; i++)
                used += placed.a->plan->device[i].arena_bytes > 0;
            CHECK_INT(used, devices);
            for (int i = 0; i < one.n_out; i++) {
                const nnc_type *t = nnc_typeof(m, m->output[i]);
                CHECK(api_same(t, one.out[i], placed.out[i]));
            }
            api_run_free(&placed);
        }
        api_run_free(&one);
        api_data_free(&d);
    }
    if (why.n)
        test_fail(__FILE__, __LINE__, "%s with %s: %s", name, place, nnc_text_str(&why));
    nnc_model_close(m);
    nnc_model_close(p);
    nnc_env_destroy(e);
}

TEST(placements_run_with_the_results_of_one_device)
{
    static const char *const name[] = {"mlp", "mobilenet_v2", "googlenet"};
    static const char *const strategy[] = {"sequential", "branches"};
    for (size_t i = 0; i < NNC_COUNT(name); i++)
        for (size_t s = 0; s < NNC_COUNT(strategy); s++) {
            made x = {0};
            if (test_takes(i + s, 2) && make(&x, name[i], false, 2, NULL)) {
                x.o.strategy = &strategy[s];
                x.o.n_strategy = 1;
                CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
                const nnc_partition_row *r = row(&x, strategy[s]);
                CHECK(r && r->executable && r->place);
                if (r && r->place && r->use[1].bytes)
                    check_placed(name[i], r->place, 2);
            }
            end(&x);
        }
}

/* --place is the model file's "device", and what the table says of it. */
TEST(manual_placement_is_a_row)
{
    made x;
    if (make(&x, "mlp", false, 3, "0-1=0,2-4=2,5-=1")) {
        const char *manual = "manual";
        x.o.strategy = &manual;
        x.o.n_strategy = 1;
        CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
        CHECK_STR(x.t.row[0].use[0].layers, "0-1");
        CHECK_STR(x.t.row[0].use[2].layers, "2-5");
        CHECK_STR(x.t.row[0].use[1].layers, "6-7");
        CHECK(x.t.row[0].note != NULL); /* layers 4 and 5 are one kernel */
    }
    end(&x);
}

/* ---- described hardware ------------------------------------------------------------------------------------------- */

static const nnc_partition_row *one_row(made *x, const char *const *strategy)
{
    x->o.strategy = strategy;
    x->o.n_strategy = 1;
    x->t.n_row = 0;
    CHECK_OK(nnc_partition_fill_table(&x->t, &x->a, test_sink));
    CHECK(x->t.n_row == 1 && !x->t.row[0].why_not);
    return &x->t.row[0];
}

/* One device takes what the simulator says of the plan, but for commands' times that are rounded up to nanoseconds. */
static void check_simulated(made *x, bool step)
{
    static const char *const single = "single";
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    nnc_artifact *a = NULL;
    nnc_graph *g = NULL;
    nnc_sim_plan s;
    const int micro = x->t.micro;
    x->t.micro = 1;
    x->t.n_row = 0;
    const nnc_partition_row *r = one_row(x, &single);
    if (step)
        CHECK_OK(nnc_train_graph(x->model, &training, &g, test_sink));
    CHECK_OK(nnc_compile(x->env, step ? g : x->model, &x->o.compile, &a, test_sink));
    CHECK_OK(nnc_sim_plan_run(&s, nnc_artifact_plan(a), x->env->cluster,
        &(nnc_sim_plan_options){.first = SEC_main, .last = SEC_step}, test_sink));
    CHECK(
        r->iteration_ns >= s.total_ps / 1000 && r->iteration_ns <= s.total_ps / 1000 + s.n_cmd + 1);
    x->t.micro = micro;
    x->t.n_row = 0;
    nnc_sim_plan_deinit(&s);
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
}

/* Picoseconds of the plan of a step that accumulates: of a micro-batch, of the last one with the update. */
static int64_t accumulated_ps(const made *x, int micro)
{
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9, .accumulate = micro};
    nnc_artifact *a = NULL;
    nnc_graph *g = NULL;
    int64_t ps[2] = {0};
    CHECK_OK(nnc_train_graph(x->model, &training, &g, test_sink));
    CHECK_OK(nnc_compile(x->env, g, &x->o.compile, &a, test_sink));
    for (int k = 0; k < 2; k++) {
        const nnc_sim_plan_options o = {.first = SEC_main, .last = k ? SEC_step : SEC_accumulate};
        nnc_sim_plan s;
        CHECK_OK(nnc_sim_plan_run(&s, nnc_artifact_plan(a), x->env->cluster, &o, test_sink));
        ps[k] = s.total_ps;
        nnc_sim_plan_deinit(&s);
    }
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
    return (micro - 1) * ps[0] + ps[1];
}

/* Several micro-batches of a step take what the simulator says of the plan that adds their gradients. */
TEST(gradients_of_micro_batches_are_added)
{
    static const char *const models[] = {"vgg16", "mlp"};
    for (size_t i = 0; i < NNC_COUNT(models); i++) {
        made x;
        static const char *const single = "single";
        if (make_on(&x, models[i], true, 1, NULL, "models/hardware/a100x8.json")) {
            const double got = (double)one_row(&x, &single)->iteration_ns,
                         want = (double)accumulated_ps(&x, x.t.micro) * 1e-3;
            if (got < 0.99 * want || got > 1.01 * want)
                test_fail(__FILE__, __LINE__, "%s: %.0f ns, simulated %.0f", models[i], got, want);
        }
        end(&x);
    }
}

TEST(described_hardware_gives_the_times)
{
    static const char *const sequential = "sequential", *const data = "data";
    for (int step = 0; step < 2; step++) {
        made x;
        if (make_on(&x, "mlp", step, 2, NULL, "models/hardware/v100x8.json")) {
            const nnc_cluster *c = x.t.cluster;
            const nnc_layer_costs *of = &x.m.cost;
            CHECK_INT(nnc_partition_capacity(&x.t), nnc_cluster_usable_bytes(c, 0));
            CHECK(nnc_partition_capacity(&x.t) < x.t.target->memory_bytes);
            check_simulated(&x, step);
            const nnc_partition_row *r = one_row(&x, &sequential);
            int cut = 0, b = 0;
            CHECK(sscanf(r->use[1].layers, "%d", &cut) == 1);
            while (b < x.m.n_block && x.m.first[b] < cut)
                b++;
            CHECK_INT(r->exposed_ns,
                8 * (1 + step) * nnc_ceildiv(nnc_cluster_p2p_ps(c, 0, 1, x.m.boundary[b]), 1000));
            if (step) { /* one bucket: behind the backward pass */
                const int32_t devices[] = {0, 1};
                const int64_t bytes = row_range(of->gradients, 0, x.m.n_block);
                x.o.bucket_mb = 1e6;
                r = one_row(&x, &data);
                CHECK_INT(r->exposed_ns,
                    nnc_ceildiv(
                        nnc_cluster_collective_ps(c, GROUP_allreduce, devices, 2, bytes), 1000));
                CHECK_INT(r->hidden_ns, 0);
            }
        }
        end(&x);
    }
}

/* ---- ZeRO, by hand ------------------------------------------------------------------------------------------------ */

static nnc_partition_row zero_row(made *x, const char *name)
{
    return *one_row(x, &name);
}

/* Stage 2 reduces the gradients of each of the 4 micro-batches of a device, stage 1 their sums; both gather what was trained. */
TEST(zero_reduces_what_it_keeps)
{
    static const char *const freeze[] = {"hidden*"};
    for (int frozen = 0; frozen < 2; frozen++) {
        const nnc_training training = {
            NNC_TRAINING_DEFAULTS, .momentum = 0.9, .freeze = freeze, .n_freeze = frozen};
        made x;
        if (make_with(&x, "mlp", &training, 2, NULL, NULL)) {
            const int devices[] = {0, 1};
            const nnc_flat_links flat = {.bytes_per_s = 10000000000, .latency_ns = 5000};
            const nnc_links links = nnc_links_flat(&flat);
            const int64_t trained = row_range(x.m.cost.gradients, 0, x.m.n_block),
                          half = nnc_ceildiv(nnc_links_allreduce(&links, devices, 2, trained), 2);
            const int64_t weights = row_range(x.m.cost.weights, 0, x.m.n_block);
            CHECK(trained > 0 && (frozen ? trained < weights / 10 : trained == weights));
            x.o.bucket_mb = 1e6; /* one bucket, behind the backward pass */
            const nnc_partition_row one = zero_row(&x, "zero1"), two = zero_row(&x, "zero2");
            int64_t gather = 0, small = row_range(x.m.cost.small, 0, x.m.n_block);
            for (int b = 0; b <= x.m.n_block; b++) { /* a large weight by itself, others together */
                const int64_t bytes =
                    b < x.m.n_block ? x.m.cost.gradients[b] - x.m.cost.small[b] : small;
                gather +=
                    bytes ? nnc_ceildiv(nnc_links_allreduce(&links, devices, 2, bytes), 2) : 0;
            }
            CHECK(gather >= half && small > 0);
            CHECK_INT(one.exposed_ns, half + gather);
            CHECK_INT(two.exposed_ns, 4 * half + gather);
            const int64_t copies = nnc_target_time_ns(x.t.target, 0, 2 * trained);
            CHECK_INT(two.iteration_ns - one.iteration_ns, 3 * (half + copies));
            /* shards, as in the ZeRO paper; stage 3 also gathers two blocks */
            const nnc_partition_row three = zero_row(&x, "zero3");
            int64_t largest = 0;
            for (int b = 0; b < x.m.n_block; b++)
                largest = nnc_max64(largest, x.m.cost.weights[b]);
            const int64_t states = row_range(x.m.cost.states, 0, x.m.n_block);
            CHECK_INT(one.use[0].fill[FILLED_optimizer], nnc_ceildiv(states, 2));
            CHECK_INT(one.use[0].fill[FILLED_gradients], trained);
            CHECK_INT(two.use[0].fill[FILLED_gradients], nnc_ceildiv(trained, 2));
            CHECK_INT(two.use[0].fill[FILLED_weights], weights);
            CHECK_INT(three.use[0].fill[FILLED_weights], nnc_ceildiv(weights, 2) + 2 * largest);
        }
        end(&x);
    }
}

/* Of plain SGD on a GPU, products add gradients to the weights: strategies have what is between the two, so they count as gradients. */
TEST(gradients_that_update_are_gradients)
{
    int64_t weight[2] = {0}, optimizer[2] = {0};
    for (int k = 0; k < 2; k++) {
        const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = k ? 0.9 : 0};
        made x;
        if (make_with(&x, "mlp", &training, 2, NULL, "models/hardware/h100x8.json"))
            for (int b = 0; b < x.m.n_block; b++) {
                weight[k] += x.m.cost.weight[b];
                optimizer[k] += x.m.cost.optimizer[b];
            }
        end(&x);
    }
    CHECK(weight[0] > 0 && weight[0] * 2 > weight[1] && optimizer[0] < optimizer[1]);
}

/* Computing is slowed while a collective runs, at stage 3 as at the others: by the share of the time that the links hide. */
TEST(collectives_slow_zero_3_down)
{
    static const double factor[] = {1.001, 1.25, 2};
    made x;
    if (make(&x, "mlp", true, 2, NULL)) {
        x.o.link_gbs = 100; /* less than a block takes */
        x.o.link_us = -1;
        const nnc_partition_row bare = zero_row(&x, "zero3");
        for (size_t i = 0; i < NNC_COUNT(factor); i++) {
            x.o.slowdown = factor[i];
            const nnc_partition_row slow = zero_row(&x, "zero3");
            const double lost = (double)(slow.iteration_ns - bare.iteration_ns),
                         expected = (double)bare.hidden_ns * (factor[i] - 1) / factor[i];
            if (fabs(lost - expected) > 60 + 0.01 * expected)
                test_fail(__FILE__, __LINE__, "slowed by %g: %.0f ns, expected %.0f", factor[i],
                    lost, expected);
        }
    }
    end(&x);
}

/* The plan of one micro-batch, whatever the number that a step of the training takes. */
TEST(sums_of_gradients_are_not_states)
{
    made x[2];
    for (int i = 0; i < 2; i++) {
        const nnc_training training = {
            NNC_TRAINING_DEFAULTS, .momentum = 0.9, .accumulate = i ? 4 : 1};
        if (make_with(&x[i], "mlp", &training, 2, NULL, NULL)) {
            const nnc_layer_costs *of = &x[i].m.cost;
            const int n = x[i].m.n_block;
            CHECK_INT(row_range(of->states, 0, n), row_range(of->gradients, 0, n));
        }
    }
    CHECK_INT(x[0].m.plan_bytes, x[1].m.plan_bytes);
    end(&x[0]);
    end(&x[1]);
}

/* Evaluates the strategies, by estimates and then by their plans. Returns the ratio of the estimates to the plans' times by row, NaN where
 * there is no plan. */
static const double *simulate(
    made *x, const char *const *strategy, int n, const nnc_training *training)
{
    x->o.strategy = strategy;
    x->o.n_strategy = n;
    x->t.training = training;
    CHECK_OK(nnc_partition_fill_table(&x->t, &x->a, test_sink));
    double *ratio = ARENA_NEW(&x->a, double, n + 1);
    for (int k = 0; k < x->t.n_row; k++)
        ratio[k] = (double)x->t.row[k].iteration_ns;
    CHECK_OK(nnc_partition_simulate(x->env, x->model, training, &x->t, &x->a, test_sink));
    for (int k = 0; k < x->t.n_row; k++)
        ratio[k] = x->t.row[k].simulated_shares ? ratio[k] / (double)x->t.row[k].iteration_ns : NAN;
    return ratio;
}

/* Replicas of GPUs: what the estimate says of collectives beside the backward pass, or after it, the plan does. */
TEST(reduced_gradients_are_estimated_as_planned)
{
    static const char *const strategy[] = {"data", "zero1", "zero2"};
    static const double mb[] = {0, 1};
    for (int i = 0; i < 4; i++) {
        const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
        made x;
        if (make_on(&x, "transformer_mlp", true, 2 + 2 * (i / 2), NULL,
                "models/hardware/h100x8.json")) {
            x.o.bucket_mb = mb[i % 2];
            const double *ratio = simulate(&x, strategy, NNC_COUNT(strategy), &training);
            for (int k = 0; k < x.t.n_row; k++) {
                const nnc_partition_row *r = &x.t.row[k];
                const double off = ratio[k] - 1;
                CHECK_INT(r->way.streams, k < 2 ? 2 : 0);
                CHECK_INT(r->way.runs, k < 2 ? 1 : x.t.micro / x.t.devices);
                if (!(fabs(off) < 0.15))
                    test_fail(__FILE__, __LINE__,
                        "%s on %d devices, buckets of %g MB: off by %+.1f %%", r->strategy,
                        x.t.devices, mb[i % 2], off * 100);
            }
        }
        end(&x);
    }
}

/* Simulated rows are of plans: in inference what was estimated of the same placement, in a step of placed layers nearly that. */
TEST(executed_strategies_are_simulated)
{
    static const char *const strategy[] = {
        "single", "manual", "sequential", "branches", "data", "tensor", "spatial"};
    static const char *const machine[] = {
        "models/hardware/cpu.json", "models/hardware/v100x8.json"};
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    for (int i = 0; i < 4; i++) {
        made x;
        const bool step = i & 1;
        if (make_on(&x, "mlp", step, 2, "0-3=0,4-=1", machine[i / 2])) {
            const double *ratio =
                simulate(&x, strategy, NNC_COUNT(strategy), step ? &training : NULL);
            for (int k = 0; k < x.t.n_row; k++) {
                const nnc_partition_row *r = &x.t.row[k];
                const bool data = !strcmp(r->strategy, "data"),
                           split = !strcmp(r->strategy, "tensor"), placed = k < 3;
                CHECK_INT(r->simulated_shares != NULL, !r->why_not);
                CHECK_INT(r->planned, r->simulated_shares != NULL);
                CHECK(!r->not_simulated); /* the planner refuses none */
                CHECK_INT(r->why_not != NULL,
                    !strcmp(r->strategy, "spatial") || (step && !strcmp(r->strategy, "branches")));
                const double off = r->planned ? 1 / ratio[k] - 1 : 0;
                /* inference by data sends parts of one batch, which the estimate leaves to who has the batch */
                if ((step ? placed : !data) && fabs(off) > (split || step ? 0.1 : 0.01))
                    test_fail(
                        __FILE__, __LINE__, "%s takes %+.2f %% simulated", r->strategy, off * 100);
            }
        }
        end(&x);
    }
}

/* A chain of small layers, of rows or images, that ends in ten features. */
static nnc_model *draw(uint64_t key)
{
    static const char *const layer[][4] = {
        {"\"gelu\"", "{\"op\": \"linear\", \"out\": \"width\"}", "\"layernorm\"",
            "{\"op\": \"softmax\", \"axis\": 1}"},
        {"\"relu\"", "{\"op\": \"conv\", \"channels\": \"width\", \"kernel\": 3, \"pad\": 1}",
            "\"batchnorm\"", "{\"op\": \"conv\", \"channels\": \"width\", \"kernel\": 1}"}};
    NNC_LOCAL(nnc_text) t = {0};
    uint64_t at = 0;
    const uint32_t image = nnc_rng_u32(key, at++) % 2, batch = 1 + nnc_rng_u32(key, at++) % 8,
                   width = 8u << nnc_rng_u32(key, at++) % 5, n = 1 + nnc_rng_u32(key, at++) % 6;
    nnc_printf(&t,
        "{\"name\": \"drawn\", \"args\": {\"width\": {\"default\": %u}}, "
        "\"inputs\": {\"x\": {\"shape\": [%u, %s]}}, \"layers\": [",
        width, batch, image ? "3, 16, 16" : "32");
    for (uint32_t i = 0; i < n; i++)
        nnc_printf(&t, "%s, ", layer[image][nnc_rng_u32(key, at++) % 4]);
    nnc_printf(&t, "%s{\"op\": \"linear\", \"out\": 10}]}", image ? "\"flatten\", " : "");
    nnc_model *m = nnc_model_parse("drawn", nnc_text_str(&t), t.n, NULL, test_sink);
    CHECK(m != NULL);
    return m;
}

/* The row's time is that of the plan that nnc executes for it. */
static void check_planned(const made *x, const nnc_partition_row *r, const nnc_training *training)
{
    nnc_artifact *a = NULL;
    int64_t ps[2] = {0};
    int runs = 0;
    CHECK_OK(
        nnc_partition_execution(x->env, x->model, training, &x->t, r, false, &a, &runs, test_sink));
    for (int last = 0; last < 2 && a; last++) {
        const nnc_sim_plan_options o = {
            .first = SEC_main, .last = last || !training ? SEC_step : SEC_accumulate};
        nnc_sim_plan s;
        CHECK_OK(nnc_sim_plan_run(&s, a->plan, x->t.cluster, &o, test_sink));
        ps[last] = s.total_ps;
        nnc_sim_plan_deinit(&s);
    }
    CHECK_INT(r->iteration_ns, nnc_ceildiv(ps[1] + (runs - 1) * ps[0], 1000));
    nnc_artifact_destroy(a);
}

/* Also where launches, copies and collectives take most of the time. Estimates, by which cuts are chosen, are within 2.5 times. Those of
 * replicas lack the parts of the batch that are sent, and a step's counts of targets. */
TEST(drawn_models_take_what_their_plans_take)
{
    static const char *const strategy[] = {"single", "sequential", "branches", "pipeline", "data",
        "channel", "gpipe", "1f1b", "zero1"};
    static const char *const machine[] = {
        "models/hardware/cpu.json", "models/hardware/v100x8.json", "models/hardware/h100x8.json"};
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    for (int i = 0; i < test_draws(48); i++) {
        const uint64_t key = nnc_rng_key("estimate", test_seed + (uint64_t)i);
        const nnc_training *with = i & 1 ? &training : NULL;
        made x;
        if (make_of(&x, draw(key), with, 2 + i / 2 % 3, machine[i % 3])) {
            const double *ratio = simulate(&x, strategy, NNC_COUNT(strategy), with);
            for (int k = 0; k < x.t.n_row; k++) {
                const nnc_partition_row *r = &x.t.row[k];
                CHECK(!r->simulated_shares == isnan(ratio[k]));
                if (r->simulated_shares)
                    check_planned(&x, r, with);
                if (ratio[k] < (r->way.replicas > 1 ? 0.1 : 0.4) || ratio[k] > 2.5)
                    test_fail(__FILE__, __LINE__, "draw %d, %s on %d of %s: estimate / plan %.3f",
                        i, r->strategy, x.t.devices, machine[i % 3], ratio[k]);
            }
        }
        end(&x);
    }
}

/* Splits: the estimate, by tasks of devices that wait for each other, is near what the plan takes. */
TEST(splits_are_estimated_as_planned)
{
    static const char *const strategy[] = {"channel", "spatial"};
    static const struct {
        const char *model, *hardware;
        bool step;
        int devices;
        double off; /* at most */
    } of[] = {{"vgg16", "models/hardware/cpu.json", false, 2, 0.1},
        {"vgg16", "models/hardware/cpu.json", true, 4, 0.15},
        {"vgg16", "models/hardware/h100x8.json", true, 2, 0.1},
        {"resnet50", "models/hardware/a100x8.json", false, 2, 0.05},
        {"unet", "models/hardware/gtx1080ti_x2.json", true, 2, 0.1}};
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        made x;
        if (make_on(&x, of[i].model, of[i].step, of[i].devices, NULL, of[i].hardware)) {
            const double *ratio =
                simulate(&x, strategy, NNC_COUNT(strategy), of[i].step ? &training : NULL);
            for (int k = 0; k < x.t.n_row; k++) {
                const nnc_partition_row *r = &x.t.row[k];
                const double off = ratio[k] - 1;
                if (!r->why_not && !(fabs(off) < of[i].off))
                    test_fail(__FILE__, __LINE__, "%s of %s, case %zu: off by %+.1f %%",
                        r->strategy, of[i].model, i, off * 100);
            }
        }
        end(&x);
    }
}

/* Halves of an image, or of a batch, are computed at the same time. A device does its own work before it waits for the other's. */
TEST(devices_work_at_the_same_time)
{
    static const char *const strategy[] = {"single", "spatial", "data"}, *const model[] = {
                                                                             "vgg16", "unet"};
    for (size_t i = 0; i < NNC_COUNT(model); i++) {
        made x;
        if (make_on(&x, model[i], false, 2, NULL, "models/hardware/cpu.json")) {
            (void)simulate(&x, strategy, NNC_COUNT(strategy), NULL);
            for (int k = 1; k < x.t.n_row; k++) {
                const nnc_partition_row *r = &x.t.row[k];
                const nnc_shares *is = r->simulated_shares;
                const double least = is ? (double)nnc_max64(nnc_shares_computing(&is[0]),
                                              nnc_shares_computing(&is[1])) *
                                              1e-3
                                        : 0;
                if (!((double)r->iteration_ns <= 1.25 * least) ||
                    r->iteration_ns > x.t.row[0].iteration_ns)
                    test_fail(__FILE__, __LINE__,
                        "%s, %s: %.2f ms, on one device %.2f, computing "
                        "%.2f",
                        model[i], r->strategy, (double)r->iteration_ns * 1e-6,
                        (double)x.t.row[0].iteration_ns * 1e-6, least * 1e-6);
            }
        }
        end(&x);
    }
}

/* Rows of one plan share its simulation: the numbers are those of each alone. */
TEST(equal_plans_are_simulated_once)
{
    static const char *const strategy[] = {"1f1b", "cut-time", "zb-h1"};
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    made x;
    if (make_on(&x, "mlp", true, 2, NULL, "models/hardware/cpu.json")) {
        int64_t ns[NNC_COUNT(strategy)];
        for (size_t k = 0; k <= NNC_COUNT(strategy); k++) { /* each alone, then all */
            const bool all = k == NNC_COUNT(strategy);
            x.o.strategy = &strategy[all ? 0 : k];
            x.o.n_strategy = all ? NNC_COUNT(strategy) : 1;
            x.t.n_row = 0;
            CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
            CHECK_OK(nnc_partition_simulate(x.env, x.model, &training, &x.t, &x.a, test_sink));
            for (int i = 0; all && i < x.t.n_row; i++)
                CHECK_INT(x.t.row[i].iteration_ns, ns[i]);
            if (!all)
                ns[k] = x.t.row[0].iteration_ns;
        }
        const nnc_partition_row *r = x.t.row;
        CHECK(r[0].simulated_shares && r[0].simulated_shares == r[1].simulated_shares);
        CHECK(r[2].simulated_shares != r[0].simulated_shares && ns[2] != ns[0]);
    }
    end(&x);
}

static void drop_timelines(made *x)
{
    for (int i = 0; i < x->t.n_row; i++)
        nnc_timeline_destroy(x->t.row[i].timeline);
}

/* A model in chunks computes in all of them. Its timeline is the estimate's, without levels of memory. */
TEST(chunks_are_simulated)
{
    static const char json[] =
        "{\"inputs\": {\"x\": [4000000, 3, 224, 224]}, \"layers\": [\"relu\"]}",
                      *const strategy[] = {"single"};
    made x;
    if (make_of(&x, nnc_model_parse("chunked", json, strlen(json), NULL, test_sink), NULL, 1,
            "models/hardware/gtx1080ti_x2.json")) {
        x.o.svg = "folder";
        const double *ratio = simulate(&x, strategy, 1, NULL);
        const nnc_partition_row *r = x.t.row;
        CHECK(r->planned && r->fits && fabs(ratio[0] - 1) < 0.01);
        CHECK(fabs(r->bubble) < 0.01 && r->use[0].busy_ns > r->iteration_ns / 100 * 99);
        CHECK(r->timeline && !r->timeline->n_level);
        drop_timelines(&x);
    }
    end(&x);
}

/* What of a device's time a timeline says is computing. */
static int64_t computed_ns(const nnc_timeline *t, int device)
{
    return (nnc_timeline_busy(t, device) + 500) / 1000;
}

/* A row's timeline ends when the row says, devices are busy as long as it says, and none does two things in one lane. Links take nothing
 * from computing here, so data parallelism's backward pass is as long as without. */
static void check_timeline(const made *x, const nnc_partition_row *r, const char *name)
{
    const nnc_timeline *t = r->timeline;
    CHECK_INT((t->total_ps + 500) / 1000, r->iteration_ns);
    /* a combination's row adds its stages' costs up, apart from the schedule that is drawn, whose passes have a tensor group's
     * collectives */
    const nnc_search_result *best = r->search ? &r->search->found.best[0] : NULL;
    const int64_t moves =
        r->id == NNC_STRATEGY_auto && best && best->c.pipeline == 1 ? best->tensor : 0;
    for (int d = 0; d < x->t.devices; d++)
        if (r->search)
            CHECK(fabs((double)(computed_ns(t, d) - r->use[d].busy_ns - moves)) <=
                  0.02 * (double)r->use[d].busy_ns);
        else
            CHECK_INT(computed_ns(t, d), r->use[d].busy_ns);
    for (int i = 0; i < t->n_arrow; i++)
        CHECK(t->span[t->arrow[i].from].end_ps <= t->span[t->arrow[i].to].start_ps);
    if (test_failures)
        test_fail(__FILE__, __LINE__, "timeline of %s, %s", r->strategy, name);
}

TEST(timelines_are_those_of_their_rows)
{
    static const char *const model[] = {"mlp", "googlenet"};
    for (size_t i = 0; i < NNC_COUNT(model); i++)
        for (int step = 0; step < 2 && !test_failures; step++) {
            made x;
            if (make(&x, model[i], step, 3, NULL)) {
                x.o.svg = "folder";
                CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
                for (int k = 0; k < x.t.n_row; k++) {
                    const nnc_partition_row *r = &x.t.row[k];
                    CHECK_INT(r->timeline != NULL, !r->why_not);
                    if (r->timeline)
                        check_timeline(&x, r, model[i]);
                }
                drop_timelines(&x);
            }
            end(&x);
        }
}

/* Tasks of a pipeline: forward and backward of each micro-batch on each device, and one transfer of each over each boundary and back. */
TEST(a_pipelines_timeline_has_its_tasks)
{
    static const char *const strategy[] = {"1f1b"};
    made x;
    if (make(&x, "mlp", true, 3, NULL)) {
        int n[WORK__COUNT] = {0};
        x.o.svg = "folder";
        x.o.strategy = strategy;
        x.o.n_strategy = 1;
        CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
        const nnc_timeline *t = x.t.row[0].timeline;
        for (int i = 0; t && i < t->n_span; i++)
            n[t->span[i].kind]++;
        for (int k = WORK_forward; k <= WORK_weight; k++) /* the latter after the send */
            CHECK_INT(n[k], 3 * x.t.micro);
        CHECK_INT(n[WORK_communication], 2 * 2 * x.t.micro);
        CHECK_INT(t ? t->n_arrow : 0, 2 * 2 * x.t.micro);
        drop_timelines(&x);
    }
    end(&x);
}

/* The simulated plan's timeline: as long as the row says, memory that begins and ends with the weights, and never above the row's. */
TEST(simulated_timelines)
{
    static const char *const strategy[] = {"single", "sequential", "data"};
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    made x;
    if (make_on(&x, "mlp", true, 2, NULL, "models/hardware/cpu.json")) {
        x.o.trace = "file";
        (void)simulate(&x, strategy, NNC_COUNT(strategy), &training);
        for (int k = 0; k < x.t.n_row; k++) {
            const nnc_partition_row *r = &x.t.row[k];
            const nnc_timeline *t = r->timeline;
            int64_t most = 0;
            bool update = false, sends = false;
            CHECK(t != NULL);
            if (!t)
                continue;
            CHECK_INT((t->total_ps + 999) / 1000, r->iteration_ns);
            for (int i = 0; i < t->n_level; i++) {
                int64_t sum = 0;
                for (int j = 0; j < HOLD__COUNT; j++) {
                    CHECK(t->level[i].bytes[j] >= 0);
                    sum += t->level[i].bytes[j];
                }
                most = nnc_max64(most, sum);
            }
            CHECK(most > 0 && most <= nnc_partition_fullest(&x.t, r));
            for (int d = 0; d < t->n_device; d++) { /* weights are there from the beginning on */
                int first = 0;
                while (first < t->n_level && t->level[first].device != d)
                    first++;
                CHECK(first < t->n_level && t->level[first].ps == 0 &&
                      t->level[first].bytes[HOLD_weights] > 0);
            }
            for (int i = 0; i < t->n_span; i++) {
                update = update || t->span[i].kind == WORK_update;
                sends = sends || t->span[i].kind == WORK_communication;
            }
            CHECK(update);
            CHECK_INT(sends, k > 0);
        }
        drop_timelines(&x);
    }
    end(&x);
}

/* Faster links never cost time, as far as a strategy is planned for them; and each factor is there. */
TEST(sensitivity_to_bandwidth)
{
    made x;
    int searches = 0;
    if (make(&x, "vgg16", true, 4, NULL)) {
        x.o.sensitivity = true;
        CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
        CHECK_OK(nnc_partition_sense(&x.t, &x.a, test_sink));
        for (int k = 0; k < x.t.n_row; k++) {
            const nnc_partition_row *r = &x.t.row[k];
            const int64_t *at = r->at_bandwidth_ns;
            if (r->why_not)
                continue;
            const int64_t all[] = {at[0], at[1], r->iteration_ns, at[2], at[3]};
            const bool exact = !strcmp(r->strategy, "single") || !strncmp(r->strategy, "zero", 4) ||
                               !strcmp(r->strategy, "data") || !strcmp(r->strategy, "sequential");
            for (int i = 1; i < 5; i++) {
                CHECK(all[i] > 0 && all[i - 1] > 0);
                if (exact && all[i] > all[i - 1])
                    test_fail(__FILE__, __LINE__, "%s: faster links take longer", r->strategy);
            }
            if (exact) /* all but one device's work waits for its links */
                CHECK(strcmp(r->strategy, "single") ? all[0] > all[4] : all[0] == all[4]);
            searches += r->search && all[0] > all[2] && all[2] >= all[4];
        }
        CHECK_INT(searches, 2);
    }
    end(&x);
}

/* A simulation whose allocations fail says so, and nothing is called refused for it. */
TEST(simulated_out_of_memory)
{
    static const char *const strategy[] = {"sequential"};
    nnc_status st = NNC_E_NOMEM;
    made x;
    if (make_on(&x, "mlp", false, 2, NULL, "models/hardware/v100x8.json")) {
        x.o.strategy = strategy;
        x.o.n_strategy = 1;
        CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
        for (int64_t k = 1; st == NNC_E_NOMEM && k < 20000; k += 1 + k / 8) {
            x.t.row[0].simulated_shares = NULL;
            nnc_sink_clear(test_sink);
            nnc_fail_alloc_after(k);
            st = nnc_partition_simulate(x.env, x.model, NULL, &x.t, &x.a, test_sink);
            nnc_fail_alloc_after(0);
            CHECK(!x.t.row[0].not_simulated);
            CHECK(st ? nnc_sink_errors(test_sink) > 0 : x.t.row[0].simulated_shares != NULL);
        }
        CHECK_OK(st);
    }
    end(&x);
}

/* GPUs of a DGX-1 are linked unequally. */
TEST(described_links)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_cluster *v100 = nnc_cluster_load("models/hardware/v100x8.json", test_sink);
    nnc_partition_table t = {.cluster = v100};
    const nnc_flat_links flat = {1, 1};
    rows r = {.t = &t, .n = 8, .a = &a, .sink = test_sink, .flat = &flat};
    CHECK(v100);
    CHECK_OK(row_make_links(&r));
    for (int i = 0; i < 8 * 8; i++)
        for (int64_t bytes = 1; bytes < INT64_C(1) << 34; bytes *= 37)
            if (i / 8 != i % 8)
                CHECK_INT(nnc_links_p2p(&r.links, i / 8, i % 8, bytes),
                    nnc_ceildiv(nnc_cluster_p2p_ps(v100, i / 8, i % 8, bytes), 1000));
    CHECK(nnc_links_p2p(&r.links, 0, 3, 1 << 30) < nnc_links_p2p(&r.links, 0, 5, 1 << 30));
    nnc_cluster_destroy(v100);
}

/* Between devices a placed step moves the activation at the cut and its gradient, not weights: each device updates its own. */
TEST(a_placed_step_updates_weights_where_they_are)
{
    const nnc_training training[] = {{NNC_TRAINING_DEFAULTS},
        {NNC_TRAINING_DEFAULTS, .momentum = 0.9},
        {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adamw, .weight_decay = 0.01}};
    nnc_env *e;
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    for (size_t i = 0; i < NNC_COUNT(training); i++) {
        nnc_model *m = open("mlp", "0-3=0,4-=1");
        nnc_compile_options o = nnc_compile_defaults;
        nnc_graph *step = NULL;
        nnc_artifact *a = NULL;
        int64_t moved = 0;
        o.devices = 2;
        CHECK_OK(nnc_train_graph(m, &training[i], &step, test_sink));
        CHECK_OK(nnc_compile(e, step, &o, &a, test_sink));
        const nnc_plan *p = a->plan;
        for (int k = nnc_plan_first(p, SEC_main); k < p->n_cmd; k++) {
            const nnc_cmd *c = &p->cmd[k];
            if (c->kind == CMD_copy && p->tensor[c->arg[0]].device != p->tensor[c->arg[1]].device)
                moved += c->bytes / 2; /* read and written */
        }
        CHECK(moved >= 2 * 256 * 512 * 4 && moved < 2 * 256 * 512 * 4 + 256); /* and scalars: lr */
        CHECK(p->device[0].persist_bytes > p->device[1].persist_bytes);
        nnc_artifact_destroy(a);
        nnc_graph_destroy(step);
        nnc_model_close(m);
    }
    nnc_env_destroy(e);
}
