/* TLS 1.3 with a pre-shared key. The caller moves the bytes between this session and a socket. A
 * session may be used by one thread at a time. */
#ifndef GRADPOOL_CHANNEL_TLS_H
#define GRADPOOL_CHANNEL_TLS_H

#include "svc/base/library.h"
#include "svc/channel/key.h"

#include <sys/types.h>

/* Maximum bytes that one tls_write() encrypts. */
#define TLS_RECORD_BYTES (16u << 10)

struct tls;

/* Returns 1 if a connection that begins with these bytes uses TLS, 0 if not, or -EAGAIN if there
 * are too few bytes to decide. */
int tls_is_hello(const uint8_t *bytes, size_t count);

/* Creates the session of a client or a server. Returns 0 or -ENOMEM. */
int tls_create_client(const struct key *key, struct tls **ret_tls);
int tls_create_server(key_find_fn find, void *context, struct tls **ret_tls);
void tls_destroy(struct tls *tls); /* Sends nothing to the peer. NULL is allowed. */

/* Passes bytes from the peer to the session. Returns 0 or -ENOMEM. */
int tls_put(struct tls *tls, const uint8_t *bytes, size_t count);
/* tls_pending() returns the number of bytes to be sent to the peer; tls_take() removes at most
 * `count` of them. Every function below may produce such bytes, even if it fails. */
size_t tls_pending(const struct tls *tls);
size_t tls_take(struct tls *tls, uint8_t *bytes, size_t count);

/* Continues the handshake. Returns 0 when it is complete, -EAGAIN if more bytes from the peer are
 * needed, or an error with its text in tls_failure(). -EKEYREJECTED: an end has refused the key.
 * -ENOKEY (server): the peer has no key. -EPROTO: the peer does not use TLS 1.3. */
int tls_handshake(struct tls *tls);
/* Reads decrypted bytes, after the handshake. Returns their number, -EAGAIN, -ECONNRESET if the
 * peer has closed, or -EBADMSG. */
ssize_t tls_read(struct tls *tls, uint8_t *bytes, size_t count);
/* Encrypts bytes, after the handshake. Returns the number of encrypted bytes, at most one record,
 * or -EBADMSG or -ENOMEM. */
ssize_t tls_write(struct tls *tls, const uint8_t *bytes, size_t count);

/* Returns the tenant whose key was proven (server) or is used (client). */
const char *tls_tenant(const struct tls *tls);
const char *tls_failure(const struct tls *tls);

/* Writes the version of OpenSSL. */
void tls_library(struct library *ret_row);

#endif
