/* tests/codegen/facts.c -- answers on paper: value ranges, merged axes, schedules, what pooling
 * and padding cost. */
#include "help.h"

#include <math.h>

typedef struct lowered {
    nnc_arena a;
    nnc_graph *g, *f;
    nnc_kernel *k;
} lowered;

static lowered lower_for(const char *text, const nnc_target *t, nnc_math math)
{
    lowered l = {0};
    nnc_arena_init(&l.a, 0);
    l.g = ck_parse(text);
    l.f = l.g ? ck_fuse(l.g) : NULL;
    for (uint32_t i = 0; l.f && i < l.f->n_node; i++)
        if (l.f->node[i].op == OP_fused)
            l.k = nnc_lower(l.f, &l.f->node[i], t, math, &l.a, test_sink);
    CHECK(l.k != NULL);
    if (!l.k)
        nnc_sink_print(test_sink, stderr);
    return l;
}

static lowered lower(const char *text)
{
    return lower_for(text, &ck_target, MATH_ulp2);
}

/* For vectors of so many bits and a number of threads: "graph @t {" and the text made of the format. */
static lowered lower_at(int bits, int threads, const char *format, ...) NNC_PRINTF(3, 4);
static lowered lower_at(int bits, int threads, const char *format, ...)
{
    nnc_target t = ck_target;
    NNC_LOCAL(nnc_text) text = {0};
    va_list ap;
    nnc_puts(&text, "graph @t {\n");
    va_start(ap, format);
    nnc_vprintf(&text, format, ap);
    va_end(ap);
    t.vector_bits = bits;
    t.threads = threads;
    return lower_for(nnc_text_str(&text), &t, MATH_ulp2);
}

/* Functions as they are written. */
static lowered lower_exact(const char *text)
{
    return lower_for(text, &ck_target, MATH_exact);
}

static void end(lowered *l)
{
    nnc_graph_destroy(l->g);
    nnc_graph_destroy(l->f);
    nnc_arena_deinit(&l->a);
}

/* The n-th scalar op `sop`. */
static const nnc_kins *find(const nnc_kernel *k, nnc_sop sop, int n)
{
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_sop && k->ins[i].sop == sop && n-- == 0)
            return &k->ins[i];
    static const nnc_kins none;
    return &none;
}

TEST(nested_sin_needs_no_reduction)
{
    lowered l = lower_exact(
        "graph @t {\n%x = input : f32[4,100]\n%a = sin %x\n%b = sin %a\n%c = sin %b\nreturn %c }");
    if (l.k) {
        CHECK(!(find(l.k, SC_sin, 0)->hint & KH_bounded));
        CHECK(find(l.k, SC_sin, 1)->hint & KH_halfpi);
        CHECK(find(l.k, SC_sin, 2)->hint & KH_halfpi);
        CHECK(find(l.k, SC_sin, 2)->maybe_nan); /* sin of infinity */
        CHECK_NEAR(find(l.k, SC_sin, 1)->hi, 0.8414709848, 1e-5);
        CHECK_INT(l.k->n_axis, 1);
        CHECK_INT(l.k->axis[0].extent, 400);
        CHECK_INT(nnc_sched_width(&l.k->sched), 128);
    }
    end(&l);
}

/* Vectors at once: of one function four, of functions of functions eight. */
TEST(long_chains_run_by_eight_vectors)
{
    static const struct {
        const char *op;
        int depth, width;
    } cases[] = {{"tanh", 1, 32}, {"sin", 2, 64}, {"sin", 16, 64}, {"exp", 2, 64}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_text t = {0};
        nnc_target cpu = ck_target;
        cpu.vector_bits = 256;
        nnc_puts(&t, "graph @t {\n%v0 = input : f32[100000]\n");
        for (int d = 0; d < cases[i].depth; d++)
            nnc_printf(&t, "%%v%d = %s %%v%d\n", d + 1, cases[i].op, d);
        nnc_printf(&t, "return %%v%d }", cases[i].depth);
        lowered l = lower_for(nnc_text_str(&t), &cpu, MATH_ulp2);
        if (l.k)
            CHECK_INT(nnc_sched_width(&l.k->sched), cases[i].width);
        end(&l);
        nnc_text_deinit(&t);
    }
}

/* A chain whose values are all used at its end has more of them than registers: four vectors, without functions one. */
TEST(long_chains_of_many_values_run_by_four_vectors)
{
    for (int functions = 0; functions < 2; functions++) {
        NNC_LOCAL(nnc_text) t = {0};
        nnc_puts(&t, "graph @t {\n%v0 = input : f32[100000]\n");
        for (int d = 0; d < 14; d++)
            nnc_printf(&t, "%%v%d = %s %%v%d\n", d + 1, functions || d % 2 ? "tanh" : "neg", d);
        nnc_puts(&t, "%s0 = add %v14, %v13\n");
        for (int d = 0; d < 12; d++)
            nnc_printf(&t, "%%s%d = %s %%s%d, %%v%d\n", d + 1, d % 2 ? "mul" : "sub", d, 12 - d);
        nnc_puts(&t, "return %s12 }");
        if (!functions)
            for (char *at = t.s; (at = strstr(at, "tanh")); at += 4)
                memcpy(at, "abs ", 4);
        lowered l = lower_exact(nnc_text_str(&t));
        if (l.k)
            CHECK_INT(nnc_sched_width(&l.k->sched), functions ? 64 : 16);
        end(&l);
    }
}

