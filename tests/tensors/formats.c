/* tests/tensors/formats.c -- what is written is read back, in every format; files that other programs write. */
#include "help.h"

enum { MOST = 240 };

static void fill(nnc_dtype d, uint8_t data[MOST])
{
    for (int i = 0; i < MOST; i++)
        data[i] = d == DT_bool ? i % 3 == 0 : (uint8_t)(i * 7);
}

/* Does the file have this tensor under this name? */
static void check_tensor(
    const nnc_tensors *t, const char *name, const nnc_type *type, const void *data)
{
    uint8_t got[MOST] = {0};
    const nnc_tensor_entry *e = nnc_tensors_find(t, name);
    CHECK(e && !e->why && nnc_type_equal(&e->type, type));
    if (!e || e->why)
        return;
    CHECK_INT(e->size, nnc_type_bytes(type));
    CHECK_OK(nnc_tensors_read(t, e, got, test_sink));
    CHECK(!memcmp(got, data, (size_t)e->size));
}

TEST(single_tensors_round_trip)
{
    static const char *const ext[] = {".npy", ".bin", ".npz", ".safetensors", ""};
    static const int64_t dims[3] = {2, 3, 5};
    for (size_t f = 0; f < NNC_COUNT(ext); f++)
        for (int d = 0; d < DT__COUNT; d++)
            for (int rank = 0; rank <= 3; rank++) {
                nnc_type t = nnc_type_make((nnc_dtype)d, rank, dims);
                nnc_tensors *in = NULL;
                uint8_t data[MOST];
                fill((nnc_dtype)d, data);
                const char *file = tt_file(ext[f], "", 0);
                bool named = nnc_tensors_named(file);
                CHECK(named == (f == 2 || f == 3));
                CHECK_OK(nnc_tensor_write(file, "x", &t, data, test_sink));
                CHECK_OK(nnc_tensors_open(file, &t, &in, test_sink));
                if (in)
                    check_tensor(in, named ? "x" : "", &t, data);
                nnc_tensors_close(in);
            }
    tt_remove();
}

typedef struct many {
    nnc_type type[DT__COUNT];
    uint8_t data[DT__COUNT][MOST];
    int asked;
} many;

static nnc_status give(void *ctx, int i, const void **out, nnc_sink *sink)
{
    many *m = ctx;
    (void)sink;
    CHECK_INT(i, m->asked++); /* once each, in order */
    *out = m->data[i];
    return NNC_OK;
}

TEST(many_tensors_round_trip)
{
    static const char *const ext[] = {".npz", ".safetensors"};
    static const int64_t dims[3] = {2, 1, 7};
    static many m;
    const char *name[DT__COUNT];
    const nnc_type *type[DT__COUNT];
    for (int d = 0; d < DT__COUNT; d++) {
        name[d] = d ? nnc_dtype_name((nnc_dtype)d) : "quoted \"\\ and \xc3\xa4.weight";
        m.type[d] = nnc_type_make((nnc_dtype)d, d % 4, dims);
        type[d] = &m.type[d];
        fill((nnc_dtype)d, m.data[d]);
    }
    for (size_t f = 0; f < NNC_COUNT(ext); f++) {
        const char *file = tt_file(ext[f], "", 0);
        nnc_tensors *in = NULL;
        m.asked = 0;
        CHECK_OK(nnc_tensors_write(
            file, &(nnc_tensor_source){DT__COUNT, name, type, give, &m}, test_sink));
        CHECK_OK(nnc_tensors_open(file, NULL, &in, test_sink));
        CHECK_INT(in ? nnc_tensors_count(in) : 0, DT__COUNT);
        for (int d = 0; in && d < DT__COUNT; d++) {
            check_tensor(in, name[d], type[d], m.data[d]);
            /* numbers that lie in the file as in memory are found there, as weights are */
            const nnc_tensor_entry *e = nnc_tensors_find(in, name[d]);
            nnc_weight w = {.kind = NNC_W_file, .file = file, .header_hash = nnc_tensors_hash(in)};
            nnc_weight_files files = {NULL};
            uint8_t got[MOST];
            CHECK((e->offset < 0) == (f == 0 && d == DT_bool));
            w.offset = e->offset;
            w.size = e->size;
            if (e->offset >= 0) {
                CHECK_OK(nnc_weight_read(
                    &w, type[d], 0, nnc_type_numel(type[d]), got, &files, test_sink));
                CHECK(!memcmp(got, m.data[d], (size_t)e->size));
            }
            nnc_weight_files_deinit(&files);
        }
        nnc_tensors_close(in);
    }
    m.asked = 0;
    CHECK_INT(nnc_tensors_write(tt_file(".npy", "", 0),
                  &(nnc_tensor_source){DT__COUNT, name, type, give, &m}, test_sink),
        NNC_E_USAGE);
    CHECK_DIAG("holds one tensor, not 13");
    static const char *const others[] = {".pt", ".csv", ".npy.gz"};
    for (size_t i = 0; i < NNC_COUNT(others); i++) {
        CHECK_INT(nnc_tensor_write(tt_file(others[i], "", 0), "x", type[0], m.data[0], test_sink),
            NNC_E_USAGE);
        CHECK_DIAG("name a file .npz or .safetensors, or .npy or .bin");
    }
    tt_remove();
}

