/* tests/api/train_updates.c -- weights whose gradients are summed in the kernels that update them. Steps of drawn linear layers are
 * compared with the float64 reference, and have the same bits in each run. */
#include "session/session.h"
#include "train/train.h"
#include "frontend/frontend.h"
#include "help.h"
#include "steps.h"

#include <string.h>

/* Linear layers of more than 2^16 weights, which are updated one by one. Odd numbers leave rests of strips and vectors. */
typedef struct drawn {
    int rows, in, mid, out, threads;
    nnc_training t;
} drawn;

static int between(uint64_t key, uint64_t *n, int lo, int hi)
{
    return lo + (int)(nnc_rng_u32(key, (*n)++) % (uint32_t)(hi - lo + 1));
}

static drawn draw(uint64_t i)
{
    const uint64_t key = nnc_rng_key("updates", test_seed + i);
    uint64_t n = 0;
    const int many = i % 4 == 0 ? 200 : 64;
    drawn d = {.rows = between(key, &n, 9, many), .threads = between(key, &n, 1, 2)};
    d.in = between(key, &n, 0, 1) ? 16 * between(key, &n, 10, 20) : between(key, &n, 260, 340);
    d.mid = between(key, &n, 0, 1) ? 32 * between(key, &n, 8, 13) : between(key, &n, 260, 330);
    d.out = between(key, &n, 2, 260);
    d.t = nnc_training_defaults;
    d.t.loss = NNC_LOSS_mse;
    d.t.optimizer = (nnc_optimizer)between(key, &n, 0, 2);
    d.t.eps = 1e-2; /* adam would scale the rounding errors of gradients near 0 up */
    d.t.momentum = between(key, &n, 0, 1) * 0.9;
    d.t.nesterov = d.t.momentum > 0 && between(key, &n, 0, 1);
    d.t.weight_decay = between(key, &n, 0, 1) * 0.01;
    d.t.accumulate = between(key, &n, 0, 3) ? 0 : 2;
    d.t.clip_norm = between(key, &n, 0, 3) ? 0 : 0.5;
    return d;
}

static nnc_graph *step_of(const drawn *d, nnc_text *what)
{
    NNC_LOCAL(nnc_text) json = {0};
    nnc_graph *step = NULL;
    nnc_printf(&json,
        "{\"inputs\": {\"x\": [%d, %d]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
        "\"out\": "
        "%d}, \"tanh\", {\"op\": \"linear\", \"name\": \"b\", \"out\": %d}]}",
        d->rows, d->in, d->mid, d->out);
    nnc_printf(what,
        "%d rows, %d -> %d -> %d, %d threads, optimizer %d, momentum %g, accumulate %d", d->rows,
        d->in, d->mid, d->out, d->threads, (int)d->t.optimizer, d->t.momentum, d->t.accumulate);
    nnc_graph *g = nnc_model_parse("m.json", nnc_text_str(&json), json.n, NULL, test_sink);
    CHECK(g != NULL);
    if (g)
        CHECK_OK(nnc_train_graph(g, &d->t, &step, test_sink));
    nnc_graph_destroy(g);
    return step;
}

static nnc_env *env_of(const drawn *d, const char *cache)
{
    const nnc_env_options o = {.threads = d->threads, .cache_dir = cache};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&o, &e, test_sink));
    return e;
}

TEST(gradients_in_their_updates)
{
    const uint64_t cases = (uint64_t)test_draws(16);
    char cache[256];
    CHECK(api_tmpdir(cache, sizeof cache));
    for (uint64_t i = 0; i < cases; i++) {
        NNC_LOCAL(nnc_text) what = {0};
        const drawn d = draw(i);
        nnc_graph *step = step_of(&d, &what);
        nnc_env *e = env_of(&d, cache);
        if (step && e)
            CHECK_OK(
                steps_take(e, step, &nnc_compile_defaults, d.t.accumulate, nnc_text_str(&what)));
        nnc_env_destroy(e);
        nnc_graph_destroy(step);
    }
    api_rmdir(cache);
}

