/* tensors/zip.c -- .npz: a zip archive of .npy files. The directory at the archive's end lists its entries, which are stored or deflated.
 * Sizes beyond 4 GiB are in its zip64 fields, which NumPy always writes. Deflated ones need zlib. Written entries are stored. */
#include "tensors/internal.h"
#include <string.h>
#ifdef NNC_HAVE_ZLIB
#include <zlib.h>
#endif

enum {
    LOCAL = 0x04034b50, /* signatures of records, and their bytes before names and extra fields */
    ENTRY = 0x02014b50,
    END = 0x06054b50,
    END64 = 0x06064b50,
    LOCATOR64 = 0x07064b50,
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    FIRST = 1 << 16, /* bytes of a compressed entry that are inflated for its header */
};

/* Deflate makes at most 1032 bytes of one: a directory that says more lies, and no memory is taken for it. */
#define MAX_RATIO 1032

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static nnc_status damaged(const nnc_tensors *t, nnc_sink *sink, const char *why)
{
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = t->file},
        "damaged .npz file (a zip archive): %s", why);
}

/* Four bytes a step, with tables that take less time to fill than a tensor to read. */
uint32_t nnc_crc32(uint32_t crc, const void *data, size_t n)
{
    uint32_t table[4][256];
    const uint8_t *p = data;
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = k ? table[k - 1][i] : i;
            for (int bit = 0; bit < 8; bit++)
                c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
            table[k][i] = c;
        }
    crc = ~crc;
    for (; n >= 4; n -= 4, p += 4) {
        crc ^= (uint32_t)get(p, 4);
        crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^
              table[0][crc >> 24];
    }
    for (; n; n--)
        crc = table[0][(crc ^ *p++) & 255] ^ crc >> 8;
    return ~crc;
}

#ifdef NNC_HAVE_ZLIB
static const char *inflate_to(z_stream *z, const nnc_packing *k, uint8_t *to, uint64_t n)
{
    while (n) { /* zlib counts in 32 bits */
        const uint64_t left = k->n - (uint64_t)(z->next_in - k->p);
        const uInt in = left < 1u << 30 ? (uInt)left : 1u << 30,
                   out = n < 1u << 30 ? (uInt)n : 1u << 30;
        z->avail_in = in;
        z->next_out = to;
        z->avail_out = out;
        int code = inflate(z, Z_NO_FLUSH);
        const uint64_t made = out - z->avail_out;
        to += made;
        n -= made;
        if (n && (code != Z_OK || (made == 0 && z->avail_in == in)))
            return "its compressed bytes are damaged";
    }
    return NULL;
}

const char *nnc_unzip(const nnc_packing *k, uint8_t *a, uint64_t head, uint8_t *b)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)k->p};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return "zlib has no memory";
    const char *why = inflate_to(&z, k, a, head);
    if (!why && b)
        why = inflate_to(&z, k, b, k->size - head);
    inflateEnd(&z);
    return why;
}
static const char *const no_zlib = NULL;

const char *nnc_zlib_version(void)
{
    return zlibVersion();
}
#else
const char *nnc_unzip(const nnc_packing *k, uint8_t *a, uint64_t head, uint8_t *b)
{
    (void)k, (void)a, (void)head, (void)b;
    return "nnc was built without zlib";
}

const char *nnc_zlib_version(void)
{
    return NULL;
}

static const char *const no_zlib =
    "it is compressed, and nnc was built without zlib: numpy.savez writes it uncompressed";
#endif

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct directory { /* of the archive */
    uint64_t at, bytes, n;
} directory;

/* The record that ends the archive, after which there may be a comment. */
static const uint8_t *find_end(const nnc_map *m)
{
    for (size_t back = END_BYTES; back <= m->n && back <= END_BYTES + 65535; back++) {
        const uint8_t *p = m->data + m->n - back;
        if (get(p, 4) == END && get(p + 20, 2) == back - END_BYTES)
            return p;
    }
    return NULL;
}

