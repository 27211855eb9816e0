/* Tests fabric_ofi over the tcp provider on 127.0.0.1. Runs the cases of every fabric, and then
 * cases for networks, most of them with unknown peers. test_fabric_ofi_peers.c tests dying
 * peers. */
#include "test/unit/fabric/fabric_suite.h"

#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/fabric/ofi/conn.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAYLOAD_BYTES (64 * 1024)
#define SLEEP_MS 60000

static int open_ofi(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("ofi", options, ret_fabric);
}

static void name_v4(char *ret_address)
{
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "127.0.0.1:0");
}

static const struct fabric_factory v4 = {
    .name = "fabric_ofi",
    .open = open_ofi,
    .name_address = name_v4,
    .dead_address = "127.0.0.1:1",
    .payload_bytes_max = PAYLOAD_BYTES,
    .ping_pongs = 2000,
};

static uint8_t pattern(size_t i, unsigned seed)
{
    return (uint8_t)(i * 31 + (i >> 12) * 7 + seed * 101);
}

static void fill(uint8_t *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = pattern(i, seed);
}

static void assert_filled(const uint8_t *bytes, size_t count, size_t offset, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != pattern(offset + i, seed))
            fail_msg("byte %zu of region %u is %u", offset + i, seed, bytes[i]);
}

/* --- messages -------------------------------------------------------------------------------- */

/* Returns the next message. Does not return its buffer to the fabric. */
static struct fabric_event hold_message(struct rig *rig)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    for (;;) {
        struct fabric_event event;
        if (fabric_poll(rig->lane.fabric, &event, 1) == 1 && event.kind == FABRIC_EVENT_MESSAGE)
            return event;
        struct fabric_event ignored;
        fabric_poll(rig->workers[0].fabric, &ignored, 1);
        assert_true(clock_now_ns() < deadline_ns);
    }
}

static void a_held_receive_of_64_KiB_lets_the_next_message_arrive(void **state)
{
    struct rig *rig = *state;
    struct region region;
    rig_connect(rig, 0);
    assert_int_equal(region_create(2 * PAYLOAD_BYTES, &region), 0);
    fill(region.base, region.bytes, 5);
    struct fabric_conn *worker = rig->at_worker[0];
    assert_int_equal(fabric_lend(worker, &region, 0), 0);
    const uint8_t *payload = (const uint8_t *)region.base + 1000;
    assert_int_equal(fabric_send(worker, "first", 5, payload, PAYLOAD_BYTES), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fabric_send(worker, "later", 5, payload, 100), 0);

    struct fabric_event held = hold_message(rig);
    assert_int_equal(held.bytes, 5 + PAYLOAD_BYTES);
    for (int i = 0; i < 3; i++) {
        struct fabric_event next = hold_message(rig);
        assert_int_equal(next.bytes, 5 + 100);
        assert_memory_equal(next.data, "later", 5);
        fabric_message_done(next.conn, next.data);
    }
    assert_memory_equal(held.data, "first", 5);
    assert_filled((const uint8_t *)held.data + 5, PAYLOAD_BYTES, 1000, 5);
    fabric_message_done(held.conn, held.data);
    region_destroy(&region);
}

/* Sends a message that is not packed together with other messages (O13). */
static void send_alone(struct rig *rig, const void *bytes, size_t count)
{
    assert_int_equal(fabric_send(rig->at_worker[0], bytes, count, NULL, 0), 0);
    fabric_flush(rig->workers[0].fabric);
}

/* Receives all messages of a burst. `sleep_ms` 0: polls without sleeping. */
static void take_read_ahead(struct rig *rig, int sleep_ms)
{
    enum { MESSAGES = 40 };
    uint64_t begin_ns = clock_now_ns();
    for (int i = 0; i < MESSAGES; i++)
        send_alone(rig, &i, sizeof(i));
    for (int i = 0; i < MESSAGES;) {
        struct fabric_event events[8];
        /* the sleep must end early */
        assert_true(clock_now_ns() - begin_ns < SLEEP_MS / 2 * NS_PER_MS);
        int count = fabric_poll(rig->lane.fabric, events, 8);
        for (int j = 0; j < count; j++, i++) {
            assert_int_equal(events[j].kind, FABRIC_EVENT_MESSAGE);
            assert_memory_equal(events[j].data, &i, sizeof(i));
            fabric_message_done(events[j].conn, events[j].data);
        }
        if (count == 0 && sleep_ms > 0)
            fabric_sleep_ms(rig->lane.fabric, sleep_ms);
    }
}

