/* plugins/png/png.c -- PNG files through libpng: palettes become colours, numbers of 1, 2, 4 and 16 bits 8-bit ones, and transparency is
 * left out. */
#include "data/data.h"

#include <png.h>
#include <stdio.h>
#include <string.h>

typedef struct job {
    nnc_decoded *d;
    const uint8_t *p;
    size_t left;
    bool no_memory;
} job;

static void fail(png_structp z, png_const_charp why)
{
    job *j = png_get_error_ptr(z);
    snprintf(j->d->why, sizeof j->d->why, "%s", why);
    png_longjmp(z, 1);
}

static void warn(png_structp z, png_const_charp why)
{
    (void)z, (void)why;
}

static void read_bytes(png_structp z, png_bytep to, size_t n)
{
    job *j = png_get_io_ptr(z);
    if (n > j->left)
        png_error(z, "it is cut off");
    memcpy(to, j->p, n);
    j->p += n;
    j->left -= n;
}

static void read_picture(job *j, png_structp z, png_infop info)
{
    nnc_decoded *d = j->d;
    png_set_read_fn(z, j, read_bytes);
    png_set_user_limits(z, 65535, 65535);
    png_read_info(z, info);
    const int type = png_get_color_type(z, info), passes = png_set_interlace_handling(z);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(z);
    if (type == PNG_COLOR_TYPE_GRAY)
        png_set_expand_gray_1_2_4_to_8(z);
    png_set_scale_16(z);
    png_set_strip_alpha(z);
    png_read_update_info(z, info);
    d->c = png_get_channels(z, info);
    d->h = (int)png_get_image_height(z, info);
    d->w = (int)png_get_image_width(z, info);
    const size_t row = png_get_rowbytes(z, info);
    if ((d->c != 1 && d->c != 3) || row != (size_t)d->w * (size_t)d->c)
        png_error(z, "its pixels are neither grey nor colours");
    if (row * (size_t)d->h > NNC_MAX_PICTURE)
        png_error(z, "it has more pixels than nnc reads");
    d->at = d->room(d, row * (size_t)d->h);
    j->no_memory = !d->at;
    if (j->no_memory)
        png_error(z, "no memory");
    for (int i = 0; i < passes; i++)
        for (int y = 0; y < d->h; y++)
            png_read_row(z, d->at + (size_t)y * row, NULL);
    png_read_end(z, NULL);
}

static nnc_status decode(const uint8_t *p, size_t n, nnc_decoded *d)
{
    job j = {.d = d, .p = p, .left = n};
    png_structp z = png_create_read_struct(PNG_LIBPNG_VER_STRING, &j, fail, warn);
    png_infop info = z ? png_create_info_struct(z) : NULL;
    volatile nnc_status s = NNC_OK;
    if (!info) {
        png_destroy_read_struct(&z, NULL, NULL);
        return NNC_E_NOMEM;
    }
    if (!setjmp(png_jmpbuf(z)))
        read_picture(&j, z, info);
    else
        s = j.no_memory ? NNC_E_NOMEM : NNC_E_MODEL;
    png_destroy_read_struct(&z, &info, NULL);
    return s;
}

extern NNC_API const nnc_decoder nnc_decoder_png;
const nnc_decoder nnc_decoder_png = {PNG_LIBPNG_VER_STRING, decode};
