/* base/status.c -- statuses, the diagnostic sink, word suggestions, and allocation with simulated failures. */
#include "base/base.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SINK_LIMIT 200

static const struct {
    const char *name;
    int exit_code;
} codes[] = {
    [NNC_OK] = {"ok", 0},
    [NNC_E_DIFFERS] = {"results differ", 1},
    [NNC_E_USAGE] = {"usage", 2},
    [NNC_E_MODEL] = {"model rejected", 3},
    [NNC_E_FIT] = {"does not fit", 4},
    [NNC_E_DEVICE] = {"device or library failed", 5},
    [NNC_E_PEER] = {"peer lost", 6},
    [NNC_E_IO] = {"file error", 5},
    [NNC_E_NOMEM] = {"out of host memory", 4},
    [NNC_E_BUG] = {"bug in nnc", 70},
};

int nnc_exit_code(nnc_status s)
{
    return (unsigned)s < NNC_COUNT(codes) ? codes[s].exit_code : 70;
}

const char *nnc_status_name(nnc_status s)
{
    return (unsigned)s < NNC_COUNT(codes) ? codes[s].name : "unknown status";
}

/* ---- allocation ------------------------------------------------------------------------------ */

static int64_t fail_after;

int64_t nnc_fail_alloc_after(int64_t n)
{
    const int64_t left = fail_after;
    fail_after = n;
    return left;
}

/* The latest allocation that failed, for messages: its bytes, or their negative where a test made it fail. */
static _Atomic int64_t wanted;

static bool must_fail(size_t bytes)
{
    const bool fails = fail_after > 0 && --fail_after == 0;
    if (fails)
        wanted = bytes < INT64_MAX ? -(int64_t)bytes : -INT64_MAX;
    return fails;
}

/* Notes an allocation that failed. */
static void *noted(void *p, size_t bytes)
{
    if (!p)
        wanted = bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
    return p;
}

void *nnc_malloc(size_t bytes)
{
    return must_fail(bytes) ? NULL : noted(malloc(bytes ? bytes : 1), bytes);
}

void *nnc_calloc(size_t count, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all))
        all = SIZE_MAX;
    return must_fail(all) ? NULL : noted(calloc(count ? count : 1, bytes ? bytes : 1), all);
}

void *nnc_realloc(void *p, size_t bytes)
{
    return must_fail(bytes) ? NULL : noted(realloc(p, bytes ? bytes : 1), bytes);
}

void *nnc_aligned_alloc(size_t align, size_t bytes)
{
    void *p = NULL;
    if (must_fail(bytes))
        return NULL;
    if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes ? bytes : 1) != 0)
        return noted(NULL, bytes);
    return p;
}

void nnc_free(void *p)
{
    free(p);
}

void nnc_free_at(void *p)
{
    void *memory;
    memcpy(&memory, p, sizeof memory);
    free(memory);
}

static const size_t huge_page = 2 << 20;

void *nnc_pages_alloc(size_t bytes)
{
    const size_t size = (bytes + huge_page - 1) & ~(huge_page - 1), all = size + huge_page;
    if (must_fail(bytes))
        return NULL;
    if (bytes > SIZE_MAX / 2)
        return noted(NULL, bytes);
    char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return noted(NULL, bytes);
    const size_t head = -(uintptr_t)p & (huge_page - 1);
    if (head)
        munmap(p, head);
    if (head < huge_page)
        munmap(p + head + size, huge_page - head);
    (void)madvise(p + head, size, MADV_HUGEPAGE); /* a hint: fewer page-table misses */
    return p + head;
}

void nnc_pages_free(void *p, size_t bytes)
{
    if (p)
        munmap(p, (bytes + huge_page - 1) & ~(huge_page - 1));
}

/* ---- sink ------------------------------------------------------------------------------------ */

struct nnc_sink {
    nnc_arena arena;
    nnc_diag *at;
    size_t n, errors, printed;
    bool lost; /* memory ran out; the message needs none */
    nnc_diag nomem;
    char text[320];
};

nnc_sink *nnc_sink_create(void)
{
    nnc_sink *s = nnc_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->nomem = (nnc_diag){NNC_ERROR, NNC_E_NOMEM, {0}, s->text};
    s->at = nnc_calloc(SINK_LIMIT, sizeof *s->at);
    if (!s->at) {
        nnc_free(s);
        return NULL;
    }
    return s;
}

