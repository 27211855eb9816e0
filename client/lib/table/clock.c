/* Counts clocks and requests of a worker, and writes the records that announce clocks. */
#include "client/lib/table/clock.h"

#include <errno.h>
#include <string.h>

int worker_clock_end(struct worker_clock *clock)
{
    if (clock->ended >= RECORD_CLOCK_MOST - 1)
        return -EOVERFLOW;
    clock->ended++;
    return 0;
}

uint64_t worker_clock_next_request(struct worker_clock *clock)
{
    return clock->sequence < RECORD_CLOCK_MOST ? ++clock->sequence : 0;
}

uint32_t worker_clock_record(const struct worker_clock *clock, enum record_clock_form form,
                             const uint32_t *tables, size_t count, size_t first,
                             struct record_clock *ret_record)
{
    size_t left = first < count ? count - first : 0;
    uint32_t taken = left < RECORD_CLOCK_TABLES_MAX ? (uint32_t)left : RECORD_CLOCK_TABLES_MAX;
    *ret_record = (struct record_clock){.kind = RECORD_CLOCK,
                                        .form = (uint8_t)form,
                                        .count = (uint8_t)taken,
                                        .clock = clock->ended,
                                        .session = clock->session,
                                        .sequence = clock->sequence};
    if (taken > 0)
        memcpy(ret_record->tables, tables + first, taken * sizeof *tables);
    return taken;
}
