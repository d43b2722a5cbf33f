#!/usr/bin/env python3
"""Runs ONNX's own tests of nodes and models with `nnc verify`, and prints agreements, differences and refusals by operator.

    python3 tests/onnx/conformance.py --venv DIR --make     make a virtual environment with the pinned onnx package, then run
    python3 tests/onnx/conformance.py --venv DIR            run; without the package: exit code 77, skipped
    ... --device reference,interpreter,llvm,cuda            the devices (default: the first three; cuda: on the fake of CUDA)
    ... --bless                                             rewrite expected.txt: refusals by nnc's own message

expected.txt lists every test that does not agree, below a line that says how and why. A test that is listed and agrees fails the run,
as does one that is not listed and does not."""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ONNX = "1.23.2"
HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = os.path.join(HERE, "..", "..", "src", "onnx", "ops.def")
EXPECTED = os.path.join(HERE, "expected.txt")
FLAGS = {"reference": ["--reference"], "interpreter": ["--no-llvm", "--quiet"], "llvm": [], "cuda": ["--target=cuda"]}
RESULT = {0: "agrees", 1: "differs", 3: "refused"}
# Operators of inference of vision models and transformer encoders. LEAST percent of their tests must agree on every device, without those
# in types that nnc does not have.
NAMED = set("""Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip Cos Cosh Div
    Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Hardmax IsInf IsNaN LeakyRelu Less LessOrEqual Log LogSoftmax
    Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt
    Sub Sum SwiGLU Swish Tan Tanh ThresholdedRelu Xor MatMul Gemm Einsum Conv ConvTranspose AveragePool MaxPool LpPool GlobalAveragePool
    GlobalMaxPool GlobalLpPool MaxUnpool BatchNormalization InstanceNormalization GroupNormalization LayerNormalization RMSNormalization
    LRN MeanVarianceNormalization LpNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare ArgMax ArgMin TopK CumSum Reshape Transpose Concat Split Slice Pad Tile Expand Gather GatherND GatherElements
    ScatterND ScatterElements Flatten Squeeze Unsqueeze Shape Size ConstantOfShape Range Where Cast CastLike OneHot Trilu DepthToSpace
    SpaceToDepth Resize GridSample RoiAlign EyeLike Identity Dropout Attention RotaryEmbedding LSTM GRU RNN QuantizeLinear
    DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul MatMulInteger ConvInteger""".split())
LEAST = 98
OTHER_TYPES = re.compile(r"its type (float\d|string)|is a (sequence|optional)")

# Runs inside the virtual environment: writes each test as a folder, and the list of them.
WRITER = """
import glob, json, os, shutil, sys
import numpy, onnx, onnx.defs
from onnx import numpy_helper
from onnx.backend.test.runner import Runner
from onnx.backend.test.case.node import collect_testcases
out = sys.argv[1]
tests = []
for case in collect_testcases(None):
    folder = os.path.join(out, case.name)
    os.makedirs(folder, exist_ok=True)
    graph = case.model.graph
    open(os.path.join(folder, "model.onnx"), "wb").write(case.model.SerializeToString())
    for k, (ins, outs) in enumerate(case.data_sets):
        data = os.path.join(folder, "test_data_set_%d" % k)
        os.makedirs(data, exist_ok=True)
        for kind, values, ports in (("input", ins, graph.input), ("output", outs, graph.output)):
            for i, v in enumerate(values):
                if not isinstance(v, onnx.TensorProto):
                    if not isinstance(v, (numpy.ndarray, numpy.generic)):
                        continue  # a sequence or an optional: the model is refused
                    v = numpy_helper.from_array(numpy.asarray(v), ports[i].name)
                open(os.path.join(data, "%s_%d.pb" % (kind, i)), "wb").write(v.SerializeToString())
    ops = [(n.domain + "." if n.domain else "") + n.op_type for n in graph.node]
    tests.append({"name": case.name, "ops": ops, "rtol": case.rtol, "atol": case.atol})

# The package's folders of tests, and its models whose inputs are made: all operators of one are a test of the whole.
data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
for kind in ("pytorch-converted", "pytorch-operator", "simple"):
    for folder in sorted(glob.glob(os.path.join(data, kind, "*"))):
        name = kind + "/" + os.path.basename(folder)
        shutil.copytree(folder, os.path.join(out, name), dirs_exist_ok=True)
        tests.append({"name": name, "ops": [kind], "rtol": 1e-3, "atol": 1e-7})
for file in sorted(glob.glob(os.path.join(data, "light", "*.onnx"))):
    name = "light/" + os.path.basename(file)[:-5]
    folder = os.path.join(out, name, "test_data_set_0")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(file, os.path.join(out, name, "model.onnx"))
    shutil.copy(file[:-5] + "_output_0.pb", os.path.join(folder, "output_0.pb"))
    graph = onnx.load(file).graph
    stored = {t.name for t in graph.initializer}
    for i, v in enumerate([v for v in graph.input if v.name not in stored]):
        value = numpy_helper.from_array(Runner.generate_dummy_data(v, name=name), v.name)
        open(os.path.join(folder, "input_%d.pb" % i), "wb").write(value.SerializeToString())
    tests.append({"name": name, "ops": ["light"], "rtol": 2e-3 if "densenet" in name else 1e-3, "atol": 1e-7})
# Equations of Einsum beyond the package's nine: numpy computes what they should give.
equations = {"ij,jk": "23,34", "ij,jk->ki": "23,34", "bhqd,bhkd->bhqk": "2345,2365", "bqhd,bkhd->bhqk": "2435,2635", "ijk->k": "234",
    "...ij,...jk->...ik": "5234,245", "i,j->ji": "3,4", "ij,ij->": "34,34", "ii": "44", "iij->ji": "334", "ij,kj,lk->il": "23,43,54",
    "abc,cd,bd->a": "234,45,35", "b...,b...->...": "234,234", "...,...": "34,4", "aij,ajk->aik": "234,145", "ij->": "23", "i->i": "5",
    "abcd,aecd,ef->abf": "2345,2645,67", "bn,anm,bm->ba": "23,435,25", "...i->...": "234"}
random = numpy.random.RandomState(1)
for k, (equation, shapes) in enumerate(equations.items()):
    name = "own/einsum_%d" % k
    folder = os.path.join(out, name, "test_data_set_0")
    os.makedirs(folder, exist_ok=True)
    ins = [random.randn(*map(int, s)).astype(numpy.float32) for s in shapes.split(",")]
    names = ["x%d" % i for i in range(len(ins))]
    want = numpy.asarray(numpy.einsum(equation, *[v.astype(numpy.float64) for v in ins]), numpy.float32)
    port = lambda name, v: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, v.shape)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Einsum", names, ["y"], equation=equation)], equation,
        [port(n, v) for n, v in zip(names, ins)], [port("y", want)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 12)])
    open(os.path.join(out, name, "model.onnx"), "wb").write(model.SerializeToString())
    for kind, values in (("input", ins), ("output", [want])):
        for i, v in enumerate(values):
            open(os.path.join(folder, "%s_%d.pb" % (kind, i)), "wb").write(numpy_helper.from_array(v, kind).SerializeToString())
    tests.append({"name": name, "ops": ["Einsum"], "rtol": 1e-4, "atol": 1e-5})
operators = sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain})
json.dump({"version": onnx.__version__, "tests": tests, "operators": operators}, open(os.path.join(out, "tests.json"), "w"))
"""


