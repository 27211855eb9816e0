/* Tests fabric_ofi with accepted peers that write arbitrary bytes into their sockets (README, O12).
 * Such bytes may end only the connection of this peer. After each peer the test compares every byte
 * of an honest worker. */
#include "test/lib/extent.h"
#include "test/unit/fabric/fabric_suite.h"
#include "test/unit/fabric/ofi/ofi_stranger.h"

#include "svc/base/clock.h"
#include "svc/fabric/ofi/conn.h"
#include "svc/fabric/ofi/door/guard.h"
#include "svc/fabric/ofi/library/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REGION_BYTES 65536
#define RESPONSE_BYTES_MAX 4096

/* Header of the provider's messages. */
struct wire_header {
    uint8_t version, op;
    uint16_t flags;
    uint8_t op_data, places, header_bytes, unused;
    uint64_t bytes;
};

struct bench {
    struct rig rig;
    struct region region;
    uint8_t slot[REGION_BYTES];
};

static int open_ofi(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("ofi", options, ret_fabric);
}

static void name_address(char *ret_address)
{
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "127.0.0.1:0");
}

static const struct fabric_factory real_time = {
    .name = "fabric_ofi_hostile", .open = open_ofi, .name_address = name_address};

static void bench_open(struct bench *b)
{
    rig_open(&b->rig, &real_time, NULL);
    rig_connect(&b->rig, 0);
    b->region = rig_lend(&b->rig, 0, 0, REGION_BYTES);
    for (size_t i = 0; i < REGION_BYTES; i++)
        ((uint8_t *)b->region.base)[i] = (uint8_t)(i * 31 + (i >> 8));
}

static void bench_close(struct bench *b)
{
    rig_close(&b->rig);
    region_destroy(&b->region);
}

static struct fabric_event expect_of(struct bench *b, struct fabric_conn *c,
                                     enum fabric_event_kind kind)
{
    struct seen seen = rig_expect(&b->rig, &b->rig.lane, kind);
    while (seen.event.conn != c)
        seen = rig_expect(&b->rig, &b->rig.lane, kind);
    return seen.event;
}

static void assert_honest_worker_goes_on(struct bench *b)
{
    memset(b->slot, 0, sizeof(b->slot));
    assert_int_equal(fabric_read(b->rig.at_lane[0], 0, 0, b->slot, REGION_BYTES, NULL), 0);
    assert_int_equal(expect_of(b, b->rig.at_lane[0], FABRIC_EVENT_READ).error, 0);
    assert_memory_equal(b->slot, b->region.base, REGION_BYTES);
}

/* Connects a peer, which the lane accepts. Returns the socket of the peer when the connection is
 * open. */
static int let_in(struct bench *b, struct fabric_conn **ret_conn)
{
    uint8_t request[STRANGER_REQUEST_BYTES_MAX];
    size_t bytes = stranger_request(1, request);
    int fd = stranger_connect(b->rig.address);
    assert_int_equal(send(fd, request, bytes, 0), bytes);
    *ret_conn = rig_expect(&b->rig, &b->rig.lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(*ret_conn, NULL), 0);
    assert_ptr_equal(rig_expect(&b->rig, &b->rig.lane, FABRIC_EVENT_OPEN).event.conn, *ret_conn);
    return fd;
}

static void say(int fd, const void *bytes, size_t count)
{
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    assert_true(sent == (ssize_t)count || errno == EPIPE || errno == ECONNRESET);
}

static void expect_end(struct bench *b, struct fabric_conn *c, int fd)
{
    assert_int_not_equal(expect_of(b, c, FABRIC_EVENT_CLOSED).error, 0);
    b->rig.lane.seen_count = 0;
    close(fd);
}

static void header_ends_its_connection(struct bench *b, struct wire_header header)
{
    struct fabric_conn *c;
    int fd = let_in(b, &c);
    say(fd, &header, sizeof(header));
    expect_end(b, c, fd);
}

static void every_operation_of_a_header_ends_its_own_connection_only(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b);
    for (int version = 2; version <= 3; version++) {
        for (int op = 0; op < 256; op++) {
            header_ends_its_connection(&b, (struct wire_header){.version = (uint8_t)version,
                                                                .op = (uint8_t)op,
                                                                .header_bytes = 16,
                                                                .bytes = 16});
            if (op < 8 || op % 32 == 0)
                assert_honest_worker_goes_on(&b);
        }
    }
    assert_honest_worker_goes_on(&b);
    bench_close(&b);
}

