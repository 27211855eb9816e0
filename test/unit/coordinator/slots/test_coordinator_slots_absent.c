/* Tests jobs whose pool is missing or was revoked: their removal, and workers that end without a
 * pool (SL5). */
#include "svc/base/clock.h"
#include "svc/base/text.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/internal.h"
#include "test/unit/coordinator/slots/pool_case.h"

#include <errno.h>
#include <string.h>

#define OPERATOR GRADPOOL__WIRE__ROLE__ROLE_OPERATOR

/* Moves the loss of all missing pools into the past. */
static void let_time_pass(struct rig *rig, uint64_t seconds)
{
    struct slots *slots = rig->coordinator->service->works->slots;
    list_for_each_entry (struct slots_pool, pool, &slots->pools, link)
        if (!pool->peer)
            pool->away_ns -= seconds * NS_PER_S;
    pools_look(rig);
}

/* Ends the time in which workers without a connection may connect again. */
static void let_workers_be_lost(struct rig *rig)
{
    struct service *s = rig->coordinator->service;
    rig_settle(rig);
    list_for_each_entry (struct job, job, &s->jobs, link)
        for (uint32_t rank = 0; rank < job->workers; rank++)
            if (job->sessions[rank] && job->sessions[rank]->state == SESSION_AWAY)
                timer_start(s->loop, &job->sessions[rank]->away, clock_now_ns());
    rig_settle(rig);
}

static size_t count_queued(struct rig *rig, const char *words)
{
    envelope *reply = pools_ask_jobs(rig, "");
    size_t count = 0;
    for (size_t i = 0; i < reply->jobs_reply->n_queued; i++)
        count += strstr(reply->jobs_reply->queued[i]->decision, words) != NULL;
    message_free(reply);
    return count;
}

/* --- removal --- */

static void a_waiting_job_is_removed_an_hour_after_its_pool(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct end *other = pool_join(*state, (struct pool_joining){.number = 8, .pid = 5});
    pool_submit(pool, "bert", 4, 4);
    pool_submit(other, "vgg", 1, 1);
    end_close(other);
    pools_let_miss(*state);
    let_time_pass(*state, SLOTS_FORGET_S - 60);
    assert_int_equal(count_queued(*state, "no worker has joined, so the job is removed in"), 1);
    let_time_pass(*state, 60);
    kept_log_expect("is over: no worker has joined, and its pool has been gone for 3600 s");
    assert_int_equal(count_queued(*state, ""), 1);
    size_t jobs;
    pool_rejoin(*state, (struct pool_joining){.number = 8, .pid = 5}, NULL, &jobs);
    assert_int_equal(jobs, 0);
}

/* The process may still import its libraries, so the slot is kept until the job is removed. */
static void a_worker_that_has_not_joined_keeps_its_slot_for_an_hour(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct end *other = pool_join(*state, (struct pool_joining){.number = 8, .pid = 5});
    pool_submit(other, "vgg", 4, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_expect_and_start(other);
    end_close(other);
    pools_let_miss(*state);
    pool_submit(pool, "bert", 4, 4);
    end_expect_none(pool, BODY(POOL_ORDERS));
    let_time_pass(*state, SLOTS_FORGET_S);
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_expect_for(pool, POOL_START, "bert", rank);
    assert_int_equal(kept_log_count("its training is complete"), 0);
}

static void a_pool_that_returns_in_time_keeps_its_waiting_job(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){.site = "small"});
    pool_submit(pool, "bert", 1, 1);
    pool_submit(pool, "vgg", 1, 1);
    struct pool_order bert = pool_expect_and_start(pool);
    end_close(pool);
    pools_let_miss(*state);
    let_time_pass(*state, SLOTS_FORGET_S - 60);
    pool = pool_join(*state, (struct pool_joining){.site = "small", .has = &bert, .count = 1});
    let_time_pass(*state, SLOTS_FORGET_S);
    pool_ended(pool, &bert, 0);
    assert_string_equal(pool_expect(pool, POOL_OVER).job, "bert");
    pool_expect_for(pool, POOL_START, "vgg", 0);
}

static void revoke_tenant(struct rig *rig, const char *name)
{
    struct end *e = rig_connect_locally(rig, OPERATOR);
    envelope *reply = end_ask(
        e, &MESSAGE(0, TENANT_REVOKE_REQUEST, tenant_revoke_request, .tenant = (char *)name));
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
    end_close(e);
}

static void expect_revoked(struct end *pool, const char *job)
{
    struct pool_order over = pool_expect(pool, POOL_OVER);
    assert_string_equal(over.job, job);
    assert_failed_so(over.code, over.text, -EKEYREVOKED, "the key of tenant one was revoked");
}

