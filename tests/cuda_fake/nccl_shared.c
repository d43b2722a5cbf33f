/* tests/cuda_fake/nccl_shared.c -- communicators of the fake's NCCL whose ranks are several processes of a host: memory that they share.
 *
 * The id names an anonymous file of the process that made it, so nothing is left when all are gone. Each collective has a number, the same
 * on all ranks. On each rank's stream:
 *
 *     poll  the rank's collective before is over, and all have read the operands of the one before that (two slots)
 *     work  copies the operand to the rank's place in the slot
 *     poll  all have
 *     work  checks that all do the same, computes the rank's result from all operands
 *
 * A send waits until it is received. What a rank does with one communicator it does in the order of its calls, also on several streams.
 * The polls are done when the rank aborts; the works then do nothing. */
#include "internal.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_RANKS = 8, SLOTS = 2, INVALID_USAGE = 5, IN_PROGRESS = 7 };
#define ROOM ((size_t)64 << 20) /* bytes of an operand; the file is sparse */

typedef struct agreement {
    int kind, op, type, root;
    size_t n;
} agreement;

typedef struct memory_of_all {
    struct {
        _Atomic int here, device;
        _Atomic int64_t arrived, left; /* collectives */
        agreement does[SLOTS];
    } rank[MAX_RANKS];
    struct { /* by sender and receiver */
        _Atomic int64_t sent, received;
        size_t bytes;
    } pair[MAX_RANKS][MAX_RANKS];
} memory_of_all;

struct fake_shared {
    memory_of_all *all;
    char *data;
    int rank, ranks;
    int64_t calls, over; /* this rank's calls, and those that are done */
    int64_t collectives, sends[MAX_RANKS], receives[MAX_RANKS];
    bool aborted;
    struct fake_shared *next;
};

static fake_shared *joined;

static size_t file_bytes(void)
{
    return ((sizeof(memory_of_all) + 4095) / 4096 * 4096) + (SLOTS + MAX_RANKS) * MAX_RANKS * ROOM;
}

void fake_shared_id(nccl_id *id)
{
    const int fd = memfd_create("fake_nccl", 0); /* closed when the process ends */
    memset(id, 0, sizeof *id);
    if (fd < 0 || ftruncate(fd, (off_t)file_bytes()) != 0)
        fake_wrong("no memory to share between processes");
    snprintf(id->bytes, sizeof id->bytes, "/proc/%d/fd/%d", (int)getpid(), fd);
}

fake_shared *fake_shared_join(const nccl_id *id, int rank, int ranks, int device)
{
    const int fd = open(id->bytes, O_RDWR);
    fake_shared *s = calloc(1, sizeof *s);
    void *p = fd < 0 || ranks > MAX_RANKS ? MAP_FAILED
                                          : mmap(NULL, file_bytes(), PROT_READ | PROT_WRITE,
                                                MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED) {
        fake_wrong("the communicator's id is none, or it has more than %d ranks", MAX_RANKS);
        free(s);
        return NULL;
    }
    s->all = p;
    s->data = (char *)p + (file_bytes() - (SLOTS + MAX_RANKS) * MAX_RANKS * ROOM);
    s->rank = rank;
    s->ranks = ranks;
    s->next = joined;
    joined = s;
    atomic_store(&s->all->rank[rank].device, device);
    atomic_store(&s->all->rank[rank].here, 1);
    return s;
}

int fake_shared_state(const fake_shared *s)
{
    for (int r = 0; r < s->ranks; r++)
        if (!atomic_load(&s->all->rank[r].here))
            return IN_PROGRESS;
    for (int r = 0; r < s->ranks; r++)
        for (int k = 0; k < r; k++)
            if (s->all->rank[r].device == s->all->rank[k].device)
                return INVALID_USAGE; /* "Duplicate GPU detected" */
    return 0;
}

/* ---- collectives ---------------------------------------------------------------------------------------------------- */

/* A rank's part in one. Each of its commands has a copy. */
typedef struct turn {
    fake_shared *s;
    cuda_stream on;
    int64_t call, number; /* of all calls; of the collectives, or of the pair's messages */
    fake_joint j;
    bool sends;
    int other;
    fake_compute compute;
    bool hangs;
    const char *what;
} turn;

static char *operand(const turn *t, int rank)
{
    return t->s->data + ((size_t)(t->number % SLOTS) * MAX_RANKS + (size_t)rank) * ROOM;
}

static bool may_arrive(void *ctx)
{
    const turn *t = ctx;
    if (t->s->aborted)
        return true;
    if (t->hangs || t->s->over < t->call || t->s->all->rank[t->s->rank].left < t->number)
        return false;
    for (int r = 0; r < t->s->ranks; r++)
        if (t->s->all->rank[r].left < t->number + 1 - SLOTS)
            return false;
    return true;
}

static void arrive(void *ctx)
{
    const turn *t = ctx;
    const fake_joint *j = &t->j;
    if (t->s->aborted)
        return;
    t->s->all->rank[t->s->rank].does[t->number % SLOTS] =
        (agreement){j->kind, j->op, j->type, j->root, j->n};
    memcpy(operand(t, t->s->rank), j->from, j->in);
    fake_publish(t->on);
    atomic_store(&t->s->all->rank[t->s->rank].arrived, t->number + 1);
}

