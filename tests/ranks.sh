#!/bin/sh
# tests/ranks.sh SOURCE BUILD -- nnc under mpirun: results of several ranks, and what happens when one of them fails. Skipped without mpirun.
set -u
build=$2
nnc=$build/nnc
if ! command -v mpirun >/dev/null; then
    echo "skipped: there is no mpirun (apt-get install openmpi-bin)"
    exit 77
fi
if [ ! -e "$build/libnnc_mpi.so" ]; then
    echo "skipped: nnc was built without MPI (apt-get install libopenmpi-dev)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# Containers: root, and fewer cores than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none XDG_CACHE_HOME="$dir/cache"
failed=0

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$dir/said"
    failed=1
}

# ran RC TEXT: the last job ended with RC (or one of several, between |) and said TEXT.
ran() {
    case "|$1|" in *"|$rc|"*) ;; *) fail "$what: exit code $rc, not $1" ;; esac
    [ -z "$2" ] || grep -q -e "$2" "$dir/said" || fail "$what: nothing says: $2"
}

# job N ARGS...: nnc with these on N ranks; what it says is in $dir/said.
job() {
    n=$1
    shift
    timeout -k 5 90 mpirun -n "$n" "$nnc" "$@" >"$dir/said" 2>&1
    rc=$?
}

# script N TEXT: each of N ranks runs this script; R is its rank.
script() {
    timeout -k 5 90 mpirun -n "$1" sh -c "R=\$OMPI_COMM_WORLD_RANK; $2" >"$dir/said" 2>&1
    rc=$?
}

# Processes of this test that run nnc or wait for it: their command line holds the folder.
left() {
    for p in /proc/[0-9]*; do
        { tr '\0' ' ' <"$p/cmdline" | grep -q "^[^ ]*nnc .*$dir" && echo "${p#/proc/}"; } 2>/dev/null
    done
}

# Shared memory that no process maps any more. (Other jobs on this machine have some of their own, which they do.)
shm() {
    for f in /dev/shm/*vader* /dev/shm/*nnc* /dev/shm/*nccl*; do
        [ ! -e "$f" ] || grep -qs -F "$f" /proc/[0-9]*/maps || echo "$f"
    done | wc -l
}

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
        what="$n ranks, $streams streams"
        # shellcheck disable=SC2086
        job "$n" $run --streams=$streams --iterations=20 --outputs="$dir/many.npz" --comm-timeout=60
        ran 0 "20 runs"
        cmp -s "$dir/one.npz" "$dir/many.npz" || fail "$what: other results than one process"
        [ "$(grep -c "20 runs" "$dir/said")" = 1 ] || fail "$what: more than one rank reports"
    done
done

# Layers of a training on two devices, then a batch on each: losses are one process's, bit for bit, also of one that is resumed.
cat >"$dir/net.json" <<'JSON'
{"args": {"batch": {"default": 8}}, "inputs": {"x": ["batch", 3, 8, 8]},
 "layers": [{"op": "conv", "channels": 8, "kernel": 3, "pad": 1, "device": 0}, {"op": "relu", "device": 0},
  {"op": "flatten", "device": 1}, {"op": "linear", "out": 5, "device": 1}]}
JSON
if command -v python3 >/dev/null && python3 -c 'import numpy' 2>/dev/null; then
    python3 -c "
import numpy as np
r = np.random.default_rng(0)
x = r.standard_normal((96, 3, 8, 8)).astype(np.float32)
np.savez('$dir/data.npz', x=x, target=(x.mean((1, 2, 3)) * 60 + 2).clip(0, 4).astype(np.int64))"
    for strategy in layers data; do
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
fi

what="a rank without a device"
job 2 run "$dir/two.json" --devices=1
ran 3 "placed on device 1 of only 1"
# shellcheck disable=SC2086
job 4 $run
ran 2 "4 ranks, but a plan of 3 devices"

what="another plan"
script 2 "exec $nnc $run --seed=\$R --comm-timeout=20"
ran 6 "rank 1 has another plan"

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

# fault SIGNAL TEXT: rank 1 of a long run gets the signal; all end in time.
fault() {
    script 2 "echo \$\$ >$dir/pid\$R; exec $nnc $run --iterations=100000000 --comm-timeout=3" &
    job=$!
    tries=0
    while [ ! -s "$dir/pid1" ] && [ $tries -lt 200 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    sleep 2
    from=$(date +%s)
    kill -"$1" "$(cat "$dir/pid1")"
    wait $job
    took=$(($(date +%s) - from))
    [ $took -le 15 ] || fail "$what: ended after $took s"
    grep -q -e "$2" "$dir/said" || fail "$what: nothing says: $2"
    rm -f "$dir/pid0" "$dir/pid1"
}
what="a rank that is killed"
fault KILL "exited on signal 9"
what="a rank that is stopped"
fault STOP "rank 1 has not .* for 3 s (--comm-timeout)"

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
