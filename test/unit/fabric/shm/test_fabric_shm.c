/* Tests fabric_shm: the cases of every fabric, then processes that share memory (deaths, forks,
 * another user). test_shm_mistrust.c tests hostile peers. */
#include "test/unit/fabric/fabric_suite.h"
#include "test/unit/skip.h"

#include "svc/base/clock.h"
#include "svc/fabric/shm/conn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEATH_NOTICED_NS (20 * NS_PER_S) /* any host delivers the event within this time */

static void name_address(char *ret_address)
{
    static int count;
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "@gradpool-test-%d-%d", (int)getpid(), count++);
}

static int open_shm(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("shm", options, ret_fabric);
}

static const struct fabric_factory shm = {
    .name = "fabric_shm",
    .open = open_shm,
    .name_address = name_address,
    .dead_address = "@gradpool-test-nobody",
    .ping_pongs = 20000,
};

static void addresses_are_names_in_the_abstract_space(void **state)
{
    static const char *const wrong[] = {"", "@", "name", "/tmp/name", "host:1"};
    struct rig *rig = *state;
    struct fabric_conn *c;
    char long_name[FABRIC_ADDRESS_BYTES_MAX] = "@", address[FABRIC_ADDRESS_BYTES_MAX];

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(fabric_connect(rig->workers[0].fabric, wrong[i], "t", 1, NULL, &c),
                         -EINVAL);
    memset(long_name + 1, 'x', sizeof long_name - 2);
    assert_int_equal(fabric_connect(rig->workers[0].fabric, long_name, "t", 1, NULL, &c), -EINVAL);
    assert_int_equal(fabric_listen(rig->workers[1].fabric, long_name, address), -EINVAL);
    assert_int_equal(fabric_listen(rig->workers[1].fabric, rig->address, address), -EADDRINUSE);
    name_address(long_name);
    assert_int_equal(fabric_listen(rig->workers[1].fabric, long_name, address), 0);
    assert_string_equal(address, long_name);
    assert_non_null(strstr(fabric_describe(rig->workers[1].fabric), long_name));
}

static void a_fabric_is_a_lanes_or_a_workers(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;
    char name[FABRIC_ADDRESS_BYTES_MAX], address[FABRIC_ADDRESS_BYTES_MAX];

    rig_connect(rig, 0);
    name_address(name);
    assert_int_equal(fabric_listen(rig->workers[0].fabric, name, address), -EINVAL);
    assert_int_equal(fabric_listen(rig->lane.fabric, name, address), -EINVAL);
    assert_int_equal(fabric_connect(rig->lane.fabric, rig->address, "t", 1, NULL, &c), -EINVAL);
}

static void each_end_has_the_process_id_of_the_other(void **state)
{
    struct rig *rig = *state;
    char expected[64];

    rig_connect(rig, 0);
    snprintf(expected, sizeof expected, "pid %d uid %u", (int)getpid(), (unsigned)geteuid());
    assert_int_equal(fabric_peer_pid(rig->at_lane[0]), getpid());
    assert_int_equal(fabric_peer_pid(rig->at_worker[0]), getpid());
    assert_string_equal(fabric_peer(rig->at_lane[0]), expected);
    assert_string_equal(fabric_peer(rig->at_worker[0]), expected);
}

static void messages_before_a_disconnect_arrive(void **state)
{
    struct rig *rig = *state;
    struct region region;

    rig_connect(rig, 0);
    assert_int_equal(region_create(4096, &region), 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), 0);
    for (int i = 0; i < 500; i++)
        rig_send(rig->at_worker[0], "leave");
    fabric_disconnect(rig->at_worker[0]);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(rig->lane.seen_count > 0 ? rig->lane.seen[0].event.kind
                                                  : FABRIC_EVENT_MESSAGE,
                         FABRIC_EVENT_MESSAGE);
        rig_expect_text(rig, &rig->lane, "leave");
    }
    rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], 0);
    region_destroy(&region);
}

static void completions_beyond_the_queue_wait_for_room(void **state)
{
    struct rig *rig = *state;
    char local[16];
    int posted = 0, r = 0;

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    while (r == 0 && posted < 100000) {
        r = fabric_read(rig->at_lane[0], 0, 0, local, sizeof local, NULL);
        posted += r == 0;
    }
    assert_int_equal(r, -EAGAIN);
    for (int i = 0; i < posted; i++)
        rig_expect(rig, &rig->lane, FABRIC_EVENT_READ);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_ROOM);
    assert_int_equal(fabric_read(rig->at_lane[0], 0, 0, local, sizeof local, NULL), 0);
    region_destroy(&region);
}

