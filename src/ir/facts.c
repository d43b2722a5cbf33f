/* ir/facts.c -- facts about values and nodes: monotonic, NaN-keeping, constant, static, view. All answers are conservative: "no" may
 * mean "unknown". */
#include "ir/graph.h"

#include <math.h>
#include <string.h>

/* ---- constants ------------------------------------------------------------------------------- */

static bool is_splat(const void *p, int64_t n, int size)
{
    /* every element equals the one before: compares the data with itself, shifted */
    return n == 1 || !memcmp(p, (const char *)p + size, (size_t)(n - 1) * (size_t)size);
}

bool nnc_const_scalar(const nnc_graph *g, nnc_ref r, double *out)
{
    const nnc_node *n = nnc_def(g, r);
    while (n->op == OP_broadcast || n->op == OP_reshape)
        n = nnc_def(g, n->in[0]);
    if (n->op != OP_constant || n->weight->kind != NNC_W_inline)
        return false;
    const nnc_type *t = nnc_typeof(g, n->out);
    if (!is_splat(n->weight->data, nnc_type_numel(t), nnc_dtype_size(t->dtype)))
        return false;
    *out = nnc_get_f64(t->dtype, n->weight->data, 0);
    return true;
}

bool nnc_operand_repeats(const nnc_node *n, int i)
{
    for (int k = 0; k < i; k++)
        if (n->in[k] == n->in[i])
            return true;
    return false;
}

bool nnc_node_post(const nnc_node *n, nnc_post *out)
{
    static const uint8_t op[] = {
#define POST(name, op) OP_##op,
#include "base/post.def"
    };
    const nnc_attr *form = nnc_attr_find(n, AT_approximate);
    int k = n->op == OP_relu6 ? PO_clip : 0;
    if (n->op == OP_gelu)
        k = form && form->word && strcmp(form->word, "tanh") == 0 ? PO_gelu_tanh : PO_gelu_erf;
    while (k < PO__COUNT && op[k] != n->op && n->op != OP_relu6)
        k++;
    *out = (nnc_post){.kind = (uint8_t)k};
    return k < PO__COUNT;
}

bool nnc_is_depthwise(const nnc_graph *g, const nnc_node *n)
{
    return n->op == OP_conv && nnc_typeof(g, n->in[1])->dim[1] == 1 &&
           nnc_attr_int(n, AT_groups, 1) == nnc_typeof(g, n->in[0])->dim[1];
}

/* Whether n is a concat of one operand, or a fused node with one. Such a concat copies its operand to its place in another concat's
 * result, in each run, even if the operand is static. */
static bool is_copy_to_place(const nnc_node *n)
{
    bool copies = n->op == OP_concat && n->n_in == 1;
    for (uint32_t i = 0; n->op == OP_fused && i < n->body->n_node && !copies; i++)
        copies = is_copy_to_place(&n->body->node[i]);
    return copies;
}

bool nnc_may_be_static(const nnc_node *n)
{
    return n->op != OP_input && !n->state && !is_copy_to_place(n) &&
           nnc_op_class(n->op) != CL_collective;
}

bool *nnc_static_values(const nnc_graph *g, nnc_arena *a)
{
    bool *s = ARENA_NEW(a, bool, g->n_value + (size_t)1);
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        bool all = nnc_may_be_static(n);
        for (int k = 0; k < n->n_in && all; k++)
            all = s[n->in[k]];
        for (uint32_t k = 0; k < n->n_out; k++)
            s[n->out + k] = all;
    }
    return s;
}

