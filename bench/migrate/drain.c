/* Conducts drains of an aggregator with the tasks of eight jobs, from one aggregator to the other
 * and back, with the state of update rules. Owns the workers. Must never read the times of an
 * iteration before all workers have ended. */
#include "bench/migrate/drain.h"

#include "bench/migrate/ask.h"
#include "bench/migrate/crowd.h"
#include "bench/savings/look.h"
#include "bench/savings/statistics.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JOBS 8
#define WORKERS 2
#define STATE_TASKS 13 /* number of tasks with state in each job, 256 KiB of parameters each */
#define TASK_ELEMENTS (UINT64_C(64) << 10)
#define STATE_BYTES_PER_ELEMENT 12 /* Adam: parameters and two moments */
/* elements of the sum with which rank 0 sends the conductor's orders */
#define LOAD_ELEMENTS 1024
#define JOB_TASKS_MAX 64
/* Computing time of each iteration, a fixed value. It results in short iterations of 100 to 200 ms,
 * because a pause is a smaller fraction of a longer one (B15). */
#define COMPUTE_MS 100
#define WARM_ITERATIONS 6
#define DRAINS_MAX 64
#define NAMES_BYTES 16

struct window {
    uint32_t first[JOBS], last[JOBS]; /* numbers of iterations */
};

struct draining {
    const struct service *service;
    uint32_t lanes[2];
    struct crowd crowds[JOBS];
    char names[JOBS][NAMES_BYTES];
    struct window near[DRAINS_MAX], control[DRAINS_MAX];
    double drain_ms[DRAINS_MAX];
    uint32_t count, tasks;
};

static int start_job(struct draining *d, size_t job, const char *transport)
{
    snprintf(d->names[job], NAMES_BYTES, "drained-%zu", job);
    const struct trainee plan = {.endpoint = d->service->endpoint,
                                 .transport = transport,
                                 .job = d->names[job],
                                 .saved_path = "",
                                 .workers = WORKERS,
                                 .load_elements = LOAD_ELEMENTS,
                                 .part_elements = STATE_TASKS * TASK_ELEMENTS,
                                 .parts = 1,
                                 .compute_ns = COMPUTE_MS * NS_PER_MS,
                                 .seed = job};
    int r = crowd_start(&d->crowds[job], &plan);
    return r == 0 ? crowd_await(&d->crowds[job], 1) : r;
}

/* Counts the tasks that the service has made from the tensors. */
static int count_tasks(struct draining *d)
{
    for (size_t job = 0; job < JOBS; job++) {
        uint32_t tasks[JOB_TASKS_MAX];
        char name[NAMES_BYTES + 4];
        trainee_job_name(&d->crowds[job].plan, 0, name, sizeof name);
        int count = look_at_tasks(d->service, name, tasks, JOB_TASKS_MAX);
        if (count < 0)
            return count;
        d->tasks += (uint32_t)count;
    }
    return 0;
}

static void open_window(const struct draining *d, struct window *w)
{
    for (size_t job = 0; job < JOBS; job++)
        w->first[job] = crowd_iterations(&d->crowds[job]);
}

/* Ends a window after the iteration that follows the drain, which shows the cost of a new lane. */
static int close_window(struct draining *d, struct window *w)
{
    int r = 0;
    for (size_t job = 0; job < JOBS; job++)
        w->last[job] = crowd_iterations(&d->crowds[job]) + 1;
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = crowd_await(&d->crowds[job], w->last[job] + 2);
    return r;
}

