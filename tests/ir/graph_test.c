/* tests/ir/graph_test.c -- the container: names, sticky failure, tidy, clone, copies, verify,
 * hash. */
#include "help.h"

static nnc_type vec(int64_t n)
{
    return nnc_type_make(DT_f32, 1, &n);
}

TEST(graph_names_unique)
{
    nnc_graph *g = nnc_graph_create("t", test_sink);
    nnc_type t = vec(2);
    nnc_ref a = nnc_input(g, "x", &t), b = nnc_input(g, "x", &t), c = nnc_input(g, "layer-1/0", &t);
    nnc_ref d = nnc_input(g, "1x", &t), e = nnc_input(g, "x_2", &t), f = nnc_input(g, "x", &t);
    CHECK_STR(g->value[a].name, "x");
    CHECK_STR(g->value[b].name, "x_2");
    CHECK_STR(g->value[c].name, "layer-1/0");
    CHECK_STR(g->value[d].name, "1x");
    CHECK_STR(g->value[e].name, "x_2_2");
    CHECK_STR(g->value[f].name, "x_3");
    for (int i = 0; i < 3000; i++) /* no quadratic search: this is quick */
        nnc_set_name(g, nnc_build1(g, OP_relu, a), "same");
    CHECK_OK(nnc_verify(g, test_sink));
    nnc_graph_destroy(g);
}

TEST(graph_sticky)
{
    nnc_graph *g = nnc_graph_create("t", test_sink);
    nnc_type t = vec(2), u = vec(3);
    nnc_ref a = nnc_input(g, "a", &t), b = nnc_input(g, "b", &u);
    g->origin = "/layers/1";
    nnc_ref c = nnc_build2(g, OP_add, a, b);
    CHECK_INT(c, NNC_NONE);
    CHECK_INT(g->status, NNC_E_MODEL);
    CHECK_DIAG("/layers/1");
    CHECK_INT(nnc_build1(g, OP_relu, c), NNC_NONE);
    CHECK_INT(nnc_build1(g, OP_relu, a), NNC_NONE); /* sticky */
    nnc_output(g, c, "y");
    CHECK_INT(g->n_node, 2);
    CHECK_INT(nnc_sink_errors(test_sink), 1); /* one cause, one message */
    CHECK_INT(nnc_graph_tidy(g), NNC_E_MODEL);
    nnc_graph_destroy(g);
    g = nnc_graph_create("t", test_sink);
    CHECK_INT(nnc_build1(g, OP_relu, NNC_NONE), NNC_NONE);
    CHECK_INT(g->status, NNC_E_BUG); /* never lost */
    nnc_graph_destroy(g);
}

TEST(graph_tidy)
{
    nnc_graph *g = parse_text("graph @t { %x = input : f32[4] %unused = input : f32[2] %a = relu "
                              "%x %dead = neg %a %b = exp %a\n"
                              " %c = add %a, %b return %c as \"y\" }");
    nnc_ref a = g->value[2].node == 2 ? 2 : NNC_NONE, b = 4;
    /* a pass: exp(relu(x)) becomes sigmoid of a new node at the end */
    nnc_ref s = nnc_build1(g, OP_sigmoid, a);
    nnc_set_name(g, s, "s");
    nnc_replace_uses(g, b, s);
    CHECK_INT(nnc_verify(g, test_sink), NNC_E_BUG); /* operand after its use */
    nnc_sink_clear(test_sink);
    CHECK_OK(nnc_graph_tidy(g));
    CHECK_OK(nnc_verify(g, test_sink));
    nnc_text t = {0};
    nnc_graph_print(&t, g);
    CHECK_STR(nnc_text_str(&t),
        "graph @t {\n  %x = input : f32[4]\n  %unused = input : f32[2]\n  %a = relu %x : f32[4]\n"
        "  %s = sigmoid %a : f32[4]\n  %c = add %a, %s : f32[4]\n  return %c as \"y\"\n}\n");
    nnc_text_deinit(&t);
    /* "b" is free again, and uses are counted with outputs */
    nnc_set_name(g, 3, "b");
    CHECK_STR(g->value[3].name, "b");
    nnc_arena scratch;
    nnc_arena_init(&scratch, 0);
    uint32_t *uses = nnc_use_counts(g, &scratch);
    CHECK_INT(uses[0], 1);
    CHECK_INT(uses[1], 0);
    CHECK_INT(uses[2], 2);
    CHECK_INT(uses[4], 1);
    nnc_arena_deinit(&scratch);
    nnc_graph_destroy(g);
}

