/* tests/llvm/lowered.c -- what nnc_lower makes of random graphs, for the host. All kernels of a graph are in one object; each
 * runs as machine code and by the interpreter on the same data. Any op on any type, with schedules as users get them. */
#include "kb.h"
#include "gen/gen.h"
#include "gen/rounding.h"

#include <math.h>

enum { MAX_KERNELS = 64, MAX_BUFS = 24 };

typedef struct set {
    nnc_arena arena;
    const nnc_kernel *k[MAX_KERNELS];
    int n;
} set;

static void lower_all(set *s, const nnc_graph *g, const nnc_target *t)
{
    for (uint32_t i = 0; i < g->n_node && s->n < MAX_KERNELS; i++) {
        const nnc_node *n = &g->node[i];
        nnc_class c = nnc_op_class((nnc_op)n->op);
        if (c == CL_leaf || c == CL_contract || c == CL_fused || nnc_is_view(g, n))
            continue;
        const nnc_kernel *k = nnc_lower(g, n, t, MATH_ulp2, &s->arena, test_sink);
        if (k)
            s->k[s->n++] = k;
    }
}

static double terms = 1; /* of sums: their errors add up */

/* The two may round differently: a few ulps for each operation of a body, more after a sum. */
static bool close_to(nnc_dtype d, const void *x, const void *y, int64_t i)
{
    if (!nnc_is_float(d))
        return nnc_get_i64(d, x, i) == nnc_get_i64(d, y, i);
    double a = nnc_get_f64(d, x, i), r = nnc_get_f64(d, y, i);
    double eps = d == DT_bf16 ? 0x1p-7 : d == DT_f16 ? 0x1p-10 : d == DT_f64 ? 1e-13 : 2e-6;
    return (isnan(a) && isnan(r)) || a == r || fabs(a - r) <= eps * fabs(r) + eps * 4 * terms;
}

static bool run_both(const nnc_kernel *k, nnc_kernel_fn fn, uint64_t seed)
{
    void *got[MAX_BUFS] = {0}, *want[MAX_BUFS] = {0};
    const nnc_kbuf *buf[MAX_BUFS];
    int n = 0;
    bool ok = true;
    for (int i = 0; i < k->n_buf && n < MAX_BUFS; i++) {
        size_t size = (size_t)(k->buf[i].numel * nnc_dtype_size(k->buf[i].dtype));
        if (k->buf[i].role == KB_tmp)
            continue;
        buf[n] = &k->buf[i];
        got[n] = nnc_aligned_alloc(64, size + 8);
        want[n] = nnc_aligned_alloc(64, size + 8);
        gen_fill_operand(buf[n], seed + (uint64_t)i, got[n]);
        memcpy(want[n], got[n], size);
        n++;
    }
    void *scratch = nnc_aligned_alloc(64, (size_t)k->scratch_bytes + 64);
    nnc_interp *s = nnc_interp_create(k);
    int64_t half = k->sched.domain / 2;
    fn(got, 0, half, scratch);
    memset(scratch, 0xff, (size_t)k->scratch_bytes); /* another worker's */
    fn(got, half, k->sched.domain, scratch);
    nnc_interp_run(s, want, 0, k->sched.domain, scratch);
    for (int b = 0; b < n && ok; b++)
        for (int64_t i = 0; i < buf[b]->numel && ok; i++) {
            ok = close_to(buf[b]->dtype, got[b], want[b], i) ||
                 (nnc_is_float(buf[b]->dtype) &&
                     gen_is_rounding(k, seed, buf[b], i, nnc_get_f64(buf[b]->dtype, got[b], i)));
            if (!ok)
                test_fail(__FILE__, __LINE__, "%s: buffer %d (%s) [%lld] is %.9g, interpreted %.9g",
                    k->name, b, nnc_dtype_name(buf[b]->dtype), (long long)i,
                    nnc_get_f64(buf[b]->dtype, got[b], i), nnc_get_f64(buf[b]->dtype, want[b], i));
        }
    nnc_interp_destroy(s);
    nnc_free(scratch);
    for (int b = 0; b < n; b++) {
        nnc_free(got[b]);
        nnc_free(want[b]);
    }
    return ok;
}

static const nnc_target *narrow; /* what sets are emitted for; NULL: the host as it is */

static bool run_set(const set *s, const nnc_emitter *e, uint64_t seed)
{
    char *bytes = NULL;
    size_t n = 0;
    const char *why = "";
    bool ok = true;
    CHECK_OK(e->emit(s->k, s->n, narrow ? narrow : kb_host(), EMIT_object, &bytes, &n, test_sink));
    nnc_object *o = bytes ? nnc_object_load(bytes, n, &why) : NULL;
    if (!o)
        test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, why);
    for (int i = 0; o && i < s->n && ok; i++) {
        nnc_kernel_fn fn;
        void *p = nnc_object_symbol(o, s->k[i]->name);
        memcpy(&fn, &p, sizeof p);
        CHECK(p != NULL);
        ok = p && run_both(s->k[i], fn, seed);
        if (!ok) {
            nnc_text t = {0};
            nnc_kernel_print(&t, s->k[i]);
            fprintf(stderr, "seed %llu\n%s\n", (unsigned long long)seed, nnc_text_str(&t));
            nnc_text_deinit(&t);
        }
    }
    nnc_object_unload(o);
    nnc_free(bytes);
    return ok && o;
}

TEST(lowered_random_graphs)
{
    const nnc_emitter *e = kb_emitter();
    int kernels = 0;
    static const uint32_t types[] = {0, 1u << DT_f32 | 1u << DT_f16 | 1u << DT_bf16,
        1u << DT_i32 | 1u << DT_f32, 1u << DT_i8 | 1u << DT_u64 | 1u << DT_f64,
        1u << DT_bool | 1u << DT_i64 | 1u << DT_f32};
    for (uint64_t i = 0; e && i < 25; i++) {
        gen_options o = {.seed = test_seed + i,
            .nodes = 10,
            .dtypes = types[i % NNC_COUNT(types)],
            .classes = i % 3 == 1 ? ~0u : 0,
            .max_elements = 700};
        nnc_graph *g = gen_graph(&o, test_sink);
        set s = {.n = 0};
        CHECK(g != NULL);
        nnc_arena_init(&s.arena, 0);
        if (g)
            lower_all(&s, g, kb_host());
        kernels += s.n;
        bool ok = !s.n || run_set(&s, e, o.seed);
        nnc_arena_deinit(&s.arena);
        nnc_graph_destroy(g);
        if (!ok)
            break;
    }
    CHECK_USUAL(!e || kernels > 50);
}

