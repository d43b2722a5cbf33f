#!/bin/sh
# bench/gpu.sh -- everything that needs a GPU, in one command: is it right, what does the GPU reach, how fast is nnc, how fast are its peers.
#
#     bench/gpu.sh [--out=FOLDER] [--raw=FOLDER] [--budget=SECONDS] [--limit=SECONDS] [--only=PART,...] [--cells=FILE]
#                  [--from=ARCHIVE] [--again] [--tiny] [--python=PROGRAM]
#
# FOLDER (default bench/results) gets gpu-DATE-COMMIT.txt (answers to questions, then tables), .svg (a chart), .json (all numbers) and .tar.gz
# (the results themselves), each written again every 15 seconds, so that a run that is cut short leaves what it has. --from=ARCHIVE goes on from
# such a .tar.gz, on this machine or another; a file ARCHIVE-torch.tar.gz beside it fills the cache of PyTorch's compiler. The results lie in a
# folder of --raw=FOLDER (default: of --out).
#
# Options
#     --budget=SECONDS  the whole run takes no longer (default 590). Exit code 75: something is left, the same command goes on.
#     --limit=SECONDS   of one result (default 60; of PyTorch 60, compiled 120, max-autotune 180). What crashes or hangs fails alone.
#     --again           repeats what failed.
#     --only=PART,...   some parts alone; NNC_GPU_ONLY in the environment is the default.
#     --cells=FILE      a table of cells other than bench/device/cells.txt.
#     --tiny            small sizes, to try this out on the fake of CUDA (NNC_CUDA_PATH=build/cuda_fake), with --peers-on=cpu.
#     --python=PROGRAM  a Python that has PyTorch (default python3); without one, peers and report are left out.
#
# Parts, in this order; the cells marked @core first, with all of them (about 9 minutes), then the others (half an hour)
#     machine   names, versions, clocks; nnc doctor
#     peers     PyTorch eager, torch.compile, max-autotune: processes that compile beside the other parts, and measure in turn
#     check     models and generated graphs against float64
#     sanitize  some generated kernels under compute-sanitizer, where the machine has it
#     nnc       time, memory and energy of each cell
#     engines   each configuration that cuDNN has for strict f32 convolutions and their gradients
#     predict   nnc calibrate, then nnc partition --run: predicted times of models beside measured ones
#     ceilings  bandwidths and FLOP/s that the GPU reaches
#     tuned     the same as nnc with measured library algorithms (--tune), of cells marked @tuned
#     cpu       cells marked @cpu on this machine's CPU, once nothing else runs
#     report    the files above, and how long each part took
# What limits kernels by their machine code needs no GPU: static.txt, which scripts/gpu-bundle.sh has packed, is appended to the report.
# Exit code: 0 all done, 1 some results are failures, 2 wrong usage, 5 no usable GPU, 75 something is left.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
here=$(pwd)
out=$root/bench/results results= budget=590 only=${NNC_GPU_ONLY:+,$NNC_GPU_ONLY,} tiny= python=${PYTHON:-python3} build=${BUILD:-$root/build} device=cuda limit= cells= again= from=
for a in "$@"; do
    case $a in
    --out=*) out=${a#*=} ;;
    --raw=*) results=${a#*=} ;;
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
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done
end=$(($(date +%s) + budget))
case $out in /*) ;; *) out=$here/$out ;; esac
results=${results:-$out}
case $results in /*) ;; *) results=$here/$results ;; esac
mkdir -p "$out"
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
raw=$results/raw-$commit${tiny:+-tiny}
mkdir -p "$raw/traces" || exit 5
# One run at a time in a folder: of a run that was killed, processes end within their limit.
if command -v flock >/dev/null; then
    exec 9>"$raw/lock"
    flock -n 9 || {
        echo "another run is at work in $raw: waiting for its end"
        flock -w 200 9 || exit 75
    }
fi
export NNC_GPU_PID=$$ # whose end ends the parts
if [ -n "$from" ]; then
    tar -C "$results" --skip-old-files -xzf "$from" || exit 5
    [ ! -f "${from%.tar.gz}-torch.tar.gz" ] || tar -C "$results" --skip-old-files -xzf "${from%.tar.gz}-torch.tar.gz"
fi
[ -s "$raw/started" ] || date -u +%Y-%m-%d >"$raw/started"
[ ! -s static.txt ] || cp static.txt "$raw/static.txt"

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
cache=$raw/cache
[ -d "$cache" ] || { [ -d cache ] && cp -r cache "$cache"; } || mkdir -p "$cache"
if [ -n "$tiny" ]; then
    cells=${cells:-bench/device/tiny.txt} duration=4 graphs=4 checks=tiny most=65536 warm=5
    calibration=1
else
    cells=${cells:-bench/device/cells.txt} duration=40 graphs=60 checks= most=1073741824 warm=100
    calibration=15
fi
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

spent() { # PART START: says and keeps its seconds
    echo "  $(($(date +%s) - $2)) s"
    echo "$1 $(($(date +%s) - $2))" >>"$raw/seconds"
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
        timeout -k 5 $((stop - now + 15)) "$@" --out="$raw/$name" --deadline=$((stop - now)) >>"$raw/$name.log" 2>&1 &
        current=$!
        wait "$current" # which a signal ends, as it would not end the command
        code=$?
        current=
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
    spent "$name" "$start"
}

# ---- what is kept: report and archive of what there is, every 15 seconds and once this script has ended, however it did ----
current= watcher=
report() {
    [ -z "$have_python" ] || ! wanted report || "$python" bench/device/report.py --raw="$raw" --commit="$commit" --out="$out"
}
pack() { # NAME of who calls it: one may be killed at it
    archive=$out/gpu-$(cat "$raw/started")-$commit.tar.gz
    tar -C "$results" --exclude='*/cache' --exclude='*/torch' --exclude='*.running' --exclude='*.new' --exclude='*/lock' --exclude='*/turn' \
        -czf "$archive.$1.new" "$(basename "$raw")" 2>/dev/null
    [ -s "$archive.$1.new" ] && mv "$archive.$1.new" "$archive" # (a file that changed meanwhile is tar's exit code 1)
}
watch() {
    trap - TERM INT HUP
    last=$(date +%s) now=0
    while kill -0 $$ 2>/dev/null; do
        sleep 1
        now=$(date +%s)
        [ $((now - last)) -lt 15 ] && continue
        report
        pack watch
        last=$(date +%s)
    done
    report
    pack watch
}

