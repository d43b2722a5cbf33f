"""bench/device/report.py -- puts the results of bench/gpu.sh together: OUT/gpu-DATE-COMMIT.txt, answers (questions.py) and tables to read;
.svg, the ratios to peers (chart.py); and .json, all of it.

    report.py --raw=FOLDER|ARCHIVE.tar.gz [--commit=ID] --out=FOLDER

LEGEND says what the tables' columns are. "of limit" is the share of what the measured ceilings allow: the longer of bytes over copy bandwidth
and FLOP over the fastest product of that kind, over the time taken. "predicted" is the same share at the time that follows from the kernels'
machine code (bench/gpu_share.h), where no library is called."""
import argparse
import glob
import json
import math
import os
import sys
import tarfile
import tempfile

import chart
import details
import questions

BASES = ["eager", "compile", "tuned"]


def load(path):
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def folder(raw, name):
    out = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(raw), name, "*.json"))):
        data = load(path) or {"failed": "the file is damaged"}
        out[os.path.basename(path)[:-5]] = data
    return out


def us(time, key="median_ms"):
    return time[key] * 1e3 if time else None


def number(v, width=9):
    if v is None:
        return "-".rjust(width)
    return (f"{v:.3g}" if 0 < abs(v) < 10 else f"{v:.1f}" if abs(v) < 1000 else f"{v:.0f}").rjust(width)


def peers_of(cell, peers):
    """{"eager": us, "eager+graph": us, ...} of queued runs, and the same of waited and copied ones."""
    out = {}
    for base in BASES:
        p = peers.get(f"{base},{cell}")
        for suffix, part in (("", "calls"), ("+graph", "graph")):
            t = (p or {}).get(part) or {}
            if "queued" in t:
                out[base + suffix] = {k: us(t.get(k)) for k in ("queued", "waited", "copied", "streamed")} | {
                    "joules": t.get("joules"), "watts": t.get("watts")}
    return out


def nmse(got, want):
    d = w = 0.0
    for a, b in zip(got, want):
        if b is None or a is None or not math.isfinite(a):
            return 1e300  # JSON has no infinity
        d += (a - b) ** 2
        w += b * b
    return d / w if w else d


def nmse_to(c, peer):
    """Of a peer's outputs (of a training its loss) against nnc's, by some elements of both."""
    if "sample" in peer and "output" in c:
        return nmse(peer["sample"], c["output"]["sample"])
    return peer.get("nmse_to_nnc")


def best(peers, kind):
    times = [p[kind] for p in peers.values() if p.get(kind)]
    return min(times) if times else None


def limit_us(c, ceilings, cell):
    memory, products = ceilings.get("ceilings,memory", {}), ceilings.get("ceilings,products", {})
    if "copy" not in memory:
        return None
    kind = next((k for k in ("bf16", "tf32", "f16") if f"precision={k}" in cell), "f32")
    peak = max(products.get(kind) or 0, memory.get("fma") or 0)
    return max(c["bytes"] / memory["copy"], c["flops"] / peak if peak else 0) * 1e6


def ratio_to(base, found, kind, time):
    """The time of a peer, the better of its two, over nnc's."""
    other = best({k: v for k, v in found.items() if k.split("+")[0] == base}, kind)
    return other / time if other and time else None


def row(cell, c, peers, cpu, ceilings, tuned, l2):
    found = peers_of(cell, peers)
    queued, waited = us(c["queued"]), us(c["waited"])
    limit = limit_us(c, ceilings, cell)
    bw, bc, bs = (best(found, k) for k in ("waited", "copied", "streamed"))
    host = cpu.get(cell, {})
    copied, streamed = us(c.get("copied")), us(c.get("streamed"))
    return {
        "id": cell, "queued_us": queued, "waited_us": waited, "copied_us": copied, "streamed_us": streamed,
        "tuned_us": us(tuned.get(cell, {}).get("queued")), "in_l2": c["bytes"] < l2,
        "GB_s": c["bytes"] / queued * 1e-3, "TFLOP_s": c["flops"] / queued * 1e-6,
        "of_limit": limit / queued if limit else None, "launches": c["launches"],
        "predicted": limit / c["predicted"]["us"] if limit and "us" in c.get("predicted", {}) else None,
        "device_bytes": c.get("device_bytes"), "joules": c.get("joules"), "watts": c.get("watts"),
        "compile_ms": c.get("compile_ms"), "first_ms": c.get("first_ms"), "peers": found,
        "ratios": {b: ratio_to(b, found, "queued", queued) for b in BASES}, "ratio_waited": bw / waited if bw else None,
        "ratio_copied": bc / copied if bc and copied else None, "ratio_streamed": bs / streamed if bs and streamed else None,
        "cpu_us": us(host.get("waited")), "cpu_ratio": us(host.get("waited")) / waited if "waited" in host else None,
        "peer_bytes": {b: p.get("device_bytes") for b in BASES if (p := peers.get(f"{b},{cell}"))},
        "nmse_to_peer": {b: nmse_to(c, p) for b in BASES if (p := peers.get(f"{b},{cell}"))},
    }


