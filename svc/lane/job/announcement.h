/* A rank's announcement of a round, and the messages that answer it. */
#ifndef GRADPOOL_LANE_JOB_ANNOUNCEMENT_H
#define GRADPOOL_LANE_JOB_ANNOUNCEMENT_H

#include "svc/base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct operation;

#define ANNOUNCEMENT_NO_OUTPUT UINT32_MAX

/* A rank's announcement of one round. Each rank has two, at the index round & 1 (W3). */
struct announcement {
    struct list tell_link; /* node in worker.owed while a message is pending */
    uint64_t round;        /* 0: no announcement */
    /* data of the pending message. CLOSED: newest closed round. BACKED: round whose state the
     * replica has */
    uint64_t closed_round;
    uint32_t word;
    uint8_t standing; /* a value of enum record_standing */
    uint8_t owes;     /* pending message, one of TELL_* */
    uint32_t input_region;
    uint64_t input_offset, input_stride;
    uint32_t output_region; /* ANNOUNCEMENT_NO_OUTPUT: the rank wants no result */
    uint64_t output_offset, output_stride;
    const struct operation *operation;
    uint32_t root, priority;
    uint32_t weight; /* weight of the input in a mean or an update; 0: the input is not read */
    float loss;      /* NaN: the worker has not sent a loss */
    /* the input itself (W6), in the inbox or in a receive buffer; NULL: none */
    const void *payload;
    uint32_t inbox_bytes; /* bytes that the payload uses in the inbox; 0: none */
};

/* TELL_CHOSEN: the lane sends the set of the round, followed by COMMIT. TELL_BACKED: the lane
 * informs a replica holder that its replica has the state of a round; this message answers no
 * announcement. TELL_GO_ON: the lane requests the next gradient of the same round; a later message
 * replaces an unsent GO_ON. */
enum { TELL_COMMIT = 1, TELL_ERROR, TELL_CLOSED, TELL_CHOSEN, TELL_BACKED, TELL_GO_ON };

#endif
