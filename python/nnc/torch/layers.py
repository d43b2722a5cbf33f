"""Rows of the table of aten ops (ops.py) for layers: products and convolutions, windows and resizing, normalisation, attention."""

import math

import torch

from .graph import Unsupported
from .ops import TABLE, aten, gather, overloads, pair, row, scaled, select, split, torch_dtype, value

ROWS = TABLE  # those of ops.py and of this file


# ---- contractions


@row(*overloads("mm", "bmm", "matmul"))
def _(g, out, a, b):
    a = g.reshape(a, [1, *a.shape]) if a.rank == 1 else a
    b = g.reshape(b, [*b.shape, 1]) if b.rank == 1 else b
    return g.reshape(product(g, a, b), out.shape)


def product(g, a, b, bias=None):
    """a @ b + bias as a linear layer where b is a transposed matrix, as weights of nn.Linear are."""
    base = b.operands[0] if b.op == "transpose" and b.rank == 2 else None
    if base is not None and a.rank >= 2 and (bias is None or bias.shape == (b.shape[1],)):
        x = a.operands[0] if flattened(a) else a
        return g.reshape(linear(g, x, base, bias), [*a.shape[:-1], b.shape[1]])
    y = g.matmul(a, b)
    return y if bias is None else g.op("add", y, bias)


def flattened(a):
    """Whether a matrix has the rows of a tensor with more dimensions."""
    return a.op == "reshape" and a.rank == 2 and a.operands[0].rank > 2 and a.operands[0].shape[-1] == a.shape[-1]


@row(*overloads("addmm", "baddbmm"))
def _(g, out, c, a, b, beta=1, alpha=1):
    if beta == 0:
        return scaled(g, c.dtype, product(g, a, b), alpha)
    if alpha == 1 and beta == 1:
        return product(g, a, b, c)
    return g.op("add", scaled(g, c.dtype, product(g, a, b), alpha), scaled(g, c.dtype, c, beta))


@row(*overloads("linear"))
def _(g, out, x, w, b=None):
    return linear(g, x, w, b)


def linear(g, x, w, b=None):
    return g.op("linear", x, w, *([b] if b else []), shape=[*x.shape[:-1], w.shape[0]])


@row(*overloads("convolution"))
def _(g, out, x, w, b, stride, padding, dilation, transposed, output_padding, groups):
    n = w.rank - 2
    stride, padding, dilation = pair(stride, n), pair(padding, n), pair(dilation, n)
    attrs = {"strides": stride, "pads": padding * 2, "dilations": dilation, "groups": groups}
    plain = {"strides": [1] * n, "pads": [0] * 2 * n, "dilations": [1] * n, "groups": 1}
    attrs = {k: v for k, v in attrs.items() if v != plain[k]}
    if transposed and any(output_padding):
        attrs["output_padding"] = pair(output_padding, n)
    return g.op("conv_transpose" if transposed else "conv", x, w, *([b] if b else []), shape=out.shape, **attrs)


# ---- windows


def window(g, op, out, x, kernel, stride, padding, n, dtype=None, **attrs):
    kernel, padding = pair(kernel, n), pair(padding, n)
    stride = pair(stride, n) if stride else kernel
    lead = x.rank == n + 1  # without batch
    if lead:
        x = g.reshape(x, [1, *x.shape])
    shape = [1, *out.shape] if lead else out.shape
    attrs = {k: v for k, v in attrs.items() if v}
    y = g.op(op, x, shape=shape, dtype=dtype, kernel=kernel, strides=stride, pads=padding * 2 if any(padding) else None, **attrs)
    return g.reshape(y, out.shape)


@row(*overloads("max_pool2d_with_indices", "max_pool3d_with_indices"))
def _(g, out, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    n = 3 if g.target is aten.max_pool3d_with_indices.default else 2
    dilation = pair(dilation, n)
    return [
        window(
            g,
            "maxpool",
            out[0],
            x,
            kernel,
            stride,
            padding,
            n,
            ceil_mode=int(ceil_mode),
            dilations=dilation if any(d != 1 for d in dilation) else None,
        ),
        None,
    ]


for _n in (1, 2, 3):

    @row(*overloads(f"avg_pool{_n}d"))
    def _avgpool(g, out, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, n=_n):
        if divisor_override:
            raise Unsupported("avg_pool with divisor_override")
        return window(g, "avgpool", out, x, kernel, stride, padding, n, ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad))


