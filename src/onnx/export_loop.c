/* onnx/export_loop.c -- ops that run in order along an axis, and movement by computed indices, as nodes of ONNX.
 *
 * LSTM, GRU and RNN of ONNX multiply their input by weights; the op of the graph takes the product. Where that is a linear node that
 * nothing else reads, the node of ONNX gets its operands, otherwise the product and the identity matrix. */
#include "onnx/export.h"
#include <math.h>

static nnc_dtype dtype(const exporter *x, int i)
{
    return op_type_in(x, i)->dtype;
}

/* Operand i, integers, within lo <= v <= hi. */
static const char *clipped(exporter *x, int i, double lo, double hi)
{
    const nnc_dtype d = dtype(x, i);
    const char *least = op_scalar(x, d, lo), *most = op_scalar(x, d, hi);
    op_node o = OP_OF(x, "Clip", op_operand(x, i), least, most);
    return op_end(&o);
}

/* The operand as i64; `small`: i32 will do. */
static const char *indices(exporter *x, int i, bool small)
{
    const nnc_dtype d = dtype(x, i);
    if (d == DT_i64 || (small && d == DT_i32))
        return op_operand(x, i);
    return op_cast(x, d == DT_u64 ? clipped(x, i, 0, 0x1p62) : op_operand(x, i), DT_i64);
}

/* ---- sums and products up to each element ------------------------------------------------------ */

/* ONNX has no type below 32 bits here; sums of 64 bits, cut off, are those of fewer bits. */
static const char *widened(exporter *x, nnc_dtype *d)
{
    *d = dtype(x, 0);
    if (nnc_is_float(*d) || nnc_dtype_size(*d) >= 4)
        return op_operand(x, 0);
    *d = DT_i64;
    return op_cast(x, op_operand(x, 0), DT_i64);
}

static bool write_cumsum(exporter *x)
{
    nnc_dtype d;
    const char *a = widened(x, &d),
               *axis = op_scalar(x, DT_i64, (double)nnc_attr_int(x->n, AT_axis, 0));
    op_node o = OP_OF(x, "CumSum", a, axis);
    op_attrs(&o, "exclusive=0 reverse=0");
    const char *y = op_end(&o);
    op_give(x, 0, d == dtype(x, 0) ? y : op_cast(x, y, dtype(x, 0)));
    return true;
}

/* CumProd came with opset 26: a Scan whose state is the product so far. */
static bool write_cumprod(exporter *x)
{
    const nnc_type *t = op_type_in(x, 0);
    const int64_t axis = nnc_attr_int(x->n, AT_axis, 0), back = nnc_attr_int(x->n, AT_reverse, 0);
    nnc_dtype d;
    const char *a = widened(x, &d);
    nnc_type state = nnc_type_make(d, t->rank - 1, t->dim);
    for (int i = (int)axis; i < state.rank; i++)
        state.dim[i] = t->dim[i + 1];
    const char *one = op_2(x, "Expand", op_scalar(x, d, 1), op_list(x, state.rank, state.dim));
    op_node o = OP_OF(x, "Scan", one, a);
    op_attr_int(&o, "num_scan_inputs", 1);
    op_attr_ints(&o, "scan_input_axes", 1, &axis);
    op_attr_ints(&o, "scan_input_directions", 1, &back);
    op_attr_ints(&o, "scan_output_axes", 1, &axis);
    op_attr_ints(&o, "scan_output_directions", 1, &back);
    op_attr_product(&o, "body", &state, nnc_attr_int(x->n, AT_exclusive, 0) != 0);
    const char *y[2]; /* the state, which ONNX Runtime does not let be left out, and the products */
    op_outputs(&o, 2, y);
    op_give(x, 0, d == dtype(x, 0) ? y[1] : op_cast(x, y[1], dtype(x, 0)));
    return true;
}

/* ---- the k best, and movement by indices ------------------------------------------------------- */

static bool write_topk(exporter *x)
{
    const int64_t k = nnc_attr_int(x->n, AT_k, 1);
    const char *count = op_list(x, 1, &k);
    op_node o = OP_OF(x, "TopK", op_operand(x, 0), count);
    op_attrs(&o, "axis=0 largest=1");
    op_results(&o);
    return true;
}

