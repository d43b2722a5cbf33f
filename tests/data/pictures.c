/* tests/data/pictures.c -- folders of JPEG and PNG files: every kind of pixels, damage, and files that cannot be read in the middle of an
 * epoch. */
#include "help.h"
#include "jpegs.h"
#include <stdlib.h>
#include <unistd.h>

static bool has(const char *decoder)
{
    const char *why, *symbol = *decoder == 'j' ? "nnc_decoder_jpeg" : "nnc_decoder_png";
    const bool found = nnc_plugin(decoder, symbol, &why) != NULL;
    if (!found)
        test_skip("%s", why);
    return found;
}

/* The first sample's numbers, 0..255, of a folder whose pictures are h x w; false: it was refused. */
static bool first_picture(const char *folder, int c, int h, int w, float *to)
{
    nnc_data *d = NULL;
    const void *at[2];
    const td_model m = {{1, c, h, w}, 4, 10};
    const nnc_data_options o = {.path = folder, .no_shuffle = true, .loaders = -1};
    nnc_sink_clear(test_sink);
    nnc_status s = td_open(&o, &m, &d);
    if (!s) {
        nnc_data_begin(d, NNC_DATA_train, 1, 0);
        s = nnc_data_next(d, at, test_sink);
    }
    for (int i = 0; !s && i < c * h * w; i++)
        to[i] = ((const float *)at[0])[i] * 255;
    nnc_data_close(d);
    CHECK(!s == !nnc_sink_errors(test_sink));
    return !s;
}

/* ---- PNG ------------------------------------------------------------------------------------- */

/* PNG's types of colour: bytes or 16-bit numbers of a pixel by channel. */
TEST(png_of_every_kind)
{
    enum { H = 3, W = 5, GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGBA = 6 };
    static const struct {
        int type, bits, channels;
    } kinds[] = {{GREY, 8, 1}, {GREY, 1, 1}, {GREY, 2, 1}, {GREY, 4, 1}, {GREY, 16, 1}, {RGB, 8, 3},
        {RGB, 16, 3}, {PALETTE, 8, 1}, {PALETTE, 2, 1}, {GREY_ALPHA, 8, 2}, {RGBA, 8, 4},
        {RGBA, 16, 4}};
    for (size_t k = 0; has("png") && k < NNC_COUNT(kinds); k++) {
        NNC_LOCAL(nnc_text) t = {0};
        float got[3 * H * W];
        const int bits = kinds[k].bits, top = (1 << (bits < 8 ? bits : 8)) - 1;
        td_png(&t, kinds[k].type, bits, kinds[k].channels, H, W);
        td_write("p/a/1.png", t.s, t.n);
        CHECK(first_picture(td_path("p"), 3, H, W, got));
        int wrong = 0;
        for (int i = 0; i < H * W; i++)
            for (int c = 0; c < 3; c++) {
                const int n =
                    kinds[k].type == PALETTE || kinds[k].channels < 3 ? 1 : kinds[k].channels;
                const int v = td_png_number(i * kinds[k].channels + (n == 1 ? 0 : c), bits);
                const int want = kinds[k].type == PALETTE ? (v * 7 + c * 50) % 256
                                 : bits < 8               ? v * 255 / top
                                                          : v;
                wrong += abs((int)(got[c * H * W + i] + 0.5f) - want) > 0;
            }
        if (wrong)
            test_fail(__FILE__, __LINE__, "type %d of %d bits: %d numbers are wrong", kinds[k].type,
                bits, wrong);
    }
    td_remove();
}

