/* tests/cli/train.c -- nnc train as a process that is interrupted and killed: what it leaves behind is continued bit for bit. */
#include "test.h"
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 512, WIDE = 64, PATH = 300, MAX_ARGS = 24 };

typedef struct folder {
    char dir[256], nnc[PATH_MAX];
} folder;

static const char *in_folder(const folder *f, const char *name, char path[PATH])
{
    snprintf(path, PATH, "%s/%s", f->dir, name);
    return path;
}

static void write_file(const folder *f, const char *name, const void *p, size_t n)
{
    char path[PATH];
    CHECK_OK(nnc_file_write(in_folder(f, name, path), p, n, false, test_sink));
}

/* A .npy file of numbers, of rows of `row` bytes. */
static void write_npy(
    const folder *f, const char *name, const char *type, const char *shape, const void *p, size_t n)
{
    char head[128];
    NNC_LOCAL(nnc_text) t = {0};
    const int used = snprintf(
        head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);
    nnc_putn(&t, "\x93NUMPY\1\0\x76\0", 10);
    nnc_printf(&t, "%s%*s\n", head, 0x76 - used - 1, "");
    nnc_putn(&t, p, n);
    write_file(f, name, nnc_text_str(&t), t.n);
}

/* With all that has a state or draws random numbers: shuffling, augmentation, dropout, running statistics, moments, a schedule, sums of
 * gradients, validation. One layer is frozen. */
static const char model[] =
    "{\"args\": {\"batch\": 1}, \"inputs\": {\"x\": [\"batch\", 1, 8, 8]}, \"layers\": [{\"op\": "
    "\"conv\", \"name\": \"a\", \"channels\": 8, \"kernel\": 3, \"pad\": 1}, {\"op\": "
    "\"batchnorm\", \"name\": \"n\"}, \"relu\", {\"op\": \"dropout\", \"alpha\": 0.2}, "
    "\"flatten\", {\"op\": \"linear\", \"name\": \"b\", \"out\": 128, \"frozen\": true}, \"relu\", "
    "{\"op\": \"linear\", \"name\": \"c\", \"out\": 4}], \"train\": {\"batch\": 16, \"lr\": 2e-3, "
    "\"optimizer\": \"adamw\", \"schedule\": \"cosine\", \"warmup_steps\": 5, \"accumulate\": 2, "
    "\"validation\": 0.25, \"pad\": 1, \"crop\": \"random\", \"flip\": true, \"data\": \"x.npy\", "
    "\"labels\": \"y.npy\"}}";

static bool make_folder(folder *f)
{
    static float x[ROWS][WIDE];
    static int64_t y[ROWS];
    const ssize_t n = readlink("/proc/self/exe", f->nnc, sizeof f->nnc - 8);
    f->nnc[n > 0 ? n : 0] = 0;
    char *slash = strrchr(f->nnc, '/');
    snprintf(f->dir, sizeof f->dir, "/tmp/nnc_train_XXXXXX");
    if (!slash || !mkdtemp(f->dir))
        return false;
    strcpy(slash, "/nnc");
    for (int r = 0; r < ROWS; r++) {
        y[r] = r % 4;
        for (int i = 0; i < WIDE; i++)
            x[r][i] = (float)(i % 4 == r % 4) * 0.2f +
                      nnc_rng_uniform(nnc_rng_key("x", 1), (uint64_t)(r * WIDE + i));
    }
    write_npy(f, "x.npy", "<f4", "(512, 1, 8, 8)", x, sizeof x);
    write_npy(f, "y.npy", "<i8", "(512,)", y, sizeof y);
    write_file(f, "m.json", model, sizeof model - 1);
    return true;
}

static void remove_folder(const folder *f)
{
    char line[PATH + 16];
    snprintf(line, sizeof line, "rm -rf %s", f->dir);
    CHECK(system(line) == 0);
}

/* What is set for the process that start makes: a limit for the size of files, a preloaded library that lets call `fail_at` fail. */
static struct {
    rlim_t file_size;
    const char *preload;
    int fail_at, fail_errno;
} limits;

