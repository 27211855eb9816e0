/* Control connections: accepts them, checks the first message, passes messages to handlers, and
 * closes connections. Owns struct peer. A peer is freed by its own timer, never by a handler, so a
 * handler may close any peer at any time (K5). Messages are read in the peer's turn (K99). */
#include "svc/coordinator/peer/peer.h"

#include "svc/base/hash.h"
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/order/leaving.h"
#include "svc/coordinator/peer/frames.h"
#include "svc/coordinator/peer/visitors.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/iteration_hold.h"
#include "svc/coordinator/snapshot/snapshot.h"
#include "svc/coordinator/stopping.h"
#include "svc/coordinator/timeline/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define GREET_DEADLINE_NS (5 * NS_PER_S) /* time from the first turn to the Hello */
#define CLOSE_DEADLINE_NS NS_PER_S       /* time in which the peer may read its last messages */
/* Maximum number of messages in a turn, even if the turn has not reached TURN_NS. */
#define MESSAGES_IN_A_ROW 64
#define TURN_NS (250 * NS_PER_US)
#define ACCEPTS_A_TURN 4
/* Maximum number of open requests of an operator's connection. */
#define REQUESTS_AT_A_TIME 4
/* While more bytes than this are queued for a peer, its messages are not read. */
#define BACKLOG_BYTES_READ_ON (256u << 10)

bool text_is_plain(const char *text) { return !strchr(text, '"') && text_is_harmless(text); }

bool text_is_node(const char *text) { return strlen(text) <= HOST_NAME_MAX && text_is_plain(text); }

static void peer_destroy(struct peer *p)
{
    if (p->aggregator)
        p->aggregator->peer = NULL;
    if (p->session)
        p->session->peer = NULL;
    if (p->tenant && !p->is_local)
        p->tenant->connections--;
    p->service->door->outer_descriptors -= !p->is_local;
    visitors_forget(p);
    p->service->on->peer->ends(p);
    timer_stop(&p->timer);
    frames_forget(p);
    turn_fini(&p->service->loop->turns, &p->turn);
    loop_unwatch(p->service->loop, &p->source);
    list_remove(&p->link);
    channel_destroy(p->channel);
    free(p);
}

/* Frees the peer, then reports the end of the connection to the aggregator or session. */
static void peer_gone(struct peer *p)
{
    struct aggregator *aggregator = p->aggregator;
    struct session *session = p->session;
    enum channel_end end = channel_how_ended(p->channel);
    struct service *s = p->service;
    peer_destroy(p);
    s->on->peer->connection_ended(aggregator, session, end);
}

/* Handles a missed deadline. If the peer is queued for its turn, the coordinator itself causes the
 * delay, so the deadline is extended. */
static void peer_expired(struct timer *timer)
{
    struct peer *p = container_of(timer, struct peer, timer);
    bool is_awaited = p->state == PEER_GREETING || p->state == PEER_OPEN;
    if (is_awaited && turn_waits(&p->turn))
        return timer_start(p->service->loop, timer, clock_now_ns() + GREET_DEADLINE_NS);
    if (p->state == PEER_GREETING)
        log_warn_rarely("%s sent no Hello in time; the connection was closed",
                        channel_peer(p->channel));
    else if (p->state == PEER_OPEN)
        log_warn("%s: the rest of a message of %u bytes did not arrive within %d s; the connection "
                 "was closed",
                 channel_peer(p->channel), p->frame_bytes, (int)(FRAME_DEADLINE_NS / NS_PER_S));
    peer_gone(p);
}

void peer_break(struct peer *p)
{
    if (p->state == PEER_BROKEN)
        return;
    p->state = PEER_BROKEN;
    timer_start(p->service->loop, &p->timer, 0);
}

void peer_finish(struct peer *p)
{
    if (p->state == PEER_BROKEN)
        return;
    p->state = PEER_CLOSING;
    timer_start(p->service->loop, &p->timer, clock_now_ns() + CLOSE_DEADLINE_NS);
    if (!(channel_events(p->channel) & EPOLLOUT))
        shutdown(channel_fd(p->channel), SHUT_WR);
}

