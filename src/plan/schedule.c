/* plan/schedule.c -- main's commands in issue order, with streams, copies between devices, and events.
 *
 * One stream: sequence.c, devices.c; several, each with a model of its own: models.c; stages, if requested: stages.c. Otherwise list
 * scheduling, except for graphs with collectives, which have one stream for these and one for the rest. The ready node with the longest
 * remaining path goes first (ties: program order). It goes to the stream of its device where it can start first (ties: the stream of its
 * latest operand, which needs no event). Times are the roofline of each device's target, so the result depends on nothing measured. A copy
 * is issued on the producer's stream right after it. An event is recorded after a command only if another lane waits for it. A wait is
 * omitted if earlier waits imply it. */
#include "plan/maker.h"
#include <string.h>

job *make_job(job_list *l, nnc_arena *a, job_kind kind)
{
    if (!ARENA_ROOM(a, l->at, l->cap, l->n + 1))
        return NULL;
    job *j = &l->at[l->n++];
    *j = (job){.kind = kind, .engine = -1, .item = -1, .value = NNC_NONE};
    return j;
}

/* ---- order and streams --------------------------------------------------------------------- */

typedef struct list {
    maker *m;
    uint32_t *order; /* nodes in issue order */
    uint32_t n_order;
    int16_t *stream; /* by node */
    int64_t *path; /* longest time from a node's start to the end */
    int64_t *time, *done;
    uint32_t *waiting; /* number of operands not yet scheduled */
    nnc_heap ready;
    int64_t *free_at; /* by device * streams + stream */
} list;

static bool goes_first(const void *ctx, uint32_t a, uint32_t b)
{
    const list *l = ctx;
    const uint8_t *section = l->m->section;
    if (section[a] != section[b]) /* while nodes of a section remain, one of them is ready */
        return section[a] < section[b];
    if (l->m->task && l->m->task[a] != l->m->task[b])
        return l->m->task[a] < l->m->task[b];
    return l->path[a] != l->path[b] ? l->path[a] > l->path[b] : a < b;
}

/* Earliest start of n on stream s of its device: when the stream is free and the operands are available (an event costs a launch). */
typedef struct start {
    int64_t at, latest;
    int stream;
    bool local;
} start;

/* Time of the copy of v to a device of another kind. Copies between devices of one kind count as a launch, which the wait for them
 * costs. */
static int64_t copy_ns(const maker *m, nnc_ref v, int dev)
{
    const int64_t bytes = nnc_type_bytes(nnc_typeof(m->g, v));
    return m->on[m->home[v]].kind == m->on[dev].kind ? 0 : nnc_target_link_ns(bytes);
}

static void wait_for(const list *l, start *t, nnc_ref v, int dev)
{
    const uint32_t p = l->m->g->value[v].node;
    const nnc_node *n = &l->m->g->node[p];
    if (!runs_in_main(l->m, n))
        return;
    bool same = l->m->home[v] == dev && l->stream[p] == t->stream;
    int64_t ns = same ? 0 : nnc_add_sat(target_of(l->m, dev)->launch_ns, copy_ns(l->m, v, dev));
    t->at = nnc_max64(t->at, nnc_add_sat(l->done[p], ns));
    if (l->done[p] >= t->latest) {
        t->latest = l->done[p];
        t->local = same;
    }
}

static start start_on(const list *l, const nnc_node *n, int s)
{
    maker *m = l->m;
    int dev = device_of_node(n);
    start t = {l->free_at[dev * m->o->streams + s], -1, s, false};
    for (int i = 0; i < n->n_in; i++) {
        const nnc_ref *source;
        int k = make_sources(m, n->in[i], &source); /* succeeds: make_edges asked before */
        for (int j = 0; j < k; j++)
            wait_for(l, &t, source[j], dev);
    }
    return t;
}

