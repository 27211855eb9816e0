/* Checksums that detect changes of memory. */
#ifndef GRADPOOL_CLIENT_LIB_STATE_CHECKSUM_H
#define GRADPOOL_CLIENT_LIB_STATE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Continues `sum`. A changed 32-bit word, or two swapped words, change the sum except with a
 * probability of 2^-64. Other accidental changes are missed with a similar probability. */
uint64_t checksum(uint64_t sum, const void *data, size_t bytes);

#endif
