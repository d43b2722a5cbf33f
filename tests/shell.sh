#!/bin/sh
# tests/shell.sh SOURCE BUILD -- manual pages and completion have every command and flag of --help. man and mandoc find no fault. bash, zsh
# and fish, where installed, complete commands, flags, values, files, and a model's args, layers and outputs.
set -u
source=$1 build=$2
PATH=$build:$PATH
cd "$source" || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="$dir/cache" HOME="$dir" LC_ALL=C.UTF-8
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

# ---- the tables ----
mkdir "$dir/man1"
nnc --man "$dir/man1" 2026-01-31 || fail "nnc --man: exit code $?"
commands=$(nnc --help | sed -n 's/^  \([a-z]*\)  *.*/\1/p')
[ "$(nnc --complete '' | cut -f 1)" = "$commands" ] || fail "commands of --complete: $(nnc --complete '')"
for command in $commands; do
    page=$dir/man1/nnc-$command.1
    [ -f "$page" ] && grep -q "^.*nnc.*-$command" "$dir/man1/nnc.1" || fail "no page of $command, or not named in nnc.1"
    nnc "$command" --help | sed -n 's/^  \(--*[A-Za-z0-9-]*\).*/\1/p' | sed 's/^-O.*/-O/' | grep '^-' | sort -u >"$dir/flags"
    [ -s "$dir/flags" ] || fail "$command: --help has no flags"
    sed -n 's/^\\fB\(\\-[^\]*.*\)\\fR.*/\1/p' "$page" | sed 's/\\fR.*//; s/\\-/-/g' | sort -u | diff "$dir/flags" - || fail "$page: other flags than --help"
    nnc --complete "$command" - | cut -f 1 | sed 's/=$//' | sort -u | diff "$dir/flags" - || fail "$command: completion has other flags than --help"
done
[ "$(ls "$dir/man1" | wc -l)" = $(($(echo "$commands" | wc -l) + 1)) ] || fail "pages: $(ls "$dir/man1")"
nnc --man "$dir/absent" 2026-01-31 && fail "pages were written into a folder that does not exist"
for model in models/mlp.json models/absent.json tests/shell.sh; do
    for word in - -- --= -O= -O9 --set= --set== --set=x=y=z --place=, --place=/ --skip=,, --emit=graph, --input== --shapes= --quiet=1 = '' models; do
        nnc --complete run "$model" "$word" >/dev/null || fail "--complete run $model $word: exit code $?"
        nnc --complete run "$model" --set "$word" >/dev/null || fail "--complete run $model --set $word: exit code $?"
    done
done
if command -v man >/dev/null; then
    for page in "$dir"/man1/*.1; do
        man -l --warnings "$page" 2>&1 >/dev/null | grep . && fail "man has warnings about $page"
    done
else
    echo "skipped: what man says of the pages (apt-get install man-db)"
fi
if command -v mandoc >/dev/null; then
    mandoc -T lint -W style "$dir"/man1/*.1 | grep . && fail "mandoc has warnings"
else
    echo "skipped: what mandoc says of the pages (apt-get install mandoc)"
fi

# ---- shells: the line, and what its last word may become, without what bash takes for a word of its own ----
mkdir -p "$dir/current/some folder"
echo >"$dir/current/some.npy"
ln -s "$source/models" "$dir/current/models"
cat >"$dir/cases" <<'END'
nnc compa|compare
nnc help calib|calibrate
nnc run models/vgg16.json --percen|--percentile=
nnc run models/vgg16.json --mode=|forward step
nnc run models/vgg16.json --mode st|step
nnc sweep models/mlp.json -O|-O0 -O1 -O2 -O3
nnc run models/vgg16.json --strategy=pipe|pipeline
nnc compile models/vgg16.json --emit=re|remarks
nnc compile models/vgg16.json --skip=winograd,fuse_ep|winograd,fuse_epilogue
nnc compile models/vgg16.json --set ord|order=
nnc compile models/vgg16.json --set order=|relu-pool pool-relu
nnc memory models/vgg16.json --place=conv1=0,fc8|conv1=0,fc8=
nnc run models/vgg16.json --split=fc6=co|fc6=columns
nnc run models/vgg16.json --split=conv1=rows,fc8|conv1=rows,fc8=
nnc partition models/vgg16.json --strategy=single,zb|single,zb-h1 single,zb-h2
nnc run models/mlp.json --output pr|prob=
nnc run models/mlp.json --input x=some.n|some.npy
nnc run models/mlp.json --inputs=some.n|some.npy
nnc run models/mlp.js|models/mlp.json
nnc devices mod|
nnc ops models/mlp.js|
nnc absent --mo|
END
short() { grep . | sed 's/^.*=\(.\)/\1/'; }
each() { # SHELL FUNCTION: the function prints candidates for the line "$1"
    if ! command -v "$1" >/dev/null; then
        echo "skipped: completion of $1 (apt-get install $1)"
        return
    fi
    while IFS= read -r case; do
        "$2" "${case%%|*}" >"$dir/raw" 2>&1
        sed 's/\t.*//; s/ *$//' "$dir/raw" | short | sort -u >"$dir/got"
        [ "$(cat "$dir/got")" = "$(echo "${case#*|}" | tr ' ' '\n' | short | sort)" ] || fail "$1: ${case%%|*}: $(cat "$dir/raw")"
    done <"$dir/cases"
}
cat >"$dir/try.bash" <<'END'
compopt() { :; }
. "$1"/cmake/completion/nnc.bash
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
_nnc
printf '%s\n' "${COMPREPLY[@]}"
END
in_bash() { (cd "$dir/current" && bash --norc "$dir/try.bash" "$source" "$1"); }
# zsh: its completion functions are replaced by some that print.
cat >"$dir/try.zsh" <<'END'
compadd() { print -r -- "$IPREFIX${@[-1]}" }
compset() { IPREFIX=${PREFIX[1,${#${(Q)2}}]} PREFIX=${PREFIX[${#${(Q)2}}+1,-1]} }
_files() { local f; for f in $PREFIX*(N); print -r -- "$f" }
words=(${(s: :)2}) IPREFIX=
[[ $2 != *' ' ]] || words+=('')
CURRENT=$#words PREFIX=$words[-1]
f() { . "$1/cmake/completion/_nnc" }
f "$1"
END
in_zsh() { (cd "$dir/current" && zsh -f "$dir/try.zsh" "$source" "$1"); }
in_fish() { (cd "$dir/current" && fish --no-config -c "source '$source/cmake/completion/nnc.fish'; complete -C '$1'"); }
each bash in_bash
each zsh in_zsh
each fish in_fish
[ $failed = 0 ] && echo "shell: ok"
exit $failed
