#!/usr/bin/env bash
# Installs what is missing, builds nnc with its tests, and runs them all. Kernels for NVIDIA GPUs are compiled with the NVRTC that is
# there, or with PyPI's (NNC_NO_WHEELS=1: never); without one those tests are skipped.
set -u
cd "$(dirname "$0")" || exit 1
. scripts/setup.sh
nnc_setup tests
nnc_build build -DBUILD_TESTING=ON
nnc_nvrtc build
exec scripts/ctest.sh build -j "$(nproc)" "$@"
