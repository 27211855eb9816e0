/* The clock of a worker over all its tables, and the numbers of its requests. The caller holds the
 * job's lock. */
#ifndef GRADPOOL_CLIENT_TABLE_CLOCK_H
#define GRADPOOL_CLIENT_TABLE_CLOCK_H

#include "svc/wire/record.h"

#include <stddef.h>

/* Clock of a worker. A zeroed clock is valid before the first request: the worker is in clock 1. */
struct worker_clock {
    uint64_t ended;    /* number of clocks that have ended; the worker is in clock ended + 1 */
    uint64_t sequence; /* number of the last request, over all tables; 0: none */
    uint64_t session;  /* number of the worker's session at the coordinator */
};

static inline uint64_t worker_clock_now(const struct worker_clock *clock)
{
    return clock->ended + 1;
}

/* Ends the worker's present clock. Returns 0, or -EOVERFLOW if there is no number for a later
 * clock; the clock is then unchanged. */
int worker_clock_end(struct worker_clock *clock);
/* Returns the number of the next request, from 1; 0: all numbers are used. */
uint64_t worker_clock_next_request(struct worker_clock *clock);

/* Fills in one CLOCK record for up to RECORD_CLOCK_TABLES_MAX of `tables`, from index `first` on.
 * `tables` has the ascending numbers of tables on one lane. Returns the number of tables in the
 * record; 0: none are left. `form`: ENDED or STANDING. */
uint32_t worker_clock_record(const struct worker_clock *clock, enum record_clock_form form,
                             const uint32_t *tables, size_t count, size_t first,
                             struct record_clock *ret_record);

#endif
