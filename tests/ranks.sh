#!/bin/sh
# tests/ranks.sh SOURCE BUILD -- nnc under mpirun: results of several ranks, and what happens when one of them fails. Skipped without mpirun.
set -u
build=$2
nnc=$build/nnc
. "$1/tests/ranks_common.sh"

# shellcheck disable=SC2016
cat >"$dir/two.json" <<'JSON'
{"inputs": {"x": [2, 3, 20, 20]},
 "layers": [
  {"op": "conv", "channels": 8, "kernel": 3, "pad": 1, "device": 0}, {"op": "relu", "device": 0},
  {"op": "conv", "channels": 8, "kernel": 3, "pad": 1, "device": 1}, {"op": "relu", "device": 1},
  {"op": "flatten", "device": 1}, {"op": "linear", "out": 10, "device": 2}, {"op": "softmax", "device": 0}]}
JSON
run="run $dir/two.json --devices=3"
before=$(shm)

what="one process"
# shellcheck disable=SC2086
"$nnc" $run --iterations=3 --outputs="$dir/one.npz" >"$dir/said" 2>&1
rc=$?
ran 0 ""
for n in 2 3; do
    for streams in 1 2; do
        taken 3 || continue
        what="$n ranks, $streams streams"
        # shellcheck disable=SC2086
        job "$n" $run --streams=$streams --iterations=20 --outputs="$dir/many.npz" --comm-timeout=60
        ran 0 "20 runs"
        cmp -s "$dir/one.npz" "$dir/many.npz" || fail "$what: other results than one process"
        [ "$(grep -c "20 runs" "$dir/said")" = 1 ] || fail "$what: more than one rank reports"
    done
done

# A trace of all ranks' commands on one clock: of each thread none overlap, and nothing is far from the others.
what="trace"
# shellcheck disable=SC2086
job 3 $run --iterations=3 --trace="$dir/trace.json" --predict=models/hardware/cpu.json --comm-timeout=60
ran 0 "3 runs"
cat >"$dir/trace.py" <<'PY'
import collections, json, sys