static void transposed(const nnc_emitter *e, const char *type, const char *line)
{
    char text[300];
    set s = {.n = 0};
    nnc_scan scan;
    snprintf(text, sizeof text, "graph @t {\n%%x = input : %s%s\nreturn %%y }", type, line);
    nnc_scan_init(&scan, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    nnc_arena_init(&s.arena, 0);
    CHECK(g != NULL);
    if (g)
        lower_all(&s, g, kb_host());
    CHECK_INT(s.n, 1);
    if (s.n == 1 && kb_host()->vector_bits >= 128)
        CHECK(nnc_sched_has(&s.k[0]->sched, KD_transpose));
    if (s.n == 1 && !run_set(&s, e, 1))
        test_fail(__FILE__, __LINE__, "%s", text);
    nnc_arena_deinit(&s.arena);
    nnc_graph_destroy(g);
}

static void check_drawn(nnc_graph *draw(uint64_t, nnc_sink *))
{
    const nnc_emitter *e = kb_emitter();
    bool ok = true;
    for (uint64_t i = 0; e && ok && i < (uint64_t)test_draws(12); i++) {
        set s = {.n = 0};
        nnc_arena_init(&s.arena, 0);
        for (uint64_t j = 0; j < 25; j++) {
            nnc_graph *g = draw(test_seed + 25 * i + j, test_sink);
            CHECK(g != NULL);
            if (g)
                lower_all(&s, g, kb_host());
            nnc_graph_destroy(g);
        }
        CHECK_USUAL(s.n > 15);
        ok = run_set(&s, e, 25 * i);
        nnc_arena_deinit(&s.arena);
    }
}

/* Ops that run in order along an axis. */
TEST(in_order)
{
    check_drawn(gen_loop);
}

TEST(largest_of_windows)
{
    check_drawn(gen_largest);
}

TEST(recurrent)
{
    terms = 64;
    check_drawn(gen_recurrent);
    check_drawn(gen_backward);
    terms = 1;
}

/* Kernels in parts, for all lengths of vectors that the host has; units of a block on two workers. */
static void check_parts(void draw(nnc_text *, uint64_t, bool))
{
    const nnc_emitter *e = kb_emitter();
    int in_parts = 0, lengths = 0;
    terms = 64;
    for (int bits = 512; e && bits >= 128; bits /= 2) {
        nnc_target t = *kb_host();
        set s = {.n = 0};
        if (bits > t.vector_bits)
            continue;
        lengths++;
        t.vector_bits = bits;
        narrow = &t;
        nnc_arena_init(&s.arena, 0);
        for (uint64_t i = 0; i < 16; i++) {
            NNC_LOCAL(nnc_text) text = {0};
            nnc_scan scan;
            draw(&text, test_seed + 40 * (uint64_t)bits + i, i % 4 == 0);
            if (!text.n)
                continue;
            nnc_scan_init(&scan, "t", nnc_text_str(&text), text.n);
            nnc_graph *g = nnc_graph_parse(&scan, test_sink);
            nnc_graph *f = g ? gen_fused(g, test_sink) : NULL;
            for (uint32_t j = 0; f && j < f->n_node; j++) {
                nnc_kernel *k = f->node[j].op == OP_fused
                                    ? nnc_lower(f, &f->node[j], &t, MATH_ulp2, &s.arena, test_sink)
                                    : NULL;
                if (!k)
                    continue;
                in_parts += nnc_kernel_in_parts(k);
                s.k[s.n++] = k;
            }
            nnc_sink_clear(test_sink); /* a few are no kernel */
            nnc_graph_destroy(f);
            nnc_graph_destroy(g);
        }
        CHECK_USUAL(s.n > 10);
        CHECK(!s.n || run_set(&s, e, (uint64_t)bits));
        for (int i = 0; i < s.n; i++) { /* parts in objects of their own */
            const set alone = {.k = {s.k[i]}, .n = 1};
            CHECK(!nnc_kernel_in_parts(s.k[i]) || run_set(&alone, e, (uint64_t)i));
        }
        nnc_arena_deinit(&s.arena);
    }
    narrow = NULL;
    terms = 1;
    CHECK_USUAL(!e || in_parts > 3 * lengths);
}

TEST(products_of_rows)
{
    check_parts(gen_products);
}

static void draw_strips(nnc_text *t, uint64_t seed, bool turned)
{
    (void)turned;
    if (!gen_strips(t, seed))
        t->n = 0;
}

TEST(convolutions_of_rows)
{
    check_parts(draw_strips);
}

TEST(winograd_in_parts)
{
    check_parts(gen_winograd);
}

/* Squares of every element size; whole ones, and rests of rows, of columns, of both. */
TEST(transposing_kernels)
{
    static const char *const types[] = {"f32", "f16", "f64", "i8", "bool", "i16", "u64"};
    const nnc_emitter *e = kb_emitter();
    for (size_t i = 0; e && i < NNC_COUNT(types); i++) {
        transposed(e, types[i], "[64,96]\n%y = transpose %x {perm=[1,0]}");
        transposed(e, types[i], "[3,71,1,83]\n%y = transpose %x {perm=[0,3,2,1]}");
        transposed(e, types[i], "[9,600]\n%y = transpose %x {perm=[1,0]}");
        transposed(e, types[i], "[1100,8]\n%y = transpose %x {perm=[1,0]}");
        transposed(
            e, types[i], "[129,49]\n%y = transpose %x {perm=[1,0]}"); /* one left, two left */
        transposed(e, types[i], "[34,130]\n%y = transpose %x {perm=[1,0]}");
    }
    if (e) {
        transposed(e, "f32", "[2,40,9,9]{0,2,3,1}\n%a = input : f32[2,40,9,9]\n%y = add %x, %a");
        /* long bodies, whose rows are a loop: one to four tiles at once, and parts of one */
        for (int n = 9; n <= 100; n += 13) {
            char line[120];
            snprintf(line, sizeof line,
                "[2,%d,%d]{0,2,1}\n%%a = input : f32[2,%d,%d]\n"
                "%%y = pow %%x, %%a",
                n, 109 - n, n, 109 - n);
            transposed(e, "f32", line);
        }
        transposed(
            e, "f32", "[2,40,9,9]\n%y = relayout %x {order=[0,2,3,1]} : f32[2,40,9,9]{0,2,3,1}");
    }
}

/* Largest part of what is allowed: half of the last place of d, and an eighth of it for the
 * function. A subnormal number of bf16 may be 0: AVX-512 makes no other of it. */
static double gelu_error(nnc_dtype d, const uint16_t *x, const uint16_t *y, int n)
{
    int digits = d == DT_bf16 ? 8 : 11, lowest = d == DT_bf16 ? -133 : -24;
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double a = nnc_get_f64(d, x, i), r = 0.5 * a * erfc(-a * sqrt(0.5));
        double v = nnc_get_f64(d, y, i), e;
        int place;
        frexp(r, &place);
        e = fabs(v - r) / ldexp(1.125 / 2, place - digits > lowest ? place - digits : lowest);
        if (isnan(r) || isnan(v) || isinf(r) || isinf(v))
            e = r == v || (isnan(r) && isnan(v)) ? 0 : INFINITY;
        else if (d == DT_bf16 && v == 0 && fabs(r) < 0x1p-126)
            e = 0;
        worst = e > worst ? e : worst;
    }
    return worst;
}

