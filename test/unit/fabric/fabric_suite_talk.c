/* Tests connections and messages as defined in svc/fabric/fabric.h. */
#include "test/unit/fabric/fabric_suite.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void a_ticket_arrives_as_it_was_sent(void **state)
{
    struct rig *rig = *state;
    unsigned char ticket[FABRIC_TICKET_BYTES_MAX];

    for (size_t i = 0; i < sizeof ticket; i++)
        ticket[i] = (unsigned char)(255 - i);
    struct fabric_conn *c;
    assert_int_equal(
        fabric_connect(rig->workers[0].fabric, rig->address, ticket, sizeof ticket, NULL, &c), 0);
    struct seen request = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST);
    assert_null(request.event.owner);
    assert_int_equal(request.event.bytes, sizeof ticket);
    assert_memory_equal(request.data, ticket, sizeof ticket);
}

static void a_ticket_that_is_too_long_is_refused(void **state)
{
    struct rig *rig = *state;
    char ticket[FABRIC_TICKET_BYTES_MAX + 1] = {0};
    struct fabric_conn *c;

    assert_int_equal(
        fabric_connect(rig->workers[0].fabric, rig->address, ticket, sizeof ticket, NULL, &c),
        -EINVAL);
}

static void an_accepted_connection_opens_once_on_both_sides(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    rig_expect_nothing(rig, &rig->lane);
    rig_expect_nothing(rig, &rig->workers[0]);
    assert_true(strlen(fabric_peer(rig->at_lane[0])) > 0);
    assert_true(strlen(fabric_describe(rig->lane.fabric)) > 0);
}

static void an_answer_may_come_in_a_later_poll(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;

    assert_int_equal(fabric_connect(rig->workers[0].fabric, rig->address, "t", 1, NULL, &c), 0);
    struct seen request = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST);
    rig_expect_nothing(rig, &rig->lane);
    assert_int_equal(fabric_accept(request.event.conn, rig), 0);
    rig_expect(rig, &rig->workers[0], FABRIC_EVENT_OPEN);
    assert_ptr_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_OPEN).event.owner, rig);
}

static void a_refusal_carries_its_reason(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;

    assert_int_equal(fabric_connect(rig->workers[0].fabric, rig->address, "t", 1, rig, &c), 0);
    struct seen request = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST);
    fabric_refuse(request.event.conn, EKEYREJECTED);
    struct seen closed = rig_expect(rig, &rig->workers[0], FABRIC_EVENT_CLOSED);
    assert_ptr_equal(closed.event.conn, c);
    assert_ptr_equal(closed.event.owner, rig);
    assert_int_equal(closed.event.error, -ECONNREFUSED);
    assert_int_equal(closed.event.word, EKEYREJECTED);
    rig_expect_nothing(rig, &rig->lane);
    rig_expect_nothing(rig, &rig->workers[0]);
}

static void a_connect_without_a_listener_is_refused(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;
    int r = fabric_connect(rig->workers[0].fabric, rig->factory->dead_address, "t", 1, NULL, &c);

    if (r == 0)
        r = rig_expect(rig, &rig->workers[0], FABRIC_EVENT_CLOSED).event.error;
    assert_int_equal(r, -ECONNREFUSED);
    rig_expect_nothing(rig, &rig->workers[0]);
}

static void a_worker_that_closes_before_the_answer_leaves_no_connection(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;

    assert_int_equal(fabric_connect(rig->workers[0].fabric, rig->address, "t", 1, NULL, &c), 0);
    fabric_disconnect(c);
    rig_expect_closed(rig, &rig->workers[0], NULL, 0);
    rig_connect(rig, 1);
    rig_send(rig->at_worker[1], "still here");
    rig_expect_text(rig, &rig->lane, "still here");
}

static void messages_arrive_in_order_both_ways(void **state)
{
    struct rig *rig = *state;
    char text[32];

    rig_connect(rig, 0);
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof text, "up %d", i);
        rig_send(rig->at_worker[0], text);
        snprintf(text, sizeof text, "down %d", i);
        rig_send(rig->at_lane[0], text);
        rig_pump(rig);
    }
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof text, "up %d", i);
        rig_expect_text(rig, &rig->lane, text);
        snprintf(text, sizeof text, "down %d", i);
        rig_expect_text(rig, &rig->workers[0], text);
    }
}

