/* tests/cudac/room.c -- schedules on one SM of an H200, so that few rows fill it. Covers rows kept in part in shared memory, images
 * of few channels to channels-last, and strips of depthwise windows in vectors of eight bytes. */
#include "ct.h"

/* The kernel that `text` became. */
static const nnc_kgrid *grid_of(ct_set *s, bool fused, const char *text)
{
    static const nnc_kgrid none;
    (fused ? ct_add_fused : ct_add_text)(s, text);
    CHECK(s->n > 0);
    return s->n ? &s->k[s->n - 1]->grid : &none;
}

/* Columns that fill each thread's vectors, and those that do not. One array and two, of which the second has the first one's memory only
 * where that is read no more. */
TEST(rows_in_registers_and_shared_memory)
{
    static const int cols[] = {32768, 24000, 17000};
    ct_set s = {.sms = 1};
    char text[600];
    for (size_t i = 0; i < NNC_COUNT(cols); i++)
        for (int type = 0; type < 2; type++) {
            const char *t = type ? "f16" : "f32";
            snprintf(text, sizeof text,
                "graph @t {\n%%x = input : %s[3,%d]\n%%y = softmax %%x {axis=1}\nreturn %%y }", t,
                cols[i]);
            CHECK(grid_of(&s, false, text)->park > 0);
            snprintf(text, sizeof text,
                "graph @t {\n%%x = input : %s[3,%d]\n%%g = input : %s[%d]\n%%b = input : %s[%d]\n"
                "%%y = layernorm %%x, %%g, %%b {axis=1}\nreturn %%y }",
                t, cols[i], t, cols[i], t, cols[i]);
            CHECK(grid_of(&s, false, text)->park > 0);
        }
    CHECK(grid_of(&s, true,
              "graph @t {\n%x = input : f32[3,17000]\n%m = reduce_max %x {axes=[1], keepdims=1}\n"
              "%d = sub %x, %m\n%e = exp %d\n%z = reduce_sum %e {axes=[1], keepdims=1}\n"
              "%p = mul %e, %x\n%y = div %p, %z\nreturn %y }")
              ->park > 0);
    CHECK_INT(grid_of(&s, false,
                  "graph @t {\n%x = input : f32[3,16000]\n%y = softmax %x {axis=1}\nreturn %y }")
                  ->park,
        0); /* two blocks fit as they are */
    ct_all_agree(&s);
}

/* A part in shared memory needs registers beside it, and rows of a whole block. */
TEST(parked_schedules_are_refused)
{
    static const char *const change[][2] = {{" park 10", " park 16"}, {" park 10", " park 17"},
        {" group 512", " group 256"}, {" keep 16", " keep 0"}, {" park 10", ""}};
    ct_set s = {.sms = 1};
    nnc_text t = {0};
    (void)grid_of(
        &s, false, "graph @t {\n%x = input : f32[3,32768]\n%y = softmax %x {axis=1}\nreturn %y }");
    CHECK(s.n == 1);
    if (s.n == 1)
        nnc_kernel_print(&t, s.k[0]);
    for (size_t i = 0; i <= NNC_COUNT(change) && s.n == 1; i++) {
        const char *text = nnc_text_str(&t),
                   *at = i ? strstr(text, change[i - 1][0]) : text + strlen(text);
        nnc_text changed = {0};
        nnc_arena a;
        nnc_scan scan;
        nnc_arena_init(&a, 0);
        CHECK(at != NULL);
        if (!at)
            break;
        nnc_printf(&changed, "%.*s%s%s", (int)(at - text), text, i ? change[i - 1][1] : "",
            at + (i ? strlen(change[i - 1][0]) : 0));
        nnc_scan_init(&scan, "t", nnc_text_str(&changed), changed.n);
        const nnc_kernel *k = nnc_schedule_parse(&scan, &a, NULL);
        if ((k != NULL) != (i == 0))
            test_fail(__FILE__, __LINE__, "%s with %s:\n%s", i ? "accepted" : "refused",
                i ? change[i - 1][1] : "nothing changed", nnc_text_str(&changed));
        nnc_text_deinit(&changed);
        nnc_arena_deinit(&a);
    }
    nnc_text_deinit(&t);
    ct_set_deinit(&s);
}

TEST(images_to_channels_last)
{
    ct_set s = {.sms = 1};
    char text[400];
    for (int c = 2; c <= 8; c++) {
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[5,%d,64,72]\n%%a = cast %%x {to=f16}\n"
            "%%y = relayout %%a {order=[0,2,3,1]} : f16[5,%d,64,72]{0,2,3,1}\nreturn %%y }",
            c, c);
        const nnc_kgrid *g = grid_of(&s, true, text);
        CHECK_INT(g->cls, KC_point);
        CHECK_INT(g->vec, 8);
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[5,%d,64,72]\n%%b = input : f32[1,%d,1,1]\n"
            "%%a = add %%x, %%b\n"
            "%%y = relayout %%a {order=[0,2,3,1]} : f32[5,%d,64,72]{0,2,3,1}\nreturn %%y }",
            c, c, c);
        CHECK_INT(grid_of(&s, true, text)->vec, 4);
    }
    /* pixels that are no whole vectors, more channels, images that are too small: one element a thread, or tiles */
    CHECK_INT(grid_of(&s, true,
                  "graph @t {\n%x = input : f32[9,3,67,67]\n"
                  "%y = relayout %x {order=[0,2,3,1]} : f32[9,3,67,67]{0,2,3,1}\nreturn %y }")
                  ->vec,
        1);
    CHECK_INT(grid_of(&s, true,
                  "graph @t {\n%x = input : f32[1,3,16,16]\n"
                  "%y = relayout %x {order=[0,2,3,1]} : f32[1,3,16,16]{0,2,3,1}\nreturn %y }")
                  ->vec,
        1);
    CHECK_INT(grid_of(&s, true,
                  "graph @t {\n%x = input : f32[5,9,64,64]\n"
                  "%y = relayout %x {order=[0,2,3,1]} : f32[5,9,64,64]{0,2,3,1}\nreturn %y }")
                  ->cls,
        KC_tile);
    ct_all_agree(&s);
}

/* Strips of 5 to 8 results have vectors of 4, shorter ones of 8. */
TEST(depthwise_strips_in_narrow_vectors)
{
    static const struct {
        const char *type;
        int size, k, stride, vec;
    } w[] = {{"f16", 14, 3, 1, 4}, {"bf16", 15, 3, 1, 4}, {"bf16", 15, 5, 1, 4},
        {"f16", 21, 5, 2, 4}, {"f16", 8, 3, 2, 4}};
    ct_set s = {.sms = 1};
    char text[600];
    for (size_t i = 0; i < NNC_COUNT(w); i++) {
        const char *t = w[i].type;
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : %s[6,32,%d,%d]{0,2,3,1}\n%%w = input : "
            "%s[32,1,%d,%d]{2,3,1,0}\n"
            "%%b = input : %s[32]\n"
            "%%c = conv %%x, %%w, %%b {groups=32, strides=[%d,%d], pads=[%d,%d,%d,%d]}"
            " : %s[6,32,%d,%d]{0,2,3,1}\nreturn %%c }",
            t, w[i].size, w[i].size, t, w[i].k, w[i].k, t, w[i].stride, w[i].stride, w[i].k / 2,
            w[i].k / 2, w[i].k / 2, w[i].k / 2, t, (w[i].size - 1) / w[i].stride + 1,
            (w[i].size - 1) / w[i].stride + 1);
        CHECK_INT(grid_of(&s, false, text)->vec, w[i].vec);
    }
    ct_all_agree(&s);
}
