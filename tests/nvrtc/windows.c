/* tests/nvrtc/windows.c -- machine code of windows: depthwise convolutions between two 1x1 ones, as mobile nets have them, and pooling.
 * Nothing is spilled or in local memory, and results of 16 bits are stored by 64 or 128 bits. Instructions for each result on the full
 * path, with all rows of the window, stay under a budget. The kernel is there rather than a library's call. Windows that lie side by
 * side along memory are loaded by 128 bits, too. */
#include "gpu_share.h"
#include "session/session.h"
#include "cuda/cuda.h"
#include "ir/ir.h"
#include "plan/plan.h"
#include "test.h"

static const char *const archs[] = {"cuda:sm_75", "cuda:sm_80", "cuda:sm_90", "cuda:sm_100"};

typedef struct window {
    const char *type;
    int c, size, k, stride;
    double most; /* instructions for each result inside of the edges */
} window;

/* Measured on sm_75 to sm_100, and a tenth. Of 16 bits the channels lie last; strict f32 is row-major, one result a store. A copy leaves 31
 * instructions for a result of 16 bits with stride 1. Those of 5x5 windows are computed row by row. 25 multiply-adds, 2.4 conversions and
 * loads of the source in strips of 7 (3 in strips of 4), 1 to add the bias, 1 to convert and store. 1 for the loop and the edges; and 2 of
 * relu6. On an sm_100 3x3 windows are, too. An sm_75 has the time for 113 instructions, an sm_80 for 47: strips of a row. */
static const window windows[] = {
    {"f32", 32, 112, 3, 1, 31},
    {"f16", 32, 112, 3, 1, 30},
    {"f16", 96, 112, 3, 2, 32},
    {"bf16", 32, 112, 3, 1, 27},
    {"f32", 144, 56, 5, 2, 74},
    {"f16", 144, 56, 5, 2, 63},
    {"f16", 240, 28, 5, 1, 36},
    {"bf16", 240, 28, 5, 1, 36},
    {"f16", 480, 14, 5, 1, 34},
    {"bf16", 672, 14, 5, 1, 34},
    {"f16", 1152, 7, 5, 1, 34},
};

static nnc_graph *graph_of(const window *w)
{
    char text[800];
    nnc_scan s;
    snprintf(text, sizeof text,
        "graph @t {\n%%x = input : %s[128,%d,%d,%d]\n%%v = input : %s[%d,%d,1,1]\n"
        "%%w = param : %s[%d,1,%d,%d] = gen(\"w\", seed=0, scale=0.1, shift=0)\n"
        "%%b = param : %s[%d] = gen(\"b\", seed=0, scale=0.1, shift=0)\n%%p = conv %%x, %%v\n"
        "%%c = conv %%p, %%w, %%b {groups=%d, strides=[%d,%d], pads=[%d,%d,%d,%d]}\n"
        "%%r = relu6 %%c\n%%y = conv %%r, %%v\nreturn %%y as \"y\" }",
        w->type, w->c, w->size, w->size, w->type, w->c, w->c, w->type, w->c, w->k, w->k, w->type,
        w->c, w->c, w->stride, w->stride, w->k / 2, w->k / 2, w->k / 2, w->k / 2);
    nnc_scan_init(&s, "t", text, strlen(text));
    return nnc_graph_parse(&s, test_sink);
}

