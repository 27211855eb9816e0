/* Tests allowances for the rows of tables (K145): the limits of job and tenant at a declare, steps
 * that lanes ask for, pushes that wait for a limit, and allowances after a restart. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/wire/limit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHARDS 8u
#define MIB (UINT64_C(1) << 20)
#define START_BYTES (SHARDS * (UINT64_C(8) << 10)) /* shards without rows */
#define STEP_BYTES (64 * MIB)

static void limits(struct rig *rig, uint64_t of_job, uint64_t of_tenant)
{
    rig_crash(rig);
    limits_init(&rig->options.limits);
    rig->options.limits.most[LIMIT_JOB_TABLE_BYTES] = of_job;
    rig->options.limits.most[LIMIT_TENANT_TABLE_BYTES] = of_tenant;
    rig_start(rig);
}

/* A job with one rank and one table on one lane. */
struct tabled {
    struct end *rank;
    uint64_t session;
    uint32_t job, table;
    uint64_t allowed; /* allowance that the lane has received last */
};

static uint64_t allowed_next(struct end *lane)
{
    envelope *place = end_expect(lane, BODY(PLACE_REQUEST));
    uint64_t bytes = place->place_request->table_bytes_max;
    message_free(place);
    return bytes;
}

static struct tabled declare_of(struct rig *rig, struct end *lane, const char *job,
                                uint32_t workers)
{
    struct tabled t = {0};
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, job, 0, workers);
    join.node = "node7"; /* the host of the lanes */
    t.rank = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    envelope *reply = end_ask(t.rank, &request);
    t.job = reply->join_reply->job_id;
    t.session = reply->join_reply->session;
    message_free(reply);
    end_declare_table(t.rank, "users", 32, SHARDS);
    reply = end_expect(t.rank, BODY(DECLARE_REPLY));
    t.table = reply->declare_reply->tables[0]->table;
    message_free(reply);
    t.allowed = allowed_next(lane);
    return t;
}

static struct tabled declare(struct rig *rig, struct end *lane, const char *job)
{
    return declare_of(rig, lane, job, 1);
}

static void want(struct end *lane, const struct tabled *t, uint64_t needed)
{
    end_send(lane, &MESSAGE(0, ROWS_WANTED, rows_wanted, .lane = lane->lanes[0], .job_id = t->job,
                            .allowed_bytes = t->allowed, .needed_bytes = needed));
}

static void declare_hint_refused(struct end *rank, uint64_t rows_hint, const char *text)
{
    WIRE(TableSpec)
    spec = MESSAGE_PART(TableSpec, table_spec, .name = "hinted", .dim = 4, .dtype = 1, .rule = 1,
                        .shards = SHARDS, .rows_hint = rows_hint);
    WIRE(TableSpec) * specs[] = {&spec};
    end_send(rank, &MESSAGE(0, DECLARE_REQUEST, declare_request, .tables = specs, .n_tables = 1));
    envelope *reply = end_expect(rank, BODY(FAILURE));
    assert_failed_so(reply->failure->code, reply->failure->text, -EDQUOT, text);
    message_free(reply);
}

/* Returns the use of a limit of the only job, and its reason for waiting ("": none). */
static uint64_t used(struct rig *rig, const char *name, char *ret_waits, size_t waits_bytes)
{
    struct end *operator= rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    envelope *reply = end_ask(operator, & MESSAGE(0, JOBS_REQUEST, jobs_request));
    const WIRE(JobView) *job = reply->jobs_reply->jobs[0];
    uint64_t bytes = UINT64_MAX;
    for (size_t i = 0; i < job->n_limits; i++)
        if (strcmp(job->limits[i]->name, name) == 0)
            bytes = job->limits[i]->used;
    snprintf(ret_waits, waits_bytes, "%s", job->waits_for ? job->waits_for : "");
    message_free(reply);
    end_close(operator);
    return bytes;
}

static void expect_notice(struct end *rank, int code, const char *words)
{
    envelope *notice = end_expect(rank, BODY(NOTICE));
    assert_int_equal(notice->notice->code, code);
    if (!strstr(notice->notice->text, words))
        fail_msg("'%s' does not say '%s'", notice->notice->text, words);
    message_free(notice);
}

/* --- declares --- */

static void a_table_that_can_not_fit_is_refused_at_its_declare(void **state)
{
    struct rig *rig = *state;
    limits(rig, 4 * MIB, 8 * MIB);
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled t = declare(rig, lane, "words");
    declare_hint_refused(t.rank, MIB, "--job-table-bytes-max");
    end_expect_none(lane, BODY(PLACE_REQUEST));
}