void nnc_sink_destroy(nnc_sink *s)
{
    if (!s)
        return;
    nnc_arena_deinit(&s->arena);
    nnc_free(s->at);
    nnc_free(s);
}

void nnc_sink_clear(nnc_sink *s)
{
    nnc_arena_deinit(&s->arena);
    s->n = s->errors = s->printed = 0;
    s->lost = false;
}

size_t nnc_sink_count(const nnc_sink *s)
{
    return s->n + (s->lost ? 1 : 0);
}

size_t nnc_sink_errors(const nnc_sink *s)
{
    return s->errors;
}

const nnc_diag *nnc_sink_at(const nnc_sink *s, size_t i)
{
    return i < s->n ? &s->at[i] : &s->nomem;
}

void nnc_sink_pass_errors(const nnc_sink *s, nnc_sink *to)
{
    for (size_t i = 0; i < nnc_sink_count(s); i++) {
        const nnc_diag *d = nnc_sink_at(s, i);
        if (d->severity == NNC_ERROR)
            (void)nnc_fail(to, d->code, d->loc, "%s", d->message);
    }
}

/* Prefix of the message: "file:line:col: path: error: ". Allocates nothing, since it must work when memory has run out. */
typedef struct diag_place {
    char s[8192];
} diag_place;

static const char *format_place(const nnc_diag *d, diag_place *l)
{
    static const char *const word[] = {"error", "warning", "note"};
    const char *file = !d->loc.file ? "nnc" : strcmp(d->loc.file, "-") ? d->loc.file : "<stdin>";
    char place[32] = "";
    if (d->loc.file && d->loc.line)
        snprintf(place, sizeof place, d->loc.col ? "%d:%d:" : "%d:", d->loc.line, d->loc.col);
    snprintf(l->s, sizeof l->s, "%s:%s %s%s%s: ", file, place, d->loc.path ? d->loc.path : "",
        d->loc.path ? ": " : "", word[d->severity]);
    return l->s;
}

nnc_status nnc_sink_cause(const nnc_sink *s, nnc_status otherwise)
{
    for (size_t i = s ? nnc_sink_count(s) : 0; i-- > 0;)
        if (nnc_sink_at(s, i)->severity == NNC_ERROR)
            return nnc_sink_at(s, i)->code;
    return otherwise;
}

void nnc_sink_print(const nnc_sink *s, FILE *out)
{
    diag_place l;
    for (size_t i = 0; i < nnc_sink_count(s); i++)
        fprintf(out, "%s%s\n", format_place(nnc_sink_at(s, i), &l), nnc_sink_at(s, i)->message);
    if (s->errors > SINK_LIMIT)
        fprintf(out, "nnc: %zu errors in all\n", s->errors);
}

bool nnc_sink_pending(const nnc_sink *s)
{
    return s->printed < nnc_sink_count(s);
}

void nnc_sink_flush(nnc_sink *s, FILE *out)
{
    diag_place l;
    for (; s->printed < nnc_sink_count(s); s->printed++) {
        const nnc_diag *d = nnc_sink_at(s, s->printed);
        fprintf(out, "%s%s\n", format_place(d, &l), d->message);
    }
    if (s->errors > SINK_LIMIT)
        fprintf(out, "nnc: %zu errors in all\n", s->errors);
}

void nnc_sink_put(const nnc_sink *s, nnc_text *out)
{
    diag_place l;
    for (size_t i = 0; i < nnc_sink_count(s); i++) {
        nnc_puts(out, format_place(nnc_sink_at(s, i), &l));
        nnc_puts(out, nnc_sink_at(s, i)->message);
        nnc_putc(out, '\n');
    }
}

bool nnc_same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* A layer is looked at more than once, by programs that are compared or sizes that are tried: warnings and notes come once. */
static bool said_before(const nnc_diag *d, nnc_severity sev, nnc_loc loc, const char *message)
{
    return d->severity == sev && d->loc.line == loc.line && d->loc.col == loc.col &&
           nnc_same_text(d->loc.file, loc.file) && nnc_same_text(d->loc.path, loc.path) &&
           !strcmp(d->message, message);
}

