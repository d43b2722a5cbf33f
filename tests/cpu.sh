#!/bin/sh
# tests/cpu.sh SOURCE BUILD -- limits of instruction sets (docs/hardware.md#older-cpus). Tests what nnc says of them and machine code
# without newer instructions. Results agree with float64, and several limits share one folder of kernels. Levels that this CPU lacks are
# left out.
set -u
source=$1
nnc=$2/nnc
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="$dir/cache" NNC_CUDA_PATH=/nowhere
unset NNC_CPU
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

# refused TEXT COMMAND...: exit code 2, and the text.
refused() {
    text=$1
    shift
    "$@" >"$dir/said" 2>&1
    [ $? = 2 ] || fail "exit code of: $*"
    grep -qF -e "$text" "$dir/said" || { fail "not said: $text"; cat "$dir/said"; }
}

if [ "$(uname -m)" != x86_64 ]; then
    refused "levels are those of x86-64 CPUs" env NNC_CPU=x86-64-v2 "$nnc" devices
    exit $failed
fi
levels=""
for v in 2 3 4; do
    if NNC_CPU=x86-64-v$v "$nnc" devices >"$dir/said" 2>&1; then
        levels="$levels $v"
    else
        refused "this CPU lacks" env NNC_CPU=x86-64-v"$v" "$nnc" devices
    fi
done
echo "levels:$levels"
case $levels in " 2"*) ;; *) fail "a CPU without x86-64-v2" ;; esac

# What is wrong is refused, and says what is right.
known="expected x86-64-v2 (SSE4.2), x86-64-v3 (AVX2, FMA) or x86-64-v4 (AVX-512)"
refused "NNC_CPU=v3: $known" env NNC_CPU=v3 "$nnc" run "$source/models/mlp.json"
refused "NNC_CPU=x86-64-v5: $known" env NNC_CPU=x86-64-v5 "$nnc" devices
refused "--target=cpu:haswell: $known" "$nnc" devices --target=cpu:haswell
case $levels in *3*) refused "--target=cpu:x86-64-v3: this process is limited to x86-64-v2 already" env NNC_CPU=x86-64-v2 "$nnc" devices --target=cpu:x86-64-v3 ;; esac
"$nnc" doctor | grep -q "limited to" && fail "a limit without NNC_CPU"
[ "$(NNC_CPU='' "$nnc" devices)" = "$("$nnc" devices)" ] || fail "an empty NNC_CPU is a limit"

# instructions REGEX FILE: the lines of assembly that match.
instructions() {
    grep -cE "$1" "$2"
}

# Windows, depthwise ones, poolings, products, functions and reductions, small: it runs in the interpreter, too.
cat >"$dir/net.json" <<'END'
{"name": "net", "inputs": {"x": [2, 3, 16, 16]}, "layers": [
    {"op": "conv", "name": "stem", "channels": 20, "kernel": 3, "pad": 1}, "batchnorm", "silu",
    {"op": "depthwise", "name": "each", "kernel": 3, "pad": 1}, "sigmoid", {"op": "maxpool", "kernel": 2}, "flatten",
    {"op": "linear", "name": "hidden", "out": 48}, "layernorm", "gelu", {"op": "linear", "name": "last", "out": 10}, "softmax"
]}
END
net="$dir/net.json"
for v in $levels; do
    export NNC_CPU=x86-64-v"$v"
    bits=$((64 << (v - 1)))
    [ "$v" = 4 ] || bits=$((128 << (v - 2)))
    "$nnc" doctor >"$dir/doctor"
    grep -q "limited to the instructions of x86-64-v$v" "$dir/doctor" || fail "doctor does not say the limit"
    grep -q "cpu: x86-64-v$v, .*, $bits-bit vectors" "$dir/doctor" || { fail "v$v: vectors of $bits bits"; cat "$dir/doctor"; }
    "$nnc" devices --format=json >"$dir/of$v"
    grep -q '"core": ""' "$dir/of$v" || fail "v$v: instructions have the prices of this CPU's maker"
    (unset NNC_CPU && "$nnc" devices --format=json --target=cpu:x86-64-v"$v") | cmp - "$dir/of$v" || fail "v$v: the flag and the variable differ"

    # The same folder of kernels for all: code of a higher level would have been found, and taken, before.
    "$nnc" compile "$net" --emit=asm -o "$dir/asm" 2>"$dir/said" || { fail "v$v: no assembly"; cat "$dir/said"; }
    zmm=$(instructions '%zmm' "$dir/asm") ymm=$(instructions '%ymm' "$dir/asm") vex=$(instructions '^[[:space:]]v[a-z]' "$dir/asm")
    echo "v$v: $(wc -l <"$dir/asm") lines of assembly, $vex of AVX, $ymm with ymm, $zmm with zmm"
    # shellcheck disable=SC2015
    case $v in
    2) [ "$zmm$ymm$vex" = 000 ] || fail "v2 has AVX" ;;
    3) [ "$zmm" = 0 ] && [ "$ymm" -gt 0 ] || fail "v3" ;;
    4) [ "$zmm" -gt 0 ] || fail "v4" ;;
    esac
    for flags in "" --no-llvm --mode=step --math=exact --precision=f16 --precision=bf16; do
        # shellcheck disable=SC2086
        "$nnc" verify "$net" $flags >"$dir/said" 2>&1 || { fail "v$v $flags: differs from float64"; tail -5 "$dir/said"; }
    done
    "$nnc" compile "$net" --quiet -o "$dir/v$v.nnc" || fail "v$v: no artifact"
    "$nnc" run "$dir/v$v.nnc" --iterations=1 >"$dir/said" 2>&1 || { fail "v$v: its own artifact"; cat "$dir/said"; }
done
unset NNC_CPU

# In a folder of cached kernels, each level finds its own alone.
for again in 0 1; do
    for v in $levels; do
        NNC_CPU=x86-64-v$v "$nnc" compile "$net" --cache-dir="$dir/shared" -o "$dir/any.nnc" >"$dir/said" 2>&1
        found=$(sed -n 's/.*; \([0-9]* of [0-9]*\) kernels from the cache.*/\1/p' "$dir/said")
        # shellcheck disable=SC2015
        case $again$found in
        0"0 of "*) ;;
        1*) [ "${found% of *}" = "${found#* of }" ] && [ -n "$found" ] || fail "v$v: $found kernels from the cache" ;;
        *) fail "v$v: $found kernels from the cache of other levels" ;;
        esac
    done
done

# An artifact made under one limit is refused under a lower one.
case $levels in *3*)
    NNC_CPU=x86-64-v2 "$nnc" run "$dir/v3.nnc" --iterations=1 >"$dir/said" 2>&1 && fail "code for AVX2 ran without"
    grep -q "was compiled for another machine" "$dir/said" || { fail "why it does not run is not said"; cat "$dir/said"; }
    ;;
esac
exit $failed
