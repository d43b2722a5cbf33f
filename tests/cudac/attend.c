/* tests/cudac/attend.c -- attention in one pass over blocks of keys (schedule/attend.c), and what is not attention. Lengths fill no block;
 * heads are narrow and wide, and share keys. Also masks, keys stored along tokens, 16 bits, and rows that see no key. */
#include "ct.h"

#include <math.h>
#include <string.h>

typedef enum mask { NONE, KEYS, PAIRS, ADDED, CAUSAL, CAPPED, LATE } mask;

typedef struct at {
    int rows, keys, heads, depth, wide;
    mask mask;
    const char *type;
    int shared; /* 1: all heads have one k and v; 2: k is stored [.., depth, keys]; 3: q and k are scaled, v is not plain */
    int sms; /* of the GPU: few SMs take more rows a thread */
} at;

/* q[2,h,rows,depth] etc. as an encoder has them: transposes of [2,rows,h,depth]. */
static void put_operand(nnc_text *t, const char *name, const char *type, int n, int heads, int w)
{
    nnc_printf(t, "%%%s0 = input : %s[2,%d,%d]\n", name, type, n, heads * w);
    nnc_printf(t, "%%%s1 = reshape %%%s0 {shape=[2,%d,%d,%d]}\n", name, name, n, heads, w);
    nnc_printf(t, "%%%s = transpose %%%s1 {perm=[0,2,1,3]}\n", name, name);
}

static void put_mask(nnc_text *t, const at *c)
{
    if (c->mask == KEYS || c->mask == PAIRS)
        nnc_printf(t, "%%m = input : bool[2,1,%d,%d]\n%%t = select %%m, %%s, %%low\n",
            c->mask == PAIRS ? c->rows : 1, c->keys);
    if (c->mask == ADDED)
        nnc_printf(t, "%%m = input : f32[%d,%d]\n%%t = add %%s, %%m\n", c->rows, c->keys);
    if (c->mask ==
        CAPPED) /* exp of a difference within -2 and 2 has a shorter formula, which is not for this kernel */
        nnc_puts(t, "%t = tanh %s\n");
    if (c->mask == LATE) /* the first block of keys is for nobody */
        nnc_printf(t,
            "%%j = iota {dim=1} : i32[%d,%d]\n%%n = constant : i32[] = [70]\n%%m = ge %%j, "
            "%%n\n%%t = select %%m, %%s, %%low\n",
            c->rows, c->keys);
    if (c->mask == CAUSAL)
        nnc_printf(t,
            "%%i = iota {dim=0} : i32[%d,%d]\n%%j = iota {dim=1} : i32[%d,%d]\n%%m = ge %%i, "
            "%%j\n%%t = select %%m, %%s, %%low\n",
            c->rows, c->keys, c->rows, c->keys);
}

static void put_graph(nnc_text *t, const at *c)
{
    const bool half = c->type[0] != 'f' || c->type[1] != '3';
    nnc_puts(t, "graph @t {\n");
    put_operand(t, "q", c->type, c->rows, c->heads, c->depth);
    put_operand(t, "v", c->type, c->keys, c->shared == 1 ? 1 : c->heads, c->wide);
    if (c->shared == 2)
        nnc_printf(t, "%%k = input : %s[2,%d,%d,%d]\n", c->type, c->heads, c->depth, c->keys);
    else
        put_operand(t, "k", c->type, c->keys, c->shared == 1 ? 1 : c->heads, c->depth);
    nnc_puts(t, "%f = constant : f32[] = [0.25]\n%low = constant : f32[] = [-inf]\n");
    if (c->shared == 3)
        nnc_printf(t,
            "%%g = constant : %s[] = [0.5]\n%%q2 = mul %%q, %%g\n%%k1b = add %%k, %%g\n%%k2 = mul "
            "%%k1b, %%g\n%%v2 = exp %%v\n",
            c->type);
    nnc_printf(t, "%%s0 = matmul %%q%s, %%k%s {transpose_b=%d}\n", c->shared == 3 ? "2" : "",
        c->shared == 3 ? "2" : "", c->shared != 2);
    nnc_puts(t, half ? "%s1 = cast %s0 {to=f32}\n" : "");
    nnc_printf(t, "%%s = mul %%s%d, %%f\n", half);
    put_mask(t, c);
    const char *s = c->mask == NONE ? "s" : "t";
    nnc_printf(t, "%%r = reduce_max %%%s {axes=[3], keepdims=1}\n%%u = sub %%%s, %%r\n", s, s);
    nnc_puts(t, "%e = exp %u\n%z = reduce_sum %e {axes=[3], keepdims=1}\n%p = div %e, %z\n");
    nnc_printf(t, half ? "%%p1 = cast %%p {to=%s}\n" : "", c->type);
    nnc_printf(t, "%%y0 = matmul %%%s, %%v%s\n", half ? "p1" : "p", c->shared == 3 ? "2" : "");
    nnc_puts(t, "%y = transpose %y0 {perm=[0,2,1,3]}\nreturn %y }");
}

