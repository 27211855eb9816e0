/* Tests figures of the time between two snapshots. Unknown figures must be missing. The history
 * stores means in memory of constant size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/ops/answer/answer.h"
#include "svc/ops/report/report.h"
#include "svc/ops/snapshot/figures.h"
#include "svc/ops/snapshot/history.h"
#include "test/unit/ops/snapshot_rig.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct snapshot *compared(const struct rig_service *before, const struct rig_service *after)
{
    struct snapshot *old = rig_snapshot(before), *now = rig_snapshot(after);
    snapshot_compare(old, now);
    snapshot_destroy(old);
    return now;
}

static struct snapshot *usual(void)
{
    struct rig_service before = rig_before(), after = rig_after();
    return compared(&before, &after);
}

static void is_near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-9))
        fail_msg("%g is not %g", value, expected);
}

static void lanes_and_jobs_are_in_order(void **state)
{
    struct snapshot *s = usual();
    assert_int_equal(s->lanes_count, 2);
    assert_int_equal(s->lanes[0]->lane, 7);
    assert_int_equal(s->lanes[1]->lane, 9);
    assert_int_equal(s->jobs.jobs[0].job_id, 3);
    assert_int_equal(s->lanes[0]->parts[0].job_id, 3);
    assert_string_equal(snapshot_job(s, 5)->job, "five");
    assert_null(snapshot_job(s, 4));
    snapshot_destroy(s);
}

static void rates_are_over_the_time_between_two_measurements(void **state)
{
    struct snapshot *s = usual();
    is_near(s->lanes[0]->rate.cores, 0.5);
    is_near(s->lanes[0]->rate.rounds_per_s, 100);
    is_near(s->lanes[0]->rate.bytes_per_s, 1 << 20);
    is_near(s->lanes[1]->rate.cores, 0);
    is_near(s->lanes[0]->parts[0].rate.cores, 0.375);
    snapshot_destroy(s);
}

static void a_lanes_core_is_shared_out_as_it_was_used_and_evenly_when_idle(void **state)
{
    struct snapshot *s = usual();
    is_near(s->lanes[0]->parts[0].share, 0.75);
    is_near(s->lanes[0]->parts[1].share, 0.25);
    is_near(s->lanes[1]->parts[0].share, 0.5);
    is_near(snapshot_job(s, 3)->cores_allocated, 1.25);
    is_near(snapshot_job(s, 3)->rate.cores, 0.375);
    snapshot_destroy(s);
}

static void cores_are_lanes_and_dedicated_ones_are_workers(void **state)
{
    struct snapshot *s = usual();
    is_near(s->cores.allocated, 2);
    is_near(s->cores.used, 0.5);
    is_near(s->cores.dedicated, 8);
    snapshot_destroy(s);
}

/* A job of one worker aggregates no gradients. Without the service, the job would need no
 * server. */
static void a_job_of_one_worker_would_need_no_server(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    after.lone_job = true;
    struct snapshot *s = compared(&before, &after);
    is_near(s->cores.dedicated, 4);
    is_near(cores_saved(&s->cores), 2);
    is_near(job_dedicated(snapshot_job(s, 3)), 4);
    is_near(job_dedicated(snapshot_job(s, 5)), 0);
    snapshot_destroy(s);
}

/* Job 3 uses three quarters of lane 7, and has half of the memory of the idle lane 9. The tenant
 * must not see the part of job 5. */
static void a_tenant_sees_the_memory_and_time_of_its_jobs(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    before.hides_job = after.hides_job = true;
    struct snapshot *s = compared(&before, &after);
    is_near(s->cores.allocated, 1.25);
    is_near(s->cores.used, 0.375);
    is_near(s->cores.dedicated, snapshot_job(s, 3)->workers);
    snapshot_destroy(s);
}

static void a_failed_job_would_hold_nothing_and_a_lost_lane_holds_nothing(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    after.job_state = "failed";
    struct snapshot *s = compared(&before, &after);
    is_near(s->cores.dedicated, 4);
    snapshot_destroy(s);
    after.state = "lost";
    s = compared(&before, &after);
    is_near(s->cores.allocated, 0);
    assert_true(isnan(s->cores.used));
    snapshot_destroy(s);
}

