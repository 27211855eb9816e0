/* Tests records and memory that break the rules of tables. The lane disconnects the worker, or
 * answers its request with an error. No row changes. */
#include "svc/lane/job/table.h"
#include "svc/lane/rows/table.h"
#include "svc/lane/rows/types.h"
#include "svc/wire/mixed_key.h"
#include "test/unit/lane/rows/rows_case.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- settings ---- */

static void settings_out_of_range_fail_the_job(void **state)
{
    struct record_clock record = settings_record(-1);
    start(2);
    rows_send(&rig, 0, 0, &record, sizeof record);
    fails(-EINVAL, "table 'users' of job 'job': rank 0 set rate to a value that rule sgd does not "
                   "allow; see gp_row_settings");
}

static void a_clock_with_pushes_and_no_settings_fails_the_job(void **state)
{
    rows_start(&rig, 1, 2, &users);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    fails(-EINVAL, "table 'users' of job 'job' has no settings for clock 1; call gp_table_set()");
}

static void more_changes_of_settings_than_fit_fail_the_job(void **state)
{
    start(2);
    for (int i = 0; i <= ROW_SETTINGS_MAX; i++) {
        rows_clock(&rig, 0);
        rows_set(&rig, &settings);
    }
    fails(-ENOBUFS, "table 'users' of job 'job': rank 0 changed the settings of 64 clocks");
}

/* ---- broken requests ---- */

/* Changes one field in a push of rank 0. The push must be refused, and the job must fail. */
#define evicts(field, value, words)                                           \
    do {                                                                      \
        start(2);                                                             \
        struct rows_asked *asked = rows_lay(&rig, 0, keys, KEYS, ones);       \
        worker_clock_next_request(&rig.workers[0].clock);                     \
        struct record_rows record = rows_record(&rig, asked, 0, RECORD_PUSH); \
        record.field = (value);                                               \
        rows_send(&rig, 0, 0, &record, sizeof record);                        \
        rows_asked_free(asked);                                               \
        fails(-EPROTO, words);                                                \
    } while (0)

static void each_field_of_a_request_is_checked(void **state)
{
    evicts(table, 99, "a request is for an unknown table; use one version of gradpool");
    evicts(dim, DIM + 1, "rows of another length or dtype");
    evicts(dtype, REDUCE_F16, "rows of another length or dtype");
    evicts(clock, 2,
           "a request is for another clock than the worker's; use one version of gradpool");
    evicts(directory_region, 1,
           "a request lies in memory that the worker does not lend; use one version of gradpool");
    evicts(keys_region, 63,
           "a request lies in memory that the worker does not lend; use one version of gradpool");
    evicts(rows_region, UINT32_MAX,
           "a request lies in memory that the worker does not lend; use one version of gradpool");
    evicts(directory_offset, RIG_REGION_BYTES - 8,
           "a request lies in memory that the worker does not lend; use one version of gradpool");
    evicts(keys_offset, RIG_REGION_BYTES - 8,
           "a request lies in memory that the worker does not lend; use one version of gradpool");
    evicts(rows_offset, RIG_REGION_BYTES,
           "a request lies in memory that the worker does not lend; use one version of gradpool");
    evicts(keys, RECORD_ROW_KEYS_MAX,
           "a request lies in memory that the worker does not lend; use one version of gradpool");
    evicts(directory_offset, 4096,
           "a request has an invalid directory; use one version of gradpool"); /* zeros */
}

static void a_number_is_used_once(void **state)
{
    start(2);
    struct rows_asked *asked = rows_push(&rig, 0, keys, KEYS, ones);
    struct record_rows record = rows_record(&rig, asked, 0, RECORD_PUSH);
    rows_send(&rig, 0, 0, &record, sizeof record);
    rows_asked_free(asked);
    fails(-EPROTO, "a request has a number that was used before; use one version of gradpool");
}

static void open_requests_are_limited(void **state)
{
    start(2);
    for (uint32_t i = 0; i <= record_row_requests(2); i++)
        rows_asked_free(rows_push(&rig, 0, keys, 1, ones));
    fails(-EPROTO, "a rank has more open requests than a lane stores; use one version of gradpool");
}

static void a_clock_follows_the_one_before(void **state)
{
    start(2);
    rig.workers[0].clock.ended = 5;
    rows_clock(&rig, 0);
    fails(-EPROTO, "a clock does not follow the last one; use one version of gradpool");
}

static void a_standing_is_refused(void **state)
{
    const uint32_t table = ROWS_TABLE;
    struct record_clock record;
    start(2);
    worker_clock_record(&rig.workers[0].clock, RECORD_CLOCK_STANDING, &table, 1, 0, &record);
    rows_send(&rig, 0, 0, &record, sizeof record);
    fails(-EPROTO, "a standing of tables came without a query; use one version of gradpool");
}

/* Returns an address in the lent memory of a request. A worker may change this memory at any
 * time. */
