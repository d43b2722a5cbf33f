/* tests/cli/cli.c -- golden tests of the program itself. A case file is a shell session:
 *
 *     $ nnc check tests/cli/bad.json     run from the repository's root; stdout and stderr together; $$: drawn
 *     ! 3                                exit code (0 when the line is absent)
 *     expected lines                     `...` stands for any run of characters within a line
 *
 * NNC_BLESS=1 rewrites the expected lines of cases that differ (where they hold no `...`). NNC_CASES=partition runs one file only. */
#include "test.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Does `got` match `want`, where "..." in want is any run of characters? */
static bool match(const char *want, const char *got)
{
    const char *dots = strstr(want, "...");
    if (!dots)
        return !strcmp(want, got);
    size_t n = (size_t)(dots - want);
    if (strncmp(want, got, n) != 0)
        return false;
    for (got += n;; got++) {
        if (match(dots + 3, got))
            return true;
        if (!*got)
            return false;
    }
}

/* As __asan_default_options in sanitizers.c, for the program. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER "ASAN_OPTIONS=$ASAN_OPTIONS:intercept_tls_get_addr=0; export ASAN_OPTIONS; "
#else
#define SANITIZER ""
#endif

enum { LINE = 4 * PATH_MAX };

/* What a shell runs for the command: nnc is the one beside this program. */
static void shell_line(const char *command, char line[LINE])
{
    char exe[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *slash = n > 0 ? strrchr(exe, '/') : NULL;
    if (slash)
        *slash = 0;
    snprintf(line, LINE,
        SANITIZER
        "PATH='%s':$PATH; export PATH; XDG_CACHE_HOME='%s/cache'; export XDG_CACHE_HOME; { %s ; } "
        "2>&1 </dev/null",
        exe, exe, command);
}

static char *run(const char *command, int *code)
{
    char line[LINE];
    nnc_text t = {0};
    shell_line(command, line);
    FILE *p = popen(line, "r");
    char buf[4096];
    size_t got;
    while (p && (got = fread(buf, 1, sizeof buf, p)) > 0)
        nnc_putn(&t, buf, got);
    int rc = p ? pclose(p) : -1;
    *code = WIFEXITED(rc) ? WEXITSTATUS(rc) : 128 + WTERMSIG(rc);
    char *s = strdup(nnc_text_str(&t));
    nnc_text_deinit(&t);
    return s;
}

/* Compares line by line; false at the first that differs (index in *at). */
static bool same(char **want, int n_want, char *got, int *at)
{
    int i = 0;
    char *save = NULL;
    for (char *l = strtok_r(got, "\n", &save); l; l = strtok_r(NULL, "\n", &save), i++) {
        *at = i;
        if (i >= n_want || !match(want[i], l))
            return false;
    }
    *at = i;
    return i == n_want;
}

enum { MAX_WANT = 400 };

typedef struct session {
    const char *file;
    const char *command;
    bool drawn; /* one of test_takes */
    int line, code, n_want;
    char *want[MAX_WANT];
} session;

static void finish(const session *s, nnc_text *blessed)
{
    int code, at = 0;
    if (s->drawn && !getenv("NNC_BLESS") && !test_takes((uint64_t)s->line, 8))
        return;
    char *got = run(s->command, &code), *copy = strdup(got);
    bool ok = same((char **)s->want, s->n_want, copy, &at) && code == s->code;
    free(copy);
    if (!ok && !getenv("NNC_BLESS"))
        test_fail(s->file, s->line,
            "$ %s\nexit code %d (wanted %d); line %d differs; wanted `%s`; all of it:\n%s",
            s->command, code, s->code, at + 1, at < s->n_want ? s->want[at] : "(end)", got);
    nnc_printf(blessed, "%s %s\n", s->drawn ? "$$" : "$", s->command);
    if (ok ? s->code : code)
        nnc_printf(blessed, "! %d\n", ok ? s->code : code);
    if (ok) {
        for (int i = 0; i < s->n_want; i++)
            nnc_printf(blessed, "%s\n", s->want[i]);
    } else {
        char *save = NULL;
        for (char *l = strtok_r(got, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
            nnc_printf(blessed, "%s\n", l);
    }
    free(got);
}

static void run_file(const char *path)
{
    char *text;
    size_t n;
    session s = {.file = path};
    nnc_text blessed = {0};
    int line = 0;
    CHECK_OK(nnc_file_read(path, 0, &text, &n, test_sink));
    for (char *p = text, *next; p && *p; p = next) {
        next = strchr(p, '\n');
        if (next)
            *next++ = 0;
        line++;
        const bool drawn = !strncmp(p, "$$ ", 3), command = drawn || !strncmp(p, "$ ", 2);
        if (command || *p == '#') {
            if (s.command)
                finish(&s, &blessed);
            s = (session){.file = path, .drawn = drawn, .line = line};
            s.command = command ? p + 2 + drawn : NULL;
            if (*p == '#')
                nnc_printf(&blessed, "%s\n", p);
        } else if (!strncmp(p, "! ", 2) && s.command) {
            s.code = atoi(p + 2);
        } else if (*p && s.command && s.n_want < MAX_WANT) {
            s.want[s.n_want++] = p;
        }
    }
    if (s.command)
        finish(&s, &blessed);
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(path, nnc_text_str(&blessed), blessed.n, false, test_sink));
    nnc_text_deinit(&blessed);
    nnc_free(text);
}

static int is_case(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 4 && !strcmp(d->d_name + n - 4, ".txt");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(threads_that_cannot_be_made)
{
    static const char *const commands[] = {"run", "compare"};
    for (int i = 0; i < 2; i++) {
        char line[256];
        int code;
        snprintf(line, sizeof line,
            "ulimit -v 400000; nnc %s models/mlp.json --set batch=1 --set depth=1 --threads=200 "
            "--iterations=1",
            commands[i]);
        char *got = run(line, &code);
        CHECK_INT(code, 5);
        CHECK(strstr(got, "cannot start 200 threads") != NULL);
        free(got);
    }
}
#endif

/* Runs the command on a terminal of this many columns; `interrupt`: with SIGINT once it shows its progress. */
static int on_terminal(const char *command, int columns, bool interrupt, nnc_text *out)
{
    char line[LINE], buf[256];
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int status = -1, terminal = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    CHECK(ioctl(terminal, TIOCSWINSZ, &size) == 0);
    shell_line(command, line);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        int fd = open(ptsname(terminal), O_RDWR);
        for (int i = 0; i < 3; i++)
            dup2(fd, i);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    for (ssize_t n; child > 0 && (n = read(terminal, buf, sizeof buf)) > 0;) {
        nnc_putn(out, buf, (size_t)n);
        if (interrupt && strstr(nnc_text_str(out), "... ")) {
            kill(child, SIGINT);
            interrupt = false;
        }
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    close(terminal);
    return status;
}

/* Work that takes longer than a second shows its progress in a line of its own, which is cleared before anything else is written. On a
 * busy machine lines are late, and other phases show theirs: the run takes longer until a line of its own was seen. */
TEST(progress_on_a_terminal)
{
    enum { COLUMNS = 12 };
    static const char clear[] = "\r\033[K";
    nnc_text t = {0};
    const char *p = NULL;
    int lines = 0, status;
    for (int ms = 1600; lines == 0 && ms < 200000; ms *= 2) {
        char command[128];
        snprintf(command, sizeof command,
            "exec nnc run models/relu.json --set batch=1 --duration=%d --threads=1", ms);
        t.n = 0;
        status = on_terminal(command, COLUMNS, false, &t);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        p = nnc_text_str(&t);
        for (const char *end; !strncmp(p, clear, 4) && strncmp(p + 4, "output", 6) != 0; p = end) {
            lines += !strncmp(p + 4, "runn... ", 8);
            end = p + 4 + strcspn(p + 4, "\r");
            CHECK(end - p - 4 < COLUMNS && (end == p + 4 || !strncmp(end - 2, " s", 2)));
        }
    }
    CHECK(lines > 0 && !strncmp(p + 4, "output f32", 10));
    t.n = 0;
    status = on_terminal(
        "exec nnc run models/relu.json --set batch=1 --duration=60000 --threads=1", 80, true, &t);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    CHECK(t.n > 4 && !strcmp(nnc_text_str(&t) + t.n - 4, clear));
    t.n = 0;
    status = on_terminal(
        "exec nnc run models/relu.json --set batch=1 --duration=1600 --threads=1 --quiet", 80,
        false, &t);
    CHECK(WIFEXITED(status) && !strchr(nnc_text_str(&t), '\033'));
    nnc_text_deinit(&t);
}

TEST(sessions)
{
    if (!nnc_plugin_exists("llvm")) {
        test_skip("what is printed names the plug-in llvm, and it is not there");
        return;
    }
    struct dirent **d;
    int n = scandir("tests/cli", &d, is_case, alphasort);
    CHECK(n > 0);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "tests/cli/%s", d[i]->d_name);
        if (!getenv("NNC_CASES") || strstr(path, getenv("NNC_CASES")))
            run_file(path);
        free(d[i]);
    }
    free(d);
}

/* Does COMMAND's --help list the flag? false as well: there is no such command. */
static bool takes(const char *command, const char *flag)
{
    char line[128];
    int code;
    snprintf(line, sizeof line, "nnc %s --help", command);
    char *help = run(line, &code);
    size_t n = strlen(flag);
    bool found = false;
    for (const char *at = help; code == 0 && !found && (at = strstr(at, flag)); at += n)
        found = !strchr("-_abcdefghijklmnopqrstuvwxyz0123456789", at[n]) || !at[n];
    free(help);
    return found;
}

/* A command line of a document, from the name of the command to the end of the line or of the code. Returns the number of flags. */
static int check_typed(const char *file, int line, const char *typed)
{
    char text[256], command[32], *save = NULL;
    int flags = 0;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(typed, "`\n#>"), typed);
    if (sscanf(text, "%31[a-z]", command) != 1)
        return 0;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        word[strcspn(word, "=,;|")] = 0;
        if (!strncmp(word, "models/", 7) && access(word, R_OK))
            test_fail(file, line, "`nnc %s ...`: there is no %s", command, word);
        if (strncmp(word, "--", 2) != 0 || !word[2])
            continue;
        flags++;
        if (!takes(command, word))
            test_fail(file, line, "`nnc %s ... %s`: the command has no such flag", command, word);
    }
    return flags;
}

/* What README.md and docs/ tell users to type: commands, their flags, models. */
TEST(documents_name_flags_that_exist)
{
    char path[300];
    int flags = 0;
    struct dirent **entry = NULL;
    int n = scandir("docs", &entry, NULL, alphasort);
    for (int i = -1; i < n; i++) {
        const char *name = i < 0 ? "README.md" : entry[i]->d_name, *dot = strrchr(name, '.');
        if (!dot || strcmp(dot, ".md") != 0)
            continue;
        char *text;
        size_t size;
        snprintf(path, sizeof path, "%s%s", i < 0 ? "" : "docs/", name);
        CHECK_OK(nnc_file_read(path, 0, &text, &size, test_sink));
        int line = 1;
        for (const char *p = text; *p; line += *p++ == '\n')
            if (!strncmp(p, "nnc ", 4) && (p == text || strchr("`/ \n", p[-1])))
                flags += check_typed(path, line, p + 4);
        nnc_free(text);
    }
    for (int i = 0; i < n; i++)
        free(entry[i]);
    free(entry);
    CHECK(flags > 10);
}
