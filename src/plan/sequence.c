/* plan/sequence.c -- the order of main's commands on one stream: program order, or one in which less memory is live at once.
 *
 * Two walks are tried, each with and without hoisting, and the one with the smallest peak is kept (equal: the first).
 *
 *   by index    Program order.
 *   on demand   Depth first from the nodes without consumers, those nearest to the inputs first. Of a node's operands, the farthest from
 *               the inputs is computed first, so that a node that can run at any time comes right before its consumer. For a node
 *               without consumers, the nearest operand is first.
 *
 *   hoisting    A node that frees more bytes than it allocates runs as soon as its operands are ready. Examples: an update when the
 *               gradient and all consumers of the old weight are done; the index of a max pooling in the forward pass.
 *
 *   deferring   In steps, with hoisting: a node that only one update needs, as a weight's gradient, waits while it would raise memory
 *               beyond a limit. Its operands may be small, and other memory is freed meanwhile. Bisection finds the least limit that an
 *               order meets. Then the same with patience: a large gradient waits for the consumers of its weight's old value, whose
 *               packed form needs memory, too.
 *
 *   receiving   With several devices: a node that only reads results of other devices comes right before its first consumer.
 *
 *   sending     With several devices, in the backward pass: a node that no other device needs comes after the next one that is sent.
 *
 * Nodes of one task come before those of the next (tasks.c). With several devices each has a sequence of its own (devices.c).
 *
 * Sethi, Ullman: The generation of optimal code for arithmetic expressions, 1970, for the depth-first order of trees. Workspaces are those
 * that engines ask for when no sum is in place. */
#include "plan/maker.h"
#include <stdlib.h>
#include <string.h>

enum { TRIES = 8, ROUGH_TRIES = 4 }; /* bisection steps to find limits: to 1/256, to 1/32 */

typedef struct walk {
    maker *m;
    int device; /* of the nodes; -1: all */
    uint32_t *sorted, n_sorted; /* nodes by section, task, number */
    edges from, to; /* by node: producers and users in main, each once */
    edges reads,
        reader; /* by node: roots that it reads, each once; by root: the nodes that read it */
    uint32_t *level; /* by node: longest path from the inputs */
    uint32_t *stamp, now;
    uint32_t *sink,
        n_sink; /* nodes whose results no node of their section reads, nearest to the inputs first */
    /* state of the current walk */
    uint32_t *order, n;
    uint32_t *waiting, *left; /* by node: producers not yet done; by root: readers not yet done */
    bool *done, *there; /* by node; by root: has memory */
    uint32_t *stack;
    uint8_t *on_stack; /* by node: how often */
    int64_t live, peak;
    bool hoist;
    int section;
    int32_t task;
    bool *bound; /* by node: waits for another device, so that it is not hoisted */
    bool *runs; /* by node: a command of main or step */
    bool step; /* has the graph updates of states? */
    const int64_t *work; /* by node: its workspace */
    const bool *private; /* by node of a step: only one update needs it */
    const uint32_t *only; /* by node: the sink to which all paths from it lead, or NNC_NONE */
    int64_t limit,
        refused; /* limit of memory in use while a private node runs; the least use that exceeded it */
    bool patient; /* is_early: do large gradients wait for other readers of their weights? */
    uint32_t *deferred, n_deferred; /* nodes (on demand: sinks) in order */
} walk;

/* ---- lists ---------------------------------------------------------------------------------------------------------- */

typedef void (*pair_fn)(walk *w, edges *a, edges *b, uint32_t i, uint32_t v);

static void count_pair(walk *w, edges *a, edges *b, uint32_t i, uint32_t v)
{
    (void)w;
    a->first[i + 1]++;
    b->first[v + 1]++;
}

/* `first` of the second list moves while it is filled, and is moved back at the end. */
static void fill_pair(walk *w, edges *a, edges *b, uint32_t i, uint32_t v)
{
    (void)w;
    a->at[a->first[i]++] = v;
    b->at[b->first[v]++] = i;
}

