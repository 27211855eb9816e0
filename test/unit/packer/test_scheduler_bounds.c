/* Tests the longest waits that the scheduler promises (F7 of packer/elastic). Random streams with
 * gangs and silent trials run on a virtual clock. The test must detect two planted mistakes, for
 * which the program is linked with --wrap. */
#include "bench/explore/policies.h"
#include "packer/elastic/bound.h"
#include "packer/elastic/internal.h"
#include "test/unit/packer/scheduler_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STREAMS 300

enum plant { PLANT_NOTHING, PLANT_NO_VICTIMS, PLANT_NO_OVERDUE };

static enum plant planted;

uint32_t __real_victims_make_room(struct scheduler *s, const struct roster_job *job, uint32_t count,
                                  unsigned ways);
uint32_t __wrap_victims_make_room(struct scheduler *s, const struct roster_job *job, uint32_t count,
                                  unsigned ways);
uint64_t __real_pace_rest_max_ns(const struct scheduler *s);
uint64_t __wrap_pace_rest_max_ns(const struct scheduler *s);

uint32_t __wrap_victims_make_room(struct scheduler *s, const struct roster_job *job, uint32_t count,
                                  unsigned ways)
{
    return planted == PLANT_NO_VICTIMS ? 0 : __real_victims_make_room(s, job, count, ways);
}

uint64_t __wrap_pace_rest_max_ns(const struct scheduler *s)
{
    return planted == PLANT_NO_OVERDUE ? UINT64_MAX / 4 : __real_pace_rest_max_ns(s);
}

/* Makes gangs with up to as many workers as the site has slots, and silent trials, which report
 * nothing before their end. */
static void make_wide_and_silent(struct trial *trials, const struct trial_stream *stream,
                                 uint64_t seed)
{
    for (uint32_t i = 0; i < stream->trials; i++) {
        uint64_t z = (seed * 1000 + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
        z ^= z >> 32;
        if (z % 8 == 0) {
            uint32_t most = stream->slots < TRIAL_WORKERS_MAX ? stream->slots : TRIAL_WORKERS_MAX;
            trials[i].workers_min = 2 + (uint32_t)(z >> 8) % (most - 1);
            if (trials[i].workers_max < trials[i].workers_min)
                trials[i].workers_max = trials[i].workers_min;
        }
        trials[i].is_silent = seed % 2 && (z >> 16) % 10 == 0;
    }
}

static struct trial_stream stream_of(uint64_t seed)
{
    static const uint32_t slots[] = {4, 8, 12, 32};
    struct trial_stream stream = {.arrivals = STREAM_POISSON,
                                  .load = 0.5 + 0.2 * (double)(seed % 6),
                                  .burst = 1 + (uint32_t)(seed % 16),
                                  .trials = 60,
                                  .slots = slots[seed % 4],
                                  .ask = 2,
                                  .workers_max = 6,
                                  .minutes = 2 + (double)(seed % 9),
                                  .costs = {4, 0.3, 0.05, 30, 60}};
    return stream;
}

static struct world_figures play(uint64_t seed)
{
    struct trial_stream stream = stream_of(seed);
    struct world_policy policy = {.name = "rest"};
    struct world_figures figures = {0};
    struct trial *trials = trial_draw(&stream, seed, NULL);
    assert_non_null(trials);
    make_wide_and_silent(trials, &stream, seed);
    struct world_setting setting = {.policy = &policy,
                                    .trials = trials,
                                    .count = stream.trials,
                                    .slots = stream.slots,
                                    .costs = stream.costs,
                                    .seed = seed};
    assert_int_equal(world_run(&setting, &figures), 0);
    free(trials);
    return figures;
}

/* Returns the number of streams with a wait longer than promised. */
static uint32_t count_broken(uint32_t streams)
{
    uint32_t broken = 0;
    for (uint64_t seed = 0; seed < streams; seed++) {
        struct world_figures f = play(seed);
        if (planted == PLANT_NOTHING && f.waits_over + f.rests_over > 0)
            fail_msg("seed %llu: %g arrivals and %g rests waited beyond their bound",
                     (unsigned long long)seed, f.waits_over, f.rests_over);
        broken += f.waits_over + f.rests_over > 0;
    }
    return broken;
}

static void no_wait_exceeds_its_bound(void **state)
{
    planted = PLANT_NOTHING;
    assert_int_equal(count_broken(STREAMS), 0);
}

static void without_victims_arrivals_exceed_their_bound(void **state)
{
    planted = PLANT_NO_VICTIMS;
    assert_true(count_broken(12) > 0);
}

static void without_overdue_rests_a_rest_exceeds_its_bound(void **state)
{
    planted = PLANT_NO_OVERDUE;
    assert_true(count_broken(48) > 0);
}

static void the_bounds_are_sums_that_can_be_checked_by_hand(void **state)
{
    struct bound_case c = {.slots = 8,
                           .ahead = 7,
                           .overdue = 3,
                           .wide = 1,
                           .quantum_ns = 20,
                           .probe_ns = 60,
                           .leave_ns = 1,
                           .rest_max_ns = 600};
    /* two slots for rests: 2 quanta; six slots for probes: 2 rounds of probes, and one more round
     * for the gang */
    assert_true(bound_arrival_ns(&c) == 21 + 2 * 21 + 3 * 61);
    assert_true(bound_rest_ns(&c) == 600 + 21 + 2 * 21 + 61);
    c.probe_ns = 5; /* the probe is shorter than the quantum, but the job cannot rest earlier */
    assert_true(bound_arrival_ns(&c) == 21 + 2 * 21 + 3 * 21);
}

static void submit_of_study(struct rig *rig, uint32_t id, uint32_t study)
{
    struct scheduler_job job = {.id = id, .study = study, .workers_min = 1, .workers_max = 1};
    assert_int_equal(
        rig_send(rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &job}), 0);
}

