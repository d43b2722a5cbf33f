#!/bin/sh
# tests/wheel.sh SOURCE BUILD -- makes the Python package's wheel of what is built and installs it into an environment of its own. Runs a
# model and the program there, from another folder.
set -u
source=$1 build=$2
unset NNC_PLUGIN_DIR NNC_BUILD PYTHONPATH
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="$dir/cache" PIP_DISABLE_PIP_VERSION_CHECK=1
PYTHON=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)} # Debian's, which has venv
export PYTHON

fail() {
    echo "wheel: $*" >&2
    exit 1
}

"$source/scripts/wheel.sh" "$dir/wheels" "$build" || exit $?
wheel=$(ls "$dir"/wheels/nnc-*-py3-none-manylinux_*.whl) || fail "there is: $(ls "$dir/wheels")"
"$PYTHON" -m venv "$dir/venv" || fail "no second environment"
begin=$(date +%s%N)
"$dir/venv/bin/pip" install -q "$wheel" || fail "pip install failed"
installed=$(date +%s%N)
mkdir "$dir/elsewhere"
cd "$dir/elsewhere" || exit 1
cat >first.py <<'END'
import nnc
import numpy as np

w = np.random.default_rng(0).standard_normal((10, 64), "float32")
layers = [{"op": "linear", "name": "fc", "out": 10, "bias": False}, "relu"]
model = nnc.compile({"name": "first", "inputs": {"x": [4, 64]}, "layers": layers}, weights={"fc.weight": w})
x = np.ones((4, 64), "float32")
np.testing.assert_allclose(model(x)[0], np.maximum(x @ w.T, 0), rtol=1e-5, atol=1e-5)
assert "launch" in str(model.explain())
END
"$dir/venv/bin/python" first.py || fail "the first model failed"
echo "wheel: $(($(stat -c %s "$wheel") / 1000000)) MB; installed in $(((installed - begin) / 1000000)) ms, first result $((($(date +%s%N) - installed) / 1000000)) ms later"
[ "$("$dir/venv/bin/python" -m nnc --version)" = "$("$build/nnc" --version)" ] || fail "python -m nnc: another version"
"$dir/venv/bin/nnc" doctor --format=json >doctor.json || fail "doctor failed"
[ ! -e "$build/libnnc_llvm.so" ] || grep -q '"name": "llvm", "found": true' doctor.json || fail "LLVM's plug-in does not load: $(cat doctor.json)"
"$dir/venv/bin/python" -m nnc check absent.json 2>/dev/null
[ $? = 5 ] || fail "python -m nnc does not give nnc's exit code"
ldd "$dir"/venv/lib*/python3*/site-packages/nnc/lib/nnc/*.so "$dir"/venv/lib*/python3*/site-packages/nnc/bin/nnc 2>&1 | grep -E 'not found|libLLVM' &&
    fail "the wheel needs more than it brings"
exit 0
