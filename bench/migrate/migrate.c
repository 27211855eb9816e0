/* Conducts one cell of `migrate`: calibrates a job, trains it, migrates its tasks repeatedly, and
 * records the iterations near each migration. Windows with and without a migration alternate. Owns
 * the job's workers. Two windows must never share an iteration. */
#include "bench/migrate/migrate.h"

#include "bench/migrate/ask.h"
#include "bench/migrate/crowd.h"
#include "bench/migrate/reckon.h"
#include "bench/savings/statistics.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORKERS 2
#define STATE_BYTES_PER_ELEMENT 12 /* parameters and two moments (Adam) */
/* A larger state is cut into parts of this size. Each iteration trains only one part, so that
 * iterations are short. */
#define PART_STATE_BYTES (UINT64_C(64) << 20)
#define PROBE_ITERATIONS 5
#define PROBE_ELEMENTS (UINT64_C(1) << 20)
#define LOAD_ELEMENTS_MAX (double)(UINT64_C(48) << 20)
/* computing time of the first measurement: longer than the check of results, which runs in this
 * time */
#define PROBE_COMPUTE_MS 100
#define PROBES_MAX 4
#define GROWTH_MAX 8.0      /* largest growth of the load between two measurements */
#define AGGREGATION_MS 60.0 /* aggregation time that the calibration aims at */
#define ITERATION_MS 185.0  /* longest desired iteration */

struct conductor {
    const struct service *service;
    const struct migrate_cell *cell;
    struct crowd crowd;
    struct trainee plan;
    char saved_path[PATH_MAX + 16];
    uint32_t lanes[2], restarts;
    struct migrate_window windows[RECKON_WINDOWS_MAX];
    size_t windows_count;
    unsigned random;
};

const char *migrate_mode_name(enum migrate_mode mode)
{
    static const char *const names[] = {"live", "stop-the-world", "restart"};
    return names[mode];
}

/* --- the service --- */

/* Moves all tasks of the plan's job. */
static int move_to(const struct conductor *c, const struct trainee *plan, size_t lane)
{
    char job[64], number[16];
    trainee_job_name(plan, c->restarts, job, sizeof job);
    snprintf(number, sizeof number, "%u", c->lanes[lane]);
    return ask_service(c->service, "move", job, number);
}

/* --- windows --- */

static void nap(struct conductor *c)
{
    c->random = c->random * 1103515245u + 12345u;
    uint64_t ns = (c->random >> 8) % (uint64_t)(ITERATION_MS * NS_PER_MS);
    const struct timespec at = {0, (long)ns};
    nanosleep(&at, NULL);
}

static int migrate_live(struct conductor *c, struct migrate_window *w, size_t lane)
{
    uint64_t begin_ns = clock_now_ns();
    int r = move_to(c, &c->plan, lane);
    w->answer_ms = (double)(clock_now_ns() - begin_ns) / NS_PER_MS;
    return r;
}

/* Stops all workers. The pause begins when the order arrives at the job, because the job trains
 * until then. */
static int stop_all(struct conductor *c, struct migrate_window *w, enum trainee_order order)
{
    int r = crowd_order(&c->crowd, order);
    w->stands = true;
    w->stood_in = crowd_iterations(&c->crowd);
    return r;
}

static int migrate_stopped(struct conductor *c, struct migrate_window *w, size_t lane)
{
    int r = stop_all(c, w, TRAINEE_PAUSE);
    if (r == 0)
        r = move_to(c, &c->plan, lane);
    return r < 0 ? r : crowd_go_on(&c->crowd);
}

/* Restarts the job on the other lane. Drains the former lane first, so that the new job is placed
 * on the other one. */
static int migrate_by_restart(struct conductor *c, struct migrate_window *w, size_t lane)
{
    int r = stop_all(c, w, TRAINEE_RESTART);
    c->restarts++;
    if (r == 0)
        r = ask_drain(c->service, c->lanes[1 - lane], false);
    if (r == 0)
        r = crowd_go_on(&c->crowd);
    if (r == 0)
        r = crowd_await(&c->crowd, crowd_iterations(&c->crowd) + 2);
    return r < 0 ? r : ask_drain(c->service, c->lanes[1 - lane], true);
}

static struct migrate_window *add_window(struct conductor *c)
{
    struct migrate_window *w = &c->windows[c->windows_count++];
    *w = (struct migrate_window){.first = crowd_iterations(&c->crowd)};
    return w;
}

/* Ends a window after the iteration that follows the migration, because this iteration shows the
 * cost of the new lane. */
static int close_window(struct conductor *c, struct migrate_window *w)
{
    w->last = crowd_iterations(&c->crowd) + 1;
    return crowd_await(&c->crowd, w->last + 2);
}

typedef int (*migrate_fn)(struct conductor *c, struct migrate_window *w, size_t lane);

static int migrate_once(struct conductor *c, size_t lane)
{
    static const migrate_fn ways[] = {migrate_live, migrate_stopped, migrate_by_restart};
    struct migrate_window *w = add_window(c);
    w->migrates = true;
    int r = ways[c->cell->mode](c, w, lane);
    return r < 0 ? r : close_window(c, w);
}

/* Records a window as long as the last one, with a command that has no effect. */
static int watch_once(struct conductor *c)
{
    const struct migrate_window *before = &c->windows[c->windows_count - 1];
    uint32_t length = before->last - before->first;
    struct migrate_window *w = add_window(c);
    int r = ask_service(c->service, "status", NULL, NULL);
    if (r < 0)
        return r;
    w->last = w->first + length;
    return crowd_await(&c->crowd, w->last + 2);
}