static void check_code(const void *ctx, const char *arch, const nnc_cubin_kernel *k)
{
    const window *w = ctx;
    int size = w->type[1] == '3' ? 4 : 2;
    nnc_cubin_path p;
    CHECK(nnc_cubin_path_of(k, &p));
    /* row by row: one iteration, of pairs of channels */
    const bool walks = p.loop.ahead > 0;
    const int once = walks ? 0 : p.once.issued,
              stored = p.loop.stores + (walks ? 0 : p.once.stores);
    const double each = stored > 0 ? (double)(once + p.loop.issued) * size / stored : 1e9;
    const bool strips = w->k == 5 && w->stride == 1 && size == 2 && !walks;
    const int narrow = k->store_bits[0] + k->store_bits[1] + (walks ? 0 : k->store_bits[2]);
    const bool wrong =
        k->stack_bytes || k->n[CC_load_local] || k->n[CC_store_local] || k->n[CC_unknown] ||
        k->registers > (walks ? 168 : 128) || each > (strips ? 60 : w->most) ||
        (strips && strcmp(arch, "cuda:sm_75") != 0) ||
        (size == 2 && (narrow || !(k->store_bits[2] + k->store_bits[3] + k->store_bits[4])));
    if (wrong)
        test_fail(__FILE__, __LINE__,
            "%s: %s %d channels of %d, %dx%d by %d%s: %d registers, %d bytes of stack, %.1f "
            "instructions a result (at most %.0f), %d narrow stores",
            arch, w->type, w->c, w->size, w->k, w->k, w->stride, walks ? ", row by row" : "",
            k->registers, k->stack_bytes, each, w->most, narrow);
}

typedef void check_kernel(const void *w, const char *arch, const nnc_cubin_kernel *k);

/* Compiles g and gives each kernel whose name holds `part` to `code`. Returns the calls of libraries. */
static int check(
    nnc_env *e, nnc_graph *g, const char *part, check_kernel *code, const void *w, const char *arch)
{
    nnc_artifact *a = NULL;
    nnc_cubin_kernel *k;
    nnc_arena mem;
    int n = 0, sm, found = 0;
    nnc_arena_init(&mem, 0);
    CHECK_OK(g ? nnc_compile(e, g, &nnc_compile_defaults, &a, test_sink) : NNC_E_NOMEM);
    const nnc_plan *p = a ? nnc_artifact_plan(a) : NULL;
    for (int i = 0; p && i < p->n_object; i++) {
        CHECK_OK(nnc_cubin_read(p->object[i].data, p->object[i].n, &mem, &k, &n, &sm, test_sink));
        for (int j = 0; j < n; j++)
            if (strstr(k[j].name, part) && !strstr(k[j].name, "_finish")) {
                code(w, arch, &k[j]);
                found++;
            }
    }
    CHECK_INT(found, 1);
    int calls = p ? p->n_call : -1;
    nnc_arena_deinit(&mem);
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
    return calls;
}

static bool absent(void)
{
    nnc_cuda_found f;
    nnc_cuda_look(CUDA_nvrtc, &f);
    if (!f.ok)
        test_skip("no NVRTC: %s", f.why);
    return !f.ok;
}

static void on_each_arch(void (*body)(nnc_env *e, size_t arch))
{
    if (absent())
        return;
    for (size_t t = 0; t < NNC_COUNT(archs); t++) {
        nnc_env *e;
        if (!test_takes(t, 2))
            continue;
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = archs[t], .no_cache = true}, &e, test_sink));
        if (e)
            body(e, t);
        nnc_env_destroy(e);
    }
}

/* Each on as many architectures as are drawn, by default at most one. */
static void check_windows(nnc_env *e, size_t t)
{
    for (size_t i = 0; i < NNC_COUNT(windows); i++)
        if (test_takes(i + t / 2, 4) &&
            (t > 0 || windows[i].type[0] != 'b')) /* sm_75 does not convolve bf16 */
            CHECK_INT(
                check(e, graph_of(&windows[i]), "_conv", check_code, &windows[i], archs[t]), 2);
}

TEST(nvrtc_windows)
{
    on_each_arch(check_windows);
}

/* ---- gradients ---- */

/* Of weights: instructions for a multiply-add, measured and a tenth (one element over one place at a time: 11 to 56). */
typedef struct gradient {
    const char *type;
    int c, size, k, stride;
    double most;
} gradient;

static const gradient gradients[] = {
    {"bf16", 240, 28, 5, 1, 3},
    {"f16", 96, 112, 3, 2, 4},
};

