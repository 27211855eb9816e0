/* `faults`: its options and its summary line. */
#include "bench/commands.h"
#include "bench/faults/faults.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

struct arguments {
    struct faults faults;
    bool is_json;
};

enum { KEY_SECONDS = 1000, KEY_SEED, KEY_JSON };

static const struct argp_option options[] = {
    {"seconds", KEY_SECONDS, "S", 0,
     "length of the run (default 40); from 20 s on, a slow host continues for up to six times as "
     "long, until each kind of fault has happened"},
    {"seed", KEY_SEED, "N", 0, "seed of the faults and their times (default 1)"},
    {"json", KEY_JSON, 0, 0, "the last line is JSON"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case KEY_SECONDS: a->faults.seconds = command_number(state, argument, 1, 86400); return 0;
    case KEY_SEED: a->faults.seed = command_number(state, argument, 0, UINT64_MAX); return 0;
    case KEY_JSON: a->is_json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print(const struct arguments *a, const struct faults_result *r)
{
    uint64_t kills = r->kills_aggregator + r->kills_worker + r->kills_coordinator;
    const char *format =
        a->is_json
            ? "{\"seed\": %" PRIu64 ", \"seconds\": %" PRIu64 ", \"rounds\": %" PRIu64
              ", \"elements_checked\": %" PRIu64 ", \"kills\": %" PRIu64
              ", \"kills_aggregator\": %" PRIu64 ", \"kills_worker\": %" PRIu64
              ", \"kills_coordinator\": %" PRIu64 ", \"restarts\": %" PRIu64
              ", \"retired\": %" PRIu64 ", \"attacks\": %" PRIu64 ", \"attack_kinds\": %" PRIu64
              ", \"stops\": %" PRIu64 ", \"cuts\": %" PRIu64 ", \"wrong\": %" PRIu64
              ", \"hangs\": %" PRIu64 ", \"longest_wait_s\": %.3f, \"errors\": %" PRIu64
              ", \"unnamed_errors\": %" PRIu64 ", \"rounds_elastic\": %" PRIu64
              ", \"comings\": %" PRIu64 ", \"resizes\": %" PRIu64 ", \"drains\": %" PRIu64
              ", \"drains_undone\": %" PRIu64 ", \"drains_refused\": %" PRIu64
              ", \"snapshots\": %" PRIu64 ", \"snapshots_refused\": %" PRIu64
              ", \"copies_lost\": %" PRIu64 ", \"crashes\": %" PRIu64 "}\n"
            : "seed %" PRIu64 ", %" PRIu64 " s: %" PRIu64 " rounds, %" PRIu64
              " elements checked; %" PRIu64 " kills (aggregators %" PRIu64 ", workers %" PRIu64
              ", coordinator %" PRIu64 "), %" PRIu64 " planned restarts, %" PRIu64
              " aggregators ended as planned, %" PRIu64 " attacks of %" PRIu64 " kinds, %" PRIu64
              " stops, %" PRIu64 " cuts; %" PRIu64 " elements wrong, %" PRIu64
              " hangs, longest wait %.3f s, %" PRIu64 " errors, %" PRIu64
              " of them name no cause; %" PRIu64
              " rounds of elastic jobs, whose members joined again %" PRIu64 " times, %" PRIu64
              " resizes; %" PRIu64 " drains, %" PRIu64 " undone, %" PRIu64 " refused, %" PRIu64
              " snapshots, %" PRIu64 " refused, %" PRIu64 " copies lost, %" PRIu64 " crashes\n";
    printf(format, a->faults.seed, a->faults.seconds, r->rounds, r->elements_checked, kills,
           r->kills_aggregator, r->kills_worker, r->kills_coordinator, r->restarts, r->retired,
           r->attacks, r->attack_kinds, r->stops, r->cuts, r->wrong, r->hangs,
           (double)r->longest_wait_ns / 1e9, r->errors, r->unnamed, r->rounds_elastic, r->comings,
           r->resizes, r->drains, r->undone, r->drains_refused, r->snapshots, r->snapshots_refused,
           r->copies_lost, r->crashes);
}

int faults_command(int argc, char **argv)
{
    struct arguments a = {.faults = {.seconds = 40, .seed = 1}};
    struct faults_result result;
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Inject random faults into a service and its jobs, and check every element of every round. "
        "Six jobs train: two make sums, two train with update rules and copies of parameters and "
        "moments, each over shared memory and over TCP; the workers of two more jobs, one with "
        "sums and one with an update rule, join and leave. Aggregators, workers and the "
        "coordinator are killed with signal 9, stopped or disconnected. Aggregators and the "
        "coordinator also end as planned, by SIGTERM. Tasks move, aggregators are drained, drains "
        "are undone, and snapshots are made and checked. A hostile tenant attacks the service. A "
        "job that fails is restarted; errors of its workers are on standard error. The command "
        "starts a separate service. Exit code 1: an element was wrong, a wait hung, the text of an "
        "error named no cause, an error had no cause, or a process ended unexpectedly. The log of "
        "the service is then "
        "kept.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (faults_run(&a.faults, &result) < 0)
        return 1;
    print(&a, &result);
    return faults_failed(&result);
}
