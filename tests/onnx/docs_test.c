/* tests/onnx/docs_test.c -- the tables of operators in docs/onnx.md are those of ops.def. */
#include "test.h"
#include "onnx/internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *domain, *name;
    int from, to;
    bool imported;
    const char *attrs, *limits;
} row;

static const row rows[] = {
#define ONNX(name, from, to, n_min, n_max, consts, build, op, attrs, maps, limits) \
    {"", #name, from, to, true, attrs, limits},
#define NO_ONNX(name, needs) {"", #name, 1, ANY, false, "", needs},
#define MS(name, n_min, n_max, consts, build, op, attrs, maps, limits) \
    {OX_MICROSOFT, #name, 1, ANY, true, attrs, limits},
#include "onnx/ops.def"
};

/* Whether the same operator has row b after row a, with the same limits. */
static bool follows(const row *a, const row *b)
{
    return a->imported && b->imported && a->to != ANY && a->to + 1 == b->from &&
           !strcmp(a->domain, b->domain) && !strcmp(a->name, b->name) &&
           !strcmp(a->limits, b->limits);
}

/* Joins the ranges of opsets that follow each other, into the first of them. Returns the number of rows. */
static size_t join_ranges(row *r)
{
    size_t n = 0;
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        size_t k = 0;
        while (k < n && !follows(&r[k], &rows[i]))
            k++;
        if (k < n)
            r[k].to = rows[i].to;
        else
            r[n++] = rows[i];
    }
    return n;
}

/* The words of a list that are not marks. */
static void put_words(nnc_text *t, const char *list)
{
    for (const char *p = list, *sep = ""; *p;) {
        size_t len = strcspn(p, " ");
        if (*p != '?') {
            nnc_printf(t, "%s%.*s", sep, (int)len, p);
            sep = " ";
        }
        p += len + strspn(p + len, " ");
    }
}

/* The document lists attributes of com.microsoft only: of ONNX's own operators all are read. */
static bool shows_attrs(const char *domain)
{
    return *domain != 0;
}

/* Whether two operators of a domain have the same opsets, attributes and limits, and so share a row of the document. */
static bool alike(const row *a, const row *b)
{
    NNC_LOCAL(nnc_text) mine = {0};
    NNC_LOCAL(nnc_text) theirs = {0};
    put_words(&mine, a->attrs);
    put_words(&theirs, b->attrs);
    return a->imported && b->imported && !strcmp(a->domain, b->domain) && a->from == b->from &&
           a->to == b->to && !strcmp(a->limits, b->limits) &&
           (!shows_attrs(a->domain) || !strcmp(nnc_text_str(&mine), nnc_text_str(&theirs)));
}

/* The second cell: attributes, or opsets. */
static void put_second(nnc_text *t, const row *r)
{
    if (shows_attrs(r->domain))
        put_words(t, r->attrs);
    else if (r->to == ANY)
        nnc_printf(t, "%d-", r->from);
    else if (r->to == r->from)
        nnc_printf(t, "%d", r->from);
    else
        nnc_printf(t, "%d-%d", r->from, r->to);
}

/* A row for all operators of a domain that are alike, at the first of them. */
static void put_rows(nnc_text *t, const char *domain)
{
    row all[NNC_COUNT(rows)];
    const size_t n = join_ranges(all);
    nnc_printf(t, "| operators | %s | not supported |\n|---|---|---|\n",
        shows_attrs(domain) ? "attributes" : "opsets");
    for (size_t i = 0; i < n; i++) {
        const row *r = &all[i];
        size_t first = 0;
        while (first < i && !alike(&all[first], r))
            first++;
        if (!r->imported || strcmp(r->domain, domain) != 0 || first < i)
            continue;
        for (size_t k = i; k < n; k++)
            if (alike(r, &all[k]))
                nnc_printf(t, "%s%s", k == i ? "| " : ", ", all[k].name);
        nnc_puts(t, " | ");
        put_second(t, r);
        nnc_printf(t, " | %s |\n", r->limits);
    }
}

/* A row for all operators that need the same. */
static void put_unsupported(nnc_text *t)
{
    nnc_puts(t, "\n## Unsupported operators\n\n| needs | operators |\n|---|---|\n");
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        size_t first = 0;
        while (
            first < i && (rows[first].imported || strcmp(rows[first].limits, rows[i].limits) != 0))
            first++;
        if (rows[i].imported || first < i)
            continue;
        nnc_printf(t, "| %s | %s", rows[i].limits, rows[i].name);
        for (size_t k = i + 1; k < NNC_COUNT(rows); k++)
            if (!rows[k].imported && !strcmp(rows[k].limits, rows[i].limits))
                nnc_printf(t, ", %s", rows[k].name);
        nnc_puts(t, " |\n");
    }
}

static void put_list(nnc_text *t)
{
    put_rows(t, "");
    nnc_puts(t, "\n## Operators of ONNX Runtime (com.microsoft)\n\n");
    put_rows(t, OX_MICROSOFT);
    put_unsupported(t);
}

#define FILE_NAME "docs/onnx.md"
#define MARK "<!-- made from src/onnx/ops.def: NNC_BLESS=1 test_onnx docs -->\n"

/* The tables after the mark are made from ops.def. With NNC_BLESS=1 in the environment they are written. */
TEST(docs_onnx_current)
{
    char *have = NULL;
    size_t n = 0;
    NNC_LOCAL(nnc_text) t = {0};
    CHECK_OK(nnc_file_read(FILE_NAME, 0, &have, &n, test_sink));
    char *mark = have ? strstr(have, MARK) : NULL;
    CHECK(mark != NULL);
    if (mark) {
        nnc_putn(&t, have, (size_t)(mark - have) + strlen(MARK));
        put_list(&t);
        if (getenv("NNC_BLESS"))
            CHECK_OK(nnc_file_write(FILE_NAME, nnc_text_str(&t), t.n, false, test_sink));
        else if (t.n != n || memcmp(nnc_text_str(&t), have, n))
            test_fail(__FILE__, __LINE__, "not current: run NNC_BLESS=1 test_onnx docs");
    }
    nnc_free(have);
}
