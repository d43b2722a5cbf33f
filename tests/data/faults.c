/* tests/data/faults.c -- allocations that fail, and files with random damage. A failure is repeated with --seed N. NNC_FUZZ_SECONDS: for so
 * long per kind of file, otherwise a few hundred rounds. */
#include "help.h"
#include "jpegs.h"
#include <stdlib.h>

static bool pictures(void)
{
    const char *why;
    if (nnc_plugin("jpeg", "nnc_decoder_jpeg", &why) && nnc_plugin("png", "nnc_decoder_png", &why))
        return true;
    test_skip("%s", why);
    return false;
}

/* ---- failing allocations --------------------------------------------------------------------- */

/* Opens data without threads (allocations are counted in one) and takes two batches. */
static nnc_status attempt(const nnc_data_options *o, const td_model *m)
{
    nnc_data *d = NULL;
    const void *at[2];
    nnc_status s = td_open(o, m, &d);
    if (!s)
        nnc_data_begin(d, NNC_DATA_train, 1, 0);
    for (int i = 0; i < 2 && !s; i++)
        s = nnc_data_next(d, at, test_sink);
    nnc_data_close(d);
    return s;
}

static void sweep(const nnc_data_options *o, const td_model *m)
{
    int failed = 0, fine = 0;
    CHECK_OK(attempt(o, m));
    for (int64_t n = 1; fine < 3 && n < 10000; n++) {
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        const nnc_status s = attempt(o, m);
        nnc_fail_alloc_after(0);
        fine = s ? 0 : fine + 1;
        failed += s != NNC_OK;
        if (s && s != NNC_E_NOMEM)
            test_fail(__FILE__, __LINE__, "%s, allocation %lld: %s", o->path, (long long)n,
                nnc_status_name(s));
        CHECK(!s == !nnc_sink_errors(test_sink));
    }
    CHECK(failed >= 8);
}

TEST(failing_allocations)
{
    static const float x[8 * 12] = {0};
    static const int64_t y[8] = {0}, dim[] = {8, 1, 3, 4};
    const nnc_type tx = nnc_type_make(DT_f32, 4, dim), ty = nnc_type_make(DT_i64, 1, dim);
    NNC_LOCAL(nnc_text) t = {0}, p = {0}, gz = {0};
    td_cifar(&t, 1, 0, 9);
    td_write("c/a.bin", t.s, t.n);
    td_idx_files(9, 3, 4);
    td_idx_pictures(&p, 9, 3, 4);
    td_gz(&gz, p.s, p.n);
    td_write("packed.gz", gz.s, gz.n);
    td_write_tensors("a.npz", 2, (const char *const[]){"x", "target"},
        (const nnc_type *const[]){&tx, &ty}, (const void *const[]){x, y});
    const td_model wide = {{3, 3, 20, 20}, 4, 10}, small = {{3, 1, 3, 4}, 4, 10};
    const nnc_data_options with = {.loaders = -1,
        .resize = "24",
        .crop = NNC_CROP_random,
        .flip = true,
        .rotate = 10,
        .mean = "0.5"};
    nnc_data_options o = with;
    o.path = td_path("c");
    sweep(&o, &wide);
    o = (nnc_data_options){.path = td_dir(), .loaders = -1};
    sweep(&o, &small);
    o.path = td_path("packed.gz");
    o.labels = td_path("train-labels-idx1-ubyte");
    if (nnc_zlib_version())
        sweep(&o, &small);
    o = (nnc_data_options){.path = td_path("a.npz"), .loaders = -1, .flip = true};
    sweep(&o, &small);
    td_remove();
}

