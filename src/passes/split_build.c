/* passes/split_build.c -- the graph of several devices, from the choice of each node. */
#include "passes/split.h"
#include <string.h>

/* ---- remarks --------------------------------------------------------------------------------- */

static const char *rule_of(const splitter *c, const nnc_node *x, const choice *y)
{
    const int rank = nnc_typeof(c->s, x->out)->rank;
    const bool conv = x->op == OP_conv || x->op == OP_conv_transpose;
    if (y->inner)
        return conv ? "input channels" : "rows";
    if (nnc_op_class(x->op) == CL_window && y->out == 1)
        return "channels";
    if (y->out == split_feature_axis(c->s, x))
        return conv ? "channels" : "columns";
    if (y->out == 0)
        return "batch";
    return rank > 3 && y->out == rank - 2 ? "height" : y->out == rank - 1 ? "width" : "heads";
}

static void put_share(const splitter *c, nnc_text *t, const nnc_node *x, const choice *y)
{
    const nnc_type *type = nnc_typeof(c->s, y->inner ? x->in[0] : x->out);
    const long long extent = (long long)type->dim[y->axis];
    const long long least = extent / c->n, most = (extent + c->n - 1) / c->n;
    nnc_printf(t, "each of %d devices has %lld", c->n, least);
    if (most > least)
        nnc_printf(t, " or %lld", most);
    nnc_printf(t, " of %lld", extent);
}

/* Prints the rows that windows read of neighbours' parts, beside the whole operand, which a split by channels would gather. */
static void put_halo(const splitter *c, nnc_text *t, const nnc_node *x, const choice *y)
{
    nnc_window w;
    if (!x->n_in || y->inner || y->out < 2 || !split_window(c->s, x, y->out, &w))
        return;
    const nnc_type *in = nnc_typeof(c->s, x->in[0]);
    const int64_t line = nnc_type_bytes(in) / in->dim[y->out], rows = nnc_max64(w.lo, w.hi);
    if (!rows)
        return;
    nnc_printf(t, "; halo of %lld row%s, ", (long long)rows, rows == 1 ? "" : "s");
    nnc_put_bytes(t, rows * line);
    nnc_puts(t, " per neighbour, where gathering all channels takes ");
    nnc_put_bytes(t, nnc_type_bytes(in));
}

static void put_sent(const splitter *c, nnc_text *t)
{
    static const char *const how[SENT__COUNT] = {"broadcast", "scatter", "halo", "exchange",
        "gather", "allgather", "allreduce", "reduce-scatter", "sum on device 0"};
    bool any = false;
    for (int k = 0; k < SENT__COUNT; k++) {
        if (!c->sent[k])
            continue;
        nnc_printf(t, "%s%s ", any ? ", " : "; sent: ", how[k]);
        nnc_put_bytes(t, c->sent[k]);
        any = true;
    }
}

static bool sends(const splitter *c)
{
    bool any = false;
    for (int k = 0; k < SENT__COUNT; k++)
        any = any || c->sent[k];
    return any;
}

static nnc_status add_remark(splitter *c, const nnc_node *x, const char *rule, nnc_text *why)
{
    nnc_remark m = {.pass = nnc_split_notes.name, .applied = true, .n_layers = 1, .rule = rule};
    put_sent(c, why);
    m.reason = nnc_arena_strdup(&c->remarks->arena, nnc_text_str(why));
    m.layer = ARENA_NEW(&c->remarks->arena, const char *, 1);
    NNC_NEED(m.reason && m.layer && !why->oom, c->sink);
    m.layer[0] = nnc_arena_strdup(&c->remarks->arena, x->origin ? x->origin : nnc_ops[x->op].name);
    NNC_NEED(m.layer[0] && nnc_remarks_add(c->remarks, &m), c->sink);
    return NNC_OK;
}

static nnc_status remark(splitter *c, const nnc_node *x, const choice *y)
{
    const nnc_class cls = nnc_op_class(x->op);
    const bool split = y->out != L_full && (cls == CL_contract || cls == CL_window);
    NNC_LOCAL(nnc_text) t = {0};
    const char *rule = y->out == L_full ? "whole" : "moved";
    c->cost.n_split += split;
    if (!c->remarks || (!split && !sends(c)))
        return NNC_OK;
    if (split) {
        rule = rule_of(c, x, y);
        put_share(c, &t, x, y);
        put_halo(c, &t, x, y);
    } else {
        nnc_printf(&t, "%s %s", nnc_ops[x->op].name,
            y->out == L_full ? "needs whole operands" : "needs them divided otherwise");
    }
    return add_remark(c, x, rule, &t);
}

/* An output is whole, on device 0. */
static nnc_status remark_output(splitter *c, nnc_ref v)
{
    NNC_LOCAL(nnc_text) t = {0};
    if (!c->remarks || !sends(c))
        return NNC_OK;
    nnc_puts(&t, "an output is whole, on device 0");
    return add_remark(c, nnc_def(c->s, v), "output", &t);
}