TEST(npy_foreign)
{
    static const uint8_t bytes[12] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6};
    static const int64_t dims[2] = {2, 3};
    static const struct {
        int version;
        const char *dict;
        nnc_dtype d;
        int16_t want[6];
    } cases[] = {
        /* big-endian 2x3, column-major: columns (1,2), (3,4), (5,6) */
        {2, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", DT_i16,
            {1, 3, 5, 2, 4, 6}},
        {3, "{\"shape\":(2L,3L),\"fortran_order\":False,\"descr\":\">u2\"}\n", DT_u16,
            {1, 2, 3, 4, 5, 6}},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        NNC_LOCAL(nnc_text) x = {0};
        nnc_tensors *t = NULL;
        nnc_type type = nnc_type_make(cases[i].d, 2, dims);
        tt_npy(&x, cases[i].version, cases[i].dict, bytes, 12);
        CHECK_OK(nnc_tensors_open(tt_file("", x.s, x.n), NULL, &t, test_sink));
        if (t)
            check_tensor(t, "", &type, cases[i].want);
        nnc_tensors_close(t);
    }
    tt_remove();
}

TEST(npz_of_numpy)
{
    static const int64_t dims[2] = {2, 3}, three = 3;
    static const float want[] = {0, 1, 2, 3, 4, 5};
    static const uint8_t flags[] = {1, 0, 1};
    const nnc_type f = nnc_type_make(DT_f32, 2, dims), b = nnc_type_make(DT_bool, 1, &three);
    nnc_tensors *t = NULL;
    CHECK_OK(nnc_tensors_open(tt_file(".npz", tt_numpy, tt_numpy_bytes), NULL, &t, test_sink));
    const nnc_tensor_entry *text = t ? nnc_tensors_find(t, "text") : NULL;
    if (!nnc_zlib_version()) {
        CHECK(text && strstr(text->why, "without zlib"));
    } else if (t) {
        check_tensor(t, "a", &f, want);
        check_tensor(t, "fortran", &f, want);
        check_tensor(t, "swapped", &f, want);
        check_tensor(t, "flags", &b, flags);
        CHECK(text && strstr(text->why, "dtype")); /* in nobody's way */
        CHECK_INT(nnc_tensors_read(t, text, NULL, test_sink), NNC_E_MODEL);
        CHECK_DIAG("tensor `text`: its dtype");
    }
    nnc_tensors_close(t);
    tt_remove();
}

TEST(npz_deflated)
{
    static const int64_t dims[2] = {2, 3};
    static const float want[] = {0, 1, 2, 3, 4, 5};
    const nnc_type f = nnc_type_make(DT_f32, 2, dims);
    NNC_LOCAL(nnc_text) npy = {0};
    NNC_LOCAL(nnc_text) zip = {0};
    nnc_tensors *t = NULL;
    if (!nnc_zlib_version()) {
        test_skip("built without zlib");
        return;
    }
    tt_small(&npy);
    const tt_entry e[] = {{"d.npy", npy.s, npy.n, true}, {"folder/", "", 0},
        {"s.npy", npy.s, npy.n}, {"README", "hello", 5}};
    tt_zip(&zip, 4, e, NULL);
    CHECK_OK(nnc_tensors_open(tt_file("", zip.s, zip.n), NULL, &t, test_sink));
    if (t) {
        CHECK_INT(nnc_tensors_count(t), 3);
        check_tensor(t, "d", &f, want);
        check_tensor(t, "s", &f, want);
        CHECK(strstr(nnc_tensors_find(t, "README")->why, "no .npy file"));
    }
    nnc_tensors_close(t);
    tt_remove();
}

/* ---- names ----------------------------------------------------------------------------------- */

static nnc_tensors *open_named(void)
{
    NNC_LOCAL(nnc_text) x = {0};
    nnc_tensors *t = NULL;
    tt_safetensors(&x,
        "{\"module.fc.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"module.fc.gamma\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
        "\"head\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
        3);
    CHECK_OK(nnc_tensors_open(tt_file(".safetensors", x.s, x.n), NULL, &t, test_sink));
    return t;
}

