#!/usr/bin/env python3
"""Gradients of nnc's ops beside PyTorch's: y = op(x + w, v), the loss is the mean of (y - target)^2, and the gradients with respect to w and v are
what a step of SGD takes from them.

usage: grad_check.py --nnc=build/nnc [--flags="--no-llvm ..."] [--only=NAME,...]   (needs PyTorch and numpy)

Prints for each op the largest difference from torch.autograd in f64, relative to the largest gradient, of nnc and of torch.autograd in f32: the
two are alike where nnc's gradient is the same function. Exit code 1 where nnc's is beyond 50 times PyTorch's and beyond 1e-5."""
import argparse, os, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

Z = (4, 6, 8)  # of most operands
IMAGE = (2, 4, 9, 8)
RATE = 256.0


def ewise():
    one = {"neg": torch.neg, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
           "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf,
           "relu": torch.relu, "relu6": lambda z: F.relu6(z), "gelu": F.gelu, "silu": F.silu, "hardswish": F.hardswish,
           "softplus": F.softplus, "softsign": F.softsign, "elu": F.elu, "selu": F.selu, "mish": F.mish, "square": torch.square, "abs": torch.abs,
           "leaky_relu": F.leaky_relu, "identity": lambda z: z * 1, "hardsigmoid": F.hardsigmoid}
    cases = {n: ("%%y = %s %%z" % n, f, Z, None, 0) for n, f in one.items()}
    cases["gelu_tanh"] = ("%y = gelu %z {approximate=tanh}", lambda z: F.gelu(z, approximate="tanh"), Z, None, 0)
    cases["clip"] = ("%y = clip %z {lo=-0.3, hi=0.4}", lambda z: torch.clip(z, -0.3, 0.4), Z, None, 0)
    positive = {"sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "recip": torch.reciprocal, "log": torch.log, "log2": torch.log2, "log1p": torch.log1p}
    cases.update({n: ("%%y = %s %%z" % n, f, Z, None, 2) for n, f in positive.items()})
    for n, f in {"asin": torch.asin, "acos": torch.acos}.items():
        cases[n] = ("%%s = constant : f32[] = [0.75]\n%%q = mul %%z, %%s\n%%y = %s %%q" % n, lambda z, f=f: f(0.75 * z), Z, None, 0)
    two = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "min": torch.minimum, "max": torch.maximum}
    for n, f in two.items():
        cases[n] = ("%%y = %s %%z, %%v" % n, f, Z, Z, 0)
        cases[n + "_broadcast"] = ("%%y = %s %%z, %%v" % n, f, Z, (6, 1), 0)
    cases["div"] = ("%y = div %z, %v", torch.div, Z, (8,), 2)
    cases["pow"] = ("%y = pow %z, %v", torch.pow, Z, (8,), 2)
    cases["prelu"] = ("%y = prelu %z, %v", lambda z, v: torch.where(z > 0, z, v * z), Z, (8,), 0)
    cases["select"] = ("%c = lt %z, %v\n%y = select %c, %z, %v", lambda z, v: torch.where(z < v, z, v), Z, Z, 0)
    return cases


def moves():
    return {
        "reshape": ("%y = reshape %z {shape=[4,48]}", lambda z: z.reshape(4, 48), Z, None, 0),
        "transpose": ("%y = transpose %z {perm=[0,2,1]}", lambda z: z.permute(0, 2, 1), Z, None, 0),
        "broadcast": ("%y = broadcast %v {shape=[4,6,8]}\n%u = add %y, %z", lambda z, v: v.expand(4, 6, 8) + z, Z, (6, 1), 0),
        "slice": ("%y = slice %z {axes=[1,2], starts=[1,0], ends=[6,8], steps=[2,3]}", lambda z: z[:, 1:6:2, ::3], Z, None, 0),
        "pad": ("%y = pad %z {pads=[0,1,2,0,0,3]}", lambda z: F.pad(z, (2, 3, 1, 0)), Z, None, 0),
        "pad_reflect": ("%y = pad %z {pads=[0,0,2,0,0,3], mode=reflect}", lambda z: F.pad(z, (2, 3), mode="reflect"), Z, None, 0),
        "concat": ("%y = concat %z, %v, %z {axis=1}", lambda z, v: torch.cat([z, v, z], 1), Z, (4, 2, 8), 0),
        "flip": ("%y = flip %z {axes=[1]}", lambda z: z.flip(1), Z, None, 0),
        "cumsum": ("%y = cumsum %z {axis=1}", lambda z: z.cumsum(1), Z, None, 0),
        "cumprod": ("%y = cumprod %z {axis=1}", lambda z: z.cumprod(1), Z, None, 2),
        "gather": ("%i = constant : i64[3] = [2, 0, 2]\n%y = gather %z, %i {axis=1}", lambda z: z[:, [2, 0, 2]], Z, None, 0),
        "gather_elements": ("%i = constant : i64[4,6,1] = [" + ", ".join(str(k * 5 % 8) for k in range(24)) + "]\n%y = gather_elements %z, %i {axis=2}",
                            lambda z: z.gather(2, torch.tensor([k * 5 % 8 for k in range(24)]).reshape(4, 6, 1)), Z, None, 0),
        "scatter_add": ("%i = constant : i64[4,1,8] = [" + ", ".join(str(k * 5 % 6) for k in range(32)) +
                        "]\n%y = scatter %z, %i, %v {axis=1, reduction=add}",
                        lambda z, v: z.scatter_add(1, torch.tensor([k * 5 % 6 for k in range(32)]).reshape(4, 1, 8), v), Z, (4, 1, 8), 0),
        "topk": ("%y, %i = topk %z {axis=2, k=3}", lambda z: z.topk(3, 2)[0], Z, None, 0),
    }