/* Calls fn for each node and each of its producers, and for each root that it reads. */
static void each_operand(walk *w, pair_fn fn)
{
    const maker *m = w->m;
    for (uint32_t i = 0; i < m->g->n_node; i++) {
        if (!w->runs[i])
            continue;
        const uint32_t node = ++w->now, root = ++w->now;
        const nnc_ref *in;
        const int n_in = make_operands(m, i, &in);
        for (uint32_t e = m->from.first[i]; e < m->from.first[i + 1]; e++) {
            const uint32_t p = m->from.at[e], at = m->g->node[p].out;
            if (!w->runs[p] || w->stamp[at] == node)
                continue;
            w->stamp[at] = node;
            fn(w, &w->from, &w->to, i, p);
        }
        for (int k = 0; k < n_in; k++) {
            const nnc_ref r = m->root[in[k]];
            if (w->stamp[m->g->n_value + r] == root)
                continue;
            w->stamp[m->g->n_value + r] = root;
            fn(w, &w->reads, &w->reader, i, r);
        }
    }
}

static bool room(const walk *w, edges *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->first[i + 1] += l->first[i];
    l->at = ARENA_NEW(&w->m->scratch, uint32_t, l->first[n] + 1);
    return l->at != NULL;
}

static void move_back(const edges *l, size_t n)
{
    memmove(l->first + 1, l->first, n * sizeof *l->first);
    l->first[0] = 0;
}

static nnc_status make_lists(walk *w)
{
    nnc_arena *a = &w->m->scratch;
    const size_t n = w->m->g->n_node, v = w->m->g->n_value;
    edges *const all[] = {&w->from, &w->to, &w->reads, &w->reader};
    const size_t size[] = {n, n, n, v};
    w->stamp = ARENA_NEW(a, uint32_t, 2 * v + 2);
    NNC_NEED(w->stamp, w->m->sink);
    for (int i = 0; i < 4; i++)
        NNC_NEED(all[i]->first = ARENA_NEW(a, uint32_t, size[i] + 2), w->m->sink);
    each_operand(w, count_pair);
    for (int i = 0; i < 4; i++)
        NNC_NEED(room(w, all[i], size[i]), w->m->sink);
    each_operand(w, fill_pair);
    for (int i = 0; i < 4; i++)
        move_back(all[i], size[i]);
    return NNC_OK;
}

/* ---- memory ----------------------------------------------------------------------------------------------------------- */

static int64_t bytes_of(const walk *w, nnc_ref root)
{
    const bool none = (w->m->in_states && w->m->in_states[root]) ||
                      (w->device >= 0 && w->m->home[root] != w->device);
    return none ? 0 : nnc_type_bytes(nnc_typeof(w->m->g, root));
}

/* Is the root's memory free for others after its last reader? */
static bool ends(const walk *w, nnc_ref root)
{
    const nnc_node *n = nnc_def(w->m->g, root);
    return !w->m->is_static[root] && !w->m->is_out[root] && n->op != OP_input &&
           !w->m->updated[root];
}

/* Readers of the state whose new value is v, except node i; 0 if v is no new value. */
static uint32_t old_readers(const walk *w, uint32_t i, nnc_ref v)
{
    const nnc_ref s = w->m->state_of[v];
    uint32_t n = s == NNC_NONE ? 0 : w->left[s];
    for (uint32_t k = w->reads.first[i]; n && k < w->reads.first[i + 1]; k++)
        n -= w->reads.at[k] == s;
    return n;
}

/* Bytes that node i's results need; a new value has the memory of its state once nothing else reads that. */
static int64_t allocates(const walk *w, uint32_t i)
{
    const nnc_node *n = &w->m->g->node[i];
    int64_t sum = 0;
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
        if (!w->there[w->m->root[v]] && (w->m->state_of[v] == NNC_NONE || old_readers(w, i, v)))
            sum = nnc_add_sat(sum, bytes_of(w, w->m->root[v]));
    return sum;
}

/* Bytes freed once node i has run, if all its results have readers. */
static int64_t frees(const walk *w, uint32_t i)
{
    int64_t sum = 0;
    for (uint32_t k = w->reads.first[i]; k < w->reads.first[i + 1]; k++) {
        const nnc_ref r = w->reads.at[k];
        if (w->left[r] == 1 && ends(w, r) && w->there[r])
            sum = nnc_add_sat(sum, bytes_of(w, r));
    }
    return sum;
}

