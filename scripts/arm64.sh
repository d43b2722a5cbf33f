#!/bin/sh
# scripts/arm64.sh [FOLDER [SUITE...]] -- builds nnc for AArch64 with Debian's cross compiler and runs suites under qemu-user; then compares
# some models with float64 there. Needs gcc-aarch64-linux-gnu, qemu-user and llvm-19-dev (its headers). Libraries for arm64 are downloaded
# into FOLDER/sysroot (default build-arm64); nothing is installed. QEMU_CPU=neoverse-n1 and the like choose the core.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-build-arm64}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- base target ir codegen llvm runtime
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
export NNC_SYSROOT="$dir/sysroot"
jobs=${JOBS:-$(nproc)}

# libLLVM and what it needs; the C library; nnc's libraries and the tests'.
packages="libllvm19 libedit2 libffi8 libtinfo6 libxml2 libzstd1 libz3-4 libbsd0 libmd0 libicu72 liblzma5 libstdc++6 libgcc-s1
    libc6 libc6-dev linux-libc-dev zlib1g zlib1g-dev libxxhash-dev libcjson1 libcjson-dev"
if [ ! -e "$NNC_SYSROOT/complete" ]; then
    apt=$dir/apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/packages" "$NNC_SYSROOT"
    : >"$apt/status"
    get() { # from where this machine gets its packages
        apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Dir::State="$apt" \
            -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" "$@"
    }
    get update
    (cd "$apt/packages" && get download $packages)
    for deb in "$apt"/packages/*.deb; do
        dpkg -x "$deb" "$NNC_SYSROOT"
    done
    rm -rf "$apt"
    touch "$NNC_SYSROOT/complete"
fi

# The C++ compiler for arm64 is not needed: tests that would build kernels as CUDA C with it are skipped.
cmake --no-warn-unused-cli -S . -B "$dir" --toolchain cmake/arm64.cmake -DBUILD_TESTING=ON -DNNC_WERROR=ON \
    -DNNC_LLVM_STATIC=OFF -DNNC_TEST_CXX=OFF -DNNC_MPI=OFF \
    -DLLVM_INCLUDE=/usr/lib/llvm-19/include -DLLVM_LIBRARY="$(echo "$NNC_SYSROOT"/usr/lib/aarch64-linux-gnu/libLLVM.so.19*)" >/dev/null
targets="nnc nnc_plugin_llvm"
for suite in "$@"; do
    targets="$targets test_$suite"
done
# shellcheck disable=SC2086
cmake --build "$dir" -j "$jobs" --target $targets >"$dir/build.log" || { tail "$dir/build.log"; exit 1; }

run() {
    NNC_CUDA_PATH=/nowhere qemu-aarch64 -L "$NNC_SYSROOT" "$@"
}
failed=0
export XDG_CACHE_HOME="$dir/cache"
run "$dir/nnc" devices
for suite in "$@"; do
    printf '%s: ' "$suite"
    run "$dir/test_$suite" >"$dir/$suite.log" 2>&1 || failed=1
    tail -n 1 "$dir/$suite.log"
done
while read -r model; do
    case $model in # without weights: gradients of the inputs
    softmax* | nested_sin*) step="--mode=step --loss=mse --grad-inputs" ;;
    *) step=--mode=step ;;
    esac
    for flags in "" "$step" --math=exact --precision=f16 --precision=bf16 --no-llvm; do
        # shellcheck disable=SC2086
        run "$dir/nnc" verify models/$model $flags >"$dir/verify.log" 2>&1 && echo "verify $model $flags: as float64" ||
            { failed=1; echo "verify $model $flags: differs"; tail -n 3 "$dir/verify.log"; }
    done </dev/null
done <<'END'
mlp.json --set batch=5 --set hidden=70
conv.json --set batch=2 --set image=30
lstm_classifier.json --set length=7 --set vocabulary=50 --set embedding=20 --set hidden=24
softmax.json --set batch=3 --set cols=103
layernorm.json --set batch=3 --set cols=103
nested_sin.json --set n=5003
transformer_mlp.json --set batch=1 --set tokens=9 --set dim=40
mobilenet_v2.json --set batch=2 --set image=32
resnet50.json --set batch=2 --set image=32
END
exit $failed
