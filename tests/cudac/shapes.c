/* tests/cudac/shapes.c -- shapes chosen for each schedule: short, long and odd rows, columns, windows, transposes, tails. */
#include "ct.h"
#include "passes/passes.h"

#include <math.h>
#include <sys/mman.h>

static const nnc_kernel *last(const ct_set *s)
{
    return s->n ? s->k[s->n - 1] : NULL;
}

static void add(ct_set *s, bool fused, const char *fmt, ...) NNC_PRINTF(3, 4);
static void add(ct_set *s, bool fused, const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (fused ? ct_add_fused : ct_add_text)(s, text);
}

TEST(rows_of_every_length)
{
    static const int cols[] = {8, 9, 31, 32, 100, 256, 257, 1000, 1024, 4096, 5003, 20000};
    static const char *const type[] = {"f32", "f16", "bf16", "f64"};
    ct_set s = {0};
    for (size_t i = 0; i < NNC_COUNT(cols); i++) {
        int n = cols[i], rows = n > 2000 ? 3 : 5;
        add(&s, false,
            "graph @t {\n%%x = input : %s[%d,%d]\n%%y = softmax %%x {axis=1}\nreturn %%y }",
            type[i % 4], rows, n);
        CHECK(last(&s) && (n < 16 || last(&s)->grid.cls == KC_row));
        add(&s, false,
            "graph @t {\n%%x = input : f32[%d,%d]\n%%g = input : f32[%d]\n%%b = input : f32[%d]\n"
            "%%y = layernorm %%x, %%g, %%b {axis=1}\nreturn %%y }",
            rows, n, n, n);
        add(&s, false,
            "graph @t {\n%%x = input : %s[%d,%d]\n%%y = argmax %%x {axis=1}\nreturn %%y }",
            i % 2 ? "f32" : "i32", rows, n);
        add(&s, true,
            "graph @t {\n%%x = input : f32[%d,%d]\n%%y = reduce_max %%x {axes=[1]}\n%%e = exp %%y\n"
            "return %%e }",
            rows, n);
    }
    ct_all_agree(&s);
}

/* More than one row of threads a block, rows that do not fill the last block. */
TEST(many_rows)
{
    ct_set s = {0};
    for (int n = 8; n <= 128; n *= 2)
        add(&s, false,
            "graph @t {\n%%x = input : f32[%d,%d]\n%%y = softmax %%x {axis=1}\nreturn %%y }", 77,
            n);
    add(&s, true,
        "graph @t {\n%%x = input : i32[45,16]\n%%y = reduce_sum %%x {axes=[1]}\nreturn %%y }");
    add(&s, true,
        "graph @t {\n%%x = input : i8[45,24]\n%%y = reduce_min %%x {axes=[1]}\nreturn %%y }");
    ct_all_agree(&s);
}

TEST(tails_of_vectors)
{
    ct_set s = {0};
    for (int n = 290000; n < 290005; n++)
        add(&s, true,
            "graph @t {\n%%x = input : f32[%d]\n%%y = relu %%x\n%%z = add %%x, %%y\nreturn %%z }",
            n);
    add(&s, true, "graph @t {\n%%x = input : f16[600002]\n%%y = neg %%x\nreturn %%y }");
    add(&s, true, "graph @t {\n%%x = input : bool[600003]\n%%y = not %%x\nreturn %%y }");
    CHECK(s.n > 5 && s.k[1]->grid.vec > 1);
    ct_all_agree(&s);
}

static void transposed(ct_set *s, const char *type, const char *shape, const char *line)
{
    add(s, false, "graph @t {\n%%x = input : %s%s\n%s\nreturn %%y }", type, shape, line);
    CHECK(last(s) && last(s)->grid.cls == KC_tile);
}

