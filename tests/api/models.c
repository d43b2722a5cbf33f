/* tests/api/models.c -- every model that comes with nnc, at a small size: compared end to end, and every report about it
 * holds what docs/formats.md promises. A model without a row here is a failure. */
#include "help.h"
#include "plan/plan.h"
#include "profile/profile.h"
#include "train/train.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_ARGS = 6 };
typedef struct row {
    const char *model;
    nnc_arg arg[MAX_ARGS];
} row;

static const row rows[] = {
    {"conv", {{"batch", "2"}}},
    {"conv_fc_stack", {{"batch", "2"}, {"image", "14"}, {"conv", "2"}, {"fc", "1"},
                          {"channels", "32"}, {"features", "96"}}},
    {"conv_fc_stack",
        {{"batch", "1"}, {"image", "7"}, {"conv", "3"}, {"fc", "3"}, {"features", "10"}}},
    {"densenet121", {{"batch", "2"}, {"image", "32"}, {"layers2", "3"}, {"layers3", "2"},
                        {"layers4", "2"}, {"growth", "8"}}},
    {"efficientnet_b0", {{"batch", "2"}, {"image", "33"}, {"classes", "10"}}},
    {"layernorm", {{"batch", "37"}, {"cols", "129"}}},
    {"linear", {{"batch", "3"}}},
    {"matmul", {{"dim", "65"}}},
    {"maxpool", {{"batch", "1"}}},
    {"mlp", {{"batch", "5"}, {"hidden", "48"}}},
    {"mlp", {{"batch", "5"}, {"hidden", "48"}, {"act", "gelu"}, {"depth", "1"}}},
    {"mlp", {{"batch", "2"}, {"hidden", "33"}, {"act", "silu"}}},
    {"mobilenet_v2", {{"batch", "2"}, {"image", "33"}, {"classes", "10"}}},
    {"nested_sin", {{"n", "100003"}}},
    {"nested_sin", {{"n", "5001"}, {"depth", "16"}}},
    {"nested_sin", {{"n", "5001"}, {"dtype", "f64"}}},
    {"nested_sin", {{"n", "5001"}, {"dtype", "f16"}}},
    {"nested_sin", {{"n", "5001"}, {"dtype", "bf16"}, {"depth", "3"}}},
    {"relu", {{"batch", "1"}}},
    {"softmax", {{"batch", "33"}, {"cols", "257"}}},
    {"transformer_mlp", {{"batch", "2"}, {"tokens", "5"}, {"dim", "24"}}},
    {"transformer_mlp",
        {{"batch", "1"}, {"tokens", "7"}, {"dim", "32"}, {"blocks", "1"}, {"gelu", "tanh"}}},
    {"vgg16", {{"image", "32"}}},
    {"vgg16", {{"image", "32"}, {"slim", "4"}, {"order", "pool-relu"}}},
    {"vgg16", {{"image", "32"}, {"slim", "4"}, {"bn", "1"}, {"batch", "2"}}},
    {"vgg16", {{"image", "32"}, {"slim", "4"}, {"bn", "1"}, {"order", "pool-relu"}}},
    {"bert_base", {{"batch", "2"}, {"tokens", "6"}, {"vocabulary", "50"}, {"layers", "2"},
                      {"dim", "24"}, {"inner", "40"}}},
    {"efficientnet_b3", {{"image", "17"}, {"slim", "8"}, {"classes", "5"}}},
    {"efficientnet_b5", {{"image", "17"}, {"slim", "16"}, {"classes", "5"}}},
    {"googlenet", {{"image", "33"}, {"slim", "8"}, {"classes", "5"}}},
    {"inception_v3", {{"image", "75"}, {"slim", "16"}, {"classes", "5"}}},
    {"lstm_classifier", {{"batch", "5"}, {"length", "6"}, {"vocabulary", "50"}, {"hidden", "32"}}},
    {"lstm_classifier", {{"length", "9"}, {"vocabulary", "50"}, {"embedding", "7"},
                            {"hidden", "13"}, {"layers", "1"}, {"dtype", "f64"}}},
    {"multi_conv1d",
        {{"models", "3"}, {"batch", "2"}, {"in", "8"}, {"out", "12"}, {"length", "5"}}},
    {"multi_gconv1d",
        {{"models", "3"}, {"batch", "2"}, {"in", "8"}, {"out", "12"}, {"length", "5"}}},
    {"multi_linear", {{"models", "5"}, {"batch", "3"}, {"in", "16"}, {"out", "24"}}},
    {"resnet101", {{"image", "32"}, {"width", "4"}, {"layers3", "4"}, {"classes", "5"}}},
    {"resnet50", {{"image", "33"}, {"width", "8"}, {"layers3", "2"}, {"classes", "5"}}},
    {"unet", {{"image", "18"}, {"channels", "4"}, {"batch", "2"}}},
    {"vit_b16", {{"image", "32"}, {"patch", "8"}, {"layers", "2"}, {"dim", "24"}, {"mlp", "40"},
                    {"batch", "2"}}},
    {"unet", {{"image", "32"}, {"channels", "8"}, {"mode", "nearest"}}},
    {"vit_b16", {{"image", "32"}, {"layers", "1"}, {"dim", "48"}, {"mlp", "64"}, {"dtype", "f16"}}},
    {"bert_base", {{"tokens", "9"}, {"vocabulary", "50"}, {"layers", "1"}, {"dim", "36"},
                      {"inner", "16"}, {"dtype", "f64"}}},
    {"resnet50",
        {{"image", "32"}, {"width", "4"}, {"layers3", "1"}, {"classes", "7"}, {"dtype", "bf16"}}},
};

