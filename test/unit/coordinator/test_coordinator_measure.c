/* Tests how the coordinator uses the lanes' counters (K15). The aggregators and their times are
 * simulated. */
#include "svc/base/clock.h"
#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/placement/history.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/store/store.h"
#include "test/unit/coordinator/measure_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void a_job_that_trains_is_measured(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 2);
    const WIRE(JobView) * view;
    struct trained job = trained_start(rig, "resnet", &worker);
    envelope *reply = measure_ask_job(rig, "resnet", &view);
    assert_int_equal(view->period_ns, 0);
    message_free(reply);
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    reply = measure_ask_job(rig, "resnet", &view);
    assert_int_equal(view->period_ns, 100 * NS_PER_MS);
    assert_int_equal(view->alone_period_ns, 100 * NS_PER_MS);
    assert_in_range(view->lane_ns, 4 * NS_PER_MS - 1000, 4 * NS_PER_MS);
    assert_int_equal(view->loss_ppm, 0);
    message_free(reply);
}

static void time_that_others_had_the_lane_s_core_is_not_the_job_s(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    const WIRE(JobView) * view;
    struct trained job = trained_start(rig, "resnet", &worker);
    aggregator->answers = false;
    for (int i = 0; i < 12; i++) {
        job.preempted_ns += 10 * 3 * NS_PER_MS;
        trained_run(aggregator, &job, 1, 100 * NS_PER_MS, 4 * NS_PER_MS);
    }
    aggregator->answers = true;
    rig_settle(rig);
    envelope *reply = measure_ask_job(rig, "resnet", &view);
    assert_in_range(view->lane_ns, NS_PER_MS - 1000, NS_PER_MS + 1000);
    message_free(reply);
}

static void a_measurement_does_not_span_a_restart_of_the_counters(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    const WIRE(JobView) * view;
    struct trained job = trained_start(rig, "resnet", &worker);
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    for (int i = 0; i < 6; i++) {
        job.reference++; /* the lane's counter of rounds may restart at any number */
        job.rounds += 1000;
        trained_answer(aggregator, &job, 1);
        job.rounds = job.busy_ns = 0;
        trained_answer(aggregator, &job, 1);
    }
    aggregator->answers = true;
    rig_settle(rig);
    envelope *reply = measure_ask_job(rig, "resnet", &view);
    assert_int_equal(view->period_ns, 100 * NS_PER_MS);
    message_free(reply);
}

static void the_loss_beside_another_job_is_reported(void **state)
{
    struct rig *rig = *state;
    struct end *workers[2], *aggregator = rig_aggregator(rig, 1);
    const WIRE(JobView) * view;
    struct trained job = trained_start(rig, "resnet", &workers[0]);
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    struct trained other = trained_start(rig, "gpt", &workers[1]);
    assert_int_equal(other.lane, job.lane);
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 125 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    envelope *reply = measure_ask_job(rig, "resnet", &view);
    assert_int_equal(view->alone_period_ns, 100 * NS_PER_MS);
    assert_int_equal(view->period_ns, 125 * NS_PER_MS);
    assert_in_range(view->loss_ppm, 199900, 200000);
    assert_int_equal(view->shared_loss_ppm, 0); /* no other job delays these rounds */
    message_free(reply);
}

static void without_jobs_no_aggregator_gets_a_request(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    aggregator->answers = false;
    end_expect_none(aggregator, BODY(STATS_REQUEST));
    aggregator->answers = true;
    trained_start(rig, "resnet", &worker);
    aggregator->answers = false;
    message_free(end_expect(aggregator, BODY(STATS_REQUEST)));
    aggregator->answers = true;
    end_leave(worker);
    rig_settle(rig);
    aggregator->answers = false;
    for (size_t i = aggregator->inbox_count; i > 0; i--)
        message_free(aggregator->inbox[i - 1]);
    aggregator->inbox_count = 0;
    end_expect_none(aggregator, BODY(STATS_REQUEST));
}

