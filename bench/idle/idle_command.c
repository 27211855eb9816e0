/* `idle`: measures the cost of connected jobs without work. Owns a service and the crews of its
 * jobs. */
#include "bench/commands.h"
#include "bench/compare/systems.h"
#include "bench/lib/active.h"
#include "bench/lib/host.h"

#include "svc/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TENSOR_BYTES 4096
/* Time after the last round in which progress threads fall asleep and the last commits are sent. */
#define SETTLE_NS NS_PER_S

struct use {
    uint64_t lane_ns, coordinator_ns, client_ns, now_ns;
};

struct idle {
    uint32_t jobs, workers, seconds;
    /* transport of all jobs; NULL: the jobs alternate between both transports */
    const char *transport;
    bool is_json, is_active;
    struct service service;
    struct crew *crews;
    struct active active[2]; /* active jobs over shm and over tcp */
    struct use first, last;
};

enum { KEY_JOBS = 1000, KEY_WORKERS, KEY_SECONDS, KEY_TRANSPORT, KEY_ACTIVE, KEY_JSON };

static const struct argp_option options[] = {
    {"jobs", KEY_JOBS, "N", 0, "number of connected jobs (default 100)"},
    {"workers", KEY_WORKERS, "N", 0, "number of workers of each job, one process each (default 2)"},
    {"seconds", KEY_SECONDS, "S", 0, "length of the measurement (default 10)"},
    {"transport", KEY_TRANSPORT, "KIND", 0, "shm or tcp (default: the jobs alternate)"},
    {"active", KEY_ACTIVE, 0, 0,
     "also measure the rounds of an active job, among the idle jobs and without them"},
    {"json", KEY_JSON, 0, 0, "the last line is JSON"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct idle *o = state->input;
    switch (key) {
    case KEY_JOBS: o->jobs = (uint32_t)command_number(state, argument, 1, 10000); return 0;
    case KEY_WORKERS:
        o->workers = (uint32_t)command_number(state, argument, 1, CREW_WORKERS_MAX);
        return 0;
    case KEY_SECONDS: o->seconds = (uint32_t)command_number(state, argument, 1, 86400); return 0;
    case KEY_JSON: o->is_json = true; return 0;
    case KEY_ACTIVE: o->is_active = true; return 0;
    case KEY_TRANSPORT:
        if (strcmp(argument, "shm") != 0 && strcmp(argument, "tcp") != 0)
            argp_error(state, "--transport: shm or tcp, not '%s'", argument);
        o->transport = argument;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Runs some rounds of a job, so that the bench measures an idle job that has been in use. */
static int run_some_rounds(struct crew *crew)
{
    uint64_t round_ns[2 * CREW_WORKERS_MAX];
    struct segment segment = {.rounds = 2, .round_ns = round_ns};
    int r = crew_await(crew);
    if (r == 0)
        r = crew_resize(crew, TENSOR_BYTES, 1);
    return r < 0 ? r : crew_run(crew, &segment);
}

static int connect_all(struct idle *o)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < o->jobs; i++) {
        const char *transport = o->transport ? o->transport : i % 2 ? "tcp" : "shm";
        r = crew_start(&o->crews[i], system_find("gradpool", transport), &o->service, o->workers);
    }
    for (uint32_t i = 0; r == 0 && i < o->jobs; i++)
        r = run_some_rounds(&o->crews[i]);
    return r;
}

static struct use look(const struct idle *o)
{
    struct use use = {service_lanes_cpu_ns(&o->service), service_coordinator_cpu_ns(&o->service), 0,
                      clock_now_ns()};
    for (uint32_t i = 0; i < o->jobs; i++)
        use.client_ns += crew_children_cpu_ns(&o->crews[i]);
    return use;
}

static void rest(uint64_t ns)
{
    const struct timespec nap = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    nanosleep(&nap, NULL);
}

static void print(const struct idle *o)
{
    const struct use *a = &o->first, *b = &o->last;
    double wall_ns = (double)(b->now_ns - a->now_ns);
    const char *format =
        o->is_json ? "{\"jobs\": %u, \"workers\": %u, \"seconds\": %.3f, \"lane_cpu_fraction\": "
                     "%.6f, \"coordinator_cpu_fraction\": %.6f, \"client_cpu_fraction\": %.6f}\n"
                   : "%u jobs, %u workers, idle for %.1f s: lane %.6f, coordinator %.6f, workers "
                     "%.6f of a core\n";
    printf(format, o->jobs, o->jobs * o->workers, wall_ns / 1e9,
           (double)(b->lane_ns - a->lane_ns) / wall_ns,
           (double)(b->coordinator_ns - a->coordinator_ns) / wall_ns,
           (double)(b->client_ns - a->client_ns) / wall_ns);
}

static void end_all(struct idle *o)
{
    for (uint32_t i = 0; i < o->jobs; i++) {
        if (o->crews[i].system)
            crew_end(&o->crews[i]);
        o->crews[i].system = NULL;
    }
}

static int watch(struct idle *o)
{
    int r = connect_all(o);
    if (r < 0)
        return r;
    rest(SETTLE_NS);
    o->first = look(o);
    rest(o->seconds * NS_PER_S);
    o->last = look(o);
    return 0;
}

static int measure_active(struct idle *o, double ret_p50_us[2])
{
    int r = 0;
    for (int i = 0; r == 0 && i < 2; i++)
        r = active_measure(&o->active[i], &ret_p50_us[i]);
    return r;
}

static void print_active(const struct idle *o)
{
    const char *format = o->is_json ? "{\"active\": \"%s\", \"idle_jobs\": %u, \"alone_us_p50\": "
                                      "%.1f, \"among_us_p50\": %.1f, \"ratio\": %.3f}\n"
                                    : "an active job over %s among %u idle ones: a round takes "
                                      "%.1f us alone, %.1f us among them, ratio %.3f\n";
    for (int i = 0; i < 2; i++) {
        const struct active *a = &o->active[i];
        printf(format, a->transport, o->jobs, a->alone_us, a->among_us, a->among_us / a->alone_us);
    }
}

/* Measures the active job among the idle jobs, and without idle jobs before and after this time.
 * The mean of the last two measurements excludes changes of the machine. */
static int watch_beside_active(struct idle *o)
{
    double before[2], among[2], after[2];
    int r = 0;
    for (int i = 0; r == 0 && i < 2; i++)
        r = active_start(&o->active[i], &o->service);
    if (r == 0)
        r = measure_active(o, before);
    if (r == 0)
        r = watch(o);
    if (r == 0)
        r = measure_active(o, among);
    end_all(o);
    if (r == 0)
        r = measure_active(o, after);
    for (int i = 0; r == 0 && i < 2; i++) {
        o->active[i].alone_us = (before[i] + after[i]) / 2;
        o->active[i].among_us = among[i];
    }
    if (r == 0)
        print_active(o);
    return r;
}

static int measure(struct idle *o)
{
    int r = service_start(&o->service);
    if (r == 0)
        r = o->is_active ? watch_beside_active(o) : watch(o);
    if (r == 0)
        print(o);
    end_all(o);
    for (int i = 0; i < 2; i++)
        active_end(&o->active[i]);
    service_stop(&o->service);
    return r;
}

int idle_command(int argc, char **argv)
{
    struct idle o = {.jobs = 100,
                     .workers = 2,
                     .seconds = 10,
                     .active = {{.transport = "shm"}, {.transport = "tcp"}}};
    const struct argp argp = {options,
                              parse,
                              NULL,
                              "Measure the cost of connected jobs that are idle: CPU time of the "
                              "lane's process, of the coordinator and of all workers, as fractions "
                              "of a core. The command starts a separate service.",
                              NULL,
                              NULL,
                              NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    o.crews = calloc(o.jobs, sizeof *o.crews);
    process_core(0);
    int r = o.crews ? measure(&o) : -1;
    free(o.crews);
    return r < 0 ? 1 : 0;
}
