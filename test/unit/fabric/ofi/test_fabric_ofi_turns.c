/* Tests turns of tenants in a poll (O35). A tenant with many busy connections delays no other
 * tenant. The order does not depend on the speed of the host. No event is left while the caller
 * sleeps. The time of a poll is charged to the jobs whose connections were read. */
#include "test/unit/fabric/fabric_suite.h"

#include "svc/fabric/group.h"
#include "svc/fabric/ofi/conn.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define CONNS 24
#define MORE_CONNS (FABRIC_GROUP_LOOKS_MAX + 8) /* more connections than one poll reads */
#define MESSAGES 16
#define EVENTS 64
#define POLLS_MAX 100000

static int open_ofi(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("ofi", options, ret_fabric);
}

static void name_v4(char *ret_address)
{
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "127.0.0.1:0");
}

static const struct fabric_factory v4 = {.name = "fabric_ofi_turns",
                                         .open = open_ofi,
                                         .name_address = name_v4,
                                         .dead_address = "127.0.0.1:1"};

/* A job of its own tenant, and both ends of its connections. */
struct party {
    struct fabric_group tenant, job;
    struct fabric_conn *at_lane[MORE_CONNS], *at_worker[MORE_CONNS];
    int count, heard;
    uint64_t billed_ns;
};

static struct rig rig;
static struct party flood, victim;

static void charge_party(struct fabric_group *group, uint64_t polled_ns, uint64_t helped_ns)
{
    assert_true(polled_ns > 0);
    assert_int_equal(helped_ns, 0);
    container_of(group, struct party, job)->billed_ns += polled_ns;
}

static void party_begin(struct party *p)
{
    *p = (struct party){0};
    fabric_group_init(&p->tenant, NULL);
    fabric_group_init(&p->job, &p->tenant);
    p->job.charge = charge_party;
}

static void party_connect(struct party *p)
{
    int i = p->count++;
    struct side *worker = &rig.workers[0];
    assert_int_equal(fabric_connect(worker->fabric, rig.address, "t", 1, p, &p->at_worker[i]), 0);
    p->at_lane[i] = rig_expect(&rig, &rig.lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(p->at_lane[i], p), 0);
    fabric_join_group(p->at_lane[i], &p->job);
    rig_expect(&rig, &rig.lane, FABRIC_EVENT_OPEN);
    rig_expect(&rig, worker, FABRIC_EVENT_OPEN);
}

static int start(void **state)
{
    memset(&rig, 0, sizeof rig);
    rig_open(&rig, &v4, NULL);
    party_begin(&flood);
    party_begin(&victim);
    for (int i = 0; i < CONNS; i++)
        party_connect(&flood);
    party_connect(&victim);
    return 0;
}

static int stop(void **state)
{
    rig_close(&rig);
    return 0;
}

/* The first message of each connection is sent at once. The other messages are sent by
 * fabric_flush(). */
static void party_post(struct party *p, int messages)
{
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < messages; k++)
            assert_int_equal(fabric_send(p->at_worker[i], "hello", 5, NULL, 0), 0);
}

static void party_send(struct party *p, int messages)
{
    party_post(p, messages);
    fabric_flush(rig.workers[0].fabric);
}

/* Waits until bytes have arrived at the lane's end of each connection. */
static void party_await_bytes(const struct party *p)
{
    for (int i = 0; i < p->count; i++) {
        struct pollfd wait = {.fd = ((struct ofi_conn *)p->at_lane[i])->socket_fd,
                              .events = POLLIN};
        assert_true(wait.fd >= 0);
        assert_int_equal(poll(&wait, 1, 10000), 1);
    }
}

static int poll_lane(void)
{
    struct fabric_event events[EVENTS];
    int count = fabric_poll(rig.lane.fabric, events, EVENTS);
    for (int i = 0; i < count; i++) {
        if (events[i].kind != FABRIC_EVENT_MESSAGE)
            continue;
        ((struct party *)events[i].owner)->heard++;
        fabric_message_done(events[i].conn, events[i].data);
    }
    return count;
}

static void a_tenant_with_many_connections_delays_no_other_tenant(void **state)
{
    int polls = 0;
    party_send(&flood, MESSAGES);
    party_send(&victim, 1);
    party_await_bytes(&flood);
    party_await_bytes(&victim);
    while (victim.heard == 0 && polls++ < POLLS_MAX)
        poll_lane();
    assert_in_range(polls, 1, 2);
    assert_true(flood.heard <= 2 * EVENTS);
    for (polls = 0; flood.heard < CONNS * MESSAGES && polls < POLLS_MAX; polls++) {
        poll_lane();
        rig_pump(&rig);
        for (int i = 0; i < rig.lane.seen_count; i++)
            flood.heard += rig.lane.seen[i].event.kind == FABRIC_EVENT_MESSAGE;
        rig.lane.seen_count = 0;
    }
    assert_int_equal(flood.heard, CONNS * MESSAGES);
}

