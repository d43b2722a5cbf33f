"""Models as Python objects: compile and load them, call them on arrays, ask about them."""

import collections
import ctypes
import functools
import os
import types
from collections.abc import Mapping

import numpy as np

from ._lib import TEXT, ModelError, Options, Out, Sink, Text, UsageError, call, lib, machine_lock, path
from ._report import Folder, flags_of, measured, report_by, source_of, view_of

Tensor = collections.namedtuple("Tensor", "name dtype shape")
Tensor.__doc__ = """An input or output of a model: its name, its dtype as nnc writes it ("f32", "i64", "bf16", ...), its shape."""

_numpy = {"bool": "bool"} | {f"{k}{8 * n}": f"{c}{n}" for k, c in zip("fiu", "fiu") for n in (1, 2, 4, 8) if (k, n) != ("f", 1)}


def numpy_dtype(dtype):
    """The NumPy dtype of nnc's; of bf16 that of ml_dtypes if it is installed, else uint16 with the same bits."""
    if dtype == "bf16":
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            return np.dtype("uint16")
        return np.dtype(bfloat16)
    return np.dtype(_numpy[dtype])


def nnc_dtype(array):
    """nnc's name of an array's dtype; KeyError where it has none. uint16 is u16: of bf16 bits the caller has to say so. NumPy reads bf16
    of files as V2 (void16)."""
    named = {"bfloat16": "bf16", "void16": "bf16", "bool": "bool"}
    return named.get(array.dtype.name) or {v: k for k, v in _numpy.items()}[array.dtype.str[1:]]


def array_of(value, want, what="input"):
    """`value` as a contiguous array for the Tensor `want`; copied only where it is not contiguous, or a list."""
    if isinstance(value, (list, tuple, int, float)):
        try:
            array, bits = np.asarray(value, numpy_dtype(want.dtype)), None
        except (OverflowError, RecursionError, TypeError, ValueError) as error:
            raise UsageError(f"{what} {want.name}: {error}") from None
    else:
        array, bits = view_of(value, f"{what} {want.name}")
    dtype = numpy_dtype(want.dtype)
    same = array.dtype == dtype or (want.dtype == "bf16" and (bits == "bf16" or array.dtype == np.uint16))
    if not same or array.shape != want.shape:
        hint = "" if same or array.shape != want.shape else f': {want.name}.astype("{dtype.name}")'
        raise UsageError(
            f"{what} {want.name} is {bits or array.dtype}{list(array.shape)}; the model has {want.dtype}{list(want.shape)}{hint}"
        )
    return np.asarray(array, order="C")


def tensors_of(name, of, handle):
    """The Tensors that two functions of nnc.h list, by index."""
    found = []
    while t := of(handle, len(found)):
        shape = tuple(lib.nnc_type_dim(t, d) for d in range(lib.nnc_type_rank(t)))
        found.append(Tensor(name(handle, len(found)).decode(), lib.nnc_type_dtype(t).decode(), shape))
    return tuple(found)


def listed(tensors):
    """Tensors as text: "x: f32[1, 3], y: i64[1]"."""
    return ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in tensors)


def bind(tensors, positional, named):
    """The array of each input, from those that are given by position and by name."""
    names = [t.name for t in tensors]
    if len(positional) > len(names):
        raise UsageError(f"{len(positional)} arrays for {len(names)} inputs: {', '.join(names) or 'none'}")
    values = list(positional) + [None] * (len(names) - len(positional))
    for name, value in named.items():
        if name not in names:
            raise UsageError(f"the model has no input {name}; it has {', '.join(names) or 'none'}")
        if names.index(name) < len(positional):
            raise UsageError(f"input {name} is given twice: by position and by name")
        values[names.index(name)] = value
    missing = [n for n, v in zip(names, values) if v is None]
    if missing:
        raise UsageError(f"missing input{'s' * (len(missing) > 1)}: {', '.join(missing)}")
    return [array_of(v, t) for v, t in zip(values, tensors)]


def address(array):
    """Where an array's numbers are."""
    return array.__array_interface__["data"][0]


