/* The end of a round in a job with backup workers (W22). gradpool.h has gp_round_end(). */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_ROUND_END_H
#define GRADPOOL_CLIENT_LIB_ROUND_ROUND_END_H

#include "client/lib/job/request.h"

/* Returns -EDEADLK, with a text, if the request waits for a round that this rank has not ended;
 * otherwise 0. Called with the job's lock held. */
int round_end_is_due(const struct gp_request *q);
/* Returns whether another gradient of the request's round is wanted or computed, so the results of
 * this round must not be copied out yet (L121). Called with the job's lock held. */
bool round_end_is_awaited(const struct gp_request *q);

#endif
