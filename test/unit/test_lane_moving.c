/* A piece goes from one lane to another while its job trains (A26 to A29 of svc/aggregator), as
 * transcripts: two lanes, the same workers on both. */
#include "svc/aggregator/release.h"
#include "svc/reduce/reduce.h"
#include "test/unit/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG (RIG_LANDING / sizeof(float)) /* elements: several turns of a lane */
#define SHORT 1000
#define W 1       /* the piece */
#define NEXT 1000 /* to the new owner a worker speaks under other words (W5) */

static const char *kind;
static struct rig from, to, alone;
static struct lane_piece spec;

static int clear(void **state)
{
    from = to = alone = (struct rig){0};
    return 0;
}

static int stop(void **state)
{
    if (from.lane)
        rig_stop(&from);
    if (to.lane)
        rig_stop(&to);
    if (alone.lane)
        rig_stop(&alone);
    return 0;
}

static void open_lane(struct rig *rig, uint32_t ranks, bool recovering)
{
    rig_start(rig, kind);
    rig_place_piece(rig, ranks, spec, recovering);
    for (uint32_t rank = 0; rank < ranks; rank++)
        rig_connect(rig, rank, RIG_JOB, rank);
    rig->count = ranks;
}

static void start(uint32_t ranks, uint64_t elements, struct lane_terms terms)
{
    spec = (struct lane_piece){.id = W, .elements = elements, .terms = terms};
    open_lane(&from, ranks, false);
}

static void say(struct rig *rig, uint32_t rank, uint64_t round, uint8_t operation, uint8_t standing)
{
    bool is_idle = standing == RECORD_IDLE, is_set = operation == RECORD_BROADCAST;
    rig_say(rig, rank,
            (struct say){.piece = W,
                         .word = (uint32_t)round + (rig == &to ? NEXT : 0),
                         .round = round,
                         .elements = is_idle ? 0 : spec.elements,
                         .operation = operation,
                         .standing = standing,
                         .has_no_input = is_idle || (is_set && rank > 0),
                         .has_no_output = is_idle || (is_set && rank == 0)});
}

static void fill(struct rig *rig, uint32_t rank, float value)
{
    for (uint64_t e = 0; e < spec.elements; e++)
        rig_input(rig, rank, 0)[e] = value;
}

static void push(struct rig *rig, uint32_t rank, uint64_t round, float value)
{
    fill(rig, rank, value);
    say(rig, rank, round, RECORD_SUM, RECORD_ANNOUNCE);
}

static void stand(struct rig *rig, uint32_t rank, uint64_t round, uint8_t standing)
{
    say(rig, rank, round, RECORD_SUM, standing);
}

static void expect(struct rig *rig, uint32_t rank, float value)
{
    for (uint64_t e = 0; e < spec.elements; e++) {
        if (rig_landing(rig, rank, 0)[e] != value)
            fail_msg("rank %u element %llu: %.9g, not %.9g", rank, (unsigned long long)e,
                     rig_landing(rig, rank, 0)[e], value);
    }
}

/* The newest that the rank was told is of this round. */
static void expect_commit(struct rig *rig, uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig->workers[rank];
    uint32_t word = (uint32_t)round + (rig == &to ? NEXT : 0);
    rig_until(rig, w->commits_count > 0 && w->commits[(w->commits_count - 1) % 4096] == word);
    assert_int_equal(w->errors_count, 0);
}

static void expect_error(struct rig *rig, uint32_t rank, int code)
{
    rig_until(rig, rig->workers[rank].errors_count > 0);
    assert_int_equal(rig->workers[rank].error.code, code);
    rig->workers[rank].errors_count = 0;
}

static void do_round(struct rig *rig, uint64_t round, float sum)
{
    for (uint32_t rank = 0; rank < rig->count; rank++)
        push(rig, rank, round, rank == 0 ? sum - (float)(rig->count - 1) : 1);
    for (uint32_t rank = 0; rank < rig->count; rank++) {
        expect_commit(rig, rank, round);
        expect(rig, rank, sum);
    }
}

/* ---- what a coordinator does ---- */

static const uint32_t w[] = {W};