/* Bytes in use while node i runs. */
static int64_t in_use(const walk *w, uint32_t i)
{
    return nnc_add_sat(nnc_add_sat(w->live, allocates(w, i)), w->work[i]);
}

/* Does the update that consumes node i's results have to wait for readers of the old weight, while i frees less than it allocates? A large
 * weight's gradient would be live beside the packed weight that its layer's other gradient reads. */
static bool is_early(const walk *w, uint32_t i)
{
    const nnc_node *n = &w->m->g->node[w->only[i]];
    bool waits = false;
    if (!w->patient || w->only[i] == i || w->limit == INT64_MAX || frees(w, i) >= allocates(w, i))
        return false;
    for (nnc_ref v = n->out; v < n->out + n->n_out && !waits; v++)
        waits = old_readers(w, i, v) > 0;
    return waits;
}

/* Does private node i run now, within the limit? */
static bool fits(walk *w, uint32_t i)
{
    if (!w->private[i])
        return true;
    if (is_early(w, i))
        return false;
    const int64_t use = in_use(w, i);
    if (use <= w->limit)
        return true;
    w->refused = nnc_min64(w->refused, use);
    return false;
}

/* May node i run now? A new value overwrites its state, in its own section and after all readers of the old one. */
static bool is_ready(const walk *w, uint32_t i)
{
    const maker *m = w->m;
    const nnc_node *n = &m->g->node[i];
    if (w->done[i] || w->waiting[i] || (m->task && m->task[i] > w->task && !m->early[i]))
        return false;
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
        if (m->state_of[v] != NNC_NONE && (m->section[i] != w->section || old_readers(w, i, v)))
            return false;
    return true;
}

static bool may_hoist(walk *w, uint32_t i)
{
    return !w->bound[i] && is_ready(w, i) && frees(w, i) > allocates(w, i) && fits(w, i);
}

/* ---- walks ------------------------------------------------------------------------------------------------------------ */

static void run_one(walk *w, uint32_t i)
{
    const nnc_node *n = &w->m->g->node[i];
    w->peak = nnc_max64(w->peak, in_use(w, i));
    w->live = nnc_add_sat(w->live, allocates(w, i));
    w->live -= frees(w, i);
    w->order[w->n++] = i;
    w->done[i] = true;
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
        w->there[w->m->root[v]] = true;
    for (uint32_t k = w->to.first[i]; k < w->to.first[i + 1]; k++)
        w->waiting[w->to.at[k]]--;
    for (uint32_t k = w->reads.first[i]; k < w->reads.first[i + 1]; k++)
        w->left[w->reads.at[k]]--;
}

/* The only reader of root r that is not done. */
static uint32_t last_reader(const walk *w, nnc_ref r)
{
    uint32_t k = w->reader.first[r];
    while (w->done[w->reader.at[k]])
        k++;
    return w->reader.at[k];
}

/* Runs node i, and what can be hoisted then: users of its results, and the last readers of what it read. */
static void run_and_hoist(walk *w, uint32_t i)
{
    const uint32_t begin = w->n;
    run_one(w, i);
    for (uint32_t at = begin; w->hoist && at < w->n; at++) {
        const uint32_t j = w->order[at];
        for (uint32_t k = w->to.first[j]; k < w->to.first[j + 1]; k++)
            if (may_hoist(w, w->to.at[k]))
                run_one(w, w->to.at[k]);
        for (uint32_t k = w->reads.first[j]; k < w->reads.first[j + 1]; k++) {
            const nnc_ref r = w->reads.at[k];
            if (w->left[r] == 1 && may_hoist(w, last_reader(w, r)))
                run_one(w, last_reader(w, r));
        }
    }
}

/* Which of `best` (i: none yet) and p node i needs first: the farther from the inputs. If nothing reads i, as an update of many weights,
 * the nearer one: the others' computation may read its operands last. */
static uint32_t first_of(const walk *w, uint32_t i, uint32_t best, uint32_t p)
{
    const bool nearer = w->to.first[i] == w->to.first[i + 1];
    if (w->done[p] || best == i)
        return w->done[p] ? best : p;
    if (w->level[p] == w->level[best])
        return p < best ? p : best;
    return (w->level[p] < w->level[best]) == nearer ? p : best;
}

