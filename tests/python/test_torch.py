"""torch.compile(backend="nnc") against PyTorch's own results: each row of the table of aten ops, and small nets."""

import os
import random
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import nnc  # noqa: E402
import nnc.torch as nt  # noqa: E402

aten = torch.ops.aten


def compiled(f, **kwargs):
    torch._dynamo.reset()
    return torch.compile(f, backend=nt.backend, **kwargs)


def flat(y):
    return [t for t in (y if isinstance(y, (tuple, list)) else [y])]


def close(got, want, factor=1):
    for a, b in zip(flat(got), flat(want), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        tol = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(a.dtype, 2e-5) * factor
        torch.testing.assert_close(a, b, rtol=tol, atol=tol, equal_nan=True)


def check(f, *args, whole=True, factor=1):
    before = len(nt.reports)
    with torch.inference_mode():
        want, got = f(*args), compiled(lambda *a: f(*a), dynamic=False)(*args)
    close(got, want, factor)
    if whole:
        assert [r.whole for r in nt.reports[before:]] == [True], nt.reports[before:]
    return got


def some(*shape, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(-9, 10, shape, generator=g).to(dtype)
    return (torch.randn(shape, generator=g)).to(dtype)


def shape_of(seed, rank=3):
    r = random.Random(seed)
    return [r.randint(1, 9) for _ in range(rank)]


X = some(2, 6, 8, 12)
M = some(5, 7)
I = some(4, 5, dtype=torch.int64)  # noqa: E741

PAIRS = {
    "fmin": torch.fmin,
    "fmax": torch.fmax,
    "copysign": torch.copysign,
    "copysign_number": lambda a, b: torch.copysign(a, -0.0) + b * 0,
    "atan2": torch.atan2,
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_special_numbers(name):
    numbers = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.5, -1e-30, 1e30, torch.inf, -torch.inf, torch.nan])
    got = check(PAIRS[name], numbers[:, None], numbers)
    want = PAIRS[name](numbers[:, None], numbers)
    assert name[0] == "f" or (got.signbit() == want.signbit())[~want.isnan()].all()
    check(PAIRS[name], some(3, 4, dtype=torch.int64), some(4, dtype=torch.int64, seed=1))


def test_shifts():
    n = torch.tensor([0, 1, 5, 31, 63])
    check(lambda a, b: (a << b, a >> b, a << 2, a >> 3, torch.bitwise_left_shift(a, 1), a.bitwise_right_shift(b)), I, n)


def test_round_to_decimals():
    check(lambda x: (x.round(decimals=2), x.round(decimals=-1), x.round(decimals=0)), some(3, 4) * 100)


NUMBERS = torch.tensor([0.0, 1, -1, 0.3, -0.3, 0.999, -0.999, 1e-4, 2, 3.5, -3.5, 7.3, -30.2, 1e8, torch.inf, -torch.inf, torch.nan])


@pytest.mark.parametrize("name", ["erfc", "erfinv", "lgamma", "digamma", "signbit"])
def test_special_functions(name):
    f = getattr(torch, name)
    for x in (NUMBERS, some(3, 4), some(3, 4).half(), some(40, 40).tanh()):
        check(f, x)
    check(f, -NUMBERS[:3])
    check(f, NUMBERS.double(), whole=name == "signbit")


def test_small_and_large_results_of_special_functions():
    check(lambda x: (x.erfc().log(), (x + 0.1).lgamma() / x, x.tanh().erfinv()), torch.linspace(0.1, 9, 90))
    check(lambda a, b: a.hypot(b), NUMBERS[:, None], NUMBERS)
    check(lambda a: (a.hypot(a * 0.5), (a * 1e-30).hypot(a * 1e-30) * 1e30, (a * 1e30).hypot(a) * 1e-30), some(3, 4))
    check(lambda a, b: (a.signbit(), b.signbit()), I, I > 0)


UNARY = """relu sigmoid tanh exp exp2 expm1 sin cos tan atan sinh cosh abs neg floor ceil round trunc erf isnan isinf square
    reciprocal sign frac logical_not""".split()
POSITIVE = "log log2 log10 log1p sqrt rsqrt acosh asinh".split()
ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, beta=2.0),
    "softsign": F.softsign,
    "elu": F.elu,
    "elu_alpha": lambda x: F.elu(x, 0.5),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 2.0),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "logsigmoid": F.logsigmoid,
    "glu": lambda x: F.glu(x, 1),
    "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 2.0),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3])),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_min": lambda x: x.clamp(min=0.1),
    "clamp_max": lambda x: x.clamp(max=0.1),
    "clamp_tensor": lambda x: x.clamp(x * 0.5, x * 0 + 1),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    for seed in range(2):
        check(getattr(torch, name), some(*shape_of(seed), seed=seed))


@pytest.mark.parametrize("name", POSITIVE)
def test_positive(name):
    check(getattr(torch, name), some(3, 5).abs() + 1.1)


@pytest.mark.parametrize("name", ["asin", "acos", "atanh"])
def test_within_one(name):
    check(getattr(torch, name), some(3, 5).tanh() * 0.9)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    check(ACTIVATIONS[name], X)


def test_unary_of_integers():
    check(lambda x: (x.abs(), x.neg(), x.sign(), x.relu(), x.float().sqrt().nan_to_num(0.0), x.sigmoid()), I)


