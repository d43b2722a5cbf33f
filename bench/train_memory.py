#!/usr/bin/env python3
"""Memory of training steps: nnc beside PyTorch eager on this CPU, the same model, inputs, weights and loss.

    python3 bench/train_memory.py [--python=PROGRAM] [--build=build] [--quick] [--only=NAME,...] [--out=bench/results]

One process an engine, one after the other, three steps each. Planned: of nnc what its plan requests, to the byte; of PyTorch the most bytes
of tensors that live at once. rss: the peak of the process beyond what it had before the model, which is after the import. Writes
OUT/train-memory-DATE.txt. --python: one that has PyTorch."""
import argparse
import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import train_engines as te  # noqa: E402

# Name, model file, arguments, arguments of --quick.
CASES = [
    ("vgg16", "vgg16", {"batch": 1}, {"batch": 1, "image": 32}),
    ("vgg16", "vgg16", {"batch": 8}, {"batch": 2, "image": 32}),
    ("resnet50", "resnet50", {"batch": 1}, {"batch": 1, "image": 64}),
    ("resnet50", "resnet50", {"batch": 8}, {"batch": 2, "image": 64}),
    ("efficientnet_b0 frozen", "efficientnet_b0", {"batch": 8, "frozen": 1, "classes": 100},
     {"batch": 1, "image": 64, "frozen": 1, "classes": 100}),
    ("efficientnet_b0", "efficientnet_b0", {"batch": 8}, {"batch": 1, "image": 64}),
    ("densenet121", "densenet121", {"batch": 4}, {"batch": 1, "image": 64}),
] + [("multi_linear", "multi_linear", {"models": n, "batch": 32}, {"models": n}) for n in (1, 8, 32, 64)]


def steps(engine):
    try:
        engine.ask("burst 1")
        return engine.ask("about")
    finally:
        engine.close()


def measure(o, name, model, sets, folder):
    multi = model.startswith("multi")
    flags = [f"--threads={o.threads}", "--momentum=0" if multi else "--momentum=0.9"] + (["--loss=mse"] if multi else [])
    nnc = te.Engine("nnc", te.nnc_command(o.build, os.path.join(HERE, "..", "models", model + ".json"), sets, flags), 300)
    cell = nnc.ask("graph")
    cell.update(cell["training"])
    if multi:
        cell.update(kind=model, args={"models": 8, "batch": 1, "in": 256, "out": 512, "length": 1, **sets})
    file = os.path.join(folder, "graph.json")
    with open(file, "w") as f:
        json.dump(cell, f)
    got = {"nnc": steps(nnc)}
    what = ["models", "--form=loop"] if multi else ["torch"]
    command = [o.python, os.path.join(HERE, "train_engines.py"), *what, "--graph=" + file, "--base=eager", f"--threads={o.threads}"]
    got["torch"] = steps(te.Engine("torch eager", command, 300))
    return got


def row(name, sets, got):
    a, b = got["nnc"], got["torch"]
    mib = [x / 2**20 for x in (a["memory_bytes"], b["memory_bytes"], a["rss_bytes"], b["rss_bytes"])]
    what = name + " " + ", ".join(f"{k} {v}" for k, v in sets.items() if k in ("batch", "models"))
    return f"{what:38s}{mib[0]:10.1f}{mib[1]:10.1f}{mib[0] / mib[1]:8.2f}{mib[2]:12.1f}{mib[3]:10.1f}{mib[2] / max(mib[3], 0.1):8.2f}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--only", default="")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--out", default="")
    p.add_argument("--quick", action="store_true")
    o = p.parse_args()
    lines, versions, failed = [], {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, model, full, quick in CASES:
            if o.only and not any(n in name for n in o.only.split(",")):
                continue
            sets = quick if o.quick else full
            try:
                got = measure(o, name, model, sets, folder)
                versions = {k: e["version"] for k, e in got.items()}
                lines.append(row(name, sets, got))
            except te.Failed as e:
                failed += 1
                lines.append(f"{name}: {e}")
            print(lines[-1], flush=True)
    about = {"date": time.strftime("%Y-%m-%d"), "commit": te.commit(), "threads": o.threads, **te.machine(), **versions}
    head = ["memory of training steps, " + ", ".join(f"{k} {v}" for k, v in about.items()), __doc__.split("\n\n")[2].split("Writes")[0].replace("\n", " "),
            "", " " * 38 + "   planned: MiB               rss: MiB", " " * 38 + "       nnc   PyTorch   ratio         nnc   PyTorch   ratio"]
    text = "\n".join(head + lines) + "\n"
    print(text)
    if o.out:
        os.makedirs(o.out, exist_ok=True)
        with open(os.path.join(o.out, "train-memory-" + about["date"] + ".txt"), "w") as f:
            f.write(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
