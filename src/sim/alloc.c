/* sim/alloc.c -- PyTorch's caching allocator in numbers, without memory: segments of blocks, by the rules of
 * c10/cuda/CUDACachingAllocator.cpp (constants kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge). */
#include "sim/internal.h"

#define MIB ((int64_t)1 << 20)
enum { ROUND = 512 };
#define SMALL MIB /* requests up to this are small ... */
#define SMALL_SEGMENT (2 * MIB) /* ... and share segments of this size */
#define LARGE_SEGMENT (20 * MIB)
#define OWN_SEGMENT (10 * MIB) /* requests from this size on have a segment of their own, */
#define ROUND_LARGE (2 * MIB) /* rounded up to this */

typedef struct block {
    int64_t bytes;
    int32_t prev, next; /* neighbours in the segment, -1: none */
    int32_t stream;
    bool small, used, dead;
} block;

struct nnc_caching {
    int64_t capacity;
    nnc_caching_stats stats;
    block *block; /* grows; dead ones are used again through `spare` */
    int n, cap;
    int32_t spare;
};

nnc_caching *nnc_caching_create(int64_t capacity)
{
    nnc_caching *c = nnc_calloc(1, sizeof *c);
    if (c) {
        c->capacity = capacity;
        c->spare = -1;
    }
    return c;
}

void nnc_caching_destroy(nnc_caching *c)
{
    if (c)
        nnc_free(c->block);
    nnc_free(c);
}

nnc_caching_stats nnc_caching_get(const nnc_caching *c)
{
    return c->stats;
}

/* A new block's number; -1: out of memory. */
static int32_t new_block(nnc_caching *c, block b)
{
    int32_t at = c->spare;
    if (at >= 0) {
        c->spare = c->block[at].next;
    } else {
        if (c->n == c->cap) {
            const int cap = c->cap ? 2 * c->cap : 64;
            block *p = nnc_realloc(c->block, (size_t)cap * sizeof *p);
            if (!p)
                return -1;
            c->block = p;
            c->cap = cap;
        }
        at = c->n++;
    }
    c->block[at] = b;
    return at;
}

static void drop_block(nnc_caching *c, int32_t at)
{
    c->block[at] = (block){.dead = true, .prev = -1, .next = c->spare};
    c->spare = at;
}

/* The smallest free block that is large enough, the first of equals; -1: none. */
static int32_t best_fit(const nnc_caching *c, int64_t bytes, bool small, int stream)
{
    int32_t best = -1;
    for (int32_t i = 0; i < c->n; i++) {
        const block *b = &c->block[i];
        if (!b->dead && !b->used && b->small == small && b->stream == stream && b->bytes >= bytes &&
            (best < 0 || b->bytes < c->block[best].bytes))
            best = i;
    }
    return best;
}

/* Gives back segments that are free as a whole. */
static bool release_cached(nnc_caching *c)
{
    bool any = false;
    for (int32_t i = 0; i < c->n; i++) {
        const block *b = &c->block[i];
        if (b->dead || b->used || b->prev >= 0 || b->next >= 0)
            continue;
        c->stats.reserved -= b->bytes;
        c->stats.segments--;
        drop_block(c, i);
        any = true;
    }
    c->stats.releases += any;
    return any;
}

static int32_t new_segment(nnc_caching *c, int64_t bytes, bool small, int stream)
{
    const int64_t size = small                 ? SMALL_SEGMENT
                         : bytes < OWN_SEGMENT ? LARGE_SEGMENT
                                               : nnc_align_up(bytes, ROUND_LARGE);
    if (c->stats.reserved + size > c->capacity &&
        (!release_cached(c) || c->stats.reserved + size > c->capacity))
        return -1;
    const int32_t at = new_block(
        c, (block){.bytes = size, .prev = -1, .next = -1, .small = small, .stream = stream});
    if (at < 0)
        return -2;
    c->stats.reserved += size;
    c->stats.peak_reserved = nnc_max64(c->stats.peak_reserved, c->stats.reserved);
    c->stats.segments++;
    return at;
}

/* Splits off what is left of a block: any rest of a small one, more than 1 MiB of a large one. */
static bool split(nnc_caching *c, int32_t at, int64_t bytes)
{
    block b = c->block[at];
    const int64_t rest = b.bytes - bytes;
    if (b.small ? rest < ROUND : rest <= SMALL)
        return true;
    const int32_t right = new_block(c,
        (block){.bytes = rest, .prev = at, .next = b.next, .small = b.small, .stream = b.stream});
    if (right < 0)
        return false;
    if (b.next >= 0)
        c->block[b.next].prev = right;
    c->block[at].next = right;
    c->block[at].bytes = bytes;
    return true;
}

int nnc_caching_alloc(nnc_caching *c, int64_t bytes, int stream)
{
    bytes = nnc_max64(nnc_align_up(bytes, ROUND), ROUND);
    const bool small = bytes <= SMALL;
    int32_t at = best_fit(c, bytes, small, stream);
    if (at < 0)
        at = new_segment(c, bytes, small, stream);
    if (at < 0)
        return at;
    if (!split(c, at, bytes))
        return -2;
    c->block[at].used = true;
    c->stats.allocated += c->block[at].bytes;
    c->stats.peak_allocated = nnc_max64(c->stats.peak_allocated, c->stats.allocated);
    return at;
}

/* Joins the block with a free neighbour on its right. */
static void merge_right(nnc_caching *c, int32_t at)
{
    const int32_t right = c->block[at].next;
    if (right < 0 || c->block[right].used)
        return;
    c->block[at].bytes += c->block[right].bytes;
    c->block[at].next = c->block[right].next;
    if (c->block[at].next >= 0)
        c->block[c->block[at].next].prev = at;
    drop_block(c, right);
}

void nnc_caching_free(nnc_caching *c, int handle)
{
    const int32_t left = c->block[handle].prev;
    c->block[handle].used = false;
    c->stats.allocated -= c->block[handle].bytes;
    merge_right(c, handle);
    if (left >= 0 && !c->block[left].used)
        merge_right(c, left);
}
