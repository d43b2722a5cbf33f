# tests/taken.sh -- read by the tests that are scripts. taken N: does a loop over cases run its next one? By default one of N, chosen by
# NNC_TEST_SEED; with NNC_TEST_DRAWS=4 each, as test_takes in tests/test.h.
taken_seed=${NNC_TEST_SEED:-1}
[ "$taken_seed" != random ] || taken_seed=$(date +%s)
taken_number=0
taken() {
    taken_number=$((taken_number + 1))
    taken_of=$((${NNC_TEST_DRAWS:-0} * $1 / 4))
    [ $(((taken_number + taken_seed) % $1)) -lt $((taken_of > 1 ? taken_of : 1)) ]
}
