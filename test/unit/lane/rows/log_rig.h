/* An owner with a table, and a replica lane with its copy. The test plays the process of the
 * replica lane, which lends the ring, and the coordinator. */
#ifndef GRADPOOL_TEST_LOG_RIG_H
#define GRADPOOL_TEST_LOG_RIG_H

#include "svc/lane/job/table.h"
#include "svc/lane/rows/copy/copy.h"
#include "svc/lane/rows/log/row_log.h"
#include "svc/lane/rows/rows.h"
#include "test/unit/lane/rows/rows_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 2u
#define HOLDER RANKS /* index of the worker that lends the ring */
#define NUMBER 41    /* number of its aggregator */
#define COPY 5
#define NEXT_EPOCH 9
#define GROUP 7 /* group of the promoted table */
#define DIM 64
#define SHARDS 2
#define KEYS 10000u
#define START 4096.0f
#define RATE 0.25f

static struct rows_rig old, next;
static uint64_t keys[KEYS];
static float ones[KEYS * DIM];
static uint64_t relayed; /* last position that the owner has reported */
static bool is_mute;     /* no TAKEN is sent */

static inline struct table_terms terms_of(unsigned consistency)
{
    return (struct table_terms){.dim = DIM,
                                .shards = SHARDS,
                                .dtype = REDUCE_F32,
                                .rule = TABLE_TERMS_SGD,
                                .initial = TABLE_TERMS_CONSTANT,
                                .initial_value = START,
                                .consistency = consistency,
                                .staleness = consistency == TABLE_TERMS_SSP};
}

static inline struct lane *owner(void) { return old.lanes[0].lane; }
static inline struct lane *replica(void) { return next.lanes[0].lane; }
static inline struct rig_worker *holder(void) { return &old.lanes[0].workers[HOLDER]; }

static inline struct lane_tables *tables_of(struct lane *lane)
{
    return job_find(lane, RIG_JOB)->tables;
}

static inline struct row_log *the_log(void) { return tables_of(owner())->log; }
static inline struct row_copy *the_copy(void)
{
    return copy_find(job_find(replica(), RIG_JOB), RIG_LANE);
}

static inline void send_taken(uint64_t position)
{
    const struct record_taken record = {.kind = RECORD_TAKEN, .position = position};
    assert_int_equal(fabric_send(holder()->conn, &record, sizeof record, NULL, 0), 0);
}

static inline void take(void *context, const struct lane_copy_report *report)
{
    if (!report->is_damaged)
        send_taken(report->position);
}

/* Passes reports on between the lanes, as the processes do. */
static inline void relay(void)
{
    if (holder()->logged_count > 0 && holder()->logged.position > relayed) {
        relayed = holder()->logged.position;
        lane_copy_logged(replica(), RIG_JOB, RIG_LANE, holder()->logged.copy, relayed);
    }
    if (!is_mute)
        lane_each_copy_report(replica(), false, take, NULL);
}

static inline void turn(void)
{
    rows_turn_all(&old);
    rows_turn_all(&next);
    relay();
}

