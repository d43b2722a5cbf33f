/* data/picture.c -- pictures as numbers by channel, row and column. */
#include "data/internal.h"

nnc_status nnc_picture_size(nnc_picture *p, int c, int h, int w, nnc_sink *sink)
{
    const size_t n = (size_t)c * (size_t)h * (size_t)w; /* sides are at most 65535 */
    if (n > p->room || !p->at) {
        nnc_free(p->at);
        p->at = nnc_malloc(n * sizeof *p->at);
        p->room = p->at ? n : 0;
        NNC_NEED(p->at, sink);
    }
    p->c = c;
    p->h = h;
    p->w = w;
    return NNC_OK;
}

/* x / 255, correctly rounded. */
static void fill_table(float table[256])
{
    for (int i = 0; i < 256; i++)
        table[i] = (float)i / 255;
}

static void set_luminance(nnc_picture *p, const nnc_pixels *from, const float table[256])
{
    for (int y = 0; y < p->h; y++)
        for (int x = 0; x < p->w; x++) {
            const uint8_t *at = from->at + y * from->dy + x * from->dx;
            const unsigned sum = at[0] * 19595u + at[from->dc] * 38470u + at[2 * from->dc] * 7471u;
            p->at[(size_t)y * (size_t)p->w + (size_t)x] = table[(sum + 0x8000) >> 16];
        }
}

nnc_status nnc_picture_set(nnc_picture *p, const nnc_pixels *from, int channels, nnc_sink *sink)
{
    float table[256];
    fill_table(table);
    NNC_TRY(nnc_picture_size(p, channels, from->h, from->w, sink));
    if (channels == 1 && from->c == 3) {
        set_luminance(p, from, table);
        return NNC_OK;
    }
    float *to = p->at;
    for (int c = 0; c < channels; c++)
        for (int y = 0; y < p->h; y++) {
            const uint8_t *at = from->at + (from->c == 1 ? 0 : c) * from->dc + y * from->dy;
            for (int x = 0; x < p->w; x++)
                *to++ = table[at[x * from->dx]];
        }
    return NNC_OK;
}

void nnc_scratch_swap(nnc_scratch *s)
{
    const nnc_picture p = s->now;
    s->now = s->next;
    s->next = p;
}

void nnc_scratch_deinit(nnc_scratch *s)
{
    nnc_free(s->now.at);
    nnc_free(s->next.at);
    nnc_free(s->weights.at);
    nnc_free(s->rows.at);
    nnc_free(s->decoded);
}
