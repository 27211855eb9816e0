/* Tests the choice of holders of copies (replica holders, K57). Also tests the messages that owner
 * and holder receive when an aggregator joins or leaves. */
#include "test/unit/coordinator/keeping_case.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/replica/replica.h"

#include <stdlib.h>
#include <string.h>

static struct aggregator *record_of(const struct end *e)
{
    return aggregator_find(e->rig->coordinator->service, e->aggregator);
}

/* --- the choice of a replica holder --- */

static void another_aggregator_keeps_a_copy_once_the_lane_has_the_piece(void **state)
{
    struct kept k = {.rig = *state};
    k.owner = rig_aggregator(k.rig, 1);
    k.holder = keeping_aggregator(k.rig);
    k.owner->ignores = BODY(PLACE_REQUEST);
    k.worker = keeping_join(k.rig, "resnet", DURABILITY_REPLICA, &k.session, &k.job);
    uint64_t id = keeping_ask_declare(k.worker, "w");
    envelope *place = end_expect(k.owner, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->pieces[0]->holder, k.holder->aggregator);
    k.piece.id = place->place_request->pieces[0]->piece;
    keeping_expect_silence(k.owner, k.holder); /* the lane has not confirmed the piece yet */
    end_answer(k.owner, place);
    message_free(place);
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, k.holder->aggregator, false);
    message_free(end_expect_reply(k.worker, id));
    keeping_expect_silence(k.owner, k.holder);
}

static void jobs_with_other_durabilities_have_no_holders(void **state)
{
    static const enum durability others[] = {DURABILITY_UNSAID, DURABILITY_NONE, DURABILITY_WORKER};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct kept k = keeping_begin(*state, others[i]);
        assert_int_equal(keeping_placed_with(&k, k.owner), 0);
        keeping_expect_silence(k.owner, k.holder);
        end_leave(k.worker);
        end_expect_none(k.holder, BODY(COPIES_END));
        rig_start_afresh(k.rig);
    }
}

static void a_tensor_without_a_rule_has_no_holder(void **state)
{
    struct kept k = keeping_begun(*state);
    message_free(end_expect_reply(k.worker, end_declare_one(k.worker, "v", 100)));
    envelope *place = end_expect(k.owner, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->pieces[0]->holder, 0);
    message_free(place);
    keeping_expect_silence(k.owner, k.holder);
}

/* A holder on another host survives a failure of the owner's host. */
static void a_holder_on_another_host_comes_first(void **state)
{
    struct rig *rig = *state;
    struct kept k = {.rig = rig, .owner = rig_aggregator(rig, 1)};
    struct end *others[5];
    for (size_t i = 0; i < 5; i++)
        others[i] = keeping_aggregator(rig);
    k.worker = keeping_join(rig, "resnet", DURABILITY_REPLICA, &k.session, &k.job);
    for (size_t i = 0; i < 5; i++) {
        char *here = record_of(others[i])->node;
        record_of(others[i])->node = strdup("node8");
        keeping_declare(k.worker, (char[]){(char)('a' + i), 0});
        envelope *place = end_expect(k.owner, BODY(PLACE_REQUEST));
        assert_int_equal(place->place_request->pieces[0]->holder, others[i]->aggregator);
        message_free(place);
        free(record_of(others[i])->node);
        record_of(others[i])->node = here;
    }
}

/* --- no replica holder --- */

static unsigned lacks, has_again;

static void count_lines(enum log_level level, const char *line)
{
    lacks += level == LOG_LEVEL_WARN &&
             strstr(line, "because the service has no other aggregator") != NULL;
    has_again += strstr(line, "have replicas again") != NULL;
}

static void copies_begin_with_the_next_aggregator_that_joins(void **state)
{
    struct kept k = {.rig = *state, .owner = rig_aggregator(*state, 1)};
    lacks = has_again = 0;
    log_set_hook(count_lines);
    k.worker = keeping_join(k.rig, "resnet", DURABILITY_REPLICA, &k.session, &k.job);
    k.piece = keeping_declare(k.worker, "w");
    assert_int_equal(keeping_placed_with(&k, k.owner), 0);
    keeping_lane_hears(&k, k.owner, 0, false);
    assert_int_equal(lacks, 1);
    k.holder = keeping_aggregator(k.rig);
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, k.holder->aggregator, false);
    assert_int_equal(lacks, 1);
    assert_int_equal(has_again, 1);
}

