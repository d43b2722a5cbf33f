/* kernel/trace_contract.c -- contractions as loop nests: each result is a sum of products of two operands, over axes of its own.
 *
 *   matmul, linear    k.
 *   conv              The channels of a group, then the window's elements.
 *   conv_transpose    The channels of a group, then per dimension the window's elements t that meet a result. Result p is the sum over
 *                     all t and source indices q with q stride + t dilation = p + pad. Results whose p is the same modulo the
 *                     stride (a phase) meet the same elements. The trace asks for each phase apart (nx_phases), which is a
 *                     convolution. Where that is impossible, guards tell which of all pairs (q, t) meet.
 *   conv_wgrad        The images, then the places of dy.
 *
 * maxpool_grad: as a transposed convolution of each channel. Its term is the gradient of result q where t is the index of its largest
 * element, else 0.
 *
 * Elements outside the source count as 0. Depthwise convolutions are computed like this where the target says so; others where no engine
 * supports them. */
#include "kernel/trace.h"

#include <string.h>

static const nnc_type *type_of(const nx *t, nnc_ref v)
{
    return nnc_typeof(t->g, v);
}

static bool is_product(const nnc_node *n)
{
    return n->op == OP_matmul || n->op == OP_linear;
}

/* Attributes of a convolution along spatial dimension d. */
typedef struct step {
    int64_t stride, dilation, pad;
} step;

static step step_of(const nnc_node *n, int d)
{
    const int64_t *s = NULL, *p = NULL, *l = NULL;
    int ns = nnc_attr_ints(n, AT_strides, &s), np = nnc_attr_ints(n, AT_pads, &p);
    int nl = nnc_attr_ints(n, AT_dilations, &l);
    return (step){ns ? s[d] : 1, nl ? l[d] : 1, np ? p[d] : 0};
}

bool nx_is_transposed(const nnc_node *n)
{
    return n->op == OP_conv_transpose || n->op == OP_maxpool_grad;
}

/* Number of the window's elements along spatial dimension d. */
static int64_t taps_of(const nx *t, const nnc_node *n, int d)
{
    const int64_t *kernel;
    return nnc_attr_ints(n, AT_kernel, &kernel) ? kernel[d] : type_of(t, n->in[1])->dim[d + 2];
}

/* Steps j = 0 .. n-1 that a transposed convolution sums along a dimension for results at index e, with e + pad = stride q + rest. q is 0 if
 * the source is shorter than the window. */
typedef struct steps {
    nnc_affine q, rest; /* the source index is q + q0 + qj j */
    int64_t n, q0, qj;
    int64_t t0,
        tj; /* the window's element is t0 + tj j with `phase`; otherwise any, or chosen by guards */
    bool phase; /* rest is a number: equal for all results */
} steps;

static steps steps_of(const nx *t, const nnc_node *n, int d, const nnc_affine *e)
{
    step s = step_of(n, d);
    int64_t lo, hi, least, most, taps = taps_of(t, n, d);
    int64_t source = type_of(t, n->in[0])->dim[d + 2];
    bool alone = s.stride == 1 && s.dilation == 1 && source < taps;
    steps p = {.rest = {.c = e->c + s.pad}, .qj = -1};
    for (int a = 0; a < NNC_KAXES; a++) {
        bool rest = alone || e->k[a] % s.stride;
        *(rest ? &p.rest.k[a] : &p.q.k[a]) = rest ? e->k[a] : e->k[a] / s.stride;
    }
    p.q.c = alone ? 0 : nnc_floordiv(p.rest.c, s.stride);
    p.rest.c -= p.q.c * s.stride;
    nx_span(t, &p.rest, &lo, &hi);
    p.phase = lo == hi && !alone;
    if (!p.phase) { /* all j with stride (j - q0) = t dilation - rest for some t, and with a source index */
        nx_span(t, &p.q, &least, &most);
        p.q0 = nnc_min64(nnc_floordiv(hi, s.stride), source - 1 - least);
        p.n = nnc_min64(nnc_floordiv((taps - 1) * s.dilation - lo, s.stride), most) + p.q0 + 1;
        p.n = nnc_max64(p.n, 0);
        return p;
    }
    while (p.t0 < taps && (p.t0 * s.dilation - lo) % s.stride)
        p.t0++;
    p.tj = s.stride / nnc_gcd(s.stride, s.dilation);
    p.n = nnc_ceildiv(taps - p.t0, p.tj);
    p.q0 = (lo - p.t0 * s.dilation) / s.stride;
    p.qj = -p.tj * s.dilation / s.stride;
    return p;
}