TEST(png_cut_off_at_every_byte)
{
    NNC_LOCAL(nnc_text) t = {0};
    float got[3 * 4 * 6];
    if (!has("png"))
        return;
    td_png(&t, 2, 8, 3, 4, 6);
    for (size_t n = 0; n <= t.n; n++) {
        td_write("p/a/1.png", t.s, n);
        CHECK_INT(first_picture(td_path("p"), 3, 4, 6, got), n == t.n);
        if (n >= 4 && n < t.n)
            CHECK_DIAG("p/a/1.png:0:0: : is not a whole PNG file: ");
    }
    td_remove();
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

static double ink(int i, int x, int y)
{
    return 255 - (i == 0 ? 12 * x + 20 : i == 1 ? 18 * y + 10 : 7 * (x + y) + 15);
}

static void check_jpeg(const void *file, size_t n, int kind)
{
    enum { H = 12, W = 18 };
    float got[3 * H * W];
    double most = 0;
    td_write("j/a/1.jpg", file, n);
    CHECK(first_picture(td_path("j"), 3, H, W, got));
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                const double want = kind == 4   ? ink(c, x, y) * (255 - 5 * y) / 255
                                    : kind == 1 ? 255 - ink(0, x, y)
                                                : 255 - ink(c, x, y);
                const double e = (double)got[(c * H + y) * W + x] - want;
                most = e > most ? e : -e > most ? -e : most;
            }
    CHECK(most <= 6);
    td_remove();
}

TEST(jpegs)
{
    if (!has("jpeg"))
        return;
    check_jpeg(jpeg_colour, sizeof jpeg_colour, 3);
    check_jpeg(jpeg_progressive, sizeof jpeg_progressive, 3);
    check_jpeg(jpeg_grey, sizeof jpeg_grey, 1);
    check_jpeg(jpeg_inks, sizeof jpeg_inks, 4);
}

TEST(jpeg_cut_off_at_every_byte)
{
    static const struct {
        const uint8_t *p;
        size_t n;
    } files[] = {{jpeg_colour, sizeof jpeg_colour}, {jpeg_progressive, sizeof jpeg_progressive}};
    float got[3 * 12 * 18];
    for (size_t k = 0; has("jpeg") && k < NNC_COUNT(files); k++)
        for (size_t n = 0; n <= files[k].n; n++) {
            td_write("j/a/1.jpg", files[k].p, n);
            if (first_picture(td_path("j"), 3, 12, 18, got) != (n == files[k].n))
                test_fail(__FILE__, __LINE__, "%zu of %zu bytes", n, files[k].n);
            if (n < files[k].n)
                CHECK_DIAG("j/a/1.jpg:0:0: : is not a whole JPEG file: ");
        }
    td_remove();
}

/* ---- folders --------------------------------------------------------------------------------- */

static void write_pngs(int n)
{
    NNC_LOCAL(nnc_text) t = {0};
    td_png(&t, 2, 8, 3, 6, 6);
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "p/%s/%02d.png", i % 3 == 0 ? "b" : i % 3 == 1 ? "a" : "c", i);
        td_write(name, t.s, t.n);
    }
}

/* Classes are in the order of the folders' names, samples in that of the files' in them. */
TEST(classes_of_folders)
{
    nnc_data *d = NULL;
    const void *at[2];
    const td_model m = {{3, 3, 6, 6}, 4, 3};
    if (!has("png"))
        return;
    write_pngs(9);
    td_write("p/.hidden/x.png", "x", 1);
    td_write("p/readme.txt", "x", 1);
    const nnc_data_options o = {.path = td_path("p"), .no_shuffle = true};
    CHECK_OK(td_open(&o, &m, &d));
    nnc_data_begin(d, NNC_DATA_train, 1, 0);
    for (int b = 0; d && b < 3; b++) {
        CHECK_OK(nnc_data_next(d, at, test_sink));
        for (int k = 0; k < 3; k++)
            CHECK_INT(((const int64_t *)at[1])[k], b);
    }
    CHECK_INT(nnc_sink_count(test_sink), 0);
    nnc_data_close(d);
    const td_model few = {{3, 3, 6, 6}, 4, 2};
    CHECK_INT(td_open(&o, &few, &d), NNC_E_MODEL);
    CHECK_DIAG("p/c/02.png:0:0: : its class is 2; the model's prediction has classes 0 to 1");
    td_write("p/c/notes.gif", "x", 1);
    CHECK_OK(td_open(&o, &m, &d));
    CHECK_DIAG("1 other file is left out");
    nnc_data_close(d);
    td_write("p/d/notes.txt", "x", 1);
    CHECK_INT(td_open(&o, &m, &d), NNC_E_MODEL);
    CHECK_DIAG("p/d:0:0: : has no JPEG or PNG files");
    td_remove();
}