/* fabric_withdraw() cannot fail, so the withdrawal waits for room in the ring. */
static void a_withdrawal_passes_a_full_ring(void **state)
{
    struct rig *rig = *state;
    int sent = 0;

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    while (fabric_send(rig->at_worker[0], "x", 1, NULL, 0) == 0)
        sent++;
    fabric_withdraw(rig->at_worker[0], 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), -EEXIST);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 1), -EAGAIN);
    for (int i = 0; i < sent; i++)
        rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
    rig_expect(rig, &rig->workers[0], FABRIC_EVENT_ROOM);
    rig_pump(rig);
    assert_int_equal(fabric_region_bytes(rig->at_lane[0], 0), 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    region_destroy(&region);
}

static void messages_that_are_held_stay_whole(void **state)
{
    struct rig *rig = *state;
    struct fabric_event held[64], event;
    int most = fabric_messages_held_max(rig->lane.fabric), count = 0;

    rig_connect(rig, 0);
    assert_true(most >= 1 && most < 64);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(fabric_send(rig->at_worker[0], &i, sizeof i, NULL, 0), 0);
    while (count < most)
        count += fabric_poll(rig->lane.fabric, &held[count], 1);
    /* one more event may still arrive */
    assert_int_equal(fabric_poll(rig->lane.fabric, &event, 1), 1);
    fabric_message_done(rig->at_lane[0], event.data);
    for (uint32_t i = 0; i < (uint32_t)most; i++) {
        assert_memory_equal(held[i].data, &i, sizeof i);
        fabric_message_done(rig->at_lane[0], held[i].data);
    }
    for (uint32_t i = (uint32_t)most + 1; i < 200; i++) {
        struct seen seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
        assert_memory_equal(seen.data, &i, sizeof i);
    }
}

/* --- other processes -------------------------------------------------------------------------- */

/* Starts a child that always ends with this process. */
static pid_t fork_mortal(void)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

/* Runs in the child: connects, reports this, and waits until it is killed. With `pipe_ends`, a
 * child of the child also has the socket, until the test closes the pipe. */
static void be_a_worker(const char *address, const int *pipe_ends)
{
    struct fabric *f;
    struct fabric_conn *c;
    struct fabric_event event = {0};

    if (open_shm(NULL, &f) < 0 || fabric_connect(f, address, "t", 1, NULL, &c) < 0)
        _exit(1);
    while (event.kind != FABRIC_EVENT_OPEN)
        if (fabric_poll(f, &event, 1) == 0)
            fabric_sleep_ms(f, 1000);
    if (pipe_ends && close(pipe_ends[1]) == 0 && fork() == 0) {
        poll(&(struct pollfd){.fd = pipe_ends[0]}, 1, -1);
        _exit(0);
    }
    fabric_send(c, "ready", 6, NULL, 0);
    fabric_flush(f);
    for (;;)
        pause();
}

static void await_worker(struct rig *rig)
{
    struct fabric_conn *c = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST).event.conn;

    assert_int_equal(fabric_accept(c, rig), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_OPEN);
    rig_expect_text(rig, &rig->lane, "ready");
}

static void killed_worker(struct rig *rig, const int *pipe_ends)
{
    pid_t child = fork_mortal();
    if (child == 0)
        be_a_worker(rig->address, pipe_ends);
    await_worker(rig);
    uint64_t before_ns = clock_now_ns();
    kill(child, SIGKILL);
    rig_expect_closed(rig, &rig->lane, rig, -ECONNRESET);
    assert_true(clock_now_ns() - before_ns < DEATH_NOTICED_NS);
    waitpid(child, NULL, 0);
}

static void a_killed_worker_is_noticed(void **state) { killed_worker(*state, NULL); }

static void a_killed_worker_is_noticed_though_its_child_holds_the_socket(void **state)
{
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    killed_worker(*state, pipe_ends);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

/* Runs in the child: a lane that accepts every peer. */
static void be_a_lane(const char *address)
{
    struct fabric *f;
    struct fabric_event event;
    char name[FABRIC_ADDRESS_BYTES_MAX];

    if (open_shm(NULL, &f) < 0 || fabric_listen(f, address, name) < 0)
        _exit(1);
    for (;;) {
        if (fabric_poll(f, &event, 1) == 0)
            fabric_sleep_ms(f, 1000);
        else if (event.kind == FABRIC_EVENT_REQUEST)
            fabric_accept(event.conn, NULL);
    }
}

static int connect_when_it_listens(struct fabric *f, const char *address)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    struct fabric_conn *c;
    int r;

    do {
        r = fabric_connect(f, address, "t", 1, NULL, &c);
        if (r == -ECONNREFUSED)
            poll(NULL, 0, 1);
    } while (r == -ECONNREFUSED && clock_now_ns() < deadline_ns);
    return r;
}