/* The node that has to run first before node i; i itself: none. It is a producer, or reads the old value of a state that i updates. A
 * reader of the old value that needs the new one is on the stack then, and comes later. */
static uint32_t needs_first(const walk *w, uint32_t i)
{
    const nnc_node *n = &w->m->g->node[i];
    uint32_t best = i;
    for (uint32_t k = w->from.first[i]; k < w->from.first[i + 1]; k++)
        best = first_of(w, i, best, w->from.at[k]);
    const bool ready =
        best ==
        i; /* readers of old values come after its producers, most of which need them anyway */
    for (nnc_ref v = n->out; v < n->out + n->n_out && ready && w->on_stack[i] < 2; v++) {
        const nnc_ref s = old_readers(w, i, v) ? w->m->state_of[v] : NNC_NONE;
        for (uint32_t k = s == NNC_NONE ? 0 : w->reader.first[s];
             s != NNC_NONE && k < w->reader.first[s + 1]; k++)
            if (!w->on_stack[w->reader.at[k]])
                best = first_of(w, i, best, w->reader.at[k]);
    }
    return best;
}

/* Runs a sink and its producers; false: it has to wait, since a node that only it needs does not fit. */
static bool run_on_demand(walk *w, uint32_t sink)
{
    uint32_t n = 0;
    bool fit = true;
    w->stack[n++] = sink;
    w->on_stack[sink]++;
    while (n) {
        const uint32_t i = w->stack[n - 1], p = w->done[i] || !fit ? i : needs_first(w, i);
        if (p != i) {
            w->stack[n++] = p; /* at most twice each */
            w->on_stack[p]++;
            continue;
        }
        fit = fit && (w->done[i] || fits(w, i));
        if (!w->done[i] && fit)
            run_and_hoist(w, i);
        w->on_stack[i]--;
        n--;
    }
    return fit;
}

/* Runs node i in program order; false: it has to wait. */
static bool run_in_order(walk *w, uint32_t i)
{
    if (w->limit != INT64_MAX && (!fits(w, i) || (w->private[i] && !is_ready(w, i))))
        return false;
    run_and_hoist(w, i);
    return true;
}

/* Tries the deferred nodes again, in order. */
static void run_deferred(walk *w, bool demand)
{
    const uint32_t n = w->n_deferred;
    w->n_deferred = 0;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = w->deferred[k];
        if (!w->done[i] && !(demand ? run_on_demand(w, i) : run_in_order(w, i)))
            w->deferred[w->n_deferred++] = i;
    }
}

/* Runs node i, or defers it. */
static void visit(walk *w, bool demand, uint32_t i)
{
    const uint32_t before = w->n;
    if (!w->done[i] && !(demand ? run_on_demand(w, i) : run_in_order(w, i)))
        w->deferred[w->n_deferred++] = i;
    if (w->n > before && w->n_deferred)
        run_deferred(w, demand);
}

static void start(walk *w, bool hoist)
{
    const nnc_graph *g = w->m->g;
    w->n = w->n_deferred = 0;
    w->live = w->peak = 0;
    w->hoist = hoist;
    memset(w->done, 0, g->n_node * sizeof *w->done);
    memset(w->there, 0, g->n_value * sizeof *w->there);
    for (uint32_t i = 0; i < g->n_node; i++)
        w->waiting[i] = w->from.first[i + 1] - w->from.first[i];
    for (uint32_t v = 0; v < g->n_value; v++)
        w->left[v] = w->reader.first[v + 1] - w->reader.first[v];
}

/* Are nodes i and j of one section and task? */
static bool of_one_task(const walk *w, uint32_t i, uint32_t j)
{
    const maker *m = w->m;
    return m->section[i] == m->section[j] && (!m->task || m->task[i] == m->task[j]);
}

static uint32_t end_of_task(
    const walk *w, const uint32_t *node, uint32_t n, uint32_t from, uint32_t of)
{
    while (from < n && of_one_task(w, node[from], of))
        from++;
    return from;
}

