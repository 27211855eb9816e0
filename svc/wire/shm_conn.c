/* The life of a connection of fabric_shm, the same for lane and worker: made, looked at, ended,
 * freed. A connection ends once (S6); its memory stays until the poll after its last event. */
#include "svc/wire/shm_conn.h"

#include "svc/base/clock.h"
#include "svc/wire/shm_memory.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A peer can have this many packets under way: one LEND a region, and a BYE. */
#define FAREWELL_PACKETS_MAX (2 * FABRIC_REGIONS_MAX)

int shm_conn_create(struct shm_fabric *f, int socket, const struct shm_peer *peer,
                    enum shm_state state, struct shm_conn **ret_conn)
{
    struct shm_conn *c = calloc(1, sizeof *c);

    if (!c) {
        shm_fds_close((const int[]){socket, peer->pidfd}, 2);
        return -ENOMEM;
    }
    c->base.fabric = &f->base;
    c->state = state;
    c->socket = socket;
    c->wake_fd = c->fence_fd = -1;
    c->peer = *peer;
    c->messages_free = UINT64_MAX;
    snprintf(c->peer_text, sizeof c->peer_text, "pid %d uid %u", peer->pid, peer->uid);
    list_append(&f->conns, &c->link);
    list_init(&c->news_link);
    *ret_conn = c;
    return 0;
}

/* Registrations are taken back by hand: a descriptor that somebody else still holds (a forked
 * child, the worker its eventfd) would stay in our epoll set when we close it. */
static void unwatch(struct shm_conn *c)
{
    struct shm_fabric *f = shm_owner(c);

    if (f->is_lane) {
        shm_lane_unwatch(c);
        return;
    }
    shm_watch_remove(&f->watch, c->socket);
    shm_watch_remove(&f->watch, c->peer.pidfd);
    shm_watch_remove(&f->watch, c->fence_fd);
}

static void unmap(struct shm_conn *c)
{
    if (shm_owner(c)->is_lane)
        shm_lending_end(c);
    shm_memory_unmap(c->rings, sizeof *c->rings);
    shm_memory_unmap(c->peer_bell, sizeof *c->peer_bell);
}

void shm_conn_close_fds(struct shm_conn *c)
{
    shm_fds_close((const int[]){c->socket, c->peer.pidfd, c->wake_fd, c->fence_fd}, 4);
}

void shm_conn_free(struct shm_conn *c)
{
    unwatch(c);
    shutdown(c->socket, SHUT_RDWR);
    shm_conn_close_fds(c);
    unmap(c);
    list_remove(&c->link);
    list_remove(&c->news_link);
    free(c);
}

static void send_bye(struct shm_conn *c, uint32_t reason)
{
    struct shm_packet bye = {.kind = SHM_PACKET_BYE, .word = reason};

    shm_packet_send(c->socket, &bye, NULL, 0);
}

/* Shut down, not only closed: a forked child of ours may hold the socket as well. A lane's end goes
 * only when it is freed: until the next poll it may store through its mappings (S11). */
static void say_goodbye(struct shm_conn *c, uint32_t reason)
{
    send_bye(c, reason);
    if (!shm_owner(c)->is_lane)
        shutdown(c->socket, SHUT_RDWR);
    unwatch(c);
    if (c->state == SHM_GREETING)
        shm_owner(c)->greetings--;
}

void shm_conn_end(struct shm_conn *c, int error, uint32_t reason)
{
    if (c->state >= SHM_ENDED)
        return;
    say_goodbye(c, reason);
    c->state = SHM_ENDED;
    c->error = error;
    c->reason = reason;
}

/* Without a timer its end is waited for. */
static void start_timer(struct shm_conn *c)
{
    struct itimerspec when = {.it_value.tv_nsec = FABRIC_FENCE_NS};

    c->fence_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (c->fence_fd < 0 || shm_watch_add(&shm_owner(c)->watch, c->fence_fd) < 0)
        return;
    timerfd_settime(c->fence_fd, 0, &when, NULL);
}

/* Also where the lane has said BYE: its half of the socket, or its death, is what counts (S11). */
void shm_conn_leave(struct shm_conn *c)
{
    if (c->state == SHM_FENCING)
        return;
    if (c->state != SHM_OPEN) {
        shm_conn_end(c, 0, 0);
        return;
    }
    send_bye(c, 0);
    shutdown(c->socket, SHUT_WR);
    c->state = SHM_FENCING;
    shm_conn_look(c);
}