lanes, names, flows = collections.defaultdict(list), {}, collections.Counter()
for e in json.load(open(sys.argv[1]))["traceEvents"]:
    if e["ph"] == "X":
        lanes[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    elif e["ph"] == "M" and e["name"] == "process_name":
        names[e["pid"]] = e["args"]["name"]
    elif e["ph"] in "sf":
        flows[e["ph"]] += 1
devices = int(sys.argv[2])
want = {f"cpu:{d}, {how}" for d in range(devices) for how in ("predicted", "measured")}
assert set(names.values()) == want, names
assert flows["s"] == flows["f"] > 0, flows
assert {names[pid] for pid, _ in lanes} == want, lanes.keys()
end = 0
for spans in lanes.values():
    spans.sort()
    assert all(a[1] <= b[0] + 1e-9 for a, b in zip(spans, spans[1:])), "slices overlap"
    assert spans[0][0] >= 0
    end = max(end, spans[-1][1])
assert end < 60e6, f"{end} us: a clock is off"
PY
if command -v python3 >/dev/null; then
    python3 "$dir/trace.py" "$dir/trace.json" 3 >"$dir/said" 2>&1 || fail "$what: of a run"
fi

# Where a strategy divides the work, --devices is by default the number of ranks: the same bits as with the number given.
cat >"$dir/whole.json" <<'JSON'
{"args": {"batch": {"default": 4}}, "inputs": {"x": ["batch", 3, 12, 8]},
 "layers": [{"op": "conv", "channels": 8, "kernel": 3, "pad": 1}, "relu", "flatten", {"op": "linear", "out": 12}, "softmax"]}
JSON
# as_given N BATCH HOW: without --devices over N ranks, and with --devices=N in one process
as_given() {
    what="no --devices, $3"
    n=$1
    # shellcheck disable=SC2086
    set -- run "$dir/whole.json" --set batch=$2 --iterations=1 --strategy=$3
    "$nnc" "$@" --devices="$n" --outputs="$dir/given.npz" >"$dir/said" 2>&1
    rc=$?
    ran 0 "1 run"
    job "$n" "$@" --outputs="$dir/ranks.npz" --comm-timeout=60
    ran 0 "1 run"
    cmp -s "$dir/given.npz" "$dir/ranks.npz" || fail "$what: other results than with --devices=$n"
}
for how in tensor channel spatial "pipeline --batch-parts=3" "data --mode=step"; do
    ! taken 3 || as_given 3 6 "$how"
done
what="no --devices, --split"
"$nnc" run "$dir/whole.json" --split='linear*=columns' --devices=3 --iterations=1 --outputs="$dir/given.npz" >"$dir/said" 2>&1
job 3 run "$dir/whole.json" --split='linear*=columns' --iterations=1 --outputs="$dir/ranks.npz" --comm-timeout=60
ran 0 "1 run"
cmp -s "$dir/given.npz" "$dir/ranks.npz" || fail "$what: other results than with --devices=3"
# As many as ranks are known late: what depends on their number, as groups of them, too.
for how in "tensor --replicas=2" "pipeline --replicas=2 --batch-parts=2" "tensor --replicas=2 --mode=step"; do
    ! taken 3 || as_given 4 8 "$how"
done
what="no --devices, replicas of a rank each"
job 2 run "$dir/whole.json" --strategy=tensor --replicas=2
ran 2 "--replicas=2 of --devices=2: each needs an equal part of the devices, of 2 or more"
what="--devices that is given stays"
job 2 run "$dir/whole.json" --strategy=tensor --devices=4 --iterations=1 --outputs="$dir/ranks.npz" --comm-timeout=60
ran 0 "1 run"
what="one process, no --devices"
"$nnc" run "$dir/whole.json" --strategy=tensor >"$dir/said" 2>&1
rc=$?
ran 2 "it needs --devices=N, or ranks: one device for each is the default then"

# A large copy to a rank that computes is taken between its commands, and its sender does not wait for all of them.
what="progress"
{
    echo 'graph @progress {'
    echo '%x = input : f32[512,1024]'
    echo '%w = param : f32[1024,1024] = gen("w", seed=1, scale=0.05, shift=0)'
    echo '%y = mul %x, %x device 0 loc "/square"'
    echo '%b0 = tanh %x device 1 loc "/t"'
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
        echo "%a$i = linear %b$((i - 1)), %w device 1 loc \"/l$i\""
        echo "%b$i = tanh %a$i device 1 loc \"/t$i\""
    done
    echo '%z = add %b16, %y device 1 loc "/add"'
    echo 'return %z as "z" }'
} >"$dir/progress.txt"
if command -v python3 >/dev/null; then
    job 2 run "$dir/progress.txt" --devices=2 --threads=1 --iterations=2 --trace="$dir/trace.json" --comm-timeout=60
    ran 0 "2 runs"
    python3 -c "
import json
x = [e for e in json.load(open('$dir/trace.json'))['traceEvents'] if e['ph'] == 'X']
span = max(e['ts'] + e['dur'] for e in x) - min(e['ts'] for e in x)
copy = max(e['dur'] for e in x if e['name'] == '/square')
assert copy < span / 2, (copy, span)" >>"$dir/said" 2>&1 || fail "$what: the copy took as long as the receiver computed"
fi

# What overwrites the data of a message waits until another rank has taken it: that is no time of the command's.
what="a command that waits for a message"
cat >"$dir/held.txt" <<'GRAPH'
graph @held {
%x = input : f32[512,1024]
%v = input : f32[2048,2048]
%w = param : f32[2048,2048] = gen("w", seed=1, scale=0.05, shift=0) device 1
%u = param : f32[1024,1024] = gen("u", seed=2, scale=0.05, shift=0) device 0
%y0 = linear %x, %u device 0 loc "/first"
%y = mul %y0, %y0 device 0 loc "/square"
%a = linear %v, %w device 1 loc "/long"
%z = add %y, %y device 1 loc "/twice"
%b = transpose %x {perm=[1,0]} device 0 loc "/overwrites"
%c = transpose %b {perm=[1,0]} device 0 loc "/c"
%d = transpose %c {perm=[1,0]} device 0 loc "/d"
%e = transpose %d {perm=[1,0]} device 0 loc "/e"
return %a as "a", %z as "z", %e as "e" }
GRAPH
if command -v python3 >/dev/null; then
    job 2 run "$dir/held.txt" --devices=2 -O0 --threads=1 --iterations=2 --trace="$dir/trace.json" --comm-timeout=60
    ran 0 "2 runs"
    python3 -c "
import json
x = {e['name']: e['dur'] for e in json.load(open('$dir/trace.json'))['traceEvents'] if e['ph'] == 'X'}
assert x['/overwrites'] < x['/long'] / 4, x" >>"$dir/said" 2>&1 || fail "$what: its slice has the time that it waited"
fi

# Layers of a training on two devices, then a batch on each: losses are one process's, bit for bit, also of one that is resumed.
cat >"$dir/net.json" <<'JSON'
{"args": {"batch": {"default": 8}}, "inputs": {"x": ["batch", 3, 8, 8]},
 "layers": [{"op": "conv", "channels": 8, "kernel": 3, "pad": 1, "device": 0}, {"op": "relu", "device": 0},
  {"op": "flatten", "device": 1}, {"op": "linear", "out": 5, "device": 1}]}
JSON
if ! command -v python3 >/dev/null || ! python3 -c 'import numpy' 2>/dev/null; then
    echo "skipped: trainings over ranks: Python has no numpy (apt-get install python3-numpy)"
else
    python3 -c "
import numpy as np
r = np.random.default_rng(0)
x = r.standard_normal((96, 3, 8, 8)).astype(np.float32)
np.savez('$dir/data.npz', x=x, target=(x.mean((1, 2, 3)) * 60 + 2).clip(0, 4).astype(np.int64))
np.save('$dir/mse.npy', np.full((96, 5), 1e4, np.float32))
x = r.standard_normal((32, 3, 12, 8)).astype(np.float32)
np.savez('$dir/data12.npz', x=x, target=r.integers(0, 12, 32))"
    for strategy in layers data; do
        taken 2 || continue
        train="train $dir/net.json --data=$dir/data.npz --devices=2 --strategy=$strategy --validation=0.2 --lr=0.05 --momentum=0.9"
        what="training, $strategy"
        # shellcheck disable=SC2086
        "$nnc" $train --epochs=2 --log="$dir/log1" --save="$dir/w1.npz" >"$dir/said" 2>&1
        rc=$?
        ran 0 "epoch 2"
        # shellcheck disable=SC2086
        job 2 $train --epochs=2 --log="$dir/log2" --save="$dir/w2.npz" --comm-timeout=60
        ran 0 "epoch 2"
        for log in log1 log2; do grep -o '"[a-z_]*loss": [^,}]*' "$dir/$log" >"$dir/$log.loss"; done
        [ -s "$dir/log1.loss" ] && cmp -s "$dir/log1.loss" "$dir/log2.loss" || fail "$what: other losses than one process"
        cmp -s "$dir/w1.npz" "$dir/w2.npz" || fail "$what: other weights than one process"
        what="training, $strategy, traced"
        # shellcheck disable=SC2086
        job 2 $train --epochs=2 --save="$dir/w4.npz" --trace="$dir/trace.json" --predict=models/hardware/cpu.json --comm-timeout=60
        ran 0 "epoch 2"
        cmp -s "$dir/w1.npz" "$dir/w4.npz" || fail "$what: other weights than without a trace"
        python3 "$dir/trace.py" "$dir/trace.json" 2 >"$dir/said" 2>&1 || fail "$what"
        what="training, $strategy, resumed"
        # shellcheck disable=SC2086
        job 2 $train --epochs=1 --checkpoint="$dir/c.npz" --comm-timeout=60
        ran 0 "epoch 1"
        # shellcheck disable=SC2086
        job 2 $train --epochs=2 --checkpoint="$dir/c.npz" --resume --save="$dir/w3.npz" --comm-timeout=60
        ran 0 "epoch 2"
        cmp -s "$dir/w1.npz" "$dir/w3.npz" || fail "$what: other weights than without a stop"
        rm -f "$dir/log1" "$dir/log2" "$dir/c.npz"
    done
    what="training, no --devices"
    for strategy in data "1f1b --micro-batches=4" tensor; do
        taken 3 || continue
        train="train $dir/whole.json --data=$dir/data12.npz --strategy=$strategy --lr=0.05 --epochs=1 --comm-timeout=60"
        # shellcheck disable=SC2086
        "$nnc" $train --devices=2 --save="$dir/w1.npz" >"$dir/said" 2>&1 || fail "$what, $strategy: one process"
        # shellcheck disable=SC2086
        job 2 $train --save="$dir/w2.npz"
        ran 0 "epoch 1"
        cmp -s "$dir/w1.npz" "$dir/w2.npz" || fail "$what, $strategy: other weights than with --devices=2"
    done
    # Split ops: weights are whole in the file, those of one device to rounding, and those of one process bit for bit.
    cat >"$dir/split.json" <<'JSON'
{"args": {"batch": {"default": 8}}, "inputs": {"x": ["batch", 3, 8, 8]},
 "layers": [{"op": "conv", "channels": 8, "kernel": 3, "pad": 1}, {"op": "batchnorm"}, "relu", {"op": "dropout", "alpha": 0.2},
  "flatten", {"op": "linear", "out": 32}, "relu", {"op": "linear", "out": 5}]}
JSON
    train="train $dir/split.json --data=$dir/data.npz --validation=0.2 --lr=0.05 --momentum=0.9"
    what="training on one device"
    # shellcheck disable=SC2086
    "$nnc" $train --epochs=2 --save="$dir/w0.npz" >"$dir/said" 2>&1
    rc=$?
    ran 0 "epoch 2"
    for strategy in tensor channel spatial; do
        taken 3 || continue
        what="training, $strategy"
        split="$train --devices=2 --strategy=$strategy"
        # shellcheck disable=SC2086
        "$nnc" $split --epochs=2 --save="$dir/w1.npz" >"$dir/said" 2>&1
        rc=$?
        ran 0 "epoch 2"
        python3 -c "
import numpy as np
a, b = np.load('$dir/w0.npz'), np.load('$dir/w1.npz')
assert sorted(a.files) == sorted(b.files), (a.files, b.files)
for k in a.files:
    assert abs(a[k] - b[k]).max() <= 5e-6 * abs(a[k]).max(), (k, abs(a[k] - b[k]).max())" >>"$dir/said" 2>&1 || fail "$what: other weights than on one device"
        # shellcheck disable=SC2086
        job 2 $split --epochs=2 --save="$dir/w2.npz" --comm-timeout=60
        ran 0 "epoch 2"
        cmp -s "$dir/w1.npz" "$dir/w2.npz" || fail "$what: other weights than one process"
        # shellcheck disable=SC2086
        job 2 $split --epochs=1 --checkpoint="$dir/c.npz" --save="$dir/w4.npz" --comm-timeout=60
        ran 0 "epoch 1"
        python3 -c "
import numpy as np
a, c = np.load('$dir/w4.npz'), np.load('$dir/c.npz')
for k in a.files:
    assert (a[k] == c[k]).all(), k" >>"$dir/said" 2>&1 || fail "$what: the checkpoint has other weights than --save"
        # shellcheck disable=SC2086
        "$nnc" $train --epochs=2 --checkpoint="$dir/c.npz" --resume >"$dir/said" 2>&1
        rc=$?
        ran 3 "split: none, the checkpoint has $strategy over 2 devices"
        # shellcheck disable=SC2086
        job 2 $split --epochs=2 --checkpoint="$dir/c.npz" --resume --save="$dir/w3.npz" --comm-timeout=60
        ran 0 "epoch 2"
        cmp -s "$dir/w1.npz" "$dir/w3.npz" || fail "$what: other weights than without a stop"
        rm -f "$dir/c.npz"
    done
fi

# Layers split over the devices: by columns and rows, channels, rows of the image.
cat >"$dir/mlp.json" <<'JSON'
{"inputs": {"x": [4, 24]},
 "layers": [{"op": "linear", "name": "a", "out": 64}, "gelu", {"op": "linear", "name": "b", "out": 24}, "relu", {"op": "linear", "name": "c", "out": 10}, "softmax"]}
JSON
cat >"$dir/cnn.json" <<'JSON'
{"inputs": {"x": [2, 3, 20, 20]},
 "layers": [{"op": "conv", "channels": 8, "kernel": 3, "pad": 1}, "relu", {"op": "maxpool", "kernel": 2, "stride": 2},
  {"op": "conv", "channels": 8, "kernel": 3, "pad": 1}, "relu", "flatten", {"op": "linear", "out": 10}]}
JSON
for way in mlp:tensor cnn:channel cnn:spatial; do
    for n in 2 4; do
        taken 3 || continue
        what="${way#*:} on $n ranks"
        split="run $dir/${way%:*}.json --devices=$n --strategy=${way#*:}"
        # shellcheck disable=SC2086
        "$nnc" $split --iterations=3 --outputs="$dir/whole.npz" >"$dir/said" 2>&1
        rc=$?
        ran 0 ""
        # shellcheck disable=SC2086
        job "$n" $split --iterations=3 --outputs="$dir/many.npz" --comm-timeout=60
        ran 0 "3 runs"
        cmp -s "$dir/whole.npz" "$dir/many.npz" || fail "$what: other results than one process"
    done
done
# A loss or a state that is not finite: the message and exit code of one process, at once. (Open MPI 5 prints a zero byte directly before it.)
if [ -e "$dir/data.npz" ]; then
    for how in "layers --lr=1e9" "data --zero=2 --accumulate=2 --lr=1e9" "data --lr=1e38 --steps=1"; do
        taken 3 || continue
        what="training, not finite, $how"
        train="train $dir/net.json --data=$dir/data.npz --loss=mse --labels=$dir/mse.npy --devices=2 --threads=1 --strategy=$how"
        # shellcheck disable=SC2086
        "$nnc" $train >"$dir/said" 2>&1
        rc=$?
        ran 1 "It arose here"
        grep "error: " "$dir/said" >"$dir/one"
        # shellcheck disable=SC2086
        job 2 $train --comm-timeout=20
        ran 1 ""
        tr -d '\000' <"$dir/said" | grep "error: " | cmp -s - "$dir/one" || fail "$what: one process says: $(cat "$dir/one")"
    done
fi

# Pipelines of micro-batches. Losses and weights are those of one device that accumulates as many batches, also if a training changes its
# schedule on the way.
if [ -e "$dir/data.npz" ]; then
    train="train $dir/net.json --data=$dir/data.npz --validation=0.2 --lr=0.05 --momentum=0.9 --threads=1"
    what="training, accumulated"
    # shellcheck disable=SC2086
    "$nnc" $train --accumulate=4 --place='*=0' --epochs=2 --log="$dir/log1" --save="$dir/w1.npz" >"$dir/said" 2>&1
    rc=$?
    ran 0 "epoch 2"
    grep -o '"[a-z_]*loss": [^,}]*' "$dir/log1" >"$dir/log1.loss"
    for strategy in layers gpipe 1f1b zb-h1; do
        taken 3 || continue
        what="training, $strategy"
        # shellcheck disable=SC2086
        job 2 $train --devices=2 --strategy=$strategy --micro-batches=4 --epochs=2 --log="$dir/log2" --save="$dir/w2.npz" \
            --comm-timeout=60
        ran 0 "epoch 2"
        grep -o '"[a-z_]*loss": [^,}]*' "$dir/log2" >"$dir/log2.loss"
        [ -s "$dir/log1.loss" ] && cmp -s "$dir/log1.loss" "$dir/log2.loss" || fail "$what: other losses than one device"
        cmp -s "$dir/w1.npz" "$dir/w2.npz" || fail "$what: other weights than one device"
        rm -f "$dir/log2"
    done
    what="training, 1f1b, then gpipe"
    # shellcheck disable=SC2086
    job 2 $train --devices=2 --strategy=1f1b --micro-batches=4 --epochs=1 --checkpoint="$dir/c.npz" --comm-timeout=60
    ran 0 "epoch 1"
    # shellcheck disable=SC2086
    "$nnc" $train --devices=2 --strategy=gpipe --micro-batches=4 --epochs=2 --checkpoint="$dir/c.npz" --resume --save="$dir/w3.npz" \
        >"$dir/said" 2>&1
    rc=$?
    ran 0 "epoch 2"
    cmp -s "$dir/w1.npz" "$dir/w3.npz" || fail "$what: other weights than without a stop"
    rm -f "$dir/log1" "$dir/c.npz"
    # Two replicas, a device for each, go on as two pipelines of two devices.
    what="training, data, then two pipelines"
    # shellcheck disable=SC2086
    "$nnc" $train --devices=2 --strategy=data --micro-batches=2 --epochs=1 --checkpoint="$dir/c.npz" >"$dir/said" 2>&1
    rc=$?
    ran 0 "epoch 1"
    # shellcheck disable=SC2086
    job 2 $train --devices=4 --strategy=1f1b --replicas=2 --micro-batches=2 --epochs=2 --checkpoint="$dir/c.npz" --resume --comm-timeout=60
    ran 0 "epoch 2"
    rm -f "$dir/c.npz"
fi
# Replicas. With divided optimizer states (ZeRO's stages 1 and 2, of one batch a step) and in buckets, weights have the bits of plain data
# parallelism, also resumed. Splits and pipelines have those of one process. Both have, up to rounding, those of a replica on each device.
if [ -e "$dir/data.npz" ] && [ -e "$dir/split.json" ]; then
    # two ranks of a thread each have the plan of a process with two
    net="$dir/split.json --data=$dir/data.npz --validation=0.2 --lr=0.05 --momentum=0.9 --epochs=2"
    # shellcheck disable=SC2086
    "$nnc" train $net --threads=2 --devices=4 --strategy=data --save="$dir/w0.npz" >"$dir/said" 2>&1
    # shellcheck disable=SC2086
    "$nnc" train $net --threads=2 --devices=2 --strategy=data --save="$dir/w8.npz" >"$dir/said" 2>&1
    for how in "data --zero=1" "data --zero=2" "data --bucket-mb=0.001" "data --bucket-mb=25"; do
        taken 3 || continue
        what="training, $how"
        # shellcheck disable=SC2086
        job 2 train $net --threads=1 --devices=4 --strategy=$how --save="$dir/w1.npz" --comm-timeout=60
        ran 0 "epoch 2"
        cmp -s "$dir/w0.npz" "$dir/w1.npz" || fail "$what: other weights than with whole states"
    done
    what="training, zero, resumed"
    # shellcheck disable=SC2086
    job 2 train $net --threads=1 --devices=4 --strategy=data --zero=1 --steps=2 --checkpoint="$dir/c.npz" --comm-timeout=60
    ran 0 "epoch 1"
    # shellcheck disable=SC2086
    job 2 train $net --threads=1 --devices=4 --strategy=data --zero=1 --checkpoint="$dir/c.npz" --resume --save="$dir/w2.npz" --comm-timeout=60
    ran 0 "epoch 2"
    cmp -s "$dir/w0.npz" "$dir/w2.npz" || fail "$what: other weights than without a stop"
    # shellcheck disable=SC2086
    job 2 train $net --threads=1 --devices=4 --strategy=data --checkpoint="$dir/c.npz" --resume --comm-timeout=60
    ran 3 "zero"
    rm -f "$dir/c.npz"
    # Parts of the gradients' sums, of several batches: the bits of one process, and stage 1's numbers up to rounding.
    # shellcheck disable=SC2086
    "$nnc" train $net --threads=2 --set batch=2 --devices=4 --strategy=data --accumulate=2 --zero=1 --save="$dir/w0.npz" >"$dir/said" 2>&1
    for how in "--accumulate=2" "--micro-batches=2" "--accumulate=2 --micro-batches=2" "--accumulate=2 --streams=2"; do
        taken 3 || [ "$how" = "--accumulate=2" ] || continue
        what="training, zero 2, $how"
        # shellcheck disable=SC2086
        "$nnc" train $net --threads=2 --set batch=2 --devices=4 --strategy=data --zero=2 $how --save="$dir/w3.npz" >"$dir/said" 2>&1
        rc=$?
        ran 0 "epoch 2"
        # shellcheck disable=SC2086
        job 2 train $net --threads=1 --set batch=2 --devices=4 --strategy=data --zero=2 $how --save="$dir/w4.npz" --comm-timeout=60
        ran 0 "epoch 2"
        cmp -s "$dir/w3.npz" "$dir/w4.npz" || fail "$what: other weights than one process"
        case $how in *=2\ --micro*) continue ;; *accumulate=2) cp "$dir/w4.npz" "$dir/w9.npz" ;; esac
        python3 -c "
