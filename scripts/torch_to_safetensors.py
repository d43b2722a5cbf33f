#!/usr/bin/env python3
"""Converts a PyTorch state dict to safetensors, for nnc's --weights. Needs PyTorch and nothing else.

    python3 scripts/torch_to_safetensors.py model.pt weights.safetensors
    python3 scripts/torch_to_safetensors.py checkpoint.pt weights.safetensors --key=state_dict --prefix=module.

The file is read with weights_only=True: no code in it is run. --key names the entry of a checkpoint that holds the state dict, dots for
nested ones. Without it a dictionary with one entry "state_dict", "model_state_dict" or "model" is entered. --prefix is taken off names."""
import argparse
import ctypes
import json
import sys

import torch

DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int8: "I8", torch.int16: "I16",
          torch.int32: "I32", torch.int64: "I64", torch.uint8: "U8", torch.bool: "BOOL"}
USUAL = ("state_dict", "model_state_dict", "model")


def state_dict(value, key):
    if key:
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                sys.exit(f"no entry `{key}` in the checkpoint; it has {', '.join(map(str, value))[:500]}")
            value = value[part]
    elif isinstance(value, dict) and not any(isinstance(v, torch.Tensor) for v in value.values()):
        value = next((value[k] for k in USUAL if isinstance(value.get(k), dict)), value)
    if not isinstance(value, dict):
        sys.exit("expected a state dict: a dictionary of tensors")
    return value


def numbers(t):
    """The bytes of a tensor, row-major, little-endian as this machine's."""
    t = t.detach().cpu().contiguous()
    return ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()) if t.numel() else b""


def write(file, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        size = t.numel() * t.element_size()
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(numbers(t))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("input")
    p.add_argument("output")
    p.add_argument("--key", default="")
    p.add_argument("--prefix", default="")
    o = p.parse_args()
    if sys.byteorder != "little":
        sys.exit("this machine is not little-endian")
    found = state_dict(torch.load(o.input, map_location="cpu", weights_only=True), o.key)
    tensors = {}
    for name, t in found.items():
        if not isinstance(t, torch.Tensor) or t.dtype not in DTYPES or t.layout != torch.strided:
            what = f"{t.dtype} {t.layout}" if isinstance(t, torch.Tensor) else type(t).__name__
            print(f"left out: {name}, {what}", file=sys.stderr)
            continue
        tensors[name.removeprefix(o.prefix)] = t
    write(o.output, dict(sorted(tensors.items())))
    print(f"{o.output}: {len(tensors)} tensors, {sum(t.numel() for t in tensors.values())} numbers")


if __name__ == "__main__":
    main()
