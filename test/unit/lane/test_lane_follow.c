/* Tests pieces whose updates follow the sets of the job (A85, W22). An update uses the gradients of
 * the set of the job's round, and the settings of the lowest rank of the set. A rank outside the
 * set (a taker) gets an answer only when it requests a result. The test acts as the leader lane. */
#include "svc/base/clock.h"
#include "svc/lane/chunk/stuck.h"
#include "svc/lane/job/table.h"
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/release.h"
#include "svc/lane/worker/serving.h"
#include "test/unit/lane/update_rig.h"
#include "test/unit/skip.h"

#include <errno.h>

#define RANKS 3
#define ALL 7u

static const struct update_settings other = {.rate = 0.5};

static void begin(enum update_rule rule)
{
    start_rule(RANKS,
               (struct lane_terms){.quorum = QUORUM_CHOSEN, .rule = rule, .role = FOLLOWS_ROUNDS},
               false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        tell(rank, &usual);
    set(1);
    model_set();
}

/* The rank `by` forwards the set of the job's round `number` to the lane. */
static void choose(uint32_t by, uint64_t number, uint64_t ranks)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = number, .ranks = {ranks}};
    assert_int_equal(fabric_send(rig.workers[by].conn, &chosen, sizeof chosen, NULL, 0), 0);
}

static void follow(uint32_t rank, uint64_t round, uint64_t number, uint8_t standing)
{
    rig_say(&rig, rank,
            (struct say){.piece = W,
                         .word = (uint32_t)round + 1000 * (standing == RECORD_TAKES),
                         .round = round,
                         .root = (uint32_t)number,
                         .elements = ELEMENTS,
                         .operation = RECORD_UPDATE,
                         .standing = standing,
                         .has_no_input = standing == RECORD_TAKES});
}

ONE_THREAD static void push(uint32_t rank, uint64_t round, uint64_t number)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, rank, 0)[e] = gradient(rank, round, e);
    follow(rank, round, number, RECORD_ANNOUNCE);
}

static void take_round(uint32_t rank, uint64_t round)
{
    follow(rank, round, round - 1, RECORD_TAKES);
}

ONE_THREAD static void set_mean(uint64_t round, uint64_t ranks)
{
    float count = 0;
    for (uint64_t e = 0; e < ELEMENTS; e++)
        mean[e] = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!(ranks >> rank & 1))
            continue;
        for (uint64_t e = 0; e < ELEMENTS; e++)
            mean[e] = count > 0 ? mean[e] + gradient(rank, round, e) : gradient(rank, round, e);
        count++;
    }
    for (uint64_t e = 0; e < ELEMENTS; e++)
        mean[e] /= count;
}

static void model_follow(enum update_rule rule, uint64_t round, uint64_t ranks,
                         const struct update_settings *s)
{
    const void *source = mean;
    void *target = mean;
    set_mean(round, ranks);
    const struct reduce_pass sums = {.targets = &target,
                                     .targets_count = 1,
                                     .sources = &source,
                                     .sources_count = 1,
                                     .elements = ELEMENTS};
    const struct update_state state = {.parameters = model[0],
                                       .moments = {model[1], model[2]},
                                       .ret_parameters = model[0],
                                       .ret_moments = {model[1], model[2]}};
    update_pick(REDUCE_C, rule, REDUCE_F32, REDUCE_F32)(&sums, s, ++model_steps, &state);
}

static void expect_commit(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == round);
    assert_int_equal(w->errors_count, 0);
}

static void expect_parameters(uint32_t rank)
{
    assert_memory_equal(rig_landing(&rig, rank, 0), model[0], BYTES);
}

/* Checks the answer to a taker. `asked`: the round that the taker requested; `round`: the round of
 * the answer. */
static void expect_closed(uint32_t rank, int answers, uint64_t asked, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->closed_count == answers);
    assert_int_equal(w->closed[answers - 1].word, asked + 1000);
    assert_int_equal(w->closed[answers - 1].round, round);
    assert_int_equal(w->errors_count, 0);
}

