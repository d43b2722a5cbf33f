/* passes/stacks.c -- models that are trained side by side: alike ops of n models are computed as one, on stacks [n, ..] of their operands.
 *
 *   y1 = linear(x1, w1, b1);  y2 = linear(x2, w2, b2);  y = concat(y1, y2);  ..  update w1 <- w1 - lr dy1^T x1, w2 <- ..
 *   -> Y = X W^T + B;  ..  W' = W - lr dY^T X;  update w1 <- W'[0], w2 <- W'[1]        X, dY: views of x and dy;  W = concat(w1, w2)
 *
 * From each run of alike operands of a concat: its stack is that of the operands' operands, down to the parts of one tensor, to values that
 * all share, and to params. Params that training changes are put together, which costs nothing where their new values are parts of one
 * value as well: the pass in_place makes them one state. So their updates are stacked, too, or nothing is. Names of weights stay.
 *
 * On a CPU a stack is declined where contractions have so many results that a launch does not count; then one model's gradients need not
 * wait for another's. It has to save a share of their time: stacks are read beyond the nearest caches, which estimates do not see (64
 * linear layers of 2^17 weights, one thread: 2.6 ms apart, 3.3 as one). Terminates: each concat is visited once. */
#include "kernel/kernel.h"
#include "passes/stack.h"
#include "schedule/schedule.h"

enum {
    WORTH = 64, /* a stack saves at least this part of the time of its contractions */
    WIDE = 12, /* operands of a concat: NNC_KERNEL_CONCAT */
    DEEP = 400 /* ops after one another */
};

static stack stack_of(stacks *s, const nnc_ref *v);

/* ---- leaves ---------------------------------------------------------------------------------------------------------------- */

/* Where v lies in another tensor: elements `start`.. of dimension `axis` of *x. */
static bool part_of(const pass *p, nnc_ref v, nnc_ref *x, int64_t *axis, int64_t *start)
{
    *x = v;
    *axis = -1;
    *start = 0;
    for (;;) {
        const nnc_node *d = nnc_def(p->g, *x);
        const int64_t *at = NULL, *axes = NULL, *steps = NULL;
        int64_t a = nnc_attr_int(d, AT_axis, 0), from = 0;
        if (d->op == OP_split) {
            nnc_attr_ints(d, AT_sizes, &at);
            for (nnc_ref k = d->out; k < *x; k++)
                from += at[k - d->out];
        } else if (d->op == OP_slice && nnc_attr_ints(d, AT_axes, &axes) == 1 &&
                   (nnc_attr_ints(d, AT_steps, &steps) == 0 || steps[0] == 1)) {
            nnc_attr_ints(d, AT_starts, &at);
            from = at[0];
            a = axes[0];
        } else {
            return *axis >= 0;
        }
        if (*axis >= 0 && a != *axis)
            return true;
        *axis = a;
        *start += from;
        *x = d->in[0];
    }
}

/* The stack, its models as parts of dimension `axis` of the members: [.., n e, ..]. */
static nnc_ref unstack(stacks *s, stack x, int axis)
{
    const nnc_ref r = stack_turn(s, x.all, x.axis, axis);
    int64_t dim[NNC_MAX_RANK];
    if (r == NNC_NONE)
        return r;
    const nnc_type t = *nnc_typeof(s->p->g, r);
    for (int d = 1; d < t.rank; d++)
        dim[d - 1] = d <= axis ? t.dim[d - 1] : t.dim[d] * (d == axis + 1 ? s->n : 1);
    return nnc_reshape(s->p->g, r, t.rank - 1, dim);
}