import numpy as np
a, b = np.load('$dir/w0.npz'), np.load('$dir/w3.npz')
assert sorted(a.files) == sorted(b.files), (a.files, b.files)
for k in a.files:
    assert abs(a[k] - b[k]).max() <= 1e-6 * abs(a[k]).max(), (k, abs(a[k] - b[k]).max())" >>"$dir/said" 2>&1 || fail "$what: other weights than with whole sums"
    done
    what="training, zero 2, resumed"
    # shellcheck disable=SC2086
    job 2 train $net --threads=1 --set batch=2 --devices=4 --strategy=data --zero=2 --accumulate=2 --steps=3 --checkpoint="$dir/c.npz" --comm-timeout=60
    ran 0 "epoch 1"
    # shellcheck disable=SC2086
    job 2 train $net --threads=1 --set batch=2 --devices=4 --strategy=data --zero=2 --accumulate=2 --checkpoint="$dir/c.npz" --resume --save="$dir/w2.npz" --comm-timeout=60
    ran 0 "epoch 2"
    cmp -s "$dir/w9.npz" "$dir/w2.npz" || fail "$what: other weights than without a stop"
    rm -f "$dir/c.npz"
    for how in "channel" "spatial --zero=1" "1f1b --micro-batches=2 --zero=1" "channel --zero=2 --accumulate=2 --set batch=4" "1f1b --micro-batches=2 --zero=2"; do
        taken 3 || continue
        what="training, replicas of $how"
        # shellcheck disable=SC2086
        "$nnc" train $net --threads=2 --devices=4 --replicas=2 --strategy=$how --save="$dir/w3.npz" >"$dir/said" 2>&1
        rc=$?
        ran 0 "epoch 2"
        # shellcheck disable=SC2086
        job 2 train $net --threads=1 --devices=4 --replicas=2 --strategy=$how --save="$dir/w4.npz" --comm-timeout=60
        ran 0 "epoch 2"
        cmp -s "$dir/w3.npz" "$dir/w4.npz" || fail "$what: other weights than one process"
        case $how in 1f1b* | *accumulate*) continue ;; esac
        python3 -c "