static void place_node(list *l, uint32_t id)
{
    const maker *m = l->m;
    const nnc_node *n = &m->g->node[id];
    int best = 0;
    bool best_local = false;
    int64_t best_at = INT64_MAX;
    for (int s = 0; s < m->o->streams; s++) {
        start t = start_on(l, n, s);
        if (t.at < best_at || (t.at == best_at && t.local && !best_local)) {
            best = s;
            best_at = t.at;
            best_local = t.local;
        }
    }
    l->stream[id] = (int16_t)best;
    l->done[id] = nnc_add_sat(best_at, l->time[id]);
    l->free_at[device_of_node(n) * m->o->streams + best] = l->done[id];
}

static void place_next(list *l, uint32_t id)
{
    place_node(l, id);
    l->order[l->n_order++] = id;
    for (uint32_t e = l->m->to.first[id]; e < l->m->to.first[id + 1]; e++)
        if (--l->waiting[l->m->to.at[e]] == 0)
            nnc_heap_push(&l->ready, l->m->to.at[e]);
}

static bool list_alloc(list *l)
{
    nnc_arena *a = &l->m->scratch;
    size_t n = (size_t)l->m->g->n_node + 2;
    l->path = ARENA_NEW(a, int64_t, n);
    l->time = ARENA_NEW(a, int64_t, n);
    l->done = ARENA_NEW(a, int64_t, n);
    l->waiting = ARENA_NEW(a, uint32_t, n);
    l->ready = (nnc_heap){ARENA_NEW(a, uint32_t, n), 0, goes_first, l};
    l->free_at = ARENA_NEW(a, int64_t, l->m->n_dev * l->m->o->streams);
    return l->path && l->time && l->done && l->waiting && l->ready.at && l->free_at;
}

static nnc_status list_schedule(list *l)
{
    maker *m = l->m;
    const nnc_graph *g = m->g;
    NNC_NEED(list_alloc(l), m->sink);
    for (uint32_t i = g->n_node; i-- > 0;) {
        l->waiting[i] = m->from.first[i + 1] - m->from.first[i];
        if (!runs_in_main(m, &g->node[i]))
            continue;
        l->time[i] = nnc_node_ns(target_of(m, device_of_node(&g->node[i])), g, &g->node[i]);
        for (uint32_t e = m->to.first[i]; e < m->to.first[i + 1]; e++)
            l->path[i] = nnc_max64(
                l->path[i], nnc_add_sat(l->path[m->to.at[e]],
                                copy_ns(m, g->node[i].out, device_of_node(&g->node[m->to.at[e]]))));
        l->path[i] = nnc_add_sat(l->path[i], l->time[i]);
    }
    for (uint32_t i = 0; i < g->n_node; i++)
        if (runs_in_main(m, &g->node[i]) && l->waiting[i] == 0)
            nnc_heap_push(&l->ready, i);
    while (l->ready.n)
        place_next(l, nnc_heap_pop(&l->ready));
    return NNC_OK;
}

/* ---- copies between devices ---------------------------------------------------------------- */

/* need[slot(root, device)]: a node there reads it, but it is not computed there. */
static void find_copies(const maker *m, uint8_t *need)
{
    for (uint32_t i = 0; i < m->g->n_node; i++) {
        const nnc_node *n = &m->g->node[i];
        for (int k = 0; k < n->n_in && runs_in_main(m, n); k++) {
            const nnc_ref r = m->root[n->in[k]];
            const int dev = is_collective(n) ? m->home[n->out + (nnc_ref)k] : device_of_node(n);
            if (!m->is_static[r] && m->home[r] != dev)
                need[slot(m, r, dev)] = 1;
        }
    }
}

static nnc_status add_copies(
    maker *m, job_list *l, const uint8_t *need, nnc_ref r, int stream, uint8_t section)
{
    for (int d = 0; d < m->n_dev; d++) {
        if (!need[slot(m, r, d)])
            continue;
        job *j = make_job(l, &m->scratch, J_copy);
        NNC_NEED(j, m->sink);
        j->value = r;
        j->device = m->home[r];
        j->to = (int16_t)d;
        j->stream = (int16_t)stream;
        j->section = section;
        int64_t bytes = nnc_type_bytes(nnc_typeof(m->g, r));
        j->cost.bytes = 2 * bytes;
    }
    return NNC_OK;
}

