#!/bin/sh
# bench/zoo.sh BUILD [THREADS,...] [FLAGS...] -- nnc compare on the models of models/ that people know, at full size on one and two threads, or as many
# as are named, a line each: the least times of both programs (the 10th percentile), their paired ratio with its 95 % interval and the number of
# pairs, launches, bytes moved, the share of the roofline that the fused program reaches, the larger error against float64, and the time that a
# compiler without its cache needs. The last line counts what is slower fused, and what differs, and says how long it took.
set -u
b=${1:-build}
[ $# -gt 0 ] && shift
counts=1,2
case ${1:-} in [0-9]*) counts=$1 && shift ;; esac
out=$(mktemp)
trap 'rm -f "$out" "$out.nnc"' EXIT
echo "nnc $("$b/nnc" --version | cut -d' ' -f2), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%Y-%m-%d), flags: $*"
echo "threads; least ms of unfused and fused; fused / unfused with its 95 % interval, pairs; launches; MiB moved; % of the roofline; nmse; cold compile ms"

# The number after "KEY": within the run of that name; runs are lines of the report.
field() { sed -n "s/.*{\"name\": \"$1\", \"level\".*\"$2\": \([-0-9.e+]*\),.*/\1/p" "$out" | head -n 1; }
pair() { sed -n "s/.*\"paired\": .*\"$1\": \([-0-9.e+nul]*\)[,}].*/\1/p" "$out"; }

n=0 slower=0 wrong=0
line() {
    threads=$1 name=$2
    shift 2
    model=${name%% *} set=''
    for a in ${name#"$model"}; do set="$set --set=$a"; done
    begin=$(date +%s%N)
    "$b/nnc" compile "models/$model.json" $set --threads="$threads" --no-cache --quiet -o "$out.nnc" 2>/dev/null
    cold=$(( ($(date +%s%N) - begin) / 1000000 ))
    "$b/nnc" compare "models/$model.json" $set --threads="$threads" --no-steps --format=json "$@" >"$out" 2>/dev/null
    code=$?
    n=$((n + 1))
    [ $code = 0 ] || wrong=$((wrong + 1))
    low=$(pair low)
    # significant, and by more than half a percent
    case $low in '' | null) ;; *) [ "$(echo "$low" | awk '{print ($1 > 1.005)}')" = 1 ] && slower=$((slower + 1)) ;; esac
    printf '%-34s %dT %9.3f %9.3f  %-22s %2s %4s %4s  %8.2f %8.2f %4.0f  %8.1e %6d%s\n' "$name" "$threads" "$(field unfused p10_ms)" "$(field fused p10_ms)" \
        "$(pair ratio | cut -c1-5) ($(echo "$low" | cut -c1-5)-$(pair high | cut -c1-5))" "$(pair pairs)" "$(field unfused launches)" "$(field fused launches)" \
        "$(echo "$(field unfused bytes_moved)" | awk '{print $1 / 1048576}')" "$(echo "$(field fused bytes_moved)" | awk '{print $1 / 1048576}')" \
        "$(echo "$(field fused roofline)" | awk '{print 100 * $1}')" \
        "$(printf '%s\n%s\n' "$(field unfused nmse)" "$(field fused nmse)" | sort -g | tail -n 1)" "$cold" \
        "$([ $code = 0 ] || echo "  DIFFERS or failed: exit code $code")"
}
started=$(date +%s)
for t in $(echo "$counts" | tr , ' '); do
    for m in vgg16 resnet50 resnet101 densenet121 'densenet121 image=32 batch=200' 'densenet121 image=32 batch=400' googlenet inception_v3 mobilenet_v2 \
        efficientnet_b0 efficientnet_b3 efficientnet_b5 vit_b16 bert_base lstm_classifier 'lstm_classifier batch=32' unet 'unet mode=nearest' \
        'multi_linear models=1' 'multi_linear models=8' 'multi_linear models=32' 'multi_linear models=64' 'multi_conv1d models=1' \
        'multi_conv1d models=8' 'multi_conv1d models=32' 'multi_conv1d models=64' 'multi_gconv1d models=1' 'multi_gconv1d models=8' \
        'multi_gconv1d models=32' 'multi_gconv1d models=64'; do
        line $t "$m" "$@"
    done
done
echo "$n lines, $slower significantly slower fused, $wrong wrong; $(( $(date +%s) - started )) s"
