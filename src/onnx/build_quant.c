/* onnx/build_quant.c -- between floats and integers with a scale and a zero point. */
#include "onnx/internal.h"
#include <string.h>

/* A scale or zero point for x: one number, one for each index of the axis, or one for each block along it. */
static nnc_ref spread(ox_build *b, nnc_ref v, const nnc_type *x)
{
    const nnc_type t = *ox_type(b, v);
    int64_t block = ox_int(b, "block_size", 0), d[NNC_MAX_RANK];
    int axis;
    if (t.rank == 0 || nnc_type_numel(&t) == 1)
        return ox_reshape(b, v, 0, NULL);
    if (!ox_axis(b, ox_int(b, "axis", 1), x->rank, &axis))
        return NNC_NONE;
    if (!block && t.rank == 1)
        return ox_along(b, v, x->rank, axis);
    if (!block || t.rank != x->rank || x->rank == NNC_MAX_RANK ||
        nnc_ceildiv(x->dim[axis], block) != t.dim[axis]) {
        ox_wrong(b, "its scale does not fit its input");
        return NNC_NONE;
    }
    for (int i = 0; i <= t.rank; i++)
        d[i] = i <= axis ? t.dim[i] : i == axis + 1 ? 1 : t.dim[i - 1];
    v = ox_reshape(b, v, t.rank + 1, d);
    d[axis + 1] = block;
    v = ox_broadcast(b, v, t.rank + 1, d);
    memcpy(d, t.dim, sizeof d);
    d[axis] *= block;
    v = ox_reshape(b, v, t.rank, d);
    return d[axis] == x->dim[axis] ? v : ox_slice(b, v, axis, 0, x->dim[axis]);
}

nnc_ref ox_saturate_to(ox_build *b, nnc_ref x, nnc_dtype d, int bits)
{
    if (nnc_is_float(d))
        return ox_refuse(b, "the type %s is unsupported", nnc_dtype_name(d)), NNC_NONE;
    bool positive = nnc_dtype_kind(d) == NNC_UINT;
    int64_t lo = positive ? 0 : nnc_int_end(d, false), hi = nnc_int_end(d, true);
    if (bits) {
        hi = ((int64_t)1 << (bits - !positive)) - 1;
        lo = positive ? 0 : -hi - 1;
    }
    nnc_attr a[2] = {nnc_af(AT_lo, (double)lo), nnc_af(AT_hi, (double)hi)};
    return ox_to(b, ox_op(b, OP_clip, 1, &x, 2, a), d);
}

nnc_ref ox_saturate(ox_build *b, nnc_ref x, nnc_ref zero, int bits)
{
    if (x == NNC_NONE || zero == NNC_NONE)
        return NNC_NONE;
    const nnc_type t = *ox_type(b, zero);
    nnc_ref one = t.rank == 1 && t.dim[0] == 1 ? ox_reshape(b, zero, 0, NULL) : zero;
    nnc_ref z = ox_to(b, one, ox_dt(b, x));
    return ox_saturate_to(b, ox_2(b, OP_add, x, z), t.dtype, bits);
}

/* round(x / s). The cast rounds the quotient, which decides about halves, also in the reference. */
static nnc_ref steps_of(ox_build *b, nnc_ref x, nnc_ref s)
{
    nnc_ref q = ox_2(b, OP_div, x, s);
    return q == NNC_NONE ? q : ox_1(b, OP_round, nnc_cast(b->x->g, q, ox_dt(b, q)));
}

bool ox_quantize(ox_build *b)
{
    nnc_ref x = ox_to(b, ox_in(b, 0), DT_f32), s = ox_to(b, ox_in(b, 1), DT_f32);
    const nnc_type t = *ox_type(b, x);
    nnc_dtype d = DT_u8;
    int64_t code = ox_int(b, "output_dtype", 0);
    if (code && !ox_dtype(code, &d))
        return ox_refuse(b, "the type %s is unsupported", ox_dtype_name(code));
    nnc_ref r = steps_of(b, x, spread(b, s, &t));
    int bits = ox_has(b, 2) ? b->in[2].bits : ox_bits(code);
    r = ox_has(b, 2) ? ox_saturate(b, r, spread(b, ox_in(b, 2), &t), bits)
                     : ox_saturate_to(b, r, d, bits);
    if (!ox_give(b, r))
        return false;
    b->out[0].bits = (uint8_t)bits;
    return true;
}