/* Says how much was wanted and what the system has, unless an earlier failure said so. */
static void lose(nnc_sink *s, const char *what)
{
    const int64_t bytes = wanted;
    const long long all = bytes < 0 ? -bytes : bytes;
    const size_t room = sizeof s->text;
    if (s->lost)
        return;
    s->lost = true;
    int n = snprintf(s->text, room, "out of host memory");
    if (all)
        n += snprintf(s->text + n, room - (size_t)n, ": %lld bytes are wanted", all);
    if (*what)
        n += snprintf(
            s->text + n, room - (size_t)n, "%s for %.160s", all ? "" : ": memory is wanted", what);
    if (bytes <= 0) /* a test's allocation: the system has memory */
        return;
    const nnc_memory left = nnc_memory_free();
    snprintf(s->text + n, room - (size_t)n, ", %lld are available%s%s%s", (long long)left.bytes,
        left.by ? " (" : "", left.by ? left.by : "", left.by ? ")" : "");
}

void nnc_report_nomem(nnc_sink *sink)
{
    if (sink) {
        sink->errors++;
        lose(sink, "");
    }
}

nnc_status nnc_nomem_for(nnc_sink *sink, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (sink) {
        sink->errors++;
        lose(sink, what);
    }
    return NNC_E_NOMEM;
}

nnc_status nnc_need_library_room(nnc_sink *sink)
{
    if (nnc_has_room(NNC_LIBRARY_ROOM))
        return NNC_OK;
    (void)noted(NULL, NNC_LIBRARY_ROOM);
    return nnc_nomem_for(sink, "calls of libraries");
}

static void report(
    nnc_sink *s, nnc_severity sev, nnc_status code, nnc_loc loc, const char *fmt, va_list ap)
{
    if (!s)
        return;
    if (sev == NNC_ERROR)
        s->errors++;
    if (s->n == SINK_LIMIT)
        return;
    const char *message = nnc_arena_vprintf(&s->arena, fmt, ap);
    for (size_t i = 0; message && sev != NNC_ERROR && i < s->n; i++)
        if (said_before(&s->at[i], sev, loc, message))
            return;
    nnc_diag d = {sev, code, loc, message};
    d.loc.file = nnc_arena_strdup(&s->arena, loc.file);
    d.loc.path = nnc_arena_strdup(&s->arena, loc.path);
    if (!d.message) {
        lose(s, "");
        return;
    }
    s->at[s->n++] = d;
}

nnc_status nnc_fail(nnc_sink *sink, nnc_status code, nnc_loc loc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(sink, NNC_ERROR, code, loc, fmt, ap);
    va_end(ap);
    return code;
}

nnc_status nnc_vfail(
    nnc_sink *sink, nnc_status code, nnc_loc loc, const char *head, const char *fmt, va_list ap)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_vprintf(&t, fmt, ap);
    return nnc_fail(
        sink, code, loc, "%s%s%s", head ? head : "", head ? ": " : "", nnc_text_str(&t));
}

nnc_status nnc_fail0(nnc_sink *sink, nnc_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(sink, NNC_ERROR, code, (nnc_loc){0}, fmt, ap);
    va_end(ap);
    return code;
}

void nnc_warn(nnc_sink *sink, nnc_loc loc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(sink, NNC_WARNING, NNC_OK, loc, fmt, ap);
    va_end(ap);
}

void nnc_note(nnc_sink *sink, nnc_loc loc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(sink, NNC_NOTE, NNC_OK, loc, fmt, ap);
    va_end(ap);
}

/* ---- suggestions ----------------------------------------------------------------------------- */

/* Optimal string alignment distance (Levenshtein with swaps of neighbours), for words of up to 63 letters. */
static size_t distance(const char *a, const char *b)
{
    enum { MAX = 63 };
    size_t n = strlen(a), m = strlen(b), row[3][MAX + 1];
    if (n > MAX || m > MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *cur = row[i % 3], *prev = row[(i + 2) % 3], *prev2 = row[(i + 1) % 3];
        cur[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = prev[j - 1] + (a[i - 1] != b[j - 1]);
            if (prev[j] + 1 < best)
                best = prev[j] + 1;
            if (cur[j - 1] + 1 < best)
                best = cur[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                prev2[j - 2] + 1 < best)
                best = prev2[j - 2] + 1;
            cur[j] = best;
        }
    }
    return row[n % 3][m];
}

const char *nnc_nearest(const char *word, const char *const *names, size_t n)
{
    size_t limit = strlen(word) / 3, best = SIZE_MAX;
    const char *found = NULL;
    if (limit < 1)
        limit = 1;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, names[i]);
        if (d <= limit && d < best) {
            best = d;
            found = names[i];
        }
    }
    return found;
}
