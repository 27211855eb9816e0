/* `migrate`: options and rows. Owns the measured service. */
#include "bench/commands.h"
#include "bench/lib/host.h"
#include "bench/migrate/migrate.h"
#include "bench/migrate/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATES_MAX 8

static const char *const transports[] = {"shm", "tcp"};

static const char *const durabilities[] = {[GP_DURABILITY_NONE] = "none",
                                           [GP_DURABILITY_REPLICA] = "replica",
                                           [GP_DURABILITY_WORKER] = "worker"};

struct migrate {
    struct service service;
    struct service_setting setting; /* setting of the running service */
    char cores[32];
    uint64_t states[STATES_MAX];
    size_t states_count;
    uint32_t migrations;
    uint32_t events[PLANNED_EVENTS]; /* number of planned events of each kind */
    uint64_t seed;
    /* the only transport and the only mode that are measured; NULL: all */
    const char *transport, *mode;
    enum gp_durability durability; /* copies of the lanes' state */
    bool is_json, is_quick;
    uint64_t failed, wrong;
};

enum {
    KEY_QUICK = 1000,
    KEY_JSON,
    KEY_MIGRATIONS,
    KEY_TRANSPORT,
    KEY_MODE,
    KEY_STATE,
    KEY_SEED,
    KEY_DRAINS,
    KEY_ENDS,
    KEY_RESTARTS,
    KEY_DURABILITY
};

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "only 64 MiB of state"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each row"},
    {"migrations", KEY_MIGRATIONS, "N", 0,
     "migrations for each row (default 20); 0: only the rows of planned events"},
    {"transport", KEY_TRANSPORT, "KIND", 0, "shm or tcp (default: both)"},
    {"mode", KEY_MODE, "MODE", 0, "only this mode: live, stop-the-world or restart (default: all)"},
    {"state", KEY_STATE, "BYTES", 0, "bytes of the job's state on its lanes; 0: no state"},
    {"durability", KEY_DURABILITY, "WHERE", 0,
     "place of the copies of the state: none, replica (another aggregator) or worker (default: "
     "none)"},
    {"drains", KEY_DRAINS, "N", 0,
     "drains of an aggregator with all tasks and the state of 8 jobs (default 10)"},
    {"ends", KEY_ENDS, "N", 0, "ends of this aggregator by SIGTERM (default 5)"},
    {"restarts", KEY_RESTARTS, "N", 0,
     "restarts of `serve' by SIGTERM, beside the 8 jobs (default 5)"},
    {"seed", KEY_SEED, "N", 0, "seed of the times of migrations (default 1)"},
    {0},
};

static const char *mode_of(struct argp_state *state, const char *name)
{
    for (int mode = 0; mode < MIGRATE_MODES; mode++)
        if (strcmp(name, migrate_mode_name((enum migrate_mode)mode)) == 0)
            return name;
    argp_error(state, "--mode: '%s' is none of live, stop-the-world, restart", name);
    return NULL;
}

static enum gp_durability durability_of(struct argp_state *state, const char *name)
{
    for (int d = GP_DURABILITY_NONE; d <= GP_DURABILITY_WORKER; d++)
        if (strcmp(name, durabilities[d]) == 0)
            return (enum gp_durability)d;
    argp_error(state, "--durability: '%s' is none of none, replica, worker", name);
    return GP_DURABILITY_NONE;
}

