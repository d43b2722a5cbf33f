/* tests/passes/props.c -- what holds for passes on any graph. Results stay, a second run changes nothing, and memory may run
 * out anywhere. The accounts are exact: the driver fails otherwise, and here they are added up again over all passes. */
#include "gen/gen.h"
#include "help.h"
#include "kernel/kernel.h"

#include <math.h>
#include <stdlib.h>

static nnc_status run_passes(nnc_graph **g, int level, const char *const *only, int n_only,
    const nnc_target *t, nnc_remarks *r)
{
    nnc_pass_options o = {.level = level, .target = t, .only = only, .n_only = n_only};
    return nnc_passes_run(g, &o, r, test_sink);
}

/* Beyond its limit an output may be off by what rounding does to it, FACTOR times as much in the mean square of ROUNDINGS draws. */
enum { ROUNDINGS = 16, FACTOR = 16 };

/* Evaluates with generated inputs, with simulated rounding or without (NULL); values of each output are the caller's. */
static bool eval(const nnc_graph *g, uint64_t seed, const nnc_rounding *r, nnc_rval *out)
{
    const void *in[1024] = {0};
    void *own[1024];
    int n = 0;
    for (uint32_t i = 0; i < g->n_node && n < 1024; i++)
        if (g->node[i].op == OP_input) {
            const nnc_type *t = nnc_typeof(g, g->node[i].out);
            own[n] = nnc_malloc((size_t)nnc_type_bytes(t) + 1);
            if (own[n])
                gen_fill_input(t, seed, n, own[n]);
            in[n] = own[n];
            n++;
        }
    nnc_status s = nnc_eval_rounded(g, in, 1, r, out, test_sink);
    while (n > 0)
        nnc_free(own[--n]);
    CHECK_OK(s);
    return s == NNC_OK;
}

/* Largest error relative to the values' size; NaN must meet NaN. */
static double difference(const nnc_rval *a, const nnc_rval *b)
{
    int64_t n = nnc_type_numel(&a->type);
    double worst = 0, scale = 1;
    if (!nnc_type_same_shape(&a->type, &b->type) || a->type.dtype != b->type.dtype)
        return INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double x = a->f ? a->f[i] : (double)a->i[i], y = b->f ? b->f[i] : (double)b->i[i];
        if (isnan(x) != isnan(y))
            return INFINITY;
        if (isnan(x) || x == y)
            continue;
        scale = fmax(scale, fabs(x));
        worst = fmax(worst, fabs(x - y));
    }
    return worst / scale;
}

/* Is an output whose values are `exact` moved by d or more by rounding alone? */
static bool is_conditioned(
    const nnc_graph *g, uint64_t seed, uint32_t output, const nnc_rval *exact, double d)
{
    double square = 0;
    for (uint64_t i = 1; isfinite(d) && i <= ROUNDINGS; i++) {
        NNC_FREED nnc_rval *v = nnc_calloc(g->n_output + 1, sizeof *v);
        if (!v || !eval(g, seed, &(nnc_rounding){.seed = i}, v))
            return false;
        const double moved = difference(exact, &v[output]);
        square += isfinite(moved) ? moved * moved / ROUNDINGS : 0;
        for (uint32_t o = 0; o < g->n_output; o++)
            nnc_rval_free(&v[o]);
    }
    return isfinite(d) && d * d <= FACTOR * square;
}

static void compare(const nnc_graph *before, const nnc_graph *after, uint64_t seed, double bound)
{
    nnc_rval *a = calloc(before->n_output + 1, sizeof *a),
             *b = calloc(before->n_output + 1, sizeof *b);
    CHECK_INT(after->n_output, before->n_output);
    if (a && b && after->n_output == before->n_output && eval(before, seed, NULL, a)) {
        if (eval(after, seed, NULL, b))
            for (uint32_t i = 0; i < before->n_output; i++) {
                double d = difference(&a[i], &b[i]);
                if (!(d <= bound) && !(bound > 0 && is_conditioned(before, seed, i, &a[i], d)))
                    test_fail(__FILE__, __LINE__, "seed %llu: output %u differs by %g",
                        (unsigned long long)seed, i, d);
                nnc_rval_free(&b[i]);
            }
        for (uint32_t i = 0; i < before->n_output; i++)
            nnc_rval_free(&a[i]);
    }
    free(a);
    free(b);
}

static void check_accounts(const nnc_remarks *r, nnc_cost before, nnc_cost after)
{
    int64_t bytes = 0, launches = 0;
    for (size_t i = 0; i < r->n; i++) {
        bytes += r->at[i].bytes_saved;
        launches += r->at[i].launches_saved;
        CHECK(r->at[i].reason && r->at[i].reason[0] && r->at[i].rule && r->at[i].pass);
        if (!r->at[i].applied)
            CHECK(r->at[i].bytes_saved == 0 && r->at[i].launches_saved == 0);
    }
    CHECK_INT(bytes, before.bytes - after.bytes);
    CHECK_INT(launches, before.launches - after.launches);
}

/* No pass may leave more launches than there were, but those that pay with copies for time (layout, in_place, pack_weights) and two
 * that must (split_bias, split_wide). `expand` is paid back by `fuse`, unless several kernels are expected to take less time than one. */
static void check_launches(const nnc_remarks *r, uint64_t seed)
{
    static const char *const pays[] = {
        "layout", "in_place", "pack_weights", "split_bias", "split_wide"};
    int64_t saved = 0;
    bool for_time = false;
    for (size_t i = 0; i < r->n; i++) {
        const nnc_remark *m = &r->at[i];
        bool counts = true;
        for (size_t k = 0; k < NNC_COUNT(pays); k++)
            counts &= m->launches_saved >= 0 || strcmp(m->pass, pays[k]) != 0;
        saved += counts ? m->launches_saved : 0;
        for_time |= !m->applied && strstr(m->reason, "one kernel is expected to take");
    }
    if (saved < 0 && !for_time)
        test_fail(__FILE__, __LINE__, "seed %llu: %lld launches more than before",
            (unsigned long long)seed, (long long)-saved);
}

