/* Tests the copies that an aggregator stores for lanes of other aggregators, over real connections:
 * tickets, messages about a copy, and the end of a copy (svc/replica). test_holder_fence tests
 * moves. */
#include "test/lib/kept_log.h"
#include "test/unit/replica/keeping_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* ---- tickets ---- */

static void a_ticket_is_requested_once_and_copies_are_reported_when_connected(void **state)
{
    const struct holder_copy both[] = {copy(1, 1), copy(2, 1)};
    assert_int_equal(holder_timeout_ms(k), -1);
    assert_int_equal(holder_keep(k, JOB, "job", 1, both, 2), 0);
    assert_int_equal(atomic_load(&asks), 1);
    assert_int_equal(holder_timeout_ms(k), 0);
    expect_ask(1, 0);
    expect_no_ask();
    keep(1, copy(3, 1)); /* the first request has no answer yet */
    expect_no_ask();
    grant(1);
    expect_told(1, 3);
    assert_int_equal(lanes[1].ticket.rank, RECORD_HOLDER | AGGREGATOR);
    assert_int_equal(lanes[1].ticket.lane, 1);
    assert_int_equal(lanes[1].regions, 1);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(lanes[1].told[i].piece, i + 1);
    keep(1, copy(4, 1));
    expect_told(1, 4);
    assert_int_equal(atomic_load(&asks), 1);
    assert_int_equal(use().connections, 1);
    assert_int_equal(use().copies, 4);
    assert_int_equal(use().bytes, 8 * BYTES);
}

static void a_ticket_without_a_request_is_not_used(void **state)
{
    grant(1);
    keep(1, copy(1, 1));
    grant(1);
    settle();
    assert_int_equal(lanes[1].opened, 0);
    connect_lane(1);
}

static void the_request_for_an_absent_lane_is_repeated_after_a_pause(void **state)
{
    struct holder_ask ask;
    keep(1, copy(1, 1));
    for (int i = 0; i < 2; i++) {
        expect_ask(1, 0);
        refuse(1, -EAGAIN);
        assert_false(holder_next_ask(k, &ask));
        assert_true(holder_timeout_ms(k) > 0);
    }
    connect_lane(1);
    assert_true(holds_nothing(expect_told(1, 1)));
}

static void copies_unknown_to_the_coordinator_are_dropped(void **state)
{
    keep(1, copy(1, 1));
    expect_ask(1, 0);
    refuse(1, -ENOENT);
    assert_int_equal(use().copies, 0);
    holder_ask_again(k);
    expect_no_ask();
    keep(1, copy(1, 1)); /* the dropped piece is stored again like a new one */
    connect_lane(1);
    expect_told(1, 1);
}

static void an_ended_lane_is_awaited_without_requests(void **state)
{
    keep(1, copy(1, 1));
    expect_ask(1, 0);
    refuse(1, -ESTALE);
    expect_no_ask();
    assert_int_equal(use().copies, 1);
    keep(2, copy(1, 2)); /* the piece moves to lane 2 */
    connect_lane(2);
    expect_told(2, 1);
    assert_int_equal(lanes[1].opened, 0);
}

static void a_returned_coordinator_gets_requests_for_all_missing_lanes(void **state)
{
    keep(1, copy(1, 1));
    keep(2, copy(2, 1));
    expect_ask(1, 0);
    expect_ask(2, 0);
    refuse(2, -ESTALE);
    /* the answer about lane 1 was lost, and the coordinator may know lane 2 again */
    holder_ask_again(k);
    expect_ask(1, 0);
    expect_ask(2, 0);
    grant(1);
    grant(2);
    expect_told(1, 1);
    expect_told(2, 1);
    holder_ask_again(k);
    expect_no_ask();
}

static void a_connect_that_fails_is_tried_again_with_a_new_ticket(void **state)
{
    struct holder_ask ask;
    const struct record_connect ticket = ticket_for(1);
    keep(1, copy(1, 1));
    expect_ask(1, 0);
    kept_log_begin();
    holder_ticket(k, JOB, 1, 0, "@gradpool-nobody-listens", "", &ticket);
    kept_log_expect(": this replica holder cannot reach lane 1: ");
    assert_false(holder_next_ask(k, &ask));
    expect_ask(1, 1);
    holder_ticket(k, JOB, 1, 0, "", "", &ticket);
    expect_ask(1, 2);
    grant(1);
    expect_told(1, 1);
    kept_log_expect(": this replica holder stores replicas of lane 1, by ");
    end_connection(1);
    expect_ask(1, 3); /* a connection that is closed at once counts as a failure */
}

