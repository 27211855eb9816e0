/* Tests fabric_ofi with peers in separate processes, which stop and die (README, O2, O9). */
#include "test/lib/extent.h"
#include "test/unit/fabric/fabric_suite.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024 * 1024)
/* lifetime longer than any test; a worker also ends with its parent */
#define WORKER_LIFE_NS (1800 * NS_PER_S)

static int open_ofi(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("ofi", options, ret_fabric);
}

/* The rig uses this factory only for its waits. The cases open their fabrics themselves. */
static const struct fabric_factory real_time = {.name = "fabric_ofi_peers"};

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

/* Starts a separate process, which ends when a case fails. */
static pid_t fork_peer(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static void lane_open(struct rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    rig->factory = &real_time;
    assert_int_equal(open_ofi(&(struct fabric_options){0}, &rig->lane.fabric), 0);
    assert_int_equal(fabric_listen(rig->lane.fabric, "127.0.0.1:0", rig->address), 0);
}

/* A worker that shares one region of `bytes` bytes with the pattern `seed`, and then waits. */
static void worker_main(const char *address, size_t bytes, unsigned seed)
{
    struct fabric *f;
    struct fabric_conn *c;
    struct region region;
    if (open_ofi(&(struct fabric_options){0}, &f) < 0 || region_create(bytes, &region) < 0)
        _exit(1);
    /* the region is filled before the connect, because a lane disconnects a silent peer */
    fill(region.base, bytes, seed);
    if (fabric_connect(f, address, "worker", 6, NULL, &c) < 0)
        _exit(1);
    for (uint64_t end_ns = clock_now_ns() + WORKER_LIFE_NS; clock_now_ns() < end_ns;) {
        struct fabric_event events[8];
        int count = fabric_poll(f, events, 8);
        for (int i = 0; i < count; i++) {
            if (events[i].kind == FABRIC_EVENT_OPEN && fabric_lend(c, &region, 0) < 0)
                _exit(2);
            if (events[i].kind == FABRIC_EVENT_CLOSED)
                _exit(0);
        }
        if (count == 0)
            fabric_sleep_ms(f, 100);
    }
    _exit(3);
}

/* Starts a worker, accepts it, and receives its region. */
static pid_t worker_start(struct rig *rig, size_t bytes, unsigned seed,
                          struct fabric_conn **ret_conn)
{
    pid_t pid = fork_peer();
    if (pid == 0) {
        fabric_abandon_in_child(rig->lane.fabric);
        worker_main(rig->address, bytes, seed);
    }
    struct seen request = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST);
    assert_int_equal(fabric_accept(request.event.conn, NULL), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_OPEN);
    struct seen lent = rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    assert_ptr_equal(lent.event.conn, request.event.conn);
    assert_true(lent.event.bytes >= bytes);
    *ret_conn = request.event.conn;
    return pid;
}

