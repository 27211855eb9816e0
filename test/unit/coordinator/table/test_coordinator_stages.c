/* Tests borders between stages: all ranks request the next stage, then lanes receive the members of
 * the stage, then the ranks receive their answers. Also tests a crash of the coordinator at each
 * point of a border. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/coordinator/stage/choose.h"
#include "svc/wire/ranks.h"

#include <errno.h>
#include <string.h>

#define NODE "node7" /* the host of the rig's aggregators */
#define WORKERS 3
#define LONG_MS 60000

struct member {
    struct end *end;
    uint64_t session;
    uint32_t job;
};

static struct member members[WORKERS];

static void join_all(struct rig *rig)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct member *m = &members[rank];
        WIRE(JoinRequest) join;
        envelope request;
        join_request(&request, &join, "words", rank, WORKERS);
        join.node = NODE;
        join.session = m->session;
        join.job_id = m->job;
        m->end = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
        envelope *reply = end_ask(m->end, &request);
        assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
        m->session = reply->join_reply->session;
        m->job = reply->join_reply->job_id;
        message_free(reply);
    }
}

static struct end *setup(struct rig *rig)
{
    memset(members, 0, sizeof members);
    struct end *lane = rig_aggregator(rig, 1);
    join_all(rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        end_declare_table(members[rank].end, "users", 4, 8);
        message_free(end_expect(members[rank].end, BODY(DECLARE_REPLY)));
    }
    return lane;
}

static void ask_in(uint32_t rank, uint64_t number, const char *name, uint32_t workers,
                   uint32_t timeout_ms)
{
    WIRE(StageSpec)
    spec = MESSAGE_PART(StageSpec, stage_spec, .name = (char *)name, .workers = workers);
    end_send(members[rank].end,
             &MESSAGE(0, STAGE_REQUEST, stage_request, .number = number, .spec = &spec,
                      .timeout_ms = timeout_ms, .visits = (uint32_t)number));
}

static void ask(uint32_t rank, uint64_t number, const char *name, uint32_t workers)
{
    ask_in(rank, number, name, workers, LONG_MS);
}

static void end_part_at(uint32_t rank, uint64_t number, uint64_t ended_clock, uint64_t cursor)
{
    end_send(members[rank].end,
             &MESSAGE(0, STAGE_REQUEST, stage_request, .number = number, .ends = true,
                      .timeout_ms = LONG_MS, .ended_clock = ended_clock, .is_done = true,
                      .cursor = cursor));
}

static void end_part(uint32_t rank, uint64_t number, uint64_t ended_clock)
{
    end_part_at(rank, number, ended_clock, 0);
}

/* Expects that the rank gets the stage with these members and this clock. */
static void takes(uint32_t rank, uint64_t number, uint64_t mask, uint64_t first_clock)
{
    uint64_t ranks[RANKS_WORDS];
    envelope *reply = end_expect(members[rank].end, BODY(STAGE_REPLY));
    const WIRE(StageReply) *stage = reply->stage_reply;
    assert_int_equal(stage->number, number);
    assert_int_equal(stage->first_clock, first_clock);
    assert_int_equal(stage->cursor, 0);
    assert_int_equal(stage->ranks.len, sizeof ranks);
    memcpy(ranks, stage->ranks.data, sizeof ranks);
    assert_int_equal(ranks[0], mask);
    message_free(reply);
}

static void all_get(uint64_t number, uint64_t mask, uint64_t first_clock)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        takes(rank, number, mask, first_clock);
}

static void none_gets_any(void)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        end_expect_none(members[rank].end, BODY(STAGE_REPLY));
}

static void lane_is_told(struct end *lane, uint64_t number, uint64_t mask, uint64_t first_clock)
{
    uint64_t ranks[RANKS_WORDS];
    envelope *request = end_expect(lane, BODY(LANE_STAGE_REQUEST));
    const WIRE(LaneStageRequest) *stage = request->lane_stage_request;
    assert_int_equal(stage->number, number);
    assert_int_equal(stage->first_clock, first_clock);
    memcpy(ranks, stage->ranks.data, sizeof ranks);
    assert_int_equal(ranks[0], mask);
    message_free(request);
}

static void refused(uint32_t rank, int code, const char *text)
{
    envelope *reply = end_expect(members[rank].end, BODY(FAILURE));
    assert_failed_so(reply->failure->code, reply->failure->text, code, text);
    message_free(reply);
}

/* Begins stage 1 with two members. */
static void begin_first(struct end *lane)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ask(rank, 0, "pair", 2);
    lane_is_told(lane, 1, 0x3, 1);
    all_get(1, 0x3, 1);
}

static void a_stage_begins_when_all_ranks_ask(void **state)
{
    struct end *lane = setup(*state);
    ask(0, 0, "pair", 2);
    ask(2, 0, "pair", 2);
    none_gets_any();
    end_expect_none(lane, BODY(LANE_STAGE_REQUEST));
    ask(1, 0, "pair", 2);
    lane_is_told(lane, 1, 0x3, 1);
    all_get(1, 0x3, 1);
}

