/* passes/recompute.c -- decides which results of the forward pass a training step keeps, and which its backward pass computes again.
 *
 * Keeping a value has a price for each of its bytes, plus the time of storing it if it is stored only for that. Computing its node again
 * takes time and reads the node's operands, which are kept or computed again in turn. The least sum is a minimum cut (Picard, "Maximal
 * closure of a graph", 1976). Jain et al. ("Checkmate", MLSys 2020) minimise time within a memory budget by integer programming; a price
 * for memory makes the problem a cut. The source means "not in the backward pass", the sink "there".
 *
 *     source -> node      Time of computing the node again.
 *     node   -> value     Price of keeping its result.
 *     value  -> reader    No limit: a node that is computed again needs its operands.
 *     value  -> sink      No limit: gradients read it.
 *
 * Elementwise ops that a kernel of the backward pass absorbs take almost no time. Chains of them are computed again from the results of
 * contractions and statistics. Nodes that only the step needs take part if they need no gradient: the mask of a relu, the index of a max
 * pooling. If kept, they are computed in the forward pass. */
#include "passes/internal.h"

enum {
    SMALL = 256, /* kept values below this share of all are one remark */
    FEW =
        400 /* a contraction that takes less than this share of the step's may be computed twice */
};

typedef struct choice {
    pass *p;
    uint32_t n_node, n_value; /* before the rewriting */
    const bool *late;
    bool *away; /* by node: read on another device, to which it is sent only once */
    const bool *gradient; /* find_gradients: such nodes take no part */
    bool *link; /* by value: kept, so that chains computed again are short */
    bool *needed; /* by value: the backward pass reads it */
    bool *redo; /* by node: it is computed in the backward pass */
    int64_t
        small; /* values of fewer bytes are kept at no price: statistics, which updates read, too */
    int64_t few_ps; /* a contraction of inputs and weights that takes less may be computed twice */
    uint32_t last_segment; /* its first node, or 0 */
    nnc_ref *again; /* by value: its copy there, or NNC_NONE */
} choice;

/* Nodes that neither results nor, with `sums`, accumulating states need. Gradients of inputs do not count as results: they are computed
 * after the loss. NULL: the graph is no training step. */
static const bool *find_not_needed(pass *p, bool sums)
{
    const nnc_graph *g = p->g;
    const uint32_t results = nnc_result_outputs(g);
    bool *late = nnc_graph_is_step(g) ? PASS_NEW(p, bool, g->n_node + 1) : NULL;
    if (!late)
        return NULL;
    memset(late, true, g->n_node * sizeof *late);
    for (uint32_t i = 0; i < g->n_output; i++)
        if (i < results ? !nnc_output_is_gradient(g, i)
                        : sums && def_of(p, g->output_state[i])->accumulates)
            late[g->value[g->output[i]].node] = false;
    for (uint32_t i = g->n_node; i-- > 0;)
        for (int k = 0; k < g->node[i].n_in && !late[i]; k++)
            late[g->value[g->node[i].in[k]].node] = false;
    return late;
}

const bool *find_late(pass *p)
{
    return find_not_needed(p, false);
}

const bool *find_last(pass *p)
{
    return find_not_needed(p, true);
}

bool *find_gradients(pass *p, bool shared)
{
    const nnc_graph *g = p->g;
    bool *gradient = PASS_NEW(p, bool, g->n_node + 1);
    for (uint32_t i = 0; gradient && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (!shared && p->e.is_static[i])
            continue;
        gradient[i] = n->origin && nnc_path_is(n->origin, strcspn(n->origin, "+"), "/loss");
        for (int k = 0; k < n->n_in && !gradient[i]; k++)
            gradient[i] = gradient[g->value[n->in[k]].node];
    }
    return gradient;
}

/* Is v a state, or a concat of states, which are adjacent in memory (in_place)? */
static bool is_state(const pass *p, nnc_ref v)
{
    const nnc_node *n = def_of(p, nnc_reshaped(p->g, v));
    bool all = n->state || n->op == OP_concat;
    for (int k = 0; n->op == OP_concat && k < n->n_in && all; k++)
        all = is_state(p, n->in[k]);
    return all;
}