static nnc_status find_directory(const nnc_tensors *t, directory *d, nnc_sink *sink)
{
    const nnc_map *m = &t->map;
    const uint8_t *end = find_end(m);
    if (!end)
        return damaged(t, sink, "it has no directory at its end: is it cut off?");
    *d = (directory){get(end + 16, 4), get(end + 12, 4), get(end + 10, 2)};
    bool disks = get(end + 4, 2) || get(end + 6, 2) || get(end + 8, 2) != d->n;
    uint64_t before = (uint64_t)(end - m->data);
    if (before >= LOCATOR_BYTES && get(end - LOCATOR_BYTES, 4) == LOCATOR64) {
        const uint64_t at = get(end - LOCATOR_BYTES + 8, 8);
        if (at > before || before - at < END64_BYTES || get(m->data + at, 4) != END64)
            return damaged(t, sink, "its directory's place is not in the file");
        const uint8_t *p = m->data + at;
        *d = (directory){get(p + 48, 8), get(p + 40, 8), get(p + 32, 8)};
        disks = get(p + 16, 4) || get(p + 20, 4) || get(p + 24, 8) != d->n;
        before = at;
    }
    if (disks)
        return damaged(t, sink, "it is a part of several");
    if (d->at > before || d->bytes > before - d->at)
        return damaged(t, sink, "its directory's place is not in the file");
    if (d->n > d->bytes / ENTRY_BYTES)
        return damaged(t, sink, "its directory has fewer entries than it says");
    return NNC_OK;
}

typedef struct member { /* an entry of the directory */
    const char *name;
    size_t n_name;
    uint64_t flags, method, packed, size, at; /* at: of the local header */
    uint32_t crc;
} member;

/* Sizes that do not fit in 32 bits are in an extra field, those alone, in this order. */
static bool read_zip64(member *e, const uint8_t *x, size_t n)
{
    uint64_t *const field[] = {&e->size, &e->packed, &e->at};
    for (size_t left; n >= 4; x += left, n -= left) {
        left = 4 + (size_t)get(x + 2, 2);
        if (left > n)
            return false;
        if (get(x, 2) != 1)
            continue;
        const uint8_t *p = x + 4;
        for (size_t i = 0; i < NNC_COUNT(field); i++)
            if (*field[i] == UINT32_MAX) {
                if (p + 8 > x + left)
                    return false;
                *field[i] = get(p, 8);
                p += 8;
            }
        return true;
    }
    return true;
}

/* The entry at *p, which then is the next one. */
static bool read_member(const uint8_t **p, const uint8_t *end, member *e)
{
    const uint8_t *q = *p;
    if ((size_t)(end - q) < ENTRY_BYTES || get(q, 4) != ENTRY)
        return false;
    const size_t n_name = get(q + 28, 2), n_extra = get(q + 30, 2), n_note = get(q + 32, 2);
    if ((size_t)(end - q) - ENTRY_BYTES < n_name + n_extra + n_note)
        return false;
    *e = (member){.name = (const char *)q + ENTRY_BYTES,
        .n_name = n_name,
        .flags = get(q + 8, 2),
        .method = get(q + 10, 2),
        .crc = (uint32_t)get(q + 16, 4),
        .packed = get(q + 20, 4),
        .size = get(q + 24, 4),
        .at = get(q + 42, 4)};
    *p = q + ENTRY_BYTES + n_name + n_extra + n_note;
    return !memchr(e->name, 0, n_name) && read_zip64(e, q + ENTRY_BYTES + n_name, n_extra);
}

/* Reads the .npy header of an entry whose bytes are at k->p. */
static const char *read_npy(
    const nnc_tensors *t, nnc_packing *k, uint8_t *first, nnc_tensor_entry *e)
{
    nnc_npy_header h = {0};
    const char *why = NULL;
    uint64_t n = k->size;
    const uint8_t *p = k->p;
    if (k->deflated) {
        n = n < FIRST ? n : FIRST;
        why = nnc_unzip(k, first, n, NULL);
        p = first;
    }
    if (!why)
        why = nnc_npy_parse(p, n, &h);
    e->type = h.type;
    if (why)
        return why;
    e->size = nnc_type_bytes(&h.type);
    if ((uint64_t)e->size != k->size - h.size)
        return "its shape needs another number of bytes than it has";
    k->head = h.size;
    k->swap = h.swap;
    k->fortran = h.fortran;
    bool as_is = !k->deflated && !h.swap && !h.fortran && h.type.dtype != DT_bool;
    e->offset = as_is ? (int64_t)(k->p - t->map.data) + (int64_t)h.size : -1;
    return NULL;
}

