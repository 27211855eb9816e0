/* Tests changes of a job's membership (K41, K42), message by message. At each step, other events
 * happen. At the end the lane serves the remaining ranks, and these ranks know the epoch. */
#include "svc/base/clock.h"
#include "test/unit/coordinator/members_case.h"

#include <errno.h>
#include <string.h>

#define WORKERS 3
#define PIECE 1 /* first piece of "w" */
#define ALL 7u
#define LEFT 3u /* bit set of ranks 0 and 1 */

static struct joining how(uint32_t rank)
{
    return (struct joining){.rank = rank, .workers = WORKERS, .continues = true};
}

struct scene {
    struct rig *rig;
    struct end *lane;
    struct shadow shadow;
    struct member workers[WORKERS];
    uint32_t tensor;
    struct {
        uint32_t epoch;
        uint64_t ranks;
    } routed[WORKERS]; /* values of the last route sent to each worker */
    envelope *kept;    /* message that the lane has not answered, stored by the test */
};

/* Starts a job of three workers, which train "w" on one lane. */
static struct scene begin(struct rig *rig)
{
    struct scene s = {.rig = rig, .lane = rig_aggregator(rig, 1)};
    uint64_t ranks;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        s.workers[rank] = members_join(rig, how(rank));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct end *e = s.workers[rank].end;
        s.tensor = members_declared(e, members_declare(e, "w", NULL), &ranks);
        assert_int_equal(ranks, ALL);
        s.routed[rank].epoch = 1;
        s.routed[rank].ranks = ALL;
    }
    shadow_until(&s.shadow, s.lane, PIECE, ALL);
    return s;
}

/* --- the steps of a regrouping --- */

enum step { RELEASING, RELEASED_UNHEARD, SWITCHED, REGROUPED_UNHEARD, STEPS };

static bool has_switched(enum step step) { return step >= SWITCHED; }

/* Rank 2 leaves. The lane has not answered, or the coordinator has not read the answer. */
static void stop_at(struct scene *s, enum step step)
{
    int body = has_switched(step) ? BODY(PLACE_REQUEST) : BODY(RELEASE_REQUEST);
    s->lane->ignores = body;
    end_leave(s->workers[2].end);
    s->kept = end_expect(s->lane, body);
    shadow_take(&s->shadow, s->lane);
    s->lane->ignores = 0;
    if (step == RELEASED_UNHEARD || step == REGROUPED_UNHEARD)
        shadow_do(&s->shadow, s->kept);
}

static void forget_kept(struct scene *s)
{
    message_free(s->kept);
    s->kept = NULL;
}

/* Sends the lane's answer. */
static void go_on(struct scene *s)
{
    shadow_do(&s->shadow, s->kept);
    end_answer(s->lane, s->kept);
    forget_kept(s);
}

static void expect_routed(struct scene *s, uint32_t rank, uint64_t ranks)
{
    uint64_t told = 0;
    uint32_t epoch = members_routed(s->workers[rank].end, s->tensor, &told);
    if (epoch > 0) {
        s->routed[rank].epoch = epoch;
        s->routed[rank].ranks = told;
    }
    assert_int_equal(s->routed[rank].epoch, shadow_piece(&s->shadow, PIECE)->epoch);
    assert_int_equal(s->routed[rank].ranks, ranks);
}

/* Checks that the piece is served for these ranks, and that no other message follows. */
static void expect_served(struct scene *s, uint64_t ranks)
{
    shadow_until(&s->shadow, s->lane, PIECE, ranks);
    rig_settle(s->rig);
    shadow_until(&s->shadow, s->lane, PIECE, ranks);
    for (uint32_t rank = 0; rank < 2; rank++)
        if (ranks >> rank & 1)
            expect_routed(s, rank, ranks);
}

typedef void (*scene_fn)(struct scene *s, enum step step);

static void at_each_step(struct rig *rig, scene_fn happens)
{
    for (enum step step = 0; step < STEPS; step++) {
        struct scene s = begin(rig);
        stop_at(&s, step);
        happens(&s, step);
        rig_start_afresh(rig);
    }
}

/* Runs only the two steps at which the lane has not received the coordinator's message yet. */
static void at_both_steps(struct rig *rig, scene_fn happens)
{
    for (enum step step = RELEASING; step < STEPS; step += SWITCHED - RELEASING) {
        struct scene s = begin(rig);
        stop_at(&s, step);
        happens(&s, step);
        rig_start_afresh(rig);
    }
}

/* --- a regrouping without other events --- */

