/* tests/api/winograd.c -- the pass `winograd` on drawn convolutions and their gradients. They are rewritten for a described CPU, so that
 * decisions are not the host's. They run here, against the float64 reference of the graph before. */
#include "autodiff/autodiff.h"
#include "cpu.h"
#include "help.h"
#include "passes/passes.h"
#include "plan/make.h"

#include <math.h>

enum { BATCH = 2 };

/* One convolution and what follows it. */
typedef struct at {
    int channels, outputs, size, pad[4];
    int dilation, groups, stride;
    bool turned; /* transposed */
    int end;
} at;

static int between(uint64_t key, uint32_t *n, int lo, int hi)
{
    return lo + (int)(nnc_rng_u32(key, (*n)++) % (uint32_t)(hi - lo + 1));
}

/* Every fourth is none that the algorithm computes. */
static at drawn(int i)
{
    static const int wide[] = {16, 32, 40, 64, 72};
    const uint64_t key = nnc_rng_key("winograd pass", test_seed + (uint64_t)i);
    uint32_t n = 0;
    at c = {.channels = wide[between(key, &n, 0, 4)],
        .outputs = wide[between(key, &n, 0, 4)],
        .size = between(key, &n, 9, 19),
        .dilation = 1,
        .groups = 1,
        .stride = 1,
        .end = between(key, &n, 0, 3)};
    const int kind = between(key, &n, 0, 2);
    if (i % 4 == 3) {
        c.channels = c.outputs = 64;
        c.dilation += kind == 0;
        c.groups += kind == 1;
        c.stride += kind == 2;
    } else {
        c.turned = i % 8 == 5;
    }
    if (i % 6 == 5) /* so little that direct sums are faster */
        c.channels = c.outputs = 4;
    if (i % 12 == 9) { /* so much that gradients of weights are faster, too */
        c.channels = c.outputs = 64;
        c.size += 14;
        c.end = 4; /* otherwise the result's gradient is all 1 */
    }
    for (int k = 0; k < 4; k++)
        c.pad[k] = between(key, &n, 0, 2);
    return c;
}

/* The result has so many elements along spatial dimension d. */
static int extent(const at *c, int d)
{
    const int pads = c->pad[d] + c->pad[d + 2];
    return c->turned ? c->size + 2 - pads : (c->size + pads - 2 * c->dilation - 1) / c->stride + 1;
}

static void put_graph(nnc_text *t, const at *c, bool fixed)
{
    const int rows = c->turned ? c->channels : c->outputs,
              columns = (c->turned ? c->outputs : c->channels) / c->groups;
    nnc_printf(t,
        "graph @t {\n%%i = input : f32[%d,%d,%d,%d]\n%%x = relayout %%i {order=[0,2,3,1]}\n%%b = "
        "input : f32[%d]\n",
        BATCH, c->channels, c->size, c->size, c->outputs);
    nnc_printf(t, "%%w = %s : f32[%d,%d,3,3]%s\n", fixed ? "param" : "input", rows, columns,
        fixed ? " = gen(\"w\", seed=1, scale=0.1)" : "");
    nnc_printf(t,
        "%%y = conv%s %%x, %%w%s {pads=[%d,%d,%d,%d], strides=[%d,%d], dilations=[%d,%d], "
        "groups=%d}\n",
        c->turned ? "_transpose" : "", c->end ? ", %b" : "", c->pad[0], c->pad[1], c->pad[2],
        c->pad[3], c->stride, c->stride, c->dilation, c->dilation, c->groups);
    if (c->end > 2)
        nnc_printf(t, "%%j = input : f32[%d,%d,%d,%d]\n%%r = relayout %%j {order=[0,2,3,1]}\n",
            BATCH, c->outputs, extent(c, 0), extent(c, 1));
    nnc_puts(t, c->end == 1   ? "%z = relu %y\n"
                : c->end == 2 ? "%z = silu %y\n"
                : c->end == 3 ? "%s = add %y, %r\n%z = relu %s\n"
                : c->end == 4 ? "%z = mul %y, %r\n"
                              : "%z = neg %y\n");
    nnc_puts(t, "return %z }");
}

static int ops(const nnc_graph *g, nnc_op op)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        n += g->node[i].op == op;
        n += g->node[i].body ? ops(g->node[i].body, op) : 0;
    }
    return n;
}

/* The graph of x's and w's gradients, where r is that of z if there is one: its channels lie last. */
static void differentiate(nnc_graph *g)
{
    nnc_ref x[4], dx[4], dz = NNC_NONE;
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        if (g->node[i].op == OP_input)
            x[n++] = g->node[i].out;
        else if (g->node[i].op == OP_relayout && n > 2)
            dz = g->node[i].out;
    }
    CHECK_OK(nnc_gradients(g, 1, g->output, dz == NNC_NONE ? NULL : &dz, n, x, dx, test_sink));
    for (int i = 0; i < n; i++)
        if (dx[i] != NNC_NONE)
            nnc_output(g, dx[i], NULL);
    CHECK_OK(nnc_graph_tidy(g));
}

