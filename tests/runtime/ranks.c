/* tests/runtime/ranks.c -- plans made by hand over two ranks, which are threads: order that only events give, and failures, of which both
 * ranks hear. */
#include "plans.h"
#include "runtime/exec.h"
#include <pthread.h>
#include <string.h>

typedef struct rank {
    const nnc_plan *p;
    nnc_comm *comm;
    nnc_status status;
    nnc_sink *sink;
    pthread_t thread;
} rank;

static bool without_sync; /* outputs are downloaded without waiting for the run */
static int their_lenders; /* commands of rank 1 after which a receive begins */
static char their_words[256]; /* rank 1's first message of the last job */

static void *follow(void *arg)
{
    rank *r = arg;
    nnc_job *job = NULL;
    nnc_exec *e = NULL;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    r->status = nnc_job_create(r->comm, &job, r->sink);
    o.job = job;
    if (!r->status)
        r->status = nnc_exec_create(r->p, &o, &e, r->sink);
    their_lenders = r->status ? 0 : (int)e->ranks->n_lender;
    if (!r->status)
        r->status = nnc_job_follow(job, r->sink);
    if (r->status)
        nnc_comm_abort(r->comm, 6); /* as the program does */
    nnc_exec_destroy(e);
    nnc_job_destroy(job);
    return NULL;
}

/* Runs p over two ranks, `runs` times; the first status that is no success, and rank 1's. */
static nnc_status run(const nnc_plan *p, int runs, float (*want)(int, float), nnc_status *theirs)
{
    static float x[VALUES], y[VALUES];
    nnc_comm *comm[2];
    nnc_job *job = NULL;
    nnc_exec *e = NULL;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    CHECK_OK(nnc_comm_self(2, 10, comm, test_sink));
    rank r = {.p = p, .comm = comm[1], .sink = nnc_sink_create()};
    CHECK(r.sink != NULL);
    CHECK(pthread_create(&r.thread, NULL, follow, &r) == 0);
    nnc_status st = nnc_job_create(comm[0], &job, test_sink);
    o.job = job;
    if (!st)
        st = nnc_exec_create(p, &o, &e, test_sink);
    for (int k = 0; k < runs && !st; k++) {
        for (int i = 0; i < VALUES; i++)
            x[i] = (float)(i + k);
        st = nnc_exec_upload(e, 0, x);
        st = st ? st : nnc_exec_run(e, test_sink);
        st = st || without_sync ? st : nnc_exec_sync(e, test_sink);
        st = st ? st : nnc_exec_download(e, 0, y);
        st = st ? st : nnc_exec_sync(e, test_sink);
        for (int i = 0; i < VALUES && !st; i++)
            if (y[i] != want(i, x[i])) {
                test_fail(__FILE__, __LINE__, "run %d: element %d is %g, not %g", k, i,
                    (double)y[i], (double)want(i, x[i]));
                break;
            }
    }
    if (st)
        (void)nnc_job_failure(job, test_sink);
    if (st)
        nnc_comm_abort(comm[0], 6);
    nnc_exec_destroy(e);
    nnc_job_destroy(job);
    pthread_join(r.thread, NULL);
    *theirs = r.status;
    snprintf(their_words, sizeof their_words, "%s",
        nnc_sink_count(r.sink) ? nnc_sink_at(r.sink, 0)->message : "");
    nnc_sink_destroy(r.sink);
    nnc_comm_close(comm[0]);
    nnc_comm_close(comm[1]);
    return st;
}

TEST(ranks_of_plans)
{
    nnc_plan *const p[] = {plan_diamond(), plan_meeting(), plan_reuse()};
    float (*const want[])(int, float) = {diamond_result, meeting_result, reuse_result};
    for (size_t i = 0; i < NNC_COUNT(p); i++) {
        nnc_status theirs;
        CHECK_OK(run(p[i], 20, want[i], &theirs));
        CHECK_OK(theirs);
        CHECK_INT(toy_loaded, 0);
        /* only plan_reuse receives into memory that was used: the second copy, after the doubling */
        CHECK_INT(their_lenders, i == 2);
        plan_free(p[i]);
    }
}

/* A failure that a download meets, which has no sink: its layer is not lost. */
TEST(ranks_with_a_failure_met_by_a_download)
{
    nnc_plan *p = plan_reuse();
    nnc_status theirs;
    p->kernel[1].symbol = "fail"; /* runs on cpu:1 */
    without_sync = true;
    CHECK_INT(run(p, 1, reuse_result, &theirs), NNC_E_DEVICE);
    without_sync = false;
    CHECK_DIAG("rank 1 failed: device or library failed");
    plan_free(p);
}

/* A command that fails on rank 1: the run's messages come all the same, rank 0 hears of it, and neither waits for the deadline. */
TEST(ranks_with_a_failing_command)
{
    nnc_plan *p = plan_reuse();
    nnc_status theirs;
    p->kernel[1].symbol = "fail"; /* runs on cpu:1 */
    const int64_t from = nnc_now_ns();
    CHECK_INT(run(p, 1, reuse_result, &theirs), NNC_E_DEVICE);
    CHECK_INT(theirs, NNC_E_DEVICE);
    CHECK_DIAG("rank 1 failed: device or library failed");
    CHECK_STR(their_words, "rank 1: cpu:1: /toy: device or library failed");
    CHECK((double)(nnc_now_ns() - from) < 5e9);
    CHECK_INT(toy_loaded, 0);
    plan_free(p);
}

/* What rank 1 cannot load, rank 0 hears of before it runs. */
TEST(ranks_with_a_missing_file)
{
    nnc_plan *p = plan_reuse();
    nnc_status theirs;
    for (int i = 0; i < p->end[SEC_init]; i++) /* the weights are cpu:1's */
        p->cmd[i].device = 1;
    p->weight[0] =
        (nnc_weight){.kind = NNC_W_file, .name = "w", .file = "/nowhere/w.bin", .size = VALUES * 4};
    for (int t = 0; t < p->n_tensor; t++)
        if (p->tensor[t].space != SP_arena)
            p->tensor[t].device = 1;
    p->device[1].persist_bytes = p->device[0].persist_bytes;
    p->device[1].init_bytes = p->device[0].init_bytes;
    CHECK_INT(run(p, 1, reuse_result, &theirs), NNC_E_PEER);
    CHECK_INT(theirs, NNC_E_IO);
    CHECK_DIAG("rank 1 could not load its part of the model");
    plan_free(p);
}