class Outputs(tuple):
    """A model's outputs as a tuple of arrays; also by name: y["prob"], y.prob, dict(y)."""

    def __new__(cls, names, arrays):
        self = super().__new__(cls, arrays)
        self._names = names
        return self

    def keys(self):
        """The names, in order."""
        return self._names

    def __getitem__(self, key):
        if isinstance(key, str):
            if key not in self._names:
                raise KeyError(f"the model has no output {key}; it has {', '.join(self._names)}")
            key = self._names.index(key)
        return super().__getitem__(key)

    def __getattr__(self, name):
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"the model has no output {name}; it has {', '.join(self._names)}")
        return self[name]

    def __getnewargs__(self):  # for copies and pickle
        return self._names, tuple(self)

    def __dir__(self):
        return [*super().__dir__(), *self._names]

    def __array__(self, dtype=None, copy=None):
        if len(self) != 1:
            raise ValueError(f"the model has {len(self)} outputs ({', '.join(self._names)}): name one")
        own = np.asarray(self[0])
        y = own if dtype is None else own.astype(dtype, copy=False)
        if copy is False and y is not own:
            raise ValueError(f"numbers of {own.dtype} as {y.dtype} are a copy")
        return own.copy() if copy and y is own else y  # NumPy 2 leaves copies to this; a session's next run would overwrite a view

    def __repr__(self):
        return "Outputs(" + ",\n        ".join(f"{n}={a!r}" for n, a in zip(self._names, self)) + ")"


class _Memory:
    """Memory of a session, which lives as long as an array of it."""

    def __init__(self, session, pointer, tensor):
        self.session = session
        self.dtype = numpy_dtype(tensor.dtype)
        self.__array_interface__ = {"version": 3, "data": (pointer, False), "shape": tensor.shape, "typestr": self.dtype.str}

    def array(self):
        return np.asarray(self).view(self.dtype)


class Session:
    """A model with its inputs and outputs in place, made by Model.session(): nothing is copied. Used by one thread at a time.

    inputs: arrays by name, whose elements are set before run()."""

    def __init__(self, model):
        self._sink, out = Sink(), Out()
        self._tensors = model.inputs, model.outputs
        with machine_lock:
            self._sink.call(lib.nnc_session_create, model._env, model._artifact, out)
        self._session = out.handle(lib.nnc_session_destroy, model._artifact)

    def _arrays(self, memory, tensors):
        pointers = [memory(self._session, i) for i in range(len(tensors))]
        if not all(pointers):
            raise UsageError("the inputs and outputs are not in the host's memory: call the model on arrays")
        return [_Memory(self._session, p, t).array() for p, t in zip(pointers, tensors)]

    @functools.cached_property
    def inputs(self):
        tensors = self._tensors[0]
        return types.MappingProxyType(dict(zip((t.name for t in tensors), self._arrays(lib.nnc_session_input_memory, tensors))))

    def run(self):
        """Computes the outputs from what is in `inputs`. They are arrays of the session's memory, valid until the next run."""
        tensors = self._tensors[1]
        self._run(self.inputs.values(), ())
        return Outputs(tuple(t.name for t in tensors), self._arrays(lib.nnc_session_output_memory, tensors))

    def _run(self, arrays, out):
        """Runs on an array for each input; writes outputs to the arrays of `out`."""
        for i, a in enumerate(arrays):
            self._sink.call(lib.nnc_session_input, self._session, i, address(a))
        self._sink.call(lib.nnc_session_run, self._session)
        for i, a in enumerate(out):
            self._sink.call(lib.nnc_session_output, self._session, i, address(a))


