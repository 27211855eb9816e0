/* A piece with a copy on another aggregator (a replica). The test runs its lane, its workers and
 * the holders of its copies step by step (svc/wire, W20). */
#ifndef GRADPOOL_TEST_HOLDER_RIG_H
#define GRADPOOL_TEST_HOLDER_RIG_H

#include "svc/lane/chunk/transfer_types.h"
#include "svc/lane/job/table.h"
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"

/* number of elements in six chunks, more than the lane handles in a turn */
#define ELEMENTS (330000 / TRANSFER_SHORTER)
#include "test/unit/lane/update_rig.h"

#define RANKS 2
#define ARRAYS 3 /* number of arrays: parameters and the two moments of Adam */
#define STATE_BYTES (ARRAYS * BYTES)
/* bytes of a half of the copy: a state, followed by its stamp */
#define HALF_BYTES (STATE_BYTES + 64)
/* Indices of the rig's workers that store copies, and the numbers of these workers as
 * aggregators. */
#define HOLDER 2
#define OTHER 3
#define NUMBER(i) (40 + (i))
#define NOTE 4711

static const uint32_t pieces[] = {W};
static const uint64_t halves[2] = {64, 64 + HALF_BYTES};

/* ---- replica holders ---- */

static inline const float *copy_of(uint32_t i, uint64_t round)
{
    return rig_input(&rig, i, halves[round & 1]);
}

static inline struct record_stamp stamp_of(uint32_t i, uint64_t round)
{
    struct record_stamp stamp;
    memcpy(&stamp, (const char *)copy_of(i, round) + STATE_BYTES, sizeof stamp);
    return stamp;
}

/* Returns whether half i has this stamp at the place where a holder reads it. */
static inline bool has_stamp(uint32_t i, uint64_t round, uint64_t steps)
{
    struct record_stamp stamp = stamp_of(i, round);
    return stamp.round == round && stamp.steps == steps;
}

static inline void connect_holder(uint32_t i)
{
    rig_connect(&rig, i, RIG_JOB, RECORD_HOLDER | NUMBER(i));
}

static inline bool lane_has(uint32_t i)
{
    const struct lane_job *job = job_find(rig.lane, RIG_JOB);
    uint32_t number = i < RANKS ? i : RECORD_HOLDER | NUMBER(i);
    for (uint32_t k = 0; job && k < job_peers(job); k++)
        if (job->workers[k].number == number && job->workers[k].conn)
            return true;
    return false;
}

/* Ends the worker's connection, and waits until the lane has detected the end. Before this
 * detection the lane would refuse a new connection. */
static inline void end_connection(uint32_t i)
{
    fabric_disconnect(rig.workers[i].conn);
    fabric_flush(rig.workers[i].fabric);
    rig_until(&rig, rig.workers[i].is_closed && !lane_has(i));
}

static inline void connect_again(uint32_t i)
{
    struct rig_worker *w = &rig.workers[i];
    struct record_connect ticket = rig_ticket(&rig, RIG_JOB, RECORD_HOLDER | NUMBER(i));
    w->is_open = w->is_closed = false;
    assert_int_equal(fabric_connect(w->fabric, rig.address, &ticket, sizeof ticket, w, &w->conn),
                     0);
    rig_until(&rig, w->is_open);
    assert_int_equal(fabric_lend(w->conn, &w->region, 0), 0);
}

static inline struct record_backup backup(void)
{
    return (struct record_backup){
        .kind = RECORD_BACKUP, .piece = W, .note = NOTE, .offset = {halves[0], halves[1]}};
}

static inline void send_backup(uint32_t i, const struct record_backup *told)
{
    assert_int_equal(fabric_send(rig.workers[i].conn, told, sizeof *told, NULL, 0), 0);
}

/* Reports the stored copies to the lane, with the rounds of their stamps, like a replica holder. */
static inline void keep(uint32_t i)
{
    struct record_backup told = backup();
    for (uint64_t half = 0; half < 2; half++) {
        told.rounds[half] = stamp_of(i, half).round;
        told.steps[half] = stamp_of(i, half).steps;
        told.ranks[half] = stamp_of(i, half).ranks;
    }
    send_backup(i, &told);
}

/* ---- a lane ---- */

static inline void place(bool recovering)
{
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS,
                    (struct lane_piece){.id = W,
                                        .elements = ELEMENTS,
                                        .terms = {.rule = UPDATE_ADAM},
                                        .holder = NUMBER(HOLDER)},
                    recovering);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
    tell(0, &usual);
}

static inline void follow(uint64_t from, uint64_t to)
{
    for (uint64_t round = from; round <= to; round++) {
        update_all(round);
        model_update(UPDATE_ADAM, round, &usual);
        expect_model(0);
    }
}

/* Sets the parameters in round 1. The holder stores a copy of them. */
static inline void start_with_holder(uint64_t rounds)
{
    place(false);
    connect_holder(HOLDER);
    keep(HOLDER);
    set(1);
    model_set();
    follow(2, rounds);
}

