/* Tests fabric_shm with a worker that sends false messages after a correct handshake. The lane must
 * end the connection of this worker, and must serve the other workers. */
#include "test/unit/fabric/shm/shm_liar.h"

#include "svc/fabric/shm/map/memory.h"
#include "svc/fabric/shm/map/sigbus.h"
#include "svc/fabric/shm/peer/socket.h"
#include "test/unit/broken_page.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Checks that the liar's connection has ended, and that an honest worker is served. */
static void expect_expulsion(struct rig *rig, struct liar *l, int error)
{
    rig_expect_closed(rig, &rig->lane, rig, error);
    liar_drop(l);
    rig_connect(rig, 0);
    rig_send(rig->at_worker[0], "honest");
    rig_expect_text(rig, &rig->lane, "honest");
}

static void an_impossible_counter_ends_the_connection(void **state)
{
    static const uint32_t tails[] = {SHM_RING_RECORDS + 1, UINT32_MAX, 1u << 31};
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        struct liar l = liar_admitted(rig);
        atomic_store(&l.rings->to_lane.tail, tails[i]);
        expect_expulsion(rig, &l, -EBADMSG);
    }
}

static void a_head_beyond_the_tail_ends_the_connection(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_admitted(rig);
    int r = 0;

    atomic_store(&l.rings->to_worker.head, 5000);
    for (int i = 0; i < 2000 && r == 0; i++)
        r = fabric_send(l.at_lane, "x", 1, NULL, 0);
    assert_int_equal(r, -ECONNRESET);
    expect_expulsion(rig, &l, -EBADMSG);
}

static void records_that_make_no_sense_end_the_connection(void **state)
{
    struct rig *rig = *state;
    static const struct {
        int kind;
        uint32_t word;
        size_t bytes;
    } cases[] = {
        {0, 0, 0},
        {99, 0, 0},
        {255, 0, 120},
        {SHM_RECORD_WORD, 1, 0}, /* only a lane sends this record */
        {SHM_RECORD_WITHDRAW, 0, 0},
        {SHM_RECORD_WITHDRAW, FABRIC_REGIONS_MAX, 0},
        {SHM_RECORD_WITHDRAW, UINT32_MAX, 0},
        {SHM_RECORD_LEND, 0, 8}, /* no descriptor was sent */
        {SHM_RECORD_LEND, 0, 7},
        {SHM_RECORD_LEND, FABRIC_REGIONS_MAX, 8},
        {SHM_RECORD_LEND, UINT32_MAX, 8},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct liar l = liar_admitted(rig);
        uint64_t body[15] = {PAGE};
        assert_int_equal(shm_push(&l.out, (enum shm_record_kind)cases[i].kind, cases[i].word, body,
                                  cases[i].bytes),
                         0);
        expect_expulsion(rig, &l, -EBADMSG);
    }
}

static void a_record_longer_than_a_record_ends_the_connection(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_admitted(rig);

    l.rings->to_lane.records[0].kind = SHM_RECORD_MESSAGE;
    l.rings->to_lane.records[0].bytes = SHM_BODY_BYTES_MAX + 1;
    atomic_store(&l.rings->to_lane.tail, 1);
    expect_expulsion(rig, &l, -EBADMSG);
}

/* Shares this descriptor. Packet and record may contradict each other. */
static void lend(struct liar *l, int fd, uint32_t packet_id, uint64_t packet_bytes,
                 uint32_t record_id, uint64_t record_bytes)
{
    struct shm_packet packet = {.kind = SHM_PACKET_LEND, .word = packet_id, .bytes = packet_bytes};

    assert_int_equal(shm_packet_send(l->socket, &packet, &fd, 1), 0);
    assert_int_equal(
        shm_push(&l->out, SHM_RECORD_LEND, record_id, &record_bytes, sizeof record_bytes), 0);
}

