/* Tests a piece that moves between lanes while its copy stays at the same memory. No lane may use
 * this memory while another lane may still write to it (svc/replica, J3 and J4; W5 of svc/wire). */
#include "test/unit/replica/keeping_rig.h"

/* Number of calls to fabric_fence(), which this test replaces. The real function may kill a lane
 * that does not end its connection, and in this test the lane is this process. */
static int fences;

void __real_fabric_fence(struct fabric_conn *c);
void __wrap_fabric_fence(struct fabric_conn *c);
void __wrap_fabric_fence(struct fabric_conn *c)
{
    fences++;
    __real_fabric_fence(c);
}

/* Returns the copy on the piece's new route. `lost`: the former lane has not released the piece. */
static struct holder_copy moved(uint32_t piece, uint32_t epoch, bool lost)
{
    struct holder_copy what = copy(piece, epoch);
    what.lost_epoch = lost ? epoch : epoch - 1;
    return what;
}

static void keep_both_at_lane_1(void)
{
    const struct holder_copy both[] = {copy(1, 1), copy(2, 1)};
    assert_int_equal(holder_keep(k, JOB, "job", 1, both, 2), 0);
    connect_lane(1);
    expect_told(1, 2);
    for (int i = 0; i < 2; i++)
        write_state(1, &lanes[1].told[i], 4);
}

/* ---- released pieces ---- */

static void a_copy_released_by_a_lane_is_offered_to_the_next_at_once(void **state)
{
    keep_both_at_lane_1();
    lanes[1].is_stopped = true; /* the move must not wait for this lane */
    keep(2, moved(1, 2, false));
    connect_lane(2);
    const struct record_backup *told = expect_told(2, 1);
    assert_int_equal(told->piece, 1);
    assert_true(holds(told, 4));
    assert_int_equal(half_of(2, told, 0)[BYTES - 1], 4);
    lanes[1].is_stopped = false;
    settle();
    assert_int_equal(lanes[1].closed, 0); /* the lane still has the second copy */
    assert_int_equal(use().connections, 2);
}

static void a_lane_without_any_copy_left_is_left_and_found_again(void **state)
{
    write_state(1, keep_at(1, copy(1, 1)), 4);
    keep(2, moved(1, 2, false));
    until(lanes[1].closed == 1);
    connect_lane(2);
    write_state(2, expect_told(2, 1), 5);
    keep(1, moved(1, 3, false));
    connect_lane(1);
    until(lanes[2].closed == 1);
    assert_true(holds(expect_told(1, 2), 4));
    assert_true(holds(expect_told(1, 2), 5));
}

static void a_lane_that_gets_a_copy_while_it_is_being_left_is_connected_anew(void **state)
{
    keep_at(1, copy(1, 1));
    lanes[1].is_stopped = true;
    keep(2, moved(1, 2, false));
    keep(1, moved(1, 3, false));
    lanes[1].is_stopped = false;
    connect_lane(1);
    expect_told(1, 2);
    assert_int_equal(lanes[1].opened, 2);
}

/* ---- pieces of a lost lane ---- */

static void no_message_names_a_copy_that_a_lost_lane_may_still_write(void **state)
{
    keep_both_at_lane_1();
    lanes[1].is_stopped = true;
    keep(2, moved(1, 2, true));
    connect_lane(2);
    settle();
    assert_int_equal(lanes[2].told_count, 0);
    write_state(1, &lanes[1].told[0], 5); /* the lane does not know of the move yet */
    lanes[1].is_stopped = false;
    until(lanes[1].closed == 1);
    const struct record_backup *told = expect_told(2, 1);
    assert_true(holds(told, 4));
    assert_true(holds(told, 5));
}

static void other_copies_of_a_lost_lane_wait_for_its_successor(void **state)
{
    keep_both_at_lane_1();
    keep(2, moved(1, 2, true));
    connect_lane(2);
    until(lanes[1].closed == 1);
    expect_told(2, 1);
    /* the coordinator decides whether the lane also counts as lost for its other copies */
    expect_ask(1, 0);
    refuse(1, -ESTALE);
    expect_no_ask();
    keep(3, moved(2, 2, true));
    connect_lane(3);
    assert_true(holds(expect_told(3, 1), 4));
    assert_int_equal(lanes[1].opened, 1);
}