static const char *unreadable(const member *m)
{
    return m->flags & 1                       ? "it is encrypted"
           : m->method != 0 && m->method != 8 ? "it is compressed in another way than deflate"
           : m->method == 8                   ? no_zlib
                                              : NULL;
}

static nnc_status damaged_entry(nnc_tensors *t, const char *name, const char *what, nnc_sink *sink)
{
    const char *text = nnc_arena_printf(&t->a, "%s: `%s`", what, name);
    NNC_NEED(text, sink);
    return damaged(t, sink, text);
}

/* Fills e for a member whose name ends in .npy. A damaged archive is an error; an entry that nnc cannot read is one only for the
 * tensor that needs it (e->why). */
static nnc_status read_entry(
    nnc_tensors *t, const member *m, uint8_t *first, nnc_tensor_entry *e, nnc_sink *sink)
{
    const nnc_map *f = &t->map;
    nnc_packing *k = ARENA_NEW(&t->a, nnc_packing, 1);
    char *name = nnc_arena_strndup(&t->a, m->name, m->n_name);
    NNC_NEED(k && name, sink);
    bool npy = m->n_name > 4 && !strcmp(name + m->n_name - 4, ".npy");
    name[m->n_name - (npy ? 4 : 0)] = 0;
    if (m->at > f->n || f->n - m->at < LOCAL_BYTES || get(f->data + m->at, 4) != LOCAL)
        return damaged_entry(t, name, "an entry's place is not in the file", sink);
    uint64_t at = m->at + LOCAL_BYTES + get(f->data + m->at + 26, 2) + get(f->data + m->at + 28, 2);
    if (at > f->n || m->packed > f->n - at)
        return damaged_entry(t, name, "an entry's bytes lie beyond the end of the file", sink);
    *k = (nnc_packing){f->data + at, m->packed, m->size, .deflated = m->method == 8,
        .checked = true, .crc = m->crc};
    *e = (nnc_tensor_entry){
        .name = name, .packing = k, .why = npy ? unreadable(m) : "it is no .npy file"};
    if (!e->why && !k->deflated && k->n != k->size)
        return damaged_entry(t, name, "an entry that is stored as it is has two sizes", sink);
    if (!e->why && k->size / MAX_RATIO > k->n)
        return damaged_entry(
            t, name, "an entry would be larger than its compressed bytes can make it", sink);
    if (!e->why)
        e->why = read_npy(t, k, first, e);
    return NNC_OK;
}

