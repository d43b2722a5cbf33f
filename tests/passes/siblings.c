/* tests/passes/siblings.c -- independent contractions become one where a GPU gains by it, with the same results; and what must stay. */
#include "cpu.h"
#include "gen/gen.h"
#include "help.h"

#include <math.h>

#define W(name, dims) \
    "%" name " = param : f32[" dims "] = gen(\"" name "\", seed=1, scale=0.5, shift=0.1)\n"

static bool evaluate(const nnc_graph *g, nnc_rval *out)
{
    void *own[4] = {NULL};
    const void *in[4] = {NULL};
    int n = 0;
    for (uint32_t i = 0; i < g->n_node && n < 4; i++)
        if (g->node[i].op == OP_input) {
            const nnc_type *t = nnc_typeof(g, g->node[i].out);
            in[n] = own[n] = nnc_malloc((size_t)nnc_type_bytes(t) + 1);
            gen_fill_input(t, 3, n, own[n]);
            n++;
        }
    nnc_status st = nnc_eval(g, in, 1, out, test_sink);
    while (n > 0)
        nnc_free(own[--n]);
    CHECK_OK(st);
    return st == NNC_OK;
}

static void same_results(const nnc_graph *g, const nnc_graph *h, const char *what)
{
    nnc_rval a[8] = {{{0}, NULL, NULL}}, b[8] = {{{0}, NULL, NULL}};
    bool ok = g->n_output <= 8 && evaluate(g, a) && evaluate(h, b);
    for (uint32_t o = 0; o < g->n_output; o++) {
        double sum = 0;
        for (int64_t i = 0; ok && i < nnc_type_numel(&a[o].type); i++) {
            sum += fabs(a[o].f[i]);
            if (!(fabs(a[o].f[i] - b[o].f[i]) <= 1e-9))
                test_fail(__FILE__, __LINE__, "%s: element %lld of output %u is %g, not %g", what,
                    (long long)i, o, b[o].f[i], a[o].f[i]);
        }
        CHECK(sum > 0);
        nnc_rval_free(&a[o]);
        nnc_rval_free(&b[o]);
    }
}

static int count(const nnc_graph *g, nnc_op op)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        n += g->node[i].op == op;
    return n;
}

/* Runs the pass for a machine (always: also where joining is expected to take longer). `left`: contractions afterwards; `splits` and
 * `concats` of values that are computed in each run. */
static void joins_by(
    const nnc_target *t, bool always, const char *text, int left, int splits, int concats)
{
    nnc_remarks r;
    static const char *const only[] = {"siblings"};
    nnc_graph *g = help_parse("siblings", text, strlen(text)), *h;
    h = g ? nnc_graph_clone(g, test_sink) : NULL;
    CHECK(h != NULL);
    if (!h)
        return;
    nnc_remarks_init(&r);
    nnc_pass_options o = {
        .level = 2, .target = t, .only = only, .n_only = 1, .join_siblings = always};
    CHECK_OK(nnc_passes_run(&h, &o, &r, test_sink));
    CHECK_OK(nnc_verify(h, test_sink));
    int contractions = count(h, OP_conv) + count(h, OP_linear) + count(h, OP_matmul);
    if (contractions != left || count(h, OP_split) != splits || count(h, OP_concat) != concats) {
        nnc_text x = {0};
        nnc_graph_print(&x, h);
        test_fail(__FILE__, __LINE__,
            "%d contractions, %d splits and %d concats, not %d, %d, %d:\n%s", contractions,
            count(h, OP_split), count(h, OP_concat), left, splits, concats, nnc_text_str(&x));
        nnc_text_deinit(&x);
    }
    same_results(g, h, text);
    nnc_remarks_deinit(&r);
    nnc_graph_destroy(g);
    nnc_graph_destroy(h);
}

/* The same for a GPU. */
static void joins_on(const nnc_target *t, const char *text, int left, int splits, int concats)
{
    joins_by(t, false, text, left, splits, concats);
}

static void joins(const char *text, int left, int splits, int concats)
{
    nnc_target t;
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    joins_on(&t, text, left, splits, concats);
    nnc_target_deinit(&t);
}

