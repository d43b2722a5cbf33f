/* tests/passes/stacks.c -- models that are trained side by side. Steps of drawn ones, whose alike ops are computed as one, have the results
 * of the steps as written. Tests what stays apart, too. */
#include "gen/gen.h"
#include "help.h"
#include "train/train.h"

#include <math.h>

/* Numbers drawn for a case. */
typedef struct draws {
    uint64_t key, n;
} draws;

static int below(draws *d, int n)
{
    return (int)(nnc_rng_u32(d->key, d->n++) % (uint32_t)n);
}

/* ---- models ----------------------------------------------------------------------------------------------------------------- */

enum { MOST_MODELS = 5, MOST_LAYERS = 5 };

typedef enum kind { K_linear, K_matmul, K_act, K_centre, K_turn, K_common, K_scale, K__COUNT } kind;

typedef struct drawn {
    int models, rows, in, layers;
    kind kind[MOST_LAYERS];
    int width[MOST_LAYERS + 1], which[MOST_LAYERS];
    bool slices, nested, by_layer;
    int odd; /* layer in which the last model does something else; -1: none */
    int shared; /* layer whose first two models have one weight; -1: none */
    bool output; /* a model's result is read on its own */
    bool apart; /* the last model is on another device */
} drawn;

static drawn draw(draws *d)
{
    static const int width[] = {16, 32, 8, 5};
    drawn m = {.models = 2 + below(d, MOST_MODELS - 1), .rows = 1 + below(d, 4)};
    m.in = m.width[0] = width[below(d, 3)];
    m.layers = 1 + below(d, MOST_LAYERS);
    for (int i = 0; i < m.layers; i++) {
        m.kind[i] = i ? (kind)below(d, K__COUNT) : K_linear;
        const bool product = m.kind[i] == K_linear || m.kind[i] == K_matmul;
        m.width[i + 1] = product ? width[below(d, 16) ? below(d, 2) : 3] : m.width[i];
        if (m.kind[i] == K_turn && m.width[i] % 2)
            m.kind[i] = K_act;
        m.which[i] = below(d, 4);
    }
    m.slices = below(d, 2);
    m.by_layer = below(d, 4) > 0;
    m.nested = below(d, 4) == 0;
    m.odd = below(d, 8) ? -1 : below(d, m.layers);
    m.shared = below(d, 6) ? -1 : below(d, m.layers);
    m.output = below(d, 8) == 0;
    m.apart = below(d, 8) == 0;
    return m;
}

/* Layer i of model k: a value h of width[i] becomes one of width[i + 1]. */
static void put_layer(nnc_text *t, const drawn *m, int i, int k)
{
    static const char *const act[] = {"relu", "tanh", "silu", "leaky_relu"};
    const int a = m->width[i], b = m->width[i + 1], r = m->rows;
    const int w = i == m->shared && k == 1 ? 0 : k;
    const bool odd = i == m->odd && k == m->models - 1, bias = m->which[i] % 2;
    nnc_printf(t, "%%h%d_%d = ", k, i + 1);
    switch (m->kind[i]) {
    case K_linear:
        nnc_printf(t, "linear %%h%d_%d, %%w%d_%d", k, i, w, i);
        if (bias)
            nnc_printf(t, ", %%b%d_%d", w, i);
        break;
    case K_matmul: nnc_printf(t, "matmul %%h%d_%d, %%w%d_%d", k, i, w, i); break;
    case K_act:
        nnc_printf(t, "%s %%h%d_%d%s", act[m->which[i]], k, i,
            m->which[i] < 3 ? ""
            : odd           ? " {alpha=0.3}"
                            : " {alpha=0.1}");
        break;
    case K_centre: nnc_printf(t, "%s %%h%d_%d, %%c%d_%d", odd ? "add" : "sub", k, i, k, i); break;
    case K_turn: nnc_printf(t, "reshape %%t%d_%d {shape=[%d,%d]}", k, i, r, a); break;
    case K_common: nnc_printf(t, "%s %%h%d_%d, %%s%d", odd ? "sub" : "mul", k, i, b); break;
    default: nnc_printf(t, "mul %%h%d_%d, %%w%d_%d", k, i, w, i);
    }
    nnc_puts(t, m->apart && k == m->models - 1 ? " device 1\n" : "\n");
}

