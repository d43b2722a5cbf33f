/* tests/api/partition_auto.c -- the strategy `auto` on models. It is no worse than the strategies that it contains, and near the
 * simulator. Also communication of groups of devices, memory of plans, and where memory runs out. */
#include "api/help.h"
#include "session/session.h"
#include "strategy/auto.h"
#include "strategy/strategy.h"
#include "train/train.h"

typedef struct subject {
    nnc_env *env;
    nnc_model *model;
    nnc_arena a;
    nnc_partition_model m;
    nnc_partition_options o;
    nnc_partition_table t;
} subject;

static bool make(subject *x, const char *file, const char *arg, const char *value,
    const char *tokens, const char *hardware, bool step, int devices, int micro)
{
    static const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    const nnc_arg set[] = {{arg, value}, {"tokens", tokens}};
    nnc_env_options env = nnc_env_defaults;
    nnc_open_options open = nnc_open_defaults;
    memset(x, 0, sizeof *x);
    env.hardware = hardware;
    env.cache_dir = test_cache();
    env.no_cache = !test_cache();
    open.arg = set;
    open.n_arg = (arg != NULL) + (tokens != NULL);
    CHECK_OK(nnc_env_create(&env, &x->env, test_sink));
    x->model = nnc_model_open(file, &open, test_sink);
    nnc_arena_init(&x->a, 0);
    x->o.compile = nnc_compile_defaults;
    const nnc_status st = nnc_partition_measure(
        x->env, x->model, step ? &training : NULL, &x->o, &x->m, &x->a, test_sink);
    CHECK_OK(st);
    x->t = (nnc_partition_table){.m = &x->m,
        .graph = x->model,
        .training = step ? &training : NULL,
        .o = &x->o,
        .target = &x->env->target[0],
        .cluster = x->env->cluster,
        .devices = devices,
        .micro = micro};
    return !st && !nnc_partition_fill_table(&x->t, &x->a, test_sink);
}

static void end(subject *x)
{
    nnc_arena_deinit(&x->a);
    nnc_model_close(x->model);
    nnc_env_destroy(x->env);
}

static const nnc_partition_row *find_auto(const subject *x)
{
    for (int i = 0; i < x->t.n_row; i++)
        if (x->t.row[i].search)
            return &x->t.row[i];
    test_fail(__FILE__, __LINE__, "no row of auto");
    return NULL;
}

static int64_t estimated_ns(const nnc_auto_search *s)
{
    int64_t least = INT64_MAX;
    for (int k = 0; k < s->found.n; k++)
        least = nnc_min64(least, s->found.best[k].ns);
    return least;
}

static void check_search(const subject *x, const nnc_partition_row *row, const char *name)
{
    const nnc_auto_search *s = row->search;
    int64_t last = 0;
    for (int k = 0; k < s->found.n; k++) {
        const nnc_search_result *r = &s->found.best[k];
        const nnc_combination *c = &r->c;
        CHECK(c->data * c->tensor * c->pipeline <= x->t.devices);
        CHECK_INT((int64_t)c->data * c->micro * c->size, x->t.micro * x->m.batch);
        CHECK_INT(r->ns, r->compute + r->tensor + r->bubble + r->send + r->data + r->optimizer);
        CHECK(r->bytes <= nnc_partition_capacity(&x->t));
        const int64_t simulated = r->clock_ns;
        CHECK(simulated ? simulated >= last : r->ns >= last);
        last = simulated ? simulated : r->ns;
        /* the estimate shares no links among different transfers, and reduces gradients beside the last pass only */
        if (simulated &&
            ((double)simulated > 1.15 * (double)r->ns || (double)simulated < 0.9 * (double)r->ns))
            test_fail(__FILE__, __LINE__, "%s: %s: simulated %lld, estimated %lld", name,
                s->name[k], (long long)simulated, (long long)r->ns);
    }
    /* the row has the clock's time; CPUs share cores, and runs of plans take time beside it */
    if (s->found.best[0].clock_ns && !row->way.runs && x->t.target->kind == NNC_T_cuda)
        CHECK_INT(row->iteration_ns, s->found.best[0].clock_ns);
    /* `auto` contains these, of the same ledger; tasks hide some of ZeRO-3's gathers that its estimate counts. */
    for (int i = 0; i < x->t.n_row; i++) {
        static const char *const contained[] = {"single", "data", "zero1", "zero2", "zero3",
            "interleaved", "gpipe", "1f1b", "zb-h1", "zb-h2", "pipeline"};
        const nnc_partition_row *other = &x->t.row[i];
        for (size_t k = 0; k < NNC_COUNT(contained); k++)
            if (!strcmp(other->strategy, contained[k]) && !other->why_not && other->fits &&
                (double)estimated_ns(s) > 1.002 * (double)other->iteration_ns)
                test_fail(__FILE__, __LINE__, "%s: auto %lld, %s %lld", name,
                    (long long)estimated_ns(s), contained[k], (long long)other->iteration_ns);
    }
    for (int d = 0; d < x->t.devices; d++)
        CHECK(row->use[d].busy_ns <= row->iteration_ns);
    CHECK(s->found.tried >= s->found.evaluated && s->found.evaluated >= s->found.n);
}