/* State of new values and their states while the list is visited. A collective's result, such as weights that replicas gather, is copied to
 * its state once nothing reads the old value any more. So its memory is freed before the end of the step. Most others are computed in the
 * state's memory. */
typedef struct updates {
    uint32_t *left; /* by root: number of nodes in the list that have yet to read it */
    bool *made; /* by root: computed, with all its parts */
    bool *done; /* by output */
    uint32_t *next,
        *first; /* lists of outputs with one state root: next by output, first by state root; UINT32_MAX: none */
    nnc_ref *state; /* by new value's root: its state's root, NNC_NONE */
} updates;

static nnc_section section_of_update(const maker *m, uint32_t output)
{
    const nnc_graph *g = m->g;
    return nnc_def(g, g->output_state[output])->accumulates ? SEC_accumulate : SEC_step;
}

static nnc_status find_updates(maker *m, const list *l, updates *u)
{
    const nnc_graph *g = m->g;
    const size_t values = (size_t)g->n_value + 1, outputs = (size_t)g->n_output + 1;
    *u = (updates){.left = ARENA_NEW(&m->scratch, uint32_t, values),
        .made = ARENA_NEW(&m->scratch, bool, values),
        .done = ARENA_NEW(&m->scratch, bool, outputs),
        .next = ARENA_NEW(&m->scratch, uint32_t, outputs),
        .first = ARENA_NEW(&m->scratch, uint32_t, values),
        .state = ARENA_NEW(&m->scratch, nnc_ref, values)};
    NNC_NEED(u->left && u->made && u->done && u->next && u->first && u->state, m->sink);
    memset(u->first, 0xff, values * sizeof *u->first);
    memset(u->state, 0xff, values * sizeof *u->state);
    for (uint32_t i = nnc_result_outputs(g); i < g->n_output; i++) {
        const nnc_ref s = m->root[g->output_state[i]];
        u->next[i] = u->first[s];
        u->first[s] = i;
        u->state[m->root[g->output[i]]] = s;
    }
    for (uint32_t i = 0; i < l->n_order; i++) {
        const nnc_node *n = &g->node[l->order[i]];
        for (int k = 0; k < n->n_in; k++)
            u->left[m->root[n->in[k]]]++;
    }
    return NNC_OK;
}

static nnc_status add_update(maker *m, job_list *out, const list *l, updates *u, uint32_t i)
{
    const nnc_graph *g = m->g;
    const nnc_ref v = g->output[i], s = g->output_state[i];
    job *j = make_job(out, &m->scratch, J_update);
    NNC_NEED(j, m->sink);
    const uint32_t by = g->value[m->root[v]].node;
    j->value = v;
    j->item = (int32_t)(i - nnc_result_outputs(g));
    j->node = g->value[s].node;
    j->section = section_of_update(m, i);
    j->device = m->home[v];
    j->to = m->home[s];
    j->stream = runs_in_main(m, &g->node[by]) ? l->stream[by] : 0;
    j->cost.bytes = m->root[v] == s ? 0 : 2 * nnc_type_bytes(nnc_typeof(g, v));
    u->done[i] = true;
    return NNC_OK;
}

/* Adds the remaining updates at the section's end. An unchanged state is still a state, which programs may set. */
static nnc_status add_updates(
    maker *m, job_list *out, const list *l, updates *u, nnc_section section)
{
    for (uint32_t i = nnc_result_outputs(m->g); i < m->g->n_output; i++)
        if (!u->done[i] && section_of_update(m, i) == section)
            NNC_TRY(add_update(m, out, l, u, i));
    return NNC_OK;
}

/* Makes the updates of a state's root if possible, all its parts at once. */
static nnc_status try_update(
    maker *m, job_list *out, const list *l, updates *u, nnc_ref state, nnc_section section)
{
    bool now = state != NNC_NONE && u->first[state] != UINT32_MAX && !u->left[state];
    for (uint32_t i = now ? u->first[state] : UINT32_MAX; i != UINT32_MAX && now; i = u->next[i]) {
        const nnc_ref r = m->root[m->g->output[i]];
        now = !u->done[i] && u->made[r] && is_collective(nnc_def(m->g, r)) &&
              section_of_update(m, i) == section;
    }
    for (uint32_t i = now ? u->first[state] : UINT32_MAX; i != UINT32_MAX; i = u->next[i])
        NNC_TRY(add_update(m, out, l, u, i));
    return NNC_OK;
}