/* The weight, or bias, of layer i of model k. */
static void put_param(nnc_text *t, const drawn *m, int i, int k, bool bias)
{
    const int a = m->width[i], b = m->width[i + 1];
    const kind of = m->kind[i];
    const bool product = of == K_linear || of == K_matmul;
    if ((i == m->shared && k == 1) || (!product && of != K_scale) ||
        (bias && (of != K_linear || m->which[i] % 2 == 0)))
        return;
    nnc_printf(t, "%%%c%d_%d = param : f32[", bias ? 'b' : 'w', k, i);
    if (product && !bias)
        nnc_printf(t, "%d,", of == K_linear ? b : a);
    nnc_printf(t, "%d] = gen(\"%c%d_%d\", seed=1, scale=0.4)\n", of == K_linear && !bias ? a : b,
        bias ? 'b' : 'w', k, i);
}

/* Params of alike layers one after the other: in this order the optimizer puts small ones together. */
static void put_params(nnc_text *t, const drawn *m)
{
    for (int i = 0; i < m->layers; i++)
        for (int bias = 0; bias < 2; bias++)
            for (int k = 0; k < m->models; k++)
                put_param(t, m, i, k, bias);
}

/* Values that layer i of model k computes from h first. */
static void put_operands(nnc_text *t, const drawn *m, int i, int k)
{
    const int a = m->width[i], r = m->rows;
    if (m->kind[i] == K_centre)
        nnc_printf(t, "%%c%d_%d = reduce_%s %%h%d_%d {axes=[1], keepdims=1}\n", k, i,
            m->which[i] % 2 ? "mean" : "max", k, i);
    if (m->kind[i] == K_turn)
        nnc_printf(t,
            "%%r%d_%d = reshape %%h%d_%d {shape=[%d,2,%d]}\n"
            "%%t%d_%d = transpose %%r%d_%d {perm=[0,2,1]}\n",
            k, i, k, i, r, a / 2, k, i, k, i);
}

static void put_concat(nnc_text *t, const drawn *m)
{
    const int last = m->nested && m->models > 2 ? m->models - 1 : m->models;
    nnc_printf(t, "%%%s = concat", last < m->models ? "first" : "y");
    for (int k = 0; k < last; k++)
        nnc_printf(t, "%s %%h%d_%d", k ? "," : "", k, m->layers);
    nnc_puts(t, " {axis=1}\n");
    if (last < m->models)
        nnc_printf(t, "%%y = concat %%first, %%h%d_%d {axis=1}\n", last, m->layers);
}

static void put_model(nnc_text *t, const drawn *m)
{
    nnc_printf(t, "graph @g {\n%%x = input : f32[%d,%d]\n", m->rows, m->models * m->in);
    for (int w = 5; w <= 32; w++) {
        bool needed = false;
        for (int i = 0; i < m->layers; i++)
            needed |= m->kind[i] == K_common && m->width[i] == w;
        if (needed)
            nnc_printf(t, "%%s%d = input : f32[%d,%d]\n", w, m->rows, w);
    }
    for (int k = 0; k < m->models && !m->slices; k++)
        nnc_printf(t, "%s%%h%d_0", k ? ", " : "", k);
    if (!m->slices)
        nnc_puts(t, " = split %x {axis=1, sizes=[");
    for (int k = 0; k < m->models; k++)
        if (m->slices)
            nnc_printf(t, "%%h%d_0 = slice %%x {axes=[1], starts=[%d], ends=[%d]}\n", k, k * m->in,
                (k + 1) * m->in);
        else
            nnc_printf(t, "%s%d%s", k ? "," : "", m->in, k == m->models - 1 ? "]}\n" : "");
    if (m->by_layer)
        put_params(t, m);
    for (int k = 0; k < m->models; k++)
        for (int i = 0; i < m->layers; i++) {
            for (int bias = 0; bias < 2 && !m->by_layer; bias++)
                put_param(t, m, i, k, bias);
            put_operands(t, m, i, k);
            put_layer(t, m, i, k);
        }
    put_concat(t, m);
    nnc_puts(t, "return %y");
    if (m->output)
        nnc_printf(t, ", %%h0_%d", m->layers);
    nnc_puts(t, "\n}\n");
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------ */

static nnc_graph *step_of(const char *text, draws *d)
{
    static const double momentum[] = {0, 0.9};
    nnc_training t = nnc_training_defaults;
    nnc_graph *g = help_parse("stacks", text, strlen(text)), *step = NULL;
    t.loss = NNC_LOSS_mse;
    t.optimizer = (nnc_optimizer)below(d, 3);
    t.momentum = momentum[below(d, 2)];
    t.weight_decay = below(d, 2) * 0.01;
    t.clip_norm = below(d, 5) ? 0 : 0.5;
    t.accumulate = 1 + below(d, 2);
    if (g)
        CHECK_OK(nnc_train_graph(g, &t, &step, test_sink));
    else
        test_fail(__FILE__, __LINE__, "%s", text);
    nnc_graph_destroy(g);
    return step;
}

/* The step after the passes up to siblings; *joined: how often alike ops were computed as one. */
static nnc_graph *joined_step(
    const nnc_graph *step, const nnc_target *target, bool always, int *joined)
{
    static const char *const only[] = {"dce", "fold_constants", "algebra", "cse", "siblings"};
    const nnc_pass_options o = {.level = 2,
        .target = target,
        .only = only,
        .n_only = NNC_COUNT(only),
        .join_siblings = always};
    nnc_graph *g = nnc_graph_clone(step, test_sink);
    nnc_remarks r;
    nnc_remarks_init(&r);
    CHECK(g != NULL);
    *joined = 0;
    if (g) {
        CHECK_OK(nnc_passes_run(&g, &o, &r, test_sink));
        CHECK_OK(nnc_verify(g, test_sink));
    }
    for (size_t i = 0; i < r.n; i++)
        *joined += r.at[i].applied && !strcmp(r.at[i].rule, "models side by side");
    nnc_remarks_deinit(&r);
    return g;
}

/* All outputs and new states, in f64. */
static nnc_rval *evaluate(const nnc_graph *g)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const void **in = ARENA_NEW(&a, const void *, g->n_node);
    nnc_rval *out = nnc_calloc(g->n_output, sizeof *out);
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input) {
            const nnc_type *t = nnc_typeof(g, g->node[i].out);
            void *p = nnc_arena_alloc(&a, 1, (size_t)nnc_type_bytes(t));
            gen_fill_input(t, 3, n, p);
            in[n++] = p;
        }
    CHECK_OK(nnc_eval(g, in, 1, out, test_sink));
    return out;
}

