/* tests/cudnn/calls.c -- the engines cudnn and cublaslt over false libraries (fake.h), against float64 loops. Covers which argument goes
 * where, strides, padding, the order of epilogues, workspaces, and what is given back. */
#include "help.h"
#include <stdlib.h>

static bool check(const nnc_engine *e, nnc_call c, const char *what)
{
    c.env = &gpu_env;
    double tol = c.src.dtype == DT_f32 || c.src.dtype == DT_f64 ? 1e-5 : 2e-2;
    return call_check(e, &c, tol, what);
}

#define ENGINE_CUDNN (&nnc_engine_cudnn)
#define ENGINE_LT (&nnc_engine_cublaslt)

static const char *declined(const nnc_engine *e, nnc_call c)
{
    nnc_choice choice;
    c.env = &gpu_env;
    CHECK_OK(e->choose(&c, &choice, test_sink));
    CHECK(!choice.ok);
    return choice.reason;
}

/* ---- convolutions ------------------------------------------------------------------------------------------------- */

static void bias(nnc_call *c)
{
    call_bias(c);
}

static void relu(nnc_call *c)
{
    call_post(c, PO_relu);
}

static void sum(nnc_call *c)
{
    call_post(c, PO_sum);
    c->post[c->n_post - 1].in_place = false;
}

static const struct {
    const char *name;
    void (*step[4])(nnc_call *);
} ends[] = {
    {"plain", {NULL}},
    {"bias", {bias}},
    {"bias relu", {bias, relu}},
    {"bias sum relu", {bias, sum, relu}},
    {"bias sum", {bias, sum}},
    {"relu", {relu}},
    {"sum relu", {sum, relu}},
    {"sum", {sum}},
    {"relu relu", {relu, relu}},
};

static void with_ends(const nnc_call *plain, const char *what)
{
    for (size_t i = 0; i < NNC_COUNT(ends); i++) {
        nnc_call c = *plain;
        char name[96];
        for (int k = 0; k < 4 && ends[i].step[k]; k++)
            ends[i].step[k](&c);
        snprintf(name, sizeof name, "%s, %s", what, ends[i].name);
        fake_compiled = 0;
        CHECK(check(ENGINE_CUDNN, c, name));
        CHECK_INT(fake_compiled, 0);
    }
}

TEST(cudnn_ends)
{
    gpu_begin("cuda:sm_90", false);
    nnc_call c = conv_call(2, 2, 5, 7, 6, 3, 1, 1);
    with_ends(&c, "3x3");
    call_channels_last(&c);
    with_ends(&c, "3x3, channels last, weights as they are");
    nnc_type_channels_last(&c.wei);
    with_ends(&c, "3x3, channels last");
    gpu_end();
}

TEST(cudnn_a_wrong_end_is_found)
{
    const nnc_engine wrong = wrong_end();
    int found = 0;
    gpu_begin("cuda:sm_90", false);
    nnc_call c = conv_call(2, 2, 4, 7, 5, 3, 1, 1);
    bias(&c);
    sum(&c);
    relu(&c);
    call_found = &found;
    CHECK(check(&nnc_engine_cudnn, c, "sum and relu"));
    CHECK_INT(found, 0);
    CHECK(check(&wrong, c, "sum without relu"));
    CHECK(found > 0);
    call_found = NULL;
    gpu_end();
}

TEST(cudnn_transposed_has_no_end)
{
    static const char why[] = "cuDNN's epilogue is a bias, a sum and relu, of a convolution";
    gpu_begin("cuda:sm_90", false);
    nnc_call c = conv_call(2, 2, 4, 5, 6, 3, 2, 1);
    c.kind = CALL_conv_transpose;
    c.wei = nnc_type_make(DT_f32, 4, (int64_t[]){4, 6, 3, 3});
    call_fix_dst(&c);
    CHECK(check(ENGINE_CUDNN, c, "transposed"));
    call_channels_last(&c);
    CHECK(check(ENGINE_CUDNN, c, "transposed, channels last"));
    relu(&c);
    CHECK_STR(declined(ENGINE_CUDNN, c), why);
    c.n_post = 0;
    bias(&c);
    CHECK_STR(declined(ENGINE_CUDNN, c), why);
    gpu_end();
}

