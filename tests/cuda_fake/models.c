/* tests/cuda_fake/models.c -- models on the fake GPU: `nnc compare` against the float64 reference, plans of several streams. */
#include "fake.h"
#include "plan/plan.h"
#include "session/session.h"
#include "target/target.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *target = "cuda";
static bool gaps; /* the plan has parts with gaps */

static nnc_env *env(void)
{
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.target = target, .no_cache = true}, &e, test_sink));
    return e;
}

/* Writes a machine file of an H200 with slow memory and launches that take no time, so that small models are planned as large ones are. */
static bool write_slow(const char *path)
{
    nnc_target t;
    NNC_LOCAL(nnc_text) text = {0};
    if (nnc_target_cuda(&t, "cuda:sm_90", test_sink) != NNC_OK)
        return false;
    t.copy_bytes_s = 100000000;
    t.launch_ns = 1;
    nnc_target_print_json(&text, &t);
    nnc_target_deinit(&t);
    FILE *f = fopen(path, "w");
    const bool ok = f && fputs(nnc_text_str(&text), f) >= 0;
    return (!f || !fclose(f)) && ok;
}

static bool no_compiler(void)
{
    if (*NNC_TEST_CXX)
        return false;
    test_skip("no C++ compiler to build kernels for the CPU");
    return true;
}

static void check_end(const char *what)
{
    char why[512];
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s: %s", what, why);
}

static bool has_gaps(nnc_env *e, nnc_model *m, const nnc_compile_options *o)
{
    nnc_artifact *a = NULL;
    int n = 0;
    CHECK_OK(nnc_compile(e, m, o, &a, test_sink));
    const nnc_plan *p = a ? nnc_artifact_plan(a) : NULL;
    for (int i = 0; p && i < p->n_tensor; i++)
        n += !nnc_type_is_dense(&p->tensor[i].type);
    nnc_artifact_destroy(a);
    return n > 0;
}

/* Compares on the fake with this seed and precision; `args` are n pairs of name and value. */
static void compare_at(int level, nnc_precision precision, const char *file, const nnc_arg *arg,
    int n, uint64_t seed, int streams)
{
    char what[200];
    snprintf(what, sizeof what, "%s, %s, seed %llu, %d streams", file,
        nnc_precision_name(precision), (unsigned long long)seed, streams);
    fake_begin(seed);
    if (level > 2)
        fake_compiles();
    nnc_env *e = env();
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){.arg = arg, .n_arg = n}, test_sink);
    nnc_compare_options o = {
        .compile = nnc_compile_defaults, .warmup = 1, .iterations = 1, .arg = arg, .n_arg = n};
    o.compile.streams = streams;
    o.compile.precision = precision;
    o.compile.level = level;
    nnc_text t = {0};
    bool agrees = false;
    if (e && m)
        CHECK_OK(nnc_compare(e, m, &o, NNC_TEXT, &t, &agrees, test_sink));
    if (!agrees)
        test_fail(__FILE__, __LINE__, "%s differs\n%s", what, nnc_text_str(&t));
    CHECK(fake_count.launches + fake_count.library_calls > 0);
    if (e && m && gaps)
        CHECK(has_gaps(e, m, &o.compile));
    nnc_text_deinit(&t);
    nnc_model_close(m);
    nnc_env_destroy(e);
    check_end(what);
}

static void compare_in(nnc_precision precision, const char *file, const nnc_arg *arg, int n,
    uint64_t seed, int streams)
{
    compare_at(2, precision, file, arg, n, seed, streams);
}

static void compare(const char *file, const nnc_arg *arg, int n, uint64_t seed, int streams)
{
    compare_in(NNC_PRECISION_default, file, arg, n, seed, streams);
}