/* Scatters and gathers: the data, indices, updates. */
static bool write_indexed(exporter *x, const char *op, const char *attrs, bool small)
{
    const char *index = indices(x, 1, small);
    op_node o = OP_OF(x, op, op_operand(x, 0), index);
    if (x->n->n_in > 2)
        op_in(&o, op_operand(x, 2));
    op_attrs(&o, attrs);
    op_results(&o);
    return true;
}

/* ---- recurrence -------------------------------------------------------------------------------- */

static bool is_recurrent(const nnc_node *n)
{
    return n->op == OP_lstm || n->op == OP_gru || n->op == OP_rnn;
}

bool op_absorbed(const exporter *x, const nnc_node *n)
{
    const nnc_graph *g = x->g;
    bool read = false;
    if (n->op != OP_linear)
        return false;
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output[i] == n->out)
            return false;
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] == n->out) {
                if (k > 0 || !is_recurrent(&g->node[i]))
                    return false;
                read = true;
            }
    return read;
}

typedef struct cell {
    exporter *x;
    nnc_dtype d;
    int gates;
    int64_t t, b, h;
} cell;

/* Blocks of h rows of `a` in ONNX's order: i o f g of i f g o, z r n of r z n. */
static const char *ordered(const cell *c, const char *a)
{
    static const int order[5][4] = {{0}, {0}, {0}, {1, 0, 2}, {0, 3, 1, 2}};
    const int64_t sizes[4] = {c->h, c->h, c->h, c->h};
    const char *block[4];
    if (c->gates == 1)
        return a;
    const char *list = op_list(c->x, c->gates, sizes);
    op_node o = OP_OF(c->x, "Split", a, list);
    op_outputs(&o, c->gates, block);
    o = op_begin(c->x, "Concat");
    for (int i = 0; i < c->gates; i++)
        op_in(&o, block[order[c->gates][i]]);
    op_attr_int(&o, "axis", 0);
    return op_end(&o);
}

/* With a dimension of 1 at `axis`: ONNX's of directions. */
static const char *one_way(const cell *c, const char *a, int64_t axis)
{
    return op_2(c->x, "Unsqueeze", a, op_list(c->x, 1, &axis));
}

static const char *zeros(const cell *c, int64_t n)
{
    return op_2(c->x, "Expand", op_scalar(c->x, c->d, 0), op_list(c->x, 1, &n));
}

/* The input's weights, 1 x gates h x features, of the linear node before this one. */
static const char *input_weights(const cell *c, const nnc_node *linear)
{
    const int64_t n = c->gates * c->h, square[2] = {n, n};
    if (linear)
        return one_way(c, ordered(c, c->x->name[linear->in[1]]), 0);
    const char *all = op_2(c->x, "Expand", op_scalar(c->x, c->d, 0), op_list(c->x, 2, square));
    return one_way(c, ordered(c, op_1(c->x, "EyeLike", all)), 0);
}

/* R as gates h x h: transposed, or from panels. */
static const char *state_weights(const cell *c)
{
    static const int64_t turn[2] = {1, 0}, unpack[4] = {2, 0, 3, 1};
    const int64_t rows[2] = {c->gates * c->h, c->h};
    const int rank = op_type_in(c->x, 1)->rank;
    op_node o = OP_OF(c->x, "Transpose", op_operand(c->x, 1));
    op_attr_ints(&o, "perm", rank, rank == 2 ? turn : unpack);
    const char *r = op_end(&o);
    if (rank == 4)
        r = op_2(c->x, "Reshape", r, op_list(c->x, 2, rows));
    return one_way(c, ordered(c, r), 0);
}

/* The biases of the input and of the state; "": there are none. */
static const char *biases(const cell *c, const nnc_node *linear)
{
    const bool gru = c->gates == 3, own = linear && linear->n_in > 2;
    if (!gru && !own)
        return "";
    const char *input = own ? ordered(c, c->x->name[linear->in[2]]) : zeros(c, c->gates * c->h),
               *state = zeros(c, (gru ? 2 : c->gates) * c->h);
    op_node o = OP_OF(c->x, "Concat", input, state);
    if (gru)
        op_in(&o, op_operand(c->x, 2));
    op_attr_int(&o, "axis", 0);
    return one_way(c, op_end(&o), 0);
}

