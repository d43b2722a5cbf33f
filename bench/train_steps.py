#!/usr/bin/env python3
"""Training steps of nnc beside PyTorch's, eager and compiled, on this CPU: the same model, inputs, weights and loss.

    python3 bench/train_steps.py [--python=PROGRAM] [--build=build] [--quick] [--only=NAME,...] [--out=bench/results] [--budget=SECONDS]

One process an engine; their bursts of steps alternate, so that a change of the machine's speed meets all of them. Ratios are medians over
rounds, with the smallest and the largest. Memory: as nnc plans it (weights, states, activations), of PyTorch the most bytes of tensors
that live at once; rss is the peak of the process beyond what it had before the model. The last lines are a pair of models trained one after
the other with all threads, and side by side with half of them each. The losses of the first step are equal up to rounding where a model
has no dropout. Writes OUT/train-steps-DATE.json and .txt. --quick: small sizes.
--python: one that has PyTorch. About 15 minutes, most of it torch.compile; --budget: no case is begun after so many seconds."""
import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import train_engines as te  # noqa: E402

# Name: model file, arguments, arguments of --quick, more flags.
CASES = {
    "vgg16": ("vgg16", {"batch": 2}, {"batch": 1, "image": 32}, []),
    "resnet50": ("resnet50", {"batch": 4}, {"batch": 1, "image": 64}, []),
    "efficientnet_b0 frozen": ("efficientnet_b0", {"batch": 8, "frozen": 1, "classes": 100},
                               {"batch": 1, "image": 64, "frozen": 1, "classes": 100}, []),
    "bert": ("bert_base", {"batch": 2}, {"batch": 1, "tokens": 16}, []),
    "multi_linear 1": ("multi_linear", {"models": 1, "batch": 32}, {"models": 1}, ["--loss=mse"]),
    "multi_linear 8": ("multi_linear", {"models": 8, "batch": 32}, {"models": 8}, ["--loss=mse"]),
    "multi_linear 32": ("multi_linear", {"models": 32, "batch": 32}, {"models": 32}, ["--loss=mse"]),
    "multi_linear 64": ("multi_linear", {"models": 64, "batch": 32}, {"models": 64}, ["--loss=mse"]),
    "resnet101 32x32": ("resnet101", {"batch": 200, "image": 32}, {"batch": 2, "image": 32}, []),
    "densenet121 32x32": ("densenet121", {"batch": 200, "image": 32}, {"batch": 2, "image": 32}, []),
}
PAIR = ("resnet101 32x32", "densenet121 32x32")


def graph_of(o, name, folder):
    """The model as PyTorch reads it; nnc's engine stays for the bursts."""
    model, sets, quick, more = CASES[name]
    flags = more + [f"--threads={o.threads}", "--momentum=0.9" if "multi" not in name else "--momentum=0"]
    nnc = te.Engine("nnc", te.nnc_command(o.build, os.path.join(HERE, "..", "models", model + ".json"), quick if o.quick else sets, flags), 300)
    file = os.path.join(folder, name.replace(" ", "_") + ".json")
    cell = nnc.ask("graph")
    cell.update(cell["training"])
    if model.startswith("multi"):
        full = {"models": 8, "batch": 1, "in": 256, "out": 512, "length": 1}
        cell.update(kind=model, args={**full, **(quick if o.quick else sets)})
    with open(file, "w") as f:
        json.dump(cell, f)
    return nnc, file


def torch_command(o, name, file, base, threads):
    what = ["models", "--form=loop"] if name.startswith("multi") else ["torch"]
    return [o.python, os.path.join(HERE, "train_engines.py"), *what, "--graph=" + file, "--base=" + base, f"--threads={threads}"]


def start(o, name, file, out):
    engines = []
    for base in ("eager", "compile"):
        if base in o.without:
            continue
        try:
            engines.append(te.Engine("torch " + base, torch_command(o, name, file, base, o.threads), o.limit))
        except te.Failed as e:
            out["failed"]["torch " + base] = str(e)
    return engines


