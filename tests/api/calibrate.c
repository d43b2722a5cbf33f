/* tests/api/calibrate.c -- nnc calibrate writes a hardware file that is read back, and nnc partition --run prints what ran beside what was
 * predicted. Nothing here depends on how long anything takes. */
#include "api/help.h"
#include "calibrate/calibrate.h"
#include "calibrate/measure.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void get_environment(nnc_env **e, const char *hardware)
{
    nnc_env_options o = nnc_env_defaults;
    o.threads = hardware ? 0 : 2;
    o.hardware = hardware;
    CHECK_OK(nnc_env_create(&o, e, test_sink));
}

/* A file of this machine: what there is time for in a moment. */
static nnc_cluster *calibrated(nnc_text *text, double seconds)
{
    const nnc_calibrate_options o = {.devices = 2, .budget_s = seconds};
    nnc_env *e = NULL;
    get_environment(&e, NULL);
    CHECK_OK(nnc_calibrate(e, &o, text, test_sink));
    nnc_env_destroy(e);
    return nnc_cluster_parse("calibrated", nnc_text_str(text), text->n, test_sink);
}

TEST(calibration_is_read_back)
{
    NNC_LOCAL(nnc_text) text = {0};
    nnc_cluster *c = calibrated(&text, 0.2);
    CHECK(c != NULL);
    if (c) {
        const nnc_cluster_kind *k = nnc_cluster_kind_of(c, 1);
        CHECK_INT(c->n_device, 2);
        CHECK_INT(k->target.threads, 1);
        CHECK(k->command_ns >= 0 && k->n_op >= 1 && nnc_cluster_host_of(c).cores >= 1);
        for (int i = 0; i < k->n_op; i++)
            CHECK(k->op[i].n_point >= 1 && k->op[i].contention > 0);
        CHECK(!nnc_cluster_host_of(c).processes && nnc_cluster_host_of(c).run_ns > 0);
        CHECK(nnc_cluster_p2p_ps(c, 0, 1, 1 << 20) > nnc_cluster_p2p_ps(c, 0, 1, 1 << 10));
        nnc_transfer t;
        CHECK_OK(nnc_cluster_collective(
            c, GROUP_allreduce, (int32_t[]){0, 1}, 2, 65536, &t, &c->arena, test_sink));
        CHECK_STR(t.how, "measured");
    }
    nnc_cluster_destroy(c);
}

/* A line through times of a busy machine, where a small copy may take longer than a large one. Its rate is one that a device can have. */
TEST(calibration_fits_disturbed_copies)
{
    enum { SMALL = 4 << 10, MEDIUM = 512 << 10, LARGE = 8 << 20 };
    static const struct {
        nnc_point p[3];
        int64_t latency, least, most; /* of the rate, GB/s */
    } cases[] = {
        {{{SMALL, 10410}, {MEDIUM, 62429}, {LARGE, 848861}}, 10000, 10, 10},
        {{{SMALL, 5000000}, {MEDIUM, 3000000}, {LARGE, 2900000}}, 2900000, 2, 8},
        {{{SMALL, 4000000}, {MEDIUM, 4000000}, {LARGE, 4000000}}, 4000000, 2, 8},
        {{{SMALL, 4000000}, {MEDIUM, 4000000}, {LARGE, 4000001}}, 4000000, 2, 8},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        int64_t latency = 0, rate = 0;
        cal_fit_line(cases[i].p, 3, &latency, &rate);
        CHECK(llabs(latency - cases[i].latency) <= 10);
        CHECK(
            rate >= (cases[i].least * 1000000000 / 100 * 99) && rate <= cases[i].most * 1010000000);
    }
}