/* --- the owner is lost --- */

static void a_holder_that_becomes_the_owner_uses_its_copy_before_another_stores_one(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig);
    keeping_open(k.holder);
    k.holder->ignores = BODY(PLACE_REQUEST);
    end_say_goodbye(k.owner);
    envelope *place = end_expect(k.holder, BODY(PLACE_REQUEST));
    assert_true(place->place_request->recovering);
    assert_int_equal(place->place_request->pieces[0]->holder, k.holder->aggregator);
    keeping_expect_silence(k.holder, third);
    end_answer(k.holder, place);
    message_free(place);
    keeping_holder_hears(&k, k.holder, k.holder, 2, 2, false);
    keeping_lane_hears(&k, k.holder, third->aggregator, true);
    keeping_holder_hears(&k, third, k.holder, 2, 2, true);
    keeping_expect_silence(k.holder, third);
}

/* The first holder has become the owner, but may not have read its copy yet. The coordinator must
 * not drop this copy, even if it names several other holders afterwards. */
static void the_first_copy_serves_a_new_owner_after_any_number_of_later_copies(void **state)
{
    struct kept k = keeping_begun(*state);
    keeping_open(k.holder);
    end_say_goodbye(k.owner);
    assert_int_equal(keeping_placed_with(&k, k.holder), k.holder->aggregator);
    keeping_holder_hears(&k, k.holder, k.holder, 2, 2, false);
    keeping_lane_hears(&k, k.holder, 0, true);
    for (int i = 0; i < 2; i++) {
        struct end *next = keeping_aggregator(k.rig);
        keeping_holder_hears(&k, next, k.holder, 2, 2, true);
        keeping_lane_hears(&k, k.holder, next->aggregator, true);
        end_say_goodbye(next);
        keeping_lane_hears(&k, k.holder, 0, true);
    }
    end_expect_none(k.holder, BODY(COPIES_REQUEST));
}

static void expect_end_of_copy(const struct kept *k, struct end *holder)
{
    envelope *message = end_expect(holder, BODY(COPIES_END));
    assert_int_equal(message->copies_end->n_pieces, 1);
    assert_int_equal(message->copies_end->pieces[0], k->piece.id);
    message_free(message);
}

/* A PlaceRequest names a holder, and the new lane waits for the copy of this holder. If the request
 * named a former holder, the lane would wait forever. */
static void a_former_holder_of_a_lost_owner_is_not_awaited(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig), *fourth;
    record_of(k.holder)->is_stopping = true;
    keeping_check_all(k.rig->coordinator->service);
    keeping_lane_hears(&k, k.owner, third->aggregator, true);
    keeping_holder_hears(&k, third, k.owner, 1, 1, true);
    fourth = rig_aggregator(k.rig, 1);
    end_say_goodbye(k.owner);
    expect_end_of_copy(&k, k.holder);
    assert_int_equal(keeping_placed_with(&k, fourth), third->aggregator);
    keeping_holder_hears(&k, third, fourth, 2, 2, false);
    keeping_lane_hears(&k, fourth, third->aggregator, false);
    end_say_goodbye(third);
    keeping_lane_hears(&k, fourth, 0, false);
}

static void a_holder_stays_when_its_owner_is_followed_by_another(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = rig_aggregator(k.rig, 1);
    end_say_goodbye(k.owner);
    assert_int_equal(keeping_placed_with(&k, third), k.holder->aggregator);
    keeping_holder_hears(&k, k.holder, third, 2, 2, false);
    keeping_lane_hears(&k, third, k.holder->aggregator, false);
    keeping_expect_silence(third, k.holder);
}

/* --- the replica holder is lost --- */

static void a_holder_that_is_lost_is_followed_by_another(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig);
    keeping_expect_silence(k.owner, third); /* the owner already has a holder */
    end_say_goodbye(k.holder);
    keeping_holder_hears(&k, third, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, third->aggregator, false);
}

