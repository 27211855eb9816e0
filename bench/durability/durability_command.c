/* `durability`: measures the cost of copies of parameters on another aggregator (--durability
 * replica) or in a worker. Turns with copies alternate with turns without copies. Owns the measured
 * service and the workers of each turn. */
#include "bench/commands.h"
#include "bench/lib/own_service.h"
#include "bench/migrate/crowd.h"
#include "bench/savings/statistics.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WORKERS 2
#define STATES_MAX 8
#define STATE_BYTES_PER_ELEMENT 12 /* parameters and two moments (Adam) */
#define LOAD_ELEMENTS 16
#define COMPUTE_NS (5 * NS_PER_MS) /* emulated computing time, in which the bench checks results */
#define WARM_ITERATIONS 5

enum { NONE, REPLICA, WORKER, KINDS };
static const char *const names[KINDS] = {"none", "replica", "worker"};
static const enum gp_durability durabilities[KINDS] = {GP_DURABILITY_NONE, GP_DURABILITY_REPLICA,
                                                       GP_DURABILITY_WORKER};

/* Figures of one round, as medians or means over a turn. Lane time includes the lanes that store
 * copies. */
struct figures {
    double wall_ms, lane_cpu_ms, workers_cpu_ms;
};

#define FIGURES (sizeof(struct figures) / sizeof(double)) /* number of values of a turn */

struct durability {
    struct service service;
    uint64_t states[STATES_MAX], seed;
    size_t states_count;
    uint32_t turns, rounds;
    const char *transport; /* the only transport that is measured; NULL: all transports */
    bool is_json, is_quick;
    uint64_t wrong;
};