static void the_jobs_of_a_tenant_share_its_table_memory(void **state)
{
    struct rig *rig = *state;
    limits(rig, 8 * MIB, MIB);
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled first = declare(rig, lane, "first");
    assert_int_equal(first.allowed, MIB);
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "second", 0, 1);
    struct end *rank = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    message_free(end_ask(rank, &request));
    declare_hint_refused(rank, 0, "--tenant-table-bytes-max");
}

/* A lane that does not answer gets the shards again, with the same allowance. */
static void shards_that_are_sent_again_get_no_more(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "words", 0, 1);
    join.node = "node7";
    struct end *rank = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    message_free(end_ask(rank, &request));
    lane->refuses = BODY(PLACE_REQUEST);
    lane->refusal = -EAGAIN;
    end_declare_table(rank, "users", 32, SHARDS);
    uint64_t allowed = allowed_next(lane);
    lane->refuses = 0;
    assert_int_equal(allowed_next(lane), allowed);
    message_free(end_expect(rank, BODY(DECLARE_REPLY)));
    end_declare_table(rank, "items", 32, SHARDS);
    assert_int_equal(allowed_next(lane), allowed + START_BYTES);
}

/* --- steps --- */

static void a_lane_gets_a_step_when_it_asks(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled t = declare(rig, lane, "words");
    char waits[256];
    assert_int_equal(t.allowed, START_BYTES + STEP_BYTES);
    want(lane, &t, 0);
    assert_int_equal(allowed_next(lane), t.allowed + STEP_BYTES);
    t.allowed += STEP_BYTES;
    want(lane, &t, t.allowed + 2 * STEP_BYTES); /* one push needs more than a step */
    assert_int_equal(allowed_next(lane), t.allowed + 2 * STEP_BYTES);
    assert_int_equal(used(rig, "job-table-bytes", waits, sizeof waits), t.allowed + 2 * STEP_BYTES);
    assert_string_equal(waits, "");
}

/* Near the limit a lane gets a part of the rest, so that all lanes of the job can grow. */
static void no_lane_gets_the_whole_rest(void **state)
{
    struct rig *rig = *state;
    limits(rig, 40 * MIB, 80 * MIB);
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled t = declare(rig, lane, "words");
    for (uint64_t rest = 40 * MIB - START_BYTES; rest > 8 * MIB;) {
        rest -= rest / 4;
        assert_true(t.allowed >= 40 * MIB - rest - 8 && t.allowed <= 40 * MIB - rest + 8);
        want(lane, &t, 0);
        t.allowed = allowed_next(lane);
    }
}

static void a_report_that_is_wrong_changes_nothing(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled t = declare(rig, lane, "words"), unknown = t;
    struct end *other = rig_aggregator(rig, 1);
    unknown.job += 7;
    want(lane, &unknown, 1);
    uint32_t own = other->lanes[0];
    other->lanes[0] = lane->lanes[0]; /* a lane of another aggregator */
    want(other, &t, 1);
    other->lanes[0] = own;
    want(other, &t, 1); /* a lane without an allowance */
    end_expect_none(lane, BODY(PLACE_REQUEST));
    end_expect_none(other, BODY(PLACE_REQUEST));
    want(lane, &t, UINT64_MAX);
    expect_notice(t.rank, -EDQUOT, "--job-table-bytes-max");
}

/* --- a limit is reached --- */

static void a_push_beyond_the_limit_waits_and_is_named(void **state)
{
    struct rig *rig = *state;
    limits(rig, 4 * MIB, 8 * MIB);
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled t = declare(rig, lane, "words");
    char waits[256];
    want(lane, &t, 5 * MIB);
    expect_notice(t.rank, -EDQUOT, "may have 4 MiB");
    end_expect_none(lane, BODY(PLACE_REQUEST));
    assert_int_equal(used(rig, "job-table-bytes", waits, sizeof waits), t.allowed);
    assert_non_null(strstr(waits, "--job-table-bytes-max"));
    end_declare_one(t.rank, "w", 10); /* a declare does not end the wait */
    message_free(end_expect(t.rank, BODY(DECLARE_REPLY)));
    end_expect_none(t.rank, BODY(NOTICE));
    want(lane, &t, 0); /* the push was dropped */
    expect_notice(t.rank, 0, "");
}

static void the_end_of_another_job_makes_room(void **state)
{
    struct rig *rig = *state;
    limits(rig, 8 * MIB, 4 * MIB);
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled first = declare(rig, lane, "first"), second = declare(rig, lane, "second");
    want(lane, &second, 3 * MIB);
    expect_notice(second.rank, -EDQUOT, "--tenant-table-bytes-max");
    end_expect_none(lane, BODY(PLACE_REQUEST));
    end_leave(first.rank);
    assert_true(allowed_next(lane) >= 3 * MIB);
    expect_notice(second.rank, 0, "");
}