/* After node n, tries updates of states that it reads and of values that it completes. */
static nnc_status try_updates(
    maker *m, job_list *out, const list *l, updates *u, const nnc_node *n, nnc_section section)
{
    for (int k = 0; k < n->n_in; k++)
        u->left[m->root[n->in[k]]]--;
    for (int k = 0; k < n->n_in; k++)
        NNC_TRY(try_update(m, out, l, u, m->root[n->in[k]], section));
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
        NNC_TRY(try_update(m, out, l, u, u->state[m->root[v]], section));
    return NNC_OK;
}

/* missing[root]: number of nodes of main that compute parts of the root's memory; 0 for a value that is its own root. */
static void count_parts(const maker *m, const list *l, uint32_t *missing)
{
    for (uint32_t i = 0; i < l->n_order; i++) {
        const nnc_node *n = &m->g->node[l->order[i]];
        for (int r = 0; r < n->n_out; r++) {
            nnc_ref v = n->out + (nnc_ref)r;
            missing[m->root[v]] += m->root[v] != v;
        }
    }
}

/* A job for each participant of node i, one after the other. */
static nnc_status add_collective(maker *m, const list *l, job_list *out, uint32_t i)
{
    const nnc_node *n = &m->g->node[i];
    const nnc_cost all = nnc_node_cost(m->g, n);
    for (int k = 0; k < n->n_in; k++) {
        job *j = make_job(out, &m->scratch, J_collective);
        NNC_NEED(j, m->sink);
        j->node = i;
        j->item = k;
        j->section = m->section[i];
        j->device = m->home[n->out + (nnc_ref)k];
        j->stream = l->stream[i];
        j->cost.flops = all.flops / n->n_in + (k ? 0 : all.flops % n->n_in);
        j->cost.bytes = all.bytes / n->n_in + (k ? 0 : all.bytes % n->n_in);
    }
    return NNC_OK;
}

static nnc_status add_node(maker *m, const list *l, job_list *out, uint32_t i)
{
    const nnc_node *n = &m->g->node[i];
    if (is_collective(n))
        return add_collective(m, l, out, i);
    job *j = make_job(out, &m->scratch, J_node);
    NNC_NEED(j, m->sink);
    j->node = i;
    j->section = m->section[i];
    j->device = (int16_t)device_of_node(n);
    j->stream = l->stream[i];
    j->cost = nnc_node_cost(m->g, n);
    return NNC_OK;
}

static nnc_status list_jobs(maker *m, const list *l, const uint8_t *need, job_list *out)
{
    const nnc_graph *g = m->g;
    uint32_t *missing = ARENA_NEW(&m->scratch, uint32_t, g->n_value + 1);
    updates u;
    NNC_NEED(missing, m->sink);
    count_parts(m, l, missing);
    NNC_TRY(find_updates(m, l, &u));
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input || g->node[i].state)
            NNC_TRY(add_copies(m, out, need, g->node[i].out, 0, SEC_main));
    nnc_section section = SEC_main;
    for (uint32_t i = 0; i < l->n_order; i++) {
        const nnc_node *n = &g->node[l->order[i]];
        for (; section < m->section[l->order[i]]; section++)
            NNC_TRY(add_updates(m, out, l, &u, section));
        NNC_TRY(add_node(m, l, out, l->order[i]));
        for (int r = 0; r < n->n_out;
             r++) { /* a concat in place is complete after the last of its parts */
            nnc_ref v = n->out + (nnc_ref)r, root = m->root[v];
            u.made[root] = root == v || --missing[root] == 0;
            if (u.made[root])
                NNC_TRY(add_copies(
                    m, out, need, root, l->stream[l->order[i]], m->section[l->order[i]]));
        }
        NNC_TRY(try_updates(m, out, l, &u, n, section));
    }
    for (; section < SEC__COUNT; section++)
        NNC_TRY(add_updates(m, out, l, &u, section));
    return NNC_OK;
}