static uint32_t events_of(struct argp_state *state, const char *argument)
{
    return (uint32_t)command_number(state, argument, 0, 64);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct migrate *m = state->input;
    switch (key) {
    case KEY_QUICK: m->is_quick = true; return 0;
    case KEY_JSON: m->is_json = true; return 0;
    case KEY_MIGRATIONS:
        m->migrations = (uint32_t)command_number(state, argument, 0, 200);
        return 0;
    case KEY_TRANSPORT:
        if (strcmp(argument, "shm") != 0 && strcmp(argument, "tcp") != 0)
            argp_error(state, "--transport: shm or tcp, not '%s'", argument);
        m->transport = argument;
        return 0;
    case KEY_DURABILITY: m->durability = durability_of(state, argument); return 0;
    case KEY_MODE: m->mode = mode_of(state, argument); return 0;
    case KEY_STATE:
        m->states[0] = command_number(state, argument, 0, UINT64_C(1) << 32);
        m->states_count = 1;
        return 0;
    case KEY_DRAINS: m->events[PLANNED_DRAIN] = events_of(state, argument); return 0;
    case KEY_ENDS: m->events[PLANNED_END] = events_of(state, argument); return 0;
    case KEY_RESTARTS: m->events[PLANNED_RESTART] = events_of(state, argument); return 0;
    case KEY_SEED: m->seed = command_number(state, argument, 0, UINT32_MAX); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print(const struct migrate *m, const struct migrate_cell *cell,
                  const struct migrate_row *row)
{
    const char *format =
        m->is_json
            ? "{\"mode\": \"%s\", \"transport\": \"%s\", \"durability\": \"%s\", "
              "\"state_bytes\": %llu, \"iteration_ms\": %.3f, \"aggregation_fraction\": %.3f, "
              "\"migrations\": %u, "
              "\"visible_pause_fraction\": %.4f, \"control_fraction\": %.4f, \"migration_ms\": "
              "%.3f, \"hidden_ms\": %.3f, \"failed_rounds\": %llu, \"wrong\": %llu}\n"
            : "%-14s %s, copies: %s, %9llu bytes of state: iteration %.1f ms (aggregation %.2f), "
              "%u migrations, "
              "visible pause %.4f of an iteration, %.4f without migrating; a migration %.1f ms, "
              "hidden %.1f ms; %llu rounds failed, %llu results wrong\n";
    printf(format, migrate_mode_name(cell->mode), cell->transport, durabilities[cell->durability],
           (unsigned long long)cell->state_bytes, row->iteration_ms, row->aggregation_fraction,
           row->migrations, row->visible_pause_fraction, row->control_fraction, row->migration_ms,
           row->hidden_ms, (unsigned long long)row->failed_rounds, (unsigned long long)row->wrong);
    fflush(stdout);
}

static int run_cell(struct migrate *m, enum migrate_mode mode, const char *transport,
                    uint64_t state_bytes, struct migrate_load *load)
{
    const struct migrate_cell cell = {mode,    transport,     state_bytes, m->durability,
                                      m->seed, m->migrations, load};
    struct migrate_row row;
    bool is_wanted = (!m->mode || strcmp(m->mode, migrate_mode_name(mode)) == 0) &&
                     (!m->transport || strcmp(m->transport, transport) == 0);
    int r = is_wanted ? migrate_run(&m->service, &cell, &row) : 0;
    if (r < 0 || !is_wanted)
        return r;
    m->failed += row.failed_rounds;
    m->wrong += row.wrong;
    print(m, &cell, &row);
    return 0;
}

static int run_all(struct migrate *m)
{
    int r = 0;
    for (size_t s = 0; r == 0 && s < m->states_count; s++)
        for (size_t t = 0; r == 0 && t < 2; t++) {
            struct migrate_load load = {0};
            for (int mode = 0; r == 0 && mode < MIGRATE_MODES; mode++)
                r = run_cell(m, (enum migrate_mode)mode, transports[t], m->states[s], &load);
        }
    return r;
}

static int start(struct migrate *m, const char *piece_max)
{
    int first = process_core(0), second = process_core(1);
    snprintf(m->cores, sizeof m->cores, first == second ? "%d" : "%d,%d", first, second);
    m->setting = (struct service_setting){.cores = m->cores,
                                          .lanes_per_core = first == second ? "2" : "1",
                                          .aggregators = "2",
                                          .scale = "off",
                                          .piece_max = piece_max,
                                          /* time that suffices for a late aggregator on a busy
                                           * machine */
                                          .aggregator_timeout = "10",
                                          /* The limit is high, because the state exists on both
                                           * lanes during a migration. */
                                          .job_memory_max = "2G",
                                          .lane_memory_max = "4G",
                                          /* jobs must continue after a restart */
                                          .stop = "service"};
    return service_start_as(&m->service, &m->setting);
}

static void print_planned(const struct migrate *m, enum planned_event event, const char *transport,
                          const struct planned_row *row)
{
    const char *format =
        m->is_json
            ? "{\"mode\": \"%s\", \"transport\": \"%s\", \"jobs\": %u, \"tasks\": %u, "
              "\"state_bytes\": %llu, \"events\": %u, \"iteration_ms\": %.3f, \"event_ms\": "
              "%.3f, \"longest_ms\": %.3f, \"control_ms\": %.3f, "
              "\"longest_fraction_median\": %.4f, \"longest_fraction_worst\": %.4f, "
              "\"control_fraction_median\": %.4f, \"control_fraction_worst\": %.4f, "
              "\"failed_rounds\": %llu, \"wrong\": %llu}\n"
            : "%s, %s: %u jobs, %u tasks, %llu bytes of state, %u events; iteration %.1f ms, an "
              "event %.1f ms; the longest iteration %.1f ms, without an event %.1f ms; the worst "
              "job's longest iteration over its median: %.4f (median of the events), %.4f (worst "
              "of them), without an event %.4f and %.4f; %llu rounds failed, %llu results wrong\n";
    printf(format, planned_event_name(event), transport, row->jobs, row->tasks,
           (unsigned long long)row->state_bytes, row->events, row->iteration_ms, row->event_ms,
           row->near.median_ms, row->control.median_ms, row->near.median, row->near.worst,
           row->control.median, row->control.worst, (unsigned long long)row->failed_rounds,
           (unsigned long long)row->wrong);
    fflush(stdout);
}

/* Measures planned events, on a separate service and without calibration of the jobs. */
static int run_planned(struct migrate *m, enum planned_event event, const char *transport)
{
    struct planned_row row;
    bool is_wanted = m->events[event] && (!m->transport || strcmp(m->transport, transport) == 0);
    int r = is_wanted ? start(m, PLANNED_PIECE_MAX) : 0;
    if (r < 0 || !is_wanted)
        return r;
    r = planned_run(&m->service, &m->setting, event, transport, m->events[event], &row);
    service_stop(&m->service);
    if (r < 0)
        return r;
    m->failed += row.failed_rounds;
    m->wrong += row.wrong;
    print_planned(m, event, transport, &row);
    return 0;
}

/* Prints the rows of single migrations, on one service. */
static int run_cells(struct migrate *m)
{
    int r = m->migrations ? start(m, NULL) : 0;
    if (r == 0 && m->migrations)
        r = run_all(m);
    service_stop(&m->service);
    return r;
}

int migrate_command(int argc, char **argv)
{
    static const uint64_t quick[] = {UINT64_C(64) << 20},
                          all[] = {0,        4096,     256 << 10,          4 << 20,
                                   16 << 20, 64 << 20, UINT64_C(400) << 20};
    struct migrate m = {.migrations = 20,
                        .events = {[PLANNED_DRAIN] = 10, [PLANNED_END] = 5, [PLANNED_RESTART] = 5},
                        .seed = 1,
                        .durability = GP_DURABILITY_NONE};
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Measure the pauses of a job in training when its tasks migrate to another aggregator. Two "
        "other modes stop all workers during the migration, or end the job and restart it there. A "
        "visible pause is the longest iteration near a migration minus the median iteration "
        "without one, divided by this median; the median over all migrations is printed. The "
        "control is the same figure without a migration. Iterations take 100 to 200 ms, of which "
        "aggregation takes a third. Then planned events are measured beside eight jobs whose "
        "tasks, with 78 MiB of parameters and moments, are all on one aggregator: a drain, an end "
        "by SIGTERM, and a restart of `serve'. The figures are the longest iteration in ms, and "
        "the longest iteration of the worst job divided by the median of that job. The command "
        "starts separate services.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &m);
    if (m.states_count == 0) {
        m.states_count = m.is_quick ? 1 : sizeof all / sizeof *all;
        memcpy(m.states, m.is_quick ? quick : all, m.states_count * sizeof *m.states);
    }
    int r = run_cells(&m);
    for (int event = 0; event < PLANNED_EVENTS; event++)
        for (size_t t = 0; r == 0 && t < 2; t++)
            r = run_planned(&m, (enum planned_event)event, transports[t]);
    return r < 0 || m.failed || m.wrong ? 1 : 0;
}
