/* Numbers that replace the number of a piece in the counters that a lane reports for a job
 * (JobUse). No piece has these numbers. */
#ifndef GRADPOOL_WIRE_TABLE_TABLE_LOAD_H
#define GRADPOOL_WIRE_TABLE_TABLE_LOAD_H

#include <stdint.h>

/* In the list of pieces: the lane time of the tables of the job on this lane. As reference piece:
 * no piece has lane time, so each clock that all members have ended counts as a round. */
#define TABLE_LOAD_CLOCKS UINT32_MAX
/* As reference piece: no clock has ended either, so each push to a table with ASP counts as a
 * round. */
#define TABLE_LOAD_PUSHES (UINT32_MAX - 1)

#endif
