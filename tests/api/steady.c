/* tests/api/steady.c -- a run in its steady state makes no system call.
 *
 * A child process runs a model and its parent counts the calls of all its threads (ptrace). On a loaded machine a thread may sleep for
 * one that has no core, with good reason, or move to another core. So the clock by which it waits stands still here, and nobody knows
 * its core. */
#include "session/session.h"
#include "ir/ir.h"
#include "test.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 3, RUNS = 20 };
enum { BEGIN = 4001, END = 4002 }; /* arguments of a call that marks the runs to look at */

static atomic_bool still;

/* Stands before libc's in nnc's code. */
int clock_gettime(clockid_t which, struct timespec *out)
{
    static struct timespec stopped = {1000, 0};
    if (!atomic_load(&still))
        return (int)syscall(SYS_clock_gettime, which, out);
    *out = stopped;
    return 0;
}

int sched_getcpu(void)
{
    unsigned cpu;
    return atomic_load(&still) || syscall(SYS_getcpu, &cpu, NULL, NULL) ? -1 : (int)cpu;
}

static void mark(long which)
{
    (void)syscall(SYS_getppid, which);
}

/* 0: done. */
static int run_model(const char *body, int threads)
{
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env_options eo = {.no_cache = true, .threads = threads};
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    nnc_scan scan;
    nnc_scan_init(&scan, "steady", body, strlen(body));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    if (!g || nnc_env_create(&eo, &e, test_sink) || nnc_compile(e, g, &o, &a, test_sink) ||
        nnc_session_create(e, a, &s, test_sink))
        return 1;
    atomic_store(&still, true);
    nnc_status st = NNC_OK;
    for (int i = 0; i < WARM + RUNS && !st; i++) {
        if (i == WARM)
            mark(BEGIN);
        st = nnc_session_run(s, test_sink);
    }
    mark(END);
    atomic_store(&still, false);
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
    return st ? 3 : 0;
}

typedef struct counted {
    int calls, exit_code;
    long first; /* the first call's number */
    bool traced, marked;
} counted;

static counted watch(pid_t child)
{
    counted c = {.exit_code = -1};
    int status;
    const long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    c.traced = waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
               ptrace(PTRACE_SETOPTIONS, child, 0, options) == 0 &&
               ptrace(PTRACE_SYSCALL, child, 0, 0) == 0;
    for (bool inside = false; c.traced;) {
        pid_t at = waitpid(-1, &status, __WALL);
        if (at < 0)
            break;
        if (!WIFSTOPPED(status)) {
            if (at == child) {
                c.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
                break;
            }
            continue;
        }
        struct __ptrace_syscall_info i;
        int sig = WSTOPSIG(status);
        if (sig == (SIGTRAP | 0x80) && ptrace(PTRACE_GET_SYSCALL_INFO, at, sizeof i, &i) > 0 &&
            i.op == PTRACE_SYSCALL_INFO_ENTRY) {
            if (i.entry.nr == SYS_getppid && i.entry.args[0] == END)
                inside = false;
            c.first = inside && !c.calls ? (long)i.entry.nr : c.first;
            c.calls += inside;
            if (i.entry.nr == SYS_getppid && i.entry.args[0] == BEGIN)
                c.marked = inside = true;
        }
        bool ours = sig == (SIGTRAP | 0x80) || sig == SIGTRAP || sig == SIGSTOP;
        ptrace(PTRACE_SYSCALL, at, 0, ours ? 0 : sig);
    }
    return c;
}

static counted count_calls(const char *body, int threads)
{
    pid_t child = fork();
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(4);
        raise(SIGSTOP);
        _exit(run_model(body, threads));
    }
    return child > 0 ? watch(child) : (counted){.exit_code = -1};
}

/* Sanitizers make calls of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Generated kernels, convolutions and products among them, and a kernel on one thread. */
TEST(steady_runs_make_no_system_call)
{
    static const char body[] =
        "graph @s {\n  %x = input : f32[1,16,56,56]\n"
        "  %w = param : f32[32,16,3,3] = gen(\"w\", seed=1, scale=0.1)\n"
        "  %v = param : f32[100,32] = gen(\"v\", seed=2, scale=0.1)\n"
        "  %c = conv %x, %w {pads=[1,1,1,1]}\n  %r = relu %c\n  %s = sin %r\n"
        "  %m = reduce_mean %s {axes=[2,3]}\n  %f = reshape %m {shape=[1,32]}\n"
        "  %l = linear %f, %v\n  %o = relu %l\n"
        "  %e = softmax %o {axis=1}\n  return %s, %e\n}\n";
    if (SANITIZED) {
        test_skip("a sanitizer makes system calls of its own");
        return;
    }
    for (int threads = 1; threads <= 2; threads++) {
        /* On a loaded machine a thread that waits for one that does not run goes to sleep: one quiet trial in several is enough. */
        enum { TRIALS = 8 };
        counted c = count_calls(body, threads);
        for (int i = 1; i < TRIALS && c.traced && !c.exit_code && c.calls; i++)
            c = count_calls(body, threads);
        if (!c.traced || c.exit_code == 4) {
            test_skip("processes may not be traced here");
            return;
        }
        CHECK_INT(c.exit_code, 0);
        CHECK(c.marked);
        if (c.calls)
            test_fail(__FILE__, __LINE__,
                "%d threads: %d system calls in %d runs, the first is %ld", threads, c.calls, RUNS,
                c.first);
    }
}
