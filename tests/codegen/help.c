/* tests/codegen/help.c -- see help.h. */
#include "help.h"

#include "../gen/gen.h"

#include <math.h>

const nnc_target ck_target = {.kind = NNC_T_cpu,
    .name = "test",
    .cpu = "",
    .features = "",
    .vector_bits = 512,
    .fma = true,
    .f16c = true,
    .cores = 2,
    .threads = 2,
    .l3_bytes = 32 << 20};

const nnc_target *ck_lowered_for = &ck_target;

nnc_graph *ck_parse(const char *text)
{
    nnc_scan s;
    nnc_scan_init(&s, "t", text, strlen(text));
    return nnc_graph_parse(&s, test_sink);
}

nnc_graph *ck_fuse(const nnc_graph *g)
{
    return gen_fused(g, test_sink);
}

static const nnc_node *only_node(const nnc_graph *g)
{
    const nnc_node *found = NULL;
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) != CL_leaf || g->node[i].op == OP_iota) {
            found = &g->node[i];
            n++;
        }
    return n == 1 ? found : NULL;
}

/* One node that reads the inputs in order and whose results are the outputs in order: needs no
 * fused node around it. */
static bool is_plain(const nnc_graph *g)
{
    const nnc_node *n = only_node(g);
    nnc_ref next = 0;
    if (!n || g->n_output != n->n_out || n->n_in + 1u != g->n_node)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != next++ || nnc_def(g, n->in[i])->op != OP_input)
            return false;
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output[i] != n->out + i)
            return false;
    return true;
}

nnc_kernel *ck_lower(const nnc_graph *g, nnc_arena *a)
{
    const nnc_node *n = only_node(g);
    return n ? nnc_lower(g, n, ck_lowered_for, MATH_ulp2, a, test_sink) : NULL;
}

int ck_count(const nnc_kernel *k, nnc_kop op, int sop)
{
    int n = 0;
    for (int i = 0; i < k->n_ins; i++)
        n += k->ins[i].op == op && (sop < 0 || k->ins[i].sop == sop);
    return n;
}

bool ck_one_kernel(const nnc_graph *g, nnc_arena *a, const char **why)
{
    uint32_t nodes[1024];
    nnc_ref outs[1024];
    int n = 0, n_out = 0;
    for (uint32_t i = 0; i < g->n_node && n < 1024; i++) {
        if (nnc_op_class((nnc_op)g->node[i].op) == CL_leaf)
            continue;
        nodes[n++] = i;
        for (uint32_t v = g->node[i].out; v < g->node[i].out + g->node[i].n_out; v++)
            for (uint32_t o = 0; o < g->n_output && n_out < 1024; o++)
                if (g->output[o] == v) {
                    outs[n_out++] = v;
                    break;
                }
    }
    return nnc_kernel_possible(g, nodes, n, outs, n_out, 16384, 0, a, why);
}

/* parse(print(k)) prints the same, and has the same hash. */
static bool round_trip(const nnc_kernel *k, const char *what)
{
    nnc_text t = {0}, u = {0};
    nnc_arena a;
    nnc_scan s;
    nnc_arena_init(&a, 0);
    nnc_kernel_print(&t, k);
    nnc_scan_init(&s, "k", nnc_text_str(&t), t.n);
    nnc_kernel *p = nnc_schedule_parse(&s, &a, test_sink);
    bool ok = p != NULL;
    if (p) {
        nnc_kernel_print(&u, p);
        nnc_hash128 h = nnc_kernel_hash(k), i = nnc_kernel_hash(p);
        ok = strcmp(nnc_text_str(&t), nnc_text_str(&u)) == 0 && h.lo == i.lo && h.hi == i.hi &&
             p->scratch_bytes == k->scratch_bytes;
    }
    if (!ok) {
        test_fail(
            __FILE__, __LINE__, "%s: round trip\n%s\n%s", what, nnc_text_str(&t), nnc_text_str(&u));
        nnc_sink_print(test_sink, stderr);
    }
    nnc_text_deinit(&t);
    nnc_text_deinit(&u);
    nnc_arena_deinit(&a);
    return ok;
}

