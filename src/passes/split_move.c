/* passes/split_move.c -- changes the layouts of values: collectives, slices and concats, between which the plan copies. Weights are read
 * as the parts that are needed. */
#include "passes/split.h"
#include <string.h>

static nnc_ref failed(splitter *c, nnc_status st)
{
    c->g->status = c->g->status ? c->g->status : st;
    return NNC_NONE;
}

nnc_ref *split_slots(splitter *c, nnc_ref v, int layout)
{
    nnc_ref **at = &c->form[(size_t)v * LAYOUTS + (size_t)(layout + 2)];
    if (!*at && (*at = ARENA_NEW(c->a, nnc_ref, c->n)))
        memset(*at, 0xff, (size_t)c->n * sizeof **at);
    if (!*at)
        failed(c, nnc_nomem(c->sink));
    return *at;
}

static nnc_ref *made(const splitter *c, nnc_ref v, int layout)
{
    return c->form[(size_t)v * LAYOUTS + (size_t)(layout + 2)];
}

void split_sends(splitter *c, split_sent how, int64_t bytes)
{
    c->sent[how] = nnc_add_sat(c->sent[how], bytes);
    c->cost.bytes = nnc_add_sat(c->cost.bytes, bytes);
    if (how == SENT_halo)
        c->cost.halo = nnc_add_sat(c->cost.halo, bytes);
    if (how >= SENT_allgather && how < SENT_sum)
        c->cost.collective = nnc_add_sat(c->cost.collective, bytes);
}

static int64_t part_bytes(const splitter *c, nnc_ref r)
{
    return r == NNC_NONE ? 0 : nnc_type_bytes(nnc_typeof(c->g, r));
}

static nnc_ref slice_on(splitter *c, nnc_ref x, int axis, int64_t from, int64_t to, int device)
{
    if (x == NNC_NONE || (from == 0 && to == nnc_typeof(c->g, x)->dim[axis]))
        return x;
    c->g->device = (int16_t)device;
    return nnc_cut(c->g, x, axis, from, to);
}

