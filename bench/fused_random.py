#!/usr/bin/env python3
"""Are small models ever slower fused than unfused? Draws random ones, of microseconds: chains of elementwise ops with and without
broadcasts, reductions, softmax and norms, linear layers and convolutions, pools, concats, splits and transposes, with dimensions of 1 to
300. Each is timed by nnc compare in alternating bursts; those that seem slower are timed again, longer, and counted by that.

    python3 bench/fused_random.py [--build=build] [--seeds=0:300] [--threads=1,2] [--keep=DIR] [-- FLAGS of nnc]
    ... --convs                       convolutional nets of up to milliseconds: images of 7 to 112, inverted residuals, pools, concats
    ... --write SEED                  prints the model of a seed
    ... --duration=200                milliseconds of each program's bursts; those of a repetition are three times as long

A line for each model that is slower by more than 1 %, its interval and its least times alike: the fused over the unfused time, the 95 %
interval, the unfused time, and the layers. Exit code 1 when outputs differ or a model is refused."""
import argparse
import concurrent.futures
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

UNARY = ["relu", "gelu", "silu", "tanh", "sigmoid", "exp", "softplus", "erf", "mish", "elu", "hardswish", "hardsigmoid", "abs", "neg",
         "square", "leaky_relu", "sin", "softsign", "relu6", "selu", "atan", "log1p", "rsqrt", "sqrt", "recip"]
POSITIVE = {"log1p", "rsqrt", "sqrt", "recip"}  # an op before them makes their operand so
BINARY = ["add", "mul", "sub", "max", "min", "div"]
MOST = 60000  # elements of a tensor


def numel(shape):
    return math.prod(shape)


