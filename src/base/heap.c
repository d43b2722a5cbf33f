/* base/heap.c -- a binary heap of numbers. */
#include "base/base.h"

void nnc_heap_push(nnc_heap *h, uint32_t x)
{
    uint32_t i = h->n++;
    for (; i > 0 && h->before(h->ctx, x, h->at[(i - 1) / 2]); i = (i - 1) / 2)
        h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = x;
}

uint32_t nnc_heap_pop(nnc_heap *h)
{
    uint32_t top = h->at[0], x = h->at[--h->n], i = 0;
    for (uint32_t c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && h->before(h->ctx, h->at[c + 1], h->at[c]))
            c++;
        if (!h->before(h->ctx, h->at[c], x))
            break;
        h->at[i] = h->at[c];
    }
    h->at[i] = x;
    return top;
}
