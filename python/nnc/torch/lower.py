"""From an FX graph of aten ops to the text of nnc graphs, and the plan of which parts nnc runs."""

import hashlib
from dataclasses import dataclass, field

import torch
import torch.fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.utils import _pytree as pytree

from .graph import Graph, Unsupported, Value, memory_order
from .ops import aten, torch_dtype
from .special import ROWS


@dataclass
class Lowered:
    """An nnc graph and how to call it."""

    text: str
    weights: dict  # name in the text -> tensor
    inputs: list  # (index among the caller's arguments, memory order or None)
    results: list  # of each result: ("out" or, of a second result with its numbers, "copy", output, memory order, device),
    # ("arg", index, ..), ("tensor", t, _, device) or ("number", x, ..)
    outputs: list  # (shape, torch dtype) of each output of the text
    missing: dict = field(default_factory=dict)  # fx node -> reason


class Lowering:
    """Lowers the nodes of `gm` one after another. `static`: index of an argument -> the tensor that it always is.

    names: of the arguments, for a graph that is called by names; then its inputs and outputs are row-major."""

    def __init__(self, gm, static, names=None):
        self.gm, self.static, self.g, self.names = gm, static, Graph(), names
        self.env, self.missing, self.index = {}, {}, {}

    def run(self):
        for node in self.gm.graph.nodes:
            if node.op == "output":
                self.result_nodes = node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
                self.single = not isinstance(node.args[0], (list, tuple))
                continue
            try:
                self.env[node] = getattr(self, node.op)(node)
            except Unsupported as e:
                self.missing[node] = str(e)
                self.env[node] = foreign(node.meta.get("val"))
        return self

    def placeholder(self, node):
        i = self.index[node] = len(self.index)
        val = node.meta.get("val")
        name = self.names[i] if self.names else ""
        if i in self.static:
            return self.g.known(self.static[i].detach(), weight=True, name=name)
        return self.g.input(val, i, name, bool(self.names)) if isinstance(val, torch.Tensor) else concrete(val)

    def get_attr(self, node):
        x = self.gm
        for part in node.target.split("."):
            x = getattr(x, part)
        if not isinstance(x, torch.Tensor):
            raise Unsupported("a module as an operand")
        return self.g.known(x.detach())

    def call_function(self, node):
        val = node.meta.get("val")
        if val is not None and not isinstance(val, (torch.Tensor, list, tuple)):
            return concrete(val)
        if node.target not in ROWS and not isinstance(node.target, torch._ops.OpOverload):
            raise Unsupported("not an aten op")
        args, kwargs = pytree.tree_map_only(torch.fx.Node, self.env.__getitem__, (node.args, dict(node.kwargs)))
        operands = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, (Value, Foreign))]
        if isinstance(val, torch.Tensor) and any(isinstance(n, int) and n == 0 for n in val.shape):  # others may depend on data
            return self.g.known(torch.empty(tuple(map(concrete, val.shape)), dtype=val.dtype))
        if any(isinstance(x, Foreign) for x in operands):
            raise Unsupported("an operand whose shape or type nnc cannot express")
        pure = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded not in node.target.tags
        pure = pure and node.target is not aten.as_strided.default  # whose operand has other strides when it is known
        if pure and all(x.known for x in operands):
            return self.fold(node, args, kwargs)
        self.g.loc, self.g.target, self.g.fx = path_of(node), node.target, node
        try:
            if node.target not in ROWS:
                raise Unsupported("no such op in nnc")
            kwargs = {k: v for k, v in kwargs.items() if k not in ("layout", "device", "pin_memory", "memory_format", "non_blocking")}
            return ROWS[node.target](self.g, val, *args, **kwargs)
        except Unsupported:
            if pure and all(x.tensor is not None for x in operands):
                return self.fold(node, args, kwargs)
            raise

    call_module = call_method = lambda self, node: (_ for _ in ()).throw(Unsupported("not an aten op"))

    def fold(self, node, args, kwargs):
        """Computes a node whose operands are known now."""
        args, kwargs = pytree.tree_map_only(Value, lambda v: v.tensor, (args, kwargs))
        with torch.no_grad():
            y = node.target(*args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, self.g.known, list(y) if isinstance(y, tuple) else y)

    def lowered(self):
        """The graph of all results."""
        outputs, results = [], []
        for node in self.result_nodes:
            x = self.env[node] if isinstance(node, torch.fx.Node) else node
            if isinstance(node, torch.fx.Node) and node.op == "placeholder":
                results.append(("arg", self.index[node], None, None))
            elif not isinstance(x, Value):
                results.append(("number", x, None, None))
            elif x.known:
                results.append(("tensor", x.tensor, None, node.meta["val"].device))
            else:
                order = memory_order(node.meta["val"])
                y = self.g.transpose(x, order) if order else x
                kind = "copy" if y in outputs else "out"
                if kind == "out":
                    outputs.append(y)
                results.append((kind, outputs.index(y), order, node.meta["val"].device))
        text, weights, inputs = self.written(outputs) if outputs else ("", {}, [])
        return Lowered(text, weights, inputs, results, [(y.shape, torch_dtype(y.dtype)) for y in outputs])

    def named(self, nodes):
        """The graph of these results, each an output of its own."""
        values = [self.env[n] if isinstance(n, torch.fx.Node) else n for n in nodes]
        if not all(isinstance(v, Value) for v in values):
            raise Unsupported("a result that is no tensor")
        outputs = [self.g.add(Value(v.shape, v.dtype, "identity", (v,))) for v in values]
        text, weights, inputs = self.written(outputs)
        return Lowered(text, weights, inputs, [], [])

    def written(self, outputs):
        weights = {}

        def contents(v):
            name, tensor = v.name or v.label[1:], v.tensor.contiguous()
            if tensor is not v.tensor or not v.weight:  # programs that share memory know a tensor by name and address
                name += "." + hashlib.blake2b(tensor.reshape(-1).view(torch.uint8).numpy(), digest_size=8).hexdigest()
            weights[name] = tensor
            return f' = gen("{name}", seed=0, scale=1)'

        text, inputs = self.g.text(outputs, contents)
        return text, weights, inputs


