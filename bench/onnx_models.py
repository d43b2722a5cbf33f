#!/usr/bin/env python3
"""Exports torchvision's models with random weights to ONNX, runs PyTorch, ONNX Runtime and nnc on the same input, and prints the largest
error of each against float64, of the largest output's magnitude.

    python3 bench/onnx_models.py --venv DIR --make      make a virtual environment with torch, torchvision, onnx, onnxruntime, then run
    python3 bench/onnx_models.py --venv DIR             run
    ... --only resnet50,vit_b_16                        these models
    ... --folder DIR                                    where the exported files are kept, and used again
    ... --nnc-args=--math=exact                         more flags for nnc
    ... --forms                                         also what ONNX Runtime's optimizer and quantiser write of each model,
                                                        against ONNX Runtime on the same file
    ... --limit=2                                       how many times the error of the better of the two others nnc's may be

Exit code 1 when a model is refused, or nnc's error is beyond the limit: then nnc verify's first layer is named whose error is that of the
output (root mean square against float64, of the root mean square of the layer's numbers)."""
import argparse
import os
import re
import subprocess
import sys

PACKAGES = ["torch", "torchvision", "onnx==1.23.2", "onnxscript", "onnxruntime"]
# Families of torchvision, by the size of their images, and two encoders of torch.nn.
MODELS = {
    "alexnet": 224, "vgg16": 224, "resnet18": 224, "resnet50": 224, "resnext50_32x4d": 224, "wide_resnet50_2": 224, "densenet121": 224,
    "squeezenet1_1": 224, "googlenet": 224, "inception_v3": 299, "mobilenet_v2": 224, "mobilenet_v3_large": 224, "shufflenet_v2_x1_0": 224,
    "mnasnet1_0": 224, "efficientnet_b0": 224, "efficientnet_v2_s": 224, "regnet_y_400mf": 224, "convnext_tiny": 224, "vit_b_16": 224,
    "swin_t": 224, "swin_v2_t": 224, "maxvit_t": 224, "segmentation.fcn_resnet50": 128, "segmentation.deeplabv3_resnet50": 128,
    "segmentation.lraspp_mobilenet_v3_large": 128, "video.r3d_18": 64, "encoder": 32, "encoder_mask": 32, "lstm": 32,
}


def enter(venv, make):
    """Goes on inside the virtual environment."""
    python = os.path.join(venv, "bin", "python")
    if make and not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q"] + PACKAGES, check=True)
    if not os.path.exists(python):
        sys.exit("there is no virtual environment %s; --make makes it" % venv)
    if os.path.abspath(sys.prefix) != os.path.abspath(venv):
        os.execv(python, [python] + sys.argv)


