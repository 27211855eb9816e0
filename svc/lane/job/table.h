/* Finds jobs and pieces of a lane by number. */
#ifndef GRADPOOL_LANE_JOB_TABLE_H
#define GRADPOOL_LANE_JOB_TABLE_H

#include "svc/lane/types.h"

#define TABLE_SIZE_LEAST 64

/* Returns NULL if the job is unknown or dropped. */
struct lane_job *job_find(struct lane *lane, uint32_t id);
struct piece *piece_find(struct lane_job *job, uint32_t id); /* NULL: unknown. */
/* Returns NULL if the rank is not in the set of the piece. */
struct rank *piece_rank(struct piece *p, uint32_t number);
/* piece_list() adds a new piece at the end of its job's list. After piece_unlist(), piece_find() no
 * longer finds the piece. */
void piece_list(struct piece *p);
void piece_unlist(struct piece *p);

#endif
