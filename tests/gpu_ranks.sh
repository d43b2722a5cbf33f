#!/bin/sh
# tests/gpu_ranks.sh SOURCE BUILD -- GPUs over ranks, on the fake of CUDA: results of one process, whatever carries the data, and faults.
set -u
build=$2
nnc=$build/nnc
. "$1/tests/ranks_common.sh"
export NNC_CUDA_PATH="$build/cuda_fake" FAKE_CUDA_KERNELS="${FAKE_CUDA_KERNELS:-$dir/kernels}" FAKE_CUDA_COUNTS=1
mkdir -p "$FAKE_CUDA_KERNELS"

# one ARGS...: nnc in one process; what it says is in $dir/said.
one() {
    "$nnc" "$@" >"$dir/said" 2>&1
    rc=$?
}

# same A B: these files have the same bytes.
same() {
    cmp -s "$1" "$2" || fail "$what: other bits than $3"
}

before=$(shm)

cat >"$dir/two.json" <<'JSON'
{"inputs": {"x": [2, 3, 8, 8]},
 "layers": [
  {"op": "conv", "channels": 8, "kernel": 3, "pad": 1, "device": 0}, {"op": "relu", "device": 0},
  {"op": "conv", "channels": 8, "kernel": 3, "pad": 1, "device": 1}, {"op": "relu", "device": 1},
  {"op": "flatten", "device": 1}, {"op": "linear", "out": 10, "device": 2}, {"op": "softmax", "device": 0}]}
JSON
cat >"$dir/sum.nnc" <<'GRAPH'
graph @t {
%x = input : f32[10,6] device 0
%y = input : f32[10,6] device 1
%p = exp %x device 0
%q = exp %y device 1
%a, %b = allreduce %p, %q
%c, %d = allgather %a, %q {axis=0}
%e, %f = reduce_scatter %c, %d {axis=0}
%g = neg %e device 0
%h = neg %f device 1
return %g, %h
}
GRAPH
run="run $dir/two.json --target=cuda --devices=3 --iterations=5"

what="copies, one process"
# shellcheck disable=SC2086
one $run --outputs="$dir/one.npz"
ran 0 ""
for n in 2 3; do
    for cards in 4 1; do
        for streams in 1 2; do
            taken 3 || continue
            what="copies, $n ranks, $cards GPUs, $streams streams"
            export FAKE_CUDA_DEVICES=$cards
            # shellcheck disable=SC2086
            job $n $run --streams=$streams --outputs="$dir/many.npz" --comm-timeout=60
            ran 0 "5 runs"
            grep -q "the fake of CUDA: [1-9][0-9]* collectives" "$dir/said" || [ $cards = 1 ] || fail "$what: NCCL was not called"
            [ $cards = 4 ] || ran 0 "is cuda:0 here: this process sees 1"
            same "$dir/one.npz" "$dir/many.npz" "one process"
        done
    done
done
unset FAKE_CUDA_DEVICES

# Collectives: staged ones have the CPU's bits; NCCL's are sums of two, which have them, too.
what="collectives, CPUs"
one run "$dir/sum.nnc" --devices=2 --outputs="$dir/cpu.npz"
ran 0 ""
for comm in staged nccl; do
    for n in 1 2; do
        what="collectives, $comm, $n ranks"
        if [ $n = 1 ]; then
            one run "$dir/sum.nnc" --target=cuda --devices=2 --iterations=5 --comm=$comm --outputs="$dir/gpu.npz"
        else
            job $n run "$dir/sum.nnc" --target=cuda --devices=2 --iterations=5 --comm=$comm --outputs="$dir/gpu.npz" --comm-timeout=60
        fi
        ran 0 "5 runs"
        if [ $comm = nccl ]; then
            grep -q "the fake of CUDA: [1-9][0-9]* collectives" "$dir/said" || fail "$what: NCCL was not called"
        else
            ! grep -q "the fake of CUDA: [1-9][0-9]* collectives" "$dir/said" || fail "$what: NCCL was called"
        fi
        cp "$dir/gpu.npz" "$dir/$comm$n.npz"
    done
    same "$dir/${comm}1.npz" "$dir/${comm}2.npz" "one process"
