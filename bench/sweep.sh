#!/bin/bash
# Which window a job's transfers get over TCP, and how large a task is: builds HEAD once for each
# choice, and compares each with the hand-written server in the same run. Prints a table.
#   bench/sweep.sh [ROUNDS]     a few minutes a round
set -euo pipefail

# name, window bytes, depth (long chunks of a worker in flight), largest chunk, largest task (bytes)
choices=(
    '128_KiB_x_2_of_4_MiB 1310720 2 131072 4194304'
    '256_KiB_x_2_of_4_MiB 2621440 2 262144 4194304'
    '256_KiB_x_3_of_4_MiB 4194304 3 262144 4194304'
    '512_KiB_x_2_of_1_MiB 5242880 2 1048576 1048576'
    '512_KiB_x_2_of_4_MiB 5242880 2 1048576 4194304'
    '512_KiB_x_2_of_16_MiB 5242880 2 1048576 16777216'
    '512_KiB_x_3_of_4_MiB 8388608 3 1048576 4194304'
    '832_KiB_x_2_of_4_MiB 8388608 2 1048576 4194304'
    '1_MiB_x_2_of_16_MiB 10485760 2 1048576 16777216'
)
rounds=${1:-2}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d -t gradpool-sweep-XXXXXX)
trap 'rm -rf "$work"' EXIT

define() { # file, name, value: it must be there once
    [ "$(grep -c "^#define $2 " "$1")" = 1 ] || { echo "sweep.sh: no $2 in $1" >&2; exit 1; }
    sed -i "s/^#define $2 .*/#define $2 ($3)/" "$1"
}

build() { # name window depth chunk task
    local source=$work/source
    mkdir -p "$source" && git -C "$root" archive HEAD | tar x -C "$source"
    define "$source/svc/lane/worker/window.c" WINDOW_BYTES "$2"
    define "$(grep -l '^#define LARGE_TRANSFERS ' "$source"/svc/lane/chunk/*.h)" \
        LARGE_TRANSFERS "$3"
    define "$source/svc/lane/worker/window.c" SLOT_BYTES_MOST "$4"
    define "$source/packer/packer.h" PACKER_PIECE_BYTES_MAX "$5"
    meson setup "$work/$1" "$source" >"$work/log" 2>&1 &&
        ninja -C "$work/$1" gradpool bench/gradpool-bench >>"$work/log" 2>&1 || {
        tail -20 "$work/log" >&2
        exit 1
    }
    rm -rf "$source"
}

measure() { # name bytes
    "$work/$1/bench/gradpool-bench" compare --systems gradpool,sockets --workers 4 --bytes "$2" \
        --cell-ms 1000 --json 2>/dev/null | python3 -c '
import json, sys
cells = {}
for line in sys.stdin:
    if line.startswith("{"):
        cell = json.loads(line)
        if "cpu_s_per_gib" in cell:
            cells[cell["system"], cell["transport"]] = cell
ours, floor = cells["gradpool", "tcp"], cells["sockets", "tcp"]
name, size = sys.argv[1].replace("_", " "), int(sys.argv[2]) >> 20
ratio = ours["cpu_s_per_gib"] / floor["cpu_s_per_gib"]
print("| {} | {} MiB | {:.2f} | {:.2f} | {:.2f} | {:.2f} |".format(
    name, size, ours["cpu_s_per_gib"], floor["cpu_s_per_gib"], ratio, ours["gib_per_s"]))
' "$1" "$2"
}

for choice in "${choices[@]}"; do
    read -r name window depth chunk task <<<"$choice"
    build "$name" "$window" "$depth" "$chunk" "$task"
done
echo '| chunk x depth of tasks of | tensor | CPU s/GiB | sockets | ratio | GiB/s |'
echo '|---|---|---|---|---|---|'
for ((round = 0; round < rounds; round++)); do
    for choice in "${choices[@]}"; do
        measure "${choice%% *}" $((4 << 20))
        measure "${choice%% *}" $((64 << 20))
    done
done
