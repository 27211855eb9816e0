/* `parameters`: trains a model of very many small parameters with each integration (the doors:
 * hook, backend, Horovod's API), and without communication. Owns the service and the workers
 * (peers/parameters_worker.py). */
#include "bench/commands.h"
#include "bench/compare/interpreter.h"
#include "bench/compare/turns.h"

#define PARAMETER_BYTES 32
#define WARM_STEPS 5

enum { ALONE, GLOO, ATTACH, HOROVOD, DOORS };

struct parameters {
    struct service service;
    struct turns turns;
    uint32_t count;
    bool is_json;
};

enum { KEY_QUICK = 1000, KEY_JSON, KEY_TURNS, KEY_STEPS, KEY_COUNT };

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "three turns of two steps"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each integration"},
    {"turns", KEY_TURNS, "N", 0, "turns of each integration, which alternate (default 25)"},
    {"steps", KEY_STEPS, "N", 0, "steps of a turn (default 5)"},
    {"count", KEY_COUNT, "N", 0, "number of parameters, 8 float32 elements each (default 5000)"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct parameters *p = state->input;
    switch (key) {
    case KEY_QUICK:
        p->turns.turns_count = 3;
        p->turns.rounds = 2;
        return 0;
    case KEY_JSON: p->is_json = true; return 0;
    case KEY_TURNS:
        p->turns.turns_count = (uint32_t)command_number(state, argument, 1, STATISTICS_TURNS_MAX);
        return 0;
    case KEY_STEPS:
        p->turns.rounds = (uint32_t)command_number(state, argument, 1, TURNS_ROUNDS_MAX);
        return 0;
    case KEY_COUNT: p->count = (uint32_t)command_number(state, argument, 1, 50000); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int start_workers(struct crew *crew)
{
    return interpreter_start(crew, "parameters_worker.py");
}

static const struct system doors[DOORS] = {
    [ALONE] = {"alone", "none", .start = start_workers},
    [GLOO] = {"gloo", "tcp", .start = start_workers},
    [ATTACH] = {"attach", "shm", .uses_service = true, .start = start_workers},
    [HOROVOD] = {"horovod", "shm", .uses_service = true, .start = start_workers},
};

static int measure(struct parameters *p)
{
    interpreter_prepare(&p->service);
    int r = turns_start(&p->turns, &p->service);
    for (size_t i = 0; r == 0 && i < DOORS; i++)
        r = turns_resize(&p->turns, i, (uint64_t)p->count * PARAMETER_BYTES, p->count);
    if (r == 0)
        r = turns_run(&p->turns, WARM_STEPS);
    turns_end(&p->turns);
    return r;
}

static void print(const struct parameters *p)
{
    const char *format =
        p->is_json ? "{\"door\": \"%s\", \"workers\": %u, \"parameters\": %u, \"step_ms\": %.3f, "
                     "\"cpu_ms_per_step\": %.3f, \"ratio\": %.4f, \"cpu_ratio\": %.4f, "
                     "\"turns\": %u, \"steps\": %u, \"wrong\": %llu}\n"
                   : "%-8s %u workers, %u parameters: a step %8.2f ms, %8.2f ms of CPU; %.2f and "
                     "%.2f of alone (medians of %u turns of %u steps); %llu elements wrong\n";
    for (size_t i = 0; i < DOORS; i++) {
        struct turn_figures m = turns_median(&p->turns, i), ratio = turns_ratio(&p->turns, i);
        printf(format, doors[i].name, p->turns.workers, p->count, m.round_ms, m.cpu_ms,
               ratio.round_ms, ratio.cpu_ms, p->turns.turns_count, p->turns.rounds,
               (unsigned long long)p->turns.wrong);
    }
}

int parameters_command(int argc, char **argv)
{
    static struct parameters p = {
        .count = 5000,
        .turns = {.systems = doors,
                  .systems_count = DOORS,
                  .workers = 2,
                  .turns_count = 25,
                  .rounds = 5},
    };
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Measure a training step of a model with very many small parameters and two workers. Turns "
        "alternate: without communication, with gloo's DistributedDataParallel, with "
        "gradpool.ddp.attach() and with gradpool.torch's DistributedOptimizer. Every parameter is "
        "checked after each turn. The command starts a separate service.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &p);
    int r = service_start(&p.service);
    if (r == 0)
        r = measure(&p);
    if (r == 0)
        print(&p);
    service_stop(&p.service);
    return r < 0 || p.turns.wrong ? 1 : 0;
}
