/* tests/cudac/scatter.c -- scattering: rows divided over blocks, whose threads look for their updates together or alone. */
#include "ct.h"

static const char *const how[] = {"", "{reduction=add}", "{reduction=max}", "{reduction=mul}"};

/* Rows by one index or two; columns that fill blocks and not; updates of several rounds, some of the same row. */
TEST(scattered_rows)
{
    static const struct {
        int rows, columns, updates;
        const char *type, *index;
    } c[] = {{40, 70, 9, "f32", "i64"}, {30, 256, 300, "f32", "i32"}, {17, 33, 64, "f16", "i64"},
        {100, 1, 333, "i32", "u8"}, {3, 300, 40, "bf16", "i64"}, {700, 5, 513, "f64", "i16"}};
    ct_set s = {.sms = 2};
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        const nnc_kernel *k = ct_add_one(&s,
            "graph @t {\n%%x = input : %s[%d,%d]\n%%i = input : %s[%d,1]\n%%u = input : %s[%d,%d]\n"
            "%%y = scatter_nd %%x, %%i, %%u %s\nreturn %%y }",
            c[i].type, c[i].rows, c[i].columns, c[i].index, c[i].updates, c[i].type, c[i].updates,
            c[i].columns, how[i % 4]);
        CHECK(k && k->grid.cls == KC_scatter && k->grid.split > 1);
    }
    const nnc_kernel *k = ct_add_one(&s,
        "graph @t {\n%%x = input : f32[6,7,20]\n%%i = input : i64[4,5,2]\n"
        "%%u = input : f32[4,5,20]\n%%y = scatter_nd %%x, %%i, %%u {reduction=add}\nreturn %%y }");
    CHECK(k && k->grid.cls == KC_scatter && k->grid.split > 1);
    ct_all_agree(&s);
}

/* Places of their own for each point, along the last axis and another; fewer updates than elements across. */
TEST(scattered_elements)
{
    static const char *const with[] = {"", ", reduction=add", ", reduction=min"};
    ct_set s = {.sms = 2};
    for (int i = 0; i < 3; i++) {
        const nnc_kernel *k[] = {
            ct_add_one(&s,
                "graph @t {\n%%x = input : f32[%d,9]\n%%i = input : i64[20,9]\n"
                "%%u = input : f32[20,9]\n%%y = scatter %%x, %%i, %%u {axis=0%s}\nreturn %%y }",
                50 + i, with[i]),
            ct_add_one(&s,
                "graph @t {\n%%x = input : f16[4,%d]\n%%i = input : i32[4,30]\n"
                "%%u = input : f16[4,30]\n%%y = scatter %%x, %%i, %%u {axis=1%s}\nreturn %%y }",
                100 + i, with[i]),
            ct_add_one(&s,
                "graph @t {\n%%x = input : f32[3,%d,7]\n%%i = input : i64[2,70,5]\n"
                "%%u = input : f32[2,70,5]\n%%y = scatter %%x, %%i, %%u {axis=1%s}\nreturn %%y }",
                60 + i, with[i])};
        for (int j = 0; j < 3; j++)
            CHECK(k[j] && k[j]->grid.cls == KC_scatter && k[j]->grid.split > 1);
    }
    ct_all_agree(&s);
}

/* The gradient of an embedding: nothing is read for the rows' zeros. */
TEST(scattered_over_a_number)
{
    ct_set s = {.sms = 2};
    for (int i = 0; i < 2; i++) {
        const nnc_kernel *k = ct_add_one(&s,
            "graph @t {\n%%x = constant : %s[90,40] = splat %s\n%%i = input : i64[30,1]\n"
            "%%u = input : %s[30,40]\n%%y = scatter_nd %%x, %%i, %%u {reduction=add}\nreturn %%y }",
            i ? "i64" : "f16", i ? "-3" : "0", i ? "i64" : "f16");
        CHECK(k && k->grid.cls == KC_scatter && k->ins[0].op == KO_const);
    }
    ct_all_agree(&s);
}

/* Few rows, to which all updates go: a reduction with a mask, whose blocks share the sums. */
TEST(few_rows)
{
    static const char *const types[] = {"f32", "f16", "i32", "f64"};
    ct_set s = {.sms = 4};
    for (int i = 0; i < 4; i++) {
        const nnc_kernel *k = ct_add_one(&s,
            "graph @t {\n%%x = input : %s[2,128]\n%%i = input : %s[10,60,1]\n"
            "%%u = input : %s[10,60,128]\n%%y = scatter_nd %%x, %%i, %%u %s\nreturn %%y }",
            types[i], i % 2 ? "i32" : "i64", types[i], how[i ? i : 1]);
        CHECK(k && k->grid.cls == KC_column && k->n_stage == 1);
        k = ct_add_one(&s,
            "graph @t {\n%%x = constant : %s[3,20] = splat 1\n%%i = input : %s[100,20]\n"
            "%%u = input : %s[100,20]\n%%y = scatter %%x, %%i, %%u {axis=0, reduction=%s}\n"
            "return %%y }",
            types[i], i % 2 ? "i8" : "i64", types[i],
            i < 2    ? "add"
            : i == 2 ? "min"
                     : "max");
        CHECK(k && k->grid.cls != KC_scatter && k->n_stage == 1);
    }
    ct_all_agree(&s);
}
