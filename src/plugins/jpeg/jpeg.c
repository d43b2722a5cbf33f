/* plugins/jpeg/jpeg.c -- JPEG files through libjpeg(-turbo), with its default method, as Pillow decodes them. Files of four inks (CMYK)
 * become red, green and blue as Pillow converts them. Orientation tags are not followed, as torchvision does not. */
#include "data/data.h"

#include <jpeglib.h>
#include <jerror.h>
#include <setjmp.h>
#include <stdio.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

typedef struct job {
    struct jpeg_decompress_struct z;
    struct jpeg_error_mgr error;
    jmp_buf back;
    nnc_decoded *d;
} job;

/* libjpeg's functions for errors and warnings do not return, or let it go on. */
static void fail(j_common_ptr z)
{
    job *j = z->client_data;
    char why[JMSG_LENGTH_MAX];
    z->err->format_message(z, why);
    snprintf(j->d->why, sizeof j->d->why, "%s", why);
    longjmp(j->back, 1);
}

/* Warnings of what only stands between pictures' bytes are harmless; the others mean that pixels are invented. */
static void warn(j_common_ptr z, int level)
{
    if (level < 0 && z->err->msg_code != JWRN_EXTRANEOUS_DATA &&
        z->err->msg_code != JWRN_ADOBE_XFORM && z->err->msg_code != JWRN_JFIF_MAJOR)
        fail(z);
}

static void print_nothing(j_common_ptr z)
{
    (void)z;
}

/* a * b / 255, rounded. */
static unsigned product(unsigned a, unsigned b)
{
    const unsigned t = a * b + 128;
    return (t + (t >> 8)) >> 8;
}

/* Four inks to three colours, in place. Adobe's files have them inverted. */
static void convert_inks(uint8_t *row, int w, bool inverted)
{
    const uint8_t *from = row;
    for (int x = 0; x < w; x++, from += 4, row += 3) {
        const unsigned black = inverted ? 255u - from[3] : from[3], light = 255 - black;
        uint8_t rgb[3];
        for (int c = 0; c < 3; c++) {
            const unsigned ink = inverted ? 255u - from[c] : from[c];
            rgb[c] = (uint8_t)(light - product(ink, light));
        }
        row[0] = rgb[0];
        row[1] = rgb[1];
        row[2] = rgb[2];
    }
}

/* The part that longjmp may leave: no variable of this function is used after it returns. */
static nnc_status read_picture(job *j, const uint8_t *p, size_t n)
{
    struct jpeg_decompress_struct *z = &j->z;
    nnc_decoded *d = j->d;
    jpeg_mem_src(
        z, (unsigned char *)(uintptr_t)p, n); /* which older versions do not declare const */
    jpeg_read_header(z, TRUE);
    const bool inks = z->num_components == 4;
    z->out_color_space = inks ? JCS_CMYK : z->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    d->c = z->num_components == 1 ? 1 : 3;
    d->h = (int)z->image_height;
    d->w = (int)z->image_width;
    const size_t stride = (size_t)d->w * (inks ? 4 : (size_t)d->c),
                 row = (size_t)d->w * (size_t)d->c;
    if (stride * (size_t)d->h > NNC_MAX_PICTURE) {
        snprintf(d->why, sizeof d->why, "it has %dx%d pixels, more than nnc reads", d->h, d->w);
        return NNC_E_MODEL;
    }
    d->at = d->room(d, row * (size_t)d->h + stride);
    if (!d->at)
        return NNC_E_NOMEM;
    jpeg_start_decompress(z);
    for (JDIMENSION y = 0; y < z->output_height; y++) {
        uint8_t *to = d->at + (size_t)y * row; /* inks: into the rows to come */
        jpeg_read_scanlines(z, &to, 1);
        if (inks)
            convert_inks(to, d->w, z->saw_Adobe_marker);
    }
    jpeg_finish_decompress(z);
    return NNC_OK;
}

static nnc_status decode(const uint8_t *p, size_t n, nnc_decoded *d)
{
    job j = {.d = d};
    volatile nnc_status s = NNC_E_MODEL;
    j.z.err = jpeg_std_error(&j.error);
    j.error.error_exit = fail;
    j.error.emit_message = warn;
    j.error.output_message = print_nothing;
    j.z.client_data = &j;
    if (!n) {
        snprintf(d->why, sizeof d->why, "it is empty");
        return NNC_E_MODEL;
    }
    if (!setjmp(j.back)) {
        jpeg_create_decompress(&j.z);
        s = read_picture(&j, p, n);
    } else if (j.error.msg_code == JERR_OUT_OF_MEMORY) {
        s = NNC_E_NOMEM;
    }
    jpeg_destroy_decompress(&j.z);
    return s;
}

#ifdef LIBJPEG_TURBO_VERSION
#define VERSION "turbo " TEXT(LIBJPEG_TURBO_VERSION)
#else
#define VERSION TEXT(JPEG_LIB_VERSION)
#endif

extern NNC_API const nnc_decoder nnc_decoder_jpeg;
const nnc_decoder nnc_decoder_jpeg = {VERSION, decode};
