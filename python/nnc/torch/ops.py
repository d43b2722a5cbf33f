"""The aten ops that nnc reads: one row each.

A row is a function `lower(g, out, *args, **kwargs)`. `g` is the graph.Graph, `out` the fake tensor (or tuple) that the op returns. The
arguments are those of the aten op, with a graph.Value for each tensor. It returns the op's value, or a list of them, and raises Unsupported
where nnc has no form of this use.
"""

import math
import operator

import torch

from .graph import DTYPES, Unsupported, Value, broadcast_shape, dtype_of, inverse

aten = torch.ops.aten
TABLE = {}


def row(*targets):
    def enter(lower):
        for t in targets:
            TABLE[t] = lower
        return lower

    return enter


def overloads(*names):
    """Those of the overloads "add.Tensor" that this version of PyTorch has."""
    found = []
    for name in names:
        packet, _, overload = name.partition(".")
        found.append(getattr(getattr(aten, packet, None), overload or "default", None))
    return [f for f in found if f is not None]


# ---- operands


def value(g, x, dtype):
    """A tensor or a number as a value of this dtype."""
    if isinstance(x, Value):
        return g.cast(x, dtype)
    if dtype in ("f64", "f32", "f16", "bf16"):
        x = float(x)
    elif dtype == "bool":
        x = bool(x)
    elif isinstance(x, float):
        raise Unsupported("a float as an integer")
    else:  # modulo 2^bits, as PyTorch converts it
        x = torch.tensor(x).to(torch_dtype(dtype)).item()
    return g.const(x, dtype)


def torch_dtype(name):
    return next(t for t, n in DTYPES.items() if n == name)


def common(a, b):
    """The dtype that PyTorch compares in."""

    def example(x):
        return torch.empty((1,) * x.rank, dtype=torch_dtype(x.dtype), device="meta") if isinstance(x, Value) else x

    return DTYPES[torch.result_type(example(a), example(b))]


def axes_of(x, dim):
    if dim is None or dim == []:
        return list(range(x.rank))
    return [d % max(x.rank, 1) for d in (dim if isinstance(dim, (list, tuple)) else [dim])]


def axis_of(x, dim):
    if not x.rank:
        raise Unsupported("a dimension of a scalar")
    return dim % x.rank


def pair(v, n):
    """A list of one or n numbers as n numbers."""
    v = list(v) if isinstance(v, (list, tuple)) else [v]
    return v * n if len(v) == 1 else v or [0] * n


# ---- elementwise

UNARY = """relu sigmoid tanh exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh abs neg floor ceil round trunc
    sqrt rsqrt erf isnan isinf silu hardswish hardsigmoid mish"""
for _name in UNARY.split():

    @row(*overloads(_name))
    def _unary(g, out, x, op=_name):
        if op in ("floor", "ceil", "round", "trunc", "isnan", "isinf") and not x.is_float:
            return x if op in ("floor", "ceil", "round", "trunc") else g.broadcast(value(g, False, "bool"), x.shape)
        if x.dtype == "bool" and not dtype_of(out) == "f32":
            raise Unsupported("bool operand")
        if dtype_of(out) in ("f64", "f32", "f16", "bf16"):
            x = g.cast(x, dtype_of(out))
        return g.op(op, x, dtype=dtype_of(out))


BINARY = {"mul": "mul", "div": "div", "minimum": "min", "maximum": "max", "fmod": "mod"}
for _name, _op in BINARY.items():

    @row(*overloads(f"{_name}.Tensor", f"{_name}.Scalar", _name))
    def _binary(g, out, a, b, op=_op):
        t = dtype_of(out)
        if t == "bool":
            return g.op({"mul": "and", "min": "and", "max": "or"}[op], value(g, a, t), value(g, b, t))
        return g.op(op, value(g, a, t), value(g, b, t))


COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
for _name in COMPARE:

    @row(*overloads(f"{_name}.Tensor", f"{_name}.Scalar"))
    def _compare(g, out, a, b, op=_name):
        t = common(a, b)
        if t == "bool":  # ordered as 0 and 1
            if op in ("eq", "ne"):
                x = g.op("xor", value(g, a, t), value(g, b, t))
                return x if op == "ne" else g.op("not", x)
            t = "i32"
        return g.op(op, value(g, a, t), value(g, b, t), dtype="bool")


for _name, _op in {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}.items():

    @row(*overloads(_name))
    def _logical(g, out, a, b, op=_op):
        return g.op(op, truth(g, a), truth(g, b))


for _name, _op in {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}.items():

    @row(*overloads(f"{_name}.Tensor", f"{_name}.Scalar"))
    def _bitwise(g, out, a, b, op=_op):
        t = dtype_of(out)
        return g.op(op if t == "bool" else "bit_" + op, value(g, a, t), value(g, b, t))


