/* tests/api/special.c -- elementwise ops over special values: zeros with signs, infinities, NaN, subnormals, the largest and smallest of
 * each dtype. Compiled, interpreted and folded, each op gives a result of the reference's class (NaN, infinite, zero, with its sign). What
 * -O2 makes of operands that are equal or special constants, and of pairs of functions, is of the class that -O0 gives. */
#include "special.h"
#include <float.h>
#include <math.h>

enum { MOST_OUTPUTS = 100 };

int special_values(nnc_dtype t, double *f, int64_t *k)
{
    static const double any[] = {
        0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -7, 0.3, 60, -60, 1e4, -1e4};
    static const struct {
        nnc_dtype t;
        double largest, normal, subnormal;
    } of[] = {{DT_f64, DBL_MAX, DBL_MIN, 4.9406564584124654e-324},
        {DT_f32, FLT_MAX, FLT_MIN, 0x1p-149}, {DT_f16, 65504, 0x1p-14, 0x1p-24},
        {DT_bf16, 0x1.fep127, 0x1p-126, 0x1p-133}};
    int n = 0;
    if (nnc_dtype_kind(t) == NNC_FLOAT) {
        for (size_t i = 0; i < NNC_COUNT(any); i++)
            f[n++] = any[i];
        for (size_t i = 0; i < NNC_COUNT(of); i++)
            for (int sign = 1; sign >= -1 && of[i].t == t; sign -= 2) {
                f[n++] = sign * of[i].largest;
                f[n++] = sign * of[i].normal;
                f[n++] = sign * of[i].subnormal;
                f[n++] = sign * 3 * of[i].subnormal;
                f[n++] = sign * (double)INFINITY;
            }
        f[n++] = NAN;
        return n;
    }
    const int bits = 8 * (int)nnc_dtype_size(t), shift = nnc_dtype_kind(t) == NNC_INT ? 2 : 1;
    const int64_t largest = bits == 64 && shift == 1 ? -1
                                                     : (INT64_C(1) << (bits - shift)) - 1 +
                                                           (INT64_C(1) << (bits - shift));
    static const int64_t small[] = {0, 1, 2, 3, 7, 8, 15, 31, 63, 64, -1, -2, -3, -7, -8};
    for (size_t i = 0; i < NNC_COUNT(small); i++)
        k[n++] = small[i];
    for (int i = 0; i < 3; i++) {
        k[n++] = (int64_t)((uint64_t)largest - (uint64_t)i);
        k[n++] = (int64_t)((uint64_t)largest + 1 + (uint64_t)i); /* wraps to the smallest */
    }
    return n;
}

/* The special values of t, or at in[0] and in[1] all pairs of them. Returns the number of values. */
static int make_inputs(nnc_dtype t, bool is_pairs, void **in)
{
    double f[SPECIAL_MOST];
    int64_t k[SPECIAL_MOST];
    const int n = special_values(t, f, k), count = is_pairs ? n * n : n;
    for (int w = 0; w < 1 + is_pairs; w++) {
        in[w] = nnc_malloc((size_t)count * (size_t)nnc_dtype_size(t));
        for (int i = 0; i < count; i++) {
            const int at = is_pairs && !w ? i / n : i % n;
            if (nnc_is_float(t))
                nnc_set_f64(t, in[w], i, f[at]);
            else
                nnc_set_i64(t, in[w], i, k[at]);
        }
    }
    return n;
}

bool special_takes(nnc_op op, nnc_dtype t)
{
    const nnc_op_info *o = &nnc_ops[op];
    const bool is_float = nnc_is_float(t);
    return (o->cls == CL_ewise || o->cls == CL_ecomp) &&
           !(o->flags & (is_float ? OF_int : OF_float)) &&
           (is_float || (op != OP_leaky_relu && op != OP_prelu)) && op != OP_cast && op != OP_not &&
           op != OP_and && op != OP_or && op != OP_xor && op != OP_select;
}

/* Adds "%r<n> = OP OPERANDS" to the graph's text, for its n-th output. */
static void put_node(nnc_text *g, int n, nnc_op op, const char *operands)
{
    nnc_printf(g, "%%r%d = %s %s%s\n", n, nnc_ops[op].name, operands,
        op == OP_clip ? " {lo=-1, hi=1}" : "");
}

/* Ends the text by n outputs; NULL: reported. */
static nnc_graph *parse(nnc_text *g, int n)
{
    nnc_scan s;
    for (int i = 0; i < n; i++)
        nnc_printf(g, "%s%%r%d", i ? ", " : "return ", i);
    nnc_puts(g, " }");
    nnc_scan_init(&s, "t", nnc_text_str(g), g->n);
    nnc_graph *parsed = nnc_graph_parse(&s, test_sink);
    if (!parsed)
        test_fail_status(__FILE__, __LINE__, nnc_text_str(g), NNC_E_MODEL);
    nnc_text_deinit(g);
    return parsed;
}

