/* tests/api/fit.c -- nnc memory --fit: the boundary is that of real plans, the search ends where memory falls, and a lack of host memory is
 * an error. */
#include "fit/fit.h"
#include "session/session.h"
#include "help.h"
#include <stdlib.h>
#include <string.h>

typedef struct opening {
    const char *text;
    int calls;
} opening;

static nnc_status open(void *ctx, const nnc_reopening *how, nnc_model **out, nnc_sink *sink)
{
    opening *o = ctx;
    nnc_set set[4];
    nnc_model_options m = {.set = set, .place = how->place};
    o->calls++;
    for (int i = 0; i < how->n_arg; i++)
        set[m.n_set++] = (nnc_set){how->arg[i].name, strtol(how->arg[i].value, NULL, 10)};
    *out = nnc_model_parse("m.json", o->text, strlen(o->text), &m, sink);
    return *out ? NNC_OK : nnc_sink_cause(sink, NNC_E_MODEL);
}

/* Layers of 64 x 64 weights, tensors of 16 KiB for each 64 samples. */
static const char stack[] =
    "{\"name\": \"stack\", \"args\": {\"batch\": 64, \"depth\": 3}, \"inputs\": {\"x\": "
    "[\"batch\", "
    "64]}, \"layers\": [{\"repeat\": \"depth\", \"layers\": [{\"op\": \"linear\", \"out\": 64}, "
    "\"relu\"]}]}";

/* Memory falls at n = 7. */
static const char falls[] =
    "{\"name\": \"falls\", \"args\": {\"n\": 1}, \"inputs\": {\"x\": [\"n == 7 ? 1 : 1024 * n\"]}, "
    "\"layers\": [\"relu\"]}";

typedef struct searched {
    cJSON *report;
    nnc_status st;
    bool fits;
    int64_t largest;
    int calls;
} searched;

static searched search(
    nnc_env *e, const char *text, const nnc_fit_arg *arg, int n, int devices, nnc_sink *sink)
{
    opening o = {text, 0};
    const nnc_reopen model = {open, &o, 1, NULL};
    nnc_fit_options f = {.compile = nnc_compile_defaults, .arg = arg, .n_arg = n, .model = &model};
    NNC_LOCAL(nnc_text) t = {0}, plain = {0};
    searched s = {NULL, NNC_OK, false, 0, 0};
    f.compile.devices = devices;
    s.st = nnc_fit_report(e, &f, NNC_JSON, &t, &s.fits, &s.largest, sink);
    s.calls = o.calls;
    if (!s.st)
        CHECK((s.report = cJSON_Parse(nnc_text_str(&t))) != NULL);
    return s;
}

static int64_t number(const cJSON *of, const char *key)
{
    const cJSON *v = cJSON_GetObjectItem(of, key);
    return v ? (int64_t)v->valuedouble : -1;
}

static nnc_env *environment(const char *target, const char *hardware, const char *limit)
{
    nnc_env_options eo = nnc_env_defaults;
    nnc_env *e = NULL;
    eo.target = target;
    eo.hardware = hardware;
    eo.memory_limit = limit;
    eo.cache_dir = test_cache();
    eo.no_cache = !test_cache();
    CHECK_OK(nnc_env_create(&eo, &e, test_sink));
    return e;
}

/* Bytes that a run of the model requests: of its compiled plan, with machine code. */
static int64_t compiled(nnc_env *e, const char *depth)
{
    opening o = {stack, 0};
    const nnc_arg arg = {"depth", depth};
    nnc_model *m = NULL;
    nnc_artifact *a = NULL;
    CHECK_OK(open(&o, &(nnc_reopening){.arg = &arg, .n_arg = 1}, &m, test_sink));
    CHECK_OK(nnc_compile(e, m, NULL, &a, test_sink));
    const int64_t n = a ? nnc_device_needs(a->plan, 0) : -1;
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    return n;
}

TEST(the_boundary_is_that_of_plans)
{
    nnc_env *e = environment(NULL, NULL, "200KiB");
    const nnc_fit_arg arg = {"depth", 1, 100};
    const searched s = search(e, stack, &arg, 1, 1, test_sink);
    char text[24];
    CHECK(s.fits);
    const cJSON *best = cJSON_GetArrayItem(cJSON_GetObjectItem(s.report, "largest"), 0);
    const int64_t depth = number(best, "depth");
    CHECK_INT(s.largest, depth);
    CHECK(cJSON_IsTrue(cJSON_GetObjectItem(s.report, "monotone")));
    snprintf(text, sizeof text, "%lld", (long long)depth);
    CHECK_INT(compiled(e, text), number(best, "need"));
    CHECK(compiled(e, text) <= 200 << 10);
    snprintf(text, sizeof text, "%lld", (long long)depth + 1);
    CHECK(compiled(e, text) > 200 << 10);
    CHECK(s.calls < 16);
    cJSON_Delete(s.report);
    nnc_env_destroy(e);
}

