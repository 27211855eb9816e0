/* Tests pools of workers: orders, incarnations, reports and refusals (SL1 to SL3, SL5). */
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/internal.h"
#include "test/unit/coordinator/slots/pool_case.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void a_job_starts_on_free_slots_of_its_site(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect_for(pool, POOL_START, "resnet", 0);
    struct pool_order one = pool_expect_for(pool, POOL_START, "resnet", 1);
    assert_int_equal(zero.workers, 2);
    assert_int_equal(zero.workers_max, 2);
    assert_int_not_equal(zero.slot, one.slot);
    assert_true(zero.incarnation > 0 && one.incarnation > zero.incarnation);
    end_expect_none(pool, BODY(POOL_ORDERS));
}

static void a_job_begins_with_all_workers_that_have_slots(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 6);
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct pool_order order = pool_expect_for(pool, POOL_START, "resnet", rank);
        assert_int_equal(order.workers, 4);
        assert_int_equal(order.workers_max, 6);
    }
    end_expect_none(pool, BODY(POOL_ORDERS));
}

static void a_job_of_a_burst_leaves_slots_for_the_announced_ones(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    for (uint32_t followers = 4; followers-- > 0;) {
        char name[2] = {(char)('a' + followers)};
        envelope *reply =
            end_ask(pool, &MESSAGE(0, POOL_SUBMIT, pool_submit, .job = name, .workers = 1,
                                   .workers_max = 4, .study = "digits", .followers = followers));
        assert_int_equal(reply->body_case, BODY(DONE));
        message_free(reply);
        assert_int_equal(pool_expect_for(pool, POOL_START, name, 0).workers, 1);
    }
    end_expect_none(pool, BODY(POOL_ORDERS));
}

/* The first tenant has all slots. A job of the second tenant then gets the slots of the highest
 * ranks, until both tenants have the same number of slots (F6). */
