/* tests/data/broken.c -- damaged data sets, and options that do not fit them. Each is refused with its reason, or read where the damage
 * leaves a whole data set. */
#include "help.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const td_model cifar_model = {{1, 3, 32, 32}, 4, 10}, idx_model = {{1, 1, 3, 2}, 4, 10};

static nnc_status open_with(const nnc_data_options *o, const td_model *m)
{
    nnc_data *d = NULL;
    nnc_sink_clear(test_sink);
    const nnc_status s = td_open(o, m, &d);
    CHECK(!s == (d != NULL));
    CHECK(!s == !nnc_sink_errors(test_sink));
    nnc_data_close(d);
    return s;
}

static void refuse(
    const nnc_data_options *o, const td_model *m, nnc_status status, const char *says)
{
    CHECK_INT(open_with(o, m), status);
    CHECK_DIAG(says);
}

/* ---- truncated files ------------------------------------------------------------------------- */

TEST(cifar_cut_off_at_every_byte)
{
    NNC_LOCAL(nnc_text) t = {0};
    const nnc_data_options o = {.path = td_path("a.bin")};
    td_cifar(&t, 1, 0, 2);
    for (size_t n = 0; n <= t.n; n++) {
        if (n % 3073 > 3 && n % 3073 < 3070 && n % 61) /* all bytes of a picture are alike */
            continue;
        td_write("a.bin", t.s, n);
        const nnc_status s = open_with(&o, &cifar_model);
        CHECK_INT(s, n && n % 3073 == 0 ? NNC_OK : NNC_E_MODEL);
        if (s) /* 3074 bytes are a record of CIFAR-100 */
            CHECK_DIAG(n == 3074 ? "its class is" : "is it cut off?");
    }
    td_remove();
}

/* Both files of a pair, plain and compressed. */
TEST(idx_cut_off_at_every_byte)
{
    for (int gz = 0; gz < (nnc_zlib_version() ? 2 : 1); gz++)
        for (int which = 0; which < 2; which++) {
            nnc_text t[2] = {{0}}, plain[2] = {{0}};
            td_idx_pictures(&plain[0], 4, 3, 2);
            td_idx_labels(&plain[1], 4);
            for (int i = 0; i < 2; i++) {
                if (gz)
                    td_gz(&t[i], plain[i].s, plain[i].n);
                else
                    nnc_putn(&t[i], plain[i].s, plain[i].n);
                nnc_text_deinit(&plain[i]);
            }
            const nnc_data_options o = {.path = td_path("images"), .labels = td_path("labels")};
            for (size_t n = 0; n <= t[which].n; n++) {
                td_write("images", t[0].s, which == 0 ? n : t[0].n);
                td_write("labels", t[1].s, which == 1 ? n : t[1].n);
                CHECK_INT(open_with(&o, &idx_model), n == t[which].n ? NNC_OK : NNC_E_MODEL);
            }
            nnc_text_deinit(&t[0]);
            nnc_text_deinit(&t[1]);
        }
    td_remove();
}

/* ---- wrong numbers --------------------------------------------------------------------------- */

TEST(cifar_with_wrong_labels)
{
    NNC_LOCAL(nnc_text) t = {0};
    const nnc_data_options o = {.path = td_path("a.bin")};
    td_cifar(&t, 1, 0, 3);
    t.s[3073] = 10;
    td_write("a.bin", t.s, t.n);
    refuse(&o, &cifar_model, NNC_E_MODEL, "record 1, at byte 3073, has label 10");
    CHECK_DIAG("a.bin");
    t.s[3073] = 9;
    td_write("a.bin", t.s, t.n);
    const td_model few = {{1, 3, 32, 32}, 4, 5};
    refuse(&o, &few, NNC_E_MODEL,
        "record 1: its class is 9; the model's prediction has classes 0 to 4");
    nnc_text_deinit(&t);
    t = (nnc_text){0};
    td_cifar(&t, 2, 0, 3);
    t.s[1] = 100;
    td_write("a.bin", t.s, t.n);
    refuse(&o, &cifar_model, NNC_E_MODEL, "has labels 0 and 100; CIFAR-100 has");
    td_remove();
}

TEST(cifar_of_two_kinds)
{
    NNC_LOCAL(nnc_text) t = {0}, u = {0};
    td_cifar(&t, 1, 0, 3);
    td_cifar(&u, 2, 0, 3);
    td_write("a.bin", t.s, t.n);
    td_write("b.bin", u.s, u.n);
    const nnc_data_options o = {.path = td_dir()};
    refuse(&o, &cifar_model, NNC_E_MODEL, "is of CIFAR-100");
    td_remove();
}