/* Is v always in memory at no price: an input, a weight, or a function of weights only? */
static bool is_given(const choice *c, nnc_ref v)
{
    const nnc_node *n = def_of(c->p, v);
    return nnc_op_class(n->op) == CL_leaf || edit_static(c->p, v) ||
           (n->op == OP_concat && is_state(c->p, v));
}

/* Does node i take part? */
static bool takes_part(const choice *c, uint32_t i)
{
    return !c->gradient[i] && !c->away[i] && !is_given(c, c->p->g->node[i].out);
}

static void find_away(choice *c)
{
    const nnc_graph *g = c->p->g;
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            const uint32_t d = g->value[g->node[i].in[k]].node;
            c->away[d] = c->away[d] || (nnc_op_class(g->node[i].op) != CL_collective &&
                                           !on_one_device(&g->node[d], &g->node[i]));
        }
}

/* A copy belongs to the earliest task that reads it. */
static void set_tasks(const choice *c)
{
    nnc_graph *g = c->p->g;
    for (uint32_t i = g->n_node; i-- > c->n_node;) {
        int32_t least = -1;
        for (nnc_ref v = g->node[i].out; v < g->node[i].out + g->node[i].n_out; v++)
            for (uint32_t u = 0, r; edit_next_user(c->p, v, &u, &r);)
                if (least < 0 || (g->node[r].task >= 0 && g->node[r].task < least))
                    least = g->node[r].task;
        g->node[i].task = least;
    }
}

/* ---- costs, in picoseconds --------------------------------------------------------------------------------------------- */

static int64_t time_ps(const choice *c, const nnc_node *n, int64_t flops, int64_t bytes)
{
    const nnc_target *t = target_of(c->p, n);
    return nnc_mul_sat(1000, nnc_target_time_ns(t, flops, bytes) - t->launch_ns);
}

/* True when kernels of the backward pass can compute v as they go: no contraction or window reads v or a view of it. */
static bool is_absorbed(const choice *c, nnc_ref v)
{
    bool all = true;
    for (uint32_t u = 0, i; all && edit_next_user(c->p, v, &u, &i);) {
        const nnc_node *n = &c->p->g->node[i];
        const nnc_class class = nnc_op_class(n->op);
        if (c->late[i] && nnc_is_view(c->p->g, n))
            all = is_absorbed(c, n->out);
        else
            all = !c->late[i] || class == CL_ewise || class == CL_ecomp || class == CL_reduce;
    }
    return all;
}

/* True for the sums along a residual network, which a contraction of the backward pass and elementwise ops of the forward pass read.
 * Computing each again needs the one before: all would be in memory when the backward pass begins. */
static bool is_link(const choice *c, nnc_ref v)
{
    bool any = false;
    for (uint32_t u = 0, i; edit_next_user(c->p, v, &u, &i);)
        any = any || (!c->late[i] && nnc_is_elementwise(&c->p->g->node[i]));
    return any && !is_absorbed(c, v);
}

/* The forward pass by position (node): bytes of results so far, and of those that later nodes read. */
typedef struct profile {
    int64_t *sum, *live;
    uint32_t *last; /* by value: the last node of the forward pass that reads it, or a view of it */
} profile;

static bool is_forward(const choice *c, uint32_t i)
{
    return takes_part(c, i) && !c->late[i];
}

static bool find_profile(choice *c, profile *f)
{
    pass *p = c->p;
    f->sum = PASS_NEW(p, int64_t, c->n_node + 1);
    f->live = PASS_NEW(p, int64_t, c->n_node + 1);
    f->last = PASS_NEW(p, uint32_t, c->n_value + 1);
    if (p->status != NNC_OK)
        return false;
    for (uint32_t i = c->n_node; i-- > 0;) {
        const nnc_node *n = &p->g->node[i];
        for (int k = 0; k < n->n_in && !c->late[i]; k++) {
            const uint32_t reach =
                nnc_is_view(p->g, n) && f->last[n->out] > i ? f->last[n->out] : i;
            if (f->last[n->in[k]] < reach)
                f->last[n->in[k]] = reach;
        }
    }
    for (uint32_t i = 0; i < c->n_node; i++) {
        const nnc_node *n = &p->g->node[i];
        f->sum[i + 1] = f->sum[i];
        f->live[i + 1] += f->live[i];
        for (nnc_ref v = n->out; v < n->out + n->n_out; v++) {
            if (!is_forward(c, i) || nnc_is_view(p->g, n) || f->last[v] <= i)
                continue;
            const int64_t bytes = bytes_of(p, v);
            f->sum[i + 1] += bytes;
            f->live[i + 1] += bytes;
            f->live[f->last[v]] -= bytes;
        }
    }
    return true;
}

