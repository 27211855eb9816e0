/* Tests wrong calls of gradpool.h: calls without memory for a result, calls with a handle of
 * another job, and operations that a tensor or a job does not offer. Each call is refused with its
 * own error text. */
#include "test/lib/kept_log.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static gp_tensor *t[WORKERS];
static gp_request *q;
static float one;

static void declare_with(uint32_t rank, gp_tensor_spec spec)
{
    spec.dtype = GP_F32;
    ok(gp_tensors_declare(jobs[rank], &spec, 1, &t[rank]));
}

/* ---- missing arguments ---- */

static void a_call_without_a_place_for_its_result_names_the_call(void **state)
{
    gp_job_spec spec = {"other", 0, 2};
    gp_tensor_spec tensor = {.name = "w", .dtype = GP_F32, .elements = 1};
    declare("w", 1, t);
    failed(gp_connect(rig.endpoint, NULL, NULL), -EINVAL, "gp_connect: ret_client is NULL", NULL);
    failed(gp_job_join(clients[0], &spec, NULL), -EINVAL, "gp_job_join: client or ret_job is NULL",
           NULL);
    failed(gp_job_spec_from_environment(NULL), -EINVAL,
           "gp_job_spec_from_environment: ret_spec is NULL", NULL);
    failed(gp_job_membership(jobs[0], NULL), -EINVAL, "gp_job_membership: ret_membership is NULL",
           NULL);
    failed(gp_tensors_declare(jobs[0], &tensor, 1, NULL), -EINVAL,
           "a declaration of tensors: specs or ret_tensors is NULL", NULL);
    failed(gp_alloc(jobs[0], 1, NULL), -EINVAL, "gp_alloc: ret_memory is NULL", NULL);
    failed(gp_push_pull(t[0], &one, &one, GP_SUM, NULL), -EINVAL,
           "ret_request is NULL; pass a place for the request", NULL);
    failed(gp_push_pull(t[0], &one, NULL, GP_SUM, &q), -EINVAL,
           "tensor 'w': the result is NULL; pass memory for the result", NULL);
    failed(gp_push_pull(t[0], NULL, &one, GP_SUM, &q), -EINVAL,
           "tensor 'w': the gradient is NULL; pass the values of this rank", NULL);
}

static void a_call_without_an_object_or_a_file_names_the_missing_argument(void **state)
{
    failed(gp_barrier(NULL, 1), -EINVAL, "the job is NULL; pass the job of gp_job_join()", NULL);
    failed(gp_tensor_undeclare(NULL), -EINVAL,
           "the tensor is NULL; pass a tensor of gp_tensor_declare()", NULL);
    failed(gp_job_timeline_start(jobs[0], ""), -EINVAL,
           "gp_job_timeline_start: the path is NULL or empty", NULL);
    failed(gp_job_restore(jobs[0], "file", NULL, 3), -EINVAL,
           "gp_job_restore: count is 3, but items is NULL", NULL);
    failed(gp_job_read(jobs[0], NULL, 3), -EINVAL, "gp_job_read: count is 3, but states is NULL",
           NULL);
}

/* ---- values outside of what gradpool.h names ---- */

static void a_job_with_unknown_settings_is_refused(void **state)
{
    gp_job *job;
    gp_job_spec spec = {.name = "other", .workers = 2, .on_worker_loss = 9};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL, "job 'other': on_worker_loss is 9, ",
           "expected a value of enum gp_worker_loss", NULL);
    spec = (gp_job_spec){.name = "other", .workers = 2, .durability = 99};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL,
           "job 'other': durability is 99, expected 0 or a value of enum gp_durability", NULL);
    spec = (gp_job_spec){.name = "other", .workers = 2, .loss_limit_ppm = 2000000};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL,
           "job 'other': a loss limit of 2000000 ppm, expected at most ", NULL);
}

static void a_rank_outside_of_the_set_gives_and_gets_nothing(void **state)
{
    const uint32_t alone[] = {0};
    declare_with(0,
                 (gp_tensor_spec){.name = "mine", .elements = 1, .ranks = alone, .ranks_count = 1});
    failed(gp_broadcast(t[0], &one, 1, &q), -EINVAL,
           "tensor 'mine': root 1 is not in its set of ranks; name a rank of the set", NULL);
    failed(gp_send(t[0], &one, &q), -EINVAL, "tensor 'mine' is of 1 ranks, and a send is of two; ",
           NULL);
}

static void settings_without_sense_are_refused(void **state)
{
    const gp_settings settings = {.rate = 0.1, .beta1 = 1.5};
    declare_with(0, (gp_tensor_spec){.name = "ruled", .elements = 1, .rule = GP_ADAM});
    failed(gp_update(t[0], &one, &one, NULL, &q), -EINVAL,
           "tensor 'ruled': the update of rank 0 has no settings; pass a rate", NULL);
    failed(gp_update(t[0], &one, &one, &settings, &q), -EINVAL,
           "tensor 'ruled': the value of beta1", " is out of range for rule ", NULL);
}

static void states_of_no_use_are_refused(void **state)
{
    declare_with(0, (gp_tensor_spec){.name = "plain", .elements = 1});
    gp_state read = {t[0], &one, 0};
    failed(gp_job_read(jobs[1], &read, 1), -EINVAL,
           "state 0: the tensor is not of job 'job'; pass a handle that this job declared", NULL);
    failed(gp_job_read(jobs[0], &read, 1), -EINVAL,
           "tensor 'plain' was declared without an update rule, so lanes keep no state", NULL);
    declare_with(0, (gp_tensor_spec){.name = "ruled", .elements = 1, .rule = GP_SGD});
    read = (gp_state){t[0], NULL, 0};
    failed(gp_job_read(jobs[0], &read, 1), -EINVAL,
           "tensor 'ruled': the pointer to the arrays of its state is NULL", NULL);
}