TEST(cudnn_windows)
{
    gpu_begin("cuda:sm_80", false);
    for (int spatial = 1; spatial <= 3; spatial++)
        for (int stride = 1; stride <= 2; stride++)
            for (int groups = 1; groups <= 4; groups += 3)
                for (int last = 0; last < 2; last++) {
                    nnc_call c = conv_call(spatial, 2, 8, 6, 4, 3, stride, 1);
                    char what[64];
                    c.groups = groups;
                    c.wei.dim[1] = 8 / groups;
                    if (last)
                        call_channels_last(&c);
                    call_bias(&c);
                    snprintf(
                        what, sizeof what, "%dd, stride %d, %d groups", spatial, stride, groups);
                    CHECK(check(ENGINE_CUDNN, c, what));
                }
    /* padding on one side, dilation, a rest after the last window */
    for (int lo = 0; lo < 3; lo++)
        for (int hi = 0; hi < 3; hi++) {
            nnc_call c = conv_call(2, 1, 3, 8, 2, 3, 2, 0);
            c.pad_lo[0] = c.pad_hi[1] = lo;
            c.pad_hi[0] = c.pad_lo[1] = hi;
            c.dilation[1] = 1 + lo % 2;
            call_fix_dst(&c);
            CHECK(check(ENGINE_CUDNN, c, "one-sided padding"));
            c.kind = CALL_conv_transpose;
            c.wei = nnc_type_make(DT_f32, 4, (int64_t[]){3, 2, 3, 3});
            call_fix_dst(&c);
            CHECK(check(ENGINE_CUDNN, c, "one-sided padding, transposed"));
        }
    gpu_end();
}

/* The gradient of a convolution's weights and of its source, from a call for the convolution; false: they are declined. */
static bool check_gradients(const nnc_call *conv, const char *what)
{
    nnc_call w = *conv, x = *conv;
    call_wgrad(&w);
    bool ok = check(ENGINE_CUDNN, w, what);
    nnc_type_channels_last(&w.dst);
    ok = check(ENGINE_CUDNN, w, what) && ok;
    x.kind = CALL_conv_transpose;
    x.src = conv->dst;
    x.dst = conv->src;
    return check(ENGINE_CUDNN, x, what) && ok;
}

TEST(cudnn_gradients)
{
    static const nnc_dtype types[] = {DT_f32, DT_f16, DT_bf16};
    gpu_begin("cuda:sm_90", false);
    for (int i = 0; i < 3 * 2 * 2 * 2 * 2; i++) {
        const int spatial = 1 + i % 3, stride = 1 + i / 3 % 2, groups = i / 6 % 2 ? 4 : 1;
        nnc_call c = conv_call(spatial, 3, 8, 7, 12, 3, stride, 1);
        char what[80];
        c.groups = groups;
        c.wei.dim[1] = 8 / groups;
        if (i / 12 % 2)
            call_channels_last(&c);
        c.tf32 = i / 24;
        call_dtype(&c, types[(i + i / 3) % 3]);
        snprintf(what, sizeof what, "gradients, %dd, stride %d, %d groups, %s, channels %s",
            spatial, stride, groups, nnc_dtype_name((nnc_dtype)c.src.dtype),
            i / 12 % 2 ? "last" : "first");
        CHECK(check_gradients(&c, what));
    }
    /* padding on one side, dilation, rows of the source after the last window */
    for (int i = 0; i < 9; i++) {
        nnc_call c = conv_call(2, 2, 4, 8, 6, 3, 2, 0);
        c.pad_lo[0] = c.pad_hi[1] = i % 3;
        c.pad_hi[0] = c.pad_lo[1] = i / 3;
        c.dilation[1] = 1 + i % 2;
        call_fix_dst(&c);
        CHECK(check_gradients(&c, "gradients, one-sided padding"));
    }
    gpu_end();
}

