#!/usr/bin/env python3
"""Trains on each format that scripts/make_data.py writes, and on scikit-learn's digits where it is installed. Accuracies show that pictures
and labels belong together, equal losses that loader threads change nothing.

usage: train_formats.py --nnc=build/nnc [--python=PYTHON with scikit-learn]"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

MODEL = {"args": {"batch": 25, "channels": 3, "side": 24}, "inputs": {"x": ["batch", "channels", "side", "side"]}, "layers": [
    {"op": "conv", "name": "c1", "channels": 16, "kernel": 3, "pad": 1, "stride": 2, "bias": False}, {"op": "batchnorm", "name": "b1"}, "relu",
    {"op": "conv", "name": "c2", "channels": 32, "kernel": 3, "pad": 1, "stride": 2, "bias": False}, {"op": "batchnorm", "name": "b2"}, "relu",
    {"op": "adaptive_avgpool", "output_size": [1, 1]}, "flatten", {"op": "linear", "name": "f", "out": 4}]}
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = [  # format, --data, --validation-data, other flags
    ("cifar10", "", "/test_batch.bin", ["--set", "side=32"]),
    ("cifar10", "", "/test_batch.bin", ["--crop=random", "--mean=0.5,0.5,0.5", "--std=0.25"]),
    ("idx", "", "/t10k-images-idx3-ubyte", ["--set", "channels=1", "--resize=24"]),
    ("idx.gz", "/train-images-idx3-ubyte.gz", "/t10k-images-idx3-ubyte.gz", ["--set", "channels=1", "--crop=random"]),
    ("png", "", None, ["--resize=26", "--crop=random", "--rotate=5"]),
    ("jpeg", "", None, ["--resize=24x24"]),
    ("npy", "/x.npy", None, ["--set", "side=28"]),
]


def has(nnc, part):
    parts = json.loads(subprocess.run([nnc, "doctor", "--format=json"], capture_output=True, check=True).stdout)["parts"]
    return any(p["name"] == part and p["found"] for p in parts)


def train(nnc, *flags):
    r = subprocess.run([nnc, "train", *flags, "--format=json"], capture_output=True, text=True)
    if r.returncode:
        sys.exit("nnc train %s: exit code %d\n%s" % (" ".join(flags), r.returncode, r.stderr))
    return json.loads(r.stdout)


def check_format(nnc, folder, model, case):
    form, data, validation, flags = case
    path = "%s/%s" % (folder, form)
    if not os.path.isdir(path):
        r = subprocess.run([sys.executable, ROOT + "/scripts/make_data.py", form, path, "--samples=400", "--classes=4"], capture_output=True,
                           text=True)
        if r.returncode:
            return "skipped: " + (r.stderr.strip().splitlines() or ["?"])[-1]
    part = {"png": "png", "jpeg": "jpeg", "idx.gz": "zlib"}.get(form)
    if part and not has(nnc, part):
        return "skipped: nnc was built without " + part
    flags = [model, "--data=" + path + data, "--optimizer=adam", "--lr=3e-3", "--epochs=4", *flags]
    flags += ["--validation-data=" + path + validation] if validation else ["--validation=0.2"]
    flags += ["--labels=%s/y.npy" % path] if form == "npy" else []
    one = train(nnc, *flags, "--loaders=1")
    for a, b in zip(one, train(nnc, *flags, "--loaders=4") if "--crop=random" in flags else one):
        if a["loss"] != b["loss"] or a["validation_loss"] != b["validation_loss"]:
            sys.exit("%s: loader threads change the loss: %s, %s" % (form, a, b))
    best = one[-1]["validation_accuracy"]
    if best < 0.9:
        sys.exit("%s: validation accuracy %g after 4 epochs" % (form, best))
    if one[-1]["load_ns"] <= 0 or one[-1]["load_wait_ns"] <= 0:
        sys.exit("%s: no times: %s" % (form, one[-1]))
    return "validation accuracy %.3f" % best


def check_digits(nnc, folder, python):
    path = folder + "/digits.npz"
    r = subprocess.run([python, ROOT + "/scripts/digits.py", path], capture_output=True, text=True)
    if r.returncode:
        return "skipped: " + (r.stderr.strip().splitlines() or ["?"])[-1]
    best = train(nnc, ROOT + "/examples/digits.json", "--data=" + path)[-1]["validation_accuracy"]
    if best < 0.97:
        sys.exit("digits: validation accuracy %g" % best)
    return "validation accuracy %.3f" % best


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nnc", default="build/nnc")
    p.add_argument("--python", default=sys.executable)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("XDG_CACHE_HOME", folder + "/cache")
        model = folder + "/m.json"
        with open(model, "w") as f:
            json.dump(MODEL, f)
        for case in CASES:
            print("%-8s %s" % (case[0], check_format(a.nnc, folder, model, case)), flush=True)
        print("%-8s %s" % ("digits", check_digits(a.nnc, folder, a.python)), flush=True)


main()