import numpy as np
a, b = np.load('$dir/w8.npz'), np.load('$dir/w3.npz')
assert sorted(a.files) == sorted(b.files), (a.files, b.files)
for k in a.files:
    assert abs(a[k] - b[k]).max() <= 2e-5 * abs(a[k]).max(), (k, abs(a[k] - b[k]).max())" >>"$dir/said" 2>&1 || fail "$what: other weights than with a replica on each device"
    done
fi
# Threads: by default all ranks of a host have those of one process, and with --threads=1 each the process has as many as there are ranks. Then
# plans are the same: of this net, whose layouts depend on the threads, weights have the same bits.
cat >"$dir/threads.json" <<'JSON'
{"args": {"batch": 6}, "inputs": {"x": ["batch", 5, 9, 9]},
 "layers": [{"op": "conv", "channels": 24, "kernel": 3, "pad": 1}, "relu", {"op": "conv", "channels": 17, "kernel": 3, "pad": 1}, "relu", "flatten",
  {"op": "linear", "out": 10}]}
JSON
if python3 -c "
import numpy as np
r = np.random.default_rng(0)
np.savez('$dir/threads.npz', x=r.standard_normal((24, 5, 9, 9)).astype('f4'), target=r.integers(0, 10, 24))" 2>/dev/null; then
    net="$dir/threads.json --data=$dir/threads.npz --devices=4 --replicas=2 --strategy=channel --lr=0.05"
    for threads in "" 1; do
        what="threads of four ranks: ${threads:-default}"
        # shellcheck disable=SC2086
        "$nnc" train $net ${threads:+--threads=4} --steps=1 --checkpoint="$dir/c.npz" >"$dir/said" 2>&1
        # shellcheck disable=SC2086
        "$nnc" train $net ${threads:+--threads=4} --steps=2 --save="$dir/w5.npz" >"$dir/said" 2>&1
        rc=$?
        ran 0 "step 2"
        # shellcheck disable=SC2086
        job 4 train $net ${threads:+--threads=1} --steps=2 --checkpoint="$dir/c.npz" --resume --save="$dir/w6.npz" --comm-timeout=60
        ran 0 "step 2"
        ! grep -q "number of threads" "$dir/said" || fail "$what: not those of one process"
        cmp -s "$dir/w5.npz" "$dir/w6.npz" || fail "$what: other weights than one process"
        rm -f "$dir/c.npz"
    done
