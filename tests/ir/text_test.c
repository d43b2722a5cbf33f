/* tests/ir/text_test.c -- the text form: chosen round trips, every op of a random program, mutated
 * texts, and memory that runs out at every possible place. */
#include "gen/gen.h"
#include "help.h"

#include <math.h>

static void print_graph(nnc_text *t, const nnc_graph *g)
{
    nnc_text_clear(t);
    nnc_graph_print(t, g);
    CHECK(!t->oom);
}

/* print(parse(text)) == want; and once more from there. */
static void check_text(const char *text, const char *want)
{
    nnc_graph *g = parse_text(text);
    nnc_text t = {0};
    CHECK(g != NULL);
    if (!g) {
        nnc_sink_print(test_sink, stderr);
        return;
    }
    CHECK_OK(nnc_verify(g, test_sink));
    print_graph(&t, g);
    CHECK_STR(nnc_text_str(&t), want);
    nnc_graph *again = parse_text(nnc_text_str(&t));
    CHECK(again != NULL);
    if (again) {
        nnc_text u = {0};
        print_graph(&u, again);
        CHECK_STR(nnc_text_str(&u), want);
        nnc_hash128 a = nnc_graph_hash(g), b = nnc_graph_hash(again);
        CHECK(a.lo == b.lo && a.hi == b.hi);
        nnc_text_deinit(&u);
    }
    nnc_graph_destroy(again);
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
}

static const char net[] =
    "graph @net {\n"
    "  %x = input : f32[1,3,8,8]\n"
    "  %conv1.weight = param : f32[4,3,3,3] = gen(\"conv1.weight\", seed=7, scale=0.1, shift=-0.5) "
    "frozen\n"
    "  %b = param : f32[4] = file(\"w.safetensors\", name=\"b\", offset=128, size=16, hash=-3)\n"
    "  %s = param : f32[4] = name \"s \\\"q\\\"\" [1, -0, inf, nan]\n"
    "  %c = conv %x, %conv1.weight, %b {strides=[2,2], pads=[1,1,1,1]} : f32[1,4,4,4]{0,2,3,1} "
    "device 1 loc \"/layers/0/conv\"\n"
    "  %f = fused %c, %s {\n"
    "    %a = input : f32[1,4,4,4]{0,2,3,1}\n"
    "    %b = input : f32[4]\n"
    "    %2 = reshape %b {shape=[4,1,1]} : f32[4,1,1] loc \"/layers/1\"\n"
    "    %3 = mul %a, %2 : f32[1,4,4,4]{0,2,3,1}\n"
    "    %4 = gelu %3 {approximate=tanh} : f32[1,4,4,4]{0,2,3,1}\n"
    "    return %4, %3\n"
    "  } : f32[1,4,4,4]{0,2,3,1}, f32[1,4,4,4]{0,2,3,1} loc \"/layers/0/conv+/layers/1\"\n";

TEST(text_net)
{
    nnc_text t = {0};
    nnc_puts(&t, net);
    /* a fused node of two results needs two names */
    char *f = strstr(t.s, "%f = fused");
    CHECK(f != NULL);
    nnc_text whole = {0};
    nnc_putn(&whole, t.s, (size_t)(f - t.s));
    nnc_puts(&whole, "%f, %6");
    nnc_puts(&whole, f + 2);
    nnc_puts(&whole,
        "  %7, %8 = split %6 {axis=1, sizes=[1,3]} : f32[1,1,4,4]{0,2,3,1}, f32[1,3,4,4]{0,2,3,1}\n"
        "  %9 = cast %8 {to=bf16} : bf16[1,3,4,4]{0,2,3,1}\n"
        "  %10 = iota {dim=1} : i64[2,3]\n"
        "  return %f as \"y\", %9, %7 as \"z \\\\\", %10, %f\n"
        "}\n");
    check_text(nnc_text_str(&whole), nnc_text_str(&whole));
    nnc_text_deinit(&whole);
    nnc_text_deinit(&t);
}

