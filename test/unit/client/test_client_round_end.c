/* Tests time-outs of gp_round_end(). Each wait within the call has its own error text, and the next
 * call continues the wait. Also tests the requests for results that gp_round_end() sends. */
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 4
/* maximum number of calls, each with a deadline of SHORT_MS, until a call times out in the expected
 * wait */
#define TRIES 400
#define TENSOR_LANE 0     /* lane of the tensor; the leading tensor is on the next lane */
#define BOTH_RANKS 3      /* bit set */
#define FIRST_RANK_ONLY 1 /* bit set */

static gp_tensor *tensors[WORKERS];
static float values[WORKERS][ELEMENTS];

/* Starts a job with backup workers, and broadcasts its parameters. */
static void begin(bool holds_commits)
{
    const gp_tensor_spec spec = {
        .name = "t", .dtype = GP_F32, .elements = ELEMENTS, .rule = GP_SGD};
    gp_request *requests[WORKERS];
    script_lock(&rig);
    rig.lanes_used = 2;
    rig.holds_commits = holds_commits;
    script_unlock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        gp_job_spec job = {.name = "job",
                           .rank = rank,
                           .workers = WORKERS,
                           .backup = {GP_BACKUP_STATIC, .k = 1, .absence = UINT32_MAX}};
        ok(gp_connect(rig.endpoint, NULL, &clients[rank]));
        ok(gp_job_join(clients[rank], &job, &jobs[rank]));
        ok(gp_tensors_declare(jobs[rank], &spec, 1, &tensors[rank]));
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_broadcast(tensors[rank], values[rank], 0, &requests[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(requests[rank], WAIT_MS));
}

static void update(void)
{
    const gp_settings settings = {.rate = 1};
    gp_request *request;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_update(tensors[rank], values[rank], values[rank], &settings, &request));
}

/* Delays the results of the tensor, and sends every rank the set of the job's round 1. */
static void hold_results_of(uint64_t set)
{
    script_lock(&rig);
    rig.held_lanes = 1u << TENSOR_LANE;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        script_lane_say_chosen(&rig, TENSOR_LANE, rank, 1, set);
    script_unlock(&rig);
}

/* Repeats gp_round_end() until its error text contains `text`. On a slow host the call may time out
 * in an earlier wait. */
static void wait_until_said(uint32_t rank, const char *text)
{
    for (int i = 0; i < TRIES; i++) {
        assert_int_equal(gp_round_end(jobs[rank], 0, SHORT_MS, NULL), -ETIMEDOUT);
        if (strstr(gp_last_error(), text))
            return;
    }
    fail_msg("no '%s', but '%s'", text, gp_last_error());
}

static void expect_time_out(uint32_t rank, const char *text)
{
    wait_until_said(rank, text);
    assert_string_equal(gp_last_error(), text);
}

/* Announces the end of the round. The other rank has not announced this end yet. */
static void announce(uint32_t rank)
{
    wait_until_said(rank, "round 1: no push from rank 1 after ");
}

static void an_uncommitted_earlier_round_is_named(void **state)
{
    (void)state;
    begin(true);
    update();
    expect_time_out(0, "job 'job' round 1: the round before is not committed by all lanes; call "
                       "gp_round_end() again to go on waiting");
}

static void a_leader_lane_that_sent_no_commit_is_named(void **state)
{
    (void)state;
    begin(false);
    update();
    script_lock(&rig);
    rig.holds_commits = true;
    script_unlock(&rig);
    announce(0);
    expect_time_out(1, "job 'job' round 1: the leader lane has not committed the round; call "
                       "gp_round_end() again to go on waiting");
}

static void a_missing_result_is_named_and_the_next_call_gets_it(void **state)
{
    (void)state;
    begin(false);
    hold_results_of(BOTH_RANKS);
    update();
    announce(0);
    expect_time_out(1, "job 'job' round 1: a lane has not sent its result; call gp_round_end() "
                       "again to go on waiting");
    script_lock(&rig);
    rig.held_lanes = 0;
    script_lane_resume(&rig);
    script_unlock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        gp_round round;
        assert_int_equal(gp_round_end(jobs[rank], 0, WAIT_MS, &round), 0);
        assert_int_equal(round.number, 1);
        assert_int_equal(round.counted, WORKERS);
    }
}