static void release(void)
{
    assert_int_equal(lane_release(from.lane, RIG_JOB, w, 1), 0);
    rig_until(&from, lane_rested(from.lane, RIG_JOB, w, 1) == 1);
}

/* In parts, the first of which is as short as may be. */
static uint64_t hand_over_state(size_t part)
{
    static char data[RIG_REGION_BYTES];
    uint64_t offset = 0;
    for (size_t room = LANE_STATE_HEAD_BYTES;; room = part) {
        int64_t bytes = lane_state_read(from.lane, RIG_JOB, W, offset, data, room);
        assert_true(bytes >= 0);
        if (bytes == 0)
            return offset;
        assert_int_equal(lane_state_put(to.lane, RIG_JOB, W, offset, data, (size_t)bytes), 0);
        offset += (uint64_t)bytes;
    }
}

static uint64_t hand_over(void)
{
    struct lane_standing standing;
    assert_int_equal(lane_standing(from.lane, RIG_JOB, W, &standing), 0);
    if (standing.state_bytes > 0)
        assert_int_equal(hand_over_state(30001), standing.state_bytes);
    assert_int_equal(lane_install(to.lane, RIG_JOB, w, &standing.round, 1), 0);
    return standing.round;
}

static void move(uint64_t round)
{
    open_lane(&to, from.count, true);
    release();
    assert_int_equal(hand_over(), round);
    lane_drop(from.lane, RIG_JOB, w, 1);
}

/* Everybody has announced, and the lane has begun. */
static void begin_round(uint64_t round, float sum)
{
    for (uint32_t rank = 0; rank < from.count; rank++)
        push(&from, rank, round, rank == 0 ? sum - (float)(from.count - 1) : 1);
    while (lane_is_quiet(from.lane))
        (void)lane_poll(from.lane, rig_now());
}

/* ---- letting go ---- */

static void a_round_that_has_begun_is_finished_and_no_other_begins(void **state)
{
    start(2, LONG, (struct lane_terms){0});
    begin_round(1, 5);
    assert_int_equal(lane_release(from.lane, RIG_JOB, w, 1), 0);
    assert_int_equal(lane_rested(from.lane, RIG_JOB, w, 1), 0);
    assert_int_equal(from.rests, 0);
    expect_commit(&from, 0, 1);
    expect_commit(&from, 1, 1);
    expect(&from, 1, 5);
    assert_int_equal(lane_rested(from.lane, RIG_JOB, w, 1), 1);
    assert_int_equal(from.rests, 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        push(&from, rank, 2, 4);
    rig_settle(&from);
    assert_int_equal(from.workers[0].words_count, 1);
    rig_until(&from, lane_is_quiet(from.lane));
}

/* The next round is announced while the last is summed: with its commit it would begin. */
static void what_is_announced_before_the_round_ends_waits_too(void **state)
{
    start(2, LONG / 2, (struct lane_terms){0});
    begin_round(1, 5);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&from, rank,
                (struct say){.piece = W,
                             .word = 2,
                             .round = 2,
                             .elements = LONG / 2,
                             .offset = RIG_LANDING / 2});
    assert_int_equal(lane_release(from.lane, RIG_JOB, w, 1), 0);
    rig_until(&from, lane_rested(from.lane, RIG_JOB, w, 1) == 1);
    rig_settle(&from);
    assert_int_equal(from.workers[0].words_count, 1);
    lane_thaw(from.lane, RIG_JOB, w, 1);
    expect_commit(&from, 0, 2);
    expect_commit(&from, 1, 2);
}

static void a_thaw_serves_what_has_waited(void **state)
{
    start(2, SHORT, (struct lane_terms){0});
    do_round(&from, 1, 3);
    release();
    assert_int_equal(from.rests, 0); /* it rested when it was asked */
    push(&from, 0, 2, 4);
    push(&from, 1, 2, 5);
    rig_settle(&from);
    assert_int_equal(from.workers[0].words_count, 1);
    lane_thaw(from.lane, RIG_JOB, w, 1);
    expect_commit(&from, 0, 2);
    expect(&from, 0, 9);
    assert_int_equal(lane_is_releasing(from.lane, RIG_JOB, w, 1), -ECANCELED);
}

