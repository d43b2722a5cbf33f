/* base/arena.c -- bump allocation in doubling blocks. Under AddressSanitizer each allocation has poisoned gaps before and after it, so
 * that an index beyond either end is reported as it is for malloc. */
#include "base/base.h"
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
enum { GAP = 64 };
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
enum { GAP = 0 };
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

struct nnc_arena_block {
    struct nnc_arena_block *next;
    size_t cap, used;
    _Alignas(16) char bytes[];
};

enum { FIRST_BLOCK = 4096, MAX_BLOCK = 1 << 20 };

void nnc_arena_init(nnc_arena *a, size_t limit)
{
    *a = (nnc_arena){.limit = limit};
}

void nnc_arena_deinit(nnc_arena *a)
{
    for (struct nnc_arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        nnc_free(b);
    }
    a->head = NULL;
    a->used = 0;
}

static struct nnc_arena_block *add_block(nnc_arena *a, size_t bytes)
{
    size_t cap = a->head ? a->head->cap * 2 : FIRST_BLOCK;
    if (cap > MAX_BLOCK)
        cap = MAX_BLOCK;
    if (cap < bytes + GAP)
        cap = bytes + GAP;
    struct nnc_arena_block *b = nnc_malloc(sizeof *b + cap);
    if (!b)
        return NULL;
    b->cap = cap;
    b->used = GAP;
    POISON(b->bytes, cap);
    b->next = a->head;
    a->head = b;
    return b;
}

void *nnc_arena_alloc(nnc_arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (a->limit && (bytes > a->limit || a->used > a->limit - bytes))
        return NULL;
    struct nnc_arena_block *b = a->head;
    if (!b || b->cap - b->used < bytes + GAP)
        b = add_block(a, bytes + GAP);
    if (!b)
        return NULL;
    void *p = b->bytes + b->used;
    b->used += bytes + GAP;
    a->used += bytes;
    UNPOISON(p, count * size);
    return memset(p, 0, count * size);
}

char *nnc_arena_strndup(nnc_arena *a, const char *s, size_t n)
{
    char *p = nnc_arena_alloc(a, n + 1, 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

char *nnc_arena_strdup(nnc_arena *a, const char *s)
{
    return s ? nnc_arena_strndup(a, s, strlen(s)) : NULL;
}

void *nnc_arena_memdup(nnc_arena *a, const void *p, size_t bytes)
{
    void *q = nnc_arena_alloc(a, bytes, 1);
    if (q && bytes)
        memcpy(q, p, bytes);
    return q;
}

char *nnc_arena_vprintf(nnc_arena *a, const char *fmt, va_list ap)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_vprintf(&t, fmt, ap);
    return t.oom ? NULL : nnc_arena_strndup(a, nnc_text_str(&t), t.n);
}

char *nnc_arena_printf(nnc_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *s = nnc_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return s;
}

void *nnc_arena_grow(nnc_arena *a, void *p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return p;
    size_t n = *cap ? *cap * 2 : size < 1024 ? 8 : 1; /* bytes are cleared */
    if (n < need)
        n = need;
    void *q = nnc_arena_alloc(a, n, size);
    if (!q)
        return NULL;
    if (p && *cap)
        memcpy(q, p, *cap * size);
    *cap = n;
    return q;
}

bool nnc_arena_room(nnc_arena *a, void *array, size_t *cap, size_t need, size_t size)
{
    void *p;
    memcpy(&p, array, sizeof p);
    p = nnc_arena_grow(a, p, cap, need, size);
    if (p)
        memcpy(array, &p, sizeof p);
    return p != NULL;
}
