/* Sums over memory that somebody else may have written to. Pure. */
#ifndef GRADPOOL_CLIENT_LIB_STATE_CHECKSUM_H
#define GRADPOOL_CLIENT_LIB_STATE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from `sum`. Any change of one word of 32 bits, or of the places of two, gives another
 * sum but for a chance of 2^-64; others but for one that is as small for what scripts do. */
uint64_t checksum(uint64_t sum, const void *data, size_t bytes);

#endif
