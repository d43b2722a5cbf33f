/* tests/api/experiments.c -- nnc report: files of experiments with their mistakes, numbers made comparable, runs predicted and measured. */
#include "experiments/experiments.h"
#include "base/file.h"
#include "session/session.h"
#include "help.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads an experiment whose text has ' for ". */
static nnc_status read_text(nnc_experiments *x, const char *text)
{
    char path[] = "/tmp/nnc-experiment-XXXXXX";
    NNC_LOCAL(nnc_text) t = {0};
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    for (const char *p = text; *p; p++)
        nnc_putc(&t, *p == '\'' ? '"' : *p);
    CHECK_OK(nnc_file_write(path, nnc_text_str(&t), t.n, false, test_sink));
    const nnc_status st = nnc_experiments_read(x, path, test_sink);
    unlink(path);
    return st;
}

#define HEAD \
    "{'title': 't', 'source': 's', 'machine': 'm', 'hardware': 'h.json', 'models': 'm.json',\n"

TEST(mistakes_in_experiments_have_a_line)
{
    static const struct {
        const char *text, *said;
    } bad[] = {
        {"[1]", ":1:1: : experiment: the file: expected an object"},
        {"{'title': 't', 'source': 's', 'machine': 'm',\n'runs': [{'name': 'a'}]}",
            ":2:10: : experiment: \"hardware\" is missing"},
        {"{'title': 't', 'source': 's', 'machine': 'm', 'hardware': 'h',\n'runs': [{'name': 'a'}]}",
            ":2:10: : experiment: \"models\" is missing"},
        {"{'title': 't', 'machine': 'm', 'runs': []}", ":1:1: : experiment: \"source\" is missing"},
        {HEAD "'run': []}", ":2:1: : experiment: unknown key \"run\"; did you mean \"runs\"?"},
        {HEAD "'runs': []}", ":2:9: : experiment: runs: expected a list of 1 to 256 objects"},
        {HEAD "'runs': [7]}", ":2:10: : experiment: runs: expected objects with a name"},
        {HEAD "'runs': [{'name': ''}]}",
            ":2:19: : experiment: name: expected a name that is not empty"},
        {HEAD "'runs': [{'name': 'a'}, {'name': 'a'}]}",
            "expected another name than an earlier run's"},
        {HEAD "'runs': [{'name': 'a', 'set': {'batch': 1.5}}]}",
            ":2:41: : experiment: batch: expected an integer or a word"},
        {HEAD "'runs': [{'name': 'a', 'set': 3}]}", "set: expected an object of the model's args"},
        {HEAD "'runs': [{'name': 'a', 'flags': [3]}]}",
            "flags: expected a flag of nnc run or a list of them"},
        {HEAD "'runs': [{'name': 'a', 'models': []}]}", "models: expected one or more model files"},
        {HEAD "'runs': [{'name': 'a', 'numbers': {}}]}",
            "numbers: expected a list of 1 to 16 objects"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'what': 'tme'}]}]}",
            ":2:45: : experiment: what: expected time, ratio"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'what': 'ratio'}]}]}",
            ":2:36: : experiment: \"to\" is missing"},
        {HEAD "'runs': [{'name': 'one gpu', 'numbers': [{'what': 'ratio', 'to': 'two'}]}, {'name': "
              "'tow'}]}",
            "another run of this file; did you mean \"tow\"?"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'what': 'ratio', 'to': 'a'}]}]}",
            "to: expected the name of another run"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'to': 'a'}]}]}",
            "to: expected none: only a ratio names another run"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'published': -1}]}]}",
            "published: expected a number above 0"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'published': [3, 2]}]}]}",
            "published: expected a number above 0, or a list"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'published': []}]}]}",
            "published: expected a number above 0, or a list"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'unit': 'h'}]}]}",
            "unit: expected ms, s or samples/s"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'what': 'allreduces', 'unit': 's'}]}]}",
            "unit: expected none"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'passes': 0}]}]}",
            "passes: expected an integer from 1"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'published': 9, 'unit': 'samples/s'}]}]}",
            "\"passes\" is missing"},
        {HEAD "'runs': [{'name': 'a', 'numbers': [{'what': 'largest'}]}]}",
            "largest is of runs whose flags have --fit"},
        {HEAD "'runs': [{'name': 'a', 'flags': '--fit=n=1..2', 'numbers': [{'what': 'time'}]}]}",
            "largest, since the run's flags have --fit"},
    };
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        nnc_experiments x = {0};
        nnc_sink_clear(test_sink);
        CHECK(read_text(&x, bad[i].text) != NNC_OK);
        CHECK_DIAG(bad[i].said);
        CHECK_INT(x.n, 0);
        nnc_arena_deinit(&x.arena);
    }
    nnc_experiments x = {0};
    CHECK_INT(nnc_experiments_read(&x, "/nowhere.json", test_sink), NNC_E_IO);
    CHECK_INT(nnc_experiments_read(&x, "tests/cli/onnx", test_sink), NNC_E_USAGE);
    nnc_arena_deinit(&x.arena);
}

