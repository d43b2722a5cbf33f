/* tests/cuda_fake/check.c -- is every access to device memory ordered after those that it must come after? One record for each range of
 * memory that was accessed in the same way. It has the last write, and the last read since then by each stream. Ranges begin at
 * multiples of 64 bytes, which is how tensors are aligned in an arena. */
#include "fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAIN = 64 };

typedef struct range {
    size_t begin; /* in grains; it ends where the next one begins */
    uint32_t written, read[FAKE_STREAMS]; /* times of the streams' clocks; 0 = never */
    int16_t writer;
} range;

struct fake_shadow {
    size_t bytes;
    range *at; /* in order; the last one begins at the memory's end */
    size_t n, room;
};

fake_shadow *fake_shadow_create(size_t bytes)
{
    fake_shadow *s = calloc(1, sizeof *s);
    s->bytes = bytes;
    s->room = 16;
    s->at = calloc(s->room, sizeof *s->at);
    s->n = 2;
    s->at[1].begin = (bytes + GRAIN - 1) / GRAIN;
    return s;
}

void fake_shadow_destroy(fake_shadow *s)
{
    if (s)
        free(s->at);
    free(s);
}

/* Index of the range that begins at this grain; the one that holds it is divided. */
static size_t divide(fake_shadow *s, size_t grain)
{
    size_t lo = 0, hi = s->n - 1;
    while (lo < hi) { /* the last range that begins at or before it */
        size_t mid = (lo + hi + 1) / 2;
        if (s->at[mid].begin <= grain)
            lo = mid;
        else
            hi = mid - 1;
    }
    if (s->at[lo].begin == grain)
        return lo;
    if (s->n == s->room)
        s->at = realloc(s->at, (s->room *= 2) * sizeof *s->at);
    memmove(&s->at[lo + 1], &s->at[lo], (s->n++ - lo) * sizeof *s->at);
    s->at[lo + 1].begin = grain;
    return lo + 1;
}

/* NULL, or what is wrong with an access to a range. */
static const char *check(const range *r, bool write, const uint32_t clock[FAKE_STREAMS])
{
    static char why[128];
    if (r->written > clock[r->writer]) {
        snprintf(why, sizeof why,
            "%s at %zu what stream %d wrote, and nothing puts one after the other",
            write ? "overwrites" : "reads", r->begin * GRAIN, r->writer);
        return why;
    }
    if (!write && !r->written) {
        snprintf(why, sizeof why, "reads at %zu what nobody wrote", r->begin * GRAIN);
        return why;
    }
    for (int i = 0; write && i < FAKE_STREAMS; i++)
        if (r->read[i] > clock[i]) {
            snprintf(why, sizeof why, "overwrites at %zu what stream %d may not have read yet",
                r->begin * GRAIN, i);
            return why;
        }
    return NULL;
}

const char *fake_shadow_access(fake_shadow *s, size_t begin, size_t end, bool write, int stream,
    const uint32_t clock[FAKE_STREAMS])
{
    if (end > s->bytes)
        return "leaves its block";
    if (begin >= end)
        return NULL;
    const size_t first = divide(s, begin / GRAIN), last = divide(s, (end + GRAIN - 1) / GRAIN);
    for (size_t i = first; i < last; i++) {
        const char *why = check(&s->at[i], write, clock);
        if (why)
            return why;
        s->at[i].read[stream] = clock[stream];
    }
    if (write) { /* one range: what comes after this write comes after those reads, too */
        memmove(&s->at[first + 1], &s->at[last], (s->n - last) * sizeof *s->at);
        s->n -= last - first - 1;
        s->at[first] = (range){
            .begin = s->at[first].begin, .written = clock[stream], .writer = (int16_t)stream};
    }
    return NULL;
}
