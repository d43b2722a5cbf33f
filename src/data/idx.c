/* data/idx.c -- idx, the format of MNIST: a pair of files, pictures and labels, of bytes. Their headers are big-endian numbers (two
 * zeros, type, dimensions, then the extents). Compressed ones (.gz) are inflated to memory, others stay in their file. */
#include "data/internal.h"

#include <string.h>
#ifdef NNC_HAVE_ZLIB
#include <zlib.h>
#endif

enum { U8 = 8, MAX_DIMS = 3, HEAD = 4 };

typedef struct part {
    const char *path;
    nnc_map map;
    uint8_t *own; /* inflated bytes, or NULL */
    const uint8_t *at; /* first number */
    int dims;
    uint32_t dim[MAX_DIMS];
} part;

typedef struct idx {
    nnc_source o;
    part picture, label;
} idx;

static uint32_t big(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool is_gz(const uint8_t *p, size_t n)
{
    return n >= 2 && p[0] == 0x1f && p[1] == 0x8b;
}

bool nnc_is_idx(const char *path)
{
    uint8_t p[HEAD];
    const size_t n = nnc_file_start(path, p, sizeof p);
    if (nnc_name_ends(path, ".bin") || n < HEAD)
        return false;
    return is_gz(p, n) || (!p[0] && !p[1] && p[2] >= U8 && p[2] <= 0xe && p[3] && p[3] <= 8);
}

/* ---- opening --------------------------------------------------------------------------------- */

static nnc_status fail_idx(const part *f, nnc_sink *sink, const char *why)
{
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = f->path}, "damaged idx file: %s", why);
}

/* Reads the header of the first n bytes at p; *bytes: of header and numbers. */
static nnc_status read_head(
    part *f, const uint8_t *p, size_t n, int dims, int64_t *bytes, nnc_sink *sink)
{
    const size_t head = HEAD + 4 * (size_t)dims;
    if (n < HEAD || p[0] || p[1])
        return fail_idx(f, sink, "it does not begin with two zeros");
    if (p[2] != U8 || p[3] != dims)
        return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = f->path},
            "is an idx file of type 0x%02x with %d dimensions; expected %s: type 0x08 (bytes) with "
            "%d",
            p[2], p[3], dims == 1 ? "labels" : "pictures", dims);
    if (n < head)
        return fail_idx(f, sink, "its header is cut off");
    int64_t all = 1;
    for (int d = 0; d < dims; d++) {
        f->dim[d] = big(p + HEAD + 4 * d);
        if (!f->dim[d] || (d && f->dim[d] > 65535))
            return fail_idx(f, sink, "an extent is 0 or a side longer than 65535");
        if (!nnc_mul_ok(all, f->dim[d], &all))
            return fail_idx(f, sink, "its extents are too large");
    }
    f->dims = dims;
    *bytes = all + (int64_t)head;
    return NNC_OK;
}

static nnc_status check_size(const part *f, int64_t want, int64_t there, nnc_sink *sink)
{
    if (want == there)
        return NNC_OK;
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = f->path},
        "its header says %lld bytes, the file has %lld%s", (long long)want, (long long)there,
        there < want ? ": is it cut off?" : "");
}

#ifdef NNC_HAVE_ZLIB
/* Inflates up to n bytes; returns how many there were. */
static size_t inflate_some(z_stream *z, const nnc_map *m, uint8_t *to, size_t n, int *code)
{
    size_t made = 0;
    for (*code = Z_OK; *code == Z_OK && made < n;) { /* zlib counts in 32 bits */
        const size_t left = m->n - (size_t)(z->next_in - m->data), room = n - made;
        const uInt in = left < 1u << 30 ? (uInt)left : 1u << 30,
                   out = room < 1u << 30 ? (uInt)room : 1u << 30;
        z->avail_in = in;
        z->next_out = to + made;
        z->avail_out = out;
        *code = inflate(z, Z_NO_FLUSH);
        made += out - z->avail_out;
        if (*code == Z_OK && z->avail_out == out && z->avail_in == in)
            *code = Z_BUF_ERROR;
    }
    return made;
}

static nnc_status inflate_all(part *f, z_stream *z, int dims, nnc_sink *sink)
{
    uint8_t head[HEAD + 4 * MAX_DIMS], more;
    int64_t bytes = 0;
    int code;
    const size_t h = HEAD + 4 * (size_t)dims, got = inflate_some(z, &f->map, head, h, &code);
    NNC_TRY(read_head(f, head, got, dims, &bytes, sink));
    if ((uint64_t)bytes / 1032 > f->map.n) /* deflate makes at most 1032 bytes of one */
        return fail_idx(f, sink, "it says more numbers than its compressed bytes can make");
    f->own = nnc_malloc((size_t)bytes - h);
    NNC_NEED(f->own, sink);
    const size_t made =
        code == Z_OK ? inflate_some(z, &f->map, f->own, (size_t)bytes - h, &code) : 0;
    if (code == Z_OK) /* the checksum is read with the end */
        (void)inflate_some(z, &f->map, &more, 1, &code);
    if (code != Z_STREAM_END || made != (size_t)bytes - h)
        return fail_idx(f, sink, "its compressed bytes are damaged or cut off");
    f->at = f->own;
    nnc_map_close(&f->map);
    return NNC_OK;
}