#define until(condition)                                     \
    do {                                                     \
        uint64_t until_ = rig_now() + UINT64_C(60000000000); \
        while (!(condition)) {                               \
            turn();                                          \
            if (rig_now() > until_)                          \
                fail_msg("never: %s", #condition);           \
        }                                                    \
    } while (0)

static inline void settle(void)
{
    for (int i = 0; i < 40; i++)
        turn();
}

static inline uint32_t count_pushes(void)
{
    uint32_t count = 0;
    list_for_each (node, &table_find(job_find(owner(), RIG_JOB), ROWS_TABLE)->queues->pushes)
        count++;
    return count;
}

static inline void place_copy(void)
{
    const struct lane_copy_spec copy = {
        .owner = RIG_LANE, .copy = COPY, .ring = holder()->region.base};
    struct lane_table_spec table = {ROWS_TABLE, "users", &old.terms, ROWS_SALT};
    struct lane_shard_spec shards[SHARDS];
    for (uint32_t i = 0; i < SHARDS; i++)
        shards[i] = (struct lane_shard_spec){i, ROWS_EPOCH};
    assert_int_equal(lane_place_copy(replica(), RIG_JOB, &copy, &table, shards, SHARDS), 0);
    assert_int_equal(lane_place_copy(replica(), RIG_JOB, &copy, &table, shards, SHARDS), 0);
}

static inline void offer_ring(void)
{
    const struct record_ring ring = {.kind = RECORD_RING, .copy = COPY};
    assert_int_equal(fabric_send(holder()->conn, &ring, sizeof ring, NULL, 0), 0);
}

static inline int begin_log(uint32_t aggregator, uint32_t copy)
{
    const struct lane_log_spec spec = {.holder = aggregator, .copy = copy};
    return lane_begin_log(owner(), RIG_JOB, &spec);
}

static inline void begin_copy(void)
{
    place_copy();
    assert_int_equal(begin_log(NUMBER, COPY), 0);
    offer_ring();
}

static const struct row_settings settings = {.rate = RATE};

static inline void start_without_settings(unsigned consistency)
{
    const struct table_terms terms = terms_of(consistency);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        ones[i] = 1;
    relayed = 0;
    is_mute = false;
    rows_start(&old, 1, RANKS, &terms);
    rows_start_without_table(&next, RANKS, &terms);
    rig_connect(&old.lanes[0], HOLDER, RIG_JOB, RECORD_HOLDER | NUMBER);
}

static inline void start(unsigned consistency)
{
    start_without_settings(consistency);
    rows_set(&old, &settings);
}

static inline void stop(void)
{
    rows_stop(&old);
    rows_stop(&next);
}

static inline struct rows_asked *push(struct rows_rig *r, uint32_t rank, size_t count)
{
    return rows_push(r, rank, keys, count, ones);
}

/* Runs one clock of all ranks, with one push each, and waits for the words. */
static inline void run_clock(struct rows_rig *r, size_t count)
{
    struct rows_asked *asked[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        rows_forget_memory(r, rank);
        asked[rank] = push(r, rank, count);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rows_clock(r, rank);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        until(rows_is_done(r, asked[rank]));
        rows_asked_free(asked[rank]);
    }
}

/* Checks that every row has had this number of gradients. */
static inline void rows_have(struct rows_rig *r, uint32_t gradients)
{
    float *rows = malloc(KEYS * DIM * sizeof *rows);
    rows_forget_memory(r, 0);
    struct rows_asked *pull = rows_pull(r, 0, keys, KEYS);
    rows_take(r, pull, rows);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        if (rows[i] != START - RATE * (float)gradients)
            fail_msg("key %u has had %f gradients, not %u", i / DIM, (START - rows[i]) / RATE,
                     gradients);
    rows_asked_free(pull);
    free(rows);
}

static inline int promote(void)
{
    const struct lane_promotion promotion = {
        .owner = RIG_LANE, .copy = COPY, .group = GROUP, .epoch = NEXT_EPOCH};
    for (uint32_t i = 0; i < SHARDS; i++)
        next.route.shards[i].epoch = NEXT_EPOCH;
    next.route.table = row_table_id(ROWS_TABLE, GROUP);
    return lane_promote_copy(replica(), RIG_JOB, &promotion);
}

/* Sends the standing of a rank that has ended `clock`. */
static inline void stand(uint32_t rank, uint64_t clock)
{
    const uint32_t table = next.route.table;
    struct record_clock record;
    next.workers[rank].clock.ended = clock;
    next.workers[rank].clock.sequence = old.workers[rank].clock.sequence;
    worker_clock_record(&next.workers[rank].clock, RECORD_CLOCK_STANDING, &table, 1, 0, &record);
    rows_send(&next, 0, rank, &record, sizeof record);
}

/* Repeats a push to the promoted lane: number `sequence`, in this clock. */
static inline struct rows_asked *repeat(uint32_t rank, uint64_t sequence, uint64_t clock,
                                        size_t count)
{
    next.workers[rank].clock = (struct worker_clock){.ended = clock - 1, .sequence = sequence - 1};
    return push(&next, rank, count);
}

#endif