def load_line(peers, cpus):
    """How busy the machine was where its CPUs matter most: while PyTorch was timed as calls from Python."""
    loads = sorted(p["load"] for p in peers.values() if "load" in p)
    return f"; load average of {cpus} CPUs while they were timed: {loads[0]:.1f} to {loads[-1]:.1f}, median {loads[len(loads) // 2]:.1f}" if loads else ""


def head(out, machine, about, date, commit, peers):
    gpu = machine.get("gpu", "no GPU")
    out.append(f"nnc {machine.get('nnc', '')}, commit {commit}, {date}")
    out.append(f"{gpu} (sm_{machine.get('sm')}, {machine.get('sms')} SMs, {(machine.get('memory_bytes') or 0) / 2**30:.0f} GiB), "
               f"driver {machine.get('driver', 'unknown')}, SM clock {machine.get('sm_mhz')} of {machine.get('sm_mhz_max')} MHz, "
               f"memory {machine.get('memory_mhz')} MHz, power limit {machine.get('power_limit_watts')} W")
    if machine.get("limits"):
        out.append(f"before the first run: {machine['limits']}")
    out.append(f"{machine.get('cpu')}, {machine.get('cpus')} CPUs; " + ", ".join(f"{k} {v}" for k, v in machine.get("libraries", {}).items()))
    if about:
        out.append(f"peers: PyTorch {about.get('torch')} (CUDA {about.get('cuda')}, cuDNN {about.get('cudnn')}), Triton {about.get('triton')}"
                   + load_line(peers, machine.get("cpus")))
    else:
        out.append("peers: none (no PyTorch)")
    out += ["", "How to read this", *LEGEND]


LEGEND = """\
  A cell is a model with its arguments, "GROUP,name=value,...". precision=f32: products in strict f32, tf32: with operands rounded to tf32, both as in
  PyTorch; f16, bf16: nnc computes products and what lies between them in 16 bits, PyTorch the whole model. PyTorch's images are channels-last, but in f32.
  A ratio is a peer's time, the better of calls and CUDA graph, over nnc's: above 1 nnc is faster. Means of ratios are geometric.
  Columns of the tables, microseconds of a run where nothing else is said:
    queued         runs given to the device one after the other, waited for together: what the device takes
    waited         the host waits for each run
    copied         inputs copied up from pageable memory and outputs down, each run
    streamed       the same from pinned memory, beside the computing of other runs
    --tune         queued, with measured library algorithms
    of limit       queued as a share (1 = all) of what the ceilings below allow: bytes over the copy's bandwidth, or FLOP over the fastest product's
    predicted      the same share as predicted from the kernels' machine code, where no library is called
    eager, torch.compile, max-autotune    PyTorch, queued, as calls from Python; +graph: replayed as a CUDA graph
    .../nnc        ratios; waited/nnc, streamed/nnc: of the best peer in that column
    CPU, CPU/GPU   waited, on this machine's CPU; over the GPU's
  *: the tensors of a run fit in the L2 cache, and the share of the limit may pass 1. Columns that are empty in a group are left out.""".split("\n")


def checks(out, check):
    models = {k: v for k, v in check.items() if not k.startswith("graphs,")}
    graphs = {k: v for k, v in check.items() if k.startswith("graphs,")}
    ops, unsupported = {}, []
    for g in graphs.values():
        for op, n in (g.get("ops") or {}).items():
            ops[op] = ops.get(op, 0) + n
        unsupported += g.get("unsupported") or []
    right = sum("failed" not in v for v in models.values())
    out += ["", f"against float64: {right} of {len(models)} models agree; {sum(g.get('graphs', 0) for g in graphs.values())} generated "
            f"graphs over {len(ops)} ops in {len(graphs)} sets, {sum('failed' in g for g in graphs.values())} sets with a failure"]
    for k, v in check.items():
        if "failed" in v:
            out.append(f"  FAILED {k}: {v['failed'][:300]}")
    for u in sorted(set(unsupported)):
        out.append(f"  not on a GPU: {u}")