class Model:
    """A random chain, and branches off it that come back by add, mul or concat."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.layers, self.shapes = [], {}
        self.x = "x"
        self.shapes["x"] = self.first_shape()
        for _ in range(self.r.randint(3, 9)):
            self.step()
        outputs = [self.x]
        if self.r.random() < 0.15 and len(self.layers) > 2:
            names = [n for n in self.shapes if n not in ("x", self.x) and not n.startswith("p")]
            outputs += [self.r.choice(names)] if names else []
        self.json = {"inputs": {"x": self.shapes["x"]}, "layers": self.layers, "outputs": outputs}

    def dim(self):
        kind = self.r.random()
        if kind < 0.15:
            return self.r.randint(1, 4)
        if kind < 0.45:
            return self.r.choice([8, 10, 16, 24, 32, 48, 64, 96, 128, 192, 256])
        return int(math.exp(self.r.uniform(math.log(3), math.log(300))))

    def first_shape(self):
        while True:
            shape = [self.dim() for _ in range(self.r.choice([1, 2, 2, 2, 3, 3, 4, 4]))]
            if 4 <= numel(shape) <= MOST:
                return shape

    def put(self, op, result, inputs=None, **keys):
        """Appends a layer with a result of this shape, which becomes the current one."""
        name = "n%d" % len(self.layers)
        self.layers.append({"op": op, "name": name, **keys, "in": inputs or [self.x]})
        self.shapes[name] = result
        self.x = name
        return name

    def weight(self, shape):
        name = "p%d" % len(self.layers)
        self.layers.append({"op": "param", "name": name, "shape": shape})
        self.shapes[name] = shape
        return name

    def unary(self, op=None):
        op = op or self.r.choice(UNARY)
        if op in POSITIVE:
            self.put("abs", self.shape)
            self.put("add", self.shape, value=0.5)
        elif op == "exp":
            self.put("tanh", self.shape)
        self.put(op, self.shape)

    @property
    def shape(self):
        return self.shapes[self.x]

    def small(self):
        """A shape that broadcasts to the current one."""
        keep = self.r.choice(["last", "first", "channel", "some"])
        s = self.shape
        n = len(s)
        if keep == "last":
            return s[-1:]
        if keep == "first":
            return s[:1] + [1] * (n - 1)
        if keep == "channel" and n > 2:
            return [s[1]] + [1] * (n - 2)
        return [d if self.r.random() < 0.5 else 1 for d in s]

    def binary(self):
        """With an earlier result of the same shape or one that broadcasts, a weight, or a number."""
        op = self.r.choice(BINARY)
        same = [n for n, s in self.shapes.items() if n != self.x and self.fits(s)]
        if op == "div":
            kept = self.x
            self.x = self.weight(self.small())
            self.put("square", self.shape)
            self.put("add", self.shape, value=1.0)
            other, self.x = self.x, kept
        elif same and self.r.random() < 0.55:
            other = self.r.choice(same)
        elif self.r.random() < 0.2:
            self.put(op, self.shape, value=round(self.r.uniform(-2, 2), 2))
            return
        else:
            other = self.weight(self.small() if self.r.random() < 0.8 else list(self.shape))
        self.put(op, self.shape, [self.x, other] if self.r.random() < 0.8 or op == "div" else [other, self.x])

    def fits(self, s):
        t = self.shape
        return len(s) <= len(t) and all(a in (1, b) for a, b in zip(s[::-1], t[::-1]))

    def reduce(self):
        op = self.r.choice(["reduce_sum", "reduce_mean", "reduce_max", "reduce_mean"])
        s = self.shape
        axes = sorted(self.r.sample(range(len(s)), self.r.choice([1, 1, 1, min(2, len(s))])))
        before = self.x
        shape = [1 if k in axes else d for k, d in enumerate(s)]
        self.put(op, shape, axes=axes)
        if self.r.random() < 0.75:
            if self.r.random() < 0.4:
                self.unary()
            self.put(self.r.choice(["add", "mul", "sub", "max"]), s, [before, self.x])

    def norm(self):
        op = self.r.choice(["softmax", "layernorm", "rmsnorm", "log_softmax", "batchnorm", "groupnorm", "softmax", "layernorm"])
        s = self.shape
        if op in ("softmax", "log_softmax"):
            self.put(op, s, axis=self.r.choice([-1, -1, self.r.randrange(len(s))]))
        elif op in ("layernorm", "rmsnorm"):
            self.put(op, s, axis=-1)
        elif len(s) < 2:
            self.put("softmax", s)
        elif op == "batchnorm":
            self.put(op, s)
        else:
            self.put(op, s, groups=self.r.choice([g for g in (1, 2, 4, 8, 3) if s[1] % g == 0]))

    def linear(self):
        s = self.shape
        out = s[-1] if self.r.random() < 0.3 else self.dim()
        if numel(s) // s[-1] * out > MOST or numel(s) * out > 3e6:
            return
        before = self.x
        self.put("linear", s[:-1] + [out], out=out, bias=self.r.random() < 0.7)
        if self.shape == s and self.r.random() < 0.5:
            self.put("add", s, [self.x, before])

    def window(self):
        s = self.shape
        if len(s) < 3 or len(s) > 4:
            return self.unary()
        n = len(s) - 2
        kind = self.r.choice(["conv", "conv1", "depthwise", "maxpool", "avgpool", "global_avgpool"])
        if kind == "global_avgpool":
            before = self.x
            self.put("global_avgpool", s[:2] + [1] * n)
            if self.r.random() < 0.5:
                self.put("sigmoid", self.shape)
                self.put("mul", s, [before, self.x])
            return None
        k = 1 if kind == "conv1" else self.r.choice([2, 3, 3, 5])
        pad = k // 2 if kind in ("conv", "depthwise") and k % 2 else 0
        stride = self.r.choice([1, 1, 2])
        out = [(d + 2 * pad - k) // stride + 1 for d in s[2:]]
        if min(out) < 1 or min(s[2:]) < k:
            return self.unary()
        if kind in ("conv", "conv1"):
            ch = self.dim()
            if s[0] * ch * numel(out) > MOST or s[0] * ch * numel(out) * s[1] * k ** n > 4e6:
                return self.unary()
            self.put("conv", [s[0], ch] + out, channels=ch, kernel=k, stride=stride, pad=pad, bias=self.r.random() < 0.7)
        else:
            keys = {"pad": pad} if kind == "depthwise" else {}
            self.put(kind, s[:2] + out, kernel=k, stride=stride, **keys)
        return None

    def move(self):
        s = self.shape
        kind = self.r.choice(["transpose", "concat", "split", "slice", "reshape", "pad", "flip"])
        axis = self.r.randrange(len(s))
        if kind == "transpose" and len(s) > 1:
            perm = list(range(len(s)))
            self.r.shuffle(perm)
            self.put("transpose", [s[k] for k in perm], perm=perm)
        elif kind == "concat":
            others = [n for n, t in self.shapes.items() if len(t) == len(s) and not n.startswith("p") and
                      all(a == b or k == axis for k, (a, b) in enumerate(zip(t, s)))]
            other = self.r.choice(others)
            shape = list(s)
            shape[axis] += self.shapes[other][axis]
            if numel(shape) <= MOST:
                self.put("concat", shape, [self.x, other], axis=axis)
        elif kind == "split" and s[axis] % 2 == 0:
            half = list(s)
            half[axis] //= 2
            name = self.put("split", half, axis=axis, parts=2)
            del self.shapes[name]
            self.shapes[name + ":0"] = half
            self.shapes[name + ":1"] = half
            self.x = name + ":1"
            gate = self.r.choice(["sigmoid", "silu", "tanh", "gelu"])
            self.put(gate, half)
            self.put("mul", half, [self.x, name + ":0"])
        elif kind == "slice" and s[axis] > 2:
            start = self.r.randint(0, s[axis] // 2)
            shape = list(s)
            shape[axis] -= start
            self.put("slice", shape, axes=[axis], starts=[start], ends=[s[axis]])
        elif kind == "reshape" and len(s) > 1:
            shape = s[:-2] + [s[-2] * s[-1]]
            self.put("reshape", shape, shape=shape)
        elif kind == "flip":
            self.put("flip", list(s), axes=[axis])
        elif kind == "pad":
            shape = list(s)
            shape[axis] += 2
            if numel(shape) <= MOST:
                self.put("pad", shape, pads=[int(k % len(s) == axis) for k in range(2 * len(s))])

    def step(self):
        kinds = [(self.unary, 6), (self.binary, 6), (self.reduce, 2), (self.norm, 2.5), (self.linear, 2), (self.window, 2), (self.move, 2)]
        self.r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]()


class Net(Model):
    """A random convolutional net: 1x1 and 3x3, depthwise, inverted residuals with and without squeeze-and-excite, pools, concats."""

    MOST_MACS = 60e6

    def first_shape(self):
        size = self.r.choice([7, 14, 14, 20, 28, 28, 56, 56, 112])
        self.act = self.r.choice(["relu", "relu6", "silu", "silu", "sin", "atan", "gelu", "hardswish", "tanh", "mish", "sigmoid", None])
        return [self.r.choice([1, 1, 1, 2, 4]), self.channels(size), size, size]

    def channels(self, size):
        return self.r.choice([c for c in (3, 8, 16, 24, 32, 40, 64, 96, 144, 192, 320) if c * size * size <= 300000])

    def activate(self):
        op = self.act if self.r.random() < 0.7 else self.r.choice(UNARY)
        if op:
            self.unary(op)

    def conv(self, kernel=None, channels=None, stride=None, act=True):
        s = self.shape
        kernel = kernel or self.r.choice([1, 1, 1, 3, 3, 5])
        stride = stride or self.r.choice([1, 1, 1, 2])
        channels = channels or self.channels(s[2])
        out = [(d + kernel // 2 * 2 - kernel) // stride + 1 for d in s[2:]]
        if math.prod([s[0], channels, s[1], kernel, kernel] + out) > self.MOST_MACS:
            return
        self.put("conv", [s[0], channels] + out, channels=channels, kernel=kernel, stride=stride, pad=kernel // 2, bias=self.r.random() < 0.5)
        if self.r.random() < 0.5:
            self.put("batchnorm", self.shape)
        if act:
            self.activate()

    def depthwise(self, stride=None):
        s, kernel, stride = self.shape, self.r.choice([3, 3, 5, 7]), stride or self.r.choice([1, 1, 2])
        self.put("depthwise", s[:2] + [(d + kernel // 2 * 2 - kernel) // stride + 1 for d in s[2:]], kernel=kernel, stride=stride,
                 pad=kernel // 2)
        if self.r.random() < 0.6:
            self.put("batchnorm", self.shape)
        self.activate()

    def squeeze(self):
        before, s = self.x, self.shape
        self.put("global_avgpool", s[:2] + [1, 1])
        self.put("conv", [s[0], max(s[1] // 4, 1), 1, 1], channels=max(s[1] // 4, 1), kernel=1)
        self.activate()
        self.put("conv", s[:2] + [1, 1], channels=s[1], kernel=1)
        self.put("sigmoid", self.shape)
        self.put("mul", s, [before, self.x])

    def inverted(self):
        before, s = self.x, self.shape
        self.conv(1, min(s[1] * self.r.choice([3, 4, 6]), 480), 1)
        self.depthwise(self.r.choice([1, 1, 2]))
        if self.r.random() < 0.5:
            self.squeeze()
        self.conv(1, s[1], 1, self.r.random() < 0.2)
        if self.shape == s:
            self.put("add", s, [self.x, before])

    def residual(self):
        before, s = self.x, self.shape
        self.conv(self.r.choice([1, 3]), s[1], 1)
        self.conv(self.r.choice([1, 3]), s[1], 1, False)
        if self.x != before and self.shape == s:
            self.put("add", s, [self.x, before])
        self.activate()

    def grow(self):
        before, s = self.x, self.shape
        self.conv(1, None, 1)
        self.conv(3, self.r.choice([8, 16, 32]), 1)
        if self.x != before and self.shape[2:] == s[2:] and s[1] + self.shape[1] <= 480:
            self.put("concat", [s[0], s[1] + self.shape[1]] + s[2:], [before, self.x], axis=1)

    def pool(self):
        s = self.shape
        if s[2] >= 6:
            kernel = self.r.choice([2, 3])
            self.put(self.r.choice(["maxpool", "maxpool", "avgpool"]), s[:2] + [(d - kernel) // 2 + 1 for d in s[2:]], kernel=kernel, stride=2)

    def step(self):
        kinds = [(self.conv, 4), (self.depthwise, 2), (self.inverted, 3), (self.residual, 2), (self.grow, 1.5), (self.pool, 1),
                 (self.activate, 1), (self.squeeze, 0.5)]
        if len(self.layers) < 24:
            self.r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]()


def measure(build, file, threads, duration, flags):
    """(ratio, low, high, unfused us, fused us, agree); None: the same plan; text: nnc failed."""
    cmd = [os.path.join(build, "nnc"), "compare", file, "--threads=%d" % threads, "--no-steps", "--no-reference", "--format=json",
           "--duration=%d" % duration] + flags
    done = subprocess.run(cmd, capture_output=True, text=True, check=False)
    if not done.stdout:
        return "exit code %d: %s" % (done.returncode, done.stderr.strip().replace("\n", " ")[:300])
    report = json.loads(done.stdout)
    if len(report["runs"]) < 2:
        return None
    p, us = report["paired"], [1e3 * r["p10_ms"] for r in report["runs"]]
    ratio = p["ratio"] or us[-1] / us[0]  # a busy machine may leave no pair
    return ratio, p["low"] or ratio, p["high"] or ratio, us[0], us[-1], report["agree"]


def text(ratio):
    return "%.3f (%.3f-%.3f)" % ratio[:3]


def words(model):
    return " ".join("%s%s" % (n["op"], model.shapes.get(n["name"], "")) for n in model.layers if n["op"] != "param").replace(", ", "x")


def slow(m, beyond):
    """By the pairs' interval, and by the least times of all bursts: what a busy machine disturbs is seldom both."""
    return m[1] > beyond and m[4] > beyond * m[3]


