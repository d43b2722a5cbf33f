/* frontend/timm.c -- files of weights that have timm's names, for models that have torchvision's. A tensor of the file is found by its own
 * name first, so that a model with timm's names reads it, too. */
#include "frontend/internal.h"
#include <stdlib.h>
#include <string.h>

static const struct row {
    const char *family, *from,
        *to; /* of a family: its first row, `from` only such files have, `to` what is said */
} rows[] = {
#define FAMILY(name, key, note) {name, key, note},
#define ROW(from, to) {NULL, from, to},
#include "frontend/timm.def"
};

enum { NUMBERS = 4 };

/* Does the name match? number[]: what # stands for; *rest: what * does. */
static bool matches(const char *pattern, const char *name, long *number, const char **rest)
{
    int n = 0;
    for (; *pattern && *pattern != '*'; pattern++) {
        char *end = NULL;
        if (*pattern != '#') {
            if (*pattern != *name++)
                return false;
            continue;
        }
        if (*name < '0' || *name > '9' || n == NUMBERS)
            return false;
        number[n++] = strtol(name, &end, 10);
        name = end;
    }
    *rest = name;
    return *pattern || !*name;
}

static const char *replaced(const char *to, const long *number, const char *rest, nnc_arena *a)
{
    NNC_LOCAL(nnc_text) t = {0};
    for (int n = 0; *to; to++)
        if (*to == '#' || *to == '+')
            nnc_printf(&t, "%ld", number[n++] + (*to == '+'));
        else if (*to == '*')
            nnc_puts(&t, rest);
        else
            nnc_putc(&t, *to);
    return t.oom ? NULL : nnc_arena_strdup(a, nnc_text_str(&t));
}

/* *as: the name in torchvision by the rows after the family's first; NULL: it has none. */
static bool rename_one(size_t family, const char *name, nnc_arena *a, const char **as)
{
    *as = NULL;
    for (size_t i = family + 1; i < NNC_COUNT(rows) && !rows[i].family; i++) {
        long number[NUMBERS] = {0};
        const char *rest;
        if (!matches(rows[i].from, name, number, &rest))
            continue;
        *as = replaced(rows[i].to, number, rest, a);
        return *as != NULL;
    }
    return true;
}

nnc_status fe_timm_open(fe_timm *t, const nnc_tensors *st, nnc_arena *a, nnc_sink *sink)
{
    size_t family = 0;
    *t = (fe_timm){.st = st};
    while (family < NNC_COUNT(rows) &&
           !(rows[family].family && nnc_tensors_find(st, rows[family].from)))
        family++;
    if (family == NNC_COUNT(rows))
        return NNC_OK;
    t->as = ARENA_NEW(a, const char *, nnc_tensors_count(st) + 1);
    NNC_NEED(t->as, sink);
    for (int i = 0; i < nnc_tensors_count(st); i++)
        NNC_NEED(rename_one(family, nnc_tensors_at(st, i)->name, a, &t->as[i]), sink);
    t->family = rows[family].family;
    t->note = rows[family].to;
    return NNC_OK;
}

const nnc_tensor_entry *fe_timm_find(fe_timm *t, const char *name)
{
    for (int i = 0; t->as && i < nnc_tensors_count(t->st); i++)
        if (t->as[i] && !strcmp(t->as[i], name)) {
            t->used++;
            return nnc_tensors_at(t->st, i);
        }
    return NULL;
}

void fe_timm_say(const fe_timm *t, const char *file, nnc_sink *sink)
{
    if (t->used)
        nnc_note(sink, (nnc_loc){.file = file},
            "timm's names (%s) were recognised: %d tensors have torchvision's names here; "
            "%s",
            t->family, t->used, t->note);
}
