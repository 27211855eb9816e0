/* Tests the membership of elastic jobs (K40, K43 to K45): joins, leaves, losses and resizes in each
 * state, and refused or ignored requests. */
#include "test/unit/coordinator/members_case.h"

#include <errno.h>
#include <string.h>

static struct joining elastic(uint32_t rank)
{
    return (struct joining){.rank = rank, .workers = 2, .workers_max = 4};
}

static struct joining continues(uint32_t rank)
{
    return (struct joining){.rank = rank, .workers = 3, .continues = true};
}

static void resize_refused(struct end *e, uint32_t workers, int code, const char *text)
{
    WIRE(ResizeRequest) resize = GRADPOOL__WIRE__RESIZE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    resize.workers = workers;
    request.body_case = BODY(RESIZE_REQUEST);
    request.resize_request = &resize;
    end_ask_refused(e, &request, code, text);
}

static void expect_members(struct end *e, uint64_t ranks, uint32_t wanted)
{
    struct told told = members_told(e);
    assert_int_equal(told.ranks, ranks);
    assert_int_equal(told.wanted, wanted);
}

/* --- joining --- */

static void an_initial_worker_is_not_late(void **state)
{
    struct member zero = members_join(*state, elastic(0)), one = members_join(*state, elastic(1));
    assert_false(zero.is_late);
    assert_false(one.is_late);
    expect_members(zero.end, 3, 2);
    expect_members(one.end, 3, 2);
}

static void the_answer_to_a_join_has_the_members(void **state)
{
    envelope request;
    WIRE(JoinRequest) join;
    members_join(*state, continues(0));
    end_leave(members_join(*state, continues(1)).end);
    join_request(&request, &join, MEMBERS_JOB, 2, 3);
    join.continues = true;
    envelope *reply = end_ask(rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT), &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    const WIRE(Membership) *told = reply->join_reply->membership;
    assert_non_null(told);
    assert_int_equal(told->ranks.data[0], 5);
    assert_int_equal(told->workers, 3);
    assert_true(told->version > 0);
    message_free(reply);
}

static void an_initial_rank_that_has_not_joined_counts_as_present(void **state)
{
    struct member zero = members_join(*state, elastic(0));
    expect_members(zero.end, 3, 2);
}

static void ranks_beyond_the_wanted_workers_are_refused_until_a_resize(void **state)
{
    struct member zero = members_join(*state, elastic(0));
    struct joining two = {.rank = 2, .workers = 3, .workers_max = 4};
    members_join_refused(*state, two, -EPROTO, "was resized to 2 workers, without rank 2");
    members_resize(zero.end, 3);
    assert_true(members_join(*state, two).is_late);
    expect_members(zero.end, 7, 3);
}

/* Ranks that start after a resize use the same command with the old sizes, as README.md shows. */
static void new_ranks_of_a_resized_job_join_with_the_sizes_of_the_old_ranks(void **state)
{
    members_join_refused(*state, elastic(2), -EPROTO, "begins with 2 workers; start rank 2 after");
    struct member zero = members_join(*state, elastic(0));
    members_join_refused(*state, elastic(2), -EPROTO, "workers, without rank 2");
    members_join_refused(*state, elastic(4), -EINVAL, "rank 4 of 4 workers; expected 0 to 3");
    members_resize(zero.end, 3);
    assert_true(members_join(*state, elastic(2)).is_late);
    expect_members(zero.end, 7, 3);
}

static void another_maximum_or_another_word_about_losses_is_refused(void **state)
{
    members_join(*state, elastic(0));
    struct joining other = elastic(1);
    other.workers_max = 5;
    members_join_refused(*state, other, -EPROTO, "requested another workers_max (5)");
    other = elastic(1);
    other.continues = true;
    members_join_refused(*state, other, -EPROTO, "or on_worker_loss; give all ranks the same");
    other = (struct joining){.rank = 1, .workers = 2};
    members_join_refused(*state, other, -EPROTO, "workers_max");
}

