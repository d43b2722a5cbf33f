/* strategy/rows.c -- the strategies of nnc partition, evaluated on a model's blocks: each fills a row of the table. All strategies
 * do the same work, an iteration of `micro` micro-batches. Communication that a strategy exposes is the difference of its time to the one
 * with links that take none. */
#include "report/report.h"
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "picture/picture.h"
#include "train/train.h"
#include <math.h>
#include <string.h>

const char *const nnc_partition_fill[NNC_FILL_KINDS] = {
    "weights", "gradients", "optimizer", "saved", "working"};

int64_t row_range(const int64_t *v, int i, int j)
{
    int64_t t = 0;
    for (; i < j; i++)
        t = nnc_add_sat(t, v[i]);
    return t;
}

static int64_t range_max(const int64_t *v, int i, int j)
{
    int64_t t = 0;
    for (; i < j; i++)
        t = nnc_max64(t, v[i]);
    return t;
}

int64_t row_adding_ns(const rows *r, int i, int j, int k)
{
    return k > 1 ? row_range(r->m->cost.accumulate, i, j) : 0;
}

/* Nanoseconds of all passes of one micro-batch through blocks i .. j-1. */
static int64_t pass_ns(const rows *r, int i, int j)
{
    const nnc_layer_costs *of = &r->m->cost;
    return nnc_add_sat(nnc_add_sat(row_range(of->forward, i, j), row_range(of->backward, i, j)),
        nnc_add_sat(row_range(of->weight, i, j), row_adding_ns(r, i, j, r->micro)));
}

/* Adds blocks i .. j-1 to a device that keeps n micro-batches' tensors. */
void row_add_blocks(const rows *r, nnc_device_use *u, int i, int j, int64_t n)
{
    const nnc_layer_costs *of = &r->m->cost;
    u->fill[FILLED_weights] += row_range(of->weights, i, j);
    u->fill[FILLED_gradients] += row_range(of->gradients, i, j);
    u->fill[FILLED_optimizer] += row_range(of->states, i, j);
    u->fill[FILLED_saved] =
        nnc_add_sat(u->fill[FILLED_saved], nnc_mul_sat(n, row_range(of->saved, i, j)));
    if (i) /* what the stage receives */
        *(r->m->step ? &u->fill[FILLED_saved] : &u->fill[FILLED_working]) +=
            nnc_mul_sat(r->m->step ? n : 1, r->m->boundary[i]);
    u->fill[FILLED_working] = nnc_max64(u->fill[FILLED_working], range_max(of->working, i, j));
}

/* Stages of inference send their results without waiting for the receiver. */
void row_add_batches(const rows *r, nnc_device_use *u, int i, int j, int batches)
{
    const nnc_training *of = r->t->training;
    const int64_t more = batches > 1 ? batches - 1 : 0;
    const bool indices = r->m->step && (!of || of->loss == NNC_LOSS_cross_entropy);
    const int64_t in = i && r->m->step ? 0 : r->m->boundary[i],
                  out = j < r->m->n_block || indices ? 0 : r->m->boundary[j];
    u->fill[FILLED_working] =
        nnc_add_sat(u->fill[FILLED_working], nnc_mul_sat(more, nnc_add_sat(in, out)));
}

/* "0-13": layers of blocks i .. j-1; after others a comma. */
const char *row_layers(const rows *r, const char *before, int i, int j)
{
    const int first = r->m->first[i], last = r->m->first[j] - 1;
    const char *comma = before && *before ? "," : "";
    before = before ? before : "";
    return first == last ? nnc_arena_printf(r->a, "%s%s%d", before, comma, first)
                         : nnc_arena_printf(r->a, "%s%s%d-%d", before, comma, first, last);
}

void row_executes(const rows *r, nnc_partition_row *row, nnc_partition_way way)
{
    /* One device divides nothing: nnc run and train refuse --strategy, --zero and --bucket-mb. */
    if (r->n == 1 && way.strategy)
        way = (nnc_partition_way){.runs = way.runs * (way.micro > 1 ? way.micro : 1)};
    way.devices = way.devices ? way.devices : r->n;
    row->way = way;
    row->executable = way.runs && r->here && way.devices <= NNC_MAX_DEVICES;
}

