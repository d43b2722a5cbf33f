/* engines/cudnn_graph.c -- builds the cuDNN graph of a call. Precompiled engines support the order sum, bias, relu but not the call's
 * order bias, sum, relu. So the sum comes first: both are f32 additions, rounded in another order. */
#include "engines/cudnn.h"
#include <string.h>

bool cudnn_adds_zeros(const nnc_call *c)
{
    return c->n_post && !c->has_bias;
}

/* ---- judging ------------------------------------------------------------------------------------------------------ */

/* True for epilogues that precompiled engines support: a sum, then relu, each at most once. Consecutive relus count as one. */
static bool ends_plainly(const nnc_call *c)
{
    int i = 0;
    i += i < c->n_post && c->post[i].kind == PO_sum;
    while (i < c->n_post && c->post[i].kind == PO_relu)
        i++;
    return i == c->n_post;
}

/* The source and the result of the convolution that the call is, or a gradient of. */
static const nnc_type *source_of(const nnc_call *c)
{
    return c->kind == CALL_conv_transpose ? &c->dst : &c->src;
}

static const nnc_type *result_of(const nnc_call *c)
{
    return c->kind == CALL_conv ? &c->dst : c->kind == CALL_conv_transpose ? &c->src : &c->wei;
}

/* True where the convolution has as many windows as places in its result. cuDNN cannot leave out the last ones, which the gradient of a
 * transposed convolution with output_padding may have. */
static bool windows_match(const nnc_call *c)
{
    for (int d = 0; d < c->spatial; d++) {
        int64_t reach = (c->kernel[d] - 1) * c->dilation[d] + 1, out = result_of(c)->dim[2 + d];
        if ((source_of(c)->dim[2 + d] + c->pad_lo[d] - reach) / c->stride[d] + 1 > out)
            return false;
    }
    return true;
}

