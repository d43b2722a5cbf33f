/* passes/split_decide.c -- chooses a layout for each node's results, in order: its layer's, or the one of its operands that sends the
 * fewest bytes. Then finds, from last node to first, which devices need whole values. */
#include "passes/split.h"
#include <string.h>

static bool has(const splitter *c, nnc_ref v, int layout)
{
    return (c->have[v] & layout_bit(layout)) != 0;
}

/* An axis that v is divided along, or L_full. */
static int divided(const splitter *c, nnc_ref v)
{
    for (int a = 0; a < NNC_MAX_RANK; a++)
        if (has(c, v, a))
            return a;
    return L_full;
}

/* Estimated bytes sent to get v in a layout; INT64_MAX: impossible. Collectives count for all their participants: an allgather n - 1 times
 * the result's bytes, an allreduce twice that. */
static int64_t move_cost(const splitter *c, nnc_ref v, int layout)
{
    const int64_t bytes = value_bytes(c, v), all = nnc_mul_sat(c->n - 1, bytes), part = all / c->n;
    if (c->fixed[v])
        return layout == L_sum ? INT64_MAX : 0;
    if (has(c, v, layout))
        return 0;
    if (layout == L_sum)
        return INT64_MAX;
    if (layout == L_full)
        return divided(c, v) != L_full ? all : nnc_mul_sat(2, all);
    if (has(c, v, L_full))
        return c->everywhere[v] ? 0 : part;
    return divided(c, v) != L_full ? part : all;
}

/* Bytes sent to get all operands as in[k] says. */
static int64_t moves_cost(const splitter *c, const nnc_node *x, const int8_t *in)
{
    int64_t cost = 0;
    for (int k = 0; k < x->n_in; k++) {
        const bool bias = in[k] == L_sum && c->fixed[x->in[k]];
        if (!bias)
            cost = nnc_add_sat(cost, move_cost(c, x->in[k], in[k] == L_sum ? L_full : in[k]));
        if (in[k] == L_full && !c->fixed[x->in[k]] && !c->everywhere[x->in[k]] &&
            has(c, x->in[k], L_full)) /* from device 0 to the others */
            cost = nnc_add_sat(cost, nnc_mul_sat(c->n - 1, value_bytes(c, x->in[k])));
    }
    return cost;
}

static choice whole(const splitter *c, const nnc_node *x)
{
    choice y = {.out = L_full, .axis = L_full};
    for (int k = 0; k < x->n_in; k++)
        y.cost = nnc_add_sat(y.cost, move_cost(c, x->in[k], L_full));
    return y;
}

/* By result axis r. */
static bool by_axis(const splitter *c, const nnc_node *x, int r, int8_t *in, choice *y)
{
    if (!split_axes(c->s, x, r, c->n, in))
        return false;
    *y = (choice){.out = (int8_t)r, .axis = (int8_t)r, .cost = moves_cost(c, x, in)};
    return true;
}

/* Choice of partial sums over an axis of operand 0. The cost includes the sum itself. */
static bool by_inner(const splitter *c, const nnc_node *x, int axis, int8_t *in, choice *y)
{
    if (!split_inner(c->s, x, axis, c->n, in))
        return false;
    const int64_t sum = nnc_mul_sat(2 * (int64_t)(c->n - 1), value_bytes(c, x->out));
    *y = (choice){.out = L_sum, .inner = true, .axis = (int8_t)axis};
    y->cost = nnc_add_sat(moves_cost(c, x, in), sum);
    return true;
}

/* Is an operand already divided as in[] says? */
static bool goes_with(const splitter *c, const nnc_node *x, const int8_t *in)
{
    for (int k = 0; k < x->n_in; k++)
        if (!c->fixed[x->in[k]] && in[k] >= 0 && has(c, x->in[k], in[k]))
            return true;
    return false;
}

/* Do x's results stay partial sums, since x is linear and sends nothing? */
static bool stays_sum(const splitter *c, const nnc_node *x)
{
    const bool linear = x->op == OP_add || x->op == OP_sub || x->op == OP_reshape ||
                        x->op == OP_transpose || x->op == OP_identity;
    for (int k = 0; k < x->n_in; k++)
        if (!linear || c->fixed[x->in[k]] || !has(c, x->in[k], L_sum) || has(c, x->in[k], L_full) ||
            !nnc_type_same_shape(nnc_typeof(c->s, x->in[k]), nnc_typeof(c->s, x->in[0])))
            return false;
    return linear;
}

static choice follow(const splitter *c, const nnc_node *x, int8_t *in)
{
    choice best = whole(c, x), y;
    const int rank = nnc_typeof(c->s, x->out)->rank;
    if (stays_sum(c, x))
        return (choice){.out = L_sum, .axis = L_sum};
    for (int r = 0; r < rank; r++)
        if (by_axis(c, x, r, in, &y) && goes_with(c, x, in) && y.cost <= best.cost)
            best = y;
    for (int a = 0; x->n_in == 1 && a < nnc_typeof(c->s, x->in[0])->rank; a++)
        if (has(c, x->in[0], a) && by_inner(c, x, a, in, &y) && y.cost < best.cost)
            best = y;
    return best;
}

