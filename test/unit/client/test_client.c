/* Tests the client with a scripted service: rounds, groups of tensors, and calls that wait. The
 * rules are in client/lib/README.md (L1, ...) and svc/wire/README.md (W1, ...). */
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 1000
#define BIG 100000 /* number of elements; the library copies so many elements without its lock */

/* Both workers push `gradient`, get the sum in `result`, and wait. */
static void push_both(gp_tensor **t, float **gradient, float **result, enum gp_operation operation)
{
    gp_request *q[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_push_pull(t[rank], gradient[rank], result[rank], operation, &q[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
}

/* ---- rounds ---- */

static void each_round_returns_the_mean_into_plain_memory(void **state)
{
    gp_tensor *t[WORKERS];
    declare("w", ELEMENTS, t);
    for (uint64_t round = 1; round <= 50; round++)
        run_round(t, round);
}

static void a_sum_is_not_divided(void **state)
{
    static float values[WORKERS][BIG];
    float *at[WORKERS] = {values[0], values[1]};
    gp_tensor *t[WORKERS];
    declare("w", BIG, t);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        fill(at[rank], BIG, rank, 1);
    push_both(
        t, at, at,
        GP_SUM); /* pushes in place: the result replaces the gradient in the caller's memory */
    check_sum(at[0], BIG, 1);
    check_sum(at[1], BIG, 1);
}

static void memory_of_gp_alloc_is_read_and_written_in_place(void **state)
{
    float *gradient[WORKERS], *result[WORKERS];
    gp_tensor *t[WORKERS];
    declare("w", ELEMENTS, t);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        gradient[rank] = lent(rank, ELEMENTS);
        result[rank] = lent(rank, ELEMENTS);
        fill(gradient[rank], ELEMENTS, rank, 1);
    }
    push_both(t, gradient, result, GP_MEAN);
    check_mean(result[0], ELEMENTS, 1);
    check_mean(result[1], ELEMENTS, 1);
    script_lock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        const struct record_ready *ready = &heard(rank, 1)->ready;
        assert_int_equal(ready->input_region, ready->output[0].region);
        assert_int_equal(ready->output[0].offset - ready->input_offset,
                         (char *)result[rank] - (char *)gradient[rank]);
    }
    script_unlock(&rig);
}

static void a_part_of_gp_alloc_memory_may_be_pushed(void **state)
{
    float *gradient[WORKERS], *result[WORKERS];
    gp_tensor *t[WORKERS];
    declare("w", 10, t);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        gradient[rank] = lent(rank, ELEMENTS) + 3;
        result[rank] = gradient[rank] + 10;
        fill(gradient[rank], 10, rank, 1);
    }
    push_both(t, gradient, result, GP_MEAN);
    check_mean(result[0], 10, 1);
    check_mean(result[1], 10, 1);
}

static void a_push_in_place_in_lent_memory_never_overwrites_an_input(void **state)
{
    float *values[WORKERS];
    gp_tensor *t[WORKERS];
    declare("w", ELEMENTS, t);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        values[rank] = lent(rank, ELEMENTS);
        fill(values[rank], ELEMENTS, rank, 1);
    }
    push_both(t, values, values, GP_MEAN);
    check_mean(values[0], ELEMENTS, 1);
    check_mean(values[1], ELEMENTS, 1);
    script_lock(&rig);
    const struct record_ready *ready = &heard(0, 1)->ready;
    assert_true(ready->input_region != ready->output[0].region ||
                ready->input_offset != ready->output[0].offset);
    script_unlock(&rig);
}

static void lent_and_plain_memory_may_be_mixed(void **state)
{
    static float foreign[WORKERS][ELEMENTS];
    float *gradient[WORKERS] = {lent(0, ELEMENTS), foreign[1]};
    float *result[WORKERS] = {foreign[0], lent(1, ELEMENTS)};
    gp_tensor *t[WORKERS];
    declare("w", ELEMENTS, t);
    for (uint64_t round = 1; round <= 3; round++) {
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            fill(gradient[rank], ELEMENTS, rank, round);
        push_both(t, gradient, result, GP_MEAN);
        check_mean(result[0], ELEMENTS, round);
        check_mean(result[1], ELEMENTS, round);
    }
}

