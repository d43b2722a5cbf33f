/* tests/gen/chain.c -- see chain.h.
 *
 * The allowed error is carried forward: an operand within e of v gives a result within max |f(v +- e) - f(v)| and the operation's own
 * bound. It is first order in e, which suits errors of some ulps. Where a result may be off by a tenth of its size, only NaN must
 * stay NaN. After a finite number that the type does not have e is infinite, and nothing is asked. */
#include "gen/chain.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { DENSE = CHAIN_N - 64 };

const char *const chain_math_names[CHAIN_MATHS] = {"exact", "ulp2", "fast"};

/* ---- making one ---- */

static uint32_t draw(uint64_t key, uint64_t *at, uint32_t below)
{
    return nnc_rng_u32(key, (*at)++) % below;
}

static void unary(chain *c, const char *op)
{
    nnc_printf(&c->text, "%%v%d = %s %%v%d\n", c->n + 1, op, c->n);
    c->n++;
}

static void with_number(chain *c, const char *op, double v)
{
    nnc_printf(&c->text, "%%k%d = constant : %s[] = [%g]\n%%v%d = %s %%v%d, %%k%d\n", c->n,
        nnc_dtype_name(c->dtype), v, c->n + 1, op, c->n, c->n);
    c->n++;
}

static void random_link(chain *c, uint64_t key, uint64_t *at)
{
    static const char *const f[] = {"sin", "tanh", "sigmoid", "erf", "cos", "exp", "sin", "tanh",
        "neg", "atan", "silu", "square", "gelu"};
    static const double k[] = {0.5, 0.25, -0.75, 0.875, 1.5, 2};
    uint32_t i = draw(key, at, NNC_COUNT(f) + 6);
    if (i < NNC_COUNT(f))
        unary(c, f[i]);
    else
        with_number(c,
            i % 3 == 0   ? "mul"
            : i % 3 == 1 ? "add"
                         : "div",
            k[draw(key, at, NNC_COUNT(k))]);
}

void chain_random(chain *c, uint64_t seed, int i, nnc_dtype d)
{
    static const double ends[][2] = {{-1, 1}, {-0.5, 0.5}, {0, 1}, {-2, 2}, {0.25, 0.75}, {1, 0}};
    static const char *const bounded[] = {"sin", "cos", "tanh", "sigmoid", "erf"};
    uint64_t key = nnc_rng_key("emitted chains", seed + (uint64_t)i), at = 0;
    uint32_t e = draw(key, &at, NNC_COUNT(ends));
    *c = (chain){.lo = ends[e][0], .hi = ends[e][1], .dtype = d};
    nnc_printf(&c->text, "graph @t {\n%%v0 = input : %s[%d]\n", nnc_dtype_name(d), CHAIN_N);
    if (c->lo > c->hi) {
        unary(c, bounded[draw(key, &at, NNC_COUNT(bounded))]);
    } else {
        nnc_printf(&c->text, "%%v1 = clip %%v0 {lo=%g, hi=%g}\n", c->lo, c->hi);
        c->n = 1;
    }
    for (int n = 2 + (int)draw(key, &at, 6); n > 0; n--)
        random_link(c, key, &at);
    nnc_printf(&c->text, "return %%v%d }", c->n);
}

void chain_deinit(chain *c)
{
    nnc_text_deinit(&c->text);
}

void chain_fill(const chain *c, void *x)
{
    static const double odd[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 0x1p-149, -0x1p-149,
        0x1.8p-140, 0x1p-126, -0x1p-126, 0x1.fffffep127, -0x1.fffffep127, 1, -1, 0.5, -0.5, 1e-20,
        -1e-10, 1e10, 3.1415927, -1.5707964, 105615, -105616, 0x1p-12, 0.4, 0.625, -0.927, 4, 65504,
        0x1p-24, 88, -88};
    bool open = c->lo > c->hi;
    double lo = open ? -8 : c->lo, hi = open ? 8 : c->hi;
    for (int i = 0; i < CHAIN_N; i++)
        nnc_set_f64(c->dtype, x, i,
            i < DENSE ? lo + (hi - lo) * i / (DENSE - 1)
                      : odd[(size_t)(i - DENSE) % NNC_COUNT(odd)]);
}

static nnc_graph *fuse(const nnc_graph *g, nnc_sink *sink)
{
    nnc_graph *f = nnc_graph_create("fused", sink), *body = nnc_graph_clone(g, sink);
    nnc_ref in = nnc_input(f, NULL, nnc_typeof(g, g->node[0].out)), r = nnc_fused(f, body, 1, &in);
    nnc_output(f, r, NULL);
    return f;
}

nnc_kernel *chain_lower(
    const chain *c, const nnc_target *t, chain_math m, nnc_arena *a, nnc_sink *sink)
{
    nnc_scan s;
    nnc_kernel *k = NULL;
    const char *text = c->text.s;
    nnc_scan_init(&s, "chain", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, sink), *f = g ? fuse(g, sink) : NULL;
    for (uint32_t i = 0; f && i < f->n_node; i++)
        if (f->node[i].op == OP_fused)
            k = nnc_lower(f, &f->node[i], t, (nnc_math)(MATH_exact + (int)m), a, sink);
    nnc_graph_destroy(f);
    nnc_graph_destroy(g);
    return k && nnc_schedule_verify(k, sink) == NNC_OK ? k : NULL;
}