/* Keeps the values that cross the border after `at` nodes. */
static void keep_crossing(choice *c, const profile *f, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++) {
        const nnc_node *n = &c->p->g->node[i];
        for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
            if (is_forward(c, i) && !nnc_is_view(c->p->g, n) && f->last[v] >= at)
                c->link[v] = true;
    }
}

/* Divides the forward pass into segments of about equal bytes, at borders that few bytes cross. Values that cross are kept, and so are all
 * results of the last segment, which the backward pass reads first. */
static void find_segments(choice *c)
{
    const int n = c->p->o->segments;
    profile f = {0};
    uint32_t border = 0;
    if (!find_profile(c, &f))
        return;
    const int64_t all = f.sum[c->n_node];
    for (int s = 1; s < n; s++) {
        uint32_t best = 0;
        for (uint32_t i = border + 1; i < c->n_node; i++)
            if (f.sum[i] >= all / (3 * n) * (3 * s - 1) &&
                f.sum[i] <= all / (3 * n) * (3 * s + 1) && (!best || f.live[i] < f.live[best]))
                best = i;
        if (best)
            keep_crossing(c, &f, border = best);
    }
    c->last_segment = border;
}

static void find_links(choice *c)
{
    for (nnc_ref v = 0; v < c->n_value; v++)
        if (takes_part(c, c->p->g->value[v].node))
            c->small = nnc_max64(c->small, bytes_of(c->p, v) / SMALL);
    if (c->p->o->segments)
        find_segments(c);
    for (nnc_ref v = 0; v < c->n_value && !c->p->o->segments; v++)
        c->link[v] = takes_part(c, c->p->g->value[v].node) && is_link(c, v);
}

static void find_few(choice *c)
{
    int64_t all = 0;
    for (uint32_t i = 0; i < c->n_node; i++) {
        const nnc_node *n = &c->p->g->node[i];
        const nnc_cost cost = nnc_node_cost(c->p->g, n);
        if (nnc_op_class(n->op) == CL_contract)
            all = nnc_add_sat(all, time_ps(c, n, cost.flops, cost.bytes));
    }
    c->few_ps = all / FEW;
}

/* Is v always in memory, or a movement of such a value, as to another layout? */
static bool is_near_given(const choice *c, nnc_ref v)
{
    const nnc_node *n = def_of(c->p, v);
    return is_given(c, v) ||
           (nnc_op_class(n->op) == CL_move && n->n_in == 1 && is_given(c, n->in[0]));
}

/* A network's first convolution often has the largest result. It is cheap, since images have three channels, and needs only the images,
 * which are in memory anyway. Its time counts as zero, and so does that of an elementwise op after it, part of the same command. */
static bool is_cheap_contraction(const choice *c, const nnc_node *n)
{
    const nnc_cost cost = nnc_node_cost(c->p->g, n);
    bool all =
        nnc_op_class(n->op) == CL_contract && time_ps(c, n, cost.flops, cost.bytes) < c->few_ps;
    for (int k = 0; k < n->n_in && all; k++)
        all = is_near_given(c, n->in[k]);
    return all;
}

/* Other contractions, reductions and windows are computed again only in segments. */
static bool may_redo(const choice *c, const nnc_node *n)
{
    const bool cheap =
        nnc_is_elementwise(n) || nnc_op_class(n->op) == CL_move || is_cheap_contraction(c, n);
    return (cheap || c->p->o->segments) && !c->link[n->out];
}

