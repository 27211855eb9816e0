/* The bytes of libfabric's `tcp` provider on a connection's socket, followed in both directions, so
 * that none reaches its parser that would harm it (README, O12). Pure: no socket, no libfabric. */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_TCP_WIRE_H
#define GRADPOOL_FABRIC_OFI_DOOR_TCP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest header: a transfer with a word and four places. */
#define TCP_HEADER_BYTES_MAX 120
/* More of a kind than either end may have out (provider/types.h), rounded up. */
#define TCP_READS_MAX 256
#define TCP_ANSWERS_MAX 1024

/* One direction: a header that is being gathered, then the rest of its body. */
struct tcp_stream {
    uint8_t header[TCP_HEADER_BYTES_MAX];
    uint32_t header_bytes;
    uint64_t body_left;
};

struct tcp_wire {
    struct tcp_stream in, out;
    uint64_t message_bytes_max;
    /* lengths of the reads that were sent and are not answered */
    uint64_t read_bytes[TCP_READS_MAX];
    unsigned reads_head, reads_tail;
    unsigned acks_due;       /* acknowledgements that the peer owes for whole messages */
    unsigned acks_owed;      /* acknowledgements that this end owes */
    unsigned responses_owed; /* answers to reads that this end owes */
};

/* Starts to follow a new connection; a message has at most so many bytes. */
void tcp_wire_init(struct tcp_wire *w, uint64_t message_bytes_max);

/* Follows bytes that have come. 0, or -EPROTO: the provider must not see them, nor any later. */
int tcp_wire_came(struct tcp_wire *w, const void *bytes, size_t count);

/* Follows bytes that the provider has sent. 0, or -EPROTO: it is not known to send these. */
int tcp_wire_went(struct tcp_wire *w, const void *bytes, size_t count);

#endif
