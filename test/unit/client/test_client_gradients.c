/* Tests several gradients of a rank in one round (L120, L121): gp_round_end() returns 2 after a
 * GO_ON of the leader lane, and the next pushes belong to the same round. */
#include "client/lib/job/tensor.h"
#include "svc/fabric/fabric.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 5
#define MOST 3
#define TRIES 400
#define TENSOR_LANE 0
#define HIDDEN_LANE 1

static gp_tensor *tensors[WORKERS];
static float parameters[WORKERS][ELEMENTS], gradients[WORKERS][ELEMENTS];
static gp_request *requests[WORKERS];
static const gp_settings settings = {.rate = 1};

static void update(uint32_t rank, float value)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        gradients[rank][i] = value;
    ok(gp_update(tensors[rank], gradients[rank], parameters[rank], &settings, &requests[rank]));
}

/* Starts a job with backup workers, and broadcasts its parameters. */
static void join(void)
{
    const gp_tensor_spec spec = {
        .name = "t", .dtype = GP_F32, .elements = ELEMENTS, .rule = GP_SGD};
    script_lock(&rig);
    rig.lanes_used = 2;
    script_unlock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        gp_job_spec job = {.name = "job",
                           .rank = rank,
                           .workers = WORKERS,
                           .backup = {GP_BACKUP_STATIC, .k = 2, .gradients = MOST}};
        ok(gp_connect(rig.endpoint, NULL, &clients[rank]));
        ok(gp_job_join(clients[rank], &job, &jobs[rank]));
        ok(gp_tensors_declare(jobs[rank], &spec, 1, &tensors[rank]));
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_broadcast(tensors[rank], parameters[rank], 0, &requests[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(requests[rank], WAIT_MS));
}

/* Starts the job, and pushes one gradient of each rank. */
static void begin(void)
{
    join();
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        update(rank, 1);
}

/* Announces the gradient of the rank, for which the other rank is still missing. */
static void announce(uint32_t rank)
{
    for (int i = 0; i < TRIES; i++) {
        assert_int_equal(gp_round_end(jobs[rank], 0, SHORT_MS, NULL), -ETIMEDOUT);
        if (strstr(gp_last_error(), "round 1: no push from rank 1 after "))
            return;
    }
    fail_msg("'%s'", gp_last_error());
}

static void say_go_on(uint64_t round, uint8_t gradient)
{
    script_lock(&rig);
    script_lane_say_go_on(&rig, HIDDEN_LANE, 0, round, gradient);
    script_unlock(&rig);
}

static void say_counts(const uint8_t *counts)
{
    script_lock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        script_lane_say_counts(&rig, TENSOR_LANE, rank, 1, counts);
    script_unlock(&rig);
}

/* Rank 0 announces its first gradient, and is to go on. */
static void go_on(void)
{
    begin();
    announce(0);
    say_go_on(1, 2);
    assert_int_equal(gp_round_end(jobs[0], 0, WAIT_MS, NULL), 2);
}

/* Returns the last READY of rank 0 on the hidden tensor. */
static struct record_ready await_gradient(uint8_t gradient)
{
    const struct script_heard *found;
    script_lock(&rig);
    while (!(found = heard(0, 1)) || found->lane != HIDDEN_LANE ||
           found->ready.gradient != gradient)
        script_wait(&rig);
    struct record_ready ready = found->ready;
    script_unlock(&rig);
    return ready;
}

static void expect_end(uint32_t rank, uint32_t counted, uint32_t own)
{
    gp_round round;
    ok(gp_round_end(jobs[rank], 0, WAIT_MS, &round));
    assert_int_equal(round.number, 1);
    assert_int_equal(round.counted, counted);
    assert_int_equal(round.of, WORKERS);
    assert_int_equal(round.own, own);
    ok(gp_wait(requests[rank], WAIT_MS));
}

/* Checks the value of a slot in the memory that rank 0 lends. */
static void expect_slot(uint32_t number, float value)
{
    script_lock(&rig);
    const struct record_ready *ready = &heard(0, 2)->ready;
    assert_true(ready->input_stride >= ready->input_bytes);
    const float *at =
        fabric_map(rig.lanes[TENSOR_LANE].workers[0].conn, ready->input_region,
                   ready->input_offset + (number - 1) * ready->input_stride, ready->input_bytes);
    assert_non_null(at);
    for (size_t i = 0; i < ELEMENTS; i++)
        assert_true(at[i] == value);
    script_unlock(&rig);
}

static void another_gradient_goes_to_its_own_slot_and_counts(void **state)
{
    (void)state;
    go_on();
    gp_request *first = requests[0];
    update(0, 7);
    assert_ptr_equal(requests[0], first);
    expect_slot(1, 1);
    expect_slot(2, 7);
    assert_int_equal(gp_round_end(jobs[0], 0, SHORT_MS, NULL), -ETIMEDOUT);
    await_gradient(2);
    say_counts((const uint8_t[]){2, 1});
    expect_end(1, 3, 1);
    expect_end(0, 3, 2);
}

static void a_third_gradient_follows_the_second(void **state)
{
    (void)state;
    go_on();
    update(0, 7);
    assert_int_equal(gp_round_end(jobs[0], 0, SHORT_MS, NULL), -ETIMEDOUT);
    await_gradient(2);
    say_go_on(1, 3);
    assert_int_equal(gp_round_end(jobs[0], 0, WAIT_MS, NULL), 2);
    update(0, 9);
    assert_int_equal(gp_round_end(jobs[0], 0, SHORT_MS, NULL), -ETIMEDOUT);
    await_gradient(3);
    expect_slot(1, 1);
    expect_slot(2, 7);
    expect_slot(3, 9);
    say_counts((const uint8_t[]){3, 1});
    expect_end(1, 4, 1);
    expect_end(0, 4, 3);
}

static void a_gradient_after_the_close_is_reported_and_dropped(void **state)
{
    (void)state;
    go_on();
    float before = parameters[0][0];
    say_counts((const uint8_t[]){1, 1});
    expect_end(1, 2, 1);
    while (jobs[0]->backup.leader->without_commit > 0 || tensors[0]->without_commit > 0)
        assert_int_equal(gp_poll(requests[0], 0), 0);
    assert_true(parameters[0][0] ==
                before); /* the gradient in flight still uses these parameters */
    update(0, 7);
    expect_end(0, 2, 1);
    await_gradient(2);
    update(0, 3); /* round 2 begins with its first gradient */
    update(1, 3);
    expect_slot(1, 3);
}

static void *poll_long(void *ret_result)
{
    *(int *)ret_result = gp_poll(requests[0], WAIT_MS);
    return NULL;
}

static void await_waiting_thread(void)
{
    bool is_waiting = false;
    while (!is_waiting) {
        pthread_mutex_lock(&jobs[0]->lock);
        is_waiting = jobs[0]->progress.waiting > 0;
        pthread_mutex_unlock(&jobs[0]->lock);
        sched_yield();
    }
}

/* The thread waits already when the rank is to go on, and the round closes during the wait. */
static void a_waiting_thread_copies_nothing_while_a_gradient_is_computed(void **state)
{
    pthread_t thread;
    int polled = -1;
    (void)state;
    join();
    update(0, 1);
    announce(0);
    float before = parameters[0][0];
    assert_int_equal(pthread_create(&thread, NULL, poll_long, &polled), 0);
    await_waiting_thread();
    say_go_on(1, 2);
    assert_int_equal(gp_round_end(jobs[0], 0, WAIT_MS, NULL), 2);
    update(1, 1);
    say_counts((const uint8_t[]){1, 1});
    expect_end(1, 2, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(polled, 0);
    assert_true(parameters[0][0] == before);
    update(0, 7);
    expect_end(0, 2, 1);
}

/* A result proves that the round is closed, and may be in the parameters already. */
static void a_request_for_a_gradient_after_a_result_is_dropped(void **state)
{
    (void)state;
    begin();
    announce(0);
    say_counts((const uint8_t[]){1, 1});
    while (gp_poll(requests[0], SHORT_MS) == 0)
        ;
    uint64_t stale = jobs[0]->stale;
    say_go_on(1, 2);
    while (jobs[0]->stale == stale)
        assert_int_equal(gp_round_end(jobs[0], 0, SHORT_MS, NULL), -ETIMEDOUT);
    expect_end(1, 2, 1);
    expect_end(0, 2, 1);
}

static void a_failure_before_another_gradient_ends_the_round(void **state)
{
    int error;
    (void)state;
    join();
    update(0, 1);
    announce(0);
    say_go_on(1, 2);
    assert_int_equal(gp_round_end(jobs[0], 0, WAIT_MS, NULL), 2);
    script_lock(&rig);
    script_fail_job(&rig, -ECONNRESET, "rank 1 of job job (node8, pid 77) is gone");
    script_unlock(&rig);
    while ((error = gp_wait(requests[0], SHORT_MS)) == -EDEADLK)
        sched_yield();
    failed(error, -ECONNRESET, "rank 1 of job job (node8, pid 77) is gone", NULL);
    failed(gp_round_end(jobs[0], 0, WAIT_MS, NULL), -ECONNRESET, "rank 1", "is gone", NULL);
}

static void a_rank_may_wait_in_place_of_another_gradient(void **state)
{
    (void)state;
    go_on();
    assert_int_equal(gp_round_end(jobs[0], 0, SHORT_MS, NULL), -ETIMEDOUT);
    say_counts((const uint8_t[]){1, 1});
    expect_end(1, 2, 1);
    expect_end(0, 2, 1);
    await_gradient(1);
}

static void a_wait_before_the_end_of_the_round_is_refused(void **state)
{
    (void)state;
    go_on();
    failed(gp_wait(requests[0], WAIT_MS), -EDEADLK, "round 1", "gp_round_end()", NULL);
    update(0, 7);
    failed(gp_wait(requests[0], WAIT_MS), -EDEADLK, "round 1", "gp_round_end()", NULL);
}

static void gradients_of_a_round_are_pushed_alike(void **state)
{
    const gp_settings other = {.rate = 2};
    float elsewhere[ELEMENTS];
    gp_request *request;
    (void)state;
    go_on();
    failed(gp_update(tensors[0], gradients[0], parameters[0], &other, &request), -EINVAL, "'t'",
           "gradient 2 of round 1", "differs from gradient 1 in operation, result or settings",
           NULL);
    failed(gp_update(tensors[0], gradients[0], elsewhere, &settings, &request), -EINVAL, "'t'",
           "alike", NULL);
    failed(gp_update(tensors[0], NULL, parameters[0], &settings, &request), -EINVAL, "'t'", NULL);
    const gp_item twice[2] = {{tensors[0], gradients[0], parameters[0]},
                              {tensors[0], gradients[0], parameters[0]}};
    failed(gp_update_group(jobs[0], twice, 2, &settings, &request), -EINVAL, "'t'",
           "its first gradient of round 1", "was pushed in another group", NULL);
    failed(gp_update(tensors[0], gradients[0], parameters[0], NULL, &request), -EINVAL,
           "the update has no settings; pass a rate", NULL);
    update(0, 7);
    failed(gp_update(tensors[0], gradients[0], parameters[0], &settings, &request), -EBUSY,
           "gradient 2 of round 1 is pushed already", NULL);
}

static void a_request_for_another_gradient_than_the_next_is_dropped(void **state)
{
    (void)state;
    begin();
    announce(0);
    say_go_on(2, 2);
    say_go_on(1, 3);
    assert_int_equal(gp_round_end(jobs[0], 0, SHORT_MS, NULL), -ETIMEDOUT);
    say_go_on(1, 2);
    assert_int_equal(gp_round_end(jobs[0], 0, WAIT_MS, NULL), 2);
    update(0, 7);
    assert_int_equal(gp_round_end(jobs[0], 0, SHORT_MS, NULL), -ETIMEDOUT);
    say_go_on(1, 2);
    assert_int_equal(gp_round_end(jobs[0], 0, SHORT_MS, NULL), -ETIMEDOUT);
    await_gradient(2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_start_alone, fixture_stop)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(another_gradient_goes_to_its_own_slot_and_counts),
        CASE(a_third_gradient_follows_the_second),
        CASE(a_gradient_after_the_close_is_reported_and_dropped),
        CASE(a_waiting_thread_copies_nothing_while_a_gradient_is_computed),
        CASE(a_request_for_a_gradient_after_a_result_is_dropped),
        CASE(a_failure_before_another_gradient_ends_the_round),
        CASE(a_rank_may_wait_in_place_of_another_gradient),
        CASE(a_wait_before_the_end_of_the_round_is_refused),
        CASE(gradients_of_a_round_are_pushed_alike),
        CASE(a_request_for_another_gradient_than_the_next_is_dropped),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
