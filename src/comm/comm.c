/* comm/comm.c -- communicators over a transport: one lock, a deadline for each wait, and the first failure kept for its message. */
#include "comm/internal.h"
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct nnc_comm {
    comm_root *root;
    void *group;
    bool first; /* its group is the root's own */
    void (*meanwhile)(void *ctx); /* NULL: nothing */
    void *ctx;
};

/* ---- life ------------------------------------------------------------------------------------ */

static nnc_status create(comm_root *root, void *group, bool first, nnc_comm **out, nnc_sink *sink)
{
    nnc_comm *c = nnc_calloc(1, sizeof *c);
    NNC_NEED(c, sink);
    *c = (nnc_comm){.root = root, .group = group, .first = first};
    pthread_mutex_lock(&root->lock);
    root->users++;
    pthread_mutex_unlock(&root->lock);
    *out = c;
    return NNC_OK;
}

static comm_root *create_root(const nnc_transport *by, int rank, int world, double timeout_s)
{
    comm_root *r = nnc_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (comm_root){
        .by = by, .rank = rank, .world = world, .local_rank = rank, .timeout_s = timeout_s};
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

typedef struct guarded_call {
    comm_root *root;
    const nnc_ranks *ranks;
    const char *wrong;
    void *group;
    int rank, world;
} guarded_call;

static void open_transport(void *ctx)
{
    guarded_call *c = ctx;
    c->wrong = c->root->by->open(c->ranks, &c->group, &c->rank, &c->world);
}

static void close_transport(void *ctx)
{
    guarded_call *c = ctx;
    c->wrong = c->root->by->close(c->root->first);
}

static void free_root(comm_root *r)
{
    char message[160];
    guarded_call call = {.root = r};
    snprintf(message, sizeof message,
        "rank %d of %d: another rank did not end within %g s (--comm-timeout)", r->rank, r->world,
        r->timeout_s);
    if (r->first && r->by != &comm_self)
        (void)comm_guarded(close_transport, &call, r->timeout_s, message);
    else if (r->first)
        close_transport(&call);
    pthread_mutex_destroy(&r->lock);
    nnc_free(r);
}

void nnc_comm_close(nnc_comm *c)
{
    if (!c)
        return;
    comm_root *r = c->root;
    pthread_mutex_lock(&r->lock);
    if (!c->first && c->group)
        r->by->drop(c->group);
    const bool last = --r->users == 0;
    pthread_mutex_unlock(&r->lock);
    nnc_free(c);
    if (last)
        free_root(r);
}

static nnc_status fail_mpi(const nnc_ranks *r, const char *why, nnc_sink *sink)
{
    return nnc_fail0(sink, NNC_E_DEVICE, "rank %d of %d (%s): ranks exchange data through MPI: %s",
        r->rank, r->world, r->by, why ? why : "");
}

/* Is a lack of memory what the message of a transport's function says? */
static bool lacks_memory(const char *wrong)
{
    return !strcmp(wrong, "out of memory");
}

/* Without an MPI launcher the ranks find each other by two variables, which torchrun sets. */
static nnc_status check_master(const nnc_ranks *r, nnc_sink *sink)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    char *end = NULL;
    const long n = port ? strtol(port, &end, 10) : 0;
    if (host && *host && n > 0 && n < 65500 && !*end)
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_USAGE,
        "rank %d of %d (%s): no MPI launcher started this process, and MASTER_ADDR and MASTER_PORT "
        "do not say where rank 0 is. Start the job with mpirun -n %d nnc ..., srun --mpi=pmix or "
        "torchrun, or set them; --world=1 runs this process alone",
        r->rank, r->world, r->by, r->world);
}

