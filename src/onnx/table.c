/* onnx/table.c -- the operators by name and opset, and their list as docs/onnx.md. */
#include "onnx/internal.h"
#include <string.h>
#include <strings.h>

enum { NEWEST = ANY };

static const ox_row rows[] = {
#define ONNX(name, from, to, n_min, n_max, consts, build, op, attrs, maps, limits) \
    {"", #name, from, to, n_min, n_max, consts, build, OP_##op, attrs, maps, limits},
#define NO_ONNX(name, needs) {"", #name, 1, NEWEST, 0, -1, "", NULL, OP_identity, "", "", needs},
#define MS(name, n_min, n_max, consts, build, op, attrs, maps, limits) \
    {OX_MICROSOFT, #name, 1, NEWEST, n_min, n_max, consts, build, OP_##op, attrs, maps, limits},
#include "onnx/ops.def"
};

const ox_row *ox_find_row(const char *domain, const char *op, int64_t opset, bool *known)
{
    *known = false;
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        if (strcmp(rows[i].name, op) != 0 || strcmp(rows[i].domain, domain) != 0)
            continue;
        *known = true;
        if (opset >= rows[i].from && opset <= rows[i].to)
            return &rows[i];
    }
    return NULL;
}

/* Is the word one of those in the list "axis=-1 eps"? */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, " "), name = strcspn(p, "= ");
        if (name == n && !memcmp(p, word, n))
            return true;
        p += len + strspn(p + len, " ");
    }
    return false;
}

bool ox_row_takes(const ox_row *row, const char *attr)
{
    return listed(row->attrs, attr);
}

int ox_attr_until(const char *op, int64_t opset, const char *attr)
{
    int last = 0;
    for (size_t i = 0; i < NNC_COUNT(rows); i++)
        if (!strcmp(rows[i].name, op) && rows[i].to < opset && ox_row_takes(&rows[i], attr))
            last = rows[i].to;
    return last;
}

bool ox_row_const(const ox_row *row, size_t input)
{
    char number[24];
    snprintf(number, sizeof number, "%zu", input);
    return listed(row->consts, number);
}

static void put_opsets(nnc_text *t, const ox_row *r)
{
    if (r->to == NEWEST)
        nnc_printf(t, "%d-", r->from);
    else
        nnc_printf(t, "%d-%d", r->from, r->to);
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

/* Whether two operators of a domain have the same opsets, constant inputs, attributes and limits, and so share a row of the document. */
static bool alike(const ox_row *a, const ox_row *b)
{
    NNC_LOCAL(nnc_text) mine = {0};
    NNC_LOCAL(nnc_text) theirs = {0};
    put_words(&mine, a->attrs);
    put_words(&theirs, b->attrs);
    return a->build && b->build && !strcmp(a->domain, b->domain) && a->from == b->from &&
           a->to == b->to && !strcmp(a->consts, b->consts) && !strcmp(a->limits, b->limits) &&
           !strcmp(nnc_text_str(&mine), nnc_text_str(&theirs));
}

/* "Abs", "Reciprocal (recip)": the operator, and its ops if they are not the op of the same name. */
static void put_operator(nnc_text *t, const ox_row *r)
{
    const char *ops = *r->maps ? r->maps : nnc_ops[r->op].name;
    nnc_puts(t, r->name);
    if (strcasecmp(ops, r->name) != 0)
        nnc_printf(t, " (%s)", ops);
}

/* A row for all operators of a domain that are alike, at the first of them. */
static void put_rows(nnc_text *t, const char *domain)
{
    nnc_puts(t, "| operators (ops) | opsets | constant inputs | attributes | not supported |\n"
                "|---|---|---|---|---|\n");
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        const ox_row *r = &rows[i];
        size_t first = 0;
        while (first < i && !alike(&rows[first], r))
            first++;
        if (!r->build || strcmp(r->domain, domain) != 0 || first < i)
            continue;
        for (size_t k = i; k < NNC_COUNT(rows); k++)
            if (alike(r, &rows[k])) {
                nnc_puts(t, k == i ? "| " : ", ");
                put_operator(t, &rows[k]);
            }
        nnc_puts(t, " | ");
        put_opsets(t, r);
        nnc_printf(t, " | %s | ", r->consts);
        put_words(t, r->attrs);
        nnc_printf(t, " | %s |\n", r->limits);
    }
}

/* A row for all operators that need the same. */
static void put_unsupported(nnc_text *t)
{
    nnc_puts(t, "\n## Unsupported operators\n\n| needs | operators |\n|---|---|\n");
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        size_t first = 0;
        while (first < i && (rows[first].build || strcmp(rows[first].limits, rows[i].limits) != 0))
            first++;
        if (rows[i].build || first < i)
            continue;
        nnc_printf(t, "| %s | %s", rows[i].limits, rows[i].name);
        for (size_t k = i + 1; k < NNC_COUNT(rows); k++)
            if (!rows[k].build && !strcmp(rows[k].limits, rows[i].limits))
                nnc_printf(t, ", %s", rows[k].name);
        nnc_puts(t, " |\n");
    }
}

void nnc_onnx_list(nnc_text *t)
{
    put_rows(t, "");
    nnc_puts(t, "\n## Operators of ONNX Runtime (com.microsoft)\n\n");
    put_rows(t, OX_MICROSOFT);
    put_unsupported(t);
}
