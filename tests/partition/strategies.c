/* tests/partition/strategies.c -- the table in docs/partition.md is made from partition/strategies.def; the committed file must be current.
 * With NNC_BLESS=1 in the environment it is written instead. */
#include "partition/partition.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "docs/partition.md"
#define HEADING "| name | mode | `--strategy` of | what |\n"

static void put_table(nnc_text *t)
{
    static const char *const mode[] = {"", "forward", "step", "both"};
    nnc_puts(t, HEADING "| --- | --- | --- | --- |\n");
#define STRATEGY(id, name, in, by, row, schedule, cut, zero, doc) \
    nnc_printf(t, "| `%s` | %s | %s | %s |\n", name, mode[NNC_IN_##in], \
        !strcmp(#by, "none")   ? "" \
        : !strcmp(#by, "both") ? "run, train" \
                               : #by, \
        doc);
#include "partition/strategies.def"
}

TEST(docs_strategies_current)
{
    nnc_text t = {0};
    char *have = NULL;
    size_t n = 0;
    CHECK_OK(nnc_file_read(FILE_NAME, 0, &have, &n, test_sink));
    const char *from = have ? strstr(have, HEADING) : NULL,
               *to = from ? strstr(from, "\n\n") : NULL;
    CHECK(to != NULL);
    if (!to)
        return;
    nnc_putn(&t, have, (size_t)(from - have));
    put_table(&t);
    nnc_puts(&t, to + 1);
    if (strcmp(have, nnc_text_str(&t)) != 0 && !getenv("NNC_BLESS"))
        test_fail(__FILE__, __LINE__,
            FILE_NAME " is not current: run NNC_BLESS=1 test_partition docs_strategies_current");
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(FILE_NAME, nnc_text_str(&t), t.n, false, test_sink));
    nnc_free(have);
    nnc_text_deinit(&t);
}

/* A name has one meaning, and only strategies that nnc executes are words of flags. */
TEST(names_of_strategies)
{
    for (int s = 0; s < NNC_STRATEGY__COUNT; s++)
        CHECK_INT(nnc_strategy_named(nnc_strategy_names[s]), s);
    CHECK_INT(nnc_strategy_named("none"), NNC_STRATEGY__COUNT);
    CHECK_STR(nnc_run_strategies, "|layers|pipeline|data|tensor|channel|spatial");
    for (int k = 0; k < PIPE__COUNT; k++)
        CHECK_INT(nnc_strategies[nnc_strategy_of((nnc_pipeline_kind)k)].schedule, k);
}
