/* tests/nvrtc/nvrtc.c -- the real NVRTC: machine code for every architecture, what it looks like, errors, the cache under several
 * processes. Skipped where there is none (scripts/cuda-wheels.sh installs one). */
#include "cuda/cuda.h"
#include "gpu_share.h"
#include "kernels.h"
#include "test.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const int archs[] = {75, 80, 86, 89, 90, 100, 120};

static bool have_nvrtc(void)
{
    nnc_cuda_found f;
    nnc_cuda_look(CUDA_nvrtc, &f);
    if (!f.ok)
        test_skip("no NVRTC: %s", f.why);
    return f.ok;
}

/* The kernels of `source` for sm; `a` owns them. */
static int inspect(const char *source, int sm, nnc_arena *a, nnc_cubin_kernel **k)
{
    nnc_nvrtc_unit u = {.name = "test.cu", .source = source};
    int n = 0, of = 0;
    CHECK_OK(nnc_nvrtc_compile(&u, 1, &(nnc_nvrtc_options){.sm = sm, .jobs = 1}, test_sink));
    if (u.code && !u.is_ptx) {
        const void *code = nnc_arena_memdup(a, u.code, u.n); /* kernels point into it */
        CHECK_OK(nnc_cubin_read(code, u.n, a, k, &n, &of, test_sink));
        CHECK_INT(of, sm);
    }
    nnc_free(u.code);
    return n;
}

static const nnc_cubin_kernel *named(const nnc_cubin_kernel *k, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(k[i].name, name))
            return &k[i];
    test_fail(__FILE__, __LINE__, "no kernel %s", name);
    static const nnc_cubin_kernel none;
    return &none;
}

static nnc_cubin_usual usual(const nnc_cubin_kernel *k)
{
    nnc_cubin_usual p;
    CHECK(nnc_cubin_usual_of(k, &p));
    return p;
}

static void check_kernels(const nnc_cubin_kernel *k, int n)
{
    const nnc_cubin_kernel *relu = named(k, n, "k_relu"), *soft = named(k, n, "k_softmax"),
                           *spill = named(k, n, "k_spill"), *w = named(k, n, "k_widths");
    for (int b = 0; b < CUBIN_WIDTHS; b++) {
        CHECK_INT(w->load_bits[b], 1);
        CHECK_INT(w->store_bits[b], 1);
        CHECK_INT(relu->load_bits[b], b == 4);
        CHECK_INT(relu->store_bits[b], b == 4);
    }
    CHECK(relu->registers >= 8 && relu->registers <= 24);
    CHECK(relu->instructions >= 8 && relu->instructions <= 24 && relu->op[0x009] == 4);
    CHECK_INT(relu->stack_bytes + relu->n[CC_load_local] + relu->n[CC_store_local], 0);
    CHECK_INT(soft->shared_bytes, 32);
    CHECK(soft->n[CC_shuffle] >= 16 && soft->n[CC_barrier] == 4 && soft->n[CC_mufu] >= 5);
    CHECK(
        spill->stack_bytes >= 128 && spill->n[CC_load_local] > 64 && spill->n[CC_store_local] > 32);
    for (int i = 0; i < n; i++)
        CHECK_INT(k[i].n[CC_unknown], 0);
    /* the usual path: all of straight code, what no slow path is of a sine */
    const nnc_cubin_kernel *sine = named(k, n, "k_sin");
    const nnc_cubin_usual r = usual(relu), s = usual(sine), m = usual(soft);
    CHECK(r.length >= relu->instructions - 2 && r.stored == 16);
    CHECK(s.length >= 25 && s.length <= 45 && sine->instructions > 2 * s.length && s.stored == 4);
    CHECK(m.length < soft->instructions - 30 && m.n[CC_shuffle] >= 16 && m.stored == 16);
    CHECK_INT(usual(w).stored, 1 + 2 + 4 + 8 + 16);
}

TEST(nvrtc_every_architecture)
{
    if (!have_nvrtc())
        return;
    for (size_t i = 0; i < NNC_COUNT(archs); i++) {
        nnc_arena a;
        nnc_cubin_kernel *k;
        nnc_arena_init(&a, 0);
        int n = inspect(K_RELU K_SIN K_SOFTMAX K_SPILL K_WIDTHS, archs[i], &a, &k);
        CHECK_INT(n, 5);
        if (n == 5)
            check_kernels(k, n);
        nnc_arena_deinit(&a);
    }
}

/* GPUs that CUDA 13 has left behind need CUDA 12's NVRTC: either it is there, or the message says what to install. */
TEST(nvrtc_old_architectures)
{
    if (!have_nvrtc())
        return;
    for (int sm = 61; sm <= 70; sm += 9) {
        nnc_nvrtc_unit u = {.name = "test.cu", .source = K_RELU};
        nnc_status st = nnc_nvrtc_compile(&u, 1, &(nnc_nvrtc_options){.sm = sm}, test_sink);
        if (st == NNC_OK)
            CHECK(!u.is_ptx && u.n > 500);
        else
            CHECK_DIAG("pip install nvidia-cuda-nvrtc-cu12");
        nnc_free(u.code);
    }
}

