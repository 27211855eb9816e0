/* A peer of fabric_ofi that writes the provider's wire format itself, with any content. */
#ifndef GRADPOOL_TEST_OFI_STRANGER_H
#define GRADPOOL_TEST_OFI_STRANGER_H

#include <stddef.h>
#include <stdint.h>

#define STRANGER_REQUEST_BYTES_MAX 128

/* Connects a plain socket to "127.0.0.1:port". Sends no bytes. */
int stranger_connect(const char *address);

/* Writes a whole connect request with the ticket "hostile". Returns its length. `order` 1: the
 * peer's bytes are little endian. */
size_t stranger_request(uint64_t order, uint8_t ret_bytes[STRANGER_REQUEST_BYTES_MAX]);

#endif