/* Chooses rows if the operand is divided that way already and gathering it would cost as much, otherwise columns. */
static choice features(const splitter *c, const nnc_node *x, int8_t *in, uint8_t pick)
{
    choice rows, columns;
    const bool r = by_inner(c, x, split_summed_axis(c->s, x), in, &rows),
               l = by_axis(c, x, split_feature_axis(c->s, x), in, &columns);
    if (l)
        columns.cost = nnc_add_sat(columns.cost, nnc_mul_sat(c->n - 1, value_bytes(c, x->out)));
    if (r && pick != NNC_SPLIT_columns && (!l || pick || rows.cost <= columns.cost))
        return rows;
    if (r && !l)
        return rows;
    return l ? columns : follow(c, x, in);
}

static bool is_weighted(const splitter *c, const nnc_node *x)
{
    const nnc_class cls = nnc_op_class(x->op);
    if (x->op == OP_gather)
        return c->fixed[x->in[0]];
    return cls == CL_contract && x->n_in > 1 && c->fixed[x->in[1]] && !c->fixed[x->in[0]];
}

static int axis_of(const nnc_graph *s, const nnc_node *x, nnc_split_by by)
{
    const int rank = nnc_typeof(s, x->out)->rank;
    switch (by) {
    case NNC_SPLIT_columns: return split_feature_axis(s, x);
    case NNC_SPLIT_rows: return split_summed_axis(s, x);
    case NNC_SPLIT_batch: return 0;
    case NNC_SPLIT_height: return rank > 3 ? rank - 2 : -1;
    case NNC_SPLIT_width: return rank > 2 ? rank - 1 : -1;
    case NNC_SPLIT_space: return rank > 3 ? rank - 2 : rank - 1;
    default: return -1;
    }
}

/* Does this division apply to node x? Other nodes of its layer follow their operands. */
static bool concerns(const splitter *c, const nnc_node *x, nnc_split_by by)
{
    nnc_window w;
    switch (by) {
    case NNC_SPLIT_whole: return true;
    case NNC_SPLIT_columns:
    case NNC_SPLIT_features: return is_weighted(c, x);
    case NNC_SPLIT_rows: return is_weighted(c, x) && x->op != OP_gather;
    case NNC_SPLIT_batch: return true;
    case NNC_SPLIT_height:
    case NNC_SPLIT_width:
    case NNC_SPLIT_space: return split_window(c->s, x, axis_of(c->s, x, by), &w);
    default: return false;
    }
}

static nnc_status refuse(const splitter *c, const nnc_node *x, nnc_split_by by, int axis)
{
    nnc_loc loc = x->loc;
    loc.path = x->origin;
    const nnc_type *t = nnc_typeof(c->s, by == NNC_SPLIT_rows ? x->in[0] : x->out);
    const long long extent = axis >= 0 && axis < t->rank ? (long long)t->dim[axis] : 0;
    NNC_LOCAL(nnc_text) type = {0};
    nnc_put_type(&type, t);
    if (extent && extent < c->n)
        return nnc_fail(c->sink, NNC_E_USAGE, loc,
            "cannot be split by %s over %d devices: dimension %d of %s has only %lld",
            nnc_split_words[by], c->n, axis, nnc_text_str(&type), extent);
    if (nnc_attr_int(x, AT_groups, 1) > 1)
        return nnc_fail(c->sink, NNC_E_USAGE, loc,
            "cannot be split by %s over %d devices: its %lld groups cannot be shared evenly",
            nnc_split_words[by], c->n, (long long)nnc_attr_int(x, AT_groups, 1));
    return nnc_fail(c->sink, NNC_E_USAGE, loc, "%s of %s cannot be split by %s over %d devices",
        nnc_ops[x->op].name, nnc_text_str(&type), nnc_split_words[by], c->n);
}

static nnc_status decide(splitter *c, uint32_t i, int8_t *in)
{
    const nnc_node *x = &c->s->node[i];
    const nnc_split_by by = c->by ? (nnc_split_by)c->by[i] : NNC_SPLIT_follow;
    choice *y = &c->choice[i];
    const int axis = axis_of(c->s, x, by);
    bool ok = true;
    if (!concerns(c, x, by)) {
        *y = follow(c, x, in);
        return NNC_OK;
    }
    if (c->heard)
        c->heard[i] = true;
    switch (by) {
    case NNC_SPLIT_whole: *y = whole(c, x); break;
    case NNC_SPLIT_features: *y = features(c, x, in, c->pick[i]); break;
    case NNC_SPLIT_rows: ok = by_inner(c, x, axis, in, y); break;
    case NNC_SPLIT_space:
        if (!by_axis(c, x, axis, in, y))
            *y = follow(c, x, in);
        break;
    default: ok = by_axis(c, x, axis, in, y); break;
    }
    return ok ? NNC_OK : refuse(c, x, by, axis);
}