static nnc_graph *gradient_of(const gradient *w)
{
    char text[800];
    nnc_scan s;
    snprintf(text, sizeof text,
        "graph @t {\n%%x = input : %s[32,%d,%d,%d]\n%%d = input : %s[32,%d,%d,%d]\n"
        "%%v = input : %s[%d,%d,1,1]\n%%p = conv %%x, %%v\n%%q = conv %%d, %%v\n"
        "%%y = conv_wgrad %%p, %%q {kernel=[%d,%d], groups=%d, strides=[%d,%d], "
        "pads=[%d,%d,%d,%d]}\nreturn %%y }",
        w->type, w->c, w->size, w->size, w->type, w->c, w->size / w->stride, w->size / w->stride,
        w->type, w->c, w->c, w->k, w->k, w->c, w->stride, w->stride, w->k / 2, w->k / 2, w->k / 2,
        w->k / 2);
    nnc_scan_init(&s, "t", text, strlen(text));
    return nnc_graph_parse(&s, test_sink);
}

static void check_gradient(const void *ctx, const char *arch, const nnc_cubin_kernel *k)
{
    const gradient *w = ctx;
    nnc_cubin_path p;
    CHECK(nnc_cubin_path_of(k, &p));
    const double each = p.loop.n[CC_real] > 0 ? (double)p.loop.issued / p.loop.n[CC_real] : 1e9;
    if (k->stack_bytes || k->n[CC_load_local] || k->registers > 64 || each > w->most)
        test_fail(__FILE__, __LINE__,
            "%s: %s gradient of %d channels of %d, %dx%d by %d: %d registers, %d bytes of stack, "
            "%.1f instructions a multiply-add (at most %.1f)",
            arch, w->type, w->c, w->size, w->k, w->k, w->stride, k->registers, k->stack_bytes, each,
            w->most);
}

static void check_gradients(nnc_env *e, size_t t)
{
    for (size_t i = 0; i < NNC_COUNT(gradients) && t > 1; i++) /* two architectures, for time */
        CHECK_INT(
            check(e, gradient_of(&gradients[i]), "_wgrad", check_gradient, &gradients[i], archs[t]),
            2);
}

TEST(nvrtc_depthwise_gradients)
{
    on_each_arch(check_gradients);
}

/* ---- windows side by side ---- */

typedef struct pooling {
    const char *op, *type;
    int size, k;
    int bits; /* of the widest load, which is the only one */
} pooling;

/* Row-major; the last: so few that threads take one window each, a pair a load. */
static const pooling poolings[] = {
    {"maxpool", "f32", 112, 2, 128},
    {"avgpool", "f32", 112, 2, 128},
    {"maxpool", "f16", 112, 2, 128},
    {"maxpool", "f32", 96, 3, 128},
    {"maxpool", "f32", 14, 2, 64},
};

static nnc_graph *pooling_of(const pooling *p)
{
    char text[400];
    nnc_scan s;
    snprintf(text, sizeof text,
        "graph @t {\n%%x = input : %s[8,64,%d,%d]\n%%p = %s %%x {kernel=[%d,%d], strides=[%d,%d]}\n"
        "%%y = sigmoid %%p\nreturn %%y as \"y\" }",
        p->type, p->size, p->size, p->op, p->k, p->k, p->k, p->k);
    nnc_scan_init(&s, "t", text, strlen(text));
    return nnc_graph_parse(&s, test_sink);
}

static void check_loads(const void *ctx, const char *arch, const nnc_cubin_kernel *k)
{
    const pooling *p = ctx;
    for (int i = 0; i < 5; i++) /* 8 to 128 bits */
        if ((k->load_bits[i] > 0) != (8 << i == p->bits))
            test_fail(__FILE__, __LINE__, "%s: %s of %s, %d by %d: %d loads of %d bits", arch,
                p->op, p->type, p->size, p->k, k->load_bits[i], 8 << i);
    CHECK_INT(k->stack_bytes + k->n[CC_load_local] + k->n[CC_store_local], 0);
}

