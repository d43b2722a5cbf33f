/* tests/data/formats.c -- every format, written by hand and read back number by number. */
#include "help.h"

static const td_model cifar_model = {{4, 3, 32, 32}, 4, 100};

/* The batches of an epoch without shuffling: pixel i of sample s is want(s, i) / 255, its class label(s). */
static void check_samples(const nnc_data_options *o, const td_model *m, int samples,
    uint8_t (*want)(int, int), int (*label)(int))
{
    nnc_data *d = NULL;
    CHECK_OK(td_open(o, m, &d));
    if (!d)
        return;
    const int64_t batch = m->dim[0], row = td_numel(m) / batch;
    int wrong = 0;
    CHECK_INT(nnc_data_samples(d, NNC_DATA_train), samples);
    nnc_data_begin(d, NNC_DATA_train, 1, 0);
    for (int64_t b = 0; b < samples / batch; b++) {
        const void *at[2];
        const nnc_status s = nnc_data_next(d, at, test_sink);
        CHECK_OK(s);
        for (int64_t r = 0; !s && r < batch; r++) {
            const int sample = (int)(b * batch + r);
            wrong += ((const int64_t *)at[1])[r] != label(sample);
            for (int64_t i = 0; i < row; i++)
                wrong += ((const float *)at[0])[r * row + i] != (float)want(sample, (int)i) / 255;
        }
    }
    CHECK_INT(wrong, 0);
    nnc_data_close(d);
}

static int modulo_10(int i)
{
    return i % 10;
}

static int fine(int i)
{
    return i * 3 % 100;
}

static int coarse(int i)
{
    return i * 7 % 20;
}

static void write_cifar(const char *name, int head, int first, int n)
{
    NNC_LOCAL(nnc_text) t = {0};
    td_cifar(&t, head, first, n);
    td_write(name, t.s, t.n);
}

TEST(cifar_10)
{
    nnc_data_options o = {.no_shuffle = true};
    write_cifar("c/data_batch_1.bin", 1, 0, 7);
    write_cifar("c/data_batch_2.bin", 1, 7, 9);
    write_cifar("c/test_batch.bin", 1, 100, 4);
    o.path = td_path("c");
    check_samples(&o, &cifar_model, 16, td_cifar_byte, modulo_10);
    o.path = td_path("c/data_batch_1.bin");
    check_samples(&o, &cifar_model, 7, td_cifar_byte, modulo_10);
    nnc_data *d = NULL;
    o.path = td_path("c");
    o.validation_path = td_path("c/test_batch.bin");
    CHECK_OK(td_open(&o, &cifar_model, &d));
    CHECK_STR(nnc_data_format(d), "CIFAR-10");
    CHECK_INT(nnc_data_samples(d, NNC_DATA_validation), 4);
    nnc_data_begin(d, NNC_DATA_validation, 1, 0);
    const void *at[2];
    CHECK_OK(nnc_data_next(d, at, test_sink));
    CHECK(((const float *)at[0])[5] == (float)td_cifar_byte(100, 5) / 255);
    CHECK_INT(nnc_data_next(d, at, test_sink), NNC_E_BUG);
    nnc_data_close(d);
    td_remove();
}

TEST(cifar_100)
{
    td_model m = cifar_model;
    nnc_data_options o = {.no_shuffle = true};
    write_cifar("train.bin", 2, 0, 12);
    write_cifar("test.bin", 2, 12, 4);
    o.path = td_dir();
    check_samples(&o, &m, 12, td_cifar_byte, fine);
    m.classes = 20;
    check_samples(&o, &m, 12, td_cifar_byte, coarse);
    td_remove();
}

