/* Runs a lane and its workers for fabric tests in one thread. Stores every event until the test
 * reads it. */
#include "test/unit/fabric/fabric_suite.h"

#include "svc/base/clock.h"

#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPECT_NS (60 * NS_PER_S)
#define QUIET_PUMPS 20
#define BATCH 16

void fabric_wait_ms(const struct fabric_wait *wait, int ms)
{
    if (wait->fd >= 0) {
        struct pollfd source = {.fd = wait->fd, .events = POLLIN};
        poll(&source, 1, ms);
        return;
    }
    struct timespec limit = {ms / 1000, ms % 1000 * 1000000L};
    syscall(SYS_futex, wait->bell, FUTEX_WAIT, wait->bell_value, &limit, NULL, 0);
}

void fabric_sleep_ms(struct fabric *f, int ms)
{
    struct fabric_wait wait;

    if (fabric_arm(f, &wait) == 0)
        fabric_wait_ms(&wait, ms);
}

static void keep(struct side *side, const struct fabric_event *event)
{
    struct seen *seen = &side->seen[side->seen_count++];

    assert_true(side->seen_count <= SEEN_MAX);
    seen->event = *event;
    if (event->data) {
        assert_true(event->bytes <= SEEN_BYTES_MAX);
        memcpy(seen->data, event->data, event->bytes);
        seen->event.data = NULL;
    }
    if (event->kind == FABRIC_EVENT_MESSAGE)
        fabric_message_done(event->conn, event->data);
}

static int poll_side(struct side *side)
{
    struct fabric_event events[BATCH];

    if (!side->fabric || side->is_stuck)
        return 0;
    int n = fabric_poll(side->fabric, events, BATCH);
    for (int i = 0; i < n; i++)
        keep(side, &events[i]);
    return n;
}

void rig_pump(struct rig *rig)
{
    int n = poll_side(&rig->lane);

    for (int i = 0; i < RIG_WORKERS; i++)
        n += poll_side(&rig->workers[i]);
    if (n > 0)
        return;
    if (rig->factory->advance)
        rig->factory->advance();
    else
        fabric_sleep_ms(rig->lane.fabric, 1);
}

static bool take(struct side *side, enum fabric_event_kind kind, struct seen *ret_seen)
{
    for (int i = 0; i < side->seen_count; i++) {
        if (side->seen[i].event.kind != kind)
            continue;
        *ret_seen = side->seen[i];
        side->seen_count--;
        memmove(&side->seen[i], &side->seen[i + 1],
                (size_t)(side->seen_count - i) * sizeof side->seen[0]);
        return true;
    }
    return false;
}

struct seen rig_expect(struct rig *rig, struct side *side, enum fabric_event_kind kind)
{
    uint64_t deadline_ns = clock_now_ns() + EXPECT_NS;
    struct seen seen = {0};

    while (!take(side, kind, &seen)) {
        if (clock_now_ns() > deadline_ns)
            fail_msg("no event of kind %d within 10 s; first of %d others: kind %d error %d", kind,
                     side->seen_count, side->seen[0].event.kind, side->seen[0].event.error);
        rig_pump(rig);
    }
    return seen;
}

void rig_expect_nothing(struct rig *rig, struct side *side)
{
    for (int i = 0; i < QUIET_PUMPS; i++)
        rig_pump(rig);
    if (side->seen_count > 0)
        fail_msg("unexpected event of kind %d, error %d", side->seen[0].event.kind,
                 side->seen[0].event.error);
}

void rig_open(struct rig *rig, const struct fabric_factory *factory,
              const struct fabric_options *lane_options)
{
    struct fabric_options options = {.payload_bytes_max = factory->payload_bytes_max};
    char name[FABRIC_ADDRESS_BYTES_MAX];

    memset(rig, 0, sizeof *rig);
    rig->factory = factory;
    if (factory->begin)
        factory->begin();
    assert_int_equal(factory->open(lane_options ? lane_options : &options, &rig->lane.fabric), 0);
    factory->name_address(name);
    assert_int_equal(fabric_listen(rig->lane.fabric, name, rig->address), 0);
    for (int i = 0; i < RIG_WORKERS; i++)
        assert_int_equal(factory->open(&options, &rig->workers[i].fabric), 0);
}

void rig_connect(struct rig *rig, int i)
{
    struct side *worker = &rig->workers[i];

    assert_int_equal(
        fabric_connect(worker->fabric, rig->address, "ticket", 6, worker, &rig->at_worker[i]), 0);
    struct seen request = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST);
    rig->at_lane[i] = request.event.conn;
    assert_int_equal(fabric_accept(rig->at_lane[i], &rig->at_lane[i]), 0);
    assert_ptr_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_OPEN).event.conn, rig->at_lane[i]);
    assert_ptr_equal(rig_expect(rig, worker, FABRIC_EVENT_OPEN).event.conn, rig->at_worker[i]);
}

void rig_expect_closed(struct rig *rig, struct side *side, void *owner, int error)
{
    struct seen seen = rig_expect(rig, side, FABRIC_EVENT_CLOSED);

    assert_ptr_equal(seen.event.owner, owner);
    assert_int_equal(seen.event.error, error);
    rig_expect_nothing(rig, side);
}

void rig_send(struct fabric_conn *c, const char *text)
{
    assert_int_equal(fabric_send(c, text, strlen(text) + 1, NULL, 0), 0);
}

void rig_expect_text(struct rig *rig, struct side *side, const char *text)
{
    struct seen seen = rig_expect(rig, side, FABRIC_EVENT_MESSAGE);

    assert_int_equal(seen.event.bytes, strlen(text) + 1);
    assert_string_equal((char *)seen.data, text);
}

struct region rig_lend(struct rig *rig, int i, uint32_t id, size_t bytes)
{
    struct region region;

    assert_int_equal(region_create(bytes, &region), 0);
    assert_int_equal(fabric_lend(rig->at_worker[i], &region, id), 0);
    struct seen seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    assert_ptr_equal(seen.event.conn, rig->at_lane[i]);
    assert_int_equal(seen.event.word, id);
    assert_int_equal(seen.event.bytes, region.bytes);
    return region;
}

void rig_close(struct rig *rig)
{
    for (int i = 0; i < RIG_WORKERS; i++)
        fabric_close(rig->workers[i].fabric);
    fabric_close(rig->lane.fabric);
    if (rig->factory->end)
        rig->factory->end();
}
