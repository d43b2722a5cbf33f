/* tests/target/target.c -- this machine's description, machine files and their mistakes, the
 * roofline. */
#include "cost/cost.h"
#include "cpu.h"
#include "test.h"
#include <stdlib.h>
#include <unistd.h>

static nnc_status load(nnc_target *t, const char *text);

TEST(target_host)
{
    nnc_target t;
    CHECK_OK(nnc_target_host(&t, 0, 0, true, test_sink));
    CHECK(t.cores >= 1 && t.threads == t.cores);
    CHECK(t.vector_bits == 128 || t.vector_bits == 256 || t.vector_bits == 512);
    CHECK(t.l1_bytes >= 8 << 10 && t.l2_bytes >= t.l1_bytes);
    CHECK(t.flops_f32 > 1000000000 && t.copy_bytes_s > 1000000000 &&
          t.cache_bytes_s > t.copy_bytes_s);
    CHECK(t.memory_bytes > 1 << 20);
    CHECK_STR(nnc_target_engine_for(&t, ASK_conv)->name, "llvm");
    CHECK_STR(nnc_target_engine_for(&t, ASK_matmul)->name, "llvm");
    CHECK_STR(
        nnc_target_offer(&t, &(nnc_ask){.kind = ASK_conv, .dtype = DT_bf16, .flops = 1000000000})
            .engine->name,
        "llvm");
    CHECK(nnc_target_engine_named(&t, "cudnn") == NULL);
    nnc_target_deinit(&t);
    CHECK_OK(nnc_target_host(&t, 0, 3, false, test_sink));
    CHECK_INT(t.threads, 3);
    CHECK_STR(nnc_target_engine_for(&t, ASK_conv)->name, "interp");
    CHECK_STR(nnc_target_offer(&t, &(nnc_ask){.kind = ASK_matmul, .dtype = DT_i8}).engine->name,
        "interp");
    CHECK(nnc_target_runs_kernels(nnc_target_engine_named(&t, "interp")));
    nnc_target_deinit(&t);
    t.n_engines = 1;
    t.engine[0] = (nnc_target_engine){.name = "llvm", .efficiency = 0.9};
    nnc_target_restrict(&t, true);
    CHECK(t.n_engines == 1 && !strcmp(t.engine[0].name, "llvm"));
    nnc_target_restrict(&t, false); /* a machine file may name LLVM alone */
    CHECK(t.n_engines == 1 && !strcmp(t.engine[0].name, "interp"));
    CHECK_INT(nnc_target_host(&t, 0, 5000, false, test_sink), NNC_E_USAGE);
    CHECK_DIAG("5000 threads");
}

/* Code for a described CPU runs where nothing of it is missing. */
TEST(target_host_lacks)
{
    nnc_target t;
    nnc_text name = {0};
    CHECK_OK(nnc_target_host(&t, 0, 1, true, test_sink));
    CHECK(nnc_target_host_lacks(&t) == NULL);
    nnc_target_host_name(&name);
    CHECK(name.n > 8 && !strchr(nnc_text_str(&name), '\n'));
    nnc_text_deinit(&name);
#ifdef __x86_64__
    int widest = t.vector_bits;
    t.features = "+sse4.1,+sse2,-fma4,+not-known";
    CHECK(nnc_target_host_lacks(&t) == NULL);
    t.features =
        "-xop,+tbm,+fma4,-tbm"; /* of AMD's CPUs until 2016; no server that is left has them */
    CHECK_STR(nnc_target_host_lacks(&t), "fma4");
    t.features = "";
    t.cpu = "x86-64-v4";
    CHECK((nnc_target_host_lacks(&t) == NULL) == (widest == 512));
    t.cpu = "another";
    t.vector_bits = 128;
    CHECK(nnc_target_host_lacks(&t) == NULL);
    t.vector_bits = 512;
    CHECK((nnc_target_host_lacks(&t) == NULL) == (widest == 512));
#endif
    nnc_target_deinit(&t);
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    CHECK(nnc_target_host_lacks(&t) == NULL);
    nnc_target_deinit(&t);
}

