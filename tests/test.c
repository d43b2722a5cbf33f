/* tests/test.c -- main of every test program; see test.h. */
#include "test.h"
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>

enum {
    USUAL_SEED = 20260101,
    ROUND = 1000000, /* between the seeds of two rounds; a test draws from fewer */
    FULL = 8, /* eighths of a test's full number of cases */
    EACH = 2 /* of them, for each of NNC_TEST_DRAWS */
};
#ifdef __SANITIZE_ADDRESS__
enum { USUAL_EIGHTHS = 2 };
#else
enum { USUAL_EIGHTHS = 1 };
#endif

static test_case *cases, **tail = &cases;
static bool skipped, quiet;
int test_failures;
static uint64_t current_seed = USUAL_SEED;
static const test_case *running;
nnc_sink *test_sink;

void test_register(test_case *t)
{
    *tail = t;
    tail = &t->next;
}

void test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    test_failures++;
    if (quiet)
        return;
    va_start(ap, fmt);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

void test_fail_status(const char *file, int line, const char *what, nnc_status st)
{
    test_fail(file, line, "%s: %s", what, nnc_status_name(st));
    if (!quiet)
        nnc_sink_print(test_sink, stderr);
}

bool test_fails(void (*body)(const void *ctx), const void *ctx)
{
    const int before = test_failures;
    quiet = true;
    body(ctx);
    quiet = false;
    bool yes = test_failures > before;
    test_failures = before;
    return yes;
}

void test_skip(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("  skipped: ", stdout);
    vfprintf(stdout, fmt, ap);
    putchar('\n');
    va_end(ap);
    skipped = true;
}

const char *test_cache(void)
{
    static char path[4096];
    const char *folder = getenv("TEST_CACHE");
    if (!folder || !*folder)
        return NULL;
    snprintf(path, sizeof path, "%s/nnc", folder);
    return path;
}

/* ---- tests that draw ---- */

/* The file in TEST_CACHE that lists this program's tests that draw. */
static bool drawn_file(char *path, size_t n)
{
    const char *folder = getenv("TEST_CACHE");
    return folder && *folder &&
           snprintf(path, n, "%s/drawn-%s", folder, program_invocation_short_name) < (int)n;
}

/* Adds the running test to the list, once. */
static void note_draw(void)
{
    static _Atomic(const test_case *) noted; /* threads draw, too */
    char path[4096];
    if (!running || getenv("NNC_TEST_DRAWN") || !drawn_file(path, sizeof path) ||
        atomic_exchange(&noted, running) == running)
        return;
    FILE *f = fopen(path, "a");
    if (f) {
        fprintf(f, "%s\n", running->name);
        fclose(f);
    }
}

/* True where the list has the test, and where there is no list. */
static bool draws(const char *name)
{
    char path[4096], line[256];
    FILE *f = drawn_file(path, sizeof path) ? fopen(path, "r") : NULL;
    bool found = !f;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        found = !strcmp(line, name);
    }
    if (f)
        fclose(f);
    return found;
}

uint64_t test_seed_of_case(void)
{
    note_draw();
    return current_seed;
}

bool test_seed_is_usual(void)
{
    return test_seed == USUAL_SEED;
}

int test_draws(int n)
{
    note_draw();
    const char *text = getenv("NNC_TEST_DRAWS");
    const int times = text ? atoi(text) : 0;
    const int64_t some = (int64_t)n * (times > 0 ? EACH * times : USUAL_EIGHTHS) / FULL;
    return some > 1 ? (int)some : 1;
}

bool test_takes(uint64_t i, int of)
{
    return (i + test_seed) % (uint64_t)of < (uint64_t)test_draws(of);
}

bool test_decimal_comma(void)
{
    static const char make[] =
        "printf 'LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND "
        "LC_NUMERIC\n'"
        " > $LOCPATH/src && localedef -c -i $LOCPATH/src $LOCPATH/comma > $LOCPATH/log 2>&1";
    char dir[] = "/tmp/nnc-locale-XXXXXX";
    bool made = mkdtemp(dir) && setenv("LOCPATH", dir, 1) == 0;
    (void)!system(made ? make : "true"); /* also when it only warns, it fails */
    made = made && setlocale(LC_NUMERIC, "comma") && !strcmp(localeconv()->decimal_point, ",");
    (void)!system("rm -rf \"$LOCPATH\"");
    unsetenv("LOCPATH");
    if (!made)
        test_skip("localedef made no locale with a decimal comma");
    return made;
}