static void a_parked_lane_belongs_to_no_job_and_a_closing_lane_still_does(void **state)
{
    static const char *const states[] = {"parked", "withheld", "closing", "open"};
    static const char *const shown[] = {"parked", "withheld", "closing", "up"};
    struct rig_service before = rig_before(), after = rig_after();
    for (int i = 0; i < 4; i++) {
        after.lane_state = states[i];
        struct snapshot *s = compared(&before, &after);
        is_near(s->cores.allocated, i < 2 ? 1 : 2);
        assert_string_equal(lane_state_text(&s->status.aggregators[0], s->lanes[1]), shown[i]);
        snapshot_destroy(s);
    }
}

static void the_first_snapshot_has_no_rates(void **state)
{
    struct rig_service now = rig_before();
    struct snapshot *s = rig_snapshot(&now);
    snapshot_compare(NULL, s);
    assert_true(isnan(s->cores.used));
    assert_true(isnan(s->lanes[0]->rate.cores));
    assert_true(isnan(snapshot_job(s, 3)->cores_allocated));
    is_near(s->cores.allocated, 2);
    snapshot_destroy(s);
}

static void a_snapshot_of_another_start_or_without_new_figures_has_no_rates(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    after.incarnation++;
    struct snapshot *s = compared(&before, &after);
    assert_true(isnan(s->cores.used));
    snapshot_destroy(s);
    after = rig_after();
    after.at_ns = before.at_ns; /* the aggregator sent no answer */
    s = compared(&before, &after);
    assert_true(isnan(s->cores.used));
    snapshot_destroy(s);
}

static void the_former_rates_hold_until_new_figures_unless_the_lane_is_silent(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    struct snapshot *first = compared(&before, &after), *second = rig_snapshot(&after);
    snapshot_compare(first, second);
    is_near(second->cores.used, 0.5);
    is_near(snapshot_job(second, 3)->cores_allocated, 1.25);
    snapshot_destroy(second);
    after.state = "silent";
    second = rig_snapshot(&after);
    snapshot_compare(first, second);
    assert_true(isnan(second->cores.used));
    is_near(second->cores.allocated, 2);
    snapshot_destroy(second);
    snapshot_destroy(first);
}

static void a_smaller_counter_counts_as_restarted(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    after.rounds = 50;
    struct snapshot *s = compared(&before, &after);
    is_near(s->lanes[0]->parts[0].rate.rounds_per_s, 25);
    snapshot_destroy(s);
}

static void a_reply_of_another_kind_is_refused_and_stays_with_the_caller(void **state)
{
    struct snapshot *s = NULL;
    envelope failure = GRADPOOL__WIRE__ENVELOPE__INIT;
    assert_int_equal(snapshot_create(&failure, NULL, &s), -EBADMSG);
    assert_int_equal(snapshot_create(NULL, &failure, &s), -EBADMSG);
    assert_null(s);
}

static char *text_of(const struct snapshot *s, int (*print)(const struct snapshot *s, FILE *out))
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(print(s, out), 0);
    fclose(out);
    return text;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no %s in %s", part, text);
}

static void top_shows_lanes_with_shares_and_jobs_with_cores(void **state)
{
    struct snapshot *s = usual();
    char *text = text_of(s, ops_top_text);
    has(text, "gradpool://h:7077  up 0:00:32, policy shared, 2 jobs, 0 tasks\n");
    has(text, "cores: 2 allocated, 0.50 used; dedicated servers would hold 8: 6 saved (75 %)\n");
    has(text, "acme/three 75 %, five 25 %\n");
    has(text, "acme/three  training        4");
    free(text);
    snapshot_destroy(s);
}

static void an_unknown_value_is_a_dash_in_text_and_absent_from_json(void **state)
{
    struct rig_service now = rig_before();
    struct snapshot *s = rig_snapshot(&now);
    snapshot_compare(NULL, s);
    char *text = text_of(s, ops_top_text);
    has(text, "2 allocated, - used");
    has(text, "2 jobs\n");
    assert_null(strstr(text, "SAVED"));
    free(text);
    text = text_of(s, ops_top_json);
    has(text, "\"allocated\": 2.0");
    assert_null(strstr(text, "\"used\""));
    assert_null(strstr(text, "\"cores_saved\""));
    assert_null(strstr(text, "\"busy\""));
    free(text);
    snapshot_destroy(s);
}

static void a_job_that_the_reader_may_not_see_is_other(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    before.hides_job = after.hides_job = true;
    struct snapshot *s = compared(&before, &after);
    char *text = text_of(s, ops_top_text);
    has(text, "acme/three 75 %, other 25 %\n");
    assert_null(strstr(text, "five"));
    free(text);
    snapshot_destroy(s);
}

