/* tests/frontend/broken.c -- what is said about broken models (broken.txt), about --set, and
 * mutated and starved loads. */
#include "frontend/frontend.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

static const char *const cases = "tests/frontend/broken.txt";

/* One line per diagnostic, as printed. */
static void diagnostics(nnc_text *t, const char *mark)
{
    for (size_t i = 0; i < nnc_sink_count(test_sink); i++) {
        const nnc_diag *d = nnc_sink_at(test_sink, i);
        nnc_printf(t, "%s%s:%d:%d: %s%s%s\n", mark, d->severity == NNC_WARNING ? "warning: " : "",
            d->loc.line, d->loc.col, d->loc.path ? d->loc.path : "", d->loc.path ? ": " : "",
            d->message);
    }
}

TEST(broken_models)
{
    char *text;
    size_t n;
    nnc_text blessed = {0};
    int count = 0;
    CHECK_OK(nnc_file_read(cases, 0, &text, &n, test_sink));
    char *p = strstr(text, "---\n");
    nnc_putn(&blessed, text, (size_t)(p - text));
    while (p) {
        char *json = p + 4, *next = strstr(json, "---\n"), *stop = next ? next : text + n,
             *want = strstr(json, "#> ");
        if (!want || want > stop)
            want = stop;
        nnc_text got = {0}, expected = {0};
        nnc_sink_clear(test_sink);
        nnc_graph *g = nnc_model_parse("m.json", json, (size_t)(want - json), NULL, test_sink);
        CHECK(g == NULL);
        nnc_graph_destroy(g);
        CHECK(nnc_sink_errors(test_sink) >= 1);
        diagnostics(&got, "#> ");
        nnc_putn(&expected, want, (size_t)(stop - want));
        if (!getenv("NNC_BLESS"))
            CHECK_STR(nnc_text_str(&got), nnc_text_str(&expected));
        nnc_puts(&blessed, "---\n");
        nnc_putn(&blessed, json, (size_t)(want - json));
        nnc_puts(&blessed, nnc_text_str(&got));
        nnc_text_deinit(&got);
        nnc_text_deinit(&expected);
        count++;
        p = next;
    }
    CHECK(count >= 50);
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(cases, nnc_text_str(&blessed), blessed.n, false, test_sink));
    nnc_text_deinit(&blessed);
    nnc_free(text);
}

static void set_fails(nnc_set s, nnc_set_word w, const char *want)
{
    nnc_model_options o = {
        .set = &s, .n_set = s.name != NULL, .word = &w, .n_word = w.name != NULL};
    nnc_sink_clear(test_sink);
    nnc_graph *g = nnc_model_load("models/vgg16.json", &o, test_sink);
    CHECK(g == NULL);
    nnc_graph_destroy(g);
    CHECK_DIAG(want);
    CHECK_INT(nnc_sink_at(test_sink, 0)->code, NNC_E_USAGE);
}

TEST(set_errors)
{
    static const char bare[] = "{\"inputs\":{\"x\":[4]},\"layers\":[\"relu\"]}";
    const nnc_set batch = {"batch", 2};
    nnc_set_word none = {0};
    nnc_sink_clear(test_sink);
    CHECK(!nnc_model_parse(
        "m.json", bare, strlen(bare), &(nnc_model_options){.set = &batch, .n_set = 1}, test_sink));
    CHECK_DIAG("--set batch=2: the model has no args");
    set_fails((nnc_set){"bacth", 2}, none,
        "--set bacth=2: the model has no arg `bacth`; did you mean `batch`?");
    set_fails((nnc_set){"zzzzzz", 2}, none, "(it has: batch, image, order, bn, slim)");
    set_fails((nnc_set){"image", 16}, none, "--set image=16: expected at least 32");
    set_fails((nnc_set){"bn", 2}, none, "--set bn=2: expected at most 1");
    set_fails((nnc_set){"order", 1}, none, "--set order=1: expected a word");
    set_fails((nnc_set){0}, (nnc_set_word){"order", "relu"},
        "--set order=relu: expected one of relu-pool, pool-relu");
    set_fails(
        (nnc_set){0}, (nnc_set_word){"batch", "many"}, "--set batch=many: expected an integer");
}

