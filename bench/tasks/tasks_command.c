/* `tasks`: measures the memory of a coordinator with very many tasks, and the time until a new job
 * is placed beside them. Owns a service and the jobs. All ranks of the jobs are in this process,
 * and push nothing. */
#include "bench/commands.h"
#include "bench/lib/host.h"
#include "bench/lib/own_service.h"
#include "bench/savings/statistics.h"

#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TASK_ELEMENTS (UINT64_C(1) << 20) /* 4 MiB of f32, the maximum size of a task */

struct tasks {
    uint32_t jobs, tasks_per_job, newcomers, newcomer_tasks, seconds;
    bool is_json;
    struct service service;
    gp_client *client;
    gp_job **held;
    double *waits_ms; /* waiting times of the new jobs */
    uint64_t resting_ns, watched_ns;
    uint64_t coordinator_before, coordinator_after, lane_before, lane_after; /* resident bytes */
    uint64_t placing_ns; /* CPU time in which the coordinator placed all present tasks */
};

enum { KEY_JOBS = 1000, KEY_TASKS, KEY_NEWCOMERS, KEY_NEWCOMER_TASKS, KEY_SECONDS, KEY_JSON };

static const struct argp_option options[] = {
    {"jobs", KEY_JOBS, "N", 0, "number of jobs that stay (default 1000)"},
    {"tasks", KEY_TASKS, "N", 0, "number of tasks of 4 MiB of each of these jobs (default 100)"},
    {"newcomers", KEY_NEWCOMERS, "N", 0,
     "number of jobs that join and leave beside them (default 200)"},
    {"newcomer-tasks", KEY_NEWCOMER_TASKS, "N", 0,
     "number of tasks of each of these new jobs (default 200)"},
    {"seconds", KEY_SECONDS, "S", 0,
     "length of the measurement of the service at rest (default 10)"},
    {"json", KEY_JSON, 0, 0, "the last line is JSON"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct tasks *o = state->input;
    switch (key) {
    case KEY_JOBS: o->jobs = (uint32_t)command_number(state, argument, 1, 1000); return 0;
    case KEY_TASKS:
        o->tasks_per_job = (uint32_t)command_number(state, argument, 1, 100000);
        return 0;
    case KEY_NEWCOMERS:
        o->newcomers = (uint32_t)command_number(state, argument, 1, 100000);
        return 0;
    case KEY_NEWCOMER_TASKS:
        o->newcomer_tasks = (uint32_t)command_number(state, argument, 1, 100000);
        return 0;
    case KEY_SECONDS: o->seconds = (uint32_t)command_number(state, argument, 1, 3600); return 0;
    case KEY_JSON: o->is_json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int complain(int code)
{
    if (code < 0)
        fprintf(stderr, "gradpool-bench tasks: %s\n", gp_last_error());
    return code;
}

/* Declares one tensor, which the service cuts into tasks. `ret_wait_ns` (may be NULL): time until
 * its placement. */
static int place_job(struct tasks *o, const char *kind, uint32_t number, uint32_t tasks,
                     gp_job **ret_job, uint64_t *ret_wait_ns)
{
    char name[48];
    gp_tensor *tensor;
    snprintf(name, sizeof name, "%s-%u", kind, number);
    int r = gp_job_join(o->client, &(gp_job_spec){.name = name, .workers = 1}, ret_job);
    if (r < 0)
        return complain(r);
    uint64_t began_ns = clock_now_ns();
    r = gp_tensor_declare(*ret_job, "model", GP_F32, tasks * TASK_ELEMENTS, &tensor);
    if (ret_wait_ns)
        *ret_wait_ns = clock_now_ns() - began_ns;
    return complain(r);
}

static int hold_jobs(struct tasks *o)
{
    int r = 0;
    uint64_t before_ns = service_coordinator_cpu_ns(&o->service);
    for (uint32_t i = 0; r == 0 && i < o->jobs; i++)
        r = place_job(o, "held", i, o->tasks_per_job, &o->held[i], NULL);
    o->placing_ns = service_coordinator_cpu_ns(&o->service) - before_ns;
    return r;
}

static int see_newcomers(struct tasks *o)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < o->newcomers; i++) {
        gp_job *job = NULL;
        uint64_t wait_ns = 0;
        r = place_job(o, "newcomer", i, o->newcomer_tasks, &job, &wait_ns);
        gp_job_leave(job);
        o->waits_ms[i] = (double)wait_ns / NS_PER_MS;
    }
    return r;
}

static void rest(struct tasks *o)
{
    uint64_t before_ns = service_coordinator_cpu_ns(&o->service), began_ns = clock_now_ns();
    const struct timespec nap = {o->seconds, 0};
    nanosleep(&nap, NULL);
    o->resting_ns = service_coordinator_cpu_ns(&o->service) - before_ns;
    o->watched_ns = clock_now_ns() - began_ns;
}

static void print(const struct tasks *o)
{
    double tasks = (double)o->jobs * o->tasks_per_job;
    double p50 = statistics_quantile(o->waits_ms, o->newcomers, 0.50);
    double p99 = statistics_quantile(o->waits_ms, o->newcomers, 0.99);
    double coordinator = (double)(o->coordinator_after - o->coordinator_before) / tasks;
    double lane = (double)(o->lane_after - o->lane_before) / tasks;
    double placing_us = (double)o->placing_ns / 1e3 / tasks;
    double resting = (double)o->resting_ns / (double)o->watched_ns;
    if (o->is_json)
        printf("{\"tasks\": %.0f, \"jobs\": %u, \"coordinator_bytes_per_task\": %.1f, "
               "\"lane_bytes_per_task\": %.1f, \"placing_cpu_us_per_task\": %.3f, "
               "\"resting_cpu_fraction\": %.6f, \"newcomer_tasks\": %u, \"place_ms_p50\": %.3f, "
               "\"place_ms_p99\": %.3f}\n",
               tasks, o->jobs, coordinator, lane, placing_us, resting, o->newcomer_tasks, p50, p99);
    else
        printf("%.0f tasks of %u jobs: %.0f bytes of the coordinator and %.0f of the lane a task, "
               "%.2f us of CPU to place one;\nat rest %.6f of a core. A new job of %u tasks has "
               "its place after %.2f ms (p50), %.2f ms (p99)\n",
               tasks, o->jobs, coordinator, lane, placing_us, resting, o->newcomer_tasks, p50, p99);
}

static int measure(struct tasks *o)
{
    int r = service_start(&o->service);
    if (r == 0)
        r = complain(gp_connect(o->service.endpoint, NULL, &o->client));
    if (r == 0) {
        o->coordinator_before = process_resident_bytes(o->service.coordinator);
        o->lane_before = process_resident_bytes(o->service.aggregators[0]);
        r = hold_jobs(o);
    }
    if (r == 0) {
        o->coordinator_after = process_resident_bytes(o->service.coordinator);
        o->lane_after = process_resident_bytes(o->service.aggregators[0]);
        r = see_newcomers(o);
    }
    if (r == 0) {
        rest(o);
        print(o);
    }
    gp_disconnect(o->client);
    service_stop(&o->service);
    return r;
}

int tasks_command(int argc, char **argv)
{
    struct tasks o = {
        .jobs = 1000, .tasks_per_job = 100, .newcomers = 200, .newcomer_tasks = 200, .seconds = 10};
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Measure the memory and the CPU time at rest of a service with very many tasks, and the "
        "time until a new job is placed: from its declare to the answer, including the store and "
        "the lane. Nothing is pushed. The command starts a separate service with one lane.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    o.held = calloc(o.jobs, sizeof *o.held);
    o.waits_ms = calloc(o.newcomers, sizeof *o.waits_ms);
    int r = o.held && o.waits_ms ? measure(&o) : -1;
    free(o.held);
    free(o.waits_ms);
    return r < 0 ? 1 : 0;
}
