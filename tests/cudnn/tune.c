/* tests/cudnn/tune.c -- algorithms by measured time, over false libraries whose clock is told what to show. */
#include "oracle.h"
#include "engines/engines.h"
#include "fake.h"
#include "target/target.h"
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/nnc-tune-XXXXXX", file[64];
static nnc_engine_env env;

/* Replaces the environment's measured algorithms. */
static nnc_status tune(const char *from, bool measure)
{
    nnc_tuning_close(env.tuning);
    env.tuning = NULL;
    return from ? nnc_tuning_open(from, measure, &env.tuning, test_sink) : NNC_OK;
}

static void times(float a, float b, float c)
{
    fake_ms[0] = a;
    fake_ms[1] = b;
    fake_ms[2] = c;
    fake_timed = 0;
}

/* Loads and runs a call; the choice that ran. */
static int runs(const nnc_engine *e, nnc_call *c)
{
    static float memory[5][4096];
    void *const args[] = {memory[0], memory[1], memory[2], memory[3], memory[4]};
    nnc_plan p = {.call = c, .n_call = 1};
    void *handle = NULL, *work = nnc_aligned_alloc(64, (size_t)c->work_bytes + 64);
    fake_choice = -1;
    CHECK_OK(e->load_call(&(nnc_load){.plan = &p, .item = 0, .env = &env}, &handle, test_sink));
    if (handle) {
        CHECK_OK(e->run(handle, args, work));
        e->unload(handle);
    }
    nnc_free(work);
    return fake_choice;
}

static void tune_engine(const nnc_engine *e, nnc_call *c)
{
    c->work_bytes = 1 << 20;
    times(3, 1, 2);
    CHECK_INT(runs(e, c), 0); /* the library's own order */
    CHECK_INT(fake_timed, 0);
    CHECK_OK(tune(file, true));
    CHECK_INT(runs(e, c), 1);
    CHECK_INT(fake_timed,
        3 + 1 + 4 + 1); /* three of the cache's flush; what takes longer than a millisecond once */
    times(1, 2, 3); /* what is recorded is not measured again */
    CHECK_INT(runs(e, c), 1);
    CHECK_INT(fake_timed, 0);
    CHECK_OK(tune(file, false)); /* read from the file, nothing is measured */
    CHECK_INT(runs(e, c), 1);
    const nnc_engine_env tuned = env;
    env = (nnc_engine_env){0}; /* another environment of the process */
    CHECK_INT(runs(e, c), 0);
    env = tuned;
    CHECK_INT(runs(e, c), 1);
    c->work_bytes += 4096;
    CHECK_INT(runs(e, c), 0); /* another call: not in the file */
    CHECK_INT(fake_timed, 0);
    CHECK_OK(tune(NULL, false));
    CHECK_INT(runs(e, c), 0);
}

TEST(tuning)
{
    CHECK(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/tuned", folder);
    fake_install();
    nnc_call conv = conv_call(2, 1, 4, 5, 4, 3, 1, 1), product = matmul_call(3, 4, 5, true);
    call_post(&conv, PO_relu);
    call_bias(&product);
    tune_engine(&nnc_engine_cudnn, &conv);
    tune_engine(&nnc_engine_cublaslt, &product);
    CHECK_INT(fake_alive, 0);
    CHECK_INT(fake_handles, 0);
    times(1, 1, 1);

    char *text;
    size_t n;
    CHECK_OK(nnc_file_read(file, 0, &text, &n, test_sink));
    CHECK(strstr(text, "cudnn ") && strstr(text, " choice=1 number=8 ns=1000000\n"));
    CHECK(strstr(text, "cublaslt ") && strstr(text, " choice=1 number=0 ns=1000000\n"));
    nnc_free(text);
    fake_remove();
    unlink(file);
    rmdir(folder);
}

/* Calls that the GPU runs faster than the host submits them: without a captured graph all would take as long. */
TEST(tuning_of_short_calls)
{
    CHECK(mkdtemp(strcpy(folder, "/tmp/nnc-tune-XXXXXX")) != NULL);
    snprintf(file, sizeof file, "%s/tuned", folder);
    fake_install();
    fake_host_ms = 0.01F;
    nnc_call conv = conv_call(2, 1, 4, 5, 4, 3, 1, 1), product = matmul_call(3, 4, 5, true);
    conv.work_bytes = product.work_bytes = 1 << 20;
    CHECK_OK(tune(file, true));
    times(0.004F, 0.003F, 0.002F);
    CHECK_INT(runs(&nnc_engine_cudnn, &conv), 2);
    times(0.003F, 0.002F, 0.004F);
    CHECK_INT(runs(&nnc_engine_cublaslt, &product), 1);
    CHECK_OK(tune(NULL, false));
    CHECK_INT(fake_alive, 0);
    fake_host_ms = 0;
    times(1, 1, 1);
    fake_remove();
    unlink(file);
    rmdir(folder);
}

/* Number of plans in the cache. */
static int kept_plans(void)
{
    char pattern[64];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/cudnn-*", folder);
    const int n = glob(pattern, 0, NULL, &g) ? 0 : (int)g.gl_pathc;
    globfree(&g);
    return n;
}

/* Strict f32 alone, and only where the choice is kept. */
TEST(measured_when_first_loaded)
{
    fake_install();
    nnc_call conv = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    conv.work_bytes = 1 << 20;
    times(3, 2, 1);
    CHECK_INT(runs(&nnc_engine_cudnn, &conv), 0);
    CHECK_INT(fake_timed, 0);
    CHECK(mkdtemp(strcpy(folder, "/tmp/nnc-tune-XXXXXX")) != NULL);
    env.cache = nnc_cache_open(folder);
    fake_no_memory = true; /* the choice without measurements is not kept */
    CHECK_INT(runs(&nnc_engine_cudnn, &conv), 0);
    CHECK_INT(fake_timed, 0);
    CHECK_INT(kept_plans(), 0);
    fake_no_memory = false;
    CHECK_INT(runs(&nnc_engine_cudnn, &conv), 2);
    CHECK_INT(kept_plans(), 1);
    CHECK(fake_timed > 0);
    times(1, 2, 3);
    CHECK_INT(runs(&nnc_engine_cudnn, &conv), 2);
    CHECK_INT(fake_timed, 0);
    conv.tf32 = true;
    CHECK_INT(runs(&nnc_engine_cudnn, &conv), 0);
    CHECK_INT(fake_timed, 0);
    nnc_cache_close(env.cache);
    env.cache = NULL;
    CHECK_INT(fake_alive, 0);
    CHECK_INT(fake_handles, 0);
    times(1, 1, 1);
    fake_remove();
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_INT(system(command), 0);
}

TEST(tuning_files)
{
    static const char *const bad[] = {"hello\n", "cudnn 00 choice=1 number=2 ns=3\n",
        "cudnn 0123456789abcdef0123456789abcdef choice=-1 number=2 ns=3\n",
        "cudnn 0123456789abcdef0123456789abcdef choice=1 number=2 ns=3 more\n"};
    char name[] = "/tmp/nnc-tune-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    close(fd);
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        nnc_sink_clear(test_sink);
        CHECK_OK(nnc_file_write(name, bad[i], strlen(bad[i]), false, test_sink));
        CHECK_INT(tune(name, true), NNC_E_MODEL);
        CHECK_DIAG("expected LIBRARY KEY choice=N number=N ns=N");
    }
    unlink(name);
    CHECK(tune(name, false) != NNC_OK); /* nothing to replay */
    CHECK_OK(tune(name, true)); /* nothing yet */
    CHECK_OK(tune(NULL, false));
}
