/* tests/engines/contractions.c -- every call kind x dtype x layout x post-op on the engine
 * "onednn" against float64 loops. Tolerances are relative to the largest result: f32
 * 2e-6 (a few hundred products), bf16 and f16 their rounding of operands' products and of the
 * result. */
#include "calls.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static const nnc_engine *onednn(void)
{
    const char *why;
    const nnc_engine *e = nnc_plugin("onednn", "nnc_engine_onednn", &why);
    if (!e)
        test_skip("the plug-in onednn is not there: %s", why ? why : "");
    return e;
}

static double tolerance(nnc_dtype d)
{
    return d == DT_f64 ? 1e-14 : d == DT_f32 ? 2e-6 : d == DT_f16 ? 1e-3 : d == DT_bf16 ? 8e-3 : 0;
}

static int conv_shapes(nnc_call *c)
{
    int n = 0;
    c[n++] = conv_call(2, 1, 3, 20, 16, 3, 1, 1); /* VGG's first layer, small */
    c[n++] = conv_call(2, 2, 64, 14, 64, 3, 1, 1); /* its middle */
    c[n++] = conv_call(2, 1, 3, 30, 64, 7, 2, 3); /* ResNet's stem */
    c[n++] = conv_call(2, 1, 64, 9, 100, 1, 1, 0); /* pointwise, odd channels */
    c[n++] = conv_call(2, 1, 32, 9, 48, 1, 2, 0); /* downsample */
    c[n++] = conv_call(2, 1, 24, 7, 40, 5, 1, 2);
    c[n] = conv_call(2, 1, 16, 12, 24, 3, 2, 1); /* asymmetric padding, uneven kernel and stride */
    c[n].pad_hi[0] = 0;
    c[n].pad_lo[1] = 2;
    c[n].stride[1] = 1;
    c[n].kernel[1] = c[n].wei.dim[3] = 2;
    call_fix_dst(&c[n++]);
    c[n] = conv_call(2, 1, 16, 13, 16, 3, 1, 2); /* dilated */
    c[n].dilation[0] = c[n].dilation[1] = 2;
    call_fix_dst(&c[n++]);
    c[n] = conv_call(2, 2, 32, 8, 64, 3, 1, 1); /* groups */
    c[n].groups = 4;
    c[n++].wei.dim[1] = 8;
    c[n] = conv_call(2, 1, 48, 11, 48, 3, 1, 1); /* depthwise */
    c[n].groups = 48;
    c[n++].wei.dim[1] = 1;
    c[n] = conv_call(2, 2, 37, 11, 37, 5, 2, 2);
    c[n].groups = 37;
    c[n++].wei.dim[1] = 1;
    c[n++] = conv_call(1, 3, 20, 40, 30, 3, 1, 1);
    c[n++] = conv_call(3, 1, 8, 7, 12, 3, 1, 1);
    c[n++] = conv_call(3, 1, 8, 8, 12, 2, 2, 0);
    return n;
}

static int transpose_shapes(nnc_call *c)
{
    int n = 0;
    const int64_t s[][5] = {
        {16, 8, 2, 2, 0}, {16, 24, 3, 2, 1}, {8, 8, 4, 2, 1}, {12, 20, 3, 1, 1}};
    for (size_t i = 0; i < NNC_COUNT(s); i++) {
        c[n] = conv_call(2, 2, s[i][0], 7, s[i][1], s[i][2], s[i][3], s[i][4]);
        c[n].kind = CALL_conv_transpose;
        c[n].wei.dim[0] = s[i][0];
        c[n].wei.dim[1] = s[i][1];
        call_fix_dst(&c[n++]);
    }
    c[n] = c[1]; /* output padding: one more row than dense */
    c[n].dst.dim[2]++;
    c[n++].dst.dim[3]++;
    c[n] = c[1]; /* groups, dilation */
    c[n].groups = 4;
    c[n].wei.dim[1] /= 4;
    c[n].dilation[0] = 2;
    call_fix_dst(&c[n++]);
    c[n] = conv_call(1, 1, 6, 9, 5, 3, 2, 1);
    c[n].kind = CALL_conv_transpose;
    c[n].wei.dim[0] = 6;
    c[n].wei.dim[1] = 5;
    call_fix_dst(&c[n++]);
    return n;
}