/* A sum of exp(x - max x) is at least 1, so softmax multiplies by its reciprocal; --math=exact divides. */
TEST(softmax_divides_once_a_row)
{
    static const char text[] =
        "graph @t {\n%x = input : f32[40,100]\n%m = reduce_max %x {axes=[1], keepdims=1}\n"
        "%d = sub %x, %m\n%e = exp %d\n%s = reduce_sum %e {axes=[1], keepdims=1}\n"
        "%y = div %e, %s\nreturn %y }";
    lowered l = lower(text), x = lower_exact(text);
    if (l.k && x.k) {
        CHECK_INT(find(l.k, SC_recip, 0)->op, KO_sop);
        CHECK(find(l.k, SC_div, 0)->op != KO_sop);
        CHECK_INT(find(x.k, SC_div, 0)->op, KO_sop);
        CHECK(l.k->note && strstr(l.k->note, "quotient"));
    }
    end(&l);
    end(&x);
}

/* A divisor that may be zero, or is another for every element, stays one. */
TEST(quotients_that_stay)
{
    static const char *const text[] = {"graph @t {\n%x = input : f32[40,100]\n%s = reduce_sum %x "
                                       "{axes=[1], keepdims=1}\n%y = div %x, %s\nreturn %y }",
        "graph @t {\n%x = input : f32[40,100]\n%e = exp %x\n%s = reduce_sum %e {axes=[1], "
        "keepdims=1}\n"
        "%y = div %e, %s\nreturn %y }",
        "graph @t {\n%x = input : f32[40,100]\n%q = clip %x {lo=1, hi=2}\n%y = div %x, %q\nreturn "
        "%y }"};
    for (size_t i = 0; i < NNC_COUNT(text); i++) {
        lowered l = lower(text[i]), f = lower_for(text[i], &ck_target, MATH_fast);
        if (l.k && f.k) {
            CHECK_INT(find(l.k, SC_div, 0)->op, KO_sop);
            CHECK_INT(find(f.k, SC_recip, 0)->op == KO_sop, i == 2);
        }
        end(&l);
        end(&f);
    }
}

/* Short forms where results have 16 bits and no sum of both signs stands between. */
TEST(results_of_16_bits_take_short_forms)
{
    static const struct {
        const char *dtype, *ops;
        bool is_short;
    } cases[] = {{"f16", "%y = silu %x\nreturn %y", true},
        {"bf16", "%y = sigmoid %x\nreturn %y", true}, {"f32", "%y = silu %x\nreturn %y", false},
        {"f16", "%a = tanh %x\n%y = sub %a, %x\nreturn %y", false},
        {"f16", "%a = exp %x\n%b = sigmoid %x\n%y = add %a, %b\nreturn %y", true},
        {"f16", "%a = sigmoid %x\n%b = cast %a {to=f32}\n%y = neg %b\nreturn %y", false},
        {"f16", "%w = cast %x {to=f32}\n%a = sigmoid %w\n%y = neg %a\nreturn %y", false}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_text t = {0};
        int n_short = 0;
        nnc_printf(&t, "graph @t {\n%%x = input : %s[4000]\n%s }", cases[i].dtype, cases[i].ops);
        lowered l = lower(nnc_text_str(&t)), x = lower_exact(nnc_text_str(&t));
        for (int j = 0; l.k && j < l.k->n_ins; j++)
            n_short += (l.k->ins[j].hint & KH_fast) != 0;
        if ((n_short > 0) != cases[i].is_short)
            test_fail(__FILE__, __LINE__, "%d short: %s", n_short, nnc_text_str(&t));
        for (int j = 0; x.k && j < x.k->n_ins; j++)
            CHECK(!(x.k->ins[j].hint & KH_fast));
        end(&l);
        end(&x);
        nnc_text_deinit(&t);
    }
}

/* The policy stands in the kernel: marks, contracted sums, quotients by constants, another name. */
TEST(policies_stand_in_the_kernel)
{
    static const char text[] =
        "graph @t {\n%x = input : f32[4000]\n%c = constant : f32[] = [3]\n%q = div %x, %c\n"
        "%e = exp %q\n%p = mul %e, %x\n%r = sub %p, %q\nreturn %r }";
    lowered l[3] = {lower(text), lower_exact(text), lower_for(text, &ck_target, MATH_fast)};
    if (l[0].k && l[1].k && l[2].k) {
        CHECK_INT(find(l[0].k, SC_exp, 0)->hint & (KH_exact | KH_fast), 0);
        CHECK_INT(find(l[1].k, SC_exp, 0)->hint & (KH_exact | KH_fast), KH_exact);
        CHECK_INT(find(l[2].k, SC_exp, 0)->hint & (KH_exact | KH_fast), KH_fast);
        CHECK_INT(find(l[0].k, SC_div, 0)->op, KO_sop);
        CHECK(find(l[2].k, SC_div, 0)->op != KO_sop);
        CHECK(find(l[0].k, SC_fma, 0)->op != KO_sop);
        CHECK_INT(find(l[2].k, SC_fma, 0)->op, KO_sop);
        CHECK(strcmp(l[0].k->name, l[1].k->name) != 0 && strcmp(l[0].k->name, l[2].k->name) != 0);
        CHECK(l[2].k->note && strstr(l[2].k->note, "--math=fast"));
    }
    for (int i = 0; i < 3; i++)
        end(&l[i]);
}

/* A fast form has an error of up to 2^-15: so close to a bound its range decides nothing. */
TEST(short_forms_reach_further)
{
    static const char text[] =
        "graph @t {\n%x = input : f32[4000]\n%c = constant : f32[] = [1.000005]\n"
        "%s = sigmoid %x\n%d = sub %c, %s\n%r = relu %d\nreturn %r }";
    lowered l = lower(text), f = lower_for(text, &ck_target, MATH_fast);
    if (l.k && f.k) {
        CHECK_INT(ck_count(l.k, KO_sop, SC_max), 0);
        CHECK_INT(ck_count(f.k, KO_sop, SC_max), 1);
    }
    end(&l);
    end(&f);
}

