#!/bin/sh
# tests/gpu_eight.sh SOURCE BUILD -- eight GPUs on the fake of CUDA, in one process, two ranks of four, and eight ranks on two nodes: trainings
# and inference by each strategy, staged and by NCCL, as torchrun and Slurm start ranks, and a rank that is lost.
set -u
build=$2
nnc=$build/nnc
. "$1/tests/ranks_common.sh"
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3"
    exit 77
fi
export NNC_CUDA_PATH="$build/cuda_fake" FAKE_CUDA_KERNELS="${FAKE_CUDA_KERNELS:-$dir/kernels}" FAKE_CUDA_COUNTS=1 FAKE_CUDA_DEVICES=8
mkdir -p "$FAKE_CUDA_KERNELS"
before=$(shm)

# one ARGS...: nnc in one process; what it says is in $dir/said.
one() {
    "$nnc" "$@" >"$dir/said" 2>&1
    rc=$?
}

# same A B: these files have the same bytes.
same() {
    cmp -s "$1" "$2" || fail "$what: other bits than $3"
}

# captured: runs of one process are replayed, where no collective is staged.
captured() {
    grep -q "^the fake of CUDA: 0 collectives" "$dir/said" || grep -q "^the fake of CUDA: .* [1-9][0-9]* replays" "$dir/said" || fail "$what: no run was captured"
}

# nodes KIND ARGS...: nnc with these on eight ranks, as torchrun or srun (without MPI) starts them on two nodes of four GPUs, or by flags; with
# CARDS=8 on one node. rc is rank 0's, $dir/rcR that of rank R, whose process is in $dir/pidR. FAILS=R: the GPU of rank R has no memory.
# HANGS=R: its calls of NCCL after the fourth do not begin.
port=$((20000 + $$ % 30000))
begin_nodes() {
    kind=$1
    shift
    port=$((port + 20)) cards=${CARDS:-4}
    : >"$dir/said"
    rm -f "$dir"/rc[0-7] "$dir"/pid[0-7]
    for r in 0 1 2 3 4 5 6 7; do
        (
            export FAKE_CUDA_DEVICES=$cards MASTER_ADDR=localhost MASTER_PORT=$port
            case $kind in
            torchrun) export RANK=$r WORLD_SIZE=8 LOCAL_RANK=$((r % cards)) LOCAL_WORLD_SIZE=$cards ;;
            srun) export SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=$((r % cards)) \
                SLURM_NODEID=$((r / cards)) SLURM_STEP_TASKS_PER_NODE="$cards(x$((8 / cards)))" ;;
            flags) set -- "$@" --rank=$r --world=8 ;;
            esac
            [ "${FAILS:-}" != $r ] || export FAKE_CUDA_TAKEN=1:1024
            [ "${HANGS:-}" != $r ] || export FAKE_NCCL_HANG=4
            timeout -k 5 100 sh -c "echo \$\$ >$dir/pid$r; exec \"\$@\"" sh "$nnc" "$@" >>"$dir/said" 2>&1
            echo $? >"$dir/rc$r"
        ) &
    done
}
nodes() {
    begin_nodes "$@"
    wait
    rc=$(cat "$dir/rc0")
}

# npz.py make FILE: 128 rows of 16 numbers with a class each. npz.py alike A B: their arrays of f32 are equal up to rounding.
cat >"$dir/npz.py" <<'PY'
import ast, random, struct, sys, zipfile