static void idx_case(size_t at, uint8_t byte, int which, const char *says)
{
    NNC_LOCAL(nnc_text) p = {0}, l = {0};
    td_idx_pictures(&p, 4, 3, 2);
    td_idx_labels(&l, 4);
    (which ? l.s : p.s)[at] = (char)byte;
    td_write("images", p.s, p.n);
    td_write("labels", l.s, l.n);
    const nnc_data_options o = {.path = td_path("images"), .labels = td_path("labels")};
    refuse(&o, &idx_model, NNC_E_MODEL, says);
}

TEST(idx_with_wrong_numbers)
{
    idx_case(2, 0x0d, 0, "is an idx file of type 0x0d with 3 dimensions; expected pictures");
    idx_case(3, 2, 0, "with 2 dimensions; expected pictures");
    idx_case(3, 3, 1, "expected labels: type 0x08 (bytes) with 1");
    idx_case(0, 1, 1, "does not begin with two zeros");
    idx_case(7, 5, 0, "its header says 46 bytes, the file has 40: is it cut off?");
    idx_case(7, 3, 0, "its header says 34 bytes, the file has 40");
    idx_case(4, 0xff, 0, "its header says");
    idx_case(11, 0, 0, "an extent is 0");
    idx_case(8, 1, 0, "longer than 65535");
    idx_case(8 + 1, 77, 1, "label 1: its class is 77");
    td_remove();
}

TEST(idx_pairs_that_do_not_fit)
{
    NNC_LOCAL(nnc_text) l = {0};
    td_idx_files(4, 3, 2);
    td_idx_labels(&l, 5);
    nnc_data_options o = {
        .path = td_path("train-images-idx3-ubyte"), .labels = td_write("five", l.s, l.n)};
    refuse(&o, &idx_model, NNC_E_MODEL, "has 5 labels,");
    o.labels = td_path("nothere");
    refuse(&o, &idx_model, NNC_E_IO, "nothere");
    unlink(td_path("train-labels-idx1-ubyte"));
    o.labels = NULL;
    refuse(&o, &idx_model, NNC_E_IO, "train-labels-idx1-ubyte");
    CHECK_DIAG("it would have the labels of");
    rename(o.path, td_path("digits"));
    o.path = td_path("digits");
    refuse(&o, &idx_model, NNC_E_USAGE, "name the file of their classes in --labels");
    td_remove();
}

/* ---- paths ----------------------------------------------------------------------------------- */

TEST(paths_without_data)
{
    nnc_data_options o = {.path = td_path("nothere")};
    refuse(&o, &cifar_model, NNC_E_IO, "cannot open");
    o.path = td_dir();
    refuse(&o, &cifar_model, NNC_E_MODEL, "has no samples: expected a folder for each class");
    o.path = td_write("text.txt", "hello, world", 12);
    refuse(&o, &cifar_model, NNC_E_MODEL, "is no file of tensors that nnc reads");
    o.path = td_write("empty", "", 0);
    refuse(&o, &cifar_model, NNC_E_MODEL, "empty");
    td_remove();
    td_idx_files(4, 3, 2);
    NNC_LOCAL(nnc_text) p = {0};
    td_idx_pictures(&p, 4, 3, 2);
    td_write("other-images-idx3-ubyte", p.s, p.n);
    o.path = td_dir();
    refuse(&o, &idx_model, NNC_E_USAGE, "has several files of pictures");
    td_remove();
}

/* ---- models and options ---------------------------------------------------------------------- */