/* One contraction, alone or fused. Is it in strips, with a panel of its computed source? -1: either.
 * Returns whether its sum is divided into blocks of terms. */
static bool contraction_for(
    const nnc_emitter *e, const nnc_target *t, const char *text, int blocked, int panel)
{
    set s = {.n = 0};
    nnc_scan scan;
    nnc_scan_init(&scan, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    nnc_arena_init(&s.arena, 0);
    CHECK(g != NULL);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) != CL_leaf)
            s.k[s.n++] = nnc_lower(g, &g->node[i], t, MATH_ulp2, &s.arena, test_sink);
    CHECK_INT(s.n, 1);
    terms = 64;
    const nnc_kschedule *sched = s.n == 1 && s.k[0] ? &s.k[0]->sched : NULL;
    if (!sched || (blocked >= 0 && nnc_sched_has(sched, KD_unroll) != blocked) ||
        (panel >= 0 && nnc_sched_has(sched, KD_panel) != panel))
        test_fail(__FILE__, __LINE__, "no kernel, or another schedule: %s", text);
    if (sched)
        CHECK_OK(nnc_schedule_verify(s.k[0], test_sink));
    if (s.n != 1 || !run_set(&s, e, 3))
        test_fail(__FILE__, __LINE__, "%s", text);
    const bool blocks = sched && nnc_kernel_added_axis(s.k[0]) == s.k[0]->n_outer;
    terms = 1;
    nnc_arena_deinit(&s.arena);
    nnc_graph_destroy(g);
    return blocks;
}

static void contraction(const nnc_emitter *e, const char *text, int blocked, int panel)
{
    (void)contraction_for(e, kb_host(), text, blocked, panel);
}

/* Products and convolutions blocked in registers: strips that end early, borders, strides, panels, long sums, other types, epilogues;
 * one row alone has nothing to block. */
static const struct {
    const char *body;
    bool blocked; /* its sums are in registers */
} contractions[] = {{"%x = input : f32[37,50]\n%w = input : f32[50,40]\n%y = matmul %x, %w", true},
    {"%x = input : f32[3,29,2600]\n%w = input : f32[2600,16]\n%y = matmul %x, %w", true},
    {"%x = input : f32[1,700]\n%w = input : f32[700,100]\n%y = matmul %x, %w", false},
    {"%x = input : f64[15,33]\n%w = input : f64[33,24]\n%y = matmul %x, %w", true},
    {"%x = input : bf16[20,64]\n%w = input : bf16[64,32]\n%y = matmul %x, %w", true},
    {"%x = input : i32[13,9]\n%w = input : i32[9,21]\n%y = matmul %x, %w", true},
    {"%x = input : f32[2,5,17,19]{0,2,3,1}\n%w = input : f32[36,5,3,3]{2,3,1,0}\n%b = input : "
     "f32[36]\n"
     "%y = conv %x, %w, %b {pads=[1,1,1,1]}",
        true},
    {"%x = input : f32[1,24,15,15]{0,2,3,1}\n%w = input : f32[32,24,5,3]{2,3,1,0}\n"
     "%y = conv %x, %w {pads=[2,0,2,1], strides=[2,1], dilations=[1,2]}",
        true},
    {"%x = input : f32[1,3,23,23]{0,2,3,1}\n%w = input : f32[16,3,7,7]{2,3,1,0}\n"
     "%y = conv %x, %w {pads=[3,3,3,3], strides=[2,2]}",
        true},
    {"%x = input : f32[2,3,21,23]\n%w = input : f32[16,3,3,3]{2,3,1,0}\n"
     "%y = conv %x, %w {pads=[1,1,1,1], strides=[2,2]} : f32[2,16,11,12]{0,2,3,1}",
        true},
    {"%x = input : f32[1,20,30,30]{0,2,3,1}\n%p = input : f32[2,3,3,20,32]\n%r = input : "
     "f32[1,64,30,30]{0,2,3,1}\n"
     "%y = fused %x, %p, %r {\n%i = input : f32[1,20,30,30]{0,2,3,1}\n%q = input : "
     "f32[2,3,3,20,32]\n"
     "%s = input : f32[1,64,30,30]{0,2,3,1}\n%t = transpose %q {perm=[0,4,3,1,2]}\n"
     "%w = reshape %t {shape=[64,20,3,3]}\n%z = conv %i, %w {pads=[1,1,1,1]}\n%v = silu %z\n%o "
     "= add %v, %s\n"
     "return %o }",
        true},
    {"%x = input : f32[1,12,9,9]{0,2,3,1}\n%p = input : f32[4,3,3,6,16]\n%y = fused %x, %p {\n"
     "%i = input : f32[1,12,9,9]{0,2,3,1}\n%q = input : f32[4,3,3,6,16]\n%t = transpose %q "
     "{perm=[0,4,3,1,2]}\n%w = reshape %t {shape=[64,6,3,3]}\n%z = conv %i, %w "
     "{pads=[1,1,1,1], "
     "groups=2}\nreturn %z }",
        true},
    {"%x = input : f32[3,8,97,130]{0,2,3,1}\n%w = input : f32[16,8,3,3]{2,3,1,0}\n"
     "%y = conv %x, %w {pads=[1,1,1,1]}",
        true},
    {"%x = input : f32[1,300,8,8]{0,2,3,1}\n%w = input : f32[16,300,3,3]{2,3,1,0}\n"
     "%y = conv %x, %w {pads=[1,1,1,1]}",
        true},
    {"%x = input : f32[2,40,7,7]{0,2,3,1}\n%w = input : f32[48,40,3,3]{2,3,1,0}\n"
     "%y = conv %x, %w {pads=[1,1,1,1]}",
        true},
    {"%x = input : f32[1,20,13,4]{0,2,3,1}\n%w = input : f32[40,20,3,3]{2,3,1,0}\n"
     "%y = conv %x, %w {pads=[1,1,1,1]}",
        true},
    {"%x = input : f32[1,20,9,16]{0,2,3,1}\n%w = input : f32[20,40,4,4]{2,3,0,1}\n"
     "%y = conv_transpose %x, %w {strides=[2,2], pads=[1,1,1,1]}",
        true},
    /* weights in panels that are prefetched, of a product and of windows at a border */
    {"%x = input : f32[29,520]\n%p = input : f32[4,520,32]\n%r = input : f32[29,128]\n%y = fused "
     "%x, %p, %r {\n%i = input : f32[29,520]\n%q = input : f32[4,520,32]\n%s = input : "
     "f32[29,128]\n%t = transpose %q {perm=[0,2,1]}\n%w = reshape %t {shape=[128,520]}\n"
     "%z = linear %i, %w\n%o = add %z, %s\nreturn %o }",
        true},
    {"%x = input : f32[1,130,5,5]{0,2,3,1}\n%p = input : f32[2,3,3,130,32]\n%y = fused %x, %p {\n"
     "%i = input : f32[1,130,5,5]{0,2,3,1}\n%q = input : f32[2,3,3,130,32]\n%t = transpose %q "
     "{perm=[0,4,3,1,2]}\n%w = reshape %t {shape=[64,130,3,3]}\n%z = conv %i, %w "
     "{pads=[1,1,1,1]}\nreturn %z }",
        true},
    {"%x = input : f32[1,64,13,13]{0,2,3,1}\n%p = input : f32[36,2,64,32]\n"
     "%y = winograd %x, %p {pads=[1,1,1,1], block=[1,2]}",
        true},
    /* gradients of weights: a window's row of a depthwise one is summed together */
    {"%x = input : f32[2,40,13,15]{0,2,3,1}\n%d = input : f32[2,40,13,15]{0,2,3,1}\n%y = "
     "conv_wgrad %x, %d {kernel=[5,5], pads=[2,2,2,2], groups=40}",
        false},
    {"%x = input : f32[3,33,16,17]{0,2,3,1}\n%d = input : f32[3,33,8,6]{0,2,3,1}\n%y = "
     "conv_wgrad %x, %d {kernel=[3,7], strides=[2,2], pads=[1,0,1,0], groups=33}",
        false},
    {"%x = input : f32[2,6,9,10]\n%d = input : f32[2,8,9,10]\n%y = conv_wgrad %x, %d "
     "{kernel=[3,3], pads=[1,1,1,1], groups=2}",
        false},
    {"%x = input : f32[5,700]\n%w = input : f32[24,700]\n%y = linear %x, %w", false},
    {"%x = input : bf16[1,300]\n%w = input : bf16[25,300]\n%y = linear %x, %w", false},
    /* rows of weights that one strip reads are spread over the matrix */
    {"%x = input : f32[1,256]\n%w = input : f32[20,256]\n%y = linear %x, %w", false},
    {"%x = input : f32[3,70]\n%w = input : f32[22,70]\n%y = linear %x, %w", false},
    {"%x = input : f32[3,2,72]\n%w = input : f32[3,21,72]\n%y = matmul %x, %w "
     "{transpose_b=1}",
        false},
    /* short sums that update an operand go through it in order */
    {"%x = input : f32[5,70]\n%d = input : f32[5,33]\n%w = input : f32[33,70]\n%y = fused %x, "
     "%d, %w {\n"
     "%a = input : f32[5,70]\n%b = input : f32[5,33]\n%u = input : f32[33,70]\n"
     "%e = matmul %b, %a {transpose_a=1}\n%f = sub %u, %e\nreturn %f }",
        false}};