static int n_args(const row *r)
{
    int n = 0;
    while (n < MAX_ARGS && r->arg[n].name)
        n++;
    return n;
}

static nnc_model *open_row(const row *r)
{
    char file[128];
    snprintf(file, sizeof file, "models/%s.json", r->model);
    nnc_open_options o = {.arg = r->arg, .n_arg = n_args(r), .seed = test_seed};
    nnc_model *m = nnc_model_open(file, &o, test_sink);
    if (!m) {
        test_fail(__FILE__, __LINE__, "%s does not open", file);
        nnc_sink_print(test_sink, stderr);
    }
    return m;
}

static nnc_env *open_env(bool least)
{
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .no_llvm = least}, &e, test_sink));
    return e;
}

/* Is each pass compared, too? Of a quarter of the models by default, not of VGG-16: its 34 M weights for each step take time. */
static bool has_steps(const row *r)
{
    return strcmp(r->model, "vgg16") != 0 && test_takes((uint64_t)(r - rows), 4);
}

/* ---- JSON ---- */

/* "name:s n:i x:n ok:b list:a obj:o": all there, with these kinds (i: an integer; N: number or null)? */
static void check_fields(const row *r, const char *what, const cJSON *j, const char *fields)
{
    char name[64], kind;
    int n;
    for (const char *p = fields; sscanf(p, " %63[^:]:%c%n", name, &kind, &n) == 2; p += n) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);
        bool integer = cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble);
        bool ok = kind == 's'   ? cJSON_IsString(v)
                  : kind == 'i' ? integer
                  : kind == 'n' ? cJSON_IsNumber(v)
                  : kind == 'N' ? cJSON_IsNumber(v) || cJSON_IsNull(v)
                  : kind == 'b' ? cJSON_IsBool(v)
                  : kind == 'a' ? cJSON_IsArray(v)
                                : cJSON_IsObject(v);
        if (!ok)
            test_fail(__FILE__, __LINE__, "%s, %s: %s is missing or of another kind", r->model,
                what, name);
    }
}

static cJSON *parsed(const row *r, const char *what, nnc_text *t)
{
    cJSON *j = cJSON_Parse(nnc_text_str(t));
    if (!j)
        test_fail(__FILE__, __LINE__, "%s: %s is not JSON:\n%s", r->model, what, nnc_text_str(t));
    nnc_text_deinit(t);
    return j;
}

static double number(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);
    return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

