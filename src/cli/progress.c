/* cli/progress.c -- "computing the float64 reference... 4 s" on a terminal, for what takes longer than a second. A thread of its own
 * writes the line, since the work does not come back in between; nothing is ever written when stderr is not a terminal. */
#include "cli/cli.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t writer;
static bool running;
static const char *doing; /* NULL: stop */
static time_t since;
static volatile sig_atomic_t shown;

static time_t seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t); /* the clock of the condition variable */
    return t.tv_sec;
}

static void *write_lines(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (doing) {
        struct timespec next;
        clock_gettime(CLOCK_REALTIME, &next);
        next.tv_sec++;
        if (pthread_cond_timedwait(&changed, &lock, &next) == 0 || !doing || seconds() <= since)
            continue;
        shown = 1;
        fprintf(stderr, "\r\033[K%s... %ld s", doing, (long)(seconds() - since));
        fflush(stderr);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void interrupted(int signal)
{
    ssize_t n = shown ? write(2, "\r\033[K", 4) : 0;
    (void)n;
    raise(signal); /* SA_RESETHAND: now it ends the process as it would have */
}

void progress(void *ctx, const char *what)
{
    const options *o = ctx;
    if (o->quiet || !isatty(2))
        return;
    pthread_mutex_lock(&lock);
    doing = what;
    since = seconds();
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    if (running)
        return;
    struct sigaction act = {.sa_handler = interrupted, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &act, NULL);
    sigset_t all, before; /* signals are the main thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    running = pthread_create(&writer, NULL, write_lines, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_end(void)
{
    if (!running)
        return;
    pthread_mutex_lock(&lock);
    doing = NULL;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(writer, NULL);
    running = false;
    if (shown)
        fputs("\r\033[K", stderr);
    shown = 0;
}
