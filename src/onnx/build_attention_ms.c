/* onnx/build_attention_ms.c -- attention as ONNX Runtime's operators have it: Attention and QAttention of one input, MultiHeadAttention,
 * GroupQueryAttention, RotaryEmbedding. */
#include "onnx/attention.h"

/* Refuses attributes that are not 0, their default. */
static bool all_0(ox_build *b, int n, const char *const *name)
{
    for (int i = 0; i < n; i++)
        if (ox_int(b, name[i], 0))
            return ox_refuse(b, "%s is unsupported", name[i]);
    return true;
}

static void add_bias(ox_build *b, attention *a, nnc_ref x)
{
    a->bias = a->bias == NNC_NONE ? x : ox_2(b, OP_add, a->bias, x);
}

/* Adds mask_filter_value to the scores of keys that mask i excludes. The mask has a number for each key, or the ends of all sequences and
 * perhaps their starts behind these. */
static bool add_mask(ox_build *b, attention *a, int i)
{
    nnc_ref row, col, mask = ox_in(b, i), in;
    const nnc_type t = *ox_type(b, mask);
    const int64_t one[4] = {a->batch, 1, 1, 1};
    ox_attention_positions(b, a, &row, &col);
    if (t.rank == 1 && (t.dim[0] == a->batch || t.dim[0] == 2 * a->batch)) {
        in = ox_2(b, OP_lt, col, ox_reshape(b, ox_slice(b, mask, 0, 0, a->batch), 4, one));
        if (t.dim[0] > a->batch)
            in = ox_2(b, OP_and, in,
                ox_2(b, OP_ge, col,
                    ox_reshape(b, ox_slice(b, mask, 0, a->batch, 2 * a->batch), 4, one)));
    } else if (t.rank == 2 || t.rank == 3) {
        const int64_t d[4] = {t.dim[0], 1, t.rank == 2 ? 1 : t.dim[1], t.dim[t.rank - 1]};
        in = ox_reshape(b, ox_2n(b, OP_gt, mask, 0), 4, d);
    } else {
        return ox_refuse(b, "a mask of %d dimensions, the first of %lld, is unsupported", t.rank,
            (long long)(t.rank ? t.dim[0] : 1));
    }
    const double filter = ox_float(b, "mask_filter_value", -10000);
    add_bias(b, a, ox_select(b, in, ox_num(b, a->d, 0), ox_num(b, a->d, filter)));
    return true;
}

