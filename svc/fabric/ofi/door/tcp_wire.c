/* Follows the headers of libfabric's `tcp` provider (1.17) in both directions of one connection.
 * Owns the rules for bytes that may arrive (README, O12). All bytes from a correct provider are
 * accepted. Bytes that the provider's parser would use unchecked are refused. */
#include "svc/fabric/ofi/door/tcp_wire.h"

#include <errno.h>
#include <string.h>

#define VERSION 3
#define OP_DATA_ACK 2
#define FLAG_WORD 0x1
/* commit complete: refused, because the provider would flush memory at an unchecked address */
#define FLAG_COMMIT 0x8
/* flags that require an acknowledgement: delivery complete, commit complete */
#define FLAGS_ANSWERED 0xc

enum op { OP_MESSAGE = 0, OP_READ = 2, OP_RESPONSE = 3, OP_WRITE = 4 };

/* Little endian, because the door refuses peers with another byte order (O8). */
struct tcp_header {
    uint8_t version, op;
    uint16_t flags;
    uint8_t op_data, places, header_bytes, unused;
    uint64_t bytes; /* length including the header */
};

struct tcp_place {
    uint64_t address, bytes, key;
};

_Static_assert(sizeof(struct tcp_header) == 16, "the provider's base header");
_Static_assert(sizeof(struct tcp_place) == 24, "the provider's place of a transfer");

void tcp_wire_init(struct tcp_wire *w, uint64_t message_bytes_max)
{
    *w = (struct tcp_wire){.message_bytes_max = message_bytes_max};
}

static struct tcp_header tcp_header_of(const struct tcp_stream *s)
{
    struct tcp_header h;
    memcpy(&h, s->header, sizeof(h));
    return h;
}

/* Returns the length of the address range of a transfer that names only one range. */
static uint64_t tcp_place_bytes(const struct tcp_stream *s, const struct tcp_header *h)
{
    struct tcp_place place;
    size_t offset = sizeof(*h) + (h->op == OP_WRITE && h->flags & FLAG_WORD ? 8 : 0);
    memcpy(&place, s->header + offset, sizeof(place));
    return place.bytes;
}

static bool tcp_has_one_place(const struct tcp_header *h)
{
    size_t word_bytes = h->op == OP_WRITE && h->flags & FLAG_WORD ? 8 : 0;
    return h->places == 1 && h->header_bytes == sizeof(*h) + word_bytes + sizeof(struct tcp_place);
}

/* --- bytes that arrive ----------------------------------------------------------------------- */

static bool tcp_owes(unsigned *owed) { return ++*owed <= TCP_ANSWERS_MAX; }

static bool tcp_settles(unsigned *due)
{
    if (*due == 0)
        return false;
    --*due;
    return true;
}

/* Returns whether the peer may send this message now. An acknowledgement is allowed only if one is
 * due, because otherwise the provider would read from an empty list. */
static bool tcp_may_message(struct tcp_wire *w, const struct tcp_header *h)
{
    uint64_t body_bytes = h->bytes - h->header_bytes;
    if (h->header_bytes != sizeof(*h))
        return false;
    if (h->op_data == OP_DATA_ACK)
        return body_bytes == 0 && tcp_settles(&w->acks_due);
    if (body_bytes > w->message_bytes_max || h->flags & FLAG_WORD)
        return false;
    return (h->flags & FLAGS_ANSWERED) == 0 || tcp_owes(&w->acks_owed);
}

/* Returns whether the peer may send this response now. A response that is too short would leave old
 * bytes in the slot. A response to a read that was not sent would end another operation. */
static bool tcp_may_response(struct tcp_wire *w, const struct tcp_header *h)
{
    if (w->reads_head == w->reads_tail || h->header_bytes != sizeof(*h))
        return false;
    return h->bytes - h->header_bytes == w->read_bytes[w->reads_tail++ % TCP_READS_MAX];
}

/* Returns whether the peer may send this write. The provider itself checks, with the key, whether
 * the memory is lent. */
static bool tcp_may_write(struct tcp_wire *w, const struct tcp_header *h)
{
    if (!tcp_has_one_place(h) || h->bytes - h->header_bytes != tcp_place_bytes(&w->in, h))
        return false;
    return (h->flags & FLAGS_ANSWERED) == 0 || tcp_owes(&w->acks_owed);
}

