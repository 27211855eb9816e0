/* gradpool-bench: subcommands and their options only. */
#include "bench/push.h"

#include "client/gradpool.h"
#include "svc/base/text.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *argp_program_version = "gradpool-bench " GP_VERSION;

static const char doc[] =
    "Drive a gradpool service with emulated workers that check every element of every result."
    "\v"
    "Commands:\n"
    "  push    be one worker; rank and size as given or from the launcher's environment\n"
    "  local   fork all workers of a job on this host\n"
    "\n"
    "Example, against `gradpool serve` on this host:\n"
    "  gradpool-bench local --workers 4 --elements 1048576 --rounds 50";

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
    {"transport", KEY_TRANSPORT, "KIND", 0, "auto, shm or tcp"},
    {"job", KEY_JOB, "NAME", 0, "job name (default: GRADPOOL_JOB, or bench-PID)"},
    {"rank", KEY_RANK, "N", 0, "push: rank of this worker"},
    {"workers", KEY_WORKERS, "N", 0, "workers of the job (default 2)"},
    {"tensors", KEY_TENSORS, "N", 0, "tensors pushed in a round (default 1)"},
    {"elements", KEY_ELEMENTS, "N", 0, "float32 elements of a tensor (default 262144)"},
    {"rounds", KEY_ROUNDS, "N", 0, "rounds (default 100)"},
    {"group", KEY_GROUP, "N", 0, "tensors of one request (default: all)"},
    {"compute-ms", KEY_COMPUTE, "MS", 0, "sleep between rounds, as if computing"},
    {"slow-rank", KEY_SLOW, "N", 0, "this rank computes ten times as long"},
    {"seed", KEY_SEED, "N", 0, "seed of the gradients (default 1)"},
    {"timeout-ms", KEY_TIMEOUT, "MS", 0, "deadline of a wait (default 30000)"},
    {"mean", KEY_MEAN, 0, 0, "mean instead of sum"},
    {"foreign", KEY_FOREIGN, 0, 0, "push from plain memory instead of gp_alloc memory"},
    {"in-place", KEY_IN_PLACE, 0, 0, "the result replaces the gradient"},
    {"shuffle", KEY_SHUFFLE, 0, 0, "every rank pushes in an order of its own"},
    {"no-check", KEY_NO_CHECK, 0, 0, "do not check the results (for timing)"},
    {"verbose", KEY_VERBOSE, 0, 0, "a line a round"},
    {"json", KEY_JSON, 0, 0, "one JSON line a worker"},
    {0},
};

struct command {
    struct push_options push;
    const char *name;
};

static uint64_t number(struct argp_state *state, const char *text, uint64_t least, uint64_t most)
{
    uint64_t value = 0;
    if (text_parse_u64(text, least, most, &value) < 0)
        argp_error(state, "'%s' is not a whole number from %llu to %llu", text,
                   (unsigned long long)least, (unsigned long long)most);
    return value;
}

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
    case KEY_RANK: o->rank = (uint32_t)number(state, text, 0, 767); return 0;
    case KEY_WORKERS: o->workers = (uint32_t)number(state, text, 1, 768); return 0;
    case KEY_TENSORS: o->tensors = (uint32_t)number(state, text, 1, 1000000); return 0;
    case KEY_ELEMENTS: o->elements = number(state, text, 0, UINT64_C(1) << 40); return 0;
    case KEY_ROUNDS: o->rounds = (uint32_t)number(state, text, 1, 100000000); return 0;
    case KEY_GROUP: o->group = (uint32_t)number(state, text, 0, 1000000); return 0;
    case KEY_COMPUTE: o->compute_ms = (uint32_t)number(state, text, 0, 3600000); return 0;
    case KEY_SLOW: o->slow_rank = (uint32_t)number(state, text, 0, 767); return 0;
    case KEY_SEED: o->seed = number(state, text, 0, UINT64_MAX); return 0;
    case KEY_TIMEOUT: o->timeout_ms = (uint32_t)number(state, text, 1, 3600000); return 0;
    default: return parse_flag(key, o);
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct command *command = state->input;
    switch (key) {
    case KEY_ENDPOINT: command->push.endpoint = argument; return 0;
    case KEY_TRANSPORT: command->push.transport = argument; return 0;
    case KEY_JOB: command->push.job = argument; return 0;
    case ARGP_KEY_ARG:
        if (command->name)
            argp_error(state, "one command, please; '%s' is a second one", argument);
        command->name = argument;
        return 0;
    case ARGP_KEY_END:
        if (!command->name)
            argp_error(state, "which command? push or local");
        return 0;
    default: return parse_number(key, argument, state, &command->push);
    }
}

static int run_push(struct push_options *options_given)
{
    struct push_result result;
    int r = push_run(options_given, &result);
    push_print(options_given, &result);
    return r < 0 || result.wrong ? 1 : 0;
}

/* What the command line leaves open comes from the launcher, then from defaults. */
static void fill_in(struct push_options *o, char *job, size_t job_bytes)
{
    gp_job_spec spec;
    bool is_launched = gp_job_spec_from_environment(&spec) == 0;
    snprintf(job, job_bytes, "bench-%d", (int)getpid());
    if (o->rank == UINT32_MAX)
        o->rank = is_launched ? spec.rank : 0;
    if (o->workers == 0)
        o->workers = is_launched ? spec.workers : 2;
    if (!o->job)
        o->job = is_launched && spec.name ? spec.name : job;
    if (!o->endpoint && !getenv("GRADPOOL_ENDPOINT"))
        o->endpoint = "gradpool://127.0.0.1:7077";
}

int main(int argc, char **argv)
{
    struct command command = {.push = {.rank = UINT32_MAX,
                                       .tensors = 1,
                                       .elements = 262144,
                                       .rounds = 100,
                                       .slow_rank = UINT32_MAX,
                                       .seed = 1,
                                       .timeout_ms = 30000}};
    char job[64];
    const struct argp argp = {options, parse, "push|local", doc, NULL, NULL, NULL};
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &command);
    fill_in(&command.push, job, sizeof job);
    if (strcmp(command.name, "push") == 0)
        return run_push(&command.push);
    if (strcmp(command.name, "local") == 0)
        return local_run(&command.push);
    fprintf(stderr, "gradpool-bench: '%s' is no command; there are push and local\n", command.name);
    return 2;
}