static nnc_status read_gz(part *f, int dims, nnc_sink *sink)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)f->map.data};
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return nnc_nomem(sink);
    nnc_status s = inflate_all(f, &z, dims, sink);
    inflateEnd(&z);
    return s;
}
#else
static nnc_status read_gz(part *f, int dims, nnc_sink *sink)
{
    (void)dims;
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = f->path},
        "is compressed, and nnc was built without zlib (apt-get install zlib1g-dev): gunzip it");
}
#endif

static nnc_status open_one(part *f, int dims, nnc_sink *sink)
{
    int64_t bytes = 0;
    NNC_TRY(nnc_map_open(&f->map, f->path, sink));
    if (is_gz(f->map.data, f->map.n))
        return read_gz(f, dims, sink);
    NNC_TRY(read_head(f, f->map.data, f->map.n, dims, &bytes, sink));
    f->at = f->map.data + HEAD + 4 * (size_t)dims;
    return check_size(f, bytes, (int64_t)f->map.n, sink);
}

/* ---- samples --------------------------------------------------------------------------------- */

static nnc_status picture(
    const nnc_source *o, int64_t i, int k, int channels, nnc_scratch *s, nnc_sink *sink)
{
    const idx *x = (const idx *)o;
    const int64_t plane = (int64_t)o->h * o->w;
    const nnc_pixels p = {x->picture.at + i * plane, 1, o->h, o->w, plane, o->w, 1};
    (void)k;
    return nnc_picture_set(&s->now, &p, channels, sink);
}

static nnc_status row(const nnc_source *o, int64_t i, int k, void *to, nnc_sink *sink)
{
    (void)k, (void)sink;
    return nnc_source_class(((const idx *)o)->label.at[i], to);
}

static void put_name(const nnc_source *o, int64_t i, nnc_text *file, char place[64])
{
    snprintf(place, 64, "label %lld", (long long)i);
    nnc_puts(file, ((const idx *)o)->label.path);
}

static void close_files(nnc_source *o)
{
    idx *x = (idx *)o;
    nnc_map_close(&x->picture.map);
    nnc_map_close(&x->label.map);
    nnc_free(x->picture.own);
    nnc_free(x->label.own);
}

static const nnc_source_ops ops = {picture, row, put_name, close_files};

/* The name of the labels' file: "train-labels-idx1-ubyte" of "train-images-idx3-ubyte". NULL: the name does not say. */
static nnc_status name_labels(idx *x, const char *of, nnc_sink *sink)
{
    const char *slash = strrchr(of, '/'), *images = strstr(slash ? slash : of, "images");
    char *path = NULL;
    if (!images)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = of},
            "has pictures (idx): name the file of their classes in --labels");
    path = nnc_arena_printf(&x->o.arena, "%.*slabels%s", (int)(images - of), of, images + 6);
    NNC_NEED(path, sink);
    char *three = strstr(path + (images - of), "idx3");
    if (three)
        three[3] = '1';
    x->label.path = path;
    if (nnc_file_exists(path))
        return NNC_OK;
    return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = path},
        "does not exist: it would have the labels of %s; another file: --labels", of);
}

static nnc_status open_pair(idx *x, const nnc_request *q, const char *pictures, nnc_sink *sink)
{
    x->picture.path = nnc_arena_strdup(&x->o.arena, pictures);
    x->label.path = nnc_arena_strdup(&x->o.arena, q->labels);
    NNC_NEED(x->picture.path && (x->label.path || !q->labels), sink);
    if (!q->labels)
        NNC_TRY(name_labels(x, pictures, sink));
    NNC_TRY(open_one(&x->picture, 3, sink));
    NNC_TRY(open_one(&x->label, 1, sink));
    x->o.n = x->picture.dim[0];
    x->o.h = (int)x->picture.dim[1];
    x->o.w = (int)x->picture.dim[2];
    if (x->label.dim[0] == x->o.n)
        return NNC_OK;
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = x->label.path},
        "has %u labels, %s %u pictures", x->label.dim[0], pictures, x->picture.dim[0]);
}

nnc_status nnc_idx_source(
    const nnc_request *q, const char *pictures, nnc_source **out, nnc_sink *sink)
{
    idx *x = nnc_calloc(1, sizeof *x);
    NNC_NEED(x, sink);
    x->o = (nnc_source){.ops = &ops, .format = "idx", .pictures = true, .c = 1};
    return nnc_source_made(&x->o, open_pair(x, q, pictures, sink), out);
}
