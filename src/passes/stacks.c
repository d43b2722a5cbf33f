/* passes/stacks.c -- models trained side by side: alike ops of n models are computed as one, on stacks [n, ..] of their operands.
 *
 *   y1 = linear(x1, w1, b1);  y2 = linear(x2, w2, b2);  y = concat(y1, y2);  ..  update w1 <- w1 - lr dy1^T x1, w2 <- ..
 *   -> Y = X W^T + B. ..  W' = W - lr dY^T X;  update w1 <- W'[0], w2 <- W'[1]. X, dY: views of x and dy;  W = concat(w1, w2).
 *
 * The pass starts from each run of alike operands of a concat. It stacks their operands, theirs in turn, and so on: down to parts of one
 * tensor, values that all share, and params. Params that training changes are concatenated. That costs nothing where their new values are
 * parts of one value as well, since in_place makes them one state. So their updates are stacked, too, or nothing is. Weights keep names.
 *
 * On a CPU a stack is declined if its contractions have so many results that a launch does not count. One model's gradients then need not
 * wait for another's. It has to save a share of their time: stacks are read beyond the nearest caches, which estimates do not see. All
 * stacks are built before any replaces its members. An op that is computed for all, and also for one because a reader is not stacked, costs
 * time twice. So those that share stacks are replaced together, or none of them. Terminates: each concat is visited once. */
#include "kernel/kernel.h"
#include "passes/stack.h"

enum {
    WORTH = 64, /* a stack saves at least this part of the time of its contractions */
    DEEP = 400 /* ops after one another */
};

static const char *const rule = "models side by side";

static stack stack_of(stacks *s, const nnc_ref *v);

/* ---- leaves ---------------------------------------------------------------------------------------------------------------- */

/* Parts of one tensor, one after the other. */
static stack stack_of_parts(stacks *s, const nnc_ref *v)
{
    nnc_graph *g = s->p->g;
    const nnc_type t = *type_of(s->p, v[0]);
    const stack none = {NNC_NONE, 0};
    nnc_ref x, y;
    int64_t axis, a, first, at;
    if (!place_in(s->p, v[0], NNC_NONE, &x, &axis, &first))
        return none;
    for (int k = 1; k < s->n; k++)
        if (!place_in(s->p, v[k], NNC_NONE, &y, &a, &at) || y != x || a != axis ||
            at != first + k * t.dim[axis])
            return none;
    const int64_t end = first + s->n * t.dim[axis];
    if (first || end != type_of(s->p, x)->dim[axis])
        x = nnc_cut(g, x, axis, first, end);
    return stack_divide(s, x, &t, (int)axis);
}

/* The outermost concat of one dimension that v is part of; *at: v's first element there. */
static nnc_ref concat_with(const pass *p, nnc_ref v, int64_t *at)
{
    nnc_ref x = v;
    *at = 0;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t u = 0, i; !again && edit_next_user(p, x, &u, &i);) {
            const nnc_node *n = &p->g->node[i];
            if (n->op != OP_concat && (n->op != OP_reshape || type_of(p, n->out)->rank != 1))
                continue;
            if (n->op == OP_concat && type_of(p, n->out)->rank != 1)
                continue;
            for (int k = 0; n->op == OP_concat && n->in[k] != x; k++)
                *at += numel_of(p, n->in[k]);
            x = n->out;
            again = true;
        }
    }
    return def_of(p, x)->op == OP_concat ? x : NNC_NONE;
}

/* v as one tensor of one dimension. */
static nnc_ref put_together(stacks *s, const nnc_ref *v)
{
    nnc_graph *g = s->p->g;
    const int64_t numel = numel_of(s->p, v[0]);
    nnc_ref *line = PASS_NEW(s->p, nnc_ref, s->n);
    for (int k = 0; line && k < s->n; k++)
        line[k] = type_of(s->p, v[k])->rank == 1 ? v[k] : nnc_reshape(g, v[k], 1, &numel);
    return line ? concat_in_steps(s->p, s->n, line) : NNC_NONE;
}

