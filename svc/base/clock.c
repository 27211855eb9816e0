/* Time in nanoseconds. Owns nothing. */
#include "svc/base/clock.h"

#include <limits.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void) { return read_clock(CLOCK_MONOTONIC); }
uint64_t clock_thread_cpu_ns(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
uint64_t clock_process_cpu_ns(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

uint64_t clock_deadline_ns(uint64_t now_ns, int64_t ms)
{
    uint64_t wait_ns, deadline_ns;
    if (ms < 0 || __builtin_mul_overflow((uint64_t)ms, NS_PER_MS, &wait_ns) ||
        __builtin_add_overflow(now_ns, wait_ns, &deadline_ns))
        return UINT64_MAX;
    return deadline_ns;
}

int clock_poll_ms(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns == UINT64_MAX)
        return -1;
    if (deadline_ns <= now_ns)
        return 0;
    uint64_t left_ns = deadline_ns - now_ns;
    uint64_t ms = left_ns / NS_PER_MS + (left_ns % NS_PER_MS != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}
