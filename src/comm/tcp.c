/* comm/tcp.c -- the transport over sockets, without MPI: for torchrun, and for ranks that are started by hand. The ranks find each other
 * through rank 0, at MASTER_ADDR; then each pair has a connection.
 *
 *   rank 0         listens at the first free port after MASTER_PORT (where torchrun itself listens)
 *   other ranks    try these ports, say hello, and get the addresses of all
 *   each pair      the higher rank connects to the lower one
 *
 * A message is a header and its data. Data that comes before its receive was begun is kept. Connections make progress while some message is
 * tested. When a connection ends or a rank gives up, all that wait for that rank fail at once. */
#include "comm/internal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PORTS = 16, HELLO_S = 5, CALLERS = 64 };
#define MAGIC UINT64_C(0x31706374636e6e01)
#define MOST_BYTES (INT64_C(1) << 48)

typedef enum frame_kind { F_data, F_bye, F_abort } frame_kind;
typedef struct frame {
    uint64_t space;
    int64_t bytes;
    int32_t tag, kind;
} frame;

struct nnc_request {
    struct nnc_request *next; /* of a peer's queue, or of those that wait for their data */
    char *data;
    int peer;
    frame head;
    int64_t moved; /* bytes of header and data */
    bool sends, taken, done,
        wrong; /* taken: its data comes, or lies in a parcel; wrong: of another size */
};

/* Data without a receive so far. */
typedef struct parcel {
    struct parcel *next;
    int peer;
    frame head;
    nnc_request *claimed;
    bool whole;
    char data[];
} parcel;

typedef struct peer {
    int fd; /* -1: none */
    bool gone, bye, aborted;
    nnc_request *out, **last;
    frame in; /* the header that comes, or whose data comes */
    int64_t got; /* bytes of it and of its data */
    nnc_request *into; /* or */
    parcel *keep;
} peer;

typedef struct mesh {
    int rank, world, users;
    peer *peer;
    nnc_request *posted; /* receives without data, oldest first */
    parcel *parcels; /* oldest first */
    char said[160];
} mesh;

typedef struct group {
    mesh *m;
    uint64_t space, splits;
} group;

/* ---- connecting ------------------------------------------------------------------------------------------------------ */

typedef struct hello {
    uint64_t magic, job;
    int32_t rank, world, port, unused;
} hello;

typedef struct address {
    struct sockaddr_storage at;
    socklen_t n;
} address;

static const char *fail(mesh *m, const char *what)
{
    snprintf(m->said, sizeof m->said, "%s: %s", what, strerror(errno));
    return m->said;
}

static bool all(int fd, void *data, size_t n, bool sends)
{
    char *p = data;
    while (n) {
        const ssize_t k = sends ? send(fd, p, n, MSG_NOSIGNAL) : recv(fd, p, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = ECONNRESET; /* an end sets none */
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static void set_timeout(int fd, int seconds)
{
    const struct timeval t = {.tv_sec = seconds};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

/* A socket that listens at one of n ports from `port` on (0: any); *port: which. */
static int listen_at(int *port, int n, int backlog)
{
    const int on = 1, off = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool six = fd >= 0;
    fd = six ? fd : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (six)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    for (int i = 0; i < n; i++) {
        struct sockaddr_in6 a6 = {
            .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)(*port + i))};
        struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(*port + i))};
        struct sockaddr *a = six ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4;
        socklen_t size = six ? sizeof a6 : sizeof a4;
        if (bind(fd, a, size) == 0 && listen(fd, backlog) == 0 && getsockname(fd, a, &size) == 0) {
            *port = ntohs(six ? a6.sin6_port : a4.sin_port);
            return fd;
        }
    }
    close(fd);
    return -1;
}

static void set_port(address *a, int port)
{
    if (a->at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&a->at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&a->at)->sin_port = htons((uint16_t)port);
}