static void go(walk *w, bool demand, bool hoist, int64_t limit)
{
    start(w, hoist);
    for (uint32_t i = 0, k = 0; i < w->n_sorted;) {
        const uint32_t node = w->sorted[i], end = end_of_task(w, w->sorted, w->n_sorted, i, node),
                       last = end_of_task(w, w->sink, w->n_sink, k, node);
        w->section = w->m->section[node];
        w->task = w->m->task ? w->m->task[node] : 0;
        w->limit = limit;
        w->refused = INT64_MAX;
        for (; demand && k < last; k++)
            visit(w, demand, w->sink[k]);
        for (k = last; !demand && i < end; i++)
            visit(w, demand, w->sorted[i]);
        i = end;
        while (w->n_deferred) {
            const uint32_t before = w->n;
            w->limit = nnc_max64(w->limit, w->refused);
            w->refused = INT64_MAX;
            run_deferred(w, demand);
            w->limit = w->n == before && w->refused == INT64_MAX ? INT64_MAX : w->limit;
        }
    }
}

/* By section, task, number. */
static int by_task(const void *x, const void *y, void *ctx)
{
    const maker *m = ctx;
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    const int task = m->task ? nnc_cmp(m->task[a], m->task[b]) : 0;
    return nnc_then(nnc_cmp(m->section[a], m->section[b]), nnc_then(task, nnc_cmp(a, b)));
}

static int by_level(const void *x, const void *y, void *ctx)
{
    const walk *w = ctx;
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y, *level = w->level;
    if (!of_one_task(w, a, b))
        return by_task(x, y, w->m);
    return nnc_then(nnc_cmp(level[a], level[b]), nnc_cmp(a, b));
}

/* Are node i's results parts of a larger value, such as gradients that one kernel reads? Its memory is live from the first part on. */
static bool is_part(const walk *w, uint32_t i)
{
    const nnc_node *n = &w->m->g->node[i];
    bool part = w->m->section[i] != SEC_main;
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
        part = part && w->m->root[v] != v && w->m->state_of[w->m->root[v]] == NNC_NONE;
    return part;
}

static void find_sinks(walk *w)
{
    const maker *m = w->m;
    for (uint32_t i = 0; i < m->g->n_node; i++) {
        bool last = true;
        for (uint32_t k = w->from.first[i]; k < w->from.first[i + 1]; k++)
            if (w->level[w->from.at[k]] >= w->level[i])
                w->level[i] = w->level[w->from.at[k]] + 1;
        for (uint32_t k = w->to.first[i]; k < w->to.first[i + 1]; k++)
            last = last && !of_one_task(w, w->to.at[k], i);
        if ((last || is_part(w, i)) && w->runs[i])
            w->sink[w->n_sink++] = i;
    }
    qsort_r(w->sink, w->n_sink, sizeof *w->sink, by_level, w);
}

static void sort_by_task(walk *w)
{
    for (uint32_t i = 0; i < w->m->g->n_node; i++)
        if (w->runs[i])
            w->sorted[w->n_sorted++] = i;
    qsort_r(w->sorted, w->n_sorted, sizeof *w->sorted, by_task, w->m);
}

static void find_bound(walk *w)
{
    const maker *m = w->m;
    for (uint32_t i = 0; i < m->g->n_node && w->device >= 0; i++)
        for (uint32_t e = m->from.first[i]; e < m->from.first[i + 1] && w->runs[i]; e++)
            w->bound[i] = w->bound[i] || !runs_on(m, &m->g->node[m->from.at[e]], w->device);
}

/* Finds the nodes of a step that only one sink needs: all paths from them lead there. */
static bool find_private(walk *w)
{
    const uint32_t n = w->m->g->n_node;
    uint32_t *only = ARENA_NEW(&w->m->scratch, uint32_t, n + 1);
    bool *private = ARENA_NEW(&w->m->scratch, bool, n + 1);
    for (uint32_t i = n; only && private && i-- > 0;) {
        uint32_t k = w->to.first[i];
        only[i] = k == w->to.first[i + 1] ? i : only[w->to.at[k]];
        for (; k < w->to.first[i + 1]; k++)
            only[i] = only[w->to.at[k]] == only[i] ? only[i] : NNC_NONE;
        private[i] = only[i] != NNC_NONE && w->m->section[i] != SEC_main;
    }
    w->private = private;
    w->only = only;
    return only && private;
}