static void check_poolings(nnc_env *e, size_t t)
{
    for (size_t i = 0; i < NNC_COUNT(poolings); i++)
        CHECK_INT(check(e, pooling_of(&poolings[i]), "k_", check_loads, &poolings[i], archs[t]), 0);
}

TEST(nvrtc_pooling)
{
    on_each_arch(check_poolings);
}

/* ---- windows over parts ---- */

/* GoogLeNet's poolings of concats, whose elements are each one of four branches': in strips, the third took 255 registers, spilled, and
 * left an SM one block. */
static void check_pools_of_parts(nnc_env *e, size_t t)
{
    enum { MOST = 104 };
    const nnc_arg batch = {"batch", "128"};
    nnc_compile_options o = nnc_compile_defaults;
    nnc_artifact *a = NULL;
    nnc_cubin_kernel *k;
    nnc_arena mem;
    int n = 0, sm, found = 0;
    if (strcmp(archs[t], "cuda:sm_90") != 0) /* a whole model: one of them */
        return;
    o.precision = NNC_PRECISION_f16;
    nnc_arena_init(&mem, 0);
    nnc_model *g = nnc_model_open(
        "models/googlenet.json", &(nnc_open_options){.arg = &batch, .n_arg = 1}, test_sink);
    CHECK_OK(g ? nnc_compile(e, g, &o, &a, test_sink) : NNC_E_MODEL);
    const nnc_plan *p = a ? nnc_artifact_plan(a) : NULL;
    for (int i = 0; p && i < p->n_object; i++) {
        CHECK_OK(nnc_cubin_read(p->object[i].data, p->object[i].n, &mem, &k, &n, &sm, test_sink));
        for (int j = 0; j < n; j++) {
            const bool pools = strstr(k[j].name, "concat_maxpool") != NULL;
            found += pools;
            if (pools && (k[j].registers > MOST || k[j].stack_bytes))
                test_fail(__FILE__, __LINE__, "%s: %s: %d registers, at most %d; %d bytes of stack",
                    archs[t], k[j].name, k[j].registers, MOST, k[j].stack_bytes);
        }
    }
    CHECK_INT(found, 2);
    nnc_arena_deinit(&mem);
    nnc_artifact_destroy(a);
    nnc_model_close(g);
}

TEST(nvrtc_pooling_of_parts)
{
    on_each_arch(check_pools_of_parts);
}

/* ---- stores of vectors ---- */

/* Rows of several vectors a thread, and a padding that some lanes share: NVRTC split stores of their first vectors. */
static const char *const stored[] = {
    "graph @t {\n%x = input : f32[9,2,8,8]\n%w = input : f32[2,8,8]\n"
    "%y = groupnorm %x {eps=1e-5, num_groups=2}\n%z = mul %y, %w\nreturn %z }",
    "graph @t {\n%x = input : f32[64,5400,3]\n%y = pad %x {pads=[2,0,1,2,0,0], value=1}\nreturn %y "
    "}",
};

static void check_stores(const void *ctx, const char *arch, const nnc_cubin_kernel *k)
{
    const char *text = ctx;
    for (int i = 0; i < 4; i++) /* 8 to 64 bits */
        if (k->store_bits[i])
            test_fail(__FILE__, __LINE__, "%s: %d stores of %d bits:\n%s", arch, k->store_bits[i],
                8 << i, text);
    CHECK(k->store_bits[4] > 0);
}

static void check_stored(nnc_env *e, size_t t)
{
    for (size_t i = 0; i < NNC_COUNT(stored); i++) {
        nnc_scan s;
        nnc_scan_init(&s, "t", stored[i], strlen(stored[i]));
        CHECK_INT(
            check(e, nnc_graph_parse(&s, test_sink), "k_", check_stores, stored[i], archs[t]), 0);
    }
}

TEST(nvrtc_vector_stores)
{
    on_each_arch(check_stored);
}