/* Parts of one tensor, one after the other. */
static stack stack_of_parts(stacks *s, const nnc_ref *v)
{
    nnc_graph *g = s->p->g;
    const nnc_type t = *nnc_typeof(g, v[0]);
    const stack none = {NNC_NONE, 0};
    nnc_ref x, y;
    int64_t axis, a, first, at, dim[NNC_MAX_RANK];
    if (!part_of(s->p, v[0], &x, &axis, &first))
        return none;
    for (int k = 1; k < s->n; k++)
        if (!part_of(s->p, v[k], &y, &a, &at) || y != x || a != axis ||
            at != first + k * t.dim[axis])
            return none;
    const int64_t end = first + s->n * t.dim[axis];
    const nnc_attr cut[] = {
        nnc_av(AT_starts, 1, &first), nnc_av(AT_ends, 1, &end), nnc_av(AT_axes, 1, &axis)};
    if (first || end != nnc_typeof(g, x)->dim[axis])
        x = nnc_build(g, OP_slice, 1, &x, 3, cut);
    for (int d = 0; d <= t.rank; d++) /* [.., n, e, ..] */
        dim[d] = d < axis ? t.dim[d] : d == axis ? s->n : t.dim[d - 1];
    return (stack){nnc_reshape(g, x, t.rank + 1, dim), (int)axis};
}

/* The concat of one dimension that v is part of, and that is part of none; *at: v's first element there. */
static nnc_ref concat_with(const pass *p, nnc_ref v, int64_t *at)
{
    nnc_ref x = v;
    *at = 0;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t u = 0, i; !again && edit_next_user(p, x, &u, &i);) {
            const nnc_node *n = &p->g->node[i];
            if (n->op != OP_concat && (n->op != OP_reshape || nnc_typeof(p->g, n->out)->rank != 1))
                continue;
            if (n->op == OP_concat && nnc_typeof(p->g, n->out)->rank != 1)
                continue;
            for (int k = 0; n->op == OP_concat && n->in[k] != x; k++)
                *at += nnc_type_numel(nnc_typeof(p->g, n->in[k]));
            x = n->out;
            again = true;
        }
    }
    return nnc_def(p->g, x)->op == OP_concat ? x : NNC_NONE;
}

/* v as one tensor of one dimension. */
static nnc_ref put_together(stacks *s, const nnc_ref *v)
{
    nnc_graph *g = s->p->g;
    const int64_t numel = nnc_type_numel(nnc_typeof(g, v[0]));
    const nnc_attr axis = nnc_ai(AT_axis, 0);
    nnc_ref *line = PASS_NEW(s->p, nnc_ref, s->n);
    for (int k = 0; line && k < s->n; k++)
        line[k] = nnc_typeof(g, v[k])->rank == 1 ? v[k] : nnc_reshape(g, v[k], 1, &numel);
    for (int n = s->n; line && n > 1;) {
        int m = 0;
        for (int i = 0; i < n; i += WIDE) {
            int take = (int)nnc_min64(WIDE, n - i);
            line[m++] = take == 1 ? line[i] : nnc_build(g, OP_concat, take, line + i, 1, &axis);
        }
        n = m;
    }
    return line ? line[0] : NNC_NONE;
}

/* Params: where the optimizer has put them together already, or here. */
static nnc_ref stack_of_params(stacks *s, const nnc_ref *v, bool *states)
{
    nnc_graph *g = s->p->g;
    const nnc_type t = *nnc_typeof(g, v[0]);
    const int64_t numel = nnc_type_numel(&t);
    int64_t at, first, dim[NNC_MAX_RANK];
    nnc_ref x = concat_with(s->p, v[0], &first);
    bool there = x != NNC_NONE;
    for (int k = 0; k < s->n; k++) {
        const nnc_node *d = nnc_def(g, v[k]);
        if (d->op != OP_param || d->state != nnc_def(g, v[0])->state ||
            d->accumulates != nnc_def(g, v[0])->accumulates)
            return NNC_NONE;
        there = there && concat_with(s->p, v[k], &at) == x && at == first + k * numel;
    }
    *states = nnc_def(g, v[0])->state && !there;
    if (!there)
        x = put_together(s, v);
    const int64_t end = first + s->n * numel;
    const nnc_attr cut[] = {
        nnc_av(AT_starts, 1, &first), nnc_av(AT_ends, 1, &end), nnc_av(AT_axes, 1, &(int64_t){0})};
    if (there && nnc_type_numel(nnc_typeof(g, x)) != s->n * numel)
        x = nnc_build(g, OP_slice, 1, &x, 3, cut);
    dim[0] = s->n;
    memcpy(dim + 1, t.dim, sizeof *dim * t.rank);
    return x == NNC_NONE ? x : nnc_reshape(g, x, t.rank + 1, dim);
}