static void print_text(nnc_text *t, const nnc_graph *g)
{
    nnc_text_clear(t);
    nnc_graph_print(t, g);
}

static nnc_graph *random_graph(uint64_t seed, int nodes, bool ints)
{
    gen_options o = {.seed = seed, .nodes = nodes};
    if (ints)
        o.dtypes = 1u << DT_f32 | 1u << DT_i32 | 1u << DT_f16 | 1u << DT_u8;
    nnc_graph *g = gen_graph(&o, test_sink);
    CHECK(g != NULL);
    return g;
}

/* Sum of squared errors over sum of squares, over all outputs that are floats; NaN must meet NaN. h with simulated rounding, or without. */
static double error_of(const nnc_graph *g, const nnc_graph *h, uint64_t seed, const nnc_rounding *r)
{
    nnc_rval *a = calloc(g->n_output + 1, sizeof *a), *b = calloc(g->n_output + 1, sizeof *b);
    double diff = 0, sum = 0;
    bool ok = a && b && eval(g, seed, NULL, a), both = ok && eval(h, seed, r, b);
    for (uint32_t o = 0; both && o < g->n_output; o++)
        for (int64_t i = 0; a[o].f && i < nnc_type_numel(&a[o].type); i++) {
            double x = a[o].f[i], y = b[o].f[i];
            diff += isnan(x) && isnan(y) ? 0 : (x - y) * (x - y);
            sum += isnan(x) ? 0 : x * x;
        }
    for (uint32_t o = 0; ok && o < g->n_output; o++) {
        nnc_rval_free(&a[o]);
        if (both)
            nnc_rval_free(&b[o]);
    }
    free(a);
    free(b);
    return both ? diff / (sum > 0 ? sum : 1) : INFINITY;
}

/* Is the graph's error at this precision e or more by rounding alone? */
static bool is_as_precise(const nnc_graph *g, uint64_t seed, nnc_precision precision, double e)
{
    const double unit = precision == NNC_PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    double sum = 0;
    for (uint64_t i = 1; isfinite(e) && i <= ROUNDINGS; i++)
        sum += error_of(
            g, g, seed, &(nnc_rounding){.seed = i, .operand_unit = unit, .result_unit = unit});
    return isfinite(e) && e <= FACTOR * sum / ROUNDINGS;
}

static int contractions_of_f32(const nnc_graph *g)
{
    int n = 0;
    nnc_arena a;
    nnc_arena_init(&a, 0);
    bool *fixed = nnc_static_values(g, &a);
    for (uint32_t i = 0; fixed && i < g->n_node; i++) {
        const nnc_node *k = &g->node[i];
        n += nnc_op_class(k->op) == CL_contract && !fixed[k->out] &&
             nnc_typeof(g, k->out)->dtype == DT_f32;
    }
    nnc_arena_deinit(&a);
    return n;
}

/* Every contraction takes 16 bits, inputs and outputs keep their types, and the error is that of the
 * rounding of about as many operands. */
static int check_precision(
    uint64_t seed, nnc_precision precision, const nnc_target *t, double bound)
{
    gen_options go = {.seed = seed,
        .nodes = 24,
        .classes = 1u << CL_contract | 1u << CL_ewise | 1u << CL_ecomp | 1u << CL_move |
                   1u << CL_window | 1u << CL_comp};
    nnc_graph *g = gen_graph(&go, test_sink), *h = g ? nnc_graph_clone(g, test_sink) : NULL;
    static const char *const only[] = {"precision"};
    int n = g ? contractions_of_f32(g) : 0;
    for (int whole = 0; g && h && whole < 2; whole++) {
        nnc_pass_options o = {.level = 2,
            .target = t,
            .policy.precision = precision,
            .only = only,
            .n_only = whole ? 0 : 1};
        nnc_cost before = nnc_graph_cost(h);
        nnc_remarks r;
        nnc_remarks_init(&r);
        CHECK_OK(nnc_passes_run(&h, &o, &r, test_sink));
        check_accounts(&r, before, nnc_graph_cost(h));
        CHECK_INT(contractions_of_f32(h), 0);
        for (uint32_t i = 0; i < g->n_output; i++)
            if (!nnc_type_equal(nnc_typeof(g, g->output[i]), nnc_typeof(h, h->output[i])))
                test_fail(__FILE__, __LINE__, "seed %llu: output %u has another type",
                    (unsigned long long)seed, i);
        double e = error_of(g, h, seed, NULL);
        if (!(e <= bound) && !is_as_precise(g, seed, precision, e))
            test_fail(__FILE__, __LINE__, "seed %llu, %s, %s: nmse %g", (unsigned long long)seed,
                nnc_precision_name(precision), whole ? "and -O2" : "alone", e);
        nnc_remarks_deinit(&r);
    }
    nnc_graph_destroy(g);
    nnc_graph_destroy(h);
    return n;
}

TEST(precision)
{
    nnc_target t[2] = {help_target()};
    CHECK_OK(nnc_target_cuda(&t[1], "cuda:sm_90", test_sink));
    int n = 0;
    for (int k = 0; k < test_draws(120); k++) {
        uint64_t seed = test_seed + 30000 + (uint64_t)k;
        n += check_precision(seed, NNC_PRECISION_f16, &t[k & 1], 1e-4);
        n += check_precision(seed, NNC_PRECISION_bf16, &t[k & 1], 64e-4);
    }
    CHECK_USUAL(n > test_draws(100));
    nnc_target_deinit(&t[1]);
}

