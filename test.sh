#!/usr/bin/env bash
# Installs what is missing, builds nnc with its tests, and runs them all. Kernels for NVIDIA GPUs are compiled with the NVRTC that is
# there, or with PyPI's (NNC_NO_WHEELS=1: never); without one those tests are skipped.
set -u
cd "$(dirname "$0")" || exit 1
. scripts/setup.sh
nnc_setup
# the installed library is tested through pkg-config, too
command -v pkg-config >/dev/null || nnc_install pkgconf || true
# runs the kernels for GPUs on the CPU, as C++
command -v c++ >/dev/null || nnc_install g++ || echo "the tests that run CUDA C on the CPU are skipped: there is no C++ compiler"
nnc_build build -DBUILD_TESTING=ON
nnc_nvrtc build
exec ctest --test-dir build --output-on-failure -j "$(nproc)" "$@"