static int wgrad_shapes(nnc_call *c)
{
    int n = conv_shapes(c);
    c[n++] = conv_call(2, 2, 64, 24, 96, 3, 1, 1); /* large enough for Winograd's algorithm */
    c[n++] = conv_call(2, 1, 70, 37, 64, 3, 1, 0);
    c[n] =
        conv_call(3, 3, 3, 4, 3, 2, 2, 0); /* windows before the first plane and after the last */
    c[n].src.dim[2] = 2;
    c[n].pad_lo[0] = c[n].pad_hi[0] = c[n].pad_hi[1] = 1;
    c[n].stride[2] = 3;
    c[n].kernel[2] = c[n].wei.dim[4] = 1;
    call_fix_dst(&c[n++]);
    for (int i = 0; i < n; i++)
        call_wgrad(&c[i]);
    return n;
}

static int matmul_shapes(nnc_call *c)
{
    int n = 0;
    const int64_t s[][3] = {{1, 64, 48}, {1, 513, 300}, {3, 70, 129}, {8, 200, 1000}, {37, 65, 80},
        {130, 270, 300}, {5, 1, 7}};
    for (size_t i = 0; i < NNC_COUNT(s); i++)
        for (int t = 0; t < 2; t++)
            c[n++] = matmul_call(s[i][0], s[i][1], s[i][2], t);
    c[n] = matmul_call(20, 30, 40, false); /* transposed first operand */
    c[n].trans_a = true;
    c[n].src = nnc_type_make(DT_f32, 2, (int64_t[]){40, 20});
    n++;
    c[n] = matmul_call(1, 1, 1, false); /* batched */
    c[n].src = nnc_type_make(DT_f32, 4, (int64_t[]){2, 3, 17, 33});
    c[n].wei = nnc_type_make(DT_f32, 4, (int64_t[]){2, 3, 33, 9});
    c[n].dst = nnc_type_make(DT_f32, 4, (int64_t[]){2, 3, 17, 9});
    n++;
    c[n] = c[n - 1]; /* broadcast on both sides */
    c[n].src.dim[0] = 1;
    c[n].wei = nnc_type_make(DT_f32, 3, (int64_t[]){1, 9, 33});
    c[n].trans_b = true;
    n++;
    c[n] = c[n - 1]; /* one matrix for a whole batch */
    c[n].src.dim[0] = 2;
    c[n].wei = nnc_type_make(DT_f32, 2, (int64_t[]){9, 33});
    n++;
    return n;
}

static int pool_shapes(nnc_call *c, nnc_call_kind kind)
{
    int n = 0;
    c[n++] = pool_call(kind, 2, 2, 24, 12, 2, 2, 0);
    c[n++] = pool_call(kind, 2, 1, 17, 13, 3, 2, 1);
    c[n++] = pool_call(kind, 1, 2, 5, 30, 3, 1, 1);
    c[n++] = pool_call(kind, 3, 1, 6, 7, 2, 2, 0);
    c[n] = pool_call(kind, 2, 1, 16, 8, 3, 2, 0); /* ceil mode: the last window hangs over */
    c[n].dst.dim[2]++;
    c[n++].dst.dim[3]++;
    c[n] = pool_call(kind, 2, 1, 16, 8, 3, 2, 1);
    c[n].pad_hi[0] = 0;
    c[n].dst.dim[3]++;
    call_fix_dst(&c[n++]);
    c[n++] = pool_call(
        kind, 2, 1, 600, 7, 7, 1, 0); /* global; more channels than one row of accumulators */
    if (kind == CALL_avgpool) {
        c[n] = c[1];
        c[n++].count_pad = true;
        c[n] = c[5];
        c[n++].count_pad = true;
    } else {
        c[n] = pool_call(kind, 2, 1, 8, 12, 3, 1, 1);
        c[n].dilation[0] = 2;
        call_fix_dst(&c[n++]);
    }
    return n;
}

/* Shapes x layouts x threads x packing x with and without bias and relu. Returns how many the
 * engine took. */
static int sweep(const nnc_engine *e, const nnc_call *shapes, int n, nnc_dtype d, const char *what)
{
    int took = 0;
    for (int i = 0; i < n; i++)
        for (int v = 0; v < 8; v++) {
            nnc_call c = shapes[i];
            char name[80];
            bool pool = c.kind == CALL_maxpool || c.kind == CALL_avgpool;
            call_dtype(&c, d);
            if (v & 1)
                call_channels_last(&c);
            if (d != DT_f32 && v != 0 && v != 7 && v != 5)
                continue;
            c.threads = v & 2 ? 2 : 1;
            if (!pool && c.kind != CALL_conv_wgrad && v & 4) {
                call_bias(&c);
                call_post(&c, PO_relu, 0, 0);
            }
            snprintf(name, sizeof name, "%s %s: %s shape %d variant %d", e->name, nnc_dtype_name(d),
                what, i, v);
            took += call_check(e, &c, v & 4 ? PACKED : RAW, tolerance(d), name);
        }
    return took;
}