nnc_status nnc_comm_open(const nnc_ranks *r, double timeout_s, nnc_comm **out, nnc_sink *sink)
{
    const char *why = NULL;
    char message[192];
    *out = NULL;
    const nnc_transport *by = r->mpi ? nnc_plugin("mpi", "nnc_transport_mpi", &why) : &comm_tcp;
    if (!by)
        return fail_mpi(r, why, sink);
    if (!r->mpi)
        NNC_TRY(check_master(r, sink));
    comm_root *root = create_root(by, r->rank, r->world, timeout_s);
    NNC_NEED(root, sink);
    root->local_rank = r->local_rank;
    snprintf(message, sizeof message,
        "rank %d of %d: not all ranks started nnc and joined within %g s (--comm-timeout)", r->rank,
        r->world, timeout_s);
    guarded_call call = {.root = root, .ranks = r};
    if (!comm_guarded(open_transport, &call, timeout_s, message))
        call.wrong = "the system has no thread left";
    nnc_status st = NNC_OK;
    if (call.wrong)
        st = nnc_fail0(sink, lacks_memory(call.wrong) ? NNC_E_NOMEM : NNC_E_PEER,
            "rank %d of %d: %s does not start: %s", r->rank, r->world,
            r->mpi ? "MPI" : "the connection between ranks", call.wrong);
    root->first = call.group;
    if (!st && (call.rank != r->rank || call.world != r->world))
        st = nnc_fail0(sink, NNC_E_PEER,
            "%s says rank %d of %d, and MPI says rank %d of %d: the launcher is of another MPI "
            "than "
            "the one nnc was built with (srun: --mpi=pmix)",
            r->by, r->rank, r->world, call.rank, call.world);
    if (!st)
        st = create(root, call.group, true, out, sink);
    if (st)
        free_root(root);
    return st;
}

nnc_status nnc_comm_self(int n, double timeout_s, nnc_comm **out, nnc_sink *sink)
{
    void *shared = NULL;
    nnc_status st = NNC_OK;
    for (int i = 0; i < n; i++)
        out[i] = NULL;
    for (int i = 0; i < n && !st; i++) {
        comm_root *root = create_root(&comm_self, i, n, timeout_s);
        if (!root) {
            st = nnc_nomem(sink);
            break;
        }
        root->first = comm_self_join(&shared, i, n);
        st = root->first ? create(root, root->first, true, &out[i], sink) : nnc_nomem(sink);
        if (st)
            free_root(root);
    }
    for (int i = 0; i < n && st; i++) {
        nnc_comm_close(out[i]);
        out[i] = NULL;
    }
    return st;
}

int nnc_comm_rank(const nnc_comm *c)
{
    return c->root->rank;
}

int nnc_comm_world(const nnc_comm *c)
{
    return c->root->world;
}

int nnc_comm_local_rank(const nnc_comm *c)
{
    return c->root->local_rank;
}

int nnc_comm_most_tag(const nnc_comm *c)
{
    return c->root->by->most_tag;
}

double nnc_comm_timeout(const nnc_comm *c)
{
    return c->root->timeout_s;
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Keeps the first failure. With the lock. */
static nnc_status broken(comm_root *r, const char *fmt, ...) NNC_PRINTF(2, 3);
static nnc_status broken(comm_root *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!r->broken)
        vsnprintf(r->why, sizeof r->why, fmt, args);
    va_end(args);
    if (!r->broken)
        r->code = NNC_E_PEER;
    r->broken = true;
    return r->code;
}

/* After broken, with what a transport's function returned: this rank's own lack of memory is no loss of another. */
static nnc_status code_of(comm_root *r, bool first, const char *wrong)
{
    if (first && lacks_memory(wrong))
        r->code = NNC_E_NOMEM;
    return r->code;
}

static nnc_status fail_on(comm_root *r, const nnc_message *m, const char *what, const char *wrong)
{
    const bool first = !r->broken;
    (void)broken(r, "rank %d: %s: %s rank %d: %s", r->rank, what,
        m->sends ? "sending to" : "receiving from", m->peer, wrong);
    return code_of(r, first, wrong);
}

static nnc_status fail_split(comm_root *r, const char *wrong)
{
    const bool first = !r->broken;
    (void)broken(r, "rank %d: joining the other ranks: %s", r->rank, wrong);
    return code_of(r, first, wrong);
}