TEST(decided_ops_go)
{
    lowered l = lower("graph @t {\n%x = input : f32[100]\n%q = cosh %x\n%r = relu %q\n%s = abs "
                      "%r\n%t = tanh %s\n"
                      "%c = clip %t {lo=-2, hi=2}\nreturn %c }");
    if (l.k) {
        CHECK_INT(ck_count(l.k, KO_sop, SC_max), 0);
        CHECK_INT(ck_count(l.k, KO_sop, SC_min), 0);
        CHECK_INT(ck_count(l.k, KO_sop, SC_abs), 0);
        CHECK_INT(ck_count(l.k, KO_sop, SC_cosh), 1);
        CHECK_INT(l.k->n_ins, 4);
    }
    end(&l);
    l = lower(
        "graph @t {\n%x = input : f32[100]\n%r = relu %x\n%s = relu %r\n%q = sqrt %s\nreturn %q }");
    if (l.k) {
        CHECK_INT(ck_count(l.k, KO_sop, SC_max), 1);
        CHECK(find(l.k, SC_sqrt, 0)->hint & KH_nonneg);
        CHECK(!(find(l.k, SC_sqrt, 0)->hint & KH_nonan));
    }
    end(&l);
}

TEST(nan_keeps_what_it_decides)
{
    /* max(x - x, ...) may be NaN: clip of an unknown stays; isnan of a bool cast is decided */
    lowered l = lower("graph @t {\n%b = input : bool[100]\n%x = cast %b {to=f32}\n%n = isnan "
                      "%x\n%k = cast %n {to=f32}\n"
                      "%y = add %x, %k\n%r = relu %y\n%c = clip %r {lo=0, hi=3}\nreturn %c }");
    if (l.k) {
        CHECK_INT(ck_count(l.k, KO_sop, SC_isnan), 0);
        CHECK_INT(ck_count(l.k, KO_sop, SC_max), 0);
        CHECK_INT(ck_count(l.k, KO_sop, SC_min), 0);
    }
    end(&l);
    l = lower("graph @t {\n%x = input : f32[100]\n%s = sin %x\n%c = clip %s {lo=-1, "
              "hi=0.5}\nreturn %c }");
    if (l.k)
        CHECK_INT(ck_count(l.k, KO_sop, SC_min), 1);
    end(&l);
    l = lower("graph @t {\n%x = input : u8[100]\n%f = cast %x {to=f32}\n%s = sin %f\n%e = exp "
              "%s\n%y = add %e, %f\nreturn %y }");
    if (l.k) {
        CHECK(find(l.k, SC_sin, 0)->hint & KH_bounded);
        CHECK(find(l.k, SC_sin, 0)->hint & KH_nonan);
        CHECK_NEAR(find(l.k, SC_add, 0)->hi, 255 + 2.7182818, 1e-3);
    }
    end(&l);
}

/* The range of the last value of a chain of ops on x in [lo, hi]. */
static void range_of(
    const char *ops, double lo, double hi, double want_lo, double want_hi, bool nan)
{
    char text[512];
    snprintf(text, sizeof text,
        "graph @t {\n%%i = input : f32[100]\n%%x = clip %%i {lo=%g, hi=%g}\n%s\nreturn %%y }", lo,
        hi, ops);
    lowered l = lower_exact(text);
    if (l.k) {
        const nnc_kins *y = &l.k->ins[l.k->n_ins - 1]; /* the store */
        double room = 1e-5 * (1 + fabs(want_lo) + fabs(want_hi));
        if (!(fabs(y->lo - want_lo) <= room && fabs(y->hi - want_hi) <= room) ||
            y->maybe_nan != nan)
            test_fail(__FILE__, __LINE__, "%s: [%g, %g]%s", ops, y->lo, y->hi,
                y->maybe_nan ? " nan" : "");
    }
    end(&l);
}

TEST(ranges_follow_functions)
{
    range_of("%y = cos %x", -1, 0.5, cos(1), 1, true);
    range_of("%y = cos %x", 1, 2, cos(2), cos(1), true);
    range_of("%y = cos %x", 2, 4, -1, cos(2), true);
    range_of("%y = sin %x", 4, 5, -1, sin(4), true);
    range_of("%y = sin %x", 1, 2, sin(1), 1, true);
    range_of("%y = sin %x", 100, 101, sin(100), sin(101), true);
    range_of("%y = sin %x", 0, 7, -1, 1, true);
    range_of("%y = atan %x", -1, 2, -atan(1), atan(2), true);
    range_of("%y = cosh %x", -1, 2, 1, cosh(2), true);
    range_of("%y = acos %x", -0.5, 0.5, acos(0.5), acos(-0.5), true);
    range_of("%y = log %x", 0.5, 2, log(0.5), log(2), true);
    range_of("%y = sigmoid %x", -1, 1, 1 / (1 + exp(1)), 1 / (1 + exp(-1)), true);
    range_of("%k = constant : f32[] = [3]\n%y = mod %x, %k", -10, 10, -3, 3, true);
    range_of("%k = constant : f32[] = [3]\n%y = mod %x, %k", 0, 2, 0, 2, true);
    range_of("%k = constant : f32[] = [2.5]\n%y = pow %x, %k", 0, 2, 0, pow(2, 2.5), true);
    range_of("%k = constant : f32[] = [-1.5]\n%y = pow %x, %k", 0.25, 2, pow(2, -1.5), 8, true);
    range_of("%k = constant : f32[] = [3]\n%y = pow %x, %k", 1, 2, 1, 8, true);
}

/* How many ops `sop` are left of a graph over %x of this type. */
static void left(const char *type, const char *ops, nnc_sop sop, int want)
{
    char text[512];
    snprintf(text, sizeof text, "graph @t {\n%%x = input : %s[100]\n%s\nreturn %%y }", type, ops);
    lowered l = lower_exact(text);
    if (l.k && ck_count(l.k, KO_sop, sop) != want)
        test_fail(
            __FILE__, __LINE__, "%s: %d %s", text, ck_count(l.k, KO_sop, sop), nnc_sops[sop].name);
    end(&l);
}