static void set_limits(void)
{
    char text[32];
    const struct rlimit size = {limits.file_size, limits.file_size};
    if (limits.file_size && setrlimit(RLIMIT_FSIZE, &size))
        _exit(98);
    if (!limits.preload)
        return;
    setenv("LD_PRELOAD", limits.preload, 1);
    setenv("NNC_FAIL_NONE", "none", 1);
    snprintf(text, sizeof text, "%d", limits.fail_at);
    setenv("NNC_FAIL_AT", text, 1);
    snprintf(text, sizeof text, "%d", limits.fail_errno);
    setenv("NNC_FAIL_ERRNO", text, 1);
}

/* Starts nnc train in the folder with these flags, between blanks; what it prints goes to the file "out". */
static pid_t start(const folder *f, const char *flags)
{
    char line[512], path[PATH];
    const char *argv[MAX_ARGS] = {f->nnc, "train", "m.json", "--threads=1", "--quiet"};
    int n = 5;
    snprintf(line, sizeof line, "%s", flags);
    for (char *p = strtok(line, " "); p && n < MAX_ARGS - 1; p = strtok(NULL, " "))
        argv[n++] = p;
    signal(SIGINT, SIG_DFL); /* shells let programs in the background ignore it */
    const pid_t pid = fork();
    if (pid)
        return pid;
    const int out = open(in_folder(f, "out", path), O_CREAT | O_TRUNC | O_WRONLY, 0666);
    setenv("XDG_CACHE_HOME", f->dir, 1);
    if (chdir(f->dir) || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(99);
    set_limits();
    execv(f->nnc, (char *const *)(uintptr_t)argv);
    _exit(99);
}

static int wait_for(pid_t pid)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static char *text_of(const folder *f, const char *name, size_t *n)
{
    char path[PATH], *text = NULL;
    CHECK_OK(nnc_file_read(in_folder(f, name, path), 0, &text, n, test_sink));
    return text;
}

static void check_ends(const folder *f, const char *flags)
{
    size_t n;
    const int status = wait_for(start(f, flags));
    NNC_FREED char *out = text_of(f, "out", &n);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        test_fail(__FILE__, __LINE__, "%s: status %d\n%s", flags, status, out);
}

/* Takes the numbers after "samples_per_s" out of a log, in place. */
static void drop_rates(char *log)
{
    static const char key[] = "\"samples_per_s\": ";
    char *to = log;
    for (char *p = log; *p;) {
        *to++ = *p++;
        if (!strncmp(p, key, sizeof key - 1))
            p += sizeof key - 1 + strspn(p + sizeof key - 1, "0123456789.e+-");
    }
    *to = 0;
}

/* The weights and the log of one training are those of another. */
static void check_same(const folder *f, const char *what)
{
    size_t n[2], n_log;
    NNC_FREED char *w0 = text_of(f, "w0.npz", &n[0]), *w1 = text_of(f, "w1.npz", &n[1]),
                   *log0 = text_of(f, "log0", &n_log), *log1 = text_of(f, "log1", &n_log);
    if (!w0 || !w1 || n[0] != n[1] || memcmp(w0, w1, n[0]) != 0)
        test_fail(__FILE__, __LINE__, "%s: the weights differ", what);
    if (!log0 || !log1)
        return;
    drop_rates(log0);
    drop_rates(log1);
    if (strcmp(log0, log1) != 0)
        test_fail(__FILE__, __LINE__, "%s: the logs differ", what);
}

static void sleep_ms(double ms)
{
    const struct timespec t = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000};
    nanosleep(&t, NULL);
}

#define WHOLE "--epochs=12 --save=w0.npz --log=log0"
#define PART "--epochs=12 --save=w1.npz --log=log1 --checkpoint=c.safetensors --resume "

static void remove_file(const folder *f, const char *name)
{
    char path[PATH];
    CHECK(unlink(in_folder(f, name, path)) == 0);
}

/* Signals a training at a random moment of it: how it ended. */
static int signal_at_random(const folder *f, const char *flags, double ms, uint64_t draw, int sig)
{
    const uint64_t key = nnc_rng_key("moments", test_seed ^ (uint64_t)nnc_now_ns());
    const pid_t pid = start(f, flags);
    sleep_ms(ms * (double)nnc_rng_uniform(key, draw));
    kill(pid, sig);
    return wait_for(pid);
}