static int64_t redo_ps(const choice *c, uint32_t i)
{
    const nnc_node *n = &c->p->g->node[i];
    const nnc_cost cost = nnc_node_cost(c->p->g, n);
    if (c->late[i] || nnc_is_view(c->p->g, n))
        return 0;
    if (!may_redo(c, n))
        return MINCUT_INF;
    if (nnc_is_elementwise(n) && is_absorbed(c, n->out))
        return time_ps(c, n, nnc_mul_sat(op_flops(n->op), numel_of(c->p, n->out)), 0);
    const int64_t launch = nnc_mul_sat(1000, target_of(c->p, n)->launch_ns);
    if (is_cheap_contraction(c, n) ||
        (nnc_is_elementwise(n) && is_cheap_contraction(c, def_of(c->p, n->in[0]))))
        return launch;
    return nnc_add_sat(time_ps(c, n, cost.flops, cost.bytes), launch);
}

/* Is v stored in any case, as an output or an operand of a forward op that is not elementwise? */
static bool is_stored(const choice *c, nnc_ref v)
{
    if (edit_is_output(c->p, v))
        return true;
    for (uint32_t u = 0, i; edit_next_user(c->p, v, &u, &i);)
        if (!c->late[i] && !nnc_is_elementwise(&c->p->g->node[i]))
            return true;
    return false;
}

static int64_t keep_ps(const choice *c, nnc_ref v)
{
    const nnc_node *n = def_of(c->p, v);
    const int64_t bytes = bytes_of(c->p, v);
    const bool free =
        bytes < c->small || (c->last_segment && c->p->g->value[v].node >= c->last_segment);
    const int64_t ps = free ? 0 : nnc_mul_sat(c->p->o->memory_price, time_ps(c, n, 0, bytes) / 100);
    if (nnc_is_view(c->p->g, n))
        return MINCUT_INF;
    return nnc_max64(nnc_add_sat(ps, is_stored(c, v) ? 0 : time_ps(c, n, 0, 2 * bytes)), 1);
}

/* ---- the cut --------------------------------------------------------------------------------------------------------------- */

static uint32_t node_vertex(uint32_t i)
{
    return 2 + i;
}

static uint32_t value_vertex(const choice *c, nnc_ref v)
{
    return 2 + c->n_node + v;
}

static void add_node(const choice *c, mincut *m, uint32_t i)
{
    const nnc_node *n = &c->p->g->node[i];
    mincut_arc(m, 0, node_vertex(i), redo_ps(c, i));
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++) {
        mincut_arc(m, node_vertex(i), value_vertex(c, v), keep_ps(c, v));
        if (c->late[i] && edit_is_output(c->p, v)) /* an update that needs no gradient */
            mincut_arc(m, value_vertex(c, v), 1, MINCUT_INF);
        for (uint32_t u = 0, r; edit_next_user(c->p, v, &u, &r);)
            if (c->gradient[r] && c->late[r])
                mincut_arc(m, value_vertex(c, v), 1, MINCUT_INF);
            else if (!c->gradient[r])
                mincut_arc(m, value_vertex(c, v), node_vertex(r), MINCUT_INF);
    }
}

static void choose_kept(choice *c)
{
    pass *p = c->p;
    const nnc_graph *g = p->g;
    const uint32_t n = 2 + c->n_node + c->n_value;
    bool *side = PASS_NEW(p, bool, n);
    mincut m;
    mincut_init(&m, p->a, n);
    for (uint32_t i = 0; i < c->n_node; i++)
        if (takes_part(c, i))
            add_node(c, &m, i);
    if (m.oom || !side || !mincut_run(&m, side)) {
        pass_nomem(p);
        return;
    }
    for (uint32_t i = c->n_node; i-- > 0;) {
        const nnc_node *d = &g->node[i];
        bool wanted = c->late[i] && c->gradient[i];
        if (takes_part(c, i) && !side[node_vertex(i)])
            for (nnc_ref v = d->out; v < d->out + d->n_out; v++)
                wanted = wanted || c->needed[v] || (c->late[i] && edit_is_output(p, v));
        c->redo[i] = wanted;
        for (int k = 0; k < d->n_in && wanted; k++)
            c->needed[d->in[k]] = true;
    }
}

/* ---- rewriting --------------------------------------------------------------------------------------------------------------- */

static bool is_redone(const choice *c, nnc_ref v)
{
    const uint32_t d = c->p->g->value[v].node;
    return v < c->n_value && d < c->n_node && c->redo[d] && !c->late[d];
}

/* Adds the operands of node i's copy to in[], if that is not NULL; returns their new number. An operand that is a concat computed again is
 * replaced by its own operands. Otherwise the concats of a dense block would depend on each other in forward order, and all be live when
 * the backward pass begins. */
