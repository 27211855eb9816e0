/* Conducts planned events beside eight jobs whose tasks, with the state of update rules, are all on
 * one aggregator. Owns the workers. Must never read the times of an iteration before all workers
 * have ended. */
#include "bench/migrate/planned.h"

#include "bench/lib/host.h"
#include "bench/migrate/ask.h"
#include "bench/migrate/crowd.h"
#include "bench/savings/look.h"
#include "bench/savings/statistics.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JOBS 8
#define WORKERS 2
/* number of tasks with state in each job; each task has 256 KiB of parameters */
#define STATE_TASKS 13
#define TASK_ELEMENTS (UINT64_C(64) << 10)
#define STATE_BYTES_PER_ELEMENT 12 /* Adam: parameters and two moments */
/* elements of the sum with which rank 0 sends the conductor's orders */
#define LOAD_ELEMENTS 1024
#define JOB_TASKS_MAX 64
/* Computing time of each iteration, a fixed value. With this time an iteration takes 100 to 200 ms.
 * Longer iterations would make each pause a smaller fraction (B15). */
#define COMPUTE_MS 100
#define WARM_ITERATIONS 6
#define EVENTS_MAX 64
#define END_NS (60 * NS_PER_S)   /* longest time until a process of the service has ended */
#define END_AGAIN_NS (NS_PER_MS) /* time between two checks */
#define NAMES_BYTES 16

struct window {
    uint32_t first[JOBS], last[JOBS]; /* first and last iteration of the window, for each job */
};

struct planned {
    struct service *service;
    const struct service_setting *setting;
    enum planned_event event;
    uint32_t lanes[2];
    struct crowd crowds[JOBS];
    char names[JOBS][NAMES_BYTES];
    struct window near[EVENTS_MAX], control[EVENTS_MAX];
    double event_ms[EVENTS_MAX];
    uint32_t count, tasks;
};

static int start_job(struct planned *p, size_t job, const char *transport)
{
    snprintf(p->names[job], NAMES_BYTES, "planned-%zu", job);
    const struct trainee plan = {.endpoint = p->service->endpoint,
                                 .transport = transport,
                                 .job = p->names[job],
                                 .saved_path = "",
                                 .workers = WORKERS,
                                 .load_elements = LOAD_ELEMENTS,
                                 .part_elements = STATE_TASKS * TASK_ELEMENTS,
                                 .parts = 1,
                                 .compute_ns = COMPUTE_MS * NS_PER_MS,
                                 .seed = job};
    int r = crowd_start(&p->crowds[job], &plan);
    return r == 0 ? crowd_await(&p->crowds[job], 1) : r;
}

/* Counts the tasks that the service has made from the tensors. */
static int count_tasks(struct planned *p)
{
    for (size_t job = 0; job < JOBS; job++) {
        uint32_t tasks[JOB_TASKS_MAX];
        char name[NAMES_BYTES + 4];
        trainee_job_name(&p->crowds[job].plan, 0, name, sizeof name);
        int count = look_at_tasks(p->service, name, tasks, JOB_TASKS_MAX);
        if (count < 0)
            return count;
        p->tasks += (uint32_t)count;
    }
    return 0;
}

static void open_window(const struct planned *p, struct window *w)
{
    for (size_t job = 0; job < JOBS; job++)
        w->first[job] = crowd_iterations(&p->crowds[job]);
}

/* Ends a window after the iteration that follows the event, because this iteration shows the
 * cost of the new lane. */
static int close_window(struct planned *p, struct window *w)
{
    int r = 0;
    for (size_t job = 0; job < JOBS; job++)
        w->last[job] = crowd_iterations(&p->crowds[job]) + 1;
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = crowd_await(&p->crowds[job], w->last[job] + 2);
    return r;
}

/* --- the events --- */

static int drain_lane(struct planned *p)
{
    return ask_drain(p->service, p->lanes[p->count % 2], false);
}

static int open_lane(struct planned *p)
{
    return ask_drain(p->service, p->lanes[p->count % 2], true);
}

/* Finds the aggregator whose lane has tasks. Aggregators and lanes are in the same order. */
static pid_t find_busy(const struct planned *p)
{
    static struct look look;
    pid_t pids[SERVICE_PROCESSES_MAX];
    int count = look_at_aggregators(p->service, pids, SERVICE_PROCESSES_MAX);
    int r = count < 0 ? count : look_at_lanes(p->service, &look);
    for (size_t i = 0; r == 0 && i < look.lanes_count && i < (size_t)count; i++)
        if (look.lanes[i].tasks > 0)
            return pids[i];
    return r < 0 ? r : -ESRCH;
}

static int await_end(pid_t pid)
{
    const struct timespec again = {0, END_AGAIN_NS};
    uint64_t deadline_ns = clock_now_ns() + END_NS;
    while (kill(pid, 0) == 0) {
        if (clock_now_ns() > deadline_ns) {
            fprintf(stderr, "gradpool-bench: aggregator %d does not end\n", pid);
            return -ETIMEDOUT;
        }
        nanosleep(&again, NULL);
    }
    return 0;
}

static int end_aggregator(struct planned *p)
{
    pid_t pid = find_busy(p);
    if (pid < 0) {
        fprintf(stderr, "gradpool-bench: no aggregator has all tasks\n");
        return pid;
    }
    kill(pid, SIGTERM);
    return await_end(pid);
}

static int await_lanes(struct planned *p) { return ask_lanes(p->service, p->lanes); }

