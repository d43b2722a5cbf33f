/* tests/autodiff/help.c -- see help.h. */
#include "help.h"

#include <math.h>
#include <stdlib.h>

#define INPUTS 64

double help_draw(uint64_t seed, uint64_t stream, int64_t i)
{
    char name[32];
    snprintf(name, sizeof name, "%llu", (unsigned long long)stream);
    return (double)nnc_rng_u32(nnc_rng_key(name, seed), (uint64_t)i) * 0x1p-31 - 1;
}

void *help_fill(const nnc_type *t, uint64_t seed, int i)
{
    void *data = calloc(1, (size_t)nnc_type_bytes(t));
    for (int64_t k = 0; k < nnc_type_numel(t); k++) {
        double v = help_draw(seed, (uint64_t)i, k);
        nnc_set_f64(
            (nnc_dtype)t->dtype, data, k, nnc_is_float((nnc_dtype)t->dtype) ? 2 * v : v > 0);
    }
    return data;
}

/* The sum of all float outputs, each element times a number of its own. */
static nnc_ref weighted_sum(nnc_graph *g, uint64_t seed)
{
    nnc_ref sum = NNC_NONE;
    for (uint32_t i = 0; i < g->n_output; i++) {
        nnc_type t = *nnc_typeof(g, g->output[i]);
        if (!nnc_is_float((nnc_dtype)t.dtype))
            continue;
        t = nnc_type_make((nnc_dtype)t.dtype, t.rank, t.dim);
        void *c = help_fill(&t, seed, 1000 + (int)i);
        int64_t axes[NNC_MAX_RANK];
        for (int d = 0; d < t.rank; d++)
            axes[d] = d;
        nnc_ref y = nnc_row_major(g, g->output[i]);
        y = nnc_build2(g, OP_mul, y, nnc_constant(g, &t, c));
        y = nnc_cast(g, y, DT_f64);
        if (t.rank)
            y = nnc_reduce(g, OP_reduce_sum, y, t.rank, axes, false);
        sum = sum == NNC_NONE ? y : nnc_build2(g, OP_add, sum, y);
        free(c);
    }
    return sum;
}

/* L at x + h v. */
static double loss_at(
    const nnc_graph *g, void *const *data, const nnc_type *t, int n, uint64_t seed, double h)
{
    const void *in[INPUTS];
    double sum = NAN;
    nnc_rval out = {0};
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)nnc_type_bytes(&t[i]);
        void *x = malloc(bytes);
        memcpy(x, data[i], bytes);
        for (int64_t k = 0; t[i].dtype == DT_f64 && k < nnc_type_numel(&t[i]); k++)
            ((double *)x)[k] += h * help_draw(seed, 2000 + (uint64_t)i, k);
        in[i] = x;
    }
    nnc_status s = nnc_eval(g, in, 1, &out, test_sink);
    CHECK_OK(s);
    if (s == NNC_OK)
        sum = out.f[0];
    nnc_rval_free(&out);
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)in[i]);
    return sum;
}

/* The sum of dL/dx v, and of its terms' magnitudes; of outputs first.. of g. */
static double along(nnc_graph *g, void *const *data, const nnc_type *t, int n, const bool *has,
    uint64_t seed, double *scale)
{
    nnc_rval out[INPUTS] = {{{0}}};
    double sum = 0;
    int k = 0;
    const nnc_status s = nnc_eval(g, (const void *const *)data, 1, out, test_sink);
    CHECK_OK(s);
    *scale = 0;
    for (int i = 0; i < n && s == NNC_OK; i++) {
        if (!has[i])
            continue;
        CHECK(nnc_type_same_shape(&out[k].type, &t[i]));
        for (int64_t e = 0; e < nnc_type_numel(&t[i]); e++) {
            double term = out[k].f[e] * help_draw(seed, 2000 + (uint64_t)i, e);
            sum += term;
            *scale += fabs(term);
        }
        nnc_rval_free(&out[k++]);
    }
    return sum;
}

