/* onnx/build_attention.c -- ONNX's Attention with its masks and caches, and RotaryEmbedding; what ONNX Runtime's share with them. */
#include "onnx/attention.h"
#include <math.h>
#include <string.h>

nnc_ref ox_by_head(ox_build *b, nnc_ref x, int64_t heads)
{
    const nnc_type t = *ox_type(b, x);
    if (t.rank == 4)
        return x;
    if (t.rank != 3 || heads < 1 || t.dim[2] % heads) {
        ox_wrong(b, "an operand has %d dimensions, and %lld heads", t.rank, (long long)heads);
        return NNC_NONE;
    }
    x = ox_reshape(b, x, 4, (int64_t[]){t.dim[0], t.dim[1], heads, t.dim[2] / heads});
    return ox_transposed(b, x, (int64_t[]){0, 2, 1, 3});
}

/* [batch, heads, rows, size] as the operands were. */
static nnc_ref as_given(ox_build *b, const attention *a, nnc_ref x)
{
    if (!a->flat || x == NNC_NONE)
        return x;
    x = ox_transposed(b, x, (int64_t[]){0, 2, 1, 3});
    const nnc_type t = *ox_type(b, x);
    return ox_reshape(b, x, 3, (int64_t[]){t.dim[0], t.dim[1], t.dim[2] * t.dim[3]});
}

/* The keys or values before this call, then x; result `out` of the node. */
static nnc_ref with_past(ox_build *b, nnc_ref x, int past, int out)
{
    nnc_ref v[2] = {ox_has(b, past) ? ox_in(b, past) : NNC_NONE, x};
    if (v[0] != NNC_NONE)
        x = ox_joined(b, 2, v, 2);
    ox_set(b, out, x);
    return x;
}

bool ox_attention_extents(ox_build *b, attention *a)
{
    if (a->q == NNC_NONE || a->k == NNC_NONE || a->v == NNC_NONE)
        return false;
    const nnc_type *q = ox_type(b, a->q), *k = ox_type(b, a->k);
    a->batch = q->dim[0];
    a->heads = q->dim[1];
    a->rows = q->dim[2];
    a->kv_heads = k->dim[1];
    a->cols = k->dim[2];
    if (a->kv_heads < 1 || a->heads % a->kv_heads || k->dim[0] != a->batch)
        return ox_wrong(b, "%lld heads of queries and %lld of keys do not fit", (long long)a->heads,
            (long long)a->kv_heads);
    a->share = a->heads / a->kv_heads;
    return true;
}

static bool read_operands(ox_build *b, attention *a)
{
    int64_t heads = ox_int(b, "q_num_heads", 0), kv_heads = ox_int(b, "kv_num_heads", 0);
    *a = (attention){.flat = ox_type(b, ox_in(b, 0))->rank == 3, .d = ox_dt(b, ox_in(b, 0))};
    a->allowed = a->bias = NNC_NONE;
    a->q = ox_by_head(b, ox_in(b, 0), heads);
    a->k = with_past(b, ox_by_head(b, ox_in(b, 1), kv_heads), 4, 1);
    a->v = with_past(b, ox_by_head(b, ox_in(b, 2), kv_heads), 5, 2);
    if (!ox_attention_extents(b, a))
        return false;
    a->offset = ox_num(b, DT_i32, 0);
    if (ox_has(b, 4))
        a->offset = ox_num(b, DT_i32, (double)ox_type(b, ox_in(b, 4))->dim[2]);
    else if (ox_has(b, 6)) /* a cache outside: so many of its keys are used */
        a->offset = ox_2n(b, OP_sub,
            ox_reshape(b, ox_to(b, ox_in(b, 6), DT_i32), 4, (int64_t[]){a->batch, 1, 1, 1}),
            (double)a->rows);
    return a->offset != NNC_NONE;
}

/* ---- masks ----------------------------------------------------------------------------------- */

void ox_attention_allow(ox_build *b, attention *a, nnc_ref condition)
{
    a->allowed = a->allowed == NNC_NONE ? condition : ox_2(b, OP_and, a->allowed, condition);
}

void ox_attention_positions(ox_build *b, const attention *a, nnc_ref *row, nnc_ref *col)
{
    *row = ox_2(b, OP_add, ox_along(b, ox_iota(b, DT_i32, a->rows), 4, 2), a->offset);
    *col = ox_along(b, ox_iota(b, DT_i32, a->cols), 4, 3);
}

