/* onnx/export_ops.c -- nodes of the graph IR as nodes of ONNX, opset 21: most have an operator of their own, others are composed. */
#include "onnx/export.h"
#include <math.h>

#define WINDOW \
    "kernel_shape:kernel strides pads dilations output_padding group:groups ceil_mode " \
    "count_include_pad"
#define EPSILON "epsilon:eps=1e-05"

/* Operators with the same operands and meaning, for floats; `ints`: for integers too. attrs: see op_attrs. */
static const struct {
    nnc_op op;
    const char *name;
    bool ints;
    const char *attrs;
} same[] = {{OP_identity, "Identity", true}, {OP_dropout, "Identity", true},
    {OP_relayout, "Identity", true}, {OP_neg, "Neg", true}, {OP_abs, "Abs", true},
    {OP_sign, "Sign", true}, {OP_floor, "Floor"}, {OP_ceil, "Ceil"}, {OP_round, "Round"},
    {OP_sqrt, "Sqrt"}, {OP_recip, "Reciprocal"}, {OP_exp, "Exp"}, {OP_log, "Log"}, {OP_sin, "Sin"},
    {OP_cos, "Cos"}, {OP_tan, "Tan"}, {OP_asin, "Asin"}, {OP_acos, "Acos"}, {OP_atan, "Atan"},
    {OP_sinh, "Sinh"}, {OP_cosh, "Cosh"}, {OP_tanh, "Tanh"}, {OP_sigmoid, "Sigmoid"},
    {OP_erf, "Erf"}, {OP_isnan, "IsNaN"}, {OP_isinf, "IsInf"}, {OP_not, "Not", true},
    {OP_add, "Add", true}, {OP_sub, "Sub", true}, {OP_mul, "Mul", true}, {OP_div, "Div", true},
    {OP_pow, "Pow", true}, {OP_eq, "Equal", true}, {OP_lt, "Less", true},
    {OP_le, "LessOrEqual", true}, {OP_gt, "Greater", true}, {OP_ge, "GreaterOrEqual", true},
    {OP_and, "And", true}, {OP_or, "Or", true}, {OP_xor, "Xor", true},
    {OP_bit_and, "BitwiseAnd", true}, {OP_bit_or, "BitwiseOr", true},
    {OP_bit_xor, "BitwiseXor", true}, {OP_select, "Where", true}, {OP_relu, "Relu"},
    {OP_prelu, "PRelu", true}, {OP_selu, "Selu"}, {OP_hardswish, "HardSwish"},
    {OP_softplus, "Softplus"}, {OP_softsign, "Softsign"}, {OP_mish, "Mish"},
    {OP_global_avgpool, "GlobalAveragePool"}, {OP_global_maxpool, "GlobalMaxPool"},
    {OP_mod, "Mod", true, "fmod=1"}, {OP_gelu, "Gelu", true, "approximate=none"},
    {OP_leaky_relu, "LeakyRelu", false, "alpha=0.01"}, {OP_elu, "Elu", true, "alpha=1"},
    {OP_hardsigmoid, "HardSigmoid", true, "alpha=0.16666666666666666 beta=0.5"},
    {OP_argmax, "ArgMax", true, "axis=0 keepdims=1"},
    {OP_argmin, "ArgMin", true, "axis=0 keepdims=1"}, {OP_transpose, "Transpose", true, "perm="},
    {OP_concat, "Concat", true, "axis=0"}, {OP_gather, "Gather", true, "axis=0"},
    {OP_softmax, "Softmax", true, "axis=0"}, {OP_log_softmax, "LogSoftmax", true, "axis=0"},
    {OP_maxpool, "MaxPool", true, WINDOW}, {OP_avgpool, "AveragePool", true, WINDOW},
    {OP_conv, "Conv", true, WINDOW}, {OP_conv_transpose, "ConvTranspose", true, WINDOW},
    {OP_batchnorm, "BatchNormalization", true, EPSILON}};

static nnc_dtype dtype(const exporter *x)
{
    return op_type_in(x, 0)->dtype;
}

/* The node of x->n, whose results it has; true. */
static bool done(op_node o)
{
    op_results(&o);
    return true;
}

static bool write_same(exporter *x)
{
    for (size_t i = 0; i < NNC_COUNT(same); i++)
        if (same[i].op == x->n->op && (same[i].ints || nnc_is_float(dtype(x)))) {
            op_node o = op_begin_all(x, same[i].name);
            op_attrs(&o, same[i].attrs ? same[i].attrs : "");
            return done(o);
        }
    return false;
}