/* Each row describes a machine of its own, whose numbers follow from the row and whose file describes the same one. */
TEST(target_aarch64)
{
    nnc_target host, t, b;
    nnc_hash128 before = {0};
    int n = 0;
    CHECK_OK(nnc_target_host(&host, 0, 1, true, test_sink));
    for (const nnc_core *c; (c = nnc_target_core_at(n)) != NULL; n++) {
        char name[32];
        nnc_text x = {0}, y = {0};
        snprintf(name, sizeof name, "cpu:%s", c->name);
        CHECK_OK(nnc_target_aarch64(&t, name, 3, test_sink));
        CHECK(nnc_target_core(c->name) == c && !t.host && t.threads == 3 && t.cores == c->cores);
        CHECK_INT(t.vector_bits, 128);
        CHECK_INT(nnc_target_registers(&t), 32);
        CHECK(t.l1_bytes < t.l2_bytes && t.copy_bytes_s < t.cache_bytes_s && t.fma && t.f16c);
        CHECK_STR(nnc_target_engine_for(&t, ASK_conv)->name, "llvm");
        /* a multiply-add starts as often as the peak says, and the clock gives the waits */
        const nnc_core_prices p = nnc_target_prices(&t);
        const double ghz = c->mhz / 1e3, flops = 8e12 / (double)p.ps[NNC_P_op] * c->cores;
        CHECK_NEAR(flops / (double)t.flops_f32, 1, 0.01);
        CHECK_NEAR((double)p.ps[NNC_P_op_wait] * ghz / 1e3, c->op_latency, 0.01);
        CHECK(p.ps[NNC_P_divide] > p.ps[NNC_P_op] && p.window == c->window && !p.by_registers);
        for (int i = 0; i < NNC_P__COUNT; i++)
            CHECK(p.ps[i] > 0);
        const char *lacks = nnc_target_host_lacks(&t);
        CHECK(nnc_target_core(host.core) ? !lacks : !strcmp(lacks, "AArch64 instructions"));
        nnc_target_print_json(&x, &t);
        CHECK_OK(load(&b, nnc_text_str(&x)));
        nnc_target_print_json(&y, &b);
        CHECK_STR(nnc_text_str(&y), nnc_text_str(&x));
        const nnc_hash128 h = nnc_target_hash(&t);
        CHECK(h.lo == nnc_target_hash(&b).lo && h.lo != before.lo);
        before = h;
        nnc_target_deinit(&b);
        nnc_target_deinit(&t);
        nnc_text_deinit(&x);
        nnc_text_deinit(&y);
    }
    CHECK_INT(n, 5);
    CHECK_INT(nnc_target_aarch64(&t, "cpu:x86-64-v3", 0, test_sink), NNC_E_USAGE);
    nnc_target_deinit(&t);
    CHECK(!nnc_target_core("amd") && !nnc_target_core("") && !nnc_target_core(NULL));
    nnc_target_deinit(&host);
}

TEST(target_cuda)
{
    nnc_target t;
    int before = 0, n = 0;
    for (int sm; (sm = nnc_target_cuda_sm(n)) != 0; n++) {
        char name[32];
        snprintf(name, sizeof name, "cuda:sm_%d", sm);
        CHECK_OK(nnc_target_cuda(&t, name, test_sink));
        CHECK_STR(t.name, name);
        CHECK_INT(t.sm, sm);
        CHECK(sm > before);
        before = sm;
        /* f32 lanes of an SM by its clock: what the data sheet says of the card, within 5 % */
        double lanes = (double)t.flops_f32 / (2.0 * (double)t.clock_hz * t.sms);
        int want = sm == 70 || sm == 75 || sm == 80 ? 64 : 128;
        CHECK(lanes > 0.95 * want && lanes < 1.05 * want);
        CHECK(t.shared_bytes <= t.l1_bytes && t.sm_threads % 512 == 0);
        CHECK(t.copy_bytes_s < t.cache_bytes_s && t.l3_bytes < t.memory_bytes);
        CHECK(nnc_target_runs_kernels(nnc_target_engine_named(&t, "cuda")));
        CHECK_STR(nnc_target_engine_for(&t, ASK_conv)->name, "cudnn");
        CHECK_STR(nnc_target_engine_for(&t, ASK_matmul)->name, "cublaslt");
        const char *why = NULL; /* windows of usual nets are kernels', huge ones are not */
        for (int size = 1; size <= 5; size++)
            CHECK(nnc_target_depthwise(&t, size % 2 ? DT_f32 : DT_f16, size * size, &why));
        CHECK(why && strstr(why, "of memory"));
        CHECK(!nnc_target_depthwise(&t, DT_f16, 31 * 31, NULL));
        CHECK(!nnc_target_depthwise(&t, DT_i8, 9, NULL));
        for (nnc_row_product r = {1, 4096, 4096, 1, DT_f32, .kind = ASK_matmul}; r.rows <= 6;
             r.rows++) { /* up to four rows; where memory is fast for the instructions, fewer */
            nnc_target slow = t;
            slow.flops_f32 /= 256;
            CHECK_INT(nnc_target_row_product(&t, &r, &why), r.rows <= NNC_ROWS);
            CHECK(!nnc_target_row_product(&slow, &r, &why) || r.rows == 1);
            CHECK(strstr(why, "instructions") && strstr(why, "cublaslt"));
        }
        CHECK(!nnc_target_channels_last(&t, DT_f32, false));
        CHECK(nnc_target_channels_last(&t, DT_f16, false));
        CHECK_INT(nnc_target_peak_flops(&t, DT_f32, false), t.flops_f32);
        CHECK(nnc_target_channels_last(&t, DT_f32, true));
        CHECK_INT(
            nnc_target_peak_flops(&t, DT_f32, true), t.flops_tf32 ? t.flops_tf32 : t.flops_f32);
        CHECK_INT(
            nnc_target_peak_flops(&t, DT_bf16, false), t.flops_f16 ? t.flops_f16 : t.flops_f32);
        nnc_target_deinit(&t);
    }
    CHECK_INT(n, 9);
    CHECK_INT((int)nnc_sink_count(test_sink), 0);
}

