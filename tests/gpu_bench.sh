#!/bin/sh
# tests/gpu_bench.sh SOURCE BUILD -- bench/gpu.sh in small on the fake of CUDA. Tests what it makes and that it goes on where it ended. A
# kernel that crashes or hangs costs only its own result.
set -u
source=$1 build=$2
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
export NNC_CUDA_PATH="$build/cuda_fake" FAKE_CUDA_KERNELS="${FAKE_CUDA_KERNELS:-$out}" BUILD="$build" LC_ALL=C
python=$(command -v python3 || echo none)
. "$source/tests/taken.sh"
failed=0

gpu() {
    sh "$source/bench/gpu.sh" --tiny --out="$out" --python="$python" "$@" >"$out/log" 2>&1
    code=$?
}

# expect WHAT CONDITION...
expect() {
    what=$1
    shift
    "$@" && return
    echo "gpu_bench: not so: $what"
    cat "$out/log"
    failed=1
}

results() {
    ls "$out"/raw-*/"$1" | grep -c '\.json$'
}

# Questions of the report that no cell answers, but those that begin as given.
unanswered() {
    grep ': not measured (' "$out"/gpu-*.txt | grep -v "^\($1\)"
}

# Parts whose time is up go on after the core's cells; exit code 75 where something is left after that.
mkdir "$out/fake"
cat >"$out/fake/bench_device" <<'END'
#!/bin/sh
case $1 in engines | ceilings | run) ;; *) exit 0 ;; esac
echo >>"$0.$1"
[ "$(wc -l <"$0.$1")" -gt "$FAKE_TIMES" ] || exit 75
END
ln -s /bin/true "$out/fake/nnc"
chmod +x "$out/fake/bench_device"
for times in 1 2; do
    rm -f "$out"/fake/bench_device.*
    FAKE_TIMES=$times BUILD="$out/fake" gpu --only=ceilings,engines --out="$out/fake"
    expect "exit code of parts that $times times are out of time: $code" [ "$code" = $((times == 1 ? 0 : 75)) ]
done
# What a part's time limit ends is at an end: it holds the GPU's lock no longer.
rm "$out/fake/nnc"
printf '#!/bin/sh\necho $$ >"$0.pid"\nexec sleep 60\n' >"$out/fake/nnc"
chmod +x "$out/fake/nnc"
mkdir "$out/fake/predict"
(cd "$source" && timeout 4 sh bench/device/predict.sh --nnc="$out/fake/nnc" --out="$out/fake/predict" --deadline=30 --turn="$out/fake/turn" --tiny) 2>"$out/log"
sleep 1
expect "a prediction begins" [ -s "$out/fake/nnc.pid" ]
expect "and ends with its part's time" sh -c "! kill -0 $(cat "$out/fake/nnc.pid") 2>/dev/null"
rm -r "$out/fake"

# A first run measures four cells; the kernel of layernorm crashes, that of softmax hangs, that of sin leaves a dead context behind.
cat >"$out/cells.txt" <<'END'
layernorm: models/layernorm.json batch=5 cols=100
softmax:   models/softmax.json batch=6 cols=300
dead:      models/nested_sin.json depth=2 n=50
matmul:    models/matmul.json precision=f32 dim=2^5
END
FAKE_CUDA_CRASH=k_reduce_mean FAKE_CUDA_HANG=k_reduce_max FAKE_CUDA_BREAK=k_sin gpu --only=machine,nnc --limit=12 --cells="$out/cells.txt"
expect "exit code 1 after failures, not $code" [ "$code" = 1 ]
expect "the crash is a failure of its cell" grep -q 'crashed (signal 6)' "$out"/raw-*/nnc/layernorm*.json
expect "the hang is a failure of its cell" grep -q 'longer than its limit' "$out"/raw-*/nnc/softmax*.json
expect "the illegal address is a failure of its cell" grep -q '"failed": ".*illegal' "$out"/raw-*/nnc/dead*.json
expect "and costs a process" grep -q 'context is dead' "$out"/raw-*/nnc.log
expect "the other cell is measured" grep -q '"queued"' "$out"/raw-*/nnc/matmul*.json

