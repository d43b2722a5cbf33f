"""libnnc through ctypes: its functions as nnc.h declares them, objects that destroy themselves, and errors as exceptions.

ctypes releases the interpreter's lock in each call, so that other threads run while nnc compiles or computes."""

import ctypes
import os
import re
import sys
import threading
import warnings
import weakref
from pathlib import Path


class Error(Exception):
    """A failure that nnc reports. str() is the whole message, with notes.

    file, line, column, layer: where in the model it is, None where unknown. code: the exit code of the program nnc for it."""

    code = 70
    file = line = column = layer = None


class DiffersError(Error):
    """Numbers differ, or a loss is not finite."""

    code = 1


class UsageError(Error, ValueError):
    """An option or argument is unknown, out of range or contradicts another one."""

    code = 2


class ModelError(Error, ValueError):
    """The model, its weights or its inputs are rejected."""

    code = 3


class FitError(Error, MemoryError):
    """The model does not fit in memory."""

    code = 4


class DeviceError(Error, OSError):
    """A device, library or file is missing or failed."""

    code = 5


class PeerError(Error):
    """Another process of the job was lost, or a deadline passed."""

    code = 6


class NncWarning(UserWarning):
    """What nnc warns of while it does what was asked."""


_errors = {c.code: c for c in (DiffersError, UsageError, ModelError, FitError, DeviceError, PeerError, Error)}
_line = re.compile(
    r"^(?:nnc: |(?P<where>(?:(?P<file>[^:\n]+):(?:(?P<line>\d+):(?:(?P<column>\d+):)?)? )?(?:(?P<layer>[^:\n]+): )?))"
    r"(?P<kind>error|warning|note): ",
    re.M,
)


def _diagnostics(text):
    """Splits what a sink prints into (match of the first line's beginning, message) of each diagnostic."""
    found = list(_line.finditer(text))
    ends = [m.start() for m in found[1:]] + [len(text)]
    return [(m, text[m.end() : end].rstrip("\n")) for m, end in zip(found, ends)]


def has_error(text):
    """Whether what a sink printed has an error in it."""
    return any(where["kind"] == "error" for where, _ in _diagnostics(text))


