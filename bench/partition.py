#!/usr/bin/env python3
"""Prediction against measurement of nnc partition on CPU ranks.

For 1, 2 and 4 ranks: nnc calibrate, then for each model predicted (by simulating the plan) and measured times of all strategies that nnc executes. With
one rank, two virtual devices of one process. Twice: ops by the calibrated tables, and ops measured in the model's own plan (--measure).
Prints a table with the error of each row, mean and worst errors, the spread of the measurement, the rank correlation of strategies, and
the share of pairs in order among strategies that differ by more than 10 %; writes the same as JSON.

    bench/partition.py --nnc=build/nnc --budget=600 -o bench/results/partition-2026-11-26

What the budget has no time for is listed as left out."""
import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

# Model, its args, modes. The first ones are measured first.
MODELS = [
    ("mlp", ["batch=64"], ("forward", "step")),
    ("vgg16", ["image=32", "batch=4"], ("forward", "step")),
    ("resnet50", ["image=64", "batch=2"], ("forward", "step")),
    ("mobilenet_v2", ["image=64", "batch=4"], ("forward", "step")),
    ("googlenet", ["image=64", "batch=2"], ("forward",)),
    ("unet", ["image=64", "batch=1"], ("forward", "step")),
    ("transformer_mlp", ["tokens=32", "batch=4"], ("forward", "step")),
    ("densenet121", ["image=64", "batch=2"], ("forward",)),
]
PREDICTORS = [
    ("predicted", "tables"),
    ("predicted_measured", "ops measured"),
]


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nnc", default="build/nnc")
    p.add_argument("--ranks", default="1,2,4")
    p.add_argument("--models", default="", help="names, between commas (default: all of the list)")
    p.add_argument("--modes", default="forward,step")
    p.add_argument("--budget", type=float, default=600, help="seconds (default: 600)")
    p.add_argument("--calibrate-budget", type=float, default=25, help="seconds for each number of ranks (default: 25)")
    p.add_argument("--duration", type=int, default=1500, help="milliseconds for each strategy (default: 1500)")
    p.add_argument("--batches", type=int, default=4)
    p.add_argument("--strategies", default="single,sequential,branches,data,pipeline,gpipe,1f1b",
                   help="those that are not possible, or that nnc does not execute, have no row")
    p.add_argument("--against", default="median", choices=("median", "min"),
                   help="measured time of an iteration that predictions are compared with (default: median; on a noisy machine min)")
    p.add_argument("--hardware-dir", default="", help="keep the calibrated files here, and use those that are there")
    p.add_argument("-o", "--output", default="", help="prefix of .json and .txt (default: print only)")
    return p.parse_args()


