/* base/text.c -- growable text. */
#include "base/base.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void nnc_text_deinit(nnc_text *t)
{
    nnc_free(t->s);
    *t = (nnc_text){0};
}

nnc_text *nnc_text_create(void)
{
    return nnc_calloc(1, sizeof(nnc_text));
}

void nnc_text_destroy(nnc_text *t)
{
    if (t)
        nnc_text_deinit(t);
    nnc_free(t);
}

size_t nnc_text_size(const nnc_text *t)
{
    return t->n;
}

void nnc_text_clear(nnc_text *t)
{
    t->n = 0;
    t->oom = false;
    if (t->s)
        t->s[0] = 0;
}

const char *nnc_text_str(const nnc_text *t)
{
    return t->s ? t->s : "";
}

static bool reserve(nnc_text *t, size_t more)
{
    size_t need = t->n + more + 1;
    if (need <= t->cap)
        return true;
    size_t cap = t->cap ? t->cap * 2 : 128;
    while (cap < need)
        cap *= 2;
    char *s = nnc_realloc(t->s, cap);
    if (!s) {
        t->oom = true;
        return false;
    }
    t->s = s;
    t->cap = cap;
    return true;
}

void nnc_putn(nnc_text *t, const char *s, size_t n)
{
    if (!reserve(t, n))
        return;
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

void nnc_puts(nnc_text *t, const char *s)
{
    nnc_putn(t, s, strlen(s));
}

void nnc_putc(nnc_text *t, char c)
{
    nnc_putn(t, &c, 1);
}

void nnc_vprintf(nnc_text *t, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n >= 0 && reserve(t, (size_t)n)) {
        vsnprintf(t->s + t->n, (size_t)n + 1, fmt, again);
        t->n += (size_t)n;
    }
    va_end(again);
}

void nnc_printf(nnc_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    nnc_vprintf(t, fmt, ap);
    va_end(ap);
}

void nnc_put_double(nnc_text *t, double v)
{
    if (isnan(v) || isinf(v)) {
        nnc_puts(t, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    char buf[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    nnc_puts(t, buf);
}

int nnc_utf8_length(const char *p, const char *end)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000}; /* shorter forms are invalid */
    unsigned char c = (unsigned char)*p;
    int n = c < 0x80             ? 1
            : (c & 0xe0) == 0xc0 ? 2
            : (c & 0xf0) == 0xe0 ? 3
            : (c & 0xf8) == 0xf0 ? 4
                                 : 0;
    unsigned v = n > 1 ? c & (0x7fu >> n) : 0;
    if (n < 2 || end - p < n)
        return n < 2 ? n : 0;
    for (int i = 1; i < n; i++) {
        if (((unsigned char)p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | ((unsigned char)p[i] & 0x3f);
    }
    return v < least[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000) ? 0 : n;
}

void nnc_put_json_string(nnc_text *t, const char *s)
{
    const char *end = s + strlen(s);
    nnc_putc(t, '"');
    for (const unsigned char *p = (const unsigned char *)s; *p; p++) {
        int n = nnc_utf8_length((const char *)p, end);
        const char *esc = *p == '"'    ? "\\\""
                          : *p == '\\' ? "\\\\"
                          : *p == '\n' ? "\\n"
                          : *p == '\t' ? "\\t"
                          : *p == '\r' ? "\\r"
                                       : NULL;
        if (esc)
            nnc_puts(t, esc);
        else if (*p < 0x20 || *p == 0x7f)
            nnc_printf(t, "\\u%04x", *p);
        else if (n == 0)
            nnc_puts(t, "\xef\xbf\xbd");
        else
            nnc_putn(t, (const char *)p, (size_t)n);
        p += n > 1 ? n - 1 : 0;
    }
    nnc_putc(t, '"');
}

void nnc_put_bytes(nnc_text *t, int64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; fabs(v) >= 1024 && u + 1 < NNC_COUNT(unit); u++)
        v /= 1024;
    nnc_printf(t, "%.*f %s", u == 0 ? 0 : fabs(v) < 100 ? 2 : 1, v, unit[u]);
}
