/* Tests that tasks move away from slow lanes (K46). The counters of lanes are simulated, and the
 * moves are real. */
#include "svc/base/clock.h"
#include "svc/coordinator/service.h"
#include "test/unit/coordinator/measure_rig.h"

#include <stdio.h>
#include <string.h>

#define TENSORS 8
#define LOOK_ROUNDS 10

struct job_on_two {
    struct end *aggregator, *worker;
    uint64_t session;
    struct trained on[2];
};

static int exploring_setup(void **state)
{
    measure_setup(state);
    struct rig *rig = *state;
    rig->options.policy = "least-loaded";
    rig->options.explores = COORDINATOR_EXPLORES;
    rig_start_afresh(rig);
    return 0;
}

static struct service *service_of(struct rig *rig) { return rig->coordinator->service; }

static struct job *only_job(struct rig *rig)
{
    return list_entry(list_first(&service_of(rig)->jobs), struct job, link);
}

/* Starts a job of equal tensors. Each of two lanes serves half of them in one task. */
static struct job_on_two start(struct rig *rig)
{
    struct job_on_two j = {.aggregator = rig_aggregator(rig, 2)};
    char name[16];
    uint32_t id;
    j.worker = rig_join(rig, "resnet", 0, 1, &j.session, &id);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        uint64_t request = end_declare_one(j.worker, name, 1000);
        message_free(end_expect_reply(j.worker, request));
    }
    const struct job *job = only_job(rig);
    assert_int_equal(job->shares_count, 2);
    for (int i = 0; i < 2; i++)
        j.on[i] = (struct trained){.job = id,
                                   .lane = job->shares[i].lane->id,
                                   .reference = 1 + (uint32_t)i,
                                   .begun_ns = 77};
    j.aggregator->ignores = BODY(STATS_REQUEST);
    return j;
}

/* Sends counters with further rounds of `period_ms`, and the lane times of both lanes. */
static void look(struct job_on_two *j, uint64_t period_ms, uint64_t first_ms, uint64_t second_ms)
{
    uint64_t handled_ms[] = {first_ms, second_ms};
    for (int i = 0; i < 2; i++) {
        trained_go_on(&j->on[i], LOOK_ROUNDS, period_ms * NS_PER_MS, NS_PER_MS);
        j->on[i].handled_ns += LOOK_ROUNDS * handled_ms[i] * NS_PER_MS;
        j->on[i].stalled_ns += i == 0 ? LOOK_ROUNDS * first_ms * NS_PER_MS : 0;
    }
    trained_answer(j->aggregator, j->on, 2);
}

static uint32_t pieces_on(struct rig *rig, uint32_t lane)
{
    const struct job *job = only_job(rig);
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].lane->id == lane)
            return job->shares[i].pieces;
    return 0;
}

/* Makes the first lane four times slower until the service tries a change. */
static void slow_down(struct rig *rig, struct job_on_two *j)
{
    for (int i = 0; i < 30 && !*rig_last_event(rig, "explore"); i++)
        look(j, 60, 40, 10);
    assert_true(*rig_last_event(rig, "explore"));
    for (int i = 0; i < 30 && !*rig_last_event(rig, "move"); i++)
        look(j, 60, 40, 10);
    assert_true(*rig_last_event(rig, "move"));
}

/* The lane works only while it has its core, so the lane's own clock does not show that the lane is
 * slow. */
static void a_lane_that_is_kept_from_its_core_is_slow(void **state)
{
    struct rig *rig = *state;
    struct job_on_two j = start(rig);
    for (int i = 0; i < 30 && !*rig_last_event(rig, "explore"); i++) {
        j.on[0].core_wait_ns += LOOK_ROUNDS * 40 * NS_PER_MS;
        look(&j, 60, 10, 10);
    }
    assert_non_null(strstr(rig_last_event(rig, "explore"), "needs 41.00 ms a round"));
}

static void pieces_leave_a_slow_lane_as_a_task_of_their_own(void **state)
{
    struct rig *rig = *state;
    struct job_on_two j = start(rig);
    uint32_t next_task = service_of(rig)->numbers->next_task;
    slow_down(rig, &j);
    assert_in_range(pieces_on(rig, j.on[0].lane), 1, 3);
    assert_int_equal(pieces_on(rig, j.on[0].lane) + pieces_on(rig, j.on[1].lane), TENSORS);
    assert_int_equal(service_of(rig)->numbers->next_task, next_task + 1);
    const struct job *job = only_job(rig);
    for (size_t t = 0; t < job->tensors_count; t++) {
        const struct piece *piece = &job->tensors[t]->pieces[0];
        assert_true(piece->task != next_task || piece->lane->id == j.on[1].lane);
    }
}

static void a_successful_experiment_is_kept(void **state)
{
    struct rig *rig = *state;
    struct job_on_two j = start(rig);
    slow_down(rig, &j);
    uint32_t left = pieces_on(rig, j.on[0].lane);
    for (int i = 0; i < 30 && !*rig_last_event(rig, "keep"); i++)
        look(&j, 36, 16, 16);
    assert_true(*rig_last_event(rig, "keep"));
    assert_int_equal(pieces_on(rig, j.on[0].lane), left);
}

static void a_failed_experiment_is_undone(void **state)
{
    struct rig *rig = *state;
    struct job_on_two j = start(rig);
    slow_down(rig, &j);
    for (int i = 0; i < 60 && pieces_on(rig, j.on[0].lane) < TENSORS / 2; i++)
        look(&j, 60, 16, 16);
    assert_true(*rig_last_event(rig, "roll back"));
    assert_int_equal(pieces_on(rig, j.on[0].lane), TENSORS / 2);
    assert_int_equal(pieces_on(rig, j.on[1].lane), TENSORS / 2);
}