BINARY = {
    "add": lambda a, b: a + b,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=3),
    "sub": lambda a, b: a - b,
    "rsub": lambda a, b: 2 - a + b * 0,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floor": lambda a, b: a // b,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "min": torch.minimum,
    "max": torch.maximum,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 7),
    "scalar": lambda a, b: (a * 2 + 1) * b,
    "and": lambda a, b: torch.logical_and(a, b),
    "or": torch.logical_or,
    "xor": torch.logical_xor,
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "lerp": lambda a, b: a + (b - a) * 2,
    "remainder_of_scalar": lambda a, b: 5 % b,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=["f32", "i64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    b = some(3, 1, 5, dtype=dtype, seed=3)
    b = torch.where(b == 0, torch.ones_like(b), b)
    check(BINARY[name], some(4, 5, dtype=dtype), b)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits(name):
    check(getattr(torch, name), I, I + 3)
    check(getattr(torch, name), I > 0, I > 3)


def test_places_among_edges():
    edges, x = torch.tensor([-1.0, 0, 0.5, 0.5, 2]), torch.cat([some(20), torch.tensor([0.5, -1, 2, INF, -INF, torch.nan])])
    for right in (False, True):
        check(lambda x, e: (torch.bucketize(x, e, right=right), torch.searchsorted(e, x, right=right, out_int32=True)), x, edges)
    rows, x = some(3, 7), some(3, 5, seed=1)
    check(lambda e, x: (torch.searchsorted(e, x), torch.searchsorted(e, x, side="right")), rows.sort(-1)[0], x)
    check(lambda e, x: torch.searchsorted(e, x, sorter=e.argsort(-1)), rows, x)
    check(lambda x: torch.bucketize(x, torch.tensor([-1, 3, 5])), I)
    check(lambda x: torch.bucketize(x, torch.arange(5000.0)) + 1, x, whole=False)


def test_by_rank():
    x = some(4, 7, 6)
    check(lambda x: (x.median(), *x.median(1), *x.median(-1, keepdim=True), *x.kthvalue(3), *x.kthvalue(4, 0, keepdim=True)), x)
    x[0, 2, 1] = torch.nan
    check(lambda x: (x.median(), *x.median(1), x[1].median()), x)
    check(lambda x: (*x.median(0)[:1], x.kthvalue(2, 1)[0]), I)
    check(lambda x: x.histc(7, -1, 2), torch.cat([some(90), torch.tensor([-1, 2.0, torch.nan, 2.01])]))
    with pytest.raises(RuntimeError, match="not finite"), torch.inference_mode():
        compiled(lambda x: x.histc(4, -INF, INF))(some(9))


def test_masked_scatter():
    check(lambda x, m: (x.masked_scatter(m, x.flatten() + 1), x.masked_scatter(m[:, :1], x * 2)), M, M > 0)


def test_lazily_negated_operands():
    z = torch.complex(some(3, 4), some(3, 4, seed=1))
    check(lambda x: x.exp() * 2, z.conj().imag)
    check(lambda z: z.conj().imag.exp() * 2, z, whole=False)


def test_mixed_dtypes():
    check(lambda a, b, c: (a + b, a * 2.5, b * 2.5, a > b, b + c, c * a, ~c, a.int() / b, (a > 1) == c), some(4, 5), I, I > 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
def test_half(dtype):
    net = nn.Sequential(nn.Linear(7, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)).eval().to(dtype)
    check(net, some(5, 7, dtype=dtype))
    check(lambda x: (x.softmax(-1), x.sum(0), x.mean(1), x * 2 + 1, x.float()), some(5, 7, dtype=dtype))


def test_pow():
    check(lambda x: (x**2, x**3, x**0.5, x**-0.5, x**-1, x**1.7, 2**x, x**x), some(3, 4).abs() + 0.1)


def test_pow_of_integers():
    check(lambda x: (x**0, x**1, x**2, x**5, x**6), I)


INF = torch.inf
EDGE = {
    "floor_divide": (
        lambda a, b: (a // b, a // 0.1, torch.div(a, b, rounding_mode="floor"), a % b),
        [1, 2, 0.3, -1, 3],
        [0.1, -0.1, 0.1, 0, INF],
    ),
    "lerp": (lambda a, b: (torch.lerp(a, b, 1.0), torch.lerp(a, b, 0.3), torch.lerp(a, b, a.sigmoid())), [1e8, 1, -3], [1, 2, 5]),
    "asinh": (lambda a: a.asinh() * 1e5, [1e-5, -1e-4, 3, 1e25, -INF, 0]),
    "acosh": (lambda a: a.acosh() * 1e3, [1, 1.0001, 3, 1e25, INF, 0.5, -1, -3, -1e5, -INF]),
    "logsumexp": (lambda a: a.reshape(3, 2).logsumexp(1), [-INF, -INF, INF, 1, 1, 2]),
    "clamp": (lambda a: (a.clamp(min=INF), a.clamp(max=-INF), a.clamp(-INF, 1), a.clamp(2, -2)), [0, 1, 5]),
    "hardtanh": (lambda a: (aten.hardtanh(a), aten.hardtanh(a, -2)), [-3, -1.5, 0.5, 3]),
    "softplus": (lambda a: (F.softplus(a, 1, 1), F.softplus(a, 3, 2)), [-3, 0.1, 0.9, 3, 9]),
    "expand_copy": (lambda a: aten.expand_copy(a, [3, 2]) + 0, [1, 2]),
    "norm": (lambda a: [a.norm(p=p) for p in (0, 0.5, 3, INF, -INF)], [-1, 0.5, 2]),
}


@pytest.mark.parametrize("name", EDGE)
def test_edge_of_range(name):
    f, *args = EDGE[name]
    check(f, *(torch.tensor(a, dtype=torch.float32) for a in args))


def test_small_integers_wrap():
    for dtype in (torch.uint8, torch.int8, torch.int16):
        check(lambda x: (~x, x + 300, x * 100, x > -1, x.isnan(), -x, x.all(0), x.any(())), some(3, 4).mul(9).to(dtype))


def test_large_integers_are_exact():
    x = torch.tensor([2**53 + 1, 2**61 + 1])
    y = check(lambda x: (x == 2**53 + 1, x + (2**53 + 1), x // 7), x)
    assert all(torch.equal(a, b) for a, b in zip(y, (x == 2**53 + 1, x + (2**53 + 1), x // 7)))


def test_addcmul_promotes():
    check(lambda a: torch.addcmul(a.half(), a, a), some(3, 4))


def test_sign_of_nan():
    check(torch.sign, torch.tensor([torch.nan, -2.0, 0.0, INF]))


def test_bools():
    check(lambda x: (x.isnan(), x.amax(0), x.amin(), *x.max(1), x.all(()), x.sum(0), x.cumsum(1)), some(3, 4, dtype=torch.bool))


def test_sums_of_half_do_not_overflow():
    check(lambda x: (x.var(1), x.std(), x.norm(dim=1)), (some(5, 1000) * 50).half())


def test_empty_parts():
    check(lambda x: (torch.cat([x[:, :4] * 2, x[:, 4:] + 1], 1), x[:0].sum(0) + x), some(3, 4))
    check(lambda x: (x[:0] * 2, x + 1), some(3, 4))


def test_strides_of_constants():
    check(lambda x: x.new_ones(6, 8).as_strided((2, 3, 4), (16, 8, 1)) * x, some(3, 4))


def test_scalars_and_empty_tensors_are_no_errors():
    s = torch.tensor(3.0)
    check(lambda x: (*x.sort(), x.cumsum(0), x.var(0, correction=0), x.transpose(0, -1), x.gather(0, x.long() * 0), x + 1), s, whole=False)
    check(lambda x: (torch.cat([x[:0], x[:0]]), x + 1), some(3, 4), whole=False)
    check(lambda x: (x.roll(1, 0), x.sum(0), x + 1), torch.empty(0, 4), whole=False)
    check(lambda x: x.as_strided((2, 2), (4, 1), 0) + 0, some(5, 4)[2:], whole=False)
    check(lambda x: x[1:].as_strided((2, 2), (4, 1)) + 0, some(5, 4))


REDUCE = {
    "sum": lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True)),
    "mean": lambda x: (x.mean(), x.mean(-1), x.mean((2, 3), keepdim=True)),
    "amax": lambda x: (x.amax((1, 2)), x.amin(-1, keepdim=True)),
    "max": lambda x: (x.max(), *x.max(1), *x.min(-1, keepdim=True)),
    "arg": lambda x: (x.argmax(), x.argmin(1), x.argmax(2, keepdim=True)),
    "var": lambda x: (x.var(1), x.std(-1, correction=0), *torch.var_mean(x, (0, 1))),
    "any": lambda x: ((x > 1).any(), (x > 0).any(1), (x > -1).all(2), (x > -9).all()),
    "norm": lambda x: (x.norm(dim=1), x.norm(p=1, dim=2)),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "logsumexp": lambda x: x.logsumexp((1, 2)),
    "prod": lambda x: x[:, :2].prod(1),
    "softmax": lambda x: (x.softmax(1), x.softmax(-1), x.log_softmax(2)),
    "cumsum": lambda x: (x.cumsum(1), x.cumprod(-1)),
    "topk": lambda x: (*x.topk(3), *x.topk(2, dim=1, largest=False)),
    "sort": lambda x: (x.sort(-1)[0], x.sort(1, descending=True)[0]),
}


@pytest.mark.parametrize("name", REDUCE)
def test_reduction(name):
    check(REDUCE[name], X, factor=4)


MOVE = {
    "view": lambda x: x.view(2, 48, 12) + 1,
    "permute": lambda x: x.permute(0, 2, 3, 1).relu(),
    "reshape": lambda x: (x + 1).transpose(1, 2).reshape(2, -1),
    "expand": lambda x: x[:, :1].expand(2, 5, 8, 12) * 2,
    "squeeze": lambda x: x[:, :1].squeeze(1).unsqueeze(-1) * 1.5,
    "slice": lambda x: x[:, 1:-2, ::3, -4:] + 1,
    "select": lambda x: x[:, -1] + x[0, 1],
    "split": lambda x: [p * 2 for p in x.split(4, 1)] + [p + 1 for p in x.chunk(3, -1)],
    "unbind": lambda x: [p * 2 for p in x.unbind(1)],
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1),
    "stack": lambda x: torch.stack([x, x + 1, x > 0], -1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=0.5),
    "crop": lambda x: F.pad(x, (-1, 2, 1, -3)),
    "reflect": lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"),
    "flip": lambda x: x.flip(1, -1) + 0,
    "roll": lambda x: x.roll((1, -3), (2, 3)) + 0,
    "roll_flat": lambda x: x.roll(5) + 0,
    "repeat": lambda x: x.repeat(3, 1, 2, 1, 1) + 0,
    "interleave": lambda x: x.repeat_interleave(3, 1) + 0,
    "shuffle": lambda x: F.pixel_shuffle(x[:, :4], 2) + 0,
    "unshuffle": lambda x: F.pixel_unshuffle(x, 2) + 0,
    "tril": lambda x: (x.tril(), x.triu(1)),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 3) + 0,
    "unfold": lambda x: F.unfold(x, 3) + 0,
    "antialias": lambda x: [F.interpolate(x, s, mode="bilinear", antialias=True) for s in ((16, 12), (5, 7))],
    "copy": lambda x: x.clone()[:, 1:].copy_(x[:, :1]) * 2,
    "set": lambda x: x.clone().fill_(2).index_fill(1, torch.tensor([1]), 3.0),
    "as_strided": lambda x: (x * 2).as_strided((2, 6, 4), (576, 96, 3)) + 0,
    "log10": lambda x: (x.abs() + 1).log10(),
    "diagonal": lambda x: (x.diagonal() + 0, x.diagonal(2, 1, 3) * 2, x.diagonal(-3, -1, -2) * 2, x[0, 0].trace()),
    "diagonal_set": lambda x: (torch.diag_embed(x[0, 0]), x[0, 0].diagonal_scatter(x[0, 0, 0, :8])),
    "windows": lambda x: (x.unfold(2, 3, 2) + 0, x.unfold(-1, 5, 1).mean(-1), x.unfold(1, 6, 1) * 2),
    "unfold_transposed": lambda x: x.transpose(1, 2).unfold(1, 4, 4).mean(-1),
    "const": lambda x: x + torch.arange(12) + torch.ones(8, 1) + torch.zeros_like(x) + torch.full((1,), 3.0),
    "arange": lambda x: x * torch.arange(12.0)[None],
}


@pytest.mark.parametrize("name", MOVE)
def test_move(name):
    check(MOVE[name], X)


def put_middle(t, i):
    y = t[:, None, :, None].expand(6, 2, 5, 2).clone()
    y[:, :, i[0]] = t[:, None, :3, None]
    return y


def set_by_mask(t, i):
    y = t.clone()
    y[t > 0.5] = -1
    y[t.sum(1) > 0] = 7.0
    return y


INDEX = {
    "embedding": lambda t, i: F.embedding(i, t),
    "index_select": lambda t, i: t.index_select(1, i[0]),
    "gather": lambda t, i: t.gather(1, i),
    "index": lambda t, i: t[i],
    "index2": lambda t, i: t[i, i + 1],
    "column": lambda t, i: t[:, i],
    "both": lambda t, i: t[:, None, :, None][:, :, i[0], i[0] * 0],
    "scatter": lambda t, i: t.scatter(1, i, 1.0),
    "scatter_src": lambda t, i: torch.zeros_like(t).scatter_add(0, i[:, :4], t[:, :4] + 1),
    "put": lambda t, i: t.index_put((i[0],), t[:3] * 0 + 5),
    "slice_set": lambda t, i: t.slice_scatter(t[:, :2] + 1, 1, 3, 5),
    "put_columns": lambda t, i: t.index_put((torch.arange(6)[:, None], i[0]), t[:, :3] + 5),
    "put_middle": put_middle,
    "put_add": lambda t, i: t.index_put((i[0] * 0,), t[:3], accumulate=True),
    "put_mask": lambda t, i: t.index_put((t > 0,), torch.tensor(2.0)),
    "put_mask_rows": lambda t, i: t.index_put((t[:, 0] > 0,), t[0] * 2),
    "set_by_mask": set_by_mask,
    "reduce": lambda t, i: [t.scatter_reduce(1, i, t[:2, :3] + 1, r) for r in ("sum", "prod", "mean", "amax", "amin")],
    "reduce_new": lambda t, i: [
        t.scatter_reduce(0, i % 3, t[:2] * 2, r, include_self=False) for r in ("sum", "prod", "mean", "amax", "amin")
    ],
    "reduce_integers": lambda t, i: [
        (t * 9).long().scatter_reduce(0, i, (t * 5).long()[:2], r, include_self=s) for r in ("mean", "amax") for s in (True, False)
    ],
    "index_add": lambda t, i: (t.index_add(1, i[0], t[:, :3]), t.index_copy(1, i[0], t[:, :3] * 2)),
    "step_set": lambda t, i: t.slice_scatter(t[::2] + 1, 0, 1, None, 2),
    "select_set": lambda t, i: t.select_scatter(t[1] * 2, 0, 2),
}


@pytest.mark.parametrize("name", INDEX)
def test_index(name):
    i = torch.stack([torch.randperm(4)[:3] for _ in range(2)])
    check(INDEX[name], some(6, 5), i)


def test_distances():
    check(lambda a, b: [torch.cdist(a, b, p) for p in (0.0, 1.0, 2.0, 3.0, INF)], some(2, 5, 4), some(2, 3, 4), factor=4)
    far = lambda a, b: (torch.cdist(a, b), F.pairwise_distance(a, b[:1]), F.cosine_similarity(a, b[:1]))
    check(far, some(30, 4), some(40, 4), factor=50)


def test_sampled_grid():
    for mode in ("bilinear", "nearest", "bicubic"):
        for corners in (False, True):
            check(lambda x, y: F.grid_sample(x, y, mode, align_corners=corners), X, some(2, 5, 7, 2).tanh() * 1.2, factor=8)
    check(lambda x, t: F.grid_sample(x, F.affine_grid(t, x.shape, align_corners=False), align_corners=False), X, some(2, 2, 3), factor=8)


def test_statistics_that_a_call_updates():
    a, b, x = nn.BatchNorm2d(6), nn.BatchNorm2d(6), some(3, 6, 5, 4)
    fast = compiled(a)
    with torch.no_grad():
        for _ in range(3):
            close(fast(x), b(x))
    assert nt.reports[-1].whole
    close([a.running_mean, a.running_var, a.num_batches_tracked], [b.running_mean, b.running_var, b.num_batches_tracked])


def test_matmul():
    check(lambda a, b: (a @ b, a @ b[0], a[0] @ b[0], a[0] @ b[0][:, 0], torch.einsum("bij,bjk->bik", a, b)), some(3, 4, 5), some(3, 5, 6))
    check(
        lambda c, a, b: (torch.addmm(c, a, b), torch.addmm(c, a, b, beta=2, alpha=0.5), torch.baddbmm(c, a[None], b[None])),
        some(4, 6),
        some(4, 5),
        some(5, 6),
    )
    check(lambda c, a, b: torch.addmv(c, a, b, beta=2, alpha=0.5), some(4), some(4, 5), some(5))


class Unpool(nn.Module):
    def forward(self, x):
        y, at = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y * 2, at, 2)


CONV = {
    "1d": (nn.Conv1d(6, 4, 3, padding=1), (2, 6, 9)),
    "2d": (nn.Conv2d(6, 4, 3, stride=2, padding=1), (2, 6, 9, 8)),
    "3d": (nn.Conv3d(3, 4, 2, bias=False), (1, 3, 4, 5, 6)),
    "groups": (nn.Conv2d(6, 12, 3, groups=6, dilation=2), (2, 6, 9, 8)),
    "same": (nn.Conv2d(6, 4, 4, padding="same"), (1, 6, 7, 7)),
    "transposed": (nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1), (2, 6, 5, 4)),
    "bn": (nn.Sequential(nn.Conv2d(6, 4, 1), nn.BatchNorm2d(4), nn.ReLU()), (2, 6, 5, 4)),
    "bn1d": (nn.BatchNorm1d(6, affine=False), (4, 6)),
    "groupnorm": (nn.GroupNorm(3, 6), (2, 6, 5, 4)),
    "layernorm": (nn.LayerNorm([5, 4]), (2, 6, 5, 4)),
    "rmsnorm": (nn.RMSNorm(8), (2, 3, 8)),
    "instancenorm": (nn.InstanceNorm2d(6), (2, 6, 5, 4)),
    "maxpool": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 6, 9, 8)),
    "maxpool1d": (nn.MaxPool1d(2), (2, 6, 9)),
    "maxpool3d": (nn.MaxPool3d((1, 2, 3), 2), (6, 4, 9, 8)),
    "avgpool": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 6, 9, 8)),
    "avgpool1d": (nn.AvgPool1d(3, 1, 1), (2, 6, 9)),
    "adaptive": (nn.AdaptiveAvgPool2d((3, 5)), (2, 6, 7, 8)),
    "adaptive1": (nn.AdaptiveAvgPool2d(1), (2, 6, 7, 8)),
    "adaptive_max": (nn.AdaptiveMaxPool2d(2), (2, 6, 8, 4)),
    "adaptive_max3d": (nn.AdaptiveMaxPool3d((2, 1, 4)), (2, 3, 4, 5, 8)),
    "adaptive3d": (nn.AdaptiveAvgPool3d((2, 1, 4)), (2, 3, 4, 5, 8)),
    "adaptive3d1": (nn.AdaptiveAvgPool3d(1), (2, 3, 4, 5, 8)),
    "avgpool_divisor": (nn.AvgPool2d(3, 2, 1, divisor_override=5), (2, 6, 9, 8)),
    "avgpool3d_divisor": (nn.AvgPool3d(2, divisor_override=3), (2, 6, 4, 4, 4)),
    "unpool": (Unpool(), (2, 6, 8, 12)),
    "places": (nn.MaxPool2d((3, 2), 2, (1, 0), dilation=(2, 1), ceil_mode=True, return_indices=True), (2, 6, 9, 8)),
    "places3d": (nn.MaxPool3d((1, 2, 3), (1, 2, 1), (0, 1, 1), return_indices=True), (6, 4, 9, 8)),
    "places1d": (nn.MaxPool1d(3, return_indices=True), (2, 6, 9)),
    "adaptive_places": (nn.AdaptiveMaxPool2d(2, return_indices=True), (2, 6, 8, 4)),
    "bn_of_the_batch": (nn.BatchNorm2d(6, track_running_stats=False), (3, 6, 5, 4)),
    "bn1d_of_the_batch": (nn.BatchNorm1d(6, track_running_stats=False), (5, 6)),
    "instancenorm_batch": (nn.InstanceNorm1d(6, affine=True), (3, 6, 7)),
    "nearest": (nn.Upsample(scale_factor=2), (2, 6, 7, 8)),
    "nearest_size": (nn.Upsample(size=(9, 13)), (2, 6, 7, 8)),
    "bilinear": (nn.Upsample(scale_factor=2.5, mode="bilinear"), (2, 6, 7, 8)),
    "nearest_uneven": (nn.Upsample(scale_factor=3.05), (2, 6, 7, 8)),
    "bilinear_uneven": (nn.Upsample(scale_factor=(3.05, 1.3), mode="bilinear"), (2, 6, 7, 8)),
    "corners": (nn.Upsample(size=(9, 13), mode="bilinear", align_corners=True), (2, 6, 7, 8)),
    "bicubic": (nn.Upsample(size=(9, 5), mode="bicubic"), (2, 6, 7, 8)),
    "multihead": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 5, 16)),
}


