/* tests/api/copies.c -- times with and without copies: asking for both changes neither. */
#include "session/session.h"
#include "frontend/frontend.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

static const char tiny[] = "{\"name\": \"tiny\", \"inputs\": {\"a\": [1, 1], \"b\": [1, 1]}, "
                           "\"layers\": [{\"op\": \"matmul\", \"in\": [\"a\", \"b\"]}]}";

/* The number in the last line of a CSV text in the column of that name; -1: there is none. */
static double column(const char *csv, const char *name)
{
    const char *head = csv, *row = strchr(csv, '\n') + 1;
    for (const char *next; (next = strchr(row, '\n')) && next[1];)
        row = next + 1;
    for (;;) {
        const size_t n = strcspn(head, ",\n");
        if (n == strlen(name) && !strncmp(head, name, n))
            return strtod(row, NULL);
        if (head[n] == '\n')
            return -1;
        head += n + 1;
        row += strcspn(row, ",") + 1;
    }
}

static void measure(nnc_env *e, const nnc_model *m, nnc_io io, nnc_text *t)
{
    nnc_compare_options o = {
        .compile = nnc_compile_defaults, .duration_ms = 30, .no_reference = true, .io = io};
    bool agrees = false;
    CHECK_OK(nnc_compare(e, m, &o, NNC_CSV, t, &agrees, test_sink));
    CHECK(agrees);
}

/* A run that takes a microsecond, since what a thread of a stream costs is several. The fastest tenth, since the machine does other work,
 * too. */
TEST(both_times_are_those_of_each_alone)
{
    NNC_LOCAL(nnc_text) without = {0}, with = {0}, both = {0};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.no_cache = true, .threads = 1}, &e, test_sink));
    nnc_graph *m = nnc_model_parse("tiny.json", tiny, strlen(tiny), NULL, test_sink);
    if (!e || !m)
        return;
    measure(e, m, NNC_IO_EXCLUDE, &without);
    measure(e, m, NNC_IO_INCLUDE, &with);
    measure(e, m, NNC_IO_BOTH, &both);
    const double alone = column(nnc_text_str(&without), "p10_ms"),
                 beside = column(nnc_text_str(&both), "p10_ms");
    if (beside > 8 * alone + 0.0005)
        test_fail(__FILE__, __LINE__, "%g ms, alone %g", beside, alone);
    CHECK(column(nnc_text_str(&without), "with_copies_median_ms") == -1);
    CHECK(column(nnc_text_str(&with), "with_copies_median_ms") == -1);
    CHECK(column(nnc_text_str(&both), "with_copies_median_ms") >= alone);
    CHECK(column(nnc_text_str(&with), "p10_ms") >= alone);
    nnc_graph_destroy(m);
    nnc_env_destroy(e);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

/* A run is timed as often with copies as without, and each of a comparison's runs has both times, where both are asked for. */
TEST(both_times_are_in_json)
{
    static const char *const names[] = {
        "\"io\": \"exclude\"", "\"io\": \"include\"", "\"io\": \"both\""};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.no_cache = true, .threads = 1}, &e, test_sink));
    nnc_graph *m = nnc_model_parse("tiny.json", tiny, strlen(tiny), NULL, test_sink);
    for (int io = NNC_IO_EXCLUDE; e && m && io <= NNC_IO_BOTH; io++) {
        NNC_LOCAL(nnc_text) t = {0};
        nnc_compare_options o = {
            .compile = nnc_compile_defaults, .iterations = 3, .no_reference = true, .io = io};
        bool agrees = false;
        CHECK_OK(nnc_compare(e, m, &o, NNC_JSON, &t, &agrees, test_sink));
        const char *text = nnc_text_str(&t);
        const int runs = count(text, "\"launches\": 1, \"kernels\"");
        CHECK(runs > 0 && strstr(text, names[io]));
        CHECK_INT(count(text, "\"with_copies\": {\"median_ms\""), io == NNC_IO_BOTH ? runs : 0);
        CHECK_INT(count(text, "\"overlap\""), io == NNC_IO_EXCLUDE ? 0 : runs);
        CHECK_INT(count(text, "\"iterations\": 3"), io == NNC_IO_BOTH ? 2 * runs : runs);
    }
    nnc_graph_destroy(m);
    nnc_env_destroy(e);
}