typedef struct level_case {
    uint64_t seed;
    int level;
    const nnc_target *t;
    double tolerance;
} level_case;

/* Runs a level's passes on a copy of g: accounts, numbers and launches are what they say. */
static void level_holds(const nnc_graph *g, const void *ctx)
{
    const level_case *c = ctx;
    nnc_graph *h = nnc_graph_clone(g, test_sink);
    nnc_remarks r;
    nnc_remarks_init(&r);
    nnc_status s = h ? run_passes(&h, c->level, NULL, 0, c->t, &r) : NNC_E_NOMEM;
    if (s == NNC_OK) {
        check_accounts(&r, nnc_graph_cost(g), nnc_graph_cost(h));
        compare(g, h, c->seed, c->tolerance);
        check_launches(&r, c->seed);
    } else {
        test_fail(__FILE__, __LINE__, "seed %llu, -O%d: %s", (unsigned long long)c->seed, c->level,
            nnc_status_name(s));
    }
    nnc_remarks_deinit(&r);
    nnc_graph_destroy(h);
}

/* Takes g. */
static void check_level(
    nnc_graph *g, uint64_t seed, int level, const nnc_target *t, double tolerance)
{
    gen_check(g, level_holds, &(level_case){seed, level, t, tolerance});
}

/* -O1..-O3 on generated graphs: same results, exact accounts; a second run of each pass changes
 * nothing. */
TEST(generated)
{
    nnc_target t[2] = {help_target(), help_kernels()};
    for (int k = 0; k < test_draws(300); k++) {
        uint64_t seed = test_seed + (uint64_t)k;
        check_level(random_graph(seed, 6 + k % 40, k % 3 == 0), seed, 1 + k % 3, &t[k / 3 % 2],
            k % 3 == 0 ? 2e-2 : 1e-6);
    }
}

/* The same with ops that run in order along an axis. */
TEST(in_order)
{
    nnc_target t[2] = {help_target(), help_kernels()};
    for (int k = 0; k < test_draws(100); k++) {
        uint64_t seed = test_seed + 70000 + (uint64_t)k;
        gen_options o = {.seed = seed, .nodes = 6 + k % 40, .classes = ~0u};
        if (k % 3 == 0)
            o.dtypes = 1u << DT_f32 | 1u << DT_i32 | 1u << DT_f16 | 1u << DT_u8;
        check_level(
            gen_graph(&o, test_sink), seed, 1 + k % 3, &t[k / 3 % 2], k % 3 == 0 ? 2e-2 : 1e-6);
    }
}

/* The same on graphs of things that nobody writes by intent; GPUs too, and 16 bits. */
TEST(quirks)
{
    nnc_target t[4] = {help_target(), help_kernels()};
    CHECK_OK(nnc_target_cuda(&t[2], "cuda:sm_90", test_sink));
    CHECK_OK(nnc_target_cuda(&t[3], "cuda:sm_61", test_sink));
    for (int k = 0; k < test_draws(400); k++) {
        uint64_t seed = test_seed + 40000 + (uint64_t)k;
        gen_options o = {.seed = seed, .nodes = 6 + k % 40, .quirks = true};
        if (k % 4 == 0)
            o.dtypes = 1u << DT_f32 | 1u << DT_i32 | 1u << DT_f16 | 1u << DT_u8 | 1u << DT_f64;
        check_level(gen_graph(&o, test_sink), seed, k % 7 == 0 ? 1 : 2 + k % 2, &t[k / 2 % 4],
            k % 4 == 0 ? 2e-2 : 1e-6);
    }
    nnc_target_deinit(&t[2]);
    nnc_target_deinit(&t[3]);
}

/* A convolution of three rows whose dimensions of one element are in another order: as a product it would have another type. */
TEST(few_rows_in_another_order)
{
    static const char text[] =
        "graph @t {\n%x = input : f32[3,6,1,1,1]{2,4,3,0,1}\n%w = param : f32[6,6,1,1,1] = "
        "gen(\"w\", "
        "seed=1, scale=1, shift=0)\n%y = conv %x, %w : f32[3,6,1,1,1]{2,4,3,0,1}\n"
        "%z = tanh %y : f32[3,6,1,1,1]{2,4,3,0,1}\nreturn %z }";
    nnc_target t;
    nnc_scan scan;
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    nnc_scan_init(&scan, "t", text, strlen(text));
    check_level(nnc_graph_parse(&scan, test_sink), 1, 3, &t, 1e-6);
    nnc_target_deinit(&t);
}

/* -O1 changes no bit, on any op on anything (NaN, infinities, wrapping integers). The floats are f64: the reference rounds
 * others at casts only. */
TEST(level_1_is_exact)
{
    nnc_target t = help_target();
    for (int k = 0; k < test_draws(200); k++) {
        gen_options o = {.seed = test_seed + 5000 + (uint64_t)k,
            .nodes = 30,
            .wild = true,
            .quirks = k % 4 > 1,
            .dtypes =
                k % 2 ? 1u << DT_f64 : 1u << DT_i8 | 1u << DT_u32 | 1u << DT_i64 | 1u << DT_bool};
        check_level(gen_graph(&o, test_sink), o.seed, 1, &t, 0);
    }
}

/* Passes that need a described machine decline without one, and the others run. */
TEST(no_target)
{
    int declined = 0;
    gen_options o = {.seed = test_seed, .nodes = 20, .quirks = true};
    nnc_graph *g = gen_graph(&o, test_sink), *h = g ? nnc_graph_clone(g, test_sink) : NULL;
    nnc_remarks r;
    nnc_remarks_init(&r);
    CHECK(h && run_passes(&h, 2, NULL, 0, NULL, &r) == NNC_OK);
    for (size_t i = 0; i < r.n; i++)
        declined += !r.at[i].applied && strstr(r.at[i].reason, "no target") != NULL;
    CHECK(declined >= 7);
    compare(g, h, test_seed, 1e-6);
    nnc_remarks_deinit(&r);
    nnc_graph_destroy(g);
    nnc_graph_destroy(h);
}