TEST(ranges_know_where_numbers_end)
{
    /* 64-bit integers wrap; what doubles round is not decided */
    static const char *const one = "%a = constant : i64[] = [0]\n%b = constant : i64[] = [1]\n";
    char ops[400];
    snprintf(ops, sizeof ops, "%s%%m = max %%x, %%a\n%%s = add %%m, %%b\n%%y = max %%s, %%a", one);
    left("i64", ops, SC_max, 2);
    left("i64", /* 2^53 + 1, which doubles round to 2^53, less 2 is no more than 2^53 - 1 */
        "%z = constant : i64[] = [0]\n%t = constant : i64[] = [2]\n%u = constant : i64[] = [-2]\n"
        "%p = constant : i64[] = [9007199254740991]\n%q = constant : i64[] = [9007199254740990]\n"
        "%m = max %x, %z\n%n = min %m, %p\n%s = add %n, %t\n%c = add %s, %u\n%y = max %c, %q",
        SC_max, 2);
    left("i32",
        "%a = constant : i32[] = [-128]\n%m = neg %a\n%z = cast %m {to=i8}\n%w = cast %x "
        "{to=i8}\n%y = max %w, %z",
        SC_max, 1);
    /* exp(-110) is 0 in f32, e^-20 in f16 */
    left("f32",
        "%c = clip %x {lo=-110, hi=1}\n%e = exp %c\n%z = constant : f32[] = [0]\n%y = le %e, %z",
        SC_le, 1);
    left("f32",
        "%c = clip %x {lo=-20, hi=1}\n%e = exp %c\n%h = cast %e {to=f16}\n%z = constant : f16[] = "
        "[0]\n"
        "%y = le %h, %z",
        SC_le, 1);
    left("f32",
        "%c = clip %x {lo=-20, hi=1}\n%e = exp %c\n%z = constant : f32[] = [0]\n%y = le %e, %z",
        SC_le, 0);
    /* 1/sqrt(-0) is -inf */
    left("f32", "%r = relu %x\n%q = rsqrt %r\n%y = abs %q", SC_abs, 1);
}

static void axes(const char *text, int n, int outer, int64_t first)
{
    lowered l = lower(text);
    if (l.k) {
        CHECK_INT(l.k->n_axis, n);
        CHECK_INT(l.k->n_outer, outer);
        if (l.k->n_axis)
            CHECK_INT(l.k->axis[0].extent, first);
    }
    end(&l);
}

TEST(axes_merge)
{
    axes("graph @t {\n%a = input : f32[2,3,4,5]{0,2,3,1}\n%b = input : f32[2,3,4,5]{0,2,3,1}\n%y = "
         "add %a, %b\nreturn %y }",
        1, 1, 120);
    axes("graph @t {\n%a = input : f32[2,3,4,5]\n%b = input : f32[3,1,1]\n%y = add %a, %b\nreturn "
         "%y }",
        3, 3, 2);
    axes("graph @t {\n%a = input : f32[2,3,4,5]\n%b = input : f32[4,5]\n%y = add %a, %b\nreturn %y "
         "}",
        2, 2, 6);
    axes("graph @t {\n%a = input : f32[2,3,4,5]\n%y = reduce_sum %a {axes=[2,3]}\nreturn %y }", 2,
        1, 6);
    axes("graph @t {\n%a = input : f32[2,3,4,5]\n%y = reduce_sum %a {axes=[0,1,2,3]}\nreturn %y }",
        1, 0, 120);
    /* planes and rows are one: 24 = 12 * 2 going in, 6 = 3 * 2 coming out; columns are not (12,
     * 2 * 3) */
    axes("graph @t {\n%a = input : f32[2,3,4,6]\n%y = maxpool %a {kernel=[2,2], "
         "strides=[2,2]}\nreturn %y }",
        4, 2, 12);
    axes("graph @t {\n%a = input : f32[6,4]\n%y = transpose %a {perm=[1,0]}\nreturn %y }", 2, 2, 4);
    /* rows of a group are one, for the sums and for the results, though the axes of the two alternate. Channels
     * are not, since each has its own scale */
    axes("graph @t {\n%a = input : f32[5,8,4,6]\n%s = input : f32[8]\n%b = input : f32[8]\n"
         "%e = exp %a\n%y = groupnorm %e, %s, %b {num_groups=2}\nreturn %y }",
        5, 2, 5);
}

TEST(guards_stand_where_padding_is)
{
    lowered l = lower("graph @t {\n%x = input : f32[1,8,14,14]\n"
                      "%y = maxpool %x {kernel=[3,3], strides=[2,2], pads=[1,0,0,0]}\nreturn %y }");
    if (l.k)
        for (int i = 0; i < l.k->n_ins; i++)
            if (l.k->ins[i].op == KO_load)
                CHECK_INT(l.k->ins[i].n_guard, 1);
    end(&l);
    l = lower("graph @t {\n%x = input : f32[1,8,14,14]\n%y = avgpool %x {kernel=[2,2], "
              "strides=[2,2]}\nreturn %y }");
    if (l.k) {
        CHECK_INT(ck_count(l.k, KO_index, -1), 0); /* the divisor is 4 everywhere */
        CHECK_INT(ck_count(l.k, KO_sop, SC_div), 0); /* and dividing by it is exact as a product */
        CHECK_NEAR(find(l.k, SC_mul, 0)->hi, INFINITY, 0);
    }
    end(&l);
}

