/* tests/api/kinds.c -- each device is compiled for its own target, whatever the others are. A graph of two equal halves, one on each
 * device, is compiled for targets A and B. Each half is then what it is when both devices are A, or both B. */
#include "cases.h"
#include "gen/gen.h"
#include <stdlib.h>

enum { CASES = 60 };

static const char *const targets[] = {
    "cpu", "tests/net/small.json", "cuda:sm_90", "cuda:sm_75", "cuda:sm_61"};

/* g twice, on devices 0 and 1, with paths "/0/..." and "/1/...". */
static nnc_graph *twice(const nnc_graph *g, nnc_sink *sink)
{
    nnc_graph *h = nnc_graph_create("twice", sink);
    nnc_ref *map = nnc_calloc(g->n_value + (size_t)1, sizeof *map);
    for (int16_t d = 0; h && map && d < 2; d++) {
        for (uint32_t i = 0; i < g->n_node; i++) {
            nnc_node n = g->node[i];
            nnc_ref in[64];
            for (int k = 0; k < n.n_in; k++)
                in[k] = map[n.in[k]];
            n.device = d;
            n.origin = nnc_arena_printf(&h->arena, "/%d/%s%u", d, nnc_ops[n.op].name, i);
            nnc_ref r = nnc_copy_node(h, g, &n, in);
            for (uint32_t k = 0; k < n.n_out && r != NNC_NONE; k++) {
                map[n.out + k] = r + k;
                nnc_set_name(h, r + k, nnc_arena_printf(&h->arena, "v%d_%u", d, n.out + k));
            }
        }
        for (uint32_t i = 0; i < g->n_output; i++)
            nnc_output(h, map[g->output[i]], nnc_arena_printf(&h->arena, "y%d_%u", d, i));
    }
    nnc_free(map);
    if (h && h->status == NNC_OK && nnc_verify(h, sink) == NNC_OK)
        return h;
    nnc_graph_destroy(h);
    return NULL;
}

/* Appends what is decided about layers under "/d/". */
static void put_remarks(nnc_text *t, const nnc_artifact *a, int d)
{
    const nnc_remarks *r = nnc_artifact_remarks(a);
    for (size_t i = 0; i < r->n; i++) {
        const nnc_remark *m = &r->at[i];
        if (!m->n_layers || m->layer[0][1] - '0' != d)
            continue;
        nnc_printf(t, "%s %d %s: %s %lld %lld", m->pass, m->applied, m->rule, m->reason,
            (long long)m->bytes_saved, (long long)m->launches_saved);
        for (int k = 0; k < m->n_layers; k++)
            nnc_printf(t, " %s", m->layer[k] + 2);
        nnc_putc(t, '\n');
    }
}

/* Appends the commands of device d: how each is computed, and of which shape its arguments are. */
static void put_commands(nnc_text *t, const nnc_artifact *a, int d)
{
    const nnc_plan *p = nnc_artifact_plan(a);
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->device != d)
            continue;
        nnc_printf(t, "%d %s %s (%s)", c->kind, c->op_class,
            c->engine < 0 ? "" : p->engine[c->engine], c->reason);
        for (const char *s = c->layers; *s; s++)
            if (*s != '0' + d || s == c->layers || s[-1] != '/' || s[1] != '/')
                nnc_putc(t, *s);
        for (int k = 0; k < c->n_arg; k++) {
            nnc_putc(t, ' ');
            nnc_put_type(t, &p->tensor[c->arg[k]].type);
        }
        if (c->kind == CMD_kernel)
            nnc_printf(t, " threads=%d object=%d\n%s", p->kernel[c->item].threads,
                nnc_pkernel_code(p, &p->kernel[c->item]) != NULL, p->kernel[c->item].ir);
        if (c->kind == CMD_call)
            nnc_printf(t, " work=%lld tf32=%d", (long long)p->call[c->item].work_bytes,
                p->call[c->item].tf32);
        nnc_putc(t, '\n');
    }
}

static nnc_artifact *compiled(
    const nnc_graph *g, const char *first, const char *second, const nnc_compile_options *o)
{
    char both[100];
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_text why = {0};
    snprintf(both, sizeof both, "%s,%s", first, second);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = both, .threads = 1, TEST_CACHED, .no_llvm = true}, &e,
        test_sink));
    if (e && (nnc_compile(e, g, o, &a, test_sink) || !api_check_artifact(a, &why, test_sink))) {
        api_put_sink(&why, test_sink);
        test_fail(__FILE__, __LINE__, "%s: %s", both, nnc_text_str(&why));
    }
    nnc_sink_clear(test_sink);
    nnc_text_deinit(&why);
    nnc_env_destroy(e);
    return a;
}

