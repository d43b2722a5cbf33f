"""bench/device/questions.py -- what a run of bench/gpu.sh was made to answer, as lines: against whom nnc wins and loses, what fusion, copies,
orders of layers, precisions and measured algorithms change, and power. report.py puts them above its tables. A question without cells that
answer it says which would.

Ratios are a peer's time over nnc's: above 1, nnc is faster."""
import math

import details

PEERS = {"eager": "eager", "compile": "torch.compile", "tuned": "max-autotune"}
LONG = 160  # characters of a line
MODELS = ("vgg16", "efficientnet", "mlp", "mlp_block", "resnet", "densenet", "mobilenet", "vit", "bert", "train_")


def value(cell, name, otherwise=None):
    """The value of NAME=value in a cell's id."""
    for part in cell.split(",")[1:]:
        key, _, v = part.partition("=")
        if key == name:
            return v
    return otherwise


def group(row):
    return row["id"].split(",")[0]


def rest(row):
    return row["id"].partition(",")[2] or row["id"]


def without(cell, *names):
    return ",".join(p for p in cell.split(",") if p.partition("=")[0] not in names)


def mean(ratios):
    """Geometric; None of nothing."""
    ratios = [r for r in ratios if r]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def us(v):
    return f"{v:.3g} us" if v < 1000 else f"{v * 1e-3:.3g} ms" if v < 1e6 else f"{v * 1e-6:.3g} s"


def joules(v):
    return f"{v * 1e3:.3g} mJ" if v < 1 else f"{v:.3g} J"


def short(parts, most=12):
    """Joined; of many the first and a count."""
    parts = list(parts)
    more = f"; and {len(parts) - most} more" if len(parts) > most else ""
    return "; ".join(parts[:most]) + more


def best_peer(row):
    """(name, ratio) of the fastest peer of a cell, or None."""
    times = {k: p["queued"] for k, p in row["peers"].items() if p.get("queued")}
    if not times:
        return None
    name = min(times, key=times.get)
    return name, times[name] / row["queued_us"]


def cells(n):
    return f"{n} cell{'' if n == 1 else 's'}"


def means(rows):
    out = []
    for base, name in PEERS.items():
        of = [r["ratios"][base] for r in rows if r["ratios"].get(base)]
        if of:
            out.append(f"{name} {mean(of):.2f} ({cells(len(of))})")
    found = [b[1] for b in map(best_peer, rows) if b]
    if len(out) > 1:
        out.append(f"the fastest of them in each cell {mean(found):.2f}")
    return ", ".join(out)


def peer_name(key):
    """Of "tuned+graph" "max-autotune+graph"."""
    base, plus, graph = key.partition("+")
    return PEERS[base] + plus + graph


def against_peers(rows):
    return means(rows)


def lost(rows):
    found = sorted(((b[1], b[0], r) for r in rows if (b := best_peer(r))), key=lambda f: f[0])
    if not found:
        return ""
    behind = [f for f in found if f[0] < 1]
    if not behind:
        return f"none of {len(found)}; the nearest {found[0][2]['id']} {found[0][0]:.2f}"
    return f"{len(behind)} of {len(found)}: " + short(
        (f"{r['id']} {ratio:.2f} ({peer_name(name)}{', with --tune %.2f' % (ratio * r['queued_us'] / r['tuned_us']) if r['tuned_us'] else ''})"
         for ratio, name, r in behind), 20)


def of_models(rows):
    out = []
    for r in rows:
        if r["ratios"].get("tuned") and group(r).startswith(MODELS):
            tuned = f", with --tune {r['ratios']['tuned'] * r['queued_us'] / r['tuned_us']:.2f}" if r["tuned_us"] else ""
            out.append(f"{group(r)} {rest(r)} {r['ratios']['tuned']:.2f}{tuned}")
    return short(out, 40)


def training(rows):
    return means([r for r in rows if group(r).startswith("train_")])


def fusion(rows):
    at = {r["id"]: r["queued_us"] for r in rows}
    out = []
    for cell, t in at.items():
        plain = "sin_plain,level=1," + without(cell, "level").partition(",")[2]
        if cell.startswith("sin,") and plain in at:
            out.append(f"{rest({'id': cell})}: unfused {us(at[plain])}, fused {us(t)}, {at[plain] / t:.2f} times")
    return short(out)


