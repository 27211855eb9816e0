/* Tests small operations sent in one message (O13). No operation may be lost, reordered or reported
 * twice. The lane must check each pack that it receives from a peer. */
#include "test/unit/fabric/fabric_suite.h"

#include "svc/fabric/ofi/conn.h"
#include "svc/fabric/ofi/message/item.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAYLOAD_BYTES (64 * 1024)
#define REGION_BYTES (1u << 20)

static int open_ofi(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("ofi", options, ret_fabric);
}

static void name_v4(char *ret_address)
{
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "127.0.0.1:0");
}

static const struct fabric_factory v4 = {.name = "fabric_ofi_pack",
                                         .open = open_ofi,
                                         .name_address = name_v4,
                                         .dead_address = "127.0.0.1:1",
                                         .payload_bytes_max = PAYLOAD_BYTES};

static struct rig rig;
static struct region region;

static int start(void **state)
{
    memset(&rig, 0, sizeof rig);
    rig_open(&rig, &v4, NULL);
    rig_connect(&rig, 0);
    region = rig_lend(&rig, 0, 0, REGION_BYTES);
    return 0;
}

static int stop(void **state)
{
    rig_close(&rig);
    region_destroy(&region);
    return 0;
}

static struct ofi_conn *lane_end(void) { return (struct ofi_conn *)rig.at_lane[0]; }

static uint8_t value(uint32_t i) { return (uint8_t)(i * 7 + 3); }

static size_t length(uint32_t i) { return 1 + i * 37 % 500; }

/* Writes number i. Each number has a different length. */
static int write_number(uint32_t i, char *slot, void *context)
{
    memset(slot, value(i), length(i));
    return fabric_write_word(rig.at_lane[0], 0, i * 512u, slot, length(i), i, context);
}

static void expect_number(uint32_t i)
{
    const uint8_t *at = (const uint8_t *)region.base + i * 512u;
    assert_int_equal(rig_expect(&rig, &rig.workers[0], FABRIC_EVENT_WORD).event.word, i);
    assert_int_equal(at[0], value(i));
    assert_int_equal(at[length(i) - 1], value(i));
    assert_int_equal(at[length(i)], 0);
}

/* ---- sent packs ---- */

static void small_writes_of_a_burst_share_messages_and_land_in_order(void **state)
{
    enum { COUNT = 150 };
    static char slots[COUNT][500];
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(write_number(i, slots[i], slots[i]), 0);
    fabric_flush(rig.lane.fabric);
    assert_in_range(lane_end()->packs_posted, 2, OFI_PACKS);
    for (uint32_t i = 0; i < COUNT; i++)
        expect_number(i);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct seen written = rig_expect(&rig, &rig.lane, FABRIC_EVENT_WRITTEN);
        assert_int_equal(written.event.error, 0);
        assert_ptr_equal(written.event.context, slots[i]);
    }
    rig_expect_nothing(&rig, &rig.lane);
    rig_expect_nothing(&rig, &rig.workers[0]);
    assert_int_equal(lane_end()->packs_posted + lane_end()->transfers_posted, 0);
}

/* Long messages, short messages and words arrive in the order of posts. */
static void no_operation_overtakes_a_pack(void **state)
{
    enum { ROUNDS = 12 };
    static char slots[8][4096];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        char text[32];
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(write_number(round * 6 + i, slots[i], NULL), 0);
        assert_int_equal(fabric_notify(rig.at_lane[0], round * 6 + 4, NULL), 0);
        assert_int_equal(fabric_write_word(rig.at_lane[0], 0, REGION_BYTES / 2, slots[4],
                                           sizeof slots[4], round * 6 + 5, NULL),
                         0);
        snprintf(text, sizeof text, "round %u", round);
        rig_send(rig.at_lane[0], text);
        for (uint32_t i = 0; i < 4; i++)
            expect_number(round * 6 + i);
        for (uint32_t i = 4; i < 6; i++)
            assert_int_equal(rig_expect(&rig, &rig.workers[0], FABRIC_EVENT_WORD).event.word,
                             round * 6 + i);
        rig_expect_text(&rig, &rig.workers[0], text);
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(rig_expect(&rig, &rig.lane, FABRIC_EVENT_WRITTEN).event.error, 0);
    }
}

