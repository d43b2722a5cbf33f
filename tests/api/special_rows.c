/* tests/api/special_rows.c -- the ops that special.c leaves out, over rows of special values: reductions, windows, contractions, named ops
 * with reductions, loops, movement, casts. Compiled at any level, interpreted and folded, each gives a result of the reference's class
 * (NaN, infinite, zero with its sign) near it. A row of the table is an instance of an op:
 *
 *     NAME[:RESULTS] OPERAND... {ATTRIBUTES}      an operand is a letter and dimensions, as x24,37
 *
 * x: special values, without those whose sums and products overflow or vanish on the way, unless the op rounds nothing. w: one in 20 of
 * them. l: the largest ones. f: ordinary numbers. v: none below 0. u: in 0..1. b: bool. i, h: indices (i64, i32), also far outside.
 * j: window positions 0..3. k: lengths 0..5. */
#include "special.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

static const char *const table[] = {
    "reduce_sum x24,37 {axes=[1]}",
    "reduce_sum x19,24 {axes=[0], keepdims=1}",
    "reduce_mean x24,37 {axes=[1]}",
    "reduce_mean x3,19,4 {axes=[0,1]}",
    "reduce_max x40,37 {axes=[1]}",
    "reduce_max x19,24 {axes=[0]}",
    "reduce_min x40,37 {axes=[1]}",
    "reduce_min x19,24 {axes=[0]}",
    "reduce_prod x24,9 {axes=[1]}",
    "reduce_prod x9,24 {axes=[0]}",
    "argmax x40,37 {axis=1}",
    "argmax x19,24 {axis=0}",
    "argmin x40,37 {axis=1}",
    "argmin x19,24 {axis=0}",
    "reshape x24,6 {shape=[36,4]}",
    "transpose x24,18 {perm=[1,0]}",
    "broadcast x24,1 {shape=[3,24,5]}",
    "slice x24,9 {axes=[1], starts=[1], ends=[8], steps=[2]}",
    "pad x24,9 {pads=[0,2,0,3]}",
    "pad x24,9 {pads=[0,2,0,3], mode=reflect}",
    "concat x24,3 x24,5 {axis=1}",
    "split:2 x24,9 {axis=1, sizes=[4,5]}",
    "gather x24,9 i30 {axis=0}",
    "gather x24,9 h30 {axis=1}",
    "flip x24,9 {axes=[1]}",
    "relayout x24,9,3 {order=[0,2,1]}",
    "gather_elements x24,9 i24,7 {axis=1}",
    "gather_elements x24,9 h24,9 {axis=0}",
    "gather_nd x24,9 i20,2 {}",
    "gather_nd x5,9,4 i5,3,1 {batch_dims=1}",
    "maxpool x2,3,9,20 {kernel=[2,3], strides=[2,2]}",
    "maxpool x2,8,9,9 {kernel=[3,3], pads=[1,1,1,1]}",
    "avgpool x2,3,9,20 {kernel=[2,3], strides=[2,2]}",
    "avgpool x2,8,9,9 {kernel=[3,3], pads=[1,1,1,1]}",
    "avgpool x2,8,9,9 {kernel=[3,3], pads=[1,1,1,1], count_include_pad=1}",
    "argmaxpool x2,3,9,20 {kernel=[2,3], strides=[2,2]}",
    "maxpool_grad x2,3,4,10 j2,3,4,10 {kernel=[2,2], strides=[2,2], shape=[2,3,8,20]}",
    "matmul x24,19 w19,40 {}",
    "matmul x24,1 x1,5 {}",
    "matmul x2,1,19 w2,19,1 {}",
    "linear x24,19 w40,19 f40 {}",
    "linear w24,19 x5,19 {}",
    "conv x2,3,6,20 w8,3,1,1 f8 {}",
    "conv x2,3,6,20 f8,3,3,3 {pads=[1,1,1,1]}",
    "conv x2,8,6,20 w8,1,2,2 f8 {groups=8}",
    "conv x2,3,20 w4,3,3 {strides=[2]}",
    "conv_transpose x2,3,6,7 f3,4,2,2 {strides=[2,2]}",
    "winograd x2,3,6,20 f36,2,3,8 {pads=[1,1,1,1]}",
    "winograd x2,3,7,20 f16,1,3,8 {pads=[0,1,2,0]}",
    "winograd_wgrad x2,3,6,20 f2,4,6,20 {tile=4, pads=[1,1,1,1]}",
    "conv_wgrad x2,3,6,20 f2,4,4,18 {kernel=[3,3]}",
    "global_avgpool x3,8,4,9 {}",
    "global_maxpool x3,8,4,9 {}",
    "softmax x40,37 {axis=1}",
    "softmax x5,24 {axis=0}",
    "log_softmax x40,37 {axis=1}",
    "log_softmax x5,24 {axis=0}",
    "batchnorm x2,30,5 w30 w30 w30 v30 {eps=0.5}",
    "batchnorm x2,30,5 f30 f30 f30 v30 {eps=0}",
    "layernorm x40,37 w37 w37 {axis=1, eps=0.5}",
    "layernorm x40,37 {axis=1}",
    "rmsnorm x40,37 w37 {axis=1, eps=0.5}",
    "groupnorm x3,8,5 w8 w8 {num_groups=4, eps=0.5}",
    "cumsum x24,19 {axis=1}",
    "cumsum x7,24 {axis=0, exclusive=1, reverse=1}",
    "cumprod x24,7 {axis=1}",
    "topk:2 x40,37 {axis=1, k=3}",
    "topk:2 x40,37 {axis=1, k=3, largest=0}",
    "topk:2 x20,37 {axis=1, k=37}",
    "topk:2 x20,80 {axis=1, k=80, largest=0}",
    "topk:2 x20,80 {axis=1, k=7, largest=0}",
    "topk:2 x80,12 {axis=0, k=7}",
    "topk:2 x24,19 {axis=1, k=1, largest=0}",
    "topk:2 l20,40 {axis=1, k=9, largest=0}",
    "topk:2 l20,80 {axis=1, k=12, largest=0}",
    "topk:2 l20,80 {axis=1, k=12}",
    "topk:2 l20,40 {axis=1, k=40, largest=0}",
    "argmax l20,40 {axis=1}",
    "argmin l20,40 {axis=1}",
    "scatter x24,9 i24,7 x24,7 {axis=1}",
    "scatter x24,9 h24,7 x24,7 {axis=1, reduction=add}",
    "scatter x24,9 i24,7 x24,7 {axis=0, reduction=mul}",
    "scatter x24,9 i24,7 x24,7 {axis=1, reduction=max}",
    "scatter x24,9 i24,7 x24,7 {axis=1, reduction=min}",
    "scatter_nd x24,9 i20,1 x20,9 {}",
    "scatter_nd x24,9 i20,2 x20 {reduction=add}",
    "scatter_nd x24,9 i20,2 x20 {reduction=max}",
    "lstm:2 x5,4,32 w8,32 f4,8 f4,8 k4 {}",
    "gru x5,4,24 w8,24 f8 f4,8 k4 {}",
    "rnn x5,4,8 w8,8 f4,8 {}",
    "rnn x5,4,8 f8,8 f4,8 {activation=relu}",
    "linear_scan u24,9 x24,9 {axis=1}",
    "linear_scan x24,9 f24,9 f24,1 {axis=1, reverse=1}",
    "recurrent_grad:2 x5,4,8 u5,4,8 f8,8 {}",
    "cast x60 {to=f64}",
    "cast x60 {to=f32}",
    "cast x60 {to=f16}",
    "cast x60 {to=bf16}",
    "cast x60 {to=i8}",
    "cast x60 {to=i16}",
    "cast x60 {to=i32}",
    "cast x60 {to=i64}",
    "cast x60 {to=u8}",
    "cast x60 {to=u16}",
    "cast x60 {to=u32}",
    "cast x60 {to=u64}",
    "cast x60 {to=bool}",
    "select b60 x60 x60 {}",
    "not b60 {}",
    "and b60 b60 {}",
    "or b60 b60 {}",
    "xor b60 b60 {}",
};