static void check(const at *c, int n, bool all)
{
    ct_set s = {.sums = true};
    for (int i = 0; i < n; i++) {
        nnc_text t = {0};
        s.sms = c[i].sms;
        put_graph(&t, &c[i]);
        ct_add_fused(&s, nnc_text_str(&t));
        nnc_text_deinit(&t);
        CHECK_INT(s.n, i + 1);
        if (s.n == i + 1 && (s.k[i]->grid.cls == KC_attend) != all)
            test_fail(
                __FILE__, __LINE__, "case %d: schedule %s", i, nnc_kclass_names[s.k[i]->grid.cls]);
    }
    ct_all_agree(&s);
}

TEST(attention)
{
    static const at c[] = {
        {64, 64, 2, 64, 64, NONE, "f32", 0, 0},
        {37, 91, 3, 20, 36, KEYS, "f32", 0, 0},
        {70, 130, 2, 32, 48, PAIRS, "f32", 0, 1},
        {33, 33, 2, 7, 5, CAUSAL, "f32", 0, 1},
        {197, 197, 1, 64, 64, NONE, "f32", 0, 4},
        {5, 300, 4, 16, 128, ADDED, "f32", 0, 0},
        {2, 65, 2, 8, 8, NONE, "f32", 0, 0},
        {40, 50, 4, 24, 24, CAUSAL, "f32", 1, 2},
        {40, 50, 2, 24, 40, KEYS, "f32", 2, 2},
        {129, 3, 2, 12, 12, NONE, "f32", 0, 1},
        {24, 40, 2, 130, 200, ADDED, "f32", 0, 1},
        {20, 70, 2, 16, 16, CAPPED, "f32", 0, 1},
        {20, 90, 2, 16, 16, LATE, "f32", 0, 1},
        {20, 64, 2, 16, 16, LATE, "f32", 0, 1},
        {20, 70, 2, 16, 24, KEYS, "f32", 3, 1},
        {33, 41, 2, 7, 9, NONE, "f32", 3, 0},
    };
    check(c, NNC_COUNT(c), true);
}

TEST(attention_in_16_bits)
{
    static const at c[] = {
        {64, 64, 2, 64, 64, NONE, "f16", 0, 0},
        {37, 91, 3, 20, 36, KEYS, "f16", 0, 1},
        {70, 66, 2, 32, 64, CAUSAL, "bf16", 0, 1},
        {33, 35, 2, 9, 11, ADDED, "bf16", 0, 0},
        {33, 64, 2, 16, 16, CAUSAL, "f16", 3, 0},
    };
    check(c, NNC_COUNT(c), true);
}

/* ---- what is planted is found ---------------------------------------------------------------- */

static void replace(char *text, const char *from, const char *to)
{
    char *p = strstr(text, from);
    if (!p)
        test_fail(__FILE__, __LINE__, "the text has no %s", from);
    for (; p; p = strstr(p, from))
        memcpy(p, to, strlen(to));
}

static void no_block_barriers(char *text)
{
    replace(text, "__syncthreads();", "               ;");
}

static void no_warp_barriers(char *text)
{
    replace(text, "__syncwarp();", "            ;");
}