/* ---- ops -------------------------------------------------------------------------------------------------------------------- */

/* Do a and b compute the same of operands of the same types? */
static bool are_alike(const pass *p, nnc_ref a, nnc_ref b)
{
    const nnc_node *x = nnc_def(p->g, a), *y = nnc_def(p->g, b);
    bool ok = x->op == y->op && x->n_in == y->n_in && stack_knows(p, x) && attrs_equal(x, y) &&
              !placed_apart(x, y) && nnc_type_equal(nnc_typeof(p->g, a), nnc_typeof(p->g, b));
    for (int k = 0; k < x->n_in && ok; k++)
        ok = nnc_type_equal(nnc_typeof(p->g, x->in[k]), nnc_typeof(p->g, y->in[k]));
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
    const nnc_node c = *nnc_def(p->g, v[0]);
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
            x[k] = nnc_def(p->g, v[k])->in[j];
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
    return stack_op(s, &c, in, shared);
}

/* n values of one type as one; NNC_NONE: it would be put together in each step. */
static stack stack_of(stacks *s, const nnc_ref *v)
{
    pass *p = s->p;
    const nnc_type *t = nnc_typeof(p->g, v[0]);
    const stack none = {NNC_NONE, 0};
    bool states = false;
    for (size_t i = 0; i < s->n_at; i++)
        if (s->at[i].n == s->n && !memcmp(s->at[i].v, v, sizeof *v * (size_t)s->n) &&
            !p->e.dead[p->g->value[s->at[i].of.all].node])
            return s->at[i].of;
    bool ok = t->rank < NNC_MAX_RANK && s->depth < DEEP;
    for (int k = 0; k < s->n && ok; k++)
        ok = nnc_type_equal(nnc_typeof(p->g, v[k]), t) && nnc_type_is_row_major(t) &&
             nnc_type_is_dense(t);
    if (!ok)
        return none;
    s->depth++;
    const bool param = nnc_def(p->g, v[0])->op == OP_param;
    stack of = param ? (stack){stack_of_params(s, v, &states), 0} : stack_of_parts(s, v);
    if (of.all == NNC_NONE && !param)
        of = stack_of_ops(s, v);
    s->depth--;
    edit_sync(p);
    if (of.all == NNC_NONE || p->status != NNC_OK)
        return none;
    if (!ARENA_ROOM(p->a, s->at, s->cap_at, s->n_at + 1)) {
        pass_nomem(p);
        return none;
    }
    s->at[s->n_at++] = (stacked){v, s->n, of, states};
    return of;
}

/* ---- updates ---------------------------------------------------------------------------------------------------------------- */

/* The new values of states v; NULL: one has none, or one is read elsewhere. */
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

/* Stacks the new values of all states that were put together since stack number `from`. */
static bool stack_updates(stacks *s, size_t from)
{
    for (size_t i = from; i < s->n_at; i++) {
        const nnc_ref *to = s->at[i].states ? updates_of(s, s->at[i].v) : NULL;
        if (s->at[i].states && (!to || stack_of(s, to).all == NNC_NONE))
            return false;
    }
    return true;
}