/* Ops that compute nothing, or that have no rows here. */
static const struct {
    nnc_op op;
    const char *why;
} others[] = {{OP_input, "a leaf"}, {OP_param, "a leaf"}, {OP_constant, "a leaf"},
    {OP_iota, "no operand"}, {OP_allreduce, "several devices: tests/runtime"},
    {OP_allgather, "several devices"}, {OP_reduce_scatter, "several devices"},
    {OP_fused, "of other ops"}};

enum { MOST_OUTPUTS = 128, MOST_INPUTS = 256 };

/* A row of the table as text of a graph. */
typedef struct instance {
    nnc_op op;
    int results, n;
    char role[SPECIAL_OPERANDS];
    const char *dims[SPECIAL_OPERANDS]; /* to the next blank */
    const char *attrs;
} instance;

static nnc_op op_named(const char *s, size_t n)
{
    for (int op = 0; op < OP__COUNT; op++)
        if (strlen(nnc_ops[op].name) == n && !strncmp(nnc_ops[op].name, s, n))
            return (nnc_op)op;
    test_fail(__FILE__, __LINE__, "no op of %s", s);
    return OP_input;
}

static instance read_row(const char *s)
{
    instance r = {.op = op_named(s, strcspn(s, ": ")), .results = 1};
    s += strcspn(s, ": ");
    if (*s == ':')
        r.results = atoi(s + 1);
    s += strcspn(s, " ");
    while (*++s != '{') {
        r.role[r.n] = *s;
        r.dims[r.n++] = s + 1;
        s += strcspn(s, " ");
    }
    r.attrs = s;
    return r;
}

