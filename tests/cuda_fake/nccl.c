/* tests/cuda_fake/nccl.c -- the table "nccl" over queue.c: collectives of ranks in one process; of several, nccl_shared.c moves the data.
 *
 * A collective begins on each rank's stream in its turn and ends on all of them together. Each stream records that it has arrived. The
 * stream of the last rank that calls waits for these and does the work for all; the others wait for that. So the order that the checker
 * sees is NCCL's. What a rank gives is read after its stream came there, and what it gets is written before its stream goes on. Errors are
 * ranks that disagree, and a rank that never calls (its streams wait for ever). So are calls for several ranks of one thread outside a
 * group, with which NCCL would hang. Sums go from rank 0 on, in f64. */
#include "internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    UNHANDLED_CUDA_ERROR = 1,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    MAX_RANKS = 8
};
enum { SUM, PROD, MAX, MIN, AVG }; /* ncclRedOp_t */

typedef enum kind { K_allreduce, K_allgather, K_reducescatter, K_broadcast, K_pair } kind;

/* One rank's part in one collective. */
typedef struct part {
    const void *from;
    void *to;
    cuda_stream s;
    firing *arrived;
} part;

/* One collective. ranks: those that take part (a pair: 2, sender first). */
typedef struct collective {
    kind kind;
    int ranks, op, type, root;
    size_t n;
    uint32_t called; /* bit r: rank r has */
    part part[MAX_RANKS];
    firing *done;
    struct collective *next;
    int64_t number; /* the how manieth of its clique; of pairs: of this sender to this receiver */
    int sender, receiver;
} collective;

typedef struct clique {
    nccl_id id;
    int ranks;
    bool whole; /* all of its ranks live in this thread */
    collective *open; /* some ranks have not called yet */
    int64_t sent[MAX_RANKS][MAX_RANKS], received[MAX_RANKS][MAX_RANKS];
    struct clique *next;
} clique;

struct nccl_comm_of {
    clique *clique;
    fake_shared *shared; /* NULL: all ranks are in this process */
    int rank, device;
    bool blocks;
    bool joined; /* by the end of its group */
    bool busy; /* does not block: it says so once after each group */
    int64_t calls;
    nccl_comm next; /* of those alive */
};

static clique *cliques;
static nccl_comm comms;
static int in_group, given;
int fake_nccl_error, fake_nccl_hang;
/* What streams wait for when the group ends: within it all collectives go on side by side (a ring of sends and receives). */
static struct {
    cuda_stream s;
    firing *done;
    const char *what;
} at_end[128];
static int n_at_end;
static const char *const names[] = {
    "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclSend/ncclRecv"};

/* ---- what they compute --------------------------------------------------------------------------------------------- */

/* ncclDataType_t */
static const nnc_dtype types[] = {
    DT_i8, DT_u8, DT_i32, DT_u32, DT_i64, DT_u64, DT_f16, DT_f32, DT_f64, DT_bf16};

static double combine(int op, double a, double b)
{
    return op == PROD ? a * b : op == MAX ? (a > b ? a : b) : op == MIN ? (a < b ? a : b) : a + b;
}

/* n elements from `first` on of all ranks' operands, combined, to out. */
static void reduce(const collective *c, size_t first, size_t n, char *out)
{
    nnc_dtype d = types[c->type];
    for (size_t i = 0; i < n; i++) {
        double v = nnc_get_f64(d, c->part[0].from, (int64_t)(first + i));
        for (int r = 1; r < c->ranks; r++)
            v = combine(c->op, v, nnc_get_f64(d, c->part[r].from, (int64_t)(first + i)));
        nnc_set_f64(d, out, (int64_t)i, c->op == AVG ? v / c->ranks : v);
    }
}

static size_t bytes_of(const collective *c)
{
    return c->n * (size_t)nnc_dtype_size(types[c->type]);
}

