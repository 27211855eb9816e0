/* Tests a late worker in a job with step records (L99). The worker declares its tensors and
 * connects to their lanes. Before it has received the route for its entry, the worker sends no
 * record. */
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ELEMENTS 1000
#define MOST 4
#define LATE 2
#define FOUNDERS 3u /* bit set of ranks 0 and 1 */
#define ALL 7u
/* deadline of calls in ms; answers of the service arrive earlier, and calls without an answer time
 * out */
#define ANSWER_MS 500

static gp_tensor *t[WORKERS], *late_tensor;
static gp_client *late_client;
static gp_job *late;
static float values[ELEMENTS];

static void join(gp_client **client, gp_job **job, uint32_t rank)
{
    gp_job_spec spec = {.name = "job",
                        .rank = rank,
                        .workers = rank < WORKERS ? WORKERS : rank + 1,
                        .workers_max = MOST};
    ok(gp_connect(rig.endpoint, NULL, client));
    ok(gp_job_join(*client, &spec, job));
}

/* Two ranks train. A third rank joins and declares, and does not take part in rounds yet. */
static int start(void **state)
{
    fixture_start_alone(state);
    rig.workers_max = MOST;
    rig.members = FOUNDERS;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        join(&clients[rank], &jobs[rank], rank);
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    join(&late_client, &late, LATE);
    ok(gp_tensor_declare(late, "w", GP_F32, ELEMENTS, &late_tensor));
    return 0;
}

static int stop(void **state)
{
    gp_disconnect(late_client);
    return fixture_stop(state);
}

static void expect_silence(void)
{
    script_lock(&rig);
    for (uint32_t i = 0; i < rig.heard_count; i++)
        assert_int_not_equal(rig.heard[i].rank, LATE);
    script_unlock(&rig);
}

static void wait_asked(uint32_t entries)
{
    script_lock(&rig);
    while (rig.entries < entries)
        script_wait(&rig);
    assert_int_equal(rig.entries, entries);
    script_unlock(&rig);
}

/* Adds the late worker to the ranks of all rounds. */
static void let_in(void)
{
    script_lock(&rig);
    rig.holds_entries = true;
    script_regroup(&rig, ALL);
    script_unlock(&rig);
}

static bool has_spoken(uint32_t lane)
{
    for (uint32_t i = 0; i < rig.heard_count; i++) {
        if (rig.heard[i].rank != LATE)
            continue;
        assert_int_equal(rig.heard[i].ready.standing, RECORD_ENTERS);
        assert_int_equal(rig.heard[i].lane, lane);
        return true;
    }
    return false;
}

/* Waits until the late worker asks the lane for the number of its first round. */
static void expect_entering(uint32_t lane)
{
    script_lock(&rig);
    while (!has_spoken(lane))
        script_wait(&rig);
    script_unlock(&rig);
}

static void a_late_worker_is_connected_before_it_asks_to_enter(void **state)
{
    script_lock(&rig);
    assert_non_null(rig.lanes[0].workers[LATE].conn);
    assert_int_equal(rig.entries, 0);
    script_unlock(&rig);
    run_round(t, 2);
    expect_silence();
}

static void a_push_asks_once_and_waits_for_the_route_of_the_entry(void **state)
{
    gp_request *request;
    ok(gp_push_pull(late_tensor, values, values, GP_SUM, &request));
    wait_asked(1);
    run_round(t, 2);
    expect_silence();
    let_in();
    expect_entering(0);
    wait_asked(1);
    gp_disconnect(late_client);
    late_client = NULL;
}

static void a_push_outside_of_the_rounds_names_the_reason_at_its_deadline(void **state)
{
    gp_request *request;
    ok(gp_push_pull(late_tensor, values, values, GP_SUM, &request));
    failed(gp_wait(request, SHORT_MS), -ETIMEDOUT, "this rank joined late, and the other ranks ",
           "have not ended a step since", NULL);
    expect_silence();
}

static void a_late_worker_follows_moves_without_a_record(void **state)
{
    script_lock(&rig);
    script_move(&rig, 0, 1);
    script_unlock(&rig);
    run_round(t, 2);
    expect_silence();
    let_in();
    expect_entering(1);
}

static void a_resize_of_a_late_worker_asks_for_its_entry(void **state)
{
    UNTIL_TIMED_OUT(gp_job_resize(late, LATE + 1, ANSWER_MS),
                    "rank 2 has joined, but has not declared tensor 'w'")
    wait_asked(1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_late_worker_is_connected_before_it_asks_to_enter),
        CASE(a_push_asks_once_and_waits_for_the_route_of_the_entry),
        CASE(a_push_outside_of_the_rounds_names_the_reason_at_its_deadline),
        CASE(a_late_worker_follows_moves_without_a_record),
        CASE(a_resize_of_a_late_worker_asks_for_its_entry),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
