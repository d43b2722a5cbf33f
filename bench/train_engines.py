"""bench/train_engines.py -- engines that make training steps, each a process of its own that answers a line of text with a line of JSON:
bench_steps (steps.c), and PyTorch, which this file runs as

    train_engines.py torch --graph=FILE --base=eager|compile --threads=N        any model, from bench_steps' "graph"
    train_engines.py models --graph=FILE --form=loop|turns|fused --base=...     n independent models (multi_train.py)

train_steps.py and multi_train.py compare them in alternating bursts."""
import argparse
import json
import math
import os
import select
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "device"))
import peers  # noqa: E402


# ---- this side: processes ------------------------------------------------------------------------------------------------

class Failed(Exception):
    pass


class Engine:
    """A process that has been started, and what it did."""

    def __init__(self, name, command, limit):
        self.name, self.command, self.ms, self.bursts = name, command, [], []
        t0 = time.monotonic()
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.read(limit)
        except Failed:
            self.close()
            raise
        self.start_s = time.monotonic() - t0

    def read(self, limit):
        if not select.select([self.p.stdout], [], [], limit)[0]:
            raise Failed(f"no answer in {limit:.0f} s")
        line = self.p.stdout.readline()
        if not line:
            raise Failed((self.p.stderr.read() or "it ended").strip()[-300:])
        return json.loads(line)

    def ask(self, line, limit=600):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        return self.read(limit)

    def burst(self, ms):
        """The first step of a burst finds caches as another engine left them and is not counted, unless it is the only one."""
        got = self.ask(f"burst {ms}")["ms"]
        got = got[1:] if len(got) > 2 else got
        self.ms += got
        self.bursts.append(statistics.median(got))

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()


def alternate(engines, rounds, ms):
    """Bursts in turn; every other round in reverse order, so that none always follows the same."""
    for r in range(rounds):
        for e in engines if r % 2 == 0 else engines[::-1]:
            e.burst(ms)
            time.sleep(0.02)  # threads that spin go to sleep


def ratio(a, b):
    """Median of a's bursts over b's of the same rounds, with the smallest and the largest."""
    r = [x / y for x, y in zip(a.bursts, b.bursts)]
    return {"ratio": statistics.median(r), "low": min(r), "high": max(r)}


def nnc_command(build, model, sets, more=()):
    return [os.path.join(build, "bench_steps"), model] + [f"--set={k}={v}" for k, v in sets.items()] + list(more)


