/* Follows the bytes of libfabric's `tcp` provider on a connection's socket, in both directions, so
 * that no harmful byte reaches the provider's parser (README, O12). The functions use neither
 * sockets nor libfabric. */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_TCP_WIRE_H
#define GRADPOOL_FABRIC_OFI_DOOR_TCP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the longest header: a transfer with a word and four address ranges. */
#define TCP_HEADER_BYTES_MAX 120
/* Maximum numbers of open operations that this file follows. These maximums are larger than the
 * numbers of operations that an end may post (provider/types.h). */
#define TCP_READS_MAX 256
#define TCP_ANSWERS_MAX 1024

/* State of one direction: first the header that is being collected, then the remaining bytes of its
 * body. */
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
    /* number of acknowledgements that the peer still has to send for complete messages */
    unsigned acks_due;
    unsigned acks_owed;      /* number of acknowledgements that this end still has to send */
    unsigned responses_owed; /* number of answers to reads that this end still has to send */
};

/* Begins to follow a new connection. `message_bytes_max`: longest message. */
void tcp_wire_init(struct tcp_wire *w, uint64_t message_bytes_max);

/* Checks bytes that have arrived. Returns 0, or -EPROTO if the provider must not read these bytes
 * or any later bytes. */
int tcp_wire_came(struct tcp_wire *w, const void *bytes, size_t count);

/* Checks bytes that the provider has sent. Returns 0, or -EPROTO if the provider should not send
 * such bytes. */
int tcp_wire_went(struct tcp_wire *w, const void *bytes, size_t count);

#endif
