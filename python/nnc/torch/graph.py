"""The text of an nnc graph (docs/graph-ir.md), written node by node.

`Graph.op` appends a node and returns its value. Equal nodes are written once, moves of moves are merged, and only what the outputs need is
printed. So the lowering of an aten op (ops.py) need not regard its neighbours.
"""

import math
from dataclasses import dataclass

import torch

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}
FLOATS = ("f64", "f32", "f16", "bf16")


class Unsupported(Exception):
    """An op, or a use of it, that nnc cannot express; the text is the reason."""


@dataclass(eq=False)
class Value:
    """A tensor of the graph: its shape, nnc's dtype, and the node that computes it.

    A value known before the graph runs has `tensor`: a constant, which is folded further in Python. With `weight` it is a tensor that the
    model owns, referred to and never copied where it is contiguous.
    """

    shape: tuple
    dtype: str
    op: str = ""
    operands: tuple = ()
    attrs: str = ""
    tensor: torch.Tensor = None
    weight: bool = False
    results: list = None  # of a node with several: all of them, in order
    loc: str = ""
    name: str = ""  # of the user's input or weight
    label: str = ""  # in the text

    @property
    def rank(self):
        return len(self.shape)

    @property
    def is_float(self):
        return self.dtype in FLOATS

    @property
    def known(self):
        return self.tensor is not None and not self.weight


def type_text(dtype, shape):
    return f"{dtype}[{','.join(map(str, shape))}]"


def number_text(x):
    if isinstance(x, bool):
        return str(int(x))
    if isinstance(x, int):
        return str(x)
    return repr(x) if math.isfinite(x) else ("nan" if x != x else "inf" if x > 0 else "-inf")


def setting_text(v):
    if isinstance(v, bool):
        return str(int(v))
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(str(int(x)) for x in v) + "]"
    return number_text(v) if isinstance(v, (int, float)) else str(v)


def broadcast_shape(*shapes):
    return tuple(torch.broadcast_shapes(*shapes))