static void missing_parameters_of_a_rank_outside_the_set_are_named(void **state)
{
    (void)state;
    begin(false);
    hold_results_of(FIRST_RANK_ONLY);
    update();
    announce(0);
    expect_time_out(1, "job 'job' round 1: a lane has not sent the parameters of a later round; "
                       "call gp_round_end() again to go on waiting");
}

/* Waits for a READY of rank 1 with this standing and round, and returns the record. */
static struct record_ready await_ready(uint8_t standing, uint64_t round)
{
    const struct script_heard *found;
    script_lock(&rig);
    while (!(found = heard(1, round)) || found->ready.standing != standing)
        script_wait(&rig);
    struct record_ready ready = found->ready;
    script_unlock(&rig);
    return ready;
}

/* Answers a READY of rank 1. The answer names a newest round that is two rounds later. */
static void name_newer(uint32_t lane, const struct record_ready *ready)
{
    script_lock(&rig);
    script_lane_say_closed(&rig, lane, 1, ready->word, ready->round + 2);
    script_unlock(&rig);
}

/* A new owner learns the number of the job's round from a request for a result. Round 1 of the
 * tensor was the broadcast. */
static void a_request_for_a_result_names_the_round_of_the_job(void **state)
{
    (void)state;
    begin(false);
    hold_results_of(FIRST_RANK_ONLY);
    update();
    announce(0);
    wait_until_said(1, "a lane has not sent the parameters of a later round");
    struct record_ready end = await_ready(RECORD_ANNOUNCE, 1);
    struct record_ready first = await_ready(RECORD_TAKES, 2);
    name_newer(TENSOR_LANE, &first);
    wait_until_said(1, "the leader lane has not named the newest round");
    name_newer(1 - TENSOR_LANE, &end);
    wait_until_said(1, "a lane has not sent the parameters of a later round");
    struct record_ready next = await_ready(RECORD_TAKES, 4);
    assert_int_equal(first.root, 1);
    assert_int_equal(next.root, 3);
}

/* Lanes wait for the set of a round that gp_round_end() does not announce after a failure. */
static void a_failed_group_without_round_end_returns_lent_memory_at_once(void **state)
{
    const gp_settings settings = {.rate = 1};
    const gp_tensor_spec spec = {
        .name = "u", .dtype = GP_F32, .elements = ELEMENTS, .rule = GP_SGD};
    gp_tensor *more[WORKERS];
    gp_request *q[WORKERS];
    (void)state;
    begin(false);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_tensors_declare(jobs[rank], &spec, 1, &more[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_broadcast(more[rank], values[rank], 0, &q[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
    script_lock(&rig);
    rig.holds_results = true;
    script_unlock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        float *memory = lent(rank, ELEMENTS), *of_u = lent(rank, ELEMENTS);
        gp_item items[] = {{tensors[rank], memory, memory}, {more[rank], of_u, of_u}};
        ok(gp_update_group(jobs[rank], items, 2, &settings, &q[rank]));
    }
    script_lock(&rig);
    script_fail_tensor(&rig, 2, -EINVAL, "tensor 'u': ranks disagree");
    script_unlock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        failed(gp_round_end(jobs[rank], 0, WAIT_MS, NULL), -EINVAL, "tensor 'u'", NULL);
        failed(gp_wait(q[rank], WAIT_MS), -EINVAL, "tensor 'u': ranks disagree", NULL);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_start_alone, fixture_stop)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(an_uncommitted_earlier_round_is_named),
        CASE(a_leader_lane_that_sent_no_commit_is_named),
        CASE(a_missing_result_is_named_and_the_next_call_gets_it),
        CASE(missing_parameters_of_a_rank_outside_the_set_are_named),
        CASE(a_request_for_a_result_names_the_round_of_the_job),
        CASE(a_failed_group_without_round_end_returns_lent_memory_at_once),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
