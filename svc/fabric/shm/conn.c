/* Life of a connection of fabric_shm: creation, checks, end, release. This code is the same for
 * lane and worker; struct shm_side contains the steps that differ. A connection ends once (S6). Its
 * memory is freed in the poll after its last event. */
#include "svc/fabric/shm/conn.h"

#include "svc/fabric/shm/map/lent.h"
#include "svc/fabric/shm/map/mapper.h"
#include "svc/fabric/shm/map/memory.h"
#include "svc/fabric/shm/map/warmth.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Number of packets that a peer can have in transit: LEND for each region, and BYE. */
#define FAREWELL_PACKETS_MAX (2 * FABRIC_REGIONS_MAX)

int shm_conn_create(struct shm_fabric *f, int socket, const struct shm_peer *peer,
                    enum shm_state state, struct shm_conn **ret_conn)
{
    struct shm_conn *c = calloc(1, sizeof *c);

    if (!c) {
        shm_fds_close((const int[]){socket, peer->pidfd}, 2);
        return -ENOMEM;
    }
    fabric_conn_init(&c->base, &f->base);
    c->state = state;
    c->socket = socket;
    c->wake_fd = c->fence_fd = -1;
    c->peer = *peer;
    c->messages_free = UINT64_MAX;
    snprintf(c->peer_text, sizeof c->peer_text, "pid %d uid %u", peer->pid, peer->uid);
    list_append(&f->conns, &c->link);
    fabric_turns_join(&f->turns, NULL, &c->scan_link);
    list_init(&c->news_link);
    *ret_conn = c;
    return 0;
}

static void conn_unmap(struct shm_conn *c)
{
    shm_owner(c)->side->let_go(c);
    shm_memory_unmap(c->rings, sizeof *c->rings);
    shm_memory_unmap(c->peer_bell, sizeof *c->peer_bell);
}

void shm_conn_close_fds(struct shm_conn *c)
{
    shm_fds_close((const int[]){c->socket, c->peer.pidfd, c->wake_fd, c->fence_fd}, 4);
}

void shm_conn_free(struct shm_conn *c)
{
    shm_conn_leave_group(c);
    shm_owner(c)->side->unwatch(c);
    shutdown(c->socket, SHUT_RDWR);
    shm_conn_close_fds(c);
    conn_unmap(c);
    list_remove(&c->link);
    list_remove(&c->news_link);
    free(c);
}

void shm_conn_send_bye(struct shm_conn *c, uint32_t reason)
{
    struct shm_packet bye = {.kind = SHM_PACKET_BYE, .word = reason};

    shm_packet_send(c->socket, &bye, NULL, 0);
}

/* Shuts the socket down. Closing is not enough, because a forked child of this process may also
 * have the socket. A lane shuts down its end only when it frees the connection, because until the
 * next poll the lane may still write through its mappings (S11). */
static void conn_say_goodbye(struct shm_conn *c, uint32_t reason)
{
    shm_conn_send_bye(c, reason);
    if (!shm_is_lane(c))
        shutdown(c->socket, SHUT_RDWR);
    shm_owner(c)->side->unwatch(c);
}

void shm_conn_end(struct shm_conn *c, int error, uint32_t reason)
{
    if (c->state >= SHM_ENDED)
        return;
    conn_say_goodbye(c, reason);
    c->state = SHM_ENDED;
    c->error = error;
    c->reason = reason;
}

void shm_conn_leave_group(struct shm_conn *c)
{
    fabric_turns_leave(c->group ? &c->group->turns[FABRIC_TURN_SHM] : NULL, &c->scan_link);
    for (uint32_t id = 0; id < FABRIC_REGIONS_MAX; id++)
        if (c->regions[id])
            shm_warmth_charge(c->regions[id]->warmth, c->group);
    shm_toll_leave(shm_mapper_tolls(shm_owner(c)->mapper), c->group);
    c->group = NULL;
}

void shm_conn_drop(struct shm_conn *c)
{
    if (c->state == SHM_GONE)
        return;
    if (c->state < SHM_ENDED)
        conn_say_goodbye(c, 0);
    c->state = SHM_GONE;
    shm_conn_leave_group(c);
    list_remove(&c->link);
    list_append(&shm_owner(c)->gone, &c->link);
}

void shm_conn_note(struct shm_conn *c)
{
    if (list_is_empty(&c->news_link))
        list_append(&shm_owner(c)->news, &c->news_link);
}

/* Ends the connection with the reason in the BYE of the peer. If the peer has sent no BYE, its
 * process has died. */
void shm_conn_farewell(struct shm_conn *c)
{
    for (int i = 0; i < FAREWELL_PACKETS_MAX; i++) {
        int fds[SHM_PACKET_FDS_MAX];
        struct shm_packet packet;
        size_t fds_count;
        int error = shm_packet_receive(c->socket, &packet, fds, &fds_count);

        if (error < 0)
            break;
        shm_fds_close(fds, fds_count);
        if (packet.kind == SHM_PACKET_BYE) {
            shm_conn_end(c, packet.word == 0 ? 0 : -ECONNRESET, packet.word);
            return;
        }
    }
    shm_conn_end(c, -ECONNRESET, 0);
}

/* Called when the peer's socket is closed or its process is dead. Records that are in the ring now
 * are still reported. Later records are ignored, because a child of the peer may have written
 * them. */
static void conn_hang_up(struct shm_conn *c)
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

/* Kills the peer's process. In a test, lane and worker may share a process, which must not be
 * killed. */
static void conn_kill_peer(const struct shm_conn *c)
{
    if (c->peer.pidfd >= 0 && c->peer.pid != getpid())
        (void)syscall(SYS_pidfd_send_signal, c->peer.pidfd, SIGKILL, NULL, 0);
}

static void conn_look_behind_fence(struct shm_conn *c, bool has_gone, bool is_late)
{
    if (has_gone)
        shm_conn_end(c, 0, 0);
    else if (is_late)
        conn_kill_peer(c);
}

/* Returns whether the next packet must be BYE. On an open connection a lane sends no other
 * packet. */
static bool conn_expects_bye(const struct shm_conn *c)
{
    return c->state == SHM_OPEN && !shm_is_lane(c);
}

static bool conn_is_shaking_hands(const struct shm_conn *c)
{
    return c->state == SHM_GREETING || c->state == SHM_ASKING;
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
    bool says_bye = conn_expects_bye(c) && (sources[0].revents & POLLIN);
    if (c->state == SHM_FENCING) {
        conn_look_behind_fence(c, has_gone, sources[2].revents & POLLIN);
        return;
    }
    if (conn_is_shaking_hands(c) && (sources[0].revents & POLLIN)) {
        shm_owner(c)->side->hear(c);
        if (c->state == SHM_OPEN)
            return shm_conn_look(c); /* BYE may directly follow the lane's answer */
    }
    if (c->state < SHM_ENDED && (has_gone || says_bye))
        conn_hang_up(c);
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