/* A plan has one estimate, whichever strategy finds it. */
static int check_same_plan(const subject *x, const char *name)
{
    int same = 0;
    for (int i = 0; i < x->t.n_row; i++)
        for (int k = 0; k < i; k++) {
            const nnc_partition_row *a = &x->t.row[i], *b = &x->t.row[k];
            const nnc_partition_way *v = &a->way, *w = &b->way;
            const bool strategy = v->strategy && v->strategy == w->strategy,
                       place = a->place && b->place ? !strcmp(a->place, b->place)
                                                    : a->place == b->place;
            if (strncmp(a->strategy, "hybrid", 6) != 0 || b->search || !strategy || !place ||
                v->runs != w->runs || v->devices != w->devices || v->replicas != w->replicas ||
                v->micro != w->micro || v->zero != w->zero || v->streams != w->streams ||
                (v->chunks > 0 ? v->chunks : 2) != (w->chunks > 0 ? w->chunks : 2))
                continue;
            same++;
            CHECK_INT(a->iteration_ns, b->iteration_ns);
            CHECK_INT(a->exposed_ns, b->exposed_ns);
            for (int d = 0; d < x->t.devices; d++)
                CHECK_INT(a->use[d].bytes, b->use[d].bytes);
            if (test_failures)
                test_fail(__FILE__, __LINE__, "%s: %s and %s are one plan", name, a->strategy,
                    b->strategy);
        }
    return same;
}

TEST(auto_is_no_worse_than_what_it_contains)
{
    static const struct {
        const char *file, *arg, *value, *hardware;
        bool step;
        int devices, micro;
    } row[] = {
        {"models/vgg16.json", "image", "32", "models/hardware/a100x8.json", true, 4, 16},
        {"models/vgg16.json", "image", "64", "models/hardware/p40x8.json", true, 8, 32},
        {"models/mlp.json", NULL, NULL, "models/hardware/cpu.json", true, 4, 8},
        {"models/resnet50.json", "image", "32", "models/hardware/v100x8.json", false, 8, 8},
        {"models/transformer_mlp.json", "dim", "256", "models/hardware/h100x1024.json", true, 32,
            64},
        {"models/bert_base.json", "layers", "3", "models/hardware/h100x1024.json", true, 16, 32},
    };
    int same = 0;
    for (size_t i = 0; i < NNC_COUNT(row); i++) {
        subject x;
        if (make(&x, row[i].file, row[i].arg, row[i].value, NULL, row[i].hardware, row[i].step,
                row[i].devices, row[i].micro)) {
            const nnc_partition_row *r = find_auto(&x);
            if (r)
                check_search(&x, r, row[i].file);
            same += check_same_plan(&x, row[i].file);
        } else
            test_fail(__FILE__, __LINE__, "%s", row[i].file);
        end(&x);
    }
    CHECK(same >= 2);
}

/* A transformer's blocks are divided by features, as nnc splits them. Each layer and direction has collectives, and half of the weights
 * and nearly of the time. */