/* The nets are those that zoo models consist of: their steps have gradients of weights, batch norms, updates. */
TEST(calibration_nets_compile)
{
    nnc_env *e = NULL;
    get_environment(&e, NULL);
    for (int i = 0; i < cal_n_nets; i++)
        for (int devices = 1; devices <= 2; devices++) {
            NNC_LOCAL(nnc_text) text = {0};
            cal_nets_write(&text, &cal_nets[i], 1, devices);
            nnc_graph *g = nnc_model_parse(
                          "calibrate", nnc_text_str(&text), text.n, NULL, test_sink),
                      *step = NULL;
            CHECK(g != NULL);
            CHECK(g && g->n_output == (uint32_t)(cal_nets[i].step ? 1 : devices));
            if (g && cal_nets[i].step)
                CHECK_OK(nnc_train_graph(g, &nnc_training_defaults, &step, test_sink));
            CHECK(!step || step->n_output > nnc_result_outputs(step));
            nnc_graph_destroy(step);
            nnc_graph_destroy(g);
        }
    nnc_env_destroy(e);
}

/* Those of GPUs: all nets of a size in one graph, each with an input and an output; steps are made of one each. */
TEST(calibration_nets_of_gpus)
{
    for (int tier = 0; tier < CAL_TIERS; tier++)
        for (int kind = 0; kind < CAL_KINDS; kind++) {
            int n = 0;
            const cal_net *net = cal_gpu_nets(tier, (cal_kind)kind, &n);
            CHECK(n <= CAL_NETS && (n > 0 || tier == CAL_TIERS - 1));
            const int each = kind == CAL_steps ? 1 : n;
            for (int k = 0; k < n; k += each) {
                NNC_LOCAL(nnc_text) text = {0};
                cal_nets_write(&text, net + k, each, 1);
                nnc_graph *g = nnc_model_parse(
                              "calibrate", nnc_text_str(&text), text.n, NULL, test_sink),
                          *step = NULL;
                CHECK(g && g->n_output == (uint32_t)each);
                CHECK(!net[k].step == (kind != CAL_steps));
                if (g && kind == CAL_steps)
                    CHECK_OK(nnc_train_graph(g, &nnc_training_defaults, &step, test_sink));
                CHECK(kind != CAL_steps || (step && step->n_output > nnc_result_outputs(step)));
                nnc_graph_destroy(step);
                nnc_graph_destroy(g);
            }
        }
}

/* ---- tables of a machine that is simulated ----------------------------------------------------------------- */

/* The commands of a plan as samples, with the times that they have on the described device. */
static void sample(calibration *c, const nnc_plan *p, const nnc_cluster_kind *k)
{
    for (int i = nnc_plan_first(p, SEC_main); i < p->end[SEC_main]; i++) {
        nnc_sim_op op = nnc_sim_command_op(p, &p->cmd[i]);
        const int64_t ns = nnc_sim_op_ps(k, &op, NULL) / 1000;
        char name[NNC_SIM_CLASS];
        nnc_sim_row_class(&op, name);
        op.op_class = nnc_arena_strdup(&c->a, name);
        CHECK(op.op_class && ARENA_ROOM(&c->a, c->sample, c->cap_sample, c->n_sample + 1));
        c->sample[c->n_sample++] = (cal_sample){.op = op, .ns = ns};
        if (!strcmp(op.op_class, "ewise") && op.bytes > 200000000)
            c->memory_bytes_s = (int64_t)((double)op.bytes / (double)ns * 1e9);
    }
}

static void sample_nets(calibration *c, nnc_precision precision, const nnc_cluster_kind *k)
{
    c->with = nnc_compile_defaults;
    c->with.precision = precision;
    for (int tier = 0; tier < CAL_TIERS; tier++)
        for (int kind = CAL_nets; kind <= CAL_ops; kind++) {
            NNC_LOCAL(nnc_text) text = {0};
            nnc_artifact *a = NULL;
            int n = 0;
            const cal_net *net = cal_gpu_nets(tier, (cal_kind)kind, &n);
            if (!n)
                continue;
            cal_nets_write(&text, net, n, 1);
            nnc_graph *g =
                nnc_model_parse("calibrate", nnc_text_str(&text), text.n, NULL, test_sink);
            CHECK_OK(g ? nnc_compile_plan(c->e, g, &c->with, &a, test_sink) : NNC_E_MODEL);
            if (a)
                sample(c, a->plan, k);
            nnc_artifact_destroy(a);
            nnc_graph_destroy(g);
        }
}