TEST(target_cuda_names)
{
    static const char *const bad[] = {
        "cuda", "cuda:", "cuda:90", "cuda:sm_", "cuda:sm_90a", "cuda:sm_-9", "cuda:sm_12345"};
    nnc_target t;
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        nnc_sink_clear(test_sink);
        CHECK_INT(nnc_target_cuda(&t, bad[i], test_sink), NNC_E_USAGE);
        CHECK_DIAG("expected cuda:sm_ and a number");
        CHECK_DIAG("cuda:sm_90");
        nnc_target_deinit(&t);
    }
    CHECK_INT(nnc_target_cuda(&t, "cuda:sm_52", test_sink), NNC_E_USAGE);
    CHECK_DIAG("GPUs before sm_61 are not supported");
    nnc_target_deinit(&t);
    nnc_sink_clear(test_sink);
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_103", test_sink));
    CHECK_DIAG("using that of sm_100 (B200)");
    CHECK_INT(t.sm, 103);
    nnc_hash128 h = nnc_target_hash(&t);
    t.sm = 100;
    CHECK(nnc_target_hash(&t).lo != h.lo);
    nnc_target_deinit(&t);
}

TEST(target_host_is_the_same_twice)
{
    nnc_target a, b;
    CHECK_OK(nnc_target_host(&a, 0, 2, true, test_sink));
    CHECK_OK(nnc_target_host(&b, 0, 2, true, test_sink));
    nnc_text x = {0}, y = {0};
    nnc_target_print_json(&x, &a);
    nnc_target_print_json(&y, &b);
    CHECK_STR(nnc_text_str(&x), nnc_text_str(&y));
    nnc_hash128 h = nnc_target_hash(&a), k = nnc_target_hash(&b);
    CHECK(h.lo == k.lo && h.hi == k.hi);
    b.vector_bits = b.vector_bits == 512 ? 256 : 512;
    k = nnc_target_hash(&b);
    CHECK(h.lo != k.lo);
    nnc_text_deinit(&x);
    nnc_text_deinit(&y);
    nnc_target_deinit(&a);
    nnc_target_deinit(&b);
}

TEST(target_roofline)
{
    nnc_target t = {.flops_f32 = 1000000000000,
        .copy_bytes_s = 10000000000,
        .cache_bytes_s = 100000000000,
        .l2_bytes = 1 << 20,
        .cores = 2,
        .launch_ns = 1000};
    CHECK_INT(nnc_target_time_ns(&t, 0, 0), 1000);
    CHECK_INT(nnc_target_time_ns(&t, 1000000000, 0), 1001000); /* 1 GFLOP at 1 TFLOP/s */
    CHECK_INT(nnc_target_time_ns(&t, 0, 100000000), 10001000); /* 100 MB at 10 GB/s */
    CHECK_INT(nnc_target_time_ns(&t, 0, 1000000), 11000); /* in the caches at 100 GB/s */
    CHECK_INT(nnc_target_time_ns(&t, 1000000000, 100000000), 10001000);
    CHECK_INT(nnc_target_spare_ops(&t), 10000); /* of 100 flops each, in the 1 us of a launch */
    t.threads = 1; /* half of the cores */
    CHECK_INT(nnc_target_time_ns(&t, 1000000000, 0), 2001000);
    CHECK_INT(nnc_target_move_ns(&t, 1000000, 1), 20000);
    CHECK_INT(nnc_target_move_ns(&t, 1000000, 2), 10000);
    CHECK_INT(nnc_target_move_ns(&t, 1000000, 3), 10000); /* no more than all cores */
    t.cores = 40; /* ten of them reach the memory's bandwidth */
    t.threads = 5;
    t.l2_bytes = 1000;
    CHECK_INT(nnc_target_time_ns(&t, 0, 100000000), 20001000);
    t.threads = 10;
    CHECK_INT(nnc_target_time_ns(&t, 0, 100000000), 10001000);
}

/* Writes text to a file, loads it, removes it. */
static nnc_status load(nnc_target *t, const char *text)
{
    char path[] = "/tmp/nnc-machine-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        test_fail(__FILE__, __LINE__, "cannot write %s", path);
    close(fd);
    nnc_status s = nnc_target_load(t, path, test_sink);
    unlink(path);
    return s;
}

TEST(target_file_round_trip)
{
    nnc_target a, b;
    CHECK_OK(nnc_target_host(&a, 0, 2, true, test_sink));
    a.cpu = "x86-64-v3"; /* files have one: a described CPU is nobody's host */
    a.features = "+avx2";
    nnc_text x = {0}, y = {0};
    nnc_target_print_json(&x, &a);
    CHECK_OK(load(&b, nnc_text_str(&x)));
    nnc_target_print_json(&y, &b);
    CHECK_STR(nnc_text_str(&y), nnc_text_str(&x));
    CHECK(a.host && !b.host);
    CHECK(nnc_target_engine_named(&b, "llvm")->efficiency ==
          nnc_target_engine_named(&a, "llvm")->efficiency);
    nnc_target_deinit(&b);
    nnc_text_clear(&y); /* with what editors put first */
    nnc_printf(&y, "{\"$schema\": \"machine.schema.json\", %s", nnc_text_str(&x) + 1);
    CHECK_OK(load(&b, nnc_text_str(&y)));
    nnc_text_deinit(&x);
    nnc_text_deinit(&y);
    nnc_target_deinit(&a);
    nnc_target_deinit(&b);
}