/* While no job trains, the interval doubles repeatedly, up to eight times the shortest interval. */
static void idle_jobs_are_measured_less_often(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    struct trained job = trained_start(rig, "resnet", &worker);
    aggregator->answers = false;
    for (int i = 0; i < 15; i++)
        trained_answer(aggregator, &job, 1);
    uint64_t began_ns = clock_now_ns();
    for (int i = 0; i < 3; i++)
        trained_answer(aggregator, &job, 1);
    assert_true(clock_now_ns() - began_ns >= 2 * 8 * LOOK_NS);
    aggregator->answers = true;
}

/* Trains until the job is measured. Then leaves. */
static void run_once(struct rig *rig, struct end *aggregator, const char *name)
{
    struct end *worker;
    struct trained job = trained_start(rig, name, &worker);
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    end_leave(worker);
    rig_settle(rig);
}

static uint64_t known_period_ns(struct rig *rig, const char *name)
{
    const WIRE(JobView) * view;
    envelope *reply = measure_ask_job(rig, name, &view);
    assert_int_equal(view->period_ns, 0);
    uint64_t period_ns = view->alone_period_ns;
    message_free(reply);
    return period_ns;
}

static void a_job_that_starts_again_uses_its_stored_measurement(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    run_once(rig, aggregator, "resnet");
    trained_start(rig, "resnet", &worker);
    assert_int_equal(known_period_ns(rig, "resnet"), 100 * NS_PER_MS);
    trained_start(rig, "gpt", &worker);
    assert_int_equal(known_period_ns(rig, "gpt"), 0);
}

static void a_job_with_another_model_or_size_is_measured_anew(void **state)
{
    struct rig *rig = *state;
    uint64_t session;
    uint32_t id;
    run_once(rig, rig_aggregator(rig, 1), "resnet");
    struct end *worker = rig_join(rig, "resnet", 0, 2, &session, &id);
    end_declare_one(worker, "w", 1000);
    message_free(end_expect(worker, BODY(DECLARE_REPLY)));
    assert_int_equal(known_period_ns(rig, "resnet"), 0);
    end_leave(worker);
    rig_settle(rig);
    worker = rig_join(rig, "resnet", 0, 1, &session, &id);
    end_declare_one(worker, "w", 1001);
    message_free(end_expect(worker, BODY(DECLARE_REPLY)));
    assert_int_equal(known_period_ns(rig, "resnet"), 0);
}

static void measurements_survive_a_restart_of_the_coordinator(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    run_once(rig, rig_aggregator(rig, 1), "resnet");
    rig_crash(rig);
    rig_start(rig);
    rig_aggregator(rig, 1);
    trained_start(rig, "resnet", &worker);
    assert_int_equal(known_period_ns(rig, "resnet"), 100 * NS_PER_MS);
}

static int count_profile(void *context, const struct store_row *row)
{
    uint64_t *counts = context;
    counts[0] += row->table == STORE_PROFILE;
    counts[1] += row->table == STORE_PROFILE && row->profile.turn == 1;
    counts[2] += row->table == STORE_PROFILE && strcmp(row->profile.job, "resnet") == 0;
    return 0;
}

static void fill_history(struct rig *rig, uint32_t count)
{
    struct store *store;
    struct err err;
    measure_open_store(rig, &store);
    store_begin(store);
    for (uint32_t i = 1; i <= count; i++) {
        struct store_row row = {.table = STORE_PROFILE};
        row.profile = (struct store_profile){
            .tenant = "", .job = "old", .workers = i, .layout = 1, .turn = i, .period_ns = 1};
        store_put(store, &row);
    }
    assert_int_equal(store_commit(store, &err), 0);
    store_close(store);
}

static void the_oldest_measurement_is_dropped_for_a_new_one(void **state)
{
    struct rig *rig = *state;
    struct store *store;
    struct err err;
    uint64_t counts[3] = {0};
    rig_crash(rig);
    fill_history(rig, PROFILES_MAX);
    rig_start(rig);
    run_once(rig, rig_aggregator(rig, 1), "resnet");
    rig_crash(rig);
    measure_open_store(rig, &store);
    assert_int_equal(store_load(store, count_profile, counts, &err), 0);
    store_close(store);
    assert_int_equal(counts[0], PROFILES_MAX);
    assert_int_equal(counts[1], 0);
    assert_int_equal(counts[2], 1);
    rig_start(rig);
}