done

# Collectives of unequal parts are staged, between copies that go through NCCL: while the host waits for messages, it has to look at NCCL.
cat >"$dir/uneven.json" <<'JSON'
{"inputs": {"x": [3, 1, 16, 8]},
 "layers": [{"op": "conv", "channels": 16, "kernel": 3, "pad": 1, "name": "c"}, "hardswish", "flatten",
  {"op": "linear", "out": 10, "name": "linear"}],
 "outputs": ["c", "linear"]}
JSON
split="run $dir/uneven.json --target=cuda --devices=3 --strategy=channel --iterations=2"
what="collectives of unequal parts, one process"
# shellcheck disable=SC2086
one $split --outputs="$dir/one.npz"
ran 0 ""
what="collectives of unequal parts"
# shellcheck disable=SC2086
job 2 $split --comm=nccl --outputs="$dir/many.npz" --comm-timeout=20
ran 0 "2 runs"
same "$dir/one.npz" "$dir/many.npz" "one process"

# A trace where streams wait for collectives of others: a command that waits begins once.
for comm in staged nccl; do
    for n in 1 2; do
        what="traced collectives, $comm, $n ranks"
        set -- run "$dir/sum.nnc" --target=cuda --devices=2 --streams=2 --iterations=2 --comm=$comm --trace="$dir/trace.json" --outputs="$dir/gpu.npz" --comm-timeout=20
        if [ $n = 1 ]; then one "$@"; else job $n "$@"; fi
        ran 0 "2 runs"
        same "$dir/${comm}1.npz" "$dir/gpu.npz" "without a trace"
    done
done

# Generated graphs over GPUs, and over GPUs and CPUs. They test what two ranks tell each other, with one stream and several. Eight with
# NNC_TEST_DRAWS=4, one by default.
graph() { # SEED DEVICES
    awk -v seed="$1" -v devices="$2" 'BEGIN {
        srand(seed)
        print "graph @t {"
        for (d = 0; d < devices; d++) print "%v" d " = input : f32[16,8] device " d
        for (d = 0; d < devices; d++) at[d] = d
        n = devices
        for (k = 0; k < 24; k++) {
            d = int(rand() * devices)
            if (k % 8 == 7) { # of the newest value of each device
                left = right = ""
                for (i = 0; i < devices; i++) {
                    left = left (i ? ", " : "") "%v" n
                    right = right (i ? ", " : "") "%v" at[i]
                    at[i] = n++
                }
                print left " = allreduce " right (rand() < 0.3 ? " {reduction=max}" : "")
            } else {
                print "%v" n " = " (rand() < 0.5 ? "add" : "max") " %v" int(rand() * n) ", %v" at[d] " device " d
                at[d] = n++
            }
        }
        out = ""
        for (d = 0; d < devices; d++) out = out (d ? ", " : "") "%v" at[d]
        print "return " out "\n}"
    }' >"$dir/random.nnc"
}
seed=$taken_seed
graphs=$((2 * ${NNC_TEST_DRAWS:-0}))
while [ "$seed" -lt $((taken_seed + (graphs ? graphs : 1))) ]; do
    devices=$((2 + seed % 3))
    streams=$((1 + seed % 2))
    graph "$seed" $devices
    what="graph $seed, CPUs"
    one run "$dir/random.nnc" --devices=$devices --iterations=1 --outputs="$dir/cpu.npz"
    ran 0 ""
    for target in cuda cuda-nccl cpu,cuda; do
        for n in 1 2; do
            what="graph $seed, $target, $n ranks"
            comm=staged
            [ $target = cuda-nccl ] && comm=nccl
            script $n "FAKE_CUDA_SEED=$seed exec $nnc run $dir/random.nnc --target=${target%-nccl} --devices=$devices --streams=$streams --iterations=5 \
                --comm=$comm --outputs=$dir/gpu.npz --comm-timeout=20"
            ran 0 "5 runs"
            [ $target = cuda-nccl ] && [ $devices -gt 2 ] || same "$dir/cpu.npz" "$dir/gpu.npz" "CPUs in one process"
            [ $target != cuda-nccl ] || [ $n = 2 ] || cp "$dir/gpu.npz" "$dir/nccl1.npz"
            [ $target != cuda-nccl ] || same "$dir/nccl1.npz" "$dir/gpu.npz" "NCCL in one process"
        done
    done
    seed=$((seed + 1))