static void a_lane_whose_connection_has_ended_is_no_fence(void **state)
{
    write_state(1, keep_at(1, copy(1, 1)), 4);
    end_connection(1);
    expect_ask(1, 1);
    refuse(1, -ESTALE);
    keep(2, moved(1, 2, true));
    connect_lane(2);
    assert_true(holds(expect_told(2, 1), 4));
}

static void a_copy_goes_on_to_a_third_lane_behind_the_same_fence(void **state)
{
    write_state(1, keep_at(1, copy(1, 1)), 4);
    lanes[1].is_stopped = true;
    keep(2, moved(1, 2, true));
    connect_lane(2);
    keep(3, moved(1, 3, true)); /* the second lane is lost, too, and has received no message */
    connect_lane(3);
    settle();
    assert_int_equal(lanes[3].told_count, 0);
    lanes[1].is_stopped = false;
    assert_true(holds(expect_told(3, 1), 4));
    assert_int_equal(lanes[2].told_count, 0);
    until(lanes[2].closed == 1);
}

static void a_job_may_end_behind_a_fence(void **state)
{
    keep_at(1, copy(1, 1));
    lanes[1].is_stopped = true;
    keep(2, moved(1, 2, true));
    connect_lane(2);
    holder_end(k, JOB, NULL, 0, false);
    until(lanes[2].closed == 1);
    assert_int_equal(use().copies, 0);
    until(use().connections == 1);
    lanes[1].is_stopped = false;
    until(lanes[1].closed == 1);
    until(use().connections == 0);
}

static void a_holder_may_end_behind_a_fence(void **state)
{
    keep_at(1, copy(1, 1));
    lanes[1].is_stopped = true;
    keep(2, moved(1, 2, true));
    connect_lane(2);
    holder_destroy(k);
    k = NULL;
    until(lanes[2].closed == 1);
}

/* The coordinator does not know this copy. The lost lane may still write to it. */
static void a_copy_may_be_forgotten_behind_a_fence(void **state)
{
    keep_at(1, copy(1, 1));
    lanes[1].is_stopped = true;
    keep(2, moved(1, 2, true));
    expect_ask(2, 0);
    refuse(2, -ENOENT);
    assert_int_equal(use().copies, 0);
    assert_int_equal(use().connections, 1);
    lanes[1].is_stopped = false;
    until(lanes[1].closed == 1);
    assert_true(holds_nothing(keep_at(2, copy(1, 3))));
}

/* ---- new copies that a lane may still write ---- */

static void forget(uint32_t piece) { holder_end(k, JOB, &piece, 1, false); }

/* The lane posted the write before it received the message about the drop. The write arrived while
 * the copy was dropped and stored again. */
static void a_stamp_before_the_end_of_the_connection_has_no_owner(void **state)
{
    keep_at(2, copy(2, 1)); /* keeps the memory in use */
    const struct record_backup told = *keep_at(1, copy(1, 1));
    write_state(1, &told, 4);
    lanes[1].is_stopped = true;
    forget(1);
    keep(1, copy(1, 1));
    write_state(1, &told, 5);
    lanes[1].is_stopped = false;
    until(lanes[1].closed == 1);
    connect_lane(1);
    assert_true(holds_nothing(expect_told(1, 2)));
}

static void a_stamp_behind_a_fence_has_no_owner_when_the_copy_begins(void **state)
{
    const struct record_backup told = *keep_at(1, copy(1, 1));
    write_state(1, &told, 4);
    lanes[1].is_stopped = true;
    keep(2, moved(1, 2, true));
    forget(1);
    keep(3, moved(1, 3, true));
    write_state(1, &told, 5);
    connect_lane(3);
    settle();
    assert_int_equal(lanes[3].told_count, 0);
    lanes[1].is_stopped = false;
    assert_true(holds_nothing(expect_told(3, 1)));
}