/* Squares of every element size; whole ones, and rests of rows, of columns, of both. */
TEST(transposing_kernels)
{
    static const char *const types[] = {"f32", "f16", "f64", "i8", "bool", "i16", "u64"};
    ct_set s = {0};
    for (size_t i = 0; i < NNC_COUNT(types); i++) {
        transposed(&s, types[i], "[64,96]", "%y = transpose %x {perm=[1,0]}");
        transposed(&s, types[i], "[3,71,1,83]", "%y = transpose %x {perm=[0,3,2,1]}");
        transposed(&s, types[i], "[9,600]", "%y = transpose %x {perm=[1,0]}");
        transposed(&s, types[i], "[1100,8]", "%y = transpose %x {perm=[1,0]}");
    }
    transposed(&s, "f32", "[2,40,9,9]{0,2,3,1}", "%a = input : f32[2,40,9,9]\n%y = add %x, %a");
    transposed(
        &s, "f32", "[2,40,9,9]", "%y = relayout %x {order=[0,2,3,1]} : f32[2,40,9,9]{0,2,3,1}");
    ct_all_agree(&s);
}

TEST(columns)
{
    static const int rows[] = {16, 100, 3000};
    static const int cols[] = {8, 64, 333};
    ct_set s = {0};
    for (int i = 0; i < 9; i++) {
        int r = rows[i % 3], c = cols[i / 3];
        /* Only the first graph is split over blocks: the others' schedules are those of 3000 rows. */
        int n = i < 8 ? r : 1000;
        add(&s, true,
            "graph @t {\n%%x = input : %s[%d,%d]\n%%y = reduce_sum %%x {axes=[0]}\nreturn %%y }",
            i % 2 ? "f16" : "f32", r, c);
        CHECK(last(&s) && last(&s)->grid.cls == KC_column);
        add(&s, false,
            "graph @t {\n%%x = input : f32[2,%d,%d]\n%%y = softmax %%x {axis=1}\nreturn %%y }", n,
            c);
        add(&s, false,
            "graph @t {\n%%x = input : f32[%d,%d]\n%%y = argmin %%x {axis=0}\nreturn %%y }", n, c);
        add(&s, true,
            "graph @t {\n%%x = input : f32[%d,%d]\n%%m = reduce_mean %%x {axes=[0], keepdims=1}\n"
            "%%d = sub %%x, %%m\n%%q = square %%d\n%%v = reduce_mean %%q {axes=[0]}\nreturn %%v }",
            n, c);
    }
    /* pooling over all places of many channels: windows that have nothing in common */
    add(&s, true,
        "graph @t {\n%%x = input : f16[128,544,4,4]{0,2,3,1}\n"
        "%%y = reduce_mean %%x {axes=[2,3]}\nreturn %%y }");
    CHECK(last(&s) && last(&s)->grid.cls == KC_column && last(&s)->grid.vec == 8);
    ct_all_agree(&s);
}

/* Few points with long sums: blocks share a point, a second launch combines the partial results. */
TEST(split_sums)
{
    ct_set s = {0};
    for (int i = 0; i < 4; i++) {
        static const char *const red[] = {"reduce_sum", "reduce_max", "reduce_mean", "reduce_prod"};
        add(&s, true,
            "graph @t {\n%%x = input : f32[%d]\n%%y = %s %%x {axes=[0]}\n%%e = abs %%y\nreturn %%e "
            "}",
            300000 + i, red[i]);
        CHECK(last(&s) && last(&s)->grid.split > 1);
        add(&s, true, "graph @t {\n%%x = input : %s[%d,40]\n%%y = %s %%x {axes=[0]}\nreturn %%y }",
            i % 2 ? "f16" : "f32", 5000 + i, red[i]);
        CHECK(last(&s) && last(&s)->grid.split > 1);
    }
    add(&s, true,
        "graph @t {\n%%x = input : i64[5,90001]\n%%y = reduce_sum %%x {axes=[1]}\nreturn %%y }");
    ct_all_agree(&s);
}

/* Sums over several blocks whose elements depend on what is known of the column before, or are stored on the way; and in the epilogue. */
TEST(split_sums_of_stored_elements)
{
    static const char *const type[] = {"f32", "f16", "f64"};
    ct_set s = {0};
    for (int i = 0; i < 6; i++) {
        add(&s, true,
            "graph @t {\n%%x = input : %s[%d,%d]\n%%m = input : %s[%d]\n%%d = sub %%x, %%m\n"
            "%%q = square %%d\n%%v = reduce_mean %%q {axes=[0]}\n%%e = add %%v, %%m\nreturn %s%%e "
            "}",
            type[i % 3], 6000 + i, i < 3 ? 40 : 64, type[i % 3], i < 3 ? 40 : 64,
            i % 2 ? "%d, " : "");
        CHECK(last(&s) && last(&s)->grid.split > 1);
    }
    ct_all_agree(&s);
}