static int find_operands(const choice *c, uint32_t i, nnc_ref *in, int n_in)
{
    const nnc_node *n = &c->p->g->node[i];
    for (int k = 0; k < n->n_in; k++) {
        const nnc_node *d = def_of(c->p, n->in[k]);
        if (n->op == OP_concat && d->op == OP_concat && is_redone(c, n->in[k]) &&
            nnc_attr_int(d, AT_axis, 0) == nnc_attr_int(n, AT_axis, 0)) {
            n_in = find_operands(c, node_index(c->p, d), in, n_in);
            continue;
        }
        if (in)
            in[n_in] = n->in[k];
        n_in++;
    }
    return n_in;
}

/* Makes *in the operands of node i's copy; returns their number. */
static int operands_of(const choice *c, uint32_t i, nnc_ref **in)
{
    const int n = find_operands(c, i, NULL, 0);
    *in = PASS_NEW(c->p, nnc_ref, n + 1);
    return *in ? find_operands(c, i, *in, 0) : 0;
}

/* Copies a node into the backward pass, after its operands. */
static void copy_again(choice *c, uint32_t i)
{
    pass *p = c->p;
    nnc_node n = p->g->node[i];
    nnc_ref *in;
    n.n_in = operands_of(c, i, &in);
    for (int k = 0; k < n.n_in; k++)
        in[k] = c->again[in[k]] == NNC_NONE ? in[k] : c->again[in[k]];
    edit_at(p, i);
    n.origin = p->g->origin =
        nnc_arena_printf(&p->g->arena, "%s/backward", n.origin ? n.origin : "");
    nnc_ref r = in && n.origin ? nnc_copy_node(p->g, p->g, &n, in) : NNC_NONE;
    edit_sync(p);
    if (r == NNC_NONE)
        pass_nomem(p);
    for (nnc_ref o = 0; o < n.n_out && r != NNC_NONE; o++)
        c->again[n.out + o] = r + o;
}

/* A producer of node i's operands that has yet to be copied; i: none. */
static uint32_t copy_first(const choice *c, uint32_t i)
{
    nnc_ref *in;
    const int n = operands_of(c, i, &in);
    for (int k = 0; k < n; k++)
        if (is_redone(c, in[k]) && c->again[in[k]] == NNC_NONE)
            return c->p->g->value[in[k]].node;
    return i;
}

/* Copies node i and the nodes it needs; *l gets their layers, *ns their time. */
static void copy_chain(choice *c, uint32_t i, layers *l, int64_t *ns)
{
    pass *p = c->p;
    uint32_t n = 0, *stack = PASS_NEW(p, uint32_t, c->n_node + 1);
    for (uint32_t at = i; stack && p->status == NNC_OK;) {
        const uint32_t d = copy_first(c, at);
        if (d != at) {
            stack[n++] = at;
            at = d;
            continue;
        }
        copy_again(c, at);
        if (!nnc_is_view(p->g, &p->g->node[at]))
            layers_add(p, l, at);
        *ns += redo_ps(c, at) / 1000;
        if (!n)
            return;
        at = stack[--n];
    }
}

/* True when a node of the backward pass that is no copy reads v. */
static bool is_read_late(const choice *c, nnc_ref v)
{
    for (uint32_t u = 0, i; edit_next_user(c->p, v, &u, &i);)
        if (i < c->n_node && c->late[i] && c->redo[i])
            return true;
    return false;
}

/* Readers of v in the backward pass read its copy instead. */
static void redirect(choice *c, nnc_ref v)
{
    pass *p = c->p;
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);)
        for (int k = 0; i < c->n_node && c->late[i] && c->redo[i] && k < p->g->node[i].n_in; k++)
            if (p->g->node[i].in[k] == v)
                edit_set_operand(p, i, k, c->again[v]);
}

