/* Names that no other process uses. Owns nothing; the random bits come from the kernel. */
#include "svc/base/system/unique.h"

#include "svc/base/clock.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

char *unique_name(const char *prefix, char *buffer, size_t buffer_bytes)
{
    uint32_t bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        bits = (uint32_t)clock_now_ns(); /* fallback for a kernel without random numbers */
    snprintf(buffer, buffer_bytes, "%s-%d-%08x", prefix, (int)getpid(), bits);
    return buffer;
}