enum { PASS_ROWS = 20000, PASS_COLS = 64 };

/* Compares mean[] and var[] of the columns of x with sums in f64. */
static void check_statistics(const float *x, const float *mean, const float *var)
{
    for (int c = 0; c < PASS_COLS; c++) {
        double m = 0, v = 0;
        for (int r = 0; r < PASS_ROWS; r++)
            m += (double)x[r * PASS_COLS + c] / PASS_ROWS;
        for (int r = 0; r < PASS_ROWS; r++)
            v += (x[r * PASS_COLS + c] - m) * (x[r * PASS_COLS + c] - m) / PASS_ROWS;
        CHECK_NEAR(mean[c], m, 1e-6 * m);
        CHECK_NEAR(var[c], v, 1e-4 * v);
    }
}

/* A mean of 1000 beside a deviation of 0.3: of mean(x^2) - mean(x)^2 no digit would be right. */
TEST(statistics_in_one_pass)
{
    static const char *const only[] = {"one_pass"};
    ct_set s = {0};
    char text[600];
    nnc_remarks r;
    snprintf(text, sizeof text,
        "graph @t {\n%%x = input : f32[%d,%d]\n"
        "%%m = reduce_mean %%x {axes=[0], keepdims=1}\n%%d = sub %%x, %%m\n%%q = square %%d\n"
        "%%v = reduce_mean %%q {axes=[0], keepdims=1}\nreturn %%m, %%v }",
        PASS_ROWS, PASS_COLS);
    nnc_graph *g = ct_parse(text);
    nnc_remarks_init(&r);
    CHECK_OK(nnc_passes_run(&g,
        &(nnc_pass_options){.level = 2, .target = ct_h200(), .only = only, .n_only = 1}, &r,
        test_sink));
    CHECK(r.n == 1 && r.at[0].applied);
    nnc_graph *one = g ? ct_fuse(g) : NULL;
    if (one)
        ct_add_graph(&s, one);
    CHECK(last(&s) && last(&s)->grid.split > 1);
    if (last(&s) && ct_build(&s, NULL)) {
        const size_t size[] = {sizeof(float) * PASS_ROWS * PASS_COLS, sizeof(float) * PASS_COLS,
            sizeof(float) * PASS_COLS, (size_t)last(&s)->grid.work};
        void *base[4], *arg[4];
        for (int i = 0; i < 4; i++)
            arg[i] = ct_guarded(size[i], &base[i]);
        for (int i = 0; i < PASS_ROWS * PASS_COLS; i++)
            ((float *)arg[0])[i] = 1000 + (float)(nnc_hash64(&i, sizeof i, 0) >> 40) * 0x1p-24f;
        const char *bad = ct_call(&s, 0, arg);
        CHECK_STR(bad ? bad : "", "");
        check_statistics(arg[0], arg[1], arg[2]);
        for (int i = 0; i < 4; i++)
            ct_unguard(base[i], size[i]);
    }
    ct_set_deinit(&s);
    nnc_remarks_deinit(&r);
    nnc_graph_destroy(one);
    nnc_graph_destroy(g);
}

static void add_column(ct_set *s, const char *type, int rows, int cols, int vec)
{
    add(s, true,
        "graph @t {\n%%x = input : %s[%d,%d]\n%%y = reduce_sum %%x {axes=[0]}\n%%e = abs %%y\n"
        "%%z = reduce_max %%x {axes=[0]}\n%%d = sub %%z, %%e\nreturn %%d }",
        type, rows, cols);
    const nnc_kernel *k = last(s);
    CHECK(k && k->grid.cls == KC_column && k->grid.split > 1);
    CHECK_INT(k ? k->grid.vec : 0, vec);
}

/* Long sums over few points: accesses of 16 bytes, because blocks share the sums; whole warps of columns and not. */
TEST(split_columns_in_vectors)
{
    ct_set s = {.sms = 2};
    add_column(&s, "f32", 600, 128, 4);
    add_column(&s, "f32", 2600, 128, 4);
    add_column(&s, "f16", 600, 256, 8);
    add_column(&s, "bf16", 1025, 128, 4);
    add_column(&s, "f64", 600, 64, 2);
    add_column(&s, "f32", 400, 48, 1);
    ct_all_agree(&s);
}

