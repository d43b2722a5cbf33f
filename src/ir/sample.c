/* ir/sample.c -- a graph that computes only some rows of a batch, for references that would be too large otherwise.
 *
 * Dimension 0 of some inputs is the batch of N rows. A value *carries* it with multiplier m if its dimension 0 has extent N m and each
 * group of m belongs to one row. m > 1 occurs after a reshape such as [N,S,D] -> [N S,D]. The rules below say per op whether the result
 * carries it, or which operand prevents that because rows would mix. Then the inputs that this operand depends on are treated as whole, and
 * the analysis restarts: at most once per input. */
#include "ir/ir.h"

#include <string.h>

enum { CLEAN = -1 }; /* no operand prevents carrying */

typedef struct sampler {
    nnc_graph *f; /* the graph with fused bodies inlined */
    nnc_arena tmp;
    int64_t n; /* rows of the whole batch */
    int64_t rows; /* to keep */
    int64_t *mult; /* per value: 0 = whole */
    bool *no_carry; /* per value: an input that must stay whole */
} sampler;

/* ---- rules ---- */

static const nnc_type *type_in(const sampler *s, const nnc_node *n, int i)
{
    return nnc_typeof(s->f, n->in[i]);
}
static int64_t carried(const sampler *s, const nnc_node *n, int i)
{
    return s->mult[n->in[i]];
}

/* The first carrying operand from `first` on, or CLEAN. */
static int any_carried(const sampler *s, const nnc_node *n, int first)
{
    for (int i = first; i < n->n_in; i++)
        if (carried(s, n, i))
            return i;
    return CLEAN;
}

static bool has_axis(const nnc_node *n, nnc_akey key, int64_t axis)
{
    const int64_t *v = NULL;
    for (int k = nnc_attr_ints(n, key, &v); k > 0; k--)
        if (v[k - 1] == axis)
            return true;
    return false;
}

/* Rule for operands that broadcast (elementwise, concat, leading dimensions of matmul): dimension 0 of a carrying operand must be dimension
 * 0 of the result. */
static int aligned(const sampler *s, const nnc_node *n, int64_t *mult)
{
    int rank = nnc_typeof(s->f, n->out)->rank;
    for (int i = 0; i < n->n_in; i++)
        if (carried(s, n, i)) {
            if (type_in(s, n, i)->rank != rank)
                return i;
            *mult = carried(s, n, i);
        }
    return CLEAN;
}

/* True when dimension 0 is sliced in full or not at all. */
static bool slice_keeps(const sampler *s, const nnc_node *n)
{
    const int64_t *axes = NULL, *starts = NULL, *ends = NULL, *steps = NULL;
    int na = nnc_attr_ints(n, AT_axes, &axes), ns = nnc_attr_ints(n, AT_steps, &steps);
    nnc_attr_ints(n, AT_starts, &starts);
    nnc_attr_ints(n, AT_ends, &ends);
    for (int k = 0; k < na; k++)
        if (axes[k] == 0)
            return starts[k] == 0 && ends[k] == type_in(s, n, 0)->dim[0] && (!ns || steps[k] == 1);
    return true;
}

static int rule_move(const sampler *s, const nnc_node *n, int64_t *mult)
{
    const nnc_type *x = type_in(s, n, 0), *y = nnc_typeof(s->f, n->out);
    const int64_t *v = NULL;
    bool ok = true;
    *mult = carried(s, n, 0);
    switch (n->op) {
    case OP_reshape: /* the batch is outermost: any split at a multiple of it keeps rows */
        ok = y->rank > 0 && y->dim[0] % s->n == 0;
        *mult = ok ? y->dim[0] / s->n : 0;
        break;
    case OP_transpose:
        nnc_attr_ints(n, AT_perm, &v);
        ok = v[0] == 0;
        break;
    case OP_broadcast: ok = y->rank == x->rank; break;
    case OP_slice: ok = slice_keeps(s, n); break;
    case OP_pad:
        nnc_attr_ints(n, AT_pads, &v);
        ok = v[0] == 0 && v[x->rank] == 0;
        break;
    case OP_flip: ok = !has_axis(n, AT_axes, 0); break;
    case OP_concat:
        if (nnc_attr_int(n, AT_axis, 0) == 0)
            return any_carried(s, n, 0);
        return aligned(s, n, mult);
    case OP_split: ok = nnc_attr_int(n, AT_axis, 0) != 0; break;
    case OP_gather: { /* rows of a batch at one index, or a table at a batch of indices */
        int64_t axis = nnc_attr_int(n, AT_axis, 0);
        if (*mult)
            ok = axis != 0 && !carried(s, n, 1);
        else if (axis != 0)
            return 1;
        else
            *mult = carried(s, n, 1);
        break;
    }
    case OP_gather_elements:
    case OP_gather_nd: return any_carried(s, n, 0);
    default: break;
    }
    return ok ? CLEAN : 0;
}

