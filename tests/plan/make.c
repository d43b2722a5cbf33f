/* tests/plan/make.c -- plans of chosen graphs: calls and their post-operations, init, aliases,
 * memory, streams, devices. */
#include "help.h"

TEST(make_conv_relu_ewise)
{
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[1,8,16,16]\n"
                                 "%w = param : f32[8,8,3,3] = gen(\"w\", seed=1, scale=0.1)\n"
                                 "%c = conv %x, %w {pads=[1,1,1,1]} loc \"/c\"\n"
                                 "%r = relu %c loc \"/r\"\n"
                                 "%a = add %r, %x loc \"/a\"\n"
                                 "%s = sigmoid %a loc \"/s\"\n"
                                 "return %s as \"y\" }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    /* init: weight; main: conv, relu, add, sigmoid */
    CHECK_INT(nnc_plan_first(p, SEC_main), 1);
    CHECK_INT(p->n_cmd, 5);
    const nnc_cmd *c = help_cmd(p, "/c");
    CHECK_INT(c->kind, CMD_call);
    CHECK_STR(p->engine[c->engine], "fake");
    CHECK_STR(c->reason, "fake:jit");
    CHECK_STR(c->op_class, "conv3x3");
    CHECK_INT(p->tensor[c->work].bytes, 1000);
    CHECK_INT(c->flops, 2 * 8 * 8 * 9 * 256);
    const nnc_plan_device *d = &p->device[0];
    CHECK_INT(d->init_bytes, 0);
    CHECK_INT(d->persist_bytes, 8 * 8 * 9 * 4);
    /* relu and sigmoid in place, add over the relu: x, conv's result and the workspace */
    CHECK_INT(d->arena_bytes, 8192 + 8192 + 1024);
    CHECK_INT(d->lower_bound, d->arena_bytes);
    CHECK_INT(d->peak_cmd, 1);
    CHECK_INT(d->workspace_bytes, 1000);
    CHECK_INT(p->n_input, 1);
    CHECK_STR(p->output_name[0], "y");
    nnc_plan_destroy(p);
}

/* Sum over main's commands of nodes = the graph's cost, whatever the streams. */
static void check_cost(const nnc_graph *g, const nnc_plan *p)
{
    int64_t flops = 0, bytes = 0, launches = 0;
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_call && c->kind != CMD_kernel)
            continue;
        flops += c->flops;
        bytes += c->bytes;
        launches++;
    }
    nnc_cost want = nnc_graph_cost(g);
    CHECK_INT(flops, want.flops);
    CHECK_INT(bytes, want.bytes);
    CHECK_INT(launches, want.launches);
}

TEST(make_static_values)
{
    nnc_graph *g = help_graph("graph @t {\n"
                              "%x = input : f32[4,8]\n"
                              "%w = param : f32[8,8] = gen(\"w\", seed=1, scale=0.1)\n"
                              "%s = param : f32[8,1] = gen(\"s\", seed=1, scale=0.1)\n"
                              "%b = param : f32[8] = gen(\"b\", seed=1, scale=0.1)\n"
                              "%unused = param : f32[999] = gen(\"u\", seed=1, scale=0.1)\n"
                              "%w2 = mul %w, %s loc \"/fold\"\n"
                              "%b2 = neg %b loc \"/negate\"\n"
                              "%y = linear %x, %w2, %b2 loc \"/fc\"\n"
                              "return %y as \"y\", %b2 as \"b\" }");
    nnc_plan *p = g ? help_plan(g, 1, 1) : NULL;
    CHECK(p != NULL);
    if (p) {
        help_check(p);
        check_cost(g, p);
        /* w, s, mul, b, neg: each before its first need; the unused weight is not loaded */
        CHECK_INT(nnc_plan_first(p, SEC_main), 5);
        CHECK_INT(p->n_weight, 3);
        CHECK_STR(p->cmd[2].layers, "/fold");
        CHECK(strstr(p->kernel[p->cmd[2].item].ir, " quick ") != NULL);
        CHECK_STR(p->cmd[4].layers, "/negate");
        const nnc_cmd *c = help_cmd(p, "/fc");
        const nnc_call *k = &p->call[c->item];
        CHECK(k->kind == CALL_matmul && k->trans_b && !k->trans_a && k->has_bias);
        CHECK_INT(p->tensor[c->arg[2]].space, SP_persist);
        CHECK_INT(p->tensor[p->output[1]].space, SP_persist);
        CHECK_INT(p->tensor[p->cmd[2].arg[0]].space, SP_init);
        /* w and s; b comes when they are gone */
        CHECK_INT(p->device[0].init_bytes, 256 + 64);
        nnc_plan_destroy(p);
    }
    nnc_graph_destroy(g);
}

TEST(make_views_and_outputs)
{
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[2,6]\n"
                                 "%v = reshape %x {shape=[3,4]}\n"
                                 "%u = reshape %v {shape=[12]}\n"
                                 "%e = exp %u loc \"/e\"\n"
                                 "%f = reshape %e {shape=[2,6]}\n"
                                 "%n = neg %f loc \"/n\"\n"
                                 "return %v as \"v\", %f as \"f\", %n as \"n\", %x as \"x\" }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    CHECK_INT(p->n_cmd, 2);
    /* neither the input nor an output may be overwritten */
    CHECK_INT(p->device[0].arena_bytes, 3 * 64);
    CHECK_INT(p->tensor[p->output[0]].alias_of, p->input[0]);
    CHECK_INT(p->output[3], p->input[0]);
    nnc_plan_destroy(p);
}

