/* Options of `compare`. */
#include "bench/commands.h"
#include "bench/compare/compare.h"

#include "svc/base/clock.h"

#include <string.h>

enum {
    KEY_QUICK = 1000,
    KEY_JSON,
    KEY_WORKERS,
    KEY_BYTES,
    KEY_TENSORS,
    KEY_SYSTEMS,
    KEY_CELL,
    KEY_SLOW
};

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0,
     "only 4 workers, and 4 KiB, 1, 4, 64 MiB and 1000 x 400 B; a third of a second for each cell"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each cell"},
    {"workers", KEY_WORKERS, "N", 0, "only this number of workers, a power of two"},
    {"bytes", KEY_BYTES, "N", 0, "only this size of a tensor, a multiple of 4"},
    {"tensors", KEY_TENSORS, "N", 0,
     "number of tensors of that size, pushed as one group (default 1)"},
    {"systems", KEY_SYSTEMS, "LIST", 0,
     "only these systems, separated by commas: gradpool,sockets,gloo,openmpi"},
    {"cell-ms", KEY_CELL, "MS", 0, "total time of the rounds of a cell (default 2000)"},
    {"slow-rank", KEY_SLOW, "N", 0,
     "this rank pauses 10 ms before each round, and all others 1 ms; to find wrong results, not to "
     "measure times"},
    {0},
};

/* Bytes of a model's small tensors: biases and scales. */
#define SMALL_BYTES 400
#define SMALL_TENSORS 1000

static const struct compare_options whole = {
    .workers = {1, 2, 4},
    .loads = {{4096, 1},
              {65536, 1},
              {1 << 20, 1},
              {4 << 20, 1},
              {16 << 20, 1},
              {64 << 20, 1},
              {SMALL_BYTES, SMALL_TENSORS}},
    .passes = 5,
    .cell_ns = 2 * NS_PER_S,
    .slow_rank = UINT32_MAX,
};

static void be_quick(struct compare_options *o)
{
    static const struct compare_options quick = {
        .workers = {4},
        .loads = {
            {4096, 1}, {1 << 20, 1}, {4 << 20, 1}, {64 << 20, 1}, {SMALL_BYTES, SMALL_TENSORS}}};
    memcpy(o->workers, quick.workers, sizeof o->workers);
    memcpy(o->loads, quick.loads, sizeof o->loads);
    o->passes = 2;
    o->cell_ns = 350 * NS_PER_MS;
}

/* Sets a single load. A 0 keeps the value that was set before, or the default. */
static void choose_load(struct compare_options *o, uint64_t tensor_bytes, uint32_t tensors)
{
    struct compare_load load = {SMALL_BYTES, 1};
    if (o->loads[0].tensor_bytes && !o->loads[1].tensor_bytes)
        load = o->loads[0];
    if (tensor_bytes)
        load.tensor_bytes = tensor_bytes;
    if (tensors)
        load.tensors = tensors;
    memset(o->loads, 0, sizeof o->loads);
    o->loads[0] = load;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct compare_options *o = state->input;
    switch (key) {
    case KEY_QUICK: be_quick(o); return 0;
    case KEY_JSON: o->is_json = true; return 0;
    case KEY_SYSTEMS: o->systems = argument; return 0;
    case KEY_CELL: o->cell_ns = command_number(state, argument, 1, 600000) * NS_PER_MS; return 0;
    case KEY_SLOW: o->slow_rank = (uint32_t)command_number(state, argument, 0, 63); return 0;
    case KEY_WORKERS:
        memset(o->workers, 0, sizeof o->workers);
        o->workers[0] = (uint32_t)command_number(state, argument, 1, CREW_WORKERS_MAX);
        if (o->workers[0] & (o->workers[0] - 1))
            argp_error(state, "--workers: %s is no power of two", argument);
        return 0;
    case KEY_BYTES:
        choose_load(o, command_number(state, argument, 4, UINT64_C(1) << 32) & ~UINT64_C(3), 0);
        return 0;
    case KEY_TENSORS:
        choose_load(o, 0, (uint32_t)command_number(state, argument, 1, 100000));
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int compare_command(int argc, char **argv)
{
    struct compare_options o = whole;
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Compare gradpool with PyTorch's gloo, with Open MPI, and with a server written by hand "
        "over plain sockets. Turns of the systems alternate in one run on the same cores, and each "
        "result is checked.\vA system that is not installed is skipped, with a line on standard "
        "error. Exit code: 1 if an element was wrong or a system failed during the run.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    return compare_run(&o);
}