/* The row is complete but for sums. */
nnc_status row_finish(rows *r, nnc_partition_row *row)
{
    int64_t busy = 0;
    row->fits = true;
    for (int d = 0; d < r->n; d++) {
        nnc_device_use *u = &row->use[d];
        u->layers = u->layers ? u->layers : "";
        u->bytes = 0;
        for (int k = 0; k < NNC_FILL_KINDS; k++)
            u->bytes = nnc_add_sat(u->bytes, u->fill[k]);
        row->fits = row->fits && u->bytes <= r->capacity;
        busy = nnc_add_sat(busy, u->busy_ns);
    }
    if (row->way.runs && row->way.devices > 1)
        row->iteration_ns =
            nnc_add_sat(row->iteration_ns, nnc_mul_sat(row->way.runs, row_run_ns(r)));
    row->iteration_ns = nnc_max64(row->iteration_ns, row_cores_ns(r, busy));
    const double all = (double)r->n * (double)row->iteration_ns;
    row->bubble = all > 0 ? 1 - (double)busy / all : 0;
    row->exposed_ns = nnc_max64(row->exposed_ns, 0);
    row->hidden_ns = nnc_max64(row->hidden_ns, 0);
    return NNC_OK;
}

/* --place of blocks on devices. */
static const char *place_of(const rows *r, const int *device)
{
    const char *text = "";
    for (int b = 0, end; b < r->m->n_block && text; b = end) {
        for (end = b + 1; end < r->m->n_block && device[end] == device[b];)
            end++;
        text = row_layers(r, text, b, end);
        text = text ? nnc_arena_printf(r->a, "%s=%d", text, device[b]) : NULL;
    }
    return text;
}

/* ---- one device, placements ----------------------------------------------------------------------------- */

/* The tasks after which a value of an edge is on a device. */
typedef struct placed {
    rows *r;
    row_tasks *t;
    const int *device; /* by block */
    int used; /* devices */
    int64_t wake; /* of a device that waited for a transfer */
    int *there; /* by edge and device; -1: nothing was sent */
    int64_t *late; /* by device: gradients of weights that are still to be computed */
} placed;

static void send(placed *p, int e, int from, int to, int after, const char *name)
{
    const int64_t bytes = p->r->m->edge[e].bytes;
    if (from == to || p->there[e * p->used + to] >= 0 || !bytes)
        return;
    const row_task x = {.part = from,
        .holds = true,
        .ns = nnc_add_sat(nnc_links_p2p(&p->r->links, from, to, bytes), p->wake),
        .bytes = bytes,
        .name = name};
    p->there[e * p->used + to] = row_task_move(p->t, x, after);
}

static bool reads(const nnc_edge *e, int b)
{
    for (int k = 0; k < e->n_user; k++)
        if (e->user[k] == b)
            return true;
    return false;
}

static void add_forward(placed *p, int b)
{
    const nnc_partition_model *m = p->r->m;
    const int d = p->device[b];
    const int task = row_task_compute(p->t, d, WORK_forward, 0, m->cost.forward[b]);
    for (int e = 0; e < m->n_edge; e++) {
        if (reads(&m->edge[e], b))
            row_task_wait(p->t, task, p->there[e * p->used + d]);
        for (int k = 0; k < m->edge[e].n_user && m->edge[e].maker == b; k++)
            if (m->edge[e].user[k] < m->n_block)
                send(p, e, d, p->device[m->edge[e].user[k]], task, "send a result");
    }
}

/* The last user of an edge on this device, backwards. */
static bool is_last(const placed *p, const nnc_edge *e, int b)
{
    bool last = true;
    for (int k = 0; k < e->n_user; k++)
        last = last && (e->user[k] >= b || p->device[e->user[k]] != p->device[b]);
    return last;
}

/* Adds the gradients of block b's weights, of so many nanoseconds, to those that are still to be computed. To save memory, plans first
 * compute the gradients that blocks before it need, where these take much less time. Returns what is computed before block b's pass. */
static int64_t add_late(const rows *r, int b, int64_t *late)
{
    const int64_t now = nnc_mul_sat(2, r->m->cost.backward[b]) < *late ? 0 : *late;
    *late = nnc_add_sat(
        *late - now, nnc_add_sat(r->m->cost.weight[b], row_adding_ns(r, b, b + 1, r->micro)));
    return now;
}

/* Gradients of what a block read are sent before those of its weights are computed. Several devices' gradients of an edge arrive one after
 * the other. */
