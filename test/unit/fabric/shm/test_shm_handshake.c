/* Tests wrong handshakes with fabric_shm. The lane must refuse the peer, free all resources used
 * for the peer, and serve the other peers. */
#include "test/unit/fabric/shm/shm_liar.h"

#include "svc/base/clock.h"
#include "svc/fabric/shm/map/memory.h"
#include "svc/fabric/shm/peer/socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Checks that the lane has sent this reason, and has no event about the liar. */
static void expect_refusal(struct rig *rig, struct liar *l, int reason)
{
    struct shm_packet answer;
    int fds[SHM_PACKET_FDS_MAX];
    size_t count;

    rig_expect_nothing(rig, &rig->lane);
    assert_int_equal(shm_packet_receive(l->socket, &answer, fds, &count), 0);
    assert_int_equal(answer.kind, SHM_PACKET_REFUSE);
    assert_int_equal(answer.word, reason);
    liar_drop(l);
}

static void rings_that_could_shrink_are_refused(void **state)
{
    static const int seals[] = {0, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_SEAL};
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof seals / sizeof seals[0]; i++) {
        struct liar l = liar_make(rig);
        int fd = sealed_memory(RINGS_BYTES, seals[i]);
        liar_hello(&l, fd, l.bell_fd);
        close(fd);
        expect_refusal(rig, &l, EBADMSG);
    }
}

static void rings_and_bells_of_another_size_are_refused(void **state)
{
    static const uint64_t sizes[] = {0, PAGE, RINGS_BYTES - PAGE, RINGS_BYTES - 1,
                                     RINGS_BYTES + PAGE};
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int fd = sealed_memory(sizes[i], HONEST_SEALS);
        struct liar l = liar_make(rig);
        liar_hello(&l, fd, l.bell_fd);
        expect_refusal(rig, &l, EBADMSG);
        if (sizes[i] != PAGE) {
            l = liar_make(rig);
            liar_hello(&l, l.rings_fd, fd);
            expect_refusal(rig, &l, EBADMSG);
        }
        close(fd);
    }
}

static void descriptors_other_than_memory_are_refused(void **state)
{
    struct rig *rig = *state;
    int pipe_fds[2], file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_int_equal(pipe(pipe_fds), 0);
    const int fds[] = {pipe_fds[0], file};
    for (size_t i = 0; i < 2; i++) {
        struct liar l = liar_make(rig);
        liar_hello(&l, fds[i], l.bell_fd);
        expect_refusal(rig, &l, EBADMSG);
    }
    shm_fds_close((const int[]){pipe_fds[0], pipe_fds[1], file}, 3);
}

static void memory_that_the_lane_could_not_write_is_refused(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_make(rig);
    int fd = sealed_memory(RINGS_BYTES, HONEST_SEALS | F_SEAL_WRITE);

    liar_hello(&l, fd, l.bell_fd);
    close(fd);
    expect_refusal(rig, &l, EACCES);
}

/* Tests lengths near the length of a packet, wrong kinds, wrong magic, and wrong numbers of
 * descriptors. */
