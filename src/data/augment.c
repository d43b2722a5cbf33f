/* data/augment.c -- augmentation of pictures: resize, rotate, pad and crop, flip, normalise, in this order. */
#include "data/internal.h"

#include <math.h>
#include <string.h>

enum { DRAW_Y, DRAW_X, DRAW_FLIP, DRAW_ANGLE };
enum { MAX_SIDE = 65535 };

/* ---- options --------------------------------------------------------------------------------- */

static bool read_side(const char **p, int *side)
{
    int64_t v = 0;
    const char *from = *p;
    for (; **p >= '0' && **p <= '9' && v <= MAX_SIDE; ++*p)
        v = v * 10 + (**p - '0');
    *side = (int)v;
    return *p > from && v >= 1 && v <= MAX_SIDE;
}

static nnc_status read_size(const char *text, nnc_augment *a, nnc_sink *sink)
{
    const char *p = text;
    bool ok = read_side(&p, &a->h);
    if (ok && *p == 'x')
        ok = ++p && read_side(&p, &a->w);
    if (ok && !*p)
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_USAGE,
        "--resize: expected the shorter side in pixels (256) or height and width (224x224), "
        "found `%s`",
        text);
}

static nnc_status read_numbers(
    const char *flag, const char *text, double above, float to[4], int *n, nnc_sink *sink)
{
    const char *p = text;
    for (*n = 0; *n < 4; p++) {
        char *end;
        const double v = nnc_strtod(p, &end);
        if (end == p || !isfinite(v) || v <= above)
            break;
        to[(*n)++] = (float)v;
        p = end;
        if (!*p)
            return NNC_OK;
        if (*p != ',')
            break;
    }
    return nnc_fail0(sink, NNC_E_USAGE,
        "%s: expected one %snumber, or one for each channel (0.485,0.456,0.406), found `%s`", flag,
        above == 0 ? "positive " : "", text);
}

