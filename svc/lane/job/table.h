/* Jobs and pieces of a lane by number, as announcements and requests name them. */
#ifndef GRADPOOL_LANE_JOB_TABLE_H
#define GRADPOOL_LANE_JOB_TABLE_H

#include "svc/lane/types.h"

#define TABLE_SIZE_LEAST 64

/* NULL: unknown, or dropped. */
struct lane_job *job_find(struct lane *lane, uint32_t id);
struct piece *piece_find(struct lane_job *job, uint32_t id); /* NULL: unknown */
/* NULL: the rank is not in the piece's set. */
struct rank *piece_rank(struct piece *p, uint32_t number);
/* piece_list() adds a new piece at the end of its job's list; after piece_unlist() piece_find()
 * does not return it. */
void piece_list(struct piece *p);
void piece_unlist(struct piece *p);

#endif
