/* tests/api/verify.c -- nnc verify MODEL: every layer against float64, the first that differs by name, and the smallest model that still
 * differs. Faults are planted in the optimised graph. */
#include "help.h"
#include "check/check.h"
#include "tensors/tensors.h"
#include "kernel/kernel.h"
#include "train/train.h"
#include <stdlib.h>
#include <unistd.h>

/* Convolutions of 3x3 read what a layer has stored: the groups before them end there. */
static const char model[] =
    "{\"name\": \"net\", \"inputs\": {\"x\": [2, 3, 16, 16]}, \"layers\": ["
    "{\"op\": \"conv\", \"name\": \"stem\", \"channels\": 8, \"kernel\": 3, \"pad\": 1},"
    "{\"op\": \"batchnorm\", \"name\": \"norm\"}, {\"op\": \"relu\", \"name\": \"first\"},"
    "{\"op\": \"maxpool\", \"name\": \"pool\", \"kernel\": 2},"
    "{\"op\": \"conv\", \"name\": \"second\", \"channels\": 8, \"kernel\": 3, \"pad\": 1},"
    "{\"op\": \"silu\", \"name\": \"act\"},"
    "{\"op\": \"add\", \"name\": \"sum\", \"in\": [\"prev\", \"pool\"]},"
    "{\"op\": \"relu\", \"name\": \"last\"},"
    "{\"op\": \"conv\", \"name\": \"third\", \"channels\": 4, \"kernel\": 3},"
    "\"flatten\","
    "{\"op\": \"linear\", \"name\": \"fc\", \"out\": 5}, {\"op\": \"softmax\", \"name\": "
    "\"prob\"}]}";

typedef struct fault {
    const char *pass, *layer; /* after this pass, in nodes of this layer ... */
    nnc_op from, to; /* ... this op becomes that */
    int planted;
} fault;

static void plant_in(fault *f, const nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_node *n = &g->node[i];
        if (n->body)
            plant_in(f, n->body);
        if (n->op == f->from && n->origin && strstr(n->origin, f->layer)) {
            n->op = (uint16_t)f->to;
            f->planted++;
        }
    }
}

static void plant(void *ctx, const char *pass, const nnc_model *g, int changed, int64_t ns)
{
    fault *f = ctx;
    (void)changed, (void)ns;
    if (!strcmp(pass, f->pass))
        plant_in(f, g);
}

static nnc_model *open_model(const char *text)
{
    nnc_model_options o = {.seed = 0};
    nnc_model *m = nnc_model_parse("net.json", text, strlen(text), &o, test_sink);
    CHECK(m != NULL);
    return m;
}

/* The report; *agrees. */
static char *verify(const nnc_model *m, const nnc_compare_options *o, const char *against,
    nnc_format f, bool *agrees)
{
    nnc_env *e = api_env_for(&o->compile);
    NNC_LOCAL(nnc_text) t = {0};
    CHECK_OK(nnc_verify_model(e, m, o, against, f, &t, agrees, test_sink));
    nnc_env_destroy(e);
    return strdup(nnc_text_str(&t));
}

static void check_has(const char *report, const char *part)
{
    if (!strstr(report, part))
        test_fail(__FILE__, __LINE__, "no `%s` in\n%s", part, report);
}

TEST(layers_agree)
{
    static const char *const layer[] = {"/layers/0/stem", "/layers/1/norm", "/layers/2/first",
        "/layers/3/pool", "/layers/4/second", "/layers/5/act", "/layers/6/sum", "/layers/7/last",
        "/layers/8/third", "/layers/10/fc", "\nprob "};
    nnc_model *m = open_model(model);
    for (int level = 0; level <= 3; level++) {
        nnc_compare_options o = nnc_compare_defaults;
        bool agrees = false;
        o.compile.level = level;
        char *report = verify(m, &o, NULL, NNC_TEXT, &agrees);
        CHECK(agrees);
        for (size_t i = 0; i < NNC_COUNT(layer); i++)
            check_has(report, layer[i]);
        check_has(report, "all layers agree with float64");
        CHECK((strstr(report, "  inside ") != NULL) == (level >= 2));
        free(report);
    }
    nnc_model_close(m);
}