TEST(contractions)
{
    const nnc_emitter *e = kb_emitter();
    for (size_t i = 0; e && i < NNC_COUNT(contractions); i++) {
        char text[900];
        snprintf(text, sizeof text, "graph @t {\n%s\nreturn %%y }", contractions[i].body);
        contraction(e, text, contractions[i].blocked, -1);
    }
}

/* Products whose panels fill L2 are summed in blocks of terms: ends of strips, panels and blocks, batches, packed panels. */
TEST(blocks_of_terms)
{
    static const char *const bodies[] = {
        "%x = input : f32[45,1300]\n%w = input : f32[1300,70]\n%y = matmul %x, %w",
        "%x = input : f32[2,33,1540]\n%w = input : f32[1540,33]\n%y = matmul %x, %w",
        "%x = input : f32[39,1100]\n%w = input : f32[1100,50]\n%b = input : f32[50]\n"
        "%r = input : f32[39,50]\n%y = fused %x, %w, %b, %r {\n%i = input : f32[39,1100]\n"
        "%q = input : f32[1100,50]\n%c = input : f32[50]\n%s = input : f32[39,50]\n"
        "%z = matmul %i, %q\n%a = add %z, %c\n%h = relu %a\n%o = add %h, %s\nreturn %o }",
        "%x = input : f32[37,1024]\n%p = input : f32[3,1024,32]\n%y = fused %x, %p {\n"
        "%i = input : f32[37,1024]\n%q = input : f32[3,1024,32]\n%t = transpose %q "
        "{perm=[1,0,2]}\n%w = reshape %t {shape=[1024,96]}\n%z = matmul %i, %w\nreturn %z }",
        /* panels that the epilogue counts */
        "%x = input : f32[37,1024]\n%p = input : f32[3,1024,32]\n%y = fused %x, %p {\n"
        "%i = input : f32[37,1024]\n%q = input : f32[3,1024,32]\n%t = transpose %q "
        "{perm=[1,0,2]}\n%w = reshape %t {shape=[1024,96]}\n%z = matmul %i, %w\n"
        "%r = reshape %z {shape=[37,3,32]}\n%n = iota {dim=1} : f32[37,3,32]\n"
        "%o = add %r, %n\nreturn %o }"};
    static const char computed[] =
        "graph @t {\n%x = input : f32[39,1100]\n%w = input : f32[1100,50]\n"
        "%y = fused %x, %w {\n%i = input : f32[39,1100]\n%q = input : f32[1100,50]\n"
        "%c = sigmoid %i\n%z = matmul %c, %q\nreturn %z }\nreturn %y }";
    const nnc_emitter *e = kb_emitter();
    nnc_target small = *kb_host();
    small.l2_bytes = 64 << 10;
    if (e) /* a panel has all terms */
        CHECK(!contraction_for(e, &small, computed, true, true));
    for (size_t i = 0; e && i < NNC_COUNT(bodies); i++) {
        char text[900];
        snprintf(text, sizeof text, "graph @t {\n%s\nreturn %%y }", bodies[i]);
        CHECK(contraction_for(e, &small, text, true, -1));
    }
}

/* A graph of one fused linear of `rows` rows, of `depth` terms and `outputs` results, with the epilogue %z -> %y. That may read %s, of the
 * result's shape, and %b, of a row's. */
