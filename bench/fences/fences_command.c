/* `fences`: measures the effect of a hostile tenant on a victim and on visitors. Owns the service,
 * and the victims, which run during all turns. */
#include "bench/commands.h"
#include "bench/faults/hostility.h"
#include "bench/fences/fences.h"
#include "bench/fences/operator.h"
#include "bench/lib/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRANSPORTS 2
#define ROUNDS 4000 /* number of rounds of a turn; equal to SEAT_ROUNDS_MAX */
#define QUICK_ROUNDS 300
#define VISITS_EACH 20
#define QUICK_VISITS 3
#define BUSY 0.5 /* load average per core above which figures are not reliable */

struct fences {
    bool is_quick, is_json;
    /* names of the loads and the transport that are measured; NULL: all */
    const char *loads, *transport;
    uint32_t runs;
    char listen[HOSTILE_LISTEN_BYTES];
    char victim_key[KEY_PATH_BYTES], operator_key[KEY_PATH_BYTES];
    struct service service;
    struct victim victims[TRANSPORTS];
    struct fences_row rows[LOADS * TRANSPORTS];
    size_t rows_count;
    struct visited alone; /* visits without a load */
};

enum { KEY_QUICK = 1000, KEY_JSON, KEY_RUNS, KEY_LOAD, KEY_TRANSPORT };

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, 0, 0, "plans, lends and wide, one run of few rounds"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each figure: bench, name, value, bar, holds"},
    {"runs", KEY_RUNS, "N", 0,
     "number of turns beside each load, and beside its control (default 5)"},
    {"load", KEY_LOAD, "NAMES", 0,
     "only these loads, separated by commas: plans, lists, halves, ..."},
    {"transport", KEY_TRANSPORT, "KIND", 0, "transport of the victim: shm or tcp (default: both)"},
    {0},
};

/* Returns whether the list contains the name. NULL contains all names. */
static bool is_named(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    return !list;
}

static bool is_load(const char *name, size_t length)
{
    for (size_t i = 0; i < LOADS; i++)
        if (strlen(loads[i].name) == length && strncmp(loads[i].name, name, length) == 0)
            return true;
    return false;
}