TEST(nvrtc_newer_than_known)
{
    if (!have_nvrtc())
        return;
    nnc_nvrtc_unit u = {.name = "test.cu", .source = K_RELU};
    CHECK_OK(nnc_nvrtc_compile(&u, 1, &(nnc_nvrtc_options){.sm = 999}, test_sink));
    CHECK_DIAG("does not support sm_999: emitting PTX for compute_");
    CHECK(u.is_ptx && u.code && u.code[u.n - 1] == 0 && strstr(u.code, ".entry k_relu"));
    nnc_free(u.code);
}

TEST(nvrtc_real_errors)
{
    if (!have_nvrtc())
        return;
    nnc_nvrtc_unit u[] = {{.name = "one.cu", .source = K_RELU},
        {.name = "two.cu",
            .source = K_RELU
            "extern \"C\" __global__ void k_bad(float *y)\n{\n    y[0] = nothing;\n}\n"}};
    CHECK_INT(
        nnc_nvrtc_compile(u, 2, &(nnc_nvrtc_options){.sm = 80, .jobs = 2}, test_sink), NNC_E_BUG);
    CHECK_DIAG("two.cu:10");
    CHECK_DIAG("kernel k_bad: identifier \"nothing\" is undefined");
    CHECK(!u[0].code && !u[1].code);
}

/* Processes that fill one cache at the same time: all get the same bytes, and none a torn one. */
TEST(nvrtc_shared_cache)
{
    if (!have_nvrtc())
        return;
    enum { PROCESSES = 3 };
    char dir[] = "/tmp/nnc-cache-XXXXXX", command[64];
    pid_t child[PROCESSES];
    int64_t began = nnc_now_ns();
    if (!mkdtemp(dir))
        test_fail(__FILE__, __LINE__, "no folder");
    for (int i = 0; i < PROCESSES; i++) {
        fflush(NULL);
        child[i] = fork();
        if (child[i])
            continue;
        nnc_nvrtc_unit u[] = {
            {.name = "a.cu", .source = K_RELU}, {.name = "b.cu", .source = K_SOFTMAX}};
        nnc_cache *c = nnc_cache_open(dir);
        nnc_status st =
            nnc_nvrtc_compile(u, 2, &(nnc_nvrtc_options){.sm = 90, .jobs = 1, .cache = c}, NULL);
        _exit(st || !u[0].n || !u[1].n);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        CHECK(waitpid(child[i], &status, 0) == child[i] && status == 0);
    }
    nnc_nvrtc_unit u[] = {{.name = "a.cu", .source = K_RELU},
        {.name = "b.cu", .source = K_SOFTMAX}},
                   v[] = {u[0], u[1]};
    nnc_cache *c = nnc_cache_open(dir);
    CHECK_OK(nnc_nvrtc_compile(u, 2, &(nnc_nvrtc_options){.sm = 90, .cache = c}, test_sink));
    CHECK_OK(nnc_nvrtc_compile(v, 2, &(nnc_nvrtc_options){.sm = 90}, test_sink));
    for (int i = 0; i < 2; i++) {
        CHECK(u[i].cached && !v[i].cached);
        CHECK(u[i].n == v[i].n && !memcmp(u[i].code, v[i].code, u[i].n));
        nnc_free(u[i].code);
        nnc_free(v[i].code);
    }
    nnc_cache_close(c);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_INT(system(command), 0);
    printf("     (%.0f ms)\n", (double)(nnc_now_ns() - began) * 1e-6);
}

/* ---- damaged machine code ----------------------------------------------------------------------------------------- */

static void read_it(const char *code, size_t n)
{
    nnc_arena a;
    nnc_cubin_kernel *k;
    int kernels, sm;
    char *copy = nnc_malloc(n ? n : 1); /* so that a read after the end is seen */
    memcpy(copy, code, n);
    nnc_arena_init(&a, 0);
    nnc_sink_clear(test_sink);
    nnc_status st = nnc_cubin_read(copy, n, &a, &k, &kernels, &sm, test_sink);
    CHECK(st == NNC_OK || st == NNC_E_MODEL);
    nnc_arena_deinit(&a);
    nnc_free(copy);
}

TEST(nvrtc_damaged_cubin)
{
    if (!have_nvrtc())
        return;
    nnc_nvrtc_unit u = {.name = "a.cu", .source = K_SOFTMAX};
    CHECK_OK(nnc_nvrtc_compile(&u, 1, &(nnc_nvrtc_options){.sm = 90}, test_sink));
    if (!u.code)
        return;
    for (size_t n = 0; n < u.n; n += n < 64 ? 1 : 13)
        read_it(u.code, n);
    for (uint64_t i = 0; i < 4000; i++) {
        size_t at = nnc_rng_u32(test_seed, 2 * i) % u.n;
        if (i & 1) /* the headers are where damage tells */
            at = nnc_rng_u32(test_seed, 2 * i) % 64;
        char was = u.code[at];
        u.code[at] = (char)nnc_rng_u32(test_seed, 2 * i + 1);
        read_it(u.code, u.n);
        u.code[at] = was;
    }
    nnc_free(u.code);
}
