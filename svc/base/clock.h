/* Time, always in uint64_t nanoseconds. */
#ifndef GRADPOOL_BASE_CLOCK_H
#define GRADPOOL_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

/* Returns the monotonic time since an unspecified point in the past. */
uint64_t clock_now_ns(void);
/* Returns the CPU time of the calling thread. A call takes 0.4 us. */
uint64_t clock_thread_cpu_ns(void);
/* Returns the CPU time of the whole process. */
uint64_t clock_process_cpu_ns(void);
/* Returns now + ms, or UINT64_MAX (no deadline) if ms is negative or the sum overflows. */
uint64_t clock_deadline_ns(uint64_t now_ns, int64_t ms);
/* Returns the milliseconds from now to a deadline, for poll(): rounded up and at most INT_MAX; 0
 * for a deadline in the past; -1 for UINT64_MAX. */
int clock_poll_ms(uint64_t deadline_ns, uint64_t now_ns);

#endif