static void lanes_release_then_one_switch_then_lanes_then_workers(void **state)
{
    struct scene s = begin(*state);
    s.lane->answers = false;
    end_leave(s.workers[2].end);
    envelope *release = end_expect(s.lane, BODY(RELEASE_REQUEST));
    assert_int_equal(release->release_request->n_pieces, 1);
    assert_int_equal(release->release_request->pieces[0], PIECE);
    assert_int_equal(release->release_request->gone.data[0], 4);
    assert_false(release->release_request->behind);
    end_expect_none(s.lane, BODY(PLACE_REQUEST)); /* a round is still open */
    end_answer(s.lane, release);
    envelope *place = end_expect(s.lane, BODY(PLACE_REQUEST));
    assert_true(place->place_request->regroups);
    assert_true(place->place_request->recovering);
    assert_true(place->place_request->is_elastic);
    assert_int_equal(place->place_request->epoch, 2);
    /* the coordinator stores the route before it sends it (K3) */
    end_expect_none(s.workers[0].end, BODY(ROUTE_CHANGE));
    shadow_do(&s.shadow, release);
    shadow_do(&s.shadow, place);
    end_answer(s.lane, place);
    s.lane->answers = true;
    expect_served(&s, LEFT);
    assert_int_equal(s.shadow.thaws, 0);
    message_free(release);
    message_free(place);
}

static void all_tensors_change_in_one_message(void **state)
{
    struct scene s = begin(*state);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct end *e = s.workers[rank].end;
        members_declared(e, members_declare(e, "v", NULL), NULL);
    }
    end_leave(s.workers[2].end);
    envelope *change = end_expect(s.workers[0].end, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->n_tensors, 2);
    message_free(change);
}

static void a_late_worker_takes_part_after_its_declaration(void **state)
{
    struct scene s = begin(*state);
    uint64_t ranks;
    end_leave(s.workers[2].end);
    expect_served(&s, LEFT);
    struct member late = members_join(s.rig, how(2));
    assert_true(late.is_late);
    rig_settle(s.rig);
    expect_served(&s, LEFT); /* ranks do not wait for a rank without a declaration */
    uint64_t id = members_declare(late.end, "w", NULL);
    expect_served(&s, ALL);
    members_declared(late.end, id, &ranks);
    assert_int_equal(ranks, ALL);
}

static void a_tensor_declared_after_a_late_join_has_the_late_worker_at_once(void **state)
{
    struct scene s = begin(*state);
    uint64_t ranks;
    end_leave(s.workers[2].end);
    expect_served(&s, LEFT);
    struct member late = members_join(s.rig, how(2));
    members_declared(s.workers[0].end, members_declare(s.workers[0].end, "new", NULL), &ranks);
    assert_int_equal(ranks, ALL);
    members_declared(late.end, members_declare(late.end, "new", NULL), &ranks);
    assert_int_equal(ranks, ALL);
    expect_served(&s, LEFT);
}

static void a_tensor_of_other_ranks_is_left_unchanged(void **state)
{
    struct scene s = begin(*state);
    const struct terms pair = {.ranks = {LEFT}};
    uint64_t ranks;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct end *e = s.workers[rank].end;
        members_declared(e, members_declare(e, "pair", &pair), &ranks);
        assert_int_equal(ranks, LEFT);
    }
    shadow_until(&s.shadow, s.lane, PIECE + 1, LEFT);
    end_leave(s.workers[2].end);
    expect_served(&s, LEFT);
    assert_int_equal(shadow_piece(&s.shadow, PIECE + 1)->epoch, 1);
    assert_int_equal(s.shadow.gone, 4);
}

static void a_quorum_that_no_ranks_can_reach_any_more_fails_its_tensor_alone(void **state)
{
    struct scene s = begin(*state);
    const struct terms three = {.quorum = QUORUM_FIRST, .bound = WORKERS};
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct end *e = s.workers[rank].end;
        members_declared(e, members_declare(e, "three", &three), NULL);
    }
    end_leave(s.workers[2].end);
    envelope *failure = end_expect(s.workers[0].end, BODY(TENSOR_FAILURE));
    assert_int_equal(failure->tensor_failure->code, -EPIPE);
    assert_non_null(strstr(failure->tensor_failure->text, "need 3 ranks, and 2 are left"));
    message_free(failure);
    expect_served(&s, LEFT);
}

/* --- another rank joins or leaves --- */

static void another_leaves(struct scene *s, enum step step)
{
    end_leave(s->workers[1].end);
    go_on(s);
    expect_served(s, 1);
    assert_int_equal(s->shadow.regroupings, 2); /* both changes were made, one after the other */
    assert_int_equal(shadow_piece(&s->shadow, PIECE)->epoch, 3);
}