/* Names value v as the node's result. */
static bool give(exporter *x, const char *v)
{
    op_give(x, 0, v);
    return true;
}

/* Min and Max of bools are And and Or. */
static bool write_extreme(exporter *x, bool max)
{
    const bool logic = dtype(x) == DT_bool;
    return done(op_begin_all(x, max ? logic ? "Or" : "Max" : logic ? "And" : "Min"));
}

static bool write_clip(exporter *x, double lo, double hi)
{
    const char *l = isinf(lo) ? "" : op_scalar(x, dtype(x), lo),
               *h = isinf(hi) ? "" : op_scalar(x, dtype(x), hi);
    return done(OP_OF(x, "Clip", op_operand(x, 0), l, h));
}

/* Functions of one float that ONNX composes. */
static bool write_composed(exporter *x)
{
    const char *a = op_operand(x, 0);
    const nnc_dtype d = dtype(x);
    switch (x->n->op) {
    case OP_rsqrt: return give(x, op_1(x, "Reciprocal", op_1(x, "Sqrt", a)));
    case OP_exp2: return give(x, op_2(x, "Pow", op_scalar(x, d, 2), a));
    case OP_expm1: return give(x, op_2(x, "Sub", op_1(x, "Exp", a), op_scalar(x, d, 1)));
    case OP_log2: return give(x, op_2(x, "Div", op_1(x, "Log", a), op_scalar(x, d, log(2))));
    case OP_log1p: return give(x, op_1(x, "Log", op_2(x, "Add", a, op_scalar(x, d, 1))));
    case OP_trunc:
        return give(x, op_2(x, "Mul", op_1(x, "Sign", a), op_1(x, "Floor", op_1(x, "Abs", a))));
    case OP_silu: return give(x, op_2(x, "Mul", a, op_1(x, "Sigmoid", a)));
    case OP_square: return give(x, op_2(x, "Mul", a, a));
    case OP_ne: return give(x, op_1(x, "Not", op_2(x, "Equal", a, op_operand(x, 1))));
    default: return false;
    }
}

static const char *put_where(exporter *x, const char *c, const char *yes, const char *no)
{
    op_node o = OP_OF(x, "Where", c, yes, no);
    return op_end(&o);
}

/* BitShift is of unsigned numbers, by less than their bits. floor(a / 2^b) of a negative a is ~(~a / 2^b). */
static bool write_shift(exporter *x, bool left)
{
    const nnc_dtype d = dtype(x), u = nnc_dtype_size(d) == 8 ? DT_u64 : DT_u32;
    const char *a = op_operand(x, 0), *by = op_cast(x, op_operand(x, 1), u), *minus = NULL;
    if (!left && nnc_dtype_kind(d) == NNC_INT) {
        minus = op_2(x, "Less", a, op_scalar(x, d, 0));
        a = put_where(x, minus, op_1(x, "BitwiseNot", a), a);
    }
    a = op_cast(x, a, u);
    op_node o = OP_OF(x, "BitShift", a, by);
    op_attr_text(&o, "direction", left ? "LEFT" : "RIGHT");
    const char *r = op_end(&o);
    const char *fits = op_2(x, "Less", by, op_scalar(x, u, 8 * nnc_dtype_size(d)));
    r = op_cast(x, put_where(x, fits, r, op_scalar(x, u, 0)), d);
    return give(x, minus ? put_where(x, minus, op_1(x, "BitwiseNot", r), r) : r);
}

