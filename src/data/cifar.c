/* data/cifar.c -- the binary files of CIFAR-10 and CIFAR-100: records of one label byte (CIFAR-100: coarse, then fine), then 32 x 32 bytes
 * of red, of green and of blue. Which of the two is decided by the size and the labels. */
#include "data/internal.h"

#include <string.h>

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE };

typedef struct part {
    nnc_map map;
    char *path;
    int64_t n; /* records */
} part;

typedef struct cifar {
    nnc_source o;
    part *file;
    size_t n_file;
    int head, label; /* bytes before the pixels, and which of them is the class */
} cifar;

/* The file of record *i, which becomes its number there. */
static const part *file_of(const cifar *c, int64_t *i)
{
    const part *f = c->file;
    for (; *i >= f->n; f++)
        *i -= f->n;
    return f;
}

static const uint8_t *record(const cifar *c, int64_t i)
{
    const part *f = file_of(c, &i);
    return f->map.data + i * (c->head + PIXELS);
}

static nnc_status picture(
    const nnc_source *o, int64_t i, int k, int channels, nnc_scratch *s, nnc_sink *sink)
{
    const cifar *c = (const cifar *)o;
    const nnc_pixels p = {record(c, i) + c->head, 3, SIDE, SIDE, SIDE * SIDE, SIDE, 1};
    (void)k;
    return nnc_picture_set(&s->now, &p, channels, sink);
}

static nnc_status row(const nnc_source *o, int64_t i, int k, void *to, nnc_sink *sink)
{
    const cifar *c = (const cifar *)o;
    (void)k, (void)sink;
    return nnc_source_class(record(c, i)[c->label], to);
}

static void put_name(const nnc_source *o, int64_t i, nnc_text *file, char place[64])
{
    const part *f = file_of((const cifar *)o, &i);
    snprintf(place, 64, "record %lld", (long long)i);
    nnc_puts(file, f->path);
}

static void close_files(nnc_source *o)
{
    cifar *c = (cifar *)o;
    for (size_t i = 0; i < c->n_file; i++)
        nnc_map_close(&c->file[i].map);
}

static const nnc_source_ops ops = {picture, row, put_name, close_files};

/* Could all records of f be of CIFAR-10 (head 1) or CIFAR-100 (2)? *bad: the first that is not; -1: the size is wrong. */
static bool fits(const part *f, int head, int64_t *bad)
{
    const size_t bytes = (size_t)head + PIXELS;
    *bad = -1;
    if (!f->map.n || f->map.n % bytes)
        return false;
    for (size_t i = 0; i < f->map.n / bytes; i++) {
        const uint8_t *p = f->map.data + i * bytes;
        *bad = (int64_t)i;
        if (head == 1 ? p[0] > 9 : p[0] > 19 || p[1] > 99)
            return false;
    }
    return true;
}

static nnc_status refuse(const part *f, nnc_sink *sink)
{
    int64_t bad10, bad100;
    const nnc_loc loc = {.file = f->path};
    (void)fits(f, 1, &bad10);
    (void)fits(f, 2, &bad100);
    if (bad10 < 0 && bad100 < 0)
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "has %zu bytes: not a whole number of records of CIFAR-10 (%d bytes) or CIFAR-100 "
            "(%d); is it cut off?",
            f->map.n, PIXELS + 1, PIXELS + 2);
    const int head = bad10 >= 0 ? 1 : 2;
    const int64_t at = (head == 1 ? bad10 : bad100) * (head + PIXELS);
    return nnc_fail(sink, NNC_E_MODEL, loc,
        head == 1 ? "record %lld, at byte %lld, has label %d; CIFAR-10 has labels 0 to 9"
                  : "record %lld, at byte %lld, has labels %d and %d; CIFAR-100 has 0 to 19 and 0 "
                    "to 99",
        (long long)(head == 1 ? bad10 : bad100), (long long)at, f->map.data[at],
        f->map.data[at + 1]);
}

/* All files are of one kind. */
static nnc_status recognise(cifar *c, nnc_sink *sink)
{
    int64_t bad;
    for (size_t i = 0; i < c->n_file; i++) {
        part *f = &c->file[i];
        const int head = fits(f, 1, &bad) ? 1 : fits(f, 2, &bad) ? 2 : 0;
        if (!head)
            return refuse(f, sink);
        if (c->head && head != c->head)
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = f->path},
                "is of CIFAR-%d, %s of CIFAR-%d: name one of them", head == 1 ? 10 : 100,
                c->file[0].path, c->head == 1 ? 10 : 100);
        c->head = head;
        f->n = (int64_t)(f->map.n / ((size_t)head + PIXELS));
        c->o.n += f->n;
    }
    return NNC_OK;
}

static nnc_status open_files(cifar *c, const nnc_request *q, const nnc_names *names, nnc_sink *sink)
{
    const size_t n = names ? names->n : 1;
    size_t tests = 0;
    for (size_t i = 0; names && i < n; i++)
        tests += strstr(names->at[i], "test") != NULL;
    c->file = ARENA_NEW(&c->o.arena, part, n);
    NNC_NEED(c->file, sink);
    for (size_t i = 0; i < n; i++) {
        part *f = &c->file[c->n_file];
        if (names && tests < n && strstr(names->at[i], "test"))
            continue; /* test_batch.bin: for --validation-data */
        f->path = names ? nnc_arena_printf(&c->o.arena, "%s/%s", q->path, names->at[i])
                        : nnc_arena_strdup(&c->o.arena, q->path);
        NNC_NEED(f->path, sink);
        c->n_file++;
        NNC_TRY(nnc_map_open(&f->map, f->path, sink));
    }
    return recognise(c, sink);
}

nnc_status nnc_cifar_source(
    const nnc_request *q, const nnc_names *files, nnc_source **out, nnc_sink *sink)
{
    cifar *c = nnc_calloc(1, sizeof *c);
    NNC_NEED(c, sink);
    c->o = (nnc_source){.ops = &ops, .pictures = true, .c = 3, .h = SIDE, .w = SIDE};
    NNC_TRY(nnc_source_made(&c->o, open_files(c, q, files, sink), out));
    const bool coarse = c->head == 2 && q->classes == 20;
    c->label = c->head == 2 && !coarse;
    c->o.format = c->head == 1 ? "CIFAR-10" : coarse ? "CIFAR-100, coarse labels" : "CIFAR-100";
    return NNC_OK;
}
