/* Writes and checks the hello of fabric_ofi. A peer's bytes, including the lengths in them, are
 * first copied and then checked. */
#include "svc/fabric/ofi/message/hello.h"

#include <errno.h>
#include <string.h>

size_t ofi_hello_pack(uint32_t payload_bytes_max, const void *ticket, size_t ticket_bytes,
                      uint8_t ret_data[OFI_HELLO_BYTES_MAX])
{
    struct ofi_hello hello = {.version = OFI_VERSION, .ticket_bytes = (uint8_t)ticket_bytes};
    memcpy(hello.payload_bytes_max, &payload_bytes_max, sizeof(hello.payload_bytes_max));
    memcpy(ret_data, &hello, sizeof(hello));
    if (ticket_bytes > 0)
        memcpy(ret_data + sizeof(hello), ticket, ticket_bytes);
    return sizeof(hello) + ticket_bytes;
}

int ofi_hello_check(const void *data, size_t bytes, struct ofi_hello_said *ret_said)
{
    struct ofi_hello hello;
    if (bytes < sizeof(hello))
        return -EPROTO;
    memcpy(&hello, data, sizeof(hello));
    if (hello.version != OFI_VERSION || hello.ticket_bytes > FABRIC_TICKET_BYTES_MAX ||
        hello.ticket_bytes > bytes - sizeof(hello))
        return -EPROTO;
    memcpy(&ret_said->payload_bytes_max, hello.payload_bytes_max, sizeof(hello.payload_bytes_max));
    memcpy(ret_said->ticket, (const uint8_t *)data + sizeof(hello), hello.ticket_bytes);
    ret_said->ticket_bytes = hello.ticket_bytes;
    return 0;
}
