/* tests/llvm/object.c -- the object loader and the engine over it. Objects are damaged in every way that a byte can be. The loader
 * accepts or refuses them, and never reads or writes outside its memory (run under AddressSanitizer). Damaged code is not run. */
#include "kb.h"
#include "plan/plan.h"

#include <elf.h>
#include <math.h>

static kb b;

/* One kernel with constants, calls of libm and a helper, so that every kind of relocation is
 * there. */
static void make(kb_code *c)
{
    kb_init(&b, "k_object");
    int a = kb_axis(&b, KA_outer, 100);
    int x = kb_buf(&b, KB_in, DT_f64, 100), y = kb_buf(&b, KB_out, DT_f64, 100);
    kb_stage(&b, 0);
    int v = kb_load(&b, x, (nnc_affine){.k = {1}});
    v = kb_op(&b, SC_sin, DT_f64, v, -1, -1);
    int f = kb_op(&b, SC_cast, DT_f32, v, -1, -1);
    f = kb_op(&b, SC_cos, DT_f32, f, -1, -1);
    v = kb_op(&b, SC_add, DT_f64, v, kb_op(&b, SC_cast, DT_f64, f, -1, -1), -1);
    kb_store(&b, y, (nnc_affine){.k = {1}}, v);
    kb_done(&b, a, 16, 0);
    kb_compile(&b, kb_host(), c);
}

TEST(object_runs_and_unloads)
{
    kb_code c;
    double x[100], y[100];
    if (!kb_emitter())
        return;
    make(&c);
    for (int i = 0; i < 100; i++)
        x[i] = i * 0.37 - 9;
    void *args[2] = {x, y};
    if (c.fn)
        c.fn(args, 0, 1, NULL);
    for (int i = 0; c.fn && i < 100; i++)
        CHECK_NEAR(y[i], sin(x[i]) + cosf((float)sin(x[i])), 3e-7);
    CHECK(c.o && !nnc_object_symbol(c.o, "k_other"));
    kb_free(&c);
}

static bool loads(const char *p, size_t n)
{
    const char *why = NULL;
    nnc_object *o = nnc_object_load(p, n, &why);
    if (!o && !why)
        test_fail(__FILE__, __LINE__, "refused without a reason");
    nnc_object_unload(o);
    return o != NULL;
}

TEST(object_cut_short)
{
    kb_code c;
    if (!kb_emitter())
        return;
    make(&c);
    for (size_t n = 0; c.bytes && n < c.n; n += n < 256 ? 1 : 37) {
        char *p = nnc_malloc(n + 1); /* exact size: AddressSanitizer sees one byte beyond */
        memcpy(p, c.bytes, n);
        CHECK(!loads(p, n));
        nnc_free(p);
    }
    kb_free(&c);
}

/* Objects that follow each other are loaded together, and refused together. */
TEST(objects_in_a_row)
{
    kb_code c;
    if (!kb_emitter())
        return;
    make(&c);
    char *p = nnc_malloc(2 * c.n + 1);
    for (int i = 0; c.bytes && i < 2; i++)
        memcpy(p + (size_t)i * c.n, c.bytes, c.n);
    if (c.bytes) {
        CHECK(loads(p, 2 * c.n));
        CHECK(!loads(p, 2 * c.n - 1));
        CHECK(!loads(p, c.n + 1));
        p[c.n]++;
        CHECK(!loads(p, 2 * c.n));
    }
    nnc_free(p);
    kb_free(&c);
}

/* Every byte of headers and tables takes a few extreme values; random bytes elsewhere. */
TEST(object_damaged)
{
    kb_code c;
    if (!kb_emitter())
        return;
    make(&c);
    if (!c.bytes)
        return;
    char *p = nnc_malloc(c.n);
    int refused = 0, accepted = 0;
    for (uint64_t i = 0; i < 6000; i++) {
        memcpy(p, c.bytes, c.n);
        int hits = 1 + (int)(nnc_rng_u32(test_seed, 4 * i) % 3);
        for (int h = 0; h < hits; h++) {
            static const uint8_t v[] = {0, 1, 0x7f, 0x80, 0xff};
            uint32_t r = nnc_rng_u32(test_seed + 1, 4 * i + (uint64_t)h);
            size_t at = r % 4 == 0 ? r / 8 % 64 : r / 8 % c.n; /* the header often */
            if (r % 4 == 1) /* the section table, at the end */
                at = c.n - 1 - r / 8 % 700;
            p[at] = r & 4 ? (char)v[r / 97 % 5] : (char)(r >> 11);
        }
        loads(p, c.n) ? accepted++ : refused++;
    }
    CHECK_USUAL(refused > 1000);
    CHECK_USUAL(accepted > 0);
    nnc_free(p);
    kb_free(&c);
}

