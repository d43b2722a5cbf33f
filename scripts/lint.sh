#!/bin/sh
# scripts/lint.sh [--no-tidy] -- formatting, house rules, warnings as errors, clang-tidy. Exits 1 and says what on the first kind that fails.
# Builds in build/. --no-tidy: who calls this runs scripts/tidy.sh.
set -u
cd "$(dirname "$0")/.."
fail=0

bad=$(git ls-files '*.c' | xargs -P "$(nproc)" -n 100 clang-format --dry-run 2>&1 | grep -E '^[^ ].*warning:' | cut -d: -f1 | sort -u)
[ -z "$bad" ] || { echo "not formatted (make format):"; echo "$bad"; fail=1; }

# Lines: 140 at most (code 100, by clang-format; tables in .def 400); files 1000; functions 80; an opening comment each.
long=$(git ls-files '*.c' '*.h' | xargs awk 'length > 140 {print FILENAME":"FNR}' | head -n 20)
[ -z "$long" ] || { echo "lines over 140 characters:"; echo "$long"; fail=1; }
long=$(git ls-files '*.def' | xargs awk 'length > 400 {print FILENAME":"FNR}')
[ -z "$long" ] || { echo "rows of tables over 400 characters:"; echo "$long"; fail=1; }
mute=$(for f in $(git ls-files '*.c' '*.h'); do head -n 1 "$f" | grep -q '^/\*' || echo "$f"; done)
[ -z "$mute" ] || { echo "files without an opening comment:"; echo "$mute"; fail=1; }
big=$(git ls-files '*.c' '*.h' | xargs wc -l | awk '$2 != "total" && $1 > 1000 {print $1, $2}')
[ -z "$big" ] || { echo "files over 1000 lines:"; echo "$big"; fail=1; }
fns=$(git ls-files 'src/*.c' | xargs awk 'FNR==1{s=0} /^[A-Za-z_].*\)[ \t]*$/{name=$0; s=FNR} /^\}/{ if(s && FNR-s>80) print FNR-s, FILENAME":"s, name; s=0 }')
[ -z "$fns" ] || { echo "functions over 80 lines:"; echo "$fns"; fail=1; }
# Lines of each folder of src: scripts/lines.txt has the most, which a commit raises only with a reason.
grown=$(grep -v '^#' scripts/lines.txt | while read -r folder most; do
    lines=$(git ls-files "src/$folder" | xargs cat | wc -l)
    [ "$lines" -le "$most" ] || echo "src/$folder: $lines lines, at most $most"
done
for folder in src/*/; do
    folder=${folder#src/} && folder=${folder%/}
    grep -q "^$folder " scripts/lines.txt || echo "src/$folder: no row in scripts/lines.txt"
done)
[ -z "$grown" ] || { echo "folders over their number of lines (scripts/lines.txt):"; echo "$grown"; fail=1; }
# Sentences in comments: 25 words at most.
long=$(python3 scripts/sentences.py src)
[ -z "$long" ] || { echo "sentences of more than 25 words (scripts/sentences.py):"; echo "$long"; fail=1; }
# Python: lines as above, and names that are unused or unknown, where pyflakes is (python3-pyflakes).
long=$(git ls-files 'python/*.py' 'tests/python/*.py' | xargs awk 'length > 140 {print FILENAME":"FNR}')
[ -z "$long" ] || { echo "lines over 140 characters:"; echo "$long"; fail=1; }
if /usr/bin/python3 -c 'import pyflakes' 2>/dev/null; then
    git ls-files 'python/*.py' 'tests/python/*.py' | xargs /usr/bin/python3 -m pyflakes || fail=1
fi
# Conditions that mutants.py takes away stand where its table says.
moved=$(python3 tests/mutants/mutants.py --check 2>&1) || { echo "$moved"; fail=1; }
# These read and write numbers in the host program's locale; printf of doubles into a buffer does too (nnc_snprintf).
local=$(git grep -nE '(^|[^_a-z])(strtod|strtof|atof|atoi)\(' -- src ':!src/base/text.c')
[ -z "$local" ] || { echo "write nnc_strtod, or strtol with its end checked:"; echo "$local"; fail=1; }
# Words and phrases that a reader would have to decode, and what to write instead.
words=$(grep -v '^#' scripts/words.txt | while IFS="$(printf '\t')" read -r word instead; do
    git grep -nIEi -e "$word" -- src docs README.md tests examples models bench python '*.sh' ':!bench/results' | sed "s|^\([^:]*:[0-9]*:\).*|\1 write: $instead|"
done)
[ -z "$words" ] || { echo "banned words (scripts/words.txt):"; echo "$words"; fail=1; }
[ $fail = 0 ] || exit 1

# Warnings are errors in the build that the tests use; clang-tidy reads how it compiles each file of src.
log=build/build.log
mkdir -p build
cmake -S . -B build -DBUILD_TESTING=ON -DNNC_WERROR=ON >"$log" 2>&1 && cmake --build build -j "$(nproc)" -- -k >>"$log" 2>&1 || {
    grep -E '(warning|error):|Error at|\*\*\* No rule' "$log" | sort -u | head -n 40
    echo "lint: the whole output is in $log"
    exit 1
}
[ "${1:-}" = --no-tidy ] || sh scripts/tidy.sh build || exit 1
echo "lint: clean"
