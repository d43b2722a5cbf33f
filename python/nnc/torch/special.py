"""Rows of the table of aten ops (ops.py): special functions, whose formulas are made for f32, and ops by rank or order."""

import math

import torch

from . import layers
from .graph import Unsupported, dtype_of
from .ops import axis_of, common, gather, negative, overloads, row, select, topk, value, wide

ROWS = layers.ROWS  # and of this file

# ---- functions


def horner(g, x, coefficients):
    """A polynomial, of the highest power first."""
    y = value(g, coefficients[0], x.dtype)
    for c in coefficients[1:]:
        y = g.op("add", g.op("mul", y, x), value(g, c, x.dtype))
    return y


def in_f32(name):
    """A row for a function of x in f32; f16 and bf16 are computed in it."""

    def enter(f):
        @row(*overloads(name))
        def lower(g, out, x):
            t = dtype_of(out)
            if t == "f64":
                raise Unsupported("f64, beyond the accuracy of the formula")
            return g.cast(f(g, wide(g, g.cast(x, t))), t)

        return f

    return enter


def number(g, x):
    return value(g, x, "f32")


def is_(g, op, x, y):
    return g.op(op, x, number(g, y), dtype="bool")


@in_f32("erfc")
def _(g, x):
    """Chebyshev's fit of Numerical Recipes, erfccheb's forerunner: relative error 1.2e-7."""
    z = g.op("abs", x)
    t = g.op("recip", g.op("add", number(g, 1), g.op("mul", z, number(g, 0.5))))
    fit = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223)
    y = g.op("mul", t, g.op("exp", g.op("sub", horner(g, t, fit), g.op("square", z))))
    return select(g, is_(g, "lt", x, 0), g.op("sub", number(g, 2), y), y)


@in_f32("erfinv")
def _(g, x):
    """M. Giles, Approximating the erfinv function (GPU Computing Gems 2, 2011), in single precision."""
    one = number(g, 1)
    w = g.op("neg", g.op("log", g.op("mul", g.op("sub", one, x), g.op("add", one, x))))
    near = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727)
    far = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406)
    near = horner(g, g.op("sub", w, number(g, 2.5)), (*near, 1.50140941))
    far = horner(g, g.op("sub", g.op("sqrt", w), number(g, 3)), (*far, 2.83297682))
    far = select(g, g.op("isinf", w, dtype="bool"), number(g, math.inf), far)
    return g.op("mul", select(g, is_(g, "lt", w, 5), near, far), x)


def reflected(g, x):
    """1 - x where x < 1/2, else x; whether; and pi times the distance of x from the nearest integer."""
    low = is_(g, "lt", x, 0.5)
    apart = select(g, is_(g, "eq", x, 0), x, g.op("sub", x, g.op("round", x)))  # -0 is on the other side of a pole
    return select(g, low, g.op("sub", number(g, 1), x), x), low, g.op("mul", apart, number(g, math.pi))


@in_f32("lgamma")
def _(g, x):
    """Lanczos' sum for x >= 1/2 with the coefficients of Numerical Recipes, and Gamma(x) Gamma(1 - x) = pi / sin(pi x) below."""
    z, low, angle = reflected(g, x)
    terms = (76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 0.1208650973866179e-2, -0.5395239384953e-5)
    total = number(g, 1.000000000190015)
    for k, c in enumerate(terms, 1):
        total = g.op("add", total, g.op("div", number(g, c), g.op("add", z, number(g, k))))
    most = g.op("sub", g.op("log", g.op("add", z, number(g, 5.5))), number(g, 1))
    most = g.op("sub", g.op("mul", g.op("add", z, number(g, 0.5)), most), number(g, 5))
    y = g.op("add", most, g.op("log", g.op("div", g.op("mul", total, number(g, math.sqrt(2 * math.pi))), z)))
    below = g.op("sub", number(g, math.log(math.pi)), g.op("log", g.op("abs", g.op("sin", angle))))
    y = select(g, low, g.op("sub", below, y), y)
    return select(g, g.op("isinf", x, dtype="bool"), number(g, math.inf), y)


@in_f32("digamma")
def _(g, x):
    """The asymptotic series at x + 6, taken back by psi(x + 1) = psi(x) + 1 / x; psi(1 - x) - psi(x) = pi / tan(pi x) below 1/2."""
    z, low, angle = reflected(g, x)
    b = g.op("add", z, number(g, 6))
    r = g.op("recip", g.op("square", b))
    y = g.op("sub", g.op("log", b), g.op("div", number(g, 0.5), b))
    y = g.op("sub", y, g.op("mul", r, horner(g, r, (1 / 252, -1 / 120, 1 / 12))))
    for k in range(6):
        y = g.op("sub", y, g.op("recip", g.op("add", z, number(g, k))))
    y = select(g, low, g.op("sub", y, g.op("div", number(g, math.pi), g.op("tan", angle))), y)
    pole = g.op("and", is_(g, "lt", x, 0), is_(g, "eq", angle, 0))
    return select(g, pole, number(g, math.nan), y)