static bool write_ewise(exporter *x)
{
    switch (x->n->op) {
    case OP_min: return write_extreme(x, false);
    case OP_max: return write_extreme(x, true);
    case OP_relu6: return write_clip(x, 0, 6);
    case OP_clip:
        return write_clip(
            x, nnc_attr_float(x->n, AT_lo, -INFINITY), nnc_attr_float(x->n, AT_hi, INFINITY));
    case OP_floor:
    case OP_ceil:
    case OP_round:
    case OP_trunc:
        return nnc_is_float(dtype(x)) ? write_composed(x)
                                      : give(x, op_operand(x, 0)); /* of integers */
    case OP_relu: return write_clip(x, 0, INFINITY);
    case OP_shl:
    case OP_shr: return write_shift(x, x->n->op == OP_shl);
    case OP_cast: {
        op_node o = op_begin_all(x, "Cast");
        op_attr_int(&o, "to", ox_code(op_type(x)->dtype));
        return done(o);
    }
    default: return write_composed(x);
    }
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* Sums and products exist of 32 and 64 bits, extremes of 8, 32 and 64. */
static bool wide(nnc_op op, nnc_dtype d)
{
    const int size = nnc_dtype_size(d);
    if (nnc_is_float(d) || size >= 4)
        return true;
    return size == 1 && op != OP_reduce_sum && op != OP_reduce_prod;
}

static bool write_reduce(exporter *x, const char *op, int n, const int64_t *axes)
{
    const bool narrow = !wide(x->n->op, dtype(x));
    const char *a = narrow ? op_cast(x, op_operand(x, 0), DT_i64) : op_operand(x, 0),
               *list = op_list(x, n, axes);
    op_node o = OP_OF(x, op, a, list);
    op_attrs(&o, "keepdims=1");
    if (!narrow)
        return done(o);
    return give(x, op_cast(x, op_end(&o), dtype(x)));
}

static bool write_axes(exporter *x, const char *op)
{
    const int64_t *axes;
    const int n = nnc_attr_ints(x->n, AT_axes, &axes);
    return write_reduce(x, op, n, axes);
}

/* Integers, which GlobalMaxPool does not take, are reduced over all but the first two dimensions. */
static bool write_global_max(exporter *x)
{
    static const int64_t axes[NNC_MAX_RANK] = {2, 3, 4, 5, 6, 7};
    return write_reduce(x, "ReduceMax", op_type(x)->rank - 2, axes);
}

/* ---- movement -------------------------------------------------------------------------------- */

/* An operator whose further operands are lists of integers. */
static bool write_listed(
    exporter *x, const char *op, int n_list, const int *n, const int64_t **list)
{
    const char *name[4];
    for (int i = 0; i < n_list; i++)
        name[i] = op_list(x, n[i], list[i]);
    op_node o = op_begin_all(x, op);
    for (int i = 0; i < n_list; i++)
        op_in(&o, name[i]);
    return done(o);
}

static bool write_shape(exporter *x, const char *op)
{
    const int n = op_type(x)->rank;
    const int64_t *dim = op_type(x)->dim;
    return write_listed(x, op, 1, &n, &dim);
}

static bool write_slice(exporter *x)
{
    static const int64_t ones[NNC_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t *axes, *starts, *ends, *steps;
    const int n = nnc_attr_ints(x->n, AT_axes, &axes), count[4] = {n, n, n, n};
    (void)nnc_attr_ints(x->n, AT_starts, &starts);
    (void)nnc_attr_ints(x->n, AT_ends, &ends);
    if (!nnc_attr_ints(x->n, AT_steps, &steps))
        steps = ones;
    return write_listed(x, "Slice", 4, count, (const int64_t *[]){starts, ends, axes, steps});
}

static bool write_flip(exporter *x)
{
    int64_t starts[NNC_MAX_RANK], ends[NNC_MAX_RANK], steps[NNC_MAX_RANK];
    const int64_t *axes;
    const int n = nnc_attr_ints(x->n, AT_axes, &axes), count[4] = {n, n, n, n};
    for (int i = 0; i < n; i++) {
        starts[i] = -1;
        ends[i] = INT64_MIN;
        steps[i] = -1;
    }
    return write_listed(x, "Slice", 4, count, (const int64_t *[]){starts, ends, axes, steps});
}

static bool write_pad(exporter *x)
{
    const int64_t *pads;
    const int n = nnc_attr_ints(x->n, AT_pads, &pads);
    const char *list = op_list(x, n, pads),
               *value = op_scalar(x, dtype(x), nnc_attr_float(x->n, AT_value, 0));
    op_node o = OP_OF(x, "Pad", op_operand(x, 0), list, value);
    op_attrs(&o, "mode=constant");
    return done(o);
}

static bool write_split(exporter *x)
{
    const int64_t *sizes;
    const int n = nnc_attr_ints(x->n, AT_sizes, &sizes);
    const char *list = op_list(x, n, sizes);
    op_node o = OP_OF(x, "Split", op_operand(x, 0), list);
    op_attrs(&o, "axis=0");
    return done(o);
}

/* ---- contractions ---------------------------------------------------------------------------- */

/* The operand with its last two dimensions swapped. */
static const char *transposed(exporter *x, int i)
{
    const int rank = op_type_in(x, i)->rank;
    int64_t perm[NNC_MAX_RANK];
    for (int k = 0; k < rank; k++)
        perm[k] = k < rank - 2 ? k : 2 * rank - 3 - k;
    op_node o = OP_OF(x, "Transpose", op_operand(x, i));
    op_attr_ints(&o, "perm", rank, perm);
    return op_end(&o);
}

static bool write_matmul(exporter *x)
{
    const bool ta = nnc_attr_int(x->n, AT_transpose_a, 0),
               tb = nnc_attr_int(x->n, AT_transpose_b, 0);
    const char *a = ta ? transposed(x, 0) : op_operand(x, 0),
               *b = tb ? transposed(x, 1) : op_operand(x, 1);
    return done(OP_OF(x, "MatMul", a, b));
}

static bool write_linear(exporter *x)
{
    if (op_type_in(x, 0)->rank == 2) {
        op_node o = op_begin_all(x, "Gemm");
        op_attrs(&o, "transB=1");
        return done(o);
    }
    const char *y = op_2(x, "MatMul", op_operand(x, 0), transposed(x, 1));
    return give(x, x->n->n_in > 2 ? op_2(x, "Add", y, op_operand(x, 2)) : y);
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Operand i, or v where it is left out. */
static const char *operand_or(exporter *x, int i, double v, int rank, const int64_t *dim)
{
    return i < x->n->n_in ? op_operand(x, i)
                          : op_2(x, "Expand", op_scalar(x, dtype(x), v), op_list(x, rank, dim));
}

static bool write_norm(
    exporter *x, const char *op, int rank, const int64_t *dim, const char *attr, int64_t value)
{
    const char *scale = operand_or(x, 1, 1, rank, dim), *shift = operand_or(x, 2, 0, rank, dim);
    op_node o = OP_OF(x, op, op_operand(x, 0), scale, shift);
    op_attr_int(&o, attr, value);
    op_attrs(&o, EPSILON);
    return done(o);
}

static bool write_layernorm(exporter *x)
{
    const nnc_type *t = op_type_in(x, 0);
    const int axis = (int)nnc_attr_int(x->n, AT_axis, t->rank - 1);
    return write_norm(x, "LayerNormalization", t->rank - axis, t->dim + axis, "axis", axis);
}

static bool write_rmsnorm(exporter *x)
{
    const nnc_type *t = op_type_in(x, 0);
    const int axis = (int)nnc_attr_int(x->n, AT_axis, t->rank - 1);
    const bool half = nnc_dtype_size(dtype(x)) == 2;
    const nnc_dtype d = half ? DT_f32 : dtype(x); /* squares are summed in f32 */
    int64_t axes[NNC_MAX_RANK];
    for (int i = axis; i < t->rank; i++)
        axes[i - axis] = i;
    const char *a = half ? op_cast(x, op_operand(x, 0), DT_f32) : op_operand(x, 0),
               *square = op_2(x, "Mul", a, a),
               *mean = op_2(x, "ReduceMean", square, op_list(x, t->rank - axis, axes)),
               *eps = op_scalar(x, d, nnc_attr_float(x->n, AT_eps, 1e-5)),
               *y = op_2(x, "Div", a, op_1(x, "Sqrt", op_2(x, "Add", mean, eps)));
    if (half)
        y = op_cast(x, y, dtype(x));
    return give(x, x->n->n_in > 1 ? op_2(x, "Mul", y, op_operand(x, 1)) : y);
}

bool op_write(exporter *x)
{
    if (write_same(x))
        return true;
    switch (x->n->op) {
    case OP_reduce_sum: return write_axes(x, "ReduceSum");
    case OP_reduce_mean: return write_axes(x, "ReduceMean");
    case OP_reduce_max: return write_axes(x, "ReduceMax");
    case OP_reduce_min: return write_axes(x, "ReduceMin");
    case OP_reduce_prod: return write_axes(x, "ReduceProd");
    case OP_global_maxpool: return write_global_max(x);
    case OP_reshape: return write_shape(x, "Reshape");
    case OP_broadcast: return write_shape(x, "Expand");
    case OP_slice: return write_slice(x);
    case OP_flip: return write_flip(x);
    case OP_pad: return write_pad(x);
    case OP_split: return write_split(x);
    case OP_matmul: return write_matmul(x);
    case OP_linear: return write_linear(x);
    case OP_layernorm: return write_layernorm(x);
    case OP_rmsnorm: return write_rmsnorm(x);
    case OP_groupnorm:
        return write_norm(x, "GroupNormalization", 1, &op_type_in(x, 0)->dim[1], "num_groups",
            nnc_attr_int(x->n, AT_num_groups, 1));
    default: return op_write_loop(x) || write_ewise(x);
    }
}