for _name, _op in {"left": "shl", "right": "shr"}.items():

    @row(*overloads(*(f"bitwise_{_name}_shift.{o}" for o in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"))))
    @row(*overloads(*(f"__{_name[0]}shift__.{o}" for o in ("Tensor", "Scalar"))))
    def _shift(g, out, a, b, op=_op):
        t = dtype_of(out)
        return g.op(op, value(g, a, t), value(g, b, t))


for _name in ("min", "max"):

    @row(*overloads("f" + _name))
    def _fextreme(g, out, a, b, op=_name):
        """Of a number and a NaN it is the number."""
        a, b = (value(g, v, dtype_of(out)) for v in (a, b))
        y = g.op(op, a, b)
        if not y.is_float:
            return y
        y = select(g, g.op("isnan", b, dtype="bool"), a, y)
        return select(g, g.op("isnan", a, dtype="bool"), b, y)


@row(*overloads("copysign.Tensor", "copysign.Scalar"))
def _(g, out, a, b):
    return signed(g, g.op("abs", value(g, a, dtype_of(out))), value(g, b, dtype_of(out)))


def negative(g, x):
    """Whether the sign of x is set, also that of zero."""
    zero = value(g, 0, x.dtype)
    return g.op("or", g.op("lt", x, zero, dtype="bool"), g.op("lt", g.op("recip", x), zero, dtype="bool"))


def signed(g, a, like):
    """a >= 0 with the sign of `like`."""
    return select(g, negative(g, like), g.op("neg", a), a)


@row(*overloads("atan2"))
def _(g, out, y, x):
    """By the arctangent of the smaller over the larger magnitude: 0 of zeros, 1 of infinities."""
    t = dtype_of(out)
    y, x = value(g, y, t), value(g, x, t)
    a, b = g.op("abs", y), g.op("abs", x)
    low, high = g.op("min", a, b), g.op("max", a, b)
    equal = g.op("eq", low, high, dtype="bool")
    q = select(g, equal, value(g, 1, t), g.op("div", low, high))
    q = select(g, g.op("eq", high, value(g, 0, t), dtype="bool"), value(g, 0, t), q)
    r = g.op("atan", q)
    r = select(g, g.op("gt", a, b, dtype="bool"), g.op("sub", value(g, math.pi / 2, t), r), r)
    return signed(g, select(g, negative(g, x), g.op("sub", value(g, math.pi, t), r), r), y)


@row(*overloads("round.decimals"))
def _(g, out, x, *, decimals):
    if not x.is_float:
        raise Unsupported("digits of integers")
    by = value(g, 10.0 ** abs(decimals), x.dtype)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return g.op(back, g.op("round", g.op(there, x, by)), by)


def select(g, c, a, b):
    return g.op("select", c, a, b, dtype=a.dtype)


def truth(g, x):
    return x if x.dtype == "bool" else g.op("ne", x, value(g, 0, x.dtype), dtype="bool")


def add(g, t, a, b):
    return g.op("or" if t == "bool" else "add", value(g, a, t), value(g, b, t))


@row(*overloads("logical_not"))
def _(g, out, x):
    return g.op("not", truth(g, x))


@row(*overloads("bitwise_not"))
def _(g, out, x):
    return g.op("not", x) if x.dtype == "bool" else g.op("bit_xor", x, value(g, -1, x.dtype))


@row(*overloads("add.Tensor", "add.Scalar"))
def _(g, out, a, b, alpha=1):
    t = dtype_of(out)
    return add(g, t, a, scaled(g, t, b, alpha))


@row(*overloads("sub.Tensor", "sub.Scalar"))
def _(g, out, a, b, alpha=1):
    t = dtype_of(out)
    return g.op("sub", value(g, a, t), scaled(g, t, b, alpha))


@row(*overloads("rsub.Tensor", "rsub.Scalar"))
def _(g, out, a, b, alpha=1):
    t = dtype_of(out)
    return g.op("sub", value(g, b, t), scaled(g, t, a, alpha))


def scaled(g, t, x, by):
    x = value(g, x, t)
    return x if by == 1 else g.op("mul", x, value(g, by, t))


@row(*overloads("reciprocal"))
def _(g, out, x):
    return g.op("recip", g.cast(x, dtype_of(out)))


@row(*overloads("sign", "sgn"))
def _(g, out, x):
    if x.dtype == "bool" or not x.is_float:
        return x if x.dtype == "bool" else g.op("sign", x)
    return select(g, g.op("isnan", x, dtype="bool"), value(g, 0, x.dtype), g.op("sign", x))  # PyTorch's of NaN is 0


@row(*overloads("div.Tensor_mode", "div.Scalar_mode"))
def _(g, out, a, b, rounding_mode=None):
    t = dtype_of(out)
    a, b = value(g, a, t), value(g, b, t)
    if rounding_mode == "floor":
        return floor_divide(g, a, b)
    y = g.op("div", a, b)
    return g.op("trunc", y) if rounding_mode and a.is_float else y


@row(*overloads("floor_divide"))
def _(g, out, a, b):
    t = dtype_of(out)
    return floor_divide(g, value(g, a, t), value(g, b, t))


def floor_divide(g, a, b):
    """Towards minus infinity. Floats by their remainder, as c10::div_floor_floating: 1 / 0.1 rounds up to 10, 1 // 0.1 is 9."""
    r = g.op("mod", a, b)
    down = g.cast(apart(g, r, b), a.dtype)
    if not a.is_float:
        return g.op("sub", g.op("div", a, b), down)
    y = g.op("round", g.op("sub", g.op("div", g.op("sub", a, r), b), down))
    return select(g, g.op("eq", b, value(g, 0, b.dtype), dtype="bool"), g.op("div", a, b), y)


def apart(g, r, b):
    """Whether the remainder r of a division by b is not 0 and has the other sign."""
    zero = value(g, 0, r.dtype)
    other = g.op("xor", g.op("lt", r, zero, dtype="bool"), g.op("lt", b, zero, dtype="bool"))
    return g.op("and", g.op("ne", r, zero, dtype="bool"), other)


@row(*overloads("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"))
def _(g, out, a, b):
    t = dtype_of(out)
    a, b = value(g, a, t), value(g, b, t)
    r = g.op("mod", a, b)
    return select(g, apart(g, r, b), g.op("add", r, b), r)


@row(*overloads("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"))
def _(g, out, a, b):
    t = dtype_of(out)
    if isinstance(a, Value) and not isinstance(b, Value):
        a = value(g, a, t)
        if b == 2:
            return g.op("square", a)
        if b == 1:
            return a
        if b == 3:
            return g.op("mul", g.op("square", a), a)
        if b in (0.5, -0.5, -1) and a.is_float:
            return g.op({0.5: "sqrt", -0.5: "rsqrt", -1: "recip"}[b], a)
        if not a.is_float and 0 <= b <= 64:
            return power(g, a, int(b))
    if t not in ("f64", "f32", "f16", "bf16"):
        raise Unsupported("pow of integers")
    return g.op("pow", value(g, a, t), value(g, b, t))


def power(g, x, n):
    """Of integers, by squaring."""
    if n == 0:
        return g.broadcast(value(g, 1, x.dtype), x.shape)
    y = x if n == 1 else g.op("square", power(g, x, n // 2))
    return g.op("mul", y, x) if n > 1 and n % 2 else y


@row(*overloads("gelu"))
def _(g, out, x, approximate="none"):
    return g.op("gelu", x, approximate=None if approximate == "none" else approximate)


@row(*overloads("leaky_relu"))
def _(g, out, x, negative_slope=0.01):
    return g.op("leaky_relu", x, alpha=float(negative_slope))


@row(*overloads("elu"))
def _(g, out, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if input_scale != 1:
        raise Unsupported("elu with input_scale")
    if (alpha, scale) == (1.6732632423543772, 1.0507009873554805):
        return g.op("selu", x)
    return scaled(g, x.dtype, g.op("elu", x, alpha=float(alpha)), scale)


@row(*overloads("celu"))
def _(g, out, x, alpha=1.0):
    return scaled(g, x.dtype, g.op("elu", g.op("div", x, value(g, alpha, x.dtype))), alpha)


@row(*overloads("_prelu_kernel", "prelu"))
def _(g, out, x, weight):
    if weight.rank == 1 and x.rank > 1:
        weight = g.reshape(weight, [1, weight.shape[0]] + [1] * (x.rank - 2))
    return g.op("prelu", x, weight)


@row(*overloads("softplus"))
def _(g, out, x, beta=1, threshold=20):
    t = scaled(g, x.dtype, x, beta)
    y = g.op("softplus", t)
    y = y if beta == 1 else g.op("div", y, value(g, beta, x.dtype))
    return y if threshold >= 20 else select(g, g.op("gt", t, value(g, threshold, x.dtype), dtype="bool"), x, y)


@row(*overloads("log_sigmoid_forward"))
def _(g, out, x):
    return [g.op("neg", g.op("softplus", g.op("neg", x))), None]


@row(*overloads("glu"))
def _(g, out, x, dim=-1):
    n = x.shape[dim] // 2
    return g.op("mul", g.slice(x, dim, 0, n), g.op("sigmoid", g.slice(x, dim, n, 2 * n)))


def clip(g, x, lo, hi):
    lo, hi = None if lo == -math.inf else lo, None if hi == math.inf else hi
    if not x.is_float or None not in (lo, hi) and lo > hi:
        for op, v in (("max", lo), ("min", hi)):
            x = x if v is None else g.op(op, x, value(g, v, x.dtype))
        return x
    if (lo, hi) == (0, 6):
        return g.op("relu6", x)
    if (lo, hi) == (0, None):
        return g.op("relu", x)
    return x if lo is hi is None else g.op("clip", x, lo=None if lo is None else float(lo), hi=None if hi is None else float(hi))


@row(*overloads("hardtanh"))
def _(g, out, x, lo=-1, hi=1):
    return clip(g, x, lo, hi)


@row(*overloads("clamp"))
def _(g, out, x, lo=None, hi=None):
    return clip(g, g.cast(x, dtype_of(out)), lo, hi)


@row(*overloads("clamp_min"))
def _(g, out, x, lo):
    return clip(g, g.cast(x, dtype_of(out)), lo, None)


@row(*overloads("clamp_max"))
def _(g, out, x, hi):
    return clip(g, g.cast(x, dtype_of(out)), None, hi)


@row(*overloads("clamp.Tensor", "clamp_min.Tensor"))
def _(g, out, x, lo=None, hi=None):
    t = dtype_of(out)
    x = value(g, x, t) if lo is None else g.op("max", value(g, x, t), value(g, lo, t))
    return x if hi is None else g.op("min", x, value(g, hi, t))


@row(*overloads("where.self", "where.ScalarOther", "where.ScalarSelf"))
def _(g, out, c, a, b):
    t = dtype_of(out)
    return select(g, truth(g, c), value(g, a, t), value(g, b, t))


@row(*overloads("masked_fill.Scalar", "masked_fill.Tensor"))
def _(g, out, x, mask, fill):
    return select(g, mask, value(g, fill, x.dtype), x)


@row(*overloads("lerp.Scalar", "lerp.Tensor"))
def _(g, out, a, b, weight):
    """From the nearer end, as PyTorch: exact at both."""
    w, way = value(g, weight, a.dtype), g.op("sub", b, a)
    near = g.op("lt", g.op("abs", w), value(g, 0.5, w.dtype), dtype="bool")
    far = g.op("sub", b, g.op("mul", way, g.op("sub", value(g, 1, w.dtype), w)))
    return select(g, near, g.op("add", a, g.op("mul", way, w)), far)


for _name, _op in {"addcmul": "mul", "addcdiv": "div"}.items():

    @row(*overloads(_name))
    def _addc(g, out, x, a, b, op=_op, *, value=1):
        x, a, b = (g.cast(v, dtype_of(out)) for v in (x, a, b))
        return g.op("add", x, scaled(g, x.dtype, g.op(op, a, b), value))


@row(*overloads("_to_copy", "to.dtype"), torch.ops.prims.convert_element_type.default)
def _(g, out, x, *args, **kwargs):
    t = dtype_of(out)
    if t == "bool":
        return truth(g, x)
    return g.cast(x, t)


@row(
    *overloads(
        "clone",
        "alias",
        "detach",
        "lift_fresh_copy",
        "lift_fresh",
        "contiguous",
        "_assert_tensor_metadata",
        "dropout",
        "feature_dropout",
        "alpha_dropout",
        "positive",
    )
)
def _(g, out, x, *args, **kwargs):
    return x


for _name, _by in {"log10": math.log10(math.e), "deg2rad": math.pi / 180, "rad2deg": 180 / math.pi}.items():

    @row(*overloads(_name))
    def _scaled(g, out, x, by=_by, log=_name == "log10"):
        x = g.cast(x, dtype_of(out))
        return scaled(g, x.dtype, g.op("log", x) if log else x, by)


@row(*overloads("asinh", "acosh", "atanh"))
def _(g, out, x):
    x = g.cast(x, dtype_of(out))
    if g.target is aten.atanh.default:
        return scaled(g, x.dtype, g.op("sub", g.op("log1p", x), g.op("log1p", g.op("neg", x))), 0.5)
    return asinh(g, x) if g.target is aten.asinh.default else acosh(g, x)


def asinh(g, x):
    """sign(x) log1p(a + a^2 / (1 + sqrt(a^2 + 1))), a = |x|: accurate near 0; for large a log(2 a), as a^2 could overflow."""
    a, one = g.op("abs", x), value(g, 1, x.dtype)
    square = g.op("square", a)
    near = g.op("log1p", g.op("add", a, g.op("div", square, g.op("add", one, g.op("sqrt", g.op("add", square, one))))))
    return g.op("mul", g.op("sign", x), far_log(g, a, near))


def acosh(g, x):
    """log1p(t + sqrt(t) sqrt(t + 2)), t = x - 1: accurate near 1, and NaN below, where one root of the product could be a number."""
    t = g.op("sub", x, value(g, 1, x.dtype))
    root = g.op("mul", g.op("sqrt", t), g.op("sqrt", g.op("add", t, value(g, 2, x.dtype))))
    near = g.op("log1p", g.op("add", t, root))
    return far_log(g, x, near)


def far_log(g, a, near):
    """log(2 a) where 1 is beyond the precision of a^2, else near."""
    large = value(g, 1e3 if a.dtype == "f16" else 1e9, a.dtype)
    far = g.op("add", g.op("log", a), value(g, math.log(2), a.dtype))
    return select(g, g.op("gt", a, large, dtype="bool"), far, near)


FILLED = {
    "full_like": None,
    "new_full": None,
    "zeros_like": 0,
    "new_zeros": 0,
    "ones_like": 1,
    "new_ones": 1,
    "empty_like": 0,
    "new_empty": 0,
    "new_empty_strided": 0,
}
for _name, _fill in FILLED.items():

    @row(*overloads(_name))
    def _filled(g, out, x, *args, fill=_fill, **kwargs):
        return g.known(torch.full((), args[-1] if fill is None else fill, dtype=out.dtype).expand(tuple(out.shape)))


# ---- reductions


def reduced(g, op, x, dim, keepdim, out):
    t = dtype_of(out)
    return g.reduce(op, g.cast(x, t), axes_of(x, dim), keepdim)


@row(*overloads("sum", "sum.dim_IntList"))
def _(g, out, x, dim=None, keepdim=False, dtype=None):
    return reduced(g, "reduce_sum", x, dim, keepdim, out)


@row(*overloads("mean", "mean.dim"))
def _(g, out, x, dim=None, keepdim=False, dtype=None):
    if keepdim and x.rank > 2 and sorted(axes_of(x, dim)) == list(range(2, x.rank)) and x.dtype == dtype_of(out):
        return g.op("global_avgpool", x, shape=[*x.shape[:2], *[1] * (x.rank - 2)])
    return reduced(g, "reduce_mean", x, dim, keepdim, out)


@row(*overloads("prod", "prod.dim_int"))
def _(g, out, x, dim=None, keepdim=False, dtype=None):
    return reduced(g, "reduce_prod", x, dim, keepdim, out)


def extreme(g, op, x, axes, keepdim):
    if x.dtype == "bool":
        return truth(g, g.reduce(op, g.cast(x, "i32"), axes, keepdim))
    return g.reduce(op, x, axes, keepdim)


for _name in ("max", "min"):

    @row(*overloads("a" + _name))
    def _aextreme(g, out, x, dim=None, keepdim=False, op="reduce_" + _name):
        return extreme(g, op, x, axes_of(x, dim), keepdim)

    @row(*overloads(_name, f"{_name}.dim", f"{_name}.other"))
    def _extreme(g, out, x, dim=None, keepdim=False, op=_name):
        if isinstance(dim, Value):
            t = dtype_of(out)
            return g.op(op, value(g, x, t), value(g, dim, t))
        most = extreme(g, "reduce_" + op, x, axes_of(x, dim), keepdim)
        return most if dim is None else [most, arg(g, op, x, dim, keepdim)]


def arg(g, op, x, dim, keepdim):
    if x.rank == 0:
        return value(g, 0, "i64")
    x, axis = g.cast(x, "i32") if x.dtype == "bool" else x, dim % x.rank
    shape = [1 if i == axis else n for i, n in enumerate(x.shape) if keepdim or i != axis]
    return g.op("arg" + op, x, shape=shape, dtype="i64", axis=axis, keepdims=bool(keepdim))


for _name in ("max", "min"):

    @row(*overloads("arg" + _name))
    def _arg(g, out, x, dim=None, keepdim=False, op=_name):
        if dim is None:
            y = arg(g, op, g.reshape(x, [math.prod(x.shape)]), 0, False)
            return g.reshape(y, out.shape)
        return arg(g, op, x, dim, keepdim)


def wide(g, x):
    """In f32 instead of f16 and bf16, for sums whose terms could overflow."""
    return g.cast(x, "f32") if x.dtype in ("f16", "bf16") else x


def moments(g, x, dim, correction, keepdim):
    if not x.rank:
        raise Unsupported("a variance of one element")
    x, axes = wide(g, x), axes_of(x, dim)
    mean = g.reduce("reduce_mean", x, axes, True)
    total = g.reduce("reduce_sum", g.op("square", g.op("sub", x, mean)), axes, keepdim)
    n = math.prod(x.shape[a] for a in axes) - (1 if correction is None else correction)
    if n <= 0:
        raise Unsupported("a variance of one element")
    return g.op("div", total, value(g, n, x.dtype)), mean if keepdim else g.reshape(mean, total.shape)


@row(*overloads("var.correction"))
def _(g, out, x, dim=None, correction=None, keepdim=False):
    return g.cast(moments(g, x, dim, correction, keepdim)[0], x.dtype)


@row(*overloads("std.correction"))
def _(g, out, x, dim=None, correction=None, keepdim=False):
    return g.cast(g.op("sqrt", moments(g, x, dim, correction, keepdim)[0]), x.dtype)


@row(*overloads("var_mean.correction"))
def _(g, out, x, dim=None, correction=None, keepdim=False):
    return [g.cast(y, x.dtype) for y in moments(g, x, dim, correction, keepdim)]


for _name, _op in {"any": "reduce_max", "all": "reduce_min"}.items():

    @row(*overloads(_name, f"{_name}.dim", f"{_name}.dims"))
    def _anyall(g, out, x, dim=None, keepdim=False, op=_op):
        x = truth(g, x)
        return g.cast(x if dim == [] else extreme(g, op, x, axes_of(x, dim), keepdim), dtype_of(out))  # u8 of u8


@row(*overloads("linalg_vector_norm"))
def _(g, out, x, ord=2, dim=None, keepdim=False, dtype=None):
    return g.cast(norm(g, g.cast(x, dtype_of(out)), ord, axes_of(x, dim), keepdim), dtype_of(out))


@row(*overloads("_cdist_forward"))
def _(g, out, a, b, p, mode):
    a, b = (g.reshape(v, [*v.shape[:-2], *pair, v.shape[-1]]) for v, pair in ((a, (a.shape[-2], 1)), (b, (1, b.shape[-2]))))
    return norm(g, g.op("sub", a, b), p, [-1], False)


def norm(g, x, ord, axes, keepdim):
    """In f32 of f16 and bf16."""
    x = wide(g, x)
    a = g.op("abs", x)
    if abs(ord) == math.inf:
        return g.reduce("reduce_max" if ord > 0 else "reduce_min", a, axes, keepdim)
    if ord == 0:
        return g.reduce("reduce_sum", g.cast(truth(g, x), x.dtype), axes, keepdim)
    if ord == 1:
        return g.reduce("reduce_sum", a, axes, keepdim)
    if ord == 2:
        return g.op("sqrt", g.reduce("reduce_sum", g.op("square", x), axes, keepdim))
    total = g.reduce("reduce_sum", g.op("pow", a, value(g, ord, x.dtype)), axes, keepdim)
    return g.op("pow", total, value(g, 1 / ord, x.dtype))


@row(*overloads("logsumexp"))
def _(g, out, x, dim, keepdim=False):
    x, axes = g.cast(x, dtype_of(out)), axes_of(x, dim)
    most = g.reduce("reduce_max", x, axes, True)
    infinite = g.op("isinf", most, dtype="bool")  # inf - inf would be NaN
    shift = select(g, infinite, value(g, 0, x.dtype), most)
    total = g.op("log", g.reduce("reduce_sum", g.op("exp", g.op("sub", x, shift)), axes, True))
    y = g.op("add", total, shift)
    return y if keepdim else g.reshape(y, out.shape)


@row(*overloads("_softmax"))
def _(g, out, x, dim, half_to_float=False):
    return softmax(g, "softmax", g.cast(x, dtype_of(out)), dim)


@row(*overloads("_log_softmax"))
def _(g, out, x, dim, half_to_float=False):
    return softmax(g, "log_softmax", g.cast(x, dtype_of(out)), dim)


@row(*overloads("_safe_softmax"))
def _(g, out, x, dim, dtype=None):
    x = g.cast(x, dtype_of(out))
    masked = g.op("eq", g.reduce("reduce_max", x, [axis_of(x, dim)], True), value(g, -math.inf, x.dtype), dtype="bool")
    return select(g, masked, value(g, 0, x.dtype), softmax(g, "softmax", x, dim))


def softmax(g, op, x, dim):
    return g.op(op, x, axis=axis_of(x, dim))


for _name in ("cumsum", "cumprod"):

    @row(*overloads(_name))
    def _scan(g, out, x, dim, dtype=None, op=_name):
        return g.op(op, g.cast(x, dtype_of(out)), axis=axis_of(x, dim))


@row(*overloads("topk"))
def _(g, out, x, k, dim=-1, largest=True, sorted=True):
    return topk(g, x, k, dim, largest)


@row(*overloads("sort", "sort.stable"))
def _(g, out, x, *args, stable=None, dim=-1, descending=False):
    dim, descending = (*args, *(dim, descending)[len(args) :]) if args else (dim, descending)
    return topk(g, x, x.shape[axis_of(x, dim)], dim, descending)


def topk(g, x, k, dim, largest):
    shape, axis = list(x.shape), axis_of(x, dim)
    shape[axis] = k
    return g.node("topk", (x,), [(shape, x.dtype), (shape, "i64")], {"axis": axis, "k": k, "largest": None if largest else 0})


# ---- movement


@row(
    *overloads(
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "unsqueeze",
        "squeeze",
        "squeeze.dim",
        "squeeze.dims",
        "flatten.using_ints",
        "unflatten.int",
    )
)
def _(g, out, x, *args, **kwargs):
    return g.reshape(x, out.shape)


@row(*overloads("as_strided"))
def _(g, out, x, size, stride, offset=None):
    """By the indices that it picks, where these are known from the operand's strides in PyTorch."""
    val = g.fx.args[0].meta["val"]
    n = math.prod(x.shape)
    index = torch.full((max(n, 1 + sum((s - 1) * st for s, st in zip(val.shape, val.stride()))),), -1)
    index.as_strided(tuple(val.shape), val.stride()).copy_(torch.arange(n).reshape(x.shape))
    first = 0 if offset is None else offset - val.storage_offset()
    if first < 0 or first + sum((s - 1) * st for s, st in zip(size, stride)) >= len(index):
        raise Unsupported("memory beyond the tensor")
    index = index.as_strided(size, stride, first).reshape(-1)
    if (index < 0).any():
        raise Unsupported("memory between the elements")
    if index.tolist() == list(range(n)):
        return g.reshape(x, out.shape)
    return g.reshape(gather(g, g.reshape(x, [n]), g.known(index), 0), out.shape)


@row(*overloads("permute"))
def _(g, out, x, dims):
    return g.transpose(x, [d % x.rank for d in dims])


@row(*overloads("transpose.int"))
def _(g, out, x, a, b):
    perm = list(range(x.rank))
    if perm:
        perm[a], perm[b] = perm[b], perm[a]
    return g.transpose(x, perm)


@row(*overloads("diagonal", "diagonal_copy"))
def _(g, out, x, offset=0, dim1=0, dim2=1):
    if 0 in out.shape:
        raise Unsupported("a tensor without elements")
    a, b = dim1 % x.rank, dim2 % x.rank
    rest = [d for d in range(x.rank) if d not in (a, b)]
    n, m = x.shape[a], x.shape[b]
    y = g.reshape(g.transpose(x, [*rest, a, b]), [*(x.shape[d] for d in rest), n * m])
    first = max(offset, -offset * m)
    return g.slice(y, -1, first, first + (out.shape[-1] - 1) * (m + 1) + 1, m + 1)


@row(*overloads("unfold", "unfold_copy"))
def _(g, out, x, dim, size, step):
    d = axis_of(x, dim)
    index = torch.arange(out.shape[d])[:, None] * step + torch.arange(size)
    y = gather(g, x, g.known(index), d)
    return g.transpose(y, [*range(d + 1), *range(d + 2, y.rank), d + 1])


@row(*overloads("t"))
def _(g, out, x):
    return g.transpose(x, list(range(x.rank))[::-1])


@row(*overloads("expand", "expand_copy"))
def _(g, out, x, size, implicit=False):
    return g.broadcast(x, out.shape)


@row(*overloads("copy"))
def _(g, out, x, source, non_blocking=False):
    return g.broadcast(g.cast(source, x.dtype), x.shape)


@row(*overloads("fill.Scalar", "fill.Tensor"))
def _(g, out, x, fill):
    return g.broadcast(value(g, fill, x.dtype), x.shape)


@row(*overloads("repeat"))
def _(g, out, x, repeats):
    shape = [1] * (len(repeats) - x.rank) + list(x.shape)
    split = [n for r, s in zip(repeats, shape) for n in ((r, s) if r != 1 and s != 1 else (max(r, 1) * s,))]
    source = [n for r, s in zip(repeats, shape) for n in ((1, s) if r != 1 and s != 1 else (s,))]
    return g.reshape(g.broadcast(g.reshape(x, source), split), out.shape)


@row(*overloads("repeat_interleave.self_int"))
def _(g, out, x, repeats, dim=None, output_size=None):
    shape = list(x.shape) if dim is not None else [math.prod(x.shape)]
    d = axis_of(x, dim) if dim is not None else 0
    y = g.reshape(x, [*shape[: d + 1], 1, *shape[d + 1 :]])
    return g.reshape(g.broadcast(y, [*shape[: d + 1], repeats, *shape[d + 1 :]]), out.shape)


def bounds(n, start, end):
    """Of a slice of n elements, as PyTorch clamps them."""
    start, end = (0 if start is None else start), (n if end is None else end)
    start, end = (v + n if v < 0 else v for v in (start, end))
    start = min(max(start, 0), n)
    return start, min(max(end, start), n)


@row(*overloads("slice.Tensor"))
def _(g, out, x, dim=0, start=None, end=None, step=1):
    return g.slice(x, dim, *bounds(x.shape[dim], start, end), step)


@row(*overloads("select.int"))
def _(g, out, x, dim, index):
    index %= x.shape[dim]
    return g.reshape(g.slice(x, dim, index, index + 1), out.shape)


def split(g, x, sizes, dim):
    dim %= x.rank
    if len(sizes) == 1:
        return [x]
    types = [((*x.shape[:dim], n, *x.shape[dim + 1 :]), x.dtype) for n in sizes]
    return g.node("split", (x,), types, {"axis": dim, "sizes": sizes})


@row(*overloads("split.Tensor", "split_with_sizes", "chunk", "tensor_split.sections"))
def _(g, out, x, sizes, dim=0):
    return split(g, x, [o.shape[dim] for o in out], dim)


@row(*overloads("unbind.int"))
def _(g, out, x, dim=0):
    return [g.reshape(p, o.shape) for p, o in zip(split(g, x, [1] * x.shape[dim], dim), out)]


@row(*overloads("cat"))
def _(g, out, xs, dim=0):
    if 0 in out.shape:
        raise Unsupported("a tensor without elements")
    return g.concat([g.cast(x, dtype_of(out)) for x in xs if 0 not in x.shape], dim)


@row(*overloads("stack"))
def _(g, out, xs, dim=0):
    dim %= xs[0].rank + 1
    return g.concat([g.reshape(g.cast(x, dtype_of(out)), [*x.shape[:dim], 1, *x.shape[dim:]]) for x in xs], dim)


def pads_of(x, pad):
    """torch's pads, last dimension first, as nnc's: begin of every dimension, then end."""
    begin, end = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        begin[-1 - i], end[-1 - i] = pad[2 * i], pad[2 * i + 1]
    return begin, end


def padded(g, x, pad, mode, fill=None):
    begin, end = pads_of(x, pad)
    for d in range(x.rank):  # negative pads cut
        if begin[d] < 0 or end[d] < 0:
            x = g.slice(x, d, max(0, -begin[d]), x.shape[d] - max(0, -end[d]))
    begin, end = [max(0, b) for b in begin], [max(0, e) for e in end]
    if not any(begin) and not any(end):
        return x
    shape = [b + n + e for b, n, e in zip(begin, x.shape, end)]
    return g.op("pad", x, shape=shape, pads=begin + end, value=fill, mode=mode)


@row(*overloads("constant_pad_nd"))
def _(g, out, x, pad, value=0):
    return padded(g, x, pad, None, None if value == 0 else float(value))


@row(*overloads("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"))
def _(g, out, x, pad):
    return padded(g, x, pad, "reflect")


@row(*overloads("replication_pad1d", "replication_pad2d", "replication_pad3d"))
def _(g, out, x, pad):
    return padded(g, x, pad, "edge")


@row(*overloads("flip"))
def _(g, out, x, dims):
    return g.op("flip", x, axes=sorted(d % x.rank for d in dims)) if dims else x


@row(*overloads("roll"))
def _(g, out, x, shifts, dims=()):
    shifts, dims = pair(shifts, 1), pair(dims, 1) if dims or dims == 0 else []
    x = x if dims else g.reshape(x, [math.prod(x.shape)])
    for s, d in zip(shifts, dims or [0]):
        n = x.shape[d]
        if n and s % n:
            x = g.concat([g.slice(x, d, n - s % n, n), g.slice(x, d, 0, n - s % n)], d)
    return g.reshape(x, out.shape)


@row(*overloads("pixel_shuffle"))
def _(g, out, x, r):
    *b, c, h, w = x.shape
    n = len(b)
    y = g.reshape(x, [*b, c // (r * r), r, r, h, w])
    return g.reshape(g.transpose(y, [*range(n), n, n + 3, n + 1, n + 4, n + 2]), out.shape)


@row(*overloads("pixel_unshuffle"))
def _(g, out, x, r):
    *b, c, h, w = x.shape
    n = len(b)
    y = g.reshape(x, [*b, c, h // r, r, w // r, r])
    return g.reshape(g.transpose(y, [*range(n), n, n + 2, n + 4, n + 1, n + 3]), out.shape)


@row(*overloads("slice_scatter"))
def _(g, out, x, src, dim=0, start=None, end=None, step=1):
    n, src = x.shape[dim], g.cast(src, x.dtype)
    start, end = bounds(n, start, end)
    if step != 1:
        at = torch.arange(n)
        at[start:end:step] = n + torch.arange(src.shape[dim])
        return gather(g, g.concat([x, src], dim), g.known(at), dim)
    parts = [g.slice(x, dim, 0, start)] if start else []
    parts += [src] + ([g.slice(x, dim, end, n)] if end < n else [])
    return g.concat(parts, dim)


@row(*overloads("diagonal_scatter"))
def _(g, out, x, src, *where):
    at = torch.arange(math.prod(x.shape)).reshape(x.shape)
    at.diagonal(*where).copy_(at.numel() + torch.arange(math.prod(src.shape)).reshape(src.shape))
    both = g.concat([g.reshape(v, [math.prod(v.shape)]) for v in (x, g.cast(src, x.dtype))], 0)
    return gather(g, both, g.known(at), 0)


@row(*overloads("select_scatter"))
def _(g, out, x, src, dim, index):
    n = x.shape[dim]
    index, d = index % n, dim % x.rank
    src = g.reshape(g.cast(src, x.dtype), [*x.shape[:d], 1, *x.shape[d + 1 :]])
    parts = ([g.slice(x, d, 0, index)] if index else []) + [src] + ([g.slice(x, d, index + 1, n)] if index + 1 < n else [])
    return g.concat(parts, d)


for _name in ("tril", "triu"):

    @row(*overloads(_name))
    def _triangle(g, out, x, diagonal=0, op=_name):
        keep = g.known(getattr(torch.ones(x.shape[-2:], dtype=torch.bool), op)(diagonal))
        return select(g, keep, x, value(g, 0, x.dtype))


# ---- by index


def gather(g, x, index, axis):
    axis = axis_of(x, axis)
    return g.op("gather", x, index, shape=[*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]], dtype=x.dtype, axis=axis)


@row(*overloads("embedding"))
def _(g, out, weight, index, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return gather(g, weight, index, 0)


@row(*overloads("index_select"))
def _(g, out, x, dim, index):
    return gather(g, x, index, dim)


@row(*overloads("gather"))
def _(g, out, x, dim, index, sparse_grad=False):
    return g.op("gather_elements", x, index, shape=index.shape, dtype=x.dtype, axis=axis_of(x, dim))


def places(g, x, indices):
    """Of x[indices]: the indexed dimensions and the others; the indices' common shape; the indices [*shape, n]. Last, whether the common
    dimensions replace the indexed ones, which are adjacent, instead of preceding all others."""
    at = [d for d, i in enumerate(indices) if i is not None]
    if any(indices[d].dtype in ("bool", "u8") for d in at):
        raise Unsupported("index by a mask: a shape that depends on data")
    shape = broadcast_shape(*(indices[d].shape for d in at))
    parts = [g.reshape(g.broadcast(g.cast(indices[d], "i64"), shape), [*shape, 1]) for d in at]
    return at, [d for d in range(x.rank) if d not in at], shape, g.concat(parts, -1), at == list(range(at[0], at[0] + len(at)))


@row(*overloads("index.Tensor"))
def _(g, out, x, indices):
    at, rest, shape, index, stay = places(g, x, indices)
    if len(at) == 1:
        return gather(g, x, indices[at[0]], at[0])
    y = g.op("gather_nd", g.transpose(x, at + rest), index, shape=[*shape, *(x.shape[d] for d in rest)], dtype=x.dtype)
    n, before = len(shape), at[0] if stay else 0
    return g.transpose(y, [*range(n, n + before), *range(n), *range(n + before, y.rank)])


@row(*overloads("index_put", "_unsafe_index_put"))
def _(g, out, x, indices, values, accumulate=False):
    if len(indices) == 1 and indices[0].dtype == "bool" and not accumulate:
        mask, row = indices[0], values.shape
        if row[:1] == (1,) and len(row) > x.rank - mask.rank:
            row = () if math.prod(row) == 1 else row[1:]
        if len(row) <= x.rank - mask.rank:  # the same for all that the mask picks
            mask = g.reshape(mask, [*mask.shape, *[1] * (x.rank - mask.rank)])
            return select(g, mask, g.reshape(values, row), x)
    at, rest, shape, index, stay = places(g, x, indices)
    n, before = len(shape), at[0] if stay else 0
    rests = [x.shape[d] for d in rest]
    updates = g.broadcast(values, [*rests[:before], *shape, *rests[before:]])
    updates = g.transpose(updates, [*range(before, before + n), *range(before), *range(before + n, updates.rank)])
    y = g.op(
        "scatter_nd",
        g.transpose(x, at + rest),
        index,
        updates,
        shape=[*(x.shape[d] for d in at), *rests],
        dtype=x.dtype,
        reduction="add" if accumulate else None,
    )
    return g.transpose(y, inverse(at + rest))


def scatter(g, x, dim, index, src, reduction):
    src = value(g, src, x.dtype)
    if src.rank == 0 and index.rank:
        src = g.broadcast(src, index.shape)
    for d in range(src.rank):
        src = g.slice(src, d, 0, index.shape[d])
    return g.op("scatter", x, index, src, shape=x.shape, dtype=x.dtype, axis=axis_of(x, dim), reduction=reduction)


@row(*overloads("scatter.src", "scatter.value"))
def _(g, out, x, dim, index, src):
    return scatter(g, x, dim, index, src, None)


@row(*overloads("scatter_add"))
def _(g, out, x, dim, index, src):
    return scatter(g, x, dim, index, src, "add")


@row(*overloads("scatter_reduce.two"))
def _(g, out, x, dim, index, src, reduce, *, include_self=True):
    if x.dtype == "bool":
        raise Unsupported("bool operand")
    op = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    if not include_self:
        info = (torch.finfo if x.is_float else torch.iinfo)(out.dtype)
        low, high = (-math.inf, math.inf) if x.is_float else (info.min, info.max)
        x = scatter(g, x, dim, index, {"add": 0, "mul": 1, "max": low, "min": high}[op], None)
    y = scatter(g, x, dim, index, src, op)
    if reduce != "mean":
        return y
    one = value(g, 1, x.dtype)
    count = scatter(g, g.broadcast(one if include_self else value(g, 0, x.dtype), x.shape), dim, index, 1, "add")
    count = count if include_self else g.op("max", count, one)
    return g.op("div", y, count) if x.is_float else floor_divide(g, y, count)


@row(operator.getitem)
def _(g, out, xs, i):
    if callable(xs[i]):  # a result that is seldom used
        xs[i] = xs[i]()
    if xs[i] is None:
        raise Unsupported("a result that nnc does not compute")
    return xs[i]