/* The provider reads more messages from the socket than there are posted receives. Messages that
 * are stored in this way do not make the descriptor readable. */
static void messages_stored_by_the_provider_arrive_without_a_readable_descriptor(void **state)
{
    struct rig *rig = *state;
    struct fabric_event event;
    rig_connect(rig, 0);
    take_read_ahead(rig, SLEEP_MS);
    assert_int_equal(fabric_poll(rig->workers[0].fabric, &event, 1), 0);
    take_read_ahead(rig, 0);
}

static void a_payload_longer_than_the_peer_takes_is_refused_here(void **state)
{
    struct rig *rig = *state;
    static uint8_t memory[PAYLOAD_BYTES + 1], elsewhere[8];
    struct region region;
    region_wrap(memory, sizeof(memory), &region);
    rig_connect(rig, 0);
    struct fabric_conn *worker = rig->at_worker[0];
    assert_int_equal(fabric_lend(worker, &region, 0), 0);
    assert_int_equal(fabric_send(worker, "x", 1, memory, sizeof(memory)), -EMSGSIZE);
    assert_int_equal(fabric_send(worker, "x", 1, elsewhere, sizeof(elsewhere)), -EINVAL);
    assert_int_equal(fabric_send(worker, "x", 1, memory, sizeof(memory) - 1), 0);
}

/* --- data ------------------------------------------------------------------------------------ */

static void words_come_after_their_data_and_in_order(void **state)
{
    enum { WRITES = 64, BYTES = 200000 };
    struct rig *rig = *state;
    struct region region;
    rig_connect(rig, 0);
    assert_int_equal(region_create(WRITES * BYTES, &region), 0);
    uint8_t *slot = malloc(WRITES * BYTES);
    fill(slot, WRITES * BYTES, 9);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 1), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    for (uint32_t i = 0; i < WRITES; i++)
        assert_int_equal(fabric_write_word(rig->at_lane[0], 1, (uint64_t)i * BYTES,
                                           slot + i * BYTES, BYTES, i, NULL),
                         0);
    for (uint32_t i = 0; i < WRITES; i++) {
        struct seen word = rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD);
        assert_int_equal(word.event.word, i);
        assert_filled((uint8_t *)region.base + i * BYTES, BYTES, (size_t)i * BYTES, 9);
    }
    free(slot);
    region_destroy(&region);
}

/* All bytes fit into a socket buffer, so only an answer of the peer proves that they have arrived
 * (W4). */
static void written_waits_until_the_peer_has_the_bytes(void **state)
{
    struct rig *rig = *state;
    uint8_t memory[64] = {0}, slot[64];
    struct region region;
    region_wrap(memory, sizeof(memory), &region);
    rig_connect(rig, 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    memset(slot, 3, sizeof(slot));
    rig->workers[0].is_stuck = true;
    assert_int_equal(fabric_write(rig->at_lane[0], 0, 0, slot, 64, NULL), 0);
    assert_int_equal(fabric_write_word(rig->at_lane[0], 0, 0, slot, 64, 1, NULL), 0);
    assert_int_equal(fabric_notify(rig->at_lane[0], 2, NULL), 0);
    rig_expect_nothing(rig, &rig->lane);
    assert_int_equal(memory[0], 0);
    rig->workers[0].is_stuck = false;
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_WRITTEN).event.error, 0);
    assert_memory_equal(memory, slot, sizeof(memory));
}

/* --- costs and strangers --------------------------------------------------------------------- */

static void fifty_idle_connections_cost_no_cpu(void **state)
{
    enum { CONNECTIONS = 50 };
    struct rig *rig = *state;
    for (int i = 0; i < CONNECTIONS; i++)
        rig_connect(rig, 0);
    rig_expect_nothing(rig, &rig->lane);
    struct fabric_wait wait;
    struct fabric_event event;
    uint64_t cpu_ns = clock_thread_cpu_ns();
    uint64_t end_ns = clock_now_ns() + 300 * NS_PER_MS;
    while (clock_now_ns() < end_ns) {
        assert_int_equal(fabric_poll(rig->lane.fabric, &event, 1), 0);
        if (fabric_arm(rig->lane.fabric, &wait) == 0)
            fabric_wait_ms(&wait, 300);
    }
    cpu_ns = clock_thread_cpu_ns() - cpu_ns;
    if (cpu_ns > 10 * NS_PER_MS)
        fail_msg("300 ms of idling cost %llu us", (unsigned long long)(cpu_ns / NS_PER_US));
}