/* Rank's result. */
static void result_of(const collective *c, int rank, char *out)
{
    const size_t bytes = bytes_of(c);
    switch (c->kind) {
    case K_allreduce: reduce(c, 0, c->n, out); break;
    case K_reducescatter: reduce(c, c->n * (size_t)rank, c->n, out); break;
    case K_allgather:
        for (int r = 0; r < c->ranks; r++)
            memcpy(out + (size_t)r * bytes, c->part[r].from, bytes);
        break;
    case K_broadcast: memcpy(out, c->part[c->root].from, bytes); break;
    case K_pair: memcpy(out, c->part[0].from, bytes); break;
    }
}

static size_t result_bytes(const collective *c)
{
    return c->kind == K_allgather ? bytes_of(c) * (size_t)c->ranks : bytes_of(c);
}

static void run_collective(void *ctx)
{
    const collective *c = *(collective **)ctx;
    const size_t all = result_bytes(c);
    char *out = malloc(all * (size_t)c->ranks + 1); /* operands may lie where results go */
    for (int r = c->kind == K_pair; r < c->ranks; r++)
        result_of(c, r, out + (size_t)r * all);
    for (int r = c->kind == K_pair; r < c->ranks; r++)
        memcpy(c->part[r].to, out + (size_t)r * all, all);
    free(out);
}

/* The same among processes. */
static void compute(
    const fake_joint *j, int rank, int ranks, const char *in, size_t step, char *out)
{
    collective c = {.kind = (kind)j->kind,
        .ranks = ranks,
        .op = j->op,
        .type = j->type,
        .root = j->root,
        .n = j->n};
    for (int r = 0; r < ranks && r < MAX_RANKS; r++)
        c.part[r].from = in + (size_t)r * step;
    result_of(&c, rank, out);
}

/* What the whole collective reads and writes; the number of accesses. */
static int accesses(const collective *c, fake_access *a)
{
    size_t bytes = c->n * (size_t)nnc_dtype_size(types[c->type]);
    size_t all = bytes * (size_t)c->ranks;
    int n = 0;
    for (int r = 0; r < c->ranks; r++) {
        bool gives = c->kind == K_pair ? r == 0 : c->kind != K_broadcast || r == c->root;
        if (gives)
            a[n++] =
                (fake_access){c->part[r].from, c->kind == K_reducescatter ? all : bytes, false};
        if (c->kind != K_pair || r == 1)
            a[n++] = (fake_access){c->part[r].to, c->kind == K_allgather ? all : bytes, true};
    }
    return n;
}

/* ---- meeting ------------------------------------------------------------------------------------------------------- */

static void give_work(collective *c, cuda_stream s)
{
    fake_access a[2 * MAX_RANKS];
    for (int r = 0; r < c->ranks; r++)
        fake_push(s, C_wait, names[c->kind])->f = c->part[r].arrived;
    collective **ctx = malloc(sizeof *ctx);
    *ctx = c;
    fake_push_work(s, run_collective, ctx, a, accesses(c, a), names[c->kind])->any_device = true;
    fake_push(s, C_record, names[c->kind])->f = c->done;
}

/* Rank's part: its stream has arrived; the last one's does the work, the others' wait for it. */
static int join(collective *c, int rank, const part *p)
{
    cuda_stream s = fake_stream_of(p->s);
    c->part[rank] = *p;
    c->part[rank].arrived = fake_firing();
    c->called |= 1u << rank;
    fake_push(s, C_record, names[c->kind])->f = c->part[rank].arrived;
    if (c->called == (1u << c->ranks) - 1)
        give_work(c, s);
    else if (in_group && n_at_end < (int)NNC_COUNT(at_end)) {
        at_end[n_at_end].s = s;
        at_end[n_at_end].what = names[c->kind];
        at_end[n_at_end++].done = c->done;
    } else
        fake_push(s, C_wait, names[c->kind])->f = c->done;
    return 0;
}

/* The collective of this number that other ranks have begun, or a new one. */
static collective *meet(clique *q, const collective *want)
{
    for (collective *c = q->open; c; c = c->next)
        if ((c->kind == K_pair) == (want->kind == K_pair) && c->number == want->number &&
            c->sender == want->sender && c->receiver == want->receiver)
            return c;
    collective *c = calloc(1, sizeof *c);
    *c = *want;
    c->done = fake_firing();
    c->next = q->open;
    return q->open = c;
}

