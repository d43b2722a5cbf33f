/* onnx/build_ewise.c -- elementwise operators. */
#include "onnx/internal.h"
#include <math.h>
#include <string.h>

/* z, if x is sigmoid(-z) or 1 - sigmoid(z), whose logarithm is -softplus(z), also where x is 0 in floats. PyTorch writes LogSigmoid and the
 * loss BCEWithLogits so. */
static nnc_ref sigmoid_operand(ox_build *b, nnc_ref x)
{
    const nnc_graph *g = b->x->g;
    const nnc_node *n = nnc_def(g, x);
    double one = 0;
    const bool rest = n->op == OP_sub && nnc_const_scalar(g, n->in[0], &one) && one == 1;
    n = rest ? nnc_def(g, n->in[1]) : n;
    if (n->op != OP_sigmoid)
        return NNC_NONE;
    return rest ? n->in[0] : ox_1(b, OP_neg, n->in[0]);
}

/* The op of the row; attributes of the row with a default are the op's. */
bool ox_unary(ox_build *b)
{
    nnc_attr a[4];
    int n = 0;
    nnc_ref x = ox_in(b, 0);
    for (const char *p = b->row->attrs; *p;) {
        char name[32];
        size_t len = strcspn(p, " "), word = strcspn(p, "= ");
        nnc_akey key;
        snprintf(name, sizeof name, "%.*s", (int)word, p);
        if (n < 4 && p[word] == '=' && nnc_attr_parse(name, strlen(name), &key))
            a[n++] = nnc_af(key, ox_float(b, name, nnc_strtod(p + word + 1, NULL)));
        p += len + strspn(p + len, " ");
    }
    nnc_ref sum = b->row->op == OP_log ? sigmoid_operand(b, x) : NNC_NONE;
    if (sum != NNC_NONE)
        return ox_give(b, ox_1(b, OP_neg, ox_1(b, OP_softplus, sum)));
    return ox_give(b, ox_op(b, b->row->op, 1, &x, n, a));
}

/* Input 1; in operator set 6 its dimensions are those of input 0 from `axis` on, by default the last ones. */
static nnc_ref right(ox_build *b)
{
    nnc_ref y = ox_in(b, 1);
    const nnc_type *x = ox_type(b, ox_in(b, 0)), *t = ox_type(b, y);
    int64_t axis = ox_int(b, "axis", -1), d[NNC_MAX_RANK];
    if (b->opset >= 7 || axis < 0 || axis + t->rank > x->rank)
        return y;
    for (int i = 0; i < x->rank - axis; i++)
        d[i] = i < t->rank ? t->dim[i] : 1;
    return ox_reshape(b, y, x->rank - (int)axis, d);
}

bool ox_binary(ox_build *b)
{
    return ox_give(b, ox_2(b, b->row->op, ox_in(b, 0), right(b)));
}

bool ox_identity(ox_build *b)
{
    b->out[0] = b->in[0];
    return true;
}

bool ox_variadic(ox_build *b)
{
    nnc_ref r = ox_in(b, 0);
    bool mean = !strcmp(b->n->op, "Mean");
    for (int i = 1; i < b->n_in; i++)
        r = ox_2(b, b->row->op, r, ox_in(b, i));
    return ox_give(b, mean ? ox_2n(b, OP_div, r, b->n_in) : r);
}

bool ox_where(ox_build *b)
{
    return ox_give(b, ox_select(b, ox_in(b, 0), ox_in(b, 1), ox_in(b, 2)));
}

/* ---- types ----------------------------------------------------------------------------------- */

/* The low bits of x, as numbers of d. */
static nnc_ref low_bits(ox_build *b, nnc_ref x, nnc_dtype d, int bits)
{
    nnc_ref u = ox_to(b, nnc_is_float(ox_dt(b, x)) ? ox_to(b, x, DT_i32) : x, DT_u8);
    u = ox_to(b, ox_2n(b, OP_mod, u, 1 << bits), d);
    if (d == DT_u8)
        return u;
    nnc_ref high = ox_2n(b, OP_ge, u, 1 << (bits - 1));
    return ox_select(b, high, ox_2n(b, OP_sub, u, 1 << bits), u);
}

