/* Announcements of ranks about rounds. */
#ifndef GRADPOOL_LANE_JOB_ANNOUNCEMENT_H
#define GRADPOOL_LANE_JOB_ANNOUNCEMENT_H

#include "svc/base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct operation;

/* A worker's announcement of one round. Two are kept per rank, by the round's last bit (W3). */
struct announcement {
    struct list tell_link; /* in worker.owed while something is to be told */
    uint64_t round;        /* 0: none */
    uint64_t closed_round; /* whose result answers it, when it came late */
    uint32_t word;
    uint8_t standing; /* enum record_standing */
    uint8_t owes;     /* TELL_* */
    uint32_t input_region;
    uint64_t input_offset, input_stride;
    uint32_t output_region;
    bool has_output;
    uint64_t output_offset, output_stride;
    const struct operation *operation;
    uint32_t root, priority;
    float loss;           /* NaN: not told */
    const void *payload;  /* the input itself (W6): in the inbox, or in a receive that is held */
    uint32_t inbox_bytes; /* of it, in the inbox */
};

/* CHOSEN: the set that its round decided, then COMMIT; BACKED: of a copy, not of a round. */
enum { TELL_COMMIT = 1, TELL_ERROR, TELL_CLOSED, TELL_CHOSEN, TELL_BACKED };

#endif