fi
# Binding changes no plan: the target describes the machine, not the core that a rank is bound to (its estimates decided otherwise then).
"$nnc" run models/densenet121.json --set image=32 --strategy=tensor --devices=2 --threads=2 --iterations=1 --outputs="$dir/unbound.npz" >"$dir/said" 2>&1
what="ranks that are bound to a core each"
launched 2 --bind-to core:overload-allowed "$nnc" run models/densenet121.json --set image=32 --strategy=tensor --devices=2 --threads=1 --iterations=1 --outputs="$dir/bound.npz" --comm-timeout=60
ran 0 "1 run"
cmp -s "$dir/unbound.npz" "$dir/bound.npz" || fail "$what: other results than one process"
# The commands that nnc partition prints run, and take the batches of its iteration: two of six of 24 samples.
if [ -e "$dir/threads.npz" ]; then
    "$nnc" partition "$dir/threads.json" --mode=step --loss=cross_entropy --devices=2 --batches=2 --format=json 2>"$dir/said" |
        sed -n 's/.*"command": "nnc train *\([^"]*\)".*/\1/p' | sort -u >"$dir/commands"
    [ "$(wc -l <"$dir/commands")" -ge 8 ] || fail "commands of nnc partition: $(cat "$dir/commands")"
    while read -r flags; do
        taken 3 || continue
        what="nnc train $flags"
        # shellcheck disable=SC2086
        "$nnc" train $flags --data="$dir/threads.npz" >"$dir/said" 2>&1
        rc=$?
        ran 0 "2 steps an epoch"
    done <"$dir/commands"