/* A layer of many nodes: its results are those that another layer reads. */
TEST(layers_of_several_results)
{
    static const char text[] =
        "{\"inputs\": {\"x\": [4, 2, 3]}, \"layers\": [{\"op\": \"lstm\", \"name\": \"l\", "
        "\"hidden\": 5}, {\"op\": \"linear\", \"name\": \"y\", \"out\": 2}, {\"op\": \"sort\", "
        "\"name\": \"s\"}, \"relu\"]}";
    nnc_model *m = open_model(text);
    bool agrees = false;
    char *report = verify(m, &nnc_compare_defaults, NULL, NNC_TEXT, &agrees);
    CHECK(agrees);
    check_has(report, "/layers/0/l ");
    check_has(report, "/layers/2/s:0 ");
    CHECK(!strstr(report, "/layers/2/s:1")); /* nothing reads the indices */
    CHECK(!strstr(report, "inside     inside"));
    free(report);
    nnc_model_close(m);
}

/* Nodes that compute. */
static int size_of(const nnc_graph *g)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        n += nnc_op_class((nnc_op)g->node[i].op) != CL_leaf;
    return n;
}

static void check_small(
    const nnc_model *m, const nnc_compare_options *o, int most, const char *layer)
{
    nnc_env *e = api_env_for(&o->compile);
    nnc_model *small = NULL;
    bool agrees = true;
    CHECK_OK(nnc_smallest_failing(e, m, o, &small, test_sink));
    CHECK(small != NULL);
    if (small) {
        NNC_LOCAL(nnc_text) text = {0};
        nnc_print_model(small, &text);
        if (size_of(small) > most)
            test_fail(__FILE__, __LINE__, "%d nodes, not %d:\n%s", size_of(small), most, text.s);
        check_has(text.s, layer);
        CHECK(size_of(small) < size_of(m));
        free(verify(small, o, NULL, NNC_TEXT, &agrees));
        CHECK(!agrees);
    }
    nnc_model_close(small);
    nnc_env_destroy(e);
}

static void plant_in_kernel(void *ctx, const nnc_kernel *k, const char *layers)
{
    fault *f = ctx;
    for (int i = 0; strstr(layers, f->layer) && i < k->n_ins; i++)
        if (k->ins[i].op == KO_sop && k->ins[i].sop == SC_max) {
            k->ins[i].sop = SC_min;
            f->planted++;
        }
}

/* A wrong kernel is found where it is, though all later layers are wrong, too. */
TEST(fault_in_a_kernel)
{
    nnc_model *m = open_model(model);
    nnc_compare_options o = nnc_compare_defaults;
    bool agrees = true;
    fault f = {.layer = "/layers/6/sum+/layers/7/last"};
    o.compile.on_kernel = plant_in_kernel;
    o.compile.ctx = &f;
    char *report = verify(m, &o, NULL, NNC_TEXT, &agrees);
    CHECK(f.planted > 0 && !agrees);
    check_has(report, "first over its limit: /layers/7/last (net.json:1) f32[2,8,8,8]\n");
    check_has(report, "  fused: element ");
    check_has(report, "computed by /layers/");
    check_has(report, "/layers/5/act+/layers/6/sum+/layers/7/last\n"); /* or with the convolution */
    CHECK(!strstr(report, "a pass is wrong"));
    check_small(m, &o, 2, "/layers/7/last");
    free(report);
    report = verify(m, &o, NULL, NNC_JSON, &agrees);
    check_has(report, "\"agree\": false, \"first\": \"/layers/7/last\"");
    free(report);
    nnc_model_close(m);
}

/* A pass that changes the mathematics: kernels compute what the graph says, but not the model. */
TEST(fault_in_a_pass)
{
    static const struct {
        fault f;
        const char *first;
        int most; /* nodes that are left */
    } cases[] = {
        {{"fuse", "/layers/7/last", OP_relu, OP_abs}, "/layers/7/last", 2},
        {{"fuse", "/layers/6/sum", OP_add, OP_sub}, "/layers/7/last", 2},
    };
    nnc_model *m = open_model(model);
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_compare_options o = nnc_compare_defaults;
        char first[64];
        bool agrees = true;
        fault f = cases[i].f;
        o.compile.after_pass = plant;
        o.compile.ctx = &f;
        char *report = verify(m, &o, NULL, NNC_TEXT, &agrees);
        CHECK(f.planted > 0 && !agrees);
        snprintf(first, sizeof first, "a pass is wrong, first at %s (", cases[i].first);
        check_has(report, "first over its limit: prob ");
        check_has(report, first);
        check_small(m, &o, cases[i].most, cases[i].f.layer);
        free(report);
    }
    nnc_model_close(m);
}

