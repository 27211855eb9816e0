/* Tests the log of changed rows: blocks in a ring, what counts as landed, copies of rows. */
#include "svc/lane/table/log.h"
#include "test/unit/lane/table/table_rig.h"

#define COPY 7
#define TABLE 3
#define ROW_BYTES (8u + VALUES * 8u) /* key, values, moments */
#define BIG (600u << 10)

static char *ring;
static struct log_writer writer;
static struct log_reader reader;

static int begin(void **state)
{
    ring = aligned_alloc(4096, LOG_RING_BYTES);
    assert_non_null(ring);
    memset(ring, 0, LOG_RING_BYTES);
    log_writer_init(&writer, COPY);
    log_reader_init(&reader, COPY);
    return 0;
}

static int end(void **state)
{
    free(ring);
    return 0;
}

/* Writes a block whose payload has `bytes` bytes of this value. Returns false if there is no
 * room. */
static bool write_block(size_t bytes, int value)
{
    const struct log_head head = {
        .kind = LOG_ROWS, .table = TABLE, .shard = 1, .clock = 5, .next = 9};
    char *payload = log_open(&writer, ring, bytes);
    if (!payload)
        return false;
    memset(payload, value, bytes);
    log_seal(&writer, ring, &head, bytes);
    return true;
}

static bool read_block(struct log_head *ret_head, const char **ret_payload)
{
    const void *payload;
    if (!log_next(&reader, ring, ret_head, &payload))
        return false;
    *ret_payload = payload;
    log_pass(&reader, ret_head);
    return true;
}