static void a_rank_in_use_is_refused_to_a_second_process(void **state)
{
    members_join(*state, continues(0));
    members_join_refused(*state, continues(0), -EEXIST, "rank 0 of job resnet is taken");
}

/* In this case no member has declared a tensor, so a returned rank need not wait for the end of any
 * round. */
static void a_rank_that_has_left_may_return_as_a_late_worker(void **state)
{
    struct member zero = members_join(*state, continues(0)),
                  one = members_join(*state, continues(1));
    end_leave(one.end);
    expect_members(zero.end, 5, 3);
    assert_true(members_join(*state, continues(1)).is_late);
    expect_members(zero.end, 7, 3);
}

/* --- leaving, being lost --- */

static void a_job_ends_only_when_its_last_rank_leaves(void **state)
{
    struct member zero = members_join(*state, elastic(0)), one = members_join(*state, elastic(1));
    uint32_t before = members_told(zero.end).version;
    end_leave(one.end);
    assert_true(members_told(zero.end).version > before);
    end_expect_none(zero.end, BODY(JOB_FAILURE));
    end_leave(zero.end);
    assert_int_not_equal(members_join(*state, elastic(0)).job, zero.job);
}

static void a_worker_that_a_lane_has_lost_leaves_the_job(void **state)
{
    struct end *lane = rig_aggregator(*state, 1);
    struct member zero = members_join(*state, continues(0)),
                  one = members_join(*state, continues(1));
    members_lose(lane, lane->lanes[0], one.job, 1);
    envelope *why = end_expect(one.end, BODY(JOB_FAILURE));
    assert_non_null(strstr(why->job_failure->text, "has lost its connection to lane"));
    message_free(why);
    end_expect_closed(one.end);
    expect_members(zero.end, 5, 3);
    end_expect_none(zero.end, BODY(JOB_FAILURE));
    kept_log_expect("; its job continues without this rank");
}

static void a_living_worker_whose_connection_may_come_back_stays_a_member(void **state)
{
    struct end *lane = rig_aggregator(*state, 1);
    struct member zero = members_join(*state, continues(0)),
                  one = members_join(*state, continues(1));
    members_told(zero.end);
    members_break(lane, one.job, 1);
    members_break(lane, one.job, 1); /* an aggregator repeats this report after each join */
    end_expect_none(zero.end, BODY(MEMBERSHIP));
    end_expect_none(one.end, BODY(JOB_FAILURE));
    end_close(one.end);
    expect_members(zero.end, 5, 3);
}

static void a_lost_worker_fails_a_job_that_is_not_elastic(void **state)
{
    struct end *lane = rig_aggregator(*state, 1);
    struct member zero = members_join(*state, elastic(0)), one = members_join(*state, elastic(1));
    members_lose(lane, lane->lanes[0], one.job, 1);
    message_free(end_expect(zero.end, BODY(JOB_FAILURE)));
    message_free(end_expect(one.end, BODY(JOB_FAILURE)));
    members_join_refused(*state, elastic(1), -ESTALE, "has failed");
    resize_refused(zero.end, 1, -ECONNRESET, "has failed");
}

static void a_loss_report_counts_once_and_only_from_a_lane_of_the_job(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1), *other = rig_aggregator(rig, 1);
    struct member zero = members_join(rig, continues(0)), one = members_join(rig, continues(1));
    members_join(rig, continues(2));
    uint32_t before = members_told(zero.end).version;
    /* reports from a peer that is no aggregator have no effect */
    members_lose(zero.end, lane->lanes[0], one.job, 1);
    /* this lane belongs to another aggregator */
    members_lose(other, lane->lanes[0], one.job, 1);
    members_lose(lane, 4711, one.job, 1);                    /* this lane does not exist */
    members_lose(lane, lane->lanes[0], one.job + 1, 1);      /* this job does not exist */
    members_lose(lane, lane->lanes[0], one.job, 3);          /* the job has no such rank */
    members_lose(lane, lane->lanes[0], one.job, UINT32_MAX); /* no rank can have this number */
    end_expect_none(zero.end, BODY(MEMBERSHIP));
    members_lose(lane, lane->lanes[0], one.job, 1);
    members_lose(lane, lane->lanes[0], one.job, 1);
    members_lose(other, other->lanes[0], one.job, 1); /* another lane has lost the rank, too */
    assert_int_equal(members_told(zero.end).version, before + 1);
}

