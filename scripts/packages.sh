#!/usr/bin/env bash
# scripts/packages.sh [BUILD] [bookworm|trixie] -- makes the packages, the archive and the wheel of BUILD (default build). Installs, tries
# and removes them on a minimal Debian (default: this machine's release, whose libraries BUILD needs). Exit code 77: not possible here, with
# a line that says why. Without PyPI there is no wheel. Where there is lintian, it names what it finds.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "packages: $*" >&2
    exit 1
}

# What a user does with nnc: $1 and what is in the folder $2/share.
try() {
    local nnc=$1 share=$2/share
    "$nnc" --version
    "$nnc" doctor
    (cd / && "$nnc" compare "$share/nnc/models/mlp.json" --duration=100) | grep -A 3 'Same numbers' || fail "$nnc compare failed"
}

build_with() { # SHARE [FLAG...]: with pkg-config, as it is told where
    gcc /opt/nnc/examples/run.c $(pkg-config --cflags --libs nnc) "${@:2}" -o /tmp/run
    (cd / && /tmp/run "$1/nnc/models/mlp.json") || fail "examples/run.c failed"
}

files() { find / -xdev \( -path /proc -o -path /opt -o -path /tmp -o -path /root \) -prune -o -iname '*nnc*' -print; }

if [ "${1:-}" = --inside ]; then
    trap 'echo "packages: line $LINENO failed" >&2' ERR
    before=$(files)
    apt-get -qq update
    install() { DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"; }
    install gcc libc6-dev pkgconf zlib1g-dev
    mkdir "/srv/a b"
    tar -C "/srv/a b" -xzf /opt/files/nnc-*.tar.gz
    mv "/srv/a b"/nnc-* /srv/moved
    echo "== the archive, moved"
    try /srv/moved/bin/nnc /srv/moved
    PKG_CONFIG_PATH=/srv/moved/lib/pkgconfig build_with /srv/moved/share -Wl,-rpath,/srv/moved/lib
    rm -r /srv/moved "/srv/a b"
    echo "== nnc.deb"
    install /opt/files/nnc_*.deb
    try nnc /usr
    [ -e /usr/share/bash-completion/completions/nnc ] || fail "there is no completion"
    echo "== nnc-dev.deb, nnc-mpi.deb"
    install /opt/files/nnc-dev_*.deb
    build_with /usr/share
    gcc /opt/nnc/examples/run.c -I/usr/include -o /tmp/run -l:libnnc.a $(pkg-config --static --libs-only-l nnc | sed 's/-lnnc//')
    NNC_PLUGIN_DIR=/usr/lib/nnc /tmp/run /usr/share/nnc/models/mlp.json
    if [ ! -e /opt/files/nnc-mpi_*.deb ]; then
        echo "nnc was built without MPI: there is no nnc-mpi"
    elif [ "$2" = "$(. /etc/os-release && echo "$VERSION_CODENAME")" ]; then
        install /opt/files/nnc-mpi_*.deb
        nnc doctor --format=json | grep -q '"name": "mpi", "found": true' || fail "the plug-in of nnc-mpi is not found"
    else
        echo "nnc-mpi needs the MPI of $2, where it was built"
    fi
    apt-get -qq -y purge 'nnc*' >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"
    if [ -e /opt/files/nnc-*.whl ]; then
        echo "== the wheel"
        install python3-venv
        python3 -m venv /srv/venv
        time (
            /srv/venv/bin/pip install -q --disable-pip-version-check /opt/files/nnc-*.whl
            cd /srv
            venv/bin/python -c "import nnc, numpy; print(nnc.compile('/opt/nnc/models/mlp.json', set={'batch': 1})(numpy.ones((1, 784), 'float32')))"
        )
        /srv/venv/bin/python -m nnc doctor | head -n 3
        rm -r /srv/venv
    fi
    left=$(files)
    [ "$left" = "$before" ] || fail "after removal there is: $left"
    echo "packages: ok; nothing is left after removal"
    exit 0
fi

own=$(. /etc/os-release && echo "${VERSION_CODENAME:-unknown}")
build=${1:-build} release=${2:-$own}
command -v cpack >/dev/null && command -v dpkg-shlibdeps >/dev/null || { echo "skipped: no packages (apt-get install cmake dpkg-dev)"; exit 77; }
case $release in bookworm | trixie) ;; *) echo "skipped: scripts/fresh.sh makes no $release"; exit 77 ;; esac
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cpack --config "$build/CPackConfig.cmake" -B "$out" >"$out/log" 2>&1 || fail "$(cat "$out/log")"
rm -rf "$out/_CPack_Packages" "$out/log"
scripts/wheel.sh "$out" "$build" || [ $? = 77 ]
(cd "$out" && ls -l --block-size=K nnc* | awk '{print $5, $NF}')
if command -v lintian >/dev/null; then
    lintian --no-tag-display-limit --fail-on error "$out"/*.deb
fi
NNC_FRESH_FILES=$out scripts/fresh.sh "$release" "scripts/packages.sh --inside $own"