class Bench:
    def __init__(self, o):
        self.o = o
        self.begin = time.monotonic()
        self.dir = o.hardware_dir or tempfile.mkdtemp(prefix="nnc-partition-")
        os.makedirs(self.dir, exist_ok=True)
        self.rows, self.left_out, self.failures, self.hardware = [], [], [], {}
        self.env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                        OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                        PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", PRTE_MCA_hwloc_default_binding_policy="none")

    def left(self):
        return self.o.budget - (time.monotonic() - self.begin)

    def nnc(self, ranks, args, timeout):
        """Standard output of nnc on so many ranks; None: it failed, which is noted."""
        command = [self.o.nnc] + args
        if ranks > 1:
            command = ["mpirun", "-n", str(ranks)] + command
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=self.env, timeout=max(timeout, 1))
        except subprocess.TimeoutExpired:
            self.failures.append({"command": " ".join(args), "ranks": ranks, "why": "took longer than %.0f s" % timeout})
            return None
        if done.returncode not in (0, 4):
            self.failures.append({"command": " ".join(args), "ranks": ranks, "why": done.stderr.strip()[-400:]})
            return None
        return done.stdout

    def calibrate(self, ranks):
        path = os.path.join(self.dir, "ranks%d.json" % ranks)
        if not os.path.exists(path):
            args = ["calibrate", "--budget=%g" % self.o.calibrate_budget, "-o", path]
            args += ["--devices=2"] if ranks == 1 else []
            if self.nnc(ranks, args, 4 * self.o.calibrate_budget + 60) is None:
                return None
        with open(path) as f:
            self.hardware[ranks] = json.load(f)
        return path

    def measure(self, ranks, path, model, sets, mode):
        devices = max(ranks, 2)
        args = ["partition", "models/%s.json" % model, "--hardware=" + path, "--devices=%d" % devices, "--mode=" + mode,
                "--batches=%d" % max(self.o.batches, devices), "--strategy=" + self.o.strategies, "--simulate", "--format=json"]
        for s in sets:
            args += ["--set", s]
        ran = self.nnc(ranks, args + ["--measure", "--run", "--duration=%d" % self.o.duration], self.left())
        tables = ran and self.nnc(1, args, self.left())
        if not ran or not tables:
            return
        by_tables = {r["strategy"]: r for r in json.loads(tables)["strategies"]}
        for r in json.loads(ran)["strategies"]:
            if "not_run" in r:
                self.failures.append({"command": "%s %s %s" % (model, mode, r["strategy"]), "ranks": ranks, "why": r["not_run"]})
            if "measured" not in r:
                continue
            t, m = by_tables[r["strategy"]], r["measured"]
            self.rows.append({
                "model": model, "mode": mode, "ranks": ranks, "strategy": r["strategy"],
                "measured": m["iteration_ms" if self.o.against == "median" else "min_ms"], "median": m["iteration_ms"], "min": m["min_ms"],
                "iterations": m["iterations"], "spread": m["spread"],
                "predicted": t.get("iteration_ms"), "predicted_measured": r.get("iteration_ms"),
                "busy": [d["busy_ms"] for d in m["devices"]],
                "busy_simulated": [d["busy_ms"] for d in r["devices"]],
                "communication": [d["communication_ms"] for d in m["devices"]]})

    def run(self):
        names = [m for m in self.o.models.split(",") if m]
        modes = self.o.modes.split(",")
        paths = {n: self.calibrate(n) for n in map(int, self.o.ranks.split(","))}
        for model, sets, of in MODELS:
            if names and model not in names:
                continue
            for mode, (ranks, path) in itertools.product([m for m in of if m in modes], paths.items()):
                what = "%s %s, %d rank%s" % (model, mode, ranks, "" if ranks == 1 else "s")
                if path is None:
                    continue
                if self.left() < 6 + 0.006 * self.o.duration:
                    self.left_out.append(what)
                    continue
                print("%6.0f s  %s" % (time.monotonic() - self.begin, what), file=sys.stderr, flush=True)
                self.measure(ranks, path, model, sets, mode)


def error(row, predictor):
    value = row.get(predictor)
    return value / row["measured"] - 1 if value else None


