/* Tests when a lane counts as idle (A24): its thread sleeps, and no event has arrived. A ping does
 * not wake an idle lane. The handler of a signal stops the thread for a while, as if other
 * processes used the core. */
#include "svc/base/clock.h"
#include "svc/lane/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEADLINE_NS (60 * NS_PER_S)

static struct lane_thread *thread;
static int entered_fd, released_fd; /* pipes that the handler or the call uses */

static void hold(void)
{
    eventfd_t one;
    eventfd_write(entered_fd, 1);
    eventfd_read(released_fd, &one);
}

static void handle(int number) { hold(); }

static int hold_lane(struct lane *lane, void *context)
{
    hold();
    return 0;
}

static void *call(void *context)
{
    lane_thread_call(thread, hold_lane, NULL);
    return NULL;
}

static void until_idle(bool is_idle)
{
    uint64_t deadline_ns = clock_now_ns() + DEADLINE_NS;
    while (lane_thread_is_idle(thread) != is_idle)
        assert_true(clock_now_ns() < deadline_ns);
}

static int setup(void **state)
{
    struct fabric_options fabric = {.payload_bytes_max = 4096};
    struct lane_thread_options options = {.ofi_address = "127.0.0.1:0", .fabric_options = &fabric};
    struct err err = {0};
    entered_fd = eventfd(0, EFD_CLOEXEC);
    released_fd = eventfd(0, EFD_CLOEXEC);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handle}, NULL);
    assert_int_equal(lane_thread_start(&options, &thread, &err), 0);
    return 0;
}

static int teardown(void **state)
{
    eventfd_write(released_fd, 1); /* the write is needed even after a failure of the case */
    lane_thread_stop(thread);
    close(entered_fd);
    close(released_fd);
    return 0;
}

static void wait_until_held(void)
{
    eventfd_t one;
    assert_int_equal(eventfd_read(entered_fd, &one), 0);
}

static void a_lane_that_carries_out_a_call_is_not_idle(void **state)
{
    pthread_t caller;
    until_idle(true);
    assert_int_equal(pthread_create(&caller, NULL, call, NULL), 0);
    wait_until_held();
    assert_false(lane_thread_is_idle(thread));
    eventfd_write(released_fd, 1);
    pthread_join(caller, NULL);
    until_idle(true);
}

static int tell_tid(struct lane *lane, void *context) { return gettid(); }

static int connect_to(const char *address)
{
    char host[64];
    struct addrinfo *found;
    const char *colon = strrchr(address, ':');
    strncpy(host, address, sizeof host - 1);
    host[colon - address] = 0;
    assert_int_equal(
        getaddrinfo(host, colon + 1, &(struct addrinfo){.ai_socktype = SOCK_STREAM}, &found), 0);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, found->ai_addr, found->ai_addrlen), 0);
    freeaddrinfo(found);
    return fd;
}

static void a_sleeping_lane_is_idle_until_an_event_arrives(void **state)
{
    int tid = lane_thread_call(thread, tell_tid, NULL);
    until_idle(true);
    assert_int_equal(tgkill(getpid(), tid, SIGUSR1), 0);
    wait_until_held();
    assert_true(lane_thread_is_idle(thread));
    int fd = connect_to(lane_thread_ofi(thread));
    until_idle(false); /* the lane is not idle, because it does not poll */
    assert_false(lane_thread_is_idle(thread));
    eventfd_write(released_fd, 1);
    until_idle(true);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(a_lane_that_carries_out_a_call_is_not_idle, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_sleeping_lane_is_idle_until_an_event_arrives, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
