"""Rows of the table of aten ops (ops.py) for layers: products and convolutions, windows and resizing, normalisation, attention."""

import math

import torch

from .graph import Unsupported
from .ops import TABLE, aten, gather, moments, overloads, pair, row, scaled, select, split, torch_dtype, value

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
    return maxpool(g, out, x, kernel, stride, padding, dilation, ceil_mode, 3 if g.target is aten.max_pool3d_with_indices.default else 2)


def maxpool(g, out, x, kernel, stride, padding, dilation, ceil_mode, n):
    """The largest of each window, and a function that makes their places in the plane, counted row-major."""
    kernel, dilation = pair(kernel, n), pair(dilation, n)
    given = {"ceil_mode": int(ceil_mode), "dilations": dilation if any(d != 1 for d in dilation) else None}

    def places():
        at = window(g, "argmaxpool", out[1], x, kernel, stride, padding, n, "i64", **given)
        flat, unit = value(g, 0, "i64"), 1
        for d in reversed(range(n)):
            size = value(g, kernel[d], "i64")
            first = torch.arange(out[1].shape[d - n]) * (pair(stride, n)[d] if stride else kernel[d]) - pair(padding, n)[d]
            inside = scaled(g, "i64", g.op("mod", at, size), dilation[d])
            place = g.op("add", inside, g.known(first.reshape(-1, *[1] * (n - 1 - d))))
            flat, unit, at = g.op("add", flat, scaled(g, "i64", place, unit)), unit * x.shape[d - n], g.op("div", at, size)
        return flat

    return [window(g, "maxpool", out[0], x, kernel, stride, padding, n, **given), places]


for _n in (1, 2, 3):

    @row(*overloads(f"avg_pool{_n}d"))
    def _avgpool(g, out, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, n=_n):
        if divisor_override and ceil_mode:
            raise Unsupported("avg_pool with divisor_override and ceil_mode")
        whole = int(count_include_pad or bool(divisor_override))
        y = window(g, "avgpool", out, x, kernel, stride, padding, n, ceil_mode=int(ceil_mode), count_include_pad=whole)
        return scaled(g, y.dtype, y, math.prod(pair(kernel, n)) / divisor_override) if divisor_override else y