/* Weights and biases are concatenated: two concats where there is a bias. */
TEST(siblings_of_one_input)
{
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1") W("w", "5,8,1,1") W("b", "4")
              W("c", "5") "%p = conv %x, %v, %b\n%q = conv %x, %w, %c\n"
                          "%r = relu %p\n%s = relu %q\n"
                          "%t = exp %r\n%u = sin %s\nreturn %t, %u\n}\n",
        1, 1, 2);
    joins(
        "graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,3,3") W("w", "5,8,3,3") W("u",
            "2,8,3,3") "%p = conv %x, %v {pads=[1,1,1,1]}\n%q = conv %x, %w {pads=[1,1,1,1]}\n"
                       "%r = conv %x, %u {pads=[1,1,1,1]}\n"
                       "%a = relu %p\n%b = exp %q\n%c = concat %a, %b, %r {axis=1}\nreturn %c\n}\n",
        1, 1, 2);
    joins("graph @g {\n%x = input : f32[3,7,6]\n" W("v", "4,6")
              W("w", "6,6") "%p = linear %x, %v\n%q = linear %x, %w\n%t = exp %p\n%u = sin "
                            "%q\nreturn %t, %u\n}\n",
        1, 1, 1);
    /* in order, one concat takes all of them: nothing is cut */
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1")
              W("w", "5,8,1,1") "%p = conv %x, %v\n%q = conv %x, %w\n"
                                "%r = relu %p\n%s = relu %q\n"
                                "%t = concat %r, %s {axis=1}\n%u = exp %t\nreturn %u\n}\n",
        1, 0, 1);
}

TEST(siblings_side_by_side)
{
    static const char *const batch[] = {"1", "3", "2,3"};
    for (int i = 0; i < 3; i++)
        for (int bias = 0; bias < 2; bias++) {
            nnc_text t = {0};
            int axis = i == 2 ? 2 : 1;
            nnc_printf(&t,
                "graph @g {\n%%x = input : f32[%s,12]\n%s%s%s%s%s%s"
                "%%0, %%1, %%2 = split %%x {axis=%d, sizes=[4,4,4]}\n"
                "%%p = linear %%0, %%u%s\n%%q = linear %%1, %%v%s\n%%r = linear %%2, %%w%s\n"
                "%%s = concat %%p, %%q {axis=%d}\n%%t = concat %%s, %%r {axis=%d}\n"
                "%%y = exp %%t\nreturn %%y\n}\n",
                batch[i], W("u", "5,4"), W("v", "5,4"), W("w", "5,4"), W("a", "5"), W("b", "5"),
                W("c", "5"), axis, bias ? ", %a" : "", bias ? ", %b" : "", bias ? ", %c" : "", axis,
                axis);
            joins(nnc_text_str(&t), 1, 0, 1 + bias);
            nnc_text_deinit(&t);
        }
    /* two layers, each one product; slices instead of a split */
    joins("graph @g {\n%x = input : f32[1,8]\n" W("u", "6,4") W("v", "6,4") W("w", "3,6")
              W("z", "3,6") "%a = slice %x {axes=[1], starts=[0], ends=[4]}\n"
                            "%b = slice %x {axes=[1], starts=[4], ends=[8]}\n"
                            "%p = linear %a, %u\n%q = linear %b, %v\n%r = relu %p\n%s = relu %q\n"
                            "%t = linear %r, %w\n%i = linear %s, %z\n%y = concat %t, %i {axis=1}\n"
                            "%e = exp %y\nreturn %e\n}\n",
        2, 0, 2);
    joins("graph @g {\n%x = input : f32[2,8,5]\n" W("u", "6,2,3") W("v", "6,2,3") W("a", "6")
              W("b", "6") "%0, %1 = split %x {axis=1, sizes=[4,4]}\n"
                          "%p = conv %0, %u, %a {groups=2, pads=[1,1]}\n"
                          "%q = conv %1, %v, %b {groups=2, pads=[1,1]}\n"
                          "%y = concat %p, %q {axis=1}\n%e = exp %y\nreturn %e\n}\n",
        1, 0, 2);
}