/* A gradient of a part of the windows: cuDNN's convolution has as many windows as fit. */
TEST(cudnn_declines_fewer_places_than_windows)
{
    gpu_begin("cuda:sm_90", false);
    nnc_call c = conv_call(2, 1, 4, 9, 6, 3, 2, 0);
    call_wgrad(&c);
    CHECK(check(ENGINE_CUDNN, c, "all windows"));
    c.wei = nnc_type_make(DT_f32, 4, (int64_t[]){1, 6, 4, 3});
    CHECK_STR(declined(ENGINE_CUDNN, c), "cuDNN's windows end with the gradient's last place");
    gpu_end();
}

TEST(cudnn_types)
{
    static const nnc_dtype yes[] = {DT_f32, DT_f16, DT_bf16}, no[] = {DT_f64, DT_i32};
    gpu_begin("cuda:sm_90", false);
    for (size_t i = 0; i < NNC_COUNT(yes); i++) {
        nnc_call c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
        call_dtype(&c, yes[i]);
        call_bias(&c);
        relu(&c);
        CHECK(check(ENGINE_CUDNN, c, nnc_dtype_name(yes[i])));
    }
    for (size_t i = 0; i < NNC_COUNT(no); i++) {
        nnc_call c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
        call_dtype(&c, no[i]);
        CHECK(!check(ENGINE_CUDNN, c, nnc_dtype_name(no[i])));
    }
    gpu_end();
}

TEST(cudnn_declines)
{
    gpu_begin("cuda:sm_90", false);
    nnc_call c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    call_post(&c, PO_sum); /* in place */
    CHECK_STR(declined(ENGINE_CUDNN, c), "cuDNN does not add in place");
    c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    call_post(&c, PO_silu);
    CHECK_STR(
        declined(ENGINE_CUDNN, c), "cuDNN's epilogue is a bias, a sum and relu, of a convolution");
    c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    relu(&c);
    sum(&c);
    CHECK_STR(
        declined(ENGINE_CUDNN, c), "cuDNN's epilogue is a bias, a sum and relu, of a convolution");
    CHECK_STR(
        declined(ENGINE_CUDNN, matmul_call(2, 3, 4, true)), "cuDNN is used for convolutions only");
    c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    c.src.dim[0] = c.dst.dim[0] = INT64_C(1) << 34;
    CHECK_STR(declined(ENGINE_CUDNN, c), "cuDNN supports extents below 2^31");
    c = matmul_call(2, 3, 4, true);
    c.src.dim[0] = c.dst.dim[0] = INT64_C(1) << 31;
    CHECK_STR(declined(&nnc_engine_cublaslt, c), "cuBLASLt supports extents below 2^31");
    nnc_choice choice;
    c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    CHECK_OK(nnc_engine_cudnn.choose(&c, &choice, test_sink)); /* no target: a CPU's call */
    CHECK(!choice.ok);
    gpu_end();
}

/* Which engines are accepted when a call is loaded: by their notes, and by the rounding allowed. */
TEST(cudnn_notes)
{
    enum { TENSOR_CORE = 0, DOWN_CONVERT = 1, FFT = 3, NONDETERMINISTIC = 4, WINOGRAD = 5 };
    static const struct {
        int note;
        nnc_dtype dtype;
        bool tf32;
        int engine;
        bool exact;
    } t[] = {
        {-1, DT_f32, false, 7}, {TENSOR_CORE, DT_f32, false, 8}, {TENSOR_CORE, DT_f32, true, 7},
        {TENSOR_CORE, DT_f16, false, 7}, {DOWN_CONVERT, DT_f32, true, 8},
        {NONDETERMINISTIC, DT_bf16, false, 8},
        {-1, DT_f16, false, 7}, /* none on tensor cores: the first */
        {FFT, DT_f32, false, 7}, {WINOGRAD, DT_f32, false, 7}, {FFT, DT_f32, false, 8, true},
        {WINOGRAD, DT_f32, false, 8, true},
        {WINOGRAD + 2, DT_f16, false, 8, true}, /* of tiles of 6x6 */
    };
    gpu_begin("cuda:sm_90", false);
    for (size_t i = 0; i < NNC_COUNT(t); i++) {
        nnc_call c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
        call_dtype(&c, t[i].dtype);
        c.tf32 = t[i].tf32;
        c.exact = t[i].exact;
        fake_note = t[i].note;
        CHECK_INT(selected(NULL, &c, 1 << 20).engine, t[i].engine);
    }
    fake_note = -1;
    gpu_end();
}

