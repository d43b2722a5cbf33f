#!/bin/sh
# tests/gpu_calibrate.sh SOURCE BUILD -- nnc calibrate --target=cuda on the fake of CUDA. Every entry of its file is filled, and the
# commands that take a hardware file take it. Calls that fail end it with an error. Its numbers mean nothing: they depend on the host.
set -u
source=$1 nnc=$2/nnc
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export NNC_CUDA_PATH="$2/cuda_fake" FAKE_CUDA_KERNELS="${FAKE_CUDA_KERNELS:-$dir/kernels}" XDG_CACHE_HOME="${TEST_CACHE:-$dir/cache}" FAKE_CUDA_DEVICES=1
mkdir -p "$FAKE_CUDA_KERNELS"
cd "$source" || exit 1
. tests/taken.sh
failed=0

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$dir/said"
    failed=1
}

# gives RC TEXT ARGS...: nnc with these ends with RC and says TEXT.
gives() {
    want=$1 text=$2
    shift 2
    timeout -k 5 300 "$nnc" "$@" >"$dir/said" 2>&1
    rc=$?
    [ "$rc" = "$want" ] || fail "$what: exit code $rc, not $want"
    [ -z "$text" ] || grep -q -e "$text" "$dir/said" || fail "$what: nothing says: $text"
}

# check FILE DEVICES: what a machine with so many GPUs has.
cat >"$dir/check.py" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
n = int(sys.argv[2])
g = d["devices"][0]
assert len(d["devices"]) == 1 and g["count"] == n and g["target"] == "cuda:sm_90", g
for k in "command_ns", "host_ns", "run_ns":
    assert g[k] > 0, k
assert g["machine"]["gpu"]["card"] == "Fake GPU 0" and g["machine"]["copy_bytes_s"] > 0, g["machine"]
assert set(g["flops"]) == {"f32", "tf32", "f16", "bf16"}, g["flops"]
rows = {(r["class"], r.get("dtype")): r for r in g["ops"]}
assert len(rows) == len(g["ops"]), "a class twice"
for r in g["ops"]:
    assert r["points"] and all(w > 0 and t > 0 for w, t in r["points"]), r
    assert [w for w, _ in r["points"]] == sorted({w for w, _ in r["points"]}), r
for c in "conv3x3", "conv1x1", "conv", "conv_first", "pool", "reduce", "ewise", "move":
    assert (c, "f32") in rows, (c, sorted(rows))
assert any(c.startswith("matmul") for c, _ in rows) and any(c.startswith("depthwise") for c, _ in rows), sorted(rows)
p = d["pcie"]
assert p["bytes_s"] > 0 and p["pageable_bytes_s"] > 0 and "down" in p["source"], p
assert [s["devices"] for s in p["switches"]] == [list(range(n))], p
assert d["sockets"]["memory_bytes_s"] > 0
c = d["collectives"]
assert c["base_ns"] > 0
measured = c.get("measured", [])
assert bool(measured) == (n > 1), measured
for m in measured:
    assert m["devices"] <= n and len(m["points"]) >= 2 and all(t > 0 for _, t in m["points"]), m
PY
check() {
    python3 "$dir/check.py" "$1" "$2" >"$dir/said" 2>&1 || fail "$what: an entry is missing"
}

what="one GPU"
gives 0 "" calibrate --target=cuda --budget=1 -o "$dir/one.json"
check "$dir/one.json" 1
what="the file's machine"
gives 0 "1 x Fake GPU 0 (cuda:sm_90)" devices --hardware="$dir/one.json"
grep -q "launch" "$dir/said" || fail "$what: no launches"
gives 0 "" devices --hardware="$dir/one.json" --format=json
what="a strategy, predicted and run"
gives 0 "measured ms" partition models/mlp.json --set batch=2 --set hidden=32 --devices=1 --strategy=single --batches=1 --hardware="$dir/one.json" \
    --run --simulate --iterations=3
gives 0 '"predicted_error": ' partition models/mlp.json --set batch=2 --set hidden=32 --devices=1 --strategy=single --batches=1 \
    --hardware="$dir/one.json" --run --iterations=3 --mode=step --format=json
what="more devices than GPUs"
gives 2 "describes 1 device" partition models/mlp.json --set batch=2 --set hidden=32 --devices=2 --hardware="$dir/one.json" --run
what="another GPU's plans"
gives 5 "do not run on this machine's GPU, cuda:sm_90" partition models/mlp.json --set batch=2 --set hidden=32 --devices=1 --strategy=single \
    --hardware=models/hardware/a100x8.json --run
