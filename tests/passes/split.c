/* tests/passes/split.c -- ops split over devices. By the float64 reference, the graph of several devices computes what that of
 * one does, for models written for it and for generated graphs. What is sent is what the layouts need, and nothing else. */
#include "gen/gen.h"
#include "help.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_NODES = 512 };

/* ---- running ---------------------------------------------------------------------------------- */

static bool eval(const nnc_graph *g, uint64_t seed, nnc_rval *out)
{
    const void *in[64] = {0};
    void *own[64];
    int n = 0;
    for (uint32_t i = 0; i < g->n_node && n < 64; i++)
        if (g->node[i].op == OP_input) {
            const nnc_type *t = nnc_typeof(g, g->node[i].out);
            own[n] = nnc_malloc((size_t)nnc_type_bytes(t) + 1);
            gen_fill_input(t, seed, n, own[n]);
            in[n] = own[n];
            n++;
        }
    const nnc_status s = nnc_eval(g, in, 1, out, test_sink);
    while (n > 0)
        nnc_free(own[--n]);
    CHECK_OK(s);
    return s == NNC_OK;
}

static double difference(const nnc_rval *a, const nnc_rval *b)
{
    double worst = 0, scale = 1e-3;
    if (!nnc_type_same_shape(&a->type, &b->type) || a->type.dtype != b->type.dtype)
        return INFINITY;
    for (int64_t i = 0; i < nnc_type_numel(&a->type); i++) {
        const double x = a->f ? a->f[i] : (double)a->i[i], y = b->f ? b->f[i] : (double)b->i[i];
        if (isnan(x) && isnan(y))
            continue;
        scale = fmax(scale, fabs(x));
        worst = !(fabs(x - y) <= worst) && x != y ? fabs(x - y) : worst;
    }
    return isnan(worst) ? INFINITY : worst / scale;
}

static void compare(const nnc_graph *one, const nnc_graph *many, uint64_t seed, const char *what)
{
    nnc_rval *a = calloc(one->n_output + 1, sizeof *a), *b = calloc(one->n_output + 1, sizeof *b);
    CHECK_INT(many->n_output, one->n_output);
    if (many->n_output == one->n_output && eval(one, seed, a) && eval(many, seed, b))
        for (uint32_t i = 0; i < one->n_output; i++) {
            const double d = difference(&a[i], &b[i]);
            if (!(d <= 1e-12))
                test_fail(__FILE__, __LINE__, "%s: output %u differs by %g", what, i, d);
        }
    for (uint32_t i = 0; i < one->n_output; i++) {
        nnc_rval_free(&a[i]);
        nnc_rval_free(&b[i]);
    }
    free(a);
    free(b);
}

/* Number of nodes of this op. */
static int count(const nnc_graph *g, nnc_op op)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        n += g->node[i].op == op;
    return n;
}

/* ---- models ----------------------------------------------------------------------------------- */

/* Marks of the layers' paths: "/a" is `by` of layer a. */
typedef struct rule {
    const char *layer;
    nnc_split_by by;
} rule;

static nnc_graph *parse(const char *text)
{
    nnc_graph *g = help_parse("split", text, strlen(text));
    CHECK(g != NULL);
    return g;
}

static nnc_status split(const nnc_graph *g, int n, const rule *r, nnc_graph **out,
    nnc_split_cost *cost, nnc_remarks *remarks)
{
    uint8_t by[MOST_NODES] = {0};
    for (uint32_t i = 0; i < g->n_node && i < MOST_NODES; i++)
        for (int k = 0; r[k].layer; k++)
            if (g->node[i].origin && !strcmp(g->node[i].origin, r[k].layer))
                by[i] = (uint8_t)r[k].by;
    const nnc_split_options o = {.n_device = n, .by = by};
    return nnc_split(g, &o, out, cost, remarks, test_sink);
}