static int descriptors_open(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int raw_connect(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    uint64_t port;
    assert_int_equal(text_parse_u64(strrchr(address, ':') + 1, 1, UINT16_MAX, &port), 0);
    to.sin_port = htons((uint16_t)port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void connections_of_unknown_peers_do_no_harm(void **state)
{
    struct rig *rig = *state;
    uint8_t garbage[4096];
    srand(42);
    for (int i = 0; i < 40; i++) {
        int fd = raw_connect(rig->address);
        for (size_t j = 0; j < sizeof(garbage); j++)
            garbage[j] = (uint8_t)rand();
        ssize_t sent = send(fd, garbage, i % 10 == 9 ? sizeof(garbage) : (size_t)i, MSG_NOSIGNAL);
        assert_true(sent >= 0);
        rig_expect_nothing(rig, &rig->lane);
        close(fd);
    }
    rig_expect_nothing(rig, &rig->lane);
    rig_connect(rig, 0);
}

static void silent_strangers_leave_no_descriptor_behind(void **state)
{
    int before = descriptors_open();
    static struct rig rig;
    int silent[10];
    (void)state;
    rig_open(&rig, &v4, NULL);
    for (int i = 0; i < 10; i++)
        silent[i] = raw_connect(rig.address);
    rig_expect_nothing(&rig, &rig.lane);
    rig_close(&rig);
    for (int i = 0; i < 10; i++)
        close(silent[i]);
    assert_int_equal(descriptors_open(), before);
}

static void a_missing_listener_is_reported_at_once(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;
    uint64_t begin_ns = clock_now_ns();
    struct side *worker = &rig->workers[0];
    int r = fabric_connect(worker->fabric, v4.dead_address, "x", 1, NULL, &c);
    if (r == 0)
        r = rig_expect(rig, worker, FABRIC_EVENT_CLOSED).event.error;
    assert_int_equal(r, -ECONNREFUSED);
    /* the connection ends before a silence could have ended it */
    assert_true(clock_now_ns() - begin_ns < 20 * NS_PER_S);
}

/* Sends bytes that no fabric sends. Uses the worker's endpoint directly, without the fabric's
 * checks. */
static void a_peer_that_breaks_the_protocol_is_closed(void **state)
{
    const struct {
        struct ofi_frame frame;
        struct ofi_lend lend;
        size_t bytes;
        int error;
    } cases[] = {
        {.bytes = 3, .error = -EPROTO},
        {.frame = {77, 0}, .bytes = 8, .error = -EPROTO},
        {.frame = {OFI_MESSAGE_LEND, 0}, .bytes = 8, .error = -EPROTO},
        {.frame = {OFI_MESSAGE_LEND, 0}, {0, 0, 1}, .bytes = 32, .error = -EPROTO},
        {.frame = {OFI_MESSAGE_LEND, 0}, {2, UINT64_MAX, 1}, .bytes = 32, .error = -EPROTO},
        {.frame = {OFI_MESSAGE_LEND, 64}, {8, 0, 1}, .bytes = 32, .error = -EPROTO},
        {.frame = {OFI_MESSAGE_WITHDRAW, 64}, .bytes = 8, .error = -EPROTO},
        {.frame = {OFI_MESSAGE_USER, 0}, .bytes = 128 + PAYLOAD_BYTES + 1, .error = -ECONNRESET},
    };
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static uint8_t bytes[128 + PAYLOAD_BYTES + 1];
        memset(bytes, 0, sizeof(bytes));
        memcpy(bytes, &cases[i].frame, sizeof(cases[i].frame));
        memcpy(bytes + sizeof(cases[i].frame), &cases[i].lend, sizeof(cases[i].lend));
        rig_connect(rig, 0);
        struct ofi_conn *worker = (struct ofi_conn *)rig->at_worker[0];
        struct ofi_op *op = &worker->sends[worker->sends_head++ % OFI_SENDS_MAX];
        assert_int_equal(fi_send(worker->ep, bytes, cases[i].bytes, NULL, 0, &op->provider), 0);
        rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], cases[i].error);
        assert_int_equal(rig_expect(rig, &rig->workers[0], FABRIC_EVENT_CLOSED).event.error,
                         -ECONNRESET);
    }
}

static void a_disconnect_from_a_host_that_never_answers_is_bounded(void **state)
{
    struct rig rig = {.factory = &v4};
    struct fabric_conn *c;
    (void)state;
    assert_int_equal(open_ofi(&(struct fabric_options){0}, &rig.lane.fabric), 0);
    int r = fabric_connect(rig.lane.fabric, "192.0.2.77:9", "", 0, NULL, &c);
    if (r == 0) {
        fabric_disconnect(c);
        assert_int_equal(rig_expect(&rig, &rig.lane, FABRIC_EVENT_CLOSED).event.error, 0);
    }
    fabric_close(rig.lane.fabric);
}