what="measured commands"
gives 0 "measured" partition models/mlp.json --set batch=2 --set hidden=32 --devices=2 --strategy=single --target=cuda --measure
what="a trace beside its prediction"
gives 0 "" run models/mlp.json --set batch=2 --set hidden=32 --target=cuda --iterations=2 --trace="$dir/trace.json" --predict="$dir/one.json"
grep -q 'predicted' "$dir/trace.json" || fail "$what: no prediction"
what="a profile, and the power"
gives 0 "are those of CUPTI" profile models/mlp.json --set batch=2 --set hidden=32 --target=cuda --active=3 --duration=150
grep -q "Power: 1[0-9.]* W (1 GPU by NVML" "$dir/said" || fail "$what: no power"
what="a profile by events"
FAKE_CUDA_ERROR=cuptiSubscribe=39 gives 0 "are by CUDA events (not CUPTI: another" profile models/mlp.json --set batch=2 --set hidden=32 \
    --target=cuda --active=3 --duration=1
what="memory"
gives 0 "peak" memory models/mlp.json --set batch=2 --set hidden=32 --hardware="$dir/one.json"

what="two GPUs"
FAKE_CUDA_DEVICES=2 gives 0 "" calibrate --target=cuda --budget=1 -o "$dir/two.json"
check "$dir/two.json" 2
what="strategies on two GPUs, run"
FAKE_CUDA_DEVICES=2 gives 0 "tensor " partition models/mlp.json --set batch=2 --set hidden=32 --strategy=single,sequential,tensor --batches=1 \
    --hardware="$dir/two.json" --run --simulate --iterations=3
[ "$(grep -c ' 3 iterations' "$dir/said")" = 3 ] || fail "$what: not all of them ran"
what="fewer GPUs than the file has"
gives 0 "" partition models/mlp.json --set batch=2 --set hidden=32 --strategy=single,sequential --batches=1 --hardware="$dir/two.json" --run \
    --iterations=3
grep -q "fewer GPUs" "$dir/said" || fail "$what: no reason"

if command -v mpirun >/dev/null && [ -e "$2/libnnc_mpi.so" ]; then
    what="a GPU for each of two ranks"
    . "$1/tests/mpi_env.sh"
    FAKE_CUDA_DEVICES=2 FAKE_CUDA_COUNTS=1 timeout -k 5 300 mpirun -n 2 "$nnc" calibrate --target=cuda --budget=1 -o "$dir/ranks.json" \
        --comm-timeout=120 >"$dir/said" 2>&1 || fail "$what"
    grep -q "the fake of CUDA: [1-9][0-9]* collectives of NCCL" "$dir/said" || fail "$what: NCCL was not called"
    check "$dir/ranks.json" 2
    grep -q '2 GPUs, 2 ranks' "$dir/ranks.json" || fail "$what: the file does not say so"
fi

what="no such devices"
gives 2 "expected 1 to 1, the GPUs that this process sees" calibrate --target=cuda --devices=2
gives 2 "devices of one kind" calibrate --target=cpu,cuda
what="no GPU"
FAKE_CUDA_DEVICES=0 gives 5 "usable GPU" calibrate --target=cuda
what="a small GPU"
FAKE_CUDA_MIB=48 gives 4 "do not fit" calibrate --target=cuda --budget=1 -o "$dir/none.json"

# Calls that fail: early, in the launches, in the nets.
for at in 5 40 400 4000 12000; do
    taken 3 || continue
    what="call $at fails"
    FAKE_CUDA_FAIL=$at gives 5 "error: " calibrate --target=cuda --budget=1 -o "$dir/none.json"
done
what="a kernel breaks"
FAKE_CUDA_BREAK=k_ gives 5 "illegal memory access" calibrate --target=cuda --budget=1 -o "$dir/none.json"
what="NCCL fails"
FAKE_CUDA_DEVICES=2 FAKE_NCCL_ERROR=3 gives 6 "NCCL" calibrate --target=cuda --budget=1 -o "$dir/none.json"
[ ! -e "$dir/none.json" ] || fail "a file was written in spite of a failure"

[ $failed = 0 ] && echo "nnc calibrate on GPUs: all right"
exit $failed
