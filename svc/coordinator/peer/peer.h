/* Peers: the processes at the other ends of control connections. */
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
    PEER_CLOSING, /* messages are no longer handled; the peer may still read the last ones */
    PEER_BROKEN,  /* the peer's timer frees it after the current handler */
};

struct peer {
    struct source source;
    struct list link;
    struct service *service;
    struct channel *channel;
    struct timer timer; /* deadline of the greeting, of a long message, or of the closing */
    struct turn turn;
    enum peer_state state;
    WIRE(Role) role;
    bool is_local; /* the connection is over the Unix socket */
    /* The connection is over the Unix socket, or has an operator's key (K96). */
    bool is_operator;
    struct tenant *tenant; /* NULL before the Hello */
    struct session *session;
    /* Deadline of a join that waits for the end of a former job (K58); 0: no join waits. */
    uint64_t join_by_ns;
    struct aggregator *aggregator;
    /* Node in door.visitors while the peer has neither a job nor an aggregator (visitors.c). */
    struct list visit;
    uint64_t heard_ns;
    /* Time of the next check in session/host_silence.c; 0: the host is not watched. */
    uint64_t look_ns;
    uint32_t silent_looks; /* number of silent checks in a row */
    bool was_seen;         /* the peer has had at least one turn */
    bool is_held;          /* reading is suspended (K101) */
    /* the connection has ended: the remaining messages are read without suspension */
    bool has_hung_up;
    /* the process of its session has ended; the session is lost after the last message */
    bool process_ended;
    struct list own_waits;  /* requests of the peer without an answer */
    uint32_t waits;         /* length of own_waits */
    uint32_t frame_bytes;   /* memory reserved for a long message; 0: none */
    struct list frame_link; /* node in door.frames_waiting (frames.c) */
};

struct listener {
    struct source source;
    struct turn turn; /* on TCP, its party pays for accepting the connection */
    struct service *service;
    struct endpoint endpoint;
};

int listener_open(struct service *s, struct listener *l, const char *interface_name,
                  struct err *err);
void listener_close(struct listener *l);

/* Creates a peer for the connection `fd`, and owns `fd` from then on, even after an error. */
int peer_accept(struct service *s, int fd);
/* Sends a message. An error breaks the peer, so callers need not check. */
void peer_send(struct peer *p, const envelope *message);
/* Sends a message, such as peer_reply(p, id, LATE_REPLY, late_reply, .text = text). `id` is the id
 * of the request; 0: the message is not a reply. */
#define peer_reply(p, id, KIND, member, ...) peer_send(p, &MESSAGE(id, KIND, member, __VA_ARGS__))
void peer_reply_done(struct peer *p, uint64_t id);
void peer_fail(struct peer *p, uint64_t id, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void peer_fail_memory(struct peer *p, uint64_t id);
/* Returns whether the peer is an operator. If not, the peer is sent a failure that names `what`
 * ("moving tasks") and the remedy. */
bool peer_is_operator(struct peer *p, uint64_t request, const char *what);
/* Handles the end of the session's process. The session is lost when all messages of the process
 * have been read. */
void peer_read_out(struct peer *p);
/* Makes the peer wait for a turn, as after the arrival of a message. */
void peer_wait_for_turn(struct peer *p);
/* Resumes reading if the reason for its suspension is gone. */
void peer_check_held(struct peer *p);
/* Frees the peer from the loop, after the current handler. */
void peer_break(struct peer *p);
/* Returns whether a name may appear in log lines: it is UTF-8 without quotes and control characters
 * (text.h). The name of a node must not be too long either. */
bool text_is_plain(const char *text);
bool text_is_node(const char *text);
/* Closes the connection after all messages so far have been sent. No further messages are sent. */
void peer_finish(struct peer *p);
void peers_destroy(struct service *s);

#endif
