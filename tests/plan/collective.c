/* tests/plan/collective.c -- collectives of drawn shapes, types and groups: against the reference, over ranks, and plans that lie. */
#include "gen/gen.h"
#include "help.h"
#include "ranks.h"

enum { MOST = 5 };

typedef struct draw {
    nnc_op op;
    const char *how;
    nnc_dtype type;
    int n, rank, axis, streams, turn;
    int64_t dim[3];
} draw;

static uint32_t pick(uint64_t key, int i, uint32_t n)
{
    return nnc_rng_u32(key, (uint64_t)i) % n;
}

static draw drawn(uint64_t seed)
{
    static const nnc_op op[] = {OP_allreduce, OP_allgather, OP_reduce_scatter};
    static const char *const how[] = {"add", "add", "min", "max"};
    static const nnc_dtype type[] = {
        DT_f32, DT_f32, DT_f16, DT_bf16, DT_f64, DT_i32, DT_u8, DT_i64};
    const uint64_t key = nnc_rng_key("collective", seed);
    draw d = {.op = op[pick(key, 0, 3)],
        .how = how[pick(key, 1, 4)],
        .type = type[pick(key, 2, 8)],
        .n = 1 + (int)pick(key, 3, MOST),
        .rank = 1 + (int)pick(key, 4, 3),
        .streams = 1 + (int)pick(key, 5, 3)};
    d.axis = (int)pick(key, 6, (uint32_t)d.rank);
    d.turn = (int)pick(key, 20, 3);
    for (int i = 0; i < d.rank; i++)
        d.dim[i] = 1 + pick(key, 7 + i, i ? 9 : 40);
    if (d.op == OP_reduce_scatter)
        d.dim[d.axis] *= d.n;
    return d;
}

/* Each participant's input is negated on its device, or `turn` devices before it, and its result there. */
static nnc_graph *graph_of(const draw *d)
{
    nnc_graph *g = nnc_graph_create("t", test_sink);
    nnc_ref in[MOST];
    for (int k = 0; k < d->n; k++) {
        nnc_type t = nnc_type_make(d->type, d->rank, d->dim);
        t.dim[d->axis] += d->op == OP_allgather ? k % 2 : 0;
        g->device = (int16_t)k;
        in[k] = nnc_build1(g, OP_neg, nnc_input(g, NULL, &t));
    }
    int64_t device[MOST];
    for (int k = 0; k < d->n; k++)
        device[k] = (k + d->turn) % d->n;
    nnc_attr at[3];
    int n_at = 0;
    if (d->op != OP_allgather)
        at[n_at++] = nnc_aw(AT_reduction, d->how);
    if (d->op != OP_allreduce)
        at[n_at++] = nnc_ai(AT_axis, d->axis);
    if (d->turn)
        at[n_at++] = nnc_av(AT_devices, d->n, device);
    g->device = -1;
    g->origin = "/meet";
    const nnc_ref y = nnc_build(g, d->op, d->n, in, n_at, at);
    for (int k = 0; k < d->n && y != NNC_NONE; k++) {
        g->device = (int16_t)device[k];
        nnc_output(g, nnc_build1(g, OP_neg, y + (nnc_ref)k), NULL);
    }
    return g;
}

/* Small integers: sums are exact in every type. */
static void fill(const nnc_type *t, uint64_t seed, int k, void *to)
{
    const uint64_t key = nnc_rng_key("numbers", seed + (uint64_t)k);
    for (int64_t i = 0; i < nnc_type_numel(t); i++) {
        const int64_t v = nnc_rng_u32(key, (uint64_t)i) % 17;
        if (nnc_is_float((nnc_dtype)t->dtype))
            nnc_set_f64((nnc_dtype)t->dtype, to, i, (double)(v - 8));
        else
            nnc_set_i64((nnc_dtype)t->dtype, to, i, v);
    }
}

