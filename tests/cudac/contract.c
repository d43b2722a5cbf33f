/* tests/cudac/contract.c -- contractions on tensor cores (schedule/cuda_contract.c). Covers full and partial tiles, every kind of prologue
 * and epilogue, f16 and bf16. Also faults that must be found, what is no such contraction, and kernels from files. */
#include "ct.h"
#include "schedule/schedule.h"

#include <string.h>

typedef enum before {
    PLAIN, /* x as it is in memory */
    GATE, /* times a number for each image and channel */
    SCALE, /* a batch norm and a relu: numbers for each channel */
    ROWS, /* less and times numbers of each row, as a layer norm's last step */
    SUM, /* plus another tensor, and a function */
    CAST /* from f32 */
} before;
typedef enum after {
    NONE,
    BIAS,
    SILU, /* of the sum and a bias */
    GELU,
    TENSOR, /* a bias, another tensor, relu */
    WIDE, /* a sum of images and columns; two results */
    PART, /* of a vector, not at a multiple of an access */
    EACH, /* times a number of each row */
    FLOAT, /* as f32, with a bias of the op itself */
    AGAIN /* plus the first factor, of as many terms as columns */
} after;

typedef struct at {
    bool conv; /* of channels-last images; else a linear layer */
    int images, places, terms, columns;
    before before;
    after after;
    const char *type;
    int sms;
    int more; /* channels of the tensors that the source and the results are parts of, beyond theirs */
} at;

static void put_before(
    nnc_text *t, const at *c, const char *x, const char *channel, const char *row, const char *gate)
{
    static const char *const ops[] = {[PLAIN] = "%u = identity %x\n",
        [GATE] = "%u = mul %x, %g\n",
        [SCALE] = "%u0 = mul %x, %c\n%u1 = add %u0, %d\n%u = relu %u1\n",
        [ROWS] = "%u0 = sub %x, %r\n%u1 = mul %u0, %s\n%u2 = mul %u1, %c\n%u = add %u2, %d\n",
        [SUM] = "%u0 = add %x, %z\n%u = sigmoid %u0\n",
        [CAST] = "%u = cast %x {to="};
    nnc_printf(t, "%%x = input : %s\n", x);
    if (c->before == GATE)
        nnc_printf(t, "%%g = input : %s\n", gate);
    if (c->before == SCALE || c->before == ROWS)
        nnc_printf(t, "%%c = input : %s\n%%d = input : %s\n", channel, channel);
    if (c->before == ROWS)
        nnc_printf(t, "%%r = input : %s\n%%s = input : %s\n", row, row);
    if (c->before == SUM)
        nnc_printf(t, "%%z = input : %s\n", x);
    if (c->before != PLAIN)
        nnc_puts(t, ops[c->before]);
    if (c->before == CAST)
        nnc_printf(t, "%s}\n", c->type);
}

static void put_after(
    nnc_text *t, const at *c, const char *y, const char *column, const char *row, const char *image)
{
    static const char *const ops[] = {[NONE] = "return %y }",
        [BIAS] = "%a = add %y, %b\nreturn %a }",
        [SILU] = "%a = add %y, %b\n%e = silu %a\nreturn %e }",
        [GELU] = "%e = gelu %y\nreturn %e }",
        [TENSOR] = "%a = add %y, %b\n%a1 = add %a, %v\n%e = relu %a1\nreturn %e }",
        [WIDE] = "%a = mul %y, %m\n%e = tanh %a\nreturn %a, %e }",
        [FLOAT] = "%e = cast %y {to=f32}\nreturn %e }",
        [PART] = "%e = mul %y, %b\nreturn %e }",
        [EACH] = "%e = mul %y, %l\nreturn %e }",
        [AGAIN] = "%e = add %y, %u\nreturn %e }"};
    if (c->after == BIAS || c->after == SILU || c->after == TENSOR)
        nnc_printf(t, "%%b = input : %s\n", column);
    if (c->after == TENSOR)
        nnc_printf(t, "%%v = input : %s\n", y);
    if (c->after == WIDE)
        nnc_printf(t, "%%m = input : %s\n", image);
    if (c->after == EACH)
        nnc_printf(t, "%%l = input : %s\n", row);
    if (c->after == PART)
        nnc_printf(t,
            "%%p = input : %s[%s%d%s]\n%%b = slice %%p {axes=[%d], starts=[1], ends=[%d]}\n",
            c->type, c->conv ? "1," : "", c->columns + 1, c->conv ? ",1,1" : "", c->conv,
            c->columns + 1);
    nnc_puts(t, ops[c->after]);
}

