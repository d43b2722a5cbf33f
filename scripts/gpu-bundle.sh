#!/bin/sh
# scripts/gpu-bundle.sh [BUILD] [OUT.tar.xz] -- packs nnc, its plug-ins, the libraries they need and bench/gpu.sh into an archive. It runs
# on a GPU machine that has only the driver, CUDA's libraries (a toolkit, or the wheels beside PyTorch) and glibc. Unpack it anywhere, and
# there: bench/gpu.sh
#
# BUILD (default build-bundle) is a build folder of its own. If LLVM's static libraries exist, they are linked into its plug-in (a quarter
# of the shared library's size, which has every target). Libraries are searched beside the program.
# GPU_TARGETS (default cuda:sm_90): GPUs whose kernels are compiled beforehand, if NVRTC is here, and about which cuDNN is asked, if it is.
# Otherwise both happen on the GPU machine.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd) build=${1:-build-bundle} out=${2:-nnc-gpu.tar.xz}
targets=${GPU_TARGETS-cuda:sm_90}
jobs=${JOBS:-$(nproc)}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
top=$stage/nnc-gpu

# ---- build ----
static=
config=$(command -v llvm-config-19 || command -v llvm-config || echo /usr/lib/llvm-19/bin/llvm-config)
if "$config" --link-static --libfiles x86codegen >/dev/null 2>&1; then
    parts="core analysis target codegen passes x86codegen x86info x86desc x86asmparser aarch64codegen aarch64info aarch64desc"
    static=$("$config" --link-static --libfiles $parts | tr ' \n' ';;' | sed 's/;*$//')
    for l in libz libzstd libtinfo; do # what LLVM's Support opens files with; their -dev packages may not be here
        static="$static;$(ldconfig -p | awk -v l="$l.so" 'index($1, l) == 1 {print $NF; exit}')"
    done
    # glibc has arc4random from 2.36 on; older ones do as well
    printf '%s\n' '#include <stdlib.h>' '#include <sys/random.h>' '__attribute__((visibility("hidden"))) unsigned arc4random(void)' \
        '{ unsigned u = 0; return getrandom(&u, sizeof u, 0) == sizeof u ? u : (unsigned)rand(); }' >"$stage/arc4random.c"
    mkdir -p "$build"
    cc -O2 -fPIC -c "$stage/arc4random.c" -o "$build/arc4random.o"
    static="$static;$(cd "$build" && pwd)/arc4random.o;stdc++"
fi
rpath='$ORIGIN/../lib:$ORIGIN/..'
launcher=
command -v ccache >/dev/null 2>&1 && launcher="-DCMAKE_C_COMPILER_LAUNCHER=ccache"
cmake -S . -B "$build" -DBUILD_TESTING=OFF -DCMAKE_SKIP_RPATH=ON $launcher ${static:+-DNNC_LLVM_STATIC=OFF "-DLLVM_LIBRARY=$static"} \
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,'$rpath'" \
    "-DCMAKE_MODULE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,'$rpath' -Wl,--exclude-libs,ALL -Wl,--gc-sections" >/dev/null
cmake --build "$build" -j "$jobs" --target nnc bench_device bench_gpu | tail -n 1
cmake --build "$build" -j "$jobs" --target nnc_plugin_llvm >"$stage/log" 2>&1 || {
    echo "without the plug-in llvm:"
    tail -n 3 "$stage/log"
}

# ---- files ----
mkdir -p "$top/bin" "$top/lib/nnc" "$top/bench" "$top/docs"
cp "$build/nnc" "$build/bench_device" "$top/bin/"
for p in "$build"/libnnc_*.so; do
    [ -e "$p" ] && cp "$p" "$top/lib/nnc/"
done
strip "$top"/bin/* "$top"/lib/nnc/*.so
cp -r models "$top/"
cp -r docs/schema "$top/docs/"
cp -r bench/gpu.sh bench/device "$top/bench/"
rm -f "$top"/bench/device/*.c "$top"/bench/device/*.h
rm -rf "$top/bench/device/__pycache__"
mkdir -p "$top/bench/results" "$top/lib/own"
# what any of them needs, and glibc does not have
ldd "$top"/bin/* "$top"/lib/nnc/*.so | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | while read -r lib; do cp -L "$lib" "$top/lib/"; done
# the compiler's own are there on nearly every machine, newer than these: looked for here last (bench/gpu.sh)
mv "$top"/lib/libstdc++.so.6 "$top"/lib/libgcc_s.so.1 "$top/lib/own/"
git rev-parse --short=10 HEAD >"$top/commit" 2>/dev/null || echo unknown >"$top/commit"
[ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || echo "$(cat "$top/commit")-changed" >"$top/commit"
cat >"$top/README" <<'END'
nnc for GPU machines: bench/gpu.sh checks and measures it there (docs/cuda.md). bin/nnc is the compiler itself; NNC_PLUGIN_DIR=lib/nnc.
END

# ---- code of kernels ----
for t in $targets; do
    for cells in cells check; do
        "$top/bin/bench_device" compile --cells=bench/device/$cells.txt --target="$t" --cache-dir="$top/cache" || echo "  (some are compiled there)"
    done
done

"$build/bench_gpu" $targets >"$top/static.txt" 2>"$stage/log" || rm -f "$top/static.txt"

echo "$(ls "$top/cache" 2>/dev/null | grep -c '^object-') objects of kernels are packed"

# ---- archive ----
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$(git log -1 --format=%cI 2>/dev/null || echo 2000-01-01)" \
    -cf - nnc-gpu | xz -T0 -6 >"$out"
echo "$out: $(du -h "$out" | cut -f1), unpacked $(du -sh "$top" | cut -f1); needs $(
    objdump -T "$top"/bin/* "$top"/lib/nnc/*.so "$top"/lib/*.so* 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -V | tail -n 1) or newer"