static void few_rows_text(
    nnc_text *t, const char *type, int rows, int outputs, int depth, const char *epilogue)
{
    nnc_printf(t,
        "graph @t {\n%%x0 = input : %s[%d,%d]\n%%w0 = input : %s[%d,%d]\n%%b0 = input : %s[%d]\n"
        "%%s0 = input : %s[%d,%d]\n%%y0 = fused %%x0, %%w0, %%b0, %%s0 {\n",
        type, rows, depth, type, outputs, depth, type, outputs, type, rows, outputs);
    nnc_printf(t,
        "%%x = input : %s[%d,%d]\n%%w = input : %s[%d,%d]\n%%b = input : %s[%d]\n"
        "%%s = input : %s[%d,%d]\n%%z = linear %%x, %%w\n%s\nreturn %%y }\nreturn %%y0 }",
        type, rows, depth, type, outputs, depth, type, outputs, type, rows, outputs, epilogue);
}

/* Epilogues of several results of few rows are evaluated as vectors. */
TEST(few_rows_with_functions)
{
    static const char *const type[] = {"f32", "bf16", "f64", "f16"};
    static const char *const epilogue[] = {"%y = tanh %z", "%q = add %z, %b\n%y = silu %q",
        "%q = tanh %z\n%d = add %q, %s\n%y = gelu %d",
        "%q = sigmoid %z\n%d = mul %q, %b\n%e = exp %d\n%f = add %e, %b\n%y = mul %f, %s",
        "%y = relu %z"};
    static const int outputs[] = {1, 2, 3, 16, 15, 22, 48, 34, 254, 7};
    const nnc_emitter *e = kb_emitter();
    for (int i = 0; e && i < 60; i++) {
        NNC_LOCAL(nnc_text) t = {0};
        few_rows_text(&t, type[i % 7 ? 0 : 1 + i / 7 % 3], 1 + (i % 3 ? i % 5 : 0), outputs[i % 10],
            64 + i * 37 % 200, epilogue[i / 2 % 5]);
        contraction(e, nnc_text_str(&t), -1, -1);
    }
}

/* No function of the result is evaluated for one number: each is of vectors. */
TEST(functions_of_few_rows_are_vectors)
{
    const nnc_emitter *e = kb_emitter();
    static const int outputs[] = {16, 64, 15};
    for (size_t i = 0; e && i < NNC_COUNT(outputs); i++) {
        nnc_arena a;
        nnc_scan scan;
        NNC_LOCAL(nnc_text) t = {0};
        char *code = NULL;
        size_t size = 0;
        nnc_arena_init(&a, 0);
        few_rows_text(&t, "f32", 1, outputs[i], 256, "%q = add %z, %b\n%y = silu %q");
        nnc_scan_init(&scan, "t", nnc_text_str(&t), t.n);
        nnc_graph *g = nnc_graph_parse(&scan, test_sink);
        const nnc_kernel *k =
            g ? nnc_lower(g, nnc_def(g, g->output[0]), kb_host(), MATH_ulp2, &a, test_sink) : NULL;
        CHECK(k != NULL);
        if (k)
            CHECK_OK(e->emit(&k, 1, kb_host(), EMIT_llvm, &code, &size, test_sink));
        CHECK(code && strstr(code, "fdiv <") && !strstr(code, "fdiv float"));
        nnc_free(code);
        nnc_graph_destroy(g);
        nnc_arena_deinit(&a);
    }
}

/* Root mean square of the relative errors of the one kernel of a graph, in units of 2^-24; its inputs are in [0.5, 1.5). */
static double rounding_of(const nnc_emitter *e, const char *text)
{
    nnc_arena a;
    nnc_scan scan;
    nnc_rval want = {0};
    void *arg[MAX_BUFS] = {0};
    const void *in[MAX_BUFS] = {0};
    char *bytes = NULL;
    const char *why = "";
    size_t size = 0;
    double sum = INFINITY;
    nnc_arena_init(&a, 0);
    nnc_scan_init(&scan, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    const nnc_kernel *k =
        g ? nnc_lower(g, nnc_def(g, g->output[0]), kb_host(), MATH_ulp2, &a, test_sink) : NULL;
    CHECK(k != NULL);
    for (int i = 0; k && i < k->n_buf; i++) {
        in[i] = arg[i] = nnc_aligned_alloc(64, (size_t)k->buf[i].numel * 4);
        for (int64_t j = 0; j < k->buf[i].numel; j++)
            ((float *)arg[i])[j] = 0.5f + (float)nnc_rng_uniform((uint64_t)i, (uint64_t)j);
    }
    if (k)
        CHECK_OK(e->emit(&k, 1, kb_host(), EMIT_object, &bytes, &size, test_sink));
    nnc_object *o = bytes ? nnc_object_load(bytes, size, &why) : NULL;
    if (o && nnc_eval(g, in, 1, &want, test_sink) == NNC_OK) {
        nnc_kernel_fn fn;
        void *p = nnc_object_symbol(o, k->name);
        const float *y = arg[k->n_buf - 1];
        const int64_t n = nnc_type_numel(&want.type);
        memcpy(&fn, &p, sizeof p);
        fn(arg, 0, k->sched.domain, NULL);
        sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += pow(((double)y[i] - want.f[i]) / want.f[i] * 0x1p24, 2) / (double)n;
    }
    for (int i = 0; i < MAX_BUFS; i++)
        nnc_free(arg[i]);
    nnc_rval_free(&want);
    nnc_object_unload(o);
    nnc_free(bytes);
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
    return sqrt(sum);
}

/* Long sums are sums of partial sums: as one chain the first has 14.2, the third 10.7. */
TEST(rounding_of_long_sums)
{
    static const char *const at[] = {
        "%x = input : f32[28,4096]\n%w = input : f32[4096,64]\n%y = matmul %x, %w",
        "%x = input : f32[1,4096]\n%w = input : f32[64,4096]\n%y = linear %x, %w",
        "%x = input : f32[2048,512]\n%y = reduce_sum %x {axes=[0]}",
        "%x = input : f32[512,2048]\n%y = reduce_sum %x {axes=[1]}"};
    const nnc_emitter *e = kb_emitter();
    for (size_t i = 0; e && i < NNC_COUNT(at); i++) {
        char text[400];
        snprintf(text, sizeof text, "graph @t {\n%s\nreturn %%y }", at[i]);
        double units = rounding_of(e, text);
        if (!(units < 8))
            test_fail(__FILE__, __LINE__, "%s: %.1f units of 2^-24", at[i], units);
    }
}

/* Drawn convolutions, dense and depthwise, every third transposed: strips with and without borders, ends of every length, several
 * blocks of the source. */
TEST(drawn_convolutions)
{
    const nnc_emitter *e = kb_emitter();
    uint64_t key = nnc_rng_key("drawn convolutions", test_seed), at = 0;
    for (int i = 0; e && i < test_draws(90); i++) {
        int r[10];
        char text[500];
        for (size_t k = 0; k < NNC_COUNT(r); k++)
            r[k] = (int)(nnc_rng_u32(key, at++) % 1000);
        bool each = i % 2, back = i % 3 == 2;
        const char *type = i % 5 == 4 ? "f64" : "f32";
        int c = each ? 4 + r[0] % 70 : 1 + r[0] % 20, out = each ? c : 4 + r[1] % 70;
        int window = 1 + r[2] % 5, stride = 1 + r[3] % 3, pad = r[4] % 4, dilation = 1 + r[5] % 2;
        int h = dilation * (window - 1) + 1 + r[6] % 9, w = dilation * (window - 1) + 1 + r[7] % 60;
        int in = each ? 1 : c;
        pad = back ? pad % window : pad;
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : %s[%d,%d,%d,%d]{0,2,3,1}\n%%w = input : "
            "%s[%d,%d,%d,%d]%s\n%%y = %s %%x, %%w {groups=%d, strides=[%d,%d], "
            "dilations=[%d,%d], pads=[%d,%d,%d,%d]}\nreturn %%y }",
            type, 1 + r[8] % 2, c, h, w, type, back ? c : out, back ? out / (c / in) : in, window,
            window, back ? "{2,3,0,1}" : "{2,3,1,0}", back ? "conv_transpose" : "conv",
            each ? c : 1, stride, stride, dilation, dilation, pad, pad, back ? 0 : r[9] % 3, pad);
        contraction(e, text, -1, -1);
    }
}

