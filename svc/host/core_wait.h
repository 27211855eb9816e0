/* Measures how long a thread has waited for its core. */
#ifndef GRADPOOL_HOST_CORE_WAIT_H
#define GRADPOOL_HOST_CORE_WAIT_H

#include <stdint.h>

/* Returns the total time for which the calling thread was ready but did not run. 0: the kernel does
 * not count this time. Makes a few system calls. */
uint64_t core_wait_ns(void);

#endif