static void a_leave_during_a_regrouping_causes_a_second_one(void **state)
{
    at_both_steps(*state, another_leaves);
}

static void another_is_lost(struct scene *s, enum step step)
{
    members_lose(s->lane, s->lane->lanes[0], s->workers[1].job, 1);
    end_expect_closed(s->workers[1].end);
    go_on(s);
    expect_served(s, 1);
}

static void a_loss_during_a_regrouping_causes_a_second_one(void **state)
{
    at_both_steps(*state, another_is_lost);
}

/* A round that waits for the lost rank would block the lane. */
static void a_releasing_lane_is_informed_at_once_of_lost_ranks(void **state)
{
    struct scene s = begin(*state);
    stop_at(&s, RELEASING);
    end_leave(s.workers[1].end);
    envelope *more = end_expect(s.lane, BODY(RELEASE_REQUEST));
    assert_int_equal(more->release_request->n_pieces, 0);
    assert_int_equal(more->release_request->gone.data[0], 1 << 1);
    message_free(more);
    go_on(&s);
    expect_served(&s, 1);
}

static void the_loss_is_told_again(struct scene *s, enum step step)
{
    members_lose(s->lane, s->lane->lanes[0], s->workers[2].job, 2);
    members_resize(s->workers[0].end, WORKERS); /* a resize keeps the set of ranks */
    go_on(s);
    expect_served(s, LEFT);
    assert_int_equal(s->shadow.regroupings, 1);
}

static void a_known_membership_has_no_effect(void **state)
{
    at_both_steps(*state, the_loss_is_told_again);
}

static void the_rank_returns(struct scene *s, enum step step)
{
    uint64_t id, ranks;
    struct end *e = members_ask(s->rig, how(2), &id);
    if (!has_switched(step)) /* lanes still use the former set (K43) */
        end_expect_none(e, BODY(JOIN_REPLY));
    go_on(s);
    struct member late = members_joined(e, id, 2);
    assert_true(late.is_late);
    id = members_declare(late.end, "w", NULL);
    expect_served(s, ALL);
    members_declared(late.end, id, &ranks);
    assert_int_equal(ranks, ALL);
}

static void a_rank_is_free_when_lanes_have_closed_its_former_connections(void **state)
{
    at_both_steps(*state, the_rank_returns);
}

static void all_leave(struct scene *s, enum step step)
{
    end_leave(s->workers[0].end);
    end_leave(s->workers[1].end);
    go_on(s);
    rig_settle(s->rig);
    shadow_take(&s->shadow, s->lane);
    assert_int_equal(s->shadow.count, 0);
    assert_int_not_equal(members_join(s->rig, how(0)).job, s->workers[0].job);
}

static void an_ended_job_leaves_the_regrouping(void **state) { at_both_steps(*state, all_leave); }

/* --- tensors are declared and undeclared --- */

static void another_is_declared(struct scene *s, enum step step)
{
    uint64_t ids[2], ranks;
    for (uint32_t rank = 0; rank < 2; rank++)
        ids[rank] = members_declare(s->workers[rank].end, "v", NULL);
    rig_settle(s->rig);
    go_on(s);
    for (uint32_t rank = 0; rank < 2; rank++) {
        members_declared(s->workers[rank].end, ids[rank], &ranks);
        assert_int_equal(ranks, LEFT);
    }
    expect_served(s, LEFT);
    shadow_until(&s->shadow, s->lane, PIECE + 1, LEFT);
}

static void a_tensor_declared_during_a_regrouping_has_the_remaining_ranks(void **state)
{
    at_both_steps(*state, another_is_declared);
}

static void the_tensor_is_undeclared(struct scene *s, enum step step)
{
    end_undeclare(s->workers[0].end, s->tensor);
    end_undeclare(s->workers[1].end, s->tensor);
    shadow_do(&s->shadow, s->kept); /* the lane handles the stored message before the drop */
    end_answer(s->lane, s->kept);
    forget_kept(s);
    rig_settle(s->rig);
    shadow_take(&s->shadow, s->lane);
    assert_int_equal(s->shadow.count, 0);
    members_declared(s->workers[0].end, members_declare(s->workers[0].end, "v", NULL), NULL);
}

static void a_tensor_undeclared_during_the_regrouping_is_removed(void **state)
{
    at_both_steps(*state, the_tensor_is_undeclared);
}

/* --- lanes --- */

