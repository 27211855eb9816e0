/* `ddp`: trains with PyTorch's DistributedDataParallel. Turns in which gloo averages the gradients
 * alternate with turns in which gradpool averages them. Owns the service and the workers of both
 * systems (peers/ddp_worker.py). */
#include "bench/commands.h"
#include "bench/compare/crew.h"
#include "bench/compare/interpreter.h"
#include "bench/savings/statistics.h"
#include "svc/base/clock.h"

#include <string.h>

#define WORKERS 2
#define STEPS_MAX 2000
#define WARM_STEPS 3

enum { GLOO, GRADPOOL, SYSTEMS };

static const struct model {
    const char *name;
    /* Approximate bytes of the gradients. ddp_worker.py chooses the model by this number. */
    uint64_t bytes;
} models[] = {{"mlp", UINT64_C(40) << 20}, {"cnn", UINT64_C(4) << 20}};
#define MODELS (sizeof models / sizeof *models)

struct figures {
    double steps_per_s, cpu_s_per_step;
};

#define FIGURES (sizeof(struct figures) / sizeof(double)) /* number of values of a turn */

struct ddp {
    struct service service;
    struct crew crews[SYSTEMS];
    struct figures turns[SYSTEMS][STATISTICS_TURNS_MAX];
    struct figures ratios[MODELS]; /* gradpool's figures divided by gloo's */
    uint32_t turns_count;
    uint64_t turn_ns, wrong;
    const char *model; /* the only model that is measured; NULL: all models */
    bool is_json, is_quick;
};

