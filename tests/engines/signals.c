/* tests/engines/signals.c -- where signals are handled while an engine's calls run: on the stack of the program's thread. oneDNN's matrix
 * products set the stack pointer to memory of malloc's, where a handler's frame overwrites what lies before it. */
#include "calls.h"
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/time.h>

static pthread_t program; /* the thread that takes signals */
static uintptr_t stack[2];
static volatile sig_atomic_t handled, astray, elsewhere;

static void handler(int sig)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    (void)sig;
    if (!pthread_equal(pthread_self(), program))
        elsewhere++;
    else if (here < stack[0] || here >= stack[1])
        astray++;
    handled++;
}

static bool find_stack(void)
{
    pthread_attr_t a;
    void *at;
    size_t n;
    program = pthread_self();
    if (pthread_getattr_np(program, &a) != 0)
        return false;
    const bool ok = pthread_attr_getstack(&a, &at, &n) == 0;
    pthread_attr_destroy(&a);
    stack[0] = ok ? (uintptr_t)at : 0;
    stack[1] = ok ? stack[0] + n : 0;
    return ok;
}

static float *zeros(const nnc_type *t)
{
    float *x = nnc_calloc((size_t)nnc_type_numel(t), sizeof *x);
    CHECK(x != NULL);
    return x;
}

/* Runs the call until so many signals were handled, by a timer that rings each 50 us. */
static void run_under_signals(const nnc_engine *e, nnc_call *c, void *work, int times)
{
    nnc_plan p = {.call = c, .n_call = 1};
    NNC_FREED float *src = zeros(&c->src), *wei = zeros(&c->wei), *dst = zeros(&c->dst);
    void *handle;
    nnc_team *team;
    CHECK_OK(e->load_call(&(nnc_load){.plan = &p, .item = 0}, &handle, test_sink));
    CHECK_OK(nnc_team_create(c->threads, &team, test_sink));
    nnc_team_enter(team);
    const struct itimerval on = {{0, 50}, {0, 50}}, off = {{0, 0}, {0, 0}};
    handled = 0;
    setitimer(ITIMER_REAL, &on, NULL);
    const int64_t end = nnc_now_ns() + 20000000000;
    while (handled < times && !astray && nnc_now_ns() < end)
        CHECK_OK(e->run(handle, (void *[]){src, wei, dst}, work));
    setitimer(ITIMER_REAL, &off, NULL);
    nnc_team_leave(team);
    nnc_team_destroy(team);
    e->unload(handle);
    CHECK(astray || handled >= times);
}

/* Sums of 512 and 121 products: with AVX2 (NNC_CPU=x86-64-v3) and with AVX-512 at least one of them takes such memory. */
TEST(onednn_handles_no_signal_on_the_heap)
{
    const char *why;
    const nnc_engine *e = nnc_plugin("onednn", "nnc_engine_onednn", &why);
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART}, was;
    if (!e || !find_stack()) {
        test_skip("the plug-in onednn is not there");
        return;
    }
    sigaction(SIGALRM, &act, &was);
    for (int k = 0; k < 4; k++) {
        nnc_call c =
            k / 2 ? conv_call(2, 4, 1, 24, 32, 11, 1, 5) : matmul_call(32, 128, 512, false);
        nnc_choice choice;
        c.threads = k % 2 ? 2 : 1;
        CHECK_OK(e->choose(&c, &choice, test_sink));
        if (!choice.ok)
            continue;
        c.work_bytes = choice.workspace_bytes;
        void *work = nnc_aligned_alloc(64, (size_t)nnc_align_up(choice.workspace_bytes + 64, 64));
        CHECK(work != NULL);
        run_under_signals(e, &c, work, 300);
        nnc_free(work);
        if (astray || elsewhere)
            test_fail(__FILE__, __LINE__,
                "call %d (%s): of %d handlers %d ran outside the thread's stack, %d on a thread of "
                "the team",
                k, choice.reason, (int)handled, (int)astray, (int)elsewhere);
        astray = elsewhere = 0;
    }
    sigaction(SIGALRM, &was, NULL);
}
