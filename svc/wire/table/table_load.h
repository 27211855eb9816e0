/* Numbers that replace the number of a piece in the counters that a lane reports for a job
 * (JobUse). No piece has these numbers. */
#ifndef GRADPOOL_WIRE_TABLE_TABLE_LOAD_H
#define GRADPOOL_WIRE_TABLE_TABLE_LOAD_H

#include <stdint.h>

/* In the row of a piece, this number stands for all tables of the job on this lane. As reference
 * piece, it means that the job has no pieces with lane time, so a round is a clock that all members
 * have ended. */
#define TABLE_LOAD_CLOCKS UINT32_MAX
/* As reference piece, this number means that the job has neither pieces with lane time nor ended
 * clocks, so a round is a push to a table with ASP. */
#define TABLE_LOAD_PUSHES (UINT32_MAX - 1)

#endif