/* A stack of params: part of the optimizer's concat, if there is one, or a new concat. */
static nnc_ref stack_of_params(stacks *s, const nnc_ref *v, bool *states)
{
    nnc_graph *g = s->p->g;
    const nnc_type t = *type_of(s->p, v[0]);
    const int64_t numel = nnc_type_numel(&t);
    int64_t at, first, dim[NNC_MAX_RANK];
    nnc_ref x = concat_with(s->p, v[0], &first);
    bool there = x != NNC_NONE;
    for (int k = 0; k < s->n; k++) {
        const nnc_node *d = def_of(s->p, v[k]);
        if (d->op != OP_param || d->state != def_of(s->p, v[0])->state ||
            d->accumulates != def_of(s->p, v[0])->accumulates)
            return NNC_NONE;
        there = there && concat_with(s->p, v[k], &at) == x && at == first + k * numel;
    }
    *states = def_of(s->p, v[0])->state && !there;
    if (!there)
        x = put_together(s, v);
    const int64_t end = first + s->n * numel;
    if (there && numel_of(s->p, x) != s->n * numel)
        x = nnc_cut(g, x, 0, first, end);
    dim[0] = s->n;
    memcpy(dim + 1, t.dim, sizeof *dim * t.rank);
    return x == NNC_NONE ? x : nnc_reshape(g, x, t.rank + 1, dim);
}

/* ---- ops -------------------------------------------------------------------------------------------------------------------- */

/* Do a and b compute the same of operands of the same types? */
static bool are_alike(const pass *p, nnc_ref a, nnc_ref b)
{
    const nnc_node *x = def_of(p, a), *y = def_of(p, b);
    bool ok = x->op == y->op && x->n_in == y->n_in && stack_knows(p, x) && attrs_equal(x, y) &&
              !placed_apart(x, y) && nnc_type_equal(type_of(p, a), type_of(p, b));
    for (int k = 0; k < x->n_in && ok; k++)
        ok = nnc_type_equal(type_of(p, x->in[k]), type_of(p, y->in[k]));
    return ok;
}

/* New nodes stem from the layers of all members. */
static void edit_at_all(stacks *s, const nnc_ref *v)
{
    uint32_t *node = PASS_NEW(s->p, uint32_t, s->n);
    for (int k = 0; node && k < s->n; k++)
        node[k] = s->p->g->value[v[k]].node;
    if (!node)
        return;
    edit_at(s->p, node[0]);
    s->p->g->origin = union_origin(s->p, node, s->n);
}

static stack stack_of_ops(stacks *s, const nnc_ref *v)
{
    pass *p = s->p;
    const nnc_node c = *def_of(p, v[0]);
    const stack none = {NNC_NONE, 0};
    stack in[3] = {none, none, none};
    bool shared[3] = {false, false, false}, any = false;
    for (int k = 0; k < s->n; k++)
        if (!are_alike(p, v[0], v[k]) || edit_static(p, v[k]))
            return none;
    for (int j = 0; j < c.n_in; j++) {
        nnc_ref *x = PASS_NEW(p, nnc_ref, s->n);
        shared[j] = true;
        for (int k = 0; x && k < s->n; k++) {
            x[k] = def_of(p, v[k])->in[j];
            shared[j] = shared[j] && x[k] == x[0];
        }
        in[j] = !x ? none : shared[j] ? (stack){x[0], 0} : stack_of(s, x);
        any = any || !shared[j];
        if (in[j].all == NNC_NONE)
            return none;
    }
    if (!any)
        return none;
    edit_at_all(s, v);
    s->now = (stack_cost){0};
    return stack_op(s, &c, in, shared);
}