def sections(x, size):
    """The kernel of windows that divide the last dimensions evenly; None: they are of several sizes."""
    spatial = x.shape[-len(size) :]
    return None if any(s % o for s, o in zip(spatial, size)) else [s // o for s, o in zip(spatial, size)]


@row(*overloads("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"))
def _(g, out, x, size):
    n, kernel = len(size), sections(x, size)
    if all(s == 1 for s in size) and x.rank == n + 2:
        return g.op("global_avgpool", x, shape=out.shape)
    if kernel:
        return x if kernel == [1] * n else window(g, "avgpool", out, x, kernel, kernel, 0, n)
    if n == 3:
        raise Unsupported("adaptive_avg_pool3d into windows of several sizes")
    return resampled(g, x, out, lambda t, s, d: aten._adaptive_avg_pool2d(t, s))


@row(*overloads("adaptive_max_pool2d", "adaptive_max_pool3d"))
def _(g, out, x, size):
    kernel = sections(x, size)
    if not kernel:
        raise Unsupported("adaptive_max_pool into windows of several sizes")
    return maxpool(g, out, x, kernel, kernel, 0, 1, False, len(size))


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


@row(*overloads("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit"))
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
    """By the statistics of the batch, which InstanceNorm puts into the channels."""
    if x.shape[0] != 1 or x.rank < 3:
        var, mean = moments(g, x, [0, *range(2, x.rank)], 0, False)
        return [batchnorm(g, x, weight, bias, mean, var, eps), None, None]
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


def attention(g, *args):
    return weighted(g, *args)[0]


def weighted(g, q, k, v, mask, causal, scale, dropout_p=0):
    """softmax(q k' scale + mask) v, and the softmax. Heads of k and v may be fewer than those of q."""
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
    weights = g.op("softmax", s, axis=s.rank - 1)
    y = g.matmul(weights, v)
    return y if mask is None else select(g, blind(g, mask), value(g, 0, y.dtype), y), weights


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
    """Multi-head attention of x[B,T,E] with itself, and its weights of each head.

    mask: True where a query does not look, for all queries with mask_type 1."""
    b, t, e = x.shape
    y = g.reshape(linear(g, x, qkv, qkv_bias), [b, t, 3, heads, e // heads])
    q, k, v = (g.reshape(p, [b, heads, t, e // heads]) for p in split(g, g.transpose(y, [2, 0, 3, 1, 4]), [1, 1, 1], 0))
    if mask is not None:
        if mask.dtype == "bool":
            mask = g.op("not", mask)
        if mask_type == 1:
            mask = g.reshape(mask, [b, 1, 1, t])
    y, weights = weighted(g, q, k, v, mask, False, None)
    return linear(g, g.reshape(g.transpose(y, [0, 2, 1, 3]), [b, t, e]), out_weight, out_bias), weights


@row(*overloads("_native_multi_head_attention"))
def _(g, out, q, k, v, embed_dim, heads, qkv, qkv_bias, out_weight, out_bias, mask=None, need_weights=True, average=True, mask_type=None):
    if k is not q or v is not q:
        raise Unsupported("attention that is not of a tensor with itself")
    y, weights = self_attention(g, q, heads, qkv, qkv_bias, out_weight, out_bias, mask, mask_type)
    return [y, g.reduce("reduce_mean", weights, [1], False) if average else weights]


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
        return self_attention(g, x, heads, qkv, qkv_bias, out_weight, out_bias, mask, mask_type)[0]

    def feed(x):
        return linear(g, g.op("gelu" if use_gelu else "relu", linear(g, x, up, up_bias)), down, down_bias)

    if norm_first:
        x = g.op("add", x, attend(norm(x, weight1, bias1)))
        return g.op("add", x, feed(norm(x, weight2, bias2)))
    x = norm(g.op("add", x, attend(x)), weight1, bias1)
    return norm(g.op("add", x, feed(x)), weight2, bias2)


# ---- recurrent layers


def one_way(g, kind, x, state, w, r, b=None, rb=None, reverse=False):
    """A layer in one direction over x[T,B,I], from state[B,H] (of an LSTM also its cells): the outputs and the last state."""
    turn = lambda v: g.op("flip", v, axes=[0]) if reverse else v
    (t, n), h, more = x.shape[:2], state[0].shape[1], []
    if kind == "gru":  # of the third gate the bias of the state is multiplied with the gate r
        zero = g.broadcast(value(g, 0, x.dtype), [h])
        more = [zero if rb is None else g.slice(rb, 0, 2 * h, 3 * h)]
        rb = rb and g.concat([g.slice(rb, 0, 0, 2 * h), zero], 0)
    parts = linear(g, turn(x), w, b and g.op("add", b, rb))
    types = [((t, n, h), x.dtype)] + [((n, h), x.dtype)] * (len(state) - 1)
    op, attrs = ("rnn", {"activation": "relu"}) if kind == "rnn_relu" else (kind.removesuffix("_tanh"), {})
    y, *cells = g.node(op, (parts, g.transpose(r, [1, 0]), *more, *state), types, attrs)
    return turn(y), [g.reshape(g.slice(y, 0, t - 1, t), [n, h]), *cells]


@row(*overloads("mkldnn_rnn_layer"))
def _(g, out, x, w, r, b, rb, h0, c0, reverse, sizes, mode, hidden, layers, has_biases, bidirectional, batch_first, train):
    """PyTorch makes it of each layer and direction of an LSTM."""
    if mode != 2 or sizes or layers != 1 or bidirectional or batch_first:
        raise Unsupported("this form of a recurrent layer")
    state = [g.reshape(v, [x.shape[1], hidden]) for v in (h0, c0)]
    y, state = one_way(g, "lstm", x, state, w, r, *((b, rb) if has_biases else ()), reverse=reverse)
    return [y, *(g.reshape(v, o.shape) for v, o in zip(state, out[1:])), None]


for _kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):

    @row(*overloads(f"{_kind}.input"))
    def _recurrent(g, out, x, state, params, biases, layers, dropout, train, bidirectional, batch_first, kind=_kind):
        """As torch.export keeps the layers."""
        ways, each = 1 + bidirectional, 4 if biases else 2
        state = state if kind == "lstm" else [state]
        if train and dropout or x.rank != 3 or len(params) != layers * ways * each:
            raise Unsupported("a recurrent layer with dropout or projections, or without a batch")
        x, last = g.transpose(x, [1, 0, 2]) if batch_first else x, []
        for i in range(layers * ways):
            if i % ways == 0:
                source, found = x, []
            first = [g.reshape(g.slice(v, 0, i, i + 1), v.shape[1:]) for v in state]
            y, ends = one_way(g, kind, source, first, *params[i * each : (i + 1) * each], reverse=i % ways == 1)
            last.append(ends)
            found.append(y)
            x = g.concat(found, 2)
        ends = [g.reshape(g.concat(list(v), 0), first.shape) for v, first in zip(zip(*last), state)]
        return [g.transpose(x, [1, 0, 2]) if batch_first else x, *ends]