/* Many parts of a point: the second launch has one thread of each of a block's warps for it. */
TEST(split_into_many_parts)
{
    ct_set s = {.sms = 16};
    add_column(&s, "f32", 5001, 48, 2); /* a warp of 24 pairs */
    CHECK(last(&s)->grid.split >= 16 && last(&s)->grid.finish == 2);
    add_column(&s, "f32", 5000, 128, 4);
    CHECK(last(&s)->grid.split >= 16 && last(&s)->grid.finish == 4);
    add_column(&s, "bf16", 5001, 144, 8); /* of 18 vectors: channels of EfficientNet-B0 */
    add_column(&s, "bf16", 5001, 96, 4); /* 12 of 8 elements would be less than half of a warp */
    add(&s, true,
        "graph @t {\n%%x = input : f32[530001]\n%%y = reduce_mean %%x {axes=[0]}\n%%e = abs %%y\n"
        "return %%e }");
    CHECK(last(&s)->grid.cls == KC_row && last(&s)->grid.split >= 16);
    CHECK_INT(last(&s)->grid.finish, 1);
    ct_all_agree(&s);
}

/* Places as results: of an axis, of the best; rows cut short included. */
TEST(places_in_vectors)
{
    ct_set s = {.tiny = true};
    for (int n = 64; n < 67; n++) {
        add(&s, false,
            "graph @t {\n%%x = input : f32[3,%d]\n%%y = argmax %%x {axis=0}\nreturn %%y }", n);
        add(&s, true,
            "graph @t {\n%%i = iota {dim=0} : i64[%d]\n%%x = input : i64[%d]\n%%y = add %%i, %%x\n"
            "return %%y, %%i }",
            n, n);
    }
    ct_all_agree(&s);
}

/* Rows of which one operand lies along memory and the other across: lanes of the latter are loaded one by one, again by each
 * stage. */
TEST(rows_across_memory)
{
    ct_set s = {.tiny = true};
    for (int n = 12; n < 80; n *= 2)
        add(&s, true,
            "graph @t {\n%%x = input : f64[%d,24]\n%%y = input : f64[%d,1]\n%%d = sub %%x, %%y\n"
            "%%z = softmax %%d {axis=0}\nreturn %%z }",
            n, n);
    nnc_scan scan;
    static const char text[] =
        "kernel k_across { axis i0 outer 24 axis m0 map 12 axis r0 reduce 12\n"
        "buf x0 in f32 288 buf x1 in f32 12 buf y0 out f32 288\n"
        "schedule cuda row threads 128 vec 4 group 2 keep 2 blocks 1\n"
        "stage r0 { %0 = load f32 x0[i0 + r0*24] %1 = load f32 x1[r0] %2 = sub f32 %0 %1\n"
        "%3 = reduce max f32 %2 }\n"
        "stage m0 { %4 = load f32 x0[i0 + m0*24] %5 = load f32 x1[m0] %6 = sub f32 %4 %5\n"
        "%7 = sub f32 %6 %3 %8 = store f32 y0[i0 + m0*24] %7 } }";
    nnc_scan_init(&scan, "k", text, sizeof text - 1);
    const nnc_kernel *k = nnc_schedule_parse(&scan, &s.arena, test_sink);
    CHECK(k != NULL);
    if (k)
        ct_add(&s, k);
    ct_all_agree(&s);
}

/* Padding by what no vector divides: lanes are guarded one by one. */
TEST(guards_of_lanes)
{
    ct_set s = {.tiny = true};
    for (int n = 1; n < 5; n++)
        add(&s, false,
            "graph @t {\n%%x = input : %s[5,%d]\n%%y = pad %%x {pads=[0,%d,1,%d], value=1}\nreturn "
            "%%y }",
            n % 2 ? "f32" : "bool", 64 - n, n, 8 - n % 2);
    ct_all_agree(&s);
}