/* The sum of `sums` concats, each of n inputs, and of an input. */
static nnc_graph *many_inputs(int sums, int n, int64_t len)
{
    nnc_graph *g = nnc_graph_create("sum", test_sink);
    const nnc_type each = nnc_type_make(DT_f32, 1, (int64_t[]){len}),
                   all = nnc_type_make(DT_f32, 1, (int64_t[]){n * len});
    nnc_ref *in = calloc((size_t)n, sizeof *in), y = nnc_input(g, "x", &all);
    for (int k = 0; k < sums; k++) {
        for (int i = 0; i < n; i++)
            in[i] = nnc_input(g, "x", &each);
        y = nnc_build2(g, OP_add, y, n > 1 ? nnc_concat(g, n, in, 0) : in[0]);
    }
    nnc_output(g, y, "y");
    free(in);
    return g;
}

/* Operands and results of the node that has most. */
static int widest(const nnc_graph *g)
{
    int most = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const int n = g->node[i].n_in + (int)g->node[i].n_out;
        most = n > most ? n : most;
    }
    return most;
}

/* y = c_i ? x_i : y, n times, each stored. */
static nnc_graph *many_selects(int n)
{
    nnc_graph *g = nnc_graph_create("selects", test_sink);
    const nnc_type x = nnc_type_make(DT_f32, 1, (int64_t[]){64}),
                   c = nnc_type_make(DT_bool, 1, (int64_t[]){64});
    nnc_ref y = nnc_input(g, "x", &x);
    for (int i = 0; i < n; i++) {
        y = nnc_build3(g, OP_select, nnc_input(g, "c", &c), nnc_input(g, "x", &x), y);
        nnc_output(g, y, NULL);
    }
    return g;
}

/* y += x_i, and y - mean(y) stored, n times. */
static nnc_graph *many_means(int n)
{
    nnc_graph *g = nnc_graph_create("means", test_sink);
    const nnc_type x = nnc_type_make(DT_f32, 2, (int64_t[]){8, 64});
    nnc_ref y = nnc_input(g, "x", &x);
    for (int i = 0; i < n; i++) {
        y = nnc_build2(g, OP_add, y, nnc_input(g, "x", &x));
        nnc_ref mean = nnc_reduce(g, OP_reduce_mean, y, 1, (int64_t[]){1}, true);
        nnc_output(g, nnc_build2(g, OP_sub, y, mean), NULL);
    }
    return g;
}

/* Price decides how many operands and results a kernel has, and on a GPU the room for its parameters. */
TEST(many_operands)
{
    static const struct {
        int sums, n; /* 0: selects, -1: means */
        int least[2], most[2]; /* operands and results of the widest kernel, on a CPU and a GPU */
    } at[] = {{100, 1, {102, 102}, {102, 102}}, {1, 100, {2, 101}, {102, 101}},
        {1, 440, {2, 441}, {442, 441}}, {1, 500, {2, 2}, {502, 448}},
        {0, 190, {570, 300}, {572, 448}}, {-1, 60, {2, 33}, {122, 64}}};
    nnc_target t[2] = {help_kernels()};
    CHECK_OK(nnc_target_cuda(&t[1], "cuda:sm_90", test_sink));
    for (size_t i = 0; i < 2 * NNC_COUNT(at); i++) {
        const size_t k = i / 2, gpu = i % 2;
        nnc_graph *g = at[k].sums > 0 ? many_inputs(at[k].sums, at[k].n, 64)
                       : at[k].sums   ? many_means(at[k].n)
                                      : many_selects(at[k].n),
                  *h = nnc_graph_clone(g, test_sink);
        CHECK_OK(run_passes(&h, 2, NULL, 0, &t[gpu], NULL));
        compare(g, h, test_seed, 1e-6);
        const int n = widest(h);
        if (n < at[k].least[gpu] || n > at[k].most[gpu])
            test_fail(__FILE__, __LINE__, "%s, %d times %d: a kernel of %d operands and results",
                t[gpu].name, at[k].sums, at[k].n, n);
        nnc_graph_destroy(g);
        nnc_graph_destroy(h);
    }
    nnc_target_deinit(&t[1]);
}

/* A kernel has 192 ops at most. */
TEST(many_members)
{
    nnc_target t = help_target();
    nnc_graph *g = nnc_graph_create("chain", test_sink);
    int64_t dim[1] = {64};
    nnc_type type = nnc_type_make(DT_f32, 1, dim);
    nnc_ref y = nnc_input(g, "x", &type);
    for (int i = 0; i < 300; i++)
        y = nnc_build1(g, i % 2 ? OP_sin : OP_cos, y);
    nnc_output(g, y, "y");
    CHECK_OK(run_passes(&g, 2, NULL, 0, &t, NULL));
    int fused = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        fused += g->node[i].op == OP_fused;
    CHECK_INT(fused, 2);
    nnc_graph_destroy(g);
}