static bool has_study(const struct rig *rig, uint32_t id)
{
    const struct roster_known *known = rig->scheduler->known;
    for (size_t i = 0; i < known->studies_count; i++)
        if (known->studies[i]->id == id)
            return true;
    return false;
}

/* Each job without a study gets a study of its own, so over a long time a service has many
 * studies. */
static void ended_studies_beyond_a_limit_are_dropped_from_the_oldest_on(void **state)
{
    const uint32_t first = 10, last = first + ROSTER_IDLE_MAX + 100;
    struct rig rig = rig_new(4);
    submit_of_study(&rig, 1, 1);
    for (uint32_t id = first; id <= last; id++) {
        submit_of_study(&rig, id, id);
        rig_job(&rig, SCHEDULER_ENDED, id);
    }
    assert_int_equal(rig.scheduler->known->studies_count, ROSTER_IDLE_MAX + 1);
    assert_true(has_study(&rig, 1)); /* its job runs */
    assert_true(has_study(&rig, last));
    assert_true(has_study(&rig, last - ROSTER_IDLE_MAX + 1));
    assert_false(has_study(&rig, last - ROSTER_IDLE_MAX));
    submit_of_study(&rig, 2, last - ROSTER_IDLE_MAX + 1); /* the oldest one is used again */
    rig_job(&rig, SCHEDULER_ENDED, 2);
    submit_of_study(&rig, 3, 5);
    rig_job(&rig, SCHEDULER_ENDED, 3);
    assert_true(has_study(&rig, last - ROSTER_IDLE_MAX + 1));
    assert_false(has_study(&rig, last - ROSTER_IDLE_MAX + 2));
    scheduler_destroy(rig.scheduler);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(ended_studies_beyond_a_limit_are_dropped_from_the_oldest_on),
        cmocka_unit_test(no_wait_exceeds_its_bound),
        cmocka_unit_test(without_victims_arrivals_exceed_their_bound),
        cmocka_unit_test(without_overdue_rests_a_rest_exceeds_its_bound),
        cmocka_unit_test(the_bounds_are_sums_that_can_be_checked_by_hand),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
