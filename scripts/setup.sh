# scripts/setup.sh -- sourced by demo.sh and test.sh: installs the packages that are missing (Debian, as root or through sudo), or
# names them and stops. Required: a C compiler, CMake, make, xxHash; for the tests, cJSON. Optional: LLVM 19 (nnc is slow without it), zlib
# (compressed .npz files), libjpeg and libpng (pictures for training). For the tests: Open MPI (one model over several processes), a C++
# compiler (kernels for GPUs, run on the CPU), pkg-config (the installed library), Python (checks of files, NVRTC's wheel), its numpy (the
# package nnc, samples for trainings over several processes), pytest, venv (its wheel), nbclient and ipykernel (the notebook), dpkg-dev (Debian's
# packages), man-db and mandoc (manual pages), zsh and fish (their completion).

nnc_required="gcc libc6-dev make cmake libxxhash-dev"
nnc_optional="llvm-19-dev zlib1g-dev libjpeg-dev libpng-dev"
nnc_required_tests="libcjson-dev"
nnc_optional_tests="libopenmpi-dev openmpi-bin g++ pkgconf python3 python3-numpy python3-pytest
    python3-venv python3-nbclient python3-ipykernel dpkg-dev man-db mandoc zsh fish"

nnc_missing() {
    for p in "$@"; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || printf '%s ' "$p"
    done
}

nnc_apt() {
    $nnc_sudo env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get --no-install-recommends "$@"
}

# Prints what installing the packages would download; nothing where one is unknown, as before the first update of the lists.
nnc_download() {
    nnc_apt --assume-no install "$@" 2>/dev/null | sed -n 's/^Need to get \(.*\) of archives.*/\1/p'
}

# nnc_install PACKAGE...: fails where the user may not or the network is absent.
nnc_install() {
    local log size rc=0
    nnc_sudo=""
    if [ "$(id -u)" != 0 ]; then
        nnc_sudo="sudo"
        [ -t 0 ] || nnc_sudo="sudo -n" # nobody is there to type a password
        $nnc_sudo true 2>/dev/null || return 1
    fi
    log=$(mktemp) || return 1
    size=$(nnc_download "$@")
    [ -n "$size" ] || { nnc_apt -qq update >"$log" 2>&1; size=$(nnc_download "$@"); }
    if [ -n "$size" ]; then
        echo "installing ($size to download): $*"
        nnc_apt -y -qq install "$@" >"$log" 2>&1 ||
            { nnc_apt -qq update; nnc_apt -y -qq install "$@"; } >"$log" 2>&1 || rc=1 # the lists may be older than the packages
    else
        rc=1
    fi
    [ $rc = 0 ] || grep -v '^W:' "$log" | tail -n 3 >&2
    rm -f "$log"
    return $rc
}

# nnc_setup [tests]: what building needs, and the tests.
nnc_setup() {
    local need=$nnc_required want=$nnc_optional p
    if [ "${1:-}" = tests ]; then
        need="$need $nnc_required_tests" want="$want $nnc_optional_tests"
    fi
    if ! command -v dpkg-query >/dev/null; then
        for p in cc cmake make; do
            command -v $p >/dev/null || { echo "nnc needs $p (and xxHash's header; the tests cJSON)" >&2; exit 5; }
        done
        return
    fi
    need=$(nnc_missing $need)
    want=$(nnc_missing $want)
    [ -z "$need$want" ] || nnc_install $need $want 2>/dev/null || nnc_setup_some
}

# Not all of $need and $want could be installed: what is needed, and then what this Debian has of the rest.
nnc_setup_some() {
    local p known=""
    if [ -n "$need" ] && ! nnc_install $need; then
        echo "These packages are needed and could not be installed (neither root nor sudo, or no network):" >&2
        echo "    apt-get install $need" >&2
        [ -z "$want" ] || printf '%s\n    %s\n' "and these, without which nnc is slow or reads fewer files:" "apt-get install $want" >&2
        exit 5
    fi
    for p in $want; do
        ! apt-cache show "$p" >/dev/null 2>&1 || known="$known $p"
    done
    [ -z "$known" ] || nnc_install $known
    want=$(nnc_missing $want)
    [ -z "$want" ] || {
        echo "Going on without these; nnc may be slow (nnc doctor says what each is for):" >&2
        echo "    apt-get install $want" >&2
    }
}

# nnc_build DIR [cmake flags...]: configures and builds; output only when something fails.
nnc_build() {
    local dir=$1 log start=$SECONDS
    shift
    log=$dir/build.log
    mkdir -p "$dir"
    echo "building in $dir"
    if ! cmake -S . -B "$dir" "$@" >"$log" 2>&1 || ! cmake --build "$dir" -j "$(nproc)" >>"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "the build failed; its whole output is in $log" >&2
        exit 1
    fi
    sed -n '/^-- nnc:/s/^-- //p' "$log"
    echo "built in $((SECONDS - start)) s"
}

# nnc_nvrtc DIR: sees to it that the nnc built in DIR finds NVRTC: what is installed, or else PyPI's in DIR/cuda; says so when it cannot.
nnc_nvrtc() {
    local said
    "$1/nnc" doctor --format=json 2>/dev/null | grep -q '"name": "nvrtc", "found": true' && return
    if [ -n "${NNC_NO_WHEELS:-}${NNC_CUDA_PATH:-}" ]; then
        echo "kernels for GPUs are not compiled by these tests: there is no NVRTC"
    elif echo "fetching NVRTC from PyPI (100 MB)" && said=$(scripts/cuda-wheels.sh "$1/cuda" 2>&1); then
        export NNC_CUDA_PATH=$PWD/$1/cuda
        echo "$said"
    else
        echo "kernels for GPUs are not compiled by these tests: $said"
    fi
}