TEST(compare_kernels_alone)
{
    if (no_compiler())
        return;
    compare("models/nested_sin.json", (nnc_arg[]){{"n", "4096"}}, 1, 0, 1);
    compare("models/relu.json", (nnc_arg[]){{"batch", "1"}}, 1, 1, 1);
    compare("models/softmax.json", (nnc_arg[]){{"batch", "6"}, {"cols", "300"}}, 2, 2, 1);
    compare("models/layernorm.json", (nnc_arg[]){{"batch", "5"}, {"cols", "1000"}}, 2, 3, 1);
}

TEST(compare_with_libraries)
{
    if (no_compiler())
        return;
    compare("models/mlp.json", (nnc_arg[]){{"batch", "4"}, {"hidden", "32"}}, 2, 4, 1);
    compare("models/matmul.json", (nnc_arg[]){{"dim", "40"}}, 1, 0, 1);
    compare("models/transformer_mlp.json",
        (nnc_arg[]){{"batch", "2"}, {"tokens", "6"}, {"dim", "16"}}, 3, 5, 1);
    compare("models/conv_fc_stack.json",
        (nnc_arg[]){{"batch", "2"}, {"image", "8"}, {"channels", "8"}, {"features", "20"}}, 4, 6,
        1);
    compare("models/maxpool.json", (nnc_arg[]){{"batch", "1"}}, 1, 1, 1);
}

/* One row: linear layers, and the images of one place in squeeze-and-excite blocks, are generated kernels. f32 on two streams. */
TEST(compare_products_of_one_row)
{
    static const nnc_arg mlp[] = {{"batch", "1"}, {"hidden", "32"}},
                         image[] = {{"batch", "1"}, {"image", "32"}};
    if (no_compiler())
        return;
    for (int half = 0; half < 2; half++) {
        if (!test_takes((uint64_t)half, 2))
            continue;
        const nnc_precision p = half ? NNC_PRECISION_f16 : NNC_PRECISION_default;
        compare_in(p, "models/mlp.json", mlp, NNC_COUNT(mlp), 4, 1);
        compare_in(p, "models/efficientnet_b0.json", image, NNC_COUNT(image), 5, 2 - half);
    }
}

/* Channels last, parts have gaps: of the kernels that write and read them. */
TEST(compare_parts_with_gaps)
{
    static const nnc_arg small[] = {{"batch", "2"}, {"image", "32"}, {"growth", "32"},
        {"start", "64"}, {"layers1", "3"}, {"layers2", "1"}, {"layers3", "1"}, {"layers4", "1"},
        {"classes", "8"}};
    char path[64];
    snprintf(path, sizeof path, "/tmp/nnc-slow-%d.json", (int)getpid());
    if (no_compiler())
        return;
    CHECK(write_slow(path));
    target = path;
    gaps = true;
    compare_in(NNC_PRECISION_f16, "models/densenet121.json", small, NNC_COUNT(small), 3, 2);
    target = "cuda";
    gaps = false;
    remove(path);
}

/* Concats whose operands lie in their result, and in 16 bits, channels last, some that do not. */
TEST(compare_parts)
{
    static const nnc_arg small[] = {{"image", "32"}, {"growth", "16"}, {"start", "16"},
        {"layers1", "3"}, {"layers2", "2"}, {"layers3", "1"}, {"layers4", "1"}, {"classes", "8"}};
    if (no_compiler())
        return;
    if (test_takes(0, 2))
        compare("models/densenet121.json", small, NNC_COUNT(small), 7, 2);
    if (test_takes(1, 2))
        compare_in(NNC_PRECISION_f16, "models/densenet121.json", small, NNC_COUNT(small), 8, 1);
}

