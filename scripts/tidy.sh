#!/bin/sh
# scripts/tidy.sh BUILD -- clang-tidy on each file of src as BUILD's compile commands have it: files that are new, or that changed since they
# were found clean, or whose headers or compile command did. Exits 1, with the findings, where there are some.
set -u
build=$1
dir=$build/tidy
mkdir -p "$dir/clean"

# Asserts state what the analyzer cannot know: they stay in. The analyzer takes nine tenths of the time: the other checks are cheap. 20,000 nodes a
# function (225,000 is the default) take a tenth of the default's time, and find what was planted at the ends of the longest functions.
flags="--quiet --extra-arg=-UNDEBUG --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=20000"

# One command for each file, without the compiler's launcher and the options that only GCC knows: files that several targets compile are looked
# at once. jobs: file, name of its stamp, object, command.
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

# The headers of a file: the compiler wrote them beside the object. No such list, as after `ccache --recache`: it is looked at.
is_clean() { # NAME OBJECT COMMAND
    stamp=$dir/clean/$1 list=$build/$2.d
    [ -f "$stamp" ] && [ -f "$list" ] && [ "$stamp" -nt .clang-tidy ] && [ "$stamp" -nt scripts/tidy.sh ] &&
        [ "$(cat "$stamp")" = "$3" ] && [ -z "$(cd "$build" && find $(sed 's/^[^ ]*: //; s/\\$//' "$OLDPWD/$list") -newer "$OLDPWD/$stamp" 2>&1)" ]
}
tab=$(printf '\t')
: >"$dir/todo"
while IFS=$tab read -r file name object command; do
    is_clean "$name" "$object" "$command" || printf '%s\n%s\n' "$file" "$name" >>"$dir/todo"
done <"$dir/jobs"

rm -rf "$dir/found"
mkdir "$dir/found"
begin=$dir/begin
: >"$begin"
xargs -P "$(nproc)" -n 2 sh -c 'clang-tidy -p "'"$dir"'" '"$flags"' "$0" >"'"$dir"'/found/$1" 2>&1 && rm "'"$dir"'/found/$1"' <"$dir/todo"
# A file is clean as of the time when its look began.
while IFS=$tab read -r file name object command; do
    if [ -f "$dir/found/$name" ]; then
        rm -f "$dir/clean/$name"
    elif grep -qxF "$name" "$dir/todo"; then
        printf '%s\n' "$command" >"$dir/clean/$name"
        touch -r "$begin" "$dir/clean/$name"
    fi
done <"$dir/jobs"
[ -z "$(ls "$dir/found")" ] || {
    cat "$dir"/found/* | grep -vE '^[0-9]+ warnings? |^Suppressed |^Use -' | head -n 100
    exit 1
}
