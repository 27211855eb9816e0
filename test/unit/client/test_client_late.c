/* Tests delays in the client: a LEAVE for which the ring has no room, and a barrier whose tensor
 * must first be declared. */
#include "client/lib/job/tensor.h"
#include "svc/base/clock.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define ELEMENTS 1000

static void *leave_in_thread(void *context)
{
    gp_job_leave(context);
    return NULL;
}

static void wait_until(struct gp_job *job, bool (*is_so)(const struct gp_job *job))
{
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    for (bool so = false; !so;) {
        pthread_mutex_lock(&job->lock);
        so = is_so(job);
        pthread_mutex_unlock(&job->lock);
        assert_true(clock_now_ns() < deadline_ns);
        sched_yield();
    }
}

static bool ring_is_full(const struct gp_job *job) { return job->unsent > 0; }
static bool is_leaving(const struct gp_job *job) { return job->is_leaving; }

/* The lane does not poll. Its ring fills with standings of idle pieces. */
static void a_goodbye_without_room_is_sent_later(void **state)
{
    enum { TENSORS = 250, RING_RECORDS = 1024 };
    static char names[TENSORS][8];
    gp_tensor_spec specs[TENSORS];
    gp_tensor *tensors[TENSORS];
    pthread_t thread;
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        specs[i] = (gp_tensor_spec){names[i], GP_F32, 4};
    }
    ok(gp_tensors_declare(jobs[0], specs, TENSORS, tensors));
    script_lock(&rig);
    for (int i = 0; i <= RING_RECORDS / TENSORS; i++)
        script_move(&rig, 0, 0);
    wait_until(jobs[0], ring_is_full);
    assert_int_equal(pthread_create(&thread, NULL, leave_in_thread, jobs[0]), 0);
    wait_until(jobs[0], is_leaving);
    while (rig.lane_leaves == 0)
        script_wait(&rig);
    script_unlock(&rig);
    pthread_join(thread, NULL);
}

static void the_first_barrier_ends_at_its_own_deadline(void **state)
{
    script_lock(&rig);
    rig.ignores_declares = true;
    script_unlock(&rig);
    uint64_t before_ns = clock_now_ns();
    failed(gp_barrier(jobs[0], 300), -ETIMEDOUT, "gradpool.barrier",
           ": no answer within 300 ms: the coordinator at ", "has not answered", NULL);
    assert_true(clock_now_ns() - before_ns < WAIT_MS * NS_PER_MS);
}

static void a_lane_that_gives_no_ticket_is_named_at_the_deadline(void **state)
{
    gp_tensor *w;
    fixture_set_timeout(0, 300);
    script_lock(&rig);
    rig.not_now = UINT32_MAX;
    script_unlock(&rig);
    UNTIL_TIMED_OUT(gp_tensor_declare(jobs[0], "w", GP_F32, 1, &w),
                    "lane 0: not connected after 300 ms")
}

static void an_unreachable_address_is_named_with_possible_causes(void **state)
{
    gp_tensor *w;
    const gp_options options = {.transport = "tcp"};
    gp_disconnect(clients[0]);
    fixture_join(0, &options);
    fixture_set_timeout(0, 1000);
    script_lock(&rig);
    rig.astray = UINT32_MAX;
    rig.astray_ofi = "127.0.0.1:1";
    script_unlock(&rig);
    int r;
    do { /* on a slow host the coordinator may not answer in time */
        r = gp_tensor_declare(jobs[0], "w", GP_F32, 1, &w);
    } while (r == -ETIMEDOUT);
    failed(r, -ECONNREFUSED,
           " at 127.0.0.1:1; is that "
           "address on a network of this host, and does a firewall let the port through?",
           NULL);
}

static void poll_may_wait_a_while(void **state)
{
    static float values[WORKERS][ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", ELEMENTS, t);
    ok(gp_push_pull(t[0], values[0], values[0], GP_MEAN, &q[0]));
    assert_int_equal(gp_poll(q[0], 20), 0);
    failed(gp_wait(q[0], 30), -ETIMEDOUT, "no push from rank 1 after 50 ms", NULL);
    ok(gp_push_pull(t[1], values[1], values[1], GP_MEAN, &q[1]));
    assert_int_equal(gp_poll(q[0], WAIT_MS), 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_goodbye_without_room_is_sent_later),
        CASE(a_lane_that_gives_no_ticket_is_named_at_the_deadline),
        CASE(an_unreachable_address_is_named_with_possible_causes),
        CASE(poll_may_wait_a_while),
        CASE(the_first_barrier_ends_at_its_own_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