/* Watches the descriptor for input, unless the peer is queued for a turn or reading is paused. If
 * the connection of a queued peer has ended, its descriptor is not watched at all, because epoll
 * would report the end again and again. */
static void update_events(struct peer *p)
{
    uint32_t events = channel_events(p->channel);
    if (turn_waits(&p->turn) && p->has_hung_up)
        return;
    if (turn_waits(&p->turn) || p->is_held)
        events &= ~(uint32_t)EPOLLIN;
    loop_rewatch_once(p->service->loop, &p->source, events);
}

void peer_send(struct peer *p, const envelope *message)
{
    if (p->state == PEER_BROKEN || p->state == PEER_CLOSING)
        return;
    int error = channel_send(p->channel, message);
    if (error < 0) {
        if (error != -ECONNRESET)
            log_warn("%s: a message could not be sent: %s; the connection was closed",
                     channel_peer(p->channel), err_text(error));
        peer_break(p);
        return;
    }
    update_events(p);
}

void peer_reply_done(struct peer *p, uint64_t id) { peer_reply(p, id, DONE, done); }

void peer_fail(struct peer *p, uint64_t id, int code, const char *format, ...)
{
    char text[2 * ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    log_debug("%s: request refused: %s", channel_peer(p->channel), text);
    peer_reply(p, id, FAILURE, failure, .code = code, .text = text);
}

void peer_fail_memory(struct peer *p, uint64_t id)
{
    peer_fail(p, id, -ENOMEM,
              "gradpool serve has no memory for the answer to a request; raise its memory limit");
}

/* Returns whether the connection needs a key. Connections over the Unix socket, and over TCP from
 * this host, need no key. With --insecure, TCP connections from other hosts need no key either
 * (K10). */
static bool needs_key(const struct peer *p)
{
    const struct coordinator_options *o = p->service->options;
    if (p->is_local)
        return false;
    return o->require_tls || (!o->insecure && !channel_is_loopback(p->channel));
}

static void turn_down(struct peer *p, uint64_t request, int code, const char *text)
{
    log_warn("%s: request refused: %s", channel_peer(p->channel), text);
    peer_fail(p, request, code, "%s", text);
    peer_finish(p);
}

static bool count_in(struct peer *p, uint64_t request, struct tenant *tenant)
{
    struct err err;
    int error = p->is_local ? 0 : visitors_admit(p, tenant, &err);
    if (error < 0) {
        peer_fail(p, request, error, "%s", err.text);
        peer_finish(p);
        return false;
    }
    p->tenant = tenant;
    tenant->connections += !p->is_local;
    return true;
}

/* Moves the connection to its party. An operator on the Unix socket stays in DOOR_OPERATORS. */
static void choose_party(struct peer *p, WIRE(Role) role)
{
    struct service *s = p->service;
    if (role == GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR)
        turn_join(&s->loop->turns, &p->turn, &s->door->parties[DOOR_AGGREGATORS]);
    else if (!p->is_local || role == GRADPOOL__WIRE__ROLE__ROLE_CLIENT)
        turn_join(&s->loop->turns, &p->turn, &p->tenant->party);
}

/* Determines the tenant of the connection. Returns false if the connection is refused; the failure
 * was then sent to the peer. */
static bool admit(struct peer *p, uint64_t request, const WIRE(Hello) * hello)
{
    const char *name = channel_tenant(p->channel);
    if (!name && needs_key(p))
        return turn_down(p, request, -ENOKEY,
                         "this endpoint needs a key: set GRADPOOL_KEY_FILE to a file with one "
                         "that its operator made with `gradpool tenant add`"),
               false;
    struct tenant *tenant = name ? tenants_find(p->service, name) : tenants_local(p->service);
    if (!tenant || tenant->is_revoked) /* the key was revoked during the handshake */
        return turn_down(p, request, -EKEYREVOKED, "the tenant's key was revoked"), false;
    p->is_operator = p->is_local || (name && tenant->is_operator);
    if (hello->role == GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR && !p->is_operator)
        return turn_down(p, request, -EPERM,
                         "an aggregator sees the gradients of all tenants, so it needs the Unix "
                         "socket of the service (--join STATE_DIR/control.sock) or the key of an "
                         "operator (gradpool tenant add NAME --operator)"),
               false;
    return count_in(p, request, tenant);
}

bool peer_is_operator(struct peer *p, uint64_t request, const char *what)
{
    if (!p->is_operator)
        peer_fail(p, request, -EPERM,
                  "%s is for operators: it needs the Unix socket of the service (--endpoint "
                  "unix:STATE_DIR/control.sock, as the user of gradpool serve or in the socket's "
                  "group) or the key of an operator (gradpool tenant add NAME --operator)",
                  what);
    return p->is_operator;
}

/* Adds to the Welcome the other address of the service: the Unix socket, or the TCP address. An
 * operator's command compares both before it connects to the Unix socket, because the socket may
 * belong to another service. */
static void name_doors(const struct peer *p, char *listen, size_t listen_bytes,
                       WIRE(Welcome) * welcome)
{
    const struct service *s = p->service;
    if (p->is_local)
        welcome->listen = (char *)endpoint_format(&s->door->tcp->endpoint, listen, listen_bytes);
    else if (!channel_tenant(p->channel) && channel_is_loopback(p->channel))
        welcome->socket = (char *)s->door->local->endpoint.host;
}

static void greet(struct peer *p, const envelope *message)
{
    if (message->body_case != BODY(HELLO)) {
        peer_fail(p, message->id, -EPROTO, "the first message of a connection must be Hello");
        return peer_finish(p);
    }
    const WIRE(Hello) *hello = message->hello;
    if (hello->version != CHANNEL_VERSION) {
        log_warn_rarely(
            "%s (%s) speaks protocol version %u, expected %d; the connection was closed",
            channel_peer(p->channel), hello->program, hello->version, CHANNEL_VERSION);
        peer_fail(p, message->id, -EPROTO,
                  "gradpool serve speaks protocol version %d, this client speaks %u: use programs "
                  "of one version",
                  CHANNEL_VERSION, hello->version);
        return peer_finish(p);
    }
    if (!admit(p, message->id, hello))
        return;
    channel_hold_frames(p->channel, FRAME_BYTES_FREE);
    char listen[sizeof p->service->door->tcp->endpoint.host + 32];
    WIRE(Welcome)
    welcome = MESSAGE_PART(Welcome, welcome, .version = CHANNEL_VERSION,
                           .incarnation = p->service->numbers->incarnation,
                           .program = (char *)"gradpool serve " GRADPOOL_VERSION);
    if (hello->role == GRADPOOL__WIRE__ROLE__ROLE_OPERATOR)
        name_doors(p, listen, sizeof listen, &welcome);
    choose_party(p, hello->role);
    p->role = hello->role;
    p->state = PEER_OPEN;
    timer_stop(&p->timer);
    p->service->on->peer->opened(p);
    peer_send(p, &ENVELOPE(message->id, WELCOME, welcome, &welcome));
}

static void handle_message(struct peer *p, envelope *message)
{
    if (p->state == PEER_GREETING)
        greet(p, message);
    else if (p->state == PEER_OPEN)
        p->service->on->peer->message_came(p, message);
    gradpool__wire__envelope__free_unpacked(message, NULL);
    visitors_heard(p);
}

/* Returns whether reading has to pause: too many requests are open, too many answers are queued, or
 * memory for a long message is missing. Further requests then wait in the kernel. */
static bool is_held_back(const struct peer *p)
{
    if (p->has_hung_up || p->state != PEER_OPEN || p->aggregator)
        return false;
    return (p->role == GRADPOOL__WIRE__ROLE__ROLE_OPERATOR && p->waits >= REQUESTS_AT_A_TIME) ||
           channel_backlog(p->channel) > BACKLOG_BYTES_READ_ON || frames_waits(p);
}

void peer_wait_for_turn(struct peer *p)
{
    turn_wait(&p->service->loop->turns, &p->turn);
    update_events(p);
}

void peer_check_held(struct peer *p)
{
    if (!p->is_held || is_held_back(p))
        return;
    p->is_held = false;
    peer_wait_for_turn(p);
}

/* Returns whether reading of a long message may continue at once. Called when the channel has no
 * complete message. */
static bool goes_on(struct peer *p)
{
    int admitted = frames_admit(p);
    if (admitted >= 0 && channel_has_more(p->channel))
        return true;
    if (admitted < 0 && p->has_hung_up)
        peer_break(p); /* the rest of the message will never arrive */
    p->is_held = admitted < 0;
    return admitted > 0;
}

/* Handles messages during one turn. Returns whether the channel may have buffered more messages,
 * which epoll does not report. */
static bool receive(struct peer *p)
{
    uint64_t began_ns = clock_now_ns();
    for (int i = 0; i < MESSAGES_IN_A_ROW && clock_now_ns() < began_ns + TURN_NS; i++) {
        envelope *message;
        if (p->service->on->peer->answer_is_ready(p))
            continue;
        p->is_held = is_held_back(p);
        if (p->is_held)
            return false;
        int error = channel_receive(p->channel, &message);
        if (error == -EAGAIN)
            return goes_on(p);
        if (error < 0) {
            if (error != -ECONNRESET)
                log_warn("%s; closed", channel_failure(p->channel));
            peer_break(p);
            return false;
        }
        frames_received(p);
        handle_message(p, message);
        if (p->state == PEER_BROKEN)
            return false;
    }
    return true;
}

void peer_read_out(struct peer *p)
{
    p->process_ended = true;
    p->has_hung_up = true;
    peer_wait_for_turn(p);
}

static void take_turn(struct turn *turn)
{
    struct peer *p = container_of(turn, struct peer, turn);
    if (p->state == PEER_BROKEN)
        return;
    if (p->state == PEER_GREETING && !p->was_seen)
        timer_start(p->service->loop, &p->timer, clock_now_ns() + GREET_DEADLINE_NS);
    p->was_seen = true;
    bool is_behind = receive(p);
    if (is_behind && p->state == PEER_OPEN)
        turn_wait(&p->service->loop->turns, turn);
    else if (p->process_ended && p->session)
        p->service->on->peer->is_read_out(p);
    if (p->state != PEER_BROKEN)
        update_events(p);
}

static void peer_ready(struct source *source, uint32_t events)
{
    struct peer *p = container_of(source, struct peer, source);
    if (p->state == PEER_BROKEN)
        return;
    if ((events & EPOLLOUT) && channel_flush(p->channel) < 0)
        return peer_break(p);
    if (p->state == PEER_CLOSING && !(channel_events(p->channel) & EPOLLOUT))
        shutdown(channel_fd(p->channel), SHUT_WR);
    p->has_hung_up |= (events & (EPOLLHUP | EPOLLERR)) != 0;
    if (events & ~(uint32_t)EPOLLOUT)
        turn_wait(&p->service->loop->turns, &p->turn);
    peer_check_held(p);
    update_events(p);
}

/* Returns the party of an unidentified peer, chosen by its address. So many connections from one
 * address do not delay other addresses. */
static struct party *party_of_stranger(struct peer *p)
{
    const char *text = channel_peer(p->channel), *port = strrchr(text, ':');
    uint32_t hash = hash_bytes(text, port ? (size_t)(port - text) : strlen(text));
    return &p->service->door->parties[DOOR_STRANGERS + hash % STRANGER_PARTIES];
}

int peer_accept(struct service *s, int fd)
{
    int pid;
    uint32_t uid;
    struct peer *p = calloc(1, sizeof *p);
    if (!p) {
        close(fd);
        return -ENOMEM;
    }
    int error = channel_create(fd, &p->channel);
    if (error < 0) {
        close(fd);
        free(p);
        return error;
    }
    channel_accept_keys(p->channel, tenants_find_key, s);
    p->service = s;
    p->source = (struct source){.fd = channel_fd(p->channel), .ready = peer_ready};
    p->state = PEER_GREETING;
    p->is_local = channel_credentials(p->channel, &pid, &uid) == 0;
    list_init(&p->visit);
    list_init(&p->frame_link);
    list_init(&p->own_waits);
    turn_init(&p->turn, p->is_local ? &s->door->parties[DOOR_OPERATORS] : party_of_stranger(p),
              take_turn);
    timer_init(&p->timer, peer_expired);
    timer_start(s->loop, &p->timer, clock_now_ns() + GREET_DEADLINE_NS);
    list_append(&s->door->peers, &p->link);
    error = loop_watch(s->loop, &p->source, EPOLLIN);
    if (error == 0 && !p->is_local && !visitors_make_room(s, p))
        error = -EMFILE;
    s->door->outer_descriptors += !p->is_local;
    if (error < 0)
        peer_destroy(p);
    return error;
}

/* Refuses a connection because no descriptor is free: closes the reserved descriptor, accepts the
 * connection, and closes the connection. A connection that is not accepted would wake the event
 * loop again and again. */
static void turn_away(struct service *s, int listening_fd)
{
    log_warn_rarely(
        "gradpool serve has no free file descriptor, and refused a connection; raise ulimit -n");
    close(s->door->spare_fd);
    int fd = accept4(listening_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    s->door->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool accept_one(struct listener *l)
{
    int fd = accept4(l->source.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            turn_away(l->service, l->source.fd);
        return errno == ECONNABORTED;
    }
    int error = peer_accept(l->service, fd);
    if (error < 0)
        log_warn_rarely("gradpool serve refused a connection: %s; raise ulimit -n",
                        err_text(error));
    return true;
}

static void accept_in_turn(struct turn *turn)
{
    struct listener *l = container_of(turn, struct listener, turn);
    for (int i = 0; i < ACCEPTS_A_TURN && accept_one(l); i++)
        ;
    loop_rewatch_once(l->service->loop, &l->source, EPOLLIN);
}

/* Connections to the Unix socket are accepted at once, without a turn, because operators use
 * them. */
static void listener_ready(struct source *source, uint32_t events)
{
    struct listener *l = container_of(source, struct listener, source);
    if (l->endpoint.is_unix)
        accept_one(l);
    else
        turn_wait(&l->service->loop->turns, &l->turn);
}

int listener_open(struct service *s, struct listener *l, const char *interface_name,
                  struct err *err)
{
    int fd;
    int error = endpoint_listen(&l->endpoint, interface_name, &fd, err);
    if (error < 0)
        return error;
    l->service = s;
    l->source = (struct source){.fd = fd, .ready = listener_ready};
    turn_init(&l->turn, &s->door->parties[DOOR_OTHERS], accept_in_turn);
    error = loop_watch(s->loop, &l->source, EPOLLIN | (l->endpoint.is_unix ? 0 : EPOLLONESHOT));
    return error < 0
               ? err_set(err, error, "gradpool serve cannot watch a socket: %s", err_text(error))
               : 0;
}

void listener_close(struct listener *l)
{
    if (l->source.fd < 0)
        return;
    loop_unwatch(l->service->loop, &l->source);
    turn_fini(&l->service->loop->turns, &l->turn);
    close(l->source.fd);
    l->source.fd = -1;
    if (l->endpoint.is_unix)
        unlink(l->endpoint.host);
}

void peers_destroy(struct service *s)
{
    list_for_each_safe_entry (struct peer, p, &s->door->peers, link)
        peer_destroy(p);
}