static void a_revoked_tenant_has_no_jobs(void **state)
{
    const struct key one = pools_add_tenant(*state, "one"), two = pools_add_tenant(*state, "two");
    struct end *first = pool_join(*state, (struct pool_joining){.key = &one});
    struct end *second = pool_join(*state, (struct pool_joining){.key = &two});
    pool_submit(first, "resnet", 4, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_expect_and_start(first);
    pool_submit(first, "bert", 1, 1);
    pool_submit(second, "vgg", 4, 4);
    revoke_tenant(*state, "one");
    expect_revoked(first, "resnet");
    expect_revoked(first, "bert");
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_expect_for(second, POOL_START, "vgg", rank);
    assert_int_equal(count_queued(*state, ""), 1);
}

/* The coordinator has stored the revocation, and has ended before it could end the jobs. */
static void a_revocation_is_completed_after_a_restart(void **state)
{
    struct rig *rig = *state;
    const struct key one = pools_add_tenant(rig, "one");
    struct end *pool = pool_join(rig, (struct pool_joining){.key = &one});
    struct err err;
    pool_submit(pool, "resnet", 1, 4);
    pool_expect_and_start(pool);
    pool_submit(pool, "bert", 4, 4);
    struct tenant *tenant = tenants_find(rig->coordinator->service, "one");
    tenant->is_revoked = true;
    assert_int_equal(tenant_keep(rig->coordinator->service, tenant, &err), 0);
    pools_restart(rig);
    rig_settle(rig);
    assert_int_equal(count_queued(rig, ""), 0);
    pools_restart(rig);
    assert_int_equal(count_queued(rig, ""), 0);
}

/* --- ends without a pool --- */

static void begin(struct rig *rig, uint32_t workers, struct end **ret_pool,
                  struct pool_order *ret_ranks, struct end **ret_workers)
{
    *ret_pool = pool_join(rig, (struct pool_joining){0});
    pool_submit(*ret_pool, "resnet", workers, workers);
    for (uint32_t rank = 0; rank < workers; rank++) {
        ret_ranks[rank] = pool_expect_and_start(*ret_pool);
        ret_ranks[rank].workers_max = 4; /* of the script */
        ret_workers[rank] = pool_worker_join(rig, &ret_ranks[rank], 0);
    }
}

static void workers_that_are_lost_without_a_pool_have_not_trained(void **state)
{
    struct end *pool, *workers[2];
    struct pool_order ranks[2];
    begin(*state, 2, &pool, ranks, workers);
    end_close(pool);
    pools_let_miss(*state);
    end_close(workers[0]);
    end_close(workers[1]);
    let_workers_be_lost(*state);
    pools_look(*state);
    kept_log_expect("ended with an error, or without a goodbye, while its pool was gone; see the "
                    "log of that rank, and start the pool again");
    assert_int_equal(kept_log_count("its training is complete"), 0);
    assert_int_equal(count_queued(*state, ""), 0);
    envelope *reply = pools_ask_jobs(*state, "resnet");
    assert_int_equal(reply->jobs_reply->n_ended, 1);
    assert_string_equal(reply->jobs_reply->ended[0]->ranks[0]->state, "lost");
    message_free(reply);
}

static void workers_with_a_goodbye_have_trained_without_a_pool(void **state)
{
    struct end *pool, *workers[2];
    struct pool_order ranks[2];
    begin(*state, 2, &pool, ranks, workers);
    end_close(pool);
    pools_let_miss(*state);
    end_leave(workers[1]);
    pools_look(*state);
    kept_log_expect("rank 1 has ended its training; no other worker is started");
    end_leave(workers[0]);
    pools_look(*state);
    kept_log_expect("its training is complete");
    assert_int_equal(count_queued(*state, ""), 0);
}

/* Sends the goodbye of a worker that ends with an error. */
static void fail_worker(struct end *e)
{
    envelope *reply = end_ask(e, &MESSAGE(0, LEAVE_REQUEST, leave_request, .failed = true));
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}

static void workers_that_leave_with_an_error_have_not_trained_without_a_pool(void **state)
{
    for (uint32_t first = 0; first < 2; first++) {
        struct end *pool, *workers[2];
        struct pool_order ranks[2];
        begin(*state, 2, &pool, ranks, workers);
        end_close(pool);
        pools_let_miss(*state);
        fail_worker(workers[first]);
        pools_look(*state);
        envelope *reply = pools_ask_jobs(*state, "resnet");
        assert_string_equal(reply->jobs_reply->jobs[0]->ranks[first]->state, "lost");
        message_free(reply);
        end_leave(workers[1 - first]);
        pools_look(*state);
        kept_log_expect("ended with an error, or without a goodbye, while its pool was gone");
        assert_int_equal(kept_log_count("its training is complete"), 0);
    }
}

/* The pool cannot read the exit code of a worker that it has adopted. */
static void expect_start_after_error(void **state, bool has_restart)
{
    struct end *pool, *workers[2];
    struct pool_order ranks[2];
    begin(*state, 2, &pool, ranks, workers);
    fail_worker(workers[1]);
    end_close(pool);
    if (has_restart)
        pools_restart(*state);
    pool = pool_join(*state, (struct pool_joining){.has = ranks, .count = 2});
    pool_report(pool, &ranks[1],
                MESSAGE_PART(PoolReport, pool_report, .is_adopted = true,
                             .event = GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED));
    kept_log_expect("rank 1 ended with an error, or without a goodbye");
    pool_expect_for(pool, POOL_START, "resnet", 1);
}

static void an_adopted_worker_that_leaves_with_an_error_is_started_again(void **state)
{
    expect_start_after_error(state, false);
}

static void an_error_of_a_worker_survives_a_restart(void **state)
{
    expect_start_after_error(state, true);
}

/* The other rank trains on, and the pool returns. */
static void a_rank_that_has_trained_without_a_pool_is_not_started_again(void **state)
{
    for (int is_missing = 0; is_missing < 2; is_missing++) {
        struct end *pool, *workers[2];
        struct pool_order ranks[2];
        begin(*state, 2, &pool, ranks, workers);
        end_close(pool);
        if (is_missing)
            pools_let_miss(*state);
        end_leave(workers[1]);
        pools_look(*state);
        pool = pool_join(*state, (struct pool_joining){.has = ranks, .count = 1});
        end_expect_none(pool, BODY(POOL_ORDERS));
        end_leave(workers[0]);
        pool_ended(pool, &ranks[0], 0);
        assert_int_equal(pool_expect(pool, POOL_OVER).code, 0);
        end_close(pool);
    }
}

/* The training ends before the coordinator restarts, and the pool returns afterwards. */
static void a_training_that_has_ended_without_a_pool_survives_a_restart(void **state)
{
    struct end *pool, *workers[2];
    struct pool_order ranks[2];
    begin(*state, 2, &pool, ranks, workers);
    end_close(pool);
    end_leave(workers[1]);
    end_leave(workers[0]);
    rig_settle(*state);
    pools_restart(*state);
    pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order over = pool_expect(pool, POOL_OVER);
    assert_int_equal(over.code, 0);
    assert_string_equal(over.job, "resnet");
}

/* A rank that was ordered to leave has left, whether its pool is there or not. */
static void a_rank_that_has_left_without_a_pool_has_not_trained(void **state)
{
    struct end *pool, *workers[4];
    struct pool_order ranks[4];
    pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 4);
    for (uint32_t rank = 0; rank < 4; rank++) {
        ranks[rank] = pool_expect_and_start(pool);
        workers[rank] = pool_worker_join(*state, &ranks[rank], 0);
    }
    pool_submit(pool, "bert", 1, 1);
    pool_expect_for(pool, POOL_LEAVE, "resnet", 3);
    end_close(pool);
    end_leave(workers[3]);
    pool = pool_join(*state, (struct pool_joining){.has = ranks, .count = 3});
    struct pool_order bert = pool_expect_for(pool, POOL_START, "bert", 0);
    pool_ended(pool, &bert, 0);
    pool_expect_for(pool, POOL_START, "resnet", 3);
    assert_string_equal(pool_expect(pool, POOL_OVER).job, "bert");
}

