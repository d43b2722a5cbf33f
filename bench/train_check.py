#!/usr/bin/env python3
"""Losses of nnc train beside PyTorch's: the same initial weights, data and order of samples.

usage: train_check.py --nnc=build/nnc [--steps=200] [--threads=N] [--only=NAME,...]   (needs PyTorch and numpy)

NAME is a model (all its optimizers), an optimizer (of all models), or a row: resnet50/adamw.

Prints the loss of both after some steps, and the largest differences: within the first ten steps and of all, of nnc and PyTorch's f32; of each
of the two and PyTorch in f64; and of PyTorch's f32 with the rows of each batch in other orders, which changes nothing but the rounding of sums. Training amplifies
rounding errors, so that later losses of two right programs differ; where a relu's operand is nearly 0, or two places of a max pooling are nearly
equal, a rounding error decides which way a gradient goes, and that is a matter of chance in each program. The last column shows what it makes of
PyTorch: the largest of at least 2 draws, and of up to 16 while nnc is farther off than 3 times that. Exit code 1 where losses of the first ten
steps differ by more than 1e-4 of the loss, or nnc's are 3 times farther from f64 than those of PyTorch in any order. resnet50 at 32x32 runs only where --only names it: its last layers normalise by as many numbers a channel as there are images,
so that rounding errors of any program become errors of percents in gradients (PyTorch's f32 with 8 images: 1.6 % in the first step), and
only the distances from f64 are compared: nnc's may be three times PyTorch's."""
import argparse, copy, json, os, subprocess, sys, tempfile
import numpy as np
import torch
from torch import nn


def mlp():
    layers = [{"op": "linear", "name": "fc1", "out": 64}, "relu", {"op": "linear", "name": "fc2", "out": 10}]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(64, 64), nn.Linear(64, 10)

        def forward(self, x):
            return self.fc2(torch.relu(self.fc1(x)))
    return Net(), layers, (64,)


def cnn():
    layers = [{"op": "conv", "name": "c1", "channels": 16, "kernel": 3, "pad": 1, "bias": False}, {"op": "batchnorm", "name": "b1"},
              "relu", {"op": "maxpool", "kernel": 3, "stride": 2, "pad": 1},
              {"op": "conv", "name": "c2", "channels": 32, "kernel": 3, "stride": 2, "pad": 1, "groups": 2},
              {"op": "batchnorm", "name": "b2"}, "silu", {"op": "avgpool", "kernel": 2}, "flatten",
              {"op": "linear", "name": "fc", "out": 10}]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.b1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
            self.c2, self.b2 = nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=2), nn.BatchNorm2d(32)
            self.fc = nn.Linear(32 * 2 * 2, 10)

        def forward(self, x):
            x = nn.functional.max_pool2d(torch.relu(self.b1(self.c1(x))), 3, 2, 1)
            x = nn.functional.avg_pool2d(nn.functional.silu(self.b2(self.c2(x))), 2)
            return self.fc(x.flatten(1))
    return Net(), layers, (3, 16, 16)