TEST(siblings_that_stay_apart)
{
    /* another stride, an output, weights that are computed in each run, a group, parts of unequal size, one of which another reads */
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1")
              W("w", "4,8,1,1") "%p = conv %x, %v\n%q = conv %x, %w {strides=[2,2]}\n%t = exp "
                                "%p\n%u = sin %q\n"
                                "return %t, %u\n}\n",
        2, 0, 0);
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1") W(
              "w", "4,8,1,1") "%p = conv %x, %v\n%q = conv %x, %w\n%t = exp %p\nreturn %t, %q\n}\n",
        2, 0, 0);
    joins("graph @g {\n%x = input : f32[2,8]\n%w = input : f32[4,8]\n" W(
              "v", "4,8") "%p = linear %x, %v\n%q = linear %x, %w\n%t = exp %p\n%u = sin "
                          "%q\nreturn %t, %u\n}\n",
        2, 0, 0);
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,4,1,1")
              W("w", "4,4,1,1") "%p = conv %x, %v {groups=2}\n%q = conv %x, %w {groups=2}\n%t = "
                                "exp %p\n%u = sin %q\n"
                                "return %t, %u\n}\n",
        2, 0, 0);
    joins("graph @g {\n%x = input : f32[2,9]\n" W("v", "4,4")
              W("w", "4,5") "%0, %1 = split %x {axis=1, sizes=[4,5]}\n"
                            "%p = linear %0, %v\n%q = linear %1, %w\n%t = exp %p\n%u = sin "
                            "%q\nreturn %t, %u\n}\n",
        2, 1, 0);
    joins("graph @g {\n%x = input : f32[2,8]\n" W("v", "4,4")
              W("w", "4,4") "%0, %1 = split %x {axis=1, sizes=[4,4]}\n%h = sin %0\n"
                            "%p = linear %0, %v\n%q = linear %1, %w\n%t = exp %p\n%u = sin %q\n"
                            "return %t, %u, %h\n}\n",
        2, 1, 0);
    joins(
        "graph @g {\n%x = input : f32[2,8]\n" W("v", "4,4") W("w",
            "4,4") "%0, %1 = split %x {axis=1, sizes=[4,4]}\n"
                   "%p = linear %0, %v\n%q = linear %0, %w\n%t = exp %p\n%u = sin %q\n%h = sin %1\n"
                   "return %t, %u, %h\n}\n",
        1, 2, 1);
    /* parts of every second channel, parts that overlap, parts that leave a channel out */
    joins("graph @g {\n%x = input : f32[2,8]\n" W("v", "4,4")
              W("w", "4,4") "%a = slice %x {axes=[1], starts=[0], ends=[8], steps=[2]}\n"
                            "%b = slice %x {axes=[1], starts=[4], ends=[8]}\n"
                            "%p = linear %a, %v\n%q = linear %b, %w\n%t = exp %p\n%u = sin %q\n"
                            "return %t, %u\n}\n",
        2, 0, 0);
    joins("graph @g {\n%x = input : f32[2,8]\n" W("v", "4,4") W("w", "4,4")
              W("z", "4,4") "%a = slice %x {axes=[1], starts=[0], ends=[4]}\n"
                            "%b = slice %x {axes=[1], starts=[4], ends=[8]}\n"
                            "%c = slice %x {axes=[1], starts=[2], ends=[6]}\n"
                            "%p = linear %a, %v\n%q = linear %b, %w\n%r = linear %c, %z\n"
                            "%t = exp %p\n%u = sin %q\n%s = cos %r\nreturn %t, %u, %s\n}\n",
        2, 1, 1);
    joins("graph @g {\n%x = input : f32[2,9]\n" W("v", "4,4")
              W("w", "4,4") "%a = slice %x {axes=[1], starts=[0], ends=[4]}\n"
                            "%b = slice %x {axes=[1], starts=[4], ends=[8]}\n"
                            "%p = linear %a, %v\n%q = linear %b, %w\n%t = exp %p\n%u = sin %q\n"
                            "return %t, %u\n}\n",
        2, 0, 0);
    /* side by side, and unlike; channels last, by name at least */
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,4,3,3")
              W("w", "4,4,1,1") "%0, %1 = split %x {axis=1, sizes=[4,4]}\n"
                                "%p = conv %0, %v {pads=[1,1,1,1]}\n%q = conv %1, %w\n"
                                "%t = exp %p\n%u = sin %q\nreturn %t, %u\n}\n",
        2, 1, 0);
    joins("graph @g {\n%x = input : f32[2,8,6,6]{0,2,3,1}\n" W("v", "4,8,1,1")
              W("w", "5,8,1,1") "%p = conv %x, %v : f32[2,4,6,6]\n%q = conv %x, %w : f32[2,5,6,6]\n"
                                "%t = exp %p\n%u = sin %q\nreturn %t, %u\n}\n",
        2, 0, 0);
    /* activations that differ, or of which one is another's number */
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1")
              W("w", "4,8,1,1") "%p = conv %x, %v\n%q = conv %x, %w\n%r = relu %p\n%s = silu %q\n"
                                "%t = exp %r\n%u = sin %s\nreturn %t, %u\n}\n",
        2, 0, 0);
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1")
              W("w", "4,8,1,1") "%p = conv %x, %v\n%q = conv %x, %w\n"
                                "%r = leaky_relu %p {alpha=0.1}\n%s = leaky_relu %q {alpha=0.3}\n"
                                "%t = exp %r\n%u = sin %s\nreturn %t, %u\n}\n",
        2, 0, 0);
}

