#!/usr/bin/env python3
"""n independent small models, trained: the forms in which nnc and PyTorch can do it, side by side, part by part.

    python3 bench/multi_train.py [--python=PROGRAM] [--build=build] [--quick] [--models=1,8,32,64] [--only=linear,conv1d,gconv1d] [--batch=1]
                                 [--out=bench/results] [--budget=SECONDS]

Forms of nnc: turns (n sessions, a model's step after the other's), streams (one graph, n command streams), apart (one graph, no contractions
joined), joined (contractions joined wherever that is possible), fused (what nnc chooses). Of PyTorch eager and compiled: turns (each model
with its own backward pass and optimizer), loop (a loop over the models, then one backward pass and one optimizer), fused (one batched
product, or one grouped convolution). multi_gconv1d is the grouped convolution for nnc, too. All compute the same loss: mean squared error.

Times are ms of a step of all models, by bursts in turn, one process a form; parts are sums over the commands of steps of their own. nnc has
no zero-grad: a gradient is written, not added to. Memory: as nnc plans it; of PyTorch the most bytes of tensors that live at once."""
import argparse
import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import train_engines as te  # noqa: E402

NNC_FORMS = ["turns", "streams", "apart", "joined", "fused"]
TORCH_FORMS = [("eager", "turns"), ("eager", "loop"), ("eager", "fused"), ("compile", "loop"), ("compile", "fused")]
PARTS = ["data", "zero_grad", "forward", "loss", "backward", "optimizer"]


def start(out, name, command, limit):
    try:
        return te.Engine(name, command, limit)
    except te.Failed as e:
        out["failed"][name] = str(e)
        return None


def nnc_engines(o, kind, sets, out):
    model = os.path.join(HERE, "..", "models", kind + ".json")
    engines = []
    for form in NNC_FORMS if kind != "multi_gconv1d" else ["fused"]:
        more = ["--loss=mse", f"--threads={o.threads}", "--form=" + ("apart" if form == "streams" else form)]
        if form == "streams":
            more.append(f"--streams={min(sets['models'], 64)}")
        engines.append(start(out, "nnc " + form, te.nnc_command(o.build, model, sets, more), o.limit))
    return [e for e in engines if e]


def measure(o, kind, n, folder):
    sets = {"models": n, "batch": o.batch}
    out = {"kind": kind, "models": n, "batch": o.batch, "failed": {}, "forms": {}}
    engines = nnc_engines(o, kind, sets, out)
    if not engines:
        return out
    cell = engines[-1].ask("graph")
    cell = dict(cell, **cell["training"], kind=kind, args={"in": 256, "out": 512, "length": 1, **sets})
    file = os.path.join(folder, f"{kind}-{n}.json")
    with open(file, "w") as f:
        json.dump(cell, f)
    for base, form in TORCH_FORMS:
        if base in o.without.split(",") or (kind == "multi_gconv1d" and form != "fused"):
            continue
        command = [o.python, os.path.join(HERE, "train_engines.py"), "models", "--graph=" + file, "--form=" + form, "--base=" + base,
                   f"--threads={o.threads}"]
        engines.append(start(out, f"{base} {form}", command, o.limit))
    engines = [e for e in engines if e]
    try:
        for e in engines:
            e.ask("burst 20")
        te.alternate(engines, o.rounds, o.burst)
        best = min((e for e in engines if e.name.startswith("nnc")), key=lambda e: sorted(e.bursts)[len(e.bursts) // 2])
        for e in engines:
            s = sorted(e.ms)
            out["forms"][e.name] = {"median_ms": s[len(s) // 2], "least_ms": s[0], "steps": len(s), "over_best_nnc": te.ratio(e, best),
                                    **e.ask("parts 15"), **e.ask("about")}
    finally:
        for e in engines:
            e.close()
    return out


def table(r):
    lines = [f"{r['kind']}, {r['models']} models, batch {r['batch']}",
             " " * 16 + "".join(h.rjust(10) for h in ["step ms", "least", *[p.replace("_", "-") for p in PARTS], "MiB", "loss"]) +
             "  over nnc's fastest"]
    for name, f in r["forms"].items():
        cells = [f"{f['median_ms']:.3f}", f"{f['least_ms']:.3f}"]
        cells += [f"{f[p + '_ms']:.3f}" if p + "_ms" in f else "-" for p in PARTS]
        cells += [f"{f['memory_bytes'] / 2**20:.1f}", f"{f['loss']:.6f}"]
        q = f["over_best_nnc"]
        lines.append("  " + name.ljust(14) + "".join(c.rjust(10) for c in cells) + f"  {q['ratio']:.2f} ({q['low']:.2f}-{q['high']:.2f})")
    return lines + [f"  {k}: {v}" for k, v in r["failed"].items()]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--models", default="1,8,32,64")
    p.add_argument("--only", default="linear,conv1d,gconv1d")
    p.add_argument("--without", default="", help="eager, compile")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--burst", type=float, default=100, help="ms")
    p.add_argument("--limit", type=float, default=180, help="seconds until an engine is ready")
    p.add_argument("--budget", type=float, default=900)
    p.add_argument("--out", default="")
    p.add_argument("--quick", action="store_true", help="1 and 8 models, short bursts")
    o = p.parse_args()
    if o.quick:
        o.models, o.rounds, o.burst = "1,8", 3, 20
    started, results = time.time(), []
    with tempfile.TemporaryDirectory() as folder:
        for kind in o.only.split(","):
            for n in o.models.split(","):
                if time.time() - started > o.budget:
                    continue
                results.append(measure(o, "multi_" + kind, int(n), folder))
                print("\n".join(table(results[-1])) + "\n", flush=True)
    about = {"date": time.strftime("%Y-%m-%d", time.gmtime(started)), "commit": te.commit(), "threads": o.threads, **te.machine(),
             "seconds": round(time.time() - started)}
    versions = sorted({f["version"] for r in results for f in r["forms"].values()})
    head = "n models, trained: " + ", ".join(f"{k} {v}" for k, v in about.items()) + "; versions " + ", ".join(versions)
    print(head)
    if o.out:
        os.makedirs(o.out, exist_ok=True)
        name = os.path.join(o.out, "multi-train-" + about["date"])
        with open(name + ".txt", "w") as f:
            f.write(head + "\n" + "\n\n".join(__doc__.split("\n\n")[2:]) + "\n\n" + "\n\n".join("\n".join(table(r)) for r in results) + "\n")
        with open(name + ".json", "w") as f:
            json.dump({**about, "results": results}, f, indent=1)
    return 1 if any(r["failed"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