/* All ops that take t, of every pair of values. */
static nnc_graph *single_ops(nnc_dtype t, int n)
{
    nnc_text g = {0};
    int r = 0;
    nnc_printf(&g, "graph @t {\n%%a = input : %s[%d]\n%%b = input : %s[%d]\n", nnc_dtype_name(t),
        n * n, nnc_dtype_name(t), n * n);
    for (int op = 0; op < OP__COUNT; op++)
        if (special_takes((nnc_op)op, t))
            put_node(&g, r++, (nnc_op)op, nnc_ops[op].n_min == 2 ? "%a, %b" : "%a");
    return parse(&g, r);
}

/* All ops of two operands with equal operands and with constants on either side, and all pairs of functions. */
static nnc_graph *pairs(nnc_dtype t, int n)
{
    static const char *const of_floats[] = {"0", "-0", "1", "-1", "2", "0.5", "inf", "-inf", "nan"},
                             *const of_ints[] = {"0", "1", "2", "3", "100"};
    const bool is_float = nnc_is_float(t);
    const int n_constant = is_float ? NNC_COUNT(of_floats) : NNC_COUNT(of_ints);
    nnc_text g = {0};
    int r = 0;
    nnc_printf(&g, "graph @t {\n%%a = input : %s[%d]\n", nnc_dtype_name(t), n);
    for (int i = 0; i < n_constant; i++)
        nnc_printf(&g, "%%c%d = constant : %s[] = [%s]\n", i, nnc_dtype_name(t),
            is_float ? of_floats[i] : of_ints[i]);
    for (int op = 0; op < OP__COUNT; op++) {
        char operands[32];
        if (!special_takes((nnc_op)op, t))
            continue;
        for (int i = 0; i < n_constant && nnc_ops[op].n_min == 2; i++) {
            snprintf(operands, sizeof operands, "%%a, %%c%d", i);
            put_node(&g, r++, (nnc_op)op, operands);
            snprintf(operands, sizeof operands, "%%c%d, %%a", i);
            put_node(&g, r++, (nnc_op)op, operands);
        }
        if (nnc_ops[op].n_min == 2) {
            put_node(&g, r++, (nnc_op)op, "%a, %a");
            continue;
        }
        for (int inner = 0; inner < OP__COUNT; inner++) {
            if (!special_takes((nnc_op)inner, t) || nnc_ops[inner].n_min == 2 ||
                nnc_ops[inner].flags & OF_bool)
                continue;
            nnc_printf(&g, "%%m%d = %s %%a%s\n", r, nnc_ops[inner].name,
                inner == OP_clip ? " {lo=-1, hi=1}" : "");
            snprintf(operands, sizeof operands, "%%m%d", r);
            put_node(&g, r++, (nnc_op)op, operands);
        }
    }
    return parse(&g, r);
}

nnc_graph *special_folded(const nnc_graph *g, void **in)
{
    nnc_graph *h = nnc_graph_create("constants", test_sink);
    nnc_ref *map = nnc_calloc(g->n_value + (size_t)1, sizeof *map);
    int next = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        nnc_ref operand[SPECIAL_OPERANDS] = {0};
        for (int k = 0; k < n->n_in; k++)
            operand[k] = map[n->in[k]];
        const nnc_ref first = n->op == OP_input ? nnc_constant(h, nnc_typeof(g, n->out), in[next++])
                                                : nnc_copy_node(h, g, n, operand);
        for (nnc_ref k = 0; k < n->n_out; k++)
            map[n->out + k] = first + k;
    }
    for (uint32_t i = 0; i < g->n_output; i++)
        nnc_output(h, map[g->output[i]], nnc_arena_printf(&h->arena, "y%u", i));
    nnc_free(map);
    CHECK_OK(h->status);
    return h;
}

/* IEEE 754 leaves open which of two zeros min and max return. */
static bool signs_zeros(nnc_op op)
{
    return op != OP_min && op != OP_max && op != OP_relu && op != OP_relu6 && op != OP_clip;
}

/* Is `got` of the class of `want`, and where that is finite, within `unit` of it? gelu: of its operand x, a factor of which cancels. */
static bool agrees(nnc_op op, nnc_dtype t, double unit, double x, double got, double want)
{
    static const double tiny[DT__COUNT] = {
        [DT_f64] = 5e-324, [DT_f32] = 0x1p-148, [DT_f16] = 0x1p-23, [DT_bf16] = 0x1p-132};
    if (isnan(want) || isinf(want))
        return isnan(want) ? isnan(got) : got == want;
    const double scale = op == OP_gelu ? fmax(fabs(x), fabs(want)) : fabs(want);
    return fabs(got - want) <= unit * scale + tiny[t] &&
           ((got != 0 && want != 0) || signbit(got) == signbit(want) || !signs_zeros(op));
}

