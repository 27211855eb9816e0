/* Control connection: protobuf-c Envelopes with a length prefix, over a stream socket. Coordinator,
 * aggregator, client and CLI use it. A channel may be used by one thread at a time. The socket is
 * non-blocking.
 *
 * Frame: 32-bit little-endian length (1 to CHANNEL_FRAME_BYTES_MAX), followed by that many
 * bytes. */
#ifndef GRADPOOL_CHANNEL_CHANNEL_H
#define GRADPOOL_CHANNEL_CHANNEL_H

#include "svc/base/library.h"
#include "svc/channel/key.h"

#include <stdbool.h>
#include <stdint.h>

#include "messages.pb-c.h"

/* Version of all messages on which both ends must agree, including the records of record.h. The
 * number is increased when an older end could not handle a change (H10). */
#define CHANNEL_VERSION 22
#define CHANNEL_FRAME_BYTES_MAX (16u << 20)
/* Maximum bytes of the first frame that an accepting end receives. */
#define CHANNEL_GREETING_BYTES_MAX 65535u
/* Maximum bytes that may wait to be sent. A peer with more counts as lost (-ENOBUFS). */
#define CHANNEL_BACKLOG_BYTES_MAX (64u << 20)

typedef Gradpool__Wire__Envelope envelope;

/* Creates an envelope that points to a message, for example ENVELOPE(id, DONE, done, &done). */
#define ENVELOPE(number, KIND, member, message)                                         \
    ((envelope){.base = PROTOBUF_C_MESSAGE_INIT(&gradpool__wire__envelope__descriptor), \
                .id = (number),                                                         \
                .body_case = GRADPOOL__WIRE__ENVELOPE__BODY_##KIND,                     \
                .member = (message)})
/* Creates an envelope and its message, for example MESSAGE(id, FAILURE, failure, .code = code).
 * Other fields are unset. Both objects are valid until the end of the enclosing block. */
#define MESSAGE(number, KIND, member, ...) \
    ENVELOPE(number, KIND, member,         \
             (&MESSAGE_BODY(__typeof__(*((envelope *)0)->member), member, __VA_ARGS__)))
/* Creates a message without an envelope, for example MESSAGE_PART(LaneAddress, lane_address, .lane
 * = lane->id). */
