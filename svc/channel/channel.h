/* A control connection: length-prefixed protobuf-c Envelopes over a stream socket. Used by all four
 * ends (coordinator, aggregator, client, CLI). One thread at a time; the socket is non-blocking.
 *
 * Frame: 32-bit little-endian length (1 .. CHANNEL_FRAME_BYTES_MAX), then that many bytes. */
#ifndef GRADPOOL_CHANNEL_CHANNEL_H
#define GRADPOOL_CHANNEL_CHANNEL_H

#include "svc/base/library.h"
#include "svc/channel/key.h"

#include <stdbool.h>
#include <stdint.h>

#include "messages.pb-c.h"

/* Version of all that both ends must agree on, the records of record.h included. README, H10 has
 * the rule by which it is raised. */
#define CHANNEL_VERSION 12
#define CHANNEL_FRAME_BYTES_MAX (16u << 20)
/* Most bytes of the first frame that an accepting end takes. */
#define CHANNEL_GREETING_BYTES_MAX 65535u
/* Most bytes that may wait to be sent; beyond, the peer counts as gone (-ENOBUFS). */
#define CHANNEL_BACKLOG_BYTES_MAX (64u << 20)

typedef Gradpool__Wire__Envelope envelope;

/* An envelope around a message, which it points to: ENVELOPE(id, DONE, done, &done). */
#define ENVELOPE(number, KIND, member, message)                                         \
    ((envelope){.base = PROTOBUF_C_MESSAGE_INIT(&gradpool__wire__envelope__descriptor), \
                .id = (number),                                                         \
                .body_case = GRADPOOL__WIRE__ENVELOPE__BODY_##KIND,                     \
                .member = (message)})
/* The same with the fields of the message in place: MESSAGE(id, FAILURE, failure, .code = code).
 * Fields that are left out are unset. Both live as long as the block around them. */
#define MESSAGE(number, KIND, member, ...) \
    ENVELOPE(number, KIND, member,         \
             (&MESSAGE_BODY(__typeof__(*((envelope *)0)->member), member, __VA_ARGS__)))