static void check_words(const char *const *word, int n, const char *joined)
{
    NNC_LOCAL(nnc_text) t = {0};
    for (int i = 0; i < n; i++)
        nnc_printf(&t, "%s%s", i ? " " : "", word[i]);
    CHECK_STR(nnc_text_str(&t), joined);
}

TEST(runs_inherit_from_their_experiment)
{
    nnc_experiments x = {0};
    CHECK_OK(read_text(&x, "{'title': 't', 'source': 's', 'machine': 'm', 'hardware': '/h.json', "
                           "'models': ['/a.json', '/b.json'], 'flags': '-O1',\n"
                           "'set': {'batch': 64, 'order': 'x'}, 'reduced': {'batch': 2},\n"
                           "'runs': [{'name': 'one', 'flags': ['--mode=step'], 'set': {'batch': 8, "
                           "'n': 3}, 'reduced': {'n': 1}},\n"
                           "{'name': 'two', 'models': '/c.json', 'hardware': '/g.json'}]}"));
    CHECK_INT(x.at[0].n_run, 2);
    const nnc_experiment_run *r = x.at[0].run;
    check_words(r[0].word, r[0].n_word,
        "/a.json /b.json -O1 --mode=step --set batch=8 --set order=x --set n=3");
    check_words(r[0].small, r[0].n_small,
        "/a.json /b.json -O1 --mode=step --set batch=2 --set order=x --set n=1");
    CHECK_STR(r[0].sizes, "batch=2 n=1");
    check_words(r[1].word, r[1].n_word, "/c.json -O1 --set batch=64 --set order=x");
    CHECK_STR(r[0].hardware, "/h.json");
    CHECK_STR(r[1].hardware, "/g.json");
    nnc_arena_deinit(&x.arena);
}

/* Files of the project: paths are relative to the file and found from the working folder. */
TEST(experiments_of_the_project)
{
    nnc_experiments x = {0};
    CHECK_OK(nnc_experiments_read(&x, "models/experiments", test_sink));
    CHECK(x.n >= 9);
    for (int i = 0; i < x.n; i++) {
        CHECK(!i || strcmp(x.at[i - 1].file, x.at[i].file) < 0);
        for (int j = 0; j < x.at[i].n_run; j++) {
            CHECK(nnc_file_exists(x.at[i].run[j].hardware));
            CHECK(nnc_file_exists(x.at[i].run[j].word[0]));
            CHECK(!strstr(x.at[i].run[j].word[0], ".."));
            CHECK(x.at[i].run[j].small || x.at[i].run[j].fits);
        }
    }
    nnc_arena_deinit(&x.arena);
}