static const char *check_loads(struct argp_state *state, const char *list)
{
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        if (!is_load(at, length))
            argp_error(state, "--load: there is no load '%.*s'", (int)length, at);
    }
    return list;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct fences *f = state->input;
    switch (key) {
    case KEY_QUICK: f->is_quick = true; return 0;
    case KEY_JSON: f->is_json = true; return 0;
    case KEY_RUNS: f->runs = (uint32_t)command_number(state, argument, 1, RUNS_MAX); return 0;
    case KEY_LOAD: f->loads = check_loads(state, argument); return 0;
    case KEY_TRANSPORT:
        if (strcmp(argument, "shm") != 0 && strcmp(argument, "tcp") != 0)
            argp_error(state, "--transport: shm or tcp, not '%s'", argument);
        f->transport = argument;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- one row --- */

static int measure_control(struct fences *f, struct victim *victim, struct fences_row *row,
                           uint32_t run)
{
    struct running_load running;
    uint64_t done;
    int r = load_begin(&running, &f->service, f->listen, row->load->control);
    if (r == 0)
        r = victim_measure(victim, f->is_quick ? QUICK_ROUNDS : ROUNDS, row->control_us[run],
                           &row->wrong);
    int end = load_end(&running, &done);
    return r < 0 ? r : end;
}

static uint32_t visits_each(const struct fences *f)
{
    return f->is_quick ? QUICK_VISITS : VISITS_EACH;
}

static int make_visits(const struct fences *f, struct visited *ret_visited)
{
    const struct visitor visitor = {&f->service, f->listen, f->victim_key, f->operator_key};
    return visits_make(&visitor, visits_each(f), ret_visited);
}

static int measure_beside(struct fences *f, struct victim *victim, struct fences_row *row,
                          uint32_t run, bool has_visits)
{
    struct running_load running;
    uint64_t done;
    int r = load_begin(&running, &f->service, f->listen, row->load->name);
    if (r == 0)
        r = victim_measure(victim, f->is_quick ? QUICK_ROUNDS : ROUNDS, row->beside_us[run],
                           &row->wrong);
    if (r == 0 && has_visits) {
        row->visits = visits_each(f);
        r = make_visits(f, &row->visited);
    }
    int end = load_end(&running, &done);
    row->done += done;
    return r < 0 ? r : end;
}

static int run_row(struct fences *f, const struct load *load, struct victim *victim,
                   bool has_visits)
{
    struct fences_row *row = &f->rows[f->rows_count];
    *row = (struct fences_row){.load = load, .transport = victim->transport, .runs = f->runs};
    int r = 0;
    for (uint32_t run = 0; r == 0 && run < f->runs; run++) {
        r = measure_control(f, victim, row, run);
        if (r == 0)
            r = measure_beside(f, victim, row, run, has_visits && run + 1 == f->runs);
    }
    if (r < 0) {
        fprintf(stderr, "gradpool-bench: beside %s over %s the victim could not be measured\n",
                load->name, victim->transport);
        return r;
    }
    f->rows_count++;
    fences_print_row(row, f->is_json);
    return 0;
}

/* --- the command --- */

static int start_victims(struct fences *f)
{
    int r = operator_add_tenant(&f->service, "victim", false, f->victim_key);
    if (r == 0)
        r = operator_add_tenant(&f->service, "operator", true, f->operator_key);
    for (size_t i = 0; r == 0 && i < TRANSPORTS; i++)
        if (is_named(f->transport, f->victims[i].transport))
            r = victim_start(&f->victims[i], &f->service, f->listen, f->victim_key);
    return r;
}

static int run_load(struct fences *f, const struct load *load)
{
    bool has_visits = true; /* visits to the coordinator do not depend on the transport */
    int r = 0;
    for (size_t i = 0; r == 0 && i < TRANSPORTS; i++) {
        if (!is_named(f->transport, f->victims[i].transport))
            continue;
        r = run_row(f, load, &f->victims[i], has_visits);
        has_visits = false;
    }
    return r;
}

static int run_all(struct fences *f)
{
    const char *wanted = f->loads ? f->loads : f->is_quick ? "plans,lends,wide" : NULL;
    int r = start_victims(f);
    if (r == 0)
        r = make_visits(f, &f->alone);
    if (r == 0)
        fences_print_begin(f->is_json);
    for (size_t i = 0; r == 0 && i < LOADS; i++)
        if (is_named(wanted, loads[i].name))
            r = run_load(f, &loads[i]);
    return r;
}

/* Warns if other processes use the cores, because such processes change both figures of a ratio and
 * delay visits. */
static void warn_of_others(void)
{
    double load = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&load, 1) == 1 && load > BUSY * (double)cores)
        fprintf(stderr,
                "# the host is busy: a load average of %.1f on %ld cores before the first turn\n",
                load, cores);
}

static int start_service(struct fences *f)
{
    char core[16];
    snprintf(core, sizeof core, "%d", process_core(0));
    hostile_find_listen(f->listen);
    return service_start_as(
        &f->service,
        &(struct service_setting){.cores = core, .lanes_per_core = "1", .listen = f->listen});
}

static bool is_wrong(const struct fences *f)
{
    uint64_t wrong = f->alone.failed;
    for (size_t i = 0; i < f->rows_count; i++)
        wrong += f->rows[i].wrong + f->rows[i].visited.failed;
    return wrong > 0;
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Measure the effect of a hostile tenant on others. Rounds of 4 KiB of a victim, over shared "
    "memory and TCP, are measured in alternate turns beside each attack of gradpool-bench-hostile "
    "and beside its control (a busy loop for attacks on the coordinator, 4 ordinary ranks for "
    "wide, otherwise nothing). Joins, requests for the status and changes of tenants are measured "
    "beside each attack. The command starts a separate service. Exit code 1: a result was wrong or "
    "a visit failed.",
    NULL,
    NULL,
    NULL};

int fences_command(int argc, char **argv)
{
    static struct fences f = {.victims = {{.transport = "shm"}, {.transport = "tcp"}}};
    argp_parse(&argp, argc, argv, 0, NULL, &f);
    if (f.runs == 0)
        f.runs = f.is_quick ? 1 : 5;
    warn_of_others();
    int r = start_service(&f);
    if (r == 0)
        r = run_all(&f);
    if (r == 0) {
        fences_print_visits(&f.alone, f.rows, f.rows_count, f.is_json);
        fences_print_end(f.rows, f.rows_count, f.is_json);
    }
    for (size_t i = 0; i < TRANSPORTS; i++)
        victim_end(&f.victims[i]);
    service_stop(&f.service);
    return r < 0 || is_wrong(&f);
}
