#!/usr/bin/env python3
"""tests/mutants/mutants.py -- does a test notice when a condition is taken away?

table.txt lists single conditions: a file, a line of it that is there once, and what stands in its place (default: the condition is
false). For each, this builds the mutant in a folder of its own. It runs the programs named for the file's folder, cheapest first, until one
fails. A line that is no longer there once is an error, which scripts/lint.sh checks: the table moves with the code.

    python3 tests/mutants/mutants.py [--build build-mutants] [--only TEXT] [--missed] [--result tests/mutants/result.txt]

result.txt has the last result of each row of the table: the test that noticed, `not run`, or NOBODY. With NOBODY a test is missing, or the
condition decides nothing and can go. With --missed only rows are built that no test noticed or that have not run.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time

# Test programs by folder, with a name that limits what runs ("" is all), cheapest first.
OF_API = [("test_api", "option"), ("test_api", "layers"), ("test_api", "fault"), ("test_api", "ties"), ("test_api", "choice"), ("test_api", "formulas"), ("test_api", "dropouts"), ("test_api", "validation_is"), ("test_api", "weights_that"), ("test_api", "files_of"), ("test_api", "other_frozen"), ("test_api", "impossible"), ("test_cli", "trainings")]
PROGRAMS = {
    "base": [("test_base", ""), ("test_frontend", ""), ("test_ir", ""), ("test_api", "option"), ("test_cli", "")],
    "tensors": [("test_tensors", ""), ("test_frontend", "")],
    "onnx": [("test_onnx", ""), ("test_cli", "sessions")],
    "frontend": [("test_frontend", ""), ("test_api", "heads"), ("test_net", "random"), ("test_cli", "")],
    "ir": [("test_ir", ""), ("test_passes", ""), ("test_plan", "")],
    "kernel": [("test_codegen", ""), ("test_passes", ""), ("test_llvm", "columns"), ("test_net", "random"), ("test_api", "running_sums"), ("test_api", "nan_is_among"), ("test_api", "narrow_indices"), ("test_api", "long_rows")],
    "schedule": [("test_codegen", ""), ("test_net", "random"), ("test_cudac", "kernels")],
    "passes": [("test_passes", ""), ("test_api", "of_a_step"), ("test_api", "steps"), ("test_api", "step_compare"), ("test_api", "each_device"), ("test_net", "random")],
    "plan": [("test_plan", ""), ("test_api", "of_a_step"), ("test_api", "steps"), ("test_api", "each_device"), ("test_net", "random")],
    "cost": [("test_target", "")],
    "target": [("test_target", ""), ("test_passes", ""), ("test_plan", ""), ("test_cudnn", "")],
    "runtime": [("test_runtime", ""), ("test_plan", ""), ("test_net", "random"), ("test_api", "nan"), ("test_cuda_fake", "io")],
    "codegen": [("test_codegen", ""), ("test_net", "random")],
    "train": [("test_api", "formulas"), ("test_api", "dropouts"), ("test_api", "rates"), ("test_api", "learning_rates"), ("test_api", "statistics"), ("test_api", "accumulated"), ("test_api", "frozen"), ("test_api", "steps"), ("test_api", "loss"), ("test_api", "targets"), ("test_net", "train")],
    "data": [("test_data", ""), ("test_api", "validation_is"), ("test_cli", "trainings")],
    "check": OF_API,
    "trainer": OF_API,
}
SECONDS = 600


def read_table(path):
    """Rows (file, line, replacement); `@ FILE` opens a file, `- LINE` a row, `+ LINE` its replacement."""
    rows, file = [], None
    for n, line in enumerate(open(path), 1):
        line = line.rstrip("\n")
        if line.startswith("@ "):
            file = line[2:].strip()
        elif line.startswith("- "):
            rows.append([file, line[2:].strip(), None, n])
        elif line.startswith("+ "):
            rows[-1][2] = line[2:].strip()
        elif line and not line.startswith("#"):
            sys.exit(f"{path}:{n}: neither @, -, + nor #")
    return rows


def without(line):
    """The same line with a condition that never holds."""
    m = re.match(r"(\}? ?(?:else )?(?:if|while) \()(.*)(\)(?: \{)?(?: /\*.*)?)$", line)
    if not m:
        sys.exit(f"not a condition, and no replacement is given: {line}")
    return f"{m[1]}0 && ({m[2]}){m[3]}"


def apply(text, line, new, where):
    at = [m.start(1) for m in re.finditer(r"^[ \t]*(" + re.escape(line) + r")$", text, re.M)]
    if len(at) != 1:
        print(f"{where}: stands {len(at)} times: {line}")
        return None
    return text[: at[0]] + new + text[at[0] + len(line) :]


def row_of(r):
    """A row as the result file writes it."""
    return f"{r[0]}: {r[1]}{'  ->  ' + r[2] if r[2] else ''}"


def run(args, cwd, env=None, seconds=SECONDS):
    try:
        p = subprocess.run(args, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        return p.returncode, p.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return 124, "it did not end"


def noticed(src, build, programs, last, env):
    """The first program that fails, and the test in it; `last` is what noticed it in the last run, and is asked first."""
    for program, part in last + programs:
        code, out = run(["ninja", "-C", build, program], src, env)
        if code:
            return "the build", out.strip().split("\n")[-1]
        code, out = run([os.path.join(build, program)] + ([part] if part else []), src, env)
        if code:
            failed = re.findall(r"^FAIL (\S+)", out, re.M)
            return program, failed[0] if failed else f"exit {code}"
    return None, ""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build-mutants")
    p.add_argument("--table", default="tests/mutants/table.txt")
    p.add_argument("--result", default="tests/mutants/result.txt")
    p.add_argument("--only", default="", help="rows whose file or line contains this")
    p.add_argument("--missed", action="store_true", help="only rows that no test noticed, or that have not run")
    p.add_argument("--check", action="store_true", help="only whether each line is there once")
    o = p.parse_args()
    table = read_table(o.table)
    rows = [r for r in table if o.only in r[0] or o.only in r[1]]
    moved = 0
    for file, line, new, n in rows:
        if file.split("/")[1] not in PROGRAMS:
            sys.exit(f"{o.table}:{n}: {file}: PROGRAMS has no tests of its folder")
        moved += apply(open(file).read(), line, new or without(line), f"{o.table}:{n}: {file}") is None
    if moved:
        sys.exit(f"{moved} of {len(rows)} lines of {o.table} have moved: write what stands there now")
    print(f"{len(rows)} conditions stand where the table says")
    if o.check:
        return
    src = os.path.abspath(o.build)
    build = os.path.join(src, "build")
    for old in os.listdir(src) if os.path.isdir(src) else []:
        if old != "build":
            shutil.rmtree(os.path.join(src, old), ignore_errors=True)
    for file in subprocess.run(["git", "ls-files"], stdout=subprocess.PIPE, check=True).stdout.decode().split():
        os.makedirs(os.path.dirname(os.path.join(src, file)), exist_ok=True)
        shutil.copy2(file, os.path.join(src, file))
    changed = os.path.join(src, "build", "changed.txt")  # objects of these files may be of a mutant, and newer than the file
    for file in open(changed).read().split() if os.path.exists(changed) else []:
        if os.path.exists(os.path.join(src, file)):
            os.utime(os.path.join(src, file))
    env = dict(os.environ, NNC_NET_CASES=os.environ.get("NNC_NET_CASES", "0-150"))
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if run(["ccache", "--version"], ".")[0] == 0 else []
    code, out = run(["cmake", "-S", src, "-B", build, "-G", "Ninja", "-DBUILD_TESTING=ON"] + launcher, ".")
    wanted = sorted({q for r in rows for q, _ in PROGRAMS[r[0].split("/")[1]]})
    if not code:
        code, out = run(["ninja", "-C", build] + wanted, src, env, 3600)
    if code:
        sys.exit("the sources do not build as they are:\n" + out[-3000:])
    known = {}
    if os.path.exists(o.result):
        known = {m[2]: m[1] for m in (re.match(r"(.*?) +(src/.*)", r) for r in open(o.result)) if m}
    what = {row_of(r): known.get(row_of(r), "not run") for r in table}
    for file, line, new, n in rows:
        row = row_of([file, line, new])
        last = re.findall(r"^(test_\w+) (?!exit)(\w+)", what[row])
        if o.missed and what[row] not in ("NOBODY", "not run"):
            continue
        path, begun = os.path.join(src, file), time.time()
        text = open(path).read()
        with open(changed, "a") as names:
            names.write(file + "\n")
        open(path, "w").write(apply(text, line, new or without(line), file))
        program, test = noticed(src, build, PROGRAMS[file.split("/")[1]], last, env)
        open(path, "w").write(text)
        what[row] = f"{program} {test}" if program else "NOBODY"
        print(f"{what[row]:40} {time.time() - begun:5.0f} s  {file}: {line}", flush=True)
        with open(o.result, "w") as result:
            result.writelines(f"{w:40} {r}\n" for r, w in what.items())
    seen = list(what.values())
    print(f"{len(seen)} conditions: no test notices {seen.count('NOBODY')}, not run {seen.count('not run')}")


if __name__ == "__main__":
    main()
