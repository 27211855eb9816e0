/* The lane's end of fabric_shm: listens, checks the caller's user, receives HELLO, accepts. Owns
 * the listener and the epoll set. A caller's packets and descriptors are checked (W9). */
#include "svc/fabric/shm/lane.h"

#include "svc/base/clock.h"
#include "svc/fabric/shm/lending.h"
#include "svc/fabric/shm/map/absent.h"
#include "svc/fabric/shm/map/mapper.h"
#include "svc/fabric/shm/map/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Maximum number of sockets without a HELLO. A further socket closes the oldest one. Each such
 * socket uses two descriptors, and all of them together may use an eighth of the process's
 * descriptors. */
#define GREETINGS_MAX 256
#define GREETINGS_PART 16
/* Maximum number of sockets with events that one poll handles. */
#define LOOKS_MAX 64
/* Number of callers after which the listener pauses. Any user of the host can connect, which costs
 * the lane about 15 us. The pause after a refused user is longer, so that unknown users take only a
 * few hundredths of the lane's time (T7). */
#define ACCEPTS_MAX 4
#define REST_NS (200 * NS_PER_US)
#define REST_OF_STRANGERS_NS (2 * NS_PER_MS)

struct shm_lane {
    int listener_fd;
    int epoll_fd;
    /* spare descriptor: if the process has no free descriptor, the lane closes this one for a
     * moment in order to accept and refuse a caller */
    int spare_fd;
    int rest_fd;   /* timer: end of the listener's pause */
    int greetings; /* number of connections in state SHM_GREETING */
};

static int lane_watch(struct shm_lane *lane, int fd, uint32_t events, void *data)
{
    struct epoll_event event = {.events = events, .data.ptr = data};

    return epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* --- callers --------------------------------------------------------------------------------- */

static int lane_open_spare(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

/* Refuses a caller although the process has no free descriptor. Otherwise the waiting socket would
 * keep the listener readable forever. */
static void lane_turn_away(struct shm_lane *lane)
{
    int fd;

    close(lane->spare_fd);
    if (shm_socket_accept(lane->listener_fd, &fd) == 0)
        close(fd);
    lane->spare_fd = lane_open_spare();
}

static bool lane_allows(const struct shm_fabric *f, uint32_t uid)
{
    if (uid == geteuid())
        return true;
    for (size_t i = 0; i < f->allowed_uids_count; i++)
        if (f->allowed_uids[i] == uid)
            return true;
    return false;
}

static void lane_send_refusal(int socket, int reason)
{
    struct shm_packet refusal = {.kind = SHM_PACKET_REFUSE, .word = (uint32_t)reason};

    shm_packet_send(socket, &refusal, NULL, 0);
}

static int lane_greetings_max(void)
{
    struct rlimit limit;
    bool is_low = getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
                  limit.rlim_cur < (rlim_t)GREETINGS_MAX * GREETINGS_PART;
    return is_low ? (int)(limit.rlim_cur / GREETINGS_PART) + 1 : GREETINGS_MAX;
}

static void lane_limit_greetings(struct shm_fabric *f)
{
    if (f->lane->greetings < lane_greetings_max())
        return;
    list_for_each_entry (struct shm_conn, c, &f->conns, link) {
        if (c->state == SHM_GREETING) {
            shm_conn_drop(c);
            return;
        }
    }
}

/* Creates a connection for an accepted socket, or closes the socket. Returns false if its user is
 * not allowed. */
static bool lane_admit(struct shm_fabric *f, int socket)
{
    struct shm_peer peer;
    struct shm_conn *c;

    if (shm_socket_peer(socket, &peer) < 0) {
        close(socket);
        return true;
    }
    if (!lane_allows(f, peer.uid)) {
        lane_send_refusal(socket, EACCES);
        shm_fds_close((const int[]){socket, peer.pidfd}, 2);
        return false;
    }
    lane_limit_greetings(f);
    if (shm_conn_create(f, socket, &peer, SHM_GREETING, &c) < 0)
        return true;
    f->lane->greetings++;
    if (lane_watch(f->lane, socket, EPOLLIN | EPOLLRDHUP | EPOLLET, c) < 0 ||
        (peer.pidfd >= 0 && lane_watch(f->lane, peer.pidfd, EPOLLIN | EPOLLET, c) < 0))
        shm_conn_drop(c);
    return true;
}

static void lane_watch_listener(struct shm_lane *lane, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = lane};

    epoll_ctl(lane->epoll_fd, EPOLL_CTL_MOD, lane->listener_fd, &event);
}

static void lane_rest(struct shm_lane *lane, uint64_t rest_ns)
{
    struct itimerspec when = {.it_value = {.tv_nsec = (long)rest_ns}};

    if (timerfd_settime(lane->rest_fd, 0, &when, NULL) == 0)
        lane_watch_listener(lane, 0);
}

static void lane_end_rest(struct shm_lane *lane)
{
    uint64_t expirations;

    if (read(lane->rest_fd, &expirations, sizeof expirations) == sizeof expirations)
        lane_watch_listener(lane, EPOLLIN);
}

static void lane_accept_sockets(struct shm_fabric *f)
{
    bool are_known = true;

    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int socket;
        int error = shm_socket_accept(f->lane->listener_fd, &socket);

        if (error == -EMFILE || error == -ENFILE)
            lane_turn_away(f->lane);
        if (error < 0 && error != -ECONNABORTED)
            return;
        if (error == 0)
            are_known &= lane_admit(f, socket);
    }
    lane_rest(f->lane, are_known ? REST_NS : REST_OF_STRANGERS_NS);
}

