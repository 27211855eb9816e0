/* Tests connections to lanes with tables, against the scripted service. No record is lost while a
 * lane ends an unused connection. Memory of a call stays lent until the call's lane has closed. A
 * rank that leaves waits for its pushes. */
#include "client/lib/job/job_tables.h"
#include "client/lib/job/row_pool.h"
#include "client/lib/link/link.h"
#include "client/lib/session/client.h"
#include "svc/base/clock.h"
#include "test/unit/client/table_case.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static bool link_is_open(struct gp_job *job, uint32_t lane)
{
    bool is_open = false;
    pthread_mutex_lock(&job->lock);
    for_each_link (l, job)
        is_open |= l->lane == lane && l->state == LINK_OPEN;
    pthread_mutex_unlock(&job->lock);
    return is_open;
}

/* Connects all ranks to a lane that serves neither pieces nor tables of the job. */
static void connect_ahead(uint32_t lane)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__LaneAhead ahead = GRADPOOL__WIRE__LANE_AHEAD__INIT;
    ahead.lane = lane;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_LANE_AHEAD;
    message.lane_ahead = &ahead;
    script_lock(&rig);
    script_send_all(&rig, &message);
    script_unlock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        while (!link_is_open(jobs[rank], lane))
            sched_yield();
}

/* Runs one clock with a push of rank 0 in a table on lane 1. */
static void run_clock_on_lane_1(void)
{
    use_lanes(1, 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_table_declare(jobs[rank], &usual, &t[rank]));
    gp_batch *batch = batch_of(t[0], 10);
    ok(gp_table_set(t[0], &rate));
    ok(gp_push(batch, gradients, NULL));
    end_clocks();
    pull_and_check(batch, 10, 2);
    gp_batch_free(batch);
}

/* The lane has dropped the job. The worker has not detected the end of the connection yet. */
static void no_record_is_lost_on_a_connection_that_the_lane_ends(void **state)
{
    connect_ahead(1);
    script_lock(&rig);
    rig.lanes[1].workers[0].is_dropped = true;
    script_unlock(&rig);
    run_clock_on_lane_1();
    script_lock(&rig);
    assert_int_equal(rig.lanes[1].accepted, WORKERS + 1);
    assert_int_equal(rig.tables.tables[0].keys_pushed, 7);
    script_unlock(&rig);
}

static void a_lane_that_keeps_an_unused_connection_serves_tables_on_it(void **state)
{
    connect_ahead(1);
    run_clock_on_lane_1();
    script_lock(&rig);
    assert_int_equal(rig.lanes[1].accepted, WORKERS);
    script_unlock(&rig);
}

static uint64_t used_bytes(uint32_t rank)
{
    pthread_mutex_lock(&jobs[rank]->lock);
    uint64_t bytes = jobs[rank]->tables->pool->used_bytes;
    pthread_mutex_unlock(&jobs[rank]->lock);
    return bytes;
}

/* While the test holds the rig's lock, the lane does not detect the end of a connection, and may
 * still use the memory. */
static void memory_of_a_call_stays_lent_until_its_lane_has_closed(void **state)
{
    gp_request *request;
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], KEYS);
    hold_answers(true);
    ok(gp_push(batch, gradients, NULL));
    ok(gp_pull(batch, rows, &request));
    wait_records(2);
    uint64_t lent = used_bytes(0);
    script_lane_babble(&rig, 0, 0);
    failed(gp_wait(request, WAIT_MS), -EBADMSG,
           "lane 0 of aggregator 5 on node7 sent a message that version", NULL);
    failed(gp_pull(batch, rows, &request), -EBADMSG, "lane 0 of ", NULL);
    assert_true(lent > 0);
    assert_int_equal(used_bytes(0), lent);
    script_unlock(&rig);
    while (used_bytes(0) > 0)
        sched_yield();
    failed(gp_clock(jobs[0]), -EBADMSG, "lane 0 of ", NULL);
    gp_batch_free(batch);
}

