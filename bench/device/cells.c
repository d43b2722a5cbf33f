/* bench/device/cells.c -- the table of cells: lines "GROUP: MODEL name=VALUES ... @flag ...", VALUES a list of words and ranges of
 * powers (2^0..2^32), multiplied out with the last name running fastest. */
#include "device.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 64, MAX_WORDS = 24, MAX_CELLS = 2048 };

typedef struct values {
    const char *name;
    const char *value[MAX_VALUES];
    int n;
} values;

typedef struct line {
    const char *file;
    int number;
    const char *group, *model;
    values v[MAX_SETTINGS];
    int n;
    nnc_text flags;
} line;

static nnc_status wrong(const line *l, nnc_sink *sink, const char *what, const char *word)
{
    return nnc_fail(
        sink, NNC_E_USAGE, (nnc_loc){.file = l->file, .line = l->number}, "%s: %s", what, word);
}

/* One entry of a list: a word, a power 2^k, or powers 2^a..2^b (2^a..2^b:3 each third). */
static bool add_values(cells *c, values *v, const char *word)
{
    int from, to, step = 1, used = 0;
    bool range = sscanf(word, "2^%d..2^%d%n", &from, &to, &used) == 2 && used;
    if (range && word[used] == ':')
        step = atoi(word + used + 1);
    if (!range && sscanf(word, "2^%d%n", &from, &used) == 1 && !word[used]) {
        range = true;
        to = from;
    }
    if (!range) {
        v->value[v->n] = nnc_arena_strdup(&c->arena, word);
        return v->value[v->n] && ++v->n < MAX_VALUES;
    }
    if (from < 0 || to > 62 || step < 1 || to < from)
        return false;
    for (int k = from; k <= to; k += step) {
        char number[32];
        snprintf(number, sizeof number, "%lld", 1LL << k);
        v->value[v->n] = nnc_arena_strdup(&c->arena, number);
        if (!v->value[v->n] || ++v->n == MAX_VALUES)
            return false;
    }
    return true;
}

static nnc_status read_setting(cells *c, line *l, char *word, nnc_sink *sink)
{
    char *equals = strchr(word, '='), *save = NULL;
    if (!equals || l->n == MAX_SETTINGS)
        return wrong(l, sink, "expected name=values or @flag (at most 8 names)", word);
    values *v = &l->v[l->n++];
    *v = (values){0};
    *equals = 0;
    v->name = nnc_arena_strdup(&c->arena, word);
    for (char *p = strtok_r(equals + 1, ",", &save); p; p = strtok_r(NULL, ",", &save))
        if (!add_values(c, v, p))
            return wrong(l, sink, "expected words, 2^a or 2^a..2^b:step, at most 63 of them", p);
    return v->n && v->name ? NNC_OK : wrong(l, sink, "no values", word);
}

/* The combination number `i` of the line's values. */
static nnc_status add_cell(cells *c, const line *l, int i, nnc_sink *sink)
{
    nnc_text id = {0};
    cell *k = &c->cell[c->n];
    *k = (cell){.group = l->group, .model = l->model};
    k->flags = nnc_arena_strdup(&c->arena, nnc_text_str(&l->flags));
    nnc_puts(&id, l->group);
    const char *value[MAX_SETTINGS];
    for (int s = l->n; s-- > 0; i /= l->v[s].n)
        value[s] = l->v[s].value[i % l->v[s].n];
    for (int s = 0; s < l->n; s++) {
        nnc_printf(&id, ",%s=%s", l->v[s].name, value[s]);
        if (!strcmp(l->v[s].name, "math"))
            k->math = value[s];
        else if (!strcmp(l->v[s].name, "precision"))
            k->precision = value[s];
        else if (!strcmp(l->v[s].name, "streams"))
            k->streams = atoi(value[s]);
        else if (!strcmp(l->v[s].name, "level"))
            k->level = value[s];
        else if (!strcmp(l->v[s].name, "clusters"))
            k->no_clusters = !strcmp(value[s], "0");
        else if (!strcmp(l->v[s].name, "training"))
            k->training = value[s];
        else if (!strcmp(l->v[s].name, "loss"))
            k->loss = value[s];
        else
            k->set[k->n_set++] = (nnc_arg){l->v[s].name, value[s]};
    }
    k->id = nnc_arena_strdup(&c->arena, nnc_text_str(&id));
    bool ok = k->id && k->flags && !id.oom;
    nnc_text_deinit(&id);
    for (int j = 0; ok && j < c->n; j++)
        if (!strcmp(c->cell[j].id, k->id))
            return wrong(l, sink, "is there twice", k->id);
    c->n++;
    return ok ? NNC_OK : nnc_nomem(sink);
}