/* n values of one type as one stack; NNC_NONE: each step would have to concatenate them. */
static stack stack_of(stacks *s, const nnc_ref *v)
{
    pass *p = s->p;
    const nnc_type *t = type_of(p, v[0]);
    const stack none = {NNC_NONE, 0};
    bool states = false;
    for (size_t i = 0; i < s->n_at; i++)
        if (s->at[i].n == s->n && !memcmp(s->at[i].v, v, sizeof *v * (size_t)s->n) &&
            !p->e.dead[p->g->value[s->at[i].stack.all].node]) {
            join_roots(s->group, s->run, s->at[i].run);
            return s->at[i].stack;
        }
    bool ok = t->rank < NNC_MAX_RANK && s->depth < DEEP;
    for (int k = 0; k < s->n && ok; k++)
        ok =
            nnc_type_equal(type_of(p, v[k]), t) && nnc_type_is_row_major(t) && nnc_type_is_dense(t);
    if (!ok)
        return none;
    s->depth++;
    const bool param = def_of(p, v[0])->op == OP_param;
    stack found = param ? (stack){stack_of_params(s, v, &states), 0} : stack_of_parts(s, v);
    const bool computed = found.all == NNC_NONE && !param;
    if (computed)
        found = stack_of_ops(s, v);
    s->depth--;
    if (!edit_sync(p) || found.all == NNC_NONE)
        return none;
    if (!PASS_ROOM(p, s->at, s->cap_at, s->n_at + 1))
        return none;
    s->at[s->n_at++] = (stacked){.v = v,
        .n = s->n,
        .stack = found,
        .states = states,
        .computed = computed,
        .run = s->run,
        .cost = computed ? s->now : (stack_cost){0}};
    return found;
}

/* ---- updates ---------------------------------------------------------------------------------------------------------------- */

/* The new values of states v; NULL: one has none. */
static nnc_ref *updates_of(stacks *s, const nnc_ref *v)
{
    const nnc_graph *g = s->p->g;
    nnc_ref *to = PASS_NEW(s->p, nnc_ref, s->n);
    for (int k = 0; to && k < s->n; k++) {
        uint32_t o = nnc_result_outputs(g);
        while (o < g->n_output && g->output_state[o] != v[k])
            o++;
        if (o == g->n_output)
            return NULL;
        to[k] = g->output[o];
    }
    return to;
}

/* Stacks the new values of all states concatenated since stack number `from`. */
static bool stack_updates(stacks *s, size_t from)
{
    for (size_t i = from; i < s->n_at; i++) {
        const nnc_ref *to = s->at[i].states ? updates_of(s, s->at[i].v) : NULL;
        if (s->at[i].states && (!to || stack_of(s, to).all == NNC_NONE))
            return false;
    }
    return true;
}

/* By node: is it a direct or indirect producer of v? NULL: out of memory. */
static bool *find_sources(pass *p, nnc_ref v)
{
    const nnc_graph *g = p->g;
    bool *is = PASS_NEW(p, bool, g->n_node + 1);
    uint32_t *todo = PASS_NEW(p, uint32_t, g->n_node + 1), n = 0;
    if (!is || !todo)
        return NULL;
    is[g->value[v].node] = true;
    todo[n++] = g->value[v].node;
    while (n > 0) {
        const nnc_node *c = &g->node[todo[--n]];
        for (int k = 0; k < c->n_in; k++) {
            const uint32_t from = g->value[c->in[k]].node;
            if (!is[from])
                todo[n++] = from;
            is[from] = true;
        }
    }
    return is;
}

/* Makes `part` the state's update instead of `to`. A sum over several batches may also be read through a reshape, if pass algebra is
 * skipped or the optimizer needs a row. Such a reader must read `part`. Otherwise it would compute `part` from the sum's old value, which
 * an update cannot. */
static void replace_update(pass *p, nnc_ref state, nnc_ref to, nnc_ref part, const bool *sources)
{
    const nnc_type t = *type_of(p, to);
    const nnc_node *d = def_of(p, to);
    nnc_ref under = def_of(p, state)->accumulates && d->op == OP_reshape ? d->in[0] : NNC_NONE;
    edit_replace(p, to, t.rank == 1 ? part : nnc_reshape(p->g, part, t.rank, t.dim));
    while (
        under != NNC_NONE && p->status == NNC_OK && sources && !sources[p->g->value[under].node]) {
        const nnc_ref old = under;
        const nnc_type u = *type_of(p, old);
        d = def_of(p, old);
        under = d->op == OP_reshape ? d->in[0] : NNC_NONE;
        edit_replace(p, old, u.rank == 1 ? part : nnc_reshape(p->g, part, u.rank, u.dim));
    }
}

