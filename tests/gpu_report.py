"""tests/gpu_report.py SOURCE -- bench/device/report.py on results that were made up. Each question's line has the numbers that follow from
them, or says that no cell answers it. The chart is SVG with a mark for each ratio. From a folder and from an archive of it."""
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree

SOURCE = sys.argv[1]
QUESTIONS = 22
failed = 0


def time(ms):
    return {"median_ms": ms, "least_ms": ms, "most_ms": ms, "runs": 10}


def cell(ms, more=None, **times):
    return {"group": "g", "flops": 1e9, "bytes": 1e9, "launches": 1, "device_bytes": 1 << 20, "compile_ms": 1, "first_ms": 1, "joules": None,
            "watts": None, "waited": time(ms + 0.01), "queued": time(ms), **{k: time(v) for k, v in times.items()}, **(more or {})}


def peer(base, name, calls, graph=None, joules=None, copied=None):
    out = {"cell": name, "base": base, "nmse_to_nnc": 1e-9, "device_bytes": 2 << 20, "calls": {"queued": time(calls), "waited": time(calls)}}
    out["calls"] |= {"joules": joules, "watts": 400} if joules else {}
    out["calls"] |= {"copied": time(copied)} if copied else {}
    if graph:
        out["graph"] = {"queued": time(graph), "waited": time(graph)}
    return out


NNC = {
    "vgg16,precision=f32,order=relu-pool,batch=128": cell(8.0),
    "vgg16,precision=f32,order=pool-relu,batch=128": cell(10.0),
    "vgg16,precision=f16,order=relu-pool,batch=128": cell(2.0, {"watts": 500, "joules": 1.0}),
    "vgg16,level=3,precision=f16,order=relu-pool,batch=128": cell(1.6),
    "sin,depth=4,dtype=f32,n=1024": cell(0.01),
    "sin,depth=4,dtype=f32,n=16777216": cell(0.5, {"predicted": {"us": 400}}, copied=8.0, streamed=4.0),
    "sin_plain,level=1,depth=4,dtype=f32,n=16777216": cell(1.5),
    "matmul,precision=f32,dim=4096": cell(3.0, copied=20.0, streamed=16.0),
    "train_resnet50,precision=f32,training=sgd,batch=32": cell(12.0),
    "lstm,batch=1": cell(1.0),
    "lstm,clusters=0,batch=1": cell(2.5),
    "relu,batch=256": {"failed": "crashed (signal 6)"},
}
TUNED = {"vgg16,precision=f16,order=relu-pool,batch=128": cell(1.9)}
CPU = {"sin,depth=4,dtype=f32,n=1024": cell(0.001), "sin,depth=4,dtype=f32,n=16777216": cell(50.99)}
VGG = "vgg16,precision=f16,order=relu-pool,batch=128"
PEERS = [
    peer("eager", VGG, 5.0, 4.0, joules=2.0), peer("compile", VGG, 3.0, 2.5), peer("tuned", VGG, 2.4, 1.0),
    peer("eager", "matmul,precision=f32,dim=4096", 6.0, copied=30.0),
    peer("eager", "train_resnet50,precision=f32,training=sgd,batch=32", 24.0),
]


def config(engine, ns, listed=False, taken=False):
    return {"engine": engine, "workspace": 64, "numerical": 0, "listed": listed, "taken": taken, "ns": ns}


OTHERS = {
    "engines/engines,vgg16,call=0": {"conv": "3x3 1x64x56x56 to 64 channels", "flops": 1e9, "configs": [
        config(0, -1, listed=True), config(4, 40000, listed=True), config(1, 20000, taken=True), config(7, 10000)]},
    "check/graphs,0-19": {"graphs": 20, "worst_nmse": 1e-7, "ops": {"add": 3, "mul": 4}},
    "sanitize/memcheck,lstm": {"clean": True},
    "sanitize/racecheck,lstm": {"failed": "exit code 99: a hazard"},
    "predict/bert": {"report": {"strategies": [{"strategy": "single", "measured": {
        "iteration_ms": 2.0, "predicted_error": 0.5}}]}},
    "peers/profile,train_resnet50,precision=f32,training=sgd,batch=32": {"base": "profile", "sum_us": 900.0, "launches": 3, "longest": [
        {"name": "sgemm", "us": 600.0, "launches": 2}, {"name": "relu", "us": 300.0, "launches": 1}]},
}
TRACE = {"traceEvents": [
    {"ph": "M", "name": "thread_name"}, {"ph": "X", "name": "conv1", "ts": 0, "dur": 700.5}, {"ph": "X", "name": "relu", "ts": 701, "dur": 100},
    {"ph": "X", "name": "conv1", "ts": 900, "dur": 700}]}
