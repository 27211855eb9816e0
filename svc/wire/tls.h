/* TLS 1.3 with a pre-shared key, over bytes that the caller moves: no socket is touched in here.
 * One thread at a time for each. */
#ifndef GRADPOOL_WIRE_TLS_H
#define GRADPOOL_WIRE_TLS_H

#include "svc/base/library.h"
#include "svc/wire/key.h"

#include <sys/types.h>

/* What one step may hand out at most: a record and what surrounds it. */
#define TLS_RECORD_BYTES (16u << 10)

struct tls;

/* Whether a connection that begins so speaks TLS: 1 or 0; -EAGAIN: too few bytes to tell. */
int tls_is_hello(const uint8_t *bytes, size_t count);

/* Either end. -ENOMEM. */
int tls_create_client(const struct key *key, struct tls **ret_tls);
int tls_create_server(key_find_fn find, void *context, struct tls **ret_tls);
void tls_destroy(struct tls *tls); /* says nothing to the peer; NULL is fine */

/* Takes in what came from the peer. -ENOMEM. */
int tls_put(struct tls *tls, const uint8_t *bytes, size_t count);
/* Bytes for the peer, after any of the verbs below, failed ones too: how many wait, and the next
 * ones, at most `count`. */
size_t tls_pending(const struct tls *tls);
size_t tls_take(struct tls *tls, uint8_t *bytes, size_t count);

/* 0: done; -EAGAIN: the peer must say more. -EKEYREJECTED: the key is wrong, for one of both
 * sides; -ENOKEY (server): the peer has none; -EPROTO: it is not TLS 1.3. tls_failure() tells. */
int tls_handshake(struct tls *tls);
/* Bytes read, or -EAGAIN, -ECONNRESET (the peer has closed), -EBADMSG. After the handshake. */
ssize_t tls_read(struct tls *tls, uint8_t *bytes, size_t count);
/* Bytes taken, at most a record's worth. -EBADMSG, -ENOMEM. After the handshake. */
ssize_t tls_write(struct tls *tls, const uint8_t *bytes, size_t count);

/* Whose key was proven, or is being used. */
const char *tls_tenant(const struct tls *tls);
const char *tls_failure(const struct tls *tls);

/* OpenSSL's version. */
void tls_library(struct library *ret_row);

#endif