def encoder():
    layers = [{"op": "linear", "name": "embed", "out": 32},
              {"name": "block", "layers": [
                  {"op": "layernorm", "name": "n1"}, {"op": "multihead_attention", "name": "attn", "heads": 4},
                  {"op": "add", "name": "r1", "in": ["attn", "input"]}, {"op": "layernorm", "name": "n2"},
                  {"op": "linear", "name": "fc1", "out": 64}, "gelu", {"op": "linear", "name": "fc2", "out": 32},
                  {"op": "add", "in": ["prev", "r1"]}]},
              {"op": "reduce_mean", "axes": [1], "keepdims": False}, {"op": "linear", "name": "head", "out": 10}]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(32), nn.LayerNorm(32)
            self.attn = nn.MultiheadAttention(32, 4, batch_first=True)
            self.fc1, self.fc2 = nn.Linear(32, 64), nn.Linear(64, 32)

        def forward(self, x):
            h = self.n1(x)
            x = x + self.attn(h, h, h, need_weights=False)[0]
            return x + self.fc2(nn.functional.gelu(self.fc1(self.n2(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.block, self.head = nn.Linear(16, 32), Block(), nn.Linear(32, 10)

        def forward(self, x):
            return self.head(self.block(self.embed(x)).mean(1))
    return Net(), layers, (12, 16)


def recurrent():
    layers = [{"op": "lstm", "name": "a", "hidden": 24, "num_layers": 2, "bidirectional": True, "batch_first": True},
              {"op": "gru", "name": "b", "hidden": 20, "batch_first": True}, {"op": "rnn", "name": "c", "hidden": 16, "batch_first": True},
              {"op": "reduce_mean", "axes": [1], "keepdims": False}, {"op": "linear", "name": "head", "out": 10}]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.LSTM(16, 24, 2, bidirectional=True, batch_first=True), nn.GRU(48, 20, batch_first=True)
            self.c, self.head = nn.RNN(20, 16, batch_first=True), nn.Linear(16, 10)

        def forward(self, x):
            return self.head(self.c(self.b(self.a(x)[0])[0])[0].mean(1))
    return Net(), layers, (11, 16)


def resnet50():
    """torchvision's, with 10 classes; the layers are models/resnet50.json."""
    class Bottleneck(nn.Module):
        def __init__(self, n_in, n, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(n_in, n, 1, bias=False), nn.BatchNorm2d(n)
            self.conv2, self.bn2 = nn.Conv2d(n, n, 3, stride, 1, bias=False), nn.BatchNorm2d(n)
            self.conv3, self.bn3 = nn.Conv2d(n, 4 * n, 1, bias=False), nn.BatchNorm2d(4 * n)
            if stride > 1 or n_in != 4 * n:
                self.downsample = nn.Sequential(nn.Conv2d(n_in, 4 * n, 1, stride, bias=False), nn.BatchNorm2d(4 * n))

        def forward(self, x):
            y = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
            return torch.relu(self.bn3(self.conv3(y)) + (self.downsample(x) if hasattr(self, "downsample") else x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
            n_in = 64
            for i, blocks in enumerate((3, 4, 6, 3)):
                n = 64 << i
                setattr(self, "layer%d" % (i + 1), nn.Sequential(
                    *[Bottleneck(n_in if b == 0 else 4 * n, n, 2 if i and b == 0 else 1) for b in range(blocks)]))
                n_in = 4 * n
            self.fc = nn.Linear(2048, 10)

        def forward(self, x):
            x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
            return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))
    return Net(), None, (3, 32, 32)


MODELS = {"mlp": mlp, "cnn": cnn, "encoder": encoder, "recurrent": recurrent, "resnet50": resnet50}
LARGE = {"resnet50": {"momentum": 1e-4, "adamw": 1e-5}}  # only with these learning rates, and where --only names them


def warmed(make):
    """20 steps of warm-up, then make(optimizer)."""
    def of(o):
        warm = torch.optim.lr_scheduler.LinearLR(o, 1 / 20, 1, 19)
        return torch.optim.lr_scheduler.SequentialLR(o, [warm, make(o)], [20])
    return of


LR = torch.optim.lr_scheduler
SGD = lambda p: torch.optim.SGD(p, 0.05)
# name: flags of nnc, PyTorch's optimizer, and what a step does beyond: schedule, batches that it accumulates, clipping
OPTIMIZERS = {
    "sgd": (["--lr=0.05"], SGD, {}),
    "momentum": (["--lr=0.01", "--momentum=0.9"], lambda p: torch.optim.SGD(p, 0.01, momentum=0.9), {}),
    "nesterov": (["--lr=0.02", "--momentum=0.9", "--nesterov", "--weight-decay=1e-3"],
                 lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True, weight_decay=1e-3), {}),
    "momentum_clip": (["--lr=0.02", "--momentum=0.9", "--clip-norm=0.5"], lambda p: torch.optim.SGD(p, 0.02, momentum=0.9), {"clip": 0.5}),
    "adam": (["--lr=1e-3", "--optimizer=adam", "--weight-decay=1e-2", "--clip-norm=1"],
             lambda p: torch.optim.Adam(p, 1e-3, weight_decay=1e-2), {"clip": 1}),
    "adamw": (["--lr=1e-3", "--optimizer=adamw", "--weight-decay=0.05"], lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.05), {}),
    "every": (["--lr=0.05", "--schedule=step", "--decay-every=4", "--gamma=0.5"], SGD, {"lr": lambda o: LR.StepLR(o, 40, 0.5)}),
    "at": (["--lr=0.05", "--schedule=step", "--decay-at=15steps,8"], SGD, {"lr": lambda o: LR.MultiStepLR(o, [15, 80], 0.1)}),
    "cosine": (["--lr=0.05", "--schedule=cosine", "--min-lr=0.001"], SGD,
               {"lr": lambda o: LR.CosineAnnealingLR(o, STEPS, 0.001)}),
    "warm_cosine": (["--lr=0.05", "--schedule=cosine", "--warmup-steps=20"], SGD,
                    {"lr": warmed(lambda o: LR.CosineAnnealingLR(o, STEPS - 20))}),
    "ignore": (["--lr=0.05", "--momentum=0.9", "--ignore-index=-100"], lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), {"ignore": True}),
    "loss_scale": (["--lr=1e-3", "--optimizer=adamw", "--loss-scale=1e38"], lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0),
                   {"scale": 1e38}),
    "accumulate": (["--lr=0.02", "--momentum=0.9", "--accumulate=4", "--clip-norm=0.5"],
                   lambda p: torch.optim.SGD(p, 0.02, momentum=0.9), {"accumulate": 4, "clip": 0.5}),
}


def torch_losses(net, make, more, x, y, batch, steps):
    parts, out = more.get("accumulate", 1), []
    opt, n = make(net.parameters()), len(x) // (batch * parts)
    rates = more["lr"](opt) if "lr" in more else None
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    scaler, scale, good = "scale" in more, more.get("scale", 1.0), 0
    net.train()
    for step in range(steps):
        opt.zero_grad()
        total = 0
        for k in range(parts):
            at = (step % n * parts + k) * batch
            loss = loss_of(net(torch.from_numpy(x[at:at + batch])), torch.from_numpy(y[at:at + batch]))
            (loss / parts * scale).backward()
            total += loss.item() / parts
        if "clip" in more:
            nn.utils.clip_grad_norm_(net.parameters(), more["clip"])
        if scaler:  # torch.amp.GradScaler, which needs a GPU
            for q in net.parameters():
                q.grad /= scale
            ok = all(torch.isfinite(q.grad).all() for q in net.parameters())
            good = good + 1 if ok else 0
            scale = scale if ok else scale / 2
            if good == 2000:
                scale, good = scale * 2, 0
            out.append(total)
            if ok:
                opt.step()
            continue
        opt.step()
        if rates:
            rates.step()
        out.append(total)
    return np.array(out)


def in_other_order(x, y, batch, draw):
    """The same batches, their rows in another order: the same losses but for rounding."""
    rng = np.random.default_rng(draw)
    order = np.concatenate([at + rng.permutation(batch) for at in range(0, len(x), batch)])
    return x[order], y[order]


def with_rate(o, rate):
    for g in o.param_groups:
        g["lr"] = rate
    return o


def save_weights(file, net):
    np.savez(file, **{k: v.numpy() for k, v in net.state_dict().items() if "num_batches" not in k})


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nnc", default="build/nnc")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", default="")
    p.add_argument("--flags", default="")
    a = p.parse_args()
    global STEPS
    STEPS = a.steps
    torch.set_num_threads(a.threads)
    bad = 0
    only = [n for n in a.only.split(",") if n]
    print("%-20s %s" % ("", "loss of nnc and PyTorch at steps 1, 10, 50, last | largest relative difference within 10 steps, and of all | of f64: nnc, PyTorch, PyTorch in other orders"))
    with tempfile.TemporaryDirectory() as d:
        for name, make_net in MODELS.items():
            for opt, (flags, make_opt, more) in OPTIMIZERS.items():
                large = name in LARGE
                wanted = name in only or name + "/" + opt in only
                if (only and not wanted and opt not in only) or (large and (not wanted or opt not in LARGE[name])):
                    continue
                batch, rows = 32, 320
                if large:
                    rate, plain = LARGE[name][opt], make_opt
                    flags = ["--lr=%g" % rate] + [g for g in flags if not g.startswith("--lr=")]
                    make_opt = lambda p, plain=plain, rate=rate: with_rate(plain(p), rate)
                torch.manual_seed(1)
                net, layers, shape = make_net()
                rng = np.random.default_rng(2)
                y = rng.integers(0, 10, rows)
                x = (rng.normal(size=(10, *shape))[y] + rng.normal(size=(rows, *shape))).astype(np.float32)
                if "ignore" in more:
                    y[::7] = -100
                np.savez(d + "/data.npz", x=x, target=y)
                save_weights(d + "/w.npz", net)
                model = [d + "/m.json"]
                if large:
                    model = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", name + ".json"), "--set=batch=%d" % batch,
                             "--set=image=%d" % shape[1], "--set=classes=10"]
                else:
                    json.dump({"inputs": {"x": [batch, *shape]}, "layers": layers}, open(d + "/m.json", "w"))
                cmd = [a.nnc, "train", *model, "--weights=" + d + "/w.npz", "--data=" + d + "/data.npz", "--no-shuffle",
                       "--epochs=1000", "--steps=%d" % a.steps, "--label-smoothing=0.1", "--threads=%d" % a.threads,
                       "--log=" + d + "/log", *flags, *a.flags.split()]
                r = subprocess.run(cmd, capture_output=True, text=True)
                if r.returncode:
                    print("%-20s %s" % (name + " " + opt, r.stderr.strip()))
                    bad += 1
                    continue
                got = np.array([json.loads(l)["loss"] for l in open(d + "/log") if "train_loss" not in l])
                first, exact = copy.deepcopy(net), copy.deepcopy(net).double()
                want = torch_losses(net, make_opt, more, x, y, batch, a.steps)
                exact = torch_losses(exact, make_opt, more, x.astype(np.float64), y, batch, a.steps)
                diff, far, far_torch = abs(got - want) / want, (abs(got - exact) / exact).max(), (abs(want - exact) / exact).max()
                shown = "  ".join("%.6f %.6f" % (got[i], want[i]) for i in sorted({0, 9, 49, a.steps - 1}) if i < a.steps)
                orders, draw, limit = 0, 0, 0
                while not large and (draw < 2 or (draw < 16 and far > limit)):
                    other = torch_losses(copy.deepcopy(first), make_opt, more, *in_other_order(x, y, batch, draw), batch, a.steps)
                    draw, orders = draw + 1, max(orders, (abs(other - exact) / exact).max())
                    limit = max(3 * far_torch, 3 * orders, 1e-5)
                right = far <= 3 * far_torch if large else diff[:10].max() <= 1e-4 and far <= limit
                worse = not right  # also where a loss is NaN
                bad += worse
                print("%-20s %s | %.1e %.1e | %.1e %.1e %s%s" % (name + " " + opt, shown, diff[:10].max(), diff.max(), far, far_torch,
                    "-" if large else "%.1e (of %d)" % (orders, draw), "  DIFFERS" if worse else ""), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