TEST(transformers_are_divided_by_features)
{
    subject x;
    if (make(&x, "models/bert_base.json", "layers", "2", "512", "models/hardware/h100x1024.json",
            true, 8, 8)) {
        const nnc_flat_links flat = {INT64_C(1) << 40, 1};
        rows r = {
            .t = &x.t, .m = &x.m, .n = 8, .micro = 8, .a = &x.a, .sink = test_sink, .flat = &flat};
        row_split_cost split;
        nnc_search_costs one, two;
        bool ok = false;
        CHECK_OK(row_make_links(&r));
        CHECK_OK(row_split_costs(&r, NNC_STRATEGY_channel, 2, &split, &ok));
        CHECK(ok);
        CHECK_OK(auto_costs(&r, &x.m, 1, NULL, &one));
        CHECK_OK(auto_costs(&r, &x.m, 2, &split, &two));
        int forward = 0, backward = 0;
        int64_t all = 0, part = 0, whole = 0, half = 0;
        for (int b = 0; b < x.m.n_block; b++) {
            forward += two.forward_comm[b] > 0;
            backward += two.backward_comm[b] > 0;
            all += one.weights[b];
            part += two.weights[b];
            whole += one.forward[b] + one.backward[b] + one.weight[b];
            half += two.forward[b] + two.backward[b] + two.weight[b];
        }
        const int64_t tables = (INT64_C(30522) + 2 + 512) * 768 * 4; /* embeddings stay whole */
        CHECK(forward >= 4);
        CHECK(backward >= 4);
        CHECK((double)(part - tables) < 0.54 * (double)(all - tables));
        CHECK((double)half < 0.75 * (double)whole);
    }
    end(&x);
}

TEST(groups_of_devices_communicate)
{
    subject x;
    if (make(&x, "models/mlp.json", NULL, NULL, NULL, "models/hardware/h100x1024.json", false, 64,
            64)) {
        const nnc_flat_links flat = {INT64_C(10000000000), 5000};
        rows r = {.t = &x.t, .m = &x.m, .n = 64, .a = &x.a, .sink = test_sink, .flat = &flat};
        const nnc_search_links l = auto_search_links(auto_links_make(&r, 1));
        const int64_t bytes = 100 << 20;
        /* there and back, within a node, to the next node and far away */
        static const int pair[][2] = {{0, 1}, {3, 6}, {1, 9}, {7, 8}, {0, 63}};
        for (size_t i = 0; i < NNC_COUNT(pair); i++) {
            const int64_t there = l.send_ns(l.ctx, pair[i][0], pair[i][1], 1, bytes),
                          back = l.send_ns(l.ctx, pair[i][1], pair[i][0], 1, bytes);
            CHECK_INT(there, back);
            CHECK(there > 0 && there < 100000000);
        }
        CHECK(l.send_ns(l.ctx, 0, 1, 1, bytes) < l.send_ns(l.ctx, 0, 8, 1, bytes));
        /* eight NICs for eight GPUs: groups of one GPU in each node do not disturb each other */
        const int64_t rail = l.collective_ns(l.ctx, SEARCH_allreduce, 0, 8, 8, 1, bytes);
        CHECK_INT(l.collective_ns(l.ctx, SEARCH_allreduce, 0, 8, 8, 8, bytes), rail);
        CHECK_INT(l.collective_ns(l.ctx, SEARCH_allreduce, 3, 8, 8, 1, bytes), rail);
        /* of two halves of a node, neither */
        CHECK_INT(auto_tensor_ns((const auto_links *)l.ctx, SEARCH_allreduce, 4, bytes),
            l.collective_ns(l.ctx, SEARCH_allreduce, 0, 1, 4, 1, bytes));
        int64_t before = 0;
        for (int64_t n = 1; n < INT64_C(1) << 36; n += 1 + n / 3) {
            const int64_t ns = l.collective_ns(l.ctx, SEARCH_reduce_scatter, 0, 1, 64, 1, n);
            CHECK(ns >= before);
            before = ns;
        }
    }
    end(&x);
    /* 8 K80 of a node share one Ethernet link */
    if (make(
            &x, "models/mlp.json", NULL, NULL, NULL, "models/hardware/k80x8.json", false, 16, 16)) {
        const nnc_flat_links flat = {1, 1};
        rows r = {.t = &x.t, .m = &x.m, .n = 16, .a = &x.a, .sink = test_sink, .flat = &flat};
        const nnc_search_links l = auto_search_links(auto_links_make(&r, 1));
        const double one = (double)l.collective_ns(l.ctx, SEARCH_allreduce, 0, 8, 2, 1, 1 << 26),
                     all = (double)l.collective_ns(l.ctx, SEARCH_allreduce, 0, 8, 2, 8, 1 << 26);
        CHECK(all > 7 * one && all < 9 * one);
        const double send = (double)l.send_ns(l.ctx, 0, 8, 1, 1 << 26),
                     sends = (double)l.send_ns(l.ctx, 0, 8, 8, 1 << 26);
        CHECK(sends > 7 * send && sends < 9 * send);
    }
    end(&x);
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void check_memory(const nnc_partition_row *r, int devices)
{
    CHECK_INT(r->planned, !r->why_not);
    for (int d = 0; d < devices && r->planned; d++) {
        int64_t estimate = 0;
        for (int i = 0; i < NNC_FILL_KINDS; i++)
            estimate += r->use[d].fill[i];
        if (estimate > 4 * r->use[d].bytes || r->use[d].bytes > 4 * estimate)
            test_fail(__FILE__, __LINE__, "%s: estimated %lld bytes, planned %lld", r->strategy,
                (long long)estimate, (long long)r->use[d].bytes);
    }
}

/* Memory is that of plans, where nnc makes them. Estimates count the samples of all micro-batches, so that one that is far from what
 * devices have (strategy/memory.c) is right. */
TEST(memory_is_planned)
{
    static const char *const strategy[] = {"single", "pipeline", "1f1b", "zb-h2", "data"};
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .loss = NNC_LOSS_mse};
    for (int step = 0; step < 2; step++) {
        subject x;
        if (make(&x, "models/transformer_mlp.json", "batch", "256", NULL,
                "models/hardware/v100x8.json", step, 8, 32)) {
            x.o.strategy = strategy;
            x.o.n_strategy = NNC_COUNT(strategy);
            x.t.n_row = 0;
            x.t.training = step ? &training : NULL;
            CHECK_OK(nnc_partition_fill_table(&x.t, &x.a, test_sink));
            CHECK_OK(nnc_partition_decide(x.env, x.model, x.t.training, &x.t, &x.a, test_sink));
            for (int k = 0; k < x.t.n_row; k++)
                check_memory(&x.t.row[k], x.t.devices);
        }
        end(&x);
    }
}