/* ---- one device's part of a node ------------------------------------------------------------- */

typedef struct part {
    const nnc_node *x;
    const choice *y;
    int d;
    int64_t from, to; /* of the result, along its axis */
    nnc_ref *in;
    nnc_attr *attr;
    int n_attr;
} part;

static nnc_attr *attr_of(part *p, nnc_akey key)
{
    for (int i = 0; i < p->n_attr; i++)
        if (p->attr[i].key == key)
            return &p->attr[i];
    return NULL;
}

/* attr[key][at] = v */
static bool set_number(splitter *c, part *p, nnc_akey key, int at, int64_t v)
{
    nnc_attr *a = attr_of(p, key);
    int64_t *ints = a ? nnc_arena_memdup(c->a, a->ints, (size_t)a->n * sizeof *ints) : NULL;
    if (!ints)
        return false;
    ints[at] = v;
    a->ints = ints;
    return true;
}

/* Sets the operand's part that the windows read, and its padding. */
static bool set_window(splitter *c, part *p)
{
    nnc_window w;
    const int axis = p->y->out, spatial = nnc_typeof(c->s, p->x->in[0])->rank - 2;
    int64_t from, to, lo, hi;
    if (p->y->inner || axis < 2 || !split_window(c->s, p->x, axis, &w))
        return true;
    if (!split_window_range(&w, p->from, p->to, &from, &to, &lo, &hi))
        return false;
    if (!attr_of(p, AT_pads)) {
        int64_t *none = ARENA_NEW(c->a, int64_t, 2 * spatial);
        if (!none)
            return false;
        p->attr[p->n_attr++] = nnc_av(AT_pads, 2 * spatial, none);
    }
    if (!set_number(c, p, AT_pads, axis - 2, lo) ||
        !set_number(c, p, AT_pads, axis - 2 + spatial, hi))
        return false;
    p->in[0] = split_range(c, p->x->in[0], axis, from, to, p->d);
    return p->in[0] != NNC_NONE;
}

/* Along the divided axis the padding replaces rounding up (ceil); the other dimensions keep it. */
static bool set_attrs(splitter *c, part *p)
{
    const int axis = p->y->out;
    nnc_attr *groups = attr_of(p, p->x->op == OP_groupnorm ? AT_num_groups : AT_groups);
    if (axis >= 0 && (p->x->op == OP_reshape || p->x->op == OP_broadcast) &&
        !set_number(c, p, AT_shape, axis, p->to - p->from))
        return false;
    if (axis == 1 && groups && groups->i > 1 && !p->y->inner)
        groups->i /= c->n;
    return set_window(c, p);
}

/* Means over the divided axis: sums of the parts, divided by the whole's count. */
static nnc_ref part_of_mean(splitter *c, const part *p)
{
    const nnc_type *x = nnc_typeof(c->s, p->x->in[0]), *y = nnc_typeof(c->s, p->x->out);
    const int64_t count = nnc_type_numel(x) / nnc_type_numel(y);
    int64_t axes[NNC_MAX_RANK];
    const int64_t *given = axes;
    int n = 0;
    bool keep = true;
    if (p->x->op == OP_reduce_mean) {
        n = nnc_attr_ints(p->x, AT_axes, &given);
        keep = nnc_attr_int(p->x, AT_keepdims, 1) != 0;
    } else {
        for (; n < x->rank - 2; n++)
            axes[n] = n + 2;
    }
    const nnc_ref sum = nnc_reduce(c->g, OP_reduce_sum, p->in[0], n, given, keep);
    return sum == NNC_NONE
               ? sum
               : nnc_build2(c->g, OP_div, sum, nnc_scalar(c->g, y->dtype, (double)count));
}

static nnc_ref build_part(splitter *c, part *p)
{
    const nnc_node *x = p->x;
    int n_in = x->n_in;
    p->attr = ARENA_NEW(c->a, nnc_attr, x->n_attr + 1);
    p->n_attr = x->n_attr;
    if (!p->attr)
        return c->g->status = nnc_nomem(c->sink), NNC_NONE;
    for (int i = 0; i < x->n_attr; i++)
        p->attr[i] = x->attr[i];
    if (!set_attrs(c, p))
        return NNC_NONE;
    c->g->device = (int16_t)p->d;
    if (p->y->inner && (x->op == OP_reduce_mean || x->op == OP_global_avgpool))
        return part_of_mean(c, p);
    if (p->y->inner && n_in > 2 && p->d) /* the bias is in the first part */
        n_in = 2;
    return nnc_build(c->g, x->op, n_in, p->in, p->n_attr, p->attr);
}

/* The whole value v on device d. Copies from device 0 are counted once. */
static nnc_ref whole_on(splitter *c, nnc_ref v, int d)
{
    const nnc_ref *all = split_form(c, v, L_full);
    if (!all)
        return NNC_NONE;
    if (d && !c->fixed[v] && all[d] == all[0] && !c->broadcast[v]) {
        c->broadcast[v] = true;
        split_sends(c, SENT_broadcast, nnc_mul_sat(c->n - 1, value_bytes(c, v)));
    }
    return all[d];
}

