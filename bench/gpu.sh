#!/bin/sh
# bench/gpu.sh -- everything that needs a GPU, in one command: is it right, what does the GPU reach, how fast is nnc, how fast are its peers.
#
#     bench/gpu.sh [--out=FOLDER] [--budget=SECONDS] [--limit=SECONDS] [--only=PART,...] [--cells=FILE]
#                  [--from=ARCHIVE] [--again] [--tiny] [--python=PROGRAM]
#
# Parts: machine, check (models and generated graphs against float64), ceilings (bandwidths, FLOP/s), nnc (time, memory, power), tuned (nnc
# with measured library algorithms), prepare (PyTorch's compiler, beside check), peers (PyTorch; skipped where there is none), cpu (the same on this machine's CPU), static (bench_gpu,
# where it is built), report. The cells marked @core come first, with all their peers: some 40 that answer the main questions in ten
# minutes; the others need half an hour. Each result is a file of its own below FOLDER/raw-COMMIT: what is there is not done again, so the
# command may be given again after it was cut short, and goes on. A result that crashes or hangs is a failure of its own and stops nothing.
# FOLDER (default bench/results) gets gpu-DATE-COMMIT.txt, .svg, .json, and .tar.gz with all results so far; --from=ARCHIVE goes on from such an
# archive, on another machine too.
# --again: what failed is repeated. --cells: a table of cells other than bench/device/cells.txt. --limit: of one result (default 60, of
# a peer 90). --tiny: small sizes, for trying this out on the fake of CUDA (NNC_CUDA_PATH=build/cuda_fake).
# Exit code: 0 all done, 1 some results are failures, 75 time was up: give the command again.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
here=$(pwd)
out=$root/bench/results budget=540 only= tiny= python=${PYTHON:-python3} build=${BUILD:-$root/build} device=cuda limit= cells= again= from=
for a in "$@"; do
    case $a in
    --out=*) out=${a#*=} ;;
    --budget=*) budget=${a#*=} ;;
    --limit=*) limit=${a#*=} ;;
    --cells=*) cells=$(cd "$(dirname "${a#*=}")" && pwd)/$(basename "${a#*=}") ;;
    --only=*) only=,${a#*=}, ;;
    --from=*) from=$(cd "$(dirname "${a#*=}")" && pwd)/$(basename "${a#*=}") ;;
    --again) again=1 ;;
    --tiny) tiny=1 ;;
    --python=*) python=${a#*=} ;;
    --peers-on=*) device=${a#*=} ;; # cpu: to try the peers out where there is no GPU
    *)
        sed -n '2,21s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done