static void ranks_continue_after_the_lanes_have_the_members(void **state)
{
    struct end *lane = setup(*state);
    lane->refuses = BODY(LANE_STAGE_REQUEST);
    lane->refusal = -EAGAIN;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ask(rank, 0, "pair", 2);
    lane_is_told(lane, 1, 0x3, 1);
    lane_is_told(lane, 1, 0x3, 1); /* repeated */
    none_gets_any();
    lane->refuses = 0;
    all_get(1, 0x3, 1);
}

static void a_stage_ends_when_its_members_have_ended(void **state)
{
    begin_first(setup(*state));
    end_part(2, 1, 0); /* idle */
    end_part(1, 1, 4);
    none_gets_any();
    end_part(0, 1, 6);
    all_get(1, 0x3, 7); /* the next clock is later than the clocks of all members */
}

static void a_travelling_stage_begins_above_all_clocks(void **state)
{
    struct end *lane = setup(*state);
    begin_first(lane);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        end_part(rank, 1, 3 + rank);
    all_get(1, 0x3, 5);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ask(rank, 1, "one", 1);
    lane_is_told(lane, 2, 0x1, 5);
    all_get(2, 0x1, 5);
}

static void different_stages_fail_the_job(void **state)
{
    static const char text[] =
        "rank 0 asks for stage 'pair' with 2 workers, workers_min 0, workers_max 0, stay, bsp, "
        "rank 1 for 'trio' with 3 workers, workers_min 0, workers_max 0, stay, bsp; run the same "
        "stages on all ranks";
    setup(*state);
    ask(0, 0, "pair", 2);
    end_expect_none(members[0].end, BODY(STAGE_REPLY));
    ask(1, 0, "trio", 3);
    for (uint32_t rank = 0; rank < 2; rank++) {
        end_expect_job_failure(members[rank].end, -EINVAL, text);
        refused(rank, -ECONNRESET, text);
    }
    kept_log_expect(text);
    end_expect_job_failure(members[2].end, -EINVAL, text);
    ask(2, 0, "pair", 2);
    refused(2, -ECONNRESET, text);
}

static void a_deadline_names_the_late_ranks(void **state)
{
    struct end *lane = setup(*state);
    ask_in(0, 0, "pair", 2, 1);
    refused(0, -ETIMEDOUT,
            "border before the next stage: ranks 1, 2 are not in gp_stage_end() yet");
    begin_first(lane);
}

static void a_rank_that_has_left_ends_the_wait(void **state)
{
    setup(*state);
    ask(0, 0, "pair", 2);
    rig_settle(members[0].end->rig); /* the coordinator has the request */
    end_leave(members[1].end);
    refused(0, -EPIPE,
            "rank 1 has left job words before a stage, and the next border between stages needs "
            "all ranks; call gp_job_leave() after the last stage");
    ask(2, 0, "pair", 2);
    refused(2, -EPIPE, "rank 1 has left job words");
}

static void a_rank_that_leaves_inside_a_stage_ends_it_for_all(void **state)
{
    begin_first(setup(*state));
    end_part(0, 1, 0);
    rig_settle(members[0].end->rig);
    end_leave(members[1].end);
    refused(0, -EPIPE, "rank 1 has left job words inside stage 'pair', and the next border");
}

static void a_rank_of_another_stage_is_refused(void **state)
{
    begin_first(setup(*state));
    ask(0, 7, "pair", 2);
    refused(0, -EINVAL, "rank 0 of job words is in stage 7, the job in stage 1");
    end_part(1, 0, 0);
    refused(1, -EINVAL, "rank 1 of job words is in stage 0, the job in stage 1");
}

/* A member that receives its answer late must not skip units of work, and must not begin in a later
 * clock. */
static void a_repeated_answer_is_the_same_after_another_member_has_ended(void **state)
{
    begin_first(setup(*state));
    end_part_at(0, 1, 6, 40);
    none_gets_any();
    ask(1, 0, "pair", 2);
    takes(1, 1, 0x3, 1);
    end_part_at(1, 1, 4, 40);
    takes(0, 1, 0x3, 7);
    takes(1, 1, 0x3, 7);
}

/* A call has timed out, and is then repeated for another stage. */
static void a_request_that_is_repeated_for_another_stage_is_refused(void **state)
{
    static const char text[] = "rank 1 has asked for stage 'pair' with 2 workers, workers_min 0, "
                               "workers_max 0, stay, bsp, and now asks for 'trio' with 3 workers";
    struct end *lane = setup(*state);
    ask_in(1, 0, "pair", 2, 1);
    refused(1, -ETIMEDOUT, "border before the next stage");
    ask(1, 0, "trio", 3);
    refused(1, -EINVAL, text);
    begin_first(lane);
    ask(1, 0, "trio", 3);
    refused(1, -EINVAL, text);
    ask(1, 0, "pair", 2);
    takes(1, 1, 0x3, 1);
}

/* --- crashes --- */

static struct end *crash(struct rig *rig, struct end *lane)
{
    static struct end before;
    before = *lane;
    rig_crash(rig);
    rig_start(rig);
    lane = rig_rejoin(rig, &before, 0, NULL);
    join_all(rig);
    return lane;
}