def _outside():
    """The stack level, for warnings, of the first frame that is not of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(os.path.dirname(__file__) + os.sep):
        level, frame = level + 1, frame.f_back
    return level


def report(code, text):
    """Warns of the warnings in `text`, which a sink has printed, and raises the errors if the exit code is not 0."""
    said = _diagnostics(text)
    for where, message in said:
        if where["kind"] == "warning":
            warnings.warn((where["where"] or "") + message, NncWarning, _outside())
    if code == 0:
        return
    error = _errors.get(code, Error)(
        "\n".join(
            (m["where"] or "") + ("note: " if m["kind"] == "note" else "") + message
            for m, message in said
            if m["kind"] != "warning"
        )
        or text.strip()
        or "failed without a message"
    )
    first = next((m for m, _ in said if m["kind"] == "error"), None)
    if first:
        error.file, error.layer = first["file"], first["layer"]
        error.line, error.column = (int(first[k]) if first[k] else None for k in ("line", "column"))
    raise error


# ---- the library --------------------------------------------------------------------------------


def _places():
    """Folders with an installed nnc (the package's own one), then, in a checkout, a build folder."""
    here = Path(__file__).resolve().parent
    given = os.environ.get("NNC_BUILD")
    return [Path(given)] if given else [here, here.parents[1] / "build"]


def _find(installed, built):
    """The path of a file: `installed` below the package, or `built` in a build folder."""
    for place in _places():
        for name in (installed, built):
            if (place / name).exists():
                return place / name
    raise ImportError(
        f"nnc's {built} is neither in the package nor in {_places()[-1]}: build nnc (make), or set NNC_BUILD to its build folder"
    )


def program():
    """The path of the program nnc."""
    return str(_find("bin/nnc", "nnc"))


def _headers():
    here = Path(__file__).resolve().parent
    for folder in (here / "include" / "nnc", here.parents[1] / "src"):
        for api in (folder / "nnc.h", folder / "api" / "nnc.h"):
            if api.exists():
                return (folder / "base" / "codes.h").read_text() + api.read_text()
    raise ImportError("nnc.h is not in the package")


_types = {
    "bool": ctypes.c_bool,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "double": ctypes.c_double,
    "void": None,
}


def _ctype(text):
    """The type of a parameter or result as nnc.h writes it. Enums are ints."""
    if text.count("*") == 1 and "char" in text:
        return ctypes.c_char_p
    word = text.replace("const", "").split()[0]
    return ctypes.c_void_p if "*" in text else _types.get(word, ctypes.c_int)


def _declare(library, text):
    """Gives the library's functions the parameters and results that the header declares."""
    for result, name, parameters in re.findall(r"^NNC_API\s+([^;]*?)(nnc_\w+)\(([^;]*)\)(?: NNC_MUST)?;", text, re.M):
        function = getattr(library, name)
        function.restype = _ctype(result)
        function.argtypes = [] if parameters == "void" else [_ctype(p.strip()) for p in parameters.split(",")]


lib = ctypes.CDLL(str(_find("lib/libnnc.so", "libnnc.so")))
_declare(lib, _headers())
lib.nnc_text_str.restype = ctypes.c_void_p  # some texts are bytes, with zeros in them
TEXT, JSON = 0, 1  # nnc_format


class Handle:
    """An object of the library, destroyed when nothing refers to it, and before what is in `needs`.

    The finalizer refers to `needs`, not only the object. So the garbage collector, which finalizes a cycle's objects in any order, sees
    them in use until then."""

    def __init__(self, pointer, destroy, *needs):
        self.needs = needs
        self._as_parameter_ = ctypes.c_void_p(pointer)
        weakref.finalize(self, lambda *_: destroy(pointer), *needs)

    def __reduce__(self):
        raise TypeError("sessions, trainers and machines belong to their process: they cannot be copied or pickled")


class Out:
    """A parameter through which a function returns a new object."""

    def __init__(self):
        self.pointer = ctypes.c_void_p()
        self._as_parameter_ = ctypes.byref(self.pointer)

    def handle(self, destroy, *needs):
        return Handle(self.pointer.value, destroy, *needs)


class Text(Handle):
    """A text that functions append to."""

    def __init__(self):
        super().__init__(lib.nnc_text_create(), lib.nnc_text_destroy)

    def __bytes__(self):
        return ctypes.string_at(lib.nnc_text_str(self), lib.nnc_text_size(self))

    def __str__(self):
        return bytes(self).decode(errors="replace")


class Sink(Handle):
    """Collects what functions report. Used by one thread at a time."""

    def __init__(self):
        super().__init__(lib.nnc_sink_create(), lib.nnc_sink_destroy)

    def call(self, function, *arguments):
        """Calls a function of nnc.h whose last parameter is the sink; raises its error."""
        status = function(*arguments, self)
        if status or lib.nnc_sink_count(self):
            said = Text()
            lib.nnc_sink_put(self, said)
            lib.nnc_sink_clear(self)
            report(lib.nnc_exit_code(status), str(said))


def call(function, *arguments):
    """Calls a function of nnc.h with a sink of its own; raises its error."""
    Sink().call(function, *arguments)


def path(file):
    """A path as the library takes it."""
    try:
        name = os.fsencode(file)
    except (TypeError, ValueError) as error:
        raise UsageError(f"a path is expected: {error}") from None
    if b"\0" in name or not name:
        raise UsageError(f"{file!r} is no path")
    return name


# ---- options ------------------------------------------------------------------------------------

machine_lock = threading.RLock()  # an nnc_env is used by one thread at a time
# No compile is cut in the middle by a fork: the child goes on with the same machine.
os.register_at_fork(before=machine_lock.acquire, after_in_parent=machine_lock.release, after_in_child=machine_lock.release)
_machines = {}


def words(name, value):
    """The values of an option as text: one, or one for each item of a dict or list. {"x": (1, 3)} is x:1x3 of shapes, x=1,3 otherwise."""
    if isinstance(value, dict):
        equal, comma = (":", "x") if name == "shapes" else ("=", ",")
        for k, v in value.items():
            yield f"{k}{equal}{(comma.join(map(str, v)) or 'scalar') if isinstance(v, (tuple, list)) else v}"
    elif isinstance(value, (list, tuple, set)):
        yield from map(str, value)
    elif isinstance(value, bool):
        yield "1" if value else "0"
    elif value is not None:
        yield os.fspath(value) if isinstance(value, os.PathLike) else str(value)


class Options:
    """Options of all kinds (env, open, compile, ...) of nnc.h that have one of the name, with _ for -. Unknown: UsageError."""

    def __init__(self, given, *kinds):
        self.of, self.given = {}, {kind: [] for kind in kinds}
        for kind in kinds:
            pointer = getattr(lib, f"nnc_{kind}_options_create")()
            self.of[kind] = Handle(pointer, getattr(lib, f"nnc_{kind}_options_destroy"))
        for name, value in given.items():
            for word in words(name, value):
                self._set(name.replace("_", "-"), word)
        env = {name for name, _ in self.given.get("env", ())}
        self.machine = {name: value for name, value in given.items() if name.replace("_", "-") in env}

    def _set(self, name, word):
        hints, known = [], False
        for kind, options in self.of.items():
            try:
                call(getattr(lib, f"nnc_{kind}_options_set"), options, name.encode(), os.fsencode(word))
            except UsageError as error:
                if not str(error).startswith("no option is named"):
                    raise
                hints.append(error)
            else:
                self.given[kind].append((name, word))
                known = True
        if not known:
            near = next((str(e) for e in hints if "did you mean" in str(e)), None)
            raise UsageError(near or f'{hints[0]}; an argument of a model file is set={{"{name}": {word}}}') from None

    def env(self):
        """The machine (nnc_env) of these options, the same one for the same options; used within machine_lock."""
        key = tuple(sorted(self.given["env"]))
        with machine_lock:
            if key not in _machines:
                out = Out()
                call(lib.nnc_env_create, self.of["env"], out)
                _machines[key] = out.handle(lib.nnc_env_destroy)
            return _machines[key]
