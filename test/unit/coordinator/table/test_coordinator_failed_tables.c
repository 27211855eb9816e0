/* Tests a table that a lane has refused. The table stays failed after a new declare. The failed
 * table delays neither a drain nor the end of an aggregator. */
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <string.h>

#define SHARDS 8u

/* Joins a job of one rank on the host of the rig's aggregators. */
static struct end *join_alone(struct rig *rig)
{
    WIRE(JoinRequest) join;
    envelope request;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "words", 0, 1);
    join.node = "node7";
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    return e;
}

static void refused(struct end *e, int code, const char *text)
{
    envelope *reply = end_expect(e, BODY(FAILURE));
    assert_failed_so(reply->failure->code, reply->failure->text, code, text);
    message_free(reply);
}

static void a_lane_that_refuses_fails_the_table_for_good(void **state)
{
    static const char text[] =
        "table 'users' of job words: lane 1 did not accept its shards: it does "
        "not want to; see the log of its aggregator";
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = join_alone(rig);
    lane->refuses = BODY(PLACE_REQUEST);
    lane->refusal = -ENOSPC;
    end_declare_table(zero, "users", 32, SHARDS);
    refused(zero, -ENOSPC, text);
    kept_log_expect(" did not accept shards of table ");
    end_declare_table(zero, "users", 32, SHARDS);
    refused(zero, -ENOSPC, text);
}

/* Fails the table of a job on the only lane. */
static void fail_table(struct end *lane, struct end *e)
{
    lane->refuses = BODY(PLACE_REQUEST);
    lane->refusal = -ENOSPC;
    end_declare_table(e, "users", 32, SHARDS);
    refused(e, -ENOSPC, " did not accept its shards");
    kept_log_expect(" did not accept shards of table ");
    lane->refuses = 0;
}

static void a_lane_with_a_failed_table_can_be_drained(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = join_alone(rig);
    fail_table(lane, zero);
    rig_aggregator(rig, 1);
    struct end *operator= rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    envelope *reply = end_ask(operator, & MESSAGE(0, DRAIN_LANES_REQUEST, drain_lanes_request,
                                                  .lane = lane->lanes[0]));
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    message_free(reply);
}

/* The aggregator ends at once, long before its deadline. */
static void an_aggregator_with_a_failed_table_ends_without_a_loss(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = join_alone(rig);
    fail_table(lane, zero);
    channel_send(lane->channel,
                 &MESSAGE(0, AGGREGATOR_ENDING, aggregator_ending, .left_ms = 3600000));
    envelope *drain = end_expect(lane, BODY(DRAIN_REQUEST));
    assert_string_equal(drain->drain_request->loses, "");
    message_free(drain);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_lane_that_refuses_fails_the_table_for_good),
        CASE(a_lane_with_a_failed_table_can_be_drained),
        CASE(an_aggregator_with_a_failed_table_ends_without_a_loss),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