/* Runs a round of ranks 0 and 1. Round 2 of the tensor is round 1 of the job. */
static void round_of_two(uint64_t round)
{
    choose(0, round - 1, 1 << 0 | 1 << 1);
    push(0, round, round - 1);
    push(1, round, round - 1);
    expect_commit(0, round);
    expect_commit(1, round);
    model_follow(UPDATE_SGD, round, 1 << 0 | 1 << 1, &usual);
}

/* --- the set makes the update --- */

static void the_mean_is_over_the_set_and_not_over_all_ranks(void **state)
{
    begin(UPDATE_ADAM);
    choose(1, 1, 1 << 0 | 1 << 2);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, 2, 1);
    expect_commit(0, 2);
    expect_commit(2, 2);
    model_follow(UPDATE_ADAM, 2, 1 << 0 | 1 << 2, &usual);
    expect_parameters(0);
    expect_parameters(2);
    choose(0, 2, ALL);
    for (uint32_t rank = 0; rank < RANKS; rank += 2)
        push(rank, 3, 2);
    take_round(1, 2);
    expect_closed(1, 1, 2, 2);
    expect_parameters(1);
    push(1, 3, 2);
    expect_commit(1, 3);
    model_follow(UPDATE_ADAM, 3, ALL, &usual);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_parameters(rank);
}

static void an_update_waits_for_its_set_though_all_ranks_have_arrived(void **state)
{
    begin(UPDATE_SGD);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, 2, 1);
    rig_settle(&rig);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(rig.workers[rank].words_count, 1);
    choose(2, 1, ALL);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_commit(rank, 2);
    model_follow(UPDATE_SGD, 2, ALL, &usual);
    expect_parameters(1);
}

static void the_settings_are_those_of_the_lowest_rank_of_the_set(void **state)
{
    begin(UPDATE_SGD);
    tell(0, &other);
    push(0, 2, 1);
    push(1, 2, 1);
    push(2, 2, 1);
    tell(1, &other); /* these settings are valid from the next announcement on */
    rig_settle(&rig);
    choose(0, 1, 1 << 1 | 1 << 2);
    expect_commit(1, 2);
    expect_commit(2, 2);
    model_follow(UPDATE_SGD, 2, 1 << 1 | 1 << 2, &usual);
    expect_parameters(1);
    expect_parameters(2);
}

static void a_broadcast_is_a_round_of_all_ranks_and_none_of_the_job(void **state)
{
    begin(UPDATE_SGD);
    choose(0, 1, ALL);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, 2, 1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_commit(rank, 2);
    choose(0, 2, 1 << 1 | 1 << 2); /* this set arrives before the broadcast, which is not a round of
                                    * the job */
    set(3);
    model_set();
    push(1, 4, 2);
    push(2, 4, 2);
    expect_commit(1, 4);
    expect_commit(2, 4);
    model_follow(UPDATE_SGD, 4, 1 << 1 | 1 << 2, &usual);
    expect_parameters(1);
    expect_parameters(2);
}

static void an_update_of_another_round_of_the_job_is_refused(void **state)
{
    begin(UPDATE_SGD);
    push(0, 2, 1);
    rig_settle(&rig); /* messages on different connections have no order */
    push(1, 2, 7);
    expect_error(1, -EPROTO, "round 2 announced, round 2 is open; start the job again");
}

static void a_rule_without_following_has_no_sets(void **state)
{
    struct lane_piece piece = {.id = 9,
                               .elements = ELEMENTS,
                               .dtype = REDUCE_F32,
                               .tensor = "x",
                               .terms = {.quorum = QUORUM_CHOSEN, .rule = UPDATE_SGD}};
    begin(UPDATE_SGD);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", RANKS, 1, false, &piece, 1), -EINVAL);
    piece.terms = (struct lane_terms){.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS};
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", RANKS, 1, false, &piece, 1), -EINVAL);
}

/* --- takers --- */