def collect(venv, make):
    """The tests, written once for this version of the package; None: there is none."""
    python = os.path.join(venv, "bin", "python")
    folder = os.path.join(venv, "node-tests")
    index = os.path.join(folder, "tests.json")
    if make and not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "onnx==" + ONNX], check=True)
    if not os.path.exists(python) or subprocess.run([python, "-c", "import onnx"], capture_output=True).returncode:
        return None, None, None
    if not os.path.exists(index) or json.load(open(index))["version"] != ONNX:
        os.makedirs(folder, exist_ok=True)
        subprocess.run([python, "-W", "ignore", "-c", WRITER, folder], check=True)
    found = json.load(open(index))
    if found["version"] != ONNX:
        sys.exit("%s has onnx %s; the tests are those of %s" % (venv, found["version"], ONNX))
    return folder, found["tests"], found["operators"]


def verify(nnc, folder, test, flags, env):
    command = [nnc, "verify", os.path.join(folder, test["name"]), "--rtol=%g" % test["rtol"], "--atol=%g" % test["atol"]]
    try:
        p = subprocess.run(command + flags, capture_output=True, text=True, errors="replace", timeout=300, env=env)
    except subprocess.TimeoutExpired:
        return "no end", ""
    return RESULT.get(p.returncode, "exit code %d" % p.returncode), p.stdout + p.stderr


def read_expected():
    """{(device, test): result} and the groups of the file: [(title, tests)]."""
    expected, groups = {}, []
    for line in open(EXPECTED) if os.path.exists(EXPECTED) else []:
        line = line.strip()
        if line.startswith("## "):
            result, devices = line[3:].split(":")[0].split(" by ")
            groups.append((line[3:], []))
        elif line and not line.startswith("#"):
            groups[-1][1].append(line)
            for device in FLAGS if devices == "all" else devices.split(","):
                expected[device, line] = result
    return expected, groups


def reason(output):
    """nnc's first message, without names."""
    for line in output.splitlines():
        if " error: " in line:
            text = line.split(" error: ", 1)[1]
            text = re.sub(r"(?<=^tensor )`[^`]*`|(?<=^input )`[^`]*`", "...", text)
            return re.sub(r" \(\d+ nodes?: .*", "", re.sub(r": give it, as in .*", "", text))
    return "without a message"