@pytest.mark.parametrize("name", CONV)
def test_layer(name):
    net, shape = CONV[name]
    net = net.eval()
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d) and m.track_running_stats:
            m.running_mean.normal_()
            m.running_var.uniform_(0.5, 2)
    check(net, some(*shape), factor=4)
    if isinstance(net, nn.Upsample):  # AOTAutograd has decomposed it; torch.export has not
        x = some(*shape)
        close(torch.from_numpy(nnc.compile(net, (x,))(x)[0]), net(x))


class Attend(nn.Module):
    def forward(self, q, k):
        return F.scaled_dot_product_attention(q, k, k * 2)


@pytest.mark.parametrize("name", ["plain", "causal", "bool", "float", "blind", "grouped", "3d"])
def test_attention(name):
    q, k = some(2, 4, 6, 8), some(2, 4, 6, 8, seed=1)
    masks = {"bool": some(6, 6, dtype=torch.bool) | torch.eye(6, dtype=torch.bool), "float": some(2, 1, 6, 6)}
    masks["blind"] = masks["bool"] & (torch.arange(6) != 2)[:, None]  # a query without keys has the result 0
    if name == "3d":
        check(lambda q, k: F.scaled_dot_product_attention(q, k, k * 2), q[0], some(4, 9, 8))
        model = nnc.compile(Attend(), (q[0], some(4, 9, 8)))
        close(torch.from_numpy(model(q[0], some(4, 9, 8))[0]), Attend()(q[0], some(4, 9, 8)))
    elif name == "grouped":
        check(lambda q, k: F.scaled_dot_product_attention(q, k[:, :2], k[:, 2:] * 2, enable_gqa=True), q, k)
    else:
        check(lambda q, k, m: F.scaled_dot_product_attention(q, k, k * 2, attn_mask=m, is_causal=name == "causal"), q, k, masks.get(name))


