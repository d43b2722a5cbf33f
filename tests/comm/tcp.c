/* tests/comm/tcp.c -- the transport over sockets between threads of this process: data both ways at once, order, ends and failures. */
#include "comm/comm.h"
#include "test.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, LARGE = 5 << 20 };

typedef struct rank {
    int number;
    nnc_comm *c;
    nnc_status status;
    void (*fn)(struct rank *r);
    pthread_t thread;
} rank;

static void *run(void *arg)
{
    rank *r = arg;
    const nnc_ranks at = {.rank = r->number,
        .world = RANKS,
        .local_rank = r->number,
        .local_size = RANKS,
        .by = "test"};
    r->status = nnc_comm_open(&at, 20, &r->c, NULL);
    if (!r->status)
        r->fn(r);
    return NULL;
}

/* Each rank runs fn and closes its communicator. */
static void job(rank *r, void (*fn)(rank *r))
{
    static int jobs;
    char port[16];
    snprintf(port, sizeof port, "%d", 21000 + (int)(getpid() % 1500) * 20 + 20 * jobs++);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", port, 1);
    for (int i = RANKS; i-- > 0;) {
        r[i] = (rank){.number = i, .fn = fn};
        CHECK(pthread_create(&r[i].thread, NULL, run, &r[i]) == 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(r[i].thread, NULL);
        CHECK_OK(r[i].status);
    }
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
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
