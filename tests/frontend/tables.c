/* tests/frontend/tables.c -- expressions, and the layer table against the schema. */
#include "frontend/internal.h"
#include "test.h"
#include <stdlib.h>

static const fe_env env_w = {"order", {true, 0, "pool-relu", 9}, NULL};
static const fe_env env_n = {"n", {false, 7, NULL, 0}, &env_w};

static void value(const char *s, int64_t want)
{
    fe_val v;
    fe_expr_error e = {{0}, 0};
    if (!fe_expr(s, strlen(s), &env_n, &v, &e))
        test_fail(__FILE__, __LINE__, "%s: %s", s, e.text);
    else if (v.is_word || v.i != want)
        test_fail(__FILE__, __LINE__, "%s is %lld, not %lld", s, (long long)v.i, (long long)want);
}

static void error(const char *s, int at, const char *want)
{
    fe_val v;
    fe_expr_error e = {{0}, 0};
    if (fe_expr(s, strlen(s), &env_n, &v, &e)) {
        test_fail(__FILE__, __LINE__, "%s is accepted", s);
        return;
    }
    CHECK_STR(e.text, want);
    CHECK_INT(e.at, at);
}

TEST(expressions)
{
    value("2*n+1", 15);
    value("2 + 3 * 4 - 6 / 2", 11);
    value("(2 + 3) * 4", 20);
    value("-7 / 2", -4);
    value("-7 % 2", 1);
    value("7 % -2", -1);
    value("--n", 7);
    value("!n + !0", 1);
    value("n > 6 && n < 8 || 0", 1);
    value("n == 7 ? 10 : 1 / 0", 10);
    value("n != 7 && 1 / 0", 0);
    value("n == 7 || 1 / 0", 1);
    value("order == 'pool-relu'", 1);
    value("order != 'pool-relu' ? 1 : 2", 2);
    value("min(n, 3, 9) + max(1, 2)", 5);
    value("1 < 2 == 1", 1);
    value("0 ? 1 : 0 ? 2 : 3", 3);
    value("9223372036854775807", INT64_MAX);
    value("-9223372036854775807 - 1", INT64_MIN);
    value("(-9223372036854775807 - 1) % -1", 0);
    error("1/0", 1, "division by zero");
    error("n % (n - 7)", 2, "division by zero");
    error("9223372036854775807 + 1", 20, "9223372036854775807 + 1 does not fit in 64 bits");
    error(
        "(-9223372036854775807 - 1) / -1", 27, "-9223372036854775808 / -1 does not fit in 64 bits");
    error("9223372036854775808", 0, "a number does not fit in 64 bits");
    error("n n", 2, "expected an operator, found `n`");
    error("2x", 1, "expected an operator after 2, found `x`");
    error("", 0, "the expression ends where a value is expected");
    error("order + 1", 6,
        "`+` needs integers, but 'pool-relu' is a word (words compare with == and !=)");
    error("order == 1", 6, "compares a word with an integer");
    error("m", 0, "`m` is not an arg here; did you mean `n`?");
    error("'open", 0, "a quoted word has no closing '");
    error("n ? 1", 5, "expected : of ?:");
    error("min(1", 5, "expected , or )");
    char deep[400];
    memset(deep, '(', sizeof deep);
    fe_val v;
    fe_expr_error e;
    CHECK(!fe_expr(deep, sizeof deep, NULL, &v, &e));
    memset(deep, '-', sizeof deep);
    CHECK(!fe_expr(deep, sizeof deep, NULL, &v, &e));
}

/* Every key of every layer has a row in keys.def, and rows of ops name attributes. */
TEST(layer_table)
{
    int n = fe_layer_count();
    CHECK(n > 90);
    for (int i = 0; i < n; i++) {
        fe_row r = fe_layer_at(i), again;
        char key[32];
        bool must;
        CHECK(fe_layer_find(r.name, &again) && !strcmp(again.name, r.name));
        for (const char *p = r.keys; fe_keys_next(&p, key, &must);) {
            if (!fe_key_find(key))
                test_fail(__FILE__, __LINE__, "%s: key %s has no row", r.name, key);
            if (fe_is_common(key))
                test_fail(__FILE__, __LINE__, "%s: key %s is common", r.name, key);
        }
    }
}

/* docs/model.md names every layer that is more than an op, and its keys; its example loads. */
TEST(document)
{
    char *text = NULL, word[64], key[32];
    size_t n;
    bool must;
    CHECK_OK(nnc_file_read("docs/model.md", 0, &text, &n, test_sink));
    if (!text)
        return;
    for (int i = 0; i < fe_layer_count(); i++) {
        fe_row r = fe_layer_at(i);
        snprintf(word, sizeof word, "\n| `%s` |", r.name);
        const char *line = strstr(text, word);
        if (!r.own)
            continue;
        if (!line)
            test_fail(__FILE__, __LINE__, "docs/model.md has no row for %s", r.name);
        for (const char *p = r.keys; line && fe_keys_next(&p, key, &must);) {
            snprintf(word, sizeof word, must ? "`%s`" : "`%s`?", key);
            const char *at = strstr(line + 1, word);
            if (!at || at > strchr(line + 1, '\n'))
                test_fail(__FILE__, __LINE__, "docs/model.md: row %s lacks key %s", r.name, key);
        }
    }
    char *start = strstr(text, "```json\n"), *end = start ? strstr(start + 8, "```") : NULL;
    CHECK(end != NULL);
    nnc_graph *g = end ? nnc_model_parse(
                             "docs/model.md", start + 8, (size_t)(end - start - 8), NULL, test_sink)
                       : NULL;
    CHECK(g != NULL);
    nnc_sink_print(test_sink, stderr);
    nnc_graph_destroy(g);
    nnc_free(text);
}

/* Every "$ref" names a definition. */
static void check_refs(const cJSON *item, const cJSON *defs)
{
    if (item->string && !strcmp(item->string, "$ref") && cJSON_IsString(item)) {
        CHECK(!strncmp(item->valuestring, "#/definitions/", 14));
        if (!cJSON_GetObjectItem(defs, item->valuestring + 14))
            test_fail(__FILE__, __LINE__, "%s is not defined", item->valuestring);
    }
    for (const cJSON *c = item->child; c; c = c->next)
        check_refs(c, defs);
}

TEST(schema_file)
{
    static const char file[] = "docs/schema/model.schema.json";
    nnc_text t = {0};
    char *text = NULL;
    size_t n;
    nnc_json j;
    nnc_model_schema(&t);
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(file, nnc_text_str(&t), t.n, false, test_sink));
    CHECK_OK(nnc_file_read(file, 0, &text, &n, test_sink));
    CHECK_STR(text, nnc_text_str(&t));
    nnc_free(text);
    CHECK_OK(nnc_json_parse(&j, "schema", nnc_text_str(&t), t.n, test_sink));
    const cJSON *defs = cJSON_GetObjectItem(j.root, "definitions"),
                *layer = cJSON_GetObjectItem(defs, "layer_object");
    const cJSON *all = cJSON_GetObjectItem(layer, "allOf");
    CHECK_INT(cJSON_GetArraySize(all), fe_layer_count() + 1); /* a branch per layer type */
    check_refs(j.root, defs);
    nnc_json_deinit(&j);
    nnc_text_deinit(&t);
}
