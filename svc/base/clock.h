/* Time, always uint64_t nanoseconds. */
#ifndef GRADPOOL_BASE_CLOCK_H
#define GRADPOOL_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

/* Monotonic, since some point in the past. */
uint64_t clock_now_ns(void);
/* CPU time of the calling thread. 0.4 us a call. */
uint64_t clock_thread_cpu_ns(void);
/* CPU time of the whole process. */
uint64_t clock_process_cpu_ns(void);
/* now + ms, or UINT64_MAX for a negative ms (no deadline) and for one past the end of time. */
uint64_t clock_deadline_ns(uint64_t now_ns, int64_t ms);
/* Milliseconds from now to a deadline for poll(): rounded up, 0 when past, at most INT_MAX, -1 for
 * UINT64_MAX. */
int clock_poll_ms(uint64_t deadline_ns, uint64_t now_ns);

#endif
