#!/bin/sh
# scripts/lint.sh -- formatting, house rules, warnings as errors, clang-tidy. Exits 1 and says what on the first kind that fails.
set -u
cd "$(dirname "$0")/.."
fail=0

bad=$(git ls-files '*.c' | xargs clang-format --dry-run 2>&1 | grep -E '^[^ ].*warning:' | cut -d: -f1 | sort -u)
[ -z "$bad" ] || { echo "not formatted (make format):"; echo "$bad"; fail=1; }

# Lines of code: 140 at most (comments and tables may be long); files 1000; functions 80.
long=$(git ls-files '*.c' '*.h' | xargs awk 'length > 160 {print FILENAME":"FNR}' | head -n 20)
[ -z "$long" ] || { echo "lines over 160 characters:"; echo "$long"; fail=1; }
big=$(git ls-files '*.c' '*.h' | xargs wc -l | awk '$2 != "total" && $1 > 1000 {print $1, $2}')
[ -z "$big" ] || { echo "files over 1000 lines:"; echo "$big"; fail=1; }
fns=$(git ls-files 'src/*.c' | xargs awk 'FNR==1{s=0} /^[A-Za-z_].*\)[ \t]*$/{name=$0; s=FNR} /^\}/{ if(s && FNR-s>80) print FNR-s, FILENAME":"s, name; s=0 }')
[ -z "$fns" ] || { echo "functions over 80 lines:"; echo "$fns"; fail=1; }
[ $fail = 0 ] || exit 1

cmake -S . -B build-lint -DNNC_WERROR=ON -DCMAKE_BUILD_TYPE=Release >/dev/null || exit 1
cmake --build build-lint -j "$(nproc)" >build-lint/build.log 2>&1 || { tail -n 40 build-lint/build.log; echo "warnings or errors"; exit 1; }
git ls-files 'src/*.c' | xargs -P "$(nproc)" -n 8 clang-tidy -p build-lint --quiet >build-lint/tidy.log 2>/dev/null ||
    { grep -E 'warning:|error:' build-lint/tidy.log | head -n 40; echo "clang-tidy: see build-lint/tidy.log"; exit 1; }
echo "lint: clean"