static bool tcp_may_come(struct tcp_wire *w, const struct tcp_header *h)
{
    if (h->version != VERSION || h->bytes < h->header_bytes || h->flags & FLAG_COMMIT)
        return false;
    switch (h->op) {
    case OP_MESSAGE: return tcp_may_message(w, h);
    case OP_READ:
        return tcp_has_one_place(h) && h->bytes == h->header_bytes && tcp_owes(&w->responses_owed);
    case OP_RESPONSE: return tcp_may_response(w, h);
    case OP_WRITE: return tcp_may_write(w, h);
    /* for example tagged messages, which need a shared receive context; the fabric has none */
    default: return false;
    }
}

/* --- bytes that were sent -------------------------------------------------------------------- */

static int tcp_went_whole(struct tcp_wire *w, const struct tcp_header *h)
{
    if (h->op == OP_READ) {
        if (w->reads_head - w->reads_tail == TCP_READS_MAX || !tcp_has_one_place(h))
            return -EPROTO;
        w->read_bytes[w->reads_head++ % TCP_READS_MAX] = tcp_place_bytes(&w->out, h);
    } else if (h->op == OP_RESPONSE) {
        return tcp_settles(&w->responses_owed) ? 0 : -EPROTO;
    } else if (h->op == OP_MESSAGE && h->op_data == OP_DATA_ACK) {
        return tcp_settles(&w->acks_owed) ? 0 : -EPROTO;
    } else if (h->flags & FLAGS_ANSWERED) {
        w->acks_due++;
    }
    return 0;
}

/* --- both directions -------------------------------------------------------------------------- */

/* Collects bytes of the header from the next `count` bytes. `ret_is_whole`: the header is
 * complete. */
static int tcp_gather(struct tcp_stream *s, const uint8_t *bytes, size_t count, size_t *ret_taken,
                      bool *ret_is_whole)
{
    size_t taken = 0, wanted = sizeof(struct tcp_header);
    for (;;) {
        if (s->header_bytes >= sizeof(struct tcp_header))
            wanted = tcp_header_of(s).header_bytes;
        if (wanted < sizeof(struct tcp_header) || wanted > TCP_HEADER_BYTES_MAX)
            return -EPROTO;
        if (s->header_bytes == wanted || taken == count)
            break;
        size_t more = wanted - s->header_bytes;
        more = more < count - taken ? more : count - taken;
        memcpy(s->header + s->header_bytes, bytes + taken, more);
        s->header_bytes += (uint32_t)more;
        taken += more;
    }
    *ret_taken = taken;
    *ret_is_whole = s->header_bytes == wanted;
    return 0;
}

static bool tcp_stream_is_over(const struct tcp_stream *s)
{
    return s->body_left == 0 && s->header_bytes >= sizeof(struct tcp_header) &&
           s->header_bytes == tcp_header_of(s).header_bytes;
}

/* Collects the next bytes of a header. When the header is complete, checks it, and then expects the
 * body. */
static int tcp_follow_header(struct tcp_wire *w, struct tcp_stream *s, const uint8_t *bytes,
                             size_t count, size_t *ret_taken)
{
    bool is_whole;
    int error = tcp_gather(s, bytes, count, ret_taken, &is_whole);
    if (error < 0 || !is_whole)
        return error;
    struct tcp_header h = tcp_header_of(s);
    if (s == &w->in ? !tcp_may_come(w, &h) : h.bytes < h.header_bytes)
        return -EPROTO;
    s->body_left = h.bytes - h.header_bytes;
    return 0;
}

static int tcp_follow(struct tcp_wire *w, struct tcp_stream *s, const uint8_t *bytes, size_t count)
{
    for (size_t taken; count > 0; bytes += taken, count -= taken) {
        if (s->body_left > 0) {
            taken = count < s->body_left ? count : (size_t)s->body_left;
            s->body_left -= taken;
        } else {
            int error = tcp_follow_header(w, s, bytes, count, &taken);
            if (error < 0)
                return error;
        }
        if (!tcp_stream_is_over(s))
            continue;
        struct tcp_header h = tcp_header_of(s);
        s->header_bytes = 0;
        if (s == &w->out && tcp_went_whole(w, &h) < 0)
            return -EPROTO;
    }
    return 0;
}

int tcp_wire_came(struct tcp_wire *w, const void *bytes, size_t count)
{
    return tcp_follow(w, &w->in, bytes, count);
}

int tcp_wire_went(struct tcp_wire *w, const void *bytes, size_t count)
{
    return tcp_follow(w, &w->out, bytes, count);
}
