/* Tests the thread that polls a job's fabrics (client/lib/README.md, L3 and L4). The thread sleeps
 * on a bell, on a descriptor, or on both. The peer is a thread with two listening fabrics, which
 * sends a word on request. */
#include "svc/base/clock.h"
#include "svc/fabric/engine.h"
#include "svc/fabric/engine_sleep.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS (60 * NS_PER_S)
/* Time in ms that is usually long enough for the other side to fall asleep. Results do not depend
 * on this time. */
#define NAP_MS 5
#define RING_NONE UINT64_MAX

enum kind { SHM, OFI, KINDS };

/* ---- the peer ---- */

static struct {
    pthread_t thread;
    int wake_fd;
    struct fabric *fabrics[KINDS];
    struct fabric_conn *conns[KINDS];
    char addresses[KINDS][FABRIC_ADDRESS_BYTES_MAX];
    bool is_stopping; /* this field and the next one are accessed atomically */
    /* kind of the fabric and word that the test requests; RING_NONE: no request */
    uint64_t ring;
} peer;

static void serve(enum kind kind)
{
    struct fabric_event event;
    while (fabric_poll(peer.fabrics[kind], &event, 1) > 0) {
        if (event.kind == FABRIC_EVENT_REQUEST)
            fabric_accept(event.conn, NULL);
        else if (event.kind == FABRIC_EVENT_OPEN)
            peer.conns[kind] = event.conn;
        else if (event.kind == FABRIC_EVENT_CLOSED)
            peer.conns[kind] = NULL;
    }
    fabric_flush(peer.fabrics[kind]);
}

static void ring_if_asked(void)
{
    uint64_t ring = __atomic_exchange_n(&peer.ring, RING_NONE, __ATOMIC_ACQ_REL);
    if (ring == RING_NONE)
        return;
    poll(NULL, 0, NAP_MS);
    assert_true(fabric_notify(peer.conns[ring >> 32], (uint32_t)ring, NULL) >= 0);
    fabric_flush(peer.fabrics[ring >> 32]);
}

static void *peer_main(void *context)
{
    while (!__atomic_load_n(&peer.is_stopping, __ATOMIC_ACQUIRE)) {
        struct fabric_wait waits[KINDS] = {{.fd = -1}, {.fd = -1}};
        struct pollfd fds[] = {{.fd = peer.wake_fd, .events = POLLIN}, {.fd = -1}, {.fd = -1}};
        eventfd_t value;
        bool has_work = false;
        for (int kind = 0; kind < KINDS; kind++) {
            has_work |= fabric_arm(peer.fabrics[kind], &waits[kind]) < 0;
            fds[1 + kind] = (struct pollfd){.fd = waits[kind].fd, .events = POLLIN};
        }
        poll(fds, 3, has_work ? 0 : -1);
        eventfd_read(peer.wake_fd, &value);
        serve(SHM);
        serve(OFI);
        ring_if_asked();
    }
    return NULL;
}

static void peer_start(void)
{
    static const char *const kinds[] = {"shm", "ofi"};
    char name[FABRIC_ADDRESS_BYTES_MAX];
    memset(&peer, 0, sizeof peer);
    peer.ring = RING_NONE;
    peer.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    snprintf(name, sizeof name, "@gradpool-engine-%d", (int)getpid());
    for (int kind = 0; kind < KINDS; kind++) {
        assert_int_equal(fabric_open(kinds[kind], NULL, &peer.fabrics[kind]), 0);
        assert_int_equal(fabric_listen(peer.fabrics[kind], kind == SHM ? name : "127.0.0.1:0",
                                       peer.addresses[kind]),
                         0);
    }
    assert_int_equal(pthread_create(&peer.thread, NULL, peer_main, NULL), 0);
}

static void peer_stop(void)
{
    __atomic_store_n(&peer.is_stopping, true, __ATOMIC_RELEASE);
    eventfd_write(peer.wake_fd, 1);
    pthread_join(peer.thread, NULL);
    fabric_close(peer.fabrics[SHM]);
    fabric_close(peer.fabrics[OFI]);
    close(peer.wake_fd);
}