/* Splits x into n pieces of 1 to 3 elements (of 2 where `even`), doubles some of them, and joins them again. */
static nnc_graph *many_pieces(int n, bool even, nnc_dtype dtype)
{
    nnc_graph *g = nnc_graph_create("pieces", test_sink);
    nnc_ref *part = calloc((size_t)n, sizeof *part);
    int64_t *size = calloc((size_t)n, sizeof *size), dim[2] = {3, 0};
    for (int i = 0; i < n; i++)
        dim[1] += size[i] = even ? 2 : 1 + i % 3;
    nnc_type type = nnc_type_make(dtype, 2, dim);
    nnc_ref x = nnc_input(g, "x", &type);
    nnc_attr attr[2] = {nnc_ai(AT_axis, 1), nnc_av(AT_sizes, n, size)};
    nnc_ref s = nnc_build(g, OP_split, 1, &x, 2, attr);
    for (int i = 0; i < n; i++) {
        nnc_ref v = s + (nnc_ref)((i * 7) % n);
        part[i] = i % 3 ? v : nnc_build2(g, OP_add, v, v);
    }
    nnc_output(g, nnc_build(g, OP_concat, n, part, 1, attr), "y");
    nnc_output(g, s + 1, "piece");
    free(part);
    free(size);
    return g;
}

/* Neither a concat nor a split may be too wide for a command, at any level. */
TEST(many_pieces)
{
    static const int count[] = {12, 13, 24, 60, 61, 64, 145, 400, 2000};
    static const nnc_dtype dtype[] = {DT_f32, DT_i8, DT_f16, DT_i64};
    nnc_target t = help_target();
    for (size_t k = 0; k < 4 * NNC_COUNT(count); k++) {
        nnc_graph *g = many_pieces(count[k / 4], k & 1, dtype[k % NNC_COUNT(dtype)]);
        nnc_graph *h = nnc_graph_clone(g, test_sink);
        CHECK_OK(run_passes(&h, k & 2 ? 2 : 0, NULL, 0, &t, NULL));
        compare(g, h, test_seed, 0);
        for (uint32_t i = 0; i < h->n_node; i++) {
            CHECK(h->node[i].n_in + h->node[i].n_out <= nnc_kernel_most_buffers(&t));
            /* results of different sizes have an index each, and a kernel has few of those */
            CHECK(k & 1 || h->node[i].n_out <= NNC_KERNEL_CONCAT);
        }
        nnc_graph_destroy(g);
        nnc_graph_destroy(h);
    }
}

/* Many small elementwise results side by side: kernels of several of them, not one for each and a wide one. */
TEST(concats_of_many_computed_pieces)
{
    const int64_t numel = 256;
    const nnc_attr along = nnc_ai(AT_axis, 0);
    const nnc_type of = nnc_type_make(DT_f32, 1, &numel);
    nnc_target t;
    nnc_ref piece[62];
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    nnc_graph *g = nnc_graph_create("statistics", test_sink);
    for (int i = 0; i < (int)NNC_COUNT(piece); i++)
        piece[i] = nnc_build2(g, OP_mul, nnc_input(g, NULL, &of), nnc_scalar(g, DT_f32, 0.1));
    nnc_output(g, nnc_build(g, OP_concat, NNC_COUNT(piece), piece, 1, &along), "all");
    CHECK_OK(run_passes(&g, 2, NULL, 0, &t, NULL));
    CHECK(nnc_graph_cost(g).launches <= 7);
    nnc_graph_destroy(g);
    nnc_target_deinit(&t);
}

/* A concat of an earlier concat's operands and more reads that concat; not if an operand or the axis differs, or the device. */
TEST(concats_of_concats)
{
    enum { MANY = 70 };
    static const struct {
        int n, axis, first, device;
        bool reads; /* the concat of 65 operands */
    } later[] = {{66, 0, 0, -1, true}, {MANY, 0, 0, -1, true}, {66, 0, 1, -1, false},
        {66, 1, 0, -1, false}, {66, 0, 0, 1, false}};
    static const char *const only[] = {"split_wide"};
    for (size_t k = 0; k < NNC_COUNT(later); k++) {
        nnc_target t = help_target();
        nnc_graph *g = nnc_graph_create("dense", test_sink);
        int64_t dim[2] = {2, 2};
        nnc_type type = nnc_type_make(DT_f32, 2, dim);
        nnc_ref x = nnc_input(g, "x", &type), part[MANY];
        for (int i = 0; i < MANY; i++)
            part[i] = x = nnc_build1(g, OP_sin, x);
        nnc_attr axis = nnc_ai(AT_axis, 0);
        nnc_output(g, nnc_build(g, OP_concat, 65, part, 1, &axis), "first");
        part[0] = part[later[k].first];
        axis = nnc_ai(AT_axis, later[k].axis);
        nnc_ref y = nnc_build(g, OP_concat, later[k].n, part, 1, &axis);
        nnc_def(g, y)->device = (int16_t)later[k].device;
        nnc_output(g, y, "second");
        nnc_graph *h = nnc_graph_clone(g, test_sink);
        nnc_remarks r;
        nnc_remarks_init(&r);
        CHECK_OK(run_passes(&h, 2, only, 1, &t, &r));
        compare(g, h, test_seed, 0);
        int reads = 0;
        for (size_t i = 0; i < r.n; i++)
            reads += !strcmp(r.at[i].rule, "concat of a concat");
        CHECK_INT(reads, later[k].reads);
        if (later[k].reads)
            CHECK(nnc_def(h, h->output[1])->in[0] == h->output[0]);
        nnc_remarks_deinit(&r);
        nnc_graph_destroy(g);
        nnc_graph_destroy(h);
    }
}

