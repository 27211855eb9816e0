/* Control connections (peers). */
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
    PEER_GREETING, /* before its Hello */
    PEER_OPEN,
    PEER_CLOSING, /* no message is handled; it may read the last ones */
    PEER_BROKEN,  /* freed by its timer, after this handler */
};

struct peer {
    struct source source;
    struct list link;
    struct service *service;
    struct channel *channel;
    struct timer timer; /* greeting, long message or closing */
    struct turn turn;
    enum peer_state state;
    WIRE(Role) role;
    bool is_local; /* over the Unix socket */
    /* Over the Unix socket, or with the key of an operator (K96). */
    bool is_operator;
    struct tenant *tenant; /* NULL before the Hello */
    struct session *session;
    /* Deadline of a join that waits for a former job (K58); 0: no join waits. */
    uint64_t join_by_ns;
    struct aggregator *aggregator;
    /* Node of door.visitors while the peer has neither job nor aggregator (visitors.c). */
    struct list visit;
    uint64_t heard_ns;
    /* Time of the next look of session/host_silence.c; 0: the host is not watched. */
    uint64_t look_ns;
    uint32_t silent_looks;  /* silent looks in a row */
    bool was_seen;          /* the peer has had a turn */
    bool is_held;           /* reading is suspended (K101) */
    bool has_hung_up;       /* connection ended: all is read, without holding back */
    bool process_ended;     /* process of its session ended; lost after the last message */
    struct list own_waits;  /* unanswered requests of the peer */
    uint32_t waits;         /* length of own_waits */
    uint32_t frame_bytes;   /* reserved for a long message; 0: none */
    struct list frame_link; /* node of door.frames_waiting (frames.c) */
};

struct listener {
    struct source source;
    struct turn turn; /* over TCP: strangers are charged for accepting */
    struct service *service;
    struct endpoint endpoint;
};

int listener_open(struct service *s, struct listener *l, const char *interface_name,
                  struct err *err);
void listener_close(struct listener *l);

/* Creates a peer for the connection `fd`, which is owned from then on, also on failure. */
int peer_accept(struct service *s, int fd);
/* Sends a message. A failure breaks the peer, so callers need no check. */
void peer_send(struct peer *p, const envelope *message);
/* Sends a message: peer_reply(p, id, LATE_REPLY, late_reply, .text = text). `id` is that of the
 * request, or 0 without one. */
#define peer_reply(p, id, KIND, member, ...) peer_send(p, &MESSAGE(id, KIND, member, __VA_ARGS__))
void peer_reply_done(struct peer *p, uint64_t id);
void peer_fail(struct peer *p, uint64_t id, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void peer_fail_memory(struct peer *p, uint64_t id);
/* Whether the peer is an operator; false: the peer has got a failure that names `what` ("moving
 * tasks") and the remedy. */
bool peer_is_operator(struct peer *p, uint64_t request, const char *what);
/* Handles the end of the session's process: the session is lost when all messages of the process
 * are read. */
void peer_read_out(struct peer *p);
/* Lets the peer wait for a turn, as if a message had arrived. */
void peer_wait_for_turn(struct peer *p);
/* Resumes reading if the reason to suspend it is over. */
void peer_check_held(struct peer *p);
/* Frees the peer from the loop, after the running handler. */
void peer_break(struct peer *p);
/* Whether a name is fit for log lines: UTF-8, no quotes, no control characters (text.h); of a node
 * also: not too long. */
bool text_is_plain(const char *text);
bool text_is_node(const char *text);
/* Ends the connection after the messages that were sent: no further ones follow. */
void peer_finish(struct peer *p);
void peers_destroy(struct service *s);

#endif
