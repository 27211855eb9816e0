/* A pool of lanes, whose size packer/growth/scale.h changes. Tests set the input of the rules. Each
 * decision is checked before the pool applies it. */
#ifndef GRADPOOL_TEST_SCALE_POOL_H
#define GRADPOOL_TEST_SCALE_POOL_H

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "packer/growth/scale.h"

#define POOL_LANES_MAX 64
#define POOL_JOBS_MAX 256
#define POOL_TASKS_MAX 1024
#define POOL_LANES_OF_AGGREGATOR 4
#define MS UINT64_C(1000000)
#define S (1000 * MS)
#define WINDOW_NS (5 * S)

struct pool {
    struct scale scale;
    struct scale_options options;
    struct scale_lane lanes[POOL_LANES_MAX];
    struct scale_job jobs[POOL_JOBS_MAX];
    struct scale_memory memories[POOL_JOBS_MAX];
    struct scale_task tasks[POOL_TASKS_MAX];
    struct scale_wish wishes[POOL_JOBS_MAX];
    struct scale_seen seen;
    uint64_t now_ns;
    struct scale_decision last;
    size_t counts[SCALE_STOP + 1]; /* number of decisions of each kind */
    uint64_t next_job;
};

/* Makes a pool. Lane ids are 10, 13, ... Only lanes of the first `running` aggregators are
 * started. */
static inline struct pool *pool_new(size_t lanes, size_t running)
{
    struct pool *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < lanes; i++)
        p->lanes[i] = (struct scale_lane){
            .lane = {.id = (uint32_t)(10 + 3 * i),
                     .memory_bytes = UINT64_MAX,
                     .state = i / POOL_LANES_OF_AGGREGATOR < running ? PACKER_LANE_PARKED
                                                                     : PACKER_LANE_UNSTARTED},
            .aggregator = 1 + (uint32_t)(i / POOL_LANES_OF_AGGREGATOR)};
    p->seen = (struct scale_seen){.lanes = p->lanes,
                                  .lanes_count = lanes,
                                  .jobs = p->jobs,
                                  .tasks = p->tasks,
                                  .wishes = p->wishes};
    p->now_ns = 1000 * S;
    p->next_job = 100;
    return p;
}

static inline void pool_free(struct pool *p)
{
    scale_decision_fini(&p->last);
    free(p);
}

static inline void pool_open(struct pool *p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        p->lanes[i].lane.state = PACKER_LANE_OPEN;
}

/* Adds a job with a period of 100 ms, so 1 ms of its lane time is a hundredth of a lane. */
static inline uint32_t pool_job(struct pool *p)
{
    uint32_t job = (uint32_t)p->seen.jobs_count++;
    assert_true(job < POOL_JOBS_MAX);
    p->memories[job] = (struct scale_memory){0};
    p->jobs[job] = (struct scale_job){.id = p->next_job++,
                                      .workers = 2,
                                      .timing = {.period_ns = 100 * MS, .spread_ns = 100 * MS},
                                      .memory = &p->memories[job]};
    return job;
}

static inline void pool_task(struct pool *p, uint32_t job, uint32_t lane, uint64_t lane_ns)
{
    assert_true(p->seen.tasks_count < POOL_TASKS_MAX);
    p->tasks[p->seen.tasks_count++] =
        (struct scale_task){.job = job, .lane = lane, .bytes = 1000, .lane_ns = lane_ns};
}

static inline uint32_t pool_put(struct pool *p, uint32_t lane, uint64_t lane_ns)
{
    uint32_t job = pool_job(p);
    pool_task(p, job, lane, lane_ns);
    return job;
}

static inline size_t pool_count(const struct pool *p, enum packer_lane_state state)
{
    size_t count = 0;
    for (size_t i = 0; i < p->seen.lanes_count; i++)
        count += p->lanes[i].lane.state == state;
    return count;
}

static inline size_t pool_tasks_on(const struct pool *p, size_t lane)
{
    size_t count = 0;
    for (size_t i = 0; i < p->seen.tasks_count; i++)
        count += p->tasks[i].lane == lane;
    return count;
}