static char *lent(const struct rows_asked *asked, uint64_t at)
{
    return asked->request.memory.base + at;
}

/* The worker changes the directory after the lane has checked it. Over a network the lane uses its
 * copy of the entries. */
static void a_directory_that_changes_is_not_trusted(void **state)
{
    if (!rows_are_mapped())
        skip_because("over this transport no memory is mapped");
    start(2);
    struct rows_asked *push = rows_push(&rig, 0, keys, KEYS, ones);
    rows_settle(&rig);
    struct row_span *span = (struct row_span *)(void *)lent(push, 0);
    span->count = UINT32_MAX;
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_asked_free(push);
    fails(-EPROTO, "keys or a directory changed after the request; use one version of gradpool");
}

static void keys_of_other_shards_are_refused(void **state)
{
    start(2);
    struct rows_asked *push = rows_push(&rig, 0, keys, KEYS, ones);
    rows_settle(&rig);
    uint64_t *mixed = (uint64_t *)(void *)lent(push, push->request.keys_at);
    *mixed = ~*mixed;
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_asked_free(push);
    fails(-EPROTO, "keys or a directory changed after the request; use one version of gradpool");
}

static void keys_of_a_pull_are_checked(void **state)
{
    start(2);
    rows_clock(&rig, 0);
    struct rows_asked *pull = rows_pull(&rig, 0, keys, KEYS);
    rows_settle(&rig);
    uint64_t *mixed = (uint64_t *)(void *)lent(pull, pull->request.keys_at);
    *mixed = ~*mixed;
    rows_clock(&rig, 1);
    rows_asked_free(pull);
    fails(-EPROTO, "keys or a directory changed after the request; use one version of gradpool");
}

static void the_largest_key_is_a_key_like_others(void **state)
{
    start(2);
    const uint64_t last = mixed_key_undo(UINT64_MAX, ROWS_SALT);
    struct rows_asked *push = rows_push(&rig, 0, &last, 1, ones);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_wait(&rig, push);
    assert_int_equal(rows_stored(&rig), 1);
    rows_asked_free(push);
    rows_are(rows_pull(&rig, 1, keys, KEYS), START);
    rows_stop(&rig);
}

static void an_epoch_that_the_lane_does_not_have_is_an_error_of_the_request(void **state)
{
    start(2);
    for (uint32_t i = 0; i < rig.terms.shards; i++)
        rig.route.shards[i].epoch = ROWS_EPOCH + 1;
    struct rows_asked *pull = rows_pull(&rig, 0, keys, KEYS);
    rig_until(&rig.lanes[0], worker(0)->errors_count == 1);
    assert_true(rig_says(worker(0), -ESTALE, "is not on this lane under this epoch"));
    assert_int_equal(worker(0)->error.word, pull->word);
    rows_asked_free(pull);
    rows_stop(&rig);
}

static void settings_for_clocks_that_have_passed_are_refused(void **state)
{
    struct record_clock record = settings_record(1);
    start(2);
    rows_clock(&rig, 0);
    rows_send(&rig, 0, 0, &record, sizeof record);
    fails(-EPROTO,
          "settings arrived for a clock whose end the worker has announced; use one version of "
          "gradpool on all hosts");
    record.clock = 9;
    start(2);
    rows_send(&rig, 0, 0, &record, sizeof record);
    record.clock = 8;
    rows_send(&rig, 0, 0, &record, sizeof record);
    fails(-EPROTO,
          "settings are for an earlier clock than the last ones; use one version of gradpool");
}

static void a_clock_is_of_known_tables_and_counts_all_requests(void **state)
{
    uint32_t table = ROWS_TABLE + 1;
    struct record_clock record = settings_record(1);
    record.settings.table = table;
    start(2);
    rows_send(&rig, 0, 0, &record, sizeof record);
    fails(-EPROTO, "settings are for an unknown table; use one version of gradpool");
    start(2);
    worker_clock_end(&rig.workers[0].clock);
    worker_clock_record(&rig.workers[0].clock, RECORD_CLOCK_ENDED, &table, 1, 0, &record);
    rows_send(&rig, 0, 0, &record, sizeof record);
    fails(-EPROTO, "a clock is of an unknown table; use one version of gradpool");
    start(2);
    push_ones(0);
    rig.workers[0].clock.sequence = 0;
    rows_clock(&rig, 0);
    fails(-EPROTO, "a clock has fewer requests than the worker sent; use one version of gradpool");
}

/* The worker withdraws the memory of its open requests. */
static void withdrawn_memory_is_not_read(void **state)
{
    if (!rows_are_mapped())
        skip_because("over this transport no memory is mapped");
    start(2);
    push_ones(0);
    rows_settle(&rig);
    fabric_withdraw(worker(0)->conn, 0);
    rows_settle(&rig);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    fails(-EPROTO,
          "a request lies in memory that the worker does not lend; use one version of gradpool");
}