TEST(schedules)
{
    lowered l = lower("graph @t {\n%x = input : f32[64,56,56,64]\n%y = relu %x\nreturn %y }");
    if (l.k) {
        CHECK(nnc_sched_has(&l.k->sched, KD_tile) && l.k->sched.domain > 16);
        CHECK(nnc_sched_has(&l.k->sched, KD_nontemporal)); /* 51 MB, more than the last cache */
    }
    end(&l);
    l = lower("graph @t {\n%x = input : f32[100]\n%y = relu %x\nreturn %y }");
    if (l.k) {
        CHECK_INT(l.k->sched.domain, 1);
        CHECK(!nnc_sched_has(&l.k->sched, KD_nontemporal));
    }
    end(&l);
    l = lower("graph @t {\n%x = input : f32[512,100]\n%y = reduce_max %x {axes=[0]}\nreturn %y }");
    if (l.k) /* columns: along memory, not along what is reduced */
        CHECK_INT(l.k->axis[nnc_sched_vec(&l.k->sched)].kind, KA_outer);
    end(&l);
}

/* Rows larger together than the last cache stream, and the next one is prefetched. Four vectors at once where
 * they compute no more lanes than two, or one of each of four rows where each thread has as many. */
TEST(row_schedules)
{
    static const struct {
        int64_t rows, cols;
        int width;
        bool stream, ahead;
    } at[] = {{4096, 4096, 64, true, true}, {4096, 1000, 64, false, true},
        {512, 512, 64, false, true}, {64, 288, 16, false, false}, {64, 64, 16, false, false},
        {8192, 128, 16, false, false}, {1, 288, 32, false, false}, {3, 64, 32, false, false}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        char text[160];
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[%lld,%lld]\n%%y = softmax %%x {axis=1}\nreturn %%y }",
            (long long)at[i].rows, (long long)at[i].cols);
        lowered l = lower(text);
        if (l.k) {
            CHECK_INT(nnc_sched_width(&l.k->sched), at[i].width);
            CHECK_INT(nnc_sched_has(&l.k->sched, KD_nontemporal), at[i].stream);
            CHECK_INT(nnc_sched_has(&l.k->sched, KD_prefetch), at[i].ahead);
            CHECK_INT(nnc_sched_has(&l.k->sched, KD_unroll), !at[i].ahead && at[i].rows > 3);
        }
        end(&l);
    }
}

/* Functions of functions along rows take as many vectors at once as elsewhere, where a row fills them as well as it fills two. */
TEST(rows_of_long_chains)
{
    static const int at[][2] = {{253, 128}, {128, 128}, {192, 64}, {72, 32}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        char text[300];
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[1,%d]\n%%m = reduce_mean %%x {axes=[1], keepdims=1}\n"
            "%%d = sub %%x, %%m\n%%y = mish %%d\nreturn %%y }",
            at[i][0]);
        lowered l = lower(text);
        CHECK_INT(l.k ? nnc_sched_width(&l.k->sched) : 0, at[i][1]);
        end(&l);
    }
}

/* Threads that a kernel of n results of the op is divided among, of two. */
static int64_t parts_of(const char *op, int n, bool interpreted)
{
    nnc_target t = ck_target;
    char text[120];
    snprintf(
        text, sizeof text, "graph @t {\n%%x = input : f32[%d]\n%%y = %s %%x\nreturn %%y }", n, op);
    t.threads = 2;
    t.n_engines = 0;
    t.engine[t.n_engines++] = (nnc_target_engine){.name = interpreted ? "interp" : "llvm"};
    lowered l = lower_for(text, &t, MATH_ulp2);
    int64_t parts = l.k ? nnc_par_parts(l.k->sched.domain, l.k->sched.grain, 2) : 0;
    end(&l);
    return parts;
}

/* A thread has more than a microsecond's work, which is less of it where kernels are interpreted. */
TEST(short_kernels_are_divided_where_it_pays)
{
    CHECK_INT(parts_of("exp", 4096, false), 1);
    CHECK_INT(parts_of("exp", 32768, false), 2);
    CHECK_INT(parts_of("neg", 32768, false), 1);
    CHECK_INT(parts_of("exp", 4096, true), 2);
    CHECK_INT(parts_of("exp", 64, true), 1);
}

/* Work items of elementwise kernels divide evenly among the threads. */
TEST(elementwise_work_items_are_even)
{
    nnc_target t = ck_target;
    for (t.threads = 1; t.threads <= 6; t.threads++)
        for (int n = 200000; n < 2000000; n += n / 3) {
            char text[100];
            snprintf(text, sizeof text,
                "graph @t {\n%%x = input : f32[%d]\n%%y = exp %%x\nreturn %%y }", n);
            lowered l = lower_for(text, &t, MATH_ulp2);
            if (!l.k || (l.k->sched.domain > 1 && l.k->sched.domain % t.threads))
                test_fail(__FILE__, __LINE__, "%d elements, %d threads: %lld work items", n,
                    t.threads, l.k ? (long long)l.k->sched.domain : 0);
            end(&l);
        }
}

/* What a block computes of its source counts, too: 192 rows of mish before a product of 8 columns ran on one thread of two. */
TEST(prologues_are_divided_where_it_pays)
{
    static const char *const op[] = {"neg", "mish"};
    for (int i = 0; i < 2; i++) {
        lowered l = lower_at(512, 2,
            "%%x = input : f32[192,35]\n%%w = input : f32[35,8]\n%%m = %s %%x\n"
            "%%y = matmul %%m, %%w\nreturn %%y }",
            op[i]);
        CHECK(l.k && nnc_sched_has(&l.k->sched, KD_panel));
        if (l.k)
            CHECK_INT(nnc_par_parts(l.k->sched.domain, l.k->sched.grain, 2), i + 1);
        end(&l);
    }
}

/* Contractions: vectors of weights and neighbours of the source that fit the registers, in strips of one length. The nearest cache keeps
 * their lines (rows of 4 KiB are all in one set). Blocks of the source are the slow digits of a unit, panels of the weights the fast
 * ones. */