static void more_than_memory_holds_is_refused_without_touching_any(void **state)
{
    const uint64_t terabyte = UINT64_C(1) << 38;
    declare_with(0, (gp_tensor_spec){.name = "huge", .elements = terabyte});
    failed(gp_push_pull(t[0], &one, &one, GP_SUM, &q), -ENOSPC, "tensor 'huge': no room for ",
           " bytes of staging memory: ", NULL);
}

/* ---- jobs whose workers come and go ---- */

static void blocks_of_ranks_that_come_and_go_are_refused(void **state)
{
    gp_job_spec spec = {.name = "job", .workers = WORKERS, .on_worker_loss = GP_CONTINUE};
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    ok(gp_job_join(clients[0], &spec, &jobs[0]));
    declare_with(0, (gp_tensor_spec){.name = "w", .elements = 1});
    failed(gp_push_pull(t[0], &one, &one, GP_GATHER, &q), -EOPNOTSUPP,
           "tensor 'w': the number of blocks is not known in a job whose workers come and go",
           NULL);
}

static void more_blocks_than_memory_holds_are_refused(void **state)
{
    gp_job_spec spec = {.name = "job", .workers = SCRIPT_WORKERS_MAX};
    script_lock(&rig);
    rig.workers = SCRIPT_WORKERS_MAX;
    script_unlock(&rig);
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    ok(gp_job_join(clients[0], &spec, &jobs[0]));
    declare_with(0, (gp_tensor_spec){.name = "w", .elements = UINT64_C(1) << 60});
    failed(
        gp_push_pull(t[0], &one, &one, GP_SUM, &q), -EINVAL,
        "tensor 'w': 4 blocks need more bytes than an address space has; declare a smaller tensor",
        NULL);
}

/* ---- two calls at once ---- */

static atomic_bool is_over;

static void *pass_barriers(void *job)
{
    while (!is_over)
        (void)gp_barrier(job, 20); /* rank 1 does not call gp_barrier() */
    return NULL;
}

static void a_barrier_of_two_threads_is_refused_to_the_second(void **state)
{
    pthread_t thread;
    int r;
    is_over = false;
    assert_int_equal(pthread_create(&thread, NULL, pass_barriers, jobs[0]), 0);
    while ((r = gp_barrier(jobs[0], 1)) == -ETIMEDOUT)
        ;
    failed(r, -EBUSY, "another thread waits in gp_barrier() of job 'job'; call gp_barrier() from",
           NULL);
    is_over = true;
    pthread_join(thread, NULL);
}

static void a_tensor_with_an_open_round_is_not_undeclared(void **state)
{
    script_lock(&rig);
    rig.holds_commits = true;
    script_unlock(&rig);
    declare("w", 100, t);
    run_round(t, 1);
    failed(gp_tensor_undeclare(t[0]), -EBUSY, "tensor 'w' round 1 is not committed yet", NULL);
    script_lock(&rig);
    rig.holds_commits = false;
    script_unlock(&rig);
}

/* ---- timelines ---- */

static void a_timeline_that_cannot_be_begun_or_ended_is_logged(void **state)
{
    kept_log_begin();
    ok(gp_job_timeline_stop(jobs[1]));
    kept_log_expect("rank 1 writes no timeline of job 'job', so the call has no effect");
    gp_disconnect(clients[0]);
    fixture_set("GRADPOOL_TIMELINE", "/nowhere/timeline");
    fixture_join(0, NULL);
    kept_log_expect("GRADPOOL_TIMELINE: job 'job' is not recorded: ");
}

/* A lane may read a gradient until the lane has received the failure. */
static void memory_of_a_failed_job_stays_until_the_leave(void **state)
{
    float *freed, *kept;
    declare("w", 1, t);
    ok(gp_alloc(jobs[0], sizeof *freed, (void **)&freed));
    *freed = 1;
    gp_free(jobs[0], freed);
    assert_true(*freed == 0); /* a freed page reads as zeros */
    ok(gp_alloc(jobs[0], sizeof *kept, (void **)&kept));
    ok(gp_push_pull(t[0], &one, &one, GP_MEAN, &q));
    *kept = 1;
    script_lock(&rig);
    script_fail_job(&rig, -ECONNRESET, "the operator stopped the service");
    script_unlock(&rig);
    failed(gp_wait(q, WAIT_MS), -ECONNRESET, "the operator", NULL);
    gp_free(jobs[0], kept);
    assert_true(*kept == 1);
}

static int start(void **state) { return fixture_clear(state) || fixture_start(state); }
static int start_alone(void **state) { return fixture_clear(state) || fixture_start_alone(state); }

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, fixture_stop)
#define ALONE(name) cmocka_unit_test_setup_teardown(name, start_alone, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_call_without_a_place_for_its_result_names_the_call),
        CASE(a_call_without_an_object_or_a_file_names_the_missing_argument),
        CASE(a_job_with_unknown_settings_is_refused),
        CASE(a_rank_outside_of_the_set_gives_and_gets_nothing),
        CASE(settings_without_sense_are_refused),
        CASE(states_of_no_use_are_refused),
        CASE(more_than_memory_holds_is_refused_without_touching_any),
        ALONE(blocks_of_ranks_that_come_and_go_are_refused),
        ALONE(more_blocks_than_memory_holds_are_refused),
        CASE(a_barrier_of_two_threads_is_refused_to_the_second),
        CASE(a_tensor_with_an_open_round_is_not_undeclared),
        CASE(a_timeline_that_cannot_be_begun_or_ended_is_logged),
        CASE(memory_of_a_failed_job_stays_until_the_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
