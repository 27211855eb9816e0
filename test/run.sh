#!/bin/bash
# All tests of gradpool, from a fresh clone: set-up, three builds, every case, one closing line.
set -uo pipefail

usage() {
    cat <<'END'
usage: test/run.sh [--quick | --counts | --fuzz | --faults | --long]

  (nothing)  plain, address+undefined and thread sanitizer builds; some 20 minutes on 2 cores
  --quick    the plain build only
  --counts   as without, with the counts and times that the READMEs name
  --fuzz     fuzzers that explore, ten minutes each, and nothing else
  --faults   kills, stops and cuts at random, ten seeds of five minutes each, and nothing else
  --long     --counts, --fuzz, then --faults; two hours and a quarter

The last line is "N passed, N failed"; the exit code is 0 only if nothing failed.
END
}

mode=normal
case "$#:${1:-}" in
    0:) ;;
    1:--quick | 1:--counts | 1:--fuzz | 1:--faults | 1:--long) mode=${1#--} ;;
    1:--help | 1:-h) usage; exit 0 ;;
    *) echo "test/run.sh: unknown option: $*" >&2; usage >&2; exit 2 ;;
esac

cd "$(dirname "$0")/.." || exit 1
test/setup.sh --tests || exit 1

# The suites that sanitizer builds run: what is linked whole from our own code. Parsers and
# simulated worlds have one thread.
threaded=(--suite unit --suite e2e-sanitized)
sanitized=("${threaded[@]}" --suite pure --suite fuzz --suite sim)
logs=()

# build FOLDER MESON-OPTION...: quiet, unless it fails.
build() {
    local folder=$1 log=$1/build.log
    shift
    mkdir -p "$folder"
    {
        { [ -f "$folder/build.ninja" ] || meson setup "$folder" "$@"; } && ninja -C "$folder"
    } >"$log" 2>&1 && return 0
    echo "==== $folder: the build failed (all of it: $log)"
    tail -60 "$log"
    return 1
}

declare -A builders=()
last_builder=

# build_ahead FOLDER MESON-OPTION...: one after the other, while tests run, which mostly wait; what
# these compute comes first.
build_ahead() {
    local after=$last_builder
    (
        renice -n 19 "$BASHPID" >/dev/null
        [ -n "$after" ] && tail --pid="$after" -f /dev/null
        build "$@"
    ) &
    last_builder=$!
    builders[$1]=$last_builder
}

# finish_build FOLDER MESON-OPTION...
finish_build() {
    if [ -n "${builders[$1]:-}" ]; then
        wait "${builders[$1]}"
    else
        build "$@"
    fi
}

# run_build NAME FOLDER MESON-OPTION... -- TEST-OPTION...
run_build() {
    local name=$1 folder=$2 options=() results=$2/results-$1.json at_once=3
    shift 2
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    logs+=("$name=$results")
    rm -f "$results" "$folder"/meson-logs/testlog*.json
    echo "==== $name: building in $folder/ ($((SECONDS / 60)) min so far)"
    finish_build "$folder" "${options[@]}" || return 0
    [ "$name" = plain ] && build_the_rest_ahead
    echo "==== $name: testing ($((SECONDS / 60)) min so far)"
    # What failed is shown by the summary; meson's own exit code says no more.
    # Most of a test is waiting: for processes to start, for deadlines; of a unit program more.
    case $name in
        address | thread) at_once=4 ;;
        explore) at_once=2 ;;
    esac
    meson test -C "$folder" --no-rebuild --num-processes $((at_once * $(nproc))) "$@" 2>&1 |
        grep -v '^ninja: '
    # Its name tells of the options.
    cat "$folder"/meson-logs/testlog*.json >"$results"
}

# ThreadSanitizer needs the memory layout that it was built for.
steady=()
setarch "$(uname -m)" --addr-no-randomize true 2>/dev/null &&
    steady=(--wrapper "setarch $(uname -m) --addr-no-randomize")
# They name lines (-g1) and no variables, and -O1 is enough beside what the address sanitizer costs:
# both halve the time of its build.
checked=(-Doptimization=2 -Ddebug=false -Dc_args=-g1 -Db_lundef=false)
address=("${checked[@]}" -Doptimization=1 -Db_sanitize=address,undefined)
thread=("${checked[@]}" -Db_sanitize=thread)
build_the_rest_ahead() {
    case $mode in quick | faults) return ;; esac
    build_ahead build-address "${address[@]}"
    build_ahead build-thread "${thread[@]}"
}
counts=(--no-suite counts)
case $mode in counts | long) counts=(--setup long --no-suite strikes) ;; esac

echo "gradpool tests: $(nproc) cores, Linux $(uname -r), locked memory $(ulimit -l) KiB"
case $mode in normal | quick | counts | long) run_build plain build -- "${counts[@]}" ;; esac
case $mode in normal | counts | long)
    run_build address build-address "${address[@]}" -- "${sanitized[@]}"
    run_build thread build-thread "${thread[@]}" -- "${threaded[@]}" "${steady[@]}" ;;
esac
case $mode in fuzz | long)
    CC=clang run_build explore build-explore "${checked[@]}" -Db_sanitize=address,undefined \
        '-Dc_args=-g1 -fsanitize=fuzzer-no-link' -- --suite explore ;;
esac
case $mode in faults | long) run_build faults build -- --setup long --suite strikes ;; esac

echo
echo "==== $((SECONDS / 60)) min $((SECONDS % 60)) s"
exec /usr/bin/python3 test/lib/summary.py "${logs[@]}"
