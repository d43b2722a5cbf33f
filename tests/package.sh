#!/bin/sh
# tests/package.sh SOURCE BUILD -- cpack makes the packages: what they hold and depend on, and the archive runs where it is unpacked, from
# another folder. scripts/packages.sh installs them on a minimal Debian.
set -eu
source=$1 build=$2
unset NNC_PLUGIN_DIR
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="$dir/cache"

fail() {
    echo "package: $*" >&2
    exit 1
}

command -v cpack >/dev/null || { echo "skipped: there is no cpack"; exit 77; }
generators=TGZ
if command -v dpkg-shlibdeps >/dev/null; then generators="TGZ;DEB"; else echo "skipped: Debian's packages (apt-get install dpkg-dev)"; fi
cpack --config "$build/CPackConfig.cmake" -G "$generators" -B "$dir" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"

# ---- the archive ----
mkdir "$dir/first" "$dir/moved folder"
tar -C "$dir/first" -xzf "$dir"/nnc-*.tar.gz
mv "$dir"/first/nnc-* "$dir/moved folder/nnc"
prefix="$dir/moved folder/nnc"
for file in bin/nnc lib*/libnnc.so lib*/libnnc.a include/nnc/nnc.h share/nnc/models/mlp.json share/man/man1/nnc.1.gz share/man/man1/nnc-run.1.gz \
    share/bash-completion/completions/nnc share/zsh/vendor-completions/_nnc share/fish/vendor_completions.d/nnc.fish; do
    ls "$prefix"/$file >/dev/null 2>&1 || [ -n "$(find "$prefix/lib" -path "*/$(basename "$file")" -print -quit)" ] || fail "the archive lacks $file"
done
(cd / && "$prefix/bin/nnc" run "$prefix/share/nnc/models/mlp.json" --iterations=1) >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
"$prefix/bin/nnc" doctor --format=json >"$dir/doctor"
for plugin in "$build"/libnnc_*.so; do
    name=$(basename "$plugin" .so | sed 's/libnnc_//')
    grep -q "\"name\": \"$name\", \"found\": true" "$dir/doctor" || fail "the archive's nnc does not find the plug-in $name"
done
PKG_CONFIG=$(command -v pkg-config || command -v pkgconf || true)
if [ -n "$PKG_CONFIG" ]; then
    export PKG_CONFIG_PATH="$(dirname "$(find "$prefix" -name nnc.pc)")"
    eval "${CC:-cc} '$source/examples/run.c' -o '$dir/run' $($PKG_CONFIG --cflags --libs nnc) -Wl,-rpath,'$(dirname "$PKG_CONFIG_PATH")'"
    "$dir/run" "$prefix/share/nnc/models/mlp.json" >"$dir/out" 2>&1 || fail "a program built with the archive: $(cat "$dir/out")"
fi

# ---- Debian's packages ----
[ "$generators" != TGZ ] || exit 0
deb() { ls "$dir/$1"_*.deb; }
holds() { # PACKAGE PATTERN
    dpkg-deb -c "$(deb "$1")" | awk '{print $6}' | grep -q "$2"
}
for row in "nnc ./usr/bin/nnc$" "nnc /libnnc.so.[0-9]" "nnc man1/nnc.1.gz" "nnc doc/nnc/copyright" "nnc models/mlp.json" "nnc-dev /nnc.h$" "nnc-dev /libnnc.a$" \
    "nnc-dev /libnnc.so$" "nnc-dev /nnc.pc$" "nnc-dev examples/run.c$"; do
    holds ${row% *} "${row#* }" || fail "${row% *} lacks ${row#* }"
done
if [ -e "$build/libnnc_mpi.so" ]; then
    holds nnc-mpi /libnnc_mpi.so || fail "nnc-mpi lacks its plug-in"
fi
dpkg-deb -f "$(deb nnc)" Depends >"$dir/depends"
grep -q libc6 "$dir/depends" || fail "nnc depends on $(cat "$dir/depends")"
! grep -q mpi "$dir/depends" || fail "nnc needs an MPI: $(cat "$dir/depends")"
dpkg-deb -f "$(deb nnc-dev)" Depends | grep -q "nnc (= " || fail "nnc-dev does not depend on nnc"
! dpkg-deb -c "$(deb nnc)" | grep -E '/(libnnc.a|nnc.h|libnnc_mpi.so)$' || fail "nnc holds what is of the other packages"
echo "package: ok"
