/* Tests the reads of pushes over a network (A103): the keys and gradients of all shards of a lane
 * are read together, if the memory for reads is sufficient. The test counts reads and trips (a trip
 * is a group of reads that are begun before any of them ends). */
#include "svc/lane/move/regroup.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/table.h"
#include "test/unit/lane/rows/rows_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SMALL 300
#define WIDE 1024 /* number of elements of a row of 4 KiB */

static unsigned reads, trips;
static bool is_posting;

int __real_network_read(struct row_fetch *fetch, const struct worker *w, uint32_t region,
                        uint64_t offset, void *local, size_t bytes);
int __wrap_network_read(struct row_fetch *fetch, const struct worker *w, uint32_t region,
                        uint64_t offset, void *local, size_t bytes);
int __wrap_network_read(struct row_fetch *fetch, const struct worker *w, uint32_t region,
                        uint64_t offset, void *local, size_t bytes)
{
    reads++;
    trips += !is_posting;
    is_posting = true;
    return __real_network_read(fetch, w, region, offset, local, bytes);
}

bool __real_network_progress(struct lane_job *job, void *context, int error);
bool __wrap_network_progress(struct lane_job *job, void *context, int error);
bool __wrap_network_progress(struct lane_job *job, void *context, int error)
{
    is_posting = false;
    return __real_network_progress(job, context, error);
}

/* Starts a table with `shards` shards, and resets the counters. */
static void start_with(uint32_t lanes, uint32_t workers, uint32_t shards, uint32_t dim,
                       uint32_t consistency)
{
    struct table_terms terms = users;
    terms.shards = shards;
    terms.dim = dim;
    terms.consistency = consistency;
    rows_start(&rig, lanes, workers, &terms);
    rows_set(&rig, &settings);
    rows_settle(&rig);
    reads = trips = 0;
    is_posting = false;
}

static uint64_t key_of(size_t i) { return 17 * i + 3; }

/* Begins a push of `count` keys, whose gradients are all `value`. */
static struct rows_asked *push_values(uint32_t rank, size_t count, float value)
{
    size_t values = count * rig.terms.dim;
    uint64_t *all = malloc(count * sizeof *all);
    float *gradients = malloc(values * sizeof *gradients);
    for (size_t i = 0; i < count; i++)
        all[i] = key_of(i);
    for (size_t i = 0; i < values; i++)
        gradients[i] = value;
    struct rows_asked *push = rows_push(&rig, rank, all, count, gradients);
    free(all);
    free(gradients);
    return push;
}

/* Pulls `count` keys, and checks all elements. */
static void rows_have(size_t count, float value)
{
    size_t values = count * rig.terms.dim;
    uint64_t *all = malloc(count * sizeof *all);
    float *rows = malloc(values * sizeof *rows);
    for (size_t i = 0; i < count; i++)
        all[i] = key_of(i);
    rows_forget_memory(&rig, 0);
    struct rows_asked *pull = rows_pull(&rig, 0, all, count);
    rows_take(&rig, pull, rows);
    for (size_t i = 0; i < values; i++)
        assert_float_equal(rows[i], value, 0);
    rows_asked_free(pull);
    free(all);
    free(rows);
}

static void push_and_wait(uint32_t rank, size_t count)
{
    struct rows_asked *push = push_values(rank, count, 1);
    rows_clock(&rig, rank);
    rows_wait(&rig, push);
    rows_asked_free(push);
}

static void the_shares_of_all_shards_are_one_trip(void **state)
{
    start_with(1, 1, 64, DIM, TABLE_TERMS_BSP);
    push_and_wait(0, SMALL);
    assert_int_equal(reads, 3); /* directory, keys, rows */
    assert_int_equal(trips, 2);
    rows_have(SMALL, START - 0.25f);
    rows_stop(&rig);
}

static void a_push_that_is_applied_on_arrival_is_one_trip(void **state)
{
    start_with(1, 1, 64, DIM, TABLE_TERMS_ASP);
    push_and_wait(0, SMALL);
    assert_int_equal(reads, 3);
    assert_int_equal(trips, 2);
    rows_have(SMALL, START - 0.25f);
    rows_stop(&rig);
}