static int restart_serve(struct planned *p)
{
    kill(p->service->coordinator, SIGTERM);
    int status = process_reap(p->service->coordinator, clock_now_ns() + END_NS);
    p->service->coordinator = 0;
    if (status != 0) {
        fprintf(stderr, "gradpool-bench: serve ended with %d after SIGTERM\n", status);
        return -EIO;
    }
    return service_start_again(p->service, p->setting);
}

static const struct {
    const char *name;
    int (*happen)(struct planned *p);
    int (*settle)(struct planned *p); /* restores the service after the window */
} events[PLANNED_EVENTS] = {
    [PLANNED_DRAIN] = {"drain", drain_lane, open_lane},
    [PLANNED_END] = {"end-aggregator", end_aggregator, await_lanes},
    [PLANNED_RESTART] = {"restart-serve", restart_serve, await_lanes},
};

const char *planned_event_name(enum planned_event event) { return events[event].name; }

/* Records a window without an event, as long as the window `near` with the event. */
static int run_control(struct planned *p, const struct window *near, struct window *control)
{
    int r = 0;
    open_window(p, control);
    for (size_t job = 0; r == 0 && job < JOBS; job++) {
        control->last[job] = control->first[job] + near->last[job] - near->first[job];
        r = crowd_await(&p->crowds[job], control->last[job] + 2);
    }
    return r;
}

static int run_event(struct planned *p)
{
    struct window *near = &p->near[p->count], *control = &p->control[p->count];
    uint64_t begin_ns = clock_now_ns();
    open_window(p, near);
    int r = events[p->event].happen(p);
    p->event_ms[p->count] = (double)(clock_now_ns() - begin_ns) / NS_PER_MS;
    if (r == 0)
        r = close_window(p, near);
    if (r == 0)
        r = events[p->event].settle(p);
    if (r == 0)
        r = run_control(p, near, control);
    p->count++;
    return r;
}

/* Starts the jobs and brings all tasks to one aggregator. */
static int start_jobs(struct planned *p, const char *transport)
{
    int r = await_lanes(p);
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = start_job(p, job, transport);
    if (r == 0)
        r = ask_drain(p->service, p->lanes[1], false);
    if (r == 0)
        r = ask_drain(p->service, p->lanes[1], true);
    if (r == 0)
        r = count_tasks(p);
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = crowd_await(&p->crowds[job], crowd_iterations(&p->crowds[job]) + WARM_ITERATIONS);
    return r;
}

static int train(struct planned *p, const char *transport, uint32_t count)
{
    int r = start_jobs(p, transport);
    for (uint32_t i = 0; r == 0 && i < count && i < EVENTS_MAX; i++)
        r = run_event(p);
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = crowd_order(&p->crowds[job], TRAINEE_END);
    return r;
}

/* --- the results --- */

static double median_ms(const struct planned *p, size_t job)
{
    static double laps[TRAINEE_ITERATIONS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < p->count; i++)
        for (uint32_t n = p->control[i].first[job]; n <= p->control[i].last[job]; n++)
            laps[count++] = crowd_lap_ms(&p->crowds[job], n);
    return count ? statistics_quantile(laps, count, 0.5) : 1;
}

/* Returns the longest iteration of a window. The length of an iteration in ms is divided by the
 * value of its job in `units`. */
static double worst_lap(const struct planned *p, const struct window *w, const double *units)
{
    double worst = 0;
    for (size_t job = 0; job < JOBS; job++)
        for (uint32_t n = w->first[job]; n <= w->last[job]; n++) {
            double lap = crowd_lap_ms(&p->crowds[job], n) / units[job];
            worst = lap > worst ? lap : worst;
        }
    return worst;
}

static struct planned_longest longest(const struct planned *p, const struct window *windows,
                                      const double *medians)
{
    static const double ms[JOBS] = {1, 1, 1, 1, 1, 1, 1, 1};
    double fractions[EVENTS_MAX], laps_ms[EVENTS_MAX];
    struct planned_longest result = {0};
    for (uint32_t i = 0; i < p->count; i++) {
        fractions[i] = worst_lap(p, &windows[i], medians);
        laps_ms[i] = worst_lap(p, &windows[i], ms);
        result.worst = fractions[i] > result.worst ? fractions[i] : result.worst;
    }
    result.median = statistics_interval(fractions, p->count).median;
    result.median_ms = statistics_interval(laps_ms, p->count).median;
    return result;
}

static void reckon(struct planned *p, struct planned_row *row)
{
    double medians[JOBS];
    for (size_t job = 0; job < JOBS; job++) {
        int64_t wrong = crowd_count_wrong(&p->crowds[job]);
        medians[job] = median_ms(p, job);
        row->wrong += wrong < 0 ? 1 : (uint64_t)wrong;
        row->failed_rounds += crowd_failed(&p->crowds[job]);
    }
    row->jobs = JOBS;
    row->tasks = p->tasks;
    row->events = p->count;
    row->state_bytes = JOBS * STATE_TASKS * TASK_ELEMENTS * STATE_BYTES_PER_ELEMENT;
    row->near = longest(p, p->near, medians);
    row->control = longest(p, p->control, medians);
    row->event_ms = statistics_interval(p->event_ms, p->count).median;
    row->iteration_ms = statistics_interval(medians, JOBS).median;
}

int planned_run(struct service *service, const struct service_setting *setting,
                enum planned_event event, const char *transport, uint32_t count,
                struct planned_row *ret_row)
{
    struct planned *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->service = service;
    p->setting = setting;
    p->event = event;
    int r = train(p, transport, count);
    if (r == 0) {
        *ret_row = (struct planned_row){0};
        reckon(p, ret_row);
    }
    for (size_t job = 0; job < JOBS; job++)
        crowd_end(&p->crowds[job]);
    free(p);
    return r;
}