def bless(results, old):
    """Refusals by their message, which all devices share; differences keep their groups, new ones are unexplained."""
    refused, differs = collections.defaultdict(list), collections.defaultdict(list)
    explained = {t: title for title, tests in old if title.startswith("differs") for t in tests}
    for name, by in sorted(results.items()):
        bad = [d for d in by if by[d][0] not in ("agrees", "refused")]
        if any(by[d][0] == "refused" for d in by):
            refused["refused by all: " + reason(next(by[d][1] for d in by if by[d][0] == "refused"))].append(name)
        elif bad:
            differs[explained.get(name, "differs by %s: UNEXPLAINED" % ",".join(bad))].append(name)
    with open(EXPECTED, "w") as out:
        out.write("# Node tests of onnx %s that do not agree: `## result by devices: why`, then their names. Made by conformance.py --bless;\n"
                  "# the reasons of differences are written by hand.\n" % ONNX)
        for group in (differs, refused):
            for title, tests in sorted(group.items()):
                out.write("\n## %s\n" % title + "".join(t + "\n" for t in tests))


def operator(test, single):
    """The operator that a test is of: its only one, or for one that is written out as others that of the test beside it."""
    base = re.sub(r"_expanded.*", "", test["name"])
    return test["ops"][0] if len(test["ops"]) == 1 else single.get(base, "(several)")


def table(tests, results, devices):
    single = {t["name"]: t["ops"][0] for t in tests if len(t["ops"]) == 1}
    rows = collections.defaultdict(collections.Counter)
    for t in tests:
        for d in devices:
            rows[operator(t, single)][d, results[t["name"]][d][0]] += 1
    print("%-34s %6s" % ("operator", "tests") + "".join("  %-26s" % d for d in devices))
    print("%-34s %6s" % ("", "") + "  agrees  differs  refused " * len(devices))
    total = collections.Counter()
    for op in sorted(rows) + ["all"]:
        c = rows[op] if op != "all" else total
        n = sum(c.values()) // len(devices)
        print("%-34s %6d" % (op, n) + "".join(
            "  %6d  %7d  %7d " % (c[d, "agrees"], n - c[d, "agrees"] - c[d, "refused"], c[d, "refused"]) for d in devices))
        if op != "all":
            total.update(c)


def summary(tests, results):
    """Prints the share of the named operators' tests that agree on every device; what is wrong with it."""
    single = {t["name"]: t["ops"][0] for t in tests if len(t["ops"]) == 1}
    named = [results[t["name"]].values() for t in tests if operator(t, single) in NAMED]
    ours = [by for by in named if not any(OTHER_TYPES.search(out) for _, out in by)]
    agree = sum(all(r == "agrees" for r, _ in by) for by in ours)
    percent = 100 * agree / len(ours)
    print("operators of vision models and transformer encoders: %d tests, %d of them in types that nnc lacks (floats of 8 bits and fewer, "
          "strings, sequences, optionals);\nof the other %d, %d agree on every device (%.1f %%)" % (
              len(named), len(named) - len(ours), len(ours), agree, percent))
    return [] if percent >= LEAST else ["only %.1f %% of the tests of the named operators agree; %d %% are expected" % (percent, LEAST)]


def main():
    arg = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arg.add_argument("--venv", default=os.environ.get("NNC_ONNX_VENV", "build/onnx-venv"))
    arg.add_argument("--nnc", default="build/nnc")
    arg.add_argument("--device", default="reference,interpreter,llvm")
    arg.add_argument("--jobs", type=int, default=2)
    arg.add_argument("--make", action="store_true")
    arg.add_argument("--bless", action="store_true")
    o = arg.parse_args()
    folder, tests, operators = collect(o.venv, o.make)
    if tests is None:
        print("skipped: %s has no onnx package; conformance.py --make installs it" % o.venv)
        return 77
    devices = o.device.split(",")
    expected, groups = read_expected()
    results, wrong = collections.defaultdict(dict), []
    build = os.path.dirname(os.path.abspath(o.nnc))
    kernels = os.path.join(build, "fake_kernels")
    env = {"NNC_CUDA_PATH": os.path.join(build, "cuda_fake"), "FAKE_CUDA_KERNELS": kernels, **os.environ}
    os.makedirs(kernels, exist_ok=True)
    with ThreadPoolExecutor(o.jobs) as pool:
        for d in devices:
            for t, r in zip(tests, pool.map(lambda t: verify(o.nnc, folder, t, FLAGS[d] + ["--threads=2"], env), tests)):
                results[t["name"]][d] = r
                if r[0] != expected.get((d, t["name"]), "agrees"):
                    wrong.append("%s on %s: %s, expected: %s\n%s" % (
                        t["name"], d, r[0], expected.get((d, t["name"]), "agrees"), r[1][:500]))
    table(tests, results, devices)
    wrong += summary(tests, results)
    if o.bless:
        bless(results, groups)
        return 0
    known = {t["name"] for t in tests}
    wrong += ["%s is listed, and no test" % t for _, t in expected if t not in known]
    wrong += ["%s: its reason is missing" % title for title, _ in groups if "UNEXPLAINED" in title]
    rows = set(re.findall(r"^ *(?:\w+)\((\w+), ", open(ROWS).read(), re.M))
    wrong += ["%s has no row in ops.def" % op for op in operators if op not in rows]
    print("\n".join(wrong[:50]))
    print("%d tests, %d surprises" % (len(tests), len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
