/* fabric_ofi over the tcp provider on 127.0.0.1: the cases that every fabric passes, and what only a
 * network brings: peers in processes of their own that stop, die, talk nonsense or say nothing. */
#include "fabric_suite.h"

#include "svc/base/clock.h"
#include "svc/base/log.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024 * 1024)
#define PAYLOAD_BYTES (64 * 1024)
#define WORKER_LIFE_NS (50 * NS_PER_S)

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

/* --- a lane here, workers in processes of their own ------------------------------------------ */

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

static void lane_open(struct rig *rig)
{
    struct fabric_options options = {.payload_bytes_max = PAYLOAD_BYTES};
    memset(rig, 0, sizeof(*rig));
    rig->factory = &v4;
    assert_int_equal(open_ofi(&options, &rig->lane.fabric), 0);
    assert_int_equal(fabric_listen(rig->lane.fabric, "127.0.0.1:0", rig->address), 0);
}

/* A worker that lends one region of `bytes` bytes of the pattern `seed`, and is only there. */
static void worker_main(const char *address, size_t bytes, unsigned seed)
{
    struct fabric *f;
    struct fabric_conn *c;
    struct region region;
    if (open_ofi(&(struct fabric_options){0}, &f) < 0 || region_create(bytes, &region) < 0 ||
        fabric_connect(f, address, "worker", 6, NULL, &c) < 0)
        _exit(1);
    fill(region.base, bytes, seed);
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

/* Starts one, accepts it, and takes its region. */
static pid_t worker_start(struct rig *rig, size_t bytes, unsigned seed,
                          struct fabric_conn **ret_conn)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
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

/* --- messages -------------------------------------------------------------------------------- */

/* Takes the next message by hand, without giving its buffer back. */
static struct fabric_event hold_message(struct rig *rig)
{
    uint64_t deadline_ns = clock_now_ns() + 10 * NS_PER_S;
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
                                           slot + i * BYTES, BYTES, i, NULL), 0);
    for (uint32_t i = 0; i < WRITES; i++) {
        struct seen word = rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD);
        assert_int_equal(word.event.word, i);
        assert_filled((uint8_t *)region.base + i * BYTES, BYTES, (size_t)i * BYTES, 9);
    }
    free(slot);
    region_destroy(&region);
}

/* The bytes fit any socket buffer, so that only an answer of the peer can tell (W4). */
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