/* The state that a step leaves, of all weights one after the other; *updates: gradients that a kernel of an update computes. */
static void states_after(nnc_env *e, const nnc_graph *g, nnc_text *bytes, int *updates)
{
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    CHECK_OK(nnc_compile(e, g, &nnc_compile_defaults, &a, test_sink));
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    int n = 0;
    for (uint32_t i = 0; i < g->n_node && s; i++)
        if (g->node[i].op == OP_input) {
            NNC_FREED void *in = steps_input(g, &g->node[i], 0, true);
            CHECK_OK(nnc_session_input(s, n++, in, test_sink));
        }
    for (int k = 0; k < 3 && s; k++)
        CHECK_OK(nnc_session_step(s, test_sink));
    for (int i = 0; s && i < nnc_session_states(s); i++) {
        const size_t size = (size_t)nnc_type_bytes(nnc_session_state_type(s, i));
        NNC_FREED void *data = nnc_malloc(size);
        CHECK_OK(nnc_session_state(s, i, data, test_sink));
        nnc_putn(bytes, data, size);
    }
    *updates = 0;
    for (size_t i = 0; a && i < a->remarks.n; i++)
        *updates +=
            a->remarks.at[i].applied && !strcmp(a->remarks.at[i].rule, "gradient in its update");
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
}

TEST(updates_have_the_same_bits_in_each_run)
{
    char cache[256];
    CHECK(api_tmpdir(cache, sizeof cache));
    for (int threads = 1; threads <= 2; threads++) {
        NNC_LOCAL(nnc_text) what = {0};
        NNC_LOCAL(nnc_text) first = {0};
        drawn d = {.rows = 33, .in = 300, .mid = 288, .out = 250, .threads = threads};
        d.t = nnc_training_defaults;
        d.t.loss = NNC_LOSS_mse;
        d.t.momentum = 0.9;
        nnc_graph *step = step_of(&d, &what);
        nnc_env *e = env_of(&d, cache);
        for (int run = 0; run < 4 && step && e; run++) {
            NNC_LOCAL(nnc_text) bytes = {0};
            int updates;
            states_after(e, step, run ? &bytes : &first, &updates);
            CHECK_INT(updates, 2);
            CHECK(run == 0 || (bytes.n == first.n && !memcmp(bytes.s, first.s, bytes.n)));
        }
        nnc_env_destroy(e);
        nnc_graph_destroy(step);
    }
    api_rmdir(cache);
}

/* Fused kernels that update weights of several layers 2^17 large: of "/layers/1/model[0]/0/y/backward+/optimizer" each layer once. */
static int kernels_of_several(const nnc_plan *p)
{
    int n = 0;
    for (int i = p->end[SEC_main]; i < p->n_cmd; i++) {
        int layers = 0;
        if (p->cmd[i].kind != CMD_kernel || p->cmd[i].bytes < 1 << 20)
            continue;
        for (const char *at = p->cmd[i].layers; (at = strstr(at, "/y/backward")); at++)
            layers++;
        n += layers > 1;
    }
    return n;
}

TEST(large_weights_are_updated_one_by_one)
{
    static const char *const skip[] = {"siblings"};
    const nnc_arg arg = {"models", "6"};
    nnc_compile_options o = nnc_compile_defaults;
    nnc_training t = nnc_training_defaults;
    drawn d = {.threads = 1};
    char cache[256];
    t.loss = NNC_LOSS_mse;
    o.skip = skip;
    o.n_skip = 1;
    CHECK(api_tmpdir(cache, sizeof cache));
    nnc_model *m = nnc_model_open(
        "models/multi_conv1d.json", &(nnc_open_options){.arg = &arg, .n_arg = 1}, test_sink);
    nnc_graph *step = NULL;
    nnc_artifact *a = NULL;
    nnc_env *e = env_of(&d, cache);
    CHECK(m != NULL);
    if (m)
        CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
    if (e && step)
        CHECK_OK(nnc_compile(e, step, &o, &a, test_sink));
    if (a)
        CHECK_INT(kernels_of_several(a->plan), 0);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(step);
    nnc_model_close(m);
    api_rmdir(cache);
}
