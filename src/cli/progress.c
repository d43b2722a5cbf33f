/* cli/progress.c -- a line "timing: fused, 9 runs, 1.1 of 1.0 s... 4 s" on a terminal, for work that takes longer than a second.
 * Written by a separate thread, since the work does not return in between; nothing is written when stderr is not a terminal. */
#include "base/signals.h"
#include "cli/cli.h"
#include <stdlib.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t writer;
static bool running;
static char phase[64], detail[128];
static bool stop;
static time_t since; /* start of the phase */
static volatile sig_atomic_t shown;

static time_t seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t); /* the clock of the condition variable */
    return t.tv_sec;
}

/* One line at most: of a wrapped line only the last part could be cleared. */
static void write_line(long elapsed)
{
    char line[256], end[32];
    struct winsize w = {0};
    snprintf(line, sizeof line, "%s%s%s", phase, *detail ? ": " : "", detail);
    int end_n = snprintf(end, sizeof end, "... %ld s", elapsed);
    int columns = ioctl(2, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
    int room = columns - 1 - end_n;
    fprintf(stderr, "\r\033[K%.*s%s", room > 0 ? room : 0, line, end);
    fflush(stderr);
}

static void *write_lines(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!stop) {
        struct timespec next;
        clock_gettime(CLOCK_REALTIME, &next);
        next.tv_sec++;
        if (pthread_cond_timedwait(&changed, &lock, &next) == 0 || stop || seconds() <= since)
            continue;
        shown = 1;
        write_line((long)(seconds() - since));
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void interrupted(int signal)
{
    ssize_t n = shown ? write(2, "\r\033[K", 4) : 0;
    (void)n;
    raise(signal); /* SA_RESETHAND: this now terminates the process */
}

void progress(void *ctx, const char *what, const char *more)
{
    const options *o = ctx;
    if (nnc_sink_pending(o->sink) && !nnc_sink_errors(o->sink)) {
        progress_end();
        nnc_sink_flush(o->sink, stderr);
    }
    if (o->quiet || !isatty(2))
        return;
    pthread_mutex_lock(&lock);
    if (!running || strcmp(phase, what) != 0) {
        snprintf(phase, sizeof phase, "%s", what);
        since = seconds();
    }
    snprintf(detail, sizeof detail, "%s", more ? more : "");
    stop = false;
    pthread_mutex_unlock(&lock);
    if (running)
        return;
    struct sigaction act = {.sa_handler = interrupted, .sa_flags = (int)SA_RESETHAND}, is;
    if (sigaction(SIGINT, NULL, &is) == 0 && is.sa_handler == SIG_DFL)
        sigaction(SIGINT, &act, NULL);
    sigset_t before; /* signals are handled by the main thread */
    nnc_signals_hold(&before);
    running = pthread_create(&writer, NULL, write_lines, NULL) == 0;
    nnc_signals_release(&before);
}

void progress_end(void)
{
    if (!running)
        return;
    pthread_mutex_lock(&lock);
    stop = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(writer, NULL);
    running = false;
    if (shown)
        fputs("\r\033[K", stderr);
    shown = 0;
}

int terminal_columns(void)
{
    struct winsize w = {0};
    const char *given = getenv("COLUMNS");
    if (given && *given)
        return (int)strtol(given, NULL, 10);
    return isatty(1) && ioctl(1, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}
