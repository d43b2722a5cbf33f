/* tests/test.h -- a test program is a set of TEST functions; each registers itself. `test_x` runs all, `test_x NAME...` those
 * whose names contain NAME, `--skip NAME` those whose names do not. `--seed N` sets test_seed. `--rounds N` runs each N times from
 * other seeds, until it fails. A failed CHECK prints both values and goes on; the exit code is 1.
 *
 * NNC_TEST_SEED=N is --seed N for all programs and scripts; NNC_TEST_SEED=random draws a seed for each program, which its last line prints.
 * NNC_TEST_DRAWS=N: the number of random cases, in quarters (see test_draws). NNC_TEST_DRAWN=1 runs only tests that draw: those that asked
 * for the seed or for a number of cases in an earlier run with the same folder TEST_CACHE. */
#ifndef NNC_TEST_H
#define NNC_TEST_H

#include "base/base.h"
#include <string.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case;
void test_register(test_case *t);
extern int test_failures; /* of the test that runs */
/* Runs body without a word; does a CHECK in it fail? It is no failure of the test. */
bool test_fails(void (*body)(const void *ctx), const void *ctx);
void test_fail(const char *file, int line, const char *fmt, ...) NNC_PRINTF(3, 4);
void test_fail_status(
    const char *file, int line, const char *what, nnc_status st); /* and what is in test_sink */
void test_skip(const char *fmt, ...)
    NNC_PRINTF(1, 2); /* prints why and counts the test as skipped */
uint64_t test_seed_of_case(void);
#define test_seed \
    test_seed_of_case() /* --seed, default fixed; print it when a generated case fails */
bool test_seed_is_usual(void); /* is it the default one? */
/* Number of random cases for a test whose full number is n: n * NNC_TEST_DRAWS / 4, at least 1; by default an eighth, or a quarter with
 * AddressSanitizer. CI draws all of them with NNC_TEST_DRAWS=4. */
int test_draws(int n);
/* Does a test with a list of cases run case i? By default one of `of` (at most 8), chosen by the seed; with NNC_TEST_DRAWS=4 each. */
bool test_takes(uint64_t i, int of);
extern nnc_sink *test_sink; /* cleared before each test */

#define TEST(n) \
    static void test_##n(void); \
    __attribute__((constructor)) static void test_reg_##n(void) \
    { \
        static test_case c = {#n, test_##n, NULL}; \
        test_register(&c); \
    } \
    static void test_##n(void)
#define CHECK(e) ((e) ? (void)0 : test_fail(__FILE__, __LINE__, "%s", #e))
/* Evaluates e, which must hold at the usual seed only: how many of the drawn cases are of a kind, a limit that was fitted. At other seeds
 * it may be false by chance. */
#define CHECK_USUAL(e) \
    ((e) || !test_seed_is_usual() ? (void)0 : test_fail(__FILE__, __LINE__, "%s", #e))
#define CHECK_OK(e) \
    do { \
        nnc_status s_ = (e); \
        if (s_ != NNC_OK) \
            test_fail_status(__FILE__, __LINE__, #e, s_); \
    } while (0)
#define CHECK_INT(a, b) \
    do { \
        long long a_ = (long long)(a), b_ = (long long)(b); \
        if (a_ != b_) \
            test_fail(__FILE__, __LINE__, "%s is %lld, not %s = %lld", #a, a_, #b, b_); \
    } while (0)
#define CHECK_STR(a, b) \
    do { \
        const char *a_ = (a), *b_ = (b); \
        if (strcmp(a_ ? a_ : "(null)", b_ ? b_ : "(null)")) \
            test_fail(__FILE__, __LINE__, "%s is\n%s\nnot\n%s", #a, a_ ? a_ : "(null)", \
                b_ ? b_ : "(null)"); \
    } while (0)
#define CHECK_NEAR(a, b, tol) \
    do { \
        double a_ = (a), b_ = (b), t_ = (tol); \
        if (!((a_ - b_ <= t_ && b_ - a_ <= t_) || (a_ != a_ && b_ != b_) || a_ == b_)) \
            test_fail( \
                __FILE__, __LINE__, "%s is %.17g, not %s = %.17g (+- %g)", #a, a_, #b, b_, t_); \
    } while (0)
/* Is there a diagnostic whose text (with its location line) contains `part`? */
#define CHECK_DIAG(part) \
    (test_has_diag(part) ? (void)0 \
                         : (test_fail(__FILE__, __LINE__, "no diagnostic contains: %s", part), \
                               nnc_sink_print(test_sink, stderr)))
bool test_has_diag(const char *part);

/* Folder of the cache of machine code that tests share, across suites and builds, as its keys are what is compiled. It is nnc in the
 * environment's folder TEST_CACHE, so XDG_CACHE_HOME=$TEST_CACHE means it, too. NULL: there is none, and everything is compiled.
 * ./test.sh begins with an empty one. */
const char *test_cache(void);
/* Options of an environment that uses it: nnc_env_create(&(nnc_env_options){TEST_CACHED, ...}). */
#define TEST_CACHED .cache_dir = test_cache(), .no_cache = !test_cache()

/* Gives this process a locale whose decimal point is a comma, made by localedef; false, having skipped the test, where it is missing.
 * setlocale(LC_ALL, "C") ends it. */
bool test_decimal_comma(void);

#endif
