#!/bin/sh
# bench/device/sanitize.sh --nnc=PROGRAM --out=FOLDER --deadline=SECONDS [--turn=FILE] [--cache-dir=FOLDER] [--tiny] -- generated kernels under
# compute-sanitizer: accesses out of bounds, barriers that not all reach, races in shared memory. One result for each tool and model; without
# the program one that says so. Exit code as of bench_device: 1 failures, 75 time is up.
set -u
turn= cache= tiny= left=0 failed=0
for a in "$@"; do
    case $a in
    --nnc=*) nnc=${a#*=} ;;
    --out=*) out=${a#*=} ;;
    --deadline=*) end=$(($(date +%s) + ${a#*=})) ;;
    --turn=*) turn=${a#*=} ;;
    --cache-dir=*) cache=${a#*=} ;;
    --tiny) tiny=1 ;;
    esac
done
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer "${CUDA_HOME:-/none}/bin/compute-sanitizer" 2>/dev/null | head -n 1)
if [ -z "$sanitizer" ]; then
    echo '{"id": "sanitizer", "absent": true}' >"$out/sanitizer.json"
    echo "no compute-sanitizer here: its checks are left out" >&2
    exit 0
fi

# run TOOL NAME MODEL FLAG...
run() {
    id=$1,$2 tool=$1 model=$3
    shift 3
    [ ! -e "$out/$id.json" ] || return 0
    if [ "$(date +%s)" -ge "$end" ] || ! kill -0 "${NNC_GPU_PID:-$$}" 2>/dev/null; then
        left=1
        return 0
    fi
    : >"$out/$id.running"
    set -- timeout --foreground -k 5 60 "$sanitizer" --tool "$tool" --error-exitcode 99 "$nnc" run "$model" --target=cuda --iterations=1 \
        ${cache:+--cache-dir="$cache"} "$@"
    [ -z "$turn" ] || ! command -v flock >/dev/null || set -- flock -s "$turn" "$@"
    "$@" >"$out/$id.log" 2>&1
    code=$?
    if [ $code = 0 ]; then
        printf '{"id": "%s", "clean": true}\n' "$id" >"$out/$id.json"
    else
        printf '{"id": "%s", "failed": "exit code %s: %s"}\n' "$id" $code \
            "$(grep -m 1 '^==* [A-Z][a-z]\|error' "$out/$id.log" | tr -d '\000-\037"\\' | cut -c 1-300)" >"$out/$id.json"
        echo "$id: failed" >&2
        failed=1
    fi
    rm -f "$out/$id.running"
}

if [ -n "$tiny" ]; then
    run memcheck softmax models/softmax.json --set batch=6 --set cols=300
    run memcheck layernorm models/layernorm.json --set batch=5 --set cols=100
else
    for tool in memcheck synccheck racecheck; do
        run $tool softmax models/softmax.json --set batch=6 --set cols=50000
        run $tool lstm models/lstm_classifier.json --set batch=2 --set length=3
        run $tool depthwise bench/device/depthwise.json --precision=f16 --set batch=2 --set channels=32 --set image=28
    done
fi
echo "$(ls "$out" | grep -c '\.json$') results" >&2
[ $left = 0 ] || exit 75
exit $failed
