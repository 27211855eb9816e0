/* Tests figures about jobs that share lanes. The packer uses these figures, and commands show these
 * figures to users (K15 to K17, K106). */
#include "svc/base/clock.h"
#include "svc/coordinator/service.h"
#include "test/unit/coordinator/measure_rig.h"

#include <errno.h>
#include <string.h>

#define PERIOD_NS (100 * NS_PER_MS)
#define IDLE_NS (3 * NS_PER_S) /* a time longer than a job needs to join, even on a slow host */

static void limit(struct rig *rig, uint32_t ppm, uint64_t idle_ns)
{
    rig_crash(rig);
    rig->options.loss_limit_ppm = ppm;
    rig->options.idle_ns = idle_ns;
    rig_start(rig);
}

static void expect_refused_for(struct rig *rig, const char *name, const char *why)
{
    uint64_t session;
    uint32_t id;
    struct end *worker = rig_join(rig, name, 0, 1, &session, &id);
    end_declare_one(worker, "w", 1000);
    envelope *reply = end_expect(worker, BODY(FAILURE));
    assert_int_equal(reply->failure->code, -ENOSPC);
    if (!strstr(reply->failure->text, why))
        fail_msg("'%s' does not say '%s'", reply->failure->text, why);
    message_free(reply);
    end_leave(worker);
    rig_settle(rig);
}

/* Checks the reason for which a job waits (K102). */
static void expect_waits(struct rig *rig, const char *name)
{
    uint64_t session;
    uint32_t id;
    struct end *worker = rig_join(rig, name, 0, 1, &session, &id);
    end_declare_one(worker, "w", 1000);
    envelope *notice = end_expect(worker, BODY(NOTICE));
    assert_non_null(
        strstr(notice->notice->text, "does not permit lanes of a job that is not measured yet"));
    message_free(notice);
    end_leave(worker);
    rig_settle(rig);
}

/* Sends measurements without progress until this time has passed. */
static void do_nothing(struct end *aggregator, const struct trained *job, uint64_t for_ns)
{
    uint64_t began_ns = clock_now_ns();
    aggregator->answers = false;
    while (clock_now_ns() - began_ns <= for_ns)
        trained_answer(aggregator, job, 1);
    aggregator->answers = true;
}

static void a_job_that_never_trains_causes_no_refusal(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    measure_know(rig, 4 * NS_PER_MS, 1, (const char *[]){"known"});
    limit(rig, 50000, 0);
    struct end *aggregator = rig_aggregator(rig, 1);
    struct trained idle = trained_start(rig, "sits", &worker);
    expect_waits(rig, "known"); /* the idle job may start to train at any time */
    rig->coordinator->service->options->idle_ns = PERIOD_NS;
    do_nothing(aggregator, &idle, PERIOD_NS);
    assert_int_equal(measure_lane_of(rig, "known"), idle.lane);
}