static void all_kinds(const nnc_engine *e, nnc_dtype d, int took[6])
{
    nnc_call c[32];
    took[0] = sweep(e, c, conv_shapes(c), d, "conv");
    took[1] = sweep(e, c, transpose_shapes(c), d, "conv_transpose");
    took[5] = sweep(e, c, wgrad_shapes(c), d, "conv_wgrad");
    took[2] = sweep(e, c, matmul_shapes(c), d, "matmul");
    took[3] = sweep(e, c, pool_shapes(c, CALL_maxpool), d, "maxpool");
    took[4] = nnc_is_float(d) ? sweep(e, c, pool_shapes(c, CALL_avgpool), d, "avgpool") : 0;
}

/* plugins/onednn/openmp.c defines the functions of OpenMP that oneDNN calls. Were there others, libgomp's would run beside them and know
 * nothing of the team. (omp_set_num_threads is called by the graph API of oneDNN 3.7 only, which nnc does not use.) */
TEST(onednn_calls_no_other_openmp)
{
    static const char known[] =
        " GOMP_barrier GOMP_parallel omp_get_max_threads omp_get_num_threads "
        "omp_get_thread_num omp_in_parallel omp_set_num_threads ";
    const char *why;
    void *version = nnc_plugin("onednn", "dnnl_version", &why);
    Dl_info at;
    char line[512], name[256];
    if (!version || !dladdr(version, &at) || access("/usr/bin/nm", X_OK) != 0) {
        test_skip("oneDNN or nm is not there");
        return;
    }
    snprintf(line, sizeof line, "nm -D --undefined-only '%s'", at.dli_fname);
    FILE *f = popen(line, "r");
    int seen = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *symbol = strstr(line, " U ");
        if (!symbol || (strncmp(symbol + 3, "GOMP_", 5) && strncmp(symbol + 3, "omp_", 4)))
            continue;
        snprintf(name, sizeof name, " %.*s ", (int)strcspn(symbol + 3, "@\n"), symbol + 3);
        if (!strstr(known, name))
            test_fail(__FILE__, __LINE__, "oneDNN calls%s", name);
        seen++;
    }
    if (f)
        pclose(f);
    if (!seen)
        test_skip("this oneDNN is built without OpenMP");
}

TEST(onednn_f32)
{
    const nnc_engine *e = onednn();
    int took[6];
    if (!e)
        return;
    all_kinds(e, DT_f32, took);
    /* channels-last convolutions are what it is there for */
    CHECK(took[0] >= 14 * 4);
    CHECK(took[1] >= 1);
    CHECK(took[2] >= 14 * 8);
    CHECK_INT(took[3], 0); /* drops NaN */
    CHECK(took[4] >= 1);
    CHECK(took[5] >= 14 * 4);
}

/* Few channels and results of a few columns, as nobody's network has them: oneDNN 3.7.2 had one of these wrong. */
TEST(onednn_small_convolutions)
{
    const nnc_engine *e = onednn();
    uint64_t key = nnc_rng_key("small convolutions", test_seed), at = 0;
    int took = 0, n = getenv("NNC_CASES") ? atoi(getenv("NNC_CASES")) : 500;
    for (int i = 0; e && i < n; i++) {
        int r[13];
        for (size_t k = 0; k < NNC_COUNT(r); k++)
            r[k] = (int)(nnc_rng_uniform(key, at++) * 120);
        nnc_call c = conv_call(2, 1, 1 + r[0] % 2, 2 + r[1] % 8, 1 + r[2] % 17, 1, 1, 0);
        c.src.dim[3] = 1 + r[3] % 4;
        for (int d = 0; d < 2; d++) {
            c.kernel[d] = c.wei.dim[2 + d] = 1 + r[4 + d] % 4;
            c.stride[d] = 1 + r[6 + d] % 3;
            c.pad_lo[d] = r[8 + d] % 2;
            c.pad_hi[d] = r[10 + d] % 2;
        }
        c.dilation[0] = 1 + r[12] % 2;
        bool fits = true;
        for (int d = 0; d < 2; d++)
            fits = fits &&
                   c.src.dim[2 + d] + c.pad_lo[d] + c.pad_hi[d] > (c.kernel[d] - 1) * c.dilation[d];
        if (!fits)
            continue;
        call_fix_dst(&c);
        if (i % 4)
            call_channels_last(&c);
        char name[60];
        snprintf(name, sizeof name, "small convolution %d", i);
        took += call_check(e, &c, PACKED, 2e-6, name);
    }
    CHECK_USUAL(!e || took > n / 2);
}