def sanitizer(out, runs):
    if "sanitizer" in runs:
        out.append("compute-sanitizer: not on this machine")
    elif runs:
        out.append(f"compute-sanitizer: {sum('clean' in v for v in runs.values())} of {len(runs)} runs are clean")
    out += [f"  FAILED {k}: {v['failed']}" for k, v in runs.items() if "failed" in v]


def ceiling_lines(out, ceilings):
    m, p = ceilings.get("ceilings,memory", {}), ceilings.get("ceilings,products", {})
    if "copy" in m:
        out.append("")
        out.append("ceilings: " + ", ".join(f"{k} {m[k] * 1e-9:.0f} GB/s" for k in ("copy", "read", "write", "memcpy")) +
                   f"; multiply-adds {m['fma'] * 1e-12:.1f} TFLOP/s")
    if "f32" in p:
        out.append("products: " + ", ".join(f"{k} {p[k] * 1e-12:.1f} TFLOP/s ({p[k + '_dim']:.0f})" for k in ("f32", "tf32", "f16", "bf16")))
    for k, v in ceilings.items():
        if "failed" in v:
            out.append(f"  FAILED {k}: {v['failed']}")


def columns_of(rows):
    """(title, its values), without those that are empty."""
    names = sorted({b for r in rows for b in r["peers"]}, key=lambda b: (BASES.index(b.split("+")[0]), b))
    out = [(title, [r[key] for r in rows]) for title, key in (
        ("queued", "queued_us"), ("waited", "waited_us"), ("copied", "copied_us"), ("streamed", "streamed_us"), ("--tune", "tuned_us"),
        ("GB/s", "GB_s"), ("TFLOP/s", "TFLOP_s"), ("of limit", "of_limit"), ("predicted", "predicted"))]
    out += [(questions.peer_name(b), [r["peers"].get(b, {}).get("queued") for r in rows]) for b in names]
    out += [(f"{questions.PEERS[b]}/nnc", [r["ratios"][b] for r in rows]) for b in BASES]
    out += [("waited/nnc", [r["ratio_waited"] for r in rows]), ("streamed/nnc", [r["ratio_streamed"] for r in rows]),
            ("CPU", [r["cpu_us"] for r in rows]), ("CPU/GPU", [r["cpu_ratio"] for r in rows])]
    return [c for c in out if any(v is not None for v in c[1])]


def power_line(r):
    """Energy and memory of a cell, of nnc and of the peers that have them."""
    eager = r["peer_bytes"].get("eager")
    parts = [f"{(r['joules'] or 0) * 1e3:.3g} mJ a run at {r['watts']:.0f} W, {(r['device_bytes'] or 0) / 2**20:.0f} MiB of device memory"]
    parts += [f"{questions.peer_name(b)} {p['joules'] * 1e3:.3g} mJ" for b, p in r["peers"].items() if p.get("joules")]
    return f"  {r['id']}: " + "; ".join(parts + ([f"eager {eager / 2**20:.0f} MiB"] if eager else []))


def table(out, group, rows, failures):
    width = max([len(r["id"]) + 1 for r in rows] + [len(group)])
    columns = columns_of(rows)
    out += ["", group.ljust(width) + "".join(t.rjust(max(9, len(t)) + 1) for t, _ in columns)]
    for i, r in enumerate(rows):
        out.append((r["id"] + "*" * r["in_l2"]).ljust(width) + "".join(number(v[i], max(9, len(t)) + 1) for t, v in columns))
    out += [power_line(r) for r in rows if r["watts"]]
    for name, why in failures:
        out.append(f"  FAILED {name}: {why[:200]}")


