/* tests/api/options.c -- options by name (nnc.h). Every name reaches its field, and wrong names and values are refused with what
 * would be right. Strings and lists are copies, and NULL means the defaults. */
#include "session/session.h"
#include "test.h"
#include <string.h>

static bool says(const char *words)
{
    nnc_text *t = nnc_text_create();
    nnc_sink_put(test_sink, t);
    const bool found = strstr(nnc_text_str(t), words) != NULL;
    nnc_text_destroy(t);
    nnc_sink_clear(test_sink);
    return found;
}

TEST(options_of_a_machine)
{
    nnc_env_options *o = nnc_env_options_create();
    char target[] = "cuda:sm_90";
    static const char *const set[][2] = {{"threads", "3"}, {"cache-dir", "/tmp/x"},
        {"tuning", "t.json"}, {"tune", "1"}, {"no-cache", "1"}, {"no-llvm", "1"}};
    for (size_t i = 0; i < NNC_COUNT(set); i++)
        CHECK_OK(nnc_env_options_set(o, set[i][0], set[i][1], test_sink));
    CHECK_OK(nnc_env_options_set(o, "target", target, test_sink));
    target[0] = 'X'; /* a copy was taken */
    CHECK(o->threads == 3 && !strcmp(o->target, "cuda:sm_90") && !strcmp(o->cache_dir, "/tmp/x") &&
          !strcmp(o->tuning, "t.json") && o->tune && o->no_cache && o->no_llvm);
    CHECK_OK(nnc_env_options_set(o, "no-llvm", "0", test_sink));
    CHECK(!o->no_llvm);
    CHECK(nnc_env_options_set(o, "thread", "3", test_sink) == NNC_E_USAGE);
    CHECK(says("did you mean threads"));
    CHECK(nnc_env_options_set(o, "threads", "3x", test_sink) == NNC_E_USAGE);
    CHECK(says("an integer from 0 to 1024"));
    CHECK(nnc_env_options_set(o, "threads", "", NULL) == NNC_E_USAGE);
    CHECK(nnc_env_options_set(o, "tune", "yes", test_sink) == NNC_E_USAGE);
    CHECK(says("1 or 0"));
    nnc_env_options_destroy(o);
}

TEST(options_of_a_model)
{
    nnc_open_options *o = nnc_open_options_create();
    CHECK_OK(nnc_open_options_set(o, "set", "batch=8", test_sink));
    CHECK_OK(
        nnc_open_options_set(o, "set", "ba=x", test_sink)); /* no prefix counts as the same name */
    CHECK_OK(nnc_open_options_set(o, "seed", "18446744073709551615", test_sink));
    CHECK_OK(nnc_open_options_set(o, "weights", "w.safetensors", test_sink));
    CHECK(o->n_arg == 2 && !strcmp(o->arg[0].name, "batch") && !strcmp(o->arg[0].value, "8") &&
          !strcmp(o->arg[1].name, "ba") && o->seed == UINT64_MAX &&
          !strcmp(o->weights, "w.safetensors"));
    CHECK(nnc_open_options_set(o, "set", "batch=9", test_sink) == NNC_E_USAGE);
    CHECK(says("option set batch is given twice, as 8 and as 9"));
    CHECK(nnc_open_options_set(o, "set", "=9", test_sink) == NNC_E_USAGE);
    CHECK(says("NAME=VALUE"));
    CHECK(nnc_open_options_set(o, "seed", "-1", test_sink) == NNC_E_USAGE);
    CHECK(says("2^64"));
    CHECK(o->n_arg == 2);
    nnc_open_options_destroy(o);
}