/* What a file leaves out is the generic CPU's, never this machine's; an unknown engine is said to be ignored, where it stands. */
TEST(target_file_depends_on_no_host)
{
    static const struct {
        const char *bits, *cpu, *features;
    } of[] = {{"128, \"fma\": true", "x86-64", "+sse2,+fma"}, {"256", "x86-64-v3", "+avx2"},
        {"512, \"avx512_bf16\": true", "x86-64-v4",
            "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512bf16"},
        {"512, \"cpu\": \"znver4\"", "znver4", ""},
        {"128, \"core\": \"neoverse-v1\"", "generic", ""}};
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        nnc_target t;
        nnc_text s = {0};
        nnc_printf(&s,
            "{\"kind\": \"cpu\", \"name\": \"box\", \"cores\": 4, \"memory_bytes\": 1000, "
            "\"l1_bytes\": 1, \"l2_bytes\": 1, \"l3_bytes\": 1, \"flops_f32\": 1, "
            "\"copy_bytes_s\": 1, \"cache_bytes_s\": 1, \"launch_ns\": 1, \"vector_bits\": %s,\n"
            "\"engines\": [{\"name\": \"interp\"},\n{\"name\": \"elsewhere\"}]}",
            of[i].bits);
        nnc_sink_clear(test_sink);
        CHECK_OK(load(&t, nnc_text_str(&s)));
        CHECK_DIAG("machine file: engine \"elsewhere\" is unknown and ignored");
        CHECK_INT(nnc_sink_at(test_sink, 0)->loc.line, 3);
        CHECK_STR(t.cpu, of[i].cpu);
        CHECK_STR(t.features, of[i].features);
        CHECK(t.n_engines == 1 && !t.host);
        nnc_target_deinit(&t);
        nnc_text_deinit(&s);
    }
}

TEST(target_file_of_a_gpu)
{
    nnc_target a, b;
    nnc_text x = {0}, y = {0};
    CHECK_OK(nnc_target_cuda(&a, "cuda:sm_90", test_sink));
    nnc_target_print_json(&x, &a);
    CHECK_OK(load(&b, nnc_text_str(&x)));
    nnc_target_print_json(&y, &b);
    CHECK_STR(nnc_text_str(&y), nnc_text_str(&x));
    CHECK_INT(b.kind, NNC_T_cuda);
    CHECK_INT(b.sm, 90);
    CHECK_INT(b.shared_bytes, 232448);
    CHECK(nnc_target_hash(&a).lo == nnc_target_hash(&b).lo);
    nnc_text_deinit(&x);
    nnc_text_deinit(&y);
    nnc_target_deinit(&a);
    nnc_target_deinit(&b);
}

#define HEAD \
    "{\n\"kind\": \"cpu\", \"name\": \"box\", \"vector_bits\": 256, \"cores\": 4, " \
    "\"memory_bytes\": 1000,\n"
#define GPU \
    "{\n\"kind\": \"cuda\", \"name\": \"box\", \"vector_bits\": 128, \"cores\": 4, " \
    "\"memory_bytes\": 1000,\n"
#define REST \
    "\"l1_bytes\": 1, \"l2_bytes\": 2, \"l3_bytes\": 3, \"flops_f32\": 4, \"copy_bytes_s\": " \
    "5,\n\"cache_bytes_s\": 6, \"launch_ns\": 7"

TEST(target_file_errors)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {HEAD "\"l1_byte\": 1, " REST ", \"engines\": []}",
            ":3:1: : machine file: unknown key \"l1_byte\"; did you mean \"l1_bytes\"?"},
        {HEAD REST "}", "engines: expected a list"},
        {HEAD "\"threads\": 0,\n" REST ", \"engines\": []}",
            "threads: expected an integer from 1 to 1024"},
        {HEAD "\"fma\": 1,\n" REST ", \"engines\": []}", "fma: expected true or false"},
        {HEAD "\"cpu\": 1,\n" REST ", \"engines\": []}", "cpu: expected a string"},
        {"{\"kind\": \"cpu\", \"engines\": []}", "\"name\" is missing"},
        {"[1]", "the file: expected an object"},
        {"{\"kind\": ", "expected a JSON value"},
        {HEAD REST ", \"engines\": [{\"name\": \"x\", \"eficiency\": 1}]}",
            "did you mean \"efficiency\"?"},
        {HEAD REST ", \"engines\": [{\"name\": \"llvm\"}, {\"name\": \"llvm\"}]}",
            "each engine once"},
        {HEAD REST ", \"engines\": [{\"efficiency\": 1}]}", "\"name\" is missing"},
        {HEAD REST ", \"engines\": [3]}", "engines: expected an object"},
        {HEAD REST ", \"gpu\": {\"sm\": 90}, \"engines\": []}",
            "gpu: expected \"kind\": \"cuda\" where it is given"},
        {GPU REST ", \"engines\": []}", "gpu: expected an object with sm, sms"},
        {GPU REST ", \"gpu\": {\"sm\": 90}, \"engines\": []}", "\"sms\" is missing"},
        {GPU REST ", \"gpu\": {\"sn\": 90}, \"engines\": []}", "did you mean \"sm\"?"},
    };
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        nnc_target t;
        nnc_sink_clear(test_sink);
        if (load(&t, bad[i].text) == NNC_OK) {
            test_fail(__FILE__, __LINE__, "accepted: %s", bad[i].text);
            nnc_target_deinit(&t);
        }
        CHECK_DIAG(bad[i].says);
    }
}

