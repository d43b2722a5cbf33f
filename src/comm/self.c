/* comm/self.c -- the transport between threads of one process. A message goes from the sender's memory into the receiver's when the
 * second of the two calls comes. Until then the first one is in a list. So a send is done only when it was received: what waits here in
 * a circle would hang with any transport. */
#include "comm/internal.h"
#include <sched.h>
#include <string.h>

struct nnc_request {
    struct nnc_request *next; /* of one of the hub's lists */
    void *data;
    int64_t bytes;
    int from, to, tag;
    uint64_t space; /* the communicator's number */
    bool sends, met, done, wrong; /* met: the other has come; wrong: with another size */
};

/* All ranks' meeting place. */
typedef struct hub {
    pthread_mutex_t lock;
    int users, n;
    nnc_request *waiting; /* oldest first */
    nnc_request *matched; /* met, but not tested since; after a failure they never are */
    bool aborted;
} hub;

typedef struct group {
    hub *h;
    int rank;
    uint64_t space, splits; /* splits: made so far, the same number on all ranks */
} group;

void *comm_self_join(void **shared, int rank, int n)
{
    group *g = nnc_calloc(1, sizeof *g);
    hub *h = *shared;
    if (g && !h) {
        h = *shared = nnc_calloc(1, sizeof *h);
        if (h)
            pthread_mutex_init(&h->lock, NULL);
    }
    if (!g || !h) {
        nnc_free(g);
        return NULL;
    }
    h->n = n;
    h->users++;
    *g = (group){h, rank, 0, 0};
    return g;
}

static void take_out(nnc_request **list, const nnc_request *r)
{
    while (*list && *list != r)
        list = &(*list)->next;
    if (*list)
        *list = r->next;
}

static bool is_own(const group *g, const nnc_request *r)
{
    return r->space == g->space && g->rank == (r->sends ? r->from : r->to);
}

/* Requests of a rank that leaves: their memory goes away, so nobody may come to them. With the lock. */
static void withdraw(const group *g)
{
    hub *h = g->h;
    for (nnc_request **at = &h->waiting; *at;) {
        nnc_request *r = *at;
        if (!is_own(g, r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        nnc_free(r);
    }
    const nnc_request *r = h->matched;
    while (r) { /* another thread may be copying */
        if (!is_own(g, r) || r->done) {
            r = r->next;
            continue;
        }
        pthread_mutex_unlock(&h->lock);
        sched_yield();
        pthread_mutex_lock(&h->lock);
        r = h->matched;
    }
}

static void leave(void *at)
{
    group *g = at;
    hub *h = g->h;
    pthread_mutex_lock(&h->lock);
    withdraw(g);
    const bool last = --h->users == 0;
    pthread_mutex_unlock(&h->lock);
    nnc_free(g);
    if (!last)
        return;
    comm_drop(h->waiting);
    comm_drop(h->matched);
    pthread_mutex_destroy(&h->lock);
    nnc_free(h);
}

static const char *self_close(void *at)
{
    leave(at);
    return NULL;
}

static const char *self_split(void *at, void **out, bool *done)
{
    group *g = at, *to = nnc_calloc(1, sizeof *to);
    if (!to)
        return "out of memory";
    pthread_mutex_lock(&g->h->lock);
    g->h->users++;
    pthread_mutex_unlock(&g->h->lock);
    /* the same number on all ranks, and no other communicator's: the path of splits that led here */
    const uint64_t path[2] = {g->space, ++g->splits};
    *to = (group){g->h, g->rank, nnc_hash(path, sizeof path).lo, 0};
    *out = to;
    *done = true;
    return NULL;
}

static bool matches(const nnc_request *a, const nnc_request *b)
{
    return a->sends != b->sends && a->from == b->from && a->to == b->to && a->tag == b->tag &&
           a->space == b->space;
}

/* Copies between two matching requests, which nobody else touches until they are done. It holds no lock, so that other messages go on. */
static void copy(hub *h, nnc_request *mine, nnc_request *other)
{
    const nnc_request *from = mine->sends ? mine : other, *to = mine->sends ? other : mine;
    if (!mine->wrong && from->bytes)
        memcpy(to->data, from->data, (size_t)from->bytes);
    pthread_mutex_lock(&h->lock);
    mine->done = other->done = true;
    pthread_mutex_unlock(&h->lock);
}

static const char *post(group *g, nnc_request r, nnc_request **out)
{
    nnc_request *mine = nnc_malloc(sizeof *mine);
    hub *h = g->h;
    if (!mine)
        return "out of memory";
    r.space = g->space;
    *mine = r;
    pthread_mutex_lock(&h->lock);
    nnc_request **at = &h->waiting;
    while (*at && !matches(*at, mine))
        at = &(*at)->next;
    nnc_request *other = *at;
    *at = other ? other->next : mine;
    if (other) {
        mine->wrong = other->wrong = mine->bytes != other->bytes;
        mine->met = other->met = true;
        mine->next = other;
        other->next = h->matched;
        h->matched = mine;
    }
    pthread_mutex_unlock(&h->lock);
    if (other)
        copy(h, mine, other);
    *out = mine;
    return NULL;
}

static const char *self_send(
    void *at, const void *data, int64_t bytes, int to, int tag, nnc_request **out)
{
    group *g = at;
    return post(g,
        (nnc_request){.data = (void *)data,
            .bytes = bytes,
            .from = g->rank,
            .to = to,
            .tag = tag,
            .sends = true},
        out);
}

static const char *self_recv(
    void *at, void *data, int64_t bytes, int from, int tag, nnc_request **out)
{
    group *g = at;
    return post(g,
        (nnc_request){.data = data, .bytes = bytes, .from = from, .to = g->rank, .tag = tag}, out);
}

static const char *self_test(void *at, nnc_request *r, bool *done)
{
    group *g = at;
    pthread_mutex_lock(&g->h->lock);
    const bool over = r->done, wrong = r->wrong, aborted = g->h->aborted && !r->met;
    if (over || aborted)
        take_out(over ? &g->h->matched : &g->h->waiting, r);
    pthread_mutex_unlock(&g->h->lock);
    *done = over;
    if (over || aborted)
        nnc_free(r);
    return over      ? wrong ? "the other rank's message has another size" : NULL
           : aborted ? "another rank has given up"
                     : NULL;
}

static void self_abort(void *at, int code)
{
    group *g = at;
    (void)code;
    pthread_mutex_lock(&g->h->lock);
    g->h->aborted = true;
    pthread_mutex_unlock(&g->h->lock);
}

const nnc_transport comm_self = {
    .name = "self",
    .close = self_close,
    .split = self_split,
    .drop = leave,
    .send = self_send,
    .recv = self_recv,
    .test = self_test,
    .abort = self_abort,
    .most_tag = INT32_MAX,
    .threads = true,
};