done

# A CPU that waits for one GPU, and so for what that has waited for: copies to the CPU of another GPU, between collectives.
cat >"$dir/implied.nnc" <<'GRAPH'
graph @t {
%v0 = input : f32[16,8] device 0
%v1 = input : f32[16,8] device 1
%v2 = input : f32[16,8] device 2
%v3 = input : f32[16,8] device 3
%v4 = max %v0, %v1 device 1
%v5 = max %v3, %v0 device 0
%v6 = add %v4, %v2 device 2
%v7 = add %v2, %v5 device 0
%v8 = add %v3, %v4 device 1
%v9 = max %v7, %v3 device 3
%v10 = max %v4, %v7 device 0
%v11, %v12, %v13, %v14 = allreduce %v10, %v8, %v6, %v9
%v15 = add %v2, %v13 device 2
%v16 = max %v7, %v14 device 3
%v17 = max %v13, %v11 device 0
%v18 = max %v17, %v16 device 3
%v19 = max %v9, %v18 device 3
%v20 = add %v11, %v19 device 3
%v21 = max %v0, %v17 device 0
%v22, %v23, %v24, %v25 = allreduce %v21, %v12, %v15, %v20
%v26 = max %v20, %v22 device 0
%v27 = max %v7, %v26 device 0
%v28 = add %v25, %v24 device 2
%v29 = add %v25, %v25 device 3
%v30 = max %v28, %v28 device 2
%v31 = max %v26, %v23 device 1
%v32 = max %v21, %v27 device 0
%v33, %v34, %v35, %v36 = allreduce %v32, %v31, %v30, %v29 {reduction=max}
return %v11, %v12, %v13, %v14
}
GRAPH
what="copies of another GPU, CPUs"
one run "$dir/implied.nnc" --devices=4 --iterations=1 --outputs="$dir/cpu.npz"
ran 0 ""
what="copies of another GPU"
one run "$dir/implied.nnc" --devices=4 --target=cpu,cuda --iterations=5 --outputs="$dir/gpu.npz"
ran 0 "5 runs"
same "$dir/cpu.npz" "$dir/gpu.npz" "CPUs"

# A GPU that waits for a CPU, and so for what that has waited for: an upload of what came from another rank.
cat >"$dir/implied.nnc" <<'GRAPH'
graph @t {
%x = input : f32[16,8] device 0
%y = input : f32[16,8] device 1
%z = input : f32[16,8] device 2
%w = input : f32[16,8] device 3
%a = exp %w device 3
%b = add %a, %x device 0
%c = add %b, %y device 1
%d = max %c, %b device 0
%e = max %d, %w device 1
%f = add %z, %z device 2
return %e, %f
}
GRAPH
what="copies of another rank, CPUs"
one run "$dir/implied.nnc" --devices=4 --iterations=1 --outputs="$dir/cpu.npz"
ran 0 ""
what="copies of another rank"
job 2 run "$dir/implied.nnc" --devices=4 --target=cpu,cuda --iterations=5 --outputs="$dir/gpu.npz" --comm-timeout=20
ran 0 "5 runs"
same "$dir/cpu.npz" "$dir/gpu.npz" "CPUs"