static void without_another_holder_the_lane_continues_alone(void **state)
{
    struct kept k = keeping_begun(*state);
    end_say_goodbye(k.holder);
    keeping_lane_hears(&k, k.owner, 0, false);
    struct end *third = keeping_aggregator(k.rig);
    keeping_holder_hears(&k, third, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, third->aggregator, false);
}

static void an_absent_holder_gets_its_tasks_again_and_is_not_replaced(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig), before = *k.holder;
    end_close(k.holder);
    keeping_expect_silence(k.owner, third);
    k.holder = rig_rejoin(k.rig, &before, 0, NULL);
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, false);
    keeping_expect_silence(k.owner, third);
}

/* The copy of a stopping holder is valid until the holder ends. */
static void a_stopping_holder_is_replaced_and_awaited_until_its_end(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig);
    record_of(k.holder)->is_stopping = true;
    keeping_check_all(k.rig->coordinator->service);
    keeping_lane_hears(&k, k.owner, third->aggregator, true);
    keeping_holder_hears(&k, third, k.owner, 1, 1, true);
    end_say_goodbye(k.holder);
    keeping_lane_hears(&k, k.owner, third->aggregator, false);
    keeping_expect_silence(k.owner, third);
}

/* --- the former replica holder --- */

/* Answers a request for figures. The answer contains the numbers of copied and of empty states. */
static void answer_with(const struct kept *k, const envelope *request, uint32_t copied,
                        uint32_t empty)
{
    WIRE(StatsReply) stats = GRADPOOL__WIRE__STATS_REPLY__INIT;
    WIRE(LaneUse) lane = GRADPOOL__WIRE__LANE_USE__INIT, *lanes = &lane;
    WIRE(JobUse) job = GRADPOOL__WIRE__JOB_USE__INIT, *jobs = &job;
    envelope reply = GRADPOOL__WIRE__ENVELOPE__INIT;
    job.job_id = k->job;
    job.states = 1;
    job.copied = copied;
    job.empty = empty;
    lane.lane = k->owner->lanes[0];
    lane.n_jobs = 1;
    lane.jobs = &jobs;
    stats.n_lanes = 1;
    stats.lanes = &lanes;
    reply.id = request->id;
    reply.body_case = BODY(STATS_REPLY);
    reply.stats_reply = &stats;
    channel_send(k->owner->channel, &reply);
}

static void answer_figures(const struct kept *k, const envelope *request, uint32_t copied)
{
    answer_with(k, request, copied, 0);
}

static envelope *ask_figures(const struct kept *k)
{
    stats_ask(record_of(k->owner), 0);
    return end_expect(k->owner, BODY(STATS_REQUEST));
}

static void tell_figures(const struct kept *k, uint32_t copied)
{
    envelope *request = ask_figures(k);
    answer_figures(k, request, copied);
    message_free(request);
}

/* Starts a case in which the holder is being replaced. The lane knows the next holder. The test
 * answers requests for figures. */
static struct end *begin_with_another(struct kept *k)
{
    struct end *third = keeping_aggregator(k->rig);
    k->owner->ignores = BODY(STATS_REQUEST);
    record_of(k->holder)->is_stopping = true;
    keeping_check_all(k->rig->coordinator->service);
    keeping_lane_hears(k, k->owner, third->aggregator, true);
    return third;
}

static void a_former_holder_is_free_once_the_next_has_a_whole_copy(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig);
    k.owner->ignores = BODY(STATS_REQUEST);
    envelope *before = ask_figures(&k);
    record_of(k.holder)->is_stopping = true;
    keeping_check_all(k.rig->coordinator->service);
    keeping_lane_hears(&k, k.owner, third->aggregator, true);
    /* figures that the lane sent before it wrote to the next holder */
    answer_figures(&k, before, 1);
    message_free(before);
    end_expect_none(k.owner, BODY(HOLDER_REQUEST));
    tell_figures(&k, 0);
    end_expect_none(k.owner, BODY(HOLDER_REQUEST));
    tell_figures(&k, 1);
    keeping_lane_hears(&k, k.owner, third->aggregator, false);
    expect_end_of_copy(&k, k.holder);
}

