/* A peer of fabric_ofi that speaks its provider's wire by hand, and says whatever a test likes. */
#ifndef GRADPOOL_TEST_OFI_STRANGER_H
#define GRADPOOL_TEST_OFI_STRANGER_H

#include <stddef.h>
#include <stdint.h>

#define STRANGER_REQUEST_BYTES_MAX 128

/* A plain socket to "127.0.0.1:port"; nothing is said. */
int stranger_connect(const char *address);

/* A whole connect request with the ticket "hostile": its length. `order` is 1 where the peer says
 * that its bytes are little endian. */
size_t stranger_request(uint64_t order, uint8_t ret_bytes[STRANGER_REQUEST_BYTES_MAX]);

#endif