static bool cast_to(ox_build *b, nnc_dtype d, int bits)
{
    nnc_ref x = ox_in(b, 0);
    if (!ox_give(b, bits ? low_bits(b, x, d, bits) : ox_to(b, x, d)))
        return false;
    b->out[0].bits = (uint8_t)bits;
    return true;
}

bool ox_cast(ox_build *b)
{
    nnc_dtype d;
    int64_t to = ox_int(b, "to", 0);
    if (!ox_dtype(to, &d))
        return ox_refuse(b, "casts to %s are unsupported", ox_dtype_name(to));
    return cast_to(b, d, ox_bits(to));
}

bool ox_cast_like(ox_build *b)
{
    const nnc_type t = ox_shape_of(b, 0); /* of the other operand only the type is read */
    return b->in[0].state == OX_empty ? ox_none(b, 0, b->in[1].dtype, t.rank, t.dim)
                                      : cast_to(b, b->in[1].dtype, b->in[1].bits);
}

/* ---- functions ------------------------------------------------------------------------------- */

/* The result has the base's type. Where the types differ, they meet in the floating-point one. */
bool ox_pow(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), y = right(b);
    nnc_dtype dx = ox_dt(b, x), dy = ox_dt(b, y);
    nnc_dtype d = nnc_is_float(dx) || !nnc_is_float(dy) ? dx : dy;
    return ox_give(b, ox_to(b, ox_2(b, OP_pow, ox_to(b, x, d), ox_to(b, y, d)), dx));
}

/* Without fmod the result has the divisor's sign: r = a - trunc(a/b) b, plus b where the signs differ. */
bool ox_mod(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), y = ox_in(b, 1), r = ox_2(b, OP_mod, x, y);
    nnc_dtype d = ox_dt(b, x);
    if (ox_int(b, "fmod", 0) || nnc_dtype_kind(d) == NNC_UINT)
        return ox_give(b, r);
    nnc_ref differ = ox_2(b, OP_ne, ox_2n(b, OP_lt, r, 0), ox_2n(b, OP_lt, y, 0));
    nnc_ref fix = ox_2(b, OP_and, ox_2n(b, OP_ne, r, 0), differ);
    return ox_give(b, ox_select(b, fix, ox_2(b, OP_add, r, y), r));
}

/* A bound as a number; false: not known, or not one that the op clip takes. */
static bool bound(ox_build *b, int i, double *v)
{
    const void *data = ox_known(b->x, ox_in(b, i));
    nnc_dtype d = ox_dt(b, ox_in(b, i));
    if (!data || nnc_type_numel(ox_type(b, ox_in(b, i))) != 1)
        return false;
    *v = nnc_get_f64(d, data, 0);
    return !isnan(*v) && (nnc_is_float(d) || fabs(*v) < 0x1p53);
}

bool ox_clip(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    double v[2] = {ox_float(b, "min", -INFINITY), ox_float(b, "max", INFINITY)};
    bool numbers = true;
    for (int i = 1; i <= 2; i++)
        if (ox_has(b, i))
            numbers = bound(b, i, &v[i - 1]) && numbers;
    if (numbers && v[0] <= v[1]) {
        nnc_attr a[2] = {nnc_af(AT_lo, v[0]), nnc_af(AT_hi, v[1])};
        bool lo = isfinite(v[0]), hi = isfinite(v[1]);
        return ox_give(b, ox_op(b, OP_clip, 1, &x, lo + hi, lo ? a : a + 1));
    }
    if (b->row->to < 11)
        return ox_give(b, ox_2n(b, OP_min, ox_2n(b, OP_max, x, v[0]), v[1]));
    if (ox_has(b, 1))
        x = ox_2(b, OP_max, x, ox_in(b, 1));
    return ox_give(b, ox_has(b, 2) ? ox_2(b, OP_min, x, ox_in(b, 2)) : x);
}