TEST(contraction_schedules)
{
    static const struct {
        int bits, width, unroll;
        int64_t rows, terms;
    } at[] = {{512, 32, 14, 56, 64}, {512, 32, 13, 49, 64}, {512, 32, 7, 7, 64},
        {256, 16, 6, 56, 64}, {256, 16, 4, 7, 64}, {128, 8, 6, 12, 64}, {512, 32, 14, 56, 512},
        {512, 32, 7, 56, 1024}, {512, 32, 7, 56, 2048}, {512, 32, 14, 56, 1040},
        {512, 32, 11, 121, 64}, {256, 16, 5, 55, 64}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        lowered l = lower_at(at[i].bits, ck_target.threads,
            "%%x = input : f32[%lld,%lld]\n%%w = input : f32[%lld,64]\n"
            "%%y = matmul %%x, %%w\nreturn %%y }",
            (long long)at[i].rows, (long long)at[i].terms, (long long)at[i].terms);
        if (l.k) {
            const nnc_kschedule *s = &l.k->sched;
            int digit[NNC_KAXES];
            CHECK_INT(nnc_sched_width(s), at[i].width);
            CHECK_INT(nnc_sched_n(s, KD_tile, nnc_sched_vec(s)), at[i].width);
            CHECK_INT(nnc_sched_n(s, KD_unroll, -1), at[i].unroll);
            CHECK_INT(nnc_kernel_digits(l.k, digit), 2);
            CHECK_INT(digit[1], nnc_sched_vec(s));
        }
        end(&l);
    }
}

/* Rows a power of two apart are as many as a set of the nearest cache holds, beside the weights. */
TEST(rows_of_a_block_fit_the_sets)
{
    static const struct {
        int kib, unroll;
    } at[] = {{32, 7}, {48, 9}, {64, 12}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        nnc_target t = ck_target;
        t.vector_bits = 512;
        t.l1_bytes = (int64_t)at[i].kib << 10;
        lowered l = lower_for("graph @t {\n%x = input : f32[252,3072]\n%w = input : f32[3072,64]\n"
                              "%y = matmul %x, %w\nreturn %y }",
            &t, MATH_ulp2);
        if (l.k)
            CHECK_INT(nnc_sched_n(&l.k->sched, KD_unroll, -1), at[i].unroll);
        end(&l);
    }
}

/* Sums of few terms added to an operand go in the order of memory, but not where their source is computed. It would be computed for
 * each sum. */
TEST(short_sums_of_a_computed_source)
{
    for (int computed = 0; computed < 2; computed++) {
        lowered l = lower_at(512, 2,
            "%%x = input : f32[128,8]\n%%w = input : f32[8,24]\n%%r = input : f32[128,24]\n"
            "%s%%y = matmul %s, %%w\n%%z = add %%y, %%r\nreturn %%z }",
            computed ? "%e = erf %x\n" : "", computed ? "%e" : "%x");
        if (l.k)
            CHECK_INT(nnc_sched_has(&l.k->sched, KD_panel), computed);
        end(&l);
    }
}

/* A residual is an operand as large as the result. Rows go through the panels of the weights one strip after the other if these stay in a
 * core's cache and are no larger. Otherwise they go in blocks, which prefetch the next panel. */
TEST(weights_of_a_residual)
{
    static const struct {
        int panels, terms, rows;
        bool blocks;
    } at[] = {
        {24, 768, 128, true}, {24, 3072, 128, true}, {6, 1152, 196, true}, {2, 256, 1024, false}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        const int n = 32 * at[i].panels, m = at[i].rows, c = at[i].terms;
        lowered l = lower_at(512, 2,
            "%%x = input : f32[%d,%d]\n%%p = input : f32[%d,%d,32]\n%%r = input : f32[%d,%d]\n"
            "%%t = transpose %%p {perm=[0,2,1]}\n%%w = reshape %%t {shape=[%d,%d]}\n"
            "%%z = linear %%x, %%w\n%%y = add %%z, %%r\nreturn %%y }",
            m, c, at[i].panels, c, m, n, n, c);
        if (l.k) {
            const nnc_kschedule *s = &l.k->sched;
            CHECK_INT(nnc_sched_n(s, KD_tile, 0) > nnc_sched_n(s, KD_unroll, 0), at[i].blocks);
            CHECK_INT(nnc_sched_has(s, KD_prefetch), at[i].blocks);
        }
        end(&l);
    }
}

/* Threads divide few rows evenly by whole panels, also where they compute a cheap prologue each, but rows where panels are odd. */
TEST(threads_divide_panels)
{
    static const struct {
        int outputs;
        const char *prologue;
        bool whole;
    } at[] = {{192, "relu", true}, {192, "silu", false}, {160, "relu", false}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        lowered l = lower_at(512, 2,
            "%%x = input : f32[49,672]\n%%p = input : f32[%d,672,32]\n"
            "%%t = transpose %%p {perm=[0,2,1]}\n%%w = reshape %%t {shape=[%d,672]}\n"
            "%%s = %s %%x\n%%y = linear %%s, %%w\nreturn %%y }",
            at[i].outputs / 32, at[i].outputs, at[i].prologue);
        if (l.k)
            CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, 0) >= 49, at[i].whole);
        end(&l);
    }
}

/* Threads divide the places of a convolution that has no more weights than source and results, so that each reads what it wrote. */
TEST(threads_divide_places)
{
    lowered l = lower_at(512, 2,
        "%%x = input : f32[196,96]\n%%p = input : f32[18,96,32]\n"
        "%%t = transpose %%p {perm=[0,2,1]}\n%%w = reshape %%t {shape=[576,96]}\n"
        "%%y = linear %%x, %%w\nreturn %%y }");
    CHECK(l.k && nnc_kernel_blocks(l.k, 0) == 2 && l.k->sched.domain == 36);
    end(&l);
}

