"""Reports as Python objects: of functions of nnc.h, and of commands of the program nnc."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np

from ._lib import JSON, TEXT, Text, UsageError, has_error, lib, program, report, words


class Report:
    """A report: str() and repr() are its text, to_dict() the same as Python objects. In a notebook it shows as a page.

    agrees: of compare and verify, whether the numbers agree; fits: of memory and partition, whether a device has room. None elsewhere."""

    agrees = fits = None

    def __init__(self, text, content, html=None):
        self._text, self._content, self._html = text, content, html

    def __str__(self):
        return self._text.rstrip("\n")

    __repr__ = __str__

    def __getstate__(self):  # for copies and pickle
        return {**self.__dict__, "_content": self.to_dict()}

    def to_dict(self):
        """The report as dicts, lists, strings and numbers, with the members that docs/formats.md lists."""
        if callable(self._content):
            self._content = self._content()
        return self._content

    def _repr_html_(self):
        if self._html:
            return f'<iframe srcdoc="{escape(self._html)}" style="width: 100%; height: 40em; border: 0"></iframe>'
        return f'<pre style="white-space: pre; overflow-x: auto">{escape(str(self))}</pre>'


def report_by(function, *arguments):
    """Calls a function with the arguments, in which TEXT stands for the format and Text for the text, once for each format."""
    both = []
    for form in TEXT, JSON:
        text = Text()
        report(lib.nnc_exit_code(function(*(form if a is TEXT else text if a is Text else a for a in arguments))), "")
        both.append(str(text))
    return Report(both[0], json.loads(both[1]))


def plain(value, path=""):
    """A part of a model's dict as JSON has it, NumPy's numbers and arrays as Python's."""
    if isinstance(value, Mapping):
        if wrong := [k for k in value if not isinstance(k, str)]:
            report(3, f"<dict>: {path or '/'}: error: the key {wrong[0]!r} is no string")
        return {k: plain(v, f"{path}/{k}") for k, v in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v, f"{path}/{i}") for i, v in enumerate(value)]
    if value is None or isinstance(value, (str, int, float)):
        return value
    kind = type(value).__name__
    report(3, f"<dict>: {path}: error: a value of type {kind} is not allowed; a model consists of dicts, lists, strings and numbers")


def source_of(model):
    """(name for messages, the bytes or None for a file, extension) of what the user calls a model."""
    if isinstance(model, Mapping):
        try:
            return "<dict>", json.dumps(plain(model)).encode(), ".json"
        except RecursionError:
            report(3, "<dict>: error: the model contains itself")
    if hasattr(model, "SerializeToString"):
        return "<ModelProto>", model.SerializeToString(), ".onnx"
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        return "<bytes>", data, ".onnx" if data[:1] == b"\x08" else ".txt"
    if isinstance(model, str) and ("\n" in model or model.lstrip().startswith(("{", "graph @"))):
        return "<text>", model.encode(), ".txt"
    if isinstance(model, (str, os.PathLike)):
        return os.fsdecode(model), None, ""
    raise UsageError(
        f"{type(model).__name__} is no source of a model: pass a path, a dict, ONNX bytes, an onnx.ModelProto, or a graph in text form"
    )


def view_of(value, name):
    """The array of a value with DLPack or the buffer protocol, in the same memory; (array, dtype of nnc or None: as the array's)."""
    if isinstance(value, np.ndarray):
        return value, None
    if not hasattr(value, "__dlpack__"):
        try:
            return np.asarray(value), None
        except (RecursionError, TypeError, ValueError) as error:
            raise UsageError(f"{name}: {error}") from None
    bits = None
    if hasattr(value, "detach"):  # a PyTorch tensor
        value = value.detach().resolve_neg()  # DLPack has no such bit
        if str(value.dtype) == "torch.bfloat16":  # NumPy has none
            value, bits = value.contiguous().view(sys.modules["torch"].int16), "bf16"
    try:
        return np.from_dlpack(value), bits
    except (BufferError, RuntimeError, TypeError) as error:
        raise UsageError(f"{name} cannot be read on the host ({error}): pass it as a CPU tensor, such as x.cpu()") from None


# ---- commands -----------------------------------------------------------------------------------


def flags_of(options, folder):
    """The program's flags for options by name, with _ for -. A mapping of arrays becomes a file in the folder."""
    for name, value in options.items():
        flag = f"-{name}" if name == "O" else f"--{name.replace('_', '-')}="
        if isinstance(value, Mapping) and any(hasattr(v, "__array__") and not isinstance(v, np.generic) for v in value.values()):
            file = folder.file(f"{name}.npz", f"<{name}>")
            arrays = {k: view_of(v, f"{name} {k}") for k, v in value.items()}
            np.savez(file, **{k: a.view("V2") if bits else a for k, (a, bits) in arrays.items()})  # bf16 in files
            yield flag + file
        elif value is True:
            yield flag.rstrip("=")
        elif isinstance(value, (list, tuple)):
            yield flag + ",".join(map(str, value))
        elif value is not False:
            yield from (flag + w for w in words(name, value))


