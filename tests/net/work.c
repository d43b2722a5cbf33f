/* tests/net/work.c -- worker processes: a case that crashes, exits or hangs is a failure of that case, and the others go on. This process
 * itself runs no case: threads of a library would not survive its forks. */
#include "net.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WHY = 16 << 10 };

void net_surroundings(const char *dir)
{
    const char *shared = getenv("TEST_CACHE");
    setenv("NNC_CUDA_PATH", "/nonexistent", 1);
    setenv("XDG_CACHE_HOME", shared && *shared ? shared : dir, 1);
}

/* What a worker tells its parent. */
typedef struct note {
    uint64_t index; /* the case in progress, or the one that failed */
    bool failed;
    char why[WHY];
} note;

typedef struct worker {
    pid_t pid;
    uint64_t next, end, step;
    note *note;
    char dir[256];
} worker;

static void work(worker *w, int seconds, net_job *job, void *ctx)
{
    for (uint64_t i = w->next; i < w->end; i += w->step) {
        nnc_text why = {0};
        w->note->index = i;
        /* CPU time, as other programs may run beside this one; ten times as long for what hangs without using any */
        const struct itimerval limit = {.it_value.tv_sec = seconds};
        setitimer(ITIMER_PROF, &limit, NULL);
        alarm((unsigned)seconds * 10);
        if (!job(i, w->dir, ctx, &why)) {
            snprintf(w->note->why, WHY, "%s", nnc_text_str(&why));
            w->note->failed = true;
            _exit(1);
        }
        nnc_text_deinit(&why);
    }
    exit(0); /* with the leak check of a sanitizer */
}

static void start(worker *w, int seconds, net_job *job, void *ctx)
{
    fflush(NULL);
    w->note->failed = false;
    w->note->index = w->next;
    w->pid = fork();
    if (w->pid == 0)
        work(w, seconds, job, ctx);
}

/* What became of a worker that ended other than well. */
static void describe(const worker *w, int status, int seconds, char *why)
{
    if (w->note->failed)
        snprintf(why, WHY, "%s", w->note->why);
    else if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF))
        snprintf(why, WHY, "did not end within %d s of CPU time, or %d s", seconds, 10 * seconds);
    else if (WIFSIGNALED(status))
        snprintf(why, WHY, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(why, WHY, "the process exited with %d (what it printed stands above)",
            WEXITSTATUS(status));
}

int net_run(uint64_t from, uint64_t to, int workers, int seconds, net_job *job, void *ctx,
    void (*failed)(uint64_t index, const char *why, void *ctx))
{
    worker w[16];
    int running = 0, failures = 0, status;
    char *why = malloc(WHY);
    for (int i = 0; i < workers; i++) {
        w[i] = (worker){.next = from + (uint64_t)i, .end = to, .step = (uint64_t)workers};
        w[i].note =
            mmap(NULL, sizeof(note), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (w[i].note == MAP_FAILED || !why || !api_tmpdir(w[i].dir, sizeof w[i].dir))
            return 1;
        start(&w[i], seconds, job, ctx);
        running++;
    }
    while (running > 0) {
        pid_t pid = wait(&status);
        for (int i = 0; i < workers && pid > 0; i++) {
            if (w[i].pid != pid)
                continue;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
                running--;
                break;
            }
            failures++;
            describe(&w[i], status, seconds, why);
            failed(w[i].note->index, why, ctx);
            w[i].next = w[i].note->index + w[i].step;
            if (w[i].next < w[i].end)
                start(&w[i], seconds, job, ctx);
            else
                running--;
        }
        if (pid < 0 && errno != EINTR)
            break;
    }
    for (int i = 0; i < workers; i++) {
        api_rmdir(w[i].dir);
        munmap(w[i].note, sizeof(note));
    }
    free(why);
    return failures;
}