/* The coordinator reports the loss of lane 0, but the lane still runs. Each worker itself closes
 * its connection to the lane, so no message of the lane ends the calls of the tables. */
static void a_lane_that_a_route_change_fences_ends_the_calls_of_its_tables(void **state)
{
    gp_tensor *tensors[WORKERS];
    gp_request *request;
    declare("dense", 100, tensors);
    run_round(tensors, 1);
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    hold_answers(true);
    ok(gp_push(batch, gradients, NULL));
    ok(gp_pull(batch, rows, &request));
    wait_records(2);
    script_move(&rig, 0, 1);
    script_unlock(&rig);
    failed(gp_wait(request, WAIT_MS), -EOWNERDEAD, "table 'users': lane 0 of ", "0, 1, 2", NULL);
    for (uint64_t end_ns = clock_now_ns() + WAIT_MS * NS_PER_MS; used_bytes(0) > 0;) {
        assert_true(clock_now_ns() < end_ns);
        sched_yield();
    }
    failed(gp_clock(jobs[0]), -EOWNERDEAD, "table 'users': lane 0 of ", NULL);
    run_round(tensors, 2);
    gp_batch_free(batch);
}

/* Rank 0 has ended a clock with a copied push, which no lane has answered. The leave of rank 0
 * waits for at most `limit_ms`. */
static void push_and_hold(uint32_t limit_ms)
{
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    hold_answers(true);
    ok(gp_push(batch, gradients, NULL));
    end_clocks();
    gp_batch_free(batch);
    wait_records(3);
    script_unlock(&rig);
    clients[0]->timeout_ns = limit_ms * NS_PER_MS;
}

static void *leave(void *job)
{
    gp_job_leave(job);
    return NULL;
}

static bool is_leaving(gp_client *client)
{
    pthread_mutex_lock(&client->lock);
    bool is = list_is_empty(&client->jobs);
    pthread_mutex_unlock(&client->lock);
    return is;
}

static void a_leave_waits_for_pushes_of_ended_clocks(void **state)
{
    pthread_t thread;
    push_and_hold(WAIT_MS);
    assert_int_equal(pthread_create(&thread, NULL, leave, jobs[0]), 0);
    while (!is_leaving(clients[0]))
        sched_yield();
    script_lock(&rig);
    assert_int_equal(rig.lane_leaves, 0);
    script_unlock(&rig);
    hold_answers(false);
    pthread_join(thread, NULL);
    script_lock(&rig);
    while (rig.lane_leaves == 0)
        script_wait(&rig);
    assert_int_equal(rig.tables.tables[0].keys_pushed, 7);
    script_unlock(&rig);
}

/* The limit is much longer than all other parts of the leave. */
static void a_leave_waits_no_longer_than_the_limit_of_the_client(void **state)
{
    uint64_t began_ns = clock_now_ns();
    push_and_hold(1500);
    gp_job_leave(jobs[0]);
    assert_true(clock_now_ns() - began_ns >= 1500 * NS_PER_MS);
    script_lock(&rig);
    while (rig.lane_leaves == 0)
        script_wait(&rig);
    assert_int_equal(rig.tables.tables[0].keys_pushed, 0);
    script_unlock(&rig);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, fixture_start, fixture_stop)
    const struct CMUnitTest tests[] = {
        WITH(no_record_is_lost_on_a_connection_that_the_lane_ends),
        WITH(a_lane_that_keeps_an_unused_connection_serves_tables_on_it),
        WITH(memory_of_a_call_stays_lent_until_its_lane_has_closed),
        WITH(a_lane_that_a_route_change_fences_ends_the_calls_of_its_tables),
        WITH(a_leave_waits_for_pushes_of_ended_clocks),
        WITH(a_leave_waits_no_longer_than_the_limit_of_the_client),
    };
    return cmocka_run_group_tests(tests, fixture_clear, NULL);
}
