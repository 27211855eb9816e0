/* Handlers for READY and QUERY records of workers. */
#ifndef GRADPOOL_LANE_HEAR_ANNOUNCE_H
#define GRADPOOL_LANE_HEAR_ANNOUNCE_H

#include "svc/lane/types.h"

/* Handles a READY. `data`: the receive buffer, which contains `payload`; NULL: no payload. Returns
 * true if the lane keeps the buffer (worker.held) until the payload is summed or dropped. */
bool announce(struct worker *w, const struct record_ready *ready, const void *data,
              const void *payload);
/* Answers with the ranks that delay the round of a piece. A query about an unknown piece gets no
 * answer. */
void answer_query(struct worker *w, const struct record_query *query);

#endif
