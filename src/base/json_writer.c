/* base/json_writer.c -- writes JSON. */
#include "base/json_writer.h"
#include <math.h>

void nnc_json_item(nnc_json_writer *w, const char *key)
{
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
    nnc_json_item(w, key);
    nnc_putc(w->out, bracket);
    w->more = false;
}

void nnc_json_close(nnc_json_writer *w, char bracket)
{
    nnc_putc(w->out, bracket);
    w->more = true;
    w->line = 0;
}

void nnc_json_string(nnc_json_writer *w, const char *key, const char *value)
{
    nnc_json_item(w, key);
    if (value)
        nnc_put_json_string(w->out, value);
    else
        nnc_puts(w->out, "null");
}

void nnc_json_int(nnc_json_writer *w, const char *key, int64_t value)
{
    nnc_json_item(w, key);
    nnc_printf(w->out, "%lld", (long long)value);
}

void nnc_json_real(nnc_json_writer *w, const char *key, double value)
{
    nnc_json_item(w, key);
    if (isfinite(value))
        nnc_put_double(w->out, value);
    else
        nnc_puts(w->out, "null");
}

void nnc_json_members(nnc_json_writer *w, const nnc_json_member *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        switch (m[i].kind) {
        case NNC_J_STRING: nnc_json_string(w, m[i].key, m[i].s); break;
        case NNC_J_INT: nnc_json_int(w, m[i].key, m[i].i); break;
        case NNC_J_BOOL:
            nnc_json_item(w, m[i].key);
            nnc_puts(w->out, m[i].b ? "true" : "false");
            break;
        case NNC_J_REAL: nnc_json_real(w, m[i].key, m[i].r); break;
        }
}

double nnc_decimals(double v, int digits)
{
    double unit = pow(10, digits);
    return isfinite(v * unit) ? round(v * unit) / unit : v;
}