static void messages_of_a_burst_keep_their_payloads_and_are_given_back_one_by_one(void **state)
{
    enum { COUNT = 90, BYTES = 400 };
    for (uint32_t i = 0; i < COUNT; i++)
        memset((char *)region.base + i * BYTES, value(i), BYTES);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(
            fabric_send(rig.at_worker[0], &i, sizeof i, (char *)region.base + i * BYTES, BYTES), 0);
    fabric_flush(rig.workers[0].fabric);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct seen seen = rig_expect(&rig, &rig.lane, FABRIC_EVENT_MESSAGE);
        assert_int_equal(seen.event.bytes, sizeof i + BYTES);
        assert_memory_equal(seen.data, &i, sizeof i);
        assert_int_equal(seen.data[sizeof i + BYTES - 1], value(i));
    }
    rig_expect_nothing(&rig, &rig.lane);
}

/* While the buffer of a message is in use, its receive cannot be posted again. The rest of the pack
 * uses another receive. */
static void one_message_of_a_pack_may_be_held(void **state)
{
    enum { COUNT = 200 };
    struct fabric_event events[8], held = {0};
    uint32_t next = 0;
    for (uint32_t i = 0; i < COUNT;) {
        int r = fabric_send(rig.at_worker[0], &i, sizeof i, region.base, 300);
        assert_true(r == 0 || r == -EAGAIN);
        i += r == 0;
        fabric_poll(rig.workers[0].fabric, events, 8);
        int count = fabric_poll(rig.lane.fabric, events, 8);
        for (int k = 0; k < count; k++, next++) {
            assert_memory_equal(events[k].data, &next, sizeof next);
            if (next == 5)
                held = events[k];
            else
                fabric_message_done(events[k].conn, events[k].data);
        }
    }
    fabric_flush(rig.workers[0].fabric);
    for (; next < COUNT; next++) {
        struct seen seen = rig_expect(&rig, &rig.lane, FABRIC_EVENT_MESSAGE);
        assert_memory_equal(seen.data, &next, sizeof next);
    }
    uint32_t five = 5;
    assert_memory_equal(held.data, &five, sizeof five);
    fabric_message_done(held.conn, held.data);
    rig_send(rig.at_worker[0], "on and on");
    rig_expect_text(&rig, &rig.lane, "on and on");
}

static void a_single_operation_is_sent_at_once(void **state)
{
    static char slot[500];
    assert_int_equal(write_number(1, slot, NULL), 0);
    assert_null(lane_end()->pack);
    expect_number(1);
    rig_expect(&rig, &rig.lane, FABRIC_EVENT_WRITTEN);
}

/* A peer that does not poll has received nothing, so its writes must not end (W4). */
static void packed_writes_are_not_over_while_the_peer_is_stopped(void **state)
{
    enum { COUNT = 20 };
    static char slots[COUNT][500];
    rig.workers[0].is_stuck = true;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(write_number(i, slots[i], NULL), 0);
    rig_expect_nothing(&rig, &rig.lane);
    rig.workers[0].is_stuck = false;
    for (uint32_t i = 0; i < COUNT; i++)
        expect_number(i);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(rig_expect(&rig, &rig.lane, FABRIC_EVENT_WRITTEN).event.error, 0);
}

/* ---- ends ---- */

/* Each write ends exactly once, and before CLOSED. This also holds for a write that was packed, but
 * not sent yet. */
static void packed_writes_end_with_their_connection(void **state)
{
    enum { COUNT = 30 };
    static char slots[COUNT][500];
    rig.workers[0].is_stuck = true;
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(write_number(i, slots[i], slots[i]), 0);
        if (i == COUNT / 2)
            fabric_flush(rig.lane.fabric);
    }
    fabric_close(rig.workers[0].fabric);
    rig.workers[0].fabric = NULL;
    for (uint32_t i = 0; i < COUNT; i++)
        rig_expect(&rig, &rig.lane, FABRIC_EVENT_WRITTEN);
    rig_expect_closed(&rig, &rig.lane, &rig.at_lane[0], 0);
}

