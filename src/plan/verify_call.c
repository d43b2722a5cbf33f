/* plan/verify_call.c -- checks that a library call's shapes are consistent. Engines trust them: calls that pass stay inside buffers of
 * their types' sizes. */
#include "ir/ir.h"
#include "plan/verify.h"

bool plan_type_ok(const nnc_type *t)
{
    const char *what;
    if (t->dtype >= DT__COUNT || t->rank > NNC_MAX_RANK || !nnc_type_check(t, &what))
        return false;
    unsigned seen = 0;
    for (int i = 0; i < t->rank; i++)
        seen |= t->order[i] < t->rank ? 1u << t->order[i] : 0;
    return seen == (1u << t->rank) - 1;
}

/* True when the result's spatial dimension i equals that of shape inference. For a transposed convolution, output_padding is the rest of
 * its extent. */
static bool extent_ok(const nnc_call *c, int i)
{
    nnc_window w = {c->src.dim[2 + i], c->kernel[i], c->stride[i], c->dilation[i], c->pad_lo[i],
        c->pad_hi[i], 0};
    int64_t out = c->dst.dim[2 + i], n = 0;
    if (c->kind == CALL_conv_transpose) {
        /* without padding, so that no extent is below 1 before output_padding is added */
        w.lo = w.hi = 0;
        if (!nnc_window_extent(&w, NNC_WINDOW_transposed, &n) || c->pad_lo[i] < 0 ||
            c->pad_hi[i] < 0 || c->pad_lo[i] > NNC_MAX_STEP || c->pad_hi[i] > NNC_MAX_STEP)
            return false;
        w = (nnc_window){w.in, w.kernel, w.stride, w.dilation, c->pad_lo[i], c->pad_hi[i],
            out - (n - c->pad_lo[i] - c->pad_hi[i])};
        return nnc_window_extent(&w, NNC_WINDOW_transposed, &n) && n == out;
    }
    return nnc_window_extent(&w, NNC_WINDOW_floor, &n) && n == out;
}

static bool conv_ok(const nnc_call *c, const char **why)
{
    bool transposed = c->kind == CALL_conv_transpose;
    *why = "channels, groups and weights do not belong together";
    if (c->wei.rank != c->src.rank || c->groups < 1 || c->groups > c->src.dim[1] ||
        c->src.dim[1] % c->groups || c->dst.dim[1] % c->groups)
        return false;
    int64_t in = c->src.dim[1], out = c->dst.dim[1];
    if (transposed ? c->wei.dim[0] != in || c->wei.dim[1] != out / c->groups
                   : c->wei.dim[0] != out || c->wei.dim[1] != in / c->groups)
        return false;
    *why = "weights and kernel extents differ";
    for (int i = 0; i < c->spatial; i++)
        if (c->wei.dim[2 + i] != c->kernel[i])
            return false;
    *why = "the result's extents are not those of the windows";
    for (int i = 0; i < c->spatial; i++)
        if (!extent_ok(c, i))
            return false;
    return true;
}

static bool spatial_ok(const nnc_call *c, const char **why)
{
    *why = "ranks and spatial dimensions do not belong together";
    if (c->spatial < 1 || c->spatial > 3 || c->src.rank != c->spatial + 2 ||
        c->dst.rank != c->src.rank || c->src.dim[0] != c->dst.dim[0])
        return false;
    return conv_ok(c, why);
}

static bool wgrad_ok(const nnc_call *c, const char **why)
{
    *why = "channels, groups and gradients do not belong together";
    if (c->spatial < 1 || c->spatial > 3 || c->src.rank != c->spatial + 2 ||
        c->wei.rank != c->src.rank || c->dst.rank != c->src.rank ||
        c->src.dim[0] != c->wei.dim[0] || c->groups < 1 || c->groups > c->src.dim[1] ||
        c->src.dim[1] % c->groups || c->wei.dim[1] % c->groups || c->dst.dim[0] != c->wei.dim[1] ||
        c->dst.dim[1] != c->src.dim[1] / c->groups)
        return false;
    *why = "the results' gradient has more places than the windows";
    for (int i = 0; i < c->spatial; i++) {
        const nnc_window w = {c->src.dim[2 + i], c->kernel[i], c->stride[i], c->dilation[i],
            c->pad_lo[i], c->pad_hi[i], 0};
        int64_t n;
        if (c->dst.dim[2 + i] != c->kernel[i] || !nnc_window_extent(&w, NNC_WINDOW_floor, &n) ||
            c->wei.dim[2 + i] > n)
            return false;
    }
    return true;
}

/* Do the leading dimensions of an operand broadcast to c's? */
static bool batch_ok(const nnc_type *t, const nnc_type *c)
{
    int shift = c->rank - t->rank;
    if (shift < 0)
        return false;
    for (int i = 0; i < t->rank - 2; i++)
        if (t->dim[i] != 1 && t->dim[i] != c->dim[i + shift])
            return false;
    return true;
}

static bool matmul_ok(const nnc_call *c, const char **why)
{
    int ra = c->src.rank, rb = c->wei.rank, rc = c->dst.rank;
    *why = "matrix extents do not belong together";
    if (ra < 2 || rb < 2 || rc < 2)
        return false;
    int64_t m = c->src.dim[ra - (c->trans_a ? 1 : 2)], ka = c->src.dim[ra - (c->trans_a ? 2 : 1)];
    int64_t n = c->wei.dim[rb - (c->trans_b ? 2 : 1)], kb = c->wei.dim[rb - (c->trans_b ? 1 : 2)];
    if (ka != kb || m != c->dst.dim[rc - 2] || n != c->dst.dim[rc - 1])
        return false;
    return batch_ok(&c->src, &c->dst) && batch_ok(&c->wei, &c->dst);
}

static bool posts_ok(const nnc_call *c, const char **why)
{
    int in_place = 0;
    *why = "only a sum may be in place";
    for (int i = 0; i < c->n_post; i++) {
        if (c->post[i].in_place && c->post[i].kind != PO_sum)
            return false;
        in_place += c->post[i].in_place;
    }
    *why = "two sums in place";
    return in_place <= 1;
}

bool plan_call_ok(const nnc_call *c, const char **why)
{
    *why = "a type is malformed";
    if (!plan_type_ok(&c->src) || !plan_type_ok(&c->wei) || !plan_type_ok(&c->bias) ||
        !plan_type_ok(&c->dst))
        return false;
    *why = "its tensors are parts of larger ones";
    if (!nnc_type_is_dense(&c->src) || !nnc_type_is_dense(&c->wei) ||
        !nnc_type_is_dense(&c->bias) || !nnc_type_is_dense(&c->dst))
        return false;
    if (!posts_ok(c, why))
        return false;
    *why = "the gradient of a weight has no bias and no post-operations";
    if (c->kind == CALL_conv_wgrad && (c->has_bias || c->n_post))
        return false;
    *why = "the bias is not one number a channel";
    int channel = c->kind == CALL_matmul ? c->dst.rank - 1 : 1;
    if (c->has_bias && (c->bias.rank != 1 || channel < 0 || channel >= c->dst.rank ||
                           c->bias.dim[0] != c->dst.dim[channel]))
        return false;
    return c->kind == CALL_matmul       ? matmul_ok(c, why)
           : c->kind == CALL_conv_wgrad ? wgrad_ok(c, why)
                                        : spatial_ok(c, why);
}
