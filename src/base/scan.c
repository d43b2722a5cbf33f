/* base/scan.c -- the scanner shared by the text forms of the three IRs. */
#include "base/base.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void nnc_scan_init(nnc_scan *s, const char *file, const char *text, size_t n)
{
    *s = (nnc_scan){.file = file, .p = text, .end = text + n, .line_start = text, .line = 1};
}

static void skip(nnc_scan *s)
{
    for (; s->p < s->end; s->p++) {
        if (*s->p == '\n') {
            s->line++;
            s->line_start = s->p + 1;
        } else if (*s->p == '#') {
            while (s->p + 1 < s->end && s->p[1] != '\n')
                s->p++;
        } else if (*s->p != ' ' && *s->p != '\t' && *s->p != '\r') {
            return;
        }
    }
}

nnc_loc nnc_scan_loc(const nnc_scan *s)
{
    nnc_scan t = *s;
    skip(&t);
    return (nnc_loc){.file = t.file, .line = t.line, .col = (int)(t.p - t.line_start) + 1};
}

bool nnc_scan_end(nnc_scan *s)
{
    skip(s);
    return s->p >= s->end;
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

bool nnc_scan_is(nnc_scan *s, const char *lit)
{
    skip(s);
    size_t n = strlen(lit), left = (size_t)(s->end - s->p);
    if (n > left || memcmp(s->p, lit, n) != 0)
        return false;
    return !(word_char(lit[n - 1]) && n < left && word_char(s->p[n]));
}

bool nnc_scan_eat(nnc_scan *s, const char *lit)
{
    if (!nnc_scan_is(s, lit))
        return false;
    s->p += strlen(lit);
    return true;
}

bool nnc_scan_word(nnc_scan *s, const char **word, size_t *n)
{
    skip(s);
    if (s->p >= s->end || !(isalpha((unsigned char)*s->p) || *s->p == '_'))
        return false;
    *word = s->p;
    while (s->p < s->end && word_char(*s->p))
        s->p++;
    *n = (size_t)(s->p - *word);
    return true;
}

/* Copies the number at the cursor (the scanned text need not end in NUL). */
static size_t number_text(nnc_scan *s, char *buf, size_t cap)
{
    skip(s);
    size_t n = 0;
    while (s->p + n < s->end && n + 1 < cap &&
           (isalnum((unsigned char)s->p[n]) || strchr("+-.", s->p[n]))) {
        buf[n] = s->p[n];
        n++;
    }
    buf[n] = 0;
    return n;
}

bool nnc_scan_int(nnc_scan *s, int64_t *v)
{
    char buf[64], *end;
    number_text(s, buf, sizeof buf);
    const char *digits = buf + (buf[0] == '-');
    if (!isdigit((unsigned char)*digits))
        return false;
    errno = 0;
    long long x = strtoll(buf, &end, 10);
    if (errno || word_char(*end))
        return false;
    *v = x;
    s->p += end - buf;
    return true;
}

bool nnc_scan_double(nnc_scan *s, double *v)
{
    char buf[128], *end;
    if (!number_text(s, buf, sizeof buf))
        return false;
    const char *digits = buf + (buf[0] == '-');
    if (!isdigit((unsigned char)*digits) && *digits != '.' && strncmp(digits, "inf", 3) &&
        strncmp(digits, "nan", 3))
        return false;
    double x = nnc_strtod(buf, &end);
    if (end == buf || word_char(*end))
        return false;
    *v = x;
    s->p += end - buf;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool nnc_scan_hex(nnc_scan *s, void *data, int64_t n)
{
    uint8_t *out = data;
    if (!nnc_scan_eat(s, "\""))
        return false;
    for (int64_t i = 0; i < n; i++, s->p += 2) {
        int hi = s->end - s->p >= 2 ? hex_digit(s->p[0]) : -1,
            lo = hi < 0 ? -1 : hex_digit(s->p[1]);
        if (lo < 0)
            return false;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    if (s->p >= s->end || *s->p != '"')
        return false;
    s->p++;
    return true;
}

static int hex4(const char *p, const char *end)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        if (p + i >= end || !isxdigit((unsigned char)p[i]))
            return -1;
        v = v * 16 + (isdigit((unsigned char)p[i]) ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    }
    return v;
}

static void put_utf8(int c, char *out, size_t *n)
{
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes after the first */
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[(*n)++] = (char)(lead[more] | c >> (6 * more));
    while (more-- > 0)
        out[(*n)++] = (char)(0x80 | (c >> (6 * more) & 63));
}

/* Decodes a JSON escape after the backslash; writes 1..4 bytes to out + *n, never more than it has characters; returns the characters
 * consumed, 0 when malformed. */
static int unescape(const char *p, const char *end, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (p >= end)
        return 0;
    const char *at = *p ? strchr(from, *p) : NULL;
    if (at) {
        out[(*n)++] = to[at - from];
        return 1;
    }
    int c = *p == 'u' ? hex4(p + 1, end) : -1, used = 5;
    if (c <= 0)
        return 0;
    if (c >= 0xd800 && c < 0xe000) { /* the first of a surrogate pair, which is one character */
        int low = end - p > 6 && p[5] == '\\' && p[6] == 'u' ? hex4(p + 7, end) : -1;
        if (c >= 0xdc00 || low < 0xdc00 || low >= 0xe000)
            return 0;
        c = 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff);
        used = 11;
    }
    put_utf8(c, out, n);
    return used;
}

const char *nnc_decode(const char *p, const char *end, char *out)
{
    size_t n = 0;
    while (p < end) {
        bool escape = *p == '\\';
        int used = escape ? unescape(p + 1, end, out, &n) : nnc_utf8_length(p, end);
        if (!used)
            break;
        for (int i = 0; i < used && !escape; i++)
            out[n++] = p[i];
        p += escape + used;
    }
    out[n] = 0;
    return p;
}

bool nnc_scan_string(nnc_scan *s, nnc_arena *a, char **out)
{
    skip(s);
    if (s->p >= s->end || *s->p != '"')
        return false;
    const char *close = s->p + 1;
    while (close < s->end && *close != '"' && *close != '\n')
        close += *close == '\\' && close + 1 < s->end ? 2 : 1;
    if (close >= s->end || *close != '"')
        return false;
    *out = nnc_arena_alloc(a, (size_t)(close - s->p), 1);
    if (!*out || nnc_decode(s->p + 1, close, *out) != close)
        return false;
    s->p = close + 1;
    return true;
}

nnc_status nnc_scan_fail(nnc_scan *s, nnc_sink *sink, const char *expected)
{
    nnc_loc loc = nnc_scan_loc(s);
    skip(s);
    int n = 0;
    while (n < 24 && s->p + n < s->end && s->p[n] != '\n')
        n++;
    if (n == 0)
        return nnc_fail(sink, NNC_E_MODEL, loc, "expected %s, found the end of the text", expected);
    return nnc_fail(sink, NNC_E_MODEL, loc, "expected %s, found `%.*s`", expected, n, s->p);
}