/* |ratio - 1| of a run of the model by the tables to one on the described device. */
static double error_of(const calibration *c, const char *file, nnc_precision precision,
    const char *batch, const nnc_cluster_kind *is, const nnc_cluster_kind *table)
{
    const nnc_arg arg = {"batch", batch};
    nnc_open_options o = nnc_open_defaults;
    nnc_compile_options with = nnc_compile_defaults;
    nnc_artifact *a = NULL;
    double truth = 0, got = 0;
    o.arg = &arg;
    o.n_arg = 1;
    with.precision = precision;
    nnc_model *m = nnc_model_open(file, &o, test_sink);
    CHECK_OK(m ? nnc_compile_plan(c->e, m, &with, &a, test_sink) : NNC_E_MODEL);
    for (int i = a ? nnc_plan_first(a->plan, SEC_main) : 0; a && i < a->plan->end[SEC_main]; i++) {
        truth += (double)nnc_sim_command_ps(a->plan, &a->plan->cmd[i], is);
        got += (double)nnc_sim_command_ps(a->plan, &a->plan->cmd[i], table);
    }
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    const double error = truth > 0 ? fabs(got / truth - 1) : 1;
    if (!(error < 0.25))
        test_fail(__FILE__, __LINE__, "%s, batch %s: %.0f us by the tables, %.0f on the device",
            file, batch, got * 1e-6, truth * 1e-6);
    return error;
}

/* A device whose times are known: nets that are measured there make tables that predict other models there. */
TEST(tables_of_a_gpu_predict_it)
{
    static const char *const models[] = {"vgg16", "resnet50", "efficientnet_b0", "bert_base"},
                             *const batches[] = {"1", "32"};
    static const nnc_precision precision[] = {NNC_PRECISION_f32, NNC_PRECISION_f16};
    const nnc_env_options o = {.target = "cuda:sm_90", TEST_CACHED};
    const nnc_calibrate_options none = {0};
    calibration *c = nnc_calloc(1, sizeof *c);
    nnc_cluster *is = nnc_cluster_load("models/hardware/h200x8.json", test_sink);
    CHECK_OK(nnc_env_create(&o, &c->e, test_sink));
    nnc_arena_init(&c->a, 0);
    c->o = &none;
    c->sink = test_sink;
    c->devices = 1;
    c->command_ns = 2000; /* as the description's launches */
    c->target = c->e->target[0];
    for (size_t p = 0; p < NNC_COUNT(precision) && is; p++)
        sample_nets(c, precision[p], nnc_cluster_kind_of(is, 0));
    CHECK(c->memory_bytes_s > 0);
    c->target.copy_bytes_s = c->memory_bytes_s;
    CHECK_OK(cal_make_tables(c));
    for (int i = 0; i < CAL_SIZES; i++)
        c->gpu.up[i] = c->gpu.down[i] = c->gpu.pageable_up[i] = c->gpu.pageable_down[i] =
            (nnc_point){4096 << i, 1000 << i};
    NNC_LOCAL(nnc_text) text = {0};
    cal_gpu_print(c, &text);
    nnc_cluster *got = nnc_cluster_parse("tables", nnc_text_str(&text), text.n, test_sink);
    double sum = 0;
    int n = 0;
    for (size_t p = 0; p < 2 && is && got; p++)
        for (size_t m = 0; m < NNC_COUNT(models); m++)
            for (size_t b = 0; b < 2; b++, n++) {
                char file[64];
                snprintf(file, sizeof file, "models/%s.json", models[m]);
                sum += error_of(c, file, precision[p], batches[b], nnc_cluster_kind_of(is, 0),
                    nnc_cluster_kind_of(got, 0));
            }
    CHECK_INT(n, 16);
    if (!(sum / n < 0.08))
        test_fail(__FILE__, __LINE__, "mean error of the tables: %.1f %%", 100 * sum / n);
    nnc_cluster_destroy(got);
    nnc_cluster_destroy(is);
    nnc_arena_deinit(&c->a);
    nnc_env_destroy(c->e);
    nnc_free(c);
}