/* Adds the masks and biases that the operators share, and gives the result. */
static bool finish(ox_build *b, attention *a, int mask, int bias)
{
    nnc_ref row, col, step[4];
    a->flat = true;
    a->bias = a->allowed = NNC_NONE;
    if (!ox_attention_extents(b, a))
        return false;
    a->offset = ox_num(b, DT_i32, (double)(a->cols - a->rows));
    if (ox_int(b, "unidirectional", 0)) {
        ox_attention_positions(b, a, &row, &col);
        ox_attention_allow(b, a, ox_2(b, OP_le, col, row));
    }
    if (ox_has(b, mask) && !add_mask(b, a, mask))
        return false;
    if (ox_has(b, bias))
        add_bias(b, a, ox_in(b, bias));
    return ox_give(b, ox_attend(b, a, step));
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Queries, keys and values lie side by side in x. past: keys and values before, [2, batch, heads, rows, size]; with these, result 1. */
static bool self_attention(ox_build *b, nnc_ref x, int mask, int past, int bias)
{
    static const char *const none[] = {"do_rotary", "past_present_share_buffer"};
    const int64_t heads = ox_int(b, "num_heads", 0);
    int64_t size[3] = {0};
    int n;
    attention a = {.d = ox_dt(b, x)};
    if (x == NNC_NONE || !all_0(b, 2, none))
        return false;
    const nnc_type t = *ox_type(b, x);
    if (t.rank != 3)
        return ox_wrong(b, "its input has %d dimensions; 3 are expected", t.rank);
    if (!ox_ints(b, "qkv_hidden_sizes", 3, &n, size))
        size[0] = size[1] = size[2] = t.dim[2] / 3;
    bool fits = !b->x->status;
    for (int i = 0; i < 3; i++)
        fits = fits && size[i] > 0 && size[i] <= t.dim[2];
    if (!fits || size[0] + size[1] + size[2] != t.dim[2])
        return ox_wrong(b, "its weights do not fit qkv_hidden_sizes");
    a.q = ox_by_head(b, ox_slice(b, x, 2, 0, size[0]), heads);
    nnc_ref *to[2] = {&a.k, &a.v}, both[2];
    for (int i = 0; i < 2; i++) {
        const int64_t at = size[0] + (i ? size[1] : 0);
        both[i] = ox_by_head(b, ox_slice(b, x, 2, at, at + size[1 + i]), heads);
        if (ox_has(b, past)) {
            const nnc_type p = *ox_type(b, ox_in(b, past));
            nnc_ref v[2] = {
                ox_reshape(b, ox_slice(b, ox_in(b, past), 0, i, i + 1), 4, p.dim + 1), both[i]};
            both[i] = ox_joined(b, 2, v, 2);
        }
        *to[i] = both[i];
        if (both[i] != NNC_NONE && ox_wants(b, 1))
            both[i] = ox_add_dim(b, both[i], 0);
    }
    if (ox_wants(b, 1) && !ox_set(b, 1, ox_joined(b, 2, both, 0)))
        return false;
    return finish(b, &a, mask, bias);
}

bool ox_ms_attention(ox_build *b)
{
    if (ox_has(b, 6))
        return ox_refuse(b, "past_sequence_length is unsupported");
    nnc_ref x = ox_2(b, OP_matmul, ox_in(b, 0), ox_in(b, 1));
    return self_attention(b, ox_has(b, 2) ? ox_2(b, OP_add, x, ox_in(b, 2)) : x, 3, 4, 5);
}

bool ox_qattention(ox_build *b)
{
    const nnc_ref v[7] = {ox_in(b, 0), ox_in(b, 3), ox_optional(b, 6), ox_in(b, 1), ox_in(b, 4),
        ox_optional(b, 7), ox_in(b, 2)};
    return self_attention(b, ox_integer_product(b, v), 5, 8, 9);
}

/* ---- queries, keys and values ---------------------------------------------------------------- */

/* Part i of n of x [batch, rows, heads, n, size], as [batch, rows, heads * size]. */
static nnc_ref packed_part(ox_build *b, nnc_ref x, int i)
{
    const nnc_type t = *ox_type(b, x);
    return ox_reshape(
        b, ox_slice(b, x, 3, i, i + 1), 3, (int64_t[]){t.dim[0], t.dim[1], t.dim[2] * t.dim[4]});
}

bool ox_multi_head_attention(ox_build *b)
{
    const int64_t heads = ox_int(b, "num_heads", 0);
    nnc_ref v[3] = {ox_in(b, 0), ox_optional(b, 1), ox_optional(b, 2)};
    attention a = {.d = ox_dt(b, v[0])};
    if (ox_has(b, 8) || ox_has(b, 9))
        return ox_refuse(b, "a cache of another length than its keys' is unsupported");
    const int from = ox_type(b, v[0])->rank == 5 ? 0 : 1; /* the first of those that are packed */
    if (ox_type(b, v[from])->rank == 5)
        for (int i = 2; i >= from; i--)
            v[i] = packed_part(b, v[from], i - from);
    if (v[1] == NNC_NONE || v[2] == NNC_NONE)
        return ox_wrong(b, "it has no keys or no values");
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const nnc_type t = *ox_type(b, v[i]);
        if (t.rank == 3 && ox_has(b, 3)) {
            const int64_t end = at + t.dim[2];
            v[i] = ox_2(b, OP_add, v[i], ox_slice(b, ox_in(b, 3), 0, at, end));
            at = end;
        }
        v[i] = ox_by_head(b, v[i], heads);
        if (i && ox_has(b, 5 + i)) {
            nnc_ref both[2] = {ox_in(b, 5 + i), v[i]};
            v[i] = ox_joined(b, 2, both, 2);
        }
        if (i && ox_wants(b, i) && !ox_set(b, i, v[i]))
            return false;
    }
    a.q = v[0];
    a.k = v[1];
    a.v = v[2];
    return finish(b, &a, 4, 5);
}

/* ---- groups of queries ----------------------------------------------------------------------- */

typedef struct cache { /* keys or values before, and now */
    int64_t rows, old, all; /* new rows, those of the old cache, those of the new one */
    bool plain; /* the new rows come right behind the old cache */
    nnc_ref offset; /* [batch, 1, 1, 1] or one number: where the new rows go */
} cache;

