/* TLS 1.3 with a pre-shared key. The caller moves the bytes between this session and a socket. One
 * thread at a time uses a session. */
#ifndef GRADPOOL_CHANNEL_TLS_H
#define GRADPOOL_CHANNEL_TLS_H

#include "svc/base/library.h"
#include "svc/channel/key.h"

#include <sys/types.h>

/* Maximum bytes that one tls_write() takes. */
#define TLS_RECORD_BYTES (16u << 10)

struct tls;

/* Returns whether a connection that begins with these bytes uses TLS: 1 or 0. -EAGAIN: too few
 * bytes to decide. */
int tls_is_hello(const uint8_t *bytes, size_t count);

/* Creates the session of a client or a server. Returns 0 or -ENOMEM. */
int tls_create_client(const struct key *key, struct tls **ret_tls);
int tls_create_server(key_find_fn find, void *context, struct tls **ret_tls);
void tls_destroy(struct tls *tls); /* Sends nothing to the peer. NULL is fine. */

/* Passes bytes of the peer to the session. Returns 0 or -ENOMEM. */
int tls_put(struct tls *tls, const uint8_t *bytes, size_t count);
/* Bytes for the peer, which any of the calls below may produce, even a failed one. tls_pending()
 * returns their number; tls_take() removes the next ones, `count` at most. */
size_t tls_pending(const struct tls *tls);
size_t tls_take(struct tls *tls, uint8_t *bytes, size_t count);

/* Continues the handshake. 0: complete; -EAGAIN: more bytes of the peer are needed. -EKEYREJECTED:
 * the key is wrong for one of the two sides; -ENOKEY (server): the peer has no key; -EPROTO: the
 * peer does not speak TLS 1.3. tls_failure() returns the text. */
int tls_handshake(struct tls *tls);
/* Reads decrypted bytes, after the handshake. Returns their number, or -EAGAIN, -ECONNRESET (the
 * peer has closed), -EBADMSG. */
ssize_t tls_read(struct tls *tls, uint8_t *bytes, size_t count);
/* Encrypts bytes, after the handshake. Returns the number of bytes taken, one record at most;
 * -EBADMSG, -ENOMEM. */
ssize_t tls_write(struct tls *tls, const uint8_t *bytes, size_t count);

/* Returns the tenant whose key was proven (server) or is used (client). */
const char *tls_tenant(const struct tls *tls);
const char *tls_failure(const struct tls *tls);

/* Returns the version of OpenSSL. */
void tls_library(struct library *ret_row);

#endif