/* The peer disconnects after some of these writes. A write that ends without an error must have
 * arrived, even if the peer has not read the word that follows the write. */
static void writes_before_our_own_goodbye_land_without_a_word(void **state)
{
    enum { COUNT = 60 };
    static char slots[COUNT][500];
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(write_number(i, slots[i], NULL), 0);
    fabric_flush(rig.lane.fabric);
    struct fabric_event first;
    while (fabric_poll(rig.workers[0].fabric, &first, 1) == 0) {
    }
    assert_int_equal(first.kind, FABRIC_EVENT_WORD);
    fabric_disconnect(rig.at_worker[0]);
    rig_expect_closed(&rig, &rig.workers[0], &rig.workers[0], 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        bool landed = rig_expect(&rig, &rig.lane, FABRIC_EVENT_WRITTEN).event.error == 0;
        assert_true(!landed || ((uint8_t *)region.base)[i * 512u] == value(i));
    }
}

/* ---- invalid packs ---- */

struct garbage {
    uint32_t words[10]; /* a pack: first its frame, then its items */
    size_t bytes;
};

static void expect_refused(const struct garbage *cases, size_t count, bool by_worker)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            stop(NULL);
            start(NULL);
        }
        struct fabric_conn *from = by_worker ? rig.at_worker[0] : rig.at_lane[0];
        struct ofi_conn *c = (struct ofi_conn *)from;
        struct side *told = by_worker ? &rig.lane : &rig.workers[0];
        struct ofi_op *op = &c->sends[c->sends_head++ % OFI_SENDS_MAX];
        assert_int_equal(fi_send(c->ep, cases[i].words, cases[i].bytes, NULL, 0, &op->provider), 0);
        struct seen seen = rig_expect(&rig, told, FABRIC_EVENT_CLOSED);
        assert_int_equal(seen.event.error, -EPROTO);
    }
}

static void a_pack_that_is_none_ends_the_connection(void **state)
{
    static const struct garbage cases[] = {
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_USER}, 12},             /* half of an item */
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_USER, 9, 0}, 24},       /* the padding is missing */
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_USER, UINT32_MAX}, 24}, /* the length exceeds the pack */
        /* when rounded up, this length becomes 0 */
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_USER, 0xfffffffa}, 24},
        {{OFI_MESSAGE_PACK, 1, 99, 8}, 24},                     /* an unknown kind */
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_WRITE, 8}, 24},         /* the target is missing */
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_WRITE, 16, 0, 0}, 32},  /* this side has no shared memory */
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_WRITE, 16, 64, 0}, 32}, /* this region does not exist */
    };
    expect_refused(cases, sizeof cases / sizeof *cases, true);
}

static void a_packed_write_stays_within_lent_memory(void **state)
{
    static const struct garbage cases[] = {
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_WRITE, 24, 0, 0, REGION_BYTES - 4, 0}, 40},
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_WRITE, 24, 0, 0, UINT32_MAX, UINT32_MAX}, 40},
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_WRITE_WORD, 24, 1, 0, 0, 0}, 40},
        {{OFI_MESSAGE_PACK, 1, OFI_ITEM_WRITE_WORD, 24, UINT32_MAX, 0, 0, 0}, 40},
    };
    expect_refused(cases, sizeof cases / sizeof *cases, false);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(small_writes_of_a_burst_share_messages_and_land_in_order),
        CASE(no_operation_overtakes_a_pack),
        CASE(messages_of_a_burst_keep_their_payloads_and_are_given_back_one_by_one),
        CASE(one_message_of_a_pack_may_be_held),
        CASE(a_single_operation_is_sent_at_once),
        CASE(packed_writes_are_not_over_while_the_peer_is_stopped),
        CASE(packed_writes_end_with_their_connection),
        CASE(writes_before_our_own_goodbye_land_without_a_word),
        CASE(a_pack_that_is_none_ends_the_connection),
        CASE(a_packed_write_stays_within_lent_memory),
    };
    return cmocka_run_group_tests_name(v4.name, cases, NULL, NULL);
}