static void many_reads_of_1_MiB_bring_every_byte(void **state)
{
    enum { REGION_BYTES = 8 * MIB, DEPTH = 4, READS = 200 };
    struct rig rig;
    struct fabric_conn *c;
    (void)state;
    lane_open(&rig);
    pid_t pid = worker_start(&rig, REGION_BYTES, 3, &c);
    uint8_t *slots = malloc((size_t)DEPTH * MIB);
    size_t offsets[DEPTH];
    assert_int_equal(fabric_pool_register(rig.lane.fabric, slots, (size_t)DEPTH * MIB), 0);
    for (uintptr_t posted = 0, over = 0; over < READS; over++) {
        for (; posted < READS && posted < over + DEPTH; posted++) {
            uint8_t *slot = slots + posted % DEPTH * MIB;
            offsets[posted % DEPTH] = posted * 65537 % (REGION_BYTES - MIB);
            memset(slot, 0, MIB);
            assert_int_equal(fabric_read(c, 0, offsets[posted % DEPTH], slot, MIB,
                                         (void *)posted), 0);
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

/* --- peers that stop and die ----------------------------------------------------------------- */

static void a_killed_worker_gives_back_every_operation_and_closes_once(void **state)
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

/* The worker's own child lives on and holds copies of every socket but those it abandoned. */
static void a_child_of_a_killed_worker_does_not_keep_the_connection_alive(void **state)
{
    struct rig rig;
    int grandchild[2];
    (void)state;
    lane_open(&rig);
    assert_int_equal(pipe(grandchild), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct rig worker = {.factory = &v4};
        struct fabric_conn *c;
        fabric_abandon_in_child(rig.lane.fabric);
        if (open_ofi(&(struct fabric_options){0}, &worker.lane.fabric) < 0 ||
            fabric_connect(worker.lane.fabric, rig.address, "", 0, NULL, &c) < 0)
            _exit(1);
        rig_expect(&worker, &worker.lane, FABRIC_EVENT_OPEN);
        pid_t own = fork();
        if (own == 0)
            fabric_abandon_in_child(worker.lane.fabric);
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

/* Reads from the healthy worker until `stop` is seen or `reads` are over; every byte is compared. */
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

/* libfabric 1.17 corrupts memory when an endpoint is closed in the middle of a read's response. */
static void twenty_evictions_of_stopped_workers_disturb_nobody(void **state)
{
    enum { EVICTIONS = 20, READS = 8 };
    struct rig rig;
    struct fabric_conn *healthy;
    (void)state;
    lane_open(&rig);
    pid_t healthy_pid = worker_start(&rig, 2 * MIB, 7, &healthy);
    uint8_t *slots = malloc((READS + 1) * MIB);
    for (int i = 0; i < EVICTIONS; i++) {
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

/* Messages that the worker never takes fill the way there, so that even goodbye cannot leave. */
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
    assert_true(clock_now_ns() - begin_ns < 2 * NS_PER_S);
    free(slots);
    worker_kill(pid);
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

static void a_lane_that_dies_is_seen_by_its_worker(void **state)
{
    int told[2];
    struct rig rig = {.factory = &v4};
    (void)state;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
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

static int raw_connect(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void strangers_on_the_port_do_no_harm(void **state)
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
    struct rig rig;
    int silent[10];
    (void)state;
    lane_open(&rig);
    for (int i = 0; i < 10; i++)
        silent[i] = raw_connect(rig.address);
    rig_expect_nothing(&rig, &rig.lane);
    fabric_close(rig.lane.fabric);
    for (int i = 0; i < 10; i++)
        close(silent[i]);
    assert_int_equal(descriptors_open(), before);
}

static void nobody_listening_is_known_at_once(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;
    uint64_t begin_ns = clock_now_ns();
    struct side *worker = &rig->workers[0];
    int r = fabric_connect(worker->fabric, v4.dead_address, "x", 1, NULL, &c);
    if (r == 0)
        r = rig_expect(rig, worker, FABRIC_EVENT_CLOSED).event.error;
    assert_int_equal(r, -ECONNREFUSED);
    assert_true(clock_now_ns() - begin_ns < NS_PER_S);
}

/* The ticket is with the lane, the worker no longer: accept and refuse must cope. */
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

static void a_port_in_use_and_a_bad_address_are_told_apart(void **state)
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
        cmocka_unit_test(many_reads_of_1_MiB_bring_every_byte),
        cmocka_unit_test(a_killed_worker_gives_back_every_operation_and_closes_once),
        cmocka_unit_test(a_child_of_a_killed_worker_does_not_keep_the_connection_alive),
        cmocka_unit_test(twenty_evictions_of_stopped_workers_disturb_nobody),
        cmocka_unit_test(closing_beside_a_stopped_worker_is_bounded),
        cmocka_unit_test(a_disconnect_from_a_host_that_never_answers_is_bounded),
        cmocka_unit_test(a_lane_that_dies_is_seen_by_its_worker),
        cmocka_unit_test(silent_strangers_leave_no_descriptor_behind),
        cmocka_unit_test(a_missing_provider_is_an_error_and_nothing_else_is_tried),
        cmocka_unit_test(an_interface_decides_the_address),
        FABRIC_CASE(a_held_receive_of_64_KiB_lets_the_next_message_arrive),
        FABRIC_CASE(a_payload_longer_than_the_peer_takes_is_refused_here),
        FABRIC_CASE(words_come_after_their_data_and_in_order),
        FABRIC_CASE(written_waits_until_the_peer_has_the_bytes),
        FABRIC_CASE(fifty_idle_connections_cost_no_cpu),
        FABRIC_CASE(strangers_on_the_port_do_no_harm),
        FABRIC_CASE(nobody_listening_is_known_at_once),
        FABRIC_CASE(a_worker_that_left_before_the_answer_does_no_harm),
        FABRIC_CASE(a_port_in_use_and_a_bad_address_are_told_apart),
    };
    return fabric_suite_run(&v4, own, sizeof(own) / sizeof(own[0]));
}
