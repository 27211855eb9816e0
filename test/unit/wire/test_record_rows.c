/* Tests the records of tables: every kind is accepted with exactly its size, fields stay at their
 * offsets, and each field out of its range is refused. */
#include "svc/wire/record.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static union record sound(uint8_t kind)
{
    union record r;
    memset(&r, 0, sizeof r);
    if (kind == RECORD_ROWS)
        r.rows = (struct record_rows){.kind = RECORD_ROWS,
                                      .operation = RECORD_PUSH,
                                      .dtype = 1,
                                      .table = 3,
                                      .word = 0x0102,
                                      .dim = 32,
                                      .clock = 4,
                                      .sequence = 9,
                                      .spans = 2,
                                      .keys = 10,
                                      .directory_region = 5,
                                      .keys_region = 6,
                                      .rows_region = 7,
                                      .directory_offset = 64,
                                      .keys_offset = 128,
                                      .rows_offset = 4096};
    if (kind == RECORD_CLOCK)
        r.clock = (struct record_clock){.kind = RECORD_CLOCK,
                                        .form = RECORD_CLOCK_ENDED,
                                        .count = 2,
                                        .clock = 4,
                                        .session = 11,
                                        .sequence = 9,
                                        .tables = {3, 8}};
    if (kind == RECORD_CLOCKS)
        r.clocks = (struct record_clocks){.kind = RECORD_CLOCKS,
                                          .is_answer = 1,
                                          .count = 2,
                                          .table = 3,
                                          .minimum = 4,
                                          .word = 0x0102,
                                          .behind = 5,
                                          .ranks = {0, 6},
                                          .clocks = {4, 5}};
    if (kind == RECORD_TAKEN)
        r.taken = (struct record_taken){.kind = RECORD_TAKEN, .region = 2, .position = 1 << 20};
    if (kind == RECORD_RING)
        r.ring = (struct record_ring){.kind = RECORD_RING, .copy = 3, .region = 2, .offset = 4096};
    if (kind == RECORD_LOGGED)
        r.logged = (struct record_logged){.kind = RECORD_LOGGED, .copy = 3, .position = 1 << 20};
    return r;
}

static int check(const void *data, size_t bytes)
{
    union record copy;
    size_t fixed;
    /* the allocation has the exact size, so a sanitizer detects any access beyond the record */
    uint8_t *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, data, bytes);
    int error = record_check(exact, bytes, &copy, &fixed);
    free(exact);
    return error;
}

static int check_record(const union record *r) { return check(r, record_bytes(r)); }

static void every_kind_passes_at_exactly_its_size(void **state)
{
    for (uint8_t kind = RECORD_ROWS; kind <= RECORD_LOGGED; kind++) {
        uint8_t data[256] = {0};
        union record r = sound(kind);
        memcpy(data, &r, sizeof r);
        assert_in_range(record_bytes(&r), 1, 120);
        for (size_t bytes = 0; bytes < sizeof data; bytes++)
            assert_int_equal(check(data, bytes), bytes == record_bytes(&r) ? 0 : -EBADMSG);
    }
}

/* Changes one field of a valid record, and expects this result of the check. */
#define gives(kind_, field, value, verdict)                \
    do {                                                   \
        union record changed = sound(kind_);               \
        assert_int_equal(check_record(&changed), 0);       \
        changed.field = (value);                           \
        assert_int_equal(check_record(&changed), verdict); \
    } while (0)
#define refuses(kind_, field, value) gives(kind_, field, value, -EBADMSG)
#define accepts(kind_, field, value) gives(kind_, field, value, 0)

static void each_count_of_a_request_is_checked(void **state)
{
    accepts(RECORD_ROWS, rows.operation, RECORD_PULL);
    refuses(RECORD_ROWS, rows.operation, 0);
    refuses(RECORD_ROWS, rows.operation, RECORD_PUSH + 1);
    refuses(RECORD_ROWS, rows.reserved, 1);
    refuses(RECORD_ROWS, rows.reserved_2, 1);
    refuses(RECORD_ROWS, rows.dim, 0);
    accepts(RECORD_ROWS, rows.dim, RECORD_ROW_DIM_MAX);
    refuses(RECORD_ROWS, rows.dim, RECORD_ROW_DIM_MAX + 1);
    refuses(RECORD_ROWS, rows.clock, 0);
    accepts(RECORD_ROWS, rows.clock, RECORD_CLOCK_MOST);
    refuses(RECORD_ROWS, rows.clock, RECORD_CLOCK_MOST + 1);
    refuses(RECORD_ROWS, rows.sequence, 0);
    refuses(RECORD_ROWS, rows.sequence, RECORD_CLOCK_MOST + 1);
    refuses(RECORD_ROWS, rows.keys, 0);
    refuses(RECORD_ROWS, rows.keys, 1); /* fewer keys than spans */
    accepts(RECORD_ROWS, rows.keys, RECORD_ROW_KEYS_MAX);
    refuses(RECORD_ROWS, rows.keys, RECORD_ROW_KEYS_MAX + 1);
    refuses(RECORD_ROWS, rows.spans, 0);
    accepts(RECORD_ROWS, rows.spans, 10);
    refuses(RECORD_ROWS, rows.spans, 11);
    union record many = sound(RECORD_ROWS);
    many.rows.keys = RECORD_ROW_KEYS_MAX;
    many.rows.spans = RECORD_SHARDS_MAX;
    assert_int_equal(check_record(&many), 0);
    many.rows.spans++;
    assert_int_equal(check_record(&many), -EBADMSG);
}

