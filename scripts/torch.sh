#!/bin/sh
# scripts/torch.sh BUILD [PYTEST FLAG...] -- the tests of torch.compile(backend="nnc") with the library in the build folder BUILD and PyTorch from
# PyPI, which is kept in ${XDG_CACHE_HOME:-~/.cache}/nnc/torch-venv (7 GB: its wheels bring CUDA's libraries). Exit code 77: it cannot be
# installed, with a line that says why.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -ge 1 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
build=$1
shift
venv=${XDG_CACHE_HOME:-$HOME/.cache}/nnc/torch-venv
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
# What an interrupted run left of it is made again.
if [ ! -e "$venv/nnc-ready" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" >"$log" 2>&1 &&
        "$venv/bin/pip" install -q --no-cache-dir --disable-pip-version-check --no-input --retries 1 --timeout 30 torch==2.9.1 numpy pytest >"$log" 2>&1 &&
        : >"$venv/nnc-ready" ||
        { echo "skipped: no PyTorch: $(tail -n 1 "$log" | cut -c 1-200)"; rm -rf "$venv"; exit 77; }
fi
NNC_BUILD=$(cd "$build" && pwd) PYTHONPATH=python exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/python/test_torch.py "$@"