TEST(graph_tidy_cycle)
{
    nnc_graph *g =
        parse_text("graph @t { %x = input : f32[4] %a = relu %x %b = exp %a return %b }");
    g->node[1].in[0] = 2;
    CHECK_INT(nnc_graph_tidy(g), NNC_E_BUG);
    CHECK_DIAG("form a cycle");
    nnc_graph_destroy(g);
}

TEST(graph_tidy_large)
{
    /* 20000 nodes built in reverse order: sorted in n log n, stable. */
    nnc_graph *g = nnc_graph_create("t", test_sink);
    nnc_type t = vec(2);
    nnc_ref x = nnc_input(g, "x", &t);
    int n = 20000;
    for (int i = 0; i < n; i++)
        nnc_build1(g, OP_relu, x);
    for (int i = 1; i < n; i++)
        g->node[i].in[0] = g->node[i + 1].out;
    nnc_output(g, g->node[1].out, "y");
    CHECK_OK(nnc_graph_tidy(g));
    CHECK_OK(nnc_verify(g, test_sink));
    CHECK_INT(g->n_node, n + 1);
    CHECK_INT(g->output[0], n);
    nnc_graph_destroy(g);
}

static const char fused_text[] = "graph @t { %x = input : f32[4] %w = param : f32[4] = [1,2,3,4] "
                                 "frozen %f, %g = fused %x, %w {\n"
                                 " %a = input : f32[4] %b = input : f32[4] %c = mul %a, %b %d = "
                                 "exp %c return %c, %d } device 3 loc \"/l\"\n"
                                 " %h = add %f, %g return %h as \"y\" }";

TEST(graph_clone)
{
    nnc_graph *g = parse_text(fused_text), *c = nnc_graph_clone(g, test_sink);
    nnc_text a = {0}, b = {0};
    nnc_graph_print(&a, g);
    nnc_graph_destroy(g); /* nothing of it is used by the copy */
    nnc_graph_print(&b, c);
    CHECK_STR(nnc_text_str(&b), nnc_text_str(&a));
    CHECK_OK(nnc_verify(c, test_sink));
    /* the copy can go on */
    nnc_set_name(c, nnc_build1(c, OP_relu, c->output[0]), "x");
    CHECK_STR(c->value[c->n_value - 1].name, "x_2");
    nnc_graph_destroy(c);
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
}

/* Each allocation in turn fails: a half-made copy is taken down once. */
TEST(graph_clone_out_of_memory)
{
    nnc_text t = {0};
    nnc_puts(&t, "graph @t { %x = input : f32[4]");
    for (int i = 0; i < 100; i++)
        nnc_printf(&t,
            " %%f%d = fused %%x { %%a = input : f32[4] %%b = clip %%a {lo=0, hi=1} return %%b } "
            "loc "
            "\"/layers/%0*d/clip\"",
            i, 10 + 10 * i, i); /* the arena takes blocks in the middle of nodes */
    nnc_puts(&t, " return %f0 }");
    nnc_graph *g = parse_text(nnc_text_str(&t)), *c = NULL;
    CHECK(g != NULL);
    for (int64_t n = 1; g && !c && n < 10000; n++) {
        nnc_fail_alloc_after(n);
        c = nnc_graph_clone(g, test_sink);
        nnc_fail_alloc_after(0);
        CHECK(c || nnc_sink_cause(test_sink, NNC_OK) == NNC_E_NOMEM);
        nnc_sink_clear(test_sink);
    }
    CHECK(c != NULL);
    nnc_graph_destroy(c);
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
}

TEST(graph_copy_node)
{
    nnc_graph *g = parse_text(fused_text), *c = nnc_graph_create("t", test_sink);
    nnc_ref map[8];
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_ref in[2] = {0};
        for (int k = 0; k < g->node[i].n_in; k++)
            in[k] = map[g->node[i].in[k]];
        nnc_ref r = nnc_copy_node(c, g, &g->node[i], in);
        for (uint32_t k = 0; k < g->node[i].n_out; k++)
            map[g->node[i].out + k] = r + k;
    }
    nnc_output(c, map[g->output[0]], "y");
    nnc_text a = {0}, b = {0};
    nnc_graph_print(&a, g);
    nnc_graph_print(&b, c);
    CHECK_STR(nnc_text_str(&b), nnc_text_str(&a));
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
    nnc_graph_destroy(g);
    nnc_graph_destroy(c);
}