static void add_backward(placed *p, int b, int *arrived)
{
    const nnc_partition_model *m = p->r->m;
    const int d = p->device[b];
    (void)row_task_compute(p->t, d, WORK_weight, 0, add_late(p->r, b, &p->late[d]));
    const int task = row_task_compute(p->t, d, WORK_backward, 0, m->cost.backward[b]);
    for (int e = 0; e < m->n_edge; e++) {
        const nnc_edge *x = &m->edge[e];
        for (int k = 0; k < p->used && x->maker == b; k++)
            row_task_wait(p->t, task, arrived[e * p->used + k]);
        if (x->maker < 0 || p->device[x->maker] == d || !reads(x, b) || !is_last(p, x, b))
            continue;
        p->there[e * p->used + p->device[x->maker]] = -1;
        send(p, e, d, p->device[x->maker], task, "send a gradient");
        arrived[e * p->used + d] = p->there[e * p->used + p->device[x->maker]];
    }
}

/* One micro-batch after the other, each through all devices: blocks in this order (NULL: theirs). device[]: by block. */
static nnc_status run_placed(
    rows *r, nnc_partition_row *row, const int *device, const int *order, int used)
{
    const nnc_partition_model *m = r->m;
    const size_t n = (size_t)m->n_edge * (size_t)used + 1;
    row_tasks t;
    int *there = ARENA_NEW(r->a, int, n), *arrived = ARENA_NEW(r->a, int, n);
    int64_t *late = ARENA_NEW(r->a, int64_t, used);
    NNC_NEED(there && arrived && late, r->sink);
    NNC_TRY(row_tasks_make(r, used, &t));
    memset(there, 0xff, n * sizeof *there);
    memset(arrived, 0xff, n * sizeof *arrived);
    placed p = {r, &t, device, used, row_wake_ns(r, pass_ns(r, 0, m->n_block)), there, late};
    t.lane = "sends";
    t.repeat = r->micro;
    t.each = 1;
    for (int i = 0; i < m->n_block; i++)
        add_forward(&p, order ? order[i] : i);
    for (int i = m->n_block - 1; i >= 0 && m->step; i--)
        add_backward(&p, order ? order[i] : i, arrived);
    for (int d = 0; d < used; d++)
        (void)row_task_compute(&t, d, WORK_weight, 0, late[d]);
    row_tasks_meet(&t);
    for (int b = 0; b < m->n_block; b++)
        (void)row_task_compute(&t, device[b], WORK_update, -1, m->cost.optimizer[b]);
    return row_tasks_run(&t, row);
}

static nnc_status placed_row(rows *r, nnc_partition_row *row, const int *device, const int *order)
{
    const nnc_partition_model *m = r->m;
    int used = 1; /* no more than there are blocks */
    for (int b = 0; b < m->n_block; b++)
        used = device[b] + 1 > used ? device[b] + 1 : used;
    int64_t *traffic = ARENA_NEW(r->a, int64_t, (size_t)used * (size_t)used);
    NNC_NEED(traffic, r->sink);
    nnc_edges_traffic(m->edge, m->n_edge, m->n_block, device, used, traffic);
    for (int i = 0; i < used * used; i++) /* the receiver's copy */
        row->use[i % used].fill[m->step ? 3 : 4] += traffic[i];
    for (int b = 0, end; b < m->n_block; b = end) {
        nnc_device_use *u = &row->use[device[b]];
        for (end = b + 1; end < m->n_block && device[end] == device[b];)
            end++;
        const int64_t received = u->fill[FILLED_saved], working = u->fill[FILLED_working];
        row_add_blocks(r, u, b, end, 1);
        u->fill[FILLED_saved] = received + row_range(m->cost.saved, b, end);
        u->fill[FILLED_working] = nnc_max64(working, range_max(m->cost.working, b, end));
        u->layers = row_layers(r, u->layers, b, end);
        NNC_NEED(u->layers, r->sink);
    }
    NNC_TRY(run_placed(r, row, device, order, used));
    row_executes(r, row, (nnc_partition_way){.runs = r->micro});
    return row_finish(r, row);
}

nnc_status row_single(rows *r, nnc_partition_row *row)
{
    const nnc_partition_model *m = r->m;
    const int *device = ARENA_NEW(r->a, int, m->n_block + 1); /* all of them on device 0 */
    NNC_NEED(device, r->sink);
    row_add_blocks(r, &row->use[0], 0, m->n_block, 1);
    NNC_NEED(row->use[0].layers = row_layers(r, NULL, 0, m->n_block), r->sink);
    NNC_TRY(run_placed(r, row, device, NULL, 1));
    row_executes(r, row, (nnc_partition_way){.runs = r->micro, .devices = 1});
    return row_finish(r, row);
}