static nnc_ref concat(splitter *c, int n, const nnc_ref *x, int axis, int device)
{
    c->g->device = (int16_t)device;
    return nnc_concat(c->g, n, x, axis);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Part of a weight: each device loads its own. Trained weights that are read in several ways stay whole, as do running statistics, which
 * training computes whole. */
static nnc_ref param_range(
    splitter *c, const nnc_node *x, int axis, int64_t from, int64_t to, int d)
{
    nnc_weight w = *x->weight;
    nnc_type t = *nnc_typeof(c->s, x->out);
    if ((c->trains && !x->frozen && (c->uses[x->out] > 1 || c->statistic[x->out])) ||
        !nnc_weight_slice(&w, &t, axis, from, to))
        return NNC_NONE;
    const char *origin = c->g->origin;
    c->g->device = (int16_t)d;
    c->g->origin = x->origin;
    const nnc_ref r = nnc_param(c->g, &t, &w);
    c->g->origin = origin;
    if (r == NNC_NONE)
        return r;
    const char *name = c->s->value[x->out].name;
    name = name ? nnc_arena_printf(c->a, "%s.part%d", name, d) : NULL;
    nnc_def(c->g, r)->frozen = x->frozen;
    if (name)
        nnc_set_name(c->g, r, name);
    return r;
}

static nnc_ref iota_range(splitter *c, const nnc_node *x, int axis, int64_t from, int64_t to, int d)
{
    nnc_type t = *nnc_typeof(c->s, x->out);
    t.dim[axis] = to - from;
    c->g->device = (int16_t)d;
    const nnc_ref r = nnc_build_typed(c->g, OP_iota, 0, NULL, x->n_attr, x->attr, &t);
    if (!from || axis != nnc_attr_int(x, AT_dim, 0) || r == NNC_NONE)
        return r;
    return nnc_build2(c->g, OP_add, r, nnc_scalar(c->g, t.dtype, (double)from));
}

/* Part of an op whose operands' parts have the result's indices. NNC_NONE without an error: another kind of op. */
static nnc_ref computed_range(
    splitter *c, const nnc_node *x, int axis, int64_t from, int64_t to, int d)
{
    const nnc_class cls = nnc_op_class(x->op);
    int8_t axes[4];
    nnc_ref in[4];
    const bool same = nnc_op_is_ewise(x->op) || x->op == OP_transpose;
    if (cls == CL_leaf || !same || x->n_in > 4 || !split_axes(c->s, x, axis, 1, axes))
        return NNC_NONE;
    for (int k = 0; k < x->n_in; k++) {
        in[k] = axes[k] >= 0 ? split_range(c, x->in[k], axes[k], from, to, d)
                             : split_form(c, x->in[k], L_full)[d];
        if (in[k] == NNC_NONE)
            return failed(c, NNC_E_BUG);
    }
    c->g->device = (int16_t)d;
    return nnc_build(c->g, x->op, x->n_in, in, x->n_attr, x->attr);
}

/* Indices from..to of weight v, or of a value computed only from weights. */
static nnc_ref fixed_range(splitter *c, nnc_ref v, int axis, int64_t from, int64_t to, int d)
{
    const nnc_node *x = nnc_def(c->s, v);
    const int64_t *start, *axes, *step;
    nnc_ref r = NNC_NONE;
    if (from == 0 && to == nnc_typeof(c->s, v)->dim[axis])
        return split_form(c, v, L_full) ? made(c, v, L_full)[d] : NNC_NONE;
    if (x->op == OP_param)
        r = param_range(c, x, axis, from, to, d);
    else if (x->op == OP_iota)
        r = iota_range(c, x, axis, from, to, d);
    else if (x->op == OP_slice && nnc_attr_ints(x, AT_axes, &axes) == 1 && axes[0] == axis &&
             !(nnc_attr_ints(x, AT_steps, &step) && step[0] != 1) &&
             nnc_attr_ints(x, AT_starts, &start) == 1)
        r = split_range(c, x->in[0], axis, start[0] + from, start[0] + to, d);
    else
        r = computed_range(c, x, axis, from, to, d);
    if (r != NNC_NONE || c->g->status)
        return r;
    const nnc_ref *all = split_form(c, v, L_full);
    if (all && c->statistic[v]) /* a slice of it hides what it is: it is not trained */
        nnc_def(c->g, all[0])->frozen = true;
    const bool own = all && (!c->trains || all[d] != all[0]); /* else it stays on device 0 */
    return all ? slice_on(c, all[d], axis, from, to, own ? d : 0) : NNC_NONE;
}

/* Does each device train its own copy of weight v, since all of them read it whole? The copies start equal and receive the sum of all
 * devices' gradients (train/optimizer.c). Only these sums are sent, once a step. */
static bool is_copied(const splitter *c, nnc_ref v)
{
    const nnc_node *x = nnc_def(c->s, v);
    return c->trains && x->op == OP_param && !x->frozen && !c->statistic[v] &&
           nnc_is_float(nnc_typeof(c->s, v)->dtype) && c->demand[v] & DEMAND_all &&
           c->n <= NNC_SPLIT_COPIES;
}

/* Operands of x, weights or values computed from them, as device d reads them; *differ: device 0 reads others. */
static bool fixed_operands(splitter *c, const nnc_node *x, int d, nnc_ref *in, bool *differ)
{
    for (int k = 0; k < x->n_in; k++) {
        const nnc_ref *all = split_form(c, x->in[k], L_full);
        if (!all)
            return false;
        in[k] = all[d];
        *differ = *differ || all[d] != all[0];
    }
    return true;
}

/* Weight v, or a value computed only from weights, for device d. */
static nnc_ref fixed_copy(splitter *c, nnc_ref v, const nnc_ref *in, int d, bool copies)
{
    const nnc_node *x = nnc_def(c->s, v);
    const nnc_ref r = nnc_copy_node(c->g, c->s, x, in);
    if (r == NNC_NONE)
        return r;
    if (x->op == OP_param)
        nnc_def(c->g, r)->frozen = x->frozen;
    if (copies)
        nnc_def(c->g, r)->device = (int16_t)d;
    for (uint32_t k = 0; k < x->n_out && d; k++) {
        const char *name = c->s->value[x->out + k].name;
        if (name)
            nnc_set_name(c->g, r + k, nnc_arena_printf(c->a, "%s.device%d", name, d));
    }
    return r;
}

/* The whole of v, once for all devices, since the plan loads weights where they are read. Each device gets a copy of weights that it
 * trains. */
static const nnc_ref *fixed_whole(splitter *c, nnc_ref v)
{
    const nnc_node *x = nnc_def(c->s, v);
    nnc_ref *in = ARENA_NEW(c->a, nnc_ref, x->n_in + 1);
    bool copies = is_copied(c, v);
    if (!in)
        return failed(c, nnc_nomem(c->sink)), NULL;
    for (int d = c->n; d-- > 0;)
        if (!fixed_operands(c, x, d, in, &copies))
            return NULL;
    nnc_ref r = NNC_NONE;
    for (int d = 0; d < c->n; d++) {
        if (d == 0 || copies) {
            if (!fixed_operands(c, x, d, in, &copies) ||
                (r = fixed_copy(c, v, in, d, copies)) == NNC_NONE)
                return NULL;
        }
        for (uint32_t k = 0; k < x->n_out; k++) {
            nnc_ref *slot = split_slots(c, x->out + k, L_full);
            if (slot)
                slot[d] = r + k;
        }
    }
    return made(c, v, L_full);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int divided(const splitter *c, nnc_ref v)
{
    for (int a = 0; a < NNC_MAX_RANK; a++)
        if (made(c, v, a))
            return a;
    return -1;
}

/* Indices from..to of v, which is divided along `from_axis`. The pieces of other devices are slices there, sent to d. */
static nnc_ref gather_range(
    splitter *c, nnc_ref v, int from_axis, int axis, int64_t from, int64_t to, int d)
{
    const nnc_ref *part = made(c, v, from_axis);
    const int64_t extent = nnc_typeof(c->s, v)->dim[axis];
    nnc_ref *piece = ARENA_NEW(c->a, nnc_ref, c->n);
    int64_t sent = 0;
    int n = 0;
    if (!piece)
        return failed(c, nnc_nomem(c->sink));
    for (int e = 0; e < c->n; e++) {
        const int64_t first = axis == from_axis ? split_cut(extent, c->n, e) : 0,
                      end = axis == from_axis ? split_cut(extent, c->n, e + 1) : extent;
        const int64_t lo = nnc_max64(from, first), hi = nnc_min64(to, end);
        if (lo >= hi)
            continue;
        const nnc_ref r = slice_on(c, part[e], axis, lo - first, hi - first, e);
        sent += e == d ? 0 : part_bytes(c, r);
        piece[n++] = r;
    }
    split_sends(c, axis == from_axis ? SENT_halo : SENT_exchange, sent);
    return concat(c, n, piece, from_axis, d);
}

nnc_ref split_range(splitter *c, nnc_ref v, int axis, int64_t from, int64_t to, int d)
{
    const nnc_ref *all = c->fixed[v] ? NULL : made(c, v, L_full), *part;
    const int a = divided(c, v);
    if (c->fixed[v])
        return fixed_range(c, v, axis, from, to, d);
    if ((part = made(c, v, axis)) && from == split_cut(nnc_typeof(c->s, v)->dim[axis], c->n, d) &&
        to == split_cut(nnc_typeof(c->s, v)->dim[axis], c->n, d + 1))
        return part[d];
    if (all && all[d] != NNC_NONE && nnc_home(c->g, all[d]) == d) /* on this device already */
        return slice_on(c, all[d], axis, from, to, d);
    if (!part && all) {
        const nnc_ref r = slice_on(c, all[0], axis, from, to, 0);
        split_sends(c, SENT_scatter, d ? part_bytes(c, r) : 0);
        return r;
    }
    if (a >= 0)
        return gather_range(c, v, part ? axis : a, axis, from, to, d);
    return split_form(c, v, L_full) ? split_range(c, v, axis, from, to, d) : NNC_NONE;
}

/* Builds a collective; participants' values are its consecutive results. */
static void collective(splitter *c, nnc_op op, const nnc_ref *part, int axis, nnc_ref *out)
{
    const nnc_attr along = nnc_ai(AT_axis, axis);
    c->g->device = -1;
    const nnc_ref r = nnc_build(c->g, op, c->n, part, axis < 0 ? 0 : 1, &along);
    for (int d = 0; d < c->n; d++)
        out[d] = r == NNC_NONE ? r : r + (nnc_ref)d;
}

/* Sum of the parts on device 0, in the order of an allreduce. */
static nnc_ref sum_here(splitter *c, const nnc_ref *part)
{
    nnc_ref r = part[0];
    c->g->device = 0;
    for (int d = 1; d < c->n; d++)
        r = nnc_build2(c->g, OP_add, r, part[d]);
    return r;
}

/* Does each device compute its own part? A slice for another device is computed where it is cut. */
static bool at_home(const splitter *c, const nnc_ref *part)
{
    for (int d = 0; d < c->n; d++)
        if (part[d] == NNC_NONE || nnc_home(c->g, part[d]) != d)
            return false;
    return true;
}

static void make_whole(splitter *c, nnc_ref v, nnc_ref *out)
{
    const bool all = (c->demand[v] & DEMAND_all) != 0;
    const int64_t bytes = value_bytes(c, v), sent = nnc_mul_sat(c->n - 1, bytes);
    const int a = divided(c, v);
    const nnc_ref *part = made(c, v, a >= 0 ? a : L_sum);
    if (a < 0 && all) {
        collective(c, OP_allreduce, part, -1, out);
        split_sends(c, SENT_allreduce, nnc_mul_sat(2, sent));
    } else if (a < 0) {
        out[0] = sum_here(c, part);
        split_sends(c, SENT_sum, sent);
    } else if (all && (nnc_typeof(c->s, v)->dim[a] % c->n == 0 || !c->trains) && at_home(c, part)) {
        collective(c, OP_allgather, part, a, out);
        split_sends(c, SENT_allgather, sent);
    } else {
        for (int d = 0; d < (all ? c->n : 1); d++)
            out[d] = concat(c, c->n, part, a, d);
        split_sends(c, SENT_gather, all ? sent : bytes - part_bytes(c, part[0]));
    }
    for (int d = 1; d < c->n && !all; d++)
        out[d] = out[0];
}

static void make_parts(splitter *c, nnc_ref v, int axis, nnc_ref *out)
{
    const int64_t extent = nnc_typeof(c->s, v)->dim[axis];
    if (!c->fixed[v] && !made(c, v, L_full) && divided(c, v) < 0 &&
        nnc_typeof(c->s, v)->dim[axis] % c->n == 0) {
        collective(c, OP_reduce_scatter, made(c, v, L_sum), axis, out);
        split_sends(c, SENT_reduce_scatter, nnc_mul_sat(c->n - 1, value_bytes(c, v)));
        return;
    }
    for (int d = 0; d < c->n; d++)
        out[d] =
            split_range(c, v, axis, split_cut(extent, c->n, d), split_cut(extent, c->n, d + 1), d);
}

const nnc_ref *split_form(splitter *c, nnc_ref v, int layout)
{
    const nnc_ref *have = made(c, v, layout);
    if (have)
        return have;
    if (layout == L_full && c->fixed[v])
        return fixed_whole(c, v);
    if (!c->fixed[v] && !made(c, v, L_full) && !made(c, v, L_sum) && divided(c, v) < 0)
        return failed(c, nnc_fail0(c->sink, NNC_E_BUG, "split: a value is read before it is made")),
               NULL;
    nnc_ref *out = ARENA_NEW(c->a, nnc_ref, c->n); /* v gets the form once it is complete */
    if (!out)
        return failed(c, nnc_nomem(c->sink)), NULL;
    if (layout == L_full)
        make_whole(c, v, out);
    else
        make_parts(c, v, layout, out);
    for (int d = 0; d < c->n; d++)
        if (out[d] == NNC_NONE)
            return failed(c, NNC_E_BUG), NULL;
    c->form[(size_t)v * LAYOUTS + (size_t)(layout + 2)] = out;
    return out;
}