static int rule_contract(const sampler *s, const nnc_node *n, int64_t *mult)
{
    const nnc_type *a = type_in(s, n, 0), *b = type_in(s, n, 1);
    if (n->op == OP_matmul && nnc_typeof(s->f, n->out)->rank > 2)
        return aligned(s, n, mult);
    if (n->op == OP_matmul && b->rank == 2 && carried(s, n, 0) &&
        nnc_attr_int(n, AT_transpose_a, 0))
        return 0;
    if ((n->op == OP_linear && a->rank == 1) || n->op == OP_conv_wgrad)
        return any_carried(s, n, 0);
    *mult = carried(s, n, 0);
    return any_carried(s, n, 1);
}

/* The rule of node n: *mult of its results; returns the operand that prevents carrying, or CLEAN. */
static int rule(const sampler *s, const nnc_node *n, int64_t *mult)
{
    *mult = 0;
    if (any_carried(s, n, 0) == CLEAN)
        return CLEAN;
    switch (nnc_op_class(n->op)) {
    case CL_ewise:
    case CL_ecomp: return aligned(s, n, mult);
    case CL_reduce: {
        bool arg = n->op == OP_argmax || n->op == OP_argmin;
        if (arg ? nnc_attr_int(n, AT_axis, 0) == 0 : has_axis(n, AT_axes, 0))
            return 0;
        break;
    }
    case CL_move: return rule_move(s, n, mult);
    case CL_contract: return rule_contract(s, n, mult);
    case CL_comp: {
        int64_t last = type_in(s, n, 0)->rank - 1; /* default axis */
        const char *attrs = nnc_ops[n->op].attrs;
        if (strstr(attrs, "axis") && nnc_attr_int(n, AT_axis, last) == 0)
            return any_carried(s, n, 0);
        break;
    }
    case CL_window: break;
    default: return any_carried(s, n, 0);
    }
    *mult = carried(s, n, 0);
    return any_carried(s, n, 1); /* weights, scales: never a batch */
}

/* Marks the inputs that r depends on as whole. */
static void blame(sampler *s, nnc_ref r, bool *hit)
{
    memset(hit, 0, s->f->n_value * sizeof *hit);
    hit[r] = true;
    for (uint32_t i = s->f->n_node; i-- > 0;) {
        const nnc_node *n = &s->f->node[i];
        bool any = false;
        for (int k = 0; k < n->n_out; k++)
            any |= hit[n->out + (nnc_ref)k];
        if (any && n->op == OP_input)
            s->no_carry[n->out] = true;
        for (int k = 0; any && k < n->n_in; k++)
            hit[n->in[k]] |= s->mult[n->in[k]] > 0;
    }
}

/* Fills mult for the batch of extent s->n. Terminates: every restart makes one more input whole. */
static void analyse(sampler *s, bool *hit)
{
    const nnc_graph *f = s->f;
    memset(s->no_carry, 0, f->n_value * sizeof *s->no_carry);
    for (bool again = true; again;) {
        again = false;
        memset(s->mult, 0, f->n_value * sizeof *s->mult);
        for (uint32_t i = 0; i < f->n_node && !again; i++) {
            const nnc_node *n = &f->node[i];
            const nnc_type *t = nnc_typeof(f, n->out);
            int64_t m = 0;
            int bad = CLEAN;
            if (n->op == OP_input)
                m = t->rank > 0 && t->dim[0] == s->n && !s->no_carry[n->out];
            else
                bad = rule(s, n, &m);
            for (int k = 0; k < n->n_out; k++)
                s->mult[n->out + (nnc_ref)k] = m;
            if (bad != CLEAN) {
                blame(s, n->in[bad], hit);
                again = true;
            }
        }
    }
}

/* ---- the smaller graph ---- */

/* The first rows of a whole operand that is combined with the batch in dimension 0. */
static nnc_ref first_rows(sampler *s, nnc_graph *out, const nnc_node *n, int i, nnc_ref v)
{
    const nnc_type *t = type_in(s, n, i), *y = nnc_typeof(s->f, n->out);
    int64_t m = s->mult[n->out];
    nnc_op op = n->op;
    bool meets = nnc_op_is_ewise(op) || op == OP_concat || (op == OP_matmul && y->rank > 2);
    if (!meets || !m || carried(s, n, i) || t->rank != y->rank || t->dim[0] != s->n * m)
        return v;
    return nnc_cut(out, v, 0, 0, s->rows * m);
}

/* Adapts attributes that refer to dimension 0 to the number of rows. */
static void resize_attrs(const sampler *s, const nnc_node *n, nnc_attr *attr, int64_t *ints)
{
    int64_t m = s->mult[n->out];
    for (int k = 0; m && k < n->n_attr; k++) {
        nnc_attr *a = &attr[k];
        bool shape = a->key == AT_shape, ends = a->key == AT_ends && n->op == OP_slice;
        const int64_t *axes = NULL;
        if (ends)
            nnc_attr_ints(n, AT_axes, &axes);
        if (!shape && !(ends && axes[0] == 0))
            continue;
        memcpy(ints, a->ints, (size_t)a->n * sizeof *ints);
        ints[0] = s->rows * m;
        a->ints = ints;
    }
}