static void check_compare(const row *r, nnc_text *t)
{
    cJSON *j = parsed(r, "compare", t), *e;
    check_fields(r, "compare", j,
        "model:s target:s threads:i args:o io:s reference:o runs:a speedup:n agree:b paired:o "
        "steps:a siblings:a");
    check_fields(r, "paired", cJSON_GetObjectItem(j, "paired"), "pairs:i ratio:N low:N high:N");
    check_fields(r, "reference", cJSON_GetObjectItem(j, "reference"), "ran:b scope:s");
    CHECK(cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetObjectItem(j, "reference"), "ran")));
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(j, "model")), r->model);
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(j, "runs"))
    {
        check_fields(r, "run", e,
            "name:s level:i median_ms:n mean_ms:n p10_ms:n p90_ms:n iterations:i launches:i "
            "kernels:i "
            "bytes_moved:i flops:i arena_bytes:i nmse:n max_rel_err:n bursts:i untimed_runs:i "
            "roofline_ms:n roofline:n");
        CHECK(number(e, "p10_ms") <= number(e, "median_ms") &&
              number(e, "median_ms") <= number(e, "p90_ms"));
    }
    const cJSON *steps = cJSON_GetObjectItem(j, "steps");
    cJSON_ArrayForEach(e, steps)
        check_fields(r, "step", e, "pass:s median_ms:n launches:i bytes_moved:i");
    CHECK((cJSON_GetArraySize(steps) >= 1) == has_steps(r));
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(j, "siblings")) check_fields(r, "siblings", e,
        "variant:s chosen:b least_ms:n pairs:i ratio:N low:N high:N launches:i nmse:n");
    const cJSON *args = cJSON_GetObjectItem(j, "args");
    CHECK_INT(cJSON_GetArraySize(args), n_args(r));
    for (int i = 0; i < n_args(r); i++)
        CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(args, r->arg[i].name)), r->arg[i].value);
    cJSON_Delete(j);
}

static void compare_row(nnc_env *env, const row *r)
{
    nnc_model *m = open_row(r);
    nnc_text t = {0};
    bool agrees = false;
    nnc_compare_options o = {.compile = nnc_compile_defaults,
        .seed = test_seed,
        .warmup = 1,
        .iterations = 2,
        .steps = has_steps(r),
        .arg = r->arg,
        .n_arg = n_args(r)};
    if (m) {
        CHECK_OK(nnc_compare(env, m, &o, NNC_JSON, &t, &agrees, test_sink));
        if (!agrees)
            test_fail(__FILE__, __LINE__, "%s (%s=%s): %s", r->model, r->arg[0].name,
                r->arg[0].value, nnc_text_str(&t));
        check_compare(r, &t);
    }
    nnc_text_deinit(&t);
    nnc_model_close(m);
}

TEST(models_agree)
{
    nnc_env *env = open_env(false);
    /* By default every second row, the others with the next seed. A sanitizer leaves out VGG-16; without plug-ins, below, it gets all. */
    for (size_t i = 0; env && i < NNC_COUNT(rows); i++)
        if (test_takes(i, 2) && !(api_sanitized && !strcmp(rows[i].model, "vgg16")))
            compare_row(env, &rows[i]);
    nnc_env_destroy(env);
}

/* The same without plug-ins, where that is not too slow: a quarter of the models by default, under a sanitizer all. */
TEST(models_agree_without_plugins)
{
    nnc_env *env = open_env(true);
    for (size_t i = 0; env && i < NNC_COUNT(rows); i++) {
        static const char *const slow[] = {"vgg16", "conv", "relu", "maxpool", "linear"};
        bool skip = false;
        for (size_t k = 0; k < NNC_COUNT(slow); k++)
            skip |= !strcmp(rows[i].model, slow[k]);
        if (!skip && (api_sanitized || test_takes(i, 8)))
            compare_row(env, &rows[i]);
    }
    nnc_env_destroy(env);
}

