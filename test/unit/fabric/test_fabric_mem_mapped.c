/* Tests fabric_mem as shared memory: the cases of every fabric, then the guarantees of a
 * mapping. */
#include "test/unit/fabric/fabric_suite.h"

#include "test/fabric_mem/fabric_mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct mem_network *network;

static void begin(void)
{
    static const struct mem_network_options options = {
        .seed = 2, .delay_min_ns = 100, .delay_max_ns = 5000, .is_mapped = true, .queue_depth = 32};
    assert_int_equal(mem_network_create(&options, &network), 0);
}

static void end(void) { mem_network_destroy(network); }

static int open_mem(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return mem_fabric_open(network, options, ret_fabric);
}

static void name_address(char *ret_address)
{
    static int count;
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "lane %d", count++);
}

static void advance(void) { mem_network_advance(network, mem_network_now_ns(network) + 5000); }

static void memory_of_a_stopped_worker_can_be_read_and_written(void **state)
{
    struct rig *rig = *state;
    char local[8] = "";
    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    mem_fabric_stop(rig->workers[0].fabric, true);
    memcpy(region.base, "input", 6);
    assert_int_equal(fabric_read(rig->at_lane[0], 0, 0, local, 6, NULL), 0);
    assert_int_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_READ).event.error, 0);
    assert_string_equal(local, "input");
    assert_int_equal(fabric_write_word(rig->at_lane[0], 0, 100, "result", 7, 9, NULL), 0);
    assert_int_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN).event.error, 0);
    assert_string_equal((char *)region.base + 100, "result");
    rig_expect_nothing(rig, &rig->workers[0]);
    mem_fabric_stop(rig->workers[0].fabric, false);
    assert_int_equal(rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD).event.word, 9);
    region_destroy(&region);
}

static void words_for_a_stopped_worker_fill_its_queue_alone(void **state)
{
    struct rig *rig = *state;
    uint32_t sent = 0;
    int r;
    rig_connect(rig, 0);
    rig_connect(rig, 1);
    mem_fabric_stop(rig->workers[0].fabric, true);
    while ((r = fabric_notify(rig->at_lane[0], sent, NULL)) == 0) {
        rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN);
        sent++;
        assert_true(sent < 100);
    }
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(fabric_notify(rig->at_lane[1], 5, NULL), 0);
    assert_int_equal(rig_expect(rig, &rig->workers[1], FABRIC_EVENT_WORD).event.word, 5);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN);
    mem_fabric_stop(rig->workers[0].fabric, false);
    for (uint32_t i = 0; i < sent; i++)
        assert_int_equal(rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD).event.word, i);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_ROOM);
    rig_expect_nothing(rig, &rig->lane);
}

/* The mapping stays valid even if the owner of the memory has died or closed, and has removed its
 * own mapping. */
static void a_mapping_lives_until_the_lane_has_seen_the_end(void **state)
{
    struct rig *rig = *state;
    struct fabric_event event;
    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    memcpy(region.base, "input", 6);
    mem_fabric_kill(rig->workers[0].fabric);
    fabric_close(rig->workers[0].fabric);
    rig->workers[0].fabric = NULL;
    region_destroy(&region);
    assert_string_equal(fabric_map(rig->at_lane[0], 0, 0, 6), "input");
    while (fabric_poll(rig->lane.fabric, &event, 1) == 0)
        advance();
    assert_int_equal(event.kind, FABRIC_EVENT_CLOSED);
    assert_int_equal(event.error, -ECONNRESET);
    assert_string_equal(fabric_map(rig->at_lane[0], 0, 0, 6), "input");
}

static void a_region_that_never_arrived_leaks_nothing(void **state)
{
    struct rig *rig = *state;
    struct region region;
    rig_connect(rig, 0);
    assert_int_equal(region_create(4096, &region), 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), -EEXIST);
    fabric_disconnect(rig->at_lane[0]);
    rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], 0);
    region_destroy(&region);
}

int main(void)
{
    static const struct fabric_factory mapped = {
        .name = "fabric_mem_mapped",
        .begin = begin,
        .end = end,
        .open = open_mem,
        .name_address = name_address,
        .dead_address = "nobody",
        .advance = advance,
    };
    const struct CMUnitTest own[] = {
        FABRIC_CASE(memory_of_a_stopped_worker_can_be_read_and_written),
        FABRIC_CASE(words_for_a_stopped_worker_fill_its_queue_alone),
        FABRIC_CASE(a_mapping_lives_until_the_lane_has_seen_the_end),
        FABRIC_CASE(a_region_that_never_arrived_leaks_nothing),
    };
    return fabric_suite_run(&mapped, own, sizeof own / sizeof own[0]);
}