def ranks_of(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    rank = [0.0] * len(values)
    for at, i in enumerate(order):
        rank[i] = at
    return rank


def spearman(x, y):
    a, b = ranks_of(x), ranks_of(y)
    n = len(a)
    mean = (n - 1) / 2
    var = sum((v - mean) ** 2 for v in a)
    return sum((u - mean) * (v - mean) for u, v in zip(a, b)) / var if var else 1.0


def groups(rows):
    key = lambda r: (r["model"], r["mode"], r["ranks"])
    return [list(g) for _, g in itertools.groupby(sorted(rows, key=key), key)]


def summary(rows, predictor):
    errors = [error(r, predictor) for r in rows if error(r, predictor) is not None]
    if not errors:
        return None
    within = sum(abs(error(r, predictor)) <= max(0.1, 2 * r["spread"]) for r in rows if error(r, predictor) is not None)
    pairs = kept = 0
    correlations = []
    for g in groups(rows):
        g = [r for r in g if r.get(predictor)]
        if len(g) > 2:
            correlations.append(spearman([r["measured"] for r in g], [r[predictor] for r in g]))
        for a, b in itertools.combinations(g, 2):
            slow, fast = (a, b) if a["measured"] > b["measured"] else (b, a)
            if slow["measured"] > 1.1 * fast["measured"]:
                pairs += 1
                kept += slow[predictor] > fast[predictor]
    return {"rows": len(errors), "mean_error": sum(map(abs, errors)) / len(errors), "bias": sum(errors) / len(errors),
            "worst_error": max(errors, key=abs), "within_10_percent_or_twice_the_spread": within,
            "rank_correlation": sum(correlations) / len(correlations) if correlations else None,
            "pairs_apart": pairs, "pairs_in_order": kept}


def report(bench):
    out = []
    out.append("Measured: %s of iterations; in parentheses errors of predictions. Spread: (p90 - p10) / median." % bench.o.against)
    out.append("%-16s %-8s %5s %-12s %11s %7s " % ("model", "mode", "ranks", "strategy", "measured ms", "spread")
               + " ".join("%18s" % name for name, _ in PREDICTORS))
    for r in bench.rows:
        cells = []
        for name, _ in PREDICTORS:
            e = error(r, name)
            cells.append("%18s" % ("-" if e is None else "%.3f (%+.1f %%)" % (r[name], 100 * e)))
        out.append("%-16s %-8s %5d %-12s %11.3f %6.1f%% " % (r["model"], r["mode"], r["ranks"], r["strategy"], r["measured"], 100 * r["spread"])
                   + " ".join(cells))
    out.append("")
    all_ranks = sorted({r["ranks"] for r in bench.rows})
    for ranks in [None] + all_ranks:
        rows = [r for r in bench.rows if ranks is None or r["ranks"] == ranks]
        if not rows:
            continue
        out.append("all" if ranks is None else "1 rank, two virtual devices" if ranks == 1 else "%d ranks" % ranks)
        spread = sorted(r["spread"] for r in rows)
        out.append("  spread of the measurement: median %.1f %%, worst %.1f %%" % (100 * spread[len(spread) // 2], 100 * spread[-1]))
        for name, words in PREDICTORS:
            s = summary(rows, name)
            if s:
                out.append("  %-24s mean error %.1f %%, bias %+.1f %%, worst %+.1f %%; %d of %d rows within 10 %% or twice their spread; "
                           "rank correlation %s; order kept in %d of %d pairs that differ by > 10 %%"
                           % (words + ":", 100 * s["mean_error"], 100 * s["bias"], 100 * s["worst_error"],
                              s["within_10_percent_or_twice_the_spread"], s["rows"],
                              "-" if s["rank_correlation"] is None else "%.2f" % s["rank_correlation"],
                              s["pairs_in_order"], s["pairs_apart"]))
    for f in bench.failures:
        out.append("not measured: %(command)s, ranks %(ranks)d: %(why)s" % f)
    if bench.left_out:
        out.append("left out, the budget was spent: " + "; ".join(bench.left_out))
    return "\n".join(out) + "\n"


def main():
    o = parse_args()
    bench = Bench(o)
    bench.run()
    text = report(bench)
    print(text, end="")
    if o.output:
        result = {"options": vars(o), "seconds": round(time.monotonic() - bench.begin, 1), "rows": bench.rows,
                  "summary": {str(n or "all"): {name: summary([r for r in bench.rows if n is None or r["ranks"] == n], name)
                                                for name, _ in PREDICTORS}
                              for n in [None] + sorted({r["ranks"] for r in bench.rows})},
                  "failures": bench.failures, "left_out": bench.left_out, "hardware": bench.hardware}
        with open(o.output + ".json", "w") as f:
            json.dump(result, f, indent=1)
            f.write("\n")
        with open(o.output + ".txt", "w") as f:
            f.write(text)
    if not o.hardware_dir:
        shutil.rmtree(bench.dir, ignore_errors=True)
    return 0 if bench.rows else 1


if __name__ == "__main__":
    sys.exit(main())