nnc_status nnc_augment_read(const nnc_data_options *o, nnc_augment *a, nnc_sink *sink)
{
    *a = (nnc_augment){.crop = o->crop, .pad = o->pad, .flip = o->flip, .rotate = o->rotate};
    if (o->pad && !o->crop)
        return nnc_fail0(sink, NNC_E_USAGE, "--pad is of a crop: it needs --crop=random or centre");
    if (o->resize)
        NNC_TRY(read_size(o->resize, a, sink));
    if (o->mean)
        NNC_TRY(read_numbers("--mean", o->mean, -INFINITY, a->mean, &a->n_mean, sink));
    return o->std ? read_numbers("--std", o->std, 0, a->std, &a->n_std, sink) : NNC_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint32_t draw(const nnc_draws *r, int which)
{
    return nnc_rng_u32(r->key, r->first + (uint64_t)which);
}

/* Of 0..most. */
static int draw_place(const nnc_draws *r, int which, int most)
{
    return (int)((uint64_t)draw(r, which) * (uint64_t)(most + 1) >> 32);
}

static nnc_status resize(const nnc_augment *a, nnc_scratch *s, const char **why, nnc_sink *sink)
{
    const nnc_picture *p = &s->now;
    int64_t h = a->h, w = a->w;
    if (!w) { /* the longer side: rounded down, as torchvision does */
        w = p->h <= p->w ? h * p->w / p->h : h;
        h = p->h <= p->w ? h : h * p->h / p->w;
    }
    if (h <= MAX_SIDE && w <= MAX_SIDE)
        return nnc_resize((int)h, (int)w, s, sink);
    *why = "its longer side becomes too long: name height and width in --resize";
    return NNC_OK;
}

/* The number at (y, x), 0 outside. */
static float pixel_at(const float *p, int h, int w, int y, int x)
{
    return y < 0 || x < 0 || y >= h || x >= w ? 0 : p[(size_t)y * (size_t)w + (size_t)x];
}

/* Turns the picture about its centre by an angle, counter-clockwise: bilinear, 0 from outside. PyTorch: grid_sample of an affine_grid with
 * padding_mode="zeros" and align_corners=False. */
static nnc_status rotate(double degrees, nnc_scratch *s, nnc_sink *sink)
{
    const nnc_picture *p = &s->now;
    const double u = degrees * M_PI / 180, cosine = cos(u), sine = sin(u);
    const double cy = (p->h - 1) * 0.5, cx = (p->w - 1) * 0.5;
    const size_t plane = (size_t)p->h * (size_t)p->w;
    NNC_TRY(nnc_picture_size(&s->next, p->c, p->h, p->w, sink));
    float *to = s->next.at;
    for (int y = 0; y < p->h; y++)
        for (int x = 0; x < p->w; x++, to++) {
            const double fx = cx + cosine * (x - cx) - sine * (y - cy),
                         fy = cy + sine * (x - cx) + cosine * (y - cy);
            const int ix = (int)floor(fx), iy = (int)floor(fy);
            const float bx = (float)(fx - ix), by = (float)(fy - iy);
            for (int c = 0; c < p->c; c++) {
                const float *f = p->at + (size_t)c * plane;
                const float top = pixel_at(f, p->h, p->w, iy, ix) * (1 - bx) +
                                  pixel_at(f, p->h, p->w, iy, ix + 1) * bx;
                const float low = pixel_at(f, p->h, p->w, iy + 1, ix) * (1 - bx) +
                                  pixel_at(f, p->h, p->w, iy + 1, ix + 1) * bx;
                to[(size_t)c * plane] = top * (1 - by) + low * by;
            }
        }
    nnc_scratch_swap(s);
    return NNC_OK;
}

/* The h x w numbers from (y, x) on, 0 outside. */
static nnc_status cut(int y, int x, int h, int w, nnc_scratch *s, nnc_sink *sink)
{
    const nnc_picture *p = &s->now;
    const int begin = x < 0 ? -x : 0, end = p->w - x < w ? p->w - x : w;
    if (!y && !x && h == p->h && w == p->w)
        return NNC_OK;
    NNC_TRY(nnc_picture_size(&s->next, p->c, h, w, sink));
    memset(s->next.at, 0, (size_t)p->c * (size_t)h * (size_t)w * sizeof(float));
    for (int c = 0; c < p->c; c++)
        for (int r = 0; r < h; r++)
            if (y + r >= 0 && y + r < p->h && begin < end)
                memcpy(s->next.at + ((size_t)c * (size_t)h + (size_t)r) * (size_t)w + begin,
                    p->at + ((size_t)c * (size_t)p->h + (size_t)(y + r)) * (size_t)p->w + x + begin,
                    (size_t)(end - begin) * sizeof(float));
    nnc_scratch_swap(s);
    return NNC_OK;
}

static nnc_status crop(const nnc_augment *a, const nnc_draws *r, int h, int w, nnc_scratch *s,
    const char **why, nnc_sink *sink)
{
    const int dy = s->now.h + 2 * a->pad - h, dx = s->now.w + 2 * a->pad - w;
    const bool random = a->crop == NNC_CROP_random && r->train;
    if (dy < 0 || dx < 0) {
        *why = "a crop cannot make it larger: set --resize, or a larger --pad";
        return NNC_OK;
    }
    return cut((random ? draw_place(r, DRAW_Y, dy) : dy / 2) - a->pad,
        (random ? draw_place(r, DRAW_X, dx) : dx / 2) - a->pad, h, w, s, sink);
}

static void flip(nnc_picture *p)
{
    float *row = p->at;
    for (int y = 0; y < p->c * p->h; y++, row += p->w)
        for (int i = 0, j = p->w - 1; i < j; i++, j--) {
            const float f = row[i];
            row[i] = row[j];
            row[j] = f;
        }
}

static void normalise(const nnc_augment *a, nnc_picture *p)
{
    const size_t plane = (size_t)p->h * (size_t)p->w;
    for (int c = 0; c < p->c; c++) {
        const float mean = a->n_mean ? a->mean[a->n_mean == 1 ? 0 : c] : 0;
        const float std = a->n_std ? a->std[a->n_std == 1 ? 0 : c] : 1;
        float *to = p->at + (size_t)c * plane;
        for (size_t i = 0; i < plane; i++)
            to[i] = (to[i] - mean) / std;
    }
}

nnc_status nnc_augment_apply(const nnc_augment *a, const nnc_draws *r, int h, int w, nnc_scratch *s,
    const char **why, nnc_sink *sink)
{
    *why = NULL;
    if (a->h)
        NNC_TRY(resize(a, s, why, sink));
    if (a->rotate > 0 && r->train)
        NNC_TRY(rotate(a->rotate * (2 * (draw(r, DRAW_ANGLE) * 0x1p-32) - 1), s, sink));
    if (a->crop && !*why)
        NNC_TRY(crop(a, r, h, w, s, why, sink));
    if (!*why && (s->now.h != h || s->now.w != w))
        *why = "set --resize, --crop or both";
    if (a->flip && r->train && draw(r, DRAW_FLIP) >> 31)
        flip(&s->now);
    if (a->n_mean || a->n_std)
        normalise(a, &s->now);
    return NNC_OK;
}
