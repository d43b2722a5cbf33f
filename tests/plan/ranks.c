/* tests/plan/ranks.c -- plans of generated graphs over several ranks, which are threads here: results have the bits of one process. A send
 * between threads is done when it was received, so what would hang over any transport hangs here, and fails after the deadline. */
#include "gen/gen.h"
#include "help.h"
#include "ranks.h"
#include <pthread.h>

enum { MOST_IN = 64, MOST_RANKS = 5, RUNS = 3 };

static const nnc_engine *const engines[] = {&nnc_engine_interp};

nnc_exec_options ranks_options(nnc_job *job)
{
    static const nnc_device_api *const devices[] = {&nnc_device_cpu};
    return (nnc_exec_options){
        .device = devices, .n_device = 1, .engine = engines, .n_engine = 1, .job = job};
}

nnc_plan *ranks_plan(const nnc_graph *g, int streams, int devices)
{
    nnc_target t;
    nnc_plan *p = NULL;
    help_target(&t, 2);
    t.engine[0].name = engines[0]->name;
    t.n_engines = 1;
    nnc_plan_options o = {.target = &t,
        .engine = engines,
        .n_engine = 1,
        .jobs = 1,
        .streams = streams,
        .devices = devices};
    nnc_status s = nnc_plan_make(g, &o, &p, test_sink);
    if (s == NNC_OK)
        s = nnc_plan_verify(p, test_sink);
    if (s == NNC_OK)
        return p;
    nnc_plan_destroy(p);
    return NULL;
}

/* ---- followers ------------------------------------------------------------------------------- */

typedef struct follower {
    const nnc_plan *plan;
    nnc_comm *comm;
    nnc_status status;
    bool fails; /* it is expected to */
    int64_t bytes; /* that it has allocated */
    pthread_t thread;
} follower;

static int64_t allocated(const nnc_plan *p, const nnc_exec *e)
{
    int64_t bytes = 0;
    for (int d = 0; d < p->n_device; d++) {
        const nnc_exec_memory m = nnc_exec_requested(e, d);
        bytes += m.arena + m.persist;
    }
    return bytes;
}

static void *follow(void *arg)
{
    follower *f = arg;
    nnc_job *job = NULL;
    nnc_exec *e = NULL;
    nnc_sink *sink = nnc_sink_create();
    f->status = nnc_job_create(f->comm, &job, sink);
    nnc_exec_options o = ranks_options(job);
    o.no_stage = f->plan->n_cmd % 2;
    if (!f->status)
        f->status = nnc_exec_create(f->plan, &o, &e, sink);
    if (!f->status) {
        f->bytes = allocated(f->plan, e);
        f->status = nnc_job_follow(job, sink);
    }
    if (f->status && !f->fails)
        nnc_sink_print(sink, stderr);
    nnc_exec_destroy(e);
    nnc_job_destroy(job);
    nnc_sink_destroy(sink);
    return NULL;
}

/* Starts ranks 1.. of n; comm[0] is for the caller. */
static void start(const nnc_plan *p, int n, follower *f, nnc_comm **comm)
{
    CHECK_OK(nnc_comm_self(n, 20, comm, test_sink));
    for (int r = 1; r < n; r++) {
        f[r] = (follower){.plan = p, .comm = comm[r]};
        CHECK(pthread_create(&f[r].thread, NULL, follow, &f[r]) == 0);
    }
}