static int drain_once(struct draining *d, uint32_t lane)
{
    struct window *near = &d->near[d->count], *control = &d->control[d->count];
    uint64_t begin_ns = clock_now_ns();
    open_window(d, near);
    int r = ask_drain(d->service, lane, false);
    d->drain_ms[d->count] = (double)(clock_now_ns() - begin_ns) / NS_PER_MS;
    if (r == 0)
        r = close_window(d, near);
    if (r == 0)
        r = ask_drain(d->service, lane, true);
    open_window(d, control);
    for (size_t job = 0; r == 0 && job < JOBS; job++) {
        uint32_t length = near->last[job] - near->first[job];
        control->last[job] = control->first[job] + length;
        r = crowd_await(&d->crowds[job], control->last[job] + 2);
    }
    d->count++;
    return r;
}

static int train(struct draining *d, const char *transport, uint32_t drains)
{
    int r = ask_lanes(d->service, d->lanes);
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = start_job(d, job, transport);
    if (r == 0)
        /* all tasks are on the other aggregator now */
        r = ask_drain(d->service, d->lanes[1], false);
    if (r == 0)
        r = ask_drain(d->service, d->lanes[1], true);
    if (r == 0)
        r = count_tasks(d);
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = crowd_await(&d->crowds[job], crowd_iterations(&d->crowds[job]) + WARM_ITERATIONS);
    for (uint32_t i = 0; r == 0 && i < drains && i < DRAINS_MAX; i++)
        r = drain_once(d, d->lanes[i % 2]);
    for (size_t job = 0; r == 0 && job < JOBS; job++)
        r = crowd_order(&d->crowds[job], TRAINEE_END);
    return r;
}

static double median_ms(const struct draining *d, size_t job)
{
    static double laps[TRAINEE_ITERATIONS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < d->count; i++)
        for (uint32_t n = d->control[i].first[job]; n <= d->control[i].last[job]; n++)
            laps[count++] = crowd_lap_ms(&d->crowds[job], n);
    return count ? statistics_quantile(laps, count, 0.5) : 1;
}

static double worst_fraction(const struct draining *d, const struct window *w,
                             const double *medians)
{
    double worst = 0;
    for (size_t job = 0; job < JOBS; job++)
        for (uint32_t n = w->first[job]; n <= w->last[job]; n++) {
            double fraction = crowd_lap_ms(&d->crowds[job], n) / medians[job];
            worst = fraction > worst ? fraction : worst;
        }
    return worst;
}

static struct drain_longest longest(const struct draining *d, const struct window *windows,
                                    const double *medians)
{
    double fractions[DRAINS_MAX];
    struct drain_longest result = {0};
    for (uint32_t i = 0; i < d->count; i++) {
        fractions[i] = worst_fraction(d, &windows[i], medians);
        result.worst = fractions[i] > result.worst ? fractions[i] : result.worst;
    }
    result.median = statistics_interval(fractions, d->count).median;
    return result;
}

static void reckon(struct draining *d, struct drain_row *row)
{
    double medians[JOBS];
    for (size_t job = 0; job < JOBS; job++) {
        int64_t wrong = crowd_count_wrong(&d->crowds[job]);
        medians[job] = median_ms(d, job);
        row->wrong += wrong < 0 ? 1 : (uint64_t)wrong;
        row->failed_rounds += crowd_failed(&d->crowds[job]);
    }
    row->jobs = JOBS;
    row->tasks = d->tasks;
    row->drains = d->count;
    row->state_bytes = JOBS * STATE_TASKS * TASK_ELEMENTS * STATE_BYTES_PER_ELEMENT;
    row->near = longest(d, d->near, medians);
    row->control = longest(d, d->control, medians);
    row->drain_ms = statistics_interval(d->drain_ms, d->count).median;
    row->iteration_ms = statistics_interval(medians, JOBS).median;
}

int drain_run(const struct service *service, const char *transport, uint32_t drains,
              struct drain_row *ret_row)
{
    struct draining *d = calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    d->service = service;
    int r = train(d, transport, drains);
    if (r == 0) {
        *ret_row = (struct drain_row){0};
        reckon(d, ret_row);
    }
    for (size_t job = 0; job < JOBS; job++)
        crowd_end(&d->crowds[job]);
    free(d);
    return r;
}
