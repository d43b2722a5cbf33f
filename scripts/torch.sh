#!/bin/sh
# scripts/torch.sh BUILD [PYTEST FLAG...] -- the tests of torch.compile(backend="nnc") with the library in the build folder BUILD. Without
# flags also some models of torchvision, timm and transformers. PyTorch and these come from PyPI, and are kept in
# ${XDG_CACHE_HOME:-~/.cache}/nnc/torch-venv (7 GB: CUDA's libraries come along). Exit code 77: they cannot be installed, with a line that
# says why.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -ge 1 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
build=$1
shift
venv=${XDG_CACHE_HOME:-$HOME/.cache}/nnc/torch-venv
packages="torch==2.9.1 torchvision==0.24.1 timm==1.0.31 transformers==5.24.0 numpy pytest"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
# What an interrupted run left of it is made again.
if [ "$(cat "$venv/nnc-ready" 2>/dev/null)" != "$packages" ]; then
    [ -z "${NNC_NO_WHEELS:-}" ] || { echo "skipped: no PyTorch: NNC_NO_WHEELS forbids PyPI"; exit 77; }
    rm -rf "$venv"
    python3 -m venv "$venv" >"$log" 2>&1 &&
        "$venv/bin/pip" install -q --no-cache-dir --disable-pip-version-check --no-input --retries 1 --timeout 30 $packages >"$log" 2>&1 &&
        echo "$packages" >"$venv/nnc-ready" ||
        { echo "skipped: no PyTorch: $(tail -n 1 "$log" | cut -c 1-200)"; rm -rf "$venv"; exit 77; }
fi
export NNC_BUILD PYTHONPATH=python
NNC_BUILD=$(cd "$build" && pwd)
"$venv/bin/python" -m pytest -q -p no:cacheprovider tests/python/test_torch.py "$@" || exit
[ $# -gt 0 ] || "$venv/bin/python" bench/torch_backend.py --rounds 0 --only resnet18,mobilenet_v3_small,lraspp_mobilenet_v3_large,deit_tiny_patch16_224,convnext_nano,bert,gpt2,llama,t5
