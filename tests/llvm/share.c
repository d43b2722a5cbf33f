/* tests/llvm/share.c -- kernels that differ only in sizes share their code, and each object depends on its kernel alone. */
#include "kb.h"

#include <elf.h>

static kb b;

/* y[i][j] = 2 x[i][j + 1], of rows x columns elements; rows of x are `stride` apart. */
static void scaled_rows(const char *name, int64_t rows, int64_t columns, int64_t stride)
{
    kb_init(&b, name);
    kb_axis(&b, KA_outer, rows);
    const int c = kb_axis(&b, KA_outer, columns);
    const int x = kb_buf(&b, KB_in, DT_f32, rows * stride + columns);
    const int y = kb_buf(&b, KB_out, DT_f32, rows * columns);
    kb_stage(&b, 0);
    int v = kb_load(&b, x, (nnc_affine){.c = 1, .k = {stride, 1}});
    v = kb_op(&b, SC_add, DT_f32, v, v, -1);
    kb_store(&b, y, (nnc_affine){.k = {columns, 1}}, v);
    kb_done(&b, c, 16, columns);
}

/* The section of code, of *n bytes, of object number `object`; NULL: there are fewer. */
static const char *code_of(const kb_code *c, int object, size_t *n)
{
    Elf64_Ehdr h;
    Elf64_Shdr s;
    const char *bytes = c->bytes;
    for (int i = 0; i <= object; i++) {
        bytes += i ? h.e_shoff + (size_t)h.e_shnum * sizeof s : 0;
        if (bytes == c->bytes + c->n)
            return NULL;
        memcpy(&h, bytes, sizeof h);
    }
    for (int i = 0; i < h.e_shnum; i++) {
        memcpy(&s, bytes + h.e_shoff + (size_t)i * sizeof s, sizeof s);
        *n = s.sh_size;
        if (s.sh_type == SHT_PROGBITS && s.sh_flags & SHF_EXECINSTR && s.sh_size)
            return bytes + s.sh_offset;
    }
    return NULL;
}

static bool same_object(const kb_code *c, const kb_code *d, int object)
{
    size_t n = 0, m = 0;
    const char *x = code_of(c, object, &n), *y = code_of(d, object, &m);
    return x && y && n == m && !memcmp(x, y, n);
}

static bool same_code(const kb_code *c, const kb_code *d)
{
    return same_object(c, d, 0);
}

/* AArch64's code has its sizes as immediates. */
static bool shares(void)
{
    if (nnc_target_core(kb_host()->core))
        test_skip("AArch64 kernels share no code");
    return kb_emitter() && !nnc_target_core(kb_host()->core);
}

TEST(sizes_share_code)
{
    kb_code few, many, again, tail;
    if (!shares())
        return;
    scaled_rows("k_share_00000001", 3, 32, 40);
    CHECK(kb_check(&b, kb_host(), 0, 0, 2) && kb_compile(&b, kb_host(), &few));
    scaled_rows("k_share_00000002", 50, 96, 1001);
    CHECK(kb_check(&b, kb_host(), 0, 0, 7) && kb_compile(&b, kb_host(), &many));
    scaled_rows("k_share_00000001", 3, 32, 40);
    CHECK(kb_compile(&b, kb_host(), &again));
    scaled_rows("k_share_00000003", 3, 35, 40); /* one more store, of a part of a vector */
    CHECK(kb_check(&b, kb_host(), 0, 0, 2) && kb_compile(&b, kb_host(), &tail));
    CHECK(same_code(&few, &many));
    CHECK(!same_code(&few, &tail));
    CHECK(few.n == again.n && !memcmp(few.bytes, again.bytes, few.n));
    CHECK(few.n != many.n || memcmp(few.bytes, many.bytes, few.n));
    kb_free(&again);
    scaled_rows("k_other_op", 3, 32, 40);
    CHECK(kb_compile(&b, kb_host(), &again) && same_code(&few, &again));
    kb_free(&few);
    kb_free(&many);
    kb_free(&again);
    kb_free(&tail);
}