def build(name, size):
    """The model in its initial state, with running statistics that differ from 0 and 1, and an input."""
    import torch
    import torchvision
    torch.manual_seed(1)
    torch.backends.mha.set_fastpath_enabled(False)  # its operators are not exported

    class Last(torch.nn.Module):
        """One result of each: the states of a recurrent net, an encoder with or without a mask."""
        def __init__(self, core, mask):
            super().__init__()
            self.core = core
            self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(size) if mask else None)

        def forward(self, x):
            if isinstance(self.core, torch.nn.LSTM):
                return self.core(x)[0]
            return self.core(x) if self.mask is None else self.core(x, mask=self.mask)

    if name.startswith("encoder"):
        layer = torch.nn.TransformerEncoderLayer(256, 8, 512, batch_first=True, activation="gelu")
        return Last(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), name == "encoder_mask").eval(), torch.randn(2, size, 256)
    if name == "lstm":
        return Last(torch.nn.LSTM(64, 128, 2, batch_first=True, bidirectional=True), False).eval(), torch.randn(2, size, 64)
    group, _, short = name.rpartition(".")
    make = getattr(getattr(torchvision.models, group) if group else torchvision.models, short)
    extra = {"weights_backbone": None} if group == "segmentation" else {"init_weights": True} if short in ("googlenet", "inception_v3") else {}
    model = make(weights=None, **extra).eval()
    for m in model.modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.uniform_(m.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(m.running_var, 0.5, 1.5)
    for p in model.parameters():  # some last layers begin as zeros
        if p.ndim > 1 and not p.any():
            torch.nn.init.normal_(p, std=0.05)
    return model, torch.randn(*((1, 3, 8, size, size) if group == "video" else (1, 3, size, size)))


def first(y):
    """The tensor of a result that may be a dictionary or a tuple."""
    return first(y["out"]) if isinstance(y, dict) else first(y[0]) if isinstance(y, tuple) else y


def export(name, size, folder):
    """Writes model.onnx, x.npy, and y64.npy and y32.npy by PyTorch; nothing when they are there."""
    import numpy
    import torch
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(os.path.join(folder, "y32.npy")):
        return
    model, x = build(name, size)

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return first(self.model(x))

    with torch.no_grad():
        torch.onnx.export(One().eval(), (x,), os.path.join(folder, "model.onnx"), input_names=["x"], output_names=["y"], dynamo=True,
            verbose=False)
        y32 = first(model(x))
        y64 = first(model.double()(x.double()))
    numpy.save(os.path.join(folder, "x.npy"), x.numpy())
    numpy.save(os.path.join(folder, "y64.npy"), y64.numpy())
    numpy.save(os.path.join(folder, "y32.npy"), y32.numpy())


def write_forms(folder):
    """The model optimised, with quantised operators, these optimised, and quantised as it runs: their files. Not at level all where weights
    are floats: it packs them for one CPU."""
    import numpy
    import onnxruntime
    from onnxruntime import quantization as q
    path = lambda form: os.path.join(folder, form + ".onnx")

    class Once(q.CalibrationDataReader):
        def __init__(self):
            self.left = [{"x": numpy.load(os.path.join(folder, "x.npy"))}]

        def get_next(self):
            return self.left.pop() if self.left else None

    def optimise(source, form, level):
        o = onnxruntime.SessionOptions()
        o.graph_optimization_level, o.optimized_model_filepath = level, path(form)
        onnxruntime.InferenceSession(path(source), o, providers=["CPUExecutionProvider"])

    level = onnxruntime.GraphOptimizationLevel
    optimise("model", "extended", level.ORT_ENABLE_EXTENDED)
    q.quantize_static(path("model"), path("qoperator"), Once(), quant_format=q.QuantFormat.QOperator)
    optimise("qoperator", "qoperator-all", level.ORT_ENABLE_ALL)
    q.quantize_dynamic(path("model"), path("dynamic"))
    return "extended", "qoperator", "qoperator-all", "dynamic"


def check_forms(o, folder):
    """Prints a line for each form; how many nnc refuses, or computes with an error of more than a tenth (a step that is rounded
    differently changes many after it)."""
    import numpy
    bad = 0
    for form in write_forms(folder):
        want = run_ort(folder, form)
        y, why = run_nnc(o.nnc, folder, o.nnc_args.split(), form)
        error = float("inf") if y is None else float(numpy.abs(y - want).max() / numpy.abs(want).max())
        bad += not error <= 0.1
        print("  %-14s %9.2e  %s" % (form, error, re.sub(r"\s+", " ", why)[:300]), flush=True)
    return bad


def run_ort(folder, form="model"):
    import numpy
    import onnxruntime
    session = onnxruntime.InferenceSession(os.path.join(folder, form + ".onnx"), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": numpy.load(os.path.join(folder, "x.npy"))})[0]


def run_nnc(nnc, folder, args, form="model"):
    """The output, or the messages."""
    import numpy
    out = os.path.join(folder, "y.npy")
    if os.path.exists(out):
        os.remove(out)
    command = [nnc, "run", os.path.join(folder, form + ".onnx"), "--input", "x=" + os.path.join(folder, "x.npy"), "--output", "y=" + out,
        "--iterations=1", "--warmup=0"] + args
    p = subprocess.run(command, capture_output=True, text=True, errors="replace")
    return (numpy.load(out), "") if p.returncode == 0 and os.path.exists(out) else (None, "exit code %d\n%s" % (p.returncode, p.stderr))


def first_layer(nnc, folder, args):
    """The first layer with the error of the last one, by nnc verify."""
    import numpy
    inputs = os.path.join(folder, "in.npz")
    numpy.savez(inputs, x=numpy.load(os.path.join(folder, "x.npy")))
    text = subprocess.run([nnc, "verify", os.path.join(folder, "model.onnx"), "--inputs", inputs] + args, capture_output=True, text=True,
        errors="replace").stdout
    rows = re.findall(r"^(\S+) +\S+ +\S+ +(\d\S*) +\d\S* +\w+$", text, re.M)
    if not rows:
        return "verify lists no layers"
    return next("%s has %s of the output's %s" % (name, rms, rows[-1][1]) for name, rms in rows if float(rms) >= float(rows[-1][1]))


def main():
    arg = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arg.add_argument("--venv", default=os.environ.get("NNC_TORCH_VENV", "build/torch-venv"))
    arg.add_argument("--nnc", default="build/nnc")
    arg.add_argument("--nnc-args", default="", help="between blanks")
    arg.add_argument("--folder", default="build/onnx-models")
    arg.add_argument("--only", default=",".join(MODELS))
    arg.add_argument("--limit", type=float, default=2)
    arg.add_argument("--make", action="store_true")
    arg.add_argument("--forms", action="store_true")
    o = arg.parse_args()
    enter(o.venv, o.make)
    import numpy
    import onnx
    import onnxruntime
    import torch
    import torchvision
    torch.set_num_threads(2)
    print("errors of f32 against float64: largest |y - y64| / max |y64|; torch %s, torchvision %s, onnxruntime %s, onnx %s" % (
        torch.__version__, torchvision.__version__, onnxruntime.__version__, onnx.__version__))
    print("%-40s %6s %6s  %9s %9s %9s  %s" % ("model", "opset", "nodes", "torch", "ort", "nnc", ""))
    bad = 0
    for name in o.only.split(","):
        folder = os.path.join(o.folder, name)
        try:
            export(name, MODELS[name], folder)
        except Exception as e:  # PyTorch's exporter
            print("%-40s is not exported: %s" % (name, re.sub(r"\s+", " ", str(e))[:150]))
            continue
        model = onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False)
        y64 = numpy.load(os.path.join(folder, "y64.npy"))
        error = lambda y: float(numpy.abs(y - y64).max() / numpy.abs(y64).max())
        torch32, ort = error(numpy.load(os.path.join(folder, "y32.npy"))), error(run_ort(folder))
        y, why = run_nnc(o.nnc, folder, o.nnc_args.split())
        head = "%-40s %6d %6d  %9.2e %9.2e" % (name, model.opset_import[0].version, len(model.graph.node), torch32, ort)
        if y is None:
            bad += 1
            print("%s %9s  %s" % (head, "-", re.sub(r"\s+", " ", why)[:300]))
            continue
        mine = error(y) if y.shape == y64.shape else float("inf")
        ratio = mine / min(torch32, ort)
        worse = not ratio <= o.limit
        bad += worse
        note = "%.1f times the better: %s" % (ratio, first_layer(o.nnc, folder, o.nnc_args.split())) if worse else ""
        print("%s %9.2e  %s" % (head, mine, note), flush=True)
        bad += check_forms(o, folder) if o.forms else 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