/* Cuts for the least memory of the fullest device. */
nnc_status row_sequential(rows *r, nnc_partition_row *row)
{
    const nnc_partition_model *m = r->m;
    const int stages = r->n < m->n_block ? r->n : m->n_block;
    int *cut = ARENA_NEW(r->a, int, stages + 1), *device = ARENA_NEW(r->a, int, m->n_block + 1);
    int64_t *fixed = ARENA_NEW(r->a, int64_t, m->n_block + 1);
    nnc_cut_result x;
    NNC_NEED(cut && device && fixed, r->sink);
    for (int b = 0; b < m->n_block; b++)
        fixed[b] = m->cost.weights[b] + m->cost.gradients[b] + m->cost.states[b];
    const nnc_cut_problem p = {.n_layer = m->n_block,
        .n_stage = stages,
        .fixed = fixed,
        .saved = m->step ? m->cost.saved : NULL,
        .kept = m->boundary};
    NNC_TRY(nnc_cut_min_memory(&p, cut, &x, r->sink));
    for (int s = 0; s < stages; s++)
        for (int b = cut[s]; b < cut[s + 1]; b++)
            device[b] = s;
    NNC_NEED(row->place = place_of(r, device), r->sink);
    row->cut = cut;
    return placed_row(r, row, device, NULL);
}

nnc_status row_manual(rows *r, nnc_partition_row *row)
{
    const nnc_partition_model *m = r->m;
    int *device = ARENA_NEW(r->a, int, m->n_block + 1);
    bool any = false;
    NNC_NEED(device, r->sink);
    for (int b = 0; b < m->n_block; b++) {
        device[b] = m->device[m->first[b]] < 0 ? 0 : m->device[m->first[b]];
        for (int l = m->first[b]; l < m->first[b + 1]; l++) {
            any = any || m->device[l] >= 0;
            if ((m->device[l] < 0 ? 0 : m->device[l]) != device[b])
                row->note = "the placement divides layers that one kernel computes on one device: "
                            "they count as on the device of the first of them";
        }
        if (device[b] >= r->n)
            return nnc_fail0(r->sink, NNC_E_USAGE,
                "layer %d, %s, is placed on device %d of only %d (--devices=%d makes enough)",
                m->first[b], m->layer[m->first[b]], device[b], r->n, device[b] + 1);
    }
    if (!any)
        row->why_not = "no layer is placed: --place=0-9=0,10-=1, or \"device\" in the model file";
    return any ? placed_row(r, row, device, NULL) : NNC_OK;
}

/* Blocks whose operands are ready side by side on all devices: list scheduling, of inference. */
nnc_status row_branches(rows *r, nnc_partition_row *row)
{
    const nnc_partition_model *m = r->m;
    const int n = m->n_block;
    int *start, *need, *device = ARENA_NEW(r->a, int, n + 1), *order = ARENA_NEW(r->a, int, n + 1);
    int64_t *bytes = ARENA_NEW(r->a, int64_t, n + 1), *begin = ARENA_NEW(r->a, int64_t, n + 1), ns;
    NNC_NEED(device && order && bytes && begin, r->sink);
    NNC_TRY(row_operands(r, &start, &need));
    for (int e = 0; e < m->n_edge; e++)
        if (m->edge[e].maker >= 0)
            bytes[m->edge[e].maker] = nnc_add_sat(bytes[m->edge[e].maker], m->edge[e].bytes);
    const nnc_branch_problem p = {.n_op = n,
        .time = m->cost.forward,
        .start = start,
        .need = need,
        .bytes = bytes,
        .n_place = r->n,
        .links = &r->links};
    NNC_TRY(nnc_branch_list(&p, device, begin, &ns, r->sink));
    for (int b = 0; b < n; b++) { /* operands begin first */
        int to = b;
        for (; to > 0 && begin[order[to - 1]] > begin[b]; to--)
            order[to] = order[to - 1];
        order[to] = b;
    }
    NNC_NEED(row->place = place_of(r, device), r->sink);
    return placed_row(r, row, device, order);
}

/* ---- pipelines --------------------------------------------------------------------------------------------- */

typedef enum cut_by {
    BY_best,
    BY_count,
    BY_params,
    BY_flops,
    BY_memory,
    BY_time,
    BY_torchgpipe,
    BY_deepspeed
} cut_by;