class Model:
    """A compiled model, made by nnc.compile or nnc.load. It is called on arrays; threads may call it at the same time.

    inputs, outputs: tuples of Tensor(name, dtype, shape)."""

    def __init__(self, artifact, env, machine, in_memory):
        self._artifact, self._env, self._machine, self._in_memory, self._free = artifact, env, machine, in_memory, []
        self.inputs = tensors_of(lib.nnc_artifact_input_name, lib.nnc_artifact_input_type, artifact)
        self.outputs = tensors_of(lib.nnc_artifact_output_name, lib.nnc_artifact_output_type, artifact)
        self._names = tuple(t.name for t in self.outputs)

    def __call__(self, *arrays, out=None, **named):
        """Computes the outputs: a tuple of arrays that also has their names (y["prob"], y.prob).

        arrays, named: an array for each input, by position or name: NumPy's, or anything with DLPack (PyTorch's CPU tensors) or the
        buffer protocol, of the input's dtype and shape. out: an array to write the output into, or a list of one for each.
        Raises UsageError where an array is missing or of another dtype or shape, ModelError where an index is outside its table."""
        values = bind(self.inputs, arrays, named)
        if out is None:
            results = written = [np.empty(t.shape, numpy_dtype(t.dtype)) for t in self.outputs]
        else:
            results = list(out) if isinstance(out, (list, tuple)) else [out]
            written = [array_of(v, t, "output") for v, t in zip(results, self.outputs)]
            if len(results) != len(self.outputs):
                raise UsageError(f"out: {len(results)} arrays for {len(self.outputs)} outputs: {', '.join(self._names)}")
            for given, to, t in zip(results, written, self.outputs):
                if not to.flags.writeable or address(view_of(given, t.name)[0]) != address(to):
                    raise UsageError(f"out: output {t.name} needs a contiguous array that can be written")
        try:
            session = self._free.pop()
        except IndexError:
            session = Session(self)
        try:
            session._run(values, written)
        finally:
            self._free.append(session)
        return Outputs(self._names, results)

    def session(self):
        """A Session of the model on a CPU, whose inputs and outputs are read and written in place, without a copy."""
        return Session(self)

    def explain(self, verbose=False):
        """What the passes decided, and why. verbose: each decision by itself."""
        return report_by(lib.nnc_report_explain, self._artifact, TEXT, verbose, Text)

    def _ask(self, command, flags, **more):
        """The report of a command of the program on this model and the machine that it was compiled for."""
        folder = Folder()
        file = folder.file("model.nnc", "<model>")
        self.save(file, embed=self._in_memory)
        return measured(command, [file], flags_of({**self._machine, **flags}, folder), folder, **more)

    def profile(self, **flags):
        """Measures where the time of a run goes, and what bounds it. flags: those of nnc profile: by="module", top=40, ..."""
        return self._ask("profile", flags, html=True)

    def compare(self, **flags):
        """Compares fused, unfused and float64: numbers, time, what each pass gains. flags: those of nnc compare. The report has .agrees."""
        return self._ask("compare", flags)

    def verify(self, **flags):
        """Compares fused, unfused and float64 layer by layer; the report, with .agrees, names the first layer that differs.
        flags: those of nnc verify: inputs={"x": array}, against={"y": array}, tolerance=1e-9, ..."""
        return self._ask("verify", flags)

    def memory(self):
        """The memory of a run: its peak, what it consists of, and its timeline on each device."""
        fits = ctypes.c_bool()
        with machine_lock:
            made = report_by(lib.nnc_report_memory, self._env, self._artifact, TEXT, Text, ctypes.byref(fits))
        made.fits = fits.value
        return made

    def emit(self, stage):
        """A stage of the compile as bytes: "graph", "plan", "kernels", "dot", "onnx"; "llvm", "asm" of a CPU's; "cuda", "ptx", "cubin"."""
        text = Text()
        with machine_lock:
            call(lib.nnc_emit_text, self._env, self._artifact, str(stage).encode(errors="replace"), text)
        return bytes(text)

    def save(self, file, embed=True):
        """Writes the compiled model to a file, which nnc.load and the program nnc read. embed: with its weights; False: with
        references to the files they come from."""
        call(lib.nnc_artifact_save, self._artifact, path(file), embed)

    def specialize(self, **options):
        """The model for other args or shapes: specialize(set={"batch": 8}), of ONNX models specialize(shapes={"x": (8, 3, 224, 224)}).
        Both share their weights; the last 8 are kept, and the same one comes back at once."""
        given, out = Options(options, "open"), Out()
        with machine_lock:
            call(lib.nnc_artifact_for, self._env, self._artifact, given.of["open"], out)
        return Model(out.handle(lib.nnc_artifact_destroy, self._artifact), self._env, self._machine, self._in_memory)

    def _share(self, other):
        """Shares weights and what is made of them with another model, which has them at the same addresses. Before the first call."""
        lib.nnc_artifact_share(self._artifact, other._artifact)

    def __copy__(self, memo=None):
        return self

    __deepcopy__ = __copy__

    def __reduce__(self):  # for pickle: the file that save writes
        folder = Folder()
        self.save(folder.file("model.nnc"))
        with open(folder.file("model.nnc"), "rb") as f:
            return unpickled, (f.read(), self._machine)

    def __repr__(self):
        return f"<nnc.Model ({listed(self.inputs)}) -> ({listed(self.outputs)})>"