static void a_region_with_a_false_description_ends_the_connection(void **state)
{
    struct rig *rig = *state;
    static const struct {
        uint64_t size;
        int seals;
        uint32_t packet_id;
        uint64_t packet_bytes;
        uint32_t record_id;
        uint64_t record_bytes;
        int error;
    } cases[] = {
        {8192, 0, 0, 8192, 0, 8192, -EBADMSG},
        {8192, F_SEAL_GROW, 0, 8192, 0, 8192, -EBADMSG},
        {8192, HONEST_SEALS, 0, 4096, 0, 4096, -EBADMSG},
        {8192, HONEST_SEALS, 0, 65536, 0, 65536, -EBADMSG},
        {8192, HONEST_SEALS, 0, 8192, 0, 4096, -EBADMSG},
        {8192, HONEST_SEALS, 1, 8192, 2, 8192, -EBADMSG},
        {0, HONEST_SEALS, 0, 0, 0, 0, -EBADMSG},
        {8192, HONEST_SEALS, 0, UINT64_MAX, 0, UINT64_MAX, -ENOSPC},
        {8192, HONEST_SEALS | F_SEAL_WRITE, 0, 8192, 0, 8192, -EACCES},
        {8192, HONEST_SEALS | F_SEAL_FUTURE_WRITE, 0, 8192, 0, 8192, -EACCES},
        {(1 << 20) + 4096, HONEST_SEALS, 0, (1 << 20) + 4096, 0, (1 << 20) + 4096, -ENOSPC},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct liar l = liar_admitted(rig);
        int fd = sealed_memory(cases[i].size, cases[i].seals);
        lend(&l, fd, cases[i].packet_id, cases[i].packet_bytes, cases[i].record_id,
             cases[i].record_bytes);
        close(fd);
        expect_expulsion(rig, &l, cases[i].error);
    }
}

static void a_region_id_is_lent_once(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_admitted(rig);
    int fd = sealed_memory(4096, HONEST_SEALS);

    lend(&l, fd, 0, 4096, 0, 4096);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    lend(&l, fd, 0, 4096, 0, 4096);
    close(fd);
    expect_expulsion(rig, &l, -EBADMSG);
}

/* An honest worker that shares too much memory gets an error. */
static void regions_count_against_a_limit_until_they_are_withdrawn(void **state)
{
    struct rig *rig = *state;
    struct region half, more;

    rig_connect(rig, 0);
    half = rig_lend(rig, 0, 0, 512 << 10);
    more = rig_lend(rig, 0, 1, 512 << 10);
    fabric_withdraw(rig->at_worker[0], 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &half, 2), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    assert_int_equal(fabric_lend(rig->at_worker[0], &more, 3), 0);
    struct seen closed = rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
    assert_int_equal(closed.event.error, -ENOSPC);
    closed = rig_expect(rig, &rig->workers[0], FABRIC_EVENT_CLOSED);
    assert_int_equal(closed.event.error, -ECONNRESET);
    assert_int_equal(closed.event.word, ENOSPC);
    region_destroy(&half);
    region_destroy(&more);
}

static void garbage_among_the_descriptors_ends_the_connection(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_admitted(rig);
    uint64_t bytes = 4096;

    rig_expect_nothing(rig, &rig->lane);
    int before = open_descriptors();
    send_raw(l.socket, "garbage", 7, (const int[]){0, 0, 0, 0}, 4);
    rig_expect_nothing(rig, &rig->lane); /* the lane reads the socket only after a record about a
                                          * region */
    assert_int_equal(shm_push(&l.out, SHM_RECORD_LEND, 0, &bytes, sizeof bytes), 0);
    rig_expect_closed(rig, &rig->lane, rig, -EBADMSG);
    liar_drop(&l);
    rig_expect_nothing(rig, &rig->lane);
    assert_true(open_descriptors() < before);
}

/* Sends packets without bytes in places where the lane expects packets of regions. At the end one
 * packet stays in the socket. */
static void descriptors_without_a_byte_in_a_regions_place_are_closed(void **state)
{
    struct rig *rig = *state;
    uint64_t bytes = 4096;

    rig_expect_nothing(rig, &rig->lane);
    int before = open_descriptors();
    for (size_t count = 1; count <= 2; count++) {
        struct liar l = liar_admitted(rig);
        for (int i = 0; i < 2; i++)
            send_raw(l.socket, "", 0, (const int[]){0, 0}, count);
        assert_int_equal(shm_push(&l.out, SHM_RECORD_LEND, 0, &bytes, sizeof bytes), 0);
        rig_expect_closed(rig, &rig->lane, rig, -EBADMSG);
        liar_drop(&l);
        rig_expect_nothing(rig, &rig->lane);
        assert_int_equal(open_descriptors(), before);
    }
}