/* Independent contractions that become one: of one input, and side by side. */
TEST(compare_siblings)
{
    static const nnc_arg beside[] = {
        {"models", "3"}, {"batch", "2"}, {"in", "8"}, {"out", "12"}, {"length", "5"}};
    static const nnc_arg branches[] = {{"image", "33"}, {"slim", "8"}, {"classes", "6"}};
    static const nnc_arg tokens[] = {{"tokens", "6"}, {"batch", "2"}, {"vocabulary", "50"},
        {"layers", "1"}, {"dim", "24"}, {"inner", "40"}, {"heads", "1"}};
    if (no_compiler())
        return;
    compare("models/multi_linear.json", beside, 4, 3, 1);
    compare("models/multi_conv1d.json", beside, 5, 4, 1);
    if (test_takes(0, 2))
        compare("models/googlenet.json", branches, NNC_COUNT(branches), 5, 2);
    if (test_takes(1, 2))
        compare("models/bert_base.json", tokens, NNC_COUNT(tokens) - 1, 6, 1);
    if (test_takes(2, 2)) /* of one head, with a mask */
        compare("models/bert_base.json", tokens, NNC_COUNT(tokens), 6, 1);
}

/* 16 bits between contractions, f32 elsewhere: within the bounds that compare states for them. */
TEST(compare_in_16_bits)
{
    if (no_compiler())
        return;
    for (nnc_precision p = NNC_PRECISION_f16; p <= NNC_PRECISION_bf16; p++) {
        if (!test_takes((uint64_t)p, 2))
            continue;
        compare_in(p, "models/mlp.json", (nnc_arg[]){{"batch", "4"}, {"hidden", "32"}}, 2, 4, 1);
        compare_in(p, "models/transformer_mlp.json",
            (nnc_arg[]){{"batch", "2"}, {"tokens", "6"}, {"dim", "16"}}, 3, 5, 2);
        compare_in(p, "models/conv_fc_stack.json",
            (nnc_arg[]){{"batch", "2"}, {"image", "8"}, {"channels", "8"}, {"features", "20"}}, 4,
            6, 1);
    }
}

/* Compares a model that is given as text, on several streams, in orders that differ. */
static void compare_text_at(
    int level, nnc_precision precision, const char *text, const char *ending, int seeds)
{
    char file[64];
    if (no_compiler())
        return;
    snprintf(file, sizeof file, "/tmp/nnc_fake_XXXXXX%s", ending);
    int fd = mkstemps(file, (int)strlen(ending));
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    for (int seed = 0; seed < seeds; seed++)
        compare_at(level, precision, file, NULL, 0, (uint64_t)seed, 3);
    unlink(file);
}

static void compare_text_in(
    nnc_precision precision, const char *text, const char *ending, int seeds)
{
    compare_text_at(2, precision, text, ending, seeds);
}

static void compare_text(const char *text, const char *ending, int seeds)
{
    compare_text_in(NNC_PRECISION_default, text, ending, seeds);
}

/* A picture of 3 channels that become 4 or 8, a residual sum, attention whose scores are scaled and normalised in f32. */
TEST(compare_text_in_16_bits)
{
    static const char text[] =
        "graph @t {\n%x = input : f32[2,3,16,16]\n"
        "%w = param : f32[8,3,7,7] = gen(\"w\", seed=1, scale=0.1, shift=0)\n"
        "%b = param : f32[8] = gen(\"b\", seed=2, scale=0.1, shift=0)\n"
        "%v = param : f32[8,8,3,3] = gen(\"v\", seed=3, scale=0.1, shift=0)\n"
        "%a = conv %x, %w, %b {strides=[2,2], pads=[3,3,3,3]}\n"
        "%r = relu %a\n%c = conv %r, %v, %b {pads=[1,1,1,1]}\n%s = add %c, %r\n"
        "%q = relu %s\n%p = conv %q, %v {pads=[1,1,1,1]}\n"
        "%f = reshape %p {shape=[2,8,64]}\n%k = matmul %f, %f {transpose_b=1}\n"
        "%h = constant : f32[] = [0.125]\n%l = mul %k, %h\n%m = softmax %l {axis=2}\n"
        "%y = matmul %m, %f\nreturn %y as \"y\" }\n";
    for (nnc_precision p = NNC_PRECISION_f16; p <= NNC_PRECISION_bf16; p++)
        compare_text_in(p, text, ".txt", 2);
}

