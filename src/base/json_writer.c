/* base/json_writer.c -- writes JSON, and rows as CSV. */
#include "base/json_writer.h"
#include <math.h>
#include <string.h>

void nnc_json_item(nnc_json_writer *w, const char *key)
{
    if (w->csv)
        return;
    if (w->line)
        nnc_printf(w->out, "%s\n%*s", w->more ? "," : "", w->line - 1, "");
    else if (w->more)
        nnc_puts(w->out, ", ");
    w->more = true;
    w->line = 0;
    if (!key)
        return;
    nnc_put_json_string(w->out, key);
    nnc_puts(w->out, ": ");
}

void nnc_json_open(nnc_json_writer *w, const char *key, char bracket)
{
    if (w->csv)
        return;
    nnc_json_item(w, key);
    nnc_putc(w->out, bracket);
    w->more = false;
}

void nnc_json_close(nnc_json_writer *w, char bracket)
{
    if (w->csv)
        return;
    nnc_putc(w->out, bracket);
    w->more = true;
    w->line = 0;
}

void nnc_json_end(nnc_json_writer *w, char bracket)
{
    nnc_json_close(w, bracket);
    if (!w->csv)
        nnc_putc(w->out, '\n');
}

/* Quoted where it holds a comma, a quote or a line break. */
static void put_csv(nnc_text *t, const char *s)
{
    const bool quoted = strpbrk(s, ",\"\n") != NULL;
    nnc_puts(t, quoted ? "\"" : "");
    for (; *s; s++) {
        if (*s == '"')
            nnc_putc(t, '"');
        nnc_putc(t, *s);
    }
    nnc_puts(t, quoted ? "\"" : "");
}

static void put_string(nnc_json_writer *w, const char *s)
{
    if (w->csv)
        put_csv(w->out, s ? s : "");
    else if (s)
        nnc_put_json_string(w->out, s);
    else
        nnc_puts(w->out, "null");
}

static void put_words(nnc_json_writer *w, const char *const *at, int n)
{
    NNC_LOCAL(nnc_text) joined = {.into = w->out};
    nnc_putc(&joined, '[');
    for (int i = 0; i < n; i++) {
        nnc_puts(&joined, i ? w->csv ? "+" : ", " : "");
        if (w->csv)
            nnc_puts(&joined, at[i]);
        else
            nnc_put_json_string(&joined, at[i]);
    }
    if (w->csv)
        put_csv(w->out, nnc_text_str(&joined) + !joined.oom);
    else
        nnc_printf(w->out, "%s]", nnc_text_str(&joined));
}

static void put_member(nnc_json_writer *w, const nnc_json_member *m)
{
    switch (m->kind) {
    case NNC_J_STRING: put_string(w, m->s); break;
    case NNC_J_INT: nnc_printf(w->out, "%lld", (long long)m->i); break;
    case NNC_J_BOOL: nnc_puts(w->out, m->b ? "true" : "false"); break;
    case NNC_J_REAL:
        if (fabs(m->r) < 1e15 && m->r == (double)(int64_t)m->r)
            nnc_printf(w->out, "%lld", (long long)m->r); /* 50, not 5e+01 */
        else if (isfinite(m->r) || w->csv)
            nnc_put_double(w->out, m->r);
        else
            nnc_puts(w->out, "null");
        break;
    case NNC_J_WORDS: put_words(w, m->words.at, m->words.n); break;
    }
}

void nnc_json_members(nnc_json_writer *w, const nnc_json_member *m, size_t n)
{
    for (size_t i = 0; i < n && !w->csv; i++) {
        nnc_json_item(w, m[i].key);
        put_member(w, &m[i]);
    }
}

void nnc_json_row(nnc_json_writer *w, int indent, const nnc_json_member *m, size_t n)
{
    for (int keys = !w->more; keys >= w->empty && w->csv; keys--) {
        for (size_t i = 0; i < n; i++) {
            nnc_puts(w->out, i ? "," : "");
            if (keys)
                nnc_puts(w->out, m[i].key);
            else
                put_member(w, &m[i]);
        }
        nnc_putc(w->out, '\n');
        w->more = true;
    }
    if (w->csv)
        return;
    if (w->more)
        nnc_json_line(w, indent);
    nnc_json_open(w, NULL, '{');
    nnc_json_members(w, m, n);
    nnc_json_close(w, '}');
}

double nnc_decimals(double v, int digits)
{
    double unit = pow(10, digits);
    return isfinite(v * unit) ? round(v * unit) / unit : v;
}