TEST(target_file_minimal)
{
    nnc_target t;
    CHECK_OK(load(&t, HEAD REST ", \"engines\": []}"));
    CHECK_INT(t.threads, 4);
    CHECK_STR(t.cpu, "x86-64-v3");
    CHECK(nnc_target_engine_for(&t, ASK_conv) == NULL);
    nnc_target_deinit(&t);
}

TEST(target_file_out_of_memory)
{
    const char *text = HEAD REST ", \"engines\": [{\"name\": \"x\"}]}";
    int failed = 0;
    for (int64_t n = 1; n < 200; n++) {
        nnc_target t;
        nnc_fail_alloc_after(n);
        nnc_status s = load(&t, text);
        nnc_fail_alloc_after(0);
        if (s == NNC_OK) {
            nnc_target_deinit(&t);
            break;
        }
        failed++;
        CHECK(s == NNC_E_NOMEM);
    }
    CHECK(failed > 0 && failed < 199);
}

/* ---- offers ---------------------------------------------------------------------------------- */

/* An engine's answer for 10^9 FLOPs with these post-operations, "" where it takes them. */
static const char *answer(const nnc_target *t, const char *engine, nnc_ask a, const char *posts)
{
    static const char letters[] = "arclgGsStH"; /* by PO_*; A: a sum in place */
    a.flops = 1000000000;
    a.bytes = 4000000;
    a.results = 1000000;
    for (; *posts; posts++) {
        const char *at = strchr(letters, *posts == 'A' ? 'a' : *posts);
        a.post[a.n_post++] = (nnc_post){.kind = (uint8_t)(at - letters), .in_place = *posts == 'A'};
    }
    nnc_offer o = nnc_target_offer(t, &a);
    CHECK(!o.ok || o.time_ns > 0);
    CHECK_STR(o.engine ? o.engine->name : "none", engine);
    return o.ok ? "" : o.why ? o.why : "none";
}

static nnc_type type_of(const char *text)
{
    nnc_scan s;
    nnc_type t = {0};
    nnc_scan_init(&s, "type", text, strlen(text));
    CHECK_OK(nnc_scan_type(&s, test_sink, &t));
    return t;
}

/* Each matrix of a batched product has rows of its own; a convolution of one place is a product, too. */
TEST(matrices_of_products)
{
    static const struct {
        nnc_ask a;
        const char *x, *w;
        int64_t weights, matrices;
    } t[] = {
        {{.kind = ASK_matmul, .outputs = 64}, "f32[6,2,256]", "f32[6,64,256]", 16384, 6},
        {{.kind = ASK_matmul, .outputs = 64}, "f32[6,3,256]", "f32[6,64,256]", 16384, 6},
        {{.kind = ASK_matmul, .outputs = 64}, "f32[1,2,256]", "f32[6,64,256]", 0, 0},
        {{.kind = ASK_matmul, .outputs = 64}, "f32[12,256]", "f32[64,256]", 16384, 1},
        {{.kind = ASK_conv, .outputs = 64, .places = 1}, "f32[2,256,1]", "f32[64,256,1]", 16384, 1},
        {{.kind = ASK_conv, .outputs = 64, .places = 1, .grouped = true}, "f32[2,256,1]",
            "f32[64,128,1]", 0, 0},
        {{.kind = ASK_conv, .outputs = 64, .places = 2}, "f32[1,256,2]", "f32[64,256,1]", 0, 0},
    };
    for (size_t i = 0; i < NNC_COUNT(t); i++) {
        nnc_ask a = t[i].a;
        const nnc_type x = type_of(t[i].x), w = type_of(t[i].w);
        nnc_ask_product(&a, &x, &w);
        CHECK_INT(a.weights, t[i].weights);
        CHECK_INT(a.matrices, t[i].matrices);
    }
}

/* Short rows are read at a part of the rate, unless init puts them into panels. */
TEST(short_rows_are_read_in_pieces)
{
    nnc_target t = test_cpu(1, true);
    int64_t ns[2][2];
    for (int terms = 0; terms < 2; terms++)
        for (int made = 0; made < 2; made++) {
            nnc_ask a = {.kind = ASK_matmul, .dtype = DT_f32, .outputs = 4096, .results = 4096};
            a.packable = made;
            a.weights = 4096 * (terms ? 1024 : 512);
            a.flops = 2 * a.weights;
            a.bytes = 4 * a.weights;
            ns[terms][made] = nnc_target_offer(&t, &a).time_ns;
        }
    CHECK(ns[0][0] > ns[0][1] + ns[0][1] / 10);
    CHECK_INT(ns[1][0], ns[1][1]);
    nnc_target_deinit(&t);
}