static void a_dropped_gradient_is_not_answered_before_its_rank_takes(void **state)
{
    begin(UPDATE_SGD);
    push(2, 2, 1);
    round_of_two(2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].words_count, 1); /* the word of the broadcast */
    assert_int_equal(rig.workers[2].closed_count, 0);
    take_round(2, 2);
    expect_closed(2, 1, 2, 2);
    assert_int_equal(rig.workers[2].words[1], 1002);
    expect_parameters(2);
}

static void a_gradient_after_the_close_is_not_answered_either(void **state)
{
    begin(UPDATE_SGD);
    round_of_two(2);
    push(2, 2, 1);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].closed_count, 0);
    assert_int_equal(rig.workers[2].errors_count, 0);
    take_round(2, 2);
    expect_closed(2, 1, 2, 2);
    expect_parameters(2);
    round_of_two(3);
}

static void a_taker_gets_the_round_that_it_wants_though_the_next_is_committed(void **state)
{
    begin(UPDATE_SGD);
    round_of_two(2);
    static float before[ELEMENTS];
    memcpy(before, model[0], sizeof before);
    round_of_two(3);
    take_round(2, 2);
    expect_closed(2, 1, 2, 2);
    assert_memory_equal(rig_landing(&rig, 2, 0), before, BYTES);
    take_round(2, 3);
    expect_closed(2, 2, 3, 3);
    expect_parameters(2);
}

static void a_taker_of_a_round_that_is_gone_learns_the_newest(void **state)
{
    begin(UPDATE_SGD);
    for (uint64_t round = 2; round <= 4; round++)
        round_of_two(round);
    take_round(2, 2);
    expect_closed(2, 1, 2, 4);
    assert_int_equal(rig.workers[2].words_count, 1); /* the rank received no bytes of a result */
    take_round(2, 4);
    expect_closed(2, 2, 4, 4);
    assert_int_equal(rig.workers[2].words[1], 1004);
    expect_parameters(2);
}

static void a_taker_waits_for_a_round_that_is_not_committed_here(void **state)
{
    begin(UPDATE_SGD);
    push(0, 2, 1);
    take_round(2, 2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].closed_count, 0);
    choose(0, 1, 1 << 0 | 1 << 1);
    push(1, 2, 1);
    model_follow(UPDATE_SGD, 2, 1 << 0 | 1 << 1, &usual);
    expect_closed(2, 1, 2, 2);
    expect_parameters(2);
}

static void two_takers_of_different_rounds_both_get_theirs(void **state)
{
    static float before[ELEMENTS];
    begin(UPDATE_SGD);
    choose(0, 1, 1 << 0);
    push(0, 2, 1);
    expect_commit(0, 2);
    model_follow(UPDATE_SGD, 2, 1 << 0, &usual);
    memcpy(before, model[0], sizeof before);
    choose(0, 2, 1 << 0);
    push(0, 3, 2);
    expect_commit(0, 3);
    model_follow(UPDATE_SGD, 3, 1 << 0, &usual);
    take_round(1, 2);
    take_round(2, 3);
    expect_closed(1, 1, 2, 2);
    expect_closed(2, 1, 3, 3);
    assert_memory_equal(rig_landing(&rig, 1, 0), before, BYTES);
    expect_parameters(2);
}

/* The open round writes to the half that contains the state before the last round. */
static void an_answer_writes_to_no_state(void **state)
{
    begin(UPDATE_MOMENTUM);
    choose(0, 1, 1 << 0 | 1 << 1);
    push(0, 2, 1);
    push(1, 2, 1);
    expect_commit(0, 2);
    model_follow(UPDATE_MOMENTUM, 2, 1 << 0 | 1 << 1, &usual);
    push(0, 3, 2); /* the open round has already fixed its operation */
    take_round(2, 2);
    expect_closed(2, 1, 2, 2);
    expect_parameters(2);
    choose(0, 2, 1 << 0 | 1 << 1);
    push(1, 3, 2);
    expect_commit(1, 3);
    model_follow(UPDATE_MOMENTUM, 3, 1 << 0 | 1 << 1, &usual);
    expect_parameters(0);
    expect_parameters(1);
}

/* --- a taker that is stopped --- */