static void replace_updates(stacks *s, size_t from)
{
    nnc_graph *g = s->p->g;
    const size_t end = s->n_at;
    for (size_t i = from; i < end; i++) {
        const nnc_ref *to = s->at[i].states ? updates_of(s, s->at[i].v) : NULL;
        const stack of = to ? stack_of(s, to) : (stack){NNC_NONE, 0};
        if (of.all == NNC_NONE)
            continue;
        const nnc_type t = *nnc_typeof(g, to[0]);
        const int64_t numel = nnc_type_numel(&t), line = numel * s->n;
        edit_at_all(s, to);
        nnc_ref all = stack_turn(s, of.all, of.axis, 0);
        all = all == NNC_NONE ? all : nnc_reshape(g, all, 1, &line);
        for (int k = 0; k < s->n && all != NNC_NONE; k++) {
            const int64_t at = k * numel, to_end = at + numel;
            const nnc_attr cut[] = {nnc_av(AT_starts, 1, &at), nnc_av(AT_ends, 1, &to_end),
                nnc_av(AT_axes, 1, &(int64_t){0})};
            nnc_ref part = nnc_build(g, OP_slice, 1, &all, 3, cut);
            edit_replace(s->p, to[k], t.rank == 1 ? part : nnc_reshape(g, part, t.rank, t.dim));
        }
    }
}

/* ---- runs of a concat --------------------------------------------------------------------------------------------------------- */

/* Appends the operands of concat c and of concats along its axis that only it reads. */
static bool flatten(pass *p, const nnc_node *c, nnc_ref **list, size_t *n, size_t *cap)
{
    for (int k = 0; k < c->n_in; k++) {
        const nnc_node *d = nnc_def(p->g, c->in[k]);
        if (d->op == OP_concat && nnc_attr_int(d, AT_axis, 0) == nnc_attr_int(c, AT_axis, 0) &&
            edit_only_user(p, d->out) == c) {
            if (!flatten(p, d, list, n, cap))
                return false;
            continue;
        }
        if (!ARENA_ROOM(p->a, *list, *cap, *n + 1)) {
            pass_nomem(p);
            return false;
        }
        (*list)[(*n)++] = c->in[k];
    }
    return true;
}

/* May a and b be members of one run? Of computed values, or of parts of one tensor, which is their concat. */
static bool are_neighbours(const pass *p, nnc_ref a, nnc_ref b)
{
    const nnc_ref v = nnc_reshaped(p->g, a), w = nnc_reshaped(p->g, b);
    const nnc_node *d = nnc_def(p->g, v), *e = nnc_def(p->g, w);
    if (a == b || edit_static(p, a) || edit_is_output(p, a) ||
        !nnc_type_equal(nnc_typeof(p->g, a), nnc_typeof(p->g, b)))
        return false;
    const bool parts = (d->op == OP_slice || d->op == OP_split) && e->op == d->op;
    return parts ? nnc_type_equal(nnc_typeof(p->g, v), nnc_typeof(p->g, w))
                 : stack_knows(p, d) && !stack_is_movement(d) && are_alike(p, v, w);
}

/* Are the nodes from `first` on views? */
static bool all_views(const pass *p, uint32_t first)
{
    bool all = true;
    for (uint32_t i = first; i < p->g->n_node && all; i++)
        all = nnc_is_view(p->g, &p->g->node[i]);
    return all;
}

/* Time that one command for each of the stacks' ops is expected to save. */
static int64_t saved_ns(const stacks *s, const nnc_target *t)
{
    const int64_t launch = nnc_kernel_launch_ns(t) + (t->threads > 1 ? NNC_T_WAKE_NS : 0);
    const int64_t copies = t->kind == NNC_T_cuda ? nnc_target_move_ns(t, s->moved_bytes, 0) : 0;
    return s->apart_ns - s->one_ns + (s->n - 1) * (int64_t)s->commands * launch - copies;
}