static nnc_dtype type_of(char role, nnc_dtype t)
{
    return role == 'b' ? DT_bool : role == 'h' ? DT_i32 : strchr("ijk", role) ? DT_i64 : t;
}

/* Indices are computed, since those that are inputs are checked before a run. */
static bool is_index(char role)
{
    return role == 'i' || role == 'h';
}

static const char start[] = "graph @t {\n%i = input : i64[]\n%h = input : i32[]\n";

/* The nodes of r, whose values have the number k in their names. */
static void put_row(nnc_text *g, const instance *r, int k, nnc_dtype t)
{
    for (int i = 0; i < r->n; i++)
        nnc_printf(g, "%%o%d_%d = input : %s[%.*s]\n", k, i, nnc_dtype_name(type_of(r->role[i], t)),
            (int)strcspn(r->dims[i], " "), r->dims[i]);
    for (int i = 0; i < r->n; i++)
        if (is_index(r->role[i]))
            nnc_printf(g, "%%i%d_%d = bit_xor %%o%d_%d, %%%c\n", k, i, k, i, r->role[i]);
    for (int i = 0; i < r->results; i++)
        nnc_printf(g, "%s%%r%d_%d", i ? ", " : "", k, i);
    nnc_printf(g, " = %s ", nnc_ops[r->op].name);
    for (int i = 0; i < r->n; i++)
        nnc_printf(g, "%s%%%c%d_%d", i ? ", " : "", is_index(r->role[i]) ? 'i' : 'o', k, i);
    nnc_printf(g, " %s\n", strcmp(r->attrs, "{}") ? r->attrs : "");
}

static nnc_graph *parse(const char *text)
{
    nnc_scan s;
    nnc_scan_init(&s, "t", text, strlen(text));
    return nnc_graph_parse(&s, test_sink);
}