static nnc_ref copy_row_node(sampler *s, nnc_graph *out, const nnc_node *n, const nnc_ref *map)
{
    if (n->op == OP_input && s->mult[n->out]) {
        nnc_type t = *nnc_typeof(s->f, n->out);
        t.dim[0] = s->rows;
        return nnc_input(out, s->f->value[n->out].name, &t);
    }
    nnc_ref *in = ARENA_NEW(&s->tmp, nnc_ref, n->n_in + 1);
    nnc_attr *attr = ARENA_NEW(&s->tmp, nnc_attr, n->n_attr + 1);
    if (!in || !attr) {
        out->status = nnc_nomem(out->sink);
        return NNC_NONE;
    }
    out->origin = n->origin;
    for (int k = 0; k < n->n_in; k++)
        in[k] = first_rows(s, out, n, k, map[n->in[k]]);
    int64_t ints[NNC_MAX_RANK];
    if (n->n_attr)
        memcpy(attr, n->attr, n->n_attr * sizeof *attr);
    resize_attrs(s, n, attr, ints);
    nnc_node copy = *n;
    copy.attr = attr;
    return out->status == NNC_OK ? nnc_copy_node(out, s->f, &copy, in) : NNC_NONE;
}

static nnc_graph *rebuild(sampler *s, nnc_sink *sink)
{
    nnc_graph *out = nnc_graph_create(s->f->name, sink);
    nnc_ref *map = ARENA_NEW(&s->tmp, nnc_ref, s->f->n_value + 1);
    if (!out || !map) {
        nnc_graph_destroy(out);
        return NULL;
    }
    for (uint32_t i = 0; i < s->f->n_node && out->status == NNC_OK; i++) {
        const nnc_node *n = &s->f->node[i];
        nnc_ref r = copy_row_node(s, out, n, map);
        for (int k = 0; k < n->n_out; k++)
            map[n->out + (nnc_ref)k] = r + (nnc_ref)k;
    }
    out->origin = NULL;
    for (uint32_t o = 0; o < s->f->n_output && out->status == NNC_OK; o++)
        nnc_output(out, map[s->f->output[o]], s->f->output_name[o]);
    return out;
}

/* True when the batch reaches an output; sets which inputs and outputs carry it. */
static bool describe(const sampler *s, bool *inputs, bool *outputs)
{
    bool any = false;
    int at = 0;
    for (uint32_t i = 0; i < s->f->n_node; i++)
        if (s->f->node[i].op == OP_input)
            inputs[at++] = s->mult[s->f->node[i].out] > 0;
    for (uint32_t o = 0; o < s->f->n_output; o++)
        any |= outputs[o] = s->mult[s->f->output[o]] > 0;
    return any;
}

static nnc_status sample(
    sampler *s, const nnc_graph *g, nnc_graph **out, bool *inputs, bool *outputs, nnc_sink *sink)
{
    s->f = nnc_graph_flatten(g, false, sink);
    NNC_NEED(s->f, sink);
    int64_t wanted = s->rows;
    s->mult = ARENA_NEW(&s->tmp, int64_t, s->f->n_value + 1);
    s->no_carry = ARENA_NEW(&s->tmp, bool, s->f->n_value + 1);
    bool *hit = ARENA_NEW(&s->tmp, bool, s->f->n_value + 1);
    NNC_NEED(s->mult && s->no_carry && hit, sink);
    for (uint32_t i = 0; i < s->f->n_node;
         i++) { /* each input's dimension 0 is tried as the batch */
        const nnc_node *n = &s->f->node[i];
        const nnc_type *t = nnc_typeof(s->f, n->out);
        if (n->op != OP_input || t->rank == 0 || t->dim[0] < 2 || t->dim[0] == s->n)
            continue;
        s->n = t->dim[0];
        s->rows = nnc_min64(wanted, s->n);
        analyse(s, hit);
        if (!describe(s, inputs, outputs))
            continue;
        *out = rebuild(s, sink);
        NNC_NEED(*out, sink);
        nnc_status status = (*out)->status;
        if (status != NNC_OK) {
            nnc_graph_destroy(*out);
            *out = NULL;
        }
        return status;
    }
    return NNC_OK;
}

nnc_status nnc_graph_sample(const nnc_graph *g, int64_t rows, nnc_graph **out, bool *carried_inputs,
    bool *carried_outputs, nnc_sink *sink)
{
    *out = NULL;
    if (nnc_graph_is_step(g)) /* new values and the loss depend on all rows */
        return NNC_OK;
    sampler s = {.rows = rows < 1 ? 1 : rows};
    nnc_status status = sample(&s, g, out, carried_inputs, carried_outputs, sink);
    nnc_graph_destroy(s.f);
    nnc_arena_deinit(&s.tmp);
    return status;
}
