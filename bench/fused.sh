#!/bin/sh
# bench/fused.sh BUILD [FLAGS...] -- is a model ever slower fused than unfused, or than as it is written? The ratio of nnc compare, its 95 %
# interval, the unfused time, and the fused time over that of the model as written (10th percentiles of the same run), for the
# models of models/ and the small ones of bench/small/, which people typed in their first hour. The last line counts the slower ones.
set -u
b=${1:-build}
[ $# -gt 0 ] && shift
echo "nnc $("$b/nnc" --version | cut -d' ' -f2), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%Y-%m-%d), flags: $*"
out=$(mktemp)
trap 'rm -f "$out"' EXIT
printf '%-28s %13s %7s  %s\n' model unfused written "fused against unfused"
n=0 slower=0
for m in models/*.json bench/small/*.json; do
    "$b/nnc" compare "$m" "$@" >"$out" 2>/dev/null || { printf '%-28s failed: exit code %d\n' "$(basename "$m" .json)" $?; continue; }
    line=$(grep -m1 '^fused / unfused' "$out")
    ms=$(grep -m1 '^  unfused ' "$out" | awk '{print $2}')
    written=$(awk '/^  as written / { w = $4 } /^  fused / { f = $3 } END { if (w > 0 && f > 0) printf "%.3f", f / w }' "$out")
    n=$((n + 1))
    case $line in
    *as\ slow | *%\ slower) slower=$((slower + 1)) ;;
    '') line='the same plan' ;;
    esac
    printf '%-28s %10s ms %7s  %s\n' "$(basename "$m" .json)" "${ms:--}" "${written:--}" "$line"
done
echo "$n models, $slower significantly slower fused"
