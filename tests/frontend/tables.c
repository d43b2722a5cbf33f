/* tests/frontend/tables.c -- expressions, and the layer table against the schema. */
#include "frontend/internal.h"
#include "schema.h"
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
    value("n == 7 ? 3 : order + 1", 3);
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

/* Every key of every layer has a row in keys.def, and those of ops are their attributes, without those that passes set. */
TEST(layer_table)
{
    int n = fe_layer_count();
    CHECK(n > 90);
    for (int i = 0; i < n; i++) {
        fe_row r = fe_layer_at(i), again;
        fe_use u;
        int found = 0, words = 0;
        CHECK(fe_layer_find(r.name, &again) && !strcmp(again.name, r.name));
        for (const char *p = r.keys; *p; p += strcspn(p, " "), p += *p == ' ')
            words++;
        for (const char *p = r.keys; fe_use_next(&p, &u); found++)
            if (fe_is_common(fe_keys[u.key].name))
                test_fail(__FILE__, __LINE__, "%s: key %s is common", r.name, fe_keys[u.key].name);
        if (found != words)
            test_fail(__FILE__, __LINE__, "%s: a key of \"%s\" has no row", r.name, r.keys);
        const char *attrs = r.own ? "" : nnc_ops[r.op].attrs;
        for (const char *p = r.own || !strcmp(r.keys, "value?") ? "" : r.keys; fe_use_next(&p, &u);)
            if (!strstr(attrs, fe_keys[u.key].name))
                test_fail(
                    __FILE__, __LINE__, "%s: key %s is no attribute", r.name, fe_keys[u.key].name);
        for (const char *p = attrs; *p; p += strcspn(p, " "), p += *p == ' ') {
            fe_key key;
            size_t len = strcspn(p, " ?");
            if (len == strlen("as_kernel") && !strncmp(p, "as_kernel", len))
                continue;
            if (!fe_key_parse(p, len, &key) || !fe_row_takes(&r, key))
                test_fail(__FILE__, __LINE__, "%s: attribute %.*s is no key", r.name, (int)len, p);
        }
    }
}

/* The tables of docs/model.md are those of the program (NNC_BLESS=1 writes them), and its example loads. */
TEST(document)
{
    static const char file[] = "docs/model.md", begin[] = "<!-- nnc layers -->\n",
                      stop[] = "<!-- end -->\n";
    char *text = NULL;
    size_t n;
    nnc_text want = {0};
    CHECK_OK(nnc_file_read(file, 0, &text, &n, test_sink));
    if (!text)
        return;
    char *from = strstr(text, begin), *to = strstr(text, stop);
    CHECK(from && to && from < to);
    if (from && to) {
        nnc_putn(&want, text, (size_t)(from - text) + strlen(begin));
        layers_markdown(&want);
        nnc_puts(&want, to);
        if (getenv("NNC_BLESS"))
            CHECK_OK(nnc_file_write(file, nnc_text_str(&want), want.n, false, test_sink));
        else
            CHECK_STR(text, nnc_text_str(&want));
    }
    char *start = strstr(text, "```json\n"), *end = start ? strstr(start + 8, "```") : NULL;
    CHECK(end != NULL);
    nnc_graph *g =
        end ? nnc_model_parse(file, start + 8, (size_t)(end - start - 8), NULL, test_sink) : NULL;
    CHECK(g != NULL);
    nnc_sink_print(test_sink, stderr);
    nnc_graph_destroy(g);
    nnc_text_deinit(&want);
    nnc_free(text);
}

/* Every "$ref" names a definition. */
static void check_refs(const nnc_item *item, const nnc_item *defs)
{
    if (item->key && !strcmp(item->key, "$ref") && nnc_is_string(item)) {
        CHECK(!strncmp(item->text, "#/definitions/", 14));
        if (!nnc_json_get(defs, item->text + 14))
            test_fail(__FILE__, __LINE__, "%s is not defined", item->text);
    }
    for (const nnc_item *c = item->child; c; c = c->next)
        check_refs(c, defs);
}

TEST(schema_file)
{
    static const char file[] = "docs/schema/model.schema.json";
    nnc_text t = {0};
    char *text = NULL;
    size_t n;
    nnc_json j;
    model_schema(&t);
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(file, nnc_text_str(&t), t.n, false, test_sink));
    CHECK_OK(nnc_file_read(file, 0, &text, &n, test_sink));
    CHECK_STR(text, nnc_text_str(&t));
    nnc_free(text);
    CHECK_OK(nnc_json_parse(&j, "schema", nnc_text_str(&t), t.n, test_sink));
    const nnc_item *defs = nnc_json_get(j.root, "definitions"),
                   *layer = nnc_json_get(defs, "layer_object");
    const nnc_item *all = nnc_json_get(layer, "allOf");
    CHECK_INT(all->n, fe_layer_count() + 1); /* a branch per layer type */
    check_refs(j.root, defs);
    nnc_json_deinit(&j);
    nnc_text_deinit(&t);
}