/* Where parts go: a concat along another dimension, and one in another order, read them; a concat of them in order needs none. */
TEST(siblings_concatenated_otherwise)
{
    static const char *const how[] = {"%a, %b, %c {axis=2}", "%a, %c, %b {axis=1}"};
    for (int i = 0; i < 2; i++) {
        nnc_text t = {0};
        nnc_printf(&t,
            "graph @g {\n%%x = input : f32[2,8,6,6]\n%s%s%s"
            "%%a = conv %%x, %%u\n%%b = conv %%x, %%v\n%%c = conv %%x, %%w\n"
            "%%t = concat %s\n%%y = exp %%t\nreturn %%y\n}\n",
            W("u", "4,8,1,1"), W("v", "4,8,1,1"), W("w", "4,8,1,1"), how[i]);
        joins(nnc_text_str(&t), 1, 1, 2);
        nnc_text_deinit(&t);
    }
}

/* What joining adds is weighed: parts copied for other contractions, and the transposes around a batched product of many rows. */
TEST(siblings_that_cost_more)
{
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1") W("w", "4,8,1,1")
              W("a", "4,4,1,1") W("b", "4,4,1,1") "%p = conv %x, %v\n%q = conv %x, %w\n"
                                                  "%t = conv %p, %a\n%u = conv %q, %b\n"
                                                  "return %t, %u\n}\n",
        4, 0, 0);
    joins("graph @g {\n%x = input : f32[16384,8]\n" W("v", "64,4")
              W("w", "64,4") "%0, %1 = split %x {axis=1, sizes=[4,4]}\n"
                             "%p = linear %0, %v\n%q = linear %1, %w\n%t = exp %p\n%u = sin %q\n"
                             "return %t, %u\n}\n",
        2, 1, 0);
    /* on a CPU, less than the estimates' error; much, where the products are small */
    static const char *const size[] = {"64,256", "256,256", "1,16", "16,16"};
    const nnc_target cpu = help_target();
    for (int i = 0; i < 2; i++) {
        nnc_text t = {0};
        nnc_printf(&t,
            "graph @g {\n%%x = input : f32[%s]\n"
            "%%v = param : f32[%s] = gen(\"v\", seed=1, scale=1, shift=0)\n"
            "%%w = param : f32[%s] = gen(\"w\", seed=1, scale=1, shift=0)\n"
            "%%p = linear %%x, %%v\n%%q = linear %%x, %%w\n"
            "%%t = exp %%p\n%%u = sin %%q\nreturn %%t, %%u\n}\n",
            size[2 * i], size[2 * i + 1], size[2 * i + 1]);
        joins_on(&cpu, nnc_text_str(&t), i ? 1 : 2, i, i);
        nnc_text_deinit(&t);
    }
}