bool ox_dropout(ox_build *b)
{
    int n;
    int64_t training = 0;
    double ratio = 0.5;
    nnc_ref x = ox_in(b, 0);
    if (ox_has(b, 2) && !ox_const_ints(b, 2, 1, &n, &training))
        return false;
    if (training && ox_has(b, 1) && !ox_const_floats(b, 1, 1, &n, &ratio))
        return false;
    if ((training && ratio != 0) || (b->opset < 7 && !ox_int(b, "is_test", 0)))
        return ox_refuse(b, "training is unsupported");
    nnc_type t = *ox_type(b, x);
    if (ox_wants(b, 1))
        ox_set(
            b, 1, ox_broadcast(b, ox_num(b, b->opset < 10 ? t.dtype : DT_bool, 1), t.rank, t.dim));
    return ox_give(b, x);
}

bool ox_gelu(ox_build *b)
{
    const bool fast = !strcmp(b->n->op, "FastGelu");
    nnc_ref x = ox_has(b, 1) ? ox_2(b, OP_add, ox_in(b, 0), ox_in(b, 1)) : ox_in(b, 0);
    nnc_attr a = nnc_aw(AT_approximate, fast ? "tanh" : ox_word(b, "approximate", "none"));
    return ox_give(b, ox_op(b, OP_gelu, 1, &x, 1, &a));
}

static nnc_ref swish(ox_build *b)
{
    double alpha = ox_float(b, "alpha", strcmp(b->n->op, "QuickGelu") ? 1 : (double)1.702f);
    nnc_ref x = ox_in(b, 0);
    if (alpha == 1)
        return ox_1(b, OP_silu, x);
    return ox_2(b, OP_mul, x, ox_1(b, OP_sigmoid, ox_2n(b, OP_mul, x, alpha)));
}

bool ox_swish(ox_build *b)
{
    return ox_give(b, swish(b));
}

bool ox_swiglu(ox_build *b)
{
    return ox_give(b, ox_2(b, OP_mul, swish(b), ox_in(b, 1)));
}

static nnc_ref elu(ox_build *b, nnc_ref x, double alpha)
{
    nnc_attr a = nnc_af(AT_alpha, alpha);
    return ox_op(b, OP_elu, 1, &x, 1, &a);
}

bool ox_selu(ox_build *b)
{
    double alpha = ox_float(b, "alpha", 1.67326319217681884765625),
           gamma = ox_float(b, "gamma", 1.05070102214813232421875);
    bool usual = fabs(alpha - 1.6732632) < 1e-6 && fabs(gamma - 1.050701) < 1e-6;
    nnc_ref x = ox_in(b, 0);
    return ox_give(b, usual ? ox_1(b, OP_selu, x) : ox_2n(b, OP_mul, elu(b, x, alpha), gamma));
}

/* max(0, x) + alpha (e^(min(x,0)/alpha) - 1) */
bool ox_celu(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    double alpha = ox_float(b, "alpha", 1);
    nnc_ref e = ox_1(b, OP_expm1, ox_2n(b, OP_div, ox_2n(b, OP_min, x, 0), alpha));
    return ox_give(b, ox_select(b, ox_2n(b, OP_ge, x, 0), x, ox_2n(b, OP_mul, e, alpha)));
}

bool ox_thresholded_relu(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    nnc_ref above = ox_2n(b, OP_gt, x, ox_float(b, "alpha", 1));
    return ox_give(b, ox_select(b, above, x, ox_num(b, ox_dt(b, x), 0)));
}

/* x < -lambd ? x + bias : x > lambd ? x - bias : 0 */
bool ox_shrink(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    double bias = ox_float(b, "bias", 0), lambd = ox_float(b, "lambd", 0.5);
    if (!nnc_is_float(ox_dt(b, x)))
        return ox_refuse(b, "integers are unsupported");
    nnc_ref high = ox_select(
        b, ox_2n(b, OP_gt, x, lambd), ox_2n(b, OP_sub, x, bias), ox_num(b, ox_dt(b, x), 0));
    return ox_give(b, ox_select(b, ox_2n(b, OP_lt, x, -lambd), ox_2n(b, OP_add, x, bias), high));
}

/* asinh a = log1p(a + a^2 / (1 + sqrt(a^2 + 1))) for a > 0; where a^2 could overflow, log a + log 2. Neither overflows
 * where the other is taken. asinh is odd; 0 is apart, since the derivative of |x| there is 0. */