static void memory_that_a_lane_may_write_is_used_for_no_other_piece(void **state)
{
    keep_at(2, copy(2, 1)); /* keeps the memory in use */
    const struct record_backup told = *keep_at(1, copy(1, 1));
    lanes[1].is_stopped = true;
    forget(1);
    settle();
    keep(2, copy(3, 1));
    const struct record_backup *next = expect_told(2, 2);
    assert_int_equal(next->piece, 3);
    write_state(2, next, 7);
    write_state(1, &told, 9);
    assert_int_equal(half_of(2, next, 1)[0], 7);
    assert_int_equal(half_of(2, next, 1)[BYTES - 1], 7);
    lanes[1].is_stopped = false;
    until(lanes[1].closed == 1);
    until(use().connections == 1); /* from now on the memory of the connection's copies is free */
    keep(2, copy(4, 1));
    next = expect_told(2, 3);
    assert_int_equal(next->offset[0], told.offset[0]);
}

/* The holder closes the connection to get a new copy. The lane is lost before it has detected the
 * end of the connection. */
static void a_lane_that_is_being_left_is_fenced_when_it_is_lost(void **state)
{
    fences = 0;
    keep_both_at_lane_1();
    lanes[1].is_stopped = true;
    forget(1);
    keep(1, copy(1, 1));
    assert_int_equal(fences, 0);
    keep(2, moved(2, 2, true));
    assert_int_equal(fences, 1);
    connect_lane(2);
    settle();
    assert_int_equal(lanes[2].told_count, 0);
    lanes[1].is_stopped = false;
    assert_true(holds(expect_told(2, 1), 4));
}

/* The lane has other copies of this holder, so nothing else would close the connection. */
static void a_lane_with_an_open_write_gets_a_new_copy_on_another_connection(void **state)
{
    keep_both_at_lane_1();
    const struct record_backup told = lanes[1].told[0];
    lanes[1].is_stopped = true;
    forget(told.piece);
    keep(1, copy(told.piece, 1));
    write_state(1, &told, 5);
    lanes[1].is_stopped = false;
    until(lanes[1].closed == 1);
    connect_lane(1);
    expect_told(1, 4);
    for (int i = 2; i < 4; i++) {
        bool begins = lanes[1].told[i].piece == told.piece;
        assert_int_equal(holds_nothing(&lanes[1].told[i]), begins);
        assert_int_equal(holds(&lanes[1].told[i], 4), !begins);
    }
    settle();
    assert_int_equal(lanes[1].opened, 2);
}

/* ---- copies that another lane gets ---- */

/* The lane may have posted a write before its report. The holder announces the lane's other copies
 * to the lane again. */
static void a_copy_that_another_lane_gets_after_a_pause_has_its_connection_ended(void **state)
{
    keep_both_at_lane_1();
    let_go(1, 1, lanes[1].told[0].note);
    until(use().copies == 1);
    keep(2, moved(1, 2, false));
    until(lanes[1].closed == 1);
    struct holder_ask ask;
    for (int asked = 0; asked < 2; asked++) {
        until(holder_next_ask(k, &ask));
        grant(ask.lane);
    }
    const struct record_backup *told = expect_told(2, 1);
    assert_int_equal(told->piece, 1);
    assert_true(holds_nothing(told));
    told = expect_told(1, 3);
    assert_int_equal(told->piece, 2);
    assert_true(holds(told, 4));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_copy_released_by_a_lane_is_offered_to_the_next_at_once),
        CASE(a_lane_without_any_copy_left_is_left_and_found_again),
        CASE(a_lane_that_gets_a_copy_while_it_is_being_left_is_connected_anew),
        CASE(no_message_names_a_copy_that_a_lost_lane_may_still_write),
        CASE(other_copies_of_a_lost_lane_wait_for_its_successor),
        CASE(a_lane_whose_connection_has_ended_is_no_fence),
        CASE(a_copy_goes_on_to_a_third_lane_behind_the_same_fence),
        CASE(a_job_may_end_behind_a_fence),
        CASE(a_holder_may_end_behind_a_fence),
        CASE(a_copy_may_be_forgotten_behind_a_fence),
        CASE(a_stamp_before_the_end_of_the_connection_has_no_owner),
        CASE(a_stamp_behind_a_fence_has_no_owner_when_the_copy_begins),
        CASE(memory_that_a_lane_may_write_is_used_for_no_other_piece),
        CASE(a_lane_that_is_being_left_is_fenced_when_it_is_lost),
        CASE(a_lane_with_an_open_write_gets_a_new_copy_on_another_connection),
        CASE(a_copy_that_another_lane_gets_after_a_pause_has_its_connection_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