TEST(make_in_place_declines)
{
    /* broadcast operand, transposed access, an operand read again later, two views of one buffer */
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[16,16]\n"
                                 "%a = exp %x loc \"/a\"\n"
                                 "%t = transpose %a {perm=[1,0]} loc \"/t\"\n"
                                 "%b = exp %t loc \"/b\"\n"
                                 "%c = add %b, %t loc \"/c\"\n"
                                 "%v = reshape %c {shape=[16,16]}\n"
                                 "return %v as \"y\" }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    const nnc_cmd *t = help_cmd(p, "/t"), *b = help_cmd(p, "/b"), *c = help_cmd(p, "/c");
    CHECK_INT(p->tensor[t->arg[1]].alias_of, -1);
    CHECK_INT(p->tensor[b->arg[1]].alias_of, -1); /* t is read again */
    CHECK(p->tensor[c->arg[2]].alias_of == c->arg[0] || p->tensor[c->arg[2]].alias_of == c->arg[1]);
    nnc_plan_destroy(p);
}

/* A kernel of n results of a byte an element, and of a last one that is its operand's size. */
static void last_in_place(int n)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_puts(&t, "graph @t {\n%x = input : f32[256]\n%a = exp %x loc \"/a\"\n");
    for (int i = 0; i < n; i++)
        nnc_printf(&t, "%%b%d, ", i);
    nnc_puts(&t, "%e = fused %a {\n%0 = input : f32[256]\n%z = constant : f32[] = [0]\n"
                 "%c = gt %0, %z\n%s = sin %0\nreturn ");
    for (int i = 0; i < n; i++)
        nnc_puts(&t, "%c, ");
    nnc_puts(&t, "%s\n} loc \"/f\"\nreturn ");
    for (int i = 0; i < n; i++)
        nnc_printf(&t, "%%b%d, ", i);
    nnc_puts(&t, "%e }");
    nnc_plan *p = help_plan_text(nnc_text_str(&t), 1, 1);
    if (!p)
        return;
    help_check(p);
    const nnc_cmd *c = help_cmd(p, "/f");
    CHECK_INT(c->n_arg, n + 2);
    CHECK_INT(p->tensor[c->arg[n + 1]].alias_of, c->arg[0]);
    nnc_plan_destroy(p);
}

TEST(make_many_results_in_place)
{
    last_in_place(63);
    last_in_place(64);
    last_in_place(500);
}

/* ---- epilogues ----------------------------------------------------------------------------- */

static const char residual[] = "graph @t {\n"
                               "%x = input : f32[1,8,16,16]\n"
                               "%w = param : f32[8,8,1,1] = gen(\"w\", seed=1, scale=0.1)\n"
                               "%b = param : f32[8] = gen(\"b\", seed=1, scale=0.1)\n"
                               "%h = exp %x loc \"/h\"\n"
                               "%g = neg %h loc \"/g\"\n"
                               "%f = fused %g, %w, %b, %h {\n"
                               "  %1 = input : f32[1,8,16,16]\n"
                               "  %2 = input : f32[8,8,1,1]\n"
                               "  %3 = input : f32[8]\n"
                               "  %4 = input : f32[1,8,16,16]\n"
                               "  %c = conv %1, %2\n"
                               "  %r = reshape %3 {shape=[8,1,1]}\n"
                               "  %5 = add %c, %r\n"
                               "  %6 = add %4, %5\n"
                               "  %7 = clip %6 {lo=-1, hi=2.5}\n"
                               "  return %7\n"
                               "} loc \"/conv+/add\"\n"
                               "return %f as \"y\" }";

TEST(make_residual_in_place)
{
    fake_in_place = true;
    nnc_plan *p = help_plan_text(residual, 1, 1);
    fake_in_place = false;
    if (!p)
        return;
    help_check(p);
    const nnc_cmd *c = help_cmd(p, "/conv+/add");
    const nnc_call *k = &p->call[c->item];
    CHECK(k->has_bias && k->n_post == 2);
    CHECK_INT(k->post[0].kind, PO_sum);
    CHECK(k->post[0].in_place);
    CHECK_INT(k->post[1].kind, PO_clip);
    CHECK_INT(c->n_arg, 4); /* src, weights, bias, dst */
    CHECK_INT(p->tensor[c->arg[3]].alias_of, help_cmd(p, "/h")->arg[1]);
    CHECK_STR(c->op_class, "conv1x1");
    nnc_plan_destroy(p);
}

TEST(make_residual_of_an_input)
{
    /* the summed tensor is the graph's input, which must survive: an argument */
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[4,8]\n"
                                 "%w = param : f32[8,8] = gen(\"w\", seed=1, scale=0.1)\n"
                                 "%h = exp %x loc \"/h\"\n"
                                 "%f = fused %h, %w, %x {\n"
                                 "  %1 = input : f32[4,8]\n"
                                 "  %2 = input : f32[8,8]\n"
                                 "  %3 = input : f32[4,8]\n"
                                 "  %m = matmul %1, %2\n"
                                 "  %5 = add %m, %3\n"
                                 "  %6 = gelu %5\n"
                                 "  %z = constant : f32[] = [0]\n"
                                 "  %7 = max %6, %z\n"
                                 "  return %7\n"
                                 "} loc \"/f\"\n"
                                 "return %f as \"y\" }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    const nnc_cmd *c = help_cmd(p, "/f");
    const nnc_call *k = &p->call[c->item];
    CHECK_INT(k->n_post, 3);
    CHECK(k->post[0].kind == PO_sum && !k->post[0].in_place);
    CHECK_INT(k->post[1].kind, PO_gelu_erf);
    CHECK_INT(k->post[2].kind, PO_relu);
    CHECK_INT(c->n_arg, 4);
    CHECK_INT(c->arg[2], p->input[0]);
    nnc_plan_destroy(p);
}