static bool all_arrived(void *ctx)
{
    const turn *t = ctx;
    bool all = true;
    for (int r = 0; r < t->s->ranks; r++)
        all = all && t->s->all->rank[r].arrived > t->number;
    return all || t->s->aborted;
}

static bool agree(const turn *t)
{
    const agreement *mine = &t->s->all->rank[t->s->rank].does[t->number % SLOTS];
    for (int r = 0; r < t->s->ranks; r++) {
        const agreement *a = &t->s->all->rank[r].does[t->number % SLOTS];
        if (a->kind != mine->kind || a->op != mine->op || a->type != mine->type ||
            a->root != mine->root || a->n != mine->n) {
            fake_wrong("%s: ranks disagree about what they do together", t->what);
            return false;
        }
    }
    return true;
}

static void finish(void *ctx)
{
    const turn *t = ctx;
    if (t->s->aborted)
        return;
    fake_hear(t->on);
    if (agree(t))
        t->compute(&t->j, t->s->rank, t->s->ranks, operand(t, 0), ROOM, t->j.to);
    t->s->over = t->call + 1;
    atomic_store(&t->s->all->rank[t->s->rank].left, t->number + 1);
}

static void *copy_of(const turn *t)
{
    turn *c = malloc(sizeof *c);
    *c = *t;
    return c;
}

static void poll_for(cuda_stream to, bool (*ready)(void *), const turn *t)
{
    if (t->hangs)
        fprintf(stderr, "the fake of CUDA: %s hangs\n", t->what);
    command *c = fake_push(to, C_poll, t->what);
    c->ready = ready;
    c->ctx = copy_of(t);
}

void fake_shared_give(fake_shared *s, cuda_stream to, const fake_joint *j, fake_compute compute,
    bool hangs, const char *what)
{
    const turn t = {.s = s,
        .on = to,
        .call = s->calls++,
        .number = s->collectives++,
        .j = *j,
        .compute = compute,
        .hangs = hangs,
        .what = what};
    if (j->in > ROOM) {
        fake_wrong("%s: %zu bytes are more than the fake shares", what, j->in);
        return;
    }
    poll_for(to, may_arrive, &t);
    fake_push_work(to, arrive, copy_of(&t), &(fake_access){j->from, j->in, false}, 1, what);
    poll_for(to, all_arrived, &t);
    fake_push_work(to, finish, copy_of(&t), &(fake_access){j->to, j->out, true}, 1, what);
}

/* ---- a send and its receive ------------------------------------------------------------------------------------------ */

static char *message(const turn *t)
{
    const int from = t->sends ? t->s->rank : t->other, to = t->sends ? t->other : t->s->rank;
    return t->s->data + ((size_t)(SLOTS + from) * MAX_RANKS + (size_t)to) * ROOM;
}

/* A send: its place is empty. A receive: it is full. */
static bool may_go(void *ctx)
{
    const turn *t = ctx;
    const memory_of_all *a = t->s->all;
    if (t->s->aborted)
        return true;
    if (t->hangs || t->s->over < t->call)
        return false;
    return t->sends ? a->pair[t->s->rank][t->other].received >= t->number
                    : a->pair[t->other][t->s->rank].sent > t->number;
}

static void go(void *ctx)
{
    const turn *t = ctx;
    memory_of_all *a = t->s->all;
    if (t->s->aborted)
        return;
    if (t->sends) {
        memcpy(message(t), t->j.from, t->j.n);
        fake_publish(t->on);
        a->pair[t->s->rank][t->other].bytes = t->j.n;
        atomic_store(&a->pair[t->s->rank][t->other].sent, t->number + 1);
        return;
    }
    fake_hear(t->on);
    if (a->pair[t->other][t->s->rank].bytes != t->j.n)
        fake_wrong("ncclRecv of other bytes than were sent");
    else
        memcpy(t->j.to, message(t), t->j.n);
    t->s->over = t->call + 1;
    atomic_store(&a->pair[t->other][t->s->rank].received, t->number + 1);
}

static bool is_received(void *ctx)
{
    const turn *t = ctx;
    return t->s->aborted || t->s->all->pair[t->s->rank][t->other].received > t->number;
}

static void end_send(void *ctx)
{
    const turn *t = ctx;
    t->s->over = t->call + 1;
}

void fake_shared_pair(
    fake_shared *s, cuda_stream to, bool sends, int other, void *data, size_t bytes, bool hangs)
{
    const char *what = sends ? "ncclSend" : "ncclRecv";
    const turn t = {.s = s,
        .on = to,
        .call = s->calls++,
        .number = sends ? s->sends[other]++ : s->receives[other]++,
        .j = {.n = bytes, .from = data, .to = data},
        .hangs = hangs,
        .what = what,
        .sends = sends,
        .other = other};
    if (bytes > ROOM) {
        fake_wrong("%s: %zu bytes are more than the fake shares", what, bytes);
        return;
    }
    poll_for(to, may_go, &t);
    fake_push_work(to, go, copy_of(&t), &(fake_access){data, bytes, !sends}, 1, what);
    if (!sends)
        return;
    poll_for(to, is_received, &t);
    fake_push_work(to, end_send, copy_of(&t), NULL, 0, what);
}

void fake_shared_abort(fake_shared *s)
{
    s->aborted = true;
}

void fake_shared_end(void)
{
    while (joined) {
        fake_shared *s = joined;
        joined = s->next;
        munmap(s->all, file_bytes());
        free(s);
    }
}