/* y, whose rows are zeros beyond their lengths in ONNX, with their last state there. */
static const char *keep_last(const cell *c, const char *y, const char *last, const char *lengths)
{
    const int64_t column[3] = {c->t, 1, 1}, row[3] = {1, c->b, 1};
    const char *from = op_scalar(c->x, DT_i32, 0), *to = op_scalar(c->x, DT_i32, (double)c->t),
               *by = op_scalar(c->x, DT_i32, 1);
    op_node o = OP_OF(c->x, "Range", from, to, by);
    const char *step = op_2(c->x, "Reshape", op_end(&o), op_list(c->x, 3, column)),
               *end = op_2(c->x, "Reshape", lengths, op_list(c->x, 3, row)),
               *live = op_2(c->x, "Less", step, end);
    o = OP_OF(c->x, "Where", live, y, last);
    return op_end(&o);
}

/* The node itself; out: y, the last state, and LSTM's second one. */
static void put_cell(const cell *c, const char *op, const char *lengths, const char **out)
{
    exporter *x = c->x;
    const nnc_node *before = nnc_def(x->g, x->n->in[0]);
    const nnc_node *linear = op_absorbed(x, before) ? before : NULL;
    const nnc_attr *f = nnc_attr_find(x->n, AT_activation);
    const char *in[7] = {linear ? x->name[linear->in[0]] : op_operand(x, 0),
        input_weights(c, linear), state_weights(c), biases(c, linear), lengths,
        one_way(c, op_operand(x, c->gates == 3 ? 3 : 2), 0),
        c->gates == 4 ? one_way(c, op_operand(x, 3), 0) : NULL};
    op_node o = op_begin(x, op);
    for (int i = 0; i < 7 && in[i]; i++)
        op_in(&o, in[i]);
    op_attr_int(&o, "hidden_size", c->h);
    if (c->gates == 3)
        op_attr_int(&o, "linear_before_reset", 1);
    if (f && f->word && !strcmp(f->word, "relu"))
        op_attr_words(&o, "activations", "Relu");
    op_outputs(&o, c->gates == 4 ? 3 : 2, out);
}

static bool write_recurrent(exporter *x, const char *op, int gates)
{
    const nnc_type *y = op_type(x);
    const cell c = {
        .x = x, .d = y->dtype, .gates = gates, .t = y->dim[0], .b = y->dim[1], .h = y->dim[2]};
    const int at = gates == 1 ? 3 : 4;
    const int64_t ways[2] = {0, 1};
    const char *out[3], *lengths = "";
    if (x->n->n_in > at) {
        const double most = (double)nnc_int_end(dtype(x, at), true);
        lengths = clipped(
            x, at, 0, nnc_dtype_size(dtype(x, at)) < 8 ? fmin((double)c.t, most) : (double)c.t);
        lengths = dtype(x, at) == DT_i32 ? lengths : op_cast(x, lengths, DT_i32);
    }
    put_cell(&c, op, lengths, out);
    const char *all = op_2(x, "Squeeze", out[0], op_list(x, 1, &ways[1]));
    op_give(x, 0, *lengths ? keep_last(&c, all, out[1], lengths) : all);
    if (gates == 4)
        op_give(x, 1, op_2(x, "Squeeze", out[2], op_list(x, 1, &ways[0])));
    return true;
}

bool op_write_loop(exporter *x)
{
    switch (x->n->op) {
    case OP_cumsum: return write_cumsum(x);
    case OP_cumprod: return write_cumprod(x);
    case OP_topk: return write_topk(x);
    case OP_scatter: return write_indexed(x, "ScatterElements", "axis=0 reduction", true);
    case OP_scatter_nd: return write_indexed(x, "ScatterND", "reduction", false);
    case OP_gather_elements: return write_indexed(x, "GatherElements", "axis=0", true);
    case OP_gather_nd: return write_indexed(x, "GatherND", "batch_dims=0", false);
    case OP_lstm: return write_recurrent(x, "LSTM", 4);
    case OP_gru: return write_recurrent(x, "GRU", 3);
    case OP_rnn: return write_recurrent(x, "RNN", 1);
    default: return false;
    }
}