/* Generated kernels: one command for all is expected to take less time on several threads, and where it reads its weights in panels. */
TEST(siblings_of_generated_kernels)
{
    nnc_target t;
    nnc_text x = {0};
    for (int conv = 0; conv < 2; conv++) {
        nnc_puts(&x, conv ? "graph @g {\n%x = input : f32[1,1024,1]\n"
                          : "graph @g {\n%x = input : f32[1,1024]\n");
        for (int i = 0; i < 4; i++)
            nnc_printf(&x, "%%w%d = param : f32[512,256%s] = gen(\"w%d\", seed=1, scale=0.1)\n", i,
                conv ? ",1" : "", i);
        nnc_printf(&x, "%%0, %%1, %%2, %%3 = split %%x {axis=1, sizes=[256,256,256,256]}\n");
        for (int i = 0; i < 4; i++)
            nnc_printf(&x, "%%y%d = %s %%%d, %%w%d\n", i, conv ? "conv" : "linear", i, i);
        nnc_puts(&x, "%y = concat %y0, %y1, %y2, %y3 {axis=1}\n%z = exp %y\nreturn %z\n}\n");
        for (int threads = 1; threads <= 4; threads *= 2) {
            t = test_cpu(threads, true);
            t.threads = t.cores = threads;
            joins_on(&t, nnc_text_str(&x), 1, 0, 1);
            nnc_target_deinit(&t);
        }
        nnc_text_clear(&x);
    }
    nnc_text_deinit(&x);
}

/* Weights that are computed stay apart in any case: one may be computed from another member's result. */
TEST(siblings_of_computed_weights)
{
    static const char *const weight[] = {"%w = exp %x\n", "%w = exp %p\n"};
    const nnc_target t = help_target();
    for (size_t i = 0; i < NNC_COUNT(weight); i++) {
        nnc_text x = {0};
        nnc_printf(&x,
            "graph @g {\n%%x = input : f32[8,8]\n"
            "%%v = param : f32[8,8] = gen(\"v\", seed=1, scale=0.5, shift=0.1)\n%%p = linear %%x, "
            "%%v\n%s"
            "%%q = linear %%x, %%w\n%%t = exp %%p\n%%u = sin %%q\nreturn %%t, %%u\n}\n",
            weight[i]);
        joins_by(&t, true, nnc_text_str(&x), 2, 0, 0);
        nnc_text_deinit(&x);
    }
}

/* A static contraction, whose operand is its weights, too; and members that one reader reads twice. */
TEST(siblings_that_are_read_twice)
{
    joins("graph @g {\n%x = input : f32[4,8]\n" W("w", "8,8")
              W("v", "8,8") "%p = linear %w, %w\n%q = linear %w, %v\n"
                            "%r = linear %x, %p\n%s = linear %x, %q\n%t = exp %r\n%u = sin %s\n"
                            "return %t, %u\n}\n",
        3, 1, 1);
    joins("graph @g {\n%x = input : f32[8,8]\n" W(
              "w", "8,8") "%p = linear %x, %x\n%q = linear %x, %w\n%t = exp %p\n%u = sin %q\n"
                          "return %t, %u\n}\n",
        2, 0, 0);
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1")
              W("w", "4,8,1,1") "%p = conv %x, %v\n%q = conv %x, %w\n%r = mul %p, %p\n"
                                "%s = concat %q, %q, %p {axis=1}\n%t = exp %s\nreturn %r, %t\n}\n",
        1, 1, 2);
    joins("graph @g {\n%x = input : f32[2,8,6,6]\n" W("v", "4,8,1,1")
              W("w", "4,8,1,1") "%p = conv %x, %v\n%q = conv %x, %w\n"
                                "%s = concat %p, %q, %q {axis=1}\n%t = exp %s\nreturn %t\n}\n",
        1, 1, 2);
}
