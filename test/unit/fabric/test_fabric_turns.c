/* Tests the order in which a poll reads connections (svc/fabric/turns.h). The connections are
 * simulated: a connection is only a number of unread events. */
#include "svc/fabric/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TENANTS 2
#define CONNS (3 * FABRIC_GROUP_LOOKS_MAX)
#define EVENTS 64
#define ALL_EVENTS 100000

struct conn {
    struct list node;
    int left;  /* number of unread events */
    int reads; /* number of calls of take() */
    bool is_read;
};

static struct fabric_turns turns;
static struct fabric_group tenants[TENANTS], jobs[TENANTS];
static struct conn conns[TENANTS][CONNS];

static int take(struct list *node, struct fabric_event *events, int events_max)
{
    struct conn *c = list_entry(node, struct conn, node);
    int n = c->left < events_max ? c->left : events_max;
    if (c->is_read)
        return -1;
    c->reads++;
    c->left -= n;
    return n;
}

static int poll_all(void)
{
    static struct fabric_event events[EVENTS];
    int n = fabric_turns_take(&turns, take, events, EVENTS);
    assert_in_range(n, 0, EVENTS);
    return n;
}

static struct fabric_turn *turn_of(struct fabric_group *group)
{
    return &group->turns[FABRIC_TURN_OFI];
}

static void start(int first_count, int second_count, int events)
{
    const int counts[TENANTS] = {first_count, second_count};
    fabric_turns_init(&turns);
    for (int t = 0; t < TENANTS; t++) {
        fabric_group_init(&tenants[t], NULL);
        fabric_group_init(&jobs[t], &tenants[t]);
        for (int i = 0; i < counts[t]; i++) {
            conns[t][i] = (struct conn){.left = events};
            fabric_turns_join(&turns, turn_of(&jobs[t]), &conns[t][i].node);
        }
    }
}

static int reads_of(int tenant, int count)
{
    int reads = 0;
    for (int i = 0; i < count; i++)
        reads += conns[tenant][i].reads;
    return reads;
}

static void a_poll_reads_all_of_a_few_connections_in_their_order(void **state)
{
    start(FABRIC_GROUP_LOOKS_MAX, 1, 0);
    for (int polls = 1; polls <= 3; polls++) {
        assert_int_equal(poll_all(), 0);
        assert_int_equal(reads_of(0, FABRIC_GROUP_LOOKS_MAX), polls * FABRIC_GROUP_LOOKS_MAX);
        assert_int_equal(reads_of(1, 1), polls);
        assert_ptr_equal(turn_of(&jobs[0])->members.next, &conns[0][0].node);
    }
}

static void a_poll_reads_a_part_of_many_connections_and_the_next_poll_continues(void **state)
{
    start(CONNS, 1, 0);
    for (int polls = 1; polls <= 3; polls++) {
        assert_int_equal(poll_all(), 0);
        assert_int_equal(reads_of(0, CONNS), polls * FABRIC_GROUP_LOOKS_MAX);
        assert_int_equal(reads_of(1, 1), polls);
    }
    for (int i = 0; i < CONNS; i++)
        assert_int_equal(conns[0][i].reads, 1);
}

static void a_tenant_with_many_events_leaves_room_for_the_other_one(void **state)
{
    start(CONNS, 1, ALL_EVENTS);
    for (int polls = 1; polls <= 10; polls++) {
        int before = conns[1][0].left;
        assert_int_equal(poll_all(), EVENTS);
        assert_true(before - conns[1][0].left >= EVENTS / TENANTS);
    }
}

static void a_tenant_alone_may_have_all_events(void **state)
{
    start(1, 0, ALL_EVENTS);
    assert_int_equal(poll_all(), EVENTS);
    assert_int_equal(conns[0][0].left, ALL_EVENTS - EVENTS);
}

/* If a poll makes a second pass, this pass skips the connections that the first pass has read. */
static void a_connection_that_is_read_already_is_no_turn(void **state)
{
    start(CONNS, 0, 0);
    for (int i = 0; i < FABRIC_GROUP_LOOKS_MAX; i++)
        conns[0][i].is_read = true;
    assert_int_equal(poll_all(), 0);
    for (int i = 0; i < CONNS; i++)
        assert_int_equal(conns[0][i].reads, i / FABRIC_GROUP_LOOKS_MAX == 1);
}

static void a_job_takes_its_connections_to_another_tenant(void **state)
{
    start(2, 1, 1);
    fabric_group_move(&jobs[0], &tenants[1]);
    assert_true(list_is_empty(&turn_of(&tenants[0])->link));
    assert_int_equal(poll_all(), 3);
    fabric_turns_leave(turn_of(&jobs[1]), &conns[1][0].node);
    assert_false(list_is_empty(&turns.tenants));
    for (int i = 0; i < 2; i++)
        fabric_turns_leave(turn_of(&jobs[0]), &conns[0][i].node);
    assert_true(list_is_empty(&turns.tenants));
    assert_int_equal(poll_all(), 0);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_poll_reads_all_of_a_few_connections_in_their_order),
        cmocka_unit_test(a_poll_reads_a_part_of_many_connections_and_the_next_poll_continues),
        cmocka_unit_test(a_tenant_with_many_events_leaves_room_for_the_other_one),
        cmocka_unit_test(a_tenant_alone_may_have_all_events),
        cmocka_unit_test(a_connection_that_is_read_already_is_no_turn),
        cmocka_unit_test(a_job_takes_its_connections_to_another_tenant),
    };
    return cmocka_run_group_tests_name("fabric_turns", cases, NULL, NULL);
}