# A second one leaves them; a third does the rest, and again what failed.
gpu --only=machine,nnc --cells="$out/cells.txt"
expect "the results are in one archive" [ "$(ls "$out"/gpu-*.tar.gz | wc -l)" = 1 ]
expect "without the cache of kernels" sh -c "! tar -tzf '$out'/gpu-*.tar.gz | grep -q /cache/"
mkdir "$out/there"
mkdir "$out/there/raw"
gpu --only=machine,nnc --cells="$out/cells.txt" --out="$out/there" --raw="$out/there/raw" --from="$(ls "$out"/gpu-*.tar.gz)"
expect "another folder goes on from it" grep -q '^0 results, 0 failures, 4 there before' "$out"/there/raw/raw-*/nnc.log
expect "and has files of the report alone: $(ls "$out/there")" [ "$(ls "$out/there" | grep -vc '^gpu-\|^raw$')" = 0 ]
rm -r "$out/there"
gpu --only=machine,nnc --cells="$out/cells.txt"
expect "failures stay failures: exit code 1, not $code" [ "$code" = 1 ]
# The second run of a card: what failed, in its own time.
gpu --only=machine,nnc --cells="$out/cells.txt" --again --budget=150
expect "what failed is repeated: exit code 0, not $code" [ "$code" = 0 ]
for cell in layernorm softmax dead; do
    expect "$cell is measured" sh -c "grep -q '\"queued\"' '$out'/raw-*/nnc/$cell*.json"
done
# Under compute-sanitizer: one of two runs is clean.
mkdir "$out/tools"
cat >"$out/tools/compute-sanitizer" <<'END'
#!/bin/sh
shift 4 # --tool TOOL --error-exitcode 99
echo "========= COMPUTE-SANITIZER"
case "$*" in *layernorm*) echo "========= Invalid __global__ write of size 4 bytes" && exit 99 ;; esac
exec "$@"
END
chmod +x "$out/tools/compute-sanitizer"
PATH="$out/tools:$PATH" gpu --only=machine,sanitize
expect "exit code 1 after the sanitizer's error, not $code" [ "$code" = 1 ]
expect "a clean run" grep -q '"clean": true' "$out"/raw-*/sanitize/memcheck,softmax.json
expect "and one that is not" grep -q '"failed": "exit code 99: =* *Invalid' "$out"/raw-*/sanitize/memcheck,layernorm.json
rm -r "$out"/raw-*/sanitize
touch "$out/before"

# Killed at a cell that hangs, it leaves an archive; its processes end with the cell's limit.
# killed PATTERN PROCESS: once a file of that name is there; PROCESS of it is told by its text where it has none.
killed() {
    i=0
    until ls "$out"/$1 >/dev/null 2>&1 || [ $i -gt 1800 ]; do
        i=$((i + 1))
        sleep 0.1
    done
    kill -9 ${2:-$(cat "$out"/$1)}
}
mkdir "$out/cut" "$out/there"
head -n 2 "$out/cells.txt" >"$out/cut.txt"
FAKE_CUDA_HANG=k_reduce_max sh "$source/bench/gpu.sh" --tiny --out="$out/cut" --python="$python" --only=machine,nnc,report --limit=30 \
    --cells="$out/cut.txt" >"$out/log" 2>&1 &
killed 'cut/raw-*/nnc/softmax*.running' $!
i=0
until ls "$out"/cut/gpu-*.tar.gz >/dev/null 2>&1 || [ $i -gt 900 ]; do
    i=$((i + 1))
    sleep 0.1