/* NULL: refused, *result says how. */
static collective *enter(nccl_comm comm, collective want, cuda_stream s, int *result)
{
    clique *q = comm->clique;
    cuda_stream at = fake_stream_of(s);
    *result = fake_gives(0) ? UNHANDLED_CUDA_ERROR : 0;
    if (*result)
        return NULL;
    given++;
    if (!comm->joined || comm->busy)
        fake_wrong("%s on a communicator that is not ready", names[want.kind]);
    comm->busy = !comm->blocks;
    if (want.type < 0 || want.type >= (int)NNC_COUNT(types) || want.op < SUM || want.op > AVG ||
        want.root < 0 || want.root >= q->ranks || at->device != comm->device ||
        (at->capturing && comm->shared)) {
        fake_wrong("%s: an argument that the fake's NCCL does not know, a stream of another "
                   "device, or a capture over processes",
            names[want.kind]);
        *result = INVALID_ARGUMENT;
        return NULL;
    }
    if (q->whole && q->ranks > 1 && !in_group)
        fake_wrong("%s for one of %d ranks of this thread outside a group: NCCL would hang",
            names[want.kind], q->ranks);
    fake_count.collectives++;
    if (comm->shared)
        return NULL;
    collective *c = meet(q, &want);
    if (c->kind != want.kind || c->n != want.n || c->type != want.type || c->op != want.op ||
        c->root != want.root) {
        fake_wrong("%s: ranks disagree about what they do together", names[want.kind]);
        *result = INVALID_USAGE;
        return NULL;
    }
    fake_count.library_calls++;
    return c;
}

/* A collective with other processes. */
static void give_joint(nccl_comm comm, const collective *want, const part *p)
{
    const fake_joint j = {.kind = want->kind,
        .op = want->op,
        .type = want->type,
        .root = want->root,
        .n = want->n,
        .in = bytes_of(want) * (want->kind == K_reducescatter ? (size_t)want->ranks : 1),
        .out = result_bytes(want),
        .from = p->from,
        .to = p->to};
    fake_shared_give(comm->shared, fake_stream_of(p->s), &j, compute,
        fake_nccl_hang && given >= fake_nccl_hang, names[want->kind]);
}

static int collect(nccl_comm comm, collective want, const part *p)
{
    int result;
    want.ranks = comm->clique->ranks;
    want.number = comm->calls;
    collective *c = enter(comm, want, p->s, &result);
    if (!c && !result)
        give_joint(comm, &want, p);
    if (!c)
        return result;
    comm->calls++;
    return join(c, comm->rank, p);
}

/* ---- the table ----------------------------------------------------------------------------------------------------- */

static int all_reduce(
    const void *from, void *to, size_t n, int type, int op, nccl_comm c, cuda_stream s)
{
    return collect(c, (collective){.kind = K_allreduce, .n = n, .type = type, .op = op},
        &(part){from, to, s, NULL});
}

static int all_gather(const void *from, void *to, size_t n, int type, nccl_comm c, cuda_stream s)
{
    return collect(
        c, (collective){.kind = K_allgather, .n = n, .type = type}, &(part){from, to, s, NULL});
}

static int reduce_scatter(
    const void *from, void *to, size_t n, int type, int op, nccl_comm c, cuda_stream s)
{
    return collect(c, (collective){.kind = K_reducescatter, .n = n, .type = type, .op = op},
        &(part){from, to, s, NULL});
}

static int broadcast(
    const void *from, void *to, size_t n, int type, int root, nccl_comm c, cuda_stream s)
{
    return collect(c, (collective){.kind = K_broadcast, .n = n, .type = type, .root = root},
        &(part){from, to, s, NULL});
}