static void worker_kill(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void many_reads_of_1_MiB_bring_every_byte(void **state)
{
    enum { REGION_BYTES = 8 * MIB, DEPTH = 4 };
    const uint32_t reads = extent(200, 50, 200);
    struct rig rig;
    struct fabric_conn *c;
    (void)state;
    lane_open(&rig);
    pid_t pid = worker_start(&rig, REGION_BYTES, 3, &c);
    uint8_t *slots = malloc((size_t)DEPTH * MIB);
    size_t offsets[DEPTH];
    assert_int_equal(fabric_pool_register(rig.lane.fabric, slots, (size_t)DEPTH * MIB), 0);
    for (uintptr_t posted = 0, over = 0; over < reads; over++) {
        for (; posted < reads && posted < over + DEPTH; posted++) {
            uint8_t *slot = slots + posted % DEPTH * MIB;
            offsets[posted % DEPTH] = posted * 65537 % (REGION_BYTES - MIB);
            memset(slot, 0, MIB);
            assert_int_equal(fabric_read(c, 0, offsets[posted % DEPTH], slot, MIB, (void *)posted),
                             0);
        }
        struct seen read = rig_expect(&rig, &rig.lane, FABRIC_EVENT_READ);
        assert_int_equal(read.event.error, 0);
        assert_int_equal((uintptr_t)read.event.context, over);
        assert_filled(slots + over % DEPTH * MIB, MIB, offsets[over % DEPTH], 3);
    }
    free(slots);
    fabric_close(rig.lane.fabric);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Posts more bytes than the sockets can buffer. Just before, fabric_arm() has allowed the lane to
 * sleep. `sleep_ms` 0: the lane only polls and never sleeps. */
static void fill_the_way(struct rig *rig, struct fabric_conn *c, pid_t pid, int sleep_ms)
{
    enum { WRITES = 4, BYTES = 8 * MIB };
    static uint8_t slot[BYTES];
    struct fabric_wait wait;
    rig_expect_nothing(rig, &rig->lane);
    while (fabric_arm(rig->lane.fabric, &wait) != 0)
        rig_pump(rig);
    kill(pid, SIGSTOP);
    for (uint64_t i = 0; i < WRITES; i++)
        assert_int_equal(fabric_write(c, 0, i * BYTES, slot, BYTES, NULL), 0);
    kill(pid, SIGCONT);
    uint64_t begin_ns = clock_now_ns();
    for (int over = 0; over < WRITES;) {
        struct fabric_event event;
        assert_true(clock_now_ns() - begin_ns < 60 * NS_PER_S);
        if (fabric_poll(rig->lane.fabric, &event, 1) == 0) {
            if (sleep_ms > 0)
                fabric_sleep_ms(rig->lane.fabric, sleep_ms);
            continue;
        }
        assert_int_equal(event.kind, FABRIC_EVENT_WRITTEN);
        assert_int_equal(event.error, 0);
        over++;
    }
}

static void writes_that_fill_the_socket_go_on_by_polling_and_by_sleeping(void **state)
{
    struct rig rig;
    struct fabric_conn *c;
    (void)state;
    lane_open(&rig);
    pid_t pid = worker_start(&rig, 64 * MIB, 3, &c);
    fill_the_way(&rig, c, pid, 60000);
    fill_the_way(&rig, c, pid, 0);
    worker_kill(pid);
    fabric_close(rig.lane.fabric);
}

/* --- peers that stop and die ----------------------------------------------------------------- */

static void every_operation_to_a_killed_worker_ends_before_its_connection_closes_once(void **state)
{
    enum { OPERATIONS = 16 };
    struct rig rig;
    struct fabric_conn *c;
    (void)state;
    lane_open(&rig);
    pid_t pid = worker_start(&rig, MIB, 1, &c);
    uint8_t *slots = calloc(OPERATIONS, MIB);
    kill(pid, SIGSTOP);
    for (uintptr_t i = 0; i < OPERATIONS; i++) {
        uint8_t *slot = slots + i * MIB;
        int r = i % 2 ? fabric_write_word(c, 0, 0, slot, MIB, 1, (void *)i)
                      : fabric_read(c, 0, 0, slot, MIB, (void *)i);
        assert_int_equal(r, 0);
    }
    rig_expect_nothing(&rig, &rig.lane);
    worker_kill(pid);
    struct seen closed = rig_expect(&rig, &rig.lane, FABRIC_EVENT_CLOSED);
    assert_int_equal(closed.event.error, -ECONNRESET);
    bool is_back[OPERATIONS] = {false};
    assert_int_equal(rig.lane.seen_count, OPERATIONS);
    for (int i = 0; i < OPERATIONS; i++) {
        const struct fabric_event *e = &rig.lane.seen[i].event;
        assert_int_equal(e->error, -ECONNRESET);
        assert_false(is_back[(uintptr_t)e->context]);
        is_back[(uintptr_t)e->context] = true;
    }
    rig.lane.seen_count = 0;
    rig_expect_nothing(&rig, &rig.lane);
    free(slots);
    fabric_close(rig.lane.fabric);
}

/* A child process of the killed worker still runs. The child has copies of all sockets that the
 * worker had not closed. */
static void a_child_of_a_killed_worker_does_not_keep_the_connection_alive(void **state)
{
    struct rig rig;
    int grandchild[2];
    (void)state;
    lane_open(&rig);
    assert_int_equal(pipe(grandchild), 0);
    pid_t pid = fork_peer();
    if (pid == 0) {
        struct rig worker = {.factory = &real_time};
        struct fabric_conn *c;
        fabric_abandon_in_child(rig.lane.fabric);
        if (open_ofi(&(struct fabric_options){0}, &worker.lane.fabric) < 0 ||
            fabric_connect(worker.lane.fabric, rig.address, "", 0, NULL, &c) < 0)
            _exit(1);
        rig_expect(&worker, &worker.lane, FABRIC_EVENT_OPEN);
        pid_t own = fork();
        if (own == 0) {
            alarm(30);
            fabric_abandon_in_child(worker.lane.fabric);
        }
        if (own > 0 && write(grandchild[1], &own, sizeof(own)) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    struct seen request = rig_expect(&rig, &rig.lane, FABRIC_EVENT_REQUEST);
    assert_int_equal(fabric_accept(request.event.conn, NULL), 0);
    rig_expect(&rig, &rig.lane, FABRIC_EVENT_OPEN);
    pid_t own;
    assert_int_equal(read(grandchild[0], &own, sizeof(own)), sizeof(own));
    worker_kill(pid);
    struct seen closed = rig_expect(&rig, &rig.lane, FABRIC_EVENT_CLOSED);
    kill(own, SIGKILL);
    assert_int_equal(closed.event.error, -ECONNRESET);
    close(grandchild[0]);
    close(grandchild[1]);
    fabric_close(rig.lane.fabric);
}

/* Reads from the healthy worker and compares every byte. Skips reads of other workers. */
static void read_checked(struct rig *rig, struct fabric_conn *c, uint8_t *slot, int reads)
{
    for (int i = 0; i < reads; i++) {
        memset(slot, 0, MIB);
        assert_int_equal(fabric_read(c, 0, (uint64_t)i * 4096, slot, MIB, slot), 0);
        struct seen read = rig_expect(rig, &rig->lane, FABRIC_EVENT_READ);
        while (read.event.conn != c)
            read = rig_expect(rig, &rig->lane, FABRIC_EVENT_READ);
        assert_int_equal(read.event.error, 0);
        assert_filled(slot, MIB, (size_t)i * 4096, 7);
    }
}

/* libfabric 1.17 corrupts memory when an endpoint is closed during the response to a read. The
 * victim is stopped during a response, disconnected as at a deadline, and killed afterwards. Every
 * byte of a healthy worker is compared before, during and after these steps (O2). */
static void the_disconnection_of_a_stopped_worker_affects_no_other_job(void **state)
{
    enum { READS = 8 };
    const int evictions = (int)extent(10, 4, 50);
    struct rig rig;
    struct fabric_conn *healthy;
    (void)state;
    lane_open(&rig);
    pid_t healthy_pid = worker_start(&rig, 2 * MIB, 7, &healthy);
    uint8_t *slots = malloc((READS + 1) * MIB);
    for (int i = 0; i < evictions; i++) {
        struct fabric_conn *victim;
        pid_t pid = worker_start(&rig, MIB, 1, &victim);
        for (int j = 0; j < READS; j++)
            assert_int_equal(fabric_read(victim, 0, 0, slots + j * MIB, MIB, NULL), 0);
        rig_expect(&rig, &rig.lane, FABRIC_EVENT_READ);
        kill(pid, SIGSTOP);
        read_checked(&rig, healthy, slots + READS * MIB, 2);
        fabric_disconnect(victim);
        read_checked(&rig, healthy, slots + READS * MIB, 2);
        struct seen closed = rig_expect(&rig, &rig.lane, FABRIC_EVENT_CLOSED);
        assert_ptr_equal(closed.event.conn, victim);
        assert_int_equal(closed.event.error, 0);
        rig.lane.seen_count = 0;
        read_checked(&rig, healthy, slots + READS * MIB, 2);
        worker_kill(pid);
    }
    free(slots);
    worker_kill(healthy_pid);
    fabric_close(rig.lane.fabric);
}

/* Messages that the worker never reads fill the sockets, so not even a goodbye can be sent. */
static void closing_beside_a_stopped_worker_is_bounded(void **state)
{
    enum { READS = 8 };
    struct rig rig;
    struct fabric_conn *c;
    (void)state;
    lane_open(&rig);
    pid_t pid = worker_start(&rig, MIB, 1, &c);
    uint8_t *slots = malloc(READS * MIB);
    for (int i = 0; i < READS; i++)
        assert_int_equal(fabric_read(c, 0, 0, slots + i * MIB, MIB, NULL), 0);
    rig_expect(&rig, &rig.lane, FABRIC_EVENT_READ);
    kill(pid, SIGSTOP);
    while (fabric_write(c, 0, 0, slots, MIB, NULL) == 0)
        rig_pump(&rig);
    while (fabric_send(c, "late", 4, NULL, 0) == 0)
        rig_pump(&rig);
    uint64_t begin_ns = clock_now_ns();
    fabric_close(rig.lane.fabric);
    /* a wait for an answer of the stopped peer would take longer */
    assert_true(clock_now_ns() - begin_ns < 20 * NS_PER_S);
    free(slots);
    worker_kill(pid);
}

static void a_lane_that_dies_is_seen_by_its_worker(void **state)
{
    int told[2];
    struct rig rig = {.factory = &real_time};
    (void)state;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork_peer();
    if (pid == 0) {
        struct rig lane;
        lane_open(&lane);
        if (write(told[1], lane.address, sizeof(lane.address)) < 0)
            _exit(1);
        struct seen request = rig_expect(&lane, &lane.lane, FABRIC_EVENT_REQUEST);
        fabric_accept(request.event.conn, NULL);
        for (;;)
            rig_pump(&lane);
    }
    assert_int_equal(read(told[0], rig.address, sizeof(rig.address)), sizeof(rig.address));
    struct fabric_conn *c;
    assert_int_equal(open_ofi(&(struct fabric_options){0}, &rig.lane.fabric), 0);
    assert_int_equal(fabric_connect(rig.lane.fabric, rig.address, "", 0, NULL, &c), 0);
    rig_expect(&rig, &rig.lane, FABRIC_EVENT_OPEN);
    worker_kill(pid);
    assert_int_equal(rig_expect(&rig, &rig.lane, FABRIC_EVENT_CLOSED).event.error, -ECONNRESET);
    close(told[0]);
    close(told[1]);
    fabric_close(rig.lane.fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_reads_of_1_MiB_bring_every_byte),
        cmocka_unit_test(writes_that_fill_the_socket_go_on_by_polling_and_by_sleeping),
        cmocka_unit_test(every_operation_to_a_killed_worker_ends_before_its_connection_closes_once),
        cmocka_unit_test(a_child_of_a_killed_worker_does_not_keep_the_connection_alive),
        cmocka_unit_test(the_disconnection_of_a_stopped_worker_affects_no_other_job),
        cmocka_unit_test(closing_beside_a_stopped_worker_is_bounded),
        cmocka_unit_test(a_lane_that_dies_is_seen_by_its_worker),
    };
    return cmocka_run_group_tests_name(real_time.name, tests, NULL, NULL);
}