/* The process of the worker has left, but another process still writes to the worker's ring. */
static void records_after_a_goodbye_are_ignored(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_admitted(rig);
    struct shm_packet bye = {.kind = SHM_PACKET_BYE};
    struct fabric_event held[64], none;

    for (int i = 0; i < 100; i++)
        assert_int_equal(shm_push(&l.out, SHM_RECORD_MESSAGE, 0, "before", 7), 0);
    for (int n = 0; n < 64;)
        n += fabric_poll(rig->lane.fabric, &held[n], 64 - n);
    assert_int_equal(shm_packet_send(l.socket, &bye, NULL, 0), 0);
    assert_int_equal(shutdown(l.socket, SHUT_RDWR), 0);
    assert_int_equal(fabric_poll(rig->lane.fabric, &none, 1), 0); /* all buffers are in use */
    for (int i = 0; i < 50; i++)
        assert_int_equal(shm_push(&l.out, SHM_RECORD_MESSAGE, 0, "after", 6), 0);
    for (int i = 0; i < 64; i++)
        fabric_message_done(l.at_lane, held[i].data);
    for (int i = 64; i < 100; i++)
        rig_expect_text(rig, &rig->lane, "before");
    rig_expect_closed(rig, &rig->lane, rig, 0);
    liar_drop(&l);
}

/* Uses an eventfd that blocks its reader, a full eventfd, and a socket without a reader. */
static void a_lane_never_blocks_on_shared_descriptors(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_make(rig);
    struct shm_packet answer;
    int fds[SHM_PACKET_FDS_MAX];
    size_t count;
    uint64_t most = UINT64_MAX - 1;

    liar_hello(&l, l.rings_fd, l.bell_fd);
    struct fabric_conn *c = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(c, rig), 0);
    assert_int_equal(shm_packet_receive(l.socket, &answer, fds, &count), 0);
    assert_int_equal(write(fds[0], &most, sizeof most), sizeof most);
    assert_int_equal(fcntl(fds[0], F_SETFL, 0), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_OPEN);
    rig_connect(rig, 0);
    rig_send(rig->at_worker[0], "served");
    rig_expect_text(rig, &rig->lane, "served");
    fabric_disconnect(c);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
    shm_fds_close(fds, count);
    liar_drop(&l);
}

/* The worker still has the eventfd of a closed connection, which must not wake the lane. */
static void a_former_worker_wakes_no_lane(void **state)
{
    struct rig *rig = *state;
    struct liar l = liar_make(rig);
    struct shm_packet answer;
    struct fabric_wait wait;
    int fds[SHM_PACKET_FDS_MAX];
    uint64_t one = 1;
    size_t count;

    liar_hello(&l, l.rings_fd, l.bell_fd);
    struct fabric_conn *c = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(c, rig), 0);
    assert_int_equal(shm_packet_receive(l.socket, &answer, fds, &count), 0);
    fabric_disconnect(c);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
    rig_pump(rig);
    assert_int_equal(write(fds[0], &one, sizeof one), sizeof one);
    assert_int_equal(fabric_arm(rig->lane.fabric, &wait), 0);
    struct pollfd source = {.fd = wait.fd, .events = POLLIN};
    assert_int_equal(poll(&source, 1, 20), 0);
    shm_fds_close(fds, count);
    liar_drop(&l);
}

/* --- memory that fails ------------------------------------------------------------------------ */

static void a_page_that_fails_reads_as_zeros_and_is_reported(void **state)
{
    _Atomic bool poisoned = false;
    int fd = sealed_memory(4 * 4096, HONEST_SEALS);
    void *base;

    assert_int_equal(shm_memory_map_guarded(fd, 4 * 4096, &poisoned, &base), 0);
    memset(base, 7, 4 * 4096);
    break_page((char *)base + 8192);
    assert_int_equal(((volatile char *)base)[8191], 7);
    assert_false(poisoned);
    assert_int_equal(((volatile char *)base)[8192 + 100], 0);
    assert_true(poisoned);
    assert_int_equal(((volatile char *)base)[12288], 7);
    shm_memory_unmap(base, 4 * 4096);
    close(fd);
}

