/* tests/comm/comm.c -- messages between threads: data, order, communicators apart, and every failure in bounded time. */
#include "comm/comm.h"
#include "test.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

typedef struct peer {
    nnc_comm *c;
    nnc_status status;
    pthread_t thread;
    int round;
} peer;

static void begin(peer *p, nnc_comm *c, void *(*fn)(void *))
{
    *p = (peer){.c = c};
    CHECK(pthread_create(&p->thread, NULL, fn, p) == 0);
}

/* Two ranks of one process, closed by end(). */
static void pair(nnc_comm **c, double timeout_s)
{
    CHECK_OK(nnc_comm_self(2, timeout_s, c, test_sink));
    CHECK_INT(nnc_comm_rank(c[1]), 1);
    CHECK_INT(nnc_comm_world(c[1]), 2);
}

static void end(nnc_comm **c)
{
    nnc_comm_close(c[0]);
    nnc_comm_close(c[1]);
}

enum { MANY = 200 };

/* Echoes what it gets, and its successor. */
static void *echo(void *arg)
{
    peer *p = arg;
    for (int i = 0; i < MANY && !p->status; i++) {
        int v = 0;
        p->status = nnc_comm_recv(p->c, &v, sizeof v, 0, 7, "echo");
        v++;
        if (!p->status)
            p->status = nnc_comm_send(p->c, &v, sizeof v, 0, 8, "echo");
    }
    return NULL;
}

TEST(comm_messages)
{
    nnc_comm *c[2];
    peer p;
    pair(c, 20);
    begin(&p, c[1], echo);
    for (int i = 0; i < MANY; i++) {
        int back = 0;
        CHECK_OK(nnc_comm_send(c[0], &i, sizeof i, 1, 7, "there"));
        CHECK_OK(nnc_comm_recv(c[0], &back, sizeof back, 1, 8, "back"));
        CHECK_INT(back, i + 1);
    }
    pthread_join(p.thread, NULL);
    CHECK_OK(p.status);
    end(c);
}

/* Messages of one tag keep their order; those of other tags and communicators pass by. */
TEST(comm_order)
{
    nnc_comm *c[2], *d[2];
    int sent[4] = {1, 2, 3, 4}, got[4] = {0};
    nnc_message m[8];
    pair(c, 20);
    CHECK_OK(nnc_comm_split(c[0], &d[0], test_sink));
    CHECK_OK(nnc_comm_split(c[1], &d[1], test_sink));
    for (int i = 0; i < 4; i++) { /* 1 and 2: tag 5; 3: tag 6; 4: tag 5 of the other communicator */
        m[i] = (nnc_message){&sent[i], sizeof(int), 1, i == 2 ? 6 : 5, true, NULL, false};
        CHECK_OK(nnc_comm_start(i == 3 ? d[0] : c[0], &m[i], "send"));
    }
    static const int in_turn[] = {3, 2, 0, 1};
    for (int k = 0; k < 4; k++) {
        const int i = in_turn[k];
        m[4 + i] = (nnc_message){&got[i], sizeof(int), 0, i == 2 ? 6 : 5, false, NULL, false};
        CHECK_OK(nnc_comm_start(i == 3 ? d[1] : c[1], &m[4 + i], "recv"));
    }
    CHECK_OK(nnc_comm_finish(c[0], m, 3, "sent"));
    CHECK_OK(nnc_comm_finish(c[1], m + 4, 3, "received"));
    CHECK_OK(nnc_comm_finish(d[0], m + 3, 1, "sent"));
    CHECK_OK(nnc_comm_finish(d[1], m + 7, 1, "received"));
    for (int i = 0; i < 4; i++)
        CHECK_INT(got[i], sent[i]);
    end(d);
    end(c);
}

