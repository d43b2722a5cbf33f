"""bench/device/peers.py -- PyTorch on the cells that bench_device has measured: the same graph, the same inputs and weights (generated
by the same generator), the same three times by the same clock. Eager and torch.compile (default, and max-autotune where a cell is
"tuned"), each also in a CUDA graph. bench/gpu.sh runs it; it needs PyTorch and nothing else.

    peers.py --cells=cells.json --nnc=DIR --out=DIR [--device=cuda|cpu] [--base=eager|compile|tuned] ...
    peers.py --programs --nnc=DIR       only writes the programs, for which PyTorch need not be there
    peers.py --prepare=N --hold=FILE --graphs=DIR ...   N processes compile the cells' graphs beside each other; once FILE is there, they
                                        measure one after the other

Results: OUT/BASE,CELL.json, written as bench_device writes them: what is there is left alone; exit code 75: time was up; 76: the device's
context died, another process goes on."""
import argparse
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import time

try:
    import torch
except ImportError:  # --programs does without
    torch = None

BURSTS, MOST_RUNS, WARM_RUNS = 5, 5000, 3
NAMES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32", "bool": "bool"}


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- numbers: base/num.h's generator (Philox 4x32-10) ------------------------------------------------------------------

def philox(key, first, groups, device):
    """Groups first .. of four 32-bit numbers, as int64 of shape [groups, 4]."""
    low = 0xFFFFFFFF
    counter = torch.arange(first, first + groups, dtype=torch.int64, device=device)
    c = [counter & low, counter >> 32, torch.zeros_like(counter), torch.zeros_like(counter)]
    k0, k1 = key & low, key >> 32
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57  # 64 bits, wrapped: the halves are right
        c = [((b >> 32) & low) ^ c[1] ^ k0, b & low, ((a >> 32) & low) ^ c[3] ^ k1, a & low]
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return torch.stack(c, 1)