/* 16 bits and tf32 go to the first engine on tensor cores. One that relayouts its tensors is skipped where a later one does not, or where
 * its workspace is too large. */
TEST(cudnn_prefers)
{
    enum { MIB = 1 << 20 };
    static const struct {
        int cores; /* the engine's place that has them, -1 */
        nnc_dtype dtype;
        int64_t work[3];
        int engine;
        int64_t limit;
    } t[] = {
        {1, DT_f16, {0, 0, 0}, 8, 32 * MIB},
        {2, DT_bf16, {0, 0, 0}, 9, 32 * MIB},
        {1, DT_f32, {0, 0, 0}, 7, 32 * MIB}, /* strict: not on tensor cores */
        {-1, DT_f32, {8 * MIB, 100, 0}, 8, 32 * MIB},
        {-1, DT_f32, {8 * MIB, 9 * MIB, 8 * MIB}, 7, 32 * MIB},
        {-1, DT_f32, {100, 3 * MIB, 9 * MIB}, 7, 32 * MIB},
        {-1, DT_f32, {8 * MIB, 9 * MIB, 7 * MIB}, 9, 7 * MIB},
        {-1, DT_f32, {8 * MIB, 9 * MIB, 8 * MIB}, -1, 7 * MIB},
    };
    gpu_begin("cuda:sm_90", false);
    for (size_t i = 0; i < NNC_COUNT(t); i++) {
        nnc_call c = conv_call(2, 1, 32, 256, 32, 3, 1, 1); /* 8 MiB of f32 in and out */
        call_dtype(&c, t[i].dtype);
        fake_note = t[i].cores < 0 ? -1 : 0;
        fake_noted = t[i].cores;
        memcpy(fake_work, t[i].work, sizeof fake_work);
        CHECK_INT(selected(NULL, &c, t[i].limit).engine, t[i].engine);
    }
    fake_note = -1;
    fake_noted = 0;
    for (int i = 0; i < FAKE_CHOICES; i++)
        fake_work[i] = FAKE_WORK;
    gpu_end();
}

/* A convolution without a bias of its own adds zeros as its bias, whatever the workspace held before. */
TEST(cudnn_zeros)
{
    gpu_begin("cuda:sm_90", false);
    nnc_call c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    nnc_plan p = {.call = &c, .n_call = 1};
    nnc_choice choice;
    float x[100], w[144], y[100];
    void *handle = NULL, *const args[] = {x, w, y};
    nnc_rng_fill(1, 0, NNC_COUNT(x), 1, x);
    nnc_rng_fill(2, 0, NNC_COUNT(w), 1, w);
    relu(&c);
    c.env = &gpu_env;
    CHECK_OK(nnc_engine_cudnn.choose(&c, &choice, test_sink));
    c.work_bytes = choice.workspace_bytes;
    void *work = nnc_aligned_alloc(64, (size_t)nnc_align_up(c.work_bytes, 64));
    CHECK_OK(nnc_engine_cudnn.load_call(&(nnc_load){.plan = &p, .item = 0}, &handle, test_sink));
    for (int i = 0; i < 2 && handle && work; i++) {
        memset(work, 0xff, (size_t)c.work_bytes); /* NaN */
        CHECK_OK(nnc_engine_cudnn.run(handle, args, work));
        for (size_t k = 0; k < NNC_COUNT(y); k++)
            CHECK(y[k] >= 0);
    }
    if (handle)
        nnc_engine_cudnn.unload(handle);
    nnc_free(work);
    gpu_end();
}

