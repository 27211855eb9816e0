/* The scheduler's slice: how long a thread keeps its core while others wait for the core. */
#ifndef GRADPOOL_BASE_SYSTEM_SLICE_H
#define GRADPOOL_BASE_SYSTEM_SLICE_H

#include <stdint.h>

/* Sets the slice of the calling thread, and of threads and children that the thread starts later;
 * policy and niceness stay. The kernel keeps it within 0.1 to 100 ms. Without effect before Linux
 * 6.12, and under real-time policies. */
void slice_set(uint64_t ns);

#endif