@pytest.mark.parametrize("average", [True, False])
def test_attention_with_its_weights(average):
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    check(lambda x: layer(x, x, x, average_attn_weights=average), some(2, 5, 16))
    check(lambda x, y: layer(x, y, y, average_attn_weights=average), some(2, 5, 16), some(2, 7, 16))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind, bidirectional):
    net = kind(6, 8, num_layers=2, batch_first=True, bidirectional=bidirectional).eval()
    x = some(3, 5, 6)

    def last(x):
        y, state = net(x)
        return (y * 2, *(state if isinstance(state, tuple) else [state]))

    with torch._dynamo.config.patch(allow_rnn=True):
        check(last, x)
    with torch.inference_mode():  # by default Dynamo leaves the layer to PyTorch
        close(compiled(last)(x), last(x))
    model = nnc.compile(net, (x,))
    close([torch.from_numpy(y) for y in model(x)], [y.detach() for y in torch.utils._pytree.tree_leaves(net(x))])
    assert " = " + kind.__name__.lower() in model.emit("graph").decode()


# ---- the backend


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).relu().mean((2, 3)))


def test_changed_weights_are_seen():
    net, x = Net().eval(), some(2, 3, 8, 8)
    fast = compiled(net)
    with torch.no_grad():
        close(fast(x), net(x))
        net.fc.weight.mul_(2)  # in place: by the version counter
        close(fast(x), net(x))
        net.fc.weight.data = torch.randn(4, 8)  # other memory
        close(fast(x), net(x))
        net.load_state_dict(Net().state_dict())
        close(fast(x), net(x))