/* Rank 2 requests the result of round 2, and is stopped before it has received the whole result. */
static void stop_taker(void)
{
    begin(UPDATE_SGD);
    round_of_two(2);
    take_round(2, 2);
    rig.workers[2].is_stopped = true;
    rig_settle(&rig);
}

static void a_stopped_taker_delays_no_round(void **state)
{
    stop_taker();
    for (uint64_t round = 3; round <= 6; round++)
        round_of_two(round);
    bool is_mapped = strcmp(kind, "shm") == 0;
    rig.workers[2].is_stopped = false;
    if (is_mapped)
        return expect_closed(2, 1, 2, 2); /* the lane writes to mapped memory without any action of
                                           * the process */
    expect_closed(2, 1, 2, 6);
    assert_int_equal(rig.workers[2].words_count, 1); /* the word of the broadcast */
    take_round(2, 6);
    expect_closed(2, 2, 6, 6);
    expect_parameters(2);
}

static void a_stopped_taker_delays_no_other_taker(void **state)
{
    stop_taker();
    rig.workers[2].is_stopped = true;
    choose(0, 2, 1 << 0);
    push(0, 3, 2);
    expect_commit(0, 3);
    model_follow(UPDATE_SGD, 3, 1 << 0, &usual);
    take_round(1, 3);
    expect_closed(1, 1, 3, 3);
    expect_parameters(1);
    rig.workers[2].is_stopped = false;
    expect_closed(2, 1, 2, 2); /* the lane still has the state of the previous round */
}

static bool is_frozen(void)
{
    const uint32_t piece = W;
    return lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1;
}

/* The former owner must end its writes to a taker before the new owner begins. */
static void a_piece_with_a_write_on_its_way_to_a_taker_is_not_frozen(void **state)
{
    const uint32_t piece = W;
    char text[256] = "";
    stop_taker();
    if (strcmp(kind, "shm") == 0)
        skip_because("over this transport each write is complete at once");
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    rig_settle(&rig);
    assert_false(is_frozen());
    job_find(rig.lane, RIG_JOB)->servings->of[2].moved_ns = rig_now() - 10 * NS_PER_S;
    assert_true(lane_stuck(rig.lane, RIG_JOB, &piece, 1, text, sizeof text));
    assert_non_null(strstr(text, "waits for rank 2 of job job ("));
    uint32_t rests = rig.rests;
    rig.workers[2].is_stopped = false;
    rig_until(&rig, is_frozen());
    assert_true(rig.rests > rests);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].closed_count, 0);
    lane_thaw(rig.lane, RIG_JOB, &piece, 1);
    expect_closed(2, 1, 2, 2);
    expect_parameters(2);
}

static void a_taker_that_leaves_is_forgotten(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    begin(UPDATE_SGD);
    push(0, 2, 1);
    take_round(2, 2);
    rig_settle(&rig);
    assert_int_equal(fabric_send(rig.workers[2].conn, &leave, sizeof leave, NULL, 0), 0);
    rig_settle(&rig);
    fabric_disconnect(rig.workers[2].conn);
    rig_settle(&rig);
    choose(0, 1, 1 << 0 | 1 << 1);
    push(1, 2, 1);
    expect_commit(0, 2);
    expect_commit(1, 2);
}

static void a_slot_without_memory_fails_the_job_in_words(void **state)
{
    const struct lane_piece spec = {
        .id = W,
        .elements = ELEMENTS,
        .terms = {.quorum = QUORUM_CHOSEN, .rule = UPDATE_SGD, .role = FOLLOWS_ROUNDS}};
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS, spec, false);
    rig_connect(&rig, 0, RIG_JOB, 0);
    rig.count = 1;
    if (strcmp(kind, "shm") == 0)
        skip_because("over this transport no slot is needed");
    lane_set_memory_limit(rig.lane, lane_job_memory(rig.lane, RIG_JOB) + 4096);
    const struct record_connect ticket = rig_ticket(&rig, RIG_JOB, 1);
    const struct fabric_options options = {.payload_bytes_max = 64u << 10};
    struct rig_worker *w = &rig.workers[1];
    assert_int_equal(fabric_open(kind, &options, &w->fabric), 0);
    assert_int_equal(fabric_connect(w->fabric, rig.address, &ticket, sizeof ticket, w, &w->conn),
                     0);
    rig_until(&rig, rig.workers[0].errors_count == 1 && w->is_closed);
    assert_true(rig_says(&rig.workers[0], -ENOSPC, "for rank 1; raise --lane-memory-max"));
}