static void a_broadcast_gives_the_roots_values_to_all(void **state)
{
    static float values[WORKERS][ELEMENTS], want[ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", ELEMENTS, t);
    fill(want, ELEMENTS, 1, 9);
    fill(values[1], ELEMENTS, 1, 9);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_broadcast(t[rank], values[rank], 1, &q[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_wait(q[rank], WAIT_MS));
        assert_memory_equal(values[rank], want, sizeof want);
    }
    script_lock(&rig);
    assert_int_equal(heard(1, 1)->ready.outputs, 0);
    assert_int_equal(heard(0, 1)->ready.input_bytes, 0);
    assert_int_equal(heard(0, 1)->ready.output[0].source, 1);
    script_unlock(&rig);
    run_round(t, 2); /* the next round of the tensor may have another operation */
}

static void a_tensor_on_several_lanes_gets_its_whole_result(void **state)
{
    gp_tensor *t[WORKERS];
    script_lock(&rig);
    rig.pieces_per_tensor = 5;
    rig.lanes_used = 3;
    script_unlock(&rig);
    declare("w", ELEMENTS + 3, t);
    for (uint64_t round = 1; round <= 10; round++)
        run_round(t, round);
}

static void a_tensor_without_elements_only_synchronises(void **state)
{
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("empty", 0, t);
    for (int round = 0; round < 3; round++) {
        ok(gp_push_pull(t[0], NULL, NULL, GP_MEAN, &q[0]));
        failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, "rank 1", NULL);
        ok(gp_push_pull(t[1], NULL, NULL, GP_MEAN, &q[1]));
        ok(gp_wait(q[0], WAIT_MS));
        ok(gp_wait(q[1], WAIT_MS));
    }
}

/* ---- groups and order ---- */

#define TENSORS 20
static gp_tensor *model[TENSORS][WORKERS];
static float model_gradient[TENSORS][WORKERS][64], model_result[TENSORS][WORKERS][64];

static void declare_model(void)
{
    char name[32];
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "layer%d.weight", i);
        declare(name, 64, model[i]);
    }
}

static gp_item item_of(int i, uint32_t rank, uint64_t round)
{
    fill(model_gradient[i][rank], 64, rank, round * 100 + (uint64_t)i);
    return (gp_item){model[i][rank], model_gradient[i][rank], model_result[i][rank]};
}

static void check_model(uint64_t round)
{
    for (int i = 0; i < TENSORS; i++) {
        check_mean(model_result[i][0], 64, round * 100 + (uint64_t)i);
        check_mean(model_result[i][1], 64, round * 100 + (uint64_t)i);
    }
}

/* Rank 0 pushes the model in groups of `size` tensors, rank 1 in one group. */
static void push_cut(int size, uint64_t round)
{
    gp_item items[TENSORS];
    gp_request *parts[TENSORS], *whole;
    int n = 0;
    for (int first = 0; first < TENSORS; first += size) {
        int count = 0;
        for (int i = first; i < first + size && i < TENSORS; i++)
            items[count++] = item_of(i, 0, round);
        ok(gp_push_pull_group(jobs[0], items, (size_t)count, GP_MEAN, &parts[n++]));
    }
    for (int i = 0; i < TENSORS; i++)
        items[i] = item_of(i, 1, round);
    ok(gp_push_pull_group(jobs[1], items, TENSORS, GP_MEAN, &whole));
    ok(gp_wait(whole, WAIT_MS));
    while (n > 0)
        ok(gp_wait(parts[--n], WAIT_MS));
    check_model(round);
}

static void groups_may_be_cut_differently_on_each_rank_and_round(void **state)
{
    declare_model();
    for (int size = 1; size <= TENSORS; size++)
        push_cut(size, (uint64_t)size);
}

static void ranks_may_push_in_opposite_orders(void **state)
{
    gp_request *q[TENSORS][WORKERS];
    declare_model();
    for (uint64_t round = 1; round <= 5; round++) {
        for (int i = 0; i < TENSORS; i++) {
            gp_item up = item_of(i, 0, round), down = item_of(TENSORS - 1 - i, 1, round);
            ok(gp_push_pull_group(jobs[0], &up, 1, GP_MEAN, &q[i][0]));
            ok(gp_push_pull_group(jobs[1], &down, 1, GP_MEAN, &q[TENSORS - 1 - i][1]));
        }
        for (int i = 0; i < TENSORS; i++) {
            ok(gp_wait(q[i][0], WAIT_MS));
            ok(gp_wait(q[i][1], WAIT_MS));
        }
        check_model(round);
    }
}