/* The report of a small model; `fail`: the allocation that fails, 0: none. */
static nnc_status small_report(nnc_env *e, bool step, int64_t fail, nnc_text *text)
{
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    const nnc_arg small[] = {{"hidden", "16"}, {"batch", "2"}};
    const nnc_open_options with = {.arg = small, .n_arg = 2, .place = "0-3=0,4-7=1"};
    static const char *const strategy[] = {
        "manual", "sequential", "pipeline", "1f1b", "zero2", "data", "channel", "auto"};
    nnc_partition_options o = {
        .compile = nnc_compile_defaults, .strategy = strategy, .n_strategy = NNC_COUNT(strategy)};
    o.compile.devices = 0; /* as many as are placed on */
    o.trace = "/dev/null";
    bool fits = false;
    nnc_fail_alloc_after(fail);
    nnc_model *m = nnc_model_open("models/mlp.json", &with, test_sink);
    const nnc_status st = m ? nnc_partition_model_report(e, m, step ? &training : NULL, &o,
                                  NNC_TEXT, text, &fits, test_sink)
                            : nnc_sink_cause(test_sink, NNC_E_BUG);
    nnc_fail_alloc_after(0);
    nnc_model_close(m);
    nnc_sink_clear(test_sink);
    return st;
}

/* Memory runs out at one allocation after the other: NNC_E_NOMEM, or where nnc can do without it, a whole report. (Of the same rows: where
 * a pass runs out of memory while it asks whether something pays, the plan may be another one.) */
TEST(partition_out_of_memory)
{
    const nnc_env_options env = {.threads = 1, .no_cache = true, .no_llvm = true};
    nnc_env *e;
    CHECK_OK(nnc_env_create(&env, &e, test_sink));
    for (int step = 0; step < 2; step++) {
        int failed = 0, passed = 0;
        for (int64_t fail = 1; passed < 40; fail += 1 + fail / test_draws(60)) {
            NNC_LOCAL(nnc_text) text = {0};
            const nnc_status st = small_report(e, step, fail, &text);
            if (st && st != NNC_E_NOMEM)
                test_fail(__FILE__, __LINE__, "allocation %lld: %s", (long long)fail,
                    nnc_status_name(st));
            CHECK(st || strstr(nnc_text_str(&text), "\ndata\n"));
            failed += st != NNC_OK;
            passed = st ? 0 : passed + 1;
        }
        CHECK(failed > test_draws(30));
    }
    nnc_env_destroy(e);
}