/* Each lane has every second shard, so after the keys of a shard follow keys of a shard on another
 * lane. */
static void shards_of_other_lanes_are_not_read(void **state)
{
    start_with(2, 1, 16, DIM, TABLE_TERMS_BSP);
    push_and_wait(0, SMALL);
    assert_int_equal(reads, 2 * (1 + 2 * 8));
    assert_true(trips <= 2 * 2);
    rows_have(SMALL, START - 0.25f);
    rows_stop(&rig);
}

/* The keys and gradients of both ranks need twice the memory that the lane has for reads. */
static void shares_beyond_the_memory_are_read_later(void **state)
{
    const size_t count = AHEAD_BYTES / (WIDE * sizeof(float)) - 24;
    start_with(1, 2, 64, WIDE, TABLE_TERMS_BSP);
    struct rows_asked *first = push_values(0, count, 1), *second = push_values(1, count, 2);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_wait(&rig, first);
    rows_wait(&rig, second);
    /* two reads of directories, and two reads of each run of at most 1 MiB */
    assert_true(reads >= 2 + 2 * 2 * 4 && reads <= 2 + 2 * 2 * 10);
    rows_have(count, START - 0.75f);
    rows_asked_free(first);
    rows_asked_free(second);
    rows_stop(&rig);
}

/* A share with more than 1 MiB is read window by window and batch by batch. */
static void a_long_share_is_not_read_ahead(void **state)
{
    const size_t count = ROW_SUMS_BYTES / (WIDE * sizeof(float)) + 40;
    start_with(1, 1, 1, WIDE, TABLE_TERMS_BSP);
    push_and_wait(0, count);
    assert_int_equal(reads, 1 + 1 + 2); /* directory, window, two batches */
    rows_have(count, START - 0.25f);
    rows_stop(&rig);
}

/* The directory of 256 entries is copied in four parts. */
static void a_trip_ends_with_the_copied_entries(void **state)
{
    const size_t count = 20000;
    start_with(1, 1, 256, DIM, TABLE_TERMS_BSP);
    push_and_wait(0, count);
    /* the check of the directory reads each part once, and the update reads each part once */
    assert_int_equal(reads, 2 * 4 + 2 * 4);
    rows_have(count, START - 0.25f);
    rows_stop(&rig);
}

/* The process of rank 1 does not answer, so the reads of its keys and rows have not ended when the
 * rank is lost. */
static void the_reads_of_a_lost_rank_are_dropped(void **state)
{
    start_with(1, 2, 64, DIM, TABLE_TERMS_BSP);
    lane_set_elastic(rig.lanes[0].lane, RIG_JOB);
    struct rows_asked *kept = push_values(0, SMALL, 1), *lost = push_values(1, SMALL, 100);
    rows_clock(&rig, 1);
    rows_settle(&rig);
    worker(1)->is_stopped = true;
    rows_clock(&rig, 0);
    rows_settle(&rig);
    assert_int_equal(reads, 2 + 2 * 2);
    assert_false(rows_is_done(&rig, kept));
    /* with withdrawn memory no read is answered before the end */
    fabric_withdraw(worker(1)->conn, 0);
    worker(1)->is_stopped = false;
    fabric_disconnect(worker(1)->conn);
    rows_wait(&rig, kept);
    assert_int_equal(reads, 2 + 2 * 2 + 2);
    rows_have(SMALL, START - 0.25f);
    rows_asked_free(kept);
    rows_asked_free(lost);
    rows_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shares_of_all_shards_are_one_trip),
        cmocka_unit_test(a_push_that_is_applied_on_arrival_is_one_trip),
        cmocka_unit_test(shards_of_other_lanes_are_not_read),
        cmocka_unit_test(shares_beyond_the_memory_are_read_later),
        cmocka_unit_test(a_long_share_is_not_read_ahead),
        cmocka_unit_test(a_trip_ends_with_the_copied_entries),
        cmocka_unit_test(the_reads_of_a_lost_rank_are_dropped),
    };
    rows_kind = "ofi";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
