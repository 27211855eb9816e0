/* Types for account.c: how the rounds of a job end on its lane, and polls of connections. RULES.md:
 * A22. */
#ifndef GRADPOOL_LANE_TURN_ENDING_H
#define GRADPOOL_LANE_TURN_ENDING_H

#include "svc/lane/lane.h"

/* State of a job's round on this lane (A22). */
struct job_ending {
    uint64_t round;    /* newest round that a piece has begun */
    uint64_t begun_ns; /* when its first piece began; 0: the round before was still in progress */
    uint64_t done_ns;  /* when the last piece at work was done */
    uint64_t burst_from_ns;   /* busy_ns of the job when a piece was at work again */
    uint64_t handled_from_ns; /* when a piece was at work again */
    uint64_t burst_ns;        /* lane time of the job from burst_from_ns to done_ns */
    size_t at_work;           /* pieces with a round in progress */
    uint64_t handled_ns;      /* total time with a piece at work (A36) */
    uint64_t stalled_ns;      /* total time that workers waited, as their announcements say (W18) */
    uint64_t first_done_ns;   /* when the first round on this lane was over; 0: none was */
    struct lane_endings sums;
};

/* Costs of a job's connections: a fabric that maps memory visits each connection in every poll,
 * with events or without. */
struct job_looks {
    uint32_t connections; /* connections of fabrics whose polls visit connections */
    double paid_ns;       /* part of lane_looks.each_ns that the job is billed for */
};
struct lane_looks {
    uint32_t connections; /* connections of all jobs that one poll visits */
    double each_ns;       /* cost of the visits of one connection, since the start */
};

#endif
