/* How long a thread has waited for its core. */
#ifndef GRADPOOL_HOST_CORE_WAIT_H
#define GRADPOOL_HOST_CORE_WAIT_H

#include <stdint.h>

/* Of the calling thread, so far: how long it could have run and did not. 0: the kernel does not
 * tell. A few system calls. */
uint64_t core_wait_ns(void);

#endif
