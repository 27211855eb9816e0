/* Peer: the process at the other end of a control connection. */
#ifndef GRADPOOL_COORDINATOR_PEER_PEER_H
#define GRADPOOL_COORDINATOR_PEER_PEER_H

#include "svc/channel/channel.h"
#include "svc/coordinator/loop/loop.h"
#include "svc/endpoint/endpoint.h"

#define WIRE(type) Gradpool__Wire__##type
#define BODY(name) GRADPOOL__WIRE__ENVELOPE__BODY_##name
#define ENVELOPE_INIT GRADPOOL__WIRE__ENVELOPE__INIT

struct service;
struct session;
struct aggregator;
struct tenant;

enum peer_state {
    PEER_GREETING, /* the peer has not sent its Hello */
    PEER_OPEN,
    PEER_CLOSING, /* messages are no longer handled; the last ones are being sent */
    PEER_BROKEN,  /* the peer's timer will free the peer after the current handler */
};

struct peer {
    struct source source;
    struct list link;
    struct service *service;
    struct channel *channel;
    struct timer timer; /* deadline of the Hello, of a long message, or of the close */
    struct turn turn;
    enum peer_state state;
    WIRE(Role) role;
    bool is_local; /* the connection is over the Unix socket */
    /* the Unix socket is used, or the peer has an operator's key (K96) */
    bool is_operator;
    struct tenant *tenant; /* NULL before the Hello */
    struct session *session;
    /* Deadline of a join that waits until a former job has ended (K58); 0: no join waits. */
    uint64_t join_by_ns;
    struct aggregator *aggregator;
    /* node in door.visitors while the peer has neither a job nor an aggregator (visitors.c) */
    struct list visit;
    uint64_t heard_ns;
    /* Time of the next check of the peer's host (session/host_silence.c); 0: not checked. */
    uint64_t look_ns;
    uint32_t silent_looks; /* number of consecutive checks in which the host had sent nothing */
    bool was_seen;         /* the peer has had a turn in the event loop */
    bool is_held;          /* reading is suspended (K101) */
    /* the connection has ended; the remaining messages are read without a pause */
    bool has_hung_up;
    /* the process of the session has ended; the session is lost when all messages of the process
     * have been handled */
    bool process_ended;
    struct list own_waits;  /* unanswered requests of the peer */
    uint32_t waits;         /* number of entries of own_waits */
    uint32_t frame_bytes;   /* bytes reserved for a long message; 0: none */
    struct list frame_link; /* node in door.frames_waiting (frames.c) */
};

struct listener {
    struct source source;
    /* turn of the listener; over TCP, the turn's party is charged for accepting connections */
    struct turn turn;
    struct service *service;
    struct endpoint endpoint;
};

int listener_open(struct service *s, struct listener *l, const char *interface_name,
                  struct err *err);
void listener_close(struct listener *l);

/* Creates a peer for the connection `fd`. `fd` is owned by this function, even if it fails. */
int peer_accept(struct service *s, int fd);
/* Sends a message. After an error the peer is closed, so callers need not check. */
void peer_send(struct peer *p, const envelope *message);
/* Sends a message, for example peer_reply(p, id, LATE_REPLY, late_reply, .text = text). `id` is the
 * id of the request that is answered; 0: no answer. */
#define peer_reply(p, id, KIND, member, ...) peer_send(p, &MESSAGE(id, KIND, member, __VA_ARGS__))
void peer_reply_done(struct peer *p, uint64_t id);
void peer_fail(struct peer *p, uint64_t id, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void peer_fail_memory(struct peer *p, uint64_t id);
/* Returns whether the peer is an operator. Otherwise sends a failure that names `what`, such as
 * "moving tasks", and the next step. */
bool peer_is_operator(struct peer *p, uint64_t request, const char *what);
/* Called when the session's process has ended. The session is lost once all messages of the process
 * are read. */
void peer_read_out(struct peer *p);
/* Queues the peer for a turn, as if a message had arrived. */
void peer_wait_for_turn(struct peer *p);
/* Resumes reading from the peer if the reason for the pause no longer exists. */
void peer_check_held(struct peer *p);
/* Closes the peer. The event loop frees it after the current handler. */
void peer_break(struct peer *p);
/* text_is_plain() returns whether a name may appear in log lines: it is UTF-8 without quotes and
 * control characters (text.h). text_is_node() also limits the length, for the name of a node. */
bool text_is_plain(const char *text);
bool text_is_node(const char *text);
/* Closes the connection after all queued messages are sent. No more messages can be queued. */
void peer_finish(struct peer *p);
void peers_destroy(struct service *s);

#endif