static nnc_graph *rewritten(const nnc_graph *g)
{
    nnc_target t = test_cpu(2, true);
    const nnc_pass_options o = {.level = 2, .target = &t, .n_target = 1};
    nnc_graph *h = nnc_graph_clone(g, test_sink);
    CHECK_OK(nnc_passes_run(&h, &o, NULL, test_sink));
    nnc_target_deinit(&t);
    return h;
}

/* Results of g as the pass made it, h, near those of g: docs/math.md. */
static void compare(const nnc_graph *g, const nnc_graph *h, int i, int threads)
{
    enum { MOST = 5 }; /* 1e-6 of the largest result */
    NNC_LOCAL(nnc_text) why = {0};
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    api_data d = {0};
    api_run r = {0};
    o.level = 0;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = threads}, &e, test_sink));
    CHECK(api_inputs(&d, g, test_seed + (uint64_t)i, false));
    CHECK_OK(api_truth(&d, g, test_sink));
    if (d.want && !api_compile_and_run(e, h, &o, &d, &r, &why, test_sink))
        test_fail(__FILE__, __LINE__, "case %d: %s", i, nnc_text_str(&why));
    for (uint32_t k = 0; k < d.n_out && r.out; k++) {
        const nnc_type *t = nnc_typeof(g, g->output[k]);
        const api_diff x = api_compare(t, r.out[k], &d.want[k]);
        double most = 0;
        for (int64_t j = 0; j < nnc_type_numel(t); j++)
            most = fmax(most, fabs(d.want[k].f[j]));
        if (x.wrong || !(x.max_abs <= MOST * 1e-6 * most))
            test_fail(__FILE__, __LINE__, "case %d, result %u: %g off, the largest is %g", i, k,
                x.max_abs, most);
    }
    api_run_free(&r);
    api_data_free(&d);
    nnc_env_destroy(e);
}

/* Tables of measured times tell gradients of weights from convolutions. */
static void check_classes(const nnc_graph *h)
{
    for (uint32_t i = 0; i < h->n_node; i++) {
        const nnc_node *n = &h->node[i];
        if (n->op == OP_winograd_wgrad || (n->body && ops(n->body, OP_winograd_wgrad)))
            CHECK_STR(nnc_plan_class(h, n), "winograd_wgrad");
    }
}

TEST(winograd_of_drawn_convolutions)
{
    int many[2] = {0}, few = 0, gradients = 0;
    for (int i = 0; i < test_draws(96); i++) {
        at c = drawn(i);
        const bool fixed = i % 2 == 0;
        if (i % 3 == 0 && c.end % 2) /* gradients at a relu's near ties may be of either side */
            c.end = 4;
        NNC_LOCAL(nnc_text) t = {0};
        nnc_scan s;
        put_graph(&t, &c, fixed);
        nnc_scan_init(&s, "t", nnc_text_str(&t), t.n);
        nnc_graph *g = nnc_graph_parse(&s, test_sink);
        if (!g) {
            test_fail_status(__FILE__, __LINE__, nnc_text_str(&t), NNC_E_MODEL);
            continue;
        }
        if (i % 3 == 0)
            differentiate(g);
        nnc_graph *h = rewritten(g);
        const int n = ops(h, OP_winograd);
        if (c.dilation > 1 || c.groups > 1 || c.stride > 1)
            CHECK_INT(n, 0);
        many[fixed] += n;
        few += n == 0;
        gradients += ops(h, OP_winograd_wgrad);
        check_classes(h);
        compare(g, h, i, 1 + i % 2);
        nnc_graph_destroy(h);
        nnc_graph_destroy(g);
    }
    printf(
        "  %d of weights transformed once, %d at each run, %d without, %d gradients of weights\n",
        many[1], many[0], few, gradients);
    CHECK(many[0] && many[1] && few && gradients);
}

/* Poolings that are computed where the concat's result lies: their images are further apart than those of the convolutions. */
TEST(winograd_pools_into_a_concat)
{
    static const char text[] =
        "graph @t {\n%i = input : f32[3,32,17,32]\n%j = input : f32[3,32,18,32]\n"
        "%x = relayout %i {order=[0,2,3,1]}\n%y = relayout %j {order=[0,2,3,1]}\n"
        "%w = param : f32[32,32,3,3] = gen(\"w\", seed=1, scale=0.1)\n"
        "%a = conv %x, %w {pads=[1,1,0,1]}\n%b = conv %y, %w {pads=[0,1,0,1]}\n"
        "%p = maxpool %a {kernel=[2,2], strides=[2,2]}\n%q = maxpool %b {kernel=[2,2], "
        "strides=[2,2]}\n"
        "%z = concat %p, %q {axis=2}\nreturn %z }";
    nnc_scan s;
    nnc_scan_init(&s, "t", text, sizeof text - 1);
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    if (!g)
        return;
    nnc_graph *h = rewritten(g);
    CHECK_INT(ops(h, OP_winograd), 2);
    CHECK_INT(ops(h, OP_maxpool), 2); /* in their kernels */
    compare(g, h, 0, 2);
    nnc_graph_destroy(h);
    nnc_graph_destroy(g);
}
