/* tests/cudac/steps.c -- recurrences: blocks of rows of the batch, elements along threads, sums that rows of threads share. */
#include "ct.h"

static const nnc_kernel *lstm(ct_set *s, const char *type, int steps, int batch, int hidden)
{
    return ct_add_one(s,
        "graph @t {\n%%x = input : %s[%d,%d,%d]\n%%r = input : %s[%d,%d]\n%%h = input : %s[%d,%d]\n"
        "%%d = input : %s[%d,%d]\n%%y, %%c = lstm %%x, %%r, %%h, %%d\nreturn %%y, %%c }",
        type, steps, batch, 4 * hidden, type, hidden, 4 * hidden, type, batch, hidden, type, batch,
        hidden);
}

/* Elements that fill their threads and not, in one pass and several. One row of threads for a sum, and many. Rows of the batch in
 * blocks of one and of several, or none. */
TEST(recurrences_by_block)
{
    static const struct {
        int steps, batch, hidden, vec, group, split;
    } c[] = {{3, 1, 8, 1, 1, 1}, {3, 2, 33, 2, 2, 1}, {2, 5, 64, 1, 4, 1}, {4, 8, 40, 8, 2, 1},
        {3, 12, 100, 4, 4, 1}, {2, 2, 256, 2, 2, 1}, {2, 2, 300, 2, 1, 1}, {2, 3, 520, 1, 1, 2},
        {1, 6, 32, 2, 2, 1}};
    ct_set s = {.sms = 2};
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        const nnc_kernel *k =
            lstm(&s, i % 4 == 3 ? "f16" : "f32", c[i].steps, c[i].batch, c[i].hidden);
        CHECK(k && k->grid.cls == KC_steps);
        CHECK_INT(k ? k->grid.vec : 0, c[i].vec);
        CHECK_INT(k ? k->grid.group : 0, c[i].group);
        CHECK_INT(k ? k->grid.split : 0, c[i].split);
    }
    ct_all_agree(&s);
}

TEST(cells_and_gradients)
{
    ct_set s = {.sms = 2};
    static const char *const types[] = {"f32", "f64", "bf16"};
    for (int i = 0; i < 3; i++) {
        const char *d = types[i];
        const nnc_kernel *k[] = {
            ct_add_one(&s,
                "graph @t {\n%%x = input : %s[3,4,96]\n%%r = input : %s[32,96]\n"
                "%%b = input : %s[32]\n%%h = input : %s[4,32]\n%%n = input : i32[4]\n"
                "%%y = gru %%x, %%r, %%b, %%h, %%n\nreturn %%y }",
                d, d, d, d),
            ct_add_one(&s,
                "graph @t {\n%%x = input : %s[3,4,70]\n%%r = input : %s[70,70]\n"
                "%%h = input : %s[4,70]\n%%y = rnn %%x, %%r, %%h {activation=%s}\nreturn %%y }",
                d, d, d, i == 1 ? "relu" : "tanh"),
            ct_add_one(&s,
                "graph @t {\n%%y = input : %s[3,4,32]\n%%p = input : %s[3,4,128]\n"
                "%%w = input : %s[128,32]\n%%f = input : %s[3,4,32]\n%%e = input : %s[4,32]\n"
                "%%a = input : %s[3,4,32]\n"
                "%%d, %%g = recurrent_grad %%y, %%p, %%w, %%f, %%e, %%a\nreturn %%d, %%g }",
                d, d, d, d, d, d)};
        for (int j = 0; j < 3; j++)
            CHECK(k[j] && k[j]->grid.cls == KC_steps);
    }
    ct_all_agree(&s);
}

/* Clusters of blocks that divide the elements. */
TEST(recurrences_by_cluster)
{
    static const struct {
        int sms, batch, hidden, vec, group, split;
    } c[] = {{16, 1, 256, 1, 16, 8}, {16, 4, 264, 4, 8, 8}, {4, 2, 192, 2, 8, 4}};
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        ct_set s = {.sms = c[i].sms};
        const nnc_kernel *k = lstm(&s, i % 2 ? "f64" : "f32", 2, c[i].batch, c[i].hidden);
        CHECK(k && k->grid.cls == KC_steps);
        CHECK_INT(k ? k->grid.vec : 0, c[i].vec);
        CHECK_INT(k ? k->grid.group : 0, c[i].group);
        CHECK_INT(k ? k->grid.split : 0, c[i].split);
        CHECK_INT(k ? k->grid.blocks : 0, c[i].batch / c[i].vec * c[i].split);
        ct_all_agree(&s);
    }
}