def _add_weights(options, weights):
    """Adds a mapping's arrays to the options. Returns the arrays, which are read where they are."""
    kept = []
    for name, value in weights.items():
        if not isinstance(name, str):
            raise UsageError(f"weights: the name {name!r} is no string")
        array, dtype = view_of(value, f"weight {name}")
        array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
        try:
            dtype = dtype or nnc_dtype(array)
        except KeyError:
            raise UsageError(f"weight {name}: no dtype of nnc is {array.dtype}") from None
        shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        call(lib.nnc_open_options_tensor, options, name.encode(), dtype.encode(), array.ndim, shape, address(array))
        kept.append(array)
    return kept


def open_model(model, weights, options, *kinds):
    """Opens a model with the options, of these kinds and "open" and "env". Returns (its handle, which keeps what it reads; options)."""
    name, data, _ = source_of(model)
    in_memory = weights is not None and not isinstance(weights, (str, os.PathLike))
    if in_memory and not (isinstance(weights, Mapping) and weights):
        raise UsageError("weights: expected a file, or a mapping from names to arrays, at least one; without weights they are generated")
    given = Options(options if weights is None or in_memory else {**options, "weights": weights}, "env", "open", *kinds)
    kept = _add_weights(given.of["open"], weights) if in_memory else []
    out = Out()
    call(lib.nnc_model_read, path(name), data, len(data or b""), given.of["open"], out)
    return out.handle(lib.nnc_model_close, data, kept), given


def compile(model, args=None, *, weights=None, **options):
    """Compiles a model for this machine. Returns a Model, which is called on arrays.

    model: the path of a model file (.json, .onnx, graph text), a dict of the JSON format (docs/model.md), ONNX bytes, or an
    onnx.ModelProto. Also a graph in text form (docs/graph-ir.md), or a torch.nn.Module together with `args`.
    args: a tuple of example arguments of the module, whose shapes and dtypes are those of the inputs; the weights are the module's.
    weights: the path of a file of tensors, or a mapping from names to arrays, such as a PyTorch state_dict. The arrays are read in place,
    when the model is first called, and by save, profile, compare and verify. They must not change meanwhile. Without weights they are
    generated from `seed`.
    options: those of nnc compile, with _ for -: set={"batch": 8}, shapes={"x": (8, 3, 224, 224)}, threads=2, target="cuda:sm_90",
    math="exact", precision="bf16", O=3, ...
    Raises ModelError with .file, .line, .layer where the model is wrong, UsageError where an option is, FitError, DeviceError."""
    if hasattr(model, "named_parameters") and not isinstance(model, type):
        from .torch import compile_module  # imports PyTorch

        if weights is not None:
            raise UsageError("the weights of a torch.nn.Module are its own: load_state_dict changes them")
        return compile_module(model, () if args is None else args if isinstance(args, (tuple, list)) else (args,), **options)
    if args is not None:
        what = type(model).__name__
        raise UsageError(f'args are of a torch.nn.Module, not of a {what}; arguments of a model file are set={{"batch": 2}}')
    opened, given = open_model(model, weights, options, "compile")
    out = Out()
    with machine_lock:
        env = given.env()
        call(lib.nnc_compile, env, opened, given.of["compile"], out)
    return Model(out.handle(lib.nnc_artifact_destroy, env, opened.needs), env, given.machine, any(opened.needs))


def load(file, **options):
    """Loads a file that Model.save or nnc compile -o wrote. options: threads, target, ... of the machine.
    Raises ModelError where it is damaged or of another version, DeviceError where it is for another machine."""
    return loaded(file, options)


def loaded(file, options, *needs):
    """The same; the model keeps `needs`."""
    given, out, name = Options(options, "env"), Out(), path(file)
    if os.path.isfile(name) and not lib.nnc_is_artifact(name):
        raise ModelError(f"{os.fspath(file)}: is no compiled model, as Model.save and nnc compile -o write them; nnc.compile reads models")
    with machine_lock:
        env = given.env()
        call(lib.nnc_artifact_load, env, name, out)
    return Model(out.handle(lib.nnc_artifact_destroy, env, needs), env, given.machine, True)


def unpickled(data, machine):
    """A Model from the contents of a file that Model.save wrote. Its weights are read at the first call."""
    folder = Folder()
    with open(folder.file("model.nnc"), "wb") as f:
        f.write(data)
    return loaded(f.name, machine, folder)