static void stop(int n, follower *f, nnc_comm **comm)
{
    for (int r = 1; r < n; r++) {
        pthread_join(f[r].thread, NULL);
        CHECK_OK(f[r].status);
        nnc_comm_close(comm[r]);
    }
    nnc_comm_close(comm[0]);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Outputs, then states, of RUNS runs of an executor; every second one is a step. */
static void **run(const nnc_plan *p, nnc_job *job, void *const *in, int64_t *bytes)
{
    nnc_exec *e = NULL;
    nnc_exec_options o = ranks_options(job);
    o.no_stage =
        p->n_cmd % 2; /* half of the plans: commands wait for what was sent, more of them */
    const int each = p->n_output + p->n_update;
    void **out = nnc_calloc((size_t)(RUNS * each) + 1, sizeof *out);
    if (nnc_exec_create(p, &o, &e, test_sink) != NNC_OK) {
        test_fail(__FILE__, __LINE__, "no executor");
        nnc_sink_print(test_sink, stderr);
        return out;
    }
    *bytes = allocated(p, e);
    for (int i = 0; i < p->n_input; i++)
        CHECK_OK(nnc_exec_upload(e, i, in[i]));
    for (int r = 0; r < RUNS; r++) {
        CHECK_OK(r % 2 ? nnc_exec_step(e, test_sink) : nnc_exec_run(e, test_sink));
        for (int k = 0; k < each; k++) {
            const int32_t t = k < p->n_output ? p->output[k] : p->update[k - p->n_output].state;
            void *to = out[r * each + k] = nnc_calloc(1, (size_t)p->tensor[t].bytes + 1);
            CHECK_OK(k < p->n_output
                         ? nnc_exec_download(e, k, to)
                         : nnc_exec_get_state(e, k - p->n_output, 0, p->tensor[t].bytes, to));
        }
        CHECK_OK(nnc_exec_sync(e, test_sink));
    }
    nnc_exec_destroy(e);
    return out;
}

static void compare(const nnc_plan *p, void **a, void **b, const char *what)
{
    const int each = p->n_output + p->n_update;
    for (int i = 0; i < RUNS * each; i++) {
        const int k = i % each;
        const int32_t t = k < p->n_output ? p->output[k] : p->update[k - p->n_output].state;
        if (!a[i] || !b[i] || memcmp(a[i], b[i], (size_t)p->tensor[t].bytes) != 0)
            test_fail(__FILE__, __LINE__, "%s: run %d: %s %d differs", what, i / each,
                k < p->n_output ? "output" : "state", k);
        nnc_free(a[i]);
        nnc_free(b[i]);
    }
    nnc_free(a);
    nnc_free(b);
}

void ranks_check(const nnc_plan *p, int ranks, void *const *in, const char *what)
{
    nnc_comm *comm[MOST_RANKS];
    follower f[MOST_RANKS];
    nnc_job *job = NULL;
    int64_t alone, together;
    void **want = run(p, NULL, in, &alone);
    start(p, ranks, f, comm);
    CHECK_OK(nnc_job_create(comm[0], &job, test_sink));
    void **got = run(p, job, in, &together);
    nnc_job_destroy(job);
    stop(ranks, f, comm);
    compare(p, want, got, what);
    for (int r = 1; r < ranks; r++)
        together += f[r].bytes;
    CHECK_INT(together, alone); /* each rank has its own devices' memory, and no other */
}

static void check_case(uint64_t seed, int streams, int devices, int ranks)
{
    char what[96];
    void *in[MOST_IN] = {0};
    gen_options o = {.seed = seed, .nodes = 8 + (int)(seed % 24)};
    nnc_graph *g = gen_graph(&o, test_sink);
    const uint64_t key = nnc_rng_key("place", seed);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        g->node[i].device = (int16_t)(nnc_rng_u32(key, i) % (uint32_t)devices);
    nnc_plan *p = g ? ranks_plan(g, streams, devices) : NULL;
    CHECK(p && p->n_input <= MOST_IN);
    for (int i = 0; p && i < p->n_input; i++) {
        const nnc_type *t = &p->tensor[p->input[i]].type;
        in[i] = nnc_malloc((size_t)nnc_type_bytes(t));
        gen_fill_input(t, seed, i, in[i]);
    }
    snprintf(what, sizeof what, "seed %llu, %d streams, %d devices, %d ranks",
        (unsigned long long)seed, streams, devices, ranks);
    if (p)
        ranks_check(p, ranks, in, what);
    for (int i = 0; i < MOST_IN; i++)
        nnc_free(in[i]);
    nnc_plan_destroy(p);
    nnc_graph_destroy(g);
}

TEST(ranks_generated)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(120); i++) {
        const int ranks = 2 + (int)(i % 3);
        check_case(test_seed + 5000 + i, 1 + (int)(i / 3 % 3), ranks + (int)(i / 9 % 3), ranks);
    }
    /* receives into memory that a send still reads: found among thousands */
    check_case(33265103, 1, 4, 4);
    check_case(36265162, 3, 3, 3);
}