fi
# Of two hosts the commands begin with mpirun, a process for each: as printed, followed by the data.
if [ -e "$dir/threads.npz" ]; then
    nics='"nics": {"source": "described: Ethernet", "count": 1, "bytes_s": 1250000000, "latency_ns": 20000},'
    sed "s/\"count\": 4/\"count\": 1/; s/^    \"devices\": \[/    \"nodes\": 2, $nics \"devices\": [/" tests/cli/ranks.json >"$dir/hosts.json"
    "$nnc" partition "$dir/threads.json" --mode=step --loss=cross_entropy --devices=2 --batches=2 --hardware="$dir/hosts.json" --strategy=sequential,gpipe,zero2,tensor 2>"$dir/said" |
        sed -n 's/.*runs with \(mpirun -n 2 nnc train .*\)/\1/p' >"$dir/commands"
    [ "$(wc -l <"$dir/commands")" = 4 ] || fail "commands of nnc partition for two hosts: $(cat "$dir/commands")"
    while read -r command; do
        taken 3 || continue
        what="$command"
        (PATH="$build:$PATH" && eval "timeout -k 5 120 $command --data='$dir/threads.npz' --comm-timeout=60") </dev/null >"$dir/said" 2>&1
        rc=$?
        ran 0 "2 steps an epoch"
    done <"$dir/commands"
fi
# Inference over replicas: what one device gives, in one process and over ranks, which have its threads together.
"$nnc" run models/mlp.json --set batch=8 --threads=1 --iterations=1 --outputs="$dir/alone.npz" >"$dir/said" 2>&1
for how in "data" "pipeline --replicas=2 --batch-parts=2" "tensor --replicas=2"; do
    taken 3 || continue
    what="inference, $how"
    # shellcheck disable=SC2086
    "$nnc" run models/mlp.json --set batch=8 --threads=2 --devices=4 --strategy=$how --iterations=1 --outputs="$dir/replicas.npz" >"$dir/said" 2>&1
    rc=$?
    ran 0 "1 run"
    # shellcheck disable=SC2086
    job 2 run models/mlp.json --set batch=8 --threads=1 --devices=4 --strategy=$how --iterations=1 --outputs="$dir/replicas2.npz" --comm-timeout=60
    ran 0 "1 run"
    cmp -s "$dir/replicas.npz" "$dir/replicas2.npz" || fail "$what: other results than one process"
    if [ -e "$dir/data.npz" ]; then
        python3 -c "
import numpy as np
a, b = np.load('$dir/alone.npz'), np.load('$dir/replicas.npz')
for k in a.files:
    assert abs(a[k] - b[k]).max() <= 2e-6 * abs(a[k]).max(), (k, abs(a[k] - b[k]).max())" >>"$dir/said" 2>&1 || fail "$what: other results than one device"
    fi
done
# This machine measured by two ranks; strategies run over them, in the order of one process, with the devices of both.
what="calibrate"
job 2 calibrate --budget=1 -o "$dir/here.json" --comm-timeout=60
ran 0 ""
grep -q '"count": 2' "$dir/here.json" && grep -q '"collective": "allreduce", "devices": 2' "$dir/here.json" ||
    fail "$what: no file of two devices with a measured allreduce"
