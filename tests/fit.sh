#!/bin/sh
# tests/fit.sh SOURCE BUILD -- the boundary of nnc memory --fit under a real limit of address space. The limit is what the largest model was
# planned to need, and what a process needs beside its plan, measured on the smallest model. The largest runs. One layer more is refused by
# nnc's limit before it runs, otherwise by the system's: with exit code 4, never killed.
set -u
source=$1
nnc=$2/nnc
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="${TEST_CACHE:-$dir/cache}" NNC_CUDA_PATH=/nowhere
model="$source/models/conv_fc_stack.json --mode=step --loss=mse --set kernel=1 --set batch=8 --set fc=1 --set features=64 --threads=2"
limit=$((192 << 20))
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

# planned N: bytes that the plan of N convolutions requests.
planned() {
    # shellcheck disable=SC2086
    "$nnc" memory $model --set conv="$1" --format=json | grep -o '"total": [0-9]*' | head -1 | grep -o '[0-9]*$'
}

# run N KIB ARGS...: one step of N convolutions within so much address space; its exit code in rc.
run() {
    n=$1 kib=$2
    shift 2
    # shellcheck disable=SC2086,SC3045
    (ulimit -v "$kib" && exec "$nnc" run $model --set conv="$n" --iterations=1 --warmup=0 "$@") >"$dir/said" 2>&1
    rc=$?
}

# shellcheck disable=SC2086
"$nnc" memory $model --fit conv=1..200 --memory-limit=$limit --format=json >"$dir/fit" || fail "nothing fits $limit bytes"
most=$(sed -n 's/.*"largest": \[[^]]*"conv": \([0-9]*\).*/\1/p' "$dir/fit" | head -1)
[ -n "$most" ] || most=$(grep -A1 '"largest"' "$dir/fit" | grep -o '"conv": [0-9]*' | head -1 | grep -o '[0-9]*$')
[ "${most:-0}" -gt 2 ] || { fail "no largest model in"; cat "$dir/fit"; exit 1; }
need=$(planned "$most")
more=$(planned $((most + 1)))
layer=$((more - need))
echo "largest: $most convolutions, $need of $limit bytes; one more needs $more"
[ "$need" -le $limit ] && [ "$more" -gt $limit ] || fail "the boundary is elsewhere"

# What a process needs beside its plan: the least address space in which one convolution runs.
run 1 100000000
[ $rc = 0 ] || { fail "one convolution does not run"; cat "$dir/said"; exit 1; }
small=$(planned 1)
low=$((small >> 10)) high=$((low + (4 << 20)))
while [ $((high - low)) -gt 512 ]; do
    middle=$(((low + high) / 2))
    run 1 "$middle"
    if [ $rc = 0 ]; then high=$middle; else low=$middle; fi
    case $rc in 0 | 4 | 5) ;; *) fail "one convolution within $middle KiB: exit code $rc" && cat "$dir/said" ;; esac
done
beside=$((high - (small >> 10)))
echo "beside the plan: $beside KiB of address space"

# Any less is refused in words, wherever memory ends: libraries that are loaded or called with none left crash.
at=$((high - (48 << 10)))
while [ "$at" -lt "$high" ]; do
    run 1 "$at"
    case $rc in 0 | 4 | 5) ;; *) fail "one convolution within $at KiB: exit code $rc" && cat "$dir/said" ;; esac
    at=$((at + 1500))
done

# The same where several threads load many calls at once, of kernels that are compiled first.
at=100000
while [ $at -le 144000 ]; do
    # shellcheck disable=SC3045
    (ulimit -v $at && exec "$nnc" run "$source/models/mobilenet_v2.json" --no-cache --iterations=1 --warmup=0 --threads=2) >"$dir/said" 2>&1
    rc=$?
    case $rc in 0 | 4 | 5) ;; *) fail "mobilenet_v2 within $at KiB: exit code $rc" && cat "$dir/said" ;; esac
    at=$((at + 4000))
done

# Kernels are compiled before, without a limit: LLVM takes address space that a run with a warm cache does not need.
for n in "$most" $((most + 1)); do
    # shellcheck disable=SC2086
    "$nnc" compile $model --set conv="$n" --quiet -o "$dir/m.nnc" >"$dir/said" 2>&1 || { fail "$n convolutions do not compile"; cat "$dir/said"; }
done

# A layer has its code and its part of the plan, too: half a layer's tensors are room for that.
kib=$(((need >> 10) + beside + (layer >> 11)))
run "$most" "$kib" --memory-limit=$limit
[ $rc = 0 ] || { fail "the largest model does not run within $kib KiB: exit code $rc"; cat "$dir/said"; }
run $((most + 1)) "$kib" --memory-limit=$limit
{ [ $rc = 4 ] && grep -q "does not fit: .* by --memory-limit" "$dir/said"; } || { fail "one more layer: exit code $rc, not 4"; cat "$dir/said"; }
run $((most + 1)) "$kib"
[ $rc = 4 ] || { fail "one more layer, refused by the system alone: exit code $rc, not 4"; cat "$dir/said"; }
[ $failed = 0 ] && echo "ok"
exit $failed