/* ---- events -------------------------------------------------------------------------------- */

typedef struct sync {
    maker *m;
    const job_list *in;
    int n_lane;
    int32_t *writer; /* by slot: the job that writes the root there, -1 */
    int32_t *now; /* lane * n_lane: what each lane knows */
    int32_t *after; /* job * n_lane: what is known after it */
    int32_t *pos;
    int32_t *
        event; /* by job; -1: no other lane waits for it, otherwise 0, and its number from insert_sync on */
    job_use *wait; /* lists of jobs to wait for */
    size_t cap_wait;
    int32_t n_wait, *first_wait;
} sync;

static int lane_of(const sync *s, const job *j)
{
    return j->device * s->m->o->streams + j->stream;
}

/* Orders job i after job p. */
static nnc_status follow(sync *s, int32_t i, int32_t p)
{
    int l = lane_of(s, &s->in->at[i]), pl = lane_of(s, &s->in->at[p]);
    int32_t *mine = s->now + (size_t)l * (size_t)s->n_lane;
    if (mine[pl] > s->pos[p])
        return NNC_OK;
    const int32_t *theirs = s->after + (size_t)p * (size_t)s->n_lane;
    for (int k = 0; k < s->n_lane; k++)
        mine[k] = mine[k] > theirs[k] ? mine[k] : theirs[k];
    NNC_NEED(ARENA_ROOM(&s->m->scratch, s->wait, s->cap_wait, s->n_wait + 1), s->m->sink);
    s->wait[s->n_wait] = (job_use){.job = p, .next = s->first_wait[i]};
    s->first_wait[i] = s->n_wait++;
    s->event[p] = 0;
    return NNC_OK;
}

static nnc_status depend(sync *s, int32_t i, nnc_ref v, int dev)
{
    const nnc_ref *source;
    nnc_ref root = s->m->root[v];
    if (s->m->home[root] != dev && s->writer[slot(s->m, root, dev)] >= 0)
        return follow(s, i, s->writer[slot(s->m, root, dev)]); /* waits for all parts of the copy */
    int n = make_sources(s->m, v, &source);
    if (n < 0)
        return nnc_nomem(s->m->sink);
    while (n-- > 0) { /* later ones tend to imply the earlier */
        int32_t p = s->writer[slot(s->m, source[n], dev)];
        if (p >= 0 && !s->m->is_static[source[n]])
            NNC_TRY(follow(s, i, p));
    }
    return NNC_OK;
}

/* Makes a state's update wait for all readers of the old value. */
static nnc_status depend_on_readers(sync *s, int32_t i, nnc_ref state)
{
    const maker *m = s->m;
    for (int32_t k = i; k-- > 0;) {
        const job *j = &s->in->at[k];
        const nnc_node *n = j->kind == J_node ? &m->g->node[j->node] : NULL;
        bool reads = j->kind == J_copy && j->value == state;
        reads |= j->kind == J_collective && m->root[m->g->node[j->node].in[j->item]] == state;
        for (int a = 0; n && j->device == m->home[state] && a < n->n_in && !reads; a++)
            reads = m->root[n->in[a]] == state;
        if (reads)
            NNC_TRY(follow(s, i, k));
    }
    return NNC_OK;
}