static const uint8_t cuts[] = {
#define STRATEGY(id, name, mode, by, row, schedule, cut, ...) BY_##cut,
#include "partition/strategies.def"
};

/* Cuts by a weight of blocks. */
static nnc_status cut_weights(rows *r, cut_by by, int stages, int *cut)
{
    const nnc_partition_model *m = r->m;
    int64_t *w = ARENA_NEW(r->a, int64_t, m->n_block + 1);
    NNC_NEED(w, r->sink);
    for (int b = 0; b < m->n_block; b++)
        w[b] = by == BY_count    ? m->first[b + 1] - m->first[b]
               : by == BY_params ? m->cost.weights[b]
               : by == BY_flops  ? m->cost.flops[b]
               : by == BY_memory ? m->cost.weights[b] + m->cost.gradients[b] + m->cost.states[b] +
                                       (m->step ? m->cost.saved[b] : 0)
                                 : pass_ns(r, b, b + 1);
    if (by == BY_torchgpipe)
        return nnc_cut_block_partition(w, m->n_block, stages, cut, r->sink);
    if (by == BY_deepspeed)
        return nnc_cut_max_min(w, m->n_block, stages, cut, r->sink);
    return nnc_cut_balance(w, m->n_block, stages, cut, r->sink);
}

/* The best cut for the iteration's time that fits, or if none does, the best one. */
static nnc_status cut_best(rows *r, const nnc_pipeline *pipe, int stages, int *cut, bool *fits)
{
    const nnc_partition_model *m = r->m;
    const int n = m->n_block;
    int64_t *time = ARENA_NEW(r->a, int64_t, n + 1), *fixed = ARENA_NEW(r->a, int64_t, n + 1),
            *both = ARENA_NEW(r->a, int64_t, n + 1), *room = ARENA_NEW(r->a, int64_t, stages);
    int *flight = ARENA_NEW(r->a, int, stages), *device = ARENA_NEW(r->a, int, stages);
    nnc_cut_result x;
    NNC_NEED(time && fixed && both && room && flight && device, r->sink);
    for (int b = 0; b <= n; b++) {
        both[b] = m->step ? 2 * m->boundary[b] : m->boundary[b];
        if (b == n)
            break;
        time[b] = pass_ns(r, b, b + 1);
        fixed[b] = m->cost.weights[b] + m->cost.gradients[b] + m->cost.states[b];
    }
    for (int s = 0; s < stages; s++) {
        device[s] = s % pipe->devices;
        flight[s] = nnc_pipeline_in_flight(pipe, device[s]);
        room[s] = r->capacity - range_max(m->cost.working, 0, n);
    }
    nnc_cut_problem p = {.n_layer = n,
        .n_stage = stages,
        .time = time,
        .boundary = both,
        .links = &r->links,
        .device = device,
        .fixed = fixed,
        .saved = m->step ? m->cost.saved : NULL,
        .kept = m->boundary,
        .in_flight = flight};
    p.capacity = pipe->chunks == 1 ? room : NULL;
    NNC_TRY(nnc_cut_min_latency(&p, pipe->micro, cut, &x, r->sink));
    *fits = x.ok;
    if (x.ok)
        return NNC_OK;
    p.capacity = NULL;
    return nnc_cut_min_latency(&p, pipe->micro, cut, &x, r->sink);
}

/* Costs of virtual stages. */
static nnc_status stage_costs(
    rows *r, const nnc_pipeline *pipe, const int *cut, row_pipeline_passes *x)
{
    const int stages = pipe->devices * pipe->chunks;
    const nnc_layer_costs *of = &r->m->cost;
    int64_t *v[6];
    for (int k = 0; k < 6; k++)
        NNC_NEED(v[k] = ARENA_NEW(r->a, int64_t, stages), r->sink);
    for (int s = 0; s < stages; s++) {
        const int i = cut[s], j = cut[s + 1];
        v[0][s] = row_range(of->forward, i, j);
        v[1][s] = row_range(of->backward, i, j);
        v[2][s] = nnc_add_sat(row_range(of->weight, i, j), row_adding_ns(r, i, j, pipe->micro));
        v[4][s] = nnc_add_sat(of->weight[i], row_adding_ns(r, i, i + 1, pipe->micro));
        if (s + 1 == stages)
            continue;
        v[5][s] = r->m->boundary[j];
        v[3][s] = nnc_links_p2p(&r->links, s % pipe->devices, (s + 1) % pipe->devices, v[5][s]);
    }
    *x = (row_pipeline_passes){.pipe = pipe,
        .costs = {v[0], v[1], v[2], v[3],
            .senders_wait = true}, /* plans copy on the stream that computes */
        .late = v[4],
        .bytes = v[5]};
    return NNC_OK;
}

