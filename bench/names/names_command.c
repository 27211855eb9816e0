/* `names`: pushes many named tensors, in a different order on each rank, and compares the times
 * with one tensor of the same size. Owns the service and the workers of each way. */
#include "bench/commands.h"
#include "bench/compare/interpreter.h"
#include "bench/compare/systems.h"
#include "bench/compare/turns.h"

#define TENSOR_BYTES 16384
#define WARM_ROUNDS 3

enum { FUSED, ONE_BY_ONE, GROUPED, PYTHON, WAYS };

struct names {
    struct service service;
    struct turns turns;
    uint32_t tensors;
    bool is_json;
};

enum { KEY_QUICK = 1000, KEY_JSON, KEY_TURNS, KEY_ROUNDS, KEY_TENSORS };

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "three turns of five rounds"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each way; the last line has the ratios"},
    {"turns", KEY_TURNS, "N", 0, "turns of each way, which alternate (default 11)"},
    {"rounds", KEY_ROUNDS, "N", 0, "rounds of a turn (default 10)"},
    {"tensors", KEY_TENSORS, "N", 0, "number of tensors of 16 KiB (default 1000)"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct names *n = state->input;
    switch (key) {
    case KEY_QUICK:
        n->turns.turns_count = 3;
        n->turns.rounds = 5;
        return 0;
    case KEY_JSON: n->is_json = true; return 0;
    case KEY_TURNS:
        n->turns.turns_count = (uint32_t)command_number(state, argument, 1, STATISTICS_TURNS_MAX);
        return 0;
    case KEY_ROUNDS:
        n->turns.rounds = (uint32_t)command_number(state, argument, 1, TURNS_ROUNDS_MAX);
        return 0;
    case KEY_TENSORS: n->tensors = (uint32_t)command_number(state, argument, 1, 10000); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- the ways --- */

static int start_fused(struct crew *crew)
{
    static const struct gradpool_way way = {.transport = "shm", .is_foreign = true};
    return gradpool_start(crew, &way);
}

static int start_one_by_one(struct crew *crew)
{
    static const struct gradpool_way way = {
        .transport = "shm", .is_foreign = true, .is_one_by_one = true, .is_shuffled = true};
    return gradpool_start(crew, &way);
}

static int start_grouped(struct crew *crew)
{
    static const struct gradpool_way way = {
        .transport = "shm", .is_foreign = true, .is_shuffled = true};
    return gradpool_start(crew, &way);
}

static int start_python(struct crew *crew) { return interpreter_start(crew, "names_worker.py"); }

static const struct system ways[WAYS] = {
    [FUSED] = {"fused", "shm", .uses_service = true, .start = start_fused},
    [ONE_BY_ONE] = {"one-by-one", "shm", .uses_service = true, .start = start_one_by_one},
    [GROUPED] = {"grouped", "shm", .uses_service = true, .start = start_grouped},
    [PYTHON] = {"python", "shm", .uses_service = true, .start = start_python},
};

static int start_ways(struct names *n)
{
    uint64_t bytes = (uint64_t)n->tensors * TENSOR_BYTES;
    interpreter_prepare(&n->service);
    int r = turns_start(&n->turns, &n->service);
    for (size_t i = 0; r == 0 && i < WAYS; i++)
        r = turns_resize(&n->turns, i, bytes, i == FUSED ? 1 : n->tensors);
    return r;
}

static int measure(struct names *n)
{
    int r = start_ways(n);
    if (r == 0)
        r = turns_run(&n->turns, WARM_ROUNDS);
    turns_end(&n->turns);
    return r;
}

/* --- the results --- */

static void print(const struct names *n)
{
    const char *format =
        n->is_json ? "{\"way\": \"%s\", \"workers\": %u, \"tensors\": %u, \"bytes\": %llu, "
                     "\"round_ms\": %.4f, \"cpu_ms_per_round\": %.4f, \"turns\": %u, "
                     "\"rounds\": %u, \"wrong\": %llu}\n"
                   : "%-10s %u workers, %5u tensors, %llu bytes: a round %8.3f ms, %8.3f ms of CPU "
                     "(medians of %u turns of %u rounds); %llu elements wrong\n";
    for (size_t i = 0; i < WAYS; i++) {
        struct turn_figures median = turns_median(&n->turns, i);
        printf(format, ways[i].name, n->turns.workers, i == FUSED ? 1 : n->tensors,
               (unsigned long long)n->tensors * TENSOR_BYTES, median.round_ms, median.cpu_ms,
               n->turns.turns_count, n->turns.rounds, (unsigned long long)n->turns.wrong);
    }
    printf(n->is_json
               ? "{\"one_by_one_ratio\": %.4f, \"grouped_ratio\": %.4f, \"python_ratio\": %.4f}\n"
               : "of the fused tensor's time: one by one %.2f, grouped %.2f, from Python %.2f\n",
           turns_ratio(&n->turns, ONE_BY_ONE).round_ms, turns_ratio(&n->turns, GROUPED).round_ms,
           turns_ratio(&n->turns, PYTHON).round_ms);
}

int names_command(int argc, char **argv)
{
    static struct names n = {
        .tensors = 1000,
        .turns =
            {.systems = ways, .systems_count = WAYS, .workers = 4, .turns_count = 11, .rounds = 10},
    };
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Compare a push-pull of many named tensors with one tensor of the same bytes. Each of four "
        "workers pushes the names in a different order. The ways alternate: one request for each "
        "tensor from C, one request for all tensors from C, one request for each tensor from "
        "Python. Gradients and results are in plain memory. The last results of each turn are "
        "checked. The command starts a separate service.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &n);
    int r = service_start(&n.service);
    if (r == 0)
        r = measure(&n);
    if (r == 0)
        print(&n);
    service_stop(&n.service);
    return r < 0 || n.turns.wrong ? 1 : 0;
}