/* 3x3 convolutions whose weights are not packed, as in training, and gradients of their sources. */
TEST(onednn_winograd)
{
    const nnc_engine *e = onednn();
    static const int64_t s[][6] = {/* images, channels, height, width, outputs, padding */
        {2, 64, 29, 28, 64, 1}, {1, 48, 37, 30, 96, 0}, {3, 80, 33, 21, 32, 2},
        {2, 144, 19, 17, 160, 1}, {3, 144, 57, 56, 160, 1}, {1, 32, 60, 61, 512, 0}};
    for (size_t i = 0; e && i < NNC_COUNT(s); i++)
        for (int v = 0; v < 8; v++) {
            nnc_call c = conv_call(2, s[i][0], s[i][1], s[i][2], s[i][4], 3, 1, s[i][5]);
            nnc_choice choice;
            char name[60];
            c.src.dim[3] = s[i][3];
            c.threads = v & 1 ? 3 : 1;
            if (v & 2) {
                c.kind = CALL_conv_transpose;
                c.wei.dim[0] = s[i][1];
                c.wei.dim[1] = s[i][4];
            }
            c.pad_hi[1] = v & 4 ? 0 : s[i][5];
            call_fix_dst(&c);
            call_channels_last(&c);
            if (v & 4) {
                nnc_type_channels_last(&c.wei);
                call_bias(&c);
                call_post(&c, PO_relu, 0, 0);
                call_post(&c, PO_clip, 0.25f, 30);
            }
            CHECK_OK(e->choose(&c, &choice, test_sink));
            const bool taken = !strncmp(choice.reason, "winograd", 8);
            if (!i && !v && !taken) {
                test_skip("this CPU has no AVX-512");
                return;
            }
            snprintf(name, sizeof name, "winograd: shape %zu variant %d", i, v);
            if (!taken)
                test_fail(__FILE__, __LINE__, "%s: %s", name, choice.reason);
            CHECK(call_check(e, &c, RAW, 4e-6, name));
        }
}

/* Why Winograd's algorithm is declined: --math=exact, and channels whose points fill the caches. Other algorithms compute these. For
 * gradients of weights oneDNN 2 has it, oneDNN 3 does not. */
TEST(onednn_winograd_declines)
{
    const nnc_engine *e = onednn();
    const bool with_gradient = e && e->version[0] == '2';
    nnc_call c[] = {conv_call(2, 2, 64, 28, 64, 3, 1, 1), conv_call(2, 2, 64, 28, 64, 3, 1, 1),
        conv_call(2, 2, 64, 24, 96, 3, 1, 1), conv_call(2, 1, 90000, 4, 32, 3, 1, 1)};
    c[1].kind = CALL_conv_transpose;
    call_wgrad(&c[2]);
    for (size_t i = 0; e && i < NNC_COUNT(c); i++) {
        nnc_choice choice;
        c[i].exact = i < 3;
        call_channels_last(&c[i]);
        CHECK_OK(e->choose(&c[i], &choice, test_sink));
        CHECK(choice.ok && !strstr(choice.reason, "wino"));
        CHECK(i == 3 || call_check(e, &c[i], RAW, 2e-6, "without Winograd's algorithm"));
        c[i].exact = false;
        CHECK_OK(e->choose(&c[i], &choice, test_sink));
        const bool wanted = i < 2 || (i == 2 && with_gradient);
        CHECK(choice.ok && (nnc_cpu_level() < 4 || !strstr(choice.reason, "wino") == !wanted));
    }
}

/* bench/results/math-2026-11-29.txt has these errors: of the forward pass, the gradient of the source, that of the weights. */
TEST(onednn_winograd_error)
{
    const nnc_engine *e = onednn();
    if (!e || nnc_cpu_level() < 4)
        return;
    call_samples = 1000;
    for (int k = 0; k < 3; k++) {
        double error[2];
        for (int exact = 0; exact < 2; exact++) {
            nnc_call c = conv_call(2, 1, 64, 56, 64, 3, 1, 1);
            c.kind = k == 1 ? CALL_conv_transpose : CALL_conv;
            if (k == 2)
                call_wgrad(&c);
            c.exact = exact;
            call_channels_last(&c);
            CHECK(call_check(e, &c, RAW, 4e-6, "Winograd's error"));
            error[exact] = call_error;
        }
        /* the library's own sums for the gradient of weights are in an order that depends on the CPU */
        CHECK(error[0] < 1.5e-6 && (k == 2 || error[0] < 4 * error[1]));
        CHECK(error[1] > 0 && error[1] < 1e-6);
    }
    call_samples = 200;
}