/* Element i (row-major) of a tensor stands where in memory? */
static int64_t place(const nnc_type *t, int64_t i)
{
    int64_t stride[NNC_MAX_RANK], at = 0;
    nnc_type_strides(t, stride);
    for (int d = t->rank - 1; d >= 0; d--) {
        at += i % t->dim[d] * stride[d];
        i /= t->dim[d];
    }
    return at;
}

static void to_memory(const nnc_type *t, const char *src, char *dst)
{
    int64_t n = nnc_type_numel(t), size = nnc_dtype_size((nnc_dtype)t->dtype);
    for (int64_t i = 0; i < n; i++)
        memcpy(dst + place(t, i) * size, src + i * size, (size_t)size);
}

/* Is each element near enough? `what`: says which is not; NULL: silent. */
static bool agrees(
    const nnc_type *t, const char *mem, const nnc_rval *want, ck_bound b, const char *what)
{
    nnc_dtype d = (nnc_dtype)t->dtype;
    int64_t n = nnc_type_numel(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = place(t, i);
        if (!nnc_is_float(d)) {
            if (nnc_get_i64(d, mem, at) == want->i[i])
                continue;
            if (what)
                test_fail(__FILE__, __LINE__, "%s: element %lld is %lld, not %lld", what,
                    (long long)i, (long long)nnc_get_i64(d, mem, at), (long long)want->i[i]);
            return false;
        }
        double g = nnc_get_f64(d, mem, at), w = want->f[i];
        double eps = d == DT_f16 ? 0x1p-10 : d == DT_bf16 ? 0x1p-7 : 0;
        bool near = fabs(g - w) <= b.abs + (b.rel + eps) * fabs(w);
        bool over = isinf(g) && fabs(w) > (d == DT_f16 ? 65000 : d == DT_f64 ? INFINITY : 3.4e38);
        if (near || g == w || (g != g && w != w) || over)
            continue;
        if (what)
            test_fail(
                __FILE__, __LINE__, "%s: element %lld is %.9g, not %.9g", what, (long long)i, g, w);
        return false;
    }
    return true;
}

static void run_parts(const nnc_kernel *k, void *const *args, int parts)
{
    nnc_interp *s = nnc_interp_create(k);
    char *scratch = nnc_aligned_alloc(64, (size_t)k->scratch_bytes + 64);
    for (int p = 0; s && scratch && p < parts; p++) {
        int64_t b, e;
        nnc_par_range(k->sched.domain, 1, p, parts, &b, &e);
        if (b < e)
            nnc_interp_run(s, args, b, e, scratch);
    }
    nnc_free(scratch);
    nnc_interp_destroy(s);
}

typedef struct data {
    void *row[256], *args[512];
    int n_in, n_arg;
} data;

/* Inputs twice: row-major for the evaluator, in memory order for the kernel. */
static void make_inputs(data *d, const nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        if (g->node[i].op != OP_input || d->n_in == NNC_COUNT(d->row))
            continue;
        const nnc_type *t = nnc_typeof(g, g->node[i].out);
        size_t bytes = (size_t)nnc_type_bytes(t);
        d->row[d->n_in] = nnc_malloc(bytes);
        d->args[d->n_in] = nnc_aligned_alloc(64, bytes);
        gen_fill_input(t, test_seed, d->n_in, d->row[d->n_in]);
        to_memory(t, d->row[d->n_in], d->args[d->n_in]);
        d->n_arg = ++d->n_in;
    }
}

/* The mean square by which simulated rounding changes the finite elements of output k: `nnc verify` allows 16 times as much. */
static double rounding_of(const data *d, const nnc_graph *g, uint32_t k, const nnc_rval *want)
{
    enum { ROUNDINGS = 16 };
    double square = 0;
    NNC_FREED nnc_rval *v = nnc_calloc(g->n_output, sizeof *v);
    for (uint64_t seed = 1; v && seed <= ROUNDINGS; seed++) {
        const nnc_rounding r = {.seed = seed};
        if (nnc_eval_rounded(g, (const void *const *)d->row, 1, &r, v, test_sink))
            return 0;
        for (int64_t i = 0; i < nnc_type_numel(&want->type); i++) {
            const double e = v[k].f[i] - want->f[i];
            square += isfinite(e) ? e * e / ROUNDINGS : 0;
        }
        for (uint32_t o = 0; o < g->n_output; o++)
            nnc_rval_free(&v[o]);
    }
    return square;
}