class Foreign:
    """What a node computes that nnc cannot hold: an operand of nothing."""


def foreign(val):
    """The result of a node that nnc does not compute, as nodes after it see it."""
    if isinstance(val, torch.Tensor):
        try:
            shape = tuple(concrete(n) for n in val.shape)
            g = Graph()
            return g.input(torch.empty(shape, dtype=val.dtype, device="meta"), 0)
        except Unsupported:
            return Foreign()
    if isinstance(val, (list, tuple)):
        return [foreign(v) for v in val]
    return Foreign()


def concrete(x):
    if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise Unsupported("a number that depends on data")
    return x


def path_of(node):
    """The user's layer: "L['self'].layer1.0.conv" as "/layer1/0/conv"."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    name = list(stack.values())[-1][0]
    name = name.replace("L['self']", "").replace("._modules['", ".").replace("']", "").replace("['", ".")
    return "/" + "/".join(p for p in name.split(".") if p).replace('"', "").replace("\\", "")


def split(gm, missing):
    """Fuses the nodes that nnc computes into submodules of a graph whose other nodes are run by PyTorch."""
    out = set(missing)
    for node in gm.graph.nodes:  # a node of several results and the nodes that pick them stay together
        picks = [u for u in node.users if u.op == "call_function" and u.target.__name__ == "getitem"]
        if node in out or any(p in out for p in picks):
            out.update(picks if node in out else [node, *picks])
        val = node.meta.get("val")
        if node.op == "call_function" and not isinstance(val, (torch.Tensor, list, tuple)):
            out.add(node)

    class Support:
        def is_node_supported(self, submodules, node):
            return node.op == "call_function" and node not in out

    partitioner = CapabilityBasedPartitioner(gm, Support(), allows_single_node_partition=False)
    return partitioner.partition_and_fuse()
