/* tests/comm/tcp.c -- the transport over sockets between threads of this process: data both ways at once, order, ends and failures. */
#include "comm/comm.h"
#include "test.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, LARGE = 5 << 20 };

typedef struct rank {
    int number, world;
    nnc_comm *c;
    nnc_status status;
    void (*fn)(struct rank *r);
    pthread_t thread;
} rank;

static void *run(void *arg)
{
    rank *r = arg;
    const nnc_ranks at = {.rank = r->number,
        .world = r->world,
        .local_rank = r->number,
        .local_size = r->world,
        .by = "test"};
    r->status = nnc_comm_open(&at, 20, &r->c, NULL);
    if (!r->status)
        r->fn(r);
    return NULL;
}

/* Says where rank 0 of the next job is; returns the first port that it tries. */
static int begin_job(void)
{
    static int jobs;
    const int at = 21000 + (int)(getpid() % 1500) * 20 + 20 * jobs++;
    char port[16];
    snprintf(port, sizeof port, "%d", at);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", port, 1);
    return at + 1;
}

static void begin_rank(rank *r, int number, int world, void (*fn)(rank *r))
{
    *r = (rank){.number = number, .world = world, .fn = fn};
    CHECK(pthread_create(&r->thread, NULL, run, r) == 0);
}

static void end_job(rank *r, int n)
{
    for (int i = 0; i < n; i++) {
        pthread_join(r[i].thread, NULL);
        CHECK_OK(r[i].status);
    }
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
}

/* Each rank runs fn and closes its communicator. */
static void job(rank *r, void (*fn)(rank *r))
{
    (void)begin_job();
    for (int i = RANKS; i-- > 0;)
        begin_rank(&r[i], i, RANKS, fn);
    end_job(r, RANKS);
}

static uint8_t byte(int from, int to, int64_t i)
{
    return (uint8_t)(i * 7 + from * 31 + to * 5 + (i >> 16));
}

/* All send to all, themselves too, at once, more than a socket holds; large and without data; sent before and after they are asked for. */
static void all_to_all(rank *r)
{
    nnc_message m[4 * RANKS];
    uint8_t *data = malloc((size_t)2 * RANKS * LARGE);
    int n = 0;
    for (int k = 0; k < RANKS; k++) {
        uint8_t *out = data + (size_t)2 * k * LARGE, *in = out + LARGE;
        for (int64_t i = 0; i < LARGE; i++)
            out[i] = byte(r->number, k, i);
        memset(in, 0, LARGE);
        m[n++] = (nnc_message){NULL, 0, k, 9, true, NULL, false};
        m[n++] = (nnc_message){out, LARGE, k, 4, true, NULL, false};
    }
    for (int k = 0; k < RANKS; k++) {
        m[n++] = (nnc_message){data + (size_t)(2 * k + 1) * LARGE, LARGE, k, 4, false, NULL, false};
        m[n++] = (nnc_message){NULL, 0, k, 9, false, NULL, false};
    }
    for (int i = 0; i < n && !r->status; i++)
        r->status = nnc_comm_start(r->c, &m[r->number == 1 ? n - 1 - i : i], "all to all");
    if (!r->status)
        r->status = nnc_comm_finish(r->c, m, n, "all to all");
    for (int k = 0; k < RANKS && !r->status; k++)
        for (int64_t i = 0; i < LARGE && !r->status; i++)
            if (data[(size_t)(2 * k + 1) * LARGE + (size_t)i] != byte(k, r->number, i))
                r->status = NNC_E_DIFFERS;
    nnc_comm_close(r->c);
    free(data);
}

TEST(tcp_all_to_all)
{
    rank r[RANKS];
    for (int i = 0; i < 3; i++)
        job(r, all_to_all);
}

/* Messages of one tag keep their order, those of another communicator pass by; most come before they are asked for. */
static void in_order(rank *r)
{
    nnc_comm *d = NULL;
    int next = (r->number + 1) % RANKS, before = (r->number + RANKS - 1) % RANKS;
    r->status = nnc_comm_split(r->c, &d, NULL);
    for (int i = 0; i < 300 && !r->status; i++) {
        r->status = nnc_comm_send(i % 3 ? r->c : d, &i, sizeof i, next, i % 2, "in order");
    }
    for (int k = 0; k < 6 && !r->status; k++)
        for (int i = k; i < 300 && !r->status; i += 6) {
            int v = -1;
            r->status = nnc_comm_recv(i % 3 ? r->c : d, &v, sizeof v, before, i % 2, "in order");
            /* of tag and communicator: those of k and of k + 2 or k + 4 come in turn */
            if (!r->status && (v % 2 != i % 2 || (v % 3 != 0) != (i % 3 != 0)))
                r->status = NNC_E_DIFFERS;
        }
    nnc_comm_close(d);
    nnc_comm_close(r->c);
}

TEST(tcp_order)
{
    rank r[RANKS];
    job(r, in_order);
}

/* Rank 2 ends; the others hear of it at once, and not after 20 s. */
static void ends(rank *r)
{
    int v = 0;
    if (r->number == 2) {
        nnc_comm_close(r->c); /* waits for the others to close, too */
        return;
    }
    const int64_t from = nnc_now_ns();
    nnc_sink *sink = nnc_sink_create();
    const nnc_status st = nnc_comm_recv(r->c, &v, sizeof v, 2, 1, "/layers/2: copy");
    const bool told = nnc_comm_failure(r->c, sink);
    const char *said = told ? nnc_sink_at(sink, 0)->message : "";
    if (st != NNC_E_PEER || (double)(nnc_now_ns() - from) > 5e9 ||
        !strstr(said, "/layers/2: copy: receiving from rank 2: it has ended its connection"))
        r->status = NNC_E_DIFFERS;
    nnc_sink_destroy(sink);
    nnc_comm_close(r->c);
}