for mode in forward step; do
    what="partition --run, $mode"
    strategies=4
    [ $mode = forward ] || strategies=5
    job 2 partition models/mlp.json --set batch=8 --hardware="$dir/here.json" --mode=$mode --strategy=single,sequential,data,hybrid,zero1 --run --measure \
        --iterations=2 --batches=4 --simulate --format=json --comm-timeout=60
    ran 0 ""
    [ "$(grep -c '"measured": {"iterations": 2' "$dir/said")" = "$strategies" ] || fail "$what: not $strategies strategies ran"
    [ "$(grep -c '"model": "mlp"' "$dir/said")" = 1 ] || fail "$what: more than one rank reports"
    [ "$(grep -c '"device": 1, "busy_ms": [0-9.]*[1-9][0-9]*, "communication_ms"' "$dir/said")" -ge 1 ] ||
        fail "$what: nothing of the other rank's device was measured"
done
# A target of 32 KiB on the other rank's device: MPI's send of it waits for its receiver, which creates the other strategies' sessions first.
cat >"$dir/images.json" <<'JSON'
{"inputs": {"x": [1, 3, 32, 32]}, "layers": [{"op": "conv", "channels": 8, "kernel": 3, "pad": 1}, "relu", {"op": "conv", "channels": 8, "kernel": 3, "pad": 1}]}
JSON
what="partition --run, large targets"
job 2 partition "$dir/images.json" --hardware="$dir/here.json" --mode=step --strategy=sequential,data,1f1b --run --iterations=2 --format=json --comm-timeout=20
ran 0 ""
[ "$(grep -c '"measured": {"iterations": 2' "$dir/said")" = 3 ] || fail "$what: not 3 strategies ran"
# Two models, each on the device of a rank: the results of one process, bit for bit.
cat >"$dir/other.json" <<'JSON'
{"args": {"batch": 2}, "inputs": {"x": ["batch", 30]}, "layers": [{"op": "linear", "out": 40}, "relu", {"op": "linear", "out": 7}]}
JSON
what="two models"
"$nnc" run "$dir/net.json" "$dir/other.json" --place='/net/*=0,/other/*=1' --devices=2 --iterations=3 --outputs="$dir/both.npz" >"$dir/said" 2>&1
rc=$?
ran 0 "2 models together on 2 devices"
[ "$(grep -c 'the same bits as alone' "$dir/said")" = 2 ] || fail "$what: other results than each alone"
for mode in forward step; do
    job 2 run "$dir/net.json" "$dir/other.json" --place='/net/*=0,/other/*=1' --devices=2 --iterations=3 --mode=$mode --outputs="$dir/many-$mode.npz" --comm-timeout=60
    ran 0 "over several ranks no model is timed alone"
done
cmp -s "$dir/both.npz" "$dir/many-forward.npz" || fail "$what: other results than one process"

what="a rank without a device"
job 2 run "$dir/two.json" --devices=1
ran 3 "placed on device 1 of only 1"
# shellcheck disable=SC2086
job 4 $run
ran 2 "4 ranks, but a plan of 3 devices"

what="another plan"
script 2 "exec $nnc $run --seed=\$R --comm-timeout=20"
ran 6 "rank 1 has another plan"
ran 6 "; it has weights (their files, or --seed): "
what="an engine less"
script 2 "[ \$R = 1 ] && less=--no-llvm; exec $nnc $run \$less --comm-timeout=20"
ran 6 "; it has engines: .*interp.*, rank 0 .*: is a library missing there, or is there no memory to load it (nnc doctor)?"

what="a rank that never joins"
script 2 "[ \$R = 1 ] && exec sleep 60; exec $nnc $run --comm-timeout=2"
ran 6 "not all ranks started nnc and joined within 2 s (--comm-timeout)"

what="a rank that is out of memory"
cat >"$dir/large.json" <<'JSON'
{"inputs": {"x": [1, 4096]},
 "layers": [{"op": "linear", "out": 4096, "device": 0}, {"op": "linear", "out": 40960, "device": 1}]}
JSON
script 2 "[ \$R = 1 ] && ulimit -v 500000; exec $nnc run $dir/large.json --devices=2 --comm-timeout=20"
ran "4|6" "cpu:1: \|rank 1 could not load"

what="a rank without memory for MPI"
for kib in 86000 95000; do
    script 2 "[ \$R = 0 ] || ulimit -v $kib; exec $nnc $run --iterations=2 --comm-timeout=20"
    ran "4|5|6" "error: rank 1 of 2"
done

# fault SIGNAL TEXT: rank 1 of a long run gets the signal; all end in time.
fault() {
    script 2 "echo \$\$ >$dir/pid\$R; exec $nnc $run --iterations=100000000 --comm-timeout=3" &
    job=$!
    begun
    from=$(date +%s)
    kill -"$1" "$(cat "$dir/pid1")"
    wait $job
    took=$(($(date +%s) - from))
    [ $took -le 15 ] || fail "$what: ended after $took s"
    grep -q -e "$2" "$dir/said" || fail "$what: nothing says: $2"
    rm -f "$dir/pid0" "$dir/pid1"
}
what="a rank that is killed"
fault KILL "signal 9"
what="a rank that is stopped"
fault STOP "rank 1 has not .* for 3 s (--comm-timeout)"