/* Siblings: both ways of computing them, of which the pass chose one; nothing where there are none, or where only the sides are timed. */
static void check_siblings(nnc_env *env, const char *model, const char *models, bool steps, int n)
{
    const row r = {model, {{"models", models}, {"out", "64"}}};
    nnc_model *m = open_row(&r);
    nnc_text t = {0};
    bool agrees = false;
    int chosen = 0;
    const nnc_compare_options o = {
        .compile = nnc_compile_defaults, .warmup = 1, .iterations = 6, .steps = steps};
    CHECK(m != NULL);
    if (!m)
        return;
    CHECK_OK(nnc_compare(env, m, &o, NNC_JSON, &t, &agrees, test_sink));
    CHECK(agrees);
    cJSON *j = parsed(&r, "compare", &t);
    const cJSON *list = cJSON_GetObjectItem(j, "siblings"), *e;
    CHECK_INT(cJSON_GetArraySize(list), n);
    cJSON_ArrayForEach(e, list)
    {
        const bool here = cJSON_IsTrue(cJSON_GetObjectItem(e, "chosen"));
        const bool apart =
            !strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(e, "variant")), "apart");
        chosen += here;
        CHECK_INT(number(e, "launches"), apart ? atoi(models) : 1);
        CHECK_INT(number(e, "pairs"), here ? 0 : 6);
        CHECK(isnan(number(e, "ratio")) == here);
        CHECK(number(e, "nmse") < 1e-11 && number(e, "least_ms") > 0);
    }
    CHECK_INT(chosen, n > 0);
    cJSON_Delete(j);
    nnc_text_clear(&t);
    CHECK_OK(nnc_compare(env, m, &o, NNC_TEXT, &t, &agrees, test_sink));
    CHECK((strstr(nnc_text_str(&t), "Siblings (independent contractions)") != NULL) == (n > 0));
    nnc_text_deinit(&t);
    nnc_model_close(m);
}

TEST(compare_times_siblings)
{
    nnc_env *env = open_env(false);
    if (!env || !nnc_env_emitter())
        return nnc_env_destroy(env);
    check_siblings(env, "multi_linear", "3", true, 2);
    check_siblings(env, "multi_conv1d", "4", true, 2);
    check_siblings(env, "multi_linear", "1", true, 0);
    check_siblings(env, "multi_linear", "3", false, 0);
    check_siblings(env, "multi_gconv1d", "3", true, 0);
    nnc_env_destroy(env);
}

/* With --iterations: so many timed runs in up to nine bursts, which make pairs; six pairs or more have an interval. */
static void check_pairs(nnc_env *env, const nnc_model *m, int iterations, int warmup, int pairs)
{
    static const row r = {"nested_sin", {{"n", "1000"}}};
    nnc_text t = {0};
    bool agrees = false;
    nnc_compare_options o = {
        .compile = nnc_compile_defaults, .warmup = warmup, .iterations = iterations};
    CHECK_OK(nnc_compare(env, m, &o, NNC_JSON, &t, &agrees, test_sink));
    cJSON *j = parsed(&r, "compare", &t), *e;
    const cJSON *p = cJSON_GetObjectItem(j, "paired");
    CHECK_INT(number(p, "pairs"), pairs);
    CHECK(number(p, "ratio") > 0);
    CHECK(fabs(number(j, "speedup") * number(p, "ratio") - 1) < 1e-12);
    if (pairs < 6) {
        CHECK(isnan(number(p, "low")) && isnan(number(p, "high")));
    } else {
        CHECK(number(p, "low") <= number(p, "ratio") && number(p, "ratio") <= number(p, "high"));
    }
    double untimed = 0;
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(j, "runs"))
    {
        CHECK_INT(number(e, "iterations"), iterations);
        CHECK_INT(number(e, "bursts"), pairs);
        untimed += number(e, "untimed_runs");
    }
    CHECK_INT(untimed,
        2 * warmup + pairs - 1); /* every other round begins with the program that ran last */
    cJSON_Delete(j);
}

