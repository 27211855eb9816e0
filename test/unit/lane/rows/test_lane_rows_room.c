/* Tests the allowance for rows (A82, A134): a push whose rows do not fit begins no stripe, asks for
 * memory once, and is applied after the allowance was raised, with the bits of a push that never
 * waited. */
#include "svc/lane/job/table.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/rows/bulk/bulk.h"
#include "svc/lane/rows/room/room.h"
#include "svc/lane/rows/table.h"
#include "test/unit/lane/rows/rows_case.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define START_BYTES (UINT64_C(8) << 10) /* a shard without rows fits into this */
#define ROW_BYTES (sizeof(uint64_t) + DIM * sizeof(float))

static struct lane *lane(void) { return rig.lanes[0].lane; }

static struct row_room *room(void) { return job_find(lane(), RIG_JOB)->tables->room; }

/* Starts two workers, and a table whose shards fill the allowance. */
static void start_full(void)
{
    start(2);
    room()->rows.limit_bytes = room()->rows.used_bytes;
}

static struct lane_rows_wanted wanted;
static int wanted_count;

static void note_wanted(void *context, const struct lane_rows_wanted *found)
{
    (void)context;
    wanted = *found;
    wanted_count++;
}

/* Returns the number of requests that the coordinator has to receive; `wanted` is the last. */
static int requests(bool again)
{
    wanted_count = 0;
    lane_each_rows_wanted(lane(), again, note_wanted, NULL);
    return wanted_count;
}

static void end_clocks(void)
{
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
}

static void a_full_allowance_begins_no_stripe(void **state)
{
    start_full();
    struct rows_asked *push = rows_push(&rig, 0, keys, KEYS, ones);
    end_clocks();
    rows_settle(&rig);
    assert_false(rows_is_done(&rig, push));
    assert_int_equal(rows_stored(&rig), 0);
    assert_true(room_is_short(job_find(lane(), RIG_JOB)->tables));
    assert_int_equal(worker(0)->errors_count + worker(1)->errors_count, 0);
    assert_int_equal(requests(false), 1);
    assert_int_equal(wanted.job, RIG_JOB);
    assert_true(wanted.needed_bytes > wanted.allowed_bytes);
    assert_int_equal(requests(false), 0);
    assert_int_equal(requests(true), 1);
    rows_asked_free(push);
    rows_stop(&rig);
}

/* Raises the allowance by as little as possible, as often as needed. */
static void a_waiting_push_is_applied_when_there_is_room(void **state)
{
    start_full();
    struct rows_asked *push = rows_push(&rig, 1, keys, KEYS, ones);
    push_ones(0);
    end_clocks();
    int raised = 0;
    for (; !rows_is_done(&rig, push); raised++) {
        rows_settle(&rig);
        if (requests(true) == 0)
            continue;
        lane_allow_rows(lane(), RIG_JOB, wanted.needed_bytes);
        assert_int_equal(room()->needed_bytes, 0);
    }
    assert_true(raised > 1);
    rows_asked_free(push);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.5f);
    assert_int_equal(rows_stored(&rig), KEYS);
    rows_stop(&rig);
}

static void an_allowance_never_falls(void **state)
{
    start_full();
    uint64_t limit = room()->rows.limit_bytes;
    lane_allow_rows(lane(), RIG_JOB, limit - 1);
    assert_int_equal(room()->rows.limit_bytes, limit);
    lane_allow_rows(lane(), RIG_JOB, limit + 1);
    assert_int_equal(room()->rows.limit_bytes, limit + 1);
    lane_allow_rows(lane(), RIG_JOB + 1, limit + 2); /* an unknown job */
    lane_allow_rows(lane(), RIG_JOB, 0);
    assert_true(room()->rows.limit_bytes == UINT64_MAX);
    rows_stop(&rig);
}

static void the_next_step_is_requested_at_three_quarters(void **state)
{
    start(2);
    room()->rows.limit_bytes = UINT64_C(1) << 20;
    push_ones(0);
    end_clocks();
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    assert_int_equal(requests(false), 0);
    room()->rows.limit_bytes = room()->rows.used_bytes + 1024;
    push_ones(0);
    end_clocks();
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.5f);
    assert_int_equal(requests(false), 1);
    assert_int_equal(wanted.needed_bytes, 0);
    push_ones(0); /* no second request while the limit is the same */
    end_clocks();
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.75f);
    assert_int_equal(requests(true), 0);
    rows_stop(&rig);
}

/* A lost worker fails this job; what matters is that the wait for memory ends, too. */
static void a_dropped_push_ends_the_wait(void **state)
{
    struct table_terms terms = users;
    terms.consistency = TABLE_TERMS_ASP;
    rows_start(&rig, 1, 2, &terms);
    lane_set_elastic(lane(), RIG_JOB);
    rows_set(&rig, &settings);
    room()->rows.limit_bytes = room()->rows.used_bytes;
    push_ones(1);
    rows_settle(&rig);
    assert_int_equal(requests(false), 1);
    fabric_disconnect(worker(1)->conn);
    rig_until(&rig.lanes[0], room()->needed_bytes == 0);
    assert_int_equal(requests(false), 1);
    assert_int_equal(wanted.needed_bytes, 0);
    rows_stop(&rig);
}

static void a_shard_without_memory_is_not_placed(void **state)
{
    const struct lane_shard_spec shards[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
    struct lane_table_spec spec = {9, "items", &users, 5, .rows_bytes_max = START_BYTES};
    rig_start(&rig.lanes[0], "shm");
    rig.lanes_count = 1;
    assert_int_equal(lane_place(lane(), RIG_JOB, "job", 2, 1, false, NULL, 0), 0);
    uint64_t before = lane_job_memory(lane(), RIG_JOB);
    assert_int_equal(lane_place_table(lane(), RIG_JOB, &spec, shards, 4), -EDQUOT);
    assert_int_equal(lane_job_memory(lane(), RIG_JOB), before);
    spec.rows_bytes_max = 4 * START_BYTES;
    assert_int_equal(lane_place_table(lane(), RIG_JOB, &spec, shards, 4), 0);
    rig_stop(&rig.lanes[0]);
}

static void an_import_asks_for_memory_and_can_be_repeated(void **state)
{
    struct bulk_standing standing;
    char row[ROW_BYTES] = {7};
    start_full();
    assert_int_equal(bulk_hold(lane(), RIG_JOB, ROWS_TABLE, 0, true, &standing), 0);
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE, row, sizeof row), -EAGAIN);
    assert_int_equal(requests(false), 1);
    lane_allow_rows(lane(), RIG_JOB, wanted.needed_bytes + START_BYTES);
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE, row, sizeof row), 0);
    assert_int_equal(bulk_write(lane(), RIG_JOB, ROWS_TABLE, row, sizeof row), 0);
    assert_int_equal(rows_stored(&rig), 1);
    const struct bulk_updates updates = {.count = 0, .clock = 1};
    assert_int_equal(bulk_continue(lane(), RIG_JOB, ROWS_TABLE, &updates), 0);
    rows_stop(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_allowance_begins_no_stripe),
        cmocka_unit_test(a_waiting_push_is_applied_when_there_is_room),
        cmocka_unit_test(an_allowance_never_falls),
        cmocka_unit_test(the_next_step_is_requested_at_three_quarters),
        cmocka_unit_test(a_dropped_push_ends_the_wait),
        cmocka_unit_test(a_shard_without_memory_is_not_placed),
        cmocka_unit_test(an_import_asks_for_memory_and_can_be_repeated),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