/* Requests a word after a short time, so that the receiver can fall asleep. */
static void ring_soon(enum kind kind, uint32_t word)
{
    __atomic_store_n(&peer.ring, (uint64_t)kind << 32 | word, __ATOMIC_RELEASE);
    eventfd_write(peer.wake_fd, 1);
}

/* ---- the engine ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct engine engine;
static uint32_t opened, last_word, wanted_word;
static bool needs, flag;

static void handle(void *context, const struct fabric_event *event)
{
    if (event->kind == FABRIC_EVENT_OPEN)
        opened++;
    else if (event->kind == FABRIC_EVENT_WORD)
        last_word = event->word;
}

static bool needs_progress(void *context) { return needs; }
static bool has_word(void *context) { return last_word == wanted_word; }
static bool is_flagged(void *context) { return flag; }
static bool is_open(void *context) { return opened == *(uint32_t *)context; }
static uint64_t soon(void) { return clock_now_ns() + PATIENCE_NS; }

static void connect_by(enum kind kind)
{
    static const char *const kinds[] = {"shm", "ofi"};
    struct fabric **fabric = kind == SHM ? &engine.shm : &engine.ofi;
    struct fabric_conn *conn;
    uint32_t want = opened + 1;
    assert_int_equal(fabric_open(kinds[kind], NULL, fabric), 0);
    assert_int_equal(fabric_connect(*fabric, peer.addresses[kind], "t", 1, NULL, &conn), 0);
    *(kind == SHM ? &engine.shm_conns : &engine.ofi_conns) += 1;
    assert_true(engine_run(&engine, soon(), is_open, &want));
}

static int start(void **state)
{
    opened = last_word = 0;
    needs = flag = false;
    peer_start();
    assert_int_equal(engine_init(&engine, &lock, handle, needs_progress, NULL), 0);
    pthread_mutex_lock(&lock);
    return 0;
}

static int stop(void **state)
{
    pthread_mutex_unlock(&lock);
    engine_stop(&engine);
    engine_fini(&engine);
    peer_stop();
    return 0;
}

static void check_rung(enum kind kind, uint32_t word)
{
    wanted_word = word;
    ring_soon(kind, word);
    assert_true(engine_run(&engine, soon(), has_word, NULL));
}

/* ---- sleeping ---- */

static void a_waiter_on_shared_memory_is_woken_by_a_word(void **state)
{
    connect_by(SHM);
    for (uint32_t i = 1; i <= 20; i++)
        check_rung(SHM, i);
    assert_false(engine_has_forwarder(engine.sleep));
}

static void a_waiter_on_a_network_is_woken_by_a_word(void **state)
{
    connect_by(OFI);
    for (uint32_t i = 1; i <= 20; i++)
        check_rung(OFI, i);
    assert_false(engine_has_forwarder(engine.sleep));
}

static void a_waiter_on_both_is_woken_by_either(void **state)
{
    connect_by(SHM);
    connect_by(OFI);
    for (uint32_t i = 1; i <= 40; i++)
        check_rung(i % 3 ? SHM : OFI, i);
    assert_true(engine_has_forwarder(engine.sleep));
}

static void check_deadline(void)
{
    uint64_t before_ns = clock_now_ns(), cpu_ns = clock_process_cpu_ns();
    flag = false;
    assert_false(engine_run(&engine, before_ns + 100 * NS_PER_MS, is_flagged, NULL));
    assert_true(clock_now_ns() - before_ns >= 100 * NS_PER_MS);
    /* the thread has slept and has not spun */
    assert_true(clock_process_cpu_ns() - cpu_ns < 50 * NS_PER_MS);
}

static void a_wait_ends_at_its_deadline_and_costs_nothing_until_then(void **state)
{
    check_deadline();
    connect_by(SHM);
    check_deadline();
    connect_by(OFI);
    check_deadline();
}

static void *kick_soon(void *context)
{
    poll(NULL, 0, NAP_MS);
    pthread_mutex_lock(&lock);
    flag = true;
    engine_kick(&engine);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void check_kick(void)
{
    pthread_t thread;
    flag = false;
    assert_int_equal(pthread_create(&thread, NULL, kick_soon, NULL), 0);
    assert_true(engine_run(&engine, soon(), is_flagged, NULL));
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&lock);
}