/* A rank that does not answer is given up after the deadline, with a message that says who waited for whom and for what. */
TEST(comm_deadline)
{
    nnc_comm *c[2];
    int v;
    pair(c, 0.2);
    const int64_t from = nnc_now_ns();
    CHECK_INT(nnc_comm_recv(c[0], &v, sizeof v, 1, 3, "/layers/4: copy"), NNC_E_PEER);
    const double s = (double)(nnc_now_ns() - from) * 1e-9;
    CHECK(s >= 0.2 && s < 5);
    CHECK(!nnc_comm_failure(c[0], NULL)); /* nobody has heard of it */
    CHECK(nnc_comm_failure(c[0], test_sink));
    CHECK_DIAG("rank 0: /layers/4: copy: rank 1 has not sent for 0.2 s (--comm-timeout)");
    CHECK(!nnc_comm_failure(c[0], test_sink)); /* once */
    CHECK_INT(nnc_comm_send(c[0], &v, sizeof v, 1, 3, "later"), NNC_E_PEER); /* at once */
    CHECK((double)(nnc_now_ns() - from) * 1e-9 < s + 0.15);
    end(c);
}

/* Where memory runs out in a split, that is what it says, and nothing is left. */
TEST(comm_split_without_memory)
{
    nnc_status st = NNC_E_NOMEM;
    int n = 1;
    for (; st && n < 8; n++) {
        nnc_comm *c[2], *d = NULL;
        pair(c, 5);
        nnc_fail_alloc_after(n);
        st = nnc_comm_split(c[0], &d, NULL);
        nnc_fail_alloc_after(0);
        CHECK(st == NNC_OK || st == NNC_E_NOMEM);
        if (st && nnc_comm_failure(c[0], test_sink))
            CHECK_DIAG("joining the other ranks: out of memory");
        nnc_comm_close(d);
        end(c);
    }
    CHECK_OK(st);
    CHECK_INT(n, 4); /* the group, and the communicator */
}

TEST(comm_sizes_differ)
{
    nnc_comm *c[2];
    int v[2] = {1, 2};
    pair(c, 5);
    nnc_message m = {v, sizeof v, 1, 3, true, NULL, false};
    CHECK_OK(nnc_comm_start(c[0], &m, "send"));
    CHECK_INT(nnc_comm_recv(c[1], v, sizeof v[0], 0, 3, "/x: copy"), NNC_E_PEER);
    CHECK(nnc_comm_failure(c[1], test_sink));
    CHECK_DIAG(
        "rank 1: /x: copy: receiving from rank 0: the other rank's message has another size");
    CHECK_INT(nnc_comm_finish(c[0], &m, 1, "send"), NNC_E_PEER);
    end(c);
}

static void *wait_long(void *arg)
{
    peer *p = arg;
    int v;
    p->status = nnc_comm_recv(p->c, &v, sizeof v, 0, 1, "a message that never comes");
    return NULL;
}

/* A rank that gives up ends the others' waits at once, in all communicators. */
TEST(comm_abort)
{
    nnc_comm *c[2], *d[2];
    peer p;
    pair(c, 60);
    CHECK_OK(nnc_comm_split(c[0], &d[0], test_sink));
    CHECK_OK(nnc_comm_split(c[1], &d[1], test_sink));
    const int64_t from = nnc_now_ns();
    begin(&p, d[1], wait_long);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    nnc_comm_abort(c[0], 6);
    pthread_join(p.thread, NULL);
    CHECK_INT(p.status, NNC_E_PEER);
    CHECK(nnc_comm_failure(c[1], test_sink));
    CHECK_DIAG("another rank has given up");
    CHECK((double)(nnc_now_ns() - from) * 1e-9 < 10);
    end(d);
    end(c);
}

/* ---- discovery ------------------------------------------------------------------------------- */

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMIX_SIZE", "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS", "RANK", "WORLD_SIZE", "LOCAL_RANK",
    "LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "MASTER_ADDR",
    "TORCHELASTIC_RUN_ID"};

/* Sets the environment to these variables alone: name, value, ..., NULL. */
static void launch(const char *const *set)
{
    for (size_t i = 0; i < NNC_COUNT(variables); i++)
        unsetenv(variables[i]);
    for (; *set; set += 2)
        setenv(set[0], set[1], 1);
}