/* How long a training takes that nobody disturbs. */
static double time_of(const folder *f, const char *flags)
{
    const int64_t begin = nnc_now_ns();
    check_ends(f, flags);
    return (double)(nnc_now_ns() - begin) * 1e-6;
}

/* Killed at random moments, and continued: also while the checkpoint is written, which is most of the time here. A training that came to
 * its end is compared, and the next one begins. NNC_KILLS: how often. */
TEST(killed_trainings_continue)
{
    folder f;
    const char *wanted = getenv("NNC_KILLS");
    const int kills = wanted ? atoi(wanted) : 20;
    CHECK(make_folder(&f));
    check_ends(&f, WHOLE);
    int killed = 0, whole = 0;
    const double ms = time_of(&f, "--epochs=12 --checkpoint=timed.npz --checkpoint-every=4");
    for (int i = 0; killed < kills && i < 10 * kills; i++) {
        const int status =
            signal_at_random(&f, PART "--checkpoint-every=4", ms, (uint64_t)i, SIGKILL);
        killed += WIFSIGNALED(status);
        if (WIFSIGNALED(status))
            continue;
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        check_same(&f, "killed");
        remove_file(&f, "c.safetensors");
        remove_file(&f, "log1");
        remove_file(&f, "w1.npz");
        whole++;
    }
    CHECK_INT(killed, kills);
    check_ends(&f, PART "--checkpoint-every=4");
    check_same(&f, "killed");
    check_ends(&f, PART); /* it is complete: nothing is left to do */
    check_same(&f, "complete");
    if (wanted)
        printf("%d killed, %d more came to their end\n", killed, whole);
    remove_folder(&f);
}

static int count_lines(const folder *f, const char *name)
{
    char path[PATH], *text = NULL;
    size_t n;
    int lines = 0;
    if (!nnc_file_exists(in_folder(f, name, path)) || nnc_file_read(path, 0, &text, &n, NULL))
        return 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    nnc_free(text);
    return lines;
}

static void wait_for_lines(const folder *f, int want)
{
    for (int i = 0; i < 20000 && count_lines(f, "log1") < want; i++)
        sleep_ms(1);
}

/* Ctrl-C at random moments: the step is finished, or the training has not begun; the best weights are those of one that was not stopped. */
TEST(interrupted_at_random_moments)
{
    enum { TIMES = 8 };
    static const char part[] = "--epochs=12 --save=w1.npz --keep=best --log=log1 "
                               "--checkpoint=c.npz --resume";
    folder f;
    size_t n;
    CHECK(make_folder(&f));
    const double ms = time_of(&f, "--epochs=12 --save=w0.npz --keep=best --log=log0");
    for (int i = 0; i < TIMES; i++) {
        const int status = signal_at_random(&f, part, ms, (uint64_t)i, SIGINT);
        NNC_FREED char *out = text_of(&f, "out", &n);
        const bool early = WIFSIGNALED(status) && WTERMSIG(status) == SIGINT;
        if (!early && (!WIFEXITED(status) || WEXITSTATUS(status)))
            test_fail(__FILE__, __LINE__, "status %d\n%s", status, out);
    }
    check_ends(&f, part);
    check_same(&f, "interrupted");
    remove_folder(&f);
}

/* Ctrl-C and SIGTERM end the step, write the checkpoint and exit with 0; the second one ends at once. Without a checkpoint they do what
 * they do to other programs. */
