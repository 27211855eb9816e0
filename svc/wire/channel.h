/* A control connection: length-prefixed protobuf-c Envelopes over a stream socket. Used by all four
 * ends (coordinator, aggregator, client, CLI). One thread at a time; the socket is non-blocking.
 *
 * Frame: 32-bit little-endian length (1 .. CHANNEL_FRAME_BYTES_MAX), then that many bytes. */
#ifndef GRADPOOL_WIRE_CHANNEL_H
#define GRADPOOL_WIRE_CHANNEL_H

#include "svc/wire/key.h"

#include <stdbool.h>
#include <stdint.h>

#include "messages.pb-c.h"

/* Of all that both ends must agree on, the records of record.h included. README, H10 says when it
 * is raised. */
#define CHANNEL_VERSION 12
#define CHANNEL_FRAME_BYTES_MAX (16u << 20)
/* Of the first one that an accepting end takes. */
#define CHANNEL_GREETING_BYTES_MAX 65535u
/* What may wait to be sent before the peer counts as gone (-ENOBUFS). */
#define CHANNEL_BACKLOG_BYTES_MAX (64u << 20)

typedef Gradpool__Wire__Envelope envelope;

struct channel;

/* Takes over `fd` (made non-blocking); on failure it stays the caller's. Errors: -ENOTSOCK,
 * -EAFNOSUPPORT (neither Unix nor TCP), -ENOMEM. */
int channel_create(int fd, struct channel **ret_channel);
void channel_destroy(struct channel *ch); /* NULL is fine; closes the socket */

int channel_fd(const struct channel *ch);
/* EPOLLIN, and EPOLLOUT while something waits to be sent. */
uint32_t channel_events(const struct channel *ch);
/* "127.0.0.1:51234" or "unix pid 4242 uid 0". */
const char *channel_peer(const struct channel *ch);
/* An error's text without the peer's address, for a sentence that names the peer already. */
const char *channel_bare_text(const struct channel *ch, const char *text);
/* Unix socket: the peer's process and user; TCP: -ENOTSUP. */
int channel_credentials(const struct channel *ch, int *ret_pid, uint32_t *ret_uid);

/* Whether the peer is on this host: a Unix socket, or a loopback address. */
bool channel_is_loopback(const struct channel *ch);

/* TCP: from here on the peer's kernel is asked whether it is there after every `quiet_s` seconds in
 * which nothing came; a stopped process's kernel answers that, too. In return nothing that the peer
 * leaves unread ends the connection any more, however long: who asks for this looks for himself. */
void channel_watch_host(struct channel *ch, unsigned quiet_s);
/* For how long nothing has come from the other end, answers of its kernel included. 0 also where
 * that says nothing: it has no room and was not asked again lately, or the end has come and is yet
 * to be read, or it is a Unix socket. Costs two system calls. */
uint64_t channel_silent_ns(const struct channel *ch);

/* The connecting end, before it sends: speaks TLS 1.3 with this key. What is sent meanwhile waits
 * for the handshake, which goes on in channel_receive() and ends there too: -EKEYREJECTED, -EPROTO
 * (no TLS there). -ENOMEM. */
int channel_use_key(struct channel *ch, const struct key *key);
/* The accepting end, before it receives: a peer whose first bytes are TLS has to prove a key that
 * `find` knows, within channel_receive(): -EKEYREJECTED, -ENOKEY (none), -EPROTO. Others go on in
 * plain, with a first frame of at most CHANNEL_GREETING_BYTES_MAX. */
void channel_accept_keys(struct channel *ch, key_find_fn find, void *context);
/* Whose key is proven; NULL: nobody's, it is plain or not yet known. */
const char *channel_tenant(const struct channel *ch);

/* Whether it is the answer to a request (H7). */
bool channel_is_reply(const envelope *message);
/* Whether it may be answered, if only by a Failure: a request, known or not (H9). */
bool channel_wants_answer(const envelope *message);

/* A number for a request: 1, 2, ... channel_call() takes its own from here too. */
uint64_t channel_next_id(struct channel *ch);

/* Packs and queues the message, and sends what the socket takes. Errors: -ENOBUFS, -ECONNRESET,
 * -ENOMEM, -EMSGSIZE; after any of them the channel is only good for channel_destroy(). */
int channel_send(struct channel *ch, const envelope *message);
/* Sends what is queued, as far as the socket takes it. */
int channel_flush(struct channel *ch);

/* The next whole message, to be freed with gradpool__wire__envelope__free_unpacked(m, NULL).
 * -EAGAIN: none yet. -ECONNRESET: the peer is gone. -EBADMSG: not our protocol (oversized frame,
 * unparsable bytes): a text for the log is in channel_failure(). */
int channel_receive(struct channel *ch, envelope **ret_message);
const char *channel_failure(const struct channel *ch);
/* Whether the peer has closed the connection, as the end of a process does; a network resets it. */
bool channel_was_closed(const struct channel *ch);

/* From now on a longer frame is read no further than its length: channel_receive() says -EAGAIN
 * until this is raised. A new channel holds back nothing. */
void channel_hold_frames(struct channel *ch, uint32_t bytes);
/* Of the frame that has begun to come and is not whole; 0: none has. */
uint32_t channel_frame_bytes(const struct channel *ch);
/* Whether the last -EAGAIN came after much of a long frame, of which more may be there: the socket
 * stays readable then. */
bool channel_has_more(const struct channel *ch);
/* Bytes that the peer has not taken yet. */
size_t channel_backlog(const struct channel *ch);

/* Sends a request (id filled in) and waits for the reply with that id. What comes unasked
 * meanwhile, the peer's requests among it, goes to `unasked`, which takes each message over (NULL:
 * freed). A Failure reply becomes its code and text in `err`.
 * For the CLI and for set-up: it blocks. Errors also: -ETIMEDOUT. */
int channel_call(struct channel *ch, envelope *request, uint64_t deadline_ns,
                 void (*unasked)(void *context, envelope *message), void *context,
                 envelope **ret_reply, struct err *err);

/* Hello / Welcome from the calling side. -EPROTO: other version, with both in `err`. */
int channel_greet(struct channel *ch, Gradpool__Wire__Role role, const char *program,
                  uint64_t deadline_ns, uint64_t *ret_incarnation, struct err *err);
/* The same, with the whole Welcome, to be freed as other messages are. */
int channel_hello(struct channel *ch, Gradpool__Wire__Role role, const char *program,
                  uint64_t deadline_ns, envelope **ret_welcome, struct err *err);

#endif