/* The text form of the split graph reads back to itself, parts of weights included. */
static void check_text(const nnc_graph *g)
{
    NNC_LOCAL(nnc_text) a = {0}, b = {0};
    nnc_graph_print(&a, g);
    nnc_graph *again = help_parse("again", nnc_text_str(&a), a.n);
    CHECK(again != NULL);
    if (!again)
        return;
    nnc_graph_print(&b, again);
    CHECK_STR(nnc_text_str(&b), nnc_text_str(&a));
    nnc_graph_destroy(again);
}

static void check(const char *text, const rule *r, const char *what)
{
    nnc_graph *g = parse(text);
    for (int n = 1; g && n <= 4; n++) {
        nnc_graph *many = NULL;
        CHECK_OK(split(g, n, r, &many, NULL, NULL));
        if (!many)
            continue;
        compare(g, many, (uint64_t)n, what);
        check_text(many);
        nnc_graph_destroy(many);
    }
    nnc_graph_destroy(g);
}

static const char mlp[] = "graph @mlp {\n"
                          "%x = input : f32[4,24]\n"
                          "%w1 = param : f32[48,24] = gen(\"w1\", seed=1, scale=0.3)\n"
                          "%b1 = param : f32[48] = gen(\"b1\", seed=1, scale=0.3)\n"
                          "%w2 = param : f32[24,48] = gen(\"w2\", seed=1, scale=0.3)\n"
                          "%b2 = param : f32[24] = gen(\"b2\", seed=1, scale=0.3)\n"
                          "%h = linear %x, %w1, %b1 loc \"/fc1\"\n"
                          "%r = relu %h loc \"/relu\"\n"
                          "%y = linear %r, %w2, %b2 loc \"/fc2\"\n"
                          "%z = add %y, %x loc \"/add\"\n"
                          "return %z as \"y\" }\n";

static const char cnn[] =
    "graph @cnn {\n"
    "%x = input : f32[2,3,17,13]\n"
    "%w1 = param : f32[8,3,3,3] = gen(\"w1\", seed=1, scale=0.3)\n"
    "%b1 = param : f32[8] = gen(\"b1\", seed=1, scale=0.3)\n"
    "%w2 = param : f32[8,8,3,3] = gen(\"w2\", seed=1, scale=0.2)\n"
    "%b2 = param : f32[8] = gen(\"b2\", seed=1, scale=0.3)\n"
    "%w3 = param : f32[8,1,3,3] = gen(\"w3\", seed=1, scale=0.4)\n"
    "%one = param : f32[8] = gen(\"one\", seed=1, scale=0.1, shift=1)\n"
    "%v = param : f32[6,8] = gen(\"v\", seed=1, scale=0.3)\n"
    "%a = conv %x, %w1, %b1 {pads=[1,1,1,1]} loc \"/conv1\"\n"
    "%n = batchnorm %a, %one, %b1, %b2, %one loc \"/bn\"\n"
    "%b = relu %n loc \"/relu\"\n"
    "%c = maxpool %b {kernel=[3,3], strides=[2,2], pads=[1,1,0,0], ceil_mode=1} loc \"/pool\"\n"
    "%d = conv %c, %w2, %b2 {pads=[2,2,2,2], dilations=[2,2]} loc \"/conv2\"\n"
    "%e = add %d, %c loc \"/add\"\n"
    "%f = conv %e, %w3 {pads=[1,1,1,1], strides=[2,1], groups=8} loc \"/depth\"\n"
    "%g = avgpool %f {kernel=[2,2], pads=[1,0,0,0], count_include_pad=1} loc \"/mean\"\n"
    "%h = global_avgpool %g loc \"/all\"\n"
    "%i = reshape %h {shape=[2,8]} loc \"/flat\"\n"
    "%j = linear %i, %v loc \"/fc\"\n"
    "%k = softmax %j {axis=1} loc \"/prob\"\n"
    "return %k as \"y\", %g as \"map\" }\n";

