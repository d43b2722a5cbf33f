/* tests/cudnn/attention.c -- attention by cuDNN. What the real library answers for GPUs that are not there is compared with a golden
 * table. The rule by which plans name it (nnc_attend_library) says the same. Skipped without cuDNN. NNC_BLESS=1 writes the table. */
#include "codegen/codegen.h"
#include "engines/cudnn_attend.h"
#include "golden.h"
#include "target/target.h"
#include "test.h"
#include <string.h>

typedef struct form {
    const char *name, *type;
    int batch, heads, rows, keys, depth, wide;
    const char *mask; /* "", key, pairs, half (f16), causal, other */
    bool packed; /* q, k and v are parts of one tensor */
} form;
static const form forms[] = {
    {"f16", "f16", 8, 12, 128, 128, 64, 64, "", false},
    {"bf16", "bf16", 8, 12, 128, 128, 64, 64, "", false},
    {"f16 197 packed", "f16", 8, 12, 197, 197, 64, 64, "", true},
    {"f16 mask of keys", "f16", 8, 12, 128, 128, 64, 64, "key", false},
    {"f16 mask of pairs", "f16", 8, 12, 37, 91, 64, 64, "pairs", false},
    {"bf16 mask of keys", "bf16", 8, 12, 37, 91, 64, 64, "key", false},
    {"f16 causal", "f16", 8, 12, 128, 128, 64, 64, "causal", false},
    {"f16 tanh of scores", "f16", 8, 12, 128, 128, 64, 64, "other", false},
    {"f16 heads of 8", "f16", 8, 3, 64, 64, 8, 8, "", false},
    {"f16 heads of 36", "f16", 8, 3, 64, 64, 36, 36, "", false},
    {"f16 heads of 64 and 32", "f16", 8, 3, 37, 91, 64, 32, "", false},
    {"f16 heads of 128", "f16", 8, 3, 37, 91, 128, 128, "", false},
    {"f16 heads of 256", "f16", 8, 3, 37, 91, 256, 256, "", false},
    {"f32", "f32", 8, 12, 128, 128, 64, 64, "", false},
};

static void put_operand(nnc_text *t, const form *c, const char *name, int part, int n, int w)
{
    if (c->packed)
        nnc_printf(t, "%%%s0 = slice %%x {axes=[2], starts=[%d], ends=[%d]}\n", name,
            part * c->heads * w, (part + 1) * c->heads * w);
    else
        nnc_printf(t, "%%%s0 = input : %s[%d,%d,%d]\n", name, c->type, c->batch, n, c->heads * w);
    nnc_printf(
        t, "%%%s1 = reshape %%%s0 {shape=[%d,%d,%d,%d]}\n", name, name, c->batch, n, c->heads, w);
    nnc_printf(t, "%%%s = transpose %%%s1 {perm=[0,2,1,3]}\n", name, name);
}

static void put_graph(nnc_text *t, const form *c)
{
    nnc_puts(t, "graph @t {\n");
    if (c->packed)
        nnc_printf(
            t, "%%x = input : %s[%d,%d,%d]\n", c->type, c->batch, c->rows, 3 * c->heads * c->depth);
    put_operand(t, c, "q", 0, c->rows, c->depth);
    put_operand(t, c, "k", 1, c->keys, c->depth);
    put_operand(t, c, "v", 2, c->keys, c->wide);
    nnc_puts(t, "%f = constant : f32[] = [0.25]\n%low = constant : f32[] = [-inf]\n");
    const bool half = strcmp(c->type, "f32") != 0;
    nnc_puts(t, "%s0 = matmul %q, %k {transpose_b=1}\n");
    nnc_puts(t, half ? "%s1 = cast %s0 {to=f32}\n%s2 = mul %s1, %f\n" : "%s2 = mul %s0, %f\n");
    const char *s = *c->mask ? "s" : "s2";
    if (!strcmp(c->mask, "key"))
        nnc_printf(t, "%%m = input : f32[%d,1,1,%d]\n%%s = add %%s2, %%m\n", c->batch, c->keys);
    if (!strcmp(c->mask, "pairs"))
        nnc_printf(t, "%%m = input : f32[%d,%d]\n%%s = add %%s2, %%m\n", c->rows, c->keys);
    if (!strcmp(c->mask, "other"))
        nnc_puts(t, "%s = tanh %s2\n");
    if (!strcmp(c->mask, "causal"))
        nnc_printf(t,
            "%%i = iota {dim=0} : i32[%d,%d]\n%%j = iota {dim=1} : i32[%d,%d]\n%%o = ge %%i, "
            "%%j\n%%s = select %%o, %%s2, %%low\n",
            c->rows, c->keys, c->rows, c->keys);
    nnc_printf(t, "%%r = reduce_max %%%s {axes=[3], keepdims=1}\n%%u = sub %%%s, %%r\n", s, s);
    nnc_puts(t, "%e = exp %u\n%z = reduce_sum %e {axes=[3], keepdims=1}\n%p0 = div %e, %z\n");
    if (half)
        nnc_printf(t, "%%p = cast %%p0 {to=%s}\n", c->type);
    nnc_puts(t, half ? "%y0 = matmul %p, %v\n" : "%y0 = matmul %p0, %v\n");
    nnc_puts(t, "%y = transpose %y0 {perm=[0,2,1,3]}\nreturn %y }");
}

