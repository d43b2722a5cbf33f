#!/bin/sh
# scripts/tidy.sh BUILD -- clang-tidy on each file of src as BUILD's compile commands have it. Files found clean before are left out: the
# same contents of file and headers, command and checks, in any checkout (as ccache keeps objects; ~/.cache/nnc-tidy). Exits 1, with the
# findings, where there are some.
set -u
build=$1
dir=$build/tidy
clean=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/nnc-tidy
mkdir -p "$dir" "$clean"
find "$clean" -type f -mtime +60 -delete

# Asserts state what the analyzer cannot know: they stay in. The analyzer takes nine tenths of the time: the other checks are cheap. 20,000 nodes a
# function (225,000 is the default) take a tenth of the default's time, and find what was planted at the ends of the longest functions.
flags="--quiet --extra-arg=-UNDEBUG --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=20000"

# One command for each file, without the compiler's launcher and the options that only GCC knows: files that several targets compile are looked
# at once. jobs: file, name of its key, object, command.
awk -v src="$PWD/src/" -v out="$dir/compile_commands.json" -v jobs="$dir/jobs" '
    /^  "directory": / { directory = $0 }
    /^  "command": / { command = $0; sub(/"command": "[^" ]*ccache /, "\"command\": \"", command); gsub(/ -fno-(peel|split)-loops/, "", command) }
    /^  "file": / {
        file = $0; sub(/^  "file": "/, "", file); sub(/",?$/, "", file)
        if (index(file, src) != 1 || seen[file]++) next
        printf "%s{\n%s\n%s\n  \"file\": \"%s\"\n}", n++ ? ",\n" : "[\n", directory, command, file > out
        name = substr(file, length(src) + 1); gsub("/", "+", name)
        object = command; sub(/.* -o /, "", object); sub(/ .*/, "", object)
        print file "\t" name "\t" object "\t" command > jobs
    }
    END { print n ? "\n]" : "[]" > out; if (!n) printf "" > jobs }' "$build/compile_commands.json"
[ -s "$dir/jobs" ] || { echo "tidy: $build/compile_commands.json has no file of src"; exit 1; }

# Keys: a hash of what decides the findings. The compiler wrote the list of headers beside the object; without it (after `ccache --recache`) a file
# has no key, and is looked at.
rm -rf "$dir/keys" "$dir/found"
mkdir "$dir/keys" "$dir/found"
tab=$(printf '\t')
while IFS=$tab read -r file name object command; do
    awk -v build="$build/" '{ for (i = 1; i <= NF; i++) if ($i !~ /:$|^\\$/) print ($i ~ /^\// ? "" : build) $i }' "$build/$object.d" >"$dir/keys/$name" 2>/dev/null
done <"$dir/jobs"
cat "$dir"/keys/* | sort -u | tr '\n' '\0' | xargs -0 sha1sum >"$dir/sums"
checks=$({ clang-tidy --version && cat .clang-tidy && echo "$flags"; } | sha1sum)
: >"$dir/todo"
while IFS=$tab read -r file name object command; do
    key=$({ echo "$checks" && echo "$command" | sed "s#$PWD/##g" && awk 'NR == FNR { sum[$2] = $1; next } { print sum[$1] }' "$dir/sums" "$dir/keys/$name"; } |
        sha1sum | cut -d' ' -f1)
    [ -s "$dir/keys/$name" ] || key=
    echo "$key" >"$dir/keys/$name"
    [ -n "$key" ] && [ -f "$clean/$key" ] || printf '%s\n%s\n' "$file" "$name" >>"$dir/todo"
done <"$dir/jobs"

# A file without findings leaves none behind; its key is kept.
export dir clean flags
xargs -r -P "$(nproc)" -n 2 sh -c 'clang-tidy -p "$dir" $flags "$0" >"$dir/found/$1" 2>&1 && rm "$dir/found/$1" && key=$(cat "$dir/keys/$1") &&
    [ -n "$key" ] && : >"$clean/$key"; :' <"$dir/todo"
[ -z "$(ls "$dir/found")" ] || {
    cat "$dir"/found/* | grep -vE '^[0-9]+ warnings? |^Suppressed |^Use -' | head -n 100
    exit 1
}
