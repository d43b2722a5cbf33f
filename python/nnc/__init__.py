"""nnc compiles neural networks to fused kernels and runs them.

    import nnc
    model = nnc.compile("models/mlp.json", set={"batch": 8})
    y = model(x)            # NumPy arrays, or anything with DLPack
    y.prob, model.explain(), model.memory(), model.profile()

docs/python.md is the tutorial. Failures are exceptions below nnc.Error."""

from ._lib import DeviceError, DiffersError, Error, FitError, ModelError, NncWarning, PeerError, UsageError, lib
from ._model import Model, Outputs, Session, Tensor, compile, load
from ._report import Report, Training, command, partition, sweep, train
from ._train import Trainer

for _public in (DeviceError, DiffersError, Error, FitError, Model, ModelError, NncWarning, Outputs, PeerError, Report, Session, Tensor,
                Trainer, Training, UsageError):
    _public.__module__ = "nnc"  # in tracebacks and help()

__version__ = lib.nnc_version().decode()
__all__ = [
    "DeviceError", "DiffersError", "Error", "FitError", "Model", "ModelError", "NncWarning", "Outputs", "PeerError", "Report",
    "Session", "Tensor", "Trainer", "Training", "UsageError", "command", "compile", "load", "partition", "sweep", "train",
]
