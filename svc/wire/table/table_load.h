/* Numbers that replace the number of a piece in the counters that a lane reports for a job
 * (JobUse). No piece has these numbers. */
#ifndef GRADPOOL_WIRE_TABLE_TABLE_LOAD_H
#define GRADPOOL_WIRE_TABLE_TABLE_LOAD_H

#include <stdint.h>

/* In `pieces` of JobUse, this number stands for all tables of the job on this lane. In `reference`,
 * it means that the job has no piece with lane time. The counted rounds are then the clocks that
 * all members have ended. */
#define TABLE_LOAD_CLOCKS UINT32_MAX
/* In `reference`, this number means that the job has neither a piece with lane time nor an ended
 * clock. The counted rounds are then the pushes to tables with ASP. */
#define TABLE_LOAD_PUSHES (UINT32_MAX - 1)

#endif
