/* Options of `push` and `local`. */
#include "bench/commands.h"
#include "bench/push/push.h"
#include "svc/base/system/unique.h"

#include "client/gradpool.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    KEY_ENDPOINT = 1000,
    KEY_TRANSPORT,
    KEY_JOB,
    KEY_RANK,
    KEY_WORKERS,
    KEY_TENSORS,
    KEY_ELEMENTS,
    KEY_ROUNDS,
    KEY_GROUP,
    KEY_COMPUTE,
    KEY_SLOW,
    KEY_SEED,
    KEY_TIMEOUT,
    KEY_MEAN,
    KEY_FOREIGN,
    KEY_IN_PLACE,
    KEY_SHUFFLE,
    KEY_NO_CHECK,
    KEY_VERBOSE,
    KEY_JSON,
};

static const struct argp_option options[] = {
    {"endpoint", KEY_ENDPOINT, "URL", 0, "coordinator (default: GRADPOOL_ENDPOINT, or this host)"},
    {"transport", KEY_TRANSPORT, "KIND", 0, "transport: auto, shm or tcp"},
    {"job", KEY_JOB, "NAME", 0, "job name (default: GRADPOOL_JOB, or a new one)"},
    {"rank", KEY_RANK, "N", 0, "push: rank of this worker"},
    {"workers", KEY_WORKERS, "N", 0, "number of workers of the job (default 2)"},
    {"tensors", KEY_TENSORS, "N", 0, "number of tensors pushed in a round (default 1)"},
    {"elements", KEY_ELEMENTS, "N", 0, "number of float32 elements of a tensor (default 262144)"},
    {"rounds", KEY_ROUNDS, "N", 0, "number of rounds (default 100)"},
    {"group", KEY_GROUP, "N", 0, "number of tensors in one request (default: all)"},
    {"compute-ms", KEY_COMPUTE, "MS", 0, "sleep between rounds, in place of computing"},
    {"slow-rank", KEY_SLOW, "N", 0, "this rank sleeps ten times as long"},
    {"seed", KEY_SEED, "N", 0, "seed of the gradients (default 1)"},
    {"timeout-ms", KEY_TIMEOUT, "MS", 0, "deadline of a wait (default 30000)"},
    {"mean", KEY_MEAN, 0, 0, "compute the mean instead of the sum"},
    {"foreign", KEY_FOREIGN, 0, 0, "push from plain memory instead of gp_alloc memory"},
    {"in-place", KEY_IN_PLACE, 0, 0, "the result replaces the gradient"},
    {"shuffle", KEY_SHUFFLE, 0, 0, "every rank pushes the tensors in a different order"},
    {"no-check", KEY_NO_CHECK, 0, 0, "do not check the results (for timing)"},
    {"verbose", KEY_VERBOSE, 0, 0, "a line for each round"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each worker"},
    {0},
};

static error_t parse_flag(int key, struct push_options *o)
{
    switch (key) {
    case KEY_MEAN: o->is_mean = true; return 0;
    case KEY_FOREIGN: o->is_foreign = true; return 0;
    case KEY_IN_PLACE: o->is_in_place = true; return 0;
    case KEY_SHUFFLE: o->is_shuffled = true; return 0;
    case KEY_NO_CHECK: o->skips_check = true; return 0;
    case KEY_VERBOSE: o->is_verbose = true; return 0;
    case KEY_JSON: o->is_json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_number(int key, const char *text, struct argp_state *state,
                            struct push_options *o)
{
    switch (key) {
    case KEY_RANK: o->rank = (uint32_t)command_number(state, text, 0, 767); return 0;
    case KEY_WORKERS: o->workers = (uint32_t)command_number(state, text, 1, 768); return 0;
    case KEY_TENSORS: o->tensors = (uint32_t)command_number(state, text, 1, 1000000); return 0;
    case KEY_ELEMENTS: o->elements = command_number(state, text, 0, UINT64_C(1) << 40); return 0;
    case KEY_ROUNDS: o->rounds = (uint32_t)command_number(state, text, 1, 100000000); return 0;
    case KEY_GROUP: o->group = (uint32_t)command_number(state, text, 0, 1000000); return 0;
    case KEY_COMPUTE: o->compute_ms = (uint32_t)command_number(state, text, 0, 3600000); return 0;
    case KEY_SLOW: o->slow_rank = (uint32_t)command_number(state, text, 0, 767); return 0;
    case KEY_SEED: o->seed = command_number(state, text, 0, UINT64_MAX); return 0;
    case KEY_TIMEOUT: o->timeout_ms = (uint32_t)command_number(state, text, 1, 3600000); return 0;
    default: return parse_flag(key, o);
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct push_options *o = state->input;
    switch (key) {
    case KEY_ENDPOINT: o->endpoint = argument; return 0;
    case KEY_TRANSPORT: o->transport = argument; return 0;
    case KEY_JOB: o->job = argument; return 0;
    default: return parse_number(key, argument, state, o);
    }
}

/* Sets options that are not on the command line, first from the launcher's environment, then from
 * defaults. */
static void fill_in(struct push_options *o, char *job, size_t job_bytes)
{
    gp_job_spec spec;
    bool is_launched = gp_job_spec_from_environment(&spec) == 0;
    unique_name("bench", job, job_bytes);
    if (o->rank == UINT32_MAX)
        o->rank = is_launched ? spec.rank : 0;
    if (o->workers == 0)
        o->workers = is_launched ? spec.workers : 2;
    if (!o->job)
        o->job = is_launched && spec.name ? spec.name : job;
    if (!o->endpoint && !getenv("GRADPOOL_ENDPOINT"))
        o->endpoint = "gradpool://127.0.0.1:7077";
}

/* Parses the options of both commands. `job`: buffer for the name of the job. */
static void parse_options(int argc, char **argv, const char *doc, struct push_options *ret_options,
                          char *job, size_t job_bytes)
{
    const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
    *ret_options = (struct push_options){.rank = UINT32_MAX,
                                         .tensors = 1,
                                         .elements = 262144,
                                         .rounds = 100,
                                         .slow_rank = UINT32_MAX,
                                         .seed = 1,
                                         .timeout_ms = 30000};
    argp_parse(&argp, argc, argv, 0, NULL, ret_options);
    fill_in(ret_options, job, job_bytes);
}

int push_command(int argc, char **argv)
{
    struct push_options o;
    char job[64];
    parse_options(argc, argv,
                  "Run one worker of a job, which checks every element of every result. Rank and "
                  "number of workers come from the options or from the launcher's environment.",
                  &o, job, sizeof job);
    return push_report(&o);
}

int local_command(int argc, char **argv)
{
    struct push_options o;
    char job[64];
    parse_options(argc, argv,
                  "Start all workers of a job on this host. The workers check every element of "
                  "every result.\vExample, with a running `gradpool serve` on this host:\n  "
                  "gradpool-bench local --workers 4 --elements 1048576 --rounds 50",
                  &o, job, sizeof job);
    return local_run(&o);
}