class Graph:
    def __init__(self):
        self.values = []  # in order of definition
        self.seen = {}  # (op, operands, attrs, dtype, shape) -> value
        self.inputs = []  # (value, index among the caller's arguments, memory order or None)
        self.loc = ""

    # ---- leaves

    def add(self, v):
        v.loc = self.loc
        self.values.append(v)
        return v

    def input(self, tensor_like, index, name="", row_major=False):
        """An argument of the caller. Dense tensors in another memory order (channels_last) are read without a copy."""
        shape, order = tuple(tensor_like.shape), None if row_major else memory_order(tensor_like)
        v = self.add(Value(tuple(shape[d] for d in order) if order else shape, dtype_of(tensor_like), "input", name=name))
        self.inputs.append((v, index, order))
        return self.transpose(v, inverse(order)) if order else v

    def known(self, tensor, weight=False, name=""):
        return self.add(Value(tuple(tensor.shape), dtype_of(tensor), "param", tensor=tensor.cpu(), weight=weight, name=name))

    def const(self, number, dtype):
        """A scalar. Integers and bools are given exactly."""
        key = ("constant", repr(number), dtype)
        if key not in self.seen:
            t = torch.tensor(number, dtype=next(k for k, d in DTYPES.items() if d == dtype))
            self.seen[key] = self.add(Value((), dtype, "constant", tensor=t))
        return self.seen[key]

    # ---- nodes

    def op(self, op, *operands, shape=None, dtype=None, **attrs):
        """Appends a node. Default shape: that of the operands, broadcast; default dtype: that of the first operand."""
        return self.node(op, operands, [(shape, dtype)], attrs)[0]

    def node(self, op, operands, types, attrs):
        """The same for a node with several results, whose types are (shape, dtype)."""
        text = ", ".join(f"{k}={setting_text(v)}" for k, v in attrs.items() if v is not None)
        types = [
            (tuple(map(int, s)) if s is not None else broadcast_shape(*(x.shape for x in operands)), d or operands[0].dtype)
            for s, d in types
        ]
        if any(0 in s for s, _ in types) or any(0 in x.shape for x in operands):
            raise Unsupported("a tensor without elements")
        if any(len(s) > 8 for s, _ in types):
            raise Unsupported("more than 8 dimensions")
        key = (op, tuple(map(id, operands)), text, tuple(types))
        if key not in self.seen:
            first = self.add(Value(*types[0], op, tuple(operands), text))
            first.results = [first] + [Value(*t, loc=self.loc) for t in types[1:]]
            for r in first.results[1:]:
                r.operands = (first,)
            self.seen[key] = first.results
        return self.seen[key]

    def cast(self, x, dtype):
        return x if x.dtype == dtype else self.op("cast", x, dtype=dtype, to=dtype)

    def reshape(self, x, shape):
        shape = tuple(map(int, shape))
        while x.op == "reshape":
            x = x.operands[0]
        return x if x.shape == shape else self.node("reshape", (x,), [(shape, x.dtype)], {"shape": shape})[0]

    def transpose(self, x, perm):
        perm = tuple(p % len(perm) for p in perm)
        if x.op == "transpose":
            first = perm_of(x)
            x, perm = x.operands[0], tuple(first[p] for p in perm)
        if perm == tuple(range(len(perm))):
            return x
        return self.op("transpose", x, shape=[x.shape[p] for p in perm], perm=perm)

    def broadcast(self, x, shape):
        shape = tuple(map(int, shape))
        return x if x.shape == shape else self.node("broadcast", (x,), [(shape, x.dtype)], {"shape": shape})[0]

    def reduce(self, op, x, axes, keepdims):
        axes = sorted(a % x.rank for a in axes) if x.rank else []
        if not axes:
            return x
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
        return self.op(op, x, shape=shape, axes=axes, keepdims=bool(keepdims))

    def slice(self, x, axis, start, end, step=1):
        axis %= x.rank
        if (start, end, step) == (0, x.shape[axis], 1):
            return x
        shape = list(x.shape)
        shape[axis] = max(0, -(-(end - start) // step))
        return self.op("slice", x, shape=shape, axes=[axis], starts=[start], ends=[end], steps=None if step == 1 else [step])

    def concat(self, xs, axis):
        axis %= xs[0].rank
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        return xs[0] if len(xs) == 1 else self.op("concat", *xs, shape=shape, axis=axis)

    def matmul(self, a, b):
        """a @ b over the last two dimensions, others broadcast; a transposed operand becomes an attribute."""
        lead = broadcast_shape(a.shape[:-2], b.shape[:-2])
        m, n = a.shape[-2], b.shape[-1]
        (a, ta), (b, tb) = swapped(a), swapped(b)
        return self.op("matmul", a, b, shape=(*lead, m, n), transpose_a=ta or None, transpose_b=tb or None)

    # ---- the text

    def text(self, outputs, contents):
        """The graph that computes the outputs. `contents(value)` gives the text of the contents of one with a tensor. Returns the text
        and the inputs that it has, as (index among the arguments, memory order)."""
        wanted = set()
        stack = [*outputs, *(v for v, *_ in self.inputs if v.name)]  # who calls by name passes all
        while stack:
            v = stack.pop()
            if id(v) not in wanted:
                wanted.add(id(v))
                stack.extend(v.operands)
        lines, inputs, prefix = [], [], "v"
        while any(v.name.startswith(prefix) for v in self.values):  # no label is a user's name
            prefix += "v"
        order = {id(v): at for v, *at in self.inputs}
        for v in self.values:
            results = v.results or [v]
            if not any(id(r) in wanted for r in results):
                continue
            for i, r in enumerate(results):
                r.label = f'%"{r.name}"' if r.name else f"%{prefix}{len(lines)}" + (f"_{i}" if i else "")
            if v.op == "input":
                inputs.append(order[id(v)])
            lines.append(self.line(v, results, contents))
        body = "\n".join("  " + line for line in lines)
        returned = ", ".join(f'{v.label} as "y{i}"' for i, v in enumerate(outputs))
        return f"graph @torch {{\n{body}\n  return {returned}\n}}\n", inputs

    def line(self, v, results, contents):
        names = ", ".join(r.label for r in results)
        types = ", ".join(type_text(r.dtype, r.shape) for r in results)
        if v.tensor is not None:
            t = v.tensor
            if not v.weight and t.numel() <= 64 and exact(t):
                listed = ", ".join(number_text(x) for x in t.reshape(-1).tolist())
                return f"{names} = constant : {types} = [{listed}]"
            if not v.weight and t.numel() > 0 and exact(t) and bool((t == t.reshape(-1)[0]).all()):
                return f"{names} = constant : {types} = splat {number_text(t.reshape(-1)[0].item())}"
            return f"{names} = param : {types}{contents(v)}"
        operands = " " + ", ".join(o.label for o in v.operands) if v.operands else ""
        attrs = f" {{{v.attrs}}}" if v.attrs else ""
        loc = f' loc "{v.loc}"' if v.loc else ""
        # Element types and shapes are inferred by nnc, which rejects a graph in which they are not those of this line.
        return f"{names} = {v.op}{operands}{attrs} : {types}{loc}"


def exact(t):
    """Whether the text of a graph can hold the numbers, which it reads as f64."""
    return t.dtype is not torch.int64 or bool(((t >= -(2**53)) & (t <= 2**53)).all())


def dtype_of(t):
    if t.dtype not in DTYPES:
        raise Unsupported(f"{t.dtype}")
    return DTYPES[t.dtype]


def memory_order(t):
    """The dimensions of a dense tensor, outermost first, where that is not the order of its shape; else None."""
    if t.is_contiguous() or t.dim() < 2:
        return None
    order = sorted(range(t.dim()), key=lambda d: (-t.stride(d), d))
    return order if t.permute(order).is_contiguous() else None


def inverse(perm):
    return [perm.index(i) for i in range(len(perm))]


def perm_of(x):
    return [int(p) for p in x.attrs[x.attrs.index("[") + 1 : -1].split(",")]


def swapped(x):
    """The operand of a transpose of only the last two dimensions, and True; else x, and False."""
    if x.op == "transpose":
        perm = perm_of(x)
        if perm == [*range(x.rank - 2), x.rank - 1, x.rank - 2]:
            return x.operands[0], True
    return x, False