/* Declares a table of two workers on both lanes. Returns the sum of their allowances. */
static uint64_t declare_on_two(struct rig *rig, struct end *lanes, struct tabled *ret_t)
{
    *ret_t = declare_of(rig, lanes, "words", 2);
    return ret_t->allowed + allowed_next(lanes);
}

static void want_on(struct end *lanes, size_t at, const struct tabled *t, uint64_t needed)
{
    end_send(lanes, &MESSAGE(0, ROWS_WANTED, rows_wanted, .lane = lanes->lanes[at],
                             .job_id = t->job, .allowed_bytes = MIB, .needed_bytes = needed));
}

/* The first lane leaves room for the shards of the second one. */
static void the_allowances_of_all_lanes_are_within_the_limit(void **state)
{
    struct rig *rig = *state;
    limits(rig, MIB, 8 * MIB);
    struct end *lanes = rig_aggregator(rig, 2);
    struct tabled t;
    char waits[256];
    assert_int_equal(declare_on_two(rig, lanes, &t), MIB);
    assert_int_equal(used(rig, "job-table-bytes", waits, sizeof waits), MIB);
}

/* Lanes need different memory, but the job has one reason, which its worker receives once. */
static void two_lanes_that_wait_have_one_reason(void **state)
{
    struct rig *rig = *state;
    limits(rig, 4 * MIB, 8 * MIB);
    struct end *lanes = rig_aggregator(rig, 2);
    struct tabled t;
    declare_on_two(rig, lanes, &t);
    want_on(lanes, 0, &t, 5 * MIB);
    expect_notice(t.rank, -EDQUOT, "may have 4 MiB");
    want_on(lanes, 1, &t, 6 * MIB);
    end_expect_none(t.rank, BODY(NOTICE));
    want_on(lanes, 0, &t, 5 * MIB);
    end_expect_none(t.rank, BODY(NOTICE));
}

/* --- restart --- */

/* Connects the lane again. `t->allowed`: the allowance that the lane has. */
static struct end *rejoin(struct rig *rig, const struct end *old, const struct tabled *t)
{
    uint32_t numbers[SHARDS], epochs[SHARDS];
    for (uint32_t i = 0; i < SHARDS; i++) {
        numbers[i] = i;
        epochs[i] = 1;
    }
    const WIRE(TableHeld) held =
        MESSAGE_PART(TableHeld, table_held, .job_id = t->job, .table = t->table,
                     .lane = old->lanes[0], .shards = numbers, .n_shards = SHARDS, .epochs = epochs,
                     .n_epochs = SHARDS, .allowed_bytes = t->allowed);
    struct end *lane = rig_rejoin_with_table(rig, old, &held);
    rig_settle(rig);
    return lane;
}

static void allowances_are_known_again_after_a_restart(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled t = declare(rig, lane, "words");
    char waits[256];
    struct end old = *lane; /* the crash clears the rig's ends */
    rig_crash(rig);
    rig_start(rig);
    assert_int_equal(used(rig, "job-table-bytes", waits, sizeof waits), 0);
    lane = rejoin(rig, &old, &t);
    assert_int_equal(used(rig, "job-table-bytes", waits, sizeof waits), t.allowed);
    want(lane, &t, 0);
    assert_int_equal(allowed_next(lane), t.allowed + STEP_BYTES);
}

/* The last step before the limit is lost with the connection of the lane. */
static void an_allowance_that_a_lane_did_not_receive_is_sent_again(void **state)
{
    struct rig *rig = *state;
    limits(rig, 4 * MIB, 8 * MIB);
    struct end *lane = rig_aggregator(rig, 1);
    struct tabled t = declare(rig, lane, "words");
    char waits[256];
    want(lane, &t, 4 * MIB);
    assert_int_equal(allowed_next(lane), 4 * MIB);
    struct end old = *lane;
    end_close(lane);
    lane = rejoin(rig, &old, &t);
    want(lane, &t, 4 * MIB);
    assert_int_equal(allowed_next(lane), 4 * MIB);
    assert_int_equal(used(rig, "job-table-bytes", waits, sizeof waits), 4 * MIB);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_table_that_can_not_fit_is_refused_at_its_declare),
        CASE(the_jobs_of_a_tenant_share_its_table_memory),
        CASE(shards_that_are_sent_again_get_no_more),
        CASE(a_lane_gets_a_step_when_it_asks),
        CASE(no_lane_gets_the_whole_rest),
        CASE(a_report_that_is_wrong_changes_nothing),
        CASE(a_push_beyond_the_limit_waits_and_is_named),
        CASE(the_end_of_another_job_makes_room),
        CASE(the_allowances_of_all_lanes_are_within_the_limit),
        CASE(two_lanes_that_wait_have_one_reason),
        CASE(allowances_are_known_again_after_a_restart),
        CASE(an_allowance_that_a_lane_did_not_receive_is_sent_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