TEST(numbers_are_comparable)
{
    nnc_experiments x = {0};
    double low = 0, high = 0;
    CHECK_OK(read_text(&x, HEAD "'runs': [{'name': 'a', 'numbers': [{'published': [30, 40], "
                                "'unit': 's', 'passes': 1000}]},\n"
                                "{'name': 'b', 'numbers': [{'published': 60, 'unit': 's', "
                                "'passes': 1000}, {'what': 'ratio', 'to': 'a'}]},\n"
                                "{'name': 'c', 'numbers': [{'published': 84.1, 'unit': 's'}, "
                                "{'what': 'ratio', 'to': 'a'}]},\n"
                                "{'name': 'd', 'numbers': [{'published': 44.4, 'unit': 's'}, "
                                "{'what': 'ratio', 'to': 'c'},\n"
                                "{'what': 'allreduces', 'published': 20}]}, {'name': 'e'},\n"
                                "{'name': 'f', 'numbers': [{'published': [100, 200], 'unit': "
                                "'samples/s', 'passes': 64}]}]}"));
    const nnc_experiment *e = &x.at[0];
    CHECK(nnc_number_published(e, 0, &e->run[0].number[0], &low, &high));
    CHECK_NEAR(low, 30, 1e-12);
    CHECK_NEAR(high, 40, 1e-12);
    CHECK(nnc_number_published(e, 1, &e->run[1].number[1], &low, &high));
    CHECK_NEAR(low, 1.5, 1e-12);
    CHECK_NEAR(high, 2, 1e-12);
    CHECK(!nnc_number_published(e, 2, &e->run[2].number[0], &low, &high)); /* of how many runs? */
    CHECK(!nnc_number_published(e, 2, &e->run[2].number[1], &low, &high));
    CHECK(nnc_number_published(e, 3, &e->run[3].number[1], &low, &high));
    CHECK_NEAR(low, 44.4 / 84.1, 1e-12);
    CHECK(nnc_number_published(e, 3, &e->run[3].number[2], &low, &high) && low == 20);
    CHECK(!nnc_number_published(e, 4, &e->run[4].number[0], &low, &high));
    CHECK(nnc_number_published(e, 5, &e->run[5].number[0], &low, &high));
    CHECK_NEAR(low, 320, 1e-9);
    CHECK_NEAR(high, 640, 1e-9);
    static const double ms[] = {20, 45, 100, 50};
    for (int i = 0; i < 4; i++)
        x.at[0].run[i].predicted.value[QUANTITY_time] = x.at[0].run[i].here.value[QUANTITY_time] =
            ms[i];
    x.at[0].run[0].reduced.value[QUANTITY_time] = x.at[0].run[0].here.value[QUANTITY_time];
    x.at[0].run[0].here.value[QUANTITY_time] = NAN;
    CHECK_NEAR(nnc_number_over(e, 0, &e->run[0].number[0], false), 20.0 / 30, 1e-12);
    CHECK_NEAR(nnc_number_over(e, 0, &e->run[0].number[0], true), NAN, 0); /* other sizes */
    CHECK_NEAR(nnc_number_over(e, 1, &e->run[1].number[0], true), 0.75, 1e-12);
    CHECK_NEAR(nnc_number_over(e, 1, &e->run[1].number[1], false), 2.25 / 2, 1e-12);
    CHECK_NEAR(nnc_number_taken(e, 1, &e->run[1].number[1], true, NULL), NAN,
        0); /* one of the two is reduced */
    CHECK_NEAR(nnc_number_over(e, 3, &e->run[3].number[1], true), 0.5 / (44.4 / 84.1), 1e-12);
    nnc_arena_deinit(&x.arena);
}

/* ---- runs ------------------------------------------------------------------------------------------------ */