def worker(job):
    """(seed, threads, measurement): of the repetition where the first one is slow."""
    seed, threads, o = job
    model = o.kind(seed)
    file = os.path.join(o.folder, "%d.json" % seed)
    with open(file, "w", encoding="utf-8") as f:
        json.dump(model.json, f)
    m = measure(o.build, file, threads, o.duration, o.flags)
    for _ in range(2):
        if isinstance(m, tuple) and slow(m, 1.01):
            again = measure(o.build, file, threads, 3 * o.duration, o.flags)
            m = min(m, again) if isinstance(again, tuple) else again
    return seed, threads, m


def summary(threads, got):
    ratios = sorted(m[0] for m in got if m)
    above = [sum(r > x and slow(m, (1 + x) / 2) for m in got if m for r in [m[0]]) for x in (1.01, 1.02, 1.05, 1.1)]
    at = [ratios[min(int(len(ratios) * q), len(ratios) - 1)] for q in (0.01, 0.1, 0.5, 0.9, 0.99)]
    total = [sum(m[k] for m in got if m) for k in (3, 4)]
    print("%d thread%s: %d models, %d the same plan; fused / unfused: least %.3f, percentiles 1 %.3f, 10 %.3f, 50 %.3f, 90 %.3f, 99 %.3f, "
          "most %.3f, geometric mean %.3f, of the sum of times %.3f; slower by more than 1 %%: %d, 2 %%: %d, 5 %%: %d, 10 %%: %d"
          % (threads, "s" if threads > 1 else "", len(got), len(got) - len(ratios), ratios[0], *at, ratios[-1],
             math.exp(statistics.mean(map(math.log, ratios))), total[1] / total[0], *above))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default="build")
    a.add_argument("--seeds", default="0:300")
    a.add_argument("--threads", default="1,2")
    a.add_argument("--duration", type=int, default=150)
    a.add_argument("--keep", help="folder for the models (default: a temporary one)")
    a.add_argument("--jobs", type=int, default=1, help="models of one thread that are timed at once")
    a.add_argument("--convs", dest="kind", action="store_const", const=Net, default=Model, help="convolutional nets")
    a.add_argument("--write", type=int)
    a.add_argument("flags", nargs="*")
    o = a.parse_args()
    if o.write is not None:
        json.dump(o.kind(o.write).json, sys.stdout, indent=1)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        o.folder = o.keep or temporary
        os.makedirs(o.folder, exist_ok=True)
        lo, hi = map(int, o.seeds.split(":"))
        failed = 0
        for threads in map(int, o.threads.split(",")):
            got = []
            jobs = [(s, threads, o) for s in range(lo, hi)]
            with concurrent.futures.ThreadPoolExecutor(o.jobs if threads == 1 else 1) as pool:
                for seed, _, m in pool.map(worker, jobs):
                    if isinstance(m, str) or (m and not m[5]):
                        failed += 1
                        print("seed %d, %d threads: %s" % (seed, threads, m if isinstance(m, str) else "outputs differ"), flush=True)
                        continue
                    got.append(m)
                    if m and slow(m, 1.01):
                        print("seed %d, %d thread%s: %s, unfused %.2f us: %s" % (seed, threads, "s" if threads > 1 else "", text(m), m[3],
                              words(o.kind(seed))), flush=True)
            summary(threads, got)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
