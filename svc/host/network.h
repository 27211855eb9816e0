/* How fast the network is on which a lane listens. */
#ifndef GRADPOOL_HOST_NETWORK_H
#define GRADPOOL_HOST_NETWORK_H

#include <stdint.h>

/* Of the interface that has this address ("10.0.0.7:4711", "[fe80::1]:4711"), as the kernel tells
 * it; 0: not known, as of loopback and of most virtual ones. */
uint64_t network_bytes_per_s(const char *address);

#endif