TEST(models_that_do_not_fit)
{
    td_idx_files(40, 6, 6);
    nnc_data_options o = {.path = td_dir()};
    const struct {
        td_model m;
        nnc_data_options o;
        nnc_status s;
        const char *says;
    } cases[] = {
        {{{4, 1, 8, 8}, 4, 10}, {0}, NNC_E_MODEL, "pictures of 6x6, the model takes 8x8: set"},
        {{{4, 2, 6, 6}, 4, 10}, {0}, NNC_E_MODEL, "expected [N,C,height,width]"},
        {{{4, 35}, 2, 10}, {0}, NNC_E_MODEL, "the model's input x is f32[4,35]"},
        {{{4, 1, 6, 6}, 4, 3}, {0}, NNC_E_MODEL, "label 3: its class is 3"},
        {{{4, 1, 6, 6}, 4, 10}, {.mean = "1,2,3"}, NNC_E_USAGE, "--mean has 3 numbers"},
        {{{4, 1, 6, 6}, 4, 10}, {.std = "1,2"}, NNC_E_USAGE,
            "--std has 2 numbers; expected 1, or 1"},
        {{{41, 1, 6, 6}, 4, 10}, {0}, NNC_E_MODEL, "40 samples for training are less than a batch"},
        {{{8, 1, 6, 6}, 4, 10}, {.validation = 0.1}, NNC_E_USAGE, "is less than a batch of 8"},
        {{{8, 1, 6, 6}, 4, 10}, {.validation_labels = "x"}, NNC_E_USAGE, "--validation-data"},
        {{{8, 1, 6, 6}, 4, 10}, {.validation_path = "x", .validation = 0.5}, NNC_E_USAGE,
            "leave one out"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_data_options with = cases[i].o;
        with.path = o.path;
        refuse(&with, &cases[i].m, cases[i].s, cases[i].says);
    }
    td_remove();
}

/* A class below 0 is no class, unless it is the one that is ignored: losses would count it from the end. */
TEST(classes_below_zero)
{
    static const float x[8 * 4] = {0};
    int64_t y[8] = {0, 1, 2, -1, 0, 0, 0, 0};
    const nnc_type tx = nnc_type_make(DT_f32, 2, (const int64_t[]){8, 4}),
                   ty = nnc_type_make(DT_i64, 1, (const int64_t[]){8});
    nnc_data_input in[] = {{"x", tx, false, NNC_DATA_none, NNC_DATA_none},
        {"target", ty, true, NNC_DATA_none, NNC_DATA_none}};
    nnc_data *d = NULL;
    td_write_tensors("a.npz", 2, (const char *const[]){"x", "target"},
        (const nnc_type *const[]){&tx, &ty}, (const void *const[]){x, y});
    const nnc_data_options o = {.path = td_path("a.npz")};
    CHECK_INT(nnc_data_open(&o, 2, in, 3, &d, test_sink), NNC_E_MODEL);
    CHECK_DIAG("target has class -1 in row 3; the model's prediction has classes 0 to 2");
    in[1].ignored = -1;
    CHECK_OK(nnc_data_open(&o, 2, in, 3, &d, test_sink));
    nnc_data_close(d);
    in[0].name = "y";
    CHECK_INT(nnc_data_open(&o, 2, in, 3, &d, test_sink), NNC_E_MODEL);
    CHECK_DIAG(
        "there is no tensor named y, which the model needs for training (the file has: target, x)");
    in[0] = (nnc_data_input){"target", tx, false, NNC_DATA_none, NNC_DATA_none};
    in[1].name = "x";
    CHECK_INT(nnc_data_open(&o, 2, in, 3, &d, test_sink), NNC_E_MODEL);
    td_remove();
}

/* What only a sample shows is reported with its place when its batch is taken. */
TEST(crops_of_small_pictures)
{
    const td_model m = {{4, 1, 8, 8}, 4, 10};
    nnc_data *d = NULL;
    const void *at[2];
    td_idx_files(40, 6, 6);
    const nnc_data_options o = {.path = td_dir(), .crop = NNC_CROP_centre, .no_shuffle = true};
    CHECK_OK(td_open(&o, &m, &d));
    nnc_data_begin(d, NNC_DATA_train, 1, 3);
    CHECK_INT(nnc_data_next(d, at, test_sink), NNC_E_MODEL);
    CHECK_DIAG("12: the picture is 6x6, the model takes 8x8: a crop cannot make it larger");
    nnc_data_close(d);
    td_remove();
}

/* Augmentation of tensors: pictures are inputs of four dimensions; targets of several numbers would have to move with them. */
TEST(augmented_tensors)
{
    static const float x[8 * 6 * 6] = {0};
    static const int64_t y[8 * 36] = {0}, dim[] = {8, 1, 6, 6}, dim_y[] = {8, 6, 6};
    const nnc_type tx = nnc_type_make(DT_f32, 4, dim), ty = nnc_type_make(DT_i64, 3, dim_y),
                   flat = nnc_type_make(DT_f32, 2, (const int64_t[]){8, 36});
    const nnc_data_input dense[] = {
        {"x", tx, false}, {"target", ty, true, NNC_DATA_none, NNC_DATA_none}};
    const nnc_data_input rows[] = {
        {"x", flat, false}, {"target", ty, true, NNC_DATA_none, NNC_DATA_none}};
    nnc_data *d = NULL;
    td_write_tensors("a.npz", 2, (const char *const[]){"x", "target"},
        (const nnc_type *const[]){&tx, &ty}, (const void *const[]){x, y});
    nnc_data_options o = {.path = td_path("a.npz"), .flip = true};
    CHECK_INT(nnc_data_open(&o, 2, dense, 10, &d, test_sink), NNC_E_USAGE);
    CHECK_DIAG("would not move with the picture");
    td_write_tensors("a.npz", 2, (const char *const[]){"x", "target"},
        (const nnc_type *const[]){&flat, &ty}, (const void *const[]){x, y});
    CHECK_INT(nnc_data_open(&o, 2, rows, 10, &d, test_sink), NNC_E_USAGE);
    td_remove();
}
