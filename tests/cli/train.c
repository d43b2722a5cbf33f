/* tests/cli/train.c -- nnc train as a process that is interrupted and killed: what it leaves behind is continued bit for bit. */
#include "test.h"
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
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

static const char model[] =
    "{\"args\": {\"batch\": 1}, \"inputs\": {\"x\": [\"batch\", 64]}, \"layers\": [{\"op\": "
    "\"linear\", \"name\": \"a\", \"out\": 256}, {\"op\": \"batchnorm\", \"name\": \"n\"}, "
    "\"relu\", {\"op\": \"dropout\", \"alpha\": 0.2}, {\"op\": \"linear\", \"name\": \"b\", "
    "\"out\": 256, \"frozen\": true}, \"relu\", {\"op\": \"linear\", \"name\": \"c\", \"out\": "
    "4}], "
    "\"train\": {\"batch\": 32, \"lr\": 2e-3, \"optimizer\": \"adamw\", \"schedule\": \"cosine\", "
    "\"validation\": 0.25, \"data\": \"x.npy\", \"labels\": \"y.npy\"}}";

static bool make_folder(folder *f)
{
    static float x[ROWS][WIDE];
    static int64_t y[ROWS];
    const ssize_t n = readlink("/proc/self/exe", f->nnc, sizeof f->nnc - 8);
    char *slash = n > 0 ? strrchr(f->nnc, '/') : NULL;
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
    write_npy(f, "x.npy", "<f4", "(512, 64)", x, sizeof x);
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

/* Starts nnc train in the folder with these flags, between blanks; what it prints goes to the file "out". */
static pid_t start(const folder *f, const char *flags)
{
    char line[512], path[PATH];
    const char *argv[MAX_ARGS] = {f->nnc, "train", "m.json", "--threads=1", "--quiet"};
    int n = 5;
    snprintf(line, sizeof line, "%s", flags);
    for (char *p = strtok(line, " "); p && n < MAX_ARGS - 1; p = strtok(NULL, " "))
        argv[n++] = p;
    const pid_t pid = fork();
    if (pid)
        return pid;
    const int out = open(in_folder(f, "out", path), O_CREAT | O_TRUNC | O_WRONLY, 0666);
    setenv("XDG_CACHE_HOME", f->dir, 1);
    if (chdir(f->dir) || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(99);
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

/* Killed at random moments, and continued: also while the checkpoint is written, which is most of the time here. NNC_KILLS: how often. */
TEST(killed_trainings_continue)
{
    folder f;
    const char *wanted = getenv("NNC_KILLS");
    const int kills = wanted ? atoi(wanted) : 8;
    const uint64_t key = nnc_rng_key("kills", test_seed ^ (uint64_t)nnc_now_ns());
    CHECK(make_folder(&f));
    check_ends(&f, WHOLE);
    int killed = 0;
    const int64_t begin = nnc_now_ns();
    wait_for(start(&f, "--epochs=12 --checkpoint=timed.npz --checkpoint-every=4"));
    const double ms = (double)(nnc_now_ns() - begin) * 1e-6;
    for (int i = 0; i < kills; i++) {
        const pid_t pid = start(&f, PART "--checkpoint-every=4");
        sleep_ms(ms * (0.02 + 1.5 / kills * (double)nnc_rng_uniform(key, (uint64_t)i)));
        kill(pid, SIGKILL);
        killed += WIFSIGNALED(wait_for(pid));
    }
    CHECK(killed > kills / 2);
    check_ends(&f, PART "--checkpoint-every=4");
    check_same(&f, "killed");
    check_ends(&f, PART); /* it is complete: nothing is left to do */
    check_same(&f, "complete");
    remove_folder(&f);
}

static bool has_lines(const folder *f, const char *name, int want)
{
    char path[PATH], *text = NULL;
    size_t n;
    int lines = 0;
    if (!nnc_file_exists(in_folder(f, name, path)) || nnc_file_read(path, 0, &text, &n, NULL))
        return false;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    nnc_free(text);
    return lines >= want;
}

static void wait_for_lines(const folder *f, int want)
{
    for (int i = 0; i < 20000 && !has_lines(f, "log1", want); i++)
        sleep_ms(1);
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
        const pid_t pid = start(&f, "--epochs=400 --save=w1.npz --log=log1 --checkpoint=c.npz "
                                    "--resume --checkpoint-every=100000");
        wait_for_lines(&f, 500 * (i + 1));
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
