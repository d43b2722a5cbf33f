#!/usr/bin/env python3
"""Inference of nnc beside ONNX Runtime, OpenVINO and torch.compile on this CPU, f32, the same inputs and number of threads. The first two run
models/ exported to ONNX, with the same weights; torch.compile runs torchvision's network of that name, with weights of its own, frozen.

    python3 bench/peers.py [--nnc=build/nnc] [--threads=2] [--rounds=5] [--burst=MS] [--only=MODEL,...] [--out=bench/results]

Each burst is a process of its own; bursts of the engines alternate, so that a change of the machine's speed meets all of them. Ratios are a
peer's median time over nnc's in the same round: above 1, nnc is faster; the table shows the median over the rounds. compile is the least time
over the rounds from the file to a program that can run: of nnc the whole process of `nnc compile --no-cache`, of ONNX Runtime and OpenVINO the
making of the session from a file that was read before; of torch.compile the first call in the first round, which finds no cache. error is the largest |y - y_peer| / max |y_peer| of nnc beside the first peer.
Writes OUT/peers-DATE.json and .txt.
Needs Python packages numpy, onnx, and onnxruntime or openvino; torch with torchvision, and a C++ compiler, for torch.compile. What is absent is
left out with a line that says so."""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Model file and its arguments.
CASES = [("vgg16", []), ("resnet50", []), ("densenet121", []), ("googlenet", []), ("mobilenet_v2", []), ("efficientnet_b0", []), ("unet", []),
         ("vit_b16", []), ("bert_base", []), ("lstm_classifier", []), ("transformer_mlp", []), ("mlp", [])]
TORCHVISION = {"vgg16": {}, "resnet50": {}, "densenet121": {}, "googlenet": {"aux_logits": False, "init_weights": False}, "mobilenet_v2": {},
               "efficientnet_b0": {}, "vit_b16": {}}


def make_onnxruntime(file, threads):
    import onnxruntime
    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def make_openvino(file, threads):
    import openvino
    return openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY",
                                                       "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1})


def onnxruntime_run(file, feeds, threads):
    made = make_onnxruntime(file, threads)
    return lambda: made.run(None, feeds)[0]


def openvino_run(file, feeds, threads):
    import openvino
    request = make_openvino(file, threads).create_infer_request()
    for name, array in feeds.items():
        request.set_tensor(name, openvino.Tensor(array))
    return lambda: (request.infer(), request.get_output_tensor(0).data)[1]


def torch_run(file, feeds, threads):
    import torch
    import torch._inductor.config
    import torchvision
    torch._inductor.config.freezing = True
    torch.set_num_threads(threads)
    name = os.path.splitext(os.path.basename(file))[0]
    net = getattr(torchvision.models, name.replace("vit_b16", "vit_b_16"))(**TORCHVISION[name]).eval()
    inputs = [torch.from_numpy(a) for a in feeds.values()]
    compiled = torch.compile(net)

    def run():
        with torch.no_grad():
            return compiled(*inputs).numpy()
    run()  # compiles
    return run


ENGINES = {"onnxruntime": onnxruntime_run, "openvino": openvino_run, "torch": torch_run}


def worker(engine, file, inputs, output, threads, burst):
    """Runs one burst, and prints {"compile_ms", "median_ms", "runs"}; writes the first output."""
    import numpy
    feeds = dict(numpy.load(inputs))
    with open(file, "rb") as f:
        while f.read(1 << 24):
            pass
    __import__(engine)
    begin = time.perf_counter()
    run = ENGINES[engine](file, feeds, threads)
    compile_ms = 1e3 * (time.perf_counter() - begin)
    y = run()
    if output:
        numpy.save(output, y)
    times = []
    warm = time.perf_counter() + 0.1 * burst / 1e3  # not timed before
    end = warm + burst / 1e3
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        run()
        if begin >= warm:
            times.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps({"compile_ms": compile_ms, "median_ms": statistics.median(times), "runs": len(times)}))


def peer(engine, file, inputs, output, o):
    cache = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=os.path.join(os.path.dirname(file), "inductor"))
    p = subprocess.run([sys.executable, os.path.abspath(__file__), "--worker", engine, file, inputs, output, "--threads=%d" % o.threads,
                        "--burst=%d" % o.burst], capture_output=True, text=True, env=cache)
    if p.returncode:
        sys.exit("%s fails on %s:\n%s" % (engine, file, p.stderr))
    return json.loads(p.stdout.splitlines()[-1])


def nnc(model, sets, inputs, outputs, o, folder):
    args = [os.path.join(HERE, "..", "models", model + ".json"), "--threads=%d" % o.threads] + ["--set=" + s for s in sets]
    artifact = os.path.join(folder, "model.nnc")
    begin = time.perf_counter()
    subprocess.run([o.nnc, "compile", *args, "--no-cache", "--quiet", "-o", artifact], check=True)
    compile_ms = 1e3 * (time.perf_counter() - begin)
    flags = ["--inputs=" + inputs, "--format=json", "--duration=%d" % o.burst] + (["--outputs=" + outputs] if outputs else [])
    p = subprocess.run([o.nnc, "run", *args, *flags], capture_output=True, text=True, check=True)
    result = json.loads(p.stdout)
    return {"compile_ms": compile_ms, "median_ms": result["median_ms"], "runs": result["iterations"]}


