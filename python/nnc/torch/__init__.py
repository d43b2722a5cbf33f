"""torch.compile(model, backend="nnc"): PyTorch models through nnc.

    fast = torch.compile(model.eval(), backend="nnc")
    with torch.inference_mode():
        y = fast(x)

Dynamo's graph goes through AOTAutograd to aten ops and from there to nnc's graph (lower.py, ops.py). Ops that nnc does not have are
run by PyTorch, with one warning that names them; nnc runs the parts between. Graphs that record gradients are run by PyTorch, too.
Each shape is compiled once; weights are constants that nnc reads where they lie. A weight that changes (by its version counter or its
memory) is compiled again; one that keeps changing becomes an input.
"""

import collections
import copy
import time
import warnings

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import list_backends, register_backend
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

import nnc
from nnc._lib import machine_lock

from .graph import Unsupported
from .lower import Lowering, split
from .ops import aten
from .special import ROWS

__all__ = ["Report", "backend", "compile_module", "reports"]

FEW = 16  # calls: what a compile costs more than constant weights save (ResNet-18: 204 ms, and 15.1 instead of 30.7 ms)
KEPT = 64  # shapes of a graph
reports = []  # one Report for each graph compiled, newest last
warned = set()


class Report:
    """What became of a graph: `parts` nnc programs, `missing`: the aten ops that PyTorch runs, with the reason, and the seconds that
    lowering and nnc.compile took."""

    def __init__(self, parts, missing, seconds=0):
        self.parts, self.missing, self.seconds = parts, missing, seconds

    @property
    def whole(self):
        return self.parts == 1 and not self.missing

    def __repr__(self):
        rest = "".join(f"\n  {op}: {why}" for op, why in self.missing.items())
        return f"{self.parts} nnc program{'s' * (self.parts != 1)}" + (", by PyTorch:" + rest if rest else "")


def warn_once(text):
    if text not in warned:
        warned.add(text)
        warnings.warn(text, nnc.NncWarning, stacklevel=3)


class Call:
    """One nnc program: takes the arguments of the graph, or of the part of it, that it computes."""

    def __init__(self, lowering, variant):
        self.low = lowering.lowered()
        self.single, self.program = lowering.single, None
        if self.low.text:
            options = {"threads": torch.get_num_threads(), **variant.options}
            self.program = nnc.compile(self.low.text, weights=self.low.weights or None, **options)
            if variant.memory:
                self.program._share(variant.memory)
            variant.memory = self.program

    def __call__(self, *args):
        low = self.low
        outs = ()
        if self.program:
            outs = [torch.empty(shape, dtype=dtype) for shape, dtype in low.outputs]
            self.program(*(host(args[i].permute(order) if order else args[i]) for i, order in low.inputs), out=[host(y) for y in outs])
        ys = []
        for kind, x, order, device in low.results:
            if kind in ("out", "copy"):
                y = outs[x].to(device, copy=kind == "copy")
                ys.append(y.permute([order.index(d) for d in range(len(order))]) if order else y)
            else:
                ys.append(args[x] if kind == "arg" else x.to(device, copy=True) if kind == "tensor" else x)
        return ys[0] if self.single else ys


def host(t):
    """What nnc.Model takes: NumPy's array of the same memory is faster to make than DLPack's, but has no bf16."""
    t = t.cpu().contiguous().resolve_neg()  # NumPy has no such bit
    return t if t.dtype is torch.bfloat16 else t.detach().numpy()