static const char attention[] =
    "graph @attention {\n"
    "%x = input : f32[2,5,16]\n"
    "%m = input : f32[2,1,1,5]\n"
    "%wq = param : f32[16,16] = gen(\"wq\", seed=1, scale=0.4)\n"
    "%wk = param : f32[16,16] = gen(\"wk\", seed=1, scale=0.4)\n"
    "%w3 = param : f32[48,16] = gen(\"w3\", seed=1, scale=0.4)\n"
    "%wo = param : f32[16,16] = gen(\"wo\", seed=1, scale=0.4)\n"
    "%b = param : f32[16] = gen(\"b\", seed=1, scale=0.4)\n"
    "%gamma = param : f32[16] = gen(\"gamma\", seed=1, scale=0.1, shift=1)\n"
    "%wv = slice %w3 {axes=[0], starts=[32], ends=[48]} loc \"/v\"\n"
    "%q = linear %x, %wq, %b loc \"/q\"\n"
    "%k = linear %x, %wk, %b loc \"/k\"\n"
    "%v = linear %x, %wv, %b loc \"/v\"\n"
    "%q4 = reshape %q {shape=[2,5,4,4]} loc \"/heads\"\n"
    "%k4 = reshape %k {shape=[2,5,4,4]} loc \"/heads\"\n"
    "%v4 = reshape %v {shape=[2,5,4,4]} loc \"/heads\"\n"
    "%qt = transpose %q4 {perm=[0,2,1,3]} loc \"/heads\"\n"
    "%kt = transpose %k4 {perm=[0,2,1,3]} loc \"/heads\"\n"
    "%vt = transpose %v4 {perm=[0,2,1,3]} loc \"/heads\"\n"
    "%s = matmul %qt, %kt {transpose_b=1} loc \"/heads\"\n"
    "%sm = add %s, %m loc \"/heads\"\n"
    "%p = softmax %sm {axis=3} loc \"/heads\"\n"
    "%o = matmul %p, %vt loc \"/heads\"\n"
    "%ot = transpose %o {perm=[0,2,1,3]} loc \"/heads\"\n"
    "%of = reshape %ot {shape=[2,5,16]} loc \"/heads\"\n"
    "%y = linear %of, %wo, %b loc \"/o\"\n"
    "%r = add %y, %x loc \"/add\"\n"
    "%z = layernorm %r, %gamma, %b loc \"/norm\"\n"
    "return %z as \"y\" }\n";

TEST(split_mlp)
{
    static const rule ways[][4] = {
        {{"/fc1", NNC_SPLIT_columns}, {"/fc2", NNC_SPLIT_rows}, {0}},
        {{"/fc1", NNC_SPLIT_columns}, {0}},
        {{"/fc1", NNC_SPLIT_rows}, {"/fc2", NNC_SPLIT_columns}, {0}},
        {{"/fc1", NNC_SPLIT_features}, {"/fc2", NNC_SPLIT_features}, {0}},
        {{"/fc1", NNC_SPLIT_batch}, {0}},
        {{"/fc1", NNC_SPLIT_batch}, {"/fc2", NNC_SPLIT_columns}, {0}},
        {{"/fc1", NNC_SPLIT_rows}, {"/relu", NNC_SPLIT_batch}, {0}},
        {{0}},
    };
    for (size_t i = 0; i < NNC_COUNT(ways); i++)
        check(mlp, ways[i], "mlp");
}

TEST(split_cnn)
{
    static const nnc_split_by conv[] = {NNC_SPLIT_columns, NNC_SPLIT_features, NNC_SPLIT_height,
        NNC_SPLIT_width, NNC_SPLIT_space, NNC_SPLIT_whole};
    for (size_t i = 0; i < NNC_COUNT(conv); i++)
        for (size_t k = 0; k < NNC_COUNT(conv); k++) {
            const rule r[] = {
                {"/conv1", conv[i]}, {"/conv2", conv[k]}, {"/fc", NNC_SPLIT_features}, {0}};
            const rule all[] = {{"/conv1", conv[i]}, {"/pool", NNC_SPLIT_space},
                {"/conv2", conv[k]}, {"/depth", NNC_SPLIT_space}, {"/mean", NNC_SPLIT_space}, {0}};
            check(cnn, r, "cnn");
            check(cnn, all, "cnn, all windows");
        }
    check(
        cnn, (rule[]){{"/conv1", NNC_SPLIT_columns}, {"/conv2", NNC_SPLIT_rows}, {0}}, "cnn, rows");
}