/* y[i] = sum j: x[j][i], of `terms` terms. */
static void column_sums(const char *name, int64_t terms, int64_t columns)
{
    kb_init(&b, name);
    const int c = kb_axis(&b, KA_outer, columns), r = kb_axis(&b, KA_reduce, terms);
    const int x = kb_buf(&b, KB_in, DT_f32, terms * columns);
    const int y = kb_buf(&b, KB_out, DT_f32, columns);
    kb_stage(&b, 1u << r);
    const int v =
        kb_reduce(&b, KR_sum, DT_f32, kb_load(&b, x, (nnc_affine){.k = {1, columns}}), -1);
    kb_post(&b);
    kb_store(&b, y, (nnc_affine){.k = {1}}, v);
    kb_done(&b, c, 16, 16);
}

/* Partial sums whose last one is shorter, and such that are whole; blocks of columns likewise. */
TEST(sizes_of_sums_share_code)
{
    static const int64_t size[][2] = {{512, 64}, {500, 96}, {513, 160}};
    kb_code code[NNC_COUNT(size)] = {{0}};
    if (!shares())
        return;
    for (size_t i = 0; i < NNC_COUNT(size); i++) {
        column_sums("k_sums", size[i][0], size[i][1]);
        CHECK(kb_check(&b, kb_host(), 1e-4, 1e-4, 2));
        CHECK(kb_compile(&b, kb_host(), &code[i]) && same_code(&code[0], &code[i]));
    }
    for (size_t i = 0; i < NNC_COUNT(size); i++)
        kb_free(&code[i]);
}

/* Scratch bytes of a kernel whose tmp buffers had all their elements in memory. */
static int64_t tmp_bytes(const nnc_kernel *k)
{
    int64_t n = 0;
    for (int i = 0; i < k->n_buf; i++)
        n += k->buf[i].role == KB_tmp ? nnc_kernel_tmp_bytes(k, i) : 0;
    return n;
}

/* Winograd's convolution of a square image, and its epilogue, compiled alone; false: it is no kernel in parts here. What a transform's
 * first stage computes is in memory for one tile. */
