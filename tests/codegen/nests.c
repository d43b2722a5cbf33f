/* tests/codegen/nests.c -- several ops in one kernel: what may be one and why not, random
 * nests, generated graphs. */
#include "help.h"

#include "../gen/gen.h"

static const ck_bound sums = {1e-5, 2e-5};

static void one_kernel(const char *body)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_sink_clear(test_sink);
    nnc_graph *g = ck_parse(body);
    const char *why = NULL;
    CHECK(g != NULL);
    if (!g)
        nnc_sink_print(test_sink, stderr);
    if (g && !ck_one_kernel(g, &a, &why))
        test_fail(__FILE__, __LINE__, "declined: %s\n%s", why ? why : "?", body);
    else if (g)
        ck_check(g, sums, 3, body, &a, NULL);
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

static void declined(const char *body, const char *reason)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_graph *g = ck_parse(body);
    const char *why = NULL;
    CHECK(g != NULL);
    if (g && ck_one_kernel(g, &a, &why))
        test_fail(__FILE__, __LINE__, "not declined:\n%s", body);
    else if (g && !strstr(why, reason))
        test_fail(__FILE__, __LINE__, "declined because '%s', not '%s'", why, reason);
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

TEST(nests_that_are_one_kernel)
{
    one_kernel("graph @softmax {\n%x = input : f32[20,70]\n%m = reduce_max %x {axes=[1]}\n%z = sub "
               "%x, %m\n"
               "%e = exp %z\n%s = reduce_sum %e {axes=[1]}\n%y = div %e, %s\nreturn %y }");
    one_kernel("graph @softmax_of_columns {\n%x = input : f32[70,20]\n%m = reduce_max %x "
               "{axes=[0]}\n%z = sub %x, %m\n"
               "%e = exp %z\n%s = reduce_sum %e {axes=[0]}\n%y = div %e, %s\nreturn %y }");
    one_kernel("graph @mean_variance {\n%x = input : f32[4,6,5,5]\n%m = reduce_mean %x "
               "{axes=[0,2,3], keepdims=0}\n"
               "%k = reshape %m {shape=[6,1,1]}\n%c = sub %x, %k\n%q = mul %c, %c\n"
               "%v = reduce_mean %q {axes=[0,2,3], keepdims=0}\nreturn %m, %v }");
    one_kernel("graph @two_sums {\n%x = input : f32[30,50]\n%q = mul %x, %x\n%a = reduce_sum %x "
               "{axes=[1]}\n"
               "%b = reduce_sum %q {axes=[1]}\n%m = reduce_max %x {axes=[1], keepdims=0}\n%d = mul "
               "%x, %b\n%y = add %d, %a\n"
               "return %y, %m, %a }");
    one_kernel("graph @residual_norm {\n%x = input : f32[3,9,32]\n%r = input : f32[3,9,32]\n%g = "
               "input : f32[32]\n"
               "%h = add %x, %r\n%m = reduce_mean %h {axes=[2]}\n%c = sub %h, %m\n%q = mul %c, %c\n"
               "%v = reduce_mean %q {axes=[2]}\n%e = constant : f32[] = [0.001]\n%w = add %v, "
               "%e\n%i = rsqrt %w\n"
               "%n = mul %c, %i\n%y = mul %n, %g\nreturn %h, %y }");
    one_kernel("graph @pool_relu {\n%x = input : f32[2,3,8,8]\n%b = input : f32[3,1,1]\n%h = add "
               "%x, %b\n%r = relu %h\n"
               "%p = maxpool %r {kernel=[2,2], strides=[2,2]}\n%y = sigmoid %p\nreturn %y }");
    one_kernel(
        "graph @pool_pads {\n%x = input : f32[2,3,7,7]{0,2,3,1}\n%h = neg %x\n"
        "%p = avgpool %h {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}\n%y = relu %p\nreturn %y }");
    one_kernel("graph @heads {\n%x = input : f32[2,6,12]\n%r = reshape %x {shape=[2,6,3,4]}\n"
               "%t = transpose %r {perm=[0,2,1,3]}\n%y = exp %t\nreturn %y }");
    one_kernel("graph @join {\n%a = input : f32[2,20,5]\n%b = input : f32[2,20,5]\n%c = relu %a\n"
               "%j = concat %c, %b {axis=2}\n%y = sin %j\nreturn %y }");
    one_kernel("graph @softmax_of_join {\n%a = input : f32[6,20]\n%b = input : f32[6,10]\n%j = "
               "concat %a, %b {axis=1}\n"
               "%y0 = reduce_max %j {axes=[1]}\n%y = sub %j, %y0\nreturn %y }");
    one_kernel("graph @padded {\n%a = input : f32[6,20]\n%e = exp %a\n%p = pad %e {pads=[1,0,2,3], "
               "value=-1}\n"
               "%f = flip %p {axes=[1]}\n%y = mul %f, %f\nreturn %y }");
    one_kernel("graph @row_only {\n%a = input : f32[40,7]\n%q = mul %a, %a\n%s = reduce_sum %q "
               "{axes=[0,1]}\n"
               "%y = sqrt %s\nreturn %y }");
    one_kernel("graph @half {\n%a = input : f16[40,30]\n%c = cast %a {to=f32}\n%m = reduce_mean %c "
               "{axes=[1]}\n"
               "%d = sub %c, %m\n%y = cast %d {to=bf16}\nreturn %y }");
    one_kernel("graph @lookup {\n%t = input : f32[50,8]\n%i = input : u8[9]\n%k = constant : u8[] "
               "= [50]\n%j = mod %i, %k\n"
               "%g = gather %t, %j\n%y = tanh %g\nreturn %y }");
}

