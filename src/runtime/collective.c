/* runtime/collective.c -- collectives of the plan: each participant's command exchanges messages with all others, on its stream.
 *
 *   allreduce       reduce-scatter and allgather: participant k gets the k-th chunk of every operand, reduces them in the order of the
 *                   participants, and sends the result to all; in rounds of NNC_COLLECTIVE_ROUND of each chunk
 *   allgather       each operand is sent to all
 *   reduce_scatter  part k of every operand is sent to participant k, which reduces them in the order of the participants; in such rounds
 *
 * The order is the plan's, not that of arriving messages, so results have the same bits however devices are spread over ranks. Participants
 * of one process exchange messages, too: through `self`, or MPI to the same rank. Each has a tag for its sender and receiver, beyond the
 * tags of commands; the rounds of a reduction keep their order.
 *
 * A participant goes from phase to phase, each of which begins messages that the next one needs. A CPU's participant waits between them on
 * its stream. A GPU's tensors are then in host memory, and progress.c looks at its messages. */
#include "runtime/collective.h"
#include <math.h>
#include <string.h>

/* ---- reductions ------------------------------------------------------------------------------ */

static double pick(double a, double b, nnc_reduction op)
{
    if (op == RED_add)
        return a + b;
    if (isnan(a) || isnan(b))
        return NAN;
    return op == RED_min ? (b < a ? b : a) : (b > a ? b : a);
}

static int64_t pick_int(int64_t a, int64_t b, nnc_reduction op, bool is_unsigned)
{
    if (op == RED_add)
        return (int64_t)((uint64_t)a + (uint64_t)b);
    const bool less = is_unsigned ? (uint64_t)b < (uint64_t)a : b < a;
    return less == (op == RED_min) ? b : a;
}