/* x, [batch, heads, rows, size], put into the cache of input i at the offset. */
static nnc_ref cached(ox_build *b, const cache *c, int i, nnc_ref x)
{
    nnc_ref v[2] = {ox_optional(b, i), x};
    if (c->old == 0 && c->all == c->rows)
        return x;
    if (c->old)
        x = ox_joined(b, 2, v, 2);
    if (c->plain || x == NNC_NONE)
        return x;
    nnc_type t = *ox_type(b, x);
    t.dim[2] = c->all;
    nnc_ref to = ox_along(b, ox_iota(b, DT_i32, c->all), 4, 2);
    nnc_ref at = ox_2(b, OP_sub, to, c->offset);
    nnc_ref ahead = ox_2n(b, OP_lt, at, 0), after = ox_2n(b, OP_ge, at, (double)c->rows);
    nnc_ref kept = ox_2n(b, OP_min, to, (double)(c->old + c->rows - 1));
    nnc_ref from = ox_select(b, ahead, kept,
        ox_2n(b, OP_add, ox_2n(b, OP_min, at, (double)(c->rows - 1)), (double)c->old));
    nnc_ref g[2] = {x, ox_broadcast(b, ox_to(b, from, DT_i64), 4, t.dim)};
    return ox_select(b, after, ox_num(b, t.dtype, 0), ox_on_axis(b, OP_gather_elements, 2, g, 2));
}

/* x turned by rows `at`, [batch or 1, rows], of the tables i and i + 1. */
static nnc_ref turned_at(ox_build *b, nnc_ref x, int i, nnc_ref at, const char *near)
{
    nnc_ref table[2];
    int64_t half = 0;
    for (int k = 0; k < 2; k++) {
        nnc_ref v[2] = {ox_in(b, i + k), at};
        table[k] = ox_on_axis(b, OP_gather, 2, v, 0);
        if (table[k] == NNC_NONE)
            return NNC_NONE;
        const nnc_type t = *ox_type(b, table[k]);
        if (t.rank != 3)
            return ox_wrong(b, "its tables have %d dimensions", t.rank - 1), NNC_NONE;
        half = t.dim[2];
        table[k] = ox_add_dim(b, table[k], 1);
    }
    if (2 * half > ox_type(b, x)->dim[3])
        return ox_wrong(b, "its tables do not fit its input"), NNC_NONE;
    return ox_turned(b, x, table[0], table[1], 2 * half, ox_int(b, near, 0) != 0);
}

/* Rows `first`, first + 1, ...; first: a number, or [batch, 1, 1, 1]. */
static nnc_ref rows_from(ox_build *b, nnc_ref first, int64_t n)
{
    nnc_ref at = ox_2(b, OP_add, ox_along(b, ox_iota(b, DT_i32, n), 4, 2), first);
    return at == NNC_NONE ? at : ox_reshape(b, at, 2, (int64_t[]){ox_type(b, at)->dim[0], n});
}

/* The operands by their heads: side by side in input 0, or three inputs. */
static bool read_groups(ox_build *b, attention *a)
{
    const int64_t heads = ox_int(b, "num_heads", 0), own = ox_int(b, "kv_num_heads", 0);
    nnc_ref v[3] = {ox_in(b, 0), ox_optional(b, 1), ox_optional(b, 2)};
    const nnc_type t = *ox_type(b, v[0]);
    if (heads < 1 || own < 1 || heads > NNC_MAX_STEP || own > NNC_MAX_STEP || t.rank != 3 ||
        (ox_has(b, 1) != ox_has(b, 2)))
        return ox_wrong(b, "its heads or operands do not fit");
    if (!ox_has(b, 1) && t.dim[2] % (heads + 2 * own))
        return ox_wrong(
            b, "%lld numbers are not as many for each of its heads", (long long)t.dim[2]);
    if (!ox_has(b, 1)) {
        const int64_t size = t.dim[2] / (heads + 2 * own);
        for (int i = 2; i >= 0; i--)
            v[i] = ox_slice(
                b, v[0], 2, i ? (heads + (i - 1) * own) * size : 0, (heads + i * own) * size);
    }
    a->q = ox_by_head(b, v[0], heads);
    a->k = ox_by_head(b, v[1], own);
    a->v = ox_by_head(b, v[2], own);
    a->flat = true;
    a->bias = a->allowed = NNC_NONE;
    return ox_attention_extents(b, a);
}