TEST(split_attention)
{
    static const char *const layers[] = {"/q", "/k", "/v", "/o"};
    static const nnc_split_by by[] = {
        NNC_SPLIT_features, NNC_SPLIT_columns, NNC_SPLIT_rows, NNC_SPLIT_whole};
    for (int i = 0; i < 256; i++) {
        rule r[5] = {{0}};
        for (int k = 0; k < 4; k++)
            r[k] = (rule){layers[k], by[i >> 2 * k & 3]};
        check(attention, r, "attention");
    }
}

/* Columns then rows: one sum over the devices and nothing else, of which device 0 needs the result alone. */
TEST(split_pairs)
{
    static const rule pair[] = {{"/fc1", NNC_SPLIT_columns}, {"/fc2", NNC_SPLIT_rows}, {0}};
    static const rule heads[] = {{"/q", NNC_SPLIT_features}, {"/k", NNC_SPLIT_features},
        {"/v", NNC_SPLIT_features}, {"/o", NNC_SPLIT_features}, {0}};
    nnc_graph *g = parse(mlp), *many = NULL;
    nnc_split_cost cost = {0};
    CHECK_OK(split(g, 4, pair, &many, &cost, NULL));
    CHECK_INT(
        count(many, OP_allgather) + count(many, OP_reduce_scatter) + count(many, OP_allreduce), 0);
    CHECK_INT(count(many, OP_linear), 8);
    CHECK_INT(cost.bytes, 3 * 4 * 4 * 24 + 3 * 4 * 4 * 24); /* x to all, the sum */
    for (uint32_t i = 0; i < many->n_node; i++)
        if (many->node[i].op == OP_param && many->node[i].weight->name[0] == 'w')
            CHECK_INT(nnc_type_numel(nnc_typeof(many, many->node[i].out)), 24 * 48 / 4);
    nnc_graph_destroy(g);
    nnc_graph_destroy(many);
    g = parse(attention);
    CHECK_OK(split(g, 2, heads, &many, &cost, NULL));
    CHECK_INT(count(many, OP_softmax), 2);
    CHECK_INT(count(many, OP_allgather) + count(many, OP_allreduce), 0);
    CHECK_INT(cost.bytes, 4 * (2 * 5 * 16 + 2 * 5 + 2 * 5 * 16)); /* x, the mask, the sum */
    nnc_graph_destroy(g);
    nnc_graph_destroy(many);
}