/* The output channels of a transposed convolution's weights are dimension 1, in each group. */
TEST(batchnorm_behind_transposed_convolutions)
{
    static const char *const only[] = {"fold_batchnorm"};
    for (int k = 0; k < 4; k++) {
        int groups = k & 1 ? 3 : 1;
        const char *type = k & 2 ? "bf16" : "f32";
        nnc_text t = {0};
        nnc_printf(&t,
            "graph @t {\n%%x = input : %s[2,6,5,4]\n"
            "%%w = param : %s[6,4,3,2] = gen(\"w\", seed=1, scale=0.3)\n"
            "%%b = param : %s[%d] = gen(\"b\", seed=1, scale=0.3)\n"
            "%%p = param : %s[%d] = gen(\"p\", seed=1, scale=0.5, shift=1)\n"
            "%%c = conv_transpose %%x, %%w, %%b {strides=[2,1], groups=%d}\n"
            "%%y = batchnorm %%c, %%p, %%b, %%b, %%p\nreturn %%y }",
            type, type, type, 4 * groups, type, 4 * groups, groups);
        nnc_graph *g = help_parse("t", nnc_text_str(&t), t.n);
        nnc_graph *h = nnc_graph_clone(g, test_sink);
        nnc_target target = help_target();
        CHECK_OK(run_passes(&h, 2, only, 1, &target, NULL));
        CHECK_INT(nnc_def(h, h->output[0])->op, OP_conv_transpose);
        compare(g, h, test_seed, k & 2 ? 2e-2 : 1e-6);
        nnc_graph_destroy(g);
        nnc_graph_destroy(h);
        nnc_text_deinit(&t);
    }
}

/* Pieces that are outputs are written in any case: kernels make many of them at once, though each has a reader. */
TEST(pieces_that_are_outputs)
{
    nnc_target t = help_target();
    nnc_graph *g = nnc_graph_create("pieces", test_sink);
    int64_t size[100], dim[1] = {200};
    nnc_type type = nnc_type_make(DT_f32, 1, dim);
    nnc_ref x = nnc_input(g, "x", &type);
    for (size_t i = 0; i < NNC_COUNT(size); i++)
        size[i] = 2;
    nnc_attr attr[2] = {nnc_ai(AT_axis, 0), nnc_av(AT_sizes, (int)NNC_COUNT(size), size)};
    nnc_ref s = nnc_build(g, OP_split, 1, &x, 2, attr);
    for (uint32_t i = 0; i < NNC_COUNT(size); i++) {
        nnc_output(g, s + i, NULL);
        nnc_output(g, nnc_build1(g, OP_exp, s + i), NULL);
    }
    CHECK_OK(run_passes(&g, 2, NULL, 0, &t, NULL));
    CHECK(nnc_graph_cost(g).launches < (int64_t)NNC_COUNT(size));
    nnc_graph_destroy(g);
}

static bool names_one_of(const nnc_remark *r, const char *origin)
{
    for (int i = 0; i < r->n_layers; i++) {
        size_t n = strlen(r->layer[i]);
        for (const char *p = origin; (p = strstr(p, r->layer[i])) != NULL; p++)
            if ((p == origin || p[-1] == '+') && (p[n] == 0 || p[n] == '+'))
                return true;
    }
    return false;
}

static bool has_verdict(const nnc_remarks *r, const char *a, const char *b)
{
    for (size_t i = 0; i < r->n; i++)
        if (!r->at[i].applied && !strncmp(r->at[i].pass, "fuse", 4) && names_one_of(&r->at[i], a) &&
            names_one_of(&r->at[i], b))
            return true;
    return false;
}

/* Every edge that is left between two commands has a verdict that names layers at both ends. */
static void check_edges(const nnc_graph *g, const nnc_remarks *r, uint64_t seed)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    bool *fixed = nnc_static_values(g, &a);
    for (uint32_t i = 0; fixed && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (fixed[n->out] || nnc_op_class(n->op) == CL_leaf || nnc_is_view(g, n) || !n->origin)
            continue;
        for (int k = 0; k < n->n_in; k++) {
            const nnc_node *d = nnc_def(g, n->in[k]);
            while (nnc_is_view(g, d))
                d = nnc_def(g, d->in[0]);
            if (nnc_op_class(d->op) == CL_leaf || fixed[d->out] || !d->origin)
                continue;
            if (!has_verdict(r, d->origin, n->origin))
                test_fail(__FILE__, __LINE__, "seed %llu: no verdict on %s -> %s",
                    (unsigned long long)seed, d->origin, n->origin);
        }
    }
    nnc_arena_deinit(&a);
}

TEST(every_edge_has_a_verdict)
{
    nnc_target t = help_target();
    for (int k = 0; k < test_draws(100); k++) {
        gen_options o = {
            .seed = test_seed + 9000 + (uint64_t)k, .nodes = 40, .classes = k % 4 == 0 ? ~0u : 0};
        nnc_graph *g = gen_graph(&o, test_sink);
        nnc_remarks r;
        nnc_remarks_init(&r);
        /* A path for each node, where the generator gives none. */
        for (uint32_t i = 0; g && i < g->n_node; i++)
            g->node[i].origin = nnc_arena_printf(&g->arena, "/n%u", i);
        if (g) {
            CHECK_OK(run_passes(&g, 2, NULL, 0, &t, &r));
            check_edges(g, &r, test_seed + 9000 + (uint64_t)k);
        }
        nnc_remarks_deinit(&r);
        nnc_graph_destroy(g);
    }
}

static void check_idempotent(uint64_t seed, const char *name, const nnc_target *t)
{
    nnc_graph *g = random_graph(seed, 25, false);
    nnc_text a = {0}, b = {0};
    nnc_remarks r;
    nnc_remarks_init(&r);
    if (g) {
        CHECK_OK(run_passes(&g, 2, &name, 1, t, NULL));
        print_text(&a, g);
        CHECK_OK(run_passes(&g, 2, &name, 1, t, &r));
        print_text(&b, g);
        int applied = 0;
        for (size_t i = 0; i < r.n; i++)
            applied += r.at[i].applied;
        if (strcmp(nnc_text_str(&a), nnc_text_str(&b)) || applied)
            test_fail(__FILE__, __LINE__, "%s is not idempotent (seed %llu, %d applied)", name,
                (unsigned long long)seed, applied);
    }
    nnc_remarks_deinit(&r);
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
    nnc_graph_destroy(g);
}