/* Walks the jobs with vector clocks, like the verifier, and records which waits are needed. */
static nnc_status find_waits(sync *s)
{
    maker *m = s->m;
    int32_t *count = ARENA_NEW(&m->scratch, int32_t, s->n_lane);
    NNC_NEED(count, m->sink);
    for (int32_t i = 0; i < s->in->n; i++) {
        const job *j = &s->in->at[i];
        int l = lane_of(s, j);
        if (j->kind == J_copy) {
            NNC_TRY(depend(s, i, j->value, j->device));
            s->writer[slot(m, j->value, j->to)] = i;
        } else if (j->kind == J_update) {
            NNC_TRY(depend(s, i, j->value, j->device));
            NNC_TRY(depend_on_readers(s, i, m->root[m->g->node[j->node].out]));
        } else if (j->kind == J_collective) {
            const nnc_node *n = &m->g->node[j->node];
            NNC_TRY(depend(s, i, n->in[j->item], j->device));
            s->writer[slot(m, n->out + (nnc_ref)j->item, j->device)] = i;
        } else {
            const nnc_node *n = &m->g->node[j->node];
            for (int k = n->n_in; k-- > 0;) /* later operands tend to imply the earlier ones */
                NNC_TRY(depend(s, i, n->in[k], j->device));
            for (int r = 0; r < n->n_out; r++)
                s->writer[slot(m, n->out + (nnc_ref)r, j->device)] = i;
        }
        s->pos[i] = count[l]++;
        int32_t *mine = s->now + (size_t)l * (size_t)s->n_lane;
        mine[l] = s->pos[i] + 1;
        memcpy(s->after + (size_t)i * (size_t)s->n_lane, mine, (size_t)s->n_lane * sizeof *mine);
    }
    return NNC_OK;
}

static nnc_status add_sync(maker *m, job_kind kind, const job *beside, int event)
{
    job *j = make_job(&m->main, &m->scratch, kind);
    NNC_NEED(j, m->sink);
    j->device = beside->device;
    j->stream = beside->stream;
    j->section = beside->section;
    j->item = event;
    return NNC_OK;
}

/* Divides threads among lanes. CPU lanes share this machine's threads, or those of their device; a GPU has its own. used: by lane. */
static void share_threads(maker *m, const bool *used)
{
    if (m->o->own_threads) {
        for (int d = 0; d < m->n_dev; d++) {
            int own = 0;
            for (int s = 0; s < m->o->streams; s++)
                own += used[d * m->o->streams + s];
            m->on[d].threads = (int)nnc_max64(target_of(m, d)->threads / nnc_max64(own, 1), 1);
        }
        return;
    }
    int lanes[2] = {0};
    if (m->o->lanes > 0)
        lanes[NNC_T_cpu] = m->o->lanes;
    for (int l = 0; l < m->n_dev * m->o->streams; l++)
        if (m->o->lanes <= 0 || target_of(m, l / m->o->streams)->kind != NNC_T_cpu)
            lanes[target_of(m, l / m->o->streams)->kind] += used[l];
    for (int d = 0; d < m->n_dev; d++) {
        const nnc_target *t = target_of(m, d);
        m->on[d].threads = (int)nnc_max64(t->threads / nnc_max64(lanes[t->kind], 1), 1);
    }
}

static nnc_status insert_sync(sync *s)
{
    maker *m = s->m;
    bool *used = ARENA_NEW(&m->scratch, bool, s->n_lane);
    NNC_NEED(used, m->sink);
    for (int32_t i = 0; i < s->in->n; i++) /* collectives have no threads of their own */
        if (s->in->at[i].kind != J_collective)
            used[lane_of(s, &s->in->at[i])] = true;
    share_threads(m, used);
    for (int32_t i = 0; i < s->in->n; i++) {
        const job *j = &s->in->at[i];
        for (int32_t w = s->wait ? s->first_wait[i] : -1; w >= 0; w = s->wait[w].next)
            NNC_TRY(add_sync(m, J_wait, j, s->event[s->wait[w].job]));
        job *to = make_job(&m->main, &m->scratch, j->kind);
        NNC_NEED(to, m->sink);
        *to = *j;
        m->streams_used = j->stream + 1 > m->streams_used ? j->stream + 1 : m->streams_used;
        if (s->event[i] >= 0) {
            s->event[i] = m->n_event++;
            NNC_TRY(add_sync(m, J_record, j, s->event[i]));
        }
    }
    return NNC_OK;
}

