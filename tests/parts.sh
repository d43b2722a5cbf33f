#!/bin/sh
# tests/parts.sh SOURCE BUILD -- takes each plug-in away and damages it. A command that needs it says so in one line, with the reason, and
# goes on where it can; doctor gives the same reason. The last part runs in a chroot without /proc, where the user may make one.
set -u
source=$1
build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="$dir/cache"
unset NNC_PLUGIN_DIR
failed=0

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$dir/err"
    failed=1
}

# A folder with the program and links to its plug-ins.
mkdir "$dir/bin"
cp "$build/nnc" "$dir/bin/nnc"
whole() {
    rm -f "$dir"/bin/libnnc_*.so
    for p in "$build"/libnnc_*.so; do
        [ -e "$p" ] && ln -s "$p" "$dir/bin/"
    done
}

# damage PLUGIN HOW; false: it cannot be damaged so.
damage() {
    file="$dir/bin/libnnc_$1.so"
    whole
    rm -f "$file"
    case $2 in
    absent) want="libnnc_$1.so is not in $dir/bin" ;;
    text)
        echo "no ELF" >"$file"
        want="$file: .*(Debian: apt-get install "
        ;;
    truncated)
        head -c $(($(stat -L -c %s "$build/libnnc_$1.so") / 2)) "$build/libnnc_$1.so" >"$file"
        want="$file is cut off"
        ;;
    foreign)
        [ -e "$build/foreign/libnnc_foreign.so" ] || return 1
        cp "$build/foreign/libnnc_foreign.so" "$file"
        want="$file is of another build of nnc"
        ;;
    library) # one that it needs is gone
        command -v readelf >/dev/null || return 1
        lib=$(readelf -d "$build/libnnc_$1.so" | sed -n 's/.*NEEDED.*\[\(lib.*\)\]/\1/p' | grep -v -e '^libc\.so' -e '^libm\.so' | head -1)
        [ -n "$lib" ] || return 1
        gone="lyb${lib#lib}"
        LC_ALL=C sed "s/$lib/$gone/g" "$build/libnnc_$1.so" >"$file"
        want="$gone: cannot open shared object file.*(Debian: apt-get install "
        ;;
    esac
}

# needs PLUGIN CODE LINE COMMAND...: the command's exit code, and on stderr LINE with the reason, once and alone.
needs() {
    plugin=$1 code=$2 line=$3
    shift 3
    for how in absent text truncated foreign library; do
        damage "$plugin" $how || continue
        "$@" >"$dir/out" 2>"$dir/err"
        got=$?
        [ $got = "$code" ] || fail "$plugin $how: exit code $got, not $code: $*"
        [ "$(grep -c "$line.*$want" "$dir/err")" = 1 ] || fail "$plugin $how: not once: $line ... $want"
        [ "$(wc -l <"$dir/err")" = 1 ] || fail "$plugin $how: more than one line"
        "$dir/bin/nnc" doctor >"$dir/doctor" 2>"$dir/err" || fail "$plugin $how: doctor fails"
        grep -q "^  $plugin  *absent" "$dir/doctor" || fail "$plugin $how: doctor does not say absent"
        grep -q "$want" "$dir/doctor" || fail "$plugin $how: doctor does not say why: $want"
        echo "$plugin $how: $(grep -m1 "$want" "$dir/doctor" | sed 's/^ *//')"
    done
    whole
}

has() {
    [ -e "$build/libnnc_$1.so" ] || echo "$1: not built"
    [ -e "$build/libnnc_$1.so" ]
}

whole
"$dir/bin/nnc" doctor >"$dir/out" 2>"$dir/err" || fail "doctor"
one="$source/models/mlp.json --set batch=1 --set depth=1"
if has llvm; then
    slow="nnc: warning: [0-9]* kernel launch.* interpreted, 10 to 100 times slower than machine code: "
    # shellcheck disable=SC2086
    needs llvm 0 "$slow" "$dir/bin/nnc" run $one --iterations=1
    # shellcheck disable=SC2086
    needs llvm 0 "$slow" "$dir/bin/nnc" compare $one --iterations=1
    # a described CPU's plan is the same, and its kernels are interpreted
    "$dir/bin/nnc" devices --format=json >"$dir/here.json"
    # shellcheck disable=SC2086
    needs llvm 0 "$slow" "$dir/bin/nnc" run $one --iterations=1 --target="$dir/here.json"
    # shellcheck disable=SC2086
    needs llvm 5 "nnc: error: --emit=llvm and --emit=asm need LLVM: " "$dir/bin/nnc" compile $one --emit=llvm --target="$dir/here.json"
    # from an artifact with machine code the same command says nothing
    # shellcheck disable=SC2086
    "$dir/bin/nnc" compile $one --target="$dir/here.json" -o "$dir/m.nnc" 2>"$dir/err" || fail "compile"
    damage llvm absent
    "$dir/bin/nnc" run "$dir/m.nnc" --iterations=1 --target="$dir/here.json" >"$dir/out" 2>"$dir/err" || fail "an artifact with machine code"
    [ -s "$dir/err" ] && fail "machine code needs no LLVM"
fi
if has mpi; then
    # shellcheck disable=SC2086
    needs mpi 5 "nnc: error: rank 0 of 2 .*ranks exchange data through MPI: " \
        env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$dir/bin/nnc" run $one --devices=2 --iterations=1
fi
for kind in jpeg png; do
    has $kind || continue
    mkdir -p "$dir/$kind/a" "$dir/$kind/b"
    touch "$dir/$kind/a/1.$kind" "$dir/$kind/b/1.$kind"
    cat >"$dir/net.json" <<'M'
{"args": {"batch": 1}, "inputs": {"x": ["batch", 3, 8, 8]}, "layers": ["flatten", {"op": "linear", "out": 2}]}
M
    needs $kind 5 "$dir/$kind: error: has 2 [JPENG]* files: " "$dir/bin/nnc" train "$dir/net.json" --data="$dir/$kind" --epochs=1
done

# A plug-in that is there is found without /proc, too, by whatever name the program was started.
if [ "$(id -u)" = 0 ] && command -v unshare >/dev/null && unshare -m true 2>/dev/null; then
    whole
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount -t tmpfs none /proc && cd "$1" && ./nnc doctor && PATH=$1:$PATH && nnc doctor' sh "$dir/bin" >"$dir/out" 2>"$dir/err" || fail "doctor without /proc"
    for p in "$build"/libnnc_*.so; do
        name=$(basename "$p" .so | sed 's/libnnc_//')
        [ "$(grep -c "^  $name  *found" "$dir/out")" = 2 ] || fail "without /proc, $name is not found"
    done
    # shellcheck disable=SC2016,SC2086
    unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$dir/bin/nnc" compile $one --quiet -o "$dir/proc.nnc" >"$dir/out" 2>"$dir/err" || fail "a compile without /proc"
    [ -s "$dir/err" ] && fail "a compile without /proc"
    unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$dir/bin/nnc" run "$dir/proc.nnc" --iterations=1 >"$dir/out" 2>"$dir/err" || fail "a run without /proc"
    [ -s "$dir/proc.nnc" ] || fail "a file that is written without /proc"
    [ -s "$dir/err" ] && fail "a run without /proc"
    echo "without /proc: doctor finds every plug-in, and a run writes its file"
else
    echo "without /proc: skipped (needs root and unshare)"
fi
[ $failed = 0 ] && echo "all parts: as said"
exit $failed