@row(*overloads("_adaptive_avg_pool2d"))
def _(g, out, x, size):
    n, spatial = 2, x.shape[-2:]
    if all(s == 1 for s in size) and x.rank == 4:
        return g.op("global_avgpool", x, shape=out.shape)
    if all(s % o == 0 for s, o in zip(spatial, size)):
        kernel = [s // o for s, o in zip(spatial, size)]
        return x if kernel == [1] * n else window(g, "avgpool", out, x, kernel, kernel, 0, n)
    return resampled(g, x, out, lambda t, s, d: aten._adaptive_avg_pool2d(t, s))


@row(*overloads("adaptive_max_pool2d"))
def _(g, out, x, size):
    spatial = x.shape[-2:]
    if any(s % o for s, o in zip(spatial, size)):
        raise Unsupported("adaptive_max_pool2d into windows of several sizes")
    kernel = [s // o for s, o in zip(spatial, size)]
    return [window(g, "maxpool", out[0], x, kernel, kernel, 0, 2), None]


def resampled(g, x, out, resize, scales=(None, None)):
    """A linear map of each of the last two dimensions by itself, as products with the matrices that `resize` makes of identities."""
    for d in (-2, -1):
        n, m = x.shape[d], out.shape[d]
        if n == m and scales[d] in (None, 1):
            continue
        eye = torch.eye(n, dtype=torch.float64).reshape(1, 1, n, n)
        matrix = g.known(resize(eye, (m, n) if d == -2 else (n, m), d)[0, 0].to(torch_dtype(x.dtype)))
        x = g.matmul(matrix, x) if d == -2 else g.matmul(x, matrix)
    return x


def picked(g, x, out, resize, scales):
    """The same for maps that pick an element."""
    for d in (-2, -1):
        n, m = x.shape[d], out.shape[d]
        exact = scales[d] in (None, m / n)  # a size of 8 scaled by 2.05 is 16, too, but of other elements
        if n == m and exact:
            continue
        if m % n == 0 and exact:  # each element r times
            shape = list(x.shape)
            at = x.rank + d + 1
            y = g.broadcast(g.reshape(x, [*shape[:at], 1, *shape[at:]]), [*shape[:at], m // n, *shape[at:]])
            shape[d] = m
            x = g.reshape(y, shape)
            continue
        shape, size = ((1, 1, n, 1), (m, 1)) if d == -2 else ((1, 1, 1, n), (1, m))
        index = resize(torch.arange(n, dtype=torch.float64).reshape(shape), size, d).reshape(m).long()
        x = gather(g, x, g.known(index), d)
    return x


@row(*overloads("upsample_nearest2d", "upsample_nearest2d.vec", "_upsample_nearest_exact2d", "_upsample_nearest_exact2d.vec"))
def _(g, out, x, size, *rest):
    f = packet(g.target)
    given = resize_scales(rest)
    return picked(g, x, out, lambda t, s, d: f(t, list(s), *one_scale(given, d)), given)


@row(
    *overloads(
        "upsample_bilinear2d",
        "upsample_bilinear2d.vec",
        "upsample_bicubic2d",
        "upsample_bicubic2d.vec",
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
        "_upsample_bilinear2d_aa.vec",
        "_upsample_bicubic2d_aa.vec",
    )
)
def _(g, out, x, size, align_corners, *rest):
    if not x.is_float:
        raise Unsupported("interpolation of integers")
    f = packet(g.target)
    given = resize_scales(rest)
    return resampled(g, x, out, lambda t, s, d: f(t, list(s), align_corners, *one_scale(given, d)), given)


def packet(target):
    """The op of an overload."""
    return getattr(aten, target._schema.name.split("::")[1])


def resize_scales(rest):
    """(height, width) of the scales, from a list or as two arguments; None: by the sizes."""
    if len(rest) == 1:
        return tuple(rest[0]) if rest[0] else (None, None)
    return tuple(rest) if rest else (None, None)


def one_scale(given, d):
    """Those of a resize of only dimension d."""
    return (given[0], 1.0) if d == -2 else (1.0, given[1])


# ---- normalisation


@row(*overloads("_native_batch_norm_legit_no_training"))
def _(g, out, x, weight, bias, mean, var, momentum, eps):
    return [batchnorm(g, x, weight, bias, mean, var, eps), None, None]


@row(*overloads("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"))
def _(g, out, x, weight, bias, mean, var, training, momentum, eps):
    if training:
        raise Unsupported("batch_norm in training")
    return [batchnorm(g, x, weight, bias, mean, var, eps), None, None, None]


def batchnorm(g, x, weight, bias, mean, var, eps):
    ones = lambda fill: g.broadcast(value(g, fill, x.dtype), [x.shape[1]])
    statistics = [g.cast(v, x.dtype) for v in (weight or ones(1), bias or ones(0), mean, var)]
    return g.op("batchnorm", x, *statistics, shape=x.shape, eps=float(eps))


@row(*overloads("_native_batch_norm_legit.no_stats"))
def _(g, out, x, weight, bias, training, momentum, eps):
    """InstanceNorm: by the moments of each channel."""
    if x.shape[0] != 1:
        raise Unsupported("batch_norm by the statistics of a batch")
    return [normalized(g, "groupnorm", x, weight, bias, [x.shape[1]], num_groups=x.shape[1], eps=float(eps)), None, None]


@row(*overloads("native_layer_norm"))
def _(g, out, x, shape, weight, bias, eps):
    return [normalized(g, "layernorm", x, weight, bias, x.shape[-len(shape) :], axis=x.rank - len(shape), eps=float(eps)), None, None]


@row(*overloads("native_group_norm"))
def _(g, out, x, weight, bias, n, c, hw, groups, eps):
    return [normalized(g, "groupnorm", x, weight, bias, [c], num_groups=groups, eps=float(eps)), None, None]


@row(*overloads("_fused_rms_norm"))
def _(g, out, x, shape, weight, eps):
    eps = eps if eps is not None else torch.finfo(torch_dtype(x.dtype)).eps
    return [normalized(g, "rmsnorm", x, weight, None, x.shape[-len(shape) :], axis=x.rank - len(shape), eps=float(eps)), None]


def normalized(g, op, x, weight, bias, shape, **attrs):
    if bias is not None and weight is None:
        weight = g.broadcast(value(g, 1, x.dtype), shape)
    parts = [g.cast(v, x.dtype) for v in (weight, bias) if v is not None]
    return g.op(op, x, *parts, shape=x.shape, **attrs)


# ---- attention


def attention(g, q, k, v, mask, causal, scale, dropout_p=0):
    """softmax(q k' scale + mask) v. Heads of k and v may be fewer than those of q."""
    if dropout_p:
        raise Unsupported("dropout in training")
    if q.rank == 4 and k.shape[1] != q.shape[1]:
        k, v = (
            g.reshape(
                g.broadcast(g.reshape(t, [*t.shape[:2], 1, *t.shape[2:]]), [*t.shape[:2], q.shape[1] // t.shape[1], *t.shape[2:]]),
                [t.shape[0], q.shape[1], *t.shape[2:]],
            )
            for t in (k, v)
        )
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    perm = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    s = scaled(g, q.dtype, g.matmul(q, g.transpose(k, perm)), scale)
    if mask is not None:
        if mask.dtype == "bool":
            s = select(g, mask, s, value(g, -math.inf, s.dtype))
        else:
            s = g.op("add", s, g.cast(mask, s.dtype))
    if causal:
        rows, columns = (g.op("iota", shape=s.shape[-2:], dtype="i64", dim=d) for d in (0, 1))
        s = select(g, g.op("ge", rows, columns, dtype="bool"), s, value(g, -math.inf, s.dtype))
    y = g.matmul(g.op("softmax", s, axis=s.rank - 1), v)
    return y if mask is None else select(g, blind(g, mask), value(g, 0, y.dtype), y)


def blind(g, mask):
    """The queries whose keys are all masked: their softmax would be NaN, their result is 0."""
    seen = g.cast(mask, "i32") if mask.dtype == "bool" else mask
    none = value(g, 0 if mask.dtype == "bool" else -math.inf, seen.dtype)
    return g.op("eq", g.reduce("reduce_max", seen, [-1], True), none, dtype="bool")


@row(*overloads("_scaled_dot_product_flash_attention_for_cpu"))
def _(g, out, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return [attention(g, q, k, v, attn_mask, is_causal, scale, dropout_p), None]


@row(*overloads("_scaled_dot_product_efficient_attention"))
def _(g, out, q, k, v, bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    return [attention(g, q, k, v, bias, is_causal, scale, dropout_p), None, None, None]


@row(*overloads("_scaled_dot_product_flash_attention"))
def _(g, out, q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    return [attention(g, q, k, v, None, is_causal, scale, dropout_p)] + [None] * 8


@row(*overloads("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable"))
def _(g, out, q, k, v, bias, *args, scale=None, **kwargs):
    raise Unsupported("this form of attention")


@row(*overloads("scaled_dot_product_attention"))
def _(g, out, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    return attention(g, q, k, v, attn_mask, is_causal, scale, dropout_p)


def self_attention(g, x, heads, qkv, qkv_bias, out_weight, out_bias, mask, mask_type):
    """Multi-head attention of x[B,T,E] with itself. mask: True where a query does not look, for all queries with mask_type 1."""
    b, t, e = x.shape
    y = g.reshape(linear(g, x, qkv, qkv_bias), [b, t, 3, heads, e // heads])
    q, k, v = (g.reshape(p, [b, heads, t, e // heads]) for p in split(g, g.transpose(y, [2, 0, 3, 1, 4]), [1, 1, 1], 0))
    if mask is not None:
        if mask.dtype == "bool":
            mask = g.op("not", mask)
        if mask_type == 1:
            mask = g.reshape(mask, [b, 1, 1, t])
    y = attention(g, q, k, v, mask, False, None)
    return linear(g, g.reshape(g.transpose(y, [0, 2, 1, 3]), [b, t, e]), out_weight, out_bias)


@row(*overloads("_native_multi_head_attention"))
def _(g, out, q, k, v, embed_dim, heads, qkv, qkv_bias, out_weight, out_bias, mask=None, need_weights=True, average=True, mask_type=None):
    if need_weights or k is not q or v is not q:
        raise Unsupported("attention that is not of a tensor with itself, or that returns its weights")
    return [self_attention(g, q, heads, qkv, qkv_bias, out_weight, out_bias, mask, mask_type), None]


@row(*overloads("_transformer_encoder_layer_fwd"))
def _(
    g,
    out,
    x,
    embed_dim,
    heads,
    qkv,
    qkv_bias,
    out_weight,
    out_bias,
    use_gelu,
    norm_first,
    eps,
    weight1,
    bias1,
    weight2,
    bias2,
    up,
    up_bias,
    down,
    down_bias,
    mask=None,
    mask_type=None,
):
    def norm(x, weight, bias):
        return normalized(g, "layernorm", x, weight, bias, x.shape[-1:], axis=x.rank - 1, eps=float(eps))

    def attend(x):
        return self_attention(g, x, heads, qkv, qkv_bias, out_weight, out_bias, mask, mask_type)

    def feed(x):
        return linear(g, g.op("gelu" if use_gelu else "relu", linear(g, x, up, up_bias)), down, down_bias)

    if norm_first:
        x = g.op("add", x, attend(norm(x, weight1, bias1)))
        return g.op("add", x, feed(norm(x, weight2, bias2)))
    x = norm(g.op("add", x, attend(x)), weight1, bias1)
    return norm(g.op("add", x, feed(x)), weight2, bias2)
