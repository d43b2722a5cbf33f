#!/bin/sh
# tests/host.sh SOURCE BUILD -- a plan is a function of model, options and target, never of the machine that plans. Outputs for models and
# described targets (machine files, hardware files, GPUs by name) are printed as on this machine, and again as on a poorer one. Outputs are
# graph, plan, remarks, an artifact's texts, explain, memory and partition. The poorer machine is one with fewer instructions (NNC_CPU),
# without CUDA's libraries, without plug-ins, on one core, with another home, cache and locale. The bytes must be the same. Outputs are
# compared with each other, not with recorded ones. All these conditions hold at once; where an output differs, each alone says which of
# them it depends on. NNC_TEST_DRAWS greater than 1: all models with all targets.
set -u
source=$1
build=$2
cd "$source" || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset NNC_PLUGIN_DIR
draws=${NNC_TEST_DRAWS:-1}
failed=0 commands=0

# The program without a plug-in beside it.
mkdir "$dir/bare" "$dir/home"
cp "$build/nnc" "$dir/bare/nnc"
core=
command -v taskset >/dev/null && core="taskset -c $(taskset -cp $$ | sed 's/.*: //;s/[,-].*//')"

# under CONDITION ARGS...: nnc there.
under() {
    how=$1
    shift
    case $how in
    native | warm) XDG_CACHE_HOME="$dir/cache" "$build/nnc" "$@" ;;
    x86-64-v[234]) XDG_CACHE_HOME="$dir/$how" NNC_CPU=$how "$build/nnc" "$@" ;;
    no-cuda) XDG_CACHE_HOME="$dir/cache" NNC_CUDA_PATH=/nowhere "$build/nnc" "$@" ;;
    no-plug-ins) XDG_CACHE_HOME="$dir/$how" "$dir/bare/nnc" "$@" ;;
    one-core) XDG_CACHE_HOME="$dir/cache" $core "$build/nnc" "$@" ;;
    elsewhere) HOME="$dir/home" XDG_CACHE_HOME='' LC_ALL=de_DE.UTF-8 TZ=Asia/Tokyo "$build/nnc" "$@" ;;
    all) HOME="$dir/home" XDG_CACHE_HOME="$dir/$how" LC_ALL=de_DE.UTF-8 TZ=Asia/Tokyo NNC_CPU=x86-64-v2 NNC_CUDA_PATH=/nowhere $core "$dir/bare/nnc" "$@" ;;
    esac
}

# An artifact's sections up to the first object: source, graph, plan, remarks; and the manifest without offsets.
texts_of() {
    manifest=$((0x$(head -1 "$1" | cut -d' ' -f3)))
    line=$(($(head -1 "$1" | wc -c)))
    tail -c +$((line + 1)) "$1" | head -c $manifest >"$dir/manifest"
    base=$(((line + manifest + 63) / 64 * 64))
    grep '"name": "\(source\|graph\|plan\|remarks\)"' "$dir/manifest" | sed 's/.*"name": "\([a-z]*\)", "offset": \([0-9]*\), "size": \([0-9]*\).*/\1 \2 \3/' |
        while read -r name at size; do
            echo "$name $(tail -c +$((base + at + 1)) "$1" | head -c "$size" | cksum)"
        done
    sed '/"sections"/,$d' "$dir/manifest"
}

# report CONDITION KIND MODEL TARGET: what nnc prints there.
report() {
    how=$1 what=$2 file=$3
    shift 3
    case $what in
    graph | plan | remarks) under "$how" compile "$file" "$@" --emit="$what" ;;
    artifact) under "$how" compile "$file" "$@" --quiet -o "$dir/$how.nnc" && texts_of "$dir/$how.nnc" ;;
    explain) under "$how" explain "$file" "$@" --verbose ;;
    memory) under "$how" memory "$file" "$@" --format=json ;;
    partition) under "$how" partition "$file" "$@" --devices=2 --format=json ;;
    simulate) under "$how" partition "$file" "$@" --devices=2 --simulate --format=json ;;
    step) under "$how" partition "$file" "$@" --devices=2 --mode=step --format=json ;;
    esac
}

