#!/bin/sh
# bench/device/predict.sh --nnc=PROGRAM --out=FOLDER --deadline=SECONDS [--budget=SECONDS] [--turn=FILE] [--tiny] -- nnc calibrate describes this
# machine's GPU (FOLDER/../hardware.json); nnc partition predicts models by that file and by simulating their plans, and runs them. One
# result each. Exit code as of bench_device: 1 failures, 75 time is up.
set -u
budget=15 turn= tiny= left=0 failed=0
for a in "$@"; do
    case $a in
    --nnc=*) nnc=${a#*=} ;;
    --out=*) out=${a#*=} ;;
    --deadline=*) end=$(($(date +%s) + ${a#*=})) ;;
    --budget=*) budget=${a#*=} ;;
    --turn=*) turn=${a#*=} ;;
    --tiny) tiny=1 ;;
    esac
done
hardware=$(dirname "$out")/hardware.json

# alone COMMAND...: while nothing else uses the GPU; in the process group of the part, whose time limit ends it too
alone() {
    if [ -n "$turn" ] && command -v flock >/dev/null; then
        flock "$turn" timeout --foreground -k 5 90 "$@"
    else
        timeout --foreground -k 5 90 "$@"
    fi
}

fail() { # NAME
    printf '{"id": "%s", "failed": "%s"}\n' "$1" "$(grep -m 1 'error' "$out/$1.log" | tr -d '\000-\037"\\' | cut -c 1-300)" >"$out/$1.json"
    echo "$1: failed" >&2
    failed=1
}

# begin NAME: is it to be done?
begin() {
    [ ! -e "$out/$1.json" ] || return 1
    if [ "$(date +%s)" -ge "$end" ] || ! kill -0 "${NNC_GPU_PID:-$$}" 2>/dev/null; then
        left=1
        return 1
    fi
    : >"$out/$1.running"
}

# row NAME MODEL FLAG...
row() {
    name=$1 model=$2
    shift 2
    [ -s "$hardware" ] && begin "$name" || return 0
    if alone "$nnc" partition "$model" "$@" --devices=1 --strategy=single --batches=1 --hardware="$hardware" --run --simulate \
        --iterations=10 --format=json >"$out/$name.new" 2>"$out/$name.log"; then
        { printf '{"id": "%s", "report": ' "$name" && cat "$out/$name.new" && echo '}'; } >"$out/$name.part" && mv "$out/$name.part" "$out/$name.json"
    else
        fail "$name"
    fi
    rm -f "$out/$name.new" "$out/$name.running"
}

if [ -n "$tiny" ]; then # calibrating has a test of its own (tests/gpu_calibrate.sh)
    hardware=models/hardware/h200x8.json
elif [ ! -s "$hardware" ] && begin calibrate; then
    if alone "$nnc" calibrate --target=cuda --budget="$budget" -o "$hardware" >"$out/calibrate.log" 2>&1; then
        echo '{"id": "calibrate"}' >"$out/calibrate.json"
    else
        fail calibrate
    fi
    rm -f "$out/calibrate.running"
fi
if [ -n "$tiny" ]; then
    row mlp models/mlp.json --set batch=2 --set hidden=32
else
    row vgg16_f32 models/vgg16.json --set batch=32
    row resnet50_step_f32 models/resnet50.json --set batch=32 --mode=step
    row resnet50_step_tf32 models/resnet50.json --set batch=32 --mode=step --precision=tf32
    row bert_f16 models/bert_base.json --set batch=32 --precision=f16
    row efficientnet_f16 models/efficientnet_b0.json --set batch=128 --precision=f16
fi
echo "$(ls "$out" | grep -c '\.json$') results" >&2
[ $left = 0 ] || exit 75
exit $failed