# What comes from another rank lies where a copy to a GPU of this process was read before.
cat >"$dir/reused.nnc" <<'GRAPH'
graph @t {
%x = input : f32[16,8] device 0
%y = input : f32[16,8] device 1
%z = input : f32[16,8] device 2
%a = exp %x device 0
%b = add %a, %y device 1
%c = add %b, %z device 2
%d = add %c, %x device 0
return %d
}
GRAPH
what="memory of a copy to a GPU, CPUs"
one run "$dir/reused.nnc" --devices=3 --iterations=1 --outputs="$dir/cpu.npz"
ran 0 ""
what="memory of a copy to a GPU"
job 2 run "$dir/reused.nnc" --devices=3 --target=cpu,cuda --iterations=5 --outputs="$dir/gpu.npz" --comm-timeout=20
ran 0 "5 runs"
same "$dir/cpu.npz" "$dir/gpu.npz" "CPUs"

# A batch on each GPU: staged, over ranks, has the losses and weights of one process.
cat >"$dir/net.json" <<'JSON'
{"args": {"batch": {"default": 8}}, "inputs": {"x": ["batch", 3, 4, 4]},
 "layers": [{"op": "conv", "channels": 4, "kernel": 3, "pad": 1}, {"op": "relu"}, {"op": "flatten"}, {"op": "linear", "out": 5}]}
JSON
if ! command -v python3 >/dev/null || ! python3 -c 'import numpy' 2>/dev/null; then
    echo "skipped: trainings over ranks: Python has no numpy (apt-get install python3-numpy)"
else
    python3 -c "
import numpy as np
r = np.random.default_rng(0)
x = r.standard_normal((48, 3, 4, 4)).astype(np.float32)
np.savez('$dir/data.npz', x=x, target=(x.mean((1, 2, 3)) * 60 + 2).clip(0, 4).astype(np.int64))"
    train="train $dir/net.json --data=$dir/data.npz --target=cuda --devices=2 --strategy=data --lr=0.05 --epochs=2"
    for comm in staged nccl; do
        for zero in "" "--zero=2 --accumulate=2"; do
            taken 3 || continue
            what="training, $comm $zero"
            # shellcheck disable=SC2086
            one $train $zero --comm=$comm --log="$dir/log1" --save="$dir/w1.npz"
            ran 0 "epoch 2"
            # shellcheck disable=SC2086
            job 2 $train $zero --comm=$comm --log="$dir/log2" --save="$dir/w2.npz" --comm-timeout=60
            ran 0 "epoch 2"
            for log in log1 log2; do grep -o '"[a-z_]*loss": [^,}]*' "$dir/$log" >"$dir/$log.loss"; done
            [ -s "$dir/log1.loss" ] || fail "$what: no loss"
            same "$dir/log1.loss" "$dir/log2.loss" "one process"
            same "$dir/w1.npz" "$dir/w2.npz" "one process"
            rm -f "$dir/log1" "$dir/log2"
        done
    done
fi

# Each rank uploads the weights of its own devices, and no others.
what="weights by rank"
cat >"$dir/weights.json" <<'JSON'
{"inputs": {"x": [1, 64]},
 "layers": [{"op": "linear", "out": 64, "bias": false, "device": 0}, {"op": "linear", "out": 512, "bias": false, "device": 1}]}
JSON
job 2 run "$dir/weights.json" --target=cuda --devices=2 --iterations=1 --comm-timeout=60
ran 0 ""
sed -n 's/^the fake of CUDA: .* \([0-9]*\) bytes uploaded$/\1/p' "$dir/said" | sort -n >"$dir/bytes"
awk 'NR == 1 {a = $1} NR == 2 {b = $1} END {exit !(NR == 2 && a >= 16384 && a < 65536 && b >= 131072 && b < 180000)}' "$dir/bytes" ||
    fail "$what: uploaded $(tr '\n' ' ' <"$dir/bytes")bytes; expected 16384 and 131072 and some inputs"