TEST(tcp_a_rank_that_ends)
{
    rank r[RANKS];
    job(r, ends);
}

static void other_sizes(rank *r)
{
    int64_t v[4] = {1, 2, 3, 4};
    if (r->number == 0)
        r->status = nnc_comm_send(r->c, v, 16, 1, 1, "send");
    if (r->number == 1) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        r->status =
            nnc_comm_recv(r->c, v, 32, 0, 1, "receive") == NNC_E_PEER && v[3] == 4 && v[0] == 1
                ? NNC_OK
                : NNC_E_DIFFERS;
    }
    nnc_comm_close(r->c);
}

TEST(tcp_sizes_differ)
{
    rank r[RANKS];
    job(r, other_sizes);
}

/* ---- strangers ---------------------------------------------------------------------------------------------------------- */

/* A connection to a port of this host, as soon as somebody listens there. */
static int call_port(int port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    for (int i = 0; i < 500; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
            return fd;
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return -1;
}

/* Who connects and says nothing, something else or too little keeps no rank waiting. */
TEST(tcp_strangers)
{
    static const char other[] = "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n";
    rank r[RANKS];
    int fd[6];
    const int port = begin_job();
    const int64_t from = nnc_now_ns();
    begin_rank(&r[0], 0, RANKS, in_order);
    for (int i = 0; i < 6; i++) {
        fd[i] = call_port(port);
        CHECK(fd[i] >= 0);
        if (i > 3)
            CHECK(send(fd[i], other, i == 4 ? sizeof other : 3, MSG_NOSIGNAL) > 0);
    }
    close(fd[3]);
    for (int i = 1; i < RANKS; i++)
        begin_rank(&r[i], i, RANKS, in_order);
    end_job(r, RANKS);
    CHECK((double)(nnc_now_ns() - from) < 4e9);
    for (int i = 0; i < 6; i++)
        if (i != 3)
            close(fd[i]);
}

/* As comm/tcp.c has them. */
typedef struct hello {
    uint64_t magic, job;
    int32_t rank, world, port, unused;
} hello;

typedef struct frame {
    uint64_t space;
    int64_t bytes;
    int32_t tag, kind;
} frame;

static void broken_frame(rank *r)
{
    int v[4] = {1, 2, 3, 4};
    if (nnc_comm_recv(r->c, v, sizeof v, 1, 1, "receive") != NNC_E_PEER || v[0] != 1 || v[3] != 4)
        r->status = NNC_E_DIFFERS;
    nnc_comm_close(r->c);
}

/* Rank 0 of two runs fn; this thread is rank 1. Returns its socket. */
static int join_by_hand(rank *r, void (*fn)(rank *r))
{
    char key[64];
    const int port = begin_job(), n = snprintf(key, sizeof key, "localhost\n%d\n\n", port - 1);
    const hello own = {UINT64_C(0x31706374636e6e01), nnc_hash(key, (size_t)n).lo, 1, 2, port, 0};
    hello its = {0};
    begin_rank(r, 0, 2, fn);
    const int fd = call_port(port);
    CHECK(send(fd, &own, sizeof own, MSG_NOSIGNAL) == sizeof own);
    CHECK(recv(fd, &its, sizeof its, MSG_WAITALL) == sizeof its);
    CHECK(its.job == own.job);
    return fd;
}

/* A rank whose messages are none: of less than no bytes, of more than there are, of another kind. */
TEST(tcp_broken_frames)
{
    static const frame wrong[] = {{0, -8, 1, 0}, {0, INT64_MIN, 1, 0}, {0, INT64_MAX, 1, 0},
        {0, 16, -1, 0}, {0, 16, 1, 7}, {0, 16, 1, 1}};
    static char data[1 << 16];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rank r;
        const int fd = join_by_hand(&r, broken_frame);
        CHECK(send(fd, &wrong[i], sizeof wrong[i], MSG_NOSIGNAL) == sizeof wrong[i]);
        (void)send(fd, data, sizeof data, MSG_NOSIGNAL | MSG_DONTWAIT);
        end_job(&r, 1);
        close(fd);
    }
}

/* Looks for lost ranks until one is, at most 0.3 s: of the rank that ends well none is. */
static void looks(rank *r)
{
    const int64_t from = nnc_now_ns();
    while (!r->status && nnc_now_ns() - from < 300000000) {
        r->status = nnc_comm_look(r->c, "a step");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

TEST(tcp_looks_for_ranks)
{
    static const struct {
        int kind; /* of the last frame; -1: none */
        const char *said;
    } ends[] = {{-1, "rank 0: a step: rank 1: it has ended its connection"},
        {2, "rank 0: a step: rank 1: it has given up"}, {1, NULL}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        rank r;
        const frame last = {.kind = ends[i].kind};
        const int fd = join_by_hand(&r, looks);
        if (ends[i].kind >= 0)
            CHECK(send(fd, &last, sizeof last, MSG_NOSIGNAL) == sizeof last);
        close(fd);
        pthread_join(r.thread, NULL);
        CHECK_INT(r.status, ends[i].said ? NNC_E_PEER : NNC_OK);
        CHECK(nnc_comm_failure(r.c, test_sink) == (ends[i].said != NULL));
        if (ends[i].said)
            CHECK_DIAG(ends[i].said);
        nnc_comm_close(r.c);
    }
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
}