static void compare(uint64_t seed, const nnc_artifact *both, const nnc_artifact *alone, int d)
{
    nnc_text got[2] = {{0}, {0}}, want[2] = {{0}, {0}};
    put_remarks(&got[0], both, d);
    put_remarks(&want[0], alone, d);
    put_commands(&got[1], both, d);
    put_commands(&want[1], alone, d);
    for (int k = 0; k < 2; k++) {
        if (strcmp(nnc_text_str(&got[k]), nnc_text_str(&want[k])) != 0)
            test_fail(__FILE__, __LINE__, "NNC_CASE=%llu, device %d of %s, %s:\n%s\nwant:\n%s",
                (unsigned long long)seed, d, nnc_artifact_plan(both)->device[d].target,
                k ? "commands" : "remarks", nnc_text_str(&got[k]), nnc_text_str(&want[k]));
        nnc_text_deinit(&got[k]);
        nnc_text_deinit(&want[k]);
    }
}

typedef struct kinds_case {
    uint64_t seed;
    const char *a, *b; /* targets */
    nnc_compile_options o;
} kinds_case;

static void check_kinds(const nnc_graph *half, const void *ctx)
{
    const kinds_case *c = ctx;
    nnc_graph *g = twice(half, test_sink);
    nnc_artifact *both = g ? compiled(g, c->a, c->b, &c->o) : NULL,
                 *first = both ? compiled(g, c->a, c->a, &c->o) : NULL,
                 *second = both ? compiled(g, c->b, c->b, &c->o) : NULL;
    CHECK(both && first && second);
    if (both && first && second) {
        compare(c->seed, both, first, 0);
        compare(c->seed, both, second, 1);
    }
    nnc_artifact_destroy(both);
    nnc_artifact_destroy(first);
    nnc_artifact_destroy(second);
    nnc_graph_destroy(g);
}

TEST(each_device_as_if_alone)
{
    static const nnc_precision precision[] = {
        NNC_PRECISION_default, NNC_PRECISION_tf32, NNC_PRECISION_f16, NNC_PRECISION_bf16};
    const char *one = getenv("NNC_CASE");
    const uint32_t n = NNC_COUNT(targets);
    setenv("NNC_CUDA_PATH", "/nonexistent", 1);
    for (uint64_t i = one ? strtoull(one, NULL, 0) : 0,
                  to = one ? i + 1 : (uint64_t)test_draws(CASES);
         i < to; i++) {
        uint64_t key = nnc_rng_key("kinds", test_seed + i);
        kinds_case c = {.seed = i, .o = nnc_compile_defaults};
        c.a = targets[nnc_rng_u32(key, 0) % n];
        c.b = targets[(nnc_rng_u32(key, 0) + 1 + nnc_rng_u32(key, 1) % (n - 1)) % n];
        c.o.level = (int)(nnc_rng_u32(key, 2) % 5 == 0 ? i % 2 : 2 + i % 2);
        c.o.precision = precision[c.o.level < 2 ? 0 : nnc_rng_u32(key, 3) % 4];
        c.o.math = i % 3 == 0 ? MATH_fast : MATH_ulp2;
        gen_check(case_make(i, test_sink).g, check_kinds, &c);
    }
    unsetenv("NNC_CUDA_PATH");
}

static void check_text(const char *text, const char *a, const char *b)
{
    nnc_scan s;
    nnc_scan_init(&s, "g", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    const kinds_case c = {.a = a, .b = b, .o = nnc_compile_defaults};
    CHECK(g != NULL);
    if (g)
        check_kinds(g, &c);
    nnc_graph_destroy(g);
}

/* A small result that its consumers compute as they go: each device has a remark of its own, with what it saved there. */
TEST(small_results_of_each_device)
{
    check_text("graph @g {\n%x = input : f32[7]\n%h = hardswish %x\n"
               "%g = gelu %x {approximate=tanh}\n"
               "%b = broadcast %h {shape=[3,7]}\n%n = neg %g\n%c = constant : f32[] = [0.5]\n"
               "%a = abs %g\n%d = add %a, %c\n%y = div %b, %d\n"
               "return %n as \"n\", %y as \"y\" }",
        "cuda:sm_90", "cpu");
}

/* A gradient of weights whose outputs are innermost, and whose row-major and channels-last orders are one. Its relayout has a remark, so
 * that no other remark, perhaps of another device, accounts for it. */
TEST(relayouts_of_each_device)
{
    static const char text[] =
        "graph @g {\n%x = input : f32[2,3,6,6]\n%d = input : f32[2,4,6,6]\n"
        "%w = conv_wgrad %x, %d {kernel=[1,1]}\n%m = neg %w\nreturn %m as \"m\" }";
    check_text(text, "cuda:sm_90", "cpu");
    check_text(text, "tests/net/small.json", "cpu");
}

/* Checks the plan of a graph at each level, on two CPUs. */
static void each_level(const char *text, void (*check)(const nnc_plan *p))
{
    for (int level = 0; level < 4; level++) {
        nnc_scan s;
        nnc_scan_init(&s, "g", text, strlen(text));
        nnc_graph *g = nnc_graph_parse(&s, test_sink);
        nnc_compile_options o = nnc_compile_defaults;
        o.level = level;
        nnc_artifact *a = g ? compiled(g, "cpu", "tests/net/small.json", &o) : NULL;
        CHECK(a != NULL);
        if (a)
            check(nnc_artifact_plan(a));
        nnc_artifact_destroy(a);
        nnc_graph_destroy(g);
    }
}

static void conv_and_relu_apart(const nnc_plan *p)
{
    int found = 0;
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_kernel && c->kind != CMD_call)
            continue;
        bool conv = strstr(c->layers, "/conv"), relu = strstr(c->layers, "/relu"),
             exp = strstr(c->layers, "/exp");
        CHECK(!(conv || exp) || c->device == 0);
        CHECK(!relu || c->device == 1);
        found += relu;
    }
    CHECK_INT(found, 1);
}