/* A message without its envelope: MESSAGE_PART(LaneAddress, lane_address, .lane = lane->id). */
#define MESSAGE_PART(Type, type, ...) MESSAGE_BODY(Gradpool__Wire__##Type, type, __VA_ARGS__)
#define MESSAGE_BODY(Type, type, ...) \
    ((Type){.base = PROTOBUF_C_MESSAGE_INIT(&gradpool__wire__##type##__descriptor), __VA_ARGS__})

struct channel;

/* Takes over `fd`, which becomes non-blocking; on failure it stays the caller's. Errors: -ENOTSOCK,
 * -EAFNOSUPPORT (neither Unix nor TCP), -ENOMEM. */
int channel_create(int fd, struct channel **ret_channel);
void channel_destroy(struct channel *ch); /* NULL is fine; closes the socket */

int channel_fd(const struct channel *ch);
/* EPOLLIN, and EPOLLOUT while bytes wait to be sent. */
uint32_t channel_events(const struct channel *ch);
/* "127.0.0.1:51234" or "unix pid 4242 uid 0". */
const char *channel_peer(const struct channel *ch);
/* An error's text without the peer's address: for a sentence that names the peer already. */
const char *channel_bare_text(const struct channel *ch, const char *text);
/* Unix socket: the peer's process and user; TCP: -ENOTSUP. */
int channel_credentials(const struct channel *ch, int *ret_pid, uint32_t *ret_uid);

/* Whether the peer is on this host: a Unix socket, or a loopback address. */
bool channel_is_loopback(const struct channel *ch);

/* TCP: from here on the kernel probes the peer's after every `quiet_s` seconds without a byte; the
 * kernel of a stopped process answers, too. In return the kernel no longer ends a connection whose
 * bytes the peer leaves unread, however long: the caller has to watch channel_silent_ns(). */
void channel_watch_host(struct channel *ch, unsigned quiet_s);
/* Time since anything came from the other end, answers of its kernel included. 0 also where that
 * time means nothing: the peer has no room and was not probed lately, the end has come and is yet
 * to be read, or the socket is a Unix one. Costs two system calls. */
uint64_t channel_silent_ns(const struct channel *ch);

/* The connecting end, before it sends: speaks TLS 1.3 with this key. Messages wait for the
 * handshake, which goes on in channel_receive() and ends there: -EKEYREJECTED, -EPROTO (no TLS
 * there). -ENOMEM. */
int channel_use_key(struct channel *ch, const struct key *key);
/* The accepting end, before it receives: a peer whose first bytes are TLS has to prove a key that
 * `find` knows, within channel_receive(): -EKEYREJECTED, -ENOKEY (none), -EPROTO. Other peers go on
 * without TLS, with a first frame of at most CHANNEL_GREETING_BYTES_MAX. */
void channel_accept_keys(struct channel *ch, key_find_fn find, void *context);
/* The tenant whose key is proven; NULL: none, the connection is plain or not decided yet. */
const char *channel_tenant(const struct channel *ch);

/* Whether the message is the answer to a request (H7). */
bool channel_is_reply(const envelope *message);
/* Whether the message may be answered, if only by a Failure: a request, known or not (H9). */
bool channel_wants_answer(const envelope *message);

/* A number for a request: 1, 2, ... channel_call() takes its own from here, too. */
uint64_t channel_next_id(struct channel *ch);

/* Packs and queues the message, and sends as much as the socket takes. Errors: -ENOBUFS,
 * -ECONNRESET, -ENOMEM, -EMSGSIZE; after any of them only channel_destroy() is of use. */
int channel_send(struct channel *ch, const envelope *message);
/* Sends queued bytes, as far as the socket takes them. */
int channel_flush(struct channel *ch);

/* The next whole message, to be freed with gradpool__wire__envelope__free_unpacked(m, NULL).
 * -EAGAIN: none yet. -ECONNRESET: the peer is gone. -EBADMSG: not our protocol (oversized frame,
 * unparsable bytes); channel_failure() has a text for the log. */
int channel_receive(struct channel *ch, envelope **ret_message);
const char *channel_failure(const struct channel *ch);
/* Whether the peer has closed the connection, as the end of a process does; a network's end is a
 * reset. */
bool channel_was_closed(const struct channel *ch);

/* From now on a frame of more than `bytes` bytes is read no further than its length:
 * channel_receive() returns -EAGAIN until this is raised. A new channel holds no frame back. */
void channel_hold_frames(struct channel *ch, uint32_t bytes);
/* Bytes of the frame that has begun to come and is not whole; 0: none has begun. */
uint32_t channel_frame_bytes(const struct channel *ch);
/* Whether the last -EAGAIN left bytes of a long frame in the socket, which stays readable then. */
bool channel_has_more(const struct channel *ch);
/* Bytes that the peer has not taken. */
size_t channel_backlog(const struct channel *ch);

/* Sends a request (id filled in) and waits for the reply with that id: blocks, for the CLI and for
 * set-up. Other messages that come meanwhile, the peer's requests among them, go to `unasked`,
 * which takes each over (NULL: freed). A Failure becomes its code, with its text in `err`. Errors
 * also: -ETIMEDOUT. */
int channel_call(struct channel *ch, envelope *request, uint64_t deadline_ns,
                 void (*unasked)(void *context, envelope *message), void *context,
                 envelope **ret_reply, struct err *err);
/* The same for a reply of the kind `expected`; -EPROTO: the reply was of another. */
int channel_ask(struct channel *ch, envelope *request, int timeout_ms, int expected,
                envelope **ret_reply, struct err *err);

/* Hello / Welcome from the calling side. -EPROTO: other version, with both in `err`. */
int channel_greet(struct channel *ch, Gradpool__Wire__Role role, const char *program,
                  uint64_t deadline_ns, uint64_t *ret_incarnation, struct err *err);
/* Like channel_greet(); returns the whole Welcome, which the caller frees like other messages. */
int channel_hello(struct channel *ch, Gradpool__Wire__Role role, const char *program,
                  uint64_t deadline_ns, envelope **ret_welcome, struct err *err);

/* protobuf-c's version. */
void channel_library(struct library *ret_row);

#endif
