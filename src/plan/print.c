/* plan/print.c -- prints the plan's text form by the tables of rows.c; parse.c reads it back exactly. */
#include "plan/internal.h"
#include "plan/rows.h"
#include <string.h>

static void put_fields(nnc_text *t, const plan_field *of, const char *row);

static void put_string(nnc_text *t, const char *s)
{
    nnc_putc(t, ' ');
    nnc_put_json_string(t, s ? s : "");
}

/* The first line break ends the row itself. */
static void put_lines(nnc_text *t, const char *s)
{
    while (s && *s) {
        const char *end = strchr(s, '\n');
        nnc_puts(t, end ? "\n| " : "\n|-");
        nnc_putn(t, s, end ? (size_t)(end - s) : strlen(s));
        s = end ? end + 1 : s + strlen(s);
    }
}

static int64_t count_of(const plan_field *f, const char *row)
{
    int n;
    memcpy(&n, row + f->count, sizeof n);
    return f->kind == FK_dims ? nnc_min64(*(const uint8_t *)(row + f->count), f->size / 8) : n;
}

static void put_field(nnc_text *t, const plan_field *f, const char *row)
{
    const char *at = row + f->at, *s = NULL;
    int64_t v = f->size <= 8 ? plan_field_get(f, at) : 0, n = f->count ? count_of(f, row) : 0;
    float x;
    memcpy(&x, at, sizeof x);
    if (f->kind == FK_string || f->kind == FK_bytes || f->kind == FK_args || f->kind == FK_lines)
        memcpy(&s, at, sizeof s);
    switch (f->kind) {
    case FK_int: nnc_printf(t, " %s=%lld", f->key, (long long)v); break;
    case FK_some:
        if (v)
            nnc_printf(t, " %s=%lld", f->key, (long long)v);
        break;
    case FK_float:
        nnc_printf(t, " %s=", f->key);
        nnc_put_double(t, x);
        break;
    case FK_string:
        if (!f->key)
            put_string(t, s);
        else if (s) {
            nnc_printf(t, " %s=", f->key);
            nnc_put_json_string(t, s);
        }
        break;
    case FK_word: nnc_printf(t, " %s", f->words[v]); break;
    case FK_flag: nnc_printf(t, v ? " %s" : "", f->key); break;
    case FK_type:
        nnc_printf(t, f->key ? " %s " : " ", f->key);
        nnc_put_type(t, (const nnc_type *)(const void *)at);
        break;
    case FK_dims:
        for (int64_t i = 0; i < n; i++) {
            nnc_printf(t, i ? "," : " %s=", f->key);
            nnc_printf(t, "%lld", ((const long long *)(const void *)at)[i]);
        }
        break;
    case FK_args:
        nnc_puts(t, " (");
        for (int64_t i = 0; i < n; i++)
            nnc_printf(t, i ? " %d" : "%d", ((const int32_t *)(const void *)s)[i]);
        nnc_putc(t, ')');
        break;
    case FK_each:
        for (int64_t i = 0; i < n && i < f->hi; i++) {
            nnc_printf(t, " %s", f->key);
            put_fields(t, f->each, at + i * f->size);
        }
        break;
    case FK_bytes:
        memcpy(&v, row + f->count, sizeof v);
        nnc_putc(t, ' ');
        nnc_put_hex(t, s, v);
        break;
    case FK_lines: put_lines(t, s); break;
    }
}

static void put_fields(nnc_text *t, const plan_field *fields, const char *row)
{
    for (const plan_field *f = fields; f->size; f++)
        if (plan_field_stands(fields, f, row))
            put_field(t, f, row);
}

static void put_ports(
    nnc_text *t, const char *word, int n, const int32_t *tensor, const char *const *name)
{
    for (int i = 0; i < n; i++) {
        nnc_printf(t, "%s %d", word, tensor[i]);
        put_string(t, name[i]);
        nnc_putc(t, '\n');
    }
}

void nnc_plan_print(nnc_text *t, const nnc_plan *p)
{
    nnc_puts(t, "plan");
    put_fields(t, plan_head, (const char *)p);
    nnc_putc(t, '\n');
    for (const plan_row *r = plan_rows; r->size; r++) {
        const char *rows;
        int n;
        memcpy(&n, (const char *)p + r->n_at, sizeof n);
        memcpy(&rows, (const char *)p + r->at, sizeof rows);
        for (int i = 0; i < n; i++) {
            nnc_printf(t, "%s %d", r->word, i);
            put_fields(t, r->field, rows + (size_t)i * r->size);
            nnc_putc(t, '\n');
        }
    }
    put_ports(t, "input", p->n_input, p->input, p->input_name);
    put_ports(t, "output", p->n_output, p->output, p->output_name);
    nnc_puts(t, "end\n");
}