TEST(engines_answer_by_rules)
{
    static const struct {
        const char *engine, *posts, *says;
        nnc_ask a;
    } t[] = {
        {"llvm", "r", "", {.dtype = DT_f32, .strided = true}},
        {"llvm", "rsHta", "", {.dtype = DT_i16}},
        {"cudnn", "ar", "", {.dtype = DT_bf16}},
        {"cudnn", "s", "none", {.dtype = DT_f16}},
        {"cudnn", "ra", "cudnn supports nothing after an activation", {.dtype = DT_f16}},
        {"cudnn", "r", "cudnn's relu turns NaN into a number, which --math=exact forbids",
            {.dtype = DT_f16, .exact = true}},
        {"cudnn", "r", "cudnn supports no epilogue of a transposed convolution",
            {.kind = ASK_conv_transpose, .dtype = DT_f16}},
        {"cublaslt", "aG", "", {.kind = ASK_matmul, .dtype = DT_f32, .bias = true}},
        {"cublaslt", "g", "none", {.kind = ASK_matmul, .dtype = DT_f32}},
        {"cublaslt", "r", "cublaslt fuses epilogues of f32, f16, bf16 only",
            {.kind = ASK_matmul, .dtype = DT_f64}},
        {"cublaslt", "", "cublaslt does not address parts of larger tensors",
            {.kind = ASK_matmul, .strided = true}},
        {"cudnn", "aa", "cudnn has a sum in its epilogue already", {.dtype = DT_f16}},
    };
    nnc_target cpu, gpu;
    cpu = test_cpu(2, true);
    CHECK_OK(nnc_target_cuda(&gpu, "cuda:sm_90", test_sink));
    for (size_t i = 0; i < NNC_COUNT(t); i++) {
        nnc_ask a = t[i].a;
        const nnc_target *on = t[i].engine[0] == 'c' ? &gpu : &cpu;
        CHECK_STR(answer(on, t[i].engine, a, t[i].posts), t[i].says);
    }
    nnc_target_deinit(&cpu);
    nnc_target_deinit(&gpu);
}

/* A trained matrix in rows of terms: generated kernels transpose it where it fits a core's cache and has 16 to 256 rows. */
TEST(trained_matrices_that_fit_a_cache)
{
    static const struct {
        int64_t rows, outputs, terms, matrices;
        bool made_in_init, lies_along_outputs, faster;
    } t[] = {{32, 512, 256, 1, .faster = true}, {16, 512, 256, 1, .faster = true},
        {256, 512, 256, 1, .faster = true}, {15, 512, 256, 1}, {257, 512, 256, 1},
        {32, 1024, 256, 1}, /* 1 MiB */
        {32, 512, 32, 1}, {32, 512, 256, 8}, {32, 500, 256, 1}, {32, 512, 256, 1, true},
        {32, 512, 256, 1, false, true}};
    nnc_target cpu = test_cpu(2, true);
    cpu.l2_bytes = 1 << 20;
    cpu.vector_bits = 512;
    for (size_t i = 0; i < NNC_COUNT(t); i++) {
        const nnc_ask a = {.kind = ASK_matmul,
            .dtype = DT_f32,
            .dynamic = !t[i].made_in_init,
            .dynamic_k_major = !t[i].lies_along_outputs,
            .matrices = t[i].matrices,
            .weights = t[i].outputs * t[i].terms,
            .outputs = t[i].outputs,
            .results = t[i].rows * t[i].outputs * t[i].matrices,
            .flops = 2 * t[i].rows * t[i].outputs * t[i].terms * t[i].matrices};
        nnc_ask along = a;
        along.dynamic_k_major = false;
        const int64_t ns = nnc_target_offer(&cpu, &a).time_ns,
                      other = nnc_target_offer(&cpu, &along).time_ns;
        if ((ns < other) != t[i].faster)
            test_fail(__FILE__, __LINE__, "case %zu", i);
    }
    nnc_target_deinit(&cpu);
}

TEST(row_major_convolutions_are_slow)
{
    nnc_target t = test_cpu(2, true);
    nnc_ask a = {.kind = ASK_conv,
        .dtype = DT_f32,
        .flops = 90 * INT64_C(1000000),
        .bytes = 200000,
        .results = 125000,
        .outputs = 40,
        .channels = 40};
    int64_t last = nnc_target_offer(&t, &a).time_ns;
    a.nchw = true;
    CHECK(nnc_target_offer(&t, &a).time_ns > last + last / 2);
    nnc_target_deinit(&t);
}

/* A gradient of weights has few results, each a sum over all places, and takes some more time than the convolution. */
TEST(gradients_of_weights_beside_convolutions)
{
    nnc_target t = test_cpu(1, true);
    for (int channels = 3; channels <= 64; channels += 61) {
        nnc_ask a = {.kind = ASK_conv,
            .dtype = DT_f32,
            .flops = INT64_C(2) * 56 * 56 * 64 * channels * 9,
            .results = 56 * 56 * 64,
            .outputs = 64,
            .channels = channels};
        const int64_t forward = nnc_target_offer(&t, &a).time_ns;
        a.kind = ASK_conv_wgrad;
        a.results = INT64_C(64) * channels * 9;
        const int64_t ns = nnc_target_offer(&t, &a).time_ns;
        CHECK(ns > forward && ns < (channels < 16 ? 2 : 1.5) * forward);
    }
    nnc_target_deinit(&t);
}