TEST(nests_that_are_not)
{
    declined("graph @a {\n%x = input : f32[8,9,10]\n%s = reduce_sum %x {axes=[2]}\n%m = reduce_max "
             "%s {axes=[1]}\n"
             "return %m }",
        "reduced again over");
    declined("graph @b {\n%x = input : f32[8,9,10]\n%s = reduce_sum %x {axes=[2]}\n%m = reduce_max "
             "%x {axes=[1]}\n"
             "%a = add %x, %s\n%y = add %a, %m\nreturn %y }",
        "keeps other dimensions");
    declined("graph @c {\n%x = input : f32[8,9]\n%w = input : f32[9,4]\n%r = relu %x\n%y = matmul "
             "%r, %w\nreturn %y }",
        "contraction");
    declined("graph @d {\n%x = input : f32[64,8]\n%v = input : f32[8]\n%e = exp %v\n%w = input : "
             "f32[4096,64,8]\n"
             "%y = add %w, %e\nreturn %y }",
        "several times");
    declined("graph @e {\n%x = input : f32[6,5]\n%t = input : i64[6]\n%h = relu %x\n%g = gather "
             "%h, %t\nreturn %g }",
        "looks up a table");
    declined("graph @f {\n%x = input : f32[6,5]\n%z = input : f32[7,4]\n%h = relu %x\n%y = relu "
             "%z\nreturn %h, %y }",
        "another shape");
}

/* The exponentials are computed once for each element: kept between the stages of a row. */
TEST(softmax_keeps_its_exponentials)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_graph *g =
        ck_parse("graph @t {\n%x = input : f32[64,1000]\n%y = softmax %x {axis=1}\nreturn %y }");
    nnc_kernel *k = NULL;
    CHECK(g && ck_check(g, sums, 2, "softmax", &a, &k));
    if (k) {
        CHECK_INT(ck_count(k, KO_sop, SC_exp), 1);
        CHECK_INT(k->scratch_bytes, 4 * 4032); /* of four rows at once */
        CHECK_INT(k->n_stage, 3);
        CHECK_INT(k->axis[nnc_sched_vec(&k->sched)].kind != KA_outer, 1);
        CHECK_INT(k->sched.domain, 64 / nnc_sched_n(&k->sched, KD_tile, 0));
        CHECK(strncmp(k->name, "k_softmax_", 10) == 0);
    }
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

/* One kernel with so many exponentials for an element: 2 where none is kept for a later stage. */
static void exponentials(const char *body, int n)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_graph *g = ck_parse(body);
    nnc_kernel *k = NULL;
    CHECK(g && ck_check(g, sums, 2, body, &a, &k));
    if (k) {
        CHECK_INT(ck_count(k, KO_sop, SC_exp), n);
        CHECK_INT(k->scratch_bytes == 0, n == 2);
    }
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

/* A row longer than the nearest caches is computed twice instead; and what was summed at another place is not what is wanted here. */
TEST(exponentials_that_are_not_kept)
{
    exponentials("graph @long_rows {\n%x = input : f32[2,70000]\n%y = softmax %x {axis=1}\n"
                 "return %y }",
        2);
    exponentials("graph @columns {\n%x = input : f32[64,100]\n%y = softmax %x {axis=0}\n"
                 "return %y }",
        2);
    /* the buffer would have an element for each of %z instead of %v */
    exponentials("graph @fewer {\n%x = input : f32[6,4,5]\n%v = input : f32[5]\n%e = exp %v\n"
                 "%z = mul %x, %e\n%s = reduce_sum %z {axes=[1,2]}\n%y = div %z, %s\nreturn %y }",
        2);
    /* only a part is summed: the other elements are computed later */
    exponentials("graph @first_part {\n%x = input : f32[6,10]\n%z = input : f32[6,4]\n"
                 "%e = exp %x\n%a = slice %e {axes=[1], starts=[0], ends=[6]}\n"
                 "%j = concat %a, %z {axis=1}\n%s = reduce_sum %j {axes=[1]}\n%y = div %e, %s\n"
                 "return %y }",
        2);
    one_kernel(
        "graph @shifted {\n%x = input : f32[6,10]\n%e = exp %x\n%a = slice %e {axes=[1], "
        "starts=[1], ends=[10]}\n%b = slice %e {axes=[1], starts=[0], ends=[9]}\n%s = reduce_sum "
        "%b {axes=[1]}\n%y = div %a, %s\nreturn %y }");
    one_kernel(
        "graph @first_row {\n%x = input : f32[6,10]\n%e = exp %x\n%a = slice %e {axes=[0], "
        "starts=[0], ends=[1]}\n%s = reduce_sum %e {axes=[1]}\n%y = div %a, %s\nreturn %y }");
}