static void garbage_instead_of_hello_is_refused_and_leaks_nothing(void **state)
{
    struct rig *rig = *state;
    struct shm_packet packets[4] = {{.magic = SHM_MAGIC, .kind = SHM_PACKET_HELLO}};
    const int fds[16] = {0};
    static const struct {
        uint32_t magic;
        uint16_t kind, ticket_bytes;
        size_t length, fds;
    } cases[] = {
        {SHM_MAGIC, SHM_PACKET_HELLO, 0, sizeof packets[0] - 1, 2},
        {SHM_MAGIC, SHM_PACKET_HELLO, 0, sizeof packets[0] + 1, 2},
        {SHM_MAGIC, SHM_PACKET_HELLO, 0, sizeof packets, 2},
        {SHM_MAGIC, SHM_PACKET_HELLO, 0, 1, 0},
        {SHM_MAGIC, SHM_PACKET_HELLO, 0, sizeof packets[0], 0},
        {SHM_MAGIC, SHM_PACKET_HELLO, 0, sizeof packets[0], 1},
        {SHM_MAGIC, SHM_PACKET_HELLO, 0, sizeof packets[0], 3},
        {SHM_MAGIC, SHM_PACKET_HELLO, 0, sizeof packets[0], 16},
        {SHM_MAGIC, SHM_PACKET_HELLO, FABRIC_TICKET_BYTES_MAX + 1, sizeof packets[0], 2},
        {SHM_MAGIC, SHM_PACKET_HELLO, UINT16_MAX, sizeof packets[0], 2},
        {SHM_MAGIC + 1, SHM_PACKET_HELLO, 0, sizeof packets[0], 2},
        {SHM_MAGIC, SHM_PACKET_ACCEPT, 0, sizeof packets[0], 2},
        {SHM_MAGIC, SHM_PACKET_LEND, 0, sizeof packets[0], 1},
        {SHM_MAGIC, SHM_PACKET_BYE, 0, sizeof packets[0], 0},
        {SHM_MAGIC, 0xffff, 0, sizeof packets[0], 2},
    };

    rig_expect_nothing(rig, &rig->lane);
    int before = open_descriptors();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct liar l = liar_make(rig);
        packets[0].magic = cases[i].magic;
        packets[0].kind = cases[i].kind;
        packets[0].ticket_bytes = cases[i].ticket_bytes;
        send_raw(l.socket, packets, cases[i].length, fds, cases[i].fds);
        expect_refusal(rig, &l, EBADMSG);
    }
    rig_expect_nothing(rig, &rig->lane);
    assert_int_equal(open_descriptors(), before);
}

/* A packet without a byte looks like the end of the connection. The lane must nevertheless close
 * the descriptors in this packet. */
static void descriptors_that_come_without_a_byte_are_closed(void **state)
{
    struct rig *rig = *state;
    const int fds[16] = {0};

    rig_expect_nothing(rig, &rig->lane);
    int before = open_descriptors();
    for (size_t count = 0; count <= 16; count += 2) {
        struct liar l = liar_make(rig);
        send_raw(l.socket, "", 0, fds, count);
        rig_expect_nothing(rig, &rig->lane);
        liar_drop(&l);
    }
    rig_expect_nothing(rig, &rig->lane);
    assert_int_equal(open_descriptors(), before);
}

#define SILENT 400