class Part(torch.nn.Module):
    """A part of a graph, in place of the submodule with its nodes."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *args):
        return self.call(*args)


def mark(t):
    """Changes when a tensor is written to or moved."""
    return t.data_ptr(), 0 if t.is_inference() else t._version


class Variant:
    """A graph compiled for one set of shapes and weights, within machine_lock. others: it shares memory with those of the same weights."""

    def __init__(self, gm, args, static, options, others):
        self.weights = {i: args[i].detach() for i in static}  # keeps the memory: no other tensor comes to its address
        self.marks = {i: mark(t) for i, t in self.weights.items()}
        self.memory = next((v.memory for v in others if v.marks == self.marks), None)  # a program
        self.options, self.calls = options, 0
        start = time.perf_counter()
        try:
            self.run = self.compile(gm, args)
        except nnc.UsageError:  # of the options
            raise
        except nnc.Error as e:
            warn_once(f"nnc: the model is run by PyTorch: {e}")
            reports.append(Report(0, {"compile": str(e)}))
            self.run = gm
        reports[-1].seconds = time.perf_counter() - start

    def changed(self, args):
        """The weights that are others in these arguments, or have been written to, by index."""
        return [i for i, m in self.marks.items() if mark(args[i]) != m]

    def compile(self, gm, args):
        devices = {a.device.type for a in args if isinstance(a, torch.Tensor) and a.dim()}
        if devices == {"cuda"}:
            self.options = {"target": "cuda", **self.options}  # nnc.DeviceError where nnc finds none
        elif devices - {"cpu"}:
            raise nnc.DeviceError(f"tensors on {', '.join(sorted(devices))}")
        gm = respecialised(gm, args)
        lowering = Lowering(gm, self.weights).run()
        if not lowering.missing:
            call = Call(lowering, self)
            reports.append(Report(1, {}))
            return call
        missing = {}
        for node, why in lowering.missing.items():
            missing.setdefault(str(node.target), why)
        parts = 0
        fused = split(gm, lowering.missing)
        places = [n for n in fused.graph.nodes if n.op == "placeholder"]
        weights = {n: self.weights[i] for i, n in enumerate(places) if i in self.weights}
        for node in [n for n in fused.graph.nodes if n.op == "call_module"]:
            static = {k: weights[a] for k, a in enumerate(node.args) if a in weights}
            part = Lowering(getattr(fused, node.target), static).run()
            if part.missing:  # an op that only folding could compute, and whose operands another part or PyTorch computes
                missing.update((str(n.target), why) for n, why in part.missing.items())
                continue
            setattr(fused, node.target, Part(Call(part, self)))
            parts += 1
        reports.append(Report(parts, missing))
        warn_once("nnc: run by PyTorch: " + "; ".join(f"{op} ({why})" for op, why in missing.items()))
        return fused


class Shapes(torch.fx.Interpreter):
    """Notes the shapes, or the number, of each node."""

    def run_node(self, n):
        n.meta["val"] = super().run_node(n)
        return n.meta["val"]


def respecialised(gm, args):
    """A copy of the graph, whose shapes are those of these arguments."""
    gm = copy.deepcopy(gm)
    symbolic = any(
        isinstance(n.meta.get("val"), torch.SymInt)
        or isinstance(n.meta.get("val"), torch.Tensor)
        and any(isinstance(s, torch.SymInt) for s in n.meta["val"].shape)
        for n in gm.graph.nodes
    )
    if symbolic:
        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                Shapes(gm).run(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
        except (DynamicOutputShapeException, DataDependentOutputException) as e:
            raise nnc.ModelError(f"{e.func} makes a shape that depends on data") from e
    return gm


class Compiled:
    """A graph of aten ops, compiled when it is first called with arguments of new shapes or new weights.

    static: the indices of the arguments that are constants of the programs: weights, but for those that keep changing."""

    _boxed_call = True

    def __init__(self, gm, static, options):
        self.gm, self.weights, self.static, self.options = gm, static, static, options
        self.variants = {}  # shapes and numbers -> Variants, newest first
        self.changes = collections.Counter()

    def __call__(self, args):
        key = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for i, a in enumerate(args) if i not in self.weights)
        found = self.find(key, args)
        if not found:
            with machine_lock:
                found = self.find(key, args) or self.compile(key, args)
        found.calls += 1
        return found.run(*args)

    def find(self, key, args):
        return next((v for v in self.variants.get(key, ()) if not v.changed(args)), None)

    def compile(self, key, args):
        """A weight that has changed twice after FEW calls is an input from now on. That costs some packing at each call, but a constant
        costs a compile at each change."""
        others = [v for v in self.variants.get(key, ()) if not v.changed(v.weights)]
        for newest in self.variants.get(key, ())[:1]:
            self.changes.update(newest.changed(args) if newest.calls <= FEW else ())
        self.static = frozenset(i for i in self.static if self.changes[i] < 2)
        found = Variant(self.gm, args, self.static, self.options, [v for of in self.variants.values() for v in of])
        self.variants[key] = [found, *others[:3]]
        if len(self.variants) > KEPT:
            del self.variants[next(iter(self.variants))]
        return found


def compile_graph(gm, example_inputs, options):
    """The compiler that AOTAutograd calls. Weights that the graph itself writes to, such as running statistics, are ordinary inputs."""
    context = TracingContext.try_get()
    meta = context.fw_metadata if context else None
    static = [i for i in meta.static_input_indices if not meta.input_info[i].mutates_data] if meta else []
    return Compiled(gm, frozenset(static), options)


def decompositions():
    """Those of aten ops that are not in the table; `more` of them PyTorch counts as core."""
    more = get_decompositions([aten.grid_sampler_2d, aten._native_batch_norm_legit_functional, aten.addmv])
    return {op: f for op, f in (*core_aten_decompositions().items(), *more.items()) if op not in ROWS}


def compile_module(module, args=(), kwargs=None, **options):
    """A torch.nn.Module, as it is now, as an nnc.Model for arguments of these shapes; by torch.export and the same table.

    Its inputs have the names of forward's parameters, its outputs are y0, y1, ... in the order in which they occur in the result, which
    None is not counted in.
    Raises nnc.UsageError, which names the ops, where nnc cannot express the module, or PyTorch cannot export it."""
    if empty := [name for name, t in (*module.named_parameters(), *module.named_buffers()) if t.is_meta]:
        raise nnc.UsageError(f"{empty[0]} is on the device meta, without numbers: use module.to_empty(device='cpu') and load_state_dict")
    recurrent = any(isinstance(m, torch.nn.RNNBase) for m in module.modules())  # only strict export can
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (tuple(args), kwargs))  # one tensor given twice is two inputs
    try:
        with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
            program = torch.export.export(module, args, kwargs, strict=recurrent)
    except Exception as e:  # of many kinds
        raise nnc.UsageError(f"torch.export cannot trace {type(module).__name__}: {e}") from e
    program = program.run_decompositions(decompositions())
    given, names = program.graph_signature.input_specs, []
    static = {}
    for i, spec in enumerate(given):
        names.append(spec.target or spec.arg.name)
        if spec.kind is not InputKind.USER_INPUT:
            static[i] = {**program.constants, **program.state_dict}[spec.target]
    lowering = Lowering(program.graph_module, static, names).run()
    if lowering.missing:
        raise nnc.UsageError("nnc cannot express " + "; ".join(f"{op.target} ({why})" for op, why in lowering.missing.items()))
    specs = program.graph_signature.output_specs
    kept = [node for node, s in zip(lowering.result_nodes, specs) if s.kind is OutputKind.USER_OUTPUT and node is not None]
    try:
        low = lowering.named(kept)
    except Unsupported as e:
        raise nnc.UsageError(f"nnc cannot express {e}: forward of {type(module).__name__} has to return tensors") from None
    return nnc.compile(low.text, weights=low.weights or None, **options)


def backend(gm, example_inputs, options=None, **kwargs):
    """The backend "nnc" of torch.compile. options: those of nnc.compile, such as {"math": "fast"}."""
    if "mode" in kwargs:
        raise nnc.UsageError(f"mode={kwargs['mode']!r} is for inductor; nnc has the options of nnc.compile: options={{'math': 'fast'}}")
    options = {**(options or {}), **kwargs}
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs):
        warn_once("nnc: gradients are recorded, so the model is run by PyTorch; call it under torch.inference_mode() or no_grad()")
        return gm.forward
    run = aot_autograd(fw_compiler=lambda g, x: compile_graph(g, x, options), decompositions=decompositions())
    return run(gm, example_inputs)


if "nnc" not in list_backends(exclude_tags=()):  # the package is not installed: a checkout has no entry point
    register_backend(backend, name="nnc")