TEST(options_of_a_compile)
{
    nnc_compile_options *o = nnc_compile_options_create();
    CHECK(!memcmp(o, &nnc_compile_defaults, sizeof *o));
    static const char *const set[][2] = {{"O", "3"}, {"math", "fast"}, {"precision", "bf16"},
        {"skip", "fuse"}, {"skip", "layout"}, {"streams", "4"}, {"devices", "2"}, {"jobs", "5"}};
    for (size_t i = 0; i < NNC_COUNT(set); i++)
        CHECK_OK(nnc_compile_options_set(o, set[i][0], set[i][1], test_sink));
    CHECK(o->level == 3 && o->math == MATH_fast && o->precision == NNC_PRECISION_bf16 &&
          o->n_skip == 2 && !strcmp(o->skip[0], "fuse") && !strcmp(o->skip[1], "layout") &&
          o->streams == 4 && o->devices == 2 && o->jobs == 5);
    CHECK_OK(nnc_compile_options_set(o, "math", "exact", test_sink));
    CHECK(o->math == MATH_exact);
    static const char *const wrong[][2] = {{"O", "4"}, {"O", "-1"}, {"math", "slow"},
        {"precision", "f8"}, {"precision", "bf"}, {"skip", ","}, {"streams", "0"}, {"level", "2"}};
    for (size_t i = 0; i < NNC_COUNT(wrong); i++)
        CHECK(nnc_compile_options_set(o, wrong[i][0], wrong[i][1], NULL) == NNC_E_USAGE);
    nnc_compile_options_destroy(o);
}

TEST(options_of_a_comparison)
{
    nnc_compare_options *o = nnc_compare_options_create();
    CHECK(!memcmp(o, &nnc_compare_defaults, sizeof *o));
    static const char *const set[][2] = {{"O", "1"}, {"math", "fast"}, {"skip", "fuse"},
        {"seed", "7"}, {"warmup", "2"}, {"iterations", "9"}, {"duration", "50"}, {"no-steps", "1"},
        {"no-reference", "1"}, {"tolerance", "1e-3"}, {"input", "x=a.npy"}};
    for (size_t i = 0; i < NNC_COUNT(set); i++)
        CHECK_OK(nnc_compare_options_set(o, set[i][0], set[i][1], test_sink));
    CHECK(o->compile.level == 1 && o->compile.math == MATH_fast && o->compile.n_skip == 1 &&
          o->seed == 7 && o->warmup == 2 && o->iterations == 9 && o->duration_ms == 50 &&
          !o->steps && o->no_reference && o->tolerance == 1e-3 && o->n_input == 1 &&
          !strcmp(o->input[0].value, "a.npy"));
    CHECK(nnc_compare_options_set(o, "tolerance", "nan", test_sink) == NNC_E_USAGE);
    CHECK(says("a number >= 0"));
    nnc_compare_options_destroy(o);
}

TEST(options_may_be_absent)
{
    nnc_env *env = NULL;
    nnc_artifact *a = NULL;
    CHECK_OK(nnc_env_create(NULL, &env, test_sink));
    nnc_model *m = nnc_model_open("models/relu.json", NULL, test_sink);
    CHECK(m != NULL);
    CHECK_OK(nnc_compile(env, m, NULL, &a, test_sink));
    nnc_artifact_work(a, NULL, NULL, NULL);
    CHECK(nnc_artifact_input_name(a, 0) && !nnc_artifact_input_name(a, 1) &&
          !nnc_artifact_input_name(a, -1));
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    nnc_env_destroy(env);
}

TEST(inputs_with_a_default)
{
    nnc_open_options *o = nnc_open_options_create();
    for (int given = 0; given < 2; given++) {
        NNC_LOCAL(nnc_text) t = {0};
        if (given)
            CHECK_OK(nnc_open_options_set(o, "input", "w", test_sink));
        nnc_model *m = nnc_model_open("tests/cli/onnx/default.onnx", o, test_sink);
        CHECK(m != NULL);
        nnc_print_model(m, &t);
        CHECK(strstr(nnc_text_str(&t), given ? "%w = input" : "%w = param"));
        nnc_model_close(m);
    }
    nnc_open_options_destroy(o);
}
