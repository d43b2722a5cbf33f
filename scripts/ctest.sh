#!/usr/bin/env bash
# scripts/ctest.sh BUILD [ctest flags] -- runs BUILD's tests. Prints a line for each suite as it ends, the whole output of those that fail,
# what was skipped and why, and as the last line "N passed, N failed, N skipped". These are the tests of the suites' programs; a suite that
# does not count its own is one. Exit code: ctest's.
set -u
build=$1
shift
# Suites share the machine code that they compile, in a folder that is empty at first: none is older than this run.
if [ -z "${TEST_CACHE:-}" ]; then
    TEST_CACHE=$(cd "$build" && pwd)/cache
    rm -rf "$TEST_CACHE"
fi
export TEST_CACHE FAKE_CUDA_KERNELS="${FAKE_CUDA_KERNELS:-$TEST_CACHE/kernels}"
mkdir -p "$FAKE_CUDA_KERNELS"
results=$(mktemp) || exit 1
trap 'rm -f "$results"' EXIT
log=$build/Testing/Temporary/LastTest.log
rm -f "$log"

# ctest's lines: "12/45 Test #37: api ......   Passed   34.12 sec", followed by the output where it failed. Names and results: $results.
line='^ *([0-9]+/[0-9]+) Test +#[0-9]+: ([^ ]+) \.* *([^ .].*[^ ]) +([0-9.]+) sec'
noise='^(Internal ctest|Test project| +Start |[0-9]+% tests passed|Total Test time|Errors while|Label Time|The following tests did not run|.*\(Skipped\)$|$)'
progress() {
    local text result
    while IFS= read -r text; do
        if [[ $text =~ $line ]]; then
            case ${BASH_REMATCH[3]} in
            Passed) result=passed ;;
            *Skipped*) result=skipped ;;
            *) result=FAILED ;;
            esac
            printf '%s %s: %s (%.0f s)\n' "${BASH_REMATCH[1]}" "$result" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]}"
            echo "$result ${BASH_REMATCH[2]}" >>"$results"
        elif ! [[ $text =~ $noise ]]; then
            printf '%s\n' "$text"
        fi
    done
}

# Of $results and the log, in which the output of a suite's program ends with what it counted.
totals() {
    [ -f "$log" ] || log=/dev/null
    awk '
    FILENAME == ARGV[1] { result[$2] = $1; next }
    /^[0-9]+\/[0-9]+ Testing: / { name = $3 }
    /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped/ { counted[name] = 1; passed += $1; failed += $3; skipped += $5; failures[name] = $3 }
    /^ *skipped: / { sub(/^ *skipped: /, ""); why = name ": " $0; if (!n[why]++) order[++reasons] = why }
    END {
        for (name in result) { # a suite that failed after its last test crashed, or a sanitizer found something
            if (result[name] == "FAILED") failed += !failures[name]
            else if (!counted[name]) { if (result[name] == "skipped") skipped++; else passed++ }
        }
        if (reasons) print "Skipped:"
        for (i = 1; i <= reasons; i++) print "  " order[i] (n[order[i]] > 1 ? " (" n[order[i]] " tests)" : "")
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    }' "$results" "$log"
}

TIMEFORMAT="The tests in $build took %0R s, of CPU time %0U s (user) and %0S s (system)"
{ time ctest --test-dir "$build" --output-on-failure --no-tests=error --no-label-summary "$@" 2>&1 | progress; rc=${PIPESTATUS[0]}; } 2>&1
totals
exit "$rc"
