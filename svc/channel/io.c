/* Moves bytes between the socket and the buffers of a control connection, directly or through TLS.
 * Never blocks. The bytes for a peer never exceed the channel's limits (README, H2, H3, T1). */
#include "svc/channel/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Minimum room in the buffer for one recv(). */
#define READ_BYTES_MIN (16u << 10)
/* Maximum memory that an empty buffer keeps for the next message (H3). */
#define BUFFER_KEPT_BYTES_MAX (64u << 10)
/* Maximum bytes of TLS's own messages for a peer that does not read. */
#define SEALED_BYTES_MAX (256u << 10)

/* --- failure -------------------------------------------------------------------------------- */

int channel_fail(struct channel *ch, int code, const char *format, ...)
{
    if (ch->failed != 0)
        return ch->failed;
    if (code == -EAGAIN)
        code = -EPROTO; /* after -EAGAIN callers would try again forever (H5) */
    ch->failed = code;
    int used = snprintf(ch->failure, sizeof(ch->failure), "%s: ", ch->peer);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ch->failure + used, sizeof(ch->failure) - (size_t)used, format, arguments);
    va_end(arguments);
    return code;
}

/* --- buffers --------------------------------------------------------------------------------- */

void buffer_take(struct buffer *b, size_t bytes)
{
    b->first += bytes;
    if (b->first < b->end)
        return;
    b->first = b->end = 0;
    if (b->capacity > BUFFER_KEPT_BYTES_MAX) {
        free(b->bytes);
        *b = (struct buffer){0};
    }
}

/* Makes room for `bytes` more bytes. The waiting bytes are moved to the beginning only if at least
 * half of all bytes were used up. Each byte is therefore moved O(1) times. */
int buffer_reserve(struct buffer *b, size_t bytes)
{
    size_t waiting = buffer_waiting(b);
    if (b->first > 0 && b->first >= waiting) {
        memmove(b->bytes, b->bytes + b->first, waiting);
        b->first = 0;
        b->end = waiting;
    }
    if (b->capacity - b->end >= bytes)
        return 0;
    size_t capacity = b->capacity * 2;
    if (capacity < b->end + bytes)
        capacity = b->end + bytes;
    uint8_t *grown = realloc(b->bytes, capacity);
    if (grown == NULL)
        return -ENOMEM;
    b->bytes = grown;
    b->capacity = capacity;
    return 0;
}

/* --- the socket ------------------------------------------------------------------------------ */

/* Fails the channel with -ECONNRESET. The code is the same for every end of a connection. */
static int channel_fail_gone(struct channel *ch, int error)
{
    if (ch->failed == 0)
        ch->end = channel_end_of(ch, error);
    return channel_fail(ch, -ECONNRESET, "connection lost: %s", err_text(-error));
}

/* Sends waiting bytes of `b` as far as the socket has room. */
static int send_waiting(struct channel *ch, struct buffer *b)
{
    while (buffer_waiting(b) > 0) {
        ssize_t sent = send(ch->fd, b->bytes + b->first, buffer_waiting(b), MSG_NOSIGNAL);
        if (sent >= 0)
            buffer_take(b, (size_t)sent);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        else if (errno != EINTR)
            return channel_fail_gone(ch, errno);
    }
    return 0;
}