TEST(idempotent)
{
    nnc_target t = help_target();
    check_idempotent(78132, "fuse", &t); /* parts of a kernel taken apart that are flat */
    check_idempotent(8676363, "fuse", &t); /* parts that are not neighbors in the kernel's order */
    for (int k = 0; k < test_draws(60); k++)
        for (int id = 0; id < nnc_pass_count; id++)
            check_idempotent(test_seed + 1000 + (uint64_t)k, nnc_pass_table[id].name, &t);
}

static int remarks_with(const nnc_remarks *r, bool applied, const char *words)
{
    int n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += r->at[i].applied == applied && strstr(r->at[i].reason, words);
    return n;
}

/* A batch norm of a batch. On a GPU its sums over innermost channels are divided over blocks, which no kernel can do that goes on to
 * normalise. One block can have rows that fill the GPU whole. */
TEST(sums_that_fill_a_gpu)
{
    static const struct {
        const char *x, *axes;
        bool apart;
    } cases[] = {{"[32,64,56,56]{0,2,3,1}", "[0,2,3]", true}, {"[32,1024,56,56]", "[2,3]", false},
        {"[4096,1024]", "[1]", false}, {"[65536,512]", "[0]", true}, {"[64,64]", "[0]", false}};
    nnc_target t;
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    const char *pass = "fuse";
    const nnc_pass_options o = {.level = 2, .target = &t, .only = &pass, .n_only = 1};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_text text = {0};
        nnc_remarks r;
        nnc_remarks_init(&r);
        nnc_printf(&text,
            "graph @g { %%x = input : f32%s\n%%m = reduce_mean %%x {axes=%s, keepdims=1} loc "
            "\"/n\"\n"
            "%%d = sub %%x, %%m loc \"/n\"\n%%q = mul %%d, %%d loc \"/n\"\n"
            "%%v = reduce_mean %%q {axes=%s, keepdims=1} loc \"/n\"\n%%s = rsqrt %%v loc \"/n\"\n"
            "%%y = mul %%d, %%s loc \"/n\"\nreturn %%y }\n",
            cases[i].x, cases[i].axes, cases[i].axes);
        nnc_graph *g = help_parse("sums", nnc_text_str(&text), text.n);
        CHECK(g != NULL);
        if (g)
            CHECK_OK(nnc_passes_run(&g, &o, &r, test_sink));
        if ((remarks_with(&r, false, "one kernel is expected to take") > 0) != cases[i].apart)
            test_fail(__FILE__, __LINE__, "sums over %s of %s: in one kernel or not", cases[i].axes,
                cases[i].x);
        nnc_remarks_deinit(&r);
        nnc_text_deinit(&text);
        nnc_graph_destroy(g);
    }
    nnc_target_deinit(&t);
}

static void fail_every_allocation(const nnc_graph *g, const nnc_pass_options *o)
{
    bool done = false;
    for (int64_t n = 1; g && !done && n < 200000; n += n < 200 ? 1 : n / 37) {
        nnc_graph *h = nnc_graph_clone(g, test_sink);
        nnc_remarks r;
        nnc_remarks_init(&r);
        nnc_fail_alloc_after(n);
        nnc_status s = nnc_passes_run(&h, o, &r, test_sink);
        nnc_fail_alloc_after(0);
        if (s == NNC_OK)
            done = true;
        else if (s != NNC_E_NOMEM)
            test_fail(__FILE__, __LINE__, "allocation %lld: %s", (long long)n, nnc_status_name(s));
        nnc_remarks_deinit(&r);
        nnc_graph_destroy(h);
        if (s != NNC_OK && s != NNC_E_NOMEM)
            break;
        nnc_sink_clear(test_sink);
    }
    CHECK(done);
}

TEST(out_of_memory)
{
    nnc_target t = help_target();
    nnc_graph *g = random_graph(test_seed + 5, 14, false);
    fail_every_allocation(g, &(nnc_pass_options){.level = 2, .target = &t});
    nnc_graph_destroy(g);
}

/* The passes that 16 bits and GPUs add. */
TEST(out_of_memory_in_16_bits)
{
    static const char text[] =
        "graph @g {\n%x = input : f32[4,3,16,16]\n"
        "%w = param : f32[8,3,7,7] = gen(\"w\", seed=0, scale=0.1, shift=0)\n"
        "%v = param : f32[8,4,2,2] = gen(\"v\", seed=0, scale=0.1, shift=0)\n"
        "%b = param : f32[4] = gen(\"b\", seed=0, scale=0.1, shift=0)\n"
        "%h = constant : f32[] = [0.5]\n%c = conv %x, %w {pads=[3,3,3,3]} loc \"/c\"\n"
        "%m = mul %c, %h loc \"/m\"\n%t = conv_transpose %m, %v, %b loc \"/t\"\n"
        "%e = exp %m loc \"/e\"\nreturn %t, %e }\n";
    nnc_target t;
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    nnc_graph *g = help_parse("text", text, sizeof text - 1);
    CHECK(g != NULL);
    fail_every_allocation(
        g, &(nnc_pass_options){.level = 2, .target = &t, .policy.precision = NNC_PRECISION_bf16});
    nnc_graph_destroy(g);
    nnc_target_deinit(&t);
}

TEST(unknown_pass)
{
    const char *name = "fuse_epilog";
    nnc_graph *g = nnc_graph_create("g", test_sink);
    CHECK_INT(run_passes(&g, 2, &name, 1, NULL, NULL), NNC_E_USAGE);
    CHECK_DIAG("did you mean `fuse_epilogue`?");
    nnc_graph_destroy(g);
}