static void check_against_reference(
    const nnc_graph *g, const nnc_plan *p, void *const *in, const char *what)
{
    nnc_exec *e = NULL;
    nnc_exec_options o = ranks_options(NULL);
    nnc_rval want[MOST] = {0};
    CHECK_OK(nnc_eval(g, (const void *const *)in, 1, want, test_sink));
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    for (int i = 0; e && i < p->n_input; i++)
        CHECK_OK(nnc_exec_upload(e, i, in[i]));
    for (int again = 0; e && again < 3; again++)
        CHECK_OK(nnc_exec_run(e, test_sink));
    for (int k = 0; e && k < p->n_output; k++) {
        const nnc_type *t = &p->tensor[p->output[k]].type;
        const size_t bytes = (size_t)nnc_type_bytes(t);
        void *got = nnc_malloc(bytes), *ref = nnc_malloc(bytes);
        CHECK_OK(nnc_exec_download(e, k, got));
        CHECK_OK(nnc_exec_sync(e, test_sink));
        nnc_rval_store(&want[k], ref);
        bool same = true; /* -0 and 0 are */
        for (int64_t i = 0; i < nnc_type_numel(t); i++)
            same = same && nnc_get_f64((nnc_dtype)t->dtype, got, i) ==
                               nnc_get_f64((nnc_dtype)t->dtype, ref, i);
        if (!same)
            test_fail(__FILE__, __LINE__, "%s: result %d is wrong", what, k);
        nnc_free(got);
        nnc_free(ref);
    }
    nnc_exec_destroy(e);
    for (int k = 0; k < MOST; k++)
        nnc_rval_free(&want[k]);
}

static void check_draw(draw d, uint64_t seed)
{
    char what[128];
    void *in[MOST] = {0};
    nnc_graph *g = graph_of(&d);
    CHECK_OK(g->status);
    CHECK_OK(nnc_verify(g, test_sink));
    nnc_plan *p = ranks_plan(g, d.streams, d.n);
    CHECK(p != NULL);
    snprintf(what, sizeof what, "seed %llu: %s %s of %s, %d participants, %d dimensions, axis %d",
        (unsigned long long)seed, nnc_ops[d.op].name, d.how, nnc_dtype_name(d.type), d.n, d.rank,
        d.axis);
    for (int i = 0; p && i < p->n_input; i++) {
        const nnc_type *t = &p->tensor[p->input[i]].type;
        in[i] = nnc_malloc((size_t)nnc_type_bytes(t));
        fill(t, seed, i, in[i]);
    }
    if (p) {
        help_check(p);
        CHECK_INT(help_count(p, CMD_collective), d.n);
        CHECK_INT(help_count(p, CMD_copy),
            d.turn % d.n ? d.n : 0); /* operands and results are where they are used */
        check_against_reference(g, p, in, what);
        for (int i = 0; i < p->n_input; i++) /* floats whose sums are rounded */
            gen_fill_input(&p->tensor[p->input[i]].type, seed, i, in[i]);
        if (d.n > 1)
            ranks_check(p, 2 + (int)(seed % (uint64_t)(d.n - 1)), in, what);
    }
    for (int i = 0; i < MOST; i++)
        nnc_free(in[i]);
    nnc_plan_destroy(p);
    nnc_graph_destroy(g);
}

TEST(collectives_generated)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(200); i++)
        check_draw(drawn(test_seed + i), test_seed + i);
}

/* Reductions of large tensors take several rounds, the last of a few elements or none, and little workspace. */
TEST(collectives_in_rounds)
{
    static const struct {
        nnc_op op;
        int n;
        int64_t more; /* elements beyond one round of each part */
    } of[] = {{OP_reduce_scatter, 3, 7}, {OP_allreduce, 2, 8}};
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        draw d = {
            .op = of[i].op, .how = "add", .type = DT_f32, .n = of[i].n, .rank = 1, .streams = 1};
        const bool scatters = d.op == OP_reduce_scatter;
        d.dim[0] = d.n * (NNC_COLLECTIVE_ROUND / 4 + of[i].more) + !scatters;
        const nnc_collective c = {
            .kind = scatters ? COLL_reduce_scatter : COLL_allreduce, .n = d.n, .outer = 1};
        CHECK_INT(nnc_collective_work(&c, 4 * d.dim[0], 4 * d.dim[0] / (scatters ? d.n : 1), 4),
            d.n * NNC_COLLECTIVE_ROUND);
        check_draw(d, i);
    }
}