/* Rows of an image are divided among threads, too: an odd number of channels' panels does not shorten its blocks. */
TEST(blocks_of_depthwise_rows)
{
    lowered l = lower_at(512, 2,
        "%%x = input : f32[1,672,14,14]{0,2,3,1}\n%%w = input : f32[672,1,5,5]{2,3,1,0}\n"
        "%%y = conv %%x, %%w {pads=[2,2,2,2], groups=672}\nreturn %%y }");
    if (l.k) {
        CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, 0), 7);
        CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, 1), 14);
        CHECK_INT(l.k->sched.domain, 42);
    }
    end(&l);
}

/* The product of Winograd's convolution prefetches weights that come from beyond a core's cache. */
TEST(weights_of_points)
{
    for (int channels = 16; channels <= 64; channels += 48) {
        lowered l = lower_at(512, 1,
            "%%x = input : f32[1,%d,28,28]{0,2,3,1}\n%%u = input : f32[36,2,%d,32]\n"
            "%%y = winograd %%x, %%u {pads=[1,1,1,1], block=[1,7]}\nreturn %%y }",
            channels, channels);
        if (l.k) {
            nnc_kpart part[NNC_KPARTS];
            CHECK_INT(nnc_kernel_parts(l.k, part), 3);
            CHECK_INT(nnc_sched_has(&l.k->sched, KD_prefetch), channels == 64);
        }
        end(&l);
    }
}

/* A block of tiles is computed by one thread: however many there are, its product reads the weights of a point once. */
TEST(parts_have_one_thread)
{
    for (int threads = 1; threads <= 16; threads *= 16) {
        lowered l = lower_at(512, threads,
            "%%x = input : f32[1,64,28,28]{0,2,3,1}\n%%u = input : f32[36,1,64,32]\n"
            "%%y = winograd %%x, %%u {pads=[1,1,1,1], block=[1,7]}\nreturn %%y }");
        if (l.k) {
            const int tiles = nnc_sched_axis(&l.k->sched, KD_unroll);
            CHECK(nnc_kernel_in_parts(l.k) && tiles >= l.k->n_outer);
            CHECK(tiles < 0 || nnc_sched_n(&l.k->sched, KD_tile, tiles) >= l.k->axis[tiles].extent);
            CHECK(nnc_sched_has(&l.k->sched, KD_prefetch));
        }
        end(&l);
    }
}

/* The units of a product's last block are smaller; blocks are such that two threads have as many rows all the same. */
TEST(threads_share_blocks)
{
    static const struct {
        int rows, terms, outputs;
    } at[] = {{196, 480, 112}, {196, 240, 80}, {196, 1024, 256}, {49, 672, 192}, {784, 144, 40}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        lowered l = lower_at(512, 2,
            "%%x = input : f32[%d,%d]\n%%w = input : f32[%d,%d]\n"
            "%%y = matmul %%x, %%w\nreturn %%y }",
            at[i].rows, at[i].terms, at[i].terms, at[i].outputs);
        if (l.k) {
            int64_t tile = nnc_sched_n(&l.k->sched, KD_tile, 0), load[2] = {0};
            int64_t units = l.k->sched.domain, panels = units / nnc_kernel_blocks(l.k, 0);
            for (int64_t u = 0; u < units; u++)
                load[2 * u >= units] += nnc_min64(tile, at[i].rows - u / panels * tile);
            CHECK(nnc_max64(load[0], load[1]) * 100 <= (load[0] + load[1]) / 2 * 108);
        }
        end(&l);
    }
}

/* A short row of the source leaves registers for a second axis. */
TEST(blocks_of_two_axes)
{
    static const struct {
        int bits, side, columns, rows, channels;
    } at[] = {{512, 7, 7, 2, 64}, {512, 4, 4, 2, 64}, {512, 14, 14, 0, 64}, {256, 3, 3, 2, 64},
        {256, 12, 6, 0, 64}, {512, 7, 7, 2, 512}, {512, 7, 7, 0, 1024}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        lowered l = lower_at(at[i].bits, ck_target.threads,
            "%%x = input : f32[1,%d,%d,%d]{0,2,3,1}\n%%w = input : "
            "f32[64,%d,3,3]{2,3,1,0}\n%%y = conv %%x, %%w {pads=[1,1,1,1]}\nreturn %%y }",
            at[i].channels, at[i].side, at[i].side, at[i].channels);
        if (l.k) {
            CHECK_INT(nnc_sched_n(&l.k->sched, KD_unroll, 1), at[i].columns);
            CHECK_INT(nnc_sched_n(&l.k->sched, KD_unroll, 0), at[i].rows);
        }
        end(&l);
    }
}

/* Gradients of weights: vectors of inputs for neighbouring outputs, or of outputs where the result lies along these; the factors may come
 * in either order. */
TEST(gradients_of_weights_are_blocked)
{
    static const struct {
        int bits, in, out, window;
        const char *order;
        int vector, unroll;
    } at[] = {{512, 64, 56, 3, "{0,2,3,1}", 64, 14}, {256, 64, 48, 3, "{0,2,3,1}", 64, 6},
        {512, 64, 56, 1, "", 64, 14}, {512, 3, 64, 7, "{2,3,1,0}", 64, 7}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        lowered l = lower_at(at[i].bits, ck_target.threads,
            "%%x = input : f32[1,%d,28,28]{0,2,3,1}\n%%d = input : f32[1,%d,28,28]{0,2,3,1}\n"
            "%%y = conv_wgrad %%x, %%d {kernel=[%d,%d], pads=[%d,%d,%d,%d]} : f32[%d,%d,%d,%d]%s\n"
            "return %%y }",
            at[i].in, at[i].out, at[i].window, at[i].window, at[i].window / 2, at[i].window / 2,
            at[i].window / 2, at[i].window / 2, at[i].out, at[i].in, at[i].window, at[i].window,
            at[i].order);
        CHECK(l.k != NULL);
        if (l.k) {
            const int v = nnc_sched_vec(&l.k->sched);
            CHECK(v >= 0 && v < l.k->n_outer);
            CHECK_INT(v >= 0 ? l.k->axis[v].extent : 0, at[i].vector);
            CHECK_INT(nnc_sched_n(&l.k->sched, KD_unroll, -1), at[i].unroll);
            if (at[i].window == 3) { /* 6 rows of 28 places, and the whole window */
                CHECK_INT(nnc_kernel_added_axis(l.k), l.k->n_outer);
                CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, l.k->n_outer), 6);
            }
        }
        end(&l);
    }
}

