/* Tests holds of a table, and rows in bulk (A104). A held table applies no push. A hold waits for a
 * clock that the lane has begun. Imported rows equal the rows of the table from which they were
 * read. */
#include "svc/lane/job/table.h"
#include "svc/lane/rows/bulk/bulk.h"
#include "test/unit/lane/rows/rows_case.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROW_BYTES (sizeof(uint64_t) + DIM * sizeof(float))

static struct lane *lane(void) { return rig.lanes[0].lane; }

static struct bulk_standing hold(uint64_t clock, bool loads)
{
    struct bulk_standing standing;
    assert_int_equal(bulk_hold(lane(), RIG_JOB, ROWS_TABLE, clock, loads, &standing), 0);
    return standing;
}

static void end_hold(void)
{
    assert_int_equal(bulk_continue(lane(), RIG_JOB, ROWS_TABLE, NULL), 0);
}

static void end_clocks(void)
{
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
}

/* Reads all rows of all shards, `most` bytes at a time. Returns the number of bytes read. */
static size_t read_all(char *ret_rows, size_t most)
{
    size_t bytes = 0;
    for (uint32_t shard = 0; shard < users.shards; shard++) {
        struct bulk_part part = {0};
        while (!part.is_end) {
            assert_int_equal(bulk_read(lane(), RIG_JOB, ROWS_TABLE, shard, part.next,
                                       ret_rows + bytes, most, &part),
                             0);
            assert_true(part.bytes <= most);
            bytes += part.bytes;
        }
    }
    return bytes;
}

static void a_held_table_applies_no_push(void **state)
{
    start(2);
    push_ones(0);
    end_clocks();
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    struct bulk_standing standing = hold(0, false);
    assert_true(standing.is_held);
    assert_int_equal(standing.clock, 2);
    assert_int_equal(standing.steps, 1);
    assert_int_equal(standing.rows, KEYS);
    assert_int_equal(standing.row_bytes, ROW_BYTES);
    struct rows_asked *push = rows_push(&rig, 0, keys, KEYS, ones);
    end_clocks();
    rows_settle(&rig);
    assert_false(rows_is_done(&rig, push));
    assert_int_equal(hold(0, false).clock, 2);
    end_hold();
    rows_wait(&rig, push);
    rows_asked_free(push);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.5f);
    rows_stop(&rig);
}

static void a_hold_at_a_later_clock_waits_for_this_clock(void **state)
{
    start(2);
    push_ones(0);
    assert_false(hold(2, false).is_held);
    struct bulk_part part;
    char row[ROW_BYTES];
    assert_int_equal(bulk_read(lane(), RIG_JOB, ROWS_TABLE, 0, 0, row, sizeof row, &part), -EBUSY);
    end_clocks();
    rows_settle(&rig);
    struct bulk_standing standing = hold(2, false);
    assert_true(standing.is_held);
    assert_int_equal(standing.clock, 2);
    assert_int_equal(standing.rows, KEYS);
    end_hold();
    rows_stop(&rig);
}

static void rows_are_read_in_parts_of_any_length(void **state)
{
    char whole[KEYS * ROW_BYTES], parts[KEYS * ROW_BYTES];
    start(2);
    push_ones(0);
    end_clocks();
    rows_are(rows_pull(&rig, 1, keys, KEYS), START - 0.25f);
    assert_true(hold(0, false).is_held);
    assert_int_equal(read_all(whole, sizeof whole), sizeof whole);
    for (size_t most = ROW_BYTES; most < sizeof parts; most++) {
        assert_int_equal(read_all(parts, most < 2 * ROW_BYTES ? most : 2 * ROW_BYTES),
                         sizeof parts);
        assert_memory_equal(parts, whole, sizeof parts);
    }
    end_hold();
    rows_stop(&rig);
}

/* Stores the rows in a table with other shards. Absent keys keep their initial value. */
static void stored_rows_are_those_that_were_read(void **state)
{
    const struct bulk_updates updates = {.count = 1, .clock = 1};
    char rows[KEYS * ROW_BYTES];
    struct table_terms terms = users;
    start(2);
    push_ones(0);
    end_clocks();
    rows_are(rows_pull(&rig, 1, keys, KEYS), START - 0.25f);
    (void)hold(0, false);
    assert_int_equal(read_all(rows, sizeof rows), sizeof rows);
    rows_stop(&rig);
    terms.shards = 32;
    rows_start(&rig, 1, 2, &terms);
    rows_set(&rig, &settings);
    rows_settle(&rig);
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE, rows, sizeof rows), -EBUSY);
    assert_true(hold(0, true).is_held);
    struct rows_asked *pull = rows_pull(&rig, 0, keys, KEYS);
    rows_settle(&rig);
    assert_false(rows_is_done(&rig, pull));
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE, rows, sizeof rows), 0);
    assert_int_equal(bulk_continue(lane(), RIG_JOB, ROWS_TABLE, &updates), 0);
    rows_are(pull, START - 0.25f);
    assert_int_equal(hold(0, false).steps, 1);
    assert_int_equal(rows_stored(&rig), KEYS);
    rows_stop(&rig);
}

static struct bulk_standing hold_of(uint32_t at, bool loads)
{
    struct bulk_standing standing;
    assert_int_equal(bulk_hold(rig.lanes[at].lane, RIG_JOB, ROWS_TABLE, 0, loads, &standing), 0);
    return standing;
}

/* Without BSP, clocks end during a hold. A lane may learn of the end of such clocks before its own
 * hold ends. */
