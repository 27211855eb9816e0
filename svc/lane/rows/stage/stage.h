/* The members of a job's stage: the ranks whose clocks the tables count. Thread: the lane's.
 * RULES.md: A102. */
#ifndef GRADPOOL_LANE_ROWS_STAGE_STAGE_H
#define GRADPOOL_LANE_ROWS_STAGE_STAGE_H

#include <stdint.h>

struct lane;
struct lane_table;

struct lane_stage {
    uint64_t number;       /* from 1, larger than that of every earlier stage */
    const uint64_t *ranks; /* bitmap of RANKS_WORDS words, with at least one rank */
    uint64_t first_clock;  /* clock in which all members begin */
    /* for tables that use the consistency of the stage; `staleness` is for SSP */
    uint32_t consistency;
    uint32_t staleness;
};

/* Begins the stage in all tables of the job, or in none. Returns 0, also if the stage has begun
 * before or the job has no table here. -ENOENT: no such job; -ECONNABORTED: the job has failed;
 * -EAGAIN: a request of the former stage is not answered yet, or a member has not ended the clock
 * before `first_clock`; -EINVAL: no rank, an unknown consistency, or a clock that has ended;
 * -ESTALE: a later stage has begun. After an error nothing has changed. */
int lane_begin_stage(struct lane *lane, uint32_t job, const struct lane_stage *stage);
/* Begins the stage in a promoted table. The former owner had answered all requests of the previous
 * stage, but its log does not contain the begin of this stage. */
void stage_begin_table(struct lane_table *table, const struct lane_stage *stage);

#endif
