/* Tests sleeping as defined in svc/fabric/fabric.h: each event wakes a sleeping side (W8). Each
 * side runs in its own thread. */
#include "test/unit/fabric/fabric_suite.h"

#include "svc/base/clock.h"

#include <pthread.h>
#include <stddef.h>

/* Both sides sleep before each message. If a wake-up is lost, the sleep lasts this long. */
#define SLEEP_MS 60000

struct player {
    struct fabric *fabric;
    struct fabric_conn *conn;
    bool is_lane;
    int rounds;
    int overslept;
    int done;
};

static int count_news(struct player *p)
{
    struct fabric_event events[8];
    int n = fabric_poll(p->fabric, events, 8), news = 0;

    for (int i = 0; i < n; i++) {
        if (events[i].kind == FABRIC_EVENT_MESSAGE)
            fabric_message_done(p->conn, events[i].data);
        news += events[i].kind == (p->is_lane ? FABRIC_EVENT_MESSAGE : FABRIC_EVENT_WORD);
    }
    return news;
}

static void wait_for_news(struct player *p)
{
    uint64_t before_ns = clock_now_ns();

    while (count_news(p) == 0) {
        fabric_sleep_ms(p->fabric, SLEEP_MS);
        if (clock_now_ns() - before_ns > (SLEEP_MS - 1) * NS_PER_MS) {
            p->overslept++;
            return;
        }
    }
}

static void *play(void *argument)
{
    struct player *p = argument;

    for (; p->done < p->rounds && p->overslept == 0; p->done++) {
        if (p->is_lane) {
            wait_for_news(p);
            fabric_notify(p->conn, (uint32_t)p->done, NULL);
            fabric_flush(p->fabric);
        } else {
            fabric_send(p->conn, "ping", 5, NULL, 0);
            fabric_flush(p->fabric);
            wait_for_news(p);
        }
    }
    return NULL;
}

static void no_wake_up_is_lost_between_two_sleepers(void **state)
{
    struct rig *rig = *state;
    pthread_t thread;

    rig_connect(rig, 0);
    struct player lane = {rig->lane.fabric, rig->at_lane[0], true, rig->factory->ping_pongs, 0, 0};
    struct player worker = {
        rig->workers[0].fabric, rig->at_worker[0], false, rig->factory->ping_pongs, 0, 0};
    assert_int_equal(pthread_create(&thread, NULL, play, &lane), 0);
    play(&worker);
    pthread_join(thread, NULL);
    assert_int_equal(lane.overslept, 0);
    assert_int_equal(worker.overslept, 0);
    assert_int_equal(lane.done, rig->factory->ping_pongs);
    assert_int_equal(worker.done, rig->factory->ping_pongs);
}

/* Other events than messages also wake a sleeping side. */
static void *connect_late(void *argument)
{
    struct rig *rig = argument;
    struct fabric_event event = {0};
    uint64_t deadline_ns = clock_now_ns() + SLEEP_MS * NS_PER_MS;

    while (event.kind != FABRIC_EVENT_CLOSED && clock_now_ns() < deadline_ns)
        if (fabric_poll(rig->workers[0].fabric, &event, 1) == 0)
            fabric_sleep_ms(rig->workers[0].fabric, SLEEP_MS);
    return event.kind == FABRIC_EVENT_CLOSED ? rig : NULL;
}

static void a_sleeping_worker_learns_of_answer_and_close(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;
    pthread_t thread;
    void *result;

    assert_int_equal(fabric_connect(rig->workers[0].fabric, rig->address, "t", 1, NULL, &c), 0);
    assert_int_equal(pthread_create(&thread, NULL, connect_late, rig), 0);
    rig->workers[0].is_stuck = true;
    uint64_t before_ns = clock_now_ns();
    struct seen request = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST);
    assert_int_equal(fabric_accept(request.event.conn, NULL), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_OPEN);
    fabric_disconnect(request.event.conn);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
    pthread_join(thread, &result);
    assert_ptr_equal(result, rig);
    /* the sleeper was woken before the full time of its sleep */
    assert_true(clock_now_ns() - before_ns < SLEEP_MS / 2 * NS_PER_MS);
}

const struct CMUnitTest fabric_sleep_cases[] = {
    FABRIC_CASE(no_wake_up_is_lost_between_two_sleepers),
    FABRIC_CASE(a_sleeping_worker_learns_of_answer_and_close),
};
const size_t fabric_sleep_cases_count = sizeof fabric_sleep_cases / sizeof fabric_sleep_cases[0];