nnc_status nnc_npz_list(nnc_tensors *t, nnc_sink *sink)
{
    directory d = {0};
    NNC_TRY(find_directory(t, &d, sink));
    NNC_FREED uint8_t *first = nnc_malloc(FIRST);
    t->entry = ARENA_NEW(&t->a, nnc_tensor_entry, d.n + 1);
    NNC_NEED(first && t->entry, sink);
    const uint8_t *p = t->map.data + d.at, *end = p + d.bytes;
    for (uint64_t i = 0; i < d.n; i++) {
        member m;
        if (!read_member(&p, end, &m))
            return damaged(t, sink, "its directory is damaged");
        if (m.n_name && m.name[m.n_name - 1] != '/') /* a folder */
            NNC_TRY(read_entry(t, &m, first, &t->entry[t->n++], sink));
    }
    return NNC_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_int(nnc_text *x, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        nnc_putc(x, (char)(v >> 8 * i));
}

/* Fields common to local header and directory: version, flags (names are UTF-8), method, time (1980-01-01), checksum, sizes, lengths.
 * Sizes are in the extra field. */
static void put_common(nnc_text *x, const char *name, uint32_t crc, int extra)
{
    put_int(x, 45, 2);
    put_int(x, 1 << 11, 2);
    put_int(x, 0, 2);
    put_int(x, 0, 2);
    put_int(x, 1 << 5 | 1, 2);
    put_int(x, crc, 4);
    put_int(x, UINT32_MAX, 4);
    put_int(x, UINT32_MAX, 4);
    put_int(x, strlen(name) + 4, 2);
    put_int(x, (uint64_t)extra, 2);
}

/* The name, and the extra field; at >= 0: where the local header is. */
static void put_rest(nnc_text *x, const char *name, uint64_t size, int64_t at)
{
    nnc_puts(x, name);
    nnc_puts(x, ".npy");
    put_int(x, 1, 2);
    put_int(x, at < 0 ? 16 : 24, 2);
    put_int(x, size, 8);
    put_int(x, size, 8);
    if (at >= 0)
        put_int(x, (uint64_t)at, 8);
}

static void put_directory_end(nnc_text *x, uint64_t n, uint64_t bytes, uint64_t at)
{
    put_int(x, END64, 4);
    put_int(x, END64_BYTES - 12, 8);
    put_int(x, 45, 2);
    put_int(x, 45, 2);
    put_int(x, 0, 8); /* disks */
    put_int(x, n, 8);
    put_int(x, n, 8);
    put_int(x, bytes, 8);
    put_int(x, at, 8);
    put_int(x, LOCATOR64, 4);
    put_int(x, 0, 4);
    put_int(x, at + bytes, 8);
    put_int(x, 1, 4);
    put_int(x, END, 4);
    put_int(x, 0, 4);
    put_int(x, n < UINT16_MAX ? n : UINT16_MAX, 2);
    put_int(x, n < UINT16_MAX ? n : UINT16_MAX, 2);
    put_int(x, UINT32_MAX, 4);
    put_int(x, UINT32_MAX, 4);
    put_int(x, 0, 2);
}

static nnc_status flush(nnc_text *x, nnc_out *out, uint64_t *at, nnc_sink *sink)
{
    if (x->oom)
        return nnc_nomem(sink);
    *at += x->n;
    nnc_status st = nnc_out_put(out, nnc_text_str(x), x->n);
    nnc_text_clear(x);
    return st;
}

nnc_status nnc_npz_put(const nnc_tensor_source *s, nnc_out *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) x = {0};
    NNC_LOCAL(nnc_text) list = {0};
    NNC_LOCAL(nnc_text) head = {0};
    uint64_t at = 0, from;
    for (int i = 0; i < s->n; i++) {
        const size_t bytes = (size_t)nnc_type_bytes(s->type[i]);
        const void *data;
        NNC_TRY(s->data(s->ctx, i, &data, sink));
        nnc_text_clear(&head);
        nnc_npy_put_header(&head, s->type[i]);
        const uint32_t crc = nnc_crc32(nnc_crc32(0, nnc_text_str(&head), head.n), data, bytes);
        from = at;
        put_int(&x, LOCAL, 4);
        put_common(&x, s->name[i], crc, 20);
        put_rest(&x, s->name[i], head.n + bytes, -1);
        nnc_putn(&x, nnc_text_str(&head), head.n);
        NNC_TRY(flush(&x, out, &at, sink));
        NNC_TRY(nnc_out_put(out, data, bytes));
        at += bytes;
        put_int(&list, ENTRY, 4);
        put_int(&list, 45, 2);
        put_common(&list, s->name[i], crc, 28);
        put_int(&list, 0, 2); /* comment */
        put_int(&list, 0, 8); /* disk, attributes */
        put_int(&list, UINT32_MAX, 4);
        put_rest(&list, s->name[i], head.n + bytes, (int64_t)from);
    }
    from = at;
    NNC_TRY(flush(&list, out, &at, sink));
    put_directory_end(&x, (uint64_t)s->n, at - from, from);
    return flush(&x, out, &at, sink);
}