/* Named refusals: an unknown relocation, an undefined symbol, writable data, another machine. */
TEST(object_refusals)
{
    kb_code c;
    if (!kb_emitter())
        return;
    make(&c);
    if (!c.bytes)
        return;
    const char *why = "";
    char *p = nnc_malloc(c.n);
    Elf64_Ehdr h;
    memcpy(&h, c.bytes, sizeof h);
    for (int i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        size_t at = h.e_shoff + (size_t)i * sizeof s;
        memcpy(&s, c.bytes + at, sizeof s);
        memcpy(p, c.bytes, c.n);
        if (s.sh_type == SHT_RELA) {
            Elf64_Rela r;
            memcpy(&r, p + s.sh_offset, sizeof r);
            r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), 9); /* by x86-64's table of offsets */
            memcpy(p + s.sh_offset, &r, sizeof r);
            CHECK(!nnc_object_load(p, c.n, &why));
            CHECK_STR(why, "an unsupported relocation type");
        } else if (s.sh_type == SHT_PROGBITS && s.sh_flags & SHF_ALLOC && s.sh_size) {
            s.sh_flags |= SHF_WRITE;
            memcpy(p + at, &s, sizeof s);
            CHECK(!nnc_object_load(p, c.n, &why));
            CHECK_STR(why, "a section of writable data");
        } else if (s.sh_type == SHT_STRTAB) {
            for (size_t j = s.sh_offset; j + 5 < s.sh_offset + s.sh_size; j++)
                if (!memcmp(p + j, "\0sin\0", 5)) {
                    p[j + 3] = 't';
                    CHECK(!nnc_object_load(p, c.n, &why));
                    CHECK_STR(why, "an undefined symbol that nnc does not provide");
                }
        }
    }
    memcpy(p, c.bytes, c.n);
    p[18] = (char)EM_RISCV;
    CHECK(!nnc_object_load(p, c.n, &why));
    CHECK(strstr(why, "not a relocatable ") == why);
    nnc_free(p);
    kb_free(&c);
}

TEST(object_out_of_memory)
{
    kb_code c;
    if (!kb_emitter())
        return;
    make(&c);
    for (int i = 1; c.bytes && i < 12; i++) {
        const char *why = NULL;
        nnc_fail_alloc_after(i);
        nnc_object *o = nnc_object_load(c.bytes, c.n, &why);
        nnc_fail_alloc_after(0);
        CHECK(o || !why);
        nnc_object_unload(o);
    }
    kb_free(&c);
}

/* A process that never loads libLLVM finds cached objects by the engine's version: it must name
 * the plug-in's. */
TEST(engine_version_names_the_emitter)
{
    const nnc_emitter *e = kb_emitter();
    if (!e)
        return;
    CHECK(!strncmp(nnc_engine_llvm.version, e->version, strlen(e->version)));
    CHECK(strstr(nnc_engine_llvm.version, " cpu-") != NULL);
}

TEST(kernels_of_an_object)
{
    kb_code c;
    double x[100], y[100];
    if (!kb_emitter())
        return;
    make(&c);
    nnc_blob blob = {c.bytes, c.n};
    nnc_pkernel k[2] = {
        {.symbol = "k_object", .n_args = 2, .domain = 1, .grain = 1, .threads = 2, .ir = "kernel"},
        {.symbol = "k_missing"}};
    nnc_plan p = {.n_kernel = 2, .kernel = k, .n_object = 1, .object = &blob};
    void *h[2] = {0}, *bad = NULL, *args[2] = {x, y}, *object = NULL;
    const nnc_engine *e = &nnc_engine_llvm;
    for (int i = 0; i < 100; i++)
        x[i] = i;
    CHECK_OK(e->load_object(&p, &blob, &object, test_sink));
    const nnc_load load[] = {{.plan = &p, .item = 0, .object = object},
        {.plan = &p, .item = 1, .object = object}, {.plan = &p, .item = 0}};
    CHECK_OK(e->load_kernel(&load[0], &h[0], test_sink));
    CHECK_OK(e->load_kernel(&load[0], &h[1], test_sink));
    CHECK(e->load_kernel(&load[1], &bad, test_sink) == NNC_E_DEVICE);
    CHECK_DIAG("k_missing");
    CHECK(e->load_kernel(&load[2], &bad, test_sink) == NNC_E_MODEL && !bad);
    CHECK_DIAG("k_object"); /* without code, its text is interpreted, and this is none */
    e->unload(h[0]);
    CHECK_OK(e->run(h[1], args, NULL));
    CHECK_NEAR(y[5], sin(5) + cos((float)sin(5)), 3e-7);
    e->unload(h[1]);
    e->unload_object(object);
    blob.n = 100;
    CHECK(e->load_object(&p, &blob, &object, test_sink) == NNC_E_DEVICE);
    CHECK_DIAG("machine code cannot be loaded");
    kb_free(&c);
}