static int train(struct conductor *c)
{
    int r = crowd_start(&c->crowd, &c->plan);
    if (r == 0)
        r = crowd_await(&c->crowd, 1);
    if (r == 0)
        r = move_to(c, &c->plan, 0);
    if (r == 0)
        r = crowd_await(&c->crowd, crowd_iterations(&c->crowd) + RECKON_WARM);
    for (uint32_t i = 0; r == 0 && i < c->cell->migrations; i++) {
        nap(c);
        r = migrate_once(c, (i + 1) % 2);
        nap(c);
        if (r == 0)
            r = watch_once(c);
    }
    int end = crowd_order(&c->crowd, TRAINEE_END);
    return r < 0 ? r : end;
}

/* --- calibrating --- */

static double median_aggregation(const struct crowd *c, uint32_t first)
{
    double ms[PROBE_ITERATIONS];
    for (uint32_t i = 0; i < PROBE_ITERATIONS; i++)
        ms[i] = crowd_aggregation_ms(c, first + i);
    return statistics_quantile(ms, PROBE_ITERATIONS, 0.5);
}

/* Measures the aggregation time on one lane, with the settings of the run. */
static int probe(struct conductor *c, uint64_t elements, double *ret_ms)
{
    struct trainee plan = c->plan;
    plan.job = "probe";
    plan.load_elements = elements;
    plan.compute_ns = PROBE_COMPUTE_MS * NS_PER_MS;
    uint32_t first = 0;
    int r = crowd_start(&c->crowd, &plan);
    if (r == 0)
        r = crowd_await(&c->crowd, 1);
    if (r == 0)
        r = move_to(c, &plan, 0);
    if (r == 0) {
        first = crowd_iterations(&c->crowd) + 1;
        r = crowd_await(&c->crowd, first + PROBE_ITERATIONS);
    }
    if (r == 0)
        r = crowd_order(&c->crowd, TRAINEE_END);
    if (r == 0)
        *ret_ms = median_aggregation(&c->crowd, first);
    crowd_end(&c->crowd);
    return r;
}

/* Finds the size of the summed load: the load and the parameters together need AGGREGATION_MS for
 * the aggregation of an iteration. The computing time is nearly twice as long, but shorter if an
 * iteration would last longer than ITERATION_MS. */
static int calibrate(struct conductor *c)
{
    double load = PROBE_ELEMENTS, aggregation = 0;
    int r = 0;
    for (int i = 0; r == 0 && i < PROBES_MAX && aggregation < 0.8 * AGGREGATION_MS; i++) {
        double growth = i > 0 ? AGGREGATION_MS / aggregation : 1;
        load *= growth < GROWTH_MAX ? growth : GROWTH_MAX;
        load = load < LOAD_ELEMENTS_MAX ? load : LOAD_ELEMENTS_MAX;
        r = probe(c, (uint64_t)load, &aggregation);
    }
    double compute = ITERATION_MS - aggregation;
    compute = compute > 1.8 * aggregation ? 1.8 * aggregation : compute;
    compute = compute < aggregation / 2 ? aggregation / 2 : compute;
    if (r == 0)
        *c->cell->load = (struct migrate_load){(uint64_t)load, (uint64_t)(compute * NS_PER_MS)};
    return r;
}

static void plan_state(struct conductor *c)
{
    uint64_t bytes = c->cell->state_bytes;
    c->plan.parts = bytes ? (uint32_t)((bytes + PART_STATE_BYTES - 1) / PART_STATE_BYTES) : 1;
    c->plan.part_elements = bytes / STATE_BYTES_PER_ELEMENT / c->plan.parts;
}

/* --- results --- */

static int reckon_all(const struct conductor *c, struct migrate_row *row)
{
    int64_t wrong = crowd_count_wrong(&c->crowd);
    reckon(&c->crowd, c->windows, c->windows_count, row);
    row->migrations = c->cell->migrations;
    row->failed_rounds = crowd_failed(&c->crowd);
    row->wrong = wrong < 0 ? 0 : (uint64_t)wrong;
    return wrong < 0 ? (int)wrong : 0;
}

int migrate_run(const struct service *service, const struct migrate_cell *cell,
                struct migrate_row *ret_row)
{
    struct conductor *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (struct conductor){.service = service, .cell = cell, .random = (unsigned)cell->seed};
    snprintf(c->saved_path, sizeof c->saved_path, "%s/saved", service->folder);
    c->plan = (struct trainee){.endpoint = service->endpoint,
                               .transport = cell->transport,
                               .job = migrate_mode_name(cell->mode),
                               .saved_path = c->saved_path,
                               .workers = WORKERS,
                               .durability = cell->durability,
                               .seed = cell->seed};
    plan_state(c);
    int r = ask_lanes(service, c->lanes);
    if (r == 0 && !cell->load->elements)
        r = calibrate(c);
    c->plan.load_elements = cell->load->elements;
    c->plan.compute_ns = cell->load->compute_ns;
    if (r == 0)
        r = train(c);
    struct migrate_row row = {0};
    if (r == 0)
        r = reckon_all(c, &row);
    crowd_end(&c->crowd);
    free(c);
    if (r == 0)
        *ret_row = row;
    return r;
}
