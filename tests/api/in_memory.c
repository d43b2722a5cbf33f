/* tests/api/in_memory.c -- models and weights in the caller's memory: read in place, by name, and never taken for others. */
#include "help.h"
#include <string.h>

enum { ROWS = 8, N = 1024 };

static const char text[] = "graph @net {\n"
                           "  %x = input : f32[8,1024]\n"
                           "  %a = param : f32[1024,1024] = gen(\"a\", seed=0, scale=0)\n"
                           "  %b = param : f32[1024,1024] = gen(\"b\", seed=0, scale=0)\n"
                           "  %p = matmul %x, %a\n"
                           "  %q = matmul %x, %b\n"
                           "  return %p, %q\n"
                           "}\n";

typedef struct job {
    nnc_env *e;
    float a[N * N], b[N * N], x[ROWS * N], p[ROWS * N], q[ROWS * N];
} job;

static nnc_status session(job *j, const nnc_artifact *a)
{
    NNC_OWNED(nnc_session) *s = NULL;
    NNC_TRY(nnc_session_create(j->e, a, &s, test_sink));
    NNC_TRY(nnc_session_input(s, 0, j->x, test_sink));
    NNC_TRY(nnc_session_run(s, test_sink));
    NNC_TRY(nnc_session_output(s, 0, j->p, test_sink));
    return nnc_session_output(s, 1, j->q, test_sink);
}

/* Compiles the text with the weights of j, and runs it; `saved`: as the file that the artifact is saved to, weights embedded. */
static nnc_status run(job *j, const char *saved)
{
    const int64_t dim[2] = {N, N};
    nnc_open_options *o = nnc_open_options_create();
    nnc_model *m = NULL;
    nnc_artifact *a = NULL;
    nnc_status st = nnc_open_options_tensor(o, "b", "f32", 2, dim, j->b, test_sink);
    if (!st)
        st = nnc_open_options_tensor(o, "a", "f32", 2, dim, j->a, test_sink);
    if (!st)
        st = nnc_model_read("text", text, sizeof text - 1, o, &m, test_sink);
    nnc_open_options_destroy(o);
    if (!st)
        st = nnc_compile(j->e, m, NULL, &a, test_sink);
    nnc_model_close(m);
    if (!st && saved) {
        CHECK_INT(nnc_artifact_save(a, saved, false, test_sink), NNC_E_USAGE);
        nnc_sink_clear(test_sink);
        st = nnc_artifact_save(a, saved, true, test_sink);
    }
    if (!st && saved) {
        nnc_artifact_destroy(a);
        st = nnc_artifact_load(j->e, saved, &a, test_sink);
    }
    if (!st)
        st = session(j, a);
    nnc_artifact_destroy(a);
    return st;
}

/* Weights are `scale` and `-scale` times the identity: products are exact. */
static bool right(job *j, float scale)
{
    for (int i = 0; i < ROWS * N; i++)
        if (j->p[i] != scale * j->x[i] || j->q[i] != -scale * j->x[i])
            return false;
    return true;
}

/* Packed weights are kept on disk, by what they are made from: those of this process's memory are not. */
TEST(weights_in_memory)
{
    char dir[256], file[300];
    job *j = nnc_calloc(1, sizeof *j);
    CHECK(j && api_tmpdir(dir, sizeof dir));
    snprintf(file, sizeof file, "%s/m.nnc", dir);
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED}, &j->e, test_sink));
    for (int i = 0; i < ROWS * N; i++)
        j->x[i] = (float)(i % 100 - 50);
    for (int scale = 1; scale < 4; scale++) {
        for (int i = 0; i < N; i++)
            j->b[i * N + i] = -(j->a[i * N + i] = (float)scale);
        CHECK_OK(run(j, NULL));
        CHECK(right(j, (float)scale));
        CHECK_OK(run(j, file));
        CHECK(right(j, (float)scale));
    }
    nnc_env_destroy(j->e);
    nnc_free(j);
}

TEST(weights_in_memory_that_do_not_fit)
{
    const int64_t dim[2] = {N, N}, large[2] = {INT64_MAX, 4};
    const float data = 0;
    nnc_model *m = NULL;
    nnc_open_options *o = nnc_open_options_create();
    CHECK_INT(nnc_open_options_tensor(o, "a", "f33", 2, dim, &data, test_sink), NNC_E_USAGE);
    CHECK_INT(nnc_open_options_tensor(o, "a", "f32", 9, dim, &data, test_sink), NNC_E_USAGE);
    CHECK_INT(nnc_open_options_tensor(o, "a", "f32", -1, dim, &data, test_sink), NNC_E_USAGE);
    CHECK_INT(nnc_open_options_tensor(o, "a", "f32", 2, large, &data, test_sink), NNC_E_USAGE);
    CHECK_OK(nnc_open_options_tensor(o, "a", "f32", 1, dim, &data, test_sink));
    CHECK_INT(nnc_model_read("text", text, sizeof text - 1, o, &m, test_sink), NNC_E_MODEL);
    CHECK(!m);
    CHECK_INT(nnc_model_read("absent.json", NULL, 0, NULL, &m, test_sink), NNC_E_IO);
    CHECK_INT(nnc_model_read("text", "", 0, NULL, &m, test_sink), NNC_E_MODEL);
    nnc_sink_clear(test_sink);
    nnc_open_options_destroy(o);
}