/* Schedules of more passes take the simulator seconds: the search's clock runs them (partition/pipeline_time.c), without `late`. */
enum { MOST_PASSES = 1 << 17 };

static nnc_status run_many(rows *r, nnc_partition_row *row, row_pipeline_passes *x, const int *cut)
{
    const nnc_pipeline *pipe = x->pipe;
    const int stages = pipe->devices * pipe->chunks;
    nnc_pipeline_time t, bare;
    int64_t optimizer = 0, sends = 0;
    NNC_TRY(nnc_pipeline_run(pipe, &x->costs, r->a, &t, r->sink));
    for (int s = 0; s + 1 < stages; s++)
        sends = nnc_add_sat(
            sends, nnc_mul_sat(r->m->step ? 2 * pipe->micro : pipe->micro, x->costs.send[s]));
    x->costs.send = NULL;
    NNC_TRY(nnc_pipeline_run(pipe, &x->costs, r->a, &bare, r->sink));
    for (int s = 0; s < stages; s++) {
        nnc_device_use *u = &row->use[s % pipe->devices];
        const int64_t update = row_range(r->m->cost.optimizer, cut[s], cut[s + 1]);
        u->busy_ns = nnc_add_sat(u->busy_ns, update);
        optimizer = nnc_max64(optimizer, u->busy_ns);
    }
    for (int d = 0; d < pipe->devices; d++)
        row->use[d].busy_ns = nnc_add_sat(row->use[d].busy_ns, t.busy[d]);
    row->iteration_ns = nnc_add_sat(t.total, optimizer);
    row->exposed_ns = t.total - bare.total;
    row->hidden_ns = sends - row->exposed_ns;
    return NNC_OK;
}

static nnc_status run_stages(
    rows *r, nnc_partition_row *row, const nnc_pipeline *pipe, const int *cut)
{
    row_pipeline_passes x;
    row_tasks t;
    NNC_TRY(stage_costs(r, pipe, cut, &x));
    if ((int64_t)pipe->devices * pipe->n_task > MOST_PASSES &&
        !nnc_partition_has_timelines(r->t->o))
        return run_many(r, row, &x, cut);
    NNC_TRY(row_tasks_make(r, pipe->devices, &t));
    NNC_TRY(row_add_stages(&t, &x));
    row_tasks_meet(&t);
    for (int s = 0; s < pipe->devices * pipe->chunks; s++)
        (void)row_task_compute(&t, s % pipe->devices, WORK_update, -1,
            row_range(r->m->cost.optimizer, cut[s], cut[s + 1]));
    return row_tasks_run(&t, row);
}

/* --place of stages that go round the devices. */
const char *row_place_of_stages(const rows *r, int devices, int stages, const int *cut)
{
    int *device = ARENA_NEW(r->a, int, r->m->n_block + 1);
    for (int s = 0; device && s < stages; s++)
        for (int b = cut[s]; b < cut[s + 1]; b++)
            device[b] = s % devices;
    return device ? place_of(r, device) : NULL;
}

static nnc_status pipeline_fill(
    rows *r, nnc_partition_row *row, const nnc_pipeline *pipe, const int *cut)
{
    NNC_TRY(run_stages(r, row, pipe, cut));
    NNC_NEED(row->place = row_place_of_stages(r, pipe->devices, pipe->devices * pipe->chunks, cut),
        r->sink);
    for (int d = 0; d < pipe->devices; d++) {
        nnc_device_use *u = &row->use[d];
        const int chunks = pipe->chunks, flight = nnc_pipeline_in_flight(pipe, d);
        for (int k = 0; k < chunks; k++) {
            const int s = k * pipe->devices + d;
            row_add_blocks(r, u, cut[s], cut[s + 1], (flight + chunks - 1) / chunks);
            u->layers = row_layers(r, u->layers, cut[s], cut[s + 1]);
            NNC_NEED(u->layers, r->sink);
        }
        for (int s = d; s < chunks * pipe->devices; s += pipe->devices)
            row_add_batches(r, u, cut[s], cut[s + 1], row->way.micro);
    }
    return row_finish(r, row);
}

