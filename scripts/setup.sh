# scripts/setup.sh -- sourced by demo.sh and test.sh: installs the packages that are missing (Debian, as root or through sudo), or
# names them and stops. Required: a C compiler, CMake, make, xxHash, cJSON (the tests). Optional: LLVM 19 and oneDNN (nnc is slow without them),
# zlib (compressed .npz files), libjpeg and libpng (pictures for training), Open MPI (one model over several processes).

nnc_required="gcc libc6-dev make cmake libcjson-dev libxxhash-dev"
nnc_optional="llvm-19-dev libdnnl-dev zlib1g-dev libjpeg-dev libpng-dev libopenmpi-dev openmpi-bin"

nnc_missing() {
    for p in "$@"; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || printf '%s ' "$p"
    done
}

nnc_install() {
    local run=""
    [ "$(id -u)" = 0 ] || run="sudo -n"
    if [ -n "$run" ] && ! $run true 2>/dev/null; then
        return 1
    fi
    echo "installing: $*"
    $run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/tmp/nnc-apt.$$ 2>&1 ||
        { $run apt-get update -qq >/tmp/nnc-apt.$$ 2>&1 &&
            $run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/tmp/nnc-apt.$$ 2>&1; }
    local rc=$?
    [ $rc = 0 ] || tail -n 3 /tmp/nnc-apt.$$ >&2
    rm -f /tmp/nnc-apt.$$
    return $rc
}

nnc_setup() {
    if ! command -v dpkg-query >/dev/null; then
        for t in cc cmake make; do
            command -v $t >/dev/null || { echo "nnc needs $t (and the cJSON and xxHash libraries with their headers)" >&2; exit 5; }
        done
        return
    fi
    local need want
    need=$(nnc_missing $nnc_required)
    want=$(nnc_missing $nnc_optional)
    if [ -n "$need" ] && ! nnc_install $need; then
        echo "These packages are needed and could not be installed (no root, or no network):" >&2
        echo "    apt-get install $need" >&2
        exit 5
    fi
    if [ -n "$want" ] && ! nnc_install $want; then
        echo "Going on without these; nnc may be slow (nnc doctor says what each is for):" >&2
        echo "    apt-get install $want" >&2
    fi
}

# nnc_build DIR [cmake flags...]: configures and builds; output only when something fails.
nnc_build() {
    local dir=$1 log
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
}

# nnc_nvrtc DIR: sees to it that the nnc built in DIR finds NVRTC: what is installed, or else PyPI's in DIR/cuda; says so when it cannot.
nnc_nvrtc() {
    local said
    "$1/nnc" doctor --format=json 2>/dev/null | grep -q '"name": "nvrtc", "found": true' && return
    if [ -n "${NNC_NO_WHEELS:-}${NNC_CUDA_PATH:-}" ]; then
        echo "kernels for GPUs are not compiled by these tests: there is no NVRTC"
    elif said=$(scripts/cuda-wheels.sh "$1/cuda" 2>&1); then
        export NNC_CUDA_PATH=$PWD/$1/cuda
        echo "$said"
    else
        echo "kernels for GPUs are not compiled by these tests: $said"
    fi
}