/* ---- answers ---- */

static double ulp(double v, nnc_dtype d)
{
    int e,
        bits = d == DT_f16    ? 11
               : d == DT_bf16 ? 8
                              : 24,
        least = d == DT_f16    ? -24
                : d == DT_bf16 ? -133
                               : -149;
    (void)frexp(v, &e);
    return ldexp(1, v == 0 || e - bits < least ? least : e - bits);
}

/* An instruction's own error bound in ulps. A polynomial for several of them may end in any, and then has the same bound. */
static double own(nnc_sop op, chain_math m)
{
    static const double function[CHAIN_MATHS] = {0.8, 2.5, 256}, other[CHAIN_MATHS] = {0.5, 2, 256};
    if (op == SC_neg || op == SC_abs || op == SC_cast)
        return 0;
    return op >= SC_rsqrt && op <= SC_erf && op != SC_recip ? function[m] : other[m];
}

typedef struct value {
    double v, e;
} value;

/* The operation on operands that may be off. */
static value apply(nnc_sop op, const value *a, int n, chain_math m)
{
    value r = {nnc_sop_eval_f64(op, a[0].v, n > 1 ? a[1].v : 0, n > 2 ? a[2].v : 0), 0};
    for (int corner = 0; corner < 1 << 2 * n; corner++) {
        double x[3] = {0};
        for (int j = 0; j < n; j++)
            x[j] = a[j].v + (corner >> 2 * j & 1 ? a[j].e : 0) - (corner >> 2 * j & 2 ? a[j].e : 0);
        double d = fabs(nnc_sop_eval_f64(op, x[0], x[1], x[2]) - r.v);
        if (d > r.e)
            r.e = d;
    }
    /* Where x is off by much of a period, the corners say nothing. */
    if ((op == SC_sin || op == SC_cos) && a[0].e > 0.01)
        r.e = fmin(a[0].e, 2);
    r.e += own(op, m) * ulp(r.v, DT_f32) + (m == CHAIN_fast ? 0x1p-125 : 0);
    bool over = isfinite(r.v) && fabs(r.v) + r.e > FLT_MAX;
    for (int j = 0; j < n; j++)
        over = over || isinf(a[j].e);
    r.e = over ? INFINITY : r.e;
    return r;
}

void chain_answers(const nnc_kernel *k, chain_math m, const void *x, double *want, double *allowed)
{
    value v[256];
    nnc_dtype d = (nnc_dtype)k->buf[0].dtype;
    int functions = 1; /* the last polynomial */
    for (int i = 0; i < k->n_ins; i++)
        functions += k->ins[i].op == KO_sop && k->ins[i].sop >= SC_sqrt && k->ins[i].sop <= SC_erf;
    for (int64_t at = 0; at < CHAIN_N; at++)
        for (int i = 0; i < k->n_ins && i < 256; i++) {
            const nnc_kins *in = &k->ins[i];
            value a[3] = {{0, 0}};
            int n = in->op == KO_sop ? nnc_sops[in->sop].arity : 0;
            for (int j = 0; j < n; j++)
                a[j] = v[in->arg[j]];
            if (in->op == KO_load)
                v[i] = (value){nnc_get_f64(d, x, at), 0};
            else if (in->op == KO_const)
                v[i] = (value){nnc_is_float((nnc_dtype)in->dtype) ? in->f : (double)in->i, 0};
            else if (in->op == KO_sop)
                v[i] = apply((nnc_sop)in->sop, a, n, m);
            else if (in->op == KO_store) {
                value y = v[in->arg[0]];
                want[at] = y.v;
                if (d != DT_f32 &&
                    m == CHAIN_ulp2) /* functions that end in 16 bits take their short forms */
                    y.e += fabs(y.v) * functions * 0x1p-15;
                const double most = d == DT_f16 ? 65504 : d == DT_bf16 ? 0x1.fep127 : FLT_MAX;
                allowed[at] = isfinite(y.v) && fabs(y.v) + y.e > most
                                  ? INFINITY
                                  : y.e + (d == DT_f32 ? 0 : ulp(fabs(y.v) + y.e, d) / 2);
            }
        }
}

bool chain_check(const chain *c, const nnc_kernel *plain, chain_math m, const void *x,
    const void *y, char why[160])
{
    static double want[CHAIN_N], allowed[CHAIN_N];
    chain_answers(plain, m, x, want, allowed);
    for (int64_t i = 0; i < CHAIN_N; i++) {
        double got = nnc_get_f64(c->dtype, y, i), w = want[i];
        if (isinf(allowed[i]) && isfinite(w))
            continue;
        if ((got != got) == (w != w) && (w != w || allowed[i] > 0.1 * fabs(w) + 1e-30))
            continue;
        if (fabs(got - w) <= allowed[i] || got == w)
            continue;
        snprintf(why, 160, "--math=%s: of %.9g it is %.9g, not %.9g: off by %.3g, allowed %.3g",
            chain_math_names[m], nnc_get_f64(c->dtype, x, i), got, w, fabs(got - w), allowed[i]);
        return false;
    }
    return true;
}
