/* The life of a connection of fabric_shm, the same for lane and worker: made, looked at, ended,
 * freed. A connection ends once (S6); its memory stays until the poll after its last event. */
#include "svc/wire/shm_conn.h"

#include "svc/wire/shm_memory.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
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
    c->wake_fd = -1;
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
}

static void unmap(struct shm_conn *c)
{
    for (uint32_t id = 0; id < FABRIC_REGIONS_MAX; id++)
        shm_memory_unmap(c->regions[id].base, c->regions[id].bytes);
    shm_memory_unmap(c->rings, sizeof *c->rings);
    shm_memory_unmap(c->peer_bell, sizeof *c->peer_bell);
}

void shm_conn_close_fds(struct shm_conn *c)
{
    shm_fds_close((const int[]){c->socket, c->peer.pidfd, c->wake_fd}, 3);
}

void shm_conn_free(struct shm_conn *c)
{
    unwatch(c);
    shm_conn_close_fds(c);
    unmap(c);
    list_remove(&c->link);
    list_remove(&c->news_link);
    free(c);
}

/* Shut down, not only closed: a forked child of ours may hold the socket as well. */
static void say_goodbye(struct shm_conn *c, uint32_t reason)
{
    struct shm_packet bye = {.kind = SHM_PACKET_BYE, .word = reason};

    shm_packet_send(c->socket, &bye, NULL, 0);
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

void shm_conn_look(struct shm_conn *c)
{
    struct pollfd sources[] = {
        {.fd = c->socket, .events = POLLIN | POLLRDHUP},
        {.fd = c->peer.pidfd, .events = POLLIN},
    };

    c->socket_full = false;
    if (c->state >= SHM_ENDED || poll(sources, 2, 0) <= 0)
        return;
    if (c->state == SHM_GREETING && (sources[0].revents & POLLIN))
        shm_lane_greet(c);
    else if (c->state == SHM_ASKING && (sources[0].revents & POLLIN))
        shm_worker_answer(c);
    if (c->state < SHM_ENDED &&
        ((sources[0].revents & (POLLHUP | POLLRDHUP | POLLERR)) || sources[1].revents))
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
