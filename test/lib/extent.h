/* Number of repetitions of a test. GRADPOOL_TEST_LONG, which `test/run.sh --long` sets, selects the
 * largest number. The default is smaller. Builds with sanitizers use the smallest number, because
 * sanitizers slow down each step. */
#ifndef TEST_LIB_EXTENT_H
#define TEST_LIB_EXTENT_H

#include <stdint.h>
#include <stdlib.h>

static inline uint32_t extent(uint32_t by_default, uint32_t sanitized, uint32_t whole)
{
    if (getenv("GRADPOOL_TEST_LONG"))
        return whole;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return sanitized;
#else
    return by_default;
#endif
}

#endif