static void an_old_loss_report_does_not_apply_to_a_returned_rank(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct member zero = members_join(rig, continues(0)), one = members_join(rig, continues(1));
    end_leave(one.end);
    one = members_join(rig, continues(1));
    members_lose(lane, lane->lanes[0], one.job, 1);
    expect_members(zero.end, 7, 3);
    end_expect_none(one.end, BODY(JOB_FAILURE));
}

/* The connection stays open, as with a copy in a forked child. */
static void the_death_of_a_process_with_a_waiting_declare_changes_nothing_else(void **state)
{
    struct rig *rig = *state;
    struct joining how = continues(1);
    struct end *lane = rig_aggregator(rig, 1);
    struct member zero = members_join(rig, continues(0)), one = members_join(rig, continues(1));
    members_declared(zero.end, members_declare(zero.end, "w", NULL), NULL);
    members_declared(one.end, members_declare(one.end, "w", NULL), NULL);
    end_leave(one.end);
    rig_settle(rig);
    lane->answers = false; /* makes a late worker wait for the lane */
    how.pid = rig_spawn(rig);
    one = members_join(rig, how);
    members_declare(one.end, "w", NULL);
    end_expect_none(one.end, BODY(DECLARE_REPLY));
    rig_kill(rig, how.pid);
    end_expect_closed(one.end);
    members_told(zero.end);
}

static void a_disconnected_rank_stays_a_member_and_resumes_its_session(void **state)
{
    struct member zero = members_join(*state, continues(0)),
                  one = members_join(*state, continues(1));
    members_told(zero.end);
    end_close(one.end);
    end_expect_none(zero.end, BODY(MEMBERSHIP));
    members_resume(*state, &one, continues(1));
    expect_members(one.end, 7, 3);
}

static void a_removed_rank_cannot_resume_its_session(void **state)
{
    struct end *lane = rig_aggregator(*state, 1);
    struct member one = members_join(*state, continues(1));
    members_join(*state, continues(0));
    members_lose(lane, lane->lanes[0], one.job, 1);
    end_expect_closed(one.end);
    envelope request;
    WIRE(JoinRequest) join;
    join_request(&request, &join, MEMBERS_JOB, 1, 3);
    join.continues = true;
    join.session = one.session;
    join.job_id = one.job;
    struct end *e = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    end_ask_refused(e, &request, -ESTALE, "counts as lost");
}

/* --- declaring a known tensor --- */

static void expect_refused(struct end *e, uint64_t id, const char *text)
{
    envelope *reply = end_expect_reply(e, id);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_int_equal(reply->failure->code, -EINVAL);
    if (!strstr(reply->failure->text, text))
        fail_msg("%s", reply->failure->text);
    message_free(reply);
}

static void a_late_worker_with_another_tensor_is_refused_alone(void **state)
{
    struct rig *rig = *state;
    const struct terms other = {.quorum = QUORUM_STALE, .bound = 2};
    struct member workers[3];
    rig_aggregator(rig, 1);
    for (uint32_t rank = 0; rank < 3; rank++)
        workers[rank] = members_join(rig, continues(rank));
    for (uint32_t rank = 0; rank < 3; rank++)
        members_declared(workers[rank].end, members_declare(workers[rank].end, "w", NULL), NULL);
    end_leave(workers[2].end);
    struct end *late = members_join(rig, continues(2)).end;
    expect_refused(late, end_declare_one(late, "w", 200),
                   "late rank 2 declared f32[200]; expected f32[100], as ranks 0, 1 declared; "
                   "correct the declaration of the late rank; the other ranks train on");
    expect_refused(
        late, members_declare(late, "w", &other),
        "late rank 2 declared another quorum, rule or set of ranks; expected the quorum, rule "
        "and set of ranks, as ranks 0, 1 declared");
    for (uint32_t rank = 0; rank < 2; rank++) {
        end_expect_none(workers[rank].end, BODY(TENSOR_FAILURE));
        members_declared(workers[rank].end, members_declare(workers[rank].end, "w", NULL), NULL);
    }
}

