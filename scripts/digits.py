#!/usr/bin/env python3
"""Writes scikit-learn's 1,797 handwritten digits of 8x8 pixels as samples for nnc train. Exit code 77 where scikit-learn is not installed.

usage: digits.py PATH

PATH.npz: the tensors x, f32 [1797,1,8,8] of 0..1, and target, i64 [1797]. A folder: digits-images-idx3-ubyte (16 levels, times 15) and
digits-labels-idx1-ubyte."""
import os
import struct
import sys


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        import numpy as np
        from sklearn.datasets import load_digits
    except ImportError as e:
        print("digits.py: %s: install scikit-learn (python3-sklearn)" % e, file=sys.stderr)
        sys.exit(77)
    path = sys.argv[1]
    x, y = load_digits(return_X_y=True)
    if path.endswith(".npz"):
        np.savez(path, x=(x / 16).astype(np.float32).reshape(-1, 1, 8, 8), target=y.astype(np.int64))
        return
    os.makedirs(path, exist_ok=True)
    with open(path + "/digits-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">HBBIII", 0, 8, 3, len(x), 8, 8) + (x * 15).astype(np.uint8).tobytes())
    with open(path + "/digits-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">HBBI", 0, 8, 1, len(y)) + y.astype(np.uint8).tobytes())


main()