/* ---- training steps ----------------------------------------------------------------------------- */

static nnc_model *open_step(const nnc_training *t)
{
    nnc_model *m = open_model(model), *step = NULL;
    CHECK_OK(nnc_train_graph(m, t, &step, test_sink));
    nnc_model_close(m);
    return step;
}

/* Gradients, new weights, moments and running statistics. */
TEST(layers_of_steps_agree)
{
    static const char *const row[] = {"/layers/0/stem ", "/loss ", "/loss/backward ",
        "/layers/10/fc/backward ", "gradient of fc.weight ", "gradient of stem.bias ",
        "gradient of norm.weight ", "changes of states in a step", "\nstem.weight ",
        "\nnorm.running_mean ", "\nfc.bias "};
    for (int i = 0; i < 3; i++) {
        nnc_training t = nnc_training_defaults;
        nnc_compare_options o = nnc_compare_defaults;
        bool agrees = false;
        t.optimizer = (nnc_optimizer)i;
        t.momentum = 0.9;
        t.clip_norm = i == 1 ? 1 : 0;
        nnc_model *m = open_step(&t);
        o.training = &t;
        o.compile.level = i ? 2 : 0;
        char *report = verify(m, &o, NULL, NNC_TEXT, &agrees);
        if (!agrees)
            test_fail(__FILE__, __LINE__, "%s", report);
        for (size_t k = 0; k < NNC_COUNT(row); k++)
            check_has(report, row[k]);
        check_has(report, i ? "\nfc.weight.exp_avg_sq " : "\nfc.weight.momentum ");
        free(report);
        nnc_model_close(m);
    }
}

/* A view of a weight is a layer's value, but its old value is gone after the step. */
TEST(views_of_trained_weights)
{
    static const char text[] =
        "{\"inputs\": {\"x\": [4, 3]}, \"layers\": [{\"op\": \"param\", \"name\": \"w\", "
        "\"shape\": [6]}, {\"op\": \"reshape\", \"shape\": [3, 2]}, "
        "{\"op\": \"matmul\", \"in\": [\"x\", \"prev\"]}]}";
    nnc_training t = nnc_training_defaults;
    nnc_compare_options o = nnc_compare_defaults;
    bool agrees = false;
    nnc_model *m = open_model(text), *step = NULL;
    CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
    o.training = &t;
    char *report = verify(step, &o, NULL, NNC_TEXT, &agrees);
    CHECK(agrees);
    check_has(report, "gradient of w");
    free(report);
    nnc_model_close(step);
    nnc_model_close(m);
}

/* If scores hardly differ, the gradients of queries and keys are 0 but for rounding. These values are not the layer's, whose gradient is
 * that of the values. */
TEST(gradients_that_nearly_vanish)
{
    static const char text[] = "{\"inputs\": {\"x\": [5, 7, 6]}, \"layers\": [{\"op\": \"linear\", "
                               "\"name\": \"a\", \"out\": 6}, "
                               "{\"op\": \"mul\", \"value\": 1e-3}, {\"op\": "
                               "\"multihead_attention\", \"heads\": 1, \"name\": \"b\"}, "
                               "{\"op\": \"multihead_attention\", \"heads\": 2, \"name\": \"c\"}]}";
    nnc_training t = nnc_training_defaults;
    nnc_compare_options o = nnc_compare_defaults;
    bool agrees = false;
    t.class_axis = -1;
    nnc_model *m = open_model(text), *step = NULL;
    CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
    o.training = &t;
    char *report = verify(step, &o, NULL, NNC_TEXT, &agrees);
    if (!agrees)
        test_fail(__FILE__, __LINE__, "%s", report);
    free(report);
    nnc_model_close(step);
    nnc_model_close(m);
}

/* The gradient of a bias of keys is 0 but for rounding, which adam's first step would make as large as every other. So verify and compare
 * take another first step. */