static void a_former_holder_is_free_once_no_state_can_be_lost(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = begin_with_another(&k);
    envelope *request = ask_figures(&k);
    answer_with(&k, request, 0, 1);
    message_free(request);
    keeping_lane_hears(&k, k.owner, third->aggregator, false);
    expect_end_of_copy(&k, k.holder);
}

/* The coordinator was about to replace the holder, and now chooses the same holder again. */
static void a_former_holder_that_is_chosen_again_continues_with_its_copy(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = begin_with_another(&k);
    record_of(k.holder)->is_stopping = false;
    end_say_goodbye(third);
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, false);
    keeping_lane_hears(&k, k.owner, k.holder->aggregator, false);
    tell_figures(&k, 1);
    end_expect_none(k.holder, BODY(COPIES_END));
    keeping_expect_silence(k.owner, k.holder);
}

static void figures_from_before_the_holder_was_named_free_no_holder(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig);
    k.owner->ignores = BODY(STATS_REQUEST);
    k.owner->refuses = BODY(HOLDER_REQUEST);
    record_of(k.holder)->is_stopping = true;
    keeping_check_all(k.rig->coordinator->service);
    keeping_lane_hears(&k, k.owner, third->aggregator, true);
    rig_settle(k.rig);
    tell_figures(&k, 1);
    k.owner->refuses = 0;
    keeping_lane_hears(&k, k.owner, third->aggregator, true);
    end_expect_none(k.owner, BODY(HOLDER_REQUEST));
}

/* Starts with a local aggregator as holder, and an owner that was placed before. */
static struct kept begin_with_local_holder(struct rig *rig)
{
    struct kept k = {.rig = rig};
    rig->options.aggregators = 1;
    rig->options.cores = "0";
    rig->options.lanes_per_core = 1;
    rig_start_afresh(rig);
    k.holder = rig_local_aggregator(rig, 1, rig->grants[0]);
    keeping_withhold(k.holder);
    k.owner = rig_aggregator(rig, 1);
    k.worker = keeping_join(rig, "resnet", DURABILITY_REPLICA, &k.session, &k.job);
    k.piece = keeping_declare(k.worker, "w");
    assert_int_equal(keeping_placed_with(&k, k.owner), k.holder->aggregator);
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, k.holder->aggregator, false);
    return k;
}

static void an_aggregator_that_is_stopped_first_hands_over_its_copies(void **state)
{
    struct kept k = begin_with_local_holder(*state);
    struct end *third = keeping_aggregator(k.rig);
    k.owner->ignores = BODY(STATS_REQUEST);
    fleet_release(record_of(k.holder));
    keeping_lane_hears(&k, k.owner, third->aggregator, true);
    keeping_holder_hears(&k, third, k.owner, 1, 1, true);
    tell_figures(&k, 0);
    end_expect_none(k.holder, BODY(DRAIN_REQUEST));
    tell_figures(&k, 1);
    message_free(end_expect(k.holder, BODY(DRAIN_REQUEST)));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(another_aggregator_keeps_a_copy_once_the_lane_has_the_piece),
        CASE(jobs_with_other_durabilities_have_no_holders),
        CASE(a_tensor_without_a_rule_has_no_holder),
        CASE(a_holder_on_another_host_comes_first),
        CASE(copies_begin_with_the_next_aggregator_that_joins),
        CASE(a_holder_that_becomes_the_owner_uses_its_copy_before_another_stores_one),
        CASE(the_first_copy_serves_a_new_owner_after_any_number_of_later_copies),
        CASE(a_former_holder_of_a_lost_owner_is_not_awaited),
        CASE(a_holder_stays_when_its_owner_is_followed_by_another),
        CASE(a_holder_that_is_lost_is_followed_by_another),
        CASE(without_another_holder_the_lane_continues_alone),
        CASE(an_absent_holder_gets_its_tasks_again_and_is_not_replaced),
        CASE(a_stopping_holder_is_replaced_and_awaited_until_its_end),
        CASE(a_former_holder_is_free_once_the_next_has_a_whole_copy),
        CASE(a_former_holder_is_free_once_no_state_can_be_lost),
        CASE(a_former_holder_that_is_chosen_again_continues_with_its_copy),
        CASE(figures_from_before_the_holder_was_named_free_no_holder),
        CASE(an_aggregator_that_is_stopped_first_hands_over_its_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