static void bits_without_a_quorum_wait_and_questions_are_answered(void **state)
{
    struct record_query query = {.kind = RECORD_QUERY, .word = 1, .piece = W, .round = 1};
    start(2, SHORT, (struct lane_terms){0});
    push(&from, 0, 1, 4);
    rig_settle(&from);
    release();
    assert_int_equal(fabric_send(from.workers[0].conn, &query, sizeof query, NULL, 0), 0);
    rig_until(&from, from.workers[0].missing_count == 1);
    assert_int_equal(from.workers[0].missing.ranks[0], 2);
    assert_true(lane_is_quiet(from.lane));
    lane_thaw(from.lane, RIG_JOB, w, 1);
    push(&from, 1, 1, 5);
    expect_commit(&from, 0, 1);
    expect(&from, 0, 9);
}

/* ---- going on ---- */

static void a_moved_piece_goes_on_with_the_next_round(void **state)
{
    start(3, SHORT, (struct lane_terms){0});
    do_round(&from, 1, 7);
    move(1);
    stand(&to, 0, 1, RECORD_IDLE);
    do_round(&to, 2, 8);
    do_round(&to, 3, 9);
    assert_int_equal(to.workers[0].commits_count, 2);
}

/* It need not wait for the others: the lane knows what is committed. */
static void who_missed_the_end_of_the_last_round_is_told_at_once(void **state)
{
    start(3, SHORT, (struct lane_terms){0});
    do_round(&from, 1, 7);
    move(1);
    stand(&to, 1, 1, RECORD_ANNOUNCE);
    expect_commit(&to, 1, 1);
    stand(&to, 2, 1, RECORD_HOLDS);
    expect_commit(&to, 2, 1);
    assert_int_equal(to.workers[1].words_count + to.workers[2].words_count, 0);
    do_round(&to, 2, 8);
}

static void who_keeps_a_result_goes_on_with_what_it_announces(void **state)
{
    start(2, SHORT, (struct lane_terms){0});
    do_round(&from, 1, 7);
    move(1);
    stand(&to, 0, 1, RECORD_KEEPS);
    push(&to, 0, 2, 1);
    stand(&to, 1, 1, RECORD_ANNOUNCE);
    expect_commit(&to, 1, 1);
    push(&to, 1, 2, 2);
    expect_commit(&to, 0, 2);
    expect(&to, 1, 3);
    assert_int_equal(to.workers[0].commits_count, 1);
}

static void before_its_first_round_a_moved_piece_asks_its_workers(void **state)
{
    start(2, SHORT, (struct lane_terms){0});
    push(&from, 0, 1, 4);
    rig_settle(&from);
    move(0);
    do_round(&to, 1, 9);
}

static void a_standing_that_cannot_be_is_refused_and_the_piece_goes_on(void **state)
{
    static const struct {
        uint64_t round;
        uint8_t standing;
    } lies[] = {{1, RECORD_IDLE},  {3, RECORD_IDLE},     {1, RECORD_HOLDS},   {3, RECORD_HOLDS},
                {3, RECORD_KEEPS}, {1, RECORD_ANNOUNCE}, {5, RECORD_ANNOUNCE}};
    start(2, SHORT, (struct lane_terms){0});
    do_round(&from, 1, 7);
    do_round(&from, 2, 8);
    move(2);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        stand(&to, 1, lies[i].round, lies[i].standing);
        expect_error(&to, 1, -EPROTO);
    }
    do_round(&to, 3, 9);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, clear, stop)
static const struct CMUnitTest cases[] = {
    CASE(a_round_that_has_begun_is_finished_and_no_other_begins),
    CASE(what_is_announced_before_the_round_ends_waits_too),
    CASE(a_thaw_serves_what_has_waited),
    CASE(bits_without_a_quorum_wait_and_questions_are_answered),
    CASE(a_moved_piece_goes_on_with_the_next_round),
    CASE(who_missed_the_end_of_the_last_round_is_told_at_once),
    CASE(who_keeps_a_result_goes_on_with_what_it_announces),
    CASE(before_its_first_round_a_moved_piece_asks_its_workers),
    CASE(a_standing_that_cannot_be_is_refused_and_the_piece_goes_on),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