@row(*overloads("hypot"))
def _(g, out, a, b):
    """By the ratio of the magnitudes, as a square could overflow. Infinite where one is, even beside a NaN."""
    t = dtype_of(out)
    a, b = (g.op("abs", value(g, v, t)) for v in (a, b))
    high, one = g.op("max", a, b), value(g, 1, t)
    ratio = g.op("div", g.op("min", a, b), high)
    y = g.op("mul", high, g.op("sqrt", g.op("add", one, g.op("square", ratio))))
    y = select(g, g.op("eq", high, value(g, 0, t), dtype="bool"), high, y)
    infinite = g.op("or", *(g.op("isinf", v, dtype="bool") for v in (a, b)))
    return select(g, infinite, value(g, math.inf, t), y)


@row(*overloads("signbit"))
def _(g, out, x):
    if x.is_float:
        return negative(g, x)
    return g.broadcast(value(g, False, "bool"), x.shape) if x.dtype == "bool" else g.op("lt", x, value(g, 0, x.dtype), dtype="bool")


# ---- by rank or order

MANY = 4096  # edges: so many are compared with each number; a search among more is faster


def places_among(g, out, edges, x, right):
    """Number of sorted edges [..., n] below each x [..., m]; with `right` also those equal to it. A NaN is above all."""
    if edges.shape[-1] > MANY:
        raise Unsupported(f"more than {MANY} edges")
    t = common(edges, x)
    edges, x = value(g, edges, t), value(g, x, t)
    edges = edges if edges.rank == 1 else g.reshape(edges, [*edges.shape[:-1], 1, edges.shape[-1]])
    above = g.op("gt" if right else "ge", edges, g.reshape(x, [*x.shape, 1]), dtype="bool")
    return g.reshape(g.reduce("reduce_sum", g.cast(g.op("not", above), dtype_of(out)), [-1], False), out.shape)


@row(*overloads("searchsorted.Tensor"))
def _(g, out, edges, x, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        edges = g.op("gather_elements", edges, sorter, shape=edges.shape, dtype=edges.dtype, axis=edges.rank - 1)
    return places_among(g, out, edges, x, right or side == "right")


@row(*overloads("bucketize.Tensor"))
def _(g, out, x, edges, *, out_int32=False, right=False):
    return places_among(g, out, edges, x, right)


@row(*overloads("histc"))
def _(g, out, x, bins=100, min=0, max=0):
    if not -math.inf < min < max < math.inf or x.dtype != dtype_of(out):
        raise Unsupported("a range that depends on data")
    x = g.reshape(x, [math.prod(x.shape), 1])
    lo, hi = value(g, min, x.dtype), value(g, max, x.dtype)
    at = g.op("floor", g.op("div", g.op("mul", g.op("sub", x, lo), value(g, bins, x.dtype)), g.op("sub", hi, lo)))
    at = g.op("min", at, value(g, bins - 1, x.dtype))  # the last bin has its upper edge
    inside = g.op("and", g.op("ge", x, lo, dtype="bool"), g.op("le", x, hi, dtype="bool"))
    here = g.op("and", g.op("eq", at, g.known(torch.arange(bins).to(out.dtype)), dtype="bool"), inside)
    return g.reduce("reduce_sum", g.cast(here, x.dtype), [0], False)


def ranked(g, x, k, dim, keepdim):
    """The k-th smallest number along a dimension, from 1, and its place."""
    axis = axis_of(x, dim)
    found = [g.slice(y, axis, k - 1, k) for y in topk(g, x, k, axis, False)]
    return [y if keepdim else g.reshape(y, [*x.shape[:axis], *x.shape[axis + 1 :]]) for y in found]


@row(*overloads("kthvalue"))
def _(g, out, x, k, dim=-1, keepdim=False):
    return ranked(g, x, k, dim, keepdim)


@row(*overloads("median", "median.dim"))
def _(g, out, x, dim=None, keepdim=False):
    """The lower one of two; NaN where there is a NaN."""
    if dim is None:
        x = g.reshape(x, [math.prod(x.shape)])
    axis = axis_of(x, 0 if dim is None else dim)
    y, at = ranked(g, x, (x.shape[axis] + 1) // 2, axis, keepdim)
    if x.is_float:
        wrong = g.cast(g.op("isnan", x, dtype="bool"), "i32")
        first = g.op("argmax", wrong, shape=y.shape, dtype="i64", axis=axis, keepdims=keepdim)
        some = g.op("eq", g.reduce("reduce_max", wrong, [axis], keepdim), value(g, 1, "i32"), dtype="bool")
        y, at = select(g, some, value(g, math.nan, y.dtype), y), select(g, some, first, at)
    return y if dim is None else [y, at]


@row(*overloads("masked_scatter"))
def _(g, out, x, mask, source):
    """The numbers of the source, in order, where the mask is set."""
    mask = g.broadcast(mask, out.shape)
    flat = g.cast(g.reshape(mask, [math.prod(out.shape)]), "i64")
    at = g.op("max", g.op("sub", g.op("cumsum", flat, axis=0), value(g, 1, "i64")), value(g, 0, "i64"))
    picked = gather(g, g.reshape(source, [math.prod(source.shape)]), at, 0)
    return select(g, mask, g.reshape(picked, out.shape), g.broadcast(x, out.shape))
