/* tests/cuda_fake/shared.c -- kernels whose dynamic and static shared memory together are near a block's default (48 KiB). CUDA refuses
 * a launch with more, of which the dynamic part may be less by itself. And kernels for a GPU with more of it than this one has. */
#include "codegen/codegen.h"
#include "engines/engines.h"
#include "fake.h"
#include "help.h"
#include "runtime/runtime.h"
#include "schedule/schedule.h"
#include "target/target.h"
#include <math.h>
#include <stdlib.h>

enum { ROWS = 7 };

/* Rows of n floats, whose exponentials lie in shared memory and are read in reverse. They are multiplied by their sum, which the 32
 * warps of a block combine (128 bytes). */
static void put_kernel(nnc_text *t, int n)
{
    nnc_printf(t,
        "kernel k_test { axis i0 outer 7 axis m0 map %d axis r0 reduce %d axis m1 map %d\n"
        "buf x0 in f32 %d buf y0 out f32 %d buf t0 tmp f32 %d\n"
        "schedule cuda row threads 1024 group 1024 blocks 7 shared %d\n"
        "stage m0 { %%0 = load f32 x0[i0*%d + m0] %%1 = exp f32 %%0 %%2 = store f32 t0[m0] %%1 }\n"
        "stage r0 { %%3 = load f32 x0[i0*%d + r0] %%4 = reduce sum f32 %%3 post }\n"
        "stage m1 { %%5 = load f32 t0[%d + m1*-1] %%6 = mul f32 %%5 %%4\n"
        "%%7 = store f32 y0[i0*%d + m1] %%6 } }",
        n, n, n, ROWS * n, ROWS * n, n, (4 * n + 15) / 16 * 16, n, n, n - 1, n);
}

typedef struct built {
    nnc_plan plan;
    nnc_pkernel kernel;
    nnc_plan_device device;
    nnc_text text;
    nnc_arena arena;
    char *source;
    void *object;
} built;

static void build(built *b, int n)
{
    nnc_target t;
    nnc_scan s;
    size_t size = 0;
    *b = (built){0};
    put_kernel(&b->text, n);
    nnc_scan_init(&s, "k_test", nnc_text_str(&b->text), b->text.n);
    const nnc_kernel *k = nnc_schedule_parse(&s, &b->arena, test_sink);
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    CHECK(k != NULL);
    if (k)
        CHECK_OK(nnc_emitter_cuda.emit(&k, 1, &t, EMIT_cuda, &b->source, &size, test_sink));
    nnc_target_deinit(&t);
    b->kernel = (nnc_pkernel){
        .symbol = "k_test", .ir = nnc_text_str(&b->text), .n_args = 2, .n_out = 1, .threads = 1};
    b->device = (nnc_plan_device){.name = "cuda:0", .target = "cuda:sm_90"};
    b->plan = (nnc_plan){.kernel = &b->kernel, .n_kernel = 1, .device = &b->device, .n_device = 1};
    if (b->source)
        CHECK_OK(nnc_engine_cuda.load_object(
            &b->plan, &(nnc_blob){b->source, size + 1}, &b->object, test_sink));
}

static void drop(built *b)
{
    if (b->object)
        nnc_engine_cuda.unload_object(b->object);
    nnc_free(b->source);
    nnc_text_deinit(&b->text);
    nnc_arena_deinit(&b->arena);
}