/* Sums are from the first participant to the last, in f32. */
TEST(collectives_sum_in_order)
{
    enum { N = 3, MANY = 100 };
    static float x[N][MANY], got[MANY];
    nnc_graph *g = help_graph("graph @t {\n"
                              "%x = input : f32[100] device 0\n%y = input : f32[100] device 1\n"
                              "%z = input : f32[100] device 2\n"
                              "%a, %b, %c = allreduce %x, %y, %z\nreturn %a, %b, %c\n}");
    nnc_plan *p = ranks_plan(g, 1, N);
    nnc_exec *e = NULL;
    nnc_exec_options o = ranks_options(NULL);
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < MANY; i++)
            x[k][i] = (float)(i + 1) * (k == 0 ? 1e-7f : k == 1 ? 1.0f : -0.9999f);
        CHECK_OK(nnc_exec_upload(e, k, x[k]));
    }
    CHECK_OK(nnc_exec_run(e, test_sink));
    for (int k = 0; k < N; k++) {
        CHECK_OK(nnc_exec_download(e, k, got));
        CHECK_OK(nnc_exec_sync(e, test_sink));
        for (int i = 0; i < MANY; i++)
            CHECK_NEAR(got[i], (x[0][i] + x[1][i]) + x[2][i], 0);
    }
    nnc_exec_destroy(e);
    nnc_plan_destroy(p);
    nnc_graph_destroy(g);
}

static const char two[] = "graph @t {\n"
                          "%x = input : f32[64] device 0\n%y = input : f32[64] device 1\n"
                          "%p = neg %x device 0 loc \"/p\"\n%q = neg %y device 1 loc \"/q\"\n"
                          "%a, %b = allreduce %p, %q loc \"/meet\"\n"
                          "%r = neg %a device 0\n%s = neg %b device 1\nreturn %r, %s\n}";

/* The plan of `two`, changed by the statements, is rejected; m: the first participant's command. */
#define LIE(why, ...) \
    do { \
        nnc_plan *p = help_plan_text(two, 1, 2); \
        CHECK(p != NULL); \
        if (p) { \
            int m = help_at(p, "/meet"); \
            nnc_cmd *c = &p->cmd[m]; \
            (void)c; \
            __VA_ARGS__; \
            help_rejected(p, why); \
        } \
        nnc_plan_destroy(p); \
    } while (0)

TEST(collectives_that_lie)
{
    LIE("no such collective", c->item = 1);
    LIE("devices: 0 is out of range", p->collective[0].n = 0);
    LIE("it has not one command for each participant", p->collective[0].n = 1);
    LIE("its workspace is too small", c->work = -1);
    LIE("the result is not one of equal parts", p->collective[0].kind = COLL_reduce_scatter);
    LIE("a result is not as large as all operands", p->collective[0].kind = COLL_allgather);
    LIE("a participant has an operand and a result", c->n_arg = 1);
    LIE("collective", p->collective[0].kind = COLL__COUNT);
    /* what comes after one participant's command may not come before another's */
    LIE("between a collective's", nnc_cmd t = c[1]; c[1] = c[2]; c[2] = t);
}

/* A GPU, and two participants on one device. */
TEST(collectives_that_cannot_be)
{
    nnc_graph *g = help_graph(two);
    for (uint32_t i = 0; i < g->n_node; i++)
        g->node[i].device = 0;
    CHECK(help_plan(g, 1, 2) == NULL);
    CHECK_DIAG("operands 1 and 2 are both computed on device 0");
    nnc_graph_destroy(g);
}

/* A concat on device 0 that a result on device 1 lies in: whoever made such a graph, its plan is not run. */
TEST(collectives_in_a_concat_elsewhere)
{
    nnc_graph *g = help_graph("graph @t {\n"
                              "%x = input : f32[64,640] device 0\n"
                              "%y = input : f32[64,640] device 1\n"
                              "%w = param : f32[640,640] = gen(\"w\", seed=1, scale=0.1) device 0\n"
                              "%p = neg %x device 0\n%q = neg %y device 1\n"
                              "%a, %b = allreduce %p, %q\n%m = matmul %a, %w device 0\n"
                              "%c = concat %b, %m {axis=0, in_place=1} device 0\n"
                              "%r = matmul %c, %w device 0\nreturn %r\n}");
    CHECK(help_plan(g, 1, 2) == NULL);
    CHECK_DIAG("may still use");
    nnc_graph_destroy(g);
}