/* Makes parts of one value the updates of stack i's states. */
static void replace_updates(stacks *s, size_t i)
{
    nnc_graph *g = s->p->g;
    const nnc_ref *to = s->at[i].states ? updates_of(s, s->at[i].v) : NULL;
    const stack updated = to ? stack_of(s, to) : (stack){NNC_NONE, 0};
    if (updated.all == NNC_NONE)
        return;
    const nnc_type t = *type_of(s->p, to[0]);
    const int64_t numel = nnc_type_numel(&t), line = numel * s->n;
    edit_at_all(s, to);
    nnc_ref all = stack_turn(s, updated.all, updated.axis, 0);
    all = all == NNC_NONE ? all : nnc_reshape(g, all, 1, &line);
    const bool *sources = all == NNC_NONE ? NULL : find_sources(s->p, all);
    for (int k = 0; k < s->n && all != NNC_NONE; k++) {
        nnc_ref part = nnc_cut(g, all, 0, k * numel, (k + 1) * numel);
        replace_update(s->p, s->at[i].v[k], to[k], part, sources);
    }
}

/* ---- runs of a concat --------------------------------------------------------------------------------------------------------- */

/* Neighbouring operands of a concat that may be one stack. */
typedef struct run {
    size_t from, to; /* operands */
    stack stack; /* NNC_NONE: they stay apart */
    size_t first; /* its stacks, s->at[first..end) */
    size_t end;
    bool views; /* needs no computation */
} run;

typedef struct chain { /* a concat, and concats along its axis that only it reads */
    uint32_t node;
    nnc_ref *v; /* operands */
    size_t n, n_run;
    uint32_t first; /* number of its first run */
    size_t left; /* operands, if each run counts as one */
    bool replaced;
    layers l;
} chain;

/* Appends the operands of concat c and of concats along its axis that only it reads. */
static bool flatten(pass *p, const nnc_node *c, nnc_ref **list, size_t *n, size_t *cap)
{
    for (int k = 0; k < c->n_in; k++) {
        const nnc_node *d = def_of(p, c->in[k]);
        if (d->op == OP_concat && nnc_attr_int(d, AT_axis, 0) == nnc_attr_int(c, AT_axis, 0) &&
            edit_only_user(p, d->out) == c) {
            if (!flatten(p, d, list, n, cap))
                return false;
            continue;
        }
        if (!PASS_ROOM(p, *list, *cap, *n + 1))
            return false;
        (*list)[(*n)++] = c->in[k];
    }
    return true;
}

/* May a and b be members of one run? Both are computed, or parts of one tensor, which is their concat. */
static bool are_neighbours(const pass *p, nnc_ref a, nnc_ref b)
{
    const nnc_ref v = nnc_reshaped(p->g, a), w = nnc_reshaped(p->g, b);
    const nnc_node *d = def_of(p, v), *e = def_of(p, w);
    if (a == b || edit_static(p, a) || edit_is_output(p, a) ||
        !nnc_type_equal(type_of(p, a), type_of(p, b)))
        return false;
    const bool parts = (d->op == OP_slice || d->op == OP_split) && e->op == d->op;
    return parts ? nnc_type_equal(type_of(p, v), type_of(p, w))
                 : stack_knows(p, d) && d->op != OP_broadcast && are_alike(p, v, w);
}

static bool all_views(const pass *p, uint32_t first)
{
    bool all = true;
    for (uint32_t i = first; i < p->g->n_node && all; i++)
        all = nnc_is_view(p->g, &p->g->node[i]);
    return all;
}