/* Folders for validation are classes by their names: those of training, of which some may be missing, and no others. */
TEST(classes_of_validation)
{
    nnc_data *d = NULL;
    const void *at[2];
    const td_model m = {{3, 3, 6, 6}, 4, 3};
    NNC_LOCAL(nnc_text) t = {0};
    if (!has("png"))
        return;
    write_pngs(9);
    td_png(&t, 2, 8, 3, 6, 6);
    for (int i = 0; i < 3; i++)
        td_write((const char *const[]){"v/c/1.png", "v/c/2.png", "v/b/1.png"}[i], t.s, t.n);
    char train[300];
    snprintf(train, sizeof train, "%s", td_path("p"));
    const nnc_data_options o = {.path = train, .validation_path = td_path("v"), .loaders = -1};
    CHECK_OK(td_open(&o, &m, &d));
    if (!d)
        return;
    nnc_data_begin(d, NNC_DATA_validation, 0, 0);
    CHECK_OK(nnc_data_next(d, at, test_sink));
    for (int k = 0; k < 3; k++)
        CHECK_INT(((const int64_t *)at[1])[k], k ? 2 : 1);
    nnc_data_close(d);
    td_write("v/bb/1.png", t.s, t.n);
    nnc_sink_clear(test_sink);
    CHECK_INT(td_open(&o, &m, &d), NNC_E_MODEL);
    CHECK_DIAG("v:0:0: : has a folder `bb`, which is no class of ");
    td_remove();
}

/* A picture that cannot be read ends the epoch where it is needed, with its name, for any number of threads. */
TEST(unreadable_pictures)
{
    static const int threads[] = {-1, 1, 4};
    static const char *const damage[] = {"\x89PNG text", "text", "", NULL};
    const td_model m = {{4, 3, 6, 6}, 4, 3};
    if (!has("png") || !has("jpeg"))
        return;
    for (size_t k = 0; k < NNC_COUNT(damage); k++)
        for (size_t i = 0; i < NNC_COUNT(threads); i++) {
            nnc_data *d = NULL;
            const void *at[2];
            write_pngs(24);
            const nnc_data_options o = {
                .path = td_path("p"), .no_shuffle = true, .loaders = threads[i]};
            const char *bad = td_path("p/b/09.png"); /* the fourth of b: sample 8 + 3 */
            CHECK_OK(td_open(&o, &m, &d));
            if (damage[k])
                td_write("p/b/09.png", damage[k], strlen(damage[k]));
            else
                unlink(bad);
            nnc_data_begin(d, NNC_DATA_train, 1, 0);
            CHECK_OK(nnc_data_next(d, at, test_sink));
            CHECK_OK(nnc_data_next(d, at, test_sink));
            nnc_sink_clear(test_sink);
            CHECK_INT(nnc_data_next(d, at, test_sink), damage[k] ? NNC_E_MODEL : NNC_E_IO);
            CHECK_DIAG("p/b/09.png:0:0: : ");
            CHECK_INT(nnc_sink_errors(test_sink), 1);
            nnc_data_close(d);
        }
    td_remove();
}

/* Pictures of other sizes than the model's need an option that changes them; the message has the picture's name and size. */
TEST(pictures_of_other_sizes)
{
    nnc_data *d = NULL;
    const void *at[2];
    const td_model m = {{4, 3, 8, 8}, 4, 3};
    if (!has("png"))
        return;
    write_pngs(12);
    nnc_data_options o = {.path = td_path("p"), .no_shuffle = true};
    CHECK_OK(td_open(&o, &m, &d));
    nnc_data_begin(d, NNC_DATA_train, 1, 0);
    CHECK_INT(nnc_data_next(d, at, test_sink), NNC_E_MODEL);
    CHECK_DIAG("the picture is 6x6, the model takes 8x8: set --resize, --crop or both");
    nnc_data_close(d);
    o.resize = "8x8";
    CHECK_OK(td_open(&o, &m, &d));
    nnc_data_begin(d, NNC_DATA_train, 1, 0);
    CHECK_OK(nnc_data_next(d, at, test_sink));
    nnc_data_close(d);
    td_remove();
}
