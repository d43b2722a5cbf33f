/* tests/data/help.c -- data sets made by hand. */
#include "help.h"
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

const char *td_dir(void)
{
    if (!*dir) {
        strcpy(dir, "/tmp/nnc-data-XXXXXX");
        CHECK(mkdtemp(dir) != NULL);
    }
    return dir;
}

const char *td_path(const char *name)
{
    static char path[256][256];
    char full[256];
    int i = 0;
    snprintf(full, sizeof full, "%s/%s", td_dir(), name);
    while (i < 255 && *path[i] && strcmp(path[i], full) != 0)
        i++;
    if (i == 255)
        memset(path, 0, sizeof path); /* of tests before */
    return strcpy(path[i % 255], full);
}

const char *td_write(const char *name, const void *data, size_t n)
{
    const char *path = td_path(name);
    char folder[256];
    for (const char *p = path + strlen(td_dir()) + 1; (p = strchr(p, '/')) != NULL; p++) {
        snprintf(folder, sizeof folder, "%.*s", (int)(p - path), path);
        mkdir(folder, 0777);
    }
    unlink(path);
    FILE *f = fopen(path, "wbe");
    CHECK(f && fwrite(data, 1, n, f) == n);
    if (f)
        fclose(f);
    return path;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *w)
{
    (void)st, (void)kind, (void)w;
    return remove(path);
}

void td_remove(void)
{
    if (*dir)
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *dir = 0;
}

/* ---- formats --------------------------------------------------------------------------------- */

uint8_t td_cifar_byte(int record, int at)
{
    return (uint8_t)nnc_rng_u32(7, (uint64_t)record * 3072 + (uint64_t)at);
}

void td_cifar(nnc_text *t, int head, int first, int n)
{
    for (int r = first; r < first + n; r++) {
        if (head == 2)
            nnc_putc(t, (char)(r * 7 % 20));
        nnc_putc(t, (char)(head == 1 ? r % 10 : r * 3 % 100));
        for (int i = 0; i < 3072; i++)
            nnc_putc(t, (char)td_cifar_byte(r, i));
    }
}

static void put_big(nnc_text *t, uint32_t v)
{
    for (int i = 24; i >= 0; i -= 8)
        nnc_putc(t, (char)(v >> i));
}

uint8_t td_idx_byte(int picture, int at)
{
    return (uint8_t)nnc_rng_u32(9, (uint64_t)picture * 65536 + (uint64_t)at);
}

void td_idx_pictures(nnc_text *t, int n, int h, int w)
{
    put_big(t, 0x803);
    put_big(t, (uint32_t)n);
    put_big(t, (uint32_t)h);
    put_big(t, (uint32_t)w);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < h * w; k++)
            nnc_putc(t, (char)td_idx_byte(i, k));
}

void td_idx_labels(nnc_text *t, int n)
{
    put_big(t, 0x801);
    put_big(t, (uint32_t)n);
    for (int i = 0; i < n; i++)
        nnc_putc(t, (char)(i % 10));
}

void td_idx_files(int n, int h, int w)
{
    NNC_LOCAL(nnc_text) p = {0}, l = {0};
    td_idx_pictures(&p, n, h, w);
    td_idx_labels(&l, n);
    td_write("train-images-idx3-ubyte", p.s, p.n);
    td_write("train-labels-idx1-ubyte", l.s, l.n);
}

static uint32_t crc32(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;
    for (; n; n--, p++) {
        c ^= *p;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
    }
    return ~c;
}

static void put_little(nnc_text *t, uint32_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        nnc_putc(t, (char)(v >> 8 * i));
}

void td_gz(nnc_text *t, const void *data, size_t n)
{
    const uint8_t *p = data;
    nnc_putn(t, "\x1f\x8b\x08\0\0\0\0\0\0\3", 10);
    for (size_t at = 0, k; at < n; at += k) { /* blocks that are stored as they are */
        k = n - at < 1000 ? n - at : 1000;
        nnc_putc(t, at + k == n);
        put_little(t, (uint32_t)k, 2);
        put_little(t, ~(uint32_t)k, 2);
        nnc_putn(t, (const char *)p + at, k);
    }
    put_little(t, crc32(p, n), 4);
    put_little(t, (uint32_t)n, 4);
}

static void put_chunk(nnc_text *t, const char *name, const nnc_text *data)
{
    NNC_LOCAL(nnc_text) all = {0};
    nnc_puts(&all, name);
    nnc_putn(&all, nnc_text_str(data), data->n);
    put_big(t, (uint32_t)data->n);
    nnc_putn(t, all.s, all.n);
    put_big(t, crc32((const uint8_t *)all.s, all.n));
}