TEST(interrupted_trainings_continue)
{
    static const int sig[] = {SIGINT, SIGTERM, SIGINT};
    folder f;
    size_t n;
    CHECK(make_folder(&f));
    check_ends(&f, "--epochs=400 --save=w0.npz --log=log0");
    for (int i = 0; i < 3; i++) {
        const int before = i ? count_lines(&f, "log1") : 0;
        const pid_t pid = start(&f, "--epochs=400 --save=w1.npz --log=log1 --checkpoint=c.npz "
                                    "--resume --checkpoint-every=100000");
        wait_for_lines(&f, before + 300);
        kill(pid, sig[i]);
        const int status = wait_for(pid);
        NNC_FREED char *out = text_of(&f, "out", &n);
        if (!WIFEXITED(status) || WEXITSTATUS(status) || !strstr(out, "stopped after step"))
            test_fail(__FILE__, __LINE__, "signal %d: status %d\n%s", sig[i], status, out);
    }
    check_ends(&f, "--epochs=400 --save=w1.npz --log=log1 --checkpoint=c.npz --resume "
                   "--checkpoint-every=100000");
    check_same(&f, "interrupted");
    pid_t pid = start(&f, "--epochs=1000000 --log=log1");
    wait_for_lines(&f, 50);
    kill(pid, SIGINT);
    int status = wait_for(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    /* a stopped process sees both signals before its next step */
    pid = start(&f, "--epochs=1000000 --log=log1 --checkpoint=d.npz");
    wait_for_lines(&f, 50);
    kill(pid, SIGSTOP);
    kill(pid, SIGINT);
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    status = wait_for(pid);
    CHECK(WIFSIGNALED(status));
    remove_folder(&f);
}

/* ---- a full disk, and calls that fail --------------------------------------------------------------------------------------- */

#define FAILS "--epochs=4 --save=w1.npz --keep=best --log=log1 --checkpoint=c.npz --resume"

/* It ended by itself, and with a message where it failed. */
static void check_failure(const folder *f, int status, const char *what, int k)
{
    size_t n;
    NNC_FREED char *out = text_of(f, "out", &n);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != 0 && (code != 5 || !strstr(out, "error: ")))
        test_fail(__FILE__, __LINE__, "%s %d: status %d\n%s", what, k, status, out);
}

/* A disk that is full after so many bytes of a file: what was written before is whole, and the training continues from it. */
TEST(files_that_cannot_grow)
{
    folder f;
    int failed = 0;
    CHECK(make_folder(&f));
    check_ends(&f, "--epochs=4 --save=w0.npz --keep=best --log=log0");
    for (int i = 0; i < 16; i++) {
        limits.file_size = (rlim_t)(200 * pow(1.8, i)); /* 200 bytes to 1.3 MB */
        const int status = wait_for(start(&f, FAILS));
        limits.file_size = 0;
        check_failure(&f, status, "limit", i);
        failed += status != 0;
    }
    CHECK(failed > 4 && failed < 16);
    check_ends(&f, FAILS);
    check_same(&f, "full disk");
    remove_folder(&f);
}

#ifdef NNC_FAIL_LIBRARY
#define FAILS2 "--epochs=2 --save=w1.npz --keep=best --log=log1 --checkpoint=c.npz --resume"

static void remove_files(const folder *f)
{
    static const char *const name[] = {"c.npz", "log1", "w1.npz"};
    char path[PATH];
    for (size_t i = 0; i < NNC_COUNT(name); i++)
        unlink(in_folder(f, name[i], path));
}

/* Calls that write a file fail, one a training, each 20th one (NNC_TEST_DRAWS=4: each fifth, NNC_ALL_CALLS: each). The training ends with a
 * message, or did not need the call. Continued, its files are those of a training whose calls all succeed. */
TEST(calls_that_fail)
{
    static const int numbers[] = {ENOSPC, EIO};
    folder f;
    char none[PATH];
    const int each = getenv("NNC_ALL_CALLS") ? 1 : 20 / test_draws(4);
    int k = 1 + (int)(test_seed % (uint64_t)each), failed = 0;
    CHECK(make_folder(&f));
    check_ends(&f, "--epochs=2 --save=w0.npz --keep=best --log=log0");
    for (in_folder(&f, "none", none); access(none, F_OK) && k < 400; k += each) {
        remove_files(&f);
        limits.preload = NNC_FAIL_LIBRARY;
        limits.fail_at = k;
        limits.fail_errno = numbers[k % 2];
        const int status = wait_for(start(&f, FAILS2));
        limits.preload = NULL;
        check_failure(&f, status, "call", k);
        failed += status != 0;
        if (status)
            check_ends(&f, FAILS2);
        check_same(&f, "a call failed");
    }
    CHECK(failed >= 50 / each && k < 400);
    remove_folder(&f);
}
#endif