LINES = [
    "compute-sanitizer: 1 of 2 runs are clean",
    "  FAILED racecheck,lstm: exit code 99: a hazard",
    "Strict f32 convolutions, by cuDNN's configuration: 1 convolution takes 20 us as nnc chooses without measuring, 40 us with the heuristics' "
    "first (2.00 times as long), 10 us with the fastest of all (0.50)",
    "  3x3 1x64x56x56 to 64 channels: taken engine 1 20 us (50 TFLOP/s, 64 B); heuristics' first engine 4 40 us (25 TFLOP/s, 64 B); "
    "fastest of 3 engine 7 10 us (100 TFLOP/s, 64 B)",
    "Generated graphs: 20 graphs over 2 ops agree, largest nmse 1e-07",
    "Time predicted by nnc partition, beside measured: bert 2 ms measured, predicted 3 ms (+50%)",
    "LSTM, without clusters of blocks over with: batch=1: with 1 ms, without 2.5 ms, 2.50 times",
    "Time by command: train_resnet50,precision=f32,training=sgd,batch=32 1.5 ms in 3 commands, of which conv1 1.4 ms, PyTorch's 900 us in 3 "
    "kernels (lists below)",
    "before the first run: 9.10 GiB free",
    "nnc against its peers, geometric means of ratios: eager 2.00 (3 cells), torch.compile 1.25 (1 cell), max-autotune 0.50 (1 cell), "
    "the fastest of them in each cell 1.26",
    f"Cells that nnc loses to the fastest peer: 1 of 3: {VGG} 0.50 (max-autotune+graph, with --tune 0.53)",
    "Models against max-autotune: vgg16 precision=f16,order=relu-pool,batch=128 0.50, with --tune 0.53",
    "Training steps: eager 2.00 (1 cell)",
    "Nested sin, unfused by nnc over fused: depth=4,dtype=f32,n=16777216: unfused 1.5 ms, fused 500 us, 3.00 times",
    "Nested sin, CPU over GPU: depth 4 f32: the GPU is ahead from n=16777216 on, 100 times at n=16777216",
    "Matrix product, alone and with copies: f32 4096: 3 ms alone, 20 ms with copies (peers 1.50), overlapped 16 ms",
    "VGG-16, relu before the pooling and after it: vgg16,precision=f32,batch=128: relu-pool 8 ms, pool-relu 10 ms, ratio 0.800",
    "Overlapped copies: 1.58 times as many runs a second as with copies before and after, over 2 cells",
    "Faster than f32 by precision: vgg16,order=relu-pool,batch=128 f16 4.00",
    f"--tune, default over measured algorithms: 1.053 over 1 cell, from 1.05 ({VGG}) to 1.05 ({VGG})",
    "-O3, time of -O2 over it: vgg16,level=3,precision=f16,order=relu-pool,batch=128 1.25",
    "Share of the copy bandwidth, kernels bound by memory: 3.54 over 2 cells; below 0.85: sin,depth=4,dtype=f32,n=16777216 0.50",
    "Predicted share over measured: 1.25 over 1 cell; farthest: sin,depth=4,dtype=f32,n=16777216 1.25",
    f"Power: {VGG} 500 W, 1 J a run, eager 2 J (2.00)",
    "Device memory: eager's over nnc's 2.00 over 3 cells",
    "  matmul: eager 2.00 (1 cell)",
    "  FAILED relu,batch=256: crashed (signal 6)",
]


def expect(what, good):
    global failed
    if not good:
        print(f"gpu_report: not so: {what}")
        failed = 1


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(data if isinstance(data, str) else json.dumps(data))


def report(*args):
    subprocess.run([sys.executable, os.path.join(SOURCE, "bench/device/report.py"), *args], check=True, stdout=subprocess.DEVNULL)


def main(root):
    raw = os.path.join(root, "raw-abc123")
    write(f"{raw}/started", "2026-01-02\n")
    write(f"{raw}/machine.json", {"gpu": "A GPU", "sm": 90, "l2_bytes": 1000, "limits": "9.10 GiB free"})
    write(f"{raw}/peers/about", {"torch": "9.9"})
    write(f"{raw}/ceilings/ceilings,memory.json", {"copy": 4e12, "read": 1e12, "write": 1e12, "memcpy": 1e12, "fma": 5e13})
    write(f"{raw}/ceilings/ceilings,products.json", {})
    for k, v in OTHERS.items():
        write(f"{raw}/{k}.json", v)
    write(f"{raw}/traces/train_resnet50,precision=f32,training=sgd,batch=32.trace", TRACE)
    write(f"{raw}/cells.json", [{"id": k} for k in NNC])
    for part, cells in (("nnc", NNC), ("tuned", TUNED), ("cpu", CPU)):
        for k, c in cells.items():
            write(f"{raw}/{part}/{k}.json", {"id": k, **c})
    for p in PEERS:
        write(f"{raw}/peers/{p['base']},{p['cell']}.json", p)
    report(f"--raw={raw}", f"--out={root}")
    with open(f"{root}/gpu-2026-01-02-abc123.txt") as f:
        text = f.read()
    # sin with n=1024 moves as many bytes here, in 10 us: its share passes 1
    lines = text.replace(":\n    ", ": ").replace("\n    ", "; ").split("\n")  # a long answer has a line for each of its parts
    for want in LINES:
        expect(f"the line `{want}`", want in lines)
    if failed:
        print(text)
    svg = xml.etree.ElementTree.parse(f"{root}/gpu-2026-01-02-abc123.svg").getroot()
    marks = [e for e in svg.iter() if e.find("{http://www.w3.org/2000/svg}title") is not None]
    expect("a mark for each ratio, and one for each peer of the legend", len(marks) == 5 + 3)
    with open(f"{root}/gpu-2026-01-02-abc123.json") as f:
        expect("the rows as JSON", len(json.load(f)["rows"]) == len(NNC) - 1)
    with tarfile.open(f"{root}/a.tar.gz", "w:gz") as t:
        t.add(raw, "raw-abc123")
    os.mkdir(f"{root}/again")
    report(f"--raw={root}/a.tar.gz", f"--out={root}/again")
    with open(f"{root}/again/gpu-2026-01-02-abc123.txt") as f:
        expect("the same from an archive", f.read() == text)
    # nothing measured
    empty = os.path.join(root, "raw-none")
    write(f"{empty}/started", "2026-01-02\n")
    report(f"--raw={empty}", f"--out={root}/again")
    with open(f"{root}/again/gpu-2026-01-02-none.txt") as f:
        text = f.read()
    expect("each question says what would answer it", text.count(": not measured (") == QUESTIONS)
    expect("no chart without a peer", not os.path.exists(f"{root}/again/gpu-2026-01-02-none.svg"))


with tempfile.TemporaryDirectory() as root:
    main(root)
sys.exit(failed)