/* A stack of linear layers of drawn widths: what `features` sends beside the best of all ways, and the same for all layers. */
TEST(split_search)
{
    enum { LAYERS_ = 6 };
    double worst = 1;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        NNC_LOCAL(nnc_text) t = {0}, nodes = {0};
        int64_t width = 24, best = INT64_MAX;
        rule r[LAYERS_ + 1] = {{0}};
        char name[LAYERS_][16];
        nnc_split_cost cost = {0}, chosen = {0};
        nnc_graph *many = NULL;
        nnc_puts(&t, "graph @s {\n%v0 = input : f32[4,24]\n");
        for (int i = 0; i < LAYERS_; i++) {
            const int64_t next =
                8 * (1 + nnc_rng_u32(nnc_rng_key("width", seed), (uint64_t)i) % 12);
            nnc_printf(&t, "%%w%d = param : f32[%lld,%lld] = gen(\"w%d\", seed=1, scale=0.1)\n", i,
                (long long)next, (long long)width, i);
            nnc_printf(&nodes,
                "%%y%d = linear %%v%d, %%w%d loc \"/l%d\"\n%%v%d = relu %%y%d loc \"/r%d\"\n", i, i,
                i, i, i + 1, i, i);
            snprintf(name[i], sizeof name[i], "/l%d", i);
            r[i] = (rule){name[i], NNC_SPLIT_features};
            width = next;
        }
        nnc_printf(&t, "%sreturn %%v%d }\n", nnc_text_str(&nodes), LAYERS_);
        nnc_graph *g = parse(nnc_text_str(&t));
        CHECK_OK(split(g, 4, r, &many, &chosen, NULL));
        nnc_graph_destroy(many);
        for (int way = 0; way < 1 << LAYERS_; way++) {
            for (int i = 0; i < LAYERS_; i++)
                r[i].by = way >> i & 1 ? NNC_SPLIT_rows : NNC_SPLIT_columns;
            CHECK_OK(split(g, 4, r, &many, &cost, NULL));
            nnc_graph_destroy(many);
            best = cost.bytes < best ? cost.bytes : best;
        }
        CHECK(chosen.bytes >= best);
        worst = fmax(worst, (double)chosen.bytes / (double)best);
        nnc_graph_destroy(g);
    }
    if (!(worst <= 1.05))
        test_fail(__FILE__, __LINE__, "%.3f times the bytes of the best way", worst);
}

/* The users' case: neighbours exchange a row where channels would need the whole tensor. */
TEST(split_halo)
{
    static const char text[] = "graph @c {\n"
                               "%x = input : f32[16,64,112,112]\n"
                               "%w = param : f32[64,64,3,3] = gen(\"w\", seed=1, scale=0.1)\n"
                               "%v = param : f32[64,64,3,3] = gen(\"v\", seed=1, scale=0.1)\n"
                               "%a = conv %x, %w {pads=[1,1,1,1]} loc \"/a\"\n"
                               "%b = conv %a, %v {pads=[1,1,1,1]} loc \"/b\"\n"
                               "return %b }\n";
    static const rule rows[] = {{"/a", NNC_SPLIT_height}, {"/b", NNC_SPLIT_height}, {0}};
    static const rule channels[] = {{"/a", NNC_SPLIT_columns}, {"/b", NNC_SPLIT_columns}, {0}};
    const int64_t line = 4 * 16 * 64 * 112, all = line * 112;
    nnc_graph *g = parse(text), *many = NULL;
    nnc_split_cost cost = {0};
    nnc_remarks said;
    nnc_remarks_init(&said);
    CHECK_INT(line, 458752); /* 0.44 MiB */
    CHECK_OK(split(g, 2, rows, &many, &cost, &said));
    CHECK_INT(cost.halo, 2 * line);
    bool found = false;
    for (size_t i = 0; i < said.n; i++)
        found = found || strstr(said.at[i].reason,
                             "halo of 1 row, 448.0 KiB per neighbour, where "
                             "gathering all channels takes 49.00 MiB; sent: halo 896.0 KiB");
    if (!found)
        test_fail(__FILE__, __LINE__, "%s", said.n ? said.at[said.n - 1].reason : "no remark");
    nnc_graph_destroy(many);
    CHECK_OK(split(g, 2, channels, &many, &cost, NULL));
    CHECK_INT(cost.halo, 0);
    CHECK_INT(count(many, OP_allgather), 1);
    CHECK_INT(cost.bytes,
        all + all + all / 2); /* x to the other device, a to both, the result to device 0 */
    nnc_graph_destroy(many);
    nnc_graph_destroy(g);
    nnc_remarks_deinit(&said);
}