static void a_job_with_long_rounds_is_not_idle(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    measure_know(rig, 4 * NS_PER_MS, 1, (const char *[]){"known"});
    limit(rig, 50000, IDLE_NS);
    struct end *aggregator = rig_aggregator(rig, 1);
    struct trained slow = trained_start(rig, "slow", &worker);
    do_nothing(aggregator, &slow, IDLE_NS);
    aggregator->answers = false;
    trained_run(aggregator, &slow, 2, PERIOD_NS, 4 * NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    expect_waits(rig, "known");
}

static void after_a_restart_jobs_use_their_stored_measurements(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    WIRE(PieceHeld) held = GRADPOOL__WIRE__PIECE_HELD__INIT;
    measure_know(rig, 40 * NS_PER_MS, 2, (const char *[]){"first", "second"});
    limit(rig, 50000, 0);
    struct end *aggregator = rig_aggregator(rig, 1), before = *aggregator;
    struct trained first = trained_start(rig, "first", &worker);
    held.job_id = first.job;
    held.piece = held.epoch = 1;
    held.lane = first.lane;
    rig_crash(rig);
    rig_start(rig);
    rig_rejoin(rig, &before, 1, &held);
    expect_refused_for(rig, "second", "cannot be placed");
}

/* Removes the tensors from a stored profile, as if the coordinator had ended before the lanes
 * answered. */
static int forget_tensors(void *context, const struct store_row *row)
{
    struct store *store = context;
    if (row->table != STORE_PROFILE)
        return 0;
    struct store_row bare = *row;
    bare.profile.tensors = (struct store_blob){"", 0};
    store_put(store, &bare);
    return 0;
}

static void measurements_missing_in_the_history_are_requested_again(void **state)
{
    struct rig *rig = *state;
    struct store *store;
    struct err err;
    struct end *worker;
    uint32_t asked = 0;
    measure_know(rig, 4 * NS_PER_MS, 1, (const char *[]){"known"});
    rig_crash(rig);
    measure_open_store(rig, &store);
    store_begin(store);
    assert_int_equal(store_load(store, forget_tensors, store, &err), 0);
    assert_int_equal(store_commit(store, &err), 0);
    store_close(store);
    rig_start(rig);
    struct end *aggregator = rig_aggregator(rig, 1);
    struct trained job = trained_start(rig, "known", &worker);
    aggregator->answers = false;
    for (int looks = 0; looks < 20; looks++) {
        trained_go_on(&job, 10, PERIOD_NS, 4 * NS_PER_MS);
        asked += trained_answer(aggregator, &job, 1) == job.job;
    }
    aggregator->answers = true;
    assert_int_equal(asked, 1);
}

/* Each of the two jobs sends 4,000 bytes in each direction ten times a second, so each job needs
 * 80,000 bytes/s. */
static void a_network_is_not_filled_beyond_its_speed(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, NS_PER_MS, 2, (const char *[]){"first", "second"});
    limit(rig, 50000, 0);
    rig->network_bytes_per_s = 60000; /* in each direction */
    rig_aggregator(rig, 1);
    measure_lane_of(rig, "first");
    expect_refused_for(rig, "second", "the service lacks network of the lanes");
}

static void no_job_without_a_limit_is_refused_for_the_network(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, NS_PER_MS, 2, (const char *[]){"first", "second"});
    rig->network_bytes_per_s = 60000;
    rig_aggregator(rig, 1);
    assert_int_equal(measure_lane_of(rig, "first"), measure_lane_of(rig, "second"));
}

static void memory_of_a_numa_node_is_shared_by_its_lanes(void **state)
{
    struct rig *rig = *state;
    rig->memory_bytes = 2 * 2 * RIG_COST_BYTES; /* memory for two pieces of one rank each */
    rig_aggregator(rig, 2);
    measure_lane_of(rig, "first");
    measure_lane_of(rig, "second");
    expect_refused_for(rig, "third", "memory of the lanes' NUMA nodes");
}

/* The job's own lane time and the lane's wait for its core are not part of the loss that lanes
 * explain. */
static void the_part_of_a_loss_that_lanes_explain_is_shown_apart(void **state)
{
    struct rig *rig = *state;
    struct end *workers[2], *aggregator = rig_aggregator(rig, 1);
    const WIRE(JobView) * view;
    struct trained job = trained_start(rig, "resnet", &workers[0]);
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    trained_start(rig, "gpt", &workers[1]);
    aggregator->answers = false;
    for (int i = 0; i < 12; i++) {
        job.handled_ns += 10 * 14 * NS_PER_MS; /* each round is 10 ms longer than its lane time */
        trained_go_on(&job, 10, 125 * NS_PER_MS, 4 * NS_PER_MS);
        trained_answer(aggregator, &job, 1);
    }
    aggregator->answers = true;
    rig_settle(rig);
    envelope *reply = measure_ask_job(rig, "resnet", &view);
    assert_in_range(view->loss_ppm, 199900, 200000);
    assert_in_range(view->shared_loss_ppm, 79900, 80000);
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_job_that_never_trains_causes_no_refusal),
        CASE(a_job_with_long_rounds_is_not_idle),
        CASE(after_a_restart_jobs_use_their_stored_measurements),
        CASE(measurements_missing_in_the_history_are_requested_again),
        CASE(a_network_is_not_filled_beyond_its_speed),
        CASE(no_job_without_a_limit_is_refused_for_the_network),
        CASE(memory_of_a_numa_node_is_shared_by_its_lanes),
        CASE(the_part_of_a_loss_that_lanes_explain_is_shown_apart),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