/* With libfabric 2 one read moves the bytes of all connections, so no job is charged. */
static void the_time_of_polls_is_charged_to_the_jobs_that_are_read(void **state)
{
    bool is_charged = FI_MAJOR(fi_version()) < 2;
    flood.billed_ns = victim.billed_ns = 0;
    party_send(&flood, 1);
    party_await_bytes(&flood);
    for (int polls = 0; flood.heard < CONNS && polls < POLLS_MAX; polls++)
        poll_lane();
    assert_int_equal(flood.heard, CONNS);
    assert_int_equal(flood.billed_ns > victim.billed_ns, is_charged);
    uint64_t before_ns = victim.billed_ns;
    party_send(&victim, 1);
    party_await_bytes(&victim);
    for (int polls = 0; victim.heard < 1 && polls < POLLS_MAX; polls++)
        poll_lane();
    assert_int_equal(victim.billed_ns > before_ns, is_charged);
}

static void poll_of_all(struct fabric_event *ret_events)
{
    party_send(&flood, 1);
    party_send(&victim, 1);
    party_await_bytes(&flood);
    party_await_bytes(&victim);
    assert_int_equal(fabric_poll(rig.lane.fabric, ret_events, EVENTS), CONNS + 1);
    for (int i = 0; i <= CONNS; i++)
        fabric_message_done(ret_events[i].conn, ret_events[i].data);
}

/* The order depends only on the numbers of messages, so a slow host does not change the order. */
static void a_poll_reads_all_of_a_few_connections_in_the_same_order(void **state)
{
    struct fabric_event first[EVENTS], next[EVENTS];
    poll_of_all(first);
    poll_of_all(next);
    for (int i = 0; i <= CONNS; i++)
        assert_ptr_equal(first[i].conn, next[i].conn);
}

/* Polls like a lane, which may sleep after each poll, until this number of messages has arrived on
 * each connection. */
static void hear_like_a_lane(int messages)
{
    for (;;) {
        struct fabric_wait wait;
        poll_lane();
        if (flood.heard == flood.count * messages && victim.heard == messages)
            return;
        if (fabric_arm(rig.lane.fabric, &wait) < 0)
            continue;
        struct pollfd ready = {.fd = wait.fd, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, 60000), 1);
    }
}

static void no_event_is_left_while_the_caller_sleeps(void **state)
{
    struct fabric_wait wait;
    int polls = 0;
    while (flood.count < MORE_CONNS)
        party_connect(&flood);
    party_post(&flood, MESSAGES);
    party_post(&victim, MESSAGES);
    hear_like_a_lane(1);
    /* the remaining messages of each connection are one pack, of which a poll may read only a
     * part */
    fabric_flush(rig.workers[0].fabric);
    hear_like_a_lane(MESSAGES);
    /* a poll may not reach every connection; after a few polls the caller must be able to sleep */
    while (fabric_arm(rig.lane.fabric, &wait) < 0 && polls++ < POLLS_MAX)
        assert_int_equal(poll_lane(), 0);
    assert_true(polls < POLLS_MAX);
}

/* At first connections end while other connections of the same job and tenant stay. Then the last
 * connection ends. */
static void the_order_is_kept_while_connections_end(void **state)
{
    for (int i = 0; i < CONNS; i++) {
        fabric_disconnect(flood.at_worker[i]);
        rig_expect(&rig, &rig.lane, FABRIC_EVENT_CLOSED);
        rig_expect(&rig, &rig.workers[0], FABRIC_EVENT_CLOSED);
        party_send(&victim, 1);
        assert_ptr_equal(rig_expect(&rig, &rig.lane, FABRIC_EVENT_MESSAGE).event.owner, &victim);
    }
    flood.count = 0;
    party_connect(&flood);
    party_send(&flood, 1);
    assert_ptr_equal(rig_expect(&rig, &rig.lane, FABRIC_EVENT_MESSAGE).event.owner, &flood);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_tenant_with_many_connections_delays_no_other_tenant),
        CASE(the_time_of_polls_is_charged_to_the_jobs_that_are_read),
        CASE(a_poll_reads_all_of_a_few_connections_in_the_same_order),
        CASE(no_event_is_left_while_the_caller_sleeps),
        CASE(the_order_is_kept_while_connections_end),
    };
    return cmocka_run_group_tests_name("fabric_ofi_turns", cases, NULL, NULL);
}