def test_weights_that_keep_changing_become_inputs():
    net, x = Net().eval(), some(2, 3, 8, 8)
    fast, before = compiled(net), len(nt.reports)
    with torch.no_grad():
        for i in range(6):
            close(fast(x), net(x))
            net.fc.weight.mul_(1.5)
            net.bn.running_mean.add_(0.1)
    assert len(nt.reports) == before + 3, "constants, once more, then inputs"
    with torch.no_grad():
        net.conv.weight.mul_(2)  # still a constant
        close(fast(x), net(x))
        for shape in ((1, 3, 8, 8), (1, 3, 9, 9)):
            close(fast(some(*shape)), net(some(*shape)))


def test_a_weight_that_changes_after_many_calls_stays_a_constant():
    net, x = nn.Linear(5, 6).eval(), some(3, 5)
    fast, before = compiled(net), len(nt.reports)
    with torch.no_grad():
        for _ in range(4):
            for _ in range(nt.FEW + 1):
                y = fast(x)
            close(y, net(x))
            net.weight.mul_(1.5)
    assert len(nt.reports) == before + 4


def test_training_of_another_part():
    body, head, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU()).eval(), nn.Linear(8, 3), some(4, 6)
    step = torch.optim.SGD(head.parameters(), 0.1)
    features = compiled(body)
    whole = torch.compile(nn.Sequential(body, head), backend=nt.backend)
    for _ in range(5):
        with torch.no_grad():
            y = features(x)
            close(whole(x), head(body(x)))
        head(y).square().sum().backward()
        step.step()