bool ox_asinh(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), a = ox_1(b, OP_abs, x), near = ox_2n(b, OP_min, a, 1e4);
    nnc_ref a2 = ox_1(b, OP_square, near);
    nnc_ref root = ox_2n(b, OP_add, ox_1(b, OP_sqrt, ox_2n(b, OP_add, a2, 1)), 1);
    nnc_ref r = ox_1(b, OP_log1p, ox_2(b, OP_add, near, ox_2(b, OP_div, a2, root)));
    nnc_ref far = ox_2n(b, OP_add, ox_1(b, OP_log, ox_2n(b, OP_max, a, 1)), 0.69314718055994531);
    r = ox_select(b, ox_2n(b, OP_gt, a, 1e4), far, r);
    r = ox_select(b, ox_2n(b, OP_lt, x, 0), ox_1(b, OP_neg, r), r);
    return ox_give(b, ox_select(b, ox_2n(b, OP_eq, x, 0), x, r));
}

/* acosh x = log1p(t + sqrt(t) sqrt(t + 2)), t = x - 1; where that sum could overflow, log x + log 2. */
bool ox_acosh(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), t = ox_2n(b, OP_sub, ox_2n(b, OP_min, x, 1e4), 1);
    nnc_ref s = ox_2(b, OP_mul, ox_1(b, OP_sqrt, t), ox_1(b, OP_sqrt, ox_2n(b, OP_add, t, 2)));
    nnc_ref far = ox_2n(b, OP_add, ox_1(b, OP_log, ox_2n(b, OP_max, x, 1)), 0.69314718055994531);
    nnc_ref r = ox_1(b, OP_log1p, ox_2(b, OP_add, t, s));
    return ox_give(b, ox_select(b, ox_2n(b, OP_gt, x, 1e4), far, r));
}

/* atanh x = (log1p(x) - log1p(-x)) / 2: the two have different signs, so nothing cancels. */
bool ox_atanh(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    nnc_ref back = ox_1(b, OP_log1p, ox_1(b, OP_neg, x));
    return ox_give(b, ox_2n(b, OP_mul, ox_2(b, OP_sub, ox_1(b, OP_log1p, x), back), 0.5));
}

/* ONNX Runtime's and ONNX's sign of -0 is 0. */
bool ox_sign(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), r = ox_1(b, OP_sign, x);
    return ox_give(b, nnc_is_float(ox_dt(b, x)) ? ox_2n(b, OP_add, r, 0) : r);
}

/* Not of numbers, as ONNX Runtime casts them: x = 0. */
bool ox_not(ox_build *b)
{
    return ox_give(b, ox_1(b, OP_not, ox_to(b, ox_in(b, 0), DT_bool)));
}

bool ox_isinf(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), r = ox_1(b, OP_isinf, x);
    bool neg = ox_int(b, "detect_negative", 1) != 0, pos = ox_int(b, "detect_positive", 1) != 0;
    if (neg && pos)
        return ox_give(b, r);
    nnc_ref side = neg ? ox_2n(b, OP_lt, x, 0) : ox_2n(b, OP_gt, x, 0);
    if (!neg && !pos)
        side = ox_2(b, OP_and, side, ox_2n(b, OP_lt, x, 0)); /* never */
    return ox_give(b, ox_2(b, OP_and, r, side));
}

bool ox_prelu(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), slope = ox_in(b, 1);
    if (b->opset < 7) /* of channels, or one number */
        slope = ox_per_index(b, slope, ox_type(b, x)->rank, 1);
    if (nnc_is_float(ox_dt(b, x)))
        return ox_give(b, ox_2(b, OP_prelu, x, slope));
    return ox_give(b, ox_select(b, ox_2n(b, OP_lt, x, 0), ox_2(b, OP_mul, x, slope), x));
}

/* ---- bits ------------------------------------------------------------------------------------ */

bool ox_bit_shift(ox_build *b)
{
    bool left = !strcmp(ox_word(b, "direction", ""), "LEFT");
    return ox_give(b, ox_2(b, left ? OP_shl : OP_shr, ox_in(b, 0), ox_in(b, 1)));
}

/* All bits of the other operand are 1. */
bool ox_bitwise_not(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), zero = ox_num(b, ox_dt(b, x), 0), one = ox_num(b, ox_dt(b, x), 1);
    return ox_give(b, ox_2(b, OP_bit_xor, x, ox_2(b, OP_sub, zero, one)));
}