def measure(o, name, folder):
    out = {"case": name, "failed": {}, "engines": {}, "ratios": {}}
    nnc, file = graph_of(o, name, folder)
    engines = [nnc] + start(o, name, file, out)
    try:
        for e in engines:
            e.ask("burst 1")
        te.alternate(engines, o.rounds, o.burst)
        for e in engines:
            s = sorted(e.ms)
            out["engines"][e.name] = {"median_ms": s[len(s) // 2], "least_ms": s[0], "steps": len(s), "start_s": e.start_s,
                                      **e.ask("parts 5"), **e.ask("about")}
        out["ratios"] = {e.name: te.ratio(e, nnc) for e in engines[1:]}
        best = min(out["engines"][e.name]["memory_bytes"] for e in engines[1:]) if engines[1:] else None
        out["memory_ratio"] = out["engines"]["nnc"]["memory_bytes"] / best if best else None
    finally:
        for e in engines:
            e.close()
    return out


# ---- two models: one after the other, and side by side ----------------------------------------------------------------

def both(engines, ms):
    """Steps of both at once: each's median."""
    threads = [threading.Thread(target=e.burst, args=(ms,)) for e in engines]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def pair(o, results, folder):
    """Time of a step of both: with all threads one after the other (from the cases above), and side by side."""
    out = {}
    for engine in ("nnc", "torch eager"):
        alone = [r["engines"].get(engine, {}).get("median_ms") for r in results if r["case"] in PAIR]
        if len(alone) != 2 or None in alone:
            continue
        engines = []
        try:
            for name in PAIR:
                model, sets, quick, more = CASES[name]
                half = max(1, o.threads // 2)
                if engine == "nnc":
                    flags = more + [f"--threads={half}", "--momentum=0.9"]
                    command = te.nnc_command(o.build, os.path.join(HERE, "..", "models", model + ".json"), quick if o.quick else sets, flags)
                else:
                    command = torch_command(o, name, os.path.join(folder, name.replace(" ", "_") + ".json"), "eager", half)
                engines.append(te.Engine(engine, command, o.limit))
            for _ in range(3):
                both(engines, max(o.burst, 2 * max(alone)))
            each = [sorted(e.bursts)[1] for e in engines]
            # while the slower one makes a step the other makes several: time until both have made one, at their common speed
            out[engine] = {"one_after_another_ms": sum(alone), "side_by_side_ms": max(each), "each_ms": each}
        except te.Failed as e:
            out[engine] = {"failed": str(e)}
        finally:
            for e in engines:
                e.close()
    return out


# ---- the table -----------------------------------------------------------------------------------------------------------

def mib(v):
    return f"{v / 2**20:.1f}"


def table(r):
    lines = [f"{r['case']}: nnc against the faster of PyTorch {r['best']:.2f}x" if r.get("best") else r["case"]]
    head = ["step ms", "least", "forward", "loss", "backward", "optimizer", "zero", "data", "MiB", "rss MiB", "loss value"]
    lines.append(" " * 16 + "".join(h.rjust(11) for h in head) + "  time over nnc's")
    for name, e in r["engines"].items():
        cells = [f"{e['median_ms']:.3f}", f"{e['least_ms']:.3f}"]
        cells += [f"{e[k]:.3f}" if k in e else "-" for k in
                  ("forward_ms", "loss_ms", "backward_ms", "optimizer_ms", "zero_grad_ms", "data_ms")]
        cells += [mib(e["memory_bytes"]), mib(e["rss_bytes"]), f"{e['loss']:.6f}"]
        q = r["ratios"].get(name)
        over = f"  {q['ratio']:.2f} ({q['low']:.2f}-{q['high']:.2f})" if q else ""
        lines.append("  " + name.ljust(14) + "".join(c.rjust(11) for c in cells) + over)
    lines += [f"  {k}: {v}" for k, v in r["failed"].items()]
    return lines


def report(o, results, pairs, started):
    about = {"date": time.strftime("%Y-%m-%d", time.gmtime(started)), "commit": te.commit(), "python": platform.python_version(),
             "threads": o.threads, **te.machine(), "seconds": round(time.time() - started)}
    versions = {k: e["version"] for r in results for k, e in r["engines"].items()}
    lines = ["training steps, " + ", ".join(f"{k} {v}" for k, v in {**about, **versions}.items()), __doc__.split("\n\n")[2].replace("\n", " "), ""]
    for r in results:
        lines += table(r) + [""]
    for engine, p in pairs.items():
        if "failed" in p:
            lines.append(f"{' and '.join(PAIR)}, {engine}: {p['failed']}")
        else:
            lines.append(f"{' and '.join(PAIR)}, {engine}: one after the other {p['one_after_another_ms']:.1f} ms, side by side "
                         f"{p['side_by_side_ms']:.1f} ms (each {p['each_ms'][0]:.1f} and {p['each_ms'][1]:.1f})")
    text = "\n".join(lines) + "\n"
    print(text)
    if o.out:
        os.makedirs(o.out, exist_ok=True)
        name = os.path.join(o.out, "train-steps-" + about["date"])
        with open(name + ".txt", "w") as f:
            f.write(text)
        with open(name + ".json", "w") as f:
            json.dump({**about, "versions": versions, "cases": results, "pair": pairs}, f, indent=1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--only", default="")
    p.add_argument("--without", default="", help="eager, compile")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=0)
    p.add_argument("--burst", type=float, default=0, help="ms")
    p.add_argument("--limit", type=float, default=240, help="seconds until an engine is ready")
    p.add_argument("--budget", type=float, default=900)
    p.add_argument("--out", default="")
    p.add_argument("--quick", action="store_true")
    o = p.parse_args()
    o.rounds = o.rounds or (3 if o.quick else 7)
    o.burst = o.burst or (50 if o.quick else 400)
    started, results = time.time(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            if (o.only and not any(n in name for n in o.only.split(","))) or time.time() - started > o.budget:
                continue
            try:
                r = measure(o, name, folder)
            except te.Failed as e:
                r = {"case": name, "failed": {"nnc": str(e)}, "engines": {}, "ratios": {}}
            ratios = [q["ratio"] for q in r["ratios"].values()]
            r["best"] = min(ratios) if ratios else None
            results.append(r)
            print("\n".join(table(r)), flush=True)
        pairs = pair(o, results, folder) if time.time() - started < o.budget else {}
    report(o, results, pairs, started)
    return 1 if any(r["failed"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