case $out in /*) ;; *) out=$here/$out ;; esac
cd "$root" || exit 2

# ---- what is there: a bundle (bin/) or a build folder ----
if [ -x bin/bench_device ]; then
    bin=$root/bin
    export NNC_PLUGIN_DIR="$root/lib/nnc"
    # a machine without libstdc++: the bundle's
    "$bin/nnc" doctor 2>&1 | grep -q 'libstdc++\|libgcc_s' && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$root/lib/own"
else
    bin=$build
fi
[ -x "$bin/bench_device" ] && [ -x "$bin/nnc" ] || {
    echo "bench/gpu.sh: no $bin/bench_device: cmake --build build --target nnc bench_device (or BUILD=folder)" >&2
    exit 2
}
commit=$(cat commit 2>/dev/null || git rev-parse --short=10 HEAD 2>/dev/null || echo unknown)
raw=$out/raw-$commit${tiny:+-tiny}
mkdir -p "$raw" || exit 5
[ -z "$from" ] || tar -C "$out" --skip-old-files -xzf "$from" || exit 5
[ -f "$raw/started" ] || date -u +%Y-%m-%d >"$raw/started"

# CUDA's libraries in the Python environment that has PyTorch, for nnc; and that folder for what they open themselves
have_python=
if command -v "$python" >/dev/null 2>&1; then
    have_python=1
    wheels=$("$python" -c 'import glob, sysconfig; print(":".join(sorted(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib"))))' 2>/dev/null)
    if [ -n "$wheels" ] && [ -z "${NNC_CUDA_PATH:-}" ]; then
        prefix=$("$python" -c 'import sys; print(sys.prefix)')
        VIRTUAL_ENV=${VIRTUAL_ENV:-$prefix}
        export VIRTUAL_ENV
        export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels"
        # the same libraries for nnc as for PyTorch, also beside a toolkit of another version: where all four are there
        whole=1
        for lib in cudart nvrtc cublasLt cudnn; do
            ls "$prefix"/lib/python3*/site-packages/nvidia/*/lib/lib$lib.so.* >/dev/null 2>&1 || whole=
        done
        [ -z "$whole" ] || export NNC_CUDA_PATH="$prefix"
    fi
fi
export NNC_CUDNN_ENDS=1 # at -O3 convolutions end in kernels that cuDNN compiles: checked and timed, though off elsewhere
cache=$raw/cache
[ -d "$cache" ] || { [ -d cache ] && cp -r cache "$cache"; } || mkdir -p "$cache"
if [ -n "$tiny" ]; then
    cells=${cells:-bench/device/tiny.txt} duration=4 graphs=4 checks=tiny most=65536 warm=5
else
    cells=${cells:-bench/device/cells.txt} duration=60 graphs=200 checks= most=1073741824 warm=200
fi
end=$(($(date +%s) + budget))
left=0 failed=0

wanted() {
    case ${only:-,$1,} in *,"$1",*) return 0 ;; *) return 1 ;; esac
}

# What a process was doing when it ended: a failure, with the reason. Returns 1 when it was doing nothing.
bury() {
    buried=1
    for f in "$1"/*.running; do
        [ -e "$f" ] || continue
        id=$(basename "$f" .running)
        case $2 in
        142) why="took longer than its limit" ;;
        124 | 137) why="the part's time was up, or memory ran out (exit $2)" ;;
        13[0-9]) why="crashed (signal $(($2 - 128)))" ;;
        *) why="the program ended with exit code $2" ;;
        esac
        rm "$f"
        # the part's own time: another run may do it
        [ "$2" = 124 ] || printf '{"id": "%s", "failed": "%s"}\n' "$id" "$why" >"$1/$id.json"
        echo "  $id: $why"
        buried=0
    done
    return $buried
}

# part NAME SECONDS COMMAND...: runs the command, which writes results into raw/NAME, again as long as it dies of single results.
part() {
    name=$1 most_s=$2
    shift 2
    wanted "$name" || return 0
    mkdir -p "$raw/$name"
    start=$(date +%s)
    stop=$((start + most_s))
    [ $stop -lt $end ] || stop=$end
    echo "$name"
    while :; do
        now=$(date +%s)
        [ $((stop - now)) -gt 2 ] || {
            echo "  time is up"
            left=1
            return 0
        }
        timeout -k 5 $((stop - now + 15)) "$@" --out="$raw/$name" --deadline=$((stop - now)) >>"$raw/$name.log" 2>&1
        code=$?
        case $code in
        0) break ;;
        75)
            left=1
            break
            ;;
        1)
            failed=1
            break
            ;;
        esac
        [ $code = 124 ] || failed=1
        [ $code = 76 ] && continue # the device's context died with a result: a new process has a new one
        bury "$raw/$name" $code || {
            echo "  it does not start (exit $code):"
            tail -n 3 "$raw/$name.log" | sed 's/^/  /'
            printf '{"id": "%s", "failed": "the part ended with exit code %s"}\n' "$name" "$code" >"$raw/$name.failed"
            break
        }
    done
    tail -n 1 "$raw/$name.log" | sed 's/^/  /'
    echo "  $(($(date +%s) - start)) s"
}

rm -f "$raw"/*.failed "$raw"/*/*.running
failures() {
    grep -l '"failed": "' "$raw"/*/*.json 2>/dev/null
}
[ -z "$again" ] || failures | while read -r f; do rm "$f"; done
echo "nnc $commit, results in $raw"
if wanted machine; then
    timeout 60 "$bin/nnc" doctor >"$raw/doctor.txt" 2>&1
    timeout 60 "$bin/bench_device" machine --cache-dir="$cache" >"$raw/machine.json" 2>"$raw/machine.log" || {
        echo "no GPU can be used (exit $?):"
        cat "$raw/machine.log" "$raw/doctor.txt"
        exit 5
    }
fi
check() {
    part check "$1" "$bin/bench_device" check --cells=bench/device/check.txt ${checks:+--only=$checks} --graphs=$graphs --cache-dir="$cache" \
        --limit=${limit:-60}
}
# run PART SECONDS FLAG,... MORE...: the cells that have the flags
run() {
    part=$1 seconds=$2 flags=$3
    shift 3
    part "$part" "$seconds" "$bin/bench_device" run --cells="$cells" ${flags:+--only=$flags} --duration=$duration --warm=$warm \
        --cache-dir="$cache" --limit=${limit:-60} "$@"
}
# peers SECONDS FLAG BASE...
peers() {
    seconds=$1 flag=$2
    shift 2
    [ -n "$have_python" ] || return 0
    for base in "$@"; do
        [ -z "$tiny" ] || [ "$base" = eager ] || [ -n "${NNC_GPU_COMPILE:-}" ] || continue
        part peers "$seconds" "$python" bench/device/peers.py --cells="$raw/cells.json" --nnc="$raw/nnc" --device=$device --base="$base" \
            ${flag:+--only=$flag} --duration=$duration --warm=$warm --limit=${limit:-90}
    done
}
"$bin/bench_device" list --cells="$cells" >"$raw/cells.json"
# PyTorch's compiler works on all of the machine's cores while check compares numbers. Its processes keep what they compiled, and
# measure it one after the other once nothing else does.
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$raw/torch}"
preparing=
processes=${NNC_GPU_PREPARE:-6}
prepare() { # FLAG SECONDS
    [ -n "$have_python" ] && wanted prepare && { [ -z "$tiny" ] || [ -n "${NNC_GPU_COMPILE:-}" ]; } || return 0
    mkdir -p "$raw/graphs" "$raw/peers"
    rm -f "$raw/hold"
    "$bin/bench_device" graphs --cells="$cells" --only="$1" --out="$raw/graphs" >"$raw/prepare.log" 2>&1
    timeout -k 5 $((budget + 60)) "$python" bench/device/peers.py --prepare="$processes" --cells="$raw/cells.json" --nnc="$raw/nnc" \
        --graphs="$raw/graphs" --hold="$raw/hold" --out="$raw/peers" --device=$device --only="$1" --base=compile --deadline="$2" \
        --duration=$duration --warm=$warm --limit=${limit:-90} >>"$raw/prepare.log" 2>&1 &
    preparing=$!
}
prepared() { # SECONDS more
    [ -n "$preparing" ] || return 0
    stop=$(($(date +%s) + $1))
    while [ "$(grep -c '^share .* compiled$' "$raw/prepare.log")" -lt "$processes" ] && [ "$(date +%s)" -lt $stop ] &&
        kill -0 "$preparing" 2>/dev/null; do
        sleep 0.2
    done
    echo "prepare"
    echo "  $(grep -c ' s$' "$raw/prepare.log") programs of PyTorch's compiler are ready"
}
held() { # SECONDS
    [ -n "$preparing" ] || return 0
    stop=$(($(date +%s) + $1))
    [ $stop -lt $end ] || stop=$end
    echo "peers, compiled before"
    echo $stop >"$raw/hold"
    wait "$preparing"
    code=$?
    [ $code -lt 2 ] || [ $code = 75 ] || bury "$raw/peers" $code
    [ $code != 75 ] || left=1
    grep ' results, ' "$raw/prepare.log" | sed 's/^/  /'
}
[ -n "$have_python" ] || ! wanted peers || echo "peers: no $python, they are left out"
prepare core 150
check 60
prepared 90
part ceilings 60 "$bin/bench_device" ceilings --duration=$duration --most=$most --limit=${limit:-60}
run nnc 90 core
run tuned 45 core,tuned --tuning="$raw/tuning"
peers 90 core eager
held 120
peers 90 core tuned compile
run cpu 60 core,cpu --target=cpu
left=0 # what is left of these is among the rest
check 150
run nnc 600 ""
run tuned 200 tuned --tuning="$raw/tuning"
peers 300 "" eager compile tuned
run cpu 100 cpu --target=cpu
# what limits kernels by their machine code, next to what was measured of them
if [ -x "$bin/bench_gpu" ] && [ -z "$tiny" ] && wanted static && [ ! -s "$raw/static.txt" ] && [ $(($(date +%s) + 5)) -lt $end ]; then
    echo static
    timeout 60 "$bin/bench_gpu" >"$raw/static.new" 2>"$raw/static.log" && mv "$raw/static.new" "$raw/static.txt" ||
        echo "  no table of machine code: $(tail -n 1 "$raw/static.log")"
fi
if wanted report && [ -n "$have_python" ]; then
    "$python" bench/device/report.py --raw="$raw" --commit="$commit" --out="$out" || failed=1
elif wanted report; then
    echo "report: no $python; the results are the files in $raw"
fi
archive=$out/gpu-$(cat "$raw/started")-$commit.tar.gz
tar -C "$out" --exclude='*/cache' --exclude='*/torch' -czf "$archive.new" "$(basename "$raw")" && mv "$archive.new" "$archive" && echo "$archive"
n=$(failures | wc -l)
[ "$n" = 0 ] || {
    echo "$n results are failures (--again tries them once more)"
    failed=1
}
[ $left = 0 ] || {
    echo "some of it is left: give the command again"
    exit 75
}
exit $failed
