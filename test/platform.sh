#!/bin/bash
# Tests of this tree on another Debian release, in a clean root: `test/platform.sh trixie`. Makes
# the root with debootstrap (or takes a whole one from an earlier run), copies the tree into it, and
# installs, builds, runs the demo and the tests there. Ends with the tests' closing line.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<END
usage: test/platform.sh RELEASE [COMMAND [ARGUMENT ...]]
  RELEASE   name of a Debian release, such as trixie
  COMMAND   runs in the installed copy of the tree in place of the demo and the tests
Needs root, debootstrap and 12 GB below \$GRADPOOL_PLATFORM_DIR (now: $cache).
A root and its builds stay there for the next run; nothing stays mounted or running.
END
}

fail() {
    echo "platform.sh: $*" >&2
    exit 1
}

# The archive that the host takes its own release from.
find_mirror() {
    local codename
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        awk -v release="$codename" '$1 == release && !found { print $2; found = 1 }'
}

# Removes the remains of an earlier run of this script alone, and only while nothing uses them.
clear_half_root() {
    [ -e "$root" ] || return 0
    [ "$(cat "$root/.gradpool-root" 2>/dev/null)" = "$mark" ] ||
        fail "$root was not made by this script: remove it, or set GRADPOOL_PLATFORM_DIR"
    local process
    for process in /proc/[0-9]*; do
        case $(readlink "$process/root" || true) in
        "$root" | "$root"/*) fail "process ${process#/proc/} runs in $root" ;;
        esac
        ! grep -qF " $root" "$process/mountinfo" 2>/dev/null || fail "$root holds mounts"
    done
    rm -rf --one-file-system "$root"
}

# A root counts as whole once its marker is written; a half one is made anew.
make_root() {
    [ ! -e "$root/.gradpool-whole" ] || return 0
    command -v debootstrap >/dev/null || fail "no debootstrap here: apt-get install debootstrap"
    local mirror
    mirror=$(find_mirror)
    [ -n "$mirror" ] || fail "the apt sources of this host name no archive of its own release"
    echo "platform.sh: making a root of $release in $root (minutes)"
    clear_half_root
    mkdir -p "$root"
    echo "$mark" >"$root/.gradpool-root"
    debootstrap --variant=minbase "$release" "$root" "$mirror" >"$root.log" 2>&1 ||
        fail "debootstrap of $release failed; the end of $root.log: $(tail -n 3 "$root.log")"
    touch "$root/.gradpool-whole"
}

# A commit of all files here that git does not ignore, on no branch.
commit_tree() {
    local index
    index=$(mktemp)
    cp "$(git rev-parse --git-path index)" "$index"
    GIT_INDEX_FILE=$index git add -A
    git -c user.name=platform -c user.email=platform@localhost commit-tree \
        -m "$(git describe --always)" "$(GIT_INDEX_FILE=$index git write-tree)"
    rm "$index"
}

# Updates the sources of an earlier run to this tree: unchanged files keep their time, so that a
# second run compiles only changes.
copy_tree() {
    local commit
    commit=$(commit_tree)
    git init -q "$root/gradpool"
    git -C "$root/gradpool" fetch -q --depth 1 \
        --upload-pack 'git -c uploadpack.allowAnySHA1InWant=true upload-pack' "$PWD" "$commit"
    git -C "$root/gradpool" -c advice.detachedHead=false checkout -qf FETCH_HEAD
    git -C "$root/gradpool" clean -fdq
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
}

# Runs a command in the root, which is a mount of its own, so that tests may mount things in it.
# Mounts and processes live in namespaces of their own and end with the command. Their first process
# is a shell that stays, so that orphans are reaped and no command is the first process of a
# container.
inside() {
    unshare --mount --pid --fork --kill-child --propagation private bash -euc '
        root=$1
        shift
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        cd "$root"
        pivot_root . .
        umount -l .
        exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            LANG=C.UTF-8 TERM="${TERM:-dumb}" bash -euc "cd /gradpool; \"\$@\"; exit" inside "$@"
    ' platform "$root" "$@"
}

install_and_build() {
    inside test/setup.sh --tests
    inside bash -c '[ -f build/build.ninja ] || meson setup build'
    inside ninja -C build
}

cache=$(realpath -m "${GRADPOOL_PLATFORM_DIR:-/var/tmp/gradpool-platform}")
mark="a root of gradpool's test/platform.sh, format 1"
case ${1:-} in
'' | -h | --help)
    usage
    [ -n "${1:-}" ]
    exit
    ;;
*[!a-z]*) fail "$1 is no name of a Debian release" ;;
esac
release=$1
shift
[ "$(id -u)" -eq 0 ] || fail "debootstrap and chroot need root"
mkdir -p "$cache"
root=$cache/$release
exec {lock}>"$cache/$release.lock"
flock -n "$lock" || fail "another run uses $root"
make_root
copy_tree
install_and_build
if [ $# -gt 0 ]; then
    inside "$@"
else
    inside bench/demo.sh
    inside test/run.sh
fi