/* Builds the stack of a run's operands; false: they stay separate. */
static bool build_run(stacks *s, const chain *c, run *r)
{
    pass *p = s->p;
    const uint32_t first = p->g->n_node;
    nnc_ref *v = PASS_NEW(p, nnc_ref, r->to - r->from);
    s->n = (int)(r->to - r->from);
    s->why = NULL;
    r->first = r->end = s->n_at;
    if (!v)
        return false;
    memcpy(v, c->v + r->from, sizeof *v * (size_t)s->n);
    r->stack = stack_of(s, v);
    bool ok = r->stack.all != NNC_NONE && stack_updates(s, r->first);
    r->end = s->n_at;
    r->views = ok && all_views(p, first);
    int commands = 0;
    for (size_t i = r->first; i < r->end; i++)
        commands += s->at[i].cost.commands;
    /* an earlier run's stacks suffice */
    ok = ok && (commands || r->views || find_root(s->group, s->run) != s->run);
    if (ok)
        return true;
    if (s->why)
        remark_declined(p, &c->l, rule, "%s", s->why);
    r->stack.all = NNC_NONE;
    s->n_at = r->end = r->first;
    edit_sync(p);
    for (uint32_t i = p->g->n_node; i-- > first;)
        edit_sweep(p, i);
    return false;
}

/* ---- what they save ------------------------------------------------------------------------------------------------------------ */

/* By node of the original graph: does it stay once all built runs replace their operands? NULL: out of memory. */
static bool *find_kept(stacks *s, const chain *c, size_t n_chain, const run *r, uint32_t n)
{
    pass *p = s->p;
    bool *kept = PASS_NEW(p, bool, n + 1), *cut = PASS_NEW(p, bool, n + 1),
         *taken = PASS_NEW(p, bool, p->g->n_value + 1);
    if (!kept || !cut || !taken)
        return NULL;
    for (size_t i = 0; i < n_chain; i++)
        for (uint32_t k = c[i].first; k < c[i].first + c[i].n_run; k++)
            for (size_t j = r[k].from; j < r[k].to && r[k].stack.all != NNC_NONE; j++) {
                taken[c[i].v[j]] = true;
                for (uint32_t u = 0, x; edit_next_user(p, c[i].v[j], &u, &x);)
                    if (x < n && p->g->node[x].op == OP_concat)
                        cut[x] = true;
            }
    for (size_t i = 0; i < s->n_at; i++) {
        s->n = s->at[i].n;
        const nnc_ref *to = s->at[i].states ? updates_of(s, s->at[i].v) : NULL;
        for (int k = 0; to && k < s->n; k++)
            taken[to[k]] = true;
    }
    for (uint32_t i = n; i-- > 0;) {
        const nnc_node *d = &p->g->node[i];
        for (uint32_t o = 0; o < d->n_out && !p->e.dead[i]; o++) {
            const nnc_ref v = d->out + o;
            kept[i] = kept[i] || (edit_is_output(p, v) && !taken[v]);
            for (uint32_t u = 0, x; !kept[i] && edit_next_user(p, v, &u, &x);)
                kept[i] = x < n && kept[x] && !(cut[x] && taken[v]);
        }
    }
    return kept;
}

/* Time that stack e is expected to save: launches, since one command computes as long as the separate ones. If its members' ops stay, the
 * stack costs additional time. */
static int64_t saved_ns(const stacks *s, const stacked *e, const bool *kept, uint32_t n)
{
    const pass *p = s->p;
    const nnc_target *t = target_of(p, def_of(p, e->v[0]));
    const int64_t launch = nnc_target_start_ns(t, t->threads);
    const int64_t copies =
        t->kind == NNC_T_cuda ? nnc_target_move_ns(t, e->cost.moved_bytes, 0) : 0;
    bool beside = false;
    for (int k = 0; k < e->n && e->computed; k++)
        beside = beside || (p->g->value[e->v[k]].node < n && kept[p->g->value[e->v[k]].node]);
    if (beside)
        return -(e->cost.all_ns + e->cost.commands * launch + copies);
    return (e->n - 1) * (int64_t)e->cost.commands * launch - copies;
}

typedef struct total { /* of runs that share stacks */
    int64_t saved_ns, all_ns;
    int commands, said;
} total;