static void initial_ranks_must_agree_on_a_tensor(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct member zero = members_join(rig, elastic(0)), one = members_join(rig, elastic(1));
    members_declared(zero.end, members_declare(zero.end, "w", NULL), NULL);
    expect_refused(one.end, end_declare_one(one.end, "w", 200),
                   "rank 1 declared f32[200]; all ranks must declare the same");
    message_free(end_expect(zero.end, BODY(TENSOR_FAILURE)));
}

/* --- resizing --- */

static void a_resize_is_checked_for_caller_and_size(void **state)
{
    struct member zero = members_join(*state, elastic(0));
    resize_refused(zero.end, 0, -EINVAL, "workers; expected 1 to 4, its workers_max");
    resize_refused(zero.end, 5, -EINVAL, "workers; expected 1 to 4, its workers_max");
    resize_refused(zero.end, UINT32_MAX, -EINVAL, "workers; expected 1 to 4, its workers_max");
    resize_refused(rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT), 2, -ENOTCONN,
                   "this connection has no job; join a job first");
    resize_refused(rig_join(*state, "rigid", 0, 2, NULL, NULL), 1, -EOPNOTSUPP,
                   "cannot change its 2 workers");
    expect_members(zero.end, 3, 2);
}

static void all_ranks_get_a_resize_as_a_request_only(void **state)
{
    struct member zero = members_join(*state, elastic(0)), one = members_join(*state, elastic(1));
    members_resize(zero.end, 1);
    expect_members(zero.end, 3, 1); /* rank 1 is a member until it leaves */
    expect_members(one.end, 3, 1);
    members_join_refused(*state, elastic(1), -EPROTO, "workers, without rank 1");
    end_leave(one.end);
    expect_members(zero.end, 1, 1);
}

static void a_smaller_size_ends_the_wait_for_missing_higher_ranks(void **state)
{
    struct member zero = members_join(*state, elastic(0));
    members_resize(zero.end, 1);
    expect_members(zero.end, 1, 1);
    members_resize(zero.end, 2);
    expect_members(zero.end, 1, 2);
    assert_true(members_join(*state, elastic(1)).is_late);
}

#define FOUR(number) \
    (struct joining) { .rank = (number), .workers = 4, .continues = true }

/* Three of four ranks join and declare. Rank `missing` does not. */
static void found_without(struct rig *rig, uint32_t missing, struct member *ret_members)
{
    uint64_t ids[4], ranks;
    rig_aggregator(rig, 1);
    for (uint32_t rank = 0; rank < 4; rank++)
        if (rank != missing)
            ret_members[rank] = members_join(rig, FOUR(rank));
    for (uint32_t rank = 0; rank < 4; rank++)
        if (rank != missing)
            ids[rank] = members_declare(ret_members[rank].end, "w", NULL);
    for (uint32_t rank = 0; rank < 4; rank++)
        if (rank != missing)
            members_declared(ret_members[rank].end, ids[rank], &ranks);
    assert_int_equal(ranks, 15); /* these four ranks wait for each other */
}