static inline void announce_all(uint64_t round)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        update(rank, round);
}

static inline void expect_commit(uint64_t round)
{
    await_commit(round);
    model_update(UPDATE_ADAM, round, &usual);
    expect_model(0);
}

static inline int commits(void)
{
    return rig.workers[0].commits_count + rig.workers[1].commits_count;
}

static inline int errors(void) { return rig.workers[0].errors_count + rig.workers[1].errors_count; }

/* Checks that no rank receives a commit or an error. */
static inline void expect_waiting(void)
{
    int before = commits();
    rig_settle(&rig);
    assert_int_equal(commits(), before);
    assert_int_equal(errors(), 0);
}

static inline void expect_kept(uint32_t i, uint64_t round)
{
    assert_memory_equal(copy_of(i, round), model, STATE_BYTES);
    assert_true(has_stamp(i, round, round - 1));
}

/* Runs until some, but not all chunks of the round have been summed and stored. */
static inline void begin_round(uint64_t round)
{
    announce_all(round);
    rig_until_busy(&rig);
}

/* ---- a new owner, another replica holder ---- */

static char kept[2 * HALF_BYTES];

static inline void lose_lane(void)
{
    memcpy(kept, rig_input(&rig, HOLDER, halves[0]), sizeof kept);
    rig_stop(&rig);
    place(true);
}

static inline void bring_copy(void)
{
    connect_holder(HOLDER);
    memcpy(rig_input(&rig, HOLDER, halves[0]), kept, sizeof kept);
}

static char moved[STATE_BYTES + LANE_STATE_HEAD_BYTES];

/* Releases the piece and reads its state. Returns the size of the state. */
static inline size_t let_go(struct lane_standing *ret_standing)
{
    assert_int_equal(lane_release(rig.lane, RIG_JOB, pieces, 1), 0);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, pieces, 1) == 1);
    assert_int_equal(lane_standing(rig.lane, RIG_JOB, W, ret_standing), 0);
    int64_t bytes = lane_state_read(rig.lane, RIG_JOB, W, 0, moved, sizeof moved);
    assert_int_equal(bytes, ret_standing->state_bytes);
    return (size_t)bytes;
}

static inline void hand_over(size_t bytes, uint64_t round)
{
    assert_int_equal(lane_state_put(rig.lane, RIG_JOB, W, 0, moved, bytes), 0);
    assert_int_equal(lane_install(rig.lane, RIG_JOB, pieces, &round, 1), 0);
}

static inline void expect_let_go(uint32_t i)
{
    rig_until(&rig, rig.workers[i].backed_count == 1);
    assert_int_equal(rig.workers[i].backed.piece, W);
    assert_int_equal(rig.workers[i].backed.note, NOTE);
    assert_int_equal(rig.workers[i].backed.round, RECORD_ROUND_NONE);
}

static inline void expect_filled(uint32_t i, uint64_t round)
{
    rig_until(&rig, rig.workers[i].backed_count == 1);
    assert_int_equal(rig.workers[i].backed.round, round);
    assert_int_equal(rig.workers[i].backed.steps, round - 1);
    expect_kept(i, round);
}

static inline void name(uint32_t holder, bool when_known)
{
    lane_set_holder(rig.lane, RIG_JOB, pieces, 1, holder, when_known);
}

/* ---- changes of ranks ---- */

ONE_THREAD static inline void say_anew(uint32_t rank, uint64_t round, uint8_t standing)
{
    bool is_idle = standing == RECORD_IDLE;
    for (uint64_t e = 0; e < ELEMENTS && !is_idle; e++)
        rig_input(&rig, rank, 0)[e] = gradient(rank, round, e);
    rig_say(&rig, rank,
            (struct say){.piece = W,
                         .word = (uint32_t)round,
                         .round = round,
                         .epoch = 2,
                         .elements = ELEMENTS,
                         .operation = RECORD_UPDATE,
                         .standing = standing,
                         .has_no_input = is_idle,
                         .has_no_output = is_idle});
}

/* Regroups the piece on its lane for these ranks, like a coordinator. */
static inline void regroup(uint64_t ranks)
{
    const uint64_t left[RECORD_MISSING_WORDS] = {ranks}, gone[RECORD_MISSING_WORDS] = {3 & ~ranks};
    const struct lane_piece spec = {.id = W,
                                    .task = 1,
                                    .dtype = REDUCE_F32,
                                    .elements = ELEMENTS,
                                    .tensor = "w",
                                    .terms = {.rule = UPDATE_ADAM},
                                    .ranks = left,
                                    .holder = NUMBER(HOLDER)};
    assert_int_equal(lane_release(rig.lane, RIG_JOB, pieces, 1), 0);
    lane_let_go(rig.lane, RIG_JOB, gone);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, pieces, 1) == 1);
    assert_int_equal(lane_regroup(rig.lane, RIG_JOB, 2, &spec, 1), 0);
    rig.count = ranks == 3 ? 2 : 1;
}

#endif