static void found(const char *const *set, int rank, int world, const char *by, bool mpi)
{
    nnc_ranks r;
    launch(set);
    CHECK_OK(nnc_ranks_find(-1, -1, &r, test_sink));
    CHECK_INT(r.rank, rank);
    CHECK_INT(r.world, world);
    CHECK_STR(r.by, by);
    CHECK_INT(r.mpi, mpi);
}

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(comm_ranks_by_launcher)
{
    nnc_ranks r;
    found((const char *const[]){NULL}, 0, 1, "no launcher", false);
    found(SET("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "4", "PMIX_RANK", "1",
              "OMPI_COMM_WORLD_LOCAL_RANK", "1", "OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        1, 4, "Open MPI", true);
    CHECK_OK(nnc_ranks_find(-1, -1, &r, test_sink));
    CHECK_INT(r.local_rank, 1);
    CHECK_INT(r.local_size, 2);
    found(SET("PMI_RANK", "2", "PMI_SIZE", "3"), 2, 3, "PMI", true);
    found(SET("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "PMIX_RANK", "5"), 5, 8, "Slurm",
        true);
    /* MPICH's mpiexec under Slurm: srun started its process of each host, and the ranks are that one's children */
    found(SET("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "PMI_RANK", "5", "PMI_SIZE", "8"),
        5, 8, "PMI", true);
    /* srun --mpi=none: over sockets, where rank 0 is known */
    found(SET("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "MASTER_ADDR", "node0"), 5, 8,
        "Slurm", false);
    found(SET("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "PMIX_RANK", "5", "MASTER_ADDR",
              "node0", "SLURM_LOCALID", "1"),
        5, 8, "Slurm", true);
    CHECK_OK(nnc_ranks_find(-1, -1, &r, test_sink));
    CHECK_INT(r.local_rank, 1);
    CHECK_INT(r.local_size, 1);
    /* the ranks of each host; what a host outside of the list has is unknown */
    static const int sizes[] = {4, 4, 3, 1};
    for (int node = 0; node < 4; node++) {
        char number[12];
        snprintf(number, sizeof number, "%d", node);
        found(SET("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "11", "SLURM_NODEID", number,
                  "SLURM_STEP_TASKS_PER_NODE", "4(x2),3"),
            5, 11, "Slurm", true);
        CHECK_OK(nnc_ranks_find(-1, -1, &r, test_sink));
        CHECK_INT(r.local_size, sizes[node]);
    }
    /* torchrun on each of two hosts, started by srun */
    found(SET("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "RANK", "9", "WORLD_SIZE", "16",
              "MASTER_ADDR", "node0", "TORCHELASTIC_RUN_ID", "none"),
        9, 16, "torchrun", false);
    /* a batch script is no rank, though its job has tasks */
    found(SET("SLURM_PROCID", "0", "SLURM_NTASKS", "8"), 0, 1, "no launcher", false);
    found(SET("RANK", "1", "WORLD_SIZE", "2"), 1, 2, "torchrun", false);
    launch((const char *const[]){NULL});
}

TEST(comm_ranks_that_are_none)
{
    nnc_ranks r;
    nnc_comm *c;
    launch(SET("OMPI_COMM_WORLD_RANK", "4", "OMPI_COMM_WORLD_SIZE", "4"));
    CHECK_INT(nnc_ranks_find(-1, -1, &r, test_sink), NNC_E_USAGE);
    CHECK_DIAG("rank 4 of 4 (Open MPI): expected ranks 0 to N-1");
    launch(SET("RANK", "x", "WORLD_SIZE", "2"));
    CHECK_INT(nnc_ranks_find(-1, -1, &r, test_sink), NNC_E_USAGE);
    launch(SET("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "4"));
    CHECK_OK(nnc_ranks_find(1, 4, &r, test_sink));
    CHECK_INT(nnc_ranks_find(0, 4, &r, test_sink), NNC_E_USAGE);
    CHECK_DIAG("--rank=0 --world=4, but Open MPI says rank 1 of 4");
    launch((const char *const[]){NULL});
    CHECK_INT(nnc_ranks_find(1, -1, &r, test_sink), NNC_E_USAGE);
    CHECK_DIAG("--rank is given without --world");
    CHECK_INT(nnc_ranks_find(2, 2, &r, test_sink), NNC_E_USAGE);
    CHECK_OK(nnc_ranks_find(1, 2, &r, test_sink));
    CHECK_INT(nnc_comm_open(&r, 1, &c, test_sink), NNC_E_USAGE);
    CHECK_DIAG("Start the job with mpirun -n 2");
}

/* A PyTorch job sets RANK and WORLD_SIZE for all of its processes: one of them may run nnc by itself. */
TEST(comm_ranks_alone)
{
    nnc_ranks r;
    nnc_comm *c;
    launch(SET("RANK", "1", "WORLD_SIZE", "2"));
    for (int rank = -1; rank <= 0; rank++) {
        CHECK_OK(nnc_ranks_find(rank, 1, &r, test_sink));
        CHECK_INT(r.rank, 0);
        CHECK_INT(r.world, 1);
        CHECK(!r.mpi);
    }
    CHECK_INT(nnc_ranks_find(1, 1, &r, test_sink), NNC_E_USAGE);
    CHECK_INT(nnc_ranks_find(0, 2, &r, test_sink), NNC_E_USAGE);
    CHECK_DIAG("or give --world=1");
    CHECK_OK(nnc_ranks_find(-1, -1, &r, test_sink));
    CHECK_INT(nnc_comm_open(&r, 1, &c, test_sink), NNC_E_USAGE);
    CHECK_DIAG("--world=1 runs this process alone");
    launch((const char *const[]){NULL});
}

/* Blocks of consecutive devices; every rank has one. */
TEST(comm_rank_of_device)
{
    for (int world = 1; world <= 9; world++)
        for (int n = world; n <= 30; n++) {
            int of[30] = {0}, before = 0;
            for (int d = 0; d < n; d++) {
                const int r = nnc_rank_of(d, n, world);
                CHECK(r >= before && r <= before + 1 && r < world);
                before = r;
                of[r]++;
            }
            for (int r = 0; r < world; r++)
                CHECK(of[r] >= n / world && of[r] <= n / world + 1);
        }
}

/* A rank that leaves takes back what it has begun: nobody writes into its memory any more. */
TEST(comm_leaving_withdraws)
{
    nnc_comm *c[2];
    int got = 7, v = 1;
    pair(c, 0.2);
    nnc_message m = {&got, sizeof got, 0, 3, false, NULL, false};
    CHECK_OK(nnc_comm_start(c[1], &m, "receive"));
    nnc_comm_close(c[1]);
    CHECK_INT(nnc_comm_send(c[0], &v, sizeof v, 1, 3, "send"), NNC_E_PEER);
    CHECK_INT(got, 7);
    nnc_comm_close(c[0]);
}

/* Looks at messages without waiting, one of which another thread has yet to begin. */
TEST(comm_looks)
{
    nnc_comm *c[2];
    int got = 0, v = 5;
    nnc_message *left,
        m[2] = {{NULL, 0, 1, 1, true, NULL, false}, {&got, sizeof got, 1, 2, false, NULL, false}};
    nnc_message other = {&v, sizeof v, 0, 2, true, NULL, false};
    pair(c, 5);
    CHECK_OK(nnc_comm_test(c[0], m, 2, "look", &left));
    CHECK(left == &m[0] && !m[1].done);
    CHECK_OK(nnc_comm_start(c[0], &m[1], "receive"));
    CHECK_OK(nnc_comm_start(c[1], &other, "send"));
    CHECK_OK(nnc_comm_test(c[0], m, 2, "look", &left));
    CHECK(left == &m[0] && m[1].done && got == 5);
    CHECK_OK(nnc_comm_finish(c[1], &other, 1, "sent"));
    CHECK(!nnc_comm_is_late(c[0], 4999999999) && nnc_comm_is_late(c[0], 5000000001));
    CHECK_INT(nnc_comm_late(c[0], &m[0], "/layers/1: copy"), NNC_E_PEER);
    CHECK(nnc_comm_failure(c[0], test_sink));
    CHECK_DIAG("rank 0: /layers/1: copy: rank 1 has not received for 5 s (--comm-timeout)");
    end(c);
}
