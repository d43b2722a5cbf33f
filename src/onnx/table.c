/* onnx/table.c -- the operators by name and opset, and their list as docs/onnx.md. */
#include "onnx/internal.h"
#include <string.h>

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

static void put_rows(nnc_text *t, const char *domain)
{
    nnc_puts(t,
        "| operator | opsets | decomposes into | constant inputs | attributes | not supported |\n"
        "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        const ox_row *r = &rows[i];
        if (!r->build || strcmp(r->domain, domain) != 0)
            continue;
        nnc_printf(t, "| %s | ", r->name);
        put_opsets(t, r);
        nnc_printf(t, " | %s | %s | ", *r->maps ? r->maps : nnc_ops[r->op].name, r->consts);
        put_words(t, r->attrs);
        nnc_printf(t, " | %s |\n", r->limits);
    }
}

void nnc_onnx_list(nnc_text *t)
{
    put_rows(t, "");
    nnc_puts(t, "\n## Operators of ONNX Runtime (com.microsoft)\n\n");
    put_rows(t, OX_MICROSOFT);
    nnc_puts(t, "\n## Unsupported operators\n\n| operator | needs |\n|---|---|\n");
    for (size_t i = 0; i < NNC_COUNT(rows); i++)
        if (!rows[i].build)
            nnc_printf(t, "| %s | %s |\n", rows[i].name, rows[i].limits);
}
