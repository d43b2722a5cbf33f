# tests/ranks_common.sh -- what the tests over ranks share; read by them, with `nnc` and `build` set. Leaves with 77 where there is no MPI.
if ! command -v mpirun >/dev/null; then
    echo "skipped: there is no mpirun (apt-get install openmpi-bin)"
    exit 77
fi
if [ ! -e "$build/libnnc_mpi.so" ]; then
    echo "skipped: nnc was built without MPI (apt-get install libopenmpi-dev)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
. "$1/tests/mpi_env.sh"
. "$1/tests/taken.sh"
export XDG_CACHE_HOME="${TEST_CACHE:-$dir/cache}"
failed=0

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$dir/said"
    failed=1
}

# ran RC TEXT: the last job ended with RC (or one of several, between |) and said TEXT.
ran() {
    case "|$1|" in *"|$rc|"*) ;; *) fail "$what: exit code $rc, not $1" ;; esac
    [ -z "$2" ] || grep -q -e "$2" "$dir/said" || fail "$what: nothing says: $2"
}

# launched N COMMAND...: over N ranks, what it says in $dir/said. A process whose launcher has no processor for 2 s gives up telling it of
# its end (PMIx_Finalize). Open MPI 4 then takes a process that ended well for one that "exited improperly" (its issue 12607). Only that is
# tried again, and said.
launched() {
    n=$1
    shift
    for try in 1 2 3; do
        timeout -k 5 120 mpirun -n "$n" "$@" >"$dir/said" 2>&1
        rc=$?
        { [ $rc = 1 ] && grep -q "exiting improperly" "$dir/said"; } || break
        echo "note: ${what:-}: try $try: Open MPI lost a process' end; again"
    done
}

# job N ARGS...: nnc with these on N ranks; what it says is in $dir/said.
job() {
    n=$1
    shift
    launched "$n" "$nnc" "$@"
}

# script N TEXT: each of N ranks runs this script; R is its rank.
script() {
    launched "$1" sh -c "R=\$OMPI_COMM_WORLD_RANK; $2"
}

# Waits until ranks 0 and 1, whose ids are in $dir/pid0 and $dir/pid1, have computed: they joined and loaded the plan in less CPU time.
begun() {
    tries=0
    until [ "$(ticks 0)" -ge 80 ] && [ "$(ticks 1)" -ge 80 ] || [ $tries -ge 400 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

# CPU time of rank N in hundredths of a second. 0 while its id is not written: /proc//stat is the whole machine's.
ticks() {
    pid=$(cat "$dir/pid$1" 2>/dev/null)
    t=$(awk '{ print $14 + $15 }' "/proc/${pid:-none}/stat" 2>/dev/null)
    echo "${t:-0}"
}

# Processes of this test that run nnc or wait for it: their command line holds the folder.
left() {
    for p in /proc/[0-9]*; do
        { tr '\0' ' ' <"$p/cmdline" | grep -q "^[^ ]*nnc .*$dir" && echo "${p#/proc/}"; } 2>/dev/null
    done
}

# Shared memory that no process maps any more. (Other jobs on this machine have some of their own, which they do.)
shm() {
    for f in /dev/shm/*vader* /dev/shm/sm_segment* /dev/shm/*nnc* /dev/shm/*nccl*; do
        [ ! -e "$f" ] || grep -qs -F "$f" /proc/[0-9]*/maps || echo "$f"
    done | wc -l
}
