/* Tests rings for logs of tables, over real connections: their offer, the reports of both ends, and
 * their end, before which no other ring of the lane is lent (svc/replica/ring.h). */
#include "svc/replica/ring.h"
#include "test/unit/replica/keeping_rig.h"

#define RING_BYTES (UINT64_C(1) << 20)
#define FIRST 11 /* numbers of copies */
#define SECOND 12

static int lend(uint32_t copy_number, const char **ret_memory)
{
    const struct holder_ring ring = {JOB, 1, copy_number};
    return holder_lend_ring(k, &ring, "job", RING_BYTES, ret_memory);
}

static const char *lend_connected(uint32_t copy_number)
{
    const char *memory = NULL;
    assert_int_equal(lend(copy_number, &memory), 0);
    connect_lane(1);
    until(lanes[1].last.kind == RECORD_RING && lanes[1].last.ring.copy == copy_number);
    return memory;
}

static void report_logged(uint32_t copy_number, uint64_t position)
{
    const struct record_logged logged = {
        .kind = RECORD_LOGGED, .copy = copy_number, .position = position};
    assert_int_equal(fabric_send(lanes[1].conn, &logged, sizeof logged, NULL, 0), 0);
    fabric_flush(lanes[1].by_ofi ? lanes[1].ofi : lanes[1].shm);
}

static void blocks_of_the_lane_arrive_in_the_ring(void **state)
{
    const char *memory = lend_connected(FIRST), *same = NULL;
    const struct record_ring *ring = &lanes[1].last.ring;
    char *mapped = fabric_map(lanes[1].conn, ring->region, ring->offset, RING_BYTES);
    assert_non_null(mapped);
    memcpy(mapped + RING_BYTES - 8, "block", sizeof "block");
    assert_string_equal(memory + RING_BYTES - 8, "block");
    assert_int_equal(lend(FIRST, &same), 0);
    assert_ptr_equal(same, memory);
    assert_true(holder_has_ring(k, &(struct holder_ring){JOB, 1, FIRST}));
    assert_false(holder_has_ring(k, &(struct holder_ring){JOB, 1, SECOND}));
}

static void reports_of_both_ends_are_passed_on(void **state)
{
    struct holder_ring ring;
    uint64_t position = 0;
    lend_connected(FIRST);
    uint32_t region = lanes[1].last.ring.region;
    assert_false(holder_next_logged(k, &ring, &position));
    report_logged(SECOND, 4096); /* of another copy: ignored */
    report_logged(FIRST, 128);
    until(holder_next_logged(k, &ring, &position));
    assert_int_equal(ring.lane, 1);
    assert_int_equal(ring.copy, FIRST);
    assert_int_equal(position, 128);
    assert_false(holder_next_logged(k, &ring, &position));
    holder_taken(k, &(struct holder_ring){JOB, 1, SECOND}, 64);
    holder_taken(k, &ring, 128);
    until(lanes[1].last.kind == RECORD_TAKEN);
    assert_int_equal(lanes[1].last.taken.position, 128);
    assert_int_equal(lanes[1].last.taken.region, region);
}

static void a_lane_of_another_host_receives_offer_and_reports(void **state)
{
    const char *memory = NULL;
    struct holder_ring ring;
    uint64_t position = 0;
    listen_ofi(&lanes[1]);
    const struct record_connect ticket = ticket_for(1);
    assert_int_equal(lend(FIRST, &memory), 0);
    expect_ask(1, 0);
    holder_ticket(k, JOB, 1, 0, "", lanes[1].ofi_address, &ticket);
    until(lanes[1].last.kind == RECORD_RING);
    assert_int_equal(lanes[1].by_ofi, 1);
    report_logged(FIRST, 256);
    until(holder_next_logged(k, &ring, &position));
    holder_taken(k, &ring, position);
    until(lanes[1].last.kind == RECORD_TAKEN);
    assert_int_equal(lanes[1].last.taken.position, 256);
    until(holder_withdraw_ring(k, JOB, 1) == 0);
}