/* Choices are the same with cuDNN, without it, and where it is asked for other rounding: libraries are for loading alone. */
TEST(cudnn_by_rule)
{
    for (int without = 0; without < 2; without++) {
        gpu_begin("cuda:sm_90", false);
        if (without)
            nnc_cuda_override(CUDA_cudnn, NULL);
        CHECK(setenv("NVIDIA_TF32_OVERRIDE", "0", 1) == 0);
        nnc_choice choice;
        nnc_call c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
        c.env = &gpu_env;
        c.tf32 = true;
        CHECK_OK(nnc_engine_cudnn.choose(&c, &choice, test_sink));
        CHECK(choice.ok);
        CHECK_STR(choice.reason, "cudnn 9.19 by rule, tensor cores, tf32 allowed; its engine is "
                                 "selected when the plan is loaded");
        c.tf32 = false;
        CHECK_OK(nnc_engine_cudnn.choose(&c, &choice, test_sink));
        CHECK_STR(choice.reason, "cudnn 9.19 by rule, strict f32; its engine is selected when the "
                                 "plan is loaded");
        CHECK(unsetenv("NVIDIA_TF32_OVERRIDE") == 0);
        gpu_end();
        gpu_begin("cuda:sm_75", false);
        call_dtype(&c, DT_bf16);
        CHECK_STR(declined(ENGINE_CUDNN, c), "cuDNN does not support bf16 convolutions on sm_75");
        gpu_end();
    }
}

/* A plan from a file may lie about its sizes; without a GPU loading says so. */
TEST(cudnn_refuses_to_load)
{
    gpu_begin("cuda:sm_90", false);
    void *handle = NULL;
    nnc_call c = conv_call(2, 1, 4, 5, 4, 3, 1, 1);
    nnc_plan p = {.call = &c, .n_call = 1};
    CHECK_INT(nnc_engine_cudnn.load_call(&(nnc_load){.plan = &p, .item = 0}, &handle, test_sink),
        NNC_E_DEVICE);
    CHECK_DIAG("none of its 3 configurations stays within the limits");
    relu(&c); /* zeros of a bias do not fit */
    CHECK_INT(nnc_engine_cudnn.load_call(&(nnc_load){.plan = &p, .item = 0}, &handle, test_sink),
        NNC_E_MODEL);
    c.work_bytes = 1 << 20;
    nnc_cuda_override(CUDA_cudart, NULL);
    nnc_sink_clear(test_sink);
    CHECK_INT(nnc_engine_cudnn.load_call(&(nnc_load){.plan = &p, .item = 0}, &handle, test_sink),
        NNC_E_DEVICE);
    CHECK_DIAG("cuDNN needs a current GPU");
    nnc_cuda_override(CUDA_cudnn, NULL);
    CHECK_INT(nnc_engine_cudnn.load_call(&(nnc_load){.plan = &p, .item = 0}, &handle, test_sink),
        NNC_E_DEVICE);
    CHECK(handle == NULL);
    gpu_end();
}

/* CUDA 13's libraries on an older card: the plan is made all the same, and loading it says what is missing. */
TEST(libraries_too_new_for_the_card)
{
    gpu_begin("cuda:sm_61", false);
    nnc_call calls[] = {conv_call(2, 1, 4, 5, 4, 3, 1, 1), matmul_call(3, 4, 5, true)};
    nnc_plan p = {.call = calls, .n_call = 2};
    const nnc_engine *const e[] = {ENGINE_CUDNN, ENGINE_LT};
    static const char *const says[] = {
        "cudnn 9.19 on this machine supports sm_75 and newer, and this GPU is sm_61: it needs a "
        "version like 9.10, of CUDA 12",
        "cublaslt 13.1 on this machine supports sm_75 and newer, and this GPU is sm_61: it needs a "
        "version like 12.9, of CUDA 12"};
    for (int i = 0; i < 2; i++) {
        void *handle = NULL;
        nnc_choice choice;
        calls[i].env = &gpu_env;
        CHECK_OK(e[i]->choose(&calls[i], &choice, test_sink));
        CHECK(choice.ok);
        calls[i].work_bytes = choice.workspace_bytes;
        fake_sm = 61;
        nnc_sink_clear(test_sink);
        CHECK_INT(
            e[i]->load_call(&(nnc_load){.plan = &p, .item = i}, &handle, test_sink), NNC_E_DEVICE);
        CHECK_DIAG(says[i]);
        fake_sm = 0;
        CHECK_OK(e[i]->load_call(&(nnc_load){.plan = &p, .item = i}, &handle, test_sink));
        if (handle)
            e[i]->unload(handle);
    }
    gpu_end();
}

