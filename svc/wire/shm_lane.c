/* The lane's side of fabric_shm: listens, checks who comes, accepts, maps what is lent. Everything
 * here comes from a process that is not trusted (W9): who it is, its packets, its descriptors. */
#include "svc/wire/shm_conn.h"

#include "svc/base/clock.h"
#include "svc/wire/shm_absent.h"
#include "svc/wire/shm_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Sockets that have not said HELLO yet; beyond, the oldest is turned away. Each has two
 * descriptors: together they get an eighth of all. */
#define GREETINGS_MAX 256
#define GREETINGS_PART 16
/* Sockets looked at in one poll. */
#define LOOKS_MAX 64
/* Any user of the host can connect, and each who does costs some 15 us: after so many the listener
 * rests, for longer where one of them was refused by its uid, so that strangers have some
 * hundredths of the lane's time at most (T7). */
#define ACCEPTS_MAX 4
#define REST_NS (200 * NS_PER_US)
#define REST_OF_STRANGERS_NS (2 * NS_PER_MS)

static int watch(struct shm_fabric *f, int fd, uint32_t events, void *data)
{
    struct epoll_event event = {.events = events, .data.ptr = data};

    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void shm_lane_unwatch(struct shm_conn *c)
{
    int fds[] = {c->socket, c->peer.pidfd, c->wake_fd};

    for (size_t i = 0; i < 3; i++)
        if (fds[i] >= 0)
            epoll_ctl(shm_owner(c)->epoll_fd, EPOLL_CTL_DEL, fds[i], NULL);
}

static int open_spare(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

/* Descriptors opened before an error stay in `f` and are closed with it. */
static int open_lane(struct shm_fabric *f, const char *address)
{
    int r = shm_memory_seal_writes(f->bell_fd);

    if (r < 0)
        return r;
    r = shm_socket_listen(address, &f->listener_fd);
    if (r < 0)
        return r;
    r = shm_mapper_start(&f->mapper);
    if (r == 0)
        r = watch(f, f->mapper.news_fd, EPOLLIN | EPOLLET, NULL);
    if (r == 0)
        r = watch(f, f->listener_fd, EPOLLIN, f);
    return r < 0 ? r : watch(f, f->rest_fd, EPOLLIN, &f->rest_fd);
}

int shm_lane_listen(struct fabric *base, const char *address, char *ret_address)
{
    struct shm_fabric *f = shm_fabric(base);

    if (f->is_lane || f->watch.epoll_fd >= 0)
        return -EINVAL;
    if (f->epoll_fd < 0)
        f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (f->spare_fd < 0)
        f->spare_fd = open_spare();
    if (f->rest_fd < 0)
        f->rest_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (f->epoll_fd < 0 || f->spare_fd < 0 || f->rest_fd < 0)
        return -errno;
    int r = open_lane(f, address);
    if (r < 0)
        return r;
    f->is_lane = true;
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "%s", address);
    snprintf(f->description, sizeof f->description, "shm: memfd and futex, address %s", address);
    return 0;
}

/* Without a descriptor for it, a waiting socket would make the listener readable for ever. */
static void turn_away(struct shm_fabric *f)
{
    int fd;

    close(f->spare_fd);
    if (shm_socket_accept(f->listener_fd, &fd) == 0)
        close(fd);
    f->spare_fd = open_spare();
}

static bool is_allowed(const struct shm_fabric *f, uint32_t uid)
{
    if (uid == geteuid())
        return true;
    for (size_t i = 0; i < f->allowed_uids_count; i++)
        if (f->allowed_uids[i] == uid)
            return true;
    return false;
}

static void send_refusal(int socket, int reason)
{
    struct shm_packet refusal = {.kind = SHM_PACKET_REFUSE, .word = (uint32_t)reason};

    shm_packet_send(socket, &refusal, NULL, 0);
}

static int greetings_max(void)
{
    struct rlimit limit;
    bool is_low = getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
                  limit.rlim_cur < (rlim_t)GREETINGS_MAX * GREETINGS_PART;
    return is_low ? (int)(limit.rlim_cur / GREETINGS_PART) + 1 : GREETINGS_MAX;
}

static void limit_greetings(struct shm_fabric *f)
{
    if (f->greetings < greetings_max())
        return;
    list_for_each (node, &f->conns) {
        struct shm_conn *c = list_entry(node, struct shm_conn, link);
        if (c->state == SHM_GREETING) {
            shm_conn_drop(c);
            return;
        }
    }
}

/* An accepted socket becomes a connection, or not. false: its user has no business here. */
static bool admit(struct shm_fabric *f, int socket)
{
    struct shm_peer peer;
    struct shm_conn *c;

    if (shm_socket_peer(socket, &peer) < 0) {
        close(socket);
        return true;
    }
    if (!is_allowed(f, peer.uid)) {
        send_refusal(socket, EACCES);
        shm_fds_close((const int[]){socket, peer.pidfd}, 2);
        return false;
    }
    limit_greetings(f);
    if (shm_conn_create(f, socket, &peer, SHM_GREETING, &c) < 0)
        return true;
    f->greetings++;
    if (watch(f, socket, EPOLLIN | EPOLLRDHUP | EPOLLET, c) < 0 ||
        (peer.pidfd >= 0 && watch(f, peer.pidfd, EPOLLIN | EPOLLET, c) < 0))
        shm_conn_drop(c);
    return true;
}

static void watch_listener(struct shm_fabric *f, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = f};

    epoll_ctl(f->epoll_fd, EPOLL_CTL_MOD, f->listener_fd, &event);
}