rm -f "$raw"/*.failed "$raw"/*/*.running "$raw"/*/*.new
failures() {
    grep -l '"failed": "' "$raw"/*/*.json 2>/dev/null
}
[ -z "$again" ] || failures | while read -r f; do rm "$f"; done
watch >"$raw/watch.log" 2>&1 9>&- &
watcher=$!
echo "nnc $commit, results in $raw"
if wanted machine; then
    timeout 60 "$bin/nnc" doctor >"$raw/doctor.txt" 2>&1
    timeout 60 "$bin/bench_device" machine --cache-dir="$cache" >"$raw/machine.json" 2>"$raw/machine.log" || {
        echo "no GPU can be used (exit $?):"
        cat "$raw/machine.log" "$raw/doctor.txt"
        kill "$watcher"
        exit 5
    }
fi
"$bin/bench_device" list --cells="$cells" >"$raw/cells.json"

# check SECONDS GRAPHS
check() {
    part check "$1" "$bin/bench_device" check --cells=bench/device/check.txt ${checks:+--only=$checks} --graphs="$2" --cache-dir="$cache" \
        --limit=${limit:-60} --turn="$raw/turn"
}
# run PART SECONDS FLAG,... MORE...: the cells that have the flags
run() {
    part=$1 seconds=$2 flags=$3
    shift 3
    part "$part" "$seconds" "$bin/bench_device" run --cells="$cells" ${flags:+--only=$flags} --duration=$duration --warm=$warm \
        --cache-dir="$cache" --limit=${limit:-60} --turn="$raw/turn" "$@"
}