TEST(compare_pairs_bursts)
{
    static const nnc_arg arg = {"n", "1000"};
    nnc_env *env = open_env(false);
    nnc_model *m = nnc_model_open(
        "models/nested_sin.json", &(nnc_open_options){.arg = &arg, .n_arg = 1}, test_sink);
    CHECK(m != NULL);
    if (env && m) {
        check_pairs(env, m, 1, 3, 1);
        check_pairs(env, m, 5, 1, 5);
        check_pairs(env, m, 9, 2, 9);
        check_pairs(
            env, m, 27, 1, 9); /* a ninth are 3 runs, which a burst has however slow they are */
        check_pairs(env, m, 25, 1, 9); /* 8 bursts of 3 runs, one of 1 */
    }
    nnc_model_close(m);
    nnc_env_destroy(env);
}

TEST(every_model_has_a_row)
{
    DIR *d = opendir("models");
    CHECK(d != NULL);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        bool known = n < 5 || strcmp(e->d_name + n - 5, ".json");
        for (size_t i = 0; i < NNC_COUNT(rows) && !known; i++)
            known = strlen(rows[i].model) == n - 5 && !strncmp(rows[i].model, e->d_name, n - 5);
        if (!known)
            test_fail(__FILE__, __LINE__, "models/%s is not tested", e->d_name);
    }
    if (d)
        closedir(d);
}

/* ---- the other reports ---- */

static void check_show(const row *r, const nnc_model *m)
{
    nnc_text t = {0};
    CHECK_OK(nnc_report_show(m, NNC_JSON, &t));
    cJSON *j = parsed(r, "show", &t), *e;
    check_fields(
        r, "show", j, "name:s parameters:i statistics:i flops:i nodes:i inputs:a outputs:a");
    int64_t parameters, statistics;
    CHECK(nnc_param_count(m, &parameters, &statistics));
    CHECK(number(j, "parameters") == (double)parameters);
    CHECK(number(j, "statistics") == (double)statistics);
    CHECK(cJSON_GetArraySize(cJSON_GetObjectItem(j, "inputs")) >= 1);
    CHECK_INT(cJSON_GetArraySize(cJSON_GetObjectItem(j, "outputs")), m->n_output);
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(j, "inputs"))
        check_fields(r, "input", e, "name:s dtype:s shape:a");
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(j, "outputs"))
        check_fields(r, "output", e, "name:s dtype:s shape:a");
    cJSON_Delete(j);
}

/* What the applied remarks save. */
static nnc_cost saved(const row *r, const nnc_artifact *a)
{
    nnc_text t = {0};
    double bytes = 0, launches = 0;
    CHECK_OK(nnc_report_explain(a, NNC_JSON, true, &t));
    cJSON *j = parsed(r, "explain", &t), *e;
    CHECK(cJSON_IsArray(j));
    cJSON_ArrayForEach(e, j)
    {
        check_fields(r, "remark", e,
            "pass:s verdict:s rule:s layers:a reason:s bytes_saved:i launches_saved:i "
            "bytes_kept:i");
        const char *verdict = cJSON_GetStringValue(cJSON_GetObjectItem(e, "verdict"));
        bool applied = verdict && !strcmp(verdict, "applied");
        CHECK(applied || (verdict && !strcmp(verdict, "declined")));
        bytes += applied ? number(e, "bytes_saved") : 0;
        launches += applied ? number(e, "launches_saved") : 0;
    }
    cJSON_Delete(j);
    return (nnc_cost){.bytes = (int64_t)bytes, .launches = (int64_t)launches};
}

/* Remarks add up to the difference between the plans of the model as written, without unused nodes, and the optimised one. */
static void check_explain(const row *r, const nnc_artifact *a, const nnc_artifact *written)
{
    const nnc_cost before = api_plan_cost(nnc_artifact_plan(written)), dead = saved(r, written);
    const nnc_cost after = api_plan_cost(nnc_artifact_plan(a)), all = saved(r, a);
    CHECK_INT(all.bytes - dead.bytes, before.bytes - after.bytes);
    CHECK_INT(all.launches - dead.launches, before.launches - after.launches);
}