static void refuse(struct scene *s)
{
    s->lane->refuses = (int)s->kept->body_case;
    end_answer(s->lane, s->kept);
    forget_kept(s);
    rig_settle(s->rig);
    s->lane->refuses = 0;
}

static void a_refusal_before_the_switch_thaws_and_is_tried_again(void **state)
{
    struct scene s = begin(*state);
    stop_at(&s, RELEASING);
    refuse(&s);
    shadow_take(&s.shadow, s.lane);
    assert_int_equal(s.shadow.thaws, 1);
    assert_int_equal(s.shadow.regroupings, 0);
    expect_served(&s, LEFT);
}

static void a_refusal_behind_the_switch_fails_the_job(void **state)
{
    struct scene s = begin(*state);
    stop_at(&s, SWITCHED);
    refuse(&s);
    envelope *failure = end_expect(s.workers[0].end, BODY(JOB_FAILURE));
    assert_non_null(strstr(failure->job_failure->text, "did not apply a change of workers"));
    message_free(failure);
}

static void the_lane_is_away(struct scene *s, enum step step)
{
    const struct end before = *s->lane;
    forget_kept(s);
    end_close(s->lane);
    rig_settle(s->rig);
    uint64_t told;
    if (!has_switched(step))
        assert_int_equal(members_routed(s->workers[0].end, s->tensor, &told), 0);
    s->lane = shadow_rejoin(&s->shadow, s->rig, &before, s->workers[0].job);
    expect_served(s, LEFT);
    assert_int_equal(s->shadow.regroupings, 1); /* the lane has kept the state of the piece */
}

/* The piece must not be placed again, because a new placement would lose its state. */
static void a_returned_lane_follows_the_change_with_its_pieces(void **state)
{
    at_each_step(*state, the_lane_is_away);
    kept_log_expect(" did not release its pieces: ");
}

static void the_lane_is_lost(struct scene *s, enum step step)
{
    struct end *next = rig_aggregator(s->rig, 1);
    forget_kept(s);
    end_say_goodbye(s->lane);
    s->lane = next;
    s->shadow = (struct shadow){0};
    expect_served(s, LEFT);
}

static void pieces_of_a_lane_that_is_lost_get_their_ranks_elsewhere(void **state)
{
    at_both_steps(*state, the_lane_is_lost);
}

static void a_disconnected_lane_delays_no_other_lane(void **state)
{
    struct rig *rig = *state;
    rig->options.policy = "round-robin";
    rig_start_afresh(rig);
    struct scene s = begin(rig);
    struct end *second = rig_aggregator(rig, 1);
    struct shadow shadow = {0};
    uint32_t tensor = 0;
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct end *e = s.workers[rank].end;
        tensor = members_declared(e, members_declare(e, "v", NULL), NULL);
    }
    shadow_until(&shadow, second, PIECE + 1, ALL);
    const struct end before = *second;
    second->ignores = BODY(PLACE_REQUEST);
    end_leave(s.workers[2].end);
    message_free(end_expect(second, BODY(PLACE_REQUEST)));
    shadow_take(&shadow, second);
    end_close(second);
    expect_served(&s, LEFT);
    second = shadow_rejoin(&shadow, rig, &before, s.workers[0].job);
    shadow_until(&shadow, second, PIECE + 1, LEFT);
    rig_settle(rig);
    uint64_t told;
    assert_int_equal(members_routed(s.workers[0].end, tensor, &told), 2);
    assert_int_equal(told, LEFT);
}

static void a_lane_that_is_silent_after_the_switch_gets_the_request_again(void **state)
{
    struct scene s = begin(*state);
    stop_at(&s, REGROUPED_UNHEARD);
    forget_kept(&s);
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (s.shadow.regroupings < 2 && clock_now_ns() < deadline_ns) {
        rig_step_within(s.rig, 10 * NS_PER_MS);
        shadow_take(&s.shadow, s.lane);
    }
    assert_int_equal(s.shadow.regroupings, 2);
    expect_served(&s, LEFT);
}

/* --- the coordinator --- */

static void the_coordinator_dies(struct scene *s, enum step step)
{
    const struct end before = *s->lane;
    forget_kept(s);
    rig_crash(s->rig);
    rig_start(s->rig);
    s->lane = shadow_rejoin(&s->shadow, s->rig, &before, s->workers[0].job);
    for (uint32_t rank = 0; rank < 2; rank++)
        members_resume(s->rig, &s->workers[rank], how(rank));
    expect_served(s, LEFT);
    assert_int_equal(s->shadow.regroupings, 1); /* the lane has kept the state of the piece */
    struct member late = members_join(s->rig, how(2));
    rig_settle(s->rig);
    expect_served(s, LEFT); /* declarations of the rank's former process have no effect */
    members_declare(late.end, "w", NULL);
    expect_served(s, ALL);
}

