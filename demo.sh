#!/usr/bin/env bash
# Installs what is missing, builds nnc, and shows what it is for: VGG-16 on a 224x224 input, unfused and fused, checked against float64.
set -u
cd "$(dirname "$0")" || exit 1
. scripts/setup.sh
nnc_setup
nnc_build build -DBUILD_TESTING=OFF

show() {
    printf '\n$ nnc %s\n\n' "$*"
    build/nnc "$@" || exit $?
}
show compare models/vgg16.json
show compare models/nested_sin.json
printf '\nEvery decision has a reason (nnc explain models/vgg16.json), for example\n\n'
build/nnc explain models/vgg16.json | sed -n '1,24p'
printf '\nNext: build/nnc --help, docs/, or ./test.sh\n'