static nnc_status fail_late(comm_root *r, const nnc_message *m, const char *what)
{
    return broken(r,
        "rank %d: %s: rank %d has not %s for %g s (--comm-timeout): it is lost, stopped, or slower "
        "than that",
        r->rank, what, m->peer, m->sends ? "received" : "sent", r->timeout_s);
}

bool nnc_comm_failure(nnc_comm *c, nnc_sink *sink)
{
    comm_root *r = c->root;
    pthread_mutex_lock(&r->lock);
    const bool tell = sink && r->broken && !r->told;
    r->told = r->told || tell;
    pthread_mutex_unlock(&r->lock);
    if (tell)
        (void)nnc_fail0(sink, r->code, "%s", r->why);
    return tell;
}

void nnc_comm_break(nnc_comm *c, const char *why)
{
    pthread_mutex_lock(&c->root->lock);
    (void)broken(c->root, "%s", why);
    pthread_mutex_unlock(&c->root->lock);
}

void nnc_comm_abort(nnc_comm *c, int code)
{
    comm_root *r = c->root;
    pthread_mutex_lock(&r->lock);
    (void)broken(r, "rank %d has given up", r->rank);
    r->told = true;
    r->by->abort(r->first, code);
    pthread_mutex_unlock(&r->lock);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Polls: gives the core to other threads first, then sleeps for a 16th of the time waited so far, at most 200 us. Between these a
 * message of another process on the same core is noticed in some 10 us. */
void nnc_comm_pause(int64_t waited_ns)
{
    enum { YIELD_NS = 100000, MOST_NS = 200000 };
    if (waited_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    const int64_t ns = waited_ns / 16;
    nanosleep(&(struct timespec){.tv_nsec = (long)(ns < MOST_NS ? ns : MOST_NS)}, NULL);
}

static bool late(const comm_root *r, int64_t waited_ns)
{
    return (double)waited_ns > r->timeout_s * 1e9;
}

bool nnc_comm_is_late(const nnc_comm *c, int64_t waited_ns)
{
    return late(c->root, waited_ns);
}

nnc_status nnc_comm_late(nnc_comm *c, const nnc_message *m, const char *what)
{
    pthread_mutex_lock(&c->root->lock);
    nnc_status st = fail_late(c->root, m, what);
    pthread_mutex_unlock(&c->root->lock);
    return st;
}

nnc_status nnc_comm_start(nnc_comm *c, nnc_message *m, const char *what)
{
    comm_root *r = c->root;
    nnc_request *begun = NULL;
    nnc_status st = NNC_OK;
    pthread_mutex_lock(&r->lock);
    m->request = NULL;
    m->done = false;
    if (r->broken)
        st = r->code;
    if (!st && r->by->threads)
        pthread_mutex_unlock(&r->lock);
    const char *wrong = st ? NULL
                        : m->sends
                            ? r->by->send(c->group, m->data, m->bytes, m->peer, m->tag, &begun)
                            : r->by->recv(c->group, m->data, m->bytes, m->peer, m->tag, &begun);
    if (!st && r->by->threads)
        pthread_mutex_lock(&r->lock);
    m->request = begun;
    st = wrong ? fail_on(r, m, what, wrong) : st;
    pthread_mutex_unlock(&r->lock);
    return st;
}

nnc_status nnc_comm_test(nnc_comm *c, nnc_message *m, int n, const char *what, nnc_message **left)
{
    comm_root *r = c->root;
    nnc_status st = NNC_OK;
    *left = NULL;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < n && !st; i++) {
        if (m[i].done)
            continue;
        if (r->broken) {
            st = r->code;
            break;
        }
        const char *wrong = NULL;
        if (m[i].request) { /* otherwise another thread has yet to begin it */
            wrong = r->by->test(c->group, m[i].request, &m[i].done);
            m[i].request = m[i].done || wrong ? NULL : m[i].request;
        }
        if (wrong)
            st = fail_on(r, &m[i], what, wrong);
        else if (!m[i].done && !*left)
            *left = &m[i];
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

nnc_status nnc_comm_look(nnc_comm *c, const char *what)
{
    comm_root *r = c->root;
    int peer = 0;
    pthread_mutex_lock(&r->lock);
    const char *wrong = r->broken || !r->by->lost ? NULL : r->by->lost(c->group, &peer);
    if (wrong) {
        (void)broken(r, "rank %d: %s: rank %d: %s", r->rank, what, peer, wrong);
        (void)code_of(r, true, wrong);
    }
    const nnc_status st = r->broken ? r->code : NNC_OK;
    pthread_mutex_unlock(&r->lock);
    return st;
}

bool nnc_comm_poke(nnc_comm *c, nnc_message *m, int n)
{
    comm_root *r = c->root;
    bool done = true;
    int i = 0;
    if (pthread_mutex_trylock(&r->lock))
        return false;
    while (i < n && (m[i].done || !m[i].request))
        i++;
    if (i < n && !r->broken) {
        const char *wrong = r->by->test(c->group, m[i].request, &m[i].done);
        m[i].request = m[i].done || wrong ? NULL : m[i].request;
        if (wrong)
            (void)fail_on(r, &m[i], "messages between ranks", wrong);
    }
    for (i = 0; i < n; i++)
        done = done && m[i].done;
    pthread_mutex_unlock(&r->lock);
    return done;
}

void nnc_comm_while_waiting(nnc_comm *c, void (*call)(void *ctx), void *ctx)
{
    c->meanwhile = call;
    c->ctx = ctx;
}

nnc_status nnc_comm_finish(nnc_comm *c, nnc_message *m, int n, const char *what)
{
    int64_t from = 0;
    nnc_message *left;
    for (;;) {
        NNC_TRY(nnc_comm_test(c, m, n, what, &left));
        if (!left)
            return NNC_OK;
        const int64_t now = nnc_now_ns();
        from = from ? from : now;
        if (late(c->root, now - from))
            return nnc_comm_late(c, left, what);
        if (c->meanwhile)
            c->meanwhile(c->ctx);
        nnc_comm_pause(now - from);
    }
}

nnc_status nnc_comm_send(
    nnc_comm *c, const void *data, int64_t bytes, int to, int tag, const char *what)
{
    nnc_message m = {.data = (void *)data, .bytes = bytes, .peer = to, .tag = tag, .sends = true};
    NNC_TRY(nnc_comm_start(c, &m, what));
    return nnc_comm_finish(c, &m, 1, what);
}

nnc_status nnc_comm_recv(
    nnc_comm *c, void *data, int64_t bytes, int from, int tag, const char *what)
{
    nnc_message m = {.data = data, .bytes = bytes, .peer = from, .tag = tag};
    NNC_TRY(nnc_comm_start(c, &m, what));
    return nnc_comm_finish(c, &m, 1, what);
}

nnc_status nnc_comm_split(nnc_comm *c, nnc_comm **out, nnc_sink *sink)
{
    comm_root *r = c->root;
    const int64_t from = nnc_now_ns();
    void *group = NULL;
    bool done = false;
    nnc_status st = NNC_OK;
    *out = NULL;
    while (!done && !st) {
        pthread_mutex_lock(&r->lock);
        const char *wrong = r->broken ? r->why : r->by->split(c->group, &group, &done);
        if (wrong)
            st = fail_split(r, wrong);
        else if (!done && late(r, nnc_now_ns() - from))
            st = broken(r,
                "rank %d: another rank has not come as far as this one for %g s (--comm-timeout): "
                "it is lost, stopped, or still compiling",
                r->rank, r->timeout_s);
        pthread_mutex_unlock(&r->lock);
        if (!done && !st)
            nnc_comm_pause(nnc_now_ns() - from);
    }
    if (st) {
        (void)nnc_comm_failure(c, sink);
        return st;
    }
    st = create(r, group, false, out, sink);
    if (st) {
        pthread_mutex_lock(&r->lock);
        r->by->drop(group);
        pthread_mutex_unlock(&r->lock);
    }
    return st;
}