static void two_tenants_share_a_site(void **state)
{
    const struct key one = pools_add_tenant(*state, "one"), two = pools_add_tenant(*state, "two");
    struct end *first = pool_join(*state, (struct pool_joining){.key = &one});
    struct end *second = pool_join(*state, (struct pool_joining){.key = &two});
    struct pool_order ranks[4], leaves[2];
    pool_submit(first, "resnet", 1, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect_and_start(first);
    pool_submit(second, "resnet", 2, 4);
    for (uint32_t i = 0; i < 2; i++)
        leaves[i] = pool_expect_for(first, POOL_LEAVE, "resnet", 3 - i);
    assert_int_equal(leaves[0].incarnation, ranks[3].incarnation);
    end_expect_none(second, BODY(POOL_ORDERS)); /* the slots are in use until their workers end */
    for (uint32_t i = 0; i < 2; i++)
        pool_ended(first, &leaves[i], 0);
    assert_int_equal(pool_expect(second, POOL_START).workers, 2);
    pool_expect_for(second, POOL_START, "resnet", 1);
    end_expect_none(first, BODY(POOL_ORDERS));
}

static void the_tenant_with_fewer_slots_is_served_first(void **state)
{
    const struct key one = pools_add_tenant(*state, "one"), two = pools_add_tenant(*state, "two");
    struct end *first = pool_join(*state, (struct pool_joining){.key = &one});
    struct end *second = pool_join(*state, (struct pool_joining){.key = &two});
    pool_submit(first, "a", 4, 4);
    struct pool_order a = pool_expect(first, POOL_START);
    for (uint32_t rank = 1; rank < 4; rank++)
        pool_expect_for(first, POOL_START, "a", rank);
    pool_submit(first, "b", 1, 1);
    pool_submit(second, "c", 1, 1);
    end_expect_none(second, BODY(POOL_ORDERS));
    /* the training of the job is complete, so no other worker of the job is started */
    pool_ended(first, &a, 0);
    pool_expect_for(second, POOL_START, "c", 0);
    end_expect_none(first, BODY(POOL_ORDERS));
}

static void a_worker_without_the_newest_incarnation_is_refused(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order old = pool_expect(pool, POOL_START);
    struct pool_order none = old, other = old;
    none.incarnation = 0;
    pool_worker_refused(*state, &none, -EEXIST, "alone; choose another GRADPOOL_JOB");
    other.rank = 5;
    other.workers = other.workers_max = 6;
    pool_worker_refused(*state, &other, -ESTALE,
                        "of rank 5 by its pool, and is not the newest one");
    pool_ended(pool, &old, 1);
    struct pool_order next = pool_expect_for(pool, POOL_START, "resnet", 0);
    assert_true(next.incarnation > old.incarnation);
    pool_worker_refused(*state, &old, -ESTALE, "ends with exit code 75");
    pool_worker_join(*state, &next, 0);
    snprintf(other.job, sizeof other.job, "another");
    pool_worker_refused(*state, &other, -ESTALE, "and the job of the pool is over");
}

static const struct session *session_at(struct rig *rig, uint32_t rank)
{
    const struct service *s = rig->coordinator->service;
    list_for_each_entry (const struct slots_job, job, &s->works->slots->jobs, link) {
        const struct job *training = slots_training(job);
        return training && rank < training->workers ? training->sessions[rank] : NULL;
    }
    return NULL;
}

static void a_newer_start_ends_only_the_older_one_of_its_rank(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect_and_start(pool), one = pool_expect_and_start(pool);
    struct end *other = pool_worker_join(*state, &zero, 0);
    struct end *former = pool_worker_join(*state, &one, 0);
    const struct session *trains = session_at(*state, 0), *lives_on = session_at(*state, 1);
    assert_true(trains && lives_on);
    /* a number that the coordinator has not stored ends no worker, and neither does an older one */
    struct pool_order invented = one;
    invented.incarnation++;
    pool_worker_refused(*state, &invented, -ESTALE, "and is not the newest one");
    assert_ptr_equal(session_at(*state, 1), lives_on);
    /* the pool cannot end the process, for example on a lost node, and starts another one */
    pool_ended(pool, &one, 1);
    struct pool_order next = pool_expect_for(pool, POOL_START, "resnet", 1);
    assert_true(next.incarnation > one.incarnation);
    assert_ptr_equal(session_at(*state, 1), lives_on);
    pool_worker_refused(*state, &one, -ESTALE, "and is not the newest one");
    assert_ptr_equal(session_at(*state, 1), lives_on);
    struct end *newer = pool_worker_join(*state, &next, 0);
    end_expect_closed(former);
    assert_ptr_equal(session_at(*state, 0), trains);
    assert_non_null(session_at(*state, 1));
    end_close(newer);
    end_close(other);
}

/* The former start was the last one of a training that another rank has ended. */
static void a_newer_start_begins_no_training_after_the_former_one(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect_and_start(pool), one = pool_expect_and_start(pool);
    struct end *other = pool_worker_join(*state, &zero, 0);
    struct end *former = pool_worker_join(*state, &one, 0);
    end_leave(other);
    pool_ended(pool, &one, 1);
    struct pool_order next = pool_expect_for(pool, POOL_START, "resnet", 1);
    pool_worker_refused(*state, &next, -ESTALE, "and the training has ended");
    end_expect_closed(former);
    assert_null(session_at(*state, 1));
}

static void a_worker_that_comes_after_the_training_is_refused(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect_and_start(pool), one = pool_expect_and_start(pool);
    end_leave(pool_worker_join(*state, &zero, 0));
    rig_settle(*state);
    pool_worker_refused(*state, &one, -ESTALE, "and the training has ended");
    pool_ended(pool, &one, SLOTS_EXIT_STALE);
    pool_ended(pool, &zero, 0);
    assert_int_equal(pool_expect(pool, POOL_OVER).code, 0);
}

/* The order was sent. Before the ordered worker joins, another job needs the slot. */
static void an_order_overtaken_by_a_shrink_is_refused_in_words(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order ranks[4];
    pool_submit(pool, "resnet", 1, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect(pool, POOL_START);
    for (uint32_t rank = 0; rank < 3; rank++)
        pool_worker_join(*state, &ranks[rank], 0);
    pool_submit(pool, "bert", 1, 1);
    pool_expect_for(pool, POOL_LEAVE, "resnet", 3);
    pool_worker_refused(*state, &ranks[3], -ESTALE, "asked to leave before it has joined");
    pool_ended(pool, &ranks[3], SLOTS_EXIT_STALE);
    pool_expect_for(pool, POOL_START, "bert", 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
}

static uint32_t wanted_by(struct end *worker)
{
    uint32_t wanted = 0;
    rig_settle(worker->rig);
    for (size_t i = 0; i < worker->inbox_count; i++)
        if (worker->inbox[i]->body_case == BODY(MEMBERSHIP))
            wanted = worker->inbox[i]->membership->workers;
    return wanted;
}

static void growth_resizes_the_job_before_its_worker_starts(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order last = {0};
    pool_submit(pool, "bert", 3, 3);
    for (uint32_t rank = 0; rank < 3; rank++)
        last = pool_expect_for(pool, POOL_START, "bert", rank);
    pool_submit(pool, "resnet", 1, 4);
    struct pool_order zero = pool_expect_for(pool, POOL_START, "resnet", 0);
    assert_int_equal(zero.workers, 1);
    struct end *worker = pool_worker_join(*state, &zero, 0);
    assert_int_equal(wanted_by(worker), 1);
    pool_ended(pool, &last, 0); /* "bert" is complete */
    struct pool_order one = pool_expect_for(pool, POOL_START, "resnet", 1);
    assert_int_equal(one.workers, 1);
    assert_int_equal(wanted_by(worker), 2);
    pool_worker_join(*state, &one, 0);
}

/* A resize by an operator is refused, because the scheduler would undo the resize. A script may end
 * its wait for a lost rank. */
static void a_resize_of_an_operator_is_refused(void **state)
{
    struct end *operator= rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 4);
    struct pool_order zero = pool_expect_for(pool, POOL_START, "resnet", 0);
    struct end *worker = pool_worker_join(*state, &zero, 0);
    uint32_t wanted = wanted_by(worker);
    for (uint32_t workers = 1; workers <= 4; workers++)
        end_ask_refused(operator, & MESSAGE(0, RESIZE_REQUEST, resize_request, .job = "resnet",
                                            .workers = workers),
                        -EOPNOTSUPP,
                        "job resnet was not resized: the scheduler of site here chooses its number "
                        "of workers, from 1 to 4; see gradpool explain resnet");
    assert_int_equal(wanted_by(worker), wanted);
    envelope *reply =
        end_ask(worker, &MESSAGE(0, RESIZE_REQUEST, resize_request, .workers = wanted));
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
    end_ask_refused(operator, &
                    MESSAGE(0, RESIZE_REQUEST, resize_request, .job = "bert", .workers = 1),
                    -ENOENT, "there is no job bert");
}

/* The script may join no job at all, and then a further worker would repeat its work. */
static void a_job_that_no_worker_has_joined_gets_no_more_slots(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order last = {0};
    pool_submit(pool, "bert", 3, 3);
    for (uint32_t rank = 0; rank < 3; rank++)
        last = pool_expect_and_start(pool);
    pool_submit(pool, "resnet", 1, 4);
    pool_expect_and_start(pool);
    pool_ended(pool, &last, 0);
    pools_look(*state);
    envelope *reply = pools_ask_jobs(*state, "");
    assert_int_equal(reply->jobs_reply->sites[0]->held, 3);
    message_free(reply);
}

/* The job cannot be resized before a worker has joined, so the order waits until then. */
static void growth_waits_until_the_job_has_begun(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order last = {0};
    pool_submit(pool, "bert", 3, 3);
    for (uint32_t rank = 0; rank < 3; rank++)
        last = pool_expect_for(pool, POOL_START, "bert", rank);
    pool_submit(pool, "resnet", 1, 4);
    struct pool_order zero = pool_expect_for(pool, POOL_START, "resnet", 0);
    pool_ended(pool, &last, 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
    pool_worker_join(*state, &zero, 0);
    assert_int_equal(pool_expect_for(pool, POOL_START, "resnet", 1).workers, 1);
}

static void a_failed_worker_starts_again_and_three_failures_end_the_job(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order worker, before = {0};
    pool_submit(pool, "resnet", 1, 1);
    for (int i = 0; i < 3; i++) {
        worker = pool_expect_for(pool, POOL_START, "resnet", 0);
        assert_true(worker.incarnation > before.incarnation);
        pool_ended(pool, &worker, 1);
        before = worker;
    }
    struct pool_order over = pool_expect(pool, POOL_OVER);
    assert_failed_so(over.code, over.text, -ECONNRESET,
                     "rank 0 ended with exit code 1, the third failure without a step");
    pool_submit(pool, "resnet", 1, 1);
    assert_true(pool_expect(pool, POOL_START).incarnation > worker.incarnation);
}

static void a_job_that_fails_with_a_worker_ends_with_its_first_failure(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect(pool, POOL_START), one = pool_expect(pool, POOL_START);
    pool_worker_join(*state, &zero, 2);
    pool_worker_join(*state, &one, 2);
    pool_report(pool, &one,
                MESSAGE_PART(PoolReport, pool_report,
                             .event = GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED, .signal = 9));
    struct pool_order end = pool_expect_for(pool, POOL_END, "resnet", 0);
    assert_string_equal(end.text, "rank 1 was ended by signal 9; see the log of that rank");
    end_expect_none(pool, BODY(POOL_ORDERS));
    pool_ended(pool, &zero, 143);
    assert_int_equal(pool_expect(pool, POOL_OVER).code, -ECONNRESET);
}

static void a_complete_training_frees_its_slots(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 4, 4);
    struct pool_order ranks[4];
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect(pool, POOL_START);
    pool_submit(pool, "bert", 4, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_ended(pool, &ranks[rank], 0);
    struct pool_order over = pool_expect(pool, POOL_OVER);
    assert_string_equal(over.job, "resnet");
    assert_int_equal(over.code, 0);
    kept_log_expect("of the pool on");
    kept_log_expect("its training is complete");
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_expect_for(pool, POOL_START, "bert", rank);
}

static void a_withdrawn_job_ends_its_workers(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect(pool, POOL_START);
    end_ask_refused(pool, &MESSAGE(0, POOL_WITHDRAW, pool_withdraw, .job = "bert"), -ENOENT,
                    "this pool has no job bert");
    pool_withdraw(pool, "resnet");
    assert_string_equal(pool_expect_for(pool, POOL_END, "resnet", 0).text, "its pool has ended it");
    pool_worker_refused(*state, &zero, -ESTALE, "asked to leave");
    pool_ended(pool, &zero, 143);
    assert_int_equal(pool_expect(pool, POOL_OVER).code, -ECANCELED);
    pool_submit(pool, "bert", 4, 4);
    pool_expect_for(pool, POOL_START, "bert", 0);
}

static void a_report_about_an_earlier_incarnation_has_no_effect(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order old = pool_expect(pool, POOL_START);
    pool_ended(pool, &old, 1);
    struct pool_order next = pool_expect(pool, POOL_START);
    pool_ended(pool, &old, 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
    struct pool_order unknown = next;
    unknown.rank = 9;
    pool_ended(pool, &unknown, 0);
    snprintf(unknown.job, sizeof unknown.job, "bert");
    pool_ended(pool, &unknown, 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
    pool_worker_join(*state, &next, 0);
}

static void a_job_without_workers_max_keeps_its_workers(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order ranks[4];
    pool_submit(pool, "resnet", 1, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect(pool, POOL_START);
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct end *worker = pool_worker_join(*state, &ranks[rank], 4);
        end_expect_none(worker, BODY(JOB_FAILURE));
    }
    pool_submit(pool, "bert", 1, 1);
    end_expect_none(pool, BODY(POOL_ORDERS));
}

/* --- refusals --- */

static void a_pool_that_cannot_join_is_told_why(void **state)
{
    pool_join_refused(*state, (struct pool_joining){.site = "moon"}, -ENOENT,
                      "has no slots: ask the operator to start the service with --worker-slots");
    pool_join_refused(*state, (struct pool_joining){.node = "a\"b"}, -EINVAL, "name of its host");
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_join_refused(*state, (struct pool_joining){.pid = 5}, -EEXIST,
                      "the pool on node7 (pid 4242) runs in this folder already");
    kept_log_expect("has joined site");
    end_ask_refused(pool,
                    &MESSAGE(0, POOL_JOIN, pool_join, .site = "here", .pool = 9, .node = "node7"),
                    -EINVAL, "this connection belongs to a worker or a pool already");
    pool_submit(pool, "resnet", 1, 1);
    kept_log_expect("was submitted by the pool on");
    pool_expect(pool, POOL_START);
    end_close(pool);
    pool_join_refused(*state, (struct pool_joining){.site = "small"}, -EINVAL,
                      "or let these jobs end first");
}

/* Jobs without a key would get slots, but their workers could not start the job (K97). */
static void a_pool_needs_a_key_if_the_service_has_tenants(void **state)
{
    const struct key key = pools_add_tenant(*state, "one");
    pool_join_refused(*state, (struct pool_joining){0}, -ENOKEY,
                      "a pool needs a key, because the service has tenants");
    pool_join(*state, (struct pool_joining){.key = &key});
}

static void a_pool_with_too_many_workers_is_refused(void **state)
{
    static WIRE(PoolWorker) worker, *list[SLOTS_LISTED_MAX + 1];
    struct end *pool = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    worker = MESSAGE_PART(PoolWorker, pool_worker, .job = "resnet");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        list[i] = &worker;
    WIRE(PoolJoin)
    join = MESSAGE_PART(PoolJoin, pool_join, .site = "here", .pool = 9, .node = "node7",
                        .workers = list, .n_workers = SLOTS_LISTED_MAX + 1);
    end_ask_refused(pool, &ENVELOPE(0, POOL_JOIN, pool_join, &join), -EINVAL,
                    "workers; this one has");
    join.n_workers--;
    envelope *reply = end_ask(pool, &ENVELOPE(0, POOL_JOIN, pool_join, &join));
    assert_int_equal(reply->body_case, BODY(POOL_WELCOME));
    assert_int_equal(reply->pool_welcome->n_stale, SLOTS_LISTED_MAX);
    message_free(reply);
}

static void a_job_that_cannot_start_is_refused(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct end *other = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    pool_submit_refused(other, "resnet", 1, 1, -ENOTCONN, "this connection has no pool");
    pool_submit_refused(pool, "", 1, 1, -EINVAL, "a submitted job needs a name of");
    pool_submit_refused(pool, "resnet", 0, 1, -EINVAL, "0 to 1 workers; expected 1 to 768");
    pool_submit_refused(pool, "resnet", 3, 2, -EINVAL, "the least number first");
    pool_submit_refused(pool, "resnet", 1, 769, -EINVAL, "expected 1 to 768");
    pool_submit_refused(pool, "resnet", 5, 8, -ENOSPC, "; submit it with fewer workers");
    pool_submit(pool, "resnet", 1, 1);
    pool_submit_refused(pool, "resnet", 1, 1, -EEXIST, "already; give this one another name");
    rig_join(*state, "by-hand", 0, 1, NULL, NULL);
    pool_submit_refused(pool, "by-hand", 1, 1, -EEXIST, "workers that no pool has started");
}

/* --- a key --- */

/* Returns whether the message and its parts contain only numbers and these texts. */
static bool has_only(const ProtobufCMessageDescriptor *message, const char *const *texts)
{
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];
        const char *const *text = texts;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            if (!has_only(field->descriptor, texts))
                return false;
            continue;
        }
        while (*text && strcmp(*text, field->name) != 0)
            text++;
        bool is_text =
            field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES;
        if (is_text && !*text)
            return false;
    }
    return true;
}

/* A message to a pool contains only names of jobs and reasons for people as text. With a stolen key
 * nobody can send a message to another pool, because orders are sent over the connection that has
 * submitted the job. */
static void a_key_starts_no_program(void **state)
{
    static const char *const texts[] = {"job", "jobs", "text", NULL};
    assert_true(has_only(&gradpool__wire__pool_orders__descriptor, texts));
    assert_true(has_only(&gradpool__wire__pool_welcome__descriptor, texts));
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct end *thief = pool_join(*state, (struct pool_joining){.number = 8, .pid = 6});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect(pool, POOL_START);
    pool_submit(thief, "bert", 1, 1);
    pool_expect_for(thief, POOL_START, "bert", 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
    end_ask_refused(thief, &MESSAGE(0, POOL_WITHDRAW, pool_withdraw, .job = "resnet"), -ENOENT,
                    "this pool has no job resnet");
    pool_ended(thief, &zero, 1);
    end_expect_none(pool, BODY(POOL_ORDERS));
    struct end *worker = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    end_ask_refused(worker, &MESSAGE(0, POOL_ORDERS, pool_orders), -EOPNOTSUPP,
                    "does not answer this message");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, pools_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_job_starts_on_free_slots_of_its_site),
        CASE(a_job_begins_with_all_workers_that_have_slots),
        CASE(a_job_of_a_burst_leaves_slots_for_the_announced_ones),
        CASE(two_tenants_share_a_site),
        CASE(the_tenant_with_fewer_slots_is_served_first),
        CASE(a_worker_without_the_newest_incarnation_is_refused),
        CASE(a_newer_start_ends_only_the_older_one_of_its_rank),
        CASE(a_newer_start_begins_no_training_after_the_former_one),
        CASE(a_worker_that_comes_after_the_training_is_refused),
        CASE(an_order_overtaken_by_a_shrink_is_refused_in_words),
        CASE(growth_resizes_the_job_before_its_worker_starts),
        CASE(a_resize_of_an_operator_is_refused),
        CASE(a_job_that_no_worker_has_joined_gets_no_more_slots),
        CASE(growth_waits_until_the_job_has_begun),
        CASE(a_failed_worker_starts_again_and_three_failures_end_the_job),
        CASE(a_job_that_fails_with_a_worker_ends_with_its_first_failure),
        CASE(a_complete_training_frees_its_slots),
        CASE(a_withdrawn_job_ends_its_workers),
        CASE(a_report_about_an_earlier_incarnation_has_no_effect),
        CASE(a_job_without_workers_max_keeps_its_workers),
        CASE(a_pool_that_cannot_join_is_told_why),
        CASE(a_pool_needs_a_key_if_the_service_has_tenants),
        CASE(a_pool_with_too_many_workers_is_refused),
        CASE(a_job_that_cannot_start_is_refused),
        CASE(a_key_starts_no_program),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