#define MESSAGE_PART(Type, type, ...) MESSAGE_BODY(Gradpool__Wire__##Type, type, __VA_ARGS__)
#define MESSAGE_BODY(Type, type, ...) \
    ((Type){.base = PROTOBUF_C_MESSAGE_INIT(&gradpool__wire__##type##__descriptor), __VA_ARGS__})

struct channel;

/* Creates a channel, which owns `fd` and makes it non-blocking. Returns 0, -ENOTSOCK, -EAFNOSUPPORT
 * (neither Unix nor TCP) or -ENOMEM; after an error the caller still owns `fd`. */
int channel_create(int fd, struct channel **ret_channel);
void channel_destroy(struct channel *ch); /* Closes the socket. NULL is allowed. */

int channel_fd(const struct channel *ch);
/* Returns the epoll events to wait for: EPOLLIN, and EPOLLOUT while bytes wait to be sent. */
uint32_t channel_events(const struct channel *ch);
/* Returns the peer's address, such as "127.0.0.1:51234" or "unix pid 4242 uid 0". */
const char *channel_peer(const struct channel *ch);
/* Returns the text of an error without the peer's address. Used in sentences that already name the
 * peer. */
const char *channel_bare_text(const struct channel *ch, const char *text);
/* Writes process number and user of the peer of a Unix socket. Returns 0, or -ENOTSUP for TCP. */
int channel_credentials(const struct channel *ch, int *ret_pid, uint32_t *ret_uid);

/* Returns whether the peer is on this host: a Unix socket, or a loopback address. */
bool channel_is_loopback(const struct channel *ch);

/* Makes the kernel probe the peer's host over TCP after every `quiet_s` seconds without a byte. The
 * peer's kernel answers even for a stopped process. After this call the kernel no longer closes a
 * connection whose peer does not read, so the caller has to check channel_silent_ns(). */
void channel_watch_host(struct channel *ch, unsigned quiet_s);
/* Returns the time since the last byte or acknowledgement from the peer. Returns 0 in three cases,
 * in which this time has no meaning. The peer's receive buffer is full, and the peer was not probed
 * lately. The end of the connection was not read yet. The socket is a Unix socket. Costs two system
 * calls. */
uint64_t channel_silent_ns(const struct channel *ch);

/* Makes the connecting end use TLS 1.3 with this key. Called before anything is sent. Messages wait
 * until channel_receive() has completed the handshake. Returns 0 or -ENOMEM. channel_receive() then
 * may return -EKEYREJECTED, or -EPROTO if the peer does not use TLS. */
int channel_use_key(struct channel *ch, const struct key *key);
/* Makes the accepting end accept keys. Called before anything is received. A peer whose first bytes
 * are TLS has to prove a key that `find` returns. If it does not, channel_receive() returns
 * -EKEYREJECTED, -ENOKEY (the peer has no key) or -EPROTO. Other peers continue without TLS; their
 * first frame has at most CHANNEL_GREETING_BYTES_MAX bytes. */
void channel_accept_keys(struct channel *ch, key_find_fn find, void *context);
/* Returns the tenant whose key the peer has proven. NULL: the connection uses no TLS, or its
 * handshake is incomplete. */
const char *channel_tenant(const struct channel *ch);

/* Returns whether the message answers a request (H7). */
bool channel_is_reply(const envelope *message);
/* Returns whether the message is a request. A request is answered, at least with a Failure. An
 * unknown message counts as a request if it has a number (H9). */
bool channel_wants_answer(const envelope *message);

/* Returns the number of the next request: 1, 2, ... channel_call() uses the same numbers. */
uint64_t channel_next_id(struct channel *ch);

/* Packs and queues the message, and sends queued bytes as far as the socket has room. Returns 0,
 * -ENOBUFS, -ECONNRESET, -ENOMEM or -EMSGSIZE. After an error the channel can only be destroyed. */
int channel_send(struct channel *ch, const envelope *message);
/* Sends queued bytes as far as the socket has room. Returns 0 or an error of channel_send(). */
int channel_flush(struct channel *ch);

/* Returns the next whole message, which the caller frees with
 * gradpool__wire__envelope__free_unpacked(m, NULL). Returns 0 or an error. -EAGAIN: no whole
 * message yet. -ECONNRESET: the peer is lost. -EBADMSG: another protocol (oversized frame,
 * unparsable bytes); channel_failure() has a text for the log. */
int channel_receive(struct channel *ch, envelope **ret_message);
const char *channel_failure(const struct channel *ch);
/* Returns how the connection has ended. When a process ends, the kernel closes its connections. If
 * the process has not read all bytes of a connection, the kernel resets the connection instead. */
enum channel_end {
    CHANNEL_ENDED_OTHERWISE, /* the network has ended the connection, or the connection is open */
    CHANNEL_CLOSED,          /* the peer has closed the connection */
    /* The peer's kernel has reset the connection: all bytes and probes are acknowledged. (After a
     * reset by a firewall, some bytes or probes have no acknowledgement, and the result is
     * CHANNEL_ENDED_OTHERWISE.) */
    CHANNEL_RESET,
};
enum channel_end channel_how_ended(const struct channel *ch);

/* Limits reading from now on. For a frame of more than `bytes` bytes only the length is read, and
 * channel_receive() returns -EAGAIN until the limit is raised. A new channel has no limit. */
void channel_hold_frames(struct channel *ch, uint32_t bytes);
/* Returns the length of the frame that has arrived in part; 0: none. */
uint32_t channel_frame_bytes(const struct channel *ch);
/* Returns whether the last receive returned -EAGAIN although the socket still contains bytes of a
 * long frame. The socket is then still readable. */
bool channel_has_more(const struct channel *ch);
/* Returns the number of bytes that wait to be sent to the peer. */
size_t channel_backlog(const struct channel *ch);

/* Sends a request, whose id this function sets, and blocks until the reply with this id arrives.
 * For the CLI and for set-up. All other messages, including requests of the peer, are passed to
 * `unasked`, which owns them (NULL: they are freed). Returns 0 or an error. A Failure is returned
 * as its code, with its text in `err`. -ETIMEDOUT: the deadline has passed. */
int channel_call(struct channel *ch, envelope *request, uint64_t deadline_ns,
                 void (*unasked)(void *context, envelope *message), void *context,
                 envelope **ret_reply, struct err *err);
/* Like channel_call(), for a reply of the kind `expected`. -EPROTO: the reply has another kind. */
int channel_ask(struct channel *ch, envelope *request, int timeout_ms, int expected,
                envelope **ret_reply, struct err *err);

/* Sends Hello and receives Welcome, on the connecting end. Returns 0 or an error of channel_call().
 * -EPROTO: the peer has another version; `err` has both. */
int channel_greet(struct channel *ch, Gradpool__Wire__Role role, const char *program,
                  uint64_t deadline_ns, uint64_t *ret_incarnation, struct err *err);
/* Like channel_greet(), but returns the whole Welcome, which the caller frees like other
 * messages. */
int channel_hello(struct channel *ch, Gradpool__Wire__Role role, const char *program,
                  uint64_t deadline_ns, envelope **ret_welcome, struct err *err);

/* Writes the version of protobuf-c. */
void channel_library(struct library *ret_row);

#endif