/* y += x in f32, the order of the calls being that of the participants. */
static void add_f32(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* 16-bit floats are summed in f32 and rounded once; f64 in f64. */
static void reduce_floats(
    nnc_dtype d, nnc_reduction op, const void *const *x, int n_x, int64_t n, void *y)
{
    for (int64_t i = 0; i < n; i++) {
        double a = nnc_get_f64(d, x[0], i);
        for (int k = 1; k < n_x; k++) {
            a = pick(a, nnc_get_f64(d, x[k], i), op);
            a = d == DT_f64 ? a : (double)(float)a;
        }
        nnc_set_f64(d, y, i, a);
    }
}

/* y = x[0] + x[1] + ..., from left to right; y is apart from them. */
static void reduce(nnc_dtype d, nnc_reduction op, const void *const *x, int n_x, int64_t n, void *y)
{
    if (d == DT_f32 && op == RED_add) {
        memcpy(y, x[0], (size_t)n * sizeof(float));
        for (int k = 1; k < n_x; k++)
            add_f32(y, x[k], n);
        return;
    }
    if (nnc_is_float(d)) {
        reduce_floats(d, op, x, n_x, n, y);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t a = nnc_get_i64(d, x[0], i);
        for (int k = 1; k < n_x; k++)
            a = pick_int(a, nnc_get_i64(d, x[k], i), op, d == DT_u64);
        nnc_set_i64(d, y, i, a);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Begins one; nothing where there are no bytes, which the other side knows, too. */
static nnc_status begin(
    participant *p, nnc_message *m, int other, bool sends, void *at, int64_t bytes)
{
    const int n = p->c->n, from = sends ? p->me : other, to = sends ? other : p->me;
    *m = (nnc_message){at, bytes, p->rank[other], p->tag + from * n + to, sends, NULL, true};
    return bytes ? nnc_comm_start(p->comm, m, p->what) : NNC_OK;
}

/* First element of chunk k. */
static int64_t chunk(const participant *p, int k)
{
    return (int64_t)((__int128)p->numel * k / p->c->n);
}

static const void **operands(participant *p, const void **x, char *own, char *work, int64_t slot)
{
    x[0] = p->me ? work : own;
    for (int k = 1; k < p->c->n; k++)
        x[k] = k == p->me ? own : work + k * slot;
    return x;
}

/* Bytes [*at, *at + result) of the operand: what round r takes of chunk k. */
static int64_t round_of(const participant *p, int k, int r, int64_t each, int64_t *at)
{
    const int64_t size = nnc_dtype_size(p->type), end = chunk(p, k + 1) * size;
    *at = nnc_min64(chunk(p, k) * size + r * each, end);
    return nnc_min64(end - *at, each);
}

/* Two phases a round: its part of chunk k goes to participant k; from there the sum of these goes to all. */
static nnc_status allreduce(participant *p, bool *over)
{
    const int n = p->c->n, me = p->me, r = p->phase / 2;
    const int64_t size = nnc_dtype_size(p->type), longest = (p->numel + n - 1) / n * size;
    const int64_t each = nnc_collective_round(p->c, longest), slot = nnc_align_up(each, 64);
    const void *x[NNC_MAX_PARTICIPANTS] = {NULL};
    const bool first = p->phase % 2 == 0;
    int64_t from, mine = round_of(p, me, r, each, &from);
    *over = r > 0 ? r * each >= longest : p->phase && !longest;
    if (!first)
        reduce(p->type, (nnc_reduction)p->c->reduction,
            operands(p, x, p->src + from, p->work, slot), n, mine / size, p->dst + from);
    for (int k = 0; k < n && !*over; k++) {
        int64_t at;
        const int64_t bytes = round_of(p, k, r, each, &at);
        if (k == me)
            continue;
        NNC_TRY(begin(
            p, &p->m[2 * k], k, true, first ? p->src + at : p->dst + from, first ? bytes : mine));
        NNC_TRY(begin(p, &p->m[2 * k + 1], k, false, first ? p->work + k * slot : p->dst + at,
            first ? mine : bytes));
    }
    return NNC_OK;
}

/* Copies rows between a packed and a strided place. */
static void copy_rows(
    char *to, int64_t to_step, const char *from, int64_t from_step, int64_t bytes, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * to_step, from + r * from_step, (size_t)bytes);
}

static nnc_status allgather(participant *p, bool *over)
{
    const int n = p->c->n, me = p->me;
    const int64_t rows = p->c->outer, row = p->dst_bytes / rows;
    int64_t at = 0, packed = 0;
    *over = p->phase == 1;
    for (int k = 0; k < n; k++) {
        const int64_t inner = p->src_bytes[k] / rows;
        char *in = k == me ? p->src : rows == 1 ? p->dst + at : p->work + packed;
        if (*over && (rows > 1 || k == me))
            copy_rows(p->dst + at, row, in, inner, inner, rows);
        at += inner;
        packed += nnc_align_up(p->src_bytes[k], 64);
        if (*over || k == me)
            continue;
        NNC_TRY(begin(p, &p->m[2 * k], k, true, p->src, p->src_bytes[me]));
        NNC_TRY(begin(p, &p->m[2 * k + 1], k, false, in, p->src_bytes[k]));
    }
    return NNC_OK;
}

/* A phase for each round of the parts, and one to reduce the last one. */
static nnc_status reduce_scatter(participant *p, bool *over)
{
    const int n = p->c->n, me = p->me;
    const int64_t rows = p->c->outer, inner = p->dst_bytes / rows;
    const int64_t each = nnc_collective_round(p->c, p->dst_bytes), slot = nnc_align_up(each, 64);
    const int64_t at = p->phase * each, bytes = nnc_min64(p->dst_bytes - at, each);
    const void *x[NNC_MAX_PARTICIPANTS] = {NULL};
    if (p->phase) {
        const int64_t last = at - each, done = nnc_min64(p->dst_bytes - last, each);
        char *own = rows == 1 ? p->src + me * inner + last : p->work + (n + me) * slot;
        reduce(p->type, (nnc_reduction)p->c->reduction, operands(p, x, own, p->work, slot), n,
            done / nnc_dtype_size(p->type), p->dst + last);
    }
    *over = p->phase && bytes <= 0;
    for (int k = 0; k < n && !*over; k++) {
        char *part = rows == 1 ? p->src + k * inner + at : p->work + (n + k) * slot;
        if (rows > 1)
            copy_rows(part, inner, p->src + k * inner, n * inner, inner, rows);
        if (k == me)
            continue;
        NNC_TRY(begin(p, &p->m[2 * k], k, true, part, bytes));
        NNC_TRY(begin(p, &p->m[2 * k + 1], k, false, p->work + k * slot, bytes));
    }
    return NNC_OK;
}

void nnc_collective_start(participant *p, char *src, char *dst, char *work)
{
    p->src = src;
    p->dst = dst;
    p->work = work;
    p->phase = 0;
}

nnc_status nnc_collective_step(participant *p, bool *over)
{
    nnc_status st = NNC_E_BUG;
    *over = p->c->n < 2;
    for (int k = 0; k < 2 * p->c->n; k++)
        p->m[k].done = true;
    if (*over) {
        memcpy(p->dst, p->src, (size_t)p->dst_bytes);
        return NNC_OK;
    }
    switch ((nnc_collective_kind)p->c->kind) {
    case COLL_allreduce: st = allreduce(p, over); break;
    case COLL_allgather: st = allgather(p, over); break;
    case COLL_reduce_scatter: st = reduce_scatter(p, over); break;
    case COLL__COUNT: break;
    }
    p->phase++;
    return st;
}

/* A CPU's participant, on its stream's thread. */
static nnc_status run_participant(void *handle, void *const *args, void *work)
{
    participant *p = handle;
    bool over = false;
    nnc_collective_start(p, args[0], args[1], work);
    while (!over) {
        NNC_TRY(nnc_collective_step(p, &over));
        NNC_TRY(nnc_comm_finish(p->comm, p->m, 2 * p->c->n, p->what));
    }
    return NNC_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* State that the participants of one collective share. */
typedef struct meeting {
    int *rank;
    int64_t *src_bytes;
    int n, tag; /* n: participants so far */
} meeting;

static nnc_status add_participant(nnc_exec *e, meeting *at, int32_t i, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    const nnc_cmd *c = &p->cmd[i];
    const nnc_collective *k = &p->collective[c->item];
    if (at->n == k->n)
        return nnc_fail0(
            sink, NNC_E_BUG, "plan: command %d: its collective has no more participants", i);
    at->rank[at->n] = e->ranks ? e->ranks->owner[c->device] : 0;
    at->src_bytes[at->n] = p->tensor[c->arg[0]].bytes;
    const int me = at->n++;
    if (!nnc_exec_owns(e, c->device))
        return NNC_OK;
    participant *x = ARENA_NEW(&e->arena, participant, 1);
    nnc_message *m = ARENA_NEW(&e->arena, nnc_message, 2 * k->n);
    NNC_NEED(x && m, sink);
    *x = (participant){.e = e,
        .c = k,
        .comm = exec_comm(e),
        .me = me,
        .tag = at->tag,
        .rank = at->rank,
        .src_bytes = at->src_bytes,
        .dst_bytes = p->tensor[c->arg[1]].bytes,
        .numel = nnc_type_numel(&p->tensor[c->arg[0]].type),
        .type = p->tensor[c->arg[0]].type.dtype,
        .m = m};
    snprintf(
        x->what, sizeof x->what, "%.60s: collective", c->layers && *c->layers ? c->layers : "plan");
    e->collective[i] = x;
    return NNC_OK;
}

nnc_status nnc_exec_find_collectives(nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    int64_t tags = p->n_cmd;
    if (!p->n_collective)
        return NNC_OK;
    if (!e->ranks) /* no deadline: nothing is lost within a process, and no plan that the verifier accepts deadlocks */
        NNC_TRY(nnc_comm_self(1, INFINITY, &e->self, sink));
    e->collective = ARENA_NEW(&e->arena, struct participant *, p->n_cmd + 1);
    meeting *at = ARENA_NEW(&e->arena, meeting, p->n_collective);
    NNC_NEED(e->collective && at, sink);
    for (int k = 0; k < p->n_collective; k++) {
        const int n = p->collective[k].n;
        if (n < 1 || n > NNC_MAX_PARTICIPANTS)
            return nnc_fail0(sink, NNC_E_FIT,
                "plan: collective %d has %d participants; at most %d are possible", k, n,
                NNC_MAX_PARTICIPANTS);
        at[k] = (meeting){.rank = ARENA_NEW(&e->arena, int, n),
            .src_bytes = ARENA_NEW(&e->arena, int64_t, n),
            .tag = (int)tags};
        NNC_NEED(at[k].rank && at[k].src_bytes, sink);
        tags += (int64_t)n * n;
        if (tags > nnc_comm_most_tag(exec_comm(e)))
            return nnc_fail0(sink, NNC_E_FIT, "the plan's messages are more than there are tags");
    }
    for (int32_t i = 0; i < p->n_cmd; i++)
        if (p->cmd[i].kind == CMD_collective)
            NNC_TRY(add_participant(e, &at[p->cmd[i].item], i, sink));
    for (int k = 0; k < p->n_collective; k++)
        if (at[k].n != p->collective[k].n)
            return nnc_fail0(sink, NNC_E_BUG, "plan: collective %d lacks a participant", k);
    return NNC_OK;
}

nnc_status nnc_exec_collective(nnc_exec *e, int i)
{
    const nnc_cmd *c = &e->p->cmd[i];
    nnc_work w = nnc_exec_work(e, i, run_participant, e->collective[i]);
    w.always = true; /* where an operand's command failed, too: the others wait for it */
    return e->dev[c->device].api->launch(e->dev[c->device].stream[c->stream], &w);
}

void nnc_exec_break_collectives(nnc_exec *e)
{
    if (e->self)
        nnc_comm_break(e->self, "a command was not submitted");
    e->self_broken = e->self != NULL;
}

nnc_status nnc_exec_mend_collectives(nnc_exec *e)
{
    nnc_comm *fresh = NULL;
    if (!e->self_broken)
        return NNC_OK;
    NNC_TRY(nnc_comm_self(1, INFINITY, &fresh, NULL));
    nnc_comm_close(e->self);
    e->self = fresh;
    for (int i = 0; i < e->p->n_cmd; i++)
        if (e->collective[i])
            e->collective[i]->comm = fresh;
    e->self_broken = false;
    return NNC_OK;
}
