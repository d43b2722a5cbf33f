/* tests/nvrtc/generated.c -- the same budget for the kernels of random graphs, for whole GPUs and for small ones of the same architectures.
 * On these, graphs of this size fill all threads and so run in vectors. NNC_GRAPHS in the environment says how many graphs (100; 12 under a
 * sanitizer, which looks at nnc and not at the code). (tests/cudac runs such kernels on this machine for their numbers.) */
#include "compile.h"
#include "target/target.h"
#include "test.h"
#include <stdlib.h>

static const char *const archs[] = {"cuda:sm_75", "cuda:sm_80", "cuda:sm_90", "cuda:sm_100"};

/* The GPU with one SM of 32 threads, as a machine file. */
static bool write_small(const char *name, const char *file)
{
    nnc_target t;
    nnc_text json = {0};
    CHECK_OK(nnc_target_cuda(&t, name, test_sink));
    t.sms = t.cores = 1;
    t.sm_threads = 32;
    nnc_target_print_json(&json, &t);
    nnc_status st = nnc_file_write(file, nnc_text_str(&json), json.n, false, test_sink);
    CHECK_OK(st);
    nnc_text_deinit(&json);
    nnc_target_deinit(&t);
    return !st;
}

#ifdef __SANITIZE_ADDRESS__
enum { GRAPHS = 48 };
#else
enum { GRAPHS = 100 };
#endif

TEST(nvrtc_generated)
{
    const char *asked = getenv("NNC_GRAPHS");
    int graphs = asked ? atoi(asked) : test_draws(GRAPHS), n = 0;
    char folder[] = "/tmp/nnc-small-XXXXXX", small[NNC_COUNT(archs)][64], command[64];
    if (compile_absent())
        return;
    CHECK(mkdtemp(folder) != NULL);
    compile_job *job = nnc_calloc((size_t)(graphs + 4) * NNC_COUNT(archs), sizeof *job);
    for (size_t t = 0; t < NNC_COUNT(archs) && job; t++) {
        snprintf(small[t], sizeof small[t], "%s/%s.json", folder, archs[t] + 5);
        if (!write_small(archs[t], small[t]))
            return;
        for (int i = 0; i < graphs; i++)
            job[n++] = (compile_job){
                .seed = test_seed + (uint64_t)i, .target = i % 4 ? small[t] : archs[t]};
        job[n++] = (compile_job){
            .seed = 880040, .target = small[t]}; /* pooling of u8, whose registers ptxas spilled */
        job[n++] = (compile_job){
            .seed = 2936473645, .target = small[t]}; /* lanes read in reverse before a reduction */
        job[n++] = (compile_job){
            .seed = 725764868, .target = small[t]}; /* a cosine of f64, with UFLO for sm_80 */
        job[n++] =
            (compile_job){.seed = 725764769, .target = archs[t]}; /* a row with three mods of f64 */
    }
    char what[64];
    snprintf(what, sizeof what, "%d graphs from seed %llu", graphs, (unsigned long long)test_seed);
    compile_all(what, job, n);
    nnc_free(job);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
}