/* --- placing --- */

static void new_jobs_get_free_lanes_to_be_measured_on(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 2);
    uint32_t first = measure_lane_of(rig, "a"), second = measure_lane_of(rig, "b");
    assert_int_not_equal(first, second);
    measure_lane_of(rig, "c"); /* shares a lane with one of the jobs, because no lane is free */
}

static void jobs_that_are_known_share_a_lane_within_their_limit(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, 4 * NS_PER_MS, 3, (const char *[]){"a", "b", "c"});
    rig_aggregator(rig, 4);
    uint32_t lane = measure_lane_of(rig, "a");
    assert_int_equal(measure_lane_of(rig, "b"), lane);
    assert_int_equal(measure_lane_of(rig, "c"), lane);
    assert_int_not_equal(measure_lane_of(rig, "new"), lane);
}

static void jobs_beyond_the_loss_limit_share_no_lane(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, 40 * NS_PER_MS, 2, (const char *[]){"a", "b"});
    rig_aggregator(rig, 2);
    assert_int_not_equal(measure_lane_of(rig, "a"), measure_lane_of(rig, "b"));
}

static void without_a_named_limit_no_job_is_refused(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, 40 * NS_PER_MS, 2, (const char *[]){"a", "b"});
    rig_aggregator(rig, 1);
    assert_int_equal(measure_lane_of(rig, "a"), measure_lane_of(rig, "b"));
}

static void a_job_that_fits_nowhere_is_refused_with_the_missing_amount(void **state)
{
    struct rig *rig = *state;
    uint64_t session;
    uint32_t id;
    rig->options.loss_limit_ppm = 50000;
    measure_know(rig, 40 * NS_PER_MS, 2, (const char *[]){"a", "b"});
    rig_aggregator(rig, 1);
    measure_lane_of(rig, "a");
    struct end *worker = rig_join(rig, "b", 0, 1, &session, &id);
    end_declare_one(worker, "w", 1000);
    envelope *reply = end_expect(worker, BODY(FAILURE));
    assert_int_equal(reply->failure->code, -ENOSPC);
    const char *text = reply->failure->text;
    if (!strstr(text, "job b cannot be placed") || text[strlen(text) - 1] == '.')
        fail_msg("'%s'", text);
    message_free(reply);
    measure_lane_of(rig, "new"); /* a new job is measured on some lane */
}

static void a_training_job_gets_a_lane_for_its_next_tensor(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *idle;
    rig_crash(rig);
    rig->options.loss_limit_ppm = 50000;
    rig_start(rig);
    struct end *aggregator = rig_aggregator(rig, 1);
    struct trained job = trained_start(rig, "a", &worker);
    trained_start(rig, "never measured", &idle);
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    end_declare_one(worker, "late", 10);
    message_free(end_expect(worker, BODY(DECLARE_REPLY)));
}

static struct end *join_with_limit(struct rig *rig, const char *name, uint32_t rank, uint32_t ppm,
                                   envelope **ret_reply)
{
    struct end *worker = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, name, rank, 2);
    join.loss_limit_ppm = ppm;
    *ret_reply = end_ask(worker, &request);
    return worker;
}

static void a_job_s_own_limit_is_kept_and_the_same_for_all_ranks(void **state)
{
    struct rig *rig = *state;
    const WIRE(JobView) * view;
    envelope *reply;
    join_with_limit(rig, "a", 0, 20000, &reply);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    join_with_limit(rig, "a", 1, 30000, &reply);
    assert_int_equal(reply->failure->code, -EPROTO);
    message_free(reply);
    join_with_limit(rig, "b", 0, 1000000, &reply);
    assert_int_equal(reply->failure->code, -EINVAL);
    assert_non_null(
        strstr(reply->failure->text, "a loss limit of 1000000 ppm; expected 1 to 999999"));
    message_free(reply);
    reply = measure_ask_job(rig, "a", &view);
    assert_int_equal(view->loss_limit_ppm, 20000);
    message_free(reply);
    rig_crash(rig);
    rig->options.loss_limit_ppm = 10000; /* the strictest limit is used */
    rig_start(rig);
    reply = measure_ask_job(rig, "a", &view);
    assert_int_equal(view->loss_limit_ppm, 10000);
    message_free(reply);
}