/* Workspaces of a step's nodes. */
static nnc_status find_work(walk *w)
{
    const maker *m = w->m;
    int64_t *work = ARENA_NEW(&w->m->scratch, int64_t, m->g->n_node + 1);
    NNC_NEED(work, m->sink);
    w->work = work;
    for (uint32_t i = 0; i < m->g->n_node && w->step && m->n_dev == 1; i++)
        if (w->runs[i])
            NNC_TRY(make_work_bytes(w->m, i, &work[i]));
    return NNC_OK;
}

static bool alloc_walk(walk *w)
{
    nnc_arena *a = &w->m->scratch;
    const size_t n = (size_t)w->m->g->n_node + 1, v = (size_t)w->m->g->n_value + 1;
    w->level = ARENA_NEW(a, uint32_t, n);
    w->sink = ARENA_NEW(a, uint32_t, n);
    w->order = ARENA_NEW(a, uint32_t, n);
    w->waiting = ARENA_NEW(a, uint32_t, n);
    w->left = ARENA_NEW(a, uint32_t, v);
    w->done = ARENA_NEW(a, bool, n);
    w->there = ARENA_NEW(a, bool, v);
    w->stack = ARENA_NEW(a, uint32_t, 2 * n);
    w->on_stack = ARENA_NEW(a, uint8_t, n);
    w->deferred = ARENA_NEW(a, uint32_t, n);
    w->runs = ARENA_NEW(a, bool, n);
    w->bound = ARENA_NEW(a, bool, n);
    w->sorted = ARENA_NEW(a, uint32_t, n);
    return w->runs && w->bound && w->sorted && w->deferred && w->level && w->sink && w->order &&
           w->waiting && w->left && w->done && w->there && w->stack && w->on_stack;
}

typedef struct best {
    uint32_t *order, *n;
    int64_t peak;
} best;

/* Keeps the order of the walk if its peak is the smallest so far. */
static void keep(const walk *w, best *b)
{
    if (w->peak >= b->peak)
        return;
    b->peak = w->peak;
    *b->n = w->n;
    memcpy(b->order, w->order, w->n * sizeof *w->order);
}

/* Finds, by bisection, the least limit between `low` and the smallest peak so far that a walk meets. */
static void defer(walk *w, bool demand, int tries, int64_t low, best *b)
{
    int64_t high = b->peak;
    for (int k = 0; k < tries && low + 1 < high; k++) {
        const int64_t limit = low + (high - low) / 2;
        go(w, demand, true, limit);
        keep(w, b);
        if (w->peak <= limit)
            high = w->peak;
        else
            low = limit;
    }
}

/* Both walks, each with and without patience. */
static void defer_all(walk *w, best *b)
{
    for (int k = 0; k < 4; k++) {
        w->patient = k & 2;
        defer(w, k & 1, TRIES, 0, b);
    }
}

static nnc_status prepare_walk(walk *w)
{
    const maker *m = w->m;
    NNC_NEED(alloc_walk(w), m->sink);
    w->step = nnc_graph_is_step(m->g);
    for (uint32_t i = 0; i < m->g->n_node; i++)
        w->runs[i] = runs_in_main(m, &m->g->node[i]) && !(m->absorbed && m->absorbed[i]) &&
                     (w->device < 0 || runs_on(m, &m->g->node[i], w->device));
    NNC_TRY(make_lists(w));
    NNC_TRY(find_work(w));
    find_bound(w);
    sort_by_task(w);
    find_sinks(w);
    NNC_NEED(find_private(w), m->sink);
    return NNC_OK;
}

nnc_status make_rough_peak(maker *m, int64_t *peak)
{
    walk w = {.m = m, .device = -1};
    uint32_t n, *order = ARENA_NEW(&m->scratch, uint32_t, m->g->n_node + 1);
    best b = {order, &n, INT64_MAX};
    NNC_NEED(order, m->sink);
    NNC_TRY(prepare_walk(&w));
    for (int k = 0; k < (m->n_dev > 1 ? 1 : 2); k++) {
        go(&w, k, m->n_dev == 1, INT64_MAX);
        keep(&w, &b);
    }
    if (w.step && m->n_dev == 1)
        defer(&w, true, ROUGH_TRIES, b.peak / 2, &b);
    *peak = b.peak;
    return NNC_OK;
}