def npy(kind, shape, data):
    head = repr({"descr": kind, "fortran_order": False, "shape": shape})
    head += " " * ((-11 - len(head)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def arrays(file):
    with zipfile.ZipFile(file) as z:
        for name in z.namelist():
            b = z.read(name)
            n = struct.unpack("<H", b[8:10])[0]
            assert ast.literal_eval(b[10:10 + n].decode())["descr"] == "<f4"
            yield name, struct.unpack(f"<{(len(b) - 10 - n) // 4}f", b[10 + n:])


if sys.argv[1] == "make":
    random.seed(1)
    x = [[random.gauss(0, 1) for _ in range(16)] for _ in range(128)]
    target = [int(min(max(sum(r[:4]) + 4, 0), 7)) for r in x]
    with zipfile.ZipFile(sys.argv[2], "w") as z:
        z.writestr("x.npy", npy("<f4", (128, 16), b"".join(struct.pack("<16f", *r) for r in x)))
        z.writestr("target.npy", npy("<i8", (128,), struct.pack("<128q", *target)))
else:
    a, b = (dict(arrays(f)) for f in sys.argv[2:])
    assert a and a.keys() == b.keys()
    for k in a:
        most = max(map(abs, b[k]))
        assert len(a[k]) == len(b[k]) and all(abs(x - y) <= 1e-5 * most for x, y in zip(a[k], b[k])), k
PY
python3 "$dir/npz.py" make "$dir/eight.npz"
cat >"$dir/eight.json" <<'JSON'
{"args": {"batch": {"default": 8}}, "inputs": {"x": ["batch", 16]},
 "layers": [{"op": "linear", "out": 16}, "tanh", {"op": "linear", "out": 16}, "tanh", {"op": "linear", "out": 16}, "tanh",
  {"op": "linear", "out": 16}, "tanh", {"op": "linear", "out": 16}, "tanh", {"op": "linear", "out": 16}, "tanh",
  {"op": "linear", "out": 16}, "tanh", {"op": "linear", "out": 8}]}
JSON
cat >"$dir/image.json" <<'JSON'
{"inputs": {"x": [8, 3, 16, 8]},
 "layers": [{"op": "conv", "channels": 16, "kernel": 3, "pad": 1}, "relu", {"op": "conv", "channels": 16, "kernel": 3, "pad": 1}, "relu",
  "flatten", {"op": "linear", "out": 16}]}
JSON
stages=--place=0-1=0,2-3=1,4-5=2,6-7=3,8-9=4,10-11=5,12-13=6,14-=7

# ---- trainings ------------------------------------------------------------------------------------------------------------

losses() {
    grep -o '"[a-z_]*loss": [^,}]*' "$1"
}
# near A B: the losses in these logs are equal up to rounding.
near() {
    [ "$(losses "$1" | wc -l)" -gt 0 ] && losses "$1" | paste - "$2.loss" | awk '
        { split($0, at, /[ \t]+/); d = at[2] - at[4]; if (d < 0) d = -d; if (!(d <= 1e-4 * at[4])) bad = 1 } END { exit bad }' ||
        fail "$what: other losses than one GPU"
}
# eight REFERENCE FLAGS...: a training with these: one process, staged and by NCCL, whose runs are captured; and two ranks. REFERENCE: flags of
# one GPU.
eight() {
    reference=$1
    shift
    taken 3 || return 0
    train="train $dir/eight.json --data=$dir/eight.npz --target=cuda --lr=0.1 --epochs=1 --comm-timeout=60"
    what="one GPU, $*"
    # shellcheck disable=SC2086
    one $train $reference --log="$dir/one.log"
    ran 0 "epoch 1"
    losses "$dir/one.log" >"$dir/one.log.loss"
    for comm in staged nccl; do
        what="eight GPUs, $comm, $*"
        # shellcheck disable=SC2086
        one $train "$@" --devices=8 --comm=$comm --log="$dir/$comm.log" --save="$dir/$comm.npz"
        ran 0 "epoch 1"
        near "$dir/$comm.log" "$dir/one.log"
        what="eight GPUs, $comm, two ranks, $*"
        # shellcheck disable=SC2086
        job 2 $train "$@" --devices=8 --comm=$comm --save="$dir/many.npz"
        ran 0 "epoch 1"
        same "$dir/$comm.npz" "$dir/many.npz" "one process"
    done
    rm -f "$dir"/*.log "$dir/one.log.loss"
}
eight "--set batch=64" --strategy=data
eight "--set batch=64" --strategy=data --zero=1
eight "--set batch=64 --accumulate=2" --strategy=data --zero=2 --accumulate=2
eight "--accumulate=8" --strategy=1f1b --micro-batches=8 $stages
eight "--accumulate=8" --strategy=zb-h1 --micro-batches=8 $stages
eight "" --strategy=tensor
eight "--set batch=16" --strategy=tensor --replicas=2

# ---- inference ------------------------------------------------------------------------------------------------------------

# alike A B: the arrays of these files are equal up to rounding.
alike() {
    python3 "$dir/npz.py" alike "$1" "$2" 2>>"$dir/said" || fail "$what: other results than one GPU"
}
# infer MODEL FLAGS...: runs with these: one process, captured by NCCL; two ranks; eight.
infer() {
    model=$1
    shift
    taken 2 || return 0
    run="run $dir/$model.json --target=cuda --iterations=3 --threads=1"
    what="one GPU, $model"
    # shellcheck disable=SC2086
    one $run --outputs="$dir/one.npz"
    ran 0 "3 runs"
    for comm in staged nccl; do
        what="eight GPUs, $comm, $model, $*"
        # shellcheck disable=SC2086
        one $run "$@" --devices=8 --comm=$comm --outputs="$dir/$comm.npz"
        ran 0 "3 runs"
        [ $comm = staged ] || captured
        alike "$dir/$comm.npz" "$dir/one.npz"
        what="eight GPUs, $comm, two ranks, $model, $*"
        # shellcheck disable=SC2086
        job 2 $run "$@" --devices=8 --comm=$comm --outputs="$dir/many.npz" --comm-timeout=60
        ran 0 "3 runs"
        same "$dir/$comm.npz" "$dir/many.npz" "one process"
        what="eight GPUs, $comm, eight ranks, $model, $*"
        # shellcheck disable=SC2086
        CARDS=8 nodes torchrun $run "$@" --devices=8 --comm=$comm --outputs="$dir/many.npz" --comm-timeout=60
        ran 0 "3 runs"
        same "$dir/$comm.npz" "$dir/many.npz" "one process"
    done
}
infer eight --strategy=tensor
infer image --strategy=channel
infer image --strategy=spatial
infer eight --strategy=pipeline --batch-parts=8 $stages
infer eight --strategy=data
infer eight --strategy=tensor --replicas=2

# ---- launchers, and a rank that fails -------------------------------------------------------------------------------------------

train="train $dir/eight.json --data=$dir/eight.npz --target=cuda --devices=8 --strategy=data --zero=1 --lr=0.1 --threads=1"
what="eight GPUs, one process"
# shellcheck disable=SC2086
one $train --epochs=1 --comm=staged --save="$dir/one.npz"
ran 0 "epoch 1"
for kind in torchrun srun flags; do
    what="eight ranks on two nodes, $kind"
    # shellcheck disable=SC2086
    nodes $kind $train --epochs=1 --comm=staged --save="$dir/many.npz" --comm-timeout=60
    ran 0 "epoch 1"
    [ "$(grep -c "epoch 1" "$dir/said")" = 1 ] || fail "$what: rank 0 alone prints"
    same "$dir/one.npz" "$dir/many.npz" "one process"
done
what="eight ranks, one GPU without memory"
# shellcheck disable=SC2086
FAILS=5 nodes torchrun $train --epochs=1 --comm=staged --comm-timeout=20
ran "4|6" "do not fit: \|rank 5 could not load"

# ended: all ranks but 5 ended soon after it was killed, with exit code 6, and none is left.
ended() {
    kill -KILL "$(cat "$dir/pid5")"
    from=$(date +%s)
    wait
    took=$(($(date +%s) - from))
    [ $took -le 30 ] || fail "$what: ended after $took s"
    for r in 0 1 2 3 4 6 7; do
        [ "$(cat "$dir/rc$r")" = 6 ] || fail "$what: exit code $(cat "$dir/rc$r") of rank $r, not 6"
    done
    [ "$(cat "$dir/rc5")" = 137 ] || fail "$what: exit code $(cat "$dir/rc5") of rank 5"
    grep -q "rank 5: it has ended its connection" "$dir/said" || fail "$what: nothing names rank 5"
    [ -z "$(left)" ] || fail "$what: processes are left: $(left)"
}
# until_is TEST...: at most a minute
until_is() {
    tries=0
    until "$@" || [ $tries -ge 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}
# lost COMM: rank 5 is killed in the middle of a training, which a checkpoint continues: the bits of one that was not stopped.
lost() {
    rm -f "$dir/kept.npz" "$dir/log"
    what="eight ranks, one killed in a step, $1"
    # shellcheck disable=SC2086
    CARDS=8 begin_nodes torchrun $train --epochs=1000000 --comm=$1 --comm-timeout=60 --quiet --checkpoint="$dir/kept.npz" --checkpoint-every=3 \
        --log="$dir/log"
    until_is [ -s "$dir/kept.npz" ]
    ended
    [ "$(ls "$dir" | grep -c '^kept')" = 1 ] || fail "$what: left of a checkpoint: $(ls "$dir" | grep '^kept')"
    # shellcheck disable=SC2086
    one $train --epochs=300 --comm=$1 --checkpoint="$dir/kept.npz" --resume --save="$dir/resumed.npz"
    ran 0 ""
    # shellcheck disable=SC2086
    one $train --epochs=300 --comm=$1 --save="$dir/whole.npz"
    ran 0 ""
    same "$dir/whole.npz" "$dir/resumed.npz" "a training that was not stopped"
}
for comm in staged nccl; do
    taken 2 || continue
    lost $comm
done
# The others wait for rank 5, whose call of NCCL does not begin, when it is killed.
what="eight ranks, one killed before a call of NCCL"
# shellcheck disable=SC2086
CARDS=8 HANGS=5 begin_nodes torchrun $train --epochs=1000000 --comm=nccl --comm-timeout=60 --quiet --log="$dir/log"
until_is grep -q "^the fake of CUDA: .* hangs" "$dir/said"
sleep 1
ended

sleep 1
[ -z "$(left)" ] || fail "processes are left: $(left)"
[ "$(shm)" -le "$before" ] || fail "shared memory is left in /dev/shm"
[ $failed = 0 ] && echo "gpu_eight: ok"
exit $failed
