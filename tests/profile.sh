#!/bin/sh
# tests/profile.sh SOURCE BUILD -- nnc profile of steps over devices and ranks (sockets, and MPI if installed), of several models, of an
# artifact and on described hardware. The numbers of devices and rows add up to the run, and are those of all ranks.
set -u
source=$1
build=$(cd "$2" && pwd)
nnc=$build/nnc
command -v python3 >/dev/null || {
    echo "skipped: there is no python3 to read JSON"
    exit 77
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="${TEST_CACHE:-$dir/cache}" NNC_CUDA_PATH=/nowhere
. "$source/tests/mpi_env.sh"
failed=0
cat >"$dir/net.json" <<'JSON'
{"args": {"batch": 8}, "inputs": {"x": ["batch", 3, 12, 12]},
 "layers": [{"op": "conv", "channels": 8, "kernel": 3, "pad": 1}, "relu", "flatten", {"op": "linear", "out": 64}, "relu", {"op": "linear", "out": 10}]}
JSON
cat >"$dir/check.py" <<'PY'
import json, sys

text, devices, ranks, talks = open(sys.argv[1]).read(), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "talks"
p = json.loads(text[text.index("{"):])
wall = p["wall_ms"]
assert wall > 0 and "nan" not in text.lower(), p
assert len(p["devices"]) == devices and {d["rank"] for d in p["devices"]} == set(range(ranks)), p["devices"]
for d in p["devices"]:
    parts = [d[k] for k in ("computing_ms", "exposed_ms", "waiting_ms", "idle_ms")]
    assert min(parts) >= -1e-6 and d["computing_ms"] > 0, d
    assert abs(sum(parts) - wall) <= 1e-5 * wall + 1e-5, (d, wall)
    assert (d["exposed_ms"] + d["hidden_ms"] > 0) == talks, d
rows = sum(r["self_ms"] for r in p["rows"])
assert abs(rows - wall * p["streams"]) <= 1e-5 * rows + 1e-4, (rows, wall, p["streams"])
for r in p["rows"][:-1]:
    assert r["ms"] >= 0 and 1 <= r["devices"] <= devices, r
    assert r["ms"] / r["devices"] - 1e-5 <= r["slowest_ms"] <= r["ms"] + 1e-5, r
if len(sys.argv) > 5:
    assert {r["name"] for r in p["rows"]} >= set(sys.argv[5].split(",")), [r["name"] for r in p["rows"]]
if "together" in p:
    assert 0 <= p["models_together_ms"] <= wall + 1e-6 and len(p["together"]["models"]) > 1, p
PY

# adds_up WHAT DEVICES RANKS talks|quiet ROWS: what is in $dir/said, after exit code $rc.
adds_up() {
    what=$1
    shift
    if [ "$rc" != 0 ] || ! python3 "$dir/check.py" "$dir/said" "$@" 2>"$dir/why"; then
        echo "FAIL: $what (exit code $rc)"
        cat "$dir/said" "$dir/why"
        failed=1
    fi
}

# here ARGS...: nnc profile in one process
here() {
    "$nnc" profile "$@" --iterations=2 --active=3 --format=json >"$dir/said" 2>"$dir/err"
    rc=$?
    cat "$dir/err" >>"$dir/said"
}
for how in data tensor; do
    for streams in 1 2; do
        here "$dir/net.json" --mode=step --strategy=$how --devices=2 --streams=$streams --by=part
        adds_up "$how, $streams streams" 2 1 talks forward,backward,optimizer,communication,idle
    done
done
here "$dir/net.json" "$dir/net.json" --devices=2 --by=model
adds_up "two models on two devices" 2 1 quiet net,net_2,idle
here "$dir/net.json" "$dir/net.json" --streams=2 --mode=step --by=model
adds_up "two models on two streams" 1 1 quiet net,net_2,idle
here "$dir/net.json" "$dir/net.json" --devices=2 --hardware="$source/models/hardware/cpu.json" --by=model
adds_up "two models on described hardware" 2 1 quiet net,net_2,idle
here "$dir/net.json" --mode=step --strategy=data --devices=2 --hardware="$source/models/hardware/v100x8.json" --by=device
adds_up "replicas on described hardware" 2 1 talks
"$nnc" compile "$dir/net.json" --strategy=tensor --devices=2 -o "$dir/net.nnc" --quiet
here "$dir/net.nnc" --by=layer
adds_up "an artifact" 2 1 talks

here "$dir/net.nnc" --hardware="$source/models/hardware/v100x8.json"
grep -q "name its model to plan it for that hardware" "$dir/said" && [ $rc != 0 ] || {
    echo "FAIL: an artifact of another machine (exit code $rc)"
    cat "$dir/said"
    failed=1
}
"$nnc" compile "$dir/net.json" --mode=step -o "$dir/step.nnc" --quiet
here "$dir/step.nnc" --by=part
adds_up "an artifact of a step" 1 1 quiet forward,loss,backward,optimizer,idle

# Epochs of a training: parts add up to the time of its steps.
cat >"$dir/epochs.py" <<'PY'
import json, random, struct, sys

if sys.argv[1] == "make":
    for name, dtype, shape, values in (
        ("x", "<f4", (64, 3, 12, 12), struct.pack("<27648f", *(random.gauss(0, 1) for _ in range(27648)))),
        ("y", "<i8", (64,), struct.pack("<64q", *(i % 10 for i in range(64))))):
        head = str({"descr": dtype, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
        with open(f"{sys.argv[2]}/{name}.npy", "wb") as f:
            f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + values)
    sys.exit()
text = open(sys.argv[1]).read()
epochs = json.loads(text[text.index("["):])
parts = ["load_wait", "forward", "backward", "optimizer", "communication", "idle", "copy", "checkpoint", "other"]
assert len(epochs) == 3, epochs
for e in epochs:
    assert sum(e[f"{k}_ns"] for k in parts) == e["total_ns"] > 0, e
    assert all(e[f"{k}_ns"] >= 0 for k in parts) and e["forward_ns"] and e["backward_ns"] and e["optimizer_ns"], e
    assert e["communication_ns"] + e["communication_hidden_ns"] > 0, e
PY
python3 "$dir/epochs.py" make "$dir"
# trains HOW COMMAND...: on two devices, of this process or of two ranks
trains() {
    how=$1
    shift
    "$@" "$nnc" train "$dir/net.json" --data="$dir/x.npy" --labels="$dir/y.npy" --strategy=data --devices=2 --threads=1 --epochs=3 \
        --format=json >"$dir/said" 2>&1
    rc=$?
    [ $rc = 0 ] && python3 "$dir/epochs.py" "$dir/said" 2>"$dir/why" || {
        echo "FAIL: training, $how (exit code $rc)"
        cat "$dir/said" "$dir/why"
        failed=1
    }
}
trains "one process" env

# over_ranks HOW COMMAND...: two ranks by this launcher; a page and a trace of both.
over_ranks() {
    how=$1
    shift
    for by in part device command; do
        timeout -k 5 120 "$@" "$nnc" profile "$dir/net.json" --mode=step --strategy=data --threads=1 --by=$by --iterations=2 --active=3 \
            --format=json --html="$dir/p.html" --trace="$dir/t.json" --comm-timeout=60 >"$dir/said" 2>&1
        rc=$?
        adds_up "$how, by $by" 2 2 talks
        for file in p.html t.json; do
            grep -q 'cpu:0' "$dir/$file" && grep -q 'cpu:1' "$dir/$file" || {
                echo "FAIL: $how: $file does not have the devices of both ranks"
                failed=1
            }
        done
        rm -f "$dir/p.html" "$dir/t.json"
    done
    trains "$how" "$@"
}
# Ranks 0 and 1 as torchrun starts them; what rank 0 says.
cat >"$dir/two" <<'SH'
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost
RANK=1 LOCAL_RANK=1 "$@" &
RANK=0 LOCAL_RANK=0 "$@"
rc=$?
wait
exit $rc
SH
MASTER_PORT=$((20000 + $$ % 30000))
export MASTER_PORT
over_ranks "sockets" sh "$dir/two"
# --against is read by rank 0 alone: the folder of rank 1 has no such file.
mkdir "$dir/other"
sed 's/^RANK=1 .*/(cd other; RANK=1 LOCAL_RANK=1 "$@") \&/' "$dir/two" >"$dir/apart"
against="$nnc profile $dir/net.json --mode=step --strategy=data --threads=1 --by=part --iterations=2 --active=3 --format=json --comm-timeout=60"
(cd "$dir" && timeout -k 5 120 sh two $against >old.json 2>why && timeout -k 5 120 sh apart $against --against=old.json) >"$dir/said" 2>&1 && grep -q '"differences"' "$dir/said" || {
    echo "FAIL: --against over ranks"
    cat "$dir/why" "$dir/said"
    failed=1
}
if command -v mpirun >/dev/null && [ -e "$build/libnnc_mpi.so" ]; then
    over_ranks "MPI" mpirun -n 2
else
    echo "skipped: ranks under mpirun (apt-get install openmpi-bin libopenmpi-dev)"
fi
[ $failed = 0 ] && echo "profile: ok"
exit $failed