static void no_correction(char *text) /* of the sums so far by a larger maximum */
{
    replace(text, "sum[i] *= fade;", "              ;");
}

static void no_last_keys(char *text) /* those beyond the end take part */
{
    replace(text, "s[i][j] = -nnc_inf();", "s[i][j] = 0.0f      ;");
}

static void from_nothing(char *text) /* a row that has seen no key yet */
{
    replace(text, "most == -nnc_inf() ?", "most == +nnc_inf() ?");
}

static void planted(const at *c, void (*edit)(char *))
{
    char why[256] = "";
    for (int fault = 0; fault < 2; fault++) {
        ct_set s = {.sums = true, .sms = c->sms};
        nnc_text t = {0};
        put_graph(&t, c);
        ct_add_fused(&s, nnc_text_str(&t));
        nnc_text_deinit(&t);
        if (s.n == 1 && ct_build(&s, fault ? edit : NULL) &&
            ct_run(&s, 0, test_seed, why) == (fault == 1))
            test_fail(__FILE__, __LINE__, "%s fault: %s", fault ? "with" : "without",
                fault ? "not found" : why);
        CHECK_INT(s.n, 1);
        ct_set_deinit(&s);
    }
}

TEST(attention_faults_are_found)
{
    static const at c = {40, 90, 2, 16, 16, NONE, "f32", 0, 1},
                    late = {40, 90, 2, 16, 16, LATE, "f32", 0, 1};
    static void (*const edit[])(char *) = {
        no_block_barriers, no_warp_barriers, no_correction, no_last_keys};
    for (size_t i = 0; i < NNC_COUNT(edit); i++)
        if (test_takes(i, 2))
            planted(&c, edit[i]);
    planted(&late, from_nothing);
}

/* ---- kernels from files ---------------------------------------------------------------------- */

/* Parses and verifies the text of a kernel after replacing `from` by `to`. */
static nnc_status verified(const char *from, const char *to)
{
    static const at c = {40, 90, 2, 16, 16, CAUSAL, "f32", 0, 1};
    NNC_LOCAL(nnc_text) t = {0}, text = {0};
    NNC_LOCAL(nnc_arena) mem = {0};
    nnc_scan scan;
    ct_set s = {.sums = true, .sms = 1};
    put_graph(&t, &c);
    ct_add_fused(&s, nnc_text_str(&t));
    CHECK_INT(s.n, 1);
    if (s.n == 1)
        nnc_kernel_print(&text, s.k[0]);
    ct_set_deinit(&s);
    const char *all = nnc_text_str(&text), *found = strstr(all, from);
    CHECK(found != NULL);
    if (!found)
        return NNC_E_BUG;
    NNC_LOCAL(nnc_text) edited = {0};
    nnc_printf(&edited, "%.*s%s%s", (int)(found - all), all, to, found + strlen(from));
    nnc_scan_init(&scan, "k", nnc_text_str(&edited), edited.n);
    const nnc_kernel *k = nnc_schedule_parse(&scan, &mem, NULL);
    return k ? NNC_OK : NNC_E_MODEL;
}

TEST(attention_from_files)
{
    CHECK_INT(verified("schedule cuda attend", "schedule cuda attend"), NNC_OK);
    CHECK(verified("threads 128", "threads 256") != NNC_OK);
    CHECK(verified(" group ", " group 1") != NNC_OK);
    CHECK(verified(" blocks ", " blocks 1") != NNC_OK);
    CHECK(verified(" shared ", " shared 1") != NNC_OK);
    CHECK(verified(" blocks ", " spill 1 blocks ") != NNC_OK); /* without a library's workspace */
    CHECK(verified("exp f32", "sin f32") != NNC_OK); /* no softmax: not this class */
    CHECK(verified("reduce max", "reduce min") != NNC_OK);
}

/* One query: no axis of rows is left, and its kernel is one of points or rows. */
TEST(one_query)
{
    static const at c[] = {{1, 65, 2, 8, 8, NONE, "f32", 0, 0}};
    check(c, NNC_COUNT(c), false);
}