/* Returns the next event. The sleep is so long that only the bell can end the sleep in time. */
static enum fabric_event_kind next_event(struct fabric *f)
{
    struct fabric_event event = {0};

    while (fabric_poll(f, &event, 1) == 0)
        fabric_sleep_ms(f, 5000);
    return event.kind;
}

/* Connects to a lane in a separate process, and shares this region with the lane. */
static pid_t reach_a_lane(struct rig *rig, struct region *ret_region, struct fabric_conn **ret_conn)
{
    struct fabric *f = rig->workers[0].fabric;
    struct fabric_event event = {0};
    char address[FABRIC_ADDRESS_BYTES_MAX];

    name_address(address);
    pid_t lane = fork_mortal();
    if (lane == 0)
        be_a_lane(address);
    assert_int_equal(connect_when_it_listens(f, address), 0);
    while (event.kind != FABRIC_EVENT_OPEN)
        if (fabric_poll(f, &event, 1) == 0)
            fabric_sleep_ms(f, 5000);
    assert_int_equal(region_create(4096, ret_region), 0);
    assert_int_equal(fabric_lend(event.conn, ret_region, 0), 0);
    fabric_flush(f);
    *ret_conn = event.conn;
    return lane;
}

/* A busy host may delay a lane for longer than a fence waits. */
static void a_fence_waits_for_a_lane_that_runs_and_leaves_it_alive(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;
    struct region region;
    bool is_late = true;
    for (int i = 0; is_late && i < 20; i++) {
        siginfo_t end = {0};
        pid_t lane = reach_a_lane(rig, &region, &c);
        uint64_t before_ns = clock_now_ns();
        fabric_fence(c);
        assert_int_equal(fabric_send(c, "x", 1, NULL, 0), -ECONNRESET);
        assert_int_equal(next_event(rig->workers[0].fabric), FABRIC_EVENT_CLOSED);
        is_late = clock_now_ns() - before_ns >= FABRIC_FENCE_NS;
        poll(NULL, 0, 2 * FABRIC_FENCE_NS / NS_PER_MS); /* time for a wrong kill */
        (void)waitid(P_PID, (id_t)lane, &end, WEXITED | WNOHANG | WNOWAIT);
        assert_true(end.si_pid == 0 || is_late);
        kill(lane, SIGKILL);
        waitpid(lane, NULL, 0);
        region_destroy(&region);
    }
    assert_false(is_late);
}

static void a_fence_kills_a_lane_that_keeps_the_memory(void **state)
{
    struct rig *rig = *state;
    struct fabric_conn *c;
    struct region region;
    pid_t lane = reach_a_lane(rig, &region, &c);
    int status;

    kill(lane, SIGSTOP);
    waitpid(lane, NULL, WUNTRACED);
    uint64_t before_ns = clock_now_ns();
    fabric_fence(c);
    assert_int_equal(next_event(rig->workers[0].fabric), FABRIC_EVENT_CLOSED);
    assert_true(clock_now_ns() - before_ns >= FABRIC_FENCE_NS);
    assert_int_equal(waitpid(lane, &status, 0), lane);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    region_destroy(&region);
}

static void a_lane_that_its_worker_leaves_is_not_killed_before_a_fence(void **state)
{
    struct fabric *f = ((struct rig *)*state)->workers[0].fabric;
    struct fabric_conn *c;
    struct fabric_event none;
    struct region region;
    pid_t lane = reach_a_lane(*state, &region, &c);

    kill(lane, SIGSTOP);
    waitpid(lane, NULL, WUNTRACED);
    fabric_leave(c);
    poll(NULL, 0, 2 * FABRIC_FENCE_NS / NS_PER_MS);
    assert_int_equal(fabric_poll(f, &none, 1) + waitpid(lane, NULL, WNOHANG), 0);
    fabric_fence(c);
    fabric_leave(c);
    assert_int_equal(next_event(f), FABRIC_EVENT_CLOSED);
    waitpid(lane, NULL, 0);
    region_destroy(&region);
}

static void expect_standing(struct rig *rig)
{
    struct fabric_event none;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fabric_poll(rig->workers[0].fabric, &none, 1), 0);
        fabric_sleep_ms(rig->workers[0].fabric, 1);
    }
    rig_expect_closed(rig, &rig->workers[0], &rig->workers[0], 0);
}

