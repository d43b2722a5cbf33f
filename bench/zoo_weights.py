#!/usr/bin/env python3
"""Runs the model files of models/ with the weights of their PyTorch counterparts, random ones, through safetensors, and prints the largest
error of PyTorch and of nnc against PyTorch in float64, of the largest output's magnitude: the same names, shapes and mathematics.

    python3 bench/zoo_weights.py --venv DIR             needs torch and torchvision (bench/onnx_models.py --make makes the environment)
    ... --only resnet50,vit_b16                         these models
    ... --folder DIR                                    where weights and numbers are kept, and used again
    ... --nnc-args=--math=exact                         more flags for nnc

Exit code 1 when a weight or a number does not fit, or nnc's error is more than twice PyTorch's."""
import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "scripts")]
from onnx_models import build, enter, first

# Model file: torchvision's name, side of the image, arguments, renamed tensors (aux: classifiers that only training has).
MODELS = {
    "vgg16": ("vgg16", 224, {}, []), "resnet50": ("resnet50", 224, {}, []), "resnet101": ("resnet101", 224, {}, []),
    "densenet121": ("densenet121", 224, {}, []), "googlenet": ("googlenet", 224, {}, ["aux1.*=-", "aux2.*=-"]),
    "inception_v3": ("inception_v3", 299, {}, ["AuxLogits.*=-"]), "mobilenet_v2": ("mobilenet_v2", 224, {}, []),
    "efficientnet_b0": ("efficientnet_b0", 224, {}, []),
    "efficientnet_b3": ("efficientnet_b3", 300, {}, []), "efficientnet_b5": ("efficientnet_b5", 456, {}, []),
    "vit_b16": ("vit_b_16", 224, {}, []), "lstm_classifier": ("", 0, {"batch": 3, "length": 40}, []),
}


def classifier():
    """The network of models/lstm_classifier.json, and its input."""
    import torch
    torch.manual_seed(1)

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(25002, 100)
            self.rnn = torch.nn.LSTM(100, 256, 2, batch_first=True, bidirectional=True)
            self.fc = torch.nn.Linear(512, 2)

        def forward(self, text):
            _, (h, _) = self.rnn(self.embedding(text))
            return self.fc(torch.cat((h[-2], h[-1]), 1))

    return Classifier().eval(), torch.randint(0, 25002, (3, 40))


def make(name, folder):
    """Writes w.safetensors, x.npy, y32.npy and y64.npy; nothing when they are there."""
    import numpy
    import torch
    from torch_to_safetensors import write
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(os.path.join(folder, "y64.npy")):
        return
    counterpart, side, _, _ = MODELS[name]
    model, x = build(counterpart, side) if counterpart else classifier()
    write(os.path.join(folder, "w.safetensors"), model.state_dict())
    with torch.no_grad():
        y32 = first(model(x))
        y64 = first(model.double()(x.double() if x.is_floating_point() else x))
    for file, value in (("x", x), ("y32", y32), ("y64", y64)):
        numpy.save(os.path.join(folder, file + ".npy"), value.numpy())


def run(nnc, name, folder, args):
    """The output, or the messages."""
    import numpy
    _, _, sets, renames = MODELS[name]
    out = os.path.join(folder, "y.npz")
    if os.path.exists(out):
        os.remove(out)
    command = [nnc, "run", os.path.join(HERE, "..", "models", name + ".json"), "--weights", os.path.join(folder, "w.safetensors"),
        "--input", "%s=%s" % ("x" if MODELS[name][0] else "text", os.path.join(folder, "x.npy")), "--outputs", out, "--iterations=1", "--warmup=0"]
    command += ["--set=%s=%d" % s for s in sets.items()] + ["--rename=" + r for r in renames] + args
    p = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if p.returncode or not os.path.exists(out):
        return None, "exit code %d\n%s" % (p.returncode, p.stderr)
    values = numpy.load(out)
    return values[values.files[0]], ""


def main():
    arg = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arg.add_argument("--venv", default=os.environ.get("NNC_TORCH_VENV", "build/torch-venv"))
    arg.add_argument("--nnc", default="build/nnc")
    arg.add_argument("--nnc-args", default="", help="between blanks")
    arg.add_argument("--folder", default="build/zoo-weights")
    arg.add_argument("--only", default=",".join(MODELS))
    o = arg.parse_args()
    enter(o.venv, False)
    import numpy
    import torch
    import torchvision
    torch.set_num_threads(2)
    print("errors of f32 against float64: largest |y - y64| / max |y64|; torch %s, torchvision %s" % (torch.__version__, torchvision.__version__))
    print("%-20s %9s %9s" % ("model", "torch", "nnc"))
    bad = 0
    for name in o.only.split(","):
        folder = os.path.join(o.folder, name)
        make(name, folder)
        y64 = numpy.load(os.path.join(folder, "y64.npy"))
        error = lambda y: float(numpy.abs(y - y64).max() / numpy.abs(y64).max()) if y.shape == y64.shape else float("inf")
        theirs = error(numpy.load(os.path.join(folder, "y32.npy")))
        y, why = run(o.nnc, name, folder, o.nnc_args.split())
        mine = error(y) if y is not None else float("inf")
        bad += not mine <= 2 * theirs
        print("%-20s %9.2e %9s  %s" % (name, theirs, "-" if y is None else "%.2e" % mine,
            re.sub(r"\s+", " ", why)[:400] if y is None else "%.1f times PyTorch's" % (mine / theirs) if mine > 2 * theirs else ""), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