/* Undoes the runs of groups that save too little. */
static void drop_small_groups(
    stacks *s, chain *c, size_t n_chain, run *r, uint32_t n_run, uint32_t n)
{
    pass *p = s->p;
    const bool *kept = find_kept(s, c, n_chain, r, n);
    total *sum = kept ? PASS_NEW(p, total, n_run + 1) : NULL;
    for (size_t i = 0; sum && i < s->n_at; i++) {
        total *group_sum = &sum[find_root(s->group, s->at[i].run)];
        group_sum->saved_ns += saved_ns(s, &s->at[i], kept, n);
        group_sum->all_ns = nnc_add_sat(group_sum->all_ns, s->at[i].cost.all_ns);
        group_sum->commands += s->at[i].cost.commands;
    }
    for (size_t i = 0; sum && i < n_chain; i++)
        for (uint32_t k = c[i].first; k < c[i].first + c[i].n_run; k++) {
            total *group_sum = &sum[find_root(s->group, k)];
            if (r[k].stack.all == NNC_NONE || !group_sum->commands || p->o->join_siblings ||
                group_sum->saved_ns > group_sum->all_ns / WORTH)
                continue;
            r[k].stack.all = NNC_NONE;
            if (!group_sum->said++)
                remark_declined(p, &c[i].l, rule,
                    "%d alike ops as one each would save %s of the %s that their contractions take",
                    group_sum->commands, text_us(p, nnc_max64(group_sum->saved_ns, 0)),
                    text_us(p, group_sum->all_ns));
        }
}

/* ---- rewriting ----------------------------------------------------------------------------------------------------------------- */

/* The runs found in all chains. */
typedef struct run_list {
    run *at;
    size_t n, cap;
} run_list;

/* Appends a run of chain c to the list; false: its operands stay separate, and with `only_built` the run is removed. */
static bool add_run(stacks *s, chain *c, run_list *r, size_t from, size_t to, bool only_built)
{
    pass *p = s->p;
    if (!PASS_ROOM(p, r->at, r->cap, r->n + 1) || !PASS_ROOM(p, s->group, s->cap_group, r->n + 1))
        return false;
    s->run = s->group[r->n] = (uint32_t)r->n;
    r->at[r->n] = (run){.from = from, .to = to, .stack = {NNC_NONE, 0}};
    const bool built = build_run(s, c, &r->at[r->n]);
    r->n += built || !only_built;
    c->n_run += built || !only_built;
    return built;
}

/* Divides a run that cannot be stacked into runs of as many models as earlier ones have: each model may have several such layers. */
static void add_parts(stacks *s, chain *c, run_list *r, size_t from, size_t to)
{
    size_t tried = 0;
    for (size_t i = 0, n = r->n; i < n; i++) {
        const size_t each = r->at[i].to - r->at[i].from;
        if (r->at[i].stack.all == NNC_NONE || each < 2 || each == tried || each >= to - from ||
            (to - from) % each != 0)
            continue;
        tried = each;
        if (!add_run(s, c, r, from, from + each, true))
            continue;
        for (size_t k = from + each; k < to; k += each)
            (void)add_run(s, c, r, k, k + each, false);
        return;
    }
}

static void find_runs(stacks *s, chain *c, run_list *r)
{
    pass *p = s->p;
    size_t room = 0;
    c->l = layers_of(p, c->node, NNC_NONE);
    c->first = (uint32_t)r->n;
    if (!flatten(p, &p->g->node[c->node], &c->v, &c->n, &room))
        return;
    for (size_t k = 0, end; k < c->n && p->status == NNC_OK; k = end) {
        for (end = k + 1; end < c->n && are_neighbours(p, c->v[k], c->v[end]);)
            end++;
        for (size_t j = k; j < end && end > k + 1; j++)
            layers_add(p, &c->l, p->g->value[c->v[j]].node);
        if (end > k + 1 && !add_run(s, c, r, k, end, true))
            add_parts(s, c, r, k, end);
    }
}

