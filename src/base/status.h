/* base/status.h -- error handling. A function that can fail returns an nnc_status, a bare code. The sink passed to it gets a
 * located message. A caller that gets a failure returns or handles it. A broken invariant of nnc is an assertion, never a
 * status. Running out of host memory is a status like any other. */
#ifndef NNC_STATUS_H
#define NNC_STATUS_H

#include "base/codes.h"
#include <stdarg.h>

#define NNC_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define NNC_TRY(e) \
    do { \
        nnc_status s_ = (e); \
        if (s_ != NNC_OK) \
            return s_; \
    } while (0)
/* Returns NNC_E_NOMEM, reported, from the calling function unless an allocation succeeded: NNC_NEED(a && b, sink). */
#define NNC_NEED(allocated, sink) \
    do { \
        if (!(allocated)) \
            return nnc_nomem(sink); \
    } while (0)
#define NNC_COUNT(a) (sizeof(a) / sizeof((a)[0]))
/* Declares variables that T_deinit releases where their scope ends, on every path: NNC_LOCAL(nnc_text) t = {0}; */
#define NNC_LOCAL(T) __attribute__((cleanup(T##_deinit))) T
/* Declares a pointer whose memory nnc_free releases where its scope ends: NNC_FREED int *n = nnc_malloc(...); */
#define NNC_FREED __attribute__((cleanup(nnc_free_at)))
/* Declares a pointer whose object is released at the end of its scope, unless it is NULL by then (handed on): NNC_OWNED(nnc_graph) *g
 * = NULL. The type's header says how: NNC_OWNER(nnc_graph, nnc_graph_destroy). */
#define NNC_OWNED(T) __attribute__((cleanup(T##_release_at))) T
#define NNC_OWNER(T, release) \
    static inline void T##_release_at(T **p) \
    { \
        release(*p); \
    }
NNC_OWNER(nnc_sink, nnc_sink_destroy)

/* A location in the user's text. Any field may be 0/NULL (unknown). The strings are borrowed: they must outlive the graph or sink that
 * holds the location. */
typedef struct nnc_loc {
    const char *file; /* as the user spelled it */
    int line, col; /* 1-based; 0 = unknown */
    const char *path; /* the user's layer: "/layers/12/conv" */
} nnc_loc;

typedef enum nnc_severity { NNC_ERROR, NNC_WARNING, NNC_NOTE } nnc_severity;

typedef struct nnc_diag {
    nnc_severity severity;
    nnc_status code;
    nnc_loc loc; /* strings owned by the sink */
    const char *
        message; /* what was wrong and what would be right: one line, or a line and an indented list; owned by the sink */
} nnc_diag;

const nnc_diag *nnc_sink_at(const nnc_sink *s, size_t i);
void nnc_sink_pass_errors(const nnc_sink *s, nnc_sink *to); /* without its warnings and notes */
/* Prints what has not been printed so, as nnc_sink_print does; is there any? */
void nnc_sink_flush(nnc_sink *s, FILE *out);
bool nnc_sink_pending(const nnc_sink *s);
/* Code of the last error, for functions that return NULL and report only to the sink; `otherwise` when there is none. */
nnc_status nnc_sink_cause(const nnc_sink *s, nnc_status otherwise);

/* Reports an error and returns `code`, so that a failing function ends in `return nnc_fail(...)`.
 * `sink` may be NULL (the message is dropped). `code` must not be NNC_OK. */
nnc_status nnc_fail(nnc_sink *sink, nnc_status code, nnc_loc loc, const char *fmt, ...)
    NNC_PRINTF(4, 5);
/* Same with a list of arguments; `head` and a colon begin the message, NULL: nothing does. */
nnc_status nnc_vfail(
    nnc_sink *sink, nnc_status code, nnc_loc loc, const char *head, const char *fmt, va_list ap);
/* Same without a location. */
nnc_status nnc_fail0(nnc_sink *sink, nnc_status code, const char *fmt, ...) NNC_PRINTF(3, 4);
void nnc_warn(nnc_sink *sink, nnc_loc loc, const char *fmt, ...) NNC_PRINTF(3, 4);
void nnc_note(nnc_sink *sink, nnc_loc loc, const char *fmt, ...) NNC_PRINTF(3, 4);
/* NNC_E_NOMEM; the message says how many bytes the latest failed allocation wanted, and what is available. Allocates nothing. Inline, so
 * that compilers see that it is never NNC_OK. */
void nnc_report_nomem(nnc_sink *sink);
static inline nnc_status nnc_nomem(nnc_sink *sink)
{
    nnc_report_nomem(sink);
    return NNC_E_NOMEM;
}
/* The message also says for what: a noun phrase, as in "input x". */
nnc_status nnc_nomem_for(nnc_sink *sink, const char *fmt, ...) NNC_PRINTF(2, 3);

/* The entry of names[0..n) most similar to `word`, or NULL when none is similar enough (edit distance > max(1, strlen(word)/3)). For
 * "did you mean". */
const char *nnc_nearest(const char *word, const char *const *names, size_t n);

/* Test hook: makes the N-th allocation from now (1-based) fail; 0 turns it off. Returns how many were still to come until the one that
 * fails. All of nnc allocates through nnc_malloc/nnc_realloc/nnc_free, the arena included. Not thread-safe. */
int64_t nnc_fail_alloc_after(int64_t n);
void *nnc_malloc(size_t bytes); /* NULL when out of memory; not zeroed */
void *nnc_calloc(size_t count, size_t bytes); /* zeroed; NULL on overflow */
void *nnc_realloc(void *p, size_t bytes);
void nnc_free_at(void *p); /* frees what the pointer at p points to */
void *nnc_aligned_alloc(size_t align, size_t bytes); /* power-of-two align; free with nnc_free */
/* Memory whose placement does not depend on earlier allocations: a mapping of its own, aligned and rounded up to 2 MiB, with huge
 * pages requested. (malloc would reuse freed blocks of its heap, partly in small and partly in huge pages. Two programs being compared
 * would differ in that.) Zeroed. NULL when out of memory. nnc_pages_free needs the same `bytes`. */
void *nnc_pages_alloc(size_t bytes);
void nnc_pages_free(void *p, size_t bytes);
/* Do the limits of address space and data (ulimit -v, -d) leave so much? Asked before libraries that crash when out of memory are used:
 * the dynamic linker while it loads them (thread-local data), C++ runtimes while they unwind. Others may take it first (a mapping that
 * is made to see whether it can be would for that moment be missing elsewhere). Allocates nothing. limits.c. */
bool nnc_has_room(size_t bytes);
#define NNC_LIBRARY_ROOM ((size_t)16 << 20)
/* Fails where they leave less than NNC_LIBRARY_ROOM, with a message that says both. */
nnc_status nnc_need_library_room(nnc_sink *sink) NNC_MUST;

#endif
