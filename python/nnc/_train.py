"""Training by steps, with batches from Python."""

import ctypes
import math

import numpy as np

from ._lib import Out, Sink, UsageError, lib, machine_lock, path
from ._model import address, bind, listed, numpy_dtype, open_model, tensors_of
from ._report import Folder


class Trainer:
    """Trains a model, with the caller's loop and data:

        trainer = nnc.Trainer("net.json", optimizer="adamw", lr=1e-3)
        for x, target in batches:
            loss = trainer.step(x, target)
        trainer.save("w.safetensors")

    model, weights: as for nnc.compile. options: those of nnc train that belong to steps (docs/training.md).
    inputs: a batch's Tensors, those of the model and "target". steps, skipped: counts. Used by one thread at a time."""

    def __init__(self, model, *, weights=None, **options):
        opened, given = open_model(model, weights, {"train": True, **options}, "train")
        self._sink, out = Sink(), Out()
        with machine_lock:
            env = given.env()
            self._sink.call(lib.nnc_trainer_create, env, opened, given.of["train"], out)
        self._trainer = out.handle(lib.nnc_trainer_destroy, env, opened.needs)
        self.inputs = tensors_of(lib.nnc_trainer_input_name, lib.nnc_trainer_input_type, self._trainer)

    def _batch(self, function, arrays, named):
        batch = bind(self.inputs, arrays, named)
        self._sink.call(function, self._trainer, (ctypes.c_void_p * len(batch))(*map(address, batch)))
        return self.loss

    def step(self, *arrays, **named):
        """Takes a step with a batch, an array for each of `inputs` by position or name. Returns the loss.
        Raises DiffersError where it is not finite: no weight has changed then."""
        return self._batch(lib.nnc_trainer_step, arrays, named)

    def evaluate(self, *arrays, **named):
        """The loss of a batch as the weights are now; .correct counts the right predictions. Changes nothing."""
        with machine_lock:  # the first one compiles
            return self._batch(lib.nnc_trainer_evaluate, arrays, named)

    loss = property(lambda self: lib.nnc_trainer_loss(self._trainer), doc="The loss of the last batch; NaN before the first.")
    steps = property(lambda self: lib.nnc_trainer_steps(self._trainer), doc="Steps so far.")
    skipped = property(lambda self: lib.nnc_trainer_skipped(self._trainer), doc='Steps that on_nan="skip" left out.')

    @property
    def correct(self):
        """How many targets of the last batch had the largest prediction; None where the loss has no classes."""
        found = lib.nnc_trainer_correct(self._trainer)
        return None if math.isnan(found) else int(found)

    @property
    def rate(self):
        """The learning rate of the next step. Set it to replace the schedule from now on."""
        return lib.nnc_trainer_rate(self._trainer)

    @rate.setter
    def rate(self, value):
        self._sink.call(lib.nnc_trainer_set_rate, self._trainer, float(value))

    def gradient(self, name):
        """With grad_inputs=True: the gradient of the last step's loss with respect to an input."""
        for i, t in enumerate(self.inputs):
            if t.name == name:
                array = np.empty(t.shape, numpy_dtype(t.dtype))
                self._sink.call(lib.nnc_trainer_gradient, self._trainer, i, address(array))
                return array
        raise UsageError(f"the model has no input {name}; it has {', '.join(t.name for t in self.inputs)}")

    def save(self, file):
        """Writes the weights and running statistics by name: .safetensors or .npz."""
        self._sink.call(lib.nnc_trainer_save, self._trainer, path(file))

    def weights(self):
        """The weights and running statistics by name, as nnc.compile(weights=...) takes them."""
        folder = Folder()
        self.save(folder.file("weights.npz"))
        with np.load(folder.file("weights.npz")) as found:
            return dict(found)

    def write_checkpoint(self, file):
        """Writes all that the next step depends on but the data: .npz or .safetensors."""
        self._sink.call(lib.nnc_trainer_write_checkpoint, self._trainer, path(file))

    def read_checkpoint(self, file):
        """Goes on from a checkpoint of the same model and options, with the same bits as if there had been one trainer."""
        self._sink.call(lib.nnc_trainer_read_checkpoint, self._trainer, path(file))

    def __repr__(self):
        loss = "" if math.isnan(self.loss) else f", loss {self.loss:.6g}"
        return f"<nnc.Trainer ({listed(self.inputs)}): {self.steps} steps{loss}>"
