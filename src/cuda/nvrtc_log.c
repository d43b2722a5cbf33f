/* cuda/nvrtc_log.c -- turns NVRTC's log of a translation unit into messages with unit, line and kernel. */
#include "cuda/internal.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Returns the name of the last kernel whose definition begins at or before `line` (1-based); its length in *n, 0:
 * none. */
static const char *kernel_at(const char *source, int line, int *n)
{
    const char *name = "", *p = source;
    *n = 0;
    for (int at = 1; *p && at <= line; at++) {
        size_t length = strcspn(p, "\n");
        const char *g = memmem(p, length, "__global__", 10);
        for (const char *q = g ? g + 10 : NULL; q && *q && *q != '{' && *q != ';'; q++) {
            if (!word_char(*q) || word_char(q[-1]))
                continue;
            const char *end = q;
            while (word_char(*end))
                end++;
            if (*end == '(' && strncmp(q, "__launch_bounds__", 17) != 0) {
                name = q;
                *n = (int)(end - q);
                break;
            }
        }
        p += length;
        p += *p == '\n';
    }
    return name;
}

/* Parses "unit.cu(12): error: text", "unit.cu(12): error #20: text" or "error: text" into line and text. NULL:
 * another kind of line. */
static const char *error_of(const char *text, size_t n, int *line)
{
    const char *colon = memmem(text, n, ": error", 7), *end = text + n;
    const char *error = colon ? colon + 2 : n > 6 && !strncmp(text, "error", 5) ? text : NULL;
    *line = 0;
    if (!error)
        return NULL;
    for (const char *p = colon; p && p > text && *p != '('; p--)
        if (p[-1] == '(')
            *line = (int)strtol(p, NULL, 10);
    const char *what = memchr(error, ':', (size_t)(end - error));
    if (!what)
        return NULL;
    for (what++; what < end && *what == ' ';)
        what++;
    return what;
}

int nvrtc_report_log(const char *unit, const char *source, const char *log, nnc_sink *sink)
{
    int errors = 0;
    for (const char *p = log; *p;) {
        size_t n = strcspn(p, "\n");
        int line, name;
        const char *what = error_of(p, n, &line);
        if (what) {
            const char *kernel = kernel_at(source, line, &name);
            (void)nnc_fail(sink, NNC_E_BUG, (nnc_loc){.file = unit, .line = line}, "%s%.*s%s%.*s",
                name ? "kernel " : "", name, kernel, name ? ": " : "", (int)(p + n - what), what);
            errors++;
        }
        p += n;
        p += *p == '\n';
    }
    return errors;
}