/* Every strategy that is called executable was run, with the numbers of its devices. */
static void check_runs(const char *text, bool step)
{
    cJSON *root = cJSON_Parse(text), *rows = cJSON_GetObjectItem(root, "strategies"), *r;
    int ran = 0;
    cJSON_ArrayForEach(r, rows)
    {
        const cJSON *m = cJSON_GetObjectItem(r, "measured");
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(r, "strategy"));
        if (!cJSON_IsTrue(cJSON_GetObjectItem(r, "executable")) != !m)
            test_fail(__FILE__, __LINE__, "%s, %s: executable and measured disagree",
                step ? "step" : "forward", name);
        if (!m)
            continue;
        ran++;
        CHECK_INT(cJSON_GetObjectItem(m, "iterations")->valueint, 2);
        CHECK(cJSON_GetObjectItem(m, "iteration_ms")->valuedouble > 0);
        CHECK(cJSON_GetObjectItem(m, "min_ms")->valuedouble <=
              cJSON_GetObjectItem(m, "iteration_ms")->valuedouble);
        CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(r, "time")), "plan");
        const cJSON *devices = cJSON_GetObjectItem(m, "devices"), *d;
        double busy = 0;
        CHECK_INT(cJSON_GetArraySize(devices), 2);
        cJSON_ArrayForEach(d, devices) busy += cJSON_GetObjectItem(d, "busy_ms")->valuedouble;
        CHECK(busy > 0);
    }
    CHECK(ran >= 5); /* single, sequential, data, hybrid, and branches or zero1; perhaps auto */
    cJSON_Delete(root);
}

/* Lines of the CSV form end in the columns of runs: numbers where the strategy ran. */
static void check_columns(const char *csv)
{
    static const char head[] = ",measured_ms,spread,measured_busy_ms,measured_communication_ms\n";
    CHECK(strstr(csv, head) != NULL);
    const char *single = strstr(csv, "\nsingle,true,0,"), *zero = strstr(csv, "\nzero3,false,0,");
    const char *end = single ? strchr(single + 1, '\n') : NULL;
    CHECK(end && !memmem(single, (size_t)(end - single), "nan", 3));
    CHECK(!zero || strstr(zero, ",nan,nan,nan,nan\n") != NULL);
}

static void put_member(nnc_text *t, const char *text, const char *name, int value, bool word)
{
    const char *at = strstr(text, name);
    const size_t n = at ? (size_t)(at - text) + strlen(name) : 0;
    CHECK(at != NULL);
    nnc_text_clear(t);
    nnc_putn(t, text, n);
    word ? nnc_puts(t, value ? " true" : " false") : nnc_printf(t, " %d", value);
    nnc_puts(t, at ? text + n + strcspn(text + n, ",") : "");
}

/* Of models/hardware/cpu.json with the instructions of this CPU, so that its plans run here. */
static void get_runnable(nnc_env **e)
{
    char dir[512], *text = NULL;
    size_t n = 0;
    nnc_target here;
    NNC_LOCAL(nnc_text) a = {0};
    NNC_LOCAL(nnc_text) b = {0};
    CHECK(api_tmpdir(dir, sizeof dir));
    CHECK_OK(nnc_target_host(&here, 0, 1, true, test_sink));
    CHECK_OK(nnc_file_read("models/hardware/cpu.json", 0, &text, &n, test_sink));
    put_member(&a, text ? text : "", "\"vector_bits\":", here.vector_bits, false);
    put_member(&b, nnc_text_str(&a), "\"fma\":", here.fma, true);
    put_member(&a, nnc_text_str(&b), "\"f16c\":", here.f16c, true);
    CHECK_OK(nnc_file_write(api_in(dir, "cpu.json"), nnc_text_str(&a), a.n, false, test_sink));
    get_environment(e, api_in(dir, "cpu.json"));
    nnc_target_deinit(&here);
    nnc_free(text);
    api_rmdir(dir);
}

