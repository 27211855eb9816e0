/* Tests fabric_ofi with sockets that connect and send nothing, half a request, or invalid bytes
 * (README, O8). The lane disconnects such sockets. Such sockets delay no other peer, and never use
 * up resources that other peers need. */
#include "test/unit/fabric/fabric_suite.h"
#include "test/unit/fabric/ofi/ofi_stranger.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HALF_WAY 50
#define SILENCE_NS (5 * NS_PER_S)
#define SOON_NS (SILENCE_NS / 2) /* too short a time for a disconnection because of silence */

static int open_ofi(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("ofi", options, ret_fabric);
}

static void name_address(char *ret_address)
{
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "127.0.0.1:0");
}

static const struct fabric_factory real_time = {
    .name = "fabric_ofi_strangers", .open = open_ofi, .name_address = name_address};

static int stranger_that_says(const char *address, const void *bytes, size_t count)
{
    int fd = stranger_connect(address);
    assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), count);
    return fd;
}

static int stranger_half_way(const char *address)
{
    uint8_t request[STRANGER_REQUEST_BYTES_MAX];
    size_t bytes = stranger_request(1, request);
    return stranger_that_says(address, request, bytes - 1);
}

static bool is_shown_out(int fd)
{
    char byte;
    ssize_t r = recv(fd, &byte, 1, MSG_DONTWAIT);
    return r == 0 || (r < 0 && errno != EAGAIN);
}

static void expect_shown_out(struct rig *rig, int fd, uint64_t limit_ns)
{
    for (uint64_t end_ns = clock_now_ns() + limit_ns; !is_shown_out(fd);) {
        assert_true(clock_now_ns() < end_ns);
        rig_pump(rig);
    }
    assert_int_equal(rig->lane.seen_count, 0);
    close(fd);
}

/* --- blocked peers ---------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the median time from the send of a word to the receipt of the worker's answer. */
static uint64_t round_trip_ns(struct rig *rig)
{
    enum { TRIPS = 1001 };
    static uint64_t took_ns[TRIPS];
    for (int i = 0; i < TRIPS; i++) {
        uint64_t begin_ns = clock_now_ns();
        rig_send(rig->at_lane[0], "there");
        rig_expect_text(rig, &rig->workers[0], "there");
        rig_send(rig->at_worker[0], "back");
        rig_expect_text(rig, &rig->lane, "back");
        took_ns[i] = clock_now_ns() - begin_ns;
    }
    qsort(took_ns, TRIPS, sizeof(*took_ns), by_value);
    return took_ns[TRIPS / 2];
}

/* Starts strangers, one in each millisecond. At most fifty strangers run at a time. */
static pid_t strangers_start(const char *address)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fds[HALF_WAY];
    for (unsigned i = 0; true; i++) {
        if (i >= HALF_WAY)
            close(fds[i % HALF_WAY]);
        fds[i % HALF_WAY] = stranger_half_way(address);
        poll(NULL, 0, i >= HALF_WAY);
    }
}

static void fifty_half_connected_strangers_delay_no_other_peer(void **state)
{
    struct rig rig;
    (void)state;
    rig_open(&rig, &real_time, NULL);
    rig_connect(&rig, 0);
    uint64_t alone_ns = round_trip_ns(&rig);
    pid_t strangers = strangers_start(rig.address);
    for (uint64_t end_ns = clock_now_ns() + NS_PER_S / 2; clock_now_ns() < end_ns;)
        rig_pump(&rig);
    uint64_t beside_ns = round_trip_ns(&rig);
    rig_connect(&rig, 1);
    rig_send(rig.at_worker[1], "new");
    rig_expect_text(&rig, &rig.lane, "new");
    kill(strangers, SIGKILL);
    assert_int_equal(waitpid(strangers, NULL, 0), strangers);
    print_message("# p50 alone %llu ns, beside %d strangers %llu ns\n",
                  (unsigned long long)alone_ns, HALF_WAY, (unsigned long long)beside_ns);
    assert_true(beside_ns <= 5 * alone_ns);
    rig_close(&rig);
}

/* --- disconnected strangers ----------------------------------------------------------------- */

static void requests_with_invalid_bytes_or_byte_order_are_disconnected_at_once(void **state)
{
    uint8_t request[STRANGER_REQUEST_BYTES_MAX];
    struct rig rig;
    (void)state;
    rig_open(&rig, &real_time, NULL);
    expect_shown_out(&rig, stranger_that_says(rig.address, "G", 1), SOON_NS);
    expect_shown_out(&rig, stranger_that_says(rig.address, "\3\1", 2), SOON_NS);
    expect_shown_out(&rig, stranger_that_says(rig.address, "\3\0\1\1", 4), SOON_NS);
    size_t bytes = stranger_request(UINT64_C(1) << 56, request);
    expect_shown_out(&rig, stranger_that_says(rig.address, request, bytes), SOON_NS);
    rig_close(&rig);
}

