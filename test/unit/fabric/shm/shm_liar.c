/* A worker whose packets and records the test writes itself, so that they may be invalid. */
#include "test/unit/fabric/shm/shm_liar.h"

#include "svc/fabric/shm/map/memory.h"
#include "svc/fabric/shm/peer/socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void name_address(char *ret_address)
{
    static int count;

    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "@gradpool-liar-%d-%d", (int)getpid(), count++);
}

static int open_shm(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("shm", options, ret_fabric);
}

static const struct fabric_factory shm = {
    .open = open_shm,
    .name_address = name_address,
};

int liar_set_up(void **state)
{
    struct rig *rig = malloc(sizeof *rig);
    const struct fabric_options options = {.mapped_bytes_max = LIAR_BYTES_MAX};

    assert_non_null(rig);
    rig_open(rig, &shm, &options);
    *state = rig;
    return 0;
}

int liar_tear_down(void **state)
{
    rig_close(*state);
    free(*state);
    return 0;
}

struct liar liar_make(struct rig *rig)
{
    struct liar l = {0};
    void *rings, *bell;

    assert_int_equal(shm_socket_connect(rig->address, &l.socket), 0);
    assert_int_equal(shm_memory_create("rings", sizeof *l.rings, &l.rings_fd, &rings), 0);
    assert_int_equal(shm_memory_create("bell", sizeof *l.bell, &l.bell_fd, &bell), 0);
    l.rings = rings;
    l.bell = bell;
    l.out.ring = &l.rings->to_lane;
    return l;
}

void liar_drop(struct liar *l)
{
    shm_memory_unmap(l->rings, sizeof *l->rings);
    shm_memory_unmap(l->bell, sizeof *l->bell);
    shm_fds_close((const int[]){l->socket, l->rings_fd, l->bell_fd}, 3);
}

void liar_hello(struct liar *l, int rings_fd, int bell_fd)
{
    struct shm_packet hello = {.kind = SHM_PACKET_HELLO, .ticket_bytes = 4, .ticket = "lies"};

    assert_int_equal(shm_packet_send(l->socket, &hello, (const int[]){rings_fd, bell_fd}, 2), 0);
}

struct liar liar_admitted(struct rig *rig)
{
    struct liar l = liar_make(rig);
    struct shm_packet answer;
    int fds[SHM_PACKET_FDS_MAX];
    size_t count;

    liar_hello(&l, l.rings_fd, l.bell_fd);
    l.at_lane = rig_expect(rig, &rig->lane, FABRIC_EVENT_REQUEST).event.conn;
    assert_int_equal(fabric_accept(l.at_lane, rig), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_OPEN);
    assert_int_equal(shm_packet_receive(l.socket, &answer, fds, &count), 0);
    assert_int_equal(answer.kind, SHM_PACKET_ACCEPT);
    assert_int_equal(count, 2);
    shm_fds_close(fds, count);
    return l;
}

int unsealed_memory(uint64_t bytes)
{
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

int sealed_memory(uint64_t bytes, int seals)
{
    int fd = unsealed_memory(bytes);

    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

int open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

void send_raw(int socket, const void *bytes, size_t length, const int *fds, size_t count)
{
    struct iovec part = {(void *)bytes, length};
    union {
        char bytes[CMSG_SPACE(16 * sizeof(int))];
        struct cmsghdr alignment;
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    assert_true(sendmsg(socket, &message, MSG_NOSIGNAL) >= 0);
}