TEST(adam_of_gradients_that_vanish)
{
    static const char text[] = "{\"inputs\": {\"x\": [8, 5, 6]}, \"layers\": [{\"op\": \"linear\", "
                               "\"name\": \"q\", \"out\": 8, \"in\": \"x\"}, "
                               "{\"op\": \"linear\", \"name\": \"k\", \"out\": 8, \"in\": \"x\"}, "
                               "{\"op\": \"linear\", \"name\": "
                               "\"v\", \"out\": 8, \"in\": \"x\"}, {\"op\": \"attention\", \"in\": "
                               "[\"q\", \"k\", \"v\"], \"heads\": 2}, "
                               "{\"op\": \"linear\", \"name\": \"head\", \"out\": 3}]}";
    nnc_training t = nnc_training_defaults;
    nnc_compare_options o = nnc_compare_defaults;
    bool agrees = false;
    t.class_axis = -1;
    t.optimizer = NNC_OPT_adam;
    nnc_model *m = open_model(text), *step = NULL;
    CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
    o.training = &t;
    o.iterations = 1;
    o.warmup = 1;
    o.compile.precision = NNC_PRECISION_f16;
    char *report = verify(step, &o, NULL, NNC_TEXT, &agrees);
    if (!agrees)
        test_fail(__FILE__, __LINE__, "%s", report);
    free(report);
    NNC_LOCAL(nnc_text) out = {0};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    CHECK_OK(nnc_compare(e, step, &o, NNC_TEXT, &out, &agrees, test_sink));
    if (!agrees)
        test_fail(__FILE__, __LINE__, "%s", nnc_text_str(&out));
    nnc_env_destroy(e);
    nnc_model_close(step);
    nnc_model_close(m);
}

static void plant_product(void *ctx, const nnc_kernel *k, const char *layers)
{
    fault *f = ctx;
    int i = 0;
    while (i < k->n_ins && !(k->ins[i].op == KO_sop && k->ins[i].sop == SC_mul))
        i++;
    if (strstr(layers, f->layer) && i < k->n_ins) {
        k->ins[i].sop = SC_add;
        f->planted++;
    }
}

/* A wrong gradient is found in its layer, whether a kernel or a pass is at fault, though all layers before it are wrong, too. */
TEST(wrong_gradients)
{
    const nnc_training t = nnc_training_defaults;
    nnc_model *m = open_step(&t);
    nnc_compare_options o = nnc_compare_defaults;
    bool agrees = true;
    fault f = {.layer = "/layers/5/act/backward"};
    o.training = &t;
    o.compile.skip =
        (const char *const[]){"winograd"}; /* its layers' kernels differ with the CPU */
    o.compile.n_skip = 1;
    o.compile.on_kernel = plant_product;
    o.compile.ctx = &f;
    char *report = verify(m, &o, NULL, NNC_TEXT, &agrees);
    CHECK(f.planted > 0 && !agrees);
    check_has(report, "first over its limit: /layers/5/act/backward (net.json:1) f32[2,8,8,8]\n");
    CHECK(strstr(report, "gradient of third.weight") < strstr(report, "DIFFERS"));
    check_small(m, &o, 12, "/layers/5/act/backward");
    free(report);
    o.compile.on_kernel = NULL;
    f = (fault){"fuse", "/layers/5/act/backward", OP_mul, OP_add, 0};
    o.compile.after_pass = plant;
    report = verify(m, &o, NULL, NNC_TEXT, &agrees);
    CHECK(f.planted > 0 && !agrees);
    check_has(report, "a pass is wrong, first at /layers/");
    const char *first = strstr(report, "a pass is wrong, first at ");
    const char *layer = first ? strstr(first, "/layers/5/act/backward") : NULL; /* of its kernel */
    CHECK(layer && !memchr(first, '\n', (size_t)(layer - first)));
    free(report);
    nnc_model_close(m);
}

/* ---- outputs of a file ------------------------------------------------------------------------- */

static void write_output(const char *file, const char *name, float scale)
{
    const nnc_type t = nnc_type_make(DT_f32, 1, (int64_t[]){4});
    const float y[] = {0 * scale, 1 * scale, 4 * scale, 9 * scale};
    CHECK_OK(nnc_tensor_write(file, name, &t, y, test_sink));
}