def draw_inputs(file, path):
    """Writes random inputs of the ONNX file; returns the name of its first output. Integers are 0 or 1, which any vocabulary has."""
    import numpy
    import onnx
    random = numpy.random.default_rng(1)
    graph = onnx.load(file, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    feeds = {}
    for i in graph.input:
        if i.name in weights:
            continue
        shape = [d.dim_value for d in i.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        feeds[i.name] = (random.standard_normal(shape) if kind.kind == "f" else random.integers(0, 2, shape)).astype(kind)
    numpy.savez(path, **feeds)
    return graph.output[0].name


def measure(model, sets, engines, o, folder):
    import numpy
    file, inputs = os.path.join(folder, model + ".onnx"), os.path.join(folder, "in.npz")
    subprocess.run([o.nnc, "compile", os.path.join(HERE, "..", "models", model + ".json"), "-O0", "--emit=onnx", "--quiet", "-o", file]
                   + ["--set=" + s for s in sets], check=True)
    name = draw_inputs(file, inputs)
    rounds = []
    runs = [e for e in engines if e != "torch" or model in TORCHVISION]
    for r in range(o.rounds):
        row = {}
        outputs = os.path.join(folder, "nnc.npz") if r == 0 else ""
        row["nnc"] = nnc(model, sets, inputs, outputs, o, folder)
        for e in runs:
            row[e] = peer(e, file, inputs, os.path.join(folder, e + ".npy") if r == 0 else "", o)
        rounds.append(row)
    y = numpy.load(os.path.join(folder, "nnc.npz"))[name]
    want = numpy.load(os.path.join(folder, engines[0] + ".npy")).astype("float64")
    return {"model": model, "set": sets, "rounds": rounds, "error": float(numpy.abs(y - want).max() / numpy.abs(want).max())}


def ratios_of(result, engine):
    return [r[engine]["median_ms"] / r["nnc"]["median_ms"] for r in result["rounds"] if engine in r]


def compile_of(result, engine):
    times = [r[engine]["compile_ms"] for r in result["rounds"] if engine in r]
    return times and (times[0] if engine == "torch" else min(times))


def row_of(result, engines):
    ratios = {e: ratios_of(result, e) for e in engines}
    compiled = {e: compile_of(result, e) for e in ["nnc"] + engines}
    cells = ["%-18s %9.3f" % (" ".join([result["model"]] + result["set"]), statistics.median(r["nnc"]["median_ms"] for r in result["rounds"]))]
    cells += ["%5.2f (%4.2f-%4.2f)" % (statistics.median(x), min(x), max(x)) if x else "%5s%12s" % ("-", "") for x in ratios.values()]
    cells += ["%8.0f ms" % x if x else "%8s   " % "-" for x in compiled.values()]
    return "  ".join(cells + ["%8.1e" % result["error"]])


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())


def main():
    arg = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arg.add_argument("--nnc", default=os.path.join(HERE, "..", "build", "nnc"))
    arg.add_argument("--threads", type=int, default=2)
    arg.add_argument("--rounds", type=int, default=5)
    arg.add_argument("--burst", type=int, default=1000, help="milliseconds")
    arg.add_argument("--only", default="")
    arg.add_argument("--out", default="")
    arg.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    o = arg.parse_args()
    if o.worker:
        return worker(*o.worker, o.threads, o.burst)
    versions, engines = [], []
    for e in ENGINES:
        try:
            versions.append("%s %s" % (e, __import__(e).__version__))
            if e == "torch":
                versions.append("torchvision %s" % __import__("torchvision").__version__)
            engines.append(e)
        except ImportError as why:
            print("%s is left out: %s" % (e, why))
    if not engines or engines[0] == "torch":
        sys.exit("neither onnxruntime nor openvino is installed: pip install onnxruntime openvino onnx numpy")
    version = subprocess.run([o.nnc, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines = ["nnc %s, commit %s, %s; %s; %s, %d threads, f32" % (version, commit or "unknown", datetime.date.today(), "; ".join(versions), cpu_name(),
                                                             o.threads),
             "%-18s %9s  %s  %s  %8s" % ("model", "nnc ms", "  ".join("%-17s" % (e + " / nnc") for e in engines),
                                       "  ".join("%11s" % e for e in ["compile nnc"] + engines), "error")]
    print("\n".join(lines), flush=True)
    results = []
    for model, sets in CASES:
        if o.only and model not in o.only.split(","):
            continue
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(model, sets, engines, o, folder))
        lines.append(row_of(results[-1], engines))
        print(lines[-1], flush=True)
    for e in engines:
        ratios = [statistics.median(ratios_of(x, e)) for x in results if ratios_of(x, e)]
        if not ratios:
            continue
        lines.append("%s / nnc: geometric mean %.2f over %d models" % (e, statistics.geometric_mean(ratios), len(ratios)))
        print(lines[-1])
    if o.out:
        stem = os.path.join(o.out, "peers-%s" % datetime.date.today())
        with open(stem + ".json", "w") as f:
            json.dump({"versions": lines[0], "engines": engines, "results": results}, f, indent=1)
        with open(stem + ".txt", "w") as f:
            f.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