/* The lane has read CLOSED, but may still write through its mappings until its next poll. */
static void a_lane_stays_fenced_until_its_next_poll(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    fabric_fence(rig->at_worker[0]);
    fabric_fence(rig->at_worker[0]);
    struct fabric_event event = {0};
    for (int i = 0; i < 100 && event.kind != FABRIC_EVENT_CLOSED; i++)
        fabric_poll(rig->lane.fabric, &event, 1);
    assert_int_equal(event.kind, FABRIC_EVENT_CLOSED);
    expect_standing(rig);
    region_destroy(&region);
}

static void a_fence_holds_though_the_lane_has_sent_a_goodbye(void **state)
{
    struct rig *rig = *state;
    struct fabric_event event;
    rig_connect(rig, 0);
    struct fabric_conn *c = rig->at_worker[0];
    for (int i = 0; i < 500; i++)
        rig_send(rig->at_lane[0], "before that");
    fabric_disconnect(rig->at_lane[0]);
    while (fabric_send(c, "x", 1, NULL, 0) == 0) { /* sends until the worker has detected the end */
        assert_int_equal(fabric_poll(rig->workers[0].fabric, &event, 1), 1);
        fabric_message_done(c, event.data);
        poll(NULL, 0, 1);
    }
    fabric_fence(c);
    expect_standing(rig);
}

static void a_sleeping_worker_is_woken_when_its_lane_is_killed(void **state)
{
    struct fabric_conn *c;
    struct region region;
    pid_t lane = reach_a_lane(*state, &region, &c);
    uint64_t before_ns = clock_now_ns();
    kill(lane, SIGKILL);
    assert_int_equal(next_event(((struct rig *)*state)->workers[0].fabric), FABRIC_EVENT_CLOSED);
    assert_true(clock_now_ns() - before_ns < DEATH_NOTICED_NS);
    waitpid(lane, NULL, 0);
    region_destroy(&region);
}

static void a_forked_child_that_closes_its_copy_has_no_effect(void **state)
{
    struct rig *rig = *state;
    int status;

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    pid_t child = fork();
    if (child == 0) {
        fabric_abandon_in_child(rig->workers[0].fabric);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rig_send(rig->at_worker[0], "parent");
    rig_expect_text(rig, &rig->lane, "parent");
    assert_int_equal(fabric_notify(rig->at_lane[0], 5, NULL), 1);
    assert_int_equal(rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD).event.word, 5);
    region_destroy(&region);
}

/* Runs in the child as another user. The exit status is 0, or the reason of the lane's refusal. */
#define STRANGER_UID 65534

static void knock_as_stranger(const char *address)
{
    struct fabric *f;
    struct fabric_conn *c;
    struct fabric_event event = {0};

    if (setuid(STRANGER_UID) < 0 || open_shm(NULL, &f) < 0 ||
        fabric_connect(f, address, "t", 1, NULL, &c) < 0)
        _exit(255);
    while (fabric_poll(f, &event, 1) == 0)
        fabric_sleep_ms(f, 5000);
    _exit(event.kind == FABRIC_EVENT_OPEN ? 0 : (int)event.word);
}

/* Serves the lane until the child has ended. */
static int exit_status(struct rig *rig, pid_t child)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    int status = -1;

    while (waitpid(child, &status, WNOHANG) == 0) {
        assert_true(clock_now_ns() < deadline_ns);
        rig_pump(rig);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void another_user_is_refused_unless_allowed(void **state)
{
    static const uint32_t allowed[] = {12345, STRANGER_UID};
    const struct fabric_options options = {.allowed_uids = allowed, .allowed_uids_count = 2};
    struct rig *rig = *state;

    if (geteuid() != 0)
        skip_because("only root can become another user");
    pid_t stranger = fork_mortal();
    if (stranger == 0)
        knock_as_stranger(rig->address);
    assert_int_equal(exit_status(rig, stranger), EACCES);
    rig_expect_nothing(rig, &rig->lane);

    rig_close(rig);
    rig_open(rig, &shm, &options);
    stranger = fork_mortal();
    if (stranger == 0)
        knock_as_stranger(rig->address);
    struct fabric_conn *c = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(c, NULL), 0);
    assert_int_equal(exit_status(rig, stranger), 0);
}

/* --- doorbells ------------------------------------------------------------------------------- */

static uint32_t rings_of_worker(const struct rig *rig)
{
    return shm_bell_value(((struct shm_fabric *)rig->workers[0].fabric)->bell);
}