static void a_missing_rank_is_awaited_until_a_resize_to_the_current_size(void **state)
{
    struct rig *rig = *state;
    struct member m[4];
    uint64_t ranks;
    found_without(rig, 1, m);
    expect_members(m[0].end, 15, 4);
    members_resize(m[3].end, 3);
    expect_members(m[0].end, 15, 3);
    members_resize(m[3].end, 4);
    expect_members(m[0].end, 15, 4); /* a resized job starts like any other */
    members_resize(m[3].end, 4);
    expect_members(m[0].end, 13, 4);
    rig_settle(rig);
    assert_true(members_routed(m[0].end, 1, &ranks));
    assert_int_equal(ranks, 13);
    m[1] = members_join(rig, FOUR(1));
    assert_true(m[1].is_late);
    expect_members(m[0].end, 15, 4);
    members_declared(m[1].end, members_declare(m[1].end, "w", NULL), &ranks);
    assert_int_equal(ranks, 15);
}

static void a_restarted_coordinator_waits_for_rank_0_that_has_not_joined(void **state)
{
    struct rig *rig = *state;
    struct member m[4];
    found_without(rig, 0, m);
    members_resize(m[3].end, 4);
    expect_members(m[3].end, 14, 4);
    rig_crash(rig);
    rig_start(rig);
    members_resume(rig, &m[3], FOUR(3));
    expect_members(m[3].end, 14, 4);
}

static void a_repeated_resize_is_carried_out_each_time(void **state)
{
    struct member zero = members_join(*state, elastic(0));
    members_resize(zero.end, 4);
    uint32_t first = members_told(zero.end).version;
    members_resize(zero.end, 4);
    struct told again = members_told(zero.end);
    assert_int_equal(again.wanted, 4);
    assert_true(again.version > first);
}

/* --- restarts of the coordinator --- */

static void membership_outlives_the_coordinator(void **state)
{
    struct rig *rig = *state;
    struct member zero = members_join(rig, elastic(0)), one = members_join(rig, elastic(1));
    members_resize(zero.end, 3);
    end_leave(one.end);
    struct told before = members_told(zero.end);
    rig_crash(rig);
    rig_start(rig);
    members_resume(rig, &zero, elastic(0));
    struct told after = members_told(zero.end);
    assert_memory_equal(&before, &after, sizeof before);
    assert_true(members_join(rig, (struct joining){1, 3, 4, false}).is_late);
    assert_true(members_told(zero.end).version > before.version);
}

/* --- last rounds --- */

#define ROUND 7

/* A job of three ranks, which train "w" on one lane. */
struct scene {
    struct rig *rig;
    struct end *lane;
    struct shadow shadow;
    struct member workers[3];
    uint32_t tensor;
    /* message with the new ranks of the piece; the test stores it, and the lane has not answered it
     * yet */
    envelope *kept;
};

static void leave(struct scene *s, uint32_t rank, uint64_t round)
{
    uint32_t tensors[] = {s->tensor, s->tensor + 1000}; /* the job has no such tensor */
    uint64_t rounds[] = {round, round, round};
    WIRE(LeaveRequest) leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    leave.tensors = tensors;
    leave.n_tensors = 2;
    leave.committed = rounds;
    leave.n_committed = 3;
    request.body_case = BODY(LEAVE_REQUEST);
    request.leave_request = &leave;
    envelope *reply = end_ask(s->workers[rank].end, &request);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}

/* Rank 2 leaves after round ROUND of "w", and the lane receives the new ranks. */
static struct scene begin(struct rig *rig)
{
    struct scene s = {.rig = rig, .lane = rig_aggregator(rig, 1)};
    for (uint32_t rank = 0; rank < 3; rank++)
        s.workers[rank] = members_join(rig, continues(rank));
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct end *e = s.workers[rank].end;
        s.tensor = members_declared(e, members_declare(e, "w", NULL), NULL);
    }
    shadow_until(&s.shadow, s.lane, 1, 7);
    s.lane->ignores = BODY(RELEASE_REQUEST);
    leave(&s, 2, ROUND);
    envelope *release = end_expect(s.lane, BODY(RELEASE_REQUEST));
    s.lane->ignores = BODY(PLACE_REQUEST);
    shadow_do(&s.shadow, release);
    end_answer(s.lane, release);
    message_free(release);
    s.kept = end_expect(s.lane, BODY(PLACE_REQUEST));
    return s;
}

