/* Owns one control connection: its socket and the bytes that wait in either direction.
 * It must never block, never trust a length or a message of the peer, and
 * never hold more memory for a peer than the maxima named here (README, H1 to H8). */
#include "svc/wire/channel.h"

#include "svc/base/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_HEADER_BYTES 4
/* What one recv() asks for at least. */
#define READ_BYTES_MIN (16u << 10)
/* A buffer that has run empty keeps at most this much for the next message (H3). */
#define BUFFER_KEPT_BYTES_MAX (64u << 10)
/* Structs that one message may unpack to: two bytes of an empty submessage become sixty (H4). */
#define UNPACKED_BYTES_MAX (8u * CHANNEL_FRAME_BYTES_MAX)
/* A peer whose host lost power is noticed after about this long (H6). */
#define SILENT_PEER_MS 10000
#define KEEPALIVE_IDLE_S 4
#define KEEPALIVE_INTERVAL_S 2
#define KEEPALIVE_PROBES 3
#define PEER_TEXT_BYTES 80

/* Bytes first .. end wait; what lies before them has been taken. */
struct buffer {
    uint8_t *bytes;
    size_t capacity, first, end;
};

struct channel {
    int fd;
    int failed; /* the first error; every later verb returns it */
    uint64_t last_id;
    struct buffer in, out;
    char peer[PEER_TEXT_BYTES];
    char failure[ERR_TEXT_BYTES];
};

/* --- buffers --------------------------------------------------------------------------------- */

static size_t buffer_waiting(const struct buffer *b) { return b->end - b->first; }

static void buffer_take(struct buffer *b, size_t bytes)
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

/* Makes room for `bytes` more behind the end. Moving is worth it only when at least half of what
 * is used has been taken: so each byte is moved O(1) times. */
static int buffer_reserve(struct buffer *b, size_t bytes)
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

/* --- failure --------------------------------------------------------------------------------- */

/* Remembers the first failure and its text; returns its code. */
__attribute__((format(printf, 3, 4))) static int channel_fail(struct channel *ch, int code,
                                                              const char *format, ...)
{
    if (ch->failed != 0)
        return ch->failed;
    ch->failed = code;
    int used = snprintf(ch->failure, sizeof(ch->failure), "%s: ", ch->peer);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ch->failure + used, sizeof(ch->failure) - (size_t)used, format, arguments);
    va_end(arguments);
    return code;
}

/* However a connection ends, for the caller it is one case: the peer is gone. */
static int channel_fail_gone(struct channel *ch, int error)
{
    return channel_fail(ch, -ECONNRESET, "connection lost: %s", err_text(-error));
}

/* The first bytes in hex, so that a person sees what knocked at the port. */
static void describe_bytes(const uint8_t *bytes, size_t count, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (size_t i = 0; i < count && i < 8; i++)
        text_append(text, text_bytes, "%s%02x", i == 0 ? "" : " ", bytes[i]);
}

/* --- the socket ------------------------------------------------------------------------------ */

static void describe_unix_peer(struct channel *ch)
{
    int pid;
    uint32_t uid;
    if (channel_credentials(ch, &pid, &uid) == 0)
        snprintf(ch->peer, sizeof(ch->peer), "unix pid %d uid %u", pid, uid);
    else
        snprintf(ch->peer, sizeof(ch->peer), "unix peer");
}

static void describe_peer(struct channel *ch, int family)
{
    struct sockaddr_storage address = {0};
    socklen_t address_bytes = sizeof(address);
    char host[INET6_ADDRSTRLEN];
    if (family == AF_UNIX) {
        describe_unix_peer(ch);
    } else if (getpeername(ch->fd, (struct sockaddr *)&address, &address_bytes) < 0) {
        snprintf(ch->peer, sizeof(ch->peer), "peer that has already left");
    } else if (family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        snprintf(ch->peer, sizeof(ch->peer), "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        snprintf(ch->peer, sizeof(ch->peer), "%s:%u", host, ntohs(v4->sin_port));
    }
}

static void set_option(int fd, int level, int option, int value)
{
    /* Best effort: without these the connection is slower or notices death later, but works. */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

static void tune_tcp(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_PEER_MS);
}

int channel_create(int fd, struct channel **ret_channel)
{
    int family;
    socklen_t family_bytes = sizeof(family);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &family_bytes) < 0)
        return -errno;
    if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
        return -EAFNOSUPPORT;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    struct channel *ch = calloc(1, sizeof(*ch));
    if (ch == NULL)
        return -ENOMEM;
    ch->fd = fd;
    describe_peer(ch, family);
    if (family != AF_UNIX)
        tune_tcp(fd);
    *ret_channel = ch;
    return 0;
}

void channel_destroy(struct channel *ch)
{
    if (ch == NULL)
        return;
    close(ch->fd);
    free(ch->in.bytes);
    free(ch->out.bytes);
    free(ch);
}

int channel_fd(const struct channel *ch) { return ch->fd; }

