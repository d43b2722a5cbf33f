#!/bin/sh
# tests/globals.sh SOURCE BUILD -- the library's variables of static storage duration that can change (per process or per thread) are those
# of tests/globals.txt, neither more nor fewer.
set -eu
source=$1 build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Symbols in writable sections, as "folder/file.c name". A static of a function has a number or the function's name beside its own.
find "$build" -path '*.dir/src/*.c.o' ! -path '*/src/cli/*' -exec nm -A --format=sysv {} + 2>"$dir/nm" | awk -F'|' -v source="$source" '
    $7 ~ /^\.(t?bss|t?data)(\.|$)/ && $7 !~ /rel\.ro/ && $4 ~ /OBJECT|TLS/ {
        file = $1; name = $1
        sub(/:[^:]*$/, "", file); sub(/^.*\.dir\/src\//, "", file); sub(/\.o$/, "", file)
        sub(/^.*:/, "", name); gsub(/ /, "", name); sub(/\.[0-9]+$/, "", name); sub(/^.*\./, "", name)
        print file, name
    }' | sort -u | while read -r file name; do
    [ ! -f "$source/src/$file" ] || echo "$file $name" # otherwise of an older build
done >"$dir/built"
[ -s "$dir/built" ] || { echo "globals: no object files in $build" >&2; exit 1; }

sed 's/#.*//' "$source/tests/globals.txt" | awk '{ for (i = 2; i <= NF; i++) print $1, $i }' | sort -u >"$dir/listed"

if ! diff "$dir/listed" "$dir/built" >"$dir/diff"; then
    echo "globals: tests/globals.txt and the object files disagree (< listed, > built). Hand new state to its users" >&2
    echo "in an environment, executor or option instead, or list it there with the reason:" >&2
    grep '^[<>]' "$dir/diff" >&2
    exit 1
fi