static bool is_loopback(const address *a)
{
    const struct sockaddr_in6 *s = (const struct sockaddr_in6 *)&a->at;
    if (a->at.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)&a->at)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&s->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&s->sin6_addr) && s->sin6_addr.s6_addr[12] == 127);
}

/* Connects and introduces itself; -1: nobody of this job is there. */
static int call(const address *a, hello mine)
{
    hello theirs;
    const int fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    set_timeout(fd, HELLO_S);
    if (connect(fd, (const struct sockaddr *)&a->at, a->n) == 0 &&
        all(fd, &mine, sizeof mine, true) && all(fd, &theirs, sizeof theirs, false) &&
        theirs.magic == MAGIC && theirs.job == mine.job)
        return fd;
    close(fd);
    return -1;
}

static const char *find_master(mesh *m, const char *host, int port, address *out)
{
    struct addrinfo *list = NULL;
    const struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int wrong = getaddrinfo(host, service, &want, &list);
    if (wrong || !list) {
        snprintf(m->said, sizeof m->said, "MASTER_ADDR=%.80s: %s", host, gai_strerror(wrong));
        return m->said;
    }
    out->n = list->ai_addrlen;
    memcpy(&out->at, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return NULL;
}

/* Who has called and not introduced itself yet: a rank, or anybody who looks at ports. Nobody keeps others waiting. */
typedef struct caller {
    int fd;
    size_t got; /* bytes of its hello */
    hello said;
    address from;
    int64_t since_ns;
} caller;

typedef struct door {
    mesh *m;
    int listener, n, missing; /* missing: ranks that have not called */
    hello mine;
    caller at[CALLERS]; /* oldest first */
    address *where; /* or NULL: addresses of those that have called */
} door;

/* Takes caller i from the list. */
static caller leave(door *d, int i)
{
    const caller c = d->at[i];
    d->n--;
    memmove(&d->at[i], &d->at[i + 1], (size_t)(d->n - i) * sizeof *d->at);
    return c;
}

static void take_call(door *d)
{
    caller c = {.since_ns = nnc_now_ns()};
    c.from.n = sizeof c.from.at;
    c.fd = accept4(d->listener, (struct sockaddr *)&c.from.at, &c.from.n, SOCK_CLOEXEC);
    if (c.fd < 0)
        return;
    if (d->n == CALLERS)
        close(leave(d, 0).fd);
    d->at[d->n++] = c;
}

/* A rank of this job, that is still there? */
static bool is_rank(const door *d, const caller *c)
{
    char more;
    return c->said.magic == MAGIC && c->said.job == d->mine.job && c->said.world == d->mine.world &&
           c->said.rank > d->mine.rank && c->said.rank < d->mine.world && c->said.port > 0 &&
           c->said.port <= UINT16_MAX && recv(c->fd, &more, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
}

static void welcome(door *d, caller c)
{
    set_timeout(c.fd, HELLO_S);
    if (!is_rank(d, &c) || !all(c.fd, &d->mine, sizeof d->mine, true)) {
        close(c.fd);
        return;
    }
    peer *p = &d->m->peer[c.said.rank];
    d->missing -= p->fd < 0;
    if (p->fd >= 0)
        close(p->fd);
    p->fd = c.fd;
    set_port(&c.from, c.said.port);
    if (d->where)
        d->where[c.said.rank] = c.from;
}

/* Goes on with caller i; true: it has left the list. */
static bool listen_to(door *d, int i)
{
    caller *c = &d->at[i];
    const ssize_t n = recv(c->fd, (char *)&c->said + c->got, sizeof c->said - c->got, MSG_DONTWAIT);
    const bool waits = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    c->got += n > 0 ? (size_t)n : 0;
    if (c->got == sizeof c->said) {
        welcome(d, leave(d, i));
        return true;
    }
    if (n > 0 || (waits && nnc_now_ns() - c->since_ns < HELLO_S * INT64_C(1000000000)))
        return false;
    close(leave(d, i).fd);
    return true;
}

/* Accepts calls of higher ranks until all are there; where: their addresses. */
static void accept_all(mesh *m, int listener, hello mine, address *where)
{
    door d = {.m = m, .listener = listener, .mine = mine, .where = where};
    (void)fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
    for (int r = m->rank + 1; r < m->world; r++)
        d.missing += m->peer[r].fd < 0;
    while (d.missing) { /* the caller has a deadline */
        struct pollfd look[CALLERS + 1] = {{.fd = listener, .events = POLLIN}};
        for (int i = 0; i < d.n; i++)
            look[i + 1] = (struct pollfd){.fd = d.at[i].fd, .events = POLLIN};
        if (poll(look, (nfds_t)d.n + 1, 100) < 0 && errno != EINTR)
            usleep(1000);
        for (int i = 0; i < d.n;)
            i += !listen_to(&d, i);
        take_call(&d);
    }
    while (d.n)
        close(leave(&d, 0).fd);
}

static int call_master(const address *master, int port, hello mine)
{
    for (;;) { /* the caller has a deadline */
        for (int i = 1; i <= PORTS; i++) {
            address a = *master;
            set_port(&a, port + i);
            const int fd = call(&a, mine);
            if (fd >= 0)
                return fd;
        }
        usleep(50000);
    }
}

static const char *connect_all(mesh *m, const char *host, int port, uint64_t job)
{
    int own = m->rank ? 0 : port + 1;
    address master;
    address *where = nnc_calloc((size_t)m->world, sizeof *where);
    const int listener = listen_at(&own, m->rank ? 1 : PORTS, m->world);
    const hello mine = {MAGIC, job, m->rank, m->world, own, 0};
    const char *wrong = !where         ? "out of memory"
                        : listener < 0 ? fail(m, "no port to listen at")
                                       : NULL;
    if (!wrong && m->rank)
        wrong = find_master(m, host, port, &master);
    const size_t bytes = (size_t)m->world * sizeof *where;
    if (!wrong && m->rank) {
        m->peer[0].fd = call_master(&master, port, mine);
        set_timeout(m->peer[0].fd, 0);
        if (!all(m->peer[0].fd, where, bytes, false))
            wrong = fail(m, "rank 0 has given up");
        for (int r = 1; r < m->rank && !wrong; r++) {
            address a = is_loopback(&where[r]) ? master : where[r];
            if (is_loopback(&where[r]))
                set_port(&a, ntohs(((struct sockaddr_in *)&where[r].at)->sin_port));
            m->peer[r].fd = call(&a, mine);
            if (m->peer[r].fd < 0)
                wrong = fail(m, "another rank cannot be reached");
        }
    }
    if (!wrong)
        accept_all(m, listener, mine, m->rank ? NULL : where);
    for (int r = 1; r < m->world && !m->rank && !wrong; r++)
        if (!all(m->peer[r].fd, where, bytes, true))
            wrong = fail(m, "another rank has given up");
    if (listener >= 0)
        close(listener);
    nnc_free(where);
    return wrong;
}

/* Requests that are not done are of nobody: their waits have failed. */
static void free_mesh(mesh *m)
{
    for (int r = 0; m->peer && r < m->world; r++) {
        if (m->peer[r].fd >= 0)
            close(m->peer[r].fd);
        comm_drop(m->peer[r].out);
        nnc_free(m->peer[r].into);
    }
    while (m->parcels) {
        parcel *p = m->parcels;
        m->parcels = p->next;
        nnc_free(p->claimed);
        nnc_free(p);
    }
    comm_drop(m->posted);
    nnc_free(m->peer);
    nnc_free(m);
}

static const char *tcp_open(const nnc_ranks *r, void **out, int *rank, int *world)
{
    static const char *const from[] = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"};
    static char said[sizeof((mesh *)0)->said];
    NNC_LOCAL(nnc_text) key = {0};
    for (size_t i = 0; i < NNC_COUNT(from); i++)
        nnc_printf(&key, "%s\n", getenv(from[i]) ? getenv(from[i]) : "");
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    mesh *m = nnc_calloc(1, sizeof *m);
    group *g = nnc_calloc(1, sizeof *g);
    peer *p = nnc_calloc((size_t)r->world, sizeof *p);
    const char *wrong = m && g && p && !key.oom ? NULL : "out of memory";
    if (!wrong) {
        *m = (mesh){.rank = r->rank, .world = r->world, .users = 1, .peer = p};
        for (int i = 0; i < r->world; i++)
            p[i].fd = -1;
        wrong = connect_all(
            m, host, (int)strtol(port, NULL, 10), nnc_hash(nnc_text_str(&key), key.n).lo);
    }
    for (int i = 0; i < r->world && !wrong; i++) {
        const int on = 1;
        p[i].last = &p[i].out;
        if (p[i].fd < 0)
            continue;
        set_timeout(p[i].fd, 0);
        (void)setsockopt(p[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        (void)fcntl(p[i].fd, F_SETFL, fcntl(p[i].fd, F_GETFL) | O_NONBLOCK);
    }
    if (wrong) {
        snprintf(said, sizeof said, "%s", wrong);
        if (m && m->peer)
            free_mesh(m);
        else {
            nnc_free(m);
            nnc_free(p);
        }
        nnc_free(g);
        return said;
    }
    *g = (group){m, 0, 0};
    *out = g;
    *rank = m->rank;
    *world = m->world;
    return NULL;
}

/* ---- progress --------------------------------------------------------------------------------------------------------- */

static bool matches(const nnc_request *r, int from, const frame *f)
{
    return r->peer == from && r->head.tag == f->tag && r->head.space == f->space;
}

static void send_some(peer *p)
{
    while (p->out && !p->gone) {
        nnc_request *r = p->out;
        const int64_t head = sizeof r->head;
        const int64_t at = r->moved < head ? 0 : r->moved - head;
        struct iovec v[2] = {{(char *)&r->head + r->moved, (size_t)nnc_max64(head - r->moved, 0)},
            {r->data + at, (size_t)(r->head.bytes - at)}};
        const struct msghdr m = {
            .msg_iov = r->moved < head ? v : v + 1, .msg_iovlen = r->moved < head ? 2 : 1};
        const ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            p->gone = errno != EAGAIN && errno != EWOULDBLOCK;
        if (n < 0)
            return;
        r->moved += n;
        if (r->moved < head + r->head.bytes)
            continue;
        p->out = r->next;
        p->last = p->out ? p->last : &p->out;
        r->done = true;
    }
}

/* A header has come: where its data goes. False: out of memory. */
static bool place_data(mesh *m, int from)
{
    peer *p = &m->peer[from];
    nnc_request **at = &m->posted;
    p->bye = p->bye || p->in.kind == F_bye;
    p->aborted = p->aborted || p->in.kind == F_abort;
    if (p->in.kind != F_data)
        return true;
    while (*at && !matches(*at, from, &p->in))
        at = &(*at)->next;
    nnc_request *r = *at;
    if (r) {
        *at = r->next;
        r->taken = true;
        r->wrong = r->head.bytes != p->in.bytes;
        if (!r->wrong) {
            p->into = r;
            return true;
        }
        r->done = true; /* its data goes into a parcel that nobody asks for */
    }
    parcel *k = nnc_malloc(sizeof *k + (size_t)p->in.bytes);
    if (!k)
        return false;
    *k = (parcel){.peer = from, .head = p->in};
    if (r)
        k->head.tag = -1;
    parcel **end = &m->parcels;
    while (*end)
        end = &(*end)->next;
    *end = p->keep = k;
    return true;
}

/* A header that a rank may send; what else comes is no rank's, or no longer in step. */
static bool is_frame(const frame *f)
{
    return f->kind == F_data ? f->bytes >= 0 && f->bytes < MOST_BYTES && f->tag >= 0
                             : (f->kind == F_bye || f->kind == F_abort) && f->bytes == 0;
}

static void deliver(mesh *m, parcel *k)
{
    nnc_request *r = k->claimed;
    parcel **at = &m->parcels;
    if (r && !r->wrong && k->head.bytes)
        memcpy(r->data, k->data, (size_t)k->head.bytes);
    if (r)
        r->done = true;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    nnc_free(k);
}

static void end_of_data(mesh *m, peer *p)
{
    if (p->into)
        p->into->done = true;
    if (p->keep) {
        p->keep->whole = true;
        if (p->keep->claimed || p->keep->head.tag < 0)
            deliver(m, p->keep);
    }
    p->into = NULL;
    p->keep = NULL;
    p->got = 0;
}

static const char *receive_some(mesh *m, int from)
{
    peer *p = &m->peer[from];
    const int64_t head = sizeof p->in;
    while (!p->gone) {
        const bool in_head = p->got < head;
        char *data = p->into ? p->into->data : p->keep ? p->keep->data : NULL;
        char *to = in_head ? (char *)&p->in + p->got : data + (p->got - head);
        const int64_t left = in_head ? head - p->got : head + p->in.bytes - p->got;
        const ssize_t n = left ? recv(p->fd, to, (size_t)left, MSG_DONTWAIT) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return NULL;
        p->gone = n < 0 || (left && !n);
        p->got += n > 0 ? n : 0;
        if (!p->gone && in_head && p->got == head) {
            p->gone = !is_frame(&p->in);
            if (!p->gone && !place_data(m, from))
                return "out of memory";
        }
        if (!p->gone && p->got >= head && p->got == head + p->in.bytes)
            end_of_data(m, p);
    }
    return NULL;
}

static const char *progress(mesh *m)
{
    const char *wrong = NULL;
    for (int r = 0; r < m->world && !wrong; r++)
        if (m->peer[r].fd >= 0) {
            send_some(&m->peer[r]);
            wrong = receive_some(m, r);
        }
    return wrong;
}

/* ---- messages --------------------------------------------------------------------------------------------------------- */

static nnc_request *request(
    const group *g, void *data, int64_t bytes, int other, int tag, bool sends)
{
    nnc_request *r = nnc_malloc(sizeof *r);
    if (r)
        *r = (nnc_request){.data = data,
            .peer = other,
            .head = {.space = g->space, .bytes = bytes, .tag = tag, .kind = F_data},
            .sends = sends};
    return r;
}

/* To itself: kept until it is asked for. */
static const char *keep(mesh *m, const nnc_request *r)
{
    peer *p = &m->peer[m->rank];
    p->in = r->head;
    if (!place_data(m, m->rank))
        return "out of memory";
    char *to = p->into ? p->into->data : p->keep->data;
    if (r->head.bytes)
        memcpy(to, r->data, (size_t)r->head.bytes);
    end_of_data(m, p);
    return NULL;
}

static const char *tcp_send(
    void *at, const void *data, int64_t bytes, int to, int tag, nnc_request **out)
{
    const group *g = at;
    nnc_request *r = *out = request(g, (void *)(uintptr_t)data, bytes, to, tag, true);
    if (!r)
        return "out of memory";
    if (to == g->m->rank) {
        r->done = true;
        return keep(g->m, r);
    }
    peer *p = &g->m->peer[to];
    *p->last = r;
    p->last = &r->next;
    send_some(p);
    return NULL;
}

static const char *tcp_recv(
    void *at, void *data, int64_t bytes, int from, int tag, nnc_request **out)
{
    const group *g = at;
    mesh *m = g->m;
    nnc_request *r = *out = request(g, data, bytes, from, tag, false);
    if (!r)
        return "out of memory";
    parcel *k = m->parcels;
    while (k && (k->claimed || !matches(r, k->peer, &k->head)))
        k = k->next;
    if (k) {
        r->taken = true;
        r->wrong = k->head.bytes != bytes;
        k->claimed = r;
        if (k->whole)
            deliver(m, k);
        return NULL;
    }
    nnc_request **end = &m->posted;
    while (*end)
        end = &(*end)->next;
    *end = r;
    return NULL;
}

static const char given_up[] = "it has given up",
                  ended[] = "it has ended its connection: it was killed, or has failed";

static const char *tcp_test(void *at, nnc_request *r, bool *done)
{
    mesh *m = ((group *)at)->m;
    const peer *p = &m->peer[r->peer];
    const char *wrong = r->done ? NULL : progress(m);
    *done = r->done;
    if (r->done && r->wrong)
        wrong = "the other rank's message has another size";
    else if (!wrong && !r->done && p->aborted)
        wrong = given_up;
    else if (!wrong && !r->done && (p->gone || p->bye))
        wrong = ended;
    if (r->done)
        nnc_free(r); /* after a failure its data may still come: it is kept */
    return wrong;
}

static const char *tcp_lost(void *at, int *rank)
{
    mesh *m = ((group *)at)->m;
    const char *wrong = progress(m);
    *rank = m->rank; /* whose memory progress lacks */
    for (int r = 0; r < m->world && !wrong; r++) {
        const peer *p = &m->peer[r];
        *rank = r;
        wrong = p->aborted ? given_up : p->gone && !p->bye ? ended : NULL;
    }
    return wrong;
}

static const char *tcp_split(void *at, void **out, bool *done)
{
    group *g = at, *to = nnc_calloc(1, sizeof *to);
    if (!to)
        return "out of memory";
    const uint64_t path[2] = {g->space, ++g->splits}; /* the same number on all ranks */
    *to = (group){g->m, nnc_hash(path, sizeof path).lo, 0};
    *out = to;
    *done = true;
    return NULL;
}

static void tcp_drop(void *at)
{
    nnc_free(at);
}

static void tell_all(mesh *m, frame_kind kind)
{
    for (int r = 0; r < m->world; r++) {
        frame f = {.kind = (int32_t)kind};
        const peer *p = &m->peer[r];
        /* a header in the middle of another message would be data */
        if (p->fd < 0 || p->gone || (p->out && p->out->moved))
            continue;
        (void)send(p->fd, &f, sizeof f, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Sends what is left and waits until all others do the same, or are gone. */
static const char *tcp_close(void *at)
{
    mesh *m = ((group *)at)->m;
    const char *wrong = NULL;
    for (bool left = true; left && !wrong;) {
        left = false;
        wrong = progress(m);
        for (int r = 0; r < m->world; r++)
            left = left || (m->peer[r].fd >= 0 && !m->peer[r].gone && m->peer[r].out);
        if (left)
            usleep(100);
    }
    tell_all(m, F_bye);
    for (bool left = true; left && !wrong;) {
        left = false;
        wrong = progress(m);
        for (int r = 0; r < m->world; r++) {
            const peer *p = &m->peer[r];
            left = left || (p->fd >= 0 && !p->gone && !p->bye && !p->aborted);
        }
        if (left)
            usleep(100);
    }
    free_mesh(m);
    nnc_free(at);
    return NULL;
}

static void tcp_abort(void *at, int code)
{
    tell_all(((group *)at)->m, F_abort);
    (void)fflush(NULL);
    _exit(code);
}

static const char *tcp_version(void)
{
    return "";
}

const nnc_transport comm_tcp = {
    .name = "tcp",
    .version = tcp_version,
    .open = tcp_open,
    .close = tcp_close,
    .split = tcp_split,
    .drop = tcp_drop,
    .send = tcp_send,
    .recv = tcp_recv,
    .test = tcp_test,
    .lost = tcp_lost,
    .abort = tcp_abort,
    .most_tag = INT32_MAX,
};
