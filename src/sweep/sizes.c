/* sweep/sizes.c -- the sizes of --set NAME=SIZES: integers and ranges between commas. */
#include "sweep/sweep.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_SIZES = 4096 };
#define LARGEST 9e15 /* doubles have all integers up to it, as do the files of sweeps */

typedef struct reader {
    const nnc_arg *arg;
    nnc_sizes *out;
    size_t cap;
    nnc_arena *arena;
    nnc_sink *sink;
} reader;

static nnc_status malformed(const reader *r)
{
    return nnc_fail0(r->sink, NNC_E_USAGE,
        "--set: expected NAME=SIZES, as in dim=1..4096x2 (each twice the last), dim=64..1024+64 or "
        "dim=1,2,4, found `%s=%s`",
        r->arg->name, r->arg->value);
}

static nnc_status add(reader *r, int64_t v)
{
    if (r->out->n == MOST_SIZES)
        return nnc_fail0(r->sink, NNC_E_USAGE, "--set %s=%s: more than %d sizes", r->arg->name,
            r->arg->value, MOST_SIZES);
    NNC_NEED(ARENA_ROOM(r->arena, r->out->at, r->cap, r->out->n + 1), r->sink);
    r->out->at[r->out->n++] = v;
    return NNC_OK;
}

/* An integer, or a power of two integers. NULL: neither, or too large. */
static const char *integer(const char *p, int64_t *v)
{
    char *end;
    errno = 0;
    *v = strtoll(p, &end, 10);
    if (end == p || errno || fabs((double)*v) > LARGEST)
        return NULL;
    if (*end != '^')
        return end;
    const char *second = end + 1;
    const long power = strtol(second, &end, 10);
    const double size = pow((double)*v, (double)power);
    if (end == second || power < 0 || !(fabs(size) <= LARGEST))
        return NULL;
    *v = (int64_t)size;
    return end;
}

/* low..high, then xFACTOR or +STEP. */
static nnc_status add_range(reader *r, int64_t low, const char **at)
{
    int64_t high;
    char *end = NULL;
    const char *p = integer(*at, &high);
    const bool factor = p && *p == 'x';
    const double by = p && (factor || *p == '+') ? nnc_strtod(p + 1, &end) : 0;
    if (!end || !(by > 0) || !(by <= LARGEST) || end == p + 1 ||
        (factor ? by < 1.0001 || low < 1 : by != floor(by)))
        return malformed(r);
    if (low > high)
        return nnc_fail0(r->sink, NNC_E_USAGE, "--set %s=%s: the range ends before it begins",
            r->arg->name, r->arg->value);
    double v = (double)low;
    for (int64_t last = low - 1; v <= (double)high; v = factor ? v * by : v + by) {
        const int64_t now = factor ? llround(v) : (int64_t)v;
        if (now > last) /* a factor below 2 repeats small ones, one near 1 too often */
            NNC_TRY(add(r, now));
        last = now;
    }
    *at = end;
    return NNC_OK;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

nnc_status nnc_sizes_parse(const nnc_arg *a, nnc_sizes *out, nnc_arena *arena, nnc_sink *sink)
{
    reader r = {.arg = a, .out = out, .arena = arena, .sink = sink};
    *out = (nnc_sizes){.name = a->name};
    for (const char *p = a->value;;) {
        int64_t v;
        p = integer(p, &v);
        if (!p)
            return malformed(&r);
        const bool range = !strncmp(p, "..", 2);
        p += range ? 2 : 0;
        NNC_TRY(range ? add_range(&r, v, &p) : add(&r, v));
        if (!*p)
            break;
        if (*p++ != ',')
            return malformed(&r);
    }
    qsort(out->at, (size_t)out->n, sizeof *out->at, by_size);
    int n = 1;
    for (int i = 1; i < out->n; i++)
        if (out->at[i] != out->at[n - 1])
            out->at[n++] = out->at[i];
    out->n = n;
    return NNC_OK;
}
