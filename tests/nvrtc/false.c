/* tests/nvrtc/false.c -- compiling through a false NVRTC: which one is asked for which GPU, errors with their places, the cache, threads,
 * running out of memory. nvrtc.c does it with the real one. */
#include "session/session.h"
#include "cuda/cuda.h"
#include "test.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- a false compiler: its "machine code" is its options and the source ------------------------------------------- */

struct nvrtc_program_of {
    char *source, *code, *log;
    size_t n;
};

static atomic_int compiled;

static int create(nvrtc_program *p, const char *source, const char *name, int n,
    const char *const *h, const char *const *names)
{
    (void)name, (void)n, (void)h, (void)names;
    *p = calloc(1, sizeof **p);
    (*p)->source = strdup(source);
    return 0;
}

static int destroy(nvrtc_program *p)
{
    free((*p)->source);
    free((*p)->code);
    free((*p)->log);
    free(*p);
    *p = NULL;
    return 0;
}

static int compile(nvrtc_program p, int n, const char *const *option)
{
    FILE *f = open_memstream(&p->code, &p->n);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s ", option[i]);
    fprintf(f, "\n%s", p->source);
    fclose(f);
    p->n++; /* with the NUL */
    atomic_fetch_add(&compiled, 1);
    const char *wrong = strstr(p->source, "WRONG"), *cut = strstr(p->source, "STRANGE");
    if (wrong)
        p->log =
            strdup("bad.cu(2): warning #177-D: variable \"w\" was declared but never referenced\n"
                   "bad.cu(4): error: identifier \"WRONG\" is undefined\n    WRONG;\n    ^\n\n"
                   "bad.cu(9): error #20: expected a \";\"\n\n"
                   "2 errors detected in the compilation of \"bad.cu\".\n");
    else if (cut)
        p->log = strdup("something else happened\n");
    return wrong || cut ? 6 : 0;
}

static int size_of(nvrtc_program p, size_t *n)
{
    return *n = p->n, 0;
}
static int code_of(nvrtc_program p, char *out)
{
    return memcpy(out, p->code, p->n), 0;
}
static int log_size(nvrtc_program p, size_t *n)
{
    return *n = p->log ? strlen(p->log) + 1 : 0, 0;
}
static int log_of(nvrtc_program p, char *out)
{
    return strcpy(out, p->log), 0;
}
static const char *error_text(int error)
{
    return error == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}

static const int archs13[] = {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121},
                 archs12[] = {50, 61, 70, 75, 90};
static int version13(int *major, int *minor)
{
    return *major = 13, *minor = 0, 0;
}
static int version12(int *major, int *minor)
{
    return *major = 12, *minor = 9, 0;
}
static int count13(int *n)
{
    return *n = (int)NNC_COUNT(archs13), 0;
}
static int count12(int *n)
{
    return *n = (int)NNC_COUNT(archs12), 0;
}
static int list13(int *a)
{
    return memcpy(a, archs13, sizeof archs13), 0;
}
static int list12(int *a)
{
    return memcpy(a, archs12, sizeof archs12), 0;
}

#define FALSE_NVRTC(v) \
    { \
        version##v, error_text, count##v, list##v, create, destroy, compile, size_of, code_of, \
            size_of, code_of, log_size, log_of \
    }
static const nnc_cuda_nvrtc nvrtc13 = FALSE_NVRTC(13), nvrtc12 = FALSE_NVRTC(12);

static void begin(bool with12)
{
    nnc_cuda_override(CUDA_nvrtc, &nvrtc13);
    nnc_cuda_override(CUDA_nvrtc12, with12 ? &nvrtc12 : NULL);
    atomic_store(&compiled, 0);
}

/* ---- which NVRTC, and what it makes ------------------------------------------------------------------------------- */

TEST(nvrtc_target)
{
    static const struct {
        int sm;
        bool ptx;
        nnc_cuda_lib lib;
        int arch;
        bool gives_ptx;
        const char *note;
    } way[] = {
        {90, false, CUDA_nvrtc, 90, false, NULL},
        {90, true, CUDA_nvrtc, 90, true, NULL},
        {61, false, CUDA_nvrtc12, 61, false, NULL},
        {70, true, CUDA_nvrtc12, 70, true, NULL},
        {85, false, CUDA_nvrtc, 80, false, "compiling for sm_80, whose code runs there too"},
        {88, false, CUDA_nvrtc, 86, true,
            "PTX for compute_86"}, /* a system on a chip; 87's is its own too */
        {107, false, CUDA_nvrtc, 103, false, "compiling for sm_103"},
        {107, true, CUDA_nvrtc, 103, true, "PTX for compute_103"},
        {130, false, CUDA_nvrtc, 121, true,
            "NVRTC 13.0 does not support sm_130: emitting PTX for compute_121"},
    };
    begin(true);
    for (size_t i = 0; i < NNC_COUNT(way); i++) {
        nnc_nvrtc_target w;
        nnc_sink_clear(test_sink);
        CHECK_OK(nnc_nvrtc_resolve(way[i].sm, way[i].ptx, NULL, &w, test_sink));
        CHECK_INT(w.lib, way[i].lib);
        CHECK_INT(w.arch, way[i].arch);
        CHECK_INT(w.ptx, way[i].gives_ptx);
        CHECK_INT((int)nnc_sink_count(test_sink), way[i].note ? 1 : 0);
        if (way[i].note)
            CHECK_DIAG(way[i].note);
    }
    nnc_cuda_forget();
}