/* Updates survive printing, copying and tidying; what they need is alive, and a graph that updates another state is another. */
TEST(text_updates)
{
    static const char text[] = "graph @t {\n"
                               "  %x = input : f32[2]\n"
                               "  %w = param : f32[2] = gen(\"w\", seed=1, scale=1, shift=0)\n"
                               "  %u = param : f32[2] = gen(\"u\", seed=1, scale=1, shift=0)\n"
                               "  %w2 = add %x, %w : f32[2]\n"
                               "  %u2 = neg %u : f32[2]\n"
                               "  return %x\n"
                               "  update %w <- %w2\n"
                               "  update %u <- %u2\n"
                               "}\n";
    check_text(text, text);
    nnc_graph *g = parse_text(text), *c = g ? nnc_graph_clone(g, test_sink) : NULL;
    nnc_text t = {0};
    CHECK(c && nnc_result_outputs(c) == 1);
    if (c) {
        CHECK_OK(nnc_graph_tidy(c));
        CHECK_OK(nnc_verify(c, test_sink));
        nnc_graph_print(&t, c);
        CHECK_STR(nnc_text_str(&t), text);
        nnc_hash128 a = nnc_graph_hash(g);
        nnc_ref first = c->output_state[1];
        c->output_state[1] = c->output_state[2];
        c->output_state[2] = first;
        nnc_hash128 b = nnc_graph_hash(c);
        CHECK(a.lo != b.lo || a.hi != b.hi);
        nnc_def(c, first)->state = false;
        CHECK_INT(nnc_verify(c, test_sink), NNC_E_BUG);
        CHECK_DIAG("updates no state");
    }
    nnc_text_deinit(&t);
    nnc_graph_destroy(c);
    nnc_graph_destroy(g);
}

/* The example of docs/graph-ir.md is what it says it is. */
TEST(text_docs_example)
{
    char *doc = NULL;
    size_t n;
    CHECK_OK(nnc_file_read("docs/graph-ir.md", 0, &doc, &n, test_sink));
    char *from = doc ? strstr(doc, "graph @net") : NULL, *to = from ? strstr(from, "```") : NULL;
    CHECK(to != NULL);
    if (to) {
        *to = 0;
        check_text(from, from);
    }
    nnc_free(doc);
}

TEST(text_constants)
{
    static const char text[] =
        "graph @\"resnet-50 v2\" {\n"
        "  %0 = constant : f32[3] = [0.1, 3.4028235e+38, 1e-45]\n"
        "  %1 = constant : f64[2] = [0.1, -1.7976931348623157e+308]\n"
        "  %2 = constant : f16[3] = [65504, 6e-08, -inf]\n"
        "  %3 = constant : i64[2] = [-9223372036854775808, 9223372036854775807]\n"
        "  %4 = constant : u64[1] = [-1]\n"
        "  %5 = constant : bool[2] = [0, 1]\n"
        "  %6 = constant : f32[1000,1000] = splat -0.25\n"
        "  %7 = constant : f32[] = [2]\n"
        "  %8 = constant : bf16[2] = splat nan\n"
        "  %9 = constant : f32[1] = hex \"0100a07f\"\n"
        "  %10 = clip %7 {lo=-inf, hi=0.1} : f32[]\n"
        "  return\n"
        "}\n";
    check_text(text, text);
}

TEST(text_big_constant)
{
    /* More than a list holds: hex, and exact. */
    float data[100];
    nnc_graph *g = nnc_graph_create("t", test_sink);
    nnc_type t = nnc_type_make(DT_f32, 2, (int64_t[]){10, 10});
    for (int i = 0; i < 100; i++)
        data[i] = (float)sin(i) * 1e-3f;
    nnc_output(g, nnc_constant(g, &t, data), NULL);
    nnc_text a = {0};
    print_graph(&a, g);
    CHECK(strstr(nnc_text_str(&a), "hex \"00000000") != NULL);
    nnc_graph *h = parse_text(nnc_text_str(&a));
    CHECK(h && !memcmp(h->node[0].weight->data, data, sizeof data));
    nnc_graph_destroy(h);
    nnc_graph_destroy(g);
    nnc_text_deinit(&a);
}