TEST(failing_allocations_of_pictures)
{
    NNC_LOCAL(nnc_text) t = {0};
    const td_model m = {{2, 3, 8, 8}, 4, 10};
    td_png(&t, 2, 8, 3, 9, 7);
    td_write("p/a/1.png", t.s, t.n);
    td_write("p/a/2.png", t.s, t.n);
    td_write("p/b/1.jpg", jpeg_colour, sizeof jpeg_colour);
    td_write("p/b/2.jpg", jpeg_inks, sizeof jpeg_inks);
    const nnc_data_options o = {
        .path = td_path("p"), .loaders = -1, .resize = "9", .crop = NNC_CROP_random};
    if (pictures())
        sweep(&o, &m);
    td_remove();
}

/* ---- random damage --------------------------------------------------------------------------- */

static void damage(nnc_text *x, uint64_t key)
{
    uint64_t at = 0;
#define DRAW(n) ((n) ? nnc_rng_u32(key, at++) % (uint32_t)(n) : 0)
    for (uint32_t times = 1 + DRAW(4); times && x->n; times--) {
        const size_t near = DRAW(2) ? 64 : x->n, i = DRAW(near < x->n ? near : x->n);
        switch (DRAW(5)) {
        case 0: x->s[i] ^= (char)(1 << DRAW(8)); break;
        case 1: x->s[i] = (char)DRAW(256); break;
        case 2: x->n = i; break;
        case 3:
            for (size_t b = 0; b < 4 && i + b < x->n; b++)
                x->s[i + b] = (char)(DRAW(2) ? 255 : 0);
            break;
        default: nnc_putc(x, (char)DRAW(256)); break;
        }
    }
#undef DRAW
}

/* Opens a damaged file and reads all of it: it is refused with one message, or it is whole. */
static void open_damaged(const char *name, const nnc_text *whole, const nnc_data_options *o,
    const td_model *m, uint64_t seed)
{
    NNC_LOCAL(nnc_text) x = {0};
    nnc_data *d = NULL;
    const void *at[2];
    nnc_putn(&x, whole->s, whole->n);
    damage(&x, nnc_rng_key(name, seed));
    nnc_sink_clear(test_sink);
    td_write(name, nnc_text_str(&x), x.n);
    nnc_status s = td_open(o, m, &d);
    if (!s)
        nnc_data_begin(d, NNC_DATA_train, 1, 0);
    for (int64_t i = 0; !s && i < nnc_data_batches(d, NNC_DATA_train); i++)
        s = nnc_data_next(d, at, test_sink);
    if ((s && s != NNC_E_MODEL) || nnc_sink_errors(test_sink) != (s ? 1 : 0))
        test_fail(__FILE__, __LINE__, "%s, --seed %llu: %s with %zu messages", name,
            (unsigned long long)seed, nnc_status_name(s), nnc_sink_errors(test_sink));
    nnc_data_close(d);
}

static void fuzz(
    const char *name, const nnc_text *whole, const nnc_data_options *o, const td_model *m)
{
    const char *seconds = getenv("NNC_FUZZ_SECONDS");
    const int64_t until = seconds ? nnc_now_ns() + strtoll(seconds, NULL, 10) * 1000000000 : 0;
    uint64_t i = 0;
    for (; seconds ? nnc_now_ns() < until : i < 600; i++)
        open_damaged(name, whole, o, m, test_seed + i);
    if (seconds)
        printf("%s: %llu rounds\n", name, (unsigned long long)i);
}

TEST(fuzz_cifar)
{
    NNC_LOCAL(nnc_text) t = {0};
    const td_model m = {{1, 3, 32, 32}, 4, 10};
    const nnc_data_options o = {.path = td_path("a.bin"), .loaders = -1};
    td_cifar(&t, 1, 0, 3);
    fuzz("a.bin", &t, &o, &m);
    td_remove();
}