static void the_measured_loss_is_shown_beside_the_predicted_one(void **state)
{
    struct rig *rig = *state;
    const WIRE(JobView) * view;
    measure_know(rig, 20 * NS_PER_MS, 2, (const char *[]){"a", "b"});
    rig_aggregator(rig, 1);
    measure_lane_of(rig, "a");
    measure_lane_of(rig, "b");
    envelope *reply = measure_ask_job(rig, "a", &view);
    /* The loss is u v / (1 + u v), which is 3.8 % with u = v = 0.2. */
    assert_true(view->is_predicted);
    assert_in_range(view->predicted_loss_ppm, 38000, 39000);
    assert_int_equal(view->loss_limit_ppm, 0);
    message_free(reply);
}

/* Two jobs share a lane. Of the 20 ms of lane time in a round, only 5 ms follow the computation.
 * The prediction must also be correct after a restart. */
static void how_rounds_end_is_part_of_the_prediction(void **state)
{
    struct rig *rig = *state;
    const WIRE(JobView) * view;
    measure_know_ending(rig, 20 * NS_PER_MS, 60 * NS_PER_MS, 5 * NS_PER_MS, 2,
                        (const char *[]){"a", "b"});
    rig_aggregator(rig, 1);
    measure_lane_of(rig, "a");
    measure_lane_of(rig, "b");
    envelope *reply = measure_ask_job(rig, "a", &view);
    /* the lane time of 5 ms grows by a factor of 1.2, which adds 1 ms to a round of 101 ms */
    assert_in_range(view->predicted_loss_ppm, 9800, 10000);
    message_free(reply);
}

static void a_job_that_ran_alone_fits_alone_again_under_any_limit(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    struct trained job = trained_start(rig, "a", &worker);
    aggregator->answers = false;
    for (int i = 0; i < 20; i++) /* the lane time is different in each round */
        trained_run(aggregator, &job, 1, 100 * NS_PER_MS, (uint64_t)(20 + i * 7 % 11) * NS_PER_MS);
    aggregator->answers = true;
    end_leave(worker);
    rig_settle(rig);
    rig_crash(rig);
    rig->options.loss_limit_ppm = 10000;
    rig_start(rig);
    rig_aggregator(rig, 1);
    measure_lane_of(rig, "a");
}

static uint64_t busy_ns_shown(struct rig *rig)
{
    const WIRE(JobView) * view;
    envelope *reply = measure_ask_job(rig, "a", &view);
    uint64_t busy_ns = view->use->busy_ns;
    message_free(reply);
    return busy_ns;
}

static void the_used_time_of_a_job_does_not_decrease_when_it_leaves_a_lane(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 1), *worker;
    struct trained a = trained_start(rig, "a", &worker);
    struct job *job = jobs_find_id(rig->coordinator->service, a.job);
    struct lane *lane = lane_find(rig->coordinator->service, a.lane);
    aggregator->answers = false;
    trained_run(aggregator, &a, 2, 100 * NS_PER_MS, NS_PER_MS);
    rig_settle(rig);
    assert_int_equal(busy_ns_shown(rig), 20 * NS_PER_MS);
    struct share was = *jobs_share(job, lane), *again;
    jobs_forget_share(job, lane);
    assert_int_equal(busy_ns_shown(rig), 20 * NS_PER_MS);
    again = jobs_share(job, lane); /* a returned job's counts are not added again */
    again->pieces = was.pieces;
    again->bytes = was.bytes;
    assert_int_equal(busy_ns_shown(rig), 20 * NS_PER_MS);
    a.busy_ns = 3 * NS_PER_MS;
    trained_answer(aggregator, &a, 1);
    rig_settle(rig);
    assert_int_equal(busy_ns_shown(rig), 23 * NS_PER_MS);
}