# SIGTERM to any rank of a training with a checkpoint ends the step, on all of them: rank 0 hears of it with the next step.
what="a training, a rank of which is asked to end"
if [ -s "$dir/data.npz" ]; then
    rm -f "$dir/c.npz" "$dir/log"
    script 2 "echo \$\$ >$dir/pid\$R; exec $nnc train $dir/net.json --data=$dir/data.npz --strategy=data --epochs=1000000 --quiet \
        --checkpoint=$dir/c.npz --checkpoint-every=1000000 --log=$dir/log --comm-timeout=60" &
    job=$!
    tries=0
    while [ ! -s "$dir/log" ] && [ $tries -lt 200 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -TERM "$(cat "$dir/pid1")"
    (sleep 20 && kill -KILL "$(cat "$dir/pid1")") 2>/dev/null & # where it does not end
    late=$!
    wait $job
    kill $late 2>/dev/null
    rc=$(grep -q "Primary job\|exited with non-zero\|noticed that process" "$dir/said" && echo 1 || echo 0)
    ran 0 "stopped after step"
    [ -s "$dir/c.npz" ] || fail "$what: there is no checkpoint"
    rm -f "$dir/pid0" "$dir/pid1"
fi

# The functions that move inputs report nothing themselves. Rank 1 is stopped while rank 0 fills the 200 MB that it then sends.
what="a rank that is stopped during an upload"
cat >"$dir/upload.nnc" <<'GRAPH'
graph @t {
%x = input : f32[96] device 0
%y = input : f32[96,500000] device 1
%p = neg %x device 0
%q = reduce_max %y {axes=[1]} device 1
%r = add %q, %p device 0
return %r
}
GRAPH
script 2 "echo \$\$ >$dir/pid\$R; exec $nnc run $dir/upload.nnc --devices=2 --comm-timeout=5" &
job=$!
tries=0
anon() { # what rank 0 has allocated and written, in kB
    kb=$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$(cat "$dir/pid0" 2>/dev/null)/status" 2>/dev/null)
    echo "${kb:-0}"
}
while [ ! -s "$dir/pid1" ] || [ "$(anon)" -lt 120000 ]; do
    sleep 0.02
    tries=$((tries + 1))
    [ $tries -lt 1000 ] && kill -0 $job 2>/dev/null || break
done
kill -STOP "$(cat "$dir/pid1")"
wait $job
[ "$(grep -c "error: rank 0: .*rank 1 has not received for 5 s (--comm-timeout)" "$dir/said")" = 1 ] ||
    fail "$what: rank 0 does not say once that rank 1 is lost"
kill -KILL "$(cat "$dir/pid1")" 2>/dev/null
rm -f "$dir/pid0" "$dir/pid1"

sleep 1
[ -z "$(left)" ] || fail "processes are left: $(left)"
[ "$(shm)" -le "$before" ] || fail "shared memory is left in /dev/shm"

# Without MPI: as torchrun starts ranks. sockets N ARGS...: nnc on N ranks; rc is rank 0's, $dir/rc has the others'.
port=$((20000 + $$ % 30000))
sockets() {
    n=$1
    r=$1
    shift
    port=$((port + 20))
    : >"$dir/rc"
    : >"$dir/said"
    while [ $((r -= 1)) -ge 0 ]; do
        (
            export RANK=$r WORLD_SIZE="$n" LOCAL_RANK=$r LOCAL_WORLD_SIZE="$n" MASTER_ADDR=localhost MASTER_PORT=$port
            [ "$r" != "${skip:-none}" ] || exec sleep 8
            sh -c "echo \$\$ >$dir/pid$r; exec timeout -k 5 60 \"\$@\"" nnc "$nnc" "$@" >>"$dir/said" 2>&1
            echo "$r $?" >>"$dir/rc"
        ) &
    done
    wait
    rc=$(sed -n 's/^0 //p' "$dir/rc")
}
what="sockets"
for n in 2 3; do
    # shellcheck disable=SC2086
    sockets $n $run --iterations=20 --outputs="$dir/many.npz" --comm-timeout=60
    ran 0 "20 runs"
    cmp -s "$dir/one.npz" "$dir/many.npz" || fail "$what: other results than one process"
    [ "$(grep -c " 0$" "$dir/rc")" = $n ] || fail "$what: exit codes $(tr '\n' ' ' <"$dir/rc")"
done
what="sockets, a rank that never joins"
# shellcheck disable=SC2086
skip=1 sockets 2 $run --comm-timeout=2
ran 6 "not all ranks started nnc and joined within 2 s (--comm-timeout)"
# socket_fault SIGNAL TEXT: rank 1 of a long run gets the signal.
socket_fault() {
    (
        sleep 3
        kill -"$1" "$(pgrep -P "$(cat "$dir/pid1")" || cat "$dir/pid1")"
    ) &
    from=$(date +%s)
    # shellcheck disable=SC2086
    sockets 2 $run --iterations=100000000 --comm-timeout=3
    ran 6 "$2"
    [ $(($(date +%s) - from)) -le 15 ] || fail "$what: ended after $(($(date +%s) - from)) s"
}
what="sockets, a rank that is killed"
socket_fault KILL "rank 1: it has ended its connection"
if command -v torchrun >/dev/null; then
    what="torchrun"
    # shellcheck disable=SC2086
    timeout 120 torchrun --no-python --nproc-per-node=2 --master-port=$((port + 40)) "$nnc" $run --iterations=20 \
        --outputs="$dir/many.npz" --comm-timeout=60 >"$dir/said" 2>&1
    rc=$?
    ran 0 "20 runs"
    cmp -s "$dir/one.npz" "$dir/many.npz" || fail "$what: other results than one process"
fi

what="neither MPI nor an address"
RANK=0 WORLD_SIZE=2 "$nnc" run "$dir/two.json" --devices=3 >"$dir/said" 2>&1
rc=$?
ran 2 "no MPI launcher started this process"
RANK=0 WORLD_SIZE=2 "$nnc" run "$dir/two.json" --devices=3 --world=1 >"$dir/said" 2>&1
rc=$?
ran 0 ""
[ $failed = 0 ] && echo "ranks: ok"
exit $failed