def test_a_forked_process_goes_on(in_child):
    net, x = Net().eval(), some(2, 3, 8, 8)
    fast = compiled(net)
    with torch.no_grad():
        want = fast(x)

        def again():
            close(fast(x), want)
            net.fc.bias.add_(1)
            close(fast(x), want + 1)  # compiled in the child

        in_child(again)
        close(fast(x), want)


def test_state_that_a_call_writes_is_no_constant():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x):
            self.seen.add_(x.sum(0))
            return x * self.scale + self.seen

    net, x = Counter(), some(3, 4)
    fast, before = compiled(net), len(nt.reports)
    with torch.no_grad():
        for n in (1, 2, 3):
            close(fast(x), x + n * x.sum(0))
            close(net.seen, n * x.sum(0))
    assert len(nt.reports) == before + 1


def test_autocast():
    net, x = Net().eval(), some(2, 3, 8, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        close(compiled(net)(x), net(x))


def test_two_modules_of_one_class_have_their_own_weights():
    a, b, x = nn.Linear(5, 6).eval(), nn.Linear(5, 6).eval(), some(3, 5)
    torch._dynamo.reset()
    with torch.no_grad():
        for net in (a, b, a):
            close(torch.compile(net, backend=nt.backend)(x), net(x))


def test_dynamic_batch():
    net = Net().eval()
    fast = compiled(net, dynamic=True)
    before = len(nt.reports)
    with torch.no_grad():
        for n in (2, 3, 5, 3, 2):
            x = some(n, 3, 8, 8)
            close(fast(x), net(x))
    assert [r.whole for r in nt.reports[before:]] == [True] * 3, "once a shape"


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_shapes_share_weights():
    net = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 2048)).eval()  # 64 MiB
    fast = compiled(net, dynamic=True)
    with torch.no_grad():
        fast(some(4, 2048))
        before = resident()
        for n in range(5, 11):
            close(fast(some(n, 2048)), net(some(n, 2048)))
        assert resident() - before < 128 << 20
        net[0].weight.mul_(2)
        close(fast(some(4, 2048)), net(some(4, 2048)))
        close(fast(some(5, 2048)), net(some(5, 2048)))