bool cudnn_supports(const nnc_call *c, const char **why)
{
    *why = "cuDNN is used for convolutions only";
    if (c->kind > CALL_conv_wgrad)
        return false;
    *why = "cuDNN supports extents below 2^31";
    if (!nnc_call_fits_32_bits(c))
        return false;
    *why = "cuDNN's windows end with the gradient's last place";
    if (!windows_match(c))
        return false;
    *why = "cuDNN supports f32, f16 and bf16";
    nnc_dtype d = c->src.dtype;
    if (d != DT_f32 && d != DT_f16 && d != DT_bf16)
        return false;
    *why = "cuDNN needs operands and result of one type";
    if (c->wei.dtype != d || c->dst.dtype != d || (c->has_bias && c->bias.dtype != d))
        return false;
    *why = "cuDNN's epilogue is a bias, a sum and relu, of a convolution";
    if (c->kind == CALL_conv ? !ends_plainly(c) : c->has_bias || c->n_post)
        return false;
    *why = "cuDNN does not add in place";
    return !c->n_post || !c->post[0].in_place;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------ */

/* cuDNN's tensors have at least two spatial dimensions: a 1 is inserted before a single one. */
static nnc_cudnn_tensor tensor_of(const nnc_type *t)
{
    nnc_cudnn_tensor r = {.dtype = t->dtype, .rank = t->rank};
    nnc_type_strides(t, r.stride);
    memcpy(r.dim, t->dim, sizeof r.dim);
    if (t->rank != 3)
        return r;
    r.rank = 4;
    r.dim[3] = r.dim[2];
    r.stride[3] = r.stride[2];
    r.dim[2] = 1;
    r.stride[2] = r.dim[3] * r.stride[3];
    return r;
}

/* One number per channel, shaped like the result. */
static nnc_cudnn_tensor bias_of(const nnc_call *c)
{
    nnc_cudnn_tensor y = tensor_of(&c->dst), b = {.dtype = y.dtype, .rank = y.rank};
    for (int i = 0; i < y.rank; i++) {
        b.dim[i] = i == 1 ? y.dim[1] : 1;
        b.stride[i] = i == 1 ? 1 : i == 0 || y.stride[1] == 1 ? y.dim[1] : 1;
    }
    return b;
}

/* Adds all arguments of the call, so that ids are positions. Returns the position of the first sum. */
static int add_arguments(nnc_cudnn *g, const nnc_call *c)
{
    nnc_cudnn_tensor src = tensor_of(&c->src), wei = tensor_of(&c->wei), dst = tensor_of(&c->dst),
                     bias = bias_of(c);
    nnc_cudnn_add_tensor(g, &src);
    nnc_cudnn_add_tensor(g, &wei);
    if (c->has_bias)
        nnc_cudnn_add_tensor(g, &bias);
    for (int i = 3 + c->has_bias; i < nnc_call_args(c); i++)
        nnc_cudnn_add_tensor(g, &dst);
    nnc_cudnn_add_tensor(g, &dst);
    if (cudnn_adds_zeros(c))
        nnc_cudnn_add_tensor(g, &bias);
    return 2 + c->has_bias;
}

/* The window in at least two dimensions. Trailing padding follows from the result's extent. If symmetric padding gives the same extent
 * it is used, since more engines support it. */
static nnc_cudnn_window window_of(const nnc_call *c)
{
    int at = c->spatial == 1; /* dimension 0 is the inserted one */
    nnc_cudnn_window w = {.spatial = c->spatial + at, .stride = {1}, .dilation = {1}};
    for (int d = 0; d < c->spatial; d++) {
        int64_t reach = (c->kernel[d] - 1) * c->dilation[d] + 1, in = source_of(c)->dim[2 + d],
                out = result_of(c)->dim[2 + d];
        int64_t lo = c->pad_lo[d], hi = (out - 1) * c->stride[d] + reach - in - lo;
        if ((in + 2 * lo - reach) / c->stride[d] + 1 == out && in + 2 * lo >= reach)
            hi = lo;
        w.stride[d + at] = c->stride[d];
        w.dilation[d + at] = c->dilation[d];
        w.pad_lo[d + at] = lo;
        w.pad_hi[d + at] = hi > 0 ? hi : 0;
    }
    return w;
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

/* State of a chain of operations: f32 virtual tensors in between, the last operation writes `dst`. */
typedef struct walk {
    nnc_cudnn *g;
    nnc_cudnn_tensor shape;
    int left; /* operations that remain */
    int dst;
} walk;

static int next(walk *w)
{
    nnc_cudnn_tensor v = w->shape;
    v.dtype = DT_f32;
    v.is_virtual = true;
    return --w->left > 0 ? nnc_cudnn_add_tensor(w->g, &v) : w->dst;
}

static int pointwise_add(walk *w, int x, int other)
{
    int y = next(w);
    nnc_cudnn_pointwise(w->g, CUDNN_ADD, x, other, y);
    return y;
}

void cudnn_describe(nnc_cudnn *g, const nnc_call *c)
{
    const nnc_cudnn_window window = window_of(c);
    const bool forward = c->kind == CALL_conv, ends = c->has_bias || c->n_post;
    const int sum = add_arguments(g, c), n = nnc_call_args(c);
    const bool adds = c->n_post && c->post[0].kind == PO_sum, relu = c->n_post > adds;
    walk k = {g, tensor_of(&c->dst), 1 + adds + ends + relu, n - 1};
    int y = next(&k);
    if (c->kind == CALL_conv_wgrad)
        nnc_cudnn_conv(g, CUDNN_BACKWARD_FILTER, &window, 0, y, 1);
    else
        nnc_cudnn_conv(g, forward ? CUDNN_FORWARD : CUDNN_BACKWARD_DATA, &window, forward ? 0 : y,
            1, forward ? y : 0);
    if (adds)
        y = pointwise_add(&k, y, sum);
    if (ends)
        y = pointwise_add(&k, y, c->has_bias ? 2 : n);
    if (relu)
        nnc_cudnn_pointwise(g, CUDNN_RELU, y, -1, next(&k));
}
