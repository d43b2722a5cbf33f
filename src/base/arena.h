/* base/arena.h -- bump allocator. Memory is zeroed and 16-byte aligned, size overflow is checked, and NULL means out of memory.
 * Everything is freed with the arena. An arena is used by one thread. */
#ifndef NNC_ARENA_H
#define NNC_ARENA_H

#include "base/status.h"

typedef struct nnc_arena {
    struct nnc_arena_block *head;
    size_t used;  /* bytes allocated */
    size_t limit; /* maximum of bytes; 0 = none */
} nnc_arena;

void nnc_arena_init(nnc_arena *a, size_t limit);
void nnc_arena_deinit(nnc_arena *a); /* frees all; the arena may be used again */
void *nnc_arena_alloc(nnc_arena *a, size_t count, size_t size);
char *nnc_arena_strdup(nnc_arena *a, const char *s); /* NULL in, NULL out */
char *nnc_arena_strndup(nnc_arena *a, const char *s, size_t n);
void *nnc_arena_memdup(nnc_arena *a, const void *p, size_t bytes);
char *nnc_arena_printf(nnc_arena *a, const char *fmt, ...) NNC_PRINTF(2, 3);
char *nnc_arena_vprintf(nnc_arena *a, const char *fmt, va_list ap);
/* Grows an array in an arena: returns `p` or a copy with room for at least `need` elements, updates *cap. NULL (and *cap unchanged)
 * when out of memory. Doubles; the old copy stays until the arena is freed. */
void *nnc_arena_grow(nnc_arena *a, void *p, size_t *cap, size_t need, size_t size);

/* The same in place: `array` is the address of the pointer to the first element. False: out of memory, and nothing has changed. */
bool nnc_arena_room(nnc_arena *a, void *array, size_t *cap, size_t need, size_t size);
#define ARENA_ROOM(a, array, cap, need) nnc_arena_room((a), &(array), &(cap), (size_t)(need), sizeof *(array))

#define ARENA_NEW(a, T, n) ((T *)nnc_arena_alloc((a), (size_t)(n), sizeof(T)))
/* Sets up to 9 pointers to arrays of n elements: ARENA_ARRAYS(a, n, x->at, x->size). True where there was memory for all. */
#define ARENA_ARRAYS(a, n, ...) \
    ARENA_PICK_(__VA_ARGS__, ARENA_9_, ARENA_8_, ARENA_7_, ARENA_6_, ARENA_5_, ARENA_4_, ARENA_3_, ARENA_2_, ARENA_1_)(a, n, __VA_ARGS__)
#define ARENA_PICK_(_1, _2, _3, _4, _5, _6, _7, _8, _9, many, ...) many
#define ARENA_1_(a, n, p) (((p) = nnc_arena_alloc((a), (size_t)(n), sizeof *(p))) != NULL)
#define ARENA_2_(a, n, p, ...) (ARENA_1_(a, n, p) && ARENA_1_(a, n, __VA_ARGS__))
#define ARENA_3_(a, n, p, ...) (ARENA_1_(a, n, p) && ARENA_2_(a, n, __VA_ARGS__))
#define ARENA_4_(a, n, p, ...) (ARENA_1_(a, n, p) && ARENA_3_(a, n, __VA_ARGS__))
#define ARENA_5_(a, n, p, ...) (ARENA_1_(a, n, p) && ARENA_4_(a, n, __VA_ARGS__))
#define ARENA_6_(a, n, p, ...) (ARENA_1_(a, n, p) && ARENA_5_(a, n, __VA_ARGS__))
#define ARENA_7_(a, n, p, ...) (ARENA_1_(a, n, p) && ARENA_6_(a, n, __VA_ARGS__))
#define ARENA_8_(a, n, p, ...) (ARENA_1_(a, n, p) && ARENA_7_(a, n, __VA_ARGS__))
#define ARENA_9_(a, n, p, ...) (ARENA_1_(a, n, p) && ARENA_8_(a, n, __VA_ARGS__))

#endif