# ---- faults --------------------------------------------------------------------------------------------------------------

sum="run $dir/sum.nnc --target=cuda --devices=2"
what="two ranks on one GPU"
# shellcheck disable=SC2086
FAKE_CUDA_DEVICES=1 job 2 $sum --iterations=2 --comm-timeout=60
ran 0 "one GPU (0000:00:00.0), which NCCL does not support"
# shellcheck disable=SC2086
FAKE_CUDA_DEVICES=1 job 2 $sum --iterations=2 --comm-timeout=60 --comm=nccl
ran 5 "one GPU (0000:00:00.0), which NCCL does not support"
what="NCCL reports an error"
script 2 "[ \$R = 1 ] && export FAKE_NCCL_ERROR=5; exec $nnc $sum --iterations=5 --comm-timeout=5"
ran 6 "NCCL: "
what="a rank does not join a collective"
from=$(date +%s)
script 2 "[ \$R = 1 ] && export FAKE_NCCL_HANG=4; exec $nnc $sum --iterations=5 --comm-timeout=3"
ran 6 "collective: through NCCL: another rank has not joined for 3 s (--comm-timeout)"
[ $(($(date +%s) - from)) -le 15 ] || fail "$what: ended after $(($(date +%s) - from)) s"
what="another plan"
script 2 "exec $nnc $run --seed=\$R --comm-timeout=20"
ran 6 "rank 1 has another plan"
what="a GPU without memory"
script 2 "[ \$R = 1 ] && export FAKE_CUDA_TAKEN=1:1024; exec $nnc $sum --comm-timeout=20"
ran "4|6" "do not fit: \|rank 1 could not load"
what="a kernel that fails"
script 2 "[ \$R = 1 ] && export FAKE_CUDA_BREAK=neg; exec $nnc $sum --iterations=3 --comm-timeout=10 --comm=staged"
ran "5|6" "rank 1"
what="a rank that never joins"
# shellcheck disable=SC2086
script 2 "[ \$R = 1 ] && exec sleep 60; exec $nnc $run --comm-timeout=2"
ran 6 "not all ranks started nnc and joined within 2 s (--comm-timeout)"

# fault SIGNAL ARGS TEXT: rank 1 of a long run gets the signal; all end in time.
fault() {
    script 2 "echo \$\$ >$dir/pid\$R; exec $nnc $2 --iterations=100000000 --comm-timeout=3" &
    job=$!
    begun
    from=$(date +%s)
    kill -"$1" "$(cat "$dir/pid1")"
    wait $job
    took=$(($(date +%s) - from))
    [ $took -le 15 ] || fail "$what: ended after $took s"
    grep -q -e "$3" "$dir/said" || fail "$what: nothing says: $3"
    kill -KILL "$(cat "$dir/pid1")" 2>/dev/null
    rm -f "$dir/pid0" "$dir/pid1"
}
run="run $dir/two.json --target=cuda --devices=3"
for with in "copies|$run --comm=staged" "copies by NCCL|$run --comm=nccl" "staged collectives|$sum --comm=staged" "NCCL|$sum --comm=nccl"; do
    what="a rank that is killed, ${with%%|*}"
    ! taken 3 || fault KILL "${with#*|}" "signal 9"
    what="a rank that is stopped, ${with%%|*}"
    ! taken 3 || fault STOP "${with#*|}" "another rank has not joined for 3 s\|rank 1 has not .* for 3 s"
done
sleep 1
left=$(left)
[ -z "$left" ] || fail "processes are left: $left"
[ "$(shm)" -le "$before" ] || fail "shared memory is left in /dev/shm"
[ $failed = 0 ] && echo "gpu_ranks: ok"
exit $failed
