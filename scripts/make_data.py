#!/usr/bin/env python3
"""Writes a data set whose classes can be learned, in a format that nnc train reads. Needs Python's standard library only; jpeg: also Pillow.

usage: make_data.py FORMAT PATH [--samples=N] [--classes=N] [--size=HxW] [--noise=S] [--seed=N]

FORMAT   PATH
cifar10  a folder: data_batch_1.bin ..., test_batch.bin (a tenth of the samples)
cifar100 a folder: train.bin, test.bin
idx      a folder: train-images-idx3-ubyte, train-labels-idx1-ubyte, and t10k-... (a tenth)
idx.gz   the same, compressed
png      a folder with a folder of pictures for each class, in sizes from --size to twice that
jpeg     the same
npy      a folder: x.npy (f32 [samples,3,H,W]) and y.npy (i64)

A class has a smooth pattern of its own. A sample is that pattern, moved by up to an eighth of its size, with noise (0..1, default 0.3).
The same arguments write the same bytes."""
import argparse
import functools
import gzip
import math
import os
import random
import struct
import zlib


def pattern(cls, channels, h, w, seed):
    """Bytes of a class's picture, by channel, in 0..255: a sum of three waves for each channel. It repeats at its edges, so that it can be
    moved."""
    draw = random.Random(seed * 1000003 + cls)
    out = bytearray()
    for _ in range(channels):
        waves = [(draw.randint(1, 3), draw.randint(0, 3), draw.uniform(0, 2 * math.pi)) for _ in range(3)]
        for y in range(h):
            for x in range(w):
                s = sum(math.sin(2 * math.pi * (a * x / w + b * y / h) + p) for a, b, p in waves)
                out.append(int(127.5 + 42 * s))
    return bytes(out)


class Maker:
    """Samples of a data set: picture(i) are bytes by channel."""

    def __init__(self, a, channels, h, w):
        self.a, self.c, self.h, self.w = a, channels, h, w
        self.patterns = [pattern(k, channels, h, w, a.seed) for k in range(a.classes)]
        keep = 1 - a.noise
        self.quiet = bytes(int(v * keep) for v in range(256))
        self.loud = bytes(int(v * a.noise) for v in range(256))

    def label(self, i):
        return i % self.a.classes

    @functools.lru_cache(maxsize=None)
    def moved(self, cls, dy, dx):
        p, n, h, w = self.patterns[cls], self.h * self.w, self.h, self.w
        rows = (p[c * n + (y + dy) % h * w:][:w] for c in range(self.c) for y in range(h))
        return int.from_bytes(b"".join(r[dx % w:] + r[:dx % w] for r in rows).translate(self.quiet), "little")

    def picture(self, i):
        draw = random.Random(self.a.seed * 1000003 + 500009 + i)
        dy, dx = draw.randint(-(self.h // 8), self.h // 8), draw.randint(-(self.w // 8), self.w // 8)
        n = self.c * self.h * self.w
        noise = draw.randbytes(n).translate(self.loud)
        # Bytes of both add up to at most 255: one sum of large numbers adds them all.
        return (self.moved(self.label(i), dy, dx) + int.from_bytes(noise, "little")).to_bytes(n, "little")


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def cifar(a, fine):
    m = Maker(a, 3, 32, 32)
    test = a.samples // 10
    train = a.samples - test

    def records(begin, end):
        return b"".join((bytes([m.label(i) % 20, m.label(i)]) if fine else bytes([m.label(i)])) + m.picture(i) for i in range(begin, end))
    if fine:
        put(a.path + "/train.bin", records(0, train))
    for k in range(0 if fine else 5):
        put(a.path + "/data_batch_%d.bin" % (k + 1), records(train * k // 5, train * (k + 1) // 5))
    put(a.path + ("/test.bin" if fine else "/test_batch.bin"), records(train, a.samples))


def idx(a, packed):
    m = Maker(a, 1, a.h, a.w)
    test = a.samples // 10
    for name, begin, end in (("train", 0, a.samples - test), ("t10k", a.samples - test, a.samples)):
        x = struct.pack(">HBBIII", 0, 8, 3, end - begin, a.h, a.w) + b"".join(m.picture(i) for i in range(begin, end))
        y = struct.pack(">HBBI", 0, 8, 1, end - begin) + bytes(m.label(i) for i in range(begin, end))
        for what, data in (("images-idx3-ubyte", x), ("labels-idx1-ubyte", y)):
            put("%s/%s-%s%s" % (a.path, name, what, ".gz" if packed else ""), gzip.compress(data, 1, mtime=0) if packed else data)


def interleaved(m, p):
    n = m.h * m.w
    out = bytearray(3 * n)
    for c in range(3):
        out[c::3] = p[c * n:(c + 1) * n]
    return bytes(out)


def png(h, w, rgb):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + rgb[y * w * 3:(y + 1) * w * 3] for y in range(h))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def jpeg(h, w, rgb):
    import io
    from PIL import Image
    out = io.BytesIO()
    Image.frombytes("RGB", (w, h), rgb).save(out, "JPEG", quality=90)
    return out.getvalue()


def pictures(a, encode, ending):
    makers = [Maker(a, 3, a.h * k // 4, a.w * k // 4) for k in (4, 5, 6, 8)]
    for i in range(a.samples):
        m = makers[i // a.classes % len(makers)]
        put("%s/class%03d/%06d.%s" % (a.path, m.label(i), i, ending), encode(m.h, m.w, interleaved(m, m.picture(i))))


def npy(a):
    m = Maker(a, 3, a.h, a.w)

    def file(name, descr, shape, data):
        head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
        head += " " * (-(len(head) + 11) % 64) + "\n"
        put("%s/%s.npy" % (a.path, name), b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + data)
    table = [struct.pack("<f", v / 255) for v in range(256)]
    file("x", "<f4", (a.samples, 3, a.h, a.w), b"".join(table[v] for i in range(a.samples) for v in m.picture(i)))
    file("y", "<i8", (a.samples,), struct.pack("<%dq" % a.samples, *map(m.label, range(a.samples))))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    formats = {"cifar10": lambda a: cifar(a, False), "cifar100": lambda a: cifar(a, True), "idx": lambda a: idx(a, False),
               "idx.gz": lambda a: idx(a, True), "png": lambda a: pictures(a, png, "png"), "jpeg": lambda a: pictures(a, jpeg, "jpg"), "npy": npy}
    p.add_argument("format", choices=formats)
    p.add_argument("path")
    p.add_argument("--samples", type=int, default=1000)
    p.add_argument("--classes", type=int, help="default: 10, of cifar100 100")
    p.add_argument("--size", default="28x28", help="height and width; CIFAR's is 32x32")
    p.add_argument("--noise", type=float, default=0.3)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    a.classes = a.classes or (100 if a.format == "cifar100" else 10)
    a.h, a.w = map(int, a.size.split("x"))
    formats[a.format](a)


main()