/* Parts of one layer on several devices become kernels of their own devices. */
TEST(split_kernels_stay_on_a_device)
{
    static const char text[] = "graph @n {\n"
                               "%x = input : f32[8,6]\n%y = input : f32[8,6]\n"
                               "%a = relu %x device 0 loc \"/n\"\n"
                               "%b = reduce_sum %a {axes=[0]} device 0 loc \"/n\"\n"
                               "%c = relu %y device 1 loc \"/n\"\n"
                               "%d = reduce_sum %c {axes=[0]} device 1 loc \"/n\"\n"
                               "%e = mul %d, %d device 1 loc \"/n\"\n"
                               "%f = add %b, %d device 0 loc \"/n\"\n"
                               "return %f, %e }\n";
    const nnc_target t = help_kernels(), on[] = {t, t};
    const nnc_pass_options o = {.level = 2, .target = on, .n_target = 2};
    nnc_graph *g = parse(text);
    int fused = 0;
    CHECK_OK(nnc_passes_run(&g, &o, NULL, test_sink));
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        fused += x->body != NULL;
        for (uint32_t k = 0; x->body && k < x->body->n_node; k++)
            if (nnc_op_class((nnc_op)x->body->node[k].op) != CL_leaf)
                CHECK_INT(x->body->node[k].device, x->device);
    }
    CHECK(fused >= 2);
    nnc_graph_destroy(g);
}

/* A device computes its part of a sum before it waits for the other's: no product has that in its epilogue. */
TEST(split_sums_wait_for_no_device)
{
    static const char text[] = "graph @n {\n"
                               "%x = input : f32[64,96]\n%v = input : f32[96,64]\n"
                               "%w = input : f32[96,64]\n"
                               "%a = matmul %x, %v device 0\n"
                               "%b = matmul %x, %w device D\n"
                               "%c = relu %b device D\n"
                               "%d = add %a, %c device 0\n"
                               "return %d }\n";
    const nnc_target t = help_kernels(), on[] = {t, t};
    const nnc_pass_options o = {.level = 2, .target = on, .n_target = 2};
    for (char device = '0'; device <= '1'; device++) {
        char own[sizeof text];
        memcpy(own, text, sizeof text);
        for (char *d = own; (d = strstr(d, "device D")) != NULL;)
            d[7] = device;
        nnc_graph *g = parse(own);
        int sums = 0;
        CHECK_OK(nnc_passes_run(&g, &o, NULL, test_sink));
        for (uint32_t i = 0; i < g->n_node; i++) {
            const nnc_node *x = &g->node[i];
            for (uint32_t k = 0; x->body && k < x->body->n_node; k++)
                sums += x->body->node[k].op == OP_add;
        }
        CHECK_INT(sums, device == '0');
        nnc_graph_destroy(g);
    }
}

TEST(split_refuses)
{
    static const struct {
        const char *text, *layer;
        nnc_split_by by;
        int n;
        const char *why;
    } cases[] = {{mlp, "/fc1", NNC_SPLIT_batch, 5, "dimension 0 of f32[4,48] has only 4"},
        {mlp, "/fc1", NNC_SPLIT_rows, 25,
            "by rows over 25 devices: dimension 1 of f32[4,24] has only 24"},
        {cnn, "/depth", NNC_SPLIT_rows, 2, "its 8 groups cannot be shared evenly"},
        {cnn, "/depth", NNC_SPLIT_columns, 3, "its 8 groups cannot be shared evenly"},
        {cnn, "/conv2", NNC_SPLIT_height, 12, "cannot be split by height over 12 devices"}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        const rule r[] = {{cases[i].layer, cases[i].by}, {0}};
        nnc_graph *g = parse(cases[i].text), *many = NULL;
        CHECK_INT(split(g, cases[i].n, r, &many, NULL, NULL), NNC_E_USAGE);
        CHECK(many == NULL);
        CHECK_DIAG(cases[i].why);
        nnc_graph_destroy(g);
    }
    nnc_graph *g = parse("graph @p { %x = input : f32[4]\n %y = relu %x device 1\n return %y }"),
              *many = NULL;
    CHECK_INT(split(g, 2, (rule[]){{0}}, &many, NULL, NULL), NNC_E_USAGE);
    CHECK_DIAG("is placed on device 1");
    nnc_graph_destroy(g);
}

