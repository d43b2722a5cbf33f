/* tests/api/calibrate.c -- nnc calibrate writes a hardware file that is read back, and nnc partition --run prints what ran beside what was
 * predicted. Nothing here depends on how long anything takes. */
#include "api/calibrate.h"
#include "api/help.h"
#include "api/partition.h"

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

/* The nets are those that zoo models consist of: their steps have gradients of weights, batch norms, updates. */
TEST(calibration_nets_compile)
{
    nnc_env *e = NULL;
    get_environment(&e, NULL);
    for (int i = 0; i < cal_n_nets; i++)
        for (int devices = 1; devices <= 2; devices++) {
            NNC_LOCAL(nnc_text) text = {0};
            nnc_scan s;
            cal_net_write(&text, &cal_nets[i], devices);
            nnc_scan_init(&s, cal_nets[i].name, nnc_text_str(&text), text.n);
            nnc_graph *g = nnc_graph_parse(&s, test_sink), *step = NULL;
            CHECK(g != NULL);
            CHECK(g && g->n_output == (uint32_t)devices);
            if (g && devices == 1 && cal_nets[i].step)
                CHECK_OK(nnc_train_graph(g, &nnc_training_defaults, &step, test_sink));
            CHECK(!step || step->n_output > nnc_result_outputs(step));
            nnc_graph_destroy(step);
            nnc_graph_destroy(g);
        }
    nnc_env_destroy(e);
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
        CHECK(cJSON_GetObjectItem(r, "simulated_ms")->valuedouble > 0);
        const cJSON *devices = cJSON_GetObjectItem(m, "devices"), *d;
        double busy = 0, simulated = 0;
        CHECK_INT(cJSON_GetArraySize(devices), 2);
        cJSON_ArrayForEach(d, devices)
        {
            busy += cJSON_GetObjectItem(d, "busy_ms")->valuedouble;
            simulated += cJSON_GetObjectItem(d, "simulated_busy_ms")->valuedouble;
        }
        CHECK(busy > 0 && simulated > 0);
    }
    CHECK(ran >= 5); /* single, sequential, data, hybrid, and branches or zero1; perhaps auto */
    cJSON_Delete(root);
}

/* Lines of the CSV form end in the columns of runs: numbers where the strategy ran. */
static void check_columns(const char *csv)
{
    static const char head[] =
        ",simulated_busy_ms,measured_ms,spread,measured_busy_ms,measured_communication_ms\n";
    CHECK(strstr(csv, head) != NULL);
    const char *single = strstr(csv, "\nsingle,true,0,"), *zero = strstr(csv, "\nzero3,false,0,");
    const char *end = single ? strchr(single + 1, '\n') : NULL;
    CHECK(end && !memmem(single, (size_t)(end - single), "nan", 3));
    CHECK(!zero || strstr(zero, ",nan,nan,nan,nan,nan,nan\n") != NULL);
}

TEST(partition_runs_strategies)
{
    static const char *const strategy[] = {
        "single", "sequential", "branches", "data", "zero1", "zero3", "hybrid", "auto"};
    const nnc_training training = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    nnc_arg batch = {"batch", "4"};
    nnc_open_options o = nnc_open_defaults;
    o.arg = &batch;
    o.n_arg = 1;
    nnc_env *e = NULL;
    nnc_model *m = nnc_model_open("models/mlp.json", &o, test_sink);
    get_environment(&e, "models/hardware/cpu.json");
    for (int step = 0; step < 2 && e && m; step++)
        for (int measure = 0; measure < 2; measure++) {
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
    nnc_scan s;
    get_environment(&e, NULL);
    nnc_scan_init(&s, "times", graph, sizeof graph - 1);
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    CHECK_OK(nnc_compile(e, g, NULL, &artifact, test_sink));
    nnc_command_times *t = nnc_command_times_create(&a);
    const nnc_cmd *of[3] = {NULL};
    const nnc_plan *p = artifact ? artifact->plan : NULL;
    for (int i = p ? nnc_plan_first(p, SEC_main) : 0; p && i < p->n_cmd; i++)
        for (int k = 0; k < 3; k++)
            if (!strcmp(p->cmd[i].op_class, "conv") && p->cmd[i].layers[1] == "abc"[k])
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