static void a_silent_stranger_is_disconnected_after_five_seconds(void **state)
{
    struct rig rig;
    (void)state;
    rig_open(&rig, &real_time, NULL);
    int silent = stranger_connect(rig.address), half_way = stranger_half_way(rig.address);
    for (uint64_t end_ns = clock_now_ns() + SILENCE_NS / 2; clock_now_ns() < end_ns;)
        rig_pump(&rig);
    assert_false(is_shown_out(silent));
    assert_false(is_shown_out(half_way));
    expect_shown_out(&rig, silent, 10 * SILENCE_NS);
    expect_shown_out(&rig, half_way, SOON_NS);
    rig_close(&rig);
}

/* The request arrives in parts, like over a slow network. */
static void a_request_that_arrives_in_parts_is_accepted_when_complete(void **state)
{
    uint8_t request[STRANGER_REQUEST_BYTES_MAX];
    size_t bytes = stranger_request(1, request);
    struct rig rig;
    (void)state;
    rig_open(&rig, &real_time, NULL);
    int fd = stranger_connect(rig.address);
    for (size_t i = 0; i < bytes; i++) {
        rig_expect_nothing(&rig, &rig.lane);
        assert_int_equal(send(fd, &request[i], 1, MSG_NOSIGNAL), 1);
    }
    struct fabric_conn *c = rig_expect(&rig, &rig.lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(c, NULL), 0);
    assert_ptr_equal(rig_expect(&rig, &rig.lane, FABRIC_EVENT_OPEN).event.conn, c);
    close(fd);
    rig_expect(&rig, &rig.lane, FABRIC_EVENT_CLOSED);
    rig_close(&rig);
}

/* --- used-up resources ---------------------------------------------------------------------- */

static struct rlimit descriptors_limited_to(rlim_t most)
{
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = (struct rlimit){.rlim_cur = most, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static void the_oldest_stranger_is_disconnected_when_too_many_wait(void **state)
{
    enum { DESCRIPTORS = 256, AT_ONCE = DESCRIPTORS / 8, MORE = 4 };
    struct rig rig;
    int fds[AT_ONCE + MORE];
    (void)state;
    struct rlimit before = descriptors_limited_to(DESCRIPTORS);
    rig_open(&rig, &real_time, NULL);
    for (int i = 0; i < AT_ONCE + MORE; i++)
        fds[i] = stranger_connect(rig.address);
    for (int i = 0; i < MORE; i++)
        expect_shown_out(&rig, fds[i], SOON_NS);
    rig_expect_nothing(&rig, &rig.lane);
    for (int i = MORE; i < AT_ONCE + MORE; i++) {
        assert_false(is_shown_out(fds[i]));
        close(fds[i]);
    }
    rig_connect(&rig, 0);
    rig_close(&rig);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The process has no free descriptor for a new connection, and there is no stranger that the lane
 * could disconnect. The lane then stops polling its listener for a while, and the thread sleeps. */
static void without_free_descriptors_the_lane_sleeps_and_accepts_peers_later(void **state)
{
    struct rig rig;
    (void)state;
    rig_open(&rig, &real_time, NULL);
    rig_connect(&rig, 0);
    int caller = stranger_half_way(rig.address), next = dup(caller);
    close(next);
    struct rlimit before = descriptors_limited_to((rlim_t)next);
    uint64_t begin_ns = cpu_ns();
    for (uint64_t end_ns = clock_now_ns() + 2 * NS_PER_S; clock_now_ns() < end_ns;) {
        struct fabric_event events[8];
        assert_int_equal(fabric_poll(rig.lane.fabric, events, 8), 0);
        fabric_sleep_ms(rig.lane.fabric, 500);
    }
    assert_true(cpu_ns() - begin_ns < NS_PER_S / 10);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    rig_connect(&rig, 1);
    assert_false(is_shown_out(caller));
    close(caller);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_half_connected_strangers_delay_no_other_peer),
        cmocka_unit_test(requests_with_invalid_bytes_or_byte_order_are_disconnected_at_once),
        cmocka_unit_test(a_silent_stranger_is_disconnected_after_five_seconds),
        cmocka_unit_test(a_request_that_arrives_in_parts_is_accepted_when_complete),
        cmocka_unit_test(the_oldest_stranger_is_disconnected_when_too_many_wait),
        cmocka_unit_test(without_free_descriptors_the_lane_sleeps_and_accepts_peers_later),
    };
    return cmocka_run_group_tests_name(real_time.name, tests, NULL, NULL);
}