enum { KEY_QUICK = 1000, KEY_JSON, KEY_TURNS, KEY_ROUNDS, KEY_TRANSPORT, KEY_STATE, KEY_SEED };

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "4 KiB and 4 MiB of state, three turns of each"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each row"},
    {"turns", KEY_TURNS, "N", 0,
     "turns with copies and turns without, which alternate (default 7)"},
    {"rounds", KEY_ROUNDS, "N", 0, "rounds of a turn (default 60)"},
    {"transport", KEY_TRANSPORT, "shm|tcp", 0, "only this transport (default: both)"},
    {"state", KEY_STATE, "BYTES", 0,
     "bytes of parameters and moments (default: 4 KiB, 4 and 64 MiB)"},
    {"seed", KEY_SEED, "N", 0, "seed of the gradients (default 1)"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct durability *d = state->input;
    switch (key) {
    case KEY_QUICK: d->is_quick = true; return 0;
    case KEY_JSON: d->is_json = true; return 0;
    case KEY_TURNS:
        d->turns = (uint32_t)command_number(state, argument, 1, STATISTICS_TURNS_MAX);
        return 0;
    case KEY_ROUNDS: d->rounds = (uint32_t)command_number(state, argument, 1, 10000); return 0;
    case KEY_TRANSPORT:
        if (strcmp(argument, "shm") != 0 && strcmp(argument, "tcp") != 0)
            argp_error(state, "--transport: shm or tcp, not '%s'", argument);
        d->transport = argument;
        return 0;
    case KEY_STATE:
        d->states[0] = command_number(state, argument, STATE_BYTES_PER_ELEMENT, UINT64_C(1) << 30);
        d->states_count = 1;
        return 0;
    case KEY_SEED: d->seed = command_number(state, argument, 0, UINT32_MAX); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- one turn --- */

static void reckon(const struct durability *d, const struct crowd *c, uint64_t lane_cpu_ns,
                   struct figures *ret)
{
    static double walls[TRAINEE_ITERATIONS_MAX];
    double cpu_ms = 0;
    for (uint32_t i = 0; i < d->rounds; i++) {
        walls[i] = crowd_aggregation_ms(c, WARM_ITERATIONS + i);
        cpu_ms += crowd_cpu_ms(c, WARM_ITERATIONS + i);
    }
    ret->wall_ms = statistics_quantile(walls, d->rounds, 0.5);
    ret->workers_cpu_ms = cpu_ms / d->rounds;
    ret->lane_cpu_ms = (double)lane_cpu_ns / NS_PER_MS / d->rounds;
}

/* Reads the lanes' clocks while all workers pause, so that the difference covers whole
 * iterations. */
static int measure(struct durability *d, struct crowd *c, struct figures *ret)
{
    int r = crowd_await(c, WARM_ITERATIONS - 1);
    if (r == 0)
        r = crowd_order(c, TRAINEE_PAUSE);
    uint32_t first = crowd_iterations(c);
    uint64_t before_ns = service_lanes_cpu_ns(&d->service);
    if (r == 0)
        r = crowd_go_on(c);
    if (r == 0)
        r = crowd_await(c, first + d->rounds);
    if (r == 0)
        r = crowd_order(c, TRAINEE_PAUSE);
    uint64_t lane_cpu_ns = service_lanes_cpu_ns(&d->service) - before_ns;
    uint32_t done = crowd_iterations(c) - first;
    if (r == 0)
        r = crowd_go_on(c);
    if (r == 0)
        r = crowd_order(c, TRAINEE_END);
    if (r == 0)
        reckon(d, c, done ? lane_cpu_ns * d->rounds / done : 0, ret);
    return r;
}

static int run_turn(struct durability *d, const char *transport, uint64_t state_bytes, int kind,
                    struct figures *ret)
{
    struct crowd c;
    const struct trainee plan = {.endpoint = d->service.endpoint,
                                 .transport = transport,
                                 .job = names[kind],
                                 .workers = WORKERS,
                                 .load_elements = LOAD_ELEMENTS,
                                 .part_elements = state_bytes / STATE_BYTES_PER_ELEMENT,
                                 .parts = 1,
                                 .compute_ns = COMPUTE_NS,
                                 .durability = durabilities[kind],
                                 .seed = d->seed};
    int r = crowd_start(&c, &plan);
    if (r == 0)
        r = measure(d, &c, ret);
    int64_t wrong = r == 0 ? crowd_count_wrong(&c) : 0;
    if (r == 0 && wrong < 0)
        r = (int)wrong;
    d->wrong += r == 0 ? (uint64_t)wrong : 0;
    crowd_end(&c);
    return r;
}

/* --- rows --- */

static void print(const struct durability *d, const char *transport, uint64_t state_bytes,
                  uint64_t wrong, struct figures turns[KINDS][STATISTICS_TURNS_MAX])
{
    const char *format =
        d->is_json
            ? "{\"durability\": \"%s\", \"transport\": \"%s\", \"state_bytes\": %llu, "
              "\"turns\": %u, \"rounds\": %u, \"wall_ms\": %.4f, \"lane_cpu_ms\": %.4f, "
              "\"workers_cpu_ms\": %.4f, \"wall_ratio\": %.3f, \"lane_cpu_ratio\": %.3f, "
              "\"workers_cpu_ratio\": %.3f, \"wrong\": %llu}\n"
            : "%-8s %s %9llu bytes of state, %u turns of %u rounds: a round %.3f ms, lane CPU "
              "%.3f ms, workers' CPU %.3f ms; of none %.2f, %.2f, %.2f; %llu results wrong\n";
    for (int kind = 0; kind < KINDS; kind++) {
        bool is_none = kind == NONE;
        double ratio[3], median[3];
        for (size_t at = 0; at < 3; at++) {
            median[at] = statistics_turns_median(turns[kind], FIGURES, d->turns, at);
            ratio[at] =
                is_none ? 1
                        : statistics_turns_ratio(turns[kind], turns[NONE], FIGURES, d->turns, at);
        }
        printf(format, names[kind], transport, (unsigned long long)state_bytes, d->turns, d->rounds,
               median[0], median[1], median[2], ratio[0], ratio[1], ratio[2],
               (unsigned long long)wrong);
    }
    fflush(stdout);
}

static int run_cell(struct durability *d, const char *transport, uint64_t state_bytes)
{
    static struct figures turns[KINDS][STATISTICS_TURNS_MAX];
    uint64_t wrong_before = d->wrong;
    int r = 0;
    for (uint32_t turn = 0; r == 0 && turn < d->turns; turn++)
        for (int kind = 0; r == 0 && kind < KINDS; kind++)
            r = run_turn(d, transport, state_bytes, kind, &turns[kind][turn]);
    if (r == 0)
        print(d, transport, state_bytes, d->wrong - wrong_before, turns);
    return r;
}

static int run_all(struct durability *d)
{
    static const char *const transports[] = {"shm", "tcp"};
    int r = 0;
    for (size_t t = 0; t < 2; t++)
        for (size_t s = 0; r == 0 && s < d->states_count; s++)
            if (!d->transport || strcmp(d->transport, transports[t]) == 0)
                r = run_cell(d, transports[t], d->states[s]);
    return r;
}

int durability_command(int argc, char **argv)
{
    static const uint64_t all[] = {4096, UINT64_C(4) << 20, UINT64_C(64) << 20};
    struct durability d = {.seed = 1};
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Measure the cost of a copy of parameters and moments, on another aggregator (--durability "
        "replica) and in a worker's memory (--durability worker). The lane updates the parameters "
        "of a job of two workers with Adam. Turns with copies alternate with turns without. The "
        "time of a round is the median from push to result; CPU is the CPU time of both "
        "aggregators and both workers for a round. Each result is checked. The command starts a "
        "separate service.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &d);
    d.turns = d.turns ? d.turns : d.is_quick ? 3 : 7;
    d.rounds = d.rounds ? d.rounds : d.is_quick ? 20 : 60;
    if (d.states_count == 0) {
        d.states_count = d.is_quick ? 2 : sizeof all / sizeof *all;
        memcpy(d.states, all, d.states_count * sizeof *d.states);
    }
    int r = service_start_as(&d.service, &(struct service_setting){.scale = "off",
                                                                   .aggregators = "2",
                                                                   .cores = "0-1",
                                                                   .job_memory_max = "2G",
                                                                   .lane_memory_max = "4G"});
    if (r == 0)
        r = run_all(&d);
    service_stop(&d.service);
    return r < 0 || d.wrong ? 1 : 0;
}