/* Gets operands of node x on device d, divided as in[k] says; for windows all but the first. */
static bool get_operands(splitter *c, part *p, const int8_t *in)
{
    nnc_window w;
    const bool window = !p->y->inner && p->y->out >= 2 && split_window(c->s, p->x, p->y->out, &w);
    for (int k = window; k < p->x->n_in; k++) {
        const nnc_ref v = p->x->in[k];
        const bool bias = p->y->inner && in[k] == L_sum;
        if (in[k] == L_full || bias) {
            p->in[k] = bias && p->d ? NNC_NONE : whole_on(c, v, p->d);
        } else {
            const nnc_ref *parts = split_form(c, v, in[k]);
            p->in[k] = parts ? parts[p->d] : NNC_NONE;
        }
        if (p->in[k] == NNC_NONE && !(bias && p->d))
            return false;
    }
    return true;
}

static nnc_status build_divided(splitter *c, const nnc_node *x, const choice *y, int8_t *in)
{
    part p = {.x = x, .y = y, .in = ARENA_NEW(c->a, nnc_ref, x->n_in + 1)};
    NNC_NEED(p.in, c->sink);
    split_layouts(c, x, y, in);
    for (p.d = 0; p.d < c->n; p.d++) {
        const int64_t extent = y->out >= 0 ? nnc_typeof(c->s, x->out)->dim[y->out] : 0;
        p.from = split_cut(extent, c->n, p.d);
        p.to = split_cut(extent, c->n, p.d + 1);
        c->g->origin = x->origin;
        c->g->loc = x->loc;
        const nnc_ref r = get_operands(c, &p, in) ? build_part(c, &p) : NNC_NONE;
        if (r == NNC_NONE)
            return c->g->status ? c->g->status
                                : nnc_fail0(c->sink, NNC_E_BUG, "split: a part of %s is missing",
                                      nnc_ops[x->op].name);
        for (uint32_t k = 0; k < x->n_out; k++) {
            nnc_ref *slot = split_slots(c, x->out + k, y->out);
            NNC_NEED(slot, c->sink);
            slot[p.d] = r + k;
        }
    }
    return remark(c, x, y);
}

/* Builds node x whole on device 0, or on the devices that need it. */
static nnc_status build_whole(splitter *c, const nnc_node *x, uint32_t i)
{
    uint8_t demand = 0;
    for (uint32_t k = 0; k < x->n_out; k++)
        demand |= c->demand[x->out + k];
    const bool all = x->op != OP_input && c->local[i] && demand & DEMAND_all;
    const int on = all ? c->n : 1;
    nnc_ref *in = ARENA_NEW(c->a, nnc_ref, x->n_in + 1);
    NNC_NEED(in, c->sink);
    c->g->origin = x->origin;
    c->g->loc = x->loc;
    for (int d = 0; d < on; d++) {
        for (int k = 0; k < x->n_in; k++)
            if ((in[k] = whole_on(c, x->in[k], d)) == NNC_NONE)
                return c->g->status ? c->g->status : NNC_E_BUG;
        const nnc_ref r = nnc_copy_node(c->g, c->s, x, in);
        if (r == NNC_NONE)
            return c->g->status;
        if (nnc_op_class(x->op) != CL_collective)
            nnc_def(c->g, r)->device = (int16_t)d;
        for (uint32_t k = 0; k < x->n_out; k++) {
            nnc_ref *slot = split_slots(c, x->out + k, L_full);
            NNC_NEED(slot, c->sink);
            for (int e = d; e < c->n; e++)
                slot[e] = d && e != d ? slot[e] : r + k;
        }
    }
    return remark(c, x, &c->choice[i]);
}

nnc_status split_build(splitter *c)
{
    const nnc_graph *s = c->s;
    int8_t *in = split_operand_forms(c);
    NNC_NEED(in, c->sink);
    for (uint32_t i = 0; i < s->n_node; i++) {
        const nnc_node *x = &s->node[i];
        memset(c->sent, 0, sizeof c->sent);
        if (c->fixed[x->out])
            continue;
        NNC_TRY(c->choice[i].out == L_full ? build_whole(c, x, i)
                                           : build_divided(c, x, &c->choice[i], in));
    }
    for (uint32_t i = 0; i < s->n_output; i++) {
        memset(c->sent, 0, sizeof c->sent);
        c->g->origin = nnc_def(s, s->output[i])->origin;
        const nnc_ref *all = split_form(c, s->output[i], L_full);
        if (!all)
            return c->g->status ? c->g->status : NNC_E_BUG;
        nnc_output(c->g, all[0], s->output_name ? s->output_name[i] : NULL);
        NNC_TRY(remark_output(c, s->output[i]));
    }
    return c->g->status;
}