/* Products whose source is computed: once for each block, into a panel. Operands per channel, per row, of the source's shape; several
 * blocks, several panels of weights, two axes beside the sum, groups, 16-bit sources. */
TEST(drawn_prologues)
{
    static const char *const chain[] = {"%a = mul %i, %s\n%b = add %a, %s\n%c = relu %b",
        "%a = silu %i\n%c = mul %s, %a", "%c = mul %i, %i", "%a = sigmoid %s\n%c = mul %i, %a"};
    static const char *const types[] = {"f32", "f32", "f64", "bf16", "f16"};
    const nnc_emitter *e = kb_emitter();
    uint64_t key = nnc_rng_key("drawn prologues", test_seed), at = 0;
    for (int i = 0; e && i < test_draws(60); i++) {
        int r[8];
        char text[1000], x[80], s[80], y[200];
        for (size_t k = 0; k < NNC_COUNT(r); k++)
            r[k] = (int)(nnc_rng_u32(key, at++) % 1000);
        const char *t = types[r[0] % NNC_COUNT(types)];
        int c = 3 + r[1] % 90, out = 16 * (1 + r[2] % 5), h = 1 + r[3] % 5, w = 2 + r[4] % 90;
        snprintf(x, sizeof x, i % 3 ? "%s[2,%d,%d,%d]{0,2,3,1}" : "%s[%d,%d]", t, i % 3 ? c : h * w,
            i % 3 ? h : c, w);
        snprintf(s, sizeof s, i % 3 ? "%s[%d,1,1]" : "%s[%d]", t, c);
        if (r[5] % 3 == 0)
            snprintf(s, sizeof s, i % 3 ? "%s[2,1,%d,%d]" : "%s[%d,1]", t, i % 3 ? h : h * w, w);
        if (r[5] % 3 == 1)
            snprintf(s, sizeof s, "%s", x);
        if (i % 3)
            snprintf(y, sizeof y,
                "%%t = transpose %%q {perm=[0,4,3,1,2]}\n%%w = reshape %%t {shape=[%d,%d,1,1]}\n"
                "%%z = conv %%c, %%w {strides=[%d,1]}",
                out, c, 1 + i % 2);
        else
            snprintf(y, sizeof y, "%%z = matmul %%c, %%q");
        char p[80];
        snprintf(p, sizeof p, i % 3 ? "%s[%d,1,1,%d,16]" : "%s[%d,%d]", t, i % 3 ? out / 16 : c,
            i % 3 ? c : out);
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : %s\n%%u = input : %s\n%%p = input : %s\n"
            "%%y = fused %%x, %%u, %%p {\n%%i = input : %s\n%%s = input : %s\n%%q = input : "
            "%s\n%s\n%s\n%%o = relu %%z\nreturn %%o }\nreturn %%y }",
            x, s, p, x, s, p, chain[r[6] % NNC_COUNT(chain)], y);
        contraction(e, text, c >= 4, c >= 4); /* sums of fewer terms are not in blocks */
    }
}

/* Panels with schedules that are never chosen: filled for each unit, or of one point. Last blocks and strips are cut; elements of
 * windows are stored for each place that reads them. */
TEST(panels_of_any_schedule)
{
    static const char *const schedule[] = {
        "tile i0 4 tile i1 2 order i0 i1 i2 tile i2 16 vector i2 16 panel 1536 parallel 36",
        "tile i0 4 tile i1 2 order i2 i1 i0 tile i2 16 vector i2 16 panel 1536 parallel 36",
        "tile i1 4 order i1 i2 i0 tile i2 16 vector i2 16 unroll i1 2 panel 768 parallel 66",
        "vector i2 16 panel 192 parallel 77",
        "tile i0 3 tile i1 6 tile i2 40 vector i2 32 unroll i1 3 panel 3456 parallel 8"};
    const nnc_emitter *e = kb_emitter();
    for (size_t i = 0; e && i < NNC_COUNT(schedule); i++) {
        char text[1200];
        set s = {.n = 1};
        nnc_scan scan;
        snprintf(text, sizeof text,
            "kernel k_test { axis i0 outer 11 axis i1 outer 7 axis i2 outer 40 axis r0 reduce 3 "
            "axis r1 reduce 16 buf x0 in f32 1232 buf x1 in f32 1920 buf x2 in f32 11 buf y0 out "
            "f32 3080\nschedule %s grain 1\nstage { post %%0 = const f32 0 } stage r0 r1 {\n"
            "%%1 = load f32 x0[-16 + i0*112 + i1*16 + r0*16 + r1] if 0 <= -1 + i1 + r0 < 7 else "
            "%%0\n%%2 = load f32 x2[i0] %%3 = fma f32 %%1 %%1 %%2 %%4 = index i64 i0 %%5 = cast "
            "f32 f32 %%4\n%%6 = add f32 %%3 %%5 %%7 = load f32 x1[r0*640 + r1*40 + i2] %%8 = fma "
            "f32 %%6 %%7 %%0\n%%9 = reduce sum f32 %%8 post %%10 = load f32 x2[i0] %%11 = add f32 "
            "%%9 %%10\n%%12 = store f32 y0[i0*280 + i1*40 + i2] %%11 } }",
            schedule[i]);
        nnc_arena_init(&s.arena, 0);
        nnc_scan_init(&scan, "t", text, strlen(text));
        s.k[0] = nnc_schedule_parse(&scan, &s.arena, test_sink);
        terms = 64;
        if (!s.k[0] || !run_set(&s, e, 3))
            test_fail(__FILE__, __LINE__, "%s: %s",
                s.k[0] ? "" : nnc_sink_at(test_sink, 0)->message, text);
        terms = 1;
        nnc_arena_deinit(&s.arena);
    }
}