static void check_placed(struct scene *s, uint64_t round)
{
    const WIRE(PlaceRequest) *place = s->kept->place_request;
    assert_true(place->regroups);
    assert_int_equal(place->n_pieces, 1);
    assert_int_equal(place->pieces[0]->committed, round);
}

static void lanes_receive_the_last_round_of_a_rank_that_left(void **state)
{
    struct scene s = begin(*state);
    check_placed(&s, ROUND);
    message_free(s.kept);
}

static void a_restarted_coordinator_has_the_last_round(void **state)
{
    struct scene s = begin(*state);
    const struct end before = *s.lane;
    message_free(s.kept);
    rig_crash(s.rig);
    rig_start(s.rig);
    s.lane = shadow_rejoin(&s.shadow, s.rig, &before, s.workers[0].job);
    s.lane->ignores = BODY(PLACE_REQUEST);
    for (uint32_t rank = 0; rank < 2; rank++)
        members_resume(s.rig, &s.workers[rank], continues(rank));
    s.kept = end_expect(s.lane, BODY(PLACE_REQUEST));
    check_placed(&s, ROUND);
    message_free(s.kept);
}

static void a_smaller_round_of_the_next_rank_changes_nothing(void **state)
{
    struct scene s = begin(*state);
    shadow_do(&s.shadow, s.kept);
    end_answer(s.lane, s.kept);
    message_free(s.kept);
    rig_settle(s.rig);
    s.lane->ignores = BODY(PLACE_REQUEST);
    leave(&s, 1, ROUND - 1);
    s.kept = end_expect(s.lane, BODY(PLACE_REQUEST));
    check_placed(&s, ROUND);
    message_free(s.kept);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_initial_worker_is_not_late),
        CASE(the_answer_to_a_join_has_the_members),
        CASE(an_initial_rank_that_has_not_joined_counts_as_present),
        CASE(ranks_beyond_the_wanted_workers_are_refused_until_a_resize),
        CASE(new_ranks_of_a_resized_job_join_with_the_sizes_of_the_old_ranks),
        CASE(another_maximum_or_another_word_about_losses_is_refused),
        CASE(a_rank_in_use_is_refused_to_a_second_process),
        CASE(a_rank_that_has_left_may_return_as_a_late_worker),
        CASE(a_job_ends_only_when_its_last_rank_leaves),
        CASE(a_worker_that_a_lane_has_lost_leaves_the_job),
        CASE(a_living_worker_whose_connection_may_come_back_stays_a_member),
        CASE(a_lost_worker_fails_a_job_that_is_not_elastic),
        CASE(a_loss_report_counts_once_and_only_from_a_lane_of_the_job),
        CASE(an_old_loss_report_does_not_apply_to_a_returned_rank),
        CASE(a_disconnected_rank_stays_a_member_and_resumes_its_session),
        CASE(a_removed_rank_cannot_resume_its_session),
        CASE(a_late_worker_with_another_tensor_is_refused_alone),
        CASE(initial_ranks_must_agree_on_a_tensor),
        CASE(a_resize_is_checked_for_caller_and_size),
        CASE(all_ranks_get_a_resize_as_a_request_only),
        CASE(the_death_of_a_process_with_a_waiting_declare_changes_nothing_else),
        CASE(a_smaller_size_ends_the_wait_for_missing_higher_ranks),
        CASE(a_missing_rank_is_awaited_until_a_resize_to_the_current_size),
        CASE(a_restarted_coordinator_waits_for_rank_0_that_has_not_joined),
        CASE(a_repeated_resize_is_carried_out_each_time),
        CASE(membership_outlives_the_coordinator),
        CASE(lanes_receive_the_last_round_of_a_rank_that_left),
        CASE(a_restarted_coordinator_has_the_last_round),
        CASE(a_smaller_round_of_the_next_rank_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