static void check_same(const nnc_graph *g, const nnc_graph *h, const char *text)
{
    nnc_rval *a = evaluate(g), *b = evaluate(h);
    CHECK_INT(g->n_output, h->n_output);
    for (uint32_t o = 0; o < g->n_output; o++) {
        for (int64_t i = 0; a[o].f && b[o].f && i < nnc_type_numel(&a[o].type); i++)
            if (!(fabs(a[o].f[i] - b[o].f[i]) <= 1e-9 * (1 + fabs(a[o].f[i])))) {
                test_fail(__FILE__, __LINE__, "element %lld of output %u is %g, not %g\n%s",
                    (long long)i, o, b[o].f[i], a[o].f[i], text);
                break;
            }
        nnc_rval_free(&a[o]);
        nnc_rval_free(&b[o]);
    }
    nnc_free(a);
    nnc_free(b);
}

static int64_t contraction_flops(const nnc_graph *g)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) == CL_contract)
            sum += nnc_node_cost(g, &g->node[i]).flops;
    return sum;
}

/* Where times decide, no contraction of models that are alike in all is computed for one and for all. */
static int check_flops(
    const nnc_graph *step, const nnc_target *target, const drawn *m, const char *text)
{
    int joined = 0;
    nnc_graph *one = joined_step(step, target, false, &joined);
    const bool alike = m->odd < 0 && m->shared < 0 && !m->output && !m->apart;
    if (one && alike && contraction_flops(one) > contraction_flops(step))
        test_fail(__FILE__, __LINE__, "%s: contractions of %lld FLOPs became %lld\n%s",
            target->name, (long long)contraction_flops(step), (long long)contraction_flops(one),
            text);
    nnc_graph_destroy(one);
    return joined > 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------ */

TEST(drawn_models_side_by_side)
{
    enum { CASES = 400 };
    const nnc_target target = help_target();
    nnc_target gpu;
    int some = 0, paid = 0;
    CHECK_OK(nnc_target_cuda(&gpu, "cuda:sm_90", test_sink));
    for (int i = 0; i < CASES; i++) {
        draws d = {.key = nnc_rng_key("stacks", test_seed + (uint64_t)i)};
        NNC_LOCAL(nnc_text) t = {0};
        const drawn m = draw(&d);
        put_model(&t, &m);
        nnc_graph *step = step_of(nnc_text_str(&t), &d);
        int joined = 0;
        nnc_graph *one = step ? joined_step(step, &target, true, &joined) : NULL;
        if (one)
            check_same(step, one, nnc_text_str(&t));
        some += joined > 0;
        paid += step ? check_flops(step, &gpu, &m, nnc_text_str(&t)) : 0;
        if (step)
            (void)check_flops(step, &target, &m, nnc_text_str(&t));
        nnc_graph_destroy(step);
        nnc_graph_destroy(one);
    }
    printf("%d of %d joined, %d on a GPU where times decide\n", some, CASES, paid);
    CHECK_USUAL(some > CASES / 3 && paid > CASES / 3);
    nnc_target_deinit(&gpu);
}