static void messages_of_every_length_arrive_whole(void **state)
{
    struct rig *rig = *state;
    unsigned char bytes[FABRIC_MESSAGE_BYTES_MAX + 1];

    rig_connect(rig, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + 1);
    for (size_t length = 1; length <= FABRIC_MESSAGE_BYTES_MAX; length++) {
        assert_int_equal(fabric_send(rig->at_worker[0], bytes, length, NULL, 0), 0);
        struct seen seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
        assert_int_equal(seen.event.bytes, length);
        assert_memory_equal(seen.data, bytes, length);
    }
    assert_int_equal(fabric_send(rig->at_worker[0], bytes, sizeof bytes, NULL, 0), -EMSGSIZE);
}

static void a_payload_follows_its_message_or_is_refused(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    memset(region.base, 0x5a, 100);
    int r = fabric_send(rig->at_worker[0], "header", 6, region.base, 100);
    if (rig->factory->payload_bytes_max < 100) {
        assert_int_equal(r, -EMSGSIZE);
    } else {
        assert_int_equal(r, 0);
        struct seen seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
        assert_int_equal(seen.event.bytes, 106);
        assert_memory_equal(seen.data, "header", 6);
        assert_memory_equal(seen.data + 6, region.base, 100);
    }
    assert_int_equal(fabric_send(rig->at_worker[0], "header", 6, region.base,
                                 rig->factory->payload_bytes_max + 1),
                     -EMSGSIZE);
    region_destroy(&region);
}

#define FLOOD 10000u

/* Sends messages through one queue, which is often full. Each message contains its number. */
static void ten_thousand_messages_pass_a_full_queue(void **state)
{
    struct rig *rig = *state;
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    uint32_t sent = 0, got = 0, refusals = 0;
    bool may_send = true;
    struct seen seen;

    rig_connect(rig, 0);
    while (got < FLOOD) {
        while (may_send && sent < FLOOD) {
            int r = fabric_send(rig->at_worker[0], &sent, sizeof sent, NULL, 0);
            assert_true(r == 0 || r == -EAGAIN);
            may_send = r == 0;
            refusals += r < 0;
            sent += r == 0;
        }
        rig_pump(rig);
        while (rig->lane.seen_count > 0) {
            seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
            assert_memory_equal(seen.data, &got, sizeof got);
            got++;
        }
        while (rig->workers[0].seen_count > 0) {
            rig_expect(rig, &rig->workers[0], FABRIC_EVENT_ROOM);
            assert_false(may_send);
            may_send = true;
        }
        assert_true(clock_now_ns() < deadline_ns);
    }
    assert_true(refusals > 0);
}

static void a_peer_that_is_never_polled_delays_no_other_peer(void **state)
{
    struct rig *rig = *state;
    int r = 0;

    for (int i = 0; i < RIG_WORKERS; i++)
        rig_connect(rig, i);
    rig->workers[0].is_stuck = true;
    for (int i = 0; i < 100000 && r == 0; i++)
        r = fabric_send(rig->at_lane[0], "unread", 7, NULL, 0);
    assert_int_equal(r, -EAGAIN);
    for (int round = 0; round < 50; round++) {
        for (int i = 1; i < RIG_WORKERS; i++) {
            rig_send(rig->at_worker[i], "up");
            rig_send(rig->at_lane[i], "down");
        }
        for (int i = 1; i < RIG_WORKERS; i++) {
            rig_expect_text(rig, &rig->lane, "up");
            rig_expect_text(rig, &rig->workers[i], "down");
        }
    }
    /* a network buffers more messages than the queue holds, so the lane may have received ROOM
     * events */
    for (int i = 0; i < rig->lane.seen_count; i++)
        assert_int_equal(rig->lane.seen[i].event.kind, FABRIC_EVENT_ROOM);
}

static void one_worker_talks_to_itself_through_two_connections(void **state)
{
    struct rig *rig = *state;
    struct side *worker = &rig->workers[0];
    struct fabric_conn *up[2], *down[2];

    for (int i = 0; i < 2; i++) {
        assert_int_equal(fabric_connect(worker->fabric, rig->address, &i, sizeof i, &up[i], &up[i]),
                         0);
        down[i] = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST).event.conn;
        assert_int_equal(fabric_accept(down[i], &down[i]), 0);
        rig_expect(rig, worker, FABRIC_EVENT_OPEN);
        rig_expect(rig, &rig->lane, FABRIC_EVENT_OPEN);
    }
    for (int i = 0; i < 2; i++) {
        rig_send(up[i], "which?");
        struct seen seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
        assert_ptr_equal(seen.event.owner, &down[i]);
    }
}