/* The case uses more mappings than fit into the table that is allocated at the start. */
static void tens_of_thousands_of_mappings_are_guarded_each(void **state)
{
    enum { COUNT = 30000 };
    static char *base[COUNT];
    static _Atomic bool poisoned[COUNT];

    for (int i = 0; i < COUNT; i++) {
        base[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(base[i], MAP_FAILED);
        assert_int_equal(shm_sigbus_guard(base[i], 4096, &poisoned[i]), 0);
    }
    for (int i = 0; i < COUNT; i += COUNT / 3 - 1) {
        break_page(base[i]);
        assert_int_equal(((volatile char *)base[i])[7], 0);
        assert_true(poisoned[i]);
        assert_false(poisoned[i + 1]);
    }
    for (int i = 0; i < COUNT; i++) {
        shm_sigbus_release(base[i]);
        munmap(base[i], 4096);
    }
}

static void a_fault_outside_guarded_memory_kills_the_process(void **state)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        const struct rlimit none = {0, 0};
        _Atomic bool poisoned;
        void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        setrlimit(RLIMIT_CORE, &none);
        sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        shm_sigbus_guard(page, 4096, &poisoned);
        shm_sigbus_release(page);
        break_page(page);
        _exit(((volatile char *)page)[0]);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_region_that_fails_ends_the_connection_not_the_process(void **state)
{
    struct rig *rig = *state;
    char local[16];

    rig_connect(rig, 0);
    rig_connect(rig, 1);
    struct region region = rig_lend(rig, 0, 0, 3 * 4096);
    break_page(fabric_map(rig->at_lane[0], 0, 4096, 4096));
    assert_true(fabric_is_sound(rig->at_lane[0]));
    assert_int_equal(fabric_read(rig->at_lane[0], 0, 4090, local, sizeof local, NULL), 0);
    assert_false(fabric_is_sound(rig->at_lane[0]));
    assert_int_equal(fabric_notify(rig->at_lane[0], 1, NULL), -ECONNRESET);
    assert_true(fabric_is_sound(rig->at_lane[1]));
    struct seen closed = rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
    assert_int_equal(closed.event.error, -EFAULT);
    closed = rig_expect(rig, &rig->workers[0], FABRIC_EVENT_CLOSED);
    assert_int_equal(closed.event.error, -ECONNRESET);
    assert_int_equal(closed.event.word, EFAULT);
    rig_send(rig->at_worker[1], "unharmed");
    rig_expect_text(rig, &rig->lane, "unharmed");
    region_destroy(&region);
}

/* A worker can return pages of sealed memory to the kernel (S8). The full size of the region must
 * still count towards the limit. */
static void a_region_with_returned_pages_counts_with_its_full_size(void **state)
{
    enum { BYTES = 768 << 10 };
    struct rig *rig = *state;
    struct liar l = liar_admitted(rig);
    int fd = sealed_memory(BYTES, HONEST_SEALS), more = sealed_memory(512 << 10, HONEST_SEALS);

    assert_int_equal(pwrite(fd, "written", 8, 4096), 8);
    lend(&l, fd, 0, BYTES, 0, BYTES);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    assert_string_equal(fabric_map(l.at_lane, 0, 4096, 8), "written");
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), 0);
    lend(&l, more, 1, 512 << 10, 1, 512 << 10);
    close(fd);
    close(more);
    expect_expulsion(rig, &l, -ENOSPC);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        LIAR_CASE(an_impossible_counter_ends_the_connection),
        LIAR_CASE(a_head_beyond_the_tail_ends_the_connection),
        LIAR_CASE(records_that_make_no_sense_end_the_connection),
        LIAR_CASE(a_record_longer_than_a_record_ends_the_connection),
        LIAR_CASE(a_region_with_a_false_description_ends_the_connection),
        LIAR_CASE(a_region_id_is_lent_once),
        LIAR_CASE(regions_count_against_a_limit_until_they_are_withdrawn),
        LIAR_CASE(garbage_among_the_descriptors_ends_the_connection),
        LIAR_CASE(descriptors_without_a_byte_in_a_regions_place_are_closed),
        LIAR_CASE(records_after_a_goodbye_are_ignored),
        LIAR_CASE(a_lane_never_blocks_on_shared_descriptors),
        LIAR_CASE(a_former_worker_wakes_no_lane),
        LIAR_CASE(a_page_that_fails_reads_as_zeros_and_is_reported),
        LIAR_CASE(tens_of_thousands_of_mappings_are_guarded_each),
        LIAR_CASE(a_fault_outside_guarded_memory_kills_the_process),
        LIAR_CASE(a_region_that_fails_ends_the_connection_not_the_process),
        LIAR_CASE(a_region_with_returned_pages_counts_with_its_full_size),
    };
    return cmocka_run_group_tests_name("shm_mistrust", cases, NULL, NULL);
}
