#!/usr/bin/env python3
"""Checks `nnc compile --emit=onnx` with ONNX's checker and ONNX Runtime: the models in models/, and one with a layer of each type.

    python3 tests/onnx/export_check.py --make      make a virtual environment with onnx and onnxruntime, then run
    python3 tests/onnx/export_check.py             run; without the packages: exit code 77, skipped

Every export passes onnx.checker.check_model(full_check=True), and gives the numbers of `nnc run` in ONNX Runtime, on the same inputs,
within a tolerance for f32. --venv names the environment (default: $NNC_ONNXRUNTIME_VENV, or onnxruntime-venv in the user's cache)."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

PACKAGES = ["onnx==1.23.2", "onnxruntime", "numpy"]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
LIMIT = 1e-4  # largest error over the largest number
# Arguments that make models small; others are checked with their defaults.
SETS = {"conv": "batch=1", "conv_fc_stack": "batch=1 image=16 features=64", "densenet121": "image=32", "efficientnet_b0": "image=32",
        "mobilenet_v2": "image=32", "vgg16": "image=32", "mlp": "batch=4", "nested_sin": "n=4096", "layernorm": "batch=16 cols=300",
        "softmax": "batch=16 cols=300", "maxpool": "batch=1", "relu": "batch=1", "linear": "batch=2", "matmul": "dim=256",
        "transformer_mlp": "batch=1 tokens=16", "bert_base": "tokens=16", "resnet50": "image=32", "resnet101": "image=32", "unet": "image=32",
        "lstm_classifier": "batch=2 length=20", "inception_v3": "image=75",
        "efficientnet_b3": "image=32", "efficientnet_b5": "image=32", "googlenet": "image=64", "vit_b16": "image=64"}

# One layer of each type over x [2, 4, 6, 8] (or another input), each of them an output.
LAYERS = [{"op": o} for o in (
    "identity neg abs sign floor ceil round trunc exp exp2 expm1 sin cos tan sinh cosh tanh sigmoid erf isnan isinf relu leaky_relu "
    "relu6 gelu silu hardswish hardsigmoid softplus softsign elu selu mish square dropout global_avgpool global_maxpool flatten "
    "batchnorm layernorm rmsnorm prelu").split()]
LAYERS += [{"op": o, "in": "positive"} for o in "sqrt rsqrt recip log log2 log1p".split()]
LAYERS += [{"op": o, "in": "unit"} for o in "asin acos atan".split()]
LAYERS += [{"op": o, "in": ["x", "positive"]} for o in "add sub mul div mod min max eq ne lt le gt ge".split()]
LAYERS += [{"op": o, "in": ["positive", "x"]} for o in ["pow"]]
LAYERS += [{"op": o, "in": ["isnan", "low"]} for o in "and or xor".split()]
LAYERS += [{"op": o, "in": ["places", "index"]} for o in "bit_and bit_or bit_xor".split()]
LAYERS += [{"op": o, "in": "places", "value": v} for o in ("shl", "shr") for v in (0, 2, 63, 64, -1)]
LAYERS += [{"op": "not", "in": "low"}, {"op": "select", "in": ["low", "x", "positive"]}, {"op": "cast", "to": "i32"}]
LAYERS += [{"op": o, "axes": [1, 3], "keepdims": k} for o in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
           for k in (True, False)]
LAYERS += [{"op": o, "axis": 2, "keepdims": False} for o in ("argmax", "argmin")]
LAYERS += [
    {"op": "clip", "lo": -0.25, "hi": 0.5}, {"op": "clip", "lo": 0.1}, {"op": "gelu", "approximate": "tanh"},
    {"op": "conv", "channels": 6, "kernel": 3, "pad": 1, "stride": 2}, {"op": "conv", "channels": 4, "kernel": [2, 3], "groups": 2,
                                                                        "dilation": 2, "bias": False},
    {"op": "depthwise", "kernel": 3, "pad": "same"}, {"op": "conv_transpose", "channels": 3, "kernel": 3, "stride": 2, "output_padding": 1},
    {"op": "linear", "out": 5}, {"op": "linear", "out": 5, "bias": False},
    {"op": "maxpool", "kernel": 2}, {"op": "maxpool", "kernel": 3, "stride": 2, "pad": 1, "ceil": True},
    {"op": "avgpool", "kernel": 3, "stride": 2, "pad": 1, "count_include_pad": True}, {"op": "avgpool", "kernel": 3, "pad": 1},
    {"op": "groupnorm", "groups": 2}, {"op": "groupnorm", "groups": 2, "affine": False}, {"op": "layernorm", "axis": 2, "affine": False},
    {"op": "softmax", "axis": 1}, {"op": "log_softmax", "axis": -1}, {"op": "reshape", "shape": [0, -1]},
    {"op": "transpose", "perm": [0, 2, 3, 1]}, {"op": "slice", "axes": [2, 3], "starts": [1, 0], "ends": [5, 8], "steps": [2, 3]},
    {"op": "pad", "pads": [0, 0, 1, 2, 0, 0, 0, 1], "value": 0.5}, {"op": "pad", "pads": [0, 0, 1, 2, 0, 0, 0, 1], "mode": "reflect"},
    {"op": "pad", "pads": [0, 0, 1, 0, 0, 0, 2, 0], "mode": "edge"}, {"op": "concat", "in": ["x", "positive"], "axis": 1},
    {"op": "flip", "axes": [1, 3]}, {"op": "broadcast", "shape": [3, 2, 4, 6, 8]}, {"op": "matmul", "in": ["x", "x"], "transpose_b": True},
    {"op": "gather", "in": ["x", "index"], "axis": 2}, {"op": "embedding", "in": "index", "rows": 6, "channels": 3},
    {"op": "topk", "k": 3, "axis": 2}, {"op": "topk", "k": 2, "axis": 0, "largest": False}, {"op": "sort", "axis": 3, "descending": True},
    {"op": "sort", "axis": 1, "descending": False}, {"op": "gather_elements", "in": ["x", "places"], "axis": 2},
    {"op": "gather_nd", "in": ["x", "tuples"]}, {"op": "gather_nd", "in": ["x", "tuples"], "batch_dims": 1}]
LAYERS += [{"op": o, "axis": a, "exclusive": e, "reverse": r} for o in ("cumsum", "cumprod") for a, e, r in (
    (1, False, False), (3, True, False), (0, False, True), (2, True, True))]
LAYERS += [{"op": "cumsum", "in": "places", "axis": 3}, {"op": "cumprod", "in": "places", "axis": 1}]
LAYERS += [{"op": "scatter", "in": ["x", "places", "updates"], "axis": 1, "reduction": r} for r in ("none", "add", "mul", "min", "max")]
LAYERS += [{"op": "scatter_nd", "in": ["x", "tuples", "rows"], "reduction": r} for r in ("none", "add", "mul", "min", "max")]
LAYERS += [{"op": o, "in": "steps", "hidden": 5, "num_layers": 2, "bidirectional": True, "bias": b} for o in ("lstm", "gru", "rnn")
           for b in (True, False)]
LAYERS += [{"op": "lstm", "in": ["steps", "h", "c"], "hidden": 32}, {"op": "gru", "in": ["steps", "h"], "hidden": 32},
           {"op": "rnn", "in": ["steps", "h"], "hidden": 32, "activation": "relu"}]

# What layers do not say: lengths of sequences, and gates that are no product; R in panels.
CELLS = """graph @cells {
  %x = input : f32[6,3,20]
  %z = input : f32[6,3,15]
  %n = input : i64[3]
  %r = input : f32[5,20]
  %p = input : f32[5,5,4,1]
  %q = input : f32[5,15]
  %b = input : f32[5]
  %s = input : f32[5,5]
  %h = input : f32[3,5]
  %c = input : f32[3,5]
  %one = constant : i64[] = [1]
  %len = add %n, %one : i64[3]
  %v = slice %z {axes=[2], starts=[0], ends=[5]} : f32[6,3,5]
  %y0, %y1 = lstm %x, %r, %h, %c, %len : f32[6,3,5], f32[3,5]
  %y2, %y3 = lstm %x, %p, %h, %c : f32[6,3,5], f32[3,5]
  %y4 = gru %z, %q, %b, %h, %len : f32[6,3,5]
  %y5 = rnn %v, %s, %h, %len {activation=relu} : f32[6,3,5]
  return %y0 as "y0", %y1 as "y1", %y2 as "y2", %y3 as "y3", %y4 as "y4", %y5 as "y5"
}
"""


def layers_model():
    layers = [{"op": "abs", "name": "absolute", "in": "x"}, {"op": "add", "name": "positive", "value": 0.5},
              {"op": "tanh", "name": "unit", "in": "x"}, {"op": "lt", "name": "low", "in": ["x", "positive"]},
              {"op": "isnan", "name": "isnan", "in": "x"}]
    outputs = []
    for i, layer in enumerate(LAYERS):
        layers.append({"in": "x", **layer, "name": "%s_%d" % (layer["op"], i)})
        outputs.append(layers[-1]["name"])
        more = {"topk": 1, "sort": 1, "lstm": 2, "gru": 1, "rnn": 1}.get(layer["op"], 0)
        outputs += ["%s:%d" % (outputs[-1], k + 1) for k in range(more)]
    layers += [{"op": "iota", "name": "count", "shape": [4, 6], "dim": 1, "dtype": "f32"},
               {"op": "split", "name": "cut", "in": "x", "axis": 1, "sizes": [1, 3]}]
    index = {"index": [3], "places": [2, 3, 5, 8], "tuples": [2, 3, 2]}
    inputs = {"x": [2, 4, 6, 8], "updates": index["places"], "rows": [2, 3, 6, 8], "steps": [7, 3, 6], "h": [1, 3, 32], "c": [1, 3, 32]}
    return {"inputs": {**inputs, **{k: {"shape": v, "dtype": "i64"} for k, v in index.items()}}, "layers": layers,
            "outputs": outputs + ["count", "cut:0", "cut:1"]}


def run(*command):
    p = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if p.returncode:
        raise RuntimeError("%s: exit code %d\n%s" % (" ".join(command), p.returncode, p.stderr))
    return p.stdout


def make_inputs(np, nnc, model, flags, file):
    rng, values = np.random.default_rng(1), {}
    for port in json.loads(run(nnc, "show", model, "--format=json", *flags))["inputs"]:
        if port["dtype"] == "f32":
            values[port["name"]] = rng.uniform(-1, 1, port["shape"]).astype(np.float32)
        elif port["dtype"] == "bool":  # a mask: few are left out
            values[port["name"]] = rng.uniform(0, 1, port["shape"]) < 0.9
        else:
            values[port["name"]] = rng.integers(0, 2, port["shape"]).astype({"i64": np.int64, "i32": np.int32}[port["dtype"]])
    np.savez(file, **values)
    return values


def check(nnc, model, flags, level, folder):
    """Largest error, and how many functions the export has."""
    import numpy as np
    import onnx
    import onnxruntime
    file, inputs, outputs = (os.path.join(folder, f) for f in ("m.onnx", "in.npz", "out.npz"))
    values = make_inputs(np, nnc, model, flags, inputs)
    run(nnc, "compile", model, "--emit=onnx", "-o", file, level, *flags)
    run(nnc, "run", model, "--iterations=1", "--inputs", inputs, "--outputs", outputs, level, *flags)
    exported = onnx.load(file)
    onnx.checker.check_model(exported, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    want, worst = np.load(outputs), 0.0
    names = [o.name for o in session.get_outputs()]
    if sorted(names) != sorted(want.files):
        raise RuntimeError("the export has the outputs %s, the model %s" % (names, want.files))
    for name, got in zip(names, session.run(None, values)):
        a, b = got.astype(np.float64), want[name].astype(np.float64)
        if a.shape != b.shape or got.dtype != want[name].dtype or (np.isnan(a) != np.isnan(b)).any():
            raise RuntimeError("output %s: %s %s, not %s %s, or NaN" % (name, got.dtype, a.shape, want[name].dtype, b.shape))
        error = np.nanmax(np.abs(a - b)) / max(np.nanmax(np.abs(b)), 1e-30)
        if error > LIMIT:
            raise RuntimeError("output %s: error %.3g" % (name, error))
        worst = max(worst, error)
    return worst, len(exported.functions)


def check_all(nnc):
    failed = functions = 0
    with tempfile.TemporaryDirectory() as folder:
        own, cells = os.path.join(folder, "layers.json"), os.path.join(folder, "cells.txt")
        json.dump(layers_model(), open(own, "w"))
        open(cells, "w").write(CELLS)
        files = [f for f in sorted(os.listdir(os.path.join(ROOT, "models"))) if f.endswith(".json")]
        models = [(own, ""), (cells, "")] + [(os.path.join(ROOT, "models", f), SETS.get(f[:-5])) for f in files]
        for model, sets in models:
            for level in ("-O0", "-O2"):
                name = "%s %s" % (os.path.basename(model), level)
                try:
                    worst, n = check(nnc, model, ["--set=" + s for s in (sets or "").split()], level, folder)
                    functions += n
                    print("%-28s %8.2g  %d functions" % (name, worst, n))
                except Exception as e:  # of nnc, onnx or onnxruntime
                    failed += 1
                    print("%-28s FAILED: %s" % (name, e))
    if not functions:
        failed += 1
        print("no export has functions: nothing was fused")
    return 1 if failed else 0


def main():
    arg = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arg.add_argument("--venv", default=os.environ.get("NNC_ONNXRUNTIME_VENV") or os.path.join(CACHE, "nnc", "onnxruntime-venv"))
    arg.add_argument("--nnc", default=os.path.join(ROOT, "build", "nnc"))
    arg.add_argument("--make", action="store_true")
    o = arg.parse_args()
    python = os.path.join(o.venv, "bin", "python")
    if o.make and not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", o.venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    if os.path.abspath(sys.prefix) == os.path.abspath(o.venv):
        return check_all(o.nnc)
    if not os.path.exists(python) or subprocess.run([python, "-c", "import onnx, onnxruntime"], capture_output=True).returncode:
        print("skipped: %s has no onnx and onnxruntime; export_check.py --make installs them" % o.venv)
        return 77
    return subprocess.run([python, "-W", "ignore", os.path.abspath(__file__), "--venv", o.venv, "--nnc", o.nnc]).returncode


if __name__ == "__main__":
    sys.exit(main())
