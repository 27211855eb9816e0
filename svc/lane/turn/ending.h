/* How the rounds of a job end on its lane, for account.c. README: A22. */
#ifndef GRADPOOL_LANE_TURN_ENDING_H
#define GRADPOOL_LANE_TURN_ENDING_H

#include "svc/lane/lane.h"

/* Where a job is in its round (A22). */
struct job_ending {
    uint64_t round;           /* the newest that a piece has begun */
    uint64_t begun_ns;        /* when the first did; 0: while the round before was not over */
    uint64_t done_ns;         /* when there was nothing to work on last */
    uint64_t burst_from_ns;   /* the lane's time for it when there was something again */
    uint64_t handled_from_ns; /* when there was something again */
    uint64_t burst_ns;        /* lane time from there to done_ns */
    size_t at_work;           /* pieces */
    uint64_t handled_ns;      /* with a piece at work, in all (A36) */
    uint64_t stalled_ns;      /* as workers have told, in all (W18) */
    uint64_t first_done_ns;   /* when the first round here was over; 0: none was */
    struct lane_endings sums;
};

/* Looks at a job's connections, which each poll costs, with events or without. */
struct job_looks {
    uint32_t connections; /* of fabrics that look */
    double paid_ns;       /* of the lane's each_ns */
};
struct lane_looks {
    uint32_t connections; /* that one poll looks at */
    double each_ns;       /* what one of them has cost until now */
};

#endif