/* Opens a model file with its --set words; "--large" is a failure of memory. */
static nnc_status open_words(void *ctx, const char *const *word, int n, const char *hardware,
    nnc_opened *out, nnc_sink *sink)
{
    nnc_arg arg[8];
    nnc_open_options o = nnc_open_defaults;
    nnc_env *e = NULL;
    char text[8][32];
    int *open = ctx;
    *out = (nnc_opened){.time = nnc_compare_defaults};
    o.arg = arg;
    for (int i = 1; i + 1 < n; i += 2) {
        if (strcmp(word[i], "--set") != 0)
            return nnc_fail0(sink, NNC_E_USAGE, "unknown flag %s", word[i]);
        snprintf(text[o.n_arg], sizeof text[0], "%s", word[i + 1]);
        char *equal = strchr(text[o.n_arg], '=');
        *equal = 0;
        arg[o.n_arg] = (nnc_arg){text[o.n_arg], equal + 1};
        o.n_arg++;
    }
    nnc_env_options eo = {TEST_CACHED, .hardware = hardware, .threads = hardware ? 0 : 1};
    NNC_TRY(nnc_env_create(&eo, &e, sink));
    nnc_model *m = nnc_model_open(word[0], &o, sink);
    if (!m) {
        nnc_env_destroy(e);
        return nnc_sink_cause(sink, NNC_E_MODEL);
    }
    out->env = e;
    out->model = out->own = m;
    ++*open;
    return NNC_OK;
}

static void close_words(void *ctx, nnc_opened *o)
{
    int *open = ctx;
    nnc_model_close(o->own);
    nnc_env_destroy(o->env);
    --*open;
}

static nnc_status no_search(
    void *ctx, const char *const *word, int n, const char *hardware, int64_t *out, nnc_sink *sink)
{
    (void)ctx, (void)word, (void)n, (void)hardware, (void)sink;
    *out = 61;
    return NNC_OK;
}

static nnc_status take(nnc_experiments *x, const char *runs, double budget_s, bool quick)
{
    NNC_LOCAL(nnc_text) t = {0};
    char here[512];
    CHECK(getcwd(here, sizeof here));
    nnc_printf(&t,
        "{'title': 't', 'source': 's', 'machine': 'm', 'hardware': "
        "'%s/models/hardware/v100x8.json',\n"
        "'models': '%s/models/mlp.json', 'runs': [%s]}",
        here, here, runs);
    int open = 0;
    const nnc_opener by = {open_words, close_words, no_search, NULL, &open};
    const nnc_experiments_options o = {budget_s, quick};
    CHECK_OK(read_text(x, nnc_text_str(&t)));
    const nnc_status st = nnc_experiments_take(x, &by, &o, test_sink);
    CHECK_INT(open, 0);
    return st;
}

TEST(runs_are_predicted_and_measured)
{
    nnc_experiments x = {0};
    CHECK_OK(take(&x,
        "{'name': 'small', 'set': {'batch': 4}},\n"
        "{'name': 'large', 'set': {'hidden': 1048576}, 'reduced': {'hidden': 16}, 'numbers': [{}, "
        "{'what': 'ratio', 'to': 'small'}]},\n"
        "{'name': 'search', 'flags': '--fit=depth=1..9'}",
        5, false));
    const nnc_experiment_run *r = x.at[0].run;
    CHECK(r[0].predicted.taken && r[0].predicted.point.kind == SWEEP_predicted &&
          r[0].predicted.value[QUANTITY_time] > 0);
    CHECK(r[0].here.taken && r[0].here.point.kind == SWEEP_measured &&
          r[0].here.value[QUANTITY_time] > 0);
    CHECK(!r[0].reduced.taken);
    CHECK(r[1].here.taken && r[1].here.point.kind == SWEEP_no_fit &&
          r[1].here.point.need > r[1].here.point.room);
    CHECK(r[1].here.why && strstr(r[1].here.why, "needs"));
    CHECK(r[1].reduced.taken && r[1].reduced.value[QUANTITY_time] > 0);
    CHECK(isnan(nnc_number_taken(&x.at[0], 1, &r[1].number[1], true, NULL)));
    CHECK(r[2].predicted.value[QUANTITY_largest] == 61 && !r[2].here.taken);
    CHECK(x.here && strstr(x.here, "1 thread"));
    nnc_arena_deinit(&x.arena);
}

