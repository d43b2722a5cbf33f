/* base/text.h -- a growable string with a sticky out-of-memory flag, so that printers need one check at the end.
 * `s` is always NUL-terminated (never NULL). Zero-initialise, then nnc_text_deinit. */
#ifndef NNC_TEXT_H
#define NNC_TEXT_H

#include "base/arena.h"

#include "base/status.h"

#include <string.h>

struct nnc_text {
    char *s;    /* read through nnc_text_str: NULL until the first byte */
    size_t n;   /* length without the NUL */
    size_t cap;
    bool oom;   /* an allocation failed, and text is missing */
    struct nnc_text *into; /* a text that this one will be part of: it gets oom, too. NULL: none */
};

bool nnc_same_text(const char *a, const char *b); /* equal strings, or both NULL */
void nnc_text_deinit(nnc_text *t);
void nnc_putn(nnc_text *t, const char *s, size_t n);
static inline void nnc_puts(nnc_text *t, const char *s) { nnc_putn(t, s, strlen(s)); }
static inline void nnc_putc(nnc_text *t, char c) { nnc_putn(t, &c, 1); }
void nnc_printf(nnc_text *t, const char *fmt, ...) NNC_PRINTF(2, 3);
void nnc_vprintf(nnc_text *t, const char *fmt, va_list ap);
/* strtod and snprintf in the "C" locale: numbers have a decimal point, whatever locale the host program has set. */
double nnc_strtod(const char *s, char **end);
int nnc_snprintf(char *s, size_t n, const char *fmt, ...) NNC_PRINTF(3, 4);
/* Shortest decimal that strtod reads back to exactly `v`; "nan", "inf", "-inf" for those. */
void nnc_put_double(nnc_text *t, double v);
/* Length of the UTF-8 character at p, 1..4 bytes; 0 for invalid bytes. p < end. */
int nnc_utf8_length(const char *p, const char *end);
/* JSON string with quotes and escapes. Invalid UTF-8 becomes U+FFFD, so that the text is always valid JSON. */
void nnc_put_json_string(nnc_text *t, const char *s);
/* Bytes as hexadecimal digits in quotes. */
void nnc_put_hex(nnc_text *t, const void *data, int64_t n);
/* Human sizes: "1.5 GiB", "512 B"; counts "12.3 M". */
void nnc_put_bytes(nnc_text *t, int64_t bytes);
/* Nanoseconds as "0.62 us", "12.3 us", "123 us"; with `more` digits, down to nanoseconds. */
void nnc_put_us(nnc_text *t, int64_t ns, int more);
/* The digits more with which both times look different; 0 where they are equal. */
int nnc_us_digits(int64_t a_ns, int64_t b_ns);

/* Milliseconds with four significant digits, down to nanoseconds: "12.35", "0.000412"; less than half a nanosecond: "<0.000001"; "0". */
void nnc_put_ms(nnc_text *t, double ms, int width);

/* Scanner for the three IRs' text forms. Tracks line and column; skips blanks and '#' comments. */
typedef struct nnc_scan {
    const char *file, *p, *end, *line_start;
    int line;
} nnc_scan;

void nnc_scan_init(nnc_scan *s, const char *file, const char *text, size_t n);
nnc_loc nnc_scan_loc(const nnc_scan *s);           /* of the next token */
bool nnc_scan_end(nnc_scan *s);                    /* true when only blanks remain */
bool nnc_scan_is(nnc_scan *s, const char *lit);    /* true when the next text is `lit` (at a word boundary when lit is a word) */
bool nnc_scan_eat(nnc_scan *s, const char *lit);   /* the same, and consumes it */
/* Scans an identifier [A-Za-z_][A-Za-z0-9_.]*: points into the text; length in *n; false when there is none. */
bool nnc_scan_word(nnc_scan *s, const char **word, size_t *n);
bool nnc_scan_int(nnc_scan *s, int64_t *v);        /* optional '-'; false (nothing consumed) when absent or > 64 bit */
bool nnc_scan_double(nnc_scan *s, double *v);      /* also nan, inf, -inf and hex floats */
/* Reads what nnc_put_hex wrote, n bytes; false: something else stands at s->p. */
bool nnc_scan_hex(nnc_scan *s, void *data, int64_t n);
/* Quoted string with JSON escapes, unescaped into the arena. False: malformed, or out of memory (then *out becomes NULL). */
bool nnc_scan_string(nnc_scan *s, nnc_arena *a, char **out);
/* Decodes UTF-8 with JSON escapes from p to `end` into `out`, which has room for as many bytes and a NUL. Returns `end`, or the first
 * character that is invalid. */
const char *nnc_decode(const char *p, const char *end, char *out);
/* Reports "expected X, found `...`" at the scanner's position. */
nnc_status nnc_scan_fail(nnc_scan *s, nnc_sink *sink, const char *expected);

#endif