TEST(memory_that_falls)
{
    nnc_env *e = environment("tests/cli/machine.json", NULL, "40000");
    const nnc_fit_arg arg = {"n", 1, 9}, all = {"n", 6, 7};
    searched s = search(e, falls, &arg, 1, 1, test_sink); /* 1, 9, 5, 3, 4, 6, 7 */
    CHECK(s.fits && !cJSON_IsTrue(cJSON_GetObjectItem(s.report, "monotone")));
    CHECK_INT(number(cJSON_GetArrayItem(cJSON_GetObjectItem(s.report, "largest"), 0), "n"), 7);
    cJSON_Delete(s.report);
    s = search(e, falls, &all, 1, 1, test_sink); /* the least does not fit */
    CHECK(s.fits && !cJSON_IsTrue(cJSON_GetObjectItem(s.report, "monotone")));
    cJSON_Delete(s.report);
    nnc_env_destroy(e);
}

/* Over two devices the cut is a placement whose plan fits both, and more fits than on one. */
TEST(over_devices)
{
    nnc_env *e = environment(NULL, "models/hardware/cpu.json", "200KiB");
    const nnc_fit_arg arg = {"depth", 2, 100};
    searched one = search(e, stack, &arg, 1, 1, test_sink),
             two = search(e, stack, &arg, 1, 2, test_sink);
    const cJSON *rows = cJSON_GetObjectItem(two.report, "largest");
    CHECK_INT(cJSON_GetArraySize(rows), 2);
    for (int d = 0; d < 2; d++) {
        const cJSON *r = cJSON_GetArrayItem(rows, d);
        CHECK(number(r, "need") <= 200 << 10 && number(r, "have") == 200 << 10);
        CHECK(cJSON_IsString(cJSON_GetObjectItem(r, "place")));
    }
    const int64_t alone =
        number(cJSON_GetArrayItem(cJSON_GetObjectItem(one.report, "largest"), 0), "depth");
    CHECK(number(cJSON_GetArrayItem(rows, 0), "depth") > alone + alone / 2);
    cJSON_Delete(one.report);
    cJSON_Delete(two.report);
    nnc_env_destroy(e);
}

/* Each later allocation fails: NNC_E_NOMEM, or the report; what is left, the sanitizer finds. */
TEST(fit_without_host_memory)
{
    nnc_env *e = environment("tests/cli/machine.json", NULL, "200KiB");
    const nnc_fit_arg arg[] = {{"depth", 1, 4}, {"batch", 1, 2}};
    bool done = false;
    for (int64_t n = 1; !done && n < 100000; n += n / 12 + 1) {
        nnc_sink *sink = nnc_sink_create();
        opening o = {stack, 0};
        const nnc_reopen model = {open, &o, 1, NULL};
        const nnc_fit_options f = {
            .compile = nnc_compile_defaults, .arg = arg, .n_arg = 2, .model = &model};
        NNC_LOCAL(nnc_text) t = {0};
        bool fits;
        int64_t largest;
        nnc_fail_alloc_after(n);
        const nnc_status st = nnc_fit_report(e, &f, NNC_TEXT, &t, &fits, &largest, sink);
        nnc_fail_alloc_after(0);
        CHECK(st == NNC_OK || st == NNC_E_NOMEM);
        CHECK(!st || nnc_sink_errors(sink));
        done = !st;
        nnc_sink_destroy(sink);
    }
    CHECK(done);
    nnc_env_destroy(e);
}

TEST(ranges)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t lo, hi;
    } of[] = {{"1..5", true, 1, 5}, {"-2..-1", true, -2, -1}, {"3..3", true, 3, 3},
        {"5..1", false, 0, 0}, {"1", false, 0, 0}, {"..5", false, 0, 0}, {"1..", false, 0, 0},
        {"1..5x", false, 0, 0}, {"1.5", false, 0, 0}, {"", false, 0, 0}};
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        nnc_sink *sink = nnc_sink_create();
        nnc_fit_arg got;
        const nnc_status st = nnc_fit_parse(&(nnc_arg){"n", of[i].text}, &got, sink);
        CHECK_INT(st, of[i].ok ? NNC_OK : NNC_E_USAGE);
        if (of[i].ok)
            CHECK(got.lo == of[i].lo && got.hi == of[i].hi);
        nnc_sink_destroy(sink);
    }
}