TEST(nvrtc_too_old_a_gpu)
{
    nnc_nvrtc_target w;
    begin(false);
    CHECK_INT(nnc_nvrtc_resolve(61, false, NULL, &w, test_sink), NNC_E_DEVICE);
    CHECK_DIAG("NVRTC 13.0 supports sm_75 and newer; sm_61 needs CUDA 12's NVRTC");
    CHECK_DIAG("pip install nvidia-cuda-nvrtc-cu12");
    nnc_cuda_override(CUDA_nvrtc, NULL);
    nnc_sink_clear(test_sink);
    CHECK_INT(nnc_nvrtc_resolve(90, false, NULL, &w, test_sink), NNC_E_DEVICE);
    CHECK_DIAG("nvrtc is missing");
    nnc_cuda_forget();
}

TEST(nvrtc_options)
{
    static const char *const more[] = {"--fmad=false"};
    nnc_nvrtc_unit u = {.name = "a.cu", .source = "x"};
    nnc_nvrtc_options o = {.sm = 90, .lineinfo = true, .fast = true, .option = more, .n_option = 1};
    begin(true);
    CHECK_OK(nnc_nvrtc_compile(&u, 1, &o, test_sink));
    CHECK_STR(u.code ? u.code : "", "-arch=sm_90 --std=c++17 -default-device --minimal -lineinfo "
                                    "--Ofast-compile=max --fmad=false \nx");
    nnc_free(u.code);
    o = (nnc_nvrtc_options){.sm = 61, .ptx = true};
    CHECK_OK(nnc_nvrtc_compile(&u, 1, &o, test_sink));
    CHECK(u.is_ptx && u.code &&
          !strncmp(u.code, "-arch=compute_61 --std=c++17 -default-device \n", 46));
    nnc_free(u.code);
    o = (nnc_nvrtc_options){.sm = 90, .n_option = 100};
    CHECK_INT(nnc_nvrtc_compile(&u, 1, &o, test_sink), NNC_E_USAGE);
    nnc_cuda_forget();
}

/* ---- errors ------------------------------------------------------------------------------------------------------- */

TEST(nvrtc_errors_are_located)
{
    nnc_nvrtc_unit u[] = {{.name = "good.cu", .source = "fine"},
        {.name = "bad.cu",
            .source = "// first\nextern \"C\" __global__ void __launch_bounds__(256)\n  "
                      "k_first(int *x)\n{ WRONG; }\n\n"
                      "extern \"C\" __global__ void __launch_bounds__(32) k_second(int *y)\n{\n "
                      "int z\n}\n"},
        {.name = "odd.cu", .source = "STRANGE"}};
    nnc_nvrtc_options o = {.sm = 90};
    begin(true);
    CHECK_INT(nnc_nvrtc_compile(u, 3, &o, test_sink), NNC_E_BUG);
    CHECK_DIAG("bad.cu:4");
    CHECK_DIAG("kernel k_first: identifier \"WRONG\" is undefined");
    CHECK_DIAG("bad.cu:9");
    CHECK_DIAG("kernel k_second: expected a \";\"");
    CHECK_DIAG("NVRTC: NVRTC_ERROR_COMPILATION: something else happened");
    CHECK_INT((int)nnc_sink_count(test_sink), 3); /* the compiler's warnings are not checked */
    for (int i = 0; i < 3; i++)
        CHECK(u[i].code == NULL);
    nnc_cuda_forget();
}

/* ---- cache and threads -------------------------------------------------------------------------------------------- */

enum { UNITS = 12 };

static void make_units(nnc_nvrtc_unit *u, char source[UNITS][32])
{
    for (int i = 0; i < UNITS; i++) {
        snprintf(source[i], 32, "unit %d of the test", i);
        u[i] = (nnc_nvrtc_unit){.name = "u.cu", .source = source[i]};
    }
}

static void free_units(nnc_nvrtc_unit *u)
{
    for (int i = 0; i < UNITS; i++)
        nnc_free(u[i].code);
}

