/* onnx/table.c -- the operators by name and opset. */
#include "onnx/internal.h"
#include <string.h>

static const ox_row rows[] = {
#define ONNX(name, from, to, n_min, n_max, consts, build, op, attrs, maps, limits) \
    {"", #name, from, to, n_min, n_max, consts, build, OP_##op, attrs, maps, limits},
#define NO_ONNX(name, needs) {"", #name, 1, ANY, 0, -1, "", NULL, OP_identity, "", "", needs},
#define MS(name, n_min, n_max, consts, build, op, attrs, maps, limits) \
    {OX_MICROSOFT, #name, 1, ANY, n_min, n_max, consts, build, OP_##op, attrs, maps, limits},
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