TEST(engines_out_of_memory)
{
    gpu_begin("cuda:sm_90", false);
    nnc_call calls[] = {conv_call(2, 1, 4, 5, 4, 3, 1, 1), matmul_call(3, 4, 5, true)};
    nnc_plan p = {.call = calls, .n_call = 2};
    const nnc_engine *const e[] = {ENGINE_CUDNN, ENGINE_LT};
    relu(&calls[0]);
    for (int i = 0; i < 2; i++) {
        nnc_choice choice = {0};
        void *handle = NULL;
        nnc_status st = NNC_E_NOMEM;
        calls[i].env = &gpu_env;
        for (int64_t n = 0; st != NNC_OK && n < 400; n++) {
            nnc_fail_alloc_after(n);
            st = e[i]->choose(&calls[i], &choice, test_sink);
            if (st == NNC_OK && choice.ok) {
                calls[i].work_bytes = choice.workspace_bytes;
                st = e[i]->load_call(&(nnc_load){.plan = &p, .item = i}, &handle, test_sink);
            }
            nnc_fail_alloc_after(-1);
            CHECK(st == NNC_OK || st == NNC_E_NOMEM);
        }
        CHECK_OK(st);
        if (st == NNC_OK)
            e[i]->unload(handle);
    }
    gpu_end();
}

/* ---- matrix products ---------------------------------------------------------------------------------------------- */

TEST(cublaslt_ends)
{
    gpu_begin("cuda:sm_90", false);
    for (int i = 0; i < 32; i++) {
        nnc_call c = matmul_call(5, 7, 3, i & 1);
        char what[64];
        snprintf(what, sizeof what, "matmul, end %d", i);
        if (i & 2)
            call_bias(&c);
        if (i & 4)
            sum(&c);
        if (i & 8)
            call_post(&c, i & 16 ? PO_gelu_tanh : PO_relu);
        CHECK(check(&nnc_engine_cublaslt, c, what));
        if (i & 4) {
            c.post[0].in_place = true;
            CHECK(check(&nnc_engine_cublaslt, c, what));
        }
    }
    gpu_end();
}

TEST(cublaslt_types)
{
    static const nnc_dtype yes[] = {DT_f32, DT_f64, DT_f16, DT_bf16};
    gpu_begin("cuda:sm_75", false);
    for (size_t i = 0; i < NNC_COUNT(yes); i++) {
        nnc_call c = matmul_call(5, 7, 3, true);
        call_dtype(&c, yes[i]);
        CHECK(check(&nnc_engine_cublaslt, c, nnc_dtype_name(yes[i])));
    }
    nnc_call c = matmul_call(5, 7, 3, true);
    call_dtype(&c, DT_i32);
    CHECK_STR(declined(&nnc_engine_cublaslt, c), "cuBLASLt supports f16, bf16, f32 and f64");
    call_dtype(&c, DT_f64);
    call_bias(&c);
    CHECK_STR(declined(&nnc_engine_cublaslt, c), "cuBLASLt has no f64 epilogues");
    c = matmul_call(5, 7, 3, true);
    relu(&c);
    sum(&c);
    CHECK_STR(declined(&nnc_engine_cublaslt, c),
        "cuBLASLt's epilogue is a sum, then relu or gelu (tanh form), in this order");
    gpu_end();
}

