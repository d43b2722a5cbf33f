/* base/text.c -- growable text. */
#include "base/base.h"
#include <float.h>
#include <locale.h>
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
        for (; t; t = t->into)
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

static void put_int(nnc_text *t, long long v)
{
    char digits[24];
    size_t at = sizeof digits;
    unsigned long long u = v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v;
    do
        digits[--at] = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0)
        digits[--at] = '-';
    nnc_putn(t, digits + at, sizeof digits - at);
}

/* glibc and musl return a constant object: nothing is allocated, and nothing is freed. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double nnc_strtod(const char *s, char **end)
{
    return strtod_l(s, end, c_locale());
}

static int format(char *s, size_t n, const char *fmt, va_list ap)
{
    locale_t before = uselocale(c_locale());
    int length = vsnprintf(s, n, fmt, ap);
    uselocale(before);
    return length;
}

int nnc_snprintf(char *s, size_t n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int length = format(s, n, fmt, ap);
    va_end(ap);
    return length;
}

static void put_formatted(nnc_text *t, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    size_t room = reserve(t, 60) ? t->cap - t->n : 0;
    int n = format(room ? t->s + t->n : NULL, room, fmt, ap);
    if (n >= 0 && (size_t)n >= room && reserve(t, (size_t)n))
        format(t->s + t->n, (size_t)n + 1, fmt, again);
    if (n >= 0 && !t->oom)
        t->n += (size_t)n;
    va_end(again);
}

/* %s, %c, %d, %u, %lld and %% are written here (half of a warm compile was vsnprintf); from any other directive on, the C library does. */
void nnc_vprintf(nnc_text *t, const char *fmt, va_list ap)
{
    va_list rest;
    va_copy(rest, ap);
    for (;;) {
        const char *p = strchrnul(fmt, '%'), *s;
        nnc_putn(t, fmt, (size_t)(p - fmt));
        fmt = p + 2;
        if (!*p)
            break;
        if (p[1] == 's')
            nnc_puts(t, (s = va_arg(rest, const char *)) ? s : "(null)");
        else if (p[1] == 'c')
            nnc_putc(t, (char)va_arg(rest, int));
        else if (p[1] == 'd')
            put_int(t, va_arg(rest, int));
        else if (p[1] == 'u')
            put_int(t, va_arg(rest, unsigned));
        else if (p[1] == '%')
            nnc_putc(t, '%');
        else if (!strncmp(p + 1, "lld", 3)) {
            put_int(t, va_arg(rest, long long));
            fmt = p + 4;
        } else {
            put_formatted(t, p, rest);
            break;
        }
    }
    va_end(rest);
}

void nnc_printf(nnc_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    nnc_vprintf(t, fmt, ap);
    va_end(ap);
}

/* Number of digits of the shortest decimal that reads as the normal number v; 16 for all that need more than 15. A double keeps 15 digits
 * of every decimal: if 15 digits of v read as v, they begin with the shortest decimal, and only zeros follow. */
static int significant_digits(double v)
{
    char buf[40];
    nnc_snprintf(buf, sizeof buf, "%.14e", fabs(v));
    if (nnc_strtod(buf, NULL) != fabs(v))
        return 16;
    const char *end = strchr(buf, 'e');
    while (end[-1] == '0')
        end--;
    return end - buf > 2 ? (int)(end - buf) - 1 : 1; /* "d." is one digit */
}

void nnc_put_double(nnc_text *t, double v)
{
    if (isnan(v) || isinf(v)) {
        nnc_puts(t, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    const long long whole = fabs(v) < 1e15 ? (long long)v : 0;
    if ((double)whole == v && (whole % 10 || (!whole && !signbit(v)))) { /* %g, but quickly */
        put_int(t, whole);
        return;
    }
    char buf[40];
    int digits = fabs(v) < DBL_MIN ? 1 : significant_digits(v);
    do
        nnc_snprintf(buf, sizeof buf, "%.*g", digits, v);
    while (nnc_strtod(buf, NULL) != v && digits++ < 17);
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
    const char *end = s + strlen(s), *plain = s;
    nnc_putc(t, '"');
    for (const char *p = s; p < end;) {
        const unsigned char c = (unsigned char)*p;
        const int n = c < 0x80 ? 1 : nnc_utf8_length(p, end);
        const char *esc = c == '"'    ? "\\\""
                          : c == '\\' ? "\\\\"
                          : c == '\n' ? "\\n"
                          : c == '\t' ? "\\t"
                          : c == '\r' ? "\\r"
                          : n == 0    ? "\xef\xbf\xbd"
                                      : NULL;
        const bool control = !esc && (c < 0x20 || c == 0x7f);
        p += n ? n : 1;
        if (!esc && !control)
            continue;
        nnc_putn(t, plain, (size_t)(p - plain) - 1);
        plain = p;
        if (esc)
            nnc_puts(t, esc);
        else
            nnc_printf(t, "\\u%04x", c);
    }
    nnc_putn(t, plain, (size_t)(end - plain));
    nnc_putc(t, '"');
}

void nnc_put_hex(nnc_text *t, const void *data, int64_t n)
{
    static const char digit[] = "0123456789abcdef";
    const uint8_t *p = data;
    char chunk[256];
    nnc_putc(t, '"');
    for (int64_t i = 0; i < n;) {
        size_t k = 0;
        for (; k < sizeof chunk && i < n; i++) {
            chunk[k++] = digit[p[i] >> 4];
            chunk[k++] = digit[p[i] & 15];
        }
        nnc_putn(t, chunk, k);
    }
    nnc_putc(t, '"');
}

void nnc_put_ms(nnc_text *t, double ms, int width)
{
    int digits = 1;
    if (ms >= 0 && ms < 0.5e-6) {
        nnc_printf(t, "%*s", width, ms > 0 ? "<0.000001" : "0");
        return;
    }
    for (double limit = 100; ms < limit && digits < 6; limit /= 10)
        digits++;
    nnc_printf(t, "%*.*f", width, digits, ms);
}

static int us_digits(int64_t ns, int more)
{
    const int digits = ns < 9995 ? 2 : ns < 99950 ? 1 : 0;
    return digits + more < 3 ? digits + more : 3;
}

void nnc_put_us(nnc_text *t, int64_t ns, int more)
{
    nnc_printf(t, "%.*f us", us_digits(ns, more), (double)ns * 1e-3);
}

int nnc_us_digits(int64_t a_ns, int64_t b_ns)
{
    int more = 0;
    for (bool same = a_ns != b_ns; same; more += same) {
        char a[40], b[40];
        nnc_snprintf(a, sizeof a, "%.*f", us_digits(a_ns, more), (double)a_ns * 1e-3);
        nnc_snprintf(b, sizeof b, "%.*f", us_digits(b_ns, more), (double)b_ns * 1e-3);
        same = !strcmp(a, b) && more < 3;
    }
    return more;
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