static void block_is(size_t bytes, int value)
{
    struct log_head head;
    const char *payload;
    assert_true(read_block(&head, &payload));
    assert_int_equal(head.payload_bytes, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(payload[i], value);
}

static void none_counts(void)
{
    struct log_head head;
    const void *payload;
    assert_false(log_next(&reader, ring, &head, &payload));
}

static void a_block_is_read_as_written(void **state)
{
    struct log_head head;
    const char *payload;
    none_counts();
    assert_true(write_block(100, 'a'));
    assert_true(read_block(&head, &payload));
    assert_int_equal(head.kind, LOG_ROWS);
    assert_int_equal(head.table, TABLE);
    assert_int_equal(head.shard, 1);
    assert_int_equal(head.clock, 5);
    assert_int_equal(head.next, 9);
    assert_int_equal(head.bytes, 192);
    assert_int_equal(reader.position, writer.end);
    none_counts();
}

static void a_block_without_payload_has_one_line(void **state)
{
    assert_true(write_block(0, 0));
    assert_int_equal(writer.end, LOG_LINE_BYTES);
    block_is(0, 0);
}

static void a_block_may_use_less_than_was_opened(void **state)
{
    const struct log_head head = {.kind = LOG_STATE};
    memset(log_open(&writer, ring, 1000), 'x', 1000);
    log_seal(&writer, ring, &head, 10);
    assert_int_equal(writer.end, 2 * LOG_LINE_BYTES);
    block_is(10, 'x');
}

static void a_torn_block_does_not_count(void **state)
{
    assert_true(write_block(1000, 'a'));
    for (size_t at = 0; at < 1064; at++) {
        ring[at] ^= 4;
        none_counts();
        ring[at] ^= 4;
    }
    block_is(1000, 'a');
}

static void the_padding_of_a_block_is_checked(void **state)
{
    assert_true(write_block(1, 'a'));
    ring[127] = 1;
    none_counts();
}

static void a_block_of_another_copy_does_not_count(void **state)
{
    assert_true(write_block(10, 'a'));
    log_reader_init(&reader, COPY + 1);
    none_counts();
}

static void a_block_at_another_position_does_not_count(void **state)
{
    assert_true(write_block(10, 'a'));
    memcpy(ring + 128, ring, 128);
    block_is(10, 'a');
    none_counts();
}

static void blocks_behind_a_torn_block_do_not_count(void **state)
{
    assert_true(write_block(10, 'a'));
    assert_true(write_block(10, 'b'));
    ring[0] ^= 1;
    none_counts();
    ring[0] ^= 1;
    block_is(10, 'a');
    block_is(10, 'b');
}

static void a_full_ring_has_no_room_until_blocks_are_taken(void **state)
{
    int count = 0;
    while (write_block(BIG, count))
        count++;
    assert_int_equal(count, LOG_RING_BYTES / (BIG + LOG_LINE_BYTES));
    uint64_t full = writer.end;
    assert_false(log_has_room(&writer, BIG));
    assert_int_equal(writer.end, full);
    block_is(BIG, 0);
    block_is(BIG, 1);
    assert_int_equal(log_take(&writer, reader.position), 0);
    assert_true(write_block(BIG, count));
}

static void no_block_passes_the_end_of_the_ring(void **state)
{
    struct log_head head;
    const char *payload;
    for (uint32_t i = 0; i < 1000; i++) {
        size_t bytes = (size_t)random() % LOG_PAYLOAD_BYTES_MAX;
        assert_true(write_block(bytes, (int)(i % 100)));
        assert_true(read_block(&head, &payload));
        assert_in_range((size_t)(payload - ring), LOG_LINE_BYTES, LOG_RING_BYTES - bytes);
        assert_int_equal(head.payload_bytes, bytes);
        assert_true(bytes == 0 ||
                    (payload[0] == (int)(i % 100) && payload[bytes - 1] == payload[0]));
        assert_int_equal(log_take(&writer, reader.position), 0);
    }
    assert_true(writer.end > 20 * LOG_RING_BYTES);
    none_counts();
}

static void blocks_of_an_earlier_lap_do_not_count(void **state)
{
    size_t bytes = (512u << 10) - LOG_LINE_BYTES;
    for (int i = 0; i < 16; i++)
        assert_true(write_block(bytes, i));
    for (int i = 0; i < 16; i++)
        block_is(bytes, i);
    assert_int_equal(reader.position, LOG_RING_BYTES);
    none_counts();
}

static void a_position_beyond_the_log_is_refused(void **state)
{
    assert_true(write_block(10, 'a'));
    assert_int_equal(log_take(&writer, writer.end + LOG_LINE_BYTES), -EBADMSG);
    assert_int_equal(log_take(&writer, 1), -EBADMSG);
    assert_int_equal(writer.taken, 0);
    assert_int_equal(log_take(&writer, writer.end), 0);
    assert_int_equal(log_take(&writer, 0), 0);
    assert_int_equal(writer.taken, writer.end);
}

/* ---- rows ---- */

static void add_rows(struct rig *rig, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = rig_random();
        uint32_t row;
        assert_in_range(table_shard_add(&rig->shard, &key, 1, &row), 0, 1);
        *(float *)shard_values(&rig->shard, row) = (float)i;
        *shard_moments(&rig->shard, row) = (float)i + 0.25f;
    }
}

static void rows_are_equal(const struct rig *left, const struct rig *right)
{
    uint32_t a[64], b[64];
    uint64_t from = 0;
    assert_int_equal(left->shard.rows.count, right->shard.rows.count);
    for (size_t count = 64; count == 64;) {
        count = table_shard_walk(&left->shard, from, a, 64);
        assert_int_equal(table_shard_walk(&right->shard, from, b, 64), count);
        for (size_t i = 0; i < count; i++) {
            assert_memory_equal(rows_at(&left->shard.rows, a[i]), rows_at(&right->shard.rows, b[i]),
                                ROW_BYTES);
            from = rows_key(&left->shard.rows, a[i]) + 1;
        }
    }
}

static void a_walk_through_the_log_copies_all_rows(void **state)
{
    struct rig from, to;
    struct log_head head = {.kind = LOG_COPY};
    const void *payload;
    bool is_end = false;
    rig_init(&from, 0, 0);
    rig_init(&to, 0, 0);
    add_rows(&from, 20000);
    for (uint64_t next = 0; !is_end;) {
        char *rows = log_open(&writer, ring, 5 * ROW_BYTES * 100);
        assert_non_null(rows);
        size_t bytes = log_walk(&from.shard, next, rows, 5 * ROW_BYTES * 100, &next, &is_end);
        log_seal(&writer, ring, &head, bytes);
        assert_true(log_next(&reader, ring, &head, &payload));
        assert_int_equal(log_apply(&to.shard, payload, head.payload_bytes), 0);
        log_pass(&reader, &head);
        assert_int_equal(log_take(&writer, reader.position), 0);
    }
    rows_are_equal(&from, &to);
    rig_fini(&from);
    rig_fini(&to);
}