static int pair(nccl_comm comm, bool sends, int peer, size_t n, int type, const part *p)
{
    clique *q = comm->clique;
    int result;
    if (peer < 0 || peer >= q->ranks)
        return INVALID_ARGUMENT;
    int from = sends ? comm->rank : peer, to = sends ? peer : comm->rank;
    int64_t *count = sends ? &q->sent[from][to] : &q->received[from][to];
    collective want = {.kind = K_pair,
        .ranks = 2,
        .n = n,
        .type = type,
        .number = *count,
        .sender = from,
        .receiver = to};
    collective *c = enter(comm, want, p->s, &result);
    if (!c && !result)
        fake_shared_pair(comm->shared, fake_stream_of(p->s), sends, peer,
            sends ? (void *)(uintptr_t)p->from : p->to, bytes_of(&want),
            fake_nccl_hang && given >= fake_nccl_hang);
    if (!c)
        return result;
    ++*count;
    return join(c, !sends, p);
}

static int send_to(const void *from, size_t n, int type, int peer, nccl_comm c, cuda_stream s)
{
    return pair(c, true, peer, n, type, &(part){from, NULL, s, NULL});
}

static int receive(void *to, size_t n, int type, int peer, nccl_comm c, cuda_stream s)
{
    return pair(c, false, peer, n, type, &(part){NULL, to, s, NULL});
}

static int group_start(void)
{
    in_group++;
    return 0;
}

/* All of this process's ranks are known: connects those that joined in the group. */
static int join_all(void)
{
    int result = 0;
    for (nccl_comm c = comms; c; c = c->next) {
        int here = 0;
        if (c->joined)
            continue;
        for (nccl_comm o = comms; o; o = o->next) {
            here += o->clique == c->clique;
            if (o != c && o->clique == c->clique && o->device == c->device)
                result = INVALID_USAGE;
        }
        if (here < c->clique->ranks)
            c->shared = fake_shared_join(&c->clique->id, c->rank, c->clique->ranks, c->device);
        if (here < c->clique->ranks && !c->shared)
            result = INVALID_ARGUMENT;
    }
    for (nccl_comm c = comms; c; c = c->next) {
        while (!c->joined && c->blocks && c->shared &&
               fake_shared_state(c->shared) == NCCL_IN_PROGRESS)
            usleep(100);
        c->busy = c->joined ? c->busy : !c->blocks;
        c->joined = true;
    }
    return result;
}

static int group_end(void)
{
    if (!in_group)
        return INVALID_USAGE;
    const int joined = in_group == 1 ? join_all() : 0;
    bool busy = false;
    for (nccl_comm c = comms; c; c = c->next)
        busy = busy || c->busy;
    for (int i = 0; in_group == 1 && i < n_at_end; i++)
        fake_push(at_end[i].s, C_wait, at_end[i].what)->f = at_end[i].done;
    n_at_end = --in_group ? n_at_end : 0;
    return joined ? joined : busy ? NCCL_IN_PROGRESS : 0;
}

static int version(int *v)
{
    *v = 22809;
    return 0;
}

static const char *error_string(int result)
{
    return result ? "the fake's NCCL refuses" : "no error";
}

static const char *last_error_text(nccl_comm c)
{
    (void)c;
    return "";
}

static int unique_id(nccl_id *id)
{
    fake_shared_id(id);
    return 0;
}

static int init_rank_config(nccl_comm *out, int ranks, nccl_id id, int rank, nccl_config *config)
{
    int device;
    clique *q = cliques;
    *out = NULL;
    if (fake_gives(0))
        return UNHANDLED_CUDA_ERROR;
    if (ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks)
        return INVALID_ARGUMENT;
    if (config && (config->size < 20 || config->magic != 0xcafebeef || config->version < 21400))
        return INVALID_ARGUMENT;
    for (; q && memcmp(&q->id, &id, sizeof id); q = q->next)
        ;
    if (!q) {
        q = calloc(1, sizeof *q);
        *q = (clique){.id = id, .ranks = ranks, .whole = true, .next = cliques};
        cliques = q;
    }
    if (q->ranks != ranks)
        return INVALID_USAGE;
    fake_count.communicators++;
    (void)NNC_CUDA(cudart, NULL)->cudaGetDevice(&device);
    *out = calloc(1, sizeof **out);
    **out = (struct nccl_comm_of){.clique = q,
        .rank = rank,
        .device = device,
        .blocks = !config || config->blocking,
        .next = comms};
    comms = *out;
    return in_group ? 0 : join_all();
}

