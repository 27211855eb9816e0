/* Hello: the connect and accept data of a fabric_ofi connection (O7). */
#ifndef GRADPOOL_FABRIC_OFI_MESSAGE_HELLO_H
#define GRADPOOL_FABRIC_OFI_MESSAGE_HELLO_H

#include "svc/fabric/fabric.h"

#define OFI_VERSION 2
/* Layout in the message; the ticket follows. An RDMA device pads the data, so the length of the
 * ticket is a field. */
struct ofi_hello {
    uint8_t version;
    uint8_t ticket_bytes;
    uint8_t payload_bytes_max[4]; /* little endian */
};
#define OFI_HELLO_BYTES_MAX (sizeof(struct ofi_hello) + FABRIC_TICKET_BYTES_MAX)
_Static_assert(OFI_HELLO_BYTES_MAX < 56, "fits verbs connect data");

struct ofi_hello_said {
    uint32_t payload_bytes_max;
    size_t ticket_bytes;
    uint8_t ticket[FABRIC_TICKET_BYTES_MAX];
};

/* Writes the data and returns its length. `ticket_bytes` is at most FABRIC_TICKET_BYTES_MAX. */
size_t ofi_hello_pack(uint32_t payload_bytes_max, const void *ticket, size_t ticket_bytes,
                      uint8_t ret_data[OFI_HELLO_BYTES_MAX]);
/* Checks the data of a peer. Returns 0, or -EPROTO if it is not a hello of this version. */
int ofi_hello_check(const void *data, size_t bytes, struct ofi_hello_said *ret_said);

#endif