/* States on two devices, each other's readers, and copies that only steps make. */
TEST(ranks_states)
{
    static const char text[] = "graph @sgd {\n"
                               "%x = input : f32[8,6]\n"
                               "%t = input : f32[8,4]\n"
                               "%w = param : f32[6,4] = gen(\"w\", seed=1, scale=0.5)\n"
                               "%v = param : f32[6,4] = gen(\"v\", seed=1, scale=0) device 1\n"
                               "%m = constant : f32[] = [0.9]\n"
                               "%y = matmul %x, %w\n"
                               "%e = sub %y, %t\n"
                               "%g = matmul %x, %e {transpose_a=1} device 1\n"
                               "%mv = mul %v, %m device 1\n"
                               "%v2 = add %mv, %g device 1\n"
                               "%w2 = sub %w, %v2\n"
                               "return %y as \"y\"\n"
                               "update %w <- %w2\n"
                               "update %v <- %v2\n"
                               "}\n";
    static float x[48], t[32];
    void *in[] = {x, t};
    for (int i = 0; i < 48; i++)
        x[i] = (float)(i * 7 % 11 - 5) * 0.2f;
    for (int i = 0; i < 32; i++)
        t[i] = (float)(i * 5 % 13 - 6) * 0.1f;
    for (int streams = 1; streams <= 3; streams++) {
        nnc_graph *g = help_graph(text);
        nnc_plan *p = ranks_plan(g, streams, 2);
        CHECK(p != NULL);
        if (p)
            ranks_check(p, 2, in, "states");
        nnc_plan_destroy(p);
        nnc_graph_destroy(g);
    }
}

/* Ranks with other plans are told of it, all of them. */
TEST(ranks_with_other_plans)
{
    static const char *const text[] = {"graph @t {\n%x = input : f32[4]\n%a = relu %x device 0\n%y "
                                       "= neg %a device 1\nreturn %y\n}",
        "graph @t {\n%x = input : f32[4]\n%a = neg %x device 0\n%y = relu %a device 1\nreturn "
        "%y\n}"};
    nnc_graph *g[2];
    nnc_plan *p[2];
    nnc_comm *comm[2];
    follower f = {0};
    nnc_job *job = NULL;
    nnc_exec *e = NULL;
    for (int i = 0; i < 2; i++) {
        g[i] = help_graph(text[i]);
        p[i] = ranks_plan(g[i], 1, 2);
    }
    CHECK_OK(nnc_comm_self(2, 20, comm, test_sink));
    f = (follower){.plan = p[1], .comm = comm[1], .fails = true};
    CHECK(pthread_create(&f.thread, NULL, follow, &f) == 0);
    CHECK_OK(nnc_job_create(comm[0], &job, test_sink));
    nnc_exec_options o = ranks_options(job);
    CHECK_INT(nnc_exec_create(p[0], &o, &e, test_sink), NNC_E_PEER);
    CHECK_DIAG("rank 1 has another plan");
    CHECK_DIAG("; it has layers and how they are computed: ");
    pthread_join(f.thread, NULL);
    CHECK_INT(f.status, NNC_E_PEER);
    nnc_comm_abort(comm[0], 6);
    nnc_job_destroy(job);
    for (int i = 0; i < 2; i++) {
        nnc_comm_close(comm[i]);
        nnc_plan_destroy(p[i]);
        nnc_graph_destroy(g[i]);
    }
}
