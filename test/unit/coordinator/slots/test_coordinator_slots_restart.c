/* Tests pools that are missing for a time, and restarts of the coordinator (SL3 to SL5). */
#include "test/unit/coordinator/slots/pool_case.h"

#include <errno.h>
#include <string.h>

/* --- restart of the coordinator --- */

/* The pool has reported rank 0, but not rank 1: the order for rank 1 may not have arrived. */
static void a_restart_repeats_orders_once(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect(pool, POOL_START), one = pool_expect(pool, POOL_START);
    pool_started(pool, &zero);
    pools_restart(*state);
    size_t stale, jobs;
    pool = pool_rejoin(*state, (struct pool_joining){.has = &zero, .count = 1}, &stale, &jobs);
    assert_int_equal(stale, 0);
    assert_int_equal(jobs, 1);
    struct pool_order again = pool_expect_for(pool, POOL_START, "resnet", 1);
    assert_int_equal(again.incarnation, one.incarnation);
    assert_int_equal(again.slot, one.slot);
    assert_int_equal(again.workers, 2);
    end_expect_none(pool, BODY(POOL_ORDERS));
    pool_started(pool, &again);
    pool_worker_join(*state, &zero, 0);
    pool_worker_join(*state, &again, 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
}

static void a_restart_starts_no_worker_twice(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order ranks[3];
    pool_submit(pool, "resnet", 1, 3);
    for (uint32_t rank = 0; rank < 3; rank++)
        ranks[rank] = pool_expect_and_start(pool);
    pools_restart(*state);
    pool = pool_join(*state, (struct pool_joining){.has = ranks, .count = 3});
    end_expect_none(pool, BODY(POOL_ORDERS));
    pool_submit(pool, "bert", 1, 1);
    pool_expect_for(pool, POOL_START, "bert", 0); /* the only free slot */
    pool_submit(pool, "vgg", 1, 1);
    end_expect_none(pool, BODY(POOL_ORDERS));
}

static void a_newer_start_ends_an_older_one_of_the_former_coordinator(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect_and_start(pool), one = pool_expect_and_start(pool);
    pool_worker_join(*state, &zero, 0);
    pool_worker_join(*state, &one, 0);
    pools_restart(*state);
    pool_worker_refused(*state, &one, -EEXIST, "rank 1 of job resnet is taken by");
    /* the process of rank 1 lives on a node that the pool cannot reach */
    pool = pool_join(*state, (struct pool_joining){.has = &zero, .count = 1});
    struct pool_order next = pool_expect_for(pool, POOL_START, "resnet", 1);
    end_close(pool_worker_join(*state, &next, 0));
    pool_worker_refused(*state, &one, -ESTALE, "is not the newest one");
}

static void a_worker_that_ended_meanwhile_starts_again(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect(pool, POOL_START), one = pool_expect(pool, POOL_START);
    pool_started(pool, &zero);
    pool_started(pool, &one);
    pools_restart(*state);
    pool = pool_join(*state, (struct pool_joining){.has = &one, .count = 1});
    struct pool_order next = pool_expect_for(pool, POOL_START, "resnet", 0);
    assert_true(next.incarnation > one.incarnation);
    pool_worker_refused(*state, &zero, -ESTALE, "is not the newest one");
}

static void a_stored_leave_is_repeated(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order ranks[4];
    pool_submit(pool, "resnet", 1, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect_and_start(pool);
    pool_submit(pool, "bert", 1, 1);
    pool_expect_for(pool, POOL_LEAVE, "resnet", 3);
    pools_restart(*state);
    pool = pool_join(*state, (struct pool_joining){.has = ranks, .count = 4});
    pool_expect_for(pool, POOL_LEAVE, "resnet", 3);
    end_expect_none(pool, BODY(POOL_ORDERS));
    pool_ended(pool, &ranks[3], 0);
    pool_expect_for(pool, POOL_START, "bert", 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
}

static void an_ordered_end_survives_a_restart(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect(pool, POOL_START);
    pool_started(pool, &zero);
    pool_withdraw(pool, "resnet");
    pool_expect(pool, POOL_END);
    pools_restart(*state);
    pool = pool_join(*state, (struct pool_joining){.has = &zero, .count = 1});
    pool_expect_for(pool, POOL_END, "resnet", 0);
    pool_ended(pool, &zero, 143);
    assert_int_equal(pool_expect(pool, POOL_OVER).code, -ECANCELED);
    pools_restart(*state);
    size_t stale, jobs;
    pool_rejoin(*state, (struct pool_joining){.has = &zero, .count = 1}, &stale, &jobs);
    assert_int_equal(stale, 1);
    assert_int_equal(jobs, 0);
}

static void a_restart_with_fewer_slots_keeps_the_workers(void **state)
{
    struct rig *rig = *state;
    struct end *pool = pool_join(rig, (struct pool_joining){0});
    struct pool_order ranks[4];
    pool_submit(pool, "resnet", 1, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect_and_start(pool);
    rig->options.worker_slots = "here=3";
    pools_restart(rig);
    pool = pool_join(rig, (struct pool_joining){.has = ranks, .count = 4});
    end_expect_none(pool, BODY(POOL_ORDERS));
    pool_ended(pool, &ranks[3], 1);
    end_expect_none(pool, BODY(POOL_ORDERS)); /* the slot of this worker no longer exists */
    rig->options.worker_slots = NULL;
    pools_restart(rig);
    pool_join_refused(rig, (struct pool_joining){.has = ranks, .count = 3}, -ENOENT,
                      "site here has no slots");
}

/* --- a missing pool --- */

static void a_pool_that_connects_again_repeats_nothing(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect(pool, POOL_START);
    pool_started(pool, &zero);
    end_close(pool);
    pool = pool_join(*state, (struct pool_joining){.has = &zero, .count = 1});
    end_expect_none(pool, BODY(POOL_ORDERS));
    pool_submit(pool, "bert", 1, 1);
    pool_expect_for(pool, POOL_START, "bert", 0);
}

/* The pool has read the order, then joins again, and then carries out the order. */
static void a_process_without_a_slot_is_ended(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order ranks[4];
    pool_submit(pool, "resnet", 1, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect(pool, POOL_START);
    pool_submit(pool, "bert", 1, 1);
    pool_expect_for(pool, POOL_LEAVE, "resnet", 3);
    end_close(pool);
    pool = pool_join(*state, (struct pool_joining){.has = ranks, .count = 3});
    pool_expect_for(pool, POOL_START, "bert", 0);
    pool_started(pool, &ranks[3]);
    struct pool_order end = pool_expect_for(pool, POOL_END, "resnet", 3);
    assert_int_equal(end.incarnation, ranks[3].incarnation);
    assert_string_equal(end.text, "the service does not know this start of the rank");
    pool_ended(pool, &ranks[3], 143);
    end_expect_none(pool, BODY(POOL_ORDERS));
}

static void jobs_train_on_at_their_size_without_a_pool(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct end *other = pool_join(*state, (struct pool_joining){.number = 8, .pid = 5});
    struct pool_order ranks[4];
    pool_submit(pool, "resnet", 1, 4);
    for (uint32_t rank = 0; rank < 4; rank++) {
        ranks[rank] = pool_expect(pool, POOL_START);
        pool_worker_join(*state, &ranks[rank], 0);
    }
    end_close(pool);
    pools_let_miss(*state);
    pool_submit(other, "bert", 1, 1);
    end_expect_none(other, BODY(POOL_ORDERS));
    pool = pool_join(*state, (struct pool_joining){.has = ranks, .count = 4});
    pool_expect_for(pool, POOL_LEAVE, "resnet", 3);
    pool_ended(pool, &ranks[3], 0);
    pool_expect_for(other, POOL_START, "bert", 0);
}

/* The coordinator gets no reports about the processes, so a slot is free when the session of its
 * worker has ended. */
static void slots_are_free_when_sessions_end_without_a_pool(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct end *other = pool_join(*state, (struct pool_joining){.number = 8, .pid = 5});
    struct end *workers[4];
    pool_submit(pool, "resnet", 4, 4);
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct pool_order order = pool_expect(pool, POOL_START);
        workers[rank] = pool_worker_join(*state, &order, 0);
    }
    end_close(pool);
    pools_let_miss(*state);
    pool_submit(other, "bert", 4, 4);
    end_expect_none(other, BODY(POOL_ORDERS));
    for (uint32_t rank = 0; rank < 4; rank++)
        end_leave(workers[rank]);
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_expect_for(other, POOL_START, "bert", rank);
    size_t stale, jobs;
    pool_rejoin(*state, (struct pool_joining){0}, &stale, &jobs);
    assert_int_equal(jobs, 0); /* the training is over */
}

static void a_start_waits_for_its_pool(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct end *other = pool_join(*state, (struct pool_joining){.number = 8, .pid = 5});
    pool_submit(pool, "bert", 4, 4);
    struct pool_order zero = pool_expect(pool, POOL_START);
    pool_submit(other, "vgg", 1, 1);
    end_close(other);
    pool_ended(pool, &zero, 0);
    rig_settle(*state);
    other = pool_join(*state, (struct pool_joining){.number = 8, .pid = 5});
    pool_expect_for(other, POOL_START, "vgg", 0);
}

static void a_waiting_job_of_a_missing_pool_blocks_no_other(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct end *other = pool_join(*state, (struct pool_joining){.number = 8, .pid = 5});
    pool_submit(pool, "bert", 4, 4);
    struct pool_order ranks[4];
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect(pool, POOL_START);
    pool_submit(other, "vgg", 1, 1);
    end_close(other);
    pools_let_miss(*state);
    pool_submit(pool, "resnet", 1, 1);
    pool_ended(pool, &ranks[3], 0);
    pool_expect_for(pool, POOL_START, "resnet", 0);
    pool_ended(pool, &ranks[2], 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
    other = pool_join(*state, (struct pool_joining){.number = 8, .pid = 5});
    pool_expect_for(other, POOL_START, "vgg", 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, pools_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_restart_repeats_orders_once),
        CASE(a_restart_starts_no_worker_twice),
        CASE(a_newer_start_ends_an_older_one_of_the_former_coordinator),
        CASE(a_worker_that_ended_meanwhile_starts_again),
        CASE(a_stored_leave_is_repeated),
        CASE(an_ordered_end_survives_a_restart),
        CASE(a_restart_with_fewer_slots_keeps_the_workers),
        CASE(a_pool_that_connects_again_repeats_nothing),
        CASE(a_process_without_a_slot_is_ended),
        CASE(jobs_train_on_at_their_size_without_a_pool),
        CASE(slots_are_free_when_sessions_end_without_a_pool),
        CASE(a_start_waits_for_its_pool),
        CASE(a_waiting_job_of_a_missing_pool_blocks_no_other),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