/* The lane ignores a report that arrives before the copy is placed, so the report is repeated. */
static void a_repeated_call_repeats_the_last_report(void **state)
{
    const char *memory = NULL;
    struct holder_ring ring;
    uint64_t position = 0;
    lend_connected(FIRST);
    report_logged(FIRST, 128);
    until(holder_next_logged(k, &ring, &position));
    assert_false(holder_next_logged(k, &ring, &position));
    assert_int_equal(lend(FIRST, &memory), 0);
    assert_true(holder_next_logged(k, &ring, &position));
    assert_int_equal(position, 128);
}

static void another_copy_replaces_a_ring_without_a_connection(void **state)
{
    const char *memory = NULL;
    assert_int_equal(lend(FIRST, &memory), 0);
    assert_int_equal(lend(SECOND, &memory), 0);
    assert_false(holder_has_ring(k, &(struct holder_ring){JOB, 1, FIRST}));
    assert_true(holder_has_ring(k, &(struct holder_ring){JOB, 1, SECOND}));
}

static void another_copy_gets_memory_after_the_end_of_the_connection(void **state)
{
    const char *memory = NULL;
    lend_connected(FIRST);
    lanes[1].is_stopped = true; /* the lane may still write */
    for (int i = 0; i < 3; i++)
        assert_int_equal(lend(SECOND, &memory), -EAGAIN);
    assert_null(memory);
    lanes[1].is_stopped = false;
    until(lanes[1].closed == 1);
    until(lend(SECOND, &memory) == 0);
    connect_lane(1);
    until(lanes[1].last.ring.copy == SECOND);
    for (uint64_t i = 0; i < RING_BYTES; i++)
        assert_int_equal(memory[i], 0);
}

static void a_withdrawn_ring_stays_until_its_end(void **state)
{
    const char *memory = lend_connected(FIRST);
    until(holder_withdraw_ring(k, JOB, 1) == 0);
    assert_int_equal(memory[0], 0);
    assert_true(holder_has_ring(k, &(struct holder_ring){JOB, 1, FIRST}));
    holder_end_ring(k, JOB, 1);
    assert_false(holder_has_ring(k, &(struct holder_ring){JOB, 1, FIRST}));
    assert_int_equal(holder_withdraw_ring(k, JOB, 1), 0);
    holder_end_ring(k, JOB, 1);
    expect_no_ask();
}

/* The end of the copies of pieces, and an answer that the job is unknown, keep the ring, because a
 * lane of this process reads it. */
static void a_ring_outlives_the_copies_of_pieces(void **state)
{
    const char *memory = lend_connected(FIRST);
    keep(1, copy(1, 1));
    expect_told(1, 1);
    holder_end(k, JOB, NULL, 0, true);
    settle();
    assert_int_equal(memory[0], 0);
    assert_true(holder_has_ring(k, &(struct holder_ring){JOB, 1, FIRST}));
    assert_int_equal(lanes[1].closed, 0);
    holder_end(k, JOB, NULL, 0, false);
    until(lanes[1].closed == 1);
    assert_false(holder_has_ring(k, &(struct holder_ring){JOB, 1, FIRST}));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(blocks_of_the_lane_arrive_in_the_ring, start, stop),
        cmocka_unit_test_setup_teardown(reports_of_both_ends_are_passed_on, start, stop),
        cmocka_unit_test_setup_teardown(a_lane_of_another_host_receives_offer_and_reports, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_repeated_call_repeats_the_last_report, start, stop),
        cmocka_unit_test_setup_teardown(another_copy_replaces_a_ring_without_a_connection, start,
                                        stop),
        cmocka_unit_test_setup_teardown(another_copy_gets_memory_after_the_end_of_the_connection,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_withdrawn_ring_stays_until_its_end, start, stop),
        cmocka_unit_test_setup_teardown(a_ring_outlives_the_copies_of_pieces, start, stop),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
