/* Numbers in the place of a piece, in the counters that a lane sends about a job (JobUse). No piece
 * has these numbers. */
#ifndef GRADPOOL_WIRE_TABLE_TABLE_LOAD_H
#define GRADPOOL_WIRE_TABLE_TABLE_LOAD_H

#include <stdint.h>

/* The tables of the job, on this lane. Among the pieces: their lane time. As reference: no piece
 * has lane time, so the clocks that all members have ended count as rounds. */
#define TABLE_LOAD_CLOCKS UINT32_MAX
/* As reference: no clock has ended either, so each push to a table with ASP counts as a round. */
#define TABLE_LOAD_PUSHES (UINT32_MAX - 1)

#endif