TEST(text_terse)
{
    /* Types of inferable ops may be left out; comments and blanks do not matter; numbers are
     * renumbered. */
    check_text("graph @t{%5=input:f32[2,3]#x\n%y=relu %5 %7=add %y,%5 return %7 as\"o\"}",
        "graph @t {\n  %0 = input : f32[2,3]\n  %y = relu %0 : f32[2,3]\n  %2 = add %y, %0 : "
        "f32[2,3]\n"
        "  return %2 as \"o\"\n}\n");
}

TEST(text_numbers_and_names_mix)
{
    /* A value called "_5" and the number 5 are two values. */
    check_text(
        "graph @t { %\"0\" = input : f32[2] %0 = neg %\"0\" %\"a b\" = neg %0 return %\"a b\" }",
        "graph @t {\n  %\"0\" = input : f32[2]\n  %1 = neg %\"0\" : f32[2]\n  %\"a b\" = neg %1 : "
        "f32[2]\n"
        "  return %\"a b\"\n}\n");
    check_text("graph @t { %_1 = input : f32[2] %1 = neg %_1 %2 = add %1, %_1 return %2 }",
        "graph @t {\n  %_1 = input : f32[2]\n  %1 = neg %_1 : f32[2]\n  %2 = add %1, %_1 : f32[2]\n"
        "  return %2\n}\n");
}

/* A program of random ops over values of one shape; whatever the builder accepts must survive the
 * text form. */
static nnc_graph *random_graph(uint64_t key)
{
    nnc_graph *g = nnc_graph_create("random", test_sink);
    nnc_type t = nnc_type_make(DT_f32, 4, (int64_t[]){2, 4, 6, 6});
    uint64_t at = 0;
    uint8_t last[] = {0, 2, 3, 1};
    nnc_ref v[40];
    int n = 0;
    v[n++] = nnc_input(g, "x", &t);
    for (int i = 0; i < 30; i++) {
        nnc_ref a = v[nnc_rng_u32(key, at++) % (uint32_t)n],
                b = v[nnc_rng_u32(key, at++) % (uint32_t)n];
        nnc_op op = (nnc_op)(nnc_rng_u32(key, at++) % OP__COUNT);
        char origin[32];
        snprintf(origin, sizeof origin, "/layers/%d", i / 2);
        g->origin = i % 3 ? origin : NULL;
        g->device = (int16_t)(i % 5 == 0);
        nnc_ref r = NNC_NONE;
        if (op == OP_relayout)
            r = nnc_relayout(g, a, last);
        else if (nnc_op_is_ewise(op) && !(nnc_ops[op].flags & (OF_bool | OF_int)) &&
                 op != OP_cast && nnc_ops[op].n_min < 3)
            r = nnc_ops[op].n_min == 1 ? nnc_build1(g, op, a) : nnc_build2(g, op, a, b);
        else
            r = nnc_build2(g, OP_mul, a, nnc_scalar(g, DT_f32, nnc_rng_uniform(key, at++)));
        if (i % 4 == 0)
            nnc_set_name(g, r, "t");
        v[n++] = r;
    }
    nnc_output(g, v[n - 1], "y");
    nnc_output(g, v[n / 2], NULL);
    return g;
}