static bool winograd(int channels, int side, const char *epilogue, kb_code *c)
{
    char text[600];
    nnc_scan scan;
    NNC_LOCAL(nnc_arena) a = {0};
    snprintf(text, sizeof text,
        "graph @t {\n%%x = input : f32[1,%d,%d,%d]{0,2,3,1}\n%%u = input : f32[36,1,%d,64]\n"
        "%%b = input : f32[64,1,1]\n%%z = fused %%x, %%u, %%b {\n"
        "%%i = input : f32[1,%d,%d,%d]{0,2,3,1}\n%%w = input : f32[36,1,%d,64]\n"
        "%%c = input : f32[64,1,1]\n"
        "%%y = winograd %%i, %%w {pads=[1,1,1,1], block=[1,2]}\n%%s = add %%y, %%c\n"
        "%%o = %s %%s\nreturn %%o }\nreturn %%z }",
        channels, side, side, channels, channels, side, side, channels, epilogue);
    nnc_scan_init(&scan, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    const nnc_kernel *k =
        g ? nnc_lower(g, nnc_def(g, g->output[0]), kb_host(), MATH_ulp2, &a, test_sink) : NULL;
    bool ok = k && nnc_kernel_in_parts(k) && kb_compile_kernel(k, kb_host(), c);
    CHECK(!ok || 3 * k->scratch_bytes < 2 * tmp_bytes(k));
    nnc_graph_destroy(g);
    return ok;
}

/* Points are the same code for any blocks of rows and of channels, and with the rows at the end of an image. So are results where no
 * tile's columns are cut. */
TEST(points_share_code)
{
    enum { POINTS, PRODUCT, RESULTS };
    kb_code code[4] = {{0}};
    if (!shares())
        return;
    CHECK(winograd(64, 168, "relu", &code[0]) && winograd(256, 57, "relu", &code[1]) &&
          winograd(384, 27, "silu", &code[2]) && winograd(64, 172, "relu", &code[3]));
    for (size_t i = 0; i < NNC_COUNT(code); i++)
        CHECK(same_object(&code[0], &code[i], POINTS));
    CHECK(same_object(&code[0], &code[3], RESULTS) && !same_object(&code[0], &code[1], RESULTS));
    for (size_t i = 0; i < NNC_COUNT(code); i++)
        kb_free(&code[i]);
}

/* Points and products are the same code whatever the epilogue is, and so is the function that calls them. */
TEST(parts_share_code)
{
    enum { POINTS, PRODUCT, RESULTS, CALLS, OBJECTS };
    kb_code code[3] = {{0}};
    size_t n;
    if (!shares())
        return;
    CHECK(winograd(64, 168, "relu", &code[0]) && winograd(128, 336, "relu", &code[1]) &&
          winograd(64, 168, "silu", &code[2]));
    for (int i = POINTS; i < OBJECTS && code[2].o; i++) {
        CHECK(same_object(&code[0], &code[1], i));
        CHECK(same_object(&code[0], &code[2], i) == (i != RESULTS));
    }
    CHECK(!code[2].o || !code_of(&code[2], OBJECTS, &n));
    for (size_t i = 0; i < NNC_COUNT(code); i++)
        kb_free(&code[i]);
}

static int sizes_in(const kb_code *c)
{
    Elf64_Ehdr h;
    Elf64_Shdr s;
    int n = 0;
    memcpy(&h, c->bytes, sizeof h);
    for (int i = 0; i < h.e_shnum; i++) {
        memcpy(&s, c->bytes + h.e_shoff + (size_t)i * sizeof s, sizeof s);
        for (size_t at = 0; s.sh_type == SHT_SYMTAB && at < s.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym y;
            memcpy(&y, c->bytes + s.sh_offset + at, sizeof y);
            n += y.st_shndx == SHN_ABS && ELF64_ST_BIND(y.st_info) == STB_GLOBAL;
        }
    }
    return n;
}

/* Seven windows of five elements, of 32 channels, read 11 elements, not 35: what two windows read is loaded once. */
TEST(windows_share_elements)
{
    enum {
        PLACES = 14,
        TAPS = 5,
        CHANNELS = 32,
        STRIP = 7,
        ACCESSES = STRIP + TAPS - 1 + TAPS + STRIP
    };
    kb_code c;
    if (!shares())
        return;
    kb_init(&b, "k_windows_00000001");
    kb_axis(&b, KA_outer, PLACES);
    const int v = kb_axis(&b, KA_outer, CHANNELS), r = kb_axis(&b, KA_reduce, TAPS);
    const int x = kb_buf(&b, KB_in, DT_f32, (PLACES + TAPS - 1) * CHANNELS),
              w = kb_buf(&b, KB_in, DT_f32, TAPS * CHANNELS),
              y = kb_buf(&b, KB_out, DT_f32, PLACES * CHANNELS);
    kb_stage(&b, 1u << r);
    const int at = kb_load(&b, x, (nnc_affine){.k = {CHANNELS, 1, CHANNELS}}),
              by = kb_load(&b, w, (nnc_affine){.k = {0, 1, CHANNELS}}),
              product = kb_op(&b, SC_fma, DT_f32, at, by, kb_fconst(&b, DT_f32, 0)),
              sum = kb_reduce(&b, KR_sum, DT_f32, product, -1);
    kb_post(&b);
    kb_store(&b, y, (nnc_affine){.k = {CHANNELS, 1}}, sum);
    kb_done(&b, v, 16, CHANNELS);
    CHECK(nnc_sched_put(&b.k.sched, KD_tile, 0, STRIP) &&
          nnc_sched_put(&b.k.sched, KD_unroll, 0, STRIP));
    b.k.sched.domain = nnc_kernel_domain(&b.k);
    CHECK(kb_check(&b, kb_host(), 1e-6, 1e-6, 1) && kb_compile(&b, kb_host(), &c));
    CHECK(sizes_in(&c) > STRIP && sizes_in(&c) < STRIP * TAPS);
    kb_free(&c);
}

/* Digits of the unit's number: the quotient is exact up to the largest number of units. */
TEST(sizes_of_many_units)
{
    static const int64_t inner[] = {2, 3, 7, 64, 641, 65537};
    if (!kb_emitter())
        return;
    for (size_t i = 0; i < NNC_COUNT(inner); i++) {
        kb_code c;
        int64_t last = INT32_MAX / inner[i] * inner[i] - 1;
        uint8_t x = 5;
        kb_init(&b, "k_units");
        kb_axis(&b, KA_outer, INT32_MAX / inner[i]);
        const int a = kb_axis(&b, KA_outer, inner[i]);
        const int from = kb_buf(&b, KB_in, DT_u8, 1), to = kb_buf(&b, KB_out, DT_i64, 2);
        kb_stage(&b, 0);
        (void)kb_load(&b, from, (nnc_affine){.c = 0});
        kb_store(&b, to, (nnc_affine){.c = 0}, kb_index(&b, 0));
        kb_store(&b, to, (nnc_affine){.c = 1}, kb_index(&b, a));
        kb_done(&b, -1, 0, 0);
        if (!kb_compile(&b, kb_host(), &c))
            return;
        for (int64_t u = last; u >= 0; u -= nnc_max64(last / 5000, 1)) {
            int64_t y[2] = {-1, -1};
            void *args[2] = {&x, y};
            c.fn(args, u, u + 1, NULL);
            CHECK_INT(y[0], u / inner[i]);
            CHECK_INT(y[1], u % inner[i]);
        }
        kb_free(&c);
    }
}

/* A size that does not fit its instruction is refused. */
TEST(sizes_out_of_range)
{
    kb_code c;
    Elf64_Ehdr h;
    Elf64_Shdr s;
    const char *why = "";
    int refused = 0;
    if (!shares())
        return;
    scaled_rows("k_range_00000001", 3, 32, 40);
    if (!kb_compile(&b, kb_host(), &c))
        return;
    memcpy(&h, c.bytes, sizeof h);
    for (int i = 0; i < h.e_shnum; i++) {
        memcpy(&s, c.bytes + h.e_shoff + (size_t)i * sizeof s, sizeof s);
        for (size_t at = 0; s.sh_type == SHT_SYMTAB && at < s.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym y, bad;
            memcpy(&y, c.bytes + s.sh_offset + at, sizeof y);
            bad = y;
            bad.st_value = UINT64_C(1) << 40;
            if (y.st_shndx != SHN_ABS || ELF64_ST_BIND(y.st_info) != STB_GLOBAL)
                continue;
            memcpy(c.bytes + s.sh_offset + at, &bad, sizeof bad);
            nnc_object *o = nnc_object_load(c.bytes, c.n, &why);
            refused += !o && !strcmp(why, "a relocation does not fit in 32 bits");
            nnc_object_unload(o);
            memcpy(c.bytes + s.sh_offset + at, &y, sizeof y);
        }
    }
    CHECK(refused > 0);
    kb_free(&c);
}

/* Strips of rows of three elements that are added to their result in place: the next row's load would wait for a masked store. */
TEST(strips_in_place)
{
    enum { ROWS = 32, COLUMNS = 3, TERMS = 5 };
    const nnc_kernel *k = &b.k;
    char *text = NULL;
    size_t n = 0;
    if (!kb_emitter())
        return;
    kb_init(&b, "k_in_place");
    kb_axis(&b, KA_outer, ROWS);
    const int v = kb_axis(&b, KA_outer, COLUMNS), r = kb_axis(&b, KA_reduce, TERMS);
    const int x = kb_buf(&b, KB_in, DT_f32, ROWS * TERMS),
              w = kb_buf(&b, KB_in, DT_f32, TERMS * COLUMNS),
              z = kb_buf(&b, KB_in, DT_f32, ROWS * COLUMNS),
              y = kb_buf(&b, KB_out, DT_f32, ROWS * COLUMNS);
    kb_stage(&b, 1u << r);
    const int at = kb_load(&b, x, (nnc_affine){.k = {TERMS, 0, 1}}),
              by = kb_load(&b, w, (nnc_affine){.k = {0, 1, COLUMNS}}),
              product = kb_op(&b, SC_fma, DT_f32, at, by, kb_fconst(&b, DT_f32, 0)),
              sum = kb_reduce(&b, KR_sum, DT_f32, product, -1);
    kb_post(&b);
    const int more = kb_load(&b, z, (nnc_affine){.k = {COLUMNS, 1}});
    kb_store(&b, y, (nnc_affine){.k = {COLUMNS, 1}}, kb_op(&b, SC_add, DT_f32, sum, more, -1));
    kb_done(&b, v, 16, COLUMNS);
    CHECK(nnc_sched_put(&b.k.sched, KD_tile, 0, 16) && nnc_sched_put(&b.k.sched, KD_unroll, 0, 16));
    b.k.sched.domain = nnc_kernel_domain(&b.k);
    CHECK(nnc_kernel_may_overlay(&b.k, z, y) && kb_check(&b, kb_host(), 1e-6, 1e-6, 1));
    CHECK_OK(kb_emitter()->emit(&k, 1, kb_host(), EMIT_llvm, &text, &n, test_sink));
    CHECK(text && strstr(text, "define") && !strstr(text, "masked.store"));
    nnc_free(text);
}