static nnc_status read_line(cells *c, line *l, char *text, nnc_sink *sink)
{
    char *save = NULL, *word = strtok_r(text, " \t", &save);
    if (!word || word[0] == '#')
        return NNC_OK;
    size_t n = strlen(word);
    if (word[n - 1] != ':')
        return wrong(l, sink, "expected GROUP:", word);
    word[n - 1] = 0;
    l->group = nnc_arena_strdup(&c->arena, word);
    if (!(word = strtok_r(NULL, " \t", &save)))
        return wrong(l, sink, "no model in group", l->group);
    l->model = nnc_arena_strdup(&c->arena, word);
    nnc_putc(&l->flags, ' ');
    while ((word = strtok_r(NULL, " \t", &save)) != NULL)
        if (word[0] == '@')
            nnc_printf(&l->flags, "%s ", word + 1);
        else
            NNC_TRY(read_setting(c, l, word, sink));
    int count = 1;
    for (int s = 0; s < l->n; s++)
        count *= l->v[s].n;
    if (!l->group || !l->model || count > MAX_CELLS - c->n)
        return wrong(l, sink, "too many cells", l->group ? l->group : "");
    for (int i = 0; i < count; i++)
        NNC_TRY(add_cell(c, l, i, sink));
    return NNC_OK;
}

nnc_status cells_read(const char *file, cells *out, nnc_sink *sink)
{
    char *text, *save = NULL;
    size_t n;
    *out = (cells){0};
    nnc_arena_init(&out->arena, 0);
    NNC_TRY(nnc_file_read(file, 1 << 20, &text, &n, sink));
    out->cell = nnc_calloc(MAX_CELLS, sizeof *out->cell);
    nnc_status st = out->cell ? NNC_OK : nnc_nomem(sink);
    int number = 0;
    for (char *p = text; !st && p; p = save) {
        save = strchr(p, '\n');
        if (save)
            *save++ = 0;
        line l = {.file = file, .number = ++number};
        st = read_line(out, &l, p, sink);
        nnc_text_deinit(&l.flags);
    }
    nnc_free(text);
    return st;
}

void cells_deinit(cells *c)
{
    nnc_free(c->cell);
    nnc_arena_deinit(&c->arena);
    *c = (cells){0};
}

bool cell_has(const cell *c, const char *flag)
{
    char word[40];
    snprintf(word, sizeof word, " %s ", flag);
    return strstr(c->flags, word) != NULL;
}

bool cell_has_all(const cell *c, const char *flags)
{
    char flag[32];
    for (const char *f = flags; f && *f; f += strcspn(f, ",") + (strchr(f, ',') != NULL)) {
        snprintf(flag, sizeof flag, "%.*s", (int)strcspn(f, ","), f);
        if (!cell_has(c, flag))
            return false;
    }
    return true;
}

nnc_status cell_options(const cell *c, nnc_compile_options *o, nnc_sink *sink)
{
    *o = nnc_compile_defaults;
    o->math = !c->math                    ? MATH_ulp2
              : !strcmp(c->math, "fast")  ? MATH_fast
              : !strcmp(c->math, "exact") ? MATH_exact
                                          : MATH_ulp2;
    if (c->streams)
        o->streams = c->streams;
    if (c->level && (c->level[0] < '0' || c->level[0] > '3' || c->level[1]))
        return nnc_fail0(sink, NNC_E_USAGE, "level is 0 to 3, not %s", c->level);
    if (c->level)
        o->level = c->level[0] - '0';
    if (!c->precision || nnc_precision_parse(c->precision, &o->precision))
        return NNC_OK;
    return nnc_fail0(
        sink, NNC_E_USAGE, "precision is f32, tf32, f16 or bf16, not %s", c->precision);
}

static void put_member(nnc_text *out, const char *name, const char *value)
{
    nnc_put_json_string(out, name);
    nnc_puts(out, ": ");
    if (value)
        nnc_put_json_string(out, value);
    else
        nnc_puts(out, "null");
}

void cells_json(const cells *c, nnc_text *out)
{
    nnc_puts(out, "[");
    for (int i = 0; i < c->n; i++) {
        const cell *k = &c->cell[i];
        nnc_puts(out, i ? ",\n {" : "\n {");
        put_member(out, "id", k->id);
        nnc_puts(out, ", ");
        put_member(out, "group", k->group);
        nnc_puts(out, ", ");
        put_member(out, "model", k->model);
        nnc_puts(out, ", ");
        put_member(out, "math", k->math);
        nnc_puts(out, ", ");
        put_member(out, "precision", k->precision);
        nnc_puts(out, ", ");
        put_member(out, "flags", k->flags);
        nnc_puts(out, ", \"set\": {");
        for (int s = 0; s < k->n_set; s++) {
            nnc_puts(out, s ? ", " : "");
            put_member(out, k->set[s].name, k->set[s].value);
        }
        nnc_puts(out, "}}");
    }
    nnc_puts(out, "\n]\n");
}
