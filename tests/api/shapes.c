/* tests/api/shapes.c -- an artifact's model for other args and shapes: the same numbers as a fresh compile gives, weights held once,
 * recent plans kept, clear errors. */
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

static char dir[256];

static const char *in_dir(const char *name)
{
    return api_in(dir, name);
}

static nnc_env *open_env(const nnc_env_options *o)
{
    nnc_env *e = NULL;
    CHECK(api_tmpdir(dir, sizeof dir));
    CHECK_OK(nnc_env_create(o ? o : &(nnc_env_options){.threads = 2}, &e, test_sink));
    return e;
}

static void close_env(nnc_env *e)
{
    nnc_env_destroy(e);
    api_rmdir(dir);
}

typedef struct request {
    nnc_arg arg[3];
    int n;
} request;

static nnc_open_options options_of(const request *r)
{
    return (nnc_open_options){.arg = r->arg, .n_arg = r->n};
}

/* ---- numbers ---- */

/* The first output of a session of a on generated inputs, as a hash. */
static nnc_hash128 run_session(nnc_session *s, const nnc_artifact *a)
{
    nnc_hash128 h = {0, 0};
    for (int i = 0; i < nnc_session_inputs(s); i++) {
        void *data = nnc_malloc((size_t)nnc_type_bytes(nnc_session_input_type(s, i)));
        CHECK_OK(nnc_artifact_fill_input(a, i, 7, data, test_sink));
        CHECK_OK(nnc_session_input(s, i, data, test_sink));
        nnc_free(data);
    }
    CHECK_OK(nnc_session_run(s, test_sink));
    size_t n = (size_t)nnc_type_bytes(nnc_session_output_type(s, 0));
    void *out = nnc_malloc(n);
    CHECK_OK(nnc_session_output(s, 0, out, test_sink));
    h = nnc_hash(out, n);
    nnc_free(out);
    return h;
}

static nnc_hash128 run(nnc_env *e, const nnc_artifact *a)
{
    nnc_session *s = NULL;
    nnc_hash128 h = {0, 0};
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    if (s)
        h = run_session(s, a);
    nnc_session_destroy(s);
    return h;
}

static nnc_artifact *compile(
    nnc_env *e, const char *file, const nnc_open_options *o, const nnc_compile_options *c)
{
    nnc_artifact *a = NULL;
    nnc_model *m = nnc_model_open(file, o, test_sink);
    CHECK(m != NULL);
    if (m)
        CHECK_OK(nnc_compile(e, m, c, &a, test_sink));
    nnc_model_close(m);
    return a;
}

/* Plan texts without the places of weights, which embedded ones have elsewhere. */
static bool same_plan(nnc_env *e, const nnc_artifact *a, const nnc_artifact *b)
{
    nnc_text x = {0}, y = {0};
    CHECK_OK(nnc_emit_text(e, a, "graph", &x, test_sink));
    CHECK_OK(nnc_emit_text(e, b, "graph", &y, test_sink));
    bool same = !strcmp(nnc_text_str(&x), nnc_text_str(&y));
    nnc_text_clear(&x);
    nnc_text_clear(&y);
    CHECK_OK(nnc_emit_text(e, a, "kernels", &x, test_sink));
    CHECK_OK(nnc_emit_text(e, b, "kernels", &y, test_sink));
    same = same && !strcmp(nnc_text_str(&x), nnc_text_str(&y));
    nnc_text_deinit(&x);
    nnc_text_deinit(&y);
    return same;
}