static const char small[] =
    "{\"args\": {\"n\": 2, \"w\": \"same\"}, \"blocks\": {\"b\": {\"args\": {\"c\": 4, \"k\": "
    "{\"default\": 3, \"min\": 1}}, \"layers\": [\n"
    "{\"op\": \"conv\", \"name\": \"c\", \"channels\": \"c\", \"kernel\": \"k\", \"pad\": "
    "\"same\"}, \"batchnorm\", \"relu\",\n"
    "{\"op\": \"conv\", \"channels\": 4, \"kernel\": [1, 1], \"bias\": false}, {\"op\": \"add\", "
    "\"in\": [\"prev\", \"input\"]}]}},\n"
    "\"inputs\": {\"x\": [\"n\", 4, 8, \"n*4\"]}, \"layers\": [{\"op\": \"b\", \"name\": \"s\", "
    "\"repeat\": \"n\", \"c\": \"4*(i+1)\"},\n"
    "{\"op\": \"split\", \"parts\": 2, \"name\": \"h\"}, {\"op\": \"concat\", \"in\": [\"h:1\", "
    "\"h:0\", \"prev\"]},\n"
    "{\"op\": \"maxpool\", \"kernel\": 2, \"when\": \"w == 'same' && n > 1\"}, \"flatten\", "
    "{\"op\": \"linear\", \"out\": \"max(n, 5) % 7\"},\n"
    "{\"op\": \"softmax\", \"name\": \"y\", \"dtype\": \"f16\"}], \"outputs\": [\"y\", \"h:1\"]}";

TEST(small_model)
{
    nnc_graph *g = nnc_model_parse("small", small, sizeof small - 1, NULL, test_sink);
    CHECK(g != NULL);
    if (!g) {
        nnc_sink_print(test_sink, stderr);
        return;
    }
    CHECK_OK(nnc_verify(g, test_sink));
    CHECK_INT(g->n_output, 2);
    CHECK_INT(nnc_typeof(g, g->output[0])->dtype, DT_f16);
    CHECK_INT(nnc_typeof(g, g->output[0])->dim[1], 5);
    CHECK_STR(nnc_def(g, g->output[0])->origin, "/layers/6/y");
    nnc_graph_destroy(g);
}

/* Bytes and pieces of a good model changed at random: an error or a graph that verifies, never
 * a crash. */
TEST(mutated_models)
{
    static const char *const parts[] = {"\"", "{", "}", "[", "]", ",", ":", "-1", "99999999999999",
        "0", "1e300", "\"n\"", "null", "true", "\"op\"", "\"in\"", "\"prev\"", "\"h:9\"", "${", "'",
        "n/0", "\"repeat\": 100000, ", "\"b\"", "\\u0000", "\x80"};
    uint64_t key = nnc_rng_key("mutate", test_seed), at = 0;
    nnc_model_options o = {0};
    int good = 0;
    for (int round = 0; round < 3000; round++) {
        char text[sizeof small + 64];
        size_t n = sizeof small - 1;
        memcpy(text, small, n);
        for (uint32_t k = nnc_rng_u32(key, at++) % 3 + 1; k > 0; k--) {
            size_t pos = nnc_rng_u32(key, at++) % n;
            const char *part = parts[nnc_rng_u32(key, at++) % NNC_COUNT(parts)];
            size_t len = strlen(part), cut = nnc_rng_u32(key, at++) % 6;
            cut = cut > n - pos ? n - pos : cut;
            if (n - cut + len > sizeof text)
                continue;
            memmove(text + pos + len, text + pos + cut, n - pos - cut);
            memcpy(text + pos, part, len);
            n = n - cut + len;
        }
        if (round % 2) { /* half of them: one digit changed, so that many stay models */
            size_t pos = nnc_rng_u32(key, at++) % (sizeof small - 1);
            memcpy(text, small, n = sizeof small - 1);
            while (pos < n && (text[pos] < '0' || text[pos] > '9'))
                pos++;
            if (pos < n)
                text[pos] = (char)('0' + nnc_rng_u32(key, at++) % 10);
        }
        nnc_sink_clear(test_sink);
        nnc_graph *g = nnc_model_parse("fuzz", text, n, &o, test_sink);
        if (!g && nnc_sink_errors(test_sink) == 0)
            test_fail(__FILE__, __LINE__, "rejected without a word (seed %llu, round %d)",
                (unsigned long long)test_seed, round);
        for (size_t i = 0; !g && i < nnc_sink_count(test_sink); i++)
            if (nnc_sink_at(test_sink, i)->code == NNC_E_BUG)
                test_fail(__FILE__, __LINE__, "round %d: %s\n%.*s", round,
                    nnc_sink_at(test_sink, i)->message, (int)n, text);
        if (g && nnc_verify(g, test_sink) != NNC_OK)
            test_fail(__FILE__, __LINE__, "round %d does not verify", round);
        good += g != NULL;
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(good > 100); /* else the mutations are too coarse to reach far */
}

TEST(out_of_memory)
{
    bool done = false;
    for (int64_t i = 1; i < 5000 && !done; i++) {
        nnc_sink *s = nnc_sink_create();
        nnc_fail_alloc_after(i);
        nnc_graph *g = nnc_model_parse("small", small, sizeof small - 1, NULL, s);
        nnc_fail_alloc_after(0);
        done = g != NULL;
        if (!g)
            CHECK(nnc_sink_errors(s) > 0);
        nnc_graph_destroy(g);
        nnc_sink_destroy(s);
    }
    CHECK(done);
}