/* Writes many chunks of a large tensor and many small tensors in one turn of the lane. */
static void a_round_of_many_chunks_wakes_its_worker_once(void **state)
{
    enum { CHUNKS = 128, CHUNK_BYTES = 4096 };
    struct rig *rig = *state;
    struct fabric_wait wait;
    static char chunk[CHUNK_BYTES];

    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, CHUNKS * CHUNK_BYTES);
    rig_expect_nothing(rig, &rig->workers[0]);
    assert_int_equal(fabric_arm(rig->workers[0].fabric, &wait), 0);
    uint32_t before = rings_of_worker(rig);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct fabric_conn *c = rig->at_lane[0];
        uint64_t offset = (uint64_t)i * CHUNK_BYTES;
        int r = i % 2 ? fabric_write_word(c, 0, offset, chunk, CHUNK_BYTES, i, NULL)
                      : fabric_write(c, 0, offset, chunk, CHUNK_BYTES, NULL);
        assert_int_equal(r, 0);
    }
    assert_int_equal(rings_of_worker(rig), before);
    fabric_flush(rig->lane.fabric);
    assert_int_equal(rings_of_worker(rig), before + 1);
    fabric_flush(rig->lane.fabric);
    assert_int_equal(rings_of_worker(rig), before + 1);
    region_destroy(&region);
}

/* An awake worker polls its ring, so no wake-up is needed. */
static void a_worker_that_is_awake_is_not_woken(void **state)
{
    struct rig *rig = *state;

    rig_connect(rig, 0);
    rig_expect_nothing(rig, &rig->workers[0]);
    uint32_t before = rings_of_worker(rig);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(fabric_notify(rig->at_lane[0], i, NULL), 1);
        fabric_flush(rig->lane.fabric);
        assert_int_equal(rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD).event.word, i);
    }
    assert_int_equal(rings_of_worker(rig), before);
}

static void a_batch_of_announcements_wakes_its_lane_once(void **state)
{
    struct rig *rig = *state;
    struct fabric_wait wait;
    uint64_t wakes;
    rig_connect(rig, 0);
    rig_expect_nothing(rig, &rig->lane);
    int wake_fd = ((struct shm_conn *)rig->at_lane[0])->wake_fd;
    (void)!read(wake_fd, &wakes, sizeof wakes); /* removes wake-ups of the handshake */
    assert_int_equal(fabric_arm(rig->lane.fabric, &wait), 0);
    for (int i = 0; i < 60; i++)
        rig_send(rig->at_worker[0], "ready");
    fabric_flush(rig->workers[0].fabric);
    assert_int_equal(read(wake_fd, &wakes, sizeof wakes), sizeof wakes);
    assert_int_equal(wakes, 1);
    for (int i = 0; i < 60; i++)
        rig_expect_text(rig, &rig->lane, "ready");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        FABRIC_CASE(addresses_are_names_in_the_abstract_space),
        FABRIC_CASE(a_fabric_is_a_lanes_or_a_workers),
        FABRIC_CASE(each_end_has_the_process_id_of_the_other),
        FABRIC_CASE(messages_before_a_disconnect_arrive),
        FABRIC_CASE(completions_beyond_the_queue_wait_for_room),
        FABRIC_CASE(a_withdrawal_passes_a_full_ring),
        FABRIC_CASE(messages_that_are_held_stay_whole),
        FABRIC_CASE(a_killed_worker_is_noticed),
        FABRIC_CASE(a_killed_worker_is_noticed_though_its_child_holds_the_socket),
        FABRIC_CASE(a_sleeping_worker_is_woken_when_its_lane_is_killed),
        FABRIC_CASE(a_fence_waits_for_a_lane_that_runs_and_leaves_it_alive),
        FABRIC_CASE(a_fence_kills_a_lane_that_keeps_the_memory),
        FABRIC_CASE(a_lane_that_its_worker_leaves_is_not_killed_before_a_fence),
        FABRIC_CASE(a_lane_stays_fenced_until_its_next_poll),
        FABRIC_CASE(a_fence_holds_though_the_lane_has_sent_a_goodbye),
        FABRIC_CASE(a_forked_child_that_closes_its_copy_has_no_effect),
        FABRIC_CASE(another_user_is_refused_unless_allowed),
        FABRIC_CASE(a_round_of_many_chunks_wakes_its_worker_once),
        FABRIC_CASE(a_worker_that_is_awake_is_not_woken),
        FABRIC_CASE(a_batch_of_announcements_wakes_its_lane_once),
    };
    return fabric_suite_run(&shm, cases, sizeof cases / sizeof cases[0]);
}