TEST(renamed_tensors)
{
    static const nnc_arg rules[] = {{"module.*.gamma", "*.scale"}, {"module.*", "*"},
        {"head*ead", "-"}, {"head", "-"}, {"tail*", "-"}};
    static const nnc_arg wrong[] = {{"*a*", "*"}, {"a", "*"}, {"*", "**"}};
    nnc_tensors *t = open_named();
    CHECK_OK(nnc_tensors_rename(t, rules, NNC_COUNT(rules), test_sink));
    CHECK_INT(nnc_tensors_count(t), 2);
    CHECK(nnc_tensors_find(t, "fc.weight") && nnc_tensors_find(t, "fc.scale"));
    CHECK_DIAG("no tensor is named tail*, as --rename says");
    CHECK_DIAG("no tensor is named head*ead"); /* head and tail of a pattern do not overlap */
    nnc_tensors_close(t);
    t = open_named();
    CHECK_INT(nnc_tensors_rename(t, (nnc_arg[]){{"module.*", "x"}}, 1, test_sink), NNC_E_MODEL);
    CHECK_DIAG("has two tensors named `x`");
    for (size_t i = 0; i < NNC_COUNT(wrong); i++)
        CHECK_INT(nnc_tensors_rename(t, &wrong[i], 1, test_sink), NNC_E_USAGE);
    nnc_tensors_close(t);
    tt_remove();
}

/* All differences are in one message, however many they are. */
TEST(all_differences_at_once)
{
    NNC_LOCAL(nnc_mismatch) m = {.missing = 0};
    NNC_LOCAL(nnc_text) all = {0};
    const nnc_type want = nnc_type_make(DT_f32, 1, (int64_t[]){4});
    const nnc_tensor_entry found = {.name = "b",
                               .type = nnc_type_make(DT_f16, 2, (int64_t[]){2, 2})},
                           odd = {.name = "c", .why = "it is empty"};
    CHECK_OK(nnc_mismatch_report(&m, "f", "weights", test_sink));
    nnc_mismatch_missing(&m, "a", &want, "; a hint");
    nnc_mismatch_wrong(&m, "b", &want, &found, "");
    nnc_mismatch_wrong(&m, "c", &want, &odd, "");
    nnc_mismatch_extra(&m, "d", &found, "");
    CHECK_INT(nnc_mismatch_report(&m, "f", "weights", test_sink), NNC_E_MODEL);
    CHECK_INT(nnc_sink_count(test_sink), 1);
    nnc_sink_put(test_sink, &all);
    CHECK_STR(nnc_text_str(&all),
        "f: error: weights do not match the model: 1 missing, 1 extra, 2 of another type or shape\n"
        "  missing `a`: expected f32[4]; a hint\n"
        "  differs `b`: expected f32[4], found f16[2,2]\n"
        "  differs `c`: expected f32[4], found one that nnc does not read: it is empty\n"
        "  extra `d`, found f16[2,2]\n");
    for (int i = 0; i < 1000; i++)
        nnc_mismatch_missing(&m, "a.long.name.of.a.weight.in.a.deep.model", &want, "");
    nnc_sink_clear(test_sink);
    nnc_text_clear(&all);
    CHECK_INT(nnc_mismatch_report(&m, "f", "weights", test_sink), NNC_E_MODEL);
    nnc_sink_put(test_sink, &all);
    CHECK(strstr(nnc_text_str(&all), ": 1001 missing, 1 extra, 2 of another type or shape\n"));
    CHECK(strstr(nnc_text_str(&all), "  extra `d`, found f16[2,2]\n"));
    CHECK(strstr(nnc_text_str(&all), "\n  and 996 more missing\n"));
}

/* The five most frequent kinds, those of equal count in the order of the file. */
TEST(kinds_of_tensors)
{
    static const char *const names[] = {"a.bias", "n.num_batches_tracked", "m.num_batches_tracked",
        "b.weight", "c.bias", "b/x/kernel", "plain", "d.scale", "e.zero", "f.one", "g."};
    static const struct {
        int n;
        const char *want;
    } cases[] = {{0, ""}, {1, "1 bias"}, {3, "2 num_batches_tracked, 1 bias"},
        {8, "2 bias, 2 num_batches_tracked, 1 weight, 1 kernel, 1 plain, 1 of other kinds"},
        {11, "2 bias, 2 num_batches_tracked, 1 weight, 1 kernel, 1 plain, 4 of other kinds"}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        NNC_LOCAL(nnc_text) t = {0};
        nnc_put_tensor_kinds(&t, cases[i].n, names);
        CHECK_STR(nnc_text_str(&t), cases[i].want);
    }
}