TEST(text_random)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(200); i++) {
        nnc_graph *g = random_graph(test_seed + i);
        nnc_text a = {0}, b = {0};
        CHECK_OK(g->status);
        CHECK_OK(nnc_verify(g, test_sink));
        print_graph(&a, g);
        nnc_graph *h = parse_text(nnc_text_str(&a));
        CHECK(h != NULL);
        if (h) {
            print_graph(&b, h);
            CHECK_STR(nnc_text_str(&b), nnc_text_str(&a));
            CHECK(!memcmp(
                &(nnc_hash128[]){nnc_graph_hash(g)}, &(nnc_hash128[]){nnc_graph_hash(h)}, 16));
        }
        CHECK_OK(nnc_graph_tidy(g));
        CHECK_OK(nnc_verify(g, test_sink));
        nnc_graph_destroy(g);
        nnc_graph_destroy(h);
        nnc_text_deinit(&a);
        nnc_text_deinit(&b);
    }
}

/* Generated graphs over all ops and element types: text, clone and tidy keep their meaning. */
TEST(text_generated)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(150); i++) {
        gen_options o = {
            .seed = test_seed + i, .nodes = 20, .dtypes = (1 << DT__COUNT) - 1, .wild = i % 2};
        nnc_graph *g = gen_graph(&o, test_sink);
        CHECK(g != NULL);
        if (!g)
            continue;
        nnc_text a = {0}, b = {0}, c = {0};
        print_graph(&a, g);
        nnc_graph *h = parse_text(nnc_text_str(&a)), *k = nnc_graph_clone(g, test_sink);
        CHECK(h && k);
        if (h && k) {
            print_graph(&b, h);
            print_graph(&c, k);
            CHECK_STR(nnc_text_str(&b), nnc_text_str(&a));
            CHECK_STR(nnc_text_str(&c), nnc_text_str(&a));
            nnc_hash128 x = nnc_graph_hash(g), y = nnc_graph_hash(h);
            CHECK(x.lo == y.lo && x.hi == y.hi);
            CHECK_OK(nnc_graph_tidy(k));
            CHECK_OK(nnc_graph_tidy(h));
            CHECK_OK(nnc_verify(k, test_sink));
            x = nnc_graph_hash(k), y = nnc_graph_hash(h);
            CHECK(x.lo == y.lo && x.hi == y.hi);
            nnc_cost cost = nnc_graph_cost(k);
            CHECK(cost.bytes >= 0 && cost.flops >= 0 && cost.launches >= 0);
        }
        nnc_graph_destroy(g);
        nnc_graph_destroy(h);
        nnc_graph_destroy(k);
        nnc_text_deinit(&a);
        nnc_text_deinit(&b);
        nnc_text_deinit(&c);
    }
}

/* One to four changes of a byte, a run of bytes, or a piece copied elsewhere. */
static void mutate(char *s, size_t n, uint64_t key)
{
    static const char some[] = "%{}[]()=,:\"#-0123456789abcdefxyz \n.@";
    uint64_t at = 0;
    for (uint32_t k = nnc_rng_u32(key, at++) % 4 + 1; k > 0; k--) {
        size_t p = nnc_rng_u32(key, at++) % n, q = nnc_rng_u32(key, at++) % n;
        size_t len = nnc_rng_u32(key, at++) % 12;
        switch (nnc_rng_u32(key, at++) % 3) {
        case 0: s[p] = some[nnc_rng_u32(key, at++) % (sizeof some - 1)]; break;
        case 1: s[p] = (char)nnc_rng_u32(key, at++); break;
        default:
            if (p + len < n && q + len < n)
                memmove(s + p, s + q, len);
        }
    }
}