def test_the_last_shapes_are_kept():
    fast, before = compiled(lambda x: x * 2, dynamic=True), len(nt.reports)
    for n in (*range(2, nt.KEPT + 4), nt.KEPT + 3, 2):
        close(fast(some(n)), some(n) * 2)
    assert len(nt.reports) == before + nt.KEPT + 3


def test_dynamic_sizes_as_results_and_operands():
    def f(x):
        return x * x.shape[0] + torch.arange(x.shape[1]), x.shape[0], x.reshape(-1, 2)

    fast = compiled(f, dynamic=True)
    for n in (4, 6):
        got, want = fast(some(n, 8)), f(some(n, 8))
        assert got[1] == want[1]
        close([got[0], got[2]], [want[0], want[2]])
        assert nt.reports[-1].whole


def test_threads():
    net, x = Net().eval(), [some(2, 3, 8, 8, seed=i) for i in range(8)]
    fast, before = compiled(net), len(nt.reports)
    with torch.no_grad():
        fast(x[0])

    def run(x):
        with torch.no_grad():
            return fast(x), net(x)

    with ThreadPoolExecutor(4) as pool:
        for got, want in pool.map(run, x):
            close(got, want)
    assert len(nt.reports) == before + 1


def test_channels_last():
    net = Net().eval().to(memory_format=torch.channels_last)
    x = some(2, 3, 8, 8).to(memory_format=torch.channels_last)
    got = check(nn.Sequential(net.conv, net.bn), x)
    assert got.is_contiguous(memory_format=torch.channels_last)
    check(lambda x: x[:, :, ::2].transpose(1, 2) * 2, x)


ON_GPU = """
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import nnc.torch as nt

CUDA = torch.device("cuda", 0)


class OnGpu(torch.Tensor):  # stands for one; PyTorch needs no CUDA for it
    device = property(lambda self: CUDA)

    def cpu(self):
        return self.as_subclass(torch.Tensor)


plain_to = torch.Tensor.to


def to(t, device, *args, **kwargs):
    cpu = plain_to(t.as_subclass(torch.Tensor), "cpu", *args, **kwargs)
    return cpu.as_subclass(OnGpu) if torch.device(device).type == "cuda" else cpu


def f(w, x):
    y = F.conv2d(x, w, padding=1).relu()
    return y, y.mean((2, 3)).softmax(-1), (x + 1).contiguous(memory_format=torch.channels_last)


w, x = torch.randn(8, 3, 3, 3), torch.randn(2, 3, 16, 16).contiguous(memory_format=torch.channels_last)
with FakeTensorMode(), torch.no_grad():
    examples = [torch.empty_strided(v.shape, v.stride(), device=CUDA) for v in (w, x)]
    traced = make_fx(f, decomposition_table=nt.decompositions())(*examples)
torch.Tensor.to = to
with torch.no_grad():
    run = nt.Compiled(traced, frozenset({0}), {})
    for _ in range(2):
        got = run([v.as_subclass(OnGpu) for v in (w, x)])
        assert all(y.device == CUDA for y in got)
        for y, want in zip(got, f(w, x), strict=True):
            assert y.stride() == want.stride()
            torch.testing.assert_close(y.cpu(), want, rtol=1e-4, atol=1e-4)
assert nt.reports[-1].whole, nt.reports
(variant,) = run.variants[((2, 3, 16, 16),)]
assert b"__global__" in variant.memory.emit("cuda")
"""


def test_tensors_of_a_gpu(tmp_path):
    """On the fake of CUDA; tensors of PyTorch say that they lie on a GPU."""
    fake = Path(os.environ.get("NNC_BUILD", ROOT / "build")).resolve() / "cuda_fake"
    if not fake.is_dir():
        pytest.skip("the fake of CUDA is not built")
    kernels = os.environ.get("FAKE_CUDA_KERNELS", str(tmp_path))
    given = {"PYTHONPATH": str(ROOT / "python"), "NNC_CUDA_PATH": str(fake), "FAKE_CUDA_KERNELS": kernels}
    subprocess.run([sys.executable, "-W", "ignore", "-c", ON_GPU], env={**os.environ, **given}, check=True, timeout=300)


def test_wrong_options_are_errors():
    with pytest.raises(Exception, match="did you mean math"), torch.no_grad():
        compiled(lambda x: x + 1, options={"mat": "exact"})(some(3))
    with pytest.raises(Exception, match="for inductor"), torch.no_grad():
        compiled(lambda x: x + 1, mode="max-autotune")(some(3))


def test_unsupported_ops_are_run_by_torch_with_one_warning():
    def f(x):
        y = (x @ x.t()).relu() + 1
        return torch.linalg.det(y * y).relu() + y.sum() * 2

    nt.warned.clear()
    with pytest.warns(UserWarning, match="_linalg_det|linalg") as seen:
        check(f, some(4, 4), whole=False, factor=1e4)
        check(f, some(4, 4), whole=False, factor=1e4)
    assert len([w for w in seen if "nnc:" in str(w.message)]) == 1
    assert nt.reports[-1].parts == 2 and not nt.reports[-1].whole