static void a_tensor_twice_in_one_group_is_refused_and_nothing_is_pushed(void **state)
{
    declare_model();
    gp_item items[] = {item_of(0, 0, 1), item_of(1, 0, 1), item_of(0, 0, 1)};
    gp_request *q;
    failed(gp_push_pull_group(jobs[0], items, 3, GP_MEAN, &q), -EBUSY, "layer0.weight",
           "that was not waited for; wait for the request, then push", NULL);
    script_lock(&rig);
    assert_int_equal(rig.heard_count, 0);
    script_unlock(&rig);
    push_cut(TENSORS, 1);
}

/* ---- waiting ---- */

static void poll_returns_without_blocking(void **state)
{
    static float gradient[WORKERS][ELEMENTS], result[WORKERS][ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", ELEMENTS, t);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        fill(gradient[rank], ELEMENTS, rank, 1);
        assert_int_equal(rank == 0 ? 0 : gp_poll(q[0], 0), 0);
        ok(gp_push_pull(t[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
    }
    ok(gp_wait(q[1], WAIT_MS));
    script_lock(&rig); /* the lane holds the lock until the word of rank 0 is sent */
    script_unlock(&rig);
    assert_int_equal(gp_poll(q[0], 0), 1);
    ok(gp_wait(q[0], 1));
    check_mean(result[0], ELEMENTS, 1);
}

static void a_tensor_is_busy_until_its_request_was_waited_for(void **state)
{
    static float values[WORKERS][ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS], *other;
    declare("w", ELEMENTS, t);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_push_pull(t[rank], values[rank], values[rank], GP_MEAN, &q[rank]));
    failed(gp_push_pull(t[0], values[0], values[0], GP_MEAN, &other), -EBUSY, "'w'", NULL);
    failed(gp_tensor_undeclare(t[0]), -EBUSY, "'w'",
           "wait for the request, then undeclare the tensor", NULL);
    ok(gp_wait(q[0], WAIT_MS));
    ok(gp_wait(q[1], WAIT_MS));
    run_round(t, 2);
}

struct waiter {
    pthread_t thread;
    gp_request *request;
    int result;
};

static void *wait_in_thread(void *context)
{
    struct waiter *w = context;
    w->result = gp_wait(w->request, WAIT_MS);
    return NULL;
}

static void several_threads_may_wait_at_once(void **state)
{
    struct waiter waiters[TENSORS];
    gp_request *whole;
    gp_item items[TENSORS];
    declare_model();
    for (uint64_t round = 1; round <= 10; round++) {
        for (int i = 0; i < TENSORS; i++) {
            gp_item item = item_of(i, 0, round);
            items[i] = item_of(i, 1, round);
            ok(gp_push_pull_group(jobs[0], &item, 1, GP_MEAN, &waiters[i].request));
            pthread_create(&waiters[i].thread, NULL, wait_in_thread, &waiters[i]);
        }
        ok(gp_push_pull_group(jobs[1], items, TENSORS, GP_MEAN, &whole));
        ok(gp_wait(whole, WAIT_MS));
        for (int i = 0; i < TENSORS; i++) {
            pthread_join(waiters[i].thread, NULL);
            assert_int_equal(waiters[i].result, 0);
        }
        check_model(round);
    }
}

struct barrier_call {
    pthread_t thread;
    int result;
};

static void *barrier_in_thread(void *context)
{
    struct barrier_call *b = context;
    b->result = gp_barrier(jobs[1], WAIT_MS);
    return NULL;
}

static void a_barrier_waits_for_every_worker(void **state)
{
    struct barrier_call other;
    for (int i = 0; i < 3; i++) {
        UNTIL_TIMED_OUT(gp_barrier(jobs[0], 300), "no push from rank 1")
        assert_non_null(strstr(gp_last_error(), "gradpool.barrier"));
        pthread_create(&other.thread, NULL, barrier_in_thread, &other);
        ok(gp_barrier(jobs[0], WAIT_MS)); /* completes the barrier of the call that timed out */
        pthread_join(other.thread, NULL);
        assert_int_equal(other.result, 0);
    }
}

/* ---- declaring and undeclaring tensors ---- */

static void a_name_declared_again_gives_the_same_handle(void **state)
{
    gp_tensor *t[WORKERS], *again;
    declare("w", ELEMENTS, t);
    ok(gp_tensor_declare(jobs[0], "w", GP_F32, ELEMENTS, &again));
    assert_ptr_equal(again, t[0]);
    failed(gp_tensor_declare(jobs[0], "w", GP_F32, 7, &again), -EEXIST,
           "tensor 'w' was declared as", "with 1000 elements, now as", "7", NULL);
    gp_tensor_spec twice[] = {{"x", GP_F32, 5}, {"y", GP_F32, 6}, {"x", GP_F32, 5}};
    gp_tensor *three[3];
    ok(gp_tensors_declare(jobs[0], twice, 3, three));
    assert_ptr_equal(three[0], three[2]);
    assert_string_equal(gp_tensor_name(three[1]), "y");
    assert_int_equal(gp_tensor_elements(three[1]), 6);
}

static void a_tensor_can_be_forgotten_and_declared_anew(void **state)
{
    gp_tensor *t[WORKERS];
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_tensor_undeclare(t[rank]));
    script_lock(&rig);
    assert_int_equal(rig.tensors[0].undeclared, 2);
    snprintf(rig.tensors[0].name, sizeof rig.tensors[0].name, "gone");
    script_unlock(&rig);
    declare("w", 10, t);
    run_round(t, 1);
}

static void a_request_still_open_when_the_job_is_left_is_cancelled(void **state)
{
    static float values[ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *open, *never;
    declare("w", ELEMENTS, t);
    gp_tensor *other;
    ok(gp_tensor_declare(jobs[0], "x", GP_F32, ELEMENTS, &other));
    ok(gp_push_pull(t[0], values, values, GP_MEAN, &open));
    ok(gp_push_pull(other, values, values, GP_MEAN, &never));
    wait_heard(1); /* a rank sends its leave to a lane only over an open connection */
    gp_job_leave(jobs[0]);
    assert_int_equal(gp_poll(open, 0), 1);
    failed(gp_wait(open, WAIT_MS), -ECANCELED, "rank 0 left job 'job'", NULL);
    script_lock(&rig);
    assert_int_equal(rig.leaves, 1);
    while (rig.lane_leaves < 1)
        script_wait(&rig);
    script_unlock(&rig);
}

static void leaving_the_job_ends_the_wait_of_a_thread(void **state)
{
    static float values[ELEMENTS];
    gp_tensor *t[WORKERS];
    struct waiter w;
    declare("w", ELEMENTS, t);
    ok(gp_push_pull(t[0], values, values, GP_MEAN, &w.request));
    pthread_create(&w.thread, NULL, wait_in_thread, &w);
    wait_heard(1);
    gp_job_leave(jobs[0]);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.result, -ECANCELED);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_round_returns_the_mean_into_plain_memory),
        CASE(a_sum_is_not_divided),
        CASE(memory_of_gp_alloc_is_read_and_written_in_place),
        CASE(a_part_of_gp_alloc_memory_may_be_pushed),
        CASE(a_push_in_place_in_lent_memory_never_overwrites_an_input),
        CASE(lent_and_plain_memory_may_be_mixed),
        CASE(a_broadcast_gives_the_roots_values_to_all),
        CASE(a_tensor_on_several_lanes_gets_its_whole_result),
        CASE(a_tensor_without_elements_only_synchronises),
        CASE(groups_may_be_cut_differently_on_each_rank_and_round),
        CASE(ranks_may_push_in_opposite_orders),
        CASE(a_tensor_twice_in_one_group_is_refused_and_nothing_is_pushed),
        CASE(poll_returns_without_blocking),
        CASE(a_tensor_is_busy_until_its_request_was_waited_for),
        CASE(several_threads_may_wait_at_once),
        CASE(a_barrier_waits_for_every_worker),
        CASE(a_name_declared_again_gives_the_same_handle),
        CASE(a_tensor_can_be_forgotten_and_declared_anew),
        CASE(a_request_still_open_when_the_job_is_left_is_cancelled),
        CASE(leaving_the_job_ends_the_wait_of_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