static int receive_some(struct channel *ch, uint8_t *bytes, size_t count, size_t *ret_got)
{
    ssize_t got;
    do
        got = recv(ch->fd, bytes, count, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        *ret_got = (size_t)got;
        return 0;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return -EAGAIN;
    if (got < 0)
        return channel_fail_gone(ch, errno);
    if (ch->failed == 0)
        ch->end = CHANNEL_CLOSED;
    return channel_fail(ch, -ECONNRESET, "the peer closed the connection%s",
                        ch->mode == CHANNEL_SHAKING   ? " in the TLS handshake"
                        : buffer_waiting(&ch->in) > 0 ? " in the middle of a message"
                                                      : "");
}

/* --- TLS ------------------------------------------------------------------------------------- */

/* Moves the bytes that TLS has to send to `sealed`. A peer that never reads could request new
 * traffic keys again and again, so the bytes are limited. */
static int collect_sealed(struct channel *ch)
{
    size_t bytes = tls_pending(ch->tls);
    if (bytes == 0)
        return 0;
    if (buffer_waiting(&ch->sealed) + bytes > SEALED_BYTES_MAX)
        return channel_fail(ch, -ENOBUFS, "the peer does not read the answers to its requests");
    if (buffer_reserve(&ch->sealed, bytes) < 0)
        return channel_fail(ch, -ENOMEM,
                            "this process has no memory to send %zu bytes; raise its memory limit",
                            bytes);
    ch->sealed.end += tls_take(ch->tls, ch->sealed.bytes + ch->sealed.end, bytes);
    return 0;
}

/* Fails the channel, and sends an alert with the reason if the socket has room. */
static int channel_fail_tls(struct channel *ch, int code)
{
    if (collect_sealed(ch) == 0)
        (void)send_waiting(ch, &ch->sealed);
    return channel_fail(ch, code, "%s", tls_failure(ch->tls));
}

static int flush_sealed(struct channel *ch)
{
    for (;;) {
        int error = send_waiting(ch, &ch->sealed);
        if (error < 0 || buffer_waiting(&ch->sealed) > 0 || ch->mode != CHANNEL_SEALED ||
            buffer_waiting(&ch->out) == 0)
            return error;
        ssize_t taken = tls_write(ch->tls, ch->out.bytes + ch->out.first, buffer_waiting(&ch->out));
        if (taken == -EAGAIN)
            /* TLS can write only after the rest of a TLS message from the peer has arrived; the
             * next read calls this function again */
            return 0;
        if (taken < 0)
            return channel_fail_tls(ch, (int)taken);
        buffer_take(&ch->out, (size_t)taken);
        error = collect_sealed(ch);
        if (error < 0)
            return error;
    }
}

/* Executes one step of the handshake. Returns 0 if it is complete or in progress. */
static int shake(struct channel *ch)
{
    int error = tls_handshake(ch->tls);
    if (error < 0 && error != -EAGAIN)
        return channel_fail_tls(ch, error);
    if (error == 0)
        ch->mode = CHANNEL_SEALED;
    return collect_sealed(ch);
}

static int unseal(struct channel *ch)
{
    ssize_t got;
    do {
        if (buffer_reserve(&ch->in, TLS_RECORD_BYTES) < 0)
            return channel_fail(
                ch, -ENOMEM,
                "this process has no memory to receive a message; raise its memory limit");
        got = tls_read(ch->tls, ch->in.bytes + ch->in.end, ch->in.capacity - ch->in.end);
        if (got > 0)
            ch->in.end += (size_t)got;
    } while (got > 0);
    /* The end of a TLS session does not end the connection (T6). */
    return got == -EAGAIN || got == -ECONNRESET ? collect_sealed(ch)
                                                : channel_fail_tls(ch, (int)got);
}

/* Moves the peer's bytes through TLS into `in`. All bytes are moved, because the socket does not
 * become readable for bytes inside the session. */
static int take_sealed(struct channel *ch, const uint8_t *bytes, size_t count)
{
    int error = tls_put(ch->tls, bytes, count);
    if (error < 0)
        return channel_fail_tls(ch, error);
    if (ch->mode == CHANNEL_SHAKING)
        error = shake(ch);
    if (error == 0 && ch->mode == CHANNEL_SEALED)
        error = unseal(ch);
    return error == 0 ? flush_sealed(ch) : error;
}

int channel_use_key(struct channel *ch, const struct key *key)
{
    if (tls_create_client(key, &ch->tls) < 0)
        return channel_fail(ch, -ENOMEM,
                            "this process has no memory for TLS; raise its memory limit");
    ch->mode = CHANNEL_SHAKING;
    int error = shake(ch);
    return error == 0 ? flush_sealed(ch) : error;
}

void channel_accept_keys(struct channel *ch, key_find_fn find, void *context)
{
    ch->mode = CHANNEL_UNDECIDED;
    ch->find_key = find;
    ch->find_context = context;
    ch->frame_bytes_max = CHANNEL_GREETING_BYTES_MAX;
}

const char *channel_tenant(const struct channel *ch)
{
    return ch->mode == CHANNEL_SEALED ? tls_tenant(ch->tls) : NULL;
}

/* Decides between TLS and plain from the peer's first bytes (T2). */
static int channel_decide(struct channel *ch)
{
    int is_tls = tls_is_hello(ch->in.bytes + ch->in.first, buffer_waiting(&ch->in));
    if (is_tls < 0)
        return 0;
    if (!is_tls) {
        ch->mode = CHANNEL_PLAIN;
        return 0;
    }
    if (tls_create_server(ch->find_key, ch->find_context, &ch->tls) < 0)
        return channel_fail(ch, -ENOMEM,
                            "this process has no memory for TLS; raise its memory limit");
    struct buffer first = ch->in;
    ch->in = (struct buffer){0};
    ch->mode = CHANNEL_SHAKING;
    int error = take_sealed(ch, first.bytes + first.first, buffer_waiting(&first));
    free(first.bytes);
    return error;
}

/* --- both ------------------------------------------------------------------------------------ */

uint32_t channel_events(const struct channel *ch)
{
    const struct buffer *waiting = ch->tls ? &ch->sealed : &ch->out;
    return buffer_waiting(waiting) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

int channel_flush(struct channel *ch)
{
    if (ch->failed != 0)
        return ch->failed;
    return ch->tls ? flush_sealed(ch) : send_waiting(ch, &ch->out);
}

int channel_read(struct channel *ch)
{
    uint8_t sealed[READ_BYTES_MIN];
    size_t got = 0;
    int error;
    if (ch->tls) {
        error = receive_some(ch, sealed, sizeof sealed, &got);
        return error == 0 ? take_sealed(ch, sealed, got) : error;
    }
    if (buffer_reserve(&ch->in, READ_BYTES_MIN) < 0)
        return channel_fail(
            ch, -ENOMEM, "this process has no memory to receive a message; raise its memory limit");
    error = receive_some(ch, ch->in.bytes + ch->in.end, ch->in.capacity - ch->in.end, &got);
    if (error < 0)
        return error;
    ch->in.end += got;
    return ch->mode == CHANNEL_UNDECIDED ? channel_decide(ch) : 0;
}