static void rest(struct shm_fabric *f, uint64_t rest_ns)
{
    struct itimerspec when = {.it_value = {.tv_nsec = (long)rest_ns}};

    if (timerfd_settime(f->rest_fd, 0, &when, NULL) == 0)
        watch_listener(f, 0);
}

static void end_rest(struct shm_fabric *f)
{
    uint64_t expirations;

    if (read(f->rest_fd, &expirations, sizeof expirations) == sizeof expirations)
        watch_listener(f, EPOLLIN);
}

static void accept_sockets(struct shm_fabric *f)
{
    bool are_known = true;

    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int socket;
        int r = shm_socket_accept(f->listener_fd, &socket);

        if (r == -EMFILE || r == -ENFILE)
            turn_away(f);
        if (r < 0 && r != -ECONNABORTED)
            return;
        if (r == 0)
            are_known &= admit(f, socket);
    }
    rest(f, are_known ? REST_NS : REST_OF_STRANGERS_NS);
}

void shm_lane_look(struct shm_fabric *f)
{
    struct epoll_event events[LOOKS_MAX];
    int n = epoll_wait(f->epoll_fd, events, LOOKS_MAX, 0);

    f->polls_since_sockets = 0;
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == f)
            accept_sockets(f);
        else if (events[i].data.ptr == &f->rest_fd)
            end_rest(f);
        else if (events[i].data.ptr)
            shm_conn_look(events[i].data.ptr);
        /* else an eventfd, never read: the worker could have made that block (S4); or the mapper's
         */
    }
}

/* Whole before a lane touches it, and mapped: whoever connects has populated it (S14). */
static int map_whole(struct shm_conn *c, int fd, uint64_t bytes, void **ret_base)
{
    void *base;
    int r = shm_memory_map_guarded(fd, bytes, &c->is_poisoned, &base);

    if (r < 0)
        return r;
    bool fails = shm_absent_fail(base, bytes);
    if (shm_absent_fill(base, bytes, fails, fd, 0) < bytes) {
        shm_memory_unmap(base, bytes);
        return -EFAULT;
    }
    *ret_base = base;
    return 0;
}

static int map_hello(struct shm_conn *c, const int fds[2])
{
    void *rings, *bell;
    int r = map_whole(c, fds[0], sizeof(struct shm_rings), &rings);

    if (r < 0)
        return r;
    c->rings = rings;
    r = map_whole(c, fds[1], sizeof(struct shm_bell), &bell);
    if (r < 0)
        return r;
    c->peer_bell = bell;
    c->in.ring = &c->rings->to_lane;
    c->out.ring = &c->rings->to_worker;
    return 0;
}

static int read_hello(struct shm_conn *c)
{
    struct shm_packet hello;
    int fds[SHM_PACKET_FDS_MAX];
    size_t fds_count;
    int r = shm_packet_receive(c->socket, &hello, fds, &fds_count);

    if (r < 0)
        return r;
    if (hello.kind == SHM_PACKET_HELLO && fds_count == 2)
        r = map_hello(c, fds);
    else
        r = -EBADMSG;
    shm_fds_close(fds, fds_count);
    if (r < 0)
        return r;
    memcpy(c->ticket, hello.ticket, hello.ticket_bytes);
    c->ticket_bytes = hello.ticket_bytes;
    return 0;
}

void shm_lane_greet(struct shm_conn *c)
{
    int r = read_hello(c);

    if (r == -EAGAIN)
        return;
    if (r < 0) {
        send_refusal(c->socket, -r);
        shm_conn_drop(c);
        return;
    }
    shm_owner(c)->greetings--;
    c->state = SHM_ASKED;
}

int shm_lane_accept(struct fabric_conn *base, void *owner)
{
    struct shm_conn *c = shm_conn(base);
    struct shm_fabric *f = shm_owner(c);
    struct shm_packet accept = {.kind = SHM_PACKET_ACCEPT};

    if (c->state != SHM_ASKED)
        return -ECONNRESET;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = c->wake_fd < 0 ? -errno : watch(f, c->wake_fd, EPOLLIN | EPOLLET, NULL);
    if (r == 0)
        r = shm_packet_send(c->socket, &accept, (const int[]){c->wake_fd, f->bell_fd}, 2);
    if (r < 0) {
        shm_lane_refuse(base, -r);
        return r;
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
        send_refusal(c->socket, reason);
    shm_conn_drop(c);
}
