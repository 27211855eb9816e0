/* `migrate`: options and rows. Owns the measured service. */
#include "bench/commands.h"
#include "bench/lib/host.h"
#include "bench/migrate/drain.h"
#include "bench/migrate/migrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATES_MAX 8

static const char *const durabilities[] = {[GP_DURABILITY_NONE] = "none",
                                           [GP_DURABILITY_REPLICA] = "replica",
                                           [GP_DURABILITY_WORKER] = "worker"};

struct migrate {
    struct service service;
    uint64_t states[STATES_MAX];
    size_t states_count;
    uint32_t migrations, drains;
    uint64_t seed;
    const char *transport, *mode;  /* NULL: all */
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
    KEY_DURABILITY
};

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "64 MiB of state alone"},
    {"json", KEY_JSON, 0, 0, "a line of JSON a row"},
    {"migrations", KEY_MIGRATIONS, "N", 0, "a row (default 20); 0: no rows but those of drains"},
    {"transport", KEY_TRANSPORT, "KIND", 0, "shm or tcp (default: both)"},
    {"mode", KEY_MODE, "MODE", 0, "live, stop-the-world or restart (default: all)"},
    {"state", KEY_STATE, "BYTES", 0, "of the job's tensors on its lanes; 0 is none"},
    {"durability", KEY_DURABILITY, "WHERE", 0,
     "copies of the state go: none, replica (another aggregator), worker (default: none)"},
    {"drains", KEY_DRAINS, "N", 0,
     "of an aggregator with all tasks and the state of 8 jobs (default 10)"},
    {"seed", KEY_SEED, "N", 0, "(default 1)"},
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
    case KEY_DRAINS: m->drains = (uint32_t)command_number(state, argument, 0, 64); return 0;
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
    static const char *const transports[] = {"shm", "tcp"};
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
    char cores[32];
    int first = process_core(0), second = process_core(1);
    snprintf(cores, sizeof cores, first == second ? "%d" : "%d,%d", first, second);
    return service_start_as(&m->service,
                            &(struct service_setting){.cores = cores,
                                                      .lanes_per_core = first == second ? "2" : "1",
                                                      .aggregators = "2",
                                                      .scale = "off",
                                                      .piece_max = piece_max,
                                                      /* long enough for a late aggregator on a busy
                                                       * machine */
                                                      .aggregator_timeout = "10",
                                                      /* During a migration the state exists on both
                                                       * lanes. */
                                                      .job_memory_max = "2G",
                                                      .lane_memory_max = "4G"});
}

static void print_drain(const struct migrate *m, const char *transport, const struct drain_row *row)
{
    const char *format =
        m->is_json
            ? "{\"mode\": \"drain\", \"transport\": \"%s\", \"jobs\": %u, \"tasks\": %u, "
              "\"state_bytes\": %llu, \"drains\": %u, \"iteration_ms\": %.3f, \"drain_ms\": "
              "%.3f, \"longest_fraction_median\": %.4f, \"longest_fraction_worst\": %.4f, "
              "\"control_fraction_median\": %.4f, \"control_fraction_worst\": %.4f, "
              "\"failed_rounds\": %llu, \"wrong\": %llu}\n"
            : "drain %s: %u jobs, %u tasks, %llu bytes of state, %u drains; iteration %.1f ms, a "
              "drain %.1f ms; the worst job's longest iteration over its median: %.4f (median of "
              "the drains), %.4f (worst of them), without draining %.4f and %.4f; %llu rounds "
              "failed, %llu results wrong\n";
    printf(format, transport, row->jobs, row->tasks, (unsigned long long)row->state_bytes,
           row->drains, row->iteration_ms, row->drain_ms, row->near.median, row->near.worst,
           row->control.median, row->control.worst, (unsigned long long)row->failed_rounds,
           (unsigned long long)row->wrong);
    fflush(stdout);
}

/* Runs on a separate service, without measurements of the jobs. */
static int run_drain(struct migrate *m, const char *transport)
{
    struct drain_row row;
    bool is_wanted = m->drains && (!m->transport || strcmp(m->transport, transport) == 0);
    int r = is_wanted ? start(m, DRAIN_PIECE_MAX) : 0;
    if (r < 0 || !is_wanted)
        return r;
    r = drain_run(&m->service, transport, m->drains, &row);
    service_stop(&m->service);
    if (r < 0)
        return r;
    m->failed += row.failed_rounds;
    m->wrong += row.wrong;
    print_drain(m, transport, &row);
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
    struct migrate m = {
        .migrations = 20, .drains = 10, .seed = 1, .durability = GP_DURABILITY_NONE};
    const struct argp argp = {
        options,
        parse,
        NULL,
        "What a job notices of its tasks going to another aggregator while it trains, beside "
        "stopping it meanwhile and beside ending it and starting it anew there. A visible pause "
        "is the longest iteration near a migration, less the median without, in parts of that: "
        "the median of all migrations. The control is the same where nothing migrates. Iterations "
        "take 100 to 200 ms, a third of them aggregation. At last an aggregator is drained that "
        "has all tasks of eight jobs, and 78 MiB of their parameters and moments: the worst job's "
        "longest iteration over its median. It starts its own services.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &m);
    if (m.states_count == 0) {
        m.states_count = m.is_quick ? 1 : sizeof all / sizeof *all;
        memcpy(m.states, m.is_quick ? quick : all, m.states_count * sizeof *m.states);
    }
    int r = run_cells(&m);
    if (r == 0)
        r = run_drain(&m, "shm");
    if (r == 0)
        r = run_drain(&m, "tcp");
    return r < 0 || m.failed || m.wrong ? 1 : 0;
}
