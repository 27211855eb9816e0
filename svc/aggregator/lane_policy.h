/* Which of the jobs that can use the core now gets the next chunk, for the files of this folder
 * only. */
#ifndef GRADPOOL_AGGREGATOR_LANE_POLICY_H
#define GRADPOOL_AGGREGATOR_LANE_POLICY_H

#include "svc/aggregator/lane_types.h"

/* A job passed over so often in a row is next, however much it has to do (LANE_SHORTEST). */
#define POLICY_PASSES_MAX 64

/* Takes it out of the line; NULL: nobody is there. */
struct lane_job *policy_next(struct lane *lane);
/* It has had its chunk and may want another: back into the line. */
void policy_put_back(struct lane_job *job);

#endif
