#!/bin/bash
# Installs the packages for the build and the demo on a bare Debian 12 or 13 host; with --tests also
# the large packages that only tests use. Returns at once if all packages are installed. Called by
# test/run.sh and bench/demo.sh.
set -euo pipefail

packages=(
    # build
    gcc g++ libc6-dev pkg-config meson ninja-build git
    libfabric-dev libprotobuf-c-dev protobuf-c-compiler libssl-dev
    libhwloc-dev libjemalloc-dev libsqlite3-dev libjansson-dev libmicrohttpd-dev
    libinih-dev
    # tests
    libcmocka-dev python3-scipy binutils clang libclang-rt-dev clang-format util-linux spin tcc
    # jobs: PyTorch, and data sets that come with scikit-learn
    python3 python3-torch python3-numpy python3-sklearn python3-jsonschema
    # systems that gradpool is compared with
    openmpi-bin libopenmpi-dev
    # several nodes on one host
    iproute2
)
# Readers of the metrics and the report: 800 MiB. A cluster for srun: 20 MiB. Another release.
# Headers that torch.compile builds with: 5 MiB. A linker that links the test programs in a fraction
# of the time: 10 MiB.
[ "${1:-}" = --tests ] && packages+=(prometheus chromium-headless-shell
    munge slurmctld slurmd slurm-client debootstrap python3-dev mold)
# Services of these packages that a host with systemd would start at once, or with every boot.
services=(prometheus munge slurmctld slurmd)

missing() {
    local installed
    # dpkg-query fails if one of the names is unknown; its output is still right.
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
        sed -n 's/^installed //p' || true)
    printf '%s\n' "${packages[@]}" | grep -vxF -f <(printf '%s\n' "$installed") || true
}

# Runs the command; prints its output only if it fails.
quietly() {
    local said
    said=$("$@" 2>&1) || {
        printf '%s\n' "$said" "setup.sh: failed: $*" >&2
        return 1
    }
}

main() {
    if ! command -v apt-get >/dev/null; then
        echo "setup.sh: no apt-get here. gradpool is built on Debian 12, 13; install yourself:" >&2
        printf '  %s\n' "${packages[@]}" >&2
        return 1
    fi
    local wanted as_root=()
    mapfile -t wanted < <(missing)
    [ "${#wanted[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "setup.sh: not root and no sudo. As root, run:" >&2
            echo "  apt-get install --no-install-recommends ${wanted[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "setup.sh: installing (minutes, the first time) ${wanted[*]}"
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get -o DPkg::Lock::Timeout=600 -qq)
    quietly "${apt[@]}" update
    quietly "${apt[@]}" install -y --no-install-recommends "${wanted[@]}"
    # Packages start services that are not wanted, since tests start their own. Services from before
    # keep running.
    local service
    for service in "${services[@]}"; do
        if [ -d /run/systemd/system ] && [[ " ${wanted[*]} " == *" $service "* ]]; then
            quietly "${as_root[@]}" systemctl disable --now "$service"
        fi
    done
}

main "$@"