static void each_place_of_a_request_is_checked(void **state)
{
    refuses(RECORD_ROWS, rows.directory_offset, 4);
    refuses(RECORD_ROWS, rows.keys_offset, 129);
    refuses(RECORD_ROWS, rows.rows_offset, 4100);
    accepts(RECORD_ROWS, rows.directory_offset, -UINT64_C(40)); /* 32 bytes of entries */
    refuses(RECORD_ROWS, rows.directory_offset, -UINT64_C(32));
    refuses(RECORD_ROWS, rows.keys_offset, -UINT64_C(80));
    refuses(RECORD_ROWS, rows.rows_offset, -UINT64_C(8));
}

static void each_field_of_a_clock_is_checked(void **state)
{
    refuses(RECORD_CLOCK, clock.clock, 0);
    refuses(RECORD_CLOCK, clock.clock, RECORD_CLOCK_MOST + 1);
    refuses(RECORD_CLOCK, clock.reserved, 1);
    refuses(RECORD_CLOCK, clock.reserved_2, 1);
    refuses(RECORD_CLOCK, clock.sequence, RECORD_CLOCK_MOST + 1);
    accepts(RECORD_CLOCK, clock.sequence, 0);
    refuses(RECORD_CLOCK, clock.form, RECORD_CLOCK_SETTINGS); /* settings are for one table, this
                                                               * record has two */
    refuses(RECORD_CLOCK, clock.form, RECORD_CLOCK_SETTINGS + 1);
    accepts(RECORD_CLOCK, clock.form, RECORD_CLOCK_STANDING);
    refuses(RECORD_CLOCK, clock.count, 0);
    refuses(RECORD_CLOCK, clock.count, 1); /* the record has more tables than its count */
    refuses(RECORD_CLOCK, clock.count, 3); /* numbers must ascend, but table 0 follows table 8 */
    refuses(RECORD_CLOCK, clock.count, RECORD_CLOCK_TABLES_MAX + 1);
    refuses(RECORD_CLOCK, clock.count, 255);
    refuses(RECORD_CLOCK, clock.tables[1], 3); /* the same table twice */
}

static void a_standing_may_have_ended_no_clock(void **state)
{
    union record r = sound(RECORD_CLOCK);
    r.clock.form = RECORD_CLOCK_STANDING;
    r.clock.clock = 0;
    assert_int_equal(check_record(&r), 0);
}

static void settings_of_any_value_pass_to_the_lane(void **state)
{
    union record r = sound(RECORD_CLOCK);
    r.clock.form = RECORD_CLOCK_SETTINGS;
    r.clock.count = 0;
    r.clock.settings = (struct record_row_settings){.rate = NAN, .l2 = -INFINITY, .table = 3};
    assert_int_equal(check_record(&r), 0);
    r.clock.settings.padding[4] = 1;
    assert_int_equal(check_record(&r), -EBADMSG);
    r.clock.settings.padding[4] = 0;
    r.clock.clock = 0;
    assert_int_equal(check_record(&r), -EBADMSG);
}

static void each_field_of_clocks_is_checked(void **state)
{
    refuses(RECORD_CLOCKS, clocks.is_answer, 0); /* an answer must be marked, because it has a
                                                  * word */
    refuses(RECORD_CLOCKS, clocks.is_answer, 2);
    refuses(RECORD_CLOCKS, clocks.reserved, 1);
    refuses(RECORD_CLOCKS, clocks.minimum, 0);
    refuses(RECORD_CLOCKS, clocks.minimum, RECORD_CLOCK_MOST + 1);
    refuses(RECORD_CLOCKS, clocks.count, RECORD_CLOCKS_RANKS_MAX + 1);
    refuses(RECORD_CLOCKS, clocks.count, 255);
    refuses(RECORD_CLOCKS, clocks.count, 1); /* the record has more ranks than its count */
    refuses(RECORD_CLOCKS, clocks.behind, 1);
    accepts(RECORD_CLOCKS, clocks.behind, UINT32_MAX);
    refuses(RECORD_CLOCKS, clocks.ranks[1], 0); /* the same rank twice */
    refuses(RECORD_CLOCKS, clocks.clocks[1], 0);
    refuses(RECORD_CLOCKS, clocks.clocks[7], 1);
    refuses(RECORD_CLOCKS, clocks.ranks[7], 1);
}