/* Are the window's elements a separate axis of the sum? */
static bool over_window(const nnc_node *n, int d, const steps *p)
{
    return !p->phase && step_of(n, d).dilation > 1;
}

bool nx_phases(nx *t, const nnc_node *n, const nnc_affine *idx)
{
    enum { APART = 16 }; /* most phases with separate loop nests, each with its own machine code */
    int rank = type_of(t, n->in[1])->rank - 2;
    int64_t phases = 1;
    bool asked = false;
    for (int d = 0; d < rank && phases <= APART; d++)
        phases *= nnc_min64(step_of(n, d).stride, APART + 1);
    for (int d = 0; d < rank; d++)
        if (step_of(n, d).stride > 1 && !steps_of(t, n, d, &idx[d + 2]).phase)
            asked |= nx_residues(t, &idx[d + 2], step_of(n, d).stride, phases <= APART);
    return asked;
}

/* Input channels per group. */
static int64_t each_of(const nx *t, const nnc_node *n)
{
    if (n->op == OP_maxpool_grad)
        return 1;
    return type_of(t, n->in[0])->dim[1] / nnc_attr_int(n, AT_groups, 1);
}

int nx_summed(const nx *t, const nnc_node *n, const nnc_affine *idx, int64_t *dim)
{
    const nnc_type *x = type_of(t, n->in[0]), *w = type_of(t, n->in[1]);
    int k = 0;
    if (is_product(n)) {
        bool turned = n->op == OP_matmul && nnc_attr_int(n, AT_transpose_a, 0) != 0;
        dim[0] = x->dim[x->rank - 1 - turned];
        return 1;
    }
    if (n->op == OP_conv_wgrad) {
        dim[0] = w->dim[0];
        memcpy(dim + 1, w->dim + 2, sizeof *dim * (w->rank - 2u));
        return w->rank - 1;
    }
    if (each_of(t, n) > 1)
        dim[k++] = each_of(t, n);
    for (int d = 0; d < w->rank - 2; d++) {
        steps p = {0};
        if (nx_is_transposed(n)) {
            p = steps_of(t, n, d, &idx[d + 2]);
            dim[k++] = p.n;
        }
        if (n->op == OP_conv || over_window(n, d, &p))
            dim[k++] = taps_of(t, n, d);
    }
    return k;
}

/* ---- where the operands are read ------------------------------------------------------------------------------------- */

/* Group and index within it of an output channel; false: not possible as loops, or a restart. */
static bool group_of(
    nx *t, const nnc_node *n, const nnc_affine *channel, nnc_affine *group, nnc_affine *place)
{
    const int64_t groups = nnc_attr_int(n, AT_groups, 1),
                  each = type_of(t, n->out)->dim[n->op != OP_conv_wgrad] / groups;
    *group = *place = (nnc_affine){0};
    if (groups == 1)
        *place = *channel;
    else if (each == 1)
        *group = *channel;
    else if (!nx_divide(t, channel, each, group, place))
        return nx_fail(t, n->out,
                   "has several outputs per group, at indices that loops cannot compute") == 0;
    return true;
}

/* The input channel of a convolution. Advances `win` to its first spatial map. */
static bool input_channel(nx *t, const nnc_node *n, const nnc_affine *channel,
    const nnc_affine *const **win, nnc_affine *in)
{
    nnc_affine group, place;
    if (!group_of(t, n, channel, &group, &place))
        return false;
    *in = (nnc_affine){0};
    nnc_affine_add(in, &group, each_of(t, n));
    if (each_of(t, n) > 1)
        nnc_affine_add(in, *(*win)++, 1);
    return true;
}

/* Source index and window element of a transposed convolution along dimension d; `e`: the result's index. Returns the guards under which
 * they meet, except for the source's bounds. -2: out of memory. */
static int32_t transposed_place(nx *t, const nnc_node *n, int d, const nnc_affine *e,
    const nnc_affine *const **win, nnc_affine *q, nnc_affine *tap, int32_t guard)
{
    step s = step_of(n, d);
    steps p = steps_of(t, n, d, e);
    const nnc_affine *j = *(*win)++;
    *q = p.q;
    q->c += p.q0;
    nnc_affine_add(q, j, p.qj);
    *tap = (nnc_affine){.c = p.t0};
    if (p.phase) {
        nnc_affine_add(tap, j, p.tj);
        return guard;
    }
    nnc_affine at = p.rest; /* the window's element times the dilation */
    nnc_affine_add(&at, j, s.stride);
    at.c -= p.q0 * s.stride;
    if (!over_window(n, d, &p)) {
        *tap = at;
        return nx_guard(t, guard, tap, 0, taps_of(t, n, d));
    }
    *tap = **(*win)++;
    nnc_affine_add(&at, tap, -s.dilation);
    return nx_guard(t, guard, &at, 0, 1);
}