TEST(idx_pictures)
{
    NNC_LOCAL(nnc_text) p = {0}, gz = {0};
    td_model m = {{3, 1, 5, 7}, 4, 10};
    nnc_data_options o = {.no_shuffle = true};
    td_idx_files(9, 5, 7);
    o.path = td_dir();
    check_samples(&o, &m, 9, td_idx_byte, modulo_10);
    m = (td_model){{3, 35}, 2, 10}; /* flattened */
    check_samples(&o, &m, 9, td_idx_byte, modulo_10);
    m = (td_model){{3, 5, 7}, 3, 10};
    check_samples(&o, &m, 9, td_idx_byte, modulo_10);
    o.path = td_path("train-images-idx3-ubyte");
    check_samples(&o, &m, 9, td_idx_byte, modulo_10);
    o.labels = td_path("train-labels-idx1-ubyte");
    check_samples(&o, &m, 9, td_idx_byte, modulo_10);
    if (nnc_zlib_version()) {
        td_idx_pictures(&p, 9, 5, 7);
        td_gz(&gz, p.s, p.n);
        o.path = td_write("gz-images-idx3-ubyte.gz", gz.s, gz.n);
        check_samples(&o, &m, 9, td_idx_byte, modulo_10);
    }
    td_remove();
}

/* One channel for a model of three, and three for one. */
TEST(channels)
{
    nnc_data *d = NULL;
    const void *at[2];
    td_model m = {{2, 3, 4, 4}, 4, 10};
    nnc_data_options o = {.no_shuffle = true};
    td_idx_files(4, 4, 4);
    o.path = td_dir();
    CHECK_OK(td_open(&o, &m, &d));
    nnc_data_begin(d, NNC_DATA_train, 1, 0);
    CHECK_OK(nnc_data_next(d, at, test_sink));
    for (int i = 0; i < 48; i++)
        CHECK(((const float *)at[0])[i] == (float)td_idx_byte(0, i % 16) / 255);
    nnc_data_close(d);
    td_remove();
    m = (td_model){{2, 1, 32, 32}, 4, 10};
    write_cifar("a.bin", 1, 0, 4);
    o.path = td_path("a.bin");
    CHECK_OK(td_open(&o, &m, &d));
    nnc_data_begin(d, NNC_DATA_train, 1, 0);
    CHECK_OK(nnc_data_next(d, at, test_sink));
    for (int i = 0; i < 1024; i++) { /* Pillow's convert("L") */
        const int r = td_cifar_byte(0, i), g = td_cifar_byte(0, 1024 + i),
                  b = td_cifar_byte(0, 2048 + i);
        const int l = (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16;
        CHECK(((const float *)at[0])[i] == (float)l / 255);
    }
    nnc_data_close(d);
    td_remove();
}

/* Tensors of every type, in every kind of file, become the model's types. */
TEST(tensors)
{
    static const nnc_dtype types[] = {DT_f32, DT_f64, DT_u8, DT_i32, DT_f16};
    static const char *const files[] = {"a.npz", "a.safetensors"};
    const td_model m = {{3, 2, 2, 5}, 4, 10};
    for (size_t i = 0; i < 2 * NNC_COUNT(types); i++) {
        const nnc_dtype dt = types[i / 2];
        const int64_t dim[] = {9, 2, 2, 5};
        const nnc_type tx = nnc_type_make(dt, 4, dim),
                       ty = nnc_type_make(i % 3 ? DT_i64 : DT_u8, 1, dim);
        uint8_t x[9 * 20 * 8], y[9 * 8];
        for (int k = 0; k < 9 * 20; k++)
            nnc_is_float(dt) ? nnc_set_f64(dt, x, k, k % 100) : nnc_set_i64(dt, x, k, k % 100);
        for (int k = 0; k < 9; k++)
            nnc_set_i64((nnc_dtype)ty.dtype, y, k, k);
        const void *data[] = {x, y};
        const nnc_type *type[] = {&tx, &ty};
        td_write_tensors(files[i % 2], 2, (const char *const[]){"x", "target"}, type, data);
        const nnc_data_options o = {.path = td_path(files[i % 2]), .no_shuffle = true};
        nnc_data *d = NULL;
        CHECK_OK(td_open(&o, &m, &d));
        for (int b = 0; d && b < 3; b++) {
            const void *at[2];
            if (!b)
                nnc_data_begin(d, NNC_DATA_train, 1, 0);
            CHECK_OK(nnc_data_next(d, at, test_sink));
            for (int k = 0; k < 60; k++)
                CHECK(((const float *)at[0])[k] == (float)((b * 60 + k) % 100));
            for (int k = 0; k < 3; k++)
                CHECK_INT(((const int64_t *)at[1])[k], b * 3 + k);
        }
        nnc_data_close(d);
    }
    td_remove();
}