static void a_lane_that_refuses_is_reached_over_the_network_next(void **state)
{
    listen_ofi(&lanes[1]);
    lanes[1].refuses = true;
    keep(1, copy(1, 1));
    expect_ask(1, 0);
    grant(1);
    expect_ask(1, 1);
    lanes[1].refuses = false;
    grant(1);
    expect_told(1, 1);
    assert_int_equal(lanes[1].by_ofi, 1);
    assert_int_equal(use().connections, 1);
}

/* A listener with a full queue. The kernel silently drops new connections to it. */
struct hole {
    int fds[3];
    char address[FABRIC_ADDRESS_BYTES_MAX];
};

static struct hole open_hole(void)
{
    struct hole hole;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    for (int i = 0; i < 3; i++)
        hole.fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(hole.fds[0], (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(hole.fds[0], 0), 0);
    assert_int_equal(getsockname(hole.fds[0], (struct sockaddr *)&at, &bytes), 0);
    for (int i = 1; i < 3; i++)
        (void)connect(hole.fds[i], (struct sockaddr *)&at, bytes);
    snprintf(hole.address, sizeof hole.address, "127.0.0.1:%d", ntohs(at.sin_port));
    return hole;
}

static void a_host_that_does_not_answer_a_connect_is_given_up_soon(void **state)
{
    struct hole hole = open_hole();
    const struct record_connect ticket = ticket_for(1);
    uint64_t before_ns = clock_now_ns();
    listen_ofi(&lanes[1]);
    keep(1, copy(1, 1));
    expect_ask(1, 0);
    holder_ticket(k, JOB, 1, 0, "", hole.address, &ticket);
    assert_int_equal(use().connections, 1);
    assert_in_range(holder_timeout_ms(k), 1, 1000);
    kept_log_begin();
    expect_ask(1, 1);
    kept_log_expect(": lane 1 does not answer this replica holder");
    assert_true(clock_now_ns() - before_ns >= NS_PER_S);
    assert_int_equal(use().connections, 0);
    grant(1);
    expect_told(1, 1);
    assert_int_equal(holder_timeout_ms(k), -1);
    for (int i = 0; i < 3; i++)
        close(hole.fds[i]);
}

static void a_lane_that_does_not_answer_is_tried_over_the_network_next(void **state)
{
    listen_ofi(&lanes[1]);
    lanes[1].is_stopped = true;
    keep(1, copy(1, 1));
    expect_ask(1, 0);
    grant(1);
    expect_ask(1, 1);
    lanes[1].is_stopped = false;
    grant(1);
    expect_told(1, 1);
    assert_int_equal(lanes[1].by_ofi, 1);
}

/* ---- messages about a copy ---- */

static void room_for_two_states_and_their_stamps_is_lent(void **state)
{
    const struct record_backup *told = keep_at(1, copy(9, 1));
    assert_int_equal(told->piece, 9);
    assert_int_equal(told->since, RECORD_ROUND_NONE);
    assert_true(holds_nothing(told));
    char *first = half_of(1, told, 0), *second = half_of(1, told, 1);
    assert_true(second - first >= (ptrdiff_t)(BYTES + sizeof(struct record_stamp)) ||
                first - second >= (ptrdiff_t)(BYTES + sizeof(struct record_stamp)));
}

static void a_stamped_state_is_reported_on_the_next_connection(void **state)
{
    const struct record_backup *told = keep_at(1, copy(1, 1));
    write_state(1, told, 4);
    end_connection(1);
    connect_lane(1);
    told = expect_told(1, 2);
    assert_true(holds(told, 4));
    assert_int_equal(told->rounds[1], 0);
    assert_int_equal(half_of(1, told, 0)[BYTES - 1], 4);
    write_state(1, told, 5);
    write_state(1, told, 6);
    end_connection(1);
    connect_lane(1);
    told = expect_told(1, 3);
    assert_true(holds(told, 5));
    assert_true(holds(told, 6));
}

static void an_impossible_stamp_has_no_owner(void **state)
{
    const struct record_backup *told = keep_at(1, copy(1, 1));
    stamp_half(1, told, 0, (struct record_stamp){.round = 3, .steps = 2});
    stamp_half(1, told, 1, (struct record_stamp){.round = UINT64_MAX, .steps = 2});
    end_connection(1);
    connect_lane(1);
    assert_true(holds_nothing(expect_told(1, 2)));
}

static void a_new_copy_is_empty(void **state)
{
    struct holder_copy again = copy(1, 1);
    const struct record_backup *told = keep_at(1, again);
    uint32_t note = told->note;
    write_state(1, told, 4);
    keep(1, again);
    told = expect_told(1, 2);
    assert_true(holds(told, 4));
    assert_true(told->note > note);
    again.begins = true;
    keep(1, again);
    until(lanes[1].closed == 1); /* the lane may still write the former copy */
    connect_lane(1);
    assert_true(holds_nothing(expect_told(1, 3)));
}

static void a_piece_of_another_length_is_refused_and_the_rest_stays(void **state)
{
    struct holder_copy longer = copy(1, 1);
    longer.bytes++;
    const struct record_backup *told = keep_at(1, copy(1, 1));
    write_state(1, told, 4);
    assert_int_equal(holder_keep(k, JOB, "job", 1, &longer, 1), -EINVAL);
    assert_int_equal(holder_keep(k, JOB, "job", 2, &longer, 1), -EINVAL);
    expect_no_ask();
    end_connection(1);
    connect_lane(1);
    assert_true(holds(expect_told(1, 2), 4));
}

static void a_copy_without_memory_is_refused_and_leaves_nothing(void **state)
{
    const struct holder_copy copies[] = {copy(1, 1),
                                         {.piece = 2, .epoch = 1, .bytes = UINT64_C(1) << 50}};
    assert_int_equal(holder_keep(k, JOB, "job", 1, &copies[1], 1), -ENOSPC);
    expect_no_ask();
    assert_int_equal(holder_keep(k, JOB, "job", 1, copies, 2), -ENOSPC);
    assert_int_equal(use().copies, 1); /* copies before the failing one are stored */
    connect_lane(1);
    assert_int_equal(expect_told(1, 1)->piece, 1);
}

static void more_copies_than_a_message_holds_are_all_reported(void **state)
{
    struct holder_copy copies[TOLD_MOST];
    for (uint32_t i = 0; i < TOLD_MOST; i++) {
        copies[i] = copy(1000 * i, 1);
        copies[i].bytes = 8u << 20; /* each slab has room for a few copies */
    }
    assert_int_equal(holder_keep(k, JOB, "job", 1, copies, TOLD_MOST), 0);
    connect_lane(1);
    expect_told(1, TOLD_MOST);
    assert_true(lanes[1].regions > 1);
    for (uint32_t i = 0; i < TOLD_MOST; i++)
        assert_int_equal(lanes[1].told[i].piece, 1000 * i);
}

/* ---- the end of copies ---- */

static void a_lane_that_has_another_holder_is_left(void **state)
{
    uint32_t note = keep_at(1, copy(1, 1))->note;
    let_go(1, 1, note);
    until(lanes[1].closed == 1);
    assert_int_equal(use().copies, 0);
    expect_no_ask();
}

static void a_copy_that_was_stored_again_before_the_drop_stays(void **state)
{
    uint32_t note = keep_at(1, copy(1, 1))->note;
    keep(1, copy(1, 1));
    uint32_t next = expect_told(1, 2)->note;
    let_go(1, 1, note);
    let_go(1, 99, next); /* this copy does not exist */
    settle();
    assert_int_equal(use().copies, 1);
    assert_int_equal(lanes[1].closed, 0);
    let_go(1, 1, next);
    until(lanes[1].closed == 1);
    assert_int_equal(use().copies, 0);
}

static void a_copy_that_is_whole_stays(void **state)
{
    const struct record_backup *told = keep_at(1, copy(1, 1));
    const struct record_backed whole = {
        .kind = RECORD_BACKED, .piece = 1, .note = told->note, .round = 3, .steps = 2};
    assert_int_equal(fabric_send(lanes[1].conn, &whole, sizeof whole, NULL, 0), 0);
    fabric_flush(lanes[1].shm);
    settle();
    assert_int_equal(use().copies, 1);
}

static void a_dropped_copy_is_empty_when_it_begins_again(void **state)
{
    const struct holder_copy both[] = {copy(1, 1), copy(2, 1)};
    assert_int_equal(holder_keep(k, JOB, "job", 1, both, 2), 0);
    connect_lane(1);
    expect_told(1, 2);
    write_state(1, &lanes[1].told[0], 4);
    write_state(1, &lanes[1].told[1], 4);
    let_go(1, 1, lanes[1].told[0].note);
    until(use().copies == 1);
    assert_int_equal(lanes[1].closed, 0); /* the second copy still exists */
    keep(1, copy(1, 1));
    assert_true(holds_nothing(expect_told(1, 3)));
    end_connection(1);
    connect_lane(1);
    expect_told(1, 5);
    for (int i = 3; i < 5; i++)
        assert_int_equal(holds(&lanes[1].told[i], 4), lanes[1].told[i].piece == 2);
}

static void a_job_that_ends_is_left_everywhere(void **state)
{
    struct holder_copy other = copy(1, 1);
    struct holder_ask ask;
    assert_int_equal(holder_keep(k, JOB + 1, "other", 3, &other, 1), 0);
    assert_true(holder_next_ask(k, &ask));
    assert_int_equal(ask.job, JOB + 1);
    keep_at(1, copy(1, 1));
    keep(2, copy(2, 1));
    expect_ask(2, 0);
    holder_end(k, JOB, NULL, 0, false);
    until(lanes[1].closed == 1);
    grant(2); /* the holder has left this job, so the ticket is too late */
    settle();
    assert_int_equal(lanes[2].opened, 0);
    assert_int_equal(use().copies, 1); /* the copy of the second job */
    until(use().connections == 0);
    holder_end(k, JOB, NULL, 0, false);
    holder_end(k, 12345, NULL, 0, false);
    assert_true(holds_nothing(keep_at(2, copy(1, 1))));
}

/* The holder missed messages while it was disconnected. */
static void copies_missing_from_the_coordinators_list_are_dropped(void **state)
{
    const uint32_t still[] = {2, 77};
    keep_at(1, copy(1, 1));
    keep(1, copy(2, 1));
    expect_told(1, 2);
    keep_at(2, copy(3, 1));
    assert_int_equal(use().copies, 3);
    holder_end(k, JOB, still, 2, true);
    assert_int_equal(use().copies, 1);
    until(lanes[2].closed == 1);
    settle();
    assert_int_equal(lanes[1].closed, 0);
    keep(2, copy(3, 1));
    connect_lane(2);
    assert_true(holds_nothing(expect_told(2, 2)));
}

static void a_holder_that_ends_leaves_all_lanes(void **state)
{
    keep_at(1, copy(1, 1));
    keep_at(2, copy(2, 1));
    keep(3, copy(3, 1));
    expect_ask(3, 0);
    keep(3, copy(2, 2)); /* waits for the end of lane 2's connection */
    holder_destroy(k);
    k = NULL;
    until(lanes[1].closed == 1 && lanes[2].closed == 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_ticket_is_requested_once_and_copies_are_reported_when_connected),
        CASE(a_ticket_without_a_request_is_not_used),
        CASE(the_request_for_an_absent_lane_is_repeated_after_a_pause),
        CASE(copies_unknown_to_the_coordinator_are_dropped),
        CASE(an_ended_lane_is_awaited_without_requests),
        CASE(a_returned_coordinator_gets_requests_for_all_missing_lanes),
        CASE(a_connect_that_fails_is_tried_again_with_a_new_ticket),
        CASE(a_lane_that_refuses_is_reached_over_the_network_next),
        CASE(a_host_that_does_not_answer_a_connect_is_given_up_soon),
        CASE(a_lane_that_does_not_answer_is_tried_over_the_network_next),
        CASE(room_for_two_states_and_their_stamps_is_lent),
        CASE(a_stamped_state_is_reported_on_the_next_connection),
        CASE(an_impossible_stamp_has_no_owner),
        CASE(a_new_copy_is_empty),
        CASE(a_piece_of_another_length_is_refused_and_the_rest_stays),
        CASE(a_copy_without_memory_is_refused_and_leaves_nothing),
        CASE(more_copies_than_a_message_holds_are_all_reported),
        CASE(a_lane_that_has_another_holder_is_left),
        CASE(a_copy_that_was_stored_again_before_the_drop_stays),
        CASE(a_copy_that_is_whole_stays),
        CASE(a_dropped_copy_is_empty_when_it_begins_again),
        CASE(a_job_that_ends_is_left_everywhere),
        CASE(copies_missing_from_the_coordinators_list_are_dropped),
        CASE(a_holder_that_ends_leaves_all_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