static void redo_value(choice *c, nnc_ref v)
{
    pass *p = c->p;
    const uint32_t i = p->g->value[v].node;
    const nnc_node *n = &p->g->node[i];
    const char *rule = remark_text(p, "%s computed again", nnc_ops[n->op].name);
    const int64_t bytes = bytes_of(p, v);
    const bool absorbed = is_absorbed(c, v);
    int64_t ns = 0;
    layers l = {0};
    if (c->again[v] == NNC_NONE)
        copy_chain(c, i, &l, &ns);
    if (p->status == NNC_OK)
        redirect(c, v);
    if (!l.n)
        return;
    if (absorbed)
        remark_applied(p, &l, rule,
            "%s not kept for the backward pass, whose kernels compute them again as they read them "
            "(fuse regains the cost)",
            text_bytes(p, bytes));
    else
        remark_applied(p, &l, rule,
            "%s not kept for the backward pass, which takes %s longer by estimate",
            text_bytes(p, bytes), text_us(p, ns));
    remark_bytes_kept(p, bytes);
}

/* ---- what is kept ------------------------------------------------------------------------------------------------------------- */

static bool is_kept(const choice *c, nnc_ref v)
{
    const uint32_t i = c->p->g->value[v].node;
    return c->needed[v] && takes_part(c, i) && !c->redo[i] &&
           !nnc_is_view(c->p->g, def_of(c->p, v));
}

static void remark_kept(choice *c, nnc_ref v)
{
    pass *p = c->p;
    const uint32_t i = p->g->value[v].node;
    const nnc_node *n = &p->g->node[i];
    const char *word = nnc_ops[n->op].name, *rule = remark_text(p, "%s kept for backward", word),
               *bytes = text_bytes(p, bytes_of(p, v));
    layers l = layers_of(p, i, NNC_NONE);
    if (c->late[i])
        remark_declined(p, &l, rule, "%s, less than what it is computed from", bytes);
    else if (c->link[v])
        remark_declined(p, &l, rule, "%s, since the results after it are computed from it", bytes);
    else if (!may_redo(c, n))
        remark_declined(p, &l, rule, "%s, since a %s is not computed twice", bytes, word);
    else
        remark_declined(p, &l, rule, "%s, since computing them again would take %s by estimate",
            bytes, text_us(p, redo_ps(c, i) / 1000));
    remark_bytes_kept(p, bytes_of(p, v));
}

static void remark_all_kept(choice *c)
{
    pass *p = c->p;
    int64_t all = 0, small = 0, n = 0;
    layers l = {0};
    for (nnc_ref v = 0; v < c->n_value; v++)
        if (is_kept(c, v))
            all = nnc_add_sat(all, bytes_of(p, v));
    for (nnc_ref v = 0; v < c->n_value && p->status == NNC_OK; v++) {
        const int64_t bytes = bytes_of(p, v);
        if (!is_kept(c, v))
            continue;
        if (bytes >= all / SMALL) {
            remark_kept(c, v);
            continue;
        }
        layers_add(p, &l, p->g->value[v].node);
        small += bytes;
        n++;
    }
    if (!n)
        return;
    remark_declined(p, &l, "small results kept for backward",
        "%lld results, such as statistics, are %s of the %s that are kept in all", (long long)n,
        text_bytes(p, small), text_bytes(p, all));
    remark_bytes_kept(p, small);
}

nnc_status pass_recompute(pass *p)
{
    const nnc_graph *g = p->g;
    choice c = {.p = p, .n_node = g->n_node, .n_value = g->n_value, .late = find_late(p)};
    if (!c.late)
        return p->status;
    c.gradient = find_gradients(p, true);
    c.away = PASS_NEW(p, bool, c.n_node + 1);
    c.redo = PASS_NEW(p, bool, c.n_node + 1);
    c.link = PASS_NEW(p, bool, c.n_value + 1);
    c.needed = PASS_NEW(p, bool, c.n_value + 1);
    c.again = PASS_NEW(p, nnc_ref, c.n_value + 1);
    NNC_TRY(p->status);
    memset(c.again, 0xff, c.n_value * sizeof *c.again);
    find_few(&c);
    find_away(&c);
    find_links(&c);
    choose_kept(&c);
    if (p->status == NNC_OK)
        remark_all_kept(&c);
    for (nnc_ref v = 0; v < c.n_value && p->status == NNC_OK; v++) {
        const uint32_t i = p->g->value[v].node;
        if (c.redo[i] && !c.late[i] && is_read_late(&c, v))
            redo_value(&c, v);
    }
    set_tasks(&c);
    return p->status;
}
