/* TLS 1.3 with a pre-shared key, over bytes that the caller moves: no socket is touched here. A
 * session belongs to one thread at a time. */
#ifndef GRADPOOL_CHANNEL_TLS_H
#define GRADPOOL_CHANNEL_TLS_H

#include "svc/base/library.h"
#include "svc/channel/key.h"

#include <sys/types.h>

/* Most bytes that one tls_write() takes. */
#define TLS_RECORD_BYTES (16u << 10)

struct tls;

/* 1: a connection that begins with these bytes uses TLS; 0: not; -EAGAIN: too few bytes to
 * decide. */
int tls_is_hello(const uint8_t *bytes, size_t count);

/* The two ends. -ENOMEM. */
int tls_create_client(const struct key *key, struct tls **ret_tls);
int tls_create_server(key_find_fn find, void *context, struct tls **ret_tls);
void tls_destroy(struct tls *tls); /* sends nothing to the peer; NULL is fine */

/* Takes in bytes of the peer. -ENOMEM. */
int tls_put(struct tls *tls, const uint8_t *bytes, size_t count);
/* Bytes for the peer, after any of the verbs below, failed ones too: their number, and the next
 * ones, at most `count`. */
size_t tls_pending(const struct tls *tls);
size_t tls_take(struct tls *tls, uint8_t *bytes, size_t count);

/* 0: done; -EAGAIN: more bytes of the peer are needed. -EKEYREJECTED: the key is wrong, for one of
 * both sides; -ENOKEY (server): the peer has none; -EPROTO: the peer speaks no TLS 1.3.
 * tls_failure() has the text. */
int tls_handshake(struct tls *tls);
/* Bytes read, or -EAGAIN, -ECONNRESET (the peer has closed), -EBADMSG. After the handshake. */
ssize_t tls_read(struct tls *tls, uint8_t *bytes, size_t count);
/* Bytes taken, at most a record's worth. -EBADMSG, -ENOMEM. After the handshake. */
ssize_t tls_write(struct tls *tls, const uint8_t *bytes, size_t count);

/* The tenant whose key was proven, or is being used. */
const char *tls_tenant(const struct tls *tls);
const char *tls_failure(const struct tls *tls);

/* OpenSSL's version. */
void tls_library(struct library *ret_row);

#endif