def test_shapes_that_depend_on_data_are_run_by_torch():
    nt.warned.clear()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.warns(nnc.NncWarning, match="depends on data"):
        check(lambda x: x[x > 0] * 2, some(3, 4), whole=False)


def test_random_ops_are_run_by_torch():
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = compiled(net.train())(torch.ones(64, 8))
    assert (y == 0).float().mean() > 0.2


def test_training_is_run_by_torch_with_one_warning():
    net, x = Net(), some(2, 3, 8, 8)
    nt.warned.clear()
    with pytest.warns(UserWarning, match="gradients"):
        y = compiled(net)(x)
    y.sum().backward()
    assert net.fc.weight.grad is not None


def test_mutation_views_and_constants():
    def f(x, y):
        x.add_(1)
        y[:, 1] = 5
        return x, y * 2, x[0], torch.ones(3)

    a, b, c, d = some(3, 4), some(3, 4), some(3, 4), some(3, 4)
    close(compiled(f)(a, b), f(c, d))
    close([a, b], [c, d])


def test_edges():
    check(lambda x: x, some(3), whole=False)
    check(lambda x: (x + 1).reshape(()), some(1))
    check(lambda x: x * 2, torch.tensor(3.0))
    check(lambda x: torch.cat([x[:0], x * 2]), some(3, 2), whole=False)
    check(lambda x: x * 2, torch.empty(0, 3), whole=False)
    check(lambda x: [torch.ones(3), x + 1, None][:2], some(3))
    check(lambda x, s: x * s, some(3), 2.5)


def test_equal_results_are_tensors_of_their_own():
    y = check(lambda x: (x + 1, (x + 1).clone()), some(3))
    assert y[0].data_ptr() != y[1].data_ptr()


def test_part_with_a_constant_that_only_pytorch_computes():
    def f(x):
        return torch.linalg.det(x @ x.t()).relu() + (x @ torch.linalg.inv(torch.tensor([[2.0, 0.0], [1.0, 4.0]]))).relu().sum() * 2

    check(f, some(2, 2), whole=False, factor=10)


def test_graph_break():
    def f(x):
        y = x.relu() + 1
        if y.sum() > 0:
            return y * 2
        return y

    check(f, some(3, 4), whole=False)


def test_module_by_export():
    net, x = Net().eval(), some(2, 3, 8, 8)
    model = nnc.compile(net, (x,))
    assert [i.name for i in model.inputs] == ["x"] and "conv.weight" in model.emit("graph").decode()
    close(torch.from_numpy(model(x=x)[0]), net(x).detach())

    class Ids(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.l = nn.Embedding(20, 16), nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

        def forward(self, ids, mask):
            return self.l(self.e(ids), src_key_padding_mask=mask), ids

    net, ids = Ids().eval(), some(2, 5, dtype=torch.int64).abs()
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = True
    y, same = nnc.compile(net, (ids, mask))(ids, mask)
    want = net(ids, mask)[0].detach()
    close(torch.from_numpy(y)[~mask], want[~mask])
    assert (same == ids.numpy()).all()


def test_export_names_what_is_missing():
    class Det(nn.Module):
        def forward(self, x):
            return torch.linalg.det(x)

    with pytest.raises(nnc.UsageError, match="_linalg_det"):
        nnc.compile(Det(), (some(3, 3),))


def test_export_names_what_depends_on_data():
    class Picked(nn.Module):
        def forward(self, x):
            return x[x > 0].sum()

    with pytest.raises(nnc.UsageError, match="nnc cannot express aten"):
        nnc.compile(Picked(), (some(3, 3),))


def test_export_keeps_inputs_that_are_equal_or_unused():
    class Three(nn.Module):
        def forward(self, a, b, c):
            return a * 2 - b

    x, y, z = some(3), some(3, seed=1), some(4)
    model = nnc.compile(Three(), (x, x, z))
    assert [i.name for i in model.inputs] == ["a", "b", "c"]
    close(torch.from_numpy(model(x, y, z)[0]), x * 2 - y)


def test_export_of_control_flow_is_an_error():
    class Branch(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(nnc.UsageError, match="torch.export cannot trace Branch"):
        nnc.compile(Branch(), (some(3),))
    with pytest.raises(nnc.UsageError, match="cannot trace Linear: missing"):
        nnc.compile(nn.Linear(3, 4))
    with pytest.raises(nnc.UsageError, match="not of a function"):
        nnc.compile(lambda x: x, (some(3),))
    with pytest.raises(nnc.UsageError, match="weight is on the device meta"):
        nnc.compile(nn.Linear(3, 4, device="meta"), (some(2, 3),))


def test_export_of_results_that_are_no_tensors():
    class Gives(nn.Module):
        def __init__(self, other):
            super().__init__()
            self.other = other

        def forward(self, x):
            return None, x * 2, self.other

    close(torch.from_numpy(nnc.compile(Gives(None), (some(3),))(some(3)).y0), some(3) * 2)
    with pytest.raises(nnc.UsageError, match="has to return tensors"):
        nnc.compile(Gives(7), (some(3),))


def test_export_of_odd_modules():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.v0, self.v2 = nn.Parameter(some(4, seed=1)), nn.Parameter(some(3, 4))

        def forward(self, v1):
            return (self.v2 @ v1) * 2 + v1.sum() * self.v0[:3] - v1 @ self.v0, v1 @ self.v2.t()

    net, x = Odd().eval(), some(4)
    for got, want in zip(nnc.compile(net, (x,))(x), net(x), strict=True):
        close(torch.from_numpy(got), want.detach())


def test_export_of_dropout_in_training_is_an_error():
    with pytest.raises(nnc.UsageError, match="dropout|bernoulli"):
        nnc.compile(nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train(), (some(2, 4),))