static void check_memory(const row *r, nnc_env *env, const nnc_artifact *a)
{
    nnc_text t = {0};
    bool fits = false;
    nnc_session *s = NULL;
    CHECK_OK(nnc_report_memory(env, a, NNC_JSON, &t, &fits));
    cJSON *j = parsed(r, "memory", &t), *e, *c;
    check_fields(r, "memory", j, "devices:a fits:b");
    CHECK(fits && cJSON_IsTrue(cJSON_GetObjectItem(j, "fits")));
    CHECK_OK(nnc_session_create(env, a, &s, test_sink));
    int device = 0;
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(j, "devices"))
    {
        check_fields(r, "device", e,
            "device:s weights:i arena:i workspace:i init:i total:i lower_bound:i peak_at:s "
            "timeline:a");
        double peak = 0;
        cJSON_ArrayForEach(c, cJSON_GetObjectItem(e, "timeline"))
        {
            check_fields(r, "timeline", c, "layers:s live:i");
            peak = fmax(peak, number(c, "live"));
        }
        CHECK(peak == number(e, "lower_bound"));
        CHECK(number(e, "total") == number(e, "weights") + number(e, "arena"));
        if (s) {
            nnc_exec_memory m = nnc_exec_requested(s->exec, device++);
            CHECK_INT(number(e, "arena"), m.arena);
            CHECK_INT(number(e, "weights"), m.persist);
            CHECK_INT(number(e, "init"), m.init);
        }
    }
    CHECK_INT(device, nnc_artifact_plan(a)->n_device);
    nnc_session_destroy(s);
    cJSON_Delete(j);
}

/* Whatever rows are, as printed, they and the idle time add up to the streams' time. */
static void check_rows(const row *r, nnc_env *env, const nnc_profile *p)
{
    for (nnc_profile_by by = 0; by < BY__COUNT; by++) {
        const nnc_profile_options o = {.by = by};
        nnc_text t = {0};
        double ms = 0;
        CHECK_OK(nnc_profile_print(env, p, &o, NNC_JSON, &t, test_sink));
        cJSON *j = parsed(r, "profile", &t), *e;
        check_fields(r, "profile", j,
            "model:s target:s threads:i predicted:b clock:s clock_why:s median_ms:N wall_ms:n "
            "runs:i streams:i "
            "chunks:i verdict:s "
            "overhead:N overhead_low:N overhead_high:N outside_ms:n cpu_share:N cycles_ms:a by:s "
            "rows:a");
        cJSON_ArrayForEach(e, cJSON_GetObjectItem(j, "rows"))
        {
            check_fields(r, "row", e,
                "name:s ms:n self_ms:n share:n calls:i divided:b flops:i bytes_moved:i least_ms:n "
                "limit:s "
                "engine:s op:s "
                "result:s memory_bytes:i allocated_bytes:i joules:N");
            ms += number(e, "self_ms");
        }
        const double all = number(j, "wall_ms") * number(j, "streams"),
                     rounded = 1e-6 * (cJSON_GetArraySize(cJSON_GetObjectItem(j, "rows")) + 1);
        if (!(all > 0) || !(fabs(ms - all) <= rounded))
            test_fail(__FILE__, __LINE__, "%s by %s: rows of %.9g ms in %.9g", r->model,
                nnc_profile_by_names[by], ms, all);
        cJSON_Delete(j);
    }
}

/* A measured run, or a step. */
static void check_profile(
    const row *r, nnc_env *env, const nnc_artifact *a, const nnc_training *step)
{
    const nnc_profile_options o = {.active = 1};
    const nnc_compare_options t = {
        .iterations = 1, .warmup = -1, .seed = test_seed, .training = step};
    nnc_session *s = NULL;
    nnc_profile p = {0};
    nnc_status st = nnc_session_create(env, a, &s, test_sink);
    if (!st)
        st = nnc_session_make_inputs(s, &t, test_seed, test_sink);
    if (!st)
        st = nnc_profile_measure(env, s, step != NULL, &t, &o, &p, test_sink);
    CHECK_OK(st);
    if (!st) {
        int64_t most = 0;
        check_rows(r, env, &p);
        for (int i = 0; i < p.n; i++)
            most = nnc_max64(most, p.cmd[i].alive);
        CHECK_INT(most, nnc_artifact_plan(a)->device[0].lower_bound);
    }
    nnc_arena_deinit(&p.arena);
    nnc_session_destroy(s);
}