static const nnc_affine *product_source(
    nx *t, const nnc_node *n, const nnc_affine *idx, const nnc_affine *k)
{
    const nnc_type *x = type_of(t, n->in[0]), *y = type_of(t, n->out);
    nnc_affine *in = nx_maps(t, x->rank);
    if (!in)
        return NULL;
    if (n->op == OP_linear) {
        memcpy(in, idx, sizeof *in * (x->rank - 1u));
        in[x->rank - 1] = *k;
        return in;
    }
    bool turned = nnc_attr_int(n, AT_transpose_a, 0) != 0;
    for (int d = 0; d < x->rank - 2; d++)
        if (x->dim[d] != 1)
            in[d] = idx[d + y->rank - x->rank];
    in[x->rank - 2 + turned] = idx[y->rank - 2];
    in[x->rank - 1 - turned] = *k;
    return in;
}

/* Element t of the window of channel c at place p of image n reads x[n, c, p stride + t dilation - pad]. */
static const nnc_affine *wgrad_source(
    nx *t, const nnc_node *n, const nnc_affine *idx, const nnc_affine *const *win, int32_t *guard)
{
    const nnc_type *x = type_of(t, n->in[0]);
    nnc_affine group, place, *in = nx_maps(t, x->rank);
    if (!in || !group_of(t, n, &idx[0], &group, &place))
        return NULL;
    in[0] = *win[0];
    in[1] = idx[1];
    nnc_affine_add(&in[1], &group, each_of(t, n));
    for (int d = 0; d < x->rank - 2; d++) {
        const step s = step_of(n, d);
        in[d + 2].c = -s.pad;
        nnc_affine_add(&in[d + 2], win[d + 1], s.stride);
        nnc_affine_add(&in[d + 2], &idx[d + 2], s.dilation);
        if ((*guard = nx_guard(t, *guard, &in[d + 2], 0, x->dim[d + 2])) == -2)
            return NULL;
    }
    return in;
}

const nnc_affine *nx_source(nx *t, const nnc_node *n, const nnc_affine *idx,
    const nnc_affine *const *win, int32_t *guard, const nnc_affine **start)
{
    const nnc_type *x = type_of(t, n->in[0]);
    if (is_product(n))
        return product_source(t, n, idx, win[0]);
    if (n->op == OP_conv_wgrad)
        return wgrad_source(t, n, idx, win, guard);
    nnc_affine channel = idx[1], tap;
    if (n->op != OP_maxpool_grad && !input_channel(t, n, &idx[1], &win, &channel))
        return NULL;
    if (n->op == OP_conv) {
        nnc_affine *in = nx_window(t, n, idx, win, guard, start);
        if (in)
            in[1] = channel;
        return in;
    }
    nnc_affine *in = nx_maps(t, x->rank);
    if (!in)
        return NULL;
    in[0] = idx[0];
    in[1] = channel;
    for (int d = 0; d < x->rank - 2; d++) {
        *guard = transposed_place(t, n, d, &idx[d + 2], &win, &in[d + 2], &tap, *guard);
        if (*guard != -2)
            *guard = nx_guard(t, *guard, &in[d + 2], 0, x->dim[d + 2]);
        if (*guard == -2)
            return NULL;
    }
    return in;
}

/* The map of the second operand, and the guards under which it is inside. */
static bool weight_place(nx *t, const nnc_node *n, const nnc_affine *idx,
    const nnc_affine *const *win, nnc_affine *at, int32_t *guard)
{
    const nnc_type *w = type_of(t, n->in[1]), *y = type_of(t, n->out);
    nnc_affine group, place, q;
    if (n->op == OP_linear) {
        at[0] = idx[y->rank - 1];
        at[1] = *win[0];
        return true;
    }
    if (n->op == OP_matmul) {
        bool turned = nnc_attr_int(n, AT_transpose_b, 0) != 0;
        for (int d = 0; d < w->rank - 2; d++)
            if (w->dim[d] != 1)
                at[d] = idx[d + y->rank - w->rank];
        at[w->rank - 2 + turned] = *win[0];
        at[w->rank - 1 - turned] = idx[y->rank - 1];
        return true;
    }
    if (n->op == OP_conv_wgrad) {
        at[0] = *win[0];
        at[1] = idx[0];
        for (int d = 2; d < w->rank; d++)
            at[d] = *win[d - 1];
        return true;
    }
    bool conv = n->op == OP_conv;
    if (!conv && !group_of(t, n, &idx[1], &group, &place))
        return false;
    at[0] = idx[1];
    if (!conv) {
        at[1] = place;
        at[0] = (nnc_affine){0};
        nnc_affine_add(&at[0], &group, each_of(t, n));
    }
    if (each_of(t, n) > 1)
        nnc_affine_add(&at[conv], *win++, 1);
    for (int d = 0; d < w->rank - 2 && *guard != -2; d++) {
        if (conv)
            at[d + 2] = *win[d];
        else
            *guard = transposed_place(t, n, d, &idx[d + 2], &win, &q, &at[d + 2], *guard);
    }
    return *guard != -2;
}