#define DIGEST 11

static uint64_t busy_ns_kept(struct rig *rig, const struct trained *t)
{
    return stats_of_job(lane_find(rig->coordinator->service, t->lane), t->job)->busy_ns;
}

/* Returns a job that has trained on the first of two lanes. The rows of this lane have the
 * digest. */
static struct trained start_with_digest(struct rig *rig, struct end *aggregator)
{
    struct end *worker;
    struct trained a = trained_start(rig, "a", &worker);
    assert_int_equal(a.lane, aggregator->lanes[0]);
    aggregator->ignores = BODY(STATS_REQUEST);
    a.digest = DIGEST;
    trained_run(aggregator, &a, 2, 100 * NS_PER_MS, NS_PER_MS);
    return a;
}

static void rows_that_a_lane_leaves_out_have_the_values_of_its_last_answer(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2);
    struct trained a = start_with_digest(rig, aggregator);
    for (int i = 0; i < 3; i++)
        assert_int_equal(trained_answer_known(aggregator, 0, DIGEST), DIGEST);
    rig_settle(rig);
    assert_int_equal(busy_ns_kept(rig, &a), 20 * NS_PER_MS);
    a.digest++;
    trained_run(aggregator, &a, 1, 100 * NS_PER_MS, NS_PER_MS);
    assert_int_equal(trained_answer_known(aggregator, 0, DIGEST + 1), DIGEST + 1);
    rig_settle(rig);
    assert_int_equal(busy_ns_kept(rig, &a), 30 * NS_PER_MS);
}

static void an_answer_without_the_rows_that_a_lane_leaves_out_is_invalid(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2);
    struct trained a = start_with_digest(rig, aggregator);
    const struct lane *lanes[] = {lane_find(rig->coordinator->service, aggregator->lanes[0]),
                                  lane_find(rig->coordinator->service, aggregator->lanes[1])};
    /* the coordinator does not know the other lane's digest */
    assert_int_equal(trained_answer_known(aggregator, 1, DIGEST), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(trained_answer_known(aggregator, 0, DIGEST + 1), DIGEST);
    rig_settle(rig);
    assert_null(stats_of_lane(lanes[1]));
    assert_int_equal(stats_of_lane(lanes[0])->n_jobs, 1);
    assert_int_equal(busy_ns_kept(rig, &a), 20 * NS_PER_MS);
    a.digest = 0; /* without a digest the coordinator knows no rows */
    trained_run(aggregator, &a, 1, 100 * NS_PER_MS, NS_PER_MS);
    assert_int_equal(trained_answer_known(aggregator, 0, 0), 0);
    rig_settle(rig);
    assert_int_equal(busy_ns_kept(rig, &a), 30 * NS_PER_MS);
}

static void an_answer_with_rows_that_it_claims_to_omit_is_invalid(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2);
    struct trained a = start_with_digest(rig, aggregator);
    rig_settle(rig);
    uint64_t measured_ns = lane_find(rig->coordinator->service, a.lane)->aggregator->measured_ns;
    trained_answer_both(aggregator, 0, DIGEST);
    rig_settle(rig);
    assert_int_equal(lane_find(rig->coordinator->service, a.lane)->aggregator->measured_ns,
                     measured_ns);
    assert_int_equal(busy_ns_kept(rig, &a), 20 * NS_PER_MS);
}

/* A restarted aggregator has lanes with new numbers, so the coordinator knows none of their
 * rows. */