/* L's slope at x along v to second order in h. Values are those on both sides of x, or at x and on h's side. The latter is right where
 * a kink lies on the other side. Rounding of L is divided by h, and on one side weighs 3.6 times as much. */
static double slope(const nnc_graph *g, void *const *data, const nnc_type *t, int n, uint64_t seed,
    double h, bool one_sided)
{
    const double ahead = loss_at(g, data, t, n, seed, h);
    if (!one_sided)
        return (ahead - loss_at(g, data, t, n, seed, -h)) / (2 * h);
    const double here = loss_at(g, data, t, n, seed, 0), far = loss_at(g, data, t, n, seed, 2 * h);
    return (4 * ahead - 3 * here - far) / (2 * h);
}

static int inputs_of(const nnc_graph *g, nnc_ref *x, nnc_type *t)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node && n < INPUTS; i++)
        if (g->node[i].op == OP_input) {
            x[n] = g->node[i].out;
            t[n++] = *nnc_typeof(g, g->node[i].out);
        }
    return n;
}

/* The root of the mean square by which simulated rounding changes the loss. */
static double rounding_of(const nnc_graph *g, void *const *data)
{
    enum { ROUNDINGS = 16 };
    nnc_rval exact = {0};
    double square = 0;
    CHECK_OK(nnc_eval(g, (const void *const *)data, 1, &exact, test_sink));
    for (uint64_t seed = 1; exact.f && seed <= ROUNDINGS; seed++) {
        const nnc_rounding r = {.seed = seed};
        nnc_rval out = {0};
        CHECK_OK(nnc_eval_rounded(g, (const void *const *)data, 1, &r, &out, test_sink));
        const double e = out.f ? out.f[0] - exact.f[0] : 0;
        square += e * e / ROUNDINGS;
        nnc_rval_free(&out);
    }
    nnc_rval_free(&exact);
    return sqrt(square);
}

void help_check_gradients(nnc_graph *g, void *const *data, uint64_t seed)
{
    static const double sides[] = {1, 1, -1};
    nnc_ref x[INPUTS], dx[INPUTS];
    nnc_type t[INPUTS];
    bool has[INPUTS];
    int n = inputs_of(g, x, t);
    nnc_ref loss = weighted_sum(g, seed);
    if (loss == NNC_NONE)
        return;
    nnc_graph *only = nnc_graph_clone(g, test_sink);
    only->n_output = g->n_output = 0;
    nnc_output(only, loss, "loss");
    CHECK_OK(nnc_gradients(g, 1, &loss, NULL, n, x, dx, test_sink));
    for (int i = 0; i < n; i++)
        if ((has[i] = dx[i] != NNC_NONE))
            nnc_output(g, dx[i], NULL);
    CHECK_OK(nnc_verify(g, test_sink));
    double scale, got = along(g, data, t, n, has, seed, &scale), want = 0;
    const double noise = 4 * rounding_of(only, data);
    bool near = false;
    for (double h = 1e-5; !near && h > 1e-8; h /= 10) /* smaller ones where x is near a kink */
        for (int side = 0; side < 3 && !near; side++) {
            want = slope(only, data, t, n, seed, sides[side] * h, side > 0);
            near = fabs(got - want) <= 1e-6 * (scale + fabs(want)) + (side ? 4 : 1) * noise / h;
        }
    if (!near)
        test_fail(__FILE__, __LINE__,
            "seed %llu: the gradient along v is %.12g, differences say %.12g",
            (unsigned long long)seed, got, want);
    nnc_graph_destroy(only);
}

void help_check_text(const char *text, uint64_t seed)
{
    nnc_scan s;
    void *data[INPUTS] = {0};
    nnc_ref x[INPUTS];
    nnc_type t[INPUTS];
    nnc_scan_init(&s, "test", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    if (!g)
        return;
    int n = inputs_of(g, x, t);
    for (int i = 0; i < n; i++)
        data[i] = help_fill(&t[i], seed, i);
    help_check_gradients(g, data, seed);
    for (int i = 0; i < n; i++)
        free(data[i]);
    nnc_graph_destroy(g);
}