/* dy if the largest element of its window is the term's element, otherwise 0. `at`: that element's index in each spatial dimension, from
 * the third on. */
static int32_t of_largest(
    nx *t, nx_place p, const nnc_node *n, int32_t dy, int32_t index, const nnc_affine *at)
{
    nnc_affine tap = {0};
    for (int d = 0; d < type_of(t, n->out)->rank - 2; d++) {
        nnc_affine all = {0};
        nnc_affine_add(&all, &tap, taps_of(t, n, d));
        nnc_affine_add(&all, &at[d + 2], 1);
        tap = all;
    }
    p.axes |= nx_axes(&tap, 1);
    nnc_dtype d = nx_dtype(t, n->out);
    int32_t is = nx_sop(t, p, SC_eq, DT_bool, index, nx_index(t, p, &tap), -1);
    return nx_sop(t, p, SC_select, d, is, dy, nx_const(t, d, 0));
}

/* A factor that the kernel of a 16-bit contraction computes is rounded to its type, as in memory: tensor cores multiply that type. */
static int32_t rounded(nx *t, int ctx, const nnc_node *n, int32_t x)
{
    const nnc_dtype d = (nnc_dtype)type_of(t, n->in[0])->dtype;
    if (n->op == OP_matmul || !nnc_attr_int(n, AT_as_kernel, 0) || nnc_kdtype(d) == d ||
        t->ins[x].k.op == KO_load || (t->ins[x].k.op == KO_sop && t->ins[x].k.cast_to == d))
        return x;
    const int32_t y = nx_sop(t, nx_beside(t, ctx, 1, &x), SC_cast, nnc_kdtype(d), x, -1, -1);
    if (y >= 0)
        t->ins[y].k.cast_to = (uint8_t)d;
    return y;
}

/* An f32 product is written x w + 0, so that its sum is rounded once (fused multiply-add). */
static int32_t product(nx *t, nx_place at, nnc_dtype d, const int32_t *arg)
{
    if (d == DT_f32)
        return nx_sop(t, at, SC_fma, d, arg[0], arg[1], nx_const(t, d, 0));
    return nx_sop(t, at, SC_mul, d, arg[0], arg[1], -1);
}

int32_t nx_product(nx *t, int ctx, const nnc_node *n, const nnc_affine *idx, const nnc_affine *in,
    const nnc_affine *const *win, int32_t guard, int32_t inner)
{
    nnc_affine *at = nx_maps(t, type_of(t, n->in[1])->rank);
    int32_t outside = guard;
    if (!at || !weight_place(t, n, idx, win, at, &guard))
        return -1;
    int32_t arg[2] = {nx_demand(t, ctx, n->in[0], in, inner), -1};
    if (arg[0] < 0)
        return -1;
    nnc_dtype d = nx_dtype(t, n->out);
    if (inner != outside) {
        nx_place p = nx_beside(t, ctx, 1, arg);
        p.axes |= nx_guard_axes(t, inner);
        arg[0] =
            nx_count(t, n->out) ? nx_filled(t, p, arg[0], inner, outside, nx_const(t, d, 0)) : -1;
        if (arg[0] < 0)
            return -1;
    }
    const bool pool = n->op == OP_maxpool_grad;
    arg[0] = rounded(t, ctx, n, arg[0]);
    if (arg[0] < 0)
        return -1;
    arg[1] = nx_demand(t, ctx, n->in[1], pool ? in : at, pool ? inner : guard);
    if (arg[1] < 0 || !nx_count(t, n->out))
        return -1;
    const nx_place p = nx_beside(t, ctx, 2, arg);
    return pool ? of_largest(t, p, n, arg[0], arg[1], at) : product(t, p, d, arg);
}