static inline uint32_t pool_position(const struct pool *p, uint32_t id)
{
    for (uint32_t i = 0; i < p->seen.lanes_count; i++)
        if (p->lanes[i].lane.id == id)
            return i;
    fail_msg("no lane %" PRIu32, id);
    return 0;
}

/* Writes the positions of the lane's jobs to `jobs`. Returns their number. */
static inline size_t pool_residents(const struct pool *p, size_t lane,
                                    struct packer_resident *residents, uint32_t *jobs)
{
    size_t count = 0;
    for (size_t i = 0; i < p->seen.tasks_count; i++) {
        const struct scale_task *task = &p->tasks[i];
        size_t at = 0;
        if (task->lane != lane)
            continue;
        while (at < count && jobs[at] != task->job)
            at++;
        if (at == count)
            residents[count++] = (struct packer_resident){.job = p->jobs[task->job].id,
                                                          .timing = p->jobs[task->job].timing};
        jobs[at] = task->job;
        residents[at].lane_ns += task->lane_ns;
    }
    return count;
}

/* Returns the largest excess of a job on the lane: (predicted loss + margin) - loss limit. */
static inline double pool_excess(const struct pool *p, size_t lane)
{
    struct packer_resident residents[POOL_JOBS_MAX] = {0};
    uint32_t jobs[POOL_JOBS_MAX];
    double losses[POOL_JOBS_MAX], worst = -1;
    size_t count = pool_residents(p, lane, residents, jobs);
    assert_int_equal(packer_losses("shared", residents, count, losses), 0);
    for (size_t i = 0; i < count; i++) {
        double limit = packer_loss_limit_ppm(residents[i].timing.loss_limit_ppm, 0, 0) / 1e6;
        double loss = losses[i] + (count > 1 ? 0.01 : 0);
        worst = loss - limit > worst ? loss - limit : worst;
    }
    return worst;
}

static inline void pool_change(struct pool *p, uint32_t id, enum packer_lane_state was,
                               enum packer_lane_state is)
{
    struct scale_lane *lane = &p->lanes[pool_position(p, id)];
    assert_int_equal(lane->lane.state, was);
    assert_false(lane->is_changing);
    lane->lane.state = is;
}

/* Applies the moves. Checks that exactly the tasks of the drained lane or relieved job move. */
static inline void pool_move(struct pool *p, double margin)
{
    const struct scale_decision *d = &p->last;
    uint32_t source = pool_position(p, d->lane);
    size_t leaving = 0;
    for (size_t i = 0; i < p->seen.tasks_count; i++)
        leaving += p->tasks[i].lane == source &&
                   (d->verb == SCALE_DRAIN || p->jobs[p->tasks[i].job].id == d->job);
    assert_int_equal(leaving, d->moves_count);
    for (size_t i = 0; i < d->moves_count; i++) {
        struct scale_task *task = &p->tasks[d->moves[i].task];
        uint32_t target = pool_position(p, d->moves[i].target);
        assert_true(i == 0 || d->moves[i].task > d->moves[i - 1].task);
        assert_int_equal(task->lane, source);
        assert_int_not_equal(target, source);
        assert_int_equal(p->lanes[target].lane.state, PACKER_LANE_OPEN);
        assert_true(d->verb == SCALE_RELIEVE || pool_tasks_on(p, target) > 0);
        assert_true(d->verb == SCALE_DRAIN || p->jobs[task->job].id == d->job);
        task->lane = target;
    }
    for (size_t i = 0; i < d->moves_count; i++)
        assert_true(pool_excess(p, pool_position(p, d->moves[i].target)) <= -margin + 1e-6);
}

