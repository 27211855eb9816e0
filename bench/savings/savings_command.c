/* Options of `savings`. */
#include "bench/commands.h"
#include "bench/lib/run_file.h"
#include "bench/savings/savings.h"
#include "bench/sim/input/csv.h"
#include "packer/packer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Models of all kinds: with few large tensors or many small ones, with short or long steps. */
#define MIX_DEFAULT "resnet50,bert_base,inception_v3,vgg16,densenet121,gpt2,resnet101,deepspeech2"

struct arguments {
    struct savings *savings;
    const char *models;
};

enum {
    KEY_QUICK = 1000,
    KEY_JSON,
    KEY_JOBS,
    KEY_WORKERS,
    KEY_MIX,
    KEY_MODELS,
    KEY_POLICY,
    KEY_TRANSPORT,
    KEY_LOAD,
    KEY_TURN,
    KEY_ALTERNATIONS,
    KEY_SEED,
    KEY_REPORT,
};

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0,
     "two alternations of 4 s, each job alone once, all jobs profiled at the same time: under 50 "
     "s, with wide confidence intervals"},
    {"json", KEY_JSON, 0, 0,
     "a line of JSON for each turn, each job and each size of server; the last line is the "
     "summary"},
    {"jobs", KEY_JOBS, "N", 0, "number of jobs (default 8)"},
    {"workers", KEY_WORKERS, "N", 0, "number of workers of each job, one process each (default 2)"},
    {"mix", KEY_MIX, "NAMES", 0,
     "models of the jobs, separated by commas (default: " MIX_DEFAULT ")"},
    {"models", KEY_MODELS, "DIR", 0, "tables of models (default: bench/models)"},
    {"policy", KEY_POLICY, "NAME", 0, "policy of the shared service: shared (default), rate, ..."},
    {"transport", KEY_TRANSPORT, "KIND", 0, "shm or tcp (default: the client's choice)"},
    {"load", KEY_LOAD, "PERCENT", 0,
     "lane time that all jobs together need, in percent of one core (default 70)"},
    {"turn-s", KEY_TURN, "S", 0, "length of a turn (default 12)"},
    {"alternations", KEY_ALTERNATIONS, "N", 0,
     "number of turns with dedicated lanes and with shared lanes (default 5)"},
    {"seed", KEY_SEED, "N", 0,
     "seed of the jitter and of the order in which jobs leave (default 1)"},
    {"report", KEY_REPORT, "FILE", 0, "write a page with charts and tables, in one file"},
    {0},
};

static const char *transport_of(struct argp_state *state, const char *kind)
{
    if (strcmp(kind, "shm") != 0 && strcmp(kind, "tcp") != 0)
        argp_error(state, "--transport: shm or tcp, not '%s'", kind);
    return kind;
}

static const char *policy_of(struct argp_state *state, const char *name)
{
    for (const char *const *known = packer_policies(); *known; known++)
        if (strcmp(name, *known) == 0)
            return name;
    argp_error(state, "--policy: '%s' is none of the service's", name);
    return NULL;
}

static void make_quick(struct savings *s)
{
    s->profiles_together = true;
    s->alternations = 2;
    s->alone_passes = 1;
    s->plan.turn_ns = 4e9;
    s->plan.alone_ns = 0.8e9;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *a = state->input;
    struct savings *s = a->savings;
    switch (key) {
    case KEY_QUICK: make_quick(s); return 0;
    case KEY_JSON: s->is_json = true; return 0;
    case KEY_JOBS: s->plan.jobs_count = command_number(state, argument, 1, PLAN_JOBS_MAX); return 0;
    case KEY_WORKERS:
        s->plan.workers = (uint32_t)command_number(state, argument, 1, PLAN_WORKERS_MAX);
        return 0;
    case KEY_MIX: s->plan.mix = argument; return 0;
    case KEY_MODELS: a->models = argument; return 0;
    case KEY_POLICY: s->policy = policy_of(state, argument); return 0;
    case KEY_TRANSPORT: s->transport = transport_of(state, argument); return 0;
    case KEY_LOAD: s->load = (double)command_number(state, argument, 1, 1000) / 100; return 0;
    case KEY_TURN:
        s->plan.turn_ns = (double)command_number(state, argument, 1, 600) * 1e9;
        return 0;
    case KEY_ALTERNATIONS:
        s->alternations = (uint32_t)command_number(state, argument, 1, SAVINGS_TURNS_MAX);
        s->alone_passes = s->alone_passes < s->alternations ? s->alone_passes : s->alternations;
        return 0;
    case KEY_REPORT: s->report = argument; return 0;
    case KEY_SEED: s->plan.seed = command_number(state, argument, 0, UINT64_MAX); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Measure how many cores jobs save by sharing lanes, and how much slower they become. Emulated "
    "jobs have the tensors, the order of gradients and the step times of real models, scaled to "
    "this machine. The jobs train on two separate services: with dedicated lanes, and on shared "
    "lanes. In each turn the jobs arrive and leave. Every result of some rounds is checked.\vThe "
    "load is the lane time while all jobs are present, in percent of a core; tensors are scaled to "
    "this load. All figures of cores come from the service's own reports: a lane counts as "
    "allocated from a report in which the lane is open until the next report. On a service that "
    "parks no lanes, a lane counts as allocated while it has tasks.",
    NULL,
    NULL,
    NULL};

int savings_command(int argc, char **argv)
{
    struct savings *s = calloc(1, sizeof *s);
    struct models models = {0};
    char error[TABLE_ERROR_BYTES] = "";
    if (!s)
        return 1;
    *s = (struct savings){
        .policy = "shared", .load = 0.70, .alternations = 5, .alone_passes = SAVINGS_TURNS_MAX};
    s->plan = (struct plan){.mix = MIX_DEFAULT,
                            .workers = 2,
                            .seed = 1,
                            .turn_ns = 12e9,
                            .alone_ns = 3e9,
                            .time_scale = 0.35,
                            .jitter = 0.087,
                            .jobs_count = 8};
    struct arguments arguments = {.savings = s, .models = BENCH_MODELS};
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    int r = s->report ? run_can_write(s->report) : 0;
    if (r < 0) {
        free(s);
        return 1;
    }
    r = models_load(&models, arguments.models, error);
    if (r == 0)
        r = plan_make(&s->plan, &models, error);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: %s\n", error);
    else
        r = savings_run(s);
    int code = r < 0 || s->wrong ? 1 : 0;
    models_fini(&models);
    free(s);
    return code;
}