static void put_graph(nnc_text *t, const at *c)
{
    char x[80], y[80], w[80], channel[80], column[80], row[80], gate[80], image[80];
    const char *source = c->before == CAST ? "f32" : c->type;
    const int n = c->images, p = c->places, k = c->terms, m = c->columns;
    if (c->conv) {
        snprintf(x, sizeof x, "%s[%d,%d,%d,3]{0,2,3,1}", source, n, k, p);
        snprintf(y, sizeof y, "%s[%d,%d,%d,3]{0,2,3,1}", c->type, n, m, p);
        snprintf(w, sizeof w, "%s[%d,%d,1,1]", c->type, m, k);
        snprintf(channel, sizeof channel, "%s[1,%d,1,1]", c->type, k);
        snprintf(column, sizeof column, "%s[1,%d,1,1]", c->type, m);
        snprintf(row, sizeof row, "%s[%d,1,%d,3]", c->type, n, p);
        snprintf(gate, sizeof gate, "%s[%d,%d,1,1]", c->type, n, k);
        snprintf(image, sizeof image, "%s[%d,%d,1,1]", c->type, n, m);
    } else {
        snprintf(x, sizeof x, "%s[%d,%d,%d]", source, n, p, k);
        snprintf(y, sizeof y, "%s[%d,%d,%d]", c->type, n, p, m);
        snprintf(w, sizeof w, "%s[%d,%d]", c->type, m, k);
        snprintf(channel, sizeof channel, "%s[%d]", c->type, k);
        snprintf(column, sizeof column, "%s[%d]", c->type, m);
        snprintf(row, sizeof row, "%s[%d,%d,1]", c->type, n, p);
        snprintf(gate, sizeof gate, "%s[%d,1,%d]", c->type, n, k);
        snprintf(image, sizeof image, "%s[%d,1,%d]", c->type, n, m);
    }
    nnc_puts(t, "graph @t {\n");
    put_before(t, c, x, channel, row, gate);
    if (c->after == FLOAT)
        nnc_printf(t, "%%o = input : %s[%d]\n", c->type, m);
    nnc_printf(t, "%%w = input : %s\n%%y = %s %%%s, %%w%s {as_kernel=1}\n", w,
        c->conv ? "conv" : "linear", c->before == PLAIN ? "x" : "u",
        c->after == FLOAT ? ", %o" : "");
    put_after(t, c, y, column, row, image);
}

/* Makes value v a part of a tensor of more channels, as an operand of a concat in place is. */
static void set_part(nnc_graph *f, nnc_ref v, const at *c)
{
    nnc_type *t = &f->value[v].type, whole = *t;
    whole.dim[c->conv ? 1 : 2] += c->more;
    nnc_type_set_part(t, &whole);
}

static void add(ct_set *s, const at *c)
{
    NNC_LOCAL(nnc_text) t = {0};
    s->sums = true;
    s->sms = c->sms;
    put_graph(&t, c);
    nnc_graph *g = ct_parse(nnc_text_str(&t)), *f = g ? ct_fuse(g) : NULL;
    if (f && c->more) {
        set_part(f, f->node[0].out, c); /* the source is the first operand */
        for (uint32_t o = 0; o < f->n_output; o++)
            set_part(f, f->output[o], c);
    }
    if (f)
        ct_add_graph(s, f);
    nnc_graph_destroy(g);
    nnc_graph_destroy(f);
}

/* Returns the set of the numbers of blocks of terms in flight, as bits. */
static unsigned check(const at *c, int n)
{
    ct_set s = {0};
    unsigned flights = 0;
    for (int i = 0; i < n; i++) {
        add(&s, &c[i]);
        CHECK_INT(s.n, i + 1);
        if (s.n == i + 1 && s.k[i]->grid.cls != KC_contract)
            test_fail(
                __FILE__, __LINE__, "case %d: schedule %s", i, nnc_kclass_names[s.k[i]->grid.cls]);
        flights |= s.n == i + 1 ? 1u << s.k[i]->grid.flight : 0;
    }
    ct_all_agree(&s);
    return flights;
}