def run(command, files, flags, folder):
    """What the program prints for a command; raises its error. Returns (text, exit code: 0, or 1 or 4 for a result that says so).
    folder: that of the files. A training prints its steps before it fails."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [program(), str(command), *files, *flags], stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
    ) as child:  # a session of its own: an interrupt comes once, from here
        try:
            text, said = map(folder.renamed, child.communicate())
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            child.communicate()
            raise
    failed = child.returncode not in (0, 1, 4) or not text or has_error(said)
    report(child.returncode if failed else 0, said)
    return text, child.returncode


def remove_own(folder, owner):
    """Removes a folder, in the process that made it: a forked one has the same objects."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class Folder:
    """A temporary folder, for what a command reads and writes."""

    def __init__(self):
        self.name, self.given = tempfile.mkdtemp(prefix="nnc-"), {}
        weakref.finalize(self, remove_own, self.name, os.getpid())

    def file(self, name, given=None):
        """The path of a file; messages say `given` instead."""
        path = os.path.join(self.name, name)
        if given:
            self.given[path] = given
        return path

    def model(self, model, i=0):
        """The path of a model."""
        name, data, extension = source_of(model)
        if data is None:
            return name
        file = self.file(f"model{i or ''}{extension}", name)
        with open(file, "wb") as f:
            f.write(data)
        return file

    def renamed(self, text):
        """A text with what the caller passed instead of the paths of the files that hold it."""
        for file, name in self.given.items():
            text = text.replace(file, name)
        return text


def judged(made, command, code):
    """Notes on a report what the exit code says."""
    if command in ("compare", "verify"):
        made.agrees = code == 0
    if command in ("memory", "partition"):
        made.fits = code != 4
    return made


def command(name, *models, **flags):
    """Runs a command of the program nnc and returns its Report: nnc.command("doctor"), nnc.command("show", "net.json").

    models: as for nnc.compile. flags: those that `nnc NAME --help` lists, with _ for -: set={"batch": 8}, devices=4, verbose=True,
    inputs={"x": array}. to_dict() runs the command again, with --format=json. Raises what the command reports."""
    folder = Folder()
    files = [folder.model(m, i) for i, m in enumerate(models)]
    given = list(flags_of(flags, folder))
    text, code = run(name, files, given, folder)

    def content():
        try:
            return json.loads(run(name, files, [*given, "--format=json"], folder)[0])
        except json.JSONDecodeError:
            raise UsageError(f"nnc {name} prints no JSON") from None

    return judged(Report(text, content), name, code)


def measured(name, files, flags, folder, rows="--json", html=False):
    """The report of a command that writes its JSON (rows: by this flag) and its page beside the text: nothing is measured twice."""
    flags = list(flags)

    def to(flag, own):
        """The file that the flags give, or one in the folder."""
        given = [f[len(flag) + 1 :] for f in flags if f.startswith(flag + "=")]
        if not given:
            flags.extend([flag, folder.file(own)])
        return given[-1] if given else folder.file(own)

    file, page = to(rows, "report.json"), html and to("--html", "page.html")
    text, code = run(name, files, flags, folder)
    content, shown = (folder.renamed(Path(f).read_text()) for f in (file, page or os.devnull))
    return judged(Report(text, json.loads(content), shown or None), name, code)


def partition(model, **flags):
    """Predicts what strategies make of a model on several devices: nnc.partition("net.json", devices=4, mode="step",
    hardware="models/hardware/a100x8.json"). flags: those of nnc partition."""
    return command("partition", model, **flags)


def sweep(*models, **flags):
    """Time and memory over sizes, and where series cross: nnc.sweep("models/matmul.json", set={"dim": "1..4096x2"},
    precision="f32,bf16"). flags: those of nnc sweep."""
    folder = Folder()
    files = [folder.model(m, i) for i, m in enumerate(models)]
    return measured("sweep", files, flags_of(flags, folder), folder, "-o", html=True)


class Training(Report):
    """What nnc.train returns: weights, the trained ones by name; losses, of each epoch."""

    def __init__(self, text, rows, weights):
        super().__init__(text, rows)
        self.weights = weights
        self.losses = [r["train_loss"] for r in rows if "train_loss" in r]


def train(model, data, **flags):
    """Trains a model by the program: nnc.train("net.json", {"x": pixels, "target": classes}, epochs=10, lr=0.1, validation=0.1).

    data: a mapping from the model's inputs and "target" to arrays with a row for each sample. Or the path of a file or folder for nnc
    train. flags: those of nnc train (docs/training.md). Returns a Training with .weights (None if save= names another file than an .npz);
    to_dict() has its steps and epochs. With checkpoint="c.npz", an interrupt finishes the step and writes it, and resume=True goes on from
    there."""
    folder = Folder()
    given = {name: value for name, value in flags.items() if value is not None}
    flags = {"data": data, "save": folder.file("trained.npz"), "log": folder.file("log.json"), **given}
    text, _ = run("train", [folder.model(model)], flags_of(flags, folder), folder)
    with open(flags["log"]) as f:
        rows = [json.loads(line) for line in f]
    save = os.fspath(flags["save"])
    if not save.endswith(".npz") or not os.path.exists(save):
        return Training(text, rows, None)
    with np.load(save) as weights:
        return Training(text, rows, dict(weights))
