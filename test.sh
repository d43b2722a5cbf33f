#!/usr/bin/env bash
# Installs what is missing, builds nnc with its tests, and runs them all.
set -u
cd "$(dirname "$0")" || exit 1
. scripts/setup.sh
nnc_setup
nnc_build build -DBUILD_TESTING=ON
exec ctest --test-dir build --output-on-failure -j "$(nproc)" "$@"