static bool is_back(struct rig *rig, const struct job_on_two *j)
{
    return pieces_on(rig, j->on[0].lane) == TENSORS / 2 &&
           pieces_on(rig, j->on[1].lane) == TENSORS / 2;
}

static void come_back(struct rig *rig, struct job_on_two *j)
{
    envelope request;
    WIRE(JoinRequest) join;
    join_request(&request, &join, "resnet", 0, 1);
    join.session = j->session;
    join.job_id = j->on[0].job;
    j->worker = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    message_free(end_ask(j->worker, &request));
}

/* While a worker is disconnected, tasks of its job cannot move, so no decision is made. */
static void a_failed_experiment_is_undone_after_a_worker_has_returned(void **state)
{
    struct rig *rig = *state;
    struct job_on_two j = start(rig);
    slow_down(rig, &j);
    end_close(j.worker);
    rig_settle(rig);
    for (int i = 0; i < 60; i++)
        look(&j, 60, 16, 16);
    assert_false(is_back(rig, &j));
    come_back(rig, &j);
    for (int i = 0; i < 60 && !is_back(rig, &j); i++)
        look(&j, 60, 16, 16);
    assert_true(is_back(rig, &j));
}

static void a_failed_undo_of_an_experiment_is_tried_again(void **state)
{
    struct rig *rig = *state;
    struct job_on_two j = start(rig);
    slow_down(rig, &j);
    j.aggregator->refuses = BODY(RELEASE_REQUEST);
    for (int i = 0; i < 60 && !*rig_last_event(rig, "stay"); i++)
        look(&j, 60, 16, 16);
    assert_true(*rig_last_event(rig, "roll back"));
    assert_true(*rig_last_event(rig, "stay"));
    assert_false(is_back(rig, &j));
    j.aggregator->refuses = 0;
    for (int i = 0; i < 10 && !is_back(rig, &j); i++)
        look(&j, 60, 16, 16);
    assert_true(is_back(rig, &j));
}

static void split_tasks_stay_split_after_a_restart(void **state)
{
    struct rig *rig = *state;
    struct job_on_two j = start(rig);
    slow_down(rig, &j);
    uint32_t next_task = service_of(rig)->numbers->next_task, tasks[TENSORS];
    for (int t = 0; t < TENSORS; t++)
        tasks[t] = only_job(rig)->tensors[t]->pieces[0].task;
    rig_crash(rig);
    rig_start(rig);
    assert_int_equal(service_of(rig)->numbers->next_task, next_task);
    for (int t = 0; t < TENSORS; t++)
        assert_int_equal(only_job(rig)->tensors[t]->pieces[0].task, tasks[t]);
}

static void no_change_is_tried_while_lanes_are_equally_loaded(void **state)
{
    struct rig *rig = *state;
    struct job_on_two j = start(rig);
    for (int i = 0; i < 60; i++)
        look(&j, 40, 10, 10);
    assert_false(*rig_last_event(rig, "explore"));
}

static void no_experiment_begins_without_the_option(void **state)
{
    struct rig *rig = *state;
    rig->options.explores = COORDINATOR_EXPLORES_NOT;
    rig_start_afresh(rig);
    struct job_on_two j = start(rig);
    for (int i = 0; i < 40; i++)
        look(&j, 60, 40, 10);
    assert_false(*rig_last_event(rig, "explore"));
    assert_int_equal(pieces_on(rig, j.on[0].lane), TENSORS / 2);
}

/* A job of two workers that is not measured gets both lanes, and no other job is placed on them. */
static void a_lane_with_a_job_that_is_not_measured_gets_nothing(void **state)
{
    struct rig *rig = *state;
    rig->options.policy = "shared";
    rig_start_afresh(rig);
    struct job_on_two j = {.aggregator = rig_aggregator(rig, 2)};
    struct end *workers[2], *stranger;
    uint32_t id;
    char name[16];
    for (uint32_t rank = 0; rank < 2; rank++)
        workers[rank] = rig_join(rig, "resnet", rank, 2, NULL, &id);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        uint64_t requests[2];
        for (int rank = 0; rank < 2; rank++)
            requests[rank] = end_declare_one(workers[rank], name, 1000);
        for (int rank = 0; rank < 2; rank++)
            message_free(end_expect_reply(workers[rank], requests[rank]));
    }
    assert_int_equal(only_job(rig)->shares_count, 2);
    uint32_t taken = trained_start(rig, "other", &stranger).lane;
    for (int i = 0; i < 2; i++) {
        const struct lane *lane = only_job(rig)->shares[i].lane;
        j.on[lane->id == taken] =
            (struct trained){.job = id, .lane = lane->id, .reference = 1, .begun_ns = 77};
    }
    j.aggregator->ignores = BODY(STATS_REQUEST);
    for (int i = 0; i < 40; i++)
        look(&j, 60, 40, 10);
    assert_false(*rig_last_event(rig, "explore"));
    assert_int_equal(pieces_on(rig, taken), TENSORS / 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, exploring_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_lane_that_is_kept_from_its_core_is_slow),
        CASE(pieces_leave_a_slow_lane_as_a_task_of_their_own),
        CASE(a_successful_experiment_is_kept),
        CASE(a_failed_experiment_is_undone),
        CASE(a_failed_experiment_is_undone_after_a_worker_has_returned),
        CASE(a_failed_undo_of_an_experiment_is_tried_again),
        CASE(split_tasks_stay_split_after_a_restart),
        CASE(no_change_is_tried_while_lanes_are_equally_loaded),
        CASE(no_experiment_begins_without_the_option),
        CASE(a_lane_with_a_job_that_is_not_measured_gets_nothing),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
