/* Tests rests of jobs (SL20 to SL24): workers sleep, and their slots go to other jobs. */
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/internal.h"
#include "test/unit/coordinator/slots/pool_case.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define POOL_RESTS GRADPOOL__WIRE__POOL_VERB__POOL_RESTS
#define POOL_GOES_ON GRADPOOL__WIRE__POOL_VERB__POOL_GOES_ON
#define RANKS 2

/* Job "resnet" with step records: rank 0, which stays in a rest, and rank 1. The other slots belong
 * to "vgg". */
struct scene {
    struct rig *rig;
    struct end *pool;
    struct pool_order orders[RANKS];
    struct end *workers[RANKS];
};

static void declare_steps(struct end *worker)
{
    WIRE(TensorSpec)
    spec =
        MESSAGE_PART(TensorSpec, tensor_spec, .name = TERMS_STEPS_NAME, .dtype = 1, .elements = 8);
    WIRE(TensorSpec) * specs[] = {&spec};
    envelope *reply = end_ask(
        worker, &MESSAGE(0, DECLARE_REQUEST, declare_request, .n_tensors = 1, .tensors = specs));
    assert_int_equal(reply->body_case, BODY(DECLARE_REPLY));
    message_free(reply);
}

static struct scene begin(void **state)
{
    struct scene s = {.rig = *state};
    rig_aggregator(s.rig, 1);
    s.pool = pool_join(s.rig, (struct pool_joining){0});
    pool_submit(s.pool, "vgg", 2, 2);
    for (uint32_t rank = 0; rank < 2; rank++)
        pool_expect_and_start(s.pool);
    pool_submit(s.pool, "resnet", 1, 2);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        s.orders[rank] = pool_expect_and_start(s.pool);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        s.workers[rank] = pool_worker_join(s.rig, &s.orders[rank], 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        declare_steps(s.workers[rank]);
    return s;
}

static void order_rest(struct end *pool, bool rests)
{
    envelope *reply =
        end_ask(pool, &MESSAGE(0, POOL_REST, pool_rest, .job = "resnet", .rests = rests));
    if (reply->body_case != BODY(DONE))
        fail_msg("refused: %s", reply->failure ? reply->failure->text : "?");
    message_free(reply);
}

/* Returns the number of the rest in the newest message about the membership. */
static uint32_t rest_of(struct end *worker)
{
    uint32_t rest = 0;
    rig_settle(worker->rig);
    for (size_t i = 0; i < worker->inbox_count; i++)
        if (worker->inbox[i]->body_case == BODY(MEMBERSHIP))
            rest = worker->inbox[i]->membership->rest;
    return rest;
}

static void fall_asleep(struct end *worker, uint32_t rest)
{
    envelope *reply = end_ask(worker, &MESSAGE(0, RESTING_REQUEST, resting_request, .rest = rest));
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}

/* Lets rank 1 leave, and rank 0 sleep. */
static void rest(struct scene *s)
{
    order_rest(s->pool, true);
    pool_expect_for(s->pool, POOL_LEAVE, "resnet", 1);
    assert_int_equal(rest_of(s->workers[0]), 0);
    pool_ended(s->pool, &s->orders[1], 0);
    assert_string_equal(pool_expect(s->pool, POOL_RESTS).job, "resnet");
    assert_int_equal(rest_of(s->workers[0]), 1);
    fall_asleep(s->workers[0], 1);
    rig_settle(s->rig);
}

static const char *state_of(struct rig *rig, char *buffer, size_t bytes)
{
    envelope *reply = pools_ask_jobs(rig, "resnet");
    assert_int_equal(reply->jobs_reply->n_jobs, 1);
    snprintf(buffer, bytes, "%s", reply->jobs_reply->jobs[0]->pool->state);
    message_free(reply);
    return buffer;
}

static void a_resting_job_gives_its_slots_to_others_and_goes_on(void **state)
{
    struct scene s = begin(state);
    char buffer[64];
    rest(&s);
    assert_string_equal(state_of(s.rig, buffer, sizeof buffer), "resting");
    pool_submit(s.pool, "bert", 2, 2);
    struct pool_order bert[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        bert[rank] = pool_expect_for(s.pool, POOL_START, "bert", rank);
    order_rest(s.pool, false);
    end_expect_none(s.pool, BODY(POOL_ORDERS));
    assert_int_equal(rest_of(s.workers[0]), 1);
    pool_ended(s.pool, &bert[0], 0);
    pool_ended(s.pool, &bert[1], 0);
    assert_string_equal(pool_expect(s.pool, POOL_GOES_ON).job, "resnet");
    assert_int_equal(rest_of(s.workers[0]), 2);
    pool_expect_for(s.pool, POOL_START, "resnet", 1);
    assert_string_equal(pool_expect(s.pool, POOL_OVER).job, "bert");
}

static struct slots_job *find_job(struct rig *rig, const char *name)
{
    const struct service *s = rig->coordinator->service;
    list_for_each_entry (struct slots_job, job, &s->works->slots->jobs, link)
        if (strcmp(job->name, name) == 0)
            return job;
    fail_msg("no job %s", name);
    return NULL;
}

static void report(struct rig *rig, const char *name)
{
    struct slots_job *job = find_job(rig, name);
    assert_int_equal(
        slots_decide(job->pool->site,
                     (struct scheduler_event){
                         .kind = SCHEDULER_REPORTED, .job = job->id, .step = 5, .value = 1}),
        0);
    rig_settle(rig);
}

/* The times of F5 are short after a first report that comes at once. */
static void a_job_that_may_rest_makes_room_for_another_one(void **state)
{
    struct scene s = begin(state);
    find_job(s.rig, "resnet")->rest->may = true;
    pools_look(s.rig);
    report(s.rig, "resnet");
    pool_submit(s.pool, "bert", 2, 2);
    pool_expect_for(s.pool, POOL_LEAVE, "resnet", 1);
    envelope *reply = pools_ask_jobs(s.rig, "resnet");
    assert_non_null(strstr(reply->jobs_reply->jobs[0]->pool->decision,
                           "rests on site here: 1.82 times the speed of one worker before, to make "
                           "room"));
    message_free(reply);
    pool_ended(s.pool, &s.orders[1], 0);
    pool_expect(s.pool, POOL_RESTS);
    fall_asleep(s.workers[0], 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        pool_expect_for(s.pool, POOL_START, "bert", rank);
    end_expect_none(s.pool, BODY(POOL_ORDERS));
}

/* The pool sends the standing of its job's trial, which orders rests, and is no report. */
static void a_standing_reaches_the_scheduler(void **state)
{
    struct scene s = begin(state);
    struct scheduler_view view;
    const struct slots_job *job = find_job(s.rig, "resnet");
    envelope *reply = end_ask(s.pool, &MESSAGE(0, POOL_STANDING, pool_standing, .job = "resnet",
                                               .rung = 2, .value = 0.5));
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
    assert_int_equal(scheduler_view(job->pool->site->scheduler, job->id, &view), 0);
    assert_int_equal(view.rung, 2);
    assert_true(job->rest->has_standing && job->rest->value == 0.5);
    end_ask_refused(s.pool, &MESSAGE(0, POOL_STANDING, pool_standing, .job = "bert"), -ENOENT,
                    "this pool has no job bert");
}

/* A message about another rest, or from a worker that was not ordered to sleep, frees no slot. */
static void only_a_worker_of_the_present_rest_frees_its_slot(void **state)
{
    struct scene s = begin(state);
    fall_asleep(s.workers[0], 1);
    pool_submit(s.pool, "bert", 1, 1);
    pool_expect_for(s.pool, POOL_LEAVE, "resnet", 1); /* bert needs a slot */
    fall_asleep(s.workers[0], 0);
    end_expect_none(s.pool, BODY(POOL_ORDERS));
    struct end *other = rig_connect(s.rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    end_ask_refused(other, &MESSAGE(0, RESTING_REQUEST, resting_request, .rest = 1), -ENOTCONN,
                    "this connection has no job; join a job first");
}

static void a_rest_survives_a_restart(void **state)
{
    struct scene s = begin(state);
    rest(&s);
    pools_restart(s.rig);
    s.pool = pool_join(s.rig, (struct pool_joining){.has = s.orders, .count = 1});
    assert_string_equal(pool_expect(s.pool, POOL_RESTS).job, "resnet");
    rig_settle(s.rig);
    struct scheduler_view view;
    const struct slots_job *job = find_job(s.rig, "resnet");
    assert_int_equal(scheduler_view(job->pool->site->scheduler, job->id, &view), 0);
    assert_int_equal(view.state, SCHEDULER_RESTING);
    assert_true(view.rests_by_order);
    assert_int_equal(slots_training(job)->ranks->rest, 1);
    order_rest(s.pool, false);
    assert_string_equal(pool_expect(s.pool, POOL_GOES_ON).job, "resnet");
}

static void a_sleeping_worker_that_dies_is_started_when_its_job_goes_on(void **state)
{
    struct scene s = begin(state);
    rest(&s);
    pool_ended(s.pool, &s.orders[0], 137);
    end_expect_none(s.pool, BODY(POOL_ORDERS));
    order_rest(s.pool, false);
    pool_expect(s.pool, POOL_GOES_ON);
    struct pool_order again = pool_expect_for(s.pool, POOL_START, "resnet", 0);
    assert_true(again.incarnation > s.orders[0].incarnation);
}

static void a_resting_job_that_is_withdrawn_ends(void **state)
{
    struct scene s = begin(state);
    rest(&s);
    pool_withdraw(s.pool, "resnet");
    pool_expect_for(s.pool, POOL_END, "resnet", 0);
    pool_ended(s.pool, &s.orders[0], 143);
    assert_int_equal(pool_expect(s.pool, POOL_OVER).code, -ECANCELED);
}

static void a_job_that_cannot_rest_is_refused(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    envelope order = MESSAGE(0, POOL_REST, pool_rest, .job = "resnet", .rests = true);
    end_ask_refused(pool, &order, -ENOENT, "this pool has no job resnet");
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect_and_start(pool);
    end_ask_refused(pool, &order, -EAGAIN, "job resnet cannot rest yet: no worker has joined");
    pool_worker_join(*state, &zero, 0);
    end_ask_refused(pool, &order, -EOPNOTSUPP,
                    "job resnet cannot rest: its script has no steps; use gradpool.elastic.Run");
    pool_withdraw(pool, "resnet");
    end_ask_refused(pool, &order, -EALREADY, "job resnet cannot rest: it is ending");
}

static void a_queued_job_rests_before_its_start(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order vgg[4];
    pool_submit(pool, "vgg", 4, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        vgg[rank] = pool_expect_and_start(pool);
    pool_submit(pool, "resnet", 1, 1);
    order_rest(pool, true);
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_ended(pool, &vgg[rank], 0);
    assert_string_equal(pool_expect(pool, POOL_OVER).job, "vgg");
    end_expect_none(pool, BODY(POOL_ORDERS));
    order_rest(pool, false);
    pool_expect_for(pool, POOL_START, "resnet", 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, pools_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_resting_job_gives_its_slots_to_others_and_goes_on),
        CASE(a_job_that_may_rest_makes_room_for_another_one),
        CASE(only_a_worker_of_the_present_rest_frees_its_slot),
        CASE(a_rest_survives_a_restart),
        CASE(a_sleeping_worker_that_dies_is_started_when_its_job_goes_on),
        CASE(a_resting_job_that_is_withdrawn_ends),
        CASE(a_job_that_cannot_rest_is_refused),
        CASE(a_queued_job_rests_before_its_start),
        CASE(a_standing_reaches_the_scheduler),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