static void check_dead(struct fabric_conn *c)
{
    char local[8] = {0};

    assert_int_equal(fabric_send(c, "x", 1, NULL, 0), -ECONNRESET);
    assert_int_equal(fabric_notify(c, 1, NULL), -ECONNRESET);
    assert_int_equal(fabric_read(c, 0, 0, local, 8, NULL), -ECONNRESET);
    assert_int_equal(fabric_write(c, 0, 0, local, 8, NULL), -ECONNRESET);
    fabric_disconnect(c);
}

static void a_disconnect_closes_both_sides_once(void **state)
{
    struct rig *rig = *state;

    for (int by_lane = 0; by_lane < 2; by_lane++) {
        rig_connect(rig, 0);
        struct region region = rig_lend(rig, 0, 0, 4096);
        struct fabric_conn *c = by_lane ? rig->at_lane[0] : rig->at_worker[0];
        fabric_disconnect(c);
        check_dead(c);
        rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], 0);
        rig_expect_closed(rig, &rig->workers[0], &rig->workers[0], 0);
        region_destroy(&region);
    }
}

static void a_lane_that_is_left_closes_before_its_worker(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    for (int i = 0; i < 2; i++) {
        fabric_leave(rig->at_worker[0]);
        assert_int_equal(fabric_send(rig->at_worker[0], "x", 1, NULL, 0), -ECONNRESET);
    }
    rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], 0);
    rig_expect_closed(rig, &rig->workers[0], &rig->workers[0], 0);
    region_destroy(&region);
}

static void closing_a_fabric_closes_its_peers(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    rig_connect(rig, 1);
    fabric_close(rig->workers[0].fabric);
    rig->workers[0].fabric = NULL;
    struct seen closed = rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
    assert_ptr_equal(closed.event.owner, &rig->at_lane[0]);
    rig_send(rig->at_worker[1], "unharmed");
    rig_expect_text(rig, &rig->lane, "unharmed");
    rig_expect_nothing(rig, &rig->lane);
}

static void a_reconnect_works_as_the_first_time(void **state)
{
    struct rig *rig = *state;

    for (int round = 0; round < 10; round++) {
        rig_connect(rig, 0);
        struct region region = rig_lend(rig, 0, 0, 4096);
        rig_send(rig->at_worker[0], "again");
        rig_expect_text(rig, &rig->lane, "again");
        fabric_disconnect(rig->at_worker[0]);
        rig_expect_closed(rig, &rig->workers[0], &rig->workers[0], 0);
        rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], 0);
        region_destroy(&region);
    }
}

const struct CMUnitTest fabric_talk_cases[] = {
    FABRIC_CASE(a_ticket_arrives_as_it_was_sent),
    FABRIC_CASE(a_ticket_that_is_too_long_is_refused),
    FABRIC_CASE(an_accepted_connection_opens_once_on_both_sides),
    FABRIC_CASE(an_answer_may_come_in_a_later_poll),
    FABRIC_CASE(a_refusal_carries_its_reason),
    FABRIC_CASE(a_connect_without_a_listener_is_refused),
    FABRIC_CASE(a_worker_that_closes_before_the_answer_leaves_no_connection),
    FABRIC_CASE(messages_arrive_in_order_both_ways),
    FABRIC_CASE(messages_of_every_length_arrive_whole),
    FABRIC_CASE(a_payload_follows_its_message_or_is_refused),
    FABRIC_CASE(ten_thousand_messages_pass_a_full_queue),
    FABRIC_CASE(a_peer_that_is_never_polled_delays_no_other_peer),
    FABRIC_CASE(one_worker_talks_to_itself_through_two_connections),
    FABRIC_CASE(a_disconnect_closes_both_sides_once),
    FABRIC_CASE(a_lane_that_is_left_closes_before_its_worker),
    FABRIC_CASE(closing_a_fabric_closes_its_peers),
    FABRIC_CASE(a_reconnect_works_as_the_first_time),
};
const size_t fabric_talk_cases_count = sizeof fabric_talk_cases / sizeof fabric_talk_cases[0];