void shm_lane_look(struct shm_fabric *f)
{
    struct epoll_event events[LOOKS_MAX];
    int n = epoll_wait(f->lane->epoll_fd, events, LOOKS_MAX, 0);

    f->polls_since_sockets = 0;
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == f->lane)
            lane_accept_sockets(f);
        else if (events[i].data.ptr == &f->lane->rest_fd)
            lane_end_rest(f->lane);
        else if (events[i].data.ptr)
            shm_conn_look(events[i].data.ptr);
        /* Events of the mapper and of workers' eventfds have NULL as data; they only wake the lane.
         * A worker's eventfd is never read, because the worker could make the read block (S4). */
    }
}

/* --- the handshake --------------------------------------------------------------------------- */

/* Maps memory whose creator has allocated all pages (S14). The pages are mapped in this call,
 * before the lane accesses them. */
static int lane_map_whole(struct shm_conn *c, int fd, uint64_t bytes, void **ret_base)
{
    void *base;
    int error = shm_memory_map_guarded(fd, bytes, &c->is_poisoned, &base);

    if (error < 0)
        return error;
    bool fails = shm_absent_fail(base, bytes);
    if (shm_absent_fill(base, bytes, fails, fd, 0) < bytes) {
        shm_memory_unmap(base, bytes);
        return -EFAULT;
    }
    *ret_base = base;
    return 0;
}

static int lane_map_hello(struct shm_conn *c, const int fds[2])
{
    void *rings, *bell;
    int error = lane_map_whole(c, fds[0], sizeof(struct shm_rings), &rings);

    if (error < 0)
        return error;
    c->rings = rings;
    error = lane_map_whole(c, fds[1], sizeof(struct shm_bell), &bell);
    if (error < 0)
        return error;
    c->peer_bell = bell;
    c->in.ring = &c->rings->to_lane;
    c->out.ring = &c->rings->to_worker;
    return 0;
}

static int lane_read_hello(struct shm_conn *c)
{
    struct shm_packet hello;
    int fds[SHM_PACKET_FDS_MAX];
    size_t fds_count;
    int error = shm_packet_receive(c->socket, &hello, fds, &fds_count);

    if (error < 0)
        return error;
    if (hello.kind == SHM_PACKET_HELLO && fds_count == 2)
        error = lane_map_hello(c, fds);
    else
        error = -EBADMSG;
    shm_fds_close(fds, fds_count);
    if (error < 0)
        return error;
    memcpy(c->ticket, hello.ticket, hello.ticket_bytes);
    c->ticket_bytes = hello.ticket_bytes;
    return 0;
}

static void lane_greet(struct shm_conn *c)
{
    int error = lane_read_hello(c);

    if (error == -EAGAIN)
        return;
    if (error < 0) {
        lane_send_refusal(c->socket, -error);
        shm_conn_drop(c);
        return;
    }
    shm_owner(c)->lane->greetings--;
    c->state = SHM_ASKED;
}