/* A step as the simulator predicts it, and of some models measured. */
static void profile_step(
    const row *r, nnc_env *env, nnc_env *described, const nnc_model *m, bool measure)
{
    nnc_model *step = NULL;
    nnc_artifact *a = NULL;
    nnc_profile p = {0};
    NNC_OWNED(nnc_sink) *said = nnc_sink_create();
    if (nnc_train_graph(m, &nnc_training_defaults, &step, said))
        return; /* it has nothing to train */
    nnc_status st = nnc_compile_plan(described, step, &nnc_compile_defaults, &a, test_sink);
    if (!st)
        st = nnc_profile_predict(described, a, true, &(nnc_profile_options){0}, &p, test_sink);
    CHECK_OK(st);
    if (!st)
        check_rows(r, described, &p);
    nnc_arena_deinit(&p.arena);
    nnc_artifact_destroy(a);
    a = NULL;
    if (measure) {
        CHECK_OK(nnc_compile(env, step, &nnc_compile_defaults, &a, test_sink));
        if (a)
            check_profile(r, env, a, &nnc_training_defaults);
        nnc_artifact_destroy(a);
    }
    nnc_model_close(step);
}

TEST(profiles_of_steps_add_up)
{
    nnc_env *env = open_env(false), *described = NULL;
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.hardware = "models/hardware/cpu.json"}, &described, test_sink));
    for (size_t i = 0; env && described && i < NNC_COUNT(rows); i++) {
        nnc_model *m = open_row(&rows[i]);
        if (m)
            profile_step(&rows[i], env, described, m,
                test_takes(i, 4) && strcmp(rows[i].model, "vgg16") != 0);
        nnc_model_close(m);
    }
    nnc_env_destroy(described);
    nnc_env_destroy(env);
}

/* asm: the machine code that an object has already, generated a second time: of some models. */
static void check_stages(nnc_env *env, const nnc_artifact *a, bool with_asm)
{
    static const char *const stage[] = {
        "graph", "plan", "kernels", "llvm", "asm", "dot", "remarks"};
    for (size_t i = 0; i < NNC_COUNT(stage); i++) {
        nnc_text t = {0};
        bool machine = i == 3 || i == 4;
        if ((!machine || env->has_emitter) && (i != 4 || with_asm)) {
            CHECK_OK(nnc_emit_text(env, a, stage[i], &t, test_sink));
            CHECK(t.n > 0 || ((machine || i == 2) && nnc_artifact_plan(a)->n_kernel == 0));
        }
        nnc_text_deinit(&t);
    }
}

TEST(reports)
{
    nnc_env *env = open_env(false);
    for (size_t i = 0; env && i < NNC_COUNT(rows); i++) {
        const row *r = &rows[i];
        nnc_model *m = open_row(r);
        nnc_artifact *a = NULL, *plain = NULL;
        nnc_compile_options o = nnc_compile_defaults;
        o.level = 0;
        nnc_text why = {0};
        if (m) {
            check_show(r, m);
            CHECK_OK(nnc_compile(env, m, &nnc_compile_defaults, &a, test_sink));
            CHECK_OK(nnc_compile(env, m, &o, &plain, test_sink));
        }
        if (a && plain) {
            if (!api_check_artifact(a, &why, test_sink) ||
                !api_check_artifact(plain, &why, test_sink))
                test_fail(__FILE__, __LINE__, "%s: %s", r->model, nnc_text_str(&why));
            check_explain(r, a, plain);
            check_memory(r, env, a);
            check_profile(r, env, a, NULL);
            check_stages(env, a, test_takes(i, 4));
        }
        nnc_text_deinit(&why);
        nnc_artifact_destroy(a);
        nnc_artifact_destroy(plain);
        nnc_model_close(m);
    }
    nnc_env_destroy(env);
}
