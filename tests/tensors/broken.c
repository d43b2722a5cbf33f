/* tests/tensors/broken.c -- damaged files: each is refused with its reason. */
#include "help.h"
#include <unistd.h>

/* Opens the file and reads all of its tensors; the first thing that is said contains `want`. */
static void fails(const char *file, const char *want)
{
    static char dst[1 << 16];
    nnc_tensors *t = NULL;
    nnc_sink_clear(test_sink);
    nnc_status st = nnc_tensors_open(file, NULL, &t, test_sink);
    CHECK(!st == (t != NULL));
    for (int i = 0; t && !st && i < nnc_tensors_count(t); i++)
        st = nnc_tensors_read(t, nnc_tensors_at(t, i), dst, test_sink);
    CHECK(st == NNC_E_MODEL || st == NNC_E_IO);
    CHECK_DIAG(want);
    CHECK_DIAG(file);
    nnc_tensors_close(t);
}

static void npy_fails(int version, const char *dict, const void *data, size_t n, const char *want)
{
    NNC_LOCAL(nnc_text) x = {0};
    tt_npy(&x, version, dict, data, n);
    fails(tt_file(".npy", x.s, x.n), want);
}

TEST(broken_npy)
{
    static const struct {
        const char *dict;
        size_t n;
        const char *want;
    } cases[] = {
        {"{}", 0, "lacks descr"},
        {"[]", 0, "not a dictionary"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, "something follows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'a': 1}", 4, "unknown key"},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", 4, "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", 4, "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", 4, "damaged"},
        {"{'descr': '<f4", 4, "structured"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, "its dtype is object"},
        {"{'descr': '', 'fortran_order': False, 'shape': (1,)}", 8, "structured or of objects"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, "structured"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4,
            "its shape needs 8 bytes of data, the file has 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 8,
            "its shape needs 4 bytes of data, the file has 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 0,
            "64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,4)}", 0,
            "not a .npy file that nnc reads: more than 64 TiB"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
            "more than 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 0, "damaged"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", 0, "a dimension below 1"},
        {"{'descr': '<f4', 'fortran_order': False}", 4, "lacks descr, fortran_order or shape"},
        {"{'descr': '<f4', 'shape': (1,)}", 4, "lacks descr, fortran_order or shape"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4,
            "has a key twice"},
        {"{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}", 3, "its dtype is unsupported"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", 16, "its dtype is longdouble"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8, "its dtype is complex"},
        {"{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", 12, "its dtype is a text"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}", 4, "its shape is damaged"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 4, "its header is damaged"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++)
        npy_fails(1, cases[i].dict, NULL, cases[i].n, cases[i].want);
    fails(tt_file(".npy", "", 0), "its first bytes are not");
    fails(tt_file(".npy", "PK\3\4 and more bytes", 18), "its first bytes are not");
    fails(tt_file("", "\x93NUMPY\x01\x00\xff\xff{}", 12), "it ends in its header");
    fails(tt_file("", "\x93NUMPY\x02\x00\xff\xff", 10), "it ends in its header");
    npy_fails(9, "{}", "", 0, "its version");
    fails("/nonexistent/x.npy", "cannot open");
    tt_remove();
}

TEST(broken_safetensors)
{
    static const struct {
        const char *header;
        size_t n;
        const char *want;
    } cases[] = {
        {"[]", 0, "not an object"},
        {"{\"a\":", 0, "expected a JSON value"},
        {"{\"a\":7}", 0, "its dtype"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "its dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "its shape is missing"},
        /* places are checked of what is not read, too */
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8, "leave a hole"},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
            "tensor `a`: its dtype is unsupported"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "ascending"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "ascending"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not match"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 2, "beyond the end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "the file holds 5"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "leave a hole"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{"
         "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
            6, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{"
         "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
            2, "duplicate key"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
            "more than 64 TiB"},
        {"{\"a\":null}", 0, "its dtype is missing"},
        {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            "its dtype is unsupported"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[\"0\",\"4\"]}}", 4,
            "are not two ascending"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4,
            "are not two ascending"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,1e30]}}", 4,
            "are not two ascending"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "are not two ascending"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
            "more than 8 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":\"1\",\"data_offsets\":[0,4]}}", 4,
            "its shape is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} x", 4,
            "expected nothing after the JSON value"},
        {"{\"__metadata__\":7}", 0, "__metadata__ is not an object"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        NNC_LOCAL(nnc_text) x = {0};
        tt_safetensors(&x, cases[i].header, cases[i].n);
        fails(tt_file(".safetensors", x.s, x.n), cases[i].want);
    }
    fails(tt_file(".safetensors", "1234", 4), "not a safetensors file: it has 4 bytes");
    fails(tt_file("", "1234", 4), "is no file of tensors that nnc reads");
    fails(tt_file(".json", "{\"args\":{\"batch\":2}}", 20), "is no file of tensors that nnc reads");
    fails(tt_file("", "\xff\xff\xff\x04\0\0\0\0{}", 10), "its header would have");
    tt_remove();
}

TEST(broken_npz)
{
    NNC_LOCAL(nnc_text) npy = {0};
    NNC_LOCAL(nnc_text) large = {0};
    tt_small(&npy);
    tt_npy(&large, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000,)}", NULL, 24);
    const tt_entry plain = {"a.npy", npy.s, npy.n}, packed = {"a.npy", npy.s, npy.n, true};
    const bool zlib = nnc_zlib_version() != NULL;
    const struct {
        tt_entry e;
        tt_lies lies;
        const char *want;
    } cases[] = {
        {plain, {.crc = 1}, "tensor `a`: its checksum is wrong"},
        {packed, {.crc = 1}, zlib ? "tensor `a`: its checksum is wrong" : "without zlib"},
        {plain, {.size = 4}, "two sizes: `a`"},
        {plain, {.size = 4, .packed = 4}, "tensor `a`: its first bytes"},
        {plain, {.size = 80, .packed = 80}, "another number of bytes"},
        {plain, {.size = 1u << 30, .packed = 1u << 30}, "beyond the end of the file"},
        {plain, {.at = 1u << 20}, "an entry's place is not in the file: `a`"},
        {plain, {.at = 3}, "an entry's place is not in the file: `a`"},
        {plain, {.method = 12}, "in another way than deflate"},
        {plain, {.flags = 1}, "encrypted"},
        {plain, {.method = 8}, zlib ? "its compressed bytes are damaged" : "without zlib"},
        {packed, {.size = 1u << 20}, zlib ? "larger than its compressed bytes" : "without zlib"},
        {packed, {.size = 200}, zlib ? "its compressed bytes are damaged" : "without zlib"},
        {packed, {.packed = 60}, zlib ? "its compressed bytes are damaged" : "without zlib"},
        {plain, {.n_entries = 2}, "fewer entries than it says"},
        {plain, {.n_entries = 9}, "fewer entries than it says"},
        {plain, {.directory_at = 1u << 20}, "directory's place"},
        {plain, {.directory_at = 5}, "its directory is damaged"},
        {plain, {.directory_bytes = 1u << 20}, "directory's place"},
        {plain, {.disk = 1}, "a part of several"},
        {plain, {.zip64 = 5}, "directory's place"},
        {plain, {.method = 99}, "in another way than deflate"},
        {packed, {.packed = 1}, zlib ? "its compressed bytes are damaged" : "without zlib"},
        {plain, {.packed = 8}, "two sizes"},
        {plain, {.size = 1}, "two sizes"},
        {{"a.npy", large.s, large.n}, {0}, "another number of bytes"},
        {{"a.npy", "junk", 4}, {0}, "tensor `a`: its first bytes"},
        {{"a.txt", npy.s, npy.n}, {0}, "tensor `a.txt`: it is no .npy file"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        NNC_LOCAL(nnc_text) zip = {0};
        tt_zip(&zip, 1, &cases[i].e, &cases[i].lies);
        fails(tt_file(".npz", zip.s, zip.n), cases[i].want);
    }
    NNC_LOCAL(nnc_text) twice = {0};
    tt_zip(&twice, 2, (tt_entry[]){plain, plain}, NULL);
    fails(tt_file(".npz", twice.s, twice.n), "has two tensors named `a`");
    fails(tt_file(".npz", twice.s, twice.n - 1), "no directory at its end: is it cut off?");
    fails(tt_file(".npz", "", 0), "no directory at its end");
    fails(tt_file("", "PK\3\4", 4), "no directory at its end");
    tt_remove();
}

TEST(broken_raw)
{
    const nnc_type t = nnc_type_make(DT_f32, 1, (int64_t[]){2});
    nnc_tensors *in;
    fails(tt_file(".bin", "1234", 4), "has raw numbers without names and shapes");
    nnc_sink_clear(test_sink);
    CHECK_INT(nnc_tensors_open(tt_file(".bin", "1234", 4), &t, &in, test_sink), NNC_E_MODEL);
    CHECK_DIAG("raw numbers of a f32[2] take 8 bytes, the file has 4");
    tt_remove();
}