static void run_rows(int n)
{
    built b;
    nnc_device *d = NULL;
    nnc_stream *s = NULL;
    void *x = NULL, *y = NULL, *handle = NULL;
    const int64_t bytes = (int64_t)ROWS * n * (int64_t)sizeof(float);
    float *data = malloc((size_t)bytes), *got = malloc((size_t)bytes);
    for (int i = 0; i < ROWS * n; i++)
        data[i] = (float)(i % n) / (float)n;
    CHECK_OK(nnc_device_cuda.open(0, &d, test_sink));
    CHECK_OK(nnc_device_cuda.stream_create(d, 1, true, &s, test_sink));
    build(&b, n);
    CHECK_OK(
        nnc_engine_cuda.load_kernel(&(nnc_load){&b.plan, 0, b.object, NULL}, &handle, test_sink));
    CHECK_OK(nnc_device_cuda.alloc(d, bytes, &x, test_sink));
    CHECK_OK(nnc_device_cuda.alloc(d, bytes, &y, test_sink));
    CHECK_OK(nnc_device_cuda.upload(s, x, data, bytes));
    void *args[] = {x, y};
    CHECK_OK(nnc_device_cuda.launch(s,
        &(nnc_work){.run = nnc_engine_cuda.run, .handle = handle, .args = args, .name = "rows"}));
    CHECK_OK(nnc_device_cuda.download(s, got, y, bytes));
    if (nnc_device_cuda.sync(s, test_sink))
        test_fail(__FILE__, __LINE__,
            "rows of %d: %d bytes of dynamic shared memory, 128 of static: %s", n, 4 * n,
            nnc_sink_at(test_sink, 0)->message);
    const double sum = (n - 1) / 2.0;
    for (int i = 0; i < ROWS * n; i++)
        if (fabs((double)got[i] / (exp((n - 1.0 - i % n) / n) * sum) - 1) > 1e-4) {
            test_fail(__FILE__, __LINE__, "rows of %d: element %d is %g", n, i, (double)got[i]);
            break;
        }
    nnc_engine_cuda.unload(handle);
    drop(&b);
    nnc_device_cuda.free(d, x);
    nnc_device_cuda.free(d, y);
    nnc_device_cuda.stream_destroy(s);
    nnc_device_cuda.close(d);
    free(data);
    free(got);
}

static void end(void)
{
    char why[512];
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

TEST(static_and_dynamic_shared_memory_of_a_launch)
{
    static const int n[] = {12256, 12257, 12280, 12288, 12289, 50257};
    if (no_compiler())
        return;
    for (size_t i = 0; i < NNC_COUNT(n); i++) {
        fake_begin(i);
        run_rows(n[i]);
        end();
    }
}

/* Two softmaxes share a function, with 200000 and 160000 bytes of dynamic shared memory, and the limit is the function's. */
TEST(kernels_of_a_function_need_different_amounts)
{
    static const int columns[2][2] = {{50000, 40000}, {40000, 50000}};
    if (no_compiler())
        return;
    for (int order = 0; order < 2; order++) {
        nnc_text t = {0}, report = {0};
        nnc_env *e = NULL;
        fake_begin((uint64_t)order);
        nnc_printf(&t,
            "{\"inputs\": {\"x\": [3, %d], \"y\": [3, %d]}, \"layers\": ["
            "{\"op\": \"softmax\", \"name\": \"a\", \"in\": \"x\"}, "
            "{\"op\": \"softmax\", \"name\": \"b\", \"in\": \"y\"}], \"outputs\": [\"a\", \"b\"]}",
            columns[order][0], columns[order][1]);
        nnc_model *m = model(nnc_text_str(&t));
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
        const nnc_compare_options o = {
            .compile = nnc_compile_defaults, .warmup = 1, .iterations = 2, .tolerance = 1e-10};
        if (m && e && !compared(e, m, &o, &report))
            test_fail(__FILE__, __LINE__, "softmaxes of %d and %d columns\n%s", columns[order][0],
                columns[order][1], nnc_text_str(&report));
        CHECK(fake_count.launches > 0);
        nnc_text_deinit(&report);
        nnc_text_deinit(&t);
        nnc_model_close(m);
        nnc_env_destroy(e);
        end();
    }
}

static int little_shared(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == CUDA_ATTR_SHARED_BYTES ? 99 << 10 : 0;
    return 0;
}

/* As of an artifact for sm_80 on an sm_86. */
TEST(more_shared_memory_than_this_gpu_has)
{
    built b;
    void *handle = NULL;
    nnc_device *d = NULL;
    if (no_compiler())
        return;
    fake_begin(0);
    nnc_cuda_cudart t = *NNC_CUDA(cudart, NULL);
    t.cudaDeviceGetAttribute = little_shared;
    nnc_cuda_override(CUDA_cudart, &t);
    CHECK_OK(nnc_device_cuda.open(0, &d, test_sink));
    build(&b, 30000);
    CHECK_INT(
        nnc_engine_cuda.load_kernel(&(nnc_load){&b.plan, 0, b.object, NULL}, &handle, test_sink),
        NNC_E_DEVICE);
    CHECK_DIAG(
        "kernel k_test for cuda:sm_90 needs 117.3 KiB of shared memory for a block, and this "
        "GPU has 99.00 KiB");
    drop(&b);
    nnc_device_cuda.close(d);
    end();
}