static void a_rise_of_the_minimum_names_no_ranks(void **state)
{
    union record r = {.clocks = {.kind = RECORD_CLOCKS, .table = 3, .minimum = 5}};
    assert_int_equal(check_record(&r), 0);
    r.clocks.behind = 1;
    assert_int_equal(check_record(&r), -EBADMSG);
}

static void reserved_bytes_of_taken_are_zero(void **state)
{
    for (int i = 0; i < 3; i++)
        refuses(RECORD_TAKEN, taken.reserved[i], 1);
    accepts(RECORD_TAKEN, taken.position, UINT64_MAX);
}

static void a_ring_begins_at_a_page_of_a_numbered_copy(void **state)
{
    for (int i = 0; i < 3; i++) {
        refuses(RECORD_RING, ring.reserved[i], 1);
        refuses(RECORD_LOGGED, logged.reserved[i], 1);
    }
    refuses(RECORD_RING, ring.reserved_2, 1);
    refuses(RECORD_RING, ring.copy, 0);
    refuses(RECORD_RING, ring.offset, 4095);
    accepts(RECORD_RING, ring.offset, UINT64_MAX - 4095);
    refuses(RECORD_LOGGED, logged.copy, 0);
    accepts(RECORD_LOGGED, logged.position, UINT64_MAX);
}

static void a_query_about_a_table_names_a_clock(void **state)
{
    union record r = {
        .query = {.kind = RECORD_QUERY, .is_of_table = 1, .word = 9, .piece = 3, .round = 4}};
    assert_int_equal(check_record(&r), 0);
    r.query.round = 0;
    assert_int_equal(check_record(&r), -EBADMSG);
    r.query.round = RECORD_CLOCK_MOST + 1;
    assert_int_equal(check_record(&r), -EBADMSG);
    r.query.is_of_table = 0; /* a query may name any round of a piece */
    assert_int_equal(check_record(&r), 0);
}

/* Compares the record with bytes that were written by hand, so that fields stay at their
 * offsets. */
static void has_bytes(const union record *r, size_t bytes, const char *hex)
{
    assert_int_equal(strlen(hex), 2 * bytes);
    for (size_t i = 0; i < bytes; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        assert_int_equal(((const uint8_t *)r)[i], strtoul(digits, NULL, 16));
    }
}

static void each_field_lies_at_its_offset(void **state)
{
    union record r = sound(RECORD_ROWS);
    has_bytes(&r, 80,
              "11020100"
              "03000000"
              "02010000"
              "20000000"
              "0400000000000000"
              "0900000000000000"
              "02000000"
              "0a000000"
              "05000000"
              "06000000"
              "07000000"
              "00000000"
              "4000000000000000"
              "8000000000000000"
              "0010000000000000");
    r = sound(RECORD_CLOCK);
    has_bytes(&r, 40,
              "12000200"
              "00000000"
              "0400000000000000"
              "0b00000000000000"
              "0900000000000000"
              "03000000"
              "08000000");
    r.clock.settings = (struct record_row_settings){.rate = 1.5, .l2 = -0.25, .table = 3};
    has_bytes(&r, 40,
              "12000200"
              "00000000"
              "0400000000000000"
              "0b00000000000000"
              "0900000000000000"
              "000000000000f83f");
    assert_int_equal(((const uint8_t *)&r)[96], 3);
    r = sound(RECORD_CLOCKS);
    has_bytes(&r, 32,
              "13010200"
              "03000000"
              "0400000000000000"
              "02010000"
              "05000000"
              "00000000"
              "06000000");
    assert_int_equal(((const uint8_t *)&r)[56], 4);
    r = sound(RECORD_TAKEN);
    has_bytes(&r, 16,
              "14000000"
              "02000000"
              "0000100000000000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_passes_at_exactly_its_size),
        cmocka_unit_test(each_count_of_a_request_is_checked),
        cmocka_unit_test(each_place_of_a_request_is_checked),
        cmocka_unit_test(each_field_of_a_clock_is_checked),
        cmocka_unit_test(a_standing_may_have_ended_no_clock),
        cmocka_unit_test(settings_of_any_value_pass_to_the_lane),
        cmocka_unit_test(each_field_of_clocks_is_checked),
        cmocka_unit_test(a_rise_of_the_minimum_names_no_ranks),
        cmocka_unit_test(reserved_bytes_of_taken_are_zero),
        cmocka_unit_test(a_ring_begins_at_a_page_of_a_numbered_copy),
        cmocka_unit_test(a_query_about_a_table_names_a_clock),
        cmocka_unit_test(each_field_lies_at_its_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