# differs CONDITION KIND MODEL TARGET: from the native output.
differs() {
    report "$@" >"$dir/got" 2>"$dir/err"
    got=$?
    commands=$((commands + 1))
    ! cmp -s "$dir/want" "$dir/got" || [ $code != $got ]
}

# same KIND MODEL TARGET: under all conditions.
same() {
    report native "$@" >"$dir/want" 2>"$dir/err"
    code=$?
    [ -s "$dir/want" ] || { echo "FAIL: $*: no output"; cat "$dir/err"; failed=1; }
    differs all "$@" || return
    failed=1
    echo "FAIL: $* (exit code $got, natively $code)"
    diff "$dir/want" "$dir/got" | head -4 | cut -c 1-300
    for how in x86-64-v2 x86-64-v3 no-cuda no-plug-ins one-core elsewhere warm; do
        differs $how "$@" && echo "    depends on: $how"
    done
}

cpu="--target=tests/cli/machine.json"
nodes="--hardware=models/hardware"
if [ "$draws" -gt 1 ]; then
    for model in models/*.json; do
        for target in $cpu --target=cuda:sm_61 --target=cuda:sm_70 --target=cuda:sm_80 --target=cuda:sm_90; do
            for kind in graph plan remarks explain memory partition; do
                same $kind "$model" "$target"
            done
        done
        for target in $nodes/cpu.json $nodes/v100x8.json $nodes/a100x8.json $nodes/gtx1080ti_x2.json $nodes/h100x8.json; do
            same memory "$model" "$target"
            same partition "$model" "$target"
        done
        echo "$model: $commands commands so far"
    done
else
    for model in mlp resnet50 lstm_classifier unet; do
        same plan models/$model.json $cpu
        same plan models/$model.json --target=cuda:sm_61
        same remarks models/$model.json $cpu
        same partition models/$model.json $nodes/cpu.json
        same explain models/$model.json --target=cuda:sm_80
        same memory models/$model.json $nodes/h100x8.json
    done
    same partition models/vgg16.json $nodes/gtx1080ti_x2.json
    same partition models/densenet121.json $nodes/a100x8.json
    same graph models/vit_b16.json --target=cuda:sm_90
fi
same plan models/resnet50.json --target=cpu:neoverse-v1
same artifact models/mlp.json --target=cpu:neoverse-n1
same artifact models/mlp.json $cpu
same artifact models/conv.json $cpu
same artifact models/mlp.json --target=cuda:sm_70
for target in $nodes/cpu.json $nodes/v100x8.json; do
    same simulate models/mlp.json "$target"
    same step models/mlp.json "$target"
done
# An artifact for this machine is refused where the process has other cores, and so another share of a cache.
one="models/relu.json --set batch=2 --threads=1 --quiet"
# shellcheck disable=SC2086
under native compile $one -o "$dir/here.nnc" && under one-core compile $one -o "$dir/one.nnc"
if [ "$(texts_of "$dir/here.nnc")" = "$(texts_of "$dir/one.nnc")" ]; then
    echo "an artifact of other cores: skipped (one core is as good as all)"
else
    under one-core run "$dir/here.nnc" --threads=1 >"$dir/got" 2>&1
    [ $? = 5 ] && grep -q "was compiled for this CPU, .*, with other cores or caches than the process has here (cpu#.*; this is cpu#.*)\. Run it on as many cores" "$dir/got" ||
        { echo "FAIL: an artifact of other cores"; cat "$dir/got"; failed=1; }
fi
echo "$commands commands as on other machines: $([ $failed = 0 ] && echo the same bytes || echo "SOME DIFFER")"
exit $failed
