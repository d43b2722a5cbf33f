/* tests/codegen/single.c -- every node that is not a library call becomes a kernel, whatever its shape,
 * type and memory order. Hard cases are by hand; each node of generated graphs is tested alone. */
#include "help.h"

#include "../gen/gen.h"

static const ck_bound tight = {0, 0};

TEST(uneven_splits)
{
    static const char *const types[] = {"f32", "f16", "bool", "i8", "f64"};
    for (size_t t = 0; t < NNC_COUNT(types); t++) {
        char text[400];
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : %s[6]\n%%a, %%b = split %%x {axis=0, sizes=[1,5]}\n"
            "return %%a, %%b }",
            types[t]);
        CHECK(ck_text(text, tight));
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : %s[100]\n%%a, %%b, %%c = split %%x {axis=0, "
            "sizes=[40,19,41]}\nreturn %%a, %%b, %%c }",
            types[t]);
        CHECK(ck_text(text, tight));
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : %s[3,10,2]{2,0,1}\n%%a, %%b = split %%x {axis=1, "
            "sizes=[7,3]}\nreturn %%a, %%b }",
            types[t]);
        CHECK(ck_text(text, tight));
    }
}

/* Twenty sizes, none equal: more loops than a kernel has, so all pieces run in one. */
TEST(split_into_many_sizes)
{
    nnc_text t = {0};
    nnc_printf(&t, "graph @t {\n%%x = input : f32[3,210]\n");
    for (int i = 0; i < 20; i++)
        nnc_printf(&t, "%s%%r%d", i ? ", " : "", i);
    nnc_printf(&t, " = split %%x {axis=1, sizes=[");
    for (int i = 0; i < 20; i++)
        nnc_printf(&t, "%s%d", i ? "," : "", i + 1);
    nnc_printf(&t, "]}\nreturn ");
    for (int i = 0; i < 20; i++)
        nnc_printf(&t, "%s%%r%d", i ? ", " : "", i);
    nnc_printf(&t, " }");
    CHECK(ck_text(nnc_text_str(&t), tight));
    nnc_text_deinit(&t);
}

TEST(concat_of_many)
{
    nnc_text t = {0};
    nnc_printf(&t, "graph @t {\n");
    for (int i = 0; i < 100; i++)
        nnc_printf(&t, "%%x%d = input : f32[%d]\n", i, 1 + i % 7);
    nnc_printf(&t, "%%y = concat ");
    for (int i = 0; i < 100; i++)
        nnc_printf(&t, "%s%%x%d", i ? ", " : "", i);
    nnc_printf(&t, " {axis=0}\nreturn %%y }");
    CHECK(ck_text(nnc_text_str(&t), tight));
    nnc_text_deinit(&t);
}

/* No loop follows these: neither side's dimensions divide the other's. */
TEST(reshapes_between_orders)
{
    static const char *const cases[] = {"[4,6]{1,0} -> [3,8]", "[10,14]{1,0} -> [4,35]",
        "[3,5,7]{2,0,1} -> [7,15]", "[2,3,5,7]{0,2,3,1} -> [6,35]", "[6,35]{1,0} -> [7,5,3,2]",
        "[9,10]{1,0} -> [90]", "[2,3,2,3,2,3]{5,3,1,0,2,4} -> [8,27]", "[4,9]{1,0} -> [2,3,2,1,3]"};
    for (size_t c = 0; c < NNC_COUNT(cases); c++) {
        const char *to = strstr(cases[c], " -> ");
        char text[300];
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32%.*s\n%%y = reshape %%x {shape=%s}\nreturn %%y }",
            (int)(to - cases[c]), cases[c], to + 4);
        CHECK(ck_text(text, tight));
    }
}

/* 3^4 pieces, more than one kernel has stages for; and padding that folds several times. */
TEST(edges_in_every_dimension)
{
    static const char *const modes[] = {"reflect", "edge", "constant"};
    for (size_t m = 0; m < NNC_COUNT(modes); m++) {
        char text[300];
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[3,4,3,5]{0,2,3,1}\n%%y = pad %%x "
            "{pads=[1,2,1,1,2,1,2,3], mode=%s}\nreturn %%y }",
            modes[m]);
        CHECK(ck_text(text, tight));
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : i32[2,2,1,3,2]\n%%y = pad %%x "
            "{pads=[1,1,1,1,1,1,0,1,1,1], mode=%s}\nreturn %%y }",
            strcmp(modes[m], "reflect") ? modes[m] : "edge");
        CHECK(ck_text(text, tight));
    }
}