static void a_restarted_coordinator_finishes_the_change(void **state)
{
    at_each_step(*state, the_coordinator_dies);
}

static void the_coordinator_dies_and_workers_are_back_first(struct scene *s, enum step step)
{
    const struct end before = *s->lane;
    forget_kept(s);
    rig_crash(s->rig);
    rig_start(s->rig);
    for (uint32_t rank = 0; rank < 2; rank++)
        members_resume(s->rig, &s->workers[rank], how(rank));
    s->lane = shadow_rejoin(&s->shadow, s->rig, &before, s->workers[0].job);
    expect_served(s, LEFT);
}

static void a_regrouping_continues_when_workers_return_first(void **state)
{
    at_each_step(*state, the_coordinator_dies_and_workers_are_back_first);
}

/* --- moves (K42) --- */

static uint64_t order_move(struct end *asker, uint32_t lane)
{
    WIRE(MoveRequest) move = GRADPOOL__WIRE__MOVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    move.job = MEMBERS_JOB;
    move.lane = lane;
    request.body_case = BODY(MOVE_REQUEST);
    request.move_request = &move;
    return end_send(asker, &request);
}

static void expect_moved(struct scene *s, struct end *asker, uint64_t order, struct end *target)
{
    envelope *reply = end_expect_reply(asker, order);
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    assert_string_equal(reply->move_reply->stays, "");
    message_free(reply);
    s->lane = target;
    s->shadow = (struct shadow){0};
    expect_served(s, LEFT);
}

static void a_move_is_ordered(struct scene *s, enum step step)
{
    struct end *target = rig_aggregator(s->rig, 1);
    struct end *asker = rig_connect_locally(s->rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    uint64_t order = order_move(asker, target->lanes[0]);
    end_expect_none(target, BODY(PLACE_REQUEST));
    go_on(s);
    expect_moved(s, asker, order, target);
}

static void a_move_waits_for_the_change(void **state) { at_both_steps(*state, a_move_is_ordered); }

static void a_move_before_its_switch_is_aborted_for_a_regrouping(void **state)
{
    struct scene s = begin(*state);
    struct end *target = rig_aggregator(s.rig, 1);
    struct end *asker = rig_connect_locally(s.rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    s.lane->ignores = BODY(RELEASE_REQUEST);
    uint64_t order = order_move(asker, target->lanes[0]);
    message_free(end_expect(s.lane, BODY(RELEASE_REQUEST)));
    s.lane->ignores = 0;
    end_leave(s.workers[2].end);
    shadow_until(&s.shadow, s.lane, PIECE, LEFT);
    expect_moved(&s, asker, order, target);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(lanes_release_then_one_switch_then_lanes_then_workers),
        CASE(all_tensors_change_in_one_message),
        CASE(a_late_worker_takes_part_after_its_declaration),
        CASE(a_tensor_declared_after_a_late_join_has_the_late_worker_at_once),
        CASE(a_tensor_of_other_ranks_is_left_unchanged),
        CASE(a_quorum_that_no_ranks_can_reach_any_more_fails_its_tensor_alone),
        CASE(a_leave_during_a_regrouping_causes_a_second_one),
        CASE(a_loss_during_a_regrouping_causes_a_second_one),
        CASE(a_releasing_lane_is_informed_at_once_of_lost_ranks),
        CASE(a_known_membership_has_no_effect),
        CASE(a_rank_is_free_when_lanes_have_closed_its_former_connections),
        CASE(an_ended_job_leaves_the_regrouping),
        CASE(a_tensor_declared_during_a_regrouping_has_the_remaining_ranks),
        CASE(a_tensor_undeclared_during_the_regrouping_is_removed),
        CASE(a_refusal_before_the_switch_thaws_and_is_tried_again),
        CASE(a_refusal_behind_the_switch_fails_the_job),
        CASE(a_returned_lane_follows_the_change_with_its_pieces),
        CASE(pieces_of_a_lane_that_is_lost_get_their_ranks_elsewhere),
        CASE(a_disconnected_lane_delays_no_other_lane),
        CASE(a_lane_that_is_silent_after_the_switch_gets_the_request_again),
        CASE(a_restarted_coordinator_finishes_the_change),
        CASE(a_regrouping_continues_when_workers_return_first),
        CASE(a_move_waits_for_the_change),
        CASE(a_move_before_its_switch_is_aborted_for_a_regrouping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