static void the_largest_key_is_copied_once(void **state)
{
    struct rig rig;
    uint64_t keys[2] = {1, UINT64_MAX}, next = 0;
    uint32_t rows[2];
    char copy[4 * ROW_BYTES];
    bool is_end;
    rig_init(&rig, 0, 0);
    assert_int_equal(table_shard_add(&rig.shard, keys, 2, rows), 2);
    assert_int_equal(log_walk(&rig.shard, 0, copy, sizeof copy, &next, &is_end), 2 * ROW_BYTES);
    assert_true(is_end);
    assert_int_equal(log_walk(&rig.shard, 0, copy, ROW_BYTES, &next, &is_end), ROW_BYTES);
    assert_int_equal(next, 2);
    assert_false(is_end);
    rig_fini(&rig);
}

static void a_later_row_replaces_an_earlier_one(void **state)
{
    struct rig rig;
    float row[ROW_BYTES / sizeof(float)] = {0};
    uint64_t key = 77;
    rig_init(&rig, 0, 0);
    memcpy(row, &key, sizeof key);
    row[2] = 1.5f;
    assert_int_equal(log_apply(&rig.shard, row, ROW_BYTES), 0);
    row[2] = 2.5f;
    assert_int_equal(log_apply(&rig.shard, row, ROW_BYTES), 0);
    assert_int_equal(rig.shard.rows.count, 1);
    assert_true(rig_value(&rig, key) == 2.5f);
    rig_fini(&rig);
}

static void rows_of_another_shard_are_refused(void **state)
{
    struct rig rig;
    uint64_t row[ROW_BYTES / 8] = {UINT64_MAX};
    rig_init(&rig, 0, 3);
    assert_int_equal(log_apply(&rig.shard, row, ROW_BYTES), -EBADMSG);
    assert_int_equal(log_apply(&rig.shard, row, ROW_BYTES - 8), -EBADMSG);
    assert_int_equal(rig.shard.rows.count, 0);
    rig_fini(&rig);
}

static void the_nth_allocation_fails_and_a_repeated_block_is_applied(void **state)
{
    static char rows[LOG_PAYLOAD_BYTES_MAX];
    struct rig from, to;
    uint64_t next;
    bool is_end;
    uint32_t failed = 0;
    rig_init(&from, 0, 0);
    add_rows(&from, 5000);
    size_t bytes = log_walk(&from.shard, 0, rows, sizeof rows, &next, &is_end);
    for (size_t n = 0;; n++) {
        rig_init(&to, 0, 0);
        to.left = n;
        int error = log_apply(&to.shard, rows, bytes);
        assert_true(error == 0 || error == -ENOMEM);
        failed += error < 0;
        to.left = NEVER;
        assert_int_equal(log_apply(&to.shard, rows, bytes), 0);
        rows_are_equal(&from, &to);
        rig_fini(&to);
        if (error == 0)
            break;
    }
    assert_true(failed > 5);
    rig_fini(&from);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, begin, end)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_block_is_read_as_written),
        CASE(a_block_without_payload_has_one_line),
        CASE(a_block_may_use_less_than_was_opened),
        CASE(a_torn_block_does_not_count),
        CASE(the_padding_of_a_block_is_checked),
        CASE(a_block_of_another_copy_does_not_count),
        CASE(a_block_at_another_position_does_not_count),
        CASE(blocks_behind_a_torn_block_do_not_count),
        CASE(a_full_ring_has_no_room_until_blocks_are_taken),
        CASE(no_block_passes_the_end_of_the_ring),
        CASE(blocks_of_an_earlier_lap_do_not_count),
        CASE(a_position_beyond_the_log_is_refused),
        CASE(a_walk_through_the_log_copies_all_rows),
        CASE(the_largest_key_is_copied_once),
        CASE(a_later_row_replaces_an_earlier_one),
        CASE(rows_of_another_shard_are_refused),
        CASE(the_nth_allocation_fails_and_a_repeated_block_is_applied),
    };
    return cmocka_run_group_tests(tests, rig_seed, NULL);
}
