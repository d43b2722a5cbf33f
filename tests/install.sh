#!/bin/sh
# tests/install.sh SOURCE BUILD -- installs nnc into a folder, moves it, and builds and runs the examples against it there. C and C++ go
# through pkg-config and CMake, with the shared and the static library, Python through ctypes. Nothing of the source or build folder may be
# needed: NNC_PLUGIN_DIR is not set, and the plug-ins must be found all the same.
set -eu
source=$1 build=$2
unset NNC_PLUGIN_DIR
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="$dir/cache"

fail() {
    echo "install: $*" >&2
    exit 1
}

cmake --install "$build" --prefix "$dir/first" >"$dir/log" || fail "$(cat "$dir/log")"
mv "$dir/first" "$dir/moved folder"
prefix="$dir/moved folder"
library=$(find "$prefix" -name libnnc.so)
lib=$(dirname "$library")
model="$prefix/share/nnc/models/mlp.json"

# What is exported is what nnc.h declares, in both libraries.
cat "$prefix"/include/nnc/nnc.h "$prefix"/include/nnc/base/codes.h | grep -o 'nnc_[a-z_0-9]*(' | tr -d '(' | sort -u >"$dir/declared"
for l in "-D $library" "-g $lib/libnnc.a"; do
    eval "nm ${l%% *} --defined-only '${l#* }'" | awk 'NF == 3 && $2 != "w" {print $3}' | sort -u >"$dir/exported"
    grep -v -x -F -f "$dir/declared" "$dir/exported" >"$dir/more" && fail "${l#* } exports what nnc.h has not: $(cat "$dir/more")"
    grep '^nnc_' "$dir/declared" | grep -v -x -F -f "$dir/exported" >"$dir/less" && fail "${l#* } lacks: $(cat "$dir/less")"
done
readelf -d "$library" | grep -q 'SONAME.*libnnc\.so\.[0-9]' || fail "libnnc.so has no version in its name"

# The installed program finds its plug-ins, and so does a program with the library.
cat >"$dir/doctor.c" <<'END'
#include <nnc/nnc.h>
int main(void)
{
    nnc_env *env;
    nnc_text *text = nnc_text_create();
    if (nnc_env_create(NULL, &env, NULL) || nnc_report_doctor(env, NNC_JSON, text))
        return 1;
    return fputs(nnc_text_str(text), stdout) < 0;
}
END
cc=${CC:-cc} cxx=${CXX:-c++}
"$cc" "$dir/doctor.c" -I"$prefix/include" -L"$lib" -lnnc -Wl,-rpath,"$lib" -o "$dir/doctor" || fail "a program with libnnc.so does not link"
"$cc" "$dir/doctor.c" -I"$prefix/include" "$lib/libnnc.a" $(sed -n 's/^Libs.private: //p' "$lib/pkgconfig/nnc.pc") -o "$prefix/bin/doctor" ||
    fail "a program with libnnc.a does not link"
for program in "$prefix/bin/nnc doctor --format=json" "$dir/doctor" "$prefix/bin/doctor"; do
    case $program in *json) "$prefix/bin/nnc" doctor --format=json ;; *) "$program" ;; esac >"$dir/doctor.json" || fail "$program failed"
    for plugin in "$build"/libnnc_*.so; do
        name=$(basename "$plugin" .so | sed 's/libnnc_//')
        grep -q "\"name\": \"$name\", \"found\": true" "$dir/doctor.json" || fail "$program does not find the plug-in $name"
    done
done

# README's example is C that compiles.
{
    printf '#include <nnc/nnc.h>\nvoid example(const float *data, float *result)\n{\n'
    awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$source/README.md"
    echo '}'
} >"$dir/readme.c"
grep -q nnc_session_run "$dir/readme.c" || fail "README.md has no example"
"$cc" -std=c17 -Wall -Wextra -Wno-unused-result -Werror -I"$prefix/include" -fsyntax-only "$dir/readme.c" || fail "README.md's example does not compile"