bool nnc_param_count(const nnc_graph *g, int64_t *parameters, int64_t *statistics)
{
    NNC_FREED bool *read = nnc_calloc(g->n_value + (size_t)1, sizeof *read);
    NNC_FREED bool *other = nnc_calloc(g->n_value + (size_t)1, sizeof *other);
    *parameters = *statistics = 0;
    if (!read || !other)
        return false;
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            (nnc_reads_statistic(&g->node[i], k) ? read : other)[g->node[i].in[k]] = true;
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_ref r = g->node[i].out;
        if (g->node[i].op == OP_param)
            *(read[r] && !other[r] ? statistics : parameters) += nnc_type_numel(nnc_typeof(g, r));
    }
    return true;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static void range_depth(const nnc_graph *g, nnc_ref v, double *lo, double *hi, int depth)
{
    const nnc_node *n = nnc_def(g, v);
    double c, a, b;
    *lo = nnc_ops[n->op].lo;
    *hi = nnc_ops[n->op].hi;
    if (nnc_const_scalar(g, v, &c) && c == c) {
        *lo = *hi = c;
        return;
    }
    if (n->op == OP_clip) {
        *lo = nnc_attr_float(n, AT_lo, -INFINITY);
        *hi = fmax(*lo, nnc_attr_float(n, AT_hi, INFINITY));
        *lo = fmin(*lo, nnc_attr_float(n, AT_hi, INFINITY));
    }
    /* ops whose results are operand elements keep the operands' range */
    bool picks = (n->op != OP_pad) &&
                 (nnc_op_class(n->op) == CL_move || n->op == OP_maxpool || n->op == OP_reduce_max ||
                     n->op == OP_reduce_min || n->op == OP_identity || n->op == OP_dropout ||
                     n->op == OP_relu || n->op == OP_relu6);
    if (!picks || depth == 0 || n->n_in == 0 || n->n_in > 8)
        return;
    double plo = INFINITY, phi = -INFINITY;
    int count = nnc_index_operand(n) ? 1 : n->n_in;
    for (int k = 0; k < count; k++) {
        range_depth(g, n->in[k], &a, &b, depth - 1);
        plo = fmin(plo, a);
        phi = fmax(phi, b);
    }
    if (n->op == OP_relu || n->op == OP_relu6)
        plo = fmax(plo, 0), phi = fmax(phi, 0);
    *lo = fmax(*lo, plo);
    *hi = fmin(*hi, phi);
}

void nnc_value_range(const nnc_graph *g, nnc_ref v, double *lo, double *hi)
{
    range_depth(g, v, lo, hi, 6);
}

/* ---- order and NaN --------------------------------------------------------------------------- */

/* True when type b can represent every value of the integer (or bool) type a. Then conversion keeps order. */
static bool int_fits(nnc_dtype a, nnc_dtype b)
{
    nnc_dkind ka = nnc_dtype_kind(a), kb = nnc_dtype_kind(b);
    if (a == b || ka == NNC_BOOL)
        return true;
    if (kb == NNC_BOOL)
        return ka ==
               NNC_UINT; /* 0 stays 0, others become 1; negative values would break the order */
    if (ka == kb)
        return nnc_dtype_size(b) >= nnc_dtype_size(a);
    return ka == NNC_UINT && nnc_dtype_size(b) > nnc_dtype_size(a);
}

/* Rounding keeps order, wrapping does not; so a cast from float to integer never does here. */
static bool cast_keeps_order(nnc_dtype from, nnc_dtype to)
{
    if (nnc_is_float(to))
        return true;
    return !nnc_is_float(from) && int_fits(from, to);
}

/* An elementwise op whose other operand is a known finite number c. Integers wrap, so only min and max qualify. */
static bool nondec_with(nnc_op op, int i, bool is_float, double c)
{
    if (op == OP_min || op == OP_max)
        return !isnan(c);
    if (!is_float || !isfinite(c))
        return false;
    switch (op) {
    case OP_add: return true;
    case OP_sub: return i == 0;
    case OP_mul: return c > 0; /* not 0: infinity times 0 is NaN */
    case OP_div:
    case OP_prelu: return i == 0 && c > 0;
    default: return false;
    }
}

/* Which elements of the input reach a value. */
enum { REACH_none, REACH_some, REACH_all };

static int reach_through(const nnc_graph *g, const nnc_node *n, const uint8_t *reach)
{
    int from = n->n_in ? reach[n->in[0]] : REACH_none;
    switch (n->op) {
    case OP_cast: /* a narrower integer type can hold every index of an existing table */
        return nnc_is_float(nnc_typeof(g, n->out)->dtype) ? REACH_none : from;
    case OP_reshape:
    case OP_transpose:
    case OP_broadcast:
    case OP_flip:
    case OP_identity:
    case OP_relayout: return from;
    case OP_concat:
        for (int i = 1; i < n->n_in; i++)
            from = from > reach[n->in[i]] ? from : reach[n->in[i]];
        return from;
    case OP_slice:
    case OP_split:
    case OP_gather:
    case OP_gather_elements:
    case OP_gather_nd: /* of its data */ return from ? REACH_some : REACH_none;
    default: return REACH_none;
    }
}