/* --- moves --- */

/* Moves the piece after round 2. */
static void move(void)
{
    static char moved[LANE_STATE_HEAD_BYTES + 2 * BYTES];
    const uint32_t piece = W;
    const uint64_t round = 2;
    begin(UPDATE_SGD);
    round_of_two(2);
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1);
    int64_t bytes = lane_state_read(rig.lane, RIG_JOB, W, 0, moved, sizeof moved);
    assert_in_range(bytes, BYTES, sizeof moved);
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    const struct lane_piece spec = {
        .id = W,
        .elements = ELEMENTS,
        .terms = {.quorum = QUORUM_CHOSEN, .rule = UPDATE_SGD, .role = FOLLOWS_ROUNDS}};
    rig_place_piece(&rig, RANKS, spec, true);
    assert_int_equal(lane_state_put(rig.lane, RIG_JOB, W, 0, moved, (size_t)bytes), 0);
    assert_int_equal(lane_install(rig.lane, RIG_JOB, &piece, &round, 1), 0);
}

static void a_new_owner_gets_the_round_of_the_job(void **state)
{
    move();
    take_round(2, 2); /* this request also reports the rank's last round to the new owner */
    expect_closed(2, 1, 2, 2);
    expect_parameters(2);
    choose(0, 2, ALL);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        tell(rank, &usual);
        push(rank, 3, 2);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_commit(rank, 3);
    model_follow(UPDATE_SGD, 3, ALL, &usual);
    expect_parameters(0);
    push(0, 4, 4);
    expect_error(0, -EPROTO, "round 4 announced");
}

static void a_new_owner_answers_a_taker_of_the_open_round(void **state)
{
    move();
    take_round(2, 3); /* the leader lane has closed this round already */
    choose(0, 2, 3);
    for (uint32_t rank = 0; rank < 2; rank++) {
        tell(rank, &usual);
        push(rank, 3, 2);
    }
    for (uint32_t rank = 0; rank < 2; rank++)
        expect_commit(rank, 3);
    expect_closed(2, 1, 3, 3);
    model_follow(UPDATE_SGD, 3, 3, &usual);
    expect_parameters(2);
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(the_mean_is_over_the_set_and_not_over_all_ranks),
        CASE(an_update_waits_for_its_set_though_all_ranks_have_arrived),
        CASE(the_settings_are_those_of_the_lowest_rank_of_the_set),
        CASE(a_broadcast_is_a_round_of_all_ranks_and_none_of_the_job),
        CASE(an_update_of_another_round_of_the_job_is_refused),
        CASE(a_rule_without_following_has_no_sets),
        CASE(a_dropped_gradient_is_not_answered_before_its_rank_takes),
        CASE(a_gradient_after_the_close_is_not_answered_either),
        CASE(a_taker_gets_the_round_that_it_wants_though_the_next_is_committed),
        CASE(a_taker_of_a_round_that_is_gone_learns_the_newest),
        CASE(a_taker_waits_for_a_round_that_is_not_committed_here),
        CASE(two_takers_of_different_rounds_both_get_theirs),
        CASE(an_answer_writes_to_no_state),
        CASE(a_stopped_taker_delays_no_round),
        CASE(a_stopped_taker_delays_no_other_taker),
        CASE(a_piece_with_a_write_on_its_way_to_a_taker_is_not_frozen),
        CASE(a_taker_that_leaves_is_forgotten),
        CASE(a_slot_without_memory_fails_the_job_in_words),
        CASE(a_new_owner_gets_the_round_of_the_job),
        CASE(a_new_owner_answers_a_taker_of_the_open_round),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
