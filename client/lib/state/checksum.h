/* Sums that show whether memory was overwritten. Pure. */
#ifndef GRADPOOL_CLIENT_LIB_STATE_CHECKSUM_H
#define GRADPOOL_CLIENT_LIB_STATE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Continues `sum`. A change of one 32-bit word, or an exchange of two words, gives another sum
 * except with a probability of 2^-64. For other changes that occur in scripts the probability is as
 * small. */
uint64_t checksum(uint64_t sum, const void *data, size_t bytes);

#endif