# PyTorch: processes that take one cell after another, compile it beside all other parts, and measure it in turn with them.
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$raw/torch}"
pool=
cpus=$(nproc 2>/dev/null || echo 2)
processes=${NNC_GPU_PROCESSES:-$((cpus < 6 ? 2 : cpus * 3 / 8))}
peers() { # SECONDS FLAG: starts them
    [ -n "$have_python" ] && wanted peers || return 0
    [ "$1" -gt 5 ] || {
        left=1
        return 0
    }
    mkdir -p "$raw/graphs" "$raw/peers"
    rm -f "$raw"/peers/*.running # of processes that were killed with the one that watches them
    bases="--base=eager --base=profile"
    [ -n "$tiny" ] && [ -z "${NNC_GPU_COMPILE:-}" ] || bases="$bases --base=compile --base=tuned"
    "$bin/bench_device" graphs --cells="$cells" --only="${2:+$2,}peer" --out="$raw/graphs" >"$raw/graphs.log" 2>&1
    timeout -k 5 $(($1 + 60)) "$python" bench/device/peers.py --pool="$processes" --cells="$raw/cells.json" --nnc="$raw/nnc" --graphs="$raw/graphs" \
        --out="$raw/peers" --turn="$raw/turn" --device=$device --only="${2:+$2,}peer" $bases --deadline="$1" --duration=$duration --warm=$warm \
        ${limit:+--limit=$limit} >>"$raw/peers.log" 2>&1 &
    pool=$!
}
peers_work() {
    [ -n "$pool" ] && kill -0 "$pool" 2>/dev/null
}
peers_done() { # waits for them
    [ -n "$pool" ] || return 0
    echo "peers"
    start=$(date +%s)
    wait "$pool"
    code=$?
    pool=
    spent "peers, after the other parts" "$start"
    [ $code != 75 ] || left=1
    [ $code = 0 ] || [ $code = 75 ] || failed=1
    echo "  $(ls "$raw/peers" | grep -c '\.json$') results, $(grep -l '"failed": "' "$raw"/peers/*.json 2>/dev/null | wc -l) of them failures"
}
unwatch() {
    kill "$watcher" 2>/dev/null
    wait "$watcher" 2>/dev/null
}
stopped() {
    trap '' TERM INT HUP
    echo "stopped: what there is goes into the report"
    kill $pool $current 2>/dev/null
    unwatch
    report
    pack end
    exit 75
}
trap stopped TERM INT HUP
# parts without cells' flags: their seconds
ceilings() {
    part ceilings "$1" "$bin/bench_device" ceilings --duration=$duration --most=$most --limit=${limit:-60} --turn="$raw/turn"
}
engines() {
    part engines "$1" "$bin/bench_device" engines --cells="$cells" --only=engines --cache-dir="$cache" --limit=${limit:-60} --turn="$raw/turn"
}
sanitize() {
    part sanitize "$1" sh bench/device/sanitize.sh --nnc="$bin/nnc" --turn="$raw/turn" --cache-dir="$cache" ${tiny:+--tiny}
}
predict() {
    part predict "$1" sh bench/device/predict.sh --nnc="$bin/nnc" --budget=$calibration --turn="$raw/turn" ${tiny:+--tiny}
}
seconds_left() { # until so many seconds before the end
    n=$((end - $(date +%s) - $1))
    echo $((n > 0 ? n : 0))
}

[ -n "$have_python" ] || ! wanted peers || echo "peers: no $python, they are left out"
tail=45 # of the budget: the CPU's cells, the report
[ -z "$tiny" ] || tail=5
peers "$(seconds_left $tail)" core
check 60 $graphs
sanitize 25
engines 60
run nnc 170 core --traces="$raw/traces"
predict 45
ceilings 25
run tuned 40 core,tuned --tuning="$raw/tuning"
while peers_work && [ "$(seconds_left $tail)" -gt 5 ]; do # they still compile: the GPU has time
    before=$(ls "$raw"/*/ | wc -l)
    run nnc 15 ""
    [ "$(ls "$raw"/*/ | wc -l)" != "$before" ] || break
done
peers_done
run cpu 40 core,cpu --target=cpu
left=0 # what is left of these is among the rest
peers "$(seconds_left 15)" ""
check 150 $((graphs * 3))
sanitize 60
run nnc 600 ""
run tuned 200 tuned --tuning="$raw/tuning"
ceilings 60
engines 120
predict 100
peers_done
run cpu 100 cpu --target=cpu
unwatch
report || failed=1
[ -n "$have_python" ] || echo "report: no $python; the results are the files in $raw"
rm -f "$out"/gpu-*.new
pack end && echo "$archive"
if [ -d "$raw/torch" ]; then # a second run begins with what PyTorch's compiler has made
    tar -C "$results" -cf - "$(basename "$raw")/torch" 2>/dev/null | gzip -1 >"${archive%.tar.gz}-torch.tar.gz" && echo "${archive%.tar.gz}-torch.tar.gz"
fi
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