/* A register block of long sums, whose totals are in memory, and whose product has another user; then of one that are not sums alone. */
TEST(products_of_a_block_with_several_users)
{
    const nnc_emitter *e = kb_emitter();
    static const char *const other[] = {"sum", "max"};
    for (size_t i = 0; e && i < NNC_COUNT(other); i++) {
        char text[800];
        set s = {.n = 1};
        nnc_scan scan;
        snprintf(text, sizeof text,
            "kernel k_test { axis i0 outer 30 axis i1 outer 40 axis r0 reduce 700\n"
            "buf x0 in f32 21000 buf x1 in f32 28000 buf y0 out f32 1200 buf y1 out f32 1200\n"
            "schedule tile i0 28 tile i1 32 order i0 i1 vector i1 32 unroll i0 14 parallel 4 grain "
            "1\nstage r0 { %%0 = load f32 x0[i0*700 + r0] %%1 = load f32 x1[r0*40 + i1]\n"
            "%%2 = const f32 0 %%3 = fma f32 %%0 %%1 %%2 %%4 = mul f32 %%3 %%3\n"
            "%%5 = reduce sum f32 %%3 %%6 = reduce %s f32 %%4\n"
            "post %%7 = store f32 y0[i0*40 + i1] %%5 %%8 = store f32 y1[i0*40 + i1] %%6 } }",
            other[i]);
        nnc_arena_init(&s.arena, 0);
        nnc_scan_init(&scan, "t", text, strlen(text));
        s.k[0] = nnc_schedule_parse(&scan, &s.arena, test_sink);
        terms = 700;
        if (!s.k[0] || !run_set(&s, e, 3))
            test_fail(__FILE__, __LINE__, "%s: %s",
                s.k[0] ? "" : nnc_sink_at(test_sink, 0)->message, text);
        terms = 1;
        nnc_arena_deinit(&s.arena);
    }
}

/* A register block with functions, for AVX-512, whose registers do not hold them all. */
static nnc_kernel *block_of_functions(nnc_arena *a)
{
    static const char text[] =
        "kernel k_test { axis i0 outer 56 axis i1 outer 32 axis r0 reduce 24\n"
        "buf x0 in f32 1344 buf x1 in f32 768 buf y0 out f32 1792\n"
        "schedule tile i0 56 order i0 i1 vector i1 32 unroll i0 14 parallel 1 grain 1\n"
        "stage r0 { %0 = load f32 x0[i0*24 + r0] %1 = load f32 x1[r0*32 + i1] %2 = const f32 0\n"
        "%3 = fma f32 %0 %1 %2 %4 = reduce sum f32 %3\n"
        "post %5 = sigmoid f32 %4 %6 = mul f32 %4 %5 %7 = store f32 y0[i0*32 + i1] %6 } }";
    nnc_scan scan;
    nnc_scan_init(&scan, "t", text, strlen(text));
    return nnc_schedule_parse(&scan, a, test_sink);
}

/* Vectors lie on the stack where a vector does not cross a line. */
TEST(spills_are_aligned)
{
    const nnc_emitter *e = kb_emitter();
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_kernel *k = block_of_functions(&a);
    nnc_target t = *kb_host();
    char *text = NULL, *save;
    size_t n;
    int spills = 0;
    t.cpu = "x86-64-v4";
    t.features = t.core = "";
    t.fma = t.f16c = true;
    t.vector_bits = 512;
    CHECK(k != NULL);
    if (!e || !k)
        return;
    CHECK_OK(e->emit(&k, 1, &t, EMIT_asm, &text, &n, test_sink));
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        if (!strstr(l, "%zmm") || !strstr(l, "sp)"))
            continue;
        CHECK(!strstr(l, "vmovup"));
        spills++;
    }
    CHECK(spills > 0);
    nnc_free(text);
}

/* Lanes beyond the end of a row: on AMD's cores vexpandps waits for what its register held before, the row before. */
TEST(rows_do_not_wait_for_each_other)
{
    static const char text[] =
        "kernel k_test { axis i0 outer 64 axis m0 map 10 axis r0 reduce 10\n"
        "buf x0 in f32 640 buf y0 out f32 640 schedule vector m0 16 parallel 64 grain 64\n"
        "stage r0 { %0 = load f32 x0[i0*10 + r0] %1 = reduce sum f32 %0 }\n"
        "stage m0 { %2 = load f32 x0[i0*10 + m0] %3 = mul f32 %2 %1 %4 = erf f32 %3\n"
        "%5 = store f32 y0[i0*10 + m0] %4 } }";
    const nnc_emitter *e = kb_emitter();
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_scan scan;
    nnc_scan_init(&scan, "t", text, strlen(text));
    const nnc_kernel *k = nnc_schedule_parse(&scan, &a, test_sink);
    nnc_target t = *kb_host();
    char *code = NULL;
    size_t n;
    t.cpu = "x86-64-v4";
    t.features = t.core = "";
    t.fma = t.f16c = true;
    t.vector_bits = 512;
    CHECK(k != NULL);
    if (!e || !k)
        return;
    CHECK_OK(e->emit(&k, 1, &t, EMIT_asm, &code, &n, test_sink));
    CHECK(strstr(code, "{%k") != NULL); /* in one vector, of which lanes are left out */
    CHECK(!strstr(code, "vexpand"));
    nnc_free(code);
}

/* A function's values are used before the next point's are computed; machine code has a loop around those of one point. */
TEST(points_of_an_epilogue_follow_each_other)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_kernel *k = block_of_functions(&a);
    const nnc_kernel *as_is = k;
    const nnc_emitter *e = kb_emitter();
    char *text = NULL;
    size_t n;
    int functions = 0, stores = 0, quotients = 0;
    if (k && e)
        CHECK_OK(e->emit(&as_is, 1, kb_host(), EMIT_llvm, &text, &n, test_sink));
    for (const char *t = text; t && (t = strstr(t, " fdiv ")); t++)
        quotients++;
    nnc_free(text);
    CHECK_INT(quotients, e ? 1 : 0);
    CHECK(k && nnc_kernel_strip(k, 0, 14, &a));
    for (int i = 0; k && i < k->n_ins; i++) {
        functions += k->ins[i].op == KO_sop && k->ins[i].sop == SC_sigmoid;
        stores += k->ins[i].op == KO_store;
        CHECK(functions - stores <= 1);
    }
    CHECK_INT(stores, 14);
}