static void impossible_lengths_end_their_own_connection_only(void **state)
{
    static const uint64_t lengths[] = {
        0, 1, 15, UINT64_MAX, UINT64_MAX - 15, UINT64_C(1) << 63, UINT64_C(1) << 32};
    static const uint8_t header_lengths[] = {0, 8, 15, 16, 24, 40, 48, 120, 121, 255};
    struct bench b;
    (void)state;
    bench_open(&b);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
        header_ends_its_connection(
            &b, (struct wire_header){.version = 3, .header_bytes = 16, .bytes = lengths[i]});
    for (size_t i = 0; i < sizeof(header_lengths); i++) {
        struct fabric_conn *c;
        struct wire_header header = {
            .version = 3, .op = 4, .places = 255, .header_bytes = header_lengths[i], .bytes = 5000};
        uint8_t rest[256] = {0};
        int fd = let_in(&b, &c);
        say(fd, &header, sizeof(header));
        say(fd, rest, sizeof(rest));
        expect_end(&b, c, fd);
    }
    assert_honest_worker_goes_on(&b);
    bench_close(&b);
}

static void an_unrequested_acknowledgement_or_answer_ends_only_its_connection(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b);
    header_ends_its_connection(
        &b, (struct wire_header){.version = 3, .op_data = 2, .header_bytes = 16, .bytes = 16});
    header_ends_its_connection(
        &b, (struct wire_header){.version = 3, .op = 3, .header_bytes = 16, .bytes = 16});
    assert_honest_worker_goes_on(&b);
    bench_close(&b);
}

static void lend(int fd, uint64_t bytes)
{
    struct {
        struct wire_header header;
        struct ofi_frame frame;
        struct ofi_lend lend;
    } said = {.header = {.version = 3, .header_bytes = 16, .bytes = sizeof(said)},
              .frame = {.kind = OFI_MESSAGE_LEND},
              .lend = {.bytes = bytes, .key = 1}};
    say(fd, &said, sizeof(said));
}

/* If the lane accepted a short answer, the rest of the slot would still contain bytes of another
 * job. */
static void an_answer_that_is_too_short_is_no_answer(void **state)
{
    struct bench b;
    struct fabric_conn *c;
    uint8_t slot[1024];
    (void)state;
    bench_open(&b);
    for (uint64_t bytes = 16; bytes <= 16 + sizeof(slot) * 2; bytes += 504) {
        int fd = let_in(&b, &c);
        lend(fd, 4096);
        assert_ptr_equal(rig_expect(&b.rig, &b.rig.lane, FABRIC_EVENT_REGION).event.conn, c);
        assert_int_equal(fabric_read(c, 0, 0, slot, sizeof(slot), NULL), 0);
        struct wire_header answer = {.version = 3, .op = 3, .header_bytes = 16, .bytes = bytes};
        say(fd, &answer, sizeof(answer));
        assert_int_not_equal(expect_of(&b, c, FABRIC_EVENT_READ).error, 0);
        expect_end(&b, c, fd);
    }
    assert_honest_worker_goes_on(&b);
    bench_close(&b);
}

/* A write that its receiver has not read cannot be acknowledged yet. */
static void an_early_acknowledgement_ends_the_connection(void **state)
{
    enum { BYTES = 16 << 20 };
    static uint8_t slot[BYTES];
    struct wire_header ack = {.version = 3, .op_data = 2, .header_bytes = 16, .bytes = 16};
    struct bench b;
    struct fabric_conn *c;
    (void)state;
    bench_open(&b);
    int fd = let_in(&b, &c);
    lend(fd, BYTES);
    rig_expect(&b.rig, &b.rig.lane, FABRIC_EVENT_REGION);
    assert_int_equal(fabric_write(c, 0, 0, slot, BYTES, NULL), 0);
    say(fd, &ack, sizeof(ack));
    assert_int_not_equal(expect_of(&b, c, FABRIC_EVENT_WRITTEN).error, 0);
    expect_end(&b, c, fd);
    assert_honest_worker_goes_on(&b);
    bench_close(&b);
}

/* The provider queues acknowledgements without a limit. */
static void acknowledgements_that_are_not_taken_are_bounded(void **state)
{
    static struct {
        struct wire_header header;
        struct ofi_frame frame;
    } said[1024];
    struct bench b;
    struct fabric_conn *c;
    size_t offset = 0;
    (void)state;
    bench_open(&b);
    for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
        said[i].header = (struct wire_header){
            .version = 3, .flags = 4, .header_bytes = 16, .bytes = sizeof(*said)};
        said[i].frame = (struct ofi_frame){.kind = OFI_MESSAGE_WITHDRAW};
    }
    int fd = let_in(&b, &c), few_bytes = 4096;
    int at_lane = ofi_conn_of(c)->socket_fd;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few_bytes, sizeof(few_bytes)), 0);
    assert_int_equal(setsockopt(at_lane, SOL_SOCKET, SO_SNDBUF, &few_bytes, sizeof(few_bytes)), 0);
    uint64_t end_ns = clock_now_ns() + 60 * NS_PER_S;
    for (ssize_t sent = 0; sent >= 0 || errno == EAGAIN;) {
        assert_true(clock_now_ns() < end_ns);
        sent =
            send(fd, (uint8_t *)said + offset, sizeof(said) - offset, MSG_NOSIGNAL | MSG_DONTWAIT);
        offset = sent > 0 ? (offset + (size_t)sent) % sizeof(said) : offset;
        rig_pump(&b.rig);
    }
    expect_end(&b, c, fd);
    assert_honest_worker_goes_on(&b);
    bench_close(&b);
}