TEST(graph_builders)
{
    nnc_graph *g = nnc_graph_create("t", test_sink);
    nnc_type t = nnc_type_make(DT_f32, 4, (int64_t[]){1, 2, 3, 4});
    nnc_weight w = {.kind = NNC_W_gen, .name = "fc.weight", .seed = 1, .scale = 1};
    nnc_ref x = nnc_input(g, "x", &t), p = nnc_param(g, &t, &w);
    const uint8_t last[] = {0, 2, 3, 1}, plain[] = {0, 1, 2, 3};
    CHECK_INT(nnc_relayout(g, x, plain), x);
    nnc_ref r = nnc_relayout(g, nnc_build2(g, OP_add, x, p), last);
    CHECK_INT(nnc_typeof(g, r)->order[1], 2);
    r = nnc_transpose(g, r, (int64_t[]){0, 2, 3, 1});
    r = nnc_reduce(g, OP_reduce_max, r, 2, (int64_t[]){1, 2}, false);
    r = nnc_broadcast(g, nnc_reshape(g, r, 3, (int64_t[]){1, 2, 1}), 3, (int64_t[]){3, 2, 5});
    r = nnc_build3(g, OP_select, nnc_build2(g, OP_gt, r, nnc_scalar(g, DT_f32, 0.5)), r,
        nnc_scalar(g, DT_f32, -1));
    r = nnc_reduce(g, OP_argmax, nnc_cast(g, r, DT_i32), 1, (int64_t[]){2}, true);
    nnc_output(g, r, "y");
    CHECK_OK(g->status);
    CHECK_OK(nnc_verify(g, test_sink));
    CHECK_STR(g->value[p].name, "fc.weight");
    nnc_text s = {0};
    nnc_put_type(&s, nnc_typeof(g, r));
    CHECK_STR(nnc_text_str(&s), "i64[3,2,1]");
    nnc_text_deinit(&s);
    nnc_graph_destroy(g);
}

TEST(graph_verify_finds)
{
    for (int i = 0; i < 12; i++) {
        nnc_graph *g = parse_text(fused_text);
        nnc_sink_clear(test_sink);
        switch (i) {
        case 0: g->value[4].type.dim[0] = 5; break;
        case 1: g->value[0].type.order[0] = 3; break;
        case 2: g->node[3].in[1] = 99; break;
        case 3: g->node[2].body->value[0].type.dim[0] = 9; break;
        case 4: g->output[0] = 77; break;
        case 5: g->value[1].name = "x"; break;
        case 6: g->node[0].frozen = true; break;
        case 7: g->node[3].n_in = 1; break;
        case 8: g->value[3].node = 0; break;
        case 9: g->node[3].device = -2; break;
        case 10: g->node[2].n_out = 1; break;
        default: g->node[3].op = OP_matmul; break;
        }
        CHECK_INT(nnc_verify(g, test_sink), NNC_E_BUG);
        CHECK(nnc_sink_errors(test_sink) > 0);
        nnc_graph_destroy(g);
    }
    nnc_sink_clear(test_sink);
}

static uint64_t hash_of(const char *text)
{
    nnc_graph *g = parse_text(text);
    CHECK(g != NULL);
    if (!g)
        return 0;
    uint64_t h = nnc_graph_hash(g).lo;
    nnc_graph_destroy(g);
    return h;
}