static void only_the_largest_shares_are_named(void **state)
{
    struct view_part parts[6];
    struct view_lane lane = {.parts = parts, .parts_count = 6};
    struct snapshot nobody = {0};
    char text[SHARES_BYTES];
    for (size_t i = 0; i < 6; i++)
        parts[i] = (struct view_part){.job_id = (uint32_t)i, .share = i < 4 ? 0.2 : 0.1};
    assert_string_equal(shares_text(&nobody, &lane, text),
                        "other 20 %, other 20 %, other 20 %, other 20 %, 2 more");
}

static void figures_have_the_unit_that_reads_best(void **state)
{
    char text[FIGURE_BYTES];
    assert_string_equal(figure_text(FIGURE_SECONDS, 12.5e-6, text), "12 us");
    assert_string_equal(figure_text(FIGURE_SECONDS, 0.0125, text), "12.5 ms");
    assert_string_equal(figure_text(FIGURE_SECONDS, 3, text), "3 s");
    assert_string_equal(figure_text(FIGURE_RATIO, 0.042, text), "4.2 %");
    assert_string_equal(figure_text(FIGURE_CORES, NAN, text), "-");
    assert_string_equal(figure_text(FIGURE_BYTES_PER_S, 1 << 20, text), "1 MiB/s");
}

static void the_history_keeps_means_and_never_grows(void **state)
{
    struct history h = {0};
    size_t added = 5 * HISTORY_SAMPLES_MAX;
    for (size_t i = 0; i < added; i++) {
        struct view_cores cores = {.allocated = 2, .used = i % 2, .dedicated = 8};
        history_add(&h, (double)i, &cores);
        assert_true(h.count < HISTORY_SAMPLES_MAX);
    }
    assert_true(h.count >= HISTORY_SAMPLES_MAX / 2);
    for (size_t i = 0; i < h.count; i++) {
        is_near(h.samples[i].cores.allocated, 2);
        is_near(h.samples[i].cores.used, 0.5);
        assert_true(i == 0 || h.samples[i].at_s > h.samples[i - 1].at_s);
    }
    assert_true(h.samples[0].at_s < h.stride);
    assert_true(h.samples[h.count - 1].at_s > (double)(added - 2 * h.stride));
}

static void a_sample_without_known_use_stays_unknown(void **state)
{
    struct history h = {0};
    struct view_cores cores = {.allocated = 1, .used = NAN, .dedicated = 2};
    history_add(&h, 1, &cores);
    assert_true(isnan(h.samples[0].cores.used));
    for (size_t i = 1; i < HISTORY_SAMPLES_MAX; i++) {
        cores.used = i % 2 ? 0.25 : NAN;
        history_add(&h, (double)i, &cores);
    }
    assert_int_equal(h.count, HISTORY_SAMPLES_MAX / 2);
    is_near(h.samples[0].cores.used, 0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_and_jobs_are_in_order),
        cmocka_unit_test(rates_are_over_the_time_between_two_measurements),
        cmocka_unit_test(a_lanes_core_is_shared_out_as_it_was_used_and_evenly_when_idle),
        cmocka_unit_test(cores_are_lanes_and_dedicated_ones_are_workers),
        cmocka_unit_test(a_job_of_one_worker_would_need_no_server),
        cmocka_unit_test(a_tenant_sees_the_memory_and_time_of_its_jobs),
        cmocka_unit_test(a_failed_job_would_hold_nothing_and_a_lost_lane_holds_nothing),
        cmocka_unit_test(a_parked_lane_belongs_to_no_job_and_a_closing_lane_still_does),
        cmocka_unit_test(the_first_snapshot_has_no_rates),
        cmocka_unit_test(a_snapshot_of_another_start_or_without_new_figures_has_no_rates),
        cmocka_unit_test(the_former_rates_hold_until_new_figures_unless_the_lane_is_silent),
        cmocka_unit_test(a_smaller_counter_counts_as_restarted),
        cmocka_unit_test(a_reply_of_another_kind_is_refused_and_stays_with_the_caller),
        cmocka_unit_test(top_shows_lanes_with_shares_and_jobs_with_cores),
        cmocka_unit_test(an_unknown_value_is_a_dash_in_text_and_absent_from_json),
        cmocka_unit_test(a_job_that_the_reader_may_not_see_is_other),
        cmocka_unit_test(only_the_largest_shares_are_named),
        cmocka_unit_test(figures_have_the_unit_that_reads_best),
        cmocka_unit_test(the_history_keeps_means_and_never_grows),
        cmocka_unit_test(a_sample_without_known_use_stays_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