TEST(nvrtc_jobs_change_nothing)
{
    nnc_nvrtc_unit a[UNITS], b[UNITS];
    char source[UNITS][32];
    begin(true);
    make_units(a, source);
    make_units(b, source);
    CHECK_OK(nnc_nvrtc_compile(a, UNITS, &(nnc_nvrtc_options){.sm = 80, .jobs = 1}, test_sink));
    CHECK_OK(nnc_nvrtc_compile(b, UNITS, &(nnc_nvrtc_options){.sm = 80, .jobs = 4}, test_sink));
    CHECK_INT(atomic_load(&compiled), 2 * UNITS);
    for (int i = 0; i < UNITS; i++)
        CHECK(a[i].n == b[i].n && !memcmp(a[i].code, b[i].code, a[i].n) &&
              strstr(a[i].code, source[i]));
    free_units(a);
    free_units(b);
    nnc_cuda_forget();
}

TEST(nvrtc_cache)
{
    nnc_nvrtc_unit u[UNITS];
    char source[UNITS][32], dir[] = "/tmp/nnc-cache-XXXXXX", command[64];
    begin(true);
    nnc_cache *cache = nnc_cache_open(mkdtemp(dir));
    nnc_nvrtc_options o = {.sm = 90, .jobs = 2, .cache = cache};
    static const char *const more[] = {"--fmad=false"};
    const struct {
        int sm;
        bool ptx;
        int n_option, want;
    } step[] = {{90, false, 0, UNITS}, {90, false, 0, 0}, {80, false, 0, UNITS},
        {90, true, 0, UNITS}, {90, false, 1, UNITS}, {90, false, 1, 0}, {80, false, 0, 0}};
    for (size_t i = 0; i < NNC_COUNT(step); i++) {
        atomic_store(&compiled, 0);
        make_units(u, source);
        o.sm = step[i].sm;
        o.ptx = step[i].ptx;
        o.option = more;
        o.n_option = step[i].n_option;
        CHECK_OK(nnc_nvrtc_compile(u, UNITS, &o, test_sink));
        CHECK_INT(atomic_load(&compiled), step[i].want);
        for (int k = 0; k < UNITS; k++)
            CHECK(u[k].cached == (step[i].want == 0) && strstr(u[k].code, source[k]));
        free_units(u);
    }
    nnc_cache_close(cache);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_INT(system(command), 0);
    nnc_cuda_forget();
}

TEST(nvrtc_out_of_memory)
{
    nnc_nvrtc_unit u[UNITS];
    char source[UNITS][32];
    int failed = 0;
    begin(true);
    for (int64_t n = 1; n < 500; n++) {
        make_units(u, source);
        nnc_fail_alloc_after(n);
        nnc_status st =
            nnc_nvrtc_compile(u, UNITS, &(nnc_nvrtc_options){.sm = 90, .jobs = 1}, test_sink);
        nnc_fail_alloc_after(0);
        if (st == NNC_OK) {
            free_units(u);
            break;
        }
        failed++;
        CHECK_INT(st, NNC_E_NOMEM);
        for (int i = 0; i < UNITS; i++)
            CHECK(u[i].code == NULL);
    }
    CHECK(failed > UNITS && failed < 499);
    nnc_cuda_forget();
}

/* A whole compile for a GPU, and its stages as text, with the N-th allocation failing. */
static nnc_status compile_model(const nnc_model *m)
{
    static const char *const stage[] = {"cuda", "ptx", "cubin", "plan"};
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_compile_options o = nnc_compile_defaults;
    o.jobs = 1;
    nnc_status st =
        nnc_env_create(&(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink);
    if (!st)
        st = nnc_compile(e, m, &o, &a, test_sink);
    for (size_t i = 0; i < NNC_COUNT(stage) && !st; i++) {
        nnc_text t = {0};
        st = nnc_emit_text(e, a, stage[i], &t, test_sink);
        nnc_text_deinit(&t);
    }
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    return st;
}

TEST(nvrtc_compile_out_of_memory)
{
    enum {
        ENOUGH = 40
    }; /* runs in a row without a failure: what is lost in some may be of no importance */
    nnc_model *m = nnc_model_open("models/softmax.json", &(nnc_open_options){0}, test_sink);
    int fine = 0, failed = 0;
    begin(true);
    CHECK(m != NULL);
    CHECK_OK(compile_model(m));
    for (int64_t n = 1; m && fine < ENOUGH && n < 1000000; n += failed < 150 ? 1 : 1 + n / 50) {
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        nnc_status st = compile_model(m);
        nnc_fail_alloc_after(0);
        fine = st ? 0 : fine + 1;
        failed += st != NNC_OK;
        if (st != NNC_OK && st != NNC_E_NOMEM) {
            test_fail(
                __FILE__, __LINE__, "allocation %lld fails: %s", (long long)n, nnc_status_name(st));
            nnc_sink_print(test_sink, stderr);
        }
    }
    CHECK(fine == ENOUGH && failed > 100);
    nnc_model_close(m);
    nnc_cuda_forget();
}
