/* Tests which ranks of an elastic job the coordinator reports as gone to lanes with tables of the
 * job: all ranks that have left or were lost, even if they were never connected to the lane. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/wire/ranks.h"
#include "svc/wire/table/table_terms.h"
#include "svc/wire/terms.h"

#include <errno.h>
#include <string.h>

#define WORKERS 3

static struct end *join(struct rig *rig, uint32_t rank)
{
    WIRE(JoinRequest) join;
    envelope request;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "words", rank, WORKERS);
    join.node = "node7";
    join.continues = true;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    return e;
}

static void declare(struct end *e)
{
    WIRE(TableSpec)
    spec = MESSAGE_PART(TableSpec, table_spec, .name = "users", .dim = 4, .dtype = 1, .rule = 1,
                        .consistency = TABLE_TERMS_ASP);
    WIRE(TableSpec) * specs[] = {&spec};
    end_send(e, &MESSAGE(0, DECLARE_REQUEST, declare_request, .tables = specs, .n_tables = 1));
    message_free(end_expect(e, BODY(DECLARE_REPLY)));
}

/* Expects a message to the lane that names only this rank as gone. */
static void told_of(struct end *lane, uint32_t rank)
{
    uint64_t gone[TERMS_RANK_WORDS];
    envelope *release = end_expect(lane, BODY(RELEASE_REQUEST));
    assert_int_equal(release->release_request->n_pieces, 0);
    assert_int_equal(release->release_request->gone.len, sizeof gone);
    memcpy(gone, release->release_request->gone.data, sizeof gone);
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_int_equal(ranks_have(gone, i), i == rank);
    message_free(release);
}

static void a_lane_is_told_of_a_rank_that_leaves(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = join(rig, 0), *two = join(rig, 2);
    join(rig, 1);
    declare(zero);
    declare(two);
    end_leave(two);
    told_of(lane, 2);
}

static void a_lane_with_a_new_table_is_told_of_earlier_ranks(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = join(rig, 0), *one = join(rig, 1);
    join(rig, 2);
    end_leave(one);
    end_expect_none(lane, BODY(RELEASE_REQUEST));
    declare(zero);
    told_of(lane, 1);
}

static void a_lane_that_refuses_the_list_is_logged(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = join(rig, 0), *one = join(rig, 1);
    join(rig, 2);
    declare(zero);
    lane->refuses = BODY(RELEASE_REQUEST);
    lane->refusal = -ENOBUFS;
    end_leave(one);
    told_of(lane, 1);
    end_declare_one(zero, "w", 100);
    message_free(end_expect(zero, BODY(DECLARE_REPLY)));
    kept_log_expect(" was not informed of the ranks that are gone: ");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_lane_is_told_of_a_rank_that_leaves),
        CASE(a_lane_with_a_new_table_is_told_of_earlier_ranks),
        CASE(a_lane_that_refuses_the_list_is_logged),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
