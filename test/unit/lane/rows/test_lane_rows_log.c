/* Tests the log of changed rows from an owner to a replica lane: the copy of all rows, changes that
 * follow, words that wait, invalid offers and blocks. */
#include "svc/lane/rows/bulk/bulk.h"
#include "test/lib/kept_log.h"
#include "test/unit/lane/rows/log_rig.h"

/* ---- the copy ---- */

static void a_copy_of_a_filled_table_becomes_whole(void **state)
{
    start(TABLE_TERMS_BSP);
    run_clock(&old, KEYS);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    assert_true(the_copy()->is_whole);
    assert_int_equal(promote(), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        stand(rank, 1);
    rows_have(&next, RANKS);
    stop();
}

static void changes_during_the_copy_follow(void **state)
{
    start(TABLE_TERMS_ASP);
    for (int i = 0; i < 3; i++)
        run_clock(&old, KEYS);
    begin_copy();
    until(the_log()->state == ROW_LOG_COPYING);
    for (int i = 0; i < 5; i++) {
        run_clock(&old, KEYS);
        run_clock(&old, KEYS / 3);
        run_clock(&old, KEYS / 7);
    }
    until(the_log()->state == ROW_LOG_WHOLE);
    run_clock(&old, KEYS);
    assert_int_equal(promote(), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        stand(rank, old.workers[rank].clock.ended);
    run_clock(&next, KEYS - KEYS / 3);
    float row[DIM], last[DIM];
    struct rows_asked *pull = rows_pull(&next, 1, &keys[0], 1);
    rows_take(&next, pull, row);
    rows_asked_free(pull);
    pull = rows_pull(&next, 1, &keys[KEYS - 1], 1);
    rows_take(&next, pull, last);
    rows_asked_free(pull);
    assert_float_equal(row[3], START - RATE * RANKS * (3 + 15 + 1 + 1), 0);
    assert_float_equal(last[3], START - RATE * RANKS * (3 + 5 + 1), 0);
    stop();
}

/* The replica lane has no place for a failed table, so its blocks would damage each copy. */
static void a_failed_table_is_not_in_the_log(void **state)
{
    const uint32_t failed = ROWS_TABLE + 1;
    const struct lane_log_spec spec = {NUMBER, COPY, &failed, 1};
    struct lane_shard_spec shards[SHARDS];
    start(TABLE_TERMS_BSP);
    struct lane_table_spec table = {failed, "items", &old.terms, ROWS_SALT};
    for (uint32_t i = 0; i < SHARDS; i++)
        shards[i] = (struct lane_shard_spec){i, ROWS_EPOCH};
    assert_int_equal(lane_place_table(owner(), RIG_JOB, &table, shards, SHARDS), 0);
    place_copy();
    assert_int_equal(lane_begin_log(owner(), RIG_JOB, &spec), 0);
    offer_ring();
    until(the_log()->state == ROW_LOG_WHOLE);
    run_clock(&old, KEYS);
    assert_false(the_copy()->is_damaged);
    assert_int_equal(promote(), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        stand(rank, 1);
    rows_have(&next, RANKS);
    stop();
}

static uint32_t reports;
static bool was_whole;
static void count_report(void *context, const struct lane_log_report *report)
{
    assert_int_equal(report->job, RIG_JOB);
    assert_int_equal(report->copy, COPY);
    was_whole = report->is_whole;
    reports++;
}

static void a_copy_is_reported_once_and_again_after_a_join(void **state)
{
    reports = 0;
    start(TABLE_TERMS_BSP);
    begin_copy();
    lane_each_log_report(owner(), true, count_report, NULL);
    assert_int_equal(reports, 0);
    until(the_log()->state == ROW_LOG_WHOLE);
    lane_each_log_report(owner(), false, count_report, NULL);
    lane_each_log_report(owner(), false, count_report, NULL);
    assert_int_equal(reports, 1);
    assert_true(was_whole);
    lane_each_log_report(owner(), true, count_report, NULL);
    assert_int_equal(reports, 2);
    stop();
}

/* An import repeats its hold until all lanes hold the table. */
static void a_repeated_hold_breaks_no_later_log(void **state)
{
    struct bulk_standing standing;
    start(TABLE_TERMS_ASP);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    assert_int_equal(bulk_hold(owner(), RIG_JOB, ROWS_TABLE, 0, true, &standing), 0);
    assert_int_equal(the_log()->state, ROW_LOG_BROKEN);
    assert_int_equal(begin_log(NUMBER, COPY + 1), 0);
    assert_int_equal(bulk_hold(owner(), RIG_JOB, ROWS_TABLE, 0, true, &standing), 0);
    assert_int_equal(the_log()->state, ROW_LOG_AWAITED);
    stop();
}

/* ---- words and room ---- */

static void a_full_ring_delays_updates_and_no_pull(void **state)
{
    start(TABLE_TERMS_ASP);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    is_mute = true;
    struct rows_asked *asked[3];
    rows_forget_memory(&old, 0);
    for (int i = 0; i < 3; i++)
        asked[i] = push(&old, 0, KEYS);
    for (int i = 0; i < 3; i++)
        rows_asked_free(asked[i]);
    until(!row_log_may_update(tables_of(owner())));
    struct rows_asked *pull = rows_pull(&old, 1, keys, 4);
    rows_wait(&old, pull);
    rows_asked_free(pull);
    assert_false(row_log_may_update(tables_of(owner())));
    is_mute = false;
    until(count_pushes() == 0);
    stop();
}

static void words_of_pushes_wait_when_the_replica_lane_is_lost(void **state)
{
    start(TABLE_TERMS_BSP);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    run_clock(&old, 100);
    fabric_disconnect(holder()->conn);
    until(the_log()->state == ROW_LOG_BROKEN);
    reports = 0;
    lane_each_log_report(owner(), false, count_report, NULL);
    assert_int_equal(reports, 1);
    assert_false(was_whole);
    struct rows_asked *asked[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++)
        asked[rank] = push(&old, rank, 100);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rows_clock(&old, rank);
    struct rows_asked *pull = rows_pull(&old, 0, keys, 10);
    rows_wait(&old, pull); /* the rows are updated, and pulls do not wait */
    rows_settle(&old);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_false(rows_is_done(&old, asked[rank]));
    lane_end_log(owner(), RIG_JOB);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        rows_wait(&old, asked[rank]);
        rows_asked_free(asked[rank]);
    }
    rows_asked_free(pull);
    stop();
}

static void words_wait_for_no_copy_that_is_not_whole(void **state)
{
    start(TABLE_TERMS_BSP);
    assert_int_equal(begin_log(NUMBER, COPY), 0);
    run_clock(&old, 10);
    assert_int_equal(begin_log(NUMBER + 1, COPY + 1), 0);
    run_clock(&old, 10);
    stop();
}

/* Every unused request of the lane has a position in the first log, which is longer than the
 * second. */
static void a_refused_push_does_not_wait_for_a_former_log(void **state)
{
    const struct record_ring ring = {.kind = RECORD_RING, .copy = COPY + 1};
    start(TABLE_TERMS_BSP);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    for (uint32_t i = 0; i <= record_row_requests(RANKS); i++)
        run_clock(&old, 100);
    assert_int_equal(begin_log(NUMBER, COPY + 1), 0);
    assert_int_equal(fabric_send(holder()->conn, &ring, sizeof ring, NULL, 0), 0);
    until(the_log()->state == ROW_LOG_ENDING);
    assert_true(the_log()->holds_words);
    for (uint32_t i = 0; i < SHARDS; i++)
        old.route.shards[i].epoch = ROWS_EPOCH + 1;
    rows_asked_free(push(&old, 0, 10));
    until(old.lanes[0].workers[0].errors_count == 1);
    assert_int_equal(old.lanes[0].workers[0].error.code, -ESTALE);
    stop();
}

/* ---- invalid records and blocks ---- */

static void the_lane_disconnects(const void *record, size_t bytes, const char *words)
{
    kept_log_begin();
    assert_int_equal(fabric_send(holder()->conn, record, bytes, NULL, 0), 0);
    until(holder()->is_closed);
    kept_log_expect(words);
    assert_int_equal(job_find(owner(), RIG_JOB)->failure, 0);
}

static void a_ring_outside_the_lent_memory_is_refused(void **state)
{
    const struct record_ring wrong[] = {
        {.kind = RECORD_RING, .copy = COPY, .offset = 4096},
        {.kind = RECORD_RING, .copy = COPY, .offset = UINT64_MAX - 4095},
        {.kind = RECORD_RING, .copy = COPY, .region = 1},
        {.kind = RECORD_RING, .copy = COPY, .region = UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        start(TABLE_TERMS_BSP);
        assert_int_equal(begin_log(NUMBER, COPY), 0);
        the_lane_disconnects(&wrong[i], sizeof wrong[i],
                             "a ring outside the memory that the sender has lent");
        stop();
    }
}

static void a_position_beyond_the_log_ends_the_connection(void **state)
{
    const struct record_taken beyond = {.kind = RECORD_TAKEN, .position = LOG_RING_BYTES};
    start(TABLE_TERMS_BSP);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    the_lane_disconnects(&beyond, sizeof beyond, "a position of a log beyond its end");
    until(the_log()->state == ROW_LOG_BROKEN);
    stop();
}

static void a_ring_of_another_copy_is_not_used(void **state)
{
    const struct record_ring other = {.kind = RECORD_RING, .copy = COPY + 1};
    start(TABLE_TERMS_BSP);
    assert_int_equal(begin_log(NUMBER, COPY), 0);
    assert_int_equal(fabric_send(holder()->conn, &other, sizeof other, NULL, 0), 0);
    settle();
    assert_int_equal(the_log()->state, ROW_LOG_AWAITED);
    stop();
}

/* Writes a block into the ring, and checks that the copy is damaged. */
static void damages(const struct log_head *head, size_t payload_bytes)
{
    struct log_writer writer;
    char *ring = holder()->region.base;
    kept_log_begin();
    log_writer_init(&writer, COPY);
    memset(log_open(&writer, ring, payload_bytes), 1, payload_bytes);
    log_seal(&writer, ring, head, payload_bytes);
    place_copy();
    lane_copy_logged(replica(), RIG_JOB, RIG_LANE, COPY, writer.end);
    until(the_copy()->is_damaged);
    kept_log_expect("; its copy of the tables ends");
    assert_int_equal(promote(), -EBADMSG);
    lane_drop_copy(replica(), RIG_JOB, RIG_LANE);
}

static void a_block_that_does_not_fit_damages_the_copy(void **state)
{
    const uint32_t t = ROWS_TABLE;
    start(TABLE_TERMS_BSP);
    damages(&(struct log_head){.kind = LOG_ROWS, .table = t + 1, .clock = 1}, 0);
    damages(&(struct log_head){.kind = LOG_ROWS, .table = t, .clock = 1, .shard = SHARDS}, 264);
    damages(&(struct log_head){.kind = LOG_ROWS, .table = t, .clock = 1}, 265);
    damages(&(struct log_head){.kind = LOG_ROWS, .table = t, .clock = 1, .rank = RANKS}, 0);
    damages(&(struct log_head){.kind = LOG_ROWS, .table = t, .clock = 1, .at_shard = 3}, 0);
    damages(&(struct log_head){.kind = LOG_ROWS, .table = t, .clock = 0}, 0);
    damages(&(struct log_head){.kind = LOG_STATE, .table = t}, 3);
    damages(&(struct log_head){.kind = LOG_STATE, .table = t}, 88);
    stop();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_of_a_filled_table_becomes_whole),
        cmocka_unit_test(changes_during_the_copy_follow),
        cmocka_unit_test(a_failed_table_is_not_in_the_log),
        cmocka_unit_test(a_copy_is_reported_once_and_again_after_a_join),
        cmocka_unit_test(a_repeated_hold_breaks_no_later_log),
        cmocka_unit_test(a_full_ring_delays_updates_and_no_pull),
        cmocka_unit_test(words_of_pushes_wait_when_the_replica_lane_is_lost),
        cmocka_unit_test(words_wait_for_no_copy_that_is_not_whole),
        cmocka_unit_test(a_refused_push_does_not_wait_for_a_former_log),
        cmocka_unit_test(a_ring_outside_the_lent_memory_is_refused),
        cmocka_unit_test(a_position_beyond_the_log_ends_the_connection),
        cmocka_unit_test(a_ring_of_another_copy_is_not_used),
        cmocka_unit_test(a_block_that_does_not_fit_damages_the_copy),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
