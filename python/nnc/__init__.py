"""nnc compiles neural networks to fused kernels and runs them.

    import nnc
    model = nnc.compile("models/mlp.json", set={"batch": 8})
    y = model(x)            # NumPy arrays, or anything with DLPack
    y.prob, model.explain(), model.memory()

docs/python.md is the tutorial. Failures are exceptions below nnc.Error."""

from ._lib import DeviceError, DiffersError, Error, FitError, ModelError, NncWarning, PeerError, UsageError, lib
from ._model import Model, Outputs, Report, Tensor, compile, load

__version__ = lib.nnc_version().decode()
__all__ = [
    "DeviceError", "DiffersError", "Error", "FitError", "Model", "ModelError", "NncWarning", "Outputs", "PeerError", "Report",
    "Tensor", "UsageError", "compile", "load",
]