enum { KEY_QUICK = 1000, KEY_JSON, KEY_TURNS, KEY_TURN_MS, KEY_MODEL };

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "three turns of each system, a third of a second each"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each row; the last line has the ratios"},
    {"turns", KEY_TURNS, "N", 0, "turns of each system, which alternate (default 9)"},
    {"turn-ms", KEY_TURN_MS, "MS", 0, "approximate length of a turn (default 1000)"},
    {"model", KEY_MODEL, "mlp|cnn", 0, "only this model (default: both)"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct ddp *d = state->input;
    switch (key) {
    case KEY_QUICK: d->is_quick = true; return 0;
    case KEY_JSON: d->is_json = true; return 0;
    case KEY_TURNS:
        d->turns_count = (uint32_t)command_number(state, argument, 1, STATISTICS_TURNS_MAX);
        return 0;
    case KEY_TURN_MS: d->turn_ns = command_number(state, argument, 1, 60000) * NS_PER_MS; return 0;
    case KEY_MODEL:
        if (strcmp(argument, "mlp") != 0 && strcmp(argument, "cnn") != 0)
            argp_error(state, "--model: mlp or cnn, not '%s'", argument);
        d->model = argument;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- both systems' workers --- */

static int start_workers(struct crew *crew) { return interpreter_start(crew, "ddp_worker.py"); }

static const struct system systems_of_ddp[SYSTEMS] = {
    [GLOO] = {.name = "gloo", .transport = "tcp", .start = start_workers},
    [GRADPOOL] = {.name = "gradpool",
                  .transport = "shm",
                  .uses_service = true,
                  .start = start_workers},
};

static int start_crews(struct ddp *d)
{
    int r = 0;
    interpreter_prepare(&d->service);
    for (int i = 0; r == 0 && i < SYSTEMS; i++)
        r = crew_start(&d->crews[i], &systems_of_ddp[i], &d->service, WORKERS);
    for (int i = 0; r == 0 && i < SYSTEMS; i++)
        r = crew_await(&d->crews[i]);
    return r;
}

/* --- turns --- */

static int take_turn(struct ddp *d, int system, uint32_t steps, struct figures *ret)
{
    static uint64_t step_ns[WORKERS * STEPS_MAX];
    struct segment s = {.rounds = steps, .round_ns = step_ns};
    int r = crew_run(&d->crews[system], &s);
    if (r < 0)
        return r;
    d->wrong += s.wrong;
    ret->steps_per_s = steps * 1e9 / (double)s.elapsed_ns;
    ret->cpu_s_per_step = (double)(s.worker_cpu_ns + s.server_cpu_ns) / 1e9 / steps;
    return 0;
}

/* Trains some steps first, because DDP rebuilds its buckets after the first step. Returns the
 * number of steps of a turn, equal for both systems. */
static int warm_up(struct ddp *d, const struct model *model, uint32_t *ret_steps)
{
    struct figures f = {0};
    int r = 0;
    for (int i = 0; r == 0 && i < SYSTEMS; i++)
        r = crew_resize(&d->crews[i], model->bytes, 1);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; r == 0 && i < SYSTEMS; i++)
            r = take_turn(d, i, WARM_STEPS, &f);
    double fit = f.steps_per_s * (double)d->turn_ns / 1e9;
    *ret_steps = fit < 2 ? 2 : fit > STEPS_MAX ? STEPS_MAX : (uint32_t)fit;
    return r;
}

static double ratio_of(const struct ddp *d, size_t at)
{
    return statistics_turns_ratio(d->turns[GRADPOOL], d->turns[GLOO], FIGURES, d->turns_count, at);
}

static void print(const struct ddp *d, const struct model *model, uint32_t steps, uint64_t wrong)
{
    const char *format =
        d->is_json ? "{\"system\": \"%s\", \"model\": \"%s\", \"workers\": %u, \"steps_per_s\": "
                     "%.3f, \"cpu_s_per_step\": %.6f, \"turns\": %u, \"steps\": %u, \"wrong\": "
                     "%llu}\n"
                   : "%-8s %s, %u workers: %8.2f steps/s, %.4f CPU s a step (medians of %u turns "
                     "of %u steps); %llu gradients wrong\n";
    for (int i = 0; i < SYSTEMS; i++)
        printf(format, systems_of_ddp[i].name, model->name, WORKERS,
               statistics_turns_median(d->turns[i], FIGURES, d->turns_count, 0),
               statistics_turns_median(d->turns[i], FIGURES, d->turns_count, 1), d->turns_count,
               steps, (unsigned long long)wrong);
    fflush(stdout);
}

static int run_model(struct ddp *d, size_t m)
{
    uint32_t steps = 0;
    uint64_t wrong_before = d->wrong;
    int r = warm_up(d, &models[m], &steps);
    for (uint32_t turn = 0; r == 0 && turn < d->turns_count; turn++)
        for (int i = 0; r == 0 && i < SYSTEMS; i++)
            r = take_turn(d, i, steps, &d->turns[i][turn]);
    if (r < 0)
        return r;
    d->ratios[m] = (struct figures){ratio_of(d, 0), ratio_of(d, 1)};
    print(d, &models[m], steps, d->wrong - wrong_before);
    return 0;
}

static void print_ratios(const struct ddp *d)
{
    const char *separator = "", *format = d->is_json
                                              ? "%s\"%s_steps_ratio\": %.4f, \"%s_cpu_ratio\": %.4f"
                                              : "%s%s: %.3f of gloo's steps/s, %s: %.3f of its CPU";
    printf(d->is_json ? "{" : "");
    for (size_t m = 0; m < MODELS; m++) {
        if (d->ratios[m].steps_per_s == 0)
            continue;
        printf(format, separator, models[m].name, d->ratios[m].steps_per_s, models[m].name,
               d->ratios[m].cpu_s_per_step);
        separator = d->is_json ? ", " : "; ";
    }
    printf(d->is_json ? "}\n" : "\n");
}

static int run_all(struct ddp *d)
{
    int r = start_crews(d);
    for (size_t m = 0; r == 0 && m < MODELS; m++)
        if (!d->model || strcmp(d->model, models[m].name) == 0)
            r = run_model(d, m);
    for (int i = 0; i < SYSTEMS; i++)
        if (d->crews[i].system)
            crew_end(&d->crews[i]);
    if (r == 0)
        print_ratios(d);
    return r;
}

int ddp_command(int argc, char **argv)
{
    static struct ddp d; /* too large for a stack */
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Train with PyTorch's DistributedDataParallel: two workers, with the same model, data and "
        "seed. Turns in which gloo averages the gradients alternate with turns in which gradpool "
        "does. CPU is the CPU time of workers, lanes and coordinator. After each turn one gradient "
        "is compared with the mean of the gradients of all workers' data. The command starts a "
        "separate service.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &d);
    d.turns_count = d.turns_count ? d.turns_count : d.is_quick ? 3 : 9;
    d.turn_ns = d.turn_ns ? d.turn_ns : d.is_quick ? NS_PER_S / 3 : NS_PER_S;
    int r = service_start_as(&d.service, &(struct service_setting){.scale = "off"});
    if (r == 0)
        r = run_all(&d);
    service_stop(&d.service);
    return r < 0 || d.wrong ? 1 : 0;
}
