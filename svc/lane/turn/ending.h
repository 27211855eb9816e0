/* Types for account.c: ends of a job's rounds on its lane, and the cost of polling connections.
 * RULES.md: A22. */
#ifndef GRADPOOL_LANE_TURN_ENDING_H
#define GRADPOOL_LANE_TURN_ENDING_H

#include "svc/lane/lane.h"

/* State of a job's rounds on this lane (A22). */
struct job_ending {
    uint64_t round; /* newest round that a piece has begun */
    /* time at which the first piece of this round began; 0: the previous round was still in
     * progress */
    uint64_t begun_ns;
    uint64_t done_ns; /* time at which the last piece in progress ended */
    /* busy_ns of the job at the last time at which all its pieces were idle */
    uint64_t burst_from_ns;
    uint64_t handled_from_ns; /* last time at which all pieces of the job were idle */
    uint64_t burst_ns;        /* lane time of the job from burst_from_ns to done_ns */
    size_t at_work;           /* number of pieces with a round in progress */
    uint64_t handled_ns;      /* total time with a piece in progress (A36) */
    /* total time for which workers have waited, from their announcements (W18) */
    uint64_t stalled_ns;
    uint64_t first_done_ns; /* end of the first round on this lane; 0: none has ended */
    struct lane_endings sums;
};

/* Cost of a job's connections. A fabric that maps memory checks each connection in every poll, even
 * without events. */
struct job_looks {
    uint32_t connections; /* connections on fabrics that map memory */
    double paid_ns;       /* part of lane_looks.each_ns that was charged to the job */
};
struct lane_looks {
    uint32_t connections; /* number of connections of all jobs that one poll checks */
    double each_ns;       /* cost of checking one connection, summed since the start */
};

#endif