/* Removes each descriptor from the epoll set explicitly. If another process has the descriptor, too
 * (a forked child, or the worker with its eventfd), closing alone would leave it in the set. */
static void lane_unwatch(struct shm_conn *c)
{
    struct shm_lane *lane = shm_owner(c)->lane;
    int fds[] = {c->socket, c->peer.pidfd, c->wake_fd};

    for (size_t i = 0; i < 3; i++)
        if (fds[i] >= 0)
            epoll_ctl(lane->epoll_fd, EPOLL_CTL_DEL, fds[i], NULL);
    if (c->state == SHM_GREETING)
        lane->greetings--;
}

static const struct shm_side lane_side = {
    .unwatch = lane_unwatch,
    .hear = lane_greet,
    .let_go = shm_lending_end,
};

int shm_lane_accept(struct fabric_conn *base, void *owner)
{
    struct shm_conn *c = shm_conn(base);
    struct shm_fabric *f = shm_owner(c);
    struct shm_packet accept = {.kind = SHM_PACKET_ACCEPT};

    if (c->state != SHM_ASKED)
        return -ECONNRESET;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = c->wake_fd < 0 ? -errno : lane_watch(f->lane, c->wake_fd, EPOLLIN | EPOLLET, NULL);
    if (error == 0)
        error = shm_packet_send(c->socket, &accept, (const int[]){c->wake_fd, f->bell_fd}, 2);
    if (error < 0) {
        shm_lane_refuse(base, -error);
        return error;
    }
    c->state = SHM_OPEN;
    c->owner = owner;
    c->open_due = true;
    return 0;
}

void shm_lane_refuse(struct fabric_conn *base, int reason)
{
    struct shm_conn *c = shm_conn(base);

    if (c->state == SHM_ASKED)
        lane_send_refusal(c->socket, reason);
    shm_conn_drop(c);
}

/* --- listening ------------------------------------------------------------------------------- */

/* Opens the listener. After an error the caller closes the descriptors that were opened. */
static int lane_open(struct shm_fabric *f, struct shm_lane *lane, const char *address)
{
    lane->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    lane->spare_fd = lane_open_spare();
    lane->rest_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (lane->epoll_fd < 0 || lane->spare_fd < 0 || lane->rest_fd < 0)
        return -errno;
    int error = shm_memory_seal_writes(f->bell_fd);
    if (error == 0)
        error = shm_socket_listen(address, &lane->listener_fd);
    if (error == 0)
        error = shm_mapper_create(&f->mapper);
    if (error == 0)
        error = lane_watch(lane, shm_mapper_news_fd(f->mapper), EPOLLIN | EPOLLET, NULL);
    if (error == 0)
        error = lane_watch(lane, lane->listener_fd, EPOLLIN, lane);
    return error < 0 ? error : lane_watch(lane, lane->rest_fd, EPOLLIN, &lane->rest_fd);
}

int shm_lane_listen(struct fabric *base, const char *address, char *ret_address)
{
    struct shm_fabric *f = shm_fabric(base);

    if (f->lane || f->watch)
        return -EINVAL;
    struct shm_lane *lane = malloc(sizeof *lane);
    if (!lane)
        return -ENOMEM;
    *lane = (struct shm_lane){.listener_fd = -1, .epoll_fd = -1, .spare_fd = -1, .rest_fd = -1};
    int error = lane_open(f, lane, address);
    if (error < 0) {
        shm_mapper_destroy(f->mapper);
        f->mapper = NULL;
        shm_lane_close(lane);
        return error;
    }
    f->lane = lane;
    f->side = &lane_side;
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "%s", address);
    snprintf(f->description, sizeof f->description, "shm: memfd and futex, address %s", address);
    return 0;
}

void shm_lane_abandon(struct shm_lane *lane)
{
    if (lane)
        shm_fds_close(
            (const int[]){lane->listener_fd, lane->epoll_fd, lane->spare_fd, lane->rest_fd}, 4);
}

void shm_lane_close(struct shm_lane *lane)
{
    shm_lane_abandon(lane);
    free(lane);
}

int shm_lane_fd(const struct shm_lane *lane) { return lane->epoll_fd; }