def against_cpu(rows):
    """Of each depth and type: from which n on the GPU is faster, and how much at the largest."""
    series = {}
    for r in rows:
        if r["id"].startswith("sin") and r["cpu_ratio"] and value(r["id"], "n") and not value(r["id"], "level"):
            series.setdefault((value(r["id"], "depth", "1"), value(r["id"], "dtype", "f32")), []).append((int(value(r["id"], "n")), r["cpu_ratio"]))
    out = []
    for (depth, dtype), points in sorted(series.items(), key=lambda s: (int(s[0][0]), s[0][1])):
        points.sort()
        ahead = [n for i, (n, _) in enumerate(points) if all(ratio > 1 for _, ratio in points[i:])]
        begin = f"the GPU is ahead from n={ahead[0]} on" if ahead else "the CPU is ahead"
        out.append(f"depth {depth} {dtype}: {begin}, {points[-1][1]:.3g} times at n={points[-1][0]}")
    return short(out)


def copies(rows):
    """Of each precision the largest products."""
    out = {}
    for r in rows:
        if group(r).startswith("matmul") and r["copied_us"]:
            overlapped = f", overlapped {us(r['streamed_us'])}" if r["streamed_us"] else ""
            peer = f" (peers {r['ratio_copied']:.2f})" if r["ratio_copied"] else ""
            out.setdefault(value(r["id"], "precision", "f32"), []).append(
                (int(value(r["id"], "dim", "0")), f"{us(r['queued_us'])} alone, {us(r['copied_us'])} with copies{peer}{overlapped}"))
    return short((f"{p} {dim}: {text}" for p, of in out.items() for dim, text in sorted(of)[-4:]), 24)


def orders(rows):
    at = {r["id"]: r["queued_us"] for r in rows}
    out = []
    for cell, t in at.items():
        other = cell.replace("order=relu-pool", "order=pool-relu")
        if other != cell and other in at:
            out.append(f"{without(cell, 'order')}: relu-pool {us(t)}, pool-relu {us(at[other])}, ratio {t / at[other]:.3f}")
    return short(out)


def power(rows):
    out = []
    for r in rows:
        if not r["watts"]:
            continue
        peers = {k: p["joules"] for k, p in r["peers"].items() if p.get("joules")}
        least = min(peers, key=peers.get) if peers else None
        against = f", {peer_name(least)} {joules(peers[least])} ({peers[least] / r['joules']:.2f})" if least and r["joules"] else ", no peer's"
        out.append(f"{r['id']} {r['watts']:.0f} W, {joules(r['joules'] or 0)} a run{against}")
    return short(out, 40)


def overlap(rows):
    both = [r for r in rows if r["copied_us"] and r["streamed_us"]]
    if not both:
        return ""
    gain = mean([r["copied_us"] / r["streamed_us"] for r in both])
    peers = mean([r["ratio_streamed"] for r in both])
    return f"{gain:.2f} times as many runs a second as with copies before and after, over {cells(len(both))}" + (
        f"; the fastest peer's streamed time over nnc's {peers:.2f}" if peers else "")


def precisions(rows):
    at = {r["id"]: r["queued_us"] for r in rows}
    out = []
    for cell, t in at.items():
        p = value(cell, "precision")
        base = cell.replace(f"precision={p}", "precision=f32")
        if p in ("tf32", "f16", "bf16") and base in at:
            out.append(f"{without(cell, 'precision')} {p} {at[base] / t:.2f}")
    return short(out, 24)


def measured(rows):
    out = [(r["queued_us"] / r["tuned_us"], r["id"]) for r in rows if r["tuned_us"]]
    if not out:
        return ""
    low, high = min(out), max(out)
    return f"{mean([o[0] for o in out]):.3f} over {cells(len(out))}, from {low[0]:.2f} ({low[1]}) to {high[0]:.2f} ({high[1]})"


def levels(rows):
    at = {r["id"]: r["queued_us"] for r in rows}
    out = []
    for cell, t in at.items():
        base = without(cell, "level")
        if value(cell, "level") == "3" and base in at:
            out.append(f"{cell} {at[base] / t:.2f}")
    return short(out)


def clusters(rows):
    """Recurrent layers: kernels whose blocks share a step's elements, over those whose blocks do not."""
    at = {r["id"]: r["queued_us"] for r in rows}
    out = []
    for cell, t in at.items():
        plain = cell.replace("lstm,", "lstm,clusters=0,", 1)
        if plain != cell and plain in at:
            out.append(f"{rest({'id': cell})}: with {us(t)}, without {us(at[plain])}, {at[plain] / t:.2f} times")
    return short(out)