static int init_rank(nccl_comm *out, int ranks, nccl_id id, int rank)
{
    return init_rank_config(out, ranks, id, rank, NULL);
}

static int remove_comm(nccl_comm c)
{
    nccl_comm *at = &comms;
    while (*at && *at != c)
        at = &(*at)->next;
    if (!*at)
        return INVALID_ARGUMENT;
    *at = c->next;
    fake_count.communicators--;
    free(c);
    return 0;
}

static int destroy(nccl_comm c)
{
    fake_until_idle(); /* as NCCL waits for what it has been given */
    return remove_comm(c);
}

/* Ends what its kernels wait for. */
static int comm_abort(nccl_comm c)
{
    if (c->shared)
        fake_shared_abort(c->shared);
    return remove_comm(c);
}

static int init_all(nccl_comm *out, int n, const int *devices)
{
    nccl_id id;
    int before, result = 0, made = 0;
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    (void)unique_id(&id);
    (void)rt->cudaGetDevice(&before);
    in_group++;
    for (; made < n && !result; made++)
        result = rt->cudaSetDevice(devices ? devices[made] : made)
                     ? UNHANDLED_CUDA_ERROR
                     : init_rank(&out[made], n, id, made);
    in_group--;
    result = result ? result : join_all();
    for (int i = 0; result && i < made; i++) {
        if (out[i] && i < made - 1)
            (void)destroy(out[i]);
        out[i] = NULL;
    }
    (void)rt->cudaSetDevice(before);
    return result;
}

static int finalize(nccl_comm c)
{
    c->busy = !c->blocks;
    return c->busy ? NCCL_IN_PROGRESS : 0;
}

static int async_error(nccl_comm c, int *result)
{
    if (c->shared && !fake_sticky) /* who asks again and again gives the device time */
        (void)fake_step();
    const int state = c->shared ? fake_shared_state(c->shared) : 0;
    *result = fake_sticky                                   ? UNHANDLED_CUDA_ERROR
              : fake_nccl_error && given >= fake_nccl_error ? REMOTE_ERROR
              : state                                       ? state
              : c->busy                                     ? NCCL_IN_PROGRESS
                                                            : 0;
    c->busy = false;
    return 0;
}

static const nnc_cuda_nccl table = {
    .ncclGetVersion = version,
    .ncclGetErrorString = error_string,
    .ncclGetLastError = last_error_text,
    .ncclGetUniqueId = unique_id,
    .ncclCommInitRank = init_rank,
    .ncclCommInitRankConfig = init_rank_config,
    .ncclCommInitAll = init_all,
    .ncclCommFinalize = finalize,
    .ncclCommDestroy = destroy,
    .ncclCommAbort = comm_abort,
    .ncclCommGetAsyncError = async_error,
    .ncclGroupStart = group_start,
    .ncclGroupEnd = group_end,
    .ncclAllReduce = all_reduce,
    .ncclAllGather = all_gather,
    .ncclReduceScatter = reduce_scatter,
    .ncclBroadcast = broadcast,
    .ncclSend = send_to,
    .ncclRecv = receive,
};

void fake_nccl_begin(void)
{
    in_group = given = n_at_end = fake_nccl_error = fake_nccl_hang = 0;
    nnc_cuda_override(CUDA_nccl, &table);
}

void fake_nccl_end(void)
{
    if (in_group)
        fake_wrong("an NCCL group is not ended");
    fake_shared_end();
    while (comms) {
        nccl_comm c = comms;
        comms = c->next;
        free(c);
    }
    while (cliques) {
        clique *q = cliques;
        cliques = q->next;
        while (q->open) {
            collective *c = q->open;
            q->open = c->next;
            free(c);
        }
        free(q);
    }
}