def reduces():
    cases = {}
    for n, f in {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}.items():
        cases["reduce_" + n] = ("%%y = reduce_%s %%z {axes=[1,2], keepdims=0}" % n, lambda z, f=f: f(z, (1, 2)), Z, None, 0)
        cases["reduce_%s_first" % n] = ("%%r = reduce_%s %%z {axes=[0], keepdims=1}\n%%y = add %%r, %%z" % n,
                                        lambda z, f=f: f(z, 0, keepdim=True) + z, Z, None, 0)
    cases["reduce_prod"] = ("%y = reduce_prod %z {axes=[2], keepdims=0}", lambda z: z.prod(2), Z, None, 2)
    cases["softmax"] = ("%y = softmax %z {axis=1}", lambda z: z.softmax(1), Z, None, 0)
    cases["log_softmax"] = ("%y = log_softmax %z {axis=2}", lambda z: z.log_softmax(2), Z, None, 0)
    cases["layernorm"] = ("%y = layernorm %z, %v", lambda z, v: F.layer_norm(z, (8,), v), Z, (8,), 0)
    cases["rmsnorm"] = ("%y = rmsnorm %z, %v", lambda z, v: z * torch.rsqrt((z * z).mean(-1, keepdim=True) + 1e-5) * v, Z, (8,), 0)
    cases["groupnorm"] = ("%y = groupnorm %z, %v {num_groups=2}", lambda z, v: F.group_norm(z, 2, v), IMAGE, (4,), 0)
    cases["global_avgpool"] = ("%y = global_avgpool %z", lambda z: z.mean((2, 3), keepdim=True), IMAGE, None, 0)
    cases["global_maxpool"] = ("%y = global_maxpool %z", lambda z: z.amax((2, 3), keepdim=True), IMAGE, None, 0)
    return cases


def windows():
    conv = {}
    for name, nnc, kw, k in (("conv", "", {}, (6, 4, 3, 3)), ("conv_1x1", "", {}, (6, 4, 1, 1)),
                             ("conv_pad", "pads=[1,1,1,1]", {"padding": 1}, (6, 4, 3, 3)),
                             ("conv_stride", "strides=[2,2], pads=[1,1,1,1]", {"stride": 2, "padding": 1}, (6, 4, 3, 3)),
                             ("conv_dilated", "dilations=[2,2]", {"dilation": 2}, (6, 4, 3, 3)),
                             ("conv_groups", "groups=2", {"groups": 2}, (6, 2, 3, 3)),
                             ("depthwise", "groups=4, pads=[1,1,1,1]", {"groups": 4, "padding": 1}, (4, 1, 3, 3))):
        conv[name] = ("%y = conv %z, %v" + (" {%s}" % nnc if nnc else ""), lambda z, v, kw=kw: F.conv2d(z, v, **kw), IMAGE, k, 0)
    conv["conv_transpose"] = ("%y = conv_transpose %z, %v {strides=[2,2], pads=[1,1,1,1]}",
                              lambda z, v: F.conv_transpose2d(z, v, stride=2, padding=1), IMAGE, (4, 3, 3, 3), 0)
    conv["conv1d"] = ("%y = conv %z, %v {pads=[1,1]}", lambda z, v: F.conv1d(z, v, padding=1), Z, (5, 6, 3), 0)
    conv["matmul"] = ("%y = matmul %z, %v", torch.matmul, Z, (8, 5), 0)
    conv["matmul_batched"] = ("%y = matmul %z, %v {transpose_b=1}", lambda z, v: z @ v.transpose(1, 2), Z, (4, 5, 8), 0)
    conv["linear"] = ("%y = linear %z, %v", F.linear, Z, (5, 8), 0)
    conv["maxpool"] = ("%y = maxpool %z {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}", lambda z: F.max_pool2d(z, 3, 2, 1), IMAGE, None, 0)
    conv["maxpool_disjoint"] = ("%y = maxpool %z {kernel=[2,2], strides=[2,2]}", lambda z: F.max_pool2d(z, 2), IMAGE, None, 0)
    conv["avgpool"] = ("%y = avgpool %z {kernel=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=1}",
                       lambda z: F.avg_pool2d(z, 3, 2, 1), IMAGE, None, 0)
    return conv