/* Over a network, a failed read shows that the memory was withdrawn. */
static void withdrawn_memory_ends_the_connection(void **state)
{
    if (rows_are_mapped())
        skip_because("over this transport no gradient is fetched");
    start(2);
    push_ones(0);
    rows_settle(&rig);
    fabric_withdraw(worker(0)->conn, 0);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rig_until(&rig.lanes[0], worker(1)->errors_count > 0);
    assert_int_equal(worker(1)->error.word, RECORD_WORD_NONE);
    assert_int_equal(rows_stored(&rig), 0);
    rows_stop(&rig);
}

static void new_rows_beyond_the_memory_fail_the_job(void **state)
{
    enum { MANY = 60000 };
    uint64_t bytes, limit_bytes;
    uint64_t *many = calloc(MANY, sizeof *many);
    float *gradients = calloc(MANY * DIM, sizeof *gradients);
    start(2);
    for (uint64_t i = 0; i < MANY; i++)
        many[i] = i;
    lane_memory(rig.lanes[0].lane, &bytes, &limit_bytes);
    lane_set_memory_limit(rig.lanes[0].lane, bytes + (1 << 20));
    rows_asked_free(rows_push(&rig, 0, many, MANY, gradients));
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    free(many);
    free(gradients);
    fails_in_midst(-ENOSPC, "table 'users' of job 'job': lane 3 has no memory for new rows");
    rows_stop(&rig);
}

/* Rows have the limit of their allowance. */
static void rows_do_not_count_as_memory_of_the_job(void **state)
{
    enum { MANY = 60000 };
    uint64_t *many = calloc(MANY, sizeof *many);
    float *gradients = calloc(MANY * DIM, sizeof *gradients);
    start(2);
    for (uint64_t i = 0; i < MANY; i++)
        many[i] = i;
    uint64_t before = lane_job_memory(rig.lanes[0].lane, RIG_JOB);
    lane_set_job_memory_limit(rig.lanes[0].lane, before);
    rows_asked_free(rows_push(&rig, 0, many, MANY, gradients));
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_settle(&rig);
    assert_int_equal(rows_stored(&rig), MANY);
    assert_true(lane_job_memory(rig.lanes[0].lane, RIG_JOB) <= before);
    free(many);
    free(gradients);
    rows_stop(&rig);
}

/* The memory is enough for the table, but not for its slots. */
static void rows_over_a_network_without_memory_fail_the_job(void **state)
{
    const struct lane_table_spec table = {ROWS_TABLE, "users", &users, ROWS_SALT};
    const struct lane_shard_spec shard = {0, ROWS_EPOCH};
    if (rows_are_mapped())
        skip_because("over this transport no gradient is fetched");
    rig_start_job(&rig.lanes[0], rows_kind, 1, 1, 16);
    struct lane *lane = rig.lanes[0].lane;
    lane_set_job_memory_limit(lane, lane_job_memory(lane, RIG_JOB) + (3 << 20));
    assert_int_equal(lane_place_table(lane, RIG_JOB, &table, &shard, 1), 0);
    rig_until(&rig.lanes[0], worker(0)->errors_count == 1);
    assert_true(rig_says(worker(0), -EDQUOT,
                         "lane 3 has no memory to exchange rows with rank 0 over a network"));
    rig_stop(&rig.lanes[0]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_over_a_network_without_memory_fail_the_job),
        cmocka_unit_test(settings_out_of_range_fail_the_job),
        cmocka_unit_test(a_clock_with_pushes_and_no_settings_fails_the_job),
        cmocka_unit_test(more_changes_of_settings_than_fit_fail_the_job),
        cmocka_unit_test(each_field_of_a_request_is_checked),
        cmocka_unit_test(a_number_is_used_once),
        cmocka_unit_test(open_requests_are_limited),
        cmocka_unit_test(a_clock_follows_the_one_before),
        cmocka_unit_test(a_standing_is_refused),
        cmocka_unit_test(a_directory_that_changes_is_not_trusted),
        cmocka_unit_test(keys_of_other_shards_are_refused),
        cmocka_unit_test(keys_of_a_pull_are_checked),
        cmocka_unit_test(the_largest_key_is_a_key_like_others),
        cmocka_unit_test(an_epoch_that_the_lane_does_not_have_is_an_error_of_the_request),
        cmocka_unit_test(settings_for_clocks_that_have_passed_are_refused),
        cmocka_unit_test(a_clock_is_of_known_tables_and_counts_all_requests),
        cmocka_unit_test(withdrawn_memory_is_not_read),
        cmocka_unit_test(withdrawn_memory_ends_the_connection),
        cmocka_unit_test(new_rows_beyond_the_memory_fail_the_job),
        cmocka_unit_test(rows_do_not_count_as_memory_of_the_job),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests_name(rows_kind, tests, NULL, NULL);
}