/* A kernel that is too short for two threads is expected to take what it takes on one, as it is scheduled. */
TEST(short_kernels_run_on_one_thread)
{
    nnc_ask a = {.kind = ASK_matmul, .dtype = DT_f32, .outputs = 16, .results = 256};
    int64_t ns[2][2];
    for (int threads = 1; threads <= 2; threads++) {
        nnc_target t = test_cpu(threads, true);
        t.cores = 2;
        t.flops_f32 = 200000000000;
        for (int large = 0; large < 2; large++) {
            a.flops = large ? 4000000 : 100000;
            ns[large][threads - 1] = nnc_target_offer(&t, &a).time_ns;
        }
        nnc_target_deinit(&t);
    }
    CHECK_INT(ns[0][0], ns[0][1]);
    CHECK(ns[1][1] < ns[1][0] * 2 / 3);
}

/* Four threads that share a strip of seven rows compute its prologue each, of 56 rows each its own. */
TEST(prologues_of_few_rows_are_repeated)
{
    int64_t more[2];
    nnc_target t = test_cpu(4, true);
    t.cores = 4;
    for (int i = 0; i < 2; i++) {
        int64_t rows = i ? 56 : 7, ns[2];
        for (int with = 0; with < 2; with++) {
            nnc_ask a = {.kind = ASK_matmul,
                .dtype = DT_f32,
                .outputs = 512,
                .results = 512 * rows,
                .flops = INT64_C(2) * 512 * rows * 100000,
                .prologue = with ? 200 : 0};
            ns[with] = nnc_target_offer(&t, &a).time_ns;
        }
        more[i] = ns[1] - ns[0];
    }
    CHECK(more[0] > more[1] * 2 / 5 && more[0] < more[1]);
    nnc_target_deinit(&t);
}

/* Vectors of a panel are of a sum's terms: of 4, where 16 fill one, as much is computed, and each waits for itself. */
TEST(prologues_of_few_terms_fill_no_vectors)
{
    enum { ROWS = 4096 };
    int64_t more[2];
    nnc_target t = test_cpu(1, true);
    const int lanes = t.vector_bits / 32;
    for (int i = 0; i < 2; i++) {
        int64_t ns[2];
        for (int with = 0; with < 2; with++) {
            nnc_ask a = {.kind = ASK_matmul,
                .dtype = DT_f32,
                .outputs = 64,
                .results = 64 * ROWS,
                .flops = INT64_C(2) * 64 * ROWS * (i ? lanes : lanes / 4),
                .prologue = with ? 50 : 0};
            ns[with] = nnc_target_offer(&t, &a).time_ns;
        }
        more[i] = ns[1] - ns[0];
    }
    CHECK(more[0] >= more[1]);
    nnc_target_deinit(&t);
}

static int64_t offered(const nnc_target *t, nnc_ask a, int kind)
{
    a.n_post = kind < 0 ? 0 : 1;
    a.post[0].kind = (uint8_t)(kind < 0 ? 0 : kind);
    return nnc_target_offer(t, &a).time_ns;
}

/* A post-operation is computed for whole vectors of outputs, and for those of one group. */
TEST(epilogues_use_whole_vectors)
{
    nnc_target t = test_cpu(1, true);
    t.vector_bits = 512;
    nnc_ask a = {.kind = ASK_conv, .dtype = DT_f32, .results = 320000, .channels = 32};
    a.outputs = 32;
    int64_t bare = offered(&t, a, -1), full = offered(&t, a, PO_silu);
    CHECK_INT(offered(&t, a, PO_relu), bare);
    CHECK(offered(&t, a, PO_gelu_erf) - bare > full - bare);
    CHECK(offered(&t, a, PO_hardswish) - bare < (full - bare) / 2);
    a.outputs = 8;
    int64_t half = offered(&t, a, PO_silu) - offered(&t, a, -1) - (full - bare);
    CHECK(half > (full - bare) * 9 / 10 && half < (full - bare) * 11 / 10);
    a.grouped = true;
    CHECK(offered(&t, a, PO_relu) > offered(&t, a, -1));
    a.grouped = false;
    a.outputs = 17; /* vectors of places, not of outputs */
    int64_t last = offered(&t, a, PO_silu) - offered(&t, a, -1);
    a.nchw = true;
    CHECK(offered(&t, a, PO_silu) - offered(&t, a, -1) < last * 2 / 3);
    a = (nnc_ask){
        .kind = ASK_conv, .results = 180000, .outputs = 1, .channels = 1, .grouped = true};
    int64_t more[2]; /* of 18 channels, each a group, as of 32 */
    for (int i = 0; i < 2; i++) {
        a.groups = i ? 32 : 18;
        a.results = 10000 * a.groups;
        more[i] = offered(&t, a, PO_silu) - offered(&t, a, -1);
    }
    CHECK(more[0] > 0 && llabs(more[0] - more[1]) <= more[1] / 100);
    nnc_target_deinit(&t);
}