/* A contraction's epilogue has no op of another device, at any level and for targets of one kind too. */
TEST(placement_is_kept)
{
    static const char text[] =
        "graph @g {\n%x = input : f32[1,8,9,9] device 0\n"
        "%w = param : f32[8,8,3,3] = gen(\"w\", seed=1, scale=0.1)\n"
        "%y = conv %x, %w device 0 loc \"/conv\"\n%z = relu %y device 1 loc \"/relu\"\n"
        "%p = exp %z loc \"/exp\"\nreturn %p }";
    each_level(text, conv_and_relu_apart);
}

static void all_on_device_1(const nnc_plan *p)
{
    CHECK(p->n_cmd > 0);
    for (int i = 0; i < p->n_cmd; i++)
        CHECK_INT(p->cmd[i].device, 1);
}

/* An output in another memory order is made row-major on its own device. */
TEST(outputs_on_their_device)
{
    static const char text[] =
        "graph @g {\n%x = input : f32[2,3,4,5] device 1\n%y = relu %x device 1 loc \"/y\"\n"
        "%z = relayout %y {order=[0,2,3,1]} device 1 loc \"/z\"\nreturn %z }";
    each_level(text, all_on_device_1);
}

/* The plan of a model for a machine, under the switches. */
static void put_plan(nnc_text *t, const char *target, bool no_llvm)
{
    static const char text[] =
        "graph @g {\n%x = input : f32[2,64,28,28]\n"
        "%w = param : f32[64,64,3,3] = gen(\"w\", seed=1, scale=0.1)\n"
        "%y = conv %x, %w {pads=[1,1,1,1]}\n%z = relu %y\n%p = maxpool %z {kernel=[2,2], "
        "strides=[2,2]}\n%s = softmax %p {axis=1}\nreturn %s }";
    nnc_env_options o = {.target = target, .threads = 1, TEST_CACHED, .no_llvm = no_llvm};
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_scan s;
    nnc_scan_init(&s, "g", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK_OK(nnc_env_create(&o, &e, test_sink));
    if (e && g)
        CHECK_OK(nnc_compile(e, g, &nnc_compile_defaults, &a, test_sink));
    if (a)
        nnc_plan_print(t, nnc_artifact_plan(a));
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
}

/* Without the hash of the target, of which this machine's CPU is a part. */
static void drop_hash(nnc_text *t)
{
    char *s = t->n ? strstr(t->s, "\"cpu#") : NULL;
    if (s)
        memset(s + 5, '0', 32);
}

/* --no-llvm means the same where a file describes this machine; a GPU's libraries are not concerned. */
TEST(switches_beside_a_file)
{
    static const char *const name[] = {"cpu", "cuda:sm_90"};
    char dir[256], file[300];
    nnc_target t[2];
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(file, sizeof file, "%s/machine.json", dir);
    CHECK_OK(nnc_target_host(&t[0], 0, 1, true, test_sink));
    CHECK_OK(nnc_target_cuda(&t[1], name[1], test_sink));
    setenv("NNC_CUDA_PATH", "/nonexistent", 1);
    for (int k = 0; k < 4; k++) {
        const bool gpu = k >= 2;
        nnc_text json = {0}, got = {0}, want = {0};
        nnc_target_print_json(&json, &t[gpu]);
        CHECK_OK(nnc_file_write(file, nnc_text_str(&json), json.n, false, test_sink));
        put_plan(&got, file, k & 1);
        put_plan(&want, name[gpu], !gpu && k & 1);
        drop_hash(&got);
        drop_hash(&want);
        CHECK(want.n > 0);
        CHECK_STR(nnc_text_str(&got), nnc_text_str(&want));
        nnc_text_deinit(&json);
        nnc_text_deinit(&got);
        nnc_text_deinit(&want);
    }
    unsetenv("NNC_CUDA_PATH");
    nnc_target_deinit(&t[0]);
    nnc_target_deinit(&t[1]);
    api_rmdir(dir);
}