TEST(graph_hash)
{
    uint64_t h = hash_of("graph @t { %x = input : f32[1,4,1] %y = softmax %x {axis=1} return %y }");
    CHECK(h == hash_of("graph @u { %q = input : f32[1,4,1] loc \"/a\" %1 = softmax %q {axis=1} "
                       "return %1 as \"o\" }"));
    /* an order that means the same memory */
    CHECK(h == hash_of("graph @u { %q = input : f32[1,4,1]{2,1,0} %1 = softmax %q {axis=1} : "
                       "f32[1,4,1]{0,2,1} return %1 }"));
    CHECK(h != hash_of("graph @t { %x = input : f32[1,4,1] %y = softmax %x {axis=2} return %y }"));
    CHECK(h != hash_of("graph @t { %x = input : f32[1,4,2] %y = softmax %x {axis=1} return %y }"));
    CHECK(h !=
          hash_of("graph @t { %x = input : f32[1,4,1] %y = log_softmax %x {axis=1} return %y }"));
    CHECK(h != hash_of("graph @t { %x = input : f32[1,4,1] %y = softmax %x {axis=1} return %x }"));
    uint64_t w =
        hash_of("graph @t { %w = param : f32[2] = gen(\"a\", seed=1, scale=1) return %w }");
    CHECK(w != hash_of("graph @t { %w = param : f32[2] = gen(\"b\", seed=1, scale=1) return %w }"));
    CHECK(w != hash_of("graph @t { %w = param : f32[2] = gen(\"a\", seed=2, scale=1) return %w }"));
    CHECK(hash_of("graph @t { %w = param : f32[2] = name \"a\" [1,2] return %w }") ==
          hash_of("graph @t { %w = param : f32[2] = name \"b\" [1,2] return %w }"));
    CHECK(hash_of("graph @t { %w = param : f32[2] = [1,2] return %w }") !=
          hash_of("graph @t { %w = param : f32[2] = [1,3] return %w }"));
    static const char *const differ[][2] = {
        {"leaky_relu %x {alpha=0.1}", "leaky_relu %x {alpha=0.2}"},
        {"gelu %x {approximate=none}", "gelu %x {approximate=tanh}"},
        {"cast %x {to=f16}", "cast %x {to=bf16}"},
        {"pad %x {pads=[0,0,1,0,0,0]}", "pad %x {pads=[0,0,0,0,0,1]}"},
        {"sub %x, %y", "sub %y, %x"},
        {"relu %x", "relu %x device 1"},
        {"param : f32[4] = file(\"f\", offset=0, size=16)",
            "param : f32[4] = file(\"f\", offset=4, size=16)"},
        {"param : f32[4] = file(\"f\", offset=0, size=16)",
            "param : f32[4] = file(\"g\", offset=0, size=16)"},
        {"param : f32[4] = gen(\"a\", seed=1, scale=1, shift=0)",
            "param : f32[4] = gen(\"a\", seed=1, scale=1, shift=1)"},
        {"param : f32[4] = splat 1", "param : f32[4] = splat 1 frozen"},
    };
    for (size_t i = 0; i < NNC_COUNT(differ); i++) {
        uint64_t two[2];
        for (int k = 0; k < 2; k++) {
            nnc_text t = {0};
            nnc_printf(&t,
                "graph @t { %%x = input : f32[1,1,4] %%y = input : f32[1,1,4] %%z = %s return %%z "
                "}",
                differ[i][k]);
            two[k] = hash_of(nnc_text_str(&t));
            nnc_text_deinit(&t);
        }
        if (two[0] == two[1])
            test_fail(__FILE__, __LINE__, "%s and %s", differ[i][0], differ[i][1]);
    }
}

TEST(graph_dot)
{
    nnc_graph *g = parse_text(fused_text);
    nnc_text t = {0};
    nnc_graph_dot(&t, g);
    CHECK(strstr(nnc_text_str(&t), "digraph \"t\" {") == nnc_text_str(&t));
    CHECK(strstr(nnc_text_str(&t), "label=\"one launch on device 3\";\n") != NULL);
    /* the weight is a line of its reader, the input an edge with its bytes; inside, no bytes move */
    CHECK(strstr(nnc_text_str(&t), "label=\"mul\\nf32[4]\\nweight f32[4]\"") != NULL);
    CHECK(strstr(nnc_text_str(&t), "n0 -> n2_2 [label=\" 16 B\"") != NULL);
    CHECK(strstr(nnc_text_str(&t), "n2_2 -> n2_3 [style=dotted];") != NULL);
    CHECK(strstr(nnc_text_str(&t), "n2_3 -> n3 [label=\" 16 B\"") != NULL);
    CHECK(strstr(nnc_text_str(&t), "label=\"output y\"") != NULL);
    nnc_text_deinit(&t);
    nnc_graph_destroy(g);
}

TEST(ops_lookup)
{
    for (int i = 0; i < OP__COUNT; i++) {
        nnc_op op;
        CHECK(nnc_op_parse(nnc_ops[i].name, strlen(nnc_ops[i].name), &op) && op == (nnc_op)i);
        nnc_sop sop;
        bool ewise = nnc_ops[i].cls == CL_ewise;
        CHECK_INT(nnc_sop_of((nnc_op)i, &sop), ewise); /* each has its scalar op */
        if (ewise)
            CHECK_STR(nnc_sops[sop].name, nnc_ops[i].name);
        for (const char *p = nnc_ops[i].attrs; *p;) { /* each attribute named in a row exists */
            size_t len = strcspn(p, " "), word = p[len - 1] == '?' ? len - 1 : len;
            nnc_akey key;
            CHECK(nnc_attr_parse(p, word, &key));
            p += len + strspn(p + len, " ");
        }
    }
    nnc_op op;
    CHECK(
        !nnc_op_parse("ad", 2, &op) && !nnc_op_parse("addd", 4, &op) && !nnc_op_parse("", 0, &op));
    CHECK(nnc_op_parse("addd", 3, &op) && op == OP_add);
}