def tables(raw, parts, out):
    """Appends the groups' tables; returns their rows in the order of the table of cells."""
    nnc, peers, cpu, tuned = (parts[k] for k in ("nnc", "peers", "cpu", "tuned"))
    l2 = parts["machine"].get("l2_bytes") or 0
    groups, rows = {}, []
    place = {c["id"]: i for i, c in enumerate(load(os.path.join(raw, "cells.json")) or [])}
    for cell in nnc:
        groups.setdefault(cell.split(",")[0], []).append(cell)
    for group, cells in sorted(groups.items(), key=lambda g: min(place.get(c, 0) for c in g[1])):
        cells.sort(key=lambda c: place.get(c, 0))
        good = [row(c, nnc[c], peers, cpu, parts["ceilings"], tuned, l2) for c in cells if "failed" not in nnc[c]]
        bad = [(c, nnc[c]["failed"]) for c in cells if "failed" in nnc[c]]
        bad += [(k, v["failed"]) for k, v in peers.items() if "failed" in v and v.get("cell", k.partition(",")[2]) in cells]
        bad += [(f"{k} {c}", r[c]["failed"]) for k, r in (("cpu", cpu), ("tuned", tuned)) for c in cells if "failed" in r.get(c, {})]
        table(out, group, good, bad)
        rows += good
    for c, v in cpu.items():
        if c not in nnc and "waited" in v:
            out.append(f"CPU alone: {c}: {number(us(v['waited']), 1)} us")
    compared = [e for r in rows for e in r["nmse_to_peer"].values() if e is not None]
    if compared:
        out += ["", f"outputs of {len(compared)} runs of peers against nnc's: largest nmse {max(compared):.2g}"]
    for path in sorted(glob.glob(os.path.join(glob.escape(raw), "*.failed"))):
        out.append(f"FAILED: {(load(path) or {}).get('id')}: {(load(path) or {}).get('failed')}")
    return rows


def put(path, text):
    """As a whole: the one before stays until then."""
    new = f"{path}.{os.getpid()}.new"
    with open(new, "w") as f:
        f.write(text)
    os.replace(new, path)


def make(raw, commit, folder_out):
    parts = {k: folder(raw, k) for k in ("check", "ceilings", "nnc", "tuned", "cpu", "peers", "engines", "predict", "sanitize")}
    parts["raw"] = raw
    machine = parts["machine"] = load(os.path.join(raw, "machine.json")) or {}
    about = load(os.path.join(raw, "peers", "about"))
    with open(os.path.join(raw, "started")) as f:
        date = f.read().strip()
    out, below = [], []
    rows = tables(raw, parts, below)
    head(out, machine, about, date, commit, parts["peers"])
    checks(out, parts["check"])
    sanitizer(out, parts["sanitize"])
    ceiling_lines(out, parts["ceilings"])
    out += [""] + questions.answers(rows, parts) + ["", "Ratios by group:"] + questions.by_group(rows)
    found = details.engine_lines(parts)
    out += (["", "Strict f32 convolutions, time by cuDNN's configuration:"] + found if found else []) + details.profile_lines(parts) + below
    seconds = os.path.join(raw, "seconds")
    if os.path.exists(seconds):
        with open(seconds) as f:
            out += ["", "Seconds of parts: " + "; ".join(line.strip() for line in f)]
    static = os.path.join(raw, "static.txt")
    if os.path.exists(static):
        with open(static) as f:
            out += ["", "by machine code (bench_gpu):", f.read().rstrip()]
    name = os.path.join(folder_out, f"gpu-{date}-{commit}")
    put(name + ".txt", "\n".join(out) + "\n")
    svg = chart.chart(rows, f"nnc {commit} and PyTorch {(about or {}).get('torch', '')} on {machine.get('gpu', 'no GPU')}, {date}")
    if svg:
        put(name + ".svg", svg)
    for c in (*parts["nnc"].values(), *parts["tuned"].values(), *parts["cpu"].values()):
        c.pop("graph", None)
    del parts["raw"]
    put(name + ".json", json.dumps({"date": date, "commit": commit, "peers_of": about, "rows": rows, **parts}, indent=1))
    print(f"{name}.txt, .json{', .svg' if svg else ''}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--raw", required=True, help="the folder raw-COMMIT, or an archive of it")
    p.add_argument("--commit")
    p.add_argument("--out", required=True)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as unpacked:
        raw = args.raw.rstrip("/")
        if os.path.isfile(raw):
            with tarfile.open(raw) as t:
                # the filter rejects members outside the folder; Python has it since 3.11.4
                t.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            raw = os.path.join(unpacked, os.listdir(unpacked)[0])
        make(raw, args.commit or os.path.basename(raw).removeprefix("raw-").removesuffix("-tiny"), args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
