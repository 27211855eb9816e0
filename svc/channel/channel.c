/* A control connection. Owns its socket, the bytes that have arrived and the bytes that wait to be
 * sent; converts frames to messages and messages to frames. Never blocks. Every length and message
 * from the peer is checked. Memory for a peer never exceeds the limits in this file (README, H1 to
 * H8). */
#include "svc/channel/internal.h"

#include "svc/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_HEADER_BYTES 4
/* Maximum bytes of an unfinished frame that one call reads. The rest of the frame is read after
 * other connections were served. */
#define RECEIVE_BYTES_MAX (256u << 10)
/* Maximum memory for the structs of one message. Two bytes of an empty submessage need sixty bytes
 * of memory (H4). */
#define UNPACKED_BYTES_MAX (8u * CHANNEL_FRAME_BYTES_MAX)

/* Writes the first bytes in hexadecimal digits, so that a person can identify the program that has
 * connected. */
static void describe_bytes(const uint8_t *bytes, size_t count, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (size_t i = 0; i < count && i < 8; i++)
        text_append(text, text_bytes, "%s%02x", i == 0 ? "" : " ", bytes[i]);
}

/* --- the socket ------------------------------------------------------------------------------ */

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
    ch->frame_bytes_max = ch->held_bytes = CHANNEL_FRAME_BYTES_MAX;
    channel_describe_peer(ch, family);
    if (family != AF_UNIX)
        channel_tune_tcp(fd);
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
    free(ch->sealed.bytes);
    tls_destroy(ch->tls);
    free(ch);
}

int channel_fd(const struct channel *ch) { return ch->fd; }

const char *channel_peer(const struct channel *ch) { return ch->peer; }
const char *channel_failure(const struct channel *ch) { return ch->failure; }
enum channel_end channel_how_ended(const struct channel *ch) { return ch->end; }
uint64_t channel_next_id(struct channel *ch) { return ++ch->last_id; }

/* --- sending --------------------------------------------------------------------------------- */

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
        return channel_fail(ch, -ENOMEM,
                            "this process has no memory to send %zu bytes; raise its memory limit",
                            bytes);
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
        return channel_fail(ch, -EMSGSIZE, "a message has %zu bytes, but a frame has 1 to %u",
                            bytes, CHANNEL_FRAME_BYTES_MAX);
    if (buffer_waiting(&ch->out) + FRAME_HEADER_BYTES + bytes > CHANNEL_BACKLOG_BYTES_MAX)
        return channel_fail(ch, -ENOBUFS, "the peer does not read: %zu bytes wait to be sent",
                            buffer_waiting(&ch->out));
    int error = queue_frame(ch, message, bytes);
    return error < 0 ? error : channel_flush(ch);
}

/* --- receiving ------------------------------------------------------------------------------- */

/* Allocates memory for one message, up to UNPACKED_BYTES_MAX. The memory is freed with free(), for
 * example by free_unpacked(m, NULL). */
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
                            "expected a message, got %zu bytes of another format (first bytes %s); "
                            "do both ends run the same version of gradpool?",
                            count, first);
    }
    *ret_message = message;
    return 0;
}

/* Removes the next whole frame from the buffer. Returns 0, or -EAGAIN if the frame is not whole
 * yet. */
static int take_frame(struct channel *ch, envelope **ret_message)
{
    if (buffer_waiting(&ch->in) < FRAME_HEADER_BYTES)
        return -EAGAIN;
    const uint8_t *at = ch->in.bytes + ch->in.first;
    uint32_t bytes = get_u32(at);
    if (bytes == 0 || bytes > ch->frame_bytes_max) {
        char first[32];
        describe_bytes(at, buffer_waiting(&ch->in), first, sizeof(first));
        return channel_fail(ch, -EBADMSG,
                            "expected a frame of 1 to %u bytes, got one of %u; "
                            "not a gradpool endpoint? first bytes %s",
                            ch->frame_bytes_max, bytes, first);
    }
    if (buffer_waiting(&ch->in) - FRAME_HEADER_BYTES < bytes)
        return -EAGAIN;
    int error = unpack_frame(ch, at + FRAME_HEADER_BYTES, bytes, ret_message);
    if (error == 0)
        buffer_take(&ch->in, FRAME_HEADER_BYTES + bytes);
    ch->frame_bytes_max = CHANNEL_FRAME_BYTES_MAX;
    return error;
}

void channel_hold_frames(struct channel *ch, uint32_t bytes) { ch->held_bytes = bytes; }

/* The result is valid only while the buffer `in` has no whole frame, because only the first length
 * in the buffer is read. */
uint32_t channel_frame_bytes(const struct channel *ch)
{
    bool has_begun = buffer_waiting(&ch->in) >= FRAME_HEADER_BYTES;
    return has_begun ? get_u32(ch->in.bytes + ch->in.first) : 0;
}

size_t channel_backlog(const struct channel *ch)
{
    return buffer_waiting(&ch->out) + buffer_waiting(&ch->sealed);
}

bool channel_has_more(const struct channel *ch) { return ch->is_cut; }

int channel_receive(struct channel *ch, envelope **ret_message)
{
    size_t before = buffer_waiting(&ch->in);
    int error = ch->failed;
    ch->is_cut = false;
    while (error == 0) {
        error = take_frame(ch, ret_message);
        if (error != -EAGAIN || channel_frame_bytes(ch) > ch->held_bytes)
            return error;
        ch->is_cut = buffer_waiting(&ch->in) > before + RECEIVE_BYTES_MAX;
        if (ch->is_cut)
            return -EAGAIN;
        error = channel_read(ch);
    }
    return error;
}

void channel_library(struct library *ret_row)
{
    ret_row->name = "protobuf-c";
    snprintf(ret_row->built, sizeof ret_row->built, "%s", PROTOBUF_C_VERSION);
    snprintf(ret_row->running, sizeof ret_row->running, "%s", protobuf_c_version());
}