/* For such a message, the provider would flush the processor's cache at an address that it has not
 * checked. */
static void a_message_that_asks_for_a_commit_ends_its_own_connection_only(void **state)
{
    struct {
        struct wire_header header;
        struct ofi_frame frame;
    } said = {.header = {.version = 3, .header_bytes = 16, .bytes = sizeof(said)},
              .frame = {.kind = OFI_MESSAGE_WITHDRAW}};
    struct bench b;
    struct fabric_conn *c;
    (void)state;
    bench_open(&b);
    for (uint16_t flags = 8; flags <= 12; flags += 4) {
        said.header.flags = flags;
        int fd = let_in(&b, &c);
        say(fd, &said, sizeof(said));
        expect_end(&b, c, fd);
    }
    assert_honest_worker_goes_on(&b);
    bench_close(&b);
}

static uint64_t chance(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

static struct wire_header header_by_chance(uint64_t *state)
{
    static const uint8_t header_lengths[] = {16, 16, 24, 40, 48, 120};
    struct wire_header h = {.version = 3,
                            .op = (uint8_t)(chance(state) % 6),
                            .flags = (uint16_t)(chance(state) % 16),
                            .op_data = (uint8_t)(chance(state) % 3),
                            .places = (uint8_t)(chance(state) % 3),
                            .header_bytes = header_lengths[chance(state) % 6],
                            .bytes = chance(state) % 300};
    if (chance(state) % 8 == 0)
        ((uint8_t *)&h)[chance(state) % sizeof(h)] = (uint8_t)chance(state);
    return h;
}

/* Sends random bytes, most of them with plausible headers. Afterwards closes the connections that
 * are still open. */
static void random_bytes_affect_no_other_connection(void **state)
{
    const char *given = getenv("GRADPOOL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : clock_now_ns();
    const int connections = (int)extent(150, 50, 5000);
    struct bench b;
    (void)state;
    print_message("# GRADPOOL_TEST_SEED=%llu\n", (unsigned long long)seed);
    bench_open(&b);
    for (int i = 0; i < connections; i++) {
        struct fabric_conn *c;
        uint8_t bytes[512];
        int fd = let_in(&b, &c);
        for (uint64_t parts = 1 + chance(&seed) % 4; parts > 0; parts--) {
            struct wire_header h = header_by_chance(&seed);
            for (size_t j = 0; j < sizeof(bytes); j++)
                bytes[j] = chance(&seed) % 2 ? 0 : (uint8_t)chance(&seed);
            memcpy(bytes, &h, sizeof(h));
            say(fd, bytes, 16 + chance(&seed) % 400);
            rig_pump(&b.rig);
        }
        close(fd);
        expect_of(&b, c, FABRIC_EVENT_CLOSED);
        b.rig.lane.seen_count = 0;
        if (i % 16 == 0)
            assert_honest_worker_goes_on(&b);
    }
    bench_close(&b);
}

/* Fails with an unknown version of libfabric. To add the new version, first run this program and
 * fuzz_tcp_wire with it. */
static void this_hosts_libfabric_is_a_known_one(void **state)
{
    (void)state;
    assert_int_equal(ofi_library_load(), 0);
    print_message("# libfabric %u.%u\n", FI_MAJOR(fi_version()), FI_MINOR(fi_version()));
    assert_true(ofi_guard_knows(fi_version()));
    assert_false(ofi_guard_knows(FI_VERSION(1, 16)));
    assert_false(ofi_guard_knows(FI_VERSION(2, 99)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_hosts_libfabric_is_a_known_one),
        cmocka_unit_test(every_operation_of_a_header_ends_its_own_connection_only),
        cmocka_unit_test(impossible_lengths_end_their_own_connection_only),
        cmocka_unit_test(an_unrequested_acknowledgement_or_answer_ends_only_its_connection),
        cmocka_unit_test(an_answer_that_is_too_short_is_no_answer),
        cmocka_unit_test(an_early_acknowledgement_ends_the_connection),
        cmocka_unit_test(acknowledgements_that_are_not_taken_are_bounded),
        cmocka_unit_test(a_message_that_asks_for_a_commit_ends_its_own_connection_only),
        cmocka_unit_test(random_bytes_affect_no_other_connection),
    };
    return cmocka_run_group_tests_name(real_time.name, tests, NULL, NULL);
}
