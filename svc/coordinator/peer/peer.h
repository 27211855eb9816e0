/* Control connections, and requests on them that are answered later. */
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
    PEER_GREETING, /* has not said hello */
    PEER_OPEN,
    PEER_CLOSING, /* may read our last words */
    PEER_BROKEN,  /* goes when this handler ends */
};

struct peer {
    struct source source;
    struct list link;
    struct service *service;
    struct channel *channel;
    struct timer timer; /* of greeting, of a long message, of closing */
    struct turn turn;
    enum peer_state state;
    WIRE(Role) role;
    bool is_local;         /* over the Unix socket */
    bool is_operator;      /* over the Unix socket, or with the key of an operator (K96) */
    struct tenant *tenant; /* NULL while greeting */
    struct session *session;
    uint64_t join_by_ns; /* its join waits until then for a former job (K58); 0: none does */
    struct aggregator *aggregator;
    struct list visit; /* in door.visitors while it has joined nothing (visitors.c) */
    uint64_t heard_ns;
    uint64_t look_ns;       /* session/host_silence.c: not before this; 0: not looked at */
    uint32_t silent_looks;  /* in a row */
    bool was_seen;          /* it has had a turn */
    bool is_held;           /* what it sends is not read for now (K101) */
    bool has_hung_up;       /* nothing is held back any more: all it sent is read to its end */
    bool process_ended;     /* of its session, which is lost when all is read */
    struct list own_waits;  /* requests of it that are not answered yet */
    uint32_t waits;         /* so many */
    uint32_t frame_bytes;   /* of the long message that it may send; 0: none */
    struct list frame_link; /* in door.frames_waiting until it may (frames.c) */
};

struct listener {
    struct source source;
    struct turn turn; /* over TCP: accepting costs what strangers may spend */
    struct service *service;
    struct endpoint endpoint;
};

int listener_open(struct service *s, struct listener *l, const char *interface_name,
                  struct err *err);
void listener_close(struct listener *l);

/* Takes over `fd`. */
int peer_accept(struct service *s, int fd);
/* A failed send breaks the peer, so no caller has to look. */
void peer_send(struct peer *p, const envelope *message);
/* peer_reply(p, id, LATE_REPLY, late_reply, .text = text); the id of what nobody asked for is 0. */
#define peer_reply(p, id, KIND, member, ...) peer_send(p, &MESSAGE(id, KIND, member, __VA_ARGS__))
void peer_reply_done(struct peer *p, uint64_t id);
void peer_fail(struct peer *p, uint64_t id, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void peer_fail_memory(struct peer *p, uint64_t id);
/* false: the peer was told that `what` ("moving tasks") is for operators, and how to be one. */
bool peer_is_operator(struct peer *p, uint64_t request, const char *what);
/* The process of its session has ended: once all is read that it sent, the session is lost. */
void peer_read_out(struct peer *p);
/* The peer has a turn, as if something had come from it. */
void peer_wait_for_turn(struct peer *p);
/* The reason for which the peer was held may be over. */
void peer_check_held(struct peer *p);
/* Lets it go from the loop, not before this handler ends. */
void peer_break(struct peer *p);
/* Names that go into log lines: UTF-8, no quotes, harmless (text.h); a node's not too long. */
bool text_is_plain(const char *text);
bool text_is_node(const char *text);
/* It hears nothing after what has been sent, and goes once it has read that. */
void peer_finish(struct peer *p);
void peers_destroy(struct service *s);

#endif