TEST(make_sum_of_what_else_is_read)
{
    /* what is added is the source, or is added twice, or is a view of the source: an argument */
    static const char *const body[] = {"%x, %w {\n"
                                       "  %1 = input : f32[8,8]\n"
                                       "  %2 = input : f32[8,8]\n"
                                       "  %m = matmul %1, %2\n"
                                       "  %3 = add %m, %1\n",
        "%y, %w, %x {\n"
        "  %1 = input : f32[8,8]\n"
        "  %2 = input : f32[8,8]\n"
        "  %4 = input : f32[8,8]\n"
        "  %m = matmul %1, %2\n"
        "  %5 = add %m, %4\n"
        "  %3 = add %5, %4\n",
        "%x, %w, %v {\n"
        "  %1 = input : f32[8,8]\n"
        "  %2 = input : f32[8,8]\n"
        "  %4 = input : f32[8,8]\n"
        "  %m = matmul %1, %2\n"
        "  %3 = add %m, %4\n"};
    for (size_t i = 0; i < NNC_COUNT(body); i++) {
        char text[1024];
        snprintf(text, sizeof text,
            "graph @t {\n"
            "%%i = input : f32[8,8]\n"
            "%%w = param : f32[8,8] = gen(\"w\", seed=1, scale=0.1)\n"
            "%%y = neg %%i\n"
            "%%x = exp %%i loc \"/x\"\n"
            "%%u = reshape %%x {shape=[64]}\n"
            "%%v = reshape %%u {shape=[8,8]}\n"
            "%%f = fused %s  return %%3\n} loc \"/f\"\n"
            "return %%f as \"y\" }",
            body[i]);
        nnc_plan *p = help_plan_text(text, 1, 1);
        if (!p)
            continue;
        help_check(p);
        const nnc_cmd *c = help_cmd(p, "/f");
        const nnc_call *k = &p->call[c->item];
        CHECK(k->n_post > 0 && k->post[0].kind == PO_sum && !k->post[0].in_place);
        CHECK_INT(p->tensor[c->arg[c->n_arg - 1]].alias_of, -1);
        nnc_plan_destroy(p);
    }
}

/* ---- calls of single nodes ----------------------------------------------------------------- */

TEST(make_matmul_forms)
{
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%a = input : f32[5,2,3,7]\n"
                                 "%w = param : f32[9,7] = gen(\"w\", seed=1, scale=0.1)\n"
                                 "%b = input : f32[2,7,4]\n"
                                 "%y = linear %a, %w loc \"/linear\"\n"
                                 "%m = matmul %a, %b loc \"/batched\"\n"
                                 "%q = matmul %b, %w {transpose_a=1, transpose_b=1} loc \"/both\"\n"
                                 "%v = input : f32[7]\n"
                                 "%r = linear %v, %w loc \"/row\"\n"
                                 "return %y, %m, %q, %r }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    const nnc_call *k = &p->call[help_cmd(p, "/linear")->item];
    CHECK(k->src.rank == 2 && k->src.dim[0] == 30 && k->src.dim[1] == 7 && k->trans_b);
    CHECK(k->dst.rank == 2 && k->dst.dim[0] == 30 && k->dst.dim[1] == 9);
    k = &p->call[help_cmd(p, "/batched")->item];
    CHECK(k->src.rank == 4 && k->wei.rank == 3 && k->dst.rank == 4);
    k = &p->call[help_cmd(p, "/both")->item];
    CHECK(k->trans_a && k->trans_b && k->src.rank == 3);
    CHECK_STR(help_cmd(p, "/both")->op_class, "matmul");
    k = &p->call[help_cmd(p, "/row")->item];
    CHECK(k->src.rank == 2 && k->src.dim[0] == 1 && k->src.dim[1] == 7);
    CHECK(k->dst.rank == 2 && k->dst.dim[0] == 1 && k->dst.dim[1] == 9);
    nnc_plan_destroy(p);
}

/* A number is part of a kernel, through a broadcast, too: kernels with other numbers are other kernels. */
TEST(make_kernels_with_numbers)
{
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[3]\n"
                                 "%one = constant : f32[] = [1]\n"
                                 "%two = constant : f32[] = [2]\n"
                                 "%p = broadcast %one {shape=[3]}\n"
                                 "%q = broadcast %two {shape=[3]}\n"
                                 "%r = broadcast %two {shape=[3]}\n"
                                 "%a = add %x, %p loc \"/a\"\n"
                                 "%b = add %x, %q loc \"/b\"\n"
                                 "%c = add %x, %r loc \"/c\"\n"
                                 "return %a, %b, %c }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    CHECK(help_cmd(p, "/a")->item != help_cmd(p, "/b")->item);
    CHECK_INT(help_cmd(p, "/c")->item, help_cmd(p, "/b")->item);
    nnc_plan_destroy(p);
}