uint32_t channel_events(const struct channel *ch)
{
    return buffer_waiting(&ch->out) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

const char *channel_peer(const struct channel *ch) { return ch->peer; }
const char *channel_failure(const struct channel *ch) { return ch->failure; }
uint64_t channel_next_id(struct channel *ch) { return ++ch->last_id; }

int channel_credentials(const struct channel *ch, int *ret_pid, uint32_t *ret_uid)
{
    struct sockaddr_storage address = {0};
    socklen_t address_bytes = sizeof(address);
    struct ucred who;
    socklen_t who_bytes = sizeof(who);
    if (getsockname(ch->fd, (struct sockaddr *)&address, &address_bytes) < 0)
        return -errno;
    if (address.ss_family != AF_UNIX)
        return -ENOTSUP; /* on TCP SO_PEERCRED succeeds too, and tells nothing */
    if (getsockopt(ch->fd, SOL_SOCKET, SO_PEERCRED, &who, &who_bytes) < 0)
        return -errno;
    *ret_pid = who.pid;
    *ret_uid = who.uid;
    return 0;
}

/* --- sending --------------------------------------------------------------------------------- */

int channel_flush(struct channel *ch)
{
    while (ch->failed == 0 && buffer_waiting(&ch->out) > 0) {
        ssize_t sent =
            send(ch->fd, ch->out.bytes + ch->out.first, buffer_waiting(&ch->out), MSG_NOSIGNAL);
        if (sent >= 0)
            buffer_take(&ch->out, (size_t)sent);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        else if (errno != EINTR)
            return channel_fail_gone(ch, errno);
    }
    return ch->failed;
}

static void put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < FRAME_HEADER_BYTES; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get_u32(const uint8_t *at)
{
    uint32_t value = 0;
    for (int i = 0; i < FRAME_HEADER_BYTES; i++)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

static int queue_frame(struct channel *ch, const envelope *message, size_t bytes)
{
    if (buffer_reserve(&ch->out, FRAME_HEADER_BYTES + bytes) < 0)
        return channel_fail(ch, -ENOMEM, "no memory to send %zu bytes", bytes);
    uint8_t *at = ch->out.bytes + ch->out.end;
    put_u32(at, (uint32_t)bytes);
    gradpool__wire__envelope__pack(message, at + FRAME_HEADER_BYTES);
    ch->out.end += FRAME_HEADER_BYTES + bytes;
    return 0;
}

int channel_send(struct channel *ch, const envelope *message)
{
    if (ch->failed != 0)
        return ch->failed;
    size_t bytes = gradpool__wire__envelope__get_packed_size(message);
    if (bytes == 0 || bytes > CHANNEL_FRAME_BYTES_MAX)
        return channel_fail(ch, -EMSGSIZE, "a message of %zu bytes; a frame holds 1 to %u", bytes,
                            CHANNEL_FRAME_BYTES_MAX);
    if (buffer_waiting(&ch->out) + FRAME_HEADER_BYTES + bytes > CHANNEL_BACKLOG_BYTES_MAX)
        return channel_fail(ch, -ENOBUFS, "does not read: %zu bytes wait to be sent to it",
                            buffer_waiting(&ch->out));
    int r = queue_frame(ch, message, bytes);
    return r < 0 ? r : channel_flush(ch);
}

/* --- receiving ------------------------------------------------------------------------------- */

/* Memory for one message, up to UNPACKED_BYTES_MAX. What it returns is released with free(), so
 * that free_unpacked(m, NULL) fits. */
static void *unpack_allocate(void *context, size_t bytes)
{
    size_t *left = context;
    if (bytes > *left)
        return NULL;
    *left -= bytes;
    return malloc(bytes);
}

static void unpack_release(void *context, void *pointer) { free(pointer); }

static int unpack_frame(struct channel *ch, const uint8_t *bytes, size_t count,
                        envelope **ret_message)
{
    size_t left = UNPACKED_BYTES_MAX;
    ProtobufCAllocator allocator = {unpack_allocate, unpack_release, &left};
    envelope *message = gradpool__wire__envelope__unpack(&allocator, count, bytes);
    if (message == NULL) {
        char first[32];
        describe_bytes(bytes, count, first, sizeof(first));
        return channel_fail(ch, -EBADMSG,
                            "expected a message, got %zu bytes that are none (first bytes %s); "
                            "do both ends run the same version of gradpool?",
                            count, first);
    }
    *ret_message = message;
    return 0;
}

/* Takes the next whole frame out of what has been read; -EAGAIN when it is not whole yet. */
static int take_frame(struct channel *ch, envelope **ret_message)
{
    if (buffer_waiting(&ch->in) < FRAME_HEADER_BYTES)
        return -EAGAIN;
    const uint8_t *at = ch->in.bytes + ch->in.first;
    uint32_t bytes = get_u32(at);
    if (bytes == 0 || bytes > CHANNEL_FRAME_BYTES_MAX) {
        char first[32];
        describe_bytes(at, buffer_waiting(&ch->in), first, sizeof(first));
        return channel_fail(ch, -EBADMSG,
                            "expected a frame of 1 to %u bytes, got one of %u; "
                            "not a gradpool endpoint? first bytes %s",
                            CHANNEL_FRAME_BYTES_MAX, bytes, first);
    }
    if (buffer_waiting(&ch->in) - FRAME_HEADER_BYTES < bytes)
        return -EAGAIN;
    int r = unpack_frame(ch, at + FRAME_HEADER_BYTES, bytes, ret_message);
    if (r == 0)
        buffer_take(&ch->in, FRAME_HEADER_BYTES + bytes);
    return r;
}

static int read_more(struct channel *ch)
{
    if (buffer_reserve(&ch->in, READ_BYTES_MIN) < 0)
        return channel_fail(ch, -ENOMEM, "no memory to receive");
    ssize_t got;
    do
        got = recv(ch->fd, ch->in.bytes + ch->in.end, ch->in.capacity - ch->in.end, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        ch->in.end += (size_t)got;
        return 0;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return -EAGAIN;
    if (got < 0)
        return channel_fail_gone(ch, errno);
    return channel_fail(ch, -ECONNRESET, "closed the connection%s",
                        buffer_waiting(&ch->in) > 0 ? " in the middle of a message" : "");
}

int channel_receive(struct channel *ch, envelope **ret_message)
{
    int r = ch->failed;
    while (r == 0) {
        r = take_frame(ch, ret_message);
        if (r != -EAGAIN)
            return r;
        r = read_more(ch);
    }
    return r;
}