def commit():
    run = subprocess.run(["git", "-C", HERE, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    return run.stdout.strip() or "unknown"


def machine():
    with open("/proc/cpuinfo") as f:
        name = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "")
    return {"cpu": name, "cores": os.cpu_count(), "load": os.getloadavg()[0]}


# ---- PyTorch's side ------------------------------------------------------------------------------------------------------

def resident(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


class Models:
    """n linear layers or convolutions beside each other. loop: one forward, one backward of the sum of their losses, one optimizer; turns:
    each by itself, one after the other; fused: as one batched product or grouped convolution."""

    def __init__(self, cell, form, base):
        torch = peers.torch
        args, kind = cell["args"], cell["kind"]
        n, rows, cin, cout, length = (args[k] for k in ("models", "batch", "in", "out", "length"))
        conv = kind != "multi_linear"
        seed = [node for node in cell["graph"] if "key" in node]
        x = next(v for v in seed if v["op"] == "input")
        shape = [rows, n * cin] + ([length] if conv else [])
        cpu = torch.device("cpu")
        self.host = [peers.generate(dict(x, shape=shape), cpu), peers.generate(cell["target"], cpu)]
        self.x = [v.clone() for v in self.host]
        self.n, self.form, self.base, self.conv, self.cin, self.cout = n, form, base, conv, cin, cout
        w = [torch.cat([peers.generate(v, cpu).reshape(-1, *v["shape"][1:]) for v in seed if v["op"] == "param" and part(v)])
             for part in (lambda v: len(v["shape"]) > 1, lambda v: len(v["shape"]) == 1)]
        if form == "fused" and not conv:
            w = [w[0].reshape(n, cout, cin).transpose(1, 2).contiguous(), w[1].reshape(n, 1, cout)]
        one = [w] if form == "fused" else [[w[0][k * cout:(k + 1) * cout].clone(), w[1][k * cout:(k + 1) * cout].clone()] for k in range(n)]
        self.w = [[v.requires_grad_() for v in pair] for pair in one]
        groups = [[v for pair in self.w for v in pair]] if form != "turns" else self.w
        self.opts = [torch.optim.SGD(g, 0.0) for g in groups]
        self.loss_of = torch.compile(self.whole, dynamic=False) if base != "eager" else self.whole
        self.updates = [torch.compile(lambda o=o: o.step()) if base != "eager" else o.step for o in self.opts]

    def one(self, k, x):
        F = peers.torch.nn.functional
        w, b = self.w[k]
        return F.conv1d(x, w, b) if self.conv else F.linear(x, w, b)

    def parts_of(self, v, size):
        return [v.narrow(1, k * size, size) for k in range(self.n)]

    def forward(self):
        torch = peers.torch
        x = self.x[0]
        if self.form == "fused" and self.conv:
            return torch.nn.functional.conv1d(x, *self.w[0], groups=self.n)
        if self.form == "fused":
            x = x.reshape(x.shape[0], self.n, self.cin).transpose(0, 1)
            return torch.baddbmm(self.w[0][1], x, self.w[0][0])
        return [self.one(k, v) for k, v in enumerate(self.parts_of(x, self.cin))]

    def loss(self, y):
        F, t = peers.torch.nn.functional, self.x[1]
        if self.form == "fused" and self.conv:
            return F.mse_loss(y, t)
        if self.form == "fused":
            return F.mse_loss(y, t.reshape(t.shape[0], self.n, self.cout).transpose(0, 1))
        t = self.parts_of(t, self.cout)
        return sum(F.mse_loss(a, b) for a, b in zip(y, t)) / self.n

    def whole(self):
        return self.loss(self.forward())

    def step(self):
        if self.form == "turns":
            return self.step_in_turn()
        for o in self.opts:
            o.zero_grad()
        loss = self.loss_of()
        loss.backward()
        for update in self.updates:
            update()
        return loss

    def step_in_turn(self):
        F, total = peers.torch.nn.functional, 0.0
        xs, ts = self.parts_of(self.x[0], self.cin), self.parts_of(self.x[1], self.cout)
        for k in range(self.n):
            self.opts[k].zero_grad()
            loss = F.mse_loss(self.one(k, xs[k]), ts[k])
            loss.backward()
            self.updates[k]()
            total = total + loss.detach()
        return total / self.n

    def parts(self):
        out, t = {}, time.perf_counter_ns()

        def done(name):
            nonlocal t
            now = time.perf_counter_ns()
            out[name] = out.get(name, 0.0) + (now - t) * 1e-6
            t = now
        F = peers.torch.nn.functional
        for a, b in zip(self.x, self.host):
            a.copy_(b)
        done("data_ms")
        xs, ts = self.parts_of(self.x[0], self.cin), self.parts_of(self.x[1], self.cout)
        for k in range(self.n if self.form == "turns" else 1):
            self.opts[k].zero_grad()
            done("zero_grad_ms")
            if self.base != "eager":
                loss = self.loss_of()
                done("forward_ms")
            else:
                y = self.one(k, xs[k]) if self.form == "turns" else self.forward()
                done("forward_ms")
                loss = F.mse_loss(y, ts[k]) if self.form == "turns" else self.loss(y)
                done("loss_ms")
            loss.backward()
            done("backward_ms")
            self.updates[k]()
            done("optimizer_ms")
        return out


def tensor_bytes(make):
    """Most bytes of tensors that lived at once while make() built a trainer and it made two steps, by the profiler's record."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
        made = make()
        for _ in range(2):
            made.step()
    now = most = 0
    events = [e for e in p.profiler.kineto_results.events() if e.name() == "[memory]"]
    for e in sorted(events, key=lambda e: e.start_ns()):
        now += e.nbytes()
        most = max(most, now)
    return made, most


def serve(a):
    torch = peers.torch
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    with open(a.graph) as f:
        cell = json.load(f)
    torch.randn(64, 64) @ torch.randn(64, 64)
    start = resident("VmRSS")

    def make():
        return Models(cell, a.form, a.base) if a.form else peers.Training(cell, peers.Device("cpu"), a.base)
    made, bytes_ = tensor_bytes(make)
    first = float(made.step().detach())
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        word, _, value = line.strip().partition(" ")
        if word == "burst":
            ms, end = [], time.perf_counter() + float(value) * 1e-3
            while not ms or time.perf_counter() < end:
                t0 = time.perf_counter_ns()
                made.step()
                ms.append((time.perf_counter_ns() - t0) * 1e-6)
            out = {"ms": ms}
        elif word == "parts":
            all_ = [made.parts() for _ in range(int(value) + 1)][1:]
            out = {k: statistics.median(v.get(k, 0.0) for v in all_) for k in all_[0]}
        else:
            out = {"loss": first, "memory_bytes": bytes_, "rss_bytes": resident("VmHWM") - start, "version": torch.__version__,
                   "threads": torch.get_num_threads()}
        print(json.dumps(out), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["torch", "models"])
    p.add_argument("--graph", required=True)
    p.add_argument("--form", default="")
    p.add_argument("--base", default="eager", choices=["eager", "compile"])
    p.add_argument("--threads", type=int, default=os.cpu_count())
    a = p.parse_args()
    peers.DTYPES = {k: getattr(peers.torch, v) for k, v in peers.NAMES.items()}
    serve(a)


if __name__ == "__main__":
    main()