/* A matmul of batches; dimensions of 1 in an operand are broadcast. */
static nnc_call batched(
    int rank, const int64_t *a, const int64_t *b, const int64_t *y, bool ta, bool tb)
{
    nnc_call c = matmul_call(1, 1, 1, tb);
    int64_t da[6], db[6], dy[6];
    const int64_t m = 3, k = 4, n = 5;
    for (int i = 0; i < rank; i++)
        da[i] = a[i], db[i] = b[i], dy[i] = y[i];
    da[rank] = ta ? k : m, da[rank + 1] = ta ? m : k;
    db[rank] = tb ? n : k, db[rank + 1] = tb ? k : n;
    dy[rank] = m, dy[rank + 1] = n;
    c.trans_a = ta;
    c.src = nnc_type_make(DT_f32, rank + 2, da);
    c.wei = nnc_type_make(DT_f32, rank + 2, db);
    c.dst = nnc_type_make(DT_f32, rank + 2, dy);
    return c;
}

TEST(cublaslt_batches)
{
    static const struct {
        int rank;
        int64_t a[3], b[3], y[3];
        int multiplies;
    } t[] = {
        {1, {6}, {6}, {6}, 1},
        {1, {6}, {1}, {6}, 1},
        {1, {1}, {6}, {6}, 1},
        {2, {2, 3}, {2, 3}, {2, 3}, 1},
        {2, {2, 3}, {1, 1}, {2, 3}, 1},
        {2, {2, 3}, {2, 1}, {2, 3}, 2},
        {2, {2, 1}, {1, 3}, {2, 3}, 2},
        {3, {2, 3, 2}, {1, 3, 1}, {2, 3, 2}, 6},
        {3, {2, 1, 2}, {2, 1, 2}, {2, 1, 2}, 1},
    };
    gpu_begin("cuda:sm_90", false);
    for (size_t i = 0; i < NNC_COUNT(t); i++)
        for (int trans = 0; trans < 4; trans++) {
            nnc_call c = batched(t[i].rank, t[i].a, t[i].b, t[i].y, trans & 1, trans & 2);
            char what[64];
            snprintf(what, sizeof what, "batches %zu, transposed %d", i, trans);
            if (trans == 3)
                sum(&c);
            fake_multiplies = 0;
            CHECK(check(&nnc_engine_cublaslt, c, what));
            CHECK_INT(fake_multiplies, 2 * t[i].multiplies); /* runs twice */
        }
    gpu_end();
}

TEST(cublaslt_orders)
{
    gpu_begin("cuda:sm_90", false);
    static const uint8_t swapped[NNC_MAX_RANK] = {1, 0};
    nnc_call c = matmul_call(3, 4, 5, false);
    nnc_type_set_order(&c.src, swapped);
    nnc_type_set_order(&c.wei, swapped);
    CHECK(check(&nnc_engine_cublaslt, c, "operands column by column"));
    nnc_type_set_order(&c.dst, swapped);
    CHECK_STR(declined(&nnc_engine_cublaslt, c), "cuBLASLt needs contiguous rows or columns");
    for (int i = 0; i < 8; i++) { /* extents of 1 */
        c = matmul_call(i & 1 ? 1 : 3, i & 2 ? 1 : 4, i & 4 ? 1 : 5, i & 1);
        call_bias(&c);
        CHECK(check(&nnc_engine_cublaslt, c, "an extent of 1"));
    }
    gpu_end();
}

TEST(cublaslt_workspace)
{
    static const struct {
        const char *target;
        int64_t bytes;
    } t[] = {{"cuda:sm_75", 4 << 20}, {"cuda:sm_80", 4 << 20}, {"cuda:sm_90", 32 << 20}};
    for (size_t i = 0; i < NNC_COUNT(t); i++) {
        gpu_begin(t[i].target, false);
        nnc_choice choice;
        nnc_call c = matmul_call(64, 64, 64, true);
        c.env = &gpu_env;
        CHECK_OK(nnc_engine_cublaslt.choose(&c, &choice, test_sink));
        CHECK_INT(choice.workspace_bytes, t[i].bytes);
        CHECK_STR(choice.reason, "cublaslt 13.1, strict f32");
        c.tf32 = true;
        CHECK_OK(nnc_engine_cublaslt.choose(&c, &choice, test_sink));
        CHECK_STR(choice.reason, "cublaslt 13.1, tf32 allowed");
        gpu_end();
    }
}