/* The form's kernel for a GPU; NULL: reported. */
static const nnc_kernel *kernel_of(const form *c, const nnc_target *t, nnc_arena *a)
{
    NNC_LOCAL(nnc_text) text = {0};
    nnc_scan s;
    put_graph(&text, c);
    nnc_scan_init(&s, "t", nnc_text_str(&text), text.n);
    nnc_graph *g = nnc_graph_parse(&s, test_sink), *f = g ? nnc_graph_create("f", test_sink) : NULL;
    nnc_ref in[8];
    int n = 0;
    for (uint32_t i = 0; f && i < g->n_node; i++)
        if (g->node[i].op == OP_input)
            in[n++] = nnc_input(f, NULL, nnc_typeof(g, g->node[i].out));
    const nnc_ref y = f ? nnc_fused(f, g, n, in) : NNC_NONE;
    const nnc_kernel *k =
        y == NNC_NONE ? NULL : nnc_lower(f, nnc_def(f, y), t, MATH_ulp2, a, test_sink);
    nnc_graph_destroy(f);
    if (!k || k->grid.cls != KC_attend)
        test_fail(__FILE__, __LINE__, "%s is no attention for sm_%d", c->name, t->sm);
    return k && k->grid.cls == KC_attend ? k : NULL;
}

/* Adds cuDNN's answer to the table; returns whether it lists an engine. */
static bool ask(nnc_text *t, int sm, const form *c, const nnc_kernel *k)
{
    const nnc_cudnn_device d = {"GPU", sm,
        sm == 90   ? 132
        : sm == 80 ? 108
                   : 40,
        sm == 75 ? 1024 : 2048, INT64_C(80) << 30,
        (sm == 90      ? 227
            : sm == 80 ? 163
                       : 64)
            << 10,
        50 << 20, 1700000000};
    const nnc_cudnn_filter f = {.with = CUDNN_TENSOR_CORE,
        .without = CUDNN_DOWN_CONVERT | CUDNN_NONDETERMINISTIC,
        .workspace_limit = NNC_ATTEND_WORK};
    attend_ids id;
    nnc_cudnn *g = NULL;
    int n = 0;
    CHECK_OK(nnc_cudnn_create(&d, &g, test_sink));
    if (g)
        attend_describe(g, k, &id);
    if (g && nnc_cudnn_finish(g) == NNC_OK)
        n = nnc_cudnn_query(g, &f);
    nnc_printf(t, "sm_%d %-24s", sm, c->name);
    if (n > 0)
        nnc_printf(t, "%d  engine %lld\n", n, (long long)nnc_cudnn_config_at(g, 0)->engine);
    else
        nnc_puts(t, "none\n");
    nnc_cudnn_destroy(g);
    return n > 0;
}

/* cuDNN computes f32 too, of f16 products; scores of any function are not asked for, since a graph says what a form is. */
static bool asked(const form *c)
{
    return strcmp(c->type, "f32") != 0 && strcmp(c->mask, "other") != 0;
}

TEST(attention_of_cudnn)
{
    static const int gpus[] = {90, 80, 75};
    static const char *const names[] = {"cuda:sm_90", "cuda:sm_80", "cuda:sm_75"};
    nnc_text t = {0};
    if (golden_without_driver())
        return;
    golden_head(&t);
    for (size_t i = 0; i < NNC_COUNT(gpus); i++)
        for (size_t j = 0; j < NNC_COUNT(forms); j++) {
            NNC_LOCAL(nnc_arena) mem = {0};
            nnc_target target = {0};
            nnc_attend a;
            if (gpus[i] == 75 &&
                forms[j].depth > 128) /* its shared memory has no room for a block */
                continue;
            CHECK_OK(nnc_target_cuda(&target, names[i], test_sink));
            const nnc_kernel *k = kernel_of(&forms[j], &target, &mem);
            if (k && nnc_attend_find(k, &a)) {
                const bool rule = !nnc_attend_library(k, &a, &target);
                if (!asked(&forms[j]))
                    CHECK(!rule);
                else if (ask(&t, gpus[i], &forms[j], k) != rule)
                    test_fail(__FILE__, __LINE__, "sm_%d %s: the rule says %s", gpus[i],
                        forms[j].name, rule ? "yes" : nnc_attend_library(k, &a, &target));
            }
            nnc_target_deinit(&target);
        }
    golden_check(&t, "tests/cudnn/attention.txt");
}