/* Checks that the job's tasks move to lanes without another job. Then applies the moves. */
static inline void pool_move_alone(struct pool *p)
{
    for (size_t i = 0; i < p->last.moves_count; i++) {
        struct scale_task *task = &p->tasks[p->last.moves[i].task];
        assert_int_equal(p->jobs[task->job].id, p->last.job);
        task->lane = pool_position(p, p->last.moves[i].target);
        for (size_t t = 0; t < p->seen.tasks_count; t++)
            assert_true(p->tasks[t].lane != task->lane || p->tasks[t].job == task->job);
    }
}

static inline void pool_start(struct pool *p)
{
    for (size_t i = 0; i < p->seen.lanes_count; i++)
        if (p->lanes[i].aggregator == p->last.aggregator)
            pool_change(p, p->lanes[i].lane.id, PACKER_LANE_UNSTARTED, PACKER_LANE_PARKED);
}

static inline void pool_stop(struct pool *p)
{
    for (size_t i = 0; i < p->seen.lanes_count; i++)
        if (p->lanes[i].aggregator == p->last.aggregator)
            pool_change(p, p->lanes[i].lane.id, PACKER_LANE_PARKED, PACKER_LANE_UNSTARTED);
}

/* Checks the last decision and applies it. */
static inline void pool_obey(struct pool *p)
{
    const struct scale_decision *d = &p->last;
    uint32_t most = p->options.lanes_max ? p->options.lanes_max : POOL_LANES_MAX;
    bool opens = d->verb != SCALE_PARK;
    p->counts[d->verb]++;
    assert_true(strlen(d->reason) > 10);
    if (d->verb == SCALE_START)
        pool_start(p);
    for (size_t i = 0; i < d->lanes_count; i++) {
        assert_true(opens || pool_tasks_on(p, pool_position(p, d->lanes[i])) == 0);
        assert_true(i == 0 || d->lanes[i] > d->lanes[i - 1]);
        pool_change(p, d->lanes[i], opens ? PACKER_LANE_PARKED : PACKER_LANE_OPEN,
                    opens ? PACKER_LANE_OPEN : PACKER_LANE_PARKED);
    }
    if (d->verb == SCALE_STOP)
        pool_stop(p);
    if (d->verb == SCALE_DRAIN || d->verb == SCALE_RELIEVE)
        pool_move(p, d->verb == SCALE_DRAIN ? 0.01 : 0);
    if (d->verb == SCALE_MEASURE || d->verb == SCALE_NARROW)
        pool_move_alone(p);
    assert_true(!opens || d->lanes_count == 0 || pool_count(p, PACKER_LANE_OPEN) <= most);
    assert_true(d->verb != SCALE_PARK || pool_count(p, PACKER_LANE_OPEN) >= 1);
}

/* Advances by one window. Does not apply the decision. */
static inline enum scale_verb pool_look(struct pool *p)
{
    struct scale_decision decision;
    p->now_ns += WINDOW_NS;
    assert_int_equal(scale_tick(&p->scale, &p->options, &p->seen, p->now_ns, &decision), 0);
    scale_decision_fini(&p->last);
    p->last = decision;
    return decision.verb;
}

static inline enum scale_verb pool_tick(struct pool *p)
{
    enum scale_verb verb = pool_look(p);
    pool_obey(p);
    return verb;
}

static inline void pool_expect(const struct pool *p, enum scale_verb verb, const char *part)
{
    if (p->last.verb != verb || !strstr(p->last.reason, part))
        fail_msg("verb %d, not %d, or no \"%s\" in: %s", (int)p->last.verb, (int)verb, part,
                 p->last.reason);
}

/* Returns the number of windows until this decision, including the window of the decision. */
static inline size_t pool_until(struct pool *p, enum scale_verb verb)
{
    for (size_t i = 1; i < 10000; i++)
        if (pool_look(p) == verb)
            return i;
    fail_msg("verb %d is never decided: %s", (int)verb, p->last.reason);
    return 0;
}

/* Makes three lanes. Their load fits on one or two lanes. */
static inline struct pool *pool_sparse(void)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, 3);
    pool_put(p, 0, 12 * MS);
    pool_put(p, 1, 8 * MS);
    pool_put(p, 2, 15 * MS);
    return p;
}

#endif