/* The n members of v, along `axis` one after the other, as one value; NNC_NONE: that is not possible, or does not pay. */
static nnc_ref join_run(stacks *s, const nnc_ref *v, int64_t axis, const layers *l)
{
    pass *p = s->p;
    const uint32_t first = p->g->n_node;
    const size_t from = s->n_at;
    s->commands = 0;
    s->one_ns = s->apart_ns = s->all_ns = s->moved_bytes = 0;
    s->why = NULL;
    const stack of = stack_of(s, v);
    const bool possible = of.all != NNC_NONE && stack_updates(s, from);
    const nnc_target *t = target_of(p, nnc_def(p->g, v[0]));
    const int64_t saved = saved_ns(s, t);
    const bool pays =
        s->commands ? p->o->join_siblings || saved > s->all_ns / WORTH : all_views(p, first);
    if (possible && pays) {
        edit_at_all(s, v);
        const nnc_ref all = unstack(s, of, (int)axis);
        replace_updates(s, from);
        edit_sync(p);
        return all;
    }
    if (possible && s->commands)
        remark_declined(p, l, "models side by side",
            "%d alike ops of %d models as one each save %s of the %s that their contractions take",
            s->commands, s->n, text_us(p, nnc_max64(saved, 0)), text_us(p, s->all_ns));
    else if (s->why)
        remark_declined(p, l, "models side by side", "%s", s->why);
    s->n_at = from;
    edit_sync(p);
    for (uint32_t i = p->g->n_node; i-- > first;)
        edit_sweep(p, i);
    return NNC_NONE;
}

static void join_operands(stacks *s, uint32_t i)
{
    pass *p = s->p;
    const nnc_node c = p->g->node[i];
    const int64_t axis = nnc_attr_int(&c, AT_axis, 0);
    nnc_ref *v = NULL;
    size_t n = 0, cap = 0, m = 0;
    bool any = false;
    if (!flatten(p, &p->g->node[i], &v, &n, &cap))
        return;
    layers l = layers_of(p, i, NNC_NONE);
    for (size_t k = 0, end; k < n && p->status == NNC_OK; k = end) {
        for (end = k + 1; end < n && are_neighbours(p, v[k], v[end]);)
            end++;
        s->n = (int)(end - k);
        nnc_ref *run = end > k + 1 ? PASS_NEW(p, nnc_ref, s->n) : NULL;
        if (run)
            memcpy(run, v + k, sizeof *run * (size_t)s->n);
        for (int j = 0; run && j < s->n; j++)
            layers_add(p, &l, p->g->value[v[k + (size_t)j]].node);
        nnc_ref all = run ? join_run(s, run, axis, &l) : NNC_NONE;
        any = any || all != NNC_NONE;
        for (size_t j = k; j < end && all == NNC_NONE; j++)
            v[m++] = v[j];
        if (all != NNC_NONE)
            v[m++] = all;
    }
    if (!any || p->status != NNC_OK)
        return;
    const nnc_attr at = nnc_ai(AT_axis, axis);
    edit_at(p, i);
    edit_replace(p, c.out, m == 1 ? v[0] : nnc_build(p->g, OP_concat, (int)m, v, 1, &at));
    remark_applied(p, &l, "models side by side",
        "alike ops are computed as one, of %d values instead of %d", (int)m, (int)n);
}

void join_trained(pass *p)
{
    const uint32_t n = p->g->n_output > nnc_result_outputs(p->g) ? p->g->n_node : 0;
    stacks s = {.p = p};
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        const nnc_node *c = &p->g->node[i];
        const nnc_node *u = c->op == OP_concat && !p->e.dead[i] ? edit_only_user(p, c->out) : NULL;
        const bool inner =
            u && u->op == OP_concat && nnc_attr_int(u, AT_axis, 0) == nnc_attr_int(c, AT_axis, 0);
        if (c->op == OP_concat && !p->e.dead[i] && !inner && !edit_static(p, c->out))
            join_operands(&s, i);
    }
}