/* Two ranks have received the stage. The answer to the third rank was lost. */
static void a_lost_answer_is_given_again_after_a_restart(void **state)
{
    struct end *lane = setup(*state);
    begin_first(lane);
    lane = crash(*state, lane);
    ask(2, 0, "pair", 2);
    lane_is_told(lane, 1, 0x3, 1);
    takes(2, 1, 0x3, 1);
    end_part(0, 1, 2);
    end_part(1, 1, 2);
    takes(0, 1, 0x3, 3);
    takes(1, 1, 0x3, 3);
}

/* A rank without its answer repeats its request. Another rank has received the stage, which shows
 * that the lanes have received it before. The coordinator nevertheless sends the next stage to the
 * lanes. */
static void a_rank_with_the_stage_ends_the_wait_for_lanes_after_a_restart(void **state)
{
    struct end *lane = setup(*state);
    begin_first(lane);
    lane = crash(*state, lane);
    lane->ignores = BODY(LANE_STAGE_REQUEST);
    ask(1, 0, "pair", 2);
    lane_is_told(lane, 1, 0x3, 1);
    end_part(0, 1, 2);
    takes(1, 1, 0x3, 1);
    end_part(1, 1, 2);
    takes(0, 1, 0x3, 3);
    takes(1, 1, 0x3, 3);
    lane->ignores = 0;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ask(rank, 1, "one", 1);
    lane_is_told(lane, 2, 0x1, 3);
    all_get(2, 0x1, 3);
}

/* No rank has received the stage: it was stored, but the lanes had not answered. */
static void a_stored_stage_begins_after_a_restart(void **state)
{
    struct end *lane = setup(*state);
    lane->ignores = BODY(LANE_STAGE_REQUEST);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ask(rank, 0, "pair", 2);
    lane_is_told(lane, 1, 0x3, 1);
    none_gets_any();
    lane = crash(*state, lane);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ask(rank, 0, "pair", 2);
    lane_is_told(lane, 1, 0x3, 1);
    all_get(1, 0x3, 1);
}

/* All members had ended stage 1, and two ranks had requested the next stage. */
static void a_border_continues_after_a_restart(void **state)
{
    struct end *lane = setup(*state);
    begin_first(lane);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        end_part(rank, 1, 0);
    all_get(1, 0x3, 1);
    ask(0, 1, "one", 1);
    ask(1, 1, "one", 1);
    none_gets_any();
    lane = crash(*state, lane);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ask(rank, 1, "one", 1);
    lane_is_told(lane, 2, 0x1, 1);
    all_get(2, 0x1, 1);
}

/* --- choice --- */

static void the_least_visited_ranks_travel(void **state)
{
    const uint32_t visits[] = {3, 1, 2, 1};
    uint64_t ranks[RANKS_WORDS] = {0}, stay[RANKS_WORDS] = {0}, all[RANKS_WORDS] = {0};
    stage_choose(STAGE_TRAVEL, visits, 4, 3, ranks);
    assert_int_equal(ranks[0], 0xe);
    stage_choose(STAGE_STAY, visits, 4, 3, stay);
    assert_int_equal(stay[0], 0x7);
    stage_choose(STAGE_TRAVEL, visits, 4, 9, all);
    assert_int_equal(all[0], 0xf);
}

static void a_stage_is_as_wide_as_the_job_permits(void **state)
{
    struct stage_terms terms = {.name = "a", .workers = 8};
    uint32_t least, most;
    assert_int_equal(stage_bounds(&terms, 3, &least, &most), 0);
    assert_int_equal(least, 3);
    assert_int_equal(most, 3);
    terms.workers_min = 4;
    assert_int_equal(stage_bounds(&terms, 3, &least, &most), -ENOSPC);
    terms = (struct stage_terms){.name = "a", .workers_min = 2, .workers_max = 5};
    assert_int_equal(stage_bounds(&terms, 4, &least, &most), 0);
    assert_int_equal(least, 2);
    assert_int_equal(most, 4);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_stage_begins_when_all_ranks_ask),
        CASE(ranks_continue_after_the_lanes_have_the_members),
        CASE(a_stage_ends_when_its_members_have_ended),
        CASE(a_travelling_stage_begins_above_all_clocks),
        CASE(different_stages_fail_the_job),
        CASE(a_deadline_names_the_late_ranks),
        CASE(a_rank_that_has_left_ends_the_wait),
        CASE(a_rank_that_leaves_inside_a_stage_ends_it_for_all),
        CASE(a_rank_of_another_stage_is_refused),
        CASE(a_repeated_answer_is_the_same_after_another_member_has_ended),
        CASE(a_request_that_is_repeated_for_another_stage_is_refused),
        CASE(a_lost_answer_is_given_again_after_a_restart),
        CASE(a_rank_with_the_stage_ends_the_wait_for_lanes_after_a_restart),
        CASE(a_stored_stage_begins_after_a_restart),
        CASE(a_border_continues_after_a_restart),
        cmocka_unit_test(the_least_visited_ranks_travel),
        cmocka_unit_test(a_stage_is_as_wide_as_the_job_permits),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