TEST(onednn_bf16)
{
    const nnc_engine *e = onednn();
    int took[6];
    if (e)
        all_kinds(e, DT_bf16, took); /* what it takes must be right; which depends on the machine */
}

TEST(onednn_declines)
{
    const nnc_engine *e = onednn();
    const nnc_dtype d[] = {DT_f64, DT_i32, DT_i8};
    for (size_t i = 0; e && i < NNC_COUNT(d); i++) {
        nnc_choice choice;
        nnc_call c = conv_call(2, 1, 16, 8, 16, 3, 1, 1);
        call_dtype(&c, d[i]);
        CHECK_OK(e->choose(&c, &choice, test_sink));
        CHECK(!choice.ok && choice.reason);
    }
}

TEST(onednn_post_ops)
{
    const nnc_engine *e = onednn();
    for (int k = 0; e && k < PO__COUNT; k++) {
        nnc_call c = conv_call(2, 1, 16, 9, 32, 3, 1, 1), m = matmul_call(40, 33, 64, true);
        call_channels_last(&c);
        call_post(&c, (nnc_post_kind)k, 0.25f, 1.5f);
        call_post(&m, (nnc_post_kind)k, 0.25f, 1.5f);
        char name[40];
        snprintf(name, sizeof name, "onednn post-op %d", k);
        /* its erf, exp and tanh are polynomials: 1e-5 of the largest result */
        CHECK(call_check(e, &c, PACKED, 1e-5, name));
        CHECK(call_check(e, &m, PACKED, 1e-5, name));
        if (k == PO_sum) {
            c.post[0].in_place = false;
            CHECK(call_check(e, &c, PACKED, 1e-5, "onednn sum of another tensor"));
            call_post(&c, PO_relu, 0, 0);
            c.post[0].in_place = true;
            CHECK(call_check(e, &c, PACKED, 1e-5, "onednn sum and relu"));
        }
    }
}

/* ---- NaN ---------------------------------------------------------------------------------------------------------- */

/* Endings whose relu or clip would lose a NaN inside oneDNN. */
static void nan_ending(nnc_call *c, int i)
{
    if (i == 2 || i == 3)
        call_post(c, PO_sum, 0, 0);
    c->post[0].in_place = i != 3;
    if (i == 1)
        call_post(c, PO_clip, -0.5f, 6);
    else
        call_post(c, PO_relu, 0, 0);
    if (i == 4)
        call_post(c, PO_sum, 0, 0);
    if (i == 5)
        call_post(c, PO_leaky, 0.1f, 0);
}
enum { NAN_ENDINGS = 6 };

/* Shapes x threads x layouts; each shape with relu and with one of the other endings. Returns how
 * many the engine took. */
static int sweep_nan(const nnc_engine *e, const nnc_call *shapes, int n, const char *what)
{
    int took = 0;
    for (int i = 0; i < n; i++)
        for (int v = 0; v < 8; v++) {
            nnc_call c = shapes[i];
            char name[80];
            bool sum = call_nan_in == CALL_SUM;
            /* a NaN times padding: implementations differ, and it is no matter of the ending */
            if (call_nan_in == CALL_WEI && c.pad_lo[1] > c.kernel[1] / 2 * c.dilation[1])
                continue;
            nan_ending(&c, v & 4 ? 1 + i % (NAN_ENDINGS - 1) : sum ? 2 + i % 3 : 0);
            c.threads = v & 1 ? 2 : 1;
            if (v & 2)
                call_channels_last(&c);
            if (v & 2 || call_nan_in == CALL_BIAS)
                call_bias(&c);
            snprintf(name, sizeof name, "%s NaN in operand %d: %s shape %d variant %d", e->name,
                (int)call_nan_in, what, i, v);
            took += call_check(e, &c, v & 2 ? PACKED : RAW, 1e-5, name);
        }
    return took;
}