TEST(partition_runs_strategies)
{
    static const char *const strategy[] = {
        "single", "sequential", "branches", "data", "zero1", "zero3", "hybrid", "auto"};
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    const nnc_arg small[] = {{"batch", "4"}, {"hidden", "64"}};
    nnc_open_options o = nnc_open_defaults;
    o.arg = small;
    o.n_arg = NNC_COUNT(small);
    nnc_env *e = NULL;
    nnc_model *m = nnc_model_open("models/mlp.json", &o, test_sink);
    get_runnable(&e);
    for (int step = 0; step < 2 && e && m; step++)
        for (int measure = 0; measure < 2; measure++) {
            if (!test_takes((uint64_t)(step + measure), 2))
                continue;
            NNC_LOCAL(nnc_text) text = {0};
            bool fits = false;
            const nnc_partition_options p = {.compile = nnc_compile_defaults,
                .strategy = strategy,
                .n_strategy = NNC_COUNT(strategy),
                .micro = 4,
                .measure = measure,
                .simulate = true,
                .run = true,
                .run_iterations = 2};
            nnc_partition_options two = p;
            two.compile.devices = 2;
            CHECK_OK(nnc_partition_model_report(
                e, m, step ? &training : NULL, &two, NNC_JSON, &text, &fits, test_sink));
            CHECK(fits);
            check_runs(nnc_text_str(&text), step);
            NNC_LOCAL(nnc_text) table = {0};
            CHECK_OK(nnc_partition_model_report(
                e, m, step ? &training : NULL, &two, NNC_TEXT, &table, &fits, test_sink));
            CHECK(strstr(nnc_text_str(&table), "Run on this machine") != NULL);
            CHECK(strstr(nnc_text_str(&table), "busy 1") != NULL);
            NNC_LOCAL(nnc_text) csv = {0};
            CHECK_OK(nnc_partition_model_report(
                e, m, step ? &training : NULL, &two, NNC_CSV, &csv, &fits, test_sink));
            check_columns(nnc_text_str(&csv));
        }
    nnc_model_close(m);
    nnc_env_destroy(e);
}

/* A command has the class of its contraction, in a library's call and in a generated kernel alike. */
TEST(commands_have_the_class_of_their_contraction)
{
    static const char graph[] =
        "graph @t { %x = input : f32[1,3,32,32]\n"
        "%a = param : f32[32,3,3,3] = gen(\"a\", seed=1, scale=0.1, shift=0)\n"
        "%b = param : f32[32,32,3,3] = gen(\"b\", seed=1, scale=0.1, shift=0)\n"
        "%c = param : f32[32,32,1,1] = gen(\"c\", seed=1, scale=0.1, shift=0)\n"
        "%d = param : f32[32,1,3,3] = gen(\"d\", seed=1, scale=0.1, shift=0)\n"
        "%e = param : f32[32,16,3,3] = gen(\"e\", seed=1, scale=0.1, shift=0)\n"
        "%1 = conv %x, %a {pads=[1,1,1,1]} loc \"/conv_first\"\n"
        "%2 = conv %1, %b {pads=[1,1,1,1]} loc \"/conv3x3\"\n"
        "%3 = conv %2, %c loc \"/conv1x1\"\n"
        "%4 = conv %3, %d {pads=[1,1,1,1], groups=32} loc \"/depthwise\"\n"
        "%5 = conv %4, %e {pads=[1,1,1,1], groups=2} loc \"/conv_grouped\"\n"
        "%6 = conv %5, %b {pads=[1,1,1,1], strides=[2,2]} loc \"/conv\"\n"
        "%7 = conv_transpose %6, %b {pads=[1,1,1,1]} loc \"/conv3x3_back\"\n"
        "return %7 as \"y\" }";
    for (int exact = 0; exact < 2; exact++) {
        nnc_env *e = NULL;
        nnc_artifact *artifact = NULL;
        nnc_compile_options o = nnc_compile_defaults;
        int found = 0;
        o.math = exact ? MATH_exact : o.math;
        get_environment(&e, NULL);
        nnc_graph *g = nnc_model_parse("t.nnc", graph, sizeof graph - 1, NULL, test_sink);
        CHECK(g != NULL);
        CHECK_OK(nnc_compile_plan(e, g, &o, &artifact, test_sink));
        const nnc_plan *p = artifact ? artifact->plan : NULL;
        for (int i = p ? nnc_plan_first(p, SEC_main) : 0; p && i < p->n_cmd; i++) {
            const nnc_cmd *c = &p->cmd[i];
            if (!nnc_sim_class_contracts(c->op_class) || strchr(c->layers, '+'))
                continue;
            const bool points = strstr(p->kernel[c->item].symbol, "winograd") != NULL;
            CHECK(!points || !exact);
            CHECK_STR(c->op_class, points ? "winograd" : c->layers + 1);
            found++;
        }
        CHECK(found >= 4);
        nnc_artifact_destroy(artifact);
        nnc_graph_destroy(g);
        nnc_env_destroy(e);
    }
}