static void silent_sockets_are_bounded_in_number(void **state)
{
    static int sockets[SILENT];
    struct rig *rig = *state;
    int alive = 0;

    for (int i = 0; i < SILENT; i++) {
        assert_int_equal(shm_socket_connect(rig->address, &sockets[i]), 0);
        rig_pump(rig);
    }
    rig_connect(rig, 0);
    for (int i = 0; i < SILENT; i++) {
        char byte;
        alive += recv(sockets[i], &byte, 1, MSG_DONTWAIT) < 0;
    }
    assert_true(alive > 0 && alive <= 256);
    shm_fds_close(sockets, SILENT);
    rig_expect_nothing(rig, &rig->lane);
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

#define CALLERS 40
#define ACCEPTS 4 /* in one poll */

static void connect_callers(struct rig *rig, int sockets[CALLERS])
{
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(shm_socket_connect(rig->address, &sockets[i]), 0);
}

/* For each accepted peer a lane needs a socket and a descriptor of the process. */
static void at_most_four_peers_are_accepted_in_a_poll_and_then_the_listener_pauses(void **state)
{
    struct rig *rig = *state;
    struct fabric_event events[8];
    int sockets[CALLERS];

    connect_callers(rig, sockets);
    size_t before = count_descriptors();
    uint64_t began_ns = clock_now_ns(), deadline_ns = began_ns + 60 * NS_PER_S;
    fabric_poll(rig->lane.fabric, events, 8);
    assert_in_range(count_descriptors(), before + 1, before + 2 * ACCEPTS);
    while (count_descriptors() < before + CALLERS) {
        size_t had = count_descriptors();
        fabric_poll(rig->lane.fabric, events, 8);
        assert_true(count_descriptors() <= had + 2 * ACCEPTS);
        assert_true(clock_now_ns() < deadline_ns);
    }
    assert_true(clock_now_ns() - began_ns >= (CALLERS / 2 / ACCEPTS - 1) * 200 * NS_PER_US);
    rig_connect(rig, 0);
    shm_fds_close(sockets, CALLERS);
}

/* Returns how many sockets have an answer or an end. */
static int count_answered(const int sockets[CALLERS])
{
    int count = 0;

    for (int i = 0; i < CALLERS; i++)
        count += poll(&(struct pollfd){.fd = sockets[i], .events = POLLIN}, 1, 0);
    return count;
}

/* The lane runs as another user for a moment, so that this process is a user whom it does not
 * know. */
#define OTHER_UID 65534

static void unknown_users_are_refused_four_in_a_poll_with_a_longer_pause(void **state)
{
    struct rig *rig = *state;
    struct fabric_event events[8];
    int sockets[CALLERS], answered = 0, most = 0;

    if (geteuid() != 0)
        skip();
    connect_callers(rig, sockets);
    assert_int_equal(seteuid(OTHER_UID), 0);
    uint64_t began_ns = clock_now_ns(), deadline_ns = began_ns + 60 * NS_PER_S;
    while (answered < CALLERS && clock_now_ns() < deadline_ns) {
        int had = answered;
        fabric_poll(rig->lane.fabric, events, 8);
        answered = count_answered(sockets);
        most = answered - had > most ? answered - had : most;
    }
    uint64_t took_ns = clock_now_ns() - began_ns;
    assert_int_equal(seteuid(0), 0); /* no check fails before, so that later cases run as root */
    assert_in_range(most, 1, ACCEPTS);
    assert_int_equal(answered, CALLERS);
    assert_true(took_ns >= (CALLERS / ACCEPTS - 1) * 2 * NS_PER_MS);
    shm_fds_close(sockets, CALLERS);
    rig_connect(rig, 0);
}

static void a_lane_without_free_descriptors_refuses_peers_and_continues(void **state)
{
    struct rig *rig = *state;
    struct rlimit before, tight;
    struct fabric_wait wait;
    int waiting;

    rig_connect(rig, 0);
    assert_int_equal(shm_socket_connect(rig->address, &waiting), 0);
    getrlimit(RLIMIT_NOFILE, &before);
    tight = before;
    tight.rlim_cur = (rlim_t)waiting + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    rig_pump(rig);
    rig_pump(rig);
    assert_int_equal(fabric_arm(rig->lane.fabric, &wait), 0);
    struct pollfd source = {.fd = wait.fd, .events = POLLIN};
    /* the lane can sleep, because the listener is not permanently ready */
    assert_int_equal(poll(&source, 1, 20), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(waiting);
    rig_send(rig->at_worker[0], "still served");
    rig_expect_text(rig, &rig->lane, "still served");
    rig_connect(rig, 1);
}

static void a_worker_cannot_write_the_sleep_flag_of_a_lane(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_make(rig);
    struct shm_packet answer;
    int fds[SHM_PACKET_FDS_MAX];
    size_t count;

    liar_hello(&l, l.rings_fd, l.bell_fd);
    struct fabric_conn *c = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(c, rig), 0);
    assert_int_equal(shm_packet_receive(l.socket, &answer, fds, &count), 0);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0), MAP_FAILED);
    void *bell = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fds[1], 0);
    assert_ptr_not_equal(bell, MAP_FAILED);
    assert_int_not_equal(mprotect(bell, 4096, PROT_READ | PROT_WRITE), 0);
    assert_true(write(fds[1], "x", 1) < 0);
    munmap(bell, 4096);
    shm_fds_close(fds, count);
    liar_drop(&l);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        LIAR_CASE(rings_that_could_shrink_are_refused),
        LIAR_CASE(rings_and_bells_of_another_size_are_refused),
        LIAR_CASE(descriptors_other_than_memory_are_refused),
        LIAR_CASE(memory_that_the_lane_could_not_write_is_refused),
        LIAR_CASE(garbage_instead_of_hello_is_refused_and_leaks_nothing),
        LIAR_CASE(descriptors_that_come_without_a_byte_are_closed),
        LIAR_CASE(silent_sockets_are_bounded_in_number),
        LIAR_CASE(at_most_four_peers_are_accepted_in_a_poll_and_then_the_listener_pauses),
        LIAR_CASE(unknown_users_are_refused_four_in_a_poll_with_a_longer_pause),
        LIAR_CASE(a_lane_without_free_descriptors_refuses_peers_and_continues),
        LIAR_CASE(a_worker_cannot_write_the_sleep_flag_of_a_lane),
    };
    return cmocka_run_group_tests_name("shm_handshake", cases, NULL, NULL);
}
