/* tensors/mismatch.c -- one message about all tensors of a file that are missing, superfluous or of another shape or type. */
#include "tensors/tensors.h"

#include <string.h>

void nnc_mismatch_deinit(nnc_mismatch *m)
{
    nnc_text_deinit(&m->lines);
}

static void put_line(nnc_mismatch *m, const char *what, const char *name)
{
    nnc_printf(&m->lines, "\n  %s `%s`", what, name);
}

static void put_found(nnc_mismatch *m, const nnc_tensor_entry *e)
{
    nnc_puts(&m->lines, ", found ");
    if (e->why)
        nnc_printf(&m->lines, "one that nnc does not read: %s", e->why);
    else
        nnc_put_type(&m->lines, &e->type);
}

void nnc_mismatch_missing(nnc_mismatch *m, const char *name, const nnc_type *want, const char *more)
{
    m->missing++;
    put_line(m, "missing", name);
    nnc_puts(&m->lines, ": expected ");
    nnc_put_type(&m->lines, want);
    nnc_puts(&m->lines, more);
}

void nnc_mismatch_wrong(nnc_mismatch *m, const char *name, const nnc_type *want,
    const nnc_tensor_entry *found, const char *more)
{
    m->wrong++;
    put_line(m, "differs", name);
    nnc_puts(&m->lines, ": expected ");
    nnc_put_type(&m->lines, want);
    put_found(m, found);
    nnc_puts(&m->lines, more);
}

void nnc_mismatch_extra(
    nnc_mismatch *m, const char *name, const nnc_tensor_entry *found, const char *more)
{
    m->extra++;
    put_line(m, "extra", name);
    put_found(m, found);
    nnc_puts(&m->lines, more);
}

void nnc_mismatch_drop(nnc_mismatch *m, const char *name)
{
    const struct {
        const char *what;
        int *n;
    } kind[] = {{"missing", &m->missing}, {"differs", &m->wrong}, {"extra", &m->extra}};
    for (size_t k = 0; k < NNC_COUNT(kind); k++) {
        NNC_LOCAL(nnc_text) start = {0};
        nnc_printf(&start, "\n  %s `%s`", kind[k].what, name);
        char *at = m->lines.n && !start.oom ? strstr(m->lines.s, nnc_text_str(&start)) : NULL;
        if (!at)
            continue;
        const size_t n = 1 + strcspn(at + 1, "\n");
        memmove(at, at + n, strlen(at + n) + 1);
        m->lines.n -= n;
        --*kind[k].n;
    }
}

void nnc_mismatch_put(nnc_text *t, const nnc_mismatch *m)
{
    enum { MOST = 5 };
    static const struct {
        const char *start, *what;
    } kind[] = {{"\n  missing", "missing"}, {"\n  differs", "of another type or shape"},
        {"\n  extra", "extra"}};
    int n[NNC_COUNT(kind)] = {0};
    const char *line = nnc_text_str(&m->lines);
    for (bool more = true; more;) {
        const size_t length = *line ? 1 + strcspn(line + 1, "\n") : 0;
        size_t k = 0;
        while (k < NNC_COUNT(kind) && strncmp(line, kind[k].start, strlen(kind[k].start)) != 0)
            k++;
        if (k < NNC_COUNT(kind) && n[k]++ < MOST)
            nnc_printf(t, "%.*s", (int)length, line);
        /* before a hint, or at the end */
        for (size_t i = 0; k == NNC_COUNT(kind) && i < NNC_COUNT(kind); n[i++] = 0)
            if (n[i] > MOST)
                nnc_printf(t, "\n  and %d more %s", n[i] - MOST, kind[i].what);
        if (k == NNC_COUNT(kind))
            nnc_printf(t, "%.*s", (int)length, line);
        more = *line;
        line += length;
    }
}

/* The last part of a tensor's name: "weight" of "layer1.0.conv1.weight". */
static const char *kind_of(const char *name)
{
    const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');
    const char *last = dot && (!slash || dot > slash) ? dot : slash;
    return last && last[1] ? last + 1 : name;
}

static int count_kind(int n, const char *const *name, const char *kind)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += !strcmp(kind_of(name[i]), kind);
    return count;
}

/* The most frequent kind that has fewer names than `below`, or as many and comes later than `after`; -1: none. */
static int next_kind(int n, const char *const *name, int below, int after)
{
    int best = -1, most = 0;
    for (int i = 0; i < n; i++) {
        const int count = count_kind(n, name, kind_of(name[i]));
        const bool first = count_kind(i, name, kind_of(name[i])) == 0;
        const bool left = count < below || (count == below && i > after);
        if (first && left && count > most) {
            most = count;
            best = i;
        }
    }
    return best;
}

void nnc_put_tensor_kinds(nnc_text *t, int n, const char *const *name)
{
    enum { MOST = 5 };
    int left = n, below = n + 1, kinds = 0;
    for (int i = -1; kinds < MOST && (i = next_kind(n, name, below, i)) >= 0; kinds++) {
        below = count_kind(n, name, kind_of(name[i]));
        left -= below;
        nnc_printf(t, "%s%d %s", kinds ? ", " : "", below, kind_of(name[i]));
    }
    if (left)
        nnc_printf(t, ", %d of other kinds", left);
}

nnc_status nnc_mismatch_report(
    const nnc_mismatch *m, const char *file, const char *what, nnc_sink *sink)
{
    const struct {
        int n;
        const char *is;
    } part[] = {
        {m->missing, "missing"}, {m->extra, "extra"}, {m->wrong, "of another type or shape"}};
    NNC_LOCAL(nnc_text) counts = {0}, lines = {0};
    for (size_t i = 0; i < NNC_COUNT(part); i++)
        if (part[i].n)
            nnc_printf(&counts, "%s%d %s", counts.n ? ", " : "", part[i].n, part[i].is);
    if (!counts.n && !counts.oom)
        return NNC_OK;
    nnc_mismatch_put(&lines, m);
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file}, "%s do not match the model: %s%s",
        what, nnc_text_str(&counts), nnc_text_str(&lines));
}