def generate(leaf, device):
    """The tensor of an input or weight; integers are indices below leaf["below"]."""
    n = math.prod(leaf["shape"])
    if leaf["dtype"] in ("bool", "i32", "i64"):
        bits = philox(int(leaf["key"], 16), 0, (n + 3) // 4, device).reshape(-1)[:n] >> 8
        numbers = (bits.to(torch.float32) * 2.0**-24 * (2 if leaf["dtype"] == "bool" else 10)).to(torch.int64)
        return (numbers % leaf.get("below", 10)).to(DTYPES[leaf["dtype"]]).reshape(leaf["shape"])
    distinct = min(n, leaf["period"] or n)
    out = torch.empty(distinct, dtype=torch.float32, device=device)
    step = 1 << 24
    for at in range(0, distinct, step):
        m = min(step, distinct - at)
        u = philox(int(leaf["key"], 16), at // 4, (m + 3) // 4, device).reshape(-1)[:m] >> 8
        out[at:at + m] = (u.to(torch.float32) * 2.0**-23 - 1.0) * leaf["scale"] + leaf["shift"]
    out = out.to(DTYPES[leaf["dtype"]])
    if distinct < n:
        out = out.repeat(-(-n // distinct))[:n]
    return out.reshape(leaf["shape"])


# ---- the graph as a Python function ------------------------------------------------------------------------------------

def pads_of(a, spatial):
    """PyTorch pads both sides alike."""
    p = a.get("pads") or [0] * (2 * spatial)
    if p[:spatial] != p[spatial:]:
        raise NotImplementedError("pads that differ between the sides")
    return p[:spatial]


def conv_text(n, i, spatial):
    a = n["attr"]
    more = {"stride": a.get("strides") or 1, "padding": pads_of(a, spatial), "dilation": a.get("dilations") or 1,
            "groups": a.get("groups") or 1}
    return f"F.conv{spatial}d({', '.join(i)}, {', '.join(f'{k}={v}' for k, v in more.items())})"


def pool_text(n, i, spatial):
    a = n["attr"]
    args = (f"{i[0]}, {a['kernel']}, stride={a.get('strides') or [1] * spatial}, padding={pads_of(a, spatial)}, "
            f"ceil_mode={bool(a.get('ceil_mode'))}")
    if n["op"] == "maxpool":
        return f"F.max_pool{spatial}d({args})"
    return f"F.avg_pool{spatial}d({args}, count_include_pad={bool(a.get('count_include_pad'))})"


def norm_text(n, i, shapes):
    a, x = n["attr"], shapes[n["in"][0]]
    axis = a.get("axis", len(x) - 1)
    weight, bias = (i[1:] + ["None", "None"])[:2]
    return f"F.layer_norm({i[0]}, {x[axis:]}, {weight}, {bias}, {a.get('eps', 1e-5)})"


def batchnorm_text(n, i, training):
    return f"F.batch_norm({i[0]}, {i[3]}, {i[4]}, {i[1]}, {i[2]}, {training}, {0.1 if training else 0.0}, {n['attr'].get('eps', 1e-5)})"


def matmul_text(n, i):
    a = n["attr"]
    left = f"{i[0]}.mT" if a.get("transpose_a") else i[0]
    right = f"{i[1]}.mT" if a.get("transpose_b") else i[1]
    return f"torch.matmul({left}, {right})"


def slice_text(n, i):
    a, rank = n["attr"], len(n["shape"])
    cut = [":"] * rank
    steps = a.get("steps") or [1] * len(a["axes"])
    for axis, start, end, step in zip(a["axes"], a["starts"], a["ends"], steps):
        cut[axis] = f"{start}:{end}:{step}"
    return f"{i[0]}[{', '.join(cut)}]"


def constant_text(n, like):
    """A number, or a tensor where `like`, an argument, lies."""
    if not n["shape"]:
        return repr(n["value"][0])
    return f"torch.tensor({n['value']}, dtype=torch.{NAMES[n['dtype']]}, device={like}.device).reshape({n['shape']})"


def gather_text(n, i, shapes):
    axis = n["attr"].get("axis", 0)
    if axis == 0 and len(shapes[n["in"][0]]) == 2:
        return f"F.embedding({i[1]}, {i[0]})"
    return f"{i[0]}.index_select({axis}, {i[1]}.reshape(-1)).reshape({n['shape']})"


def expression(n, i, shapes, like, training):
    """One node as PyTorch's user would write it. training: dropouts drop, and batch norms that are not frozen use their batch."""
    op, a, spatial = n["op"], n["attr"], len(n["shape"]) - 2
    unary = {"relu": "F.relu", "sin": "torch.sin", "exp": "torch.exp", "tanh": "torch.tanh", "sigmoid": "torch.sigmoid",
             "silu": "F.silu", "relu6": "F.relu6", "hardswish": "F.hardswish"}
    binary = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
    if op == "dropout" and training:
        return f"F.dropout({i[0]}, {a.get('alpha', 0.5)}, True)"
    if op in ("dropout", "identity"):
        return i[0]
    if op in unary:
        return f"{unary[op]}({i[0]})"
    if op in binary:
        return f"{i[0]} {binary[op]} {i[1]}"
    table = {
        "gelu": lambda: f"F.gelu({i[0]}, approximate={a.get('approximate', 'none')!r})",
        "softmax": lambda: f"F.softmax({i[0]}, {a['axis']})",
        "layernorm": lambda: norm_text(n, i, shapes),
        "batchnorm": lambda: batchnorm_text(n, i, training),
        "linear": lambda: f"F.linear({', '.join(i)})",
        "matmul": lambda: matmul_text(n, i),
        "conv": lambda: conv_text(n, i, spatial),
        "maxpool": lambda: pool_text(n, i, spatial),
        "avgpool": lambda: pool_text(n, i, spatial),
        "concat": lambda: f"torch.cat([{', '.join(i)}], dim={a['axis']})",
        "global_avgpool": lambda: f"{i[0]}.mean({list(range(2, 2 + spatial))}, keepdim=True)",
        "reshape": lambda: f"{i[0]}.reshape({n['shape']})",
        "transpose": lambda: f"{i[0]}.permute({a.get('perm')})",
        "cast": lambda: f"{i[0]}.to(torch.{NAMES[a['to']]})",
        "constant": lambda: constant_text(n, like),
        "gather": lambda: gather_text(n, i, shapes),
        "broadcast": lambda: f"torch.broadcast_to({i[0]}, {n['shape']})",
        "split": lambda: f"torch.split({i[0]}, {a['sizes']}, {a['axis']})",
        "slice": lambda: slice_text(n, i),
        "select": lambda: f"torch.where({i[0]}, {i[1]}, {i[2]})",
    }
    if op not in table:
        raise NotImplementedError(f"op {op}")
    return table[op]()


def attention_of(n, by, uses):
    """(q, k, v, scale, mask) where matmul n ends softmax(q k^T scale + mask) v, else None; uses: readers of each value."""
    def alone(k, op):
        return k in by and by[k]["op"] == op and uses.get(k) == 1

    def number(k):
        return by[k]["value"][0] if k in by and by[k]["op"] == "constant" and not by[k]["shape"] else None

    if n["op"] != "matmul" or n["attr"].get("transpose_a") or n["attr"].get("transpose_b") or not alone(n["in"][0], "softmax"):
        return None
    p, mask, scale = by[n["in"][0]], None, 1.0
    s = p["in"][0]
    if p["attr"].get("axis") != len(p["shape"]) - 1:
        return None
    if alone(s, "add"):
        scores = [k for k in by[s]["in"] if alone(k, "mul") or alone(k, "matmul")]
        if len(scores) != 1:
            return None
        mask = next(k for k in by[s]["in"] if k != scores[0])
        s = scores[0]
    if alone(s, "mul"):
        x, y = by[s]["in"]
        scale, s = (number(y), x) if number(y) is not None else (number(x), y)
    if scale is None or not alone(s, "matmul") or by[s]["attr"].get("transpose_a") or not by[s]["attr"].get("transpose_b"):
        return None
    return by[s]["in"][0], by[s]["in"][1], n["in"][1], scale, mask, s


def attentions(cell):
    """What PyTorch's user writes as F.scaled_dot_product_attention: {value: text}, and the values that it computes within."""
    by, uses, texts, within = {n["out"]: n for n in cell["graph"]}, {}, {}, set()
    for k in [k for n in cell["graph"] for k in n.get("in", [])] + list(cell["outputs"]):
        uses[k] = uses.get(k, 0) + 1
    for n in cell["graph"]:
        found = attention_of(n, by, uses) if "key" not in n else None
        if not found:
            continue
        q, k, v, scale, mask, first = found
        like = "" if mask is None or by.get(mask, {}).get("dtype") == "bool" else f".to(v{q}.dtype)"
        more = "" if mask is None else f"attn_mask=v{mask}{like}, "
        texts[n["out"]] = f"F.scaled_dot_product_attention(v{q}, v{k}, v{v}, {more}scale={scale!r})"
        at = n["in"][0]
        while at != first:  # the softmax, the mask's sum, the scale
            within.add(at)
            at = next(x for x in by[at]["in"] if x == first or (x != mask and by.get(x, {}).get("op") in ("add", "mul")))
        within.add(first)
    return texts, within


def program(cell, channels_last, half, training=False):
    """(text, input leaves, weight leaves): def f(inputs..., weights...) of a cell's graph; in training mode, where it is to be trained."""
    inputs, weights, lines, shapes = [], [], [], {}
    nodes = {n["out"]: n["dtype"] for n in cell["graph"]}
    leaves = {n["out"]: n for n in cell["graph"] if "key" in n}
    attended, within = attentions(cell)
    for n in cell["graph"]:
        shapes[n["out"]] = n["shape"]
        if n["out"] in within:
            continue
        if n["op"] == "gather" and n["in"][1] in leaves:
            index = leaves[n["in"][1]]
            index["below"] = min(index.get("below", 10), shapes[n["in"][0]][n["attr"].get("axis", 0)])
        if "key" in n:
            (inputs if n["op"] == "input" else weights).append(n)
            if n["op"] == "input" and half and n["dtype"] == "f32":
                lines.append(f"    v{n['out']} = v{n['out']}.to(torch.{NAMES[half]})")
            if n["op"] == "input" and channels_last and len(n["shape"]) == 4:
                lines.append(f"    v{n['out']} = v{n['out']}.contiguous(memory_format=torch.channels_last)")
            continue
        like = f"v{inputs[0]['out']}"
        results = ", ".join(f"v{n['out'] + k}" for k in range(n["n_out"])) + ("," if n["op"] == "split" and n["n_out"] == 1 else "")
        if n["n_out"] > 1 and n["op"] != "split":  # lstm: PyTorch's includes the product with x
            raise NotImplementedError(f"op {n['op']}")
        for k in range(1, n["n_out"]):
            shapes[n["out"] + k] = [n["attr"]["sizes"][k] if d == n["attr"]["axis"] else e for d, e in enumerate(n["shape"])]
        train = training and not (n["op"] == "batchnorm" and leaves.get(n["in"][3], {}).get("frozen"))
        if n["out"] in attended:
            lines.append(f"    {results} = {attended[n['out']]}")
            continue
        lines.append(f"    {results} = {expression(n, [f'v{k}' for k in n['in']], shapes, like, train)}")
    head = ", ".join(f"v{n['out']}" for n in inputs + weights)
    out, last = cell["outputs"][0], next(n for n in cell["graph"] if n["out"] == cell["outputs"][0])
    if training and last["op"] == {"cross_entropy": "softmax", "bce": "sigmoid"}.get(cell["loss"]):
        out = last["in"][0]  # the loss has its own
    result = f"v{out}"
    tail = f"    return {result}.to(torch.{NAMES[nodes[out]]}).contiguous()"
    return "\n".join([f"def f({head}):", *lines, tail, ""]), inputs, weights


# ---- timing: measure.c's ------------------------------------------------------------------------------------------------

def once(fn, n):
    t0 = time.perf_counter_ns()
    fn(n)
    return (time.perf_counter_ns() - t0) * 1e-6


def timed(fn, ms):
    one, spent, i = math.inf, 0.0, 0
    while i < WARM_RUNS and (i < 1 or spent < 4 * ms):
        t = once(fn, 1)
        one, spent, i = min(one, t), spent + t, i + 1
    n = int(max(1, min(MOST_RUNS, ms / BURSTS / max(one, 1e-4))))
    at, spent = [], 0.0
    while len(at) < BURSTS and (not at or spent < 3 * ms):
        at.append(once(fn, n))
        spent += at[-1]
    at.sort()
    return {"median_ms": at[len(at) // 2] / n, "least_ms": at[0] / n, "most_ms": at[-1] / n, "runs": n * len(at)}


# ---- training -----------------------------------------------------------------------------------------------------------

def loss_text(kind):
    return {"cross_entropy": "F.cross_entropy(y, t)", "mse": "F.mse_loss(y, t)",
            "bce": "F.binary_cross_entropy_with_logits(y, t)"}[kind]


class Training:
    """Steps of a cell's model by autograd and torch.optim: cell has "graph", "outputs", "loss", "optimizer", "momentum" and "target".
    half: by autocast, with f32 weights; of f16 with a gradient scaler."""

    def __init__(self, cell, dev, base, half=None, channels_last=False):
        text, inputs, weights = program(cell, channels_last, None, True)
        text += f"def loss_of(y, t):\n    return {loss_text(cell['loss'])}\n"
        space = {"torch": torch, "F": torch.nn.functional}
        exec(compile(text, "<training>", "exec"), space)
        classes = next(n for n in cell["graph"] if n["out"] == cell["outputs"][0])["shape"]
        target = dict(cell["target"], below=classes[1]) if cell["loss"] == "cross_entropy" else cell["target"]
        self.dev, self.base = dev, base
        self.host = [generate(n, torch.device("cpu")) for n in inputs + [target]]
        if cell["loss"] == "bce":
            self.host[-1] = (self.host[-1] + 1) / 2
        self.x = [v.to(dev.torch) for v in self.host]
        still = {k for n in cell["graph"] if n["op"] == "batchnorm" for k in n["in"][3:5]}
        self.w = []
        for n in weights:
            v = generate(n, dev.torch)
            if channels_last and v.dim() == 4:
                v = v.contiguous(memory_format=torch.channels_last)
            floats = n["dtype"] in ("f16", "bf16", "f32", "f64")
            self.w.append(v.requires_grad_(floats and n["out"] not in still and not n.get("frozen")))
        self.f, self.loss_of = space["f"], space["loss_of"]
        trained = [v for v in self.w if v.requires_grad]
        make = {"sgd": lambda: torch.optim.SGD(trained, 0.0, momentum=cell.get("momentum") or 0),
                "adam": lambda: torch.optim.Adam(trained, 0.0, capturable=dev.gpu),
                "adamw": lambda: torch.optim.AdamW(trained, 0.0, capturable=dev.gpu)}
        self.opt = make[cell["optimizer"]]()
        self.update, self.half = self.opt.step, half
        self.scaler = torch.amp.GradScaler(dev.torch.type) if half == "f16" else None
        if base != "eager":
            self.whole = torch.compile(lambda *v: self.loss_of(self.f(*v[:-1], *self.w), v[-1]), dynamic=False)
            self.update = torch.compile(lambda: self.opt.step())

    def loss(self):
        with torch.autocast(self.dev.torch.type, DTYPES[self.half] if self.half else None, enabled=self.half is not None):
            if self.base != "eager":
                return self.whole(*self.x)
            return self.loss_of(self.f(*self.x[:-1], *self.w), self.x[-1])

    def step(self):
        self.opt.zero_grad()
        loss = self.loss()
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.opt)
            self.scaler.update()
            return loss
        loss.backward()
        self.update()
        return loss

    def parts(self):
        """Times of one eager step: copies of the batch, zero_grad, forward, loss, backward, optimizer, in ms."""
        out, t = {}, time.perf_counter_ns()

        def done(name):
            nonlocal t
            self.dev.wait()
            now = time.perf_counter_ns()
            out[name], t = (now - t) * 1e-6, now
        for a, b in zip(self.x, self.host):
            a.copy_(b)
        done("data_ms")
        self.opt.zero_grad()
        done("zero_grad_ms")
        if self.base == "eager":
            y = self.f(*self.x[:-1], *self.w)
            done("forward_ms")
            loss = self.loss_of(y, self.x[-1])
            done("loss_ms")
        else:  # one program
            loss = self.loss()
            done("forward_ms")
        loss.backward()
        done("backward_ms")
        self.update()
        done("optimizer_ms")
        return out


class Device:
    """A GPU, or the CPU for trying this file out."""

    def __init__(self, name):
        self.gpu = name == "cuda"
        self.torch = torch.device(name)
        self.nvml = None
        self.broken = False  # for tests: as after an illegal address, which ends a context
        if self.gpu:
            torch.cuda.set_device(0)
            self.open_nvml()

    def open_nvml(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
            self.handle = (pynvml.nvmlDeviceGetHandleByUUID(("GPU-" + uuid).encode()) if uuid
                           else pynvml.nvmlDeviceGetHandleByIndex(0))
            self.nvml = pynvml
        except Exception as e:  # no reading then; times are what counts
            say(f"no NVML in Python: {e}")

    def wait(self):
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered (of a test)")
        if self.gpu:
            torch.cuda.synchronize()

    def lost(self):
        """After an error: is the context dead? Only another process has a new one."""
        try:
            self.wait()
            return False
        except Exception:
            return True

    def joules(self):
        try:
            return self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) * 1e-3 if self.nvml else None
        except Exception:
            return None

    def clear(self):
        if self.gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def allocated(self):
        return torch.cuda.memory_allocated() if self.gpu else 0

    def peak(self):
        return torch.cuda.max_memory_allocated() if self.gpu else None


def energy(dev, run, one_ms, ms):
    """Joules of a run and watts over at least `ms` of runs, by the GPU's counter."""
    before = dev.joules()
    if before is None:
        return {}
    n, runs, t0 = int(max(1, min(1e6, 20 / max(one_ms, 1e-4)))), 0, time.perf_counter()
    while time.perf_counter() < t0 + ms * 1e-3:
        for _ in range(n):
            run()
        dev.wait()
        runs += n
    j, seconds = dev.joules() - before, time.perf_counter() - t0
    return {"joules": j / runs, "watts": j / seconds}


def times_of(dev, run, copied, ms, pipelined=None):
    """run(): one run, given to the device. copied(): inputs up, a run, the output down. pipelined(n): n of these, side by side."""
    def waited(n):
        for _ in range(n):
            run()
            dev.wait()

    def queued(n):
        for _ in range(n):
            run()
        dev.wait()

    def with_copies(n):
        for _ in range(n):
            copied()
        dev.wait()
    out = {"waited": timed(waited, ms), "queued": timed(queued, ms)}
    if copied:
        out["copied"] = timed(with_copies, ms)
    if pipelined:
        out["streamed"] = timed(pipelined, ms)
    return out


def pipeline(dev, fn, host):
    """n runs with copies of pinned memory on two other streams: what nnc's "streamed" does."""
    up, down, main = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()
    pinned, out = [v.pin_memory() for v in host], []

    def runs(n):
        for i in range(n):
            with torch.cuda.stream(up):
                x = [v.to(dev.torch, non_blocking=True) for v in pinned]
            main.wait_stream(up)
            for v in x:
                v.record_stream(main)
            y = fn(*x)
            down.wait_stream(main)
            y.record_stream(down)
            if len(out) < 2:
                out.append(torch.empty_like(y, device="cpu", pin_memory=True))
            with torch.cuda.stream(down):
                out[i % len(out)].copy_(y, non_blocking=True)
        dev.wait()
    return runs


# ---- one cell ----------------------------------------------------------------------------------------------------------

def sample_of(y, n_sample):
    """The elements that bench_device keeps."""
    flat, n = y.reshape(-1), y.numel()
    last = n_sample - 1
    where = [(n - 1) // last * i + (n - 1) % last * i // last for i in range(n_sample)]
    return [float(v) for v in flat[torch.tensor(where, device=flat.device)].double().cpu()]


def nmse(got, want):
    d = w = 0.0
    for a, b in zip(got, want):
        if b is None or not math.isfinite(a):
            return 1e300  # JSON has no infinity
        d += (a - b) ** 2
        w += b * b
    return d / w if w else d


def capture(dev, fn, args):
    """fn(*args) as a CUDA graph: (replay, its output)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            fn(*args)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fn(*args)
    return graph.replay, y


class Model(torch.nn.Module if torch else object):
    """f(inputs..., weights...) with the weights inside, which freezing asks for."""

    def __init__(self, f, weights):
        super().__init__()
        self.f, self.names = f, [f"w{k}" for k in range(len(weights))]
        for name, v in zip(self.names, weights):  # one by one: PyTorch 2.11's compiler does not unpack a ParameterList
            self.register_parameter(name, torch.nn.Parameter(v, requires_grad=False))

    def forward(self, *x):
        return self.f(*x, *[getattr(self, name) for name in self.names])


def compiled(fn, base):
    if base == "eager":
        return fn
    import torch._inductor.config  # noqa: F401
    torch._inductor.config.freezing = True  # weights are constants, as in nnc: batch norms folded, layouts settled
    mode = "max-autotune-no-cudagraphs" if base == "tuned" else None
    return torch.compile(fn, mode=mode, dynamic=False)


def half_of(cell):
    return cell["precision"] if cell["precision"] in ("f16", "bf16") else None


def set_up(dev, cell):
    """PyTorch's switches for a cell: (16 bits or None, whether images are channels-last, whether f32 products may be in tf32)."""
    fast, half = cell["precision"] == "tf32" or cell["math"] == "fast", half_of(cell)
    torch.set_float32_matmul_precision("high" if fast else "highest")
    torch.backends.cudnn.allow_tf32 = fast
    torch.backends.cudnn.benchmark = True  # its algorithms are measured, in the first runs
    dev.clear()
    return half, dev.gpu and (fast or half is not None), fast


def training_of(dev, cell, base, half, last):
    return Training({**cell["nnc"], **cell["nnc"]["training"]}, dev, base, half, last)


def model_of(dev, cell, base, half, last):
    """(compiled function, its inputs)"""
    text, inputs, weights = program(cell["nnc"], last, half)
    space = {"torch": torch, "F": torch.nn.functional}
    exec(compile(text, f"<{cell['id']}>", "exec"), space)
    x = [generate(n, dev.torch) for n in inputs]
    w = [generate(n, dev.torch) for n in weights]
    if half:
        w = [v.to(DTYPES[half]) if v.dtype == torch.float32 else v for v in w]
    if last:
        w = [v.contiguous(memory_format=torch.channels_last) if v.dim() == 4 else v for v in w]
    return compiled(Model(space["f"], w).eval(), base), x


def warm(dev, run, args):
    """The clocks of an idle GPU are low."""
    end = time.perf_counter() + (args.warm * 1e-3 if dev.gpu else 0)
    while time.perf_counter() < end:
        run()
        dev.wait()


def make_ready(dev, cell, base, keep=False):
    """What is timed of a cell, compiled and run once. keep: beside others that stay compiled."""
    half, last, fast = set_up(dev, cell)
    if base != "eager" and not keep:
        torch._dynamo.reset()
    before, t0 = dev.allocated(), time.perf_counter()
    ready = {"step": None, "fn": None}
    if "training" in cell["nnc"]:
        with torch.enable_grad():
            ready["step"] = training_of(dev, cell, base, half, last)
            ready["step"].step()
    else:
        ready["fn"], ready["x"] = model_of(dev, cell, base, half, last)
        ready["fn"](*ready["x"])
    dev.wait()
    ready["bytes"] = dev.peak() - before if dev.gpu else None
    ready["about"] = {"first_ms": (time.perf_counter() - t0) * 1e3, "tf32": fast, "half": half, "channels_last": last}
    return ready


def measure_training(dev, cell, t, ready, args):
    """Times of a training step, updates included: as calls, and as a replayed CUDA graph."""
    with torch.enable_grad():
        out = {**ready["about"], "nmse_to_nnc": nmse([float(t.step().detach())], cell["nnc"]["output"]["sample"][:1])}
        warm(dev, t.step, args)
        out["calls"] = times_of(dev, t.step, None, args.duration)
        out["device_bytes"] = ready["bytes"]
        if dev.gpu and not t.scaler:  # a scaler asks on the host whether gradients are finite
            out["graph"] = measure_graph(dev, cell, t.step, [], None, args)
    return out


def measure(dev, cell, ready, args):
    """All times of a cell: as calls, and as a replayed CUDA graph."""
    set_up(dev, cell)
    if ready["step"]:
        return measure_training(dev, cell, ready["step"], ready, args)
    fn, x, want = ready["fn"], ready["x"], cell["nnc"]["output"]["sample"]
    out = {**ready["about"], "nmse_to_nnc": nmse(sample_of(fn(*x), len(want)), want)}
    host = [v.cpu() for v in x] if " io " in cell["flags"] else None

    def copied():
        return fn(*[v.to(dev.torch) for v in host]).cpu()
    warm(dev, lambda: fn(*x), args)
    side = pipeline(dev, fn, host) if host and dev.gpu else None
    out["calls"] = times_of(dev, lambda: fn(*x), copied if host else None, args.duration, side)
    out["device_bytes"] = ready["bytes"]
    if " energy " in cell["flags"] and dev.gpu:
        out["calls"].update(energy(dev, lambda: fn(*x), out["calls"]["queued"]["median_ms"], args.duration * 20))
    if dev.gpu:
        out["graph"] = measure_graph(dev, cell, fn, x, host, args)
    return out


def measure_graph(dev, cell, fn, x, host, args):
    try:
        replay, y = capture(dev, fn, x)
    except Exception as e:
        torch.cuda.synchronize()
        return {"failed": f"{type(e).__name__}: {e}"[:300]}

    def copied():
        for a, b in zip(x, host):
            a.copy_(b)
        replay()
        return y.cpu()
    out = times_of(dev, replay, copied if host else None, args.duration)
    if " energy " in cell["flags"]:
        out.update(energy(dev, replay, out["queued"]["median_ms"], args.duration * 20))
    return out


# ---- all cells ---------------------------------------------------------------------------------------------------------

class Results:
    def __init__(self, args):
        self.args, self.end = args, args.end
        self.made = self.failed = self.kept = self.left = 0

    def path(self, name, ending):
        return os.path.join(self.args.out, f"{name}.{ending}")

    def begin(self, name):
        if os.path.exists(self.path(name, "json")):
            self.kept += 1
            return False
        if time.monotonic() > self.end:
            self.left += 1
            return False
        open(self.path(name, "running"), "w").close()
        signal.alarm(self.args.limit)
        return True

    def put(self, name, data):
        signal.alarm(0)
        with open(self.path(name, "new"), "w") as f:
            json.dump({"id": name, **data}, f, indent=1)
        os.replace(self.path(name, "new"), self.path(name, "json"))
        os.unlink(self.path(name, "running"))
        if "failed" in data:
            self.failed += 1
            say(f"{name}: {data['failed']}")
        else:
            self.made += 1


def wants(cell, base, only):
    wanted = {"eager": " peer ", "compile": " compiled ", "tuned": " tuned "}[base]
    return wanted in cell["flags"] and all(f" {flag} " in cell["flags"] for flag in (only or "").split(",") if flag)


def run_cell(dev, base, cell, ready, results, args):
    """Measures a cell that results has begun; ready None: it is made so."""
    name = f"{base},{cell['id']}"
    try:
        with open(os.path.join(args.nnc, cell["id"] + ".json")) as f:
            cell["nnc"] = json.load(f)
        if "failed" in cell["nnc"]:
            raise RuntimeError("nnc has no result for this cell")
        dev.broken |= os.environ.get("FAKE_PEER_BREAK", "\n") in cell["id"]
        t0 = time.perf_counter()
        out = measure(dev, cell, ready or make_ready(dev, cell, base), args)
        results.put(name, {"cell": cell["id"], "base": base, **out, "seconds": time.perf_counter() - t0})
    except Exception as e:
        results.put(name, {"cell": cell["id"], "base": base, "failed": f"{type(e).__name__}: {e}"[:400]})
        if dev.lost():
            say("the device's context is dead")
            sys.exit(76)


def run_base(dev, base, cells, results, args):
    for cell in cells:
        if wants(cell, base, args.only) and results.begin(f"{base},{cell['id']}"):
            run_cell(dev, base, cell, None, results, args)


# ---- compiling beside each other, measuring alone --------------------------------------------------------------------------

def prepare_some(dev, cells, args):
    """Compiles this process's share of the cells: [(base, cell, ready)]. max-autotune measures kernels meanwhile: it has cells of its own,
    which are compiled where nothing else uses the GPU."""
    jobs = [(base, c) for base in args.base or ["compile"] for c in cells if base != "eager" and wants(c, base, args.only)]
    made = []
    for base, cell in jobs[args.share::args.prepare]:
        if time.monotonic() > args.end:
            break
        try:
            with open(os.path.join(args.graphs, cell["id"] + ".json")) as f:
                cell["nnc"] = json.load(f)
            t0 = time.perf_counter()
            made.append((base, cell, make_ready(dev, cell, base, keep=True)))
            say(f"{base},{cell['id']}: {time.perf_counter() - t0:.1f} s")
        except Exception as e:
            say(f"{base},{cell['id']}: {type(e).__name__}: {e}"[:400])
    say(f"share {args.share}: {len(made)} compiled")
    return made


def take_turns(dev, made, args):
    """Waits for the file args.hold, which says until when (seconds of the epoch), and measures what was compiled while no other process does."""
    while not os.path.exists(args.hold):
        time.sleep(0.1)
    with open(args.hold, "r+") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        args.end = time.monotonic() + float(turn.read() or 0) - time.time()
        results = Results(args)
        for base, cell, ready in made:
            if results.begin(f"{base},{cell['id']}"):
                run_cell(dev, base, cell, ready, results, args)
    say(f"{results.made} results, {results.failed} failures, {results.kept} there before, {results.left} left for lack of time")
    return 75 if results.left else 1 if results.failed else 0


def prepare(args):
    """Starts the processes, each with its share of the cells."""
    each = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], f"--share={k}"],
                             env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(max(1, (os.cpu_count() or 1) // args.prepare))})
            for k in range(args.prepare)]
    return max(abs(p.wait()) for p in each)


def about(dev):
    out = {"torch": torch.__version__, "python": sys.version.split()[0], "cuda": torch.version.cuda,
           "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None}
    if dev.gpu:
        out["gpu"] = torch.cuda.get_device_name(0)
    try:
        import triton
        out["triton"] = triton.__version__
    except ImportError:
        out["triton"] = None
    return out


def programs(nnc):
    """Prints the program of each of nnc's results, once for strict f32 and once for 16 bits; of what PyTorch has no function for, the reason.
    Returns the exit code."""
    failed = 0
    for name in sorted(os.listdir(nnc)):
        if not name.endswith(".json"):
            continue
        try:
            with open(os.path.join(nnc, name)) as f:
                cell = json.load(f)
            cell.update(cell.get("training") or {})
            for half in (None, "f16"):
                text = program(cell, bool(half), half, "training" in cell)[0]
                compile(text, name, "exec")
                print(f"# {name[:-5]}\n{text}")
        except NotImplementedError as e:
            say(f"{name[:-5]} is left out: {e}")
        except Exception as e:
            failed += 1
            say(f"{name[:-5]}: {type(e).__name__}: {e}")
    return 1 if failed else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cells", required=True)
    p.add_argument("--nnc", required=True)
    p.add_argument("--out", help="folder of results")
    p.add_argument("--prepare", type=int, metavar="N", help="compile in N processes beside each other")
    p.add_argument("--hold", metavar="FILE", help="of --prepare: measure once it is there")
    p.add_argument("--graphs", metavar="DIR", help="of --prepare: graphs of the cells, which nnc has not measured yet")
    p.add_argument("--share", type=int, help="of --prepare: the cells of this process")
    p.add_argument("--device", default="cuda")
    p.add_argument("--base", action="append", choices=["eager", "compile", "tuned"])
    p.add_argument("--only", help="flag that cells must have")
    p.add_argument("--duration", type=float, default=60)
    p.add_argument("--warm", type=float, default=200)
    p.add_argument("--limit", type=int, default=90)
    p.add_argument("--deadline", type=float, default=0)
    args = p.parse_args()
    args.end = time.monotonic() + args.deadline if args.deadline else math.inf
    if args.prepare and args.share is None:
        return prepare(args)
    if not args.out or (args.prepare and not (args.hold and args.graphs)):
        p.error("--out=FOLDER is missing, or of --prepare --hold=FILE or --graphs=DIR")
    if args.device == "cuda" and not torch.cuda.is_available():
        say("PyTorch finds no GPU: peers are left out")
        return 0
    dev = Device(args.device)
    with open(args.cells) as f:
        cells = json.load(f)
    if args.prepare:
        with torch.no_grad():
            return take_turns(dev, prepare_some(dev, cells, args), args)
    with open(os.path.join(args.out, "about"), "w") as f:
        json.dump(about(dev), f)
    results = Results(args)
    with torch.no_grad():
        for base in args.base or ["eager", "compile", "tuned"]:
            run_base(dev, base, cells, results, args)
    say(f"{results.made} results, {results.failed} failures, {results.kept} there before, {results.left} left for lack of time")
    return 75 if results.left else 1 if results.failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--programs"] and sys.argv[2:] and sys.argv[2].startswith("--nnc="):
        sys.exit(programs(sys.argv[2][len("--nnc="):]))
    if torch is None:
        say(f"no PyTorch in {sys.executable}: peers are left out")
        sys.exit(0)
    DTYPES = {k: getattr(torch, v) for k, v in NAMES.items()}
    sys.exit(main())
