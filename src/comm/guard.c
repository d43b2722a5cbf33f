/* comm/guard.c -- a deadline for calls that cannot be interrupted: MPI's initialisation and its end wait for all ranks. */
#include "comm/internal.h"
#include <time.h>
#include <unistd.h>

typedef struct guard {
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool done;
    struct timespec end;
    const char *message;
} guard;

static void *watch(void *arg)
{
    guard *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->done && pthread_cond_timedwait(&g->over, &g->lock, &g->end) == 0)
        ;
    if (!g->done) {
        /* no clean-up: the call that hangs holds the library's locks */
        fprintf(stderr, "nnc: error: %s\n", g->message);
        fflush(stderr);
        _exit(nnc_exit_code(NNC_E_PEER));
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

bool comm_guarded(void (*fn)(void *ctx), void *ctx, double timeout_s, const char *message)
{
    guard g = {.message = message};
    pthread_condattr_t monotonic;
    pthread_t thread;
    clock_gettime(CLOCK_MONOTONIC, &g.end);
    const int64_t ns = g.end.tv_nsec + (int64_t)(timeout_s * 1e9);
    g.end.tv_sec += (time_t)(ns / 1000000000);
    g.end.tv_nsec = (long)(ns % 1000000000);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.over, &monotonic);
    const bool works = pthread_create(&thread, NULL, watch, &g) == 0;
    if (works) {
        fn(ctx);
        pthread_mutex_lock(&g.lock);
        g.done = true;
        pthread_cond_signal(&g.over);
        pthread_mutex_unlock(&g.lock);
        pthread_join(thread, NULL);
    }
    pthread_cond_destroy(&g.over);
    pthread_mutex_destroy(&g.lock);
    pthread_condattr_destroy(&monotonic);
    return works;
}