TEST(fuzz_idx)
{
    NNC_LOCAL(nnc_text) p = {0}, l = {0}, gz = {0};
    const td_model m = {{1, 1, 5, 4}, 4, 10};
    const nnc_data_options o = {
        .path = td_path("images"), .labels = td_path("labels"), .loaders = -1, .resize = "5x4"};
    td_idx_pictures(&p, 6, 5, 4);
    td_idx_labels(&l, 6);
    td_gz(&gz, p.s, p.n);
    td_write("labels", l.s, l.n);
    fuzz("images", &p, &o, &m);
    if (nnc_zlib_version())
        fuzz("images", &gz, &o, &m);
    td_write("images", p.s, p.n);
    fuzz("labels", &l, &o, &m);
    td_remove();
}

/* A .npy file. */
static void put_npy(nnc_text *t, const char *type, const char *shape, const void *p, size_t n)
{
    char head[118];
    const int used = snprintf(
        head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);
    nnc_putn(t, "\x93NUMPY\1\0\x76\0", 10);
    nnc_printf(t, "%s%*s\n", head, 117 - used, "");
    nnc_putn(t, p, n);
}

/* Files of tensors: named ones, and one of the only input with its labels apart. */
TEST(fuzz_tensors)
{
    static const char *const named[] = {"f.npz", "f.safetensors"};
    const td_model m = {{4, 1, 3, 4}, 4, 10};
    float x[8 * 12] = {0};
    const int64_t y[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const nnc_type tx = nnc_type_make(DT_f32, 4, (const int64_t[]){8, 1, 3, 4}),
                   ty = nnc_type_make(DT_i64, 1, (const int64_t[]){8});
    NNC_LOCAL(nnc_text) of_x = {0}, of_y = {0};
    put_npy(&of_x, "<f4", "(8, 1, 3, 4)", x, sizeof x);
    put_npy(&of_y, "<i8", "(8,)", y, sizeof y);
    for (size_t i = 0; i < 2; i++) {
        NNC_LOCAL(nnc_text) t = {0};
        char *file = NULL;
        size_t n = 0;
        const nnc_data_options o = {.path = td_path(named[i]), .loaders = -1};
        td_write_tensors(named[i], 2, (const char *const[]){"x", "target"},
            (const nnc_type *const[]){&tx, &ty}, (const void *const[]){x, y});
        CHECK_OK(nnc_file_read(o.path, 0, &file, &n, test_sink));
        nnc_putn(&t, file, n);
        nnc_free(file);
        fuzz(named[i], &t, &o, &m);
    }
    const nnc_data_options o = {.path = td_write("x.npy", of_x.s, of_x.n),
        .labels = td_write("y.npy", of_y.s, of_y.n),
        .loaders = -1};
    fuzz("x.npy", &of_x, &o, &m);
    td_write("x.npy", of_x.s, of_x.n);
    fuzz("y.npy", &of_y, &o, &m);
    td_remove();
}

static void fuzz_pictures(const char *name, const void *p, size_t n)
{
    NNC_LOCAL(nnc_text) t = {0};
    const td_model m = {{1, 3, 8, 8}, 4, 10};
    const nnc_data_options o = {.path = td_path("f"), .loaders = -1, .resize = "8x8"};
    nnc_putn(&t, p, n);
    if (pictures())
        fuzz(name, &t, &o, &m);
    td_remove();
}

TEST(fuzz_png)
{
    static const int kinds[][3] = {{2, 8, 3}, {3, 4, 1}, {6, 16, 4}};
    for (size_t i = 0; i < NNC_COUNT(kinds); i++) {
        NNC_LOCAL(nnc_text) t = {0};
        td_png(&t, kinds[i][0], kinds[i][1], kinds[i][2], 7, 9);
        fuzz_pictures("f/a/1.png", t.s, t.n);
    }
}

TEST(fuzz_jpeg)
{
    fuzz_pictures("f/a/1.jpg", jpeg_colour, sizeof jpeg_colour);
    fuzz_pictures("f/a/1.jpg", jpeg_progressive, sizeof jpeg_progressive);
    fuzz_pictures("f/a/1.jpg", jpeg_inks, sizeof jpeg_inks);
}