bool test_has_diag(const char *part)
{
    for (size_t i = 0; i < nnc_sink_count(test_sink); i++) {
        const nnc_diag *d = nnc_sink_at(test_sink, i);
        char line[4096];
        snprintf(line, sizeof line, "%s:%d:%d: %s: %s", d->loc.file ? d->loc.file : "", d->loc.line,
            d->loc.col, d->loc.path ? d->loc.path : "", d->message);
        if (strstr(line, part))
            return true;
    }
    return false;
}

static bool wanted(const char *name, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        bool skip = !strcmp(argv[i], "--skip");
        if (skip || !strcmp(argv[i], "--seed") || !strcmp(argv[i], "--rounds")) {
            if (++i < argc && skip && strstr(name, argv[i]))
                return false;
            continue;
        }
        any = true;
        if (strstr(name, argv[i]))
            return true;
    }
    return !any;
}

/* Is the test one of those that the arguments and NNC_TEST_DRAWN ask for? */
static bool chosen(const char *name, int argc, char **argv)
{
    return wanted(name, argc, argv) && (!getenv("NNC_TEST_DRAWN") || draws(name));
}

/* CPU time of this process and of those it waited for, in ms: what a test costs on a busy machine, too. */
static int64_t cpu_ms(void)
{
    int64_t us = 0;
    static const int who[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (size_t i = 0; i < NNC_COUNT(who); i++) {
        struct rusage u;
        getrusage(who[i], &u);
        us += (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * (int64_t)1000000 + u.ru_utime.tv_usec +
              u.ru_stime.tv_usec;
    }
    return us / 1000;
}

/* The command that runs a failed test again. */
static void print_command(const char *name)
{
    static const char *const variables[] = {"NNC_TEST_DRAWS", "NNC_CPU"};
    printf("     again: ");
    for (size_t i = 0; i < NNC_COUNT(variables); i++)
        if (getenv(variables[i]))
            printf("%s=%s ", variables[i], getenv(variables[i]));
    printf("%s %s --seed %llu\n", program_invocation_name, name, (unsigned long long)current_seed);
}

/* Runs t once in each round; the first that fails is the last. */
static void run(const test_case *t, uint64_t seed, uint64_t rounds)
{
    int64_t t0 = nnc_now_ns(), cpu0 = cpu_ms();
    test_failures = 0;
    skipped = false;
    running = t;
    for (uint64_t i = 0; i < rounds && !test_failures && !skipped; i++) {
        current_seed = seed + i * ROUND;
        nnc_sink_clear(test_sink);
        t->run();
    }
    running = NULL;
    printf("%s %s", test_failures ? "FAIL" : skipped ? "skip" : "ok  ", t->name);
    int64_t ms = (nnc_now_ns() - t0) / 1000000, cpu = cpu_ms() - cpu0;
    if (ms > 200)
        printf(" (%lld ms, CPU %lld ms)", (long long)ms, (long long)cpu);
    putchar('\n');
    if (test_failures)
        print_command(t->name);
    fflush(stdout);
}

/* NNC_TEST_SEED: a number or "random"; the default seed without it. Seeds stay below 2^31 for scripts, which add to them. */
static uint64_t seed_of_environment(void)
{
    const char *text = getenv("NNC_TEST_SEED");
    uint32_t bits = 0;
    if (!text || !*text)
        return current_seed;
    if (strcmp(text, "random") != 0)
        return strtoull(text, NULL, 0);
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        bits = (uint32_t)nnc_now_ns();
    return bits >> 1;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, skips = 0;
    uint64_t seed = seed_of_environment(), rounds = 1;
    for (int i = 1; i + 1 < argc; i++) {
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 0);
        if (!strcmp(argv[i], "--rounds"))
            rounds = strtoull(argv[i + 1], NULL, 0);
    }
    if (getenv("TEST_CACHE") && *getenv("TEST_CACHE"))
        setenv("XDG_CACHE_HOME", getenv("TEST_CACHE"), 1);
    setenv("NNC_POWERCAP", "/nowhere", 1); /* or reports would depend on the host */
    if (getenv("NNC_TEST_SEED"))
        printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    test_sink = nnc_sink_create();
    if (nnc_cpu_check(test_sink)) {
        nnc_sink_print(test_sink, stderr);
        return 2;
    }
    for (test_case *t = cases; t; t = t->next)
        if (chosen(t->name, argc, argv)) {
            run(t, seed, rounds);
            test_failures ? failed++ : skipped ? skips++ : passed++;
        }
    nnc_sink_destroy(test_sink);
    printf("%d passed, %d failed, %d skipped (seed %llu)\n", passed, failed, skips,
        (unsigned long long)seed);
    return failed ? 1 : 0;
}