/* 2^32 + 4 elements: offsets of 64 bits. Memory is reserved, and touched where the last blocks are. */
TEST(more_elements_than_32_bits_count)
{
    static const int64_t n = ((int64_t)1 << 32) + 4;
    ct_set s = {0};
    add(&s, true,
        "graph @t {\n%%x = input : f32[%lld]\n%%a = sin %%x\n%%b = sin %%a\n%%c = sin %%b\n%%d = "
        "sin %%c\n"
        "return %%d }",
        (long long)n);
    CHECK_INT(s.n, 1);
    CHECK_INT(s.n ? s.k[0]->grid.index : 0, 64);
    void *arg[2];
    for (int i = 0; i < 2; i++) {
        arg[i] = mmap(NULL, 4 * (size_t)n, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arg[i] == MAP_FAILED) {
            test_skip("no address space of 16 GiB");
            ct_set_deinit(&s);
            return;
        }
    }
    float *x = arg[0], *y = arg[1];
    for (int64_t i = n - 3000; i < n; i++)
        x[i] = (float)(n - i) * 0.01f - 9;
    if (ct_build(&s, NULL)) {
        s.first = s.k[0]->grid.blocks - 2;
        s.count = 2;
        CHECK_STR(ct_call(&s, 0, arg), NULL);
        for (int64_t i = n - 2000; i < n; i++)
            CHECK_NEAR(y[i], sin(sin(sin(sin((double)x[i])))), 3e-7);
    }
    munmap(x, 4 * (size_t)n);
    munmap(y, 4 * (size_t)n);
    ct_set_deinit(&s);
}

/* Few long rows that are moved alone: blocks share them, and there is nothing to join. */
TEST(shared_rows)
{
    static const char head[] = "axis i0 outer 2 axis m0 map 50000 axis m1 map 30001\n"
                               "buf x0 in f32 100000 buf x1 in f32 60002 buf y0 out f32 160002\n";
    static const char tail[] =
        "stage m0 { %0 = load f32 x0[i0*50000 + m0] %1 = store f32 y0[i0*80001 + m0] %0 }\n"
        "stage m1 { %2 = load f32 x1[i0*30001 + m1] %3 = neg f32 %2\n"
        "%4 = store f32 y0[i0*80001 + m1 + 50000] %3 } }";
    static const char *const how[] = {"threads 1024 group 1024 split 7 blocks 14",
        "threads 128 vec 4 group 32 split 300 blocks 300", "threads 128 vec 2 group 64 blocks 1"};
    ct_set s = {.open = true};
    nnc_arena_init(&s.arena, 0);
    for (size_t i = 0; i < NNC_COUNT(how); i++) {
        char text[800];
        nnc_scan scan;
        snprintf(text, sizeof text, "kernel k_move_%zu {\n%sschedule cuda row %s\n%s", i, head,
            how[i], tail);
        nnc_scan_init(&scan, "k", text, strlen(text));
        const nnc_kernel *k = nnc_schedule_parse(&scan, &s.arena, test_sink);
        CHECK(k != NULL);
        if (k)
            ct_add(&s, k);
        else
            nnc_sink_print(test_sink, stderr);
    }
    ct_all_agree(&s);
}

/* Contractions that no library takes: every schedule that their sums get, by themselves and with what follows. */
TEST(sums_of_products)
{
    static const char *const types[] = {"f64", "i32", "u8", "i64", "bf16"};
    ct_set s = {.sums = true};
    for (size_t i = 0; i < NNC_COUNT(types); i++) {
        const char *t = types[i];
        s.tiny = i % 2;
        add(&s, false,
            "graph @t {\n%%a = input : %s[3,33,40]\n%%b = input : %s[40,17]\n%%y = matmul %%a, "
            "%%b\nreturn %%y }",
            t, t);
        add(&s, false,
            "graph @t {\n%%a = input : %s[70,9]\n%%b = input : %s[2,50,70]\n%%y = matmul %%a, %%b "
            "{transpose_a=1, transpose_b=1}\nreturn %%y }",
            t, t);
        add(&s, true,
            "graph @t {\n%%x = input : %s[5,600]\n%%w = input : %s[7,600]\n%%b = input : "
            "%s[7]\n%%y = linear %%x, %%w, %%b\n%%z = abs %%y\nreturn %%z }",
            t, t, t);
        add(&s, true,
            "graph @t {\n%%x = input : %s[2,6,11,9]\n%%w = input : %s[8,3,3,3]\n%%b = input : "
            "%s[8]\n%%y = conv %%x, %%w, %%b {groups=2, pads=[1,1,0,2], strides=[2,1]}\n%%z = max "
            "%%y, %%y\nreturn %%z }",
            t, t, t);
        add(&s, false,
            "graph @t {\n%%x = input : %s[2,6,5,4]{0,2,3,1}\n%%w = input : %s[6,4,3,2]\n%%y = "
            "conv_transpose %%x, %%w {strides=[2,1], dilations=[1,2], pads=[1,0,0,1]}\nreturn %%y "
            "}",
            t, t);
        add(&s, false,
            "graph @t {\n%%x = input : %s[2,4,6]\n%%w = input : %s[4,2,3]\n%%b = input : "
            "%s[4]\n%%y = conv_transpose %%x, %%w, %%b {strides=[3], dilations=[2], "
            "groups=2}\nreturn %%y }",
            t, t, t);
    }
    CHECK_INT(s.n, 6 * (int)NNC_COUNT(types));
    ct_all_agree(&s);
}