/* Compares output o of two runs; in: the inputs. */
static void compare(const nnc_graph *g, uint32_t o, double unit, const char *how, void **in,
    const void *got, const void *want)
{
    const nnc_node *n = nnc_def(g, g->output[o]), *inner = nnc_def(g, n->in[0]);
    const nnc_type *y = nnc_typeof(g, g->output[o]);
    const nnc_dtype t = (nnc_dtype)y->dtype, from = (nnc_dtype)nnc_typeof(g, 0)->dtype;
    for (int64_t i = 0; i < nnc_type_numel(y); i++) {
        const double x = nnc_get_f64(from, in[0], i), a = nnc_get_f64(t, got, i),
                     b = nnc_get_f64(t, want, i);
        if (nnc_is_float(t) ? agrees((nnc_op)n->op, t, unit, x, a, b)
                            : nnc_get_i64(t, got, i) == nnc_get_i64(t, want, i))
            continue;
        test_fail(__FILE__, __LINE__, "%s: %s of %s, %g, %s: %.17g, want %.17g", how,
            nnc_ops[n->op].name, nnc_ops[inner->op].name, x, nnc_dtype_name(from), a, b);
        return;
    }
}

bool special_run(const nnc_graph *g, const special_how *how, const api_data *d, api_run *r)
{
    nnc_compile_options o = nnc_compile_defaults;
    o.level = how->level;
    o.math = how->math;
    nnc_env *e = NULL;
    nnc_text why = {0};
    CHECK_OK(
        nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = how->threads ? how->threads : 2,
                           .no_llvm = how->interpreted},
            &e, test_sink));
    const bool ok = api_compile_and_run(e, g, &o, d, r, &why, test_sink);
    if (!ok)
        test_fail(__FILE__, __LINE__, "%s: %s", how->name, nnc_text_str(&why));
    nnc_text_deinit(&why);
    nnc_env_destroy(e);
    return ok;
}

static void special_ops(nnc_dtype t)
{
    static const special_how how[] = {{"-O2", 2, MATH_ulp2, false, false},
        {"interpreted", 2, MATH_ulp2, true, false}, {"folded", 2, MATH_ulp2, false, true},
        {"-O0", 0, MATH_ulp2, false, false}, {"--math=exact", 2, MATH_exact, false, false},
        {"--math=fast", 2, MATH_fast, false, false}};
    static const double unit[DT__COUNT] = {
        [DT_f64] = 1e-14, [DT_f32] = 1e-6, [DT_f16] = 0x1p-9, [DT_bf16] = 0x1p-6};
    void *in[2], *want[MOST_OUTPUTS];
    const int n = make_inputs(t, true, in);
    nnc_graph *g = single_ops(t, n), *h = special_folded(g, in);
    api_data d = {.in = in, .n_in = 2}, none = {0};
    CHECK_OK(api_truth(&d, g, test_sink));
    for (uint32_t o = 0; o < g->n_output; o++) {
        want[o] = nnc_malloc((size_t)nnc_type_bytes(&d.want[o].type));
        nnc_rval_store(&d.want[o], want[o]);
        nnc_rval_free(&d.want[o]);
    }
    nnc_free(d.want);
    for (size_t k = 0; k < (nnc_is_float(t) ? NNC_COUNT(how) : 3); k++) {
        api_run r;
        const special_how *w = &how[k];
        if (special_run(w->folded ? h : g, w, w->folded ? &none : &d, &r))
            for (uint32_t o = 0; o < g->n_output; o++)
                compare(g, o, w->math == MATH_fast ? fmax(unit[t], 0x1p-14) : unit[t], w->name, in,
                    r.out[o], want[o]);
        api_run_free(&r);
    }
    for (uint32_t o = 0; o < g->n_output; o++)
        nnc_free(want[o]);
    nnc_free(in[0]);
    nnc_free(in[1]);
    nnc_graph_destroy(g);
    nnc_graph_destroy(h);
}

/* A quarter of the dtypes, and in CI all. */
TEST(ops_of_special_values)
{
    const int n = test_draws(DT_bool);
    for (int i = 0; i < n; i++)
        special_ops((nnc_dtype)((i * 5 + DT_f32) % DT_bool));
}

/* Interpreted, since passes are what differs. Chains of functions do not become polynomials. */
TEST(pairs_of_special_values)
{
    static const nnc_dtype types[] = {DT_f32, DT_f64, DT_i32, DT_u8};
    static const special_how how[] = {
        {"-O0", 0, MATH_exact, true, false}, {"-O2", 2, MATH_exact, true, false}};
    for (size_t k = 0; k < NNC_COUNT(types); k++) {
        if (!test_takes(k, 4))
            continue;
        void *in;
        nnc_graph *g = pairs(types[k], make_inputs(types[k], false, &in));
        api_data d = {.in = &in, .n_in = 1};
        api_run r[2] = {0};
        if (special_run(g, &how[0], &d, &r[0]) && special_run(g, &how[1], &d, &r[1]))
            for (uint32_t o = 0; o < g->n_output; o++)
                compare(g, o, 1e-2, "-O2 beside -O0", &in, r[1].out[o], r[0].out[o]);
        api_run_free(&r[0]);
        api_run_free(&r[1]);
        nnc_free(in);
        nnc_graph_destroy(g);
    }
}