static void every_sleep_can_be_ended(void **state)
{
    for (int i = 0; i < 5; i++)
        check_kick();
    connect_by(SHM);
    for (int i = 0; i < 5; i++)
        check_kick();
    connect_by(OFI);
    for (int i = 0; i < 5; i++)
        check_kick();
}

/* ---- driving ---- */

static bool word_came_by_itself(uint64_t within_ns)
{
    uint64_t deadline_ns = clock_now_ns() + within_ns;
    bool came = false;
    while (!came && clock_now_ns() < deadline_ns) {
        pthread_mutex_unlock(&lock);
        poll(NULL, 0, 1);
        pthread_mutex_lock(&lock);
        came = last_word == wanted_word;
    }
    return came;
}

static void the_progress_thread_drives_while_no_thread_waits(void **state)
{
    connect_by(SHM);
    connect_by(OFI);
    needs = true;
    engine_flush(&engine);
    for (uint32_t i = 1; i <= 10; i++) {
        wanted_word = i;
        ring_soon(i % 2 ? SHM : OFI, i);
        assert_true(word_came_by_itself(PATIENCE_NS));
    }
}

static void a_waiter_takes_over_from_the_progress_thread_and_gives_back(void **state)
{
    connect_by(OFI);
    connect_by(SHM);
    needs = true;
    engine_flush(&engine);
    for (uint32_t i = 1; i <= 10; i++) {
        check_rung(i % 2 ? SHM : OFI, 2 * i);
        wanted_word = 2 * i + 1;
        ring_soon(i % 2 ? OFI : SHM, wanted_word);
        assert_true(word_came_by_itself(PATIENCE_NS));
    }
}

/* Two threads poll in turns. A wake-up for the first thread must not be lost while the second
 * thread polls. The waiting thread repeatedly polls in place of the progress thread, which must
 * continue each time. */
static void no_wake_up_is_lost_when_two_threads_poll_in_turns(void **state)
{
    connect_by(SHM);
    connect_by(OFI);
    needs = true;
    for (uint32_t i = 1; i <= 300; i++) {
        uint64_t deadline_ns = clock_now_ns() + (i % 5) * 100 * NS_PER_US;
        engine_run(&engine, deadline_ns, is_flagged, NULL);
        pthread_mutex_unlock(&lock);
        poll(NULL, 0, (int)(i % 2)); /* the progress thread may have continued or not */
        pthread_mutex_lock(&lock);
    }
    wanted_word = 1;
    ring_soon(OFI, 1);
    assert_true(word_came_by_itself(PATIENCE_NS));
}

static void without_a_request_only_a_waiting_thread_polls(void **state)
{
    connect_by(SHM);
    wanted_word = 1;
    ring_soon(SHM, 1);
    assert_false(word_came_by_itself(100 * NS_PER_MS));
    assert_true(engine_run(&engine, soon(), has_word, NULL));
}

struct waiter {
    pthread_t thread;
    bool result;
};

static void *wait_for_flag(void *context)
{
    struct waiter *w = context;
    pthread_mutex_lock(&lock);
    w->result = engine_run(&engine, soon(), is_flagged, NULL);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void when_the_polling_waiter_is_done_another_waiter_polls(void **state)
{
    struct waiter waiters[4];
    connect_by(SHM);
    connect_by(OFI);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_flag, &waiters[i]), 0);
    for (uint32_t i = 1; i <= 20; i++)
        check_rung(i % 2 ? SHM : OFI, i); /* the word arrives here, whichever thread polls */
    flag = true;
    engine_kick(&engine);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 4; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_true(waiters[i].result);
    }
    pthread_mutex_lock(&lock);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_waiter_on_shared_memory_is_woken_by_a_word),
        CASE(a_waiter_on_a_network_is_woken_by_a_word),
        CASE(a_waiter_on_both_is_woken_by_either),
        CASE(a_wait_ends_at_its_deadline_and_costs_nothing_until_then),
        CASE(every_sleep_can_be_ended),
        CASE(the_progress_thread_drives_while_no_thread_waits),
        CASE(a_waiter_takes_over_from_the_progress_thread_and_gives_back),
        CASE(no_wake_up_is_lost_when_two_threads_poll_in_turns),
        CASE(without_a_request_only_a_waiting_thread_polls),
        CASE(when_the_polling_waiter_is_done_another_waiter_polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