TEST(outputs_of_a_file)
{
    static const char square[] = "{\"inputs\": {\"x\": [4]}, \"layers\": [{\"op\": \"square\", "
                                 "\"name\": \"y\"}]}";
    char dir[256], in[300], out[300];
    nnc_model *m = open_model(square);
    nnc_compare_options o = nnc_compare_defaults;
    const nnc_arg input = {"x", in};
    const nnc_type t = nnc_type_make(DT_f32, 1, (int64_t[]){4});
    nnc_env *e = NULL;
    bool agrees = false;
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(in, sizeof in, "%s/x.npy", dir);
    snprintf(out, sizeof out, "%s/y.npz", dir);
    CHECK_OK(nnc_tensor_write(in, "x", &t, (float[]){0, 1, 2, 3}, test_sink));
    o.input = &input;
    o.n_input = 1;
    write_output(out, "y", 1);
    char *report = verify(m, &o, out, NNC_TEXT, &agrees);
    CHECK(agrees);
    check_has(report, "max error 0, rms 0");
    free(report);
    write_output(out, "y", 1.001f);
    report = verify(m, &o, out, NNC_TEXT, &agrees);
    CHECK(!agrees);
    check_has(report, "nearer to float64: nnc  DIFFERS");
    check_has(report, "all layers agree with float64, outputs differ from the file");
    free(report);
    write_output(out, "z", 1);
    NNC_LOCAL(nnc_text) text = {0};
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    CHECK_INT(nnc_verify_model(e, m, &o, out, NNC_TEXT, &text, &agrees, test_sink), NNC_E_MODEL);
    CHECK_DIAG("outputs do not match the model: 1 missing, 1 extra");
    nnc_env_destroy(e);
    nnc_model_close(m);
    api_rmdir(dir);
}

/* Results that reductions store on their way, as machine code and interpreted, on one thread and several. */
TEST(results_of_sums_and_their_operands)
{
    static const char *const text[] = {
        "%y = silu %x\n%m = reduce_mean %y {axes=[1,2], keepdims=1}\nreturn %y, %m",
        "%y = silu %x\n%r = reduce_mean %y {axes=[2], keepdims=1}\n"
        "%m = reduce_mean %r {axes=[1], keepdims=1}\n%z = mul %y, %m\nreturn %z",
        "%y = exp %x\n%m = reduce_max %y {axes=[3]}\nreturn %m, %y",
        "%y = exp %x\n%t = transpose %y {perm=[0,3,1,2]}\n%m = reduce_sum %y {axes=[0,3]}\n"
        "return %t, %m",
        "%r = slice %x {axes=[2,3], starts=[0,0], ends=[1,1]}\n%q = silu %r\n"
        "%y = broadcast %q {shape=[3,5,7,70]}\n%u = sin %y\n%m = reduce_sum %u {axes=[2,3]}\n"
        "return %u, %m",
        "%i = iota {dim=1} : i32[3,5,7,70]\n%f = cast %i {to=f32}\n%y = sin %f\n"
        "%m = reduce_sum %y {axes=[2,3]}\n%z = add %x, %y\nreturn %y, %m, %z",
        "%y = silu %x\n%b = reshape %y {shape=[3,5,7,70,1]}\n%t = broadcast %b "
        "{shape=[3,5,7,70,4]}\n"
        "%m = reduce_sum %y {axes=[2,3]}\nreturn %t, %m",
        "%y = silu %x\n%s = reshape %y {shape=[3,35,70]}\n%m = reduce_sum %s {axes=[1]}\n"
        "return %s, %m",
    };
    for (int way = 0; way < 4; way++)
        for (size_t i = 0; i < NNC_COUNT(text); i++) {
            if (!test_takes(i + (uint64_t)way, 4))
                continue;
            NNC_LOCAL(nnc_text) t = {0}, out = {0};
            nnc_env *e = NULL;
            nnc_scan scan;
            bool agrees = false;
            nnc_printf(&t, "graph @t {\n%%x = input : f32[3,5,7,70]\n%s\n}\n", text[i]);
            nnc_scan_init(&scan, "t", nnc_text_str(&t), t.n);
            nnc_graph *g = nnc_graph_parse(&scan, test_sink);
            const nnc_env_options o = {TEST_CACHED, .threads = way & 1 ? 3 : 1, .no_llvm = way > 1};
            CHECK(g != NULL);
            CHECK_OK(nnc_env_create(&o, &e, test_sink));
            const nnc_compare_options c = {
                .compile = nnc_compile_defaults, .warmup = -1, .iterations = 1};
            CHECK_OK(nnc_compare(e, g, &c, NNC_TEXT, &out, &agrees, test_sink));
            if (!agrees)
                test_fail(__FILE__, __LINE__, "way %d: %s\n%s", way, text[i], nnc_text_str(&out));
            nnc_env_destroy(e);
            nnc_graph_destroy(g);
        }
}
