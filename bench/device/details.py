"""bench/device/details.py -- what report.py says of parts that are no cells: cuDNN's configurations for strict f32 convolutions, epilogues
that it compiles, generated graphs, predictions of nnc partition, and the longest commands of a run beside PyTorch's longest kernels. Each
function takes the report's parts and returns a line, or "" where there is nothing to say."""
import json
import os

CORE_COUNT = 10  # commands and kernels that are listed


def us(v):
    return f"{v:.3g} us" if v < 1000 else f"{v * 1e-3:.3g} ms" if v < 1e6 else f"{v * 1e-6:.3g} s"


# ---- strict f32 convolutions ------------------------------------------------------------------------------------------------

def engine_rows(parts):
    """(convolution, FLOP, configuration that nnc takes, the heuristics' first, the fastest, how many)"""
    out = []
    for r in parts["engines"].values():
        ran = [c for c in r.get("configs", []) if c["ns"] > 0]
        taken = next((c for c in ran if c["taken"]), None)
        first = next((c for c in ran if c["listed"]), None)
        if taken:
            out.append((r["conv"], r["flops"], taken, first, min(ran, key=lambda c: c["ns"]), len(ran)))
    return out


def engines(parts):
    rows = [r for r in engine_rows(parts) if r[3]]
    if not rows:
        return ""
    taken, first, best = (sum(r[k]["ns"] for r in rows) * 1e-3 for k in (2, 3, 4))
    n = f"{len(rows)} convolutions take" if len(rows) > 1 else "1 convolution takes"
    return (f"{n} {us(taken)} as nnc chooses without measuring, {us(first)} with the heuristics' first "
            f"({first / taken:.2f} times as long), {us(best)} with the fastest of all ({best / taken:.2f})")


def engine_lines(parts):
    def named(c, flops):
        if not c:
            return "none"
        how = "Winograd" if c["numerical"] & 0x1e0 else "FFT" if c["numerical"] & 8 else ""
        return f"engine {c['engine']}{', ' + how if how else ''} {us(c['ns'] * 1e-3)} ({flops / c['ns'] * 1e-3:.3g} TFLOP/s, {c['workspace']} B)"
    return [f"  {conv}: taken {named(taken, flops)}; heuristics' first {named(first, flops)}; fastest of {n} {named(best, flops)}"
            for conv, flops, taken, first, best, n in engine_rows(parts)]


# ---- against float64 ----------------------------------------------------------------------------------------------------------

def graphs(parts):
    of = [v for k, v in parts["check"].items() if k.startswith("graphs,")]
    if not of:
        return ""
    ops = {op for g in of for op in g.get("ops") or {}}
    bad = sum("failed" in g for g in of)
    worst = max((g["worst_nmse"] for g in of if "worst_nmse" in g), default=0)
    return f"{sum(g.get('graphs', 0) for g in of)} graphs over {len(ops)} ops agree, largest nmse {worst:.2g}" + (
        f"; {bad} of {len(of)} sets have a failure" if bad else "")


# ---- predictions --------------------------------------------------------------------------------------------------------------

def predictions(parts):
    """Of each model: measured, and what was predicted by simulating the plan."""
    out = []
    for name, r in parts["predict"].items():
        for s in (r.get("report") or {}).get("strategies", []):
            m = s.get("measured")
            if not m:
                continue
            t = m["iteration_ms"] * 1e3
            out.append(f"{name} {us(t)} measured, predicted {us(t * (1 + m['predicted_error']))} ({m['predicted_error']:+.0%})")
    return "; ".join(out)


# ---- the longest commands -------------------------------------------------------------------------------------------------------

def commands_of(path):
    """{name: [microseconds, times]} of a trace of one run, without copies to and from the host; None: it cannot be read."""
    try:
        with open(path) as f:
            events = json.load(f)["traceEvents"]
    except (OSError, ValueError, KeyError):
        return None
    out = {}
    for e in events:
        if e.get("ph") == "X":
            at = out.setdefault(e["name"], [0, 0])
            at[0] += e["dur"]
            at[1] += 1
    return out


def profile_rows(parts):
    """(cell, nnc's commands, PyTorch's profile or None)"""
    folder = os.path.join(parts["raw"], "traces")
    out = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        cell = name.removesuffix(".trace")
        commands = commands_of(os.path.join(folder, name)) if name.endswith(".trace") else None
        if commands:
            peer = parts["peers"].get(f"profile,{cell}")
            out.append((cell, commands, peer if peer and "longest" in peer else None))
    return out


def profiles(parts):
    out = []
    for cell, commands, peer in profile_rows(parts):
        total, n = sum(c[0] for c in commands.values()), sum(c[1] for c in commands.values())
        name, (longest, _) = max(commands.items(), key=lambda c: c[1][0])
        theirs = f", PyTorch's {us(peer['sum_us'])} in {peer['launches']} kernels" if peer else ""
        out.append(f"{cell} {us(total)} in {n} commands, of which {name[:60]} {us(longest)}{theirs}")
    return "; ".join(out) + (" (lists below)" if out else "")


def profile_lines(parts):
    out = []
    for cell, commands, peer in profile_rows(parts):
        ours = [f"{us(t):>9} {n:>4} x {name[:64]}" for name, (t, n) in sorted(commands.items(), key=lambda c: -c[1][0])[:CORE_COUNT]]
        theirs = [f"{us(k['us']):>9} {k['launches']:>4} x {k['name'][:90]}" for k in peer["longest"]] if peer else []
        out += ["", f"{cell}: time of one run by command of nnc | by kernel of PyTorch eager (its profiler)"]
        for i in range(max(len(ours), len(theirs))):
            left, right = (x[i] if i < len(x) else "" for x in (ours, theirs))
            out.append(f"  {left:<82} | {right}".rstrip())
    return out


# (question, answer, what would answer it)
QUESTIONS = (
    ("Strict f32 convolutions, by cuDNN's configuration", engines, "the part engines"),
    ("Generated graphs", graphs, "the part check, after its models"),
    ("Time predicted by nnc partition, beside measured", predictions, "the part predict"),
    ("Time by command", profiles, "cells with @profile"),
)