/* Replaces a concat by one of the built stacks and of separate operands; false: all are separate. */
static bool replace(stacks *s, chain *c, const run *r)
{
    pass *p = s->p;
    const nnc_node n = p->g->node[c->node];
    const int64_t axis = nnc_attr_int(&n, AT_axis, 0);
    nnc_ref *v = PASS_NEW(p, nnc_ref, c->n + 1);
    size_t m = 0, k = 0;
    bool any = false;
    for (uint32_t i = c->first; v && i < c->first + c->n_run; i++) {
        while (k < (r[i].stack.all == NNC_NONE ? r[i].to : r[i].from))
            v[m++] = c->v[k++];
        if (r[i].stack.all == NNC_NONE)
            continue;
        s->n = (int)(r[i].to - r[i].from);
        edit_at_all(s, c->v + r[i].from);
        v[m++] = stack_merge(s, r[i].stack, (int)axis);
        k = r[i].to;
        any = true;
    }
    while (v && k < c->n)
        v[m++] = c->v[k++];
    c->left = m;
    if (!any || p->status != NNC_OK)
        return false;
    edit_at(p, c->node);
    edit_replace(p, n.out, nnc_concat(p->g, (int)m, v, axis));
    return true;
}

/* By number of a run: are runs that share its stacks replaced? Removes the stacks of the others. */
static bool *sweep_others(stacks *s, const run *r, size_t n_run)
{
    bool *stays = PASS_NEW(s->p, bool, n_run + 1);
    for (uint32_t k = 0; stays && k < n_run; k++)
        if (r[k].stack.all != NNC_NONE)
            stays[find_root(s->group, k)] = true;
    for (size_t i = s->n_at; stays && i-- > 0;)
        if (!stays[find_root(s->group, s->at[i].run)])
            edit_sweep(s->p, s->p->g->value[s->at[i].stack.all].node);
    return stays;
}

/* Replaces the runs' operands and the states' new values. */
static void replace_all(stacks *s, chain *c, size_t n_chain, const run *r, size_t n_run, uint32_t n)
{
    pass *p = s->p;
    const bool *stays = sweep_others(s, r, n_run);
    const size_t built = s->n_at;
    for (size_t i = 0; stays && i < built && p->status == NNC_OK; i++) {
        s->n = s->at[i].n;
        s->run = s->at[i].run;
        if (stays[find_root(s->group, s->run)])
            replace_updates(s, i);
    }
    for (size_t i = 0; i < n_chain && p->status == NNC_OK; i++)
        c[i].replaced = replace(s, &c[i], r);
    edit_sync(p);
    for (uint32_t i = p->g->n_node; i-- > n;)
        edit_sweep(p, i);
    for (size_t i = 0; i < n_chain && p->status == NNC_OK; i++) /* the first counts all savings */
        if (c[i].replaced)
            remark_applied(p, &c[i].l, rule,
                "alike ops are computed as one, of %d values instead of %d", (int)c[i].left,
                (int)c[i].n);
}

/* Is node i a concat that is not part of another one's chain? */
static bool is_outer(const pass *p, uint32_t i)
{
    const nnc_node *c = &p->g->node[i];
    if (c->op != OP_concat || p->e.dead[i] || edit_static(p, c->out))
        return false;
    const nnc_node *u = edit_only_user(p, c->out);
    return !u || u->op != OP_concat || nnc_attr_int(u, AT_axis, 0) != nnc_attr_int(c, AT_axis, 0);
}

void join_trained(pass *p)
{
    const uint32_t n = p->g->n_output > nnc_result_outputs(p->g) ? p->g->n_node : 0;
    stacks s = {.p = p};
    chain *c = PASS_NEW(p, chain, n + 1);
    run_list r = {0};
    size_t n_chain = 0;
    for (uint32_t i = 0; c && i < n; i++)
        if (is_outer(p, i))
            c[n_chain++].node = i;
    for (size_t i = 0; i < n_chain && p->status == NNC_OK; i++)
        find_runs(&s, &c[i], &r);
    if (r.n && p->status == NNC_OK)
        drop_small_groups(&s, c, n_chain, r.at, (uint32_t)r.n, n);
    if (r.n && p->status == NNC_OK)
        replace_all(&s, c, n_chain, r.at, r.n, n);
}
