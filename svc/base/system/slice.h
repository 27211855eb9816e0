/* The scheduler's time slice: how long a thread keeps its core while others wait for this core. */
#ifndef GRADPOOL_BASE_SYSTEM_SLICE_H
#define GRADPOOL_BASE_SYSTEM_SLICE_H

#include <stdint.h>

/* Sets the time slice of the calling thread, and of threads and children that the thread starts
 * later. Policy and niceness do not change. The kernel accepts slices of 0.1 to 100 ms. The call
 * has no effect before Linux 6.12, or under real-time policies. */
void slice_set(uint64_t ns);

#endif