def at_once(rows):
    """Branches on one stream over branches on several, of nnc, and of the fastest peer on as many."""
    at, out = {r["id"]: r for r in rows}, []
    for cell, r in at.items():
        n = value(cell, "streams")
        one = at.get(cell.replace(f"streams={n}", "streams=1"))
        if group(r) == "two" and n != "1" and one:
            b = best_peer(r)
            out.append(f"{rest(r)}: one stream {us(one['queued_us'])}, {n} streams {us(r['queued_us'])}, {one['queued_us'] / r['queued_us']:.2f} times"
                       + (f"; {peer_name(b[0])} with {n} streams {b[1]:.2f} times as long" if b else ""))
    return short(out)


def shares(rows):
    """Of kernels that are bound by memory and do not fit in L2."""
    bound = [(r["of_limit"], r["id"]) for r in rows if r["of_limit"] and not r["in_l2"] and
             group(r) in ("relu", "maxpool", "softmax", "layernorm", "sin", "sin_huge", "sin_even", "sin_odd")]
    if not bound:
        return ""
    low = sorted(b for b in bound if b[0] < 0.85)
    return f"{mean([b[0] for b in bound]):.2f} over {cells(len(bound))}" + (
        "; below 0.85: " + short((f"{name} {share:.2f}" for share, name in low), 16) if low else "; none below 0.85")


def predicted(rows):
    """Of the cells that no library works for: by machine code, before anything was measured."""
    out = sorted((r["predicted"] / r["of_limit"], r["id"]) for r in rows if r.get("predicted") and r["of_limit"])
    if not out:
        return ""
    wrong = sorted(out, key=lambda o: -abs(math.log(o[0])))[:6]
    return f"{mean([o[0] for o in out]):.2f} over {cells(len(out))}; farthest: " + short(f"{name} {ratio:.2f}" for ratio, name in wrong)


def memory(rows):
    out = [(r["peer_bytes"]["eager"] / r["device_bytes"], r["id"]) for r in rows
           if r["device_bytes"] and r["peer_bytes"].get("eager")]
    return f"eager's over nnc's {mean([o[0] for o in out]):.2f} over {cells(len(out))}" if out else ""


# (question, answer, cells that would answer it)
QUESTIONS = (
    ("nnc against its peers, geometric means of ratios", against_peers, "cells with @peer"),
    ("Cells that nnc loses to the fastest peer", lost, "cells with @peer"),
    ("Models against max-autotune", of_models, "cells of models with @tuned"),
    ("Training steps", training, "cells with training= and @peer"),
    ("Nested sin, unfused by nnc over fused", fusion, "sin and sin_plain level=1 of one depth and n"),
    ("Nested sin, CPU over GPU", against_cpu, "cells of sin with @cpu"),
    ("Matrix product, alone and with copies", copies, "cells of matmul with @io"),
    ("VGG-16, relu before the pooling and after it", orders, "cells of vgg16 with both orders"),
    ("Overlapped copies", overlap, "cells with @io"),
    ("Faster than f32 by precision", precisions, "cells of one model with precision=f32 and others"),
    ("--tune, default over measured algorithms", measured, "cells with @tuned"),
    ("-O3, time of -O2 over it", levels, "cells with level=3 beside those without"),
    ("LSTM, without clusters of blocks over with", clusters, "cells of lstm with clusters=0 and without"),
    ("Two models at once, on one stream over two", at_once, "cells of two with streams=1 and 2"),
    ("Share of the copy bandwidth, kernels bound by memory", shares, "cells larger than the L2 cache, and ceilings"),
    ("Predicted share over measured", predicted, "cells without library calls, whose machine code is at hand"),
    ("Power", power, "cells with @energy, and NVML"),
    ("Device memory", memory, "cells with @peer on a GPU"),
)


def answers(rows, parts):
    """A line for each question; of a long answer one for each of its parts, indented."""
    out = []
    for questions, of in ((QUESTIONS, rows), (details.QUESTIONS, parts)):
        for question, answer, needed in questions:
            text = answer(of) or f"not measured ({needed})"
            if len(question) + len(text) < LONG:
                out.append(f"{question}: {text}")
            else:
                out += [f"{question}:"] + [f"    {part}" for part in text.split("; ")]
    return out


def by_group(rows):
    """A line for each group: the geometric mean of each peer's ratios."""
    groups = {}
    for r in rows:
        groups.setdefault(group(r), []).append(r)
    return [f"  {name}: {text}" for name, of in groups.items() if (text := means(of))]