TEST(text_fuzz)
{
    static const char seed_text[] =
        "graph @net {\n  %x = input : f32[1,3,8,8]\n"
        "  %w = param : f32[4,3,3,3] = gen(\"w\", seed=7, scale=0.1) frozen\n"
        "  %k = constant : f32[3] = [1, 2.5, inf]\n  %h = constant : i16[2] = hex \"01000200\"\n"
        "  %z = constant : f32[4,1,1] = splat 3\n"
        "  %c = conv %x, %w {strides=[2,2], pads=[1,1,1,1]} : f32[1,4,4,4]{0,2,3,1} device 1 loc "
        "\"/l\"\n"
        "  %f = fused %c, %z { %a = input : f32[1,4,4,4]{0,2,3,1} %b = input : f32[4,1,1] %m = mul "
        "%a, %b return %m }\n"
        "  %p, %q = split %f {axis=1, sizes=[1,3]} : f32[1,1,4,4], f32[1,3,4,4]\n"
        "  %s = slice %q {axes=[2,3], starts=[0,1], ends=[4,3], steps=[2,1]}\n"
        "  %r = reduce_sum %s {axes=[1], keepdims=0}\n  return %r as \"y\", %p\n}\n";
    size_t n = sizeof seed_text - 1;
    int accepted = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        char *s = nnc_malloc(n); /* exactly n bytes: a read past the end is seen by ASan */
        memcpy(s, seed_text, n);
        mutate(s, n, test_seed * 1000003 + i);
        nnc_scan scan;
        nnc_scan_init(&scan, "t", s, i % 8 ? n : i % n);
        nnc_sink_clear(test_sink);
        nnc_graph *g = nnc_graph_parse(&scan, test_sink);
        if (g) {
            accepted++;
            CHECK_OK(nnc_verify(g, test_sink));
            nnc_text a = {0}, b = {0};
            print_graph(&a, g);
            nnc_graph *h = parse_text(nnc_text_str(&a));
            CHECK(h != NULL);
            if (h) {
                print_graph(&b, h);
                CHECK_STR(nnc_text_str(&b), nnc_text_str(&a));
            }
            nnc_graph_destroy(h);
            nnc_text_deinit(&a);
            nnc_text_deinit(&b);
        } else {
            CHECK(nnc_sink_errors(test_sink) > 0);
        }
        nnc_graph_destroy(g);
        nnc_free(s);
    }
    CHECK_USUAL(accepted > 20 && accepted < 3000);
    nnc_sink_clear(test_sink);
}

/* The N-th allocation fails, N = 1, 2, ... until all succeed: always a clean failure, never a leak
 * (ASan). */
TEST(text_out_of_memory)
{
    static const char text[] =
        "graph @net { %x = input : f32[1,3,8,8] %w = param : f32[4,3,3,3] = gen(\"w\", seed=7, "
        "scale=0.1)\n"
        "  %k = constant : f32[4,1,1] = [1, 2, 3, 4] %c = conv %x, %w {pads=[1,1,1,1]} loc \"/a\"\n"
        "  %f = fused %c, %k { %a = input : f32[1,4,8,8] %b = input : f32[4,1,1] %m = mul %a, %b "
        "return %m }\n"
        "  %1, %2, %3, %4, %5, %6, %7, %8, %9 = split %f {axis=2, sizes=[1,1,1,1,1,1,1,1,0]} "
        "return %f }";
    nnc_text good = {0};
    nnc_puts(&good, text);
    char *bad = strstr(good.s, ", %9 =");
    memmove(bad, bad + 4, strlen(bad + 4) + 1);
    memcpy(strstr(good.s, ",0]}"), "]}  ", 4);
    int64_t n = 1;
    for (nnc_graph *g = NULL; !g && n < 2000; n++) {
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        g = parse_text(good.s);
        nnc_graph *c = g ? nnc_graph_clone(g, test_sink) : NULL;
        nnc_status tidied = c ? nnc_graph_tidy(c) : NNC_E_NOMEM;
        nnc_status verified = c && tidied == NNC_OK ? nnc_verify(c, test_sink) : NNC_E_NOMEM;
        nnc_fail_alloc_after(0);
        if (verified != NNC_OK) {
            CHECK_DIAG("memory");
            if (!test_has_diag("memory"))
                break;
            nnc_graph_destroy(c);
            nnc_graph_destroy(g);
            g = NULL;
            continue;
        }
        nnc_graph_destroy(c);
        nnc_graph_destroy(g);
        break;
    }
    CHECK(n > 5 && n < 2000);
    nnc_text_deinit(&good);
    nnc_sink_clear(test_sink);
}