/* The worker leaves after it has sent its ticket. The lane may then accept or refuse the
 * connection. */
static void a_worker_that_left_before_the_answer_does_no_harm(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 6; i++) {
        struct fabric_conn *c;
        struct side *worker = &rig->workers[0];
        assert_int_equal(fabric_connect(worker->fabric, rig->address, "x", 1, NULL, &c), 0);
        struct seen request = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST);
        fabric_disconnect(c);
        rig_expect(rig, worker, FABRIC_EVENT_CLOSED);
        if (i % 2)
            fabric_refuse(request.event.conn, EPERM);
        else if (fabric_accept(request.event.conn, NULL) == 0)
            rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
        for (int j = 0; j < 5; j++)
            rig_pump(rig);
        rig->lane.seen_count = 0;
    }
    rig_connect(rig, 1);
}

/* --- names ----------------------------------------------------------------------------------- */

static char logged[512];

static void keep_log(enum log_level level, const char *line)
{
    (void)level;
    snprintf(logged, sizeof(logged), "%s", line);
}

static void a_missing_provider_is_an_error_and_nothing_else_is_tried(void **state)
{
    struct fabric *f;
    (void)state;
    log_set_hook(keep_log);
    int r = open_ofi(&(struct fabric_options){.provider = "nosuch"}, &f);
    log_set_hook(NULL);
    assert_int_equal(r, -ENOSYS);
    assert_non_null(strstr(logged, "nosuch"));
}

static void an_interface_decides_the_address(void **state)
{
    char address[FABRIC_ADDRESS_BYTES_MAX];
    struct fabric *f;
    (void)state;
    assert_int_equal(open_ofi(&(struct fabric_options){.interface_name = "lo"}, &f), 0);
    assert_int_equal(fabric_listen(f, "192.0.2.77:0", address), -EADDRNOTAVAIL);
    assert_int_equal(fabric_listen(f, "0.0.0.0:0", address), 0);
    assert_int_equal(strncmp(address, "127.0.0.1:", 10), 0);
    assert_non_null(strstr(fabric_describe(f), "interface lo"));
    fabric_close(f);
    assert_int_equal(open_ofi(&(struct fabric_options){.interface_name = "nosuch0"}, &f),
                     -EADDRNOTAVAIL);
}

static void a_port_in_use_and_a_bad_address_have_different_errors(void **state)
{
    struct rig *rig = *state;
    char address[FABRIC_ADDRESS_BYTES_MAX];
    struct fabric *f = rig->workers[0].fabric;
    assert_int_equal(fabric_listen(f, rig->address, address), -EADDRINUSE);
    assert_int_equal(fabric_listen(f, "192.0.2.77:0", address), -EADDRNOTAVAIL);
    assert_int_equal(fabric_listen(f, "[::1", address), -EINVAL);
    assert_int_equal(fabric_listen(f, "127.0.0.1:0", address), 0);
}

int main(void)
{
    const struct CMUnitTest own[] = {
        cmocka_unit_test(a_disconnect_from_a_host_that_never_answers_is_bounded),
        cmocka_unit_test(silent_strangers_leave_no_descriptor_behind),
        cmocka_unit_test(a_missing_provider_is_an_error_and_nothing_else_is_tried),
        cmocka_unit_test(an_interface_decides_the_address),
        FABRIC_CASE(a_held_receive_of_64_KiB_lets_the_next_message_arrive),
        FABRIC_CASE(messages_stored_by_the_provider_arrive_without_a_readable_descriptor),
        FABRIC_CASE(a_payload_longer_than_the_peer_takes_is_refused_here),
        FABRIC_CASE(words_come_after_their_data_and_in_order),
        FABRIC_CASE(written_waits_until_the_peer_has_the_bytes),
        FABRIC_CASE(fifty_idle_connections_cost_no_cpu),
        FABRIC_CASE(connections_of_unknown_peers_do_no_harm),
        FABRIC_CASE(a_peer_that_breaks_the_protocol_is_closed),
        FABRIC_CASE(a_missing_listener_is_reported_at_once),
        FABRIC_CASE(a_worker_that_left_before_the_answer_does_no_harm),
        FABRIC_CASE(a_port_in_use_and_a_bad_address_have_different_errors),
    };
    return fabric_suite_run(&v4, own, sizeof(own) / sizeof(own[0]));
}