TEST(contractions)
{
    static const at c[] = {
        {true, 2, 24, 64, 64, GATE, SILU, "f16", 0},
        {true, 3, 13, 40, 24, GATE, NONE, "f16", 0},
        {false, 1, 130, 72, 80, PLAIN, SILU, "bf16", 1},
        {true, 2, 50, 16, 96, PLAIN, SILU, "f16", 1},
        {true, 2, 17, 24, 30, SCALE, BIAS, "f16", 0},
        {false, 3, 45, 56, 37, ROWS, GELU, "f16", 1},
        {true, 1, 40, 104, 200, SCALE, TENSOR, "bf16", 4},
        {false, 2, 33, 32, 33, SUM, WIDE, "f16", 0},
        {true, 1, 11, 8, 8, PLAIN, NONE, "f16", 0},
        {false, 5, 40, 128, 128, GATE, TENSOR, "bf16", 1},
        {true, 4, 30, 96, 130, ROWS, WIDE, "bf16", 1},
        {false, 1, 64, 200, 66, SUM, GELU, "bf16", 0},
        {false, 2, 40, 48, 72, CAST, FLOAT, "f16", 0},
        {true, 2, 30, 40, 37, CAST, FLOAT, "bf16", 1},
        {true, 2, 30, 40, 64, GATE, PART, "f16", 0},
        {false, 1, 70, 24, 44, PLAIN, PART, "bf16", 0},
        {true, 3, 21, 16, 40, PLAIN, EACH, "f16", 0},
        {false, 2, 40, 72, 72, GATE, AGAIN, "f16", 0},
        {true, 1, 25, 40, 40, SUM, AGAIN, "bf16", 1},
        {true, 1, 40, 520, 64, SUM, GELU, "bf16", 0},
        {false, 1, 70, 264, 30, PLAIN, SILU, "f16", 0},
        /* parts of larger tensors */
        {true, 2, 24, 64, 64, SCALE, BIAS, "f16", 0, 32},
        {true, 3, 13, 40, 24, CAST, SILU, "bf16", 1, 24},
        {false, 2, 40, 72, 72, GATE, TENSOR, "f16", 0, 8},
        {true, 2, 30, 304, 40, GATE, WIDE, "f16", 0, 16},
        {false, 3, 33, 48, 33, PLAIN, EACH, "bf16", 8, 40},
    };
    CHECK_INT(check(c, NNC_COUNT(c)), 1 << 1 | 1 << 2 | 1 << 4);
}

static int draw(int *i, int n)
{
    return (int)(nnc_rng_u32(test_seed, (uint64_t)(*i)++) % (uint32_t)n);
}

/* Shapes, ops before and after, and GPUs that are drawn. */
TEST(drawn_contractions)
{
    static const int sms[] = {0, 1, 2, 8};
    int r = 0;
    at c[6];
    for (size_t i = 0; i < NNC_COUNT(c); i++)
        c[i] = (at){.conv = draw(&r, 2),
            .images = 1 + draw(&r, 4),
            .places = 32 + draw(&r, 60),
            .terms = 8 * (1 + draw(&r, 20)),
            .columns = 8 + draw(&r, 150),
            .before = (before)draw(&r, CAST + 1),
            .after = (after)draw(&r, EACH + 1),
            .type = draw(&r, 2) ? "f16" : "bf16",
            .sms = sms[draw(&r, NNC_COUNT(sms))],
            .more = 8 * draw(&r, 5)};
    (void)check(c, NNC_COUNT(c));
}

/* ---- what is planted is found ---------------------------------------------------------------- */

static void replace(char *text, const char *from, const char *to)
{
    char *p = strstr(text, from);
    if (!p)
        test_fail(__FILE__, __LINE__, "the text has no %s", from);
    CHECK_INT(strlen(from), strlen(to));
    for (; p; p = strstr(p, from))
        memcpy(p, to, strlen(to));
}

static void no_block_barriers(char *text)
{
    replace(text, "__syncthreads();", "               ;");
}

static void no_wait(char *text) /* for copies */
{
    replace(text, "nnc_wait<0>();", "             ;");
}

static void late_wait(char *text) /* for all but the last group of copies */
{
    replace(text, "nnc_wait<0>();", "nnc_wait<1>();");
}

static void one_buffer(char *text) /* copies overwrite what is multiplied */
{
    replace(text, "tiles + step % 2 *", "tiles + step % 1 *");
    replace(text, "(step + 1) % 2", "(step + 1) % 1");
}

static void no_warp_barriers(char *text) /* between the sums and their epilogue */
{
    replace(text, "__syncwarp();", "            ;");
}

static void other_half(char *text) /* of a fragment */
{
    replace(text, "lane / 16 * 8)", "lane / 32 * 8)");
}

static void misaligned(char *text)
{
    replace(text, "lane / 8 % 2 * 8)", "lane / 8 % 2 * 7)");
}

static void all_terms(char *text) /* those beyond the end take part */
{
    static const char in[] = "const bool in = r0 < ";
    char *p = strstr(text, in);
    CHECK(p != NULL);
    if (p)
        p[strlen(in)] = '9';
}