/* Groups of which several have their channels in one line of the cache. A strip is computed for as many as fill lines, then the next. */
TEST(groups_in_shared_lines)
{
    static const struct {
        int groups, channels, tile, unroll;
    } at[] = {{32, 4, 4, 14}, {32, 3, 16, 14}, {8, 2, 8, 14}, {16, 8, 2, 14}, {8, 16, 0, 14}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        const int n = at[i].channels;
        lowered l = lower_at(512, ck_target.threads,
            "%%x = input : f32[1,%d,56,56]{0,2,3,1}\n%%w = input : "
            "f32[%d,%d,3,3]{2,3,1,0}\n%%y = conv %%x, %%w {groups=%d}\nreturn %%y }",
            at[i].groups * n, at[i].groups * n, n, at[i].groups);
        if (l.k) {
            CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, 2), at[i].tile);
            CHECK_INT(nnc_sched_n(&l.k->sched, KD_unroll, -1), at[i].unroll);
            if (at[i].tile)
                CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, 1), at[i].unroll);
        }
        end(&l);
    }
}

/* Products of few rows whose weights lie along the sum: vectors along it, all rows and as many outputs as registers hold at once. */
TEST(few_rows_schedules)
{
    static const struct {
        int bits, rows, columns, sums;
    } at[] = {{512, 1, 40, 4}, {512, 5, 40, 20}, {512, 8, 40, 16}, {256, 8, 40, 8}, {256, 2, 39, 6},
        {512, 11, 40, 4}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        int n = 0;
        lowered l = lower_at(at[i].bits, ck_target.threads,
            "%%x = input : f32[%d,640]\n%%w = input : f32[%d,640]\n"
            "%%y = linear %%x, %%w\nreturn %%y }",
            at[i].rows, at[i].columns);
        for (int k = 0; l.k && k < l.k->n_ins; k++)
            n += l.k->ins[k].op == KO_reduce;
        CHECK_INT(n, at[i].sums);
        if (l.k)
            CHECK(nnc_sched_vec(&l.k->sched) >= l.k->n_outer);
        end(&l);
    }
}

/* Sums over columns read along memory by blocks of rows: as many pieces as threads, not wider than
 * the nearest cache. Short sums, and those that need places, go column by column. */
TEST(column_schedules)
{
    static const struct {
        const char *op, *in;
        int64_t chunk;
        int block;
    } at[] = {{"reduce_sum", "[4096,4096]", 2048, 8}, {"reduce_max", "[1000,768]", 384, 8},
        {"reduce_mean", "[512,5000]", 1696, 8}, {"reduce_sum", "[100000,64]", 32, 8},
        {"reduce_sum", "[12,4096]", 1248, 0}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        char text[160];
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32%s\n%%y = %s %%x {axes=[0]}\n"
            "return %%y }",
            at[i].in, at[i].op);
        lowered l = lower(text);
        if (l.k) {
            int v = nnc_sched_vec(&l.k->sched), r = __builtin_ctz(l.k->stage[0].axes);
            CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, r), at[i].block);
            if (at[i].block)
                CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, v), at[i].chunk);
        }
        end(&l);
    }
}

/* What softmax subtracts is a maximum: its exponents are at most 0, its exponentials at most 1
 * (and a rounding). Another value's maximum bounds nothing. */
TEST(nothing_exceeds_its_maximum)
{
    lowered l = lower("graph @t {\n%x = input : f32[64,1000]\n%m = reduce_max %x {axes=[1]}\n%z = "
                      "sub %x, %m\n%e = exp %z\n%s = reduce_sum %e {axes=[1]}\nreturn %s }");
    if (l.k) {
        CHECK(find(l.k, SC_sub, 0)->hi == 0);
        CHECK(find(l.k, SC_sub, 0)->maybe_nan);
        CHECK(find(l.k, SC_exp, 0)->hi < 1.001);
    }
    end(&l);
    l = lower("graph @t {\n%x = input : f32[64,1000]\n%w = input : f32[64,1000]\n%m = reduce_max "
              "%w {axes=[1]}\n%z = sub %x, %m\n%s = reduce_sum %z {axes=[1]}\nreturn %s }");
    if (l.k)
        CHECK(find(l.k, SC_sub, 0)->hi > 0);
    end(&l);
}

TEST(transposing_schedules)
{
    lowered l = lower("graph @t {\n%x = input : f32[4096,4096]\n%y = transpose %x {perm=[1,0]}\n"
                      "return %y }");
    if (l.k) {
        CHECK_INT(nnc_sched_width(&l.k->sched), 16);
        int a = nnc_sched_axis(&l.k->sched, KD_transpose);
        CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, a), 128);
        CHECK_INT(nnc_sched_n(&l.k->sched, KD_tile, nnc_sched_vec(&l.k->sched)), 256);
        CHECK_INT(l.k->sched.domain, 16 * 32);
        CHECK(nnc_sched_has(&l.k->sched, KD_nontemporal));
    }
    end(&l);
    l = lower("graph @t {\n%x = input : f32[64,64]\n%y = exp %x\nreturn %y }");
    if (l.k)
        CHECK(!nnc_sched_has(&l.k->sched, KD_transpose));
    end(&l);
}