bool ox_group_query_attention(ox_build *b)
{
    static const char *const none[] = {
        "smooth_softmax", "qk_output", "sliding_window_cache", "kv_cache_bit_width"};
    attention a = {.d = ox_dt(b, ox_in(b, 0))};
    const int64_t window = ox_int(b, "local_window_size", -1);
    int64_t total;
    nnc_ref row, col, step[4];
    if (!all_0(b, 4, none) || !ox_const_int(b, 6, &total) || !read_groups(b, &a))
        return false;
    if (!ox_has(b, 5) || ox_has(b, 3) != ox_has(b, 4))
        return ox_wrong(b, "it has no lengths, or keys without values before");
    if (total < a.rows || total > NNC_MAX_STEP)
        return ox_wrong(b, "%lld keys of %lld new rows", (long long)total, (long long)a.rows);
    cache c = {.rows = a.rows, .old = ox_has(b, 3) ? ox_type(b, ox_in(b, 3))->dim[2] : 0};
    const bool first = total == a.rows;
    c.all = nnc_max64(c.old, total);
    c.plain = a.batch == 1 && total == c.old + a.rows;
    if (!first && c.old == 0)
        return ox_refuse(b, "%lld keys, and no cache", (long long)total);
    c.offset =
        first ? ox_num(b, DT_i32, 0)
        : c.plain
            ? ox_num(b, DT_i32, (double)c.old)
            : ox_2n(b, OP_add,
                  ox_reshape(b, ox_to(b, ox_in(b, 5), DT_i32), 4, (int64_t[]){a.batch, 1, 1, 1}),
                  (double)(1 - a.rows));
    if (ox_int(b, "do_rotary", 0)) {
        if (!ox_has(b, 7) || !ox_has(b, 8))
            return ox_wrong(b, "it has no tables of angles");
        nnc_ref at = ox_has(b, 9) ? ox_in(b, 9) : rows_from(b, c.offset, a.rows);
        a.q = turned_at(b, a.q, 7, at, "rotary_interleaved");
        a.k = turned_at(b, a.k, 7, at, "rotary_interleaved");
    }
    a.k = cached(b, &c, 3, a.k);
    a.v = cached(b, &c, 4, a.v);
    a.offset = c.offset;
    if (!ox_set(b, 1, a.k) || !ox_set(b, 2, a.v) || !ox_attention_extents(b, &a))
        return false;
    ox_attention_positions(b, &a, &row, &col);
    if (ox_int(b, "causal", 1))
        ox_attention_allow(b, &a, ox_2(b, OP_le, col, row));
    if (window > 0)
        ox_attention_allow(b, &a, ox_2(b, OP_gt, col, ox_2n(b, OP_sub, row, (double)window)));
    if (ox_has(b, 10))
        a.bias = ox_in(b, 10);
    return ox_give(b, ox_attend(b, &a, step));
}

/* ---- positions ------------------------------------------------------------------------------- */

/* Positions are those of each number, or of the first. */
bool ox_ms_rotary(ox_build *b)
{
    static const char *const none[] = {"is_packed_batching"};
    const nnc_type t = *ox_type(b, ox_in(b, 0)), at = *ox_type(b, ox_in(b, 1)),
                   table = *ox_type(b, ox_in(b, 2));
    int64_t heads = ox_int(b, "num_heads", 0);
    if (!all_0(b, 1, none))
        return false;
    if (ox_float(b, "scale", 1) != 1)
        return ox_refuse(b, "scale is unsupported");
    if (t.rank == 3 && !heads && table.rank == 2)
        heads = t.dim[2] / (2 * table.dim[1]);
    nnc_ref x = ox_by_head(b, ox_in(b, 0), heads);
    if (x == NNC_NONE)
        return false;
    const int64_t rows = ox_type(b, x)->dim[2];
    nnc_ref place = at.rank == 2
                        ? ox_in(b, 1)
                        : rows_from(b, ox_to(b, ox_reshape(b, ox_in(b, 1), 0, NULL), DT_i32), rows);
    x = turned_at(b, x, 2, place, "interleaved");
    if (t.rank == 4 || x == NNC_NONE)
        return ox_give(b, x);
    return ox_give(b, ox_reshape(b, ox_transposed(b, x, (int64_t[]){0, 2, 1, 3}), 3, t.dim));
}