same() { # PROGRAM: prints numbers, started in another folder, and all programs print the same
    (cd / && "$@" "$model") >"$dir/out" 2>&1 || fail "$* failed: $(cat "$dir/out")"
    grep -q ' = -\{0,1\}[0-9]' "$dir/out" || fail "$* printed: $(cat "$dir/out")"
    [ -f "$dir/want" ] || cp "$dir/out" "$dir/want"
    cmp -s "$dir/out" "$dir/want" || fail "$* printed $(cat "$dir/out"), others $(cat "$dir/want")"
}

trained() { # PROGRAM: examples/train.c; its weights are read by the installed nnc
    mkdir -p "$dir/points"
    (cd / && "$1" "$dir/points") >"$dir/out" 2>&1 || fail "train.c: $(cat "$dir/out")"
    grep -qE '^after 400 steps: loss 0\.[0-9]+, accuracy (9[0-9]|100)\.[0-9] % ' "$dir/out" || fail "train.c printed: $(cat "$dir/out")"
    "$prefix/bin/nnc" run "$dir/points/points.json" --weights="$dir/points/weights.safetensors" >"$dir/out" 2>&1 ||
        fail "the weights of train.c are not those of its model: $(cat "$dir/out")"
    rm -rf "$dir/points"
    (cd / && "$1" "$dir/points/absent") >"$dir/out" 2>&1 && fail "train.c wrote into a folder that is not there"
    return 0
}

PKG_CONFIG=$(command -v pkg-config || command -v pkgconf || true)
if [ -n "$PKG_CONFIG" ]; then
    export PKG_CONFIG_PATH="$lib/pkgconfig"
    eval "$cc -std=c11 -Wall -Wextra -Wpedantic -Werror '$source/examples/run.c' -o '$dir/run' $($PKG_CONFIG --cflags --libs nnc) -Wl,-rpath,'$lib'"
    same "$dir/run"
    eval "$cc -std=c11 -Wall -Wextra -Wpedantic -Werror '$source/examples/train.c' -o '$dir/train' $($PKG_CONFIG --cflags --libs nnc) -Wl,-rpath,'$lib'"
    trained "$dir/train"
    (cd / && "$dir/run" "$dir/absent.json") >"$dir/out" 2>&1 && fail "a model that is not there was run"
    grep -q absent.json "$dir/out" || fail "no message about a model that is not there: $(cat "$dir/out")"
    if command -v "$cxx" >/dev/null; then
        eval "$cxx -std=c++17 -Wall -Wextra -Wpedantic -Werror '$source/examples/compare.cpp' -o '$dir/compare' $($PKG_CONFIG --cflags --libs nnc) -Wl,-rpath,'$lib'"
        "$dir/compare" "$model" >"$dir/out" || fail "compare.cpp: $(cat "$dir/out")"
        grep -q fused "$dir/out" || fail "compare.cpp printed: $(cat "$dir/out")"
        "$dir/compare" "$model" batch=x >"$dir/out" 2>&1 && fail "batch=x was taken"
    fi
else
    echo "install: without pkg-config only the CMake package is tested"
fi

if command -v "$cxx" >/dev/null; then
    cmake -S "$source/examples" -B "$dir/build" -DCMAKE_PREFIX_PATH="$prefix" >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
    cmake --build "$dir/build" >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
    same "$dir/build/run"
    "$dir/build/shapes" "$model" set batch=2 batch=1 batch=3 >"$dir/out" || fail "shapes.c: $(cat "$dir/out")"
    [ "$(grep -c '^batch=.* = ' "$dir/out")" = 3 ] || fail "shapes.c printed: $(cat "$dir/out")"
    "$dir/build/shapes" "$model" set batsh=2 >"$dir/out" 2>&1 && fail "batsh=2 was taken"
    grep -q batch "$dir/out" || fail "shapes.c printed: $(cat "$dir/out")"
    trained "$dir/build/train"
    NNC_PLUGIN_DIR="$lib/nnc" same "$dir/build/run_static"
    "$dir/build/compare" "$model" >"$dir/out" || fail "compare of CMake: $(cat "$dir/out")"
fi

if command -v python3 >/dev/null; then
    python3 "$source/examples/run.py" "$library" "$model" >"$dir/out" 2>&1 || fail "run.py: $(cat "$dir/out")"
    grep -q 'parameters' "$dir/out" || fail "run.py printed: $(cat "$dir/out")"
else
    echo "install: without Python the foreign-function interface is not tested"
fi
echo "install: ok"