static bool equal(nnc_hash128 a, nnc_hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* Other shapes of `root`, beside a session of it, against fresh compiles. */
static void check_shapes(nnc_env *e, nnc_artifact *root, const char *file, const request *first,
    const nnc_compile_options *c, bool embedded)
{
    static const char *const batch[] = {"3", "1"};
    nnc_session *s = NULL;
    CHECK_OK(nnc_session_create(e, root, &s, test_sink));
    nnc_hash128 before = s ? run_session(s, root) : (nnc_hash128){0, 0};
    for (size_t i = 0; s && i < NNC_COUNT(batch); i++) {
        request r = *first, again = {{{"batch", batch[i]}}, 1};
        r.arg[0].value = batch[i];
        const nnc_open_options o = options_of(&again), all = options_of(&r);
        nnc_artifact *a = NULL, *fresh = compile(e, file, &all, c);
        CHECK_OK(nnc_artifact_for(e, root, &o, &a, test_sink));
        if (a && fresh) {
            CHECK(embedded || same_plan(e, a, fresh));
            CHECK(equal(run(e, a), run(e, fresh)));
        }
        nnc_artifact_destroy(a);
        nnc_artifact_destroy(fresh);
    }
    CHECK(s && equal(before, run_session(s, root)));
    nnc_session_destroy(s);
}

static void check_model(
    nnc_env *e, const char *file, const request *r, const nnc_compile_options *c)
{
    const nnc_open_options o = options_of(r);
    nnc_artifact *a = compile(e, file, &o, c), *b = NULL;
    if (!a)
        return;
    check_shapes(e, a, file, r, c, false);
    for (int embed = 0; embed < 2; embed++) {
        CHECK_OK(nnc_artifact_save(a, in_dir("a.nnc"), embed, test_sink));
        CHECK_OK(nnc_artifact_load(e, in_dir("a.nnc"), &b, test_sink));
        if (b)
            check_shapes(e, b, file, r, c, embed);
        nnc_artifact_destroy(b);
    }
    nnc_artifact_destroy(a);
}

TEST(other_shapes_have_the_numbers_of_a_fresh_compile)
{
    nnc_env *e = open_env(NULL);
    static const struct {
        const char *file;
        request r;
    } at[] = {{"models/mlp.json", {{{"batch", "2"}, {"hidden", "40"}}, 2}},
        {"models/mobilenet_v2.json", {{{"batch", "2"}, {"image", "32"}}, 2}},
        {"models/transformer_mlp.json", {{{"batch", "2"}, {"dim", "96"}}, 2}},
        {"models/unet.json", {{{"batch", "2"}, {"image", "32"}, {"channels", "8"}}, 3}}};
    for (size_t i = 0; e && i < NNC_COUNT(at); i++)
        if (test_takes(i, 4))
            check_model(e, at[i].file, &at[i].r, NULL);
    close_env(e);
}

/* The flags of the artifact are those of its other shapes. */
TEST(other_shapes_have_the_flags_of_the_artifact)
{
    nnc_env *e = open_env(NULL);
    const request r = {{{"batch", "2"}, {"hidden", "40"}}, 2};
    static const char *const skip[] = {"fuse", "algebra"};
    nnc_compile_options c = nnc_compile_defaults;
    c.level = 3;
    c.math = MATH_fast;
    c.precision = NNC_PRECISION_bf16;
    c.streams = 2;
    c.devices = 2;
    c.skip = skip;
    c.n_skip = 2;
    if (e)
        check_model(e, "models/mlp.json", &r, &c);
    c = nnc_compile_defaults;
    c.level = 0;
    if (e)
        check_model(e, "models/mlp.json", &r, &c);
    close_env(e);
    e = open_env(&(nnc_env_options){.threads = 1});
    if (e)
        check_model(e, "models/mlp.json", &r, NULL);
    close_env(e);
}

static nnc_artifact *load(nnc_env *e, const nnc_artifact *a, bool embed)
{
    nnc_artifact *b = NULL;
    CHECK_OK(nnc_artifact_save(a, in_dir("a.nnc"), embed, test_sink));
    CHECK_OK(nnc_artifact_load(e, in_dir("a.nnc"), &b, test_sink));
    return b;
}

static nnc_status for_args(nnc_env *e, nnc_artifact *a, const request *r, nnc_artifact **out)
{
    const nnc_open_options o = options_of(r);
    return nnc_artifact_for(e, a, &o, out, test_sink);
}

/* Numbers of the artifact's model at batch 3. */
static nnc_hash128 at_3(nnc_env *e, nnc_artifact *a)
{
    nnc_artifact *b = NULL;
    nnc_hash128 h = {0, 0};
    CHECK_OK(for_args(e, a, &(request){{{"batch", "3"}}, 1}, &b));
    if (b)
        h = run(e, b);
    nnc_artifact_destroy(b);
    return h;
}

/* Weights from a file, which is gone or elsewhere when other shapes are planned. */
static void weights_from(nnc_env *e, const char *name)
{
    const request r = {{{"batch", "2"}, {"hidden", "40"}}, 2},
                  three = {{{"batch", "3"}, {"hidden", "40"}}, 2}, wider = {{{"hidden", "41"}}, 1};
    nnc_open_options o = options_of(&r), o3 = options_of(&three);
    nnc_artifact *none = NULL;
    o.seed = 9;
    nnc_model *m = nnc_model_open("models/mlp.json", &o, test_sink);
    CHECK_OK(nnc_model_write_weights(m, in_dir(name), test_sink));
    nnc_model_close(m);
    o.seed = 0;
    o.weights = o3.weights = strdup(in_dir(name));
    nnc_artifact *a = compile(e, "models/mlp.json", &o, NULL),
                 *fresh = compile(e, "models/mlp.json", &o3, NULL);
    const nnc_hash128 want = run(e, fresh);
    nnc_artifact *plain = load(e, a, false);
    CHECK(equal(at_3(e, plain), want));
    nnc_artifact *embedded = load(e, a, true);
    char *moved = strdup(in_dir("moved"));
    CHECK(rename(o.weights, moved) == 0);
    CHECK(equal(at_3(e, embedded), want));
    CHECK_INT(for_args(e, embedded, &wider, &none), NNC_E_MODEL);
    CHECK_DIAG("fc.weight");
    nnc_sink_clear(test_sink);
    nnc_artifact_destroy(plain);
    plain = load(e, a, false);
    CHECK_OK(nnc_artifact_use_weights(plain, moved, test_sink));
    CHECK(equal(at_3(e, plain), want));
    nnc_artifact_destroy(plain);
    nnc_artifact_destroy(embedded);
    nnc_artifact_destroy(fresh);
    nnc_artifact_destroy(a);
    free((void *)o.weights);
    free(moved);
}

TEST(other_shapes_with_a_file_of_weights)
{
    nnc_env *e = open_env(NULL);
    if (e)
        weights_from(e, "w.safetensors");
    close_env(e);
}

/* ---- memory ---- */

static int64_t persistent(const nnc_session *s)
{
    return nnc_exec_requested(s->exec, 0).persist;
}

/* Static values are held once, for as long as any session uses them. */
static void check_memory(nnc_env *e, const char *file, const request *r, int percent)
{
    const nnc_open_options o = options_of(r);
    nnc_artifact *a = compile(e, file, &o, NULL), *b = NULL;
    nnc_session *s[4] = {NULL};
    CHECK_OK(for_args(e, a, &(request){{{"batch", "3"}}, 1}, &b));
    const nnc_hash128 want = run(e, b), first = run(e, a);
    CHECK_OK(nnc_session_create(e, a, &s[0], test_sink));
    CHECK_OK(nnc_session_create(e, a, &s[1], test_sink));
    CHECK_OK(nnc_session_create(e, b, &s[2], test_sink));
    int64_t all = a->plan->device[0].persist_bytes;
    CHECK_INT(persistent(s[0]), all);
    CHECK_INT(persistent(s[1]), 0);
    CHECK(persistent(s[2]) * 100 <= all * percent);
    CHECK(equal(run_session(s[2], b), want) && equal(run_session(s[1], a), first));
    nnc_session_destroy(s[0]); /* which has allocated them */
    CHECK(equal(run_session(s[2], b), want) && equal(run_session(s[1], a), first));
    nnc_session_destroy(s[1]);
    CHECK(equal(run_session(s[2], b), want));
    nnc_session_destroy(s[2]);
    CHECK_OK(nnc_session_create(e, b, &s[3], test_sink));
    CHECK_INT(persistent(s[3]), b->plan->device[0].persist_bytes);
    CHECK(equal(run_session(s[3], b), want));
    nnc_session_destroy(s[3]);
    nnc_artifact_destroy(b);
    nnc_artifact_destroy(a);
}

TEST(sessions_share_their_weights)
{
    for (int k = 0; k < 2; k++) {
        const nnc_env_options o = {.threads = 2, .no_llvm = k};
        nnc_env *e = open_env(&o);
        const request r = {{{"batch", "6"}, {"hidden", "40"}}, 2},
                      net = {{{"batch", "2"}, {"image", "32"}}, 2};
        if (e) /* kernels, which also compute products of 2 rows, may pack for the rows of a block */
            check_memory(e, "models/mlp.json", &r, 100);
        if (e && !k)
            check_memory(e, "models/mobilenet_v2.json", &net, 50);
        close_env(e);
    }
}

TEST(models_that_share_hold_their_weights_once)
{
    nnc_env *e = open_env(NULL);
    const request two = {{{"batch", "2"}, {"image", "32"}}, 2},
                  three = {{{"batch", "3"}, {"image", "32"}}, 2};
    const nnc_open_options o = options_of(&two), p = options_of(&three);
    nnc_artifact *a = e ? compile(e, "models/mobilenet_v2.json", &o, NULL) : NULL;
    nnc_artifact *b = a ? compile(e, "models/mobilenet_v2.json", &p, NULL) : NULL;
    nnc_session *s[2] = {NULL};
    if (b) {
        const nnc_hash128 alone = run(e, b), first = run(e, a);
        nnc_artifact_share(b, a);
        CHECK_OK(nnc_session_create(e, a, &s[0], test_sink));
        CHECK_OK(nnc_session_create(e, b, &s[1], test_sink));
        CHECK(persistent(s[1]) * 2 <= b->plan->device[0].persist_bytes);
        CHECK(equal(run_session(s[1], b), alone) && equal(run_session(s[0], a), first));
        nnc_session_destroy(s[0]);
        nnc_artifact_destroy(a);
        CHECK(equal(run_session(s[1], b), alone)); /* b keeps what it uses */
        nnc_session_destroy(s[1]);
    } else {
        nnc_artifact_destroy(a);
    }
    nnc_artifact_destroy(b);
    close_env(e);
}

/* State belongs to its session. */
TEST(sessions_do_not_share_state)
{
    static const char text[] = "graph @count {\n"
                               "  %x = input : f32[4]\n"
                               "  %w = param : f32[4] = gen(\"w\", seed=0, scale=1, shift=0)\n"
                               "  %v = param : f32[4] = gen(\"v\", seed=0, scale=1, shift=0)\n"
                               "  %y = add %x, %w : f32[4]\n"
                               "  %z = add %y, %v : f32[4]\n"
                               "  return %z as \"z\"\n"
                               "  update %w <- %y\n"
                               "}\n";
    nnc_env *e = open_env(NULL);
    nnc_session *s[2] = {NULL};
    float x[4] = {1, 2, 3, 4}, state[2][4];
    CHECK_OK(nnc_file_write(in_dir("count.txt"), text, sizeof text - 1, false, test_sink));
    nnc_artifact *a = compile(e, in_dir("count.txt"), NULL, NULL);
    for (int i = 0; a && i < 2; i++)
        CHECK_OK(nnc_session_create(e, a, &s[i], test_sink));
    CHECK_OK(nnc_session_input(s[0], 0, x, test_sink));
    CHECK_OK(nnc_session_state(s[1], 0, state[1], test_sink));
    CHECK_OK(nnc_session_step(s[0], test_sink));
    CHECK_OK(nnc_session_state(s[0], 0, state[0], test_sink));
    for (int i = 0; i < 4; i++)
        CHECK(state[0][i] == state[1][i] + x[i]);
    CHECK_OK(nnc_session_state(s[1], 0, state[0], test_sink));
    CHECK(!memcmp(state[0], state[1], sizeof state[0]));
    nnc_session_destroy(s[1]);
    nnc_session_destroy(s[0]);
    nnc_artifact_destroy(a);
    close_env(e);
}

typedef struct runner {
    nnc_session *s;
    nnc_artifact *a;
    nnc_hash128 want;
    bool same;
} runner;

static void *run_often(void *ctx)
{
    runner *r = ctx;
    r->same = true;
    for (int i = 0; i < 20; i++)
        r->same = equal(run_session(r->s, r->a), r->want) && r->same;
    nnc_session_destroy(r->s);
    nnc_artifact_destroy(r->a);
    return NULL;
}

/* Sessions of several shapes run, and end, on threads of their own. */
TEST(shapes_side_by_side)
{
    enum { N = 4 };
    static const char *const batch[N] = {"1", "2", "3", "4"};
    nnc_env *e = open_env(NULL);
    runner r[N];
    pthread_t thread[N];
    nnc_artifact *a = compile(e, "models/mlp.json", NULL, NULL);
    for (int i = 0; a && i < N; i++) {
        r[i] = (runner){.same = false};
        CHECK_OK(for_args(e, a, &(request){{{"batch", batch[i]}}, 1}, &r[i].a));
        r[i].want = run(e, r[i].a);
        CHECK_OK(nnc_session_create(e, r[i].a, &r[i].s, test_sink));
    }
    nnc_artifact_destroy(a);
    for (int i = 0; i < N; i++)
        CHECK(pthread_create(&thread[i], NULL, run_often, &r[i]) == 0);
    for (int i = 0; i < N; i++)
        CHECK(pthread_join(thread[i], NULL) == 0 && r[i].same);
    close_env(e);
}

/* ---- recent plans ---- */

TEST(recent_plans_are_kept)
{
    nnc_env *e = open_env(NULL);
    nnc_artifact *a = compile(e, "models/relu.json", NULL, NULL), *b = NULL, *c = NULL, *d = NULL;
    const request two = {{{"batch", "2"}}, 1};
    char n[16];
    CHECK_OK(for_args(e, a, &two, &b));
    CHECK_OK(for_args(e, a, &two, &c));
    CHECK(b && b == c);
    nnc_artifact_destroy(b);
    nnc_artifact_destroy(c);
    CHECK_OK(for_args(e, a, &two, &c));
    CHECK(b == c); /* nobody had it, and it was kept */
    for (int i = 0; i < NNC_RECENT; i++) {
        snprintf(n, sizeof n, "%d", i + 10);
        CHECK_OK(for_args(e, a, &(request){{{"batch", n}}, 1}, &d));
        nnc_artifact_destroy(d);
    }
    CHECK_OK(for_args(e, c, &two, &d)); /* as of a; c is in use, and not the latest any more */
    CHECK(d && d != c);
    CHECK(equal(run(e, c), run(e, d)));
    nnc_artifact_destroy(a);
    CHECK(equal(run(e, c), run(e, d)));
    nnc_artifact_destroy(d);
    CHECK_OK(for_args(e, c, &two, &d));
    nnc_artifact_destroy(d);
    nnc_artifact_destroy(c);
    close_env(e);
}

/* ---- errors ---- */

TEST(wrong_args_of_an_artifact)
{
    nnc_env *e = open_env(NULL), *other = NULL;
    nnc_artifact *a = compile(e, "models/mlp.json", NULL, NULL), *b = NULL;
    nnc_open_options o = {.weights = "w.npz"};
    CHECK_INT(for_args(e, a, &(request){{{"batsh", "2"}}, 1}, &b), NNC_E_USAGE);
    CHECK_DIAG("did you mean `batch`");
    CHECK_INT(for_args(e, a, &(request){{{"batch", "0"}}, 1}, &b), NNC_E_USAGE);
    CHECK_DIAG("expected at least 1");
    CHECK_INT(for_args(e, a, &(request){{{"batch", "x"}}, 1}, &b), NNC_E_USAGE);
    CHECK_DIAG("expected an integer");
    CHECK_INT(nnc_artifact_for(e, a, &o, &b, test_sink), NNC_E_USAGE);
    CHECK_DIAG("only set and shapes apply");
    CHECK(b == NULL && a->recent[0] == NULL);
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &other, test_sink));
    CHECK_INT(for_args(other, a, &(request){{{"batch", "2"}}, 1}, &b), NNC_E_DEVICE);
    CHECK_DIAG("was compiled for 2 threads");
    nnc_env_destroy(other);
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 2, .no_llvm = true}, &other, test_sink));
    CHECK_INT(for_args(other, a, &(request){{{"batch", "2"}}, 1}, &b), NNC_E_DEVICE);
    CHECK(b == NULL);
    nnc_env_destroy(other);
    nnc_sink_clear(test_sink);
    nnc_artifact_destroy(a);
    close_env(e);
}