/* --- texts --- */

static void a_long_reason_is_cut_behind_a_character(void **state)
{
    char text[2 * 150 + 2] = "x";
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    for (size_t i = 0; i < 150; i++)
        memcpy(text + 1 + 2 * i, "\u00fc", 3);
    pool_submit(pool, "resnet", 1, 1);
    for (int i = 0; i < SLOTS_FAILURES_MAX; i++) {
        struct pool_order order = pool_expect(pool, POOL_START);
        pool_report(pool, &order,
                    MESSAGE_PART(PoolReport, pool_report,
                                 .event = GRADPOOL__WIRE__POOL_EVENT__POOL_FAILED, .text = text));
    }
    struct pool_order over = pool_expect(pool, POOL_OVER);
    assert_true(text_is_utf8(over.text));
    assert_non_null(strstr(over.text, "rank 0 could not be started: x\u00fc\u00fc"));
    assert_non_null(strstr(over.text, "\u00fc..., the third failure without a step; see the log"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, pools_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_waiting_job_is_removed_an_hour_after_its_pool),
        CASE(a_worker_that_has_not_joined_keeps_its_slot_for_an_hour),
        CASE(a_pool_that_returns_in_time_keeps_its_waiting_job),
        CASE(a_revoked_tenant_has_no_jobs),
        CASE(a_revocation_is_completed_after_a_restart),
        CASE(workers_that_are_lost_without_a_pool_have_not_trained),
        CASE(workers_with_a_goodbye_have_trained_without_a_pool),
        CASE(workers_that_leave_with_an_error_have_not_trained_without_a_pool),
        CASE(an_adopted_worker_that_leaves_with_an_error_is_started_again),
        CASE(an_error_of_a_worker_survives_a_restart),
        CASE(a_rank_that_has_trained_without_a_pool_is_not_started_again),
        CASE(a_training_that_has_ended_without_a_pool_survives_a_restart),
        CASE(a_rank_that_has_left_without_a_pool_has_not_trained),
        CASE(a_long_reason_is_cut_behind_a_character),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