/* A later sum is over a part of them. */
TEST(exponentials_kept_for_a_part)
{
    exponentials("graph @g {\n%x = input : f32[6,10]\n%z = input : f32[6,4]\n%e = exp %x\n"
                 "%s = reduce_sum %e {axes=[1]}\n%q = div %e, %s\n"
                 "%a = slice %q {axes=[1], starts=[0], ends=[6]}\n%j = concat %a, %z {axis=1}\n"
                 "%t = reduce_sum %j {axes=[1]}\n%y = mul %x, %t\nreturn %y }",
        1);
}

/* g with its params as inputs; NULL where it holds other data (indices), which a kernel takes
 * as operands. */
static nnc_graph *opened(const nnc_graph *g)
{
    nnc_graph *o = nnc_graph_create("opened", test_sink);
    nnc_ref map[256], in[16];
    for (uint32_t i = 0; o && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        double f;
        bool data = n->op == OP_constant && !nnc_const_scalar(g, n->out, &f);
        if (data || n->n_in > 16 || n->out + n->n_out > 256) {
            nnc_graph_destroy(o);
            return NULL;
        }
        for (int j = 0; j < n->n_in; j++)
            in[j] = map[n->in[j]];
        nnc_ref r = n->op == OP_param ? nnc_input(o, NULL, nnc_typeof(g, n->out))
                                      : nnc_copy_node(o, g, n, in);
        for (int j = 0; j < n->n_out; j++)
            map[n->out + (nnc_ref)j] = r + (nnc_ref)j;
    }
    for (uint32_t i = 0; o && i < g->n_output; i++)
        nnc_output(o, map[g->output[i]], NULL);
    return o;
}

/* Random graphs: those that nnc_kernel_possible takes must lower and agree; most of one op do. */
TEST(generated)
{
    int taken = 0;
    for (uint64_t i = 0; i < (uint64_t)test_draws(400); i++) {
        gen_options o = {.seed = test_seed * 1000 + i,
            .nodes = 1 + (int)(i % 9),
            .max_elements = 600,
            .classes =
                1 << CL_ewise | 1 << CL_ecomp | 1 << CL_reduce | 1 << CL_move | 1 << CL_window};
        nnc_arena a;
        const char *why = NULL;
        char what[64];
        nnc_arena_init(&a, 0);
        nnc_sink_clear(test_sink);
        nnc_graph *drawn = gen_graph(&o, test_sink), *g = drawn ? opened(drawn) : NULL;
        nnc_graph_destroy(drawn);
        snprintf(what, sizeof what, "generated graph, seed %llu", (unsigned long long)o.seed);
        if (g && ck_one_kernel(g, &a, &why)) {
            taken++;
            if (!ck_check(g, (ck_bound){1e-4, 1e-3}, 2, what, &a, NULL)) {
                nnc_text t = {0};
                nnc_graph_print(&t, g);
                fprintf(stderr, "%s\n", nnc_text_str(&t));
                nnc_text_deinit(&t);
            }
        }
        nnc_graph_destroy(g);
        nnc_arena_deinit(&a);
    }
    CHECK_USUAL(taken > test_draws(60));
}

TEST(out_of_memory)
{
    nnc_graph *g =
        ck_parse("graph @t {\n%x = input : f32[6,30]\n%y = softmax %x {axis=1}\nreturn %y }");
    bool done = false;
    for (int64_t n = 1; g && !done && n < 3000; n++) {
        nnc_arena a;
        nnc_arena_init(&a, 0);
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        nnc_kernel *k = nnc_lower(g, &g->node[1], &ck_target, MATH_ulp2, &a, test_sink);
        nnc_fail_alloc_after(0);
        done = k != NULL && nnc_sink_errors(test_sink) == 0 && n > 20;
        if (k)
            CHECK_OK(nnc_schedule_verify(k, test_sink));
        nnc_arena_deinit(&a);
    }
    CHECK(done);
    nnc_graph_destroy(g);
}
