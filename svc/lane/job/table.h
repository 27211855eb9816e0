/* Finds jobs and pieces of a lane by the numbers in announcements and requests. */
#ifndef GRADPOOL_LANE_JOB_TABLE_H
#define GRADPOOL_LANE_JOB_TABLE_H

#include "svc/lane/types.h"

#define TABLE_SIZE_LEAST 64

/* NULL: unknown or dropped. */
struct lane_job *job_find(struct lane *lane, uint32_t id);
struct piece *piece_find(struct lane_job *job, uint32_t id); /* NULL: unknown. */
/* NULL: the rank is not in the set of the piece. */
struct rank *piece_rank(struct piece *p, uint32_t number);
/* piece_list() adds a new piece at the end of its job's list. After piece_unlist() the piece is no
 * longer found by piece_find(). */
void piece_list(struct piece *p);
void piece_unlist(struct piece *p);

#endif