/* Branches on several streams: events alone keep them in order, and memory is shared as far as they do. */
TEST(streams)
{
    compare_text("{\"inputs\": {\"x\": [64, 96]}, \"layers\": ["
                 "{\"op\": \"exp\", \"name\": \"a\"},"
                 "{\"op\": \"softmax\", \"in\": \"x\", \"name\": \"b\"},"
                 "{\"op\": \"layernorm\", \"in\": \"x\", \"name\": \"c\"},"
                 "{\"op\": \"add\", \"in\": [\"a\", \"b\"], \"name\": \"d\"},"
                 "{\"op\": \"add\", \"in\": [\"d\", \"c\"]}]}",
        ".json", 6);
}

/* %a and %b are rows of %y, which a library reads as a whole. */
TEST(rows_side_by_side)
{
    compare_text("graph @t {\n%x = input : f32[24,16]\n"
                 "%w = param : f32[16,8] = gen(\"w\", seed=1, scale=0.2, shift=0)\n"
                 "%a = softmax %x {axis=1}\n%b = sin %x\n%y = concat %a, %b {axis=0}\n"
                 "%m = matmul %y, %w\n%r = tanh %a\n%s = reduce_max %b {axes=[1]}\n"
                 "return %m as \"m\", %r as \"r\", %s as \"s\" }\n",
        ".txt", 9);
}

/* Points that blocks share: a second launch finishes what the first leaves in the workspace. */
TEST(finished_by_a_second_launch)
{
    compare_text("graph @t {\n%x = input : f32[9001,48]\n%y = reduce_sum %x {axes=[0]}\n"
                 "%z = reduce_max %x {axes=[0]}\nreturn %y as \"y\", %z as \"z\" }\n",
        ".txt", 3);
}

/* Biases that cuDNN does not add: as written and fused, with and without something after them. */
TEST(transposed_convolutions_with_a_bias)
{
    compare_text("graph @t {\n%x = input : f32[2,6,5,5]\n"
                 "%w = param : f32[6,4,4,4] = gen(\"w\", seed=1, scale=0.2, shift=0)\n"
                 "%b = param : f32[4] = gen(\"b\", seed=2, scale=0.2, shift=0)\n"
                 "%v = param : f32[4,3,3,3] = gen(\"v\", seed=3, scale=0.2, shift=0)\n"
                 "%c = param : f32[6] = gen(\"c\", seed=4, scale=0.2, shift=0)\n"
                 "%t = conv_transpose %x, %w, %b {strides=[2,2], pads=[1,1,1,1]}\n"
                 "%r = tanh %t\n"
                 "%y = conv_transpose %r, %v, %c {groups=2}\n"
                 "return %y as \"y\" }\n",
        ".txt", 2);
}

/* Shapes that are large as the models have them. */
TEST(large_models)
{
    if (no_compiler())
        return;
#ifdef __SANITIZE_ADDRESS__
    test_skip("the plain loops of cuDNN's fake take minutes with a sanitizer");
    return;
#endif
    if (test_takes(0, 2)) {
        compare("models/linear.json", (nnc_arg[]){{"batch", "1"}}, 1, 2, 1);
        compare("models/vgg16.json", (nnc_arg[]){{"image", "32"}}, 1, 3, 1);
    }
    if (test_takes(1, 2)) {
        compare("models/conv.json", (nnc_arg[]){{"batch", "1"}}, 1, 1, 1);
        compare_in(NNC_PRECISION_bf16, "models/vgg16.json",
            (nnc_arg[]){{"image", "32"}, {"slim", "2"}}, 2, 3, 1);
    }
    if (getenv("NNC_EXHAUSTIVE")) {
        compare_in(NNC_PRECISION_f16, "models/vgg16.json", (nnc_arg[]){{"image", "32"}}, 1, 3, 1);
        compare_in(NNC_PRECISION_bf16, "models/efficientnet_b0.json", (nnc_arg[]){{"image", "32"}},
            1, 5, 1);
        compare_at(3, NNC_PRECISION_f16, "models/efficientnet_b0.json",
            (nnc_arg[]){{"image", "32"}}, 1, 4, 2);
    }
}
