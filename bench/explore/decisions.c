/* Measures the time of the scheduler's decisions. In each second of virtual time one random event
 * occurs: a report, an end or an arrival of a job. Owns the measured scheduler. */
#include "bench/explore/decisions.h"
#include "bench/sim/chance.h"
#include "packer/elastic/scheduler.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define DECISIONS_NS UINT64_C(1000000000)

struct decisions_run {
    struct scheduler *scheduler;
    struct decisions *result;
    /* ids of running jobs are from first_id to next_id - 1 */
    uint32_t next_id, first_id;
    uint64_t now_ns, chance, step;
    double *times_us;
    uint32_t timed;
};

static double decisions_clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int decisions_send(struct decisions_run *run, struct scheduler_event *event, bool is_timed)
{
    event->now_ns = run->now_ns;
    double before_us = decisions_clock_us();
    int r = scheduler_step(run->scheduler, event, NULL);
    if (is_timed && run->timed < run->result->count)
        run->times_us[run->timed++] = decisions_clock_us() - before_us;
    return r < 0 ? r : 0;
}

static int decisions_submit(struct decisions_run *run, bool is_timed)
{
    struct scheduler_job job = {.id = run->next_id++,
                                .tenant = run->next_id % 7,
                                .study = run->next_id % 50,
                                .workers_min = 1,
                                .workers_max = 8,
                                .steps = 100000};
    struct scheduler_event event = {.kind = SCHEDULER_SUBMITTED, .submitted = &job};
    return decisions_send(run, &event, is_timed);
}

/* Reports the end of each worker that was ordered to leave. */
static int decisions_let_leave(struct decisions_run *run)
{
    for (uint32_t slot = 0; slot < run->result->slots; slot++) {
        struct scheduler_event event = {.kind = SCHEDULER_WORKER_OUT};
        struct scheduler_view view;
        if (!scheduler_holder(run->scheduler, slot, &event.job, &event.rank) ||
            scheduler_view(run->scheduler, event.job, &view) < 0 || view.leaving == 0 ||
            (view.state == SCHEDULER_ACTIVE && event.rank < view.workers))
            continue;
        int error = decisions_send(run, &event, true);
        if (error < 0)
            return error;
    }
    return 0;
}

static int decisions_report(struct decisions_run *run, uint32_t id)
{
    struct scheduler_event event = {.kind = SCHEDULER_REPORTED, .job = id, .rung = 1};
    event.step = ++run->step;
    event.value = chance_unit(&run->chance);
    return decisions_send(run, &event, true);
}

/* Simulates one second: a random job reports, or a random job ends and a new job arrives. */
static int decisions_second(struct decisions_run *run)
{
    uint32_t span = run->next_id - run->first_id;
    uint32_t id = run->first_id + (uint32_t)(chance_unit(&run->chance) * span);
    struct scheduler_view view;
    run->now_ns += DECISIONS_NS;
    if (scheduler_view(run->scheduler, id, &view) < 0)
        return 0;
    int error = 0;
    if (view.state == SCHEDULER_ACTIVE && chance_unit(&run->chance) < 0.5) {
        error = decisions_report(run, id);
    } else {
        struct scheduler_event event = {.kind = SCHEDULER_ENDED, .job = id};
        error = decisions_send(run, &event, true);
        if (error == 0)
            error = decisions_submit(run, true);
    }
    return error < 0 ? error : decisions_let_leave(run);
}

static int decisions_play(struct decisions_run *run)
{
    int error = 0;
    for (uint32_t i = 0; i < run->result->jobs && error == 0; i++)
        error = decisions_submit(run, false);
    while (run->timed < run->result->count && error == 0)
        error = decisions_second(run);
    return error;
}

static int decisions_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int decisions_measure(uint32_t jobs, uint32_t slots, uint32_t count, uint64_t seed,
                      struct decisions *ret_decisions)
{
    struct decisions result = {.jobs = jobs, .slots = slots, .count = count};
    struct scheduler_options options = {.slots = slots};
    struct decisions_run run = {.result = &result, .chance = seed};
    run.scheduler = scheduler_create(&options);
    run.times_us = calloc(count, sizeof *run.times_us);
    int error = run.scheduler && run.times_us ? decisions_play(&run) : -ENOMEM;
    if (error == 0) {
        qsort(run.times_us, count, sizeof *run.times_us, decisions_compare);
        result.p50_us = run.times_us[count / 2];
        result.p99_us = run.times_us[count - 1 - count / 100];
        result.max_us = run.times_us[count - 1];
        *ret_decisions = result;
    }
    free(run.times_us);
    scheduler_destroy(run.scheduler);
    return error;
}