static int all_nan(const nnc_engine *e, call_operand which)
{
    nnc_call c[32];
    bool few = which == CALL_BIAS || which == CALL_SUM;
    int took = 0;
    call_nan_in = which;
    took += sweep_nan(e, c, few ? (conv_shapes(c), 5) : conv_shapes(c), "conv");
    took += few ? 0 : sweep_nan(e, c, transpose_shapes(c), "conv_transpose");
    took += sweep_nan(e, c, few ? (matmul_shapes(c), 5) : matmul_shapes(c), "matmul");
    call_nan_in = CALL_NONE;
    return took;
}

/* Watched, and with an ending of our own. */
TEST(onednn_keeps_nan)
{
    const nnc_engine *e = onednn();
    call_samples = 250;
    for (int which = CALL_SRC; e && which <= CALL_SUM; which++)
        CHECK(all_nan(e, (call_operand)which) > 60);
    call_samples = 200;
}

TEST(onednn_computes_once_without_nan)
{
    const nnc_engine *e = onednn();
    const char *why;
    _Atomic uint64_t *reruns = e ? nnc_plugin("onednn", "nnc_onednn_reruns", &why) : NULL;
    if (!e)
        return;
    CHECK(reruns != NULL);
    uint64_t before = *reruns;
    CHECK(all_nan(e, CALL_NONE) > 150);
    if (nnc_cpu_level() > 2) /* its SSE code computes with the bytes after a partial vector */
        CHECK_INT((int64_t)(*reruns - before), 0);
    before = *reruns;
    call_nan_in = CALL_SRC; /* and the count counts */
    nnc_call c = conv_call(2, 2, 16, 8, 16, 3, 1, 1);
    call_channels_last(&c);
    call_post(&c, PO_relu, 0, 0);
    CHECK(call_check(e, &c, PACKED, 2e-6, "NaN"));
    call_nan_in = CALL_NONE;
#if defined(__x86_64__)
    CHECK_INT((int64_t)(*reruns - before), 1); /* the second is not checked */
#endif
}

TEST(onednn_post_ops_keep_nan)
{
    const nnc_engine *e = onednn();
    for (int k = 0; e && k < PO__COUNT; k++)
        for (int t = 1; t <= 2; t++) {
            nnc_call c = conv_call(2, 2, 16, 9, 32, 3, 1, 1), m = matmul_call(40, 33, 64, true);
            char name[40];
            call_channels_last(&c);
            call_post(&c, (nnc_post_kind)k, 0.25f, 1.5f);
            call_post(&m, (nnc_post_kind)k, 0.25f, 1.5f);
            c.threads = m.threads = t;
            snprintf(name, sizeof name, "onednn post-op %d with NaN", k);
            call_nan_in = CALL_SRC;
            CHECK(call_check(e, &c, PACKED, 1e-5, name));
            CHECK(call_check(e, &m, PACKED, 1e-5, name));
            call_nan_in = CALL_NONE;
        }
}

/* 2^32 rows were a division by zero within oneDNN. */
TEST(onednn_declines_large_extents)
{
    const nnc_engine *e = onednn();
    nnc_call c[] = {matmul_call(8, 8, 8, true), matmul_call(8, 8, 8, true),
        conv_call(2, 1, 16, 8, 16, 3, 1, 1), conv_call(2, 1, 16, 8, 16, 3, 1, 1),
        conv_call(2, 1, 64, 8, 64, 3, 1, 1)};
    c[0].src.dim[0] = c[0].dst.dim[0] = INT64_C(1) << 32;
    int64_t src[] = {1 << 20, 1 << 12, 8}, dst[] = {1 << 20, 1 << 12, 8}; /* rows are joined */
    c[1].src = nnc_type_make(DT_f32, 3, src);
    c[1].dst = nnc_type_make(DT_f32, 3, dst);
    c[2].src.dim[0] = c[2].dst.dim[0] = INT64_C(1) << 34;
    c[3].pad_lo[0] = INT64_C(1) << 31;
    c[4].src.dim[0] = c[4].dst.dim[0] = INT64_C(1) << 33; /* as for Winograd's algorithm */
    call_channels_last(&c[4]);
    for (size_t i = 0; e && i < NNC_COUNT(c); i++) {
        nnc_choice choice;
        nnc_plan p = {.call = &c[i], .n_call = 1};
        void *handle;
        CHECK_OK(e->choose(&c[i], &choice, test_sink));
        CHECK(!choice.ok);
        CHECK_STR(choice.reason, "oneDNN supports extents below 2^31");
        CHECK_INT(e->load_call(&(nnc_load){.plan = &p, .item = 0}, &handle, NULL), NNC_E_DEVICE);
    }
}