TEST(nothing_is_measured_without_a_budget)
{
    nnc_experiments x = {0};
    CHECK_OK(take(&x, "{'name': 'small', 'set': {'batch': 4}}", 0, false));
    CHECK(x.at[0].run[0].predicted.taken && !x.at[0].run[0].here.taken && !x.here);
    nnc_arena_deinit(&x.arena);
    x = (nnc_experiments){0};
    CHECK_OK(
        take(&x, "{'name': 'small', 'set': {'batch': 4}, 'reduced': {'batch': 2}}", 1e-9, false));
    const nnc_experiment_run *r = x.at[0].run;
    CHECK(!r->here.taken && !r->reduced.taken);
    CHECK_STR(r->here.why, "the time of --budget is over");
    nnc_arena_deinit(&x.arena);
}

/* Words that no program takes are a mistake of the file, and name its line. */
TEST(wrong_words_are_at_the_line_of_their_run)
{
    static const struct {
        const char *run, *said;
    } bad[] = {{"{'name': 'a'},\n{'name': 'b', 'flags': ['--what', '1']}", "unknown flag --what"},
        {"{'name': 'a'},\n{'name': 'b', 'set': {'bach': 1}}", "bach"},
        {"{'name': 'a'},\n{'name': 'b', 'models': '/nowhere.json'}", "/nowhere.json"},
        {"{'name': 'a'},\n{'name': 'b', 'hardware': '/nowhere.json'}", "/nowhere.json"}};
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        nnc_experiments x = {0};
        nnc_sink_clear(test_sink);
        CHECK(take(&x, bad[i].run, 0, false) != NNC_OK);
        CHECK_DIAG(bad[i].said);
        CHECK_DIAG(":3:1: : in the run \"b\" of this experiment");
        nnc_arena_deinit(&x.arena);
    }
}

static nnc_status report_all(nnc_experiments *x, int *open, nnc_sink *sink)
{
    const nnc_opener by = {open_words, close_words, no_search, NULL, open};
    const nnc_experiments_options o = {0, true};
    NNC_LOCAL(nnc_text) text = {0}, page = {0};
    NNC_TRY(nnc_experiments_read(x, "tests/cli/experiments/relu.json", sink));
    NNC_TRY(nnc_experiments_read(x, "models/experiments/matmul.json", sink));
    NNC_TRY(nnc_experiments_take(x, &by, &o, sink));
    NNC_TRY(nnc_experiments_print(x, NNC_TEXT, 80, &text, sink));
    return nnc_experiments_html(x, &page, sink);
}

TEST(a_report_without_memory)
{
    bool done = false;
    for (int64_t n = 1; !done && n < 1000000; n += n / 12 + 1) {
        nnc_experiments x = {0};
        nnc_sink *sink = nnc_sink_create();
        int open = 0;
        nnc_fail_alloc_after(n);
        const nnc_status st = report_all(&x, &open, sink);
        nnc_fail_alloc_after(0);
        bool unfit = false; /* a model that a lack of memory keeps from a prediction is a row */
        for (int i = 0; i < x.n; i++)
            for (int j = 0; j < x.at[i].n_run; j++)
                unfit = unfit || x.at[i].run[j].predicted.point.status == NNC_E_NOMEM;
        CHECK(st == NNC_OK || st == NNC_E_NOMEM);
        CHECK(!st || nnc_sink_errors(sink));
        CHECK_INT(open, 0);
        done = !st && !unfit;
        nnc_arena_deinit(&x.arena);
        nnc_sink_destroy(sink);
    }
    CHECK(done);
}