TEST(contraction_faults_are_found)
{
    static const at c[] = {
        {true, 3, 13, 168, 24, GATE, SILU, "f16", 1}, {true, 3, 13, 296, 24, GATE, SILU, "f16", 0}};
    static void (*const edit[])(char *) = {NULL, no_block_barriers, no_wait, late_wait, one_buffer,
        no_warp_barriers, other_half, misaligned, all_terms};
    char why[256] = "";
    for (size_t i = 0; i < NNC_COUNT(c) * NNC_COUNT(edit); i++) {
        ct_set s = {0};
        const size_t e = i % NNC_COUNT(edit);
        add(&s, &c[i / NNC_COUNT(edit)]);
        CHECK_INT(s.n, 1);
        if (s.n == 1)
            CHECK(s.k[0]->grid.flight * CU_CONTRACT_TERMS < c[i / NNC_COUNT(edit)].terms);
        if (s.n == 1 && ct_build(&s, edit[e]) && ct_run(&s, 0, test_seed, why) != !edit[e])
            test_fail(__FILE__, __LINE__, "fault %d: %s", (int)i, edit[e] ? "not found" : why);
        ct_set_deinit(&s);
    }
}

/* ---- what is no such contraction, and kernels from files -------------------------------------- */

static nnc_kclass class_of(const at *c, int sm)
{
    nnc_target t = *ct_h200();
    t.sm = sm;
    NNC_LOCAL(nnc_text) text = {0};
    NNC_LOCAL(nnc_arena) mem = {0};
    put_graph(&text, c);
    nnc_graph *g = ct_parse(nnc_text_str(&text)), *f = g ? ct_fuse(g) : NULL;
    nnc_kclass cls = KC_none;
    for (uint32_t i = 0; f && i < f->n_node; i++)
        if (f->node[i].op == OP_fused || f->node[i].op == OP_conv || f->node[i].op == OP_linear) {
            const nnc_kernel *k = nnc_lower(f, &f->node[i], &t, MATH_ulp2, &mem, test_sink);
            cls = k ? (nnc_kclass)k->grid.cls : KC_none;
        }
    nnc_graph_destroy(g);
    nnc_graph_destroy(f);
    return cls;
}

TEST(other_contractions)
{
    static const at good = {true, 2, 24, 64, 64, GATE, SILU, "f16", 0},
                    bad[] = {
                        {true, 2, 24, 60, 64, GATE, SILU, "f16", 0}, /* no accesses of 16 bytes */
                        {true, 2, 24, 64, 64, GATE, SILU, "f32", 0},
                        {true, 1, 5, 64, 64, GATE, SILU, "f16", 0}, /* few rows */
                        {false, 2, 24, 64, 5, PLAIN, SILU, "f16", 0}};
    CHECK_INT(class_of(&good, 90), KC_contract);
    CHECK_INT(class_of(&good, 80), KC_contract);
    CHECK(class_of(&good, 75) != KC_contract && class_of(&good, 75) != KC_none);
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        const nnc_kclass cls = class_of(&bad[i], 90);
        if (cls == KC_contract || cls == KC_none)
            test_fail(__FILE__, __LINE__, "case %d: schedule %s", (int)i, nnc_kclass_names[cls]);
    }
}

/* Parses and verifies the text of a kernel after replacing `from` by `to`. */
static nnc_status verified(const char *from, const char *to)
{
    static const at c = {true, 2, 24, 64, 64, GATE, SILU, "f16", 0};
    NNC_LOCAL(nnc_text) text = {0}, edited = {0};
    NNC_LOCAL(nnc_arena) mem = {0};
    nnc_scan scan;
    ct_set s = {0};
    add(&s, &c);
    CHECK_INT(s.n, 1);
    if (s.n == 1)
        nnc_kernel_print(&text, s.k[0]);
    ct_set_deinit(&s);
    const char *all = nnc_text_str(&text), *found = strstr(all, from);
    CHECK(found != NULL);
    if (!found)
        return NNC_E_BUG;
    nnc_printf(&edited, "%.*s%s%s", (int)(found - all), all, to, found + strlen(from));
    nnc_scan_init(&scan, "k", nnc_text_str(&edited), edited.n);
    return nnc_schedule_parse(&scan, &mem, NULL) ? NNC_OK : NNC_E_MODEL;
}

TEST(contractions_from_files)
{
    CHECK_INT(verified("cuda contract", "cuda contract"), NNC_OK);
    CHECK(verified("threads 1", "threads 5") != NNC_OK);
    CHECK(verified(" vec ", " vec 1") != NNC_OK);
    CHECK(verified(" group ", " group 1") != NNC_OK);
    CHECK(verified(" blocks ", " blocks 1") != NNC_OK);
    CHECK(verified(" shared ", " shared 1") != NNC_OK);
    CHECK(verified(" along i2", " along i1") != NNC_OK);
    CHECK(verified(" blocks ", " split 2 blocks ") != NNC_OK);
    CHECK(verified("cast f32 f16", "cast f32 bf16") != NNC_OK); /* factors of two types */
    CHECK(verified("reduce sum", "reduce max") != NNC_OK);
    CHECK(verified("buf x2 in f16", "buf x2 in f32") != NNC_OK);
}