/* Products of few rows, of which a group of threads has all rows and several results. Covers sums of one warp and of several, 16-bit
 * and f32 operands, terms that fill no vector. */
TEST(products_of_few_rows)
{
    static const struct {
        int rows, terms, outputs, warps;
        const char *x, *w;
    } of[] = {{4, 2000, 8, 1, "f32", "f16"}, {3, 1500, 8, 1, "f32", "f32"},
        {2, 1234, 6, 1, "f16", "f16"}, {4, 96, 8, 0, "bf16", "bf16"}, {3, 61, 7, 0, "f32", "f32"},
        {1, 3000, 5, 1, "f32", "f32"}};
    ct_set s = {.sums = true, .tiny = true};
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        add(&s, true,
            "graph @t {\n%%x = input : %s[%d,%d]\n%%w = input : %s[%d,%d]\n%%c = cast %%x "
            "{to=f32}\n%%d = cast %%w {to=f32}\n%%b = input : f32[%d]\n%%y = matmul %%c, "
            "%%d {transpose_b=1, as_kernel=1}\n%%a = add %%y, %%b\n%%z = relu %%a\nreturn %%z }",
            of[i].x, of[i].rows, of[i].terms, of[i].w, of[i].outputs, of[i].terms, of[i].outputs);
        const nnc_kernel *k = last(&s);
        CHECK(k && k->grid.cls == KC_row && (k->grid.group > 32) == of[i].warps);
        int sums = 0;
        for (int j = 0; k && j < k->n_ins; j++)
            sums += k->ins[j].op == KO_reduce;
        CHECK(of[i].rows == 1 ? sums == 1 : sums >= of[i].rows && sums % of[i].rows == 0);
    }
    ct_all_agree(&s);
}

/* A row's own value is loaded by all threads of its group, and overwritten by the first one: not before the others have loaded it. */
TEST(results_over_values_of_a_row)
{
    static const int shape[][3] = {
        {6, 40, 1}, {3, 500, 1}, {2, 9000, 1}, {700, 64, 0}, {40, 96, 0}};
    ct_set s = {0};
    for (size_t i = 0; i < NNC_COUNT(shape); i++) {
        const int r = shape[i][0], c = shape[i][1], axis = shape[i][2];
        const int vr = axis ? r : 1, vc = axis ? 1 : c;
        char text[700];
        snprintf(text, sizeof text,
            "graph @g { %%x = input : f32[%d,%d]\n %%v = input : f32[%d,%d]\n %%h = constant : "
            "f32[] = [0.5]\n"
            "%%y = mul %%v, %%h : f32[%d,%d]\n %%d = sub %%x, %%v : f32[%d,%d]\n"
            "%%s = reduce_sum %%d {axes=[%d], keepdims=1} : f32[%d,%d]\n return %%y, %%s }",
            r, c, vr, vc, vr, vc, r, c, axis, vr, vc);
        ct_add_fused(&s, text);
        CHECK(s.n == (int)i + 1 && nnc_kernel_in_place(s.k[i], 1, 2));
    }
    ct_all_agree(&s);
}