bool ox_dequantize(ox_build *b)
{
    nnc_ref x = ox_to(b, ox_in(b, 0), DT_i32), s = ox_in(b, 1);
    const nnc_type t = *ox_type(b, x);
    nnc_dtype d = ox_dt(b, s);
    int64_t code = ox_int(b, "output_dtype", 0);
    if (code && !ox_dtype(code, &d))
        return ox_refuse(b, "the type %s is unsupported", ox_dtype_name(code));
    if (ox_has(b, 2))
        x = ox_2(b, OP_sub, x, spread(b, ox_to(b, ox_in(b, 2), DT_i32), &t));
    nnc_ref r = ox_2(b, OP_mul, ox_to(b, x, DT_f32), spread(b, ox_to(b, s, DT_f32), &t));
    return ox_give(b, ox_to(b, r, d));
}

/* To u8: the range of x and 0 is divided into 255 steps; the scale is 1 where all are 0.
 * The cast rounds the scale, which is a result, also in the reference.
 * out: the numbers, their scale and zero point. */
void ox_to_u8(ox_build *b, nnc_ref x, nnc_ref out[3])
{
    int rank = ox_type(b, x)->rank;
    const int64_t axes[NNC_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    nnc_ref top = rank ? ox_reduced(b, OP_reduce_max, x, rank, axes, false) : x,
            low = rank ? ox_reduced(b, OP_reduce_min, x, rank, axes, false) : x;
    top = ox_2n(b, OP_max, top, 0);
    low = ox_2n(b, OP_min, low, 0);
    nnc_ref range = ox_2(b, OP_sub, top, low), scale = ox_2n(b, OP_div, range, 255);
    scale = ox_select(b, ox_2n(b, OP_eq, range, 0), ox_num(b, ox_dt(b, x), 1), scale);
    if (scale != NNC_NONE)
        scale = nnc_cast(b->x->g, scale, ox_dt(b, x));
    out[1] = scale;
    out[2] = ox_saturate_to(b, steps_of(b, ox_1(b, OP_neg, low), scale), DT_u8, 0);
    out[0] = ox_saturate(b, steps_of(b, x, scale), out[2], 0);
}

bool ox_dynamic_quantize(ox_build *b)
{
    nnc_ref v[3];
    const nnc_type t = ox_shape_of(b, 0);
    if (ox_any_0(t.rank, t.dim)) /* as zeros */
        return ox_none(b, 0, DT_u8, t.rank, t.dim) && ox_set(b, 1, ox_num(b, DT_f32, 1)) &&
               ox_set(b, 2, ox_num(b, DT_u8, 0));
    ox_to_u8(b, ox_in(b, 0), v);
    return ox_give(b, v[0]) && ox_set(b, 1, v[1]) && ox_set(b, 2, v[2]);
}

/* ---- ONNX Runtime's: an operator between quantised operands ---------------------------------- */

static nnc_ref scalar_input(ox_build *b, int i, nnc_dtype d)
{
    return ox_to(b, ox_reshape(b, ox_in(b, i), 0, NULL), d);
}

/* Input i less the zero point, if there is one: a whole number of steps. */
static nnc_ref steps(ox_build *b, int i)
{
    nnc_ref x = ox_to(b, ox_in(b, i), DT_i32);
    if (ox_has(b, i + 2))
        x = ox_2(b, OP_sub, x, scalar_input(b, i + 2, DT_i32));
    return ox_to(b, x, DT_f32);
}

static nnc_ref dequantized(ox_build *b, int i)
{
    return ox_2(b, OP_mul, steps(b, i), scalar_input(b, i + 1, DT_f32));
}

/* Result 0: q steps plus the zero point i, in type d. `early`: added before q is rounded, as ONNX Runtime does in some operators. */
static bool give_steps(ox_build *b, nnc_ref q, int i, nnc_dtype d, bool early)
{
    nnc_ref zero = ox_has(b, i) ? scalar_input(b, i, DT_f32) : ox_num(b, DT_f32, 0);
    if (early)
        q = ox_2(b, OP_add, q, zero);
    if (q != NNC_NONE)
        q = ox_1(b, OP_round, nnc_cast(b->x->g, q, DT_f32));
    return ox_give(b, ox_saturate_to(b, early ? q : ox_2(b, OP_add, q, zero), d, 0));
}

/* Result 0: x by the scale i and the zero point after it. */
static bool give_quantized(ox_build *b, nnc_ref x, int i, nnc_dtype d)
{
    return give_steps(b, ox_2(b, OP_div, x, scalar_input(b, i, DT_f32)), i + 1, d, false);
}

/* QLinearX: X of one operand, or of two. Linear operators compute with whole steps and multiply by the ratio of the scales afterwards, so
 * that halves are exact. ONNX Runtime multiplies a softmax by a whole number. */
bool ox_qlinear(ox_build *b)
{
    const nnc_op op = b->row->op;
    const bool add = op == OP_add, two = add || op == OP_mul, pool = op == OP_global_avgpool,
               last = ox_int(b, "channels_last", 0) != 0;
    const int y = two ? 6 : 3;
    nnc_ref s = scalar_input(b, y, DT_f32), v[2] = {NNC_NONE, NNC_NONE}, ratio = NNC_NONE;
    for (int i = 0; i <= two; i++) {
        nnc_ref own = scalar_input(b, 3 * i + 1, DT_f32);
        ratio = i && !add ? ox_2(b, OP_mul, ratio, own) : own;
        v[i] = two || pool ? steps(b, 3 * i) : dequantized(b, 0);
        if (add)
            v[i] = ox_2(b, OP_mul, v[i], ox_2(b, OP_div, own, s));
        if (last)
            v[i] = ox_channels_first(b, v[i]);
    }
    nnc_ref r =
        ox_inner(b, b->n->op + strlen("QLinear"), ox_int(b, "opset", 10), 1 + two, v, 0, NULL);
    if (last)
        r = ox_channels_last(b, r);
    if (op == OP_softmax)
        r = ox_2(b, OP_mul, r, ox_1(b, OP_floor, ox_1(b, OP_recip, s)));
    else if (op == OP_mul || pool)
        r = ox_2(b, OP_mul, r, ox_2(b, OP_div, ratio, s));
    else if (!add)
        r = ox_2(b, OP_div, r, s);
    return give_steps(b, r, y + 1, ox_dt(b, ox_in(b, 0)), two || op == OP_avgpool);
}

bool ox_qlinear_where(ox_build *b)
{
    nnc_ref c = ox_to(b, ox_in(b, 0), DT_bool);
    return give_quantized(
        b, ox_select(b, c, dequantized(b, 1), dequantized(b, 4)), 7, ox_dt(b, ox_in(b, 1)));
}

bool ox_qlinear_concat(ox_build *b)
{
    nnc_ref *v = ARENA_NEW(&b->x->a, nnc_ref, b->n_in);
    int n = 0, axis;
    if (!v)
        return ox_nomem(b->x);
    if (b->n_in % 3 != 2)
        return ox_wrong(b, "each of its operands has a scale and a zero point");
    for (int i = 2; i < b->n_in; i += 3)
        v[n++] = dequantized(b, i);
    if (!ox_axis(b, ox_int(b, "axis", 0), ox_type(b, ox_in(b, 2))->rank, &axis))
        return false;
    return give_quantized(b, ox_joined(b, n, v, axis), 0, ox_dt(b, ox_in(b, 2)));
}