/* n indexes dimensions [first, end) with values that elements of the input reach as `how` says. Which element indexes which dimension is
 * unknown: `any` takes the least extent, `all` the largest. */
static void add_use(
    nnc_index_use *out, const nnc_graph *g, const nnc_node *n, int64_t first, int64_t end, int how)
{
    const nnc_type *x = nnc_typeof(g, n->in[0]);
    int64_t least = x->dim[first], most = least;
    for (int64_t d = first + 1; d < end; d++) {
        least = nnc_min64(least, x->dim[d]);
        most = nnc_max64(most, x->dim[d]);
    }
    if (how)
        out->any = out->any ? nnc_min64(out->any, least) : least;
    if (how == REACH_all && (!out->gather || most < out->all)) {
        out->all = most;
        out->gather = n;
    }
}

/* Adds the uses of n's index operand. A gather_nd's tuples may be a concat of several tensors, each of which indexes dimensions of its
 * own. */
static void add_uses(
    nnc_index_use *out, const nnc_graph *g, const nnc_node *n, const uint8_t *reach)
{
    const nnc_type *at = nnc_typeof(g, n->in[1]);
    const nnc_node *c = nnc_def(g, n->in[1]);
    const bool tuples = n->op == OP_gather_nd || n->op == OP_scatter_nd;
    int64_t first = nnc_attr_int(n, tuples ? AT_batch_dims : AT_axis, 0);
    if (!tuples || c->op != OP_concat || nnc_attr_int(c, AT_axis, 0) != at->rank - 1) {
        add_use(out, g, n, first, first + (tuples ? at->dim[at->rank - 1] : 1), reach[n->in[1]]);
        return;
    }
    for (int k = 0; k < c->n_in; k++) {
        const int64_t wide = nnc_typeof(g, c->in[k])->dim[at->rank - 1];
        add_use(out, g, n, first, first + wide, reach[c->in[k]]);
        first += wide;
    }
}

/* Number of classes of a one-hot form: the extent of an iota that n compares with indices; 0: n is no such comparison. */
static int64_t classes_of(const nnc_graph *g, const nnc_node *n, const uint8_t *reach)
{
    for (int k = 0; n->op == OP_eq && k < 2; k++) {
        const nnc_node *other = nnc_def(g, n->in[1 - k]);
        if (reach[n->in[k]] && other->op == OP_iota)
            return nnc_typeof(g, other->out)->dim[nnc_attr_int(other, AT_dim, 0)];
    }
    return 0;
}

nnc_status nnc_indexes(const nnc_graph *g, nnc_ref input, nnc_index_use *out)
{
    NNC_LOCAL(nnc_arena) a = {0};
    uint8_t *reach = ARENA_NEW(&a, uint8_t, g->n_value + 1);
    *out = (nnc_index_use){0};
    NNC_NEED(reach, g->sink);
    reach[input] = REACH_all;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        const int64_t classes = classes_of(g, n, reach);
        if (nnc_index_operand(n))
            add_uses(out, g, n, reach);
        else if (classes)
            out->any = out->any ? nnc_min64(out->any, classes) : classes;
        for (int k = 0; n->op != OP_input && k < n->n_out; k++)
            reach[n->out + (nnc_ref)k] = (uint8_t)reach_through(g, n, reach);
    }
    return NNC_OK;
}

bool nnc_is_nondecreasing(const nnc_graph *g, const nnc_node *n, int i)
{
    double lo, hi;
    if (!nnc_op_is_ewise(n->op))
        return false;
    const nnc_type *x = nnc_typeof(g, n->in[i]);
    if (n->n_in == 2) {
        double c;
        return nnc_const_scalar(g, n->in[1 - i], &c) &&
               nondec_with(n->op, i, nnc_is_float(x->dtype), c);
    }
    switch (n->op) {
    case OP_cast: return cast_keeps_order(x->dtype, (nnc_dtype)nnc_attr_int(n, AT_to, DT_f32));
    case OP_sqrt: /* NaN below 0 */ nnc_value_range(g, n->in[0], &lo, &hi); return lo >= 0;
    case OP_leaky_relu: return nnc_attr_float(n, AT_alpha, 0.01) > 0;
    case OP_hardsigmoid: return nnc_attr_float(n, AT_alpha, 1.0 / 6) > 0;
    default: return n->n_in == 1 && nnc_ops[n->op].flags & OF_nondec;
    }
}