/* An epilogue too long for strips: point by point. */
TEST(contraction_with_a_long_epilogue)
{
    const nnc_emitter *e = kb_emitter();
    nnc_text t = {0};
    nnc_puts(&t, "graph @t {\n%x = input : f32[37,50]\n%w = input : f32[50,40]\n%y = fused %x, %w "
                 "{\n%a = input : f32[37,50]\n%b = input : f32[50,40]\n%z0 = matmul %a, %b\n");
    for (int i = 0; i < 200; i++)
        nnc_printf(&t, "%%z%d = %s %%z%d\n", i + 1, i % 2 ? "floor" : "neg", i);
    nnc_puts(&t, "return %z200 }\nreturn %y }");
    if (e)
        contraction(e, nnc_text_str(&t), true, -1);
    nnc_text_deinit(&t);
}

/* Functions after the sums of a strip, whose points are a loop. Covers whole strips and shorter ones, parts of vectors, short sums and
 * such in pieces, operands per row, per column and per result. */
TEST(functions_after_strips)
{
    static const char *const epilogue[] = {"%o = silu %z", "%a = add %z, %s\n%o = sigmoid %a",
        "%g = gelu %z\n%o = mul %g, %s", "%a = mul %z, %z\n%b = exp %a\n%o = add %b, %s"};
    const nnc_emitter *e = kb_emitter();
    uint64_t key = nnc_rng_key("functions after strips", test_seed), at = 0;
    for (int i = 0; e && i < test_draws(40); i++) {
        int r[5];
        char text[700], s[40];
        for (size_t k = 0; k < NNC_COUNT(r); k++)
            r[k] = (int)(nnc_rng_u32(key, at++) % 1000);
        const int rows = 14 + r[0] % 60, columns = 16 + r[1] % 80,
                  sum = i % 4 ? 4 + r[2] % 60 : 300 + r[2] % 300;
        snprintf(s, sizeof s,
            r[3] % 3 == 0   ? "%d,%d"
            : r[3] % 3 == 1 ? "%d,1"
                            : "1,%d",
            r[3] % 3 == 2 ? columns : rows, columns);
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[%d,%d]\n%%w = input : f32[%d,%d]\n%%q = input : "
            "f32[%s]\n"
            "%%y = fused %%x, %%w, %%q {\n%%i = input : f32[%d,%d]\n%%j = input : f32[%d,%d]\n"
            "%%s = input : f32[%s]\n%%p = matmul %%i, %%j\n%%c = constant : f32[] = [0.05]\n"
            "%%z = mul %%p, %%c\n%s\nreturn %%o }\nreturn %%y }",
            rows, sum, sum, columns, s, rows, sum, sum, columns, s,
            epilogue[r[4] % NNC_COUNT(epilogue)]);
        contraction(e, text, -1, -1);
    }
}

/* This CPU, or one without fused multiply-adds. */
static nnc_target maybe_without_fma(bool fma)
{
    nnc_target t = *kb_host();
    t.fma = t.fma && fma;
    return t;
}

/* Of -inf it is NaN, as in the frameworks: -inf * 0. Small results keep their digits, and where e^(-x^2) vanishes so do they. */
TEST(gelu_of_every_16_bit_number)
{
    enum { N = 65536 };
    static uint16_t x[N], y[N];
    for (int i = 0; i < N; i++)
        x[i] = (uint16_t)i;
    for (int half = 0; kb_emitter() && half < 4; half++) {
        nnc_dtype d = half % 2 ? DT_f16 : DT_bf16;
        const nnc_target on = maybe_without_fma(half < 2);
        char text[100];
        nnc_scan scan;
        kb_code c;
        set s = {.n = 0};
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : %s[65536]\n%%y = gelu %%x\nreturn %%y }", nnc_dtype_name(d));
        nnc_scan_init(&scan, "t", text, strlen(text));
        nnc_graph *g = nnc_graph_parse(&scan, test_sink);
        nnc_arena_init(&s.arena, 0);
        if (g)
            lower_all(&s, g, &on);
        CHECK_INT(s.n, 1);
        if (s.n == 1 && kb_compile_kernel(s.k[0], &on, &c)) {
            void *args[] = {x, y};
            c.fn(args, 0, s.k[0]->sched.domain, NULL);
            double e = gelu_error(d, x, y, N);
            if (!(e <= 1))
                test_fail(__FILE__, __LINE__, "%s: %g of what is allowed", nnc_dtype_name(d), e);
            kb_free(&c);
        }
        nnc_arena_deinit(&s.arena);
        nnc_graph_destroy(g);
    }
}

typedef void window_text(nnc_text *t, uint64_t seed, bool pool);

/* Windows as kernels, by `make`; those that are no single loop nest are left out. Returns how many ran. */
static int random_windows(const nnc_emitter *e, window_text *make, uint64_t first, bool pool)
{
    set s = {.n = 0};
    nnc_arena_init(&s.arena, 0);
    for (uint64_t i = 0; i < MAX_KERNELS; i++) {
        nnc_text text = {0};
        nnc_scan scan;
        make(&text, first + i, pool);
        nnc_scan_init(&scan, "window", nnc_text_str(&text), text.n);
        nnc_sink_clear(test_sink);
        nnc_graph *g = nnc_graph_parse(&scan, test_sink);
        nnc_graph *f = g ? gen_fused(g, test_sink) : NULL;
        const nnc_kernel *k =
            f ? nnc_lower(f, &f->node[f->n_node - 1], kb_host(), MATH_ulp2, &s.arena, test_sink)
              : NULL;
        if (k)
            s.k[s.n++] = k;
        if (!f)
            test_fail(__FILE__, __LINE__, "no graph:\n%s", nnc_text_str(&text));
        nnc_graph_destroy(f);
        nnc_graph_destroy(g);
        nnc_text_deinit(&text);
    }
    nnc_sink_clear(test_sink);
    if (!run_set(&s, e, first))
        s.n = 0;
    nnc_arena_deinit(&s.arena);
    return s.n;
}

/* Windows of every stride, dilation, border, memory order and element type, with ops after them. */
TEST(random_windows)
{
    const nnc_emitter *e = kb_emitter();
    if (!e)
        return;
    for (int pool = 0; pool < 2; pool++) {
        if (test_takes((uint64_t)pool, 2))
            CHECK_INT(random_windows(e, gen_window, test_seed, pool), MAX_KERNELS);
        if (test_takes((uint64_t)pool + 1, 2))
            CHECK_USUAL(random_windows(e, gen_fed_window, test_seed, pool) > MAX_KERNELS / 2);
        if (test_takes((uint64_t)pool, 2))
            CHECK_USUAL(random_windows(e, gen_moved_window, test_seed, pool) > MAX_KERNELS / 2);
    }
}
