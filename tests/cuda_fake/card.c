/* tests/cuda_fake/card.c -- --target=cuda: what the GPU that is there says of itself, in devices, in the plan and in the schedules. */
#include "help.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char rows[] =
    "{\"inputs\": {\"x\": [2, 262144]}, \"layers\": [{\"op\": \"softmax\"}]}";

static void check_end(void)
{
    char why[512];
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* Does the report of `devices` say `part`? */
static void check_devices(nnc_env *e, nnc_format f, const char *part)
{
    nnc_text t = {0};
    CHECK_OK(nnc_report_devices(e, f, &t));
    if (!strstr(nnc_text_str(&t), part))
        test_fail(__FILE__, __LINE__, "not in devices: %s\n%s", part, nnc_text_str(&t));
    nnc_text_deinit(&t);
}

static char *plan_of(const loaded *l)
{
    nnc_text t = {0};
    nnc_plan_print(&t, nnc_artifact_plan(l->a));
    char *s = strdup(nnc_text_str(&t));
    nnc_text_deinit(&t);
    return s;
}

TEST(the_card_that_is_there)
{
    loaded l, described;
    fake_begin(0);
    fake_gpu = (fake_card){20, 1755000, 2619000, 5120, 50 << 20, (size_t)80 << 30};
    compile(&l, rows, "cuda", 1, 1);
    compile(&described, rows, "cuda:sm_90", 1, 1);
    check_devices(
        l.e, NNC_TEXT, "20 SMs of 2048 threads at 1755 MHz; memory 80.00 GiB, L2 50.00 MiB");
    check_devices(l.e, NNC_TEXT, "peak 9.0 TFLOP/s (f32), 66 (tf32), 133 (f16), copies 3017 GB/s");
    check_devices(l.e, NNC_TEXT, "numbers reported by the driver");
    check_devices(l.e, NNC_JSON, "\"asked\": true");
    check_devices(described.e, NNC_TEXT, "H200 SXM, 132 SMs");
    check_devices(described.e, NNC_TEXT, "described, not measured");
    char *a = plan_of(&l), *b = plan_of(&described);
    CHECK(strstr(a, ": 85899345920 bytes, 1755 MHz, 3017 GB/s") != NULL);
    CHECK(strcmp(strchr(a, '\n'), strchr(b, '\n')) != 0); /* other schedules, too */
    free(a);
    free(b);
    unload(&l);
    unload(&described);
    check_end();
}

/* Who asks for this machine hears of its GPUs too. */
TEST(devices_lists_gpus)
{
    nnc_env *e;
    fake_begin(0);
    fake_gpu = (fake_card){20, 1755000, 2619000, 5120, 50 << 20, (size_t)80 << 30};
    CHECK_OK(nnc_env_create(&(nnc_env_options){0}, &e, test_sink));
    check_devices(e, NNC_TEXT, "  GPU 0    GPU, sm_90, 20 SMs, memory 80.00 GiB");
    check_devices(e, NNC_TEXT, "--target=cuda");
    check_devices(e, NNC_TEXT, "virtual devices cpu:0");
    nnc_env_destroy(e);
    check_end();
}

TEST(the_same_card_the_same_plan)
{
    char *plan[2];
    for (int i = 0; i < 2; i++) {
        loaded l;
        fake_begin((uint64_t)i);
        compile(&l, rows, "cuda", 1, 1);
        plan[i] = plan_of(&l);
        unload(&l);
        check_end();
    }
    CHECK_STR(plan[0], plan[1]);
    free(plan[0]);
    free(plan[1]);
}

/* A driver that gives no numbers: the description's stand. */
static int no_attribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == CUDA_ATTR_MAJOR ? 9 : 0;
    return attribute == CUDA_ATTR_MAJOR || attribute == CUDA_ATTR_MINOR ? 0 : 1;
}

TEST(a_card_that_says_nothing)
{
    nnc_env *e = NULL;
    fake_begin(0);
    nnc_cuda_cudart t = *NNC_CUDA(cudart, NULL);
    t.cudaDeviceGetAttribute = no_attribute;
    nnc_cuda_override(CUDA_cudart, &t);
    CHECK_OK(nnc_env_create(&(nnc_env_options){.target = "cuda", .no_cache = true}, &e, test_sink));
    check_devices(
        e, NNC_TEXT, "132 SMs of 2048 threads at 1980 MHz; memory 1.00 GiB, L2 60.00 MiB");
    nnc_env_destroy(e);
    check_end();
}

/* Compiled for the described card, run on this one, and the other way round. */
TEST(artifacts_run_on_any_card_of_their_architecture)
{
    static const char *const target[] = {"cuda:sm_90", "cuda"};
    if (no_compiler())
        return;
    for (int i = 0; i < 2; i++) {
        char file[] = "/tmp/nnc_card_XXXXXX.nnc";
        loaded l, other = {0};
        fake_begin(0);
        fake_gpu.sms = 78;
        int fd = mkstemps(file, 4);
        if (fd >= 0)
            close(fd);
        compile(&l, rows, target[i], 1, 1);
        CHECK_OK(nnc_artifact_save(l.a, file, true, test_sink));
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = target[!i], .no_cache = true}, &other.e, test_sink));
        CHECK_OK(nnc_artifact_load(other.e, file, &other.a, test_sink));
        CHECK_DIAG("other numbers (SMs, caches): it runs as it is");
        CHECK_OK(nnc_session_create(other.e, other.a, &other.s, test_sink));
        float *in = calloc(2 * 262144, sizeof *in);
        CHECK_OK(nnc_session_input(other.s, 0, in, test_sink));
        free(in);
        CHECK_OK(nnc_session_run(other.s, test_sink));
        unload(&other);
        unload(&l);
        unlink(file);
        check_end();
        nnc_sink_clear(test_sink);
    }
}