/* Any allocation may fail: it is said, and nothing else happens. */
TEST(split_out_of_memory)
{
    static const char *const models[] = {cnn, attention};
    static const rule r[] = {{"/conv1", NNC_SPLIT_columns}, {"/conv2", NNC_SPLIT_height},
        {"/fc", NNC_SPLIT_features}, {"/q", NNC_SPLIT_features}, {"/k", NNC_SPLIT_features},
        {"/v", NNC_SPLIT_features}, {"/o", NNC_SPLIT_features}, {0}};
    for (size_t m = 0; m < NNC_COUNT(models); m++) {
        nnc_graph *g = parse(models[m]), *many = NULL;
        bool done = false;
        for (int64_t n = 1; g && !done && n < 100000; n += n < 100 ? 1 : n / 23) {
            nnc_remarks said;
            nnc_remarks_init(&said);
            nnc_fail_alloc_after(n);
            const nnc_status st = split(g, 3, r, &many, NULL, &said);
            nnc_fail_alloc_after(0);
            done = st == NNC_OK;
            if (st && st != NNC_E_NOMEM)
                test_fail(
                    __FILE__, __LINE__, "allocation %lld: %s", (long long)n, nnc_status_name(st));
            CHECK(done == (many != NULL));
            nnc_graph_destroy(many);
            nnc_remarks_deinit(&said);
            nnc_sink_clear(test_sink);
            if (st && st != NNC_E_NOMEM)
                break;
        }
        CHECK(done);
        nnc_graph_destroy(g);
    }
}

/* ---- generated graphs -------------------------------------------------------------------------- */

/* Splits at random; what cannot be split so is followed instead. */
TEST(split_generated)
{
    static const nnc_split_by any[] = {NNC_SPLIT_follow, NNC_SPLIT_follow, NNC_SPLIT_whole,
        NNC_SPLIT_batch, NNC_SPLIT_batch, NNC_SPLIT_columns, NNC_SPLIT_rows, NNC_SPLIT_height,
        NNC_SPLIT_width, NNC_SPLIT_features, NNC_SPLIT_space};
    int divided = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        const gen_options o = {
            .seed = seed + test_seed, .nodes = 14, .max_elements = 2048, .quirks = seed % 2};
        nnc_graph *g = gen_graph(&o, test_sink), *many = NULL;
        uint8_t by[MOST_NODES] = {0};
        const int n = 2 + (int)(seed % 3);
        CHECK(g && g->n_node < MOST_NODES);
        if (!g || g->n_node >= MOST_NODES)
            break;
        nnc_sink *quiet = nnc_sink_create();
        for (uint32_t i = 0; i < g->n_node; i++) {
            const nnc_split_options with = {.n_device = n, .by = by, .trains = seed % 5 == 0};
            const uint64_t draw = nnc_rng_u32(nnc_rng_key("by", o.seed), i);
            by[i] = (uint8_t)any[draw % NNC_COUNT(any)];
            nnc_graph_destroy(many);
            nnc_sink_clear(quiet);
            nnc_status st = nnc_split(g, &with, &many, NULL, NULL, quiet);
            if (st == NNC_E_USAGE) {
                by[i] = NNC_SPLIT_follow;
                st = nnc_split(g, &with, &many, NULL, NULL, test_sink);
            }
            CHECK_OK(st);
            if (st)
                break;
        }
        nnc_sink_destroy(quiet);
        char what[64];
        snprintf(what, sizeof what, "seed %llu, %d devices", (unsigned long long)o.seed, n);
        if (many)
            compare(g, many, o.seed, what);
        for (uint32_t i = 0; many && i < many->n_node; i++)
            divided += many->node[i].device > 0;
        nnc_graph_destroy(many);
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(divided > 2000);
}
