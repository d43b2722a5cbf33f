#!/bin/sh
# Speed-ups of data parallelism that nnc partition predicts beside published ones. Computed from the hardware files, not measured. Plans, and so
# the time of a step on one GPU, which decides how much of an allreduce is hidden, depend on the libraries that are installed; images per second of
# one GPU are printed beside the published ones. "In one bucket": nothing of the allreduce is hidden.
#   TensorFlow: docs_src/performance/benchmarks.md (5984ffefd3), May 2017, DGX-1 P100, synthetic data, rows that used NCCL
#   Horovod: README and docs/benchmarks.rst, 128 servers of 4 Pascal GPUs on 25 Gbit/s; batch of TensorFlow's benchmarks, buckets of 64 MB (its
#   fusion threshold then)
# usage: sh bench/partition/scaling.sh BUILD
nnc=${1:-build}/nnc

iteration() { # strategy bucket micro-batches: milliseconds of the row
    "$nnc" partition "models/$model.json" --set batch="$batch" --devices="$n" --batches="$3" --hardware="models/hardware/$hardware.json" \
        --mode=step --strategy="$1" --bucket-mb="$2" --format=csv 2>/dev/null | awk -F, 'NR == 2 { print $9 }'
}

row() { # source model batch GPUs hardware speed-up images/s of one
    model=$2 batch=$3 n=$4 hardware=$5
    one=$(iteration single 64 1) overlapped=$(iteration data 64 "$n") alone=$(iteration data 1000000 "$n")
    awk -v s="$1" -v m="$model" -v b="$batch" -v n="$n" -v p="$6" -v i="$7" -v one="$one" -v o="$overlapped" -v a="$alone" 'BEGIN {
        one *= n
        printf "%-11s %-13s %4d %5d %10s %8.1f %10.2f %10.2f %+7.1f %% %10.2f %+7.1f %% %10d %+7.1f %%\n", s, m, b, n, i, n * b * 1000 / one, p,
            one / o, 100 * (one / o / p - 1), one / a, 100 * (one / a / p - 1), n, 100 * (n / p - 1) }'
}

echo "                                 images/s of one GPU     speed-up"
echo "source      model        batch  GPUs  published predicted published  predicted            in one bucket             ideal"
row TensorFlow vgg16 64 2 p100x8 1.916 154
row TensorFlow vgg16 64 4 p100x8 3.792 154
row TensorFlow vgg16 64 8 p100x8 7.019 154
row TensorFlow vgg16 32 2 p100x8 1.951 144
row TensorFlow vgg16 32 4 p100x8 3.813 144
row TensorFlow vgg16 32 8 p100x8 5.694 144
row Horovod inception_v3 64 512 p100x512 460.8 -
row Horovod resnet101 64 512 p100x512 460.8 -
row Horovod vgg16 64 512 p100x512 348.2 -
