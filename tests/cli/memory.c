/* tests/cli/memory.c -- what nnc memory says beside what a run takes. Within limits of memory commands end with an error and an exit
 * code, never a signal. */
#include "test.h"
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ARGS = 24 };
#define MIB ((int64_t)1 << 20)

typedef struct ended {
    int status;
    int64_t resident; /* most bytes */
    char *said;
} ended;

/* The start of nnc with these flags, between blanks, within `space` bytes of address space (0: no limit); `in`: its standard input. */
static pid_t start(const char *flags, int64_t space, int in, int out)
{
    char line[1024], nnc[PATH_MAX];
    const char *argv[MOST_ARGS] = {nnc};
    int n = 1;
    const ssize_t len = readlink("/proc/self/exe", nnc, sizeof nnc - 8);
    nnc[len > 0 ? len : 0] = 0;
    char *slash = strrchr(nnc, '/');
    CHECK(slash);
    strcpy(slash, "/nnc");
    snprintf(line, sizeof line, "%s", flags);
    for (char *p = strtok(line, " "); p && n < MOST_ARGS - 1; p = strtok(NULL, " "))
        argv[n++] = p;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid)
        return pid;
    const struct rlimit most = {(rlim_t)space, (rlim_t)space}, none = {0, 0};
    if (test_cache())
        setenv("XDG_CACHE_HOME", getenv("TEST_CACHE"), 1);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || setrlimit(RLIMIT_CORE, &none) ||
        (space && setrlimit(RLIMIT_AS, &most)))
        _exit(99);
    execv(nnc, (char *const *)(uintptr_t)argv);
    _exit(99);
}

static ended run(const char *flags, int64_t space)
{
    char path[] = "/tmp/nnc-said-XXXXXX";
    ended e = {0};
    struct rusage u;
    size_t n = 0;
    const int out = mkstemp(path), in = open("/dev/null", O_RDONLY);
    const pid_t pid = start(flags, space, in, out);
    CHECK(wait4(pid, &e.status, 0, &u) == pid);
    e.resident = (int64_t)u.ru_maxrss * 1024;
    close(out);
    close(in);
    CHECK_OK(nnc_file_read(path, 1 << 24, &e.said, &n, test_sink));
    unlink(path);
    return e;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Inputs of 49 MiB and more: a copy is seen. */
TEST(memory_is_what_a_run_takes)
{
    static const char *const models[] = {"models/nested_sin.json --set n=16777216 --set depth=1",
        "models/relu.json --set batch=128 -O0", "models/mlp.json --set batch=16384"};
    for (size_t i = 0; i < NNC_COUNT(models); i++) {
        char line[512];
        if (!test_takes(i, 3))
            continue;
        snprintf(line, sizeof line, "memory %s --format=json", models[i]);
        ended planned = run(line, 0);
        const char *total = planned.said ? strstr(planned.said, "\"total\": ") : NULL;
        const int64_t bytes = total ? strtoll(total + 9, NULL, 10) : 0;
        snprintf(line, sizeof line, "run %s --iterations=1 --warmup=0", models[i]);
        ended taken = run(line, 0);
        CHECK(WIFEXITED(taken.status) && WEXITSTATUS(taken.status) == 0);
        if (bytes < 60 * MIB || taken.resident > bytes + 48 * MIB)
            test_fail(__FILE__, __LINE__, "%s: planned %lld MiB, resident %lld", models[i],
                (long long)(bytes / MIB), (long long)(taken.resident / MIB));
        nnc_free(planned.said);
        nnc_free(taken.said);
    }
}

TEST(memory_limits_end_no_command)
{
    static const char *const commands[] = {"run models/mlp.json --iterations=1",
        "run models/vgg16.json --iterations=1 --warmup=0", "memory models/vgg16.json --mode=step",
        "partition models/vgg16.json --devices=2 --hardware=models/hardware/a100x8.json",
        "explain models/vgg16.json --target=cuda:sm_90", "doctor",
        "compile models/mlp.json --no-cache -o /dev/null",
        "compile models/mlp.json --target=cuda:sm_90 --no-cache -o /dev/null"};
    uint64_t key = nnc_rng_key("space", test_seed);
    for (size_t i = 0; i < NNC_COUNT(commands); i++)
        for (int k = 0; k < test_draws(8); k++) {
            const float u = nnc_rng_uniform(key, i * 64 + (uint64_t)k);
            const int64_t space = (24 << 20) + (int64_t)(u * u * 600) * MIB;
            ended e = run(commands[i], space);
            const int rc = WIFEXITED(e.status) ? WEXITSTATUS(e.status) : -1;
            if (rc != 0 && rc != 4 && rc != 5)
                test_fail(__FILE__, __LINE__, "%s within %lld KiB: status %d\n%s", commands[i],
                    (long long)(space >> 10), e.status, e.said ? e.said : "");
            nnc_free(e.said);
        }
}

static bool catches(pid_t pid, int sig)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    const int f = open(path, O_RDONLY);
    const ssize_t n = f < 0 ? 0 : read(f, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    close(f);
    const char *line = strstr(text, "SigCgt:");
    return line && (strtoull(line + 7, NULL, 16) >> (sig - 1) & 1);
}

/* A library that calls abort, or throws what nobody catches: within a limit, memory is the cause. At several moments: some of them are
 * within malloc. */
TEST(memory_that_a_library_lacks)
{
    for (int i = 0; i < 12; i++) {
        const bool limited = i % 2;
        int in[2], out[2], status;
        char said[512] = "";
        CHECK(!pipe(in) && !pipe(out));
        const pid_t pid = start("memory -", limited ? 200 * MIB : 0, in[0], out[1]);
        for (int k = 0; k < 5000 && !catches(pid, SIGABRT); k++)
            usleep(1000);
        usleep(i * 700);
        CHECK(kill(pid, SIGABRT) == 0 && waitpid(pid, &status, 0) == pid);
        close(out[1]);
        CHECK(read(out[0], said, sizeof said - 1) >= 0);
        if (limited) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
            CHECK(strstr(said, "nnc: error: out of host memory: a library ended the process; "));
            CHECK(strstr(said, "bytes are available (ulimit -v)"));
        } else {
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        }
        close(in[0]);
        close(in[1]);
        close(out[0]);
    }
}
#endif

TEST(memory_says_what_runs)
{
    ended e = run("run models/nested_sin.json --set n=1099511627776 --iterations=1", 0);
    CHECK(WIFEXITED(e.status) && WEXITSTATUS(e.status) == 4);
    CHECK(e.said && strstr(e.said, "does not fit: cpu needs ") && strstr(e.said, " bytes)") &&
          strstr(e.said, " free at the moment"));
    nnc_free(e.said);
}
