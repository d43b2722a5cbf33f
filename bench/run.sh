#!/bin/sh
# bench/run.sh BUILD -- the tables of bench/results/: models against their rooflines, kernels against copies, compile times.
set -u
b=${1:-build}
echo "nnc $("$b/nnc" --version | cut -d' ' -f2), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%Y-%m-%d)"
"$b/nnc" devices
echo
"$b/bench_models" models/vgg16.json -- models/vgg16.json batch=8 -- models/vgg16.json order=pool-relu -- models/mlp.json -- \
    models/linear.json batch=1 -- models/linear.json batch=8 -- models/conv.json batch=4 -- models/maxpool.json batch=32 -- models/relu.json batch=32 -- \
    models/softmax.json -- models/layernorm.json -- models/nested_sin.json n=67108864 depth=4 -- models/nested_sin.json n=67108864 depth=16 -- \
    models/transformer_mlp.json -- models/conv_fc_stack.json
echo
echo "compile time of VGG-16, ms (cold: empty kernel cache; warm: kernels in it)"
d=$(mktemp -d)
for i in cold warm warm; do
    printf '%s: ' $i
    "$b/nnc" compile models/vgg16.json -o "$d/m.nnc" --cache-dir="$d/cache" | sed 's/^[^:]*: //'
done
rm -rf "$d"