/* Commands are found again by what they compute: two of one kind, in any layer; not those of other shapes. */
TEST(command_times_are_found)
{
    static const char graph[] =
        "graph @t { %x = input : f32[1,8,16,16]\n"
        "%w = param : f32[8,8,3,3] = gen(\"w\", seed=1, scale=0.1, shift=0)\n"
        "%v = param : f32[8,8,3,3] = gen(\"v\", seed=1, scale=0.1, shift=0)\n"
        "%u = param : f32[4,8,3,3] = gen(\"u\", seed=1, scale=0.1, shift=0)\n"
        "%a = conv %x, %w {pads=[1,1,1,1]} loc \"/a\"\n%b = conv %a, %v {pads=[1,1,1,1]} loc "
        "\"/b\"\n"
        "%c = conv %b, %u {pads=[1,1,1,1]} loc \"/c\"\nreturn %c as \"y\" }";
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_env *e = NULL;
    nnc_artifact *artifact = NULL;
    get_environment(&e, NULL);
    nnc_graph *g = nnc_model_parse("t.nnc", graph, sizeof graph - 1, NULL, test_sink);
    CHECK(g != NULL);
    CHECK_OK(nnc_compile(e, g, NULL, &artifact, test_sink));
    nnc_command_times *t = nnc_command_times_create(&a);
    const nnc_cmd *of[3] = {NULL};
    const nnc_plan *p = artifact ? artifact->plan : NULL;
    for (int i = p ? nnc_plan_first(p, SEC_main) : 0; p && i < p->n_cmd; i++)
        for (int k = 0; k < 3; k++)
            if (nnc_sim_class_contracts(p->cmd[i].op_class) && p->cmd[i].layers[1] == "abc"[k])
                of[k] = &p->cmd[i];
    CHECK(t && of[0] && of[1] && of[2]);
    if (t && of[0] && of[1] && of[2]) {
        CHECK_INT(nnc_command_times_ps(t, p, of[0]), -1);
        CHECK(nnc_command_times_add(t, p, of[0], 70));
        CHECK_INT(nnc_command_times_ps(t, p, of[0]), 70000);
        CHECK_INT(nnc_command_times_ps(t, p, of[2]), -1);
        CHECK(nnc_command_times_add(t, p, of[2], 50));
        CHECK(nnc_command_times_add(t, p, of[2], 70));
        CHECK_INT(nnc_command_times_ps(t, p, of[2]), 60000); /* the mean of equal commands */
    }
    nnc_artifact_destroy(artifact);
    nnc_graph_destroy(g);
    nnc_env_destroy(e);
}