static nnc_status add_events(maker *m, const job_list *in)
{
    sync s = {.m = m, .in = in, .n_lane = m->n_dev * m->o->streams};
    nnc_arena *a = &m->scratch;
    size_t n = (size_t)in->n + 1, slots = slot(m, m->g->n_value, 0) + 1;
    s.writer = ARENA_NEW(a, int32_t, slots);
    s.now = ARENA_NEW(a, int32_t, s.n_lane * s.n_lane);
    s.after = ARENA_NEW(a, int32_t, n * (size_t)s.n_lane);
    NNC_NEED(
        s.writer && s.now && s.after && ARENA_ARRAYS(a, n, s.pos, s.event, s.first_wait), m->sink);
    memset(s.writer, 0xff, slots * sizeof *s.writer);
    memset(s.event, 0xff, n * sizeof *s.event);
    memset(s.first_wait, 0xff, n * sizeof *s.first_wait);
    NNC_TRY(find_waits(&s));
    return insert_sync(&s);
}

/* Vector clocks of the jobs, computed by the verifier's code. */
static nnc_status order_jobs(maker *m)
{
    nnc_plan p = {.n_device = m->n_dev, .n_cmd = m->main.n, .n_event = m->n_event};
    p.device = ARENA_NEW(&m->scratch, nnc_plan_device, m->n_dev);
    p.cmd = ARENA_NEW(&m->scratch, nnc_cmd, m->main.n + 1);
    NNC_NEED(p.device && p.cmd, m->sink);
    for (int d = 0; d < m->n_dev; d++)
        p.device[d].streams = m->o->streams;
    for (int32_t i = 0; i < m->main.n; i++) {
        const job *j = &m->main.at[i];
        p.cmd[i] = (nnc_cmd){.device = j->device, .stream = j->stream, .item = j->item};
        p.cmd[i].kind = j->kind == J_record ? CMD_record
                        : j->kind == J_wait ? CMD_wait
                                            : CMD_kernel;
    }
    bool made = plan_order_init(&m->order, &p, true, &m->scratch);
    m->order.p = NULL; /* valid for the jobs only */
    return made ? NNC_OK : nnc_nomem(m->sink);
}

/* Numbers the streams of each device that have commands from 0 on. */
static nnc_status pack_streams(maker *m, job_list *l)
{
    const int each = m->o->streams;
    int *to = ARENA_NEW(
        &m->scratch, int, m->n_dev *each); /* by lane: 1 where it is used, then its stream */
    NNC_NEED(to, m->sink);
    for (int32_t i = 0; i < l->n; i++)
        to[l->at[i].device * each + l->at[i].stream] = 1;
    for (int d = 0; d < m->n_dev; d++)
        for (int s = 0, n = 0; s < each; s++)
            to[d * each + s] = to[d * each + s] ? n++ : 0;
    for (int32_t i = 0; i < l->n; i++)
        l->at[i].stream = (int16_t)to[l->at[i].device * each + l->at[i].stream];
    return NNC_OK;
}

nnc_status make_schedule(maker *m)
{
    list l = {.m = m};
    uint8_t *need = ARENA_NEW(&m->scratch, uint8_t, slot(m, m->g->n_value, 0) + 1);
    NNC_NEED(need && ARENA_ARRAYS(&m->scratch, m->g->n_node + 1, l.order, l.stream), m->sink);
    NNC_TRY(make_edges(m));
    const bool collective = make_has_collective(m);
    bool several = false; /* models, each with a stream of its own */
    if (m->o->streams > 1 && !collective)
        NNC_TRY(make_models(m, l.stream, &several));
    if (collective || ((m->o->streams == 1 || several) && m->n_dev > 1)) {
        NNC_TRY(make_device_sequences(m, l.order, &l.n_order));
        for (uint32_t i = 0; collective && i < m->g->n_node; i++)
            l.stream[i] = is_collective(&m->g->node[i]) && m->o->streams > 1;
    } else if (m->o->streams > 1 && !several) {
        bool staged;
        NNC_TRY(make_stages(m, l.order, &l.n_order, l.stream, &staged));
        if (!staged)
            NNC_TRY(list_schedule(&l));
    } else {
        NNC_TRY(make_sequence(m, l.order, &l.n_order));
    }
    find_copies(m, need);
    job_list jobs = {0};
    m->streams_used = 1;
    NNC_TRY(list_jobs(m, &l, need, &jobs));
    NNC_TRY(pack_streams(m, &jobs));
    NNC_TRY(add_events(m, &jobs));
    return order_jobs(m);
}