static void all_rows_of_a_restarted_aggregator_are_requested(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 1), *next;
    struct trained a = start_with_digest(rig, aggregator);
    assert_int_equal(trained_answer_known(aggregator, 0, DIGEST), DIGEST);
    next = rig_aggregator(rig, 1);
    next->ignores = BODY(STATS_REQUEST);
    end_say_goodbye(aggregator);
    rig_settle(rig);
    assert_int_equal(trained_answer_known(next, 0, DIGEST), 0);
    a.lane = next->lanes[0];
    trained_answer(next, &a, 1);
    assert_int_equal(trained_answer_known(next, 0, DIGEST), DIGEST);
    rig_crash(rig); /* after this crash the next coordinator finds no stored measurements */
    rig_start(rig);
    next = rig_rejoin(rig, next, 0, NULL);
    next->ignores = BODY(STATS_REQUEST);
    assert_int_equal(trained_answer_known(next, 0, DIGEST), 0);
}

static void the_reason_of_a_chosen_lane_is_shown(void **state)
{
    static const struct {
        const char *job, *why;
    } expected[] = {{"a", "every job stays within its loss limit"},
                    {"b", "no lane is known to keep every job within its loss limit"},
                    {"new", "no lane was free"}};
    struct rig *rig = *state;
    measure_know(rig, 40 * NS_PER_MS, 2, (const char *[]){"a", "b"});
    rig_aggregator(rig, 1);
    for (size_t i = 0; i < 3; i++) {
        uint32_t lane = measure_lane_of(rig, expected[i].job);
        envelope *reply = measure_ask_why(rig, expected[i].job);
        assert_int_equal(reply->explain_reply->n_jobs, 1);
        const WIRE(ExplainedJob) *job = reply->explain_reply->jobs[0];
        assert_int_equal(job->n_lanes, 1);
        assert_int_equal(job->lanes[0]->lane, lane);
        assert_int_equal(job->lanes[0]->other_jobs, i);
        assert_non_null(strstr(job->lanes[0]->why, expected[i].why));
        assert_int_equal(job->n_tasks, 1);
        assert_int_equal(job->tasks[0]->bytes, 4000);
        assert_string_equal(job->tasks[0]->tensor, "w");
        message_free(reply);
    }
    envelope *reply = measure_ask_why(rig, "nobody");
    assert_int_equal(reply->explain_reply->n_jobs, 0);
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_job_that_trains_is_measured),
        CASE(time_that_others_had_the_lane_s_core_is_not_the_job_s),
        CASE(a_measurement_does_not_span_a_restart_of_the_counters),
        CASE(the_loss_beside_another_job_is_reported),
        CASE(without_jobs_no_aggregator_gets_a_request),
        CASE(idle_jobs_are_measured_less_often),
        CASE(a_job_that_starts_again_uses_its_stored_measurement),
        CASE(a_job_with_another_model_or_size_is_measured_anew),
        CASE(measurements_survive_a_restart_of_the_coordinator),
        CASE(the_oldest_measurement_is_dropped_for_a_new_one),
        CASE(new_jobs_get_free_lanes_to_be_measured_on),
        CASE(jobs_that_are_known_share_a_lane_within_their_limit),
        CASE(a_training_job_gets_a_lane_for_its_next_tensor),
        CASE(jobs_beyond_the_loss_limit_share_no_lane),
        CASE(without_a_named_limit_no_job_is_refused),
        CASE(a_job_that_fits_nowhere_is_refused_with_the_missing_amount),
        CASE(a_job_that_ran_alone_fits_alone_again_under_any_limit),
        CASE(a_job_s_own_limit_is_kept_and_the_same_for_all_ranks),
        CASE(the_used_time_of_a_job_does_not_decrease_when_it_leaves_a_lane),
        CASE(rows_that_a_lane_leaves_out_have_the_values_of_its_last_answer),
        CASE(an_answer_without_the_rows_that_a_lane_leaves_out_is_invalid),
        CASE(an_answer_with_rows_that_it_claims_to_omit_is_invalid),
        CASE(all_rows_of_a_restarted_aggregator_are_requested),
        CASE(the_reason_of_a_chosen_lane_is_shown),
        CASE(the_measured_loss_is_shown_beside_the_predicted_one),
        CASE(how_rounds_end_is_part_of_the_prediction),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
