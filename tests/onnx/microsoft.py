#!/usr/bin/env python3
"""Checks that the rows of microsoft.def hold what ONNX Runtime gives.

    python3 tests/onnx/microsoft.py --venv DIR             exit code 1 when a row differs; without the packages 77, skipped
    ... --bless                                            rewrite the last column

--venv names the environment of export_check.py (default: $NNC_ONNXRUNTIME_VENV, or onnxruntime-venv in the user's cache)."""
import argparse
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = os.path.join(HERE, "microsoft.def")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
CASE = re.compile(r'CASE\((MS|""), "(\w+)", "(.*?)", "(.*?)", "(.*?)", "(.*?)"\)')


def operand(np, word, place):
    """As in microsoft_test.c."""
    kinds = {"f": np.float32, "u": np.uint8, "s": np.int8, "i": np.int32, "l": np.int64, "b": bool}
    if word[0] not in kinds:
        return np.array(float(word), np.float32)
    dims, _, listed = word[1:].rstrip("]").partition("[")
    shape = [int(d) for d in dims.split("x") if d]
    if listed:
        return np.array([int(v) for v in listed.split(",")], kinds[word[0]]).reshape(shape)
    v = np.arange(int(np.prod(shape))) * 37 + 11 * place
    v = v % 17 / 8 - 1 if word[0] == "f" else v % 256 - (128 if word[0] == "s" else 0)
    return v.astype(kinds[word[0]]).reshape(shape)


def attribute(text):
    name, _, v = text.partition("=")
    number = lambda s: float(s) if "." in s else int(s)
    if v[0] == "'":
        return name, v.strip("'")
    return name, [number(s) for s in v.strip("[]").split(",")] if "," in v or v[0] == "[" else number(v)


def run(domain, op, operands, attributes, results):
    """The sums of each result."""
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper
    values = [None if w == "-" else operand(np, w, k) for k, w in enumerate(operands.split())]
    names = ["" if v is None else "i%d" % k for k, v in enumerate(values)]
    outs = ["" if w == "-" else w for w in results.split()]
    node = helper.make_node(op, names, outs, domain="com.microsoft" if domain == "MS" else "")
    node.attribute.extend(helper.make_attribute(*attribute(a)) for a in attributes.split())
    init = [onnx.numpy_helper.from_array(v, n) for v, n in zip(values, names) if n]
    graph = helper.make_graph([node], op, [], [helper.make_empty_tensor_value_info(o) for o in outs if o], init)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])
    o = onnxruntime.SessionOptions()
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.log_severity_level = 4
    ys = [y.astype(np.float64).ravel() for y in onnxruntime.InferenceSession(model.SerializeToString(), o).run(None, {})]
    return [s for y in ys for s in (y.sum(), (y * (np.arange(y.size) % 7 + 1)).sum())]


def main():
    arg = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arg.add_argument("--venv", default=os.environ.get("NNC_ONNXRUNTIME_VENV", os.path.join(CACHE, "nnc", "onnxruntime-venv")))
    arg.add_argument("--bless", action="store_true")
    o = arg.parse_args()
    python = os.path.join(o.venv, "bin", "python")
    if not os.path.exists(python):
        print("skipped: %s has no onnxruntime; export_check.py --make installs it" % o.venv)
        return 77
    if os.path.abspath(sys.prefix) != os.path.abspath(o.venv):
        os.execv(python, [python] + sys.argv)
    wrong, lines = 0, []
    for line in open(ROWS):
        case = CASE.match(line)
        if case:
            got = run(*case.groups()[:5])
            want = [float(v) for v in case.group(6).split()]
            if len(got) != len(want) or any(abs(a - b) > 1e-4 * max(1, abs(b)) for a, b in zip(got, want)):
                wrong += 1
                print("%s: %s: ONNX Runtime gives %s" % (case.group(2), case.group(4), " ".join("%.7g" % v for v in got)))
                line = line[:case.start(6)] + " ".join("%.7g" % v for v in got) + line[case.end(6):]
        lines.append(line)
    if o.bless:
        open(ROWS, "w").write("".join(lines))
    print("%d rows, %d differ" % (len([x for x in lines if CASE.match(x)]), wrong))
    return 1 if wrong and not o.bless else 0


if __name__ == "__main__":
    sys.exit(main())