static nnc_ref convolution(nnc_graph *g, nnc_ref x, int64_t out, int64_t k, int64_t stride)
{
    const nnc_type *t = nnc_typeof(g, x);
    int64_t pad = k / 2, dim[4] = {out, t->dim[1], k, k}, s[2] = {stride, stride},
            p[4] = {pad, pad, pad, pad};
    nnc_type wt = nnc_type_make(DT_f32, 4, dim), bt = nnc_type_make(DT_f32, 1, &out);
    nnc_weight w = {.kind = NNC_W_gen, .name = "w", .scale = 0.1f},
               b = {.kind = NNC_W_gen, .name = "b", .scale = 0.1f};
    nnc_ref in[3] = {x, nnc_param(g, &wt, &w), nnc_param(g, &bt, &b)};
    nnc_attr a[2] = {nnc_av(AT_strides, 2, s), nnc_av(AT_pads, 4, p)};
    return nnc_build(g, OP_conv, 3, in, 2, a);
}

static nnc_ref batchnorm(nnc_graph *g, nnc_ref x)
{
    int64_t c = nnc_typeof(g, x)->dim[1];
    nnc_type t = nnc_type_make(DT_f32, 1, &c);
    nnc_weight w = {.kind = NNC_W_gen, .name = "bn", .scale = 0.1f, .shift = 1};
    nnc_ref in[5] = {x};
    for (int i = 1; i < 5; i++)
        in[i] = nnc_param(g, &t, &w);
    return nnc_build(g, OP_batchnorm, 5, in, 0, NULL);
}

/* ResNet's middle: blocks of conv-bn-relu, conv-bn, add, relu; with `names` each layer its path. */
static nnc_graph *resnet(int blocks, int64_t channels, int64_t size)
{
    nnc_graph *g = nnc_graph_create("resnet", test_sink);
    int64_t dim[4] = {1, channels, size, size};
    nnc_type t = nnc_type_make(DT_f32, 4, dim);
    nnc_ref x = nnc_input(g, "x", &t);
    char path[64];
    for (int i = 0; i < blocks; i++) {
        nnc_ref y = x;
        for (int j = 0; j < 2; j++) {
            snprintf(path, sizeof path, "/blocks/%d/conv%d", i, j);
            g->origin = path;
            y = convolution(g, y, channels, 3, 1);
            snprintf(path, sizeof path, "/blocks/%d/bn%d", i, j);
            y = batchnorm(g, y);
            snprintf(path, sizeof path, "/blocks/%d/relu%d", i, j);
            y = j ? y : nnc_build1(g, OP_relu, y);
        }
        snprintf(path, sizeof path, "/blocks/%d/add", i);
        y = nnc_build2(g, OP_add, y, x);
        snprintf(path, sizeof path, "/blocks/%d/out", i);
        x = nnc_build1(g, OP_relu, y);
    }
    g->origin = NULL;
    nnc_output(g, x, "y");
    return g;
}

TEST(resnet_blocks)
{
    nnc_target t = help_target();
    nnc_graph *g = resnet(3, 8, 12), *h = nnc_graph_clone(g, test_sink);
    nnc_remarks r;
    nnc_remarks_init(&r);
    CHECK_OK(run_passes(&h, 2, NULL, 0, &t, &r));
    check_accounts(&r, nnc_graph_cost(g), nnc_graph_cost(h));
    compare(g, h, test_seed, 1e-6);
    nnc_remarks_deinit(&r);
    nnc_graph_destroy(g);
    nnc_graph_destroy(h);
}

static void report_time(void *ctx, const char *name, const nnc_graph *g, int changed, int64_t ns)
{
    (void)ctx;
    (void)g;
    if (ns > 500000)
        printf("    %-15s %6.2f ms, %d changes\n", name, (double)ns / 1e6, changed);
}

static void time_graph(const char *what, nnc_graph *g)
{
    nnc_target t = help_target();
    nnc_remarks r;
    nnc_remarks_init(&r);
    nnc_pass_options o = {.level = 2, .target = &t, .after = report_time};
    uint32_t n = g->n_node;
    CHECK_INT(g->status, NNC_OK);
    int64_t t0 = nnc_now_ns();
    CHECK_OK(nnc_passes_run(&g, &o, &r, test_sink));
    printf("  %s: %u nodes, all passes %.2f ms, %zu remarks\n", what, n,
        (double)(nnc_now_ns() - t0) / 1e6, r.n);
    nnc_remarks_deinit(&r);
    nnc_graph_destroy(g);
}

/* Printed, not asserted: passes are to stay near-linear. */
TEST(timing)
{
    time_graph("ResNet-34's size", resnet(16, 64, 56));
    time_graph("large ResNet", resnet(300, 64, 56));
    nnc_graph *g = nnc_graph_create("chain", test_sink);
    int64_t dim[2] = {512, 512};
    nnc_type t = nnc_type_make(DT_f32, 2, dim);
    nnc_ref x = nnc_input(g, "x", &t), y = x;
    for (int i = 0; i < 5000; i++)
        y = i % 3 ? nnc_build1(g, OP_sin, y) : nnc_build2(g, OP_add, y, x);
    nnc_output(g, y, "y");
    time_graph("elementwise chain", g);
    g = nnc_graph_create("wide", test_sink);
    for (int i = 0; i < 3000;
         i++) { /* each question about one branch must not look at the others */
        x = nnc_build1(g, OP_tanh, nnc_input(g, "x", &t));
        nnc_attr axis = nnc_ai(AT_axis, 1);
        nnc_output(g, nnc_build(g, OP_softmax, 1, &x, 1, &axis), NULL);
    }
    time_graph("separate branches", g);
}