static void an_asynchronous_import_has_one_number_of_updates_on_all_lanes(void **state)
{
    struct table_terms terms = users;
    terms.consistency = TABLE_TERMS_ASP;
    const struct bulk_updates imported = {.count = 9, .clock = 1};
    rows_start(&rig, 2, 2, &terms);
    rows_settle(&rig);
    assert_true(hold_of(0, true).is_held && hold_of(1, true).is_held);
    assert_int_equal(bulk_continue(rig.lanes[0].lane, RIG_JOB, ROWS_TABLE, &imported), 0);
    end_clocks();
    rows_settle(&rig);
    assert_int_equal(hold_of(1, true).clock, 2);
    assert_int_equal(bulk_continue(rig.lanes[1].lane, RIG_JOB, ROWS_TABLE, &imported), 0);
    for (uint32_t at = 0; at < 2; at++)
        assert_int_equal(hold_of(at, false).steps, 10);
    rows_stop(&rig);
}

/* The clock that the coordinator names is two clocks later, and the file has no updates. */
static void an_asynchronous_import_counts_no_negative_number_of_updates(void **state)
{
    const struct bulk_updates none = {.count = 0, .clock = 3};
    const struct row_settings adam = {.rate = 0.25, .beta1 = 0.5, .beta2 = 0.5, .epsilon = 1e-8};
    struct table_terms terms = users;
    float rows[KEYS * DIM];
    terms.consistency = TABLE_TERMS_ASP;
    terms.rule = TABLE_TERMS_ADAM;
    rows_start(&rig, 1, 2, &terms);
    rows_set(&rig, &adam);
    rows_settle(&rig);
    assert_true(hold(0, true).is_held);
    assert_int_equal(bulk_continue(lane(), RIG_JOB, ROWS_TABLE, &none), 0);
    assert_int_equal(hold(0, false).steps, 0);
    end_hold();
    push_ones(0);
    end_clocks();
    struct rows_asked *pull = rows_pull(&rig, 0, keys, KEYS);
    rows_take(&rig, pull, rows);
    rows_asked_free(pull);
    for (int i = 0; i < KEYS * DIM; i++)
        assert_float_equal(rows[i], START - 0.25f, 1e-3);
    rows_stop(&rig);
}

static void rows_of_other_lanes_and_lengths_are_refused(void **state)
{
    struct table_terms terms = users;
    terms.keys = 1000;
    char rows[2 * ROW_BYTES] = {0};
    const uint64_t beyond = 1000;
    rows_start(&rig, 1, 2, &terms);
    rows_settle(&rig);
    assert_true(hold(0, true).is_held);
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE, rows, ROW_BYTES + 1), -EBADMSG);
    memcpy(rows, &beyond, sizeof beyond);
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE, rows, ROW_BYTES), -ERANGE);
    assert_int_equal(rows_stored(&rig), 0);
    struct bulk_part part;
    assert_int_equal(
        bulk_read(lane(), RIG_JOB, ROWS_TABLE, users.shards, 0, rows, sizeof rows, &part), -ENOENT);
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE + 1, rows, ROW_BYTES), -ENOENT);
    assert_int_equal(bulk_continue(lane(), RIG_JOB + 1, ROWS_TABLE, NULL), -ENOENT);
    rows_stop(&rig);
}

static void an_import_that_ends_early_fails_the_job(void **state)
{
    const char row[ROW_BYTES] = {7};
    start(2);
    rows_settle(&rig);
    assert_true(hold(0, true).is_held);
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE, row, sizeof row), 0);
    bulk_continue_all(lane());
    fails_in_midst(-ECANCELED, "table 'users' of job 'job' has a part of its rows");
    rows_stop(&rig);
}

/* The hold has ended with the connection to the coordinator, so a clock may have been applied. */
static void the_end_of_an_import_without_its_hold_fails_the_job(void **state)
{
    const struct bulk_updates updates = {.count = 7, .clock = 1};
    start(2);
    rows_settle(&rig);
    assert_true(hold(0, true).is_held);
    bulk_continue_all(lane());
    assert_int_equal(bulk_continue(lane(), RIG_JOB, ROWS_TABLE, &updates), -EBUSY);
    fails_in_midst(-ECANCELED, "table 'users' of job 'job' has a part of its rows");
    rows_stop(&rig);
}

static void an_import_without_rows_has_no_effect(void **state)
{
    start(2);
    push_ones(0);
    end_clocks();
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    (void)hold(0, true);
    bulk_continue_all(lane());
    push_ones(1);
    end_clocks();
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.5f);
    assert_int_equal(worker(0)->errors_count, 0);
    rows_stop(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_table_applies_no_push),
        cmocka_unit_test(a_hold_at_a_later_clock_waits_for_this_clock),
        cmocka_unit_test(rows_are_read_in_parts_of_any_length),
        cmocka_unit_test(stored_rows_are_those_that_were_read),
        cmocka_unit_test(an_asynchronous_import_has_one_number_of_updates_on_all_lanes),
        cmocka_unit_test(an_asynchronous_import_counts_no_negative_number_of_updates),
        cmocka_unit_test(rows_of_other_lanes_and_lengths_are_refused),
        cmocka_unit_test(an_import_that_ends_early_fails_the_job),
        cmocka_unit_test(the_end_of_an_import_without_its_hold_fails_the_job),
        cmocka_unit_test(an_import_without_rows_has_no_effect),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests_name(rows_kind, tests, NULL, NULL);
}