void split_layouts(const splitter *c, const nnc_node *x, const choice *y, int8_t *in)
{
    if (y->inner)
        split_inner(c->s, x, y->axis, c->n, in);
    else if (y->out >= 0)
        split_axes(c->s, x, y->out, c->n, in);
    else
        memset(in, y->out, (size_t)x->n_in);
}

/* Can each device compute x's whole results, without receiving anything for them? */
static bool is_local(const splitter *c, const nnc_node *x, const choice *y)
{
    for (int k = 0; k < x->n_in; k++)
        if (!c->fixed[x->in[k]] && !c->everywhere[x->in[k]])
            return false;
    const bool number = nnc_type_numel(nnc_typeof(c->s, x->out)) == 1;
    return y->out == L_full && (x->op != OP_input || number);
}

/* Updates the layouts in which operands and results are available after this choice. */
static void apply(splitter *c, const nnc_node *x, const choice *y, int8_t *in)
{
    split_layouts(c, x, y, in);
    for (int k = 0; k < x->n_in; k++) {
        const nnc_ref v = x->in[k];
        const int want = in[k] == L_sum && y->inner ? L_full : in[k];
        const bool made = !has(c, v, want) && want == L_full; /* by a collective */
        c->gathered[v] |= made && !c->fixed[v];
        if (want >= 0)
            c->moved = nnc_add_sat(c->moved, move_cost(c, v, want));
        c->have[v] |= layout_bit(want);
        if (want == L_full && (made || y->out != L_full) && in[k] != L_sum)
            c->everywhere[v] = true;
    }
    const bool local = is_local(c, x, y);
    for (uint32_t k = 0; k < x->n_out; k++) {
        c->have[x->out + k] = layout_bit(y->out);
        c->everywhere[x->out + k] = local;
    }
}

/* Records which whole values node x needs, and on which devices. */
static void add_demand(splitter *c, const nnc_node *x, const choice *y, int8_t *in)
{
    uint8_t own = 0;
    for (uint32_t k = 0; k < x->n_out; k++)
        own |= c->demand[x->out + k];
    split_layouts(c, x, y, in);
    for (int k = 0; k < x->n_in; k++) {
        const nnc_ref v = x->in[k];
        const nnc_node *d = nnc_def(c->s, v);
        const bool whole_here = c->choice[d - c->s->node].out == L_full;
        if (y->out == L_full) /* as demanded by its results' consumers */
            c->demand[v] |= own && c->local[x - c->s->node] ? own : own ? DEMAND_first : 0;
        else if (in[k] == L_full)
            c->demand[v] |= DEMAND_all;
        else if (in[k] == L_sum && y->inner) /* a bias */
            c->demand[v] |= DEMAND_first;
        else if (whole_here) /* parts of it */
            c->demand[v] |= c->everywhere[v] ? DEMAND_all : DEMAND_first;
    }
}

static void reset(splitter *c)
{
    const size_t n = c->s->n_value;
    memset(c->have, 0, n * sizeof *c->have);
    memset(c->everywhere, 0, n * sizeof *c->everywhere);
    memset(c->gathered, 0, n * sizeof *c->gathered);
    memset(c->demand, 0, n * sizeof *c->demand);
    c->moved = 0;
}

int8_t *split_operand_forms(const splitter *c)
{
    int most = 1;
    for (uint32_t i = 0; i < c->s->n_node; i++)
        most = c->s->node[i].n_in > most ? c->s->node[i].n_in : most;
    return ARENA_NEW(c->a, int8_t, most + 1);
}

nnc_status split_decide(splitter *c)
{
    const nnc_graph *s = c->s;
    int8_t *in = split_operand_forms(c);
    NNC_NEED(in, c->sink);
    reset(c);
    for (uint32_t i = 0; i < s->n_node; i++) {
        const nnc_node *x = &s->node[i];
        c->choice[i] = (choice){.out = L_full, .axis = L_full};
        if (x->n_in && !c->fixed[x->out])
            NNC_TRY(decide(c, i, in));
        apply(c, x, &c->choice[i], in);
    }
    for (uint32_t i = 0; i < s->n_node; i++) { /* values that later nodes need everywhere */
        const nnc_node *x = &s->node[i];
        c->local[i] = is_local(c, x, &c->choice[i]);
        for (uint32_t k = 0; k < x->n_out; k++)
            c->everywhere[x->out + k] |= c->local[i];
    }
    for (uint32_t i = 0; i < s->n_output; i++) {
        c->demand[s->output[i]] |= DEMAND_first;
        c->gathered[s->output[i]] |= !c->fixed[s->output[i]] && !has(c, s->output[i], L_full);
    }
    for (uint32_t i = s->n_node; i-- > 0;)
        add_demand(c, &s->node[i], &c->choice[i], in);
    return NNC_OK;
}