def literal(a):
    return "[%s]" % ", ".join("%.9g" % v for v in a.ravel()) if a.size <= 64 else "hex \"%s\"" % a.astype("<f4").tobytes().hex()


def of_nnc(a, d, text, x, w, v, target):
    """The gradients by nnc, from one step of SGD."""
    dims = lambda t: "f32[%s]" % ",".join(map(str, t.shape))
    lines = ["graph @g {", "%%x = input : %s" % dims(x), "%%w = param : %s = name \"w\" %s" % (dims(w), literal(w))]
    if v is not None:
        lines.append("%%v = param : %s = name \"v\" %s" % (dims(v), literal(v)))
    body = ["%z = add %x, %w", *text.split("\n")]
    last = body[-1].split("=")[0].split(",")[0].strip()
    open(d + "/g.txt", "w").write("\n".join([*lines, *body, "return %s as \"y\"" % last, "}"]) + "\n")
    np.savez(d + "/data.npz", x=x, target=target)
    r = subprocess.run([a.nnc, "train", d + "/g.txt", "--data=" + d + "/data.npz", "--loss=mse", "--lr=%g" % RATE, "--steps=1", "--no-shuffle",
                        "--save=" + d + "/w.npz", "--threads=1", *a.flags.split()], capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr.strip().split("\n")[0])
    got = np.load(d + "/w.npz")
    return [(p.astype(np.float64) - got[n]) / RATE for n, p in (("w", w), ("v", v)) if p is not None]


def of_torch(f, dtype, x, w, v, target):
    t = [torch.tensor(p, dtype=dtype, requires_grad=True) for p in (w, v) if p is not None]
    y = f(torch.tensor(x, dtype=dtype) + t[0], *t[1:])
    F.mse_loss(y, torch.tensor(target, dtype=dtype)).backward()
    return [p.grad.double().numpy() for p in t]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nnc", default="build/nnc")
    p.add_argument("--flags", default="")
    p.add_argument("--only", default="")
    a = p.parse_args()
    torch.set_num_threads(1)
    only, bad, n = [s for s in a.only.split(",") if s], 0, 0
    print("%-20s %s" % ("", "largest difference from torch.autograd in f64: of nnc, of torch.autograd in f32"))
    with tempfile.TemporaryDirectory() as d:
        for name, (text, f, shape, second, shift) in {**ewise(), **moves(), **reduces(), **windows()}.items():
            if only and name not in only:
                continue
            rng = np.random.default_rng(len(name) * 7919 + sum(map(ord, name)))
            draw = lambda s: rng.uniform(-0.5, 0.5, s).astype(np.float32)
            x, w = draw(shape), draw(shape) + np.float32(shift)
            v = None if second is None else draw(second) + np.float32(shift)
            with torch.no_grad():
                y = f(torch.tensor(x) + torch.tensor(w), *([] if v is None else [torch.tensor(v)]))
            target = rng.uniform(-1, 1, tuple(y.shape)).astype(np.float32)
            want, near = (of_torch(f, t, x, w, v, target) for t in (torch.float64, torch.float32))
            try:
                got = of_nnc(a, d, text, x, w, v, target)
            except RuntimeError as e:
                print("%-20s %s" % (name, e))
                bad += 1
                continue
            n += 1
            err = [np.max([abs(g - t).max() / max(abs(t).max(), 1e-30) for g, t in zip(of, want)]) for of in (got, near)]
            worse = not err[0] <= max(50 * err[1], 1e-5)  # NaN is worse
            bad += worse
            print("%-20s %.1e %.1e%s" % (name, *err, "  DIFFERS" if worse else ""))
    print("%d ops, %d differ" % (n, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