int td_png_number(int i, int bits)
{
    return (int)(nnc_rng_u32(11, (uint64_t)i) % (bits < 8 ? 1u << bits : 256));
}

/* zlib's format with one block that is stored as it is. */
static void put_zlib(nnc_text *t, const nnc_text *rows)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < rows->n; i++) {
        a = (a + (uint8_t)rows->s[i]) % 65521;
        b = (b + a) % 65521;
    }
    nnc_putn(t, "\x78\x01\x01", 3);
    put_little(t, (uint32_t)rows->n, 2);
    put_little(t, ~(uint32_t)rows->n, 2);
    nnc_putn(t, rows->s, rows->n);
    put_big(t, b << 16 | a);
}

static void put_rows(nnc_text *t, int bits, int channels, int h, int w)
{
    for (int y = 0; y < h; y++) {
        unsigned byte = 0, used = 0;
        nnc_putc(t, 0); /* no filter */
        for (int x = 0; x < w * channels; x++) {
            const unsigned v = (unsigned)td_png_number(y * w * channels + x, bits);
            if (bits >= 8)
                nnc_putc(t, (char)v);
            if (bits == 16)
                nnc_putc(t, (char)v);
            if (bits >= 8)
                continue;
            byte = byte << bits | v;
            used += (unsigned)bits;
            if (used == 8 || x + 1 == w * channels) {
                nnc_putc(t, (char)(byte << (8 - used)));
                byte = used = 0;
            }
        }
    }
}

void td_png(nnc_text *t, int type, int bits, int channels, int h, int w)
{
    NNC_LOCAL(nnc_text) head = {0}, palette = {0}, rows = {0}, packed = {0}, none = {0};
    put_big(&head, (uint32_t)w);
    put_big(&head, (uint32_t)h);
    nnc_putc(&head, (char)bits);
    nnc_putc(&head, (char)type);
    nnc_putn(&head, "\0\0\0", 3);
    for (int i = 0; i < 3 << bits && type == 3; i++)
        nnc_putc(&palette, (char)(i / 3 * 7 + i % 3 * 50));
    put_rows(&rows, bits, channels, h, w);
    put_zlib(&packed, &rows);
    nnc_putn(t, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(t, "IHDR", &head);
    if (palette.n)
        put_chunk(t, "PLTE", &palette);
    put_chunk(t, "IDAT", &packed);
    put_chunk(t, "IEND", &none);
}

/* ---- opening --------------------------------------------------------------------------------- */

nnc_status td_open(const nnc_data_options *o, const td_model *m, nnc_data **out)
{
    const nnc_data_input in[] = {{"x", nnc_type_make(DT_f32, m->rank, m->dim), false},
        {"target", nnc_type_make(DT_i64, 1, m->dim), true, NNC_DATA_none,
            m->padded ? TD_PAD : NNC_DATA_none}};
    *out = NULL;
    return nnc_data_open(o, 2, in, m->classes, out, test_sink);
}

int64_t td_numel(const td_model *m)
{
    int64_t n = 1;
    for (int i = 0; i < m->rank; i++)
        n *= m->dim[i];
    return n;
}

uint64_t td_hash(nnc_data *d, const td_model *m, nnc_data_part part, int64_t epoch, int64_t first)
{
    uint64_t h = 0;
    nnc_data_begin(d, part, epoch, first);
    for (int64_t b = first; b < nnc_data_batches(d, part); b++) {
        const void *batch[2];
        const nnc_status s = nnc_data_next(d, batch, test_sink);
        CHECK_OK(s);
        if (s)
            return 0;
        h = nnc_hash64(batch[0], (size_t)td_numel(m) * sizeof(float), h);
        h = nnc_hash64(batch[1], (size_t)m->dim[0] * 8, h);
    }
    return h;
}

typedef struct given {
    const void *const *data;
} given;

static nnc_status take(void *ctx, int i, const void **out, nnc_sink *sink)
{
    (void)sink;
    *out = ((const given *)ctx)->data[i];
    return NNC_OK;
}

void td_write_tensors(const char *name, int n, const char *const *names,
    const nnc_type *const *type, const void *const *data)
{
    given g = {data};
    const nnc_tensor_source s = {n, names, type, take, &g};
    CHECK_OK(nnc_tensors_write(td_path(name), &s, test_sink));
}