void make_hoisted_sections(maker *m, const uint32_t *order, uint32_t n)
{
    for (uint32_t i = n; i-- > 1;)
        if (m->section[order[i - 1]] > m->section[order[i]])
            m->section[order[i - 1]] = m->section[order[i]];
}

/* Nodes that only receive: they read results of other devices, none of their own, and no other device reads theirs. */
static nnc_status find_receivers(const walk *w, bool *receives)
{
    maker *m = w->m;
    const uint32_t n = m->g->n_node;
    bool *local = ARENA_NEW(&m->scratch, bool, n + 1), *away = ARENA_NEW(&m->scratch, bool, n + 1);
    NNC_NEED(local && away, m->sink);
    for (uint32_t i = 0; i < n; i++) {
        const nnc_node *x = &m->g->node[i];
        for (uint32_t e = m->from.first[i]; e < m->from.first[i + 1]; e++) {
            const uint32_t d = m->from.at[e];
            const bool there = !is_collective(x) && runs_on(m, &m->g->node[d], device_of_node(x));
            local[i] = local[i] || there;
            receives[i] = receives[i] || !there;
            away[d] = away[d] || !there;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        receives[i] = receives[i] && !local[i] && !away[i] && !is_collective(&m->g->node[i]);
    return NNC_OK;
}

/* The position before which receiver i, at p, goes: its first reader's, or for part of an output, the end of its task. */
static uint32_t new_place(
    const walk *w, const uint32_t *order, uint32_t n, const uint32_t *at, uint32_t i, uint32_t p)
{
    uint32_t first = UINT32_MAX, last = n;
    for (uint32_t e = w->to.first[i]; e < w->to.first[i + 1]; e++)
        if (at[w->to.at[e]] < first)
            first = at[w->to.at[e]];
    if (first != UINT32_MAX)
        return of_one_task(w, order[first], i) ? first : p;
    while (!of_one_task(w, order[last - 1], i)) /* at p one is */
        last--;
    return last;
}

/* Moves nodes that only receive, such as those that assemble a halo, to right before their first reader. In program order, work that needs
 * no other device would wait for the sender. */
static nnc_status delay_receivers(const walk *w, uint32_t *order, uint32_t n)
{
    nnc_arena *a = &w->m->scratch;
    const size_t nodes = (size_t)w->m->g->n_node + 1;
    uint32_t *at = ARENA_NEW(a, uint32_t, nodes), *next = ARENA_NEW(a, uint32_t, nodes),
             *first = ARENA_NEW(a, uint32_t, (size_t)n + 1),
             k = 0; /* by position: list of nodes that go before it */
    const uint32_t *was = nnc_arena_memdup(a, order, ((size_t)n + 1) * sizeof *order);
    bool *receives = ARENA_NEW(a, bool, nodes);
    NNC_NEED(was && at && first && next && receives, w->m->sink);
    NNC_TRY(find_receivers(w, receives));
    memset(first, 0xff, ((size_t)n + 1) * sizeof *first);
    memset(at, 0xff, nodes * sizeof *at); /* not in the list */
    for (uint32_t p = 0; p < n; p++)
        at[order[p]] = p;
    for (uint32_t p = n; p-- > 0;) { /* backwards, so that each list is in their order */
        const uint32_t i = was[p], to = receives[i] ? new_place(w, was, n, at, i, p) : p;
        next[i] = first[to];
        first[to] = i;
    }
    for (uint32_t p = 0; p <= n; p++)
        for (uint32_t i = first[p]; i != NNC_NONE; i = next[i])
            order[k++] = i;
    return NNC_OK;
}

/* leads[i]: another device needs node i, or a value computed from it, for more than sums of all devices' gradients. sends[i]: it reads i
 * itself, or a collective does. */
static void find_senders(const walk *w, bool *leads, bool *sends)
{
    const maker *m = w->m;
    for (uint32_t i = m->g->n_node; i-- > 0;)
        for (uint32_t e = m->from.first[i]; e < m->from.first[i + 1]; e++) {
            const uint32_t d = m->from.at[e];
            const nnc_node *x = &m->g->node[i];
            const bool away =
                is_collective(x) ? leads[i] : !runs_on(m, &m->g->node[d], device_of_node(x));
            sends[d] = sends[d] || away;
            leads[d] = leads[d] || away || leads[i];
        }
}

/* In the backward pass, moves nodes that no other device waits for, such as gradients of weights. They go after the next node that is sent,
 * if that is one of the next few. Otherwise a device that needs another's gradients at each layer would also wait for its gradients of
 * weights. Only a few nodes are moved, in order, since their operands stay in memory until then. */
static nnc_status send_first(const walk *w, uint32_t *order, uint32_t n)
{
    enum { AHEAD = 8 };
    const maker *m = w->m;
    nnc_arena *a = &w->m->scratch;
    const size_t nodes = (size_t)m->g->n_node + 1;
    bool *leads = ARENA_NEW(a, bool, nodes), *sends = ARENA_NEW(a, bool, nodes);
    uint32_t *next = ARENA_NEW(a, uint32_t, (size_t)n + 1), /* by position of a sent node */
        *delayed = ARENA_NEW(a, uint32_t, (size_t)n + 1), n_delayed = 0, k = 0;
    const uint32_t *was = nnc_arena_memdup(a, order, ((size_t)n + 1) * sizeof *order);
    NNC_NEED(leads && sends && next && delayed && was, m->sink);
    find_senders(w, leads, sends);
    next[n] = UINT32_MAX;
    for (uint32_t p = n; p-- > 0;) {
        const bool same = p + 1 < n && of_one_task(w, was[p], was[p + 1]);
        next[p] = leads[was[p]] && sends[was[p]] ? p : same ? next[p + 1] : UINT32_MAX;
    }
    for (uint32_t p = 0; p < n; p++) {
        const uint32_t i = was[p];
        const bool collective = is_collective(&m->g->node[i]), lead = leads[i];
        if (m->section[i] != SEC_main && !lead && !collective && next[p] < p + AHEAD) {
            delayed[n_delayed++] = i;
            continue;
        }
        const bool now = !lead || collective; /* its possible operands come before it */
        for (uint32_t d = 0; now && d < n_delayed; d++)
            order[k++] = delayed[d];
        n_delayed = now ? 0 : n_delayed;
        order[k++] = i;
        const bool more = next[p + 1] == p + 1 && of_one_task(w, i, was[p + 1]),
                   behind = next[p] == p && !more;
        for (uint32_t d = 0; behind && d < n_delayed; d++)
            order[k++] = delayed[d];
        n_delayed = behind ? 0 : n_delayed;
    }
    return NNC_OK;
}

nnc_status make_device_sequence(
    maker *m, int device, int walk_kind, uint32_t *order, uint32_t *n, int64_t *peak)
{
    enum { MUCH = 1 << 20 };
    walk w = {.m = m, .device = device};
    best b = {order, n, INT64_MAX};
    const bool large = (int64_t)m->g->n_node * m->n_dev > MUCH, all = walk_kind == WALK_best;
    NNC_TRY(prepare_walk(&w));
    for (int k = 0; k < WALK_best; k++)
        if (all ? k < 2 || !large : k == walk_kind) {
            go(&w, k & 2, k & 1, INT64_MAX);
            keep(&w, &b);
        }
    if (w.step && all && !large)
        defer_all(&w, &b);
    *peak = b.peak;
    NNC_TRY(delay_receivers(&w, order, *n));
    return send_first(&w, order, *n);
}

nnc_status make_sequence(maker *m, uint32_t *order, uint32_t *n)
{
    walk w = {.m = m, .device = -1};
    best b = {order, n, INT64_MAX};
    NNC_TRY(prepare_walk(&w));
    /* several devices work at the same time, in program order */
    for (int k = 0; k < (m->n_dev > 1 ? 1 : 4); k++) {
        go(&w, k & 2, k & 1, INT64_MAX);
        keep(&w, &b);
    }
    if (w.step && m->n_dev == 1)
        defer_all(&w, &b);
    if (m->n_dev > 1) {
        NNC_TRY(delay_receivers(&w, order, *n));
        NNC_TRY(send_first(&w, order, *n));
    }
    make_hoisted_sections(m, order, *n);
    return NNC_OK;
}
