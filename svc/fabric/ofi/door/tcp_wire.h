/* Follows the bytes of libfabric's `tcp` provider on the socket of a connection, in both
 * directions, so that no harmful byte reaches the provider's parser (README, O12). Pure: uses no
 * socket and not libfabric. */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_TCP_WIRE_H
#define GRADPOOL_FABRIC_OFI_DOOR_TCP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the longest header: a transfer with a word and four places. */
#define TCP_HEADER_BYTES_MAX 120
/* More operations of one kind than either end may have posted (provider/types.h), rounded up. */
#define TCP_READS_MAX 256
#define TCP_ANSWERS_MAX 1024

/* State of one direction: the header that is being collected, then the rest of its body. */
struct tcp_stream {
    uint8_t header[TCP_HEADER_BYTES_MAX];
    uint32_t header_bytes;
    uint64_t body_left;
};

struct tcp_wire {
    struct tcp_stream in, out;
    uint64_t message_bytes_max;
    /* lengths of the reads that were sent and not answered */
    uint64_t read_bytes[TCP_READS_MAX];
    unsigned reads_head, reads_tail;
    unsigned acks_due;       /* acknowledgements that the peer has yet to send for whole messages */
    unsigned acks_owed;      /* acknowledgements that this end has yet to send */
    unsigned responses_owed; /* answers to reads that this end has yet to send */
};

/* Begins to follow a new connection. A message has at most `message_bytes_max`. */
void tcp_wire_init(struct tcp_wire *w, uint64_t message_bytes_max);

/* Follows bytes that have arrived. -EPROTO: the provider must not get these bytes, nor any later
 * ones. */
int tcp_wire_came(struct tcp_wire *w, const void *bytes, size_t count);

/* Follows bytes that the provider has sent. -EPROTO: the provider is not expected to send these
 * bytes. */
int tcp_wire_went(struct tcp_wire *w, const void *bytes, size_t count);

#endif