done
gpu --only=machine,nnc,report --cells="$out/cut.txt" --out="$out/there" --from="$(ls "$out"/cut/gpu-*.tar.gz)"
expect "a killed run goes on from its archive: exit code 0, not $code" [ "$code" = 0 ]
expect "with what it had" grep -q '^1 results, 0 failures, 1 there before' "$out"/there/raw-*/nnc.log
[ "$python" = none ] || expect "and its report was written" [ -s "$(echo "$out"/cut/gpu-*.txt)" ]
rm -r "$out/there"
# until PARTS FLAG...: a busy machine: what is left is done by the same command
until_done() {
    parts=$1
    shift
    gpu "$@" --only="$parts" --limit=300
    for again in 1 2 3 4 5 6 7 8 9; do
        [ "$code" = 75 ] && gpu --only="$parts" --limit=300 --peers-on=cpu
    done
}
export FAKE_CUDA_L2_KIB=6 # in which some of the tensors do not fit
all=machine,check,sanitize,ceilings,nnc,tuned,engines,predict,cpu,report
until_done $all --again
expect "exit code 0 when all is well, not $code" [ "$code" = 0 ]
expect "all cells are measured" [ "$(results nnc)" = 27 ]
expect "what was there is left alone" [ -z "$(find "$out"/raw-*/nnc -name 'matmul,precision=f32,dim=32*' -newer "$out/before")" ]
expect "models agree with float64" grep -q '"agrees": true' "$out"/raw-*/check/softmax_1*.json
expect "generated graphs agree" grep -q '"worst_nmse"' "$out"/raw-*/check/graphs*.json
expect "ceilings are measured" grep -q '"bf16"' "$out"/raw-*/ceilings/ceilings,products.json
expect "overlapped copies are timed" grep -q '"streamed"' "$out"/raw-*/nnc/one*.json
expect "configurations of cuDNN are timed" grep -q '"taken": true' "$out"/raw-*/engines/engines,conv,3x3*.json
expect "those of gradients, too" grep -q '"taken": true' "$out"/raw-*/engines/engines,wgrad,3x3*.json
expect "commands are timed" grep -q '"traceEvents"' "$out"/raw-*/traces/train_mlp*.trace
expect "predictions are measured" grep -q '"predicted_error"' "$out"/raw-*/predict/mlp.json
expect "measured algorithms are timed" [ "$(results tuned)" = 1 ]
expect "energy is read" grep -q '"watts": [0-9]' "$out"/raw-*/nnc/one*.json
expect "the CPU is measured" [ "$(results cpu)" -gt 3 ]
if [ "$python" != none ]; then
    expect "a table" grep -q 'models agree' "$out"/gpu-*.txt
    expect "the table has its cells" grep -q '^sin,depth=4,dtype=f16,n=1024\* ' "$out"/gpu-*.txt
    expect "only questions about peers and machine code have no answer" [ -z "$(unanswered 'nnc against\|Cells that\|Models\|Training\|Device memory\|Predicted')" ]
    expect "seconds of each part" grep -q '^Seconds of parts: .*engines [0-9]*' "$out"/gpu-*.txt
    expect "branches on one stream and two" grep -q '^Two models at once.* 2 streams' "$out"/gpu-*.txt
    expect "JSON" "$python" -c 'import json, glob, sys; assert json.load(open(glob.glob(sys.argv[1] + "/gpu-*.json")[0]))["rows"]' "$out"
fi