/* nnc run divides a batch into micro-batches. A single row does not tell. */
nnc_status row_can_divide(const rows *r, bool *can)
{
    const nnc_graph *g = r->m->step ? NULL : r->t->graph;
    const nnc_type *t = g && g->n_output ? nnc_typeof(g, g->output[0]) : NULL;
    *can = !g || (t && t->rank);
    if (!g || !*can || t->dim[0] < 2)
        return NNC_OK;
    bool *in = ARENA_NEW(r->a, bool, g->n_node + 1), *out = ARENA_NEW(r->a, bool, g->n_output + 1);
    nnc_graph *part = NULL;
    NNC_NEED(in && out, r->sink);
    NNC_TRY(nnc_graph_sample(g, t->dim[0], &part, in, out, r->sink));
    *can = part != NULL;
    for (uint32_t i = 0; i < g->n_output; i++)
        *can = *can && out[i];
    nnc_graph_destroy(part);
    return NNC_OK;
}

/* How nnc executes it. One micro-batch passes through placed layers: nnc train refuses a pipeline of it. */
static nnc_status execute_pipeline(
    rows *r, nnc_partition_row *row, nnc_pipeline_kind kind, int chunks)
{
    bool can;
    NNC_TRY(row_can_divide(r, &can));
    can = can || r->micro == 1;
    if (!can && !row->note)
        row->note = "nnc run cannot divide a batch of this model: its rows depend on each other";
    row_executes(r, row,
        (nnc_partition_way){.runs = can,
            .strategy = r->micro > 1 ? nnc_strategy_of(kind) : NNC_STRATEGY_layers,
            .micro = r->micro,
            .chunks = chunks});
    return NNC_OK;
}

nnc_status row_stages(
    rows *r, nnc_partition_row *row, nnc_pipeline_kind kind, int chunks, const int *cut)
{
    nnc_pipeline pipe;
    NNC_TRY(nnc_pipeline_make(kind, r->n, r->micro, chunks, r->a, &pipe, r->sink));
    NNC_TRY(execute_pipeline(r, row, kind, chunks > 1 ? chunks : 0));
    return pipeline_fill(r, row, &pipe, cut);
}

nnc_status row_pipeline(rows *r, nnc_partition_row *row)
{
    const nnc_pipeline_kind kind =
        r->m->step ? (nnc_pipeline_kind)nnc_strategies[row->id].schedule : PIPE_forward;
    const cut_by by = cuts[row->id];
    const int chunks = kind == PIPE_interleaved ? r->chunks : 1, blocks = r->m->n_block / chunks;
    const int devices = r->n < blocks ? r->n : blocks;
    nnc_pipeline pipe;
    bool fits = true;
    if (devices < 1 || !nnc_pipeline_possible(kind, devices, r->micro, chunks, &row->why_not)) {
        row->why_not = devices < 1
                           ? nnc_arena_printf(r->a,
                                 "needs %d blocks for %d chunks on a device; the model has %d",
                                 chunks, chunks, r->m->n_block)
                           : nnc_arena_printf(r->a, "%s: %d micro-batch%s, %d device%s with stages",
                                 row->why_not, r->micro, nnc_plural(r->micro, "es"), devices,
                                 nnc_plural(devices, "s"));
        NNC_NEED(row->why_not, r->sink);
        return NNC_OK;
    }
    int *cut = ARENA_NEW(r->a, int, devices *chunks + 1);
    NNC_NEED(cut, r->sink);
    NNC_TRY(nnc_pipeline_make(kind, devices, r->micro, chunks, r->a, &pipe, r->sink));
    if (by == BY_best)
        NNC_TRY(cut_best(r, &pipe, devices * chunks, cut, &fits));
    else
        NNC_TRY(cut_weights(r, by, devices * chunks, cut));
    if (!fits)
        row->note = "no cut fits the memory of the devices: this is the fastest";
    else if (devices < r->n)
        row->note = nnc_arena_printf(r->a,
            "the model has %d block%s, so that only %d of %d devices have stages", r->m->n_block,
            nnc_plural(r->m->n_block, "s"), devices, r->n);
    NNC_NEED(row->note || (fits && devices == r->n), r->sink);
    NNC_TRY(execute_pipeline(
        r, row, kind, kind == PIPE_interleaved && r->t->o->chunks > 0 ? chunks : 0));
    return pipeline_fill(r, row, &pipe, cut);
}