TEST(make_window_forms)
{
    nnc_plan *p = help_plan_text(
        "graph @t {\n"
        "%x = input : f32[2,4,9,9]\n"
        "%w = param : f32[4,3,2,2] = gen(\"w\", seed=1, scale=0.1)\n"
        "%d = param : f32[4,1,3] = gen(\"d\", seed=1, scale=0.1)\n"
        "%z = input : f32[2,4,50]\n"
        "%t = conv_transpose %x, %w {strides=[3,3], pads=[1,0,0,1], output_padding=[1,2], "
        "groups=2} loc \"/t\"\n"
        "%c = conv %z, %d {strides=[2], dilations=[3], pads=[4,5], groups=4} loc \"/c\"\n"
        "%m = maxpool %x {kernel=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1} loc \"/m\"\n"
        "%v = avgpool %x {kernel=[3,2], count_include_pad=1, pads=[1,0,1,1]} loc \"/v\"\n"
        "return %t, %c, %m, %v }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    const nnc_call *k = &p->call[help_cmd(p, "/t")->item];
    CHECK_INT(k->kind, CALL_conv_transpose);
    CHECK(k->groups == 2 && k->stride[0] == 3 && k->pad_lo[0] == 1 && k->pad_lo[1] == 0 &&
          k->pad_hi[0] == 0 && k->pad_hi[1] == 1 && k->kernel[0] == 2);
    k = &p->call[help_cmd(p, "/c")->item];
    CHECK(k->spatial == 1 && k->dilation[0] == 3 && k->pad_lo[0] == 4 && k->pad_hi[0] == 5 &&
          k->groups == 4);
    nnc_plan_destroy(p);
}

/* A random window of a random layer; NULL where inference refuses it. */
static nnc_graph *random_window(uint64_t key, uint64_t *at)
{
    enum {
        KIND,
        IN,
        GROUPS = IN + 2,
        KERNEL,
        STRIDE = KERNEL + 2,
        PAD = STRIDE + 2,
        DILATION = PAD + 4,
        EXTRA = DILATION + 2,
        CEIL = EXTRA + 2,
        N
    };
    static const int limit[N] = {4, 9, 9, 3, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 2};
    int v[N];
    for (int i = 0; i < N; i++)
        v[i] = (int)(nnc_rng_u32(key, ++*at) % (uint32_t)limit[i]);
    int groups = v[GROUPS] ? 1 : 2, k0 = v[KERNEL] + 1, k1 = v[KERNEL + 1] + 1;
    nnc_text t = {0};
    nnc_printf(&t, "graph @t {\n%%x = input : f32[2,4,%d,%d]\n", 1 + v[IN], 1 + v[IN + 1]);
    if (v[KIND] < 2)
        nnc_printf(&t,
            "%%w = param : f32[%d,%d,%d,%d] = gen(\"w\", seed=1, scale=0.1)\n"
            "%%y = %s %%x, %%w {groups=%d",
            v[KIND] ? 4 : 6, v[KIND] ? 3 : 4 / groups, k0, k1, v[KIND] ? "conv_transpose" : "conv",
            groups);
    else
        nnc_printf(&t, "%%y = %s %%x {kernel=[%d,%d], ceil_mode=%d",
            v[KIND] == 2 ? "maxpool" : "avgpool", k0, k1, v[CEIL]);
    nnc_printf(&t, ", strides=[%d,%d], pads=[%d,%d,%d,%d]", 1 + v[STRIDE], 1 + v[STRIDE + 1],
        v[PAD], v[PAD + 1], v[PAD + 2], v[PAD + 3]);
    if (v[KIND] < 3)
        nnc_printf(&t, ", dilations=[%d,%d]", 1 + v[DILATION], 1 + v[DILATION + 1]);
    if (v[KIND] == 1)
        nnc_printf(&t, ", output_padding=[%d,%d]", v[EXTRA], v[EXTRA + 1]);
    nnc_puts(&t, "} loc \"/y\"\nreturn %y }");
    nnc_scan s;
    nnc_scan_init(&s, "graph", nnc_text_str(&t), t.n);
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    nnc_text_deinit(&t);
    return g;
}

/* What is compiled can be loaded: windows that begin or end anywhere in the padding. */
TEST(make_random_windows)
{
    uint64_t key = nnc_rng_key("windows", test_seed), at = 0;
    int made = 0, in_padding = 0;
    for (int i = 0; i < 1200; i++) {
        nnc_sink_clear(test_sink);
        nnc_graph *g = random_window(key, &at);
        nnc_sink_clear(test_sink);
        nnc_plan *p = g ? help_plan(g, 1, 1) : NULL;
        if (p) {
            help_check(p);
            const nnc_cmd *y = help_cmd(p, "/y");
            const nnc_call *c = y->kind == CMD_call ? &p->call[y->item] : NULL;
            made++;
            in_padding += c && c->kind == CALL_conv &&
                          (c->dst.dim[2] - 1) * c->stride[0] >= c->src.dim[2] + c->pad_lo[0];
        }
        nnc_plan_destroy(p);
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(made > 300 && in_padding > 10);
}

/* ---- state ----------------------------------------------------------------------------------- */

TEST(make_update_in_place)
{
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[64]\n"
                                 "%w = param : f32[64] = gen(\"w\", seed=1, scale=1)\n"
                                 "%y = mul %x, %w loc \"/y\"\n"
                                 "%w2 = sub %w, %x loc \"/w2\"\n"
                                 "return %y as \"y\"\n"
                                 "update %w <- %w2 }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    /* the weight, y, and w2 over w: nothing is copied */
    CHECK(p->n_cmd == 3 && p->end[SEC_init] == 1 && p->end[SEC_main] == 2 && p->end[SEC_step] == 3);
    CHECK_STR(p->cmd[2].layers, "/w2");
    CHECK_INT(p->n_update, 1);
    CHECK_INT(p->tensor[p->update[0].state].space, SP_persist);
    CHECK_INT(p->tensor[p->update[0].value].alias_of, p->update[0].state);
    CHECK_INT(p->device[0].persist_bytes, 256);
    CHECK_INT(p->device[0].arena_bytes, 512);
    nnc_plan_destroy(p);
}

/* A kernel with several results overwrites a state with each. */
TEST(make_updates_in_place)
{
    nnc_plan *p =
        help_plan_text("graph @t {\n"
                       "%x = input : f32[64]\n"
                       "%w = param : f32[64] = gen(\"w\", seed=1, scale=1)\n"
                       "%m = param : f32[64] = gen(\"m\", seed=2, scale=1)\n"
                       "%y = mul %x, %w loc \"/y\"\n"
                       "%m2, %w2 = fused %m, %x, %w {\n"
                       "  %a = input : f32[64]\n  %b = input : f32[64]\n  %c = input : f32[64]\n"
                       "  %d = add %a, %b\n  %e = sub %c, %d\n  return %d, %e } loc \"/step\"\n"
                       "return %y as \"y\"\n"
                       "update %w <- %w2\nupdate %m <- %m2 }",
            1, 1);
    if (!p)
        return;
    help_check(p);
    CHECK_INT(help_count(p, CMD_copy), 0);
    CHECK_INT(p->device[0].arena_bytes, 512);
    for (int i = 0; i < p->n_update; i++)
        CHECK_INT(p->tensor[p->update[i].value].alias_of, p->update[i].state);
    const nnc_cmd *c = help_cmd(p, "/step");
    if (c && c->n_arg == 5) { /* both over one state */
        p->tensor[c->arg[3]].alias_of = p->tensor[c->arg[4]].alias_of;
        p->tensor[c->arg[3]].offset = p->tensor[c->arg[4]].offset;
        help_rejected(p, "its one new value takes over");
    }
    nnc_plan_destroy(p);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Two gradients and their updates, which come last: a gradient's memory is free once its weight is updated, after the reader of the old
 * one. */
TEST(make_updates_early)
{
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[1024]\n"
                                 "%w = param : f32[1024] = gen(\"w\", seed=1, scale=1)\n"
                                 "%v = param : f32[1024] = gen(\"v\", seed=2, scale=1)\n"
                                 "%y = mul %x, %w loc \"/y\"\n"
                                 "%g = exp %y loc \"/g\"\n"
                                 "%h = mul %g, %v loc \"/h\"\n"
                                 "%k = exp %h loc \"/k\"\n"
                                 "%v2 = sub %v, %g loc \"/v2\"\n"
                                 "%w2 = sub %w, %k loc \"/w2\"\n"
                                 "return %y as \"y\"\n"
                                 "update %w <- %w2\nupdate %v <- %v2 }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    CHECK_INT(help_count(p, CMD_copy), 0);
    CHECK(help_at(p, "/h") < help_at(p, "/v2") && help_at(p, "/v2") < help_at(p, "/k"));
    CHECK_INT(p->device[0].arena_bytes, 4 * 4096); /* x, y, and two more at a time */
    nnc_plan_destroy(p);
}

/* A large gradient, computed from what is small, waits until the chain of gradients has freed what it reads. */
TEST(make_gradients_deferred)
{
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[65536]\n"
                                 "%u = input : f32[256,1]\n"
                                 "%v = input : f32[1,256]\n"
                                 "%w = param : f32[256,256] = gen(\"w\", seed=1, scale=1)\n"
                                 "%b = param : f32[1] = gen(\"b\", seed=2, scale=1)\n"
                                 "%a = exp %x loc \"/a\"\n"
                                 "%y = reduce_sum %a {axes=[0]} loc \"/y\"\n"
                                 "%g = mul %u, %v loc \"/g\"\n"
                                 "%w2 = sub %w, %g loc \"/w2\"\n"
                                 "%t = reduce_max %a {axes=[0]} loc \"/t\"\n"
                                 "%b2 = sub %b, %t loc \"/b2\"\n"
                                 "return %y as \"y\"\n"
                                 "update %w <- %w2\nupdate %b <- %b2 }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    CHECK(help_at(p, "/t") < help_at(p, "/g") && help_at(p, "/g") < help_at(p, "/w2"));
    /* x, u, v and a; not the gradient beside a */
    CHECK(p->device[0].arena_bytes < 2 * 262144 + 8192);
    nnc_plan_destroy(p);
}

/* What only the step needs, and is smaller than what it is computed from, is computed in main. */
TEST(make_small_results_early)
{
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%x = input : f32[1,1,64,64]\n"
                                 "%w = param : f32[1,1,32,32] = gen(\"w\", seed=1, scale=1)\n"
                                 "%a = exp %x loc \"/a\"\n"
                                 "%p = maxpool %a {kernel=[2,2], strides=[2,2]} loc \"/p\"\n"
                                 "%b = exp %p loc \"/b\"\n"
                                 "%c = concat %b, %b, %b, %b {axis=0} loc \"/c\"\n"
                                 "%i = argmaxpool %a {kernel=[2,2], strides=[2,2]} loc \"/i\"\n"
                                 "%f = cast %i {to=f32} loc \"/f\"\n"
                                 "%w2 = sub %w, %f loc \"/w2\"\n"
                                 "return %c as \"c\"\n"
                                 "update %w <- %w2 }",
        1, 1);
    if (!p)
        return;
    help_check(p);
    CHECK(help_at(p, "/i") < help_at(p, "/b") && help_at(p, "/i") < p->end[SEC_main]);
    CHECK(help_at(p, "/w2") >= p->end[SEC_main]);
    nnc_plan_destroy(p);
}

/* By a gradient that is summed in the same kernel; not where its sums read the state, too. */
TEST(make_update_by_sums)
{
    for (int reads = 0; reads < 2; reads++) {
        char text[900];
        snprintf(text, sizeof text,
            "graph @t {\n"
            "%%x = input : f32[5,16,1]\n%%d = input : f32[5,1,32]\n"
            "%%w = param : f32[16,32] = gen(\"w\", seed=1, scale=1)\n"
            "%%y = abs %%x loc \"/y\"\n"
            "%%w2 = fused %%x, %%d, %%w {\n"
            "  %%a = input : f32[5,16,1]\n  %%b = input : f32[5,1,32]\n  %%c = input : f32[16,32]\n"
            "  %%m = mul %%a, %%b\n  %%s = reduce_sum %%%s {axes=[0], keepdims=%d}\n"
            "  %%e = sub %%c, %%s\n  return %%e } loc \"/step\"\n"
            "return %%y as \"y\"\n"
            "update %%w <- %%w2 }",
            reads ? "c" : "m", reads);
        nnc_plan *p = help_plan_text(text, 1, 1);
        if (!p)
            return;
        help_check(p);
        CHECK_INT(help_count(p, CMD_copy), reads);
        nnc_plan_destroy(p);
    }
}

TEST(make_update_copied)
{
    /* the new value is an output of the old state's run, so it has memory of its own. The old one may not be an output */
    nnc_plan *p = help_plan_text("graph @t {\n"
                                 "%w = param : f32[64] = gen(\"w\", seed=1, scale=1)\n"
                                 "%w2 = exp %w loc \"/w2\"\n"
                                 "return %w2 as \"y\"\n"
                                 "update %w <- %w2 }",
        1, 1);
    if (p) {
        help_check(p);
        CHECK_INT(help_count(p, CMD_copy), 1);
        CHECK_INT(p->end[SEC_step] - p->end[SEC_main], 1);
    }
    nnc_plan_destroy(p);
    nnc_graph *g = help_graph("graph @t {\n"
                              "%x = input : f32[4]\n"
                              "%w = param : f32[4] = gen(\"w\", seed=1, scale=1)\n"
                              "return %w as \"y\"\n"
                              "update %w <- %x }");
    p = g ? help_plan(g, 1, 1) : NULL;
    CHECK(p == NULL);
    CHECK_DIAG("w is updated, so its old value cannot be an output");
    nnc_graph_destroy(g);
}

/* What collectives compute is copied to the states as soon as nothing reads the old ones. One after the other they need the memory of one.
 * A state whose old value is read later gets its new one then. */
TEST(make_gathered_update_copied_early)
{
    for (int later = 0; later < 2; later++) {
        char text[1400];
        snprintf(text, sizeof text,
            "graph @t {\n"
            "%%w0 = param : f32[4096] = gen(\"w\", seed=1, scale=1) device 0\n"
            "%%w1 = param : f32[4096] = gen(\"w\", seed=1, scale=1) device 1\n"
            "%%u0 = param : f32[4096] = gen(\"u\", seed=1, scale=1) device 0\n"
            "%%u1 = param : f32[4096] = gen(\"u\", seed=1, scale=1) device 1\n"
            "%%x = input : f32[16] device 0\n%%y = abs %%x device 0 loc \"/y\"\n"
            "%%a0 = slice %%w0 {starts=[0], ends=[2048], axes=[0]} device 0\n"
            "%%a1 = slice %%w1 {starts=[2048], ends=[4096], axes=[0]} device 1\n"
            "%%b0 = exp %%a0 device 0\n%%b1 = exp %%a1 device 1\n"
            "%%g0, %%g1 = allgather %%b0, %%b1 {axis=0} loc \"/first\"\n"
            "%%c0 = slice %%%s0 {starts=[0], ends=[2048], axes=[0]} device 0\n"
            "%%c1 = slice %%u1 {starts=[2048], ends=[4096], axes=[0]} device 1\n"
            "%%d0 = exp %%c0 device 0\n%%d1 = exp %%c1 device 1\n"
            "%%h0, %%h1 = allgather %%d0, %%d1 {axis=0} loc \"/second\"\n"
            "return %%y as \"y\"\n"
            "update %%w0 <- %%g0\nupdate %%w1 <- %%g1\nupdate %%u0 <- %%h0\nupdate %%u1 <- %%h1 }",
            later ? "w" : "u");
        nnc_plan *p = help_plan_text(text, 1, 2);
        if (!p)
            return;
        help_check(p);
        CHECK_INT(help_count(p, CMD_copy), 4);
        const int64_t one = 4096 * 4, most = one + one / 2 + 1024;
        CHECK(p->device[1].arena_bytes < most);
        CHECK((p->device[0].arena_bytes < most) == !later);
        nnc_plan_destroy(p);
    }
}

TEST(make_accumulate)
{
    static const char text[] = "graph @t {\n"
                               "%x = input : f32[64]\n"
                               "%w = param : f32[64] = gen(\"w\", seed=1, scale=1)\n"
                               "%g = param : f32[64] = gen(\"g\", seed=1, scale=0)\n"
                               "%y = mul %x, %w loc \"/y\"\n"
                               "%g2 = add %g, %x loc \"/g2\"\n"
                               "%w2 = sub %w, %g2 loc \"/w2\"\n"
                               "return %y as \"y\"\n"
                               "update %w <- %w2\naccumulate %g <- %g2 }";
    for (int streams = 1; streams < 4; streams += 2) {
        nnc_plan *p = help_plan_text(text, streams, 1);
        if (!p)
            return;
        help_check(p);
        const nnc_cmd *g2 = help_cmd(p, "/g2"), *w2 = help_cmd(p, "/w2");
        CHECK(g2 >= p->cmd + p->end[SEC_main] && g2 < p->cmd + p->end[SEC_accumulate]);
        CHECK(w2 >= p->cmd + p->end[SEC_accumulate] && w2 < p->cmd + p->end[SEC_step]);
        CHECK_INT(p->n_update, 2);
        for (int i = 0; i < 2; i++)
            CHECK_INT(p->tensor[p->update[i].value].alias_of, p->update[i].state);
        if (streams == 1) /* both are computed in place */
            CHECK_INT(help_count(p, CMD_copy), 0);
        nnc_plan_destroy(p);
    }
    nnc_graph *g = help_graph("graph @t {\n"
                              "%x = input : f32[4]\n"
                              "%w = param : f32[4] = gen(\"w\", seed=1, scale=1)\n"
                              "%g = param : f32[4] = gen(\"g\", seed=1, scale=0)\n"
                              "%g2 = add %g, %x\n"
                              "%w2 = sub %w, %g\n"
                              "return %x as \"y\"\n"
                              "update %w <- %w2\naccumulate %g <- %g2 }");
    nnc_plan *p = g ? help_plan(g, 1, 1) : NULL;
    CHECK(p == NULL);
    CHECK_DIAG("g is accumulated: what only updates need can read its new value, not its old one");
    nnc_graph_destroy(g);
}

TEST(make_declined)
{
    nnc_graph *g = help_graph("graph @t {\n"
                              "%x = input : f32[2,4]\n"
                              "%w = param : f32[3,4] = gen(\"w\", seed=1, scale=0.1)\n"
                              "%y = linear %x, %w loc \"/fc\"\n"
                              "return %y }");
    fake_declines = fake_alone = true;
    nnc_plan *p = g ? help_plan(g, 1, 1) : NULL;
    fake_alone = false;
    CHECK(p == NULL);
    CHECK_DIAG("no engine computes this linear: fake: it is only a fake");
    p = g ? help_plan(g, 1, 1) : NULL; /* generated kernels take every contraction */
    fake_declines = false;
    CHECK(p && help_cmd(p, "/fc")->kind == CMD_kernel);
    nnc_plan_destroy(p);
    nnc_graph_destroy(g);
}

/* ---- streams and devices ------------------------------------------------------------------- */

/* Four branches of two convolutions each, joined by adds. */
static const char branches[] = "graph @t {\n"
                               "%x = input : f32[1,16,32,32]\n"
                               "%w = param : f32[16,16,3,3] = gen(\"w\", seed=1, scale=0.1)\n"
                               "%a1 = conv %x, %w {pads=[1,1,1,1]} loc \"/a1\"\n"
                               "%b1 = conv %x, %w {pads=[1,1,1,1]} loc \"/b1\"\n"
                               "%c1 = conv %x, %w {pads=[1,1,1,1]} loc \"/c1\"\n"
                               "%d1 = conv %x, %w {pads=[1,1,1,1]} loc \"/d1\"\n"
                               "%a2 = conv %a1, %w {pads=[1,1,1,1]} loc \"/a2\"\n"
                               "%b2 = conv %b1, %w {pads=[1,1,1,1]} loc \"/b2\"\n"
                               "%c2 = conv %c1, %w {pads=[1,1,1,1]} loc \"/c2\"\n"
                               "%d2 = conv %d1, %w {pads=[1,1,1,1]} loc \"/d2\"\n"
                               "%s = add %a2, %b2 loc \"/s\"\n"
                               "%t = add %c2, %d2 loc \"/t\"\n"
                               "%y = add %s, %t loc \"/y\"\n"
                               "return %y }";

TEST(make_streams)
{
    for (int streams = 1; streams <= 4; streams++) {
        nnc_plan *p = help_plan_text(branches, streams, 1);
        if (!p)
            return;
        help_check(p);
        CHECK_INT(p->device[0].streams, streams);
        CHECK_INT(help_count(p, CMD_record) > 0, streams > 1);
        /* a branch stays on its stream: one wait for each stream that is joined, no more */
        if (streams != 3) {
            CHECK(help_count(p, CMD_wait) <= (streams > 1 ? 6 : 0));
            CHECK_INT(help_cmd(p, "/a1")->stream, help_cmd(p, "/a2")->stream);
        }
        CHECK(p->device[0].arena_bytes >= p->device[0].lower_bound);
        nnc_plan *q = help_plan_text(branches, streams, 1);
        nnc_hash128 a = nnc_plan_hash(p), b = nnc_plan_hash(q);
        CHECK(a.lo == b.lo && a.hi == b.hi);
        nnc_plan_destroy(p);
        nnc_plan_destroy(q);
    }
}

/* Two chains of matmuls, each beyond the longest expected time: expected times add up without overflow (the sanitizer sees it). */
TEST(make_streams_that_take_for_ever)
{
    enum { N = 1500 };
    nnc_text t = {0};
    nnc_puts(&t, "graph @ever {\n%a0 = input : f32[2000000,2000000]\n%b0 = relu %a0\n");
    for (int i = 0; i < N; i++)
        nnc_printf(&t, "%%a%d = matmul %%a%d, %%a%d\n%%b%d = matmul %%b%d, %%b%d\n", i + 1, i, i,
            i + 1, i, i);
    nnc_printf(&t, "return %%a%d, %%b%d }", N, N);
    nnc_plan *p = help_plan_text(nnc_text_str(&t), 2, 1);
    if (p)
        CHECK_INT(p->device[0].streams, 2);
    nnc_plan_destroy(p);
    nnc_text_deinit(&t);
}

TEST(make_streams_of_a_chain)
{
    /* nothing to run side by side: one stream, all threads, no event */
    nnc_plan *p = help_plan_text(
        "graph @t {\n%x = input : f32[64]\n%a = exp %x\n%b = neg %a\n%c = exp %b\nreturn %c }", 3,
        1);
    if (!p)
        return;
    help_check(p);
    CHECK_INT(p->device[0].streams, 1);
    CHECK_INT(p->n_event, 0);
    nnc_plan_destroy(p);
}

TEST(make_devices)
{
    nnc_graph *g = help_graph("graph @t {\n"
                              "%x = input : f32[64,8]\n"
                              "%w = param : f32[8,8] = gen(\"w\", seed=1, scale=0.1)\n"
                              "%a = matmul %x, %w device 0 loc \"/a\"\n"
                              "%v = reshape %a {shape=[8,64]} device 0\n"
                              "%b = exp %v device 1 loc \"/b\"\n"
                              "%c = neg %v device 1 loc \"/c\"\n"
                              "%d = add %b, %c device 0 loc \"/d\"\n"
                              "%k = matmul %x, %w device 1 loc \"/k\"\n"
                              "return %d, %k }");
    nnc_plan *p = g ? help_plan(g, 1, 2) : NULL;
    CHECK(p != NULL);
    if (p) {
        help_check(p);
        check_cost(g, p);
        /* x and a go to device 1 once each; b and c come back; the weight is made on both */
        CHECK_INT(help_count(p, CMD_copy), 4);
        CHECK_INT(p->n_weight, 2);
        CHECK(p->device[0].persist_bytes == p->device[1].persist_bytes &&
              p->device[1].arena_bytes > 0);
        CHECK_INT(help_cmd(p, "/k")->device, 1);
        CHECK_STR(p->device[1].name, "cpu:1");
        nnc_plan_destroy(p);
    }
    nnc_sink_clear(test_sink);
    p = g ? help_plan(g, 1, 1) : NULL;
    CHECK(p == NULL);
    CHECK_DIAG("placed on device 1 of only 1, numbered from 0 (--devices=2 makes enough)");
    nnc_graph_destroy(g);
}

/* What could not be loaded is not compiled: each tensor is of a legal size, together they are beyond 2^48 bytes. */
TEST(make_beyond_loading)
{
    nnc_graph *g = help_graph("graph @t {\n"
                              "%x = input : u8[70368744177664]\n"
                              "%a = identity %x\n"
                              "%b = ne %x, %x loc \"/b\"\n"
                              "%c = max %x, %x loc \"/c\"\n"
                              "%d = min %x, %x loc \"/d\"\n"
                              "%e = mul %x, %x loc \"/e\"\n"
                              "return %b, %c, %d, %e }");
    nnc_plan *p = g ? help_plan(g, 1, 1) : NULL;
    CHECK(g != NULL && p == NULL);
    CHECK_DIAG("plan: device 0: arena: 351843720888320 is out of range");
    nnc_graph_destroy(g);
}

TEST(make_usage)
{
    nnc_graph *g = help_graph("graph @t {\n%x = input : f32[4]\nreturn %x }");
    CHECK(help_plan(g, 0, 1) == NULL);
    CHECK(help_plan(g, 1, 65) == NULL);
    CHECK_DIAG("expected 1 to 64");
    nnc_plan *p = help_plan(g, 1, 1);
    CHECK(p && p->n_cmd == 0 && p->output[0] == p->input[0]);
    if (p)
        help_check(p);
    nnc_plan_destroy(p);
    nnc_graph_destroy(g);
}

TEST(make_out_of_memory)
{
    nnc_graph *g = help_graph(residual);
    int failed = 0;
    for (int64_t n = 1; g && n < 5000; n++) {
        nnc_fail_alloc_after(n);
        nnc_plan *p = help_plan(g, 2, 1);
        nnc_fail_alloc_after(0);
        nnc_sink_clear(test_sink);
        if (p) {
            CHECK_OK(nnc_plan_verify(p, test_sink));
            nnc_plan_destroy(p);
            break;
        }
        failed++;
    }
    CHECK(failed > 5 && failed < 4999);
    nnc_graph_destroy(g);
}