/* Is the row one of dtype t? All are of f32. */
static bool fits(const instance *r, nnc_dtype t)
{
    NNC_LOCAL(nnc_text) g = {0};
    nnc_puts(&g, start);
    put_row(&g, r, 0, t);
    nnc_puts(&g, "return %r0_0 }");
    nnc_graph *parsed = parse(nnc_text_str(&g));
    if (!parsed && t == DT_f32)
        test_fail_status(__FILE__, __LINE__, nnc_text_str(&g), NNC_E_MODEL);
    nnc_graph_destroy(parsed);
    nnc_sink_clear(test_sink);
    return parsed != NULL;
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Powers of two: their sums and products are exact. */
static const double ordinary[] = {1, -1, 0.5, -0.5, 2, -2, 0.25, 1};

static bool rounds(nnc_op op)
{
    return !(nnc_ops[op].flags & OF_exact) && op != OP_cast && op != OP_select &&
           !(nnc_ops[op].flags & OF_jump) && nnc_ops[op].cls != CL_move;
}

/* Number i of a special operand. Each row along the last dimension has some, one alone, or two mixed. */
static double special_float(nnc_dtype t, uint64_t key, int64_t i, int64_t row, bool all, char role)
{
    static const double some[] = {0, -0.0, INFINITY, -INFINITY, NAN, 0, -0.0, 1, -1};
    double f[SPECIAL_MOST];
    int64_t unused[SPECIAL_MOST];
    const int n = all ? special_values(t, f, unused) : (int)NNC_COUNT(some);
    const double *from = all ? f : some;
    const uint64_t line = nnc_rng_key("line", key + (uint64_t)(i / row));
    const uint32_t kind = nnc_rng_u32(line, 0) % 4, one = nnc_rng_u32(line, 1),
                   two = nnc_rng_u32(line, 2), own = nnc_rng_u32(key, (uint64_t)i);
    if (role == 'w' ? own % 20 : kind < 2 && own % 8)
        return ordinary[own / 64 % NNC_COUNT(ordinary)];
    return from[(role == 'w' || kind < 2   ? own / 64
                    : kind == 2 || own % 2 ? one
                                           : two) %
                (uint32_t)n];
}

static void set_large(nnc_dtype t, uint32_t u, void *to, int64_t i)
{
    static const double largest[DT__COUNT] = {
        [DT_f64] = DBL_MAX, [DT_f32] = FLT_MAX, [DT_f16] = 65504, [DT_bf16] = 0x1.fep127};
    if (nnc_is_float(t))
        nnc_set_f64(t, to, i,
            u % 3 == 0   ? largest[t]
            : u % 3 == 1 ? (double)INFINITY
                         : (double)NAN);
    else
        nnc_set_i64(t, to, i, nnc_int_end(t, true) - u % 3);
}

static void fill(const instance *r, int k, nnc_dtype t, const nnc_type *x, uint64_t seed, void *to)
{
    const char role = r->role[k];
    const uint64_t key = nnc_rng_key(nnc_ops[r->op].name, seed * 8 + (uint64_t)k);
    const int64_t row = x->dim[x->rank - 1];
    static const int64_t far[] = {0, 1, 2, -1, -2, 100, -100, INT32_MAX, INT32_MIN, INT64_MAX,
        INT64_MIN, INT64_C(1) << 32, -(INT64_C(1) << 32)};
    for (int64_t i = 0; i < nnc_type_numel(x); i++) {
        const uint32_t u = nnc_rng_u32(key, (uint64_t)i);
        int64_t integers[SPECIAL_MOST];
        double unused[SPECIAL_MOST];
        if (is_index(role))
            nnc_set_i64(
                (nnc_dtype)x->dtype, to, i, far[u % (role == 'i' ? NNC_COUNT(far) : 9)] ^ 1);
        else if (strchr("jkb", role))
            nnc_set_i64((nnc_dtype)x->dtype, to, i, u % (role == 'j' ? 4 : role == 'k' ? 6 : 2));
        else if (role == 'l')
            set_large(t, u, to, i);
        else if (!nnc_is_float(t))
            nnc_set_i64(t, to, i, integers[u % (uint32_t)special_values(t, unused, integers)]);
        else if (role == 'f' || role == 'u')
            nnc_set_f64(
                t, to, i, role == 'u' ? (u % 5) * 0.25 : ordinary[u / 64 % NNC_COUNT(ordinary)]);
        else
            nnc_set_f64(t, to, i,
                role == 'v' ? fabs(special_float(t, key, i, 1, false, 'x'))
                            : special_float(t, key, i, row, !rounds(r->op), role));
    }
}

/* ---- a graph of all rows of a dtype ---------------------------------------------------------- */

typedef struct rows {
    nnc_graph *g;
    instance row[NNC_COUNT(table)];
    nnc_dtype t;
    int n, owner[MOST_OUTPUTS];
    void *in[MOST_INPUTS], *want[MOST_OUTPUTS];
    api_data d;
} rows;

static void make(rows *w, nnc_dtype t, uint64_t seed)
{
    NNC_LOCAL(nnc_text) g = {0};
    NNC_LOCAL(nnc_text) out = {0};
    *w = (rows){.t = t};
    int n_out = 0;
    nnc_puts(&g, start);
    for (size_t i = 0; i < NNC_COUNT(table); i++) {
        const instance r = read_row(table[i]);
        if (!fits(&r, t))
            continue;
        put_row(&g, &r, w->n, t);
        for (int k = 0; k < r.results; k++, n_out++) {
            nnc_printf(&out, "%s%%r%d_%d", n_out ? ", " : "return ", w->n, k);
            w->owner[n_out] = w->n;
        }
        w->row[w->n++] = r;
    }
    nnc_printf(&g, "%s }", nnc_text_str(&out));
    w->g = parse(nnc_text_str(&g));
    if (!w->g) {
        test_fail_status(__FILE__, __LINE__, nnc_text_str(&g), NNC_E_MODEL);
        return;
    }
    int r = 0, k = 0, n = 0;
    for (uint32_t i = 0; i < w->g->n_node; i++) {
        if (w->g->node[i].op != OP_input)
            continue;
        const nnc_type *x = nnc_typeof(w->g, w->g->node[i].out);
        w->in[n] = nnc_malloc((size_t)nnc_type_bytes(x));
        if (n < 2) {
            nnc_set_i64((nnc_dtype)x->dtype, w->in[n++], 0, 1);
            continue;
        }
        for (; k == w->row[r].n; r++)
            k = 0;
        fill(&w->row[r], k++, t, x, seed, w->in[n++]);
    }
    w->d = (api_data){.in = w->in, .n_in = n};
    CHECK_OK(api_truth(&w->d, w->g, test_sink));
    for (uint32_t o = 0; o < w->g->n_output; o++) {
        w->want[o] = nnc_malloc((size_t)nnc_type_bytes(&w->d.want[o].type));
        nnc_rval_store(&w->d.want[o], w->want[o]);
    }
}

static void drop(rows *w)
{
    for (uint32_t o = 0; w->g && o < w->g->n_output; o++) {
        nnc_free(w->want[o]);
        nnc_rval_free(&w->d.want[o]);
    }
    nnc_free(w->d.want);
    for (int i = 0; i < w->d.n_in; i++)
        nnc_free(w->in[i]);
    nnc_graph_destroy(w->g);
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* docs/math.md, "Special values": maxima and minima of zeros, and sums of products that are zeros. */
static bool signs_zeros(const instance *r)
{
    return nnc_ops[r->op].cls != CL_contract && r->op != OP_reduce_max && r->op != OP_reduce_min &&
           r->op != OP_maxpool && r->op != OP_global_maxpool && r->op != OP_maxpool_grad &&
           r->op != OP_lstm && r->op != OP_gru && r->op != OP_rnn && r->op != OP_recurrent_grad &&
           !strstr(r->attrs, "reduction=m");
}

static bool agrees(const instance *r, double unit, double got, double want)
{
    if (isnan(want) || isinf(want))
        return isnan(want) ? isnan(got) : got == want;
    if (got == 0 && want == 0)
        return signbit(got) == signbit(want) || !signs_zeros(r);
    return rounds(r->op) || r->op == OP_cast ? fabs(got - want) <= 64 * unit * fmax(1, fabs(want))
                                             : got == want;
}

static void compare(const rows *w, uint32_t o, const special_how *how, double unit, const void *got,
    const nnc_rounding *rounding)
{
    const instance *r = &w->row[w->owner[o]];
    const nnc_type *y = nnc_typeof(w->g, w->g->output[o]);
    const nnc_dtype t = (nnc_dtype)y->dtype;
    for (int64_t i = 0; i < nnc_type_numel(y); i++) {
        const double a = nnc_get_f64(t, got, i), b = nnc_get_f64(t, w->want[o], i);
        if (nnc_is_float(t) ? agrees(r, unit, a, b)
                            : nnc_get_i64(t, got, i) == nnc_get_i64(t, w->want[o], i))
            continue;
        /* the transforms add infinities of one tile, which taps that do not read them get, too (docs/math.md) */
        if (r->op == OP_winograd_wgrad && !isfinite(a))
            continue;
        if (isfinite(a) && isfinite(b) && a != 0 && b != 0 && nnc_is_float(t) &&
            api_is_conditioned(w->g, &w->d, *rounding, o, got))
            continue;
        test_fail(__FILE__, __LINE__,
            "%s: %s %s of %s (output %u): element %lld is %.17g, not %.17g", how->name,
            nnc_ops[r->op].name, r->attrs, nnc_dtype_name((nnc_dtype)w->t), o, (long long)i, a, b);
        return;
    }
}

static const special_how hows[] = {{"-O2", 2, MATH_ulp2, false, false},
    {"-O0", 0, MATH_ulp2, false, false}, {"-O3", 3, MATH_ulp2, false, false},
    {"-O2, one thread", 2, MATH_ulp2, false, false, 1}, {"interpreted", 2, MATH_ulp2, true, false},
    {"-O0, interpreted", 0, MATH_ulp2, true, false}, {"folded", 2, MATH_ulp2, false, true},
    {"--math=exact", 2, MATH_exact, false, false}, {"--math=fast", 2, MATH_fast, false, false}};

static void check_rows(nnc_dtype t, const special_how *how, uint64_t seed)
{
    static const double unit[DT__COUNT] = {
        [DT_f64] = 0x1p-53, [DT_f32] = 0x1p-24, [DT_f16] = 0x1p-11, [DT_bf16] = 0x1p-8};
    rows w;
    make(&w, t, seed);
    nnc_graph *h = w.g && how->folded ? special_folded(w.g, w.in) : NULL;
    api_data none = {0};
    api_run r = {0};
    if (w.g && special_run(h ? h : w.g, how, h ? &none : &w.d, &r)) {
        const bool fast = how->math == MATH_fast;
        const nnc_rounding rounding = {.function_error = fast ? 0x1p-15 : 0};
        for (uint32_t o = 0; o < w.g->n_output; o++)
            compare(&w, o, how, fast ? fmax(unit[t], 0x1p-15) : unit[t], r.out[o], &rounding);
    }
    if (test_failures)
        fprintf(
            stderr, "%s, %s, seed %llu\n", nnc_dtype_name(t), how->name, (unsigned long long)seed);
    api_run_free(&r);
    nnc_graph_destroy(h);
    drop(&w);
}

TEST(rows_of_special_values)
{
    const int n = test_draws(12);
    for (int i = 0; i < n; i++) {
        const uint64_t seed = test_seed + (uint64_t)i;
        const uint64_t key = nnc_rng_key("rows", seed);
        const nnc_dtype any = (nnc_dtype)(nnc_rng_u32(key, 1) % DT_bool),
                        of[] = {DT_f32, DT_f64, any, any}, t = of[nnc_rng_u32(key, 0) % 4];
        check_rows(t, &hows[nnc_rng_u32(key, 2) % NNC_COUNT(hows)], seed);
    }
}

TEST(every_op_meets_special_values)
{
    for (int op = 0; op < OP__COUNT; op++) {
        bool known = false;
        for (int t = 0; t < DT_bool; t++)
            known = known || special_takes((nnc_op)op, (nnc_dtype)t);
        for (size_t i = 0; i < NNC_COUNT(table); i++)
            known = known || read_row(table[i]).op == (nnc_op)op;
        for (size_t i = 0; i < NNC_COUNT(others); i++)
            known = known || others[i].op == (nnc_op)op;
        if (!known)
            test_fail(__FILE__, __LINE__, "%s has no row in special_rows.c", nnc_ops[op].name);
    }
}
