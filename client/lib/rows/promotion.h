/* Promotion of copies of tables: another lane serves the shards of a lost lane. */
#ifndef GRADPOOL_CLIENT_LIB_ROWS_PROMOTION_H
#define GRADPOOL_CLIENT_LIB_ROWS_PROMOTION_H

#include "client/lib/job/job.h"
#include "svc/channel/channel.h"

/* Handles new routes of tables, with the job's lock held. The lock is released while other threads
 * lay out requests. The requests that are open at a lost lane are repeated to its successor, once
 * the lost lane can no longer use the memory of this worker (W5). */
void promotion_take(struct gp_job *job, const Gradpool__Wire__RouteChange *change);

#endif
