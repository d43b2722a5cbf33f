#!/usr/bin/env bash
# scripts/fresh.sh [bookworm|trixie] [demo|test|both|COMMAND] -- runs ./demo.sh, ./test.sh or COMMAND as a newcomer does. It is root on a
# minimal Debian (debootstrap --variant=minbase) with only a clone of this checkout's last commit. Default: bookworm demo.
#
# The folder NNC_FRESH_FILES, if set, is there as /opt/files.
#
# The machine's own apt sources say where packages come from. The base system and downloaded packages are kept in
# ${XDG_CACHE_HOME:-~/.cache}/nnc-fresh; everything else is in a temporary folder. Exit code: the command's; 77: not possible here (no root, no
# debootstrap, no mount namespaces, no network), with one line that says why.
#
# The mounts exist only in a mount namespace of the command's own, which ends with its last process, however that ends. Removing the folder
# therefore never reaches the machine's own files.
set -u
cd "$(dirname "$0")/.." || exit 1
release=bookworm
case ${1:-} in bookworm | trixie) release=$1 && shift ;; esac
case ${1:-demo} in
-*) sed -n '2s/^# //p' "$0" >&2 && exit 2 ;;
demo) set -- ./demo.sh ;;
test) set -- ./test.sh ;;
both) set -- ./demo.sh ./test.sh ;;
esac

cannot() {
    echo "fresh.sh: not possible here: $1" >&2
    exit 77
}
[ "$(id -u)" = 0 ] || cannot "it needs root (mounts, chroot)"
command -v debootstrap >/dev/null || cannot "there is no debootstrap (apt-get install debootstrap)"
unshare --mount --pid --fork true 2>/dev/null || cannot "mount namespaces are not permitted"
git rev-parse -q --verify HEAD >/dev/null || cannot "this is not a git checkout with a commit"

cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/nnc-fresh
base=$cache/$release.tar
debs=$cache/$release
mkdir -p "$debs" || exit 1
root=$(mktemp -d "${TMPDIR:-/tmp}/nnc-fresh-XXXXXX") || exit 1
inside=
finish() {
    trap '' INT TERM HUP # rm is not interrupted
    [ -z "$inside" ] || { kill -KILL "$inside" && wait "$inside"; } 2>/dev/null
    rm -rf --one-file-system "$root"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# URI and keyring of the machine's first apt source for a Debian release of its own; $1: end of the suite's name.
source_of() {
    apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)' 'Created-By: Packages' |
        awk -v end="$1" -v own="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" \
            '($2 == own end || $2 ~ "^(stable|bookworm|trixie)" end "$") && $3 == "main" { print $1, $4; exit }'
}

# What the machine needs to reach the network, for the root in $1.
network() {
    local v
    for v in http_proxy https_proxy no_proxy; do
        [ -z "${!v:-}" ] || printf 'export %s=%q\n' "$v" "${!v}"
    done >"$1/opt/proxies"
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/" 2>/dev/null
    apt-config dump | grep -E '^Acquire::(https?::(Proxy|CaInfo|CaPath|Verify)|Check-|Retries)' >"$1/etc/apt/apt.conf.d/10machine"
    if [ -n "$(ls /usr/local/share/ca-certificates 2>/dev/null)" ]; then # authorities of the machine's own
        mkdir -p "$1/usr/local/share/ca-certificates" && cp -rL /usr/local/share/ca-certificates "$1/usr/local/share/"
        cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/pip-authorities.crt"
        printf '[global]\ncert = /etc/pip-authorities.crt\n' >"$1/etc/pip.conf"
    fi
}

make_base() {
    local security
    read -r security _ <<<"$(source_of -security)"
    [ -f "$ring" ] || ring=
    echo "making a minimal $release (once)"
    debootstrap --variant=minbase ${ring:+"--keyring=$ring"} "$release" "$root/base" "$uri" >"$root/log" 2>&1 ||
        cannot "debootstrap failed: $(grep -v '^I: ' "$root/log" | tail -n 1 | cut -c1-160)"
    {
        echo "deb $uri $release main"
        echo "deb $uri $release-updates main"
        [ -z "$security" ] || echo "deb $security $release-security main"
    } >"$root/base/etc/apt/sources.list"
    rm -rf "$root"/base/var/lib/apt/lists/* "$root"/base/var/cache/apt/archives/*.deb
    tar -C "$root/base" -cf "$base.$$" . && mv "$base.$$" "$base" || cannot "no room in $cache"
    rm -rf --one-file-system "$root/base"
}

# Runs $1 in the checkout of the root. Open MPI reads the cores from /sys, and tests look at what remains in /dev/shm: it is the root's own.
# --kill-child: no process outlives this script.
run_inside() {
    cat >"$root/system/opt/command" <<END
. /opt/proxies
cd /opt/nnc
TIMEFORMAT="It took %0R s, of CPU time %0U s (user) and %0S s (system)"
time { $1; }
END
    unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/dev/shm" &&
        exec chroot "$1" /usr/bin/env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            bash /opt/command' sh "$root/system" </dev/null &
    inside=$!
    wait "$inside" || rc=$?
    inside=
}

read -r uri ring <<<"$(source_of '')"
[ -n "$uri" ] || cannot "apt has no source of Debian's main packages"
/usr/lib/apt/apt-helper download-file "${uri%/}/dists/$release/InRelease" "$root/release" >/dev/null 2>&1 ||
    cannot "$uri has no $release, or there is no network"
[ -f "$base" ] || make_base
mkdir "$root/system"
tar -C "$root/system" -xf "$base" || cannot "$base cannot be unpacked"
network "$root/system"
archives=$root/system/var/cache/apt/archives
cp "$debs"/*.deb "$archives/" 2>/dev/null
git clone -q --depth 1 "file://$PWD" "$root/system/opt/nnc" || exit 1
[ -z "${NNC_FRESH_FILES:-}" ] || cp -r "$NNC_FRESH_FILES" "$root/system/opt/files" || exit 1
rc=0
for command in "$@"; do
    printf 'On a minimal %s, commit %s, as root: %s\n' "$release" "$(git rev-parse --short HEAD)" "$command"
    run_inside "$command"
    [ "$rc" = 0 ] || break
done
cp -u "$archives"/*.deb "$debs/" 2>/dev/null
exit "$rc"