/* A mask whose rows are shorter than the keys excludes those that it does not reach. */
static nnc_ref reach(ox_build *b, nnc_ref mask, int64_t cols)
{
    const nnc_type t = *ox_type(b, mask);
    int64_t pads[2 * NNC_MAX_RANK] = {0};
    int64_t missing = t.rank ? cols - t.dim[t.rank - 1] : 0;
    if (missing <= 0)
        return mask;
    pads[2 * t.rank - 1] = missing;
    nnc_attr a[2] = {
        nnc_av(AT_pads, 2 * t.rank, pads), nnc_af(AT_value, t.dtype == DT_bool ? 0 : -INFINITY)};
    return ox_op(b, OP_pad, 1, &mask, 2, a);
}

static void read_masks(ox_build *b, attention *a)
{
    int64_t left = ox_int(b, "left_window_size", -1), right = ox_int(b, "right_window_size", -1);
    bool causal = ox_int(b, "is_causal", 0) != 0;
    nnc_ref at, col;
    ox_attention_positions(b, a, &at, &col);
    a->can_be_empty = ox_has(b, 3) || ox_has(b, 6) || left >= 0;
    if (causal || right == 0)
        ox_attention_allow(b, a, ox_2(b, OP_le, col, at));
    if (right > 0 && !causal)
        ox_attention_allow(b, a, ox_2(b, OP_le, col, ox_2n(b, OP_add, at, (double)right)));
    if (left >= 0)
        ox_attention_allow(b, a, ox_2(b, OP_ge, col, ox_2n(b, OP_sub, at, (double)left)));
    if (ox_has(b, 6))
        ox_attention_allow(b, a, ox_2(b, OP_lt, col, ox_2n(b, OP_add, a->offset, (double)a->rows)));
    if (!ox_has(b, 3))
        return;
    nnc_ref mask = reach(b, ox_in(b, 3), a->cols);
    if (ox_dt(b, mask) == DT_bool)
        ox_attention_allow(b, a, mask);
    else
        a->bias = mask;
}

/* -inf where a pair takes no part. */
static nnc_ref masked(ox_build *b, const attention *a, nnc_ref score)
{
    nnc_ref never = ox_num(b, ox_dt(b, score), -INFINITY);
    if (a->bias != NNC_NONE) {
        nnc_ref bias = ox_to(b, a->bias, ox_dt(b, score));
        score = ox_select(b, ox_2n(b, OP_eq, bias, -INFINITY), never, ox_2(b, OP_add, score, bias));
    }
    return a->allowed == NNC_NONE ? score : ox_select(b, a->allowed, score, never);
}

/* Softmax of each row; a row of -inf gives zeros. */
static nnc_ref weights_of(ox_build *b, const attention *a, nnc_ref score)
{
    int64_t last = 3, code = ox_int(b, "softmax_precision", 0);
    nnc_dtype d = a->d;
    if (code && !ox_dtype(code, &d))
        return ox_refuse(b, "the type %s is unsupported", ox_dtype_name(code)), NNC_NONE;
    score = ox_to(b, score, d);
    nnc_ref p = ox_on_axis(b, OP_softmax, 1, &score, 3);
    if (a->can_be_empty) {
        nnc_ref top = ox_reduced(b, OP_reduce_max, score, 1, &last, true);
        p = ox_select(b, ox_2n(b, OP_eq, top, -INFINITY), ox_num(b, d, 0), p);
    }
    return ox_to(b, p, a->d);
}

/* ---- products -------------------------------------------------------------------------------- */

/* x y for each head; heads of queries that share a head of keys are rows of one product. */
static nnc_ref product(ox_build *b, const attention *a, nnc_ref x, nnc_ref y, bool transposed)
{
    const nnc_type t = *ox_type(b, x);
    int64_t d[4] = {a->batch, a->kv_heads, a->share * a->rows, t.dim[3]};
    nnc_ref v[2] = {a->share == 1 ? x : ox_reshape(b, x, 4, d), y};
    nnc_attr at = nnc_ai(AT_transpose_b, transposed);
    nnc_ref r = ox_op(b, OP_matmul, 2, v, 1, &at);
    if (r == NNC_NONE || a->share == 1)
        return r;
    return ox_reshape(b, r, 4, (int64_t[]){a->batch, a->heads, a->rows, ox_type(b, r)->dim[3]});
}

/* Queries times keys times the scale. In 16 bits both are scaled, by its root, so that no product overflows. */
static nnc_ref scores(ox_build *b, const attention *a)
{
    double scale = ox_float(b, "scale", 1 / sqrt((double)ox_type(b, a->q)->dim[3]));
    if (scale == 0 && *b->row->domain) /* ONNX Runtime's: by default */
        scale = 1 / sqrt((double)ox_type(b, a->q)->dim[3]);
    bool both = nnc_dtype_size(a->d) < 4 && scale > 0;
    if (both)
        scale = sqrt(scale);
    return product(
        b, a, ox_2n(b, OP_mul, a->q, scale), both ? ox_2n(b, OP_mul, a->k, scale) : a->k, true);
}