void shm_conn_fence(struct shm_conn *c)
{
    shm_conn_leave(c);
    if (c->state == SHM_FENCING && c->fence_fd < 0)
        start_timer(c);
}

void shm_conn_drop(struct shm_conn *c)
{
    if (c->state == SHM_GONE)
        return;
    if (c->state < SHM_ENDED)
        say_goodbye(c, 0);
    c->state = SHM_GONE;
    list_remove(&c->link);
    list_append(&shm_owner(c)->gone, &c->link);
}

void shm_conn_note(struct shm_conn *c)
{
    if (list_is_empty(&c->news_link))
        list_append(&shm_owner(c)->news, &c->news_link);
}

/* Why the peer has gone: what its BYE says, or death when there is none. */
void shm_conn_farewell(struct shm_conn *c)
{
    for (int i = 0; i < FAREWELL_PACKETS_MAX; i++) {
        int fds[SHM_PACKET_FDS_MAX];
        struct shm_packet packet;
        size_t fds_count;
        int r = shm_packet_receive(c->socket, &packet, fds, &fds_count);

        if (r < 0)
            break;
        shm_fds_close(fds, fds_count);
        if (packet.kind == SHM_PACKET_BYE) {
            shm_conn_end(c, packet.word == 0 ? 0 : -ECONNRESET, packet.word);
            return;
        }
    }
    shm_conn_end(c, -ECONNRESET, 0);
}

/* The peer's socket is closed or its process dead. What it has published until now is still
 * surfaced, and nothing that it publishes later (its children may share the memory). */
static void hang_up(struct shm_conn *c)
{
    if (c->hung_up)
        return;
    c->hung_up = true;
    if (c->state == SHM_OPEN)
        c->final_tail = atomic_load_explicit(&c->in.ring->tail, memory_order_acquire);
    else if (c->state == SHM_ASKING || c->is_surfaced)
        shm_conn_farewell(c);
    else
        shm_conn_drop(c);
}

/* Who shares a process with the lane (tests) knows that it is not stopped. */
static void kill_peer(const struct shm_conn *c)
{
    if (c->peer.pidfd >= 0 && c->peer.pid != getpid())
        (void)syscall(SYS_pidfd_send_signal, c->peer.pidfd, SIGKILL, NULL, 0);
}

static void look_behind_the_fence(struct shm_conn *c, bool has_gone, bool is_late)
{
    if (has_gone)
        shm_conn_end(c, 0, 0);
    else if (is_late)
        kill_peer(c);
}

/* All that a lane has to say on the socket then is BYE. */
static bool is_worker_open(const struct shm_conn *c)
{
    return c->state == SHM_OPEN && !shm_owner(c)->is_lane;
}

void shm_conn_look(struct shm_conn *c)
{
    struct pollfd sources[] = {
        {.fd = c->socket, .events = POLLIN | POLLRDHUP},
        {.fd = c->peer.pidfd, .events = POLLIN},
        {.fd = c->fence_fd, .events = POLLIN},
    };

    c->socket_full = false;
    if (c->state >= SHM_ENDED || poll(sources, 3, 0) <= 0)
        return;
    bool has_gone = (sources[0].revents & (POLLHUP | POLLRDHUP | POLLERR)) || sources[1].revents;
    bool says_bye = is_worker_open(c) && (sources[0].revents & POLLIN);
    if (c->state == SHM_FENCING) {
        look_behind_the_fence(c, has_gone, sources[2].revents & POLLIN);
        return;
    }
    if (c->state == SHM_GREETING && (sources[0].revents & POLLIN))
        shm_lane_greet(c);
    else if (c->state == SHM_ASKING && (sources[0].revents & POLLIN)) {
        shm_worker_answer(c);
        if (c->state == SHM_OPEN)
            return shm_conn_look(c); /* BYE may lie behind it */
    }
    if (c->state < SHM_ENDED && (has_gone || says_bye))
        hang_up(c);
}

bool shm_conn_has_room(struct shm_conn *c)
{
    bool room;

    if (c->state != SHM_OPEN || c->hung_up || c->socket_full || c->withdrawals != 0 ||
        c->completions_tail - c->completions_head == SHM_COMPLETIONS_MAX)
        return false;
    if (shm_producer_room(&c->out, &room) < 0) {
        shm_conn_end(c, -EBADMSG, EBADMSG);
        return false;
    }
    return room;
}
