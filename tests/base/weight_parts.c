/* tests/base/weight_parts.c -- parts of weights have the numbers of the whole weight, generated or in a file, and nothing outside of
 * it is a part. */
#include "base/base.h"
#include "test.h"
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 6, COLUMNS = 10, DEEP = 4, ALL = ROWS * COLUMNS * DEEP };
static const int64_t dim[] = {ROWS, COLUMNS, DEEP};

/* Each part along each axis, read in pieces, beside the whole. */
static void check(const nnc_weight *whole, nnc_dtype d)
{
    static double all[ALL], part[ALL];
    const nnc_type t = nnc_type_make(d, 3, dim);
    NNC_LOCAL(nnc_weight_files) files = {NULL};
    CHECK_OK(nnc_weight_read(whole, &t, 0, ALL, all, &files, test_sink));
    for (int axis = 0; axis < 3; axis++)
        for (int64_t from = 0; from < dim[axis]; from++)
            for (int64_t to = from + 1; to <= dim[axis]; to++) {
                nnc_weight w = *whole;
                nnc_type p = t;
                CHECK(nnc_weight_slice(&w, &p, axis, from, to));
                CHECK(!nnc_weight_fault(&w, &p));
                const int64_t n = nnc_type_numel(&p), size = nnc_dtype_size(d);
                for (int64_t i = 0; i < n; i += 7)
                    CHECK_OK(nnc_weight_read(&w, &p, i, n - i < 7 ? n - i : 7,
                        (char *)part + i * size, &files, test_sink));
                int64_t at = 0;
                for (int64_t i = 0; i < ALL; i++) {
                    const int64_t index[] = {i / (COLUMNS * DEEP), i / DEEP % COLUMNS, i % DEEP};
                    if (index[axis] < from || index[axis] >= to)
                        continue;
                    CHECK(nnc_get_f64(d, part, at) == nnc_get_f64(d, all, i));
                    at++;
                }
                CHECK_INT(at, n);
            }
}

TEST(weight_parts)
{
    const nnc_weight gen = {.kind = NNC_W_gen, .name = "w", .seed = 3, .scale = 2, .shift = 0.5f};
    const nnc_dtype types[] = {DT_f32, DT_f16, DT_f64};
    char path[] = "/tmp/nnc-parts-XXXXXX";
    const int fd = mkstemp(path);
    float data[3 + ALL];
    for (int i = 0; i < 3 + ALL; i++)
        data[i] = (float)i;
    CHECK(write(fd, data, sizeof data) == (ssize_t)sizeof data);
    close(fd);
    const nnc_weight file = {
        .kind = NNC_W_file, .name = "w", .file = path, .offset = 12, .size = 4 * ALL};
    for (size_t i = 0; i < NNC_COUNT(types); i++)
        check(&gen, types[i]);
    check(&file, DT_f32);
    unlink(path);
}

/* A part of a part is one where the first is in one piece. */
TEST(weight_parts_of_parts)
{
    nnc_weight w = {.kind = NNC_W_gen, .name = "w", .scale = 1};
    nnc_type t = nnc_type_make(DT_f32, 3, dim);
    CHECK(nnc_weight_slice(&w, &t, 0, 2, 5));
    CHECK(nnc_weight_slice(&w, &t, 1, 3, 5));
    CHECK_INT(w.part.first, 2 * COLUMNS * DEEP + 3 * DEEP);
    CHECK_INT(w.part.run, 2 * DEEP);
    CHECK_INT(w.part.stride, COLUMNS * DEEP);
    CHECK(!nnc_weight_slice(&w, &t, 1, 0, 1));
}

TEST(weight_parts_outside)
{
    const nnc_type t = nnc_type_make(DT_f32, 1, (int64_t[]){8});
    const nnc_weight file = {.kind = NNC_W_file, .file = "w", .size = 4 * 20};
    const struct {
        nnc_weight_part part;
        bool ok;
    } cases[] = {{{0, 4, 10}, true}, {{6, 4, 10}, true}, {{7, 4, 10}, false}, {{-1, 4, 10}, false},
        {{0, 3, 10}, false}, {{0, 0, 10}, false}, {{0, 4, 3}, false}, {{INT64_MAX, 4, 10}, false},
        {{0, 4, INT64_MAX}, false}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_weight w = file;
        w.n_part = 1;
        w.part = cases[i].part;
        CHECK((nnc_weight_fault(&w, &t) == NULL) == cases[i].ok);
    }
    nnc_weight in = {.kind = NNC_W_inline, .size = 32, .n_part = 1, .part = {0, 4, 10}};
    CHECK(nnc_weight_fault(&in, &t) != NULL);
}