/* Does output k differ by no more than rounding explains? NaN and infinity are where they are expected. */
static bool is_rounding(const data *d, const nnc_graph *g, uint32_t k, const nnc_rval *want)
{
    enum { FACTOR = 16 };
    const nnc_type *t = nnc_typeof(g, g->output[k]);
    const char *mem = d->args[d->n_in + (int)k];
    double square = 0;
    if (!nnc_is_float((nnc_dtype)t->dtype))
        return false;
    for (int64_t i = 0; i < nnc_type_numel(t); i++) {
        const double x = nnc_get_f64((nnc_dtype)t->dtype, mem, place(t, i)), y = want->f[i];
        if (isfinite(x) && isfinite(y))
            square += (x - y) * (x - y);
        else if (x != y && !(isnan(x) && isnan(y)))
            return false;
    }
    return square <= FACTOR * rounding_of(d, g, k, want);
}

static bool compare(
    data *d, const nnc_graph *g, const nnc_kernel *k, ck_bound b, int parts, const char *what)
{
    bool ok = true;
    nnc_rval *want = nnc_calloc(g->n_output, sizeof *want);
    nnc_status s = nnc_eval(g, (const void *const *)d->row, 1, want, test_sink);
    if (s != NNC_OK) {
        test_fail(__FILE__, __LINE__, "%s: reference: %s", what, nnc_status_name(s));
        nnc_sink_print(test_sink, stderr);
        nnc_free(want);
        return false;
    }
    for (uint32_t i = 0; i < g->n_output; i++) {
        size_t bytes = (size_t)nnc_type_bytes(nnc_typeof(g, g->output[i]));
        d->args[d->n_arg] = nnc_aligned_alloc(64, bytes);
        memset(d->args[d->n_arg++], 0x5a, bytes);
    }
    run_parts(k, d->args, parts);
    for (uint32_t i = 0; i < g->n_output && ok; i++) {
        const nnc_type *t = nnc_typeof(g, g->output[i]);
        const char *got = d->args[d->n_in + (int)i];
        ok = agrees(t, got, &want[i], b, NULL) || is_rounding(d, g, i, &want[i]) ||
             agrees(t, got, &want[i], b, what);
    }
    for (uint32_t i = 0; i < g->n_output; i++)
        nnc_rval_free(&want[i]);
    nnc_free(want);
    return ok;
}

bool ck_check(
    const nnc_graph *g, ck_bound bound, int parts, const char *what, nnc_arena *a, nnc_kernel **out)
{
    nnc_graph *f = is_plain(g) ? NULL : ck_fuse(g);
    const nnc_graph *h = f ? f : g;
    nnc_kernel *k = ck_lower(h, a);
    bool ok = k && nnc_schedule_verify(k, test_sink) == NNC_OK;
    if (!ok) {
        nnc_text t = {0};
        if (k)
            nnc_kernel_print(&t, k);
        test_fail(__FILE__, __LINE__, "%s: no valid kernel\n%s", what, nnc_text_str(&t));
        nnc_sink_print(test_sink, stderr);
        nnc_text_deinit(&t);
    }
    data d = {0};
    ok = ok && round_trip(k, what);
    if (ok) {
        make_inputs(&d, g);
        ok = compare(&d, g, k, bound, parts, what);
        if (!ok) {
            nnc_text t = {0};
            nnc_kernel_print(&t, k);
            fprintf(stderr, "%s\n", nnc_text_str(&t));
            nnc_text_deinit(&t);
        }
    }
    for (int i = 0; i < d.n_arg; i++)
        nnc_free(d.args[i]);
    for (int i = 0; i < d.n_in; i++)
        nnc_free(d.row[i]);
    nnc_graph_destroy(f);
    if (out)
        *out = k;
    return ok;
}

bool ck_text(const char *text, ck_bound bound)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_sink_clear(test_sink);
    nnc_graph *g = ck_parse(text);
    if (!g && (test_has_diag("must be a float") ||
                  test_has_diag(
                      "must be an integer"))) /* the op does not take this type: nothing to lower */
        return true;
    bool ok = g && ck_check(g, bound, 3, text, &a, NULL);
    if (!g) {
        test_fail(__FILE__, __LINE__, "does not parse:\n%s", text);
        nnc_sink_print(test_sink, stderr);
    }
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
    return ok;
}