/* Devices of hardware files: members of a machine file replace those of a described GPU; a CPU has all of them. */
TEST(target_described_elsewhere)
{
    static const struct {
        const char *name, *machine, *says; /* NULL: fine */
    } cases[] = {
        {"cuda:sm_80", "{\"memory_bytes\": 1000, \"gpu\": {\"sms\": 40, \"card\": \"half\"}}",
            NULL},
        {"cuda:sm_80", "{\"engines\": [{\"name\": \"cuda\"}]}", NULL},
        {"cuda:sm_80", "{\"name\": \"x\"}", "box: unknown key \"name\""},
        {"cuda:sm_80", "{\"gpu\": {\"sm\": 90}}", "box: unknown key \"sm\"; did you mean \"sms\"?"},
        {"cuda:sm_80", "{\"gpu\": 3}", "box: gpu: expected an object"},
        {"cuda:sm_80", "[]", "box: machine: expected an object"},
        {"cpu", "{\"kind\": \"cpu\", \"name\": \"cpu\"}", "box: \"vector_bits\" is missing"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_json j;
        nnc_target t, plain;
        nnc_sink_clear(test_sink);
        CHECK_OK(
            nnc_json_parse(&j, "h.json", cases[i].machine, strlen(cases[i].machine), test_sink));
        const nnc_status st = nnc_target_described(&t, cases[i].name, "box", &j, j.root, test_sink);
        nnc_json_deinit(&j);
        CHECK_INT(st, cases[i].says ? NNC_E_USAGE : NNC_OK);
        if (cases[i].says) {
            CHECK_DIAG(cases[i].says);
            continue;
        }
        CHECK_OK(nnc_target_cuda(&plain, cases[i].name, test_sink));
        CHECK_INT(t.cores, i == 0 ? 40 : plain.sms);
        CHECK_INT(t.memory_bytes, i == 0 ? 1000 : plain.memory_bytes);
        CHECK_STR(t.card, i == 0 ? "half" : plain.card);
        CHECK_INT(t.n_engines, i == 1 ? 1 : plain.n_engines);
        CHECK_INT(t.flops_f32, plain.flops_f32);
        CHECK_INT(t.sm, 80);
        nnc_target_deinit(&plain);
        nnc_target_deinit(&t);
    }
}

/* Versions by architecture, those that a file says instead, and what cannot be. */
TEST(target_libraries)
{
    static const struct {
        const char *name, *machine, *says; /* the libraries; or the diagnostic */
        int engines; /* 0: rejected */
    } cases[] = {
        {"cuda:sm_90", "{}", "cuDNN 9.19, cuBLASLt 13.1, NCCL 2.28", 3},
        {"cuda:sm_75", "{}", "cuDNN 9.19, cuBLASLt 13.1, NCCL 2.28", 3},
        {"cuda:sm_70", "{}", "cuDNN 9.10, cuBLASLt 12.9, NCCL 2.27", 3},
        {"cuda:sm_61", "{\"libraries\": {\"cudnn\": \"8.9.7\"}}",
            "cuDNN 8.9.7, cuBLASLt 12.9, NCCL 2.27", 3},
        {"cuda:sm_90", "{\"libraries\": {\"cudnn\": null, \"nccl\": null}}",
            "no cuDNN, cuBLASLt 13.1, no NCCL", 2},
        {"cuda:sm_90", "{\"libraries\": {\"cublaslt\": null}}",
            "cuDNN 9.19, no cuBLASLt, NCCL 2.28", 2},
        {"cuda:sm_61", "{\"libraries\": {\"cudnn\": \"9.19\"}}",
            "box: cudnn: expected a version that supports sm_61; cuDNN 9.19 supports sm_75 and "
            "later",
            0},
        {"cuda:sm_70", "{\"libraries\": {\"cublaslt\": \"13.0\"}}",
            "box: cublaslt: expected a version that supports sm_70; cuBLASLt 13.0 supports sm_75",
            0},
        {"cuda:sm_90", "{\"libraries\": {\"cudn\": \"9.19\"}}",
            "box: unknown key \"cudn\"; did you mean \"cudnn\"?", 0},
        {"cuda:sm_90", "{\"libraries\": {\"cudnn\": \"nine\"}}", "box: cudnn: expected a version",
            0},
        {"cuda:sm_90", "{\"libraries\": {\"cudnn\": \"9\"}}", "box: cudnn: expected a version", 0},
        {"cuda:sm_90", "{\"libraries\": {\"cudnn\": \"9.1.\"}}", "box: cudnn: expected a version",
            0},
        {"cuda:sm_90", "{\"libraries\": {\"cudnn\": 9.1}}", "box: cudnn: expected a version", 0},
        {"cuda:sm_90", "{\"libraries\": []}", "box: libraries: expected an object", 0},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_json j;
        nnc_target t;
        NNC_LOCAL(nnc_text) said = {0};
        nnc_sink_clear(test_sink);
        CHECK_OK(
            nnc_json_parse(&j, "h.json", cases[i].machine, strlen(cases[i].machine), test_sink));
        const nnc_status st = nnc_target_described(&t, cases[i].name, "box", &j, j.root, test_sink);
        nnc_json_deinit(&j);
        CHECK_INT(st, cases[i].engines ? NNC_OK : NNC_E_USAGE);
        if (st) {
            CHECK_DIAG(cases[i].says);
            continue;
        }
        nnc_target_put_libraries(&said, &t);
        CHECK_STR(nnc_text_str(&said), cases[i].says);
        CHECK_INT(t.n_engines, cases[i].engines);
        nnc_target_deinit(&t);
    }
    nnc_target t;
    nnc_sink_clear(test_sink);
    CHECK(load(&t, HEAD REST ", \"libraries\": {}, \"engines\": []}") != NNC_OK);
    CHECK_DIAG("libraries: expected \"kind\": \"cuda\" where it is given");
}
