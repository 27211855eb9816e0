/* See moving_rig.h. */
#include "test/unit/lane/moving_rig.h"

#include "svc/lane/move/moved_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct moving moving;

int moving_clear(void **state)
{
    moving.from = moving.to = moving.alone = (struct rig){0};
    return 0;
}

int moving_stop(void **state)
{
    if (moving.from.lane)
        rig_stop(&moving.from);
    if (moving.to.lane)
        rig_stop(&moving.to);
    if (moving.alone.lane)
        rig_stop(&moving.alone);
    return 0;
}

void moving_open(struct rig *rig, uint32_t ranks, bool recovering)
{
    rig_start(rig, moving.kind);
    rig_place_piece(rig, ranks, moving.spec, recovering);
    for (uint32_t rank = 0; rank < ranks; rank++)
        rig_connect(rig, rank, RIG_JOB, rank);
    rig->count = ranks;
}

void moving_start(uint32_t ranks, uint64_t elements, struct lane_terms terms)
{
    moving.spec = (struct lane_piece){.id = MOVED, .elements = elements, .terms = terms};
    moving_open(&moving.from, ranks, false);
}

void moving_say(struct rig *rig, uint32_t rank, uint64_t round, uint8_t operation, uint8_t standing)
{
    bool is_idle = standing == RECORD_IDLE, is_set = operation == RECORD_BROADCAST;
    rig_say(rig, rank,
            (struct say){.piece = MOVED,
                         .word = (uint32_t)round + (rig == &moving.to ? MOVED_OFFSET : 0),
                         .round = round,
                         .elements = is_idle ? 0 : moving.spec.elements,
                         .operation = operation,
                         .standing = standing,
                         .has_no_input = is_idle || (is_set && rank > 0),
                         .has_no_output = is_idle || (is_set && rank == 0)});
}

static void fill(struct rig *rig, uint32_t rank, float value)
{
    for (uint64_t e = 0; e < moving.spec.elements; e++)
        rig_input(rig, rank, 0)[e] = value;
}

void push(struct rig *rig, uint32_t rank, uint64_t round, float value)
{
    fill(rig, rank, value);
    moving_say(rig, rank, round, RECORD_SUM, RECORD_ANNOUNCE);
}

void stand(struct rig *rig, uint32_t rank, uint64_t round, uint8_t standing)
{
    moving_say(rig, rank, round, RECORD_SUM, standing);
}

void expect(struct rig *rig, uint32_t rank, float value)
{
    for (uint64_t e = 0; e < moving.spec.elements; e++) {
        if (rig_landing(rig, rank, 0)[e] != value)
            fail_msg("rank %u element %llu: %.9g, not %.9g", rank, (unsigned long long)e,
                     rig_landing(rig, rank, 0)[e], value);
    }
}

/* Checks that the rank's newest commit belongs to this round. */
void expect_commit(struct rig *rig, uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig->workers[rank];
    uint32_t word = (uint32_t)round + (rig == &moving.to ? MOVED_OFFSET : 0);
    rig_until(rig, w->commits_count > 0 && w->commits[(w->commits_count - 1) % 4096] == word);
    assert_int_equal(w->errors_count, 0);
}

void expect_error(struct rig *rig, uint32_t rank, int code)
{
    rig_until(rig, rig->workers[rank].errors_count > 0);
    assert_int_equal(rig->workers[rank].error.code, code);
    rig->workers[rank].errors_count = 0;
}

void do_round(struct rig *rig, uint64_t round, float sum)
{
    for (uint32_t rank = 0; rank < rig->count; rank++)
        push(rig, rank, round, rank == 0 ? sum - (float)(rig->count - 1) : 1);
    for (uint32_t rank = 0; rank < rig->count; rank++) {
        expect_commit(rig, rank, round);
        expect(rig, rank, sum);
    }
}

/* ---- the coordinator's part ---- */

void moving_release(void)
{
    assert_int_equal(lane_release(moving.from.lane, RIG_JOB, moved, 1), 0);
    rig_until(&moving.from, lane_rested(moving.from.lane, RIG_JOB, moved, 1) == 1);
}

/* Moves the state in parts. The first part is as short as possible. */
static uint64_t hand_over_state(size_t part)
{
    static char data[RIG_REGION_BYTES];
    uint64_t offset = 0;
    for (size_t room = LANE_STATE_HEAD_BYTES;; room = part) {
        int64_t bytes = lane_state_read(moving.from.lane, RIG_JOB, MOVED, offset, data, room);
        assert_true(bytes >= 0);
        if (bytes == 0)
            return offset;
        assert_int_equal(
            lane_state_put(moving.to.lane, RIG_JOB, MOVED, offset, data, (size_t)bytes), 0);
        offset += (uint64_t)bytes;
    }
}

uint64_t moving_hand_over(void)
{
    struct lane_standing standing;
    assert_int_equal(lane_standing(moving.from.lane, RIG_JOB, MOVED, &standing), 0);
    if (standing.state_bytes > 0)
        assert_int_equal(hand_over_state(30001), standing.state_bytes);
    assert_int_equal(lane_install(moving.to.lane, RIG_JOB, moved, &standing.round, 1), 0);
    return standing.round;
}

void moving_move(uint64_t round)
{
    moving_open(&moving.to, moving.from.count, true);
    moving_release();
    assert_int_equal(moving_hand_over(), round);
    lane_drop(moving.from.lane, RIG_JOB, moved, 1);
}
