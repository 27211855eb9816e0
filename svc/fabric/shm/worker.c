/* The worker's end of fabric_shm: creates the shared memory, connects, receives the lane's answer,
 * and waits for the lane's end before it closes (S11). */
#include "svc/fabric/shm/worker.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/fabric/shm/map/memory.h"
#include "svc/fabric/shm/peer/watch.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

/* --- connecting ------------------------------------------------------------------------------ */

static int worker_say_hello(struct shm_conn *c, int rings_fd, const void *ticket,
                            size_t ticket_bytes)
{
    struct shm_packet hello = {.kind = SHM_PACKET_HELLO, .ticket_bytes = (uint16_t)ticket_bytes};

    if (ticket_bytes > 0)
        memcpy(hello.ticket, ticket, ticket_bytes);
    int error =
        shm_packet_send(c->socket, &hello, (const int[]){rings_fd, shm_owner(c)->bell_fd}, 2);
    /* If the lane has already refused the connection, the packet with its reason has arrived, and
     * is read later like any other answer. */
    return error == -ECONNRESET ? 0 : error;
}

static int worker_make_rings(struct shm_conn *c, int *ret_fd)
{
    void *memory;
    int error = shm_memory_create("gradpool-rings", sizeof(struct shm_rings), ret_fd, &memory);

    if (error < 0)
        return error;
    c->rings = memory;
    c->in.ring = &c->rings->to_worker;
    c->out.ring = &c->rings->to_lane;
    return 0;
}

static int worker_begin(struct shm_conn *c, const void *ticket, size_t ticket_bytes)
{
    struct shm_watch *w = shm_owner(c)->watch;
    _cleanup_fd_ int rings_fd = -1;
    int error = worker_make_rings(c, &rings_fd);

    if (error == 0)
        /* checks that the descriptors in the lane's answer could be received */
        error = shm_packet_has_room(c->socket);
    if (error == 0)
        error = worker_say_hello(c, rings_fd, ticket, ticket_bytes);
    if (error == 0)
        error = shm_watch_add(w, c->socket);
    if (error == 0)
        error = shm_watch_add(w, c->peer.pidfd);
    return error;
}

/* Connects a socket to the lane, and returns the process that listens there. */
static int worker_reach(const char *address, int *ret_socket, struct shm_peer *ret_peer)
{
    _cleanup_fd_ int socket = -1;
    int error = shm_socket_connect(address, &socket);

    if (error == 0)
        error = shm_socket_peer(socket, ret_peer);
    if (error == 0)
        *ret_socket = take_fd(&socket);
    /* the listener has ended between the two calls */
    return error == -ENOTCONN ? -ECONNREFUSED : error;
}

int shm_worker_connect(struct fabric *base, const char *address, const void *ticket,
                       size_t ticket_bytes, void *owner, struct fabric_conn **ret_conn)
{
    struct shm_fabric *f = shm_fabric(base);
    struct shm_peer peer;
    struct shm_conn *c;
    int socket = -1;

    if (f->lane)
        return -EINVAL;
    int error =
        worker_reach(address, &socket, &peer) ?: shm_conn_create(f, socket, &peer, SHM_ASKING, &c);
    if (error < 0)
        return error;
    if (!f->watch)
        error = shm_watch_create(f->bell, &f->watch);
    if (error == 0)
        error = worker_begin(c, ticket, ticket_bytes);
    if (error < 0) {
        shm_conn_free(c);
        return error;
    }
    c->owner = owner;
    *ret_conn = &c->base;
    return 0;
}

void shm_worker_look(struct shm_fabric *f)
{
    if (!f->watch || !shm_watch_take_news(f->watch))
        return;
    list_for_each_safe (node, &f->conns)
        shm_conn_look(list_entry(node, struct shm_conn, link));
}

/* --- the lane's answer ----------------------------------------------------------------------- */

/* Opens the connection. The lane's bell is mapped read-only (S4). */
static int worker_open_conn(struct shm_conn *c, const int *fds, size_t fds_count)
{
    void *bell;

    if (fds_count != 2)
        return -EBADMSG;
    int error = shm_memory_map_to_read(fds[1], sizeof(struct shm_bell), &bell);
    if (error < 0)
        return error;
    c->peer_bell = bell;
    c->wake_fd = fds[0];
    close(fds[1]);
    c->state = SHM_OPEN;
    c->open_due = true;
    return 0;
}

static void worker_take_answer(struct shm_conn *c)
{
    struct shm_packet answer;
    int fds[SHM_PACKET_FDS_MAX];
    size_t fds_count;
    int error = shm_packet_receive(c->socket, &answer, fds, &fds_count);

    if (error == -EAGAIN || error == -EPIPE)
        /* without an answer nothing is done here: shm_conn_look() handles a closed socket */
        return;
    if (error == 0 && answer.kind == SHM_PACKET_ACCEPT) {
        error = worker_open_conn(c, fds, fds_count);
        if (error == 0)
            return;
    }
    if (error == 0)
        shm_fds_close(fds, fds_count);
    if (error == 0 && answer.kind == SHM_PACKET_REFUSE)
        shm_conn_end(c, -ECONNREFUSED, answer.word);
    else
        shm_conn_end(c, -ECONNRESET, error == 0 ? answer.word : (uint32_t)-error);
}

static void worker_unwatch(struct shm_conn *c)
{
    struct shm_watch *w = shm_owner(c)->watch;

    if (!w)
        return;
    shm_watch_remove(w, c->socket);
    shm_watch_remove(w, c->peer.pidfd);
    shm_watch_remove(w, c->fence_fd);
}

/* Does nothing: a lane lends no regions, so no region has to be unmapped. */
static void worker_let_go(struct shm_conn *c) { (void)c; }

const struct shm_side shm_worker_side = {
    .unwatch = worker_unwatch,
    .hear = worker_take_answer,
    .let_go = worker_let_go,
};

/* --- leaving --------------------------------------------------------------------------------- */

/* Ends the connection and waits for the lane, even if the lane has sent BYE. The wait ends only
 * when the lane has closed its end of the socket, or has died (S11). */
void shm_worker_leave(struct fabric_conn *base)
{
    struct shm_conn *c = shm_conn(base);

    if (c->state == SHM_FENCING)
        return;
    if (c->state != SHM_OPEN) {
        shm_conn_end(c, 0, 0);
        return;
    }
    shm_conn_send_bye(c, 0);
    shutdown(c->socket, SHUT_WR);
    c->state = SHM_FENCING;
    shm_conn_look(c);
}

/* If no timer can be created, the worker waits for the lane's end without a limit. */
static void worker_start_fence_timer(struct shm_conn *c)
{
    struct itimerspec when = {.it_value.tv_nsec = FABRIC_FENCE_NS};
    struct shm_watch *w = shm_owner(c)->watch;

    c->fence_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (c->fence_fd < 0 || !w || shm_watch_add(w, c->fence_fd) < 0)
        return;
    timerfd_settime(c->fence_fd, 0, &when, NULL);
}

void shm_worker_fence(struct fabric_conn *base)
{
    struct shm_conn *c = shm_conn(base);

    shm_worker_leave(base);
    if (c->state == SHM_FENCING && c->fence_fd < 0)
        worker_start_fence_timer(c);
}