# PyTorch on this machine's CPU replaces the peers. Its compiler prepares; one peer leaves a dead context behind, which costs its own cell
# and a process. Then each question that a GPU is not needed for has an answer, and there is a chart.
if [ "$python" != none ] && "$python" -c 'import torch' 2>/dev/null; then
    grep -e '^layernorm' -e '^mlp' "$source/bench/device/tiny.txt" >"$out/peers.txt"
    NNC_GPU_PROCESSES=1 FAKE_PEER_BREAK=layernorm gpu --only=peers --peers-on=cpu --limit=300 --cells="$out/peers.txt"
    expect "exit code 1 after a peer's failure, not $code" [ "$code" = 1 ]
    expect "a peer that leaves a dead context behind is a failure of its cell" grep -q '"failed": ".*illegal' "$out"/raw-*/peers/eager,layernorm*.json
    expect "and costs a process" grep -q 'context is dead' "$out"/raw-*/peers.log
    expect "the peers after it are measured" grep -q '"queued"' "$out"/raw-*/peers/eager,mlp*.json
    export NNC_GPU_COMPILE=1 NNC_GPU_PROCESSES=2
    sh "$source/bench/gpu.sh" --tiny --out="$out" --python="$python" --only=peers --limit=300 --peers-on=cpu >"$out/log" 2>&1 &
    run=$!
    killed 'raw-*/peers/compile,softmax*.running' ''
    wait $run
    code=$?
    expect "exit code 1 after a peer was killed, not $code" [ "$code" = 1 ]
    expect "a peer that was killed is a failure of its cell" grep -q '"failed": "killed' "$out"/raw-*/peers/compile,softmax*.json
    expect "and its only one" [ "$(grep -l '"failed": "killed' "$out"/raw-*/peers/*.json | wc -l)" = 1 ]
    until_done peers,report --again --peers-on=cpu
    expect "exit code 0 with all peers, not $code" [ "$code" = 0 ]
    expect "PyTorch's compiler has graphs to prepare" [ "$(results graphs)" -gt 0 ]
    expect "the compiler's runs are alone on the GPU" grep -q '"runs_alone": [1-9]' "$out"/raw-*/peers/compile,softmax*.json
    expect "all peers are measured: $(results peers)" [ "$(results peers)" = 27 ]
    expect "all questions have an answer but those that need a GPU" [ -z "$(unanswered 'Device memory\|Predicted')" ]
    expect "a chart" grep -q '<title>' "$out"/gpu-*.svg
fi

# The large table can be read: each cell is there once.
"$build/bench_device" list --cells="$source/bench/device/cells.txt" >"$out/cells.json" 2>"$out/log"
expect "cells.txt is a table" grep -q 'training' "$out/cells.json"
expect "without mistakes" [ ! -s "$out/log" ]

# What is measured of each model (by default of a quarter) can be written for PyTorch, which need not be here for that. Models are narrow: their programs have the same
# layers, and generating weights, clearing pages and compiling wide kernels took half of the time.
mkdir "$out/all"
for m in "$source"/models/*.json; do
    taken 4 || [ "${m##*/}" = lstm_classifier.json ] || continue
    printf '%s: %s' "$(basename "$m" .json)" "$m"
    image=32
    case $m in *inception_v3*) image=75 ;; esac
    for small in batch=1 image=$image dim=24 n=100 slim=8 width=8 growth=8 channels=8 features=32 hidden=32 inner=32 mlp=32 cols=64 in=16 \
        out=16 vocabulary=50 tokens=8 length=8 layers=2 layers2=3 layers3=3 layers4=2; do
        grep -q "\"${small%=*}\": {\"default\"" "$m" && printf ' %s' "$small"
    done
    echo
done >"$out/all.txt"
"$build/bench_device" run --target=cpu --cells="$out/all.txt" --duration=1 --cache-dir="$out/all-cache" --out="$out/all" >"$out/log" 2>&1
models=$(wc -l <"$out/all.txt")
expect "every model runs on the CPU" [ "$(ls "$out/all" | grep -c '\.json$')" = "$models" ]
if [ "$python" != none ]; then
    "$python" "$source/bench/device/peers.py" --programs --nnc="$out/all" >"$out/log" 2>&1
    code=$?
    expect "every model can be written for PyTorch" [ "$code" = 0 ]
    expect "or is left out with its reason" [ "$(grep 'left out' "$out/log" | sed 's/,[^ ]*//')" = "lstm_classifier is left out: op lstm" ]
    expect "as programs" [ "$(grep -c '^def f(' "$out/log")" = "$(((models - 1) * 2))" ]
fi

# Where no GPU can be used it says so.
NNC_CUDA_PATH=$out gpu --only=machine
expect "exit code 5 without a GPU, not $code" [ "$code" = 5 ]
expect "and the reason" grep -q 'no GPU' "$out/log"
exit $failed