nnc_ref ox_attend(ox_build *b, const attention *a, nnc_ref step[4])
{
    double cap = ox_float(b, "softcap", 0);
    step[0] = step[1] = scores(b, a);
    if (cap > 0)
        step[1] = ox_2n(b, OP_mul, ox_1(b, OP_tanh, ox_2n(b, OP_div, step[0], cap)), cap);
    step[2] = step[1] == NNC_NONE ? NNC_NONE : masked(b, a, step[1]);
    step[3] = step[2] == NNC_NONE ? NNC_NONE : weights_of(b, a, step[2]);
    return step[3] == NNC_NONE ? NNC_NONE : as_given(b, a, product(b, a, step[3], a->v, false));
}

bool ox_attention(ox_build *b)
{
    attention a;
    nnc_ref step[4];
    int64_t mode = ox_int(b, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
        return ox_wrong(b, "qk_matmul_output_mode is %lld", (long long)mode);
    if (!read_operands(b, &a))
        return false;
    read_masks(b, &a);
    return ox_give(b, ox_attend(b, &a, step)) && ox_set(b, 3, ox_to(b, step[mode], a.d));
}

/* ---- positions ------------------------------------------------------------------------------- */

/* Rows of the table for each batch and position, as [batch, 1, rows, half]. */
static nnc_ref angles(ox_build *b, int i, const nnc_type *x, int64_t half)
{
    nnc_ref v[2] = {ox_in(b, i), ox_has(b, 3) ? ox_in(b, 3) : NNC_NONE};
    if (ox_has(b, 3))
        v[0] = ox_on_axis(b, OP_gather, 2, v, 0);
    if (v[0] == NNC_NONE)
        return v[0];
    const nnc_type t = *ox_type(b, v[0]);
    if (t.rank != 3 || t.dim[2] != half || t.dim[1] != x->dim[2])
        return ox_wrong(b, "its tables do not fit its input"), NNC_NONE;
    return ox_reshape(b, v[0], 4, (int64_t[]){t.dim[0], 1, t.dim[1], half});
}

/* Pairs (u, v) of each head are turned: (u cos - v sin, u sin + v cos). */
nnc_ref ox_turned(ox_build *b, nnc_ref x, nnc_ref c, nnc_ref s, int64_t n, bool near)
{
    const nnc_type t = *ox_type(b, x);
    const int64_t half = n / 2;
    nnc_ref turn = ox_slice(b, x, 3, 0, n), u, v;
    int64_t pairs[5] = {t.dim[0], t.dim[1], t.dim[2], half, 2}, one[4] = {0, 0, 0, 0};
    memcpy(one, pairs, sizeof one);
    if (near)
        turn = ox_reshape(b, turn, 5, pairs);
    u = near ? ox_reshape(b, ox_slice(b, turn, 4, 0, 1), 4, one) : ox_slice(b, turn, 3, 0, half);
    v = near ? ox_reshape(b, ox_slice(b, turn, 4, 1, 2), 4, one) : ox_slice(b, turn, 3, half, n);
    nnc_ref to[3] = {ox_2(b, OP_sub, ox_2(b, OP_mul, u, c), ox_2(b, OP_mul, v, s)),
        ox_2(b, OP_add, ox_2(b, OP_mul, u, s), ox_2(b, OP_mul, v, c))};
    pairs[4] = 1;
    for (int i = 0; i < 2 && near; i++)
        to[i] = ox_reshape(b, to[i], 5, pairs);
    nnc_ref r[2] = {ox_joined(b, 2, to, near ? 4 : 3)};
    one[3] = n;
    r[0] = near ? ox_reshape(b, r[0], 4, one) : r[0];
    if (n < t.dim[3]) {
        r[1] = ox_slice(b, x, 3, n, t.dim[3]);
        r[0] = ox_joined(b, 2, r, 3);
    }
    return r[0];
}

bool ox_rotary(ox_build *b)
{
    attention a = {.flat = ox_type(b, ox_in(b, 0))->rank == 3};
    nnc_ref x = ox_by_head(b, ox_in(b, 0), ox_int(b, "num_heads", 0));
    if (x == NNC_NONE)
        return false;
    const nnc_type t = *ox_type(b, x);
    int64_t n = ox_int(b, "rotary_embedding_dim", 0);
    n = n ? n : t.dim[3];
    if (n < 2 || n % 2 || n > t.dim[3])
        return ox_wrong(b, "%lld of %lld numbers are turned", (long long)n, (long long)t.dim[3]);
    nnc_ref c = angles(b, 1, &t, n / 2), s = angles(b, 2, &t, n / 2);
    if (c == NNC_NONE || s == NNC_NONE)
        return false;
    return ox_give(b, as_given(b, &a, ox_turned(b, x, c, s, n, ox_int(b, "interleaved", 0) != 0)));
}