/* A piece of a split that holds padding alone, and guards that exclude each other. */
TEST(padding_alone)
{
    CHECK(ck_text("graph @t {\n%x = input : f32[5,4]\n%p = pad %x {pads=[3,0,0,0], value=2}\n%a, "
                  "%b = split %p {axis=0, sizes=[4,4]}\nreturn %a, %b }",
        tight));
    CHECK(ck_text("graph @t {\n%x = input : f32[5,4]\n%p = pad %x {pads=[4,0,0,0], value=2}\n%a, "
                  "%b, %c = split %p {axis=0, sizes=[3,3,3]}\nreturn %a, %b, %c }",
        tight));
    CHECK(ck_text("graph @t {\n%x = input : f32[4]\n%z = input : f32[40,3]\n%p = pad %x "
                  "{pads=[3,33], value=2}\n%r = reshape %p {shape=[40,1]}\n%q = pad %r "
                  "{pads=[0,0,0,2]}\n%y = add %q, %z\nreturn %y }",
        tight));
}

/* Node n alone, its operands as inputs (numbers stay numbers). NULL: no kernel is asked for. */
static nnc_graph *alone(const nnc_graph *g, const nnc_node *n)
{
    nnc_class cls = nnc_op_class((nnc_op)n->op);
    if (cls == CL_leaf || n->op == OP_gather || n->n_in > 16)
        return NULL;
    nnc_graph *o = nnc_graph_create("alone", test_sink);
    nnc_ref in[16];
    for (int i = 0; o && i < n->n_in; i++) {
        const nnc_node *def = nnc_def(g, n->in[i]);
        double f;
        int j = 0;
        while (j < i && n->in[j] != n->in[i])
            j++;
        in[i] = j < i ? in[j]
                : def->op == OP_constant && nnc_const_scalar(g, n->in[i], &f)
                    ? nnc_copy_node(o, g, def, NULL)
                    : nnc_input(o, NULL, nnc_typeof(g, n->in[i]));
    }
    nnc_ref r = o ? nnc_copy_node(o, g, n, in) : NNC_NONE;
    for (int i = 0; r != NNC_NONE && i < n->n_out; i++)
        nnc_output(o, r + (nnc_ref)i, NULL);
    return o;
}

TEST(each_node_of_generated_graphs)
{
    int count = 0;
    for (uint64_t i = 0; i < (uint64_t)test_draws(150); i++) {
        gen_options o = {.seed = test_seed * 977 + i,
            .nodes = 24,
            .max_elements = 400,
            .classes = i % 5 == 0 ? ~0u : 0,
            .dtypes = i % 2 ? 0
                            : 1u << DT_f32 | 1u << DT_f16 | 1u << DT_bf16 | 1u << DT_f64 |
                                  1u << DT_i32 | 1u << DT_u8,
            .wild = i % 3 != 0};
        nnc_graph *g = gen_graph(&o, test_sink);
        for (uint32_t j = 0; g && j < g->n_node; j++) {
            nnc_arena a;
            char what[96];
            nnc_arena_init(&a, 0);
            nnc_sink_clear(test_sink);
            nnc_graph *one = alone(g, &g->node[j]);
            snprintf(what, sizeof what, "%s, node %u of the graph of seed %llu",
                nnc_ops[g->node[j].op].name, j, (unsigned long long)o.seed);
            if (one) {
                count++;
                ck_check(one, (ck_bound){1e-4, 1e-4}, 2, what, &a, NULL);
            }
            nnc_graph_destroy(one);
            nnc_arena_deinit(&a);
        }
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(count > test_draws(1000));
}

static void check_drawn(nnc_graph *draw(uint64_t, nnc_sink *), uint64_t seed)
{
    nnc_arena a;
    char what[64];
    nnc_arena_init(&a, 0);
    nnc_sink_clear(test_sink);
    nnc_graph *g = draw(seed, test_sink);
    snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
    CHECK(g && ck_check(g, (ck_bound){1e-6, 1e-5}, 3, what, &a, NULL));
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

/* Ops that run in order along an axis, of which the interpreter runs a kernel each. */
TEST(in_order)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(600); i++)
        check_drawn(gen_loop, test_seed * 1009 + i);
}

TEST(largest_of_windows)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(300); i++)
        check_drawn(gen_largest, test_seed * 1019 + i);
}

TEST(recurrent)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(200); i++)
        check_drawn(gen_recurrent, test_seed * 1013 + i);
}

TEST(backward)
{
    check_drawn(gen_backward, 5667787881); /* f16 states that grow, rounded at each step */
    for (uint64_t i = 0; i < (uint64_t)test_draws(200); i++)
        check_drawn(gen_backward, test_seed * 1021 + i);
}

/* One tensor may be both states of an lstm; the operands after it have the buffers that follow. */
TEST(one_state_for_both)
{
    static const char text[] =
        "graph @t {\n%x = input : f32[3,2,16]\n%r = input : f32[4,16]\n%h = input : f32[2,4]\n"
        "%n = input : i32[2]\n%y, %c = lstm %x, %r, %h, %h, %n\nreturn %y, %c }";
    nnc_arena a;
    nnc_scan s;
    nnc_arena_init(&a, 0);
    nnc_scan_init(&s, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    const nnc_kernel *k = g ? ck_lower(g, &a) : NULL;
    CHECK(k && k->n_buf == 6);
    CHECK_OK(k ? nnc_schedule_verify(k, test_sink) : NNC_E_BUG);
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}