/* ---- the table --------------------------------------------------------------------------------------------- */

static nnc_status (*const make[])(rows *r, nnc_partition_row *row) = {
#define STRATEGY(id, name, mode, by, row, ...) row_##row,
#include "partition/strategies.def"
};

static bool in_mode(nnc_strategy s, bool step)
{
    return nnc_strategies[s].modes & (step ? NNC_IN_step : NNC_IN_forward);
}

static bool has_row(nnc_strategy s)
{
    return nnc_strategies[s].modes != NNC_IN_none;
}

static nnc_status add_row(rows *r, nnc_strategy s)
{
    nnc_partition_row *row = &r->t->row[r->t->n_row++];
    *row = (nnc_partition_row){
        .id = s, .strategy = nnc_strategy_names[s], .use = ARENA_NEW(r->a, nnc_device_use, r->n)};
    NNC_NEED(row->use, r->sink);
    r->zero = nnc_strategies[s].zero;
    if (in_mode(s, r->m->step))
        return make[s](r, row);
    row->why_not =
        r->m->step ? "is for inference: leave --mode=step out" : "is for training: --mode=step";
    return NNC_OK;
}

bool nnc_partition_wants(const nnc_partition_options *o, const char *strategy)
{
    bool any = !o->n_strategy;
    for (int i = 0; i < o->n_strategy; i++)
        any = any || !strcmp(o->strategy[i], "all") || !strcmp(o->strategy[i], strategy);
    return any;
}

nnc_status nnc_partition_check(
    const nnc_partition_options *o, const nnc_model *m, bool step, nnc_sink *sink)
{
    const bool all = nnc_partition_wants(o, "all");
    if (nnc_option_or(o->link_gbs, NNC_LINK_GBS) * 1e9 < 1)
        return nnc_fail0(sink, NNC_E_USAGE, "--link-gbs: expected more than 0");
    for (int i = 0; i < o->n_strategy; i++) {
        const nnc_strategy s = nnc_strategy_named(o->strategy[i]);
        const bool known = s < NNC_STRATEGY__COUNT && has_row(s);
        if (!known && strcmp(o->strategy[i], "all") != 0)
            return nnc_unknown_strategy(o->strategy[i], has_row, true, sink);
        if (o->n_strategy == 1 && !all && !in_mode(s, step))
            return nnc_fail0(sink, NNC_E_USAGE, "--strategy=%s %s", o->strategy[i],
                step ? "is for inference: leave --mode=step out"
                     : "is for training: it needs --mode=step");
    }
    return o->dot && (all || o->n_strategy != 1) && !nnc_is_placed(m) ? nnc_refuse_dot(sink)
                                                                      : NNC_OK;
}

nnc_status nnc_partition_fill_table(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink)
{
    const nnc_partition_options *o = t->o;
    const nnc_flat_links flat = {
        .bytes_per_s = (int64_t)(nnc_option_or(o->link_gbs, NNC_LINK_GBS) * 1e9),
        .latency_ns = (int64_t)(nnc_option_or(o->link_us, NNC_LINK_US) * 1e3)};
    const double described = t->cluster ? nnc_cluster_kind_of(t->cluster, 0)->overlap : 1,
                 slowdown = o->slowdown >= 1 ? o->slowdown
                            : described > 1  ? described
                                             : 1;
    rows r = {.t = t,
        .m = t->m,
        .n = t->devices,
        .micro = t->micro,
        .a = a,
        .sink = sink,
        .chunks = o->chunks > 0 ? o->chunks : 2,
        .here = t->target->kind == NNC_T_cpu || t->gpus >= t->devices,
        .flat = &flat,
        .slowdown = (int)lround(1000 * slowdown),
        .capacity = nnc_partition_capacity(t)};
    const bool all = nnc_partition_wants(o, "all");
    NNC_TRY(row_make_links(&r));
    t->row = ARENA_NEW(a, nnc_partition_row, NNC_STRATEGY__COUNT + o->n_strategy);
    NNC_NEED(t->row, sink);
    for (int i = 0; i < o->n_strategy && !all; i++)
        NNC_TRY(add_row(&r, nnc_strategy_named(o->strategy[i])));
    for (int s = 0; all && s < NNC_STRATEGY__COUNT; s++)
        if (in_mode((nnc_strategy)s, r.m->step))
            NNC_TRY(add_row(&r, (nnc_strategy)s));
    return NNC_OK;
}
