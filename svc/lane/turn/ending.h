/* Types for account.c: how the rounds of a job end on its lane, and the cost of polling
 * connections. RULES.md: A22. */
#ifndef GRADPOOL_LANE_TURN_ENDING_H
#define GRADPOOL_LANE_TURN_ENDING_H

#include "svc/lane/lane.h"

/* State of a job's round on this lane (A22). */
struct job_ending {
    uint64_t round; /* newest round that a piece has begun */
    /* time at which its first piece began; 0: the round before was still in progress */
    uint64_t begun_ns;
    uint64_t done_ns;         /* time at which the last piece at work was done */
    uint64_t burst_from_ns;   /* busy_ns of the job at the time when a piece was at work again */
    uint64_t handled_from_ns; /* time at which a piece was at work again */
    uint64_t burst_ns;        /* lane time of the job from burst_from_ns to done_ns */
    size_t at_work;           /* number of pieces with a round in progress */
    uint64_t handled_ns;      /* total time in which a piece was at work (A36) */
    /* total time for which workers waited, according to their announcements (W18) */
    uint64_t stalled_ns;
    uint64_t first_done_ns; /* time at which the first round on this lane was over; 0: none yet */
    struct lane_endings sums;
};

/* Cost of a job's connections. A fabric that maps memory visits each connection in every poll, even
 * without events. */
struct job_looks {
    uint32_t connections; /* number of connections on fabrics whose polls visit connections */
    double paid_ns;       /* part of lane_looks.each_ns that was billed to the job */
};
struct lane_looks {
    uint32_t connections; /* number of connections of all jobs that one poll visits */
    double each_ns;       /* cost of visiting one connection, summed since the start */
};

#endif
