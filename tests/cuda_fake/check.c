/* tests/cuda_fake/check.c -- is every access to device memory ordered after those that it must come after? One record for each 64
 * bytes, which is how tensors are aligned in an arena: the last write, and the last read by each stream. */
#include "fake.h"
#include <stdio.h>
#include <stdlib.h>

enum { GRAIN = 64 };

typedef struct grain {
    uint32_t written, read[FAKE_STREAMS]; /* times of the streams' clocks; 0 = never */
    int16_t writer;
} grain;

struct fake_shadow {
    size_t bytes;
    grain *at;
};

fake_shadow *fake_shadow_create(size_t bytes)
{
    fake_shadow *s = calloc(1, sizeof *s);
    s->bytes = bytes;
    s->at = calloc(bytes / GRAIN + 1, sizeof *s->at); /* pages that nobody touches cost nothing */
    return s;
}

void fake_shadow_destroy(fake_shadow *s)
{
    if (s)
        free(s->at);
    free(s);
}

const char *fake_shadow_access(fake_shadow *s, size_t begin, size_t end, bool write, int stream,
    const uint32_t clock[FAKE_STREAMS])
{
    static char why[128];
    if (end > s->bytes)
        return "leaves its block";
    for (size_t i = begin / GRAIN; i < (end + GRAIN - 1) / GRAIN; i++) {
        grain *g = &s->at[i];
        if (g->written > clock[g->writer]) {
            snprintf(why, sizeof why,
                "%s at %zu what stream %d wrote, and nothing puts one after the other",
                write ? "overwrites" : "reads", i * GRAIN, g->writer);
            return why;
        }
        if (!write) {
            if (!g->written) {
                snprintf(why, sizeof why, "reads at %zu what nobody wrote", i * GRAIN);
                return why;
            }
            g->read[stream] = clock[stream];
            continue;
        }
        for (int r = 0; r < FAKE_STREAMS; r++)
            if (g->read[r] > clock[r]) {
                snprintf(why, sizeof why, "overwrites at %zu what stream %d may not have read yet",
                    i * GRAIN, r);
                return why;
            }
        g->written = clock[stream];
        g->writer = (int16_t)stream;
    }
    return NULL;
}
