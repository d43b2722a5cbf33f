/* tests/base/cpu.c -- limits of instruction sets, each in a process of its own, and the versions of functions that follow them. */
#include "base/base.h"
#include "test.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
static const char *const level_name[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
static const uint64_t level_has[] = {NNC_X86_V2, NNC_X86_V3, NNC_X86_V4};

/* Runs f(ctx) in a child; its failures are this process's. */
static void apart(void (*f)(int), int ctx)
{
    int rc = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        test_failures = 0;
        f(ctx);
        fflush(NULL);
        _exit(test_failures ? 1 : 0);
    }
    CHECK(child > 0 && waitpid(child, &rc, 0) == child && rc == 0);
}

NNC_BODY add_body(const int *table, int *out)
{
    for (int i = 0; i < 16; i++)
        out[i] += table[i];
}
NNC_DISPATCH(add, (const int *table, int *out), (table, out))

static void limited(int i)
{
    const uint64_t all = nnc_cpu_features();
    const int before = nnc_cpu_level();
    int ones[16], sum[16] = {0};
    if (before < i + 2) {
        CHECK_INT(nnc_cpu_limit_to(level_name[i], "NNC_CPU=", test_sink), NNC_E_USAGE);
        CHECK(nnc_cpu_features() == all && nnc_cpu_level() == before);
        return;
    }
    CHECK_OK(nnc_cpu_limit_to(level_name[i], "--target=cpu:", test_sink));
    CHECK(nnc_cpu_features() == level_has[i]);
    CHECK_INT(nnc_cpu_level(), i + 2);
    CHECK_STR(nnc_cpu_limit(), level_name[i]);
    CHECK_STR(getenv("NNC_CPU"), level_name[i]);
    CHECK_OK(nnc_cpu_limit_to(level_name[i], "--target=cpu:", test_sink));
    for (int j = i + 1; j < 3; j++)
        CHECK_INT(nnc_cpu_limit_to(level_name[j], "--target=cpu:", test_sink), NNC_E_USAGE);
    for (int k = 0; k < 16; k++)
        ones[k] = 1;
    add(ones, sum);
    for (int k = 0; k < 16; k++)
        CHECK_INT(sum[k], 1);
    if (i > 0) { /* it can be lowered */
        CHECK_OK(nnc_cpu_limit_to("x86-64-v2", "--target=cpu:", test_sink));
        CHECK_INT(nnc_cpu_level(), 2);
    }
}

TEST(cpu_limits)
{
    for (int i = 0; i < 3; i++)
        apart(limited, i);
    CHECK((nnc_cpu_features() & NNC_X86_V2) == NNC_X86_V2);
    CHECK(strstr(nnc_cpu_feature_name(NNC_F_avx512f), "avx512f") != NULL);
}

/* The same numbers at each level, and for any part of them. */
static void filled(int i)
{
    enum { N = 999 };
    static float x[N];
    if (nnc_cpu_level() < i + 2)
        return;
    CHECK_OK(nnc_cpu_limit_to(level_name[i], "NNC_CPU=", test_sink));
    nnc_rng_fill(42, 3, N, 0.7F, x);
    for (uint64_t k = 0; k < N; k++)
        CHECK(x[k] == ((float)(nnc_rng_u32(42, 3 + k) >> 8) * 0x1p-23f - 1.0F) * 0.7F);
}

TEST(cpu_limits_change_no_weights)
{
    for (int i = 0; i < 3; i++)
        apart(filled, i);
}
#endif

static void wrong(const char *value, const char *says)
{
    const char *was = getenv("NNC_CPU");
    char *kept = was ? strdup(was) : NULL;
    setenv("NNC_CPU", value, 1);
    CHECK_INT(nnc_cpu_check(test_sink), NNC_E_USAGE);
    CHECK_DIAG(says);
    kept ? setenv("NNC_CPU", kept, 1) : unsetenv("NNC_CPU");
    free(kept);
    CHECK_OK(nnc_cpu_check(test_sink));
}

TEST(cpu_limit_wrong)
{
#if defined(__x86_64__)
    static const char known[] = "expected x86-64-v2 (SSE4.2), x86-64-v3 (AVX2, FMA) or x86-64-v4";
    wrong("avx2", known);
    wrong("x86-64", known);
    wrong("x86-64-v31", known);
#else
    wrong("x86-64-v2", "this CPU is of another architecture");
#endif
}
