/* Speed of the network on which a lane listens. */
#ifndef GRADPOOL_HOST_NETWORK_H
#define GRADPOOL_HOST_NETWORK_H

#include <stdint.h>

/* Returns the speed of the interface with this address ("10.0.0.7:4711", "[fe80::1]:4711"), as the
 * kernel reports it. 0: unknown, as for loopback and most virtual interfaces. */
uint64_t network_bytes_per_s(const char *address);

#endif
